"""The exported tokenizer reads DNA as this package does: lower case and IUPAC codes, too."""

import random
from pathlib import Path

import pytest

from bigbird_dna.genome.sequence import clean
from bigbird_dna.huggingface.tokenizer_files import find_tokenizer, write_tokenizer
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.toys import random_dna

transformers = pytest.importorskip("transformers")


def soft_masked() -> list[str]:
    """Sequences with parts in lower case, IUPAC codes, and runs of N of several lengths."""
    generator = random.Random(1)
    texts = [
        "n" * 40,
        "RYSWKMBDHVryswkmbdhv",
        "acgt",
        "",
        "N",
        "ACGTTGCANNGGATCCTTAA" * 3,
    ]
    for seed in range(30):
        letters = [*random_dna(400, seed)]
        for _ in range(6):
            first = generator.randrange(400)
            last = first + generator.randrange(70)
            run = generator.choice(["n", "N", "R", "y", None, None])
            part = letters[first:last]
            letters[first:last] = [run or letter.lower() for letter in part]
        texts.append("".join(letters))
    return texts


def test_soft_masked_sequences_have_the_same_tokens(
    tmp_path: Path, tokenizer: DnaTokenizer
) -> None:
    write_tokenizer(tokenizer, tmp_path, 256)
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = soft_masked()
    ids = [[*map(int, tokenizer.encode(clean(text, "x")))] for text in texts]
    assert exported(texts)["input_ids"] == [
        [tokenizer.cls_id, *row, tokenizer.sep_id] for row in ids
    ]
    assert not any(tokenizer.unk_id in row for row in ids)
    found = exported.encode("[CLS]acg[MASK]ttn[SEP]", add_special_tokens=False)
    parts = [[*map(int, tokenizer.encode(one))] for one in ("ACG", "TTN")]
    assert found == [
        tokenizer.cls_id,
        *parts[0],
        tokenizer.mask_id,
        *parts[1],
        tokenizer.sep_id,
    ]

    # import-hf, from either file.
    assert find_tokenizer(tmp_path, tokenizer.vocabulary).sha256 == tokenizer.sha256
    again = find_tokenizer(tmp_path, tokenizer.vocabulary, tmp_path / "tokenizer.json")
    assert again.is_dna
    for text, row in zip(texts, ids, strict=True):
        assert again.encode(clean(text, "x")).tolist() == row
