"""What fine-tunings have in common, and those whose input is a whole sequence: promoter windows, labeled sequences."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.run import Config, stage_values
from bigbird_dna.config.training import StartConfig
from bigbird_dna.console import log
from bigbird_dna.model.batching import pad, truncated
from bigbird_dna.model.directory import build_network, make_model
from bigbird_dna.model.promoter import PromoterRows, promoter_rows, row_logits
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.load import load_tokenizer
from bigbird_dna.training.adapters import Adaptation, adapt
from bigbird_dna.training.distributed import World
from bigbird_dna.training.draws import WindowDraws
from bigbird_dna.training.initialization import Initialization, initialization
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.losses import LabelLoss
from bigbird_dna.training.task import Task

M = TypeVar("M")

# Axes: N windows, T outputs.


class Windows(NamedTuple):
    """Windows of one split, in file order."""

    sequences: list[str]
    labels: NDArray[np.float32]  # (N, T), training labels: random in the control


class FinetuningTask(Task[nn.Module, M]):
    """A fine-tuning of an encoder, as the section `name` of a run configures it.

    The encoder starts from the model `pretrained`, or at random with the tokenizer of `tokenizer_path`.
    """

    name: ClassVar[str]
    run: Config
    tokenizer_path: Path | None
    pretrained: Path | None

    # Held-out contigs seen by the pretrained model (`Initialization.seen`), set by `check`.
    leaked: Sequence[str] | None = ()

    @cached_property
    def section(self) -> Any:
        """The run's section."""
        return getattr(self.run, self.name)

    @cached_property
    def config(self) -> Any:
        return self.section.training

    @cached_property
    def start(self) -> Initialization:
        """The initialization of the encoder."""

        def new_tokenizer() -> Tokenizer:
            assert self.tokenizer_path is not None
            return load_tokenizer(self.tokenizer_path)

        return initialization(
            *self.initial, self.configured_encoder, new_tokenizer, self.pretrained
        )

    @property
    def initial(self) -> tuple[str, StartConfig]:
        """The configuration of the initial encoder, with its name."""
        return f"{self.name}.model", self.section.model

    @property
    def configured_encoder(self) -> EncoderConfig:
        """The encoder's configuration, without what its tokenizer decides."""
        return self.run.encoder

    @property
    @abstractmethod
    def settings(self) -> Any:
        """The task settings of the model."""

    @property
    def encoder(self) -> EncoderConfig:
        return self.start.config

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.start.tokenizer

    def identity(self) -> dict[str, Any]:
        """Return the settings; tasks add the checksums of their data."""
        return {
            "task": self.settings.task,
            "tokenizer": self.tokenizer.sha256,
            "start": [self.start.settings.deciding(), self.start.sha256],
            "settings": self.settings.model_dump(exclude={"views", "tracks"}),
        }

    def build(self) -> nn.Module:
        return build_network(self.encoder, self.settings, self.tokenizer)

    def adapt(self, network: nn.Module) -> Adaptation | None:
        return adapt(network, self.config)

    def warn_of_truncated(self, sequences: Sequence[str], what: str) -> None:
        """Log how many sequences have more tokens than the network reads."""
        positions = self.encoder.max_length
        count = int(truncated(self.tokenizer, sequences, positions).sum())
        if count:
            log(
                f"warning: {count:,} of {len(sequences):,} {what} have more tokens than encoder.max_length "
                f"{positions:,} allows: the network reads at most {positions - 2:,} of their tokens"
            )

    def model(self, network: nn.Module) -> Any:
        """Return a trained network as a model that predicts."""
        return make_model(network, self.tokenizer, self.encoder, self.settings)

    def provenance(self) -> dict[str, Any]:
        """Return the configuration and the encoder's origin; tasks add those of their data."""
        return {
            "configuration": stage_values(self.run, self.name),
            **self.start.provenance(self.leaked),
        }


class ClassifierTask(FinetuningTask[M]):
    """A training on the labels of whole windows.

    Each draw of a training window trims up to `crop_jitter_bp` from each end before tokenization. Token
    boundaries therefore move, and the network cannot memorize windows by the phase of their tokens. The
    positions of the bases are shifted by up to `shift_bp`, and bases that leave the window are trimmed too.
    """

    losses = LabelLoss("binary")
    shift_bp = 0

    @property
    @abstractmethod
    def train_windows(self) -> Windows:
        """The training windows."""

    @property
    @abstractmethod
    def watched_windows(self) -> Windows:
        """The validation windows that are evaluated in training."""

    @property
    @abstractmethod
    def draws(self) -> WindowDraws:
        """The training windows of each step."""

    def _rows(
        self, windows: Sequence[str], cuts: Sequence[tuple[int, int]]
    ) -> PromoterRows:
        return promoter_rows(
            self.tokenizer, windows, cuts, self.settings, self.encoder.max_length
        )

    def batch(self, step: int, first: int, count: int) -> Batch:
        rows, cuts = self.draws.at(step, first, count)
        sequences, all_labels = self.train_windows
        texts = [sequences[row] for row in rows]
        if self.settings.both_strands:
            texts = self.draws.on_strands(texts, step, first)

        shifts = self.draws.shifts(step, first, count, self.shift_bp)
        cuts = [
            (max(left, -shift), max(right, shift))
            for (left, right), shift in zip(cuts, shifts.tolist(), strict=True)
        ]
        encoded = self._rows(texts, cuts)
        ids, lengths = pad(encoded.ids, self.tokenizer.pad_id)
        return {
            "ids": ids,
            "lengths": lengths,
            "firsts": torch.from_numpy(encoded.firsts + shifts),
            "labels": torch.from_numpy(all_labels[rows]),
        }

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"windows": self.losses.count(batch["labels"])}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        firsts = batch["firsts"]
        logits = network(batch["ids"], batch["lengths"], firsts=firsts).float()
        return self.losses.rows(logits, batch["labels"]).sum() / totals["windows"]

    def evaluate(self, network: nn.Module, world: World) -> dict[str, float]:
        """Return loss and metric on validation windows, on the given strand."""
        batch_size, pad_id = min(64, self.config.batch_size), self.tokenizer.pad_id

        def outputs(sequences: Sequence[str]) -> NDArray[np.float32]:
            rows = self._rows(sequences, [(0, 0)] * len(sequences))
            return row_logits(network, rows, pad_id, batch_size, world.device)

        logits = world.divide(self.watched_windows.sequences, outputs)
        return self.losses.metrics(logits, self.watched_windows.labels)
