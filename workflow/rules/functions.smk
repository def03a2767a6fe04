"""The validated configuration, paths of a run's files, and functions shared by all rules."""

import functools
import json
import os
import re
import shlex
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

from snakemake.settings.types import DeploymentMethod

from bigbird_dna.config.chromatin import SIMULATED
from bigbird_dna.config.promoters import NEGATIVE_SETS
from bigbird_dna.config.reading import complete, parse_config
from bigbird_dna.config.run import STAGES, check_stages, stage_text
from bigbird_dna.config.paths import scan_file
from bigbird_dna.data.predictions import KMER, POSITION, PROMOTER_BASELINES
from bigbird_dna.errors import BigBirdDnaError
from bigbird_dna.genome.sources import find_inputs, labeled_role
from bigbird_dna.gpus import keep_kernels
from bigbird_dna.papers.experiments import EXPERIMENTS
from bigbird_dna.papers.experiments.arms import find_experiment
from bigbird_dna.workflow import (
    device,
    given,
    growing,
    job,
    labeled_sequence_args,
    launcher,
    simulated_test_contigs,
    threads_each,
    time_limit,
    training,
)

try:
    SOURCE = ", ".join(map(str, workflow.overwrite_configfiles)) or "configuration"
    CONFIG, START = parse_config(config, SOURCE), []
    if CONFIG.pretraining.start_from is not None:
        # Imports torch, which other runs need only in their jobs.
        from bigbird_dna.huggingface.starting import start_command, start_files, with_start

        CONFIG, START = with_start(CONFIG), start_files(CONFIG)
    CONFIG = complete(CONFIG)
    INPUTS = find_inputs(CONFIG)
    CONFIG.check_targets()
    check_stages(CONFIG)
except BigBirdDnaError as error:
    # An exception of Snakemake would add a traceback of the Snakefile to this line.
    sys.exit(f"bigbird-dna: error: {error}")

# Jobs inherit it.
keep_kernels(CONFIG.kernel_cache)
PATHS = CONFIG.paths
CHROMATIN = CONFIG.chromatin
SETS = CONFIG.promoters.windows.negative_sets
# Whether a dense model scans the test contigs, instead of a promoter model the first one.
START_SITES = CONFIG.start_sites is not None
MODELS = {name: PATHS.promoter_model(name) for name in SETS}
BASELINES = {
    f"{name}/{baseline}": PATHS.promoter_baseline(baseline, name)
    for name in SETS
    for baseline in PROMOTER_BASELINES
}
# Simulated variants have known effects: variants on held-out contigs are scored and evaluated.
KNOWN_EFFECTS = CHROMATIN.data.tracks == SIMULATED
# A param of rules that take minutes: a new version makes reports again. Results of days of GPU time are kept, and
# so are their inputs, which would otherwise be newer.
VERSION = version("bigbird-dna")
# Assembly options of commands, with the alias file as an input, wherever it was found. Commands that read a stage's
# file get its path through SET_ALIASES.
ALIASES = INPUTS.files.get("aliases", [])
NAMING = [
    *("--assembly", CONFIG.genome.assembly),
    *(["--aliases", str(ALIASES)] if ALIASES else []),
]
SET_ALIASES = (
    ["--set", f"genome.aliases={json.dumps(str(ALIASES), ensure_ascii=False)}"] if ALIASES else []
)


def indexed(fasta):
    """Return a FASTA file and its indices as inputs of a rule."""
    return {"reference": fasta, "indices": multiext(str(fasta), ".fai", ".gzi")}


DATA_FILES = {
    "bins": PATHS.chromatin_data / "bins.parquet",
    "labels": PATHS.chromatin_data / "labels.npz",
    "tracks": PATHS.chromatin_data / "tracks.tsv",
    "description": PATHS.chromatin_data / "dataset.json",
}
# Inputs shared by several rules.
GENOME = indexed(PATHS.reference)
WINDOWS = {
    "windows": PATHS.windows / "windows.parquet",
    "labels": PATHS.windows / "labels.npz",
    **GENOME,
}
BINS = {"bins": DATA_FILES["bins"], "rest": list(DATA_FILES.values()), **GENOME}
TOKENS = {
    "stores": [PATHS.token_store(split) for split in ("train", "valid", "test")],
    "tokenizer": PATHS.tokenizer,
}

# A training enters the image itself, while Snakemake does this for other rules: on several nodes, srun, which is not
# in the image, starts one container per node.
INSIDE = (
    f"{'apptainer' if shutil.which('apptainer') else 'singularity'} exec"
    f" --home {shlex.quote(os.getcwd())} {workflow.deployment_settings.apptainer_args} {IMAGE}"
    if DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method
    else ""
)
AROUND_TRAINING = None if INSIDE else IMAGE
LAUNCH = launcher(INSIDE)


@functools.cache
def planned(experiment):
    """Return the arms of an experiment by name; all are checked before the first one runs."""
    try:
        return {arm.name: arm for arm in find_experiment(experiment).arms(CONFIG)}
    except BigBirdDnaError as error:
        sys.exit(f"bigbird-dna: error: {error}")


def arm_inputs(wildcards):
    """Return the inputs of an arm; for a name outside the plan, a file that does not exist."""
    arm = planned(wildcards.experiment).get(wildcards.arm)
    return arm.inputs if arm else PATHS.experiment(f"no-arm-{wildcards.arm}")


def arm_processes(wildcards):
    """Return the number of processes of an arm."""
    arm = planned(wildcards.experiment).get(wildcards.arm)
    return max(1, arm.processes) if arm else 1


def arm_gpus(wildcards):
    """Return the number of GPUs of an arm; 0 for its data."""
    arm = planned(wildcards.experiment).get(wildcards.arm)
    return arm.processes if arm else 0


def arm_threads(wildcards):
    """Return the threads of an arm: one per process, to train arms in parallel; more for large single models."""
    single = wildcards.experiment in ("table5", "byte_lm")
    return max(8 if single else 1, arm_processes(wildcards))


def arm_settings(wildcards):
    """Return all that determines the result of an arm, besides its inputs."""
    return json.dumps(planned(wildcards.experiment)[wildcards.arm].settings)


def compared(experiment):
    """Return an input function for all files that an experiment compares."""

    def inputs(wildcards):
        found = find_experiment(experiment)
        further = found.inputs(CONFIG) if hasattr(found, "inputs") else []
        return [arm.done for arm in planned(experiment).values()] + further

    return inputs


def compared_settings(experiment):
    """Return a params function for the arms and minimum positives of a report."""

    def settings(wildcards):
        return f"{CONFIG.chromatin.min_positives_report} {' '.join(planned(experiment))}"

    return settings


wildcard_constraints:
    seed=r"\d+",
    negative_set="|".join(NEGATIVE_SETS),
    model="|".join([*NEGATIVE_SETS, "control"]),
    window=r"\d+",
    member=r"\d+",
    kind="|kmers-",
