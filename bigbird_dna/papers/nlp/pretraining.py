"""Masked-language modeling on documents: training, and bits per character compared with an n-gram."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DataCollatorForLanguageModeling

from bigbird_dna.baselines.ngram import KneserNey
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import reading
from bigbird_dna.errors import DataError
from bigbird_dna.model.directory import load_pretrained
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.papers.nlp.config import PretrainingTaskConfig, TextPaths
from bigbird_dna.papers.nlp.data import write_splits
from bigbird_dna.papers.nlp.records import TextRecord, read_records
from bigbird_dna.papers.nlp.start import check_positions, fast_tokenizer, make_start
from bigbird_dna.papers.nlp.trainer import Seeded, fit
from bigbird_dna.pretraining.task import init_from_counts

MASKED = 0.15  # fraction of masked tokens
NGRAM = 8  # longest n-gram of the character baseline
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
        text = row.get("text")
        if not isinstance(text, str):
            raise DataError("the data set needs a column 'text'")
        return {"text": text} if text.strip() else None

    write_splits(section.data, directory, TextRecord, convert, None)


def read_inputs(
    path: Path, tokenizer: Any, length: int, stride: int | None, cache: Path
) -> Any:
    """Return the inputs of a file of documents, [CLS] tokens [SEP], as a memory-mapped data set.

    No input spans two documents; inputs of a document begin every `stride` tokens, without overlap if None.
    """
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    overlap = max(length - 2 - stride, 0) if stride else 0

    def tokenize(batch: dict[str, list[str]]) -> dict[str, Any]:
        encoded = tokenizer(
            batch["text"],
            truncation=True,
            max_length=length,
            stride=overlap,
            return_overflowing_tokens=True,
            return_special_tokens_mask=True,
        )
        names = ("input_ids", "attention_mask", "special_tokens_mask")
        return {name: encoded[name] for name in names}

    with reading(path, "not readable as records", Exception):
        documents = Dataset.from_json(str(path), cache_dir=str(cache))
    columns = documents.column_names
    return documents.map(tokenize, batched=True, remove_columns=columns)


def train(
    section: PretrainingTaskConfig,
    paths: TextPaths,
    output: Path,
    checkpoints: Path,
    **options: Any,
) -> None:
    """Train on masked tokens and write a model directory; `options` are those of `fit`."""
    files = [paths.split("train"), paths.split("valid")]
    texts = (record.text for record in read_records(files[0], TextRecord))
    start = make_start(section, texts)
    check_positions({"length": section.length}, start.config.max_length)
    tokenizer = fast_tokenizer(start.tokenizer)
    cache = checkpoints / "datasets"
    train = read_inputs(files[0], tokenizer, section.length, section.stride, cache)
    valid = read_inputs(files[1], tokenizer, section.length, None, cache)
    network = MaskedModel(start.config, next_sentence=False)
    start.initialize(network)
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

    fit(
        network,
        section,
        start,
        PretrainingSettings(next_sentence=False),
        files,
        Seeded(train, section.seed),
        Seeded(valid, section.seed),
        collate,
        output,
        checkpoints,
        **options,
    )


def evaluate(
    section: PretrainingTaskConfig, paths: TextPaths, records: Path, directory: Path
) -> dict[str, Any]:
    """Return bits per character of masked tokens, for a model and for an n-gram of characters.

    The n-gram sees everything to the left, also other masked tokens, and nothing to the right. It is fitted
    to the training documents, and its order is chosen on those for validation.
    """
    model = load_pretrained(directory)
    device = choose_device()
    network = model.network.to(device).eval()
    assert isinstance(network, PretrainingNetwork)
    tokenizer = fast_tokenizer(model.tokenizer)
    rng = np.random.default_rng(section.seed)
    texts = [record.text for record in read_records(records, TextRecord)]
    letter_bits = character_bits(paths, texts)
    bits = right = characters = ngram = tokens = 0.0
    for text, letters in zip(texts, letter_bits, strict=True):
        encoded = tokenizer(
            text,
            truncation=True,
            max_length=section.length,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        before = np.concatenate([[0.0], letters.cumsum()])
        for row, offsets in zip(
            encoded["input_ids"], encoded["offset_mapping"], strict=True
        ):
            # A character of several tokens is counted with the first.
            ends = np.maximum.accumulate([end for _, end in offsets[:-1]])
            starts = np.concatenate([[offsets[1][0]], ends[1:-1]])
            hidden = np.flatnonzero(rng.random(len(starts)) < MASKED)
            ids = torch.tensor([row], device=device)
            at = torch.from_numpy(hidden + 1).to(device)
            labels = ids[0, at]
            ids[0, at] = model.tokenizer.mask_id
            with torch.inference_mode():
                lengths = torch.tensor([len(row)])
                logits = PretrainingNetwork.forward(network, ids, lengths, None, at)
            loss = F.cross_entropy(logits.tokens.float(), labels, reduction="sum")
            bits += float(loss) / np.log(2)
            right += int((logits.tokens.argmax(-1) == labels).sum())
            tokens += len(hidden)
            first, last = starts[hidden], ends[1:][hidden]
            characters += int((last - first).sum())
            ngram += float((before[last] - before[first]).sum())
    if not characters:
        raise DataError(f"{records}: no tokens to mask")
    return {
        "bits_per_character": bits / characters,
        "masked_accuracy": right / tokens,
        "character_ngram": ngram / characters,
        "hidden_tokens": int(tokens),
        "hidden_characters": int(characters),
    }


def character_bits(paths: TextPaths, texts: list[str]) -> list[Any]:
    """Return the bits of each character of texts by a Kneser–Ney n-gram of the training documents.

    Characters not in the training text are one additional symbol.
    """
    train, valid = (
        [record.text for record in read_records(paths.split(split), TextRecord)]
        for split in ("train", "valid")
    )
    alphabet = sorted(set().union(*train))
    numbers = {letter: number for number, letter in enumerate(alphabet)}

    def encode(text: str) -> Any:
        return np.array([numbers.get(x, len(alphabet)) for x in text], np.int32)

    model = KneserNey(NGRAM, len(alphabet) + 1)
    lowest = np.inf
    for fitted in model.fitted_orders([encode(text) for text in train]):
        bits = [-fitted.log2_probabilities(encode(text)) for text in valid]
        mean = np.concatenate(bits).mean()
        if mean < lowest:
            lowest, best = mean, fitted
    log(f"n-gram of characters: order {best.order}")
    return [-best.log2_probabilities(encode(text)) for text in texts]
