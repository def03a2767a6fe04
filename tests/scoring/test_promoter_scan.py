"""Scanning a FASTA against an oracle that slices whole strings, with predictors simple enough to follow."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.sequence import (
    Interval,
    centered_tiles,
    clean,
    reverse_complement,
    window_start,
)
from bigbird_dna.model.batching import centered_bins, middle_bins, whole_bins
from bigbird_dna.model.chromatin import share_windows
from bigbird_dna.scoring.regions import Region
from bigbird_dna.scoring.scan import (
    ScoredWindow,
    best_of_record,
    score_inputs,
    signal_spans,
    window_inputs,
)
from bigbird_dna.scoring.tracks import predict_regions


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


def scan(
    records: dict[str, str],
    *,
    window: int = 6,
    upstream: int = 4,
    stride: int = 2,
    predict: Any = toy,
    batch: int = 512,
    **options: Any,
) -> list[ScoredWindow]:
    sizes = {"upstream": upstream, "downstream": window - upstream, "stride": stride}
    with TemporaryDirectory() as directory:
        path = write(Path(directory, "x.fa"), records)
        inputs = window_inputs(path, records, **sizes, **options)
        return [row for rows in score_inputs(inputs, predict, batch) for row in rows]


def cells(row: ScoredWindow) -> tuple[Any, ...]:
    return (
        *(row.contig, row.start, row.end, row.strand),
        *(row.score, row.note, row.tss),
    )


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
        if len(sequence) < size:
            rows += [
                (name, 0, len(sequence), strand, None, "short", None)
                for strand in strands
            ]
            continue
        for start in centered_tiles(len(sequence), size, stride):
            piece = sequence[start : start + size]
            n_fraction = piece.count("N") / len(piece)
            note = f"n_fraction={n_fraction:.4g}" if n_fraction > max_n else ""
            for strand in strands:
                bases = [*range(start, start + size)]
                tss = (bases if strand == "+" else bases[::-1])[upstream]
                score = toy([piece if strand == "+" else reverse_complement(piece)])[0]
                rows.append(
                    (
                        *(name, start, start + size, strand),
                        *(None if note else float(score), note, tss),
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
        "strands": st.sampled_from(["+-", "+", "-"]).map(tuple),
        "batch": st.integers(1, 9),
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
    assert [cells(row) for row in rows] == expected(
        records, size, stride, max_n, strands, options["upstream"]
    )
    assert max(calls, default=0) <= options["batch"]


Span = tuple[str, int, int, float]


def spans(
    rows: list[ScoredWindow], lengths: dict[str, int], stride: int = 2, **options: Any
) -> list[Span]:
    """The signal of windows of several records."""
    return [
        span
        for name, record in groupby(rows, key=lambda row: row.contig)
        for span in signal_spans(name, lengths[name], record, stride, **options)
    ]


def test_signal_lies_where_the_model_expects_the_tss() -> None:
    # Windows 0-6 and 4-10: the TSS base is start + 4 on "+" (4, 8) and start + 1 on "-" (1, 5).
    rows = [
        ScoredWindow("c", 0, 6, "+", "", 4, 0.1),
        ScoredWindow("c", 0, 6, "-", "", 1, 0.2),
        ScoredWindow("c", 4, 10, "+", "", 8, 0.3),
        ScoredWindow("c", 4, 10, "-", "n_fraction=1", 5, None),
    ]
    forward = [row for row in rows if row.strand == "+"]
    assert spans(forward, {"c": 10}, stride=4, strands=("+",)) == [
        ("c", 2, 7, 0.1),
        ("c", 7, 10, 0.3),
    ]
    assert spans(rows, {"c": 10}, stride=4) == [
        ("c", 0, 3, 0.2),
        ("c", 3, 7, 0.1),
        ("c", 7, 10, 0.3),
    ]


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
        assert 0 <= piece[1] < piece[2] <= lengths[piece[0]]
        assert piece[0] != last[0] or piece[1] >= last[1], "spans overlap or go back"
        last = (piece[0], piece[2])
        values.update(
            {(piece[0], base): piece[3] for base in range(piece[1], piece[2])}
        )
    single = {
        strand: {
            (piece[0], base): piece[3]
            for piece in spans(
                [r for r in rows if r.strand == strand],
                lengths,
                strands=(strand,),
                stride=stride,
            )
            for base in range(piece[1], piece[2])
        }
        for strand in "+-"
    }
    for row in rows:
        if row.score is not None and row.note != "short":
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
            base: piece[3] for piece in pieces for base in range(piece[1], piece[2])
        }

    mirrored = track(reverse_complement(sequence))
    assert {length - 1 - base: score for base, score in mirrored.items()} == track(
        sequence
    )


def test_the_best_of_a_record_is_its_first_highest_score() -> None:
    scores = {"a": [None, 0.2, 0.7, 0.7, None], "b": [None, None], "c": [0.0]}
    found = [
        best_of_record(
            ScoredWindow(name, start, start + 6, "+", "", start + 4, score)
            for start, score in enumerate(own)
        )
        for name, own in scores.items()
    ]
    assert [cells(row) for row in found] == [
        ("a", 2, 8, "+", 0.7, "not_scored=2windows", 6),
        ("b", 0, 6, "+", None, "", 4),
        ("c", 0, 6, "+", 0.0, "", 4),
    ]


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
        model: Any = SimpleNamespace(
            settings=SimpleNamespace(window=WINDOW, bin=SIZE),
            tracks=range(bases(["A" * WINDOW], count).shape[2]),
            bins_together=lambda _: count,
            window_probabilities=lambda texts, **_: bases(texts, count),
        )
        found = predict_regions(
            model,
            some,
            reference,
            summary=summary,
            max_n=0.5,
            regions_at_once=at_once,
        )
        return [
            (region.name, None if values is None else values.tolist(), note)
            for batch in found
            for region, values, note in batch
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
