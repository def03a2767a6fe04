"""Models of whole sequences: of promoters, and of labeled sequences.

From sequences to predictions, for fine-tuning, evaluation and scoring. Axes: N sequences, T outputs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.errors import UsageError, check_at_least_one, check_fraction
from bigbird_dna.genome.given_sequences import (
    PADDING,
    Sequences,
    filled,
    fit_windows,
    read_sequences,
    window_at_tss,
)
from bigbird_dna.genome.sequence import fraction_n, reverse_complement
from bigbird_dna.model.base_positions import (
    BaseTerms,
    PaddedBases,
    TokenBases,
)
from bigbird_dna.model.batching import Ids, View, pad, placed_rows, run_rows
from bigbird_dna.model.ensemble import networks_alone
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.inference import (
    ahead,
    choose_device,
    cpu_threads,
    prediction_lock,
    sent,
)
from bigbird_dna.model.kernels import row_sigmoid
from bigbird_dna.model.model import LoadedModel, finish_of
from bigbird_dna.model.settings import (
    ClassifierSettings,
    PromoterSettings,
    SequenceSettings,
)
from bigbird_dna.tokens.interface import Tokenizer

Predictions = npt.NDArray[np.float32]
SUMMED_VALUES = 1 << 24
"""Maximum number of values of embeddings computed at once: 64 MB."""


@dataclass(frozen=True, repr=False)
class LoadedClassifier(LoadedModel):
    """A model whose input is a whole sequence."""

    network: Classifier
    settings: ClassifierSettings

    def finish(self, logits: Tensor) -> Tensor:
        """Predictions (B, T) of the network's logits (B, T)."""
        return row_sigmoid(logits)

    @property
    def views(self) -> list[View]:
        """The views of a window: on both strands if windows have no direction."""
        cuts = view_cuts(self.settings.views, self.settings.jitter)
        strands = (False, True)[: 1 + self.settings.both_strands]
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
        found = self._each_view(windows, self.views, self.finish, known, **computing)
        return np.asarray(found.mean(0, dtype=np.float64), np.float32)

    def network_logits(self, windows: Sequence[str], **computing: Any) -> Predictions:
        """Logits (N, V, T) of windows in the model's V views, without the regressions of an ensemble."""
        with prediction_lock, networks_alone(self.network):
            found = self._each_view(windows, self.views, lambda x: x, **computing)
        return found.swapaxes(0, 1)

    def view_scores(
        self, windows: Sequence[str], views: Sequence[View], **computing: Any
    ) -> Predictions:
        """Scores (V, N, T) of windows in each of V views: log-odds, or the labels of a regression.

        Regressions of an ensemble read the whole window.
        """
        return self._each_view(windows, views, self.score, **computing)

    def score(self, logits: Tensor) -> Tensor:
        """Scores (B, T) of the network's logits (B, T), see `view_scores`."""
        return logits

    def _each_view(
        self,
        windows: Sequence[str],
        views: Sequence[View],
        finish: Callable[[Tensor], Tensor],
        logits: Iterable[Predictions] | None = None,
        *,
        batch_size: int = 32,
        device: str = "auto",
    ) -> Predictions:
        """What `finish` makes of the logits of windows in each view, (V, N, T); `logits` are those of the
        network alone, if they are known.

        The network reads at most `max_length` tokens of a window, the regressions of an ensemble all of it.
        """
        with prediction_lock:
            place = choose_device(device)
            network = self.network.to(place).eval()
            ensemble = network.ensemble
            pad_id = self.tokenizer.pad_id
            threads = torch.get_num_threads()  # of this thread
            whole = added = None
            if ensemble is not None and ensemble.enabled:
                whole = self._view_rows(windows, View(), None, threads)
                added = added_logits(network, whole, pad_id, place)

            def encode(view: View) -> "PromoterRows":
                most = self.config.max_length
                longest = 0 if whole is None else max(map(len, whole.ids), default=0)
                if whole is not None and view == View() and longest <= most:
                    return whole
                return self._view_rows(windows, view, most, threads)

            if logits is None:
                logits = []
                for rows in ahead(encode, views, place):
                    found = row_logits(network, rows, pad_id, batch_size, place)
                    logits.append(found)
            scores = []
            with cpu_threads(1), torch.inference_mode():
                for found in logits:
                    values = sent(torch.from_numpy(found), place)
                    if ensemble is not None:
                        values = ensemble(values, added)
                    scores.append(finish(values).cpu().numpy())
        stacked = np.stack(scores)
        self.check_predictions(stacked)
        return stacked

    def _view_rows(
        self, windows: Sequence[str], view: View, positions: int | None, threads: int
    ) -> "PromoterRows":
        """Tokens of windows in a view, at most `positions`."""
        if view.turned:
            windows = [reverse_complement(window) for window in windows]
        return promoter_rows(
            self.tokenizer,
            windows,
            [view.cut] * len(windows),
            self.settings,
            positions,
            threads,
            view.phase,
        )


@dataclass(frozen=True, repr=False)
class LoadedPromoterModel(LoadedClassifier):
    """A classifier of windows of `settings.upstream + settings.downstream` bp around a TSS."""

    settings: PromoterSettings

    def _described(self) -> list[str]:
        own = self.settings
        return [f"window {own.window:,} bp with the TSS at {own.upstream:,}"]

    @property
    def tss_reach(self) -> tuple[int, int]:
        """Number of bp of a window before its TSS, and from it on."""
        return self.settings.upstream, self.settings.downstream

    def predict(
        self,
        sequences: Sequences,
        *,
        tss_offset: int | None = None,
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
        tss_offset
            The TSS is this base (from 0) of each sequence, of any length: the window is placed there, with N
            where the sequence does not reach. None: sequences are windows.
        pad
            Accept other lengths: shorter sequences are centered in a window padded with the same number of N
            on either side (one base shorter if an odd number is missing); longer ones are cropped to their
            central part. The probability is that of a TSS at the window's TSS position
            (`settings.upstream`), and not of one elsewhere in the sequence.
        max_n
            Sequences with a larger fraction of N get NaN. N added by `tss_offset` or `pad` does not count.
        calibrated
            Return calibrated probabilities (`ModelError` without a calibration).
        batch_size
            Windows processed concurrently and independently (see `run_rows`); it does not affect the results.
        device
            auto, cpu or cuda.

        Returns
        -------
        Probabilities (N,), float32, or (1,) for one string; for a Series, a Series with its index. Each
        depends, to 1e-6, only on its sequence and the model. A model with several `views` returns the mean
        over that number of tokenizations of the window; the regressions of an ensemble read the whole window.

        Raises
        ------
        UsageError
            The input is not sequences, or a sequence is empty or not of the window's length, or has no base
            in the window at `tss_offset`; an argument is out of range; the device is missing or has too
            little memory.
        DataError
            A letter is not DNA; the message contains the index of the sequence and the position.
        ModelError
            A probability is NaN: the weights are too large to add.
        """
        check_at_least_one({"batch_size": batch_size})
        check_fraction("max_n", max_n)
        finish = finish_of(self, calibrated)
        given = read_sequences(sequences)
        own = self.settings
        if tss_offset is None:
            hint = f"tss_offset=N scores it with its TSS at base N; {PADDING}"
            texts = fit_windows(given, own.window, pad, hint)
            windows = [filled(text, own.window) for text in texts]
        else:
            if tss_offset < 0 or pad:
                raise UsageError(
                    f"tss_offset {tss_offset}: must be at least 0, and without pad"
                )
            start = tss_offset - own.upstream
            texts = [
                text[max(start, 0) : max(start + own.window, 0)] for text in given.texts
            ]
            for text, name in zip(texts, given.names, strict=True):
                if not text:
                    raise UsageError(
                        f"{name}: no base of it is in the window at tss_offset {tss_offset}"
                    )
            windows = [
                window_at_tss(text, tss_offset, own.upstream, own.downstream)
                for text in given.texts
            ]
        kept = np.array([fraction_n(text) <= max_n for text in texts], bool)
        scored = [window for window, good in zip(windows, kept, strict=True) if good]
        values = np.full(len(windows), np.nan, np.float32)
        found = self.window_probabilities(scored, batch_size=batch_size, device=device)
        values[kept] = found if finish is None else finish(found)
        if given.labels is None:
            return values
        import pandas as pd

        return pd.Series(values, index=given.labels, name="probability")

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
        own = self.settings
        length = (
            "sequences of any length"
            if own.length is None
            else f"sequences of {own.length:,} bp"
        )
        return [own.kind, length, f"{len(own.outputs):,} outputs"]

    def finish(self, logits: Tensor) -> Tensor:
        """Probabilities of labels or classes, or the labels of a regression."""
        kind = self.settings.kind
        if kind == "regression":
            return self.score(logits)
        return logits.softmax(1) if kind == "multiclass" else row_sigmoid(logits)

    def score(self, logits: Tensor) -> Tensor:
        own = self.settings
        if own.kind == "regression":
            return logits * logits.new_tensor(own.deviations) + logits.new_tensor(
                own.means
            )
        if own.kind != "multiclass":
            return logits
        others = logits.new_full((logits.shape[1],) * 2, 0).fill_diagonal_(-torch.inf)
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
        the labels of a regression. For a Series, a table with its index, and columns named by the outputs.

        Raises
        ------
        UsageError, DataError, ModelError
            As for `PromoterModel.predict`.
        """
        check_at_least_one({"batch_size": batch_size})
        check_fraction("max_n", max_n)
        given, length = read_sequences(sequences), self.settings.length
        windows = given.texts if length is None else fit_windows(given, length, pad)
        kept = np.array([fraction_n(window) <= max_n for window in windows], bool)
        scored = [window for window, good in zip(windows, kept, strict=True) if good]
        values = np.full((len(windows), len(self.settings.outputs)), np.nan, np.float32)
        values[kept] = self.window_predictions(
            scored if length is None else [filled(window, length) for window in scored],
            batch_size=batch_size,
            device=device,
        )
        if given.labels is None:
            return values
        import pandas as pd

        return pd.DataFrame(
            values, index=given.labels, columns=[*self.settings.outputs]
        )


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
    """Inputs of a promoter classifier for windows."""

    ids: list[Ids]
    bases: TokenBases | None = (
        None  # of the tokens; None: the classifier has no base positions
    )


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

    With base positions, also the bases of the tokens, with offsets in the whole window. `phase` as in
    `Tokenizer.split_batch`.
    """
    views = [
        window[left : len(window) - right]
        for window, (left, right) in zip(windows, cuts, strict=True)
    ]
    placed = placed_rows(tokenizer, views, positions, settings.anchor, threads, phase)
    rows = [row for row, _ in placed]
    if (offsets := settings.offsets) is None:
        return PromoterRows(rows)
    firsts, skipped = [left for left, _ in cuts], [bp for _, bp in placed]
    return PromoterRows(
        rows, offsets.token_bases(tokenizer, rows, views, firsts, skipped)
    )


def added_logits(
    network: Classifier, rows: PromoterRows, pad_id: int, device: torch.device
) -> Tensor | None:
    """The log-odds (N, 1) that an ensemble adds to those of its network for whole windows; None: nothing."""
    assert network.ensemble is not None
    found: list[Tensor] = []
    with cpu_threads(1), torch.inference_mode():
        for first, last in _groups(network, rows):
            ids = sent(pad(rows.ids[first:last], pad_id)[0], device)
            bases = None
            if rows.bases is not None:
                numbers = np.arange(first, last)
                bases = _sent(rows.bases.padded(numbers, ids.shape[1]), device).batch()
            added = network.ensemble.added(ids, bases=bases)
            if added is not None:
                found.append(added)
    return torch.cat(found) if found else None


def row_logits(
    network: nn.Module,
    rows: PromoterRows,
    pad_id: int,
    batch_size: int,
    device: torch.device,
) -> Predictions:
    """Logits (N, T) of a classifier, without the regressions of an ensemble."""
    assert isinstance(network, Classifier)
    positions = network.base_positions
    groups: Iterable[tuple[int, int]] = [(0, len(rows.ids))]
    if positions is not None:
        groups = _groups(network, rows)
    parts = [np.empty((0, network.outputs), np.float32)]
    for first, last in groups:
        embeddings: Tensor | None = None
        if rows.bases is not None and positions is not None:
            # For many rows at once: row by row takes ten times as long. Each depends only on its own row, and
            # further threads would spin while waiting for work.
            numbers = np.arange(first, last)
            longest = max(map(len, rows.ids[first:last]))
            with cpu_threads(1), torch.inference_mode():
                bases = _sent(rows.bases.padded(numbers, longest), device)
                embeddings = positions(bases.batch())

        def run(
            ids: Tensor,
            lengths: Tensor,
            chosen: npt.NDArray[np.intp],
            embeddings: Tensor | None = embeddings,
        ) -> Tensor:
            added = None
            if embeddings is not None:
                added = embeddings[sent(torch.from_numpy(chosen), device)]
                # Padded, or cropped, to the tokens of this call.
                added = F.pad(added, (0, 0, 0, ids.shape[1] - added.shape[1]))
            logits: Tensor = network(ids, lengths, bases=BaseTerms(added))
            return logits.float()

        found = run_rows(
            network,
            rows.ids[first:last],
            run,
            pad_id=pad_id,
            batch_size=batch_size,
            device=device,
            empty=(network.outputs,),
            shared=True,
        )
        parts.append(found)
    return np.concatenate(parts)


def _groups(network: Classifier, rows: PromoterRows) -> Iterator[tuple[int, int]]:
    """Row ranges whose tokens have embeddings of at most `SUMMED_VALUES` values."""
    values = max(map(len, rows.ids), default=1) * network.encoder.config.hidden
    step = max(1, SUMMED_VALUES // values)
    for first in range(0, len(rows.ids), step):
        yield first, min(first + step, len(rows.ids))


def _sent(bases: PaddedBases, device: torch.device) -> PaddedBases:
    return PaddedBases(*(sent(part, device) for part in bases))
