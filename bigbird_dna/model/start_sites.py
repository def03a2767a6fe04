"""A model of start sites (TSSs): the probability of one at every base of a sequence, on both strands.

Convolutions read the bases around each base. Their means over the bases of each token are added to the token's
embedding, and the encoder reads the tokens of the whole window. Bins of bases get the mean and maximum of the
tokens' states, and attend to one another. Further convolutions combine the state of a base's bin with what the
first ones found. Promoters have sharp signals, such as motifs at a fixed distance from the start site, and wide
ones, such as the gene that follows.

Shapes: B batch, S bases, L tokens, C channels of a base, D hidden width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import check_at_least_one
from bigbird_dna.genome.given_sequences import Sequences, read_sequences
from bigbird_dna.genome.sequence import (
    STRANDS,
    UNKNOWN,
    base_codes,
    reverse_complement,
)
from bigbird_dna.model.batching import View, placed_rows, run_rows
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import BinLayers
from bigbird_dna.model.inference import choose_device, prediction_lock
from bigbird_dna.model.input_embeddings import initialize
from bigbird_dna.model.kernels import ACTIVATIONS, Linear
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import StartSiteSettings
from bigbird_dna.tokens.interface import Tokenizer

WINDOWS_AT_ONCE = 32
SHORTEST = 60  # bp; shorter sequences have no probabilities

Floats = npt.NDArray[np.float32]


class BaseConvolution(nn.Module):
    """A residual convolution over bases: x + ReLU(conv(x)), (B, C, S) → (B, C, S)."""

    def __init__(self, channels: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(
            channels, channels, 5, dilation=dilation, padding=2 * dilation
        )
        self.dropout = nn.Dropout(dropout)
        with torch.no_grad():
            self.convolution.weight.mul_(0.5)  # a sum of many stays small

    def forward(self, x: Tensor) -> Tensor:
        # In two dimensions the channels may be last in memory, which takes two thirds of the time.
        convolution = self.convolution
        (dilation,) = convolution.dilation
        found = F.conv2d(
            x[:, :, None],
            convolution.weight[:, :, None],
            convolution.bias,
            padding=(0, 2 * dilation),
            dilation=(1, dilation),
        )[:, :, 0]
        out: Tensor = x + self.dropout(F.relu(found))
        return out


class StartSiteNetwork(nn.Module):
    """Bases, tokens, bins of bases, and bases again: logits of a start site at each base, on each strand."""

    def __init__(self, config: EncoderConfig, settings: StartSiteSettings) -> None:
        super().__init__()
        channels, hidden = settings.channels, config.hidden
        self.bin = settings.bin
        self.stem = nn.Conv1d(4, channels, 19, padding=9)

        def convolutions(count: int) -> nn.ModuleList:
            return nn.ModuleList(
                BaseConvolution(channels, 2**number, config.dropout)
                for number in range(count)
            )

        self.before = convolutions(settings.layers_before)
        self.to_tokens = Linear(channels, hidden)
        self.encoder = Encoder(config)
        self.dense = Linear(2 * hidden, hidden)
        self.activation = ACTIVATIONS[config.activation]
        self.bins = BinLayers(config, settings.bin_layers)
        self.bin_output = Linear(hidden, len(STRANDS))
        self.to_bases = Linear(hidden, channels)
        self.after = convolutions(settings.layers_after)
        self.output = Linear(channels, len(STRANDS))
        self.dropout = nn.Dropout(config.dropout)
        for part in (self.dense, self.bin_output, self.to_bases):
            initialize(part, hidden)
        for part in (self.to_tokens, self.output):
            # At first the encoder is as it was pretrained, and bins decide.
            nn.init.zeros_(part.weight)
            nn.init.zeros_(part.bias)

    def forward(
        self, bases: Tensor, ids: Tensor, lengths: Tensor, owners: Tensor
    ) -> Tensor:
        """Logits (B, 2, S) of bases.

        `bases` (B, S) are codes, 4 for N and beyond the end of a sequence, or (B, 4, S) one-hot; `ids` (B, L)
        the tokens, with true `lengths` (B,), and `owners` (B, S) the number of each base's token, -1 beyond
        the end.
        """
        one_hot = bases
        if bases.dim() == 2:
            one_hot = F.one_hot(bases.long(), UNKNOWN + 1)[..., :UNKNOWN].transpose(
                1, 2
            )

        present = None
        if bool((owners < 0).any()):  # what is beyond an end must not matter
            present = (owners >= 0)[:, None]

        def convolve(x: Tensor, layers: nn.ModuleList) -> Tensor:
            for layer in layers:
                x = layer(x)
                if present is not None:
                    x = x * present
            return x

        x = self.stem(one_hot.to(self.stem.weight.dtype).contiguous())
        x = x.transpose(1, 2).contiguous().transpose(1, 2)  # channels last
        if present is not None:
            x = x * present
        x = convolve(x, self.before)  # (B, C, S)

        # Means over the bases of each token.
        (batch, tokens), size = ids.shape, owners.shape[1]
        row = torch.arange(batch, device=ids.device)[:, None] * tokens
        index = (owners.clamp(min=0) + row).flatten()
        by_base = x.transpose(1, 2).flatten(0, 1)  # (B S, C)
        sums = by_base.new_zeros(batch * tokens, by_base.shape[1])
        sums = sums.index_add(0, index, by_base)
        here = (owners >= 0).flatten().to(by_base.dtype)
        counts = by_base.new_zeros(batch * tokens).index_add(0, index, here)
        means = (sums / counts.clamp(min=1)[:, None]).view(batch, tokens, -1)
        hidden = self.encoder(ids, lengths, added=self.to_tokens(means))

        # Mean and maximum over the bases of each bin; bins beyond an end are zero.
        of_bases = hidden.flatten(0, 1).index_select(0, index).view(batch, size, -1)
        spare = -size % self.bin
        padded = F.pad(of_bases, (0, 0, 0, spare))
        of_bins = padded.view(batch, -1, self.bin, padded.shape[2])
        inside = F.pad(owners >= 0, (0, spare)).view(batch, -1, self.bin, 1)
        if present is None and not spare:  # the same in a twentieth of the time
            mean, highest = of_bins.mean(2), of_bins.amax(2)
        else:
            mean = (of_bins * inside).sum(2) / inside.sum(2).clamp(min=1)
            highest = of_bins.masked_fill(~inside, -torch.inf).amax(2)
            highest = highest.masked_fill(~inside.any(2), 0)
        pooled = torch.cat([mean, highest], -1)  # (B, K, 2 D)
        states = self.activation(self.dense(self.dropout(pooled)))
        lengths_in_bins = None
        if present is not None:
            lengths_in_bins = inside.any(2).sum(1).flatten().cpu()
        states = self.bins(states, lengths_in_bins)  # (B, K, D)

        def to_bases(values: Tensor) -> Tensor:
            return values.repeat_interleave(self.bin, 1)[:, :size].transpose(1, 2)

        x = x + to_bases(self.to_bases(states))
        if present is not None:
            x = x * present
        fine: Tensor = self.output(convolve(x, self.after).transpose(1, 2)).transpose(
            1, 2
        )
        coarse: Tensor = to_bases(self.bin_output(self.dropout(states)))
        return coarse + fine


class SiteInputs(NamedTuple):
    """What a network reads of N sequences."""

    ids: list[npt.NDArray[np.int32]]
    bases: list[npt.NDArray[np.uint8]]
    owners: list[npt.NDArray[np.int32]]

    def stacked(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Bases and owners (B, S) of numbered sequences, filled to the longest one."""
        longest = max(len(self.bases[number]) for number in numbers)
        bases = np.full((len(numbers), longest), UNKNOWN, np.uint8)
        owners = np.full((len(numbers), longest), -1, np.int32)
        for row, number in enumerate(numbers):
            size = len(self.bases[number])
            bases[row, :size] = self.bases[number]
            owners[row, :size] = self.owners[number]

        return torch.from_numpy(bases), torch.from_numpy(owners)


def site_inputs(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    positions: int,
    threads: int = 1,
    phase: int = 0,
) -> SiteInputs:
    """Tokens and bases of sequences. Bases outside the at most `positions` tokens belong to [CLS] or [SEP].

    `phase` as in `Tokenizer.split_batch`.
    """
    ids, bases, owners = [], [], []
    placed = placed_rows(tokenizer, texts, positions, 0.5, threads, phase)
    for text, (row, skipped) in zip(texts, placed, strict=True):
        sizes = tokenizer.piece_lengths[row[1:-1]]
        owner = np.repeat(np.arange(1, len(row) - 1, dtype=np.int32), sizes)
        after = len(text) - skipped - len(owner)
        ids.append(row)
        bases.append(base_codes(text))
        owners.append(
            np.pad(owner, (skipped, after), constant_values=(0, len(row) - 1))
        )

    return SiteInputs(ids, bases, owners)


class SiteWindow(NamedTuple):
    """A part of a sequence that a model reads at once, and the bases in it that it scores."""

    number: int  # of the sequence
    start: int  # of the first scored base, in the sequence
    text: str
    scored: slice  # of the text


@dataclass(frozen=True, repr=False)
class LoadedStartSiteModel(LoadedModel):
    """Predicts the start sites along sequences of any length from `SHORTEST` bp on."""

    network: StartSiteNetwork
    settings: StartSiteSettings

    def _described(self) -> list[str]:
        return [f"start sites at every base, window {self.settings.window:,} bp"]

    def predict(
        self,
        sequences: Sequences,
        *,
        both_strands: bool = True,
        batch_size: int = 16,
        device: str = "auto",
    ) -> Any:
        """Predict the probability of a start site at each base, on the forward and on the reverse strand.

        Parameters
        ----------
        sequences
            One string (or `Bio.Seq`, `SeqRecord`), or a list, tuple, array or Series, each of any length from
            60 bp on. Lower case is accepted, and IUPAC codes count as N. Longer ones than the model's window
            are read in overlapping windows, as by `score-promoters`.
        both_strands
            Average the predictions for each window and its reverse complement.
        batch_size
            Windows processed concurrently and independently (see `run_rows`); it does not affect the results.
        device
            auto, cpu or cuda.

        Returns
        -------
        float32 array (N, 2, S), with the strands + and -, or a list of arrays (2, S) if lengths differ; NaN
        for a sequence that is too short.

        Raises
        ------
        UsageError
            The input is not sequences; an argument is out of range; the device is missing.
        DataError
            A letter is not DNA; the message contains the index of the sequence and the position.
        ModelError
            A probability is NaN.
        """
        check_at_least_one({"batch_size": batch_size})
        texts = read_sequences(sequences).texts
        values = [np.full((2, len(text)), np.nan, np.float32) for text in texts]
        options: dict[str, Any] = {"batch_size": batch_size, "device": device}
        every = list(self.windows(texts))
        for first in range(0, len(every), WINDOWS_AT_ONCE):
            windows = every[first : first + WINDOWS_AT_ONCE]
            probs = self.window_probabilities(
                [window.text for window in windows],
                both_strands=both_strands,
                **options,
            )
            for window, of_window in zip(windows, probs, strict=True):
                scored = of_window[:, window.scored]
                end = window.start + scored.shape[1]
                values[window.number][:, window.start : end] = scored

        return np.stack(values) if len(set(map(len, texts))) == 1 else values

    def windows(self, texts: Sequence[str], step: int = 10) -> Iterator[SiteWindow]:
        """Divide sequences into windows that score each base once; sequences that are too short have none.

        Each begins at a multiple of `step` bp, if windows are long enough. By default they are those of a scan
        without a stride.
        """
        margin = self.settings.margin
        size = self.settings.window - 2 * margin
        size = max(size - size % step, min(step, size))
        for number, text in enumerate(texts):
            if len(text) < SHORTEST:
                continue

            for start in range(0, len(text), size):
                end = min(start + size, len(text))
                first = max(start - margin, 0)
                scored = slice(start - first, end - first)
                yield SiteWindow(number, start, text[first : end + margin], scored)

    def window_probabilities(
        self,
        texts: Sequence[str],
        *,
        both_strands: bool = True,
        batch_size: int = 16,
        device: str = "auto",
    ) -> Floats:
        """Probabilities (N, 2, S) at the bases of sequences that are read at once, 0 beyond their ends.

        N at the ends of a sequence are beyond the end of a contig, and not read.
        """
        longest = max(map(len, texts), default=0)
        read = [text.strip("N") or text for text in texts]
        views = [View(), View(turned=True)] if both_strands else [View()]
        total = np.zeros((len(texts), 2, longest), np.float32)
        for view in views:
            logits = self._logits(read, view, batch_size, device)
            probs = torch.from_numpy(logits).sigmoid().numpy()
            for row, of_text, text, whole in zip(
                total, probs, read, texts, strict=True
            ):
                of_text = of_text[:, : len(text)]
                first = whole.index(text)
                row[:, first : first + len(text)] += (
                    of_text[::-1, ::-1] if view.turned else of_text
                )

        self.check_predictions(total)
        return np.asarray(total / len(views), np.float32)

    def view_scores(
        self,
        windows: Sequence[str],
        views: Sequence[View],
        *,
        batch_size: int = 16,
        device: str = "auto",
    ) -> Floats:
        """Log-odds (V, N, 1) of a start site at the central base of windows, on their own strand, in each of V
        views."""
        scores = []
        for view in views:
            logits = self._logits(windows, view, batch_size, device)
            scores.append(logits[:, self.row_of(view), self.place_of(view), None])

        stacked = np.stack(scores)
        self.check_predictions(stacked)
        return stacked

    @property
    def tss_reach(self) -> tuple[int, int]:
        """Number of bp of a window before its central base, and from it on."""
        before = self.settings.window // 2
        return before, self.settings.window - before

    def row_of(self, view: View) -> int:
        """The output of a window's own strand in a view."""
        return int(view.turned)

    def place_of(self, view: View) -> int:
        """The central base of a window in a view."""
        before, after = self.tss_reach
        return (after - 1 if view.turned else before) - view.cut[0]

    def _logits(
        self, texts: Sequence[str], view: View, batch_size: int, device: str
    ) -> Floats:
        """Logits (N, 2, S) of sequences in a view, as they are read, 0 beyond their ends."""
        left, right = view.cut
        read = [reverse_complement(text) if view.turned else text for text in texts]
        read = [text[left : len(text) - right] for text in read]
        longest = max(map(len, read), default=0)
        threads = torch.get_num_threads()
        inputs = site_inputs(
            self.tokenizer, read, self.config.max_length, threads, view.phase
        )

        def run(ids: Tensor, lengths: Tensor, numbers: npt.NDArray[np.intp]) -> Tensor:
            bases, owners = inputs.stacked(numbers.tolist())
            bases, owners = bases.to(ids.device), owners.to(ids.device)
            logits: Tensor = network(bases, ids, lengths, owners)
            return F.pad(logits.float(), (0, longest - logits.shape[2]))

        with prediction_lock:
            torch_device = choose_device(device)
            network = self.network.to(torch_device).eval()
            return run_rows(
                network,
                inputs.ids,
                run,
                pad_id=self.tokenizer.pad_id,
                batch_size=batch_size,
                device=torch_device,
                empty=(2, longest),
            )
