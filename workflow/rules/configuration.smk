"""The checked configuration, and what all rules share."""

import os
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

from bigbird_dna.config import DEEPSEA, NEGATIVE_SETS, parse_config
from bigbird_dna.errors import BigBirdDnaError, ConfigError
from bigbird_dna.genome.sources import check_sources

# `snakemake` may be called by its path, without its environment activated.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))


def check_targets(checked):
    """What the rules need beyond a valid configuration: held-out contigs, a model that scores."""
    for split in ("valid", "test"):
        if not getattr(checked.genome, split):
            raise ConfigError(f"genome.{split}: name at least one contig")
    if checked.scoring.negative_set not in checked.promoters.negative_sets:
        raise ConfigError(
            f"scoring.negative_set: {checked.scoring.negative_set!r} is none of "
            "promoters.negative_sets"
        )


def track_source(checked):
    """The track table or folder of peaks, in local_data if it is there; none: another kind, or no chromatin."""
    named = checked.chromatin.tracks
    if named in (None, "simulated", DEEPSEA):
        return None
    local = Path(checked.local_data or ".") / named
    return str(local if local.exists() else named)


try:
    CONFIG = parse_config(config)
    SOURCES = check_sources(CONFIG)
    check_targets(CONFIG)
except BigBirdDnaError as error:
    # Snakemake's own exceptions would wrap this line in the traceback of the Snakefile.
    sys.exit(f"bigbird-dna: error: {error}")

RESULTS = CONFIG.results
TRACKS = track_source(CONFIG)
VERSION = version("bigbird-dna")


wildcard_constraints:
    negative_set="|".join(NEGATIVE_SETS),
    model="|".join([*NEGATIVE_SETS, "control"]),
