"""What a benchmark counts, times and fits, and what its page and figure show of it."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import counts, timing
from benchmarks.batches import batches_page
from benchmarks.contenders import Call, Case
from benchmarks.encoder import EncoderBenchmark, logits, make_network
from benchmarks.figure import draw
from benchmarks.models import models_page
from benchmarks.options import EncoderOptions
from benchmarks.page import markdown, seconds
from benchmarks.suite import suite_page
from bigbird_dna.attention import Pattern
from bigbird_dna.model import kernels
from bigbird_dna.training.log import begin_memory_peak, memory_peak
from tests.conftest import REPOSITORY
from tests.golden.messages import message

CPU = torch.device("cpu")


@pytest.mark.parametrize("tokens", [1, 16, 40, 200, 333])
@pytest.mark.parametrize(
    "sizes", [(16, 2, 3, 3), (8, 1, 0, 2), (16, 0, 5, 0), (4, 2, 1, 1)]
)
def test_sparse_pairs_are_those_of_the_mask(
    tokens: int, sizes: tuple[int, int, int, int]
) -> None:
    pattern = Pattern(*sizes)
    assert (
        counts.sparse_pairs(pattern, tokens, 3, 1) == pattern.mask(tokens, 3, 1).sum()
    )


@pytest.mark.parametrize(("blocks", "random"), [(12, 3), (31, 3), (20, 1)])
def test_huggingface_pairs_count_repeated_blocks(blocks: int, random: int) -> None:
    pattern = Pattern(4, 2, 3, random, huggingface=True)
    expected = pattern.counts(4 * blocks, 2).sum()
    assert counts.huggingface_pairs(4 * blocks, 2, 4, random) == expected


@pytest.mark.parametrize("work", ["inference", "training"])
def test_operations_of_an_encoder_are_those_that_torch_counts(
    work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch counts only its usual operations.
    monkeypatch.setenv("BIGBIRD_DNA_NATIVE", "0")
    monkeypatch.setattr(kernels, "mkl_is_slow", lambda: False)
    sizes: dict[str, Any] = {
        "layers": 2,
        "hidden": 32,
        "heads": 4,
        "vocabulary": 50,
        "block_size": 16,
    }
    options = EncoderOptions(
        lengths=(96,), passes=(work,), contenders=("full",), masked=1.0, **sizes
    )
    case = Case("full", 96, work)
    network = make_network(case, options)
    # The fused kernel's operations aren't counted on a CPU, those of plain products are.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        scores = logits(network, torch.arange(96)[None] % 50)
        if case.trains:
            scores.sum().backward()
    assert counter.get_total_flops() == EncoderBenchmark(options).operations(case)


def test_contenders_take_turns() -> None:
    turns: list[str] = []

    def call(name: str) -> Call:
        def one() -> tuple[torch.Tensor, ...]:
            if turns[-1:] != [name]:
                turns.append(name)
            return ()

        return one

    times = timing.turns([call(name) for name in "ABC"], 4)
    assert turns == list("ABC" * 4)
    assert [len(seconds) for seconds in times] == [4, 4, 4]


def test_a_turns_time_is_that_of_a_call() -> None:
    def nap() -> tuple[torch.Tensor, ...]:
        time.sleep(0.02)
        return ()

    (seconds,) = timing.turns([nap], 2)
    assert min(seconds) >= 0.02
    assert min(seconds) < 0.2


def test_description_and_ratios() -> None:
    described = timing.describe([4.0, 1.0, 2.0, 3.0, 5.0])
    assert (described["median"], described["minimum"]) == (3.0, 1.0)
    assert described["quartiles"] == [2.0, 4.0]
    # Turn by turn twice, four times and ten times as long: one slow turn moves both alike.
    ratio = timing.ratios([2.0, 40.0, 10.0], [1.0, 10.0, 1.0])
    assert ratio == {"paired": 4.0, "medians": 10.0}


def test_growth_is_fitted_from_the_start_on() -> None:
    fit = timing.growth({1024: 99.0, 4096: 1.0, 8192: 2.2, 16384: 4.84})
    assert fit is not None
    assert fit["base"] == 4096
    assert fit["exponent"] == pytest.approx(1 + torch.tensor(1.1).log2().item())
    assert fit["times_linear"] == pytest.approx({4096: 1.0, 8192: 1.1, 16384: 1.21})
    assert timing.growth({1024: 1.0, 4096: 2.0}) is None


def test_peak_memory_sees_what_is_gone_again() -> None:
    before = begin_memory_peak(CPU)
    if before is None:
        pytest.skip("the system doesn't tell")
    block = torch.ones(64 << 20, dtype=torch.uint8)
    del block
    highest = memory_peak(CPU)
    assert highest is not None
    assert 60 << 20 < highest - before < 100 << 20
    assert begin_memory_peak(CPU) < before + (20 << 20)  # type: ignore[operator]


FILES = sorted((REPOSITORY / "docs" / "benchmarks").glob("*.json"))
MODELS = [path for path in FILES if "models" in path.stem]
BATCHES = [path for path in FILES if path.stem.endswith("batches")]
STRIDES = [path for path in FILES if path.stem.endswith("scan-stride")]
SUITES = [path for path in FILES if "-all-" in path.stem]
PROFILES = [path for path in FILES if "-training-time-" in path.stem]
MEASURED = [
    path for path in FILES if path not in MODELS + BATCHES + STRIDES + SUITES + PROFILES
]


@pytest.fixture
def measured() -> Any:
    """A file made by hand: two that were measured at 4,096 tokens, one at 8,192, and what was left out."""
    return json.loads(Path(__file__).with_name("measured.json").read_text())


def test_the_page_has_what_was_measured_and_what_was_not(
    measured: dict[str, Any],
) -> None:
    lines = [line for line in markdown(measured).splitlines() if line]
    for line in lines:
        message(line)
    assert len({len(line) for line in lines if line.startswith("|")}) == 1  # aligned


def test_times_have_units_and_three_digits() -> None:
    values = [seconds(value) for value in (123.4, 1.0, 0.0311, 4.2e-5)]
    assert values == ["123 s", "1 s", "31.1 ms", "42 µs"]


def test_the_figure_shows_lines_for_lengths_and_bars_for_one(
    measured: dict[str, Any], tmp_path: Path
) -> None:
    draw(measured, tmp_path / "lines.svg")
    first = (tmp_path / "lines.svg").read_bytes()
    draw(measured, tmp_path / "lines.svg")
    assert (
        tmp_path / "lines.svg"
    ).read_bytes() == first  # the same numbers, the same file
    one = measured | {"results": measured["results"][:2]}
    draw(one, tmp_path / "bars.svg")
    assert b"533 ms" not in first and b"533 ms" in (tmp_path / "bars.svg").read_bytes()
    nothing = measured | {"results": measured["results"][3:], "matrix_products": []}
    draw(nothing, tmp_path / "nothing.svg")
    assert "too slow" in markdown(nothing)


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.stem)
def test_what_the_documentation_shows_can_be_drawn_again(
    path: Path, tmp_path: Path
) -> None:
    benchmark = json.loads(path.read_text())
    text = markdown(benchmark)
    for row in benchmark["results"]:
        if row["status"] == "measured":
            assert f" {seconds(row['median'])} |" in text
        else:
            assert row["reason"] in text
    draw(benchmark, tmp_path / "benchmark.svg")
    assert (tmp_path / "benchmark.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    "path", [*MODELS, *BATCHES, *SUITES], ids=lambda path: path.stem
)
def test_the_page_of_a_stored_benchmark(path: Path) -> None:
    page_of = (
        batches_page
        if path in BATCHES
        else suite_page
        if path in SUITES
        else models_page
    )
    page = page_of(json.loads(path.read_text()))
    assert len(re.findall(r"^\|.*\d.*\|$", page, re.MULTILINE)) > 2
