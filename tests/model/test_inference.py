"""What is made ready while a GPU computes, and in which precision rows are computed."""

import shutil
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bigbird_dna.attention import native
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import ConfigError, UsageError
from bigbird_dna.model import inference as own
from bigbird_dna.model.batching import in_calls, run_rows
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import Classifier, mean_over_tokens
from bigbird_dna.model.inference import (
    PRECISIONS,
    ahead,
    cpu_threads,
    inference,
    prepared,
    supported_precision,
)
from bigbird_dna.model.kernels import Dropout
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack, PromoterSettings
from bigbird_dna.training.distributed import chosen_precision
from tests.golden.messages import fails
from tests.model.test_encoder import SMALL
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer

CPU = torch.device("cpu")
CONFIG = small_encoder(layers=2, hidden=32, max_length=160, position_encoding="rotary")


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
    config = CONFIG.model_copy(update={"vocabulary": tokenizer.vocabulary})
    promoter = PromoterSettings(
        upstream=60, downstream=40, pooling="mean", jitter=6, views=3
    )
    tracks = tuple(NamedTrack(track=name, group="TF") for name in ("one", "two"))
    chromatin = ChromatinSettings(
        window=120, bin=20, pooling="bin", bin_layers=1, members=1, tracks=tracks
    )
    yield [
        random_model(tokenizer, config, settings, scale=3)
        for settings in (promoter, chromatin)
    ]


def test_predictions_have_the_same_bytes_whatever_is_made_ahead(
    models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in models:
        windows = [random_dna(model.settings.window, seed) for seed in range(9)]
        plain = model.window_probabilities(windows, device="cpu")
        assert np.ptp(plain) > 1e-3
        with monkeypatch.context() as patch:
            patch.setattr(own, "AHEAD_OF", ("cpu",))
            assert (
                model.window_probabilities(windows, device="cpu").tobytes()
                == plain.tobytes()
            )
            with cpu_threads(2):
                assert (
                    model.window_probabilities(windows, device="cpu").tobytes()
                    == plain.tobytes()
                )


def rows_of(count: int) -> list[Any]:
    rng = np.random.default_rng(0)
    return [
        rng.integers(5, 40, rng.integers(3, 160)).astype(np.int32) for _ in range(count)
    ]


def test_calls_of_a_gpu_give_what_single_rows_give_each_a_call_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bigbird_dna.model.batching.CALL_TOKENS", 320)
    torch.manual_seed(0)
    encoder, rows, calls = Encoder(CONFIG).eval(), rows_of(17), 0

    def run(ids: Tensor, lengths: Tensor, chosen: Any) -> Tensor:
        nonlocal calls
        calls += 1
        return mean_over_tokens(encoder(ids, lengths), lengths)

    single = run_rows(encoder, rows, run, pad_id=0, batch_size=4, device=CPU)
    found, calls = np.full_like(single, np.nan), 0
    for done, (numbers, values) in enumerate(
        in_calls(encoder, rows, run, 0, CPU), start=1
    ):
        assert np.isnan(found[numbers]).all()
        found[numbers] = values
        assert calls == done + 1 or (calls == done and not np.isnan(found).any())
    np.testing.assert_allclose(found, single, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("compiled", [True, False])
def test_rows_of_one_length_share_calls_of_compiled_layers(
    threads: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compiled and native.pointwise(torch.zeros(1)) is not None
    torch.manual_seed(0)
    config = CONFIG.model_copy(update={} if compiled else {"activation": "relu"})
    classifier = Classifier(config, 3, "mean").eval()
    rows = [
        row[:length]
        for row, length in zip(rows_of(40), [9, 30, 31, 9] * 10, strict=True)
    ]
    sizes: list[int] = []

    def run(ids: Tensor, lengths: Tensor, chosen: Any) -> Tensor:
        assert (
            lengths.tolist()
            == [len(rows[number]) for number in chosen]
            == [ids.shape[1]] * len(ids)
        )
        sizes.append(len(ids))
        return classifier(ids, lengths)  # type: ignore[no-any-return]

    options: dict[str, Any] = {"pad_id": 0, "batch_size": 8, "device": CPU}
    monkeypatch.setattr("bigbird_dna.model.batching.SHARED_TOKENS", 124)
    with cpu_threads(threads):
        alone = run_rows(classifier, rows, run, **options)
        assert sizes == [1] * 40
        sizes.clear()
        together = run_rows(classifier, rows, run, **options, shared=True)
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-6)
    assert np.unique(alone, axis=0).shape == alone.shape
    most = 8 // threads
    lengths = [len(row) for row in rows]
    calls = [
        -(-lengths.count(length) // min(most, 124 // length))
        if compiled
        else lengths.count(length)
        for length in set(lengths)
    ]
    assert len(sizes) == sum(calls) and sum(sizes) == 40


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_are_computed_in_the_precision_that_was_asked_for(threads: int) -> None:
    torch.manual_seed(0)
    encoder, rows = Encoder(CONFIG).eval(), rows_of(6)

    def run(ids: Tensor, lengths: Tensor, _: Any) -> Tensor:
        return mean_over_tokens(encoder(ids, lengths), lengths)

    with cpu_threads(threads):
        found = []
        for precision in ("float32", "bfloat16", "float32"):
            with inference(precision, CPU):
                found.append(
                    run_rows(encoder, rows, run, pad_id=0, batch_size=4, device=CPU)
                )
    plain, narrow, again = found
    assert plain.tobytes() == again.tobytes() and narrow.dtype == np.float32
    assert 1e-5 < np.linalg.norm(plain - narrow) / np.linalg.norm(plain) < 3e-2


def test_precisions_that_cannot_be_had_are_refused() -> None:
    assert list(PRECISIONS) == ["float32", "bfloat16", "float16"]
    for name in ("float8", "float16"):
        with fails(UsageError, name), inference(name, CPU):
            pass


@pytest.mark.parametrize(
    ("kind", "native", "usual"),
    [
        ("cpu", True, "float32"),
        ("cuda", True, "bfloat16"),
        ("cuda", False, "float32"),
    ],
)
def test_the_usual_precision_is_that_of_the_device(
    kind: str, native: bool, usual: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bfloat16 only where a GPU has it; what a GPU lacks is refused, also by trainings."""
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: native
    )
    device = torch.device(kind)
    assert supported_precision("auto", device) == usual
    assert supported_precision("auto", device, narrow=False) == "float32"
    assert (
        supported_precision("float32", device)
        == chosen_precision(device, "float32")
        == "float32"
    )
    if kind == "cuda":
        assert chosen_precision(device, "auto") == usual
    if (kind, native) != ("cuda", False):
        assert (
            supported_precision("bfloat16", device)
            == chosen_precision(device, "bfloat16")
            == "bfloat16"
        )
        return
    with fails(UsageError, "bfloat16", "float32"):
        supported_precision("bfloat16", device)
    with fails(ConfigError, "precision: float32"):
        chosen_precision(device, "bfloat16")


def test_on_another_device_routes_are_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(native, "unavailable", lambda *_, **__: "no compiler")
    encoder, ids = Encoder(CONFIG).eval(), torch.full((1, 150), 7)
    for device, said in ((CPU, 0), (torch.device("meta"), 1)):
        with inference("float32", device), torch.inference_mode():
            encoder(ids)
            encoder(ids)
        assert (
            capsys.readouterr().err.count("attention: blocked (native: no compiler)")
            == said
        )


# Layers as compiled by torch, exported, and as the compiled kernel runs them in inference


SHAPE = small_encoder(layers=2, hidden=48, heads=3, max_length=700, block_size=16)

needs_kernel = pytest.mark.skipif(
    native.pointwise(torch.zeros(1)) is None, reason="the kernel can't be had here"
)


def lively(config: EncoderConfig) -> Encoder:
    """An encoder none of whose biases and gains are trivial."""
    torch.manual_seed(0)
    encoder = Encoder(config).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(
                torch.randn_like(parameter), alpha=0.3 if parameter.dim() == 1 else 0.1
            )
    return encoder


@needs_kernel
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"position_encoding": "rotary"},
        {"attention": "full", "position_encoding": "rotary"},
        {"compatibility": "huggingface", "block_size": 8},
        {"hidden": 128, "heads": 4, "position_encoding": "rotary", "block_size": 32},
        {"hidden": 32, "heads": 1, "intermediate": 50},
        {
            "hidden": 64,
            "heads": 16,
            "intermediate": 16,
            "window_blocks": 1,
            "random_blocks": 0,
        },
    ],
    ids=str,
)
@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 115, 613])
def test_compiled_layers_agree_with_the_layers(
    changes: dict[str, object], tokens: int
) -> None:
    encoder = lively(SHAPE.model_copy(update=changes))
    ids = torch.randint(5, 40, (1, tokens))
    with cpu_threads(1), torch.inference_mode():
        expected = encoder(ids, torch.tensor([tokens]))
        with prepared(encoder, 4096):
            assert encoder.packed is not None and encoder.packed.take(
                expected, torch.tensor([tokens])
            )
            found = encoder(ids, torch.tensor([tokens]))
            assert torch.equal(encoder(ids), found)
            rows = torch.cat([torch.randint(5, 40, (2, tokens)), ids])
            alone = torch.cat([encoder(row[None]) for row in rows])
            assert torch.equal(encoder(rows, torch.tensor([tokens] * 3)), alone)
            assert torch.equal(alone[2:], found)
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)
        assert encoder.packed is None and encoder.layers[0].joined is None
        assert torch.equal(encoder(ids), expected)


@needs_kernel
def test_what_compiled_layers_leave_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = lively(SHAPE)
    x = torch.randn(2, 20, 48)
    with prepared(encoder, 100), cpu_threads(1):
        packed = encoder.packed
        assert packed is not None
        with torch.no_grad():
            assert packed.take(x[:1], None) and packed.take(x, torch.tensor([20, 20]))
            assert not packed.take(x, torch.tensor([20, 19]))
            assert not packed.take(x[:1].double(), None)
            assert not packed.take(torch.randn(1, 101, 48), None)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert not packed.take(x[:1], None)
        assert not packed.take(x[:1], None)  # gradients may be asked for
        with cpu_threads(2), torch.no_grad():
            assert not packed.take(x[:1], None)
    for changes in (
        {"activation": "relu"},
        {"attention": "combiner_fixed"},
        {"num_global_tokens": 2},
        {"relative_max_distance": 3},
        {"hidden": 24, "heads": 3},
        {"hidden": 48, "heads": 16},
    ):
        other = Encoder(SHAPE.model_copy(update=changes))
        with prepared(other, 100):
            assert other.packed is None
    for strange in (lively(SHAPE).double(), lively(SHAPE)):
        strange.layers[1].register_forward_hook(lambda *_: None)
        with prepared(strange, 100):
            assert strange.packed is None
    monkeypatch.setenv("BIGBIRD_DNA_NATIVE", "0")
    with prepared(encoder, 100):
        assert encoder.packed is None


def test_changed_weights_are_seen_by_the_next_block() -> None:
    encoder, ids = lively(SHAPE), torch.randint(5, 40, (1, 50))
    with cpu_threads(1), torch.no_grad():
        with prepared(encoder, 4096):
            before = encoder(ids)
        for parameter in encoder.parameters():
            parameter.mul_(1.1)
        with prepared(encoder, 4096):
            after = encoder(ids)
        assert not torch.allclose(before, after, atol=1e-3)
        torch.testing.assert_close(after, encoder(ids), atol=2e-5, rtol=2e-5)


TOKENS = 96
# torch's own remarks while it traces and exports; what this package warns of still fails a test.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch"),
    pytest.mark.filterwarnings("ignore::FutureWarning:torch"),
]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def _encoder(**changes: object) -> Encoder:
    torch.manual_seed(0)
    return Encoder(SMALL.model_copy(update={"max_length": 256, "layers": 1, **changes}))


def _ids(batch: int, tokens: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, 40, (batch, tokens), generator=generator)


def _gradients(encoder: Encoder, hidden: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(hidden.square().sum(), list(encoder.parameters())))


def torch_dropout(
    self: Dropout, x: torch.Tensor, residual: torch.Tensor | None = None
) -> torch.Tensor:
    dropped = nn.functional.dropout(x, self.p, self.training)
    return dropped if residual is None else residual + dropped


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("g++") is None, reason="torch.compile needs g++ on a CPU"
)
@pytest.mark.parametrize("route", ["auto", "blocked"])
def test_machine_code_gives_the_same(route: str) -> None:
    encoder = _encoder(attention_backend=route, position_encoding="rotary")
    compiled = torch.compile(encoder)
    for lengths in (None, torch.tensor([96, 80])):
        ids = _ids(2, TOKENS)
        hidden, plain = compiled(ids, lengths), encoder(ids, lengths)
        if lengths is not None:
            hidden, plain = hidden[:, :80], plain[:, :80]
        torch.testing.assert_close(hidden, plain, atol=1e-5, rtol=1e-5)
        for mine, expected in zip(
            _gradients(encoder, hidden), _gradients(encoder, plain), strict=True
        ):
            torch.testing.assert_close(mine, expected, atol=1e-4, rtol=1e-4)
