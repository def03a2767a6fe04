"""Tokenizers of the `tokenizers` library: every base in one token, whatever the vocabulary lacks."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import DataError, ModelError
from bigbird_dna.model.batching import window_rows
from bigbird_dna.tokens.interface import NOT_MASKED, Tokenizer, mask_tokens, require_dna
from bigbird_dna.tokens.text import JsonTokenizer, load_tokenizer
from tests.golden.messages import fails
from tests.toys import random_dna

pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install 'bigbird-dna[hf]'")

SPECIALS = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
GAP = "-"  # in place of ten Ns and more, as published DNA vocabularies have it
CODE = "ABCGKMNRSTWY"

dna = st.lists(st.one_of(st.text("ACGT", max_size=60), st.integers(0, 30).map("N".__mul__)), max_size=8).map(
    "".join
)


def content(letters: str = CODE, *, gaps: bool = True, **model: Any) -> bytes:
    """A BPE tokenizer of DNA with special pieces at unusual ids."""
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


@pytest.fixture(scope="module")
def full() -> JsonTokenizer:
    return JsonTokenizer(content())


@pytest.fixture(scope="module")
def without_n() -> JsonTokenizer:
    return JsonTokenizer(content("ACGT", gaps=False))


@pytest.fixture(scope="module")
def silent() -> JsonTokenizer:
    """Drops letters that it doesn't know."""
    return JsonTokenizer(content("ACGT", gaps=False, unk_token=None))


@pytest.fixture(scope="module")
def fusing() -> JsonTokenizer:
    """Makes one unknown token of neighbouring unknown letters; replaces long gaps."""
    return JsonTokenizer(content("ACGT", fuse_unk=True))


@settings(deadline=None)
@given(dna)
@pytest.mark.parametrize("name", ["full", "without_n", "silent", "fusing"])
def test_tokens_cover_every_base_once(request: pytest.FixtureRequest, name: str, sequence: str) -> None:
    tokenizer = request.getfixturevalue(name)
    ids, offsets = tokenizer.encode_with_offsets(sequence)
    assert offsets[0] == 0 and offsets[-1] == len(sequence) and len(offsets) == len(ids) + 1
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


def test_ids_are_the_librarys(full: JsonTokenizer) -> None:
    from tokenizers import Tokenizer as LibraryTokenizer

    library = LibraryTokenizer.from_str(content().decode())
    for seed in range(50):
        sequence = random_dna(300, seed) + "N" * seed + random_dna(50, seed + 99)
        ids = [full.cls_id, *full.encode(sequence).tolist(), full.sep_id]
        assert library.encode(sequence).ids == ids


def test_members(full: JsonTokenizer, without_n: JsonTokenizer) -> None:
    assert (full.unk_id, full.cls_id, full.sep_id, full.pad_id, full.mask_id) == (0, 1, 2, 3, 4)
    assert full.is_dna and full.vocabulary == len(full) == 120
    bases = {full.pieces[index] for index in full.base_ids}
    assert bases and all(set(piece) <= set("ACGT") for piece in bases)
    assert {*"ACGT"} <= bases and not {GAP, "N", "R", *SPECIALS} & bases
    lengths = dict(zip(full.pieces, full.piece_lengths.tolist(), strict=True))
    assert [lengths[name] for name in ("[UNK]", "[CLS]", GAP, "N", "R")] == [1, 0, 0, 1, 1]
    assert without_n.encode("ANNC").tolist()[1:3] == [0, 0]
    with fails(DataError):
        full.offsets(full.encode("A" + "N" * 12))
    with fails(DataError):
        full.encode("ACx")
    with fails(DataError):
        full.decode([120])
    assert full.encode_batch([]) == [] and full.encode("").tolist() == []


def test_copies_and_files_are_the_same(full: JsonTokenizer, tmp_path: Path) -> None:
    full.save(tmp_path / "tokenizer.json")
    sequence = random_dna(200, 5)
    copies: list[Tokenizer] = [
        pickle.loads(pickle.dumps(full)),
        load_tokenizer(tmp_path / "tokenizer.json"),
        load_tokenizer(tmp_path / "tokenizer.json", full.description()),
    ]
    for copy in copies:
        assert copy.sha256 == full.sha256 and copy.description() == full.description()
        assert copy.encode(sequence).tolist() == full.encode(sequence).tolist()


def test_a_model_may_have_more_ids_than_pieces(full: JsonTokenizer) -> None:
    wide = JsonTokenizer(content(), None, 128)
    assert len(wide.piece_lengths) == wide.vocabulary == 128
    assert wide.base_ids.tolist() == full.base_ids.tolist() and wide.piece_lengths[120:].sum() == 0
    with fails(ModelError):
        JsonTokenizer(content(), None, 100)


def test_masking_and_windows_work_with_it(full: JsonTokenizer) -> None:
    (row,) = window_rows(full, [random_dna(300, 1) + "N" * 20], 4096, 0.5)
    assert row[0] == full.cls_id and row[-1] == full.sep_id
    inputs, labels = mask_tokens(row, np.random.default_rng(0), 0.3, full, hide_all=True)
    chosen = labels != NOT_MASKED
    assert chosen.any() and (inputs[chosen] == full.mask_id).all()
    assert np.isin(labels[chosen], full.base_ids).all()


def test_truncation_padding_and_dropout_of_the_file_are_off() -> None:
    values = json.loads(content(dropout=0.5))
    values["truncation"] = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    tokenizer = JsonTokenizer(json.dumps(values).encode())
    sequence = random_dna(500, 3)
    assert tokenizer.decode(tokenizer.encode(sequence)) == sequence
    assert tokenizer.encode(sequence).tolist() == JsonTokenizer(content()).encode(sequence).tolist()


def test_files_that_are_missing_or_damaged_are_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    for content_ in (None, b"", b'{"model": {"vocab": {"A": 0, "[CLS]": 1}}}'):
        if content_ is not None:
            path.write_bytes(content_)
        with fails(ModelError, path) as caught:
            load_tokenizer(path)
        assert "\n" not in str(caught.value)


def test_a_tokenizer_of_text_has_no_bases() -> None:
    words = {name: index for index, name in enumerate([*SPECIALS, "▁the", "▁gene", "s", "▁"])}
    vocabulary = [[piece, 0.0 if index < 5 else -1.0] for piece, index in words.items()]
    values = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": vocabulary},
    }
    tokenizer = JsonTokenizer(json.dumps(values).encode())
    assert not tokenizer.is_dna
    ids = tokenizer.encode("the genes")
    assert ids.tolist() == [5, 6, 7] and tokenizer.decode(ids) == "the genes"
    for attribute in ("piece_lengths", "base_ids"):
        with fails(ModelError):
            getattr(tokenizer, attribute)
    with fails(ModelError):
        require_dna(tokenizer)
    with fails(ModelError):
        window_rows(tokenizer, ["ACGT"], 16, 0.5)
