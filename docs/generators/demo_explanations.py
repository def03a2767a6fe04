"""Compare explanations of the demo's models with what was simulated.

`python -m docs.generators.demo_explanations RESULTS NAME --work DIR` explains promoters of the test contig by
the model `promoter-genomic`, and the simulated variants of this contig by the model that `score-variants`
used. It writes to `docs/results/data/NAME.json`

* the fraction of the bases of planted motifs that are in the top fifth of their window by mutagenesis, in
  promoters that the model recognizes: a base's value is the largest absolute change of the score by its three
  substitutions, or its contribution;
* the AUROC of the absolute effects of variants, by `explain` (ALT minus REF, the mean over views), by
  gradients and by `score-variants`.

Explanations go to `--work` and are not repeated.
"""

import argparse
import datetime
import gzip
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pysam
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from bigbird_dna import explain
from bigbird_dna.disk.tables import read_table
from bigbird_dna.explanation.explain import EXPLAINED_BASES, SCORES

from .collect import header, write_run

CONTIG = "demo6"
UPSTREAM = 300  # bp of a window before the TSS
TOP = 5
EFFECTS = [f"effect_{base}" for base in "ACGT"]
TRACKS = ("ALFA", "BRAVO", "CHARLIE", "DELTA")


class Locus(NamedTuple):
    """A simulated locus: a promoter, whose TSS is `anchor`, or a planted motif."""

    kind: str
    start: int
    end: int
    anchor: int
    strand: str


def loci(path: Path) -> Iterator[Locus]:
    """Loci of the test contig."""
    with gzip.open(path, "rt") as stream:
        for line in stream:
            contig, start, end, name, _, strand = line.rstrip("\n").split("\t")
            kind, _, more = name.partition(";")
            anchor = (
                int(more.removeprefix("anchor=")) if more.startswith("anchor=") else 0
            )
            if contig == CONTIG:
                yield Locus(kind, int(start), int(end), anchor, strand)


def top_bases(window: pd.DataFrame, by: str) -> set[int]:
    """Positions of the fifth of a window's bases with the largest values."""
    values = (
        window["contribution"]
        if by == "contribution"
        else window[EFFECTS].abs().max(axis=1)
    )
    return {
        *window["position"].to_numpy()[np.argsort(-values, kind="stable")][
            : len(window) // TOP
        ]
    }


def sampled(results: Path, count: int) -> pd.DataFrame:
    """Some promoters of the test contig: name, TSS (0-based), strand, and whether the model recognizes it."""
    windows = pd.read_parquet(results / "promoters/windows.parquet")
    test = windows[
        (windows["split"] == "test") & (windows["negative_set"] == "positive")
    ]
    chosen = test.sample(count, random_state=0)
    place = ["contig", "start", "end", "strand"]
    predicted = pd.read_parquet(results / "models/promoter-genomic/predictions.parquet")
    predicted = predicted[predicted["label"] == 1].set_index(place)["probability"]
    found = chosen.join(predicted, on=place)
    forward = found["strand"] == "+"
    tss = (found["start"] + UPSTREAM).where(forward, found["end"] - UPSTREAM - 1)
    return found.assign(
        tss=tss, end=tss + 1, score=0, recognized=found["probability"] > 0.5
    )


def motif_bases(
    bases: pd.DataFrame, promoters: Mapping[str, Locus], known: list[Locus]
) -> Iterator[dict[str, Any]]:
    """A row per planted motif: the number of its bases in these promoters, and the fractions in the top."""
    found: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for name, window in bases.groupby("name", sort=False):
        promoter, seen = promoters[str(name)], {*window["position"]}
        tops = {by: top_bases(window, by) for by in ("change", "contribution")}
        for one in known:
            if (
                one.kind.startswith("motif-")
                and promoter.start <= one.start
                and one.end <= promoter.end
            ):
                for by, top in tops.items():
                    inside = seen.intersection(range(one.start, one.end))
                    found[one.kind.removeprefix("motif-")][by] += [
                        place in top for place in inside
                    ]
    core = [name for name in ("TATA", "INR", "GCBOX", "DPE") if name in found]
    for motifs in ([*found], core, *([name] for name in sorted(found))):
        of = {
            by: [hit for name in motifs for hit in found[name][by]]
            for by in ("change", "contribution")
        }
        label = "all" if motifs == [*found] else " ".join(motifs)
        yield {
            "motifs": label,
            "bases": len(of["change"]),
            **{by: float(np.mean(of[by])) for by in of},
        }


def variant_effects(results: Path, explained: Path) -> Iterator[dict[str, Any]]:
    """A row per source and scale of effects: AUROC of variants with an effect against others."""
    scores = read_table(explained / "scores.tsv", SCORES).set_index(["name", "output"])[
        "score"
    ]
    bases = read_table(explained / "bases.tsv", EXPLAINED_BASES).set_index(
        ["name", "output", "position"]
    )
    rows = []
    with pysam.VariantFile(str(results / "chromatin/variants.vcf.gz")) as stream:
        tracks = (
            stream.header.info["BBD_DELTA"]
            .description.split("the tracks ")[1]
            .split(",")
        )
        for one in stream.fetch(CONTIG):
            track, name = (
                str(one.info["TRACK"]),
                f"{one.id} {CONTIG}:{one.pos}:{one.ref}:{one.alts[0]}",
            )
            ref, alt = scores[f"{name} REF", track], scores[f"{name} ALT", track]
            column = tracks.index(track)
            row = {"real": one.info["EFFECT"] != "none", "explain log-odds": alt - ref}
            row["explain probability"] = expit(alt) - expit(ref)
            row["score-variants log-odds"] = float(
                str(one.info["BBD_LOGODDS"][0]).split("&")[column]
            )
            row["score-variants probability"] = float(
                str(one.info["BBD_DELTA"][0]).split("&")[column]
            )
            if len(one.ref) == len(one.alts[0]) == 1:
                base = bases.loc[(f"{name} REF", track, one.pos - 1)]
                row["gradients log-odds"] = base[f"effect_{one.alts[0]}"]
            rows.append(row)
    table = pd.DataFrame(rows)
    for name in table.columns.drop("real"):
        given = table[table[name].notna()]
        auroc = roc_auc_score(given["real"], given[name].abs())
        source, scale = name.split()
        counts = {"variants": len(given), "with_effect": int(given["real"].sum())}
        yield {"source": source, "scale": scale, **counts, "auroc": float(auroc)}


def main() -> None:
    """Write the JSON file of a run."""
    parser = argparse.ArgumentParser(prog="python -m docs.generators.demo_explanations")
    parser.add_argument("results", type=Path, help="results of the demo")
    parser.add_argument("name", help="RUN of docs/results/data/RUN.json")
    parser.add_argument(
        "--promoters", type=int, default=30, help="number of explained promoters"
    )
    parser.add_argument(
        "--work", type=Path, required=True, help="directory for the explanations"
    )
    parser.add_argument("--command", help="the command to state, instead of this one")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    reference = given.results / "genome/reference.fa.gz"
    known = list(loci(given.results / "simulated/loci.bed.gz"))
    own = sampled(given.results, given.promoters)
    promoters, variants = given.work / "promoters", given.work / "variants"
    if not promoters.exists():
        bed = given.work / "promoters.bed"
        rows = (
            own[["contig", "tss", "end", "name", "score", "strand"]]
            .astype(str)
            .agg("\t".join, axis=1)
        )
        bed.write_text("\n".join(rows) + "\n")
        model = given.results / "models/promoter-genomic"
        explain(model, bed, promoters, reference=reference, offsets=2, tokenizations=2)
    if not variants.exists():
        vcf = given.work / "variants.vcf"
        with gzip.open(given.results / "simulated/variants.vcf.gz", "rt") as stream:
            vcf.write_text(
                "".join(
                    line for line in stream if line.startswith(("#", f"{CONTIG}\t"))
                )
            )
        model = given.results / "models/chromatin-8000-0"
        options: dict[str, Any] = {
            "tracks": ",".join(TRACKS),
            "flank": 1,
            "method": "gradient",
        }
        explain(model, vcf, variants, reference=reference, **options)
    bases = read_table(promoters / "bases.tsv", EXPLAINED_BASES)
    bases = bases[bases["name"].isin(own.loc[own["recognized"], "name"])]
    at_tss = {
        (one.anchor, one.strand): one
        for one in known
        if one.kind.startswith("promoter-")
    }
    loci_of = {
        one.name: at_tss[one.tss, one.strand]
        for one in own.rename_axis("row").itertuples()
    }
    tables = {
        "promoters": [
            {"explained": len(own), "recognized": int(own["recognized"].sum())}
        ],
        "motif_bases": list(motif_bases(bases, loci_of, known)),
        "variant_effects": list(variant_effects(given.results, variants)),
    }
    today = datetime.datetime.now(datetime.UTC).date()
    command = given.command or " ".join(
        ["python -m docs.generators.demo_explanations", *sys.argv[1:]]
    )
    write_run(given.name, header(today, command, None) | {"tables": tables})


if __name__ == "__main__":
    main()
