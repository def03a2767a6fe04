"""Micro-batches of like lengths: the same rows and the same loss with less padding."""

from itertools import pairwise

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bigbird_dna.config import TrainingConfig
from bigbird_dna.training import loop
from bigbird_dna.training.batches import Batch, by_length, take_rows
from bigbird_dna.training.distributed import World

HERE = World(0, 1, torch.device("cpu"))


def batch_of(lengths: list[int], seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.from_numpy(rng.integers(1, 100, length))
    return {"ids": ids, "lengths": torch.tensor(lengths), "labels": torch.arange(len(lengths))}


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_rows_are_cut_by_length_and_none_is_lost(lengths: list[int], parts: int) -> None:
    parts = min(parts, len(lengths))
    bounds = [len(lengths) * part // parts for part in range(parts + 1)]
    sizes = [end - first for first, end in pairwise(bounds)]
    whole = batch_of(lengths)
    made = [take_rows(whole, rows) for rows in by_length(whole["lengths"], sizes)]
    assert [len(part["ids"]) for part in made] == sizes
    assert sorted(torch.cat([part["labels"] for part in made]).tolist()) == [*range(len(lengths))]
    for part in made:
        assert part["ids"].shape[1] == part["lengths"].max() and part["ids"].is_contiguous()
        for ids, length, label in zip(part["ids"], part["lengths"], part["labels"], strict=True):
            assert torch.equal(ids[:length], whole["ids"][label, : lengths[label]])
            assert not ids[length:].any()
    padded = sum(part["ids"].numel() for part in made)
    in_order = [lengths[first:end] for first, end in pairwise(bounds)]
    if len({*sizes}) == 1:
        assert padded <= sum(len(part) * max(part) for part in in_order)


class Sums:
    """A loss whose parts are of rows; lengths as of promoter windows with and without N."""

    def batch(self, step: int, first: int, count: int) -> Batch:
        rng = np.random.default_rng((step, first))
        return batch_of(rng.integers(20, 200, count).tolist(), step)

    def part(self, batch: Batch, rows: Tensor) -> Batch:
        return take_rows(batch, rows)


def test_a_step_in_micro_batches_has_less_padding_and_the_same_rows() -> None:
    config = TrainingConfig(steps=5, batch_size=32, grad_accumulation=8)
    for step, batches in loop._prefetched(Sums(), config, HERE, 0):  # type: ignore[arg-type]
        whole = Sums().batch(step, 0, 32)
        assert sum(batch["ids"].sum() for batch in batches) == whole["ids"].sum()
        assert sum(batch["lengths"].sum() for batch in batches) == whole["lengths"].sum()
        in_order = sum(4 * int(part.max()) for part in whole["lengths"].split(4))
        tokens, computed = int(whole["lengths"].sum()), sum(batch["ids"].numel() for batch in batches)
        assert computed - tokens < 0.35 * (in_order - tokens)
