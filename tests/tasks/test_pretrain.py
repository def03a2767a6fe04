"""Sentence pairs and the pretraining objective."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bigbird_dna.config import load_config, parse_config
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.directory import build_network
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.tasks.pretrain import PairSampler, PretrainingObjective, ngram_baseline, pretrain
from bigbird_dna.tokens.store import TokenStore
from bigbird_dna.tokens.tokenizer import DnaTokenizer
from bigbird_dna.training.distributed import World

ALONE = World(0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def objective(tiny_config: Path) -> PretrainingObjective:
    config = load_config(tiny_config)
    tokens = Path(config.results) / "tokens"
    tokenizer = DnaTokenizer.load(tokens / "tokenizer.model")
    stores = (TokenStore.open(tokens / split, tokenizer) for split in ("train", "valid"))
    return PretrainingObjective(tokenizer, *stores, config.pretraining, ALONE)


def test_pairs_fill_the_input_and_half_of_them_follow(objective: PretrainingObjective) -> None:
    sampler = objective.sampler
    rng = np.random.default_rng(0)
    pairs = [sampler.draw(rng) for _ in range(600)]
    lengths = np.array([len(pair.a) + len(pair.b) + 3 for pair in pairs])
    assert lengths.max() <= 96 and np.mean(lengths == 96) > 0.8
    assert all(len(pair.a) and len(pair.b) for pair in pairs)
    assert abs(np.mean([pair.follows for pair in pairs]) - 0.5) < 0.08
    stored = np.asarray(sampler.store.tokens).tobytes()
    width = sampler.store.tokens.dtype.itemsize
    for pair in pairs[:50]:
        both = np.concatenate([pair.a, pair.b]).astype(sampler.store.tokens.dtype).tobytes()
        places = [stored.find(both)]
        while places[-1] >= 0 and places[-1] % width:
            places.append(stored.find(both, places[-1] + 1))
        assert (places[-1] >= 0) == pair.follows


def test_without_next_sentences_every_pair_follows(objective: PretrainingObjective) -> None:
    sampler = PairSampler(objective.sampler.store, 96, next_sentence=False)
    rng = np.random.default_rng(0)
    assert all(sampler.draw(rng).follows for _ in range(50))


def test_a_batch_is_a_function_of_its_place_in_the_step(objective: PretrainingObjective) -> None:
    whole = objective.batch(3, 0, 4)
    again = objective.batch(3, 0, 4)
    part = objective.batch(3, 2, 2)
    assert all(torch.equal(whole[key], again[key]) for key in whole)
    width = part["ids"].shape[1]
    assert torch.equal(whole["ids"][2:, :width], part["ids"])
    assert not torch.equal(whole["ids"], objective.batch(4, 0, 4)["ids"])


def test_a_batch_is_laid_out_as_cls_a_sep_b_sep(objective: PretrainingObjective) -> None:
    batch, tokenizer = objective.batch(0, 0, 4), objective.tokenizer
    for row, length, segments in zip(batch["ids"], batch["lengths"], batch["segments"], strict=True):
        ids = row[:length].tolist()
        assert ids[0] == tokenizer.cls_id and ids[-1] == tokenizer.sep_id
        middle = ids.index(tokenizer.sep_id)
        assert ids.count(tokenizer.sep_id) == 2
        assert segments[: middle + 1].sum() == 0 and segments[middle + 1 : length].all()
    flat = batch["ids"].flatten()[batch["masked"]]
    assert (flat == tokenizer.mask_id).float().mean() > 0.5
    assert len(batch["masked"]) == len(batch["labels"]) > 0


def test_an_untrained_network_knows_about_nothing(objective: PretrainingObjective, tiny_config: Path) -> None:
    """Near-uniform predictions cost log2(vocabulary) bits a token, the oracle for bits per base."""
    config = load_config(tiny_config).encoder
    torch.manual_seed(0)
    vocabulary = objective.tokenizer.vocabulary
    encoder = config.model_copy(update={"vocabulary": vocabulary})
    network = build_network(encoder, PretrainingSettings()).eval()
    with torch.inference_mode():
        figures = objective.evaluate(network)
    batch = objective._batch(objective.held_out, [(objective.config.seed, 1, i) for i in range(8)])
    bases = objective.piece_lengths[batch["labels"]].double().mean().item()
    assert figures["bits_per_base"] == pytest.approx(np.log2(vocabulary) / bases, rel=0.05)
    assert objective.evaluate(network) == figures


def test_the_best_order_of_the_ngram_baseline_is_reported(
    objective: PretrainingObjective, tiny_config: Path
) -> None:
    """On random sequence no context helps, and a unigram costs the entropy of the tokens."""
    config = load_config(tiny_config).pretraining
    stores = (objective.sampler.store, objective.held_out.store)
    best = ngram_baseline(*stores, objective.tokenizer, config)
    orders = [
        ngram_baseline(*stores, objective.tokenizer, config.model_copy(update={"ngram_order": order}))
        for order in (1, 2, 3)
    ]
    assert best == min(orders) and 1 <= best.order <= 3
    assert [found.bits_per_base for found in orders] == sorted(
        (found.bits_per_base for found in orders), reverse=True
    )
    assert 1.9 < best.bits_per_base < 2.2


def test_inputs_of_the_default_length_need_positions_as_well(tmp_path: Path) -> None:
    config = parse_config({"encoder": {"positions": 256}})
    paths = [tmp_path / name for name in ("tokens", "tokenizer.model", "model", "checkpoints")]
    with pytest.raises(ConfigError, match=r"sequence_tokens 512 is above encoder\.positions 256"):
        pretrain(config, *paths, ALONE)
