"""Which library of a source is loaded: one that was shipped, or one that is compiled."""

import ctypes
import platform
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from bigbird_dna.disk import native_library
from bigbird_dna.disk.native_library import (
    VARIANTS,
    BuildError,
    LibraryVariant,
    compile_library,
    find_compiler,
    instructions,
    library_name,
    shipped_library,
)
from tests.golden.messages import fails, message

SOURCE = b'extern "C" int answer() { return VALUE; }'
BEST, COMMON = (
    LibraryVariant("-DVALUE=1", frozenset({"fast"})),
    LibraryVariant("-DVALUE=2"),
)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both variants of the source, as in a wheel."""
    home = tmp_path_factory.mktemp("compiled")
    try:
        compiler = find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    for variant in (BEST, COMMON):
        compile_library(
            compiler, SOURCE, home / library_name(SOURCE, variant), [variant.option]
        )
    return home


@pytest.fixture(autouse=True)
def _machine(shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a compiler whose processor has all instructions, and an empty cache."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("BIGBIRD_DNA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        native_library, "VARIANTS", {platform.machine(): [BEST, COMMON]}
    )
    monkeypatch.setattr(native_library, "SHIPPED", shipped)
    monkeypatch.setattr(
        native_library, "instructions", lambda: frozenset({"fast", "other"})
    )


def accept(library: ctypes.CDLL) -> None:
    pass


def test_the_best_shipped_variant_is_loaded_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert native_library.load_library(SOURCE, accept).answer() == 1
    monkeypatch.setattr(native_library, "instructions", frozenset)
    assert native_library.load_library(SOURCE, accept).answer() == 2


def test_a_library_of_another_source_or_machine_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shipped_library(SOURCE) is not None
    assert shipped_library(SOURCE + b"\n") is None
    with fails(BuildError):
        native_library.load_library(SOURCE + b"\n", accept)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert shipped_library(SOURCE) is None


def test_a_shipped_library_that_does_not_load_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line of the log says so."""
    monkeypatch.undo()
    monkeypatch.setenv("BIGBIRD_DNA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(native_library, "VARIANTS", {platform.machine(): [COMMON]})
    monkeypatch.setattr(native_library, "SHIPPED", tmp_path)
    monkeypatch.setattr(native_library, "FLAGS", [*native_library.FLAGS, "-DVALUE=3"])
    (tmp_path / library_name(SOURCE, COMMON)).write_bytes(bytes(10_000))
    assert native_library.load_library(SOURCE, accept).answer() == 3
    (line,) = capsys.readouterr().err.splitlines()
    message(line, library_name(SOURCE, COMMON))


def test_better_variants_need_more() -> None:
    """On every machine of which wheels are built; names differ."""
    for variants in VARIANTS.values():
        assert len({library_name(SOURCE, variant) for variant in variants}) == len(
            variants
        )
        for better, other in pairwise(variants):
            assert better.needs > other.needs


def test_the_instructions_of_this_processor_are_known() -> None:
    """Those that torch uses are among them."""
    used = {"AVX2": {"avx2", "fma"}, "AVX512": {"avx512f"}}
    assert used.get(torch.backends.cpu.get_cpu_capability(), set()) <= instructions()
