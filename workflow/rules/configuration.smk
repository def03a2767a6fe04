"""The checked configuration, and what all rules share."""

import os
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

from bigbird_dna.config import NEGATIVE_SETS, parse_config
from bigbird_dna.errors import BigBirdDnaError, ConfigError
from bigbird_dna.genome.sources import check_sources

# `snakemake` may be called by its path, without its environment activated.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))


def check_targets(checked):
    """What the rules need beyond a valid configuration: something to hold out, models to compare."""
    for split in ("valid", "test"):
        if not getattr(checked.genome, split):
            raise ConfigError(f"genome.{split}: name at least one contig")
    sets = checked.promoters.negative_sets
    for key, chosen in {
        "promoters.control": checked.promoters.control,
        "scoring.negative_set": checked.scoring.negative_set,
    }.items():
        if chosen is not None and chosen not in sets:
            raise ConfigError(f"{key}: {chosen!r} is not among promoters.negative_sets")


try:
    CONFIG = parse_config(config)
    SOURCES = check_sources(CONFIG)
    check_targets(CONFIG)
except BigBirdDnaError as error:
    # Snakemake's own exceptions would wrap this line in the traceback of the Snakefile.
    sys.exit(f"bigbird-dna: error: {error}")

RESULTS = CONFIG.results
VERSION = version("bigbird-dna")


wildcard_constraints:
    negative_set="|".join(NEGATIVE_SETS),
    model="|".join([*NEGATIVE_SETS, "control"]),
