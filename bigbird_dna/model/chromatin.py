"""A chromatin model: from windows (N) to probabilities of tracks (T) in K bins at their center."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bigbird_dna.config.section import SCORED_CENTER
from bigbird_dna.errors import UsageError, check_at_least_one, check_fraction
from bigbird_dna.genome.chromatin.track import TSS_TRACKS, Track, select_tracks
from bigbird_dna.genome.given_sequences import Sequences, fit_windows, read_sequences
from bigbird_dna.genome.sequence import (
    Interval,
    Strand,
    fraction_n,
    inside,
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
        own = self.settings
        return [
            f"window {own.window:,} bp with a bin of {own.bin:,}",
            f"{len(own.tracks):,} tracks",
        ]

    @cached_property
    def tracks(self) -> list[Track]:
        """The predicted tracks, in the order of the outputs."""
        return self.settings.track_list

    @cached_property
    def predicts_tss(self) -> bool:
        """Whether the tracks are the start sites on both strands, and nothing else."""
        names = {track.name for track in self.tracks}
        return names == {*TSS_TRACKS.values()} and self.settings.opposites is not None

    @cached_property
    def tss_columns(self) -> dict[Strand, int]:
        """Output columns of the start sites on each strand; `ValueError` if the model does not have them."""
        names = [track.name for track in self.tracks]
        return {strand: names.index(name) for strand, name in TSS_TRACKS.items()}

    @property
    def scored_center(self) -> float:
        """Fraction of a window, around its center, whose bins are scored in a scan; 0: the central bin."""
        return SCORED_CENTER if self.settings.pooling == "bin" else 0.0

    @property
    def tss_reach(self) -> tuple[int, int]:
        """Number of bp of a window before the TSS of its central bin, and from it on."""
        window, size = self.settings.window, self.settings.bin
        before = int(centered_bins(window, size, 1)[0]) + size // 2
        return before, window - before

    def columns(self, pattern: str | None) -> list[int]:
        """Output columns of the tracks that `pattern` selects (see `select_tracks`), in order; None: all."""
        chosen = self.tracks if pattern is None else select_tracks(self.tracks, pattern)
        names = {track.name for track in chosen}
        return [
            column for column, track in enumerate(self.tracks) if track.name in names
        ]

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
        sequence and the model. For a Series, a table with its index and a column per track.

        Raises
        ------
        UsageError
            See `PromoterModel.predict` and `bins_together`; or a Series with several bins per window.
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
        given = read_sequences(sequences)
        if given.labels is not None and count > 1:
            raise UsageError(
                f"center_fraction {center_fraction}: {count} bins per window; a Series allows 1, a list any"
            )
        windows = [_padded(text, window) for text in fit_windows(given, window, pad)]
        kept = np.array([fraction_n(one) <= max_n for one in windows], bool)
        values = np.full((len(windows), count, len(self.tracks)), np.nan, np.float32)
        if kept.any():
            found = self.window_probabilities(
                [one for one, good in zip(windows, kept, strict=True) if good],
                center_fraction=center_fraction,
                both_strands=both_strands,
                batch_size=batch_size,
                device=device,
            )
            values[kept] = found if finish is None else finish(found)
        if given.labels is None:
            return values
        import pandas as pd

        return pd.DataFrame(
            values[:, 0],
            index=given.labels,
            columns=[track.name for track in self.tracks],
        )

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
        wrong = next((len(one) for one in windows if len(one) != window), None)
        if wrong is not None:
            raise ValueError(f"windows must have {window} bp, got {wrong}")
        strands = [
            View(turned) for turned in ((False, True) if both_strands else (False,))
        ]
        with prediction_lock:
            forward, *reverse = self._each_view(
                windows, strands, count, row_sigmoid, batch_size, device
            )
        found = (
            np.asarray((forward + reverse[0][:, ::-1]) / 2, np.float32)
            if reverse
            else forward
        )
        self.check_predictions(found)
        return found

    def view_scores(
        self,
        windows: Sequence[str],
        views: Sequence[View],
        *,
        batch_size: int = 16,
        device: str = "auto",
    ) -> npt.NDArray[np.float32]:
        """Log-odds (V, N, T) of the central bin of windows in each of V views; the bin stays in its place."""
        with prediction_lock:
            found = [*self._each_view(windows, views, 1, None, batch_size, device)]
        scores = np.stack([part[:, 0] for part in found])
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
    ) -> Iterator[npt.NDArray[np.float32]]:
        """Yield the logits of windows, or what `finish` makes of them, (N, K, T), in each view."""
        place = choose_device(device)
        network = self.network.to(place).eval()
        window, size, threads = (
            self.settings.window,
            self.settings.bin,
            torch.get_num_threads(),
        )
        bins = centered_bins(
            window, size, max(count, bins_shown(window, size, self.settings.bin_layers))
        )

        def encode(view: View) -> BinRows:
            left, right = view.cut
            texts = (
                [reverse_complement(one) for one in windows] if view.turned else windows
            )
            starts = np.broadcast_to(bins - left, (len(windows), len(bins)))
            parts = (
                [text[left : len(text) - right] for text in texts]
                if left or right
                else texts
            )
            return bin_rows(
                self.tokenizer,
                parts,
                starts,
                size,
                self.config.max_length,
                threads,
                view.phase,
            )

        for view, rows in zip(views, ahead(encode, views, place), strict=True):
            found = run_rows(
                network,
                rows.ids,
                bin_logits(network, rows, count, finish),
                pad_id=self.tokenizer.pad_id,
                batch_size=batch_size,
                device=place,
                empty=(count, 0),
            )
            if view.turned and (opposites := self.settings.opposites) is not None:
                of_tracks = found.reshape(
                    *found.shape[:2], -1, len(opposites)
                )  # `networks_alone` has two
                found = of_tracks[..., opposites].reshape(found.shape)
            yield found


def _padded(sequence: str, window: int) -> str:
    """Center a sequence in a window of N, like a contig's only window (see `centered_tiles`)."""
    return sequence.rjust(window - (window - len(sequence)) // 2, "N").ljust(
        window, "N"
    )


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

    def reach_beyond(self, reference: "Reference") -> npt.NDArray[np.bool_]:
        """Whether each window (W,) extends beyond its contig."""
        return np.array(
            [not inside(window, reference.contigs) for window in self.windows], np.bool_
        )

    def predicted(
        self, reference: "Reference", predict: Predictor, max_n: float = 1.0
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
        """Yield batches of bins: their numbers (m,) and their probabilities (m, T).

        Bins whose window has a larger fraction of N than `max_n` are omitted.
        """
        order = np.argsort(self.owner, kind="stable")
        owner = self.owner[order]
        for first in range(0, len(self.windows), WINDOWS_AT_ONCE):
            some = self.windows[first : first + WINDOWS_AT_ONCE]
            texts = _fetched(reference, some)
            kept = np.array([fraction_n(text) <= max_n for text in texts])
            if not kept.any():
                continue
            values = predict(
                [text for text, good in zip(texts, kept, strict=True) if good]
            )
            row = np.cumsum(kept) - 1  # index of each window among the kept ones
            begin, end = np.searchsorted(owner, [first, first + len(some)])
            bins = order[begin:end]
            bins = bins[kept[self.owner[bins] - first]]
            yield bins, values[row[self.owner[bins] - first], self.place[bins]]


def _fetched(reference: "Reference", windows: Sequence[Interval]) -> list[str]:
    """Bases of windows on the forward strand; one that overlaps its predecessor is read with it."""
    runs: list[list[Interval]] = []
    for window in windows:
        before = runs[-1][-1] if runs else None
        if (
            before is not None
            and before.contig == window.contig
            and before.start <= window.start <= before.end
        ):
            runs[-1].append(window)
        else:
            runs.append([window])
    texts: list[str] = []
    for run in runs:
        first, end = run[0].start, max(window.end for window in run)
        whole = reference.fetch(Interval(run[0].contig, first, end))
        texts += [whole[window.start - first : window.end - first] for window in run]
    return texts


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
    names = list(dict.fromkeys(contigs))
    numbers = {name: code for code, name in enumerate(names)}
    codes = [numbers[contig] for contig in contigs]
    keys = np.column_stack([codes, group, phase])
    found, owner = np.unique(keys, axis=0, return_inverse=True)
    middles = (found[:, 1] * count + count // 2) * size + found[:, 2]
    opens = window_start(middles, size, window).tolist()
    windows = [
        Interval(names[code], start, start + window)
        for code, start in zip(found[:, 0].tolist(), opens, strict=True)
    ]
    return SharedWindows(windows, owner.reshape(-1), place)
