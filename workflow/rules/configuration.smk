"""The checked configuration, the names of a run's files, and what all rules share."""

import fnmatch
import json
import os
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
# What the figures show is said once: on the run's own page, and by `snakemake --report`.
CAPTIONS = str(files("bigbird_dna.reporting") / "captions")
SEQUENCES = CONFIG.promoters.sequences
SETS = CONFIG.promoters.windows.negative_sets
# Where the tokenizer learns, and where the windows of promoters are: a genome, or the user's sequences.
CORPUS = PATHS.reference if CONFIG.has_genome else PATHS.training_sequences
WINDOWS_REFERENCE = PATHS.sequences if SEQUENCES else PATHS.reference
# For params of what takes minutes: reports are made again by another version. What a GPU has worked on for days
# is not, nor what it was made from, which would then be newer.
VERSION = version("bigbird-dna")
# As of the device: the threads of each process of a training: their number decides no weights.
THREADS_EACH = lambda wildcards, threads, resources: max(
    1, threads * resources.get("nodes", 1) // resources.processes
)
# Words of commands that name contigs by the assembly …
ASSEMBLY = ["--assembly", CONFIG.genome.assembly]
# … with its alias file as an input, wherever that is found. What reads a stage's file gets the path there.
ALIASES = INPUTS.files.get("aliases", [])
NAMING = ASSEMBLY + (["--aliases", str(ALIASES)] if ALIASES else [])
SET_ALIASES = (
    ["--set", f"genome.aliases={json.dumps(str(ALIASES), ensure_ascii=False)}"] if ALIASES else []
)


# By name and not as a rule's output: of work in pieces it is another rule that makes them.
DATA_FILES = {
    name: PATHS.chromatin_data / file
    for name, file in (
        ("bins", "bins.parquet"),
        ("labels", "labels.npz"),
        ("tracks", "tracks.tsv"),
        ("description", "dataset.json"),
    )
}
# Where bins get their labels; with splits.max_train_test_similarity what is like held-out ones is left out afterwards.
LABELLED = PATHS.chromatin_data if CONFIG.splits.max_train_test_similarity is None else PATHS.labelled_bins
LABELLED_FILES = {name: LABELLED / path.name for name, path in DATA_FILES.items()}


# A training enters the image by itself, with the words that Snakemake has for the other rules: on several nodes srun,
# which no image has, starts one container on each.
INSIDE = (
    f"{'apptainer' if shutil.which('apptainer') else 'singularity'} exec"
    f" --home {shlex.quote(os.getcwd())} {workflow.deployment_settings.apptainer_args} {IMAGE}"
    if DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method
    else ""
)
AROUND_TRAINING = None if INSIDE else IMAGE


def LAUNCH(wildcards, threads, resources):
    """The program that trains, on as many processes and nodes as the job has: words before the command."""
    counts = {
        "processes": resources.processes,
        "nodes": resources.get("nodes", 1),
        "cpus": threads,
    }
    if counts["processes"] == counts["nodes"] == 1 and not INSIDE:
        return ["bigbird-dna"]
    options = [f"--{name}={count}" for name, count in counts.items()]
    options += [f"--container-command={INSIDE}"] if INSIDE else []
    return ["python", "-m", "bigbird_dna.cli.launch", *options, "--"]


def sequence_options():
    """The options of prepare sequences that the configuration says."""
    if not SEQUENCES:
        return []
    windows = CONFIG.promoters.windows
    named = {
        "length": SEQUENCES.length,
        "upstream": windows.upstream,
        "negatives-per-positive": windows.negatives,
        "similarity": SEQUENCES.min_shared_kmers,
        "seed": CONFIG.seed,
    }
    options = [f"--{name}={value}" for name, value in named.items() if value is not None]
    return options + [f"--negative-set={name}" for name in windows.negative_sets]


def piece_option(of):
    """The option that says to a command which piece it makes."""
    return lambda wildcards: [f"--shard={wildcards.piece}/{of}"]


def pieces_of(file, of):
    """All pieces of a job; wildcards of the file's name stay."""
    return [PATHS.piece(file, number, of) for number in range(1, of + 1)]


wildcard_constraints:
    seed=r"\d+",
    negative_set="|".join(NEGATIVE_SETS),
    model="|".join([*NEGATIVE_SETS, "control"]),
    window=r"\d+",
    member=r"\d+",
