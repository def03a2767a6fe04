"""tangermeme's functions run on one-hot models unchanged, and agree with this package's."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from bigbird_dna.explanation.mutagenesis import saturation_mutagenesis
from bigbird_dna.explanation.one_hot import OneHotModel
from bigbird_dna.model.batching import View
from tests.explanation.models import example, largest, small_model

pytest.importorskip(
    "tangermeme", reason="needs tangermeme: pip install 'bigbird-dna[explain]'"
)

CPU: dict[str, Any] = {"device": "cpu"}


def windows(model: Any, count: int = 2) -> tuple[list[Any], torch.Tensor]:
    from tangermeme.utils import one_hot_encode

    targets = [example(model, seed) for seed in range(count)]
    targets = [
        target._replace(window=target.window.replace("N", "A")) for target in targets
    ]
    return targets, torch.stack(
        [one_hot_encode(target.window).float() for target in targets]
    )


@pytest.mark.parametrize("kind", ["promoter", "chromatin", "start-sites"])
def test_saturation_mutagenesis_gives_the_same_changes(kind: str) -> None:
    from tangermeme.saturation_mutagenesis import saturation_mutagenesis as other

    model = small_model(kind)
    targets, x = windows(model)
    first, last = targets[0].first, targets[0].last
    before, after = other(
        OneHotModel(model), x, start=first, end=last, raw_outputs=True, **CPU
    )
    for number, target in enumerate(targets):
        found = saturation_mutagenesis(model, target, [0], [View()])
        changes = (after[number, ..., 0] - before[number, 0]).T.numpy()
        np.testing.assert_allclose(found.substitutions[0, ..., 0], changes, atol=1e-5)
        assert largest(changes) > 1e-3


def test_motifs_are_inserted_spaced_and_removed() -> None:
    from tangermeme.ablate import ablate
    from tangermeme.marginalize import marginalize
    from tangermeme.space import space

    model = small_model("promoter")
    targets, x = windows(model)
    adapter = OneHotModel(model)
    before, after = marginalize(adapter, x, "TATAAA", start=40, **CPU)
    texts = [f"{target.window[:40]}TATAAA{target.window[46:]}" for target in targets]
    np.testing.assert_allclose(after, model.view_scores(texts, [View()])[0], atol=1e-6)
    np.testing.assert_allclose(
        before, model.view_scores([t.window for t in targets], [View()])[0], atol=1e-6
    )
    spaced = space(
        adapter, x, ["TATA", "GGC"], spacing=torch.tensor([[3], [6]]), start=40, **CPU
    )
    texts = [
        f"{targets[0].window[:40]}TATA{targets[0].window[44:47]}GGC{targets[0].window[50:]}"
    ]
    expected = model.view_scores(texts, [View()])[0, 0]
    assert any(
        np.allclose(part.detach().numpy()[0, 0], expected, atol=1e-6)
        for part in spaced[1:]
    )
    assert ablate(adapter, x, 40, 60, n=3, **CPU)[1].shape == (2, 3, 1)


def test_a_greedy_search_makes_the_best_substitutions() -> None:
    from tangermeme.design import greedy_substitution

    model = small_model("promoter")
    (target,), x = windows(model, 1)
    designed = greedy_substitution(OneHotModel(model), x, max_iter=1, **CPU)
    whole = target._replace(first=0, last=len(target.window))
    changes = saturation_mutagenesis(model, whole, [0], [View()]).substitutions[0]
    at, base = np.unravel_index(changes[..., 0].argmax(), changes.shape[:2])
    assert (designed != x).any(1).nonzero()[:, 1].tolist() == [int(at)]
    assert designed[0, int(base), int(at)] == 1


@pytest.mark.filterwarnings("ignore:Convergence deltas")
def test_deep_lift_shap_runs_and_favors_what_mutagenesis_favors() -> None:
    from tangermeme.deep_lift_shap import deep_lift_shap

    model = small_model("promoter")
    with torch.no_grad():  # a sum over bases: no operation without a rule
        model.network.ensemble.weight.zero_()
        model.network.ensemble.kmers.weight[..., :-1].zero_()
    (target,), x = windows(model, 1)
    found = deep_lift_shap(
        OneHotModel(model), x, n_shuffles=20, hypothetical=True, random_state=0, **CPU
    )
    whole = target._replace(first=0, last=len(target.window))
    mutated = saturation_mutagenesis(model, whole, [0], [View()]).hypothetical[
        0, ..., 0
    ]
    centered = found[0] - found[0].mean(0)
    np.testing.assert_allclose(centered.T.detach(), mutated, atol=1e-4)


@pytest.mark.slow
def test_seqlets_are_annotated_with_motifs() -> None:
    from tangermeme.annotate import annotate_seqlets

    generator = np.random.default_rng(1)
    motifs = {
        name: torch.from_numpy(generator.dirichlet([0.1] * 4, 8).T.astype(np.float32))
        for name in map("m{}".format, range(30))
    }
    x = torch.from_numpy(
        np.eye(4, dtype=np.float32)[generator.integers(0, 4, 100)].T[None].copy()
    )
    x[0, :, 40:48] = (motifs["m7"] == motifs["m7"].max(0).values).float()
    seqlets = pd.DataFrame({"example_idx": [0], "start": [40], "end": [48]})
    nearest, *_ = annotate_seqlets(x, seqlets, motifs, n_jobs=1)
    assert nearest.tolist() == [[7]]
