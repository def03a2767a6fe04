"""The tokenizer against its promises, and against a plain implementation of BPE."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import ConfigError, DataError, ModelError
from bigbird_dna.tokens.dna import SPECIAL_PIECES, DnaTokenizer
from tests.golden.messages import fails
from tests.tokens.text_model import merge_by_hand

# Stretches of one kind of letter, so that runs of Ns of every length are drawn.
dna = st.lists(st.one_of(st.text("ACGT", max_size=60), st.integers(0, 40).map("N".__mul__)), max_size=8).map(
    "".join
)


@settings(deadline=None)
@given(dna)
def test_decoding_gives_the_sequence_back(tokenizer: DnaTokenizer, sequence: str) -> None:
    ids = tokenizer.encode(sequence)
    assert ids.dtype == np.int32
    assert tokenizer.decode(ids) == sequence
    assert not np.isin(ids, range(5)).any()


@settings(deadline=None)
@given(dna)
def test_offsets_cut_the_sequence_into_its_pieces(tokenizer: DnaTokenizer, sequence: str) -> None:
    ids, offsets = tokenizer.encode_with_offsets(sequence)
    assert offsets[0] == 0 and offsets[-1] == len(sequence)
    for i, index in enumerate(ids):
        assert sequence[offsets[i] : offsets[i + 1]] == tokenizer.pieces[index]


@settings(deadline=None)
@given(st.text("ACGT", max_size=120))
def test_same_pieces_as_a_plain_implementation_of_bpe(tokenizer: DnaTokenizer, sequence: str) -> None:
    learnt = [piece for piece in tokenizer.pieces if {*piece} <= {*"ACGT"}]
    assert [tokenizer.pieces[i] for i in tokenizer.encode(sequence)] == merge_by_hand(sequence, learnt)


@settings(deadline=None)
@given(st.text("ACGT", max_size=50), st.integers(1, 30), st.text("ACGT", max_size=50))
def test_n_separates_bases_and_is_cut_into_runs(
    tokenizer: DnaTokenizer, left: str, count: int, right: str
) -> None:
    run = tokenizer.encode("N" * count)
    assert len(run) == count // 6 + count % 6  # the longest piece of this tokenizer has 6 bp
    whole = [*tokenizer.encode(left), *run, *tokenizer.encode(right)]
    assert tokenizer.encode(left + "N" * count + right).tolist() == whole


@settings(deadline=None, max_examples=20)
@given(st.lists(dna, max_size=6), st.integers(1, 3))
def test_a_batch_is_its_sequences(tokenizer: DnaTokenizer, sequences: list[str], threads: int) -> None:
    rows = tokenizer.encode_batch(sequences, threads)
    assert [row.tolist() for row in rows] == [tokenizer.encode(s).tolist() for s in sequences]


def test_pieces_have_their_places(tokenizer: DnaTokenizer) -> None:
    assert len(tokenizer) == tokenizer.vocabulary == 96
    assert tokenizer.pieces[:5] == SPECIAL_PIECES
    special = [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id]
    assert [*special, tokenizer.mask_id] == [0, 1, 2, 3, 4]
    assert tokenizer.piece_lengths.tolist() == [0] * 5 + [len(p) for p in tokenizer.pieces[5:]]
    assert tokenizer.piece_lengths.max() == 6
    assert {tokenizer.pieces[i] for i in set(range(5, 96)) - set(tokenizer.base_ids.tolist())} == {
        "N",
        "NNNNNN",
    }
    assert tokenizer.decode([2, 3, 0, 1, 4]) == ""


def test_a_long_sequence_is_encoded_whole(tokenizer: DnaTokenizer) -> None:
    sequence = "".join(np.random.default_rng(0).choice(list("ACGT"), 200_000))
    assert tokenizer.decode(tokenizer.encode(sequence)) == sequence


def test_copies_are_the_same(tokenizer: DnaTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "copy.model")
    for copy in (pickle.loads(pickle.dumps(tokenizer)), DnaTokenizer.load(tmp_path / "copy.model")):
        assert copy.sha256 == tokenizer.sha256
        assert copy.encode("ACGTTNACG").tolist() == tokenizer.encode("ACGTTNACG").tolist()


def test_threads_share_a_tokenizer(tokenizer: DnaTokenizer) -> None:
    sequences = ["ACGT" * n for n in range(1, 200)]
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(tokenizer.encode, sequences))
    assert [tokenizer.decode(row) for row in rows] == sequences


def test_training_is_deterministic_and_takes_any_corpus(tmp_path: Path) -> None:
    sentences = ["ACGGT" * 40, "TTTTAACCA" * 30]
    first = DnaTokenizer.train(iter(sentences), tmp_path / "first", 24)
    second = DnaTokenizer.train(sentences, tmp_path / "second", 24)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    assert first.sha256 == second.sha256


@pytest.mark.parametrize("vocabulary", [11, 12, 16])
def test_letters_that_the_corpus_lacks_have_pieces(tmp_path: Path, vocabulary: int) -> None:
    tokenizer = DnaTokenizer.train(["A" * 100], tmp_path / "model", vocabulary, 64)
    assert tokenizer.vocabulary == vocabulary
    assert tokenizer.decode(tokenizer.encode("GATNTACA")) == "GATNTACA"


def test_sentences_above_the_limit_of_sentencepiece_are_not_dropped(tmp_path: Path) -> None:
    sentence = "A" * 55_000 + "CG" * 20_000
    tokenizer = DnaTokenizer.train([sentence], tmp_path / "model", 14)
    assert tokenizer.pieces[7:10] == ("AA", "AAAA", "CG")


def test_no_merge_reaches_over_the_end_of_a_sentence_or_into_n(tmp_path: Path) -> None:
    tokenizer = DnaTokenizer.train(["GNG", "C"] * 50 + ["TT"], tmp_path / "model", 12)
    assert tokenizer.pieces[7] == "TT"


def test_the_largest_possible_vocabulary_is_named_and_right(tmp_path: Path) -> None:
    sentences = ["ACGGT" * 40, "TTTTAACCA" * 30]
    with fails(ConfigError) as error:
        DnaTokenizer.train(sentences, tmp_path / "model", 5000)
    assert not list(tmp_path.iterdir())
    largest = int(str(error.value).split()[-1])
    assert DnaTokenizer.train(sentences, tmp_path / "model", largest).vocabulary == largest
    with fails(ConfigError):
        DnaTokenizer.train(sentences, tmp_path / "model", largest + 1)


@pytest.mark.parametrize(
    ("sentences", "vocabulary", "longest", "error", "named"),
    [
        (["ACGT"], 10, 16, ConfigError, (10, 11)),
        (["ACGT"], 16, 0, ConfigError, (0, 512)),
        (["ACGT"], 16, 513, ConfigError, (513, 512)),
        ([], 11, 16, DataError, ()),
        (["NNNN"], 16, 16, DataError, ()),
        (["ACGT", "ACRT"], 11, 16, DataError, ("sentence 2", "'R'", "position 3")),
        (["ACG\nT"], 11, 16, DataError, ("position 4",)),
    ],
)
def test_bad_training_input(
    tmp_path: Path, sentences: list[str], vocabulary: int, longest: int, error: type[Exception], named: Any
) -> None:
    with fails(error, *named):
        DnaTokenizer.train(sentences, tmp_path / "model", vocabulary, longest)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("sequence", "position"),
    [("ACGTa", 5), ("ACUT", 3), ("AC GT", 3), ("AC\u2581GT", 3), ("[MASK]", 1), ("ACé", 3)],
)
def test_other_letters_are_refused(tokenizer: DnaTokenizer, sequence: str, position: int) -> None:
    with fails(DataError, repr(sequence[position - 1]), f"position {position}"):
        tokenizer.encode(sequence)
    with fails(DataError, "sequence 2", f"position {position}"):
        tokenizer.encode_batch(["ACGT", sequence])


@pytest.mark.parametrize("index", [-1, 96])
def test_ids_outside_the_vocabulary_are_refused(tokenizer: DnaTokenizer, index: int) -> None:
    with fails(DataError, index):
        tokenizer.decode([5, index])


def test_files_that_are_no_tokenizer_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with fails(ModelError, path):
        DnaTokenizer.load(path)
    with fails(ModelError, tmp_path):
        DnaTokenizer.load(tmp_path)
    for content in (b"", b"hello", b"\x0a\x03abc"):
        path.write_bytes(content)
        with fails(ModelError, path):
            DnaTokenizer.load(path)


@pytest.mark.parametrize("names", [{}, dict(zip(("pad", "unk"), SPECIAL_PIECES, strict=False))])
def test_tokenizers_of_something_else_are_refused(tmp_path: Path, names: dict[str, str]) -> None:
    model = BytesIO()
    options = {f"{key}_piece": piece for key, piece in names.items()}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a word and another word"] * 9),
        model_writer=model,
        model_type="bpe",
        vocab_size=30,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        bos_piece="[CLS]",
        eos_piece="[SEP]",
        control_symbols=["[MASK]"],
        minloglevel=2,
        **options,
    )
    path = tmp_path / "words.model"
    path.write_bytes(model.getvalue())
    with fails(ModelError, path):
        DnaTokenizer.load(path)
