"""Audit of a labeled data set before training: copies, similar sequences, and what simple features predict.

A feature that alone predicts the label, such as the length or the first bases, is a shortcut: a model can be
good without learning what distinguishes the classes. K-mers are not a shortcut, but the result to exceed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.data.custom_sequences import SequenceFiles, read_given
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, write_table
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.records import first_copies
from bigbird_dna.genome.sequence import UNKNOWN, base_codes
from bigbird_dna.genome.sequence_tables import COLUMNS, LABEL, TableColumns
from bigbird_dna.genome.similar_groups import SIMILAR, similar_groups
from bigbird_dna.metrics.auroc import Estimate, auroc
from bigbird_dna.reporting.run_page import shown_table
from bigbird_dna.reporting.track_page import render_page

AUDIT = Schema.of("text check; count sequences; metric auroc low high; text finding", key=["check"])
SIMILAR_SEQUENCES = Schema.of("text name class split; count group; text copy_of", key=["name"])
CLASSES = {0: "negative", 1: "positive"}
END = 10  # bases at an end of a sequence
K = 4
FOLDS = 5
# A feature is a shortcut if the lower end of its interval is above this.
LEAST_AUROC = 0.55
_LEAST = 2 * FOLDS  # sequences of a class, and groups of similar sequences

# Axes: N sequences, F features.
Floats = NDArray[np.float64]


class AuditedSet(NamedTuple):
    """Sequences with their class and, if known, their split."""

    names: list[str]
    sequences: list[str]
    lower: Floats  # (N,) fraction of lower-case letters in the file
    labels: NDArray[np.int64]  # (N,)
    splits: list[str] | None

    @classmethod
    def of(cls, given: SequenceFiles, where: str) -> AuditedSet:
        """Return the sequences of both classes; `UsageError` without negatives, `DataError` if too few."""
        if len(given.files) == 1:
            raise UsageError(f"{where}: an audit needs two classes; give negatives, or a table with labels")
        positives, negatives = given.files
        sequences = {**positives.sequences, **negatives.sequences}
        count = len(positives.sequences)
        if min(count, len(sequences) - count) < _LEAST:
            raise DataError(f"{where}: an audit needs at least {_LEAST} sequences of each class")
        letters = {**positives.lower, **negatives.lower}
        lower = np.array([letters[name] / len(text) for name, text in sequences.items()])
        labels = np.repeat([1, 0], [count, len(sequences) - count])
        splits = None
        if given.splits is not None:
            splits = [given.splits.get(name, "") for name in sequences]
        return cls([*sequences], [*sequences.values()], lower, labels, splits)


def audit_dataset(
    data: Sequence[Path],
    output: Path,
    *,
    negatives: Path | None = None,
    splits: Path | None = None,
    sequence_column: str = COLUMNS.sequence,
    label_column: str = LABEL,
    split_column: str = COLUMNS.split,
    seed: int = 1,
) -> list[str]:
    """Write `audit.tsv`, `similar.tsv` and the page `audit.html` to a directory; return the conclusions.

    The files are as for `prepare_sequences`; lengths may differ.
    """
    columns = TableColumns(sequence_column, (label_column,), split_column)
    inputs = [*data, *(path for path in (negatives, splits) if path is not None)]
    audited = AuditedSet.of(read_given(data, negatives, splits, columns), str(data[0]))
    groups = similar_groups(audited.sequences, SIMILAR)
    copies = np.array(first_copies(audited.sequences), np.int64)
    checks = [*_balance(audited), *_similarity(audited, groups, copies), *_features(audited, groups, seed)]
    table = pd.DataFrame(checks, columns=AUDIT.names)
    found = [f"{one.finding[:1].upper()}{one.finding[1:]}." for one in checks if one.finding]
    conclusions = found or ["No copies across classes or splits, and no shortcut to the class."]
    with into_directory(output, inputs) as files:
        write_table(files / "audit.tsv", table, AUDIT)
        write_table(files / "similar.tsv", _listed(audited, groups, copies), SIMILAR_SEQUENCES)
        text = render_page(
            "audit_page.html",
            style="run_page.css",
            title=f"Audit of {data[0].name}",
            conclusions=conclusions,
            checks=shown_table(files / "audit.tsv"),
            similar=shown_table(files / "similar.tsv"),
        )
        (files / "audit.html").write_text(text, encoding="utf-8")
    return conclusions


class Check(NamedTuple):
    """A row of `AUDIT`; `finding` is empty if nothing is wrong."""

    check: str
    sequences: int
    auroc: float = np.nan
    low: float = np.nan
    high: float = np.nan
    finding: str = ""


def _balance(audited: AuditedSet) -> Iterator[Check]:
    """Yield the number of sequences of each class, and split."""
    for label, name in sorted(CLASSES.items(), reverse=True):
        own = audited.labels == label
        yield Check(f"{name} sequences", int(own.sum()))
        for split in sorted({*(audited.splits or ())}):
            inside = own & (np.array(audited.splits) == split)
            fault = "" if inside.any() else f"split {split!r} has no {name} sequence"
            yield Check(f"{name} sequences, {split or 'no split'}", int(inside.sum()), finding=fault)


def _similarity(audited: AuditedSet, groups: NDArray[np.int64], copies: NDArray[np.int64]) -> Iterator[Check]:
    """Yield the number of copies and of similar sequences: in total, of both classes, of several splits."""
    labels, splits = audited.labels, audited.splits
    kinds = (("copies of another sequence", copies), ("sequences similar to another one", groups))
    for what, ids in kinds:
        yield Check(what, int((np.bincount(ids)[ids] > 1).sum()))
        mixed = int(_several(ids, labels).sum())
        fault = f"{mixed:,} {what}, of the other class: one of the labels is wrong"
        wrong = mixed and ids is copies
        yield Check(f"{what}, of the other class", mixed, finding=fault if wrong else "")
        if splits is None:
            continue
        numbers = np.unique(splits, return_inverse=True)[1]
        held_out = int((_several(ids, numbers) & (np.array(splits) != "train")).sum())
        fault = f"{held_out:,} held-out sequences are {what}, in another split: metrics are optimistic"
        yield Check(f"{what}, in another split", held_out, finding=fault if held_out else "")


def _several(ids: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether rows (N,) of a row's id have several values."""
    pairs = np.unique(np.stack([ids, values], axis=1), axis=0)
    return np.bincount(pairs[:, 0], minlength=int(ids.max()) + 1)[ids] > 1


def _features(audited: AuditedSet, groups: NDArray[np.int64], seed: int) -> Iterator[Check]:
    """Yield how well each feature alone predicts the class of sequences in other groups of similar ones."""
    folds = np.random.default_rng((seed, 1)).permutation(int(groups.max()) + 1)[groups] % FOLDS

    def measured(x: Floats) -> Estimate:
        scores = _cross_validated(x, audited.labels, folds)
        return auroc(audited.labels, scores, groups)

    # Bases at an end predict the class if its composition differs anywhere. They are a shortcut if they do
    # so better than bases inside the sequence.
    inside = max(measured(_bases(audited, place)).value for place in INSIDE)
    for name, (compute, least) in FEATURES.items():
        x, count = compute(audited), len(audited.names)
        if not np.ptp(x, axis=0).any():
            yield Check(f"{name} alone", count)  # the same for all sequences
            continue
        found = measured(x)
        bound = max(LEAST_AUROC, inside) if least is None else least
        value = f"AUROC {found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"
        finding = f"the class can be predicted from {name} alone: {value}" if found.low > bound else ""
        yield Check(f"{name} alone", count, *found, finding=finding)


def _cross_validated(x: Floats, labels: NDArray[np.int64], folds: NDArray[np.int64]) -> Floats:
    """Return log-odds (N,) of a logistic regression on features (N, F), each fitted to the other folds."""
    from sklearn.linear_model import LogisticRegression

    scores = np.zeros(len(x))
    for fold in range(FOLDS):
        test = folds == fold
        if not test.any() or len({*labels[~test].tolist()}) < 2:
            continue
        mean, spread = x[~test].mean(axis=0), x[~test].std(axis=0)
        scaled = (x - mean) / np.where(spread > 0, spread, 1.0)
        model = LogisticRegression(class_weight="balanced", max_iter=1000)
        scores[test] = model.fit(scaled[~test], labels[~test]).decision_function(scaled[test])
    return scores


def _with_square(values: Floats) -> Floats:
    """Values (N,) and their squared distances to the mean, so that extremes can predict too; (N, 2)."""
    return np.stack([values, (values - values.mean()) ** 2], axis=1)


def _lengths(audited: AuditedSet) -> Floats:
    return _with_square(np.log([len(text) for text in audited.sequences]))


def _gc(audited: AuditedSet) -> Floats:
    counts = [[text.count("G") + text.count("C"), len(text) - text.count("N")] for text in audited.sequences]
    found = np.array(counts, np.float64)
    return _with_square(found[:, 0] / np.maximum(found[:, 1], 1))


def _unknown(audited: AuditedSet) -> Floats:
    """Fraction of N, and the mean position of N as a fraction of the sequence."""
    rows = []
    for text in audited.sequences:
        places = np.flatnonzero(base_codes(text) == UNKNOWN)
        rows.append((len(places) / len(text), places.mean() / len(text) if len(places) else 0.5))
    return np.array(rows)


def _bases(audited: AuditedSet, place: float) -> Floats:
    """One-hot bases (N, 4 · `END`) at a place of the sequences, from 0 for the first to 1 for the last."""
    firsts = [round(place * max(len(text) - END, 0)) for text in audited.sequences]
    codes = [base_codes(text[at : at + END]) for text, at in zip(audited.sequences, firsts, strict=True)]
    padded = [np.pad(one, (END - len(one), 0), constant_values=UNKNOWN) for one in codes]
    return np.eye(UNKNOWN + 1)[np.array(padded)][..., :UNKNOWN].reshape(len(codes), -1)


def _kmers(audited: AuditedSet) -> Floats:
    """Number of each k-mer per base, (N, at most 5 ^ k)."""
    from sklearn.feature_extraction.text import CountVectorizer

    if max(map(len, audited.sequences)) < K:
        return np.zeros((len(audited.sequences), 1))
    counted = CountVectorizer(analyzer="char", ngram_range=(K, K), lowercase=False)
    lengths = np.array([[len(text)] for text in audited.sequences])
    return np.asarray(counted.fit_transform(audited.sequences).toarray() / lengths, np.float64)


INSIDE = (0.3, 0.5, 0.7)
FEATURES: Mapping[str, tuple[Callable[[AuditedSet], Floats], float | None]] = {
    "length": (_lengths, LEAST_AUROC),
    "GC content": (_gc, LEAST_AUROC),
    "N": (_unknown, LEAST_AUROC),
    "lower-case letters": (lambda audited: _with_square(audited.lower), LEAST_AUROC),
    f"the first {END} bases": (lambda audited: _bases(audited, 0), None),
    f"the last {END} bases": (lambda audited: _bases(audited, 1), None),
    f"{K}-mer frequencies": (_kmers, 1.0),
}
"""Features, each with the AUROC above which it is a shortcut; None: that of bases inside the sequences."""


def _listed(audited: AuditedSet, groups: NDArray[np.int64], copies: NDArray[np.int64]) -> pd.DataFrame:
    """Return the rows of `SIMILAR_SEQUENCES`: sequences that are similar to others, by group."""
    members = defaultdict[int, list[int]](list)
    for row, group in enumerate(groups.tolist()):
        members[group].append(row)
    rows = [
        (
            audited.names[row],
            CLASSES[int(audited.labels[row])],
            "" if audited.splits is None else audited.splits[row],
            number,
            "" if copies[row] == row else audited.names[copies[row]],
        )
        for number, group in enumerate((one for one in members.values() if len(one) > 1), start=1)
        for row in group
    ]
    return pd.DataFrame(rows, columns=SIMILAR_SEQUENCES.names)
