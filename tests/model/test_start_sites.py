"""Models of start sites: what a probability depends on, and which bases are read for it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bigbird_dna
from bigbird_dna.genome.sequence import UNKNOWN, base_codes, reverse_complement
from bigbird_dna.model.batching import View, pad
from bigbird_dna.model.directory import save
from bigbird_dna.model.start_sites import SHORTEST, site_inputs
from tests.toys import random_dna, small_tokenizer, start_site_model

MODEL = start_site_model()
LENGTHS = [120, 61, 300, 97, 80, 333]
TEXTS = [random_dna(length, seed) for seed, length in enumerate(LENGTHS)]


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-6, rtol=0)


def test_a_prediction_depends_on_its_sequence_alone() -> None:
    alone = [MODEL.predict(text)[0] for text in TEXTS]
    assert [values.shape for values in alone] == [(2, length) for length in LENGTHS]
    assert all(0.01 < values.std() < 1 for values in alone)
    for options in ({}, {"batch_size": 1}, {"batch_size": 3}):
        for found, expected in zip(MODEL.predict(TEXTS, **options), alone, strict=True):
            close(found, expected)

    turned = MODEL.predict([text.lower() for text in TEXTS[::-1]])
    for found, expected in zip(turned[::-1], alone, strict=True):
        close(found, expected)

    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for found, expected in zip(MODEL.predict(TEXTS), alone, strict=True):
            close(found, expected)
    finally:
        torch.set_num_threads(threads)

    many = MODEL.predict([TEXTS[0]] * 40)  # more windows than are read at once
    assert many.shape == (40, 2, 120)
    close(many, np.broadcast_to(alone[0], many.shape))


def test_what_fills_a_batch_does_not_matter() -> None:
    inputs = site_inputs(MODEL.tokenizer, [text[:120] for text in TEXTS], 160)
    bases, owners = inputs.stacked(range(len(TEXTS)))
    ids, lengths = pad(inputs.ids, MODEL.tokenizer.pad_id)
    with torch.inference_mode():
        filled = MODEL.network(bases, ids, lengths, owners)
        one_hot = torch.eye(5)[bases.long()][..., :4].transpose(1, 2)
        close(MODEL.network(one_hot, ids, lengths, owners), filled)
        for number, logits in enumerate(filled):
            size = len(inputs.bases[number])
            row, single = inputs.ids[number], inputs.stacked([number])
            tensors = torch.from_numpy(row)[None], torch.tensor([len(row)])
            alone = MODEL.network(single[0], *tensors, single[1])[0]
            np.testing.assert_allclose(logits[:, :size], alone, atol=1e-4)


@pytest.mark.parametrize("window", [120, 121])
def test_the_reverse_complement_has_the_mirror_image(window: int) -> None:
    model = start_site_model(window=window)
    texts = [text[: 80 - 7 * number] for number, text in enumerate(TEXTS[:3])]
    turned = [reverse_complement(text) for text in texts]
    for found, expected in zip(
        model.predict(turned), model.predict(texts), strict=True
    ):
        close(found[::-1, ::-1], expected)
        assert abs(found - expected).max() > 0.05

    # One base of a window, on its own strand.
    texts = [random_dna(window, seed) for seed in range(3)]
    turned = [reverse_complement(text) for text in texts]
    views = [View(), View(turned=True)]
    one, other = model.view_scores(texts, views)[..., 0]
    alone = [
        model.window_probabilities(some, both_strands=False) for some in (texts, turned)
    ]
    before, after = model.tss_reach
    assert before + after == window
    close(1 / (1 + np.exp(-one)), alone[0][:, 0, before])
    close(1 / (1 + np.exp(-other)), alone[1][:, 1, after - 1])
    close(
        (alone[0][:, 0, before] + alone[1][:, 1, after - 1]) / 2,
        model.window_probabilities(texts)[:, 0, before],
    )
    # Cut windows and other tokens are of the same base.
    for cut in ((0, 9), (4, 5)):
        parts = [text[cut[0] : window - cut[1]] for text in texts]
        shorter = model.window_probabilities(parts, both_strands=False)
        (scores,) = model.view_scores(texts, [View(cut=cut)])[..., 0]
        close(1 / (1 + np.exp(-scores)), shorter[:, 0, before - cut[0]])


@given(
    st.integers(SHORTEST, 700),
    st.integers(1, 150),
    st.integers(1, 50),
    st.integers(0, 40),
)
def test_windows_tile_a_sequence(
    length: int, step: int, size: int, margin: int
) -> None:
    window = size + 2 * margin
    sizes = {"window": window, "margin": margin}
    settings = MODEL.settings.model_copy(update=sizes)
    text = random_dna(length, 1)
    end = 0
    for one in replace(MODEL, settings=settings).windows([text], step):
        assert one.number == 0 and one.start == end and len(one.text) <= window
        assert one.start % min(step, size) == 0
        first = one.start - one.scored.start
        assert text[first : first + len(one.text)] == one.text
        end = one.start + one.scored.stop - one.scored.start
        assert one.scored.start == min(margin, one.start)
        assert len(one.text) - one.scored.stop == min(margin, length - end)

    assert end == length


def test_a_long_sequence_is_read_in_windows_with_margins() -> None:
    """Of 80 bp each, with 20 bp on both sides; none is read beyond the ends."""
    text = TEXTS[2]
    parts = [
        MODEL.window_probabilities([text[max(start - 20, 0) : start + 100]])[
            0, :, min(start, 20) :
        ][:, :80]
        for start in range(0, 300, 80)
    ]
    found = MODEL.predict(text)[0]
    close(found, np.concatenate(parts, axis=1)[:, :300])


def test_short_sequences_have_no_probabilities_and_n_are_read() -> None:
    text = TEXTS[0]
    short, enough = MODEL.predict([text[: SHORTEST - 1], text[:SHORTEST]])
    assert np.isnan(short).all() and short.shape == (2, SHORTEST - 1)
    assert np.isfinite(enough).all()
    assert np.isnan(MODEL.predict(["ACGT", "TTTT"])).all()
    gap = text[:30] + "N" * 10 + text[40:80]
    close(MODEL.predict(gap.replace("N", "R")), MODEL.predict(gap))
    assert np.isfinite(MODEL.predict("N" * 200)).all()


@pytest.mark.parametrize("positions", [400, 30])
def test_each_base_has_its_token(positions: int) -> None:
    """Where there are too many tokens, the bases around the central ones have [CLS] and [SEP]."""
    tokenizer = small_tokenizer()
    texts = [TEXTS[2], TEXTS[0][:50] + "N" * 8 + TEXTS[3]]
    inputs = site_inputs(tokenizer, texts, positions)
    for text, ids, bases, owners in zip(texts, *inputs, strict=True):
        assert (bases == base_codes(text)).all() and len(owners) == len(text)
        assert (ids[0], ids[-1]) == (tokenizer.cls_id, tokenizer.sep_id)
        assert len(ids) <= positions and (np.diff(owners) >= 0).all()
        for number in range(1, len(ids) - 1):
            (at,) = np.nonzero(owners == number)
            assert len(at) == tokenizer.piece_lengths[ids[number]]
            piece = tokenizer.encode(text[at[0] : at[-1] + 1])
            if UNKNOWN not in bases[at]:
                assert piece == [ids[number]]

        outside = [(owners == 0).sum(), (owners == len(ids) - 1).sum()]
        assert (min(outside) > 30) if positions == 30 else outside == [0, 0]


def test_a_stored_model_is_the_same(tmp_path: Path) -> None:
    save(tmp_path / "model", MODEL, {}, {}, {})
    loaded = bigbird_dna.load(tmp_path / "model")
    assert loaded.settings == MODEL.settings and loaded.task == "start-sites"
    np.testing.assert_array_equal(loaded.predict(TEXTS[0]), MODEL.predict(TEXTS[0]))
    assert "start sites at every base, window 120 bp" in str(loaded)
