"""Masks of masked-language modelling."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.interface import mask_tokens
from tests.golden.messages import fails

VOCABULARY = 96  # of the fixture


@settings(deadline=None)
@given(
    ids=st.lists(st.integers(0, VOCABULARY - 1), max_size=80),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**32),
    dtype=st.sampled_from([np.uint16, np.int32, np.int64]),
    mean_span=st.sampled_from([1.0, 3.0, 50.0]),
)
def test_masks_keep_their_promises(
    tokenizer: DnaTokenizer, ids: list[int], fraction: float, seed: int, dtype: type, mean_span: float
) -> None:
    original = np.array(ids, dtype)
    original.flags.writeable = False
    rng = np.random.default_rng(seed)
    inputs, labels = mask_tokens(original, rng, fraction, tokenizer, mean_span=mean_span)
    chosen = labels != -100
    candidates = np.isin(original, tokenizer.base_ids)
    assert inputs.dtype == dtype and labels.dtype == np.int64
    assert not (chosen & ~candidates).any()
    least = min(1, int(candidates.sum()))
    assert chosen.sum() == max(least, round(fraction * int(candidates.sum())))
    assert (labels[chosen] == original[chosen]).all()
    assert (inputs[~chosen] == original[~chosen]).all()
    changed = inputs[inputs != original]
    assert np.isin(changed, [tokenizer.mask_id, *tokenizer.base_ids]).all()


def test_each_sequence_of_a_batch_has_its_share(tokenizer: DnaTokenizer) -> None:
    rng = np.random.default_rng(0)
    ids = rng.choice(tokenizer.base_ids, (4, 3, 100))
    ids[..., 0], ids[..., -1] = tokenizer.cls_id, tokenizer.sep_id
    ids[1, :, 60:] = tokenizer.pad_id
    inputs, labels = mask_tokens(ids, rng, 0.15, tokenizer)
    counts = (labels != -100).sum(-1)
    assert inputs.shape == labels.shape == ids.shape
    assert (counts[[0, 2, 3]] == 15).all()  # 14.7 of 98
    assert (counts[1] == 9).all()  # 8.85 of 59


def test_four_fifths_masked_a_tenth_replaced_a_tenth_kept(tokenizer: DnaTokenizer) -> None:
    rng = np.random.default_rng(1)
    ids = rng.choice(tokenizer.base_ids, 200_000)
    inputs, labels = mask_tokens(ids, rng, 0.5, tokenizer)
    now, was = inputs[labels != -100], ids[labels != -100]
    assert len(now) == 100_000
    masked = now == tokenizer.mask_id
    kept = now == was
    # A piece drawn at random is the same one in 1 of the pieces of bases.
    same = 0.1 / len(tokenizer.base_ids)
    assert masked.mean() == pytest.approx(0.8, abs=0.005)
    assert kept.mean() == pytest.approx(0.1 + same, abs=0.005)
    drawn = now[~masked & ~kept]
    uses = np.bincount(drawn, minlength=VOCABULARY)[tokenizer.base_ids]
    assert uses.sum() == len(drawn)
    assert uses.min() > 0.5 * uses.mean()


def test_every_place_is_chosen_equally_often(tokenizer: DnaTokenizer) -> None:
    ids = np.full((5000, 10), tokenizer.base_ids[0])
    _, labels = mask_tokens(ids, np.random.default_rng(2), 0.3, tokenizer)
    assert (labels != -100).mean(0) == pytest.approx(np.full(10, 0.3), abs=0.03)


@pytest.mark.parametrize("mean", [1, 2, 4])
def test_spans_have_their_mean_length_and_every_place_its_share(tokenizer: DnaTokenizer, mean: float) -> None:
    ids = np.full((200, 2000), tokenizer.base_ids[0])
    _, labels = mask_tokens(ids, np.random.default_rng(2), 0.1, tokenizer, mean_span=mean)
    hidden = labels != -100
    assert (hidden.sum(-1) == 200).all()
    assert hidden.mean(0) == pytest.approx(np.full(2000, 0.1), abs=0.12)
    starts = hidden & ~np.pad(hidden, ((0, 0), (1, 0)))[:, :-1]
    # A run goes on by its own length, or where the next one is hidden as well.
    stays = 1 - 1 / mean
    assert hidden.sum() / starts.sum() == pytest.approx(1 / (1 - stays - (1 - stays) * 0.1), rel=0.06)


def test_deterministic_by_generator_and_refused_by_fraction(tokenizer: DnaTokenizer) -> None:
    ids = np.tile(tokenizer.base_ids, 3)
    masks = [mask_tokens(ids, np.random.default_rng(seed), 0.15, tokenizer) for seed in (3, 3, 4)]
    np.testing.assert_array_equal(masks[0], masks[1])
    assert (masks[0].labels != masks[2].labels).any()
    for fraction in (0, 1, -0.1, 1.5):
        with fails(ValueError, fraction):
            mask_tokens(ids, np.random.default_rng(0), fraction, tokenizer)


def test_hiding_all_leaves_no_chosen_token_in_sight(tokenizer: DnaTokenizer) -> None:
    ids = np.random.default_rng(3).integers(0, VOCABULARY, (4, 200)).astype(np.int32)
    hidden = mask_tokens(ids, np.random.default_rng(7), 0.15, tokenizer, hide_all=True)
    usual = mask_tokens(ids, np.random.default_rng(7), 0.15, tokenizer)
    chosen = hidden.labels != -100
    assert (hidden.inputs[chosen] == tokenizer.mask_id).all() and chosen.any()
    assert (hidden.inputs[~chosen] == ids[~chosen]).all() and hidden.inputs.dtype == ids.dtype
    np.testing.assert_array_equal(hidden.labels, usual.labels)
