"""Scans with matrices of known binding sites, from JASPAR or a file, as a baseline based on known biology.

The score of a window is that of the best match of a factor's matrices on either strand: a log-odds in bits,
at the best position where all bases under the matrix are known. If a factor has several matrices, the matrix
that ranks its training windows best is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from bigbird_dna.baselines.kmers import base_codes
from bigbird_dna.baselines.windows import LabeledWindows, all_labels, blocks
from bigbird_dna.config.experiments import TAXA
from bigbird_dna.console import log, progress
from bigbird_dna.errors import DataError
from bigbird_dna.genome.motifs import (
    KnownMotif,
    jaspar_motifs,
    motifs_of_factor,
    read_motifs,
)
from bigbird_dna.genome.sequence import UNKNOWN
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.papers.comparators.interface import (
    Comparator,
    ComparatorRequest,
    ScoringComparator,
    fit_sigmoid,
)

# Axes: N windows, L bases, M matrices, W positions of a matrix.

_NOWHERE = -1e6  # contribution of an N to a match: far below any score


def best_matches(
    codes: NDArray[np.uint8], matrices: Sequence[NDArray[np.float64]]
) -> NDArray[np.float32]:
    """Return log-odds (N, M) of the best match of each matrix (W, 4) in windows (N, L), on either strand.

    If a matrix never covers known bases only, the score is the lowest score of the matrix.
    """
    found = np.empty((len(codes), len(matrices)), np.float32)
    lowest = np.array([matrix.min(axis=1).sum() for matrix in matrices])
    widths = np.array([len(matrix) for matrix in matrices])
    with torch.inference_mode():
        hot = (
            F.one_hot(torch.from_numpy(codes).long(), UNKNOWN + 1)
            .transpose(1, 2)
            .float()
        )  # (N, 5, L)
        for width in np.unique(widths):
            chosen = np.flatnonzero(widths == width)
            if width > codes.shape[1]:
                found[:, chosen] = lowest[chosen]
                continue
            forward = np.stack([matrices[one] for one in chosen.tolist()])  # (m, W, 4)
            both = np.concatenate([forward, forward[:, ::-1, ::-1]])
            filters = np.pad(
                both, ((0, 0), (0, 0), (0, 1)), constant_values=_NOWHERE
            ).transpose(0, 2, 1)
            scores = (
                F.conv1d(hot, torch.from_numpy(np.ascontiguousarray(filters)).float())
                .amax(2)
                .numpy()
            )
            found[:, chosen] = np.maximum(
                scores[:, : len(chosen)], scores[:, len(chosen) :]
            )
    return np.asarray(np.maximum(found, lowest), np.float32)


class MotifScan(ScoringComparator):
    """Scan of the windows with the matrices of each label's factor; labels without a matrix are NaN.

    The fit determines the background (fraction of G and C), the matrix of each factor, and the map from
    scores to probabilities, which preserves the order of the scores.
    """

    def __init__(self, motifs: Sequence[Sequence[KnownMotif]]) -> None:
        super().__init__()
        self.motifs = [list(known) for known in motifs]
        self.labels = len(self.motifs)
        # Many tracks have the same factor: scan each of its matrices only once.
        self._motifs = list(
            {id(motif): motif for known in self.motifs for motif in known}.values()
        )
        self._matrices: list[NDArray[np.float64]] = []  # log-odds of each matrix
        self._columns: dict[int, int] = {}  # label → index of its matrix
        self._background: list[float] = []

    def fit(self, learned: LabeledWindows, held_out: LabeledWindows) -> Self:
        count, labels = learned.shape
        if labels != self.labels:
            raise ValueError(
                f"matrices have {self.labels} labels, but windows have {labels}"
            )
        self._background = _background(learned)
        self._matrices = [motif.log_odds(self._background) for motif in self._motifs]
        parts = progress(
            blocks(count, self.AT_ONCE), "scanning", -(-count // self.AT_ONCE), "parts"
        )
        scores = np.concatenate(
            [
                best_matches(base_codes(learned.sequences(rows)), self._matrices)
                for rows in parts
            ]
        )
        truth = all_labels(learned)
        numbers = {id(motif): number for number, motif in enumerate(self._motifs)}
        for label, known in enumerate(self.motifs):
            own = [numbers[id(motif)] for motif in known]
            if not own:
                continue
            figures = (
                [auroc(truth[:, label], scores[:, one]).value for one in own]
                if len(own) > 1
                else [0.5]
            )
            best = own[int(np.argmax(np.nan_to_num(figures, nan=0.5)))]
            self._columns[label] = best
            self.sigmoids[label] = fit_sigmoid(
                scores[:, best].astype(np.float64), truth[:, label]
            )
        return self

    def scores(
        self, sequences: Sequence[str]
    ) -> Iterator[tuple[int, NDArray[np.float64]]]:
        used = sorted(set(self._columns.values()))
        matches = best_matches(
            base_codes(sequences), [self._matrices[one] for one in used]
        )
        for label, column in self._columns.items():
            yield label, matches[:, used.index(column)].astype(np.float64)

    def chosen(self) -> dict[str, Any]:
        return {
            "background": dict(zip("ACGT", self._background, strict=True)),
            "matrices": [
                self._motifs[self._columns[label]].matrix
                if label in self._columns
                else None
                for label in range(self.labels)
            ],
        }


def _background(windows: LabeledWindows) -> list[float]:
    """Return the fractions of A, C, G and T in windows, averaged over both strands."""
    counts = np.zeros(UNKNOWN + 1, np.int64)
    for rows in blocks(windows.shape[0], MotifScan.AT_ONCE):
        counts += np.bincount(
            base_codes(windows.sequences(rows)).ravel(), minlength=UNKNOWN + 1
        )
    known = counts[:UNKNOWN] + 1
    strong = float((known[1] + known[2]) / known.sum())
    return [(1 - strong) / 2, strong / 2, strong / 2, (1 - strong) / 2]


def make(request: ComparatorRequest) -> Comparator:
    """Make the comparator of this module; `DataError` if no factor has a matrix."""
    file = request.motifs
    known = (
        jaspar_motifs(request.taxon or TAXA[0]) if file is None else read_motifs(file)
    )
    found = [motifs_of_factor(factor, known) for factor in request.factors]
    count = sum(map(bool, found))
    log(
        f"{count:,} of {len(found):,} tracks have a factor with a matrix, among {len(known):,} matrices"
    )
    if not count:
        raise DataError(
            f"{file or 'JASPAR'}: contains no matrix of the factors of {request.factors_in}"
        )
    return MotifScan(found)
