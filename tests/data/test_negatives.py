"""Negatives elsewhere on the genome and upstream of promoters: places, splits, and what they keep away
from."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.config import PromoterWindowsConfig, load_config
from bigbird_dna.data.negatives import (
    FURTHEST,
    NegativeRegions,
    PromoterGenome,
    draw_candidates,
    find_upstream,
    gc_fraction,
    match_gc,
)
from bigbird_dna.data.predictions import EXTRA_NEGATIVES, POSITIVE
from bigbird_dna.data.promoter_windows import prepare_windows, read_windows, window_sequences
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, window_around
from tests.golden.messages import message
from tests.tiny_run import MOTIF, UPSTREAM

SIZE = 20


def candidates(sequence: str, positions: np.ndarray, count: int) -> NegativeRegions:
    config = PromoterWindowsConfig(upstream=30, downstream=10, min_tss_distance=25)
    segment, rng = Interval("c", 0, len(sequence)), np.random.default_rng(2)
    return draw_candidates(segment, sequence, positions, None, config, count, rng)


def test_candidates_keep_away_from_n_and_from_every_tss() -> None:
    sequence = "ACGT" * 100 + "N" * 50 + "GGCC" * 100
    positions = np.array([520, 540])
    windows, gc = candidates(sequence, positions, 5000)
    assert {window.strand for window in windows} == {"+", "-"}
    taken = set()
    for window, fraction in zip(windows, gc.tolist(), strict=True):
        text = sequence[window.start : window.end]
        assert len(text) == 40 and "N" not in text and fraction == pytest.approx(gc_fraction(text))
        tss = window.start + 30 if window.strand == "+" else window.end - 31
        assert np.abs(positions - tss).min() >= 25
        taken.add(tss)
    assert {495, 565} <= taken  # as near as allowed


def test_no_candidates_where_there_is_no_room() -> None:
    for sequence, count in (("ACGT", 10), ("ACGT" * 50, 0)):
        offer = candidates(sequence, np.array([1]), count)
        assert offer.windows == [] and len(offer.gc) == 0


@given(st.lists(st.floats(0, 1), max_size=40), st.lists(st.floats(0, 1), max_size=60), st.integers(0, 2**32))
def test_matching_uses_no_window_twice(wanted: list[float], offered: list[float], seed: int) -> None:
    chosen = match_gc(np.array(wanted), np.array(offered), np.random.default_rng(seed))
    used = chosen[chosen >= 0]
    assert len(set(used.tolist())) == len(used) == min(len(wanted), len(offered))


def test_genomic_negatives_match_gc_and_look_away_from_promoters(tiny_config: Path) -> None:
    results = Path(load_config(tiny_config).results)
    reference = Reference(results / "genome/reference.fa.gz")
    data = read_windows(results / "promoters", "genomic")
    sequences = np.array(window_sequences(reference, data.rows, 1))
    gc = np.array([gc_fraction(sequence) for sequence in sequences])
    assert abs(gc[data.labels == 1].mean() - gc[data.labels == 0].mean()) < 0.02
    assert MOTIF not in {s[UPSTREAM - len(MOTIF) : UPSTREAM] for s in sequences[data.labels == 0]}


def test_extra_negatives_are_others(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that repeated one are others now, and no other window is."""
    config = load_config(tiny_config, ["promoters.calibration.negatives=12"])
    window = ["contig", "start", "end", "strand"]

    def made(name: str) -> tuple[pd.DataFrame, np.ndarray]:
        prepare_windows(config, config.paths.reference, config.paths.promoters, tmp_path / name)
        rows = pd.read_parquet(tmp_path / name / "windows.parquet").query("negative_set == 'genomic'")
        more = rows["split"].isin(EXTRA_NEGATIVES.values()).to_numpy()
        others = {*rows[~more][window].itertuples(index=False, name=None)}
        again = [row in others for row in rows[more][window].itertuples(index=False, name=None)]
        return rows[more].reset_index(drop=True), np.array(again)

    found, again = made("found")
    assert not again.any() and not found.duplicated(window).any()
    find = PromoterGenome.find
    monkeypatch.setattr(PromoterGenome, "find", lambda self, *arguments, **_: find(self, *arguments))
    before, repeated = made("before")
    assert repeated.any() and len(before) == len(found)
    changed = (found[window] != before[window]).any(axis=1).to_numpy()
    assert (changed == repeated).all()
    genome = Reference(config.paths.reference)
    gc = [
        [gc_fraction(text) for text in window_sequences(genome, rows[repeated], config.seed)]
        for rows in (found, before)
    ]
    assert np.abs(np.subtract(*gc)).max() < 0.1


def overlaps(one: Interval, other: Interval) -> bool:
    return one.contig == other.contig and one.start < other.end and other.start < one.end


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 600), st.sampled_from("+-")), max_size=12),
    st.integers(0, 300),
)
def test_a_negative_is_the_nearest_free_window(places: list[tuple[str, int, str]], left_of: int) -> None:
    promoters = [Interval(contig, start, start + SIZE, strand) for contig, start, strand in places]
    owners = [one for one in promoters if one.contig == "a"] * 2

    def usable(owner: Interval, negative: Interval) -> bool:
        return negative.start >= 0 and negative.end <= 700 and not negative.start < left_of < negative.end

    found = find_upstream(owners, promoters, usable)
    taken = list(promoters)
    for owner, negative in zip(owners, found, strict=True):
        # By trying all places, the nearest first.
        ahead = range(owner.start - SIZE, -1, -1) if owner.strand == "+" else range(owner.end, 700)
        free = (
            window
            for start in ahead
            if not any(overlaps(window := Interval("a", start, start + SIZE, owner.strand), t) for t in taken)
        )
        if negative is None:
            continue
        assert negative.strand == owner.strand and len(negative) == SIZE and usable(owner, negative)
        assert not any(overlaps(negative, other) for other in taken)
        nearest = next(free)
        assert usable(owner, nearest) is False or negative == nearest
        taken.append(negative)


def test_a_promoter_far_from_any_free_window_has_none() -> None:
    owner = Interval("a", 2 * FURTHEST, 2 * FURTHEST + SIZE, "+")
    crowd = [
        Interval("a", start, start + SIZE, "-") for start in range(FURTHEST - 3 * SIZE, owner.start, SIZE)
    ]
    assert find_upstream([owner], [owner, *crowd], lambda *_: True) == [None]
    (found,) = find_upstream([owner], [owner, *crowd[SIZE:]], lambda *_: True)
    assert found is not None and owner.start - found.end <= FURTHEST


@pytest.mark.parametrize("valid", ["two", "two:1-6,000"])
def test_upstream_windows_of_a_data_set(tiny_config: Path, tmp_path: Path, valid: str) -> None:
    changes = ["promoters.windows.negative_sets=[upstream]", f"genome.valid=['{valid}']"]
    config = load_config(tiny_config, changes)
    promoters = config.paths.promoters
    prepare_windows(config, config.paths.reference, promoters, tmp_path / "windows")
    upstream = read_windows(tmp_path / "windows", "upstream").rows
    sides = config.promoters.windows.sides
    around = [window_around(locus, *sides) for locus in read_loci(promoters)]
    rows = upstream[upstream["negative_set"] == "upstream"]
    assert set(rows["split"]) == {"train", "valid", "test"} and len(rows) > 20
    assert not rows.duplicated(["contig", "start"]).any()
    own = upstream[upstream["negative_set"] == POSITIVE].set_index("pair")
    for row in rows.itertuples():
        window = Interval(row.contig, row.start, row.end, row.strand)
        assert not any(overlaps(window, promoter) for promoter in around)
        pair = own.loc[row.pair]
        assert (row.contig, row.strand, row.split) == (pair["contig"], pair["strand"], pair["split"])
        assert row.end <= pair["start"] if row.strand == "+" else row.start >= pair["end"]
        if valid != "two" and row.contig == "two":
            assert row.start >= 6000 if row.split == "train" else row.end <= 6000


def test_every_promoter_has_one_negative_before_any_has_two(tiny_config: Path, tmp_path: Path) -> None:
    few, many = (
        load_config(
            tiny_config,
            ["promoters.windows.negative_sets=[upstream]", f"promoters.windows.negatives={number}"],
        )
        for number in (1, 4)
    )
    found = []
    for config in (few, many):
        home = tmp_path / str(config.promoters.windows.negatives)
        prepare_windows(config, config.paths.reference, config.paths.promoters, home)
        rows = read_windows(home, "upstream").rows.query("negative_set == 'upstream'")
        found.append(set(rows.drop_duplicates("pair")[["pair", "start"]].itertuples(index=False, name=None)))
    assert found[0] == found[1]


def test_promoters_without_room_stay(
    tiny_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = ["promoters.windows.negative_sets=[upstream]", "promoters.windows.negatives=60"]
    config = load_config(tiny_config, changes)
    prepare_windows(config, config.paths.reference, config.paths.promoters, tmp_path)
    missing = json.loads((tmp_path / "windows.json").read_text())["upstream negatives not found"]
    rows = read_windows(tmp_path, "upstream").rows
    promoters = rows[rows["negative_set"] == POSITIVE]
    wanted = int(promoters["split"].map({"train": 60, "valid": 1, "test": 1}).sum())
    assert missing == wanted - (len(rows) - len(promoters)) > 0
    bare = set(promoters["pair"]) - set(rows[rows["negative_set"] == "upstream"]["pair"])
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    message(warning.partition("  ")[2], f"{missing:,} of {wanted:,}", f"{len(bare):,} of {len(promoters):,}")
