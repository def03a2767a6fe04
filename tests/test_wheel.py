"""The wheel with compiled kernels gives the same scores without a compiler; one without them needs none."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.disk.native_library import BuildError, find_compiler
from tests.conftest import REPOSITORY

EXAMPLE = REPOSITORY / "resources/examples/yeast_VII_20kb.fa.gz"
# Scores the example, then prints the compiled libraries that the process has loaded.
SCORE = """
import sys
from pathlib import Path
from bigbird_dna.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
maps = Path("/proc/self/maps").read_text().split()
print(*sorted({word for word in maps if word.endswith(".so") and "/bigbird_dna/compiled/" in word}))
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
Build = Callable[[str], Path]
Scores = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build a wheel of a copy of the repository."""
    source = tmp_path_factory.mktemp("source") / "bigbird_dna"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "compiled")
    for name in ("bigbird_dna", "resources"):
        shutil.copytree(REPOSITORY / name, source / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)

    def call(kernels: str) -> Path:
        target = tmp_path_factory.mktemp("wheel")
        words = (
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
            "-w",
            target,
            source,
        )
        environment = {**os.environ, "BIGBIRD_DNA_BUILD_KERNELS": kernels}
        if not kernels:
            environment["PATH"] = str(target)
        subprocess.run(
            [sys.executable, "-m", "pip", *map(str, words)], check=True, env=environment
        )
        shutil.rmtree(source / "build", ignore_errors=True)
        (wheel,) = target.iterdir()
        return wheel

    return call


def scores(package: Path, place: Path, path: str) -> tuple[Scores, list[str]]:
    """Scores of the example by a package, and the kernels that it loads; programs are found in `path`."""
    place.mkdir()
    output = place / "scores.tsv"
    words = (
        "score-promoters",
        "yeast-promoters-window",
        EXAMPLE,
        "--stride",
        400,
        "--device",
        "cpu",
        "-o",
        output,
    )
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("CXX", "BIGBIRD_DNA_NATIVE")
    }
    environment = {**kept, "PATH": path, "HOME": str(place), "PYTHONPATH": str(package)}
    environment |= {"BIGBIRD_DNA_CACHE": str(place / "cache"), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCORE, *map(str, words)],
        cwd=place,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    rows = [
        row.split("\t")
        for row in output.read_text().splitlines()
        if not row.startswith("##")
    ]
    return np.array([float(row[4]) for row in rows[1:]]), done.stdout.split()


def installed(wheel: Path, target: Path) -> Path:
    words = ("install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel)
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True)
    return target


def test_the_kernels_of_a_wheel_need_no_compiler(build: Build, tmp_path: Path) -> None:
    """They run, and give the scores of kernels that are compiled here."""
    try:
        find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    wheel = build("1")
    assert "-py3-none-" in wheel.name and not wheel.name.endswith("-any.whl")
    target = installed(wheel, tmp_path / "target")
    found, loaded = scores(target, tmp_path / "with", str(tmp_path))
    assert len(loaded) == 2 and all(
        Path(path).is_relative_to(target) for path in loaded
    )
    assert not list((tmp_path / "with/cache").glob("native-*"))
    expected, compiled = scores(REPOSITORY, tmp_path / "compiled", os.environ["PATH"])
    assert (
        compiled == []
        and len(list((tmp_path / "compiled/cache").glob("native-*"))) >= 1
    )
    assert len(found) > 80 and np.ptp(found) > 0.1
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


def test_a_wheel_without_kernels_is_built_and_runs_without_a_compiler(
    build: Build, tmp_path: Path
) -> None:
    wheel = build("")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert not [name for name in names if name.endswith(".so")]
    assert {"bigbird_dna/attention/kernel.cpp", "bigbird_dna/tokens/bpe.cpp"} <= set(
        names
    )
    found, loaded = scores(
        installed(wheel, tmp_path / "target"), tmp_path / "without", str(tmp_path)
    )
    assert loaded == [] and len(found) > 80
