"""A training that is killed and started again ends with the very weights of an undisturbed one."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from safetensors.torch import load_file
from typer.testing import CliRunner

from bigbird_dna.cli.app import app
from bigbird_dna.errors import DataError, Stopped
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.pretraining import task as pretraining
from bigbird_dna.pretraining.task import PretrainingObjective, begin_with_counts
from bigbird_dna.training.batches import Batch
from bigbird_dna.training.distributed import world
from tests.cli.command import Run, refused
from tests.training.kinds import make_chromatin, train

# Long enough that every kill comes before the end, also on a fast machine.
LONG = ("--set", "pretraining.steps=400")
COMMAND = [sys.executable, "-m", "bigbird_dna.cli.main", "pretrain"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def _arguments(config: Path, output: Path, *more: str) -> list[str]:
    return [str(config), "-o", str(output), "--checkpoint-dir", str(output.parent / "checkpoints"), *more]


def _weights(model: Path) -> bytes:
    return (model / "model.safetensors").read_bytes()


def _run(config: Path, output: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *_arguments(config, output, *more)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def _run_here(config: Path, output: Path, *settings: str) -> None:
    """The same in this process, which is quicker."""
    words = [word for setting in settings for word in ("--set", setting)]
    outcome = CliRunner().invoke(app, ["pretrain", *_arguments(config, output, *words)])
    assert outcome.exit_code == 0, outcome.exception


@pytest.fixture(scope="module")
def undisturbed(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("undisturbed") / "model"
    outcome = _run(tiny_config, output, *LONG)
    assert outcome.returncode == 0, outcome.stderr
    return output


@pytest.mark.slow  # tests/faults kills a shorter one in every run
def test_kills_at_random_moments_leave_no_trace(tiny_config: Path, undisturbed: Path, tmp_path: Path) -> None:
    output = tmp_path / "model"
    moments = random.Random(11)
    # The first kill comes before there is a checkpoint, the others somewhere between two.
    for pattern in ("*/training.jsonl", *3 * ("*/state.pt",)):
        process = subprocess.Popen(
            [*COMMAND, *_arguments(tiny_config, output, *LONG)],
            env=ENVIRONMENT,
            stderr=subprocess.PIPE,
            text=True,
        )
        _wait_for_a_new(tmp_path / "checkpoints", pattern, process)
        time.sleep(moments.uniform(0.0, 0.15) if pattern == "*/state.pt" else 0.0)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not output.exists(), "the run ended before it could be killed"
    outcome = _run(tiny_config, output, *LONG)
    assert outcome.returncode == 0, outcome.stderr
    assert "resuming at step" in outcome.stderr
    assert _weights(output) == _weights(undisturbed)
    steps = [[json.loads(line)["step"] for line in _log(model)] for model in (output, undisturbed)]
    assert steps[0] == steps[1]
    losses = [[json.loads(line).get("loss") for line in _log(model)] for model in (output, undisturbed)]
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_a_second_equal_training_is_refused_and_the_first_is_left_alone(
    tiny_config: Path, undisturbed: Path, tmp_path: Path, run: Run
) -> None:
    output, other = tmp_path / "model", tmp_path / "other"
    first = subprocess.Popen(
        [*COMMAND, *_arguments(tiny_config, output, *LONG)],
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_for_a_new(tmp_path / "checkpoints", "*/training.jsonl", first)
    result = run("pretrain", *_arguments(tiny_config, other, *LONG))
    (directory,) = (tmp_path / "checkpoints").iterdir()
    refused(result, 1, f"{directory}: this training is running already (process {first.pid} on ")
    _, errors = first.communicate(timeout=120)
    assert first.returncode == 0, errors
    assert _weights(output) == _weights(undisturbed) and not other.exists()
    assert not directory.exists()


@pytest.mark.slow
def test_a_second_equal_training_of_several_processes_ends_at_once(tiny_config: Path, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    settings = ("--set", "pretraining.steps=4000")
    words = [*launcher, "-m", "bigbird_dna.cli.main", "pretrain"]
    words += _arguments(tiny_config, tmp_path / "model", *settings)
    first = subprocess.Popen(words, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    try:
        _wait_for_a_new(tmp_path / "checkpoints", "*/training.jsonl", first)
        start = time.monotonic()
        second = subprocess.run(
            words, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120
        )
        assert time.monotonic() - start < 100
        assert second.returncode == 1
        sentences = [line for line in second.stderr.splitlines() if line.startswith("bigbird-dna: error: ")]
        assert sentences and len(set(sentences)) == 1 and "is running already" in sentences[0]
        assert first.poll() is None
    finally:
        first.terminate()
        first.communicate()


def test_torchrun_passes_on_that_a_training_shall_stop_and_one_process_goes_on(
    tiny_config: Path, tmp_path: Path, run: Run
) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    output = tmp_path / "model"
    settings = ("pretraining.steps=600", "pretraining.checkpoint_every=600")
    own = _arguments(tiny_config, output, *(word for one in settings for word in ("--set", one)))
    words = [*launcher, "-m", "bigbird_dna.cli.main", "pretrain", *own]
    first = subprocess.Popen(words, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    log = None
    while not (log and log.stat().st_size) and first.poll() is None:
        time.sleep(0.005)
        log = next((tmp_path / "checkpoints").glob("*/training.jsonl"), None)
    first.terminate()
    _, errors = first.communicate(timeout=120)
    said = [line for line in errors.splitlines() if line.startswith("bigbird-dna: ")]
    assert first.returncode != 0 and len(said) == 1, errors
    match = re.fullmatch(
        r"bigbird-dna: stopped after step (\d+) of 600 \(SIGTERM\): .* goes on from it", said[0]
    )
    assert match, said
    result = run("pretrain", *own)
    assert result.code == 0, result.err
    assert f"resuming at step {match[1]} from" in result.err
    assert "from here on computed otherwise: processes 2 → 1; data" in result.err
    steps = [json.loads(line)["step"] for line in _log(output) if "loss" in json.loads(line)]
    assert steps == [*range(10, 610, 10)]


def _log(model: Path) -> list[str]:
    return (model / "training.jsonl").read_text().splitlines()


def _wait_for_a_new(checkpoints: Path, pattern: str, process: "subprocess.Popen[str]") -> None:
    """Return once this process has written a file of that name of its own."""
    before = max((path.stat().st_mtime_ns for path in checkpoints.glob(pattern)), default=0)
    for _ in range(6000):
        written = max((path.stat().st_mtime_ns for path in checkpoints.glob(pattern)), default=0)
        if written > before or process.poll() is not None:
            return
        time.sleep(0.005)


def test_a_changed_configuration_starts_anew_and_leaves_the_other_alone(
    tiny_config: Path, undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "model"
    other = tmp_path / "checkpoints/0123456789ab/state.pt"
    other.parent.mkdir(parents=True)
    other.write_text("of another run")
    _run_here(tiny_config, output, "pretraining.seed=7")
    assert "resuming" not in capsys.readouterr().err
    assert _weights(output) != _weights(undisturbed) and other.exists()


def test_tokens_are_counted_where_fresh_weights_begin_alone(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    monkeypatch.setattr(
        pretraining, "begin_with_counts", lambda *given: counted.append(given) or begin_with_counts(*given)
    )
    draw = PretrainingObjective.batch

    def interrupted(self: PretrainingObjective, step: int, first: int, count: int) -> Batch:
        if step == 7:
            raise DataError("interrupted")
        return draw(self, step, first, count)

    with monkeypatch.context() as patch, pytest.raises(AssertionError):
        patch.setattr(PretrainingObjective, "batch", interrupted)
        _run_here(tiny_config, tmp_path / "model")
    assert len(counted) == 1 and not (tmp_path / "model").exists()
    _run_here(tiny_config, tmp_path / "model")
    assert len(counted) == 1
    _run_here(tiny_config, tmp_path / "other/model")
    assert len(counted) == 2
    assert _weights(tmp_path / "model") == _weights(tmp_path / "other/model")
    steps = [
        [json.loads(line)["step"] for line in _log(tmp_path / name)] for name in ("model", "other/model")
    ]
    assert steps[0] == steps[1]


@pytest.mark.slow  # test_processes has every loss of all kinds in every run
def test_two_processes_take_the_same_steps_as_one(
    tiny_config: Path, undisturbed: Path, tmp_path: Path
) -> None:
    """Without dropout the global batch is all that counts; gloo's sums differ in the last bits."""
    alone, output = tmp_path / "alone", tmp_path / "model"
    plain = ("--set", "encoder.dropout=0.0")
    _run_here(tiny_config, alone, "encoder.dropout=0.0")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    outcome = subprocess.run(
        [*launcher, "-m", "bigbird_dna.cli.main", "pretrain", *_arguments(tiny_config, output, *plain)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert outcome.returncode == 0, outcome.stderr
    one, two = (load_file(model / "model.safetensors") for model in (alone, output))
    for name, value in one.items():
        assert (value - two[name]).abs().max() < 1e-4, name


def test_micro_batches_make_no_difference(tiny_config: Path, tmp_path: Path) -> None:
    models = []
    for accumulate in (1, 2, 3):
        output = tmp_path / str(accumulate)
        settings = ("encoder.dropout=0.0", "pretraining.steps=6")
        _run_here(tiny_config, output, *settings, f"pretraining.grad_accumulation={accumulate}")
        models.append(load_file(output / "model.safetensors"))
    for name, value in models[0].items():
        # Attention is the same whatever is added to all keys: that gradient is rounding, which Adam enlarges.
        bound = 1e-4 if name.endswith("key.bias") else 1e-5
        for model in models[1:]:  # parts of unequal size, too
            assert (value - model[name]).abs().max() < bound, name


def test_a_batch_that_cannot_be_shared_out_is_refused(tiny_config: Path, tmp_path: Path) -> None:
    outcome = _run(tiny_config, tmp_path / "model", "--set", "pretraining.grad_accumulation=5")
    assert outcome.returncode == 2
    assert outcome.stderr.splitlines()[-1] == (
        "bigbird-dna: error: batch_size 4 can't be divided among 1 processes × 5 micro-batches"
    )


def test_chromatin_on_another_sequence_starts_anew(
    tiny_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bins and labels are the same, and what is learnt from isn't."""
    made = make_chromatin(tmp_path / "made")
    path = made / "reference.fa.gz"

    def resumed(limit: float) -> bool:
        """Train a step, or to the end; whether it goes on from a checkpoint."""
        capsys.readouterr()
        with suppress(Stopped), world("cpu", time.time() + limit) as here:
            train("chromatin", tiny_config, made, tmp_path / "out", tmp_path / "checkpoints", here)
        return "resuming at step" in capsys.readouterr().err

    assert not resumed(30)
    before = path.read_bytes()
    with Reference(path) as reference:
        whole = [Interval(name, 0, length) for name, length in reference.contigs.items()]
        others = {one.contig: reference.fetch(one).translate(str.maketrans("ACGT", "TGCA")) for one in whole}
    write_fasta(path, others.items())
    assert not resumed(30) and resumed(30)
    path.write_bytes(before)
    assert resumed(1e6)
