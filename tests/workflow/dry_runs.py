"""What the workflow's tests share: dry runs of it, and what they say."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import REPOSITORY

BIN = Path(sys.executable).parent
# Jobs of every run: those of the simulation or the downloads come on top.
COMMON = {
    "all": 1,
    "attention_figure": 1,
    "evaluate_pretraining": 1,
    "pretraining_baseline": 1,
    "extract_contig": 1,
    "finetune_promoter": 4,
    "finetuning_figure": 1,
    "prepare_promoters": 1,
    "prepare_reference": 1,
    "pretrain": 1,
    "pretraining_report": 1,
    "promoter_baseline": 6,
    "promoter_report": 1,
    "promoter_windows": 1,
    "run_report": 1,
    "score_figure": 1,
    "score_promoters": 2,
    "stage_config": 7,
    "summary": 1,
    "tokenize": 1,
    "tokenizer_statistics": 1,
    "train_tokenizer": 1,
}
# With `chromatin.data.tracks`: two windows, the baseline, a report, variants where there are any.
CHROMATIN = {
    "auc_report": 1,
    "calibrate_chromatin": 1,
    "chromatin_baseline": 1,
    "chromatin_data": 1,
    "chromatin_predictions": 2,
    "finetune_chromatin": 2,
}
# Without promoters: no pretraining either, where the chromatin models start from random weights.
CHROMATIN_ALONE = {
    "all": 1,
    "attention_figure": 1,
    "prepare_reference": 1,
    "run_report": 1,
    "stage_config": 7,
    "summary": 1,
    "tokenizer_statistics": 1,
    "train_tokenizer": 1,
    **CHROMATIN,
    "chromatin_predictions": 1,
    "finetune_chromatin": 1,
}
SOURCE_JOBS = {
    "demo": {"simulate": 1},
    # A fourth negative set, intergenic, with the annotation that it needs.
    "yeast": {"fetch": 3, "finetune_promoter": 5, "promoter_baseline": 8},
    # With DeepSEA's data, two models of one window, and no variants.
    "chr22": {},
    "grch37": {"fetch": 6, "unpack_deepsea": 1, "stage_config": 11}
    | CHROMATIN
    | {"chromatin_predictions": 1, "combine_chromatin": 1},
}
SOURCE_JOBS["grch37-short"] = SOURCE_JOBS["grch37"]
STUDY: dict[str, Any] = {
    "tasks": ["promoters", "chromatin"],
    "train_fractions": [0.05, 1],
    "seeds": [1, 7],
    "initializations": ["pretrained", "random", "random_long"],
    "random_long_steps": 900,
    "steps": 100,
    "evaluate_every": 20,
}


def snakemake(directory: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Snakemake on the repository's Snakefile in an empty directory."""
    command: list[str | Path] = [BIN / "snakemake", "--snakefile", REPOSITORY / "Snakefile", "--cores", "32"]
    return subprocess.run([*command, "--directory", directory, *arguments], capture_output=True, text=True)


def dry_run(directory: Path, *arguments: str | Path) -> str:
    """What a run would do; fails the test where Snakemake doesn't like it."""
    outcome = snakemake(directory, "--dry-run", "--printshellcmds", *arguments)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout + outcome.stderr


def refused(outcome: subprocess.CompletedProcess[str], message: str) -> None:
    """Snakemake has stopped with this one line."""
    assert outcome.returncode == 1
    said = [line for line in outcome.stderr.splitlines() if "profile" not in line]
    assert len(said) == 1 and re.search(f"^bigbird-dna: error: .*{message}", said[0])


def jobs(text: str) -> dict[str, int]:
    """Job counts of a dry run."""
    return dict(Counter(re.findall(r"^(?:local)?rule (\w+):$", text, re.MULTILINE)))


def stage_configs(text: str) -> dict[str, dict[str, Any]]:
    """The configuration of each stage, from the commands of a dry run."""
    written = re.findall(r"printf '%s\\n' '(\{.*?\n\})' > \S*/config/([\w-]+)\.yaml", text, re.DOTALL)
    return {stage: json.loads(values) for values, stage in written}


def overlay(directory: Path, values: dict[str, Any]) -> list[str | Path]:
    """Arguments for the demo's configuration with a few changed keys."""
    path = directory / "changed.yaml"
    path.write_text(yaml.safe_dump(values))
    return ["--configfile", REPOSITORY / "workflow/config/demo.yaml", path]


def own_genome(directory: Path, **changes: Any) -> list[str | Path]:
    """Arguments for the configuration of chr22 with stand-ins for its files, and a few changed keys."""
    local = directory / "local data"
    (local / "peaks").mkdir(parents=True)
    for name in ("chr22_1-22000000.fa.gz", "chr22_17442913-17680545.1000G_sites.vcf.gz", "my.sga"):
        (local / name).write_bytes(b"")
    path = directory / "changed.yaml"
    path.write_text(yaml.safe_dump({"data_dir": str(local), **changes}))
    return ["--configfile", REPOSITORY / "workflow/config/chr22.yaml", path]


def rules() -> dict[str, str]:
    """The text of every rule, by name."""
    found = {}
    for path in (REPOSITORY / "workflow/rules").glob("*.smk"):
        for rule in re.split(r"^rule ", path.read_text(), flags=re.MULTILINE)[1:]:
            found[rule.partition(":")[0]] = rule
    return found
