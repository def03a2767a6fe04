"""What the harness knows of a reader; and formats that pack others, taken apart and put together again."""

import gzip
import io
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.genome.formats import bgzip

Files = Mapping[str, bytes]
SEEDS = Path(__file__).resolve().parent / "seeds"
TEXT = (
    *(
        b"-1",
        b"+5",
        b"1_000",
        "٣".encode(),
        b"9" * 5000,
        b"2147483648",
        b"18446744073709551616",
        b"1e5",
    ),
    *(
        b"\t",
        b"\r",
        b"\0",
        b"\x85",
        "\u2028".encode(),
        b"#",
        b" ",
        b"..",
        b"%0A",
        b"%00",
        b":",
        b",",
    ),
)
JSON = (
    *(
        b"-1",
        b"1e999",
        b"NaN",
        b"null",
        b"true",
        b"{}",
        b"[]",
        b'""',
        b"1" * 5000,
        b"1000000000000",
    ),
    *(b"[" * 2000, b"\\ud800", b'"\\u001b"', b'"\\r\\n"'),
)
YAML = (
    *(
        b"&a ",
        b"&a [*a]",
        b"<<: ",
        b"!!int ",
        b"!!timestamp x",
        b"!!python/name:os.system ",
        b"? ",
        b"- ",
    ),
    *(
        b"[[[[",
        b"0x_",
        b"1:30",
        b".nan",
        b"2024-01-01",
        b"{x}",
        b"null",
        b"-1",
        b"1" * 5000,
        b"../x",
    ),
)
ARRAY = (
    b"'descr'",
    b"'|O'",
    b"'fortran_order': True",
    b"(",
    b"-1,",
    b"'<U99999999'",
    b"[('a', '<f4')]",
)
FASTA = (b">", b"\n>", *TEXT)
TOKENS = {
    **dict.fromkeys((".json", ".jsonl", ".json.gz"), JSON),
    **dict.fromkeys((".npy", ".npz"), ARRAY),
    **dict.fromkeys((".fa", ".fa.gz"), FASTA),
    **dict.fromkeys(
        (".tsv", ".bed", ".fai", ".gff3", ".gtf.gz", ".vcf", ".vcf.gz", ".chain"), TEXT
    ),
    **dict.fromkeys((".narrowPeak.gz", ".sga", ".fps", ".gb", ".embl"), TEXT),
    ".yaml": YAML,
}
"""Words that a mutation may put into files of a kind."""


@dataclass(frozen=True)
class Container:
    """A format that packs others, so that its members are damaged too and not only what packs them.

    `unwrap` gives the members of a good file's bytes; `wrap` packs members in their place, given the
    same file's bytes. Either may raise anything: the file's own bytes are then damaged instead.
    """

    unwrap: Callable[[bytes], list[bytes]]
    wrap: Callable[[bytes, list[bytes]], bytes]


def _unzip(data: bytes) -> list[bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [archive.read(member) for member in archive.infolist()]


def _zip(data: bytes, members: list[bytes]) -> bytes:
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as archive,
        zipfile.ZipFile(packed, "w") as out,
    ):
        for member, content in zip(archive.infolist(), members, strict=True):
            out.writestr(member, content)
    return packed.getvalue()


def _headed(start: int, form: str) -> Container:
    """A format whose header is as long as a number at `start` says."""
    begin, top = start + struct.calcsize(form), 1 << 8 * struct.calcsize(form)

    def unwrap(data: bytes) -> list[bytes]:
        end = begin + struct.unpack(form, data[start:begin])[0]
        return [data[begin:end], data[end:]]

    def wrap(data: bytes, members: list[bytes]) -> bytes:
        return (
            data[:start] + struct.pack(form, len(members[0]) % top) + b"".join(members)
        )

    return Container(unwrap, wrap)


def _mat5_elements(data: bytes) -> list[tuple[int, bytes]]:
    """Kind and content of each, which is unpacked if it was packed."""
    found, place = [], 128
    while place < len(data):
        kind, size = struct.unpack("<2I", data[place : place + 8])
        body = data[place + 8 : place + 8 + size]
        found.append((kind, zlib.decompress(body) if kind == 15 else body))
        place += 8 + size
    return found


def _mat5(data: bytes, members: list[bytes]) -> bytes:
    out = [data[:128]]
    for (kind, _), member in zip(_mat5_elements(data), members, strict=True):
        body = zlib.compress(member, 1) if kind == 15 else member
        out += [struct.pack("<2I", kind, len(body)), body]
    return b"".join(out)


def _npz(data: bytes, members: list[bytes]) -> bytes:
    whole = [
        NPY.wrap(old, members[2 * place : 2 * place + 2])
        for place, old in enumerate(_unzip(data))
    ]
    return _zip(data, whole)


def _ungzip(data: bytes) -> list[bytes]:
    return [gzip.decompress(data)]


ZIP, NPY, SAFETENSORS = Container(_unzip, _zip), _headed(8, "<H"), _headed(0, "<Q")
GZIP = Container(_ungzip, lambda data, members: gzip.compress(members[0], 1, mtime=0))
BGZIP = Container(_ungzip, lambda data, members: bgzip(members[0], block=100))
NPZ = Container(
    lambda data: [part for member in _unzip(data) for part in NPY.unwrap(member)], _npz
)
MATLAB5 = Container(lambda data: [body for _, body in _mat5_elements(data)], _mat5)
CONTAINERS = {
    **{
        ".npz": NPZ,
        ".npy": NPY,
        ".safetensors": SAFETENSORS,
        ".fa.gz": BGZIP,
        ".vcf.gz": BGZIP,
    },
    **dict.fromkeys(
        (".narrowPeak.gz", ".gtf.gz", ".json.gz", ".tsv.gz", ".tar.gz"), GZIP
    ),
}


def stored(name: str) -> list[bytes]:
    """The files of a directory of `seeds`."""
    return [path.read_bytes() for path in sorted((SEEDS / name).iterdir())]


@dataclass
class Reader:
    """A reader of files that others made.

    `read` gets the path of a file, alone in a directory of its own, called `input` and `suffix`. It may
    return anything, or raise a `BigBirdDnaError`. Where a directory or a second file is wanted, it puts
    them beside the file. `good` gives small good files, the same ones every time; or names the directory of
    `seeds` that has them, by default the reader's own. `tokens` are words that a mutation may put in. Memory
    is counted from what the process holds after it read all seeds.
    """

    name: str
    suffix: str
    read: Callable[[Path], object]
    good: Callable[[], list[bytes]] | str = ""
    container: Container | None = None
    tokens: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        self.container = self.container or CONTAINERS.get(self.suffix)
        self.tokens += TOKENS.get(self.suffix, ())

    def seeds(self) -> list[bytes]:
        """Good files; those of `seeds` are packed where the reader's are."""
        if callable(self.good):
            return self.good()
        texts = stored(self.good or self.name)
        if self.container in (GZIP, BGZIP):
            return [self.container.wrap(b"", [text]) for text in texts]
        return texts


def made(write: Callable[[Path], object]) -> dict[str, bytes]:
    """The files that `write` puts into a directory, or below it, by name."""
    with tempfile.TemporaryDirectory() as home:
        write(Path(home))
        return {
            path.name: path.read_bytes()
            for path in sorted(Path(home).rglob("*"))
            if path.is_file()
        }


def file_bytes(suffix: str, *writers: Callable[[Path], object]) -> list[bytes]:
    """What each writes to a file."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, f"seed{suffix}")
        return [(write(path), path.read_bytes())[1] for write in writers]


def put(files: Files, directory: Path) -> Path:
    """Files in a directory of their own."""
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return directory


def member(
    reader: str,
    files: Callable[[], Files],
    name: str,
    read: Callable[[Path], object],
    *without: str,
    good: Callable[[], list[bytes]] | None = None,
    container: Container | None = None,
) -> Reader:
    """A reader of a directory of good files but for one, which is damaged."""

    def call(path: Path) -> None:
        whole = {
            other: content for other, content in files().items() if other not in without
        }
        read(put({**whole, name: path.read_bytes()}, path.parent / "files"))

    return Reader(
        reader, Path(name).suffix, call, good or (lambda: [files()[name]]), container
    )
