"""Readers of the tasks that aren't of DNA: generated sequences, public images and text, results."""

import json
import struct
from pathlib import Path

import numpy as np

from bigbird_dna.papers.experiments.byte_lm_files import read_c4, read_cifar10, read_imagenet64, read_wiki40b
from bigbird_dna.papers.experiments.long_range_arena import RESULT, table
from bigbird_dna.papers.experiments.long_range_arena import read_result as read_long_range
from bigbird_dna.papers.experiments.long_range_sequences import read_listops, read_pathfinder
from tests.fuzz.containers import GZIP, NPZ
from tests.fuzz.reader import Container, Reader
from tests.fuzz.readers.arrays import file_bytes
from tests.papers.experiments import public_files as form

_LISTOPS = b"Source\tTarget\n[MAX 4 3 [MIN 2 3 ] 1 0 [MED 1 5 8 9 2 ] ]\t5\n( ( [SM 9 ) 2 ) ]\t1\n"
_RESULT = {
    **{"task": "listops", "attention": "full", "seed": 1, "accuracy": 0.5, "accuracy_low": 0.4},
    **{"accuracy_high": 0.6, "baseline": 0.2, "baseline_name": "x", "most_frequent": 0.1, "steps": 3},
    **{"test_sequences": 10, "parameters": 7, "data": {"train": "ab"}},
}


def _records(data: bytes) -> list[bytes]:
    found, place = [], 0
    while place < len(data):
        (size,) = struct.unpack("<Q", data[place : place + 8])
        found.append(data[place + 12 : place + 12 + size])
        place += 16 + size
    return found


TFRECORD = Container(_records, lambda data, members: form.tfrecord(members))


def _read_result(path: Path) -> None:
    path.rename(path.with_name(RESULT))
    table([read_long_range(path.parent)])


def _pathfinder(path: Path) -> None:
    images = np.arange(3 * 16, dtype=np.uint8).reshape(3, 4, 4)
    np.savez_compressed(
        path, images=images, labels=np.array([0, 1, 1], np.uint8), distances=np.ones(3, np.float32)
    )


def _each(read):  # type: ignore[no-untyped-def]
    def run(path: Path) -> None:
        for _ in read(path):
            pass

    return run


READERS = [
    Reader("listops", ".tsv", read_listops, lambda: [_LISTOPS], tokens=(b"[", b"]", b"[MED", b"\t", b" ")),
    Reader("pathfinder", ".npz", read_pathfinder, lambda: file_bytes(".npz", _pathfinder), NPZ),
    Reader(
        "cifar10",
        ".bin",
        lambda path: read_cifar10(path, 1000),
        lambda: [form.cifar10(form.images(2, 32), [3, 9])],
    ),
    Reader(
        "imagenet64",
        ".npz",
        lambda path: read_imagenet64(path, 1000),
        lambda: [form.imagenet64(form.images(1, 64))],
        NPZ,
        (b"'fortran_order': True", b"'|O'"),
    ),
    Reader("wiki40b", ".tfrecord", _each(read_wiki40b), lambda: [form.wiki40b(["one", "two"])], TFRECORD),
    Reader(
        "c4",
        ".json.gz",
        _each(read_c4),
        lambda: [form.c4(["one", "two é"])],
        GZIP,
        (b'"text"', b"\\ud800", b"[[[[", b"NaN"),
    ),
    Reader("long-range-result", ".json", _read_result, lambda: [json.dumps(_RESULT).encode()]),
]
