"""What rules compute, and what a run shows: a line per finished job, the log of one that failed."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from bigbird_dna.config.reading import parse_config
from bigbird_dna.config.run import Config
from bigbird_dna.config.section import Section
from bigbird_dna.workflow import (
    given,
    job,
    launcher,
    simulated_test_contigs,
    threads_each,
)
from tests.conftest import REPOSITORY
from tests.docs.blocks import parse
from tests.toys import written
from tests.workflow.dry_runs import (
    dry_run,
    overlay,
    own_genome,
    snakemake,
)
from tests.workflow.test_slurm_profile import DENSITY, LANGUAGE_MODELS, TARGETS


class Resources(SimpleNamespace):
    """A job's resources, as Snakemake hands them to a function."""

    def get(self, name: str, default: int | None = None) -> Any:
        return getattr(self, name, default)


def test_the_program_that_trains_and_its_threads_go_by_the_processes_and_nodes_of_the_job() -> (
    None
):
    one, many = Resources(processes=1), Resources(processes=8, nodes=2)
    assert launcher("")({}, 4, one) == "bigbird-dna"
    assert threads_each({}, 4, one) == 4 and threads_each({}, 4, many) == 1
    node = Resources(processes=8)
    run = "--no-python python -u -P -m bigbird_dna.cli.main"
    expected = (
        f"python -P -m torch.distributed.run --standalone --nproc-per-node=8 {run}"
    )
    assert launcher("")({}, 4, node) == expected
    assert launcher("a b")({}, 4, node) == f"a b {expected}"
    text = launcher("")({}, 4, many)
    assert (
        text.startswith("srun --nodes=2 --ntasks=2 ") and "--nproc-per-node=4" in text
    )


def test_a_job_asks_for_more_each_time() -> None:
    asked: dict[str, Any] = job(2000, 15, gpu=1)
    assert asked["gpu"] == 1 and [
        asked["mem_mb"]({}, attempt) for attempt in (1, 2, 3, 4)
    ] == [*(2000, 3000, 4000, 4000)]


def test_inputs_that_a_run_has_are_options() -> None:
    inputs = {"track_table": "a b.tsv", "splits": [], "chain": ["x", "y"]}
    options = ["--track-table", "a b.tsv", "--chain", "x", "--chain", "y"]
    assert given("track_table", "splits", "chain", "none")({}, inputs) == options
    assert given("track_table", joined=True)({}, inputs) == ["--track-table=a b.tsv"]


def test_effects_are_known_on_the_test_contigs_of_the_simulation() -> None:
    genome = {"valid": ["demo1"], "test": ["demo[56]", "other"]}
    config = parse_config(
        {"genome": genome, "chromatin": {"data": {"tracks": "simulated"}}}
    )
    assert simulated_test_contigs(config) == ["demo5", "demo6", "other"]
    assert (
        simulated_test_contigs(parse_config({"chromatin": {"data": {"tracks": None}}}))
        == []
    )


def test_the_log_of_a_failed_job_is_shown_and_the_configuration_is_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "own.fa").write_text(">one\nACGTACGTAC\n>abrB\nACGT\n>abrB\nACGA\n")
    values = {
        "results": "results",
        "promoters": {"source": str(tmp_path / "tss.bed")},
        "genome": {
            **{
                "assembly": "custom",
                "name": "own",
                "reference": str(tmp_path / "own.fa"),
            },
            **{"valid": ["two"], "test": ["one"]},
        },
    }
    (tmp_path / "tss.bed").write_text("one\t3\t4\tp\t0\t+\n")
    config = written(tmp_path / "own.yaml", yaml.safe_dump(values))
    targets = ("results/config/tokens.yaml", "results/genome/reference.fa.gz")
    done = snakemake(tmp_path, "--keep-going", "--configfile", config, "--", *targets)
    assert done.code == 1
    assert "the name 'abrB' occurs twice" in done.err
    assert "corpus_megabases" not in done.err


def test_a_plan_is_made_without_torch(tmp_path: Path) -> None:
    """Every job on a cluster makes the plan again: what takes seconds to import is not part of it."""
    (tmp_path / "plan.py").write_text(
        "import sys\nfrom snakemake.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "sys.exit(sorted({'torch', 'sklearn', 'matplotlib', 'transformers'} & set(sys.modules)) or 0)\n"
    )
    words = (
        "--snakefile",
        REPOSITORY / "Snakefile",
        "--dry-run",
        "--directory",
        tmp_path,
        "--quiet",
    )
    command = [sys.executable, tmp_path / "plan.py", *words, "--cores", "1"]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# What rules tell the command line is what it knows: commands, their options, and keys of configurations


CHANGED: dict[str, Any] = {
    "chromatin": {"models": 2},
}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The commands of runs that have all rules between them, after the program's name."""
    homes = [tmp_path_factory.mktemp("words") for _ in range(4)]
    runs: list[list[str | Path]] = [
        [*overlay(homes[0], CHANGED | LANGUAGE_MODELS | DENSITY), *TARGETS],
        [
            "--configfile",
            REPOSITORY / "workflow/config/grch37.yaml",
            "--config",
            f"data_dir={homes[1]}",
        ],
        own_genome(homes[2]),
        ["nlp_demo"],
    ]
    text = "".join(
        dry_run(home, *words) for home, words in zip(homes, runs, strict=True)
    )
    written = r"^Shell command: (?:print(?:f|env) .*?; )?"
    program = (
        written
        + r"(?:bigbird-dna|python -P -m torch.*? bigbird_dna\.cli\.main) (.*?) 2?> "
    )
    return set(re.findall(program, text, re.MULTILINE))


def test_the_command_line_knows_every_command_and_option(commands: set[str]) -> None:
    for command in commands:
        try:
            parse(shlex.split(command))
        except Exception as error:
            pytest.fail(f"{command}: {error!r}")


def test_every_key_that_a_command_sets_is_one_of_the_configuration(
    commands: set[str],
) -> None:
    keys = {
        key
        for command in commands
        for key in re.findall(r"--set '?([a-z_.]+)=", command)
    }
    for key in keys:
        section: Any = Config()
        for name in key.split("."):
            if section is not None:  # a section that the defaults don't have
                assert (
                    isinstance(section, Section) and name in type(section).model_fields
                ), key
                section = getattr(section, name)
