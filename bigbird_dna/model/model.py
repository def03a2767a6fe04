"""A network with all that is needed to use it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.files import checksum
from bigbird_dna.model.device import choose_device
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import mean_over_tokens
from bigbird_dna.model.rows import run_rows, window_rows
from bigbird_dna.model.settings import Pooling, Settings, Task
from bigbird_dna.tokens.interface import Tokenizer

# Axes: N sequences, B sequences of a batch, L tokens, D hidden width.


@dataclass(frozen=True)
class Model:
    """What a model directory holds; `PromoterModel` and `ChromatinModel` predict as well.

    `path` is the directory it was loaded from, None for a model that was never saved.
    """

    network: nn.Module = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    config: EncoderConfig
    settings: Settings
    path: Path | None = None

    @property
    def task(self) -> Task:
        """What it was made for."""
        return self.settings.task

    @cached_property
    def sha256(self) -> str:
        """Checksum of the weights file, "" for a model that was never saved."""
        return checksum(self.path / "model.safetensors") if self.path else ""

    def embed(
        self,
        sequences: Sequence[str],
        *,
        pooling: Pooling = "mean",
        batch_size: int = 32,
        device: str = "auto",
    ) -> npt.NDArray[np.float32]:
        """The encoder's vectors (N, D) of sequences over A C G T N, read on their forward strand.

        Parameters
        ----------
        sequences
            Of any length; one with more tokens than the encoder takes keeps those around its middle.
        pooling
            "mean": over all tokens, [CLS] and [SEP] included; "cls": the vector of [CLS].
        batch_size
            Sequences run at the same time, each by itself (see `run_rows`); it changes no bit of a number.
        device
            auto, cpu or cuda.

        Raises
        ------
        ModelError
            The model is an ensemble, or its tokenizer is one of ordinary text.
        UsageError
            There is no such pooling or device, or its memory is too small.
        """
        if pooling not in ("mean", "cls"):
            raise UsageError(f"pooling {pooling!r}: choose mean or cls")
        encoders = [part for part in self.network.modules() if isinstance(part, Encoder)]
        if len(encoders) > 1:
            raise ModelError(f"{self.path}: an ensemble of {len(encoders)} models has no one embedding")
        place = choose_device(device)
        encoder = encoders[0].to(place).eval()

        def run(ids: Tensor, lengths: Tensor, _: npt.NDArray[np.intp]) -> Tensor:
            hidden: Tensor = encoder(ids, lengths)  # (B, L, D)
            return hidden[:, 0] if pooling == "cls" else mean_over_tokens(hidden, lengths)

        rows = window_rows(self.tokenizer, sequences, self.config.positions, 0.5)
        pad_id, empty = self.tokenizer.pad_id, (self.config.hidden,)
        return run_rows(encoder, rows, run, pad_id=pad_id, batch_size=batch_size, device=place, empty=empty)
