"""Training of models of start sites on every base of the training contigs."""

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.run import Config
from bigbird_dna.config.start_sites import DenseConfig
from bigbird_dna.config.training import StartConfig
from bigbird_dna.console import log
from bigbird_dna.data.start_sites import Labels, StartSites, fill_labels
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.finetuning.task import FinetuningTask
from bigbird_dna.genome.reference import Reference
from bigbird_dna.model.batching import pad
from bigbird_dna.model.settings import StartSiteSettings
from bigbird_dna.model.start_sites import (
    LoadedStartSiteModel,
    StartSiteNetwork,
    site_inputs,
)
from bigbird_dna.training.distributed import World
from bigbird_dna.training.initialization import load_start
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.task import TrainingResult, write_trained


class StartSiteTask(FinetuningTask[dict[str, Any]]):
    """Training of a model of start sites on the promoters `promoters` (TSV) of a genome.

    The loss is the cross-entropy of all bases outside the margins of windows, on both strands; a window is
    read from a random strand.
    """

    name = "start-sites"

    def __init__(
        self,
        run: Config,
        promoters: Path,
        reference: Reference,
        tokenizer_path: Path,
        pretrained: Path | None,
        ignore: Path | None = None,
    ) -> None:
        self.run, self.promoters, self.reference = run, promoters, reference
        self.tokenizer_path, self.pretrained = tokenizer_path, pretrained
        self.ignore = ignore
        self.threads = torch.get_num_threads()

    @cached_property
    def section(self) -> DenseConfig:
        return self.run.promoters.dense

    @property
    def initial(self) -> tuple[str, StartConfig]:
        # Without the section's other keys, of which some change no weights.
        keys = self.section.model_dump(include=set(StartConfig.model_fields))
        return "promoters.dense", StartConfig(**keys)

    @cached_property
    def configured_encoder(self) -> EncoderConfig:
        kmers = self.run.encoder.kmers or self.section.kmers
        return self.run.encoder.model_copy(update={"kmers": kmers})

    @cached_property
    def data(self) -> StartSites:
        """The start sites."""
        return StartSites(self.run, self.promoters, self.reference, self.ignore)

    @cached_property
    def settings(self) -> StartSiteSettings:
        section = self.section
        return StartSiteSettings(
            window=section.window,
            margin=section.margin,
            bin=section.bin,
            bin_layers=section.bin_layers,
            smoothing=section.smoothing_bp,
            channels=section.channels,
            layers_before=section.layers_before,
            layers_after=section.layers_after,
        )

    @property
    def keeps_best(self) -> bool:
        """Not by default: the held-out loss depends more on how common start sites are among the training
        windows, which no calling depends on, than on the ranking of bases."""
        return self.config.patience is not None

    def check(self) -> None:
        """Check that there are start sites, and record held-out contigs that the pretrained model has seen."""
        training = self.data.training  # an error if there is no start site
        log(
            f"{sum(len(region.sites) for region in training):,} start sites on "
            f"{sum(len(region.interval) for region in training):,} bases"
        )
        held_out = [
            (region.interval.contig, region.interval.start, region.interval.end)
            for split in ("valid", "test")
            for region in self.data.regions(split)
        ]
        if not any(np.isfinite(labels).any() for _, labels in self.watched):
            raise DataError(
                "genome.valid: no base to validate on: promoters.dense.margin is "
                f"{self.section.margin:,} bp at both ends of a region"
            )

        columns = ["contig", "start", "end"]
        self.leaked = self.start.seen(pd.DataFrame(held_out, columns=columns))
        texts = [text for text, _ in self.watched]
        self.warn_of_truncated(texts, "validation windows")

    def identity(self) -> dict[str, Any]:
        """Return the settings and the checksums of promoters and reference sequence."""
        return {
            **super().identity(),
            "promoters": checksum(self.promoters),
            **({} if self.ignore is None else {"ignore": checksum(self.ignore)}),
            "reference": checksum(self.reference.path),
            "genome": self.run.genome.model_dump(mode="json"),
        }

    def initialize(self, network: nn.Module) -> None:
        """Load the pretrained encoder, or all weights of a model of start sites; set new output biases to the
        fraction of positive labels."""
        assert isinstance(network, StartSiteNetwork)
        if self.start.path is not None:
            model = load_start(self.start.path)
            if isinstance(model, LoadedStartSiteModel):  # of another genome
                for key in (
                    "bin",
                    "bin_layers",
                    "channels",
                    "layers_before",
                    "layers_after",
                ):
                    its, own = getattr(model.settings, key), getattr(self.section, key)
                    if its != own:
                        raise ConfigError(
                            f"promoters.dense.{key} is {own}, but {model.path} has {its}"
                        )
                network.load_state_dict(model.network.state_dict())
                return

        self.start.apply(network.encoder)
        bases = sum(len(region.interval) for region in self.data.training)
        sites = sum(len(region.sites) for region in self.data.training)
        fraction = min(0.5, (self.section.smoothing_bp + 1) * sites / (2 * bases))
        nn.init.constant_(network.bin_output.bias, math.log(fraction / (1 - fraction)))

    def batch(self, step: int, first: int, count: int) -> Batch:
        draws = [
            self.data.draw(np.random.default_rng((self.config.seed, 3, step, number)))
            for number in range(first, first + count)
        ]
        return self._tensors(draws)

    def _tensors(self, windows: Sequence[tuple[str, Labels]]) -> Batch:
        texts = [text for text, _ in windows]
        inputs = site_inputs(
            self.tokenizer, texts, self.encoder.max_length, self.threads
        )
        ids, lengths = pad(inputs.ids, self.tokenizer.pad_id)
        bases, owners = inputs.stacked(range(len(texts)))
        return {
            "ids": ids,
            "lengths": lengths,
            "bases": bases,
            "owners": owners,
            "labels": torch.from_numpy(fill_labels(windows, bases.shape[1])),
        }

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"labels": float(batch["labels"].isfinite().sum())}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        """Return the mean cross-entropy of bases and strands in nats."""
        inputs = batch["bases"], batch["ids"], batch["lengths"], batch["owners"]
        logits = network(*inputs).float()
        known = batch["labels"].isfinite()
        labels = batch["labels"].nan_to_num(0.0)
        terms = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        return (terms * known).sum() / totals["labels"]

    @cached_property
    def watched(self) -> list[tuple[str, Labels]]:
        """Bases and labels of validation windows, at equal distances along the validation regions."""
        starts = []
        scored = self.section.window - 2 * self.section.margin
        for region in self.data.regions("valid"):
            starts += [
                (region, start)
                for start in range(region.first, region.last + 1, scored)
            ]

        count = min(len(starts), self.config.evaluation_windows)
        chosen = np.linspace(0, len(starts) - 1, count).round().astype(int)
        windows = []
        for number in np.unique(chosen).tolist():
            region, start = starts[number]
            text, begin = self.data.text(region, start)
            labels = self.data.labels_of_window(region, begin, len(text))
            windows.append((text, labels))

        return windows

    def evaluate(self, network: nn.Module, world: World) -> dict[str, float]:
        """Return the loss of the validation windows, read on the forward strand, in nats per base and strand."""

        def losses(numbers: NDArray[np.intp]) -> NDArray[np.float64]:
            sums = []
            for number in numbers.tolist():
                batch = self._tensors([self.watched[number]])
                tensors = {
                    name: value.to(world.device) for name, value in batch.items()
                }
                tensors["lengths"] = batch["lengths"]
                with torch.inference_mode():
                    total = self.loss(network, tensors, {"labels": 1.0})
                sums.append((float(total), self.counts(batch)["labels"]))
            return np.array(sums, np.float64).reshape(-1, 2)

        network.eval()
        sums = world.divide(np.arange(len(self.watched)), losses).sum(0)
        return {"loss": float(sums[0] / sums[1])}

    def measure(self, trained: TrainingResult[nn.Module]) -> dict[str, Any]:
        return self.evaluate(trained.network, trained.world)

    def write(
        self,
        directory: Path,
        trained: TrainingResult[nn.Module],
        measured: dict[str, Any],
    ) -> dict[str, Any]:
        metrics = {
            "valid": {**measured, "windows": len(self.watched)},
            "training": trained.effort,
        }
        provenance = {
            **self.provenance(),
            "reference": self.reference.path.name,
            "promoters": self.run.promoters.source,
            "promoters_sha256": checksum(self.promoters),
        }
        model: LoadedStartSiteModel = self.model(trained.network)
        write_trained(directory, model, trained, provenance, metrics)
        return metrics
