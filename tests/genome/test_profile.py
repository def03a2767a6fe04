"""Profiles of DNA: what the counts of a stream and their distance promise, and real genomes."""

import gzip
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bigbird_dna.genome.fasta import stream_fasta
from bigbird_dna.genome.profile import (
    AMOUNTS,
    MOST_BASES,
    SAMPLED_PARTS,
    K,
    KmerCounts,
    ProfileDifference,
    TrainingProfile,
    count_kmers,
    profile_distance,
    spaced_parts,
    training_profile,
)
from bigbird_dna.genome.sequence import Interval, reverse_complement
from bigbird_dna.model.directory import load
from bigbird_dna.model.model import training_profile_of
from tests.toys import random_dna

DNA = st.text("ACGTN", max_size=300)


def counted(*records: str) -> KmerCounts:
    return count_kmers(records)


def compared(
    profile: TrainingProfile, records: Iterable[str]
) -> ProfileDifference | None:
    return profile.compare(counted(*records))


def warns(profile: TrainingProfile, *records: str) -> bool:
    found = compared(profile, records)
    return found is not None and found.distance > found.limit


def uniform(length: int, gc: float = 0.5, seed: int = 1) -> str:
    shares = [(1 - gc) / 2, gc / 2, gc / 2, (1 - gc) / 2]
    return "".join(np.random.default_rng(seed).choice(list("ACGT"), length, p=shares))


@given(DNA, DNA)
def test_counts_are_of_both_strands(one: str, other: str) -> None:
    found, turned = (
        counted(one, other),
        counted(reverse_complement(other), reverse_complement(one)),
    )
    np.testing.assert_array_equal(found.counts, turned.counts)
    known = sum(
        "N" not in text[at : at + K]
        for text in (one, other)
        for at in range(len(text) - K + 1)
    )
    assert found.counts.sum() == known
    if known:
        assert profile_distance(found.counts, turned.counts) == 0


@given(st.lists(st.integers(0, 9), min_size=512, max_size=512), st.integers(1, 9))
def test_a_distance_is_symmetric_and_of_frequencies(
    values: list[int], factor: int
) -> None:
    one, other = np.array(values, float) + 0.1, np.arange(512.0)
    distance = profile_distance(one, other)
    assert 0 <= distance <= 1
    assert distance == pytest.approx(profile_distance(other, one))
    assert distance == pytest.approx(profile_distance(factor * one, other))


def test_only_the_start_of_a_long_input_is_counted() -> None:
    text = random_dna(MOST_BASES + 300_000, 1)
    parts = (text[start : start + 300_000] for start in range(0, len(text), 300_000))
    counts = count_kmers(parts).counts
    assert MOST_BASES - 100 < counts.sum() <= MOST_BASES
    assert counted(text).counts.sum() == MOST_BASES


def test_repeats_are_no_further_sequence() -> None:
    text = random_dna(30_000, 3)
    once, often = counted(text), counted(*[text] * 20)
    assert once.amount == pytest.approx(30_000, rel=0.05)
    assert often.amount == pytest.approx(once.amount, rel=0.01)
    variants = [text[:place] + "A" + text[place + 1 : 500] for place in range(500)]
    assert counted(*variants).amount < 1000


@given(st.lists(st.integers(1, 5000), max_size=20), st.integers(1000, 20_000))
def test_parts_are_inside_and_spaced(lengths: list[int], bases: int) -> None:
    intervals = [
        Interval(f"c{number}", 7, 7 + length) for number, length in enumerate(lengths)
    ]
    parts = spaced_parts(intervals, bases)
    if sum(lengths) <= bases:
        assert parts == intervals
        return
    assert len(parts) == SAMPLED_PARTS and sum(map(len, parts)) <= bases
    owners = {one.contig: one for one in intervals}
    for part in parts:
        assert (
            owners[part.contig].start
            <= part.start
            < part.end
            <= owners[part.contig].end
        )
    for before, after in pairwise(parts):
        assert before.contig != after.contig or before.end <= after.start


@pytest.fixture(scope="module")
def toy() -> TrainingProfile:
    found = training_profile(
        [random_dna(250_000, 1), random_dna(260_000, 2)],
        held_out=[random_dna(50_000, 3)],
    )
    assert found is not None
    return found


def test_random_sequence_is_like_its_own_kind_alone(toy: TrainingProfile) -> None:
    assert (
        toy.gc == pytest.approx(0.35, abs=0.005)
        and toy.kind == "sequences"
        and toy.name == ""
    )
    assert [limit.bases for limit in toy.limits] == [10_000, 20_000, 50_000]
    assert not any(
        warns(toy, random_dna(length, 40 + length))
        for length in (30_000, 60_000, 200_000)
    )
    assert warns(toy, uniform(30_000)) and warns(toy, uniform(100_000, 0.6))
    assert compared(toy, [uniform(AMOUNTS[0] // 2)]) is None


def test_groups_of_windows_are_like_the_training() -> None:
    """Windows of another composition among the training windows give no warning."""
    windows = [uniform(200, 0.7, seed) for seed in range(100)]
    texts = [
        text
        for seed, one in enumerate(windows)
        for text in (random_dna(4000, seed), one)
    ]
    alone, grouped = training_profile(texts), training_profile(texts, groups=[windows])
    assert alone is not None and grouped is not None
    others = [uniform(200, 0.7, seed) for seed in range(1000, 1200)]
    assert warns(alone, *others) and not warns(grouped, *others)


def test_a_profile_needs_ten_parts() -> None:
    assert training_profile([]) is None
    assert training_profile(["ACGT" * 20_000]) is None


def test_a_profile_is_stored_and_read(toy: TrainingProfile) -> None:
    stored = toy.model_dump(mode="json")
    assert TrainingProfile.model_validate(stored) == toy
    for key, value in {
        "frequencies": {"AAAAA": 1.0},
        "limits": stored["limits"][::-1],
        "gc": 2.0,
        "format": 2,
    }.items():
        with pytest.raises(ValidationError):
            TrainingProfile.model_validate(stored | {key: value})
    with pytest.raises(ValidationError):
        TrainingProfile.model_validate(
            stored | {"frequencies": dict.fromkeys(stored["frequencies"], 0.5)}
        )


# Real genomes against the profile of the bundled models


BUNDLED = ("yeast", "yeast-promoters", "yeast-promoters-window")
YEAST = "yeast/Saccharomyces_cerevisiae.R64-1-1.dna.toplevel.fa.gz"


@pytest.fixture(scope="module")
def bundled() -> TrainingProfile:
    found = [training_profile_of(load(name)) for name in BUNDLED]
    assert found[0] is not None and found[0] == found[1] == found[2]
    return found[0]


@pytest.fixture(scope="module")
def yeast(shared_data: Path) -> dict[str, str]:
    """Contigs of the yeast genome."""
    return {
        chunk.contig: chunk.sequence
        for chunk in stream_fasta(shared_data / YEAST, 1 << 24)
    }


@pytest.fixture(scope="module")
def human(shared_data: Path) -> str:
    (chunk,) = stream_fasta(shared_data / "hg19/chr22_1-22000000.fa.gz", 1 << 25)
    return chunk.sequence.replace("N", "")


def tiled(yeast: dict[str, str], size: int) -> Iterator[str]:
    for contig, text in yeast.items():
        if contig != "Mito":
            yield from (
                text[start : start + size]
                for start in range(0, len(text) - size + 1, size // 2)
            )


def test_yeast_is_like_yeast(bundled: TrainingProfile, yeast: dict[str, str]) -> None:
    """All contigs, the held-out ones XI, VII and XV too, and all segments of two sizes."""
    assert (bundled.assembly, bundled.species) == (
        "sacCer3",
        "Saccharomyces cerevisiae",
    )
    assert len(yeast) == 17
    assert [contig for contig, text in yeast.items() if warns(bundled, text)] == [
        "Mito"
    ]
    assert not warns(bundled, *yeast.values())
    for size, count in ((50_000, 458), (100_000, 216)):
        parts = [*tiled(yeast, size)]
        assert len(parts) == count
        assert sum(warns(bundled, part) for part in parts) == 0


def test_promoters_of_yeast_are_like_yeast(
    bundled: TrainingProfile, yeast: dict[str, str], shared_data: Path
) -> None:
    numbers = (
        "I",
        "II",
        "III",
        "IV",
        "V",
        "VI",
        "VII",
        "VIII",
        "IX",
        "X",
        "XI",
        "XII",
        "XIII",
        "XIV",
        "XV",
        "XVI",
    )
    names = {f"NC_00{1133 + number}": name for number, name in enumerate(numbers)}
    windows = []
    for line in (
        (shared_data / "yeast/Sc_EPDnew_002_sacCer3.sga").read_text().splitlines()
    ):
        contig, _, place, strand, *_ = line.split("\t")
        if name := names.get(contig.partition(".")[0]):
            before, after = (301, 99) if strand == "+" else (100, 300)
            windows.append(
                yeast[name][max(int(place) - before, 0) : int(place) + after]
            )
    assert len(windows) > 5000 and not warns(bundled, *windows)
    rng = np.random.default_rng(1)
    for count in (50, 125, 250):
        drawn = (rng.choice(len(windows), count, replace=False) for _ in range(40))
        assert not any(
            warns(bundled, *(windows[row] for row in rows)) for rows in drawn
        )


@pytest.mark.parametrize("gc", [0.5, 0.383])
@pytest.mark.parametrize("length", [100_000, 230_218, 1_500_000])
def test_a_random_chromosome_is_unlike_yeast(
    bundled: TrainingProfile, length: int, gc: float
) -> None:
    assert all(warns(bundled, uniform(length, gc, seed)) for seed in range(5))


def test_other_species_are_unlike_yeast(
    bundled: TrainingProfile, human: str, shared_data: Path
) -> None:
    assert warns(bundled, human)
    segments = [
        human[start : start + 50_000] for start in range(0, len(human), 50_000)
    ][:-1]
    found = [compared(bundled, [segment]) for segment in segments]
    assert all(one is None or one.distance > one.limit for one in found)
    assert sum(one is None for one in found) < 0.05 * len(
        found
    )  # satellites: little sequence, repeated
    for name in ("Ecoli_prom", "Ecoli_non_prom", "Mouse_tata", "Mouse_nonprom"):
        text = gzip.decompress(
            (shared_data / f"promoter_sets/{name}.fa.gz").read_bytes()
        ).decode()
        records = [
            part.partition("\n")[2].replace("\n", "").strip()
            for part in text.split(">")[1:]
        ]
        assert warns(bundled, *records)


def test_the_bundled_profile_is_that_of_the_genome(
    bundled: TrainingProfile, yeast: dict[str, str]
) -> None:
    held_out = {"XI", "VII", "XV", "Mito"}
    again = training_profile(
        [text for contig, text in yeast.items() if contig not in held_out],
        held_out=[yeast["XI"]],
        assembly="sacCer3",
        species="Saccharomyces cerevisiae",
    )
    assert again == bundled
