"""Tokenizer files that are damaged, or of something else, are refused with one sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from bigbird_dna.errors import ModelError
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.load import load_tokenizer
from bigbird_dna.tokens.text import JsonTokenizer, TextTokenizer
from tests.golden.messages import fails
from tests.tokens.text_model import text_model, unigram

TEXT = "the gene begins, then the gene ends"


@pytest.fixture(scope="module")
def texts() -> bytes:
    return text_model(TEXT, 24)


def test_a_model_that_is_cut_off_is_refused_wherever_it_is_cut(
    tokenizer: DnaTokenizer,
) -> None:
    content = tokenizer.content
    for end in range(0, len(content) - 1, 37):
        with fails(ModelError, "here"):
            DnaTokenizer(content[:end], "here")


def test_models_of_other_text_are_not_dna_tokenizers(texts: bytes) -> None:
    with fails(ModelError, "here"):
        DnaTokenizer(texts, "here")
    for content in (b"", b"hello", bytes(500)):
        for kind in (DnaTokenizer, TextTokenizer):
            with fails(ModelError, "here"):
                kind(content, source="here")


@pytest.mark.parametrize(
    "change",
    [
        {"vocabulary": True},
        {"vocabulary": "30"},
        {"pad": 0.0},
        {"mask": -1},
        {"unk": float("inf")},
        {"cls": None},
        {"vocabulary": 20},
        {"mask": 99},
        {"sep": ...},
    ],
)
def test_damaged_descriptions_are_refused(
    texts: bytes, tmp_path: Path, change: dict[str, Any]
) -> None:
    (tmp_path / "tokenizer.model").write_bytes(texts)
    described = TextTokenizer(texts).description() | change
    described = {key: value for key, value in described.items() if value is not ...}
    with fails(ModelError, tmp_path / "tokenizer.model"):
        load_tokenizer(tmp_path / "tokenizer.model", described)


SPECIALS = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
LETTERS = {name: index for index, name in enumerate([*SPECIALS, *"ACGTN"])}


def description(**changes: Any) -> bytes:
    model = {
        "type": "BPE",
        "unk_token": "[UNK]",
        "vocab": LETTERS,
        "merges": [],
    } | changes.pop("model", {})
    return json.dumps(
        {"version": "1.0", "added_tokens": [], "model": model, **changes}
    ).encode()


JSON = [
    *(
        description(model={"vocab": LETTERS | {"AC": value}})
        for value in (-1, 9, [10], "x")
    ),
    *(description(model={"vocab": vocabulary}) for vocabulary in (5, {})),
    description(model={"vocab": {"A": 0, "[CLS]": 1}}),
    description(added_tokens=[5]),
    b"[" * 100_000,
    *(b"\xff", b"", b"{}", b"[]"),
]


@pytest.mark.parametrize("content", JSON, ids=range(len(JSON)))
def test_malformed_json_tokenizers_are_refused(content: bytes) -> None:
    with fails(ModelError, "here"):
        JsonTokenizer(content, source="here")


@pytest.mark.parametrize(
    "changes",
    [
        {"pre_tokenizer": {"type": "Unheard"}},
        {"model": {"merges": [["A", "XX"]]}},
    ],
)
def test_what_the_library_refuses_is_refused(changes: dict[str, Any]) -> None:
    pytest.importorskip("tokenizers")
    with fails(ModelError, "here"):
        JsonTokenizer(description(**changes), source="here")


def test_a_library_that_drops_letters_is_refused() -> None:
    letters = {name: index for name, index in LETTERS.items() if name != "N"}
    tokenizer = JsonTokenizer(description(model={"unk_token": None, "vocab": letters}))
    with fails(ModelError):
        tokenizer.encode("ACNGT")


def test_an_unknown_piece_that_is_missing_and_a_sign_before_a_text() -> None:
    pytest.importorskip("tokenizers")
    tokenizer = JsonTokenizer(description(model={"unk_token": "[GONE]"}))
    assert tokenizer.decode(tokenizer.encode("ACGTN")) == "ACGTN"
    # A sign put before a text covers no base.
    tokenizer = JsonTokenizer(unigram([*LETTERS]))
    ids, offsets = tokenizer.encode_with_offsets("ACGTN")
    assert ids.tolist() == [5, 6, 7, 8, 9] and offsets.tolist() == [0, 1, 2, 3, 4, 5]


def test_long_gaps_take_linear_time() -> None:
    """Each N a symbol."""
    pytest.importorskip("tokenizers")
    changes = {
        "normalizer": {"type": "Replace", "pattern": {"String": "N"}, "content": "-"},
        "model": {"vocab": LETTERS | {"-": 10}},
    }
    tokenizer = JsonTokenizer(description(**changes))
    sequence = "A" + "N" * 300_000 + "C"
    ids, offsets = tokenizer.encode_with_offsets(sequence)
    assert (
        len(ids) == 300_002
        and offsets[:3].tolist() == [0, 1, 2]
        and offsets[-1] == len(sequence)
    )
