"""A run in miniature with all that the experiments read: pretrained model, promoter windows, bins."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from bigbird_dna.config.reading import load_config
from bigbird_dna.data.chromatin import prepare_data
from bigbird_dna.finetuning.evaluation import held_out_rows
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.pretraining.evaluation import evaluate_pretraining
from tests.cli.command import invoke

TRAINING = {
    "steps": 4,
    "batch_size": 4,
    "evaluate_every": 2,
    "checkpoint_minutes": 0,
    "precision": "float32",
    "optimizer": {"warmup_steps": 1},
}
CHANGES: dict[str, Any] = {
    "promoters": {
        "classifier": {"pooling": "mean", "ensemble": []},
        "training": TRAINING,
        "evaluation": {"baseline_kmer": 3},
    },
    "chromatin": {
        "data": {
            "tracks": "peaks",
            "bin": 40,
            "window": 200,
            "min_positives_train": 5,
            "min_positives_heldout": 1,
            "negative_fraction": 1.0,
        },
        "model": {"pooling": "bin", "bin_layers": 1, "ensemble": False},
        "training": TRAINING | {"evaluation_bins": 20},
        "evaluation": {"test_bins": 60, "baseline_kmer": 3},
    },
    "tables": {
        "promoters": ["gc", "cnnprom"],
        "chromatin": ["gc", "residual-cnn"],
        "seeds": [1, 2],
        "negative_sets": ["permuted"],
        "models": [{"name": "bert-64", "attention": "full", "tokens": 64}],
        "learning_rates": [1e-3, 1e-2],
    },
    "ablation": {
        "mechanisms": ["full", "bigbird"],
        "seeds": [1, 2],
        "tokens": 48,
        "batch_tokens": 192,
        "steps": 4,
    },
}


@pytest.fixture(scope="session")
def whole_run(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a run with all inputs of the experiments."""
    home = tmp_path_factory.mktemp("experiments")
    shutil.copytree(tiny_config.parent, home, dirs_exist_ok=True)
    values = yaml.safe_load(tiny_config.read_text())
    values["results"] = str(home / "results")
    for section, changes in CHANGES.items():
        values[section] = {**values.get(section, {}), **changes}
    (home / "peaks").mkdir()
    values["chromatin"]["data"]["tracks"] = str(home / "peaks")
    path = home / "run.yaml"
    path.write_text(yaml.safe_dump(values))
    config = load_config(path)
    paths = config.paths
    loci = pd.read_csv(paths.promoters, sep="\t")
    loci.columns = loci.columns.str.lstrip("#")
    peaks = loci.assign(start=loci["position"] - 20, end=loci["position"] + 20)
    for name, every in (("tata", 1), ("half", 2)):
        rows = peaks[["contig", "start", "end"]][::every]
        file = home / f"peaks/{name}.bed"
        rows.to_csv(file, sep="\t", header=False, index=False)
    data = paths.chromatin_data
    prepare_data(config, paths.reference, data, tracks=home / "peaks")
    bins = read_dataset(data)
    rows = held_out_rows(bins, config.chromatin.evaluation)
    paths.held_out_bins.mkdir(parents=True)
    bins.bins.iloc[rows].to_parquet(paths.held_out_bins / "bins.parquet", index=False)
    bins.labels.take(rows).save(paths.held_out_bins / "labels.npz")
    invoke("pretrain", path, "--set", "pretraining.steps=4", "--threads", 1)
    evaluate_pretraining(
        paths.pretrained,
        paths.tokens,
        paths.pretraining_bits,
        sequences=8,
    )
    return path


MakeModel = Callable[..., Path]


@pytest.fixture
def make_model(tmp_path: Path) -> MakeModel:
    """Make the directory of a trained model, with a log."""

    def make(name: str, seed: int = 1) -> Path:
        model = tmp_path / f"{name}-seed{seed}/model"
        model.mkdir(parents=True)
        log = '{"step": 4, "loss": 1.0, "seconds": 9.0}\n'
        (model / "training.jsonl").write_text(log)
        return model

    return make
