"""A pretrained model and simple predictors, judged on the same hidden tokens of held-out contigs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

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
from bigbird_dna.pretraining.baselines import draw_judged, judge_rivals, open_stores, read_rivals
from bigbird_dna.pretraining.held_out import HeldOut

if TYPE_CHECKING:
    import pandas as pd

# Of inputs with one hidden token each: a small model takes a quarter of a minute of one core.
TOLD_TOKENS = 1_000_000


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

    15 % of the tokens of the same inputs are hidden from all of them. Those that are told the rest, the model
    too, see all but the one in question. A causal model is judged on every token in the second half of each
    input, given those before it, beside predictors from the left. The predictors learn from the training
    tokens; what is to be chosen of them is chosen on hidden validation tokens, which favours them there. With
    no tokens in a test store the table is of the validation contigs alone.

    Parameters
    ----------
    path
        A pretrained model's directory.
    tokens
        The directory of the token stores train, valid and test that were made with the model's tokenizer.
    sequences
        How many inputs of each split at most, spread evenly over it.
    sequence_tokens
        Tokens of an input; None: 512, or as many as the model takes.
    token_order
        The longest n-gram over tokens that is tried.
    baselines
        What `fit_rivals` wrote for as many inputs of the same length; None: the predictors are fitted here.
    alone
        The model is judged without the predictors, whose fitting takes minutes on a genome.

    Raises
    ------
    UsageError
        Inputs are longer than the model takes; or there are `baselines`, and the model is judged alone.
    ModelError
        It is not a pretrained model.
    DataError
        A store is missing, damaged or of another tokenizer; there is no validation store; or `baselines` are
        of other hidden tokens.
    """
    if alone and baselines:
        raise UsageError("--model-only goes without --baselines")
    model = load_pretrained(path)
    assert isinstance(model.settings, PretrainingSettings)
    stores = open_stores(tokens, model.tokenizer)
    length = sequence_tokens or min(512, model.config.max_length)
    if length > model.config.max_length:
        raise UsageError(f"{length} tokens an input: the model takes {model.config.max_length}")
    causal = model.config.causal
    judged = draw_judged(
        stores, model.tokenizer, length, sequences, pairs=model.settings.next_sentence, causal=causal
    )
    rivals = read_rivals(baselines, judged, causal=causal) if baselines else None
    place = choose_device(device)
    model.network.to(place).eval()
    found = {split: _model_bits(model, held_out, split, place) for split, held_out in judged.items()}
    if alone:
        rivals = {split: MaskedTokenBits({}, held_out.bases, {}) for split, held_out in judged.items()}
    elif rivals is None:
        rivals = judge_rivals(stores, judged, model.tokenizer, token_order, causal=causal)
    tables = []
    for split, held_out in judged.items():
        table = _table(held_out, found[split], rivals[split])
        table.insert(0, SPLIT, split)
        tables.append(table)
    whole = _joined(tables)
    with atomic_path(output) as temporary:
        write_table(temporary, whole, BITS)
    return whole


def _joined(tables: Sequence["pd.DataFrame"]) -> "pd.DataFrame":
    import pandas as pd

    return pd.concat(tables, ignore_index=True)


class _ModelBits(NamedTuple):
    """A model's bits of hidden tokens: of all (M,), and one at a time of some (C,).

    A causal model sees no token behind the one in question, one at a time or not: then there are none.
    """

    bits: NDArray[np.float64]
    told: NDArray[np.float64]
    chosen: NDArray[np.int64]  # (C,) which of the hidden tokens those are


def _model_bits(model: LoadedModel, held_out: HeldOut, split: str, device: torch.device) -> _ModelBits:
    if model.config.causal:
        count = len(held_out.inputs)
        log(f"{split}: {len(held_out.labels):,} tokens in the second halves of {count:,} inputs")
        with torch.inference_mode():
            bits = held_out.bits(model.network, model.tokenizer, device).bits
        return _ModelBits(bits, np.zeros(0), np.zeros(0, np.int64))
    alone, chosen = held_out.one_at_a_time(TOLD_TOKENS)
    log(
        f"{split}: {len(held_out.labels):,} hidden tokens of {len(held_out.inputs):,} inputs; then "
        f"{len(chosen):,} of them one at a time"
    )
    with torch.inference_mode():
        bits, told = (part.bits(model.network, model.tokenizer, device).bits for part in (held_out, alone))
    return _ModelBits(bits, told, chosen)


def _table(held_out: HeldOut, found: _ModelBits, rivals: MaskedTokenBits) -> "pd.DataFrame":
    """The model and those that see no hidden token either; then both told the rest."""
    plain = {name: bits for name, bits in rivals.bits.items() if not name.endswith(ONE_AT_A_TIME)}
    of = found.chosen
    told = {name: bits[of] for name, bits in rivals.bits.items() if name.endswith(ONE_AT_A_TIME)}
    all_told = "" if len(of) == len(held_out.labels) else f"; {len(of):,} of the hidden tokens"
    notes = {MODEL + ONE_AT_A_TIME: f"one token hidden at a time{all_told}", **rivals.notes}
    if not len(of):  # of a causal model
        notes[MODEL] = "sees half of an input or more"
        return language_model_table({MODEL: found.bits, **plain}, held_out.bases, held_out.blocks, notes)
    return _joined(
        [
            language_model_table({MODEL: found.bits, **plain}, held_out.bases, held_out.blocks, notes),
            language_model_table(
                {MODEL + ONE_AT_A_TIME: found.told, **told},
                held_out.bases[of],
                held_out.blocks[of],
                notes,
                model=MODEL + ONE_AT_A_TIME,
            ),
        ]
    )
