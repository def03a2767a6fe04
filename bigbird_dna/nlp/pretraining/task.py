"""Masked-language modelling on documents: training, and bits per character beside simple predictors'."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from bigbird_dna.baselines.tokens import MaskedTokens as HiddenTokens
from bigbird_dna.baselines.tokens import evenly, fit_token_models
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.errors import ConfigError, DataError, UsageError
from bigbird_dna.model.directory import load_pretrained
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.nlp.pretraining.characters import character_ngram
from bigbird_dna.nlp.pretraining.objective import TextObjective
from bigbird_dna.nlp.pretraining.sections import PretrainingTask
from bigbird_dna.nlp.pretraining.tokens import TextTokens, tokenize_records
from bigbird_dna.nlp.records import Kind, read_objects
from bigbird_dna.nlp.sections import GeneratedConfig
from bigbird_dna.nlp.starting import make_text_start
from bigbird_dna.nlp.vocabulary import texts_of
from bigbird_dna.pretraining.baselines import hidden_in_documents
from bigbird_dna.pretraining.held_out import HeldOut
from bigbird_dna.tasks.pretraining.beginning import begin_with_counts
from bigbird_dna.tasks.run import Run
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.distributed import World

MEMORY = 2 << 30  # bytes for n-grams over tokens
CHOOSING = 2000  # hidden validation tokens that orders are chosen on
TOLD_TOKENS = 200_000  # of inputs with one hidden token each


class _Pretraining:
    kind: Kind = "pretraining"

    def record(self, settings: PretrainingTask, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """A document of a public data set, which has it in the column `text`."""
        text = row.get("text")
        if not isinstance(text, str):
            raise DataError("the data set has no column 'text'")
        return {"text": text} if text.strip() else None

    def generate(self, settings: PretrainingTask, generated: GeneratedConfig, split: str) -> NoReturn:
        """`ConfigError`: a language isn't made here."""
        raise ConfigError(
            "data.generated: there is no generated text to pretrain on: name files, hub or installed"
        )

    def train(
        self,
        settings: PretrainingTask,
        train: Path,
        valid: Path,
        output: Path,
        checkpoints: Path,
        world: World,
    ) -> dict[str, Any]:
        """Train, or go on training, and publish a pretrained model; see `Task.train`."""
        check_directory(output, [train, valid, checkpoints])
        start = make_text_start(settings.start, settings.encoder, lambda: texts_of(train, self.kind))
        parts = {
            name: tokenize_records(path, start.tokenizer)
            for name, path in (("train", train), ("valid", valid))
        }
        config = settings.training.for_records(len(parts["train"].texts))
        if config.next_sentence:
            raise ConfigError("training.next_sentence: documents of text are learnt without next sentences")
        if config.sequence_tokens > start.config.positions:
            raise ConfigError(
                f"training.sequence_tokens {config.sequence_tokens} is above encoder.positions "
                f"{start.config.positions}"
            )
        data = {name: checksum(path) for name, path in (("train", train), ("valid", valid))}
        run = Run.begin(
            start.config,
            start.tokenizer,
            PretrainingSettings(next_sentence=False),
            config,
            {"data": data, **start.identity()},
            checkpoints,
            world,
        )
        network = run.model.network
        assert isinstance(network, PretrainingNetwork)
        if not run.store.exists and world.is_first:
            if start.model is None and config.initial_embeddings == "neighbours":
                begin_with_counts(network, parts["train"])
            start.initialise(network)
        objective = TextObjective(start.tokenizer, parts["train"], parts["valid"], config, world)
        what = f"{run.model.parameters:,} parameters, {len(parts['train'].tokens):,} training tokens"
        progress = run.train(objective, what)
        with torch.inference_mode():
            figures = objective.evaluate(network)
        world.leave()
        if not world.is_first:
            return figures
        metrics = {**figures, "split": "valid", "steps": progress.step, "tokens_seen": progress.tokens}
        provenance = {"configuration": settings.model_dump(mode="json"), "data": data, **start.identity()}
        run.publish(output, provenance, metrics)
        log(f"held out: {figures['bits_per_character']:.4f} bits per character")
        return metrics

    def predict(self, settings: PretrainingTask, *_: object) -> NoReturn:
        """`UsageError`: nothing is predicted."""
        raise UsageError("a task of kind pretraining predicts no records: use `bigbird-dna nlp evaluate`")

    def evaluate(self, settings: PretrainingTask, records: Path, predictions: Path) -> dict[str, Any]:
        """Bits per character of hidden tokens, by the model directory `predictions` and by n-grams.

        N-grams learn from `train.jsonl` beside `records` and are chosen on `valid.jsonl`. Of each predictor
        there are two figures: all hidden tokens of an input hidden from it; and told the rest, every token
        but the one in question being known. A character n-gram is told all that stands to the left.
        """
        model = load_pretrained(predictions)
        paths = [records.with_name("train.jsonl"), records.with_name("valid.jsonl"), records]
        train, valid, judged = (tokenize_records(path, model.tokenizer) for path in paths)
        length, count = settings.training.sequence_tokens, settings.training.evaluation_sequences
        chosen, hidden = (
            HeldOut.draw(part, model.tokenizer, length, count, pairs=False, widths=part.widths)
            for part in (valid, judged)
        )
        device = choose_device()
        network = model.network.to(device).eval()
        alone, of = hidden.one_at_a_time(TOLD_TOKENS)
        with torch.inference_mode():
            bits = hidden.bits(network, model.tokenizer, device)
            told = alone.bits(network, model.tokenizer, device)
        letters = character_ngram(train, valid, judged, settings.character_order)
        tokens = _token_bits(train, (valid, chosen), (judged, hidden), model.tokenizer, settings)
        width, some = hidden.bases.sum(), hidden.bases[of].sum()
        return {
            "bits_per_character": float(bits.bits.sum() / width),
            "masked_accuracy": float(bits.right.mean()),
            "told_bits_per_character": float(told.bits.sum() / some),
            "character_ngram": float(letters.tokens[hidden.tokens].sum() / width),
            "character_ngram_order": letters.order,
            "character_ngram_of_the_whole_text": letters.per_character,
            "character_ngram_orders": {str(order): value for order, value in letters.orders.items()},
            **{
                name: float(values[of].sum() / some)
                if name.startswith("told")
                else float(values.sum() / width)
                for name, values in tokens.items()
            },
            "curve": _curve(predictions / "training.jsonl"),
            "hidden_tokens": len(hidden.labels),
            "hidden_characters": int(width),
            "told_tokens": len(of),
        }


def _curve(log: Path) -> list[tuple[int, float]]:
    """Steps and bits per character on the documents to watch, of a training log; none where there is none."""
    if not log.is_file():
        return []
    lines = (values for _, values in read_objects(log))
    return [
        (int(line["step"]), float(line["evaluation"]["bits_per_character"]))
        for line in lines
        if isinstance(line.get("evaluation"), dict) and "bits_per_character" in line["evaluation"]
    ]


def _token_bits(
    train: TextTokens,
    valid: tuple[TextTokens, HeldOut],
    judged: tuple[TextTokens, HeldOut],
    tokenizer: Tokenizer,
    settings: PretrainingTask,
) -> dict[str, NDArray[np.float64]]:
    """Bits (M,) of the judged hidden tokens by n-grams over tokens, from the left and of both sides."""
    validation, asked = (HiddenTokens(*hidden_in_documents(*part)) for part in (valid, judged))
    count = len(valid[1].labels)
    chosen = np.asarray(evenly(count, CHOOSING / count))
    models = fit_token_models(
        train.each(), validation, chosen, tokenizer, settings.training.ngram_order, MEMORY
    )
    found = {}
    for told, model in models.items():
        prefix = "told_" if told else ""
        found[f"{prefix}token_ngram_left"] = model.left_bits(asked, told=told)
        found[f"{prefix}token_ngram_both_sides"] = model.both_bits(asked, told=told)
    return found


TASK = _Pretraining()
