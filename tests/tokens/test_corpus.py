"""The sample that BPE is trained on."""

import hashlib
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, whole_contigs
from bigbird_dna.tokens.corpus import sample_sentences

SHORT = (40, 60)


@settings(deadline=None, max_examples=40)
@given(bases=st.integers(1, 12_000), seed=st.integers(0, 1000))
def test_the_bound_is_met_exactly(reference: Reference, bases: int, seed: int) -> None:
    contigs = {"a": 9000, "b": 6000}
    sentences = list(
        sample_sentences(reference, whole_contigs(contigs), bases, sentence_bases=SHORT, seed=seed)
    )
    # Of 15,000 bases 2,000 are N, in one run: the sentences at its ends may have some.
    assert sum(map(len, sentences)) == bases
    assert all(len(sentence) <= 60 for sentence in sentences)
    assert "".join(sentences).count("N") <= 2 * 30


def test_a_genome_below_the_bound_is_taken_whole(reference: Reference) -> None:
    sentences = list(sample_sentences(reference, whole_contigs({"a": 9000}), 10**9, sentence_bases=SHORT))
    assert "".join(sentences) == "".join(
        sample_sentences(reference, whole_contigs({"a": 9000}), 9000, sentence_bases=(9000, 9000))
    )
    assert all(40 <= len(sentence) <= 60 for sentence in sentences[:-1])


def test_the_sample_is_spread_over_the_contigs_and_does_not_overlap(
    make_reference: Callable[..., Reference],
) -> None:
    # Each base of a contig is told from the others by its letter, each place by its surroundings.
    reference = make_reference(a="A" * 60_000, c="C" * 30_000, g="G" * 30_000)
    text = "".join(
        sample_sentences(reference, whole_contigs(reference.contigs), 40_000, sentence_bases=SHORT)
    )
    assert len(text) == 40_000
    assert text.count("A") == pytest.approx(20_000, rel=0.15)
    assert text.count("C") == pytest.approx(10_000, rel=0.2)
    whole = "".join(
        sample_sentences(reference, whole_contigs(reference.contigs), 10**6, sentence_bases=SHORT)
    )
    assert (whole.count("A"), whole.count("C"), whole.count("G")) == (60_000, 30_000, 30_000)


def test_only_the_contigs_that_are_asked_for(make_reference: Callable[..., Reference]) -> None:
    reference = make_reference(a="A" * 5000, c="C" * 5000)
    assert set("".join(sample_sentences(reference, whole_contigs({"c": 5000}), 10**6))) == {"C"}


def test_deterministic_by_seed(reference: Reference) -> None:
    def sample(seed: int) -> list[str]:
        return list(
            sample_sentences(
                reference, whole_contigs(reference.contigs), 3000, sentence_bases=SHORT, seed=seed
            )
        )

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_share_of_n(make_reference: Callable[..., Reference]) -> None:
    reference = make_reference(a="AN" * 500, c="CNN" * 400)
    text = "".join(
        sample_sentences(reference, whole_contigs(reference.contigs), 10**6, sentence_bases=(30, 30))
    )
    assert set(text) == {"A", "N"}  # half is allowed, two thirds are not
    assert not list(sample_sentences(reference, whole_contigs({"c": 1200}), 100, sentence_bases=(30, 30)))
    assert not list(sample_sentences(reference, [], 100))


def test_only_the_stretches_that_are_asked_for(make_reference: Callable[..., Reference]) -> None:
    reference = make_reference(a="A" * 500 + "C" * 700 + "G" * 300 + "T" * 500)
    stretches = [Interval("a", 0, 500), Interval("a", 1200, 1500)]
    text = "".join(sample_sentences(reference, stretches, 10**6, sentence_bases=SHORT))
    assert (text.count("A"), text.count("G"), len(text)) == (500, 300, 800)
    some = "".join(sample_sentences(reference, stretches, 300, sentence_bases=SHORT))
    assert len(some) == 300 and {*some} == {"A", "G"}


def test_whole_contigs_have_the_sample_that_they_always_had() -> None:
    """Published tokenizers were trained on this: an earlier version gave this checksum."""
    places = SimpleNamespace(
        fetch=lambda interval: f"<{interval.contig}:{interval.start}-{interval.end}>".ljust(
            len(interval), "A"
        )
    )
    contigs = whole_contigs({"chrI": 30_000, "chrII": 9_000, "c": 40})
    sample = list(sample_sentences(places, contigs, 20_000, sentence_bases=(50, 100), seed=7))  # type: ignore[arg-type]
    found = hashlib.sha256(repr(sample).encode()).hexdigest()
    assert found == "ee4983f190d4963df14a15a7cf84a132de67da68e6fcc836193e59f52b653b91"
