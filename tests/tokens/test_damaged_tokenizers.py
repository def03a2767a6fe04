"""Tokenizer files that lie: each is refused with a sentence, before a library could crash, hang or swell."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece

from bigbird_dna.errors import ModelError
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.interface import LARGEST_FILE
from bigbird_dna.tokens.piece_model import (
    check_character_map,
    open_model,
    read_fields,
    read_number,
    write_field,
    write_number,
)
from bigbird_dna.tokens.text import JsonTokenizer, TextTokenizer, load_tokenizer
from tests.golden.messages import fails
from tests.tokens.text_model import text_model, unigram
from tests.toys import random_dna

TEXT = "the ﬁrst gene begins ½, then the  gene ends ①"
USER_DEFINED = 4


def piece(text: bytes, score: float = 0.0, kind: int = 1) -> bytes:
    body = (
        write_field(1, text) + b"\x15" + struct.pack("<f", score) + write_field(3, kind)
    )
    return write_field(1, body)


@pytest.fixture(scope="module")
def texts() -> bytes:
    return text_model("the gene begins, then the gene ends", 24)


def replaced(content: bytes, number: int, value: bytes) -> bytes:
    """The message with another value of a field."""
    return b"".join(
        write_field(f.number, value if f.number == number else f.value)
        for f in read_fields(content)
    )


def refused(content: bytes, *named: object, kind: type = TextTokenizer) -> None:
    with fails(ModelError, "here", *named) as caught:
        kind(content, source="here")
    assert str(caught.value).isprintable()


def test_numbers_of_the_wire_format() -> None:
    for number in (0, 1, 127, 128, 300, 2**32, 2**64 - 1):
        assert read_number(write_number(number), 0) == (
            number,
            len(write_number(number)),
        )
    for damaged in (b"", b"\x80", b"\xff" * 9 + b"\x02", b"\xff" * 20):
        with fails(ValueError):
            read_number(damaged, 0)


def test_the_library_does_with_the_checked_model_what_it_does_with_the_file(
    tokenizer: DnaTokenizer, texts: bytes
) -> None:
    dna = tokenizer.content
    for content, samples in (
        (dna, [random_dna(n, n) + "N" * (n % 40) for n in range(1, 200, 7)]),
        (texts, [TEXT, "", " ", "a" * 99, "ﷺ" * 9]),
    ):
        file = sentencepiece.SentencePieceProcessor(model_proto=content)
        checked, model = open_model(content, "here")
        assert model.pieces == [
            file.id_to_piece(index) for index in range(file.get_piece_size())
        ]
        for sample in samples:
            ids = file.encode(sample)
            assert checked.encode(sample) == ids
            assert checked.decode(ids) == file.decode(ids)


def test_a_model_that_is_cut_off_is_refused_wherever_it_is_cut(
    tokenizer: DnaTokenizer,
) -> None:
    content = tokenizer.content
    for end in range(0, len(content) - 1, 3):
        with fails(ModelError):
            DnaTokenizer(content[:end], "here")


def test_damaged_bytes_are_refused_or_leave_a_tokenizer_that_encodes(
    tokenizer: DnaTokenizer,
) -> None:
    rng = np.random.default_rng(0)
    sequence = random_dna(200, 3) + "N" * 20
    for _ in range(1500):
        content = bytearray(tokenizer.content)
        for place in rng.integers(0, len(content), rng.integers(1, 4)):
            content[place] = rng.integers(0, 256)
        try:
            damaged = DnaTokenizer(bytes(content), "here")
        except ModelError:
            continue
        assert damaged.decode(damaged.encode(sequence)) == sequence


UNKNOWN = piece(b"<unk>", 0, 2)
MALFORMED = [
    *(
        UNKNOWN + piece(text)
        for text in (b"A\xff", b"\xed\xa0\x80", b"A\0", b"", b"A" * 5000)
    ),
    UNKNOWN + piece(b"A") * 2,
    UNKNOWN + piece(b"A" * 4000) * 1050,
    *(UNKNOWN + piece(b"A", score) for score in (float("nan"), float("-inf"), 1e30)),
    UNKNOWN + piece(b"A", 0, 9),
    UNKNOWN + b"".join(piece(b"A" * n, 0, USER_DEFINED) for n in range(1, 99)),
    UNKNOWN + write_field(1, write_field(1, b"A") + write_field(1, b"B")),
    *(
        UNKNOWN + piece(b"A") + rest
        for rest in (
            write_field(2, write_field(3, 99)),
            write_field(2, write_field(3, 1)) * 2,
            write_field(2, 5),
            b"\x0b",
            b"\x12\xff\xff\xff\xff\x0f",
            write_field(2, write_field(44, b"?" * 10**5)),
        )
    ),
    piece(b"A", 0, 3),
]


@pytest.mark.parametrize("content", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_models_are_refused(content: bytes) -> None:
    refused(content)


def charsmap(units: list[int], texts: bytes = b"a\0") -> bytes:
    body = np.array(units, "<u4").tobytes()
    return struct.pack("<I", len(body)) + body + texts


LOOP = [0] * 512
for place in range(256):
    LOOP[place] = place  # every unit is its own parent


RULES = [
    b"\0\0",
    struct.pack("<I", 1 << 30) + bytes(99),
    charsmap([1 << 20] * 256),
    charsmap([0x8000_0000] * 256),
    *(charsmap([0] * 256, text) for text in (b"a", b"\xff\0", b"a" * 999 + b"\0")),
    charsmap([0x100 | 1] * 256, b"a\0"),
    charsmap(LOOP),
]


@pytest.mark.parametrize("content", RULES, ids=range(len(RULES)))
def test_rules_of_normalization_are_followed_before_the_library_does(
    texts: bytes, content: bytes
) -> None:
    with fails(ValueError):
        check_character_map(content)
    refused(replaced(texts, 3, write_field(2, content)))


def test_a_model_of_dna_that_would_give_other_tokens_is_refused(
    tokenizer: DnaTokenizer,
) -> None:
    fields = list(read_fields(tokenizer.content))
    for index, kind in {30: 5, 0: 1, 5: 1}.items():
        bodies = [write_field(f.number, f.value) for f in fields]
        bodies[index] = piece(tokenizer.pieces[index].encode(), -1, kind)
        refused(b"".join(bodies), f"token {index}", f"type {kind}", kind=DnaTokenizer)
    for number, value in ((3, write_field(3, 1)), (3, b""), (2, write_field(3, 1))):
        refused(replaced(tokenizer.content, number, value), kind=DnaTokenizer)


def test_files_that_are_too_large_are_not_read(tmp_path: Path) -> None:
    for name in ("tokenizer.model", "tokenizer.json"):
        with (tmp_path / name).open("wb") as stream:
            stream.truncate(LARGEST_FILE + 1)
        with fails(ModelError):
            load_tokenizer(tmp_path / name)


@pytest.mark.parametrize(
    "change",
    [
        {"vocabulary": 10**12},
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


def added(**changes: Any) -> list[dict[str, Any]]:
    flags = dict.fromkeys(
        ("single_word", "lstrip", "rstrip", "normalized", "special"), False
    )
    return [{"id": 10, "content": "X", **flags, **changes}]


VALUES: tuple[Any, ...] = (10**9, 10**300, -1, True, 10.0, 9, [10])
JSON = [
    *(description(model={"vocab": LETTERS | {"AC": value}}) for value in VALUES),
    *(
        description(model={"vocab": vocabulary})
        for vocabulary in (LETTERS | {"\ud800": 10}, 5, {})
    ),
    description(model={"vocab": [["A", 0], [7, 0]]}),
    description(model={"vocab": {"A": 0, "[CLS]": 1}}),
    description(model={"continuing_subword_prefix": [1]}),
    description(added_tokens=[5]),
    *(
        description(added_tokens=added(**change))
        for change in ({"id": 9}, {"content": "A"}, {"id": "10"})
    ),
    b"[" * 100_000,
    *(
        b'{"model": {"vocab": {"A": ' + number + b"}}}"
        for number in (b"9" * 5000, b"1e999")
    ),
    *(b"\xff", b"", b"{}"),
]


@pytest.mark.parametrize("content", JSON, ids=range(len(JSON)))
def test_malformed_json_tokenizers_are_refused(content: bytes) -> None:
    refused(content, kind=JsonTokenizer)


def replace(pattern: dict[str, str], text: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": text}


DOUBLING = {"type": "Sequence", "normalizers": [replace({"String": "A"}, "AA")] * 40}
STEPS: list[dict[str, Any]] = [
    {"normalizer": DOUBLING},
    {"normalizer": replace({"String": "A"}, "A" * 10**5)},
    {"normalizer": replace({"Regex": "(A+)+X"}, "-")},
    {"normalizer": replace({"Regex": "A" * 2000}, "-")},
    {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 99}},
    {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    {"pre_tokenizer": {"type": "Unheard"}},
    {"model": {"merges": [["A", "XX"]]}},
    {"model": {"type": "WordPiece", "max_input_chars_per_word": 10**9}},
    {"model": {"end_of_word_suffix": "x" * 99}},
]


@pytest.mark.parametrize("changes", STEPS, ids=range(len(STEPS)))
def test_steps_without_end_are_refused_when_it_first_encodes(
    changes: dict[str, Any],
) -> None:
    pytest.importorskip("tokenizers")
    tokenizer = JsonTokenizer(description(**changes), source="here")
    with fails(ModelError, "here"):
        tokenizer.encode("ACGTN")


def test_an_unknown_piece_that_is_missing_and_a_sign_before_a_text() -> None:
    pytest.importorskip("tokenizers")
    tokenizer = JsonTokenizer(description(model={"unk_token": "[GONE]"}))
    assert tokenizer.decode(tokenizer.encode("ACGTN")) == "ACGTN"
    # A sign put before a text covers no base.
    tokenizer = JsonTokenizer(unigram([*LETTERS]))
    ids, offsets = tokenizer.encode_with_offsets("ACGTN")
    assert ids.tolist() == [5, 6, 7, 8, 9] and offsets.tolist() == [0, 1, 2, 3, 4, 5]


def test_long_gaps_take_linear_time() -> None:
    """Each N a symbol: the first covers the run, and none of the others may read it again."""
    pytest.importorskip("tokenizers")
    changes = {
        "normalizer": replace({"String": "N"}, "-"),
        "model": {"vocab": LETTERS | {"-": 10}},
    }
    tokenizer = JsonTokenizer(description(**changes))
    sequence = "A" + "N" * 300_000 + "C"
    ids, offsets = tokenizer.encode_with_offsets(sequence)
    assert (
        len(ids) == 300_002
        and offsets[:3].tolist() == [0, 1, 300_001]
        and offsets[-1] == len(sequence)
    )
