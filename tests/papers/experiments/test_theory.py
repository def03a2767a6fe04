"""How far layers reach, the command that shows it, and the farthest vector."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.attention import bigbird_attention
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.mechanism import attention_pattern
from bigbird_dna.papers.experiments.theory import receptive_field
from bigbird_dna.papers.experiments.turing_machines import (
    Action,
    Machine,
    increment,
    neighbors,
    palindromes,
    run_on_decoder,
    simulate,
    written,
)
from tests.golden.messages import fails
from tests.toys import small_encoder


def test_how_many_layers_connect_all_tokens() -> None:
    complete = {}
    for name in ("full", "bigbird", "window"):
        found = receptive_field(small_encoder(8, layers=4, attention=name), 96, 4)
        assert (np.diff([field.mean() for field in found]) >= 0).all(), name
        complete[name] = len(found) if found[-1].all() else None
    assert complete["full"] == 1
    assert complete["bigbird"] == 2  # by way of a global token
    assert complete["window"] is None  # 12 blocks, one further each layer
    with fails(ConfigError, "performer"):
        receptive_field(small_encoder(8, attention="performer"), 96, 1)


def test_reach_is_what_gradients_find() -> None:
    """Two layers with random blocks of their own: a token's vector depends on what is reached."""
    encoder = small_encoder(8, layers=2, heads=1, hidden=8, global_blocks=0)
    pattern = attention_pattern(encoder)
    x = torch.randn(1, 1, 64, 8, dtype=torch.float64, requires_grad=True)
    y = x
    for layer in range(2):
        y = y + bigbird_attention(y, y, y, pattern, layer=layer)
    two = receptive_field(encoder, 64, 2)[1]
    for token in range(0, 64, 9):
        (slope,) = torch.autograd.grad(y[0, 0, token].sum(), x, retain_graph=True)
        reached = slope[0, 0].abs().sum(-1).numpy() > 0
        assert reached.tolist() == two[token].tolist()


@pytest.mark.parametrize("attention", ["full", "bigbird"])
def test_no_token_of_a_causal_encoder_knows_of_later_ones(attention: str) -> None:
    encoder = small_encoder(
        8, layers=2, block_size=16, attention=attention, causal=True
    )
    found = receptive_field(encoder, 96, 2)
    assert len(found) == 2 and not any(field.all() for field in found)
    assert not any(np.triu(field, 1).any() for field in found)
    if attention == "full":
        assert found[0].sum() == 96 * 97 // 2


# The sparse decoder does what the machine does, by the graph of the theorem alone


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Any machine of up to four states and three symbols; some pairs of them halt."""
    states = tuple(f"q{number}" for number in range(draw(st.integers(1, 4))))
    symbols = tuple("_ab"[: draw(st.integers(1, 3))])
    action = st.builds(
        Action, st.sampled_from(states), st.sampled_from(symbols), st.integers(-1, 1)
    )
    found = {pair: draw(st.none() | action) for pair in product(states, symbols)}
    return Machine(
        states, symbols, {pair: one for pair, one in found.items() if one is not None}
    )


@settings(max_examples=30, deadline=None)
@given(machines(), st.data())
def test_every_machine_runs_as_it_does_directly(
    machine: Machine, data: st.DataObject
) -> None:
    tape = data.draw(st.lists(st.sampled_from(machine.symbols), max_size=6))
    assert run_on_decoder(machine, tape, 14) == simulate(machine, tape, 14)


WORDS = ["", *map("".join, product("ab", repeat=3)), "abba", "abab", "babab"]


@pytest.mark.parametrize(
    ("machine", "tape", "state", "result"),
    [
        *(
            (increment(), f"{number:b}", "done", f"{number + 1:b}")
            for number in (0, 1, 2, 5, 7, 12, 31)
        ),
        *(
            (palindromes(), word, "yes" if word == word[::-1] else "no", None)
            for word in WORDS
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_machines_do_what_they_are_for(
    machine: Machine, tape: str, state: str, result: str | None
) -> None:
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
    edges = {(i, j) for i in range(1, 67) for j in neighbors(i)}
    stated = {(1, 1)}
    for j, k in product(range(1, 12), range(1, 13)):
        node = j * (j + 1) // 2 + k
        if k <= j + 1 and node <= 66:
            stated |= {(node, k * (k + 1) // 2), (node, node)}
    assert edges == stated
    assert max(len(neighbors(node)) for node in range(1, 1000)) == 2


def test_without_an_edge_the_machine_goes_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "bigbird_dna.papers.experiments.turing_machines.neighbors", lambda node: (node,)
    )
    machine = palindromes()  # reads what it wrote before
    assert run_on_decoder(machine, "abba", 40) != simulate(machine, "abba", 40)
