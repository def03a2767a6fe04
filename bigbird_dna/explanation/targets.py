"""What is explained: bases of sequences, of regions or around variants, in the windows that a model reads."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.console import log
from bigbird_dna.errors import DataError, ModelError, UsageError, check_choice
from bigbird_dna.genome.assembly import contig_finder
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, Strand
from bigbird_dna.genome.sequence_tables import COLUMNS, TableColumns, stream_sequences
from bigbird_dna.genome.variants import Change, Note, allele_windows, find_change, open_vcf, same_assembly
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.model import MADE_FOR, LoadedModel
from bigbird_dna.model.promoter import LoadedPromoterModel, LoadedSequenceModel
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.scoring.masked_likelihood import CONTEXT, check_masked
from bigbird_dna.scoring.regions import Genome, opened, placed_regions

Scored = LoadedPromoterModel | LoadedSequenceModel | LoadedChromatinModel
"""Models of windows; other models that can be explained are pretrained masked-token models."""
FLANK = 50  # bp on both sides of a variant
LONGEST = 10_000  # explained bases of a target

BED, VCF = (".bed", ".bed.gz"), (".vcf", ".vcf.gz", ".vcf.bgz")


class ExplainedWindow(NamedTuple):
    """Bases to explain: `window[first:last]`, in a window as the model reads it.

    `contig` and `start` are where the leftmost of these bases is on the forward strand, 0-based; for a
    sequence of a file, its name and the number of bases before them. `sides` are the bases next to the
    window, which a deletion moves into it. The bases `on_reference` are not those of an alternative allele.
    """

    name: str
    contig: str
    start: int
    strand: Strand
    window: str
    first: int
    last: int
    sides: tuple[str, str] = ("N", "N")
    on_reference: bool = True

    @property
    def bases(self) -> str:
        """The explained bases, in the direction in which the model reads them."""
        return self.window[self.first : self.last]

    def position(self, offset: int) -> int:
        """Position on the contig of a base, by its offset from the first one in the window's direction."""
        return self.start + (offset if self.strand == "+" else self.last - self.first - 1 - offset)


def explainable(model: LoadedModel) -> LoadedModel:
    """Return the model; `ModelError` if there is no score of a window that could be explained."""
    if isinstance(model, Scored):
        return model
    if isinstance(model.settings, PretrainingSettings):
        check_masked(model)
        return model
    raise ModelError(f"{model.name}: this model is for {MADE_FOR[model.task]}; it has no scores to explain")


def window_size(model: LoadedModel) -> int:
    """Length of a model's windows in bp; 0 if it reads sequences of any length."""
    return model.settings.window if isinstance(model, Scored) else 0


def read_targets(
    path: Path,
    model: LoadedModel,
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
    """
    endings = str(path).lower()
    if endings.endswith((*BED, *VCF)):
        if reference is None:
            raise UsageError(f"{path}: regions and variants need --reference, the FASTA with their sequences")
        kind = _regions if endings.endswith(BED) else _alleles
        with opened(reference, aliases) as genome:
            found = list(kind(path, model, genome, flank))
    else:
        found = list(_sequences(path, model, sequence_column))
    if not found:
        raise DataError(f"{path}: nothing to explain")
    if isinstance(model, LoadedPromoterModel) and not endings.endswith(VCF):
        window, tss = model.settings.window, model.settings.upstream
        centered = sum(len(target.bases) < window for target in found)
        if centered:
            log(
                f"warning: {path}: {centered:,} of {len(found):,} targets are shorter than the model's "
                f"window of {window:,} bp and are in its center: the score that is explained is about base "
                f"{tss:,} of the window, not about a TSS elsewhere in the target; give start sites as "
                "regions of one base, or sequences as long as the window"
            )
    return found


def _regions(path: Path, model: LoadedModel, reference: Reference, _: int) -> Iterator[ExplainedWindow]:
    window = window_size(model)
    for contig, start, end, name, strand, _fault in placed_regions(path, reference, LONGEST):
        way: Strand = strand or "+"
        if end - start == 1 and isinstance(model, LoadedPromoterModel):
            before, after = model.settings.upstream, model.settings.downstream - 1
            left, right = (before, after) if way == "+" else (after, before)
            start, end = start - left, end + right
        size = window or end - start + 2 * _context(model)
        _check_fits(end - start, size, f"{path}: region {name!r}")
        left = (size - (end - start)) // 2  # in the window's direction
        first = start - (left if way == "+" else size - left - (end - start))
        text = reference.fetch(Interval(contig, first - 1, first + size + 1, way))
        sides = (text[0], text[-1]) if window else ("", "")
        yield ExplainedWindow(name, contig, start, way, text[1:-1], left, left + end - start, sides)


def _context(model: LoadedModel) -> int:
    """Bases around a region, on either side, that a pretrained model reads."""
    return 0 if isinstance(model, Scored) else CONTEXT


def _sequences(path: Path, model: LoadedModel, sequence_column: str) -> Iterator[ExplainedWindow]:
    window = window_size(model)
    for name, text in stream_sequences(path, TableColumns(sequence_column)):
        size = window or len(text)
        _check_fits(len(text), size, f"{path}: sequence {name!r}")
        left = (size - len(text)) // 2
        filled = f"{'N' * left}{text}".ljust(size, "N")
        sides = ("N", "N") if window else ("", "")
        yield ExplainedWindow(name, name, 0, "+", filled, left, left + len(text), sides)


def _check_fits(bases: int, window: int, what: str) -> None:
    if bases > window:
        raise DataError(
            f"{what} has {bases:,} bp, more than the model's window of {window:,} bp: explain a part of it"
        )
    if bases > LONGEST:
        raise DataError(f"{what} has {bases:,} bp; at most {LONGEST:,} can be explained together")


def _alleles(path: Path, model: LoadedModel, reference: Reference, flank: int) -> Iterator[ExplainedWindow]:
    find, notes = contig_finder(reference.contigs, reference.names), Counter[Note]()
    with open_vcf(path) as vcf:
        for record in same_assembly(vcf, path, reference, find):
            for alt in record.alts:
                change = find_change(find(record.contig), record.start, record.ref, alt, reference)
                found = change if isinstance(change, Note) else _of_change(change, model, reference, flank)
                if isinstance(found, Note):
                    notes[found] += 1
                    continue
                identifier = record.columns[2]
                name = f"{record.contig}:{record.start + 1}:{record.ref}:{alt}"
                name = name if identifier == "." else f"{identifier} {name}"
                for target, allele in zip(found, ("REF", "ALT"), strict=True):
                    yield target._replace(name=f"{name} {allele}", on_reference=allele == "REF")
    for note, count in notes.items():
        log(f"warning: {path}: {count:,} alleles are not explained: {note.meaning}")


def _of_change(
    change: Change, model: LoadedModel, reference: Reference, flank: int
) -> list[ExplainedWindow] | Note:
    longer = max(len(change.ref), len(change.alt))
    size = window_size(model) or longer + 2 * (flank + _context(model))
    windows = allele_windows(change, reference, size, (0,))
    if windows is None:
        return Note.TOO_LONG
    left, targets = (size - longer) // 2, []
    for allele, (window,) in ((change.ref, windows.ref), (change.alt, windows.alt)):
        first, last = max(left - flank, 0), min(left + len(allele) + flank, size)
        start = change.start - (left - first)
        targets.append(ExplainedWindow("", change.contig, start, "+", window, first, last))
    return targets


def output_names(model: LoadedModel) -> list[str]:
    """Names of a model's outputs, in order."""
    if not isinstance(model, Scored):
        return ["likelihood"]
    if isinstance(model, LoadedChromatinModel):
        return [track.name for track in model.tracks]
    return [*model.settings.outputs] if isinstance(model, LoadedSequenceModel) else ["promoter"]


def chosen_outputs(model: LoadedModel, pattern: str | None, most: int) -> list[int]:
    """Columns of the outputs that a pattern selects: tracks, or labels or classes by name; None: all.

    `UsageError` if there are more than `most`, or a pattern is given for a model with one output.
    """
    names = output_names(model)
    columns = [*range(len(names))]
    if pattern is not None and isinstance(model, LoadedChromatinModel):
        columns = model.columns(pattern)
    elif pattern is not None:
        if len(names) == 1:
            raise UsageError(f"tracks: {model.name} has one output")
        chosen = [name.strip() for name in pattern.split(",")]
        for name in chosen:
            check_choice("tracks:", name, names)
        columns = [column for column, name in enumerate(names) if name in chosen]
    if len(columns) > most:
        raise UsageError(
            f"{model.name}: {len(columns):,} outputs, at most {most} at a time: choose with --tracks"
        )
    return columns
