"""The recorder: the same code has the same record, and a difference is found and named."""

import json
from pathlib import Path

import pytest

from tests.golden.record import ITEMS, compare, record


def test_two_records_of_the_same_code_are_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    for path in (one, other):
        record(path, ["names", "attention"], None)
    assert compare(one, other) == 0
    found = json.loads(one.read_text())
    assert {*found} == {"names", "attention"} <= {*ITEMS}
    assert len({*found["attention"].values()}) > 15  # the mechanisms differ
    found["names"]["load"] = "(path)"
    del found["attention"]["full"]
    other.write_text(json.dumps(found))
    capsys.readouterr()
    assert compare(one, other) == 1
    said = capsys.readouterr().out
    assert "load: " in said and "-> (path)" in said and "full: " in said and "-> absent" in said
