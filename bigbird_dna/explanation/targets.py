"""What is explained: bases of sequences, of regions or around variants, in the windows that a model reads."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import log
from bigbird_dna.errors import DataError, ModelError, UsageError, check_choice
from bigbird_dna.genome.assembly import contig_finder
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    STRANDS,
    Interval,
    Locus,
    Strand,
    reverse_complement,
    window_around,
)
from bigbird_dna.genome.sequence_tables import COLUMNS, TableColumns, stream_sequences
from bigbird_dna.genome.variants import Note, find_change
from bigbird_dna.genome.vcf import check_assembly, open_vcf, read_vcf
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.model import MADE_FOR, LoadedModel
from bigbird_dna.model.promoter import LoadedPromoterModel, LoadedSequenceModel
from bigbird_dna.model.start_sites import LoadedStartSiteModel
from bigbird_dna.scoring.effects import StartSiteEffects, extended
from bigbird_dna.scoring.regions import Genome, Region, opened, placed_regions

Fetch = Callable[[int, int], str]
"""The forward bases from a start to an end, of a contig or a sequence, with N beyond it."""
Scored = (
    LoadedPromoterModel
    | LoadedSequenceModel
    | LoadedChromatinModel
    | LoadedStartSiteModel
)
"""Models that can be explained."""
FLANK = 50  # bp on both sides of a variant
LONGEST = 10_000  # explained bases of a target
# Explained bases around a start site, whose base is the first one downstream.
UPSTREAM, DOWNSTREAM = 150, 50

BED, VCF = (".bed", ".bed.gz"), (".vcf", ".vcf.gz", ".vcf.bgz")


class ExplainedWindow(NamedTuple):
    """Bases to explain: `window[first:last]`, in a window as the model reads it.

    `contig` and `start` are where the leftmost of these bases is on the forward strand, 0-based; for a
    sequence of a file, its name and the number of bases before them. The bases `on_reference` are not those
    of an alternative allele. `site` is the position of the start site whose score is explained, if the model
    has start sites.
    """

    name: str
    contig: str
    start: int
    strand: Strand
    window: str
    first: int
    last: int
    on_reference: bool = True
    site: int | None = None

    @property
    def bases(self) -> str:
        """The explained bases, in the direction in which the model reads them."""
        return self.window[self.first : self.last]

    @property
    def positions(self) -> NDArray[np.int64]:
        """Positions (L,) of the bases on the contig, in the window's direction."""
        positions = np.arange(self.start, self.start + len(self.bases))
        return positions if self.strand == "+" else positions[::-1]


def explainable(model: LoadedModel) -> Scored:
    """Return the model; `ModelError` if there is no score of a window that could be explained."""
    if isinstance(model, Scored):
        return model
    raise ModelError(
        f"{model.name}: this model is for {MADE_FOR[model.task]}; it has no scores to explain"
    )


def read_targets(
    path: Path,
    model: Scored,
    reference: Genome | None = None,
    aliases: Path | str | None = None,
    *,
    flank: int = FLANK,
    sequence_column: str = COLUMNS.sequence,
) -> list[ExplainedWindow]:
    """Read the regions of a BED file, the variants of a VCF, or the sequences of a FASTA file or table.

    A region, or sequence, shorter than the model's window is in the center of the window; around a sequence
    are Ns. A region of one base is a TSS for a promoter model, and its whole window is explained. Each allele
    of a variant is a target, with `flank` bp on both sides. `UsageError`, `DataError`: regions or variants
    without a reference, or not on it; nothing to explain; a target is longer than the window.

    For a model of start sites, a region of one base is a start site, and the bases from `UPSTREAM` bp before
    it on are explained. The start site of another region or sequence is its strongest one; that of a variant,
    the one that it changes most. The start site is in the window's center.
    """
    targets = []
    name = str(path).lower()
    if not name.endswith((*BED, *VCF)):
        for name, text in stream_sequences(path, TableColumns(sequence_column)):
            what = f"{path}: sequence {name!r}"
            region = Region(name, 0, len(text), name, "+")
            targets.append(_region(model, what, region, partial(_padded, text)))
    elif reference is None:
        raise UsageError(
            f"{path}: regions and variants need --reference, the FASTA with their sequences"
        )
    else:
        with opened(reference, aliases) as genome:
            if name.endswith(VCF):
                targets = _variants(path, model, genome, flank)
            else:
                for region in placed_regions(path, genome, LONGEST):
                    what = f"{path}: region {region.name!r}"
                    fetch = partial(_fetch, genome, region.contig)
                    targets.append(_region(model, what, region, fetch))

    if not targets:
        raise DataError(f"{path}: nothing to explain")

    return targets


def _padded(text: str, start: int, end: int) -> str:
    """The bases from `start` to `end` of a sequence, N beyond its ends."""
    inside = text[max(start, 0) : max(end, 0)]
    return "N" * min(-start, end - start) + inside.ljust(end - max(start, 0), "N")


def _fetch(genome: Reference, contig: str, start: int, end: int) -> str:
    return genome.fetch(Interval(contig, start, end))


def _region(model: Scored, what: str, region: Region, fetch: Fetch) -> ExplainedWindow:
    """Return a region as a target; for a model of start sites, around its strongest one."""
    start, end = region.start, region.end
    strand = region.strand or "+"
    window = model.settings.window or end - start
    for most, reason in ((window, "the model's window of"), (LONGEST, "at most")):
        if end - start > most:
            raise DataError(
                f"{what} has {end - start:,} bp, more than {reason} {most:,} bp: explain a part of it"
            )

    site = None
    if isinstance(model, LoadedStartSiteModel):
        site = start
        if end - start > 1:
            first = (start + end - window) // 2
            text = fetch(first, first + window)
            probs = model.window_probabilities([text])[0]
            inside = probs[:, start - first : end - first]
            ways = [region.strand] if region.strand else [*STRANDS]
            inside = inside[[STRANDS.index(way) for way in ways]]
            row, column = np.unravel_index(inside.argmax(), inside.shape)
            site, strand = start + int(column), ways[int(row)]

    if end - start == 1:
        reach = (UPSTREAM, DOWNSTREAM) if site is not None else None
        if isinstance(model, LoadedPromoterModel):
            reach = model.tss_reach

        if reach is not None:
            explained = window_around(Locus(region.contig, start, strand, ""), *reach)
            start, end = explained.start, explained.end

    explained = Interval(region.contig, start, end, strand)
    return _in_window(model, region.name, explained, fetch, site)


def _in_window(
    model: Scored, name: str, region: Interval, fetch: Fetch, site: int | None
) -> ExplainedWindow:
    """Return a region in the window around a start site; None: in the center of a window."""
    contig, start, end, strand = region.contig, region.start, region.end, region.strand
    if site is not None:
        assert isinstance(model, LoadedStartSiteModel)
        window = window_around(Locus(contig, site, strand, ""), *model.tss_reach)
        start, end = max(start, window.start), min(end, window.end)
    else:
        size = model.settings.window or end - start
        left = (size - end + start) // 2  # in the window's direction
        first = start - left if strand == "+" else end + left - size
        window = Interval(contig, first, first + size, strand)

    text = fetch(window.start, window.end)
    first = start - window.start
    if strand == "-":
        text, first = reverse_complement(text), window.end - end

    last = first + end - start
    return ExplainedWindow(name, contig, start, strand, text, first, last, site=site)


def _variants(
    path: Path, model: Scored, reference: Reference, flank: int
) -> list[ExplainedWindow]:
    """Return REF and ALT of the alleles of a VCF; log how many cannot be explained."""
    find_contig = contig_finder(reference.contigs, reference.names)
    with open_vcf(path) as vcf:
        records = list(read_vcf(vcf, path))
        check_assembly(records, path, reference, find_contig)

    notes: Counter[Note] = Counter()
    targets = []
    for record in records:
        contig = find_contig(record.contig)
        for alt in record.alts:
            change = find_change(contig, record.start, record.ref, alt, reference)
            if isinstance(change, Note):
                notes[change] += 1
                continue

            longer = max(len(change.ref), len(change.alt))
            window = model.settings.window or longer + 2 * flank
            if longer > window:
                notes[Note.TOO_LONG] += 1
                continue

            around, site, moved = min(flank, (window - longer) // 2), None, change
            if isinstance(model, LoadedStartSiteModel):
                effects = StartSiteEffects(model)
                found, texts, bins = effects.inputs(change, reference, 0.25)
                if not texts:
                    notes.update(note for note in found if isinstance(note, Note))
                    continue

                site = effects.largest(bins, effects.predict(texts))
                around, moved = flank, extended(change, reference)

            name = f"{record.contig}:{record.start + 1}:{record.ref}:{alt}"
            name = name if record.id == "." else f"{record.id} {name}"
            start, end = change.start, change.start + len(change.ref)
            before = _fetch(reference, change.contig, start - window, start)
            behind = _fetch(reference, change.contig, end, end + window)
            for kind, allele, longest in (
                ("REF", change.ref, moved.ref),
                ("ALT", change.alt, moved.alt),
            ):
                text = before + allele + behind
                strand, place = STRANDS[0], None
                if site is not None:
                    strand = site.strand
                    place = start + effects.place(bins, site, len(longest))

                target = _in_window(
                    model,
                    f"{name} {kind}",
                    Interval(
                        change.contig,
                        start - around,
                        start + len(allele) + around,
                        strand,
                    ),
                    partial(_spliced, text, start - window),
                    place,
                )
                if site is not None:
                    target = target._replace(site=site.position)

                targets.append(target._replace(on_reference=kind == "REF"))

    for note, count in notes.items():
        log(f"warning: {path}: {count:,} alleles are not explained: {note.meaning}")

    return targets


def _spliced(text: str, offset: int, start: int, end: int) -> str:
    return text[start - offset : end - offset]


def output_names(model: Scored) -> list[str]:
    """Names of a model's outputs, in order; start sites are those on the strand that is read."""
    if isinstance(model, LoadedStartSiteModel):
        return ["TSS"]
    if isinstance(model, LoadedChromatinModel):
        return [track.name for track in model.tracks]
    if isinstance(model, LoadedSequenceModel):
        return [*model.settings.outputs]
    return ["promoter"]


def chosen_outputs(model: Scored, pattern: str | None, most: int) -> list[int]:
    """Columns of the outputs that a pattern selects: tracks, or labels or classes by name; None: all.

    `UsageError` if there are more than `most`, or a pattern is given for a model with one output.
    """
    names = output_names(model)
    if pattern is not None and len(names) == 1:
        raise UsageError(f"tracks: {model.name} has one output")

    if isinstance(model, LoadedChromatinModel):
        columns = model.columns(pattern)
    elif pattern is None:
        columns = [*range(len(names))]
    else:
        chosen = [name.strip() for name in pattern.split(",")]
        for name in chosen:
            check_choice("tracks:", name, names)

        columns = [column for column, name in enumerate(names) if name in chosen]

    if len(columns) > most:
        raise UsageError(
            f"{model.name}: {len(columns):,} outputs, at most {most} at a time: choose with --tracks"
        )

    return columns
