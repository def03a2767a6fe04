"""The ensemble of network and `position` baseline: log-odds add up, and a useless member gets no weight."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.baselines.kmers import PositionLogistic
from bigbird_dna.config import EncoderConfig
from bigbird_dna.finetuning.promoters import EQUAL, SplitWindows, add_position_member, fit_members
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.model.settings import PromoterSettings
from tests.toys import random_dna, random_model, small_tokenizer

TOKENIZER = small_tokenizer()
CONFIG = EncoderConfig(
    vocabulary=TOKENIZER.vocabulary, layers=1, hidden=16, heads=2, positions=128, block_size=8
)
BOTH = PromoterSettings(
    upstream=40, downstream=20, pooling="mean", jitter=0, views=1, base_positions=True, ensemble=True
)


def windows(count: int, seed: int) -> SplitWindows:
    """Every second one, a promoter, tends to have an A 10 bp before the TSS."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(count) % 2).astype(np.uint8)
    texts = [random_dna(60, 1000 * seed + number) for number in range(count)]
    marked = [
        text[:30] + "A" + text[31:] if label and rng.random() < 0.8 else text
        for text, label in zip(texts, labels, strict=True)
    ]
    return SplitWindows(marked, labels, labels == 1, np.zeros(count, np.int64))


def logits(probabilities: np.ndarray) -> np.ndarray:
    given_ = probabilities.astype(np.float64)
    return np.asarray(np.log(given_ / (1 - given_)))


@pytest.mark.parametrize("base_positions", [True, False])
@pytest.mark.parametrize("has_valid", [True, False])
def test_log_odds_add_up(base_positions: bool, has_valid: bool) -> None:
    settings = BOTH.model_copy(update={"base_positions": base_positions})
    model = random_model(TOKENIZER, CONFIG, settings, scale=2.0)
    assert isinstance(model, LoadedPromoterModel) and model.network.position_member is not None
    assert (model.network.base_positions is not None) == base_positions
    learned, valid, test = windows(200, 1), windows(60, 2), windows(80, 3)

    def predict(texts: list[str]) -> np.ndarray:
        return model.window_probabilities(texts, device="cpu")

    alone = logits(predict(test.sequences))
    baseline = PositionLogistic(1).fit(learned.sequences, learned.labels)
    members = add_position_member(model, learned, valid if has_valid else None, predict, 1)
    assert (members == EQUAL) == (not has_valid)
    position = baseline.logits(test.sequences)
    expected = members.network * alone + members.position * position + members.intercept
    found = logits(predict(test.sequences))
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert auroc(test.labels, found).value > auroc(test.labels, alone).value


@settings(deadline=None)
@given(st.integers(0, 1000))
def test_weights_are_not_negative_and_useful_members_are_used(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = np.arange(400) % 2
    good, noise = 2 * labels - 1 + rng.normal(size=400), rng.normal(size=400)
    members = fit_members(good, noise, labels)
    assert members.network > 1 and 0 <= members.position < 0.5
    swapped = fit_members(noise, good, labels)
    assert swapped.position == pytest.approx(members.network, rel=1e-3)
    assert swapped.network == pytest.approx(members.position, abs=1e-3)
    assert fit_members(good, -good, labels).position == 0
    assert fit_members(-good, -good - noise, labels) == EQUAL


def test_a_member_that_was_not_fitted_adds_nothing() -> None:
    """A training that is not finished has none yet; the network learns without it."""
    torch.manual_seed(0)
    model = random_model(TOKENIZER, CONFIG, BOTH, scale=2.0)
    assert isinstance(model, LoadedPromoterModel) and model.network.position_member is not None
    assert not model.network.position_member.weight.any()
    assert "position_member.weight" in model.network.state_dict()
    assert not any(name.startswith("position_member") for name, _ in model.network.named_parameters())
