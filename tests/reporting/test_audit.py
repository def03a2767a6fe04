"""Audits of labeled sequences: planted copies and shortcuts are found, and nothing in sets without them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.api.types import is_numeric_dtype

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.reporting.audit import DIFFERENT, audit_dataset
from tests.cli.command import Run, refused
from tests.genome.test_records import fasta
from tests.golden.messages import fails
from tests.toys import random_dna

COUNT, LENGTH, LABELS = 400, 120, 12
KINDS = ("binary", "multiclass", "multilabel", "regression")
COPIES, ALIKE = "copies", "similar sequences"
MOVED = " in another split"
each_kind = pytest.mark.parametrize("kind", KINDS)


def clean(kind: str, seed: int, outputs: int = LABELS) -> pd.DataFrame:
    """Random sequences; half of those that are `marked` have a motif at any place.

    Those are the positives of a class or label, or have a number above the mean.
    """
    rng = np.random.default_rng(seed)
    labels: dict[str, Any] = {
        "binary": {"label": np.repeat([1, 0], COUNT // 2)},
        "multiclass": {
            "label": np.array(["enhancer", "other", "promoter", "silencer"])[
                rng.integers(4, size=COUNT)
            ]
        },
        "multilabel": {
            f"label_{n}": 1 * (rng.random(COUNT) < 0.07 + (0.75 * n / outputs) ** 3)
            for n in range(outputs)
        },
        "regression": {"label": rng.normal(5, 3, COUNT)},
    }[kind]
    texts = [random_dna(LENGTH, 1000 * seed + row) for row in range(COUNT)]
    table = pd.DataFrame(
        {"name": [f"s{row}" for row in range(COUNT)], "sequence": texts, **labels}
    )
    for row in np.flatnonzero(marked(table))[::2]:
        at = int(rng.integers(10, LENGTH - 20))
        table.loc[row, "sequence"] = texts[row][:at] + "TGACTCA" + texts[row][at + 7 :]
    return table


def marked(table: pd.DataFrame) -> pd.Series:
    if "label" not in table:
        return table[f"label_{LABELS // 2}"] == 1
    labels = table["label"]
    return labels > labels.mean() if is_numeric_dtype(labels) else labels == "other"


def audited(table: pd.DataFrame, home: Path) -> tuple[list[str], pd.DataFrame]:
    table.to_csv(home / "x.csv", index=False)
    conclusions = audit_dataset([home / "x.csv"], home / "audit")
    return conclusions, written(home, "audit").set_index("check")


def written(home: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(
        home / f"audit/{name}.tsv", sep="\t", keep_default_na=False, na_values=[""]
    )


def changed(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """The table with a change of the marked sequences."""
    return table.assign(
        sequence=table["sequence"].mask(marked(table), table["sequence"].map(change))
    )


@each_kind
@pytest.mark.parametrize(
    ("seed", "outputs"),
    [
        (0, LABELS),
        (1, LABELS),
        *(pytest.param(n, 60, marks=pytest.mark.slow) for n in range(20)),
    ],
)
def test_nothing_is_found_in_a_clean_set(
    kind: str, seed: int, outputs: int, tmp_path: Path
) -> None:
    conclusions, table = audited(clean(kind, seed, outputs), tmp_path)
    assert len(conclusions) == 1 and table["finding"].isna().all()
    assert table.loc[[COPIES, ALIKE], "sequences"].sum() == 0


def more_gc(text: str) -> str:
    return "".join("G" if c == "A" and n % 3 else c for n, c in enumerate(text))


@pytest.mark.parametrize(
    ("kind", "check", "change"),
    [
        ("binary", "length alone", lambda text: text[:-3]),
        ("binary", "N alone", lambda text: text[:50] + "N" + text[51:]),
        (
            "multiclass",
            "lower-case letters alone",
            lambda text: text[:40] + text[40:50].lower() + text[50:],
        ),
        *((kind, "GC content alone", more_gc) for kind in KINDS),
    ],
)
def test_a_planted_shortcut_is_found(
    kind: str, check: str, change: Callable[[str], str], tmp_path: Path
) -> None:
    original = clean(kind, 1)
    conclusions, table = audited(changed(original, change), tmp_path)
    assert table["finding"].dropna().index.tolist() == [check]
    assert len(conclusions) == 1
    names = {"multilabel": f"label_{LABELS // 2}", "multiclass": "other"}
    assert f"{names.get(kind, 'label')!r} best" in conclusions[0]


def relabeled(table: pd.DataFrame) -> pd.DataFrame:
    """The table with contradictory labels."""
    if "label" not in table:
        return table.assign(label_0=1 - table["label_0"])
    labels = table["label"]
    if not is_numeric_dtype(labels):
        return table.assign(label=labels.map({"other": "enhancer"}).fillna("other"))
    return table.assign(
        label=1 - labels if set(labels) <= {0, 1} else labels + 1.2 * DIFFERENT * 3
    )


@each_kind
def test_all_planted_copies_are_found_and_listed(kind: str, tmp_path: Path) -> None:
    rng, table = np.random.default_rng(2), clean(kind, 2)
    splits = np.array(["train", "valid", "test"])[np.arange(len(table)) % 3]
    table = table.assign(split=splits)
    chosen = rng.choice(len(table), 60, replace=False)
    more = table.iloc[chosen].assign(name=[f"copy{row}" for row in chosen])
    kinds = (
        np.arange(60) % 4
    )  # same split and label; other split; other label; a part in another split
    more["sequence"] = [
        text[30:] + random_dna(30, row)
        if what == 3
        else reverse_complement(text)
        if what
        else text
        for row, (text, what) in enumerate(zip(more["sequence"], kinds, strict=True))
    ]
    if kind == "regression":  # of another measurement
        more["label"] += 0.8 * DIFFERENT * 3 * rng.uniform(-1, 1, 60)
        more["label"] = more["label"].mask(kinds == 2, table["label"].iloc[chosen])
    more[kinds == 2] = relabeled(more[kinds == 2])
    moved = more["split"].map({"train": "test", "valid": "train", "test": "valid"})
    more["split"] = more["split"].where(~np.isin(kinds, [1, 3]), moved)
    conclusions, found = audited(pd.concat([table, more]), tmp_path)
    counts = found["sequences"]
    assert counts[COPIES] == 90
    assert counts[ALIKE] == 120
    assert counts[f"{COPIES} with other labels"] == 30
    both = pd.concat([table.iloc[chosen[kinds == 1]], more[kinds == 1]])
    assert counts[f"{COPIES}{MOVED}"] == (both["split"] != "train").sum()
    assert len(conclusions) == 3
    listed = written(tmp_path, "similar").set_index("name")
    assert len(listed) == 120
    for row, name, what in zip(chosen, more["name"], kinds, strict=True):
        assert listed.loc[name, "group"] == listed.loc[f"s{row}", "group"]
        pair = {name: f"s{row}", f"s{row}": name}
        copies = [
            one for one, other in pair.items() if listed.loc[one, "copy_of"] == other
        ]
        assert len(copies) == (what != 3)


@each_kind
def test_labels_are_counted_in_each_split_and_missing_ones_found(
    kind: str, tmp_path: Path
) -> None:
    table = clean(kind, 3)
    positive = marked(table)
    table["split"] = np.where(
        positive, "train", np.where(np.arange(COUNT) % 2, "train", "test")
    )
    if kind == "regression":
        table["label"] = table["label"].where(table["split"] == "train", 0.5)
    conclusions, found = audited(table, tmp_path)
    assert found["finding"].dropna().index.tolist()[0] == "sequences, test"
    for split, own in table.drop(columns="split").groupby(table["split"]):
        own.to_csv(tmp_path / f"{split}.csv", index=False)
    files = [tmp_path / f"{split}.csv" for split in ("train", "test")]
    assert audit_dataset(files, tmp_path / "separate") == conclusions
    names = {"multilabel": f"label_{LABELS // 2}", "multiclass": "other"}
    name = names.get(kind, "label")
    assert name in conclusions[0]
    counts = found["sequences"]
    for split, size in table["split"].value_counts().items():
        assert counts[f"sequences, {split}"] == size
    if kind != "regression":
        assert counts[f"label {name}, all"] == positive.sum()
        assert counts[f"label {name}, train"] == positive.sum()
        assert counts[f"label {name}, test"] == 0


def test_labels_that_cannot_be_predicted_and_missing_splits_are_found(
    tmp_path: Path,
) -> None:
    table = clean("multilabel", 4)[["sequence", "label_10", "label_11"]].assign(
        label_1=0, split="train"
    )
    table.loc[:3, "label_1"] = 1
    conclusions, found = audited(table, tmp_path)
    assert found["finding"].dropna().index.tolist() == ["sequences", "sequences, test"]
    assert "label_1" in conclusions[0] and "label_10" not in conclusions[0]


@each_kind
def test_sequences_of_a_single_group_predict_nothing(kind: str, tmp_path: Path) -> None:
    text = random_dna(2 * COUNT + LENGTH, 1)
    windows = [text[2 * row : 2 * row + LENGTH] for row in range(COUNT)]
    conclusions, table = audited(clean(kind, 5).assign(sequence=windows), tmp_path)
    assert table.loc[ALIKE, "sequences"] == COUNT and table["finding"].isna().all()
    assert len(conclusions) == 1


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_missing_labels_are_reported_and_change_no_other_check(
    kind: str, tmp_path: Path
) -> None:
    """A shortcut to the known labels is found as without the rows and cells that have none."""
    rng = np.random.default_rng(3)
    texts = [random_dna(60 + number % 30, number) for number in range(300)]
    lengths = np.arange(300) % 30
    other = np.array([text.count("A") for text in texts], float)
    columns = {
        "label_0": (lengths > 14).astype(float),
        "label_1": (other > np.median(other)).astype(float),
    }
    if kind == "regression":
        columns = {
            "label_0": lengths / 5 + rng.normal(size=300),
            "label_1": other + 0.5,
        }
    frame = pd.DataFrame(
        {"sequence": texts, "split": ["train"] * 200 + ["test"] * 100, **columns}
    )
    missing = rng.random((300, 2)) < 0.3
    frame[["label_0", "label_1"]] = frame[["label_0", "label_1"]].mask(missing)
    frame.to_csv(tmp_path / "x.csv", index=False)
    conclusions = audit_dataset([tmp_path / "x.csv"], tmp_path / "audit")
    rows = int(missing.all(axis=1).sum())
    single = int((missing.sum(axis=1) == 1).sum())
    checks = pd.read_csv(tmp_path / "audit/audit.tsv", sep="\t").set_index("check")
    assert checks.loc["sequences without a label", "sequences"] == rows
    assert checks.loc["sequences with a missing label", "sequences"] == single
    assert conclusions[:2] == [
        f"{rows} without a label: left out.",
        f"{single} of {2 * (300 - rows)} labels are missing.",
    ]
    (shortcut,) = [one for one in conclusions if "from length alone" in one]
    assert "'label_0' best" in shortcut


def test_fasta_files_and_mistakes(tmp_path: Path, run: Run) -> None:
    table = clean("binary", 3)
    for label, name in ((1, "p"), (0, "n")):
        own = table[table["label"] == label]
        texts = own["sequence"].str.lower() if label else own["sequence"]
        fasta(tmp_path / f"{name}.fa", **dict(zip(own["name"], texts, strict=True)))
    words = (tmp_path / "p.fa", "--negatives", tmp_path / "n.fa")
    outcome = run("audit-dataset", *words, "-o", tmp_path / "audit")
    assert outcome.code == 0
    found = written(tmp_path, "audit").set_index("check")
    checks = ["lower-case letters alone"]
    assert (
        found["finding"].dropna().index.tolist()
        == checks
        == checks[: len(outcome.out.splitlines())]
    )
    refused(run("audit-dataset", tmp_path / "p.fa", "-o", tmp_path / "none"), 1)
    refused(
        run("audit-dataset", *words, "--task", "ranking", "-o", tmp_path / "none"), 2
    )
    with fails(UsageError):
        audit_dataset([tmp_path / "p.fa", tmp_path / "n.fa"], tmp_path / "none")
    tiny = pd.DataFrame({"sequence": ["A", "CG", "T"] * 8, "label": [1, 0] * 12})
    audited(tiny, tmp_path)
    fasta(tmp_path / "few.fa", a="ACGT")
    with fails(DataError):
        audit_dataset(
            [tmp_path / "p.fa"], tmp_path / "none", negatives=tmp_path / "few.fa"
        )
    tiny.assign(label=np.linspace(0, 1, 24)).iloc[:19].to_csv(
        tmp_path / "y.csv", index=False
    )
    with fails(DataError):
        audit_dataset([tmp_path / "y.csv"], tmp_path / "none")
    assert not (tmp_path / "none").exists()
