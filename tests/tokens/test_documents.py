"""Documents follow App. F.1."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.tokens.documents import Document, DocumentPlan, iter_documents


@st.composite
def plans(draw: st.DrawFn) -> DocumentPlan:
    shortest, fewest = draw(st.integers(1, 40)), draw(st.integers(1, 5))
    return DocumentPlan(
        passes=draw(st.integers(1, 3)),
        max_start=draw(st.integers(0, 300)),
        sentence_bases=(shortest, shortest + draw(st.integers(0, 40))),
        document_sentences=(fewest, fewest + draw(st.integers(0, 4))),
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
    found = passes(list(iter_documents({"a": length}, plan, seed)), length)
    assert len(found) == plan.passes
    shortest, longest = plan.sentence_bases
    fewest, most = plan.document_sentences
    for documents in found:
        sentences = [sentence for document in documents for sentence in document.sentences()]
        start = documents[0].start
        assert 0 <= start <= min(plan.max_start, max(0, length - longest))
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
    alone = list(iter_documents({"b": 900}, plan, seed))
    among = list(iter_documents({"a": 500, "b": 900, "c": 700}, plan, seed))
    assert [document for document in among if document.contig == "b"] == alone
    assert list(dict.fromkeys(document.contig for document in among)) == ["a", "b", "c"]


@settings(deadline=None, max_examples=30)
@given(plans(), st.integers(1, 900), st.integers(0, 100))
def test_with_both_strands_every_second_pass_is_the_mirror_image_of_what_it_was(
    plan: DocumentPlan, length: int, seed: int
) -> None:
    both = passes(list(iter_documents({"a": length}, replace(plan, strands="both"), seed)), length)
    one = passes(list(iter_documents({"a": length}, plan, seed)), length)
    assert both[::2] == one[::2]
    for mirrored, plain in zip(both[1::2], one[1::2], strict=True):
        for document, before in zip(mirrored, plain, strict=True):
            assert document.reverse_of == length
            for there, here in zip(document.sentences(), before.sentences(), strict=True):
                assert (length - there.end, length - there.start) == (here.start, here.end)


def test_passes_seeds_and_contigs_differ() -> None:
    plan = DocumentPlan(passes=2, max_start=50, sentence_bases=(5, 10), document_sentences=(2, 3))
    first, second = passes(list(iter_documents({"a": 500}, plan, 1)), 500)
    assert first != second
    other_seed, _ = passes(list(iter_documents({"a": 500}, plan, 2)), 500)
    assert [d.sentence_ends for d in first] != [d.sentence_ends for d in other_seed]
    other_contig, _ = passes(list(iter_documents({"b": 500}, plan, 1)), 500)
    assert [d.sentence_ends for d in first] != [d.sentence_ends for d in other_contig]


def test_ranges_include_their_ends_and_are_uniform() -> None:
    plan = DocumentPlan(passes=2000, max_start=3, sentence_bases=(4, 6), document_sentences=(2, 3))
    documents = list(iter_documents({"a": 60}, plan, 0))
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
    documents = list(iter_documents({"a": 3_000_000}, DocumentPlan(), 0))
    lengths = [len(document.interval) for document in documents if document.end < 3_000_000]
    assert min(lengths) >= 25_000 and max(lengths) <= 100_000
    expected = 10 * 3_000_000 / DocumentPlan().mean_document_bases
    assert len(documents) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"passes": 0}, "passes"),
        ({"max_start": -1}, "max_start"),
        ({"sentence_bases": (0, 5)}, "sentence_bases"),
        ({"document_sentences": (5, 4)}, "document_sentences"),
    ],
)
def test_impossible_plans_are_refused(values: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        DocumentPlan(**values)  # type: ignore[arg-type]
