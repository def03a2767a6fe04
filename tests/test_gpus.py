"""The device that is chosen, and the directory of compiled kernels."""

from pathlib import Path

import pytest
import torch

from bigbird_dna.errors import UsageError
from bigbird_dna.model.inference import choose_device
from tests.cli.command import Run
from tests.conftest import REPOSITORY
from tests.golden.messages import fails, message


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
