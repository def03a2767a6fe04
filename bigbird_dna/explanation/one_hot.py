"""Models as functions of one-hot sequences (N, 4, L), in the order A C G T, with gradients.

A network reads tokens, and no gradient leads from a token to its bases. What enters the network for a token,
however, is a sum of vectors that depend on bases: the embedding of the token, and those of the k-mers around
its bases and of their positions. Here each is a linear function of the one-hot values: along a base, it
changes by what the same vectors after this substitution differ, and the embedding of a token becomes the
mean, over its bases, of the embeddings of the tokens that then cover them. Values are exact; gradients are a
first-order approximation of substitutions.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bigbird_dna.errors import ModelError
from bigbird_dna.explanation.mutagenesis import Mutations
from bigbird_dna.explanation.targets import ExplainedWindow, Scored
from bigbird_dna.genome.sequence import (
    UNKNOWN,
    base_codes,
    reverse_complement,
    substitutions,
)
from bigbird_dna.model.base_positions import BasePositions, BaseTerms
from bigbird_dna.model.batching import (
    View,
    bin_rows,
    bins_shown,
    centered_bins,
    pad,
)
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.ensemble import EnsembleSum
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.inference import one_at_a_time
from bigbird_dna.model.kmers import TokenKmers, kmer_rows
from bigbird_dna.model.promoter import added_logits, promoter_rows
from bigbird_dna.model.settings import KMER_WINDOW
from bigbird_dna.tokens.interface import BASES

# Axes: N sequences, L their bases, S bases of tokens, 4 bases A C G T, D width, T outputs.

Codes = NDArray[np.uint8]
_TOGETHER = 64  # windows for which an ensemble adds log-odds at once
REACH = 64  # bp at the ends of a range of tokens: more than a token and a k-mer


class OneHotModel(nn.Module):
    """Scores (N, T) of one-hot sequences (N, 4, L) by a promoter, chromatin or sequence model.

    Scores are those of `view_scores` in one `view`; `columns` selects outputs. A column of zeros is an N.
    Only the bases in `span` have gradients. They are computed on the CPU and take more time than scores: each
    substitution is tokenized.
    Tools for one-hot models, such as tangermeme, run on it.
    """

    def __init__(
        self,
        model: Scored,
        columns: Sequence[int] | None = None,
        view: View = View(),  # noqa: B008 - immutable
        span: slice = slice(None),
    ) -> None:
        super().__init__()
        self.network = model.network
        self.model, self.view, self.span = model, view, span
        self.columns = None if columns is None else list(columns)

    @one_at_a_time
    def forward(self, X: Tensor) -> Tensor:
        """Return scores (N, T) of sequences (N, 4, L) of the model's window length."""
        texts = [letters(row) for row in X.detach().cpu().numpy()]
        if X.requires_grad and torch.is_grad_enabled():
            scores = self._relaxed(texts, X)
        else:
            values = self.model.view_scores(texts, [self.view], device=X.device.type)[0]
            scores = torch.from_numpy(values).to(X.device)
        return scores if self.columns is None else scores[:, self.columns]

    def _relaxed(self, texts: list[str], x: Tensor) -> Tensor:
        """Return the scores (N, T) of sequences as a differentiable function of their one-hot values."""
        model, view, size, device = self.model, self.view, x.shape[2], x.device
        self.network.to("cpu")
        x = x.cpu()
        bases, (left, right) = range(size)[self.span], view.cut
        if view.turned:
            texts, x = list(map(reverse_complement, texts)), x.flip((1, 2))
            bases = range(size - bases.stop, size - bases.start)
        outside = x[..., : bases.start].detach(), x[..., bases.stop :].detach()
        x = torch.cat([outside[0], x[..., bases.start : bases.stop], outside[1]], dim=2)
        part = slice(left, size - right)
        rows, run = self._rows(texts, part)
        lengths, width = model.tokenizer.piece_lengths, max(map(len, rows))
        if any(lengths[row].sum() != size - left - right for row in rows):
            raise ModelError(
                f"{model.name}: a window has more than {model.config.max_length:,} tokens, so that the model "
                "reads a part of it: no gradients of its bases; use mutagenesis"
            )
        slots = [
            np.repeat(np.arange(len(row)) + number * width, lengths[row])
            for number, row in enumerate(rows)
        ]
        with relaxed_inputs(
            self, texts, x, part, bases, torch.from_numpy(np.stack(slots))
        ):
            logits = run().float()
        if not isinstance(model, LoadedChromatinModel):
            return model.score(logits).to(device)
        opposites = model.settings.opposites if view.turned else None
        return (logits if opposites is None else logits[:, opposites]).to(device)

    def _rows(
        self, texts: list[str], part: slice
    ) -> tuple[list[NDArray[np.int32]], Callable[[], Tensor]]:
        """Return the tokens of a part of windows, and the function that computes their logits (N, T)."""
        model, network, phase = self.model, self.network.eval(), self.view.phase
        tokenizer, positions = model.tokenizer, model.config.max_length
        if isinstance(model, LoadedChromatinModel):
            size, window = model.settings.bin, model.settings.window
            count = bins_shown(window, size, model.settings.bin_layers)
            bins = centered_bins(window, size, count) - part.start
            encoded = bin_rows(
                tokenizer,
                [text[part] for text in texts],
                np.broadcast_to(bins, (len(texts), count)),
                size,
                positions,
                phase=phase,
            )
            central = slice(count // 2, count // 2 + 1)
            inputs = (
                *pad(encoded.ids, tokenizer.pad_id),
                torch.from_numpy(encoded.spans),
            )
            return encoded.ids, lambda: network(*inputs, central)[:, 0]
        assert isinstance(network, Classifier)
        rows = promoter_rows(
            tokenizer,
            texts,
            [self.view.cut] * len(texts),
            model.settings,
            positions,
            phase=phase,
        )
        ids, lengths = pad(rows.ids, tokenizer.pad_id)

        def run() -> Tensor:
            embeddings = None
            if network.base_positions is not None and rows.bases is not None:
                bases = rows.bases.padded(range(len(ids)), ids.shape[1])
                embeddings = network.base_positions(bases.batch())
            added = None if network.ensemble is None else self.added(texts, network)
            return network(ids, lengths, bases=BaseTerms(embeddings, added))  # type: ignore[no-any-return]

        return rows.ids, run

    def added(self, texts: Sequence[str], member: nn.Module) -> Tensor:
        """What an ensemble adds to the log-odds of whole windows, (N, T), by a network with an ensemble."""
        model = self.model
        tokenizer, positions = model.tokenizer, model.config.max_length
        if isinstance(model, LoadedChromatinModel):
            size = model.settings.bin
            bins = np.broadcast_to(
                centered_bins(model.settings.window, size, 1), (len(texts), 1)
            )
            encoded = bin_rows(tokenizer, texts, bins, size, positions)
            spans: Any = torch.from_numpy(encoded.spans)
            with torch.no_grad():
                logits = [
                    member.ensemble.added(  # type: ignore[union-attr, operator]
                        pad(encoded.ids[first : first + _TOGETHER], tokenizer.pad_id)[
                            0
                        ],
                        spans[first : first + _TOGETHER],
                    )[:, 0]
                    for first in range(0, len(texts), _TOGETHER)
                ]
            return torch.cat(logits)
        assert isinstance(member, Classifier)
        rows = promoter_rows(
            tokenizer, texts, [(0, 0)] * len(texts), model.settings, None
        )  # regressions read all of it
        added = added_logits(member, rows, tokenizer.pad_id, torch.device("cpu"))
        assert added is not None
        return added.clone()


def letters(one_hot: NDArray[Any]) -> str:
    """The bases of one-hot values (4, L); N for a column of zeros."""
    codes = np.where(one_hot.any(0), one_hot.argmax(0), UNKNOWN)
    return "".join((BASES + "N")[code] for code in codes.tolist())


@contextmanager
def relaxed_inputs(
    adapter: OneHotModel,
    texts: list[str],
    x: Tensor,
    part: slice,
    bases: range,
    slots: Tensor,
) -> Iterator[None]:
    """Within the context, the parts of a network that read bases are linear functions of `x` (N, 4, L).

    `slots` (N, S) are the tokens, numbered over all rows, of the bases of the `part` of windows that is read;
    gradients of the bases `wanted` of the windows are needed.
    """
    changes: _Changes | None = None
    codes, one_hot = [base_codes(text[part]) for text in texts], x[..., part]
    of_bases = slots.flatten()
    with ExitStack() as hooks:
        for module in adapter.network.modules():
            hook: Callable[..., Any] | None = None
            if isinstance(module, Encoder):
                inside = range(max(bases.start, part.start), min(bases.stop, part.stop))
                inside = range(inside.start - part.start, inside.stop - part.start)
                if changes is None:
                    changes = _changed_tokens(
                        adapter, [text[part] for text in texts], slots, inside
                    )
                module = module.embeddings.token
                hook = _adding(changes.values(one_hot, module.weight), changes.slot)
            elif isinstance(module, TokenKmers):
                each = [
                    _kmer_values(module, *row)
                    for row in zip(codes, one_hot, strict=True)
                ]
                hook = _adding(torch.cat(each), of_bases)
            elif isinstance(module, BasePositions):
                positions = torch.arange(part.start, part.stop, device="cpu")
                rows = positions[:, None] * len(BASES) + torch.arange(
                    1, 5, device="cpu"
                )
                values = torch.einsum("nbs,sbd->nsd", one_hot, module.weight[rows])
                hook = _adding(values.flatten(end_dim=1), of_bases)
            if hook is not None:
                hooks.callback(module.register_forward_hook(hook).remove)
            ensemble = getattr(module, "ensemble", None)
            if isinstance(ensemble, EnsembleSum) and ensemble.enabled:
                before = _before_ensemble(adapter, texts, x, module, bases)
                hooks.callback(ensemble.register_forward_pre_hook(before).remove)
        yield


def _adding(values: Tensor, slots: Tensor) -> Callable[..., Tensor]:
    """A hook that adds values (E, D) to those of tokens, `slots` (E,), for the gradients only."""

    def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        room = torch.zeros_like(output).flatten(end_dim=-2)
        total = room.index_add(0, slots, values.to(output.dtype)).view_as(output)
        return output + (total - total.detach())

    return hook


def _before_ensemble(
    adapter: OneHotModel, texts: list[str], x: Tensor, member: nn.Module, bases: range
) -> Callable[..., Any]:
    """The hook that makes what an ensemble adds a linear function of `x`."""
    if isinstance(
        adapter.model, LoadedChromatinModel
    ):  # regressions read a part of the window
        reach, middle = (
            max(adapter.model.settings.bin, KMER_WINDOW) // 2 + REACH,
            x.shape[2] // 2,
        )
        bases = range(max(bases.start, middle - reach), min(bases.stop, middle + reach))
    totals = []
    for text, row in zip(texts, x, strict=True):
        mutants = list(substitutions(text, bases))
        before, *after = adapter.added(
            [text, *(mutant for *_, mutant in mutants)], member
        )
        changes = before.new_zeros((x.shape[2], len(BASES), len(before)))
        for (position, other, _), value in zip(mutants, after, strict=True):
            changes[position, other] = value - before
        totals.append(torch.einsum("bs,sbt->t", row, changes.to(x.device)))
    total = torch.stack(totals)

    def hook(
        _module: nn.Module, inputs: tuple[Tensor, Tensor | None]
    ) -> tuple[Tensor, Tensor | None]:
        logits, terms = inputs
        if terms is None:
            return inputs
        change = (total - total.detach()).to(terms.dtype)
        return logits, terms + (change if terms.ndim == 2 else change[:, None])

    return hook


class _Changes(NamedTuple):
    """Bases that are in another token after a substitution: E of them, for all substitutions of all rows."""

    row: Tensor  # (E,) number of the sequence
    base: Tensor  # (E,) number of the substituted base
    letter: Tensor  # (E,) the new base
    slot: Tensor  # (E,) the token of a base without the substitution, numbered over all rows
    old: Tensor  # (E,) its id
    new: Tensor  # (E,) id of the token that has the base afterwards
    share: Tensor  # (E,) one over the number of bases of the unchanged token

    def values(self, x: Tensor, weight: Tensor) -> Tensor:
        """What they add to the embeddings of the tokens, (E, D), as linear functions of the bases `x`."""
        factors = x[self.row, self.letter, self.base] * self.share
        return factors[:, None] * (weight[self.new] - weight[self.old])


def _changed_tokens(
    adapter: OneHotModel, texts: list[str], slots: Tensor, bases: range
) -> _Changes:
    """Tokenize substitutions of the bases `wanted` of texts; `slots` (N, S) are the tokens of their bases."""
    tokenizer, phase = adapter.model.tokenizer, adapter.view.phase
    lengths = tokenizer.piece_lengths
    changes = [(*(np.empty(0, np.int64),) * 6, np.empty(0, np.float32))]

    def of_bases(row: NDArray[np.int32]) -> NDArray[np.int64]:
        """Id and first base of the token of each base, (2, S)."""
        sizes = lengths[row]
        return np.repeat(
            np.stack([row, np.cumsum(sizes) - sizes]), sizes, axis=1
        ).astype(np.int64)

    for number, (text, tokens) in enumerate(zip(texts, slots.numpy(), strict=True)):
        mutants = list(substitutions(text, bases))
        encoded = tokenizer.split_batch(
            [text, *(mutant for *_, mutant in mutants)], phase
        )
        before, *after = map(of_bases, encoded)
        weight = (1 / np.bincount(tokens)[tokens]).astype(np.float32)
        for (base, letter, _), mutated in zip(mutants, after, strict=True):
            at = np.flatnonzero((mutated != before).any(0))
            same = [np.full(len(at), one) for one in (number, base, letter)]
            changes.append(
                (*same, tokens[at], before[0, at], mutated[0, at], weight[at])
            )
    return _Changes(
        *map(torch.from_numpy, map(np.concatenate, zip(*changes, strict=True)))
    )


def _kmer_values(module: TokenKmers, codes: Codes, x: Tensor) -> Tensor:
    """Values (S, D) that the k-mer of each base adds to its token, as linear functions of the bases in it."""
    k, size = module.k, len(codes)
    before = (k - 1) // 2
    text = np.full(size + k - 1, UNKNOWN)
    text[before : before + size] = codes
    words = np.lib.stride_tricks.sliding_window_view(text, k).astype(np.int64)  # (S, k)
    values = words @ 4 ** np.arange(k)[::-1]
    steps = 4 ** np.arange(k)[::-1][None, :, None]
    numbers = (
        values[:, None, None] + (np.arange(4) - words[..., None]) * steps
    )  # (S, k, 4)
    known: NDArray[np.bool_] = np.all(words < UNKNOWN, axis=1)
    numbers[~known] = 0
    rows = torch.from_numpy(
        kmer_rows(k, module.both_strands)[0][numbers].astype(np.int64)
    )
    positions = np.clip(
        np.arange(size)[:, None] + np.arange(k) - before, 0, size - 1
    )  # of the bases in `x`
    vectors = module.weight[rows] * torch.from_numpy(known)[:, None, None, None]
    return torch.einsum("bsk,skbd->sd", x[:, torch.from_numpy(positions)], vectors)


def gradient_mutations(
    model: Scored,
    target: ExplainedWindow,
    columns: Sequence[int],
    views: Sequence[View],
) -> Mutations:
    """Approximate `saturation_mutagenesis` by gradients: one pass per view and output, not 3 per base."""
    codes = base_codes(target.bases)
    one_hot = np.asarray(
        base_codes(target.window)[None] == np.arange(len(BASES))[:, None], np.float32
    )
    scores, changes = [], []
    for view in views:
        x = torch.from_numpy(one_hot[None]).requires_grad_()
        values = OneHotModel(model, columns, view, slice(target.first, target.last))(x)[
            0
        ]
        slopes = [
            torch.autograd.grad(value, x, retain_graph=True)[0][
                0, :, target.first : target.last
            ]
            for value in values
        ]  # (4, L) each
        slope = torch.stack(slopes).permute(2, 1, 0).numpy()  # (L, 4, T)
        of_base = np.take_along_axis(
            slope, np.minimum(codes, 3).astype(np.intp)[:, None, None], 1
        )
        known = (codes < UNKNOWN)[:, None, None]
        scores.append(values.detach().numpy())
        changes.append(np.where(known, slope - of_base, 0))
    return Mutations(codes, np.stack(scores), np.stack(changes).astype(np.float32))
