"""A training's batches are the bytes of batches made window by window from the file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.plain_batches import PlainBatches
from bigbird_dna.config import ChromatinConfig
from bigbird_dna.finetuning.chromatin import ChromatinObjective
from bigbird_dna.genome.chromatin.dataset import ChromatinData, make_bins
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.tokens import dna as tokenizers
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.training.batches import Batch
from bigbird_dna.training.distributed import World

STEPS, BATCH = 12, 8


@pytest.fixture
def data(reference: Reference) -> ChromatinData:
    """All bins of 40 bp of four contigs, ends and runs of N among them, in an order of their own."""
    contigs = list(reference.contigs)
    lengths = enumerate(reference.contigs.values())
    places = [(owner, start) for owner, length in lengths for start in range(0, length - 39, 40)]
    rng = np.random.default_rng(0)
    owners, starts = np.array(places)[rng.permutation(len(places))].T
    splits = (rng.random(len(places)) < 0.1).astype(np.intp)
    labels = PackedLabels.from_dense(rng.random((len(places), 11)) < 0.3)
    tracks = tuple(Track(f"t{number}", "TF") for number in range(11))
    return ChromatinData(make_bins(contigs, owners, starts, splits, 40), labels, tracks, {"bin_size": 40})


def objective(
    data: ChromatinData, reference: Reference, tokenizer: DnaTokenizer, positions: int = 300, **keys: Any
) -> ChromatinObjective:
    config = ChromatinConfig.model_validate(
        {
            "data": {"bin": 40, "window": keys.get("window", 600), "shift_bp": keys.get("shift", 0)},
            "model": {"pooling": "bin", "bin_layers": keys.get("bin_layers", 0)},
            "training": {"batch_size": BATCH, "bins_per_window": keys.get("neighbours", 1)},
        }
    )
    here = World(0, 1, torch.device("cpu"))
    return ChromatinObjective(data, reference, tokenizer, config, keys.get("window", 600), positions, here)


def same(one: Batch, other: Batch) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.dtype == other[name].dtype, name
        assert value.shape == other[name].shape, name
        assert value.numpy().tobytes() == other[name].numpy().tobytes(), name


@pytest.mark.parametrize("native_from", [0, 1 << 60])
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"shift": 100, "neighbours": 5},
        {"shift": 19, "neighbours": 3, "bin_layers": 1},
        {"window": 8000, "shift": 700, "neighbours": 9, "positions": 4096},
        {"window": 2000, "shift": 40, "neighbours": 3, "positions": 60},  # less than a window's tokens
    ],
)
def test_batches_are_those_made_window_by_window(
    data: ChromatinData,
    reference: Reference,
    tokenizer: DnaTokenizer,
    monkeypatch: pytest.MonkeyPatch,
    keys: dict[str, Any],
    native_from: int,
) -> None:
    monkeypatch.setattr(tokenizers, "NATIVE_FROM", native_from)
    made = objective(data, reference, DnaTokenizer(tokenizer.content), **keys)
    plain = PlainBatches(made, reference)
    before = made.neighbors.copy()
    for step in range(STEPS):
        expected = plain.batch(step, 0, BATCH)
        same(made.batch(step, 0, BATCH), expected)
        for first in range(0, BATCH, 2):  # of a share of the step, whose rows are padded to their own longest
            same(made.batch(step, first, 2), plain.batch(step, first, 2))
    np.testing.assert_array_equal(made.neighbors, before)


def test_a_step_is_always_the_same(
    data: ChromatinData, reference: Reference, tokenizer: DnaTokenizer
) -> None:
    """Whatever was made before, by however many threads."""
    one = objective(data, reference, tokenizer, shift=50, neighbours=3)
    first = [one.batch(step, 0, BATCH) for step in range(STEPS)]
    other = objective(data, Reference(reference.path), tokenizer, shift=50, neighbours=3)
    other.threads = 3
    for step in reversed(range(STEPS)):
        same(other.batch(step, 0, BATCH), first[step])


def test_windows_meet_ends_and_n(data: ChromatinData, reference: Reference, tokenizer: DnaTokenizer) -> None:
    """The batches above would prove little without."""
    made = objective(data, reference, tokenizer, window=2000)
    gaps = {piece for piece, text in enumerate(tokenizer.pieces) if text.startswith("N")}
    with_gaps = sum(
        bool(gaps & set(row)) for step in range(STEPS) for row in made.batch(step, 0, BATCH)["ids"].tolist()
    )
    assert STEPS * BATCH / 4 < with_gaps < STEPS * BATCH


@pytest.mark.slow
def test_human_windows(shared_data: Path, tokenizer: DnaTokenizer, tmp_path: Path) -> None:
    """8 kb at any place of the piece of chromosome 22, across the edges of blocks that are read together."""
    prepare_reference(shared_data / "hg19/chr22_1-22000000.fa.gz", tmp_path / "reference.fa.gz")
    reference = Reference(tmp_path / "reference.fa.gz")
    starts = np.arange(15_900_000, 21_999_800, 40) // 40 * 40
    count = len(starts)
    labels = PackedLabels.from_dense(np.random.default_rng(1).random((count, 3)) < 0.1)
    bins = make_bins(["22"], np.zeros(count, np.intp), starts, np.zeros(count, np.intp), 40)
    tracks = tuple(Track(f"t{number}", "TF") for number in range(3))
    data = ChromatinData(bins, labels, tracks, {"bin_size": 40})
    made = objective(data, reference, tokenizer, positions=8192, window=8000, shift=150, neighbours=5)
    plain = PlainBatches(made, reference)
    for step in range(100):
        same(made.batch(step, 0, BATCH), plain.batch(step, 0, BATCH))
