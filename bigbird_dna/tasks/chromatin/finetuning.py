"""Training of chromatin models (App. F.3)."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import ChromatinConfig, Config, stage_values
from bigbird_dna.data.chromatin import sample, training_bins
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.chromatin.dataset import ChromatinData, read_dataset
from bigbird_dna.genome.packed import PackedReference, texts, turn
from bigbird_dna.genome.reference import Reference
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.model.batching import bin_rows, bins_shown, centred_bins, pad, whole_bins
from bigbird_dna.model.chromatin import bin_logits
from bigbird_dna.model.chromatin_network import ChromatinEnsemble, ChromatinNetwork
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack
from bigbird_dna.tasks.initial import Start, make_start
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.epochs import Epochs
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.micro_batches import take_rows

# Axes: N windows, K bins of a window, T tracks.

LEAST_POSITIVES = 5  # of a track among the validation bins, to count in their median AUROC


class ChromatinObjective:
    """Weighted binary cross-entropy over the bins of a window and all tracks.

    A training window is drawn on either strand and moved by up to `shift` bp: its bins stay where they are
    on the genome, and the tokens' phase changes. With several `neighbours` it is learnt from the bins to
    both sides of the middle one as well, where they are among the bins that are learnt from.
    """

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
        self.data, self.tokenizer = data, tokenizer
        self.bases = PackedReference(reference)
        self.threads = torch.get_num_threads()  # of this thread: batches are made by another
        self.config, self.shift = config.training, config.data.shift
        self.window, self.positions, self.world = window, positions, world
        self.training = training_bins(data, self.config)
        self.held_out = sample(data.rows("valid"), self.config.evaluation_bins, (self.config.seed, 5))
        self.epochs = Epochs(self.config.seed, len(self.training), lambda _: np.arange(len(self.training)))
        self.contigs = data.bins["contig"].astype(str).to_numpy()
        self.starts = data.bins["start"].to_numpy()
        size = data.bin_size
        seen = bins_shown(window, size, config.model.bin_layers)
        learnt = min(self.config.neighbours, whole_bins(window, size))
        count = max(seen, learnt)
        self.bins = centred_bins(window, size, seen)
        self.sides = np.arange(count) - count // 2  # bins to the right of the middle one
        # (n, K) rows, -1 where a bin is not learnt from
        self.neighbours = _neighbours(data, self.training, count)
        self.neighbours[:, np.abs(self.sides) > learnt // 2] = -1

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Windows of a training step, in an order drawn for each epoch."""
        config, size = self.config, self.data.bin_size
        chosen = self.epochs.indices(step * config.batch_size + first, count)
        rng = np.random.default_rng((config.seed, 3, step))
        shifts = rng.integers(-self.shift, self.shift + 1, config.batch_size)
        turned = rng.integers(0, 2, config.batch_size).astype(bool)
        shifts, turned = shifts[first : first + count], turned[first : first + count]
        rows = self.neighbours[chosen]  # (N, K)
        middle = self.training[chosen]
        starts = self.starts[middle] - (self.window - size) // 2 + shifts
        letters = self.bases.windows(self.contigs[middle].tolist(), starts.tolist(), self.window)
        begins = (self.starts[middle] - starts)[:, None] + self.sides * size  # (N, K)
        # The other way round: bins stay in the order of the window that is read.
        letters[turned] = turn(letters[turned])
        begins[turned] = (self.window - begins[turned] - size)[:, ::-1]
        rows[turned] = rows[turned, ::-1]
        encoded = bin_rows(self.tokenizer, texts(letters), begins, size, self.positions, self.threads)
        ids, lengths = pad(encoded.ids, self.tokenizer.pad_id)
        labels = self.data.labels.rows(np.maximum(rows, 0).ravel()).reshape(*rows.shape, -1)
        return {
            "ids": ids,
            "lengths": lengths,
            "spans": torch.from_numpy(encoded.spans),
            "labels": torch.from_numpy(labels),
            "present": torch.from_numpy(rows >= 0),
        }

    def part(self, batch: Batch, rows: Tensor) -> Batch:
        """Some windows of a batch."""
        return take_rows(batch, rows)

    def counts(self, batch: Batch) -> dict[str, float]:
        """Labels: bins × tracks."""
        return {"labels": float(batch["present"].sum()) * batch["labels"].shape[2]}

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        """Mean cross-entropy over bins and tracks, positives weighted, in nats."""
        logits = network(batch["ids"], batch["lengths"], batch["spans"]).float()
        weight = torch.full((), self.config.positive_weight, device=logits.device)
        losses = F.binary_cross_entropy_with_logits(
            logits, batch["labels"].float(), pos_weight=weight, reduction="none"
        )
        return (losses * batch["present"][..., None]).sum() / totals["labels"]

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Loss and median AUROC over the tracks on validation bins, one strand."""
        mine = self.held_out[self.world.rank :: self.world.size]
        size, batch_size = self.data.bin_size, min(16, self.config.batch_size)
        sequences = [self.bases.fetch(w) for w in self.data.windows(self.window, mine)]
        device = self.world.device
        scores = bin_logits(
            network, self.tokenizer, sequences, self.bins, 1, size, self.positions, batch_size, device
        )[:, 0]
        parts = self.world.gather((scores, self.data.labels.rows(mine)))
        logits = np.concatenate([part for part, _ in parts if len(part)])
        labels = np.concatenate([part for _, part in parts if len(part)])
        losses = F.binary_cross_entropy_with_logits(
            torch.from_numpy(logits),
            torch.from_numpy(labels).float(),
            pos_weight=torch.tensor(self.config.positive_weight),
        )
        if not math.isfinite(losses):
            return {"loss": float(losses), "auroc": math.nan}  # what isn't a number has no rank
        positives = labels.sum(axis=0)
        usable = (positives >= LEAST_POSITIVES) & (positives <= len(labels) - LEAST_POSITIVES)
        figures = [auroc(labels[:, t], logits[:, t]).value for t in np.flatnonzero(usable)]
        median = float(np.median(figures)) if figures else 0.5
        return {"loss": float(losses), "auroc": median}


def _neighbours(data: ChromatinData, rows: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.int64]:
    """For each of `rows` the rows of the `count` bins around it, itself in the middle; -1: not among them."""
    codes = data.bins["contig"].cat.codes.to_numpy().astype(np.int64)[rows]
    starts = data.bins["start"].to_numpy()[rows]
    keys = codes * (int(starts.max()) + (count + 1) * data.bin_size + 1) + starts
    order = np.argsort(keys, kind="stable")  # a published data set has its own order
    found = np.full((len(rows), count), -1, np.int64)
    for column, side in enumerate(range(-(count // 2), count // 2 + 1)):
        wanted = keys + side * data.bin_size
        place = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
        same = (keys[place] == wanted) & (codes[place] == codes)
        found[same, column] = rows[place[same]]
    return found


def _initialised(
    network: nn.Module, start: Start, data: ChromatinData, rows: npt.NDArray[np.intp], weight: float
) -> ChromatinEnsemble:
    """Give each member the pretrained encoder, and let it begin with the best constant prediction.

    Training, on the bins `rows`, is for what sequences tell.
    """
    assert isinstance(network, ChromatinEnsemble)
    share = data.labels.positives(rows) / len(rows)
    odds = torch.as_tensor(weight * share / (1 - share).clip(1e-6), dtype=torch.float32)
    for member in network.members:
        assert isinstance(member, ChromatinNetwork)
        start.initialise(member.encoder)
        with torch.no_grad():
            member.output.bias.copy_(odds.clamp(1e-6).log())
    return network


def _member(config: ChromatinConfig, window: int, member: int) -> ChromatinConfig:
    """The configuration of a window and a member of the ensemble, which has a seed of its own.

    Windows a step are those of the configuration, or as many as have the same number of bins.
    """
    training, data = config.training, config.data
    learnt, wanted = (min(training.neighbours, whole_bins(size, data.bin)) for size in (window, data.window))
    batch_size = training.batch_size
    if learnt != wanted:
        batch_size = max(1, round(batch_size * wanted / learnt))
    own = training.model_copy(update={"seed": training.seed + member, "batch_size": batch_size})
    return config.model_copy(update={"training": own})


def _settings(config: ChromatinConfig, data: ChromatinData, window: int) -> ChromatinSettings:
    return ChromatinSettings(
        window=window,
        bin=data.bin_size,
        pooling=config.model.pooling,
        bin_layers=config.model.bin_layers,
        head=config.model.head,
        members=1,
        tracks=tuple(NamedTrack(track=one.name, group=one.group) for one in data.tracks),
    )


def finetune_chromatin(
    config: Config,
    *,
    window: int,
    member: int,
    data: Path,
    reference: Reference,
    tokenizer_path: Path,
    pretrained: Path | None,
    output: Path,
    checkpoints: Path,
    world: World,
) -> dict[str, Any]:
    """Train a chromatin model (or go on), and publish its model directory.

    `window` bp is what it sees of the sequence; with another than the configuration's, a step has so many
    windows that it learns from as many bins. `member` is its number in an ensemble and changes the seed
    of everything drawn in training.
    """
    used = [data, reference.path, tokenizer_path, checkpoints]
    check_directory(output, [*used, pretrained] if pretrained else used)
    settings = _member(config.chromatin, window, member)
    config.encoder.check_pooling(settings.model.pooling, "chromatin.model")
    bins = read_dataset(data)
    if not len(bins.rows("train")):
        raise ConfigError(f"{data}: no bins for training")
    start = make_start(config.encoder, settings.model, pretrained, tokenizer_path, "chromatin.model")
    leaked = start.seen(bins.bins[bins.bins["split"] != "train"]) if world.is_first else []
    task = _settings(settings, bins, window)
    identity = {
        "settings": task.model_dump(exclude={"tracks"}),
        "labels": checksum(data / "labels.npz"),
        "bins": checksum(data / "bins.parquet"),
        "reference": checksum(reference.path),  # bins are places: what is learnt from stands there
        "shift": settings.data.shift,
    }
    run = start.begin(task, settings.training, identity, checkpoints, world)
    objective = ChromatinObjective(
        bins, reference, start.tokenizer, settings, window, start.config.positions, world
    )
    learnt = objective.training
    network = _initialised(run.model.network, start, bins, learnt, settings.training.positive_weight)
    what = f"{len(learnt):,} training bins, {len(bins.tracks):,} tracks"
    reached = run.train(objective, f"{what}, windows of {window:,} bp")
    figures = objective.evaluate(network.eval())
    world.leave()
    if not world.is_first:
        return {}
    metrics = {
        "valid": {**figures, "bins": len(objective.held_out)},
        "training": {"steps": reached.step, "tokens_seen": reached.tokens, "examples": len(learnt)},
    }
    provenance = {
        "configuration": stage_values(config, "chromatin"),
        "member": member,
        **start.provenance(leaked),
        "labels_sha256": identity["labels"],
        "reference": reference.path.name,
    }
    run.publish(output, provenance, metrics)
    return metrics
