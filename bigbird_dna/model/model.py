"""A loaded model of any task: network, tokenizer, settings and calibration.

Axes: N sequences, S bp of one, D hidden width.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from bigbird_dna.calibration.maps import FILE, Calibration, Finish, read_calibration
from bigbird_dna.config import EncoderConfig
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ModelError, UsageError, check_at_least_one, check_fraction, first_fault
from bigbird_dna.genome.profile import FILE as PROFILE
from bigbird_dna.genome.profile import TrainingProfile
from bigbird_dna.model.batching import (
    GivenSequences,
    Ids,
    Run,
    Sequences,
    read_sequences,
    run_rows,
    window_rows,
)
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import mean_over_tokens
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.settings import ChromatinSettings, Pooling, Settings, Task
from bigbird_dna.tokens.interface import Tokenizer

Vectors = npt.NDArray[np.float32]


def sequence_vectors(
    encoder: Encoder, given: GivenSequences, tokenizer: Tokenizer, pooling: Pooling, batch_size: int
) -> Vectors:
    """One vector per sequence, (N, D); sequences with too many tokens keep their central tokens."""

    def run(ids: Tensor, lengths: Tensor, _: npt.NDArray[np.intp]) -> Tensor:
        hidden: Tensor = encoder(ids, lengths)  # (B, L, D)
        return hidden[:, 0] if pooling == "cls" else mean_over_tokens(hidden, lengths)

    rows = window_rows(tokenizer, given.texts, encoder.config.max_length, 0.5)
    return _run(encoder, rows, run, tokenizer, batch_size)


def base_vectors(
    encoder: Encoder, given: GivenSequences, tokenizer: Tokenizer, batch_size: int
) -> list[Vectors]:
    """Vectors (S, D) of the bases of each sequence: each base gets the vector of its token.

    `UsageError`: a sequence has more tokens than the encoder accepts.
    """
    rows = window_rows(tokenizer, given.texts, encoder.config.max_length, 0.5)
    covered = [tokenizer.piece_lengths[row[1:-1]] for row in rows]
    for text, name, lengths in zip(given.texts, given.names, covered, strict=True):
        if lengths.sum() != len(text):
            raise UsageError(
                f"{name}: {len(text):,} bp exceed the encoder's maximum of {encoder.config.max_length:,} "
                "tokens; per-base vectors need shorter sequences"
            )
    vectors: dict[int, Vectors] = {}

    def run(ids: Tensor, lengths: Tensor, chosen: npt.NDArray[np.intp]) -> Tensor:
        hidden = encoder(ids, lengths).float().cpu().numpy()  # (B, L, D)
        for number, row in zip(chosen.tolist(), hidden, strict=True):
            own = covered[number]
            vectors[number] = np.repeat(row[1 : 1 + len(own)], own, axis=0)
        return ids[:, :0]  # rows differ in length and do not fit in one array

    _run(encoder, rows, run, tokenizer, batch_size)
    return [vectors[number] for number in range(len(rows))]


def _run(encoder: Encoder, rows: list[Ids], run: Run, tokenizer: Tokenizer, batch_size: int) -> Vectors:
    device, empty = encoder.embeddings.token.weight.device, (encoder.config.hidden,)
    return run_rows(
        encoder, rows, run, pad_id=tokenizer.pad_id, batch_size=batch_size, device=device, empty=empty
    )


def layer_means(
    encoder: Encoder,
    rows: Sequence[Ids],
    *,
    pad_id: int,
    batch_size: int,
    device: torch.device,
    parts: npt.NDArray[np.integer] | None = None,
) -> npt.NDArray[np.float32]:
    """Means over the tokens of rows after the embeddings and after each layer, (N, 1 + layers, D).

    Hidden states are stored for one layer and call at a time. `parts` (N, 2) are the first token of a part of
    each row and its last token + 1; means over these parts are appended: (N, 1 + layers, 2 D). `ModelError`:
    the layers are reversible, and their streams are not hidden states.
    """
    if encoder.config.reversible:
        raise ModelError("encoder.reversible true: a reversible encoder has no hidden states per layer")
    here = threading.local()  # on a CPU rows run concurrently
    extra, config = encoder.config.num_global_tokens, encoder.config

    def keep(_module: Any, _inputs: Any, hidden: Tensor) -> None:
        own = hidden[:, extra:]
        means = [mean_over_tokens(own, here.lengths)]
        if here.parts is not None:
            means.append(_mean_of_parts(own, here.parts))
        here.means.append(torch.cat(means, dim=1))

    def run(ids: Tensor, lengths: Tensor, chosen: npt.NDArray[np.intp]) -> Tensor:
        here.lengths, here.means = lengths, []
        here.parts = None if parts is None else parts[chosen].tolist()
        encoder(ids, lengths)
        return torch.stack(here.means, dim=1)

    hooks = [part.register_forward_hook(keep) for part in (encoder.embeddings, *encoder.layers)]
    try:
        return run_rows(
            encoder,
            rows,
            run,
            pad_id=pad_id,
            batch_size=batch_size,
            device=device,
            empty=(1 + config.layers, config.hidden * (1 if parts is None else 2)),
        )
    finally:
        for hook in hooks:
            hook.remove()


def _mean_of_parts(hidden: Tensor, parts: Sequence[Sequence[int]]) -> Tensor:
    """Means over tokens first … last of each row: (B, L, D) → (B, D)."""
    own = [row[first:last].float().mean(dim=0) for row, (first, last) in zip(hidden, parts, strict=True)]
    return torch.stack(own)


CARD = "MODEL_CARD.md"
METRICS = "metrics.json"


MADE_FOR: dict[Task, str] = {
    "pretraining": "pretraining, as initial weights for other models",
    "promoter": "promoters",
    "chromatin": "chromatin tracks",
    "sequences": "labeled sequences",
    "classification": "sequence classification, with HuggingFace's BigBird",
    "question-answering": "question answering on a text",
    "encoder": "embeddings only",
    "long-answers": "answers in long documents",
    "summaries": "summaries",
}
"""Purpose of a model of each task, for messages."""


class EmbedOptions(TypedDict, total=False):
    """Options of `LoadedModel.embed`, for type checkers."""

    pooling: Pooling
    batch_size: int
    device: str


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
        layers = f"{self.config.layers} layer{'s' * (self.config.layers > 1)} × {self.config.hidden}"
        size = f"{self.parameters:,} parameters"
        parts = [self.task, *self._described(), layers, size, *([str(self.path)] if self.path else [])]
        return f"{type(self).__name__}({', '.join(parts)})"

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

    @overload
    def embed(
        self,
        sequences: "pd.Series[Any]",
        *,
        per_base: Literal[False] = False,
        **options: Unpack[EmbedOptions],
    ) -> pd.DataFrame: ...

    @overload
    def embed(
        self, sequences: Sequences, *, per_base: Literal[False] = False, **options: Unpack[EmbedOptions]
    ) -> npt.NDArray[np.float32]: ...

    @overload
    def embed(self, sequences: Sequences, *, per_base: bool, **options: Unpack[EmbedOptions]) -> Any: ...

    def embed(
        self,
        sequences: Sequences,
        *,
        per_base: bool = False,
        pooling: Pooling = "mean",
        batch_size: int = 32,
        device: str = "auto",
    ) -> Any:
        """Embed sequences with the encoder, on their forward strand, without base positions.

        Parameters
        ----------
        sequences
            As for `PromoterModel.predict`, but of any length. N is treated like any letter: its tokens have
            vectors, which are included in means.
        per_base
            Return one vector per base: that of its token.
        pooling
            For one vector per sequence: "mean" over all tokens, including [CLS] and [SEP], or "cls", the
            vector of [CLS]. Sequences with too many tokens keep their central tokens.
        batch_size
            Sequences processed concurrently and independently (see `run_rows`); results do not change.
        device
            auto, cpu or cuda.

        Returns
        -------
        float32 array (N, D); for a Series a DataFrame with its index. With `per_base` an array (N, S, D), or
        a list of arrays (S, D) if lengths differ; for a Series a Series of such arrays.

        Raises
        ------
        ModelError
            The model is an ensemble, or its tokenizer is for ordinary text.
        UsageError, DataError
            As for `PromoterModel.predict`; unknown `pooling`; too many tokens in a sequence with `per_base`.
        """
        if pooling not in ("mean", "cls"):
            raise UsageError(f"pooling {pooling!r}: must be mean or cls")
        if per_base and pooling == "cls":
            raise UsageError("pooling 'cls': one vector per sequence, not available with per_base")
        if pooling == "cls" and self.config.causal:
            raise UsageError("pooling 'cls': not available for a causal model, which masks later tokens")
        check_at_least_one({"batch_size": batch_size})
        given = read_sequences(sequences)
        encoder = self.one_encoder("embedding").to(choose_device(device)).eval()
        if per_base:
            vectors: Any = base_vectors(encoder, given, self.tokenizer, batch_size)
            if given.labels is not None:
                return pd.Series(vectors, index=given.labels, dtype=object)
            if not vectors:
                return np.empty((0, 0, self.config.hidden), np.float32)
            return np.stack(vectors) if len({len(one) for one in vectors}) == 1 else vectors
        values = sequence_vectors(encoder, given, self.tokenizer, pooling, batch_size)
        return values if given.labels is None else pd.DataFrame(values, index=given.labels)

    def one_encoder(self, wanted: str = "encoder") -> Encoder:
        """The encoder; `ModelError`, which names what was `wanted`, for an ensemble of several."""
        encoders = [part for part in self.network.modules() if isinstance(part, Encoder)]
        if len(encoders) > 1:
            raise ModelError(f"{self.name}: an ensemble of {len(encoders)} models has no single {wanted}")
        return encoders[0]


_LARGEST_PROFILE = 1 << 20  # bytes
_COMMANDS = {"promoter": "model calibrate-promoter", "chromatin": "model calibrate-chromatin"}


def calibration_of(model: LoadedModel) -> Calibration:
    """The calibration in a model's directory; `ModelError` if missing, damaged or of another model."""
    path = calibration_file(model)
    if path is None:
        command = _COMMANDS.get(model.task)
        hint = f"; `bigbird-dna {command}` fits one on validation data" if command else ""
        raise ModelError(f"{model.name}: the model has no calibration ({FILE}){hint}")
    found = read_calibration(path, model.sha256)
    settings = model.settings
    expected = [one.track for one in settings.tracks] if isinstance(settings, ChromatinSettings) else [None]
    if [one.track for one in found.tracks] != expected:
        raise ModelError(f"{path}: the calibration's tracks differ from the model's")
    return found


def calibration_file(model: LoadedModel) -> Path | None:
    """`calibration.json` of a model's directory; None if missing, or if the model was never saved."""
    path = None if model.path is None else model.path / FILE
    return path if path is not None and path.is_file() else None


def training_profile_of(model: LoadedModel) -> TrainingProfile | None:
    """The profile of the sequence that a model was trained on; None without one, `ModelError` if damaged."""
    path = None if model.path is None else model.path / PROFILE
    if path is None or not path.is_file():
        return None
    try:
        return TrainingProfile.model_validate(read_object(path, _LARGEST_PROFILE))
    except ValidationError as error:
        fault = first_fault(error)
        raise ModelError(f"{path}: damaged: {fault.key and f'{fault.key}: '}{fault.reason}") from None


def check_calibrated(calibrated: bool, prior: float | None) -> None:
    """`UsageError` unless a prior is between 0 and 1, exclusive, and used with calibrated probabilities."""
    if prior is None:
        return
    if not calibrated:
        raise UsageError(f"prior {prior}: needs calibrated probabilities (--calibrated)")
    check_fraction("prior", prior, ends=False)


def finish_of(model: LoadedModel, calibrated: bool, prior: float | None = None) -> Finish | None:
    """The final transformation of probabilities: None, or the model's calibration, shifted to `prior`."""
    check_calibrated(calibrated, prior)
    return calibration_of(model).finish(prior) if calibrated else None
