"""The shipped Slurm profile with a site filled in, as its reader would."""

import re
from pathlib import Path
from typing import Any

import yaml
import yte

from tests.conftest import REPOSITORY

PROFILE = REPOSITORY / "profiles/slurm/config.yaml"
EXECUTOR = "executor", "slurm-requeue"
"""Keys that need the plugin; without them the same profile runs, or plans, on this machine."""


def filled_in(**site: object) -> dict[str, Any]:
    """The profile as Snakemake reads it, with some keys of the site at its head set."""
    text = PROFILE.read_text(encoding="utf-8")
    for key, value in site.items():
        text, found = re.subn(rf"^  {key}: .*$", f"  {key}: {value!r}", text, count=1, flags=re.MULTILINE)
        assert found == 1, key
    profile: dict[str, Any] = yte.process_yaml(text, require_use_yte=True)
    return profile


def site_keys() -> dict[str, Any]:
    """The keys of the site, as shipped."""
    keys: dict[str, Any] = yaml.safe_load(PROFILE.read_text(encoding="utf-8"))["__variables__"]
    return keys


def gpu_rules(profile: dict[str, Any]) -> set[str]:
    """The rules that the profile sends to the partition with GPUs."""
    cpu = profile["default-resources"]["slurm_partition"]
    given = profile["set-resources"].items()
    return {rule for rule, values in given if values.get("slurm_partition", cpu) != cpu}


def write(directory: Path, profile: dict[str, Any]) -> Path:
    """Write a profile into a directory, which is given."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.yaml").write_text(yaml.safe_dump(profile), encoding="utf-8")
    return directory
