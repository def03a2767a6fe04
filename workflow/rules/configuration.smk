"""The checked configuration, what every stage sees of it, and where files go."""

import json
import os
import sys
from importlib.metadata import version
from pathlib import Path

from snakemake.exceptions import WorkflowError

from bigbird_dna.config import parse_config
from bigbird_dna.errors import BigBirdDnaError
from bigbird_dna.genome.sources import find_source


def check_config():
    """The configuration and the sources it names; a fault ends Snakemake with one line."""
    try:
        checked = parse_config(config)
        genome = checked.genome
        sources = {
            name: find_source(getattr(genome, name))
            for name in ("reference", "promoters", "chain")
            if getattr(genome, name) is not None
        }
        return checked, sources
    except BigBirdDnaError as error:
        raise WorkflowError(str(error)) from None
