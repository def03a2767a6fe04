"""SentencePiece tokenizers of ordinary text."""

import pickle
from pathlib import Path

import pytest
import sentencepiece

from bigbird_dna.errors import DataError, ModelError
from bigbird_dna.huggingface.tokenizer_files import find_tokenizer
from bigbird_dna.tokens.text import TextTokenizer, load_tokenizer
from tests.golden.messages import fails
from tests.tokens.text_model import text_model

TEXT = "promoters begin where genes begin, and genes end where nothing much begins"


@pytest.fixture(scope="module")
def model() -> bytes:
    return text_model(TEXT, 30)


def test_specials_are_found_and_text_comes_back(model: bytes, tmp_path: Path) -> None:
    tokenizer = TextTokenizer(model, None, 64)
    specials = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id)
    assert (*specials, tokenizer.mask_id) == (0, 3, 4, 5, 6)
    assert tokenizer.vocabulary == len(tokenizer.pieces) == 64
    expected = sentencepiece.SentencePieceProcessor(model_proto=model).encode(TEXT)
    ids = tokenizer.encode(TEXT)
    assert ids.tolist() == expected and tokenizer.encode_batch([TEXT])[0].tolist() == expected
    assert tokenizer.decode([tokenizer.cls_id, *ids, tokenizer.sep_id, 60]) == TEXT
    tokenizer.save(tmp_path / "tokenizer.model")
    for copy in (
        pickle.loads(pickle.dumps(tokenizer)),
        load_tokenizer(tmp_path / "tokenizer.model", tokenizer.description()),
    ):
        assert copy.sha256 == tokenizer.sha256 and copy.description() == tokenizer.description()


def test_it_has_nothing_to_do_with_bases(model: bytes) -> None:
    tokenizer = TextTokenizer(model)
    with fails(ModelError):
        tokenizer.encode_with_offsets("ACGT")
    with fails(ModelError):
        tokenizer.offsets(tokenizer.encode("ACGT"))
    for name in ("piece_lengths", "base_ids"):
        with fails(ModelError):
            getattr(tokenizer, name)
    with fails(DataError):
        tokenizer.decode([30])


def test_found_in_a_checkpoint_by_the_names_of_its_settings(model: bytes, tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(model)
    (tmp_path / "tokenizer_config.json").write_text('{"cls_token": {"content": "[SEP]"}, "mask_token": "▁"}')
    tokenizer = find_tokenizer(tmp_path, 30)
    assert (tokenizer.cls_id, tokenizer.sep_id) == (5, 5)
    assert tokenizer.pieces[tokenizer.mask_id] == "▁"
    again = find_tokenizer(tmp_path, 30, tmp_path / "spiece.model")
    assert again.description() == tokenizer.description()
    (tmp_path / "tokenizer_config.json").write_text('{"mask_token": "[NONE]"}')
    with fails(ModelError):
        find_tokenizer(tmp_path, 30)
