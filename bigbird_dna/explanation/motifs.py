"""Command `motifs`: recurring patterns among contributions, compared with matrices of known binding sites.

Seqlets with similar contributions are clustered by TF-MoDISco (the package modisco-lite), and the base
frequencies of each cluster, a motif, are compared with all matrices by Tomtom (the package memelite).
P-values are adjusted over all pairs of a motif and a matrix of an output (Benjamini and Hochberg).
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import read_text_table, write_tsv
from bigbird_dna.errors import (
    DataError,
    UsageError,
    check_at_least_one,
    check_choice,
    check_fraction,
)
from bigbird_dna.explanation.explain import output_prefixes
from bigbird_dna.genome.motifs import TAXA, jaspar_motifs, read_motifs
from bigbird_dna.model.inference import cpu_threads
from bigbird_dna.tokens.interface import BASES

# Lengths in bp are for sites of single factors in some hundred sequences; TF-MoDISco's own are longer.
_WINDOW, _FLANK = 15, 5  # of a seqlet
# of a cluster: its best window, and what is added on either side
_CORE, _GROWTH = 20, 5
_SPACING = _WINDOW // 2 + _FLANK  # of seqlets, at least
_MIN_SEQLETS = 20  # of a motif
SHORTEST = _WINDOW + 4 * _FLANK  # bp of the explained sequences
_TRIM = 0.3  # of the largest sum of absolute contributions: positions at a motif's ends have less
_FLOOR = 1e-300  # p-values are positive
_COMMON = 0.25  # smallest frequency of a base in the consensus
IUPAC = "?ACMGRSVTWYHKDBN"
"""Letters of sets of bases; base i of ACGT adds 2 to the power of i."""

COLUMNS = [
    "motif",
    "output",
    "effect",
    "consensus",
    "seqlets",
    "width",
    "contribution",
    "matrix",
    "factor",
    "p_value",
    "q_value",
    "significant",
]

# Axes: N explained sequences, L bases, M motifs of an output, K matrices, W positions.

Floats = NDArray[np.floating[Any]]


def find_motifs(
    explained: Path | str,
    output: Path | str,
    *,
    matrices: Path | str | None = None,
    taxon: str = TAXA[0],
    max_q: float = 0.05,
    threads: int | None = None,
) -> pd.DataFrame:
    """Write the motifs of explanations with the matrices of known binding sites that they match best.

    Parameters
    ----------
    explained
        Directory that `explain` wrote, with sequences of at least 35 bp.
    output
        Directory to write: a table, and motifs in MEME format (docs/files.md).
    matrices, taxon
        A file of matrices in JASPAR format; None: JASPAR's core matrices for a taxonomic group.
    max_q
        Largest q-value of a match.
    threads
        As for `score_promoters`.

    Returns
    -------
    The rows of motifs.tsv.

    Raises
    ------
    UsageError, DataError
        An argument is out of range; a package of the extra `explain` is missing; the directory is not one of
        `explain`; sequences are too short; the file of matrices is invalid.
    """
    check_choice("taxon", taxon, TAXA)
    check_fraction("max_q", max_q)
    check_at_least_one({"threads": threads})
    try:
        from memelite import tomtom
        from modiscolite.tfmodisco import TFMoDISco
        from scipy.stats import false_discovery_control
    except ImportError as error:
        raise UsageError(
            f"motifs need the package {error.name}: pip install 'bigbird-dna[explain]'"
        ) from None

    explained = Path(explained)
    names = read_text_table(explained / "scores.tsv")["output"].unique().tolist()
    one_hot = read_array(explained / "ohe.npz")
    if one_hot.shape[1] < SHORTEST:
        raise UsageError(
            f"{explained}: the longest explained sequence has {one_hot.shape[1]} bp; motifs need {SHORTEST}"
        )

    arrays = {}
    for name, prefix in output_prefixes(names).items():
        path = explained / f"{prefix}shap.npz"
        arrays[name] = read_array(path)
        if arrays[name].shape != one_hot.shape:
            raise DataError(f"{path}: has other dimensions than ohe.npz")

    known = jaspar_motifs(taxon) if matrices is None else read_motifs(Path(matrices))
    targets = [matrix.frequencies.T for matrix in known]

    rows: list[dict[str, Any]] = []
    texts = [_MEME]
    with cpu_threads(threads), into_directory(Path(output), [explained]) as files:
        for name, contributions in arrays.items():
            if len(one_hot) * (one_hot.shape[1] // _SPACING + 1) < _MIN_SEQLETS:
                continue  # too few even if they were everywhere

            log(
                f"{name}: clustering; the first run on a machine also compiles the packages, for some minutes"
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                patterns = TFMoDISco(
                    one_hot=one_hot,
                    hypothetical_contribs=contributions,
                    sliding_window_size=_WINDOW,
                    flank_size=_FLANK,
                    trim_to_window_size=_CORE,
                    initial_flank_to_add=_GROWTH,
                    min_metacluster_size=_MIN_SEQLETS,
                    final_min_cluster_size=_MIN_SEQLETS,
                )

            queries = []
            for effect, clusters in zip(
                ("increases", "decreases"), patterns, strict=True
            ):
                for number, pattern in enumerate(clusters or (), 1):
                    # Without positions of small contributions at the ends.
                    mean = np.asarray(pattern.contrib_scores)
                    sums = np.abs(mean).sum(1)
                    large = np.flatnonzero(sums >= _TRIM * sums.max())
                    core = slice(large[0], large[-1] + 1)
                    frequencies = np.asarray(pattern.sequence)[core]
                    row = {
                        "motif": f"{effect}-{number}",
                        "output": name,
                        "effect": effect,
                        "consensus": consensus(frequencies),
                        "seqlets": len(pattern.seqlets),
                        "width": len(frequencies),
                        "contribution": float(mean[core].sum()),
                        "matrix": ".",
                        "factor": ".",
                        "significant": 0,
                    }
                    queries.append(np.ascontiguousarray(frequencies.T, np.float64))
                    texts.append(meme_text(row, frequencies))
                    rows.append(row)

            if not queries:
                continue

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                p_values = tomtom(queries, targets, n_jobs=threads or 1)[0]

            p_values = np.clip(p_values, _FLOOR, 1)
            q_values = false_discovery_control(p_values.ravel())
            q_values = q_values.reshape(p_values.shape)
            for row, p, q in zip(
                rows[-len(queries) :], p_values, q_values, strict=True
            ):
                best = int(p.argmin())
                if q[best] <= max_q:
                    matrix = known[best]
                    row |= {"matrix": matrix.matrix, "factor": matrix.factor}
                    row |= {"p_value": p[best], "q_value": q[best]}
                    row["significant"] = int((q <= max_q).sum())

        table = pd.DataFrame(rows, columns=COLUMNS)
        write_tsv(files / "motifs.tsv", table)
        (files / "motifs.meme").write_text("".join(texts), encoding="utf-8")

    return table


def read_array(path: Path) -> Floats:
    """Read an array (N, 4, L) of `explain`, as (N, L, 4)."""
    with (
        reading(path, "not an array of an explanation", Exception),
        path.open("rb") as stream,
        np.load(stream) as stored,
    ):
        values = np.asarray(stored["arr_0"], np.float32)
    if values.ndim != 3 or values.shape[1] != len(BASES):
        raise DataError(f"{path}: must be numbers (sequences, 4, bases)")
    return values.transpose(0, 2, 1)


def consensus(frequencies: Floats) -> str:
    """The bases with a frequency of at least 1/4 at each position (W, 4), as IUPAC letters."""
    sets = (frequencies >= _COMMON) @ (1, 2, 4, 8)
    return "".join(IUPAC[number] for number in sets.tolist())


_MEME = f"""MEME version 4

ALPHABET= {BASES}

strands: + -

Background letter frequencies
A 0.25 C 0.25 G 0.25 T 0.25
"""


def meme_text(row: dict[str, Any], frequencies: Floats) -> str:
    """A motif in the format of the MEME suite (version 4), as frequencies (W, 4)."""
    lines = [
        "",
        f"MOTIF {row['output']}:{row['motif']} {row['consensus']}",
        f"letter-probability matrix: alength= 4 w= {len(frequencies)} nsites= {row['seqlets']}",
    ]
    for values in frequencies:
        lines.append(" ".join(f"{value:.6f}" for value in values))
    return "\n".join(lines) + "\n"
