"""Processes: two train as one does, one goes on where they stop; which device each takes; how they end."""

import os
import re
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.reading import load_config
from bigbird_dna.config.training import PretrainingConfig
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.model import inference
from bigbird_dna.model.inference import choose_device
from bigbird_dna.pretraining import task as pretraining
from bigbird_dna.pretraining.task import PretrainingTask, init_from_counts
from bigbird_dna.training import loop
from bigbird_dna.training.distributed import world
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.task import checkpoint_directory
from tests.cli.command import Run, invoke
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.toys import small_encoder
from tests.training.kinds import KINDS, LAST, STEPS, logged, task_of, train

LAUNCHER = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node=2",
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def two_processes(kind: str, tiny_config: Path, chromatin: Path, home: Path) -> None:
    """Write what two processes train, and what they leave where they are stopped."""
    home.mkdir()
    words = [*LAUNCHER, "-m", "tests.training.kinds", tiny_config, chromatin]
    words += [home, kind]
    ended = subprocess.run(
        words,
        cwd=REPOSITORY,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr
    # Only the first process looks for checkpoints, and writes.
    assert not (home / "elsewhere").exists()


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow if kind != "promoters" else ())
        for kind in KINDS
    ],
)
def test_two_processes_have_the_losses_of_one_and_one_goes_on_where_they_stop(
    kind: str,
    tiny_config: Path,
    chromatin: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where the first one fails, both are told, and both go on."""
    pair = tmp_path / "pair"
    two_processes(kind, tiny_config, chromatin, pair)
    for rank in range(2):
        assert (pair / f"told-{rank}").read_text() == "a.txt: damaged"
    monkeypatch.setattr(loop, "LOG_STEPS", 1)
    for home, checkpoints, more in (
        (tmp_path, tmp_path / "checkpoints", {}),
        (pair / "stopped", pair / "stopped/checkpoints", {"grad_accumulation": 2}),
    ):
        capsys.readouterr()
        with world("cpu") as here:
            train(kind, tiny_config, chromatin, home, checkpoints, here, **more)
    said = capsys.readouterr().err
    assert f"resuming at step {LAST} from" in said

    losses, figures = logged(tmp_path / kind)
    weights = load_file(tmp_path / kind / "model.safetensors")
    assert [*losses] == [*range(1, STEPS + 1)] and [*figures] == [10, 20]
    assert max(losses.values()) - min(losses.values()) > 1e-3  # something was learnt
    for name in ("undisturbed", "stopped", "resumed"):
        other, others = logged(pair / name / kind)
        assert [*other] == [*losses]
        assert max(abs(other[step] - losses[step]) for step in losses) < 1e-5, name
        for step, values in figures.items():
            assert others[step] == pytest.approx(values, abs=1e-4), name
        for key, value in load_file(pair / name / kind / "model.safetensors").items():
            # Attention is the same whatever is added to all keys: that gradient is rounding.
            bound = 1e-2 if key.endswith("key.bias") else 1e-4
            assert (value - weights[key]).abs().max() < bound, (name, key)


def begun(home: Path, encoder: EncoderConfig, **training: Any) -> Path:
    """The directory of the checkpoint of a pretraining."""
    task: Any = SimpleNamespace(
        encoder=encoder,
        keeps_best=False,
        config=PretrainingConfig(steps=10, **training),
        identity=lambda: {"data": [1, 2]},
    )
    return checkpoint_directory(task, home)


def test_checkpoints_are_named_by_what_decides_the_weights(tmp_path: Path) -> None:
    encoder = small_encoder()
    place = begun(tmp_path, encoder)
    otherwise = encoder.model_copy(
        update={"attention_backend": "dense", "gradient_checkpointing": True}
    )
    computing: dict[str, Any] = {
        "grad_accumulation": 4,
        "precision": "bfloat16",
        "evaluate_every": 3,
    }
    assert begun(tmp_path, encoder, torch_compile=True) == place
    assert begun(tmp_path, otherwise, **computing) == place
    for key, value in (("seed", 2), ("batch_size", 16), ("mask_fraction", 0.2)):
        assert begun(tmp_path, encoder, **{key: value}) != place
    assert begun(tmp_path, small_encoder(dropout=0.2)) != place


@pytest.mark.parametrize(
    ("gpus", "processes", "asked", "taken"),
    [
        (0, 1, "auto", "cpu"),
        (1, 1, "auto", "cuda"),
        (1, 2, "auto", "cpu"),
        (2, 2, "cuda", "cuda"),
        (2, 1, "cpu", "cpu"),
        *((0, 1, asked, None) for asked in ("cuda", "tpu")),
    ],
)
def test_a_gpu_is_taken_only_where_each_process_has_one(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    gpus: int,
    processes: int,
    asked: str,
    taken: str | None,
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    shared = (
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_COMPILE_THREADS",
    )
    for key in shared:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("BIGBIRD_DNA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(inference, "available_cores", lambda: 7)
    with nullcontext() if taken else fails(UsageError):
        assert choose_device(asked).type == taken
    # Compiled kernels are for all jobs of this user, and made by this process's part of the cores.
    found = [os.environ.pop(key, None) for key in shared]
    on_gpu = [
        f"{tmp_path}/cache/torch",
        f"{tmp_path}/cache/triton",
        str(7 // processes),
    ]
    assert found == (on_gpu if taken == "cuda" else [None] * 3)
    if taken == "cuda":
        monkeypatch.setenv("TRITON_CACHE_DIR", "mine")
        monkeypatch.setenv(
            "BIGBIRD_DNA_CACHE", "/dev/null/cache"
        )  # torch's own place, then
        choose_device(asked)
        found = [os.environ.pop(key, None) for key in shared]
        assert found == [None, "mine", str(7 // processes)]
        monkeypatch.undo()


def test_processes_wait_for_the_first_one_longer_than_it_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten minutes are too short for the checksums of a corpus: so long does NCCL wait by itself."""
    given: dict[str, Any] = {}
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(
        torch.distributed,
        "init_process_group",
        lambda _, **options: given.update(options),
    )
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    with world("cpu") as here:
        assert (here.rank, here.size) == (1, 2)
    assert given["timeout"].total_seconds() >= 3600


@pytest.mark.parametrize("kind", ["promoters", "chromatin"])
def test_a_training_on_other_sequence_has_other_checkpoints(
    kind: str,
    tiny_config: Path,
    chromatin: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Windows, bins and labels are the same, and what is learned from isn't."""
    path = (
        chromatin / "reference.fa.gz"
        if kind == "chromatin"
        else load_config(tiny_config).paths.reference
    )

    def directory(reference: Path) -> Path:
        task = task_of(kind, tiny_config, chromatin)
        monkeypatch.setattr(task, "reference", Reference(reference))
        return checkpoint_directory(task, tmp_path)

    with Reference(path) as reference:
        whole = [
            Interval(name, 0, length) for name, length in reference.contigs.items()
        ]
        others = {
            one.contig: reference.fetch(one).translate(str.maketrans("ACGT", "TGCA"))
            for one in whole
        }
    write_fasta(tmp_path / "other.fa.gz", others.items())
    assert directory(path) == directory(path) != directory(tmp_path / "other.fa.gz")


def arguments(config: Path, output: Path, *settings: str) -> list[str]:
    words = [word for setting in settings for word in ("--set", setting)]
    return [
        str(config),
        "-o",
        str(output),
        "--checkpoint-dir",
        str(output.parent / "checkpoints"),
        *words,
    ]


@pytest.mark.slow
def test_torchrun_passes_on_that_a_training_shall_stop_and_one_process_goes_on(
    tiny_config: Path, tmp_path: Path, run: Run
) -> None:
    output, log = tmp_path / "model", None
    own = arguments(
        tiny_config, output, "pretraining.steps=200", "pretraining.checkpoint_minutes=9"
    )
    words = [*LAUNCHER, "-m", "bigbird_dna.cli.main", "pretrain", *own]
    first = subprocess.Popen(words, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    while not (log and log.stat().st_size) and first.poll() is None:
        time.sleep(0.005)
        log = next((tmp_path / "checkpoints").glob("*/training.jsonl"), None)
    first.terminate()
    _, errors = first.communicate(timeout=120)
    (line,) = (line for line in errors.splitlines() if line.startswith("bigbird-dna: "))
    match = re.match(
        r"bigbird-dna: stopped after step (\d+) of 200 \(SIGTERM\): ", line
    )
    assert match and first.returncode != 0, errors
    result = run("pretrain", *own)
    assert result.code == 0, result.err
    assert (
        f"resuming at step {match[1]} from" in result.err
        and "processes 2 → 1; data" in result.err
    )
    assert [*logged(output)[0]] == [*range(10, 210, 10)]


def test_an_interrupted_pretraining_ends_with_the_same_weights_and_counts_tokens_once(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where buffers change as it goes, as the directions of clusters do."""
    settings = (
        "encoder.attention=combiner_routing",
        "encoder.attention_options={decay: 0.5, clusters: 4}",
    )
    counted = []
    monkeypatch.setattr(
        pretraining,
        "init_from_counts",
        lambda *given: counted.append(given) or init_from_counts(*given),
    )
    draw = PretrainingTask.batch

    def interrupted(self: PretrainingTask, step: int, first: int, count: int) -> Batch:
        if step == 7:
            raise DataError("interrupted")
        return draw(self, step, first, count)

    with monkeypatch.context() as patch, pytest.raises(DataError):
        patch.setattr(PretrainingTask, "batch", interrupted)
        invoke("pretrain", *arguments(tiny_config, tmp_path / "model", *settings))
    assert len(counted) == 1 and not (tmp_path / "model").exists()
    for home, times in ((tmp_path, 1), (tmp_path / "other", 2)):
        invoke("pretrain", *arguments(tiny_config, home / "model", *settings))
        assert len(counted) == times
    one, other = (
        home / "model/model.safetensors" for home in (tmp_path, tmp_path / "other")
    )
    assert one.read_bytes() == other.read_bytes()
    assert [*logged(one.parent)[0]] == [*logged(other.parent)[0]]
