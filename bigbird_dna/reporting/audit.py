"""Audit of a labeled data set before training: labels, copies, similar sequences, and shortcuts.

A feature that alone predicts the labels, such as the length, is a shortcut: a model can be good without
learning what distinguishes the sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from bigbird_dna.config.section import LabelKind
from bigbird_dna.config.sequences import LABEL_KINDS
from bigbird_dna.data.labeled_sequences import (
    first_copies,
    parse_labels,
    read_labeled_files,
)
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError, check_choice, listed
from bigbird_dna.genome.sequence_tables import COLUMNS, TableColumns
from bigbird_dna.genome.similarity import SIMILAR, similar_groups
from bigbird_dna.metrics.auroc import auroc

FOLDS = 5
MIN_SEQUENCES = 10  # with and without a label whose shortcuts are searched
# The lower end of the interval of an AUROC, and a correlation, from which a feature is a shortcut.
MIN_AUROC = 0.6
MIN_CORRELATION = 0.2
# Copies contradict each other if their numbers differ by more than this fraction of the standard deviation.
DIFFERENT = 0.5


def audit_dataset(
    data: Sequence[Path],
    output: Path,
    *,
    negatives: Path | None = None,
    task: LabelKind | None = None,
    sequence_column: str = COLUMNS.sequence,
    label_columns: Sequence[str] = COLUMNS.labels,
    split_column: str = COLUMNS.split,
) -> list[str]:
    """Write the tables `audit.tsv` and `similar.tsv` to the directory `output`; return the conclusions.

    The files are as for `read_labeled_files`, and `task` as for `parse_labels`. Checked are the numbers of
    sequences by label and split, copies (on either strand) with other labels, copies and similar sequences in
    several splits, and whether length, GC content, N or lower-case letters alone predict a label of dissimilar
    sequences. `DataError`: there are too few sequences.
    """
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GroupKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if task is not None:
        check_choice("--task", task, LABEL_KINDS)

    columns = TableColumns(sequence_column, tuple(label_columns), split_column)
    table = read_labeled_files(data, negatives, columns)
    labels = parse_labels(table, task)
    regression = labels.kind == "regression"
    values = pd.DataFrame(labels.values.astype(float), columns=[*labels.outputs])
    rows = table.rows.reset_index(drop=True)
    rarest = np.minimum(values.sum(), values.notna().sum() - values.sum())
    rare = [] if regression else values.columns[rarest < MIN_SEQUENCES].tolist()
    if len(rows) < 2 * MIN_SEQUENCES or len(rare) == values.shape[1]:
        raise DataError(
            f"{data[0]}: an audit needs at least {MIN_SEQUENCES} sequences of each class, or "
            f"{2 * MIN_SEQUENCES} numbers"
        )

    checks: list[tuple[str, int, str]] = []

    # Labels and splits
    finding = f"fewer than {MIN_SEQUENCES} sequences with or without {listed(rare)}"
    checks.append(("sequences", len(rows), finding if rare else ""))
    if table.unlabeled:
        finding = f"{table.unlabeled:,} without a label: left out"
        checks.append(("sequences without a label", table.unlabeled, finding))

    missing = values.isna()
    if missing.any(axis=None):
        finding = f"{missing.sum().sum():,} of {values.size:,} labels are missing"
        count = int(missing.any(axis=1).sum())
        checks.append(("sequences with a missing label", count, finding))

    names = ["all"]
    if table.has_splits:
        names = ["all", *sorted({"train", "test", *rows["split"]})]

    for split in names:
        part = values if split == "all" else values[rows["split"] == split]
        constant = part.columns[part.nunique() < 2].tolist()
        finding = ""
        if part.empty:
            finding = f"no sequence is in split {split!r}"
        elif constant:
            finding = f"split {split!r} has only one value of {listed(constant)}"

        checks.append((f"sequences, {split}", len(part), finding))
        if not regression:
            for label, count in part.sum().items():
                checks.append((f"label {label}, {split}", int(count), ""))

    # Copies and similar sequences
    texts = rows["sequence"].tolist()
    rows["group"] = similar_groups(texts, SIMILAR)
    copies = np.array(first_copies(texts))
    ranges = values.groupby(copies).transform(np.ptp)
    limit = DIFFERENT * values.std() if regression else 0
    mixed = int((ranges > limit).any(axis=1).sum())
    finding = f"{mixed:,} copies of another sequence have other labels"
    checks.append(("copies with other labels", mixed, finding if mixed else ""))
    for noun, ids in (("copies", copies), ("similar sequences", rows["group"])):
        by_id = rows.groupby(ids)["split"]
        checks.append((noun, int((by_id.transform("size") > 1).sum()), ""))
        if table.has_splits:
            leaking = (by_id.transform("nunique") > 1) & (rows["split"] != "train")
            count = int(leaking.sum())
            finding = (
                f"{count:,} held-out {noun} in another split: metrics are optimistic"
            )
            checks.append((f"{noun} in another split", count, finding if count else ""))

    # Shortcuts
    length = rows["sequence"].str.len()
    n = rows["sequence"].str.count("N")
    gc = rows["sequence"].str.count("[GC]")
    features: dict[str, Any] = {
        "length": np.log(length),
        "GC content": gc / (length - n).clip(lower=1),
        "N": n / length,
        "lower-case letters": rows["lower"] / length,
    }
    for feature, x in features.items():
        predicted = []
        for label in values.columns.difference(rare):
            known = values[label].notna()
            groups = rows["group"][known]
            if groups.nunique() < FOLDS or np.ptp(x[known]) == 0:
                continue

            y = values[label][known]
            # The squared distance to the mean lets extremes predict too.
            design = np.stack([x[known], (x[known] - x[known].mean()) ** 2], axis=1)
            scores = cross_val_predict(
                make_pipeline(StandardScaler(), Ridge()),
                design,
                y.rank() if regression else y,
                groups=groups,
                cv=GroupKFold(FOLDS),
            )
            if regression:
                value = float(spearmanr(y, scores).statistic)
                if value > MIN_CORRELATION:
                    predicted.append((value, label))
            else:
                area = auroc(y, scores, groups)
                if area.low > MIN_AUROC:
                    predicted.append((area.value, label))

        finding = ""
        if predicted:
            value, label = max(predicted)
            metric = "Spearman" if regression else "AUROC"
            finding = (
                f"{len(predicted):,} of {values.shape[1]:,} labels can be predicted from {feature} alone, "
                f"{label!r} best: {metric} {value:.3f}"
            )

        checks.append((f"{feature} alone", len(rows), finding))

    similar = rows[["name", "split", "group"]].assign(
        copy_of=rows["name"].iloc[copies].to_numpy()
    )
    similar["copy_of"] = similar["copy_of"].mask(copies == np.arange(len(rows)), "")
    similar = pd.concat([similar, table.labels.reset_index(drop=True)], axis=1)
    similar = similar[similar.groupby("group")["name"].transform("size") > 1]
    inputs = [*data] if negatives is None else [*data, negatives]
    with into_directory(output, inputs) as files:
        audit = pd.DataFrame(checks, columns=["check", "sequences", "finding"])
        write_tsv(files / "audit.tsv", audit)
        write_tsv(files / "similar.tsv", similar.sort_values("group", kind="stable"))

    findings = [finding for *_, finding in checks if finding]
    if not findings:
        return [
            "No copies with other labels or in several splits, and no shortcut to the labels."
        ]

    return [f"{finding[:1].upper()}{finding[1:]}." for finding in findings]
