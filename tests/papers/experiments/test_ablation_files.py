"""Files of an ablation that are damaged, or of something else."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.papers.experiments.ablation_files import read_cost, read_models_bits, split_name
from tests.golden.messages import fails
from tests.papers.experiments.ablations import TOKENS, report, write_bits, write_cost
from tests.toys import cases


def write(path: Path, **changes: Any) -> Path:
    return write_bits(path, {"full": 0.0, "bigbird": 0.0}, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"peak_mib": ...},
        *({"peak_mib": -1}, {"tokens_per_second": 0}, {"seconds": 1e-320}, {"seconds": 1e300}),
        *({"tokens": -5}, {"sequences": 0}),
    ],
)
def test_costs_have_numbers_that_can_be(changes: dict[str, Any], tmp_path: Path) -> None:
    path = write_cost(tmp_path / "cost.json", 0.5)
    row = json.loads(path.read_text())["lengths"][0] | changes
    write_cost(path, 0.5, lengths=[{key: value for key, value in row.items() if value is not ...}])
    with fails(DataError, path, *changes):
        read_cost(path)


def test_costs_say_how_they_were_measured(tmp_path: Path) -> None:
    path = write_cost(tmp_path / "cost.json", 0.5, device="cuda", threads=3, attention_options={"a": 1})
    cost = read_cost(path)
    assert (cost.device, cost.threads, cost.attention_options) == ("cuda", 3, {"a": 1})
    row = json.loads(path.read_text())["lengths"][0]
    wrong: list[dict[str, Any]] = [{"lengths": [row, row]}, {"lengths": [3]}, {"lengths": []}, {"device": 3}]
    for changes in (*wrong, {"clock": None}, {"attention_options": []}, {"threads": 0}):
        with fails(DataError, path):
            read_cost(write_cost(path, 0.5, **changes))


@pytest.mark.parametrize(
    ("key", "value"),
    cases(
        {
            "seconds": [np.array(["9", "9"]), np.array([9.0, -1]), np.array([9.0, np.nan])],
            "bases": [np.full(TOKENS, "5"), np.array(5), np.full(TOKENS, np.inf), np.full(TOKENS, -5)],
            "steps": [np.array(["80", "80"]), np.array([80, np.nan]), np.array([1])],
            "blocks": [np.arange(TOKENS) / 5],
            "sequence_tokens": [np.array([0]), np.array([], int)],
            "names": [np.array([1, 2]), np.array(["full", "bigbird-1"]), np.array(["full-1", "full-1"])],
            "bits": [np.full((2, TOKENS), value) for value in (-2.0, 1j, np.nan)],
        }
    ),
)
def test_bits_have_numbers_that_can_be(key: str, value: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "bits.npz", **{key: value})
    with fails(DataError, path):
        read_models_bits([path])
    assert read_models_bits([write(path)]).names == ("full-1", "bigbird-1")


@pytest.mark.parametrize("seed", ["01", "1" * 5000, "12345678901", "¹", "-1", ""])
def test_a_seed_is_written_in_one_way(seed: str, tmp_path: Path) -> None:
    with fails(DataError):
        split_name(f"bigbird-{seed}" if seed != "-1" else "bigbird--", "there")
    assert split_name("bigbird-4294967295", "there") == ("bigbird", 4294967295)
    assert split_name("bigbird-0", "there") == ("bigbird", 0)


def test_models_of_several_files_saw_the_same_tokens(tmp_path: Path) -> None:
    own = write(tmp_path / "own.npz")
    further = write(tmp_path / "further.npz", names=np.array(["window-1", "full-2"]))
    assert read_models_bits([own, further]).names == ("full-1", "bigbird-1", "window-1", "full-2")
    assert read_models_bits([own, further]).bits.shape[0] == 4
    other = write(tmp_path / "other.npz", names=np.array(["window-1", "full-2"]), bases=np.full(TOKENS, 6))
    for wrong in (other, own):
        with fails(DataError, own):
            read_models_bits([own, wrong])


def test_costs_that_do_not_belong_together(tmp_path: Path) -> None:
    steps, out = write(tmp_path / "steps.npz"), tmp_path / "out"
    own = write_cost(tmp_path / "own.json", 0.5)
    full = write_cost(tmp_path / "full.json", 0.7, attention="full", clock="wall")
    again = write_cost(tmp_path / "again.json", 0.6)
    for costs, error, named in (
        ({"bigbird": own, "full": full}, DataError, (own, full, "'wall'")),
        ({"bigbird": own, "full": own}, UsageError, ("full", "bigbird")),
        ({"full": again}, UsageError, (again, "'bigbird'")),
    ):
        with fails(error, *named):
            report(steps, out, costs=costs)
    assert not out.exists()


def test_other_mechanisms_than_those_of_the_same_steps(tmp_path: Path) -> None:
    steps = write(tmp_path / "steps.npz")
    names = np.array(["window-1", "bigbird-1"])
    others = write(tmp_path / "other.npz", names=names)
    longer = write(tmp_path / "long.npz", names=names, sequence_tokens=np.array([2048]))
    for options, path in (({"time": [others]}, others), ({"lengths": [[longer]]}, longer)):
        with fails(DataError, path, "'window'", steps):
            report(steps, tmp_path / "out", **options)
