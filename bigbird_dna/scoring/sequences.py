"""Predictions for sequences: `bigbird_dna.score_sequences` and command `score-sequences`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bigbird_dna.console import ProgressBar, log
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.fasta import readable
from bigbird_dna.genome.given_sequences import GivenSequences, filled, fit_windows
from bigbird_dna.genome.sequence import fraction_n
from bigbird_dna.genome.sequence_tables import (
    COLUMNS,
    CheckedSequence,
    TableColumns,
    stream_checked_sequences,
)
from bigbird_dna.model.batching import truncated
from bigbird_dna.model.catalog import result_origin
from bigbird_dna.model.directory import load_sequence_model
from bigbird_dna.model.inference import computation
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.promoter import LoadedSequenceModel
from bigbird_dna.scoring.writers import SEQUENCE_FORMATS, choose_output, open_writer

BATCH_BASES = 256_000
OTHER_LENGTH, TOO_MANY_N, TRUNCATED = "other_length", "too_many_n", "truncated"

# Axes: N sequences, T outputs.


class SequenceCounts(NamedTuple):
    """Number of sequences read, of those that were not scored, and of those too long for the network."""

    sequences: int
    not_scored: int
    truncated: int


def score_sequences(
    model: LoadedModel | Path | str,
    sequences: Path | str,
    output: Path | str | None = None,
    *,
    format: str | None = None,
    sequence_column: str = COLUMNS.sequence,
    pad: bool = False,
    max_n: float = 0.25,
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
    precision, batch_size, device, threads
        As for `score_promoters`.

    Raises
    ------
    UsageError
        An argument is out of range; the output cannot be written; an output of the model has the name of
        another column.
    DataError, ModelError
        The file cannot be read (the message names record or row); no sequence can be scored; the model is of
        another kind.
    """
    path, format = choose_output(output, format, SEQUENCE_FORMATS, [model, sequences])
    loaded = load_sequence_model(model)
    columns = output_columns(loaded)
    table = TableColumns(sequence_column)
    outputs = loaded.settings.outputs
    notes: Counter[str] = Counter()
    scored = 0
    with (
        computation(precision, device, threads) as stated_precision,
        readable(sequences) as file,
    ):
        options = {
            "--format": format,
            "--max-n": max_n,
            "--sequence-column": None if table == COLUMNS else sequence_column,
            "--precision": stated_precision,
            "--pad": pad,
        }
        origin = result_origin(loaded, "score-sequences", sequences, options)
        # The whole file is checked before anything is computed.
        first_fault = ""
        total = num_faults = 0
        for sequence in stream_checked_sequences(file, table):
            total += 1
            num_faults += bool(sequence.fault)
            first_fault = first_fault or sequence.fault

        if first_fault:
            log(
                f"warning: {num_faults:,} sequences are not DNA and not scored: {first_fault}"
            )

        with (
            open_writer(path, format, origin, columns) as write,
            ProgressBar("scoring", total, "sequences") as bar,
        ):
            for batch in sequence_batches(stream_checked_sequences(file, table)):
                batch_notes, values = predict_sequences(
                    batch, loaded, pad, max_n, batch_size, device
                )
                rows = []
                predictions = iter(values.tolist())
                for sequence, note in zip(batch, batch_notes, strict=True):
                    notes[note] += 1
                    cells: list[Any] = [None] * len(outputs)
                    best = None
                    if note in ("", TRUNCATED):
                        scored += 1
                        cells = next(predictions)
                        best = outputs[int(np.argmax(cells))]

                    first: list[str | None] = [sequence.name]
                    if "class" in columns:
                        first.append(best)

                    rows.append([*first, note, *cells])

                write(rows)
                bar.advance(len(batch))

            if notes and not scored:
                counts = ", ".join(f"{count:,} {note}" for note, count in notes.items())
                hint = "; --pad accepts other lengths" if notes[OTHER_LENGTH] else ""
                raise DataError(f"{file}: no sequence can be scored ({counts}){hint}")

    return SequenceCounts(total, total - scored, notes[TRUNCATED])


def output_columns(model: LoadedSequenceModel) -> dict[str, str]:
    """Return the columns of a table of predictions with the formats of their cells.

    `UsageError`: an output of the model has the name of another column.
    """
    settings = model.settings
    columns = {"name": "s"}
    if settings.kind == "multiclass":
        columns["class"] = "s"

    columns["note"] = "s"
    names = ("score",) if settings.kind == "binary" else settings.outputs
    for name in names:
        if name in columns:
            raise UsageError(
                f"{model.name}: output {name!r} has the name of another column"
            )

    form = ".6g" if settings.kind == "regression" else ".6f"
    return {**columns, **dict.fromkeys(names, form)}


def sequence_batches(
    sequences: Iterator[CheckedSequence],
) -> Iterator[list[CheckedSequence]]:
    """Yield batches of sequences, of at least `BATCH_BASES` bp except the last one."""
    batch: list[CheckedSequence] = []
    bases = 0
    for sequence in sequences:
        batch.append(sequence)
        bases += len(sequence.text) or 1
        if bases >= BATCH_BASES:
            yield batch
            batch, bases = [], 0
    if batch:
        yield batch


def predict_sequences(
    batch: Sequence[CheckedSequence],
    model: LoadedSequenceModel,
    pad: bool,
    max_n: float,
    batch_size: int,
    device: str,
) -> tuple[list[str], NDArray[np.float32]]:
    """Return the note of each sequence, and the predictions (N, T) of those that are scored, in order.

    Sequences without a note are scored, and those with the note `TRUNCATED`.
    """
    length = model.settings.length
    texts = [sequence.text for sequence in batch]
    if length is not None:
        texts = fit_windows(GivenSequences(texts, texts), length, True)

    notes, scored = [], []
    for sequence, text in zip(batch, texts, strict=True):
        note = sequence.note
        if not note and length is not None and not pad and len(sequence.text) != length:
            note = OTHER_LENGTH
        elif not note and fraction_n(text) > max_n:
            note = TOO_MANY_N
        elif not note:
            scored.append(text if length is None else filled(text, length))

        notes.append(note)

    if not scored:
        return notes, np.empty((0, len(model.settings.outputs)), np.float32)

    is_cut = truncated(
        model.tokenizer, scored, model.config.max_length, torch.get_num_threads()
    )
    cut_notes = iter([TRUNCATED if cut else "" for cut in is_cut.tolist()])
    notes = [note or next(cut_notes) for note in notes]
    values = model.window_predictions(scored, batch_size=batch_size, device=device)
    return notes, values
