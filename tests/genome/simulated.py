"""A simulated genome read by other means than the simulation's, for the tests of it."""

import gzip
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from bigbird_dna.genome.simulate.motifs import (
    Motif,
)

MEGABASES = 1.2
SEEDS = st.integers(0, 2**32 - 1)
IUPAC = {"R": "[AG]", "Y": "[CT]", "S": "[CG]", "W": "[AT]", "K": "[GT]", "M": "[AC]"}


class Demo(NamedTuple):
    """A simulated directory, read plainly."""

    directory: Path
    sequences: dict[str, str]
    loci: dict[str, list[tuple[int, int, str, str]]]
    truth: dict


def lines(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt") as stream:
        return [line.rstrip("\n").split("\t") for line in stream if not line.startswith("#")]


def encode(sequence: str) -> np.ndarray:
    return np.array(["ACGTN".index(letter) for letter in sequence.upper()], dtype=np.uint8)


def turned(sequence: str) -> str:
    return sequence[::-1].translate(str.maketrans("ACGTN", "TGCAN"))


def regex_sites(motif: Motif, sequence: str) -> tuple[list[int], list[int]]:
    """Starts of a motif's sites on either strand, from its consensus as text."""
    pattern = "".join(
        "[ACGT]" if letter.islower() else IUPAC.get(letter, letter) for letter in motif.consensus
    )
    found = [match.start() for match in re.finditer(f"(?={pattern})", sequence)]
    mirrored = [match.start() for match in re.finditer(f"(?={pattern})", turned(sequence))]
    return found, sorted(len(sequence) - start - motif.width for start in mirrored)
