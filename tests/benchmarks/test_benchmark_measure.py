"""What a benchmark counts, times and fits, against answers found by hand or by another counter."""

import sys

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bigbird_dna.attention import Pattern
from bigbird_dna.benchmarks import counts, measure, memory
from bigbird_dna.benchmarks.networks import OurModel, encoder_config
from bigbird_dna.benchmarks.settings import EncoderSettings

CPU = torch.device("cpu")


@pytest.mark.parametrize("tokens", [1, 16, 40, 200, 333])
@pytest.mark.parametrize("sizes", [(16, 2, 3, 3), (8, 1, 0, 2), (16, 0, 5, 0), (4, 2, 1, 1)])
def test_sparse_pairs_are_those_of_the_mask(tokens: int, sizes: tuple[int, int, int, int]) -> None:
    pattern = Pattern(*sizes)
    assert counts.sparse_pairs(pattern, tokens, 3, 1) == pattern.mask(tokens, 3, 1).sum()


@pytest.mark.parametrize(("blocks", "random"), [(12, 3), (31, 3), (20, 1)])
def test_huggingface_pairs_count_repeated_blocks(blocks: int, random: int) -> None:
    pattern = Pattern(4, 2, 3, random, huggingface=True)
    expected = pattern.counts(4 * blocks, 2).sum()
    assert counts.huggingface_pairs(4 * blocks, 2, 4, random) == expected


@pytest.mark.parametrize("trains", [False, True])
def test_operations_of_an_encoder_are_those_that_torch_counts(trains: bool) -> None:
    settings = EncoderSettings(
        contenders=("full",), layers=2, hidden=32, heads=4, vocabulary=50, block_size=16
    )
    tokens = 96
    model = OurModel(encoder_config("full", settings, tokens))
    ids = torch.arange(tokens)[None] % 50
    # The fused kernel's operations aren't counted on a CPU, those of plain products are.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        logits = model.logits(ids)
        if trains:
            logits.sum().backward()
    ours = counts.encoder_operations(
        tokens=tokens,
        predicted=tokens,
        layers=2,
        hidden=32,
        intermediate=128,
        vocabulary=50,
        pairs=counts.full_pairs(tokens, 4) * 8,
        trains=trains,
    )
    assert counter.get_total_flops() == ours


def test_contenders_take_turns() -> None:
    turns: list[str] = []

    def call(name: str) -> measure.Call:
        def one() -> measure.Outputs:
            if turns[-1:] != [name]:
                turns.append(name)
            return ()

        return one

    times = measure.interleave({name: call(name) for name in "ABC"}, 4, CPU)
    assert turns == list("ABC" * 5)  # once to see how long they take, then four turns
    assert {name: len(seconds) for name, seconds in times.items()} == dict.fromkeys("ABC", 4)


def test_description_and_ratios() -> None:
    described = measure.describe([4.0, 1.0, 2.0, 3.0, 5.0])
    assert (described["median"], described["minimum"]) == (3.0, 1.0)
    assert described["quartiles"] == [2.0, 4.0]
    # Turn by turn twice, four times and ten times as long: one slow turn moves both alike.
    ratio = measure.ratios([2.0, 40.0, 10.0], [1.0, 10.0, 1.0])
    assert ratio == {"paired": 4.0, "medians": 10.0}


def test_growth_is_fitted_from_the_start_on() -> None:
    fit = measure.growth({1024: 99.0, 4096: 1.0, 8192: 2.2, 16384: 4.84})
    assert fit is not None
    assert fit.base == 4096
    assert fit.exponent == pytest.approx(1 + torch.tensor(1.1).log2().item())
    assert fit.times_linear == pytest.approx({4096: 1.0, 8192: 1.1, 16384: 1.21})
    assert measure.growth({1024: 1.0, 4096: 2.0}) is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_memory_sees_what_is_gone_again() -> None:
    before = memory.in_use(CPU)
    if before is None or not memory.reset_peak(CPU):
        pytest.skip("the system doesn't tell")
    block = torch.ones(64 << 20, dtype=torch.uint8)
    del block
    highest = memory.peak(CPU)
    assert highest is not None
    assert 60 << 20 < highest - before < 100 << 20
    assert memory.in_use(CPU) < before + (20 << 20)  # type: ignore[operator]
