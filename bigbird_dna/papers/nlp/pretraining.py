"""Masked-language modeling on documents: training, and bits per character compared with n-grams."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bigbird_dna.baselines.ngram import KneserNey
from bigbird_dna.console import log, progress
from bigbird_dna.errors import ConfigError, DataError, UsageError
from bigbird_dna.model.directory import load_pretrained
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.papers.nlp.config import GeneratedConfig, PretrainingTaskConfig
from bigbird_dna.papers.nlp.records import TextRecord, read_records
from bigbird_dna.papers.nlp.task import Metrics, TextTask
from bigbird_dna.pretraining.held_out import HeldOut
from bigbird_dna.pretraining.task import PretrainingObjective, init_from_counts
from bigbird_dna.tokens.interface import TextPieces, Tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.task import TrainingResult

CHARACTERS = 8  # longest n-gram of the character baseline


class TextTokens(NamedTuple):
    """Tokens of a file of documents, with the interface of a token store. N tokens, D documents."""

    directory: Path  # the file, for error messages
    tokens: NDArray[np.uint32]  # (N,)
    widths: NDArray[np.int64]  # (N,) characters per token; they add up to the texts
    sentences: NDArray[np.int64]  # (D + 1,) starts of documents, and the end
    texts: tuple[str, ...]  # (D,)

    @property
    def documents(self) -> NDArray[np.int64]:
        """Documents as index ranges of sentences: every document is one sentence."""
        return np.arange(len(self.sentences))


def tokenize_records(path: Path, tokenizer: Tokenizer) -> TextTokens:
    """Tokenize the documents of a file in memory: 12 bytes per token, plus the text.

    `DataError` as in `read_records`, or if no document has a token.
    """
    tokens, widths, texts = [], [], []
    for record in progress(read_records(path, TextRecord), "tokens of documents", None):
        encoded = tokenizer.text_pieces(record.text)
        tokens.append(encoded.ids.astype(np.uint32))
        widths.append(token_widths(encoded, len(record.text)))
        texts.append(record.text)
    bounds = np.cumsum([0, *(len(ids) for ids in tokens)])
    if not bounds[-1]:
        raise DataError(f"{path}: the documents have no tokens")
    return TextTokens(
        path, np.concatenate(tokens), np.concatenate(widths), bounds, tuple(texts)
    )


def token_widths(encoded: TextPieces, length: int) -> NDArray[np.int64]:
    """Return the number of characters that each token adds (n,); their sum is the text's `length`.

    White space dropped by a tokenizer is counted with the next token, or with the last token at the end. A
    character of several tokens is counted with the first.
    """
    if not len(encoded.ends):
        return np.zeros(0, np.int64)
    ends = np.maximum.accumulate(encoded.ends.astype(np.int64))
    ends[-1] = length
    return np.diff(ends, prepend=0)


def character_ngram(
    train: TextTokens, valid: TextTokens, test: TextTokens, longest: int
) -> tuple[int, NDArray[np.float64]]:
    """Fit Kneser–Ney n-grams of characters, choose the order on `valid`, and return it with the bits of each
    token of the documents of `test` (N,).

    Characters not in the training text are one additional symbol. The model reads from left to right. A
    masked-token model sees both sides, but not the other masked tokens, which this model sees.
    """
    alphabet = sorted(set().union(*train.texts))
    numbers = {letter: number for number, letter in enumerate(alphabet)}

    def encode(text: str) -> NDArray[np.int32]:
        return np.array(
            [numbers.get(letter, len(alphabet)) for letter in text], np.int32
        )

    def bits(fitted: KneserNey, documents: TextTokens) -> NDArray[np.float64]:
        return np.concatenate(
            [-fitted.log2_probabilities(encode(text)) for text in documents.texts]
        )

    model, lowest = KneserNey(longest, len(alphabet) + 1), np.inf
    for fitted in model.fitted_orders([encode(text) for text in train.texts]):
        if (mean := bits(fitted, valid).mean()) < lowest:
            best, lowest = fitted, mean
    # The widths of all tokens of a document add up to its characters.
    total = np.concatenate([[0.0], np.cumsum(bits(best, test))])
    return best.order, np.diff(total[np.cumsum(test.widths)], prepend=0.0)


class TextObjective(PretrainingObjective):
    """Pretraining objective with bits per character of masked tokens."""

    def __init__(self, task: "TextPretraining", world: World) -> None:
        train, valid = task.tokens.values()
        super().__init__(
            task.tokenizer, train, valid, task.config, world, widths=valid.widths
        )

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Return bits per character and accuracy over a fixed set of held-out tokens."""
        metrics = super().evaluate(network)
        return {"bits_per_character": metrics.pop("bits_per_base"), **metrics}

    metrics = evaluate


class TextPretraining(TextTask):
    """Masked-token pretraining on documents; the model itself is evaluated, and nothing is predicted."""

    kind = "pretraining"
    section: PretrainingTaskConfig
    record_type = TextRecord
    objective_type = TextObjective
    config: Any

    @cached_property
    def tokens(self) -> dict[str, TextTokens]:
        return {
            split: tokenize_records(path, self.tokenizer)
            for split, path in self.files.items()
        }

    @property
    def records(self) -> Sequence[str]:
        return self.tokens["train"].texts

    def check(self) -> None:
        """Check that inputs fit into the encoder and consist of one document."""
        if self.config.next_sentence:
            raise ConfigError(
                "training.next_sentence: not supported for documents of text"
            )
        tokens, positions = self.config.sequence_tokens, self.encoder.max_length
        if tokens > positions:
            raise ConfigError(
                f"training.sequence_tokens {tokens}: above encoder.max_length {positions}"
            )

    @property
    def settings(self) -> PretrainingSettings:
        return PretrainingSettings(next_sentence=False)

    def initialize(self, network: nn.Module) -> None:
        """Take the initial weights, or initialize from token counts if configured."""
        assert isinstance(network, PretrainingNetwork)
        if not self.start.weights and self.config.embedding_init == "cooccurrence":
            init_from_counts(network, self.tokens["train"])
        super().initialize(network)

    def describe(self, network: nn.Module) -> str:
        parameters = sum(parameter.numel() for parameter in network.parameters())
        return f"{parameters:,} parameters, {len(self.tokens['train'].tokens):,} training tokens"

    def write(
        self, directory: Path, trained: TrainingResult[nn.Module], measured: Metrics
    ) -> dict[str, Any]:
        metrics = super().write(directory, trained, measured)
        log(f"held out: {measured['bits_per_character']:.4f} bits per character")
        return metrics

    def convert(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a document of a public data set, from its column `text`."""
        text = row.get("text")
        if not isinstance(text, str):
            raise DataError("the data set needs a column 'text'")
        return {"text": text} if text.strip() else None

    def generate(self, generated: GeneratedConfig, split: str) -> NoReturn:
        raise ConfigError(
            "data.generated: not available for pretraining; use files, hub or installed"
        )

    def predict(self, *_: object) -> NoReturn:
        raise UsageError(
            "tasks of kind pretraining have no predictions: use `bigbird-dna nlp evaluate`"
        )

    def evaluate(self, records: Path, predictions: Path) -> dict[str, Any]:
        """Return bits per character of masked tokens, for the model directory `predictions` and for an n-gram
        of characters, which sees everything to the left.

        The n-gram is fitted to `train.jsonl` in the directory of `records`, and chosen on `valid.jsonl`.
        """
        model = load_pretrained(predictions)
        tokenizer, training = model.tokenizer, self.section.training
        train = tokenize_records(records.with_name("train.jsonl"), tokenizer)
        valid = tokenize_records(records.with_name("valid.jsonl"), tokenizer)
        test = tokenize_records(records, tokenizer)
        hidden = HeldOut.draw(
            test,
            tokenizer,
            training.sequence_tokens,
            training.evaluation_sequences,
            pairs=False,
            widths=test.widths,
        )
        device = choose_device()
        network = model.network.to(device).eval()
        with torch.inference_mode():
            predicted = hidden.bits(network, tokenizer, device)
        order, letters = character_ngram(train, valid, test, CHARACTERS)
        characters = int(hidden.bases.sum())
        return {
            "bits_per_character": float(predicted.bits.sum() / characters),
            "masked_accuracy": float(predicted.right.mean()),
            "character_ngram": float(letters[hidden.tokens].sum() / characters),
            "character_ngram_order": order,
            "hidden_tokens": len(hidden.labels),
            "hidden_characters": characters,
        }
