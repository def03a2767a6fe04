"""The motifs of the demo genome: consensus, instances, weights and exact matches.

Bases are coded A 0, C 1, G 2, T 3, N 4. A consensus is written in IUPAC letters; upper case marks strong
positions, lower case weak ones. The motifs resemble known families but are inventions of this simulation.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.simulate.parameters import Parameters

Codes = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Positions = NDArray[np.int64]

N_CODE = 4
LETTERS: Codes = np.frombuffer(b"ACGTN", dtype=np.uint8)
COMPLEMENT: Codes = np.array([3, 2, 1, 0, 4], dtype=np.uint8)

_IUPAC = {
    "A": "A", "C": "C", "G": "G", "T": "T", "R": "AG", "Y": "CT", "S": "CG", "W": "AT", "K": "GT", "M": "AC",
}  # fmt: skip


@dataclass(frozen=True)
class Motif:
    """A sequence element."""

    name: str
    consensus: str
    description: str

    @property
    def width(self) -> int:
        """Length in bp."""
        return len(self.consensus)

    @cached_property
    def allowed(self) -> Flags:
        """(width, 5): bases the consensus accepts; N never."""
        flags = np.zeros((self.width, 5), dtype=bool)
        for row, letter in enumerate(self.consensus.upper()):
            flags[row, ["ACGT".index(base) for base in _IUPAC[letter]]] = True
        return flags

    @cached_property
    def strong(self) -> Positions:
        """Positions that a site must match."""
        return np.flatnonzero([letter.isupper() for letter in self.consensus])

    @cached_property
    def weak(self) -> Positions:
        """Positions that a site tends to match."""
        return np.flatnonzero([letter.islower() for letter in self.consensus])


CORE = (
    Motif("CAAT", "RCCAATCAGC", "upstream box"),
    Motif("GCBOX", "GTGGGCGGAR", "proximal box"),
    Motif("TATA", "CTATAAAAGR", "core element of the TATA class"),
    Motif("INR", "YTCAGTTCY", "initiator; its fourth base is the TSS"),
    Motif("DPE", "AGACGTGCCK", "downstream element of the DPE class"),
)
FACTORS = (
    Motif("ALFA", "aCTTGATAAGyc", "binds every site; opens enhancers of type 1"),
    Motif("BRAVO", "gTGACTCATCaw", "binds every site; opens enhancers of type 2"),
    Motif("CHARLIE", "tCACGTGGATyr", "binds every site"),
    Motif("DELTA", "rCAGGAAGTGat", "binds sites in open chromatin only"),
    Motif("ECHO", "cTGTGGTTACaa", "clusters of its sites are activators"),
    Motif("FOXTROT", "aGCCATCTTGyg", "clusters of its sites are silencers"),
)
MOTIFS = CORE + FACTORS
INDEX = {motif.name: index for index, motif in enumerate(MOTIFS)}


def sample_sites(motif: Motif, parameters: Parameters, rng: np.random.Generator, count: int) -> Codes:
    """Draw (count, width) intact instances; each position carries the consensus by its fidelity."""
    chance = fidelity(motif, parameters)
    sites = np.empty((count, motif.width), dtype=np.uint8)
    for column in range(motif.width):
        match = np.flatnonzero(motif.allowed[column])
        other = np.flatnonzero(~motif.allowed[column, :4])
        conforms = rng.random(count) < chance[column]
        sites[:, column] = np.where(conforms, rng.choice(match, size=count), rng.choice(other, size=count))
    return sites


def fidelity(motif: Motif, parameters: Parameters) -> NDArray[np.float64]:
    """Fidelity of every position of an intact instance: of a factor's site, strong positions always match."""
    if motif in CORE:
        return np.full(motif.width, parameters.core_fidelity)
    values = np.full(motif.width, parameters.weak_fidelity)
    values[motif.strong] = 1.0
    return values


def break_sites(motif: Motif, sites: Codes, rng: np.random.Generator) -> Codes:
    """Put a base that the consensus refuses at one strong position of every site."""
    broken = sites.copy()
    columns = rng.choice(motif.strong, size=len(sites))
    for column in motif.strong:
        rows = np.flatnonzero(columns == column)
        refused = np.flatnonzero(~motif.allowed[column, :4])
        broken[rows, column] = rng.choice(refused, size=len(rows))
    return broken


def weights(motif: Motif, parameters: Parameters) -> NDArray[np.float64]:
    """(width, 4) chance of each base in an intact instance."""
    allowed = motif.allowed[:, :4]
    match = allowed / allowed.sum(axis=1, keepdims=True)
    other = ~allowed / (~allowed).sum(axis=1, keepdims=True)
    conforms = fidelity(motif, parameters)[:, None]
    return np.asarray(conforms * match + (1 - conforms) * other)


def find_sites(motif: Motif, codes: Codes, reverse: bool = False) -> Positions:
    """Starts of all sites: every strong position matches, on the strand asked for."""
    allowed, strong, weak = motif.allowed, motif.strong, motif.weak
    if reverse:
        allowed = allowed[::-1, COMPLEMENT]
        strong, weak = motif.width - 1 - strong[::-1], motif.width - 1 - weak
    starts: Positions = np.arange(max(0, len(codes) - motif.width + 1))
    for column in strong:
        starts = starts[allowed[column][codes[starts + column]]]
    # A site with an N at a weak position is none.
    for column in weak:
        starts = starts[codes[starts + column] != N_CODE]
    return starts
