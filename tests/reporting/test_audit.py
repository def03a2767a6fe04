"""Audits of labeled sequences: planted copies and shortcuts are found, and nothing in sets without them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.reporting.audit import END, audit_dataset
from tests.cli.command import Run, refused
from tests.genome.test_records import fasta
from tests.golden.messages import fails, message
from tests.toys import random_dna

COUNT, LENGTH = 300, 120
COPIES, ALIKE = "copies of another sequence", "sequences similar to another one"
MIXED, MOVED = ", of the other class", ", in another split"
KMERS = "4-mer frequencies alone"


def clean(seed: int) -> pd.DataFrame:
    """Random sequences of two classes; half of the positives have a motif at any place."""
    rng = np.random.default_rng(seed)
    texts = [random_dna(LENGTH, 1000 * seed + row) for row in range(2 * COUNT)]
    for row in range(0, COUNT, 2):
        at = int(rng.integers(END, LENGTH - 2 * END))
        texts[row] = texts[row][:at] + "TGACTCA" + texts[row][at + 7 :]
    table = pd.DataFrame({"sequence": texts, "label": np.repeat([1, 0], COUNT)})
    return table.assign(name=[f"s{row}" for row in range(2 * COUNT)])


def audited(table: pd.DataFrame, home: Path) -> tuple[list[str], pd.DataFrame]:
    table.to_csv(home / "x.csv", index=False)
    conclusions = audit_dataset([home / "x.csv"], home / "audit")
    return conclusions, pd.read_csv(home / "audit/audit.tsv", sep="\t").set_index("check")


def changed(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """The table with a change of the positives."""
    positive = table["label"] == 1
    return table.assign(sequence=table["sequence"].where(~positive, table["sequence"].map(change)))


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_found_in_a_clean_set(seed: int, tmp_path: Path) -> None:
    conclusions, table = audited(clean(seed), tmp_path)
    assert len(conclusions) == 1 and table["finding"].isna().all()
    assert table.loc[[COPIES, ALIKE], "sequences"].sum() == 0
    assert table["auroc"].dropna().between(0.35, 0.75).all()


@pytest.mark.parametrize(
    ("check", "change"),
    [
        (
            "GC content alone",
            lambda text: "".join("G" if c == "A" and n % 3 else c for n, c in enumerate(text)),
        ),
        ("length alone", lambda text: text[:-3]),
        ("N alone", lambda text: text[:50] + "N" + text[51:]),
        ("lower-case letters alone", lambda text: text[:40] + text[40:50].lower() + text[50:]),
        (f"the first {END} bases alone", lambda text: "GATC" + text[4:]),
        (f"the last {END} bases alone", lambda text: text[:-2] + "TA"),
    ],
)
def test_a_planted_shortcut_is_found(check: str, change: Callable[[str], str], tmp_path: Path) -> None:
    conclusions, table = audited(changed(clean(1), change), tmp_path)
    assert table["finding"].dropna().index.tolist() == [check]
    row = table.loc[check]
    assert row["low"] > 0.6 and f"{row['auroc']:.3f}" in conclusions[0] and len(conclusions) == 1
    page = (tmp_path / "audit/audit.html").read_text()
    assert conclusions[0] in page and "<script" not in page


def test_all_planted_copies_are_found_and_listed(tmp_path: Path) -> None:
    rng, table = np.random.default_rng(2), clean(2)
    splits = np.array(["train", "valid", "test"])[np.arange(len(table)) % 3]
    table = table.assign(split=splits)
    chosen = rng.choice(len(table), 60, replace=False)
    more = table.iloc[chosen].assign(name=[f"copy{row}" for row in chosen])
    kinds = np.arange(60) % 4  # same split and class; other split; other class; a part in another split
    more["sequence"] = [
        text[30:] + random_dna(30, row) if kind == 3 else reverse_complement(text) if kind else text
        for row, (text, kind) in enumerate(zip(more["sequence"], kinds, strict=True))
    ]
    more["label"] = more["label"].where(kinds != 2, 1 - more["label"])
    moved = more["split"].map({"train": "test", "valid": "train", "test": "valid"})
    more["split"] = more["split"].where(~np.isin(kinds, [1, 3]), moved)
    conclusions, found = audited(pd.concat([table, more]), tmp_path)
    counts = found["sequences"]
    assert counts[COPIES] == 90
    assert counts[ALIKE] == 120
    assert counts[f"{COPIES}{MIXED}"] == 30
    both = pd.concat([table.iloc[chosen[kinds == 1]], more[kinds == 1]])
    assert counts[f"{COPIES}{MOVED}"] == (both["split"] != "train").sum()
    assert len(conclusions) == 3
    listed = pd.read_csv(tmp_path / "audit/similar.tsv", sep="\t").set_index("name")
    assert len(listed) == 120
    for row, name, kind in zip(chosen, more["name"], kinds, strict=True):
        assert listed.loc[name, "group"] == listed.loc[f"s{row}", "group"]
        pair = {name: f"s{row}", f"s{row}": name}
        copies = [one for one, other in pair.items() if listed.loc[one, "copy_of"] == other]
        assert len(copies) == (kind != 3)


def test_fasta_files_and_mistakes(tmp_path: Path, run: Run) -> None:
    table = clean(3)
    for label, name in ((1, "p"), (0, "n")):
        own = table[table["label"] == label]
        fasta(tmp_path / f"{name}.fa", **dict(zip(own["name"], own["sequence"], strict=True)))
    words = (tmp_path / "p.fa", "--negatives", tmp_path / "n.fa", "-o", tmp_path / "out")
    outcome = run("audit-dataset", *words)
    assert outcome.code == 0 and len(outcome.out.splitlines()) == 1
    message(refused(run("audit-dataset", tmp_path / "p.fa", "-o", tmp_path / "none"), 2))
    with fails(UsageError):
        audit_dataset([tmp_path / "p.fa"], tmp_path / "none")
    tiny = pd.DataFrame({"sequence": ["A", "CG", "T"] * 8, "label": [1, 0] * 12})
    _, found = audited(tiny, tmp_path)
    assert np.isnan(found.loc[KMERS, "auroc"])
    fasta(tmp_path / "few.fa", a="ACGT")
    with fails(DataError):
        audit_dataset([tmp_path / "p.fa"], tmp_path / "none", negatives=tmp_path / "few.fa")
    assert not (tmp_path / "none").exists()
