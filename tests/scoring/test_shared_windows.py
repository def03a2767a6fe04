"""Bins that share windows, against each bin's own bases."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.splits import window_start
from bigbird_dna.model.batching import centered_bins, middle_bins, whole_bins
from bigbird_dna.model.chromatin import share_windows
from bigbird_dna.scoring.region_scores import predict_regions
from bigbird_dna.scoring.regions import Region

SIZE, WINDOW = 20, 140  # seven bins


def bases(sequences: Sequence[str], count: int) -> np.ndarray:
    """What a predictor of `count` bins would give that counts A and C in each: (W, K, 2)."""
    starts = centered_bins(WINDOW, SIZE, count)
    texts = [[sequence[start : start + SIZE] for start in starts] for sequence in sequences]
    counts = [[[text.count("A"), text.count("C")] for text in row] for row in texts]
    return np.array(counts, np.float32) / SIZE


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    path = tmp_path_factory.mktemp("reference") / "genome.fa.gz"
    rng = np.random.default_rng(0)
    first, second = ("".join(rng.choice(list("ACGT"), length)) for length in (3000, 1210))
    write_fasta(path, [("a", first), ("b", second[:700] + "N" * 200 + second[900:])])
    return Reference(path)


bins = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1190)), min_size=1, max_size=40)


@given(bins, st.sampled_from([1, 3, 5, 7]))
def test_every_bin_gets_its_own_prediction(
    reference: Reference, chosen: list[tuple[str, int]], count: int
) -> None:
    contigs, starts = [contig for contig, _ in chosen], np.array([start for _, start in chosen])
    shared = share_windows(contigs, starts, SIZE, WINDOW, count)
    assert len(set(shared.windows)) == len(shared.windows) <= len(set(chosen))
    found = np.full((len(chosen), 2), np.nan)
    for numbers, values in shared.predicted(reference, lambda texts: bases(texts, count)):
        assert np.isnan(found[numbers]).all()
        found[numbers] = values
    for (contig, start), row in zip(chosen, found, strict=True):
        text = reference.fetch(Interval(contig, start, start + SIZE))
        np.testing.assert_allclose(row, [text.count("A") / SIZE, text.count("C") / SIZE])
    # The window of a bin is the same whichever others are asked for.
    alone = share_windows(contigs[:1], starts[:1], SIZE, WINDOW, count)
    assert alone.windows[0] == shared.windows[shared.owner[0]]
    assert alone.place[0] == shared.place[0]
    if count == 1:
        middle = window_start(starts, SIZE, WINDOW)
        assert [shared.windows[owner].start for owner in shared.owner] == middle.tolist()


def test_side_by_side_bins_need_few_windows() -> None:
    starts = np.arange(0, 1400, SIZE)
    assert len(share_windows(["a"] * 70, starts, SIZE, WINDOW, 7).windows) == 10
    assert len(share_windows(["a"] * 70, starts + 3, SIZE, WINDOW, 7).windows) == 10
    assert len(share_windows(["a"] * 70, starts, SIZE, WINDOW, 1).windows) == 70


@pytest.mark.parametrize("summary", ["max", "mean"])
@pytest.mark.parametrize("at_once", [1, 5, 1000])
def test_regions_that_share_windows(reference: Reference, summary: str, at_once: int) -> None:
    regions = [
        Region("a", 40, 60, "bin"),
        Region("a", 0, 400, "many"),
        Region("b", 640, 960, "gap"),
        Region("a", 47, 60, "off the grid"),
        Region("b", 760, 780, "inside the gap"),
        Region("b", 1190, 1210, "at the end"),
    ]

    def run(some: Sequence[Region], count: int) -> list[tuple[str, list[float] | None, str]]:
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
            (region.name, None if values is None else values.tolist(), note) for region, values, note in found
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
    assert [middle_bins(8000, 200, part) for part in (0, 0.01, 0.25, 0.5, 1)] == [1, 1, 9, 19, 39]
    assert middle_bins(1000, 200, 1) == whole_bins(1000, 200) == 5
    assert middle_bins(2000, 200, 0.3) == 3
    for window in range(200, 3000, 100):
        for part in np.linspace(0, 1, 21):
            count = middle_bins(window, 200, part)
            assert count % 2 == 1 and (count == 1 or count * 200 <= part * window + 1e-6)
            assert count + 2 > part * window / 200 - 1e-6 or count == 1
