"""Random variants: near given ones, as the null distribution of `evaluate variants --null`, or anywhere.

Those anywhere are the background of a model, with which `score-variants` compares each effect.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.calibration.maps import write_calibration
from bigbird_dna.calibration.variant_background import (
    FILE,
    MOST_TRACKS,
    TYPES,
    Shape,
    VariantBackground,
    effect_size,
    variant_type,
)
from bigbird_dna.console import progress
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.disk.outputs import check_output, command_line, named_output
from bigbird_dna.errors import DataError, UsageError, check_at_least_one, printable
from bigbird_dna.genome.assembly import shown
from bigbird_dna.genome.intervals import contig_names, find_places
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.variants import (
    Change,
    VcfRecord,
    contig_lines,
    find_change,
    open_vcf,
    same_assembly,
)
from bigbird_dna.model.catalog import changed_file, find_target
from bigbird_dna.model.inference import choose_device, cpu_threads, inference
from bigbird_dna.scoring.background import stored_options
from bigbird_dna.scoring.formats import indexed_destination, write_lines
from bigbird_dna.scoring.regions import Fit
from bigbird_dna.scoring.scorer import InputCheck
from bigbird_dna.scoring.track_effects import TrackEffects
from bigbird_dna.scoring.variant_effects import score_records
from bigbird_dna.scoring.variants import VariantScorer

_TRIES = 100  # draws per variant that is wanted
Floats = NDArray[np.float64]


class RandomCounts(NamedTuple):
    """Number of alleles with random variants, of these variants, and of alleles with fewer than requested."""

    alleles: int
    random: int
    fewer: int


def random_variants(
    vcf: Path,
    reference: Path,
    output: Path | None = None,
    *,
    per_variant: int = 20,
    within: int = 1000,
    seed: int = 1,
    aliases: Path | None = None,
) -> RandomCounts:
    """Draw random variants for the alleles of a VCF, and write them as a sorted VCF.

    A random variant starts at most `within` bp from its variant and changes as many bases: an SNV has the
    same REF and ALT base, other changes have the bases of ALT in random order. None is equal to a variant of
    the VCF or has N. Its ID is POS:REF:ALT of its variant and a number. Alleles without a normal form (see
    `Note`) have none. `DataError`: no allele has a random variant.
    """
    check_at_least_one({"per_variant": per_variant, "within": within})
    path, rng = named_output(output), np.random.default_rng(seed)
    check_output(path, [vcf, reference, aliases])
    with Reference(reference, aliases) as genome, open_vcf(vcf) as opened:
        fit, given = Fit(vcf, genome), dict[tuple[str, str], Change]()
        for record in same_assembly(opened, vcf, genome, fit.finder):
            contig = fit.find(record.contig)
            for alt in record.alts:
                change = find_change(contig, record.start, record.ref, alt, genome)
                if isinstance(change, Change):
                    given[record.contig, f"{record.start + 1}:{record.ref}:{alt}"] = (
                        change
                    )
        fit.check()
        order = {name: number for number, name in enumerate(genome.contigs)}
        taken, rows, counts = set(given.values()), [], []
        for (contig, key), change in given.items():
            drawn = islice(_draws(change, genome, taken, within, rng), per_variant)
            own = [
                (order[change.contig], contig, *one, f"{key}:{n}")
                for n, one in enumerate(drawn, 1)
            ]
            counts.append(len(own))
            rows += own
        if not rows:
            raise DataError(
                f"{vcf}: no allele of A, C, G and T has a random variant within {within:,} bp"
            )
        options = {
            "--reference": reference,
            "--per-variant": per_variant,
            "--within": within,
            "--seed": seed,
        }
        source = command_line(
            "prepare random-variants", [vcf], {**options, "--aliases": aliases}
        )
        declared = contig_lines(
            (), genome.contigs, [row[1] for row in rows], fit.finder
        )
        columns = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"
        header = ["##fileformat=VCFv4.2", f"##source={source}", *declared, columns]
        lines = (
            f"{row[1]}\t{row[2]}\t{row[5]}\t{row[3]}\t{row[4]}\t.\t.\t."
            for row in sorted(rows)
        )
        with indexed_destination(
            path, "vcf", max(row[2] + len(row[3]) for row in rows)
        ) as target:
            write_lines(target, chain(header, lines), "surrogateescape")
    return RandomCounts(
        sum(map(bool, counts)), len(rows), sum(count < per_variant for count in counts)
    )


def _draws(
    change: Change,
    reference: Reference,
    taken: Collection[Change],
    within: int,
    rng: np.random.Generator,
) -> Iterator[tuple[int, str, str]]:
    """Yield POS, REF and ALT of distinct random variants of a change, at places in random order."""
    contig, start, ref, alt = change
    size, drawn = len(ref), set[Change]()
    first, last = (
        max(0, start - within),
        min(start + within, reference.contigs[contig] - size),
    )
    around = reference.fetch(Interval(contig, first, last + size))
    for at in rng.permutation(last - first + 1).tolist():
        here = around[at : at + size]
        # Substitutions differ in their typical effect, and their rates differ by the base: match both bases.
        if size == len(alt) == 1 and here != ref:
            continue
        made = find_change(
            contig, first + at, here, "".join(rng.permutation(list(alt))), reference
        )
        if not isinstance(made, Change) or made in taken or made in drawn:
            continue
        if (len(made.ref), len(made.alt)) != (size, len(alt)) or abs(
            made.start - start
        ) > within:
            continue  # equal bases at an end were trimmed, or left alignment moved it
        drawn.add(made)
        # An insertion or deletion has the base before it in both alleles.
        before = Interval(
            contig, made.start - (not made.ref or not made.alt), made.start
        )
        anchor = reference.fetch(before)
        if anchor != "N":
            yield before.start + 1, anchor + made.ref, anchor + made.alt


def add_background(
    path: Path,
    reference: Path,
    output: Path | None = None,
    *,
    contigs: Sequence[str] | str = (),
    per_type: int = 200,
    seed: int = 1,
    aliases: Path | None = None,
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> VariantBackground:
    """Score random variants of a genome by type, and store the sizes of their effects with a model.

    Parameters
    ----------
    path, output
        The directory of a chromatin, promoter or pretrained model; a directory for a copy of it, or None:
        change `path` itself.
    reference, aliases
        The genome (indexed FASTA), and other names of its contigs.
    contigs
        Contigs of the random variants; (): all.
    per_type, seed
        Number of random variants of each type (`calibration.variant_background`), and seed of their draw.
    batch_size, device, threads
        As for `score_variants`, which scores them with the usual options.

    Raises
    ------
    UsageError, DataError, ModelError
        As for `score_variants`; no variant of any type can be drawn or scored.
    """
    check_at_least_one(
        {"per_type": per_type, "batch_size": batch_size, "threads": threads}
    )
    found = find_target(path, output)
    if found.is_file():
        raise UsageError(
            f"{found}: a file cannot store a background; give a model directory"
        )
    if output is not None:
        check_directory(output, [found, reference, *([aliases] if aliases else [])])
    usual = (None, (), None, aliases, None, None, None, None, None, None)
    scorer = VariantScorer(found, "random variants", 0.25, False, reference, *usual)
    model, predict = scorer.load(batch_size=batch_size, device=device)
    sizes: defaultdict[str, list[Floats]] = defaultdict(list)
    computing = inference("float32", choose_device(device))
    with cpu_threads(threads), computing, Reference(reference, aliases) as genome:
        InputCheck(model, genome.path).read(genome)
        places = find_places(
            contig_names(contigs), None, genome.contigs, genome.path, genome.names
        )
        chosen = [name for name in genome.contigs if places is None or places.on(name)]
        kind, options = scorer.effects(model, genome)
        drawn = background_variants(
            genome, chosen, per_type, np.random.default_rng(seed)
        )
        records = (
            VcfRecord(0, one.contig, one.start, one.ref, (one.alt,), (one.contig,), "")
            for one in drawn
        )
        scored = progress(
            score_records(records, genome, kind, predict),
            "scoring",
            len(drawn),
            "variants",
        )
        for change, (_, (effect,)) in zip(drawn, scored, strict=True):
            if effect.delta is not None:
                sizes[str(variant_type(change))].append(np.atleast_1d(effect.delta))
    if not sizes:
        raise DataError(
            f"{reference}: no random variant can be scored on {shown(chosen)}"
        )
    names = kind.names if isinstance(kind, TrackEffects) else ()
    name = printable(genome.path.name).replace('"', "'")  # of a header line
    drawn_from = {
        "reference": name,
        "contigs": chosen,
        "per_type": per_type,
        "seed": seed,
    }
    made = _background(
        sizes, names, {"fitted_on": drawn_from, "options": stored_options(options)}
    )
    with changed_file(found, FILE, output) as place:
        write_calibration(place, made, model.sha256)
    return made


def _background(
    found: Mapping[str, Sequence[Floats]],
    names: Sequence[str],
    origin: Mapping[str, Any],
) -> VariantBackground:
    """Return the background of effects (T,) of random variants by type, on the tracks `names`."""

    def ordered(values: Iterable[float]) -> tuple[float, ...]:
        return tuple(sorted(map(effect_size, values)))

    largest = {
        type: ordered(np.abs(own).max(axis=1).tolist()) for type, own in found.items()
    }
    shown_tracks = names if len(names) <= MOST_TRACKS else ()
    tracks = {
        type: {
            name: ordered(one[number] for one in own)
            for number, name in enumerate(shown_tracks)
        }
        for type, own in found.items()
        if shown_tracks
    }
    return VariantBackground(**origin, largest=largest, tracks=tracks)


def background_variants(
    reference: Reference,
    contigs: Sequence[str],
    per_type: int,
    rng: np.random.Generator,
) -> list[Change]:
    """Draw distinct random variants of every type of `TYPES` on contigs, in normal form.

    Every position has the same chance, and every alternative base. Inserted bases are those of the genome at
    another random position. Fewer than `per_type` variants are drawn of a type that is rare on the contigs.
    """
    found: list[Change] = []
    for shape, types in TYPES.items():
        drawn: dict[str, dict[Change, None]] = {type: {} for type in types}
        for change in islice(
            _anywhere(reference, contigs, shape, rng), _TRIES * per_type
        ):
            if change is None or (own := drawn.get(variant_type(change) or "")) is None:
                continue
            if len(own) < per_type:
                own[change] = None
            elif all(len(some) == per_type for some in drawn.values()):
                break
        found += [change for own in drawn.values() for change in own]
    return found


def _anywhere(
    reference: Reference, contigs: Sequence[str], shape: Shape, rng: np.random.Generator
) -> Iterator[Change | None]:
    """Yield random variants of a shape; None for N, and for positions too near the end of a contig."""
    action, low, high = shape
    ends = np.cumsum([reference.contigs[name] for name in contigs])

    def bases(size: int) -> tuple[str, int, str]:
        place = int(rng.integers(ends[-1]))
        number = int(np.searchsorted(ends, place, "right"))
        start = place - int(ends[number - 1] if number else 0)
        return (
            contigs[number],
            start,
            reference.fetch(Interval(contigs[number], start, start + size)),
        )

    while True:
        size = int(rng.integers(low, high, endpoint=True))
        contig, start, ref = bases(size)
        alt = ""
        if action == "substitution":
            turns = rng.integers(1, 4, size=size).tolist()
            codes = map("ACGT".find, ref)
            alt = "".join(
                "ACGT"[(code + turn) % 4]
                for code, turn in zip(codes, turns, strict=True)
            )
        elif action == "insertion":
            ref, alt = "", bases(size)[2]
        change = find_change(contig, start, ref, alt, reference)
        yield change if isinstance(change, Change) else None
