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
from bigbird_dna.papers.experiments.theory import (
    INCREMENT,
    Machine,
    receptive_field,
    run_on_decoder,
    simulate,
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
    states = [f"q{number}" for number in range(draw(st.integers(1, 4)))]
    symbols = "_ab"[: draw(st.integers(1, 3))]
    action = st.tuples(
        st.sampled_from(states), st.sampled_from(symbols), st.integers(-1, 1)
    )
    pairs = list(product(states, symbols))
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    return {pair: draw(action) for pair in chosen}


@settings(max_examples=30, deadline=None)
@given(machines(), st.text("_ab", max_size=6))
def test_every_machine_runs_as_it_does_directly(machine: Machine, tape: str) -> None:
    assert run_on_decoder(machine, tape, 14) == simulate(machine, tape, 14)


@pytest.mark.parametrize("number", [0, 1, 2, 5, 7, 12, 31])
def test_the_increment(number: int) -> None:
    tape = f"{number:b}"
    steps, state = result = run_on_decoder(INCREMENT, tape, 100)
    assert result == simulate(INCREMENT, tape, 100) and state == "done"
    cells = dict(enumerate(tape)) | {step.cell: step.written for step in steps}
    digits = "".join(cells[cell] for cell in sorted(cells)).strip("_")
    assert digits == f"{number + 1:b}"


def test_a_run_can_be_stopped() -> None:
    machine: Machine = {("on", "_"): ("on", "x", 1)}
    steps, _ = run_on_decoder(machine, "", 5)
    assert [step.written for step in steps] == ["x"] * 5


def test_without_attention_to_records_a_machine_goes_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "bigbird_dna.papers.experiments.theory._attend",
        lambda cell, keys, values: values[-1],
    )
    assert run_on_decoder(INCREMENT, "1011", 40) != simulate(INCREMENT, "1011", 40)
