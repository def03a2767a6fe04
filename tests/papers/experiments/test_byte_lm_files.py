"""Readers of CIFAR-10, ImageNet-64, Wiki-40B and C4, on files of their form."""

import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.disk.compression import LONGEST_LINE
from bigbird_dna.errors import DataError
from bigbird_dna.papers.experiments.byte_lm_files import (
    masked_checksum,
    read_c4,
    read_cifar10,
    read_imagenet64,
    read_wiki40b,
)
from bigbird_dna.papers.experiments.byte_lm_training import END, Simple, read_stream
from tests.golden.messages import fails
from tests.papers.experiments import public_files as form
from tests.toys import cases

TEXTS = ["\n_START_ARTICLE_\nÉtude\n_START_PARAGRAPH_\nfirst_NEWLINE_second", "", "x" * 3000]


def put(directory: Path, content: bytes) -> Path:
    path = directory / "file"
    path.write_bytes(content)
    return path


def test_cifar10(tmp_path: Path) -> None:
    drawn = form.images(5, 32)
    path = put(tmp_path, form.cifar10(drawn, [0, 9, 3, 3, 1]))
    assert path.stat().st_size == 5 * 3073
    assert (read_cifar10(path, 9) == drawn.reshape(5, -1)).all()
    assert (read_cifar10(path, 2) == drawn[:2].reshape(2, -1)).all()


def test_imagenet64(tmp_path: Path) -> None:
    drawn = form.images(3, 64)
    path = put(tmp_path, form.imagenet64(drawn))
    assert (read_imagenet64(path, 9) == drawn.reshape(3, -1)).all()
    assert (read_imagenet64(path, 1) == drawn[:1].reshape(1, -1)).all()


def test_checksums_are_the_published_ones() -> None:
    """Of RFC 3720, App. B.4: 32 zero bytes, 32 of 255, and 0 to 31."""
    known = {bytes(32): 0x8A9136AA, b"\xff" * 32: 0x62A8AB43, bytes(range(32)): 0x46DD794E}
    for data, crc in known.items():
        turned = (crc >> 15 | crc << 17) & 0xFFFFFFFF
        assert masked_checksum(data) == (turned + 0xA282EAD8) & 0xFFFFFFFF


def test_wiki40b(tmp_path: Path) -> None:
    path = put(tmp_path, form.wiki40b(TEXTS))
    assert [one.decode() for one in read_wiki40b(path)] == TEXTS


def test_c4(tmp_path: Path) -> None:
    # Control characters of Windows and line separators stand in published pages as they are.
    texts = [*TEXTS, "it\x92s one\x7f page\u2028of\u2029 four\x85lines", "last"]
    packed = form.c4(texts)
    plain = gzip.decompress(packed)
    assert b"it\xc2\x92s" in plain and b"page\xe2\x80\xa8of" in plain
    for content in (packed, plain, plain.removesuffix(b"\n"), plain.replace(b"\n", b"\r\n")):
        assert [one.decode() for one in read_c4(put(tmp_path, content))] == texts
    assert [*read_c4(put(tmp_path, b"\xef\xbb\xbf" + plain))] == [text.encode() for text in texts]


def test_a_line_of_c4_that_is_too_long(tmp_path: Path) -> None:
    line = b'{"text":"%s"}\n'
    path = put(tmp_path, line % b"a" + line % (b"a" * (LONGEST_LINE - 11)) + line % (b"a" * LONGEST_LINE))
    found = read_c4(path)
    assert [len(next(found)) for _ in range(2)] == [1, LONGEST_LINE - 11]
    with fails(DataError, path):
        next(found)


def changed(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


WIKI = form.wiki40b(["one", "two"])
HUGE = (1 << 60).to_bytes(8, "little")  # bytes of a record


WRONG = {
    read_cifar10: [b"", bytes(3072), bytes(3073) + b"\x0a" + bytes(3072)],
    read_imagenet64: [
        *(b"PK", npz(labels=np.ones(3))),
        *(npz(data=np.zeros((2, 3072), np.uint8)), npz(data=np.zeros((2, 12288)))),
    ],
    read_wiki40b: [
        *(b"", WIKI[:-1], changed(WIKI, 20), changed(WIKI, 0), b'{"text": "plain"}\n' * 2),
        *(form.tfrecord([form.example(title="x")]), form.tfrecord([b"\xff\xff"])),
        (1 << 60).to_bytes(8, "little")
        + masked_checksum((1 << 60).to_bytes(8, "little")).to_bytes(4, "little"),
    ],
    read_c4: [
        *(b"", b'{"text": "a"}\n{"url": "b"}\n', b'{"text": 3}\n', b'{"text": "a"\n'),
        *(
            b'{"text": "\\ud800"}\n',
            b'{"text": "a"}\n{"text": "\xe9"}\n',
            b'{"text": "a"}\n\n{"text": "b"}\n',
        ),
        *(b'{"text": "a\tb"}\n', form.c4(["a" * 100])[:-20]),
    ],
}


@pytest.mark.parametrize(("read", "content"), cases(WRONG), ids=range(sum(map(len, WRONG.values()))))
def test_wrong_files(tmp_path: Path, read, content: bytes) -> None:
    """Messages name the record or line, and none of them takes the memory that a file claims."""
    path = put(tmp_path, content)
    with fails(DataError, path):
        [*read(path, 5)] if read in (read_cifar10, read_imagenet64) else [*read(path)]


@pytest.mark.parametrize("read", [lambda path: read_cifar10(path, 1), lambda path: [*read_wiki40b(path)]])
def test_what_is_not_a_file(tmp_path: Path, read) -> None:
    with fails(DataError):
        read(tmp_path / "none")
    with fails(DataError):
        read(tmp_path)


def test_documents_are_one_stream_of_bytes(tmp_path: Path) -> None:
    path = put(tmp_path, form.c4(["abc", "", "dé"]))
    stream = read_stream("c4", [path, path], 4, 1000)
    once = [97, 98, 99, END, 100, 0xC3, 0xA9, END]
    assert stream.symbols.tolist() == once * 2
    assert (stream.kinds, stream.inputs, stream.starts) == (257, 4, 13)
    assert stream.input(1).tolist() == once[4:] and stream.at(2).tolist() == once[2:6]
    assert read_stream("c4", [path, path], 4, 5).symbols.tolist() == [97, 98, 99, END, 100, 0xC3, END]
    with fails(DataError):
        read_stream("c4", [put(tmp_path, form.c4([""]))], 4, 5)


def test_images_are_read_whole(tmp_path: Path) -> None:
    drawn = form.images(3, 32)
    path = put(tmp_path, form.cifar10(drawn, [0, 1, 2]))
    stream = read_stream("cifar10", [path, path], 99, 4 * 3072 + 5)
    assert (stream.inputs, stream.starts, stream.length, stream.kinds, stream.lag) == (4, 4, 3072, 256, 3)
    assert (stream.at(3) == drawn[0].reshape(-1)).all()
    assert read_stream("cifar10", [path], 99, 1).inputs == 1


def test_simple_predictors_by_hand(tmp_path: Path) -> None:
    path = put(tmp_path, form.c4(["ab" * 400]))
    stream = read_stream("c4", [path], 50, 10_000)
    order0, order1 = Simple.fitted(stream).bits(stream)
    counts = np.bincount(stream.symbols, minlength=257) + 1.0
    expected = -np.log2(counts / counts.sum())[stream.symbols].sum() / 800
    assert order0 == pytest.approx(expected, rel=1e-6) and 1 < order0 < 1.6
    # Certain but for the first byte of each input and the end.
    assert order1 < 0.2
