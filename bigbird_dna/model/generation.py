"""New DNA from a pretrained model: a causal one continues, one of masked tokens fills in."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import torch

from bigbird_dna.checks import check_at_least_one
from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.genome.sequence import clean
from bigbird_dna.model.continuation import Flank, continued, said_cost
from bigbird_dna.model.filling import Gap, filled
from bigbird_dna.model.model import MADE_FOR, Model
from bigbird_dna.model.sampling import Sampling

LONGEST = 10_000_000
"""bp of a sample; the pieces of one are a list in memory."""


class Flanks(NamedTuple):
    """What stands on both sides of samples, A C G T N; either may be empty."""

    left: str = ""
    right: str = ""

    @classmethod
    def read(cls, left: str, right: str) -> Self:
        """Flanks as a user gives them: lower case is read, IUPAC codes are N.

        `UsageError` for what is no text, `DataError` for a letter that isn't of DNA.
        """
        given = {"left": left, "right": right}
        for side, text in given.items():
            if not isinstance(text, str):
                raise UsageError(f"{side} {text!r:.60}: give the bases of a flank as text")
        return cls(*(clean(text, side) for side, text in given.items()))


def check_generating(model: Model, *, right: bool) -> None:
    """`ModelError` or `UsageError` where a model can't generate, or not before something on the right."""
    if model.task != "pretraining":
        raise ModelError(
            f"{model.name}: this model was made for {MADE_FOR[model.task]}; `generate` needs a pretrained "
            "model"
        )
    if right and model.config.causal:
        raise UsageError(
            f"{model.name}: a causal model reads from left to right and knows nothing of a flank on the "
            "right; a model of masked tokens fills a gap between two"
        )


def generate(
    model: Model,
    flanks: Sequence[Flanks],
    number: int,
    length: int,
    sampling: Sampling,
    *,
    rounds: int = 30,
    seed: int = 1,
    device: torch.device,
) -> Iterator[str]:
    """`number` samples of `length` bp for each pair of flanks, one pair after the other.

    Errors as of `Model.generate`; those of arguments come before anything is computed.
    """
    check_generating(model, right=any(one.right for one in flanks))
    check_at_least_one({"number": number, "length": length, "rounds": rounds})
    if length > LONGEST:
        raise UsageError(f"length {length}: must be at most {LONGEST:,}")
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed {seed}: must be from 0 to {2**32 - 1}")
    sampling.checked()
    if model.config.causal:
        prompts = [Flank(one.left, place) for place, one in enumerate(flanks)]
        return continued(
            model, prompts, number=number, length=length, sampling=sampling, seed=seed, device=device
        )
    gaps = [Gap(one.left, one.right, place) for place, one in enumerate(flanks)]
    return filled(
        model, gaps, number=number, length=length, sampling=sampling, rounds=rounds, seed=seed, device=device
    )


def said_method(model: Model, rounds: int) -> str:
    """How a model generates, in a few words."""
    if model.config.causal:
        return f"from left to right; {said_cost(model)}"
    return f"by filling gaps in {rounds:,} rounds"
