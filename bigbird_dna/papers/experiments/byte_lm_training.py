"""A causal language model of the bytes of images or documents, compared in bits per byte with frequency
baselines."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import EncoderConfig, TrainingConfig, find_mechanism
from bigbird_dna.config.long_range import IMAGE_BYTES, ByteLmConfig, ByteLmFormat
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.model.batching import pad
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.input_embeddings import initialize
from bigbird_dna.model.mechanism import goes_by_pattern
from bigbird_dna.papers.experiments.byte_lm_files import (
    COLORS,
    read_c4,
    read_cifar10,
    read_imagenet64,
    read_wiki40b,
)
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch, Objective
from bigbird_dna.training.task import Task, TrainingResult, write_network

# Axes: B batch, L symbols, N inputs (of a stream: symbols), V distinct symbols, D hidden width.

EVALUATED_INPUTS = 64
"""Most held-out inputs evaluated during training."""
_SYMBOLS_AT_ONCE = 1 << 14

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float | None, float | None]

END = 256
"""The symbol after each document; other symbols are bytes."""
COUNTED = 1 << 24
"""Most symbols from which the baselines are estimated."""
_WEIGHT = 16.0  # weight of the overall frequencies in the conditional frequencies

Symbols = npt.NDArray[np.uint16]

_IMAGES: dict[str, Callable[[Path, int], npt.NDArray[np.uint8]]] = {
    "cifar10": read_cifar10,
    "imagenet64": read_imagenet64,
}
_DOCUMENTS: dict[str, Callable[[Path], Iterator[bytes]]] = {
    "wiki40b": read_wiki40b,
    "c4": read_c4,
}


class ByteStream(NamedTuple):
    """A sequence of symbols, divided into inputs of `length`.

    Inputs of images are complete images. Inputs of documents start at any position, and END follows each
    document.
    """

    symbols: Symbols
    length: int
    of_images: bool

    @property
    def kinds(self) -> int:
        """V: 256 bytes, plus END for documents."""
        return 256 if self.of_images else 257

    @property
    def inputs(self) -> int:
        """Number of consecutive inputs, including a partial last one."""
        return -(-len(self.symbols) // self.length)

    @property
    def starts(self) -> int:
        """Number of possible inputs for training, at any start."""
        if self.of_images:
            return self.inputs
        return max(1, len(self.symbols) - self.length + 1)

    @property
    def lag(self) -> int:
        """Distance to the preceding related byte: in images, the same color of the pixel to the left."""
        return COLORS if self.of_images else 1

    def input(self, number: int) -> Symbols:
        return self.symbols[number * self.length : (number + 1) * self.length]

    def at(self, start: int) -> Symbols:
        place = start * self.length if self.of_images else start
        return self.symbols[place : place + self.length]

    def digest(self) -> str:
        return hashlib.sha256(self.symbols.astype("<u2").tobytes()).hexdigest()


def read_stream(
    format: ByteLmFormat, files: Iterable[Path], length: int, most: int
) -> ByteStream:
    """Read files in order, up to `most` bytes; images are complete, the last document may be cut; `length` is
    the input length in bytes for documents."""
    paths = list(files)
    if format in _IMAGES:
        size = IMAGE_BYTES[format]
        found: list[Symbols] = []
        left = max(1, most // size)
        for path in paths:
            if left > 0:
                found.append(_IMAGES[format](path, left).reshape(-1).astype(np.uint16))
                left -= len(found[-1]) // size
        return ByteStream(np.concatenate(found), size, True)
    parts: list[Symbols] = []
    left = most
    for document in (one for path in paths for one in _DOCUMENTS[format](path)):
        if not document:
            continue
        parts.append(np.frombuffer(document[:left], np.uint8).astype(np.uint16))
        left -= len(parts[-1])
        parts.append(np.array([END], np.uint16))
        if left <= 0:
            break
    if not parts:
        raise DataError(f"{paths[0]}: contains no text")
    return ByteStream(np.concatenate(parts), length, False)


def simple_bits(train: ByteStream, test: ByteStream) -> tuple[float, float]:
    """Return bits per byte of a stream by symbol frequencies, and by frequencies after the byte `lag` before,
    separately for each input. Counts are from the first `COUNTED` symbols."""
    kinds, symbols, lag = (
        train.kinds,
        train.symbols[:COUNTED].astype(np.int64),
        test.lag,
    )
    share = np.bincount(symbols, minlength=kinds) + 1.0
    share /= share.sum()
    pairs = symbols[: -train.lag] * kinds + symbols[train.lag :]
    counts = np.bincount(pairs, minlength=kinds**2).reshape(kinds, kinds)
    after = (counts + _WEIGHT * share) / (counts.sum(1, keepdims=True) + _WEIGHT)
    order0, order1 = (
        -np.log2(values).astype(np.float32) for values in (share, after)
    )  # (V,), (V, V)
    totals = [0.0, 0.0]
    for one in map(test.input, range(test.inputs)):
        totals[0] += float(order0[one].sum())
        totals[1] += float(
            order0[one[:lag]].sum() + order1[one[:-lag], one[lag:]].sum()
        )
    count = int((test.symbols != END).sum())
    return totals[0] / count, totals[1] / count


class CausalNetwork(nn.Module):
    """A causal encoder with logits over all symbols at each position; the last id precedes the first symbol.
    Hidden states do not depend on later tokens, bit for bit. `ConfigError` if the attention has no causal
    form, or a key lets tokens depend on later tokens."""

    def __init__(self, config: EncoderConfig, symbols: int) -> None:
        super().__init__()
        absent = {
            "convolution": 0,
            "kmers": 0,
            "num_global_tokens": 0,
            "compatibility": "none",
        }
        for key, without in absent.items():
            if getattr(config, key) != without:
                raise ConfigError(
                    f"encoder.{key} {getattr(config, key)}: lets tokens depend on later tokens"
                )
        config.check_no_bases()
        # `model_copy` does not validate.
        causal = config.model_copy(update={"vocabulary": symbols + 1, "causal": True})
        if not goes_by_pattern(causal) and not find_mechanism(causal.attention).causal:
            raise ConfigError(
                f"encoder.attention: {causal.attention} has no causal form: tokens depend on later tokens"
            )
        self.first, self.encoder = symbols, Encoder(causal)
        self.output = nn.Linear(config.hidden, symbols)
        initialize(self.output, config.hidden)

    def forward(self, symbols: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return logits (B, L, V) of each symbol for symbols (B, L), padded on the right, with true lengths
        (B,)."""
        first = symbols.new_full((len(symbols), 1), self.first)
        hidden = self.encoder(torch.cat([first, symbols[:, :-1]], 1), lengths)
        return self.output(hidden)  # type: ignore[no-any-return]


class NextSymbol(Objective):
    """Cross-entropy of every symbol, given the preceding symbols of its input."""

    def __init__(
        self, learned: ByteStream, held_out: ByteStream, config: TrainingConfig
    ) -> None:
        self.learned, self.held_out, self.config = learned, held_out, config

    def batch(self, step: int, first: int, count: int) -> Batch:
        rng = np.random.default_rng((self.config.seed, 7, step))
        drawn = rng.integers(0, self.learned.starts, self.config.batch_size)[
            first : first + count
        ]
        return _batch([self.learned.at(int(start)) for start in drawn])

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"symbols": float(batch["lengths"].sum())}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        return (
            _nats(network, batch["symbols"], batch["lengths"]).sum() / totals["symbols"]
        )

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        count = min(EVALUATED_INPUTS, self.held_out.inputs)
        bits = _bits(network, self.held_out, range(count))
        taken = self.held_out.symbols[: count * self.held_out.length]
        return {"bits_per_byte": float(bits.sum() / max(1, int((taken != END).sum())))}


def bits_per_byte(network: nn.Module, stream: ByteStream, world: World) -> Interval:
    """Return bits per byte over all inputs of a stream, with 95 % interval (none for a single input)."""
    bits = world.divide(range(stream.inputs), lambda rows: _bits(network, stream, rows))
    counts = np.array(
        [(stream.input(number) != END).sum() for number in range(stream.inputs)]
    )
    mean = float(bits.sum() / counts.sum())
    if len(bits) < 2:
        return mean, None, None
    spread = np.square(bits - mean * counts).sum() * len(bits) / (len(bits) - 1)
    around = 1.959964 * math.sqrt(float(spread)) / float(counts.sum())
    return mean, mean - around, mean + around


def _bits(network: nn.Module, stream: ByteStream, numbers: Any) -> Floats:
    device = next(network.parameters()).device
    size = max(1, _SYMBOLS_AT_ONCE // stream.length)
    found = [np.zeros(0)]
    for start in range(0, len(numbers), size):
        batch = _batch(
            [stream.input(number) for number in numbers[start : start + size]]
        )
        nats = _nats(network, batch["symbols"].to(device), batch["lengths"])
        found.append(nats.cpu().double().sum(1).numpy() / math.log(2))
    return np.concatenate(found)


def _batch(inputs: list[npt.NDArray[np.uint16]]) -> Batch:
    symbols, lengths = pad(inputs, 0)
    return {"symbols": symbols, "lengths": lengths}


def _nats(network: nn.Module, symbols: Tensor, lengths: Tensor) -> Tensor:
    """Return the negative log-likelihood of each symbol in nats, (B, L); 0 for padding."""
    whole = bool((lengths == symbols.shape[1]).all())
    logits = network(symbols, None if whole else lengths).float()
    nats = F.cross_entropy(logits.transpose(1, 2), symbols, reduction="none")
    there = (
        torch.arange(symbols.shape[1], device=nats.device)
        < lengths.to(nats.device)[:, None]
    )
    return nats * there


@dataclass(eq=False)
class BytesTask(Task[CausalNetwork, Interval]):
    """Training of a byte language model. `bits_per_byte` (for images: bits per dim) is over consecutive test
    inputs, each without preceding context, with a 95 % interval over inputs. The ends of documents add bits,
    but are not counted as bytes."""

    section: ByteLmConfig

    @property
    def config(self) -> TrainingConfig:
        return self.section.training

    @cached_property
    def inputs(self) -> Sequence[Path]:
        return [Path(name) for name in (*self.section.train, *self.section.test)]

    @cached_property
    def learned(self) -> ByteStream:
        return self._read(self.section.train, self.section.train_bytes)

    @cached_property
    def held_out(self) -> ByteStream:
        return self._read(self.section.test, self.section.test_bytes)

    def _read(self, names: Iterable[str], most: int) -> ByteStream:
        return read_stream(
            self.section.format, map(Path, names), self.section.input_bytes, most
        )

    @cached_property
    def encoder(self) -> EncoderConfig:
        shape = {
            "max_length": max(16, self.learned.length),
            "vocabulary": self.learned.kinds + 1,
        }
        return self.section.encoder.model_copy(update={**shape, "causal": True})

    @cached_property
    def digests(self) -> dict[str, str]:
        return {"train": self.learned.digest(), "test": self.held_out.digest()}

    def identity(self) -> dict[str, Any]:
        return {"task": "density", "format": self.section.format, **self.digests}

    def build(self) -> CausalNetwork:
        return CausalNetwork(self.encoder, self.learned.kinds)

    def objective(self, network: CausalNetwork, world: World) -> NextSymbol:
        return NextSymbol(self.learned, self.held_out, self.config)

    def describe(self, network: CausalNetwork) -> str:
        parameters = sum(parameter.numel() for parameter in network.parameters())
        stream = (
            f"{len(self.learned.symbols):,} symbols, inputs of {self.learned.length:,}"
        )
        return f"{self.section.format}: {stream}, {parameters:,} parameters"

    def measure(self, trained: TrainingResult[CausalNetwork]) -> Interval:
        return bits_per_byte(trained.network, self.held_out, trained.world)

    def write(
        self,
        directory: Path,
        trained: TrainingResult[CausalNetwork],
        measured: Interval,
    ) -> dict[str, Any]:
        (bits, low, high), test = measured, self.held_out
        order0, order1 = simple_bits(self.learned, test)
        result = {
            **{
                "format": self.section.format,
                "attention": self.section.encoder.attention,
            },
            **{
                "bits_per_byte": bits,
                "bits_per_byte_low": low,
                "bits_per_byte_high": high,
            },
            **{"by_frequency": order0, "by_frequency_after_a_byte": order1},
            **{
                "test_inputs": test.inputs,
                "test_bytes": int((test.symbols != END).sum()),
            },
            **{"input_symbols": self.learned.length, "parameters": trained.parameters},
            "steps": trained.progress.step,
            **{f"{split}_sha256": digest for split, digest in self.digests.items()},
        }
        write_network(directory, self.encoder, trained, result)
        log(
            f"held out: {bits:.4f} bits per byte; by frequency {order0:.4f}, after a byte {order1:.4f}"
        )
        return result
