"""Effects of variants on tracks or promoters, or their likelihood: the command `score-variants`, which is
`bigbird_dna.score_variants` in Python.

The output is the input VCF with additional INFO keys, or a TSV table.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from bigbird_dna.baselines.kmer_model import read_kmer_model
from bigbird_dna.console import log, progress
from bigbird_dna.disk.outputs import Destination
from bigbird_dna.errors import (
    DataError,
    ModelError,
    UsageError,
    check_at_least_one,
    check_fraction,
)
from bigbird_dna.genome.intervals import contig_names, find_places
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.variants import (
    Keep,
    Note,
    VcfFile,
    VcfRecord,
    contig_lines,
    open_vcf,
    same_assembly,
    scan_vcf,
)
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.directory import load
from bigbird_dna.model.model import LoadedModel, Predictor, check_calibrated
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.scoring.background import background_file, with_quantiles
from bigbird_dna.scoring.formats import (
    VARIANT_FORMATS,
    OutputHeader,
    indexed_destination,
    write_lines,
)
from bigbird_dna.scoring.haplotypes import sample_column, with_haplotypes
from bigbird_dna.scoring.masked_likelihood import (
    CONTEXT,
    LikelihoodEffects,
    likelihood_effects,
    masked_log_likelihoods,
)
from bigbird_dna.scoring.regions import Fit, tss_sites
from bigbird_dna.scoring.scorer import (
    InputCheck,
    Job,
    Scorer,
    Target,
    calibrated_predictor,
    open_source,
    write_scores,
)
from bigbird_dna.scoring.start_site_effects import StartSiteEffects
from bigbird_dna.scoring.track_effects import OFFSETS, track_effects
from bigbird_dna.scoring.variant_effects import (
    LAYOUTS,
    EffectKind,
    check_offsets,
    refuse,
    score_records,
)
from bigbird_dna.scoring.variant_sites import NO_SITE, STRIDE, SiteEffects, TssSites
from bigbird_dna.scoring.window_source import scan_predictor

ScoringModel = LoadedModel
"""A chromatin or promoter model, or a pretrained one."""


class VariantCounts(NamedTuple):
    """Number of records, of alternative alleles scored and not scored, and of occurrences of each note."""

    records: int
    scored: int
    not_scored: int
    notes: dict[str, int]

    @property
    def seem_foreign(self) -> bool:
        """Whether most alleles do not match the reference, e.g. because of another assembly."""
        foreign = (Note.REF_MISMATCH, Note.CONTIG_UNKNOWN, Note.BEYOND_CONTIG)
        return sum(self.notes.get(note, 0) for note in foreign) > self.scored


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
    shard: str | None = None,
    precision: str = "auto",
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> VariantCounts:
    """Write how the variants of a VCF change the probabilities of tracks, or of promoters (ALT minus REF).

    With a model of start sites, such as `yeast-promoters`, write the largest change of a start site around
    the variant. With a pretrained model, write the log-ratio of the likelihoods of ALT and REF in their
    context (`scoring.masked_likelihood`). If it has a background (`add_background`), also write the fraction
    of random variants of the same type with a smaller absolute effect.

    Parameters
    ----------
    model, vcf, reference
        A chromatin, promoter or pretrained model, or its directory, or the file of a k-mer baseline (`.npz`);
        a VCF (plain, gzip or bgzip), or "-" for standard input; the indexed FASTA of the VCF.
    output, format
        File to write atomically, as "vcf" or "tsv" (None: by its extension, or vcf). None or "-": standard
        output; a pipe or device receives records as they are computed. `.gz` means bgzip, with an index if
        the input is sorted. Links are followed. See docs/files/variants.md.
    tracks
        Chromatin models only: tracks, groups or shell patterns. Only these are considered, and the values of
        each are written. None: all tracks are considered, and only the largest effect is written.
    top_tracks
        Chromatin models only: write the probabilities of this number of tracks with the largest effects.
    contigs, regions
        Only records on these contigs, by any name in the assembly's table of names; only records whose REF
        overlaps the regions of a BED file. If both are given, records must satisfy both.
    aliases
        File of alternative contig names, if the VCF uses other names (docs/files/reference.md).
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
        `prepare_promoters` (docs/files/promoters.md), in which lines of BED may lack a strand. The position
        with the largest change is written.
    max_n
        Alleles with a larger fraction of N in a window are listed, but not scored.
    calibrated, prior
        Report changes of calibrated probabilities; for models of single windows, `prior` adjusts them to this
        prevalence of promoters among the windows.
    shard, precision, batch_size, device, threads
        As for `score_promoters`; all shards have the same number of records.

    Raises
    ------
    UsageError, DataError, ModelError
        An argument is out of range, or an option does not apply to the model; a file cannot be read (the
        message names the line); the reference has none of the contigs of the records, of `contigs` or of
        `regions`; the model is none of these, or causal, or its weights are damaged.
    """
    names = None if aliases is None else Path(aliases)
    own = (
        tracks,
        contig_names(contigs),
        regions,
        names,
        offsets,
        context,
        phased,
        stride,
        sites,
        prior,
    )
    scorer = VariantScorer(model, vcf, max_n, calibrated, reference, *own, top_tracks)
    counts = write_scores(
        scorer, output, format, shard, precision, batch_size, device, threads
    )
    notes = {note: counts[note] for note in (*Note, NO_SITE) if counts[note]}
    return VariantCounts(
        counts["records"], counts["scored"], counts["not scored"], notes
    )


class EffectLines(NamedTuple):
    """The output lines of a record, and the effects in them (empty for a line read from a shard)."""

    lines: Sequence[str]
    effects: Sequence[Any] = ()


def _write(
    path: Destination, rows: Iterable[EffectLines], header: OutputHeader
) -> None:
    """Write the header lines and the lines of the rows; a stream's header is complete after its first row."""
    upcoming = iter(rows)
    first = [] if header.extra["lines"] else list(islice(upcoming, 1))
    lines = (line for row in chain(first, upcoming) for line in row.lines)
    write_lines(path, chain(header.extra["lines"], lines), "surrogateescape")


@dataclass(frozen=True)
class VariantScorer(Scorer[ScoringModel, EffectLines]):
    """Records of a VCF; see `score_variants`. Shards contain the lines of the result."""

    kind = "effects of variants"
    narrow = False
    command = "score-variants"
    formats = VARIANT_FORMATS
    default_format = "vcf"
    writers = dict.fromkeys(VARIANT_FORMATS, _write)
    files = ("reference", "regions", "aliases", "sites")

    reference: Path | str
    tracks: str | None
    contigs: tuple[str, ...]
    regions: Path | str | None
    aliases: Path | None
    offsets: int | None
    context: int | None
    phased: str | None
    stride: int | None
    sites: Path | str | None
    prior: float | None
    top_tracks: int | None = None

    def check(self, target: Target) -> None:
        if self.offsets is not None:
            check_offsets(self.offsets)
        check_fraction("max_n", self.max_n)
        check_at_least_one({"top_tracks": self.top_tracks})
        if target.output is not None and target.output.suffix == ".bcf":
            raise UsageError(
                f"{target.output}: BCF output is not supported; use .vcf.gz"
            )

    def load(self, **computing: Any) -> tuple[ScoringModel, Predictor]:
        """Chromatin models predict single strands here; calibration is applied to averaged probabilities.

        The predictor of a pretrained model takes masked tokens.
        """
        model = load_scoring_model(self.model)
        check_calibrated(self.calibrated, self.prior)
        sites = {"stride": self.stride, "sites": self.sites, "prior": self.prior}
        tracks = {"tracks": self.tracks, "top_tracks": self.top_tracks}
        if isinstance(model, LoadedPromoterModel):
            options = {"offsets": self.offsets, "context": self.context}
            refuse(model, "a promoter model", {**tracks, **options})
            check_at_least_one({"stride": self.stride})
            if self.stride is not None and self.sites is not None:
                raise UsageError("stride and sites: give at most one of them")
            return model, calibrated_predictor(
                model, self.calibrated, self.prior, **computing
            )
        if isinstance(model, LoadedChromatinModel) and model.predicts_tss:
            options = {
                "offsets": self.offsets,
                "context": self.context,
                "stride": self.stride,
            }
            refuse(
                model,
                "a model of start sites",
                {**tracks, **options, "prior": self.prior},
            )
            return model, scan_predictor(model, self.calibrated, **computing)
        if isinstance(model, LoadedChromatinModel):
            refuse(model, "a chromatin model", {**sites, "context": self.context})
            self._on_tracks(model)
            return model, partial(
                model.window_probabilities, both_strands=False, **computing
            )
        refuse(model, "a pretrained model", {**tracks, **sites})
        refuse(model, "a pretrained model", {"calibrated": self.calibrated or None})
        self._on_likelihood(model)
        return model, partial(masked_log_likelihoods, model, **computing)

    def _on_likelihood(self, model: LoadedModel) -> LikelihoodEffects:
        context = CONTEXT if self.context is None else self.context
        return likelihood_effects(model, self.offsets or OFFSETS, context)

    def _on_tracks(self, model: LoadedChromatinModel) -> EffectKind[Any, Any]:
        options = (self.offsets or OFFSETS, self.calibrated, self.top_tracks or 0)
        return track_effects(model, self.tracks, *options)

    def effects(
        self, model: ScoringModel, reference: Reference
    ) -> tuple[EffectKind[Any, Any], dict[str, object]]:
        """Return the kind of effects, and the options that affect it for this kind of model."""
        offsets: dict[str, object] = {"--offsets": self.offsets or OFFSETS}
        if isinstance(model, LoadedChromatinModel):
            if model.predicts_tss:
                return StartSiteEffects.of(model, self._sites(reference)), {
                    "--tss": self.sites
                }
            return self._on_tracks(model), offsets
        if not isinstance(model, LoadedPromoterModel):
            likelihood = self._on_likelihood(model)
            return likelihood, {**offsets, "--context": likelihood.context}
        stride, sites = int(self.stride or STRIDE), self._sites(reference)
        own: dict[str, object] = (
            {"--stride": stride} if sites is None else {"--tss": self.sites}
        )
        kind = SiteEffects(
            model.settings.upstream, model.settings.downstream, stride, sites
        )
        return kind, {**own, "--prior": self.prior}

    def _sites(self, reference: Reference) -> TssSites | None:
        if self.sites is None:
            return None
        sites = tss_sites(Path(self.sites), reference)
        if not sites:
            raise DataError(f"{self.sites}: none of the sites is on {reference.path}")
        return sites

    @contextmanager
    def open(self, model: ScoringModel, target: Target) -> Iterator[Job[EffectLines]]:
        with (
            Reference(Path(self.reference), self.aliases) as reference,
            open_source(self.source, target) as (path, stream),
        ):
            InputCheck(model, reference.path).read(reference)
            keep = self._keep(reference)
            fit = Fit(path, reference)

            def checked(vcf: VcfFile) -> Iterator[VcfRecord]:
                return same_assembly(vcf, path, reference, fit.finder)

            summary = None
            if stream is None:  # check the whole file before any computation
                summary = scan_vcf(path, keep, checked)
                fit.check(summary.contigs)
            kind, own = self.effects(model, reference)
            kind = with_quantiles(model, kind, {**own, "--calibrated": self.calibrated})
            origin = self.origin(model, target, self._options(reference, target, own))
            header_lines, record_lines = LAYOUTS[target.format]
            with open_vcf(path, keep, stream) as opened:
                phased = self.phased and sample_column(
                    opened.column_line, self.phased, self.source_name
                )

                def head(used: Iterable[str]) -> list[str]:
                    declared = contig_lines(
                        opened.meta, reference.contigs, used, fit.finder
                    )
                    return list(header_lines(kind, origin, opened, declared))

                # For a stream, the header needs the contig names of the records read before the first row.
                lines = head(summary.contigs) if summary else []
                furthest = None
                if summary is not None and summary.is_sorted:
                    ends = (
                        reference.contigs[name] for name in fit.names.values() if name
                    )
                    furthest = max([summary.furthest, *ends])
                header = OutputHeader(
                    origin, extra={"lines": lines, "furthest": furthest}
                )

                def rows(
                    predict: Predictor, numbers: range | None
                ) -> Iterator[EffectLines]:
                    records = checked(opened) if summary is None else opened.records
                    expected = summary and summary.records
                    if phased:
                        records = with_haplotypes(
                            records, phased, reference, fit.finder
                        )
                    if numbers is not None:
                        records, expected = (
                            islice(records, numbers.start, numbers.stop),
                            len(numbers),
                        )
                    fitting = fit.each(records)
                    effects = score_records(
                        fitting, reference, kind, predict, max_n=self.max_n
                    )
                    scored = progress(effects, "scoring", expected, "records")
                    if summary is None:
                        scored = chain(list(islice(scored, 1)), scored)
                        lines.extend(head(fit.names))
                    for record in scored:
                        yield EffectLines(record_lines(record, kind), record.effects)

                files = (
                    reference.path,
                    reference.aliases,
                    self.regions,
                    self.sites,
                    background_file(model),
                )
                content = partial(self.content, model, path, *files)
                yield (
                    job := Job(
                        header, content, lambda: summary.records if summary else 0, rows
                    )
                )
            if keep is not None and not (
                summary.records if summary else job.counts["records"]
            ):
                log(
                    f"warning: {self.source}: no records in the selected contigs or regions"
                )

    def _options(
        self, reference: Reference, target: Target, own: Mapping[str, object]
    ) -> dict[str, object | None]:
        return {
            "--reference": reference.path,
            "--aliases": reference.aliases,
            "--tracks": self.tracks,
            "--top-tracks": self.top_tracks,
            "--contig": list(self.contigs),
            "--regions": self.regions,
            "--phased": self.phased,
            "--format": target.format,
            **own,
            "--max-n": self.max_n,
        }

    def _keep(self, reference: Reference) -> Keep | None:
        """Return a filter of records by `contigs` and `regions`; None: keep all records."""
        places = find_places(
            self.contigs,
            self.regions,
            reference.contigs,
            reference.path,
            reference.names,
        )
        if places is None:
            return None
        return lambda record: places.overlaps(
            record.contig, record.start, record.start + len(record.ref)
        )

    def count(self, row: EffectLines, counts: Counter[str]) -> None:
        counts["records"] += 1
        for effect in row.effects:
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


def load_scoring_model(model: LoadedModel | Path | str) -> ScoringModel:
    """Load or accept a model for `score-variants`; `ModelError` if it is a model of another task.

    A file `.npz` is the k-mer baseline of `train baseline-chromatin`.
    """
    if not isinstance(model, LoadedModel) and Path(model).suffix == ".npz":
        return read_kmer_model(Path(model))
    opened = model if isinstance(model, LoadedModel) else load(model)
    if (
        isinstance(opened, LoadedPromoterModel | LoadedChromatinModel)
        or opened.task == "pretraining"
    ):
        return opened
    raise ModelError(
        f"{opened.name}: needs a chromatin, promoter or pretrained model, found a {opened.task} model"
    )
