"""The measure itself: on a source whose entropy is known, nothing knows more of a hidden base than there is.

Models that `pretrain` makes, of masked tokens of a base each, and all baselines are evaluated by `evaluate
pretraining`'s code on sequence of a Markov source. The oracle is the source itself: the exact chances of the very
same hidden bases, given those that are seen.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from bigbird_dna.baselines.language import (
    BASES_BOTH,
    TOKENS_BOTH,
    UNIGRAM,
)
from bigbird_dna.config.reading import parse_config
from bigbird_dna.data.predictions import MODEL, SPLIT, UNIFORM
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.metrics.resampling import bits_per_base
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
    **{
        "batch_size": 32,
        "sequence_tokens": TOKENS,
        "evaluation_sequences": 32,
        "precision": "float32",
    },
    **{"evaluate_every": 10_000, "checkpoint_minutes": 10},
    "optimizer": {"learning_rate": 0.01, "warmup_steps": 30},
}


def letters(codes: np.ndarray) -> str:
    return "".join("ACGT"[code] for code in codes)


def pretrain(
    home: Path,
    source: Source,
    bases: int,
    encoder: dict[str, Any],
    training: dict[str, Any],
    *pieces: Any,
) -> dict[str, Any]:
    """Pretrain `home/model` on the source, by a tokenizer that learns from `pieces`; its metrics."""
    with (home / "genome.fa").open("w") as stream:
        for seed, (contig, size) in enumerate(
            {"train": bases, "valid": 60_000, "test": 120_000}.items()
        ):
            stream.write(f">{contig}\n{letters(source.sample(size, seed))}\n")
    prepare_reference(home / "genome.fa", home / "genome.fa.gz")
    tokens = home / "tokens"
    tokens.mkdir()
    texts, *sizes = pieces
    DnaTokenizer.train(texts, tokens / "tokenizer.model", *sizes)
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
    tokenize(config, home / "genome.fa.gz", tokens / "tokenizer.model", tokens)
    task = PretrainingTask(config, tokens, tokens / "tokenizer.model")
    return train(
        task, home / "model", home / "checkpoints", World(0, 1, torch.device("cpu"))
    )


@contextmanager
def evaluating() -> Iterator[list[tuple[Any, ...]]]:
    """What tables are made of meanwhile."""
    given: list[tuple[Any, ...]] = []
    table_of = evaluation.language_model_table

    def noting(*values: Any, **named: Any) -> Any:
        given.append(values)
        return table_of(*values, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "language_model_table", noting)
        yield given


class EvaluatedTokens(NamedTuple):
    """Bits (M,) of hidden test bases by predictor, the blocks (M,) they are in, and what the source says."""

    bits: dict[str, np.ndarray]
    blocks: np.ndarray
    of_inputs: np.ndarray  # (M,) given what is seen of the same input, as the model
    of_documents: (
        np.ndarray
    )  # (M,) given what is seen of the same document, as the baselines
    told: np.ndarray  # (M,) given all other bases of the document


def judge(
    home: Path,
    source: Source,
    bases: int,
    encoder: dict[str, Any],
    training: dict[str, Any],
) -> EvaluatedTokens:
    """Pretrain on sequence of the source, a token for each base, and evaluate on other sequence of it."""
    pretrain(home, source, bases, encoder, training, ["ACGT" * 10], 10, 1)
    tokens, sizes = home / "tokens", {"sequences": EVERY, "sequence_tokens": TOKENS}
    tokenizer = DnaTokenizer.load(tokens / "tokenizer.model")
    with evaluating() as given:
        table = evaluation.evaluate_pretraining(
            home / "model",
            tokens,
            home / "bits.tsv",
            **sizes,
        )
    bits, _, blocks, _ = given[-1]  # of the test contig
    rows = table[table[SPLIT] == "test"].set_index("predictor")["bits_per_base"]
    assert dict(rows) == pytest.approx(
        {name: values.mean() for name, values in bits.items()}
    )
    store = TokenStore(tokens / "test", tokenizer)
    held_out = HeldOut.draw(store, tokenizer, TOKENS, EVERY, pairs=False)
    documents = evaluation.hidden_in_documents(store, held_out)
    codes = np.full(tokenizer.vocabulary, 4)
    codes[[tokenizer.encode(base)[0] for base in "ACGT"]] = range(4)
    labels = codes[held_out.labels]
    inputs = [codes[row.ids[1:-1]] for row in held_out.inputs]
    places = [own - 1 for own in held_out.positions]
    whole = [codes[document] for document in documents.documents]
    return EvaluatedTokens(
        bits,
        blocks,
        known(source, inputs, places, labels, told=False),
        known(source, whole, documents.hidden, labels, told=False),
        known(source, whole, documents.hidden, labels, told=True),
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


def check(evaluated: EvaluatedTokens, source: Source) -> None:
    """The model comes within 2 % of what the source knows; neither it nor a baseline gets below that."""
    assert {*evaluated.bits} == {MODEL, UNIFORM, UNIGRAM, TOKENS_BOTH, BASES_BOTH}
    assert evaluated.bits[MODEL].mean() < 1.02 * evaluated.of_inputs.mean()
    assert not surely_below(evaluated, evaluated.bits[MODEL], evaluated.of_inputs)
    for name, bits in evaluated.bits.items():
        assert not surely_below(evaluated, bits, evaluated.of_documents), name
    # What tells an interval of nothing from one of something: each sees less than the one after it.
    grades = [
        evaluated.bits[UNIGRAM],
        evaluated.of_inputs,
        evaluated.of_documents,
    ]
    for less, more in pairwise([evaluated.bits[UNIFORM], *grades, evaluated.told]):
        assert surely_below(evaluated, more, less)


def surely_below(
    evaluated: EvaluatedTokens, bits: np.ndarray, least: np.ndarray
) -> bool:
    """Whether bits are below what the source needs by more than the interval over blocks."""
    rates = bits_per_base(
        {"source": least, "other": bits}, np.ones(len(bits)), evaluated.blocks, "source"
    )
    return rates["other"].difference.low > 0  # the source's minus the other's


@pytest.mark.slow
def test_a_model_and_baselines_never_beat_a_source_of_known_entropy(
    tmp_path: Path,
) -> None:
    source = Source(1, seed=1, concentration=1.0)
    training = {"steps": 150}
    check(
        judge(tmp_path, source, 300_000, {"hidden": 32, "heads": 2}, training), source
    )
