"""Time on GPUs: operations as counted by torch, hours by their number, and what the command prints."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.reading import load_config
from bigbird_dna.config.training import ShorterConfig
from bigbird_dna.model import kernels
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.training.plan import (
    GPUS,
    memory_on_gpu,
    operations_per_token,
    planned_work,
)
from tests.cli.command import Run
from tests.conftest import REPOSITORY

ENCODER: dict[str, Any] = {
    "vocabulary": 500,
    "layers": 2,
    "hidden": 64,
    "heads": 2,
    "max_length": 256,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"feed_forward": "gated"},
        {"intermediate": 96},
        {"gradient_checkpointing": True},
    ],
)
@pytest.mark.parametrize("length", [64, 256])
def test_operations_are_those_that_torch_counts(
    length: int, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch counts only its usual operations.
    monkeypatch.setenv("BIGBIRD_DNA_NATIVE", "0")
    monkeypatch.setattr(kernels, "mkl_is_slow", lambda: False)
    encoder = EncoderConfig(attention="full", **ENCODER, **changes)
    network, rows = PretrainingNetwork(encoder).train(), 3
    ids = torch.randint(5, 500, (rows, length))
    masked = torch.arange(rows * length // 4)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        logits = network(ids, torch.full((rows,), length), None, masked).tokens
        F.cross_entropy(logits, ids.flatten()[masked]).backward()
    expected = operations_per_token(encoder, length, predicted=0.25) * rows * length
    assert counter.get_total_flops() == pytest.approx(expected, rel=0.02)


def test_sparse_attention_has_operations_by_its_blocks() -> None:
    sparse = EncoderConfig(
        attention="bigbird", block_size=16, **ENCODER | {"max_length": 4096}
    )
    full = sparse.model_copy(update={"attention": "full"})
    assert operations_per_token(sparse, 128) == operations_per_token(
        full, 128
    )  # 8 blocks are all
    few = operations_per_token(sparse, 2048)
    assert few < operations_per_token(full, 2048) / 3
    # A query of the many sees 8 blocks, one of the 32 global ones everything.
    keys = (2016 * 128 + 32 * 2048) / 2048
    assert few - operations_per_token(sparse, 4096) == pytest.approx(
        12 * 2 * 64 * (keys - (4064 * 128 + 32 * 4096) / 4096)
    )


def test_hours_by_operations_and_gpus() -> None:
    config = load_config(REPOSITORY / "workflow/config/grch37.yaml")
    stages = planned_work(config)
    assert [stage.stage.split(",")[0] for stage in stages] == [
        *("pretraining", "promoters", "chromatin-8000", "chromatin-8000")
    ]
    assert stages[0].tokens == 1e6 * 256 * 4096
    of = {
        name: sum(stage.hours(gpu, 8) for stage in stages) for name, gpu in GPUS.items()
    }
    assert of["a100"] > of["h100"] == of["h200"] and of["h100"] / 24 <= 4.7
    (one, two, more) = (stages[0].hours(GPUS["h100"], count) for count in (1, 2, 256))
    assert one == pytest.approx(2 * two) == pytest.approx(256 * more)
    # Stages on shorter inputs have the same tokens.
    shorter = config.pretraining.model_copy(
        update={"length_curriculum": (ShorterConfig(steps=1000, tokens=512),)}
    )
    curriculum = planned_work(config.model_copy(update={"pretraining": shorter}))[0]
    assert (
        curriculum.tokens == stages[0].tokens
        and curriculum.operations < stages[0].operations
    )


def test_memory_is_that_of_the_configured_way(tiny_config: Path) -> None:
    config = load_config(tiny_config)
    work = planned_work(config)
    memory = memory_on_gpu(config, work)
    assert all(0 < memory[stage.stage] < 1e9 for stage in work if stage.training)


def test_the_command_says_days_and_assumptions(run: Run, tiny_config: Path) -> None:
    result = run("plan", tiny_config, "--gpu", "h100", "--count", 256, "--threads", 1)
    assert result.code == 0
    table, _, below = result.out.partition("\n\n")
    rows = [line.split("\t") for line in table.splitlines()]
    assert (
        {len(row) for row in rows} == {6}
        and rows[0][0] == "stage"
        and rows[-1][0] == "all"
    )
    (days, *assumed) = below.splitlines()
    assert days.startswith("0.0 days on 256 H100s") and len(assumed) == 7
    assert run("plan", tiny_config, "--gpu", "tpu").code == 2
    assert run("plan", tiny_config, "--gpu", "a100", "--count", 0).code == 2
