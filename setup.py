"""Compile the C++ kernels into the wheel if $BIGBIRD_DNA_BUILD_KERNELS is 1; see also pyproject.toml.

A failed compilation then ends the build. Such a wheel depends on the platform, and on no version of Python or
PyTorch. Other builds need no compiler: the package compiles the kernels on first use.
"""

import os
import platform
import sys
import sysconfig
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
WITH_KERNELS = os.environ.get("BIGBIRD_DNA_BUILD_KERNELS", "") == "1"


class KernelDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return WITH_KERNELS or super().has_ext_modules()


class KernelBuild(build_py):
    def run(self) -> None:
        super().run()
        if WITH_KERNELS and not self.editable_mode:
            compile_kernels(Path(self.build_lib))


class KernelWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        tag = super().get_tag()
        return ("py3", "none", tag[2]) if WITH_KERNELS else tag


def compile_kernels(build: Path) -> None:
    """Compile every source for all processors of the target machine."""
    sys.path.insert(0, str(ROOT))
    from bigbird_dna.disk import native_library as native

    machine = sysconfig.get_platform().rpartition("-")[
        2
    ]  # of the wheel, which may differ from this machine
    if machine not in native.VARIANTS:
        sys.exit(
            f"BIGBIRD_DNA_BUILD_KERNELS=1: the machine {machine} is none of {', '.join(native.VARIANTS)}"
        )
    home = build / native.SHIPPED.relative_to(ROOT)
    home.mkdir(parents=True, exist_ok=True)
    try:
        compiler = native.find_compiler()
        if platform.system() == "Darwin":
            compiler += ["-arch", machine]
        for path in sorted((ROOT / "bigbird_dna").rglob("*.cpp")):
            source = path.read_bytes()
            for variant in native.VARIANTS[machine]:
                target = home / native.library_name(source, variant)
                native.compile_library(compiler, source, target, [variant.option])
    except native.BuildError as error:
        sys.exit(f"BIGBIRD_DNA_BUILD_KERNELS=1: {error}")


setup(
    distclass=KernelDistribution,
    cmdclass={"build_py": KernelBuild, "bdist_wheel": KernelWheel},
)
