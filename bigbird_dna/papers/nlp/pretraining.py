"""Masked-language modeling on documents: training, and bits per character compared with n-gram baselines.

Documents are tokens with the characters that each token represents.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bigbird_dna.baselines.ngram import KneserNey
from bigbird_dna.baselines.tokens import VIEWS, evenly, fit_token_models
from bigbird_dna.console import log, progress
from bigbird_dna.errors import ConfigError, DataError, UsageError
from bigbird_dna.model.directory import load_pretrained
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.papers.nlp.config import (
    GeneratedConfig,
    PretrainingTaskConfig,
    TextPretrainingConfig,
)
from bigbird_dna.papers.nlp.records import TextRecord, read_records
from bigbird_dna.papers.nlp.task import Metrics, TextTask
from bigbird_dna.pretraining.evaluation import hidden_in_documents
from bigbird_dna.pretraining.held_out import HeldOut
from bigbird_dna.pretraining.task import PretrainingObjective, init_from_counts
from bigbird_dna.reporting.training import read_training_log
from bigbird_dna.tokens.interface import TextPieces, Tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.task import TrainingResult


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

    def each(self) -> list[NDArray[np.integer]]:
        """Return the tokens of each document."""
        return [
            self.tokens[start:end] for start, end in pairwise(self.sentences.tolist())
        ]


def tokenize_records(path: Path, tokenizer: Tokenizer) -> TextTokens:
    """Tokenize the documents of a file in memory: 12 bytes per token, plus the text.

    `DataError` as in `read_records`, or if no document has a token.
    """
    tokens, widths, lengths, texts = [], [], [], []
    for record in progress(read_records(path, TextRecord), "tokens of documents", None):
        pieces = tokenizer.text_pieces(record.text)
        tokens.append(pieces.ids.astype(np.uint32))
        widths.append(characters(pieces, len(record.text)))
        lengths.append(len(pieces.ids))
        texts.append(record.text)
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    if not bounds[-1]:
        raise DataError(f"{path}: the documents have no tokens")
    return TextTokens(
        path, np.concatenate(tokens), np.concatenate(widths), bounds, tuple(texts)
    )


def characters(pieces: TextPieces, length: int) -> NDArray[np.int64]:
    """Return the number of characters that each token adds (n,); their sum is the text's `length`.

    White space dropped by a tokenizer is counted with the next token, or with the last token at the end. A
    character of several tokens is counted with the first.
    """
    ends = np.maximum.accumulate(pieces.ends) if len(pieces.ends) else pieces.ends
    ends = ends.astype(np.int64)
    if len(ends):
        ends[-1] = length
    return np.diff(ends, prepend=0)


class CharacterBits(NamedTuple):
    """Bits of tokens from a character model, given all preceding characters."""

    orders: dict[int, float]  # bits per character of the validation documents, by order
    order: int  # the best order
    tokens: NDArray[np.float64]  # (N,) bits of each token of the evaluated documents
    per_character: float  # over all characters of the evaluated documents


def character_ngram(
    train: TextTokens, valid: TextTokens, test: TextTokens, longest: int
) -> CharacterBits:
    """Fit Kneser–Ney n-grams of characters, choose the order on `valid`, and evaluate on `test`.

    Characters not in the training text are one additional symbol. The model reads from left to right. A
    masked-token model sees both sides, but not the other masked tokens, which this model sees.
    """
    alphabet = {
        letter: index for index, letter in enumerate(sorted(set().union(*train.texts)))
    }
    model = KneserNey(longest, len(alphabet) + 1)
    learned, chosen, asked = (
        [
            np.array([alphabet.get(letter, len(alphabet)) for letter in text], np.int32)
            for text in part.texts
        ]
        for part in (train, valid, test)
    )
    orders: dict[int, float] = {}
    best = None
    for fitted in model.fitted_orders(learned):
        scores = np.concatenate([fitted.log2_probabilities(text) for text in chosen])
        orders[fitted.order] = float(-scores.mean())
        if orders[fitted.order] == min(orders.values()):
            best = fitted
    assert best is not None
    bits = [-best.log2_probabilities(text) for text in asked]
    each = []
    for text, (start, end) in zip(bits, pairwise(test.sentences.tolist()), strict=True):
        ends = np.concatenate([[0], np.cumsum(test.widths[start:end])])
        each.append(np.diff(np.concatenate([[0.0], np.cumsum(text)])[ends]))
    return CharacterBits(
        orders, best.order, np.concatenate(each), float(np.concatenate(bits).mean())
    )


class TextObjective(PretrainingObjective):
    """Pretraining objective with bits per character of masked tokens."""

    def __init__(self, task: "TextPretraining", world: World) -> None:
        train, valid = task.tokens.values()
        super().__init__(
            task.tokenizer, train, valid, task.config, world, widths=valid.widths
        )

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Return bits per character and accuracy over a fixed set of held-out tokens."""
        figures = super().evaluate(network)
        return {"bits_per_character": figures.pop("bits_per_base"), **figures}

    metrics = evaluate


MEMORY = 2 << 30  # bytes, for token n-grams
CHOOSING = 2000  # masked validation tokens on which orders are chosen
SINGLE_TOKENS = 200_000  # total input tokens for masking one token at a time


class TextPretraining(TextTask[PretrainingTaskConfig, TextRecord, TextRecord]):
    """Masked-token pretraining on documents; the model itself is evaluated, and nothing is predicted."""

    kind = "pretraining"
    record_type = TextRecord
    objective_type = TextObjective
    config: TextPretrainingConfig

    @cached_property
    def tokens(self) -> dict[str, TextTokens]:
        return {
            name: tokenize_records(path, self.tokenizer)
            for name, path in self.files.items()
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
        """Take the given weights, or initialize from token counts if configured."""
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

    def record(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a document of a public data set, from its column `text`."""
        text = row.get("text")
        if not isinstance(text, str):
            raise DataError("the data set needs a column 'text'")
        return {"text": text} if text.strip() else None

    def generate(self, generated: GeneratedConfig, split: str) -> NoReturn:
        """Raise `ConfigError`: text cannot be generated."""
        known = "use files, hub or installed"
        raise ConfigError(f"data.generated: not available for pretraining; {known}")

    def predict(self, *_: object) -> NoReturn:
        """Raise `UsageError`: nothing is predicted."""
        raise UsageError(
            "tasks of kind pretraining have no predictions: use `bigbird-dna nlp evaluate`"
        )

    def evaluate(self, records: Path, predictions: Path) -> dict[str, Any]:
        """Return bits per character of masked tokens, for the model directory `predictions` and for n-grams.

        N-grams are fitted to `train.jsonl` in the directory of `records`, and chosen on `valid.jsonl`. Each
        predictor has two values: with all masked tokens of an input hidden, and, in keys with `told_`, with
        all other tokens known. A character n-gram sees everything to the left.
        """
        model = load_pretrained(predictions)
        paths = [
            records.with_name("train.jsonl"),
            records.with_name("valid.jsonl"),
            records,
        ]
        train, valid, test = (tokenize_records(path, model.tokenizer) for path in paths)
        length, count = (
            self.section.training.sequence_tokens,
            self.section.training.evaluation_sequences,
        )
        chosen, hidden = (
            HeldOut.draw(
                part, model.tokenizer, length, count, pairs=False, widths=part.widths
            )
            for part in (valid, test)
        )
        device = choose_device()
        network = model.network.to(device).eval()
        alone, of = hidden.one_at_a_time(SINGLE_TOKENS)
        with torch.inference_mode():
            bits = hidden.bits(network, model.tokenizer, device)
            one_by_one = alone.bits(network, model.tokenizer, device)
        letters = character_ngram(train, valid, test, self.section.character_order)
        masked, asked = (
            hidden_in_documents(valid, chosen),
            hidden_in_documents(test, hidden),
        )
        first = np.asarray(evenly(len(chosen.labels), CHOOSING / len(chosen.labels)))
        order = self.section.training.ngram_order
        models = fit_token_models(
            train.each(), masked, first, model.tokenizer, order, MEMORY
        )
        width, some = hidden.bases.sum(), hidden.bases[of].sum()
        tokens = {}
        for seen, both in VIEWS:
            own = models.bits(asked, (seen, both))
            name = f"token_ngram_{'both_sides' if both else 'left'}"
            tokens["told_" * seen + name] = float(
                own[of].sum() / some if seen else own.sum() / width
            )
        return {
            "bits_per_character": float(bits.bits.sum() / width),
            "masked_accuracy": float(bits.right.mean()),
            "told_bits_per_character": float(one_by_one.bits.sum() / some),
            "character_ngram": float(letters.tokens[hidden.tokens].sum() / width),
            "character_ngram_order": letters.order,
            "character_ngram_of_the_whole_text": letters.per_character,
            "character_ngram_orders": {
                str(order): value for order, value in letters.orders.items()
            },
            **tokens,
            "curve": _curve(predictions / "training.jsonl"),
            "hidden_tokens": len(hidden.labels),
            "hidden_characters": int(width),
            "told_tokens": len(of),
        }


def _curve(log: Path) -> list[tuple[int, float]]:
    """Return steps and bits per character on validation documents from a log; empty without a log."""
    curves = read_training_log(log).evaluation if log.is_file() else {}
    found = curves.get("bits_per_character")
    return (
        []
        if found is None
        else [*zip(found.steps.tolist(), found.values.tolist(), strict=True)]
    )


TASK = TextPretraining
