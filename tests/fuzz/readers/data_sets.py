"""Readers of data sets: promoter windows, chromatin bins, DeepSEA's bundle."""

import functools
import io
import json
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from bigbird_dna.data.predictions import compare, read_predictions
from bigbird_dna.data.promoter_windows import read_windows
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.chromatin.dataset import FORMAT, make_bins, read_dataset
from bigbird_dna.genome.chromatin.deepsea import read_bundle_bins, unpack_bundle
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.reference import Reference, write_fasta
from tests.fuzz.containers import GZIP, NPZ
from tests.fuzz.reader import Reader, made, member
from tests.fuzz.readers.arrays import NAMES, ROWS, TRACKS, file_bytes, labels


def _predictions() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    label = np.arange(ROWS) % 2
    return pd.DataFrame(
        {
            "contig": "chr1",
            "start": np.arange(ROWS) * 300,
            "end": np.arange(ROWS) * 300 + 300,
            "strand": "+",
            "split": ["test"] * (ROWS - 4) + ["train"] * 4,
            "negative_set": np.where(label, "positive", "gc"),
            "pair": np.arange(ROWS) // 2,
            "label": label,
            "probability": rng.random(ROWS),
            "name": "x",
        }
    )


def _read_predictions(path: Path) -> None:
    read_predictions(path)
    compare("gc", {"model": path, "k-mer": path})


def _windows() -> pd.DataFrame:
    frame = _predictions()
    return frame[["contig", "start", "end", "strand", "split", "negative_set", "pair", "name"]]


def _window_labels(path: Path) -> None:
    packed = np.packbits((np.arange(ROWS) % 2)[:, None].astype(bool), axis=1)
    np.savez_compressed(path, packed=packed, tracks=np.array(["promoter"]))


def _read_windows(path: Path, other: str) -> None:
    if other == "labels.npz":
        path.rename(path.parent / "windows.parquet")
        _window_labels(path.parent / other)
    else:
        path.rename(path.parent / "labels.npz")
        _windows().to_parquet(path.parent / other, index=False)
    read_windows(path.parent, "gc")


def _dataset(directory: Path) -> None:
    starts = np.arange(ROWS, dtype=np.int64) * 200
    codes = np.zeros(ROWS, np.intp)
    make_bins(["chr1"], codes, starts, np.arange(ROWS) % 3, 200).to_parquet(
        directory / "bins.parquet", index=False
    )
    PackedLabels.from_dense(labels()).save(directory / "labels.npz")
    lines = ["track\tgroup\tcell\tpublished_auroc\tpositives_train"]
    lines += [f"{name}\tDNase\tGM12878\t0.9{number}\t3" for number, name in enumerate(NAMES)]
    (directory / "tracks.tsv").write_text("\n".join(lines) + "\n")
    info = {
        "format": FORMAT,
        "bins": {"train": 8, "valid": 8, "test": 8},
        "tracks": TRACKS,
        "bin_size": 200,
        "window": 1000,
        "assembly": "GRCh37",
        "left_out": [],
        "sources": {"reference": {"file": "a", "sha256": "0"}},
    }
    (directory / "dataset.json").write_text(json.dumps(info))


@functools.cache
def _dataset_files() -> dict[str, bytes]:
    return made(_dataset)


def _read_dataset(directory: Path) -> None:
    found = read_dataset(directory)
    for split in ("train", "valid", "test"):
        rows = found.rows(split)
        found.labels.positives(rows)
        found.windows(1000, rows[:100])


@functools.cache
def _reference() -> Reference:
    directory = tempfile.mkdtemp()
    write_fasta(Path(directory, "reference.fa.gz"), {"chr1": "ACGT" * 500, "chr8": "ACGT" * 200}.items())
    return Reference(Path(directory, "reference.fa.gz"))


def _read_bins(path: Path) -> None:
    read_bundle_bins(path, _reference(), load_assembly("GRCh37"))


_BINS = (
    b"".join(b"chr1\t%d\t%d\n" % (start, start + 200) for start in range(0, 1600, 200)) + b"chr8\t0\t200\n"
)


def _tar(mode: str, **members: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=f"w:{mode}") as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_", "."))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def _archive(mode: str = "") -> bytes:
    return _tar(mode, deepsea__train_mat=b"x" * 700, deepsea__valid_mat=b"y", deepsea__test_mat=b"z" * 20)


def _read_archive(path: Path) -> None:
    out = path.parent / "out"
    out.mkdir()
    unpack_bundle(path, out)


READERS = [
    Reader(
        "predictions",
        ".parquet",
        _read_predictions,
        lambda: file_bytes(
            ".parquet",
            lambda path: _predictions().to_parquet(path, index=False),
            lambda path: _predictions().to_parquet(path, index=False, compression="none"),
        ),
    ),
    Reader(
        "windows-rows",
        ".parquet",
        functools.partial(_read_windows, other="labels.npz"),
        lambda: file_bytes(".parquet", lambda path: _windows().to_parquet(path, index=False)),
    ),
    Reader(
        "windows-labels",
        ".npz",
        functools.partial(_read_windows, other="windows.parquet"),
        lambda: file_bytes(".npz", _window_labels),
        NPZ,
        (b"'|O'",),
    ),
    *(
        member(
            f"dataset-{name}", _dataset_files, name, _read_dataset, container=NPZ if ".npz" in name else None
        )
        for name in ("bins.parquet", "labels.npz", "tracks.tsv", "dataset.json")
    ),
    Reader(
        "bundle-bins",
        ".bed",
        _read_bins,
        lambda: [_BINS, GZIP.wrap(b"", [_BINS]), _tar("gz", allTFs_pos_bed=_BINS)],
        GZIP,
    ),
    Reader(
        "bundle-archive",
        ".tar.gz",
        _read_archive,
        lambda: [_archive("gz"), _archive("bz2"), _archive()],
        GZIP,
    ),
]
