"""Turing machines with one tape, and a sparse decoder that runs them (BigBird, App. B; docs/theory.md).

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

from collections.abc import Mapping, Sequence
from itertools import count, product
from math import isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Action(NamedTuple):
    """Action of a machine: next state, written symbol, and move of the head: -1, 0 or 1."""

    state: str
    symbol: str
    move: int


class Machine(NamedTuple):
    """A deterministic machine; the tape is infinite in both directions, and the input starts at cell 0. The
    first state is the start state, the first symbol is the blank. The machine halts at a state and symbol
    without an action."""

    states: tuple[str, ...]
    symbols: tuple[str, ...]
    actions: Mapping[tuple[str, str], Action]


class Step(NamedTuple):
    """One step: state and cell before it, symbol read, and action."""

    state: str
    cell: int
    read: str
    action: Action


class TapeRun(NamedTuple):
    """Run of a machine: its steps, the final state, and whether it halted."""

    steps: list[Step]
    state: str
    halted: bool


def simulate(machine: Machine, tape: Sequence[str], most_steps: int) -> TapeRun:
    """Run a machine on an input until it halts, or for `most_steps` steps."""
    cells = dict(enumerate(tape))
    state, cell = machine.states[0], 0
    steps: list[Step] = []
    while True:
        read = cells.get(cell, machine.symbols[0])
        action = machine.actions.get((state, read))
        if action is None or len(steps) == most_steps:
            return TapeRun(steps, state, action is None)
        steps.append(Step(state, cell, read, action))
        cells[cell] = action.symbol
        state, cell = action.state, cell + action.move


def written(machine: Machine, tape: Sequence[str], steps: Sequence[Step]) -> str:
    """Return the tape after these steps, without leading and trailing blanks."""
    blank = machine.symbols[0]
    cells = dict(enumerate(tape)) | {step.cell: step.action.symbol for step in steps}
    text = "".join(cells.get(cell, blank) for cell in range(min(cells), max(cells) + 1))
    return text.strip(blank)


def increment() -> Machine:
    """Return a machine that adds 1 to a binary number (highest digit first); its final state is `done`."""
    actions = {
        ("right", "0"): Action("right", "0", 1),
        ("right", "1"): Action("right", "1", 1),
        ("right", "_"): Action("carry", "_", -1),
        ("carry", "1"): Action("carry", "0", -1),
        ("carry", "0"): Action("done", "1", 0),
        ("carry", "_"): Action("done", "1", 0),
    }
    return Machine(("right", "carry", "done"), ("_", "0", "1"), actions)


def palindromes() -> Machine:
    """Return a machine that tests whether a word of a and b is a palindrome; final state `yes` or `no`."""
    actions = {
        ("begin", "_"): Action("yes", "_", 0),
        ("back", "_"): Action("begin", "_", 1),
    }
    for letter, other in ("ab", "ba"):
        # Erase the first letter, go to the end, and compare with the last letter, if any is left.
        actions["begin", letter] = Action(f"right {letter}", "_", 1)
        actions[f"right {letter}", "a"] = Action(f"right {letter}", "a", 1)
        actions[f"right {letter}", "b"] = Action(f"right {letter}", "b", 1)
        actions[f"right {letter}", "_"] = Action(f"last {letter}", "_", -1)
        actions[f"last {letter}", letter] = Action("back", "_", -1)
        actions[f"last {letter}", other] = Action("no", other, 0)
        actions[f"last {letter}", "_"] = Action("yes", "_", 0)
        actions["back", letter] = Action("back", letter, -1)
    states = ("begin", "back", "right a", "right b", "last a", "last b", "yes", "no")
    return Machine(states, ("_", "a", "b"), actions)


# The decoder: N nodes, S states, A symbols.

SHARPNESS = 200.0  # β
ANYWHERE = np.array([0.0, 0.0, 0.0, 0.5])
"""The key with score −β/2 for every query: that of nodes themselves, and of the blank encoder token."""


def row_of(node: int) -> tuple[int, int]:
    """Return (j, k) of node j(j + 1)/2 + k with 1 ≤ k ≤ j + 1; node 1 is (0, 1)."""
    row = (isqrt(8 * node - 7) - 1) // 2
    return row, node - row * (row + 1) // 2


def neighbors(node: int) -> tuple[int, ...]:
    """Return the nodes a node attends to: itself, and, unless it performs a step, a preceding record."""
    column = row_of(node)[1]
    record = column * (column + 1) // 2
    return (node,) if record == node else (record, node)


def run_on_decoder(machine: Machine, tape: Sequence[str], most_steps: int) -> TapeRun:
    """Run a machine like `simulate`, computed by the sparse decoder; T steps need T(T + 1)/2 nodes.

    A node has state (S,), cell and symbol (A,); its position determines whether it performs a step, and
    whether it is the first node after a step.
    """
    states, symbols, actions = machine
    # Layer 1: a key and a value per token of the input, with the blank token last.
    input_keys = np.stack([*map(_key, range(len(tape))), ANYWHERE])
    input_values = _one_hot([*tape, symbols[0]], symbols)
    # Layer 2: a unit per state and symbol; a unit without an action keeps all.
    units = list(product(states, symbols))
    outputs = [actions.get(unit, Action(*unit, 0)) for unit in units]
    of_state = _one_hot([state for state, _ in units], states)  # (S A, S)
    of_symbol = _one_hot([symbol for _, symbol in units], symbols)  # (S A, A)
    to_state = _one_hot([action.state for action in outputs], states)
    to_symbol = _one_hot([action.symbol for action in outputs], symbols)
    moves = np.array([action.move for action in outputs], np.float64)
    # Layer 3: the key and value of each node.
    keys: list[Floats] = []
    values: list[Floats] = []
    steps: list[Step] = []
    # Node 1 gets the start state at cell 0, and no symbol.
    state, cell, symbol = np.eye(len(states))[0], 0.0, np.zeros(len(symbols))
    for node in count(1):
        row, column = row_of(node)
        acts, first = column == row + 1, column == 1
        read = _attend(_query(cell), input_keys, input_values)
        symbol = _relu(symbol - first) + _relu(read + first - 1)
        old_state, old_cell = states[int(state.argmax())], round(cell)
        old_symbol = symbols[int(symbol.argmax())]
        unit = _relu(of_state @ state + of_symbol @ symbol + acts - 2)
        state = _relu(state - acts) + unit @ to_state
        symbol = _relu(symbol - acts) + unit @ to_symbol
        keys.append(_key(cell) if acts else ANYWHERE)
        values.append(symbol)
        query = _query(cell)
        cell += float(unit @ moves)
        seen = [other - 1 for other in neighbors(node)]
        symbol = _attend(
            query,
            np.stack([keys[other] for other in seen]),
            np.stack([values[other] for other in seen]),
        )
        if acts:
            halted = (old_state, old_symbol) not in actions
            if halted or len(steps) == most_steps:
                return TapeRun(steps, old_state, halted)
            new_state = states[int(state.argmax())]
            new_symbol = symbols[int(symbol.argmax())]
            action = Action(new_state, new_symbol, round(cell) - old_cell)
            steps.append(Step(old_state, old_cell, old_symbol, action))
    raise AssertionError  # unreachable: nodes are without end


def _one_hot(names: Sequence[str], among: Sequence[str]) -> Floats:
    return np.eye(len(among))[[among.index(name) for name in names]]


def _query(cell: float) -> Floats:
    return SHARPNESS * np.array([2 * cell, -1.0, -(cell**2), -1.0])


def _key(cell: float) -> Floats:
    """Return a key whose product with the query of cell c is −β (cell − c)²."""
    return np.array([cell, cell**2, 1.0, 0.0])


def _attend(query: Floats, keys: Floats, values: Floats) -> Floats:
    scores = keys @ query
    weights = np.exp(scores - scores.max())
    return np.asarray(weights @ values / weights.sum())


def _relu(values: Floats) -> Floats:
    return np.maximum(values, 0.0)
