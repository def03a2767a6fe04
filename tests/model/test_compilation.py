"""The encoder under torch.compile and torch.export: what it gives, and how often something is compiled."""

import io
import shutil
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.kernels import Dropout
from tests.model.test_encoder import SMALL

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
    return Encoder(SMALL.model_copy(update={"positions": 256, "layers": 1, **changes}))


def _ids(batch: int, tokens: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, 40, (batch, tokens), generator=generator)


def _gradients(encoder: Encoder, hidden: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(hidden.square().sum(), list(encoder.parameters())))


def torch_dropout(self: Dropout, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
    dropped = nn.functional.dropout(x, self.p, self.training)
    return dropped if residual is None else residual + dropped


@pytest.mark.parametrize("position", ["learned", "rotary"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_unpadded_rows_on_the_blocked_route_are_one_graph(
    position: str, checkpointing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What torch compiles draws its masks by torch's dropout.
    monkeypatch.setattr(Dropout, "forward", torch_dropout)
    encoder = _encoder(route="blocked", position=position, dropout=0.1, gradient_checkpointing=checkpointing)
    compiled = torch.compile(encoder, backend="aot_eager", fullgraph=True)
    ids = _ids(2, TOKENS)
    torch.manual_seed(3)
    plain = encoder(ids)
    torch.manual_seed(3)
    hidden = compiled(ids)
    torch.testing.assert_close(hidden, plain)
    for mine, expected in zip(_gradients(encoder, hidden), _gradients(encoder, plain), strict=True):
        torch.testing.assert_close(mine, expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("route", ["auto", "blocked"])
def test_padded_rows_of_any_lengths_are_compiled_but_a_few_times(route: str) -> None:
    encoder = _encoder(route=route).eval()
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(encoder, backend=counter, dynamic=True)
    seen = []
    with torch.no_grad():
        for batch, tokens in ((2, 90), (3, 96), (4, 83), (2, 200), (5, 61)):
            ids = _ids(batch, tokens)
            lengths = torch.arange(tokens, tokens - batch, -1)
            real = torch.arange(tokens) < lengths[:, None]
            torch.testing.assert_close(compiled(ids, lengths)[real], encoder(ids, lengths)[real])
            seen.append(counter.frame_count)
    assert seen[2:] == [seen[2]] * 3


def test_autocast_and_compilation_go_together() -> None:
    encoder = _encoder(route="blocked").eval()
    compiled = torch.compile(encoder, backend="aot_eager", fullgraph=True)
    ids = _ids(2, TOKENS)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        hidden, plain = compiled(ids), encoder(ids)
    assert not torch.equal(plain, encoder(ids)), "autocast did nothing"
    assert (hidden - plain).norm() < 1e-2 * plain.norm()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_export_gives_a_program_for_full_rows(strict: bool, position: str) -> None:
    encoder = _encoder(route="blocked", position=position).eval()
    ids = _ids(2, TOKENS)
    with torch.no_grad():
        program = torch.export.export(encoder, (ids,), strict=strict)
        stored = io.BytesIO()
        torch.export.save(program, stored)
        stored.seek(0)
        module = torch.export.load(stored).module()
        for seed in (1, 2):
            other = _ids(2, TOKENS, seed)
            torch.testing.assert_close(module(other), encoder(other))
    # Plans made while tracing must serve as well afterwards, for gradients too.
    encoder(ids).sum().backward()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++ on a CPU")
@pytest.mark.parametrize("route", ["auto", "blocked"])
def test_machine_code_gives_the_same(route: str) -> None:
    encoder = _encoder(route=route, position="rotary")
    compiled = torch.compile(encoder)
    for lengths in (None, torch.tensor([96, 80])):
        ids = _ids(2, TOKENS)
        hidden, plain = compiled(ids, lengths), encoder(ids, lengths)
        if lengths is not None:
            hidden, plain = hidden[:, :80], plain[:, :80]
        torch.testing.assert_close(hidden, plain, atol=1e-5, rtol=1e-5)
        for mine, expected in zip(_gradients(encoder, hidden), _gradients(encoder, plain), strict=True):
            torch.testing.assert_close(mine, expected, atol=1e-4, rtol=1e-4)
