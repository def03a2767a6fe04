"""What the generators of measurements compute from what they have measured."""

import cProfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from bigbird_dna.genome.assembly import load_assembly
from docs.generators.other_tools import (
    BIN,
    named_as_in_peaks,
    own_labels,
    pandas_labels,
)
from docs.generators.training_time import (
    PARTS,
    by_class,
    largest,
    own_times,
    self_times,
    shown,
)
from tests.toys import written


def test_every_operation_is_in_one_class() -> None:
    network, rows = (
        nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)),
        torch.randn(32, 64),
    )
    optimizer = torch.optim.AdamW(network.parameters(), fused=True)
    heads = rows.view(1, 4, 32, 16)
    with torch.profiler.profile() as profiler:
        loss = (
            network(rows).log_softmax(1).mean()
            + nn.functional.scaled_dot_product_attention(heads, heads, heads).sum()
        )
        loss.backward()
        optimizer.step()
    times = self_times(profiler)
    sums = by_class(times)
    assert sum(sums.values()) == pytest.approx(sum(time for _, time in times))
    assert sums.keys() == PARTS.keys()
    seen = {part for part, time in sums.items() if time}
    assert seen == {
        "matrix_products",
        "attention",
        "elementwise",
        "optimizer",
        "python",
    }
    assert by_class([("aten::_log_softmax", 1.0)])["attention"] == 0


def test_largest_operations_come_first_with_their_fractions() -> None:
    rows = largest([("a", 1.0), ("b", 2.0), ("c", 0.5)], 4.0, 2)
    assert [(row["operation"], row["share"]) for row in rows] == [
        ("b", 0.5),
        ("a", 0.25),
    ]


def test_built_in_functions_count_for_the_file_that_calls_them() -> None:
    profiler = cProfile.Profile(builtins=False)
    numbers = list(np.random.default_rng(1).random(300_000))

    def work() -> None:
        sorted(numbers)

    profiler.runcall(work)
    times = own_times(profiler)
    assert times[__file__] > 0.9 * sum(times.values())


def test_a_row_shows_time_and_percentages() -> None:
    row = {"stage": "x", "seconds": 2.0, **dict.fromkeys(PARTS, 0.125)}
    cells = shown([row]).splitlines()[-1].strip("| ").split(" | ")
    assert cells == ["x", "2.0", *["12.5"] * len(PARTS)]


def test_pandas_and_this_package_label_the_same_bins(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    contigs = {"I": 40 * BIN + 7, "II": 9 * BIN}
    files = []
    for number in range(6):
        starts = rng.integers(0, 8 * BIN, 30)
        ends = starts + rng.integers(1, BIN, 30)
        names = rng.choice(["chrI", "chrII"], 30)
        lines = (
            f"{name}\t{start}\t{end}\n"
            for name, start, end in zip(names, starts, ends, strict=True)
        )
        files.append(written(tmp_path / f"{number}.bed", "".join(lines)))
    assembly = load_assembly("sacCer3")
    lengths = named_as_in_peaks(files, contigs, assembly)
    assert lengths == {"chrI": contigs["I"], "chrII": contigs["II"]}
    counts, table = pandas_labels(files, lengths)
    assert counts == own_labels(files, contigs, assembly)
    assert table.shape == (40 + 9, len(files)) and min(counts) > 0
