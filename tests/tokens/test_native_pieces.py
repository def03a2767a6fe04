"""The encoder in C++ against SentencePiece, and against merging by hand with pieces that nobody learnt."""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.disk import native_library as native_build
from bigbird_dna.disk.native_library import BuildError
from bigbird_dna.errors import DataError
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import Interval, reverse_complement
from bigbird_dna.tokens import dna as native_pieces
from bigbird_dna.tokens import dna as tokenizer
from bigbird_dna.tokens.dna import (
    DnaTokenizer,
    NativePieces,
    encode_rows,
    open_sentencepiece,
    read_vocabulary,
)
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.tokens.text_model import merge_by_hand
from tests.toys import random_dna

Rows = list[list[int]]

REPEATS = "A" * 90 + "CA" * 60 + "GATA" * 30 + "AAAAC" * 20 + "CCCTAA" * 20
# Stretches of one kind: bases, few of them, one again and again, and N.
dna = st.lists(
    st.one_of(
        st.text("ACGT", max_size=80),
        st.text("AC", max_size=80),
        st.tuples(st.text("ACGT", min_size=1, max_size=5), st.integers(1, 40)).map(
            lambda unit: unit[0] * unit[1]
        ),
        st.integers(0, 40).map("N".__mul__),
    ),
    max_size=6,
).map("".join)


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    try:
        native_build.find_compiler()
    except BuildError as error:
        pytest.skip(str(error))


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that hasn't loaded the library yet, and encodes with it from the first letter on."""
    monkeypatch.setattr(tokenizer, "NATIVE_FROM", 0)
    native_pieces.load_library.cache_clear()
    yield
    native_pieces.load_library.cache_clear()


def both_of(content: bytes) -> tuple[NativePieces, Callable[[Sequence[str]], Rows]]:
    """A model's pieces, opened in C++, and how SentencePiece encodes by them."""
    processor = open_sentencepiece(content, "model")
    vocabulary = read_vocabulary(processor)
    letters = ["" if piece[0] == "[" else piece for piece in vocabulary]
    scores = processor.get_score(list(range(len(vocabulary))))
    pieces = NativePieces.open(
        letters, scores, lambda texts: encode_rows(processor, texts)
    )
    assert pieces is not None
    return pieces, lambda texts: [row.tolist() for row in encode_rows(processor, texts)]


@cache
def model(
    vocabulary: int, longest: int, repeats: bool
) -> tuple[NativePieces, Callable[[Sequence[str]], Rows]]:
    """Pieces that SentencePiece learnt, opened in C++, and how it encodes by them itself."""
    corpus = [random_dna(400, seed) for seed in range(40)] + [REPEATS] * (4 * repeats)
    with TemporaryDirectory() as home:
        path = Path(home) / "model"
        DnaTokenizer.train(corpus, path, vocabulary, longest)
        return both_of(path.read_bytes())


def rows(pieces: NativePieces, texts: Sequence[str], threads: int = 1) -> Rows:
    found = pieces.encode(texts, threads)
    assert found is not None
    assert all(row.dtype == np.int32 for row in found)
    return [row.tolist() for row in found]


models = st.sampled_from(
    [
        (10, 1, False),
        (20, 2, False),
        (60, 64, True),
        (96, 6, False),
        (300, 64, True),
        (900, 16, False),
    ]
)


@settings(deadline=None, max_examples=150)
@given(models, st.lists(dna, max_size=4), st.integers(1, 3))
def test_the_ids_are_sentencepiece_s(
    kind: tuple[int, int, bool], texts: list[str], threads: int
) -> None:
    pieces, expected = model(*kind)
    assert rows(pieces, texts, threads) == expected(texts)


@pytest.mark.parametrize("kind", [(96, 6, False), (300, 64, True), (900, 16, False)])
def test_long_texts_with_repeats(kind: tuple[int, int, bool]) -> None:
    rng = random.Random(0)
    units = ["A", "T", "CA", "GATA", "CCCTAA", "AAAAC", random_dna(171, 9)]
    texts = [random_dna(20_000, seed) for seed in range(6)]
    for n in range(40):
        texts = [
            text + rng.choice(units) * rng.randint(1, 60) + random_dna(n, n)
            for text in texts
        ]
    texts += [reverse_complement(text) for text in texts]
    pieces, expected = model(*kind)
    assert rows(pieces, texts, 2) == expected(texts)


def opened(
    learned: Sequence[str], scores: Sequence[float] | None = None
) -> NativePieces | None:
    """Pieces in the order of their learning, behind those of the bases."""
    ranks = scores or [-float(number) for number in range(len(learned))]
    with patch.object(native_pieces, "sample_texts", lambda _: []):
        return NativePieces.open(
            [*"ACGT", "N", *learned], [0.0] * 5 + [*ranks], lambda _: []
        )


@st.composite
def vocabularies(draw: st.DrawFn) -> list[str]:
    """Pieces made of two others in any order: no corpus would teach most of them."""
    letters, learned = draw(st.sampled_from(["A", "AC", "ACG", "ACGT"])), []
    for _ in range(draw(st.integers(0, 25))):
        known = [*letters, *learned]
        halves = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        # One that can be made at all, and is last made of these.
        if sum(map(len, halves)) <= 12 and merge_by_hand("".join(halves), learned) == [
            *halves
        ]:
            learned.append("".join(halves))
    return learned


@settings(deadline=None, max_examples=150)
@given(
    vocabularies(),
    st.lists(st.text("AC", max_size=60) | st.text("ACGT", max_size=60), max_size=3),
)
def test_pieces_that_no_corpus_teaches(learned: list[str], texts: list[str]) -> None:
    pieces = opened(learned)
    assert pieces is not None
    names = [*"ACGT", "N", *learned]
    texts += ["A" * 41, "AC" * 30, "CAA" * 17]
    assert [[names[i] for i in row] for row in rows(pieces, texts)] == [
        merge_by_hand(text, learned) for text in texts
    ]


@pytest.mark.parametrize(
    ("learned", "scores"),
    [
        (["AA", "AAAAC"], None),  # its letters become AA, AA and C: no two are left
        (["CGT", "CG"], None),  # before its half
        (["AA", "CC"], [-1.0, -1.0]),  # at once
        (["A" * 513], None),
    ],
)
def test_other_pieces_are_left_to_sentencepiece(
    learned: list[str], scores: list[float] | None
) -> None:
    assert opened(learned, scores) is None
    assert opened(["AC", "CG", "ACG", "ACGT"]) is not None


def test_other_letters_and_no_texts() -> None:
    pieces, _ = model(96, 6, False)
    for letter in ("a", "U", " ", "é", "[", "\x00", "\u2581"):
        assert pieces.encode(["ACGT", f"AC{letter}GT"]) is None
    assert pieces.encode([]) == []
    assert rows(pieces, [""] * 3) == [[], [], []]


@pytest.mark.usefixtures("unloaded")
@pytest.mark.parametrize(
    "why", ["", "no compiler", "switched off", "another answer", "library says so"]
)
def test_with_it_and_without_it_texts_are_encoded_and_wrong_letters_refused(
    tokenizer: DnaTokenizer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, why: str
) -> None:
    texts = [random_dna(3000, 5), "ANNNNNNNC", ""]
    expected = [
        row.tolist() for row in DnaTokenizer(tokenizer.content).encode_batch(texts)
    ]
    native_pieces.load_library.cache_clear()
    if why == "no compiler":
        monkeypatch.setenv("BIGBIRD_DNA_CACHE", str(tmp_path))
        monkeypatch.setenv("CXX", "no-such-compiler")
    elif why == "switched off":
        monkeypatch.setenv("BIGBIRD_DNA_NATIVE", "0")
    elif why == "another answer":
        monkeypatch.setattr(native_pieces, "sample_texts", lambda _: ["x"])
    elif why:
        monkeypatch.setattr(NativePieces, "encode", lambda *_: None)
    again = DnaTokenizer(tokenizer.content)
    assert (again.native is None) == bool(why)
    assert [row.tolist() for row in again.encode_batch(texts, 2)] == expected
    assert again.encode(texts[0]).tolist() == expected[0]
    with fails(DataError):
        again.encode_batch(["A", "ACx"])
    with fails(DataError):
        again.encode("é")


def test_yeast(shared_data: Path, tmp_path: Path) -> None:
    """Both strands of a part of a real chromosome by the pieces of the model that comes with the package."""
    prepare_reference(
        next((shared_data / "yeast").glob("Saccharomyces*.fa.gz")),
        tmp_path / "reference.fa.gz",
    )
    reference = Reference(tmp_path / "reference.fa.gz")
    text = reference.fetch(Interval("IV", 0, 200_000))
    _same(
        REPOSITORY / "resources/models/yeast/tokenizer.model",
        [text, reverse_complement(text)],
    )


@pytest.mark.slow
@pytest.mark.parametrize(("vocabulary", "longest"), [(4096, 16), (32_000, 64)])
def test_human(
    shared_data: Path, tmp_path: Path, vocabulary: int, longest: int
) -> None:
    """Windows that begin anywhere, of the piece of chromosome 22, by a vocabulary of its own."""
    prepare_reference(
        shared_data / "hg19/chr22_1-22000000.fa.gz", tmp_path / "reference.fa.gz"
    )
    text = Reference(tmp_path / "reference.fa.gz").fetch(
        Interval("22", 16_000_000, 22_000_000)
    )
    corpus = [text[start : start + 1000] for start in range(0, len(text), 1000)]
    DnaTokenizer.train(corpus, tmp_path / "tokenizer.model", vocabulary, longest)
    rng = random.Random(0)
    starts = [rng.randrange(len(text) - 8000) for _ in range(1500)]
    windows = [text[start : start + rng.randrange(8000)] for start in starts]
    _same(
        tmp_path / "tokenizer.model",
        [*windows, *map(reverse_complement, windows), text],
    )


def _same(path: Path, texts: list[str]) -> None:
    pieces, expected = both_of(path.read_bytes())
    assert rows(pieces, texts) == expected(texts)
