"""The memory that `plan` states, against that of processes that train."""

import json
import os
import subprocess
import sys
from typing import Any

import pandas as pd
import pytest

from bigbird_dna.config.reading import parse_config
from bigbird_dna.training.plan import plan_memory
from tests.cli.command import Run
from tests.conftest import REPOSITORY
from tests.toys import written

VALUES: dict[str, Any] = {
    "tokens": {"vocabulary": 256},
    "encoder": {
        "layers": 6,
        "hidden": 192,
        "heads": 4,
        "max_length": 512,
        "block_size": 32,
        "dropout": 0.1,
    },
    "sequences": {"training": {"batch_size": 24, "precision": "float32"}},
    "genome": {"reference": "genome.fa", "valid": ["a"]},
}
BASES = 1024

# Trains for two steps, as the loop does, and prints the peak of its memory before and after, in bytes.
PROGRAM = """
import json, sys
from pathlib import Path
import torch
from torch import nn
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.training import FinetuningConfig
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.training.adapters import adapt
from bigbird_dna.training.loop import make_optimizer

encoder, training, rows, tokens = json.loads(sys.argv[1])
def peak():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    return int(line.split()[1]) * 1024

torch.set_num_threads(1)
training = FinetuningConfig.model_validate(training)

def steps(layers, rows):
    config = EncoderConfig.model_validate({**encoder, "layers": layers})
    network = nn.ModuleDict({"encoder": Encoder(config), "head": nn.Linear(config.hidden, 1)})
    adapt(network, training)
    optimizer = make_optimizer(network.train(), training.optimizer)
    for _ in range(2):
        ids = torch.full((rows, tokens), 7)
        hidden = network["encoder"](ids, torch.full((rows,), tokens))
        network["head"](hidden.mean(1)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

steps(1, 1)
before = peak()
steps(encoder["layers"], rows)
print(json.dumps(peak() - before))
"""


def planned(values: dict[str, Any] = VALUES, bases: int = BASES) -> pd.DataFrame:
    table = plan_memory(parse_config(values), bases)
    table = table[table["training"] == "sequences"]
    return table.set_index(["adapt", "gradient_checkpointing"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "way", [("full", False), ("lora", False), ("full", True), ("frozen", False)]
)
def test_a_training_needs_what_is_planned(way: tuple[str, bool]) -> None:
    plan = planned().loc[way]
    encoder = {**VALUES["encoder"], "vocabulary": 256, "gradient_checkpointing": way[1]}
    given = [encoder, {"adapt": way[0]}, int(plan["rows"]), int(plan["tokens"])]
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(given)],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
        env={
            **os.environ,
            "MALLOC_MMAP_THRESHOLD_": "65536",
        },  # freed memory is given back at once
    )
    measured = json.loads(run.stdout)
    # Temporary results come on top: those of a layer's attention and feed-forward, and memory in pieces.
    temporary = 80 * plan["rows"] * plan["tokens"] * 192 * 4
    total = plan["total"] * 1e9
    assert total < measured < 1.1 * total + temporary, way


def test_less_is_trained_and_less_is_kept() -> None:
    plan = planned()
    full, lora, frozen = (plan.loc[way, False] for way in ("full", "lora", "frozen"))
    trained = full["trained_parameters"] / 1e9
    assert full["gradients"] == full["weights"] == pytest.approx(4 * trained)
    assert full["moments"] == pytest.approx(8 * trained)
    assert lora["trained_parameters"] == 6 * 2 * 8 * (192 + 192)
    assert full["total"] > lora["total"] > frozen["total"]
    assert frozen["activations"] == frozen["trained_parameters"] == 0
    recomputed = plan.loc["full", True]
    assert recomputed["activations"] < full["activations"] / 2
    half = planned(bases=BASES // 2).loc["full", False]
    assert half["rows"] == full["rows"]
    assert 1.8 < full["activations"] / half["activations"] < 2.2


def test_the_command(tmp_path: Any, run: Run) -> None:
    text = json.dumps(
        {
            "encoder": {
                "layers": 1,
                "hidden": 16,
                "heads": 2,
                "max_length": 64,
                "block_size": 8,
            }
        }
    )
    ended = run(
        "plan",
        written(tmp_path / "mine.yaml", text),
        "--set",
        "pretraining.sequence_tokens=64",
    )
    assert ended.code == 0
    header, *rows = [line.split("\t") for line in ended.out.splitlines()]
    assert header[0] == "training" and header[-1] == "total"
    assert [row[:3] for row in rows[:2]] == [
        ["pretraining", "full", "False"],
        ["pretraining", "full", "True"],
    ]
    assert {row[0] for row in rows} == {"pretraining", "promoters.dense"}
    ended = run("plan", tmp_path / "mine.yaml", "--gpu", "h200", "--count", 4)
    header, *rows = [line.split("\t") for line in ended.out.splitlines()]
    assert header[-1] == "fits" and {row[-1] for row in rows} == {"True"}
