"""`bigbird-dna benchmark`: small runs print a table, and write the same as JSON."""

import json
from functools import partial
from pathlib import Path

import pytest

from benchmarks import reports
from tests.cli.command import Run

pytest.importorskip("transformers")


@pytest.mark.parametrize(
    "names",
    [
        ("native", "sdpa"),
        pytest.param(("native", "flex", "sdpa", "huggingface"), marks=pytest.mark.slow),
    ],
)
def test_attention_is_timed_beside_its_peers(
    names: tuple[str, ...], tmp_path: Path, run: Run
) -> None:
    output = tmp_path / "attention.json"
    sizes = ["--length", "512", "--layers", "1"]
    sizes += [word for name in names for word in ("--implementation", name)]
    result = run("benchmark", "attention", *sizes, "--repeats", "1", "-o", output)
    assert result.code == 0, result.err
    rows = json.loads(output.read_text())["results"]
    timed = [row for row in rows if "median" in row]
    encoders = {"bigbird-dna"}
    if "huggingface" in names:
        encoders.add("BigBirdForMaskedLM")
    assert {row["implementation"] for row in timed} == {*names, *encoders}
    assert all(row["median"] > 0 for row in timed)
    assert all(row["work"] in result.out for row in rows)


def test_reports_are_timed_beside_scikit_learn(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = partial(reports.run, rows=1_000, tracks=8)
    monkeypatch.setattr(reports, "run", small)
    options = ("--repeats", "2", "--threads", "1")
    result = run("benchmark", "reports", *options, "-o", tmp_path / "reports.json")
    assert result.code == 0, result.err
    rows = json.loads((tmp_path / "reports.json").read_text())["results"]
    assert [len(row["seconds"]) for row in rows] == [2, 2]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("nothing",), "'nothing'"),
        (("attention", "--implementation", "nothing"), "nothing"),
        (("attention", "--length", "many"), "--length"),
        (("attention", "--dtype", "float8"), "'float8'"),
    ],
)
def test_wrong_options_are_usage_errors(
    words: tuple[str, ...], named: str, run: Run
) -> None:
    result = run("benchmark", *words)
    assert result.code == 2 and named in result.err
