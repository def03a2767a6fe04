"""Training and evaluation of chromatin profiles (App. F.3)."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import ChromatinConfig, Config
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError
from bigbird_dna.files import check_writable, checksum
from bigbird_dna.genome.chromatin.dataset import ChromatinData, read_dataset
from bigbird_dna.genome.intervals import Interval
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.model.chromatin import ProfileEnsemble, ProfileNetwork
from bigbird_dna.model.directory import Model, build_network, save
from bigbird_dna.reporting.metrics.auroc import auroc
from bigbird_dna.tasks.chromatin.inference import profile_logits
from bigbird_dna.tasks.chromatin.rows import bins_shown, centred_bins, profile_rows, whole_bins
from bigbird_dna.tasks.initial import make_start
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.batches import pad
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch, train
from bigbird_dna.training.state import CheckpointStore

# Axes: N windows, K bins of a window, T tracks.

LEAST_POSITIVES = 5  # of a track among the validation bins, to count in their median AUROC
# Keys that don't decide the weights, or decide them through the data set's checksum.
NOT_TRAINING = {
    *("evaluate_every", "checkpoint_every", "baseline_kmer", "models", "test_bins", "tracks"),
    *("compare_window", "label", "widen", "negative_fraction", "minimum_positives", "blacklist"),
    *("max_n", "valid_regions", "test_regions", "middle", "report_positives", "variants"),
}


class ChromatinObjective:
    """Weighted binary cross-entropy over the bins of a window and all tracks.

    A training window is drawn on either strand and moved by up to `shift` bp: its bins stay where they are
    on the genome, and the tokens' phase changes. With several `neighbours` it is learnt from the bins to
    both sides of the middle one as well, where they belong to the training set.
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
        self.data, self.reference, self.tokenizer = data, reference, tokenizer
        self.config, self.window, self.positions, self.world = config, window, positions, world
        self.training = data.rows("train")
        held_out = data.rows("valid")
        if len(held_out) > config.evaluation_bins:
            rng = np.random.default_rng((config.seed, 5))
            held_out = np.sort(rng.choice(held_out, config.evaluation_bins, replace=False))
        self.held_out = held_out
        self.contigs = data.bins["contig"].astype(str).to_numpy()
        self.starts = data.bins["start"].to_numpy()
        size = data.bin_size
        seen = bins_shown(window, size, config.bin_layers)
        learnt = min(config.neighbours, whole_bins(window, size))
        count = max(seen, learnt)
        self.bins = centred_bins(window, size, seen)
        self.sides = np.arange(count) - count // 2  # bins to the right of the middle one
        # (n, K) rows, -1 where a bin is not learnt from
        self.neighbours = _neighbours(data, self.training, count)
        self.neighbours[:, np.abs(self.sides) > learnt // 2] = -1
        self._shuffled: tuple[int, npt.NDArray[np.int64]] = (-1, np.empty(0, np.int64))

    def _epoch(self, number: int) -> npt.NDArray[np.int64]:
        if self._shuffled[0] != number:
            rng = np.random.default_rng((self.config.seed, 2, number))
            self._shuffled = (number, rng.permutation(len(self.training)))
        return self._shuffled[1]

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Windows of a training step, in an order drawn for each epoch."""
        config, size = self.config, self.data.bin_size
        begin = step * config.batch_size + first
        chosen = []
        for position in range(begin, begin + count):
            epoch, place = divmod(position, len(self.training))
            chosen.append(int(self._epoch(epoch)[place]))
        rng = np.random.default_rng((config.seed, 3, step))
        shifts = rng.integers(-config.shift, config.shift + 1, config.batch_size)
        turned = rng.integers(0, 2, config.batch_size).astype(bool)
        shifts, turned = shifts[first : first + count], turned[first : first + count]
        rows = self.neighbours[chosen]  # (N, K)
        middle = self.training[chosen]
        sequences = []
        offsets = np.empty(rows.shape, np.int64)
        for number, (row, shift, turn) in enumerate(zip(middle, shifts, turned, strict=True)):
            start = int(self.starts[row]) - (self.window - size) // 2 + int(shift)
            sequence = self.reference.fetch(Interval(self.contigs[row], start, start + self.window))
            begins = int(self.starts[row]) + self.sides * size - start
            if turn:
                sequence = reverse_complement(sequence)
                # The other way round: bins stay in the order of the window that is read.
                begins = (self.window - begins - size)[::-1]
                rows[number] = rows[number, ::-1]
            sequences.append(sequence)
            offsets[number] = begins
        encoded = profile_rows(self.tokenizer, sequences, offsets, size, self.positions)
        ids, lengths = pad(encoded.ids, self.tokenizer.pad_id)
        labels = self.data.labels.rows(np.maximum(rows, 0).ravel()).reshape(*rows.shape, -1)
        return {
            "ids": ids,
            "lengths": lengths,
            "spans": torch.from_numpy(encoded.spans),
            "labels": torch.from_numpy(labels),
            "present": torch.from_numpy(rows >= 0),
        }

    def counts(self, batch: Batch) -> dict[str, float]:
        """Labels: bins × tracks."""
        return {"labels": float(batch["present"].sum()) * batch["labels"].shape[2]}

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        """Mean cross-entropy over bins and tracks, positives weighted, in nats."""
        logits = network(batch["ids"], batch["lengths"], batch["spans"]).float()
        weight = torch.tensor(self.config.positive_weight, device=logits.device)
        losses = F.binary_cross_entropy_with_logits(
            logits, batch["labels"].float(), pos_weight=weight, reduction="none"
        )
        return (losses * batch["present"][..., None]).sum() / totals["labels"]

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Loss and median AUROC over the tracks on validation bins, one strand."""
        mine = self.held_out[self.world.rank :: self.world.size]
        size = self.data.bin_size
        sequences = [self.reference.fetch(w) for w in self.data.windows(self.window, mine)]
        scores = profile_logits(
            network,
            self.tokenizer,
            sequences,
            self.bins,
            1,
            size,
            self.positions,
            min(16, self.config.batch_size),
            self.world.device,
        )[:, 0]
        parts = self.world.gather((scores, self.data.labels.rows(mine)))
        logits = np.concatenate([part for part, _ in parts if len(part)])
        labels = np.concatenate([part for _, part in parts if len(part)])
        losses = F.binary_cross_entropy_with_logits(
            torch.from_numpy(logits),
            torch.from_numpy(labels).float(),
            pos_weight=torch.tensor(self.config.positive_weight),
        )
        positives = labels.sum(axis=0)
        usable = (positives >= LEAST_POSITIVES) & (positives <= len(labels) - LEAST_POSITIVES)
        figures = [auroc(labels[:, t], logits[:, t]).value for t in np.flatnonzero(usable)]
        median = float(np.median(figures)) if figures else 0.5
        return {"loss": float(losses), "auroc": median}


def _neighbours(
    data: ChromatinData, rows: npt.NDArray[np.intp], count: int
) -> npt.NDArray[np.int64]:
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


def _start_at_prevalence(network: ProfileNetwork, data: ChromatinData, weight: float) -> None:
    """Let the network begin with the best constant prediction: training is for what sequences tell."""
    share = data.labels.positives(data.rows("train")) / len(data.rows("train"))
    odds = torch.as_tensor(weight * share / (1 - share).clip(1e-6), dtype=torch.float32)
    with torch.no_grad():
        network.output.bias.copy_(odds.clamp(1e-6).log())


def _batch_size(config: ChromatinConfig, window: int, processes: int) -> int:
    """Windows a step: those of the configuration, or as many as have the same number of bins."""
    learnt, wanted = (
        min(config.neighbours, whole_bins(size, config.bin)) for size in (window, config.window)
    )
    shares = processes * config.accumulate
    if learnt == wanted:
        return config.batch_size
    return max(1, round(config.batch_size * wanted / learnt / shares)) * shares


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
    check_writable(output, directory=True)
    settings = config.chromatin.model_copy(
        update={
            "seed": config.chromatin.seed + member,
            "batch_size": _batch_size(config.chromatin, window, world.size),
        }
    )
    bins = read_dataset(data)
    if not len(bins.rows("train")):
        raise ConfigError(f"{data}: no bins for training")
    start = make_start(config.encoder, settings, pretrained, tokenizer_path, "chromatin")
    encoder = start.config
    task_settings = {
        "window": window,
        "bin": bins.bin_size,
        "pooling": settings.pooling,
        "bin_layers": settings.bin_layers,
        "members": 1,
        "tracks": [{"track": track.name, "group": track.group} for track in bins.tracks],
    }
    identity = {
        "task": "chromatin",
        "encoder": encoder.model_dump(),
        "training": settings.model_dump(exclude=NOT_TRAINING),
        "window": window,
        "tokenizer": start.tokenizer.sha256,
        "start": start.sha256,
        "labels": checksum(data / "labels.npz"),
        "bins": checksum(data / "bins.parquet"),
        "processes": world.size,
    }
    held_out = bins.bins.loc[bins.bins["split"] != "train", "contig"].astype(str)
    leaked = start.seen(held_out) if world.is_first else []
    store = CheckpointStore(checkpoints, identity)
    torch.manual_seed(settings.seed)
    network = build_network("chromatin", encoder, task_settings)
    assert isinstance(network, ProfileEnsemble)
    for one in network.members:
        assert isinstance(one, ProfileNetwork)
        start.initialise(one.encoder)
        _start_at_prevalence(one, bins, settings.positive_weight)
    objective = ChromatinObjective(
        bins, reference, start.tokenizer, settings, window, encoder.positions, world
    )
    if world.is_first:
        log(
            f"{len(objective.training):,} training bins, {len(bins.tracks):,} tracks, "
            f"windows of {window:,} bp, {world.device}"
        )
    reached = train(network, objective, settings, store, world)
    figures = objective.evaluate(network.eval())
    world.leave()
    if not world.is_first:
        return {}
    metrics = {
        "valid": {**figures, "bins": len(objective.held_out)},
        "training": {"steps": reached.step, "tokens_seen": reached.tokens},
    }
    provenance = {
        "configuration": config.model_dump(include={"encoder", "chromatin", "genome", "seed"}),
        "member": member,
        "pretrained_sha256": start.sha256,
        "held_out_contigs_seen_in_pretraining": leaked,
        "labels_sha256": identity["labels"],
        "reference": str(reference.path.name),
    }
    model = Model("chromatin", network, start.tokenizer, encoder, task_settings)
    save(output, model, provenance, metrics, {"training.jsonl": store.log_path})
    store.remove()
    return metrics
