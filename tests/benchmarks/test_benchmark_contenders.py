"""Contenders compute what they say: the same graph, the same weights, HuggingFace's own arithmetic."""

import importlib.util
import os
import signal
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from benchmarks import alone, contenders
from benchmarks.alone import Alone, measure_alone
from benchmarks.attention import AttentionBenchmark
from benchmarks.contenders import Case, LeftOut, relative_difference
from benchmarks.encoder import EncoderBenchmark, logits, make_network
from benchmarks.options import AttentionOptions, EncoderOptions
from benchmarks.runner import run
from bigbird_dna.attention import Pattern
from bigbird_dna.attention.call import Call, dense_attention
from tests.golden.messages import fails, message

TINY: dict[str, Any] = {
    "lengths": "256",
    "heads": 2,
    "pattern": (16, 2, 3, 3),
    "repeats": 2,
    "memory": False,
}
HAS_PEER = importlib.util.find_spec("transformers") is not None
needs_peer = pytest.mark.skipif(not HAS_PEER, reason="transformers isn't installed")


def attention(names: str, **changes: Any) -> AttentionBenchmark:
    values = (
        TINY | {"width": 8, "passes": "forward,training", "contenders": names} | changes
    )
    return AttentionBenchmark(AttentionOptions.of(values))


def encoder(names: str, **changes: Any) -> EncoderBenchmark:
    network = {"layers": 2, "hidden": 16, "vocabulary": 40}
    values = TINY | network | {"passes": "inference", "contenders": names} | changes
    return EncoderBenchmark(EncoderOptions.of(values))


@pytest.mark.slow
def test_contenders_of_one_graph_agree_in_value_and_gradient() -> None:
    result = run(attention("dense,blocked,sdpa-mask,sdpa"))
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
    q, k, v, _ = inputs = benchmark.inputs(case)
    expected = dense_attention(
        Call(q, k, v, Pattern(16, 2, 3, 3, huggingface=True), (256,))
    )
    (out,) = benchmark.prepare(case, inputs)()
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=0)
    gradients = benchmark.prepare(case._replace(work="training"), inputs)()
    assert [tuple(x.shape) for x in gradients] == [(1, 2, 256, 8)] * 3


@needs_peer
@pytest.mark.filterwarnings("ignore")
def test_encoders_have_the_same_weights() -> None:
    options = encoder("huggingface").options
    theirs = make_network(Case("huggingface", 256, "inference"), options).eval()
    ours: Any = make_network(Case("bigbird", 256, "inference"), options).eval()
    config = ours.encoder.config.model_copy(update={"compatibility": "huggingface"})
    compatible = type(ours)(config, next_sentence=False).eval()
    compatible.load_state_dict(ours.state_dict())
    ids = torch.arange(256)[None] % 35 + 5
    with torch.no_grad():
        expected = (logits(theirs, ids),)
        difference = relative_difference((logits(compatible, ids),), expected)
        sparse = relative_difference((logits(ours, ids),), expected)
    assert difference < 1e-5 < sparse


@pytest.mark.slow
def test_encoder_passes_and_their_precision() -> None:
    passes = "inference,inference-bfloat16,inference-autocast,training-autocast"
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
    benchmark = encoder(contender, passes="training")
    case = Case(contender, 256, "training")
    network, ids, labels = benchmark.inputs(case)
    assert (labels != -100).sum() == round(0.15 * 256)
    network.eval()  # no dropout
    with torch.no_grad():
        expected = cross_entropy(logits(network, ids)[0], labels[0])
    before = [p.detach().clone() for p in network.parameters() if p.requires_grad]
    (loss,) = benchmark.prepare(case, (network, ids, labels))()
    torch.testing.assert_close(loss, expected)
    after = [p for p in network.parameters() if p.requires_grad]
    unchanged = [
        p.shape for p, old in zip(after, before, strict=True) if torch.equal(p, old)
    ]
    assert len(unchanged) <= 2  # HuggingFace's pooler has no part in it


def test_a_missing_peer_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders.importlib.util, "find_spec", lambda name: None)
    row = run(attention("blocked,huggingface", passes="forward"))["results"][1]
    assert (row["status"], row["reason"]) == (
        "unavailable",
        "not installed; pip install 'bigbird-dna[hf]'",
    )


def test_a_failing_contender_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = AttentionBenchmark.attend

    def attend(benchmark: AttentionBenchmark, case: Case) -> Any:
        if case.contender == "sdpa":
            raise RuntimeError("no luck\nat all")
        return whole(benchmark, case)

    monkeypatch.setattr(AttentionBenchmark, "attend", attend)
    failed, measured = run(attention("sdpa,blocked", passes="forward"))["results"]
    assert (failed["status"], failed["reason"]) == ("failed", "RuntimeError: no luck")
    assert measured["status"] == "measured"
    assert measured["ratio"] is None  # there is nothing to refer to


def test_what_would_take_too_long_is_left_out() -> None:
    result = run(
        attention("blocked", passes="forward", lengths="256,512", max_seconds=1e-7)
    )
    assert [row["status"] for row in result["results"]] == ["skipped"] * 2
    assert "the limit is 1e-07 s" in result["results"][0]["reason"]
    assert result["matrix_products"] == []


def test_what_would_not_fit_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        alone, "measure_call", lambda _, case: Alone(case.length, 1 << 20, 1e-3)
    )
    monkeypatch.setattr(alone, "available_memory", lambda device: 10 << 20)
    rows = run(attention("blocked,dense", passes="forward", lengths="1024"))["results"]
    assert [row["status"] for row in rows] == [
        "measured",
        "skipped",
    ]  # 4 MiB, and 16 MiB
    assert "GiB are free" in rows[1]["reason"]


def test_a_route_that_steps_aside_is_no_contender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bigbird_dna.attention import native

    monkeypatch.setattr(native, "unavailable", lambda *_, **__: "no compiler")
    rows = run(attention("native,auto", passes="forward", lengths="1024"))["results"]
    assert (rows[0]["status"], rows[0]["reason"]) == ("unavailable", "no compiler")
    assert (rows[1]["status"], rows[1]["route"]) == ("measured", "blocked")


@pytest.mark.slow
def test_a_process_of_its_own_sees_what_a_call_takes() -> None:
    outcome = measure_alone(
        attention("dense", memory=True), Case("dense", 2048, "forward")
    )
    assert outcome.length == 2048 and outcome.seconds > 0
    if outcome.peak is None:
        pytest.skip("the system doesn't tell")
    scores = 2 * 2048**2 * 4  # bytes
    assert scores < outcome.peak < 6 * scores


@pytest.mark.slow
def test_failures_and_deaths_of_processes_are_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    benchmark = attention("blocked", memory=True, max_seconds=1e-7)
    with fails(LeftOut):
        measure_alone(benchmark, Case("blocked", 256, "forward"))
    monkeypatch.setattr(alone, "answer_to", _die)
    with pytest.raises(LeftOut) as caught:
        measure_alone(benchmark, Case("blocked", 256, "forward"))
    assert caught.value.args[0] == "failed"
    message(caught.value.args[1], "signal 9")


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
