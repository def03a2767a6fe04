"""The image's two definitions and the conda environment, as far as they can be checked without building."""

import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from snakemake.deployment.singularity import Singularity, shellcmd

from tests import tiny_run
from tests.conftest import REPOSITORY
from tests.toys import checksums
from tests.workflow.dry_runs import TABLE, dry_run, overlay, rules, snakemake

ENVS = REPOSITORY / "workflow/envs"
# The CUDA that PyPI's build of a release of torch brings, and the driver that NVIDIA names for it.
CUDA = {"2.13.0": ("13.0", "580.65")}


class Image(NamedTuple):
    """What a definition says: base, files and where they go, the commands that install, and labels."""

    base: str
    files: dict[str, str]
    commands: list[str]
    labels: dict[str, str]


def apptainer() -> Image:
    text = (ENVS / "bigbird-dna.def").read_text()
    head, *parts = re.split(r"^%(\w+)\n", text, flags=re.MULTILINE)
    sections = {
        name: [line.strip() for line in body.splitlines() if line.strip()]
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }
    assert set(sections) == {"files", "post", "test", "labels"}
    keys = dict(
        line.split(": ")
        for line in head.splitlines()
        if line and not line.startswith("#")
    )
    assert keys["Bootstrap"] == "docker" and set(keys) == {"Bootstrap", "From"}
    pairs = [line.split(maxsplit=1) for line in sections["labels"]]
    return Image(
        keys["From"],
        dict(line.split() for line in sections["files"]),
        sections["post"],
        {key: value for key, value in pairs},
    )


def docker() -> Image:
    text = re.sub(r"\\\n\s*", "", (ENVS / "Dockerfile").read_text())
    lines = [
        line.split(" ", 1)
        for line in text.splitlines()
        if line and not line.startswith("#")
    ]
    assert lines[0][0] == "FROM" and {word for word, _ in lines} == {
        "FROM",
        "COPY",
        "RUN",
        "LABEL",
    }
    (run,) = (rest for word, rest in lines if word == "RUN")
    (labels,) = (rest for word, rest in lines if word == "LABEL")
    return Image(
        lines[0][1],
        dict(rest.split() for word, rest in lines if word == "COPY"),
        [
            command
            for command in run.split(" && ")
            if command != "bigbird-dna --version"
        ],
        dict(re.findall(r'(\S+?)="([^"]*)"', labels)),
    )


def pinned(name: str) -> str:
    found = re.search(
        rf"^{name}==(\S+)$", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE
    )
    assert found
    return found[1]


def test_both_definitions_make_the_same_image() -> None:
    one, other = apptainer(), docker()
    assert one == other._replace(
        commands=[command.strip() for command in other.commands]
    )
    assert re.fullmatch(r"python:3\.11-slim-\w+", one.base)
    assert "g++" in " ".join(one.commands)
    assert one.commands[-1].endswith(
        "-c /opt/bigbird-dna/constraints.txt /opt/bigbird-dna"
    )
    for source, target in one.files.items():
        assert (REPOSITORY / source).exists() and target == f"/opt/bigbird-dna/{source}"
    # What the build of the package reads.
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "bigbird_dna",
        "resources",
    } <= set(one.files)


@pytest.mark.parametrize("image", [apptainer, docker])
def test_an_image_says_the_torch_and_the_driver_of_its_pins(image: object) -> None:
    assert callable(image)
    labels = image().labels
    cuda, driver = CUDA[pinned("torch")]
    assert (labels["torch"], labels["cuda"], labels["nvidia-driver"]) == (
        pinned("torch"),
        cuda,
        f">={driver}",
    )
    for path in (ENVS / "conda.yaml", REPOSITORY / "docs/howto/containers.md"):
        text = path.read_text(encoding="utf-8")
        assert f"CUDA {cuda}" in text and driver in text, path


def test_the_workflow_names_the_image() -> None:
    (path,) = re.findall(
        r'^IMAGE = "(.*)"$',
        (REPOSITORY / "workflow/Snakefile").read_text(),
        re.MULTILINE,
    )
    assert "\ncontainer: IMAGE\n" in (REPOSITORY / "workflow/Snakefile").read_text()
    assert (
        f"apptainer build {path} workflow/envs/bigbird-dna.def"
        in (ENVS / "bigbird-dna.def").read_text()
    )
    page = (REPOSITORY / "docs/howto/containers.md").read_text(encoding="utf-8")
    assert f"apptainer build {path} workflow/envs/bigbird-dna.def" in page
    assert (
        "docker build -f workflow/envs/Dockerfile" in page
        and "conda env create -f workflow/envs/" in page
    )


def test_the_conda_environment_has_the_pinned_versions() -> None:
    environment = yaml.safe_load((ENVS / "conda.yaml").read_text())
    assert set(environment) == {"name", "channels", "dependencies"}
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    *packages, last = environment["dependencies"]
    assert packages == ["python=3.11", "gxx", "pip"]
    constraint, package = last["pip"]
    option, path = constraint.split()
    assert (
        option == "--constraint"
        and (ENVS / path).resolve() == REPOSITORY / "constraints.txt"
    )
    assert (ENVS / package.removesuffix("[slurm]")).resolve() == REPOSITORY


# Rules in the container image, of which a stand-in for Apptainer runs the commands on this machine


STANDIN = REPOSITORY / "tests/cluster/standin"
IMAGE = "workflow/envs/bigbird-dna.sif"
DEPLOYED = ("--software-deployment-method", "apptainer", "--apptainer-args=--nv")


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(STANDIN), *os.get_exec_path()]))


def test_trainings_enter_the_image_by_themselves_with_the_words_of_other_rules(
    standin: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On several nodes `srun` has to start a container on each, and no image has it."""
    home = tmp_path / "a b"
    home.mkdir()
    tables = {"models": [{"name": "longer", "tokens": 256}]}
    labeled = {"data": str(TABLE)}
    config = overlay(
        home,
        {
            "num_gpus": 2,
            "tables": tables,
            "sequences": labeled,
        },
    )
    text = dry_run(home, *DEPLOYED, *config, "--", "all", "table5", "ablation")
    monkeypatch.chdir(home)
    Singularity().check()
    expected = shlex.split(shellcmd(IMAGE, "true", args="--nv"))[:-3]
    assert expected == ["apptainer", "exec", "--home", str(home), "--nv", IMAGE]
    found = {}
    for job in re.split(r"^(?:local)?rule ", text, flags=re.MULTILINE)[1:]:
        if started := re.search(
            r"^Shell command: (?:printenv .*?; )?(apptainer .*)$", job, re.MULTILINE
        ):
            words = shlex.split(started[1])
            program = words[len(expected) :]
            assert words[: len(expected)] == expected and program[0] == "python"
            found[job.split(":")[0]] = "--nproc-per-node=2" in program
    launched = {
        name for name, rule in rules().items() if "{params.launch}" in rule["shell"]
    }
    experiments = {"table5", "ablation"}
    launched.remove("finetune_promoter")  # of models of windows
    assert set(found) == launched | experiments
    assert {name for name, several in found.items() if several} == {"pretrain"}
    assert all("AROUND_TRAINING" in rules()[name]["container"] for name in launched)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_in_the_image_ends_in_the_same_model(
    standin: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name, words in (("outside", ()), ("inside", DEPLOYED)):
        home = tmp_path / name
        home.mkdir()
        told = home / "told"
        monkeypatch.setenv("TOLD", str(told))
        (home / "run.yaml").write_text(
            yaml.safe_dump({**tiny_run.WHOLE, "results": "out"})
        )
        done = snakemake(
            home, "--configfile", home / "run.yaml", "--until", "pretrain", *words
        )
        assert done.code == 0, done.out + done.err
        found.append(checksums(home / "out/models/pretrained"))
        lines = told.read_text().splitlines() if told.exists() else []
        entered = [
            line for line in lines if line.startswith(f"exec\t--home\t{home}\t--nv\t")
        ]
        trained = [
            line
            for line in lines
            if "\tpretrain\t" in line and "\t--checkpoint-dir\t" in line
        ]
        assert len(trained) == len(words[:1]) and (not words or len(entered) > 4)
        assert all(f"\t{IMAGE}\t" in line for line in entered)
        assert all(
            f"\t{IMAGE}\tpython\t-m\ttorch.distributed.run\t--standalone\t" in line
            for line in trained
        )
    assert found[0] == found[1] and len(found[0]) > 3
