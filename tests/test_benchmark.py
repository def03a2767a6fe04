"""`bigbird-dna benchmark`: small runs print a table, and write the same as JSON."""

import json
from pathlib import Path

import pytest

from tests.cli.command import Run

pytest.importorskip("transformers")


def test_attention_is_timed_beside_its_peers(tmp_path: Path, run: Run) -> None:
    output = tmp_path / "attention.json"
    sizes = ("--lengths", "512", "--heads", "1", "--layers", "1", "--vocab-size", "64")
    result = run("benchmark", "attention", *sizes, "--repeats", "1", "-o", output)
    assert result.code == 0, result.err
    rows = json.loads(output.read_text())["results"]
    timed = [row for row in rows if "median" in row]
    assert {row["implementation"] for row in timed} == {
        "native",
        "flex",
        "sdpa",
        "huggingface",
        "bigbird-dna",
        "BigBirdForMaskedLM",
    }
    assert all(row["median"] > 0 for row in timed)
    assert all(row["work"] in result.out for row in rows)


def test_reports_of_two_checkouts_alternate(tmp_path: Path, run: Run) -> None:
    """Here, both are this one."""
    checkout = Path(__file__).resolve().parent.parent
    options = ("--repeats", "2", "--threads", "1", "--against", checkout)
    result = run("benchmark", "reports", *options, "-o", tmp_path / "reports.json")
    assert result.code == 0, result.err
    rows = json.loads((tmp_path / "reports.json").read_text())["results"]
    assert [len(row["seconds"]) for row in rows] == [2, 2]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("nothing",), "'nothing'"),
        (("attention", "--implementations", "nothing"), "nothing"),
        (("attention", "--lengths", "many"), "--lengths many"),
        (("attention", "--dtype", "float8"), "'float8'"),
    ],
)
def test_wrong_options_are_usage_errors(
    words: tuple[str, ...], named: str, run: Run
) -> None:
    result = run("benchmark", *words)
    assert result.code == 2 and named in result.err
