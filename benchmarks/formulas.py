"""How the stated costs of attention grow with length, to stand beside what was measured."""

import math
from collections.abc import Sequence

import numpy as np

from bigbird_dna.config import Mechanism, find_mechanism

SIZES = ("span", "columns", "clusters")  # options of mechanisms that are best near √L
BOTH = "of both plans"  # what Combiner's mixture says of its cost: the options `first` and `second`


def sizes_at(mechanism: Mechanism, tokens: int) -> dict[str, int]:
    """The options of a mechanism whose sizes a benchmark chooses, √L each, rounded up."""
    root = math.isqrt(tokens - 1) + 1
    return {size: root for size in SIZES if size in mechanism.options.model_fields}


def stated_exponent(
    mechanism: Mechanism, width: int, lengths: Sequence[int]
) -> float | None:
    """The power of the length that the stated cost of a head grows with, fitted over `lengths` as times are.

    None where there are fewer than two of them, or the cost is not a formula in L, K and the options.
    """
    if len(lengths) < 2:
        return None
    try:
        costs = [_stated(mechanism, width, tokens) for tokens in lengths]
        return float(np.polyfit(np.log(lengths), np.log(costs), 1)[0])
    except (
        SyntaxError,
        NameError,
        TypeError,
        ValueError,
        ArithmeticError,
    ):  # a text of someone else's
        return None


def _stated(mechanism: Mechanism, width: int, tokens: int) -> float:
    options = dict(mechanism.checked(sizes_at(mechanism, tokens)))
    if mechanism.cost == BOTH:
        parts = (
            find_mechanism(f"combiner_{options[part]}") for part in ("first", "second")
        )
        return sum(_stated(part, width, tokens) for part in parts)
    formula = (
        mechanism.cost.replace("·", "*").replace("²", "**2").replace("log L", "log2(L)")
    )
    known = {**options, "L": tokens, "K": width, "log2": math.log2, "__builtins__": {}}
    return float(eval(formula, known))
