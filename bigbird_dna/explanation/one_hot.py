"""Models as functions of one-hot sequences (N, 4, L), in the order A C G T, with gradients.

A network reads tokens, and no gradient leads from a token to its bases. Here what enters the network is a
linear function of the one-hot values: along a base, the vector of a token changes by the mean difference,
over its bases, to the vectors of the tokens that cover them after this substitution, and the regressions of
an ensemble change by their exact difference. Values are exact; gradients are a first-order approximation of
substitutions. That of the base that is there is 0.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.errors import ModelError
from bigbird_dna.explanation.mutagenesis import Mutations
from bigbird_dna.explanation.targets import ExplainedWindow, Scored
from bigbird_dna.genome.sequence import (
    UNKNOWN,
    base_codes,
    reverse_complement,
    substitutions,
)
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
from bigbird_dna.model.inference import prediction_lock
from bigbird_dna.model.promoter import LoadedClassifier, added_logits, promoter_rows
from bigbird_dna.model.start_sites import LoadedStartSiteModel, site_inputs
from bigbird_dna.tokens.interface import BASES

# Axes: N sequences, L their bases or tokens, 4 bases A C G T, D width, T outputs; M substitutions.

_AT_ONCE = 64  # windows that are embedded at a time


class OneHotModel(nn.Module):
    """Scores (N, T) of one-hot sequences (N, 4, L) by a model of promoters, start sites, tracks or sequences.

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

    def forward(self, X: Tensor) -> Tensor:
        """Return scores (N, T) of sequences (N, 4, L) of the model's window length."""
        texts = [letters(row) for row in X.detach().cpu().numpy()]
        if X.requires_grad and torch.is_grad_enabled():
            with prediction_lock:
                scores = self._with_gradients(texts, X.cpu()).to(X.device)
        else:
            values = self.model.view_scores(texts, [self.view], device=X.device.type)[0]
            scores = torch.from_numpy(values).to(X.device)
        return scores if self.columns is None else scores[:, self.columns]

    def _with_gradients(self, texts: list[str], x: Tensor) -> Tensor:
        """Return the scores (N, T) of sequences as a differentiable function of their one-hot values."""
        model, view, network = self.model, self.view, self.network.to("cpu").eval()
        count, size = len(texts), len(texts[0])
        bases = range(size)[self.span]
        if view.turned:
            texts, x = list(map(reverse_complement, texts)), x.flip((1, 2))
            bases = range(size - bases.stop, size - bases.start)

        changes = []  # sequence, new base and place of each substitution
        for row in range(count):
            for place, letter, mutant in substitutions(texts[row], bases):
                changes.append((row, letter, place))
                texts.append(mutant)

        rows, letters_after, places = torch.tensor(changes).view(-1, 3).long().T
        # One-hot values of the substitutions (M,): all 0, but with gradients.
        factors = x[rows, letters_after, places]

        windows: _BinWindows | _WholeWindows | _BaseWindows
        if isinstance(model, LoadedStartSiteModel):
            of_changes = rows, letters_after, places - view.cut[0], factors
            windows = _BaseWindows(model, texts, view, of_changes)
        elif isinstance(model, LoadedChromatinModel):
            windows = _BinWindows(model, texts, view)
        else:
            windows = _WholeWindows(model, texts, view)

        lengths = model.tokenizer.piece_lengths
        if any(lengths[ids].sum() != size - sum(view.cut) for ids in windows.ids):
            raise ModelError(
                f"{model.name}: a window has more than {model.config.max_length:,} tokens, so that the model "
                "reads a part of it: no gradients of its bases; use mutagenesis"
            )

        with ExitStack() as hooks:
            for module in network.modules():
                if isinstance(module, Encoder):
                    total = _token_changes(
                        module, windows, lengths, rows, places - view.cut[0], factors
                    )
                    hook: Any = partial(_add_to_tokens, total - total.detach())
                    hooks.callback(module.embeddings.register_forward_hook(hook).remove)

                ensemble = getattr(module, "ensemble", None)
                if isinstance(ensemble, EnsembleSum):
                    values = windows.added(module)
                    terms = factors[:, None] * (values[count:] - values[rows])
                    total = torch.zeros_like(values[:count]).index_add(0, rows, terms)
                    hook = partial(_add_to_ensemble, total - total.detach())
                    hooks.callback(ensemble.register_forward_pre_hook(hook).remove)

            logits = windows.logits(count).float()

        if isinstance(model, LoadedStartSiteModel):
            return logits
        if not isinstance(model, LoadedChromatinModel):
            return model.score(logits)

        opposites = model.settings.opposites if view.turned else None
        return logits if opposites is None else logits[:, opposites]


def _token_changes(
    encoder: Encoder,
    windows: "_BinWindows | _WholeWindows | _BaseWindows",
    lengths: NDArray[Any],
    rows: Tensor,
    places: Tensor,
    factors: Tensor,
) -> Tensor:
    """What substitutions at `places` add to the vectors of the tokens of sequences `rows`, (N, L, D).

    A base counts if it is then in another token, or if a k-mer around it may have changed.
    """
    reach = max(encoder.config.kmers, 1)
    count = len(windows.ids) - len(rows)
    mutants, slots, values = [], [], []
    with torch.no_grad():
        vectors = windows.embed(encoder, range(count))
        width = vectors.shape[1]
        for number, (row, place) in enumerate(
            zip(rows.tolist(), places.tolist(), strict=True)
        ):
            if number % _AT_ONCE == 0:
                last = min(number + _AT_ONCE, len(rows))
                embedded = windows.embed(encoder, range(count + number, count + last))

            before = _tokens_of_bases(windows.ids[row], lengths)
            after = _tokens_of_bases(windows.ids[count + number], lengths)
            changed = (before[1:] != after[1:]).any(0)
            changed[max(place - reach, 0) : max(place + reach, 0)] = True
            at = np.flatnonzero(changed)
            token = before[0, at]
            difference = embedded[number % _AT_ONCE, after[0, at]] - vectors[row, token]
            share = lengths[windows.ids[row][token]]
            values.append(difference / torch.from_numpy(share)[:, None])
            slots.append(torch.from_numpy(row * width + token))
            mutants.append(torch.full((len(at),), number))

    terms = factors[torch.cat(mutants), None] * torch.cat(values)
    total = torch.zeros_like(vectors).flatten(0, 1)
    return total.index_add(0, torch.cat(slots), terms).view_as(vectors)


class _BinWindows:
    """Windows as a chromatin model reads them in a view."""

    def __init__(
        self, model: LoadedChromatinModel, texts: Sequence[str], view: View
    ) -> None:
        size, window = model.settings.bin, model.settings.window
        count = bins_shown(window, size, model.settings.bin_layers)
        starts = centered_bins(window, size, count) - view.cut[0]
        rows = bin_rows(
            model.tokenizer,
            [text[view.cut[0] : window - view.cut[1]] for text in texts],
            np.broadcast_to(starts, (len(texts), count)),
            size,
            model.config.max_length,
            phase=view.phase,
        )
        self.ids, self.spans = rows.ids, torch.from_numpy(rows.spans)
        self.central = slice(count // 2, count // 2 + 1)
        self.network, self.pad_id = model.network, model.tokenizer.pad_id

    def embed(self, encoder: Encoder, numbers: range) -> Tensor:
        """Vectors (n, L, D) of the tokens of numbered windows."""
        ids, _ = pad([self.ids[number] for number in numbers], self.pad_id)
        return encoder.embeddings(ids, None)[:, -ids.shape[1] :]  # type: ignore[no-any-return]

    def added(self, member: Any) -> Tensor:
        """Log-odds (all windows, T) that the ensemble of a network adds."""
        values = []
        for first in range(0, len(self.ids), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            ids, _ = pad(self.ids[part], self.pad_id)
            spans = self.spans[part, self.central]
            values.append(member.ensemble.added(ids, spans)[:, 0].detach())
        return torch.cat(values)

    def logits(self, count: int) -> Tensor:
        """Logits (count, T) of the first windows."""
        ids, lengths = pad(self.ids[:count], self.pad_id)
        logits = self.network(ids, lengths, self.spans[:count], self.central)
        return logits[:, 0]  # type: ignore[no-any-return]


class _BaseWindows:
    """Windows as a model of start sites reads them in a view; methods as of `_BinWindows`.

    `changes` are the rows, new bases, places and one-hot values of substitutions, which convolutions read.
    """

    def __init__(
        self,
        model: LoadedStartSiteModel,
        texts: Sequence[str],
        view: View,
        changes: tuple[Tensor, Tensor, Tensor, Tensor],
    ) -> None:
        left, right = view.cut
        read = [text[left : len(text) - right] for text in texts]
        positions = model.config.max_length
        self.inputs = site_inputs(model.tokenizer, read, positions, phase=view.phase)
        self.ids, self.changes = self.inputs.ids, changes
        self.network, self.pad_id = model.network, model.tokenizer.pad_id
        self.at = model.row_of(view), model.place_of(view)

    def embed(self, encoder: Encoder, numbers: range) -> Tensor:
        ids, _ = pad([self.ids[number] for number in numbers], self.pad_id)
        return encoder.embeddings(ids, None)[:, -ids.shape[1] :]  # type: ignore[no-any-return]

    def added(self, _member: nn.Module) -> Tensor:
        raise NotImplementedError("models of start sites are no ensembles")

    def logits(self, count: int) -> Tensor:
        bases, owners = self.inputs.stacked(range(count))
        one_hot = F.one_hot(bases.long(), UNKNOWN + 1)[..., :UNKNOWN].transpose(1, 2)
        places = self.changes[2]
        read = (places >= 0) & (places < bases.shape[1])  # others are cut off
        rows, letters_after, places, factors = (part[read] for part in self.changes)
        letters_before = bases[rows, places].long()
        x = one_hot.to(factors.dtype)
        x = x.index_put((rows, letters_after, places), factors, accumulate=True)
        x = x.index_put((rows, letters_before, places), -factors, accumulate=True)
        ids, lengths = pad(self.ids[:count], self.pad_id)
        logits: Tensor = self.network(x, ids, lengths, owners)
        return logits[:, self.at[0], self.at[1], None]


class _WholeWindows:
    """Windows as a classifier reads them in a view; methods as of `_BinWindows`."""

    def __init__(self, model: LoadedClassifier, texts: list[str], view: View) -> None:
        self.network, self.pad_id = model.network, model.tokenizer.pad_id
        settings, positions = model.settings, model.config.max_length
        cuts = [view.cut] * len(texts)
        rows = promoter_rows(
            model.tokenizer, texts, cuts, settings, positions, phase=view.phase
        )
        self.ids, self.firsts = rows.ids, torch.from_numpy(rows.firsts)
        self.ensemble: Tensor | None = None
        if self.network.ensemble is not None:
            # Regressions read all of a window.
            cuts = [(0, 0)] * len(texts)
            rows = promoter_rows(model.tokenizer, texts, cuts, settings, None)
            added = added_logits(
                self.network, rows, self.pad_id, _AT_ONCE, torch.device("cpu")
            )
            self.ensemble = torch.from_numpy(added)

    def embed(self, encoder: Encoder, numbers: range) -> Tensor:
        ids, _ = pad([self.ids[number] for number in numbers], self.pad_id)
        added = None
        if self.network.base_positions is not None:
            added = self.network.base_positions(ids, self.firsts[list(numbers)])
        return encoder.embeddings(ids, None, added=added)[:, -ids.shape[1] :]  # type: ignore[no-any-return]

    def added(self, _member: nn.Module) -> Tensor:
        assert self.ensemble is not None
        return self.ensemble

    def logits(self, count: int) -> Tensor:
        ids, lengths = pad(self.ids[:count], self.pad_id)
        logits = self.network(ids, lengths, firsts=self.firsts[:count])
        if self.ensemble is None or self.network.ensemble is None:
            return logits  # type: ignore[no-any-return]
        return self.network.ensemble(logits, self.ensemble[:count])  # type: ignore[no-any-return]


def _tokens_of_bases(
    ids: NDArray[np.int32], lengths: NDArray[Any]
) -> NDArray[np.int64]:
    """For each base (S,): number, id and first base of its token, (3, S)."""
    sizes = lengths[ids]
    columns = np.stack([np.arange(len(ids)), ids, np.cumsum(sizes) - sizes])
    return np.repeat(columns, sizes, axis=1)


def _add_to_tokens(
    change: Tensor, _module: nn.Module, _inputs: Any, output: Tensor
) -> Tensor:
    """Hook of `Embeddings`, whose output may begin with extra global tokens."""
    return output + F.pad(change, (0, 0, output.shape[1] - change.shape[1], 0))


def _add_to_ensemble(
    change: Tensor, _module: nn.Module, inputs: tuple[Tensor, Tensor | None]
) -> tuple[Tensor, Tensor | None]:
    """Hook of `EnsembleSum`, which adds terms (N, T), or (N, 1, T), to logits."""
    logits, terms = inputs
    return logits, None if terms is None else terms + change.view_as(terms)


def letters(one_hot: NDArray[Any]) -> str:
    """The bases of one-hot values (4, L); N for a column of zeros."""
    codes = np.where(one_hot.any(0), one_hot.argmax(0), UNKNOWN)
    return "".join((BASES + "N")[code] for code in codes.tolist())


def gradient_mutations(
    model: Scored,
    target: ExplainedWindow,
    columns: Sequence[int],
    views: Sequence[View],
) -> Mutations:
    """Approximate `saturation_mutagenesis` by gradients: one pass per view and output, not 3 per base."""
    codes = base_codes(target.window)
    one_hot = (codes == np.arange(len(BASES))[:, None]).astype(np.float32)
    span = slice(target.first, target.last)
    scores, changes = [], []
    for view in views:
        x = torch.from_numpy(one_hot[None]).requires_grad_()
        values = OneHotModel(model, columns, view, span)(x)[0]
        slopes = [
            torch.autograd.grad(value, x, retain_graph=True)[0][0, :, span]
            for value in values
        ]  # (4, L) each
        scores.append(values.detach().numpy())
        changes.append(torch.stack(slopes).permute(2, 1, 0).numpy())  # (L, 4, T)

    return Mutations(codes[span], np.stack(scores), np.stack(changes))
