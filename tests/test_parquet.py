"""Tables in Parquet are read as they were written, and refused where a column holds what it may not."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigbird_dna.disk import foreign as parquet
from bigbird_dna.disk.foreign import check_cells, read_frame
from bigbird_dna.errors import DataError
from tests.golden.messages import fails


def table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "contig": pd.Categorical(["chr1", "chr2", "chr1"]),
            "name": ["a", "b", "ü"],
            "start": np.array([0, 200, 2**31 - 1]),
            "value": np.array([0.5, np.nan, -1], np.float32),
        }
    )


def test_tables_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table().to_parquet(path, index=False)
    pd.testing.assert_frame_equal(read_frame(path), table())
    pd.testing.assert_frame_equal(read_frame(path, ["start", "name"]), table()[["start", "name"]])
    check_cells(path, read_frame(path), ["contig", "name"], ["start"])


def test_what_pandas_says_in_a_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    stored = pa.Table.from_pandas(table())
    for said in (b"\xff", b"{", json.dumps({"index_columns": ["x"], "columns": [{}]}).encode()):
        pq.write_table(stored.replace_schema_metadata({b"pandas": said}), path)
        assert len(read_frame(path)) == 3


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("name", [b"a", b"b", b"c"], "'name' holds .*, not text in every row"),
        ("name", ["a", None, "b"], "not text in every row"),
        ("name", [1, 2, 3], "not text in every row"),
        ("contig", pd.Categorical(["a", None, "b"]), "not text in every row"),
        ("contig", pd.Categorical([1, 2, 1]), "not text in every row"),
        ("start", [0.0, 1.0, 2.0], "not a whole number in every row"),
        ("start", ["0", "1", "2"], "not a whole number in every row"),
        ("start", [0, -1, 5], "row 2: start -1 is not a number from 0"),
        ("start", [0, 2**31, 5], "row 2: start 2147483648 is not a number from 0"),
    ],
)
def test_cells_that_will_not_do_are_named(tmp_path: Path, name: str, values: object, text: str) -> None:
    path = tmp_path / "a.parquet"
    table().assign(**{name: values}).to_parquet(path, index=False)
    with fails(DataError):
        check_cells(path, read_frame(path), ["contig", "name"], ["start"])


def test_more_rows_than_a_file_can_hold_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": pa.array(np.zeros(5_000_000, np.int8))}), path)
    monkeypatch.setattr(parquet, "_LARGEST_RATIO", 100)
    assert path.stat().st_size < 50_000
    with fails(DataError):
        read_frame(path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table().to_parquet(path, index=False)
    whole = path.read_bytes()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        with fails(DataError):
            read_frame(path)
    with fails(DataError):
        read_frame(tmp_path / "b.parquet")
