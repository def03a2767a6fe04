"""The site, built once, and directories in which the documentation's commands are run."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pysam
import pytest

from tests.conftest import REPOSITORY


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make docs` fills, built as strictly and with the network out of reach."""
    output = tmp_path_factory.mktemp("site")
    proxies = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    environment = os.environ | dict.fromkeys(proxies, "http://127.0.0.1:9")
    environment |= {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "--site-dir", output],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return output


@pytest.fixture
def example_home(tmp_path: Path) -> Path:
    """A user's directory with the bundled example as `genome.fa`, and variants on it."""
    for name in ("resources", "workflow"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    example = REPOSITORY / "resources/examples/yeast_VII_20kb.fa.gz"
    (tmp_path / "genome.fa").write_bytes(gzip.decompress(example.read_bytes()))
    variants = REPOSITORY / "tests/golden_outputs/variants.vcf"
    (tmp_path / "calls.vcf").write_bytes(variants.read_bytes())
    return tmp_path


@pytest.fixture
def demo_home(tmp_path: Path) -> Path:
    """A user's directory with a finished demo, and files of its genome; skips where nobody has run it."""
    default = REPOSITORY / "results/demo"
    results = Path(os.environ.get("BIGBIRD_DNA_DEMO", default)).resolve()
    if not (results / "report/summary.txt").is_file():
        pytest.skip(f"no demo at {results}; set BIGBIRD_DNA_DEMO to its directory")
    (tmp_path / "results").mkdir()
    (tmp_path / "results/demo").symlink_to(results)
    for name in ("resources", "workflow"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    with pysam.FastaFile(str(results / "genome/reference.fa.gz")) as fasta:
        contig = fasta.fetch("demo6")
    (tmp_path / "genome.fa").write_text(f">demo6\n{contig}\n")
    (tmp_path / "promoters.fa").write_text(f">one\n{contig[8000:8300]}\n")
    (tmp_path / "regions.bed").write_text("demo6\t8000\t8200\tx\n")
    with gzip.open(results / "simulated/variants.vcf.gz", "rt") as variants:
        lines = [line for line in variants if line[0] == "#" or "demo6\t" in line]
    (tmp_path / "calls.vcf").write_text("".join(lines[:40]))
    return tmp_path
