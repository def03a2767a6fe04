"""A causal model of the bytes of images or text, in bits per byte, compared with a general compressor.

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
import lzma
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config.long_range import ByteLmConfig
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.run import Config
from bigbird_dna.config.training import TrainingConfig
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.finetuning.evaluation import without_nan
from bigbird_dna.metrics.resampling import bits_per_base
from bigbird_dna.model.batching import pad
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.input_embeddings import initialize
from bigbird_dna.papers.experiments.shared import Trainings, read_arrays
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.task import Task, TrainingResult, train, write_network

Floats = npt.NDArray[np.float64]
Symbols = npt.NDArray[np.uint16]
Bytes = npt.NDArray[np.uint8]

# Axes: B batch, L symbols, N inputs, V distinct symbols.

IMAGE_SIDES = {"cifar10": 32, "imagenet64": 64}  # pixels
EVALUATED_INPUTS = 64
"""Most held-out inputs evaluated during training."""
SYMBOLS_AT_ONCE = 1 << 14
END = 256
"""The symbol after each document; other symbols are bytes."""
PAD = -1


def run(config: Config, trainings: Trainings, output: Path) -> list[str]:
    """Train the model of the section `byte_lm`, and write its bits per byte.

    Writes `byte_lm.tsv` into the directory `output`. `ConfigError` if there is no such section.
    """
    section = config.byte_lm
    if section is None:
        raise ConfigError("byte_lm: the configuration has no such section")

    files = [Path(name) for name in (*section.train, *section.test)]
    name = f"{section.encoder.attention}-seed{section.training.seed}"
    work = partial(train_bytes, section)
    result = trainings.run(name, config, "density", work, files)
    if not trainings.complete():
        return []

    with into_directory(output) as directory:
        write_tsv(directory / "byte_lm.tsv", pd.DataFrame([result]))

    return [
        f"{result['bits_per_byte']:.4f} bits per byte; by LZMA {result['by_lzma']:.4f}"
    ]


def train_bytes(
    section: ByteLmConfig, output: Path, checkpoints: Path, world: World
) -> dict[str, Any]:
    """Read the data, and train the model; returns its results."""

    def read(files: Sequence[str], limit: int) -> ByteStream:
        paths = [Path(name) for name in files]
        return read_stream(section.format, paths, section.sequence_bytes, limit)

    learned = read(section.train, section.train_bytes)
    test = read(section.test, section.test_bytes)
    return train(BytesTask(section, learned, test), output, checkpoints, world)


# Data


class ByteStream(NamedTuple):
    """A sequence of symbols, divided into inputs of `length`: whole images, or parts of documents.

    The symbols of an image are its bytes. Those of documents are their bytes, each document followed by END.
    """

    symbols: Symbols
    length: int
    images: bool

    @property
    def kinds(self) -> int:
        """V: 256 bytes, plus END for documents."""
        return 256 if self.images else 257

    @property
    def starts(self) -> range:
        """Starts of the inputs for training: those of images, or any position of documents."""
        last = max(1, len(self.symbols) - self.length + 1)
        return range(0, last, self.length if self.images else 1)

    def inputs(self) -> list[Symbols]:
        """Return consecutive inputs, including a partial last one."""
        starts = range(self.length, len(self.symbols), self.length)
        return np.split(self.symbols, starts)


def read_images(format: str, path: Path) -> Iterator[Bytes]:
    """Yield the images of a file, S × S pixels each, as color triples per pixel, (3 S²,).

    `DataError` for a file of another form.
    """
    size = 3 * IMAGE_SIDES[format] ** 2
    if format == "cifar10":
        with reading(path, "not readable"):
            records = np.fromfile(path, np.uint8)

        labels = records[:: size + 1]
        if not len(records) or len(records) % (size + 1) or labels.max() > 9:
            raise DataError(
                f"{path}: expected records of {size + 1:,} bytes with labels from 0 to 9; use the binary "
                "version of CIFAR-10"
            )

        images = records.reshape(-1, size + 1)[:, 1:]
    else:
        (images,) = read_arrays(path, "data")
        if images.shape[1:] != (size,) or images.dtype != np.uint8:
            raise DataError(
                f"{path}: data of shape {images.shape} and type {images.dtype}: expected images of {size:,} "
                "bytes each"
            )

    for image in images:
        yield image.reshape(3, -1).T.ravel()


def read_documents(format: str, path: Path) -> Iterator[bytes]:
    """Yield the articles (`wiki40b`) or pages (`c4`) of a file, in order, as UTF-8.

    Pages are read one after the other, articles all at once. `DataError` for a file of another form names the
    file, and the line of a page.
    """
    if format == "wiki40b":
        with reading(path, "not a Parquet file of articles", Exception):
            articles = pd.read_parquet(path, columns=["text"])["text"]

        for text in articles:
            yield text.encode() if isinstance(text, str) else text

        return

    line = 0
    try:
        with gzip.open(path, "rb") as stream:
            for text in stream:
                line += 1
                yield json.loads(text)["text"].encode()
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: line {line + 1}: not readable: {error}") from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise DataError(
            f"{path}: line {line}: expected a JSON object with a string 'text'"
        ) from None


def read_stream(
    format: str, paths: Sequence[Path], length: int, limit: int
) -> ByteStream:
    """Read files in order, up to `limit` bytes.

    Images are complete; the last document may be cut. `length` is the input length of documents, in symbols.
    `DataError` if the files contain no text.
    """
    images = format in IMAGE_SIDES
    read: Any = read_images if images else read_documents
    symbols: list[Symbols] = []

    for path in paths:
        for data in read(format, path):
            if limit <= 0 or (images and symbols and len(data) > limit):
                break

            if images:
                symbols.append(data.astype(np.uint16))
                length = len(data)
            elif data:
                text = np.frombuffer(data[:limit], np.uint8)
                symbols.append(np.append(text.astype(np.uint16), np.uint16(END)))

            limit -= len(data)

    if not symbols:
        raise DataError(f"{paths[0]}: contains no text")

    return ByteStream(np.concatenate(symbols), length, images)


# Model


class CausalNetwork(nn.Module):
    """A causal encoder with logits over all V symbols at each position; id V precedes the first symbol.

    Hidden states do not depend on later tokens, bit for bit.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.first = config.vocabulary - 1
        self.encoder = Encoder(config)
        self.output = nn.Linear(config.hidden, self.first)
        initialize(self.output, config.hidden)

    def forward(self, symbols: Tensor) -> Tensor:
        """Return logits (B, L, V) of each symbol for symbols (B, L), which may be padded on the right."""
        first = symbols.new_full((len(symbols), 1), self.first)
        return self.output(self.encoder(torch.cat([first, symbols[:, :-1]], 1)))  # type: ignore[no-any-return]


def nats(network: nn.Module, symbols: Tensor) -> Tensor:
    """Return the negative log-likelihood of each symbol in nats, (B, L); 0 for padding."""
    logits = network(symbols.clamp(min=0)).float()
    return F.cross_entropy(
        logits.transpose(1, 2), symbols, ignore_index=PAD, reduction="none"
    )


def bits_of_inputs(network: nn.Module, inputs: Sequence[Symbols]) -> Floats:
    """Return the bits of each input, (N,): the negative log-likelihood of its symbols, without context.

    Inputs are predicted in batches of about `SYMBOLS_AT_ONCE` symbols, on the device of the network.
    """
    device = next(network.parameters()).device
    bits = [np.zeros(0)]
    start = 0
    while start < len(inputs):
        end = start + max(1, SYMBOLS_AT_ONCE // len(inputs[start]))
        symbols, _ = pad(inputs[start:end], PAD)
        losses = nats(network, symbols.to(device))
        bits.append(losses.cpu().double().sum(1).numpy() / math.log(2))
        start = end

    return np.concatenate(bits)


@dataclass(eq=False)
class BytesTask(Task[CausalNetwork, Floats]):
    """Training of a byte language model.

    `bits_per_byte` (for images: bits per dim) is over consecutive test inputs, each without preceding
    context, with a 95 % interval over inputs. The ends of documents add bits, but are not counted as bytes.
    """

    section: ByteLmConfig
    train: ByteStream
    test: ByteStream

    @property
    def config(self) -> TrainingConfig:
        return self.section.training

    @property
    def encoder(self) -> EncoderConfig:
        sizes = {
            "max_length": max(16, self.train.length),
            "vocabulary": self.train.kinds + 1,
        }
        return self.section.encoder.model_copy(update=sizes)

    def identity(self) -> dict[str, Any]:
        digest = hashlib.sha256(self.train.symbols.data).hexdigest()
        return {"task": "density", "format": self.section.format, "train": digest}

    def build(self) -> CausalNetwork:
        return CausalNetwork(self.encoder)

    def batch(self, step: int, first: int, count: int) -> Batch:
        stream = self.train
        rng = np.random.default_rng((self.config.seed, 7, step))
        draws = rng.integers(0, len(stream.starts), self.config.batch_size)
        inputs = []
        for draw in draws[first : first + count]:
            start = stream.starts[draw]
            inputs.append(stream.symbols[start : start + stream.length])
        symbols, lengths = pad(inputs, PAD)
        return {"symbols": symbols, "lengths": lengths}

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"symbols": float(batch["lengths"].sum())}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        """Cross-entropy of every symbol, given the preceding symbols of its input."""
        return nats(network, batch["symbols"]).sum() / totals["symbols"]

    def evaluate(self, network: nn.Module, world: World) -> dict[str, float]:
        inputs = self.test.inputs()[:EVALUATED_INPUTS]
        bits = bits_of_inputs(network, inputs).sum()
        count = int(np.count_nonzero(np.concatenate(inputs) != END))
        return {"bits_per_byte": float(bits) / max(1, count)}

    def measure(self, trained: TrainingResult[CausalNetwork]) -> Floats:
        """Return the bits of each test input, (N,)."""
        work = partial(bits_of_inputs, trained.network)
        return np.asarray(trained.world.divide(self.test.inputs(), work))

    def write(
        self, directory: Path, trained: TrainingResult[CausalNetwork], bits: Floats
    ) -> dict[str, Any]:
        inputs = self.test.inputs()
        counts = [np.count_nonzero(symbols != END) for symbols in inputs]
        numbers = np.arange(len(inputs))
        rates = bits_per_base({"model": bits}, counts, numbers, "model")
        value, low, high = rates["model"].bits_per_base
        data = self.test.symbols[self.test.symbols != END].astype(np.uint8)
        result: dict[str, Any] = {
            "format": self.section.format,
            "attention": self.section.encoder.attention,
            "bits_per_byte": value,
            "bits_per_byte_low": low,
            "bits_per_byte_high": high,
            "by_lzma": 8 * len(lzma.compress(data)) / len(data),
            "test_inputs": len(inputs),
            "test_bytes": len(data),
            "input_symbols": self.train.length,
            "parameters": trained.effort["parameters"],
            "steps": trained.progress.step,
        }
        result = without_nan(result)  # a single input has no interval
        write_network(directory, self.encoder, trained, result)

        return result
