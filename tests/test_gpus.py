"""The device that is chosen, and the directory of compiled kernels."""

import json
import os
from pathlib import Path

import pytest
import torch
import yaml

from bigbird_dna.errors import UsageError
from bigbird_dna.model.inference import choose_device
from tests.cli.command import Run
from tests.conftest import REPOSITORY
from tests.golden.messages import fails, message
from tests.workflow.dry_runs import snakemake


@pytest.mark.parametrize(
    ("nvidia", "apple", "processes"),
    [(0, True, 1), (0, False, 1), (0, True, 2), (1, True, 1)],
)
def test_apple_s_gpu_serves_one_process_that_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, nvidia: int, apple: bool, processes: int
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: nvidia)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: apple)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    serves = apple and processes == 1
    assert choose_device("auto").type == ("cuda" if nvidia else "cpu")
    assert choose_device("cpu").type == "cpu"
    if serves:
        assert choose_device("mps").type == "mps"
    else:
        with fails(UsageError, "mps", str(processes)):
            choose_device("mps")


def test_a_command_asked_for_a_missing_apple_gpu_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    output = tmp_path / "scores.tsv"
    example = REPOSITORY / "resources/examples/yeast_VII_20kb.fa.gz"
    result = run(
        "score-promoters",
        "yeast-promoters-window",
        example,
        "--device",
        "mps",
        "-o",
        output,
    )
    assert result.code == 2 and not output.exists()
    message(result.err, "mps")


KERNELS = {"TORCHINDUCTOR_CACHE_DIR": "torch", "TRITON_CACHE_DIR": "triton"}


@pytest.mark.parametrize("own", [{}, {"TRITON_CACHE_DIR": "mine"}], ids=str)
def test_kernels_are_kept_in_the_configured_directory_unless_the_environment_names_one(
    own: dict[str, str], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {
        key: str(tmp_path / "kernels" / name) for key, name in KERNELS.items()
    } | own
    for key in KERNELS:
        monkeypatch.setenv(key, own.get(key, ""))
        if key not in own:
            monkeypatch.delenv(key)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text("kernel_cache: kernels\n")
    assert run("pretrain", "run.yaml", "--device", "cpu").code == 1, (
        "there are no tokens"
    )
    assert {key: os.environ[key] for key in KERNELS} == expected
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    choose_device("cuda")
    assert {key: os.environ[key] for key in KERNELS} == expected


def test_jobs_of_a_workflow_keep_kernels_in_the_configured_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KERNELS:  # set by a test before
        monkeypatch.delenv(name, raising=False)
    values = yaml.safe_load((REPOSITORY / "workflow/config/demo.yaml").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps(values | {"kernel_cache": "kernels"})
    )
    (tmp_path / "Snakefile").write_text(
        f"""
import json
rule show:
    output: "shown.txt"
    shell: "printenv {" ".join(KERNELS)} > {{output}}"
module main:
    snakefile: {str(REPOSITORY / "workflow/Snakefile")!r}
    config: json.load(open("config.json"))
use rule * from main as main_*
"""
    )
    done = snakemake(tmp_path, "show", snakefile=tmp_path / "Snakefile")
    assert done.code == 0, done.err
    shown = (tmp_path / "shown.txt").read_text().split()
    assert shown == [str(tmp_path / "kernels" / name) for name in KERNELS.values()]
