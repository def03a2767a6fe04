"""Split jobs into shards: the rows of each shard, and its file until all shards are merged.

A shard is a zip file. `piece.json` describes it: the kind of job, the number of the shard, and everything
that determines the job's result, which is the same for all its shards. Rows are in `rows.txt`, one per line;
arrays are separate members. The bytes depend only on the content.
"""

import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from bigbird_dna.disk.atomic import checksum, is_special, reading
from bigbird_dna.disk.outputs import destination
from bigbird_dna.errors import DataError, UsageError, shortened

if TYPE_CHECKING:  # slow to import: inside the functions
    from numpy.typing import NDArray

T = TypeVar("T")

MOST = 100_000  # maximum shards per job

_FORMAT = 1
_DESCRIPTION, _ROWS = "piece.json", "rows.txt"
_LARGEST = (
    1 << 28
)  # bytes of a description, which can contain a genome's contigs and a BED file's regions
_ERRORS = "surrogateescape"  # bytes of a VCF that are not UTF-8
_FAULT = "damaged, or not a shard file (written by a command with --shard)"


class Shard(NamedTuple):
    """Shard `number` (counted from 1) of the `of` shards of a job."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a shard such as `3/8`; `UsageError` for any other text."""
        number, slash, of = text.partition("/")
        if slash and all(
            part.isascii() and part.isdecimal() and len(part) < 10
            for part in (number, of)
        ):
            shard = cls(int(number), int(of))
            if 1 <= shard.number <= shard.of <= MOST:
                return shard
        raise UsageError(
            f"--shard {shortened(repr(text))}: must be K/N such as 3/8, with 1 ≤ K ≤ N ≤ {MOST:,}"
        )

    def rows(self, total: int) -> range:
        """Return the rows of this shard among `total`; shards differ by at most one row in size."""
        return range(
            (self.number - 1) * total // self.of, self.number * total // self.of
        )

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def find_shard(text: str | None, output: Path | None) -> Shard | None:
    """Return the requested shard, or None for the whole job.

    `UsageError` without a file for it.
    """
    if text is None:
        return None
    shard = Shard.parse(text)
    if output is None or is_special(output):
        raise UsageError(
            f"--shard {shard}: a shard cannot go to standard output; give a file with -o"
        )
    return shard


def contents(
    *paths: Path | str | None, names: Mapping[Path, str] | None = None
) -> dict[str, str]:
    """Return the SHA-256 of a job's input files by path, or by their entry in `names`; skip None."""
    known = names or {}
    return {
        known.get(Path(path), str(path)): checksum(Path(path))
        for path in paths
        if path is not None
    }


class ShardWriter:
    """Writer of rows and arrays to an open shard."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self.count = 0  # number of rows

    def write_rows(self, lines: Iterable[str]) -> None:
        """Write lines (given without line ends); call it once per shard."""
        with (
            self._archive.open(_ROWS, "w", force_zip64=True) as stream,
            TextIOWrapper(
                stream, encoding="utf-8", errors=_ERRORS, newline="\n"
            ) as text,
        ):
            for line in lines:
                text.write(f"{line}\n")
                self.count += 1

    def write_array(self, name: str, values: "NDArray[Any]") -> None:
        """Write an array under a unique name."""
        import numpy as np

        with self._archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
            np.lib.format.write_array(
                stream, np.ascontiguousarray(values), allow_pickle=False
            )


@contextmanager
def write_shard(
    output: Path, kind: str, shard: Shard, job: Mapping[str, Any]
) -> Iterator[ShardWriter]:
    """Write a shard of a job atomically; `merge-shards` uses `kind`, the type of the rows.

    `job` contains everything that determines the bytes of the merged result and is not in the rows, as JSON
    values. Its keys appear in messages.
    """
    with (
        destination(output, "piece") as path,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    ):
        writer = ShardWriter(archive)
        yield writer
        description = {
            "piece-format": _FORMAT,
            "bigbird-dna": version("bigbird-dna"),
            "kind": kind,
            "number": shard.number,
            "of": shard.of,
            "rows": writer.count,
            "job": job,
        }
        with archive.open(
            _DESCRIPTION, "w"
        ) as stream:  # unlike `writestr`, this stores no time
            stream.write(json.dumps(description).encode())


@dataclass(frozen=True)
class ShardFile:
    """A shard file: its job and its number."""

    path: Path
    kind: str
    shard: Shard
    job: dict[str, Any]
    rows: int
    version: str

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read a shard's description; `DataError` if the file is not a shard."""
        with reading(path, _FAULT, Exception), zipfile.ZipFile(path) as archive:
            if archive.getinfo(_DESCRIPTION).file_size > _LARGEST:
                raise DataError(f"{path}: {_FAULT}: the description is too long")
            values = json.loads(archive.read(_DESCRIPTION))
            if values["piece-format"] != _FORMAT:
                raise DataError(f"{path}: the shard has the format of another version")
            shard, rows, job = (
                Shard(values["number"], values["of"]),
                values["rows"],
                values["job"],
            )
            texts = values["kind"], values["bigbird-dna"]
            types = [*map(type, (*shard, rows, *texts, job))]
            if (
                types != [int, int, int, str, str, dict]
                or not 1 <= shard.number <= shard.of <= MOST
            ):
                raise ValueError("invalid description")
        return cls(Path(path), texts[0], shard, job, rows, texts[1])

    def described(self, make: Callable[[dict[str, Any]], T]) -> T:
        """Return the result of `make` for the job; `DataError` if the job lacks something."""
        with reading(self.path, _FAULT, Exception):
            return make(self.job)

    def parsed(self, parse: Callable[[str], T]) -> Iterator[T]:
        """Yield the result of `parse` for each row; `DataError` if a row is missing or invalid."""
        count = 0
        with (
            reading(self.path, _FAULT, Exception),
            zipfile.ZipFile(self.path) as archive,
            archive.open(_ROWS) as stream,
            TextIOWrapper(
                stream, encoding="utf-8", errors=_ERRORS, newline="\n"
            ) as text,
        ):
            for line in text:
                count += 1
                yield parse(line.removesuffix("\n"))
        if count != self.rows:
            raise DataError(
                f"{self.path}: {_FAULT}: found {count:,} of {self.rows:,} rows"
            )

    def arrays(self, *names: str) -> list["NDArray[Any]"]:
        """Return the arrays of these names; `DataError` if one is missing or damaged."""
        from bigbird_dna.disk.arrays import open_npz

        with reading(self.path, _FAULT, Exception), open_npz(self.path) as stored:
            return [stored.read(name) for name in names]


def all_rows(shards: Iterable[ShardFile], parse: Callable[[str], T]) -> Iterator[T]:
    """Yield the result of `parse` for each row of the shards, in the order of the shards."""
    for shard in shards:
        yield from shard.parsed(parse)


def read_shards(paths: Sequence[Path | str]) -> list[ShardFile]:
    """Read all shards of one job and return them in their order.

    `DataError` if a file is not a shard, or a shard is of another job, duplicate, missing, or from another
    version, whose output could differ.
    """
    if not paths:
        raise UsageError("no shards to merge; give the shard files")
    first, *others = [ShardFile.open(Path(path)) for path in paths]
    if first.version != (own := version("bigbird-dna")):
        raise DataError(
            f"{first.path}: written by bigbird-dna {first.version}, but this is {own}; "
            "merge shards with the version that wrote them"
        )
    found = {first.shard.number: first}
    for other in others:
        if difference := _difference(first, other):
            raise DataError(
                f"{other.path} and {first.path} are shards of different jobs: {difference}"
            )
        if twin := found.get(other.shard.number):
            raise DataError(
                f"{other.path} and {twin.path} are both shard {other.shard}"
            )
        found[other.shard.number] = other
    if missing := [
        number for number in range(1, first.shard.of + 1) if number not in found
    ]:
        shown = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        what = (
            f"shard {shown} is"
            if len(missing) == 1
            else f"{len(missing):,} shards ({shown}) are"
        )
        raise DataError(
            f"{first.path} is shard {first.shard}, cannot merge: {what} missing"
        )
    return [found[number] for number in sorted(found)]


def _difference(first: ShardFile, other: ShardFile) -> str:
    """Describe the difference if two shards are of different jobs, else return ""."""
    if other.version != first.version:
        return f"version {other.version}, not {first.version}"
    if other.kind != first.kind:
        return f"{other.kind}, not {first.kind}"
    if other.shard.of != first.shard.of:
        return f"{other.shard.of:,} shards, not {first.shard.of:,}"
    for key in dict.fromkeys([*first.job, *other.job]):
        one, two = first.job.get(key), other.job.get(key)
        if one == two:
            continue
        if isinstance(one, dict) and isinstance(two, dict):
            inner = next(
                (name for name in [*one, *two] if one.get(name) != two.get(name)), ""
            )
            return f"different {key} ({shortened(inner, 300)})"
        if isinstance(one, str) and isinstance(two, str):
            return f"{key} {shortened(two, 300)}, not {shortened(one, 300)}"
        return f"different {key}"
    return ""
