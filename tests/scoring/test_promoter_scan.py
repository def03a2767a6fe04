"""Scanning a FASTA against an oracle that slices whole strings, with predictors simple enough to follow."""

import errno
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pybigtools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import DataError
from bigbird_dna.genome.fasta import scan_fasta
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.sequence import (
    Interval,
    centered_tiles,
    clean,
    reverse_complement,
)
from bigbird_dna.genome.splits import window_start
from bigbird_dna.model.batching import centered_bins, middle_bins, whole_bins
from bigbird_dna.model.chromatin import share_windows
from bigbird_dna.scoring.formats import OutputHeader, write_bigwig
from bigbird_dna.scoring.promoters import WRITERS
from bigbird_dna.scoring.regions import Region
from bigbird_dna.scoring.scan import (
    ScoredWindow,
    SignalSpan,
    count_windows,
    scan_promoters,
    signal_spans,
)
from bigbird_dna.scoring.tracks import predict_regions
from tests.golden.messages import fails


def toy(sequences: Sequence[str]) -> np.ndarray:
    """A number from 0 to 1 that changes with every letter, its place, and the strand."""
    values = [
        sum(
            (index + 1) ** 2 * (ord(letter) % 7)
            for index, letter in enumerate(sequence)
        )
        % 9973
        for sequence in sequences
    ]
    return np.array(values, dtype=np.float32) / np.float32(9973)


def write(path: Path, records: dict[str, str], width: int = 7) -> Path:
    lines = []
    for name, sequence in records.items():
        lines.append(f">{name} described")
        lines += [
            sequence[start : start + width] for start in range(0, len(sequence), width)
        ]
    path.write_text("\n".join(lines) + "\n")
    return path


def scan(records: dict[str, str], **options: Any) -> list[ScoredWindow]:
    options = {
        "window": 6,
        "stride": 2,
        "upstream": 4,
        "predict": toy,
        "pad": True,
        **options,
    }
    with TemporaryDirectory() as directory:
        path = write(Path(directory, "x.fa"), records)
        return list(scan_promoters(path, scan_fasta(path), **options))


def expected(
    records: dict[str, str],
    size: int,
    stride: int,
    max_n: float,
    strands: Sequence[str],
    upstream: int = 4,
) -> list[tuple[Any, ...]]:
    """The rows, by slicing whole records; the TSS by its place in the sequence that the model reads."""
    rows: list[tuple[Any, ...]] = []
    for name, text in records.items():
        sequence = clean(text, name)
        short = len(sequence) < size
        for start in [0] if short else centered_tiles(len(sequence), size, stride):
            piece = sequence[start : start + size]
            notes = [f"padded={size - len(piece)}"] if short else []
            n_fraction = piece.count("N") / len(piece)
            if n_fraction > max_n:
                notes.append(f"n_fraction={n_fraction:.4g}")
            margin = "N" * ((size - len(piece)) // 2)
            for strand in strands:
                seen = margin + piece + margin
                places = (
                    [None] * len(margin)
                    + [*range(start, start + len(piece))]
                    + [None] * len(margin)
                )
                tss = (places if strand == "+" else places[::-1])[
                    upstream : upstream + 1
                ]
                score = toy([seen if strand == "+" else reverse_complement(seen)])[0]
                rows.append(
                    (
                        *(name, start, start + len(piece), strand),
                        *(
                            None if n_fraction > max_n else float(score),
                            ";".join(notes),
                        ),
                        *(tss or [None]),
                    )
                )
    return rows


def fasta_records(letters: str = "ACGTacgtNnRy") -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(
        st.sampled_from(["a", "chr1", "b|2", "é"]),
        st.text(letters, min_size=1, max_size=60),
        min_size=1,
        max_size=4,
    )


SCANS = st.fixed_dictionaries(
    {
        **{
            "window": st.integers(1, 25),
            "upstream": st.integers(0, 24),
            "stride": st.integers(1, 30),
            "max_n": st.sampled_from([0.0, 0.3, 1.0]),
        },
        **{
            "strands": st.sampled_from(["+-", "+", "-"]).map(tuple),
            "chunk_bases": st.integers(1, 40),
        },
        "batch_sequences": st.integers(1, 9),
    }
)
SIZES = st.fixed_dictionaries(
    {
        "upstream": st.integers(0, 9),
        "downstream": st.integers(1, 9),
        "stride": st.integers(1, 12),
    }
)


@settings(max_examples=120, deadline=None)
@given(records=fasta_records(), options=SCANS)
def test_scan_agrees_with_slicing(
    records: dict[str, str], options: dict[str, Any]
) -> None:
    options["upstream"] %= options["window"]
    calls = []

    def predict(sequences: Sequence[str]) -> np.ndarray:
        calls.append(len(sequences))
        return toy(sequences)

    rows = scan(records, predict=predict, **options)
    size, stride, max_n, strands = (
        options[name] for name in ("window", "stride", "max_n", "strands")
    )
    assert [tuple(row) for row in rows] == expected(
        records, size, stride, max_n, strands, options["upstream"]
    )
    assert len({row.name for row in rows}) == len(rows)
    assert max(calls, default=0) <= max(
        options["batch_sequences"] + len(strands) - 1, len(strands)
    )
    lengths = {name: len(sequence) for name, sequence in records.items()}
    assert len(rows) == len(strands) * count_windows(
        lengths, window=size, stride=stride
    )


@pytest.mark.parametrize("kept_bases", [1, 1 << 24])
def test_a_window_that_comes_again_is_not_predicted_again(kept_bases: int) -> None:
    rng = np.random.default_rng(0)
    records = {
        f"r{number}": "".join(rng.choice(list("ACGT"), 3)) for number in range(2000)
    }
    records["full"] = "ACGTTGCA" * 20
    seen: list[str] = []

    def predict(sequences: Sequence[str]) -> np.ndarray:
        assert len(set(sequences)) == len(sequences)
        seen.extend(sequences)
        return toy(sequences)

    rows = scan(
        records,
        window=8,
        stride=8,
        predict=predict,
        batch_sequences=100,
        kept_bases=kept_bases,
    )
    assert [tuple(row) for row in rows] == expected(records, 8, 8, 0.25, "+-")
    # 64 records differ, and so do the windows of `full` on both strands.
    assert (len(seen) <= 66) == (kept_bases > 1)


@pytest.mark.parametrize("contigs", [{"other": 12}, {"c": 13}])
def test_a_file_that_changed_since_its_scan_is_refused(
    tmp_path: Path, contigs: dict[str, int]
) -> None:
    path = write(tmp_path / "x.fa", {"c": "ACGTACGTACGT"})
    with fails(DataError):
        list(
            scan_promoters(path, contigs, window=13, stride=1, upstream=9, predict=toy)
        )


@pytest.mark.parametrize("wrong", [{"window": 0}, {"stride": 0}, {"max_n": 1.5}])
def test_arguments_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with fails(ValueError):
        scan({"c": "ACGT"}, **wrong)


def spans(
    rows: list[ScoredWindow], lengths: dict[str, int], **options: Any
) -> list[SignalSpan]:
    return list(signal_spans(rows, lengths, **{"stride": 2, **options}))


def test_signal_lies_where_the_model_expects_the_tss() -> None:
    # Windows 0-6 and 4-10: the TSS base is start + 4 on "+" (4, 8) and start + 1 on "-" (1, 5).
    rows = [
        ScoredWindow("c", 0, 6, "+", 0.1, "", 4),
        ScoredWindow("c", 0, 6, "-", 0.2, "", 1),
        ScoredWindow("c", 4, 10, "+", 0.3, "", 8),
        ScoredWindow("c", 4, 10, "-", None, "n_fraction=1", 5),
    ]
    forward = [row for row in rows if row.strand == "+"]
    assert spans(forward, {"c": 10}, stride=4, strands=("+",)) == [
        SignalSpan("c", 2, 7, 0.1),
        SignalSpan("c", 7, 10, 0.3),
    ]
    assert spans(rows, {"c": 10}, stride=4) == [
        SignalSpan("c", 0, 3, 0.2),
        SignalSpan("c", 3, 7, 0.1),
        SignalSpan("c", 7, 10, 0.3),
    ]


def test_signal_of_a_short_record_is_at_the_position_that_the_score_is_about() -> None:
    # The window begins one base before the record: base 5 of it is base 4 of the record, or, on "-", base 0.
    rows = scan({"c": "ACGTACGTAC"}, window=12, upstream=5)
    assert [row.tss for row in rows] == [4, 5]
    assert spans(rows[:1], {"c": 10}, strands=("+",)) == [
        SignalSpan("c", 3, 6, rows[0].score or 0)
    ]
    assert spans(scan({"c": "ACGTACGTAC"}, window=40, upstream=39), {"c": 10}) == []


@pytest.mark.parametrize(
    ("sequence", "shown"),
    [
        ("ACGTA", True),
        ("ACGT", False),
        ("ACGTN", False),
        ("ACGNTA", True),
        ("ACGNNA", False),
        ("A", False),
    ],
)
def test_what_lies_beyond_a_record_can_count_as_n(sequence: str, shown: bool) -> None:
    """A sixth of a window of 6 bp may be N, two sixths may not."""
    rows = scan({"c": sequence}, max_n=0.3, beyond_is_n=True)
    assert [row.score is not None for row in rows] == [shown] * 2
    missing = 6 - len(sequence)
    share = (missing + sequence.count("N")) / 6
    notes = ([f"padded={missing}"] if missing else []) + (
        [] if shown else [f"n_fraction={share:.4g}"]
    )
    assert [row.note for row in rows] == [";".join(notes)] * 2
    if shown:
        assert rows == scan({"c": sequence}, max_n=0.3)


@settings(max_examples=80, deadline=None)
@given(records=fasta_records("ACGTN"), options=SIZES)
def test_signal_is_a_function_that_covers_every_tss_position(
    records: dict[str, str], options: dict[str, int]
) -> None:
    lengths = {name: len(sequence) for name, sequence in records.items()}
    upstream, downstream, stride = (
        options[name] for name in ("upstream", "downstream", "stride")
    )
    rows = scan(
        records,
        window=upstream + downstream,
        upstream=upstream,
        stride=stride,
        max_n=0.3,
    )
    both = spans(rows, lengths, stride=stride)
    values: dict[tuple[str, int], float] = {}
    last = ("", 0)
    for piece in both:
        assert 0 <= piece.start < piece.end <= lengths[piece.contig]
        assert piece.contig != last[0] or piece.start >= last[1], (
            "spans overlap or go back"
        )
        last = (piece.contig, piece.end)
        values.update(
            {
                (piece.contig, base): piece.score
                for base in range(piece.start, piece.end)
            }
        )
    single = {
        strand: {
            (piece.contig, base): piece.score
            for piece in spans(
                [r for r in rows if r.strand == strand],
                lengths,
                strands=(strand,),
                stride=stride,
            )
            for base in range(piece.start, piece.end)
        }
        for strand in "+-"
    }
    for row in rows:
        if row.score is not None and not row.is_short:
            tss = row.start + (upstream if row.strand == "+" else downstream - 1)
            assert single[row.strand][row.contig, tss] == row.score
    everywhere = single["+"].keys() | single["-"].keys()
    assert values == {
        place: max(track[place] for track in single.values() if place in track)
        for place in everywhere
    }


@settings(max_examples=60, deadline=None)
@given(sequence=st.text("ACGT", min_size=1, max_size=30), options=SIZES)
def test_signal_of_the_reverse_complement_is_mirrored(
    sequence: str, options: dict[str, int]
) -> None:
    sequence += sequence  # an even length: no bound lies on the middle of a base
    length = len(sequence)
    upstream, downstream, stride = (
        options[name] for name in ("upstream", "downstream", "stride")
    )

    def track(text: str) -> dict[int, float]:
        rows = scan(
            {"c": text}, window=upstream + downstream, upstream=upstream, stride=stride
        )
        pieces = spans(rows, {"c": length}, stride=stride)
        return {
            base: piece.score
            for piece in pieces
            for base in range(piece.start, piece.end)
        }

    mirrored = track(reverse_complement(sequence))
    assert {length - 1 - base: score for base, score in mirrored.items()} == track(
        sequence
    )


ROWS = [
    ScoredWindow("c", 0, 6, "+", 0.25, "", 4),
    ScoredWindow("c", 0, 6, "-", 0.9999996, "", 1),
    ScoredWindow("c", 2, 8, "+", None, "n_fraction=0.5", 6),
    ScoredWindow("c", 2, 8, "-", None, "n_fraction=0.5", 3),
    ScoredWindow("d", 0, 3, "+", 0.5, "padded=3", 2),
    ScoredWindow("d", 0, 3, "-", 0.0, "padded=3", None),
]
INFO = OutputHeader(
    {"bigbird-dna": "1", "model": "ab"},
    {"c": 8, "d": 3},
    extra={"stride": 2, "strands": ["+", "-"], "places": None},
)
HEAD = "## bigbird-dna 1\n## model ab\n"


# "+" has its TSS bases at 4 and 6 of c, "-" at 1 and 3; the second window has no score.
SIGNAL = [("c", 0, 2, 1.0), ("c", 3, 6, 0.25), ("d", 1, 3, 0.5)]
TEXTS = {
    "tsv": (
        "contig\tstart\tend\tname\tscore\tstrand\tnote\ttss\n"
        "c\t0\t6\tc:0-6(+)\t0.250000\t+\t.\t4\n"
        "c\t0\t6\tc:0-6(-)\t1.000000\t-\t.\t1\n"
        "c\t2\t8\tc:2-8(+)\tNA\t+\tn_fraction=0.5\t6\n"
        "c\t2\t8\tc:2-8(-)\tNA\t-\tn_fraction=0.5\t3\n"
        "d\t0\t3\td:0-3(+)\t0.500000\t+\tpadded=3\t2\n"
        "d\t0\t3\td:0-3(-)\t0.000000\t-\tpadded=3\tNA\n"
    ),
    "bed": (
        "#contig\tstart\tend\tname\tscore\tstrand\tprobability\tnote\ttss\n"
        "c\t0\t6\tc:0-6(+)\t250\t+\t0.250000\t.\t4\n"
        "c\t0\t6\tc:0-6(-)\t1000\t-\t1.000000\t.\t1\n"
        "c\t2\t8\tc:2-8(+)\t0\t+\tNA\tn_fraction=0.5\t6\n"
        "c\t2\t8\tc:2-8(-)\t0\t-\tNA\tn_fraction=0.5\t3\n"
        "d\t0\t3\td:0-3(+)\t500\t+\t0.500000\tpadded=3\t2\n"
        "d\t0\t3\td:0-3(-)\t0\t-\t0.000000\tpadded=3\tNA\n"
    ),
    "bedgraph": "".join(f"{c}\t{s}\t{e}\t{v:.6f}\n" for c, s, e, v in SIGNAL),
}


@pytest.mark.parametrize("format", TEXTS)
def test_text(tmp_path: Path, format: str) -> None:
    WRITERS[format](tmp_path / "x", ROWS, INFO)
    assert (tmp_path / "x").read_text() == HEAD + TEXTS[format]


def test_bigwig_reads_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    WRITERS["bigwig"](tmp_path / "x.bw", ROWS, INFO)
    with pybigtools.open(str(tmp_path / "x.bw")) as stored:
        assert stored.chroms() == INFO.contigs
        read = [(c, *record) for c in INFO.contigs for record in stored.records(c)]
    assert read == SIGNAL
    assert capfd.readouterr() == ("", "")


def test_parquet_reads_back_in_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr("bigbird_dna.scoring.promoters.ROW_GROUP", 4)
    WRITERS["parquet"](tmp_path / "x.parquet", iter(ROWS), INFO)
    stored = pq.ParquetFile(tmp_path / "x.parquet")
    assert stored.num_row_groups == 2
    assert stored.schema_arrow.metadata == {b"bigbird-dna": b"1", b"model": b"ab"}
    table = stored.read().to_pylist()
    assert list(table[0]) == [
        "contig",
        "start",
        "end",
        "name",
        "score",
        "strand",
        "note",
        "tss",
    ]
    for (contig, start, end, strand, score, note, tss), found in zip(
        ROWS, table, strict=True
    ):
        name = f"{contig}:{start}-{end}({strand})"
        cells = [
            contig,
            start,
            end,
            name,
            pytest.approx(score),
            strand,
            note or None,
            tss,
        ]
        assert [*found.values()] == cells


# Disks with little room

VALUES = [("one", 10 * place, 10 * place + 10, place / 8) for place in range(300)]


class Usage(NamedTuple):
    """Of a disk."""

    free: int


@pytest.mark.parametrize("full", ["output", "temporary"])
def test_a_disk_with_little_room_is_told_of_before_anything_is_lost(
    full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk for temporary files pybigtools would end well, with a file that can't be read."""
    (tmp_path / "temporary").mkdir()
    (tmp_path / "output").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    path = tmp_path / "output/x.bw"
    with monkeypatch.context() as patch:
        patch.setattr(
            shutil,
            "disk_usage",
            lambda place: Usage(10_000 if place.name == full else 1 << 30),
        )
        with fails(OSError) as caught:
            write_bigwig(path, VALUES, {"one": 5000}, "window")
    assert caught.value.errno == errno.ENOSPC and not [*path.parent.iterdir()]
    write_bigwig(path, VALUES, {"one": 5000}, "window")
    assert [*pybigtools.open(str(path)).records("one")] == [
        value[1:] for value in VALUES
    ]


# bigWig files of many contigs


def test_contigs_without_values_are_not_in_the_bigwig(tmp_path: Path) -> None:
    """The limit of 65,535 is that of the contigs with values."""
    contigs = {f"c{number:05}": 100 for number in range(70_000)}
    values = [(name, 5, 20, 0.25) for name in ("c00000", "c65535", "c65536", "c69999")]
    write_bigwig(tmp_path / "x.bw", values, contigs, "window")
    with pybigtools.open(str(tmp_path / "x.bw")) as stored:
        assert stored.chroms() == {value[0]: 100 for value in values}
        assert [(name, *stored.records(name)) for name in stored.chroms()] == [
            (value[0], value[1:]) for value in values
        ]


def test_too_many_contigs_with_values_are_refused(tmp_path: Path) -> None:
    contigs = {f"c{number:05}": 100 for number in range(65_536)}
    path = tmp_path / "x.bw"
    path.write_text("former")
    with fails(DataError, "65,535 contigs", "65,536"):
        write_bigwig(path, ((name, 0, 10, 0.5) for name in contigs), contigs, "window")
    assert path.read_text() == "former" and [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("last", [("one", 20, 30, 0.5), ("two", 0, 10, 0.5)])
def test_a_bigwig_that_lacks_a_value_or_a_contig_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: tuple[str, int, int, float]
) -> None:
    real = pybigtools.open

    class Losing:
        """Opens files of pybigtools, and loses the last value of a written one."""

        def __init__(self, path: str) -> None:
            self.path = path

        def write(self, contigs: dict[str, int], values: Any) -> None:
            real(self.path, "w").write(contigs, iter([*values][:-1]))

    monkeypatch.setattr(
        pybigtools,
        "open",
        lambda path, mode="r": real(path) if mode == "r" else Losing(path),
    )
    with fails(OSError, "bigWig of 1 contigs and 10 bp, not"):
        write_bigwig(
            tmp_path / "x.bw",
            [("one", 0, 10, 0.5), last],
            {"one": 50, "two": 50},
            "window",
        )
    assert not [*tmp_path.iterdir()]


def test_a_parquet_file_that_lacks_a_row_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    write_table = pq.ParquetWriter.write_table
    monkeypatch.setattr(
        pq.ParquetWriter,
        "write_table",
        lambda self, table: write_table(self, table[:-1]),
    )
    with fails(OSError, f"Parquet file of {len(ROWS) - 1} rows, not {len(ROWS)}"):
        WRITERS["parquet"](tmp_path / "x.parquet", iter(ROWS), INFO)


# Bins that share windows, against each bin's own bases


SIZE, WINDOW = 20, 140  # seven bins


def bases(sequences: Sequence[str], count: int) -> np.ndarray:
    """What a predictor of `count` bins would give that counts A and C in each: (W, K, 2)."""
    starts = centered_bins(WINDOW, SIZE, count)
    texts = [
        [sequence[start : start + SIZE] for start in starts] for sequence in sequences
    ]
    counts = [[[text.count("A"), text.count("C")] for text in row] for row in texts]
    return np.array(counts, np.float32) / SIZE


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    path = tmp_path_factory.mktemp("reference") / "genome.fa.gz"
    rng = np.random.default_rng(0)
    first, second = (
        "".join(rng.choice(list("ACGT"), length)) for length in (3000, 1210)
    )
    write_fasta(path, [("a", first), ("b", second[:700] + "N" * 200 + second[900:])])
    return Reference(path)


bins = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1190)),
    min_size=1,
    max_size=40,
)


@given(bins, st.sampled_from([1, 3, 5, 7]))
def test_every_bin_gets_its_own_prediction(
    reference: Reference, chosen: list[tuple[str, int]], count: int
) -> None:
    contigs, starts = (
        [contig for contig, _ in chosen],
        np.array([start for _, start in chosen]),
    )
    shared = share_windows(contigs, starts, SIZE, WINDOW, count)
    assert len(set(shared.windows)) == len(shared.windows) <= len(set(chosen))
    found = np.full((len(chosen), 2), np.nan)
    for numbers, values in shared.predicted(
        reference, lambda texts: bases(texts, count)
    ):
        assert np.isnan(found[numbers]).all()
        found[numbers] = values
    for (contig, start), row in zip(chosen, found, strict=True):
        text = reference.fetch(Interval(contig, start, start + SIZE))
        np.testing.assert_allclose(
            row, [text.count("A") / SIZE, text.count("C") / SIZE]
        )
    # The window of a bin is the same whichever others are asked for.
    alone = share_windows(contigs[:1], starts[:1], SIZE, WINDOW, count)
    assert alone.windows[0] == shared.windows[shared.owner[0]]
    assert alone.place[0] == shared.place[0]
    if count == 1:
        middle = window_start(starts, SIZE, WINDOW)
        assert [
            shared.windows[owner].start for owner in shared.owner
        ] == middle.tolist()


def test_side_by_side_bins_need_few_windows() -> None:
    starts = np.arange(0, 1400, SIZE)
    assert len(share_windows(["a"] * 70, starts, SIZE, WINDOW, 7).windows) == 10
    assert len(share_windows(["a"] * 70, starts + 3, SIZE, WINDOW, 7).windows) == 10
    assert len(share_windows(["a"] * 70, starts, SIZE, WINDOW, 1).windows) == 70


@pytest.mark.parametrize("summary", ["max", "mean"])
@pytest.mark.parametrize("at_once", [1, 5, 1000])
def test_regions_that_share_windows(
    reference: Reference, summary: str, at_once: int
) -> None:
    regions = [
        Region("a", 40, 60, "bin"),
        Region("a", 0, 400, "many"),
        Region("b", 640, 960, "gap"),
        Region("a", 47, 60, "off the grid"),
        Region("b", 760, 780, "inside the gap"),
        Region("b", 1190, 1210, "at the end"),
    ]

    def run(
        some: Sequence[Region], count: int
    ) -> list[tuple[str, list[float] | None, str]]:
        found = predict_regions(
            some,
            reference,
            lambda texts: bases(texts, count),
            window=WINDOW,
            bin_size=SIZE,
            together=count,
            summary=summary,  # type: ignore[arg-type]
            max_n=0.5,
            bins_at_once=at_once,
        )
        return [
            (region.name, None if values is None else values.tolist(), note)
            for region, values, note in found
        ]

    rows = run(regions, 5)
    assert [name for name, _, _ in rows] == [region.name for region in regions]
    plain = run(regions, 1)
    # Without N about, a bin's bases are the same in whatever window.
    for shared, own in zip(rows[:2], plain[:2], strict=True):
        np.testing.assert_allclose(shared[1], own[1], rtol=1e-6)
    assert rows[4] == ("inside the gap", None, "too_many_n")
    assert rows[2][2].startswith("too_many_n=") and rows[5][2] == "contig_edge"
    # Each as it is alone.
    for region, row in zip(regions, rows, strict=True):
        assert run([region], 5) == [row]
    assert run(regions[::-1], 5) == rows[::-1]


def test_bins_of_the_middle() -> None:
    assert [middle_bins(8000, 200, part) for part in (0, 0.01, 0.25, 0.5, 1)] == [
        1,
        1,
        9,
        19,
        39,
    ]
    assert middle_bins(1000, 200, 1) == whole_bins(1000, 200) == 5
    assert middle_bins(2000, 200, 0.3) == 3
    for window in range(200, 3000, 100):
        for part in np.linspace(0, 1, 21):
            count = middle_bins(window, 200, part)
            assert count % 2 == 1 and (
                count == 1 or count * 200 <= part * window + 1e-6
            )
            assert count + 2 > part * window / 200 - 1e-6 or count == 1
