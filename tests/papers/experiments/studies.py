"""Toy studies: directories of fine-tuned models with predictions of known quality."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bigbird_dna.papers.experiments.comparing import PREDICTIONS, ArmModel, StudyRow


def write_model(
    path: Path,
    *,
    start: str = "pretrained",
    share: float = 1.0,
    seed: int = 1,
    steps: int = 300,
    lift: float = 1.5,
    pairs: int = 300,
    task: str = "promoters",
    changed: dict[str, Any] | None = None,
    tracks: int = 4,
    weights: str = "0" * 64,
) -> ArmModel:
    """A model directory as the study reads it; test promoters score `lift` deviations above negatives.
    `changed` are further keys of the task's section. A chromatin model has predictions of 60 bins × `tracks`
    beside it."""
    path.mkdir(parents=True)
    training = {
        "train_fraction": share,
        "seed": seed,
        "steps": steps,
        "batch_size": 32,
        "evaluate_every": 100,
    }
    own = {"model": {"initial": start}, "training": training, **(changed or {})}
    provenance = {
        "configuration": {"seed": 1, task: own},
        "pretrained_sha256": weights if start == "pretrained" else None,
    }
    counts = {"steps": steps, "tokens_seen": 1000 * steps, "examples": round(1000 * share)}
    write(path / "provenance.json", provenance)
    write(path / "metrics.json", {"training": counts})
    lines = []
    for step in range(10, steps + 1, 10):
        lines.append({"step": step, "loss": 1 / step, "seconds": 2.0 * step})
        if step % 100 == 0:
            auroc = 0.5 + 0.4 * (1 - np.exp(-step / (100 if start == "pretrained" else 250)))
            lines.append({"step": step, "evaluation": {"loss": 0.5, "auroc": auroc + 0.002 * seed}})
    (path / "training.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    # What models share is drawn by the pair, what is their own by all of them.
    common = np.random.default_rng(0).normal(size=2 * pairs)
    rng = np.random.default_rng([seed, steps, round(100 * share), start == "pretrained"])
    predictions = path / PREDICTIONS[task]
    if task == "promoters":
        labels = np.tile([1, 0], pairs)
        scores = lift * labels + 0.8 * common + 0.6 * rng.normal(size=2 * pairs)
        write_predictions(predictions, labels, 1 / (1 + np.exp(-scores)))
    else:
        labels = toy_labels(tracks)
        scores = lift * labels + rng.normal(size=labels.shape)
        predictions = path.parent / "predictions.npy"
        np.save(predictions, scores.astype(np.float32))
    row = StudyRow(task, share, "random_long" if steps > 300 else start)
    return ArmModel(row, seed, path, predictions)


def write(path: Path, values: object) -> None:
    path.write_text(json.dumps(values))


def toy_labels(tracks: int = 4) -> np.ndarray:
    """Labels (60, tracks)."""
    return (np.random.default_rng(1).random((60, tracks)) < 0.4).astype(np.int8)


def write_predictions(path: Path, labels: np.ndarray, scores: np.ndarray) -> None:
    """Test windows, two a pair: the promoter and its negative."""
    rows = len(labels)
    frame = pd.DataFrame(
        {
            "contig": "chr2",
            "start": 500 * np.arange(rows),
            "end": 500 * np.arange(rows) + 400,
            "strand": "+",
            "split": "test",
            "negative_set": np.where(labels == 1, "positive", "genomic"),
            "pair": np.arange(rows) // 2,
            "label": labels,
            "probability": scores,
        }
    )
    frame.to_parquet(path, index=False)


def write_study(
    home: Path, gains: dict[float, float], *, seeds: int = 3, longer: bool = False, **options: Any
) -> list[ArmModel]:
    """Models of both starts, by the gain in lift that pretrained weights have at each share."""
    models = []
    for share, gain in gains.items():
        for seed in range(1, seeds + 1):
            base = 1.2 + 0.6 * share
            starts = [("pretrained", 300, base + gain), ("random", 300, base)]
            starts += [("random", 600, base + gain / 2)] if longer else []
            for start, steps, lift in starts:
                path = home / f"{start}-{steps}-{share:g}-{seed}" / "model"
                own: dict[str, Any] = {"start": start, "share": share, "seed": seed, "lift": lift}
                models.append(write_model(path, steps=steps, **own, **options))
    return models
