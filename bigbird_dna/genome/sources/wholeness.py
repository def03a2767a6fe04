"""Whether a file is whole and what it should be, by its checksum or by what it holds."""

from pathlib import Path

from bigbird_dna.errors import DataError
from bigbird_dna.files import checksum
from bigbird_dna.genome.compression import open_bytes
from bigbird_dna.genome.sources.answers import GZIP_NAMES, is_page

_GZIP_MAGIC = b"\x1f\x8b"
_TAR_END = bytes(1024)
_CHUNK = 1 << 20
_HEAD = 512


def find_fault(path: Path, file: str, published: str | None) -> str | None:
    """What is wrong with a copy of a file; `None` for a good one.

    Parameters
    ----------
    file
        The name that it was published by.
    published
        Its checksum, as "md5:…". Without one, a gzip file is read to its end, which shows where it was cut
        or damaged; plain text shows nothing (`shows_its_end`).
    """
    with path.open("rb") as stream:
        start = stream.read(_HEAD)
    if published is not None:
        algorithm, expected = published.split(":")
        found = checksum(path, algorithm)
        return None if found == expected else f"its {algorithm} is {found}, not {expected} as published"
    if not start:
        return "it is empty"
    if is_page(start):
        return "it is a web page"
    is_gzip = start.startswith(_GZIP_MAGIC)
    if is_gzip != file.endswith(GZIP_NAMES):
        return "it is a gzip file" if is_gzip else "it is not a gzip file"
    return _gzip_fault(path, file) if is_gzip else None


def shows_its_end(file: str) -> bool:
    """Whether a file of this name shows that it is whole, even where nobody published its checksum."""
    return file.endswith(GZIP_NAMES)


def _gzip_fault(path: Path, file: str) -> str | None:
    tail, first = b"", True
    try:
        with open_bytes(path) as stream:
            while chunk := stream.read(_CHUNK):
                if first and chunk.startswith(_GZIP_MAGIC):
                    return "it is compressed twice"
                first = False
                tail = (tail + chunk)[-len(_TAR_END) :]
    except DataError as error:
        return str(error).removeprefix(f"{path}: ")
    # Members of a gzip file may end where a tar archive doesn't.
    if file.endswith((".tar.gz", ".tgz")) and tail != _TAR_END:
        return "truncated: the tar archive's end is missing"
    return None
