"""Effects of variants on tracks or promoters: `bigbird_dna.score_variants` and the command of that name."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from bigbird_dna.console import log, progress
from bigbird_dna.disk.outputs import Destination, command_line, provenance
from bigbird_dna.disk.shards import contents
from bigbird_dna.errors import (
    DataError,
    ModelError,
    UsageError,
    check_at_least_one,
    check_fraction,
    check_whole,
)
from bigbird_dna.genome.assembly import ALIAS_HINT, shown
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.region_filter import contig_names, find_places
from bigbird_dna.genome.variants import OFFSET_SPAN, Note, contig_finder
from bigbird_dna.genome.vcf import Keep, VcfRecord, contig_lines, open_vcf, scan_vcf
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.directory import load
from bigbird_dna.model.inference import said_precision
from bigbird_dna.model.model import LoadedModel, calibration_of, check_calibrated
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.model.shared_windows import Predictor
from bigbird_dna.scoring.alleles import LAYOUTS, Engine, ScoredRecord, VcfHead
from bigbird_dna.scoring.formats import VARIANT_FORMATS, Formats, indexed_destination, write_lines
from bigbird_dna.scoring.scorer import (
    ComputeOptions,
    Job,
    Output,
    OutputHeader,
    Scorer,
    Target,
    Writer,
    merge_rows,
    open_source,
    write_scores,
)
from bigbird_dna.scoring.variant_effects import TrackEngine, offsets_for
from bigbird_dna.scoring.variant_sites import NO_SITE, STRIDE, SiteEngine
from bigbird_dna.training.initialization import model_files

OFFSETS = 4
"""Windows that effects on tracks are averaged over."""

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
        "3/8": the third of eight pieces with as many records each, for `merge_shards`; `output` is its file,
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
    scorer = VariantScorer(
        model,
        vcf,
        reference,
        tracks,
        contig_names(contigs),
        regions,
        None if aliases is None else Path(aliases),
        offsets,
        stride,
        sites,
        max_n,
        calibrated,
        prior,
    )
    compute = ComputeOptions(precision, batch_size, device, threads)
    counts = write_scores(scorer, Output(output, format, piece), compute)
    notes = {note: counts[note] for note in (*Note, NO_SITE) if counts[note]}
    return VariantCounts(counts["records"], counts["scored"], counts["not scored"], notes)


class EffectLines(NamedTuple):
    """The lines of a record in a format; `effects` are what they say, None where they were read from a
    shard."""

    lines: Sequence[str]
    scored: ScoredRecord[Any] | None = None


def _write(path: Destination, rows: Iterable[EffectLines], header: OutputHeader) -> None:
    """Write the header's lines, which those of a stream are once the first row was made, and the rows'."""
    upcoming = iter(rows)
    first = [] if header.extra["lines"] else list(islice(upcoming, 1))
    lines = (line for row in chain(first, upcoming) for line in row.lines)
    write_lines(path, chain(header.extra["lines"], lines), "surrogateescape")


@dataclass(frozen=True)
class VariantScorer(Scorer[Engine, EffectLines]):
    """The records of a VCF; see `score_variants`. Shards have lines as they are in the result."""

    kind: ClassVar[str] = "effects of variants"
    formats: ClassVar[Formats] = VARIANT_FORMATS
    default_format: ClassVar[str] = "vcf"
    writers: ClassVar[Mapping[str, Writer[Any]]] = dict.fromkeys(VARIANT_FORMATS, _write)

    model: LoadedModel | Path | str
    vcf: Path | str
    reference: Path | str
    tracks: str | None
    contigs: tuple[str, ...]
    regions: Path | str | None
    aliases: Path | None
    offsets: int | None
    stride: int | None
    sites: Path | str | None
    max_n: float
    calibrated: bool
    prior: float | None

    def inputs(self) -> Sequence[object]:
        return self.model, self.vcf, self.reference, self.regions, self.aliases, self.sites

    def check(self, target: Target) -> None:
        if self.offsets is not None:
            check_whole("offsets", self.offsets)
            if not 1 <= self.offsets <= OFFSET_SPAN + 1:
                raise UsageError(f"offsets {self.offsets}: must be from 1 to {OFFSET_SPAN + 1}")
        check_fraction("max_n", self.max_n)
        if target.output is not None and target.output.suffix == ".bcf":
            raise UsageError(f"{target.output}: BCF isn't written; name a .vcf.gz")

    def load(self) -> Engine:
        """The model with the options of its kind; `UsageError` for one of the other kind."""
        model = load_scoring_model(self.model)
        check_calibrated(self.calibrated, self.prior)
        if isinstance(model, LoadedPromoterModel):
            _refuse(model, "a promoter model", {"tracks": self.tracks, "offsets": self.offsets})
            check_at_least_one({"stride": self.stride})
            if self.stride is not None and self.sites is not None:
                raise UsageError("stride and sites: sites that are given have no stride")
            step = STRIDE if self.stride is None else int(self.stride)
            path = None if self.sites is None else Path(self.sites)
            return SiteEngine(model, step, path, self.calibrated, self.prior)
        options = {"stride": self.stride, "sites": self.sites, "prior": self.prior}
        _refuse(model, "a chromatin model", options)
        offsets = offsets_for(OFFSETS if self.offsets is None else self.offsets, model.settings.window)
        calibration = calibration_of(model) if self.calibrated else None
        columns = model.columns(self.tracks)
        return TrackEngine(model, columns, offsets, self.tracks is not None, calibration)

    def predictor(self, model: Engine, batch_size: int, device: str) -> Predictor:
        return model.predictor(batch_size, device)

    @contextmanager
    def open(self, model: Engine, target: Target) -> Iterator[Job[EffectLines]]:
        with (
            Reference(Path(self.reference), self.aliases) as reference,
            open_source(self.vcf, target) as (path, stream),
        ):
            keep = self._keep(reference)
            fit = _Fit(path, reference)
            summary = None
            if stream is None:  # faults are known before any work is done
                summary = scan_vcf(path, keep)
                fit.add(summary.contigs)
                fit.check()
            origin = provenance(model.model.sha256, self._command(model, reference, target))
            layout, fields = LAYOUTS[target.format], model.fields
            with open_vcf(path, keep, stream) as opened:

                def head(used: Iterable[str]) -> list[str]:
                    declared = contig_lines(opened.meta, reference.contigs, used, fit.find)
                    head = VcfHead(opened.meta, opened.column_line, origin, declared)
                    return list(layout.header(head, fields))

                # That of a stream has the names of the records that the first row waited for.
                lines = head(summary.contigs) if summary else []
                furthest = summary.furthest if summary is not None and summary.is_sorted else None
                header = OutputHeader(origin, extra={"lines": lines, "furthest": furthest})

                def rows(predict: Predictor, numbers: range | None) -> Iterator[EffectLines]:
                    records, expected = opened.records, summary and summary.records
                    if numbers is not None:
                        records, expected = islice(records, numbers.start, numbers.stop), len(numbers)
                    effects = model.effects(fit.watched(records), reference, predict, self.max_n)
                    scored = progress(effects, "scoring", expected, "records")
                    if summary is None:
                        scored = chain(list(islice(scored, 1)), scored)
                        lines.extend(head(fit.names))
                    for record in scored:
                        yield EffectLines(layout.lines(record, fields), record)

                job = Job(
                    header,
                    lambda: self._content(model, path, reference),
                    lambda: summary.records if summary else 0,
                    rows,
                )
                yield job
            if keep is not None and not (summary.records if summary else job.counts["records"]):
                log(f"warning: {self.vcf}: no records there")

    def _content(self, model: Engine, path: Path, reference: Reference) -> dict[str, str]:
        """Checksums of all files that decide the result."""
        files = path, reference.path, reference.aliases, self.regions, *model.files
        named = {path: "standard input" if str(self.vcf) == "-" else str(self.vcf)}
        return contents(*files, *model_files(model.model, self.calibrated), names=named)

    def _keep(self, reference: Reference) -> Keep | None:
        """Whether a record lies where it was asked for; None: all do."""
        places = find_places(self.contigs, self.regions, reference.contigs, reference.path, reference.names)
        if places is None:
            return None
        return lambda record: places.overlaps(record.contig, record.start, record.start + len(record.ref))

    def _command(self, model: Engine, reference: Reference, target: Target) -> str:
        options: dict[str, object | None] = {
            "--reference": reference.path,
            "--aliases": reference.aliases,
            "--tracks": self.tracks,
            "--contig": list(self.contigs),
            "--regions": self.regions,
        }
        options |= {"--format": target.format, **model.options, "--max-n": self.max_n}
        options |= said_precision(target.precision)
        flags = {"--calibrated": self.calibrated}
        return command_line("score-variants", [model.model.path, self.vcf], options, flags)

    def count(self, row: EffectLines, counts: Counter[str]) -> None:
        counts["records"] += 1
        for effect in row.scored.effects if row.scored else ():
            counts["not scored" if effect.delta is None else "scored"] += 1
            counts.update(effect.notes)

    @staticmethod
    def lines(row: EffectLines) -> Iterable[str]:
        return row.lines

    @staticmethod
    def parse(line: str, header: OutputHeader) -> EffectLines:
        return EffectLines((line,))

    @staticmethod
    def destination(
        output: Path | None, format: str, header: OutputHeader
    ) -> AbstractContextManager[Destination]:
        return indexed_destination(output, format, header.extra["furthest"])


def load_scoring_model(model: LoadedModel | Path | str) -> LoadedPromoterModel | LoadedChromatinModel:
    """`load` a model that `score-variants` takes, or take one; `ModelError` if it is of another task."""
    opened = model if isinstance(model, LoadedModel) else load(model)
    if isinstance(opened, LoadedPromoterModel | LoadedChromatinModel):
        return opened
    raise ModelError(f"{opened.name}: a chromatin or promoter model is needed, this is a {opened.task} model")


def _refuse(model: LoadedModel, kind: str, options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} {value}: {model.name} is {kind}, which has no such option")


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


merge = partial(merge_rows, VariantScorer)
"""The result of all shards of records."""
