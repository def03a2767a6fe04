"""The workflow on a Slurm that is set up from scratch: `make test-cluster`; a quarter of an hour on 2 cores.

Two devices that aren't GPUs stand in for some: Slurm hands them out by number, and models run on the CPU.
"""

import os
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from bigbird_dna.disk.directories import MARKER
from tests import tiny_run
from tests.cluster.site import (
    QUICK,
    SITE,
    filled_in,
    preempt,
    profiles,
    slurm,
    snakemake,
    snakemake_log,
    write,
)
from tests.conftest import REPOSITORY
from tests.toys import checksums
from tests.training.kinds import logged

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(7200)]

SEED = int(os.environ.get("BIGBIRD_DNA_SEED", "1"))
# Long enough for checkpoints on the way.
CONFIG: dict[str, Any] = {
    **tiny_run.WHOLE,
    "results": "results",
    "pretraining": {
        **tiny_run.WHOLE["pretraining"],
        **{"steps": 300, "evaluate_every": 100, "checkpoint_minutes": 0.02},
    },
    "chromatin": {
        **tiny_run.WHOLE["chromatin"],
        "training": {
            **tiny_run.WHOLE["chromatin"]["training"],
            **{"steps": 150, "evaluate_every": 50, "checkpoint_minutes": 0.02},
        },
    },
}


class Job(NamedTuple):
    """A job that runs: its number and rule, and when it was seen first."""

    number: str
    rule: str
    seen: float


class Disturber(threading.Thread):
    """Preempts and cancels jobs: the first trainings once they have checkpoints, others at random."""

    def __init__(self, checkpoints: Path) -> None:
        super().__init__(daemon=True)
        self.checkpoints = checkpoints
        self.done: list[tuple[str, str]] = []
        self.ended = threading.Event()
        self._random = random.Random(SEED)
        self._seen: dict[str, float] = {}

    def run(self) -> None:
        while not self.ended.wait(0.5):
            for line in slurm(
                "squeue", "--noheader", "--states=R", "--format=%i|%k|%R"
            ).splitlines():
                number, comment, _ = line.split("|", 2)
                rule = re.sub(r"^rule_|_wildcards_.*$", "", comment)
                self._meet(
                    Job(number, rule, self._seen.setdefault(number, time.time()))
                )

    def _meet(self, job: Job) -> None:
        if ("preempt", job.rule) in self.done or ("cancel", job.rule) in self.done:
            return
        if job.rule == "pretrain":
            if self._has_checkpoint(job):
                self._preempt(job)
        elif job.rule == "finetune_chromatin":
            if self._has_checkpoint(job):
                self._cancel(job)
        elif self._random.random() < 0.02 and len(self.done) < 8:
            self._random.choice((self._preempt, self._cancel))(job)

    def _has_checkpoint(self, job: Job) -> bool:
        # A directory may be renamed or removed while it is looked at.
        try:
            found = [
                path.stat().st_mtime for path in self.checkpoints.rglob("state.pt")
            ]
        except OSError:
            return False
        return any(changed > job.seen for changed in found)

    def _preempt(self, job: Job) -> None:
        preempt()
        self.done.append(("preempt", job.rule))

    def _cancel(self, job: Job) -> None:
        slurm("scancel", job.number)
        self.done.append(("cancel", job.rule))


def results(home: Path) -> dict[str, str]:
    """A run's files but those that say how long something took, or where."""
    found = checksums(home / "results")
    timed = ("logs", "benchmarks", "report.html")
    return {name: sum for name, sum in found.items() if not name.startswith(timed)}


def test_a_demo_whose_jobs_are_preempted_and_cancelled_ends_in_the_same_files(
    one_node: None, tmp_path: Path
) -> None:
    assert MARKER  # what `files` leaves out besides logs of training
    homes = {}
    for name, values in profiles().items():
        homes[name] = tmp_path / name
        write(homes[name] / "profile", values)
        (homes[name] / "mine.yaml").write_text(yaml.safe_dump(CONFIG))
    words = ("--snakefile", REPOSITORY / "Snakefile", "--configfile", "mine.yaml")
    done = snakemake(homes["alone"], homes["alone"] / "profile", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    disturber = Disturber(homes["cluster"] / "results/checkpoints")
    disturber.start()
    done = snakemake(homes["cluster"], homes["cluster"] / "profile", *words)
    disturber.ended.set()
    disturber.join()
    print(done.stderr[-4000:], disturber.done, sep="\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("preempt", "pretrain") in disturber.done and (
        "cancel",
        "finetune_chromatin",
    ) in disturber.done
    assert (
        "resuming at step"
        in (homes["cluster"] / "results/logs/pretrain.log").read_text()
    )
    assert "--nproc-per-node=2" in snakemake_log(homes["cluster"])
    expected, found = results(homes["alone"]), results(homes["cluster"])
    assert {name for name in expected if found.get(name) != expected[name]} == set()
    assert set(found) == set(expected) and len(found) > 50


CARDS = """
rule all:
    input: "1.txt", "2.txt"
rule score_promoters:
    output: "{number}.txt"
    resources: gpu=1, mem_mb=100, runtime=5
    shell: "echo $CUDA_VISIBLE_DEVICES > {output}; sleep 8"
"""


def test_jobs_side_by_side_get_different_gpus_of_the_type_asked_for(
    one_node: None, tmp_path: Path
) -> None:
    (tmp_path / "Snakefile").write_text(CARDS)
    profile = write(
        tmp_path / "profile", filled_in(**SITE | {"gpu_type": "standin"}) | QUICK
    )
    done = snakemake(tmp_path, profile)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {(tmp_path / f"{number}.txt").read_text().strip() for number in (1, 2)} == {
        "0",
        "1",
    }


STANDIN = Path(__file__).with_name("standin")
NODES = """
from types import SimpleNamespace
from bigbird_dna.workflow import launcher
rule pretrain:
    output: directory("pretrained")
    resources: gpu=2, mem_mb=100, runtime=20
    params:
        launch=lambda wildcards, threads, resources: launcher("INSIDE")(
            wildcards, threads, SimpleNamespace(processes=2, get=resources.get)
        )
    shell:
        "{params.launch} pretrain run.yaml --output {output} --checkpoint-dir checkpoints"
        " --threads 1 --device cpu > pretrain.log 2>&1"
"""


@pytest.mark.parametrize("inside", ["", "apptainer exec --nv image.sif"])
def test_pretraining_on_two_nodes(
    inside: str, two_nodes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The losses are those of one process, up to the order of sums; and in containers, which have no srun."""
    monkeypatch.setenv("PATH", os.pathsep.join([str(STANDIN), *os.get_exec_path()]))
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    config = tiny_run.make(tmp_path)
    values = yaml.safe_load(config.read_text())
    values["encoder"]["dropout"] = 0.0  # each process draws its own
    config.write_text(yaml.safe_dump(values))
    (tmp_path / "Snakefile").write_text(NODES.replace("INSIDE", inside))
    site = SITE | {
        "gpu_type": "standin",
        "pretraining_nodes": 2,
        "gpus_per_node": 1,
        "memory_per_cpu": 100,
    }
    profile = write(tmp_path / "profile", filled_in(**site) | QUICK)
    done = snakemake(tmp_path, profile)
    log = tmp_path / "pretrain.log"
    assert done.returncode == 0, done.stderr + (log.read_text() if log.exists() else "")
    told = (tmp_path / "told").read_text() if inside else ""
    assert told.count(
        "exec\t--nv\timage.sif\tpython\t-P\t-m\ttorch.distributed.run\t--nnodes=2"
    ) == 2 * bool(inside)
    words = [
        *("pretrain", config, "--output", tmp_path / "alone"),
        *("--checkpoint-dir", tmp_path / "others"),
    ]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "bigbird_dna.cli.main",
            *words,
            "--threads",
            "1",
            "--device",
            "cpu",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=True,
    )
    (losses, _), (expected, _) = (
        logged(tmp_path / "pretrained"),
        logged(tmp_path / "alone"),
    )
    assert [*losses] == [*expected] == [10, 20, 24]
    assert max(abs(losses[step] - expected[step]) for step in expected) < 1e-5
