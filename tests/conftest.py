"""Fixtures shared by all tests."""

import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pysam
import pytest
from hypothesis import HealthCheck, settings

from bigbird_dna.cli.main import main
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.simulate import simulate
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.cli.command import Result, Run, words_of_command
from tests.toys import MEGABASES, Demo, lines, random_dna

# What a shell starts in the background ignores Ctrl-C, and so do its children: those of tests shall hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples of one test may write to the same directory.
settings.register_profile(
    "shared-directory",
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("shared-directory")

REPOSITORY = Path(__file__).resolve().parent.parent
# Files that take more than half a minute are first, so that no process waits for another one's at the end.
LONGEST = (
    *(
        "test_processes.py",
        "test_commands_shown.py",
        "test_kills.py",
        "test_workflow.py",
        "test_memory.py",
    ),
    *(
        "test_extending.py",
        "test_known_source.py",
    ),
    *("finetuning/test_chromatin.py", "test_streams.py"),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.split("::")[0].endswith(LONGEST))


def pytest_collection_finish() -> None:
    """What is imported now stays: a training's collections of garbage need not look through it each time."""
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Directory of public real data; tests that want it skip where it is missing."""
    path = Path(
        os.environ.get("BIGBIRD_DNA_DATA", REPOSITORY.parent / "shared" / "data")
    )
    if not path.is_dir():
        pytest.skip(
            f"real data not found at {path}; set BIGBIRD_DNA_DATA to its directory"
        )
    return path


@pytest.fixture(scope="session")
def tiny_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configuration of a miniature run up to its promoter windows; don't write there."""
    from tests import tiny_run

    return tiny_run.make(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    directory = tmp_path_factory.mktemp("demo")
    simulate(directory, seed=3, megabases=MEGABASES)
    with pysam.FastaFile(str(directory / "genome.fa.gz")) as fasta:
        sequences = {name: fasta.fetch(name) for name in fasta.references}
    loci: dict[str, list[tuple[int, int, str, str]]] = {name: [] for name in sequences}
    for contig, start, end, name, _, strand in lines(directory / "loci.bed.gz"):
        loci[contig].append((int(start), int(end), name, strand))
    return Demo(directory, sequences, loci)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> DnaTokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    return DnaTokenizer.train(
        [random_dna(500, seed) for seed in range(60)], path, 96, 6
    )


@pytest.fixture(scope="session")
def make_reference(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Reference]:
    """Write a reference of the given contigs."""

    def make(**contigs: str) -> Reference:
        path: Path = tmp_path_factory.mktemp("reference") / "reference.fa.gz"
        write_fasta(path, contigs.items())
        return Reference(path)

    return make


@pytest.fixture(scope="session")
def reference(make_reference: Callable[..., Reference]) -> Reference:
    """Contigs a (9 kb), b (6 kb, N from 2,000 to 4,000), c (50 bp) and d (2,150 bp, 150 of them N)."""
    b = random_dna(2000, 2) + "N" * 2000 + random_dna(2000, 3)
    d = random_dna(1000, 5) + "N" * 150 + random_dna(1000, 6)
    return make_reference(a=random_dna(9000, 1), b=b, c=random_dna(50, 4), d=d)


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """The command minds signals, and in the end leaves them to the system: here they are pytest's.

    So is the environment of processes, which import from the working directory.
    """
    environment = dict(os.environ)
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    hooks = sys.unraisablehook, sys.excepthook
    try:
        yield
    finally:
        sys.unraisablehook, sys.excepthook = hooks
        if "PYTHONSAFEPATH" not in environment:
            os.environ.pop("PYTHONSAFEPATH", None)
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run `bigbird-dna` with a command (its group and name, a blank between) and its words; what C libraries
    print is caught as well."""

    def call(*words: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["bigbird-dna", *words_of_command(*words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with _handlers_kept(), pytest.raises(SystemExit) as caught:
            main()
        result = Result(int(caught.value.code or 0), *capfd.readouterr())
        assert "Traceback" not in result.err, result.err
        return result

    return call
