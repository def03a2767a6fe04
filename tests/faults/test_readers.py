"""Files of every format of the genome that are damaged, cut or something else: one line, with the file."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigbird_dna.errors import BigBirdDnaError, ConfigError, DataError
from bigbird_dna.genome.assembly import open_assembly
from bigbird_dna.genome.chromatin.tracks import read_tracks
from bigbird_dna.genome.intervals import read_peaks
from bigbird_dna.genome.promoters import lift, read_loci, read_promoters
from bigbird_dna.genome.sequence import Locus
from bigbird_dna.genome.vcf import open_vcf, read_vcf
from tests.genome import formats
from tests.golden.messages import fails

Read = Callable[[Path], object]


def chain(path: Path) -> None:
    loci = [Locus("s", position, "+", "a") for position in range(200)]
    lift(loci, path, lambda name, names: name if name in names else None)


def read_variants(path: Path) -> None:
    with open_vcf(path) as vcf:
        list(read_vcf(vcf, path))


def aliases(path: Path) -> None:
    open_assembly("custom", path)


READERS: dict[str, Read] = {
    **{
        "read_promoters": read_promoters,
        "read_loci": read_loci,
    },
    **{
        "read_tracks": read_tracks,
        "read_peaks": read_peaks,
        "aliases": aliases,
    },
    **{"read_variants": read_variants, "chain": chain},
}
VARIANT = "c\t5\t.\tA\tC\t.\t.\t."
# What is no text: cut gzip files, and letters of nothing.
BYTES = {
    "read_peaks x.bed": [
        gzip.compress(b"chr1\t5\t9\n" * 1000, mtime=0)[:-20],
        b"\x87\xff\x00\x10",
    ],
    "read_variants x.vcf": [
        gzip.compress(formats.vcf_text(*[VARIANT] * 1000).encode(), mtime=0)[:-20]
    ],
    "chain x.chain": [
        gzip.compress(formats.CHAIN.encode(), mtime=0)[:-12],
        b"\x00\x01\x02\x03",
    ],
}
TABLE = yaml.safe_load(Path(__file__).with_name("readers.yaml").read_text())


def expanded(text: str) -> str:
    text = re.sub(r"\{([A-Z_]+)\}", lambda found: getattr(formats, found[1]), text)
    return re.sub(r"\{([^{}]+)\*(\d+)\}", lambda found: found[1] * int(found[2]), text)


def content(entry: str | list[Any]) -> bytes:
    """A faulty file as the table has it."""
    if isinstance(entry, str):
        return expanded(entry).encode()
    (name, before, after), good = entry, getattr(formats, entry[0])
    if isinstance(before, int):
        return f"{good[:before]}{after}".encode()
    assert good.count(before) == 1, name
    return str(good.replace(before, expanded(after))).encode()


CASES = [
    pytest.param(
        READERS[name.split()[0]],
        name.split()[1],
        text,
        id=f"{name.replace(' ', '-')}-{number}",
    )
    for name, entries in TABLE.items()
    for number, text in enumerate([*map(content, entries), *BYTES.get(name, ())])
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("read", "name", "text"), CASES)
def test_a_faulty_file_gives_one_clear_line(
    tmp_path: Path, read: Read, name: str, text: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(text)
    error: type[BigBirdDnaError] = ConfigError if name.endswith(".yaml") else DataError
    with fails(error, path) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ") and str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("read", "name"), dict.fromkeys(case.values[:2] for case in CASES)
)
def test_a_missing_file_is_named(tmp_path: Path, read: Read, name: str) -> None:
    error: type[BigBirdDnaError] = ConfigError if name.endswith(".yaml") else DataError
    with fails(error, tmp_path / name):
        read(tmp_path / name)
