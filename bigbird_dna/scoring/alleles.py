"""How alternative alleles are scored and written, whatever the model.

Records' sequences are predicted together; effects are lines of the VCF with more in INFO, or of a TSV table.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.outputs import provenance_lines
from bigbird_dna.errors import ModelError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.variants import contig_finder
from bigbird_dna.genome.vcf import PREFIX, VcfRecord
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.shared_windows import Predictor

_RECORDS = 512  # held at once, when few of them need a prediction
_META = "##bigbird_dna_"

E = TypeVar("E")
A = TypeVar("A")
E_co = TypeVar("E_co", covariant=True)
E_contra = TypeVar("E_contra", contravariant=True)


class ScoredRecord(NamedTuple, Generic[E]):
    """A record with one effect for each of its `alts`."""

    record: VcfRecord
    effects: tuple[E, ...]


class InfoKey(NamedTuple):
    """A key of INFO as a VCF's header describes it, without the prefix."""

    name: str
    number: str
    kind: str
    text: str


class EffectFields(Protocol[E_contra]):
    """Effects of one kind as columns of a table, and in INFO of a VCF."""

    @property
    def columns(self) -> Sequence[str]:
        """Of a table, after those that say which allele a row is of."""
        ...

    @property
    def keys(self) -> Sequence[InfoKey]:
        """What a VCF's header describes."""
        ...

    def row(self, effect: E_contra) -> Iterable[str]:
        """The fields of `columns`; NA where the allele was not scored."""
        ...

    def info(self, effects: Sequence[E_contra]) -> Iterator[str]:
        """The parts of INFO, a value for each ALT, `.` where it was not scored; none where no ALT has any."""
        ...


class Engine(Protocol):
    """How records are scored: a model, with the options of its kind that a result states."""

    @property
    def model(self) -> LoadedModel:
        """The model."""
        ...

    @property
    def options(self) -> Mapping[str, object]:
        """Of the command line."""
        ...

    @property
    def fields(self) -> EffectFields[Any]:
        """How its effects are written."""
        ...

    @property
    def files(self) -> Sequence[Path | None]:
        """Further files that decide effects."""
        ...

    def predictor(self, batch_size: int, device: str) -> Predictor:
        """The model's probabilities of windows, as `effects` needs them."""
        ...

    def effects(
        self, records: Iterable[VcfRecord], reference: Reference, predict: Predictor, max_n: float
    ) -> Iterator[ScoredRecord[Any]]:
        """Effects of every record, in their order."""
        ...


class AlleleScorer(Protocol[A, E_co]):
    """How an alternative allele is scored from the sequences around it."""

    def allele(
        self, record: VcfRecord, contig: str | None, alt: str, place: Callable[[Iterable[str]], list[int]]
    ) -> A:
        """The allele before it is scored; `place` takes its sequences, and gives rows of their values."""
        ...

    def values(self, predicted: NDArray[np.float32]) -> NDArray[np.float32]:
        """What is kept of predictions of sequences."""
        ...

    def effect(self, allele: A, values: NDArray[np.float32]) -> E_co:
        """The allele's effect."""
        ...


def score_records(
    records: Iterable[VcfRecord],
    reference: Reference,
    scorer: AlleleScorer[A, E],
    predict: Predictor,
    *,
    first_batch: int,
    batch_sequences: int,
) -> Iterator[ScoredRecord[E]]:
    """Effects of every alternative allele of every record, in the records' order; none is left out.

    A call of `predict` has at most `batch_sequences`, the first ones about `first_batch`; a sequence that
    occurs again among those that are predicted together is predicted once. `ModelError` if a prediction is no
    probability.
    """
    find_contig = contig_finder(reference.contigs, reference.names)
    batch: list[tuple[VcfRecord, list[A]]] = []
    rows: dict[str, int] = {}

    def place(sequences: Iterable[str]) -> list[int]:
        return [rows.setdefault(sequence, len(rows)) for sequence in sequences]

    def scored() -> Iterator[ScoredRecord[E]]:
        texts = list(rows)
        parts = [
            scorer.values(_predicted(predict, texts[start : start + batch_sequences]))
            for start in range(0, len(texts), batch_sequences)
        ]
        values = np.concatenate(parts) if parts else np.empty((0, 0), np.float32)
        for record, alleles in batch:
            yield ScoredRecord(record, tuple(scorer.effect(allele, values) for allele in alleles))
        batch.clear()
        rows.clear()

    enough = min(first_batch, batch_sequences)
    for record in records:
        contig = find_contig(record.contig)
        batch.append((record, [scorer.allele(record, contig, alt, place) for alt in record.alts]))
        if len(rows) >= enough or len(batch) >= _RECORDS:
            yield from scored()
            enough = min(2 * enough, batch_sequences)
    yield from scored()


def _predicted(predict: Predictor, sequences: Sequence[str]) -> NDArray[np.float32]:
    values = predict(sequences)
    assert len(values) == len(sequences), f"{values.shape} predictions for {len(sequences)} sequences"
    if not ((values >= 0) & (values <= 1)).all():  # false for NaN too
        raise ModelError("the model gives values that are not probabilities: its weights are damaged")
    return values


def note_info(notes: Sequence[Sequence[str]]) -> Iterator[str]:
    """The part of INFO with the notes of each ALT; none if there is none."""
    if any(notes):
        yield f"{PREFIX}NOTE={','.join('&'.join(one) or '.' for one in notes)}"


def decimal(value: float) -> str:
    """A value of an effect with six digits."""
    return f"{value + 0.0:.6g}"  # no -0


class VcfHead(NamedTuple):
    """The input's header (`meta`, `column_line`), the origin of the effects, and `##contig` lines it
    lacks."""

    meta: Sequence[str]
    column_line: str
    origin: Mapping[str, str]
    contigs: Sequence[str] = ()


class EffectLayout(NamedTuple):
    """A format's lines, without their ends: those of the header, and those of a record."""

    header: Callable[[VcfHead, EffectFields[Any]], Iterable[str]]
    lines: Callable[[ScoredRecord[Any], EffectFields[Any]], Sequence[str]]


def _vcf_header(head: VcfHead, fields: EffectFields[Any]) -> Iterator[str]:
    own = (_META, f"##INFO=<ID={PREFIX}")
    yield from (line for line in head.meta if not line.startswith(own))
    yield from head.contigs
    version, model, command = head.origin.values()
    yield from (f"{_META}version={version}", f"{_META}model={model}", f"{_META}command={command}")
    for key, count, kind, text in fields.keys:
        yield (
            f'##INFO=<ID={PREFIX}{key},Number={count},Type={kind},Description="{text}",'
            f'Source="bigbird-dna",Version="{version}">'
        )
    yield head.column_line


def _vcf_lines(scored: ScoredRecord[Any], fields: EffectFields[Any]) -> Sequence[str]:
    """The input's line with `BBD_…` in INFO; FILTER and all other columns stay as they are.

    Keys have one value for each ALT, `.` where one was not scored, and are left out where no ALT has any.
    """
    record, effects = scored
    *columns, old = record.columns
    kept = [] if old == "." else [part for part in old.split(";") if not part.startswith(PREFIX)]
    line = [*columns, ";".join([*kept, *fields.info(effects)])]
    return ("\t".join([*line, record.rest] if record.rest else line),)


def _tsv_header(head: VcfHead, fields: EffectFields[Any]) -> Iterator[str]:
    columns = ["#contig", "position", "ref", "alt", "id", "note", *fields.columns]
    yield from (*provenance_lines(head.origin), "\t".join(columns))


def _tsv_lines(scored: ScoredRecord[Any], fields: EffectFields[Any]) -> Sequence[str]:
    """A row for each ALT; `position` is the VCF's, from 1 on, and the note `.` where there is none."""
    contig, position, name, ref = scored.record.columns[:4]
    return [
        "\t".join([contig, position, ref, alt, name, "&".join(effect.notes) or ".", *fields.row(effect)])
        for alt, effect in zip(scored.record.alts, scored.effects, strict=True)
    ]


LAYOUTS = {"vcf": EffectLayout(_vcf_header, _vcf_lines), "tsv": EffectLayout(_tsv_header, _tsv_lines)}
