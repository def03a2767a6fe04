"""Names of directories, files and contigs are data: no shell runs them, no program takes them for options."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigbird_dna.config.reading import load_config
from bigbird_dna.config.run import stage_values
from tests import tiny_run
from tests.conftest import REPOSITORY
from tests.workflow.dry_runs import snakemake

PLAIN = "ordinary"
RESULTS = [
    'my run\'s "one"',
    "a;touch PWNED|touch PWNED&b",
    "r$(touch PWNED)`touch PWNED`",
    "a*b?[c]é🧬\\b%s%d,b=c",
    "#x $HOME",
    "!x",
    "../up",
]
CONTIGS = ["$(touch${IFS}PWNED)", "HLA🧬A*01:01';touch${IFS}PWNED;'{stage}"]
OWN = "it's $(touch PWNED) & %s"
"""A folder of the user's own files, and what their names start with."""

STUB = """
bigbird-dna() { printf '%s\\0' "$@" $'\\1' >> "$RECORD"; }
python() { bigbird-dna python "$@"; }
"""


def demo(**changed: Any) -> dict[str, Any]:
    """The demo's configuration with other values for whole keys."""
    values: dict[str, Any] = yaml.safe_load(
        (REPOSITORY / "workflow/config/demo.yaml").read_text()
    )
    return values | changed


def own_files(home: Path, name: str, contigs: list[str]) -> dict[str, Any]:
    """A configuration whose files are the user's own but for two that are fetched; they are made."""
    local = home / f"{name} data"
    (local / f"{name}.peaks").mkdir(parents=True)
    for kind in ("fa", "vcf", "bed", "tsv"):
        (local / f"{name}.{kind}").touch()
    values = demo(results=name, data_dir=str(local))
    values["genome"] |= {
        "reference": f"{name}.fa",
        "aliases": f"{name}.tsv",
        "assembly": "GRCh37",
        "valid": contigs[1:],
        "test": contigs[:1],
    }
    values["promoters"] |= {"source": "GRCh38.promoters", "chain": "GRCh37.chain"}
    values["chromatin"] |= {"variants": f"{name}.vcf"}
    values["chromatin"]["data"] |= {
        "tracks": f"{name}.peaks",
        "blacklist": f"{name}.bed",
    }
    return values


class Workflow:
    """One Snakefile that runs a workflow for each of several configurations."""

    def __init__(self, home: Path, configurations: list[dict[str, Any]]) -> None:
        self.home = home
        self.path = home / "Snakefile"
        self.count = len(configurations)
        (home / "runs.json").write_text(json.dumps(configurations))
        modules = [
            f"module run{number}:\n    snakefile: {str(REPOSITORY / 'workflow/Snakefile')!r}\n"
            f"    config: RUNS[{number}]\nuse rule * from run{number} as run{number}_*\n"
            for number in range(self.count)
        ]
        self.path.write_text(
            "\n".join(["import json", "RUNS = json.load(open('runs.json'))", *modules])
        )

    def run(self, *arguments: str) -> str:
        outcome = snakemake(self.home, *arguments, snakefile=self.path)
        assert outcome.code == 0, outcome.out[-3000:] + outcome.err[-3000:]
        return outcome.out + outcome.err

    def commands(self) -> list[dict[str, str]]:
        """The shell commands of each run's whole workflow, by the name of the job's log."""
        text = self.run(
            "--dry-run",
            "--printshellcmds",
            *(f"run{number}_all" for number in range(self.count)),
        )
        found: list[dict[str, str]] = [{} for _ in range(self.count)]
        for job in re.split(r"^(?:local)?rule (?=run)", text, flags=re.MULTILINE)[1:]:
            rule = re.match(r"run(\d+)_(\w+):\n", job)
            command = re.search(
                r"^Shell command: (.*?)\n\n", job, re.DOTALL | re.MULTILINE
            )
            log = re.search(r"^    log: .*/(.*)$", job, re.MULTILINE)
            assert rule
            if rule[2] != "all":
                assert command and log, job
                found[int(rule[1])][log[1]] = command[1]
        return found


def words(commands: dict[str, str], results: str, home: Path) -> dict[str, list[str]]:
    """What `bigbird-dna` is told by each command and what `printf` writes, as bash reads the command."""
    told = {}
    directory = home / "here"
    for place in ("logs", "report", "config"):
        (directory / results / place).mkdir(parents=True, exist_ok=True)
    script = [STUB]
    for number, command in enumerate(commands.values()):
        script.append(f"RECORD={number}.words; : > $RECORD; {command}")
    subprocess.run(
        ["bash", "-euo", "pipefail"],
        input="\n".join(script),
        text=True,
        cwd=directory,
        check=True,
    )
    for number, name in enumerate(commands):
        told[name] = (directory / f"{number}.words").read_text().split("\0")[:-1]
        if name.startswith("config-"):
            stage = name.removeprefix("config-").removesuffix(".log")
            told[name] = [(directory / results / f"config/{stage}.yaml").read_text()]
    return told


@pytest.fixture(scope="module")
def runs(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Workflow, list[dict[str, str]]]:
    """Runs with every name of a directory, and the commands of each; the first has a plain one."""
    home = tmp_path_factory.mktemp("names of runs") / "in"
    home.mkdir()
    workflow = Workflow(home, [demo(results=name) for name in [PLAIN, *RESULTS]])
    return workflow, workflow.commands()


def test_every_command_is_told_the_name_of_the_directory_and_runs_nothing_of_it(
    runs: tuple[Workflow, list[dict[str, str]]], tmp_path: Path
) -> None:
    _, commands = runs
    expected = words(commands[0], PLAIN, tmp_path / PLAIN)
    assert expected["simulate.log"][:2] == ["simulate", f"{PLAIN}/simulated"]
    assert all(
        line[-1] == "\1" or line[-1].endswith("}\n") for line in expected.values()
    )
    for number, name in enumerate(RESULTS, 1):
        told = words(commands[number], name, tmp_path / str(number))
        assert told == {
            log: [word.replace(PLAIN, name) for word in line]
            for log, line in expected.items()
        }
    assert not list(tmp_path.rglob("PWNED"))


def test_files_and_logs_of_such_names_are_made(
    runs: tuple[Workflow, list[dict[str, str]]],
) -> None:
    workflow, _ = runs
    workflow.run("--quiet", "--", *(f"{name}/config/tokens.yaml" for name in RESULTS))
    for name in RESULTS:
        directory = workflow.home / name
        made = {
            str(path.relative_to(directory))
            for path in directory.rglob("*")
            if path.is_file()
        }
        assert made == {
            "config/tokens.yaml",
            "logs/config-tokens.log",
            "benchmarks/config-tokens.tsv",
        }
        assert stage_values(load_config(directory / "config/tokens.yaml"), "tokens")
    assert not list(workflow.home.parent.rglob("PWNED"))


def test_names_of_the_user_s_own_files_and_contigs_are_whole_words(
    tmp_path: Path,
) -> None:
    runs = {PLAIN: ["contig-of-validation", "contig-of-test"], OWN: CONTIGS}
    home = tmp_path / "in"
    home.mkdir()
    commands = Workflow(
        home, [own_files(home, *run) for run in runs.items()]
    ).commands()
    expected, told = (
        words(each, name, tmp_path / name)
        for each, name in zip(commands, runs, strict=True)
    )
    meant = {
        PLAIN: OWN,
        "contig-of-validation": CONTIGS[0],
        "contig-of-test": CONTIGS[1],
    }
    for log, line in expected.items():
        for plain, own in meant.items():
            line = [word.replace(plain, own) for word in line]
        assert told[log] == line
    assert (
        f"--local-data={home}/{OWN} data"
        in told["prepare-fetch-hg38ToHg19.over.chain.gz.log"]
    )
    assert f"{home}/{OWN} data/{OWN}.tsv" in told["prepare-reference.log"]
    assert f'genome.aliases="{home}/{OWN} data/{OWN}.tsv"' in told["prepare-tokens.log"]
    assert not list(tmp_path.rglob("PWNED"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_whole_run_in_a_directory_of_such_a_name(tmp_path: Path) -> None:
    name = "my run's $(touch PWNED) #1"
    home = tmp_path / "a home; touch PWNED"
    home.mkdir()
    (home / "mine.yaml").write_text(yaml.safe_dump({"results": name, **tiny_run.WHOLE}))
    configured = ("--configfile", home / "mine.yaml")
    report = home / name / "report.html"
    for arguments in (
        configured,
        (*configured, "--report", home / name / "snakemake.html"),
    ):
        outcome = snakemake(home, "--cores", "2", *arguments)
        assert outcome.code == 0, outcome.out + outcome.err
    assert (
        (home / name / "report/summary.txt")
        .read_text()
        .endswith(f"Report: {name}/report.html\n")
    )
    assert (
        "my run" not in report.read_text()
        and "<h2>Chromatin</h2>" in report.read_text()
    )
    assert (home / name / "snakemake.html").stat().st_size > 1_000_000
    assert not list(tmp_path.rglob("PWNED"))


def test_every_interpolation_is_quoted_or_a_number() -> None:
    """What a shell reads as more than data must not be left to the values that a rule happens to have."""
    fields = []
    for path in (REPOSITORY / "workflow/rules").glob("*.smk"):
        for command in re.findall(
            r"^    shell:\n((?: {8}.*\n)+)", path.read_text(), re.MULTILINE
        ):
            fields += re.findall(r"\{([^{}]*)\}", command)
    numbers = {"threads", "resources.processes", "params.suppress"}
    options = {"resources.data_dir", "params.launch"}  # quoted where they are made
    assert len(fields) > 100
    assert {field for field in fields if not field.endswith(":q")} <= numbers | options
