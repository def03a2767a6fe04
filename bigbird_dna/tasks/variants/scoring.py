"""Effects of variants on tracks or promoters: `bigbird_dna.score_variants` and the command of that name."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, NamedTuple

from bigbird_dna.checks import check_at_least_one, check_choice, check_fraction, check_whole
from bigbird_dna.console import log, progress
from bigbird_dna.disk.outputs import (
    Destination,
    check_output,
    command_line,
    format_for,
    is_live,
    named_output,
    provenance,
)
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.assembly import ALIAS_HINT, shown
from bigbird_dna.genome.compression import STDIN, open_stdin
from bigbird_dna.genome.fasta import readable
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.region_filter import contig_names, find_places
from bigbird_dna.genome.variants import OFFSET_SPAN, Note, contig_finder
from bigbird_dna.genome.vcf import Keep, VcfRecord, VcfSummary, contig_lines, open_vcf, scan_vcf
from bigbird_dna.model.inference import PRECISIONS, choose_device, cpu_threads, inference, said_precision
from bigbird_dna.model.model import Model
from bigbird_dna.model.promoter import PromoterModel
from bigbird_dna.pieces import Piece, contents, find_piece
from bigbird_dna.tasks.formats import VARIANT_FORMATS
from bigbird_dna.tasks.predictor import Predictor, flushing
from bigbird_dna.tasks.provenance import model_files
from bigbird_dna.tasks.variants.effects import ScoredRecord
from bigbird_dna.tasks.variants.engines import Engine, choose_engine, load_scoring_model
from bigbird_dna.tasks.variants.output import variant_output
from bigbird_dna.tasks.variants.promoter_effects import NO_SITE, PromoterRecord
from bigbird_dna.tasks.variants.record_pieces import write_variant_piece
from bigbird_dna.tasks.variants.writers import WRITERS, VariantInfo

_SHOWN = 5  # names in a message


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
    contigs: Sequence[str] | str = (),
    regions: Path | str | None = None,
    aliases: Path | str | None = None,
    format: str | None = None,
    offsets: int | None = None,
    stride: int | None = None,
    sites: Path | str | None = None,
    max_n: float = 0.25,
    calibrated: bool = False,
    prior: float | None = None,
    piece: str | None = None,
    precision: str = "float32",
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
        File to write, whole or not at all (None or "-": standard output, as a pipe or a device to which
        records go as they are made), as "vcf" or "tsv" (None: by its ending, or vcf); `.gz` makes it bgzip,
        with an index if the input is sorted. Through a link both are where it leads to. See docs/formats.md.
    tracks
        Tracks, groups or shell patterns: only these count, and the values of each are written. None: all
        count, only the largest effect is written.
    contigs, regions
        Only the records of these, by any name that their assembly knows; only those whose REF shares a base
        with the regions of a BED file. Together: what lies in both.
    aliases
        File of contigs' other names, where the VCF's are not the reference's (see docs/formats.md).
    offsets
        Of chromatin models: windows that are averaged over, spread over the length of a few tokens, each on
        both strands; None: 4.
    stride, sites
        Of promoter models: bp between the TSS positions that are looked at around a variant (None: 20); or a
        BED file of those to look at, each the first base of its line on its strand. The one with the largest
        change is written.
    max_n
        Alleles with a larger fraction of N in a window are listed, but not scored.
    calibrated, prior
        Changes are of the probabilities after the model's calibration; of promoter models shifted to the
        share `prior` of promoters among the windows.
    piece
        "3/8": the third of eight pieces with as many records each, for `merge_pieces`; `output` is its file,
        whose ending says nothing. None: all records.
    precision
        What the model computes in: float32, bfloat16, or float16 (GPUs). The last two are faster where the
        device has them, and less exact; what is written says so.
    batch_size, device, threads
        Windows run together; auto, cpu or cuda; CPU threads. They change speed and memory only.

    Raises
    ------
    UsageError, DataError, ModelError
        An argument is out of its range, or an option is not of the model's kind; a file can't be read (the
        text names the line); the reference has none of the contigs of the records, of `contigs` or
        `regions`; there is no chromatin or promoter model, or its weights are damaged.
    """
    output = named_output(output)
    check_output(output, [model, vcf, reference, regions, aliases, sites])
    check_at_least_one({"batch_size": batch_size, "threads": threads})
    part = find_piece(piece, output)
    chosen = format or format_for(None if part else output, VARIANT_FORMATS, "vcf")
    request = _Request(
        output, chosen, tracks, contig_names(contigs), regions, offsets, max_n, part, precision
    )
    computing = inference(precision, choose_device(device))
    engine = choose_engine(
        load_scoring_model(model), tracks, offsets, stride, sites, calibrated=calibrated, prior=prior
    )
    predict = engine.predictor(batch_size, device)
    names = None if aliases is None else Path(aliases)
    with (
        Reference(Path(reference), names) as genome,
        cpu_threads(threads),
        computing,
        _source(vcf, output) as (path, stream),
    ):
        return request.run(engine, vcf, path, stream, genome, predict)


@dataclass(frozen=True)
class _Request:
    """What is scored, and where the effects go."""

    output: Path | None
    format: str
    tracks: str | None
    contigs: tuple[str, ...]
    regions: Path | str | None
    offsets: int | None
    max_n: float
    piece: Piece | None
    precision: str

    def __post_init__(self) -> None:
        check_choice("format", self.format, VARIANT_FORMATS)
        if self.offsets is not None:
            check_whole("offsets", self.offsets)
            if not 1 <= self.offsets <= OFFSET_SPAN + 1:
                raise UsageError(f"offsets {self.offsets}: must be from 1 to {OFFSET_SPAN + 1}")
        check_fraction("max_n", self.max_n)
        check_choice("precision", self.precision, PRECISIONS)
        if self.output is not None and self.output.suffix == ".bcf":
            raise UsageError(f"{self.output}: BCF isn't written; name a .vcf.gz")

    def run(
        self,
        engine: Engine,
        vcf: Path | str,
        path: Path,
        stream: IO[bytes] | None,
        reference: Reference,
        predict: Predictor,
    ) -> VariantCounts:
        """Score the records of `path`, which is `vcf` or came from standard input, or those of `stream`."""
        origin = provenance(engine.model.sha256, self._command(engine, vcf, reference))
        keep = self._keep(reference)
        fit = _Fit(path, reference)
        summary = None
        if stream is None:
            summary = scan_vcf(path, keep)
            fit.add(summary.contigs)
            fit.check()
        numbers = None if self.piece is None or summary is None else self.piece.rows(summary.records)
        counts: Counter[str] = Counter()
        with self._target(summary) as target, open_vcf(path, keep, stream) as opened:
            records, expected = opened.records, summary and summary.records
            if numbers is not None:
                records, expected = islice(records, numbers.start, numbers.stop), len(numbers)
            ask = predict if target is None else flushing(predict, target)
            scored = engine.effects(fit.watched(records), reference, ask, self.max_n)
            rows = _counted(progress(scored, "scoring", expected, "records"), counts)
            if summary is None:  # the header has the names of the records that the first row waited for
                rows = chain(list(islice(rows, 1)), rows)
            used = summary.contigs if summary else fit.names
            info = VariantInfo(
                opened.meta,
                opened.column_line,
                origin,
                engine.tracks,
                per_track=self.tracks is not None,
                promoters=isinstance(engine.model, PromoterModel),
                contigs=contig_lines(opened.meta, reference.contigs, used, fit.find),
            )
            if target is not None:
                WRITERS[self.format](target, rows, info)
            elif self.piece is not None and self.output is not None and summary is not None:
                content = self._content(engine, vcf, path, reference)
                write_variant_piece(self.output, self.piece, rows, info, self.format, summary, content)
        if keep is not None and not (summary.records if summary else counts["records"]):
            log(f"warning: {vcf}: no records there")
        notes = {note: counts[note] for note in (*Note, NO_SITE) if counts[note]}
        return VariantCounts(counts["records"], counts["scored"], counts["not scored"], notes)

    def _target(self, summary: VcfSummary | None) -> AbstractContextManager[Destination | None]:
        """Where the result is written to; None for a piece, which is no result yet."""
        return nullcontext() if self.piece else variant_output(self.output, self.format, summary)

    def _content(self, engine: Engine, vcf: Path | str, path: Path, reference: Reference) -> dict[str, str]:
        """Checksums of all files that decide the result."""
        files = path, reference.path, reference.aliases, self.regions, engine.sites
        named = {path: "standard input" if str(vcf) == "-" else str(vcf)}
        return contents(*files, *model_files(engine.model, engine.calibration is not None), names=named)

    def _keep(self, reference: Reference) -> Keep | None:
        """Whether a record lies where it was asked for; None: all do."""
        places = find_places(self.contigs, self.regions, reference.contigs, reference.path, reference.names)
        if places is None:
            return None
        return lambda record: places.overlaps(record.contig, record.start, record.start + len(record.ref))

    def _command(self, engine: Engine, vcf: Path | str, reference: Reference) -> str:
        options: dict[str, object | None] = {
            "--reference": reference.path,
            "--aliases": reference.aliases,
            "--tracks": self.tracks,
            "--contig": list(self.contigs),
            "--regions": self.regions,
        }
        options |= {"--format": self.format, **engine.options, "--max-n": self.max_n}
        options |= said_precision(self.precision)
        flags = {"--calibrated": engine.calibration is not None}
        return command_line("score-variants", [engine.model.path, vcf], options, flags)


@contextmanager
def _source(vcf: Path | str, output: Path | None) -> Iterator[tuple[Path, IO[bytes] | None]]:
    """The file of records, or what comes in by standard input, if it goes out as it comes."""
    if str(vcf) == "-" and is_live(output):
        with open_stdin() as stream:
            yield STDIN, stream
        return
    with readable(vcf) as path:
        yield path, None


class _Fit:
    """Whether the reference has the contig of any record."""

    def __init__(self, path: Path, reference: Reference) -> None:
        self.find: Callable[[str], str | None] = contig_finder(reference.contigs, reference.names)
        self.names: dict[str, None] = {}
        """Of the contigs of the records that were watched, in their order."""
        self._path, self._reference = path, reference
        self._unknown: dict[str, None] = {}
        self._fits = False

    def add(self, contigs: Iterable[str]) -> None:
        """Take up the contigs of records."""
        for contig in contigs:
            if self.find(contig) is not None:
                self._fits = True
            elif len(self._unknown) < _SHOWN:
                self._unknown[contig] = None

    def watched(self, records: Iterable[VcfRecord]) -> Iterator[VcfRecord]:
        """The same records; `DataError` at their end if there were any, and the reference has no contig of
        theirs."""
        for record in records:
            if record.contig not in self.names:
                self.names[record.contig] = None
                self.add([record.contig])
            yield record
        self.check()

    def check(self) -> None:
        """`DataError` as of `watched`, of what was taken up."""
        if self._unknown and not self._fits:
            raise DataError(
                f"{self._path}: none of its contigs ({shown(self._unknown)}) is in "
                f"{self._reference.path} ({shown(self._reference.contigs)}); {ALIAS_HINT}"
            )


def _counted(
    scored: Iterable[ScoredRecord | PromoterRecord], counts: Counter[str]
) -> Iterator[ScoredRecord | PromoterRecord]:
    for row in scored:
        counts["records"] += 1
        for effect in row.effects:
            counts["not scored" if effect.delta is None else "scored"] += 1
            counts.update(effect.notes)
        yield row
