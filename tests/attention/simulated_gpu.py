"""PyTorch's GPU kernels without a GPU: torch compiles for a simulated one, and Triton interprets the result.

Run as a process of its own, `python -m tests.attention.simulated_gpu CASE` with a `Case` as JSON, because it
replaces parts of torch. A small library, loaded before torch, gives torch's operators a device to guard.
Tensors on the GPU have shapes but no data (`FakeTensorMode`). Dynamo, autograd and Inductor work as usual.
The module that Inductor writes is called with tensors on the CPU instead; its Triton kernels are interpreted
there, or compiled to machine code for a GPU's architecture and not run.
"""

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, NamedTuple

LIBRARY = """
#include <c10/core/impl/FakeGuardImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
namespace at {
struct SimulatedHooks : public CUDAHooksInterface {
  SimulatedHooks(CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
  bool isAvailable() const override { return true; }
  bool isBuilt() const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", SimulatedHooks)
C10_REGISTER_GUARD_IMPL(CUDA, c10::impl::FakeGuardImpl<c10::DeviceType::CUDA>)
}
"""


class Case(NamedTuple):
    """A call of FlexAttention, and what is done with its kernels."""

    pattern: dict[str, Any]
    lengths: tuple[int, ...]
    heads: int = 1
    width: int = 16
    dtype: str = "float32"
    gradients: bool = True
    compile_for: tuple[int, int] | None = None  # compute capability; None: interpret


def preload() -> None:
    """Compile and load the library; torch asks for these objects once, when it is first imported."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None and "torch" not in sys.modules
    root = Path(spec.origin).parent
    with TemporaryDirectory() as directory:
        source, library = Path(directory) / "gpu.cpp", Path(directory) / "gpu.so"
        source.write_text(LIBRARY)
        paths = [
            f"-I{root / 'include'}",
            f"-L{root / 'lib'}",
            f"-Wl,-rpath,{root / 'lib'}",
        ]
        python = f"-I{sysconfig.get_path('include')}"
        command = [
            "g++",
            "-std=c++20",
            "-shared",
            "-fPIC",
            "-O0",
            str(source),
            "-o",
            str(library),
            python,
            *paths,
        ]
        subprocess.run([*command, "-ltorch_cpu", "-lc10"], check=True)
        for path in (root / "lib/libc10.so", root / "lib/libtorch_cpu.so", library):
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def simulate_gpu(capability: tuple[int, int]) -> None:
    """Let torch's Python functions describe a GPU, and compile nothing ahead."""
    import torch
    import triton
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import config
    from torch._inductor.fx_passes import joint_graph, post_grad
    from torch._inductor.runtime import triton_helpers
    from triton.backends.compiler import GPUTarget

    properties = SimpleNamespace(
        name="simulated", major=capability[0], minor=capability[1], multi_processor_count=108, warp_size=32,
        max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536, total_memory=80 << 30,
        shared_memory_per_block=48 << 10, shared_memory_per_block_optin=163 << 10, L2_cache_size=40 << 20,
        gcnArchName="",
    )  # fmt: skip
    number = 10 * capability[0] + capability[1]

    def gives(value: Any = None) -> Callable[..., Any]:
        """A new function each time: torch distinguishes them."""
        return lambda *_, **__: value

    replaced: dict[Any, dict[str, Any]] = {
        torch.cuda: {
            "is_available": gives(True), "device_count": gives(1), "current_device": gives(0),
            "get_device_capability": gives(capability), "get_device_properties": gives(properties),
            "get_rng_state": gives(torch.zeros(1)), "set_rng_state": gives(), "synchronize": gives(),
            "set_device": gives(), "_DeviceGuard": gives(nullcontext()), "_lazy_init": gives(),
            "_exchange_device": gives(0), "_maybe_exchange_device": gives(0),
            "is_bf16_supported": gives(True),
        },
        torch._C: {"_cuda_getCurrentRawStream": gives(0)},
        CudaInterface: {
            name: staticmethod(gives(value))
            for name, value in {
                "is_available": True, "get_compute_capability": number, "raise_if_triton_unavailable": None,
                "set_device": None, "maybe_exchange_device": 0, "exchange_device": 0, "current_device": 0,
                "device_count": 1, "get_device_properties": properties,
            }.items()
        },
        CudaInterface.Worker: {
            "get_device_properties": staticmethod(gives(properties)),
            "current_device": staticmethod(gives(0)),
        },
        # Without passes that would compute with constants on the GPU.
        config: {
            "compile_threads": 1, "force_disable_caches": True, "pattern_matcher": False,
            "joint_graph_constant_folding": False,
        },
        joint_graph: {"lazy_init": gives()},
        post_grad: {"lazy_init": gives()},
        triton_helpers: {"set_driver_to_gpu": gives()},
    }  # fmt: skip
    for place, values in replaced.items():
        for name, value in values.items():
            setattr(place, name, value)
    driver = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", number, 32),
        get_current_device=gives(0),
        get_device_capability=gives(capability),
    )
    triton.runtime.driver.set_active(driver)


class InterpretedKernel:
    """A kernel as the module of Inductor sees it; `run` interprets it with tensors on the CPU."""

    def __init__(self, name: str, source: str, directory: Path) -> None:
        from torch._inductor.runtime import triton_heuristics

        def keep(*_: Any, **options: Any) -> Callable[[Any], Any]:
            self.options = options

            def kept(function: Any) -> Any:
                self.function = function
                return function

            return kept

        decorators = ("template", "pointwise", "persistent_reduction", "reduction")
        before = {
            decorator: getattr(triton_heuristics, decorator) for decorator in decorators
        }
        for decorator in decorators:
            setattr(triton_heuristics, decorator, keep)
        path = (
            directory / f"{name}.py"
        )  # Triton reads the source of its functions from files
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        for decorator, value in before.items():
            setattr(triton_heuristics, decorator, value)
        self.name = name
        self.signature: dict[str, str] = self.options["triton_meta"]["signature"]

    @property
    def of_flex(self) -> bool:
        return (
            "flex_attention" in self.name
            and self.options["inductor_meta"]["grid_type"] == "FixedGrid"
        )

    def run(self, *arguments: Any, stream: Any) -> None:
        about = self.options["inductor_meta"]
        if about["grid_type"] == "FixedGrid":
            own = len(about["extra_launcher_args"])
            self.function[arguments[-own:]](*arguments[:-own])
        else:
            assert about["grid_type"] == "Grid1D"
            sizes = dict(zip(self.signature, arguments, strict=False))
            block = 32 if "r0_numel" in sizes else 1024
            self.function[(-(-sizes["xnumel"] // block),)](*arguments, XBLOCK=block)

    def shared_memory(self, capability: tuple[int, int]) -> int:
        """Compile to machine code; return the bytes of shared memory that it needs."""
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        pointers = [
            number
            for number, kind in enumerate(self.signature.values())
            if kind.startswith("*")
        ]
        aligned = {(number,): [["tt.divisibility", 16]] for number in pointers}
        source = ASTSource(self.function, dict(self.signature), {}, attrs=aligned)
        options = {name: self.options[name] for name in ("num_warps", "num_stages")}
        target = GPUTarget("cuda", 10 * capability[0] + capability[1], 32)
        compiled = triton.compile(source, target=target, options=options)
        assert len(compiled.asm["cubin"]) > 1000
        return int(compiled.metadata.shared)


class Simulation:
    """Tensors on the simulated GPU with their data on the CPU, and the kernels that torch has compiled."""

    def __init__(self, directory: Path, interpret: bool) -> None:
        from torch._inductor.async_compile import AsyncCompile
        from torch._inductor.codecache import PyCodeCache

        self.data: dict[int, Any] = {}  # by storage of the tensor without data
        self.kept: list[Any] = []
        self.kernels: list[InterpretedKernel] = []
        self.interpret = interpret

        def kernel(_: Any, name: str, source: str, device_str: str = "cuda") -> Any:
            self.kernels.append(InterpretedKernel(name, source, directory))
            return (
                self.kernels[-1]
                if interpret
                else SimpleNamespace(run=lambda *_, **__: None)
            )

        AsyncCompile.triton = kernel  # type: ignore[assignment]
        load = PyCodeCache.load_by_key_path

        def loaded(key: str, path: str, *others: Any, **named: Any) -> Any:
            text = Path(path).read_text()
            if "def call(" not in text:
                return load(key, path, *others, **named)
            on_cpu = "lambda size, stride, dtype: __import__('torch').empty_strided(size, stride, dtype=dtype)"
            text = text.replace("torch._C._dynamo.guards._empty_strided_cuda", on_cpu)
            text = text.replace("copy_if_misaligned(", "(").replace(
                "assert_size_stride(", "(lambda *_: None)("
            )
            Path(path).write_text(text)
            module = load(key, path, *others, **named)
            module.call = self.called(module.call)
            return module

        PyCodeCache.load_by_key_path = loaded  # type: ignore[method-assign, assignment]

    def on_gpu(self, x: Any) -> Any:
        """A tensor on the simulated GPU with the data of `x`; anything else as it is."""
        import torch

        if not isinstance(x, torch.Tensor):
            return x
        made = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device="cuda")
        self.data[made.untyped_storage()._cdata] = x
        self.kept.append(made)  # its storage must not be used again
        return made

    def on_cpu(self, x: Any) -> Any:
        """The data of a tensor on the simulated GPU, which may be a view of the one from `on_gpu`."""
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        if not isinstance(x, torch.Tensor):
            return x
        place = (
            x.untyped_storage()._cdata,
            tuple(x.size()),
            tuple(x.stride()),
            x.storage_offset(),
        )
        with _disable_current_modes():
            return self.data[place[0]].as_strided(*place[1:])

    def called(self, call: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        from torch.utils._python_dispatch import _disable_current_modes

        def on_data(arguments: list[Any]) -> tuple[Any, ...]:
            given = [self.on_cpu(x) for x in arguments]
            with _disable_current_modes():
                results = call(given)
            return tuple(self.on_gpu(x) for x in results)

        return on_data


@contextmanager
def simulated(case: Case) -> Iterator[Simulation]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with TemporaryDirectory() as directory:
        simulation = Simulation(Path(directory), case.compile_for is None)
        with FakeTensorMode(allow_non_fake_inputs=True):
            yield simulation


def main(case: Case) -> dict[str, Any]:
    """Return largest deviations of output and gradients from dense attention, or kernels' shared memory."""
    import torch
    from torch.utils._pytree import tree_map

    from bigbird_dna.attention import flex
    from bigbird_dna.attention.call import Call, dense_attention
    from bigbird_dna.attention.pattern import Pattern

    pattern, dtype = Pattern(**case.pattern), getattr(torch, case.dtype)
    shape = (len(case.lengths), case.heads, max(case.lengths), case.width)
    source = torch.Generator().manual_seed(0)
    q, k, v, upper = (torch.randn(shape, generator=source).to(dtype) for _ in range(4))
    call = Call(q, k, v, pattern, tuple(case.lengths), 1)
    for row, end in enumerate(case.lengths):
        upper[row, :, end:] = 0
    lists, weights = flex.make_lists(call, case.gradients)
    ends = torch.tensor(case.lengths, dtype=torch.int32)
    build = flex.kernel_build(pattern.block_size, case.width, dtype, 163 << 10)
    with simulated(case) as simulation:
        leaves = [
            simulation.on_gpu(x).requires_grad_(case.gradients) for x in (q, k, v)
        ]
        given = tree_map(simulation.on_gpu, (lists, weights, ends))
        out = flex.compiled_attention(False)(*leaves, *given, build, pattern.causal)
        results = [out]
        if case.gradients:
            results += torch.autograd.grad(out, leaves, simulation.on_gpu(upper))
    if case.compile_for is not None:
        kernels = {
            kernel.name: kernel for kernel in simulation.kernels if kernel.of_flex
        }
        return {
            name: kernel.shared_memory(case.compile_for)
            for name, kernel in kernels.items()
        }
    own = [x.float().requires_grad_() for x in (q, k, v)]
    dense = dense_attention(call._replace(q=own[0], k=own[1], v=own[2]))
    wanted = [dense, *torch.autograd.grad(dense, own, upper.float())]
    seen = (upper != 0).any(-1, keepdim=True)
    pairs = zip(("output", "q", "k", "v"), results, wanted, strict=False)
    deviations = {}
    for name, mine, expected in pairs:
        of = seen if name == "output" else 1
        deviations[name] = float(
            ((simulation.on_cpu(mine) - expected) * of).abs().max()
            / expected.abs().max()
        )
    return deviations


if __name__ == "__main__":
    given_case = Case(**json.loads(sys.argv[1]))
    if given_case.compile_for is None:
        os.environ["TRITON_INTERPRET"] = "1"
    preload()
    simulate_gpu(tuple(given_case.compile_for or (8, 0)))
    print(json.dumps(main(given_case)), flush=True)
    os._exit(0)  # at exit Triton's bindings would report their leaks
