"""The measure itself: on a source whose entropy is known, nothing knows more of a hidden base than there is.

A model that `pretrain` makes and all baselines are judged by `evaluate pretraining`'s code on sequence of a
Markov source, a token for each base. The oracle is the source itself: the exact chances of the very same
hidden bases, given those that are seen.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from bigbird_dna.baselines.language import BASES_BOTH, BASES_LEFT, PREDICTORS, UNIGRAM
from bigbird_dna.config import parse_config
from bigbird_dna.data.bits_per_base import MODELS, ONE_AT_A_TIME, SPLIT, UNIFORM
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.metrics.resampling import bits_per_base
from bigbird_dna.pretraining import baselines as rivals
from bigbird_dna.pretraining import evaluation
from bigbird_dna.pretraining.held_out import HeldOut
from bigbird_dna.pretraining.task import PretrainingTask
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.encode import tokenize
from bigbird_dna.tokens.store import TokenStore
from bigbird_dna.training.distributed import World
from bigbird_dna.training.task import train
from tests.baselines.sources import Source

TOKENS = 64  # of an input
EVERY = 10**6  # inputs: all that there are
ENCODER = {
    "layers": 2,
    "max_length": TOKENS,
    "position_encoding": "rotary",
    "attention": "full",
    "dropout": 0.0,
}
TRAINING = {
    **{"batch_size": 32, "sequence_tokens": TOKENS, "evaluation_sequences": 32, "precision": "float32"},
    **{"evaluate_every": 10_000, "checkpoint_every": 10_000},
}


class Judged(NamedTuple):
    """Bits (M,) of hidden test bases by predictor, the blocks (M,) they are in, and what the source says."""

    bits: dict[str, np.ndarray]
    blocks: np.ndarray
    of_inputs: np.ndarray  # (M,) given what is seen of the same input, as the model
    of_documents: np.ndarray  # (M,) given what is seen of the same document, as the baselines
    told: np.ndarray  # (M,) given all other bases of the document
    told_of_inputs: np.ndarray  # (M,) given all other bases of the input


def judge(
    home: Path, source: Source, bases: int, encoder: dict[str, Any], training: dict[str, Any]
) -> Judged:
    """Pretrain on sequence of the source, and judge on other sequence of it."""
    with (home / "genome.fa").open("w") as stream:
        for seed, (contig, size) in enumerate({"train": bases, "valid": 60_000, "test": 120_000}.items()):
            stream.write(f">{contig}\n{''.join('ACGT'[code] for code in source.sample(size, seed))}\n")
    prepare_reference(home / "genome.fa", home / "genome.fa.gz")
    tokens, pieces = home / "tokens", home / "tokens/tokenizer.model"
    tokens.mkdir()
    tokenizer = DnaTokenizer.train(["ACGT" * 10], pieces, 10, 1)
    config = parse_config(
        {
            "genome": {"assembly": "demo", "valid": ["valid"], "test": ["test"]},
            "tokens": {
                "genome_passes": 1,
                "max_start_offset": 0,
                "sentences_per_document": [5, 10],
                "strands": "forward",
            },
            "encoder": {**ENCODER, **encoder},
            "pretraining": {**TRAINING, **training},
        }
    )
    tokenize(config, home / "genome.fa.gz", pieces, tokens)
    alone = World(0, 1, torch.device("cpu"))
    train(PretrainingTask(config, tokens, pieces), home / "model", home / "checkpoints", alone)
    given: list[tuple[Any, ...]] = []
    with pytest.MonkeyPatch.context() as patch:
        table_of = evaluation.language_model_table
        patch.setattr(
            evaluation,
            "language_model_table",
            lambda *values, **named: given.append(values) or table_of(*values, **named),
        )
        patch.setattr(evaluation, "TOLD_TOKENS", EVERY * TOKENS)
        # Tables of longer words take seconds to be zeroed.
        patch.setattr(
            rivals,
            "fit_language_baselines",
            partial(rivals.fit_language_baselines, base_order=source.order + 3),
        )
        table = evaluation.evaluate_pretraining(
            home / "model",
            tokens,
            home / "bits.tsv",
            sequences=EVERY,
            sequence_tokens=TOKENS,
            token_order=source.order + 3,
        )
    (plain, _, blocks, _), (rest, *_) = given[-2:]  # of the test contig
    bits = plain | rest
    rows = table[table[SPLIT] == "test"].set_index("predictor")["bits_per_base"]
    assert dict(rows) == pytest.approx({name: values.mean() for name, values in bits.items()})
    store = TokenStore.open(tokens / "test", tokenizer)
    held_out = HeldOut.draw(store, tokenizer, TOKENS, EVERY, pairs=False)
    documents = rivals.hidden_in_documents(store, held_out)
    codes = np.full(tokenizer.vocabulary, 4)
    codes[[tokenizer.encode(base)[0] for base in "ACGT"]] = range(4)
    labels = codes[held_out.labels]
    inputs = [codes[row.ids[1:-1]] for row in held_out.inputs]
    places = [own - 1 for own in held_out.places]
    ends = np.cumsum([len(own) for own in places])
    shown = [text.copy() for text in inputs]
    for text, own, values in zip(shown, places, np.split(labels, ends[:-1]), strict=True):
        text[own] = values
    whole = [codes[document] for document in documents.documents]
    return Judged(
        bits,
        blocks,
        known(source, inputs, places, labels, told=False),
        known(source, whole, documents.hidden, labels, told=False),
        known(source, whole, documents.hidden, labels, told=True),
        known(source, shown, places, labels, told=True),
    )


def known(
    source: Source,
    texts: Sequence[np.ndarray],
    places: Sequence[np.ndarray],
    labels: np.ndarray,
    *,
    told: bool,
) -> np.ndarray:
    """Bits (M,) that the source needs for `labels` at `places` of texts; `told`: given each other's bases."""
    seen = np.full((len(texts), max(map(len, texts))), 4)
    asked = np.zeros(seen.shape, bool)
    for number, (text, own) in enumerate(zip(texts, places, strict=True)):
        seen[number, : len(text)] = text
        asked[number, own] = True
    chances = source.given_all_others(seen if told else np.where(asked, 4, seen))[asked]
    return np.asarray(-np.log2(chances[np.arange(len(labels)), labels]))


def check(judged: Judged, source: Source) -> None:
    """The model comes within 2 % of what the source knows; neither it nor a baseline gets below that."""
    assert {*judged.bits} == {*MODELS, *PREDICTORS}
    for name, least in zip(MODELS, (judged.of_inputs, judged.told_of_inputs), strict=True):
        assert judged.bits[name].mean() < 1.02 * least.mean(), name
        assert not surely_below(judged, judged.bits[name], least), name
    for name, bits in judged.bits.items():
        least = judged.told if name.endswith(ONE_AT_A_TIME) else judged.of_documents
        assert not surely_below(judged, bits, least), name
    # What tells an interval of nothing from one of something: each sees less than the one after it.
    grades = [
        judged.bits[UNIGRAM],
        judged.bits[BASES_LEFT + ONE_AT_A_TIME],
        judged.of_inputs,
        judged.of_documents,
    ]
    for less, more in pairwise([judged.bits[UNIFORM], *grades, judged.told]):
        assert surely_below(judged, more, less)
    assert judged.bits[BASES_LEFT + ONE_AT_A_TIME].mean() == pytest.approx(source.entropy, rel=0.01)
    assert judged.bits[BASES_BOTH + ONE_AT_A_TIME].mean() == pytest.approx(judged.told.mean(), rel=0.01)


def surely_below(judged: Judged, bits: np.ndarray, least: np.ndarray) -> bool:
    """Whether bits are below what the source needs by more than the interval over blocks."""
    rates = bits_per_base({"source": least, "other": bits}, np.ones(len(bits)), judged.blocks, "source")
    return rates["other"].difference.low > 0  # the source's minus the other's


def test_a_model_and_baselines_never_beat_a_source_of_known_entropy(tmp_path: Path) -> None:
    source = Source(1, seed=1, concentration=1.0)
    training = {"steps": 150, "optimizer": {"learning_rate": 0.01, "warmup_steps": 30}}
    check(judge(tmp_path, source, 300_000, {"hidden": 32, "heads": 2}, training), source)


@pytest.mark.slow
def test_nor_do_they_beat_one_that_looks_two_bases_back(tmp_path: Path) -> None:
    source = Source(2, seed=1, concentration=1.5)
    training = {"steps": 1000, "optimizer": {"learning_rate": 5e-3, "warmup_steps": 30}}
    check(judge(tmp_path, source, 1_500_000, {"hidden": 64, "heads": 4}, training), source)
