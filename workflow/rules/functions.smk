"""The validated configuration, paths of a run's files, and functions shared by all rules."""

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
from bigbird_dna.config.run import STAGES, stage_text
from bigbird_dna.config.paths import scan_file
from bigbird_dna.data.predictions import CPG, KMER, POSITION, PROMOTER_BASELINES
from bigbird_dna.errors import BigBirdDnaError
from bigbird_dna.genome.sources import find_inputs, load_sources
from bigbird_dna.papers.experiments import EXPERIMENTS
from bigbird_dna.workflow import (
    device,
    given,
    growing,
    job,
    labeled_sequence_args,
    launcher,
    simulated_test_contigs,
    threads_each,
    training,
)

try:
    SOURCE = ", ".join(map(str, workflow.overwrite_configfiles)) or "configuration"
    CONFIG, START = parse_config(config, SOURCE), []
    if CONFIG.pretraining.start_from is not None:
        # Imports torch, which other runs need only in their jobs.
        from bigbird_dna.huggingface.starting import start_command, start_files, with_start

        CONFIG, START = with_start(CONFIG), start_files(CONFIG)
    CONFIG = complete(CONFIG, SOURCE)
    INPUTS = find_inputs(CONFIG)
    if CONFIG.pieces:
        PIECES_SCRIPT = workflow.source_path("../scripts/human_pieces.py")
        sys.path.append(str(Path(PIECES_SCRIPT).parent))
        from human_pieces import load_settings

        PIECES = load_settings(CONFIG, SOURCE)[1]
    CONFIG.check_targets(SOURCE)
except BigBirdDnaError as error:
    # An exception of Snakemake would add a traceback of the Snakefile to this line.
    sys.exit(f"bigbird-dna: error: {error}")

PATHS = CONFIG.paths
# Keys of public files by name.
DOWNLOADS = {source.file: source.key for source in load_sources().values()}
CHROMATIN = CONFIG.chromatin
SETS = CONFIG.promoters.windows.negative_sets
# Whether a dense model scans the test contigs, instead of a model of windows the first one.
START_SITES = CONFIG.has_dense
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


def figure(name):
    """A figure on the run's page."""
    return PATHS.report / f"{name}.plotly.json"


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


def experiment_inputs(name):
    """Return the files that the trainings and comparisons of an experiment read."""
    files = []
    tokens = [*TOKENS["stores"], TOKENS["tokenizer"]]
    held_out = PATHS.held_out_bins / "labels.npz"
    start = [CONFIG.model_tokenizer]
    windows = [*WINDOWS.values(), *start] if CONFIG.has_promoters else []
    bins = [*BINS.values(), held_out, *start] if CONFIG.has_chromatin else []
    if name in ("table5", "ablation") and CONFIG.has_genome:
        files += tokens
    if name == "table5" and CONFIG.has_genome:
        files.append(PATHS.pretraining_bits)
    if name == "table6":
        files += windows
    if name == "table7":
        files += bins
    if name in ("table6", "table7") and files:
        if "pretrained" in CONFIG.tables.initializations:
            files.append(PATHS.pretrained)
            # Their models are pretrained by Table 5.
            files += [PATHS.report / file for file in EXPERIMENTS["table5"] if CONFIG.tables.models]
    if name == "byte_lm" and CONFIG.byte_lm:
        files += [*CONFIG.byte_lm.train, *CONFIG.byte_lm.test]
    return files


def experiment_settings(name):
    """Return the configuration of an experiment; without paths."""
    sections = {"long_range_arena": {"long_range_arena"}, "byte_lm": {"byte_lm"}}
    sections = sections.get(name, {*STAGES["report"].split(), "tables", "ablation"})
    return CONFIG.model_dump_json(include=sections)


wildcard_constraints:
    seed=r"\d+",
    negative_set="|".join(NEGATIVE_SETS),
    model="|".join([*NEGATIVE_SETS, "control"]),
    window=r"\d+",
    member=r"\d+",
