"""Command `motifs`: recurring patterns among contributions, compared with matrices of known binding sites.

Seqlets with similar contributions are clustered by TF-MoDISco (the package modisco-lite), and the base
frequencies of each cluster, a motif, are compared with all matrices by Tomtom (the package memelite).
P-values are adjusted over all pairs of a motif and a matrix of an output (Benjamini and Hochberg).
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.console import ProgressBar, log
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
from bigbird_dna.genome.motifs import (
    TAXA,
    KnownMotif,
    jaspar_motifs,
    read_motifs,
)
from bigbird_dna.model.inference import cpu_threads
from bigbird_dna.tokens.interface import BASES

# Lengths in bp are for sites of single factors in some hundred sequences; TF-MoDISco's own are longer.
_WINDOW, _FLANK = 15, 5  # of a seqlet
# of a cluster: its best window, and what is added on either side
_CORE, _GROWTH = 20, 5
_SPACING = _WINDOW // 2 + _FLANK  # of seqlets, at least
SHORTEST = _WINDOW + 4 * _FLANK  # bp of the explained sequences
_TRIM = 0.3  # of the largest sum of absolute contributions: positions at a motif's ends have less
_FEW_MATRICES = 25  # Tomtom's p-values with fewer are rough
_FLOOR = 1e-300  # p-values are positive

MOTIFS = [
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
MATCHES = ["output", "motif", "matrix", "factor", "p_value", "q_value"]

_COMMON = 0.25  # smallest frequency of a base in the consensus
IUPAC = "?ACMGRSVTWYHKDBN"
"""Letters of sets of bases; base i of ACGT adds 2 to the power of i."""

# Axes: N explained sequences, L bases, M motifs of an output, K matrices, W positions.

Floats = NDArray[np.floating[Any]]


class MotifCounts(NamedTuple):
    """Number of outputs, of their motifs, and of motifs that match a matrix."""

    outputs: int
    motifs: int
    matched: int


class Motif(NamedTuple):
    """A cluster of seqlets: frequencies and mean contributions of bases (W, 4)."""

    name: str
    output: str
    effect: str  # on the score: increases or decreases
    seqlets: int
    frequencies: Floats
    contributions: Floats

    @property
    def consensus(self) -> str:
        """The bases with a frequency of at least 1/4 at each position, as IUPAC letters."""
        sets = (self.frequencies >= _COMMON) @ (1, 2, 4, 8)
        return "".join(IUPAC[number] for number in sets.tolist())


def find_motifs(
    explained: Sequence[Path | str],
    output: Path | str,
    *,
    matrices: Path | str | None = None,
    taxon: str = TAXA[0],
    max_q: float = 0.05,
    min_seqlets: int = 20,
    threads: int | None = None,
) -> MotifCounts:
    """Write the motifs of explanations, and the matrices of known binding sites that they match.

    Parameters
    ----------
    explained
        Directories that `explain` wrote, each of other outputs, with sequences of at least 35 bp.
    output
        Directory to write: tables, and motifs in MEME format (docs/files.md).
    matrices, taxon
        A file of matrices in JASPAR format; None: JASPAR's core matrices for a taxonomic group.
    max_q
        Largest q-value of a match.
    min_seqlets
        Smallest number of seqlets of a motif.
    threads
        As for `score_promoters`.

    Raises
    ------
    UsageError, DataError
        An argument is out of range; a package of the extra `explain` is missing; a directory is not one of
        `explain`, or two have the same output; sequences are too short; the file of matrices is invalid.
    """
    check_choice("taxon", taxon, TAXA)
    check_fraction("max_q", max_q)
    check_at_least_one({"min_seqlets": min_seqlets, "threads": threads})
    directories = [Path(path) for path in explained]
    outputs = read_explained(directories)
    known = jaspar_motifs(taxon) if matrices is None else read_motifs(Path(matrices))
    motifs: list[Motif] = []
    rows: list[dict[str, Any]] = []
    matches: list[dict[str, Any]] = []
    with (
        cpu_threads(threads),
        into_directory(Path(output), directories) as files,
        ProgressBar("finding motifs", len(outputs), "outputs") as bar,
    ):
        for name, (one_hot, contributions) in outputs.items():
            found = discover(name, one_hot, contributions, min_seqlets)
            p_values, q_values = compare(found, known, threads or 1)
            for number, motif in enumerate(found):
                row: dict[str, Any] = {
                    "motif": motif.name,
                    "output": name,
                    "effect": motif.effect,
                    "consensus": motif.consensus,
                    "seqlets": motif.seqlets,
                    "width": len(motif.frequencies),
                    "contribution": float(motif.contributions.sum()),
                    "matrix": ".",
                    "factor": ".",
                    "p_value": np.nan,
                    "q_value": np.nan,
                    "significant": int((q_values[number] <= max_q).sum()),
                }
                for column in np.argsort(p_values[number], kind="stable").tolist():
                    if q_values[number, column] > max_q:
                        continue
                    match = {
                        "matrix": known[column].matrix,
                        "factor": known[column].factor,
                        "p_value": p_values[number, column],
                        "q_value": q_values[number, column],
                    }
                    if row["matrix"] == ".":
                        row |= match
                    matches.append({"output": name, "motif": motif.name, **match})
                rows.append(row)
            motifs += found
            bar.advance()
        write_tsv(files / "motifs.tsv", pd.DataFrame(rows, columns=MOTIFS))
        write_tsv(files / "matches.tsv", pd.DataFrame(matches, columns=MATCHES))
        (files / "motifs.meme").write_text(meme_text(motifs), encoding="utf-8")
    matched = sum(row["significant"] > 0 for row in rows)
    return MotifCounts(len(outputs), len(motifs), matched)


def read_explained(paths: Sequence[Path]) -> dict[str, tuple[Floats, Floats]]:
    """Read arrays of directories that `explain` wrote, by the output's name.

    They are one-hot bases (N, L, 4), and the contributions that each base would have.
    """
    outputs: dict[str, tuple[Floats, Floats]] = {}
    for path in paths:
        scores = read_text_table(path / "scores.tsv")
        names = list(dict.fromkeys(scores["output"]))
        one_hot = _array(path / "ohe.npz")
        if one_hot.shape[2] < SHORTEST:
            raise UsageError(
                f"{path}: the longest explained sequence has {one_hot.shape[2]} bp; motifs need {SHORTEST}"
            )
        for name, prefix in output_prefixes(names).items():
            if name in outputs:
                raise UsageError(
                    f"{path}: output {name!r} is also in another directory: explain it once"
                )
            shap = path / f"{prefix}shap.npz"
            contributions = _array(shap)
            if contributions.shape != one_hot.shape:
                raise DataError(f"{shap}: has other dimensions than ohe.npz")
            outputs[name] = one_hot.transpose(0, 2, 1), contributions.transpose(0, 2, 1)
    return outputs


def _array(path: Path) -> Floats:
    """Read an array (N, 4, L) of `explain`."""
    fault = "not an array of an explanation"
    with (
        reading(path, fault, Exception),
        path.open("rb") as stream,
        np.load(stream) as stored,
    ):
        values = np.asarray(stored["arr_0"], np.float32)
    if (
        values.ndim != 3
        or values.shape[1] != len(BASES)
        or not np.isfinite(values).all()
    ):
        raise DataError(f"{path}: must be finite numbers (sequences, 4, bases)")
    return values


def discover(
    name: str, one_hot: Floats, contributions: Floats, min_seqlets: int
) -> list[Motif]:
    """Return the motifs of an output by TF-MoDISco; arguments are as from `read_explained`."""
    sequences, bases = one_hot.shape[:2]
    if sequences * (bases // _SPACING + 1) < min_seqlets:
        return []  # too few even if they were everywhere
    try:
        from modiscolite.tfmodisco import TFMoDISco
    except ImportError:
        raise UsageError(
            "motifs need the package modisco-lite: pip install 'bigbird-dna[explain]'"
        ) from None
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
            min_metacluster_size=min_seqlets,
            final_min_cluster_size=min_seqlets,
        )
    motifs = []
    for effect, clusters in zip(("increases", "decreases"), patterns, strict=True):
        for number, pattern in enumerate(clusters or (), 1):
            mean = np.asarray(pattern.contrib_scores)
            # without positions of small contributions at the ends
            sums = np.abs(mean).sum(1)
            large = np.flatnonzero(sums >= _TRIM * sums.max())
            core = slice(large[0], large[-1] + 1)
            frequencies = np.asarray(pattern.sequence)[core]
            motif = Motif(
                f"{effect}-{number}",
                name,
                effect,
                len(pattern.seqlets),
                frequencies,
                mean[core],
            )
            motifs.append(motif)
    return motifs


def compare(
    motifs: Sequence[Motif], known: Sequence[KnownMotif], threads: int = 1
) -> tuple[Floats, Floats]:
    """Return p- and q-values (M, K) of the motifs of an output and matrices, by Tomtom."""
    from scipy.stats import false_discovery_control

    if not motifs:
        return np.empty((0, len(known))), np.empty((0, len(known)))
    try:
        from memelite import tomtom
    except ImportError:
        raise UsageError(
            "motifs need the package memelite: pip install 'bigbird-dna[explain]'"
        ) from None
    if len(known) < _FEW_MATRICES:
        log(
            f"warning: {len(known)} matrices: with fewer than {_FEW_MATRICES}, p-values are rough"
        )
    queries = [np.ascontiguousarray(one.frequencies.T, np.float64) for one in motifs]
    targets = [one.frequencies.T for one in known]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p_values = np.asarray(tomtom(queries, targets, n_jobs=threads)[0])
    p_values = np.clip(p_values, _FLOOR, 1)
    q_values = false_discovery_control(p_values.ravel()).reshape(p_values.shape)
    return p_values, q_values


def meme_text(motifs: Sequence[Motif]) -> str:
    """The motifs in the format of the MEME suite (version 4), as frequencies."""
    lines = ["MEME version 4", "", f"ALPHABET= {BASES}", "", "strands: + -", ""]
    lines += ["Background letter frequencies", "A 0.25 C 0.25 G 0.25 T 0.25"]
    for motif in motifs:
        name = f"{motif.output}:{motif.name} {motif.consensus}".replace("\t", " ")
        width = len(motif.frequencies)
        lines += [
            "",
            f"MOTIF {name}",
            f"letter-probability matrix: alength= 4 w= {width} nsites= {motif.seqlets}",
        ]
        for row in motif.frequencies:
            lines.append(" ".join(f"{value:.6f}" for value in row))
    return "\n".join(lines) + "\n"
