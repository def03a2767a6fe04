"""Comparison of pretrained models with any tokenizers, and of Markov models, on the same hidden bases.

Bits of hidden *tokens* cannot be compared between tokenizers: visible tokens reveal where the hidden ones
begin and end, and short tokens have nearer neighbors. Bits of the same hidden bases, a span, are comparable:

    P(span | both sides) = s(span) / Σ_y s(y), over all 4 ** L spans y of the same length L

s(y) is the model's score of the window, context + y + context, tokenized as a whole, as in training. The
tokens at both ends that the windows of all y have in common are visible. They contain no base of the span.
Usually some adjacent bases are hidden too; these are the same for all y, so their cost cancels. The n tokens
between the visible ends start as [MASK] and are predicted from left to right:

    s(y) = Π_i p(token i | visible tokens, hidden tokens before i, n − i + 1 times [MASK])

p is the model's softmax over the tokens that consist of bases. n may differ between windows; no correction is
needed if tokens at distance n are independent. A perfect model of the base source and of its tokenizer
therefore yields the true bits for any tokenizer.

Shapes: N spans, 4 ** L windows per span, n hidden tokens per window, R inputs, V vocabulary.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbird_dna.baselines.language import BASES_BOTH, BASES_LEFT, CHOOSING_BASES
from bigbird_dna.baselines.markov import LARGEST_ORDER, Markov
from bigbird_dna.baselines.tokens import evenly
from bigbird_dna.console import log, progress
from bigbird_dna.data.predictions import SPANS, ComparedModel, comparison_table
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.tables import write_table
from bigbird_dna.errors import DataError, ModelError, UsageError, check_at_least_one
from bigbird_dna.genome.assembly import shown
from bigbird_dna.genome.reference import Reference, find_contigs
from bigbird_dna.genome.sequence import UNKNOWN, Interval, base_codes
from bigbird_dna.metrics.resampling import BLOCK_BASES
from bigbird_dna.model.batching import run_rows
from bigbird_dna.model.directory import load_pretrained
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.tokens.interface import BASES, Tokenizer, require_dna

CHOOSING = 4000  # spans of other contigs for choosing the orders of Markov models
CHOOSING_SEGMENT, CHOOSING_SHARE = (
    10_000,
    10,
)  # segments in bp; every tenth is used to choose the orders
LONGEST_SPAN = 5  # bp: each further base multiplies time and memory by four
INPUTS = 512  # approximate number of inputs per batch, whose scores are in memory at the same time
_LETTERS = np.frombuffer(b"ACGTN", np.uint8)

Codes = NDArray[
    np.uint8
]  # A 0, C 1, G 2, T 3, N 4; shape of windows: (N, context + span + context)
Bits = NDArray[np.float64]
Ids = NDArray[np.int32]


def compare_pretraining(
    models: Sequence[Path],
    reference: Path,
    contigs: Sequence[str],
    output: Path,
    *,
    exclude: Sequence[str] = (),
    span: int = 3,
    context: int = 100,
    spans: int = 1000,
    seed: int = 1,
    device: str = "auto",
) -> pd.DataFrame:
    """Write bits per base of models and of Markov models on the same spans as TSV; return the table.

    Spans of `span` bp are drawn from the forward strand of `contigs`, with `context` known bp on both sides.
    Differences are relative to the first model. Markov models are fitted and chosen on both strands of the
    contigs in neither `contigs` nor `exclude`, which take one byte of memory per base. `UsageError`,
    `ModelError` or `DataError` names an unsuitable model, contig or length.
    """
    check_at_least_one({"span": span, "context": context, "spans": spans})
    if span > LONGEST_SPAN:
        raise UsageError(
            f"--span {span}: must be at most {LONGEST_SPAN}, since all spans of that length are evaluated"
        )
    place = choose_device(device)
    opened = _open(models)
    with Reference(reference) as file:
        wanted, left_out = (find_contigs(names, file) for names in (contigs, exclude))
        others = file.contigs.keys() - {*wanted, *left_out}
        rest = [name for name in file.contigs if name in others]
        compared, learned = (
            [
                base_codes(file.fetch(Interval(name, 0, file.contigs[name])))
                for name in names
            ]
            for names in (wanted, rest)
        )
    drawn = draw_spans(
        compared, span=span, context=context, count=spans, seed=(seed, 0)
    )
    if len(drawn.windows) < spans:
        raise DataError(
            f"{reference}: {shown(contigs)} can provide {drawn.possible:,} spans of {span} known bases with "
            f"{context} known bases on both sides; --spans is {spans:,}"
        )
    hidden = {name: _hidden(model, drawn) for name, model in opened.items()}
    baselines = fit_span_baselines(reference, learned, drawn, seed)
    found = {}
    for name, model in opened.items():
        own, vocabulary = hidden.pop(name), model.tokenizer.vocabulary
        log(f"{model.name}: {len(own):,} spans, a vocabulary of {vocabulary:,}")
        tokens = float(np.mean([len(one.hidden[one.own]) for one in own]))
        found[name] = ComparedModel(span_bits(model, own, place), vocabulary, tokens)
    found |= {
        name: ComparedModel(bits)
        for name, bits in baselines.bits(drawn.windows, context).items()
    }
    table = comparison_table(found, np.full(spans, span), drawn.blocks)
    with atomic_path(output) as temporary:
        write_table(temporary, table, SPANS)
    return table


def _open(paths: Sequence[Path]) -> dict[str, LoadedModel]:
    """Load models; the keys are their paths."""
    if not paths:
        raise UsageError("at least one model is needed for the comparison")
    opened: dict[str, LoadedModel] = {}
    for path in paths:
        if str(path) in opened:
            raise UsageError(f"{path}: the model is given twice")
        opened[str(path)] = model = load_pretrained(path)
        if model.config.causal:
            raise ModelError(
                f"{path}: a causal model cannot predict spans from both sides; "
                "use evaluate pretraining for this model"
            )
    return opened


def _hidden(model: LoadedModel, drawn: "Drawn") -> list["HiddenSpan"]:
    """Hide the drawn spans for a model; `UsageError` if an input exceeds the model's maximum length."""
    require_dna(model.tokenizer)
    windows = progress(
        drawn.texts(), f"{model.name}: tokenizing", len(drawn.windows), "spans"
    )
    spans = [*hide_spans(model.tokenizer, windows, drawn.context)]
    longest, most = max(span.tokens for span in spans), model.config.max_length
    if longest > most:
        raise UsageError(
            f"{model.name}: the model takes {most:,} tokens; a span of {drawn.span} bp with "
            f"{drawn.context:,} bp of context on both sides has up to {longest:,}"
        )
    return spans


def parts(contigs: Sequence[Codes], *, choosing: bool) -> list[Codes]:
    """Return segments of contigs: every tenth one, starting with the first, or all others."""
    size = CHOOSING_SEGMENT
    segments = [
        contig[start : start + size]
        for contig in contigs
        for start in range(0, len(contig), size)
    ]
    return [
        part
        for number, part in enumerate(segments)
        if (number % CHOOSING_SHARE == 0) == choosing
    ]


class SpanBaselines(NamedTuple):
    """Markov models with their chosen orders."""

    markov: Markov
    orders: dict[str, int]  # by predictor

    def bits(self, windows: Codes, context: int) -> dict[str, Bits]:
        """Return the bits (N,) of the windows' central spans per predictor, given one or both sides."""
        return {
            name: _bits(self.markov, windows, context, order, both=name == BASES_BOTH)
            for name, order in self.orders.items()
        }


def fit_span_baselines(
    reference: Path, contigs: Sequence[Codes], drawn: "Drawn", seed: int
) -> SpanBaselines:
    """Fit Markov models to both strands of contigs. Strengths and orders are chosen on a tenth of the
    segments (see `parts`), orders on spans like those in `drawn`. The final counts include that tenth.
    Orders with many more contexts than bases are not tried."""
    kept, chosen = (parts(contigs, choosing=choosing) for choosing in (False, True))
    size, context = sum(map(len, contigs)), drawn.context
    choosing = draw_spans(
        chosen, span=drawn.span, context=context, count=CHOOSING, seed=(seed, 1)
    ).windows
    if not len(choosing) or not any((part != UNKNOWN).any() for part in kept):
        raise DataError(
            f"{reference}: the contigs that are neither compared nor excluded have {size:,} bases, too few "
            "to fit Markov models"
        )
    order = min(
        LARGEST_ORDER, (size.bit_length() - 1) // 2 + 2
    )  # 4 ** order is at most 16 times the size
    log(f"Markov models over bases: counting in {size:,} bases")
    markov = Markov(order).fit(kept)
    markov.mix(
        chosen[index]
        for index in evenly(len(chosen), CHOOSING_BASES / sum(map(len, chosen)))
    )
    orders = {}
    for name, both in ((BASES_LEFT, False), (BASES_BOTH, True)):
        tried = progress(range(order + 1), "orders of Markov models", order + 1)
        orders[name] = int(
            np.argmin(
                [_bits(markov, choosing, context, k, both=both).sum() for k in tried]
            )
        )
    log(
        "Markov models: "
        + ", ".join(f"{name}: order {k}" for name, k in orders.items())
    )
    whole = Markov(order).fit(contigs).smooth(markov.strengths)
    return SpanBaselines(whole, orders)


def _bits(
    markov: Markov, windows: Codes, context: int, order: int, *, both: bool
) -> Bits:
    """Return the bits (N,) of the windows' central spans; an N between windows separates their contexts."""
    if not len(windows):
        return np.zeros(0)
    apart = np.pad(windows, ((0, 0), (0, 1)), constant_values=UNKNOWN)
    starts = np.arange(len(windows)) * apart.shape[1] + context
    ends = starts + windows.shape[1] - 2 * context
    log_likelihood = markov.two_sided if both else markov.one_sided
    return log_likelihood(apart.ravel(), starts, ends, order)


class Drawn(NamedTuple):
    """N spans of one length, with `context` known bases on both sides."""

    windows: Codes  # (N, context + span + context)
    blocks: NDArray[
        np.int64
    ]  # (N,) index of the block of `BLOCK_BASES` bp in which a span begins
    context: int
    possible: int  # maximum number of spans that could be drawn

    def texts(self) -> list[str]:
        """Return the windows as text."""
        return [_LETTERS[window].tobytes().decode() for window in self.windows]

    @property
    def span(self) -> int:
        """Span length in bp."""
        return int(self.windows.shape[1]) - 2 * self.context


def draw_spans(
    contigs: Sequence[Codes],
    *,
    span: int,
    context: int,
    count: int,
    seed: tuple[int, ...],
) -> Drawn:
    """Draw at most `count` nonoverlapping spans, uniformly over such sets; return them in contig order."""
    rng = np.random.default_rng(seed)
    width = 2 * context + span
    starts = [_window_starts(codes, width) for codes in contigs]  # windows without N
    ends = np.cumsum([len(one) for one in starts])
    total = int(ends[-1]) if len(ends) else 0
    # Draw from the starts that remain if each drawn span takes `span` starts, then add the starts taken.
    possible = (total + span - 1) // span
    drawn = min(count, possible)
    free = total - (drawn - 1) * (span - 1) if drawn else 0
    chosen = (
        np.sort(rng.choice(free, drawn, replace=False))
        if drawn
        else np.zeros(0, np.int64)
    )
    chosen = chosen + np.arange(drawn) * (span - 1)
    windows = np.zeros((drawn, width), np.uint8)
    blocks = np.zeros(drawn, np.int64)
    done, first_block = 0, 0
    for codes, own, end in zip(contigs, starts, ends.tolist(), strict=True):
        here = own[chosen[done : np.searchsorted(chosen, end)] - (end - len(own))]
        part = slice(done, done + len(here))
        windows[part] = codes[here[:, None] + np.arange(width)]
        blocks[part] = first_block + (here + context) // BLOCK_BASES
        done += len(here)
        first_block += len(codes) // BLOCK_BASES + 1
    return Drawn(windows, blocks, context, possible)


def _window_starts(codes: Codes, width: int) -> NDArray[np.int64]:
    """Return the ascending starts of windows of `width` known bases."""
    if len(codes) < width:
        return np.zeros(0, np.int64)
    unknown = np.append(0, np.cumsum(codes == UNKNOWN))
    return np.flatnonzero(unknown[width:] == unknown[:-width])


class HiddenSpan(NamedTuple):
    """A span as visible and hidden tokens of a model."""

    left: Ids  # visible tokens to the left
    right: Ids  # visible tokens to the right
    hidden: list[Ids]  # the tokens between, for each of the 4 ** L spans
    own: int  # index of the true span in `hidden`

    @property
    def tokens(self) -> int:
        """Number of tokens of the longest input, including [CLS] and [SEP]."""
        return len(self.left) + max(map(len, self.hidden)) + len(self.right) + 2


def hide_spans(
    tokenizer: Tokenizer, windows: Iterable[str], context: int
) -> Iterator[HiddenSpan]:
    """Yield the hidden span of each window of known bases, with `context` bp on both sides; `ModelError` if
    the tokenizer is not for DNA or lacks a token for a base."""
    require_dna(tokenizer)
    for window in windows:
        before, span, behind = (
            window[:context],
            window[context:-context],
            window[len(window) - context :],
        )
        every = ["".join(letters) for letters in product(BASES, repeat=len(span))]
        rows = tokenizer.encode_batch([before + letters + behind for letters in every])
        low = min(_alike(rows[0], row) for row in rows)
        high = min(_alike(rows[0][::-1], row[::-1]) for row in rows)
        hidden = [row[low : len(row) - high] for row in rows]
        if not np.isin(np.concatenate(hidden), tokenizer.base_ids).all():
            raise ModelError(
                f"{tokenizer.source}: the vocabulary has no token for a base of {window}"
            )
        yield HiddenSpan(
            rows[0][:low], rows[0][len(rows[0]) - high :], hidden, every.index(span)
        )


def _alike(one: Ids, other: Ids) -> int:
    """Return the length of the common prefix of two token rows."""
    size = min(len(one), len(other))
    differ = np.flatnonzero(one[:size] != other[:size])
    return int(differ[0]) if len(differ) else size


class _SpanInputs:
    """The inputs of a span: one per distinct prefix and number of its windows' hidden tokens."""

    def __init__(self, span: HiddenSpan) -> None:
        self.span = span
        self.numbers: dict[
            tuple[int, tuple[int, ...]], int
        ] = {}  # by number of hidden tokens and prefix
        self._asked = []  # (input, token), ordered by window and position
        for ids in span.hidden:
            tokens = tuple(ids.tolist())
            for index, token in enumerate(tokens):
                number = self.numbers.setdefault(
                    (len(tokens), tokens[:index]), len(self.numbers)
                )
                self._asked.append((number, token))
        self._first = np.cumsum([0, *map(len, span.hidden[:-1])])

    def rows(self, tokenizer: Tokenizer) -> list[Ids]:
        """Return the inputs: [CLS], left tokens, prefix, [MASK] for the rest, right tokens, [SEP]."""
        left = np.concatenate([[tokenizer.cls_id], self.span.left])
        right = np.concatenate([self.span.right, [tokenizer.sep_id]])
        return [
            np.concatenate(
                [left, known, [tokenizer.mask_id] * (count - len(known)), right]
            ).astype(np.int32)
            for count, known in self.numbers
        ]

    def places(self) -> list[int]:
        """Return the position of the token to predict in each input."""
        return [1 + len(self.span.left) + len(known) for _, known in self.numbers]

    def bits(self, scores: NDArray[np.float32]) -> float:
        """Return the bits of the true span, from log-probabilities (R, V) for its inputs."""
        inputs, tokens = np.array(self._asked).T
        windows = np.add.reduceat(
            scores[inputs, tokens].astype(np.float64), self._first
        )
        return float(
            (np.logaddexp.reduce(windows) - windows[self.span.own]) / np.log(2)
        )


def span_bits(
    model: LoadedModel,
    spans: Sequence[HiddenSpan],
    device: torch.device,
    together: int = INPUTS,
) -> Bits:
    """Return the bits (N,) of spans under a pretrained model; `ModelError` if its predictions are not finite.

    A span's bits depend neither on other spans nor on the number of inputs run `together`. On a CPU the
    network runs one input at a time, else batches of similar lengths, up to the model's maximum.
    """
    network = model.network.to(device).eval()
    tokenizer = model.tokenizer
    of_bases = torch.from_numpy(np.array(tokenizer.base_ids, np.int64)).to(device)

    def found() -> Iterator[float]:
        for some in _together(spans, together):
            places = torch.tensor(
                [place for inputs in some for place in inputs.places()]
            )

            def run(
                ids: Tensor,
                lengths: Tensor,
                chosen: NDArray[np.intp],
                places: Tensor = places,
            ) -> Tensor:
                flat = (
                    torch.arange(len(ids)) * ids.shape[1]
                    + places[torch.from_numpy(chosen)]
                )
                logits: Tensor = network(
                    ids, lengths, None, flat.to(ids.device)
                ).tokens.float()  # (B, V)
                return logits - logits[:, of_bases].logsumexp(1, keepdim=True)

            rows = [row for inputs in some for row in inputs.rows(tokenizer)]
            scores = run_rows(
                network,
                rows,
                run,
                pad_id=tokenizer.pad_id,
                batch_size=INPUTS,
                device=device,
            )
            if np.isnan(scores).any():
                raise ModelError(
                    f"{model.name}: the model's predictions are not finite"
                )
            ends = np.cumsum([len(inputs.numbers) for inputs in some])
            for inputs, part in zip(some, np.split(scores, ends[:-1]), strict=True):
                yield inputs.bits(part)

    return np.fromiter(
        progress(found(), model.name, len(spans), "spans"), np.float64, len(spans)
    )


def _together(spans: Sequence[HiddenSpan], count: int) -> Iterator[list[_SpanInputs]]:
    """Yield groups of spans with at least `count` inputs in total, except for the last group."""
    some: list[_SpanInputs] = []
    for span in spans:
        some.append(_SpanInputs(span))
        if sum(len(inputs.numbers) for inputs in some) >= count:
            yield some
            some = []
    if some:
        yield some
