"""Mutagenesis against single mutated windows, models with known answers, and planted runs."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from bigbird_dna.explanation.mutagenesis import (
    noise,
    saturation_mutagenesis,
    views_of,
)
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.model.batching import View
from bigbird_dna.model.promoter import view_cuts
from tests.explanation.models import (
    SETTINGS,
    example,
    largest,
    of_positions,
    small_model,
)


@pytest.fixture(scope="module", params=SETTINGS)
def model(request: pytest.FixtureRequest) -> Any:
    return small_model(request.param)


def test_every_change_is_that_of_the_mutated_window_scored_alone(model: Any) -> None:
    target, views = example(model), views_of(model, 70, 2, 1)
    columns = (
        [0]
        if model.task in ("chromatin", "start-sites")
        else [*range(model.network.output.out_features)]
    )
    found = saturation_mutagenesis(model, target, columns, views)
    window = target.window
    for number, view in enumerate(views):

        def score(text: str, view: View = view) -> Any:
            return model.view_scores([text], [view])[0, 0, columns]

        before = score(window)
        np.testing.assert_allclose(found.scores[number], before, atol=1e-6)
        for place, base in enumerate(target.bases):
            at = target.first + place
            for other, letter in enumerate("ACGT"):
                same = base in ("N", letter)
                mutated = window if same else f"{window[:at]}{letter}{window[at + 1 :]}"
                expected = score(mutated) - before
                assert (
                    largest(found.substitutions[number, place, other] - expected) < 1e-6
                )
    assert largest(found.substitutions) > 1e-3
    assert largest(noise(found.substitutions)) > 1e-4


def test_contributions_are_what_the_unchanged_base_adds(model: Any) -> None:
    target = example(model)
    found = saturation_mutagenesis(model, target, [0], views_of(model, 70, 1, 1))
    own = found.one_hot[None, :, :, None] * found.hypothetical
    known = found.codes < 4
    np.testing.assert_allclose(
        own.sum(2)[:, known], found.importance[:, known], atol=1e-6
    )
    np.testing.assert_allclose(found.hypothetical.sum(2), 0, atol=1e-5)
    assert not found.importance[:, ~known].any() and not found.one_hot[~known].any()


def test_a_window_and_its_reverse_complement_have_the_same_contributions() -> None:
    for kind in ("chromatin", "classes"):
        model = small_model(kind)
        target = example(model, count=12)
        size = len(target.window)
        turned = target._replace(
            window=reverse_complement(target.window),
            first=size - target.last,
            last=size - target.first,
        )
        views = views_of(model, size, 2, 2)
        opposite = (
            1 if kind == "chromatin" else 0
        )  # of the first track, on the reverse complement
        found = saturation_mutagenesis(model, target, [0], views)
        other = saturation_mutagenesis(model, turned, [opposite], views)
        mirrored = other.substitutions[:, ::-1, ::-1]
        np.testing.assert_allclose(
            found.substitutions.mean(0), mirrored.mean(0), atol=1e-6
        )
        np.testing.assert_allclose(
            noise(found.substitutions), noise(mirrored), atol=1e-6
        )
        assert largest(found.substitutions) > 1e-3


def test_views_of_a_promoter_model_average_to_its_log_odds() -> None:
    model = small_model("promoter")
    target = example(model)
    views = [
        View(cut=cut) for cut in view_cuts(model.settings.views, model.settings.jitter)
    ]
    scores = model.view_scores([target.window], views)[:, 0, 0]
    expected = (1 / (1 + np.exp(-scores))).mean()
    np.testing.assert_allclose(
        model.window_probabilities([target.window])[0], expected, atol=1e-6
    )


def test_log_odds_of_classes_are_those_of_their_probabilities() -> None:
    model = small_model("classes")
    window = example(model).window
    probabilities = model.finish(
        torch.from_numpy(np.array([[0.5, -1.0, 2.0]], np.float32))
    ).numpy()
    scores = model.score(
        torch.from_numpy(np.array([[0.5, -1.0, 2.0]], np.float32))
    ).numpy()
    np.testing.assert_allclose(
        scores, np.log(probabilities / (1 - probabilities)), rtol=1e-5
    )
    assert model.view_scores([window], [View()]).shape == (1, 1, 3)


def test_a_sum_over_bases_is_recovered_base_by_base() -> None:
    model, weights = of_positions()
    target = example(model, count=20)
    found = saturation_mutagenesis(model, target, [0], views_of(model, 100))
    own = weights[target.first : target.last]
    for place, code in enumerate(found.codes.tolist()):
        expected = own[place] - own[place, code] if code < 4 else np.zeros(4)
        np.testing.assert_allclose(
            found.substitutions[:, place, :, 0], expected[None].repeat(8, 0), atol=2e-5
        )
    assert largest(noise(found.importance)) < 1e-5


runs = st.tuples(st.integers(0, 30), st.integers(1, 40), st.sampled_from([-1.0, 1.0]))
