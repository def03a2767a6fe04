"""A causal model of the bytes of images or text, in bits per byte."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from bigbird_dna.config.run import Config
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import ConfigError
from bigbird_dna.papers.experiments.arms import Arm, Keys, make_arm

if TYPE_CHECKING:
    from bigbird_dna.training.distributed import World

FILES = ("byte_lm.tsv",)
COLUMNS = [
    "format",
    "attention",
    "bits_per_byte",
    "bits_per_byte_low",
    "bits_per_byte_high",
    "by_frequency",
    "by_frequency_after_a_byte",
    "test_inputs",
    "test_bytes",
    "input_symbols",
    "parameters",
    "steps",
    "train_sha256",
    "test_sha256",
]


def arms(run: Config) -> list[Arm]:
    section = run.byte_lm
    if section is None:
        raise ConfigError("byte_lm: the configuration has no such section")
    seed = section.training.seed
    files = [Path(name) for name in (*section.train, *section.test)]
    name = f"{section.encoder.attention}-seed{seed}"
    return [make_arm(run, "byte_lm", name, "density", seed=seed, inputs=files)]


def train(arm: Arm, world: World) -> Keys:
    from bigbird_dna.papers.experiments.byte_lm_training import BytesTask
    from bigbird_dna.training.task import train as train_task

    assert arm.config.byte_lm is not None
    return train_task(BytesTask(arm.config.byte_lm), arm.model, arm.checkpoints, world)


def compare(run: Config, output: Path) -> list[str]:
    (arm,) = arms(run)
    result = arm.metrics()
    table = pd.DataFrame([result], columns=COLUMNS)
    with into_directory(output) as directory:
        write_tsv(directory / "byte_lm.tsv", table)
    return [
        f"{result['bits_per_byte']:.4f} bits per byte; by frequency {result['by_frequency']:.4f}, "
        f"after a byte {result['by_frequency_after_a_byte']:.4f}"
    ]
