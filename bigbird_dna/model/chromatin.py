"""A chromatin model: from windows (N) to probabilities of tracks (T) in K bins at their center."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bigbird_dna.errors import UsageError, check_at_least_one, check_fraction
from bigbird_dna.genome.chromatin.track import Track, select_tracks
from bigbird_dna.genome.given_sequences import Sequences, fit_windows, read_sequences
from bigbird_dna.genome.sequence import (
    Interval,
    fraction_n,
    reverse_complement,
    window_start,
)
from bigbird_dna.model.batching import (
    BinRows,
    Run,
    View,
    bin_rows,
    bins_shown,
    centered_bins,
    middle_bins,
    run_rows,
)
from bigbird_dna.model.heads import ChromatinEnsemble
from bigbird_dna.model.inference import ahead, choose_device, prediction_lock
from bigbird_dna.model.kernels import row_sigmoid
from bigbird_dna.model.model import LoadedModel, Predictor, finish_of
from bigbird_dna.model.settings import ChromatinSettings

if TYPE_CHECKING:
    from bigbird_dna.genome.reference import Reference


@dataclass(frozen=True, repr=False)
class LoadedChromatinModel(LoadedModel):
    """Predict, from windows of `settings.window` bp, the tracks with a peak in bins of `settings.bin` bp."""

    network: ChromatinEnsemble
    settings: ChromatinSettings

    def _described(self) -> list[str]:
        settings = self.settings
        window = f"window {settings.window:,} bp with a bin of {settings.bin:,}"
        return [window, f"{len(settings.tracks):,} tracks"]

    @cached_property
    def tracks(self) -> list[Track]:
        """The predicted tracks, in the order of the outputs."""
        return self.settings.track_list

    def columns(self, pattern: str | None) -> list[int]:
        """Output columns of the tracks that `pattern` selects (see `select_tracks`), in order; None: all."""
        if pattern is None:
            return list(range(len(self.tracks)))
        number = {track.name: column for column, track in enumerate(self.tracks)}
        return [number[track.name] for track in select_tracks(self.tracks, pattern)]

    def bins_together(self, center_fraction: float) -> int:
        """Number of bins (K) predicted per window, in the central `center_fraction` (0 to 1) of the window.

        `UsageError`: several bins requested from a model that predicts one from [CLS].
        """
        if center_fraction and self.settings.pooling == "cls":
            raise UsageError(
                f"{self.path}: predicts one bin per window (pooling cls); the center fraction must be 0"
            )
        return middle_bins(self.settings.window, self.settings.bin, center_fraction)

    def predict(
        self,
        sequences: Sequences,
        *,
        pad: bool = False,
        max_n: float = 0.25,
        calibrated: bool = False,
        center_fraction: float = 0.0,
        both_strands: bool = True,
        batch_size: int = 16,
        device: str = "auto",
    ) -> Any:
        """Predict the probability that the central bin of each sequence is in a peak, per track.

        The probabilities are those of `predict-tracks` for the same windows, to 1e-6.

        Parameters
        ----------
        sequences
            Windows of `settings.window` bp: one string (or `Bio.Seq`, `SeqRecord`), or a list, tuple, array
            or Series. Lower case is accepted, and IUPAC codes count as N.
        pad
            Accept other lengths: shorter sequences are centered in a window padded with N, as at a contig's
            edge; longer ones are cropped to their central part.
        max_n
            Sequences whose window, including padding, has a larger fraction of N get NaN.
        calibrated
            Return calibrated probabilities (`ModelError` without a calibration), fitted to the mean of both
            strands.
        center_fraction
            Fraction of the window, around its center, whose K adjacent bins are predicted (see
            `bins_together`). 0: only the central bin, which has equal context on both sides.
        both_strands
            Average over the window and its reverse complement, which has the same central bins.
        batch_size
            Windows processed concurrently and independently (see `run_rows`); it does not affect the results.
        device
            auto, cpu or cuda.

        Returns
        -------
        Probabilities (N, K, T), float32, or (1, K, T) for one string; each row depends, to 1e-6, only on its
        sequence and the model.

        Raises
        ------
        UsageError
            See `PromoterModel.predict` and `bins_together`.
        DataError
            A letter is not DNA; the message contains the index of the sequence and the position.
        ModelError
            A probability is NaN: the weights are too large to add.
        """
        check_at_least_one({"batch_size": batch_size})
        check_fraction("max_n", max_n)
        check_fraction("center_fraction", center_fraction)
        count, window = self.bins_together(center_fraction), self.settings.window
        finish = finish_of(self, calibrated)
        inputs = read_sequences(sequences)
        # Shorter ones are centered, like a contig's only window (see `centered_tiles`).
        windows = []
        for text in fit_windows(inputs, window, pad):
            end = window - (window - len(text)) // 2
            windows.append(text.rjust(end, "N").ljust(window, "N"))

        known = np.array([fraction_n(text) <= max_n for text in windows], bool)
        values = np.full((len(windows), count, len(self.tracks)), np.nan, np.float32)
        if known.any():
            probs = self.window_probabilities(
                [windows[number] for number in np.flatnonzero(known)],
                center_fraction=center_fraction,
                both_strands=both_strands,
                batch_size=batch_size,
                device=device,
            )
            values[known] = probs if finish is None else finish(probs)

        return values

    def window_probabilities(
        self,
        windows: Sequence[str],
        *,
        center_fraction: float = 0.0,
        both_strands: bool = True,
        batch_size: int = 16,
        device: str = "auto",
    ) -> npt.NDArray[np.float32]:
        """Predictions (N, K, T) as by `predict` for windows known to be valid; no window is omitted.

        `ValueError`: a window's length differs from the model's.
        """
        count, window = self.bins_together(center_fraction), self.settings.window
        wrong = [len(text) for text in windows if len(text) != window]
        if wrong:
            raise ValueError(f"windows must have {window} bp, got {wrong[0]}")

        views = [View(), View(turned=True)] if both_strands else [View()]
        probs, *reverse = self._each_view(
            windows, views, count, row_sigmoid, batch_size, device
        )
        if reverse:
            probs = np.asarray((probs + reverse[0][:, ::-1]) / 2, np.float32)

        self.check_predictions(probs)
        return probs

    def view_scores(
        self,
        windows: Sequence[str],
        views: Sequence[View],
        *,
        batch_size: int = 16,
        device: str = "auto",
    ) -> npt.NDArray[np.float32]:
        """Log-odds (V, N, T) of the central bin of windows in each of V views; the bin stays in its place."""
        logits = self._each_view(windows, views, 1, None, batch_size, device)
        scores = np.stack([of_view[:, 0] for of_view in logits])
        self.check_predictions(scores)
        return scores

    def _each_view(
        self,
        windows: Sequence[str],
        views: Sequence[View],
        count: int,
        finish: Callable[[Tensor], Tensor] | None,
        batch_size: int,
        device: str,
    ) -> list[npt.NDArray[np.float32]]:
        """The logits of windows, or what `finish` makes of them, (N, K, T), in each view."""
        settings = self.settings
        window, size = settings.window, settings.bin
        read = max(count, bins_shown(window, size, settings.bin_layers))
        bins = centered_bins(window, size, read)

        def encode(view: View) -> BinRows:
            left, right = view.cut
            texts = []
            for text in windows:
                text = reverse_complement(text) if view.turned else text
                texts.append(text[left : len(text) - right])

            return bin_rows(
                self.tokenizer,
                texts,
                np.broadcast_to(bins - left, (len(texts), len(bins))),
                size,
                self.config.max_length,
                torch.get_num_threads(),
                view.phase,
            )

        results = []
        with prediction_lock:
            torch_device = choose_device(device)
            network = self.network.to(torch_device).eval()
            for view, rows in zip(
                views, ahead(encode, views, torch_device), strict=True
            ):
                values = run_rows(
                    network,
                    rows.ids,
                    bin_logits(network, rows, count, finish),
                    pad_id=self.tokenizer.pad_id,
                    batch_size=batch_size,
                    device=torch_device,
                    empty=(count, 0),
                )
                opposites = settings.opposites
                if view.turned and opposites is not None:
                    # `networks_beside` has two outputs of each track.
                    of_tracks = values.reshape(*values.shape[:2], -1, len(opposites))
                    values = of_tracks[..., opposites].reshape(values.shape)

                results.append(values)

        return results


def bin_logits(
    network: nn.Module,
    rows: BinRows,
    count: int,
    finish: Callable[[Tensor], Tensor] | None = None,
) -> Run:
    """The function for `run_rows` that computes logits (B, K, T) of the `count` (K, odd) central bins.

    If given, `finish` transforms the logits of each call element by element.
    """
    middle = rows.spans.shape[1] // 2
    central = slice(middle - count // 2, middle + count // 2 + 1)

    def run(ids: Tensor, lengths: Tensor, chosen: npt.NDArray[np.intp]) -> Tensor:
        spans = torch.from_numpy(rows.spans[chosen])
        logits: Tensor = network(ids, lengths, spans, central)
        return logits if finish is None else finish(logits.float())

    return run


# Windows with several bins each, so that one forward pass predicts them all.
# Axes: n bins, W windows, K bins at the center of a window, T tracks.

WINDOWS_AT_ONCE = 512


class SharedWindows(NamedTuple):
    """Windows (W), and per bin (n,) the number of its window and its index among the window's K bins."""

    windows: list[Interval]
    owner: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]

    def predicted(
        self, reference: "Reference", predict: Predictor, max_n: float = 1.0
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
        """Yield batches of bins: their numbers (m,) and their probabilities (m, T).

        Bins whose window has a larger fraction of N than `max_n` are omitted.
        """
        order = np.argsort(self.owner, kind="stable")
        owner = self.owner[order]
        for first in range(0, len(self.windows), WINDOWS_AT_ONCE):
            batch = self.windows[first : first + WINDOWS_AT_ONCE]
            texts = [reference.fetch(window) for window in batch]
            known = np.array([fraction_n(text) <= max_n for text in texts])
            if not known.any():
                continue

            values = predict([texts[number] for number in np.flatnonzero(known)])
            row = np.cumsum(known) - 1  # index of each window among the known ones
            begin, end = np.searchsorted(owner, [first, first + len(batch)])
            bins = order[begin:end]
            bins = bins[known[self.owner[bins] - first]]
            yield bins, values[row[self.owner[bins] - first], self.place[bins]]


def share_windows(
    contigs: Sequence[str],
    starts: npt.NDArray[np.int64],
    size: int,
    window: int,
    count: int,
) -> SharedWindows:
    """Assign bins (n) to windows of `window` bp whose center has room for `count` (K, odd) bins of `size` bp.

    Bins are grouped by `count` from the contig's start, separately for each phase, so that a bin's window
    does not depend on the other requested bins.
    """
    number, phase = np.divmod(np.asarray(starts, np.int64), size)
    group, place = np.divmod(number, count)
    names, codes = np.unique(contigs, return_inverse=True)
    keys = np.column_stack([codes, group, phase])
    unique, owner = np.unique(keys, axis=0, return_inverse=True)
    middles = (unique[:, 1] * count + count // 2) * size + unique[:, 2]
    opens = window_start(middles, size, window).tolist()
    windows = [
        Interval(str(names[code]), start, start + window)
        for code, start in zip(unique[:, 0].tolist(), opens, strict=True)
    ]
    return SharedWindows(windows, owner.reshape(-1), place)
