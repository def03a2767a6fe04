"""Effects of variants on tracks or promoters, or their likelihood: the command `score-variants`, which is
`bigbird_dna.score_variants` in Python.

The output is the input VCF with additional INFO keys, or a TSV table.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pysam

from bigbird_dna.console import ProgressBar, log
from bigbird_dna.disk.atomic import atomic_path, is_special, link_target, quiet_htslib
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
from bigbird_dna.genome.variants import Change, Note, find_change
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
from bigbird_dna.model.model import LoadedModel, check_calibrated
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.scoring.effects import (
    NO_SITE,
    OFFSETS,
    STRIDE,
    Effects,
    InfoKey,
    ScoredAllele,
    SiteEffects,
    StartSiteEffects,
    TrackEffects,
    TssSites,
    check_offsets,
    refuse,
    score_alleles,
)
from bigbird_dna.scoring.haplotypes import joint_alleles, near_records, sample_column
from bigbird_dna.scoring.masked_likelihood import CONTEXT, LikelihoodEffects
from bigbird_dna.scoring.regions import tss_sites
from bigbird_dna.scoring.writers import choose_output

VARIANT_FORMATS = {"vcf": (".vcf", ".bcf"), "tsv": (".tsv", ".txt")}
ALLELE = ("contig", "position", "ref", "alt", "id", "note")  # first columns of a table

RECORDS_AT_ONCE = 32

_META = "##bigbird_dna_"
_INFO = 7  # column
_FOREIGN = (Note.REF_MISMATCH, Note.BEYOND_CONTIG, Note.CONTIG_UNKNOWN)


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
    top_tracks: int | None = None,
    contigs: Sequence[str] | str = (),
    regions: Path | str | None = None,
    aliases: Path | str | None = None,
    format: str | None = None,
    offsets: int | None = None,
    context: int | None = None,
    phased: str | None = None,
    stride: int | None = None,
    sites: Path | str | None = None,
    max_n: float = 0.25,
    calibrated: bool = False,
    prior: float | None = None,
    precision: str = "auto",
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> VariantCounts:
    """Write how the variants of a VCF change the probabilities of tracks, or of promoters (ALT minus REF).

    With a model of start sites, such as `yeast-promoters`, write the largest change of a start site around
    the variant. With a pretrained model, write the log-ratio of the likelihoods of ALT and REF in their
    context (`scoring.masked_likelihood`).

    Parameters
    ----------
    model, vcf, reference
        A chromatin, promoter or pretrained model, or its directory, or the file of a k-mer baseline (`.npz`);
        a VCF or BCF (plain, gzip or bgzip), or "-" for standard input; the indexed FASTA of the VCF.
    output, format
        File to write atomically, as "vcf" or "tsv" (None: by its extension, or vcf). None or "-": standard
        output. `.gz` means bgzip, with an index if the input is sorted; `.bcf` is BCF. See
        docs/files.md.
    tracks
        Chromatin models only: tracks, groups or shell patterns. Only these are considered, and the values of
        each are written. None: all tracks are considered, and only the largest effect is written.
    top_tracks
        Chromatin models only: write the probabilities of this number of tracks with the largest effects.
    contigs, regions
        Only records on these contigs, by any name in the assembly's table of names; only records whose REF
        overlaps the regions of a BED file. If both are given, records must satisfy both.
    aliases
        File of alternative contig names, if the VCF uses other names (docs/files.md).
    offsets
        Chromatin and pretrained models only: number of windows to average over, shifted within the length of
        a few tokens, each on both strands; None: 4.
    context
        Pretrained models only: number of bp on both sides of a change; None: 100.
    phased
        Sample of the VCF whose phased variants, at most 10 bp apart on the same haplotypes, are scored
        together (`scoring.haplotypes`). None: records are independent.
    stride, sites
        `stride`, for models of single windows only: distance in bp of the TSS positions tested around a
        variant (None: 20). `sites`, for all promoter models: a file of the positions to test, as for
        `prepare_promoters` (docs/files.md), in which lines of BED may lack a strand. The position
        with the largest change is written.
    max_n
        Alleles with a larger fraction of N in a window are listed, but not scored.
    calibrated, prior
        Report changes of calibrated probabilities; for models of single windows, `prior` adjusts them to this
        prevalence of promoters among the windows.
    precision, batch_size, device, threads
        As for `score_promoters`.

    Raises
    ------
    UsageError, DataError, ModelError
        An argument is out of range, or an option does not apply to the model; a file cannot be read (the
        message names the record); the reference has none of the contigs of the records, of `contigs` or of
        `regions`; REF of most records differs from the reference; the model is none of these, or causal, or
        its weights are damaged.
    """
    inputs = [model, vcf, reference, regions, aliases, sites]
    path, format = choose_output(output, format, VARIANT_FORMATS, inputs, "vcf")
    check_at_least_one(
        {
            "batch_size": batch_size,
            "threads": threads,
            "top_tracks": top_tracks,
        }
    )
    check_fraction("max_n", max_n)
    if offsets is not None:
        check_offsets(offsets)
    # Differences between predictions are small: bfloat16 is not the default on any device.
    torch_device = choose_device(device)
    precision, stated_precision = choose_precision(precision, torch_device, False)
    contigs = contig_names(contigs)

    loaded = load_scoring_model(model)
    check_calibrated(calibrated, prior)
    effect_options = {
        "tracks": tracks,
        "top_tracks": top_tracks,
        "offsets": offsets,
        "context": context,
        "stride": stride,
        "sites": sites,
        "prior": prior,
    }
    check_options(loaded, effect_options, calibrated)
    names = None if aliases is None else Path(aliases)
    counts = Counter[str]()
    with (
        cpu_threads(threads),
        inference(precision, torch_device),
        Reference(Path(reference), names) as genome,
        readable(vcf) as source,
    ):
        effects, stored_options = effects_of(
            loaded,
            effect_options,
            genome,
            calibrated=calibrated,
            batch_size=batch_size,
            device=device,
        )
        places = find_places(
            contigs, regions, genome.contigs, genome.path, genome.names
        )
        find_contig = contig_finder(genome.contigs, genome.names)
        shown_name = "standard input" if str(vcf) == "-" else str(vcf)
        # The whole file is checked before anything is computed.
        num_records, used = check_vcf(source, shown_name, genome, find_contig, places)
        options = {
            "--reference": genome.path,
            "--aliases": genome.aliases,
            "--tracks": tracks,
            "--top-tracks": top_tracks,
            "--contig": list(contigs),
            "--regions": regions,
            "--phased": phased,
            "--format": format,
            **stored_options,
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
            open_vcf(source, shown_name) as opened,
            open_effects(path, format) as out,
            ProgressBar("scoring", num_records, "records") as bar,
        ):
            header: Sequence[str] = str(opened.header).splitlines()
            column = None
            if phased:
                column = sample_column([*opened.header.samples], phased, shown_name)
            records = kept_records(opened, shown_name, places)
            if format == "vcf":
                declared = contig_lines(header[:-1], genome.contigs, used, find_contig)
                lines = vcf_header(effects, origin, header, declared)
            else:
                columns = [*ALLELE, *effects.columns]
                lines = [*provenance_lines(origin), "#" + "\t".join(columns)]
            text = "\n".join(lines) + "\n"
            for batch in record_batches(records, column is not None):
                alleles = batch_alleles(
                    batch, column, genome, find_contig, effects, max_n
                )
                for record, scored in alleles:
                    if format == "vcf":
                        text += vcf_line(record, scored, effects)
                    else:
                        text += tsv_lines(record, scored, effects)
                    counts["records"] += 1
                    for allele in scored:
                        counts["not scored" if allele.effect is None else "scored"] += 1
                        counts.update(allele.notes)
                out.write(text)
                text = ""
                bar.advance(sum(map(len, batch)))
            out.write(text)  # the header, if there are no records

    if places is not None and not num_records:
        log(f"warning: {vcf}: no records in the selected contigs or regions")
    notes = {note: counts[note] for note in (*Note, NO_SITE) if counts[note]}
    return VariantCounts(
        counts["records"], counts["scored"], counts["not scored"], notes
    )


def load_scoring_model(model: LoadedModel | Path | str) -> LoadedModel:
    """Load or accept a model for `score-variants`; `ModelError` if it is a model of another task.

    A file `.npz` is the k-mer baseline of `train baseline chromatin`.
    """
    if not isinstance(model, LoadedModel) and Path(model).suffix == ".npz":
        from bigbird_dna.baselines.kmer_model import read_kmer_model

        return read_kmer_model(Path(model))
    loaded = model if isinstance(model, LoadedModel) else load(model)
    if loaded.task in ("promoter", "chromatin", "pretraining"):
        return loaded
    raise ModelError(
        f"{loaded.name}: needs a chromatin, promoter or pretrained model, found a {loaded.task} model"
    )


def check_options(
    model: LoadedModel, options: Mapping[str, Any], calibrated: bool
) -> None:
    """Raise `UsageError` for an option that does not apply to the kind of model, or is out of range."""
    check_at_least_one({"stride": options["stride"]})
    if isinstance(model, LoadedPromoterModel):
        kind = "a promoter model"
        used = {"stride", "sites", "prior"}
        if options["stride"] is not None and options["sites"] is not None:
            raise UsageError("stride and sites: give at most one of them")
    elif isinstance(model, LoadedChromatinModel) and model.predicts_tss:
        kind = "a model of start sites"
        used = {"sites"}
    elif isinstance(model, LoadedChromatinModel):
        kind = "a chromatin model"
        used = {"tracks", "top_tracks", "offsets"}
    else:
        kind = "a pretrained model"
        used = {"offsets", "context"}
        refuse(model, kind, {"calibrated": calibrated or None})
    others = {name: value for name, value in options.items() if name not in used}
    refuse(model, kind, others)


def effects_of(
    model: LoadedModel,
    options: Mapping[str, Any],
    reference: Reference,
    *,
    calibrated: bool = False,
    batch_size: int = 32,
    device: str = "auto",
) -> tuple[Effects, dict[str, object]]:
    """Return the effects that a model predicts, and the options of the command that change them."""
    computing: dict[str, Any] = {"batch_size": batch_size, "device": device}
    offsets = options["offsets"] or OFFSETS
    sites: TssSites | None = None
    if options["sites"] is not None:
        sites = tss_sites(options["sites"], reference)
        if not sites:
            raise DataError(
                f"{options['sites']}: none of the sites is on {reference.path}"
            )
    if isinstance(model, LoadedPromoterModel):
        stride = int(options["stride"] or STRIDE)
        stored = {"--tss": options["sites"]} if sites else {"--stride": stride}
        return (
            SiteEffects(
                model,
                stride,
                sites,
                calibrated=calibrated,
                prior=options["prior"],
                **computing,
            ),
            {**stored, "--prior": options["prior"]},
        )
    if isinstance(model, LoadedChromatinModel) and model.predicts_tss:
        starts = StartSiteEffects(model, sites, calibrated=calibrated, **computing)
        return starts, {"--tss": options["sites"]}
    if isinstance(model, LoadedChromatinModel):
        of_tracks = TrackEffects(
            model,
            options["tracks"],
            offsets,
            calibrated=calibrated,
            top=options["top_tracks"] or 0,
            **computing,
        )
        return of_tracks, {"--offsets": offsets}
    context = CONTEXT if options["context"] is None else options["context"]
    likelihood = LikelihoodEffects(model, offsets, context, **computing)
    return likelihood, {"--offsets": offsets, "--context": context}


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
    find_contig: Callable[[str], str | None],
    places: Places | None = None,
) -> tuple[int, list[str]]:
    """Read a whole file; return the number of records to be scored and the names of their contigs.

    `DataError` if a record is wrong, if none of the contigs is in the reference, or if REF of most of the
    first records differs from the reference.
    """
    with open_vcf(path, name) as vcf:
        records = kept_records(vcf, name, places)
        check_assembly(records, name, reference, find_contig, str(vcf.header))
    number = 0
    contigs: dict[str, str | None] = {}
    with open_vcf(path, name) as vcf:
        for record in kept_records(vcf, name, places):
            number += 1
            if record.contig not in contigs:
                contigs[record.contig] = find_contig(record.contig)
    if contigs and not any(contigs.values()):
        raise DataError(
            f"{name}: none of the contigs ({shown(contigs)}) is in {reference.path} "
            f"({shown(reference.contigs)}); {ALIAS_HINT}"
        )
    return number, list(contigs)


Batch = list[list[Variant]]
"""Groups of records; those of a group may be scored together."""


def record_batches(records: Iterator[Variant], together: bool) -> Iterator[Batch]:
    """Yield batches of records; if some are scored `together`, their groups are not divided."""
    batch: Batch = []
    size = 0
    groups = near_records(records) if together else ([record] for record in records)
    for group in groups:
        batch.append(group)
        size += len(group)
        if size >= RECORDS_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def batch_alleles(
    batch: Batch,
    column: int | None,
    reference: Reference,
    find_contig: Callable[[str], str | None],
    effects: Effects,
    max_n: float,
) -> Iterator[tuple[Variant, list[ScoredAllele]]]:
    """Yield the records of a batch with the effects of their alternative alleles.

    `column` is that of the sample whose phased alleles are scored together; None: none.
    """
    changes: list[Change | Note] = []
    is_joint: list[bool] = []
    for group in batch:
        joint: dict[tuple[int, str], tuple[int, str, str]] = {}
        if column is not None:
            joint = joint_alleles(group, column, reference, find_contig)
        for number, record in enumerate(group):
            contig = find_contig(record.contig)
            for alt in record.alts:
                alone = record.start, record.ref, alt
                start, ref, alternative = joint.get((number, alt), alone)
                changes.append(find_change(contig, start, ref, alternative, reference))
                is_joint.append((number, alt) in joint)

    scored = score_alleles(changes, reference, effects, max_n)
    for index, allele in enumerate(scored):
        if is_joint[index]:
            scored[index] = allele._replace(notes=(Note.PHASED, *allele.notes))
    first = 0
    for group in batch:
        for record in group:
            last = first + len(record.alts)
            yield record, scored[first:last]
            first = last


def score_records(
    records: Sequence[Variant], reference: Reference, effects: Effects, max_n: float
) -> list[list[ScoredAllele]]:
    """Return the effects of the alternative alleles of each record."""
    find_contig = contig_finder(reference.contigs, reference.names)
    scored = []
    for batch in record_batches(iter(records), False):
        for _, alleles in batch_alleles(
            batch, None, reference, find_contig, effects, max_n
        ):
            scored.append(alleles)
    return scored


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
    meanings = [f"{note} {note.meaning}" for note in Note]
    meanings += [f"{note} {meaning}" for note, meaning in effects.notes.items()]
    text = f"Notes for each ALT, joined by &: {'; '.join(meanings)}"
    for key in (*effects.keys, InfoKey("NOTE", "A", "String", text)):
        lines.append(
            f"##INFO=<ID={PREFIX}{key.name},Number={key.number},Type={key.kind},"
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
    keys = effects.keys
    if any(allele.effect is not None for allele in alleles):
        missing = ["."] * len(keys)
        values = [
            missing if allele.effect is None else effects.info(allele.effect)
            for allele in alleles
        ]
        for key, texts in zip(keys, zip(*values, strict=True), strict=True):
            info.append(f"{PREFIX}{key.name}={','.join(texts)}")
    if any(allele.notes for allele in alleles) and record.alts != (".",):
        notes = ["&".join(allele.notes) or "." for allele in alleles]
        info.append(f"{PREFIX}NOTE={','.join(notes)}")
    columns[_INFO] = ";".join(info) or "."
    return "\t".join(columns) + "\n"


def tsv_lines(
    record: Variant, alleles: Sequence[ScoredAllele], effects: Effects
) -> str:
    """Return one row per ALT; `position` is 1-based as in VCF, and the note is `.` if there is none."""
    lines = ""
    for alt, (notes, effect) in zip(record.alts, alleles, strict=True):
        note = "&".join(notes) or "."
        row = ["NA"] * len(effects.columns) if effect is None else effects.row(effect)
        position = str(record.start + 1)
        cells = [record.contig, position, record.ref, alt, record.id, note, *row]
        lines += "\t".join(cells) + "\n"
    return lines


@contextmanager
def open_effects(output: Path | None, format: str) -> Iterator[Any]:
    """Open a VCF or table for writing text, atomically; with `.gz` or `.bcf`, write an index as well.

    Through a link, file and index are written at the target. An old index is removed if the new file has
    none, because its records are not sorted.
    """
    if output is None or is_special(output) or output.suffix not in (".gz", ".bcf"):
        with open_text(output, "surrogateescape") as out:
            yield out
        return
    target = link_target(output).resolve()
    index = None
    with atomic_path(output) as final:
        is_bcf = output.suffix == ".bcf"
        text = final.with_name(f"{final.name}.vcf") if is_bcf else final
        with open_text(text, "surrogateescape") as out:
            yield out
        if is_bcf:
            _write_bcf(text, final, output)
            text.unlink()
        for ending in (".csi",) if is_bcf else (".tbi", ".csi"):
            place = Path(f"{target}{ending}")
            # a tabix index cannot hold positions beyond 2^29
            with suppress(OSError), atomic_path(place) as temporary:
                write_index(final, temporary, format)
                index = place
                break
    for name in (target, output):
        for ending in (".tbi", ".csi"):
            old = Path(f"{name}{ending}")
            if old.resolve() != index:
                old.unlink(missing_ok=True)  # readers would use the outdated index
    if index is None:
        log(f"warning: {output}: no index, because the records are not sorted")


def write_index(path: Path, index: Path, format: str) -> None:
    """Write the index of a BCF, or of a bgzip file of sorted records; CSI if `index` ends in `.csi`.

    `OSError`: the records are not sorted, or a position is beyond the reach of the index.
    """
    columns: dict[str, Any] = {"seq_col": 0, "start_col": 1, "end_col": 1}
    if format == "vcf":
        columns = {"preset": "bcf" if path.suffix == ".bcf" else "vcf"}
    is_csi = index.suffix == ".csi"
    with quiet_htslib():
        pysam.tabix_index(
            str(path), index=str(index), csi=is_csi, force=True, **columns
        )


def _write_bcf(text: Path, bcf: Path, output: Path) -> None:
    import pysam.bcftools  # slow to import
    from pysam.utils import SamtoolsError

    try:
        pysam.bcftools.view(
            "--no-version", "-Ob", "-o", str(bcf), str(text), catch_stdout=False
        )
    except SamtoolsError:
        raise DataError(
            f"{output}: cannot be written as BCF, because the input's header does not declare all of its "
            "contigs and keys; write .vcf.gz"
        ) from None
