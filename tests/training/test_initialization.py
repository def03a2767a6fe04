"""What fine-tuning is told of a pretrained model that has seen what is held out now."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.errors import ModelError
from bigbird_dna.training.initialization import Initialization
from tests.golden.messages import fails


def seen(directory: Path, provenance: dict[str, Any], held_out: pd.DataFrame) -> list[str]:
    (directory / "provenance.json").write_text(json.dumps(provenance))
    model: Any = SimpleNamespace(path=directory)
    none: Any = None
    return Initialization(none, none, model, none).seen(held_out)


PLACES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 90), st.integers(1, 30)), max_size=8)


@given(PLACES, PLACES, st.booleans())
def test_what_was_trained_on_and_is_held_out_is_named(
    tmp_path_factory: pytest.TempPathFactory,
    trained: list[tuple[str, int, int]],
    held_out: list[tuple[str, int, int]],
    categories: bool,
) -> None:
    """Base by base: `a` was trained on whole, `b` and `c` in stretches, and `d` is not known."""
    stretches = [(contig, start, start + size) for contig, start, size in trained if contig != "a"]
    rows = pd.DataFrame(
        [(contig, start, start + size) for contig, start, size in held_out] + [("d", 0, 5)],
        columns=["contig", "start", "end"],
    )
    bases = {(row.contig, base) for row in rows.itertuples() for base in range(row.start, row.end)}
    expected = ["a"] * any(contig == "a" for contig, _ in bases)
    expected += [
        f"{contig}:{start + 1}-{end}"
        for contig, start, end in stretches
        if any((contig, base) in bases for base in range(start, end))
    ]
    if categories:  # as in a table of bins, which knows contigs that have none
        rows["contig"] = pd.Categorical(rows["contig"], categories=["z", *"dcba"])
    provenance = {
        "contigs": ["a", *dict.fromkeys(contig for contig, _, _ in stretches)],
        "stretches": [f"{contig}:{start + 1}-{end}" for contig, start, end in stretches],
    }
    found = seen(tmp_path_factory.mktemp("model"), provenance, rows)
    assert sorted(found) == sorted(expected)


def test_a_model_of_whole_contigs_names_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = pd.DataFrame({"contig": ["22", "1"], "start": np.array([5, 6]), "end": np.array([9, 9])})
    assert seen(tmp_path, {"contigs": ["22", "X"]}, rows) == ["22"]
    assert "was pretrained on held-out contigs: 22\n" in capsys.readouterr().err
    assert seen(tmp_path, {}, rows) == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("stretches", ["22:1-5", ["22"], ["22:5-1"], [5]])
def test_stretches_that_are_no_regions_are_refused(tmp_path: Path, stretches: object) -> None:
    rows = pd.DataFrame({"contig": ["22"], "start": [5], "end": [9]})
    with fails(ModelError):
        seen(tmp_path, {"contigs": ["22"], "stretches": stretches}, rows)
