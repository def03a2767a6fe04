"""What is explained: bases of sequences, of regions or around variants, in the windows that a model reads."""

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import log
from bigbird_dna.errors import DataError, ModelError, UsageError, check_choice
from bigbird_dna.genome.assembly import contig_finder
from bigbird_dna.genome.chromatin.track import TSS_TRACKS
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    Interval,
    Locus,
    Strand,
    reverse_complement,
    tss_position,
    window_around,
)
from bigbird_dna.genome.sequence_tables import COLUMNS, TableColumns, stream_sequences
from bigbird_dna.genome.variants import Change, Note, allele_windows, find_change
from bigbird_dna.genome.vcf import check_assembly, open_vcf, read_vcf
from bigbird_dna.model.batching import centered_bins
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.model import MADE_FOR, LoadedModel
from bigbird_dna.model.promoter import LoadedPromoterModel, LoadedSequenceModel
from bigbird_dna.scoring.effects import StartSiteEffects, extended
from bigbird_dna.scoring.regions import Genome, opened, placed_regions

Scored = LoadedPromoterModel | LoadedSequenceModel | LoadedChromatinModel
"""Models that can be explained."""
FLANK = 50  # bp on both sides of a variant
LONGEST = 10_000  # explained bases of a target
UPSTREAM, DOWNSTREAM = (
    150,
    50,
)  # explained bases around a start site, whose base is the first one downstream

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
    are Ns. A region of one base is a TSS for a promoter model, and its whole window is explained; a warning
    counts other regions and sequences that are shorter than the window of a promoter model, whose score is
    not about their center. Each allele of a variant is a target, with `flank` bp on both sides. `UsageError`,
    `DataError`: regions or variants without a reference, or not on it; nothing to explain; a target is longer
    than the window.

    For a model of start sites, a region of one base is a start site, and the bases from `UPSTREAM` bp before
    it on are explained. The start site of another region or sequence is its strongest one; that of a variant,
    the one that it changes most. The start site is in the window's center.
    """
    name = str(path).lower()
    if not name.endswith((*BED, *VCF)):
        targets = list(sequence_windows(path, model, sequence_column))
    elif reference is None:
        raise UsageError(
            f"{path}: regions and variants need --reference, the FASTA with their sequences"
        )
    else:
        with opened(reference, aliases) as genome:
            if name.endswith(VCF):
                targets = list(variant_windows(path, model, genome, flank))
            else:
                targets = list(region_windows(path, model, genome))
    if not targets:
        raise DataError(f"{path}: nothing to explain")
    if isinstance(model, LoadedPromoterModel) and not name.endswith(VCF):
        window, tss = model.settings.window, model.settings.upstream
        centered = sum(len(target.bases) < window for target in targets)
        if centered:
            log(
                f"warning: {path}: {centered:,} of {len(targets):,} targets are shorter than the model's "
                f"window of {window:,} bp and are in its center: the score that is explained is about base "
                f"{tss:,} of the window, not about a TSS elsewhere in the target; give start sites as "
                "regions of one base, or sequences as long as the window"
            )
    return targets


def _reads_start_sites(model: Scored) -> TypeGuard[LoadedChromatinModel]:
    return isinstance(model, LoadedChromatinModel) and model.predicts_tss


def _check_fits(bases: int, window: int, what: str) -> None:
    if bases > window:
        raise DataError(
            f"{what} has {bases:,} bp, more than the model's window of {window:,} bp: explain a part of it"
        )
    if bases > LONGEST:
        raise DataError(
            f"{what} has {bases:,} bp; at most {LONGEST:,} can be explained together"
        )


def region_windows(
    path: Path, model: Scored, reference: Reference
) -> Iterator[ExplainedWindow]:
    """Yield the regions of a BED file."""
    for region in placed_regions(path, reference, LONGEST):
        contig, start, end, name, given_strand, _ = region
        strand: Strand = given_strand or "+"
        what = f"{path}: region {name!r}"
        if _reads_start_sites(model):
            size = model.settings.window
            _check_fits(end - start, size, what)
            if end - start == 1:
                site = Locus(contig, start, strand, "")
                explained = window_around(site, UPSTREAM, DOWNSTREAM)
                start, end = explained.start, explained.end
            else:
                first = (start + end - size) // 2
                text = reference.fetch(Interval(contig, first, first + size))
                strands: tuple[Strand, ...] = (
                    (given_strand,) if given_strand else ("+", "-")
                )
                at, strand = _strongest(
                    model, text, start - first, end - first, strands
                )
                site = Locus(contig, first + at, strand, "")
            window = window_around(site, *model.tss_reach)
            start, end = max(start, window.start), min(end, window.end)
            yield _in_window(name, window, start, end, reference)._replace(
                site=site.position
            )
            continue
        if end - start == 1 and isinstance(model, LoadedPromoterModel):
            site = Locus(contig, start, strand, "")
            explained = window_around(
                site, model.settings.upstream, model.settings.downstream
            )
            start, end = explained.start, explained.end
        bases = end - start
        size = model.settings.window or bases
        _check_fits(bases, size, what)
        left = (size - bases) // 2  # in the window's direction
        first = start - (left if strand == "+" else size - left - bases)
        window = Interval(contig, first, first + size, strand)
        yield _in_window(name, window, start, end, reference)


def _in_window(
    name: str, window: Interval, start: int, end: int, reference: Reference
) -> ExplainedWindow:
    """Return the bases from `start` to `end` of a contig, in a window of the reference."""
    contig, strand = window.contig, window.strand
    first = start - window.start if strand == "+" else window.end - end
    text = reference.fetch(window)
    return ExplainedWindow(
        name, contig, start, strand, text, first, first + end - start
    )


def _strongest(
    model: LoadedChromatinModel,
    window: str,
    start: int,
    end: int,
    strands: Sequence[Strand],
) -> tuple[int, Strand]:
    """Return place and strand of the start site with the highest score from `start` to `end` of a window."""
    size = model.settings.bin
    scores = model.window_probabilities([window], center_fraction=model.scored_center)[
        0
    ]
    begins = centered_bins(len(window), size, len(scores)).tolist()
    sites = []
    for begin, score in zip(begins, scores.tolist(), strict=True):
        for strand in strands:
            site = tss_position(begin, begin + size, strand, size // 2)
            if start <= site < end:
                sites.append((score[model.tss_columns[strand]], site, strand))
    _, site, strand = max(sites, key=itemgetter(0))
    return site, strand


def sequence_windows(
    path: Path, model: Scored, sequence_column: str
) -> Iterator[ExplainedWindow]:
    """Yield the sequences of a FASTA file or table."""
    window = model.settings.window
    for name, text in stream_sequences(path, TableColumns(sequence_column)):
        size = window or len(text)
        _check_fits(len(text), size, f"{path}: sequence {name!r}")
        left = (size - len(text)) // 2
        last = left + len(text)
        filled = ("N" * left + text).ljust(size, "N")
        target = ExplainedWindow(name, name, 0, "+", filled, left, last)
        if _reads_start_sites(model):
            site = len(text) // 2
            if len(text) > 1:
                site = _strongest(model, filled, left, last, ("+",))[0] - left
            upstream, downstream = model.tss_reach
            padded = "N" * upstream + text + "N" * downstream
            target = target._replace(
                start=max(site - upstream, 0),
                window=padded[site : site + window],
                first=max(upstream - site, 0),
                last=min(upstream - site + len(text), window),
                site=site,
            )
        yield target


def variant_windows(
    path: Path, model: Scored, reference: Reference, flank: int
) -> Iterator[ExplainedWindow]:
    """Yield REF and ALT of the alleles of a VCF; log how many cannot be explained."""
    find_contig = contig_finder(reference.contigs, reference.names)
    with open_vcf(path) as vcf:
        records = list(read_vcf(vcf, path))
        check_assembly(records, path, reference, find_contig)
    notes: Counter[Note] = Counter()
    for record in records:
        contig = find_contig(record.contig)
        for alt in record.alts:
            change = find_change(contig, record.start, record.ref, alt, reference)
            targets: list[ExplainedWindow] | Note
            if isinstance(change, Note):
                targets = change
            elif _reads_start_sites(model):
                targets = _of_change_at_site(change, model, reference, flank)
            else:
                targets = _of_change(change, model, reference, flank)
            if isinstance(targets, Note):
                notes[targets] += 1
                continue
            name = f"{record.contig}:{record.start + 1}:{record.ref}:{alt}"
            name = name if record.id == "." else f"{record.id} {name}"
            for target, allele in zip(targets, ("REF", "ALT"), strict=True):
                yield target._replace(
                    name=f"{name} {allele}", on_reference=allele == "REF"
                )
    for note, count in notes.items():
        log(f"warning: {path}: {count:,} alleles are not explained: {note.meaning}")


def _of_change(
    change: Change, model: Scored, reference: Reference, flank: int
) -> list[ExplainedWindow] | Note:
    longer = max(len(change.ref), len(change.alt))
    size = model.settings.window or longer + 2 * flank
    windows = allele_windows(change, reference, size, (0,))
    if windows is None:
        return Note.TOO_LONG
    left = (size - longer) // 2
    targets = []
    for allele, window in ((change.ref, windows.ref[0]), (change.alt, windows.alt[0])):
        first = max(left - flank, 0)
        last = min(left + len(allele) + flank, size)
        start = change.start - (left - first)
        targets.append(
            ExplainedWindow("", change.contig, start, "+", window, first, last)
        )
    return targets


def _of_change_at_site(
    change: Change, model: LoadedChromatinModel, reference: Reference, flank: int
) -> list[ExplainedWindow] | Note:
    """Return the alleles in windows around the start site that the variant changes most."""
    effects = StartSiteEffects(model)
    notes, texts, bins = effects.inputs(change, reference, 0.25)
    if not texts:
        return next(
            (note for note in notes if isinstance(note, Note)), Note.CONTIG_EDGE
        )
    site = effects.largest(bins, effects.predict(texts))
    size = model.settings.window
    upstream, downstream = model.tss_reach
    contig, start, *alleles = extended(change, reference)
    before = reference.fetch(Interval(contig, start - size, start))
    behind = reference.fetch(
        Interval(contig, start + len(alleles[0]), start + len(alleles[0]) + size)
    )
    targets = []
    for allele, changed in zip(alleles, change[2:], strict=True):
        text = before + allele + behind
        position = size + effects.place(
            bins, site, len(allele)
        )  # of the site in the text
        opens = position - upstream if site.strand == "+" else position - downstream + 1
        window = text[opens : opens + size]
        first, last = (
            max(size - flank - opens, 0),
            min(size + len(changed) + flank - opens, size),
        )
        start = change.start - (size - opens - first)
        if site.strand == "-":
            window, first, last = reverse_complement(window), size - last, size - first
        one = ExplainedWindow(
            "", contig, start, site.strand, window, first, last, site=site.position
        )
        targets.append(one)
    return targets


def output_names(model: Scored) -> list[str]:
    """Names of a model's outputs, in order; start sites are those on the strand that is read."""
    if isinstance(model, LoadedChromatinModel):
        names = [track.name for track in model.tracks]
        if model.predicts_tss:
            names = ["TSS" if name == TSS_TRACKS["+"] else name for name in names]
        return names
    if isinstance(model, LoadedSequenceModel):
        return [*model.settings.outputs]
    return ["promoter"]


def chosen_outputs(model: Scored, pattern: str | None, most: int) -> list[int]:
    """Columns of the outputs that a pattern selects: tracks, or labels or classes by name; None: all.

    `UsageError` if there are more than `most`, or a pattern is given for a model with one output.
    """
    names = output_names(model)
    if pattern is not None and (len(names) == 1 or _reads_start_sites(model)):
        raise UsageError(f"tracks: {model.name} has one output")
    if _reads_start_sites(model):
        return [model.tss_columns["+"]]
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
