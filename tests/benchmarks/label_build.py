"""Time, memory and size of the labels of a whole genome; run by hand.

    python tests/benchmarks/label_build.py [--tracks 919] [--hotspots 880000] [--peaks 45000]

Writes a file of peaks for every track, drawn from the same hotspots of a genome as long as GRCh37, builds
the data set from them, and fails above 10 minutes, 4 GB at the peak or 1 GB on disk.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.chromatin.dataset import build_dataset
from bigbird_dna.genome.chromatin.labels import BinSource, Labelling
from bigbird_dna.genome.chromatin.tracks import Track
from tests.toys import region_splits

SECONDS, MEMORY, DISK = 600, 4000, 1000  # s, MB, MB
MAIN = [*map(str, range(1, 23)), "X", "Y"]


def write_peaks(directory: Path, options: argparse.Namespace) -> list[Track]:
    rng = np.random.default_rng(1)
    table = {contig.name: contig.length for contig in load_assembly("GRCh37").contigs}
    lengths = np.array([table[name] for name in MAIN])
    owner = rng.choice(len(MAIN), options.hotspots, p=lengths / lengths.sum())
    middle = (rng.random(options.hotspots) * (lengths[owner] - 4000)).astype(np.int64) + 2000
    names = pa.array([f"chr{name}" for name in MAIN])
    tracks = []
    for number in range(options.tracks):
        peaks = int(np.clip(rng.lognormal(np.log(options.peaks) - 0.3, 0.8), 500, 250_000))
        chosen = rng.choice(options.hotspots, peaks)
        half = rng.integers(75, 350, peaks)
        columns = {
            "contig": names.take(pa.array(owner[chosen])),
            "start": pa.array(middle[chosen] - half),
            "end": pa.array(middle[chosen] + half),
        }
        path = directory / f"{number}.bed"
        csv.write_csv(
            pa.table(columns),
            path,
            csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none"),
        )
        tracks.append(Track(f"track{number}", "TF", file=path))
    return tracks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tracks", type=int, default=919)
    parser.add_argument("--hotspots", type=int, default=880_000)
    parser.add_argument("--peaks", type=int, default=45_000, help="a track, on average")
    options = parser.parse_args()
    assembly = load_assembly("GRCh37")
    table = {contig.name: contig.length for contig in assembly.contigs}
    contigs = {f"chr{name}": table[name] for name in MAIN}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "peaks").mkdir()
        tracks = write_peaks(directory / "peaks", options)
        fasta = directory / "genome.fa"
        fasta.write_text(">stands for the sequence, which labels don't need\n")
        reference: Any = SimpleNamespace(contigs=contigs, path=fasta)
        splits = region_splits(contigs, assembly, valid=["chr7:30,508,751-35,296,850"], test=["chr8", "chr9"])
        began = time.perf_counter()
        labelling = Labelling(window=8000, max_n=1.0, min_positives=1)
        data = build_dataset(directory / "data", BinSource(reference, assembly, tracks, splits, labelling))
        seconds = time.perf_counter() - began
        disk = sum(path.stat().st_size for path in (directory / "data").iterdir()) / 1e6
        peaks = sum(source["peaks"] for source in data.info["sources"]["tracks"].values())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{len(data):,} bins x {len(data.tracks)} tracks from {peaks:,} peaks: {seconds:.0f} s, "
        f"peak {memory:,.0f} MB, {disk:,.0f} MB on disk, {data.labels.packed.nbytes / 1e6:,.0f} MB packed"
    )
    if seconds > SECONDS or memory > MEMORY or disk > DISK:
        sys.exit(f"more than {SECONDS} s, {MEMORY} MB of memory or {DISK} MB on disk")


if __name__ == "__main__":
    main()
