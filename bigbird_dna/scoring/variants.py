"""Effects of variants on tracks or start sites, or their likelihood: `score_variants`, which is the command
`score-variants`, and `variant_effects`, which returns a table.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pysam

from bigbird_dna.console import ProgressBar, log
from bigbird_dna.disk.atomic import is_special, link_target, quiet_htslib
from bigbird_dna.disk.outputs import open_text, provenance_lines
from bigbird_dna.errors import DataError, ModelError, UsageError
from bigbird_dna.genome.assembly import ALIAS_HINT, contig_finder, shown
from bigbird_dna.genome.fasta import readable
from bigbird_dna.genome.intervals import Places, contig_names, find_places
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.variants import Note, find_change
from bigbird_dna.genome.vcf import (
    PREFIX,
    Variant,
    check_assembly,
    contig_lines,
    open_vcf,
    read_vcf,
)
from bigbird_dna.model.catalog import result_origin
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.directory import load
from bigbird_dna.model.inference import computation
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.start_sites import LoadedStartSiteModel
from bigbird_dna.scoring.effects import (
    OFFSETS,
    StartSiteEffects,
    TrackEffects,
    decimal,
)
from bigbird_dna.scoring.masked_likelihood import LikelihoodEffects
from bigbird_dna.scoring.regions import Genome, opened
from bigbird_dna.scoring.writers import choose_output

if TYPE_CHECKING:  # the command reads a file, and needs 60 MB less without pandas
    import pandas as pd

VARIANT_FORMATS = {"vcf": (".vcf",), "tsv": (".tsv", ".txt")}
ALLELE = ("contig", "position", "ref", "alt", "id", "note")  # first columns of a table

RECORDS_AT_ONCE = 32

_META = "##bigbird_dna_"
_INFO = 7  # column

Effects = TrackEffects | StartSiteEffects | LikelihoodEffects
FindContig = Callable[[str], str | None]


class ScoredAllele(NamedTuple):
    """The notes of an alternative allele, and the cells of its effect, None if it was not scored."""

    notes: tuple[str, ...]
    row: Sequence[Any] | None = None


class VariantCounts(NamedTuple):
    """Number of records, of alternative alleles scored and not scored, and of occurrences of each note."""

    records: int
    scored: int
    not_scored: int
    notes: dict[str, int]


def score_variants(
    model: LoadedModel | Path | str,
    vcf: Path | str,
    reference: Path | str,
    output: Path | str | None = None,
    *,
    tracks: str | None = None,
    contigs: Sequence[str] | str = (),
    regions: Path | str | None = None,
    aliases: Path | str | None = None,
    format: str | None = None,
    offsets: int | None = None,
    max_n: float = 0.25,
    calibrated: bool = False,
    precision: str = "auto",
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> VariantCounts:
    """Write how the variants of a VCF change the probabilities of tracks, or of start sites (ALT minus REF).

    With a model of start sites, such as `yeast-promoters`, write the largest change of a start site around
    the variant. With a pretrained model, write the log-ratio of the likelihoods of ALT and REF in their
    context (`scoring.masked_likelihood`).

    Parameters
    ----------
    model, vcf, reference
        A chromatin or pretrained model, or a model of start sites, or its directory; a VCF or BCF (plain,
        gzip or bgzip), or "-" for standard input; the indexed FASTA of the VCF.
    output, format
        File to write atomically, as "vcf" or "tsv" (None: by its extension, or vcf). None or "-": standard
        output. `.gz` means bgzip, with an index if the input is sorted. See docs/files.md.
    tracks
        Chromatin models only: tracks, groups or shell patterns. Only these are considered, and the values of
        each are written. None: all tracks are considered, and only the largest effect is written.
    contigs, regions
        Only records on these contigs, by any name in the assembly's table of names; only records whose REF
        overlaps the regions of a BED file. If both are given, records must satisfy both.
    aliases
        File of alternative contig names, if the VCF uses other names (docs/files.md).
    offsets
        Chromatin and pretrained models only: number of windows to average over, shifted within the length of
        a few tokens, each on both strands; None: 4.
    max_n
        Alleles with a larger fraction of N in a window are listed, but not scored.
    calibrated
        Report changes of calibrated probabilities.
    precision, batch_size, device, threads
        As for `score_promoters`.

    Raises
    ------
    UsageError, DataError, ModelError
        An argument is out of range, or an option does not apply to the model; a file cannot be read (the
        message names the record); the reference has none of the contigs of the records, of `contigs` or of
        `regions`; REF of most records differs from the reference; the model is none of these, or
        its weights are damaged.
    """
    inputs = [model, vcf, reference, regions, aliases]
    path, format = choose_output(output, format, VARIANT_FORMATS, inputs, "vcf")
    loaded = model if isinstance(model, LoadedModel) else load(model)
    effects = effects_of(
        loaded,
        tracks,
        offsets,
        calibrated,
        batch_size=batch_size,
        device=device,
    )
    counts = Counter[str]()
    with (
        # Differences between predictions are small: bfloat16 is not the default on any device.
        computation(precision, device, threads, narrow=False) as stated_precision,
        opened(reference, aliases) as genome,
        readable(vcf) as source,
    ):
        contigs = contig_names(contigs)
        places = find_places(
            contigs, regions, genome.contigs, genome.path, genome.names
        )
        find_contig = contig_finder(genome.contigs, genome.names)
        # The whole file is checked before anything is computed.
        with open_vcf(source) as records:
            selected = records_in(records, source, places)
            check_assembly(selected, source, genome, find_contig)

        with open_vcf(source) as records:
            selected = records_in(records, source, places)
            used = Counter(record.contig for record in selected)

        if used and not any(map(find_contig, used)):
            raise DataError(
                f"{source}: none of the contigs ({shown(used)}) is in {genome.path} "
                f"({shown(genome.contigs)}); {ALIAS_HINT}"
            )

        options = {
            "--reference": genome.path,
            "--aliases": genome.aliases,
            "--tracks": tracks,
            "--contig": list(contigs),
            "--regions": regions,
            "--format": format,
            "--offsets": effects.offsets and len(effects.offsets),
            "--max-n": max_n,
            "--precision": stated_precision,
            "--calibrated": calibrated,
        }
        origin = result_origin(loaded, "score-variants", vcf, options)

        with (
            open_vcf(source) as records,
            open_effects(path, format) as out,
            ProgressBar("scoring", used.total(), "records") as bar,
        ):
            header = str(records.header).splitlines()
            if format == "vcf":
                declared = contig_lines(header[:-1], genome.contigs, used, find_contig)
                lines = vcf_header(effects, origin, header, declared)
            else:
                columns = [*ALLELE, *effects.columns]
                lines = [*provenance_lines(origin), "#" + "\t".join(columns)]

            out.write("\n".join(lines) + "\n")
            line_of = vcf_line if format == "vcf" else tsv_lines
            selected = records_in(records, source, places)
            for batch, scored in scored_batches(
                selected, genome, find_contig, effects, max_n
            ):
                text = ""
                for record, alleles in zip(batch, scored, strict=True):
                    text += line_of(record, alleles, effects)
                    for allele in alleles:
                        counts["not scored" if allele.row is None else "scored"] += 1
                        counts.update(allele.notes)

                out.write(text)
                bar.advance(len(batch))

    if places is not None and not used:
        log(f"warning: {vcf}: no records in the selected contigs or regions")

    notes = {str(note): counts[note] for note in Note if counts[note]}
    return VariantCounts(used.total(), counts["scored"], counts["not scored"], notes)


def variant_effects(
    model: LoadedModel,
    variants: "Path | str | pd.DataFrame",
    reference: Genome,
    *,
    aliases: Path | str | None = None,
    tracks: str | None = None,
    offsets: int | None = None,
    max_n: float = 0.25,
    calibrated: bool = False,
    batch_size: int = 32,
    device: str = "auto",
) -> "pd.DataFrame":
    """Return the table of `score_variants`: a row per alternative allele, in the order of the variants.

    `variants` is a VCF, or a table with the columns contig, position (1-based), ref and alt. `reference` is a
    FASTA file, or an open `Reference`. Values are missing, with the reason in the note, if an allele was not
    scored. Other arguments and errors are those of `score_variants`.
    """
    effects = effects_of(
        model,
        tracks,
        offsets,
        calibrated,
        batch_size=batch_size,
        device=device,
    )
    with opened(reference, aliases) as genome:
        find_contig = contig_finder(genome.contigs, genome.names)
        if isinstance(variants, (Path, str)):
            with open_vcf(variants) as vcf:
                records = list(read_vcf(vcf, variants))

            check_assembly(records, variants, genome, find_contig)
        else:
            columns = variants[["contig", "position", "ref", "alt"]]
            records = [
                Variant(contig, position - 1, ref, tuple(alt.split(",")))
                for contig, position, ref, alt in columns.itertuples(index=False)
            ]

        rows = []
        for batch, scored in scored_batches(
            records, genome, find_contig, effects, max_n
        ):
            for record, alleles in zip(batch, scored, strict=True):
                for alt, (notes, row) in zip(record.alts, alleles, strict=True):
                    note = "&".join(notes) or "."
                    cells = row or [np.nan] * len(effects.columns)
                    position = record.start + 1
                    identity = record.contig, position, record.ref, alt, record.id
                    rows.append((*identity, note, *cells))

    import pandas as pd

    return pd.DataFrame(rows, columns=[*ALLELE, *effects.columns])


def effects_of(
    model: LoadedModel,
    tracks: str | None = None,
    offsets: int | None = None,
    calibrated: bool = False,
    **computing: Any,
) -> Effects:
    """Return the effects that a model predicts; `computing` are batch_size and device.

    `UsageError` for an option that does not apply to the kind of model; `ModelError` if it predicts none.
    """
    unused: dict[str, object] = {}
    if isinstance(model, LoadedStartSiteModel):
        unused = {
            "tracks": tracks,
            "offsets": offsets,
            "calibrated": calibrated or None,
        }
    elif model.task == "pretraining":
        unused = {"tracks": tracks, "calibrated": calibrated or None}
    elif not isinstance(model, LoadedChromatinModel):
        raise ModelError(
            f"{model.name}: needs a model of start sites, a chromatin or a pretrained model, found a "
            f"{model.task} model"
        )

    for name, value in unused.items():
        if value is not None:
            raise UsageError(f"{name} {value}: does not apply to {model.name}")

    if isinstance(model, LoadedStartSiteModel):
        return StartSiteEffects(model, **computing)

    count = offsets or OFFSETS
    if isinstance(model, LoadedChromatinModel):
        return TrackEffects(model, tracks, count, calibrated, **computing)

    return LikelihoodEffects(model, count, **computing)


def records_in(
    vcf: pysam.VariantFile, name: object, places: Places | None
) -> Iterator[Variant]:
    """Yield the records that overlap the places; None: all."""
    for record in read_vcf(vcf, name):
        if places is None or places.overlaps(record.contig, record.start, record.end):
            yield record


def scored_batches(
    records: Iterable[Variant],
    reference: Reference,
    find_contig: FindContig,
    effects: Effects,
    max_n: float,
) -> Iterator[tuple[list[Variant], list[list[ScoredAllele]]]]:
    """Yield batches of records, with the effects of the alternative alleles of each.

    All inputs of a batch are predicted together, each once. Alleles with a larger fraction of N in a window
    than `max_n` are not scored (bases beyond the contig are N).
    """
    upcoming = iter(records)
    while batch := list(islice(upcoming, RECORDS_AT_ONCE)):
        rows: dict[Any, int] = {}  # input → its row among the predictions
        alleles: list[tuple[tuple[str, ...], Any, list[int]]] = []
        for record in batch:
            contig = find_contig(record.contig)
            for alt in record.alts:
                change = find_change(contig, record.start, record.ref, alt, reference)
                if isinstance(change, Note):
                    alleles.append(((change,), None, []))
                    continue

                notes, texts, about = effects.inputs(change, reference, max_n)
                numbers = [rows.setdefault(text, len(rows)) for text in texts]
                alleles.append((notes, about, numbers))

        values = effects.predict(list(rows)) if rows else np.empty(0, np.float32)
        upcoming_alleles = iter(alleles)
        scored = []
        for record in batch:
            of_record = []
            for notes, about, numbers in islice(upcoming_alleles, len(record.alts)):
                row = effects.row(about, values[numbers]) if numbers else None
                of_record.append(ScoredAllele(notes, row))

            scored.append(of_record)

        yield batch, scored


def vcf_header(
    effects: Effects,
    origin: Mapping[str, str],
    header: Sequence[str],
    contigs: Sequence[str],
) -> list[str]:
    """Return the input's header lines, missing `##contig` lines, and the header lines of this result."""
    *meta, columns = header
    lines = [
        line for line in meta if not line.startswith((_META, f"##INFO=<ID={PREFIX}"))
    ]
    lines += contigs
    version, model, command = origin.values()
    lines += [
        f"{_META}version={version}",
        f"{_META}model={model}",
        f"{_META}command={command}",
    ]
    meanings = "; ".join(f"{note} {note.meaning}" for note in Note)
    notes = "NOTE", "String", f"Notes for each ALT, joined by &: {meanings}"
    for name, kind, text in (*effects.info_keys, notes):
        lines.append(
            f"##INFO=<ID={PREFIX}{name},Number=A,Type={kind},"
            f'Description="{text}",Source="bigbird-dna",Version="{version}">'
        )

    return [*lines, columns]


def vcf_line(record: Variant, alleles: Sequence[ScoredAllele], effects: Effects) -> str:
    """Return the input line with `BBD_…` keys in INFO; FILTER and all other columns are unchanged.

    Keys have one value per ALT, `.` if it was not scored, and are omitted if no ALT was scored. A record
    without ALT has none, not even a note.
    """
    columns = record.line.split("\t")
    info = [
        entry
        for entry in columns[_INFO].split(";")
        if entry != "." and not entry.startswith(PREFIX)
    ]
    if any(row is not None for _, row in alleles):
        missing = ["."] * len(effects.info_keys)
        values = [missing if row is None else effects.info(row) for _, row in alleles]
        for (name, _, _), *texts in zip(effects.info_keys, *values, strict=True):
            info.append(f"{PREFIX}{name}={','.join(texts)}")

    if any(notes for notes, _ in alleles) and record.alts != (".",):
        joined = ["&".join(notes) or "." for notes, _ in alleles]
        info.append(f"{PREFIX}NOTE={','.join(joined)}")

    columns[_INFO] = ";".join(info) or "."
    return "\t".join(columns) + "\n"


def tsv_lines(
    record: Variant, alleles: Sequence[ScoredAllele], effects: Effects
) -> str:
    """Return one row per ALT; `position` is 1-based as in VCF, and the note is `.` if there is none."""
    lines = ""
    for alt, (notes, row) in zip(record.alts, alleles, strict=True):
        note = "&".join(notes) or "."
        cells = [record.contig, str(record.start + 1), record.ref, alt, record.id, note]
        cells += map(decimal, row or ["NA"] * len(effects.columns))
        lines += "\t".join(cells) + "\n"
    return lines


@contextmanager
def open_effects(output: Path | None, format: str) -> Iterator[Any]:
    """Open a VCF or table for writing text, atomically; with `.gz`, write an index as well.

    An old index is removed if the new file has none, because its records are not sorted.
    """
    with open_text(output, "surrogateescape") as out:
        yield out

    if output is None or is_special(output) or output.suffix != ".gz":
        return

    for ending in (".tbi", ".csi"):
        Path(f"{output}{ending}").unlink(missing_ok=True)

    options: dict[str, Any] = {"seq_col": 0, "start_col": 1, "end_col": 1}
    if format == "vcf":
        options = {"preset": "vcf"}

    index = f"{output}.tbi"
    try:
        with quiet_htslib():
            pysam.tabix_index(
                str(link_target(output)), index=index, force=True, **options
            )
    except OSError:
        Path(index).unlink(missing_ok=True)
        log(
            f"warning: {output}: no index: the records are not sorted, or too far along a contig"
        )
