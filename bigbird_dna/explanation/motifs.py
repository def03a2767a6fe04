"""Command `motifs`: recurring patterns among contributions, compared with matrices of known binding sites.

Seqlets with similar contributions are clustered by TF-MoDISco (the package modisco-lite), and the base
frequencies of each cluster, a motif, are compared with all matrices by Tomtom (the package memelite).
P-values are adjusted over all pairs of a motif and a matrix of an output (Benjamini and Hochberg).

An output that has the name of a factor has an independent truth: the factor's own matrix. It is recovered if
a motif matches it. Without a truth in the model, the matrices of the other outputs' factors match as often.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

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
    factor_key,
    jaspar_motifs,
    motifs_of_factor,
    read_motifs,
)
from bigbird_dna.model.inference import cpu_threads
from bigbird_dna.tokens.interface import BASES

# Lengths in bp are for sites of single factors in some hundred sequences; TF-MoDISco's own are longer.
_WINDOW, _FLANK = 15, 5  # of a seqlet
_CORE, _GROWTH = (
    20,
    5,
)  # of a cluster: its best window, and what is added on either side
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
RECOVERED = [
    "output",
    "matrices",
    "motifs",
    "recovered",
    "motif",
    "p_value",
    "q_value",
    "others_recovered",
]

IUPAC = "?ACMGRSVTWYHKDBN"
"""Letters of sets of bases; base i of ACGT adds 2 to the power of i."""
_COMMON = 0.25  # smallest frequency of a base in the consensus

# Axes: N explained sequences, L bases, M motifs of an output, K matrices, W positions.

Floats = NDArray[np.float64]


class Match(NamedTuple):
    """Comparison with a matrix: position i of the motif is aligned with i + offset of the matrix.

    `reverse`: of the matrix on the other strand. The q-value is adjusted over all pairs of an output.
    """

    p_value: float
    q_value: float
    offset: int
    reverse: bool


class FoundMotif(NamedTuple):
    """A cluster of seqlets: frequencies and mean contributions of bases (W, 4), and a match per matrix."""

    name: str
    output: str
    effect: str  # on the score: increases or decreases
    seqlets: int
    frequencies: Floats
    contributions: Floats
    matches: Sequence[Match] = ()

    @property
    def consensus(self) -> str:
        """The bases with a frequency of at least 1/4 at each position, as IUPAC letters."""
        return "".join(
            IUPAC[int(((row >= _COMMON) * (1, 2, 4, 8)).sum())]
            for row in self.frequencies
        )

    def significant(self, max_q: float) -> list[int]:
        """Numbers of the matrices that the motif matches, best first."""
        found = [
            number for number, one in enumerate(self.matches) if one.q_value <= max_q
        ]
        return sorted(found, key=lambda number: self.matches[number].p_value)


class MotifCounts(NamedTuple):
    """Number of outputs, of their motifs, and of motifs that match a matrix."""

    outputs: int
    motifs: int
    matched: int


class Explained(NamedTuple):
    """One-hot bases (N, L, 4) of explained sequences, and the contribution that each base would have."""

    one_hot: NDArray[np.float32]
    contributions: NDArray[np.float32]


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
    motifs: list[FoundMotif] = []
    with (
        cpu_threads(threads),
        into_directory(Path(output), directories) as files,
        ProgressBar("finding motifs", len(outputs), "outputs") as bar,
    ):
        for name, arrays in outputs.items():
            clusters = discover(name, arrays, min_seqlets)
            motifs += compare(clusters, known, threads or 1)
            bar.advance()
        recovery = recovery_table(list(outputs), motifs, known, max_q)
        write_tsv(files / "motifs.tsv", motif_table(motifs, known, max_q))
        write_tsv(files / "matches.tsv", match_table(motifs, known, max_q))
        write_tsv(files / "recovered.tsv", recovery)
        (files / "motifs.meme").write_text(meme_text(motifs), encoding="utf-8")
    matched = sum(bool(motif.significant(max_q)) for motif in motifs)
    return MotifCounts(len(outputs), len(motifs), matched)


def read_explained(paths: Sequence[Path]) -> dict[str, Explained]:
    """Read the arrays of each output of directories that `explain` wrote, by the output's name."""
    outputs: dict[str, Explained] = {}
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
            outputs[name] = Explained(
                one_hot.transpose(0, 2, 1), contributions.transpose(0, 2, 1)
            )
    return outputs


def _array(path: Path) -> NDArray[np.float32]:
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


def discover(name: str, explained: Explained, min_seqlets: int) -> list[FoundMotif]:
    """Return the motifs of an output by TF-MoDISco, without their matches."""
    sequences, bases = explained.one_hot.shape[:2]
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
            one_hot=explained.one_hot,
            hypothetical_contribs=explained.contributions,
            sliding_window_size=_WINDOW,
            flank_size=_FLANK,
            trim_to_window_size=_CORE,
            initial_flank_to_add=_GROWTH,
            min_metacluster_size=min_seqlets,
            final_min_cluster_size=min_seqlets,
        )
    motifs = []
    for effect, patterns_of_effect in zip(
        ("increases", "decreases"), patterns, strict=True
    ):
        for number, pattern in enumerate(patterns_of_effect or (), 1):
            contributions = np.asarray(pattern.contrib_scores)
            # without positions of small contributions at the ends
            sums = np.abs(contributions).sum(1)
            large = np.flatnonzero(sums >= _TRIM * sums.max())
            core = slice(large[0], large[-1] + 1)
            motifs.append(
                FoundMotif(
                    f"{effect}-{number}",
                    name,
                    effect,
                    len(pattern.seqlets),
                    np.asarray(pattern.sequence)[core],
                    contributions[core],
                )
            )
    return motifs


def compare(
    motifs: Sequence[FoundMotif], known: Sequence[KnownMotif], threads: int = 1
) -> list[FoundMotif]:
    """Return the motifs of an output with their matches, one per matrix, by Tomtom."""
    if not motifs:
        return []
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
    targets = [one.frequencies.T for one in known]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p_values, _, offsets, _, strands = tomtom(
            [np.ascontiguousarray(one.frequencies.T, np.float64) for one in motifs],
            targets,
            n_jobs=threads,
        )
    return with_matches(
        motifs, np.asarray(p_values), np.asarray(offsets), np.asarray(strands)
    )


def with_matches(
    motifs: Sequence[FoundMotif], p_values: Floats, offsets: Floats, strands: Floats
) -> list[FoundMotif]:
    """Return motifs with a match per matrix, of arrays (M, K); q-values are those of all M x K pairs."""
    from scipy.stats import false_discovery_control

    p_values = np.clip(p_values, _FLOOR, 1)
    q_values = false_discovery_control(p_values.ravel()).reshape(p_values.shape)
    matched = []
    for row, motif in enumerate(motifs):
        matches = [
            Match(
                float(p_values[row, column]),
                float(q_values[row, column]),
                int(offsets[row, column]),
                bool(strands[row, column]),
            )
            for column in range(p_values.shape[1])
        ]
        matched.append(motif._replace(matches=matches))
    return matched


def motif_table(
    motifs: Sequence[FoundMotif], known: Sequence[KnownMotif], max_q: float
) -> pd.DataFrame:
    """Rows of `MOTIFS`; matrix and factor are those of the best match, `.` if it is not significant."""
    rows = []
    for motif in motifs:
        significant = motif.significant(max_q)
        matrix = factor = "."
        p_value = q_value = np.nan
        if significant:
            best = significant[0]
            matrix, factor = known[best].matrix, known[best].factor
            p_value, q_value = motif.matches[best][:2]
        rows.append(
            {
                "motif": motif.name,
                "output": motif.output,
                "effect": motif.effect,
                "consensus": motif.consensus,
                "seqlets": motif.seqlets,
                "width": len(motif.frequencies),
                "contribution": float(motif.contributions.sum()),
                "matrix": matrix,
                "factor": factor,
                "p_value": p_value,
                "q_value": q_value,
                "significant": len(significant),
            }
        )
    return pd.DataFrame(rows, columns=MOTIFS)


def match_table(
    motifs: Sequence[FoundMotif], known: Sequence[KnownMotif], max_q: float
) -> pd.DataFrame:
    """Rows of `MATCHES`: the significant matches of each motif, the best first."""
    rows = []
    for motif in motifs:
        for number in motif.significant(max_q):
            names = known[number].matrix, known[number].factor
            p_value, q_value = motif.matches[number][:2]
            rows.append((motif.output, motif.name, *names, p_value, q_value))
    return pd.DataFrame(rows, columns=MATCHES)


def recovery_table(
    outputs: Sequence[str],
    motifs: Sequence[FoundMotif],
    known: Sequence[KnownMotif],
    max_q: float,
) -> pd.DataFrame:
    """Rows of `RECOVERED`: whether the motifs of an output match the matrices of the factor of its name.

    `others_recovered` is the fraction of the other outputs' factors, with other matrices, that they match:
    how often a factor's matrix is matched by chance. Outputs without a matrix have no row.
    """
    numbers = {id(matrix): number for number, matrix in enumerate(known)}
    factors: dict[str, set[int]] = {}  # output → numbers of the matrices of its factor
    for name in outputs:
        matrices = {numbers[id(matrix)] for matrix in motifs_of_factor(name, known)}
        if matrices:
            factors[name] = matrices
    rows = []
    for name, matrices in factors.items():
        motifs_of_output = [motif for motif in motifs if motif.output == name]
        matched = {
            number for motif in motifs_of_output for number in motif.significant(max_q)
        }
        other_factors = {
            factor_key(other): theirs
            for other, theirs in factors.items()
            if not theirs & matrices
        }
        chance = np.nan
        if other_factors:
            hits = [bool(matched & theirs) for theirs in other_factors.values()]
            chance = float(np.mean(hits))
        best, best_motif = min(
            (
                (motif.matches[number], motif.name)
                for motif in motifs_of_output
                for number in matrices
            ),
            default=(Match(np.nan, np.nan, 0, False), "."),
        )
        rows.append(
            {
                "output": name,
                "matrices": ",".join(
                    sorted(known[number].matrix for number in matrices)
                ),
                "motifs": len(motifs_of_output),
                "recovered": "yes" if matched & matrices else "no",
                "motif": best_motif,
                "p_value": best.p_value,
                "q_value": best.q_value,
                "others_recovered": chance,
            }
        )
    return pd.DataFrame(rows, columns=RECOVERED)


def meme_text(motifs: Sequence[FoundMotif]) -> str:
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
