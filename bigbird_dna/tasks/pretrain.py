"""Pretraining: masked tokens and next sentence on held-out contigs' measure, bits per base (App. F.1)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.baselines.ngram import KneserNey
from bigbird_dna.config import Config, PretrainingConfig, complete, stage_values
from bigbird_dna.console import log
from bigbird_dna.directories import check_directory
from bigbird_dna.errors import DataError
from bigbird_dna.files import checksum
from bigbird_dna.model.directory import encoder_for
from bigbird_dna.model.heads import PretrainingOutput
from bigbird_dna.model.rows import pad
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.tasks.run import Run
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.masking import NOT_MASKED, mask_tokens
from bigbird_dna.tokens.opening import load_tokenizer
from bigbird_dna.tokens.store import TokenStore
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch

NGRAM_TOKENS = 5_000_000
INPUTS = ("ids", "lengths", "segments", "masked")  # of the network, among a batch's tensors


class Pair(NamedTuple):
    """Two runs of sentences: token ids, and whether the second follows the first in its document."""

    a: npt.NDArray[np.integer]
    b: npt.NDArray[np.integer]
    follows: bool


class PairSampler:
    """Draws sentence pairs that fill `sequence_tokens` with [CLS] A [SEP] B [SEP].

    A starts at a sentence drawn uniformly and takes whole sentences up to about half of the room, B fills
    the rest: with the sentences after A, or (every second time) with those from a random place.
    """

    def __init__(self, store: TokenStore, sequence_tokens: int, next_sentence: bool) -> None:
        self.store = store
        self.room = sequence_tokens - 3
        self.next_sentence = next_sentence
        # Tokens from each sentence's start to the end of its document.
        document_ends = store.sentences[store.documents[1:]]
        sizes = np.diff(store.documents)
        starts = store.sentences[:-1]
        self.document_end = np.repeat(document_ends, sizes)  # (S,)
        ahead = self.document_end - starts
        self.full = np.flatnonzero(ahead >= self.room)
        if not len(self.full):
            # Documents shorter than the input: take what there is.
            self.full = np.flatnonzero(ahead >= min(self.room, int(ahead.max(initial=0))))
        if not len(self.full):
            raise DataError(f"{store.directory}: the token store holds no sentences")

    def draw(self, rng: np.random.Generator) -> Pair:
        """One pair, a function of the generator's state."""
        sentence = int(self.full[rng.integers(len(self.full))])
        start, end = int(self.store.sentences[sentence]), int(self.document_end[sentence])
        half = min(self.room, end - start) // 2
        middle = self._sentence_end_near(sentence, start + half, start + 2 * half)
        room_b = self.room - (middle - start)
        follows = not self.next_sentence or bool(rng.random() < 0.5)
        begin, stop = middle, end
        if not follows:
            other = int(self.full[rng.integers(len(self.full))])
            begin, stop = int(self.store.sentences[other]), int(self.document_end[other])
        tokens = self.store.tokens
        return Pair(
            np.asarray(tokens[start:middle]), np.asarray(tokens[begin : min(stop, begin + room_b)]), follows
        )

    def _sentence_end_near(self, sentence: int, target: int, limit: int) -> int:
        """The last sentence end at or before `target`, the first one after it, or `target` itself."""
        ends = self.store.sentences
        after = int(np.searchsorted(ends, target, side="right"))
        if after - 1 > sentence:
            return int(ends[after - 1])
        if after < len(ends) and int(ends[after]) < limit:
            return int(ends[after])
        return target


class PretrainingObjective:
    """Joint masked-token and next-sentence loss, each a mean over the global batch."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        train: TokenStore,
        valid: TokenStore,
        config: PretrainingConfig,
        world: World,
    ) -> None:
        self.tokenizer = tokenizer
        self.config = config
        self.world = world
        self.sampler = PairSampler(train, config.sequence_tokens, config.next_sentence)
        self.held_out = PairSampler(valid, config.sequence_tokens, config.next_sentence)
        self.piece_lengths = torch.from_numpy(tokenizer.piece_lengths.astype(np.int64))

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Examples of a training step, a function of (seed, step, place in the global batch)."""
        seeds = [(self.config.seed, 0, step, first + index) for index in range(count)]
        return self._batch(self.sampler, seeds)

    def _batch(
        self, sampler: PairSampler, seeds: Sequence[tuple[int, ...]], *, hide_all: bool = False
    ) -> Batch:
        tokenizer = self.tokenizer
        rows, targets, first_lengths, classes = [], [], [], []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            pair = sampler.draw(rng)
            row = np.concatenate(
                [[tokenizer.cls_id], pair.a, [tokenizer.sep_id], pair.b, [tokenizer.sep_id]]
            ).astype(np.int32)
            inputs, labels = mask_tokens(row, rng, self.config.mask_fraction, tokenizer, hide_all=hide_all)
            rows.append(inputs)
            targets.append(labels)
            first_lengths.append(len(pair.a) + 2)
            classes.append(0 if pair.follows else 1)
        ids, lengths = pad(rows, tokenizer.pad_id)
        labels_padded, _ = pad(targets, NOT_MASKED)
        masked = torch.nonzero(labels_padded.flatten() != NOT_MASKED)[:, 0]
        segments = torch.arange(ids.shape[1])[None] >= torch.tensor(first_lengths)[:, None]
        return {
            "ids": ids,
            "lengths": lengths,
            "segments": segments.long(),
            "masked": masked,
            "labels": labels_padded.flatten()[masked],
            "next_sentence": torch.tensor(classes),
        }

    def counts(self, batch: Batch) -> dict[str, float]:
        """Masked tokens and pairs."""
        return {"masked": float(len(batch["masked"])), "pairs": float(len(batch["ids"]))}

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        """Mean cross-entropy over masked tokens, in nats, plus that of the next-sentence choice if learnt."""
        output: PretrainingOutput = network(*(batch[name] for name in INPUTS))
        masked = F.cross_entropy(output.tokens.float(), batch["labels"], reduction="sum")
        loss = masked / max(totals["masked"], 1.0)
        if output.next_sentence is None:
            return loss
        pairs = F.cross_entropy(output.next_sentence.float(), batch["next_sentence"], reduction="sum")
        return loss + pairs / totals["pairs"]

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Bits per base and accuracy over a fixed set of held-out pairs with fixed masks.

        Every token that counts is hidden: in training a tenth of them stays as it is, and would make the
        figure look better than the model is.
        """
        sums = dict.fromkeys(("nats", "bases", "masked", "right", "pairs", "right_pairs"), 0.0)
        size = min(16, self.config.batch_size)
        starts = range(0, self.config.evaluation_sequences, size)
        for start in starts[self.world.rank :: self.world.size]:
            stop = min(start + size, self.config.evaluation_sequences)
            seeds = [(self.config.seed, 1, index) for index in range(start, stop)]
            batch = self._batch(self.held_out, seeds, hide_all=True)
            bases = self.piece_lengths[batch["labels"]].sum().item()
            batch = {key: value.to(self.world.device) for key, value in batch.items()}
            output: PretrainingOutput = network(*(batch[name] for name in INPUTS))
            logits, labels = output.tokens.float(), batch["labels"]
            sums["nats"] += F.cross_entropy(logits, labels, reduction="sum").item()
            sums["bases"] += bases
            sums["masked"] += len(labels)
            sums["right"] += (logits.argmax(-1) == labels).sum().item()
            sums["pairs"] += len(batch["ids"])
            if output.next_sentence is not None:
                right = output.next_sentence.argmax(-1) == batch["next_sentence"]
                sums["right_pairs"] += right.sum().item()
        sums = self.world.sum(sums)
        figures = {
            "bits_per_base": sums["nats"] / np.log(2) / sums["bases"],
            "masked_accuracy": sums["right"] / sums["masked"],
        }
        if self.config.next_sentence:
            figures["next_sentence_accuracy"] = sums["right_pairs"] / sums["pairs"]
        return {key: float(value) for key, value in figures.items()}


class NgramBaseline(NamedTuple):
    """The best n-gram and its bits per base."""

    bits_per_base: float
    order: int


def ngram_baseline(
    train_store: TokenStore, valid_store: TokenStore, tokenizer: Tokenizer, config: PretrainingConfig
) -> NgramBaseline:
    """Bits per base of interpolated Kneser–Ney n-grams on held-out tokens, and the order that does best.

    They are fitted on the tokens of one pass over the training contigs, or of documents spread over it that
    hold 5 M, and predict each token from those before it, the masked-token model from both sides: the
    comparison is the paper's (SRILM against BERT). All orders up to `config.ngram_order` are tried on the
    held-out tokens themselves, so the choice favours the baseline.
    """
    training = _document_tokens(train_store, NGRAM_TOKENS)
    held_out = _document_tokens(valid_store, config.evaluation_sequences * config.sequence_tokens)
    bases = sum(int(tokenizer.piece_lengths[tokens].sum()) for tokens in held_out)
    found = []
    for order in range(1, config.ngram_order + 1):
        model = KneserNey(order, tokenizer.vocabulary)
        model.fit(training)
        bits = -sum(float(model.log2_probabilities(tokens).sum()) for tokens in held_out)
        found.append(NgramBaseline(bits / bases, order))
    return min(found)


def _document_tokens(store: TokenStore, limit: int) -> list[npt.NDArray[np.integer]]:
    """Tokens of documents of the store's first pass, all of them or evenly spread ones with about `limit`.

    Later passes cut the same sequence at other places: an n-gram model must not count it again.
    """
    bounds = store.sentences[store.documents]
    count = math.ceil(store.info["documents"] / max(store.info["passes"], 1))
    share = min(1.0, limit / max(int(bounds[count]), 1))
    chosen = np.unique(np.linspace(0, count - 1, max(1, round(count * share))).round().astype(int))
    return [np.asarray(store.tokens[bounds[index] : bounds[index + 1]]) for index in chosen]


def pretrain(
    config: Config, tokens: Path, tokenizer_path: Path, output: Path, checkpoints: Path, world: World
) -> dict[str, Any]:
    """Train or go on training, then publish the model directory `output`; returns its metrics.

    Every process of `world` calls this; the first one writes.

    Raises
    ------
    ConfigError
        Inputs are longer than the encoder's positions, or a batch can't be divided among processes.
    """
    check_directory(output, [tokens, tokenizer_path, checkpoints])
    settings, tokenizer = complete(config).pretraining, load_tokenizer(tokenizer_path)
    train_store, valid_store = (  # one process looks for damage
        TokenStore.open(tokens / split, tokenizer, verify=world.is_first) for split in ("train", "valid")
    )
    run = Run.begin(
        encoder_for(config.encoder, tokenizer),
        tokenizer,
        PretrainingSettings(next_sentence=settings.next_sentence),
        settings,
        {"data": [train_store.info, valid_store.info]},
        checkpoints,
        world,
    )
    parameters = sum(p.numel() for p in run.model.network.parameters())
    objective = PretrainingObjective(tokenizer, train_store, valid_store, settings, world)
    what = f"{parameters:,} parameters, {len(train_store.tokens):,} training tokens"
    progress = run.train(objective, what)
    with torch.inference_mode():
        # In float32, whatever the training's precision was.
        figures = objective.evaluate(run.model.network)
    world.leave()
    if not world.is_first:
        return figures
    log("fitting the n-gram baseline")
    ngram = ngram_baseline(train_store, valid_store, tokenizer, settings)
    metrics = {
        **figures,
        "ngram_bits_per_base": ngram.bits_per_base,
        "ngram_order": ngram.order,
        "uniform_bits_per_base": 2.0,  # what knowing nothing costs
        "split": "valid",
        "steps": progress.step,
        "tokens_seen": progress.tokens,
        "parameters": parameters,
    }
    provenance = {
        "configuration": stage_values(config, "pretraining"),
        "data": {"train": train_store.info, "valid": valid_store.info},
        "tokenizer_sha256": checksum(tokenizer_path),
        "contigs": train_store.info["contigs"],
    }
    run.publish(output, provenance, metrics)
    bits, theirs = figures["bits_per_base"], ngram.bits_per_base
    log(f"held out: {bits:.4f} bits per base, n-gram {theirs:.4f}")
    return metrics
