"""The sparse decoder does what the machine does, by the graph of the theorem alone."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.papers.experiments.turing_machines import (
    Action,
    Machine,
    TapeDecoder,
    decoder_graph,
    increment,
    neighbours,
    palindromes,
    run_on_decoder,
    simulate,
    written,
)
from tests.golden.messages import fails


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Any machine of up to four states and three symbols; some pairs of them halt."""
    states = tuple(f"q{number}" for number in range(draw(st.integers(1, 4))))
    symbols = tuple("_ab"[: draw(st.integers(1, 3))])
    action = st.builds(Action, st.sampled_from(states), st.sampled_from(symbols), st.integers(-1, 1))
    found = {pair: draw(st.none() | action) for pair in product(states, symbols)}
    return Machine(states, symbols, {pair: one for pair, one in found.items() if one is not None})


@settings(max_examples=60, deadline=None)
@given(machines(), st.data())
def test_every_machine_runs_as_it_does_directly(machine: Machine, data: st.DataObject) -> None:
    tape = data.draw(st.lists(st.sampled_from(machine.symbols), max_size=6))
    assert run_on_decoder(machine, tape, 14) == simulate(machine, tape, 14)


WORDS = ["", *map("".join, product("ab", repeat=3)), "abba", "abab", "babab"]


@pytest.mark.parametrize(
    ("machine", "tape", "state", "result"),
    [
        *((increment(), f"{number:b}", "done", f"{number + 1:b}") for number in (0, 1, 2, 5, 7, 12, 31)),
        *((palindromes(), word, "yes" if word == word[::-1] else "no", None) for word in WORDS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_machines_do_what_they_are_for(machine: Machine, tape: str, state: str, result: str | None) -> None:
    run = run_on_decoder(machine, tape, 100)
    assert run == simulate(machine, tape, 100)
    assert (run.state, run.halted) == (state, True)
    assert result is None or written(machine, tape, run.steps) == result


def test_a_run_can_be_stopped() -> None:
    machine = Machine(("on",), ("_", "x"), {("on", "_"): Action("on", "x", 1)})
    run = run_on_decoder(machine, "", 5)
    assert (len(run.steps), run.halted) == (5, False)
    assert written(machine, "", run.steps) == "xxxxx"


def test_the_graph_is_the_theorem_s() -> None:
    graph = decoder_graph(66)
    edges = {(i + 1, j + 1) for i, j in zip(*np.nonzero(graph), strict=True)}
    stated = {(1, 1)}
    for j, k in product(range(1, 12), range(1, 13)):
        node = j * (j + 1) // 2 + k
        if k <= j + 1 and node <= 66:
            stated |= {(node, k * (k + 1) // 2), (node, node)}
    assert edges == stated
    assert max(len(neighbours(node)) for node in range(1, 1000)) == 2
    assert (graph == np.tril(graph)).all()


def test_its_attention_is_softmax_over_that_graph() -> None:
    """What nodes got one after the other is what one masked layer gives for all of them at once."""
    run = TapeDecoder(palindromes(), "abba").steps()
    step, layer = next(one for one in run if (one[0].state, one[0].read) not in palindromes().actions)
    queries, keys, values, attended = map(np.stack, layer)
    scores = np.where(decoder_graph(len(queries)), queries @ keys.T, -np.inf)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    np.testing.assert_allclose(weights @ values, attended, atol=1e-30)
    assert len(queries) > 100 and step.state == "yes"
    # Nodes that take a record and nodes that keep their own symbol are both there.
    own = weights.diagonal()
    assert {0.0, 1.0} == set(own.round(20))


def test_without_an_edge_the_machine_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigbird_dna.papers.experiments.turing_machines.neighbours", lambda node: (node,))
    machine = palindromes()  # reads what it wrote before
    assert run_on_decoder(machine, "abba", 40) != simulate(machine, "abba", 40)


def test_wrong_machines_are_refused() -> None:
    for states, action in ((("a",), ("z", "_", 0)), (("a",), ("a", "_", 2)), (("a", "a"), ("a", "_", 0))):
        with fails(ValueError):
            Machine(states, ("_",), {("a", "_"): Action(*action)})
    with fails(ValueError):
        run_on_decoder(increment(), "x", 3)
