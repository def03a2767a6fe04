"""Bits per base of a language model and of others: table, figures and files."""

import math

import pandas as pd
import pytest

from bigbird_dna.data.predictions import BITS_COLUMNS, of_split, read_bits
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError
from tests.golden.messages import fails
from tests.reporting.test_figures import RATES
from tests.reporting.test_figures import bits_table as table


def test_table_has_a_row_for_each_and_compares_with_the_model():
    found = table()
    assert tuple(found.columns) == BITS_COLUMNS
    assert found["predictor"].tolist() == [*RATES]
    rows = found.set_index("predictor")
    assert math.isnan(rows.loc["model", "difference"])
    for name in [*RATES][1:]:
        row = rows.loc[name]
        assert row["difference"] == pytest.approx(rows.loc["model", "bits_per_base"] - row["bits_per_base"])
        assert row["difference_low"] < row["difference"] < row["difference_high"] < 0
    assert rows.loc["uniform", ["bits_per_base", "low", "high"]].tolist() == [2, 2, 2]
    assert rows["note"].tolist() == ["", "2 bits a base", "", "", ""]


def test_a_table_is_read_as_it_was_written(tmp_path):
    both = pd.concat([table().assign(split=split) for split in ("valid", "test")], ignore_index=True)
    write_tsv(tmp_path / "bits.tsv", both[["split", *BITS_COLUMNS]])
    found = read_bits(tmp_path / "bits.tsv")
    pd.testing.assert_frame_equal(found, both[["split", *BITS_COLUMNS]], rtol=1e-5)
    assert of_split(found, "test")["split"].tolist() == ["test"] * len(table())
    assert of_split(found, "other")["split"].tolist() == ["valid"] * len(table())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda rows: rows.assign(low="x"), "low 'x'"),
        (lambda rows: rows.assign(bits_per_base=""), "bits_per_base ''"),
        (lambda rows: pd.concat([rows, rows[:1]]), "row 6"),
        (lambda rows: rows[rows["predictor"] != "model"], "'model'"),
        (lambda rows: rows[:0], "bits.tsv"),
        (lambda rows: rows.drop(columns="note"), "'note'"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path, change, named):
    rows = table().assign(split="test").astype(object)
    write_tsv(tmp_path / "bits.tsv", change(rows[["split", *BITS_COLUMNS]]))
    with fails(DataError, "bits.tsv", named):
        read_bits(tmp_path / "bits.tsv")
