"""However an indexed reference is replaced, its bases are those of the file that is there, or an error."""

import gzip
import json
import os
import pickle
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pysam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.disk.user_cache import UserCache
from bigbird_dna.errors import DataError
from bigbird_dna.genome import fasta_index as proofs
from bigbird_dna.genome.fasta import stream_fasta
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import Interval
from tests.genome.formats import bgzip
from tests.golden.messages import fails
from tests.toys import random_dna, written

Genome = dict[str, str]
A: Genome = {
    "one": "ACGTTGCAGGATCCATTAGC" * 300,
    "two": "GGGGCCCCAATT" * 400,
    "three": "TTAGGG" * 50,
}
B: Genome = {
    name: text[7:] + text[:7] for name, text in A.items()
}  # of the same lengths
LATER = 3_000_000_000  # ns


@pytest.fixture(autouse=True)
def remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Even small references are remembered, in a cache of their own."""
    monkeypatch.setenv("BIGBIRD_DNA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(proofs, "SMALLEST", 0)
    return tmp_path / "cache" / "references"


def layout(
    genome: Genome, width: int = 60, newline: str = "\n", description: str = ""
) -> bytes:
    text = ""
    for name, bases in genome.items():
        lines = [bases[start : start + width] for start in range(0, len(bases), width)]
        text += f">{name}{description}\n" + "\n".join(lines) + "\n"
    return text.replace("\n", newline).encode()


def store(path: Path, text: bytes, **options: object) -> None:
    path.write_bytes(bgzip(text, **options) if path.suffix == ".gz" else text)  # type: ignore[arg-type]


def prove(path: Path) -> None:
    """Open a reference that was left alone for long enough to be remembered."""
    with Reference(path) as reference:
        for contig in reference.contigs:
            reference.fetch(Interval(contig, 0, 10))


def other(path: Path, genome: Genome = B, **options: object) -> Path:
    """Another reference in a directory of its own, with its index, an hour older than ours."""
    there = path.parent / "elsewhere" / path.name
    there.parent.mkdir(exist_ok=True)
    store(there, layout(genome), **options)
    pysam.faidx(str(there))
    for file in there.parent.iterdir():
        os.utime(file, (time.time() - 3600, time.time() - 3600))
    return there


def keep_times(path: Path, change: Callable[[], object]) -> None:
    before = path.stat()
    change()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def rewrite(
    path: Path,
    genome: Genome,
    width: int = 60,
    level: str = "6",
    block: int = 3000,
    **more: str,
) -> Genome:
    """Write the file once more, keeping its time."""
    keep_times(
        path,
        lambda: store(path, layout(genome, width, **more), level=level, block=block),
    )
    return genome


def edit(path: Path) -> Genome:
    """A record inside another one, so that all lengths of the file stay."""
    text = layout(A)
    place = text.index(b"\n", 2000) + 1
    keep_times(
        path,
        lambda: store(
            path, text[:place] + b">" + b"n" * 59 + b"\n" + text[place + 61 :]
        ),
    )
    before = A["one"][: 60 * text[:place].count(b"\n") - 60]
    return {
        "one": before,
        "n" * 59: A["one"][len(before) + 60 :],
        "two": A["two"],
        "three": A["three"],
    }


def unpack(path: Path) -> None:
    archive = path.parent / "archive.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(other(path), path.name)
    with tarfile.open(archive) as tar:
        tar.extraction_filter = getattr(
            tarfile, "data_filter", None
        )  # not before Python 3.11.4
        tar.extractall(path.parent)


def swap_index(path: Path, suffix: str, genome: Genome, **options: object) -> Genome:
    there = other(path, genome, **options)
    if path.suffix == ".gz" or suffix == ".fai":
        shutil.copy2(f"{there}{suffix}", f"{path}{suffix}")
    return A


def touch_other_index(path: Path) -> None:
    swap_index(path, ".fai", {"one": "A" * 9000, "two": "C" * 100})
    os.utime(f"{path}.fai", (time.time() + 3600, time.time() + 3600))
    store(path, layout(B, 61))


def retarget(path: Path) -> None:
    there = other(path)
    path.unlink()
    path.symlink_to(there)


# Ways to replace a file, which give its records then; without: those of B.
WAYS: dict[str, Callable[[Path], object]] = {
    "of other lines": lambda path: rewrite(
        path, {**A, "one": A["one"][:-20]}, 50
    ),  # as long in bytes
    "packed anew": lambda path: rewrite(path, A, level="1", block=2000),
    "in another order": lambda path: rewrite(path, dict(reversed(A.items()))),
    "of other line ends": lambda path: rewrite(path, A, newline="\r\n"),
    "described": lambda path: rewrite(path, A, description=" moved by some bytes"),
    "copied": lambda path: shutil.copy2(
        other(path), path
    ),  # as cp -p, into the same file
    "older than its index": lambda path: os.utime(
        shutil.copy2(other(path), path), (time.time() - 7200,) * 2
    ),
    "synchronized": lambda path: shutil.copy2(
        other(path), path.with_name(".new")
    ).replace(path),  # rsync -t
    "unpacked": unpack,
    "edited in place": lambda path: keep_times(
        path, lambda: path.write_bytes(other(path).read_bytes())
    ),
    "renamed": lambda path: other(path).rename(path),
    "with a record inside": edit,
    "with another fai": lambda path: swap_index(
        path, ".fai", {"one": "A" * 9000, "two": "C" * 100}
    ),
    "with a new fai of another": touch_other_index,
    "with another gzi": lambda path: swap_index(path, ".gzi", B, block=2500),
    "truncated": lambda path: keep_times(
        path, lambda: os.truncate(path, path.stat().st_size * 2 // 3)
    ),
    "retargeted": retarget,
    "with all its files": lambda path: [
        shutil.copy2(file, path.with_name(file.name))
        for file in [*other(path).parent.iterdir()]
    ],
}


def check(reference: Reference, expected: Genome) -> None:
    """Every base of a reference is what is expected."""
    assert list(reference.contigs.items()) == [
        (name, len(text)) for name, text in expected.items()
    ]
    for name, text in expected.items():
        assert reference.fetch(Interval(name, 0, len(text))) == text
        for start in range(0, len(text) - 20, 97):
            assert (
                reference.fetch(Interval(name, start, start + 20))
                == text[start : start + 20]
            )


def records(path: Path) -> Genome:
    """The records of a file, read from its start."""
    found: Genome = {}
    for chunk in stream_fasta(path):
        found[chunk.contig] = found.get(chunk.contig, "") + chunk.sequence
    return found


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("name", ["x.fa", "x.fa.gz"])
@pytest.mark.parametrize("way", WAYS)
def test_no_base_of_a_replaced_reference_is_wrong(
    tmp_path, monkeypatch, way, name, cache
):
    home = tmp_path / "home"
    home.mkdir()
    path = home / name
    store(path, layout(A))
    if not cache:
        monkeypatch.setenv("BIGBIRD_DNA_CACHE", os.devnull)
    prove(path)
    with Reference(path) as opened:
        check(opened, A)
        copy, before = pickle.dumps(opened), path.read_bytes()
        given = WAYS[way](path)
        for reference in (opened, pickle.loads(copy)):
            if path.read_bytes() == before:
                check(reference, A)
                continue
            with fails(DataError):
                reference.fetch(Interval("one", 100, 120))
    if way == "truncated" and path.suffix == ".gz":
        with fails(DataError):
            Reference(path)
        return
    # What is left of a plain file that was cut is a reference as well.
    expected = (
        records(path) if way == "truncated" else given if isinstance(given, dict) else B
    )
    for _ in range(2):
        with Reference(path) as reference:
            check(reference, expected)
    with pysam.FastaFile(str(path)) as fasta:  # which goes by the index beside the file
        for contig, text in expected.items():
            assert fasta.fetch(contig) == text


@pytest.mark.parametrize("prepared", [False, True])
def test_a_reference_that_is_left_alone_is_read_once(tmp_path, monkeypatch, prepared):
    path = tmp_path / ("x.fa.gz" if prepared else "x.fa")
    if prepared:
        prepare_reference(written(tmp_path / "in.fa", layout(A)), path)
    else:
        store(path, layout(A))
        prove(path)
    monkeypatch.setattr("bigbird_dna.genome.reference.index_fasta", None)
    with Reference(path) as reference:
        check(reference, A)


def test_a_changed_mode_costs_another_reading_and_no_error(tmp_path):
    path = tmp_path / "x.fa"
    store(path, layout(A))
    with Reference(path) as reference:
        path.chmod(0o600)
        check(reference, A)
        path.rename(tmp_path / "away.fa")
        with fails(DataError):
            reference.fetch(Interval("one", 0, 5))
        shutil.copy2(tmp_path / "away.fa", path)
        check(reference, A)


def test_a_file_that_has_only_just_changed_is_waited_for_or_not_remembered():
    identity = proofs.Identity(1, 1, 1, time.time_ns() | 1)
    assert proofs.settle(identity)
    assert time.time_ns() >= identity.changed + proofs.TICK
    assert not proofs.settle(identity._replace(changed=time.time_ns() // 10**9 * 10**9))
    assert not proofs.settle(identity._replace(changed=time.time_ns() + LATER | 1))
    assert proofs.settle(
        identity._replace(changed=time.time_ns() // 10**9 * 10**9 - LATER)
    )


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", "null", '{"proof": 1}', "\0" * 40, "[" * 100_000]
)
def test_a_damaged_memory_is_none(tmp_path, remembered, damage):
    path = tmp_path / "x.fa"
    store(path, layout(A))
    prove(path)
    (file,) = remembered.iterdir()
    file.write_text(damage)
    with Reference(path) as reference:
        check(reference, A)
    stored = json.loads(file.read_text())
    stored["proof"]["rows"][0][2] += 1
    file.write_text(json.dumps(stored))
    with Reference(path) as reference:
        check(reference, A)


def test_a_memory_that_others_may_write_to_is_not_believed_and_the_oldest_go(
    tmp_path, monkeypatch, remembered
):
    path = tmp_path / "x.fa"
    store(path, layout(A))
    prove(path)
    identity = proofs.Identity.of(path.stat())
    assert proofs.recall(path, identity) is not None
    remembered.chmod(0o777)
    assert proofs.recall(path, identity) is None
    remembered.chmod(0o700)
    real = remembered.rename(tmp_path / "moved")
    remembered.symlink_to(real)
    assert proofs.recall(path, identity) is None
    remembered.unlink()  # a new one, where the oldest memories go
    monkeypatch.setattr(proofs, "SHELF", UserCache("references", most=3))
    for number in range(5):
        store(path := tmp_path / f"{number}.fa", layout({"a": "ACGT"}))
        prove(path)
    assert len(list(remembered.iterdir())) == 3
    assert proofs.recall(path, proofs.Identity.of(path.stat())) is not None


def test_a_block_that_rots_unseen_is_refused_every_time(tmp_path, monkeypatch):
    path, bases = (
        tmp_path / "x.fa.gz",
        random_dna(400_000, 1),
    )  # more than a reader's buffer holds
    store(path, layout({"one": bases}))
    monkeypatch.setattr(proofs.Identity, "of", lambda _: proofs.Identity(1, 1, 1, 1))
    with Reference(path) as reference:
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 10] = bytes(10)
        path.write_bytes(content)
        for _ in range(2):
            with fails(DataError):
                reference.fetch(Interval("one", 0, 400_000))
            assert reference.fetch(Interval("one", 0, 8)) == bases[:8]


genomes = st.dictionaries(
    st.text("ab1_.é", min_size=1, max_size=3),
    st.text("ACGTNacgt", min_size=1, max_size=40),
    min_size=1,
    max_size=4,
)


@settings(max_examples=100, deadline=None)
@given(
    before=genomes,
    after=genomes,
    widths=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    data=st.data(),
)
def test_any_reference_put_over_any_other_is_read_right_or_refused(
    tmp_path, before, after, widths, data
):
    path = tmp_path / data.draw(st.sampled_from(["x.fa", "x.fa.gz"]))
    path.unlink(missing_ok=True)
    newline = data.draw(st.sampled_from(["\n", "\r\n"]))
    store(path, layout(before, widths[0]), block=37)
    with Reference(path) as reference:
        fai = Path(f"{path}.fai").read_bytes()
        text = layout(after, widths[1], newline)
        if data.draw(st.booleans()):
            text = text.rstrip()
        keep_times(
            path, lambda: store(path, text, block=data.draw(st.integers(20, 90)))
        )
        Path(f"{path}.fai").write_bytes(fai)
        for name, bases in before.items():
            try:
                assert (
                    reference.fetch(Interval(name, 0, len(bases)))
                    == after.get(name, "").upper()
                )
            except DataError:
                assert text != layout(before, widths[0]) or path.suffix == ".gz"
    with Reference(path) as reference:
        check(reference, {name: bases.upper() for name, bases in after.items()})
    if all(name.isascii() for name in after):
        with pysam.FastaFile(str(path)) as fasta:
            assert {name: fasta.fetch(name) for name in fasta.references} == after


@settings(max_examples=50, deadline=None)
@given(
    genomes,
    st.integers(1, 20),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(0, 2),
    st.booleans(),
)
def test_the_index_has_the_bytes_that_samtools_writes(
    tmp_path, genome, width, newline, blank, packed
):
    path = tmp_path / ("x.fa.gz" if packed else "x.fa")
    text = layout(genome, width, newline) + newline.encode() * blank
    store(path, text, block=50)
    for suffix in (".fai", ".gzi"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    Reference(path).close()
    found = {file.name: file.read_bytes() for file in tmp_path.glob("x.fa*")}
    for suffix in (".fai", ".gzi"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    pysam.faidx(str(path))
    assert {file.name: file.read_bytes() for file in tmp_path.glob("x.fa*")} == found
    for file in tmp_path.glob("x.fa*"):
        file.unlink()


def test_an_index_that_lists_empty_blocks_is_right_too(tmp_path):
    path = tmp_path / "x.fa.gz"
    text = layout(A)
    end = bgzip(b"")
    content = bgzip(text[:4000])[: -len(end)] + end + bgzip(text[4000:])
    path.write_bytes(content)
    with Reference(path) as reference:
        check(reference, A)
    assert gzip.decompress(content) == text
    pysam.faidx(str(path))
    before = path.with_name("x.fa.gz.gzi").read_bytes()
    with Reference(path) as reference:
        check(reference, A)
    assert path.with_name("x.fa.gz.gzi").read_bytes() == before


def test_line_ends_of_both_kinds_in_one_record_are_refused(tmp_path):
    path = written(tmp_path / "x.fa", b">a\nACGT\r\nACGT\nAC\n")
    with fails(DataError):
        Reference(path)
    prepare_reference(path, tmp_path / "y.fa.gz")
    assert records(tmp_path / "y.fa.gz") == {"a": "ACGTACGTAC"}
