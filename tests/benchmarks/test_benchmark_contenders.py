"""Contenders compute what they say: the same graph, the same weights, HuggingFace's own arithmetic."""

import importlib.util
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from bigbird_dna.attention import Pattern
from bigbird_dna.attention.dense import dense_attention
from bigbird_dna.benchmarks import contenders
from bigbird_dna.benchmarks.alone import Alone, measure_here
from bigbird_dna.benchmarks.attention import AttentionBenchmark, relative_difference
from bigbird_dna.benchmarks.encoder import EncoderBenchmark
from bigbird_dna.benchmarks.networks import OurModel, encoder_config, make_network
from bigbird_dna.benchmarks.runner import run
from bigbird_dna.benchmarks.settings import (
    ENCODER_PASSES,
    AttentionSettings,
    Case,
    EncoderSettings,
)

TINY: dict[str, Any] = {
    "lengths": (256,),
    "heads": 2,
    "block_size": 16,
    "repeats": 2,
    "memory": False,
}
HAS_PEER = importlib.util.find_spec("transformers") is not None
needs_peer = pytest.mark.skipif(not HAS_PEER, reason="transformers isn't installed")


def attention(*names: str, **changes: Any) -> AttentionBenchmark:
    passes = ("forward", "training")
    values = {**TINY, "width": 8, "passes": passes, "contenders": names, **changes}
    return AttentionBenchmark(AttentionSettings(**values))


def encoder(*names: str, **changes: Any) -> EncoderBenchmark:
    values = {
        **TINY,
        "layers": 2,
        "hidden": 16,
        "vocabulary": 40,
        "passes": ENCODER_PASSES,
        "contenders": names,
        **changes,
    }
    return EncoderBenchmark(EncoderSettings(**values))


def test_contenders_of_one_graph_agree_in_value_and_gradient() -> None:
    result = run(attention("dense", "blocked", "sdpa-mask", "sdpa"))
    rows = result["results"]
    assert [row["status"] for row in rows] == ["measured"] * 8
    for row in rows:
        if row["contender"] in ("blocked", "sdpa-mask"):
            assert 0 < row["difference"] < 1e-5
        else:
            assert row["difference"] is None
    dense, blocked, _, sdpa = rows[:4]
    assert dense["ratio"] == {"paired": 1.0, "medians": 1.0}
    assert blocked["operations"] == dense["operations"] < sdpa["operations"]
    assert len(blocked["seconds"]) == 2
    assert {(p["length"], p["pass"]) for p in result["matrix_products"]} == {
        (256, "forward"),
        (256, "training"),
    }


@needs_peer
@pytest.mark.filterwarnings("ignore")  # another project's
def test_huggingface_core_is_called_as_its_model_does() -> None:
    benchmark = attention("huggingface")
    case = Case("huggingface", 256, "forward")
    inputs = benchmark.inputs(case)
    pattern = Pattern(16, 2, 3, 3, huggingface=True)
    expected = dense_attention(inputs.q, inputs.k, inputs.v, pattern, (256,))
    (out,) = benchmark.prepare(case, inputs)()
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=0)
    training = case._replace(work="training")
    gradients = benchmark.prepare(training, benchmark.inputs(training))()
    assert [tuple(x.shape) for x in gradients] == [(1, 2, 256, 8)] * 3


@needs_peer
@pytest.mark.filterwarnings("ignore")
def test_encoders_have_the_same_weights() -> None:
    settings = encoder("huggingface").settings
    theirs: Any = make_network("huggingface", settings, 256, torch.device("cpu")).eval()
    config = encoder_config("bigbird", settings, 256)
    ours = OurModel(config.model_copy(update={"compatibility": "huggingface"})).eval()
    plain: Any = make_network("bigbird", settings, 256, torch.device("cpu"))
    ours.load_state_dict(plain.state_dict())
    ids = torch.arange(256)[None] % 35 + 5
    with torch.no_grad():
        difference = relative_difference((ours.logits(ids),), (theirs.logits(ids),))
        sparse = relative_difference((plain.eval().logits(ids),), (theirs.logits(ids),))
    assert difference < 1e-5 < sparse


def test_encoder_passes_and_their_precision() -> None:
    passes = ("inference", "inference-bfloat16", "inference-autocast", "training-autocast")
    result = run(encoder("bigbird", passes=passes, layers=1, repeats=1))
    for row in result["results"]:
        assert row["status"] == "measured", row["reason"]
        assert row["tokens_per_second"] == pytest.approx(256 / row["median"])
        if row["pass"] in ("inference-bfloat16", "inference-autocast"):
            assert 1e-4 < row["difference"] < 5e-2
        else:
            assert row["difference"] is None


@pytest.mark.parametrize(
    "contender", ["bigbird", "full", pytest.param("huggingface", marks=needs_peer)]
)
@pytest.mark.filterwarnings("ignore")
def test_a_training_step_is_one_on_the_masked_positions(contender: str) -> None:
    benchmark = encoder(contender)
    case = Case(contender, 256, "training")
    inputs = benchmark.inputs(case)
    assert (inputs.labels != -100).sum() == round(0.15 * 256)
    network: Any = inputs.network.eval()  # no dropout
    with torch.no_grad():
        expected = cross_entropy(network.logits(inputs.ids)[0], inputs.labels[0])
    before = [p.detach().clone() for p in network.parameters() if p.requires_grad]
    (loss,) = benchmark.prepare(case, inputs)()
    torch.testing.assert_close(loss, expected)
    after = [p for p in network.parameters() if p.requires_grad]
    unchanged = [p.shape for p, old in zip(after, before, strict=True) if torch.equal(p, old)]
    assert len(unchanged) <= 2  # HuggingFace's pooler has no part in it


def test_a_missing_peer_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders.importlib.util, "find_spec", lambda name: None)
    row = run(attention("blocked", "huggingface", passes=("forward",)))["results"][1]
    assert (row["status"], row["reason"]) == (
        "unavailable",
        "not installed; pip install 'bigbird-dna[hf]'",
    )


def test_a_failing_contender_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no luck\nat all")

    monkeypatch.setattr(contenders.FullSdpa, "prepare", fail)
    failed, measured = run(attention("sdpa", "blocked", passes=("forward",)))["results"]
    assert (failed["status"], failed["reason"]) == ("failed", "RuntimeError: no luck")
    assert measured["status"] == "measured"
    assert measured["ratio"] is None  # there is nothing to refer to


def test_what_would_take_too_long_is_left_out() -> None:
    result = run(attention("blocked", passes=("forward",), lengths=(256, 512), max_seconds=1e-7))
    assert [row["status"] for row in result["results"]] == ["skipped"] * 2
    assert "the limit is 1e-07 s" in result["results"][0]["reason"]
    assert result["matrix_products"] == []
    limited = attention("blocked", max_seconds=1e-7)
    assert measure_here(limited, Case("blocked", 512, "forward")).seconds is None


def test_what_would_not_fit_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigbird_dna.benchmarks.memory.available", lambda device: 1 << 20)
    rows = run(attention("blocked", "dense", passes=("forward",)))["results"]
    assert [row["status"] for row in rows] == ["measured", "skipped"]
    assert "GiB are free" in rows[1]["reason"]


def test_a_route_that_steps_aside_is_no_contender(monkeypatch: pytest.MonkeyPatch) -> None:
    from bigbird_dna.attention import native

    monkeypatch.setattr(native, "unavailable", lambda *_, **__: "no compiler")
    rows = run(attention("native", "auto", passes=("forward",), lengths=(1024,)))["results"]
    assert (rows[0]["status"], rows[0]["reason"]) == ("unavailable", "no compiler")
    assert (rows[1]["status"], rows[1]["route"]) == ("measured", "blocked")


def test_dead_processes_are_results(monkeypatch: pytest.MonkeyPatch) -> None:
    from bigbird_dna.benchmarks import alone

    class Killed:
        returncode, stdout, stderr = -9, "", ""

    monkeypatch.setattr(alone.subprocess, "run", lambda *_, **__: Killed)
    benchmark = attention("blocked", memory=True)
    outcome = alone.measure_alone(benchmark, Case("blocked", 256, "forward"))
    assert outcome == Alone(failed="its process was killed (signal 9): out of memory?")
