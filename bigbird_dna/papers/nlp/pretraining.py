"""Masked-language modeling on documents: training, and bits per character."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DataCollatorForLanguageModeling

from bigbird_dna.disk.atomic import reading
from bigbird_dna.errors import DataError
from bigbird_dna.model.directory import load_pretrained
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.papers.nlp.config import (
    CHECKPOINTS,
    TRAIN,
    VALID,
    PretrainingTaskConfig,
)
from bigbird_dna.papers.nlp.data import write_splits
from bigbird_dna.papers.nlp.records import TextRecord, read_records
from bigbird_dna.papers.nlp.trainer import fast_tokenizer, fit, make_start
from bigbird_dna.pretraining.task import init_from_counts

MASKED = 0.15  # fraction of masked tokens
IGNORED = -100
COUNTED = 100_000
"""Most inputs whose pairs of adjacent tokens are counted to initialize the token embeddings."""


class MaskedModel(PretrainingNetwork):
    """Encoder with the masked-token head, for transformers' `Trainer`."""

    accepts_loss_kwargs = True

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        labels: Tensor,
        num_items_in_batch: Tensor | int | None = None,
    ) -> dict[str, Tensor]:
        """Return the loss in nats per token, and logits (M, V) of the labeled tokens of ids (B, L)."""
        masked = (labels.flatten() != IGNORED).nonzero()[:, 0]
        lengths = attention_mask.sum(1)
        logits = super().forward(input_ids, lengths, None, masked).tokens.float()
        loss = F.cross_entropy(logits, labels.flatten()[masked], reduction="sum")
        count = len(masked) if num_items_in_batch is None else num_items_in_batch
        return {"loss": loss / count, "logits": logits}


def prepare(section: PretrainingTaskConfig, directory: Path) -> None:
    """Write the documents of the three splits."""

    def convert(row: Mapping[str, Any]) -> dict[str, Any] | None:
        return {"text": row["text"]} if row["text"].strip() else None

    write_splits(section.data, directory, TextRecord, convert, None)


def read_inputs(
    path: Path, tokenizer: Any, length: int, stride: int, cache: Path
) -> Any:
    """Return the inputs of a file of documents, [CLS] tokens [SEP], as a memory-mapped data set.

    No input spans two documents; consecutive inputs of a document have `stride` tokens in common.
    """
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()

    def tokenize(batch: dict[str, list[str]]) -> dict[str, Any]:
        encoded = tokenizer(
            batch["text"],
            truncation=True,
            max_length=length,
            stride=stride,
            return_overflowing_tokens=True,
            return_special_tokens_mask=True,
        )

        names = ("input_ids", "attention_mask", "special_tokens_mask")
        return {name: encoded[name] for name in names}

    with reading(path, "not readable as records", Exception):
        documents = Dataset.from_json(str(path), cache_dir=str(cache))

    columns = documents.column_names
    return documents.map(tokenize, batched=True, remove_columns=columns)


def train(section: PretrainingTaskConfig, home: Path, **options: Any) -> None:
    """Train on masked tokens and write a model directory; `options` are those of `fit`."""
    files = home / TRAIN, home / VALID
    texts = (record.text for record in read_records(files[0], TextRecord))
    start = make_start(section, texts)
    tokenizer = fast_tokenizer(start.tokenizer)
    cache = home / CHECKPOINTS / "datasets"
    train = read_inputs(files[0], tokenizer, section.length, section.stride, cache)
    valid = read_inputs(files[1], tokenizer, section.length, 0, cache)

    network = MaskedModel(start.config, next_sentence=False)
    if not start.weights:
        rows = [np.array(ids[1:-1]) for ids in train[:COUNTED]["input_ids"]]
        bounds = np.cumsum([0, *map(len, rows)])
        documents = np.arange(len(bounds))
        store: Any = SimpleNamespace(
            tokens=np.concatenate(rows), sentences=bounds, documents=documents
        )
        init_from_counts(network, store)

    mask = DataCollatorForLanguageModeling(tokenizer, mlm_probability=MASKED, seed=1)

    def collate(examples: Sequence[Any]) -> dict[str, Tensor]:
        rows, seeds = zip(*examples, strict=True)
        (seed,) = np.random.SeedSequence(seeds[0]).generate_state(1).tolist()
        mask.generator = torch.Generator().manual_seed(seed)

        return dict(mask([*rows]))

    settings = PretrainingSettings(next_sentence=False)
    fit(network, section, home, start, settings, train, valid, collate, **options)


def evaluate(
    section: PretrainingTaskConfig, records: Path, directory: Path
) -> dict[str, Any]:
    """Evaluate a pretrained model on held-out documents.

    Parameters
    ----------
    section
        The task, whose seed determines the masked tokens.
    records
        Documents. `DataError` if they have no tokens.
    directory
        The model. `ModelError` if it is of another task.

    Returns
    -------
    `bits_per_character`, the mean bits per masked token times the tokens per character of the documents, and
    the number of `masked_tokens`.
    """
    device = choose_device("auto")
    model = load_pretrained(directory)
    network: Any = model.network.to(device)
    tokenizer = fast_tokenizer(model.tokenizer)
    rng = np.random.default_rng(section.seed)

    bits = masked = tokens = characters = 0.0
    for record in read_records(records, TextRecord):
        characters += len(record.text)
        encoded = tokenizer(
            record.text,
            truncation=True,
            max_length=section.length,
            return_overflowing_tokens=True,
        )
        for row in encoded["input_ids"]:
            tokens += len(row) - 2

            hidden = np.flatnonzero(rng.random(len(row) - 2) < MASKED) + 1
            positions = torch.from_numpy(hidden).to(device)
            ids = torch.tensor([row], device=device)
            labels = ids[0, positions]
            ids[0, positions] = model.tokenizer.mask_id
            with torch.inference_mode():
                lengths = torch.tensor([len(row)])
                logits = network(ids, lengths, None, positions).tokens.float()

            loss = F.cross_entropy(logits, labels, reduction="sum")

            bits += float(loss) / np.log(2)
            masked += len(hidden)

    if not masked:
        raise DataError(f"{records}: no tokens to mask")

    return {
        "bits_per_character": bits / masked * tokens / characters,
        "masked_tokens": int(masked),
    }
