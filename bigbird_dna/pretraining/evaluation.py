"""A pretrained model and simple predictors, evaluated on the same hidden tokens of held-out contigs."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from bigbird_dna.baselines.language import MaskedTokenBits
from bigbird_dna.console import log
from bigbird_dna.data.bits_per_base import BITS, MODEL, ONE_AT_A_TIME, SPLIT, language_model_table
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.tables import write_table
from bigbird_dna.errors import UsageError
from bigbird_dna.model.directory import load_pretrained
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.pretraining.baselines import EvaluatedTokens
from bigbird_dna.pretraining.held_out import HeldOut

if TYPE_CHECKING:
    import pandas as pd

ONE_AT_A_TIME_TOKENS = 1_000_000
"""Of inputs with one hidden token each: a small model takes a quarter of a minute of one core."""

ModelBits = Mapping[str, tuple[NDArray[np.float64], NDArray[np.int64]]]
"""Bits of hidden tokens, and which; by "" for all, `ONE_AT_A_TIME` for some, hidden one at a time."""


def evaluate_pretraining(
    path: Path,
    tokens: Path,
    output: Path,
    *,
    sequences: int = 1000,
    sequence_tokens: int | None = None,
    token_order: int = 6,
    baselines: Path | None = None,
    alone: bool = False,
    device: str = "auto",
) -> "pd.DataFrame":
    """Write bits per base of a model and of simple predictors, with intervals, as TSV; returns the table.

    15 % of the tokens of at most `sequences` inputs of each split are hidden from all of them, or all but the
    one in question are seen. A causal model is evaluated on every token in the second half of each input,
    given those before it. The predictors learn from the training tokens and are chosen on hidden validation
    tokens, which favours them there; `baselines` is what `fit_baselines` wrote of them for the same inputs.
    With no test tokens the table is of the validation contigs alone. `UsageError`: inputs are longer than the
    model takes, or there are `baselines` for a model alone; `DataError`: stores or baselines don't fit.
    """
    import pandas as pd

    if alone and baselines:
        raise UsageError("--model-only goes without --baselines")
    model = load_pretrained(path)
    assert isinstance(model.settings, PretrainingSettings)
    length = sequence_tokens or min(512, model.config.max_length)
    if length > model.config.max_length:
        raise UsageError(f"{length} tokens an input: the model takes {model.config.max_length}")
    pairs, causal = model.settings.next_sentence, model.config.causal
    evaluated = EvaluatedTokens.open(tokens, model.tokenizer, length, sequences, pairs=pairs, causal=causal)
    found = evaluated.read_baselines(baselines) if baselines else None
    place = choose_device(device)
    model.network.to(place).eval()
    with torch.inference_mode():
        bits = {split: _model_bits(model, own, split, place) for split, own in evaluated.hidden.items()}
    if alone:
        found = {split: MaskedTokenBits({}, own.bases, {}) for split, own in evaluated.hidden.items()}
    elif found is None:
        found = evaluated.fit_baselines(token_order)
    tables = []
    for split, held_out in evaluated.hidden.items():
        for table in _tables(held_out, bits[split], found[split]):
            table.insert(0, SPLIT, split)
            tables.append(table)
    whole = pd.concat(tables, ignore_index=True)
    with atomic_path(output) as temporary:
        write_table(temporary, whole, BITS)
    return whole


def _model_bits(model: LoadedModel, held_out: HeldOut, split: str, device: torch.device) -> ModelBits:
    """Of all tokens, and one at a time: a causal model sees none behind the one in question anyway."""
    count, tokens = len(held_out.inputs), len(held_out.labels)
    parts = {"": (held_out, np.arange(tokens))}
    if model.config.causal:
        log(f"{split}: {tokens:,} tokens in the second halves of {count:,} inputs")
    else:
        parts[ONE_AT_A_TIME] = held_out.one_at_a_time(ONE_AT_A_TIME_TOKENS)
        some = len(parts[ONE_AT_A_TIME][1])
        log(f"{split}: {tokens:,} hidden tokens of {count:,} inputs; then {some:,} of them one at a time")
    return {
        name: (part.bits(model.network, model.tokenizer, device).bits, of)
        for name, (part, of) in parts.items()
    }


def _tables(held_out: HeldOut, found: ModelBits, baselines: MaskedTokenBits) -> Iterator["pd.DataFrame"]:
    """The model and those that see no hidden token either; then all that see the others."""
    notes = dict(baselines.notes)
    if ONE_AT_A_TIME in found:
        some = len(found[ONE_AT_A_TIME][1])
        rest = "" if some == len(held_out.labels) else f"; {some:,} of the hidden tokens"
        notes = {MODEL + ONE_AT_A_TIME: f"one token hidden at a time{rest}", **notes}
    else:
        notes[MODEL] = "sees half of an input or more"
    for kind, (bits, of) in found.items():
        others = {
            name: values[of]
            for name, values in baselines.bits.items()
            if name.endswith(ONE_AT_A_TIME) == bool(kind)
        }
        rows = {MODEL + kind: bits, **others}
        yield language_model_table(rows, held_out.bases[of], held_out.blocks[of], notes, model=MODEL + kind)
