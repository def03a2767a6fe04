"""Predictions for sequences: `bigbird_dna.score_sequences` and command `score-sequences`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bigbird_dna.console import log, progress
from bigbird_dna.disk.compression import STDIN
from bigbird_dna.disk.outputs import Destination, provenance_lines
from bigbird_dna.errors import DataError, UsageError, check_fraction
from bigbird_dna.genome.given_sequences import GivenSequences, filled, fit_windows
from bigbird_dna.genome.records import counted
from bigbird_dna.genome.sequence import fraction_n
from bigbird_dna.genome.sequence_tables import (
    COLUMNS,
    CheckedSequence,
    TableColumns,
    stream_checked_sequences,
)
from bigbird_dna.model.batching import truncated
from bigbird_dna.model.directory import load_sequence_model
from bigbird_dna.model.model import LoadedModel, Predictor
from bigbird_dna.model.promoter import LoadedSequenceModel
from bigbird_dna.scoring.formats import (
    OutputHeader,
    Writer,
    write_lines,
    write_parquet_table,
)
from bigbird_dna.scoring.scan import growing_batches
from bigbird_dna.scoring.scorer import (
    InputCheck,
    Job,
    Scorer,
    Target,
    open_source,
    write_scores,
)
from bigbird_dna.scoring.writers import SEQUENCE_FORMATS

_FIRST_BATCH, _BATCH_BASES = (
    6_400,
    256_000,
)  # bp per batch: the first ones are small and soon ready
_GROUP_VALUES = 1 << 16  # per row group of Parquet, whose rows are in memory
OTHER_LENGTH, TOO_MANY_N, TRUNCATED = "other_length", "too_many_n", "truncated"

# Axes: N sequences, T outputs.


class SequenceCounts(NamedTuple):
    """Number of sequences read, of those that were not scored, and of those too long for the network."""

    sequences: int
    not_scored: int
    truncated: int


class ScoredSequence(NamedTuple):
    """The predictions (T,) of a sequence; None if it was not scored, for the reason in `note`.

    A sequence with the note `TRUNCATED` was scored.
    """

    name: str
    values: NDArray[np.float32] | None
    note: str = ""


def score_sequences(
    model: LoadedModel | Path | str,
    sequences: Path | str,
    output: Path | str | None = None,
    *,
    format: str | None = None,
    sequence_column: str = COLUMNS.sequence,
    pad: bool = False,
    max_n: float = 0.25,
    shard: str | None = None,
    precision: str = "auto",
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> SequenceCounts:
    """Predict the labels of the sequences in a FASTA file or table, in the order of the file.

    A sequence that cannot be scored has a row with a note: `other_length` or `too_many_n` (see `pad` and
    `max_n`), `empty`, or `invalid_letter` if it has other letters than those of DNA.

    Parameters
    ----------
    model
        A model of labeled sequences, or its directory. Of a sequence with more tokens than its `max_length`
        allows, the network reads the central ones (regressions of an ensemble read all), with the note
        `truncated`.
    sequences
        FASTA, or a table (CSV, TSV, Parquet) with the sequences in `sequence_column` and optional names in
        the column `name`; each also .gz. "-": FASTA from standard input. Lower case is accepted; IUPAC codes
        are read as N.
    output, format
        As for `score_promoters`; the formats are tsv and parquet. Columns: name; for several classes, the
        most probable `class`; `note`; and the score of a binary label, or a column per class or label.
    pad
        Whether a model of sequences of one length accepts others: shorter ones are centered in N, longer ones
        cropped to their center. Otherwise, they are not scored, with the note `other_length`.
    max_n
        Sequences with a larger fraction of N are not scored, with the note `too_many_n`.
    shard, precision, batch_size, device, threads
        As for `score_promoters`; all shards have the same number of sequences.

    Raises
    ------
    UsageError
        An argument is out of range; the output cannot be written; an output of the model has the name of
        another column.
    DataError, ModelError
        The file cannot be read (the message names record or row); no sequence can be scored; the model is of
        another kind.
    """
    scorer = SequenceScorer(model, sequences, max_n, False, sequence_column, pad)
    counts = write_scores(
        scorer, output, format, shard, precision, batch_size, device, threads
    )
    return SequenceCounts(counts["sequences"], counts["not scored"], counts[TRUNCATED])


def _first(header: OutputHeader) -> dict[str, type]:
    """Columns before the note."""
    return (
        {"name": str, "class": str}
        if header.extra["kind"] == "multiclass"
        else {"name": str}
    )


def _cells(row: ScoredSequence, header: OutputHeader) -> tuple[str | None, ...]:
    if header.extra["kind"] != "multiclass":
        return (row.name,)
    return row.name, None if row.values is None else header.columns[
        int(row.values.argmax())
    ]


def _write_text(
    path: Destination, rows: Iterable[ScoredSequence], header: OutputHeader
) -> None:
    form = "{:.6g}" if header.extra["kind"] == "regression" else "{:.6f}"

    def lines() -> Iterator[str]:
        yield from provenance_lines(header.origin)
        yield "#" + "\t".join([*_first(header), "note", *header.columns])
        missing = ["NA"] * len(header.columns)
        for row in rows:
            values = (
                missing if row.values is None else map(form.format, row.values.tolist())
            )
            cells = ("NA" if cell is None else cell for cell in _cells(row, header))
            yield "\t".join([*cells, row.note or ".", *values])

    write_lines(path, lines())


def _write_parquet(
    path: Destination, rows: Iterable[ScoredSequence], header: OutputHeader
) -> None:
    cells = ((_cells(row, header), row.note, row.values) for row in rows)
    group = max(_GROUP_VALUES // len(header.columns), 1)
    write_parquet_table(path, cells, _first(header), header, group)


WRITERS: Mapping[str, Writer[ScoredSequence]] = {
    "tsv": _write_text,
    "parquet": _write_parquet,
}


@dataclass(frozen=True)
class SequenceScorer(Scorer[LoadedSequenceModel, ScoredSequence]):
    """Sequences of a FASTA file or table; see `score_sequences`."""

    kind = "scored sequences"
    command = "score-sequences"
    formats = SEQUENCE_FORMATS
    writers = WRITERS
    files = ()

    sequence_column: str
    pad: bool

    def check(self, target: Target) -> None:
        check_fraction("max_n", self.max_n)

    def load(self, **computing: Any) -> tuple[LoadedSequenceModel, Predictor]:
        model = load_sequence_model(self.model)
        return model, partial(model.window_predictions, **computing)

    @contextmanager
    def open(
        self, model: LoadedSequenceModel, target: Target
    ) -> Iterator[Job[ScoredSequence]]:
        settings, columns = model.settings, TableColumns(self.sequence_column)
        with open_source(self.source, target) as (path, stream):
            read = partial(stream_checked_sequences, path, columns)
            # Check the whole file before any computation, unless it is processed as a stream.
            compared = InputCheck(model, self.source_name)

            def checked(found: Iterator[CheckedSequence]) -> Iterator[CheckedSequence]:
                notes, first = Counter[str](), ""
                for one in found:
                    notes[one.note] += 1
                    first = first or one.fault
                    compared.add(one.text.encode())
                    yield one
                compared.finish()
                if first:
                    counts = ", ".join(
                        f"{count:,} {note}" for note, count in notes.items() if note
                    )
                    bad = counted(notes.total() - notes[""], "sequence")
                    log(f"warning: {bad} not DNA and not scored ({counts}): {first}")

            count = None if stream is not None else sum(1 for _ in checked(read()))

            def rows(
                predict: Predictor, numbers: range | None
            ) -> Iterator[ScoredSequence]:
                given = read()
                if stream is not None:
                    given = checked(stream_checked_sequences(STDIN, columns, stream))
                if numbers is not None:
                    given = islice(given, numbers.start, numbers.stop)
                total = count if numbers is None else len(numbers)
                found = progress(
                    self._scored(given, predict, model), "scoring", total, "sequences"
                )
                return found if numbers is not None else self._not_all_unscored(found)

            options: dict[str, object | None] = {
                "--format": target.format,
                "--max-n": self.max_n,
            }
            if self.sequence_column != COLUMNS.sequence:
                options["--sequence-column"] = self.sequence_column
            origin = self.origin(model, target, options, pad=self.pad)
            names = ("score",) if settings.kind == "binary" else settings.outputs
            header = OutputHeader(origin, {}, names, {"kind": settings.kind})
            for name in {*_first(header), "note"} & {*names}:
                raise UsageError(
                    f"{model.name}: output {name!r} has the name of another column"
                )
            yield Job(
                header, partial(self.content, model, path), lambda: count or 0, rows
            )

    def _scored(
        self,
        given: Iterator[CheckedSequence],
        predict: Predictor,
        model: LoadedSequenceModel,
    ) -> Iterator[ScoredSequence]:
        """Yield the rows of named sequences, predicted in batches."""
        length = model.settings.length
        for batch in growing_batches(
            given, lambda one: len(one.text) or 1, _FIRST_BATCH, _BATCH_BASES
        ):
            texts = [one.text for one in batch]
            cut = (
                texts
                if length is None
                else fit_windows(GivenSequences(texts, texts, None), length, True)
            )
            notes = [
                one.note or self._note(one.text, own, length)
                for one, own in zip(batch, cut, strict=True)
            ]
            scored = [own for own, note in zip(cut, notes, strict=True) if not note]
            if length is not None:
                scored = [filled(own, length) for own in scored]
            found = iter(
                zip(predict(scored), self._cut(scored, model), strict=True)
                if scored
                else ()
            )
            for one, note in zip(batch, notes, strict=True):
                yield (
                    ScoredSequence(one.name, None, note)
                    if note
                    else ScoredSequence(one.name, *next(found))
                )

    def _not_all_unscored(
        self, rows: Iterator[ScoredSequence]
    ) -> Iterator[ScoredSequence]:
        """Yield all rows; `DataError` at the end if none has a score."""
        notes, scored = Counter[str](), 0
        for row in rows:
            notes[row.note] += 1
            scored += row.values is not None
            yield row
        if notes and not scored:
            counts = ", ".join(f"{count:,} {note}" for note, count in notes.items())
            hint = "; --pad accepts other lengths" if notes[OTHER_LENGTH] else ""
            raise DataError(
                f"{self.source_name}: no sequence can be scored ({counts}){hint}"
            )

    @staticmethod
    def _cut(texts: list[str], model: LoadedSequenceModel) -> list[str]:
        """Return the notes of sequences that are scored."""
        cut = truncated(
            model.tokenizer, texts, model.config.max_length, torch.get_num_threads()
        )
        return [TRUNCATED if one else "" for one in cut.tolist()]

    def _note(self, text: str, cut: str, length: int | None) -> str:
        """Return why a sequence is not scored; `cut` is its central part, if it is too long."""
        if length is not None and len(text) != length and not self.pad:
            return OTHER_LENGTH
        return TOO_MANY_N if fraction_n(cut) > self.max_n else ""

    def count(self, row: ScoredSequence, counts: Counter[str]) -> None:
        counts["sequences"] += 1
        counts["not scored"] += row.values is None
        counts[TRUNCATED] += row.note == TRUNCATED

    @staticmethod
    def lines(row: ScoredSequence) -> Iterable[str]:
        values = () if row.values is None else map(repr, row.values.tolist())  # exact
        return ("\t".join([row.name, row.note, *values]),)

    @staticmethod
    def parse(line: str, header: OutputHeader) -> ScoredSequence:
        name, note, *values = line.split("\t")
        return ScoredSequence(
            name, np.array(values, np.float32) if values else None, note
        )
