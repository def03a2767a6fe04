"""Effects of variants on tracks or promoters: `bigbird_dna.score_variants` and the command of that name."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.checks import check_at_least_one, check_choice, check_fraction
from bigbird_dna.console import log, progress
from bigbird_dna.errors import UsageError
from bigbird_dna.files import atomic_path
from bigbird_dna.genome.fasta import readable
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.variants import OFFSET_SPAN, Note
from bigbird_dna.genome.vcf import VcfSummary, open_vcf, scan_vcf
from bigbird_dna.model.device import choose_device, cpu_threads
from bigbird_dna.model.model import Model
from bigbird_dna.model.promoter_model import PromoterModel
from bigbird_dna.outputs import (
    check_output,
    command_line,
    destination,
    format_for,
    is_special,
    named_output,
    provenance,
)
from bigbird_dna.tasks.formats import VARIANT_FORMATS
from bigbird_dna.tasks.predictor import Predictor
from bigbird_dna.tasks.variants.effects import ScoredRecord
from bigbird_dna.tasks.variants.engines import Engine, choose_engine, load_scoring_model
from bigbird_dna.tasks.variants.promoter_effects import NO_SITE, PromoterRecord
from bigbird_dna.tasks.variants.writers import WRITERS, VariantInfo, write_index

TBI_REACH = 2**29  # bp, the furthest position a `.tbi` index can hold


class VariantCounts(NamedTuple):
    """Records read, alternative alleles scored and not, and how often each note was given."""

    records: int
    scored: int
    not_scored: int
    notes: dict[str, int]

    @property
    def seem_foreign(self) -> bool:
        """Whether most alleles don't fit the reference, as of another assembly."""
        foreign = (Note.REF_MISMATCH, Note.CONTIG_UNKNOWN, Note.BEYOND_CONTIG)
        return sum(self.notes.get(note, 0) for note in foreign) > self.scored


def score_variants(
    model: Model | Path | str,
    vcf: Path | str,
    reference: Path | str,
    output: Path | str | None = None,
    *,
    tracks: str | None = None,
    contigs: Sequence[str] = (),
    format: str | None = None,
    offsets: int | None = None,
    stride: int | None = None,
    sites: Path | str | None = None,
    max_n: float = 0.25,
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> VariantCounts:
    """Write how the variants of a VCF change the probabilities of tracks, or of promoters (ALT minus REF).

    Parameters
    ----------
    model, vcf, reference
        A chromatin or promoter model, or its directory; VCF, plain, gzip or bgzip, "-": standard input; its
        indexed FASTA.
    output, format
        File to write, whole or not at all (None or "-": standard output), as "vcf" or "tsv" (None: by its
        ending, or vcf); `.gz` makes it bgzip, with an index if the input is sorted. See docs/formats.md.
    tracks
        Tracks, groups or shell patterns: only these count, and the values of each are written. None: all
        count, only the largest effect is written.
    contigs
        Only the records of these, named as in the VCF; none: all.
    offsets
        Of chromatin models: windows that are averaged over, spread over the length of a few tokens, each on
        both strands; None: 4.
    stride, sites
        Of promoter models: bp between the TSS positions that are looked at around a variant (None: 20); or a
        BED file of those to look at, each the first base of its line on its strand. The one with the largest
        change is written.
    max_n
        Alleles with a larger fraction of N in a window are listed, but not scored.
    batch_size, device, threads
        Windows run together; auto, cpu or cuda; CPU threads. They change speed and memory only.

    Raises
    ------
    UsageError, DataError, ModelError
        An argument is out of its range; a file can't be read (the text names the line); there is no
        chromatin or promoter model, or its weights are damaged; or an option is not of its kind.
    """
    output = named_output(output)
    chosen = format or format_for(output, VARIANT_FORMATS, "vcf")
    request = _Request(output, chosen, tracks, tuple(contigs), offsets, max_n)
    check_at_least_one({"batch_size": batch_size, "threads": threads})
    check_output(output, [model, vcf, reference, sites])
    choose_device(device)
    engine = choose_engine(load_scoring_model(model), tracks, offsets, stride, sites)
    predict = engine.predictor(batch_size, device)
    with readable(vcf) as path, Reference(Path(reference)) as genome, cpu_threads(threads):
        return request.run(engine, vcf, path, genome, predict)


@dataclass(frozen=True)
class _Request:
    """What is scored, and where the effects go."""

    output: Path | None
    format: str
    tracks: str | None
    contigs: tuple[str, ...]
    offsets: int | None
    max_n: float

    def __post_init__(self) -> None:
        check_choice("format", self.format, VARIANT_FORMATS)
        if self.offsets is not None and not 1 <= self.offsets <= OFFSET_SPAN + 1:
            raise UsageError(f"offsets {self.offsets}: must be from 1 to {OFFSET_SPAN + 1}")
        check_fraction("max_n", self.max_n)
        if self.output is not None and self.output.suffix == ".bcf":
            raise UsageError(f"{self.output}: BCF isn't written; name a .vcf.gz")

    def run(
        self, engine: Engine, vcf: Path | str, path: Path, reference: Reference, predict: Predictor
    ) -> VariantCounts:
        """Score the records of `path`, which is `vcf` or what came from standard input."""
        model = engine.model
        options: dict[str, object] = {
            "--reference": reference.path,
            "--tracks": self.tracks,
            "--contig": list(self.contigs),
        }
        options |= {"--format": self.format, **engine.options, "--max-n": self.max_n}
        origin = provenance(model.sha256, command_line("score-variants", [model.path, vcf], options))
        summary = scan_vcf(path, self.contigs)
        if self.contigs and not summary.records:
            log(f"warning: {vcf}: no records on {', '.join(self.contigs)}")
        counts: Counter[str] = Counter()
        with self._outputs(summary) as temporary, open_vcf(path, self.contigs) as opened:
            scored = engine.effects(opened.records, reference, predict, self.max_n)
            info = VariantInfo(
                opened.meta,
                opened.column_line,
                origin,
                engine.tracks,
                per_track=self.tracks is not None,
                promoters=isinstance(model, PromoterModel),
            )
            shown = progress(scored, "scoring", summary.records)
            WRITERS[self.format](temporary, _counted(shown, counts), info)
        notes = {note: counts[note] for note in (*Note, NO_SITE) if counts[note]}
        return VariantCounts(summary.records, counts["scored"], counts["not scored"], notes)

    @contextmanager
    def _outputs(self, summary: VcfSummary) -> Iterator[Path]:
        """A path to write to; the output appears with its index, and without that of a former file."""
        output = self.output
        is_bgzip = output is not None and output.suffix == ".gz" and not is_special(output)
        index = None
        if is_bgzip and summary.is_sorted:
            index = Path(f"{output}.tbi" if summary.furthest < TBI_REACH else f"{output}.csi")
        with ExitStack() as outputs:
            temporary = outputs.enter_context(destination(output, self.format))
            temporary_index = outputs.enter_context(atomic_path(index)) if index else None
            yield temporary
            if temporary_index is not None:
                write_index(temporary, temporary_index, self.format)
        for path in (Path(f"{output}.tbi"), Path(f"{output}.csi")) if is_bgzip else ():
            if path != index:
                path.unlink(missing_ok=True)  # readers would trust it


def _counted(
    scored: Iterable[ScoredRecord | PromoterRecord], counts: Counter[str]
) -> Iterator[ScoredRecord | PromoterRecord]:
    for row in scored:
        for effect in row.effects:
            counts["not scored" if effect.delta is None else "scored"] += 1
            counts.update(effect.notes)
        yield row
