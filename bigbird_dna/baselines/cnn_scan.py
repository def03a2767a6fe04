"""A plain dilated convolutional network that predicts start sites at every base: a baseline of dense models.

It is trained for a number of CPU minutes, so that models can be compared at equal cost. The probability of a start site
on each strand is learned from random windows of the training contigs. Labels are triangles around annotated
sites, because annotations are only as exact as that.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
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
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.errors import DataError
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import UNKNOWN, Interval, base_codes
from bigbird_dna.genome.sources import find_assembly
from bigbird_dna.genome.splits import Splits

Bytes = NDArray[np.uint8]
Floats32 = NDArray[np.float32]

CHANNELS = 64
DILATIONS = (1, 2, 4, 8, 16, 32, 64, 128, 128)
SCORED, CONTEXT = (
    2048,
    766,
)  # bp of a window that are predicted, and that are read on each side
BATCH = 8
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


def triangles(length: int, sites: Iterable[int], half_width: int) -> Floats32:
    """Return labels (length,) that fall from 1 at a site to 0 at more than `half_width` bp from it."""
    labels = np.zeros(length, np.float32)
    for site in sites:
        start, end = max(site - half_width, 0), min(site + half_width + 1, length)
        distance = abs(np.arange(start, end) - site)
        labels[start:end] = np.maximum(
            labels[start:end], 1 - distance / (half_width + 1)
        )

    return labels


class Draws:
    """Random windows of training intervals with labels, on both strands.

    A fraction `near` of the windows contains an annotated site at a random position; the others are drawn from all
    bases. A window reads `context` bp beyond the `scored` ones; what is beyond its interval is N.
    """

    def __init__(
        self,
        reference: Path,
        promoters: Path,
        config: Config,
        *,
        scored: int,
        context: int,
        half_width: int,
        near: float,
    ) -> None:
        self.scored, self.context, self.near = scored, context, near
        sites: dict[tuple[str, str], list[int]] = defaultdict(list)
        for locus in read_loci(promoters):
            sites[locus.contig, locus.strand].append(locus.position)

        self.codes: list[Bytes] = []
        self.labels: list[Floats32] = []
        positions = []
        with Reference(reference) as genome:
            assembly = find_assembly(config)
            splits = Splits.from_config(config.genome, genome.contigs, assembly)
            for interval in splits.intervals("train"):
                if len(interval) < scored:
                    continue

                strands = [
                    [
                        site - interval.start
                        for site in sites[interval.contig, strand]
                        if interval.start <= site < interval.end
                    ]
                    for strand in "+-"
                ]
                positions += [
                    (len(self.codes), site) for some in strands for site in some
                ]
                codes = base_codes(genome.fetch(interval))
                self.codes.append(np.pad(codes, context, constant_values=UNKNOWN))
                self.labels.append(
                    np.stack(
                        [triangles(len(codes), some, half_width) for some in strands]
                    )
                )

        if not positions:
            raise DataError(
                f"{promoters}: no TSS on training contigs of at least {scored:,} bp of {reference}"
            )

        self.sites = np.array(positions)
        # Of all windows that could be drawn, those of each interval end before these numbers.
        self.ends = np.cumsum([labels.shape[1] - scored + 1 for labels in self.labels])

    def draw(self, generator: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
        """Return codes (count, L) and labels (count, 2, S)."""
        windows, labels = [], []
        for _ in range(count):
            if generator.random() < self.near:
                number, site = self.sites[generator.integers(len(self.sites))]
                last = self.labels[number].shape[1] - self.scored
                start = min(max(site - generator.integers(self.scored), 0), last)
            else:
                start = generator.integers(self.ends[-1])
                number = np.searchsorted(self.ends, start, "right")
                start -= self.ends[number - 1] if number else 0

            length = self.scored + 2 * self.context
            window = self.codes[number][start : start + length]
            label = self.labels[number][:, start : start + self.scored]
            if generator.random() < 0.5:
                window, label = other_strand(window), label[::-1, ::-1]

            windows.append(window)
            labels.append(label)

        return torch.from_numpy(np.stack(windows)), torch.from_numpy(np.stack(labels))


def train_network(draws: Draws, minutes: float, seed: int) -> DilatedCnn:
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
        codes, labels = draws.draw(generator, BATCH)
        logits = network(one_hot(codes))
        logits = logits[..., draws.context : draws.context + draws.scored]
        loss = F.binary_cross_entropy_with_logits(logits, labels)
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
    """Return the scores of bases by a network, which reads windows as in training; an N is not scored."""

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
    scan: Path,
    minutes: float,
    seed: int = 1,
    stride: int = 10,
    scored: int = SCORED,
    context: int = CONTEXT,
    half_width: int = 15,
    near: float = 0.0,
) -> None:
    """Train a network on the training contigs of a reference, and write its scan of another FASTA file.

    `promoters` has the annotated TSSs (`prepare promoters`). `minutes` of CPU time are those of training. The table
    is that of `write_scan`. Other arguments are those of `Draws`. `DataError`: there is no TSS to learn.
    """
    draws = Draws(
        reference,
        promoters,
        config,
        scored=scored,
        context=context,
        half_width=half_width,
        near=near,
    )
    network = train_network(draws, minutes, seed)
    with Reference(scan) as genome, atomic_path(output) as temporary:
        write_scan(temporary, genome, scan_scores(network, genome), stride)
