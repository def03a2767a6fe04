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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice, product
from math import isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

LEFT, STAY, RIGHT = -1, 0, 1


class Action(NamedTuple):
    """Action of a machine: next state, written symbol, and move of the head."""

    state: str
    symbol: str
    move: int


class Step(NamedTuple):
    """One step: state and cell before it, symbol read, and action."""

    state: str
    cell: int
    read: str
    action: Action


@dataclass(frozen=True)
class Machine:
    """A deterministic machine; the tape is infinite in both directions, and the input starts at cell 0.

    The first state is the start state, the first symbol is the blank. The machine halts at a state and symbol
    without an action. `ValueError` if an action has an unknown state or symbol, or names are duplicated.
    """

    states: tuple[str, ...]
    symbols: tuple[str, ...]
    actions: Mapping[tuple[str, str], Action]

    def __post_init__(self) -> None:
        for what, names in (("states", self.states), ("symbols", self.symbols)):
            if not names or len(set(names)) < len(names):
                raise ValueError(
                    f"{what} {names}: need at least one name, without duplicates"
                )
        for (state, symbol), action in self.actions.items():
            if not {state, action.state} <= set(self.states):
                raise ValueError(
                    f"state {state!r} or {action.state!r} is not one of {self.states}"
                )
            if not {symbol, action.symbol} <= set(self.symbols):
                raise ValueError(
                    f"symbol {symbol!r} or {action.symbol!r} is not one of {self.symbols}"
                )
            if action.move not in (LEFT, STAY, RIGHT):
                raise ValueError(f"move {action.move}: must be -1, 0 or 1")

    @property
    def blank(self) -> str:
        return self.symbols[0]

    def check_input(self, tape: Sequence[str]) -> None:
        """Raise `ValueError` if the input has an unknown symbol."""
        for symbol in tape:
            if symbol not in self.symbols:
                raise ValueError(f"symbol {symbol!r} is not one of {self.symbols}")


class TapeRun(NamedTuple):
    """Run of a machine: its steps, the final state, and whether it halted."""

    steps: list[Step]
    state: str
    halted: bool


def simulate(machine: Machine, tape: Sequence[str], most_steps: int) -> TapeRun:
    """Run a machine on an input until it halts, or for `most_steps` steps."""
    machine.check_input(tape)
    cells = dict(enumerate(tape))
    state, cell = machine.states[0], 0
    steps: list[Step] = []
    while True:
        read = cells.get(cell, machine.blank)
        action = machine.actions.get((state, read))
        if action is None or len(steps) == most_steps:
            return TapeRun(steps, state, action is None)
        steps.append(Step(state, cell, read, action))
        cells[cell] = action.symbol
        state, cell = action.state, cell + action.move


def written(machine: Machine, tape: Sequence[str], steps: Sequence[Step]) -> str:
    """Return the tape after these steps, without leading and trailing blanks."""
    cells = dict(enumerate(tape)) | {step.cell: step.action.symbol for step in steps}
    used = [cell for cell, symbol in cells.items() if symbol != machine.blank]
    if not used:
        return ""
    return "".join(
        cells.get(cell, machine.blank) for cell in range(min(used), max(used) + 1)
    )


def increment() -> Machine:
    """Return a machine that adds 1 to a binary number (highest digit first); its final state is `done`."""
    actions = {
        ("right", "0"): Action("right", "0", RIGHT),
        ("right", "1"): Action("right", "1", RIGHT),
        ("right", "_"): Action("carry", "_", LEFT),
        ("carry", "1"): Action("carry", "0", LEFT),
        ("carry", "0"): Action("done", "1", STAY),
        ("carry", "_"): Action("done", "1", STAY),
    }
    return Machine(("right", "carry", "done"), ("_", "0", "1"), actions)


def palindromes() -> Machine:
    """Return a machine that tests whether a word of a and b is a palindrome; final state `yes` or `no`."""
    letters = "ab"
    actions = {
        ("begin", "_"): Action("yes", "_", STAY),
        ("back", "_"): Action("begin", "_", RIGHT),
    }
    for letter in letters:
        actions["begin", letter] = Action(f"right {letter}", "_", RIGHT)
        actions[f"right {letter}", "_"] = Action(f"last {letter}", "_", LEFT)
        actions[f"last {letter}", "_"] = Action("yes", "_", STAY)  # no letter is left
        actions["back", letter] = Action("back", letter, LEFT)
    for letter, other in product(letters, letters):
        actions[f"right {letter}", other] = Action(f"right {letter}", other, RIGHT)
        same = (
            Action("back", "_", LEFT) if letter == other else Action("no", other, STAY)
        )
        actions[f"last {letter}", other] = same
    states = (
        "begin",
        "back",
        *(f"{word} {letter}" for word in ("right", "last") for letter in letters),
    )
    return Machine((*states, "yes", "no"), ("_", *letters), actions)


def shown(run: TapeRun, most: int = 12) -> list[str]:
    """Return the first steps of a run, one per line, and its end."""
    lines = [
        f"{number:>4}  {step.state:<8} cell {step.cell:>3}  reads {step.read}  writes {step.action.symbol}"
        for number, step in enumerate(islice(run.steps, most), start=1)
    ]
    more = len(run.steps) - most
    if more > 0:
        lines.append(f"      … and {more} more")
    return [
        *lines,
        f"      {'halted' if run.halted else 'stopped'} in state {run.state}",
    ]


# Axes: N nodes, D width, S states, A symbols, P positions of the input.

Floats = npt.NDArray[np.float64]

SHARPNESS = 200.0  # β


def row_of(node: int) -> tuple[int, int]:
    """Return (j, k) of node j(j + 1)/2 + k with 1 ≤ k ≤ j + 1; node 1 is (0, 1)."""
    row = (isqrt(8 * node - 7) - 1) // 2
    return row, node - row * (row + 1) // 2


def neighbors(node: int) -> tuple[int, ...]:
    """Return the nodes a node attends to: itself, and, unless it performs a step, a preceding record."""
    record = row_of(node)[1]
    record = record * (record + 1) // 2
    return (node,) if record == node else (record, node)


def decoder_graph(nodes: int) -> npt.NDArray[np.bool_]:
    """Return the attention graph of the first nodes, (N, N); row and column i are node i + 1."""
    graph = np.zeros((nodes, nodes), dtype=bool)
    for node in range(1, nodes + 1):
        graph[node - 1, [other - 1 for other in neighbors(node)]] = True
    return graph


class TapeAttention(NamedTuple):
    """State of layer 3 at each node so far: queries, keys, values, and outputs of the attention."""

    queries: list[Floats]
    keys: list[Floats]
    values: list[Floats]
    attended: list[Floats]


class TapeDecoder:
    """The network for one machine and one input.

    A node's vector is state (S), cell (1), symbol (A). Its position determines whether it performs a step,
    and whether it is the first node after a step.
    """

    def __init__(self, machine: Machine, tape: Sequence[str]) -> None:
        machine.check_input(tape)
        self.machine = machine
        states, symbols = machine.states, machine.symbols
        self.units = [(state, symbol) for state in states for symbol in symbols]
        actions = [
            machine.actions.get(unit, Action(*unit, 0)) for unit in self.units
        ]  # no action: keep all
        self.of_state = _one_hot([unit[0] for unit in self.units], states)  # (S A, S)
        self.of_symbol = _one_hot([unit[1] for unit in self.units], symbols)  # (S A, A)
        self.to_state = _one_hot([action.state for action in actions], states)
        self.to_symbol = _one_hot([action.symbol for action in actions], symbols)
        self.to_move = np.array([action.move for action in actions], dtype=np.float64)
        # The encoder's output: a key and a value per token, with the blank token last.
        self.input_keys = np.stack(
            [*(_key(place) for place in range(len(tape))), _ANYWHERE]
        )
        self.input_values = _one_hot([*tape, machine.blank], symbols)

    def steps(self) -> Iterator[tuple[Step, TapeAttention]]:
        """Run node after node, without end; yield the steps at their nodes, and layer 3 up to that node.

        After the machine has halted, each step is one without effect.
        """
        machine, layer = self.machine, TapeAttention([], [], [], [])
        # Node 1 gets the start state at cell 0, and no symbol.
        vector = np.eye(1, len(machine.states) + 1 + len(machine.symbols))[0]
        for node in count(1):
            row, place = row_of(node)
            acts = place == row + 1
            read = self._read_input(vector, place == 1)
            vector, cell, symbol = self._act(read, acts)
            layer.queries.append(_query(cell))
            layer.keys.append(_key(cell) if acts else _ANYWHERE)
            layer.values.append(symbol)
            seen = [other - 1 for other in neighbors(node)]
            keys, values = (
                np.stack([kept[one] for one in seen])
                for kept in (layer.keys, layer.values)
            )
            layer.attended.append(_attend(layer.queries[-1], keys, values))
            vector = np.concatenate(
                [vector[: len(machine.states) + 1], layer.attended[-1]]
            )
            if acts:
                yield self._step(read, vector), layer

    def _parts(self, vector: Floats) -> tuple[Floats, float, Floats]:
        """Return state, cell and symbol of a node's vector."""
        states = len(self.machine.states)
        return vector[:states], float(vector[states]), vector[states + 1 :]

    def _read_input(self, vector: Floats, first: bool) -> Floats:
        """Layer 1: the first node after a step (and node 1) reads the input's symbol at its cell."""
        state, cell, symbol = self._parts(vector)
        found = _attend(_query(cell), self.input_keys, self.input_values)
        return np.concatenate(
            [state, [cell], _relu(symbol - first) + _relu(found + first - 1)]
        )

    def _act(self, vector: Floats, acts: bool) -> tuple[Floats, float, Floats]:
        """Layer 2: the transition table, at nodes of steps. Return vector, cell before, and symbol after."""
        state, cell, symbol = self._parts(vector)
        fired = _relu(
            self.of_state @ state + self.of_symbol @ symbol + acts - 2
        )  # (S A,)
        state = _relu(state - acts) + fired @ self.to_state
        symbol = _relu(symbol - acts) + fired @ self.to_symbol
        return (
            np.concatenate([state, [cell + fired @ self.to_move], symbol]),
            cell,
            symbol,
        )

    def _step(self, before: Floats, after: Floats) -> Step:
        """Return the step represented by the vectors before and after its node."""
        (state, cell, read), (new, place, wrote) = map(self._named, (before, after))
        return Step(state, cell, read, Action(new, wrote, place - cell))

    def _named(self, vector: Floats) -> tuple[str, int, str]:
        state, cell, symbol = self._parts(vector)
        return (
            self.machine.states[int(state.argmax())],
            round(cell),
            self.machine.symbols[int(symbol.argmax())],
        )


def run_on_decoder(machine: Machine, tape: Sequence[str], most_steps: int) -> TapeRun:
    """Run a machine like `simulate`, computed by the sparse decoder.

    T steps need T(T + 1)/2 nodes, and memory proportional to them.
    """
    steps: list[Step] = []
    for step, _ in TapeDecoder(machine, tape).steps():
        halted = (step.state, step.read) not in machine.actions
        if halted or len(steps) == most_steps:
            return TapeRun(steps, step.state, halted)
        steps.append(step)
    raise AssertionError  # unreachable: `steps` is infinite


def _one_hot(names: Sequence[str], among: Sequence[str]) -> Floats:
    return np.array([[float(name == one) for one in among] for name in names]).reshape(
        len(names), len(among)
    )


def _query(cell: float) -> Floats:
    return SHARPNESS * np.array([2 * cell, -1.0, -(cell**2), -1.0])


def _key(cell: float) -> Floats:
    """Return a key whose product with the query of cell c is −β (cell − c)²."""
    return np.array([cell, cell**2, 1.0, 0.0])


_ANYWHERE = np.array([0.0, 0.0, 0.0, 0.5])
"""The key with score −β/2 for every query: that of nodes themselves, and of the blank encoder token."""


def _attend(query: Floats, keys: Floats, values: Floats) -> Floats:
    scores = keys @ query
    weights = np.exp(scores - scores.max())
    found: Floats = weights @ values / weights.sum()
    return found


def _relu(values: Floats) -> Floats:
    return np.maximum(values, 0.0)
