"""The pretraining objective: hidden tokens, and whether sentences follow each other (App. F.1); or the next
token, of a causal model."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import PretrainingConfig
from bigbird_dna.console import log
from bigbird_dna.model.batching import pad
from bigbird_dna.model.heads import PretrainingOutput
from bigbird_dna.pretraining.held_out import HeldOut
from bigbird_dna.pretraining.sampling import PairSampler, Sampler, Tokens, sampler
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.masking import NOT_MASKED, Masked, mask_tokens, next_tokens
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.micro_batches import take_rows

INPUTS = ("ids", "lengths", "segments", "masked")  # of the network, among a batch's tensors
_NEARLY_ALL = 0.9  # of a store's tokens


class PretrainingObjective:
    """Joint masked-token and next-sentence loss, each a mean over the global batch.

    `causal`: every token of an input is predicted from those before it, and none is hidden.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        train: Tokens,
        valid: Tokens,
        config: PretrainingConfig,
        world: World,
        *,
        causal: bool = False,
        widths: NDArray[np.int64] | None = None,
    ) -> None:
        """`widths` are those of `valid`, as `HeldOut.draw` takes them."""
        self.tokenizer = tokenizer
        self.config = config
        self.causal = causal
        self.world = world
        lengths = {config.sequence_tokens, *(stage.tokens for stage in config.shorter_first)}
        self.samplers = {
            length: sampler(train, tokenizer, length, config.next_sentence) for length in sorted(lengths)
        }
        self.held_out = HeldOut.draw(
            valid,
            tokenizer,
            config.sequence_tokens,
            config.evaluation_sequences,
            pairs=config.next_sentence,
            causal=causal,
            widths=widths,
        )
        self.pairs = sampler(valid, tokenizer, config.sequence_tokens, True) if config.next_sentence else None
        if world.is_first:
            _say_shares([*self.samplers.items(), (config.sequence_tokens, self.pairs)])

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Examples of a training step, a function of (seed, step, place in the global batch).

        Where inputs are shorter there are as many more of them, so that steps have the same tokens.
        """
        length = self.config.tokens_at(step)
        more = self.config.sequence_tokens // length
        places = range(first * more, (first + count) * more)
        return self._batch(self.samplers[length], [(self.config.seed, 0, step, place) for place in places])

    def _batch(self, drawn_by: Sampler, seeds: Sequence[tuple[int, ...]]) -> Batch:
        rows, targets, firsts, classes = [], [], [], []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            example = drawn_by.draw(rng)
            hidden = self._hidden(example.ids, rng)
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

    def _hidden(self, ids: NDArray[np.integer], rng: np.random.Generator) -> Masked:
        """An input and what is predicted where."""
        if self.causal:
            return next_tokens(ids, self.tokenizer)
        return mask_tokens(
            ids, rng, self.config.mask_fraction, self.tokenizer, mean_span=self.config.mask_span
        )

    def part(self, batch: Batch, rows: Tensor) -> Batch:
        """Some inputs of a batch."""
        width = batch["ids"].shape[1]
        of, places = batch["masked"] // width, batch["masked"] % width
        numbers = torch.full((len(batch["ids"]),), -1)
        numbers[rows] = torch.arange(len(rows))
        kept = numbers[of] >= 0
        by_row = {name: batch[name] for name in ("ids", "lengths", "segments", "next_sentence")}
        taken = take_rows(by_row, rows)
        masked = numbers[of[kept]] * taken["ids"].shape[1] + places[kept]
        return {**taken, "masked": masked, "labels": batch["labels"][kept]}

    def counts(self, batch: Batch) -> dict[str, float]:
        """Tokens that are predicted, and pairs."""
        return {"masked": float(len(batch["masked"])), "pairs": float(len(batch["ids"]))}

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        """Mean cross-entropy over predicted tokens, in nats, plus that of the next-sentence choice."""
        output: PretrainingOutput = network(*(batch[name] for name in INPUTS))
        masked = F.cross_entropy(output.tokens.float(), batch["labels"], reduction="sum")
        loss = masked / max(totals["masked"], 1.0)
        if output.next_sentence is None:
            return loss
        pairs = F.cross_entropy(output.next_sentence.float(), batch["next_sentence"], reduction="sum")
        return loss + pairs / totals["pairs"]

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Bits per base and accuracy over held-out tokens, always the same; next sentences if learnt."""
        held_out, world = self.held_out, self.world
        predicted = held_out.bits(network, self.tokenizer, world.device, world.rank, world.size)
        own = predicted.own
        sums = {
            "bits": float(predicted.bits[own].sum()),
            "bases": float(held_out.bases[own].sum()),
            "masked": float(own.sum()),
            "right": float(predicted.right[own].sum()),
            "pairs": 0.0,
            "right_pairs": 0.0,
        }
        if self.pairs is not None:
            sums |= self._next_sentences(network, self.pairs)
        sums = world.sum(sums)
        figures = {
            "bits_per_base": sums["bits"] / sums["bases"],
            "next_token_accuracy" if self.causal else "masked_accuracy": sums["right"] / sums["masked"],
        }
        if self.pairs is not None:
            figures["next_sentence_accuracy"] = sums["right_pairs"] / sums["pairs"]
        return figures

    def _next_sentences(self, network: nn.Module, pairs: Sampler) -> dict[str, float]:
        """How many of a fixed set of held-out pairs are told rightly; tokens are hidden as in training."""
        size = min(16, self.config.batch_size)
        starts = range(0, self.config.evaluation_sequences, size)
        sums = {"pairs": 0.0, "right_pairs": 0.0}
        for start in starts[self.world.rank :: self.world.size]:
            stop = min(start + size, self.config.evaluation_sequences)
            batch = self._batch(pairs, [(self.config.seed, 1, index) for index in range(start, stop)])
            output: PretrainingOutput = network(*(batch[name].to(self.world.device) for name in INPUTS))
            assert output.next_sentence is not None
            right = output.next_sentence.argmax(-1).cpu() == batch["next_sentence"]
            sums["pairs"] += len(right)
            sums["right_pairs"] += right.sum().item()
        return sums


def _say_shares(samplers: Iterable[tuple[int, Sampler | None]]) -> None:
    """Say where pairs leave out much of a store: inputs begin where sentences do, and short ones end soon."""
    for length, drawn_by in samplers:
        if isinstance(drawn_by, PairSampler) and drawn_by.share < _NEARLY_ALL:
            log(
                f"inputs of {length:,} tokens: pairs are drawn from {drawn_by.share:.0%} of the tokens of "
                f"{drawn_by.store.directory}"
            )
