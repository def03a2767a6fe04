"""The compiled kernel against the oracle, its promises, and how it is built and kept."""

import ctypes
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bigbird_dna.attention import native, native_kernel
from bigbird_dna.attention.backends import bigbird_attention, full_attention
from bigbird_dna.attention.call import Call, dense_attention
from bigbird_dna.attention.native import native_attention
from bigbird_dna.attention.native_kernel import Kernel
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.disk import native_library as native_build
from bigbird_dna.disk.native_library import BuildError
from bigbird_dna.model.kernels import gelu_tanh
from tests.attention import reference_implementations
from tests.attention.reference_implementations import (
    Made,
    Problem,
    problems,
    results,
    value_and_gradients,
)
from tests.golden.messages import fails, message

SMALL = Pattern(block_size=16, seed=2)
SOURCE = b'extern "C" int answer() { return 42; }'


def why_not(
    pattern: Pattern = SMALL, dtype: torch.dtype = torch.float32, **kind: Any
) -> str:
    x = torch.zeros(1, 1, 8, 4, dtype=dtype)
    return native.unavailable(Call(x, x, x, pattern, (8,))._replace(**kind)) or ""


@pytest.fixture(scope="module")
def kernel() -> None:
    """Skip a test where there is no compiler."""
    if reason := why_not():
        pytest.skip(f"native route: {reason}")


@pytest.fixture
def compiler() -> list[str]:
    try:
        return native_build.find_compiler()
    except BuildError as error:
        pytest.skip(str(error))


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def inputs(*shape: int, dtype: torch.dtype = torch.float32) -> Made:
    return reference_implementations.inputs(*shape, dtype=dtype)


def oracle(made: Made, *arguments: object) -> list[Tensor]:
    double = tuple(x.detach().double().requires_grad_() for x in made[:3])
    return results(dense_attention, (*double, made[3].double()), *arguments)


def assert_close(left: list[Tensor], right: list[Tensor], tolerance: float) -> None:
    names = ("output", "q", "k", "v")[: len(left)]
    for name, a, b in zip(names, left, right, strict=True):
        error = ((a.double() - b.double()).abs() / (1 + b.double().abs())).max().item()
        assert error <= tolerance, f"{name}: {error}"


CALLS = problems(
    st.sampled_from([1, 3, 8, 16, 40, 64, 70, 150]),
    ("plain", "causal", "huggingface"),
    most=600,
    widths=(1, 5, 8, 20, 32, 64, 72),
)


@pytest.mark.usefixtures("kernel")
@given(CALLS)
@settings(max_examples=25, deadline=None)
def test_equals_the_oracle(problem: Problem) -> None:
    pattern, shape, lengths, layer = problem
    made = inputs(*shape)
    found = results(native_attention, made, pattern, lengths, layer)
    assert all(x.dtype == torch.float32 for x in found)
    assert_close(found, oracle(made, pattern, lengths, layer), 2e-5)


@pytest.mark.usefixtures("kernel")
@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=3),
    st.sampled_from([1, 20, 32]),
    st.booleans(),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
@settings(max_examples=12, deadline=None)
def test_full_attention_equals_the_oracle(
    lengths: list[int], width: int, causal: bool, dtype: torch.dtype
) -> None:
    """By the kernel, as by torch."""
    made = inputs(len(lengths), 2, max(lengths) + 3, width, dtype=dtype)
    pattern = Pattern(max(lengths) + 3, 1, 0, 0, causal=causal)  # one block

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return full_attention(q, k, v, Pattern(causal=causal), lengths=lengths)

    expected = oracle(made, pattern, lengths)
    assert_close(
        value_and_gradients(attend, made),
        expected,
        2e-5 if dtype == torch.float32 else 2e-2,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BIGBIRD_DNA_NATIVE", "0")
        assert_close(
            value_and_gradients(attend, made),
            expected,
            2e-5 if dtype == torch.float32 else 4e-2,
        )


@pytest.mark.usefixtures("kernel")
@given(CALLS)
@settings(max_examples=15, deadline=None)
def test_bfloat16_is_computed_in_single_precision(problem: Problem) -> None:
    """The output is that of float32, rounded; gradients see the rounded output."""
    dtype = torch.bfloat16
    pattern, shape, lengths, layer = problem
    made = inputs(*shape, dtype=dtype)
    found = results(native_attention, made, pattern, lengths, layer)
    wide = tuple(x.detach().float() for x in made[:3])
    single = native_attention(Call(*wide, pattern, lengths, layer))
    assert torch.equal(found[0], single.to(dtype))
    assert all(x.dtype == dtype for x in found)
    assert_close(found, oracle(made, pattern, lengths, layer), 4e-2)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("variant", [{}, {"causal": True}, {"huggingface": True}])
def test_threads_do_not_change_a_bit(
    variant: dict[str, bool],
    dtype: torch.dtype,
    threads: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2 sequences × 2 heads: up to 4 threads each take whole heads, more of them share blocks."""
    pattern = Pattern(block_size=24, **variant)
    arguments = (pattern, (500, 490), 1)
    made = inputs(2, 2, 500, 20, dtype=dtype)
    found = []
    for launcher in (native_kernel.launcher, lambda: None):
        monkeypatch.setattr(native_kernel, "launcher", launcher)
        for count in (1, 2, 4, 5, 9):
            torch.set_num_threads(count)
            found.append(results(native_attention, made, *arguments))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert torch.equal(a, b)


@pytest.mark.usefixtures("kernel")
def test_layouts_of_inputs_and_output() -> None:
    """Slices of one projection, a last axis with gaps, expanded tensors; heads are joined without a copy."""
    fused = torch.randn(2, 200, 3, 2, 64, requires_grad=True)
    q, k, v = (x.transpose(1, 2) for x in fused.unbind(2))
    plain = tuple(x.detach().contiguous().requires_grad_() for x in (q, k, v))
    out = native_attention(Call(q, k, v, SMALL, (200, 195)))
    expected = native_attention(Call(*plain, SMALL, (200, 195)))
    assert out.transpose(1, 2).is_contiguous()
    assert torch.equal(out, expected)
    (grad,) = torch.autograd.grad(
        out.sum(), fused
    )  # the gradient of a sum is an expanded number
    grads = torch.autograd.grad(expected.sum(), plain)
    for a, b in zip(grad.unbind(2), grads, strict=True):
        assert torch.equal(a.transpose(1, 2), b)
    gaps = [torch.stack([x.detach(), x.detach()], dim=-1)[..., 0] for x in plain]
    assert gaps[0].stride(3) == 2
    assert torch.equal(native_attention(Call(*gaps, SMALL, (200, 195))), expected)
    one = [x.detach()[:1, :1].expand(2, 2, -1, -1) for x in plain]
    same = native_attention(Call(*one, Pattern(16, random_blocks=0), (200, 200)))
    assert torch.equal(same[0, 0], same[1, 1])


@pytest.mark.usefixtures("kernel")
def test_large_scores_and_nan() -> None:
    """A softmax of scores in the hundreds; a NaN reaches its own query, and no other."""
    made = inputs(1, 2, 300, 64)
    with torch.no_grad():
        made[0].mul_(60)
    found = results(native_attention, made, SMALL, (300,))
    assert_close(
        found[:1], oracle(made, SMALL, (300,))[:1], 2e-3
    )  # float32 scores of size 300
    q = made[0].detach().clone()
    q[0, 1, 77, 3] = torch.nan
    out = native_attention(Call(q, made[1].detach(), made[2].detach(), SMALL, (300,)))
    missing = out.isnan().any(dim=3)
    assert missing[0, 1, 77] and missing.sum() == 1
    assert out[0, 1, 77].isnan().all()


@pytest.mark.usefixtures("kernel")
def test_an_empty_batch_and_turns_of_inference_and_training() -> None:
    q = torch.zeros(0, 2, 8, 4, requires_grad=True)
    out = native_attention(Call(q, q, q, SMALL, ()))
    out.sum().backward()
    assert out.shape == q.shape and q.grad is not None
    made = inputs(1, 2, 300, 20)
    with torch.inference_mode():
        inferred = native_attention(Call(*made[:3], SMALL, (300,)))
    assert torch.equal(results(native_attention, made, SMALL, (300,))[0], inferred)


@pytest.mark.slow
@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("size", [16, 32, 64])
def test_every_vector_size_and_small_groups(
    size: int, tmp_path: Path, threads: None
) -> None:
    """Vectors that the processor lacks are made of smaller ones; one head is packed for each thread."""
    source = f"#define VECTOR_BYTES {size}\n#define PACKED_NUMBERS 1\n".encode()
    source += files("bigbird_dna.attention").joinpath("kernel.cpp").read_bytes()
    path = tmp_path / "kernel.so"
    native_build.compile_library(native_build.find_compiler(), source, path)
    other = Kernel(ctypes.CDLL(str(path)))
    for pattern in (SMALL, Pattern(70), Pattern(block_size=24, causal=True)):
        # 6 heads: 5 threads share blocks, and their groups of 5 heads span both sequences.
        for width, count in ((5, 1), (32, 2), (64, 4), (72, 5), (64, 5)):
            torch.set_num_threads(count)
            made = inputs(2, 3, 500, width)
            q, k, v = (x.detach() for x in made[:3])
            arguments = (pattern, (500, 499), 1)
            call = Call(q, k, v, *arguments)
            out, lse = other.forward(call)
            found = [out, *other.backward(call, made[3], out, lse)]
            assert_close(found, oracle(made, *arguments), 2e-5)


# ---- reasons -----------------------------------------------------------------------------------------


def test_it_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIGBIRD_DNA_NATIVE", "0")
    assert why_not() == "BIGBIRD_DNA_NATIVE=0 disables it"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and a process that hasn't loaded the kernel yet."""
    monkeypatch.setenv("BIGBIRD_DNA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(native, "loaded", None)
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("PATH", "", "C++ compiler"),
        ("CXX", "no-such-compiler -m64", "'no-such-compiler'"),
    ],
)
def test_without_a_compiler(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, named: str
) -> None:
    monkeypatch.setenv(name, value)
    assert named in why_not()
    q, k, v, _ = inputs(1, 1, 100, 4)
    with fails(RuntimeError, named):
        native_attention(Call(q, k, v, SMALL, (100,)))


def test_a_compiler_that_fails(
    fresh: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is named, with its first error, on one line of standard error, once in a process."""
    broken = tmp_path / "broken"
    broken.write_text(
        "#!/bin/sh\necho 'kernel.cpp: fatal error: no space' >&2\nexit 1\n"
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    complaint = f"the C++ compiler {broken} failed (kernel.cpp: fatal error: no space)"
    assert why_not() == complaint
    assert list(fresh.iterdir()) == []
    native.gelu_tanh_(torch.ones(3))
    bigbird_attention(*inputs(1, 1, 900, 4)[:3], SMALL)
    (line,) = logged(capsys)
    message(line, complaint)


@pytest.mark.usefixtures("kernel")
def test_a_library_that_is_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check compares with the oracle: an oracle that says something else fails the kernel."""
    kernel, _ = native.load_kernel()
    assert kernel is not None
    native.check_library(kernel.library)
    monkeypatch.setattr(
        native, "dense_attention", lambda call: dense_attention(call) / 2
    )
    with fails(BuildError):
        native.check_library(kernel.library)


# ---- the cache, with a small source --------------------------------------------------------------------


def logged(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Lines of the log without their time."""
    return [text.partition("  ")[2] for text in capsys.readouterr().err.splitlines()]


def load(source: bytes, check: Callable[[ctypes.CDLL], None]) -> Path:
    """Where the loaded library is, or was, after it has answered."""
    loaded = native_build.load_library(source, check)
    assert loaded.answer() == 42
    return Path(loaded._name)


def test_a_library_is_built_once_and_cached(fresh: Path, compiler: list[str]) -> None:
    checked: list[ctypes.CDLL] = []
    load(SOURCE, checked.append)
    path = load(SOURCE, checked.append)
    assert path.parent == fresh and len(checked) == 1
    load(SOURCE + b"\n", checked.append)
    assert len(checked) == 2 and len(list(fresh.iterdir())) == 2


def test_source_that_does_not_compile_or_fails_its_check_is_not_kept(
    fresh: Path, compiler: list[str]
) -> None:
    def refuse(library: ctypes.CDLL) -> None:
        raise BuildError("wrong")

    for source in (SOURCE, b"int answer( {"):
        with fails(BuildError):
            load(source, refuse)
    assert list(fresh.iterdir()) == []


def test_without_a_cache_a_library_is_built_for_the_process(
    fresh: Path,
    compiler: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BIGBIRD_DNA_CACHE", str(tmp_path / "file" / "cache"))
    assert not load(SOURCE, lambda library: None).exists()
    (line,) = logged(capsys)
    message(line, os.environ["BIGBIRD_DNA_CACHE"])


def test_where_libraries_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BIGBIRD_DNA_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert native_build.cache_directory() == tmp_path / "xdg" / "bigbird-dna"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert native_build.cache_directory() == tmp_path / ".cache" / "bigbird-dna"


def test_processes_that_build_at_once(fresh: Path, compiler: list[str]) -> None:
    """Each finds a whole library; one is kept, and nothing else is left."""
    code = (
        "import time\n"
        "from bigbird_dna.disk.native_library import load_library\n"
        f"library = load_library({SOURCE!r}, lambda library: time.sleep(0.5))\n"
        "assert library.answer() == 42\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    (path,) = fresh.iterdir()
    assert path.suffix == ".so"


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("shape", [(3,), (7, 1003), (2, 3, 64)])
def test_gelu_is_torch_s(shape: tuple[int, ...]) -> None:
    x = 6 * torch.randn(shape, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.gelu(x, approximate="tanh")
    torch.testing.assert_close(
        native.gelu_tanh_(x.clone()), expected, rtol=1e-5, atol=1e-6
    )
    edges = torch.tensor([float("nan"), float("inf"), -1e4, 0.0])
    assert native.gelu_tanh_(edges.clone()).isnan().tolist() == [
        True,
        False,
        False,
        False,
    ]
    wide = x.double()
    assert torch.equal(
        native.gelu_tanh_(wide.clone()),
        torch.nn.functional.gelu(wide, approximate="tanh"),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gelu_in_training(dtype: torch.dtype) -> None:
    """Value and slope are those of the formula in float64, also far out."""
    some = torch.cat(
        [torch.linspace(-30, 30, 4001), torch.tensor([-1e30, -3e4, 0.0, 3e4, 1e30])]
    )
    x = some.to(dtype).requires_grad_()
    wide = x.detach().double().requires_grad_()
    expected = torch.nn.functional.gelu(wide, approximate="tanh")
    upper = torch.linspace(-2, 2, len(x)).to(dtype)
    found = gelu_tanh(x)
    rounding = 1e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=rounding)
    (slope,) = torch.autograd.grad(found, x, upper)
    (exact,) = torch.autograd.grad(expected, wide, upper.double())
    torch.testing.assert_close(
        slope.double(), exact.nan_to_num(), atol=2e-6, rtol=rounding
    )
    assert gelu_tanh(torch.tensor([math.nan], requires_grad=True)).isnan().all()
