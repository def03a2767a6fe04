"""JSON that means one thing: for files that the package wrote itself, and that must not be misread."""

import json
import math
from collections import Counter
from typing import Any, NoReturn


def parse_json(text: str) -> Any:
    """The value of a JSON text; `ValueError` says on one line why it has none.

    Refused is, beside what JSON doesn't allow, what leaves a doubt: a key that stands twice in an object,
    NaN and infinities, numbers too large for a float; and whatever is nested too deeply to be read.
    """
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite_number
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"key {twice!r:.80} stands twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text:.40} is too large")
    return number
