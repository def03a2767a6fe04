"""The checked configuration, the names of a run's files, and what all rules share."""

import functools
import json
import os
import re
import shlex
import shutil
import sys
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from snakemake.settings.types import DeploymentMethod

from bigbird_dna.config import (
    NEGATIVE_SETS,
    SIMULATED,
    STAGES,
    Config,
    as_in_a_file,
    check_stages,
    complete,
    parse_config,
    stage_text,
)
from bigbird_dna.errors import BigBirdDnaError
from bigbird_dna.genome.sources.inputs import find_inputs
from bigbird_dna.papers.experiments import EXPERIMENTS
from bigbird_dna.papers.experiments.experiment import find_experiment, plan
from bigbird_dna.reporting.run_page import PARTS
from bigbird_dna.workflow import (
    device,
    given,
    growing,
    job,
    launcher,
    sequence_args,
    simulated_test_contigs,
    threads_each,
    time_limit,
    training,
)

try:
    config.update(as_in_a_file(config, workflow.config_settings.config, Config))
    CONFIG = complete(parse_config(config))
    INPUTS = find_inputs(CONFIG)
    CONFIG.check_targets()
    check_stages(CONFIG)
except BigBirdDnaError as error:
    # Snakemake's own exceptions would wrap this line in the traceback of the Snakefile.
    sys.exit(f"bigbird-dna: error: {error}")

PATHS = CONFIG.paths
CHROMATIN = CONFIG.chromatin
SEQUENCES = CONFIG.promoters.sequences
SETS = CONFIG.promoters.windows.negative_sets
# The effects of simulated variants are known: those on sequence that no training saw are scored and evaluated.
KNOWN_EFFECTS = CHROMATIN.data.tracks == SIMULATED
# For params of what takes minutes: reports are made again by another version. What a GPU has worked on for days
# is not, nor what it was made from, which would then be newer.
VERSION = version("bigbird-dna")
# The assembly by which commands name contigs, with its alias file as an input, wherever that is found. What reads a
# stage's file gets the path there.
ALIASES = INPUTS.files.get("aliases", [])
NAMING = [
    *("--assembly", CONFIG.genome.assembly),
    *(["--aliases", str(ALIASES)] if ALIASES else []),
]
SET_ALIASES = (
    ["--set", f"genome.aliases={json.dumps(str(ALIASES), ensure_ascii=False)}"] if ALIASES else []
)


def indexed(fasta):
    """A FASTA file with its indices, as inputs of a rule."""
    return {"reference": fasta, "indices": multiext(str(fasta), ".fai", ".gzi")}


# By name and not as a rule's output: of work in shards it is another rule that makes them.
DATA_FILES = {
    "bins": PATHS.chromatin_data / "bins.parquet",
    "labels": PATHS.chromatin_data / "labels.npz",
    "tracks": PATHS.chromatin_data / "tracks.tsv",
    "description": PATHS.chromatin_data / "dataset.json",
}
# Where bins get their labels; with splits.max_train_test_similarity what is like held-out ones is left out afterwards.
LABELLED = (
    PATHS.chromatin_data if CONFIG.splits.max_train_test_similarity is None else PATHS.labelled_bins
)
LABELLED_FILES = {name: LABELLED / path.name for name, path in DATA_FILES.items()}
# Inputs that several rules have. Windows of promoters are in a genome, or in the user's sequences.
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

# A training enters the image by itself, as Snakemake does for the other rules: on several nodes srun, which no image
# has, starts one container on each.
INSIDE = (
    f"{'apptainer' if shutil.which('apptainer') else 'singularity'} exec"
    f" --home {shlex.quote(os.getcwd())} {workflow.deployment_settings.apptainer_args} {IMAGE}"
    if DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method
    else ""
)
AROUND_TRAINING = None if INSIDE else IMAGE
LAUNCH = launcher(INSIDE)


def report_item(path):
    """A file that `snakemake --report` shows as the run's own page does, if that shows it.

    A table has the caption of the figure beside it, or of its part.
    """
    for part, items in PARTS.items():
        for item in items:
            if item.name == path.name:
                beside = [other for other in items if Path(other.name).stem == path.stem]
                caption, *_ = filter(None, (one.caption for one in (item, *beside, *items)))
                return report(
                    path,
                    category=part,
                    caption=str(files("bigbird_dna.reporting") / f"captions/{caption}.rst"),
                    labels={"figure": item.title or part},
                )
    return path


def shard_of(file, count):
    """What one job of several makes of a file or directory, and each of `count` jobs in turn; one makes the whole."""
    return temp(PATHS.piece(file, "{shard}", count)) if count > 1 else file


def shards_of(file, count):
    """All shards of a file or directory; wildcards of its name stay."""
    return [PATHS.piece(file, number, count) for number in range(1, count + 1)]


def shard_log(count):
    """The end of the name of such a job's log."""
    return "-{shard}" if count > 1 else ""


def shard_args(count):
    """The option that says to a command which shard it makes."""
    return lambda wildcards: [f"--shard={wildcards.shard}/{count}"] if count > 1 else []


@functools.cache
def planned(experiment):
    """The jobs of an experiment by arm and seed, checked as a whole: before the first of them."""
    try:
        jobs = plan(find_experiment(experiment), CONFIG)
    except BigBirdDnaError as error:
        sys.exit(f"bigbird-dna: error: {error}")
    return {(job.arm.name, str(job.seed)): job for job in jobs}


def planned_job(wildcards):
    """The job of a directory; of an arm's own files its first."""
    jobs = planned(wildcards.experiment)
    own = [job for (arm, _), job in jobs.items() if arm == wildcards.arm]
    return jobs.get((wildcards.arm, wildcards.get("seed")), own[0] if own else None)


def arm_inputs(wildcards):
    """What a job reads; an arm that isn't in the plan has no file."""
    job = planned_job(wildcards)
    return job.inputs if job else PATHS.experiment(f"no-arm-{wildcards.arm}")


def arm_processes(wildcards):
    """Processes of a training: those of pretraining, or of the task; comparators have one."""
    job = planned_job(wildcards)
    if job is None or not job.is_model or job.experiment == "ablation":
        return 1
    return {
        "pretraining": CONFIG.num_gpus,
        "promoters": CONFIG.promoters.num_gpus,
        "chromatin": CONFIG.chromatin.num_gpus,
    }.get(job.arm.task, 1)


def arm_threads(wildcards):
    """One each: models then train side by side. What is trained alone has more."""
    job, processes = planned_job(wildcards), arm_processes(wildcards)
    alone = job is not None and (
        job.arm.task == "bytes" or (job.arm.task == "pretraining" and job.experiment != "ablation")
    )
    return max(8, processes) if alone else processes


def data_arm(wildcards):
    """An arm that has a data set, which its command is told by."""
    jobs = planned(wildcards.experiment).values()
    return next((job.arm.name for job in jobs if job.arm.data == wildcards.data), "none")


def data_settings(wildcards):
    """What decides a data set beside its inputs."""
    found = find_experiment(wildcards.experiment).data_config(CONFIG, wildcards.data)
    return found.model_dump_json()


def compared(experiment):
    """An input function: all files that an experiment compares."""

    def inputs(wildcards):
        jobs = planned(experiment).values()
        return [path for job in jobs for path in job.outputs] + [
            *find_experiment(experiment).inputs(CONFIG)
        ]

    return inputs


def compared_settings(experiment):
    """What a report is made of beside files: which arms and seeds, and which tracks count."""

    def settings(wildcards):
        jobs = [f"{job.arm.name}/{job.seed}" for job in planned(experiment).values()]
        return f"{CONFIG.chromatin.min_positives_report} {' '.join(jobs)}"

    return settings


wildcard_constraints:
    seed=r"\d+",
    negative_set="|".join(NEGATIVE_SETS),
    model="|".join([*NEGATIVE_SETS, "control"]),
    window=r"\d+",
    member=r"\d+",
    shard=r"\d+",
