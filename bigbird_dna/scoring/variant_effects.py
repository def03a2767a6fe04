"""Effects of variants of any kind, computed record by record while a VCF is read, and the lines of a result.

Memory does not grow with the number of records.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.outputs import provenance_lines
from bigbird_dna.errors import ModelError, UsageError, check_whole
from bigbird_dna.genome.assembly import contig_finder
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.variants import (
    OFFSET_SPAN,
    PREFIX,
    Allele,
    Change,
    Note,
    VcfFile,
    VcfRecord,
    find_change,
)
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.scoring.scan import growing_batches

_META = "##bigbird_dna_"
_RECORDS = 512  # most records per batch, when few of them need a prediction

E = TypeVar("E")
R = TypeVar("R")

Place = Callable[[Iterable[Any]], list[int]]
"""Takes sequences to predict, or other inputs of a kind, and returns the rows of their predictions."""


class ScoredRecord(NamedTuple, Generic[E]):
    """A record with one effect per alternative allele in `alts`."""

    record: VcfRecord
    effects: tuple[E, ...]


class InfoKey(NamedTuple):
    """An INFO key as described in the VCF header, without the prefix."""

    name: str
    number: str
    kind: str
    text: str


class EffectKind(Protocol[R, E]):
    """How alternative alleles are scored from the surrounding sequence, and how their effects are written.

    Every effect has `notes`, and a `delta` that is None if the allele was not scored.
    """

    @property
    def batches(self) -> tuple[int, int]:
        """Number of sequences predicted together: approximate size of the first batch, and maximum."""

    @property
    def notes(self) -> Mapping[str, str]:
        """Meanings of the notes specific to this kind, in addition to those in `Note`."""
        return {}

    @property
    def origin(self) -> Mapping[str, str]:
        """Provenance of effects of this kind, in addition to that of the result."""
        return {}

    @property
    def columns(self) -> Sequence[str]:
        """Columns of a TSV table, after the columns that identify the allele."""

    @property
    def keys(self) -> Sequence[InfoKey]:
        """INFO keys described in the VCF header, in addition to the notes."""

    def windows(
        self, change: Change, reference: Reference, max_n: float, place: Place
    ) -> tuple[tuple[str, ...], R | None]:
        """Return the notes of an allele, and the rows for `effect`; None: the allele is not scored."""

    def is_valid(self, predicted: NDArray[np.float32]) -> bool:
        """Return whether all predictions are possible: by default, whether they are probabilities."""
        return bool(((predicted >= 0) & (predicted <= 1)).all())  # false for NaN too

    def values(self, predicted: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the part of the predictions that `effect` uses."""
        return predicted

    def effect(
        self, notes: tuple[str, ...], rows: R | None, values: NDArray[np.float32]
    ) -> E:
        """Return the effect of the allele."""

    def row(self, effect: E, missing: str = "NA") -> Iterable[str]:
        """Return the fields of `columns`; `missing` if the allele was not scored."""

    def info(self, effect: E) -> Iterable[str]:
        """Return the values of `keys` in INFO; `.` if the allele was not scored."""
        return self.row(effect, ".")


def score_records(
    records: Iterable[VcfRecord],
    reference: Reference,
    kind: EffectKind[R, E],
    predict: Callable[[Sequence[Any]], NDArray[np.float32]],
    *,
    max_n: float = 0.25,
    batch_sequences: int | None = None,
) -> Iterator[ScoredRecord[E]]:
    """Yield the effects of every alternative allele of every record, in the order of the records.

    Windows whose fraction of N exceeds `max_n` (bases beyond the contig are N) are not scored. A call of
    `predict` has at most `batch_sequences` distinct sequences. `ModelError` for invalid probabilities.
    """
    if not 0 <= max_n <= 1 or (batch_sequences is not None and batch_sequences < 1):
        raise ValueError(
            f"max_n {max_n} or batch_sequences {batch_sequences} is out of range"
        )
    first, most = kind.batches
    most = batch_sequences or most
    find_contig = contig_finder(reference.contigs, reference.names)
    rows: dict[
        Any, int
    ] = {}  # sequence → its row among the sequences predicted together

    def place(sequences: Iterable[Any]) -> list[int]:
        return [rows.setdefault(sequence, len(rows)) for sequence in sequences]

    def windows(change: Change) -> tuple[tuple[str, ...], R | None]:
        return kind.windows(change, reference, max_n, place)

    def allele(record: VcfRecord, alt: str) -> tuple[tuple[str, ...], R | None]:
        joint = record.joint.get(alt)
        one = joint or Allele(record.start, record.ref, alt)
        change = find_change(find_contig(record.contig), *one, reference)
        notes, rows = ((change,), None) if isinstance(change, Note) else windows(change)
        return (Note.PHASED, *notes) if joint else notes, rows

    def placed() -> Iterator[
        tuple[VcfRecord, list[tuple[tuple[str, ...], R | None]], int]
    ]:
        for record in records:
            before = len(rows)
            alleles = [allele(record, alt) for alt in record.alts]
            yield record, alleles, len(rows) - before

    for batch in growing_batches(placed(), itemgetter(2), first, most, _RECORDS):
        texts = list(rows)
        calls = (texts[start : start + most] for start in range(0, len(texts), most))
        parts = [
            kind.values(_predicted(kind, predict, sequences)) for sequences in calls
        ]
        values = np.concatenate(parts) if parts else np.empty((0, 0), np.float32)
        for record, alleles, _ in batch:
            yield ScoredRecord(
                record,
                tuple(kind.effect(notes, found, values) for notes, found in alleles),
            )
        rows.clear()


def _predicted(
    kind: EffectKind[Any, Any],
    predict: Callable[[Sequence[Any]], NDArray[np.float32]],
    sequences: Sequence[Any],
) -> NDArray[np.float32]:
    values = predict(sequences)
    assert len(values) == len(sequences), (
        f"{values.shape} predictions for {len(sequences)} sequences"
    )
    if not kind.is_valid(values):
        raise ModelError(
            "the model predicts values that are not probabilities: its weights are damaged"
        )
    return values


def decimal(value: float) -> str:
    """Format a value of an effect with six significant digits."""
    return f"{value + 0.0:.6g}"  # no -0


def check_offsets(count: int) -> None:
    """Raise `UsageError` if the number of offsets is out of range."""
    check_whole("offsets", count)
    if not 1 <= count <= OFFSET_SPAN + 1:
        raise UsageError(f"offsets {count}: must be from 1 to {OFFSET_SPAN + 1}")


def refuse(model: LoadedModel, kind: str, options: Mapping[str, object]) -> None:
    """Raise `UsageError` for an option that is given, but does not apply to this kind of model."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(
                f"{name} {value}: does not apply to {model.name}, which is {kind}"
            )


def _vcf_header(
    kind: EffectKind[Any, Any],
    origin: Mapping[str, str],
    vcf: VcfFile,
    contigs: Sequence[str],
) -> Iterator[str]:
    """Yield the input's header lines, missing `##contig` lines, and the header lines of this result."""
    own = (_META, f"##INFO=<ID={PREFIX}")
    yield from (line for line in vcf.meta if not line.startswith(own))
    yield from contigs
    version, model, command = origin.values()
    yield from (
        f"{_META}version={version}",
        f"{_META}model={model}",
        f"{_META}command={command}",
    )
    yield from (f"{_META}{key}={value}" for key, value in kind.origin.items())
    meanings = [(str(note), note.meaning) for note in Note] + [*kind.notes.items()]
    notes = "; ".join(map(" ".join, meanings))
    note = InfoKey("NOTE", "A", "String", f"Notes for each ALT, joined by &: {notes}")
    for key, count, value, text in (*kind.keys, note):
        yield (
            f'##INFO=<ID={PREFIX}{key},Number={count},Type={value},Description="{text}",'
            f'Source="bigbird-dna",Version="{version}">'
        )
    yield vcf.column_line


def _vcf_lines(scored: ScoredRecord[Any], kind: EffectKind[Any, Any]) -> Sequence[str]:
    """Return the input line with `BBD_…` keys in INFO; FILTER and all other columns are unchanged.

    Keys have one value per ALT, `.` if it was not scored, and are omitted if no ALT was scored. A record
    without ALT has none, not even a note.
    """
    record, effects = scored
    *columns, old = record.columns
    info = (
        []
        if old == "."
        else [part for part in old.split(";") if not part.startswith(PREFIX)]
    )
    if any(effect.delta is not None for effect in effects):
        values = zip(*map(kind.info, effects), strict=True)
        info += [
            f"{PREFIX}{key.name}={','.join(texts)}"
            for key, texts in zip(kind.keys, values, strict=True)
        ]
    if any(effect.notes for effect in effects) and record.alts != (".",):
        info.append(
            f"{PREFIX}NOTE={','.join('&'.join(effect.notes) or '.' for effect in effects)}"
        )
    line = [*columns, ";".join(info) or "."]
    return ("\t".join([*line, record.rest] if record.rest else line),)


ALLELE = ("contig", "position", "ref", "alt", "id", "note")  # first columns of a table


def _tsv_header(
    kind: EffectKind[Any, Any], origin: Mapping[str, str], *_: object
) -> Iterator[str]:
    yield from (
        *provenance_lines({**origin, **kind.origin}),
        "#" + "\t".join([*ALLELE, *kind.columns]),
    )


def _tsv_lines(scored: ScoredRecord[Any], kind: EffectKind[Any, Any]) -> Sequence[str]:
    """Return one row per ALT; `position` is 1-based as in VCF, and the note is `.` if there is none."""
    contig, position, name, ref = scored.record.columns[:4]
    return [
        "\t".join(
            [
                contig,
                position,
                ref,
                alt,
                name,
                "&".join(effect.notes) or ".",
                *kind.row(effect),
            ]
        )
        for alt, effect in zip(scored.record.alts, scored.effects, strict=True)
    ]


Layout = tuple[
    Callable[..., Iterator[str]], Callable[[ScoredRecord[Any], Any], Sequence[str]]
]

LAYOUTS: Mapping[str, Layout] = {
    "vcf": (_vcf_header, _vcf_lines),
    "tsv": (_tsv_header, _tsv_lines),
}
"""Format → functions that yield the lines, without line ends, of the header and of a record."""
