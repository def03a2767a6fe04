"""Turing machines with one tape, and a sparse decoder that runs them (BigBird, App. B; docs/theory.md).

A machine's direct simulation is what the decoder's run is compared with. Nodes are numbered from 1; each
gets the output of the one before it as its input. Node t(t + 1)/2 attends to itself alone and does step t:
it knows state, cell and symbol, and leaves a record of the cell and of what was written there. Of the t
nodes after it each looks at the record of one of the steps 1 … t: if that is of the next cell, its symbol
replaces what the node has from the one before it, so that the latest remains. Three layers, with weights
that are set:

1. attention to the encoder, whose token p is the symbol at place p of the input: score −β (p − c)² for the
   cell c, and −β/2 for one more token, a blank. The first node after a step takes what it finds.
2. the machine's table, a feed-forward network with one ReLU for each state and symbol, at nodes of steps.
3. sparse self-attention, softmax over node and record: score −β (c' − c)² of a record's cell c', −β/2 of the
   node itself. Scores differ by β/2 at least, so that softmax is a choice up to exp(−β/2) < 1e-40.
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
    """What a machine does: the state that it goes to, the symbol that it writes, and where its head goes."""

    state: str
    symbol: str
    move: int


class Step(NamedTuple):
    """One step: the state and the cell that it began with, the symbol read there, and what was done."""

    state: str
    cell: int
    read: str
    action: Action


@dataclass(frozen=True)
class Machine:
    """A deterministic machine; its tape is infinite to both sides, and cell 0 has the input's first symbol.

    The first state is the starting one, the first symbol the blank one; where a state and symbol have no
    action the machine has halted. `ValueError` where an action isn't of these, or a name stands twice.
    """

    states: tuple[str, ...]
    symbols: tuple[str, ...]
    actions: Mapping[tuple[str, str], Action]

    def __post_init__(self) -> None:
        for what, names in (("states", self.states), ("symbols", self.symbols)):
            if not names or len(set(names)) < len(names):
                raise ValueError(f"{what} {names}: there must be one at least, and none twice")
        for (state, symbol), action in self.actions.items():
            if not {state, action.state} <= set(self.states):
                raise ValueError(f"state {state!r} or {action.state!r} is not one of {self.states}")
            if not {symbol, action.symbol} <= set(self.symbols):
                raise ValueError(f"symbol {symbol!r} or {action.symbol!r} is not one of {self.symbols}")
            if action.move not in (LEFT, STAY, RIGHT):
                raise ValueError(f"move {action.move} is not -1, 0 or 1")

    @property
    def blank(self) -> str:
        return self.symbols[0]

    def check_input(self, tape: Sequence[str]) -> None:
        """`ValueError` where a symbol of the input isn't the machine's."""
        for symbol in tape:
            if symbol not in self.symbols:
                raise ValueError(f"symbol {symbol!r} is not one of {self.symbols}")


class TapeRun(NamedTuple):
    """What a machine did: its steps, the state that it ended in, and whether it halted there."""

    steps: list[Step]
    state: str
    halted: bool


def simulate(machine: Machine, tape: Sequence[str], most_steps: int) -> TapeRun:
    """Run a machine on an input, until it halts or for `most_steps` steps."""
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
    """The tape after these steps, without blanks at either end."""
    cells = dict(enumerate(tape)) | {step.cell: step.action.symbol for step in steps}
    used = [cell for cell, symbol in cells.items() if symbol != machine.blank]
    if not used:
        return ""
    return "".join(cells.get(cell, machine.blank) for cell in range(min(used), max(used) + 1))


def increment() -> Machine:
    """Adds 1 to a binary number, its highest digit first; ends in state `done`."""
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
    """Says whether a word of a and b reads the same from both ends; ends in state `yes` or `no`."""
    letters = "ab"
    actions = {("begin", "_"): Action("yes", "_", STAY), ("back", "_"): Action("begin", "_", RIGHT)}
    for letter in letters:
        actions["begin", letter] = Action(f"right {letter}", "_", RIGHT)
        actions[f"right {letter}", "_"] = Action(f"last {letter}", "_", LEFT)
        actions[f"last {letter}", "_"] = Action("yes", "_", STAY)  # nothing is left
        actions["back", letter] = Action("back", letter, LEFT)
    for letter, other in product(letters, letters):
        actions[f"right {letter}", other] = Action(f"right {letter}", other, RIGHT)
        same = Action("back", "_", LEFT) if letter == other else Action("no", other, STAY)
        actions[f"last {letter}", other] = same
    states = ("begin", "back", *(f"{word} {letter}" for word in ("right", "last") for letter in letters))
    return Machine((*states, "yes", "no"), ("_", *letters), actions)


def shown(run: TapeRun, most: int = 12) -> list[str]:
    """A run's first steps, a line each, and how it ended."""
    lines = [
        f"{number:>4}  {step.state:<8} cell {step.cell:>3}  reads {step.read}  writes {step.action.symbol}"
        for number, step in enumerate(islice(run.steps, most), start=1)
    ]
    more = len(run.steps) - most
    if more > 0:
        lines.append(f"      … and {more} more")
    return [*lines, f"      {'halted' if run.halted else 'stopped'} in state {run.state}"]


# Axes: N nodes, D width, S states, A symbols, P places of the input.

Floats = npt.NDArray[np.float64]

SHARPNESS = 200.0  # β


def row_of(node: int) -> tuple[int, int]:
    """(j, k) of node j(j + 1)/2 + k with 1 ≤ k ≤ j + 1; node 1 is (0, 1)."""
    row = (isqrt(8 * node - 7) - 1) // 2
    return row, node - row * (row + 1) // 2


def neighbours(node: int) -> tuple[int, ...]:
    """What a node attends to: itself, and a node before it unless it is one of a step."""
    record = row_of(node)[1]
    record = record * (record + 1) // 2
    return (node,) if record == node else (record, node)


def decoder_graph(nodes: int) -> npt.NDArray[np.bool_]:
    """Who attends to whom among the first nodes, (N, N); row and column i are of node i + 1."""
    graph = np.zeros((nodes, nodes), dtype=bool)
    for node in range(1, nodes + 1):
        graph[node - 1, [other - 1 for other in neighbours(node)]] = True
    return graph


class TapeAttention(NamedTuple):
    """What layer 3 had at each node so far: queries, keys and values, and what attention made of them."""

    queries: list[Floats]
    keys: list[Floats]
    values: list[Floats]
    attended: list[Floats]


class TapeDecoder:
    """The network for one machine and one input.

    A node's vector is state (S), cell (1), symbol (A); its position says whether it is a step's, and whether
    it is the first one after a step.
    """

    def __init__(self, machine: Machine, tape: Sequence[str]) -> None:
        machine.check_input(tape)
        self.machine = machine
        states, symbols = machine.states, machine.symbols
        self.units = [(state, symbol) for state in states for symbol in symbols]
        actions = [machine.actions.get(unit, Action(*unit, 0)) for unit in self.units]  # halted: stays
        self.of_state = _one_hot([unit[0] for unit in self.units], states)  # (S A, S)
        self.of_symbol = _one_hot([unit[1] for unit in self.units], symbols)  # (S A, A)
        self.to_state = _one_hot([action.state for action in actions], states)
        self.to_symbol = _one_hot([action.symbol for action in actions], symbols)
        self.to_move = np.array([action.move for action in actions], dtype=np.float64)
        # The encoder's output: a key and a value for each token, the blank one last.
        self.input_keys = np.stack([*(_key(place) for place in range(len(tape))), _ANYWHERE])
        self.input_values = _one_hot([*tape, machine.blank], symbols)

    def steps(self) -> Iterator[tuple[Step, TapeAttention]]:
        """Run node after node, without end: the steps that nodes stand for, and layer 3 up to there.

        When the machine has halted, each step is one that does nothing.
        """
        machine, layer = self.machine, TapeAttention([], [], [], [])
        # Node 1 gets the starting state at cell 0, and no symbol.
        vector = np.eye(1, len(machine.states) + 1 + len(machine.symbols))[0]
        for node in count(1):
            row, place = row_of(node)
            acts = place == row + 1
            read = self._read_input(vector, place == 1)
            vector, cell, symbol = self._act(read, acts)
            layer.queries.append(_query(cell))
            layer.keys.append(_key(cell) if acts else _ANYWHERE)
            layer.values.append(symbol)
            seen = [other - 1 for other in neighbours(node)]
            keys, values = (np.stack([kept[one] for one in seen]) for kept in (layer.keys, layer.values))
            layer.attended.append(_attend(layer.queries[-1], keys, values))
            vector = np.concatenate([vector[: len(machine.states) + 1], layer.attended[-1]])
            if acts:
                yield self._step(read, vector), layer

    def _parts(self, vector: Floats) -> tuple[Floats, float, Floats]:
        """State, cell and symbol of a node's vector."""
        states = len(self.machine.states)
        return vector[:states], float(vector[states]), vector[states + 1 :]

    def _read_input(self, vector: Floats, first: bool) -> Floats:
        """Layer 1: the first node after a step (and node 1) takes the input's symbol at its cell."""
        state, cell, symbol = self._parts(vector)
        found = _attend(_query(cell), self.input_keys, self.input_values)
        return np.concatenate([state, [cell], _relu(symbol - first) + _relu(found + first - 1)])

    def _act(self, vector: Floats, acts: bool) -> tuple[Floats, float, Floats]:
        """Layer 2: at a step's node the machine's table. Gives vector, cell before, and symbol after it."""
        state, cell, symbol = self._parts(vector)
        fired = _relu(self.of_state @ state + self.of_symbol @ symbol + acts - 2)  # (S A,)
        state = _relu(state - acts) + fired @ self.to_state
        symbol = _relu(symbol - acts) + fired @ self.to_symbol
        return np.concatenate([state, [cell + fired @ self.to_move], symbol]), cell, symbol

    def _step(self, before: Floats, after: Floats) -> Step:
        """What vectors before and after a step's node stand for."""
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
    """What `machines.simulate` does, computed by the sparse decoder.

    T steps take T(T + 1)/2 nodes, and so do the numbers that they keep.
    """
    steps: list[Step] = []
    for step, _ in TapeDecoder(machine, tape).steps():
        halted = (step.state, step.read) not in machine.actions
        if halted or len(steps) == most_steps:
            return TapeRun(steps, step.state, halted)
        steps.append(step)
    raise AssertionError  # nodes don't end


def _one_hot(names: Sequence[str], among: Sequence[str]) -> Floats:
    return np.array([[float(name == one) for one in among] for name in names]).reshape(len(names), len(among))


def _query(cell: float) -> Floats:
    return SHARPNESS * np.array([2 * cell, -1.0, -(cell**2), -1.0])


def _key(cell: float) -> Floats:
    """Its product with the query of cell c is −β (cell − c)²."""
    return np.array([cell, cell**2, 1.0, 0.0])


_ANYWHERE = np.array([0.0, 0.0, 0.0, 0.5])
"""The key that gives −β/2 whatever the query's cell: a node's own, and that of the blank beside the input."""


def _attend(query: Floats, keys: Floats, values: Floats) -> Floats:
    scores = keys @ query
    weights = np.exp(scores - scores.max())
    found: Floats = weights @ values / weights.sum()
    return found


def _relu(values: Floats) -> Floats:
    return np.maximum(values, 0.0)
