"""Comparators without a trained network: regressions on GC content, k-mers, positions and embeddings of a
language model, and the nearest window."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from bigbird_dna.baselines.dyads import TrackWords
from bigbird_dna.baselines.kmers import (
    KmerTracks,
    Probe,
    base_codes,
    fit_probe,
    probabilities,
)
from bigbird_dna.baselines.promoters import LogisticBaseline
from bigbird_dna.baselines.windows import (
    LabeledWindows,
    NearestWindow,
    Probabilities,
    all_labels,
    blocks,
)
from bigbird_dna.config.experiments import PRETRAINED
from bigbird_dna.console import progress
from bigbird_dna.data.chromatin import sample
from bigbird_dna.genome.sequence import UNKNOWN
from bigbird_dna.model.batching import bin_rows, centered_bins, window_rows
from bigbird_dna.model.directory import load
from bigbird_dna.model.embedding import layer_means
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.kmers import attach_tokenizer
from bigbird_dna.papers.comparators.interface import Comparator

Bytes = NDArray[np.uint8]

_AT_ONCE = 1024  # windows whose sequences or tokens are in memory at a time


class GcContent(Comparator):
    """A regression per label on GC content, the fraction of G and C among known bases (0.5 without any), in
    the central `sizes` bp of a window. With `balanced`, both classes have equal weight, independent of their
    numbers of windows."""

    def __init__(self, sizes: Sequence[int], *, balanced: bool = False) -> None:
        self.sizes, self.balanced = tuple(sizes), balanced
        self.model = KmerTracks()
        # Odds of each label in the training windows.
        self._odds: NDArray[np.float64] = np.ones(0)

    def fit(self, learned: LabeledWindows, held_out: LabeledWindows) -> Self:
        y = all_labels(learned)
        self.model.fit(self._of(learned), y, self._of(held_out), all_labels(held_out))
        positives = y.sum(axis=0, dtype=np.int64)
        self._odds = positives.clip(1) / (len(y) - positives).clip(1)
        return self

    def _of(self, windows: LabeledWindows) -> Features:
        parts = [
            self.features(windows.sequences(rows))
            for rows in blocks(windows.shape[0], _AT_ONCE)
        ]
        return np.concatenate(parts)

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        chances = self.model.predict(self.features(sequences))
        if not self.balanced:
            return chances
        # Adjust probabilities to equal numbers of windows of both classes.
        against = (1 - chances.astype(np.float64)) * self._odds
        return (chances / (chances + against)).astype(np.float32)

    def features(self, sequences: Sequence[str]) -> Features:
        """GC content (n, sizes)."""
        codes = base_codes(sequences)
        columns = []
        for size in self.sizes:
            middle = codes[:, (codes.shape[1] - size) // 2 :][:, :size]
            known = (middle != UNKNOWN).sum(axis=1)
            strong = ((middle == 1) | (middle == 2)).sum(axis=1)
            columns.append(np.where(known, strong / known.clip(1), 0.5))
        return np.stack(columns, axis=1).astype(np.float32)

    def chosen(self) -> dict[str, Any]:
        return {"bases": list(self.sizes)}


class TrackKmers(TrackWords, Comparator):
    """Regressions on k-mers, counted on both strands together, and on dyads."""

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        return probabilities(self.log_odds(sequences)[1])

    def chosen(self) -> dict[str, Any]:
        return {"k": self.k, "dyads": self.each, "bases": list(self.sizes)}


class PromoterLogistic(Comparator):
    """A `LogisticBaseline` for stranded windows with one label; its penalty is chosen in training."""

    def __init__(self, model: LogisticBaseline) -> None:
        self.model = model

    def fit(self, learned: LabeledWindows, held_out: LabeledWindows) -> Self:
        labels = all_labels(learned)[:, 0]
        self.model.fit(learned.sequences(np.arange(len(labels))), labels)
        return self

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        return self.model.predict(sequences)[:, None]

    def chosen(self) -> dict[str, Any]:
        return {**self.model.settings, "inverse_penalty": self.model.penalty}


class NearestComparator(NearestWindow, Comparator):
    """Predicts the labels of the nearest training window."""


# Linear probes: logistic regressions on the embeddings of a frozen language model


# Axes: N windows, T labels, D embedding dimensions.

MOST_WINDOWS = 8000
"""Most training windows: more hardly improve a regression on some hundred features, and take minutes."""
_BATCH = 32
Features = NDArray[np.float32]


class FrozenEncoder:
    """The frozen encoder of a language model, which returns vectors of windows from each layer.

    `fresh` is a seed: weights are then drawn at random. `size` restricts means to the tokens of the central
    `size` bp of a window, in addition to all tokens. `anchor` is the relative position around which windows
    of too many tokens are cut. `ModelError` if the model has several encoders, or no DNA tokenizer.
    """

    def __init__(
        self,
        model: Path,
        *,
        fresh: int | None = None,
        size: int | None = None,
        anchor: float = 0.5,
        device: str = "auto",
    ) -> None:
        loaded = load(model)
        encoder = loaded.one_encoder("encoder to probe")
        if fresh is not None:
            torch.manual_seed(fresh)
            encoder = Encoder(loaded.config)
            attach_tokenizer(encoder, loaded.tokenizer)
        self.size, self.anchor = size, anchor
        self.tokenizer, self.device = loaded.tokenizer, choose_device(device)
        self.encoder = encoder.to(self.device).eval()

    @property
    def layers(self) -> int:
        """Number of vectors per window: one of the embeddings, and one per layer."""
        return 1 + self.encoder.config.layers

    def features(self, sequences: Sequence[str]) -> Features:
        """Return means of every layer over the tokens of windows, (n, layers, D)."""
        positions = self.encoder.config.max_length
        spans = None
        if self.size is None:
            rows = window_rows(self.tokenizer, sequences, positions, self.anchor)
        else:
            starts = centered_bins(len(sequences[0]), self.size, 1)
            bins = np.tile(starts, (len(sequences), 1))
            rows, parts = bin_rows(
                self.tokenizer, sequences, bins, self.size, positions
            )
            spans = parts[:, 0]
        return layer_means(
            self.encoder,
            rows,
            pad_id=self.tokenizer.pad_id,
            batch_size=_BATCH,
            device=self.device,
            parts=spans,
        )


class EncoderProbe(Comparator):
    """Logistic regressions on the means of a layer over the tokens of a window, and over its central tokens.
    Layer and penalty are chosen on held-out windows; with a single label, both classes have equal weight.
    Random weights are drawn with `seed`."""

    def __init__(
        self,
        model: Path,
        weights: str,
        *,
        size: int | None = None,
        anchor: float = 0.5,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        fresh = None if weights == PRETRAINED else seed
        self.frozen = FrozenEncoder(
            model, fresh=fresh, size=size, anchor=anchor, device=device
        )
        self.weights, self.seed, self.layer = weights, seed, 0
        self._probe: Probe | KmerTracks | None = None

    def fit(self, learned: LabeledWindows, held_out: LabeledWindows) -> Self:
        rng = np.random.default_rng((self.seed, 10))
        x, y = self._sample(learned, rng)
        x_valid, y_valid = self._sample(held_out, rng)
        best = -np.inf
        for layer in range(x.shape[1]):
            vectors = np.ascontiguousarray(x[:, layer])
            tests = np.ascontiguousarray(x_valid[:, layer])
            if y.shape[1] == 1:
                probe: Probe | KmerTracks = fit_probe(
                    vectors, y[:, 0], tests, y_valid[:, 0]
                )
            else:
                probe = KmerTracks().fit(vectors, y, tests, y_valid)
            predicted = probe.predict(tests).reshape(y_valid.shape)
            if (area := _mean_auroc(y_valid, predicted)) > best:
                best, self.layer, self._probe = area, layer, probe
        return self

    def _sample(
        self, windows: LabeledWindows, rng: np.random.Generator
    ) -> tuple[Features, Bytes]:
        """Return the vectors of every layer and the labels of some windows."""
        rows = sample(np.arange(windows.shape[0]), MOST_WINDOWS, rng)
        parts = [rows[part] for part in blocks(len(rows), _AT_ONCE)]
        progressing = progress(parts, f"{self.weights} weights", len(parts), "parts")
        vectors = [
            self.frozen.features(windows.sequences(part)) for part in progressing
        ]
        return np.concatenate(vectors), windows.labels(rows)

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        assert self._probe is not None, "call `fit` first"
        predicted = []
        for first in range(0, len(sequences), _AT_ONCE):
            vectors = self.frozen.features(sequences[first : first + _AT_ONCE])
            layer = np.ascontiguousarray(vectors[:, self.layer])
            predicted.append(self._probe.predict(layer).reshape(len(layer), -1))
        return np.concatenate(predicted)

    def chosen(self) -> dict[str, Any]:
        chosen: dict[str, Any] = {"layer": self.layer, "weights": self.weights}
        chosen["attention"] = self.frozen.encoder.config.attention
        if isinstance(self._probe, Probe):
            chosen["inverse_penalty"] = self._probe.penalty
        return chosen


def _mean_auroc(labels: Bytes, predicted: Probabilities) -> float:
    """Return the mean AUROC over the labels with both classes; 0.5 if there are none."""
    both = np.flatnonzero((labels.min(axis=0) == 0) & (labels.max(axis=0) == 1))
    if not len(both):
        return 0.5
    return float(roc_auc_score(labels[:, both], predicted[:, both]))
