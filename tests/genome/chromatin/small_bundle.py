"""A small genome and a bundle of it in DeepSEA's published format."""

import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import scipy.io

from bigbird_dna.genome.reference import write_fasta

TRACKS = 13
# Bins of each contig, in the order of the published file: as strings.
CONTIGS = {"chr1": 250, "chr10": 250, "chr2": 250, "chr8": 250, "chr9": 50}
SIZES = {
    "train": 600,
    "valid": 100,
    "test": 300,
}  # 2,000 rows with the reverse complements


class World(NamedTuple):
    """A genome, its bins in file order, and the labels of all of them (N, T)."""

    sequences: dict[str, str]
    bins: list[tuple[str, int]]
    labels: np.ndarray
    rows: dict[str, list[int]]  # of `bins`, by split


def make_world() -> World:
    """Random contigs with runs of N, and random labels."""
    rng = np.random.default_rng(2)
    sequences = {}
    for contig, bins in CONTIGS.items():
        letters = rng.choice(list("ACGTacgt"), bins * 200 + 70)
        letters[2_000:2_600] = "N"
        sequences[contig] = "".join(letters)
    bins = [
        (contig, number * 200)
        for contig, count in CONTIGS.items()
        for number in range(count)
    ]
    labels = (rng.random((len(bins), TRACKS)) < 0.2).astype(np.uint8)
    held_out = [n for n, (contig, _) in enumerate(bins) if contig in ("chr8", "chr9")]
    rows = {"train": list(range(600)), "valid": list(range(600, 700)), "test": held_out}
    return World(sequences, bins, labels, rows)


def windows(world: World, rows: list[int], shift: int = 0) -> np.ndarray:
    """(n, 4, 1000), letter by letter."""
    found = np.zeros((len(rows), 4, 1000), np.uint8)
    for number, row in enumerate(rows):
        contig, start = world.bins[row]
        sequence = world.sequences[contig].upper()
        for base in range(1000):
            position = start - 400 + base + shift
            if 0 <= position < len(sequence) and sequence[position] != "N":
                found[number, "AGCT".index(sequence[position]), base] = 1
    return found


def make_matrices(world: World) -> dict[str, np.ndarray]:
    """The bundle's arrays in MATLAB's order, forward rows then reverse complements."""
    content = {}
    for split, rows in world.rows.items():
        forward = windows(world, rows)
        # The reverse complement of A G C T is T C G A, read from the other end.
        content[f"{split}xdata"] = np.concatenate(
            [forward, forward[:, [3, 2, 1, 0], ::-1]]
        )
        content[f"{split}data"] = np.concatenate([world.labels[rows]] * 2)
    return content


def write_mat(
    path: Path, content: dict[str, np.ndarray], kind: str, chunks: object = None
) -> Path:
    """A file of version 7.3 (hdf5) or 5 (plain, or packed)."""
    if kind in ("plain", "packed"):
        scipy.io.savemat(path, content, do_compression=kind == "packed")
        return path
    # As MATLAB does: a user block, and the axes the other way round.
    chunks = dict(zip(content, chunks, strict=True)) if chunks else {}
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in content.items():
            given = (
                {"chunks": chunks[name], "compression": "gzip"}
                if name in chunks
                else {}
            )
            file.create_dataset(name, data=array.transpose(), **given)
    return path


def write_bundle(
    directory: Path, content: dict[str, np.ndarray], compress: bool = True
) -> Path:
    """`train.mat` (HDF5), `valid.mat` and `test.mat` (version 5) in a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    old = "packed" if compress else "plain"
    for split, kind in (("train", "hdf5"), ("valid", old), ("test", old)):
        part = {
            name: array for name, array in content.items() if name.startswith(split)
        }
        write_mat(directory / f"{split}.mat", part, kind)
    return directory


def write_bed(path: Path, bins: list[tuple[str, int]]) -> Path:
    """The bins as `allTFs.pos.bed` has them."""
    path.write_text(
        "".join(f"{contig}\t{start}\t{start + 200}\n" for contig, start in bins)
    )
    return path


def write_reference(path: Path, world: World) -> Path:
    """A prepared reference with other names and another order of contigs than the bundle."""
    names = {contig: contig.removeprefix("chr") for contig in ("chr9", *CONTIGS)}
    write_fasta(
        path,
        ((name, world.sequences[contig].upper()) for contig, name in names.items()),
    )
    return path


def write_tracks(path: Path) -> Path:
    """The list of tracks as the study's Supplementary Table 2 goes round."""
    columns = (
        "Cell Type",
        "TF/DNase/HistoneMark",
        "Treatment",
        "File accession",
        "AUC",
    )
    lines = ["\t".join((*columns, "AUPRC", "AUPRC Baseline"))]
    for number in range(TRACKS):
        target = ("DNase", "CTCF", "H3K4me3")[number * 3 // TRACKS]
        lines.append(
            f"cell{number}\t{target}\tNone\tt{number}.narrowPeak\t0,9\t0,4\t8,79E-06"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def write_public_files(directory: Path, world: World) -> Path:
    """What the study's and others' addresses give, by their names: archive, bins, tracks."""
    directory.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        bundle = write_bundle(Path(scratch, "deepsea_train"), make_matrices(world))
        bed = write_bed(Path(scratch, "allTFs.pos.bed"), world.bins)
        for name, content in (
            ("deepsea_train_bundle.v0.9", bundle),
            ("allTFs.pos.bed", bed),
        ):
            with tarfile.open(
                directory / f"{name}.tar.gz", "w:gz", compresslevel=1
            ) as tar:
                tar.add(content, content.name)
    write_tracks(directory / "deepsea_metadata.tsv")
    return directory
