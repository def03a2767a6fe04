"""Sequences with labels of any kind: which kind it is, and how they are split."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.data.labeled_sequences import LabeledSequences, read_labeled_sequences
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.sequence_tables import TableColumns
from tests.golden.messages import fails
from tests.toys import random_dna

COUNT = 60


def table(path: Path, **columns: Sequence[Any]) -> Path:
    count = len(next(iter(columns.values()))) if columns else COUNT
    sequences = [random_dna(60, number) for number in range(count)]
    frame = pd.DataFrame({"sequence": sequences, **columns})
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    return path


def cycle(*values: Any) -> list[Any]:
    return [values[number % len(values)] for number in range(COUNT)]


@pytest.mark.parametrize(
    ("labels", "kind", "outputs"),
    [
        (cycle(0, 1), "binary", ["label"]),
        (cycle("True", "false"), "binary", ["label"]),
        (cycle("enhancer", "other"), "multiclass", ["enhancer", "other"]),
        (cycle(0, 1, 2), "multiclass", ["0", "1", "2"]),
        (cycle(3, 1, 2), "multiclass", ["1", "2", "3"]),
        (cycle(-1, 1), "multiclass", ["-1", "1"]),
        (cycle(0, 1, 3), "regression", ["label"]),
        (cycle(0.5, 1, 2), "regression", ["label"]),
        (cycle("a", "b", "10"), "multiclass", ["10", "a", "b"]),
    ],
    ids=[
        "0 and 1",
        "words",
        "two names",
        "0 to 2",
        "1 to 3",
        "signs",
        "a gap",
        "fractions",
        "names",
    ],
)
@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_the_kind_is_found_from_the_labels(
    tmp_path: Path, name: str, labels: list[Any], kind: str, outputs: list[str]
) -> None:
    if name == "x.parquet" and len({*map(type, labels)}) > 1:
        labels = [*map(str, labels)]
    found = read_labeled_sequences([table(tmp_path / name, label=labels)])
    assert (found.labels.kind, [*found.labels.outputs]) == (kind, outputs)
    values = found.labels.values
    if kind == "multiclass":
        assert [outputs[column] for column in values.argmax(1)] == [*map(str, labels)]
        assert (values.sum(1) == 1).all()
    else:
        numbers = [{"True": 1, "false": 0}.get(label, label) for label in labels]
        assert values[:, 0].tolist() == pytest.approx([*map(float, numbers)])


def test_several_columns_are_several_labels(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "label_0": cycle(0, 1),
        "label_1": cycle(0, 0, 1),
        "other": cycle(0.5, 2, 7),
    }
    path = table(tmp_path / "x.csv", **columns)
    several = TableColumns(labels=("label_?",))
    found = read_labeled_sequences([path], columns=several)
    assert (found.labels.kind, found.labels.outputs) == (
        "multilabel",
        ("label_0", "label_1"),
    )
    both = read_labeled_sequences(
        [path], columns=TableColumns(labels=("other", "label_0"))
    )
    assert (both.labels.kind, both.labels.outputs) == (
        "regression",
        ("other", "label_0"),
    )
    assert np.array_equal(both.labels.values[:, 1], found.labels.values[:, 0])
    every = read_labeled_sequences(
        [path], columns=TableColumns(labels=("other", "label_?"))
    )
    assert every.labels.outputs == ("other", "label_0", "label_1")
    asked = read_labeled_sequences(
        [path], columns=TableColumns(labels=("label_0",)), task="regression"
    )
    assert (asked.labels.kind, asked.labels.outputs) == ("regression", ("label_0",))
    # A column without differences is left out.
    one = read_labeled_sequences(
        [table(tmp_path / "y.csv", label_0=cycle(0), label_1=cycle(0, 1))],
        columns=several,
    )
    assert one.labels.outputs == ("label_1",)


@pytest.mark.parametrize(
    ("columns", "task"),
    [
        ({"other": cycle(0, 1)}, None),
        ({"label": cycle(1)}, None),
        ({"label": cycle(0.5)}, None),
        ({"label": cycle(0.5, 1, "high")}, "regression"),
        ({"label": cycle("a", "b")}, "binary"),
        ({"label": cycle("a", "")}, "multiclass"),
        ({"label": cycle(0.25, 1)}, "multilabel"),
        ({"label_0": cycle(0, 1), "label_1": cycle(1, 0)}, "binary"),
        ({"label": [f"c{number}" for number in range(1200)]}, None),
        ({"label": cycle(0, 1), "split": cycle("train", "valid")}, None),
        (
            {
                "label": cycle("a", "b", "c"),
                "split": ["test"] * 3 + cycle("valid", "train", "train")[3:],
            },
            None,
        ),
        ({"label": ["a\tb", *cycle("a", "b")[1:]]}, None),
    ],
    ids=[
        *(
            "no label",
            "one class",
            "one number",
            "text",
            "other classes",
            "empty",
            "fractions",
            "two columns",
        ),
        *("many classes", "no test", "untrained class", "control character"),
    ],
)
def test_faults_name_the_file(
    tmp_path: Path, columns: dict[str, Any], task: Any
) -> None:
    path = table(tmp_path / "x.csv", **columns)
    if columns.get("split", [""])[0] == "test":  # class c only in the test split
        frame = pd.read_csv(path)
        frame.loc[frame["label"] == "c", "split"] = "test"
        frame.to_csv(path, index=False)
    with fails(DataError, path):
        read_labeled_sequences([path], task=task)


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    (tmp_path / "p.fa").write_text(">a\nACGT\n")
    path = table(tmp_path / "x.csv", label=cycle(0, 1))
    with fails(UsageError):
        read_labeled_sequences([path], negatives=tmp_path / "p.fa")
    with fails(UsageError):
        read_labeled_sequences([tmp_path / "p.fa", path])
    with fails(DataError):  # no negatives
        read_labeled_sequences([tmp_path / "p.fa"])
    truncated = tmp_path / "x.csv.gz"
    truncated.write_bytes(gzip.compress(path.read_bytes())[:-20])
    with fails(DataError):
        read_labeled_sequences([truncated])


@pytest.mark.parametrize(
    "text", ["NA", "nan", "", "None", "NULL", ".", "?", "N/A", "<NA>"]
)
@pytest.mark.parametrize(
    ("labels", "kind", "outputs"),
    [
        (cycle(0, 1), "binary", ["label"]),
        (cycle("true", "false"), "binary", ["label"]),
        (cycle("weak", "strong"), "multiclass", ["strong", "weak"]),
        (cycle(0, 1, 2), "multiclass", ["0", "1", "2"]),
        (cycle(0.25, -1, 7), "regression", ["label"]),
    ],
    ids=["0 and 1", "words", "names", "0 to 2", "numbers"],
)
def test_rows_without_a_label_are_left_out_and_counted(
    tmp_path: Path,
    text: str,
    labels: list[Any],
    kind: str,
    outputs: list[str],
    capsys: Any,
) -> None:
    path = table(tmp_path / "x.csv", label=[text, *labels[1:-1], text])
    found = read_labeled_sequences([path])
    assert (found.labels.kind, [*found.labels.outputs], found.unlabeled) == (
        kind,
        outputs,
        2,
    )
    assert found.names == ["row_2", *(f"row_{number}" for number in range(3, COUNT))]
    if kind == "regression":
        assert found.labels.values[:, 0].tolist() == labels[1:-1]
    assert "rows without a label are left out: 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    "columns",
    [
        {"label": [0, 1, -1, *cycle(0, 1)[3:]]},
        {"label": [0, 1, -1, *cycle(0, 1, 2)[3:]]},
        {"label": [0, 0, -1, *cycle(0, -1)[3:]]},
        {"label_0": cycle(0, 1), "label_1": [0, 1, -1, *cycle(0, 1)[3:]]},
    ],
    ids=["0 and 1", "0 to 2", "0", "two labels"],
)
def test_minus_one_among_classes_needs_the_task(
    tmp_path: Path, columns: dict[str, list[Any]]
) -> None:
    """It may be a missing label, as in some published sets, a class, or a number."""
    path = table(tmp_path / "x.csv", **columns)
    with fails(DataError, "x.csv: row 3", "-1", "--task"):
        read_labeled_sequences([path])
    numbers = read_labeled_sequences([path], task="regression").labels
    assert numbers.values.min() == -1
    if len(columns) == 1:
        classes = read_labeled_sequences([path], task="multiclass").labels
        assert classes.outputs[:2] == ("-1", "0")


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_whole_numbers_that_pandas_made_floats_are_classes(
    tmp_path: Path, name: str
) -> None:
    """A column of integers with a missing value is one of floats in pandas."""
    column = pd.Series(cycle(0, 1, 2)).where(np.arange(COUNT) != 4)
    assert column.dtype == float
    found = read_labeled_sequences([table(tmp_path / name, label=column)])
    assert (found.labels.kind, found.labels.outputs) == ("multiclass", ("0", "1", "2"))
    assert found.labels.values.argmax(1).tolist() == [
        row % 3 for row in range(COUNT) if row != 4
    ]
    # Another file of the same set has no missing value, so there they are integers.
    halves = tmp_path / f"train.{name}", tmp_path / f"test.{name}"
    table(halves[0], label=column.head(30))
    table(halves[1], label=cycle(0, 1, 2)[:30])
    both = read_labeled_sequences(halves)
    assert (both.labels.outputs, both.unlabeled) == (("0", "1", "2"), 1)


def split_counts(found: LabeledSequences) -> dict[str, int]:
    return {
        str(name): int((found.splits == name).sum()) for name in np.unique(found.splits)
    }


def test_similar_sequences_and_classes_are_divided_evenly(tmp_path: Path) -> None:
    """Ten copies of each sequence with some changes are in one split, and classes are as frequent in each."""
    rng, rows = np.random.default_rng(1), []
    for number in range(60):
        text = random_dna(120, number)
        for _ in range(5):
            place = int(rng.integers(120))
            rows.append((text[:place] + "A" + text[place + 1 :], f"class {number % 3}"))
    frame = pd.DataFrame(rows, columns=["sequence", "label"])
    frame.to_csv(tmp_path / "x.csv", index=False)
    found = read_labeled_sequences([tmp_path / "x.csv"])
    assert all(
        len({*found.splits[found.groups == group]}) == 1
        for group in np.unique(found.groups)
    )
    assert split_counts(found) == {"train": 240, "valid": 30, "test": 30}
    for split, expected in (("train", 80), ("valid", 10), ("test", 10)):
        assert (
            found.labels.values[found.splits == split].sum(0).tolist() == [expected] * 3
        )
    again = read_labeled_sequences([tmp_path / "x.csv"])
    assert again.sha256 == found.sha256
    assert read_labeled_sequences([tmp_path / "x.csv"], seed=2).sha256 != found.sha256


def test_fasta_and_table_give_the_same(tmp_path: Path) -> None:
    texts = [random_dna(50, number).lower() for number in range(COUNT)]
    frame = pd.DataFrame({"sequence": texts, "label": cycle(1, 0)})
    frame.sort_values("label", ascending=False, kind="stable").to_csv(
        tmp_path / "x.csv", index=False
    )
    for name, kept in (("p.fa", texts[::2]), ("n.fa", texts[1::2])):
        (tmp_path / name).write_text(
            "".join(f">\n{text}\n" for text in kept)
        )  # no names
    one = read_labeled_sequences([tmp_path / "x.csv"])
    other = read_labeled_sequences([tmp_path / "p.fa"], negatives=tmp_path / "n.fa")
    assert one.sha256 == other.sha256 and one.length == 50


def test_overlapping_windows_need_splits(tmp_path: Path) -> None:
    """They are all linked, so that no group could be held out."""
    text = random_dna(2000, 1)
    windows = [text[place : place + 100] for place in range(0, 1900, 25)]
    frame = pd.DataFrame(
        {"sequence": windows, "label": [place % 2 for place in range(len(windows))]}
    )
    frame.to_csv(tmp_path / "x.csv", index=False)
    with fails(DataError):
        read_labeled_sequences([tmp_path / "x.csv"])
    parts = ["train"] * 40 + ["valid"] * 18 + ["test"] * 18
    frame.assign(split=parts).to_csv(tmp_path / "x.csv", index=False)
    assert not read_labeled_sequences([tmp_path / "x.csv"]).groups.any()
