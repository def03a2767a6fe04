"""Jobs in shards: which rows a shard has, and the file that keeps what was found until all are merged.

A shard is a zip file. `piece.json` describes it: kind of job, number of the shard, and all that decides
the job's result, which is the same for every shard of it. Rows are in `rows.txt`, a line each, arrays in
members of their own. Bytes depend on the content alone.
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

from bigbird_dna.disk.atomic import checksum, reading
from bigbird_dna.disk.outputs import destination, is_special
from bigbird_dna.errors import DataError, UsageError, shortened

if TYPE_CHECKING:  # slow to import: inside the functions
    from numpy.typing import NDArray

T = TypeVar("T")

MOST = 100_000  # shards of a job

_FORMAT = 1
_DESCRIPTION, _ROWS = "piece.json", "rows.txt"
_LARGEST = 1 << 28  # bytes of a description, which has a genome's contigs and maybe a BED file's regions
_ERRORS = "surrogateescape"  # bytes of a VCF that aren't UTF-8
_FAULT = "damaged, or not a piece of a job (what a command with --shard writes)"


class Shard(NamedTuple):
    """One of the `of` shards of a job; `number` is counted from 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shard that `3/8` stands for; `UsageError` for anything else."""
        number, slash, of = text.partition("/")
        if slash and all(part.isascii() and part.isdecimal() and len(part) < 10 for part in (number, of)):
            shard = cls(int(number), int(of))
            if 1 <= shard.number <= shard.of <= MOST:
                return shard
        raise UsageError(
            f"piece {shortened(repr(text))}: say which one of how many, as 3/8, from 1 to at most {MOST:,}"
        )

    def rows(self, total: int) -> range:
        """Its rows of the job's `total`: those of all shards stand side by side, alike in number to one."""
        return range((self.number - 1) * total // self.of, self.number * total // self.of)

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def find_shard(text: str | None, output: Path | None) -> Shard | None:
    """The shard that is asked for, None for the whole job.

    `UsageError` if there is no file to write it to.
    """
    if text is None:
        return None
    shard = Shard.parse(text)
    if output is None or (is_special(output) and not output.is_dir()):
        raise UsageError(f"piece {shard}: is not a result to be read as it comes: name a file for it with -o")
    return shard


def contents(*paths: Path | str | None, names: Mapping[Path, str] | None = None) -> dict[str, str]:
    """SHA-256 of a job's input files by their names, or those in `names`; None is passed over."""
    known = names or {}
    return {known.get(Path(path), str(path)): checksum(Path(path)) for path in paths if path is not None}


class ShardWriter:
    """An open shard that takes up rows and arrays."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self.count = 0  # of rows

    def write_rows(self, lines: Iterable[str]) -> None:
        """Write lines without their ends; once a shard."""
        with (
            self._archive.open(_ROWS, "w", force_zip64=True) as stream,
            TextIOWrapper(stream, encoding="utf-8", errors=_ERRORS, newline="\n") as text,
        ):
            for line in lines:
                text.write(f"{line}\n")
                self.count += 1

    def write_array(self, name: str, values: "NDArray[Any]") -> None:
        """Write an array under a name of its own."""
        import numpy as np

        with self._archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
            np.lib.format.write_array(stream, np.ascontiguousarray(values), allow_pickle=False)


@contextmanager
def write_shard(output: Path, kind: str, shard: Shard, job: Mapping[str, Any]) -> Iterator[ShardWriter]:
    """Write a shard of a job, whole or not at all; `merge-shards` goes by `kind`, that of the rows.

    `job` is all that decides the bytes of the merged result and isn't in the rows, as values for JSON. The
    keys are what messages call them.
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
        with archive.open(_DESCRIPTION, "w") as stream:  # which, unlike `writestr`, notes no time of day
            stream.write(json.dumps(description).encode())


@dataclass(frozen=True)
class ShardFile:
    """A shard that was written: of which job, and which of it."""

    path: Path
    kind: str
    shard: Shard
    job: dict[str, Any]
    rows: int
    version: str

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read a shard's description; `DataError` if it isn't one."""
        with reading(path, _FAULT, Exception), zipfile.ZipFile(path) as archive:
            if archive.getinfo(_DESCRIPTION).file_size > _LARGEST:
                raise DataError(f"{path}: {_FAULT}: its description is too long")
            values = json.loads(archive.read(_DESCRIPTION))
            if values["piece-format"] != _FORMAT:
                raise DataError(f"{path}: is a piece of another version's format")
            shard, rows, job = Shard(values["number"], values["of"]), values["rows"], values["job"]
            texts = values["kind"], values["bigbird-dna"]
            types = [*map(type, (*shard, rows, *texts, job))]
            if types != [int, int, int, str, str, dict] or not 1 <= shard.number <= shard.of <= MOST:
                raise ValueError("its description is not one")
        return cls(Path(path), texts[0], shard, job, rows, texts[1])

    def described(self, make: Callable[[dict[str, Any]], T]) -> T:
        """What `make` makes of the job; `DataError` if it lacks something."""
        with reading(self.path, _FAULT, Exception):
            return make(self.job)

    def parsed(self, parse: Callable[[str], T]) -> Iterator[T]:
        """What `parse` makes of each row; `DataError` if one is missing or can't be parsed."""
        count = 0
        with (
            reading(self.path, _FAULT, Exception),
            zipfile.ZipFile(self.path) as archive,
            archive.open(_ROWS) as stream,
            TextIOWrapper(stream, encoding="utf-8", errors=_ERRORS, newline="\n") as text,
        ):
            for line in text:
                count += 1
                yield parse(line.removesuffix("\n"))
        if count != self.rows:
            raise DataError(f"{self.path}: {_FAULT}: it has {count:,} rows of {self.rows:,}")

    def arrays(self, *names: str) -> list["NDArray[Any]"]:
        """Its arrays of these names; `DataError` if one is missing or damaged."""
        from bigbird_dna.disk.foreign import open_npz

        with reading(self.path, _FAULT, Exception), open_npz(self.path) as stored:
            return [stored.read(name) for name in names]


def all_rows(shards: Iterable[ShardFile], parse: Callable[[str], T]) -> Iterator[T]:
    """What `parse` makes of each row of the shards, one shard after the other."""
    for shard in shards:
        yield from shard.parsed(parse)


def read_shards(paths: Sequence[Path | str]) -> list[ShardFile]:
    """All shards of one job, in their order, whatever that of `paths` is.

    `DataError`: a file isn't a shard; one is of another job, is there twice or is missing, or was made by
    another version, which may write otherwise.
    """
    if not paths:
        raise UsageError("no pieces to merge: name those that were written")
    first, *others = [ShardFile.open(Path(path)) for path in paths]
    if first.version != (own := version("bigbird-dna")):
        raise DataError(
            f"{first.path}: was written by bigbird-dna {first.version}, and this is {own}: "
            "merge pieces with the version that wrote them"
        )
    found = {first.shard.number: first}
    for other in others:
        if difference := _difference(first, other):
            raise DataError(f"{other.path}: is not of the same job as {first.path}: {difference}")
        if twin := found.get(other.shard.number):
            raise DataError(f"{other.path}: is piece {other.shard}, as {twin.path} is")
        found[other.shard.number] = other
    if missing := [number for number in range(1, first.shard.of + 1) if number not in found]:
        shown = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        what = f"piece {shown} is" if len(missing) == 1 else f"{len(missing):,} pieces ({shown}) are"
        raise DataError(f"{first.path}: is piece {first.shard}, and of the others {what} missing")
    return [found[number] for number in sorted(found)]


def _difference(first: ShardFile, other: ShardFile) -> str:
    """In what two shards are not of one job, "" if they are."""
    if other.version != first.version:
        return f"bigbird-dna {other.version} wrote it, not {first.version}"
    if other.kind != first.kind:
        return f"it has {other.kind}, not {first.kind}"
    if other.shard.of != first.shard.of:
        return f"it is one of {other.shard.of:,} pieces, not of {first.shard.of:,}"
    for key in dict.fromkeys([*first.job, *other.job]):
        one, two = first.job.get(key), other.job.get(key)
        if one == two:
            continue
        if isinstance(one, dict) and isinstance(two, dict):
            inner = next((name for name in [*one, *two] if one.get(name) != two.get(name)), "")
            return f"it differs in {key} ({shortened(inner, 300)})"
        if isinstance(one, str) and isinstance(two, str):
            return f"its {key} is {shortened(two, 300)}, not {shortened(one, 300)}"
        return f"it differs in {key}"
    return ""
