"""A chromatin model: from windows to probabilities of tracks. Evaluation, regions and variants share it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bigbird_dna.errors import UsageError
from bigbird_dna.genome.chromatin.tracks import Track, select_tracks
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.model.activation import row_sigmoid
from bigbird_dna.model.bin_rows import bin_rows, bins_shown, centred_bins, middle_bins
from bigbird_dna.model.chromatin_network import ChromatinEnsemble
from bigbird_dna.model.device import choose_device
from bigbird_dna.model.model import Model
from bigbird_dna.model.rows import run_rows
from bigbird_dna.model.settings import ChromatinSettings
from bigbird_dna.tokens.interface import Tokenizer

# Axes: N windows, K bins in the middle of a window, T tracks.


@dataclass(frozen=True)
class ChromatinModel(Model):
    """Tells from windows of `settings.window` bp which tracks have a peak in bins of `settings.bin` bp."""

    network: ChromatinEnsemble = field(repr=False)
    settings: ChromatinSettings

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

        Raises
        ------
        UsageError
            Several, of a model that predicts one from [CLS].
        """
        if middle and self.settings.pooling == "cls":
            raise UsageError(
                f"{self.path}: predicts one bin a window (pooling cls), not all of its middle part"
            )
        return middle_bins(self.settings.window, self.settings.bin, middle)

    def predict(
        self,
        sequences: Sequence[str],
        *,
        middle: float = 0.0,
        both_strands: bool = True,
        batch_size: int = 16,
        device: str = "auto",
    ) -> npt.NDArray[np.float32]:
        """Probability that a bin in the middle of each window is in a peak of each track.

        Parameters
        ----------
        sequences
            Windows of `settings.window` bp over A C G T N.
        middle
            The part of a window, around its middle, whose bins are predicted: K neighbouring ones (see
            `bins_together`). 0: the one in the middle, which sees as much to its left as to its right.
        both_strands
            Mean of the window and its reverse complement, which has the same bins in its middle.
        batch_size
            Windows run at the same time, each by itself (see `run_rows`); it changes no bit of a probability.
        device
            auto, cpu or cuda.

        Returns
        -------
        Probabilities (N, K, T), each row a function of its sequence and the model alone.

        Raises
        ------
        UsageError
            As of `bins_together`; or there is no such device, or its memory is too small.
        ValueError
            A window has another length than the model's.
        """
        count = self.bins_together(middle)
        window = self.settings.window
        wrong = next((len(sequence) for sequence in sequences if len(sequence) != window), None)
        if wrong is not None:
            raise ValueError(f"a window of {wrong} bp, the model's are {window} bp")
        probabilities = partial(self._probabilities, count, batch_size, choose_device(device))
        forward = probabilities(sequences)
        if not both_strands:
            return forward
        reverse = probabilities([reverse_complement(sequence) for sequence in sequences])[:, ::-1]
        return np.asarray((forward + reverse) / 2, np.float32)

    def _probabilities(
        self, count: int, batch_size: int, device: torch.device, sequences: Sequence[str]
    ) -> npt.NDArray[np.float32]:
        window, size = self.settings.window, self.settings.bin
        bins = centred_bins(window, size, max(count, bins_shown(window, size, self.settings.bin_layers)))
        network = self.network.to(device).eval()
        positions = self.config.positions
        return bin_logits(
            network,
            self.tokenizer,
            sequences,
            bins,
            count,
            size,
            positions,
            batch_size,
            device,
            finish=row_sigmoid,
        )


def bin_logits(
    network: nn.Module,
    tokenizer: Tokenizer,
    sequences: Sequence[str],
    bins: npt.NDArray[np.integer],
    count: int,
    bin_size: int,
    positions: int,
    batch_size: int,
    device: torch.device,
    *,
    finish: Callable[[Tensor], Tensor] | None = None,
) -> npt.NDArray[np.float32]:
    """Logits (N, K, T) of the `count` (K, odd) bins in the middle of the network's `bins` of each window.

    Or what `finish` makes of those of a call, element by element.
    """
    middle = slice(len(bins) // 2 - count // 2, len(bins) // 2 + count // 2 + 1)
    starts = np.broadcast_to(bins, (len(sequences), len(bins)))
    rows = bin_rows(tokenizer, sequences, starts, bin_size, positions)

    def run(ids: Tensor, lengths: Tensor, chosen: npt.NDArray[np.intp]) -> Tensor:
        spans = torch.from_numpy(rows.spans[chosen])
        logits: Tensor = network(ids, lengths, spans.to(device))
        logits = logits[:, middle]
        return logits if finish is None else finish(logits.float())

    pad_id, empty = tokenizer.pad_id, (count, 0)
    return run_rows(network, rows.ids, run, pad_id=pad_id, batch_size=batch_size, device=device, empty=empty)
