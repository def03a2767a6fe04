"""Tables of sequences and labels as benchmarks publish them: their columns, classes, splits and faults."""

import gzip
from pathlib import Path

import pandas as pd
import pytest

from bigbird_dna.data.labeled_sequences import (
    LabeledRows,
    parse_labels,
    read_labeled_files,
)
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence_tables import COLUMNS, TableColumns
from tests.golden.messages import fails

ROWS = pd.DataFrame({"sequence": ["acgtR", "TTTT", "GGNA"], "label": [1, 0, 1]})


def read(paths: list[Path], columns: TableColumns = COLUMNS) -> LabeledRows:
    """The table with labels of two classes."""
    table = read_labeled_files(paths, columns=columns)
    parse_labels(table, "binary")
    return table


def classes(table: LabeledRows) -> tuple[dict[str, str], dict[str, str]]:
    """The positives and the negatives."""
    rows = zip(table.rows["name"], table.rows["sequence"], strict=True)
    positive = parse_labels(table, "binary").values[:, 0] == 1
    both: tuple[dict[str, str], dict[str, str]] = {}, {}
    for (name, sequence), is_positive in zip(rows, positive, strict=True):
        both[0 if is_positive else 1][name] = sequence
    return both


def splits(table: LabeledRows) -> dict[str, str]:
    return dict(zip(table.rows["name"], table.rows["split"], strict=True))


def written(path: Path, rows: pd.DataFrame) -> Path:
    """The table in the format that the file's name states."""
    plain = path.with_name(path.name.removesuffix(".gz"))
    if plain.suffix == ".parquet":
        rows.to_parquet(path)
        return path
    text = rows.to_csv(
        index=False, sep="," if plain.suffix == ".csv" else "\t"
    ).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.csv.gz", "x.TAB", "x.parquet"])
def test_all_formats_give_the_same(tmp_path: Path, name: str) -> None:
    found = read([written(tmp_path / name, ROWS)])
    assert classes(found) == ({"row_1": "ACGTN", "row_3": "GGNA"}, {"row_2": "TTTT"})
    assert not found.has_splits


def test_columns_of_other_names_and_quoted_cells(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(
        '\ufeffid,"seq","y",name\n1,"AC\nGT",true,b\n2,A,False,a\n'
    )
    with fails(DataError):  # a line break is no base
        read([tmp_path / "x.csv"], TableColumns("seq", ("y",)))
    (tmp_path / "x.csv").write_text(
        '\ufeffid,"seq","y",name\n1,"ACGT",true,b\n2,A,False,a\n'
    )
    found = read([tmp_path / "x.csv"], TableColumns("seq", ("y",)))
    assert classes(found) == ({"b": "ACGT"}, {"a": "A"})
    with fails(DataError, "sequence"):
        read([tmp_path / "x.csv"])


def test_rows_without_a_class_are_in_neither(tmp_path: Path) -> None:
    rows = pd.concat([ROWS, ROWS]).assign(
        label=[1, 0, 1, None, "NA", 0], split=["train", "test"] * 3
    )
    found = read([written(tmp_path / "x.csv", rows)])
    assert classes(found) == (
        {"row_1": "ACGTN", "row_3": "GGNA"},
        {"row_2": "TTTT", "row_6": "GGNA"},
    )
    assert splits(found) == {
        "row_1": "train",
        "row_2": "test",
        "row_3": "train",
        "row_6": "test",
    }


def test_splits_are_those_of_a_column_or_of_the_files(tmp_path: Path) -> None:
    column = ROWS.assign(split=["Train", "dev", "test"], name=["a", "b", "c"])
    found = read([written(tmp_path / "x.csv", column)])
    assert splits(found) == {"a": "train", "b": "valid", "c": "test"}
    # GUE has a file per split, the benchmark of the Nucleotide Transformer Parquet files of the same names.
    for names in (
        ("train.csv", "dev.csv", "test.csv"),
        ("train-00000-of-00001.parquet", "val.tsv", "test.tab"),
    ):
        files = [written(tmp_path / name, ROWS) for name in names]
        found = read(files)
        assert found.has_splits and len(found.rows) == 9
        assert [splits(found)[name] for name in ("row_1", "row_5", "row_9")] == [
            "train",
            "valid",
            "test",
        ]
    with fails(DataError):
        read([files[0], written(tmp_path / "more.csv", ROWS)])


@pytest.mark.parametrize(
    "rows",
    [
        ROWS.assign(label=[1, 2, 0]),
        ROWS.assign(label=["promoter", 0, 1]),
        ROWS.assign(label=1),
        ROWS.assign(sequence=["ACGT", "", "A"]),
        ROWS.assign(sequence=["ACGT", "MKVL", "A"]),
        ROWS.assign(split=["train", "holdout", "test"]),
        ROWS.assign(name=["a", "#b", "c"]),
        ROWS.drop(columns="label"),
        ROWS.head(0),
    ],
)
def test_faults_name_the_file_and_the_row(tmp_path: Path, rows: pd.DataFrame) -> None:
    with fails(DataError, tmp_path / "x.csv"):
        read([written(tmp_path / "x.csv", rows)])


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with fails(DataError):
        read([written(tmp_path / "x.parquet", ROWS.assign(sequence=[1.5, 2, 3]))])
    (tmp_path / "x.csv").write_bytes(b"sequence,label\nACGT,1,3,4\n")
    (tmp_path / "empty.tsv").touch()
    (tmp_path / "cut.csv.gz").write_bytes(
        gzip.compress(b"sequence,label\n" + b"ACGT,1\n" * 99)[:-9]
    )
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    for name in ("x.csv", "empty.tsv", "cut.csv.gz", "binary.csv", "none.csv"):
        with fails(DataError, tmp_path / name):
            read([tmp_path / name])
