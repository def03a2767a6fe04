"""Matrices of the known binding sites of factors, from JASPAR or a file."""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.atomic import reading
from bigbird_dna.errors import DataError, UsageError

# Axes: W positions of a matrix.

RELEASE = "JASPAR2026"
TAXA = ("vertebrates", "plants", "insects", "nematodes", "fungi", "urochordates")
"""Taxonomic groups of JASPAR's matrices."""


class KnownMotif(NamedTuple):
    """Counts of each base at each position of a factor's sites."""

    factor: str
    matrix: str  # matrix name in the database
    counts: NDArray[np.float64]  # (W, 4) for A, C, G, T

    @property
    def frequencies(self) -> NDArray[np.float64]:
        """Frequencies of A, C, G and T at each position (W, 4)."""
        return np.asarray(self.counts / self.counts.sum(1, keepdims=True))


def jaspar_motifs(taxon: str) -> tuple[KnownMotif, ...]:
    """Return the latest matrices of JASPAR's core collection for a taxon; `UsageError` if not installed."""
    try:
        from pyjaspar import jaspardb
    except ImportError:
        raise UsageError(
            "JASPAR's matrices need the package pyjaspar: pip install 'bigbird-dna[motifs]', "
            "or give a file of matrices with --motifs"
        ) from None

    database = jaspardb(release=RELEASE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            records = database.fetch_motifs(collection="CORE", tax_group=[taxon])
    finally:
        database.conn.close()

    return tuple(
        sorted((_known(one) for one in records), key=lambda motif: motif.matrix)
    )


def read_motifs(path: Path) -> tuple[KnownMotif, ...]:
    """Read matrices in JASPAR's format (a line `>matrix factor`, one per base); `DataError` if invalid."""
    from Bio import motifs

    fault = "not a file of matrices in JASPAR's format"
    with reading(path, fault, Exception), path.open(encoding="utf-8") as stream:
        records = motifs.parse(stream, "jaspar")  # type: ignore[no-untyped-call]
        found = tuple(_known(record) for record in records)

    if not found:
        raise DataError(f"{path}: contains no matrix")

    for motif in found:
        counts = motif.counts
        if (
            not np.isfinite(counts).all()
            or (counts < 0).any()
            or (counts.sum(axis=1) <= 0).any()
        ):
            raise DataError(
                f"{path}: matrix {motif.matrix!r:.60}: a position has no or invalid counts"
            )

    return found


def _known(record: Any) -> KnownMotif:
    counts = np.array([record.counts[letter] for letter in "ACGT"], np.float64).T
    matrix = getattr(record, "matrix_id", None) or record.name
    return KnownMotif(str(record.name), str(matrix), counts)
