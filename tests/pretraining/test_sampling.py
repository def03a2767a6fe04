"""Pairs of sentences: where they are from, and that nothing but their tokens tells whether B follows A."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from bigbird_dna.config.run import Config
from bigbird_dna.config.training import PretrainingConfig
from bigbird_dna.disk.atomic import checksum, write_json
from bigbird_dna.errors import DataError
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.pretraining.held_out import HeldOut
from bigbird_dna.pretraining.sampling import (
    PairSampler,
    Sampler,
    SegmentSampler,
    document_bounds,
)
from bigbird_dna.pretraining.task import PretrainingTask
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.store import (
    DOCUMENTS,
    SENTENCES,
    TokenStore,
)
from bigbird_dna.tokens.store import (
    TOKENS as TOKENS_FILE,
)
from tests.golden.messages import fails
from tests.toys import small_encoder
from tests.training.curve import ALONE

TOKENS = 64  # of an input: 61 for A and B
DRAWN = 6000
STORES = {
    "shorter than an input": [[10] * 3] * 30,
    "of many lengths": [[7] * count for count in range(1, 24)] * 3,
    "one long, others short": [[10] * 40] + [[10] * 4] * 50,
    "all long": [[9, 11, 13] * 20] * 12,
    "sentences": [[length] for length in range(3, 90)],
}


class Numbered(NamedTuple):
    """A store in memory, whose tokens are their own places unless others are given."""

    directory: Path
    tokens: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray

    @classmethod
    def of(cls, documents: Sequence[Sequence[int]]) -> "Numbered":
        """From the lengths of each document's sentences."""
        ends = np.cumsum([length for document in documents for length in document])
        counts = np.cumsum([len(document) for document in documents])
        sentences, numbers = np.append(0, ends), np.append(0, counts)
        return cls(Path("numbered"), np.arange(ends[-1]), sentences, numbers)

    @property
    def bounds(self) -> np.ndarray:
        return self.sentences[self.documents]


class Pair(NamedTuple):
    """Where A and B are in the store."""

    a: range
    b: range
    follows: bool


def drawn(store: Numbered, tokenizer: DnaTokenizer, count: int = DRAWN) -> list[Pair]:
    sampler, rng = PairSampler(store, tokenizer, TOKENS), np.random.default_rng(5)
    found = []
    for _ in range(count):
        ids, first, follows = sampler.draw(rng)
        assert len(ids) <= TOKENS
        assert (ids[0], ids[first - 1], ids[-1]) == (
            tokenizer.cls_id,
            tokenizer.sep_id,
            tokenizer.sep_id,
        )
        parts = [part.tolist() for part in (ids[1 : first - 1], ids[first:-1])]
        a, b = (range(part[0], part[-1] + 1) for part in parts)
        assert parts == [[*a], [*b]]
        found.append(Pair(a, b, follows))
    return found


@pytest.mark.parametrize("name", STORES)
def test_lengths_do_not_tell_what_follows(name: str, tokenizer: DnaTokenizer) -> None:
    pairs = drawn(Numbered.of(STORES[name]), tokenizer)
    labels = np.array([pair.follows for pair in pairs])
    assert abs(labels.mean() - 0.5) < 0.03
    a, b = (np.array([len(pair[part]) for pair in pairs]) for part in (0, 1))
    assert name != "all long" or {*(a + b)} == {TOKENS - 3}
    for figure in (a, b, a + b, b - a, b / a):
        assert auroc(labels, figure).value == pytest.approx(0.5, abs=0.035)
    for length in np.unique(a):
        some = a == length
        if min(labels[some].sum(), (~labels[some]).sum()) > 100:  # given the one, too
            assert auroc(labels[some], b[some]).value == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize("name", STORES)
def test_b_follows_a_or_is_from_elsewhere(name: str, tokenizer: DnaTokenizer) -> None:
    store = Numbered.of(STORES[name])
    several = len(store.documents) > 2
    for a, b, follows in drawn(store, tokenizer):
        of_a, of_b = (
            np.searchsorted(store.bounds, [part[0], part[-1]], side="right")
            for part in (a, b)
        )
        assert of_a[0] == of_a[1] and of_b[0] == of_b[1]
        if follows:
            assert b.start == a.stop and of_a[0] == of_b[0]
        elif several:
            assert of_a[0] != of_b[0]
        else:  # neither overlaps A nor what follows it
            assert b.stop <= a.start or b.start >= a.stop + len(b)


@pytest.mark.parametrize("name", STORES)
def test_every_sentence_with_room_begins_an_input(
    name: str, tokenizer: DnaTokenizer
) -> None:
    """An input's tokens ahead; in a document that has fewer, half of it."""
    store = Numbered.of(STORES[name])
    room = TOKENS - 3
    expected = []
    for sentence in store.sentences[:-1].tolist():
        low = store.bounds[store.bounds <= sentence].max()
        high = store.bounds[store.bounds > sentence].min()
        if high - sentence >= (
            room if high - low >= room else max(2, (high - low) / 2)
        ):
            expected.append(sentence)
    pairs = drawn(store, tokenizer)
    starts = np.array(expected)
    of = np.searchsorted(store.bounds, starts, side="right")
    # Starts of B that does not follow A: in another document.
    far = of[:, None] != of
    elsewhere = (far / far.sum(1, keepdims=True)).mean(0)
    for found, chances in (
        ([pair.a.start for pair in pairs], np.full(len(starts), 1 / len(starts))),
        ([pair.b.start for pair in pairs if not pair.follows], elsewhere),
    ):
        counts, mean = (
            np.array([found.count(start) for start in expected]),
            len(found) * chances,
        )
        assert counts.sum() == len(found)
        assert (abs(counts - mean) < 5 * mean**0.5 + 1).all()
    reached = {place for pair in pairs for part in pair[:2] for place in part}
    ends = np.minimum(starts + room, store.bounds[of])
    within = {
        place
        for start, end in zip(starts, ends, strict=True)
        for place in range(start, end)
    }
    assert reached <= within and len(reached) == pytest.approx(len(within), rel=0.02)


def segment(store: Numbered, rng: np.random.Generator) -> list[int]:
    """Reference: the tokens from a place on, or the last ones of its document."""
    room, place = TOKENS - 2, int(rng.integers(len(store.tokens)))
    low, high = (
        store.bounds[store.bounds <= place].max(),
        store.bounds[store.bounds > place].min(),
    )
    start = max(low, min(place, high - room))
    return store.tokens[start : min(high, start + room)].tolist()


@pytest.mark.parametrize("name", STORES)
def test_a_segment_begins_at_any_place(name: str, tokenizer: DnaTokenizer) -> None:
    store = Numbered.of(STORES[name])
    sampler, rng, again = (
        SegmentSampler(store, tokenizer, TOKENS),
        *map(np.random.default_rng, (1, 1)),
    )
    for _ in range(300):
        ids, first, follows = sampler.draw(rng)
        assert (
            ids[1:-1].tolist() == segment(store, again)
            and first == len(ids)
            and follows
        )


def split_store(store: Path, document: int, home: Path) -> list[Path]:
    """Write the first documents of a store, and the others, as two stores."""
    whole = TokenStore(store)
    number_sentences = int(whole.documents[document])
    number_tokens = int(whole.sentences[number_sentences])
    targets = [home / "first", home / "second"]
    for target, tokens, sentences, documents in (
        (
            targets[0],
            whole.tokens[:number_tokens],
            whole.sentences[: number_sentences + 1],
            whole.documents[: document + 1],
        ),
        (
            targets[1],
            whole.tokens[number_tokens:],
            whole.sentences[number_sentences:] - number_tokens,
            whole.documents[document:] - number_sentences,
        ),
    ):
        target.mkdir(parents=True)
        tokens.tofile(target / TOKENS_FILE)
        np.save(target / SENTENCES, sentences)
        np.save(target / DOCUMENTS, documents)
        counts = {
            "tokens": len(tokens),
            "sentences": len(sentences) - 1,
            "documents": len(documents) - 1,
        }
        names = (TOKENS_FILE, SENTENCES, DOCUMENTS)
        sums = {"files": {name: checksum(target / name) for name in names}}
        write_json(target / "store.json", whole.info | counts | sums)
    return targets


def draws(sampler: Sampler) -> list[list[int]]:
    return [
        sampler.draw(np.random.default_rng(seed)).ids.tolist() for seed in range(400)
    ]


def test_document_bounds_of_the_first_tokens() -> None:
    store = Numbered.of([[3, 4], [5], [1, 2, 3], [9]])
    bounds = document_bounds(store)
    assert bounds.tolist() == [0, 7, 12, 18, 27]
    for tokens in (1, 7, 12, 13, 27, 10**9):
        found = document_bounds(store, tokens)
        assert found.tolist() == bounds[: np.searchsorted(bounds, tokens) + 1].tolist()


def test_one_document_that_is_too_short_and_an_empty_store_are_refused(
    tokenizer: DnaTokenizer,
) -> None:
    for documents in ([[1], [1], [1]], [[50]], [[3, 40, 3]], [[2, 2]]):
        with fails(DataError, "numbered"):
            PairSampler(Numbered.of(documents), tokenizer, TOKENS)
    empty = Numbered(
        Path("numbered"), np.zeros(0, int), np.zeros(1, int), np.zeros(1, int)
    )
    for sampler in (SegmentSampler, PairSampler):
        with fails(DataError, "numbered"):
            sampler(empty, tokenizer, TOKENS)


# What is measured on

FEW = 18  # of an input, 16 of them the store's


Make = Callable[[str], Numbered]


@pytest.fixture
def make(tokenizer: DnaTokenizer) -> Make:
    """A store of inputs, a letter each: b of bases, n of N, l of bases and then N."""
    (gap,) = tokenizer.encode("N")

    def made(letters: str) -> Numbered:
        rows = np.random.default_rng(0).choice(
            tokenizer.base_ids, (len(letters), FEW - 2)
        )
        for row, letter in zip(rows, letters, strict=True):
            row[{"b": FEW, "n": 0, "l": (FEW - 2) // 2}[letter] :] = gap
        size = rows.size
        return Numbered(
            Path("held-out"), rows.ravel(), np.array([0, size]), np.array([0, 1])
        )

    return made


def chosen(store: Numbered, tokenizer: DnaTokenizer, count: int) -> list[int]:
    """Numbers of the inputs that are measured on; each has something to predict."""
    held_out = HeldOut.draw(store, tokenizer, FEW, count, pairs=False)
    assert all(len(own) for own in held_out.positions)
    inputs = np.unique(held_out.tokens // (FEW - 2)).tolist()
    assert len(inputs) == len(held_out.inputs)
    return [int(number) for number in inputs]


@pytest.mark.parametrize(
    ("letters", "count", "expected"),
    [
        ("bbbbbbbbb", 3, [0, 4, 8]),
        ("lbblbbbll", 3, [0, 4, 8]),  # some bases are enough
        ("nnbbbbbnn", 3, [2, 4, 6]),
        ("nnbbbbbnn", 1, [2]),
        ("nnnnnnnbn", 3, [7]),
        ("nnnbbbnnn", 2, [3, 5]),
        ("bnbnbnbnb", 5, [0, 2, 4, 6, 8]),
        ("nbnbnbnbn", 100, [1, 3, 5, 7]),
    ],
)
def test_inputs_of_n_alone_are_left_out(
    make: Make, tokenizer: DnaTokenizer, letters: str, count: int, expected: list[int]
) -> None:
    assert chosen(make(letters), tokenizer, count) == expected


@pytest.mark.parametrize("pairs", [False, True])
def test_a_store_of_n_alone_is_refused(
    make: Make, tokenizer: DnaTokenizer, pairs: bool
) -> None:
    config = PretrainingConfig(sequence_tokens=FEW + pairs, next_sentence=pairs)
    train = make("bbbb")._replace(
        sentences=np.array([0, 32, 64]), documents=np.array([0, 1, 2])
    )
    with fails(DataError, "held-out", FEW + pairs):
        task = PretrainingTask(Config(), Path(), Path())
        task.config, task.tokenizer, task.encoder = config, tokenizer, small_encoder()
        task.stores = {"train": train, "valid": make("nnnn")}
        assert task.held_out


def test_bits_that_are_no_numbers_are_not_left_out(
    make: Make, tokenizer: DnaTokenizer
) -> None:
    torch.manual_seed(0)
    network = PretrainingNetwork(
        small_encoder(tokenizer.vocabulary), next_sentence=False
    ).eval()
    held_out = HeldOut.draw(make("b" * 40), tokenizer, FEW, 40, pairs=False)
    with torch.inference_mode():
        network.encoder.embeddings.token.weight[tokenizer.base_ids[5]] = float("nan")
        bits, _ = held_out.predict(network, tokenizer, ALONE)
    assert np.isnan(bits).any()
