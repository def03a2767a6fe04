"""Training of chromatin models (App. F.3)."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bigbird_dna.baselines.dyads import TrackWords
from bigbird_dna.config.chromatin import ChromatinConfig
from bigbird_dna.config.run import Config
from bigbird_dna.data.chromatin import BinWindows, checked_window, sample
from bigbird_dna.data.predictions import NETWORK
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.finetuning.ensembles import (
    KMERS,
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
from bigbird_dna.finetuning.task import FinetuningTask
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
    whole_bins,
)
from bigbird_dna.model.chromatin import bin_logits, share_windows
from bigbird_dna.model.heads import ChromatinEnsemble, ChromatinNetwork
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack
from bigbird_dna.training.distributed import World
from bigbird_dna.training.draws import Epochs
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.losses import LabelLoss
from bigbird_dna.training.task import TrainingResult, write_trained

# Axes: N windows, K bins per window, T tracks.

VALIDATION_BINS = 1000  # maximum number to which the members' weights are fitted
SAMPLED_WINDOWS = 200  # whose tokens are counted


class BinDraws:
    """The training bins of each step, their shifts and strands; the same for every network."""

    def __init__(self, data: ChromatinData, config: ChromatinConfig) -> None:
        self.config, self.shift = config.training, config.data.shift_bp
        self.training = data.rows("train")
        self.epochs = Epochs(self.config.seed, np.arange(len(self.training)))

    def at(
        self, step: int, first: int, count: int
    ) -> tuple[list[int], NDArray[np.int64], NDArray[np.bool_]]:
        """Return, for examples `first … first + count` of a step, the indices in `training`, the shifts of
        their windows in bp, and which are read from the reverse strand, (count,) each."""
        config = self.config
        chosen = self.epochs.indices(step * config.batch_size + first, count)
        rng = np.random.default_rng((config.seed, 3, step))
        shifts = rng.integers(-self.shift, self.shift + 1, config.batch_size)
        reverse = rng.integers(0, 2, config.batch_size).astype(bool)
        return chosen, shifts[first : first + count], reverse[first : first + count]


def neighboring_bins(
    data: ChromatinData, rows: NDArray[np.intp], count: int
) -> NDArray[np.int64]:
    """Return, per row in `rows`, the rows of the `count` bins centered on it; -1: not in `rows`."""
    codes = data.bins["contig"].cat.codes.to_numpy().astype(np.int64)[rows]
    starts = data.bins["start"].to_numpy()[rows]
    keys = codes * (int(starts.max()) + (count + 1) * data.bin_size + 1) + starts
    index = pd.Index(keys)
    neighbors = np.empty((len(rows), count), np.int64)
    for column in range(count):
        places = index.get_indexer(keys + (column - count // 2) * data.bin_size)
        neighbors[:, column] = np.where(places < 0, -1, rows[places])
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


class ChromatinTask(FinetuningTask[tuple[dict[str, Any], Members | None]]):
    """Training of a chromatin model on bins, and its ensemble with k-mer regressions.

    `window` is the input length in bp. If it differs from the configuration's, the batch size changes so
    that a step learns from the same number of bins. `member` is the index in an ensemble; it changes the
    seed of all random draws in training.

    A training window is read from a random strand and shifted by up to `shift_bp`: its bins keep their
    genomic positions, and the phase of the tokens changes. With several `bins_per_window`, the training bins
    on both sides of the central bin contribute to the loss as well, which is weighted binary cross-entropy.
    """

    name = "chromatin"

    def __init__(
        self,
        run: Config,
        tokenizer_path: Path,
        pretrained: Path | None,
        data: Path,
        reference: Reference,
        window: int,
        member: int,
    ) -> None:
        self.run, self.data, self.reference = run, data, reference
        self.tokenizer_path, self.pretrained = tokenizer_path, pretrained
        self.window = checked_window(window, run.chromatin.data.bin)
        self.member = member
        # Read in this thread: another one makes the batches.
        self.threads = torch.get_num_threads()

    @cached_property
    def section(self) -> ChromatinConfig:
        """The run's chromatin section for this window and member."""
        return config_for(self.run.chromatin, self.window, self.member)

    @cached_property
    def bins(self) -> ChromatinData:
        """The data set; `ConfigError` if it has no training bins."""
        bins = read_dataset(self.data)
        if not len(bins.rows("train")):
            raise ConfigError(f"{self.data}: contains no training bins")
        return bins

    @cached_property
    def settings(self) -> ChromatinSettings:
        """The task settings of the model."""
        model, evaluation = self.section.model, self.section.evaluation
        return ChromatinSettings(
            window=self.window,
            bin=self.bins.bin_size,
            pooling=model.pooling,
            bin_layers=model.bin_layers,
            head=model.head,
            members=1,
            ensemble_kmers=evaluation.baseline_kmer if model.ensemble else 0,
            ensemble_dyads=evaluation.baseline_dyads if model.ensemble else 0,
            tracks=tuple(
                NamedTrack(track=one.name, group=one.group, opposite=one.opposite)
                for one in self.bins.tracks
            ),
        )

    @cached_property
    def baseline(self) -> TrackWords:
        """The regressions of the ensemble."""
        settings = self.settings
        train = sample(self.draws.training, BASELINE_BINS, (self.config.seed, 8))
        return fit_baseline(
            self.bins,
            self.reference,
            settings.ensemble_kmers,
            settings.ensemble_dyads,
            train,
            self.bins.rows("valid"),
        )

    def check(self) -> None:
        """Check bins, and record held-out contigs that the pretrained model has seen."""
        bins = self.bins.bins
        self.leaked = self.start.seen(bins[bins["split"] != "train"])
        if not len(self.bins.rows("valid")):
            raise DataError(f"{self.data}: no bin is in split 'valid'")
        rows = sample(self.draws.training, SAMPLED_WINDOWS, (self.config.seed, 10))
        windows = BinWindows(self.bins, self.reference, self.window, rows)
        self.warn_of_truncated(
            windows.sequences(np.arange(len(rows))), "sampled windows"
        )

    @cached_property
    def labels_sha256(self) -> str:
        """Checksum of the labels."""
        return checksum(self.data / "labels.npz")

    def identity(self) -> dict[str, Any]:
        """Return the settings and the checksums of bins, labels and reference sequence."""
        return {
            **super().identity(),
            "labels": self.labels_sha256,
            "bins": checksum(self.data / "bins.parquet"),
            "reference": checksum(self.reference.path),
            "shift": self.section.data.shift_bp,
        }

    def initialize(self, network: nn.Module) -> None:
        """Load the pretrained encoder, and set output biases to the best constant prediction per track."""
        assert isinstance(network, ChromatinEnsemble)
        (member,) = network.members
        assert isinstance(member, ChromatinNetwork)
        self.start.apply(member.encoder)
        rows = self.draws.training
        prevalence = self.bins.labels.positives(rows) / len(rows)
        with torch.no_grad():
            member.output.bias.copy_(self.losses.constant(prevalence))

    @cached_property
    def losses(self) -> LabelLoss:
        return LabelLoss(positive_weight=self.config.positive_weight)

    @cached_property
    def draws(self) -> BinDraws:
        """The training bins of each step."""
        return BinDraws(self.bins, self.section)

    @cached_property
    def watched(self) -> NDArray[np.intp]:
        """The validation bins that are evaluated in training."""
        count = self.config.evaluation_bins
        return sample(self.bins.rows("valid"), count, (self.config.seed, 5))

    @cached_property
    def contigs(self) -> NDArray[Any]:
        """The contig of each bin."""
        return self.bins.bins["contig"].astype(str).to_numpy()

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The start of each bin."""
        return self.bins.bins["start"].to_numpy()

    @cached_property
    def bins_read(self) -> int:
        """Number of bins of a window whose states the network computes."""
        return bins_shown(
            self.window, self.bins.bin_size, self.section.model.bin_layers
        )

    @cached_property
    def neighbors(self) -> NDArray[np.int64]:
        """The rows (n, K) of the bins of each training window, -1 where one does not contribute to the loss."""
        trained = min(
            self.config.bins_per_window, whole_bins(self.window, self.bins.bin_size)
        )
        count = max(self.bins_read, trained)
        neighbors = neighboring_bins(self.bins, self.draws.training, count)
        neighbors[:, np.abs(np.arange(count) - count // 2) > trained // 2] = -1
        return neighbors

    def batch(self, step: int, first: int, count: int) -> Batch:
        size, window = self.bins.bin_size, self.window
        chosen, shifts, reverse = self.draws.at(step, first, count)
        rows = self.neighbors[chosen]  # (N, K)
        middle = self.draws.training[chosen]
        starts = self.starts[middle] - (window - size) // 2 + shifts
        letters = self.reference.windows(
            self.contigs[middle].tolist(), starts.tolist(), window
        )
        sides = np.arange(rows.shape[1]) - rows.shape[1] // 2  # in bins
        begins = (self.starts[middle] - starts)[:, None] + sides * size  # (N, K)
        # Reverse-complemented windows: bins follow the order in which the window is read.
        letters[reverse] = complement_windows(letters[reverse])
        begins[reverse] = (window - begins[reverse] - size)[:, ::-1]
        rows[reverse] = rows[reverse, ::-1]
        encoded = bin_rows(
            self.tokenizer,
            window_texts(letters),
            begins,
            size,
            self.encoder.max_length,
            self.threads,
        )
        ids, lengths = pad(encoded.ids, self.tokenizer.pad_id)
        labels = self.bins.labels.rows(np.maximum(rows, 0).ravel()).reshape(
            *rows.shape, -1
        )
        opposites = exchanged(self.bins.tracks)
        if opposites is not None:
            labels[reverse] = labels[reverse][..., opposites]

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

    def evaluate(self, network: nn.Module, world: World) -> dict[str, float]:
        """Return the loss and the median AUROC over tracks for the validation bins, on one strand."""
        logits = world.divide(
            self.watched, lambda rows: self._logits(network, rows, world)
        )
        return self.losses.metrics(logits, self.bins.labels.rows(self.watched))

    def _logits(
        self, network: nn.Module, rows: NDArray[np.intp], world: World
    ) -> NDArray[np.float32]:
        """Return the logits (n, T) of bins, on one strand; neighbors share windows as in the evaluation."""
        size, window = self.bins.bin_size, self.window
        count = middle_bins(window, size, self.section.evaluation.center_fraction)
        shared = share_windows(
            self.contigs[rows].tolist(), self.starts[rows], size, window, count
        )
        letters = self.reference.windows(
            [one.contig for one in shared.windows],
            [one.start for one in shared.windows],
            window,
        )
        begins = centered_bins(window, size, max(count, self.bins_read))
        encoded = bin_rows(
            self.tokenizer,
            window_texts(letters),
            np.broadcast_to(begins, (len(letters), len(begins))),
            size,
            self.encoder.max_length,
            self.threads,
        )
        logits = run_rows(
            network,
            encoded.ids,
            bin_logits(network, encoded, count),
            pad_id=self.tokenizer.pad_id,
            batch_size=min(16, self.config.batch_size),
            device=world.device,
            empty=(count, 0),
        )
        return logits[shared.owner, shared.place]

    def _add_members(self, network: ChromatinEnsemble, world: World) -> Members:
        """Add the regressions to the network; return the members' weights, which are the same for all tracks,
        fitted to validation bins.

        Positive labels have the weight of the network's training, so that log-odds keep their meaning.
        """
        (member,) = network.members
        assert isinstance(member, ChromatinNetwork) and member.ensemble
        baseline, bins = self.baseline, self.bins
        rows = sample(bins.rows("valid"), VALIDATION_BINS, (self.config.seed, 9))
        _, words = baseline_log_odds(baseline, bins, self.reference, rows)
        logits = {NETWORK: self._logits(member, rows, world), KMERS: words}
        labels = bins.labels.rows(rows)
        members = fit_members(logits, labels, self.config.positive_weight)
        coefficients, bias = baseline.kmers.coefficients()
        regression = (coefficients, bias + baseline.bias)
        add_members(member.ensemble, {KMERS: regression}, members)
        if member.ensemble.dyads is not None:
            weights = members.weights[KMERS] * baseline.weight
            member.ensemble.dyads.set_weights(baseline.dyads, weights)

        return members

    def measure(
        self, trained: TrainingResult[nn.Module]
    ) -> tuple[dict[str, Any], Members | None]:
        """Return metrics for validation bins as the model predicts them, on both strands, and the ensemble's
        weights if the model is one."""
        network, world = trained.network, trained.world
        assert isinstance(network, ChromatinEnsemble)
        members = None
        if self.settings.ensemble_kmers:
            # A single process fits them: it takes minutes, and the others would compute the same.
            members = world.first(lambda: self._add_members(network, world))
            world.overwrite(network.state_dict().values())

        model = self.model(network)

        def predict(rows: NDArray[np.intp]) -> NDArray[np.float32]:
            """Probabilities as `evaluate test-bins` computes them."""
            return predict_bins(
                [model],
                self.bins,
                self.reference,
                rows,
                networks=members is not None,
                center_fraction=self.section.evaluation.center_fraction,
                device=world.device.type,
            )

        rows, tracks = self.watched, len(self.bins.tracks)
        probs = world.divide(rows, predict)
        labels = self.bins.labels.rows(rows)
        if members is not None and world.is_first:
            _, words = baseline_log_odds(self.baseline, self.bins, self.reference, rows)
            alone = {NETWORK: probs[:, tracks:], KMERS: words}
            members = members.measured(alone, probs[:, :tracks], labels, "multilabel")

        metrics = self.losses.prediction_metrics(probs[:, :tracks], labels)
        return {**without_nan(metrics), "bins": len(rows)}, members

    def write(
        self,
        directory: Path,
        trained: TrainingResult[nn.Module],
        measured: tuple[dict[str, Any], Members | None],
    ) -> dict[str, Any]:
        valid, members = measured
        metrics: dict[str, Any] = {
            "valid": valid,
            "training": {**trained.effort, "examples": len(self.draws.training)},
        }
        if members is not None:
            metrics["ensemble"] = members.stored()

        provenance = {
            **self.provenance(),
            "member": self.member,
            "labels_sha256": self.labels_sha256,
            "reference": self.reference.path.name,
        }
        model = self.model(trained.network)
        write_trained(directory, model, trained, provenance, metrics)
        return metrics
