"""Time and peak memory of a report of DeepSEA's size; run by hand.

    python tests/benchmarks/auc_report.py [--rows 455024] [--tracks 919] [--threads 2] [--check 12]

Writes random predictions (float32, a third of the tracks with ties) and labels (uint8) into a temporary
directory, 2.1 GB by default, makes the report, compares some tracks with scikit-learn, and fails if it took
more than 120 s or 4 GB, or differs by more than 1e-9.
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.lib.format import open_memmap

SECONDS, MEGABYTES, DIFFERENCE = 120, 4000, 1e-9


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=455_024)
    parser.add_argument("--tracks", type=int, default=919)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--check", type=int, default=12, help="tracks compared with scikit-learn")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        # In a process of its own: a child's peak counts what its parent held when it began.
        writer = multiprocessing.get_context("spawn").Process(
            target=write_arrays, args=(directory, options.rows, options.tracks)
        )
        writer.start()
        writer.join()
        if writer.exitcode:
            sys.exit("the arrays could not be written")
        command = [sys.executable, "-m", "bigbird_dna.cli.main", "auc-report"]
        command += [str(directory / "p.npy"), str(directory / "l.npy")]
        command += ["-o", str(directory / "out"), "--threads", str(options.threads)]
        began = time.perf_counter()
        process = subprocess.Popen(command)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit("the report failed")
        difference = largest_difference(directory, options.check)
        page = (directory / "out" / "report.html").stat().st_size
    megabytes = usage.ru_maxrss / 1024
    print(
        f"{options.rows:,} × {options.tracks}: {seconds:.1f} s "
        f"({usage.ru_utime + usage.ru_stime:.1f} s of CPU, load {os.getloadavg()[0]:.1f}), "
        f"peak {megabytes:.0f} MB, page {page / 1e6:.1f} MB, off scikit-learn by {difference:.1e}"
    )
    if seconds > SECONDS or megabytes > MEGABYTES or difference > DIFFERENCE:
        sys.exit(f"more than {SECONDS} s, {MEGABYTES} MB or {DIFFERENCE}")


if __name__ == "__main__":
    main()
