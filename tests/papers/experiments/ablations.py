"""Files of an ablation: measurements of steps, bits of hidden tokens, predictions of tracks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.tracks import Track, write_tracks
from bigbird_dna.papers.experiments.ablation import AblationTracks, ablation_report

TOKENS = 600
BASES = np.random.default_rng(0).integers(2, 8, TOKENS)
BLOCKS = np.arange(TOKENS) // 20
COMMON = np.random.default_rng(1).gamma(4.0, 2.0, TOKENS)


def write_cost(path: Path, seconds: float, *, tokens: int = 96, sequences: int = 4, **changes: Any) -> Path:
    """As `experiment profile-training` writes it."""
    row = {"tokens": tokens, "sequences": sequences, "seconds": seconds}
    row |= {"tokens_per_second": tokens * sequences / seconds, "peak_mib": None}
    values = {"format": 1, "attention": "bigbird", "attention_options": {}, "lengths": [row]}
    values |= {"device": "cpu", "threads": 1, "clock": "processor", **changes}
    path.write_text(json.dumps(values))
    return path


def bits_of(lift: float, seed: int) -> np.ndarray:
    """Bits that are higher by `lift` a base, and a little otherwise for each seed."""
    return COMMON + lift * BASES + np.random.default_rng([seed, 7]).normal(0, 0.05, TOKENS)


def write_bits(
    path: Path, lifts: dict[str, float], *, seeds: int = 1, tokens: int = 512, **changes: Any
) -> Path:
    names = [f"{name}-{seed}" for name in lifts for seed in range(1, seeds + 1)]
    rows = [bits_of(lift, seed) for lift in lifts.values() for seed in range(1, seeds + 1)]
    arrays: dict[str, Any] = {
        "names": np.array(names),
        "steps": np.full(len(names), 80),
        "seconds": np.full(len(names), 9.0),
        "sequence_tokens": np.array([tokens]),
        **{"bits": np.stack(rows), "bases": BASES, "blocks": BLOCKS},
    }
    np.savez(path, **(arrays | changes))
    return path


def write_tracks_of(
    home: Path, labels: Any, scores: dict[str, Any], starts: Any, contigs: Any = "chr1", **changes: Any
) -> AblationTracks:
    """Files of N bins: labels (N,) of FAR, NEAR being another track; scores (N,) of a seed by mechanism."""
    home.mkdir(exist_ok=True)
    other = np.arange(len(labels)) % 2
    PackedLabels.from_dense(np.stack([labels, other], axis=1).astype(np.int8)).save(home / "labels.npz")
    write_tracks(home / "tracks.tsv", [Track(name, "TF") for name in ("FAR", "NEAR")])
    starts = np.asarray(starts, np.int64)
    bins = pd.DataFrame({"contig": contigs, "start": starts, "end": starts + 200, "split": "test"})
    bins.to_parquet(home / "bins.parquet", index=False)
    for name, own in scores.items():
        np.save(home / f"{name}.npy", np.stack([own, own], axis=1).astype(np.float32))
    predictions = {(name, 1): home / f"{name}.npy" for name in scores}
    files = (home / "labels.npz", home / "bins.parquet", home / "tracks.tsv")
    return AblationTracks(predictions, *files, ["FAR"])._replace(**changes)


def report(steps: Path, output: Path, **options: Any) -> pd.DataFrame:
    """The table of trainings that are those of the same time too, unless others are given."""
    ablation_report([steps], output, **{"reference": "bigbird", "time": [steps], "costs": {}, **options})
    return pd.read_csv(output / "ablation.tsv", sep="\t").set_index("mechanism")
