"""Tokenizers of DNA and of text, SentencePiece's and the `tokenizers` library's, against what all promise."""

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import ConfigError, DataError, ModelError
from bigbird_dna.huggingface.tokenizer_files import find_tokenizer
from bigbird_dna.model.batching import placed_rows
from bigbird_dna.tokens.dna import SPECIAL_PIECES, DnaTokenizer
from bigbird_dna.tokens.interface import Tokenizer, mask_tokens, require_dna
from bigbird_dna.tokens.load import load_tokenizer
from bigbird_dna.tokens.text import JsonTokenizer, TextTokenizer
from tests.golden.messages import fails
from tests.tokens.text_model import merge_by_hand, text_model, unigram
from tests.toys import random_dna, small_tokenizer

TEXT = "promoters begin where genes begin, and genes end where nothing much begins"
SPECIALS = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
GAP = "-"  # in place of ten Ns and more, as published DNA vocabularies have it
# Of the `tokenizers` library; "fusing" makes one token of several letters that it doesn't know.
LIBRARY: dict[str, dict[str, Any]] = {
    "full": {},
    "without N": {"letters": "ACGT", "gaps": False},
    "fusing": {"letters": "ACGT", "fuse_unk": True},
}
# Segments of one kind of letter, so that runs of Ns of every length are drawn.
dna = st.lists(
    st.one_of(st.text("ACGT", max_size=60), st.integers(0, 40).map("N".__mul__)),
    max_size=8,
).map("".join)


def content(letters: str = "ABCGKMNRSTWY", *, gaps: bool = True, **model: Any) -> bytes:
    """A BPE tokenizer of DNA with special pieces at unusual ids."""
    pytest.importorskip("tokenizers")
    from tokenizers import Regex, normalizers, pre_tokenizers, processors, trainers
    from tokenizers import Tokenizer as LibraryTokenizer
    from tokenizers.models import BPE

    library = LibraryTokenizer(BPE(unk_token="[UNK]"))
    trainer = trainers.BpeTrainer(
        vocab_size=120,
        special_tokens=SPECIALS + [GAP] * gaps,
        initial_alphabet=list(letters),
        show_progress=False,
    )
    library.train_from_iterator([random_dna(400, seed) for seed in range(40)], trainer)
    if gaps:
        library.normalizer = normalizers.Replace(Regex("N{10,}"), GAP)
        library.pre_tokenizer = pre_tokenizers.Split(GAP, "isolated")
    library.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    values = json.loads(library.to_str())
    values["model"] |= model
    return json.dumps(values).encode()


@cache
def opened(name: str) -> Tokenizer:
    """A tokenizer of the kind that has this name."""
    if name in LIBRARY:
        return JsonTokenizer(content(**LIBRARY[name]))
    if name == "DNA":
        return small_tokenizer()
    if name == "text":
        return TextTokenizer(text_model(TEXT, 30))
    pytest.importorskip("tokenizers")
    return JsonTokenizer(unigram([*SPECIALS, "▁the", "▁gene", "s", "▁"]))


@pytest.fixture(scope="module")
def full() -> Tokenizer:
    return opened("full")


@settings(deadline=None)
@given(dna)
@pytest.mark.parametrize("name", ["DNA", *LIBRARY])
def test_tokens_cover_every_base_once(name: str, sequence: str) -> None:
    tokenizer = opened(name)
    ids, offsets = tokenizer.encode_with_offsets(sequence)
    assert (
        offsets[0] == 0
        and offsets[-1] == len(sequence)
        and len(offsets) == len(ids) + 1
    )
    assert ids.dtype == np.int32 and not {*ids.tolist()} & {*tokenizer.specials} - {
        tokenizer.unk_id
    }
    for index, start, end in zip(ids.tolist(), offsets[:-1], offsets[1:], strict=True):
        covered, piece = sequence[start:end], tokenizer.pieces[index]
        if index == tokenizer.unk_id:
            assert covered == "N" and "N" not in tokenizer.pieces
        elif piece == GAP:
            assert set(covered) == {"N"} and len(covered) >= 10
        else:
            assert covered == piece
    assert tokenizer.encode(sequence).tolist() == ids.tolist()
    short_gaps = tokenizer.decode(ids)
    if GAP not in [tokenizer.pieces[index] for index in ids]:
        assert short_gaps == sequence
        assert tokenizer.offsets(ids).tolist() == offsets.tolist()


@pytest.mark.parametrize("name", ["DNA", "text", "full"])
def test_copies_and_files_are_the_same(name: str, tmp_path: Path) -> None:
    own = opened(name)
    own.save(tmp_path / own.file_name)
    described = [own.description(), *([None] if own.is_dna else [])]
    copies = [pickle.loads(pickle.dumps(own))]
    for copy in [
        *copies,
        *(load_tokenizer(tmp_path / own.file_name, one) for one in described),
    ]:
        assert copy.sha256 == own.sha256 and copy.description() == own.description()
        assert copy.encode("ACGTTNACG").tolist() == own.encode("ACGTTNACG").tolist()


@pytest.mark.parametrize("name", ["DNA", "text", "full", "words"])
def test_ids_outside_the_vocabulary_are_refused(name: str) -> None:
    own = opened(name)
    for index in (-1, own.vocabulary):
        with fails(DataError, index):
            own.decode([5, index])


@pytest.mark.parametrize("name", ["tokenizer.model", "tokenizer.json"])
def test_files_that_are_no_tokenizer_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for written in (
        None,
        b"",
        b"hello",
        b"\x0a\x03abc",
        b'{"model": {"vocab": {"A": 0, "[CLS]": 1}}}',
    ):
        if written is not None:
            path.write_bytes(written)
        with fails(ModelError, path) as caught:
            load_tokenizer(path)
        assert str(caught.value).isprintable()
    with fails(ModelError, tmp_path):
        DnaTokenizer.load(tmp_path)


@pytest.mark.parametrize("name", ["text", "words"])
def test_tokenizers_of_text_have_no_bases(name: str) -> None:
    own = opened(name)
    text = TEXT if name == "text" else "the genes"
    assert not own.is_dna and own.decode(own.encode(text)) == text
    for call in (
        *(lambda: own.piece_lengths, lambda: own.base_ids, lambda: require_dna(own)),
        *(
            lambda: own.encode_with_offsets("ACGT"),
            lambda: own.offsets(own.encode(text)),
        ),
        lambda: placed_rows(own, ["ACGT"], 16, 0.5),
    ):
        with fails(ModelError):
            call()


# Of DNA, against a plain implementation of BPE


@settings(deadline=None)
@given(st.text("ACGT", max_size=120))
def test_same_pieces_as_a_plain_implementation_of_bpe(
    tokenizer: DnaTokenizer, sequence: str
) -> None:
    learned = [piece for piece in tokenizer.pieces if {*piece} <= {*"ACGT"}]
    assert [tokenizer.pieces[i] for i in tokenizer.encode(sequence)] == merge_by_hand(
        sequence, learned
    )


@settings(deadline=None)
@given(st.text("ACGT", max_size=50), st.integers(1, 30), st.text("ACGT", max_size=50))
def test_n_separates_bases_and_is_cut_into_runs(
    tokenizer: DnaTokenizer, left: str, count: int, right: str
) -> None:
    run = tokenizer.encode("N" * count)
    assert (
        len(run) == count // 6 + count % 6
    )  # the longest piece of this tokenizer has 6 bp
    whole = [*tokenizer.encode(left), *run, *tokenizer.encode(right)]
    assert tokenizer.encode(left + "N" * count + right).tolist() == whole


@settings(deadline=None, max_examples=20)
@given(st.lists(dna, max_size=6), st.integers(1, 3))
def test_a_batch_is_its_sequences(
    tokenizer: DnaTokenizer, sequences: list[str], threads: int
) -> None:
    rows = tokenizer.encode_batch(sequences, threads)
    assert [row.tolist() for row in rows] == [
        tokenizer.encode(s).tolist() for s in sequences
    ]


def test_pieces_have_their_places(tokenizer: DnaTokenizer) -> None:
    assert len(tokenizer) == tokenizer.vocabulary == 96
    assert tokenizer.pieces[:5] == SPECIAL_PIECES
    special = [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id]
    assert [*special, tokenizer.mask_id] == [0, 1, 2, 3, 4]
    assert tokenizer.piece_lengths.tolist() == [0] * 5 + [
        len(p) for p in tokenizer.pieces[5:]
    ]
    assert tokenizer.piece_lengths.max() == 6
    assert {
        tokenizer.pieces[i]
        for i in set(range(5, 96)) - set(tokenizer.base_ids.tolist())
    } == {
        "N",
        "NNNNNN",
    }
    assert tokenizer.decode([2, 3, 0, 1, 4]) == ""


def test_threads_share_a_tokenizer(tokenizer: DnaTokenizer) -> None:
    sequences = ["ACGT" * n for n in range(1, 200)]
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(tokenizer.encode, sequences))
    assert [tokenizer.decode(row) for row in rows] == sequences


def test_training_is_deterministic_and_gives_every_letter_a_piece(
    tmp_path: Path,
) -> None:
    sentences = ["ACGGT" * 40, "TTTTAACCA" * 30]
    first = DnaTokenizer.train(iter(sentences), tmp_path / "first", 24)
    second = DnaTokenizer.train(sentences, tmp_path / "second", 24)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    assert first.sha256 == second.sha256
    for vocabulary in (11, 12, 16):
        tokenizer = DnaTokenizer.train(["A" * 100], tmp_path / "model", vocabulary, 64)
        assert tokenizer.vocabulary == vocabulary
        assert tokenizer.decode(tokenizer.encode("GATNTACA")) == "GATNTACA"


def test_the_largest_possible_vocabulary_is_named_and_right(tmp_path: Path) -> None:
    sentences = ["ACGGT" * 40, "TTTTAACCA" * 30]
    with fails(ConfigError) as error:
        DnaTokenizer.train(sentences, tmp_path / "model", 5000)
    assert not list(tmp_path.iterdir())
    largest = int(str(error.value).split()[-1])
    assert (
        DnaTokenizer.train(sentences, tmp_path / "model", largest).vocabulary == largest
    )
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
    tmp_path: Path,
    sentences: list[str],
    vocabulary: int,
    longest: int,
    error: type[Exception],
    named: Any,
) -> None:
    with fails(error, *named):
        DnaTokenizer.train(sentences, tmp_path / "model", vocabulary, longest)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("sequence", "position"),
    [
        ("ACGTa", 5),
        ("ACUT", 3),
        ("AC GT", 3),
        ("AC\u2581GT", 3),
        ("[MASK]", 1),
        ("ACé", 3),
    ],
)
def test_other_letters_are_refused(
    tokenizer: DnaTokenizer, sequence: str, position: int
) -> None:
    with fails(DataError, repr(sequence[position - 1]), f"position {position}"):
        tokenizer.encode(sequence)
    with fails(DataError, "sequence 2", f"position {position}"):
        tokenizer.encode_batch(["ACGT", sequence])


@pytest.mark.parametrize(
    ("corpus", "pieces"),
    [
        (["A" * 55_000 + "CG" * 20_000], ("AA", "AAAA", "CG")),
        (["GNG", "C"] * 50 + ["TT"], ("TT",)),
    ],
)
def test_long_sentences_are_not_dropped_and_no_merge_leaves_one(
    tmp_path: Path, corpus: list[str], pieces: tuple[str, ...]
) -> None:
    """Above SentencePiece's limit; nor does a merge reach into N."""
    tokenizer = DnaTokenizer.train(corpus, tmp_path / "model", 11 + len(pieces))
    assert tokenizer.pieces[7 : 7 + len(pieces)] == pieces


@pytest.mark.parametrize("names", [{}, {"pad_piece": "[PAD]", "unk_piece": "[UNK]"}])
def test_tokenizers_of_something_else_are_refused(names: dict[str, str]) -> None:
    ids = {
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": 2,
        "eos_id": 3,
        "bos_piece": "[CLS]",
        "eos_piece": "[SEP]",
    }
    model = text_model(
        TEXT, 30, model_type="bpe", user_defined_symbols=["[MASK]"], **ids, **names
    )
    with fails(ModelError, "here"):
        DnaTokenizer(model, "here")


# Of text


def test_specials_are_found() -> None:
    model = opened("text").content
    tokenizer = TextTokenizer(model, None, 64)
    assert [*tokenizer.specials] == [0, 3, 4, 5, 6]
    assert tokenizer.vocabulary == len(tokenizer.pieces) == 64
    expected = sentencepiece.SentencePieceProcessor(model_proto=model).encode(TEXT)
    ids = tokenizer.encode(TEXT)
    assert (
        ids.tolist() == expected
        and tokenizer.encode_batch([TEXT])[0].tolist() == expected
    )
    assert tokenizer.decode([tokenizer.cls_id, *ids, tokenizer.sep_id, 60]) == TEXT


def test_found_in_a_checkpoint_by_the_names_of_its_settings(tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(opened("text").content)
    (tmp_path / "tokenizer_config.json").write_text(
        '{"cls_token": {"content": "[SEP]"}, "mask_token": "▁"}'
    )
    tokenizer = find_tokenizer(tmp_path, 30)
    assert (tokenizer.cls_id, tokenizer.sep_id) == (5, 5)
    assert tokenizer.pieces[tokenizer.mask_id] == "▁"
    again = find_tokenizer(tmp_path, 30, tmp_path / "spiece.model")
    assert again.description() == tokenizer.description()
    (tmp_path / "tokenizer_config.json").write_text('{"mask_token": "[NONE]"}')
    with fails(ModelError):
        find_tokenizer(tmp_path, 30)


# Of the library


def test_ids_are_the_librarys(full: Tokenizer) -> None:
    from tokenizers import Tokenizer as LibraryTokenizer

    library = LibraryTokenizer.from_str(content().decode())
    for seed in range(50):
        sequence = random_dna(300, seed) + "N" * seed + random_dna(50, seed + 99)
        ids = [full.cls_id, *full.encode(sequence).tolist(), full.sep_id]
        assert library.encode(sequence).ids == ids


def test_members(full: Tokenizer) -> None:
    assert (full.unk_id, full.cls_id, full.sep_id, full.pad_id, full.mask_id) == (
        0,
        1,
        2,
        3,
        4,
    )
    assert full.is_dna and full.vocabulary == len(full) == 120
    bases = {full.pieces[index] for index in full.base_ids}
    assert bases and all(set(piece) <= set("ACGT") for piece in bases)
    assert {*"ACGT"} <= bases and not {GAP, "N", "R", *SPECIALS} & bases
    lengths = dict(zip(full.pieces, full.piece_lengths.tolist(), strict=True))
    assert [lengths[name] for name in ("[UNK]", "[CLS]", GAP, "N", "R")] == [
        1,
        0,
        0,
        1,
        1,
    ]
    assert opened("without N").encode("ANNC").tolist()[1:3] == [0, 0]
    with fails(DataError):
        full.offsets(full.encode("A" + "N" * 12))
    with fails(DataError):
        full.encode("ACx")
    assert full.encode_batch([]) == [] and full.encode("").tolist() == []


def test_a_model_may_have_more_ids_than_pieces(full: Tokenizer) -> None:
    wide = JsonTokenizer(content(), None, 128)
    assert len(wide.piece_lengths) == wide.vocabulary == 128
    assert (
        wide.base_ids.tolist() == full.base_ids.tolist()
        and wide.piece_lengths[120:].sum() == 0
    )
    with fails(ModelError):
        JsonTokenizer(content(), None, 100)


def test_truncation_padding_and_dropout_of_the_file_are_off() -> None:
    values = json.loads(content(dropout=0.5))
    values["truncation"] = {
        "direction": "Right",
        "max_length": 8,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    tokenizer = JsonTokenizer(json.dumps(values).encode())
    sequence = random_dna(500, 3)
    assert tokenizer.decode(tokenizer.encode(sequence)) == sequence
    assert (
        tokenizer.encode(sequence).tolist()
        == JsonTokenizer(content()).encode(sequence).tolist()
    )


# Masks of masked-language modeling


VOCABULARY = 96  # of the fixture


@settings(deadline=None)
@given(
    ids=st.lists(st.integers(0, VOCABULARY - 1), max_size=80),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**32),
    dtype=st.sampled_from([np.uint16, np.int32, np.int64]),
)
def test_masks_keep_their_promises(
    tokenizer: DnaTokenizer,
    ids: list[int],
    fraction: float,
    seed: int,
    dtype: type,
) -> None:
    original = np.array(ids, dtype)
    original.flags.writeable = False
    rng = np.random.default_rng(seed)
    inputs, labels = mask_tokens(original, rng, fraction, tokenizer)
    chosen = labels != -100
    candidates = np.isin(original, tokenizer.base_ids)
    assert inputs.dtype == dtype and labels.dtype == np.int64
    assert not (chosen & ~candidates).any()
    least = min(1, int(candidates.sum()))
    assert chosen.sum() == max(least, round(fraction * int(candidates.sum())))
    assert (labels[chosen] == original[chosen]).all()
    assert (inputs[~chosen] == original[~chosen]).all()
    changed = inputs[inputs != original]
    assert np.isin(changed, [tokenizer.mask_id, *tokenizer.base_ids]).all()


def test_each_sequence_of_a_batch_has_its_share(tokenizer: DnaTokenizer) -> None:
    rng = np.random.default_rng(0)
    ids = rng.choice(tokenizer.base_ids, (4, 3, 100))
    ids[..., 0], ids[..., -1] = tokenizer.cls_id, tokenizer.sep_id
    ids[1, :, 60:] = tokenizer.pad_id
    inputs, labels = mask_tokens(ids, rng, 0.15, tokenizer)
    counts = (labels != -100).sum(-1)
    assert inputs.shape == labels.shape == ids.shape
    assert (counts[[0, 2, 3]] == 15).all()  # 14.7 of 98
    assert (counts[1] == 9).all()  # 8.85 of 59


def test_four_fifths_masked_a_tenth_replaced_a_tenth_kept(
    tokenizer: DnaTokenizer,
) -> None:
    rng = np.random.default_rng(1)
    ids = rng.choice(tokenizer.base_ids, 200_000)
    inputs, labels = mask_tokens(ids, rng, 0.5, tokenizer)
    now, was = inputs[labels != -100], ids[labels != -100]
    assert len(now) == 100_000
    masked = now == tokenizer.mask_id
    kept = now == was
    # A piece drawn at random is the same one in 1 of the pieces of bases.
    same = 0.1 / len(tokenizer.base_ids)
    assert masked.mean() == pytest.approx(0.8, abs=0.005)
    assert kept.mean() == pytest.approx(0.1 + same, abs=0.005)
    drawn = now[~masked & ~kept]
    uses = np.bincount(drawn, minlength=VOCABULARY)[tokenizer.base_ids]
    assert uses.sum() == len(drawn)
    assert uses.min() > 0.5 * uses.mean()


def test_every_place_is_chosen_equally_often_and_all_may_be_hidden(
    tokenizer: DnaTokenizer,
) -> None:
    ids = np.full((5000, 10), tokenizer.base_ids[0])
    _, labels = mask_tokens(ids, np.random.default_rng(2), 0.3, tokenizer)
    assert (labels != -100).mean(0) == pytest.approx(np.full(10, 0.3), abs=0.03)
    # With `hide_all` no chosen token is left in sight.
    ids = np.random.default_rng(3).integers(0, VOCABULARY, (4, 200)).astype(np.int32)
    hidden = mask_tokens(ids, np.random.default_rng(7), 0.15, tokenizer, hide_all=True)
    usual = mask_tokens(ids, np.random.default_rng(7), 0.15, tokenizer)
    chosen = hidden.labels != -100
    assert (hidden.inputs[chosen] == tokenizer.mask_id).all() and chosen.any()
    assert (
        hidden.inputs[~chosen] == ids[~chosen]
    ).all() and hidden.inputs.dtype == ids.dtype
    np.testing.assert_array_equal(hidden.labels, usual.labels)


def test_deterministic_by_generator(
    tokenizer: DnaTokenizer,
) -> None:
    ids = np.tile(tokenizer.base_ids, 3)
    masks = [
        mask_tokens(ids, np.random.default_rng(seed), 0.15, tokenizer)
        for seed in (3, 3, 4)
    ]
    np.testing.assert_array_equal(masks[0], masks[1])
    assert (masks[0].labels != masks[2].labels).any()
