"""Evaluation of a pretrained model and baselines on the same hidden tokens of held-out contigs."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from bigbird_dna.baselines.language import LanguageBaselines
from bigbird_dna.baselines.ngram import MaskedTokens
from bigbird_dna.console import log
from bigbird_dna.data.predictions import (
    MODEL,
    SPLIT,
    language_model_table,
)
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.model.directory import load_pretrained
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.pretraining.held_out import HeldOut
from bigbird_dna.pretraining.sampling import document_bounds
from bigbird_dna.tokens.store import TokenStore
from bigbird_dna.training.distributed import World

SPLITS = ("valid", "test")
CHOSEN_ON = "valid"


def hidden_in_documents(store: TokenStore, held_out: HeldOut) -> MaskedTokens:
    """Return the documents that contain hidden tokens, and the positions of the tokens in each."""
    bounds = document_bounds(store)
    document_of = np.searchsorted(bounds, held_out.tokens, side="right") - 1
    documents = np.unique(document_of)
    return MaskedTokens(
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


def evaluate_pretraining(
    path: Path,
    tokens: Path,
    output: Path,
    *,
    sequences: int = 1000,
    sequence_tokens: int | None = None,
    alone: bool = False,
    device: str = "auto",
) -> pd.DataFrame:
    """Write bits per base of a model and of baselines, with intervals, as TSV; return the table.

    In at most `sequences` inputs per split, 15% of the tokens are hidden. The baselines learn from the training tokens. They are chosen on hidden validation tokens, which favors
    them there; `alone` omits them. Without test tokens, the table covers only the validation contigs. Raises
    `UsageError` for inputs longer than the model's maximum, and `DataError` for unsuitable stores.
    """
    model = load_pretrained(path)
    assert isinstance(model.settings, PretrainingSettings)
    length = sequence_tokens or min(512, model.config.max_length)
    if length > model.config.max_length:
        raise UsageError(
            f"{length} tokens per input: the model takes at most {model.config.max_length}"
        )

    tokenizer = model.tokenizer
    stores = {
        split: TokenStore(tokens / split, tokenizer) for split in ("train", *SPLITS)
    }
    if not len(stores[CHOSEN_ON].tokens):
        raise DataError(
            f"{stores[CHOSEN_ON].directory}: contains no tokens; choosing baselines needs them"
        )

    held_out = {
        split: HeldOut.draw(
            stores[split],
            tokenizer,
            length,
            sequences,
            pairs=model.settings.next_sentence,
        )
        for split in SPLITS
        if len(stores[split].tokens)
    }
    world = World(0, 1, choose_device(device))
    network = model.network.to(world.device).eval()
    baselines: LanguageBaselines | None = None
    if not alone:
        documents = {
            split: hidden_in_documents(stores[split], hidden)
            for split, hidden in held_out.items()
        }
        baselines = LanguageBaselines(tokenizer).fit(
            training_documents(stores["train"]),
            documents[CHOSEN_ON],
            both_strands=stores["train"].info["strands"] == "both",
        )

    tables = []
    for split, hidden in held_out.items():
        count, total = len(hidden.inputs), len(hidden.labels)
        notes: dict[str, str] = {}
        rows = {}
        log(f"{split}: {total:,} hidden tokens of {count:,} inputs")
        with torch.inference_mode():
            rows[MODEL], _ = hidden.predict(network, tokenizer, world)

        if baselines is not None:
            rows |= baselines.bits(documents[split])
            notes |= baselines.notes

        table = language_model_table(rows, hidden.bases, hidden.blocks, notes)
        table.insert(0, SPLIT, split)
        tables.append(table)

    table_of_splits = pd.concat(tables, ignore_index=True)
    with atomic_path(output) as temporary:
        write_tsv(temporary, table_of_splits)

    return table_of_splits
