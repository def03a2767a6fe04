"""What scores the alleles of a VCF: a chromatin model or a promoter model, with the options of its kind."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bigbird_dna.calibration.stored import Calibration
from bigbird_dna.checks import check_at_least_one
from bigbird_dna.errors import DataError, ModelError, UsageError
from bigbird_dna.genome.chromatin.peaks import read_bed, strand_column
from bigbird_dna.genome.fields import quoted
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.region_filter import warn_of_absent
from bigbird_dna.genome.sequence import OPPOSITE, Strand
from bigbird_dna.genome.variants import contig_finder
from bigbird_dna.genome.vcf import VcfRecord
from bigbird_dna.model.chromatin import ChromatinModel
from bigbird_dna.model.directory import load
from bigbird_dna.model.model import Model, calibration_of, check_calibrated
from bigbird_dna.model.promoter import PromoterModel
from bigbird_dna.tasks.predictor import Predictor, finished
from bigbird_dna.tasks.variants.effects import ScoredRecord, offsets_for, variant_effects
from bigbird_dna.tasks.variants.promoter_effects import (
    STRIDE,
    PromoterRecord,
    Sites,
    SiteWindows,
    promoter_effects,
)

OFFSETS = 4
"""Windows that effects on tracks are averaged over."""

ScoringModel = PromoterModel | ChromatinModel


@dataclass(frozen=True)
class Engine:
    """How records are scored; `tracks` are names that effects have values of, none for promoters."""

    model: ScoringModel
    options: dict[str, Any]  # of the command line, for the provenance
    columns: list[int]
    offsets: tuple[int, ...]
    stride: int
    sites: Path | None
    calibration: Calibration | None = None
    prior: float | None = None

    @property
    def tracks(self) -> list[str]:
        """Names of the tracks that effects have values of; none for promoters."""
        if isinstance(self.model, PromoterModel):
            return []
        return [self.model.tracks[column].name for column in self.columns]

    def predictor(self, batch_size: int, device: str) -> Predictor:
        """The model's window probabilities, as `effects` needs them."""
        if isinstance(self.model, PromoterModel):
            scores = partial(self.model.window_probabilities, batch_size=batch_size, device=device)
            return finished(scores, self.calibration and self.calibration.finish(self.prior))
        predict = self.model.window_probabilities
        return partial(predict, both_strands=False, batch_size=batch_size, device=device)

    def effects(
        self, records: Iterable[VcfRecord], reference: Reference, predict: Predictor, max_n: float
    ) -> Iterator[ScoredRecord | PromoterRecord]:
        """Effects of every record, in their order."""
        settings = self.model.settings
        if isinstance(self.model, PromoterModel):
            own = self.model.settings
            sites = None if self.sites is None else Sites(read_sites(self.sites, reference))
            windows = SiteWindows(own.upstream, own.downstream, self.stride, sites)
            return promoter_effects(records, reference, windows, predict, max_n=max_n)
        every = len(self.columns) == len(self.model.tracks)
        return variant_effects(
            records,
            reference,
            window=settings.window,
            predict=predict,
            offsets=self.offsets,
            columns=None if every else self.columns,
            max_n=max_n,
            finish=self.calibration and self.calibration.only(self.columns),
        )


def load_scoring_model(model: Model | Path | str) -> ScoringModel:
    """`load` a model that `score-variants` takes, or take one; `ModelError` if it is of another task."""
    opened = model if isinstance(model, Model) else load(model)
    if isinstance(opened, PromoterModel | ChromatinModel):
        return opened
    raise ModelError(f"{opened.name}: a chromatin or promoter model is needed, this is a {opened.task} model")


def choose_engine(
    model: ScoringModel,
    tracks: str | None,
    offsets: int | None,
    stride: int | None,
    sites: Path | str | None,
    *,
    calibrated: bool = False,
    prior: float | None = None,
) -> Engine:
    """The engine of a model; None leaves an option to its default.

    Raises
    ------
    UsageError
        An option is one of the other kind of models, or out of its range.
    ModelError
        Effects on calibrated probabilities are wanted, and the model has no calibration.
    """
    check_calibrated(calibrated, prior)
    if isinstance(model, PromoterModel):
        _refuse(model, "a promoter model", {"tracks": tracks, "offsets": offsets})
        check_at_least_one({"stride": stride})
        if stride is not None and sites is not None:
            raise UsageError("stride and sites: sites that are given have no stride")
        step = STRIDE if stride is None else int(stride)
        options: dict[str, Any] = {"--tss": sites} if sites is not None else {"--stride": step}
        options |= {"--prior": prior}
        path = None if sites is None else Path(sites)
        return Engine(
            model, options, [], (), step, path, calibration_of(model) if calibrated else None, prior
        )
    _refuse(model, "a chromatin model", {"stride": stride, "sites": sites, "prior": prior})
    count = OFFSETS if offsets is None else offsets
    places = offsets_for(count, model.settings.window)
    calibration = calibration_of(model) if calibrated else None
    return Engine(model, {"--offsets": count}, model.columns(tracks), places, STRIDE, None, calibration)


def _refuse(model: ScoringModel, kind: str, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} {value}: {model.name} is {kind}, which has no such option")


def read_sites(path: Path, reference: Reference) -> dict[str, list[tuple[int, Strand]]]:
    """TSS positions of a BED file, by contig: the first base of each line on its strand, or on both.

    Lines that aren't on the reference are passed over, and the log says how many.

    Raises
    ------
    DataError
        A line isn't an interval, or its strand isn't `+`, `-` or `.`; the text has the line. No line is on
        the reference.
    """
    find = contig_finder(reference.contigs, reference.names)
    sites: dict[str, list[tuple[int, Strand]]] = {}
    unknown: Counter[str] = Counter()
    beyond: Counter[str] = Counter()
    for number, fields, start, end in read_bed(path):
        contig = find(fields[0])
        text = strand_column(fields)
        if text not in ("+", "-", "."):
            raise DataError(f"{path}: line {number}: strand {quoted(text)} is not '+', '-' or '.'")
        if contig is None:
            unknown[fields[0]] += 1
        elif end > reference.contigs[contig]:
            beyond[fields[0]] += 1
        else:
            for strand in OPPOSITE:
                if text in (strand, "."):
                    sites.setdefault(contig, []).append((start if strand == "+" else end - 1, strand))
    if not sites:
        raise DataError(f"{path}: no site lies on {reference.path}")
    warn_of_absent(path, "sites", reference.path, unknown, beyond)
    return sites
