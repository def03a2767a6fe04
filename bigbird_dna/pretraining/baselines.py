"""Simple predictors of the hidden tokens that a pretrained model is judged on: they need no GPU."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.language import (
    LEFT_PREDICTORS,
    PREDICTORS,
    MaskedTokenBits,
    fit_language_baselines,
)
from bigbird_dna.baselines.tokens import MaskedTokens as Documents
from bigbird_dna.config import PretrainingConfig
from bigbird_dna.disk.atomic import atomic_path, reading
from bigbird_dna.disk.foreign import open_npz
from bigbird_dna.errors import DataError
from bigbird_dna.pretraining.held_out import HeldOut
from bigbird_dna.pretraining.sampling import Tokens, document_bounds
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.store import TokenStore
from bigbird_dna.tokens.text import load_tokenizer

SPLITS = ("valid", "test")
CHOSEN_ON = "valid"

Stores = Mapping[str, TokenStore]


def open_stores(tokens: Path, tokenizer: Tokenizer) -> Stores:
    """The token stores train, valid and test of a directory; `DataError` as `evaluate_pretraining`."""
    stores = {split: TokenStore.open(tokens / split, tokenizer) for split in ("train", *SPLITS)}
    if not len(stores[CHOSEN_ON].tokens):
        raise DataError(f"{stores[CHOSEN_ON].directory}: holds no tokens, and predictors are chosen on them")
    return stores


def draw_judged(
    stores: Stores, tokenizer: Tokenizer, length: int, sequences: int, *, pairs: bool, causal: bool = False
) -> dict[str, HeldOut]:
    """The hidden tokens of each split that has any; those that a causal model is judged on."""
    return {
        split: HeldOut.draw(stores[split], tokenizer, length, sequences, pairs=pairs, causal=causal)
        for split in SPLITS
        if len(stores[split].tokens)
    }


def fit_rivals(
    config: PretrainingConfig,
    tokens: Path,
    tokenizer_path: Path,
    output: Path,
    *,
    sequences: int = 1000,
    causal: bool = False,
) -> None:
    """Write what simple predictors make of the hidden tokens that `evaluate_pretraining` judges a model on.

    Parameters
    ----------
    config
        Its inputs' length, whether they are pairs, and the longest n-gram.
    tokens, tokenizer_path
        The directory of the token stores, and their tokenizer.
    output
        File to write (.npz): `predictors` and their `notes`, and for each split `SPLIT.tokens`, the places of
        the hidden tokens in its store, and `SPLIT.bits`, predictors × tokens.
    sequences
        How many inputs of each split at most.
    causal
        Of what a causal model is judged on; the predictors are those from the left.

    Raises
    ------
    DataError
        A store is missing, damaged or of another tokenizer; or there is no validation store.
    """
    predictors = predictors_of(causal)
    tokenizer = load_tokenizer(tokenizer_path)
    stores = open_stores(tokens, tokenizer)
    judged = draw_judged(
        stores, tokenizer, config.sequence_tokens, sequences, pairs=config.next_sentence, causal=causal
    )
    rivals = judge_rivals(stores, judged, tokenizer, config.ngram_order, causal=causal)
    notes = rivals[CHOSEN_ON].notes
    arrays: dict[str, NDArray[np.generic]] = {
        "predictors": np.array(predictors),
        "notes": np.array([notes[name] for name in predictors]),
    }
    for split, held_out in judged.items():
        arrays[f"{split}.tokens"] = held_out.tokens
        arrays[f"{split}.bits"] = np.stack([rivals[split].bits[name] for name in predictors])
    with atomic_path(output) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]


def predictors_of(causal: bool) -> tuple[str, ...]:
    """The predictors beside a causal model, or beside one of masked tokens."""
    return LEFT_PREDICTORS if causal else PREDICTORS


def read_rivals(
    path: Path, judged: Mapping[str, HeldOut], *, causal: bool = False
) -> dict[str, MaskedTokenBits]:
    """What `fit_rivals` has written, by split.

    Raises
    ------
    DataError
        The file is missing or damaged, or of other hidden tokens than those that are `judged`.
    """
    found = {}
    with (
        reading(path, "damaged, or not what train baseline-language writes", Exception),
        open_npz(path) as file,
    ):
        names = tuple(map(str, file.read("predictors")))
        if names != predictors_of(causal):
            of = " for a causal model" if causal else ""
            raise DataError(f"{path}: has other predictors than those of this version{of}: make it again")
        notes = dict(zip(names, map(str, file.read("notes")), strict=True))
        for split, held_out in judged.items():
            own, shape = f"{split}.tokens", (len(names), len(held_out.tokens))
            if own not in file.names or not np.array_equal(file.read(own), held_out.tokens):
                raise DataError(
                    f"{path}: is of other hidden {split} tokens: make it of the same tokens, with as many "
                    "inputs of the same length, and with next sentences if the model has them"
                )
            bits = file.read(f"{split}.bits")
            if bits.shape != shape or bits.dtype != np.float64 or not np.isfinite(bits).all():
                raise DataError(f"{path}: {split}.bits are not {shape[0]} × {shape[1]} numbers")
            found[split] = MaskedTokenBits(dict(zip(names, bits, strict=True)), held_out.bases, notes)
    return found


def judge_rivals(
    stores: Stores,
    judged: Mapping[str, HeldOut],
    tokenizer: Tokenizer,
    token_order: int,
    *,
    causal: bool = False,
) -> dict[str, MaskedTokenBits]:
    """Fit the predictors to the training tokens and let them judge the hidden ones of each split."""
    documents = {split: hidden_in_documents(stores[split], held_out) for split, held_out in judged.items()}
    baselines = fit_language_baselines(
        training_documents(stores["train"]),
        documents[CHOSEN_ON],
        tokenizer,
        token_order=token_order,
        both_strands=stores["train"].info.get("strands") == "both",
        causal=causal,
    )
    return {split: baselines.evaluate(own) for split, own in documents.items()}


def hidden_in_documents(store: Tokens, held_out: HeldOut) -> Documents:
    """The documents that hold hidden tokens, and where these are in them."""
    bounds = document_bounds(store)
    own = np.searchsorted(bounds, held_out.tokens, side="right") - 1
    documents = np.unique(own)
    return Documents(
        [np.asarray(store.tokens[bounds[document] : bounds[document + 1]]) for document in documents],
        [held_out.tokens[own == document] - bounds[document] for document in documents],
    )


def training_documents(store: TokenStore) -> list[NDArray[np.integer]]:
    """The documents of a store's first pass; of one of both strands, the first two.

    Later passes cut the same sequence at other places: a predictor must not count it again. Of a store of an
    earlier version, which doesn't say how many documents that are, it may be one more.
    """
    bounds = document_bounds(store)
    if "first_documents" in store.info:
        count = store.info["first_documents"]
    else:
        passes = store.info["passes"]
        strands = 2 if store.info.get("strands") == "both" and passes > 1 else 1
        count = -(-store.info["documents"] * strands // max(passes, 1))
    return [store.tokens[start:end] for start, end in pairwise(bounds[: count + 1].tolist())]
