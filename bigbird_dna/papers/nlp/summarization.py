"""Summarization: training, prediction and metrics (App. E.5).

ROUGE is computed by the library `rouge-score`, Google's implementation (Lin 2004). Words are stemmed (Porter)
and in lower case, with letters and digits only, as in the papers. ROUGE-Lsum compares sentences, which end at
a line break, or after '.', '!' or '?' followed by white space.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rouge_score.rouge_scorer import RougeScorer
from torch import Tensor
from transformers import AutoTokenizer, BigBirdPegasusForConditionalGeneration
from transformers.models.encoder_decoder.modeling_encoder_decoder import (
    shift_tokens_right,
)

from bigbird_dna.disk.atomic import checksum, reading
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ModelError
from bigbird_dna.model.directory import load
from bigbird_dna.papers.nlp.config import SummariesTaskConfig, TextPaths
from bigbird_dna.papers.nlp.data import column, generate_facts, write_splits
from bigbird_dna.papers.nlp.records import (
    SummaryRecord,
    read_labeled,
    read_predictions,
    read_records,
)
from bigbird_dna.papers.nlp.start import Start, fast_tokenizer, make_start
from bigbird_dna.papers.nlp.summarizer import SummariesSettings, Summarizer
from bigbird_dna.papers.nlp.trainer import fit

MEASURES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
IGNORED = -100


def prepare(section: SummariesTaskConfig, directory: Path) -> None:
    """Write the records of the three splits."""
    write_splits(section.data, directory, SummaryRecord, public_record, generate_facts)


def public_record(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Convert a row of arXiv, PubMed, BigPatent, XSum or CNN/DailyMail; None if a part is empty."""
    document = str(column(row, "document", "article", "description"))
    summary = str(column(row, "summary", "abstract", "highlights"))
    if not document.strip() or not summary.strip():
        return None
    return {"document": document, "summary": summary}


def open_model(directory: Path) -> tuple[Any, Any]:
    """Return the network and the tokenizer of a model directory or a checkpoint of BigBird-Pegasus.

    `ModelError` if it is of another task.
    """
    if is_pegasus(directory):
        with reading(directory, "cannot be loaded", Exception):
            network = BigBirdPegasusForConditionalGeneration.from_pretrained(directory)
            return network, AutoTokenizer.from_pretrained(directory)
    model = load(directory)
    if not isinstance(model.settings, SummariesSettings):
        raise ModelError(f"{directory}: needs a summaries model")
    return model.network, fast_tokenizer(model.tokenizer)


def is_pegasus(directory: Path) -> bool:
    """Return whether a directory is a BigBirdPegasus checkpoint; `ModelError` if it has no `config.json`."""
    values = read_object(directory / "config.json")
    return values.get("model_type") == "bigbird_pegasus"


def first_token(network: Any, tokenizer: Any) -> int:
    """Return the id of the token that summaries begin with."""
    start: int | None = getattr(network.config, "decoder_start_token_id", None)
    return tokenizer.cls_token_id if start is None else start


def encode(texts: Sequence[str], tokenizer: Any, network: Any, length: int) -> Any:
    """Return the padded ids and mask of texts, truncated to `length` or the network's positions."""
    return tokenizer(
        texts,
        truncation=True,
        max_length=min(length, network.config.max_position_embeddings),
        padding=True,
        return_token_type_ids=False,
        return_tensors="pt",
    )


def train(section: SummariesTaskConfig, paths: TextPaths, **options: Any) -> None:
    """Train a summarizer and write its directory; `options` are those of `fit`.

    A start from BigBird-Pegasus gives a directory of transformers, other starts a model directory.
    """
    train = read_labeled(paths.split("train"), SummaryRecord, section)
    valid = read_labeled(paths.split("valid"), SummaryRecord, section)
    directory = Path(section.start.model or "")
    settings: SummariesSettings | None = None
    network: Any
    if section.start.model is not None and is_pegasus(directory):
        torch.manual_seed(section.seed)
        network, tokenizer = open_model(directory)
        weights = sorted(directory.glob("*.safetensors"))
        start = Start(section.encoder, tokenizer, {}, " ".join(map(checksum, weights)))
    else:
        texts = [record.document for record in train]
        start = make_start(section, texts + [str(record.summary) for record in train])
        settings, tokenizer = SummariesSettings(), fast_tokenizer(start.tokenizer)
        network = Summarizer(start.config)
        start.initialize(network)
    start_id = first_token(network, tokenizer)

    def collate(examples: Sequence[Any]) -> dict[str, Tensor]:
        documents = [record.document for record, _ in examples]
        summaries = [record.summary for record, _ in examples]
        inputs = encode(documents, tokenizer, network, section.document_tokens)
        outputs = encode(summaries, tokenizer, network, section.summary_tokens)
        labels = outputs["input_ids"].masked_fill(
            outputs["attention_mask"] == 0, IGNORED
        )
        if (labels[:, 0] == start_id).all():
            labels = labels[:, 1:]
        shifted = shift_tokens_right(labels, tokenizer.pad_token_id, start_id)
        return {**inputs, "decoder_input_ids": shifted, "labels": labels}

    fit(network, section, paths, start, settings, train, valid, collate, **options)


def predict(
    section: SummariesTaskConfig,
    directory: Path,
    path: Path,
    device: torch.device,
    batch_size: int,
) -> Iterator[dict[str, Any]]:
    """Yield the summary of each document by the search that `section.generation` configures.

    On a CPU, every document is summarized separately, so that no bit depends on other documents.
    """
    network, tokenizer = open_model(directory)
    network.to(device).eval()
    records = [*read_records(path, SummaryRecord)]
    step = 1 if device.type == "cpu" else batch_size
    for first in range(0, len(records), step):
        batch = records[first : first + step]
        documents = [record.document for record in batch]
        inputs = encode(documents, tokenizer, network, section.document_tokens)
        with torch.inference_mode():
            rows = network.generate(
                **inputs.to(device),
                max_length=section.summary_tokens,
                decoder_start_token_id=first_token(network, tokenizer),
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
                **section.generation,
            )
        summaries = tokenizer.batch_decode(rows, skip_special_tokens=True)
        for record, summary in zip(batch, summaries, strict=True):
            yield {"id": record.id, "summary": summary.strip()}


def evaluate(
    section: SummariesTaskConfig, path: Path, predictions: Path
) -> dict[str, Any]:
    """Return the mean F1 of ROUGE by measure, from 0 to 1.

    ROUGE-1 and -2 count common words and pairs of words; ROUGE-L uses the longest common subsequence of
    complete summaries. ROUGE-Lsum uses that of each true sentence with the union of the predicted sentences
    (the papers' "ROUGE-L" for summaries of several sentences).
    """
    records = read_labeled(path, SummaryRecord, section)
    lines = read_predictions(predictions, "summary", records)
    scorer = RougeScorer(MEASURES, use_stemmer=True)
    metrics = dict.fromkeys(MEASURES, 0.0)
    for record, line in zip(records, lines, strict=True):
        true, predicted = split_sentences(str(record.summary)), line["summary"]
        scores = scorer.score(true, split_sentences(predicted))
        for measure in MEASURES:
            metrics[measure] += scores[measure].fmeasure / len(records)
    return {**metrics, "records": len(records)}


def split_sentences(text: str) -> str:
    """Return a text with one sentence per line."""
    return re.sub(r"(?<=[.!?])\s+|\s*\n\s*", "\n", text.strip())
