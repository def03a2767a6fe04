"""Time, memory and size of large work, which stay within bounds: by hand, or slowly as a test.

    python -m tests.benchmarks.test_large_work report [--rows 455024] [--tracks 919] [--threads 2]
    python -m tests.benchmarks.test_large_work labels [--tracks 919] [--hotspots 880000] [--peaks 45000]
    python -m tests.benchmarks.test_large_work scan [MODEL_DIR] [--megabases 100] [--stride 2000]

`report`: of random predictions (float32, a third of the tracks with ties) and labels (uint8) of DeepSEA's
size, 2.1 GB; some tracks are compared with scikit-learn. `labels`: a data set of a whole genome from files of
peaks, drawn from the same hotspots. `scan`: of a random FASTA of one record by the model (or, without one, by
a predictor that counts letters in windows of 8,000 bp); what was in use before doesn't count.
"""

import argparse
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.lib.format import open_memmap
from pyarrow import csv

from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.chromatin.dataset import build_dataset
from bigbird_dna.genome.chromatin.labels import BinSource, Labeling
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.genome.fasta import scan_fasta
from bigbird_dna.model.directory import load_promoter_model
from bigbird_dna.model.model import Predictor
from bigbird_dna.scoring.scan import promoter_inputs, score_inputs
from bigbird_dna.scoring.writers import open_text
from tests.conftest import REPOSITORY
from tests.toys import region_splits, written

FORMATS = ("tsv", "bigwig", "parquet")
MAIN = [*map(str, range(1, 23)), "X", "Y"]
LINE = 60
Measured = tuple[str, dict[str, tuple[float, float]]]
"""What was measured, as a line; and by unit what has a bound, with the bound."""


def write_arrays(directory: Path, rows: int, tracks: int) -> None:
    generator = np.random.default_rng(0)
    scores = open_memmap(directory / "p.npy", "w+", np.float32, (rows, tracks))
    labels = open_memmap(directory / "l.npy", "w+", np.uint8, (rows, tracks))
    prevalence = np.exp(generator.uniform(np.log(5e-4), np.log(0.2), tracks))
    shift = generator.uniform(0.3, 3.2, tracks).astype(np.float32)
    for start in range(0, rows, 8192):
        shape = (min(8192, rows - start), tracks)
        positive = generator.random(shape, dtype=np.float32) < prevalence
        logit = generator.standard_normal(shape, dtype=np.float32) + positive * shift
        chunk = 1 / (1 + np.exp(2.5 - logit))
        chunk[:, ::3] = np.round(chunk[:, ::3], 3)
        scores[start : start + len(chunk)] = chunk
        labels[start : start + len(chunk)] = positive
    scores.flush()
    labels.flush()


def largest_difference(directory: Path, check: int) -> float:
    from sklearn.metrics import average_precision_score, roc_auc_score

    table = pd.read_csv(directory / "out" / "tracks.tsv", sep="\t")
    scores = np.load(directory / "p.npy", mmap_mode="r")
    labels = np.load(directory / "l.npy", mmap_mode="r")
    found = [0.0]
    for track in np.linspace(0, len(table) - 1, check).astype(int):
        x, y = np.array(scores[:, track]), np.array(labels[:, track])
        if 0 < y.sum() < len(y):
            found.append(abs(roc_auc_score(y, x) - table["auroc"][track]))
            found.append(abs(average_precision_score(y, x) - table["auprc"][track]))
    return max(found)


def measure_report(directory: Path, options: argparse.Namespace) -> Measured:
    # In a process of its own: a child's peak counts what its parent held when it began.
    context = multiprocessing.get_context("spawn")
    writer = context.Process(
        target=write_arrays, args=(directory, options.rows, options.tracks)
    )
    writer.start()
    writer.join()
    if writer.exitcode:
        sys.exit("the arrays could not be written")
    command = [
        sys.executable,
        "-m",
        "bigbird_dna.cli.main",
        "auc-report",
        "p.npy",
        "l.npy",
    ]
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, "-o", "out", "--threads", str(options.threads)], cwd=directory
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit("the report failed")
    difference = largest_difference(directory, options.check)
    page, megabytes = (
        (directory / "out" / "report.html").stat().st_size,
        usage.ru_maxrss / 1024,
    )
    line = (
        f"{options.rows:,} × {options.tracks}: {seconds:.1f} s "
        f"({usage.ru_utime + usage.ru_stime:.1f} s of CPU, load {os.getloadavg()[0]:.1f}), "
        f"peak {megabytes:.0f} MB, page {page / 1e6:.1f} MB, off scikit-learn by {difference:.1e}"
    )
    return line, {
        "s": (seconds, 120),
        "MB": (megabytes, 4000),
        "off": (difference, 1e-9),
    }


def write_peaks(directory: Path, options: argparse.Namespace) -> list[Track]:
    rng = np.random.default_rng(1)
    table = {contig.name: contig.length for contig in load_assembly("GRCh37").contigs}
    lengths = np.array([table[name] for name in MAIN])
    owner = rng.choice(len(MAIN), options.hotspots, p=lengths / lengths.sum())
    middle = (rng.random(options.hotspots) * (lengths[owner] - 4000)).astype(
        np.int64
    ) + 2000
    names = pa.array([f"chr{name}" for name in MAIN])
    bare = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    tracks = []
    for number in range(options.tracks):
        peaks = int(
            np.clip(rng.lognormal(np.log(options.peaks) - 0.3, 0.8), 500, 250_000)
        )
        chosen = rng.choice(options.hotspots, peaks)
        half = rng.integers(75, 350, peaks)
        columns = {
            "contig": names.take(pa.array(owner[chosen])),
            "start": pa.array(middle[chosen] - half),
            "end": pa.array(middle[chosen] + half),
        }
        path = directory / f"{number}.bed"
        csv.write_csv(pa.table(columns), path, bare)
        tracks.append(Track(f"track{number}", "TF", file=path))
    return tracks


def measure_labels(directory: Path, options: argparse.Namespace) -> Measured:
    assembly = load_assembly("GRCh37")
    table = {contig.name: contig.length for contig in assembly.contigs}
    contigs = {f"chr{name}": table[name] for name in MAIN}
    (directory / "peaks").mkdir()
    tracks = write_peaks(directory / "peaks", options)
    fasta = written(
        directory / "genome.fa", ">stands for the sequence, which labels don't need\n"
    )
    reference: Any = SimpleNamespace(contigs=contigs, path=fasta)
    splits = region_splits(
        contigs, assembly, valid=["chr7:30,508,751-35,296,850"], test=["chr8", "chr9"]
    )
    began = time.perf_counter()
    labeling = Labeling(window=8000, max_n=1.0, min_positives=1)
    data = build_dataset(
        directory / "data", BinSource(reference, assembly, tracks, splits, labeling)
    )
    seconds = time.perf_counter() - began
    disk = sum(path.stat().st_size for path in (directory / "data").iterdir()) / 1e6
    peaks = sum(source["peaks"] for source in data.info["sources"]["tracks"].values())
    memory = peak_megabytes()
    line = (
        f"{len(data):,} bins x {len(data.tracks)} tracks from {peaks:,} peaks: {seconds:.0f} s, "
        f"peak {memory:,.0f} MB, {disk:,.0f} MB on disk, {data.labels.packed.nbytes / 1e6:,.0f} MB packed"
    )
    return line, {
        "s": (seconds, 600),
        "MB of memory": (memory, 4000),
        "MB on disk": (disk, 1000),
    }


def write_random_fasta(path: Path, megabases: int) -> None:
    generator = np.random.default_rng(1)
    with path.open("wb") as stream:
        stream.write(b">random\n")
        for _ in range(megabases):
            letters = generator.choice(np.frombuffer(b"ACGTacgt", np.uint8), 1_000_020)
            lines = np.full((len(letters) // LINE, LINE + 1), ord("\n"), np.uint8)
            lines[:, :LINE] = letters.reshape(-1, LINE)
            stream.write(lines.tobytes())


def gc_content(sequences: Sequence[str]) -> np.ndarray:
    return np.array(
        [(s.count("G") + s.count("C")) / len(s) for s in sequences], dtype=np.float32
    )


def predictor(model_dir: Path | None) -> tuple[Predictor, int, int]:
    """The predictor and the bp before and after the TSS."""
    if model_dir is None:
        return gc_content, 5000, 3000
    model = load_promoter_model(model_dir)
    # A batch belongs to the model's own share.
    model.window_probabilities(["A" * model.settings.window] * 32)
    return (
        model.window_probabilities,
        model.settings.upstream,
        model.settings.downstream,
    )


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_scan(directory: Path, options: argparse.Namespace) -> Measured:
    predict, upstream, downstream = predictor(options.model_dir)
    fasta = directory / "random.fa"
    write_random_fasta(fasta, options.megabases)
    before, began = peak_megabytes(), time.perf_counter()
    contigs = scan_fasta(fasta)
    sizes = {
        "upstream": upstream,
        "downstream": downstream,
        "stride": options.stride,
    }
    with open_text(directory / "scores") as file:
        for rows in score_inputs(promoter_inputs(fasta, contigs, **sizes), predict):
            file.write("".join(f"{row.name}\t{row.score}\n" for row in rows))
    took, seconds = peak_megabytes() - before, time.perf_counter() - began
    size = sum(contigs.values()) / 1e6
    line = f"{size:.1f} Mb in {seconds:.0f} s: peak {took:.0f} MB above {before:.0f} MB"
    return line, {"MB": (took, 1000)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    below = parser.add_subparsers(required=True)
    works = {"report": measure_report, "labels": measure_labels, "scan": measure_scan}
    sizes = {
        "report": {"rows": 455_024, "tracks": 919, "threads": 2, "check": 12},
        "labels": {"tracks": 919, "hotspots": 880_000, "peaks": 45_000},
        "scan": {"megabases": 100, "stride": 2000},
    }
    for name, measure in works.items():
        command = below.add_parser(name)
        command.set_defaults(measure=measure)
        for option, size in sizes[name].items():
            command.add_argument(f"--{option}", type=int, default=size)
        if name == "scan":
            command.add_argument("model_dir", nargs="?", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        line, bounded = options.measure(Path(directory), options)
    print(line)
    if above := [
        f"{bound:g} {unit}" for unit, (value, bound) in bounded.items() if value > bound
    ]:
        sys.exit(f"more than {', '.join(above)}")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("words", ["report --rows 45502", "labels", "scan"])
def test_it_stays_within_its_bounds(words: str) -> None:
    command = [sys.executable, "-m", "tests.benchmarks.test_large_work", *words.split()]
    outcome = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


if __name__ == "__main__":
    main()
