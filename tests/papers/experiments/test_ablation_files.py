"""Files of an ablation that are damaged, or of something else: one sentence each."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.papers.experiments.ablation import ablation_report
from bigbird_dna.papers.experiments.ablation_files import read_cost, read_models_bits, split_name
from tests.golden.messages import fails
from tests.papers.experiments.costs import write_cost

BITS: dict[str, Any] = {
    "names": np.array(["full-1", "bigbird-1"]),
    "steps": np.array([80, 80]),
    "seconds": np.array([9.0, 9.0]),
    "sequence_tokens": np.array([512]),
    "bits": np.ones((2, 30)) + np.arange(30),
    "bases": np.full(30, 5),
    "blocks": np.arange(30) // 5,
}


def write(path: Path, **changes: Any) -> Path:
    np.savez(path, **(BITS | changes))
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peak_mib": ...}, "'peak_mib' is not a number but None"),
        ({"peak_mib": -1}, "'peak_mib' is -1, not from 0 to"),
        ({"tokens_per_second": 0}, "'tokens_per_second' is 0, not from"),
        ({"seconds": 1e-320}, "not from 1e-09 to 1e+09"),
        ({"seconds": 1e300}, "'seconds' is 1e+300, not from"),
        ({"tokens": -5}, "'tokens' is -5, not from"),
        ({"sequences": 0}, "'sequences' is 0, not from"),
    ],
)
def test_costs_have_numbers_that_can_be(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write_cost(tmp_path / "cost.json", 0.5)
    values = json.loads(path.read_text())
    row = values["lengths"][0] | changes
    values["lengths"] = [{key: value for key, value in row.items() if value is not ...}]
    path.write_text(json.dumps(values))
    with pytest.raises(DataError) as caught:
        read_cost(path)
    assert message in str(caught.value) and str(path) in str(caught.value)


def test_costs_say_how_they_were_measured(tmp_path: Path) -> None:
    path = write_cost(tmp_path / "cost.json", 0.5, device="cuda", threads=3, attention_options={"a": 1})
    cost = read_cost(path)
    assert (cost.device, cost.threads, cost.attention_options) == ("cuda", 3, {"a": 1})
    row = json.loads(path.read_text())["lengths"][0]
    wrong: list[dict[str, Any]] = [{"lengths": [row, row]}, {"lengths": [3]}, {"device": 3}]
    for changes in (*wrong, {"attention_options": []}, {"threads": 0}):
        with fails(DataError, path):
            read_cost(write_cost(path, 0.5, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seconds": np.array(["9", "9"])}, "seconds is not"),
        ({"seconds": np.array([9.0, -1])}, "seconds is not"),
        ({"seconds": np.array([9.0, np.nan])}, "seconds is not"),
        ({"bases": np.full(30, "5")}, "bases is not"),
        ({"bases": np.array(5)}, "bases is not"),
        ({"bases": np.full(30, np.inf)}, "bases is not"),
        ({"bases": np.r_[-5, np.full(29, 5)]}, "bases is not"),
        ({"steps": np.array(["80", "80"])}, "steps is not"),
        ({"steps": np.array([80, np.nan])}, "steps is not"),
        ({"blocks": np.arange(30) / 5}, "blocks is not"),
        ({"sequence_tokens": np.array([0])}, "sequence_tokens is not"),
        ({"sequence_tokens": np.array([], int)}, "sequence_tokens is not"),
        ({"names": np.array([1, 2])}, "names is not"),
        ({"bits": np.ones((2, 30)) - 3}, "its bits are not 2 × 30 numbers"),
        ({"bits": np.ones((2, 30), complex)}, "its bits are not 2 × 30 numbers"),
    ],
)
def test_bits_have_numbers_that_can_be(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "bits.npz", **changes)
    with pytest.raises(DataError) as caught:
        read_models_bits([path])
    assert message in str(caught.value) and str(path) in str(caught.value)
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
    other = write(tmp_path / "other.npz", names=np.array(["window-1", "full-2"]), bases=np.full(30, 6))
    for wrong in (other, own):
        with fails(DataError, own):
            read_models_bits([own, wrong])


def test_costs_that_do_not_belong_together(tmp_path: Path) -> None:
    steps, out = [write(tmp_path / "steps.npz")], tmp_path / "out"
    own = write_cost(tmp_path / "own.json", 0.5)
    full = write_cost(tmp_path / "full.json", 0.7, attention="full", clock="wall")
    again = write_cost(tmp_path / "again.json", 0.6)
    for costs, error, named in (
        ({"bigbird": own, "full": full}, DataError, (own, full, "'wall'")),
        ({"bigbird": own, "full": own}, UsageError, ("full", "bigbird")),
        ({"full": again}, UsageError, (again, "'bigbird'")),
    ):
        with fails(error, *named):
            ablation_report(steps, out, reference="bigbird", costs=costs)
    assert not out.exists()


def test_other_mechanisms_than_those_of_the_same_steps(tmp_path: Path) -> None:
    steps = write(tmp_path / "steps.npz")
    names = np.array(["window-1", "bigbird-1"])
    others = write(tmp_path / "other.npz", names=names)
    longer = write(tmp_path / "long.npz", names=names, sequence_tokens=np.array([2048]))
    with fails(DataError, others, "'window'", steps):
        ablation_report([steps], tmp_path / "out", reference="bigbird", time=[others])
    with fails(DataError, longer, "'window'", steps):
        ablation_report([steps], tmp_path / "out", reference="bigbird", lengths=[[longer]])
    with fails(UsageError, "window"):
        ablation_report([steps], tmp_path / "out", reference="bigbird", altered=["window"])
