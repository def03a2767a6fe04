"""Measure a model on measured start sites of E. coli, in place and moved, and along the test regions.

    python workflow/scripts/ecoli_windows.py CONFIG MODEL measured.csv --reference reference.fa.gz -o DIR

`measured.csv` is from `measured_promoters.py`, and MODEL is one of `finetune-sequences` or of start sites, of
which a window has the highest probability on its strand. Writes

* `measured.tsv`: how well scores of the test windows, and of windows some bp beside them, tell active windows from
  others. With `--scores NAME=FILE`, so do scans of `score-promoters` or of baselines: the highest score in each window.
* `active.tsv`: the start sites of active test windows, as `prepare promoters` writes start sites.
* with `--scan`, `windows.scan.tsv`: the scores of windows along the test regions, for `evaluate scan`.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, roc_auc_score

import bigbird_dna
from bigbird_dna.config.reading import load_config
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.errors import BigBirdDnaError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, reverse_complement
from bigbird_dna.genome.sources import find_assembly
from bigbird_dna.genome.splits import Splits

SHIFTS = (0, 1, 2, 5, 10, 25)  # bp, in both directions
TSS = {"+": 119, "-": 29}  # base of a window's forward strand
AT_ONCE = 4096  # windows

Floats = NDArray[np.float64]


def score(model: Any, texts: list[str]) -> Floats:
    """Return the score (N,) of each window, read on its strand."""
    probs = np.asarray(model.predict(texts), np.float64)
    return probs[:, 0].max(1) if probs.ndim == 3 else probs.reshape(len(texts))


def compare(scores: Floats, windows: pd.DataFrame) -> dict[str, float]:
    """Return the metrics of scores; NaN: not scored."""
    known = ~np.isnan(scores)
    scores, windows = scores[known], windows[known]
    return {
        "n": len(windows),
        "auroc": roc_auc_score(windows["label"], scores),
        "auprc": average_precision_score(windows["label"], scores),
        "spearman": float(spearmanr(windows["activity"], scores)[0]),
    }


def highest(scan: Path, windows: pd.DataFrame) -> Floats:
    """Return the highest score of a scan in each window, on its strand; NaN where it has none."""
    table = pd.read_csv(scan, sep="\t", usecols=["score", "strand", "tss"])
    found = np.full(len(windows), np.nan)
    for strand, part in table.dropna().groupby("strand"):
        part = part.sort_values("tss")
        scores, tss = part["score"].to_numpy(), part["tss"].to_numpy()
        numbers = np.flatnonzero(windows["strand"] == strand)
        first = np.searchsorted(tss, windows["start"].to_numpy()[numbers])
        last = np.searchsorted(tss, windows["end"].to_numpy()[numbers])
        for number, begin, end in zip(numbers, first, last, strict=True):
            if begin < end:
                found[number] = scores[begin:end].max()

    return found


def measure(
    model: Any,
    windows: pd.DataFrame,
    genome: Reference,
    scans: Iterable[tuple[str, Path]],
) -> pd.DataFrame:
    """Return a row of metrics of each scan, and of the model for each shift in the direction of transcription."""
    rows: list[dict[str, Any]] = []
    for shift in sorted({*SHIFTS, *(-shift for shift in SHIFTS)}, key=abs):
        texts = []
        for window in windows.itertuples():
            moved = shift if window.strand == "+" else -shift
            start, end = window.start + moved, window.end + moved
            texts.append(
                genome.fetch(Interval(window.contig, start, end, window.strand))
            )

        scores = score(model, texts)
        rows.append({"predictor": "model", "shift": shift, **compare(scores, windows)})
        log(f"moved by {shift} bp: AUROC {rows[-1]['auroc']:.3f}")

    for name, path in scans:
        found = compare(highest(path, windows), windows)
        rows.append({"predictor": name, "shift": None, **found})

    return pd.DataFrame(rows).astype({"shift": "Int64"})


def active_sites(windows: pd.DataFrame) -> pd.DataFrame:
    """Return the start sites of active windows."""
    active = windows[windows["label"] == 1]
    position = active["start"] + active["strand"].map(TSS)
    columns = ["contig", "position", "strand", "name"]
    return active.assign(position=position)[columns].sort_values("position")


def scan(
    model: Any, length: int, genome: Reference, regions: Iterable[Interval], stride: int
) -> pd.DataFrame:
    """Return the scores of windows every `stride` bp of regions, on both strands, as rows of `score-promoters`."""
    parts = []
    for region in regions:
        bases = genome.fetch(region)
        starts = np.arange(0, len(bases) - length + 1, stride)
        for strand, tss in TSS.items():
            scores = []
            for first in range(0, len(starts), AT_ONCE):
                texts = [bases[s : s + length] for s in starts[first : first + AT_ONCE]]
                if strand == "-":
                    texts = [reverse_complement(text) for text in texts]
                scores.append(score(model, texts))

            columns = {
                "contig": region.contig,
                "start": region.start + starts,
                "end": region.start + starts + length,
                "name": ".",
                "score": np.concatenate(scores).round(6),
                "strand": strand,
                "note": ".",
                "tss": region.start + starts + tss,
            }
            parts.append(pd.DataFrame(columns))
            log(f"{region.contig}:{region.start}-{region.end}({strand}) is scored")

    return pd.concat(parts).sort_values(["contig", "start", "strand"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path, metavar="CONFIG", help="configuration")
    parser.add_argument("model", metavar="MODEL", help="model directory or name")
    parser.add_argument("measured", type=Path, metavar="CSV", help="measured windows")
    parser.add_argument("--reference", type=Path, metavar="FASTA", required=True)
    parser.add_argument(
        "--scores",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="another scan",
    )
    parser.add_argument("--scan", type=int, metavar="BP", help="distance of windows")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", required=True)
    arguments = parser.parse_args()
    windows = pd.read_csv(arguments.measured)
    windows = windows[windows["split"] == "test"].reset_index(drop=True)
    pairs = [text.partition("=") for text in arguments.scores]
    arguments.output.mkdir(parents=True, exist_ok=True)
    try:
        config = load_config(arguments.config, [])
        model = bigbird_dna.load(arguments.model)
        with Reference(arguments.reference) as genome:
            scans = [(name, Path(file)) for name, _, file in pairs]
            tables = {
                "active": active_sites(windows),
                "measured": measure(model, windows, genome, scans),
            }
            if arguments.scan:
                splits = Splits.from_config(
                    config.genome, genome.contigs, find_assembly(config)
                )
                length = len(windows["sequence"][0])
                regions = splits.intervals("test")
                tables["windows.scan"] = scan(
                    model, length, genome, regions, arguments.scan
                )

    except BigBirdDnaError as error:
        sys.exit(f"error: {error}")

    for name, table in tables.items():
        with atomic_path(arguments.output / f"{name}.tsv") as temporary:
            table.to_csv(temporary, sep="\t", index=False)


if __name__ == "__main__":
    main()
