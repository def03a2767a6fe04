"""Pretraining of an encoder, from token stores to a model directory (App. F.1).

The objective is masked-token prediction, with or without next-sentence prediction.
Models learn token frequencies and co-occurrences first, which can be counted instead: output biases are
initialized to log frequencies, and token embeddings to singular vectors of the neighbors' pointwise mutual
information (Levy & Goldberg 2014, "Neural word embedding as implicit matrix factorization").
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.reading import complete
from bigbird_dna.config.run import Config, stage_values
from bigbird_dna.config.training import PretrainingConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.model.batching import pad
from bigbird_dna.model.directory import build_network, encoder_for, make_model
from bigbird_dna.model.heads import PretrainingNetwork, PretrainingOutput
from bigbird_dna.model.input_embeddings import initial_deviation
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.pretraining.held_out import HeldOut
from bigbird_dna.pretraining.sampling import (
    Sampler,
    document_bounds,
    sampler,
)
from bigbird_dna.tokens.interface import NOT_MASKED, Tokenizer, mask_tokens
from bigbird_dna.tokens.load import load_tokenizer
from bigbird_dna.tokens.store import TokenStore
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.task import Task, TrainingResult, write_trained

INPUTS = ("ids", "lengths", "segments", "masked")
"""Tensors of a batch that are inputs of the network."""
LARGEST_VOCABULARY = (
    4096  # maximum for counting all pairs: a matrix of 256 MB, and one minute
)
COUNTED = 20_000_000  # tokens counted, from the start of the store
SIZE = 2.0  # standard deviation of embeddings relative to other weights; choice: see docs/results.md
_UNSEEN = 0.5  # pseudocount

Floats = NDArray[np.float64]


class PretrainingTask(Task[nn.Module, dict[str, float]]):
    """Pretraining on the stores `train` and `valid` in `tokens`, and on the further training stores of the
    configuration; `ConfigError` if inputs exceed the encoder's maximum length.

    The loss is the mean over masked tokens, plus that over inputs for next sentences.
    """

    def __init__(self, run: Config, tokens: Path, tokenizer_path: Path) -> None:
        self.run, self.tokens, self.tokenizer_path = run, tokens, tokenizer_path

    @cached_property
    def config(self) -> PretrainingConfig:
        return complete(self.run).pretraining

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.tokenizer_path)

    @cached_property
    def encoder(self) -> EncoderConfig:
        return encoder_for(self.run.encoder, self.tokenizer)

    @cached_property
    def settings(self) -> PretrainingSettings:
        return PretrainingSettings(next_sentence=self.config.next_sentence)

    @cached_property
    def stores(self) -> dict[str, TokenStore]:
        """Training and validation token stores."""
        return {
            split: TokenStore(self.tokens / split, self.tokenizer)
            for split in ("train", "valid")
        }

    @cached_property
    def further(self) -> list[TokenStore]:
        """Training token stores of other genomes; `DataError` if one was made with another tokenizer."""
        return [
            TokenStore(Path(home) / "train", self.tokenizer)
            for home in self.config.further_tokens
        ]

    def identity(self) -> dict[str, Any]:
        """Return the settings and the descriptions of the token stores."""
        return {
            "task": self.settings.task,
            "tokenizer": self.tokenizer.sha256,
            "data": [store.info for store in [*self.stores.values(), *self.further]],
        }

    def check(self) -> None:
        for store in (*self.stores.values(), *self.further):
            store.verify()

    def build(self) -> nn.Module:
        return build_network(self.encoder, self.settings, self.tokenizer)

    def initialize(self, network: nn.Module) -> None:
        assert isinstance(network, PretrainingNetwork)
        if self.config.embedding_init == "cooccurrence":
            init_from_counts(network, self.stores["train"])

    @cached_property
    def samplers(self) -> list[Sampler]:
        """The training inputs of the run's genome, and of each further one that has training tokens."""
        config, tokenizer = self.config, self.tokenizer
        further = [store for store in self.further if len(store.tokens)]
        return [
            sampler(store, tokenizer, config.sequence_tokens, config.next_sentence)
            for store in (self.stores["train"], *further)
        ]

    @cached_property
    def held_out(self) -> HeldOut:
        """The inputs that are evaluated in training."""
        config = self.config
        return HeldOut.draw(
            self.stores["valid"],
            self.tokenizer,
            config.sequence_tokens,
            config.evaluation_sequences,
            pairs=config.next_sentence,
        )

    def batch(self, step: int, first: int, count: int) -> Batch:
        seeds = [
            (self.config.seed, 0, step, position)
            for position in range(first, first + count)
        ]
        return self._batch(self.samplers, seeds)

    def _batch(
        self, samplers: Sequence[Sampler], seeds: Sequence[tuple[int, ...]]
    ) -> Batch:
        """Return the inputs drawn with each of the seeds, with tokens hidden; a genome is drawn by its number
        of tokens."""
        sizes = np.array([len(one.tokens) for one in samplers])
        rows, targets, firsts, classes = [], [], [], []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            number = 0
            if len(samplers) > 1:
                number = rng.choice(len(samplers), p=sizes / sizes.sum())

            example = samplers[number].draw(rng)
            hidden = mask_tokens(
                example.ids, rng, self.config.mask_fraction, self.tokenizer
            )
            rows.append(hidden.inputs)
            targets.append(hidden.labels)
            firsts.append(example.first)
            classes.append(0 if example.follows else 1)

        ids, lengths = pad(rows, self.tokenizer.pad_id)
        labels, _ = pad(targets, NOT_MASKED)
        masked = torch.nonzero(labels.flatten() != NOT_MASKED)[:, 0]
        segments = torch.arange(ids.shape[1])[None] >= torch.tensor(firsts)[:, None]
        if not self.config.next_sentence:
            segments = torch.zeros_like(segments)

        return {
            "ids": ids,
            "lengths": lengths,
            "segments": segments.long(),
            "masked": masked,
            "labels": labels.flatten()[masked],
            "next_sentence": torch.tensor(classes),
        }

    def counts(self, batch: Batch) -> dict[str, float]:
        return {
            "masked": float(len(batch["masked"])),
            "pairs": float(len(batch["ids"])),
        }

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        """Return the mean cross-entropy of predicted tokens plus that of next-sentence labels, in nats."""
        output: PretrainingOutput = network(*(batch[name] for name in INPUTS))
        masked = F.cross_entropy(
            output.tokens.float(), batch["labels"], reduction="sum"
        )
        loss = masked / max(totals["masked"], 1.0)
        if output.next_sentence is None:
            return loss

        pairs = F.cross_entropy(
            output.next_sentence.float(), batch["next_sentence"], reduction="sum"
        )
        return loss + pairs / totals["pairs"]

    def evaluate(self, network: nn.Module, world: World) -> dict[str, float]:
        """Return bits per base and accuracy on fixed held-out tokens; also next-sentence accuracy if used."""
        held_out, config = self.held_out, self.config
        bits, correct = held_out.predict(network, self.tokenizer, world)
        metrics = {
            "bits_per_base": float(bits.sum() / held_out.bases.sum()),
            "masked_accuracy": float(correct.mean()),
        }
        if config.next_sentence:
            tokens = config.sequence_tokens
            pairs = sampler(self.stores["valid"], self.tokenizer, tokens, True)
            size = min(16, config.batch_size)

            def correct_pairs(numbers: Sequence[int]) -> NDArray[np.bool_]:
                """Predict a fixed set of held-out pairs, with tokens hidden as in training."""
                results = []
                for start in range(0, len(numbers), size):
                    seeds = [(config.seed, 1, n) for n in numbers[start : start + size]]
                    batch = self._batch([pairs], seeds)
                    inputs = [batch[name].to(world.device) for name in INPUTS]
                    output: PretrainingOutput = network(*inputs)
                    assert output.next_sentence is not None
                    classes = output.next_sentence.argmax(-1).cpu()
                    results.append((classes == batch["next_sentence"]).numpy())
                return np.concatenate([np.zeros(0, bool), *results])

            numbers = range(config.evaluation_sequences)
            metrics["next_sentence_accuracy"] = float(
                world.divide(numbers, correct_pairs).mean()
            )

        return metrics

    def measure(self, trained: TrainingResult[nn.Module]) -> dict[str, float]:
        return self.evaluate(trained.network, trained.world)

    def write(
        self,
        directory: Path,
        trained: TrainingResult[nn.Module],
        measured: dict[str, float],
    ) -> dict[str, Any]:
        data: dict[str, Any] = {
            split: store.info for split, store in self.stores.items()
        }
        if self.further:
            data["further"] = [store.info for store in self.further]

        metrics = {
            **measured,
            "split": "valid",
            # The same inputs as of `evaluate pretraining` with this number of them, and of their tokens.
            "inputs": len(self.held_out.inputs),
            "sequence_tokens": self.config.sequence_tokens,
            **trained.effort,
        }
        provenance = {
            "configuration": stage_values(self.run, "pretraining"),
            "data": data,
            "tokenizer_sha256": checksum(self.tokenizer_path),
        }
        # Fine-tuning compares these with its own held-out regions.
        for key in ("contigs", "stretches"):
            if key in data["train"]:
                provenance[key] = data["train"][key]

        model = make_model(trained.network, self.tokenizer, self.encoder, self.settings)
        write_trained(directory, model, trained, provenance, metrics)
        log(f"held out: {measured['bits_per_base']:.4f} bits per base")
        return metrics


def init_from_counts(network: PretrainingNetwork, store: TokenStore) -> None:
    """Initialize token embeddings and output biases in place from the token counts of a store.

    Components that are zero in all tokens, reserved for positions, stay zero. Embeddings of tokens absent
    from the store do not change. For vocabularies above `LARGEST_VOCABULARY`, only the biases are set.
    """
    ids = np.asarray(store.tokens[:COUNTED]).astype(np.int64)
    weight, bias = network.encoder.embeddings.token.weight, network.masked_tokens.bias
    vocabulary = len(bias)
    counts = np.bincount(ids, minlength=vocabulary)
    with torch.no_grad():
        bias.copy_(torch.from_numpy(_log_frequencies(counts)).float())

    if vocabulary > LARGEST_VOCABULARY:
        log(
            f"a vocabulary of {vocabulary:,} is too large to count its pairs: embeddings stay random"
        )
        return

    seen = np.flatnonzero(counts)
    free = torch.nonzero((weight != 0).any(0))[:, 0]
    vectors = neighbor_vectors(ids, document_bounds(store, len(ids)), seen, len(free))
    vectors *= (
        SIZE * initial_deviation(weight.shape[1]) / max(float(vectors.std()), 1e-12)
    )
    cells = torch.from_numpy(seen)[:, None], free[None, : vectors.shape[1]]
    with torch.no_grad():
        weight[cells] = torch.from_numpy(vectors).to(weight.dtype)


def neighbor_vectors(
    ids: NDArray[np.int64],
    bounds: NDArray[np.int64],
    tokens: NDArray[np.int64],
    width: int,
) -> Floats:
    """Return vectors (T, min(width, T)) of the ascending `tokens` (T,) in `ids` (N,), from the counts of both
    neighbors within documents, which begin at `bounds`."""
    size = len(tokens)
    number = np.zeros(int(tokens.max(initial=0)) + 1, np.int64)
    number[tokens] = np.arange(size)
    numbers = number[ids]
    beside = np.ones(max(len(numbers) - 1, 0), bool)
    inner = bounds[(bounds > 0) & (bounds < len(numbers))]
    beside[inner - 1] = False
    pairs = numbers[:-1][beside] * size + numbers[1:][beside]
    counts = np.bincount(pairs, minlength=size * size).reshape(size, size)
    sides = _log_frequencies(counts.sum(1))[:, None], _log_frequencies(counts.sum(0))
    information = _log_frequencies(counts) - sides[0] - sides[1]
    # Left singular vectors of the T × 2T matrix, as eigenvectors of its product with its transpose.
    products = information @ information.T + information.T @ information
    values, vectors = np.linalg.eigh(products)
    chosen = np.argsort(-values)[:width]
    vectors = vectors[:, chosen] * np.sqrt(np.sqrt(np.maximum(values[chosen], 0)))
    # Signs are arbitrary: make the largest component of each vector positive.
    largest = np.abs(vectors).argmax(0)
    return np.asarray(vectors * np.sign(vectors[largest, np.arange(vectors.shape[1])]))


def _log_frequencies(counts: NDArray[np.integer]) -> Floats:
    return np.asarray(np.log((counts + _UNSEEN) / (counts + _UNSEEN).sum()))
