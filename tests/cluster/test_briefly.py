"""A training on Slurm that is preempted once: what continuous integration has of `make test-cluster`."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import tiny_run
from tests.cluster.site import (
    begin,
    preempt,
    profiles,
    slurm,
    snakemake,
    snakemake_log,
    write,
)
from tests.conftest import REPOSITORY
from tests.toys import checksums

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

# So long that it goes on for seconds after its first checkpoint.
LONG = {"steps": 500, "evaluate_every": 250, "checkpoint_minutes": 0.02}
CONFIG: dict[str, Any] = {
    **{key: value for key, value in tiny_run.WHOLE.items() if key != "chromatin"},
    "results": "results",
    "pretraining": {**tiny_run.WHOLE["pretraining"], **LONG},
}
PRETRAINED = "results/models/pretrained"


def test_a_preempted_training_of_two_processes_goes_on_to_the_same_model(
    one_node: None, tmp_path: Path
) -> None:
    homes = {name: tmp_path / name for name in profiles()}
    for name, values in profiles().items():
        write(homes[name] / "profile", values)
        (homes[name] / "mine.yaml").write_text(yaml.safe_dump(CONFIG))
    words = (
        "--snakefile",
        REPOSITORY / "Snakefile",
        "--configfile",
        "mine.yaml",
        "--until",
        "pretrain",
    )
    done = snakemake(homes["alone"], homes["alone"] / "profile", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    model = homes["alone"] / PRETRAINED
    made = shutil.ignore_patterns("checkpoints", model.name, "logs")
    shutil.copytree(
        homes["alone"] / "results", homes["cluster"] / "results", ignore=made
    )

    checkpoints = homes["cluster"] / "results/checkpoints"
    with begin(homes["cluster"], homes["cluster"] / "profile", *words) as process:
        while process.poll() is None and not list(checkpoints.glob("**/state.pt")):
            time.sleep(0.1)
        preempt()
        # It may begin again after a while, or now.
        waiting = ""
        while process.poll() is None and not waiting:
            time.sleep(0.2)
            waiting = slurm(
                "squeue", "--noheader", "--states=PD", "--partition=gpu", "--format=%i"
            ).strip()
        slurm("scontrol", "update", f"JobId={waiting}", "StartTime=now")
        out, err = process.communicate()
    assert process.returncode == 0, out + err
    log = (homes["cluster"] / "results/logs/pretrain.log").read_text()
    assert "resuming at step" in log, log
    assert "--standalone --nproc-per-node=2" in snakemake_log(homes["cluster"])
    assert checksums(homes["cluster"] / PRETRAINED) == checksums(model)
    assert len(checksums(model)) > 3
