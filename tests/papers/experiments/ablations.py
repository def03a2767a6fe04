"""Files of an ablation: measurements of steps, bits of hidden tokens, predictions of tracks."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bigbird_dna.config import parse_config
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
    home: Path, lifts: dict[str, float], *, seeds: int = 1, tokens: int = 512, **changes: Any
) -> dict[tuple[str, int], Path]:
    """A file of each model, by mechanism and seed."""
    home.mkdir(exist_ok=True)
    found = {}
    for name, seed in product(lifts, range(1, seeds + 1)):
        arrays = {
            **{"names": np.array([f"{name}-{seed}"]), "sequence_tokens": np.array([tokens])},
            **{"steps": np.array([80]), "seconds": np.array([9.0]), "bases": BASES, "blocks": BLOCKS},
            "bits": bits_of(lifts[name], seed)[None],
        }
        path = found[name, seed] = home / f"{name}-{seed}.npz"
        np.savez(path, **(arrays | changes))
    return found


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


def report(
    steps: dict[tuple[str, int], Path],
    output: Path,
    *,
    mechanisms: dict[str, dict[str, Any]] | None = None,
    longer: dict[int, dict[tuple[str, int], Path]] | None = None,
    time: dict[tuple[str, int], Path] | None = None,
    costs: dict[str, Path] | None = None,
    tracks: AblationTracks | None = None,
) -> pd.DataFrame:
    """The table of trainings that are those of the same time too, unless others are given."""
    names, longer = [*dict.fromkeys(name for name, _ in steps)], longer or {}
    values = [{"name": name, **(mechanisms or {}).get(name, {})} for name in names]
    section = parse_config({"ablation": {"mechanisms": values, "lengths": [*longer]}}).ablation
    usual = {
        name: write_cost(output.parent / f"cost-{name}.json", 1, attention=section.changes(name)["attention"])
        for name in names
    }
    lengths = {section.tokens: steps, **longer}
    given = {"time": time or steps, "costs": usual | (costs or {}), "tracks": tracks}
    ablation_report(section, output, lengths=lengths, **given)
    return pd.read_csv(output / "ablation.tsv", sep="\t").set_index("mechanism")
