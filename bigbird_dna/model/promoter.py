"""Models of whole sequences: of promoters, and of labeled sequences.

From sequences to predictions, for fine-tuning, evaluation and scoring. Axes: N sequences, T outputs.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bigbird_dna.errors import check_at_least_one, check_fraction
from bigbird_dna.genome.given_sequences import (
    Sequences,
    filled,
    fit_windows,
    read_sequences,
)
from bigbird_dna.genome.sequence import fraction_n, reverse_complement
from bigbird_dna.model.batching import Ids, View, pad, placed_rows, run_rows
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.inference import ahead, choose_device, prediction_lock
from bigbird_dna.model.kernels import row_sigmoid
from bigbird_dna.model.model import LoadedModel, finish_of
from bigbird_dna.model.settings import (
    ClassifierSettings,
    PromoterSettings,
    SequenceSettings,
)
from bigbird_dna.tokens.interface import Tokenizer

Predictions = npt.NDArray[np.float32]


@dataclass(frozen=True, repr=False)
class LoadedClassifier(LoadedModel):
    """A model whose input is a whole sequence."""

    network: Classifier
    settings: ClassifierSettings

    def finish(self, logits: Tensor) -> Tensor:
        """Predictions (B, T) of the network's logits (B, T)."""
        return row_sigmoid(logits)

    def score(self, logits: Tensor) -> Tensor:
        """Scores (B, T) of the network's logits (B, T), see `view_scores`."""
        return logits

    @property
    def views(self) -> list[View]:
        """The views of a window: on both strands if windows have no direction."""
        cuts = view_cuts(self.settings.views, self.settings.jitter)
        strands = (False, True) if self.settings.both_strands else (False,)
        return [View(turned, cut) for turned in strands for cut in cuts]

    def window_predictions(
        self,
        windows: Sequence[str],
        logits: Predictions | None = None,
        **computing: Any,
    ) -> Predictions:
        """Predictions (N, T) of windows known to be valid: means over the model's views of a window.

        `logits` (N, V, T) are those of `network_logits` for these windows; None: they are computed.
        `computing` are the batch size and the device, as of `predict`.
        """
        known = None if logits is None else logits.swapaxes(0, 1)
        values = self._each_view(windows, self.views, self.finish, known, **computing)
        return np.asarray(values.mean(0, dtype=np.float64), np.float32)

    def network_logits(self, windows: Sequence[str], **computing: Any) -> Predictions:
        """Logits (N, V, T) of windows in the model's V views, without the regressions of an ensemble."""
        logits = self._each_view(
            windows, self.views, lambda x: x, alone=True, **computing
        )
        return logits.swapaxes(0, 1)

    def view_scores(
        self, windows: Sequence[str], views: Sequence[View], **computing: Any
    ) -> Predictions:
        """Scores (V, N, T) of windows in each of V views: log-odds, or the labels of a regression.

        Regressions of an ensemble read the whole window.
        """
        return self._each_view(windows, views, self.score, **computing)

    def _each_view(
        self,
        windows: Sequence[str],
        views: Sequence[View],
        finish: Callable[[Tensor], Tensor],
        logits: Iterable[Predictions] | None = None,
        *,
        alone: bool = False,
        batch_size: int = 32,
        device: str = "auto",
    ) -> Predictions:
        """What `finish` makes of the logits of windows in each view, (V, N, T); `alone`: of the network.

        `logits` are those of the network alone, if they are known. The network reads at most `max_length`
        tokens of a window, the regressions of an ensemble all of it.
        """

        def encode(view: View, positions: int | None = self.config.max_length) -> Any:
            texts = windows
            if view.turned:
                texts = [reverse_complement(window) for window in windows]

            return promoter_rows(
                self.tokenizer,
                texts,
                [view.cut] * len(texts),
                self.settings,
                positions,
                torch.get_num_threads(),
                view.phase,
            )

        with prediction_lock:
            torch_device = choose_device(device)
            network = self.network.to(torch_device).eval()
            computing = self.tokenizer.pad_id, batch_size, torch_device
            added = None
            if network.ensemble is not None and not alone:
                whole = encode(View(), None)
                added = torch.from_numpy(added_logits(network, whole, *computing))

            if logits is None:
                logits = []
                for rows in ahead(encode, views, torch_device):
                    logits.append(row_logits(network, rows, *computing))

            scores = []
            for of_view in logits:
                values = torch.from_numpy(of_view).to(torch_device)
                if added is not None and network.ensemble is not None:
                    values = network.ensemble(values, added.to(torch_device))

                scores.append(finish(values).cpu().numpy())

        stacked = np.stack(scores)
        self.check_predictions(stacked)
        return stacked


@dataclass(frozen=True, repr=False)
class LoadedPromoterModel(LoadedClassifier):
    """A classifier of windows of `settings.upstream + settings.downstream` bp around a TSS."""

    settings: PromoterSettings

    def _described(self) -> list[str]:
        settings = self.settings
        return [f"window {settings.window:,} bp with the TSS at {settings.upstream:,}"]

    @property
    def tss_reach(self) -> tuple[int, int]:
        """Number of bp of a window before its TSS, and from it on."""
        return self.settings.upstream, self.settings.downstream

    def predict(
        self,
        sequences: Sequences,
        *,
        pad: bool = False,
        max_n: float = 0.25,
        calibrated: bool = False,
        batch_size: int = 32,
        device: str = "auto",
    ) -> Any:
        """Predict the probability of a promoter at each sequence's TSS position, on its forward strand.

        The probabilities are those of `score-promoters` for the same windows, to 1e-6.

        Parameters
        ----------
        sequences
            Windows of `settings.window` bp in transcription order: one string (or `Bio.Seq`, `SeqRecord`), or
            a list, tuple, array or Series. Lower case is accepted, and IUPAC codes count as N.
        pad
            Accept other lengths: shorter sequences are centered in a window padded with the same number of N
            on either side (one base shorter if an odd number is missing); longer ones are cropped to their
            central part. The probability is that of a TSS at the window's TSS position
            (`settings.upstream`), and not of one elsewhere in the sequence.
        max_n
            Sequences with a larger fraction of N get NaN. N added by `pad` does not count.
        calibrated
            Return calibrated probabilities (`ModelError` without a calibration).
        batch_size
            Windows processed concurrently and independently (see `run_rows`); it does not affect the results.
        device
            auto, cpu or cuda.

        Returns
        -------
        Probabilities (N,), float32, or (1,) for one string. Each depends, to 1e-6, only on its sequence and the model. A model with several `views` returns the mean
        over that number of tokenizations of the window; the regressions of an ensemble read the whole window.

        Raises
        ------
        UsageError
            The input is not sequences, or a sequence is empty or not of the window's length; an argument is out
            of range; the device is missing or has too little memory.
        DataError
            A letter is not DNA; the message contains the index of the sequence and the position.
        ModelError
            A probability is NaN: the weights are too large to add.
        """
        check_at_least_one({"batch_size": batch_size})
        check_fraction("max_n", max_n)
        finish = finish_of(self, calibrated)
        inputs = read_sequences(sequences)
        window = self.settings.window
        texts = fit_windows(inputs, window, pad)
        windows = [filled(text, window) for text in texts]
        known = np.array([fraction_n(text) <= max_n for text in texts], bool)
        scored = [windows[number] for number in np.flatnonzero(known)]
        probs = self.window_probabilities(scored, batch_size=batch_size, device=device)
        values = np.full(len(windows), np.nan, np.float32)
        values[known] = probs if finish is None else finish(probs)
        return values

    def window_probabilities(
        self,
        windows: Sequence[str],
        logits: Predictions | None = None,
        **options: Any,
    ) -> Predictions:
        """Predictions (N,) as by `predict`, see `window_predictions`; no window is checked or omitted."""
        return self.window_predictions(windows, logits, **options)[:, 0]


@dataclass(frozen=True, repr=False)
class LoadedSequenceModel(LoadedClassifier):
    """A model of labeled sequences; its outputs are named by `settings.outputs`."""

    settings: SequenceSettings

    def _described(self) -> list[str]:
        settings, length = self.settings, "sequences of any length"
        if settings.length is not None:
            length = f"sequences of {settings.length:,} bp"
        return [settings.kind, length, f"{len(settings.outputs):,} outputs"]

    def finish(self, logits: Tensor) -> Tensor:
        """Probabilities of labels or classes, or the labels of a regression."""
        kind = self.settings.kind
        if kind == "regression":
            return self.score(logits)
        return logits.softmax(1) if kind == "multiclass" else row_sigmoid(logits)

    def score(self, logits: Tensor) -> Tensor:
        settings = self.settings
        if settings.kind == "regression":
            deviations = logits.new_tensor(settings.deviations)
            return logits * deviations + logits.new_tensor(settings.means)
        if settings.kind != "multiclass":
            return logits
        others = logits.new_zeros((logits.shape[1],) * 2).fill_diagonal_(-torch.inf)
        return logits - (logits[:, None] + others).logsumexp(2)

    def predict(
        self,
        sequences: Sequences,
        *,
        pad: bool = False,
        max_n: float = 0.25,
        batch_size: int = 32,
        device: str = "auto",
    ) -> Any:
        """Predict the labels of sequences, read on the given strand.

        Parameters
        ----------
        sequences, pad, max_n, batch_size, device
            As for `PromoterModel.predict`. A model with `settings.length` needs sequences of this length,
            unless `pad`; any other model accepts all lengths, and ignores `pad`.

        Returns
        -------
        Array (N, T), float32, with a column per output: probabilities of the labels, or of the classes, or
        the labels of a regression.

        Raises
        ------
        UsageError, DataError, ModelError
            As for `PromoterModel.predict`.
        """
        check_at_least_one({"batch_size": batch_size})
        check_fraction("max_n", max_n)
        inputs, length = read_sequences(sequences), self.settings.length
        windows = inputs.texts if length is None else fit_windows(inputs, length, pad)
        known = np.array([fraction_n(window) <= max_n for window in windows], bool)
        scored = [windows[number] for number in np.flatnonzero(known)]
        if length is not None:
            scored = [filled(window, length) for window in scored]

        values = np.full((len(windows), len(self.settings.outputs)), np.nan, np.float32)
        values[known] = self.window_predictions(
            scored, batch_size=batch_size, device=device
        )
        return values


def view_cuts(views: int, jitter: int) -> list[tuple[int, int]]:
    """Number of bases cropped from the left and right end in each view of a window.

    A single view is the whole window. Several views crop `jitter` bases in total, with 0 to all of them on
    the left. The token phase thus averages out, as in training, which crops up to `jitter` at each end.
    """
    if views == 1:
        return [(0, 0)]
    lefts = [round(jitter * view / (views - 1)) for view in range(views)]
    return [(left, jitter - left) for left in lefts]


class PromoterRows(NamedTuple):
    """Inputs of a classifier for windows."""

    ids: list[Ids]
    firsts: npt.NDArray[
        np.int64
    ]  # (N,) bp of a window before the first base of its row


def promoter_rows(
    tokenizer: Tokenizer,
    windows: Sequence[str],
    cuts: Sequence[tuple[int, int]],
    settings: ClassifierSettings,
    positions: int | None,
    threads: int = 1,
    phase: int = 0,
) -> PromoterRows:
    """Tokens of each window, after cropping `cuts` bp at the left and right end; at most `positions`, if any.

    `phase` as in `Tokenizer.split_batch`.
    """
    texts = [
        window[left : len(window) - right]
        for window, (left, right) in zip(windows, cuts, strict=True)
    ]
    placed = placed_rows(tokenizer, texts, positions, settings.anchor, threads, phase)
    firsts = [
        left + skipped for (left, _), (_, skipped) in zip(cuts, placed, strict=True)
    ]
    return PromoterRows([row for row, _ in placed], np.array(firsts, np.int64))


def added_logits(
    network: Classifier,
    rows: PromoterRows,
    pad_id: int,
    batch_size: int,
    device: torch.device,
) -> Predictions:
    """The log-odds (N, T) that an ensemble adds to those of its network for whole windows.

    Sums of a row do not depend on other rows or on padding.
    """
    assert network.ensemble is not None
    parts = [np.empty((0, network.outputs), np.float32)]
    for start in range(0, len(rows.ids), batch_size):
        chosen = slice(start, start + batch_size)
        ids, _ = pad(rows.ids[chosen], pad_id)
        firsts = torch.from_numpy(rows.firsts[chosen])
        with torch.inference_mode():
            added = network.ensemble.added(ids.to(device), firsts=firsts)
        parts.append(added.float().cpu().numpy())

    return np.concatenate(parts)


def row_logits(
    network: nn.Module,
    rows: PromoterRows,
    pad_id: int,
    batch_size: int,
    device: torch.device,
) -> Predictions:
    """Logits (N, T) of a classifier, without the regressions of an ensemble."""

    def run(ids: Tensor, lengths: Tensor, numbers: npt.NDArray[np.intp]) -> Tensor:
        firsts = torch.from_numpy(rows.firsts[numbers])
        return network(ids, lengths, firsts=firsts)  # type: ignore[no-any-return]

    return run_rows(
        network,
        rows.ids,
        run,
        pad_id=pad_id,
        batch_size=batch_size,
        device=device,
        empty=(network.outputs,),  # type: ignore[arg-type]
        shared=True,
    )
