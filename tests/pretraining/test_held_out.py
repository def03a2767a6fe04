"""What is measured on lies where something can be predicted, and a figure that is no number stays one."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from bigbird_dna.config import EncoderConfig, PretrainingConfig
from bigbird_dna.errors import DataError
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.pretraining.sampling import HeldOut
from bigbird_dna.pretraining.task import PretrainingObjective
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.training.distributed import World
from tests.golden.messages import fails

ALONE = World(0, 1, torch.device("cpu"))
TOKENS = 18  # of an input, 16 of them the store's


class Made(NamedTuple):
    """A store in memory, of one sentence."""

    directory: Path
    tokens: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray


Make = Callable[[str], Made]


@pytest.fixture
def make(tokenizer: DnaTokenizer) -> Make:
    """A store of inputs, a letter each: b of bases, n of N, l of bases and then N."""
    (gap,) = tokenizer.encode("N")

    def made(letters: str) -> Made:
        rows = np.random.default_rng(0).choice(tokenizer.base_ids, (len(letters), TOKENS - 2))
        for row, letter in zip(rows, letters, strict=True):
            row[{"b": TOKENS, "n": 0, "l": (TOKENS - 2) // 2}[letter] :] = gap
        size = rows.size
        return Made(Path("held-out"), rows.ravel(), np.array([0, size]), np.array([0, 1]))

    return made


def chosen(store: Made, tokenizer: DnaTokenizer, count: int, *, causal: bool = False) -> list[int]:
    """Numbers of the inputs that are measured on; each has something to predict."""
    held_out = HeldOut.draw(store, tokenizer, TOKENS, count, pairs=False, causal=causal)
    assert all(len(own) for own in held_out.places)
    inputs = np.unique(held_out.tokens // (TOKENS - 2)).tolist()
    assert len(inputs) == len(held_out.inputs)
    return [int(number) for number in inputs]


@pytest.mark.parametrize(
    ("letters", "count", "expected"),
    [
        ("bbbbbbbbb", 3, [0, 4, 8]),
        ("lbblbbbll", 3, [0, 4, 8]),  # some bases are enough
        ("nnbbbbbnn", 3, [2, 4, 6]),
        ("nnbbbbbnn", 1, [2]),
        ("nnnnnnnbn", 3, [7]),
        ("nnnbbbnnn", 2, [3, 5]),
        ("bnbnbnbnb", 5, [0, 2, 4, 6, 8]),
        ("nnnnbbbbbb", 4, [4, 5, 6, 9]),  # an input that is taken already isn't taken twice
        ("nbnbnbnbn", 100, [1, 3, 5, 7]),
    ],
)
def test_inputs_of_n_alone_give_way_to_the_nearest_of_bases(
    make: Make, tokenizer: DnaTokenizer, letters: str, count: int, expected: list[int]
) -> None:
    assert chosen(make(letters), tokenizer, count) == expected


def test_a_causal_model_needs_bases_in_the_second_half(make: Make, tokenizer: DnaTokenizer) -> None:
    assert chosen(make("lnbbbbbbl"), tokenizer, 3, causal=True) == [2, 4, 7]
    with fails(DataError):
        chosen(make("lnnl"), tokenizer, 3, causal=True)


@pytest.mark.parametrize("pairs", [False, True])
def test_a_store_of_n_alone_is_refused_before_the_training(
    make: Make, tokenizer: DnaTokenizer, pairs: bool
) -> None:
    config = PretrainingConfig(sequence_tokens=TOKENS + pairs, next_sentence=pairs)
    train = make("bbbb")._replace(sentences=np.array([0, 32, 64]), documents=np.array([0, 1, 2]))
    with fails(DataError, "held-out", TOKENS + pairs):
        PretrainingObjective(tokenizer, train, make("nnnn"), config, ALONE)


@pytest.fixture
def network(tokenizer: DnaTokenizer) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"layers": 1, "hidden": 16, "heads": 2, "max_length": 32, "block_size": 8, "random_blocks": 0}
    encoder = EncoderConfig(**sizes, vocabulary=tokenizer.vocabulary)
    return PretrainingNetwork(encoder, next_sentence=False).eval()


def test_contigs_that_begin_and_end_with_n_are_measured_on(
    make: Make, tokenizer: DnaTokenizer, network: nn.Module
) -> None:
    for count in (1, 2, 3, 8):
        config = PretrainingConfig(sequence_tokens=TOKENS, evaluation_sequences=count)
        objective = PretrainingObjective(tokenizer, make("b"), make("nnnbbbbbbnnn"), config, ALONE)
        assert len(objective.held_out.inputs) == min(count, 6)
        with torch.inference_mode():
            assert objective.evaluate(network)["bits_per_base"] > 0


def test_bits_that_are_no_numbers_are_not_left_out(
    make: Make, tokenizer: DnaTokenizer, network: nn.Module
) -> None:
    """Of each process's share: NaN is no sign that a token is another one's."""
    held_out = HeldOut.draw(make("b" * 40), tokenizer, TOKENS, 40, pairs=False)
    with torch.inference_mode():
        shares = [held_out.bits(network, tokenizer, ALONE.device, rank, 2).own for rank in range(2)]
        assert (shares[0] ^ shares[1]).all() and shares[0].any() and shares[1].any()
        assert held_out.bits(network, tokenizer, ALONE.device).own.all()
        network.encoder.embeddings.token.weight[tokenizer.base_ids[5]] = float("nan")
        wrong = held_out.bits(network, tokenizer, ALONE.device, 0, 2)
        assert np.isnan(wrong.bits[wrong.own]).any() and (wrong.own == shares[0]).all()
        config = PretrainingConfig(sequence_tokens=TOKENS, evaluation_sequences=40)
        objective = PretrainingObjective(tokenizer, make("b"), make("b" * 40), config, ALONE)
        assert np.isnan(objective.evaluate(network)["bits_per_base"])
