"""What is made ready while a GPU computes, and in which precision rows are computed."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bigbird_dna.attention import native
from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import UsageError
from bigbird_dna.model import inference as own
from bigbird_dna.model.batching import in_calls, run_rows
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import mean_over_tokens
from bigbird_dna.model.inference import PRECISIONS, ahead, cpu_threads, inference
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack, PromoterSettings
from tests.golden.messages import fails
from tests.toys import random_dna, random_model, small_tokenizer

CPU = torch.device("cpu")
SMALL = EncoderConfig(
    vocabulary=40, layers=2, hidden=32, heads=2, max_length=160, block_size=8, position_encoding="rotary"
)


@pytest.fixture
def waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU is taken for a GPU that one waits for."""
    monkeypatch.setattr(own, "AHEAD_OF", ("cpu",))


@pytest.mark.usefixtures("waited_for")
def test_the_next_one_is_made_meanwhile_and_no_more() -> None:
    made: list[int] = []
    begun = [threading.Event() for _ in range(6)]

    def make(number: int) -> int:
        assert threading.current_thread() is not threading.main_thread()
        made.append(number)
        begun[number].set()
        return number * number

    for number, square in enumerate(ahead(make, range(5), CPU)):
        assert square == number * number
        assert number == 4 or begun[number + 1].wait(10)
        assert not begun[number + 2].is_set() if number < 4 else True
    assert made == [*range(5)]
    assert list(ahead(make, (), CPU)) == []


@pytest.mark.usefixtures("waited_for")
def test_an_error_comes_where_its_result_would() -> None:
    def make(number: int) -> int:
        if number == 2:
            raise UsageError("two")
        return number

    found = ahead(make, range(5), CPU)
    assert [next(found), next(found)] == [0, 1]
    with fails(UsageError):
        next(found)


@pytest.mark.usefixtures("waited_for")
def test_who_stops_waits_for_no_more_than_what_is_being_made() -> None:
    made: list[int] = []

    def make(number: int) -> int:
        made.append(number)
        return number

    before = threading.active_count()
    for _ in range(3):
        found = ahead(make, iter(range(100)), CPU)
        next(found)
        with pytest.raises(KeyboardInterrupt):
            found.throw(KeyboardInterrupt)  # type: ignore[attr-defined]
    assert len(made) <= 6 and threading.active_count() == before


def test_on_a_cpu_nothing_is_made_ahead() -> None:
    def make(number: int) -> int:
        assert threading.current_thread() is threading.main_thread()
        return number

    assert list(ahead(make, range(3), CPU)) == [0, 1, 2]


@pytest.fixture(scope="module")
def models() -> Iterator[Any]:
    """A promoter model of three views, and one of tracks."""
    tokenizer = small_tokenizer()
    config = SMALL.model_copy(update={"vocabulary": tokenizer.vocabulary})
    promoter = PromoterSettings(upstream=60, downstream=40, pooling="mean", jitter=6, views=3)
    tracks = tuple(NamedTrack(track=name, group="TF") for name in ("one", "two"))
    chromatin = ChromatinSettings(window=120, bin=20, pooling="bin", bin_layers=1, members=1, tracks=tracks)
    yield [random_model(tokenizer, config, settings, scale=3) for settings in (promoter, chromatin)]


def test_predictions_have_the_same_bytes_whatever_is_made_ahead(
    models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in models:
        windows = [random_dna(model.settings.window, seed) for seed in range(9)]
        plain = model.window_probabilities(windows, device="cpu")
        assert np.ptp(plain) > 1e-3
        with monkeypatch.context() as patch:
            patch.setattr(own, "AHEAD_OF", ("cpu",))
            assert model.window_probabilities(windows, device="cpu").tobytes() == plain.tobytes()
            with cpu_threads(2):
                assert model.window_probabilities(windows, device="cpu").tobytes() == plain.tobytes()


def rows_of(count: int) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.integers(5, 40, rng.integers(3, 160)).astype(np.int32) for _ in range(count)]


def test_calls_of_a_gpu_give_what_single_rows_give_each_a_call_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigbird_dna.model.batching.CALL_TOKENS", 320)
    torch.manual_seed(0)
    encoder, rows, calls = Encoder(SMALL).eval(), rows_of(17), 0

    def run(ids: Tensor, lengths: Tensor, chosen: Any) -> Tensor:
        nonlocal calls
        calls += 1
        return mean_over_tokens(encoder(ids, lengths), lengths)

    single = run_rows(encoder, rows, run, pad_id=0, batch_size=4, device=CPU)
    found, calls = np.full_like(single, np.nan), 0
    for done, (numbers, values) in enumerate(in_calls(encoder, rows, run, 0, CPU), start=1):
        assert np.isnan(found[numbers]).all()
        found[numbers] = values
        assert calls == done + 1 or (calls == done and not np.isnan(found).any())
    np.testing.assert_allclose(found, single, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_are_computed_in_the_precision_that_was_asked_for(threads: int) -> None:
    torch.manual_seed(0)
    encoder, rows = Encoder(SMALL).eval(), rows_of(6)

    def run(ids: Tensor, lengths: Tensor, _: Any) -> Tensor:
        return mean_over_tokens(encoder(ids, lengths), lengths)

    with cpu_threads(threads):
        found = []
        for precision in ("float32", "bfloat16", "float32"):
            with inference(precision, CPU):
                found.append(run_rows(encoder, rows, run, pad_id=0, batch_size=4, device=CPU))
    plain, narrow, again = found
    assert plain.tobytes() == again.tobytes() and narrow.dtype == np.float32
    assert 1e-5 < np.linalg.norm(plain - narrow) / np.linalg.norm(plain) < 3e-2


def test_precisions_that_cannot_be_had_are_refused() -> None:
    assert list(PRECISIONS) == ["float32", "bfloat16", "float16"]
    for name in ("float8", "float16"):
        with fails(UsageError, name), inference(name, CPU):
            pass


def test_on_another_device_routes_are_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(native, "unavailable", lambda *_, **__: "no compiler")
    encoder, ids = Encoder(SMALL).eval(), torch.full((1, 150), 7)
    for device, said in ((CPU, 0), (torch.device("meta"), 1)):
        with inference("float32", device), torch.inference_mode():
            encoder(ids)
            encoder(ids)
        assert capsys.readouterr().err.count("attention: blocked (native: no compiler)") == said
