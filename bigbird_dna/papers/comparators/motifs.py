"""Scans with matrices of known binding sites, from JASPAR or a file, as a baseline based on known biology.

The score of a window is that of the best match of a factor's matrices on either strand: a log-odds in bits,
at the best position where all bases under the matrix are known. If a factor has several matrices, the matrix
that ranks its training windows best is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
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
from bigbird_dna.papers.comparators.interface import ScoringComparator, fit_sigmoid

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
        self.motifs = [list(known) for known in motifs]  # by label
        self.background: list[float] = []
        self.best: dict[int, KnownMotif] = {}  # by label

    def fit(self, learned: LabeledWindows, held_out: LabeledWindows) -> Self:
        count, labels = learned.shape
        if labels != len(self.motifs):
            raise ValueError(
                f"matrices have {len(self.motifs)} labels, but windows have {labels}"
            )
        self.background = _background(learned)
        # Many tracks have the same factor: scan each of its matrices only once.
        motifs = list({id(one): one for known in self.motifs for one in known}.values())
        columns = {id(motif): column for column, motif in enumerate(motifs)}
        matrices = [motif.log_odds(self.background) for motif in motifs]
        steps = -(-count // self.AT_ONCE)
        parts = progress(blocks(count, self.AT_ONCE), "scanning", steps, "parts")
        scores = np.concatenate(
            [
                best_matches(base_codes(learned.sequences(rows)), matrices)
                for rows in parts
            ]
        )
        truth = all_labels(learned)
        self.sigmoids = np.full((labels, 2), np.nan)
        for label, known in enumerate(self.motifs):
            areas = []
            for motif in known if len(known) > 1 else ():
                area = auroc(truth[:, label], scores[:, columns[id(motif)]]).value
                areas.append(np.nan_to_num(area, nan=0.5))
            if known:
                best = self.best[label] = known[int(np.argmax(areas)) if areas else 0]
                own = scores[:, columns[id(best)]].astype(np.float64)
                self.sigmoids[label] = fit_sigmoid(own, truth[:, label])
        return self

    def scores(self, sequences: Sequence[str]) -> NDArray[np.float64]:
        used = list({id(motif): motif for motif in self.best.values()}.values())
        columns = {id(motif): column for column, motif in enumerate(used)}
        matrices = [motif.log_odds(self.background) for motif in used]
        matches = best_matches(base_codes(sequences), matrices)
        found = np.full((len(sequences), len(self.motifs)), np.nan)
        for label, motif in self.best.items():
            found[:, label] = matches[:, columns[id(motif)]]
        return found

    def chosen(self) -> dict[str, Any]:
        best = [self.best.get(label) for label in range(len(self.motifs))]
        return {
            "background": dict(zip("ACGT", self.background, strict=True)),
            "matrices": [motif and motif.matrix for motif in best],
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


def make_scan(
    factors: Sequence[str], source: Path, file: Path | None, taxon: str | None
) -> MotifScan:
    """Return a scan with the matrices of factors, from a file or JASPAR; `DataError`, with the `source` of the
    factors, if none of them has a matrix."""
    known = jaspar_motifs(taxon or TAXA[0]) if file is None else read_motifs(file)
    found = [motifs_of_factor(factor, known) for factor in factors]
    count = sum(map(bool, found))
    log(
        f"{count:,} of {len(found):,} tracks have a factor with a matrix, among {len(known):,} matrices"
    )
    if not count:
        raise DataError(
            f"{file or 'JASPAR'}: contains no matrix of the factors of {source}"
        )
    return MotifScan(found)
