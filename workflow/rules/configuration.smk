"""The checked configuration, and what all rules share."""

import os
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

from bigbird_dna.config import DEEPSEA, NEGATIVE_SETS, SIMULATED, parse_config
from bigbird_dna.errors import BigBirdDnaError, ConfigError
from bigbird_dna.genome.sources.local import check_chromatin_files, locate
from bigbird_dna.genome.sources.public import check_sources, own_files

# `snakemake` may be called by its path, without its environment activated.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))


def has_promoters(checked):
    """Whether there are models of promoters; a simulated genome has its own."""
    return checked.genome.reference is None or checked.genome.promoters is not None


def has_pretraining(checked):
    """Whether an encoder is pretrained; for chromatin alone only if that starts from it."""
    return has_promoters(checked) or checked.chromatin.initial == "pretrained"


def check_targets(checked):
    """What the rules need beyond a valid configuration: held-out sequence, a model that scores."""
    promoters, chromatin = has_promoters(checked), checked.chromatin
    if not promoters and chromatin.tracks is None:
        raise ConfigError("genome.promoters and chromatin.tracks are both null: name one of them")
    # Promoters are split by contig, and pretraining is measured on a contig; bins also by region.
    by_contig = {"valid": promoters or has_pretraining(checked), "test": promoters}
    regions = {"valid": chromatin.valid_regions, "test": chromatin.test_regions}
    for split, needed in by_contig.items():
        if getattr(checked.genome, split):
            continue
        if needed:
            raise ConfigError(f"genome.{split}: name at least one contig")
        if not regions[split] and chromatin.tracks != DEEPSEA:
            raise ConfigError(
                f"genome.{split}: name at least one contig, or a region in chromatin.{split}_regions"
            )
    if promoters and checked.scoring.negative_set not in checked.promoters.negative_sets:
        raise ConfigError(
            f"scoring.negative_set: {checked.scoring.negative_set!r} is none of "
            "promoters.negative_sets"
        )


def located(name):
    """The path of a file that the configuration names, in local_data if it is there; none: []."""
    return [] if name is None else str(locate(name, CONFIG.local_data))


try:
    CONFIG = parse_config(config)
    SOURCES = check_sources(CONFIG)
    OWN_FILES = own_files(CONFIG)
    check_targets(CONFIG)
    check_chromatin_files(CONFIG)
except BigBirdDnaError as error:
    # Snakemake's own exceptions would wrap this line in the traceback of the Snakefile.
    sys.exit(f"bigbird-dna: error: {error}")

RESULTS = CONFIG.results
PROMOTERS = has_promoters(CONFIG)
PRETRAINING = has_pretraining(CONFIG)
VERSION = version("bigbird-dna")


wildcard_constraints:
    negative_set="|".join(NEGATIVE_SETS),
    model="|".join([*NEGATIVE_SETS, "control"]),
