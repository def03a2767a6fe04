"""ListOps: nested operations on digits, written as a list (Nangia and Bowman 2018; Long-Range Arena).

    [MAX 4 3 [MIN 2 3 ] 1 0 [MED 1 5 8 9 2 ] ]

has the value 5. Closing brackets are tokens: published preparations drop them, and with them where a list
ends. No expression stands twice, neither within a split nor in two of them.
"""

import random
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from statistics import median

import numpy as np

from bigbird_dna.config.long_range import ListOpsConfig
from bigbird_dna.console import progress
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.disk.outputs import open_text
from bigbird_dna.errors import DataError
from bigbird_dna.genome.fields import quoted
from bigbird_dna.papers.experiments.long_range_sequences import SPLITS, Sequences

OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "[MAX": max,
    "[MIN": min,
    "[MED": lambda values: int(median(values)),  # of an even number the middle two's mean, rounded down
    "[SM": lambda values: sum(values) % 10,
}
END = "]"
TOKENS = (*OPERATORS, END, *map(str, range(10)))
VALUES = 10
HEADER = ("Source", "Target")
_NAMES = tuple(OPERATORS)
_OPERATOR_SHARE = 0.25  # of the arguments, as published
_MOST_TRIES = 20_000  # for one expression: sizes may allow hardly any


class _TooLong(Exception):
    pass


def evaluate(tokens: list[str]) -> int:
    """The value of an expression, brackets included; `ValueError` where it is not a whole one."""
    stack: list[tuple[str, list[int]]] = [("", [])]
    for token in tokens:
        if token in OPERATORS:
            stack.append((token, []))
        elif token == END:
            operator, values = stack.pop()
            if not stack or not values:
                raise ValueError("a bracket closes nothing, or a list without arguments")
            stack[-1][1].append(OPERATORS[operator](values))
        elif token in TOKENS:
            stack[-1][1].append(int(token))
        else:
            raise ValueError(f"{quoted(token)} is not one of {', '.join(TOKENS)}")
    if len(stack) > 1 or len(stack[0][1]) != 1:
        raise ValueError("it is not one whole expression")
    return stack[0][1][0]


def generate(config: ListOpsConfig, seed: int) -> Iterator[tuple[str, str, int]]:
    """Expressions of all splits: (split, tokens with blanks between them, value), each a function of seed,
    split and number, but for those that had come up before; `DataError` where there are not enough."""
    seen: set[bytes] = set()
    # What is judged on first: more examples to learn from leave it as it is.
    for split in reversed(SPLITS):
        for number in range(getattr(config.examples, split)):
            source = random.Random(f"{seed} {split} {number}")
            for _ in range(_MOST_TRIES):
                tokens: list[str] = []
                try:
                    value = _grow(source, config, 1, tokens)
                except _TooLong:
                    continue
                text = " ".join(tokens)
                key = blake2b(text.encode(), digest_size=16).digest()
                if len(tokens) >= config.shortest and key not in seen:
                    break
            else:
                raise DataError(
                    f"listops: no further expression was found in {_MOST_TRIES:,} tries after {len(seen):,}: "
                    "allow longer ones or ask for fewer"
                )
            seen.add(key)
            yield split, text, value


def _grow(source: random.Random, config: ListOpsConfig, depth: int, tokens: list[str]) -> int:
    """Append an expression to `tokens`; its value."""
    if len(tokens) > config.longest:
        raise _TooLong
    if depth > 1 and (depth >= config.depth or source.random() >= _OPERATOR_SHARE):
        value = source.randrange(VALUES)
        tokens.append(str(value))
        return value
    operator = source.choice(_NAMES)
    tokens.append(operator)
    values = [_grow(source, config, depth + 1, tokens) for _ in range(source.randint(2, config.arguments))]
    tokens.append(END)
    if len(tokens) > config.longest:
        raise _TooLong
    return OPERATORS[operator](values)


def write_listops(directory: Path, config: ListOpsConfig, seed: int) -> None:
    """Write `train.tsv.gz`, `valid.tsv.gz` and `test.tsv.gz` into a directory: Source and Target."""
    count = sum(getattr(config.examples, split) for split in SPLITS)
    examples = progress(generate(config, seed), "writing expressions", count, "expressions")
    row = next(examples, None)
    for split in reversed(SPLITS):
        with open_text(directory / f"{split}.tsv.gz") as stream:
            stream.write("\t".join(HEADER) + "\n")
            while row is not None and row[0] == split:
                stream.write(f"{row[1]}\t{row[2]}\n")
                row = next(examples, None)


def read_listops(path: Path) -> Sequences:
    """Read a table of expressions and their values, plain or gzip, also without closing brackets'
    parentheses; `DataError` names file, line and value."""
    numbers = {token: number for number, token in enumerate(TOKENS)}
    found: list[bytes] = []
    targets: list[int] = []
    for line, text in read_lines(path):
        columns = text.split("\t")
        if line == 1 and tuple(columns) != HEADER:
            raise DataError(f"{path}: line 1: {quoted(text)} is not the header {' '.join(HEADER)}")
        if line == 1:
            continue
        if len(columns) != len(HEADER) or columns[1] not in TOKENS[-VALUES:]:
            raise DataError(f"{path}: line {line}: {quoted(text)} is not an expression, a tab and a digit")
        tokens = [token for token in columns[0].split(" ") if token not in ("", "(", ")")]
        try:
            value = evaluate(tokens)
        except ValueError as error:
            raise DataError(f"{path}: line {line}: {error}") from None
        if value != int(columns[1]):
            raise DataError(f"{path}: line {line}: the value is {value}, and not {columns[1]}")
        found.append(bytes(numbers[token] for token in tokens))
        targets.append(value)
    if not found:
        raise DataError(f"{path}: holds no expressions")
    return Sequences.joined(found, np.array(targets, np.int64))


def root_baseline(train: Sequences, test: Sequences) -> float:
    """The share of test expressions whose value is the most frequent one of their first operator."""
    first, values = train.firsts(), train.targets
    best = {one: np.bincount(values[first == one], minlength=VALUES).argmax() for one in np.unique(first)}
    told = np.array([best.get(one, 0) for one in test.firsts()])
    return float((told == test.targets).mean())
