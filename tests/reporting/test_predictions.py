"""Reading prediction files and lining predictors up."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.data.predictions import (
    EXTRA_NEGATIVES,
    CalibrationRows,
    compare,
    negative_set_of,
    read_predictions,
)
from bigbird_dna.errors import DataError
from tests.golden.messages import fails
from tests.toys import predictions


def written(path: Path, frame: pd.DataFrame) -> Path:
    frame.to_parquet(path, index=False)
    return path


def test_reads_one_split(tmp_path):
    path = written(tmp_path / "p.parquet", predictions())
    assert len(read_predictions(path)) == 12
    assert read_predictions(path, "valid")["contig"].tolist() == ["chr1"]
    assert negative_set_of(path) == "genomic"


def further(frame: pd.DataFrame, split: str = "test", times: int = 2) -> pd.DataFrame:
    """Predictions with so many further negatives of each promoter, of one window."""
    own = frame[(frame["split"] == split) & (frame["label"] == 0)].assign(split=EXTRA_NEGATIVES[split])
    return pd.concat([frame, *[own] * times], ignore_index=True)


def test_further_negatives_are_there_for_who_asks_for_them(tmp_path):
    plain = written(tmp_path / "plain.parquet", predictions())
    path = written(tmp_path / "p.parquet", further(predictions()))
    pd.testing.assert_frame_equal(read_predictions(path), read_predictions(plain))
    assert len(compare("genomic", {"a": path, "b": plain}).labels) == 12
    rows = read_predictions(path, further=True)
    found = CalibrationRows.of(rows, "test")
    assert len(rows) == len(found.labels) == 24 and found.further == 12
    # All negatives together weigh as much as those of other figures.
    assert found.negative_weight * (found.labels == 0).sum() == pytest.approx(6)
    assert CalibrationRows.of(read_predictions(plain, further=True), "test").negative_weight == 1
    odd = further(predictions())
    odd.loc[len(odd) - 1, ["label", "negative_set"]] = [1, "positive"]
    with fails(DataError, len(odd)):
        read_predictions(written(path, odd))


def test_row_order_and_integer_width_do_not_matter(tmp_path):
    ours, theirs = predictions(seed=1), predictions(seed=2)
    shuffled = theirs.sample(frac=1, random_state=0).astype({"start": "int32", "label": "uint8"})
    found = compare(
        "genomic",
        {"model": written(tmp_path / "a.parquet", ours), "k-mer": written(tmp_path / "b.parquet", shuffled)},
    )
    test = ours["split"] == "test"
    expected = ours[test].assign(kmer=theirs.loc[test, "probability"]).set_index("probability")
    for label, pair, model, kmer in zip(
        found.labels, found.pairs, found.scores["model"], found.scores["k-mer"], strict=True
    ):
        row = expected.loc[model]
        assert (row["label"], row["pair"], row["kmer"]) == (label, pair, kmer)


def changed(column: str, row: int, value: object) -> pd.DataFrame:
    frame = predictions()
    frame[column] = frame[column].astype(object)
    frame.loc[row, column] = value
    return frame.infer_objects()


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        (predictions().drop(columns="pair"), "'pair'"),
        (changed("probability", 3, np.nan), "row 4: probability nan"),
        (changed("contig", 2, None), "row 3: contig"),
        (changed("label", 1, 2), "row 2: label 2"),
        (changed("probability", 0, 1.5), "row 1: probability 1.5"),
        (changed("label", 0, 0), "row 1: negative_set 'positive'"),
        (changed("negative_set", 1, "permuted"), "genomic, permuted"),
        (changed("start", 2, 0).assign(end=400, pair=0), "row 3: start 0"),
        (predictions().assign(split="valid"), "'test'"),
        (predictions().head(0), "'test'"),
        (predictions().assign(start="a"), "'start'"),
    ],
)
def test_bad_files(tmp_path, frame, named):
    path = written(tmp_path / "p.parquet", frame)
    with fails(DataError, path, named):
        read_predictions(path)


def test_missing_and_foreign_files(tmp_path):
    with fails(DataError):
        read_predictions(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("contig\tstart\n")
    with fails(DataError):
        read_predictions(tmp_path / "text.parquet")
    with fails(DataError):
        read_predictions(tmp_path)
    frame = predictions()
    with fails(DataError):  # positives alone
        negative_set_of(written(tmp_path / "p.parquet", frame[frame["label"] == 1]))


def test_other_windows_are_named(tmp_path):
    ours = written(tmp_path / "a.parquet", predictions(pairs=6))
    fewer = written(tmp_path / "b.parquet", predictions(pairs=5))
    with fails(DataError):
        compare("genomic", {"model": ours, "k-mer": fewer})
    with fails(DataError):
        compare("genomic", {"model": fewer, "k-mer": ours})
    with fails(DataError):
        compare("permuted", {"model": ours})
