"""Compare the motifs of a model's contributions with the matrices of the factors of its tracks.

`python -m docs.generators.factor_motifs MODEL REFERENCE PEAKS NAME --contig VII --contig XV --work DIR`
explains, for each track with the name of a factor that has a matrix, up to `--most` peaks of the factor on
the contigs, which must be those of the model's test set. PEAKS has a BED file for each factor:
`FACTOR_….bed.gz`, or `FACTOR.narrowPeak.gz` of a simulation. Matrices are those of JASPAR for fungi, or of
the simulation whose `truth.json` is given by `--truth`. Factors with fewer than `--least` peaks are left out,
unless `--factor` names them. Explanations go to `--work` and are not repeated; the table of factors, with how
well each factor's matrix separates its peaks from regions nearby, goes to `docs/results/data/NAME.json`.
"""

import argparse
import datetime
import gzip
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sklearn.metrics import roc_auc_score

from bigbird_dna import explain, load
from bigbird_dna.baselines.kmers import base_codes
from bigbird_dna.disk.tables import read_table
from bigbird_dna.explanation.motifs import RECOVERED, find_motifs
from bigbird_dna.explanation.targets import output_names
from bigbird_dna.genome.assembly import contig_finder
from bigbird_dna.genome.motifs import (
    KnownMotif,
    jaspar_motifs,
    motifs_of_factor,
    read_motifs,
)
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.papers.comparators.motifs import best_matches
from bigbird_dna.tokens.interface import BASES

from .collect import header, write_run

TAXON = "fungi"
BACKGROUND = (0.31, 0.19, 0.19, 0.31)
DISTANCE = 1000  # bp from a peak to the region that it is compared with
CLEAR = 0.7  # AUROC of a matrix from which on it is clear
FILES = ("{}_*.bed.gz", "[0-9]*_{}_*.bed.gz", "{}.narrowPeak.gz")
VIEWS: dict[str, Any] = {"offsets": 1, "tokenizations": 1}


def peaks_of(
    path: Path, find: Callable[[str], str | None], contigs: Sequence[str], width: int
) -> list[tuple[str, int, int]]:
    """Regions of `width` bp around the peaks on some contigs, in the order of the file."""
    with gzip.open(path, "rt") as stream:
        rows = [line.split("\t")[:3] for line in stream]
    found = []
    for contig, start, end in rows:
        name = find(contig)
        if name in contigs:
            first = (int(start) + int(end) - width) // 2
            found.append((str(name), first, first + width))
    return found


def matrix_auroc(
    motifs: Sequence[KnownMotif],
    regions: Sequence[tuple[str, int, int]],
    genome: Reference,
) -> float:
    """How well the best match of any matrix separates a factor's peaks from the regions `DISTANCE` bp on."""
    others = [
        (contig, start + DISTANCE, end + DISTANCE) for contig, start, end in regions
    ]
    codes = base_codes([genome.fetch(Interval(*one)) for one in [*regions, *others]])
    scores = best_matches(codes, [motif.log_odds(BACKGROUND) for motif in motifs]).max(
        axis=1
    )
    return float(roc_auc_score([1] * len(regions) + [0] * len(others), scores))


def simulated_matrices(truth: Path) -> Iterator[str]:
    """The motifs of a simulation in JASPAR format, as counts in 10,000 sites."""
    for number, (name, motif) in enumerate(
        json.loads(truth.read_text(encoding="utf-8"))["motifs"].items(), start=1
    ):
        yield f">SIM{number}.1 {name}\n"
        for base, chances in zip(BASES, zip(*motif["pwm"], strict=True), strict=True):
            yield f"{base} [ {' '.join(str(round(10_000 * one)) for one in chances)} ]\n"


def main() -> None:
    """Write the JSON file of a run."""
    parser = argparse.ArgumentParser(prog="python -m docs.generators.factor_motifs")
    parser.add_argument("model", type=Path, help="directory of a chromatin model")
    parser.add_argument("reference", type=Path, help="indexed FASTA of its genome")
    parser.add_argument("peaks", type=Path, help="directory of BED files")
    parser.add_argument("name", help="RUN of docs/results/data/RUN.json")
    parser.add_argument(
        "--contig", action="append", required=True, help="a test contig"
    )
    parser.add_argument(
        "--factor", action="append", default=[], help="a factor to explain in any case"
    )
    parser.add_argument(
        "--least", type=int, default=40, help="smallest number of peaks on the contigs"
    )
    parser.add_argument(
        "--most", type=int, default=100, help="largest number of explained peaks"
    )
    parser.add_argument("--width", type=int, default=120, help="bp around a peak")
    parser.add_argument(
        "--truth", type=Path, help="truth.json of the simulation of the genome"
    )
    parser.add_argument(
        "--work", type=Path, required=True, help="directory for the explanations"
    )
    parser.add_argument("--command", help="the command to state, instead of this one")
    given = parser.parse_args()
    matrices = None
    if given.truth is not None:
        given.work.mkdir(parents=True, exist_ok=True)
        matrices = given.work / "simulated.jaspar"
        matrices.write_text("".join(simulated_matrices(given.truth)))
    known = read_motifs(matrices) if matrices else jaspar_motifs(TAXON)
    tracks = output_names(load(given.model))
    with Reference(given.reference) as genome:
        find = contig_finder(genome.contigs, genome.names)
    explained, aurocs = [], {}
    for track in sorted(tracks, key=lambda name: (name not in given.factor, name)):
        files = [
            path
            for pattern in FILES
            for path in given.peaks.glob(pattern.format(track))
        ]
        if not files or not motifs_of_factor(track, known):
            continue
        regions = peaks_of(files[0], find, given.contig, given.width)
        if len(regions) < given.least and track not in given.factor:
            continue
        with Reference(given.reference) as genome:
            aurocs[track] = matrix_auroc(
                motifs_of_factor(track, known), regions, genome
            )
        place = given.work / track
        explained.append(place)
        if (place / "shap.npz").exists():
            continue
        print(track, len(regions), flush=True)
        given.work.mkdir(parents=True, exist_ok=True)
        bed = given.work / f"{track}.bed"
        rows = (
            f"{contig}\t{start}\t{end}\n"
            for contig, start, end in regions[: given.most]
        )
        bed.write_text("".join(rows))
        explain(
            given.model,
            bed,
            place,
            reference=given.reference,
            tracks=track,
            method="gradient",
            **VIEWS,
        )
    find_motifs(explained, given.work / "motifs", matrices=matrices, taxon=TAXON)
    table = read_table(given.work / "motifs" / "recovered.tsv", RECOVERED)
    today = datetime.datetime.now(datetime.UTC).date()
    command = given.command or " ".join(
        ["python -m docs.generators.factor_motifs", *sys.argv[1:]]
    )
    table = table.assign(matrix_auroc=table["output"].map(aurocs))
    clear, own = table["matrix_auroc"] >= CLEAR, table["recovered"] == "yes"
    facts = {"factors": len(table), "recovered": int(own.sum())}
    facts |= {"clear": int(clear.sum()), "clear_recovered": int((clear & own).sum())}
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    tables = {"facts": [facts], "recovered": rows}
    write_run(given.name, header(today, command, None) | {"tables": tables})


if __name__ == "__main__":
    main()
