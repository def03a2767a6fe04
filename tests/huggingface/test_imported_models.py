"""An imported checkpoint of DNA, with a tokenizer of its own, goes all the way: fine-tune, score, export."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.huggingface.exchange import export_huggingface, import_huggingface
from bigbird_dna.huggingface.tokenizer_files import (
    bpe_tokenizer,
    find_tokenizer,
    write_tokenizer,
)
from bigbird_dna.model.bases import PositionReader
from bigbird_dna.model.batching import pad
from bigbird_dna.model.directory import load, load_promoter_model
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.kernels import row_sigmoid
from bigbird_dna.model.promoter import PromoterRows, promoter_rows, row_logits
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.store import TokenStore
from bigbird_dna.tokens.text import JsonTokenizer
from tests.cli.command import invoke
from tests.tokens.test_tokenizer import content

transformers = pytest.importorskip(
    "transformers",
    reason="transformers is not installed: pip install 'bigbird-dna[hf]'",
)

SIZES: dict[str, Any] = {
    "layers": 1,
    "hidden": 16,
    "heads": 2,
    "block_size": 4,
    "random_blocks": 1,
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights at random and a `tokenizer.json` that puts a symbol in place of long gaps."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = transformers.BigBirdConfig(
        **{
            "vocab_size": 128,
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
        },
        **{
            "intermediate_size": 64,
            "max_position_embeddings": 128,
            "block_size": 4,
            "num_random_blocks": 1,
        },
        **{"pad_token_id": 3, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2},
        initializer_range=0.4,
    )
    torch.manual_seed(1)
    path = tmp_path_factory.mktemp("imported") / "hf"
    transformers.BigBirdForPreTraining(config).save_pretrained(path)
    (path / "tokenizer.json").write_bytes(content())
    return path


@pytest.fixture(scope="module")
def promoter(checkpoint: Path, tiny_config: Path) -> Path:
    """A promoter model fine-tuned from the imported one."""
    home = checkpoint.parent
    invoke("import-hf", checkpoint, home / "pretrained")
    settings = [
        *(f"encoder.{key}={value}" for key, value in SIZES.items()),
        *("encoder.intermediate=64", "encoder.compatibility=huggingface"),
        *(
            "encoder.vocabulary=128",
            "promoters.classifier.pooling=cls",
            "promoters.classifier.dropout=0.0",
        ),
        *(
            "promoters.classifier.base_positions=false",
            "promoters.classifier.ensemble=false",
        ),  # else not exported
    ]
    invoke(
        *("finetune-promoter", tiny_config, "--negative-set", "genomic"),
        *("--pretrained", home / "pretrained", "-o", home / "promoter"),
        *("--checkpoint-dir", home / "checkpoints"),
        *(word for setting in settings for word in ("--set", setting)),
    )
    return home / "promoter"


def _windows(count: int) -> list[str]:
    rng = np.random.default_rng(2)
    made = ["".join(rng.choice(list("ACGT"), 100)) for _ in range(count)]
    return [
        window[:40] + "N" * (i % 25) + window[40 + i % 25 :]
        for i, window in enumerate(made)
    ]


def test_an_imported_tokenizer_gives_every_base_its_offset(promoter: Path) -> None:
    model = load_promoter_model(promoter)
    settings = model.settings.model_copy(update={"base_positions": True})
    windows = _windows(8)
    left, right = 7, 3
    rows = promoter_rows(
        model.tokenizer, windows, [(left, right)] * 8, settings, model.config.max_length
    )
    ids, _ = pad(rows.ids, model.tokenizer.pad_id)
    reader = PositionReader(settings.window)
    reader.attach(model.tokenizer)
    found, starts = reader.positions(ids, torch.from_numpy(rows.firsts))
    assert starts.diff(dim=1).sum(1).tolist() == [len(windows[0]) - left - right] * 8
    expected = []
    for window in windows:
        for position in range(left, len(window) - right):
            letter = "ACGTN".index(window[position])
            expected.append(0 if letter == 4 else 1 + 4 * position + letter)
    assert found.tolist() == expected


def test_company_does_not_matter_though_padding_would() -> None:
    """In HuggingFace's arithmetic the last global block is that of the padded input."""
    torch.manual_seed(0)
    sizes = {
        **SIZES,
        "layers": 2,
        "vocabulary": 32,
        "max_length": 128,
        "compatibility": "huggingface",
    }
    network = Classifier(EncoderConfig(**sizes), outputs=1).eval()
    for parameter in network.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    rng = np.random.default_rng(0)
    rows = [
        rng.integers(5, 32, n).astype(np.int32)
        for n in (30, 33, 40, 38, 41, 60, 64, 90)
    ]

    def predicted(rows: list[np.ndarray]) -> np.ndarray:
        logits = row_logits(
            network,
            PromoterRows(rows, np.zeros(len(rows), int)),
            0,
            8,
            torch.device("cpu"),
        )
        return row_sigmoid(torch.from_numpy(logits))[:, 0].numpy()

    alone = np.concatenate([predicted([row]) for row in rows])
    together = predicted(rows)
    np.testing.assert_allclose(together, alone, atol=1e-5)
    ids, lengths = pad(rows, 0)
    with torch.inference_mode():
        padded = torch.sigmoid(network(ids, lengths)[:, 0]).numpy()
    assert abs(padded - alone).max() > 1e-3
    assert predicted([]).shape == (0,)


def test_exported_it_gives_the_same_probabilities_there(
    promoter: Path, tmp_path: Path
) -> None:
    export_huggingface(promoter, tmp_path / "hf")
    pieces = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    model = load(promoter)
    assert (
        isinstance(model.tokenizer, JsonTokenizer) and model.tokenizer.vocabulary == 128
    )
    windows = _windows(6)
    expected = model.predict(windows, device="cpu")
    for window, probability in zip(windows, expected, strict=True):
        inputs = pieces(window, return_tensors="pt")
        ids = [1, *model.tokenizer.encode(window).tolist(), 2]
        assert inputs["input_ids"][0].tolist() == ids
        network = transformers.BigBirdForSequenceClassification.from_pretrained(
            tmp_path / "hf"
        )
        with torch.inference_mode():
            logit = network.eval()(**inputs).logits
        assert torch.sigmoid(logit).item() == pytest.approx(
            float(probability), abs=1e-5
        )
    back = import_huggingface(tmp_path / "hf", tmp_path / "back")
    assert back.task == "promoter"
    assert back.settings == model.settings.model_copy(update={"pooling": "cls"})
    np.testing.assert_allclose(back.predict(windows, device="cpu"), expected, atol=1e-6)


def test_genome_commands_take_its_tokenizer(
    checkpoint: Path, tiny_config: Path, tmp_path: Path
) -> None:
    file = checkpoint / "tokenizer.json"
    invoke(
        "prepare tokens", tiny_config, "--tokenizer", file, "-o", tmp_path / "tokens"
    )
    found = json.loads((tmp_path / "tokens/statistics.json").read_text())
    genome = found["genome"]
    assert genome["unknown_tokens"] == 0 and genome["bases_per_token"] > 1
    tokens = TokenStore(tmp_path / "tokens/train").tokens
    assert 0 < tokens.max() < 120


# `tokenizer.json` of a DnaTokenizer gives the same ids as its SentencePiece model


pytest.importorskip(
    "tokenizers", reason="tokenizers is not installed: pip install 'bigbird-dna[hf]'"
)


def sequences(count: int, seed: int) -> Iterator[str]:
    """Random, periodic, run-rich and gapped sequences: ties between merges are in the periodic ones."""
    rng = np.random.default_rng(seed)

    def draw(low: int, high: int) -> str:
        return "".join(
            rng.choice(list("ACGT"), rng.integers(low, high), p=rng.dirichlet([1] * 4))
        )

    for number in range(count):
        if number % 4 == 0:
            yield draw(1, 400)
        elif number % 4 == 1:
            yield (draw(1, 7) * 80)[: rng.integers(1, 300)]
        elif number % 4 == 2:
            yield "".join(draw(1, 4) * int(rng.integers(1, 12)) for _ in range(10))
        else:
            yield "".join(
                "N" * int(rng.integers(0, 50)) + draw(1, 60) for _ in range(5)
            )


@pytest.mark.parametrize(("vocabulary", "longest"), [(64, 6), (300, 32), (2000, 16)])
def test_same_ids_as_sentencepiece(
    vocabulary: int, longest: int, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.model"
    tokenizer = DnaTokenizer.train(sequences(400, 0), path, vocabulary, longest)
    library = bpe_tokenizer(tokenizer)
    for sequence in sequences(500, 1):
        found = library.encode(sequence, add_special_tokens=False)
        assert found.ids == tokenizer.encode(sequence).tolist(), sequence
        assert library.decode(found.ids) == sequence
    pair = library.encode("ACGT", "TTGN")
    first, second = (
        [*tokenizer.encode(one), tokenizer.sep_id] for one in ("ACGT", "TTGN")
    )
    assert pair.ids == [tokenizer.cls_id, *first, *second]
    assert pair.type_ids == [0] * (1 + len(first)) + [1] * len(second)


def test_written_files_hold_the_same_tokenizer(
    tokenizer: DnaTokenizer, tmp_path: Path
) -> None:
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
