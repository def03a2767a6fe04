"""Small files of the public sets' true forms."""

import gzip
import io
import json
import struct
from collections.abc import Sequence

import numpy as np

from bigbird_dna.papers.experiments.byte_lm_files import masked_checksum


def field(number: int, content: bytes) -> bytes:
    """A field of bytes of a protocol buffer."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    digits = [number >> shift & 0x7F for shift in range(0, 63, 7)]
    while len(digits) > 1 and not digits[-1]:
        digits.pop()
    return bytes([*(digit | 0x80 for digit in digits[:-1]), digits[-1]])


def example(**features: str) -> bytes:
    """A message `Example` with features of one text each, as TensorFlow writes it."""
    entries = [
        field(1, field(1, name.encode()) + field(2, field(1, field(1, text.encode()))))
        for name, text in features.items()
    ]
    return field(1, b"".join(entries))


def tfrecord(records: Sequence[bytes]) -> bytes:
    parts = []
    for record in records:
        length = struct.pack("<Q", len(record))
        for part in (length, record):
            parts += [part, struct.pack("<I", masked_checksum(part))]
    return b"".join(parts)


def wiki40b(texts: Sequence[str]) -> bytes:
    articles = [
        example(text=text, version_id=str(10**18 + number), wikidata_id=f"Q{number}")
        for number, text in enumerate(texts)
    ]
    return tfrecord(articles)


def c4(texts: Sequence[str]) -> bytes:
    """Pages as the published files have them: letters stand for themselves, with no blanks between values."""
    lines = [
        json.dumps(
            {
                "text": text,
                "timestamp": "2019-04-25T12:57:54Z",
                "url": "https://example.org/",
            },
            **{"ensure_ascii": False, "separators": (",", ":")},
        )
        for text in texts
    ]
    return gzip.compress("".join(line + "\n" for line in lines).encode(), mtime=0)


def cifar10(images: np.ndarray, labels: Sequence[int]) -> bytes:
    """Images (N, 32, 32, 3) as records of a label and three planes."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return b"".join(
        bytes([label]) + plane.tobytes()
        for label, plane in zip(labels, planes, strict=True)
    )


def imagenet64(images: np.ndarray) -> bytes:
    """Images (N, 64, 64, 3) as a batch of downsampled ImageNet."""
    stream = io.BytesIO()
    planes = np.ascontiguousarray(images.transpose(0, 3, 1, 2).reshape(len(images), -1))
    np.savez(
        stream, data=planes, labels=np.ones(len(images), np.int64), mean=np.zeros(12288)
    )
    return stream.getvalue()


def images(count: int, side: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(
        0, 256, (count, side, side, 3), np.uint8
    )
