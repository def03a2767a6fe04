"""`bigbird-dna benchmark all`: every part on one page, its counts, and what fails or is not installed."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import counts, suite
from benchmarks.attention import AttentionBenchmark, GatedConvolution
from benchmarks.contenders import Case
from benchmarks.encoder import EncoderBenchmark
from benchmarks.options import AttentionOptions, EncoderOptions, chosen
from benchmarks.page import label
from benchmarks.roofline import draw_roofline, measure_roofs
from benchmarks.suite import PARTS, Part, Plan, run_all, suite_page
from benchmarks.tasks import LS_GKM, Sizes
from bigbird_dna.cli.app import app
from bigbird_dna.errors import UsageError
from tests.golden.messages import fails
from tests.toys import written

SMALL: dict[str, Any] = {"lengths": "256", "heads": 2, "pattern": (16, 2, 3, 3)}
ATTENTION = SMALL | {
    "width": 8,
    "passes": "forward,training",
    "contenders": "blocked,sdpa,convolution",
}
ENCODER = SMALL | {
    "layers": 1,
    "hidden": 16,
    "vocabulary": 40,
    "contenders": "bigbird,full",
}
SIZES = Sizes(
    400, 1, 16, 64, single=1, triple=1, rows=300, tracks=3, sequences=4, length=30
)
PLAN = Plan(1, 1, ATTENTION, ENCODER | {"passes": "inference"}, "1x16", SIZES)


@pytest.fixture(autouse=True)
def quick_roofs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        suite,
        "measure_roofs",
        lambda repeats: measure_roofs(1, 1 << 16, ((32, 32, 32),)),
    )


@pytest.mark.parametrize("tokens", [1, 2, 37])
def test_the_convolution_is_a_gated_causal_sum(tokens: int) -> None:
    heads, width = 2, 3
    module = GatedConvolution(heads * width, seed=1)
    q, k, v = torch.randn(
        3, 2, heads, tokens, width, generator=torch.Generator().manual_seed(0)
    )
    filters = module.filters(tokens)  # (D, L)
    signal = (k * v).transpose(2, 3).reshape(2, -1, tokens)
    summed = module.bias[:, None] * signal
    for place in range(tokens):
        for before in range(place + 1):
            summed = summed.index_add(
                2,
                torch.tensor([place]),
                filters[:, place - before, None] * signal[..., before, None],
            )
    expected = q * summed.view(2, heads, width, tokens).transpose(2, 3)
    torch.testing.assert_close(module(q, k, v), expected, atol=1e-5, rtol=1e-4)


def test_the_convolution_is_a_contender_with_gradients() -> None:
    benchmark = AttentionBenchmark(AttentionOptions.of(ATTENTION))
    case = Case("convolution", 256, "training")
    inputs = benchmark.inputs(case)
    gradients = benchmark.prepare(case, inputs)()
    assert [tuple(x.shape) for x in gradients] == [(1, 2, 256, 8)] * 3
    assert all(x.abs().sum() > 0 for x in gradients)
    forward = benchmark.operations(case._replace(work="forward"))
    assert 0 < forward < benchmark.operations(case)
    assert benchmark.bytes(case._replace(work="forward")) == sum(
        x.nbytes for x in inputs
    )
    # Transforms of N log N operations: twice the length takes a little more than twice as many.
    assert (
        2
        < counts.convolution_operations(8192, 4)
        / counts.convolution_operations(4096, 4)
        < 2.2
    )


def test_operations_and_bytes_of_an_encoder() -> None:
    options = EncoderOptions.of(
        ENCODER | {"passes": "inference,training", "contenders": "full"}
    )
    benchmark, case = EncoderBenchmark(options), Case("full", 256, "inference")
    head = 2 * 256 * (16**2 + 16 * 40)
    assert (
        benchmark.operations(case) == counts.encoder_operations(1, 16, 256, 256) + head
    )
    network = benchmark.inputs(case)[0]
    matrices = sum(
        x.numel()
        for name, x in network.named_parameters()
        if x.dim() == 2 and "position" not in name
    )
    least = counts.encoder_bytes(0, 1, 16, 256, False)
    assert benchmark.bytes(case) - least == pytest.approx(
        4 * matrices, rel=0.02
    )  # segments aside
    assert benchmark.bytes(case._replace(work="training")) > 3 * benchmark.bytes(case)


@pytest.mark.slow
def test_all_parts_are_on_one_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in LS_GKM:  # of its files, those that are read
        script = '#!/bin/sh\nfor last; do :; done\ntouch model.model.txt "$last"\n'
        written(tmp_path / name, script).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    results = [json.loads(json.dumps(result)) for result in run_all(PLAN)]
    assert [list(result["seconds"]) for result in results] == [
        list(PARTS)[: number + 1] for number in range(len(PARTS))
    ]
    rows = results[-1]["results"]
    assert {row["part"] for row in rows} == set(PARTS)
    assert {row["status"] for row in rows} == {"measured"}, [
        row["reason"] for row in rows
    ]
    page = suite_page(results[-1])
    for name in PARTS:
        own = [row for row in rows if row["part"] == name]
        assert own[0]["ratio"]["paired"] == 1.0
        assert len({row["contender"] for row in own}) > 1
        assert any((row.get("product_rate") or 0) > 0 for row in own)
        assert f"## {PARTS[name].heading}" in page
        assert all(label(row["contender"]) in page for row in own)
    variants = [row for row in rows if row["part"] == "variants"]
    # One allele alone, and three that share the reference: 8 windows of it for 4 alleles, or each its own.
    assert variants[1]["operations"] / variants[0]["operations"] == pytest.approx(
        4 * 2 / (2 + 4), rel=0.1
    )
    assert variants[0]["per_second"] == pytest.approx(4 / variants[0]["median"])
    draw_roofline(results[-1], tmp_path / "roofline.svg")
    first = (tmp_path / "roofline.svg").read_bytes()
    draw_roofline(results[-1], tmp_path / "roofline.svg")
    assert (tmp_path / "roofline.svg").read_bytes() == first


def test_a_part_that_fails_is_a_row_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(plan: Plan) -> list[dict[str, Any]]:
        raise ImportError("no luck\nat all")

    monkeypatch.setitem(PARTS, "auc", Part("Areas", fail, "A note."))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    *_, result = run_all(PLAN, chosen("--only", "lsgkm, auc", PARTS))
    failed, missing = result["results"]
    assert (failed["part"], failed["status"], failed["reason"]) == (
        "auc",
        "failed",
        "ImportError: no luck",
    )
    assert (missing["part"], missing["status"]) == ("lsgkm", "unavailable")
    page = suite_page(result)
    assert failed["reason"] in page and missing["reason"] in page
    draw_roofline(result, tmp_path / "roofline.svg")
    assert (tmp_path / "roofline.svg").read_text().startswith("<?xml")


def test_a_difference_between_contenders_is_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sklearn.metrics.roc_auc_score", lambda labels, scores: 0.25)
    *_, result = run_all(PLAN, ["auc"])
    assert [row["status"] for row in result["results"]] == ["failed"]


def test_the_command_writes_page_numbers_and_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    words = [
        "benchmark",
        "all",
        "--only",
        "lsgkm",
        "--repeats",
        "1",
        "--threads",
        "1",
        "-o",
    ]
    outcome = CliRunner().invoke(app, [*words, str(tmp_path / "out")])
    assert outcome.exit_code == 0, outcome.output
    assert (tmp_path / "out" / "benchmark.md").read_text() == outcome.stdout
    assert json.loads((tmp_path / "out" / "benchmark.json").read_text())["settings"][
        "parts"
    ] == ["lsgkm"]
    assert (tmp_path / "out" / "roofline.svg").is_file()


def test_a_part_that_is_not_there_is_named(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(
        app, ["benchmark", "all", "--only", "auc,speed", "-o", str(tmp_path / "out")]
    )
    with fails(UsageError):
        raise outcome.exception or AssertionError
    assert not (tmp_path / "out").exists()
