"""One-hot models: values are those of the model."""

import numpy as np
import pytest
import torch

from bigbird_dna.explanation.mutagenesis import views_of
from bigbird_dna.explanation.one_hot import OneHotModel, letters
from bigbird_dna.genome.sequence import base_codes
from tests.explanation.models import SETTINGS, example, small_model


def one_hot(*texts: str) -> torch.Tensor:
    codes = np.stack([base_codes(text) for text in texts])
    return torch.from_numpy(
        (codes[:, None] == np.arange(4)[:, None]).astype(np.float32)
    )


@pytest.mark.parametrize("kind", SETTINGS)
def test_values_are_those_of_the_model(kind: str) -> None:
    model = small_model(kind)
    texts = [example(model, seed).window for seed in range(2)]
    assert [letters(row) for row in one_hot(*texts).numpy()] == texts
    for view in views_of(model, 70, 1, 1):
        expected = model.view_scores(texts, [view])[0]
        adapter = OneHotModel(model, view=view)
        np.testing.assert_allclose(
            adapter(one_hot(*texts)).numpy(), expected, atol=1e-6
        )
    assert OneHotModel(model, [0])(one_hot(*texts)).shape == (2, 1)
