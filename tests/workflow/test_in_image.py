"""Rules in the container image, of which a stand-in for Apptainer runs the commands on this machine."""

import os
import re
import shlex
from pathlib import Path

import pytest
import yaml
from snakemake.deployment.singularity import Singularity, shellcmd

from tests import tiny_run
from tests.conftest import REPOSITORY
from tests.faults.test_kills import files
from tests.workflow.dry_runs import STUDY, dry_run, overlay, rules, snakemake

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
    study = {
        **STUDY,
        "train_fractions": [1],
        "seeds": [1],
        "initializations": ["random"],
        "random_long_steps": None,
    }
    tables = {"models": [{"name": "longer", "tokens": 256}]}
    config = overlay(home, {"num_gpus": 2, "pretraining_study": study, "tables": tables})
    text = dry_run(home, *DEPLOYED, *config, "--", "all", "table5", "ablation")
    monkeypatch.chdir(home)
    Singularity().check()
    expected = shlex.split(shellcmd(IMAGE, "true", args="--nv"))[:-3]
    assert expected == ["apptainer", "exec", "--home", str(home), "--nv", IMAGE]
    found = {}
    for job in re.split(r"^(?:local)?rule ", text, flags=re.MULTILINE)[1:]:
        if started := re.search(
            r"^Shell command: (?:printenv .*?; )?(python -m bigbird_dna\.cli\.launch .*)$", job, re.MULTILINE
        ):
            words = shlex.split(started[1])
            (inside,) = (
                word.removeprefix("--container-command=")
                for word in words
                if word.startswith("--container-command=")
            )
            assert shlex.split(inside) == expected
            found[job.split(":")[0]] = "--processes=2" in words
    launched = {name for name, rule in rules().items() if "{params.launch:q}" in rule["shell"]}
    assert set(found) == launched
    assert {name for name, several in found.items() if several} == {"pretrain", "arm_pretraining"}
    assert all("AROUND_TRAINING" in rules()[name]["container"] for name in found)


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
        (home / "run.yaml").write_text(yaml.safe_dump({**tiny_run.WHOLE, "results": "out"}))
        done = snakemake(home, "--configfile", home / "run.yaml", "--until", "pretrain", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        found.append(files(home / "out/models/pretrained"))
        lines = told.read_text().splitlines() if told.exists() else []
        entered = [line for line in lines if line.startswith(f"exec\t--home\t{home}\t--nv\t")]
        trained = [line for line in lines if "\tpretrain\t" in line and "\t--checkpoint-dir\t" in line]
        assert len(trained) == len(words[:1]) and (not words or len(entered) > 4)
        assert all(f"\t{IMAGE}\t" in line for line in entered)
        assert all(
            f"\t{IMAGE}\tpython\t-m\ttorch.distributed.run\t--standalone\t" in line for line in trained
        )
    assert found[0] == found[1] and len(found[0]) > 3
