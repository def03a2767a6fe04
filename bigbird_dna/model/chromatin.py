"""A chromatin model: from windows (N) to probabilities of tracks (T) of K bins in their middle."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypedDict, Unpack, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn

from bigbird_dna.errors import UsageError, check_at_least_one, check_fraction
from bigbird_dna.genome.chromatin.tracks import Track, select_tracks
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, fraction_n, inside, reverse_complement
from bigbird_dna.genome.splits import window_start
from bigbird_dna.model.batching import (
    BinRows,
    Sequences,
    bin_rows,
    bins_shown,
    centered_bins,
    fit_windows,
    middle_bins,
    read_sequences,
    run_rows,
)
from bigbird_dna.model.heads import ChromatinEnsemble
from bigbird_dna.model.inference import ahead, choose_device
from bigbird_dna.model.kernels import row_sigmoid
from bigbird_dna.model.model import LoadedModel, finish_of
from bigbird_dna.model.settings import ChromatinSettings


class ChromatinOptions(TypedDict, total=False):
    """Options of `LoadedChromatinModel.predict`, for type checkers."""

    pad: bool
    max_n: float
    calibrated: bool
    middle: float
    both_strands: bool
    batch_size: int
    device: str


@dataclass(frozen=True, repr=False)
class LoadedChromatinModel(LoadedModel):
    """Tells from windows of `settings.window` bp which tracks have a peak in bins of `settings.bin` bp."""

    network: ChromatinEnsemble
    settings: ChromatinSettings

    def _described(self) -> list[str]:
        own = self.settings
        return [f"window {own.window:,} bp with a bin of {own.bin:,}", f"{len(own.tracks):,} tracks"]

    @cached_property
    def tracks(self) -> list[Track]:
        """What it predicts, in the order of its outputs."""
        return self.settings.track_list

    def columns(self, pattern: str | None) -> list[int]:
        """Outputs of the tracks that `pattern` chooses (see `select_tracks`), in order; None: all."""
        chosen = self.tracks if pattern is None else select_tracks(self.tracks, pattern)
        names = {track.name for track in chosen}
        return [column for column, track in enumerate(self.tracks) if track.name in names]

    def bins_together(self, middle: float) -> int:
        """How many bins (K) a window predicts, if they are those of its middle part (0 to 1).

        `UsageError`: several, of a model that predicts one from [CLS].
        """
        if middle and self.settings.pooling == "cls":
            raise UsageError(
                f"{self.path}: predicts one bin a window (pooling cls), not all of its middle part"
            )
        return middle_bins(self.settings.window, self.settings.bin, middle)

    @overload
    def predict(self, sequences: "pd.Series[Any]", **options: Unpack[ChromatinOptions]) -> pd.DataFrame: ...

    @overload
    def predict(
        self, sequences: Sequences, **options: Unpack[ChromatinOptions]
    ) -> npt.NDArray[np.float32]: ...

    def predict(
        self,
        sequences: Sequences,
        *,
        pad: bool = False,
        max_n: float = 0.25,
        calibrated: bool = False,
        middle: float = 0.0,
        both_strands: bool = True,
        batch_size: int = 16,
        device: str = "auto",
    ) -> Any:
        """Probability that a bin in the middle of each sequence is in a peak of each track.

        The numbers are those that `predict-tracks` gives the same windows, to the last bit.

        Parameters
        ----------
        sequences
            Windows of `settings.window` bp: one text (or `Bio.Seq`, `SeqRecord`), or a list, tuple, array or
            Series of them. Lower case is read, IUPAC codes count as N.
        pad
            Take other lengths too: a shorter sequence lies in the middle of a window that is filled up with
            N, as at a contig's edge; a longer one keeps its middle.
        max_n
            A sequence whose window has a larger share of N, what `pad` fills up with included, gets NaN.
        calibrated
            The probabilities after the model's calibration (`ModelError` without one), which was fitted to
            the mean of both strands.
        middle
            The part of a window, around its middle, whose bins are predicted: K neighboring ones (see
            `bins_together`). 0: the one in the middle, which sees as much to its left as to its right.
        both_strands
            Mean of the window and its reverse complement, which has the same bins in its middle.
        batch_size
            Windows run at the same time, each by itself (see `run_rows`); it changes no bit of a probability.
        device
            auto, cpu or cuda.

        Returns
        -------
        Probabilities (N, K, T), float32, (1, K, T) for one text, each row a function of its sequence and the
        model alone. For a Series a table: its index × the tracks.

        Raises
        ------
        UsageError
            As of `PromoterModel.predict` and `bins_together`; or a Series is to have several bins a window.
        DataError
            A letter is not of DNA; the message has the index of the sequence and the position.
        ModelError
            A probability is NaN: the weights are too large to add.
        """
        check_at_least_one({"batch_size": batch_size})
        check_fraction("max_n", max_n)
        check_fraction("middle", middle)
        count, window = self.bins_together(middle), self.settings.window
        finish = finish_of(self, calibrated)
        given = read_sequences(sequences)
        if given.labels is not None and count > 1:
            raise UsageError(
                f"middle {middle}: {count} bins a window don't fit a table: give a list of texts"
            )
        windows = [_padded(text, window) for text in fit_windows(given, window, pad)]
        kept = np.array([fraction_n(one) <= max_n for one in windows], bool)
        values = np.full((len(windows), count, len(self.tracks)), np.nan, np.float32)
        if kept.any():
            found = self.window_probabilities(
                [one for one, good in zip(windows, kept, strict=True) if good],
                middle=middle,
                both_strands=both_strands,
                batch_size=batch_size,
                device=device,
            )
            values[kept] = found if finish is None else finish(found)
        if given.labels is None:
            return values
        return pd.DataFrame(values[:, 0], index=given.labels, columns=[track.name for track in self.tracks])

    def window_probabilities(
        self,
        windows: Sequence[str],
        *,
        middle: float = 0.0,
        both_strands: bool = True,
        batch_size: int = 16,
        device: str = "auto",
    ) -> npt.NDArray[np.float32]:
        """What `predict` gives (N, K, T) for windows that are known to be clean: none is left out.

        `ValueError`: a window has another length than the model's.
        """
        count, window = self.bins_together(middle), self.settings.window
        wrong = next((len(one) for one in windows if len(one) != window), None)
        if wrong is not None:
            raise ValueError(f"a window of {wrong} bp, the model's are {window} bp")
        place = choose_device(device)
        network = self.network.to(place).eval()
        size, threads = self.settings.bin, torch.get_num_threads()  # of this thread
        bins = centered_bins(window, size, max(count, bins_shown(window, size, self.settings.bin_layers)))
        starts = np.broadcast_to(bins, (len(windows), len(bins)))

        def encode(turned: bool) -> BinRows:
            texts = [reverse_complement(one) for one in windows] if turned else windows
            return bin_rows(self.tokenizer, texts, starts, size, self.config.max_length, threads)

        pad_id = self.tokenizer.pad_id
        strands = ahead(encode, (False, True) if both_strands else (False,), place)
        forward, *reverse = (
            row_logits(network, rows, count, pad_id, batch_size, place, finish=row_sigmoid)
            for rows in strands
        )
        found = np.asarray((forward + reverse[0][:, ::-1]) / 2, np.float32) if reverse else forward
        self.check_predictions(found)
        return found


def _padded(sequence: str, window: int) -> str:
    """A sequence in the middle of a window of N, like a contig's only window (see `centred_tiles`)."""
    return sequence.rjust(window - (window - len(sequence)) // 2, "N").ljust(window, "N")


def row_logits(
    network: nn.Module,
    rows: BinRows,
    count: int,
    pad_id: int,
    batch_size: int,
    device: torch.device,
    *,
    finish: Callable[[Tensor], Tensor] | None = None,
) -> npt.NDArray[np.float32]:
    """Logits (N, K, T) of the `count` (K, odd) bins in the middle of those of each row.

    Or what `finish` makes of those of a call, element by element.
    """
    shown = rows.spans.shape[1]
    middle = slice(shown // 2 - count // 2, shown // 2 + count // 2 + 1)

    def run(ids: Tensor, lengths: Tensor, chosen: npt.NDArray[np.intp]) -> Tensor:
        spans = torch.from_numpy(rows.spans[chosen])
        logits: Tensor = network(ids, lengths, spans)
        logits = logits[:, middle]
        return logits if finish is None else finish(logits.float())

    empty = (count, 0)
    return run_rows(network, rows.ids, run, pad_id=pad_id, batch_size=batch_size, device=device, empty=empty)


# Windows that several bins share, so that one run of the model predicts them all


# Axes: n bins, W windows, K bins in the middle of a window, T tracks.

Predictor = Callable[[Sequence[str]], npt.NDArray[np.float32]]
"""From N windows over A C G T N to probabilities, each a function of its sequence alone: (N,) of a promoter
model; (N, K, T) of a chromatin model, for K bins in the middle of a window and T tracks."""

WINDOWS_AT_ONCE = 512


class SharedWindows(NamedTuple):
    """Windows (W), and for each bin (n,) the number of its window and its place among the K there."""

    windows: list[Interval]
    owner: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]

    def reach_beyond(self, reference: Reference) -> npt.NDArray[np.bool_]:
        """Whether each window (W,) reaches beyond its contig."""
        return np.array([not inside(window, reference.contigs) for window in self.windows], np.bool_)

    def predicted(
        self, reference: Reference, predict: Predictor, max_n: float = 1.0
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
        """Batches of bins: their numbers (m,) and their probabilities (m, T).

        Bins whose window has a larger share of N than `max_n` don't appear.
        """
        order = np.argsort(self.owner, kind="stable")
        owner = self.owner[order]
        for first in range(0, len(self.windows), WINDOWS_AT_ONCE):
            some = self.windows[first : first + WINDOWS_AT_ONCE]
            texts = [reference.fetch(window) for window in some]
            kept = np.array([fraction_n(text) <= max_n for text in texts])
            if not kept.any():
                continue
            values = predict([text for text, good in zip(texts, kept, strict=True) if good])
            row = np.cumsum(kept) - 1  # of each window among the kept
            begin, end = np.searchsorted(owner, [first, first + len(some)])
            bins = order[begin:end]
            bins = bins[kept[self.owner[bins] - first]]
            yield bins, values[row[self.owner[bins] - first], self.place[bins]]


def share_windows(
    contigs: Sequence[str], starts: npt.NDArray[np.int64], size: int, window: int, count: int
) -> SharedWindows:
    """Put bins (n) into windows of `window` bp, in whose middle `count` (K, odd) bins of `size` bp have room.

    Bins are taken `count` by `count` from the contig's start on, those of each phase apart, so that a bin's
    window doesn't depend on which others are asked for.
    """
    number, phase = np.divmod(np.asarray(starts, np.int64), size)
    group, place = np.divmod(number, count)
    codes, names = pd.factorize(np.asarray(contigs, object))
    keys = np.column_stack([codes, group, phase])
    found, owner = np.unique(keys, axis=0, return_inverse=True)
    middles = (found[:, 1] * count + count // 2) * size + found[:, 2]
    opens = window_start(middles, size, window).tolist()
    windows = [
        Interval(names[code], start, start + window)
        for code, start in zip(found[:, 0].tolist(), opens, strict=True)
    ]
    return SharedWindows(windows, owner.reshape(-1), place)
