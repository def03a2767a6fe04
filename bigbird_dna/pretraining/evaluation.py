"""Evaluation of a pretrained model and baselines on the same hidden tokens of held-out contigs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from bigbird_dna.baselines.language import (
    LEFT_PREDICTORS,
    PREDICTORS,
    MaskedTokenBits,
    fit_language_baselines,
)
from bigbird_dna.baselines.tokens import MaskedTokens as Documents
from bigbird_dna.config.run import Config
from bigbird_dna.console import log
from bigbird_dna.data.predictions import (
    MODEL,
    ONE_AT_A_TIME,
    SPLIT,
    language_model_table,
)
from bigbird_dna.disk.arrays import open_npz
from bigbird_dna.disk.atomic import atomic_path, reading
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.model.directory import load_pretrained
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.pretraining.held_out import HeldOut
from bigbird_dna.pretraining.sampling import Tokens, document_bounds
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.load import load_tokenizer
from bigbird_dna.tokens.store import TokenStore

SPLITS = ("valid", "test")
CHOSEN_ON = "valid"


@dataclass(frozen=True)
class EvaluatedTokens:
    """Token stores, and the hidden tokens (causal models: predicted tokens) of each nonempty split."""

    stores: Mapping[str, TokenStore]
    tokenizer: Tokenizer
    hidden: Mapping[str, HeldOut]
    causal: bool

    @classmethod
    def open(
        cls,
        tokens: Path,
        tokenizer: Tokenizer,
        length: int,
        sequences: int,
        *,
        pairs: bool,
        causal: bool,
    ) -> Self:
        """Draw tokens from the stores in a directory; `DataError` if a store is missing, damaged or of
        another tokenizer, or if there are no validation tokens."""
        stores = {
            split: TokenStore(tokens / split, tokenizer) for split in ("train", *SPLITS)
        }
        if not len(stores[CHOSEN_ON].tokens):
            raise DataError(
                f"{stores[CHOSEN_ON].directory}: contains no tokens; choosing baselines needs them"
            )
        hidden = {
            split: HeldOut.draw(
                stores[split], tokenizer, length, sequences, pairs=pairs, causal=causal
            )
            for split in SPLITS
            if len(stores[split].tokens)
        }
        return cls(stores, tokenizer, hidden, causal)

    @property
    def predictors(self) -> tuple[str, ...]:
        """Names of the baselines for a causal or a masked-token model."""
        return LEFT_PREDICTORS if self.causal else PREDICTORS

    def fit_baselines(self, token_order: int) -> dict[str, MaskedTokenBits]:
        """Fit the baselines to the training tokens, and evaluate them on the hidden tokens of each split."""
        documents = {
            split: hidden_in_documents(self.stores[split], hidden)
            for split, hidden in self.hidden.items()
        }
        train = self.stores["train"]
        baselines = fit_language_baselines(
            training_documents(train),
            documents[CHOSEN_ON],
            self.tokenizer,
            token_order=token_order,
            both_strands=train.info["strands"] == "both",
            causal=self.causal,
        )
        return {
            split: baselines.evaluate(hidden) for split, hidden in documents.items()
        }

    def read_baselines(self, path: Path) -> dict[str, MaskedTokenBits]:
        """Read a file of `fit_baselines`; `DataError` if it is damaged or of other hidden tokens."""
        bits_by_split = {}
        with (
            reading(
                path, "damaged, or not a file of train baseline language", Exception
            ),
            open_npz(path) as file,
        ):
            names = tuple(map(str, file["predictors"]))
            if names != self.predictors:
                of = " for a causal model" if self.causal else ""
                raise DataError(
                    f"{path}: baselines differ from those of this version{of}; write it again"
                )
            notes = dict(zip(names, map(str, file["notes"]), strict=True))
            for split, held_out in self.hidden.items():
                key, shape = f"{split}.tokens", (len(names), len(held_out.tokens))
                if key not in file.files or not np.array_equal(
                    file[key], held_out.tokens
                ):
                    raise DataError(
                        f"{path}: hidden {split} tokens differ; write it again with the same token stores, "
                        "number and length of inputs, and next-sentence setting as for the model"
                    )
                bits = file[f"{split}.bits"]
                if (
                    bits.shape != shape
                    or bits.dtype != np.float64
                    or not np.isfinite(bits).all()
                ):
                    raise DataError(
                        f"{path}: {split}.bits must be {shape[0]} × {shape[1]} finite float64s"
                    )
                bits_by_split[split] = MaskedTokenBits(
                    dict(zip(names, bits, strict=True)), held_out.bases, notes
                )
        return bits_by_split


def fit_baselines(
    config: Config,
    tokens: Path,
    tokenizer_path: Path,
    output: Path,
    *,
    sequences: int = 1000,
) -> None:
    """Fit the baselines, and write their bits for the hidden tokens that `evaluate_pretraining` uses.

    The `.npz` file contains `predictors` and their `notes`. Per split it contains `SPLIT.tokens`, positions
    of the hidden tokens in the store, and `SPLIT.bits`, predictors × tokens. Raises the `DataError`s of
    `EvaluatedTokens.open`."""
    settings, causal = config.pretraining, config.encoder.causal
    pairs, length = settings.next_sentence, settings.sequence_tokens
    tokenizer = load_tokenizer(tokenizer_path)
    evaluated = EvaluatedTokens.open(
        tokens, tokenizer, length, sequences, pairs=pairs, causal=causal
    )
    baselines, names = (
        evaluated.fit_baselines(settings.ngram_order),
        evaluated.predictors,
    )
    arrays: dict[str, NDArray[np.generic]] = {
        "predictors": np.array(names),
        "notes": np.array([baselines[CHOSEN_ON].notes[name] for name in names]),
    }
    for split, held_out in evaluated.hidden.items():
        arrays[f"{split}.tokens"] = held_out.tokens
        arrays[f"{split}.bits"] = np.stack(
            [baselines[split].bits[name] for name in names]
        )
    with atomic_path(output) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]


def hidden_in_documents(store: Tokens, held_out: HeldOut) -> Documents:
    """Return the documents that contain hidden tokens, and the positions of the tokens in each."""
    bounds = document_bounds(store)
    document_of = np.searchsorted(bounds, held_out.tokens, side="right") - 1
    documents = np.unique(document_of)
    return Documents(
        [
            np.asarray(store.tokens[bounds[document] : bounds[document + 1]])
            for document in documents
        ],
        [
            held_out.tokens[document_of == document] - bounds[document]
            for document in documents
        ],
    )


def training_documents(store: TokenStore) -> list[NDArray[np.integer]]:
    """Return the documents of a store's first pass, on all its strands: later passes repeat the bases."""
    first = int(store.documents[store.info["first_documents"]])
    bounds = document_bounds(store, int(store.sentences[first])).tolist()
    return [store.tokens[start:end] for start, end in pairwise(bounds)]


ONE_AT_A_TIME_TOKENS = 500_000
"""Maximum total tokens of inputs with one hidden token each: 15 seconds on one core for a small model."""

ModelBits = Mapping[str, tuple[NDArray[np.float64], NDArray[np.int64]]]
"""Bits and indices of hidden tokens: under "" all of them, under `ONE_AT_A_TIME` those hidden singly."""


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
) -> pd.DataFrame:
    """Write bits per base of a model and of baselines, with intervals, as TSV; return the table.

    In at most `sequences` inputs per split, 15% of the tokens are hidden, all together or one at a time. A
    causal model is evaluated on every token in the second half of each input, given the preceding tokens.
    The baselines learn from the training tokens. They are chosen on hidden validation tokens, which favors
    them there. `baselines` is a file of `fit_baselines` for the same inputs; `alone` omits the baselines.
    Without test tokens, the table covers only the validation contigs. Raises `UsageError` for inputs longer
    than the model's maximum or `alone` with `baselines`, and `DataError` for unsuitable stores or baselines.
    """
    if alone and baselines:
        raise UsageError("give at most one of --model-only and --baselines")
    model = load_pretrained(path)
    assert isinstance(model.settings, PretrainingSettings)
    length = sequence_tokens or min(512, model.config.max_length)
    if length > model.config.max_length:
        raise UsageError(
            f"{length} tokens per input: the model takes at most {model.config.max_length}"
        )
    pairs, causal = model.settings.next_sentence, model.config.causal
    evaluated = EvaluatedTokens.open(
        tokens, model.tokenizer, length, sequences, pairs=pairs, causal=causal
    )
    baseline_bits = evaluated.read_baselines(baselines) if baselines else None
    place = choose_device(device)
    model.network.to(place).eval()
    with torch.inference_mode():
        bits = {
            split: _model_bits(model, hidden, split, place)
            for split, hidden in evaluated.hidden.items()
        }
    if alone:
        baseline_bits = {
            split: MaskedTokenBits({}, hidden.bases, {})
            for split, hidden in evaluated.hidden.items()
        }
    elif baseline_bits is None:
        baseline_bits = evaluated.fit_baselines(token_order)
    tables = []
    for split, held_out in evaluated.hidden.items():
        for table in _tables(held_out, bits[split], baseline_bits[split]):
            table.insert(0, SPLIT, split)
            tables.append(table)
    table_of_splits = pd.concat(tables, ignore_index=True)
    with atomic_path(output) as temporary:
        write_tsv(temporary, table_of_splits)
    return table_of_splits


def _model_bits(
    model: LoadedModel, held_out: HeldOut, split: str, device: torch.device
) -> ModelBits:
    """Return bits for all tokens and, except for causal models, for tokens that are hidden one at a time."""
    count, tokens = len(held_out.inputs), len(held_out.labels)
    inputs = {"": (held_out, np.arange(tokens))}
    if model.config.causal:
        log(f"{split}: {tokens:,} tokens in the second halves of {count:,} inputs")
    else:
        inputs[ONE_AT_A_TIME] = held_out.one_at_a_time(ONE_AT_A_TIME_TOKENS)
        some = len(inputs[ONE_AT_A_TIME][1])
        log(
            f"{split}: {tokens:,} hidden tokens of {count:,} inputs; then {some:,} of them one at a time"
        )
    return {
        name: (part.bits(model.network, model.tokenizer, device).bits, of)
        for name, (part, of) in inputs.items()
    }


def _tables(
    held_out: HeldOut, model_bits: ModelBits, baselines: MaskedTokenBits
) -> Iterator[pd.DataFrame]:
    """Yield the table for tokens hidden together, then the table for tokens hidden one at a time."""
    notes = dict(baselines.notes)
    if ONE_AT_A_TIME in model_bits:
        some = len(model_bits[ONE_AT_A_TIME][1])
        rest = (
            "" if some == len(held_out.labels) else f"; {some:,} of the hidden tokens"
        )
        notes = {MODEL + ONE_AT_A_TIME: f"one token hidden at a time{rest}", **notes}
    else:
        notes[MODEL] = "context: at least half of an input"
    for kind, (bits, of) in model_bits.items():
        baseline_bits = {
            name: values[of]
            for name, values in baselines.bits.items()
            if name.endswith(ONE_AT_A_TIME) == bool(kind)
        }
        rows = {MODEL + kind: bits, **baseline_bits}
        yield language_model_table(
            rows, held_out.bases[of], held_out.blocks[of], notes, model=MODEL + kind
        )
