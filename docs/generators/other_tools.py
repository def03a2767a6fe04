"""Time of preparation against other tools: `python -m docs.generators.other_tools FASTA PEAKS`.

FASTA is the indexed genome of yeast (R64-1-1), PEAKS a directory of peak files, as in
workflow/config/yeast_factors.yaml. Each tool labels the same bins with the same peaks, and the numbers of
positive bins must be equal; or trains a tokenizer on the same sentences. bedtools must be on the PATH. Then
`auc-report` evaluates random predictions of DeepSEA's size, 5.4 GB in the directory of temporary files.
"""

import argparse
import datetime
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from numpy.lib.format import open_memmap

from bigbird_dna.genome.assembly import Assembly, load_assembly
from bigbird_dna.genome.chromatin.dataset import build_dataset
from bigbird_dna.genome.chromatin.labels import BinSource, Labeling
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.genome.intervals import place_peaks, read_peaks
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.splits import NamedRegion, RegionSplits
from bigbird_dna.tokens.dna import DnaTokenizer

BIN, WIDEN = 200, 100
SENTENCE, VOCABULARY, LONGEST = 750, 1024, 16
REPEATS = 3
HELD_OUT = {"valid": ["XI"], "test": ["VII", "XV"]}
COUNT = "positive bins"
ROWS, TRACKS, PREVALENCE, AT_ONCE = 455_024, 919, 0.02, 8192
BEDTOOLS = (
    "zcat -f {peaks} | awk -v OFS='\\t' '{{s = $2 - {widen}; print $1, s < 0 ? 0 : s, $3 + {widen}}}' | "
    "sort -k1,1 -k2,2n | bedtools merge | bedtools coverage -sorted -a {bins} -b - | awk '$NF > 0.5' | wc -l"
)

Counts = list[int]
Lengths = Mapping[str, int]


def named_as_in_peaks(
    files: Sequence[Path], contigs: Lengths, assembly: Assembly
) -> dict[str, int]:
    """The lengths of the contigs by the names that peak files have for them."""
    names = {name for file in files for name in read_peaks(file).contigs}
    found = {name: assembly.match(name, contigs) for name in names}
    return {
        name: contigs[own] for name, own in sorted(found.items()) if own is not None
    }


def own_labels(files: Sequence[Path], contigs: Lengths, assembly: Assembly) -> Counts:
    """Positive bins of each track by this package: more than half of the bin is in peaks."""
    labeling = Labeling(bin_size=BIN, window=BIN, max_n=1.0, min_positives=1)
    counts = []
    for file in files:
        placed = place_peaks(read_peaks(file), contigs, assembly, widen=WIDEN).contigs
        counts.append(
            sum(
                len(labeling.positive_bins(one, contigs[name]))
                for name, one in placed.items()
            )
        )
    return counts


def bedtools_labels(files: Sequence[Path], lengths: Lengths, home: Path) -> Counts:
    """The same by `bedtools merge` and `bedtools coverage`, for each track."""
    bins = home / "bins.bed"
    rows = (
        f"{n}\t{s}\t{s + BIN}\n"
        for n in lengths
        for s in range(0, lengths[n] - BIN + 1, BIN)
    )
    bins.write_text("".join(rows))
    counts = []
    for file in files:
        command = BEDTOOLS.format(peaks=file, widen=WIDEN, bins=bins)
        found = subprocess.run(
            command, shell=True, check=True, capture_output=True, text=True
        )
        counts.append(int(found.stdout))
    return counts


def pandas_labels(
    files: Sequence[Path], lengths: Lengths
) -> tuple[Counts, pd.DataFrame]:
    """The same by pandas, and the table of bins and tracks."""
    bins = [
        pd.DataFrame({"contig": n, "bin": np.arange(lengths[n] // BIN)})
        for n in lengths
    ]
    table = pd.concat(bins).set_index(["contig", "bin"])
    for number, file in enumerate(files):
        peaks = pd.read_csv(
            file,
            sep="\t",
            header=None,
            usecols=[0, 1, 2],
            names=["contig", "start", "end"],
        )
        peaks["start"], peaks["end"] = (
            (peaks["start"] - WIDEN).clip(0),
            peaks["end"] + WIDEN,
        )
        peaks = peaks[peaks["contig"].isin(lengths)].sort_values(["contig", "start"])
        before = (
            peaks.groupby("contig")["end"]
            .cummax()
            .groupby(peaks["contig"])
            .shift(fill_value=-1)
        )
        island = (peaks["start"] > before).cumsum().rename("island")
        peaks = (
            peaks.groupby(["contig", island])
            .agg({"start": "min", "end": "max"})
            .reset_index("contig")
        )
        first, last = peaks["start"] // BIN, (peaks["end"] - 1) // BIN
        peaks["bin"] = [range(a, b + 1) for a, b in zip(first, last, strict=True)]
        parts = peaks.explode("bin").astype({"bin": int})
        low, high = parts["bin"] * BIN, parts["bin"] * BIN + BIN
        covered = parts["end"].clip(upper=high) - parts["start"].clip(lower=low)
        sums = covered.groupby([parts["contig"], parts["bin"]]).sum()
        positive = sums[sums > BIN / 2].index.intersection(table.index)
        table[number] = table.index.isin(positive)
    return [int(table[number].sum()) for number in range(len(files))], table


def own_table(
    files: Sequence[Path], reference: Reference, assembly: Assembly, home: Path
) -> None:
    """The data set of this package, as of `prepare chromatin`: also split, checked and described."""
    tracks = [Track(file.name.split(".")[0], "TF", file=file) for file in files]
    held = [
        NamedRegion(kind, kind, name, Interval(name, 0, reference.contigs[name], "+"))
        for kind, names in HELD_OUT.items()
        for name in names
    ]
    labeling = Labeling(
        bin_size=BIN,
        window=BIN,
        max_n=1.0,
        negative_fraction=1.0,
        widen=WIDEN,
        min_positives=1,
    )
    splits = RegionSplits.from_regions(held)
    build_dataset(
        home / "data", BinSource(reference, assembly, tracks, splits, labeling)
    )


def sentencepiece(sentences: Sequence[str], home: Path) -> None:
    """Train a byte-pair encoding by SentencePiece's own trainer, from a file, with its own settings."""
    import sentencepiece as spm

    text = home / "text.txt"
    text.write_text("\n".join(sentences))
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "max_sentencepiece_length": LONGEST,
    }
    spm.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(home / "spm"),
        model_type="bpe",
        minloglevel=2,
        **sizes,
    )


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """The least seconds of several calls, and the last result."""
    seconds = []
    for _ in range(REPEATS):
        began = perf_counter()
        found = work()
        seconds.append(perf_counter() - began)
    return min(seconds), found


def measure(fasta: Path, files: Sequence[Path], home: Path) -> list[dict[str, Any]]:
    """The seconds of each work by this package and by the other tools."""
    reference, assembly = Reference(fasta), load_assembly("sacCer3")
    contigs = reference.contigs
    lengths = named_as_in_peaks(files, contigs, assembly)
    own, counts = timed(lambda: own_labels(files, contigs, assembly))
    bedtools, others = timed(lambda: bedtools_labels(files, lengths, home))
    pandas, (more, table) = timed(lambda: pandas_labels(files, lengths))
    if not counts == others == more:
        raise SystemExit(f"the numbers of {COUNT} differ")
    table.columns = table.columns.map(str)
    written, _ = timed(lambda: table.reset_index().to_parquet(home / "table.parquet"))
    data, _ = timed(lambda: own_table(files, reference, assembly, home))
    whole = "".join(
        reference.fetch(Interval(name, 0, size, "+")) for name, size in contigs.items()
    )
    whole = whole[: 4_000_000 // SENTENCE * SENTENCE]
    sentences = [whole[at : at + SENTENCE] for at in range(0, len(whole), SENTENCE)]
    train = timed(
        lambda: DnaTokenizer.train(sentences, home / "own.model", VOCABULARY, LONGEST)
    )[0]
    other = timed(lambda: sentencepiece(sentences, home))[0]
    rows = [
        ("labels of bins", "bedtools", own, bedtools),
        ("labels of bins", "pandas", own, pandas),
        ("data set", "pandas, to Parquet", data, pandas + written),
        ("tokenizer", "SentencePiece", train, other),
    ]
    return [
        {
            "work": work,
            "tool": tool,
            "seconds": round(ours, 2),
            "tool_seconds": round(theirs, 2),
            "ratio": round(ours / theirs, 3),
        }
        for work, tool, ours, theirs in rows
    ]


def write_arrays(home: Path) -> None:
    """Write random predictions of three predictors, and labels."""
    rng = np.random.default_rng(1)
    for name in ("predictions", "one", "other", "labels"):
        kind = np.uint8 if name == "labels" else np.float32
        values = open_memmap(home / f"{name}.npy", "w+", kind, (ROWS, TRACKS))
        for start in range(0, ROWS, AT_ONCE):
            drawn = rng.random((min(AT_ONCE, ROWS - start), TRACKS), np.float32)
            values[start : start + len(drawn)] = (
                drawn < PREVALENCE if name == "labels" else drawn
            )
        values.flush()


def measure_report(home: Path) -> dict[str, Any]:
    """Seconds and peak memory of `auc-report` with random predictions and two others to compare."""
    # In a process of its own: a child's peak counts what its parent held when it began.
    writer = multiprocessing.get_context("spawn").Process(
        target=write_arrays, args=(home,)
    )
    writer.start()
    writer.join()
    command = [
        sys.executable,
        "-m",
        "bigbird_dna.cli.main",
        "auc-report",
        "predictions.npy",
        "labels.npy",
    ]
    command += [
        "--compare",
        "one=one.npy",
        "--compare",
        "other=other.npy",
        "-o",
        "report",
    ]
    began = perf_counter()
    process = subprocess.Popen(command, cwd=home)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit("the report failed")
    cpu = usage.ru_utime + usage.ru_stime
    found = {
        "rows": ROWS,
        "tracks": TRACKS,
        "compared": 2,
        "seconds": round(perf_counter() - began, 1),
    }
    return found | {
        "cpu_seconds": round(cpu, 1),
        "peak_gb": round(usage.ru_maxrss * 1024 / 1e9, 2),
    }


def main() -> None:
    """Write the results."""
    from .collect import header, write_run  # which imports torch

    parser = argparse.ArgumentParser(prog="python -m docs.generators.other_tools")
    parser.add_argument("fasta", type=Path)
    parser.add_argument("peaks", type=Path)
    given = parser.parse_args()
    files = sorted(given.peaks.glob("*.bed*"))
    with TemporaryDirectory() as home:
        tables = {
            "tools": measure(given.fasta, files, Path(home)),
            "report": [measure_report(Path(home))],
        }
    today = datetime.datetime.now(datetime.UTC).date()
    command = "python -m docs.generators.other_tools results/yeast_factors/genome/reference.fa.gz peaks"
    write_run("other-tools", header(today, command, None) | {"tables": tables})


if __name__ == "__main__":
    main()
