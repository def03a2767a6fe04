"""Training of a causal model of bytes, and bits per byte on held-out data."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import EncoderConfig, TrainingConfig
from bigbird_dna.config.density import DensityConfig
from bigbird_dna.console import log
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.tasks.density.causal import CausalNetwork
from bigbird_dna.tasks.density.data import END, ByteStream, Simple, padded, read_stream
from bigbird_dna.tasks.plain_networks import PlainRun
from bigbird_dna.training.distributed import World
from bigbird_dna.training.micro_batches import Batch

# Axes: B batch, L symbols, N inputs.

JUDGED = 64
"""Held-out inputs that are measured on while training, at most."""
_SYMBOLS_AT_ONCE = 1 << 14

Floats = npt.NDArray[np.float64]


def train_density(config: DensityConfig, output: Path, checkpoints: Path, world: World) -> dict[str, Any]:
    """Train a model, or go on; judge it on the test files, and write the directory `output`.

    Returns the figures in `result.json`. `bits_per_byte` (of images: bits per dim) is over the test inputs
    side by side, each without what stands before it, with a 95 % interval over inputs; the ends of documents
    cost bits and are no bytes. Beside it what two tables of frequencies give.

    Raises
    ------
    ConfigError
        The attention has no causal form.
    DataError
        A file can't be read.
    """
    files = [Path(name) for name in (*config.train, *config.test)]
    check_directory(output, [*files, checkpoints])
    train, test = (
        read_stream(config.format, map(Path, names), config.input_bytes, most)
        for names, most in ((config.train, config.train_bytes), (config.test, config.test_bytes))
    )
    identity = {"task": "density", "format": config.format, "train": train.digest(), "test": test.digest()}
    shape = {"positions": max(16, train.length), "vocabulary": train.kinds + 1}
    # It names the checkpoints too: those of an encoder that began by looking ahead aren't gone on with.
    encoder = config.encoder.model_copy(update={**shape, "causal": True})

    def build(encoder: EncoderConfig) -> CausalNetwork:
        return CausalNetwork(encoder, train.kinds)

    run = PlainRun.begin(build, encoder, config.training, identity, checkpoints, world)
    objective = NextSymbol(train, test, config.training)
    what = f"{config.format}: {len(train.symbols):,} symbols, inputs of {train.length:,}"
    progress = run.train(objective, what)
    with torch.inference_mode():
        bits, low, high = bits_per_byte(run.network, test, world)
    world.leave()
    order0, order1 = Simple.fitted(train).bits(test)
    result = {
        **{"format": config.format, "attention": config.encoder.attention, "bits_per_byte": bits},
        **{"bits_per_byte_low": low, "bits_per_byte_high": high},
        **{"by_frequency": order0, "by_frequency_after_a_byte": order1},
        **{"test_inputs": test.inputs, "test_bytes": int((test.symbols != END).sum())},
        **{"input_symbols": train.length, "parameters": run.parameters, "steps": progress.step},
        **{"train_sha256": identity["train"], "test_sha256": identity["test"]},
    }
    if world.is_first:
        run.publish(output, result)
        log(f"held out: {bits:.4f} bits per byte; by frequency {order0:.4f}, after a byte {order1:.4f}")
    return result


class NextSymbol:
    """Cross-entropy of every symbol, given those before it in its input."""

    def __init__(self, learnt: ByteStream, held_out: ByteStream, config: TrainingConfig) -> None:
        self.learnt, self.held_out, self.config = learnt, held_out, config

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Inputs of a step, drawn with replacement."""
        rng = np.random.default_rng((self.config.seed, 7, step))
        drawn = rng.integers(0, self.learnt.starts, self.config.batch_size)[first : first + count]
        return _batch([self.learnt.at(int(start)) for start in drawn])

    def part(self, batch: Batch, rows: Tensor) -> Batch:
        """Some inputs of a batch."""
        return {name: value[rows] for name, value in batch.items()}

    def counts(self, batch: Batch) -> dict[str, float]:
        """Symbols."""
        return {"symbols": float(batch["lengths"].sum())}

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        """Mean over symbols, nats."""
        return _nats(network, batch["symbols"], batch["lengths"]).sum() / totals["symbols"]

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Bits per byte on the first held-out inputs."""
        count = min(JUDGED, self.held_out.inputs)
        bits = _bits(network, self.held_out, range(count))
        taken = self.held_out.symbols[: count * self.held_out.length]
        return {"bits_per_byte": float(bits.sum() / max(1, int((taken != END).sum())))}


def bits_per_byte(
    network: nn.Module, stream: ByteStream, world: World
) -> tuple[float, float | None, float | None]:
    """Bits per byte over all inputs of a stream, and a 95 % interval (none for a single input)."""
    bits = world.divide(range(stream.inputs), lambda rows: _bits(network, stream, rows))
    counts = np.array([(stream.input(number) != END).sum() for number in range(stream.inputs)])
    mean = float(bits.sum() / counts.sum())
    if len(bits) < 2:
        return mean, None, None
    spread = np.square(bits - mean * counts).sum() * len(bits) / (len(bits) - 1)
    around = 1.959964 * math.sqrt(float(spread)) / float(counts.sum())
    return mean, mean - around, mean + around


def _bits(network: nn.Module, stream: ByteStream, numbers: Any) -> Floats:
    """Bits of each of the inputs, (N,)."""
    device = next(network.parameters()).device
    size = max(1, _SYMBOLS_AT_ONCE // stream.length)
    found = [np.zeros(0)]
    for start in range(0, len(numbers), size):
        batch = _batch([stream.input(number) for number in numbers[start : start + size]])
        nats = _nats(network, batch["symbols"].to(device), batch["lengths"])
        found.append(nats.double().sum(1).cpu().numpy() / math.log(2))
    return np.concatenate(found)


def _batch(inputs: list[npt.NDArray[np.uint16]]) -> Batch:
    rows, lengths = padded(inputs)
    return {"symbols": torch.from_numpy(rows), "lengths": torch.from_numpy(lengths)}


def _nats(network: nn.Module, symbols: Tensor, lengths: Tensor) -> Tensor:
    """Of each symbol, (B, L); 0 for padding."""
    whole = bool((lengths == symbols.shape[1]).all())
    logits = network(symbols, None if whole else lengths).float()
    nats = F.cross_entropy(logits.transpose(1, 2), symbols, reduction="none")
    there = torch.arange(symbols.shape[1], device=nats.device) < lengths.to(nats.device)[:, None]
    return nats * there
