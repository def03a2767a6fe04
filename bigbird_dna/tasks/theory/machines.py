"""Turing machines with one tape, and their direct simulation: what a decoder's run is compared with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import NamedTuple

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

    Parameters
    ----------
    states : all, the starting one first.
    symbols : all, the blank one first.
    actions : by state and symbol; where there is none the machine has halted.

    Raises
    ------
    ValueError : an action is of, or leads to, a state, symbol or move that there isn't; a name stands twice.
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
        """The symbol of cells that nothing was written to."""
        return self.symbols[0]

    def check_input(self, tape: Sequence[str]) -> None:
        """`ValueError` where a symbol of the input isn't the machine's."""
        for symbol in tape:
            if symbol not in self.symbols:
                raise ValueError(f"symbol {symbol!r} is not one of {self.symbols}")


class Run(NamedTuple):
    """What a machine did: its steps, the state that it ended in, and whether it halted there."""

    steps: list[Step]
    state: str
    halted: bool


def simulate(machine: Machine, tape: Sequence[str], most_steps: int) -> Run:
    """Run a machine on an input, until it halts or for `most_steps` steps."""
    machine.check_input(tape)
    cells = dict(enumerate(tape))
    state, cell = machine.states[0], 0
    steps: list[Step] = []
    while True:
        read = cells.get(cell, machine.blank)
        action = machine.actions.get((state, read))
        if action is None or len(steps) == most_steps:
            return Run(steps, state, action is None)
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


def shown(run: Run, most: int = 12) -> list[str]:
    """A run's first steps, a line each, and how it ended."""
    lines = [
        f"{number:>4}  {step.state:<8} cell {step.cell:>3}  reads {step.read}  writes {step.action.symbol}"
        for number, step in enumerate(islice(run.steps, most), start=1)
    ]
    more = len(run.steps) - most
    if more > 0:
        lines.append(f"      … and {more} more")
    return [*lines, f"      {'halted' if run.halted else 'stopped'} in state {run.state}"]
