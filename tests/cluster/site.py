"""The shipped Slurm profile with a site filled in, as its reader would; and a Slurm of the tests' own."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
import yte

from tests.conftest import REPOSITORY

PROFILE = REPOSITORY / "profiles/slurm/config.yaml"
EXECUTOR = "executor", "slurm-requeue"
"""Keys that need the plugin; without them the same profile runs, or plans, on this machine."""


def filled_in(**site: object) -> dict[str, Any]:
    """The profile as Snakemake reads it, with some keys of the site at its head set."""
    text = PROFILE.read_text(encoding="utf-8")
    for key, value in site.items():
        text, found = re.subn(
            rf"^  {key}: .*$", f"  {key}: {value!r}", text, count=1, flags=re.MULTILINE
        )
        assert found == 1, key
    profile: dict[str, Any] = yte.process_yaml(text, require_use_yte=True)
    return profile


def site_keys() -> dict[str, Any]:
    """The keys of the site, as shipped."""
    keys: dict[str, Any] = yaml.safe_load(PROFILE.read_text(encoding="utf-8"))[
        "__variables__"
    ]
    return keys


def gpu_rules(profile: dict[str, Any]) -> set[str]:
    """The rules that the profile sends to the partition with GPUs."""
    cpu = profile["default-resources"]["slurm_partition"]
    given = profile["set-resources"].items()
    return {rule for rule, values in given if values.get("slurm_partition", cpu) != cpu}


def write(directory: Path, profile: dict[str, Any]) -> Path:
    """Write a profile into a directory, which is given."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.yaml").write_text(yaml.safe_dump(profile), encoding="utf-8")
    return directory


SCRIPT = Path(__file__).with_name("slurm.sh")
# Trainings get as many threads as they get on this machine alone: other numbers round otherwise.
SITE = {"gpu_type": "", "training_cpus": 2, "gpu_cpus": 1, "training_minutes": 60}
# Of a Slurm without accounting, and of a machine where nobody wants to wait.
QUICK = {
    "slurm-status-command": "squeue",
    "slurm-init-seconds-before-status-checks": 2,
    "seconds-between-status-checks": 2,
    "latency-wait": 10,
    "jobs": 2,
    "retries": 9,
}


def profiles() -> dict[str, dict[str, Any]]:
    """The shipped profile with a site filled in: a node with two stand-ins, and no cluster at all."""
    profile = filled_in(**SITE) | QUICK
    for rule in gpu_rules(profile):
        # `gpu` says where models run, `gres` what Slurm hands out. In a job no cap on all of `gpu` is known.
        cards = 2 if rule == "pretrain" else 1
        profile["set-resources"][rule] |= {"gpu": 0, "gres": f"'gpu:standin:{cards}'"}
    alone = {
        key: value
        for key, value in profile.items()
        if key not in EXECUTOR and key not in QUICK
    }
    return {"alone": alone | {"cores": 2}, "cluster": profile}


def start(directory: Path, nodes: int) -> Callable[[], None]:
    """Start Slurm, or skip with the reason why it can't be; gives what stops it."""
    if importlib.util.find_spec("snakemake_executor_plugin_slurm") is None:
        pytest.skip(
            "the extra `slurm` isn't installed: pip install -c constraints.txt -e '.[slurm]'"
        )
    words = [SCRIPT, "start", directory, str(nodes)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return lambda: subprocess.run([SCRIPT, "stop", directory], check=True) and None


def snakemake(
    home: Path, profile: Path, *words: str | Path
) -> subprocess.CompletedProcess[str]:
    """Run Snakemake in a directory with a profile."""
    with begin(home, profile, *words) as process:
        out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def begin(home: Path, profile: Path, *words: str | Path) -> subprocess.Popen[str]:
    """Begin what `snakemake` does."""
    path = os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()])
    return subprocess.Popen(
        [sys.executable, "-m", "snakemake", "--workflow-profile", profile, *words],
        cwd=home,
        env={
            **os.environ,
            "PATH": path,
            "PYTHONPATH": str(REPOSITORY),
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def snakemake_log(home: Path) -> str:
    """What Snakemake wrote of its runs in a directory, with every command; a terminal has a line a job."""
    return "".join(
        path.read_text() for path in sorted((home / ".snakemake" / "log").glob("*.log"))
    )


def slurm(*words: str) -> str:
    """What a command of Slurm prints; nothing where it fails, as for a job that has just ended."""
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def preempt() -> None:
    """Submit a job of another partition that wants the whole node, for which the others make way."""
    what = ("--partition=prio", "--exclusive", "--output=/dev/null", "--mem=100")
    slurm("sbatch", *what, "--wrap=sleep 2")
