"""A loaded model of any task: network, tokenizer, settings and calibration.

Axes: N sequences, T tokens of one, S bp of one, K layers, D hidden width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from bigbird_dna.calibration.maps import FILE, Calibration, read_calibration
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import (
    ModelError,
    UsageError,
    check_at_least_one,
    check_choice,
)
from bigbird_dna.genome.given_sequences import Sequences, read_sequences
from bigbird_dna.model.batching import placed_rows, run_rows
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import mean_over_tokens
from bigbird_dna.model.inference import choose_device, prediction_lock
from bigbird_dna.model.settings import ChromatinSettings, Settings, Task
from bigbird_dna.tokens.interface import Tokenizer

METRICS = "metrics.json"
Pool = Literal["mean", "cls", "token", "base"]

MADE_FOR: dict[Task, str] = {
    "pretraining": "pretraining, as initial weights for other models",
    "promoter": "promoters",
    "chromatin": "chromatin tracks",
    "start-sites": "start sites of promoters",
    "sequences": "labeled sequences",
    "classification": "sequence classification, with HuggingFace's BigBird",
    "question-answering": "question answering on a text",
    "encoder": "embeddings only",
    "long-answers": "answers in long documents",
    "summaries": "summaries",
}
"""Purpose of a model of each task, for messages."""


Predictor = Callable[[Sequence[str]], npt.NDArray[np.float32]]
"""Maps N windows over A C G T N to probabilities that each depend only on their sequence: (N,) for a promoter
model; (N, K, T) for a chromatin model, for K central bins of a window and T tracks."""


def find_layer(config: EncoderConfig, layer: int | None, pool: str) -> int:
    """The layer to embed with, by default the last; `UsageError` for a `layer` or `pool` that is missing."""
    check_choice("pool", pool, get_args(Pool))
    if layer is None:
        return config.layers
    if not 0 <= layer <= config.layers:
        raise UsageError(
            f"layer {layer}: must be 0 (embeddings) to {config.layers}, the model's layers"
        )
    return layer


@dataclass(frozen=True, repr=False)
class LoadedModel:
    """A model loaded from a directory; `PromoterModel` and `ChromatinModel` also predict.

    `path` is the directory it was loaded from, None for a model that was never saved.
    """

    network: nn.Module
    tokenizer: Tokenizer
    config: EncoderConfig
    settings: Settings
    path: Path | None = None

    def __repr__(self) -> str:
        plural = "s" * (self.config.layers > 1)
        layers = f"{self.config.layers} layer{plural} × {self.config.hidden}"
        facts = [
            self.task,
            *self._described(),
            layers,
            f"{self.parameters:,} parameters",
        ]
        if self.path is not None:
            facts.append(str(self.path))
        return f"{type(self).__name__}({', '.join(facts)})"

    def _described(self) -> list[str]:
        """The task's own settings in `repr`."""
        return []

    @property
    def name(self) -> str:
        """The model's name in messages: its directory."""
        return "the model" if self.path is None else str(self.path)

    @property
    def task(self) -> Task:
        """The task that the model is for."""
        return self.settings.task

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.network.parameters())

    @cached_property
    def sha256(self) -> str:
        """Checksum of the weights file, "" for a model that was never saved."""
        return checksum(self.path / "model.safetensors") if self.path else ""

    def check_predictions(self, values: npt.NDArray[np.floating]) -> None:
        """`ModelError` if results of the network contain NaN or infinity: weights may be too large to add."""
        if not np.isfinite(values).all():
            raise ModelError(f"{self.name}: the model's predictions are not finite")

    def predict(self, sequences: Sequences, *args: Any, **options: Any) -> Any:
        """Probabilities for sequences, for promoter and chromatin models; `ModelError` for any other."""
        raise self._unfit("predict", "promoter or chromatin")

    def _unfit(self, method: str, needed: str) -> ModelError:
        return ModelError(
            f"{self.name}: this model is for {MADE_FOR[self.task]}; `{method}` needs a {needed} model"
        )

    def embed(
        self,
        sequences: Sequences,
        *,
        pool: Pool = "mean",
        layer: int | None = None,
        batch_size: int = 32,
        device: str = "auto",
    ) -> Any:
        """Embed sequences with the encoder, on their forward strand, without base positions.

        Parameters
        ----------
        sequences
            As for `PromoterModel.predict`, but of any length. N is treated like any letter: its tokens have
            vectors, which are included in means.
        pool
            One vector per sequence: "mean" over all tokens, including [CLS] and [SEP], or "cls", the vector
            of [CLS]. Several: "token", one per token without [CLS] and [SEP], or "base", one per base: that
            of its token. Sequences with too many tokens keep their central tokens, except for "base".
        layer
            Number of a layer, with 0 for the input of the first; None: the last layer.
        batch_size
            Sequences processed concurrently and independently (see `run_rows`); results do not change.
        device
            auto, cpu or cuda.

        Returns
        -------
        float32 array (N, D); for "token" a list of arrays (T, D). For "base" an array (N, S, D), or a list of
        arrays (S, D) if lengths differ.

        Raises
        ------
        ModelError
            The model is an ensemble, or its tokenizer is for ordinary text.
        UsageError, DataError
            As for `PromoterModel.predict`; unknown `pool`; a layer that the model does not have; too many
            tokens in a sequence for "base".
        """
        config, tokenizer = self.config, self.tokenizer
        layer = find_layer(config, layer, pool)
        check_at_least_one({"batch_size": batch_size})
        inputs = read_sequences(sequences)
        torch_device = choose_device(device)
        encoder = self.one_encoder("embedding").up_to(layer)
        placed = placed_rows(tokenizer, inputs.texts, config.max_length, 0.5)
        rows = [row for row, _ in placed]
        repeats = [tokenizer.piece_lengths[row[1:-1]] for row in rows]
        for text, name, lengths in zip(
            inputs.texts, inputs.names, repeats, strict=True
        ):
            if pool == "base" and lengths.sum() != len(text):
                raise UsageError(
                    f"{name}: {len(text):,} bp exceed the encoder's maximum of {config.max_length:,} "
                    "tokens; per-base vectors need shorter sequences"
                )

        vectors: dict[int, npt.NDArray[np.float32]] = {}

        def run(ids: Tensor, lengths: Tensor, numbers: npt.NDArray[np.intp]) -> Tensor:
            hidden: Tensor = encoder(ids, lengths)
            if pool == "mean":
                return mean_over_tokens(hidden, lengths)

            if pool == "cls":
                return hidden[:, 0]

            for number, states in zip(
                numbers.tolist(), hidden.float().cpu().numpy(), strict=True
            ):
                of_tokens = states[1 : len(rows[number]) - 1]
                if pool == "base":
                    of_tokens = np.repeat(of_tokens, repeats[number], axis=0)

                vectors[number] = of_tokens.copy()

            return hidden[:, 0]

        with prediction_lock:
            of_sequences = run_rows(
                encoder.to(torch_device).eval(),
                rows,
                run,
                pad_id=tokenizer.pad_id,
                batch_size=batch_size,
                device=torch_device,
                empty=(config.hidden,),
            )

        if pool == "mean" or pool == "cls":
            return of_sequences

        of_rows = [vectors[number] for number in range(len(rows))]
        is_array = pool == "base" and len({len(row) for row in of_rows}) == 1
        return np.stack(of_rows) if is_array else of_rows

    def one_encoder(self, wanted: str = "encoder") -> Encoder:
        """The encoder; `ModelError`, which names what was `wanted`, for an ensemble of several."""
        modules = self.network.modules()
        encoders = [part for part in modules if isinstance(part, Encoder)]
        if len(encoders) > 1:
            raise ModelError(
                f"{self.name}: an ensemble of {len(encoders)} models has no single {wanted}"
            )
        return encoders[0]


def calibration_of(model: LoadedModel) -> Calibration:
    """The calibration in a model's directory; `ModelError` if missing, damaged or of another model."""
    path = calibration_file(model)
    if path is None:
        raise ModelError(
            f"{model.name}: the model has no calibration ({FILE}); `bigbird-dna model calibrate` fits one "
            "on validation data"
        )

    calibration = read_calibration(path, model.sha256)
    expected: list[str | None] = [None]
    if isinstance(model.settings, ChromatinSettings):
        expected = [named.track for named in model.settings.tracks]

    if [of_track.track for of_track in calibration.tracks] != expected:
        raise ModelError(f"{path}: the calibration's tracks differ from the model's")

    return calibration


def calibration_file(model: LoadedModel) -> Path | None:
    """`calibration.json` of a model's directory; None if missing, or if the model was never saved."""
    path = None if model.path is None else model.path / FILE
    return path if path is not None and path.is_file() else None


def finish_of(model: LoadedModel, calibrated: bool) -> Calibration | None:
    """The final transformation of probabilities: None, or the model's calibration."""
    return calibration_of(model) if calibrated else None


def window_predictor(model: Any, calibrated: bool = False, **options: Any) -> Predictor:
    """A function that predicts the probabilities of windows, calibrated if requested.

    `model` is a promoter or chromatin model; `options` are those of its `window_probabilities`.
    """
    finish = finish_of(model, calibrated)
    if finish is None:
        return partial(model.window_probabilities, **options)
    return lambda windows: finish(model.window_probabilities(windows, **options))
