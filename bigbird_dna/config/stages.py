"""Which sections and keys of the configuration each stage of a run reads: other keys don't run it again."""

import json
import shlex
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from bigbird_dna.config.run import Config
from bigbird_dna.errors import ConfigError

# Bytes of a stage's file, which is written by a command: the kernel takes 128 KiB of one.
_LARGEST = 100_000

STAGES: Mapping[str, tuple[str, ...]] = {
    # What is held out for chromatin is held out of pretraining.
    "tokens": ("seed", "genome", "tokens", "chromatin.data.valid_regions", "chromatin.data.test_regions"),
    "pretraining": ("seed", "genome", "tokens", "encoder", "pretraining"),
    "windows": (
        "seed",
        "genome",
        "splits.max_train_test_similarity",
        "promoters.windows",
        "promoters.calibration.negatives",
    ),
    "promoters": (
        *("seed", "genome", "encoder"),
        *("promoters.windows", "promoters.model", "promoters.training"),
        *("promoters.calibration.method", "promoters.calibration.negatives"),
    ),
    "promoter-baseline": ("seed", "promoters.evaluation"),
    "chromatin-data": ("seed", "genome", "chromatin.data"),
    "chromatin": ("seed", "genome", "encoder", "chromatin.data", "chromatin.model", "chromatin.training"),
    "chromatin-evaluation": ("chromatin.evaluation",),
    "chromatin-calibration": (
        *("chromatin.evaluation.middle", "chromatin.evaluation.seed"),
        "chromatin.calibration",
    ),
    "attention": ("encoder",),
    "long-range": ("long_range_arena",),
    "density": ("byte_lm",),
    # All but where files are.
    "report": (
        *("num_gpus", "seed", "simulation", "genome", "splits", "tokens", "encoder", "pretraining"),
        *("promoters", "chromatin", "example_scan", "pretraining_study", "tables", "ablation"),
    ),
}


# A stage doesn't say these at their default: what was made before they were there isn't made again.
_DEFAULT_UNSAID: Mapping[str, Mapping[str, Any]] = {
    "windows": {"promoters.calibration.negatives": 0},
    "promoters": {"promoters.calibration.method": "auto", "promoters.calibration.negatives": 0},
}


def stage_values(config: Config, stage: str) -> dict[str, Any]:
    """The sections and keys that a stage reads, at their places in the configuration, as values for JSON.

    A key of another stage's section that is null or an empty list is left out: it says nothing.
    """
    include: dict[str, Any] = {}
    for name in _said(config, stage):
        *outer, last = name.split(".")
        here = include
        for section in outer:
            here = here.setdefault(section, {})
        here[last] = True
    return config.model_dump(mode="json", include=include)


def _said(config: Config, stage: str) -> list[str]:
    found = {name: attrgetter(name)(config) for name in STAGES[stage]}
    quiet = _DEFAULT_UNSAID.get(stage, {})
    return [
        name
        for name, value in found.items()
        if "." not in name or (value not in ((), None) and (name not in quiet or value != quiet[name]))
    ]


def check_stages(config: Config) -> None:
    """`ConfigError` where a stage's file would be too large to be written."""
    for stage in STAGES:
        size = len(shlex.quote(stage_text(config, stage)).encode())
        if size > _LARGEST:
            names = " and ".join(_said(config, stage))
            raise ConfigError(f"{names} take {size:,} bytes, above {_LARGEST:,}: shorten their lists")


def stage_text(config: Config, stage: str) -> str:
    """The stage's sections with every key, as the text of a configuration file (JSON, which is YAML)."""
    # Characters as they are: YAML reads JSON's escapes of those beyond 16 bits as two halves.
    return json.dumps(stage_values(config, stage), indent=1, ensure_ascii=False)
