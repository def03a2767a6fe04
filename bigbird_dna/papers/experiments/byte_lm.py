"""A causal model of the bytes of images or text, in bits per byte, compared with frequency baselines.

Formats; images are row-major, with red, green, blue per pixel.

`cifar10`: the *binary* version (`data_batch_1.bin` … `test_batch.bin`; Krizhevsky 2009), with records of a
label and 32 × 32 red, green and blue values; the Python version is a pickle, which can execute code when
read. `imagenet64`: the `.npz` batches of Chrabaszcz et al. 2017 (`train_data_batch_1.npz` …), whose array
`data` (N, 12288) uint8 has 64 × 64 red, green and blue values. Published densities are for another
downsampling of the same photographs (van den Oord et al. 2016): their bits per dim are not comparable.
`wiki40b`: Parquet files of the data set google/wiki40b (Guo et al. 2020), with an article in each row of the
column `text`; structure marks (`_START_PARAGRAPH_` …) are kept. `c4`: gzip files of JSON lines
(`c4-train.00000-of-01024.json.gz`; Raffel et al. 2020), whose key `text` is a page.
"""

import gzip
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config.long_range import IMAGE_BYTES, ByteLmConfig
from bigbird_dna.config.mechanisms import find_mechanism
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.run import Config
from bigbird_dna.config.training import TrainingConfig
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.metrics.auroc import Estimate
from bigbird_dna.metrics.resampling import bits_per_base
from bigbird_dna.model.batching import pad
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.input_embeddings import initialize
from bigbird_dna.model.mechanism import goes_by_pattern
from bigbird_dna.papers.experiments.shared import Trainings, read_arrays
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.task import Task, TrainingResult, train, write_network

Floats = npt.NDArray[np.float64]
Symbols = npt.NDArray[np.uint16]
Bytes = npt.NDArray[np.uint8]

# Axes: B batch, L symbols, N inputs, V distinct symbols.

EVALUATED_INPUTS = 64
"""Most held-out inputs evaluated during training."""
SYMBOLS_AT_ONCE = 1 << 14
END = 256
"""The symbol after each document; other symbols are bytes."""
COUNTED = 1 << 24
"""Most symbols from which the baselines are estimated."""
PRIOR = 16.0  # weight of the overall frequencies in the conditional frequencies


def run(config: Config, trainings: Trainings, output: Path) -> list[str]:
    """Train the model of the section `byte_lm`, and write its bits per byte."""
    section = config.byte_lm
    if section is None:
        raise ConfigError("byte_lm: the configuration has no such section")
    files = [Path(name) for name in (*section.train, *section.test)]
    name = f"{section.encoder.attention}-seed{section.training.seed}"
    work = partial(train, BytesTask(section))
    result = trainings.run(name, config, "density", work, files)
    if not trainings.complete():
        return []
    table = pd.DataFrame([result])
    with into_directory(output) as directory:
        write_tsv(directory / "byte_lm.tsv", table)
    return [
        f"{result['bits_per_byte']:.4f} bits per byte; by frequency {result['by_frequency']:.4f}, "
        f"after a byte {result['by_frequency_after_a_byte']:.4f}"
    ]


class ByteStream(NamedTuple):
    """A sequence of symbols, divided into inputs of `length`: complete images; or parts of documents from any
    position, where END follows each document."""

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
        """Number of possible inputs for training."""
        if self.of_images:
            return self.inputs
        return max(1, len(self.symbols) - self.length + 1)

    def input(self, number: int) -> Symbols:
        return self.symbols[number * self.length : (number + 1) * self.length]

    def at(self, start: int) -> Symbols:
        """Return a possible input for training."""
        first = start * self.length if self.of_images else start
        return self.symbols[first : first + self.length]


def read_cifar10(path: Path, most: int) -> Bytes:
    """Read the first `most` images of a file, (N, 3072); `DataError` for a file of another form."""
    width = 1 + IMAGE_BYTES["cifar10"]
    with reading(path, "not readable"):
        records = np.fromfile(path, np.uint8)
    labels = records[::width]
    if not len(records) or len(records) % width or labels.max() > 9:
        raise DataError(
            f"{path}: expected records of {width:,} bytes with labels from 0 to 9; use the binary version of "
            "CIFAR-10"
        )
    return _by_pixel(records.reshape(-1, width)[:most, 1:])


def read_imagenet64(path: Path, most: int) -> Bytes:
    """Read the first `most` images of a batch, (N, 12288); `DataError` for a file of another form."""
    (images,) = read_arrays(path, "data")
    if images.ndim != 2 or images.shape[1] != 3 * 64**2 or images.dtype != np.uint8:
        raise DataError(
            f"{path}: data of shape {images.shape} and type {images.dtype}: expected images of "
            f"{3 * 64**2:,} bytes each"
        )
    return _by_pixel(images[:most])


def _by_pixel(planes: Bytes) -> Bytes:
    """Convert images of separate color planes to images of color triples per pixel, both (N, 3 S²)."""
    count = len(planes)
    return planes.reshape(count, 3, -1).transpose(0, 2, 1).reshape(count, -1)


def read_wiki40b(path: Path) -> Iterator[bytes]:
    """Yield the articles of a Parquet file, in order; `DataError` for a file of another form."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["text"]):
                for text in batch.column(0).to_pylist():
                    yield text.encode() if isinstance(text, str) else text
    except (OSError, ArrowException, IndexError, AttributeError) as error:
        raise DataError(f"{path}: not a Parquet file of articles: {error}") from None


def read_c4(path: Path) -> Iterator[bytes]:
    """Yield the pages of a file, in order; `DataError` names file and line."""
    line = 0
    try:
        with gzip.open(path, "rb") as stream:
            for text in stream:
                line += 1
                yield json.loads(text)["text"].encode()
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: line {line + 1}: not readable: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(
            f"{path}: line {line}: expected a JSON object with a string 'text'"
        ) from None


def read_stream(
    format: str, paths: Sequence[Path], length: int, most: int
) -> ByteStream:
    """Read files in order, up to `most` bytes; images are complete, the last document may be cut; `length` is
    the input length in bytes for documents."""
    parts: list[Symbols] = []
    if format in IMAGE_BYTES:
        read = read_cifar10 if format == "cifar10" else read_imagenet64
        size = IMAGE_BYTES[format]
        left = max(1, most // size)
        for path in paths:
            if left > 0:
                images = read(path, left)
                parts.append(images.reshape(-1).astype(np.uint16))
                left -= len(images)
        return ByteStream(np.concatenate(parts), size, True)
    for path in paths:
        for document in read_wiki40b(path) if format == "wiki40b" else read_c4(path):
            if document and most > 0:
                symbols = np.frombuffer(document[:most], np.uint8).astype(np.uint16)
                parts.append(np.append(symbols, np.uint16(END)))
                most -= len(symbols)
            if most <= 0:
                break
    if not parts:
        raise DataError(f"{paths[0]}: contains no text")
    return ByteStream(np.concatenate(parts), length, False)


def simple_bits(train: ByteStream, test: ByteStream) -> tuple[float, float]:
    """Return bits per byte of a stream by symbol frequencies, and by frequencies after the preceding byte (of
    images: the same color of the pixel to the left), separately for each input."""
    kinds, lag = train.kinds, 3 if train.of_images else 1
    symbols = train.symbols[:COUNTED].astype(np.int64)
    overall = np.bincount(symbols, minlength=kinds) + 1.0
    overall /= overall.sum()
    pairs = symbols[:-lag] * kinds + symbols[lag:]
    counts = np.bincount(pairs, minlength=kinds**2).reshape(kinds, kinds)
    after = (counts + PRIOR * overall) / (counts.sum(1, keepdims=True) + PRIOR)
    simple, conditional = 0.0, 0.0
    for number in range(test.inputs):
        x = test.input(number)
        simple -= float(np.log2(overall[x]).sum())
        conditional -= float(np.log2(overall[x[:lag]]).sum())
        conditional -= float(np.log2(after[x[:-lag], x[lag:]]).sum())
    count = int((test.symbols != END).sum())
    return simple / count, conditional / count


class CausalNetwork(nn.Module):
    """A causal encoder with logits over all symbols at each position; the last id precedes the first symbol.
    Hidden states do not depend on later tokens, bit for bit. `ConfigError` if the attention has no causal
    form, or a key lets tokens depend on later tokens."""

    def __init__(self, config: EncoderConfig, symbols: int) -> None:
        super().__init__()
        absent = {
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


def nats(network: nn.Module, symbols: Tensor, lengths: Tensor) -> Tensor:
    """Return the negative log-likelihood of each symbol in nats, (B, L); 0 for padding."""
    padded = bool((lengths != symbols.shape[1]).any())
    logits = network(symbols, lengths if padded else None).float()
    losses = F.cross_entropy(logits.transpose(1, 2), symbols, reduction="none")
    positions = torch.arange(symbols.shape[1], device=losses.device)
    return losses * (positions < lengths.to(losses.device)[:, None])


def bits_of_inputs(
    network: nn.Module, stream: ByteStream, numbers: Sequence[int]
) -> Floats:
    """Return the bits of some inputs of a stream, (N,)."""
    device = next(network.parameters()).device
    size = max(1, SYMBOLS_AT_ONCE // stream.length)
    bits = [np.zeros(0)]
    for start in range(0, len(numbers), size):
        inputs = [stream.input(number) for number in numbers[start : start + size]]
        symbols, lengths = pad(inputs, 0)
        losses = nats(network, symbols.to(device), lengths)
        bits.append(losses.cpu().double().sum(1).numpy() / math.log(2))
    return np.concatenate(bits)


@dataclass(eq=False)
class BytesTask(Task[CausalNetwork, Floats]):
    """Training of a byte language model. `bits_per_byte` (for images: bits per dim) is over consecutive test
    inputs, each without preceding context, with a 95 % interval over inputs. The ends of documents add bits,
    but are not counted as bytes."""

    section: ByteLmConfig

    @property
    def config(self) -> TrainingConfig:
        return self.section.training

    @cached_property
    def streams(self) -> dict[str, ByteStream]:
        """The training and test data."""
        section, streams = self.section, {}
        for split in ("train", "test"):
            streams[split] = read_stream(
                section.format,
                [Path(name) for name in getattr(section, split)],
                section.input_bytes,
                getattr(section, f"{split}_bytes"),
            )
        return streams

    @cached_property
    def encoder(self) -> EncoderConfig:
        learned = self.streams["train"]
        sizes = {
            "max_length": max(16, learned.length),
            "vocabulary": learned.kinds + 1,
            "causal": True,
        }
        return self.section.encoder.model_copy(update=sizes)

    @cached_property
    def digests(self) -> dict[str, str]:
        digests = {}
        for split, stream in self.streams.items():
            data = stream.symbols.astype("<u2").tobytes()
            digests[f"{split}_sha256"] = hashlib.sha256(data).hexdigest()
        return digests

    def identity(self) -> dict[str, Any]:
        return {"task": "density", "format": self.section.format, **self.digests}

    def build(self) -> CausalNetwork:
        return CausalNetwork(self.encoder, self.streams["train"].kinds)

    def batch(self, step: int, first: int, count: int) -> Batch:
        train = self.streams["train"]
        rng = np.random.default_rng((self.config.seed, 7, step))
        starts = rng.integers(0, train.starts, self.config.batch_size)
        inputs = [train.at(int(at)) for at in starts[first : first + count]]
        symbols, lengths = pad(inputs, 0)
        return {"symbols": symbols, "lengths": lengths}

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"symbols": float(batch["lengths"].sum())}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        """Cross-entropy of every symbol, given the preceding symbols of its input."""
        losses = nats(network, batch["symbols"], batch["lengths"])
        return losses.sum() / totals["symbols"]

    def evaluate(self, network: nn.Module, world: World) -> dict[str, float]:
        test = self.streams["test"]
        count = min(EVALUATED_INPUTS, test.inputs)
        bits = bits_of_inputs(network, test, range(count)).sum()
        symbols = test.symbols[: count * test.length]
        return {"bits_per_byte": float(bits) / max(1, int((symbols != END).sum()))}

    def measure(self, trained: TrainingResult[CausalNetwork]) -> Floats:
        """Return the bits of each test input."""
        network, test = trained.network, self.streams["test"]
        bits = trained.world.divide(
            range(test.inputs), lambda rows: bits_of_inputs(network, test, rows)
        )
        return np.asarray(bits)

    def write(
        self,
        directory: Path,
        trained: TrainingResult[CausalNetwork],
        measured: Floats,
    ) -> dict[str, Any]:
        train, test = self.streams["train"], self.streams["test"]
        bits, low, high = mean_bits(measured, test)
        known = len(measured) > 1
        simple, conditional = simple_bits(train, test)
        result = {
            "format": self.section.format,
            "attention": self.section.encoder.attention,
            "bits_per_byte": bits,
            "bits_per_byte_low": low if known else None,
            "bits_per_byte_high": high if known else None,
            "by_frequency": simple,
            "by_frequency_after_a_byte": conditional,
            "test_inputs": test.inputs,
            "test_bytes": int((test.symbols != END).sum()),
            "input_symbols": train.length,
            "parameters": trained.effort["parameters"],
            "steps": trained.progress.step,
            **self.digests,
        }
        write_network(directory, self.encoder, trained, result)
        return result


def mean_bits(bits: Floats, stream: ByteStream) -> Estimate:
    """Return bits per byte from the bits of each input (N,), with 95 % interval (NaN for a single input)."""
    inputs = map(stream.input, range(stream.inputs))
    counts = np.array([(symbols != END).sum() for symbols in inputs])
    rates = bits_per_base({"model": bits}, counts, np.arange(len(bits)), "model")
    return rates["model"].bits_per_base
