"""A list of models with toys in it: bundled ones, and ones at addresses."""

import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigbird_dna.model import catalog, published
from bigbird_dna.model.directory import save
from bigbird_dna.model.settings import (
    ChromatinSettings,
    NamedTrack,
    PretrainingSettings,
    PromoterSettings,
)
from tests.toys import random_model, small_encoder, small_tokenizer, written

SETTINGS = {
    "pretraining": PretrainingSettings(),
    "promoter": PromoterSettings(
        upstream=30,
        downstream=10,
        pooling="cls",
        jitter=4,
        views=2,
        negative_set="genomic",
    ),
    "chromatin": ChromatinSettings(
        **{"window": 40, "bin": 10, "pooling": "bin", "bin_layers": 1, "members": 2},
        tracks=(
            NamedTrack(track="one", group="TF"),
            NamedTrack(track="a|b", group="TF"),
        ),
    ),
}
METRICS: dict[str, dict[str, Any]] = {
    "pretraining": {
        "bits_per_base": 1.9012,
        "markov": {"bits_per_base": 1.95, "order": 7},
        "split": "valid",
    },
    "promoter": {
        "valid": {"auroc": 0.75, "auroc_low": 0.7, "auroc_high": 0.8, "note": ""},
        "test": {"auroc": 0.625, "auroc_low": 0.6, "auroc_high": 0.65, "note": "few"},
        "training": {"steps": 12, "tokens_seen": 3456},
    },
    "chromatin": {
        "note": "an ensemble; its metrics are in the report of its predictions"
    },
}
PROVENANCE: dict[str, Any] = {
    "configuration": {
        "genome": {
            **{"assembly": "sacCer3", "reference": "sacCer3.reference"},
            **{"valid": ["chrXI"], "test": ["chrVII"]},
        }
    },
    "data": {"train": {"bases": 12_000_000, "tokens": 3_000_000, "passes": 2}},
    "contigs": ["chrI", "chr_II"],
}


def make_toy(path: Path, task: str = "promoter", scale: float = 3.0) -> Path:
    """A model directory with log, figures and provenance."""
    config = small_encoder(layers=2, max_length=64, random_blocks=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.with_name(f"{path.name}.jsonl")
    log.write_text('{"step": 1, "loss": 2.5}\n')
    model = random_model(small_tokenizer(), config, SETTINGS[task], scale=scale)
    save(path, model, PROVENANCE, METRICS[task], {"training.jsonl": log})
    log.unlink()
    return path


def write_list(path: Path, entries: dict[str, dict[str, Any]]) -> Path:
    return written(path, yaml.safe_dump(entries, width=10_000))


def make_shelf(home: Path, task: str = "promoter") -> Path:
    """A list with the one bundled model "toy", whose archive is `toy.tar`."""
    toy = make_toy(home / "models/toy", task)
    with tarfile.open(home / "toy.tar", "w") as archive:
        archive.add(toy, "toy", filter=lambda one: None if "/." in one.name else one)
    entry = {
        "description": "A toy",
        "task": task,
        "license": "free for all",
    }
    return write_list(home / "models.yaml", {"toy": entry})


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list with a bundled model; the working directory is beside it."""
    made = make_shelf(tmp_path / "shelf")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return made


@pytest.fixture
def installed(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The list as the package's."""
    monkeypatch.setattr(published, "LIST", shelf)
    monkeypatch.setattr(catalog, "BUNDLED", shelf.parent / "models")
    return shelf
