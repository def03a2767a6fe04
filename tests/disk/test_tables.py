"""Tables with declared columns: what is written is read back, and what a column can't hold is refused."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.disk.atomic import read_json, write_json
from bigbird_dna.disk.tables import open_lines, read_table, write_tsv
from bigbird_dna.errors import DataError
from bigbird_dna.reporting.result import write_result
from tests.golden.messages import fails

COLUMNS = [
    "model",
    "n",
    "auroc",
    "auroc_low",
    "auroc_high",
    "fraction",
    "published_auroc",
]
FRAME = pd.DataFrame(
    [("a", 3, 0.5, 0.25, 0.75, 0.125, math.nan), ("NA", 4, *[math.nan] * 3, 1.0, 0.9)],
    columns=COLUMNS,
)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "t.tsv"
    write_tsv(path, FRAME)
    assert path.read_text().splitlines()[1] == "a\t3\t0.5\t0.25\t0.75\t0.125\t"
    found = read_table(path, COLUMNS, text=["model"])
    pd.testing.assert_frame_equal(found, FRAME, check_dtype=False)
    assert found["n"].dtype == np.int64 and found["auroc"].dtype == np.float64


@pytest.mark.parametrize("cell", ["x", "1,5", "²"])
def test_a_cell_that_is_no_number_and_a_missing_column(tmp_path, cell):
    text = FRAME.astype(object).fillna("")
    text.loc[1, "n"] = cell
    text.to_csv(tmp_path / "t.tsv", sep="\t", index=False)
    with fails(DataError, "t.tsv", "column 'n'", repr(cell)[:50]):
        read_table(tmp_path / "t.tsv", ["n"])
    with fails(DataError, "t.tsv", "no column 'more'"):
        read_table(tmp_path / "t.tsv", ["more"])


def test_lines_of_a_table(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("## a comment\n#a\tb\n1\t2\n\n3\t4\n5\n")
    where, header, rows = open_lines(path)
    assert (where, header) == (f"{path}: line 2", ["a", "b"])
    assert [next(rows), next(rows)] == [
        (f"{path}: line 3", ["1", "2"]),
        (f"{path}: line 5", ["3", "4"]),
    ]
    with fails(DataError):
        next(rows)
    path.write_text("a\ta\n")
    with fails(DataError):
        open_lines(path)
    path.write_text("##\n")
    assert open_lines(path)[1] == [""]


def test_a_result_in_all_its_forms(tmp_path):
    notes = ["Of the test windows.", "Published by others."]
    write_result(tmp_path, "r", "Results", FRAME, notes)
    assert read_table(tmp_path / "r.tsv", ["n"])["n"].tolist() == [3, 4]
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["note"] == " ".join(notes) and content["rows"][1]["auroc"] is None
    lines = (tmp_path / "r.md").read_text().splitlines()
    assert lines[0] == "# Results" and lines[-1] == f"† {content['note']}"
    assert lines[4] == "| a | 3 | 0.500 [0.250, 0.750] | 0.125 |  |"
    assert lines[5] == "| NA | 4 |  | 1.000 | 0.900 † |"


def test_json_of_any_form_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    for content in (
        b"[" * 100_000,
        b"9" * 5000,
        b"\xff",
        b'{"a": "\xed\xa0\x80"}',
        b"",
        b"nul",
    ):
        path.write_bytes(content)
        with fails(DataError) as caught:
            read_json(path)
        assert "\n" not in str(caught.value)


def test_json_round_trip_and_damage(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "info.json"
    write_json(path, {"å": [1, None]})
    assert read_json(path) == {"å": [1, None]} and json.loads(path.read_text())
    path.write_text("{")
    with fails(DataError):
        read_json(path)
    with fails(DataError):
        read_json(tmp_path / "none.json")
