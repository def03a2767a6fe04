"""`tokenizer.json` of a DnaTokenizer gives the same ids as its SentencePiece model."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.huggingface.tokenizer_files import bpe_description, find_tokenizer, write_tokenizer
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.text import JsonTokenizer

pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install 'bigbird-dna[hf]'")


def sequences(count: int, seed: int) -> Iterator[str]:
    """Random, periodic, run-rich and gapped sequences: ties between merges are in the periodic ones."""
    rng = np.random.default_rng(seed)

    def draw(low: int, high: int) -> str:
        return "".join(rng.choice(list("ACGT"), rng.integers(low, high), p=rng.dirichlet([1] * 4)))

    for number in range(count):
        if number % 4 == 0:
            yield draw(1, 400)
        elif number % 4 == 1:
            yield (draw(1, 7) * 80)[: rng.integers(1, 300)]
        elif number % 4 == 2:
            yield "".join(draw(1, 4) * int(rng.integers(1, 12)) for _ in range(10))
        else:
            yield "".join("N" * int(rng.integers(0, 50)) + draw(1, 60) for _ in range(5))


@pytest.mark.parametrize(("vocabulary", "longest"), [(64, 6), (300, 32), (2000, 16)])
def test_same_ids_as_sentencepiece(vocabulary: int, longest: int, tmp_path: Path) -> None:
    from tokenizers import Tokenizer as LibraryTokenizer

    path = tmp_path / "tokenizer.model"
    tokenizer = DnaTokenizer.train(sequences(400, 0), path, vocabulary, longest)
    library = LibraryTokenizer.from_str(json.dumps(bpe_description(tokenizer)))
    for sequence in sequences(2000, 1):
        found = library.encode(sequence, add_special_tokens=False)
        assert found.ids == tokenizer.encode(sequence).tolist(), sequence
        assert library.decode(found.ids) == sequence
    pair = library.encode("ACGT", "TTGN")
    ids = [
        *[tokenizer.cls_id, *tokenizer.encode("ACGT"), tokenizer.sep_id],
        *[*tokenizer.encode("TTGN"), tokenizer.sep_id],
    ]
    assert pair.ids == ids
    assert pair.type_ids == [0] * (len(tokenizer.encode("ACGT")) + 2) + [1] * (
        len(tokenizer.encode("TTGN")) + 1
    )


def test_written_files_hold_the_same_tokenizer(tokenizer: DnaTokenizer, tmp_path: Path) -> None:
    write_tokenizer(tokenizer, tmp_path, 512)
    assert find_tokenizer(tmp_path, tokenizer.vocabulary).sha256 == tokenizer.sha256
    (tmp_path / "bigbird_dna.model").unlink()
    table = find_tokenizer(tmp_path, tokenizer.vocabulary)
    assert isinstance(table, JsonTokenizer) and table.is_dna
    assert table.pieces == tokenizer.pieces
    assert table.base_ids.tolist() == tokenizer.base_ids.tolist()
    assert table.piece_lengths.tolist()[2:] == tokenizer.piece_lengths.tolist()[2:]
    for sequence in sequences(200, 2):
        ids, offsets = table.encode_with_offsets(sequence)
        expected = tokenizer.encode_with_offsets(sequence)
        assert ids.tolist() == expected.ids.tolist()
        assert offsets.tolist() == expected.offsets.tolist()
