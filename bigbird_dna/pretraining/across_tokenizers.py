"""Pretrained models of any tokenizers, and Markov models over bases, compared on the same hidden bases."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from bigbird_dna.baselines.markov_counts import UNKNOWN
from bigbird_dna.console import log, progress
from bigbird_dna.data.bits_per_base import SPANS, ComparedModel, comparison_table
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.tables import write_table
from bigbird_dna.errors import DataError, ModelError, UsageError, check_at_least_one
from bigbird_dna.genome.assembly import shown
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.variants import find_contigs
from bigbird_dna.model.directory import load_pretrained
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.pretraining.spans import (
    LONGEST_SPAN,
    Codes,
    Drawn,
    HiddenSpan,
    SpanBaselines,
    draw_spans,
    fit_span_baselines,
    hide_spans,
    parts,
    read_contig,
    span_bits,
)
from bigbird_dna.tokens.interface import require_dna

if TYPE_CHECKING:
    import pandas as pd

CHOOSING = 4000  # spans of other contigs that orders of Markov models are chosen on


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
) -> "pd.DataFrame":
    """Write bits per base of models and of Markov models on the same spans, as TSV; returns the table.

    How a model is asked is told in `pretraining.spans`; spans are read on the forward strand. Markov
    models learn from both strands of the contigs that are neither compared on nor excluded, and are chosen
    there too. These contigs are held in memory, a byte a base.

    Parameters
    ----------
    models
        Pretrained models' directories, of any tokenizers of DNA. Differences are to the first.
    reference
        Indexed FASTA.
    contigs
        Where spans are drawn, by any names that are known for them: no model should have learnt from these.
    exclude
        Contigs that nothing is learnt from either, as those that are kept for another test.
    span, context
        bp that are hidden, up to `LONGEST_SPAN`, and that are known on both sides.
    spans
        How many are drawn; no two share a base.
    seed
        Of the places.

    Raises
    ------
    UsageError
        No model, one that is given twice, spans that are too long, or inputs longer than a model takes.
    ModelError
        A directory is not a pretrained model's, its tokenizer isn't one of DNA, or its predictions are not
        finite.
    DataError
        The reference has no such contig, or its contigs are too short for what is asked.
    """
    check_at_least_one({"span": span, "context": context, "spans": spans})
    if span > LONGEST_SPAN:
        raise UsageError(
            f"span {span}: must be at most {LONGEST_SPAN}, since all spans of that length are tried"
        )
    place = choose_device(device)
    opened = _open(models)
    compared, learnt = _sequences(reference, contigs, exclude)
    drawn = draw_spans(compared, span=span, context=context, count=spans, seed=(seed, 0))
    if len(drawn.windows) < spans:
        raise DataError(
            f"{reference}: {shown(contigs)} can have {drawn.possible:,} spans of {span} known bases with "
            f"{context} on both sides, {spans:,} are asked for"
        )
    asked = {name: _asked(model, drawn) for name, model in opened.items()}
    baselines = _baselines(reference, learnt, drawn, seed)
    found = {name: _judged(model, asked.pop(name), place) for name, model in opened.items()}
    judged = baselines.bits(drawn.windows, context)
    found |= {name: ComparedModel(bits) for name, bits in judged.items()}
    table = comparison_table(found, np.full(spans, span), drawn.blocks)
    with atomic_path(output) as temporary:
        write_table(temporary, table, SPANS)
    return table


def _open(paths: Sequence[Path]) -> dict[str, LoadedModel]:
    """Models by the names of their directories."""
    if not paths:
        raise UsageError("there is no model to compare")
    opened: dict[str, LoadedModel] = {}
    for path in paths:
        if str(path) in opened:
            raise UsageError(f"{path}: is given twice")
        opened[str(path)] = model = load_pretrained(path)
        if model.config.causal:
            raise ModelError(
                f"{path}: is causal, and can't be asked for what stands between two sides; "
                "evaluate pretraining measures it"
            )
    return opened


def _sequences(path: Path, contigs: Sequence[str], exclude: Sequence[str]) -> tuple[list[Codes], list[Codes]]:
    """Sequences that are compared on, and those that may be learnt from."""
    with Reference(path) as reference:
        wanted, left_out = (find_contigs(names, reference) for names in (contigs, exclude))
        others = reference.contigs.keys() - {*wanted, *left_out}
        learnt = [name for name in reference.contigs if name in others]
        return [read_contig(reference, name) for name in wanted], [
            read_contig(reference, name) for name in learnt
        ]


def _asked(model: LoadedModel, drawn: Drawn) -> list[HiddenSpan]:
    """Spans as a model is asked for them, none longer than it takes."""
    require_dna(model.tokenizer)
    what = f"{model.name}: tokenising"
    windows = progress(drawn.texts(), what, len(drawn.windows), "spans")
    spans = [*hide_spans(model.tokenizer, windows, drawn.context)]
    longest, most = max(span.tokens for span in spans), model.config.max_length
    if longest > most:
        raise UsageError(
            f"{model.name}: takes {most:,} tokens; a span of {drawn.span} bp with {drawn.context:,} bp of "
            f"context on both sides has up to {longest:,}"
        )
    return spans


def _judged(model: LoadedModel, spans: list[HiddenSpan], device: torch.device) -> ComparedModel:
    log(f"{model.name}: {len(spans):,} spans, {model.tokenizer.vocabulary:,} pieces")
    bits = span_bits(model, spans, device)
    tokens = float(np.mean([len(span.hidden[span.own]) for span in spans]))
    return ComparedModel(bits, model.tokenizer.vocabulary, tokens)


def _baselines(reference: Path, learnt: list[Codes], drawn: Drawn, seed: int) -> SpanBaselines:
    """Markov models, chosen on spans as those that are drawn."""
    choosing = draw_spans(
        parts(learnt, choosing=True), span=drawn.span, context=drawn.context, count=CHOOSING, seed=(seed, 1)
    )
    kept = parts(learnt, choosing=False)
    if not len(choosing.windows) or not any((part != UNKNOWN).any() for part in kept):
        raise DataError(
            f"{reference}: the contigs that are neither compared on nor excluded have "
            f"{sum(map(len, learnt)):,} bases, too few for Markov models to learn from"
        )
    return fit_span_baselines(learnt, choosing.windows, drawn.context)
