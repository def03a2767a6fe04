"""Writers of results: the bytes of every format, and outputs that stay whole if a command fails."""

import gzip
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pybigtools
import pytest

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.scoring import writers
from bigbird_dna.scoring.writers import (
    SCORE_FORMATS,
    choose_output,
    open_text,
    open_writer,
)
from tests.golden.messages import fails

COLUMNS = {
    "contig": "s",
    "start": "d",
    "end": "d",
    "name": "s",
    "score": ".6f",
    "strand": "s",
    "note": "s",
    "tss": "d",
}
ROWS: list[tuple[Any, ...]] = [
    ("c", 0, 6, "c:0-6(+)", 0.25, "+", "", 4),
    ("c", 0, 6, "c:0-6(-)", 0.9999996, "-", "", 1),
    ("c", 2, 8, "c:2-8(+)", None, "+", "n_fraction=0.5", 6),
    ("d", 0, 3, "d:0-3(-)", 0.0, "-", "padded=3", None),
]
ORIGIN = {"bigbird-dna": "1", "model": "ab"}
HEAD = "## bigbird-dna 1\n## model ab\n"
SIGNAL = [("c", 0, 2, 1.0), ("c", 3, 6, 0.25), ("d", 1, 3, 0.5)]
LENGTHS = {"c": 8, "d": 3}
TEXTS = {
    "tsv": (
        "contig\tstart\tend\tname\tscore\tstrand\tnote\ttss\n"
        "c\t0\t6\tc:0-6(+)\t0.250000\t+\t.\t4\n"
        "c\t0\t6\tc:0-6(-)\t1.000000\t-\t.\t1\n"
        "c\t2\t8\tc:2-8(+)\tNA\t+\tn_fraction=0.5\t6\n"
        "d\t0\t3\td:0-3(-)\t0.000000\t-\tpadded=3\tNA\n"
    ),
    "bed": (
        "#contig\tstart\tend\tname\tscore\tstrand\tprobability\tnote\ttss\n"
        "c\t0\t6\tc:0-6(+)\t250\t+\t0.250000\t.\t4\n"
        "c\t0\t6\tc:0-6(-)\t1000\t-\t1.000000\t.\t1\n"
        "c\t2\t8\tc:2-8(+)\t0\t+\tNA\tn_fraction=0.5\t6\n"
        "d\t0\t3\td:0-3(-)\t0\t-\t0.000000\tpadded=3\tNA\n"
    ),
    "bedgraph": "".join(f"{c}\t{s}\t{e}\t{v:.6f}\n" for c, s, e, v in SIGNAL),
}


def write(path: Path | None, format: str, rows: list[Any], **options: Any) -> None:
    with open_writer(
        path, format, ORIGIN, COLUMNS, mark="", contigs=LENGTHS, **options
    ) as write_rows:
        for row in rows:
            write_rows([row])


@pytest.mark.parametrize("format", TEXTS)
def test_text(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], format: str
) -> None:
    rows = SIGNAL if format == "bedgraph" else ROWS
    write(tmp_path / "x", format, rows)
    assert (tmp_path / "x").read_text() == HEAD + TEXTS[format]
    write(tmp_path / "x.gz", format, rows)
    text = gzip.decompress((tmp_path / "x.gz").read_bytes()).decode()
    assert text == HEAD + TEXTS[format]
    write(None, format, rows)
    assert capfdbinary.readouterr().out.decode() == HEAD + TEXTS[format]
    write(tmp_path / "none", format, [])
    expected = HEAD + TEXTS[format].split("\n")[0] + "\n"
    assert (tmp_path / "none").read_text() == (
        HEAD if format == "bedgraph" else expected
    )


def test_bigwig_reads_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "x.bw", "bigwig", SIGNAL)
    with pybigtools.open(str(tmp_path / "x.bw")) as stored:
        assert stored.chroms() == LENGTHS
        read = [(c, *record) for c in LENGTHS for record in stored.records(c)]
    assert read == SIGNAL
    assert capfd.readouterr() == ("", "")


def test_parquet_reads_back_in_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "_ROWS_AT_ONCE", 3)
    write(tmp_path / "x.parquet", "parquet", ROWS)
    stored = pq.ParquetFile(tmp_path / "x.parquet")
    assert stored.num_row_groups == 2
    assert stored.schema_arrow.metadata == {b"bigbird-dna": b"1", b"model": b"ab"}
    table = stored.read().to_pylist()
    assert list(table[0]) == list(COLUMNS)
    for row, found in zip(ROWS, table, strict=True):
        assert [*found.values()] == [
            pytest.approx(cell) if isinstance(cell, float) else cell
            for cell in (*row[:6], row[6] or None, row[7])
        ]


# What fails leaves the former file, and a stream what was sent


@pytest.mark.parametrize("format", ["tsv", "bed", "bedgraph", "bigwig", "parquet"])
def test_an_error_leaves_the_former_file(tmp_path: Path, format: str) -> None:
    path = tmp_path / "x"
    path.write_text("former")
    rows = SIGNAL if format in ("bedgraph", "bigwig") else ROWS
    with fails(DataError), open_writer(path, format, ORIGIN, COLUMNS) as write_rows:
        write_rows(rows)
        raise DataError("line 7")
    assert path.read_text() == "former" and [*tmp_path.iterdir()] == [path]


def test_a_stream_has_each_batch_at_once_and_nothing_before(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    with pytest.raises(ZeroDivisionError), open_writer(None, "tsv", ORIGIN, COLUMNS):
        raise ZeroDivisionError
    assert capfdbinary.readouterr().out == b""
    with open_writer(None, "tsv", ORIGIN, COLUMNS) as write_rows:
        for row in ROWS:
            write_rows([row])
            assert capfdbinary.readouterr().out.endswith(f"{row[7] or 'NA'}\n".encode())


def test_a_device_that_is_full_is_named() -> None:
    with fails(DataError, "/dev/full"), open_text(Path("/dev/full")) as stream:
        stream.write("x\n")


def test_outputs_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "x.tsv"
    source.write_text("input")
    assert choose_output(tmp_path / "y.bw", None, SCORE_FORMATS, [source]) == (
        tmp_path / "y.bw",
        "bigwig",
    )
    assert choose_output("-", None, SCORE_FORMATS, [source]) == (None, "tsv")
    for output, format in (
        (None, "bigwig"),
        (tmp_path / "y.bw.gz", None),
        (tmp_path / "y.wig", None),
        (tmp_path / "y", "wig"),
        (tmp_path / "no" / "y", None),
        (tmp_path, None),
        (source, None),
    ):
        with fails(UsageError):
            choose_output(output, format, SCORE_FORMATS, [source])


# Files of pybigtools and pyarrow, whose errors may be silent


def write_bigwig(path: Path, values: list[Any], contigs: dict[str, int]) -> None:
    with open_writer(path, "bigwig", ORIGIN, contigs=contigs) as write_rows:
        write_rows(values)


def test_the_limit_of_contigs_is_that_of_contigs_with_values(tmp_path: Path) -> None:
    contigs = {f"c{number:05}": 100 for number in range(70_000)}
    values = [(name, 5, 20, 0.25) for name in ("c00000", "c65535", "c65536", "c69999")]
    path = tmp_path / "x.bw"
    write_bigwig(path, values, contigs)
    with pybigtools.open(str(path)) as stored:
        assert stored.chroms() == {value[0]: 100 for value in values}
        assert [(name, *stored.records(name)) for name in stored.chroms()] == [
            (value[0], value[1:]) for value in values
        ]
    former = path.read_bytes()
    with fails(DataError, "65,535 contigs", "70,000"):
        write_bigwig(path, [(name, 0, 10, 0.5) for name in contigs], contigs)
    with fails(DataError, "score"):
        write_bigwig(path, [], contigs)
    assert path.read_bytes() == former and [*tmp_path.iterdir()] == [path]
