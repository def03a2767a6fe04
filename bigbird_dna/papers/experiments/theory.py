"""Theorems of the BigBird paper as code: how many layers connect all tokens, and Turing machines in a sparse
decoder (App. B; docs/theory.md).

The run of the decoder is compared with a direct simulation. Nodes are numbered from 1; the input of each node
is the output of the preceding node. Node t(t + 1)/2 attends only to itself and performs step t: it has the
state, cell and symbol, and leaves a record of the cell and the written symbol. Each of the next t nodes
attends to the record of one of the steps 1 … t. If the record is of the next cell, its symbol replaces the
symbol of the preceding node, so the latest record is kept. Three layers, with constructed weights:

1. attention to the encoder, whose token p is the symbol at position p of the input: score −β (p − c)² for the
   cell c, and −β/2 for an additional blank token. The first node after a step takes the result.
2. the transition table, a feed-forward network with one ReLU per state and symbol, at nodes of steps. 3.
sparse self-attention, softmax over node and record: score −β (c' − c)² for a record's cell c', −β/2 for the
   node itself. Scores differ by at least β/2, so softmax selects one up to exp(−β/2) < 1e-40.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.config.mechanisms import OF_PATTERNS
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.mechanism import attention_pattern

Floats = NDArray[np.float64]
Machine = Mapping[tuple[str, str], tuple[str, str, int]]
"""A deterministic machine with one tape, infinite in both directions: state and symbol → next state, written
symbol, and move of the head (-1, 0 or 1). The first state is the start state, the input starts at cell 0, and
the machine halts at a state and symbol without an entry."""

BLANK = "_"
INCREMENT: Machine = {
    ("right", "0"): ("right", "0", 1),
    ("right", "1"): ("right", "1", 1),
    ("right", BLANK): ("carry", BLANK, -1),
    ("carry", "1"): ("carry", "0", -1),
    ("carry", "0"): ("done", "1", 0),
    ("carry", BLANK): ("done", "1", 0),
}
"""A machine that adds 1 to a binary number (highest digit first)."""


def receptive_field(
    encoder: EncoderConfig, tokens: int, most_layers: int
) -> list[NDArray[np.bool_]]:
    """Return the receptive fields of 1, 2, … layers, (L, L), until all tokens are connected.

    Row i marks the tokens on which the vector of token i can depend: a layer propagates information along the
    edges of its attention graph (all heads together), and a token keeps its own. Extra globals are the first
    of the L tokens. `ConfigError` for attention that is not of blocks.
    """
    if encoder.attention not in OF_PATTERNS:
        raise ConfigError(
            f"encoder.attention {encoder.attention}: its graph depends on the tokens; choose one of "
            f"{', '.join(OF_PATTERNS)}"
        )

    length = tokens + encoder.num_global_tokens
    field = np.eye(length, dtype=np.float32)
    fields = []

    for layer in range(most_layers):
        if encoder.attention == "full":
            edges = np.ones((length, length), bool)
            edges = np.tril(edges) if encoder.causal else edges
        else:
            mask = attention_pattern(encoder).mask(length, encoder.heads, layer)
            edges = mask.any(axis=0) | np.eye(length, dtype=bool)

        field = (edges.astype(np.float32) @ field > 0).astype(np.float32)
        fields.append(field > 0)
        if field.all():
            break

    return fields


# Turing machines


class Step(NamedTuple):
    """One step: state and cell before it, symbol read, next state, symbol written, and move."""

    state: str
    cell: int
    read: str
    next: str
    written: str
    move: int


def simulate(
    machine: Machine, tape: Sequence[str], most_steps: int
) -> tuple[list[Step], str]:
    """Run a machine until it halts, or for `most_steps` steps; returns the steps and the final state.

    `tape` has the input in cells 0, 1, …; all other cells are blank.
    """
    cells = dict(enumerate(tape))
    state, cell = next(iter(machine))[0], 0
    steps: list[Step] = []

    while len(steps) < most_steps:
        read = cells.get(cell, BLANK)
        if (state, read) not in machine:
            break

        step = Step(state, cell, read, *machine[state, read])
        steps.append(step)
        cells[cell] = step.written
        state, cell = step.next, cell + step.move

    return steps, state


# The decoder: S states, A symbols.

SHARPNESS = 200.0  # β
ANYWHERE = [0.0, 0.0, 0.0, 0.5]
"""The key with score −β/2 for every query: that of nodes themselves, and of the blank encoder token."""


def run_on_decoder(
    machine: Machine, tape: Sequence[str], most_steps: int
) -> tuple[list[Step], str]:
    """Run a machine like `simulate`, computed by the sparse decoder; T steps need T(T + 1)/2 nodes.

    A node has state (S,), cell and symbol (A,); its position determines whether it performs a step, and
    whether it is the first node after a step. Row t has the nodes between steps t − 1 and t, and ends with
    that of step t; its node k attends to the record of step k.
    """
    start = next(iter(machine))[0]
    outputs = machine.values()
    states = [start, *(unit[0] for unit in machine), *(output[0] for output in outputs)]
    symbols = [BLANK, *tape, *(unit[1] for unit in machine)]
    symbols += [output[1] for output in outputs]
    states, symbols = list(dict.fromkeys(states)), list(dict.fromkeys(symbols))

    # Layer 1: a key and a value per token of the input, with the blank token last.
    input_keys = [*map(_key, range(len(tape))), ANYWHERE]
    input_values = _one_hot([*tape, BLANK], symbols)

    # Layer 2: a unit per state and symbol; a unit without an entry keeps all.
    units = list(product(states, symbols))
    entries = [machine.get(unit, (*unit, 0)) for unit in units]
    of_state = _one_hot([unit[0] for unit in units], states)  # (S A, S)
    of_symbol = _one_hot([unit[1] for unit in units], symbols)  # (S A, A)
    to_state = _one_hot([entry[0] for entry in entries], states)
    to_symbol = _one_hot([entry[1] for entry in entries], symbols)
    moves = np.array([entry[2] for entry in entries], np.float64)

    # Layer 3: the key and value of each node.
    keys: list[list[float]] = []
    values: list[Floats] = []
    steps: list[Step] = []

    # Node 1 gets the start state at cell 0, and no symbol.
    state, cell, symbol = _one_hot([start], states)[0], 0.0, np.zeros(len(symbols))

    for row in count(1):
        for column in range(1, row + 1):
            acts, first = column == row, column == 1
            read = _attend(cell, input_keys, input_values)
            symbol = _relu(symbol - first) + _relu(read + first - 1)
            before = states[state.argmax()], round(cell), symbols[symbol.argmax()]
            unit = _relu(of_state @ state + of_symbol @ symbol + acts - 2)
            state = _relu(state - acts) + unit @ to_state
            symbol = _relu(symbol - acts) + unit @ to_symbol
            keys.append(_key(cell) if acts else ANYWHERE)
            values.append(symbol)
            # The record of step `column`, and the node itself.
            seen = sorted({column * (column + 1) // 2 - 1, len(keys) - 1})
            symbol = _attend(
                cell, [keys[node] for node in seen], [values[node] for node in seen]
            )
            cell += float(unit @ moves)

        if (before[0], before[2]) not in machine or len(steps) == most_steps:
            return steps, before[0]

        after = states[state.argmax()], symbols[symbol.argmax()]
        steps.append(Step(*before, *after, round(cell) - before[1]))

    raise AssertionError  # unreachable: rows are without end


def _one_hot(names: Sequence[str], among: Sequence[str]) -> Floats:
    return np.eye(len(among))[[among.index(name) for name in names]]


def _key(cell: float) -> list[float]:
    """Return the key of a cell, whose product with the query of cell c is −β (cell − c)²."""
    return [cell, cell**2, 1.0, 0.0]


def _attend(cell: float, keys: Sequence[list[float]], values: ArrayLike) -> Floats:
    """Return the mean of values (N, A), with the softmax of the keys' products with the query of a cell."""
    query = SHARPNESS * np.array([2 * cell, -1.0, -(cell**2), -1.0])
    scores = np.array(keys) @ query
    weights = np.exp(scores - scores.max())
    return np.asarray(weights @ np.array(values) / weights.sum())


def _relu(values: Floats) -> Floats:
    return np.maximum(values, 0.0)
