"""What the workflow's tests share: dry runs of it, and what they say."""

import json
import multiprocessing
import os
import re
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import Any, NamedTuple

import yaml

from bigbird_dna.papers.experiments import EXPERIMENTS
from tests.conftest import REPOSITORY
from tests.toys import written
from tests.workflow.snakemake_process import run_snakemake

BIN = Path(sys.executable).parent
# A table that is there; nothing of it is read in a dry run.
TABLE = REPOSITORY / "resources/examples/yeast_VII_20kb.promoters.tsv"


def once(names: str) -> dict[str, int]:
    """One job of each of these rules."""
    return dict.fromkeys(names.split(), 1)


# Jobs of every run with promoters: those of the simulation or the downloads come on top.
PROMOTERS = once(
    "all prepare_reference prepare_promoters prepare_promoter_windows "
    "prepare_tokenizer prepare_tokens pretrain evaluate_pretraining prepare_test "
    "report_plot_scores report_run score_promoters evaluate_scan"
)
# A dense model scans all test contigs, beside baselines that are trained against one negative set.
DENSE = PROMOTERS | once(
    "finetune_start_sites model_calibrate_start_sites call_promoters "
    "train_baseline_promoter"
)
DENSE |= {"stage_config": 6}
# With `promoters.model: window`, a model of windows scans the first test contig.
WINDOW = PROMOTERS | {
    "evaluate_promoters": 1,
    "finetune_promoter": 4,
    "train_baseline_promoter": 3,
    "stage_config": 6,
}
# With `chromatin.data.tracks`: two windows, the baseline, a report, variants where there are any.
CHROMATIN = once(
    "prepare_chromatin train_baseline_chromatin model_calibrate_chromatin auc_report"
) | {
    "evaluate_test_bins": 2,
    "finetune_chromatin": 2,
}
# Without promoters: no pretraining either, where the chromatin models start from random weights.
CHROMATIN_ALONE = (
    once("all prepare_reference prepare_tokenizer")
    | CHROMATIN
    | {
        "report_run": 1,
        "evaluate_test_bins": 1,
        "finetune_chromatin": 1,
        "stage_config": 6,
    }
)
JOBS = {
    # Chromatin models of one window.
    "demo": DENSE
    | CHROMATIN
    | {
        "simulate": 1,
        "evaluate_test_bins": 1,
        "finetune_chromatin": 1,
        "stage_config": 10,
    },
    "yeast": DENSE | {"prepare_fetch": 3},
    "ecoli": DENSE | {"prepare_fetch": 3},
    # With DeepSEA's data, two models of one window, and no variants.
    "grch37": WINDOW
    | CHROMATIN
    | {
        "prepare_fetch": 6,
        "stage_config": 10,
        "evaluate_test_bins": 1,
        "model_ensemble": 1,
    },
}
JOBS["grch37-short"] = JOBS["grch37"]


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    out: str
    err: str


def snakemake(
    directory: Path, *arguments: str | Path, snakefile: Path = REPOSITORY / "Snakefile"
) -> Ended:
    """Run Snakemake in a directory, on the repository's Snakefile or another; jobs have the same Python."""
    words = [
        "snakemake",
        "--snakefile",
        snakefile,
        "--cores",
        "32",
        "--directory",
        directory,
        *arguments,
    ]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
        "PATH": os.pathsep.join([str(BIN), *os.get_exec_path()]),
        "PYTHONPATH": str(REPOSITORY),
    }
    # A fork of a process that has imported Snakemake: each import takes three seconds.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.workflow.snakemake_process"])
    with TemporaryDirectory() as home:
        process = context.Process(
            target=run_snakemake,
            args=([str(word) for word in words], environment, home),
        )
        process.start()
        process.join()
        assert process.exitcode is not None
        return Ended(
            process.exitcode,
            Path(home, "stdout").read_text(errors="replace"),
            Path(home, "stderr").read_text(errors="replace"),
        )


def dry_run(directory: Path, *arguments: str | Path) -> str:
    """What a run would do; fails the test where Snakemake doesn't like it."""
    outcome = snakemake(directory, "--dry-run", "--printshellcmds", *arguments)
    assert outcome.code == 0, outcome.out + outcome.err
    return outcome.out + outcome.err


def refused(outcome: Ended, pattern: str = "") -> str:
    """Snakemake has stopped with this one line, which is given back."""
    assert outcome.code == 1
    (line,) = [line for line in outcome.err.splitlines() if "profile" not in line]
    assert re.search(f"^bigbird-dna: error: .*{pattern}", line)
    return line


def jobs(text: str) -> dict[str, int]:
    """Job counts of a dry run."""
    return dict(Counter(re.findall(r"^(?:local)?rule (\w+):$", text, re.MULTILINE)))


def stage_configs(text: str) -> dict[str, dict[str, Any]]:
    """The configuration of each stage, from the commands of a dry run."""
    written = re.findall(
        r"printf '%s\\n' '(\{.*?\n\})' > \S*/config/([\w-]+)\.yaml", text, re.DOTALL
    )
    return {stage: json.loads(values) for values, stage in written}


def overlay(directory: Path, values: dict[str, Any]) -> list[str | Path]:
    """Arguments for the demo's configuration with a few changed keys."""
    path = written(directory / "changed.yaml", yaml.safe_dump(values))
    return ["--configfile", REPOSITORY / "workflow/config/demo.yaml", path]


def own_genome(directory: Path, **changes: Any) -> list[str | Path]:
    """Arguments for the configuration of chr22 with stand-ins for its files, and a few changed keys."""
    local = directory / "local data"
    (local / "peaks").mkdir(parents=True)
    for name in (
        "chr22_1-22000000.fa.gz",
        "chr22_17442913-17680545.1000G_sites.vcf.gz",
        "my.sga",
    ):
        (local / name).write_bytes(b"")
    path = written(
        directory / "changed.yaml", yaml.safe_dump({"data_dir": str(local), **changes})
    )
    return ["--configfile", REPOSITORY / "workflow/config/chr22.yaml", path]


def rules() -> dict[str, dict[str, str]]:
    """The directives of every rule, with those that it has of another rule."""
    included = re.findall(
        r'include: "(.*)"', (REPOSITORY / "workflow/Snakefile").read_text()
    )
    text = "".join((REPOSITORY / "workflow" / path).read_text() for path in included)
    found: dict[str, dict[str, str]] = {}
    head = r"^( *)(?:rule (\w+)|use rule (\w+) as (\w+) with):\n((?:\1    .*\n|\n)+)"
    for _, name, base, derived, body in re.findall(head, text, re.MULTILINE):
        directives = dict(
            re.findall(r"^(\w+):(.*\n(?: .*\n|\n)*)", dedent(body), re.MULTILINE)
        )
        found[name or derived] = found.get(base, {}) | directives
    return found


def asking() -> set[str]:
    """The rules that ask for GPUs."""
    resources = {name: rule.get("resources", "") for name, rule in rules().items()}
    asking = {
        name
        for name, text in resources.items()
        if "gpu=" in text or "**training(" in text
    }
    return asking | {*EXPERIMENTS}
