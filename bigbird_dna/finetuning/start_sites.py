"""Training of models of start sites on every base of the training contigs."""

import math
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.baselines.cnn_scan import triangles
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.run import Config
from bigbird_dna.config.start_sites import DenseConfig
from bigbird_dna.config.training import StartConfig
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import DataError
from bigbird_dna.finetuning.task import FinetuningTask
from bigbird_dna.genome.assembly import open_assembly
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, reverse_complement
from bigbird_dna.genome.splits import Split, Splits
from bigbird_dna.model.batching import pad
from bigbird_dna.model.settings import StartSiteSettings
from bigbird_dna.model.start_sites import (
    SHORTEST,
    STRANDS,
    LoadedStartSiteModel,
    StartSiteNetwork,
    site_inputs,
)
from bigbird_dna.training.distributed import World
from bigbird_dna.training.initialization import load_start
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.task import TrainingResult, write_trained

# Axes: N windows, S bases of a window.


class Region(NamedTuple):
    """A part of a contig in one split, and where windows in it may begin."""

    interval: Interval
    first: int
    last: int  # inclusive
    sites: NDArray[np.int64]  # start sites in it, on either strand


class StartSites:
    """Start sites of a genome by split, and the labels of windows.

    A window may extend beyond a contig's end, which cuts it off, but not into another split: no base of a
    held-out region is read in training.
    """

    def __init__(
        self, run: Config, promoters: Path, reference: Reference, dense: DenseConfig
    ) -> None:
        self.reference, self.window, self.margin = reference, dense.window, dense.margin
        self.smoothing = dense.smoothing_bp
        aliases = run.genome.aliases
        assembly = open_assembly(
            run.genome.assembly, None if aliases is None else Path(aliases)
        )
        self.splits = Splits.from_config(run.genome, reference.contigs, assembly)
        sites: dict[tuple[str, str], list[int]] = {}
        for locus in read_loci(promoters):
            if locus.contig not in reference.contigs:
                raise DataError(
                    f"{promoters}: {locus.name} is on contig {locus.contig!r}, which {reference.path} lacks"
                )
            sites.setdefault((locus.contig, locus.strand), []).append(locus.position)

        self.sites = {key: np.unique(positions) for key, positions in sites.items()}

    def regions(self, split: Split) -> list[Region]:
        """The regions of a split that windows are read from."""
        regions = []
        for interval in self.splits.intervals(split):
            length = self.reference.contigs[interval.contig]
            # At the ends of a contig, the bases of the margins are scored as well.
            first = interval.start - self.margin * (interval.start == 0)
            end = interval.end + self.margin * (interval.end == length)
            last = end - self.window
            if last < first:  # a short region is read as a whole
                first = last = (first + last) // 2

            both = [self.sites_in(interval, strand) for strand in STRANDS]
            regions.append(Region(interval, first, last, np.concatenate(both)))

        return regions

    def sites_in(self, interval: Interval, strand: str) -> NDArray[np.int64]:
        """Positions of start sites of a strand in an interval, ascending."""
        positions = self.sites.get((interval.contig, strand), np.empty(0, np.int64))
        first, last = np.searchsorted(positions, [interval.start, interval.end])
        return positions[first:last]

    def text(self, region: Region, start: int) -> tuple[str, int]:
        """The bases of the window from `start` on that are in its region, and where they begin."""
        first = max(start, region.interval.start)
        end = min(start + self.window, region.interval.end)
        contig = region.interval.contig
        return self.reference.fetch(Interval(contig, first, end)), first

    def labels(self, region: Region, start: int, length: int) -> NDArray[np.float32]:
        """Labels (2, length) of bases: 1 at a start site, falling linearly to 0."""
        reach = self.smoothing
        around = Interval(
            region.interval.contig, max(0, start - reach), start + length + reach
        )
        return np.stack(
            [
                triangles(length, self.sites_in(around, strand) - start, reach)
                for strand in STRANDS
            ]
        )

    def without_margins(
        self, region: Region, start: int, labels: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Set the labels (2, length) of a window's margins to NaN, except at the ends of the contig."""
        length = labels.shape[1]
        if start > 0:
            labels[:, : self.margin] = np.nan
        if start + length < self.reference.contigs[region.interval.contig]:
            labels[:, length - self.margin :] = np.nan
        return labels


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
    ) -> None:
        self.run, self.promoters, self.reference = run, promoters, reference
        self.tokenizer_path, self.pretrained = tokenizer_path, pretrained
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
        return StartSites(self.run, self.promoters, self.reference, self.section)

    @cached_property
    def regions(self) -> list[Region]:
        """The training regions."""
        return self.data.regions("train")

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

    def check(self) -> None:
        """Check that there are start sites, and record held-out contigs that the pretrained model has seen."""
        if not any(len(region.sites) for region in self.regions):
            raise DataError(f"{self.promoters}: no start site is on a training contig")

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
                network.load_state_dict(model.network.state_dict())
                return

        self.start.apply(network.encoder)
        bases = sum(len(region.interval) for region in self.regions)
        sites = sum(len(region.sites) for region in self.regions)
        fraction = min(0.5, (self.section.smoothing_bp + 1) * sites / (2 * bases))
        nn.init.constant_(network.bin_output.bias, math.log(fraction / (1 - fraction)))

    @cached_property
    def _sizes(self) -> NDArray[np.float64]:
        """Cumulative fractions of the bases of the training regions."""
        sizes = np.cumsum([len(region.interval) for region in self.regions])
        return np.asarray(sizes / sizes[-1])

    @cached_property
    def _site_counts(self) -> NDArray[np.int64]:
        """Cumulative numbers of start sites of the training regions."""
        return np.cumsum([len(region.sites) for region in self.regions])

    def drawn(self, rng: np.random.Generator) -> tuple[Region, int]:
        """Draw a training window: its region, and its start."""
        if rng.random() < self.config.near_sites:
            number = int(rng.integers(self._site_counts[-1]))
            index = int(np.searchsorted(self._site_counts, number, "right"))
            region = self.regions[index]
            site = int(region.sites[number - self._site_counts[index]])
            scored = self.section.window - 2 * self.section.margin
            start = site - self.section.margin - int(rng.integers(scored))
            return region, min(max(start, region.first), region.last)

        region = self.regions[int(np.searchsorted(self._sizes, rng.random(), "right"))]
        return region, int(rng.integers(region.first, region.last + 1))

    def batch(self, step: int, first: int, count: int) -> Batch:
        texts, labels = [], []
        for number in range(first, first + count):
            rng = np.random.default_rng((self.config.seed, 3, step, number))
            region, start = self.drawn(rng)
            text, begin = self.data.text(region, start)
            shortest = 0
            if len(region.interval) < self.section.window:
                # Its length and the place of its start site must not give the site away.
                shortest = len(text) // 2
            elif rng.random() < self.config.short:
                shortest = SHORTEST

            if 0 < shortest < len(text):
                # A part of any length, without the bases around it; lengths are uniform in their logarithm.
                length = round(shortest * (len(text) / shortest) ** rng.random())
                offset = int(rng.integers(len(text) - length + 1))
                text, begin = text[offset : offset + length], begin + offset
                of_window = self.data.labels(region, begin, length)
            else:
                of_window = self.data.labels(region, begin, len(text))
                of_window = self.data.without_margins(region, begin, of_window)

            if rng.integers(2):
                text, of_window = reverse_complement(text), of_window[::-1, ::-1]
            texts.append(text)
            labels.append(of_window)

        return self._tensors(texts, labels)

    def _tensors(self, texts: list[str], labels: list[NDArray[np.float32]]) -> Batch:
        inputs = site_inputs(
            self.tokenizer, texts, self.encoder.max_length, self.threads
        )
        ids, lengths = pad(inputs.ids, self.tokenizer.pad_id)
        bases, owners = inputs.stacked(range(len(texts)))
        filled = np.full((len(texts), len(STRANDS), bases.shape[1]), np.nan, np.float32)
        for row, of_window in zip(filled, labels, strict=True):
            row[:, : of_window.shape[1]] = of_window

        return {
            "ids": ids,
            "lengths": lengths,
            "bases": bases,
            "owners": owners,
            "labels": torch.from_numpy(filled),
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
    def watched(self) -> list[tuple[str, NDArray[np.float32]]]:
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
            labels = self.data.labels(region, begin, len(text))
            windows.append((text, self.data.without_margins(region, begin, labels)))

        return windows

    def evaluate(self, network: nn.Module, world: World) -> dict[str, float]:
        """Return the loss of the validation windows, read on the forward strand, in nats per base and strand."""

        def losses(numbers: NDArray[np.intp]) -> NDArray[np.float64]:
            sums = []
            for number in numbers.tolist():
                batch = self._tensors(
                    *map(list, zip(self.watched[number], strict=True))
                )
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
