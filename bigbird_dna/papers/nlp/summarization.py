"""Summarization: training, prediction and metrics (App. E.5).

ROUGE is computed by the library `rouge-score`, Google's implementation (Lin 2004). Words are stemmed (Porter)
and in lower case, with letters and digits only, as in the papers. ROUGE-Lsum compares sentences: a text with
line breaks has one sentence per line, like the highlights of CNN/DailyMail; other texts are divided after
'.', '!' or '?' followed by white space.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rouge_score.rouge_scorer import RougeScorer
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer, GenerationConfig, TrainerCallback

from bigbird_dna.disk.atomic import checksum
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
from bigbird_dna.papers.nlp.start import (
    Start,
    check_positions,
    fast_tokenizer,
    make_start,
)
from bigbird_dna.papers.nlp.summarizer import (
    IGNORED,
    SummariesSettings,
    Summarizer,
    open_pegasus,
)
from bigbird_dna.papers.nlp.trainer import Seeded, fit

MEASURES = ("rouge1", "rouge2", "rougeL", "rougeLsum")


class Collator(TrainerCallback):  # type: ignore[misc]
    """Converts records to inputs of a network, with documents that grow with the steps.

    `ConfigError` if documents or summaries are longer than the network's positions.
    """

    def __init__(
        self,
        tokenizer: Any,
        section: SummariesTaskConfig,
        positions: int,
        start_id: int | None,
    ) -> None:
        lengths = {
            "document_tokens": section.document_tokens,
            "search.max_length": section.search.max_length,
        }
        check_positions(lengths, positions)
        self.tokenizer, self.section = tokenizer, section
        self.accumulation, self.batches = 1, 0
        self.start_id, self.end_id = tokenizer.cls_token_id, tokenizer.sep_token_id
        if start_id is not None:  # Pegasus
            self.start_id, self.end_id = start_id, tokenizer.eos_token_id

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.accumulation = args.gradient_accumulation_steps
        self.batches = state.global_step * self.accumulation

    def next_tokens(self) -> int:
        """Return the tokens of the documents of the next training batch."""
        step = self.batches // self.accumulation
        self.batches += 1
        for stage in self.section.length_curriculum:
            if step < stage.steps:
                return min(stage.tokens, self.section.document_tokens)
            step -= stage.steps
        return self.section.document_tokens

    def documents(
        self, records: Sequence[SummaryRecord], tokens: int
    ) -> dict[str, Tensor]:
        """Return padded ids of documents, with [CLS], which Pegasus lacks, and [SEP]."""
        rows = []
        start = self.tokenizer.cls_token_id
        before = [] if start is None else [start]
        room = tokens - len(before) - 1
        for record in records:
            ids = self.tokenizer(record.document, add_special_tokens=False)["input_ids"]
            ids = ids[-room:] if self.section.keep == "last" else ids[:room]
            rows.append(torch.tensor([*before, *ids, self.end_id]))
        return {
            "input_ids": pad_sequence(
                rows, batch_first=True, padding_value=self.tokenizer.pad_token_id
            ),
            "attention_mask": pad_sequence(
                [torch.ones_like(row) for row in rows], batch_first=True
            ),
        }

    def __call__(self, examples: Sequence[Any]) -> dict[str, Tensor]:
        """Return documents, summaries with their [SEP] as labels, and the decoder's inputs.

        Examples of training have a seed; those of evaluation are records, with complete documents.
        """
        records, tokens = examples, self.section.document_tokens
        if isinstance(examples[0], tuple):
            records = [record for record, _ in examples]
            tokens = self.next_tokens()
        most = self.section.search.max_length - 2
        labels = []
        for record in records:
            ids = self.tokenizer(record.summary, add_special_tokens=False)["input_ids"]
            labels.append(torch.tensor([*ids[:most], self.end_id]))
        padded = pad_sequence(labels, batch_first=True, padding_value=IGNORED)
        inputs = padded.roll(1, 1)
        inputs[inputs == IGNORED] = self.tokenizer.pad_token_id
        inputs[:, 0] = self.start_id
        batch = self.documents(records, tokens)
        return {**batch, "decoder_input_ids": inputs, "labels": padded}


def is_pegasus(directory: Path) -> bool:
    """Return whether a directory is a BigBirdPegasus checkpoint; `ModelError` if it has no `config.json`."""
    values = read_object(directory / "config.json")
    return values.get("model_type") == "bigbird_pegasus"


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


def read_complete(path: Path) -> list[SummaryRecord]:
    """Return the records of a file; `DataError` if one has no summary."""
    return read_labeled(
        path,
        SummaryRecord,
        lambda record: None if (record.summary or "").strip() else "summary",
    )


def open_model(directory: Path, section: SummariesTaskConfig) -> tuple[Any, Any, int]:
    """Return the network of a model directory or a checkpoint of BigBird-Pegasus, its tokenizer and number of
    positions; `ModelError` if it is of another task."""
    if is_pegasus(directory):
        network = open_pegasus(directory, section.encoder)
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        return network, tokenizer, network.config.max_position_embeddings
    model = load(directory)
    if not isinstance(model.settings, SummariesSettings):
        raise ModelError(f"{directory}: needs a summaries model")
    return model.network, fast_tokenizer(model.tokenizer), model.config.max_length


def train(
    section: SummariesTaskConfig, paths: TextPaths, output: Path, **options: Any
) -> None:
    """Train a summarizer and write its directory; `options` are those of `fit`.

    A start from BigBird-Pegasus gives a directory of transformers, other starts a model directory.
    """
    files = [paths.split("train"), paths.split("valid")]
    train, valid = (read_complete(path) for path in files)
    directory = Path(section.start.model or "")
    network: Any
    if section.start.model is not None and is_pegasus(directory):
        torch.manual_seed(section.seed)
        network, tokenizer, positions = open_model(directory, section)
        weights = sorted([*directory.glob("*.safetensors"), *directory.glob("*.bin")])
        sha256 = " ".join(map(checksum, weights))
        start, settings = Start(section.encoder, tokenizer, {}, sha256), None
    else:
        texts = (
            text for record in train for text in (record.document, str(record.summary))
        )
        start = make_start(section, texts)
        settings, tokenizer = SummariesSettings(), fast_tokenizer(start.tokenizer)
        positions = start.config.max_length
        network = Summarizer(start.config)
        is_new = not any("cross" in name for name in start.weights)
        if section.initial_cross == "matching" and is_new:
            network.match_tokens()
        start.initialize(network)
    start_id = network.config.decoder_start_token_id
    collator = Collator(tokenizer, section, positions, start_id)
    fit(
        network,
        section,
        start,
        settings,
        files,
        Seeded(train, section.seed),
        valid,
        collator,
        output,
        callbacks=[collator],
        **options,
    )


def predict(
    section: SummariesTaskConfig,
    directory: Path,
    path: Path,
    device: torch.device,
    batch_size: int,
) -> Iterator[dict[str, Any]]:
    """Yield the summary of each document by beam search.

    On a CPU, every document is summarized separately, so that no bit depends on other documents.
    """
    network, tokenizer, positions = open_model(directory, section)
    network.to(device).eval()
    start_id = network.config.decoder_start_token_id
    collator = Collator(tokenizer, section, positions, start_id)
    search = section.search
    settings = GenerationConfig(
        num_beams=search.beams,
        do_sample=False,
        max_length=search.max_length,
        length_penalty=search.length_penalty,
        early_stopping=search.beams > 1,
        decoder_start_token_id=collator.start_id,
        bos_token_id=collator.start_id,
        eos_token_id=collator.end_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    records = [*read_records(path, SummaryRecord)]
    together = 1 if device.type == "cpu" else batch_size
    for first in range(0, len(records), together):
        batch = records[first : first + together]
        inputs = collator.documents(batch, section.document_tokens)
        with torch.inference_mode():
            rows = network.generate(
                **{name: x.to(device) for name, x in inputs.items()},
                generation_config=settings,
            )
        summaries = tokenizer.batch_decode(rows, skip_special_tokens=True)
        for record, summary in zip(batch, summaries, strict=True):
            yield {"id": record.id, "summary": summary.strip()}


def evaluate(
    section: SummariesTaskConfig, paths: TextPaths, path: Path, predictions: Path
) -> dict[str, Any]:
    """Return the mean F1 of ROUGE by measure, from 0 to 1.

    ROUGE-1 and -2 count common words and pairs of words; ROUGE-L uses the longest common subsequence of
    complete summaries. ROUGE-Lsum uses that of each true sentence with the union of the predicted sentences
    (the papers' "ROUGE-L" for summaries of several sentences).
    """
    records = read_complete(path)
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
    text = text.strip()
    lines = text.splitlines() if "\n" in text else re.split(r"(?<=[.!?])\s+", text)
    return "\n".join(line.strip() for line in lines if line.strip())
