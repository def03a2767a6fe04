"""Effects of variants on tracks or start sites, or their likelihood: `score_variants`, which is the command
`score-variants`, and `variant_effects`, which returns a table.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pysam

from bigbird_dna.console import ProgressBar, log
from bigbird_dna.disk.atomic import is_special, link_target, quiet_htslib
from bigbird_dna.disk.outputs import (
    command_line,
    open_text,
    provenance,
    provenance_lines,
)
from bigbird_dna.errors import (
    DataError,
    ModelError,
    UsageError,
    check_at_least_one,
    check_fraction,
)
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
from bigbird_dna.model.catalog import stored_name
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.directory import load
from bigbird_dna.model.inference import (
    choose_device,
    choose_precision,
    cpu_threads,
    inference,
)
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.scoring.effects import (
    OFFSETS,
    InfoKey,
    StartSiteEffects,
    TrackEffects,
    decimal,
)
from bigbird_dna.scoring.masked_likelihood import LikelihoodEffects
from bigbird_dna.scoring.regions import Genome, opened, table_columns
from bigbird_dna.scoring.writers import choose_output

if TYPE_CHECKING:  # the command reads a file, and needs 60 MB less without pandas
    import pandas as pd

VARIANT_FORMATS = {"vcf": (".vcf",), "tsv": (".tsv", ".txt")}
ALLELE = ("contig", "position", "ref", "alt", "id", "note")  # first columns of a table

RECORDS_AT_ONCE = 32

_META = "##bigbird_dna_"
_INFO = 7  # column
_FOREIGN = (Note.REF_MISMATCH, Note.BEYOND_CONTIG, Note.CONTIG_UNKNOWN)

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

    @property
    def seem_foreign(self) -> bool:
        """Whether most alleles do not match the reference, e.g. because of another assembly."""
        return sum(self.notes.get(note, 0) for note in _FOREIGN) > self.scored


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
        A chromatin or pretrained model, or a model of start sites, or its directory, or the file of a k-mer
        baseline (`.npz`); a VCF or BCF (plain, gzip or bgzip), or "-" for standard input; the indexed FASTA
        of the VCF.
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
    check_at_least_one({"batch_size": batch_size, "threads": threads})
    check_fraction("max_n", max_n)
    # Differences between predictions are small: bfloat16 is not the default on any device.
    torch_device = choose_device(device)
    precision, stated_precision = choose_precision(precision, torch_device, False)

    loaded = load_scoring_model(model)
    effects = effects_of(
        loaded,
        tracks,
        offsets,
        calibrated=calibrated,
        batch_size=batch_size,
        device=device,
    )
    counts = Counter[str]()
    with (
        cpu_threads(threads),
        inference(precision, torch_device),
        opened(reference, aliases) as genome,
        readable(vcf) as source,
    ):
        contigs = contig_names(contigs)
        places = find_places(
            contigs, regions, genome.contigs, genome.path, genome.names
        )
        find_contig = contig_finder(genome.contigs, genome.names)
        name = "standard input" if str(vcf) == "-" else str(vcf)
        # The whole file is checked before anything is computed.
        num_records, used = check_vcf(source, name, genome, find_contig, places)
        options = {
            "--reference": genome.path,
            "--aliases": genome.aliases,
            "--tracks": tracks,
            "--contig": list(contigs),
            "--regions": regions,
            "--format": format,
            "--offsets": None
            if isinstance(effects, StartSiteEffects)
            else len(effects.offsets),
            "--max-n": max_n,
            "--precision": stated_precision,
        }
        command = command_line(
            "score-variants",
            [stored_name(loaded.path), vcf],
            options,
            {"--calibrated": calibrated},
        )
        origin = provenance(loaded.sha256, command)

        with (
            open_vcf(source, name) as records,
            open_effects(path, format) as out,
            ProgressBar("scoring", num_records, "records") as bar,
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
            upcoming = kept_records(records, name, places)
            while batch := list(islice(upcoming, RECORDS_AT_ONCE)):
                scored = score_records(batch, genome, find_contig, effects, max_n)
                text = ""
                for record, alleles in zip(batch, scored, strict=True):
                    text += line_of(record, alleles, effects)
                    for allele in alleles:
                        counts["not scored" if allele.row is None else "scored"] += 1
                        counts.update(allele.notes)
                counts["records"] += len(batch)
                out.write(text)
                bar.advance(len(batch))

    if places is not None and not num_records:
        log(f"warning: {vcf}: no records in the selected contigs or regions")
    notes = {str(note): counts[note] for note in Note if counts[note]}
    return VariantCounts(
        counts["records"], counts["scored"], counts["not scored"], notes
    )


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
    scored. Other arguments and errors are those of `score_variants`; an error names the row of a table.
    """
    check_at_least_one({"batch_size": batch_size})
    check_fraction("max_n", max_n)
    effects = effects_of(
        model,
        tracks,
        offsets,
        calibrated=calibrated,
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
            records = table_variants(variants)
        rows = []
        for first in range(0, len(records), RECORDS_AT_ONCE):
            batch = records[first : first + RECORDS_AT_ONCE]
            scored = score_records(batch, genome, find_contig, effects, max_n)
            for record, alleles in zip(batch, scored, strict=True):
                for alt, (notes, row) in zip(record.alts, alleles, strict=True):
                    note = "&".join(notes) or "."
                    cells = row or [np.nan] * len(effects.columns)
                    position = record.start + 1
                    identity = record.contig, position, record.ref, alt, record.id
                    rows.append((*identity, note, *cells))
    import pandas as pd

    return pd.DataFrame(rows, columns=[*ALLELE, *effects.columns])


def table_variants(table: "pd.DataFrame") -> list[Variant]:
    """Return the variants of a table; `UsageError` names the index of a row that is none."""
    columns = table_columns(table, "variants", ("contig", "position", "ref", "alt"))
    variants = []
    for label, contig, position, ref, alt in zip(table.index, *columns, strict=True):
        texts = (contig, ref, alt)
        if not all(isinstance(text, str) and text for text in texts) or position < 1:
            raise UsageError(
                f"variants[{label!r}]: needs a contig, a position of at least 1, and alleles: "
                f"{contig!r}, {position!r}, {ref!r}, {alt!r:.60}"
            )
        variants.append(Variant(contig, int(position) - 1, ref, tuple(alt.split(","))))
    return variants


def load_scoring_model(model: LoadedModel | Path | str) -> LoadedModel:
    """Load or accept a model; a file `.npz` is the k-mer baseline of `train baseline chromatin`."""
    if isinstance(model, LoadedModel):
        return model
    if Path(model).suffix == ".npz":
        from bigbird_dna.baselines.kmer_model import read_kmer_model

        return read_kmer_model(Path(model))
    return load(model)


def effects_of(
    model: LoadedModel,
    tracks: str | None = None,
    offsets: int | None = None,
    *,
    calibrated: bool = False,
    batch_size: int = 32,
    device: str = "auto",
) -> Effects:
    """Return the effects that a model predicts.

    `UsageError` for an option that does not apply to the kind of model; `ModelError` if it predicts none.
    """
    computing: dict[str, Any] = {"batch_size": batch_size, "device": device}
    is_chromatin = isinstance(model, LoadedChromatinModel)
    starts = isinstance(model, LoadedChromatinModel) and model.predicts_tss
    unused = {
        "tracks": tracks if starts or not is_chromatin else None,
        "offsets": offsets if starts else None,
        "calibrated": calibrated if not is_chromatin and calibrated else None,
    }
    if model.task not in ("chromatin", "pretraining"):
        raise ModelError(
            f"{model.name}: needs a model of start sites, a chromatin or a pretrained model, found a "
            f"{model.task} model"
        )
    for name, value in unused.items():
        if value is not None:
            raise UsageError(f"{name} {value}: does not apply to {model.name}")
    count = OFFSETS if offsets is None else offsets
    if not isinstance(model, LoadedChromatinModel):
        return LikelihoodEffects(model, count, **computing)
    if starts:
        return StartSiteEffects(model, calibrated=calibrated, **computing)
    return TrackEffects(model, tracks, count, calibrated=calibrated, **computing)


# Records.


def kept_records(
    vcf: pysam.VariantFile, name: object, places: Places | None
) -> Iterator[Variant]:
    """Yield the records that overlap the places; None: all."""
    for record in read_vcf(vcf, name):
        if places is None or places.overlaps(record.contig, record.start, record.end):
            yield record


def check_vcf(
    path: Path,
    name: object,
    reference: Reference,
    find_contig: FindContig,
    places: Places | None = None,
) -> tuple[int, list[str]]:
    """Read a whole file; return the number of records to be scored and the names of their contigs.

    `DataError` if a record is wrong, if none of the contigs is in the reference, or if REF of most of the
    first records differs from the reference.
    """
    with open_vcf(path, name) as vcf:
        records = kept_records(vcf, name, places)
        check_assembly(records, name, reference, find_contig)
    with open_vcf(path, name) as vcf:
        contigs = Counter(record.contig for record in kept_records(vcf, name, places))
    if contigs and not any(map(find_contig, contigs)):
        raise DataError(
            f"{name}: none of the contigs ({shown(contigs)}) is in {reference.path} "
            f"({shown(reference.contigs)}); {ALIAS_HINT}"
        )
    return contigs.total(), list(contigs)


def score_records(
    records: Sequence[Variant],
    reference: Reference,
    find_contig: FindContig,
    effects: Effects,
    max_n: float,
) -> list[list[ScoredAllele]]:
    """Return the effects of the alternative alleles of each record.

    All inputs are predicted together, each once. Alleles with a larger fraction of N in a window than `max_n`
    are not scored (bases beyond the contig are N).
    """
    rows: dict[Any, int] = {}  # input → its row among the predictions
    alleles: list[tuple[tuple[str, ...], Any, list[int]]] = []
    for record in records:
        contig = find_contig(record.contig)
        for alt in record.alts:
            change = find_change(contig, record.start, record.ref, alt, reference)
            if isinstance(change, Note):
                alleles.append(((change,), None, []))
                continue
            notes, texts, about = effects.inputs(change, reference, max_n)
            numbers = [rows.setdefault(text, len(rows)) for text in texts or ()]
            alleles.append((notes, about, numbers))

    values = effects.predict(list(rows)) if rows else np.empty(0, np.float32)
    scored = iter(
        [
            ScoredAllele(
                notes, effects.row(about, values[numbers]) if numbers else None
            )
            for notes, about, numbers in alleles
        ]
    )
    return [[next(scored) for _ in record.alts] for record in records]


# Output.


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
    notes = InfoKey("NOTE", "String", f"Notes for each ALT, joined by &: {meanings}")
    for key in (*effects.info_keys, notes):
        lines.append(
            f"##INFO=<ID={PREFIX}{key.name},Number=A,Type={key.kind},"
            f'Description="{key.text}",Source="bigbird-dna",Version="{version}">'
        )
    return [*lines, columns]


def vcf_line(record: Variant, alleles: Sequence[ScoredAllele], effects: Effects) -> str:
    """Return the input line with `BBD_…` keys in INFO; FILTER and all other columns are unchanged.

    Keys have one value per ALT, `.` if it was not scored, and are omitted if no ALT was scored. A record
    without ALT has none, not even a note.
    """
    columns = record.line.split("\t")
    info = [
        part
        for part in columns[_INFO].split(";")
        if part != "." and not part.startswith(PREFIX)
    ]
    if any(row is not None for _, row in alleles):
        missing = ["."] * len(effects.info_keys)
        values = [missing if row is None else effects.info(row) for _, row in alleles]
        for key, texts in zip(
            effects.info_keys, zip(*values, strict=True), strict=True
        ):
            info.append(f"{PREFIX}{key.name}={','.join(texts)}")
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
        for cell in row or ["NA"] * len(effects.columns):
            cells.append(decimal(cell) if isinstance(cell, float) else str(cell))
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
    columns: dict[str, Any] = {"seq_col": 0, "start_col": 1, "end_col": 1}
    with quiet_htslib():
        for ending in (".tbi", ".csi"):  # .tbi ends at position 2^29
            try:
                pysam.tabix_index(
                    str(link_target(output)),
                    index=f"{output}{ending}",
                    csi=ending == ".csi",
                    force=True,
                    **({"preset": "vcf"} if format == "vcf" else columns),
                )
                return
            except OSError:
                Path(f"{output}{ending}").unlink(missing_ok=True)
    log(f"warning: {output}: no index, because the records are not sorted")
