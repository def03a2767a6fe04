"""A plain dilated convolutional network that predicts start sites at every base: a baseline of dense models.

It is trained for a number of CPU minutes, so that models can be compared at equal cost, on the windows and
labels of `promoters.dense`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.baselines.kmers import other_strand
from bigbird_dna.baselines.networks import one_hot
from bigbird_dna.baselines.scan import BaseScores, write_scan
from bigbird_dna.config.run import Config
from bigbird_dna.console import log
from bigbird_dna.data.start_sites import StartSites, fill_labels
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import UNKNOWN, Interval, base_codes

Bytes = NDArray[np.uint8]
Floats32 = NDArray[np.float32]

CHANNELS = 64
DILATIONS = (1, 2, 4, 8, 16, 32, 64, 128, 128)
# bp of a scan's window that are predicted, and that are read on each side
SCORED, CONTEXT = 2048, 766
BATCH = 8  # windows of a scan
WARMUP = 50  # steps

# Axes: B windows, L bases read, S bases predicted.


class Residual(nn.Module):
    """A convolution that is added to its input."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, CHANNELS)
        self.convolution = nn.Conv1d(
            CHANNELS, CHANNELS, 5, dilation=dilation, padding=2 * dilation
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.convolution(F.gelu(self.norm(x)))  # type: ignore[no-any-return]


class DilatedCnn(nn.Module):
    """Log-odds of a start site on "+" and "-" at each base of windows (B, 4, L): (B, 2, L)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(4, CHANNELS, 19, padding=9)
        self.blocks = nn.Sequential(*map(Residual, DILATIONS))
        self.norm = nn.GroupNorm(8, CHANNELS)
        self.output = nn.Conv1d(CHANNELS, 2, 1)
        nn.init.constant_(self.output.bias, -5.0)  # type: ignore[arg-type]

    def forward(self, windows: Tensor) -> Tensor:
        x = self.blocks(self.stem(windows))
        return self.output(F.gelu(self.norm(x)))  # type: ignore[no-any-return]

    def predict(self, codes: Bytes, context: int) -> Floats32:
        """Return probabilities (B, 2, S) for windows of codes (B, L), averaged over both strands."""
        with torch.inference_mode():
            forward, reverse = (
                torch.sigmoid(self(one_hot(torch.from_numpy(strand))))
                for strand in (codes, other_strand(codes))
            )

        mean = (forward + reverse.flip(1, 2)) / 2
        return mean[..., context : mean.shape[2] - context].numpy()


def train_network(data: StartSites, minutes: float, seed: int) -> DilatedCnn:
    """Train for a number of CPU minutes; the learning rate decreases linearly to 0."""
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    network = DilatedCnn()
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=0.01)
    begin, step, mean = time.process_time(), 0, 0.0
    while (used := (time.process_time() - begin) / (60 * minutes)) < 1:
        optimizer.param_groups[0]["lr"] = (
            2e-3 * min(1, (step + 1) / WARMUP) * (1 - used)
        )
        count, length = data.dense.training.batch_size, data.dense.window
        windows = [data.draw(generator) for _ in range(count)]
        codes = [base_codes(text.ljust(length, "N")) for text, _ in windows]
        logits = network(one_hot(torch.from_numpy(np.stack(codes))))
        targets = torch.from_numpy(fill_labels(windows, length))
        known = targets.isfinite()
        loss = F.binary_cross_entropy_with_logits(logits[known], targets[known])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        step += 1
        mean += 0.02 * (loss.item() - mean)
        if step in (20, 100) or step % 500 == 0:
            log(
                f"step {step:,}: loss {mean / (1 - 0.98**step):.5f}, {used:.0%} of the time"
            )

    log(f"trained for {step:,} steps in {minutes:g} CPU minutes")
    return network.eval()


def scan_scores(network: DilatedCnn, genome: Reference) -> BaseScores:
    """Return the scores of bases by a network, in windows with `CONTEXT` bp beside the `SCORED` ones; an N is not scored."""

    def scores(contig: str, first: int, last: int) -> NDArray[Any]:
        number = -(-(last - first) // SCORED)
        end = first + number * SCORED + CONTEXT
        codes = base_codes(genome.fetch(Interval(contig, first - CONTEXT, end)))
        windows = np.lib.stride_tricks.sliding_window_view(codes, SCORED + 2 * CONTEXT)
        windows = windows[::SCORED]
        predictions = [
            network.predict(windows[row : row + BATCH].copy(), CONTEXT)
            for row in range(0, number, BATCH)
        ]
        probs = np.concatenate(predictions).swapaxes(0, 1).reshape(2, -1)
        known = codes[CONTEXT : CONTEXT + last - first] < UNKNOWN
        return np.where(known, probs[:, : last - first], np.nan)

    return scores


def cnn_scan(
    config: Config,
    output: Path,
    *,
    reference: Path,
    promoters: Path,
    ignore: Path | None = None,
    scan: Path,
    minutes: float,
    seed: int = 1,
    stride: int = 10,
) -> None:
    """Train a network on the training contigs of a reference, and write its scan of another FASTA file.

    `promoters` has the annotated TSSs (`prepare promoters`). `minutes` of CPU time are those of training. The
    windows, their labels and `ignore` are those of `StartSites`, as for a dense model. The table is that of
    `write_scan`. `DataError`: there is no TSS to learn.
    """
    with Reference(reference) as genome:
        data = StartSites(config, promoters, genome, ignore)
        network = train_network(data, minutes, seed)
    with Reference(scan) as genome, atomic_path(output) as temporary:
        write_scan(temporary, genome, scan_scores(network, genome), stride)
