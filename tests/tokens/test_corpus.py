"""Documents follow App. F.1, and so does the sample that BPE is trained on."""

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.tokens.corpus import (
    Document,
    DocumentPlan,
    Strands,
    iter_documents,
    sample_sentences,
)
from tests.toys import whole_contigs

SHORT = DocumentPlan(
    passes=2, max_start_offset=50, sentence_bases=(5, 10), sentences_per_document=(2, 3)
)


@st.composite
def plans(draw: st.DrawFn) -> DocumentPlan:
    shortest, fewest = draw(st.integers(1, 40)), draw(st.integers(1, 5))
    return DocumentPlan(
        passes=draw(st.integers(1, 3)),
        max_start_offset=draw(st.integers(0, 300)),
        sentence_bases=(shortest, shortest + draw(st.integers(0, 40))),
        sentences_per_document=(fewest, fewest + draw(st.integers(0, 4))),
    )


def sentences_of(document: Document) -> list[Interval]:
    """The sentences in contig coordinates, in reading order."""
    contig, first, last = (
        document.interval.contig,
        document.interval.start,
        document.interval.end,
    )
    edges = list(itertools.pairwise((0, *document.ends)))
    if document.reverse:
        return [Interval(contig, last - end, last - start) for start, end in edges]
    return [Interval(contig, first + start, first + end) for start, end in edges]


def passes_of(plan: DocumentPlan, seed: int, segment: Interval) -> list[list[Document]]:
    """The documents of each pass over one segment."""
    groups: list[list[Document]] = [[]]
    for document in iter_documents([segment], plan, seed):
        groups[-1].append(document)
        if document.reverse:
            is_last = document.interval.start == segment.start
        else:
            is_last = document.interval.end == segment.end
        if is_last:
            groups.append([])
    assert groups.pop() == []
    return groups


segments = st.builds(
    lambda start, length: Interval("a", start, start + length),
    st.just(0) | st.integers(1, 900),
    st.integers(1, 2000),
)


@settings(deadline=None)
@given(plans(), segments, st.integers(0, 2**40))
def test_every_pass_covers_the_segment_from_its_start_on(
    plan: DocumentPlan, segment: Interval, seed: int
) -> None:
    found = passes_of(plan, seed, segment)
    assert len(found) == plan.passes
    shortest, longest = plan.sentence_bases
    fewest, most = plan.sentences_per_document
    for documents in found:
        sentences = [
            sentence for document in documents for sentence in sentences_of(document)
        ]
        start = documents[0].interval.start
        assert (
            0
            <= start - segment.start
            <= min(plan.max_start_offset, max(0, len(segment) - longest))
        )
        for sentence in sentences:
            assert sentence.start == start
            start = sentence.end
        assert start == segment.end
        assert all(shortest <= len(sentence) <= longest for sentence in sentences[:-1])
        assert 1 <= len(sentences[-1]) <= longest
        assert all(fewest <= len(d.ends) <= most for d in documents[:-1])
        assert 1 <= len(documents[-1].ends) <= most
        for document in documents:
            assert document.interval.start == sentences_of(document)[0].start
            assert document.interval.end == sentences_of(document)[-1].end


@settings(deadline=None, max_examples=30)
@given(plans(), st.integers(0, 100))
def test_a_contig_does_not_depend_on_the_others(plan: DocumentPlan, seed: int) -> None:
    alone = list(iter_documents(whole_contigs({"b": 900}), plan, seed))
    among = list(
        iter_documents(whole_contigs({"a": 500, "b": 900, "c": 700}), plan, seed)
    )
    assert [document for document in among if document.interval.contig == "b"] == alone
    assert list(dict.fromkeys(document.interval.contig for document in among)) == [
        "a",
        "b",
        "c",
    ]


@settings(deadline=None, max_examples=30)
@given(plans(), segments, st.integers(0, 100))
def test_with_both_strands_every_second_pass_is_the_mirror_image_of_what_it_was(
    plan: DocumentPlan, segment: Interval, seed: int
) -> None:
    both, one = (
        passes_of(each, seed, segment) for each in (replace(plan, strands="both"), plan)
    )
    assert both[::2] == one[::2]
    for mirrored, plain in zip(both[1::2], one[1::2], strict=True):
        for document, before in zip(mirrored, plain, strict=True):
            assert document.reverse
            for there, here in zip(
                sentences_of(document), sentences_of(before), strict=True
            ):
                assert segment.end - there.end == here.start - segment.start
                assert len(there) == len(here)


@st.composite
def divisions(draw: st.DrawFn) -> tuple[list[Interval], list[Interval]]:
    """A contig's segments for training, and the regions between them."""
    edges = sorted(draw(st.sets(st.integers(1, 1500), min_size=1, max_size=6)))
    parts = [
        Interval("a", start, end)
        for start, end in itertools.pairwise([0, *edges, 1600])
    ]
    return (
        (parts[::2], parts[1::2]) if draw(st.booleans()) else (parts[1::2], parts[::2])
    )


@settings(deadline=None)
@given(plans(), divisions(), st.integers(0, 100), st.sampled_from(["forward", "both"]))
def test_no_sentence_reaches_into_a_held_out_region(
    plan: DocumentPlan,
    division: tuple[list[Interval], list[Interval]],
    seed: int,
    strands: Strands,
) -> None:
    segments, held_out = division
    drawn = list(iter_documents(segments, replace(plan, strands=strands), seed))
    read = [0] * 1600
    for document in drawn:
        whole = document.interval
        assert any(
            own.start <= whole.start and whole.end <= own.end for own in segments
        )
        for sentence in sentences_of(document):
            assert all(
                sentence.end <= other.start or other.end <= sentence.start
                for other in held_out
            )
            for base in range(sentence.start, sentence.end):
                read[base] += 1
    # Every pass reads each segment once, but for what lies before its start.
    reach = plan.max_start_offset + plan.sentence_bases[1]
    for own in segments:
        assert max(read[own.start : own.end]) <= plan.passes
        assert all(
            read[base] == plan.passes
            for base in range(own.start + reach, own.end - reach)
        )


def test_segments_of_one_contig_passes_seeds_and_contigs_differ() -> None:
    one, other = Interval("a", 100, 600), Interval("a", 700, 1200)
    plan = replace(SHORT, passes=1)
    drawn = [list(iter_documents([own], plan, 1)) for own in (one, other)]
    assert list(iter_documents([one, other], plan, 1)) == drawn[0] + drawn[1]
    lengths = [
        [len(sentence) for each in own for sentence in sentences_of(each)]
        for own in drawn
    ]
    assert lengths[0] != lengths[1]
    whole = Interval("a", 0, 500)
    first, second = passes_of(SHORT, 1, whole)
    assert first != second
    for unlike in (
        passes_of(SHORT, 2, whole),
        passes_of(SHORT, 1, Interval("b", 0, 500)),
    ):
        assert [document.ends for document in unlike[0]] != [
            each.ends for each in first
        ]


def test_ranges_include_their_ends_and_are_uniform() -> None:
    plan = DocumentPlan(
        passes=2000,
        max_start_offset=3,
        sentence_bases=(4, 6),
        sentences_per_document=(2, 3),
    )
    documents = list(iter_documents(whole_contigs({"a": 60}), plan, 0))
    starts = [documents[0].interval.start]
    lengths: list[int] = []
    sizes: list[int] = []
    for document, following in itertools.pairwise(documents):
        if document.interval.end == 60:
            starts.append(following.interval.start)
        else:
            lengths += map(len, sentences_of(document))
            sizes.append(len(document.ends))
    for values, expected in (
        (starts, {0, 1, 2, 3}),
        (lengths, {4, 5, 6}),
        (sizes, {2, 3}),
    ):
        assert set(values) == expected
        for value in expected:
            assert values.count(value) / len(values) == pytest.approx(
                1 / len(expected), abs=0.05
            )


def test_defaults_are_the_papers() -> None:
    documents = list(iter_documents(whole_contigs({"a": 3_000_000}), DocumentPlan(), 0))
    lengths = [
        len(document.interval)
        for document in documents
        if document.interval.end < 3_000_000
    ]
    assert min(lengths) >= 25_000 and max(lengths) <= 100_000
    expected = 10 * 3_000_000 / (75 * 750)
    assert len(documents) == pytest.approx(expected, rel=0.1)


def test_whole_contigs_have_the_documents_and_the_sample_that_they_always_had() -> None:
    """Published models were trained on these."""
    contigs = whole_contigs({"chrI": 30_000, "chrII": 9_000, "c": 40})
    plan = DocumentPlan(3, 500, (50, 100), (5, 10), "both")
    lengths = {contig.contig: contig.end for contig in contigs}
    drawn = []
    for document in iter_documents(contigs, plan, 7):
        interval, length = document.interval, None
        contig, start = interval.contig, interval.start
        if document.reverse:
            length = lengths[contig]
            start = length - interval.end
        ends = tuple(start + end for end in document.ends)
        drawn.append((contig, start, ends, length))
    found = hashlib.sha256(repr(drawn).encode()).hexdigest()
    assert found == "b1b1feb7d1452a1b823c1716b7ea42c1e703896aa02b31fa29b703019b84f15b"
    places: Any = SimpleNamespace(
        fetch=lambda one: f"<{one.contig}:{one.start}-{one.end}>".ljust(len(one), "A")
    )
    found = hashlib.sha256(
        repr(sample(places, contigs, 20_000, (50, 100), 7)).encode()
    ).hexdigest()
    assert found == "ee4983f190d4963df14a15a7cf84a132de67da68e6fcc836193e59f52b653b91"


# The sample


def sample(
    reference: Reference,
    segments: Sequence[Interval] | None = None,
    bases: int = 10**6,
    lengths: tuple[int, int] = (40, 60),
    seed: int = 0,
) -> list[str]:
    """Sentences of some segments, or of all contigs."""
    segments = whole_contigs(reference.contigs) if segments is None else segments
    return list(
        sample_sentences(reference, segments, bases, sentence_bases=lengths, seed=seed)
    )


@settings(deadline=None, max_examples=40)
@given(bases=st.integers(1, 12_000), seed=st.integers(0, 1000))
def test_the_bound_is_met_exactly(reference: Reference, bases: int, seed: int) -> None:
    sentences = sample(
        reference, whole_contigs({"a": 9000, "b": 6000}), bases, seed=seed
    )
    # Of 15,000 bases 2,000 are N, in one run: the sentences at its ends may have some.
    assert sum(map(len, sentences)) == bases
    assert all(len(sentence) <= 60 for sentence in sentences)
    assert "".join(sentences).count("N") <= 2 * 30
    assert sentences == sample(
        reference, whole_contigs({"a": 9000, "b": 6000}), bases, seed=seed
    )


def test_a_genome_below_the_bound_is_taken_whole(reference: Reference) -> None:
    contigs = whole_contigs({"a": 9000})
    sentences = sample(reference, contigs)
    assert "".join(sentences) == "".join(sample(reference, contigs, 9000, (9000, 9000)))
    assert all(40 <= len(sentence) <= 60 for sentence in sentences[:-1])
    assert sample(reference, contigs, 3000, seed=1) != sample(
        reference, contigs, 3000, seed=2
    )


def test_the_sample_is_spread_over_the_contigs_and_does_not_overlap(
    make_reference: Callable[..., Reference],
) -> None:
    # Each base of a contig is told from the others by its letter, each place by its surroundings.
    reference = make_reference(a="A" * 60_000, c="C" * 30_000, g="G" * 30_000)
    text = "".join(sample(reference, bases=40_000))
    assert len(text) == 40_000
    assert text.count("A") == pytest.approx(20_000, rel=0.15)
    assert text.count("C") == pytest.approx(10_000, rel=0.2)
    whole = "".join(sample(reference))
    assert (whole.count("A"), whole.count("C"), whole.count("G")) == (
        60_000,
        30_000,
        30_000,
    )


def test_sentences_of_n_are_left_out(make_reference: Callable[..., Reference]) -> None:
    reference = make_reference(a="AN" * 500, c="CNN" * 400)
    text = "".join(sample(reference, lengths=(30, 30)))
    assert set(text) == {"A", "N"}  # half is allowed, two thirds are not
    assert not sample(reference, whole_contigs({"c": 1200}), 100, (30, 30))
    assert not sample(reference, [], 100)
    # Only the segments that are asked for.
    reference = make_reference(a="A" * 500 + "C" * 700 + "G" * 300 + "T" * 500)
    segments = [Interval("a", 0, 500), Interval("a", 1200, 1500)]
    text = "".join(sample(reference, segments))
    assert (text.count("A"), text.count("G"), len(text)) == (500, 300, 800)
    some = "".join(sample(reference, segments, 300))
    assert len(some) == 300 and {*some} == {"A", "G"}
