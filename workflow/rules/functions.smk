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

from bigbird_dna.config import (
    NEGATIVE_SETS,
    SIMULATED,
    STAGES,
    check_stages,
    complete,
    parse_config,
    stage_text,
)
from bigbird_dna.config.paths import scan_file
from bigbird_dna.data.predictions import KMER, NEAREST, POSITION, PROMOTER_BASELINES
from bigbird_dna.errors import BigBirdDnaError
from bigbird_dna.genome.sources import find_inputs, labeled_role, sequence_role
from bigbird_dna.gpus import keep_kernels
from bigbird_dna.papers.experiments import EXPERIMENTS
from bigbird_dna.papers.experiments.experiment import find_experiment, plan
from bigbird_dna.workflow import (
    device,
    given,
    growing,
    job,
    labeled_sequence_args,
    launcher,
    sequence_args,
    simulated_test_contigs,
    threads_each,
    time_limit,
    training,
)

try:
    CONFIG, START = parse_config(config), []
    if CONFIG.pretraining.start_from is not None:
        # Imports torch, which other runs need only in their jobs.
        from bigbird_dna.huggingface.starting import start_files, start_override, with_start

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
SEQUENCES = CONFIG.promoters.sequences
SETS = CONFIG.promoters.windows.negative_sets
# Of a genome: a custom sequence is one window, with one score and no start sites around it.
HAS_TSS = CONFIG.has_promoters and not SEQUENCES
# Whether a dense model scans the test contigs, instead of a promoter model the first one.
START_SITES = CONFIG.start_sites is not None
# Bounds of similarity to the training data; predictions of the baseline "nearest" have the similarities.
STRATA = CONFIG.splits.similarity_strata
MODELS = {name: PATHS.promoter_model(name) for name in SETS}
BASELINES = {
    f"{name}/{baseline}": PATHS.promoter_baseline(baseline, name)
    for name in SETS
    for baseline in (*PROMOTER_BASELINES, *([NEAREST] if STRATA else []))
    if not (CONFIG.has_unaligned_sequences and baseline == "position")
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


# File names instead of the output of a rule: with shards, another rule writes these files.
DATA_FILES = {
    "bins": PATHS.chromatin_data / "bins.parquet",
    "labels": PATHS.chromatin_data / "labels.npz",
    "tracks": PATHS.chromatin_data / "tracks.tsv",
    "description": PATHS.chromatin_data / "dataset.json",
}
# Labeled bins; with splits.max_train_test_similarity, a later rule removes bins similar to held-out bins.
LABELED = (
    PATHS.chromatin_data if CONFIG.splits.max_train_test_similarity is None else PATHS.labeled_bins
)
LABELED_FILES = {name: LABELED / path.name for name, path in DATA_FILES.items()}
# Inputs shared by several rules. Promoter windows refer to the genome, or to custom sequences.
WINDOWS_REFERENCE = PATHS.sequences if SEQUENCES else PATHS.reference
GENOME = indexed(PATHS.reference)
WINDOWS = {
    "windows": PATHS.windows / "windows.parquet",
    "labels": PATHS.windows / "labels.npz",
    **indexed(WINDOWS_REFERENCE),
}
BINS = {"bins": DATA_FILES["bins"], "rest": list(DATA_FILES.values()), **GENOME}
TOKENS = {
    "stores": [PATHS.token_store(split) for split in ("train", "valid", "test")],
    "tokenizer": PATHS.tokenizer,
}

# GPUs of a node that train together.
GPU_STAGE = CONFIG.largest_training
GPUS_OF_A_NODE = min(
    8, (CONFIG if GPU_STAGE == "pretraining" else getattr(CONFIG, GPU_STAGE)).num_gpus
)

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


def shard_of(file, count):
    """Return the shard of a file or directory that each of `count` jobs writes; a single job writes the whole."""
    return temp(PATHS.piece(file, "{shard}", count)) if count > 1 else file


def shards_of(file, count):
    """Return all shards of a file or directory, with the wildcards of its name."""
    return [PATHS.piece(file, number, count) for number in range(1, count + 1)]


def shard_log(count):
    """Return the suffix of the log name of a shard job."""
    return "-{shard}" if count > 1 else ""


def shard_args(count):
    """Return the option `--shard` of a command, if there are several shards."""
    return lambda wildcards: [f"--shard={wildcards.shard}/{count}"] if count > 1 else []


@functools.cache
def planned(experiment):
    """Return the jobs of an experiment by arm and seed; all are checked before the first one runs."""
    try:
        jobs = plan(find_experiment(experiment), CONFIG)
    except BigBirdDnaError as error:
        sys.exit(f"bigbird-dna: error: {error}")
    return {(job.arm.name, str(job.seed)): job for job in jobs}


def planned_job(wildcards):
    """Return the job of an arm and seed; without a seed, the first job of the arm."""
    jobs = planned(wildcards.experiment)
    own = [job for (arm, _), job in jobs.items() if arm == wildcards.arm]
    return jobs.get((wildcards.arm, wildcards.get("seed")), own[0] if own else None)


def arm_inputs(wildcards):
    """Return the inputs of a job; for an arm outside the plan, a file that does not exist."""
    job = planned_job(wildcards)
    return job.inputs if job else PATHS.experiment(f"no-arm-{wildcards.arm}")


def arm_processes(wildcards):
    """Return the number of processes of a training: that of pretraining or of the task; 1 for baselines."""
    job = planned_job(wildcards)
    if job is None or not job.is_model or job.experiment == "ablation":
        return 1
    return {
        "pretraining": CONFIG.num_gpus,
        "promoters": CONFIG.promoters.num_gpus,
        "chromatin": CONFIG.chromatin.num_gpus,
    }.get(job.arm.task, 1)


def arm_threads(wildcards):
    """Return the threads of a training: one per process, to train models in parallel; more for single models."""
    job, processes = planned_job(wildcards), arm_processes(wildcards)
    alone = job is not None and (
        job.arm.task == "bytes" or (job.arm.task == "pretraining" and job.experiment != "ablation")
    )
    return max(8, processes) if alone else processes


def data_arm(wildcards):
    """Return the first arm that uses a data set; the command selects the data set by this arm."""
    jobs = planned(wildcards.experiment).values()
    return next((job.arm.name for job in jobs if job.arm.data == wildcards.data), "none")


def data_settings(wildcards):
    """Return the settings that determine a data set, in addition to its inputs."""
    found = find_experiment(wildcards.experiment).data_config(CONFIG, wildcards.data)
    return found.model_dump_json()


def compared(experiment):
    """Return an input function for all files that an experiment compares."""

    def inputs(wildcards):
        jobs = planned(experiment).values()
        return [path for job in jobs for path in job.outputs] + [
            *find_experiment(experiment).inputs(CONFIG)
        ]

    return inputs


def compared_settings(experiment):
    """Return a params function for the arms, seeds and minimum positives of a report."""

    def settings(wildcards):
        jobs = [f"{job.arm.name}/{job.seed}" for job in planned(experiment).values()]
        probed = stage_text(CONFIG, "promoters") * (experiment == "layer_probes")
        return f"{CONFIG.chromatin.min_positives_report} {' '.join(jobs)}{probed}"

    return settings


wildcard_constraints:
    seed=r"\d+",
    negative_set="|".join(NEGATIVE_SETS),
    model="|".join([*NEGATIVE_SETS, r"control(-\d+)?"]),
    window=r"\d+",
    member=r"\d+",
    shard=r"\d+",
    kind="|random-|kmers-",
