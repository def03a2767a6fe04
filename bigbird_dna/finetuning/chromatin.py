"""Training of chromatin models (App. F.3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn

from bigbird_dna.baselines.kmer_model import KmerModel, read_kmer_model
from bigbird_dna.config.chromatin import TSS, ChromatinConfig
from bigbird_dna.config.run import stage_values
from bigbird_dna.console import log
from bigbird_dna.data.chromatin import BinWindows, checked_window, sample, training_bins
from bigbird_dna.data.predictions import NETWORK
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.finetuning.ensembles import (
    KMERS,
    Linear,
    Members,
    add_members,
    fit_members,
)
from bigbird_dna.finetuning.evaluation import (
    BASELINE_BINS,
    baseline_log_odds,
    fit_baseline,
    predict_bins,
    without_nan,
)
from bigbird_dna.genome.chromatin.dataset import ChromatinData, read_dataset
from bigbird_dna.genome.chromatin.track import exchanged
from bigbird_dna.genome.reference import Reference, complement_windows, window_texts
from bigbird_dna.model.batching import (
    bin_rows,
    bins_shown,
    centered_bins,
    middle_bins,
    pad,
    run_rows,
    truncated,
    whole_bins,
)
from bigbird_dna.model.chromatin import LoadedChromatinModel, bin_logits, share_windows
from bigbird_dna.model.heads import ChromatinEnsemble, ChromatinNetwork
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.initialization import GenomeTask
from bigbird_dna.training.loop import Batch, Epochs, take_rows
from bigbird_dna.training.losses import LabelLoss
from bigbird_dna.training.task import TrainingResult

# Axes: N windows, K bins per window, T tracks.

VALIDATION_BINS = 1000  # maximum number to which the members' weights are fitted
SAMPLED_WINDOWS = 200  # whose tokens are counted


class BinDraws:
    """The training bins of each step, their shifts and strands; the same for every network."""

    def __init__(self, data: ChromatinData, config: ChromatinConfig) -> None:
        self.config, self.shift = config.training, config.data.shift_bp
        self.training = training_bins(data, self.config)
        self.epochs = Epochs(
            self.config.seed,
            len(self.training),
            lambda _: np.arange(len(self.training)),
        )

    def at(
        self, step: int, first: int, count: int
    ) -> tuple[list[int], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return, for examples `first … first + count` of a step, the indices in `training`, the shifts of
        their windows in bp, and which are read from the reverse strand, (count,) each."""
        config = self.config
        chosen = self.epochs.indices(step * config.batch_size + first, count)
        rng = np.random.default_rng((config.seed, 3, step))
        shifts = rng.integers(-self.shift, self.shift + 1, config.batch_size)
        reverse = rng.integers(0, 2, config.batch_size).astype(bool)
        return chosen, shifts[first : first + count], reverse[first : first + count]


class ChromatinObjective:
    """Weighted binary cross-entropy over the bins of a window and all tracks.

    A training window is read from a random strand and shifted by up to `shift` bp: its bins keep their
    genomic positions, and the phase of the tokens changes. With several `bins_per_window`, the training bins
    on both sides of the central bin contribute to the loss as well.
    """

    part = staticmethod(take_rows)

    def __init__(
        self,
        data: ChromatinData,
        reference: Reference,
        tokenizer: Tokenizer,
        config: ChromatinConfig,
        window: int,
        positions: int,
        world: World,
    ) -> None:
        self.data, self.reference, self.tokenizer = data, reference, tokenizer
        self.threads = (
            torch.get_num_threads()
        )  # read in this thread: another one makes the batches
        self.config, self.draws = config.training, BinDraws(data, config)
        self.losses = LabelLoss(positive_weight=self.config.positive_weight)
        self.window, self.positions, self.world = window, positions, world
        self.training, self.opposites = self.draws.training, exchanged(data.tracks)
        self.held_out = sample(
            data.rows("valid"), self.config.evaluation_bins, (self.config.seed, 5)
        )
        self.contigs = data.bins["contig"].astype(str).to_numpy()
        self.starts = data.bins["start"].to_numpy()
        size = data.bin_size
        seen = bins_shown(window, size, config.model.bin_layers)
        self.together = middle_bins(window, size, config.evaluation.center_fraction)
        learned = min(self.config.bins_per_window, whole_bins(window, size))
        count = max(seen, learned)
        self.bins = centered_bins(window, size, seen)
        self.sides = (
            np.arange(count) - count // 2
        )  # in bins, relative to the central bin
        # (n, K) rows, -1 where a bin does not contribute to the loss
        self.neighbors = neighboring_bins(data, self.training, count)
        self.neighbors[:, np.abs(self.sides) > learned // 2] = -1

    def batch(self, step: int, first: int, count: int) -> Batch:
        size = self.data.bin_size
        chosen, shifts, reverse = self.draws.at(step, first, count)
        rows = self.neighbors[chosen]  # (N, K)
        middle = self.training[chosen]
        starts = self.starts[middle] - (self.window - size) // 2 + shifts
        letters = self.reference.windows(
            self.contigs[middle].tolist(), starts.tolist(), self.window
        )
        begins = (self.starts[middle] - starts)[:, None] + self.sides * size  # (N, K)
        # Reverse-complemented windows: bins follow the order in which the window is read.
        letters[reverse] = complement_windows(letters[reverse])
        begins[reverse] = (self.window - begins[reverse] - size)[:, ::-1]
        rows[reverse] = rows[reverse, ::-1]
        encoded = bin_rows(
            self.tokenizer,
            window_texts(letters),
            begins,
            size,
            self.positions,
            self.threads,
        )
        ids, lengths = pad(encoded.ids, self.tokenizer.pad_id)
        labels = self.data.labels.rows(np.maximum(rows, 0).ravel()).reshape(
            *rows.shape, -1
        )
        if self.opposites is not None:
            labels[reverse] = labels[reverse][..., self.opposites]
        return {
            "ids": ids,
            "lengths": lengths,
            "spans": torch.from_numpy(encoded.spans),
            "labels": torch.from_numpy(labels),
            "present": torch.from_numpy(rows >= 0),
        }

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"labels": float(batch["present"].sum()) * batch["labels"].shape[2]}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        """Return the mean cross-entropy over bins and tracks in nats, with positives weighted."""
        logits = network(batch["ids"], batch["lengths"], batch["spans"]).float()
        losses = self.losses.terms(logits, batch["labels"].float())
        return (losses * batch["present"][..., None]).sum() / totals["labels"]

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Return the loss and the median AUROC over tracks for the validation bins, on one strand."""
        mine = self.held_out[self.world.rank :: self.world.size]
        scores = self._logits(network, mine)
        gathered = self.world.gather((scores, self.data.labels.rows(mine)))
        logits = np.concatenate([part for part, _ in gathered if len(part)])
        labels = np.concatenate([part for _, part in gathered if len(part)])
        return self.losses.metrics(logits, labels)

    def _logits(
        self, network: nn.Module, bins: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.float32]:
        """Return the logits (n, T) of bins, on one strand; neighbors share windows as in the evaluation."""
        batch_size, pad_id = min(16, self.config.batch_size), self.tokenizer.pad_id
        size, count = self.data.bin_size, self.together
        shared = share_windows(
            self.contigs[bins].tolist(), self.starts[bins], size, self.window, count
        )
        letters = self.reference.windows(
            [window.contig for window in shared.windows],
            [window.start for window in shared.windows],
            self.window,
        )
        bins_in_window = centered_bins(self.window, size, max(count, len(self.bins)))
        starts = np.broadcast_to(bins_in_window, (len(letters), len(bins_in_window)))
        rows = bin_rows(
            self.tokenizer,
            window_texts(letters),
            starts,
            size,
            self.positions,
            self.threads,
        )
        logits = run_rows(
            network,
            rows.ids,
            bin_logits(network, rows, count),
            pad_id=pad_id,
            batch_size=batch_size,
            device=self.world.device,
            empty=(count, 0),
        )
        return logits[shared.owner, shared.place]

    def add_member(self, ensemble: ChromatinEnsemble, baseline: KmerModel) -> Members:
        """Add the regressions to the only network of an ensemble; return the members' weights, which are the
        same for all tracks, fitted to validation bins.

        Positive labels have the weight of the network's training, so that log-odds keep their meaning.
        """
        (network,) = ensemble.members
        assert isinstance(network, ChromatinNetwork) and network.ensemble
        data = self.data
        rows = sample(data.rows("valid"), VALIDATION_BINS, (self.config.seed, 9))
        _, predicted = baseline_log_odds(baseline, data, self.reference, rows)
        logits = {NETWORK: self._logits(network, rows), KMERS: predicted}
        labels = data.labels.rows(rows)
        members = fit_members(logits, labels, self.config.positive_weight)
        dyads = baseline.words.dyads
        coefficients, bias = baseline.words.kmers.coefficients()
        kmers = Linear(coefficients, bias + dyads.bias)
        add_members(network.ensemble, {KMERS: kmers}, members)
        if network.ensemble.dyads is not None:
            network.ensemble.dyads.set_weights(
                dyads.words, members.weights[KMERS] * dyads.weight
            )
        return members


def neighboring_bins(
    data: ChromatinData, rows: npt.NDArray[np.intp], count: int
) -> npt.NDArray[np.int64]:
    """Return, per row in `rows`, the rows of the `count` bins centered on it; -1: not in `rows`."""
    codes = data.bins["contig"].cat.codes.to_numpy().astype(np.int64)[rows]
    starts = data.bins["start"].to_numpy()[rows]
    keys = codes * (int(starts.max()) + (count + 1) * data.bin_size + 1) + starts
    order = np.argsort(keys, kind="stable")  # a published data set may be unsorted
    neighbors = np.full((len(rows), count), -1, np.int64)
    for column, side in enumerate(range(-(count // 2), count // 2 + 1)):
        target = keys + side * data.bin_size
        index = order[
            np.minimum(np.searchsorted(keys, target, sorter=order), len(keys) - 1)
        ]
        same = (keys[index] == target) & (codes[index] == codes)
        neighbors[same, column] = rows[index[same]]
    return neighbors


def config_for(
    config: ChromatinConfig, window: int, member: int = 0
) -> ChromatinConfig:
    """Return the configuration for a window size and an ensemble member, with a separate seed per member.

    If the window size changes the bins per window, the batch size keeps the number of bins per step.
    """
    training, data = config.training, config.data
    learned, configured = (
        min(training.bins_per_window, whole_bins(size, data.bin))
        for size in (window, data.window)
    )
    batch_size = training.batch_size
    if learned != configured:
        batch_size = max(1, round(batch_size * configured / learned))
    changed = training.model_copy(
        update={"seed": training.seed + member, "batch_size": batch_size}
    )
    return config.model_copy(update={"training": changed})


@dataclass(eq=False)
class ChromatinTask(GenomeTask[tuple[dict[str, Any], Members | None]]):
    """Training of a chromatin model on bins, and its ensemble with k-mer regressions.

    `window` is the input length in bp. If it differs from the configuration's, the batch size changes so
    that a step learns from the same number of bins. `member` is the index in an ensemble; it changes the
    seed of all random draws in training. `kmers` is the file of the regressions; None: they are fitted, which
    takes minutes.
    """

    name: ClassVar = "chromatin"
    window: int
    member: int
    kmers: Path | None = None

    def __post_init__(self) -> None:
        checked_window(self.window, self.run.chromatin.data.bin)

    @cached_property
    def section(self) -> ChromatinConfig:
        """The run's chromatin section for this window and member."""
        section = config_for(self.run.chromatin, self.window, self.member)
        self.run.encoder.check_pooling(section.model.pooling, "chromatin.model")
        return section

    @cached_property
    def bins(self) -> ChromatinData:
        """The data set; `ConfigError` if it has no training bins."""
        bins = read_dataset(self.data)
        if not len(bins.rows("train")):
            raise ConfigError(f"{self.data}: contains no training bins")
        return bins

    @cached_property
    def settings(self) -> ChromatinSettings:
        model = self.section.model
        return ChromatinSettings(
            window=self.window,
            bin=self.bins.bin_size,
            pooling=model.pooling,
            bin_layers=model.bin_layers,
            head=model.head,
            members=1,
            ensemble_kmers=self.section.evaluation.baseline_kmer
            if model.ensemble
            else 0,
            ensemble_dyads=self.section.evaluation.baseline_dyads
            if model.ensemble
            else 0,
            tracks=tuple(map(NamedTrack.of, self.bins.tracks)),
        )

    @property
    def inputs(self) -> Sequence[Path]:
        return [*super().inputs, self.kmers] if self.kmers else super().inputs

    @cached_property
    def baseline(self) -> KmerModel:
        """The regressions of the ensemble; `DataError` or `ConfigError` if those of the file `kmers` are of
        other tracks, bins or words."""
        settings = self.settings
        k, dyads = settings.ensemble_kmers, settings.ensemble_dyads
        if self.kmers is None:
            learned = sample(self.learned, BASELINE_BINS, (self.config.seed, 8))
            valid = self.bins.rows("valid")
            return fit_baseline(self.bins, self.reference, k, dyads, learned, valid)
        model = read_kmer_model(self.kmers)
        words, bins = model.words, model.settings
        if not self.section.shares_kmers:
            raise ConfigError(
                f"{self.kmers}: not for a training with chromatin.training.train_fraction"
            )
        tracks = tuple(
            NamedTrack(track=one.track, group=one.group) for one in settings.tracks
        )
        expected = tracks, settings.bin, k, dyads
        if expected != (bins.tracks, bins.bin, words.k, words.each):
            raise DataError(
                f"{self.kmers}: needs the {len(tracks):,} tracks of {self.data} in bins of {settings.bin} bp, "
                f"{k}-mers and {dyads} dyads per track"
            )
        return model

    @cached_property
    def truncated(self) -> dict[str, int]:
        """Of a sample of training windows, how many have more tokens than the network reads."""
        rows = sample(self.learned, SAMPLED_WINDOWS, (self.config.seed, 10))
        texts = BinWindows(self.bins, self.reference, self.window, rows).sequences(
            np.arange(len(rows))
        )
        cut = truncated(self.tokenizer, texts, self.encoder.max_length)
        return {"sampled": len(rows), "truncated": int(cut.sum())}

    def check(self) -> None:
        super().check()
        if not len(self.bins.rows("valid")):
            raise DataError(f"{self.data}: no bin is in split 'valid'")
        if self.kmers:
            self.baseline  # noqa: B018 - an error before the training
        if count := self.truncated["truncated"]:
            positions = self.encoder.max_length
            log(
                f"warning: {count:,} of {self.truncated['sampled']:,} sampled windows of {self.window:,} bp "
                f"have more tokens than encoder.max_length {positions:,} allows: the network reads the "
                f"central {positions - 2:,}, and predicts bins beyond these from the nearest tokens"
            )

    @cached_property
    def learned(self) -> npt.NDArray[np.intp]:
        """The rows of the training bins."""
        return training_bins(self.bins, self.section.training)

    @cached_property
    def labels_sha256(self) -> str:
        """Checksum of the labels."""
        return checksum(self.data / "labels.npz")

    @property
    def held_out(self) -> pd.DataFrame:
        return self.bins.bins[self.bins.bins["split"] != "train"]

    def identity(self) -> dict[str, Any]:
        """Return the settings and the checksums of bins, labels and reference sequence."""
        return super().identity() | {
            "settings": self.settings.model_dump(exclude={"tracks"}),
            "labels": self.labels_sha256,
            "bins": checksum(self.data / "bins.parquet"),
            "reference": checksum(self.reference.path),
            "shift": self.section.data.shift_bp,
        }

    def objective(self, network: nn.Module, world: World) -> ChromatinObjective:
        return ChromatinObjective(
            self.bins,
            self.reference,
            self.tokenizer,
            self.section,
            self.window,
            self.encoder.max_length,
            world,
        )

    def initialize(self, network: nn.Module) -> None:
        """Load the pretrained encoder, and set output biases to the best constant prediction per track."""
        assert isinstance(network, ChromatinEnsemble)
        prevalence = self.bins.labels.positives(self.learned) / len(self.learned)
        bias = LabelLoss(
            positive_weight=self.section.training.positive_weight
        ).constant(prevalence)
        for member in network.members:
            assert isinstance(member, ChromatinNetwork)
            self.start.apply(member.encoder)
            with torch.no_grad():
                member.output.bias.copy_(bias)

    def describe(self, network: nn.Module) -> str:
        counts = (
            f"{len(self.learned):,} training bins, {len(self.bins.tracks):,} tracks"
        )
        return f"{counts}, windows of {self.window:,} bp"

    def measure(
        self, trained: TrainingResult[nn.Module]
    ) -> tuple[dict[str, Any], Members | None]:
        """Return metrics for validation bins as the model predicts them, on both strands, and the ensemble's
        weights if the model is one."""
        objective, network, world = trained.objective, trained.network, trained.world
        assert isinstance(objective, ChromatinObjective) and isinstance(
            network, ChromatinEnsemble
        )
        members = None
        if self.settings.ensemble_kmers:
            # A single process fits them: it takes minutes, and the others would compute the same.
            members = world.first(lambda: objective.add_member(network, self.baseline))
            world.overwrite(network.state_dict().values())
        rows, model = objective.held_out, self.model(trained)
        assert isinstance(model, LoadedChromatinModel)

        def predict(some: Sequence[int]) -> npt.NDArray[np.float32]:
            """Probabilities as `evaluate test-bins` computes them."""
            return predict_bins(
                [model],
                self.bins,
                self.reference,
                np.array(some, np.intp),
                networks=members is not None,
                center_fraction=self.section.evaluation.center_fraction,
                device=world.device.type,
            )

        probs = world.divide(rows.tolist(), predict)
        labels, shipped = self.bins.labels.rows(rows), probs[:, : len(self.bins.tracks)]
        if members is not None and world.is_first:
            _, words = baseline_log_odds(self.baseline, self.bins, self.reference, rows)
            alone = {NETWORK: probs[:, shipped.shape[1] :], KMERS: words}
            members = members.measured(alone, shipped, labels, "multilabel")
        metrics = without_nan(objective.losses.prediction_metrics(shipped, labels))
        return {**metrics, "bins": len(rows)}, members

    def write(
        self,
        directory: Path,
        trained: TrainingResult[nn.Module],
        measured: tuple[dict[str, Any], Members | None],
    ) -> dict[str, Any]:
        valid, members = measured
        training = {**trained.effort, "examples": len(self.learned)}
        metrics: dict[str, Any] = {
            "valid": valid,
            "training": training,
            "truncated": self.truncated,
        }
        if members is not None:
            metrics["ensemble"] = members.stored()
        provenance = {
            "configuration": stage_values(self.run, "chromatin"),
            "member": self.member,
            **self.start.provenance(self.leaked),
            "labels_sha256": self.labels_sha256,
            "reference": self.reference.path.name,
            "kmers_sha256": checksum(self.kmers) if self.kmers else None,
        }
        if self.section.data.tracks == TSS:
            provenance["promoters"] = self.run.promoters.source
        self.write_model(directory, trained, provenance, metrics)
        return metrics
