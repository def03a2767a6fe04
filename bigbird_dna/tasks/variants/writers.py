"""Effects of variants as files: the VCF with further INFO, or a table (TSV).

Both take a stream. The same effects give the same bytes: nothing depends on time or machine.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from bigbird_dna.disk.atomic import quiet_htslib
from bigbird_dna.disk.outputs import Destination, open_text, provenance_lines
from bigbird_dna.genome.variants import Note
from bigbird_dna.genome.vcf import PREFIX
from bigbird_dna.tasks.variants import promoter_fields
from bigbird_dna.tasks.variants.effects import AlleleEffect, ScoredRecord
from bigbird_dna.tasks.variants.promoter_effects import PromoterEffect, PromoterRecord

_META = "##bigbird_dna_"
_ERRORS = "surrogateescape"  # see `genome.vcf` on bytes
_RESERVED = re.compile(r'[\s;=,%"\\\x00-\x1f\x7f]')


Effects = Sequence[AlleleEffect] | Sequence[PromoterEffect]
"""Of a record, one for each ALT: all of one kind."""


class VariantInfo(NamedTuple):
    """What the writers say or need to know beside the effects.

    `meta` and `column_line` are the input's header, `contigs` the `##contig` lines that it lacks, `origin` is
    the `provenance` of the effects. `tracks` are the names that effects have values of. With `per_track` the
    values of every one of them are written beside the largest. With `promoters` the effects are on promoters,
    and there are no tracks.
    """

    meta: Sequence[str]
    column_line: str
    origin: Mapping[str, str]
    tracks: Sequence[str]
    per_track: bool
    promoters: bool = False
    contigs: Sequence[str] = ()


Scored = Iterable[ScoredRecord | PromoterRecord]


def vcf_rows(scored: Scored, info: VariantInfo) -> Iterator[str]:
    """The input's lines with `BBD_…` in INFO, which the header describes.

    FILTER and all other columns stay as they are. Keys have one value for each ALT (BBD_DELTA and BBD_LOGODDS
    one for each ALT and track, all tracks of the first ALT first), `.` where an ALT was not scored, and
    are left out where no ALT has any.
    """
    names = [escape(name) for name in info.tracks]
    for record, effects in scored:
        *columns, old = record.columns
        kept = [] if old == "." else [part for part in old.split(";") if not part.startswith(PREFIX)]
        fields = [*columns, ";".join([*kept, *_info(effects, names, info)])]
        yield "\t".join([*fields, record.rest] if record.rest else fields)


def tsv_rows(scored: Scored, info: VariantInfo) -> Iterator[str]:
    """A row for each ALT: `#contig position ref alt id note max_delta max_track`, then the tracks' values.

    `position` is the VCF's, from 1 on. `NA` where an ALT was not scored, note `.` where there is none.
    With `per_track` each track has the columns `TRACK:delta` and `TRACK:logodds`. Effects on promoters have
    those of `promoter_fields` after the note.
    """
    for record, effects in scored:
        contig, position, name, ref = record.columns[:4]
        each: Iterable[tuple[str, AlleleEffect | PromoterEffect]] = zip(record.alts, effects, strict=True)
        for alt, effect in each:
            fields = [contig, position, ref, alt, name, _note(effect)]
            yield "\t".join([*fields, *_row(effect, info)])


def _tsv_header(info: VariantInfo) -> Iterator[str]:
    header = ["#contig", "position", "ref", "alt", "id", "note"]
    header += promoter_fields.COLUMNS if info.promoters else ["max_delta", "max_track"]
    if info.per_track:
        header += [f"{name}:{value}" for name in info.tracks for value in ("delta", "logodds")]
    yield from (*provenance_lines(info.origin), "\t".join(header))


class Layout(NamedTuple):
    """A format's lines, without their ends: those of the header, and those of each record after the other."""

    header: Callable[[VariantInfo], Iterator[str]]
    rows: Callable[[Scored, VariantInfo], Iterator[str]]

    def __call__(self, path: Destination, scored: Scored, info: VariantInfo) -> None:
        """Write a file."""
        write_lines(path, chain(self.header(info), self.rows(scored, info)))


def write_lines(path: Destination, lines: Iterable[str]) -> None:
    """Write lines, of which some may hold bytes that aren't UTF-8."""
    with open_text(path, _ERRORS) as stream:
        for line in lines:
            stream.write(f"{line}\n")


def write_index(path: Path, index: Path, format: str) -> None:
    """Write the tabix index of a bgzip file of sorted records; CSI if `index` ends in `.csi`.

    `path` must end in `.gz`.
    """
    import pysam

    columns: dict[str, Any] = (
        {"preset": "vcf"} if format == "vcf" else {"seq_col": 0, "start_col": 1, "end_col": 1}
    )
    with quiet_htslib():
        pysam.tabix_index(str(path), index=str(index), csi=index.suffix == ".csi", force=True, **columns)


def escape(name: str) -> str:
    """A track's name as INFO may hold it: what the format reserves becomes `%` and two digits."""
    if name == ".":
        return "%2E"
    return _RESERVED.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), name)


def _vcf_header(info: VariantInfo) -> Iterator[str]:
    names = [escape(name) for name in info.tracks]
    own = (_META, f"##INFO=<ID={PREFIX}")
    yield from (line for line in info.meta if not line.startswith(own))
    yield from info.contigs
    version, model, command = info.origin.values()
    yield from (f"{_META}version={version}", f"{_META}model={model}", f"{_META}command={command}")
    keys = promoter_fields.KEYS if info.promoters else _track_keys(info, names)
    for key, count, kind, text in keys:
        yield (
            f'##INFO=<ID={PREFIX}{key},Number={count},Type={kind},Description="{text}",'
            f'Source="bigbird-dna",Version="{version}">'
        )
    yield info.column_line


WRITERS = {"vcf": Layout(_vcf_header, vcf_rows), "tsv": Layout(_tsv_header, tsv_rows)}


def _track_keys(info: VariantInfo, names: Sequence[str]) -> Sequence[tuple[str, str, str, str]]:
    number = len(names)
    averaged = "mean over both strands and the windows' offsets"
    order = f"for each ALT the tracks {','.join(names)}"
    keys = [
        ("MAX", "A", "Float", f"Largest change of probability, ALT minus REF, of {number} tracks"),
        ("MAXTRACK", "A", "String", f"Track with the largest change, of {number}"),
    ]
    if info.per_track:
        keys += [
            ("DELTA", ".", "Float", f"Change of probability, ALT minus REF, {averaged}: {order}"),
            ("LOGODDS", ".", "Float", f"Change of the natural log-odds, ALT minus REF: {order}"),
        ]
    notes = "; ".join(f"{note} {note.meaning}" for note in Note)
    keys.append(("NOTE", ".", "String", f"For each ALT what is to be said, joined by &: {notes}"))
    return keys


def _info(effects: Effects, names: Sequence[str], info: VariantInfo) -> Iterator[str]:
    if info.promoters:
        yield from promoter_fields.info(cast(Sequence[PromoterEffect], effects), PREFIX)
    else:
        yield from _track_info(cast(Sequence[AlleleEffect], effects), names, info.per_track)


def _track_info(effects: Sequence[AlleleEffect], names: Sequence[str], per_track: bool) -> Iterator[str]:
    scored = [effect for effect in effects if effect.delta is not None]
    if scored:
        largest = [_largest(effect, names, ".") for effect in effects]
        yield f"{PREFIX}MAX={','.join(value for value, _ in largest)}"
        yield f"{PREFIX}MAXTRACK={','.join(name for _, name in largest)}"
    if scored and per_track:
        for key, field in (("DELTA", "delta"), ("LOGODDS", "log_odds")):
            values = (getattr(effect, field) for effect in effects)
            missing = ["."] * len(names)
            texts = (missing if row is None else map(_decimal, row.tolist()) for row in values)
            yield f"{PREFIX}{key}={','.join(map(','.join, texts))}"
    if any(effect.notes for effect in effects):
        yield f"{PREFIX}NOTE={','.join(map(_note, effects))}"


def _row(effect: AlleleEffect | PromoterEffect, info: VariantInfo) -> Iterator[str]:
    if isinstance(effect, PromoterEffect):
        yield from promoter_fields.row(effect, "NA")
        return
    yield from _largest(effect, info.tracks, "NA")
    if not info.per_track:
        return
    if effect.delta is None or effect.log_odds is None:
        yield from ["NA"] * (2 * len(info.tracks))
        return
    pairs = np.stack([effect.delta, effect.log_odds], axis=1)  # (T, 2)
    yield from map(_decimal, pairs.ravel().tolist())


def _largest(effect: AlleleEffect, names: Sequence[str], missing: str) -> tuple[str, str]:
    if effect.delta is None:
        return missing, missing
    return _decimal(float(effect.delta[effect.largest])), names[effect.largest]


def _note(effect: AlleleEffect | PromoterEffect) -> str:
    return "&".join(effect.notes) or "."


def _decimal(value: float) -> str:
    return f"{value + 0.0:.6g}"  # no -0
