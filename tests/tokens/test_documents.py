"""Documents follow App. F.1."""

import hashlib
import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.genome.sequence import Interval, whole_contigs
from bigbird_dna.tokens.corpus import Document, DocumentPlan, Strands, iter_documents
from tests.golden.messages import fails


@st.composite
def plans(draw: st.DrawFn) -> DocumentPlan:
    shortest, fewest = draw(st.integers(1, 40)), draw(st.integers(1, 5))
    return DocumentPlan(
        passes=draw(st.integers(1, 3)),
        max_start_offset=draw(st.integers(0, 300)),
        sentence_bases=(shortest, shortest + draw(st.integers(0, 40))),
        sentences_per_document=(fewest, fewest + draw(st.integers(0, 4))),
    )


def passes(documents: list[Document], length: int) -> list[list[Document]]:
    """Documents of one contig, a list a pass."""
    groups: list[list[Document]] = [[]]
    for document in documents:
        groups[-1].append(document)
        if document.end == length:
            groups.append([])
    assert groups.pop() == []
    return groups


@settings(deadline=None)
@given(plans(), st.integers(1, 2000), st.integers(0, 2**40))
def test_every_pass_covers_the_contig_from_its_start_on(plan: DocumentPlan, length: int, seed: int) -> None:
    found = passes(list(iter_documents(whole_contigs({"a": length}), plan, seed)), length)
    assert len(found) == plan.passes
    shortest, longest = plan.sentence_bases
    fewest, most = plan.sentences_per_document
    for documents in found:
        sentences = [sentence for document in documents for sentence in document.sentences()]
        start = documents[0].start
        assert 0 <= start <= min(plan.max_start_offset, max(0, length - longest))
        for sentence in sentences:
            assert sentence.start == start
            start = sentence.end
        assert start == length
        assert all(shortest <= len(sentence) <= longest for sentence in sentences[:-1])
        assert 1 <= len(sentences[-1]) <= longest
        assert all(fewest <= len(d.sentence_ends) <= most for d in documents[:-1])
        assert 1 <= len(documents[-1].sentence_ends) <= most
        for document in documents:
            assert document.interval.start == document.sentences()[0].start
            assert document.interval.end == document.sentences()[-1].end


@settings(deadline=None, max_examples=30)
@given(plans(), st.integers(0, 100))
def test_a_contig_does_not_depend_on_the_others(plan: DocumentPlan, seed: int) -> None:
    alone = list(iter_documents(whole_contigs({"b": 900}), plan, seed))
    among = list(iter_documents(whole_contigs({"a": 500, "b": 900, "c": 700}), plan, seed))
    assert [document for document in among if document.contig == "b"] == alone
    assert list(dict.fromkeys(document.contig for document in among)) == ["a", "b", "c"]


@settings(deadline=None, max_examples=30)
@given(plans(), st.integers(1, 900), st.integers(0, 100))
def test_with_both_strands_every_second_pass_is_the_mirror_image_of_what_it_was(
    plan: DocumentPlan, length: int, seed: int
) -> None:
    both = passes(
        list(iter_documents(whole_contigs({"a": length}), replace(plan, strands="both"), seed)), length
    )
    one = passes(list(iter_documents(whole_contigs({"a": length}), plan, seed)), length)
    assert both[::2] == one[::2]
    for mirrored, plain in zip(both[1::2], one[1::2], strict=True):
        for document, before in zip(mirrored, plain, strict=True):
            assert document.reverse_of == length
            for there, here in zip(document.sentences(), before.sentences(), strict=True):
                assert (length - there.end, length - there.start) == (here.start, here.end)


@st.composite
def divisions(draw: st.DrawFn) -> tuple[list[Interval], list[Interval]]:
    """A contig's stretches for training, and the regions between them."""
    edges = sorted(draw(st.sets(st.integers(1, 1500), min_size=1, max_size=6)))
    parts = [Interval("a", start, end) for start, end in itertools.pairwise([0, *edges, 1600])]
    return (parts[::2], parts[1::2]) if draw(st.booleans()) else (parts[1::2], parts[::2])


@settings(deadline=None)
@given(plans(), divisions(), st.integers(0, 100), st.sampled_from(["forward", "both"]))
def test_no_sentence_reaches_into_a_held_out_region(
    plan: DocumentPlan, division: tuple[list[Interval], list[Interval]], seed: int, strands: Strands
) -> None:
    stretches, held_out = division
    drawn = list(iter_documents(stretches, replace(plan, strands=strands), seed))
    read = [0] * 1600
    for document in drawn:
        whole = document.interval
        assert any(own.start <= whole.start and whole.end <= own.end for own in stretches)
        for sentence in document.sentences():
            assert all(sentence.end <= other.start or other.end <= sentence.start for other in held_out)
            for base in range(sentence.start, sentence.end):
                read[base] += 1
    # Every pass reads each stretch once, but for what lies before its start.
    reach = plan.max_start_offset + plan.sentence_bases[1]
    for own in stretches:
        assert max(read[own.start : own.end]) <= plan.passes
        assert all(read[base] == plan.passes for base in range(own.start + reach, own.end - reach))


@settings(deadline=None, max_examples=30)
@given(plans(), st.integers(1, 900), st.integers(1, 900), st.integers(0, 100))
def test_a_stretch_is_read_as_a_contig_is(plan: DocumentPlan, start: int, length: int, seed: int) -> None:
    """Its bounds are kept and its other strand is its own; what follows its end doesn't matter."""
    plan = replace(plan, passes=2, strands="both")
    own = Interval("a", start, start + length)
    one, other = passes_of(own, list(iter_documents([own], plan, seed)))
    assert all(document.reverse_of is None for document in one)
    assert all(document.reverse_of == own.end for document in other)
    for documents, edge in ((one, "end"), (other, "start")):
        sentences = [sentence for document in documents for sentence in document.sentences()]
        assert getattr(sentences[-1], edge) == getattr(own, edge)
        for before, after in itertools.pairwise(sentences):
            assert before.end == after.start or after.end == before.start
    # At the contig's start it is drawn as a whole contig of that length.
    assert list(iter_documents([Interval("a", 0, length)], plan, seed)) == list(
        iter_documents(whole_contigs({"a": length}), plan, seed)
    )


def passes_of(own: Interval, documents: list[Document]) -> tuple[list[Document], list[Document]]:
    """The documents of the forward pass and of the reverse one."""
    split = [document for document in documents if document.reverse_of is None]
    return split, documents[len(split) :]


def test_stretches_of_one_contig_differ() -> None:
    plan = DocumentPlan(passes=1, max_start_offset=50, sentence_bases=(5, 10), sentences_per_document=(2, 3))
    one, other = Interval("a", 100, 600), Interval("a", 700, 1200)
    drawn = list(iter_documents([one, other], plan, 1))
    lengths = {
        start: [len(s) for d in drawn if own.start <= d.start < own.end for s in d.sentences()]
        for start, own in ((100, one), (700, other))
    }
    assert lengths[100] != lengths[700]
    assert drawn == list(iter_documents([one], plan, 1)) + list(iter_documents([other], plan, 1))


def test_whole_contigs_have_the_documents_that_they_always_had() -> None:
    """Published models were trained on these: an earlier version gave this checksum."""
    contigs = whole_contigs({"chrI": 30_000, "chrII": 9_000, "c": 40})
    plan = DocumentPlan(3, 500, (50, 100), (5, 10), "both")
    drawn = [(d.contig, d.start, d.sentence_ends, d.reverse_of) for d in iter_documents(contigs, plan, 7)]
    found = hashlib.sha256(repr(drawn).encode()).hexdigest()
    assert found == "b1b1feb7d1452a1b823c1716b7ea42c1e703896aa02b31fa29b703019b84f15b"


def test_passes_seeds_and_contigs_differ() -> None:
    plan = DocumentPlan(passes=2, max_start_offset=50, sentence_bases=(5, 10), sentences_per_document=(2, 3))
    first, second = passes(list(iter_documents(whole_contigs({"a": 500}), plan, 1)), 500)
    assert first != second
    other_seed, _ = passes(list(iter_documents(whole_contigs({"a": 500}), plan, 2)), 500)
    assert [d.sentence_ends for d in first] != [d.sentence_ends for d in other_seed]
    other_contig, _ = passes(list(iter_documents(whole_contigs({"b": 500}), plan, 1)), 500)
    assert [d.sentence_ends for d in first] != [d.sentence_ends for d in other_contig]


def test_ranges_include_their_ends_and_are_uniform() -> None:
    plan = DocumentPlan(passes=2000, max_start_offset=3, sentence_bases=(4, 6), sentences_per_document=(2, 3))
    documents = list(iter_documents(whole_contigs({"a": 60}), plan, 0))
    starts = [documents[0].start]
    lengths: list[int] = []
    sizes: list[int] = []
    for document, following in itertools.pairwise(documents):
        if document.end == 60:
            starts.append(following.start)
        else:
            lengths += map(len, document.sentences())
            sizes.append(len(document.sentence_ends))
    for values, expected in ((starts, {0, 1, 2, 3}), (lengths, {4, 5, 6}), (sizes, {2, 3})):
        assert set(values) == expected
        for value in expected:
            assert values.count(value) / len(values) == pytest.approx(1 / len(expected), abs=0.05)


def test_defaults_are_the_papers() -> None:
    documents = list(iter_documents(whole_contigs({"a": 3_000_000}), DocumentPlan(), 0))
    lengths = [len(document.interval) for document in documents if document.end < 3_000_000]
    assert min(lengths) >= 25_000 and max(lengths) <= 100_000
    expected = 10 * 3_000_000 / DocumentPlan().mean_document_bases
    assert len(documents) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"passes": 0}, "passes"),
        ({"max_start_offset": -1}, "max_start_offset"),
        ({"sentence_bases": (0, 5)}, "sentence_bases"),
        ({"sentences_per_document": (5, 4)}, "sentences_per_document"),
    ],
)
def test_impossible_plans_are_refused(values: dict[str, object], text: str) -> None:
    with fails(ValueError):
        DocumentPlan(**values)  # type: ignore[arg-type]
