"""Small models of every kind that can be explained, with everything that reads bases."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from bigbird_dna.explanation.targets import ExplainedWindow
from bigbird_dna.model.settings import (
    ChromatinSettings,
    NamedTrack,
    PretrainingSettings,
    PromoterSettings,
    SequenceSettings,
    StartSiteSettings,
)
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer

TRACKS = tuple(
    NamedTrack(track=name, group="TF", opposite=other)
    for name, other in (("one", "two"), ("two", "one"))
)
BASES_AND_KMERS: dict[str, Any] = {
    "pooling": "mean",
    "jitter": 6,
    "views": 2,
    "ensemble_kmers": 3,
}
SETTINGS: dict[str, Any] = {
    "promoter": PromoterSettings(
        **BASES_AND_KMERS,
        upstream=60,
        downstream=40,
        base_positions=True,
        ensemble=True,
    ),
    "chromatin": ChromatinSettings(
        **{
            "window": 120,
            "bin": 20,
            "pooling": "bin",
            "bin_layers": 1,
            "members": 2,
            "tracks": TRACKS,
        },
        **{"ensemble_kmers": 3, "ensemble_dyads": 2},
    ),
    "start-sites": StartSiteSettings(
        **{"window": 120, "margin": 20, "smoothing": 3, "bin": 10, "bin_layers": 1},
        **{"channels": 8, "layers_before": 2, "layers_after": 1},
    ),
    "classes": SequenceSettings(
        **BASES_AND_KMERS,
        kind="multiclass",
        outputs=("x", "y", "z"),
        length=100,
        both_strands=True,
    ),
    "numbers": SequenceSettings(
        **{
            "kind": "regression",
            "outputs": ("x",),
            "means": (3.0,),
            "deviations": (2.0,),
        },
        **{"pooling": "mean", "jitter": 0, "views": 1},
    ),
}


def small_model(kind: str, **sizes: Any) -> Any:
    """A model of random weights; what is added for bases and by regressions is random too."""
    encoder = small_encoder(
        small_tokenizer().vocabulary, kmers=3, position_encoding="rotary", **sizes
    )
    settings = (
        PretrainingSettings(next_sentence=False)
        if kind == "pretrained"
        else SETTINGS[kind]
    )
    model = random_model(small_tokenizer(), encoder, settings, scale=3)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, values in model.network.named_buffers():
            if name.endswith((".position.weight", ".kmers.weight")):
                own = values[1:] if values.ndim == 1 else values[:, 1:, :-1]
                own.copy_(
                    torch.randn(own.shape, generator=generator)
                    * (1 if values.ndim == 1 else 9)
                )
            elif name.endswith(".dyads.weight"):
                values.copy_(torch.randn(values.shape, generator=generator))
    return model


def of_positions() -> tuple[Any, np.ndarray]:
    """A promoter model whose score is a sum over bases, and what each of A, C, G and T adds, (100, 4)."""
    model = small_model("promoter")
    with torch.no_grad():  # the regression on positions alone
        model.network.ensemble.weight.zero_()
        model.network.ensemble.kmers.weight[..., :-1].zero_()
    return model, model.network.ensemble.position.weight[1:].view(-1, 4).numpy()


def example(model: Any, seed: int = 0, count: int = 9) -> ExplainedWindow:
    """A random window, with bases in its center to explain, one of them N."""
    window = random_dna(model.settings.window or 70, seed)
    middle = len(window) // 2
    window = f"{window[: middle - 2]}N{window[middle - 1 :]}"
    first = middle - count // 2
    return ExplainedWindow(
        "x",
        "x",
        0,
        "+",
        window,
        first,
        first + count,
    )


def largest(values: Any) -> float:
    return float(np.abs(values).max())


def write_explained(
    path: Path, name: str, word: str, seed: int, sequences: int = 120
) -> None:
    """What `explain` writes, of random sequences, most of them with a word and contributions of its bases."""
    path.mkdir(parents=True)
    rng, size, length = np.random.default_rng(seed), 100, len(word)
    codes = rng.integers(0, 4, (sequences, size))
    values = rng.normal(0, 0.05, (sequences, size, 4))
    own = np.array(["ACGT".index(base) for base in word])
    for number in range(0 if word else sequences, sequences):
        place = rng.integers(20, size - 20 - length)
        codes[number, place : place + length] = own if number % 2 else 3 - own[::-1]
        values[number, place : place + length] += (
            np.eye(4)[codes[number, place : place + length]] - 0.25
        )
    np.savez_compressed(
        path / "ohe.npz", np.eye(4, dtype=np.int8)[codes].transpose(0, 2, 1)
    )
    np.savez_compressed(path / "shap.npz", values.transpose(0, 2, 1).astype(np.float32))
    rows = "".join(f"s{number}\t{name}\t1\t0\t.\n" for number in range(sequences))
    (path / "scores.tsv").write_text(f"name\toutput\tscore\tnoise\tsite\n{rows}")
