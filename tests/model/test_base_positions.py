"""Base positions: what tokens know of their bases' offsets from the TSS, against a loop over bases."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.model.bases import BasePositions
from bigbird_dna.model.batching import pad
from bigbird_dna.model.directory import (
    build_network,
    load_promoter_model,
    make_model,
    save,
)
from bigbird_dna.model.promoter import LoadedPromoterModel, promoter_rows
from bigbird_dna.model.settings import PromoterSettings
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer

UPSTREAM, DOWNSTREAM, WIDTH = 70, 30, 16
WINDOW = UPSTREAM + DOWNSTREAM
TOKENIZER = small_tokenizer()
CONFIG = small_encoder(TOKENIZER.vocabulary, layers=2)
SETTINGS = PromoterSettings(
    upstream=UPSTREAM,
    downstream=DOWNSTREAM,
    pooling="mean",
    jitter=6,
    views=3,
    base_positions=True,
)
WITHOUT = SETTINGS.model_copy(update={"base_positions": False})
WINDOWS = st.text("ACGTN", min_size=WINDOW, max_size=WINDOW)
CUTS = st.tuples(st.integers(0, 20), st.integers(0, 20))


def some_windows(count: int) -> list[str]:
    return [random_dna(WINDOW, seed) for seed in range(count)]


def model_of(settings: PromoterSettings, seed: int = 0) -> LoadedPromoterModel:
    model = random_model(TOKENIZER, CONFIG, settings, seed=seed, scale=2.0)
    assert isinstance(model, LoadedPromoterModel)
    return model


def by_loop(
    positions: BasePositions, window: str, left: int, row: np.ndarray
) -> torch.Tensor:
    """The vectors (L, D) of a row of tokens that begins `left` bp after its window does, base by base."""
    vectors = torch.zeros(len(row), positions.weight.shape[1])
    place = left
    for index, token in enumerate(row):
        for _ in range(int(TOKENIZER.piece_lengths[token])):
            if window[place] != "N":
                vectors[index] += positions.weight[
                    1 + 4 * place + "ACGT".index(window[place])
                ]
            place += 1
    return vectors


@settings(deadline=None)  # the first call of torch in a process is slow
@given(st.lists(st.tuples(WINDOWS, CUTS), min_size=1, max_size=4), st.integers(0, 4))
def test_a_token_gets_the_sum_over_its_bases(
    given_windows: list[tuple[str, tuple[int, int]]], padding: int
) -> None:
    windows, cuts = map(list, zip(*given_windows, strict=True))
    positions = BasePositions(WINDOW, WIDTH)
    positions.attach(TOKENIZER)
    torch.nn.init.normal_(positions.weight[1:])
    rows = promoter_rows(TOKENIZER, windows, cuts, SETTINGS, 128)
    assert rows.firsts.tolist() == [left for left, _ in cuts]
    ids, _ = pad(rows.ids, TOKENIZER.pad_id, max(map(len, rows.ids)) + padding)
    vectors = positions(ids, torch.from_numpy(rows.firsts))
    for number, row in enumerate(rows.ids):
        expected = by_loop(positions, windows[number], cuts[number][0], row)
        torch.testing.assert_close(
            vectors[number, : len(row)], expected, atol=1e-5, rtol=1e-5
        )
        assert not vectors[number, len(row) :].any()


def test_weights_of_zero_give_the_scores_of_a_model_without_them() -> None:
    torch.manual_seed(1)
    network = build_network(CONFIG, SETTINGS)
    torch.manual_seed(1)
    without = build_network(CONFIG, WITHOUT)
    assert not network.base_positions.weight.any()  # type: ignore[union-attr]
    windows = some_windows(12)
    scores = [
        make_model(net.eval(), TOKENIZER, CONFIG, settings).window_probabilities(
            windows, device="cpu"
        )  # type: ignore[attr-defined]
        for net, settings in ((network, SETTINGS), (without, WITHOUT))
    ]
    np.testing.assert_allclose(*scores, rtol=0, atol=1e-6)


@pytest.mark.parametrize("positions", [20, 128])
def test_batch_order_and_padding_change_nothing(positions: int) -> None:
    """With 20 positions the tokens around the TSS are kept: offsets are theirs, not those of all tokens."""
    config = CONFIG.model_copy(update={"max_length": positions})
    model = random_model(TOKENIZER, config, SETTINGS, scale=2.0)
    assert isinstance(model, LoadedPromoterModel)
    windows = [*some_windows(10), "N" * 30 + random_dna(WINDOW - 30, 77)]
    alone = [model.window_probabilities([one], device="cpu")[0] for one in windows]
    order = np.random.default_rng(0).permutation(len(windows))
    together = model.window_probabilities(
        [windows[i] for i in order], batch_size=3, device="cpu"
    )
    np.testing.assert_allclose(together, np.array(alone)[order], rtol=0, atol=1e-6)
    rows = promoter_rows(
        TOKENIZER, windows, [(0, 0)] * len(windows), SETTINGS, positions
    )
    covered = [TOKENIZER.decode(row[1:-1]) for row in rows.ids]
    places = [window.index(part) for window, part in zip(windows, covered, strict=True)]
    assert rows.firsts.tolist() == places
    assert max(map(len, rows.ids)) <= positions
    # Padded, as on a GPU, up to rounding.
    tokens = max(map(len, rows.ids)) + 5
    if tokens <= positions:
        ids, lengths = pad(rows.ids, TOKENIZER.pad_id, tokens)
        with torch.inference_mode():
            firsts = torch.from_numpy(rows.firsts)
            logits = model.network(ids, lengths, firsts=firsts)[:, 0]
        single = model.settings.model_copy(update={"views": 1})
        expected = LoadedPromoterModel(
            model.network, TOKENIZER, config, single
        ).window_probabilities(windows, device="cpu")
        np.testing.assert_allclose(torch.sigmoid(logits).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_gradients_reach_the_offsets_that_occur_and_no_others(pooling: str) -> None:
    settings = SETTINGS.model_copy(update={"pooling": pooling})
    network = model_of(settings).network
    windows, cuts = (
        ["N" * 50 + random_dna(WINDOW - 50, 1), random_dna(WINDOW, 2)],
        [(20, 0), (60, 10)],
    )
    rows = promoter_rows(TOKENIZER, windows, cuts, settings, 128)
    ids, lengths = pad(rows.ids, 0)
    network.train()
    network(ids, lengths, firsts=torch.from_numpy(rows.firsts)).sum().backward()
    assert (
        network.base_positions is not None
        and network.base_positions.weight.grad is not None
    )
    reached = {*network.base_positions.weight.grad.any(1).nonzero()[:, 0].tolist()}
    occurring = set()
    for window, (left, right) in zip(windows, cuts, strict=True):
        for place in range(left, WINDOW - right):
            if window[place] != "N":
                occurring.add(1 + 4 * place + "ACGT".index(window[place]))
    assert reached == occurring


def test_a_saved_model_gives_the_same_scores(tmp_path: Path) -> None:
    model = model_of(SETTINGS)
    save(tmp_path / "model", model, {}, {}, {})
    loaded = load_promoter_model(tmp_path / "model")
    assert loaded.settings == SETTINGS
    windows = some_windows(5)
    np.testing.assert_array_equal(
        loaded.window_probabilities(windows, device="cpu"),
        model.window_probabilities(windows, device="cpu"),
    )
