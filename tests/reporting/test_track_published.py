"""Tables of published AUROCs: found by name or in order, and refused where they don't fit."""

from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.errors import DataError
from bigbird_dna.reporting.tracks import read_published
from tests.golden.messages import fails


def published(path: Path, text: str, names=("a", "b")) -> list[float]:
    path.write_text(text)
    return read_published(path, names)


def test_published_by_name_or_order(tmp_path):
    path = tmp_path / "p.tsv"
    by_name = published(path, "track\tx\tpublished_auroc\nb\t1\t0.9\nz\t1\t0.1\n")
    np.testing.assert_array_equal(by_name, [np.nan, 0.9])
    by_order = published(path, "index\tauc_deepsea\n0\t0.7\n1\tNA (No positive in Test region)\n")
    np.testing.assert_array_equal(by_order, [0.7, np.nan])
    assert published(path, "auc\n0.5\n1\n") == [0.5, 1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("track\tscore\na\t1\n", "no column 'published_auroc'"),
        ("auc\n0.5\n", "1 rows and no column 'track', for 2 tracks"),
        ("index\tauc\n1\t0.5\n0\t0.5\n", "line 2: index '1', expected 0"),
        ("auc\n0.5\n1.5\n", "row 2: auc '1.5' is not a number from 0 to 1"),
        ("auc\nx\n1\n", "row 1: auc 'x' is not a number"),
        ("track\tauc\na\t1\na\t1\n", "row 2: track a: there is such a row before"),
        ("track\tauc\nc\t1\n", "none of its tracks"),
        ("auc\nNA\nNA\n", "column 'auc' has no figure for any track"),
        ("", "the file is empty"),
        ("track\tauroc\tauroc\na\t0.5\t0.6\n", "line 1: 2 columns called 'auroc'"),
        ("track\tauroc\na\t0.5\t\n", "line 2: 3 columns, the header has 2"),
    ],
)
def test_bad_published_tables(tmp_path, text, message):
    with fails(DataError, message):
        published(tmp_path / "p.tsv", text)
