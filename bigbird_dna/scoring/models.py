"""`bigbird_dna.load` and the model classes it returns: those of `model`, plus methods that need a genome."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.errors import (
    UsageError,
    check_at_least_one,
    check_choice,
    check_fraction,
    shortened,
)
from bigbird_dna.genome.reference import Reference
from bigbird_dna.model import chromatin, directory, model, promoter
from bigbird_dna.model.model import window_predictor
from bigbird_dna.scoring.effects import (
    OFFSETS,
    STRIDE,
    Effects,
    ScoredAllele,
    SiteEffects,
    StartSiteEffects,
    TrackEffects,
    refuse,
)
from bigbird_dna.scoring.masked_likelihood import CONTEXT, LikelihoodEffects
from bigbird_dna.scoring.region_scores import score_regions
from bigbird_dna.scoring.regions import (
    Genome,
    Regions,
    Variants,
    allele_table,
    opened,
    read_regions,
    read_variants,
    region_table,
    tss_sites,
    with_tracks,
)
from bigbird_dna.scoring.tracks import Summary, predict_regions
from bigbird_dna.scoring.variants import score_records


@dataclass(frozen=True, repr=False)
class Model(model.LoadedModel):
    """A model of any task, with its network, tokenizer and settings.

    Every model has `embed`; a pretrained model also has `variant_effects`. `PromoterModel` and
    `ChromatinModel` add `predict`, `predict_regions` and `variant_effects`; `SequenceModel` adds `predict`.
    """

    def predict_regions(
        self, regions: Regions, reference: Genome, *args: Any, **options: Any
    ) -> pd.DataFrame:
        """Predict regions (promoter and chromatin models only; `ModelError` for any other model)."""
        raise self._unfit("predict_regions", "promoter or chromatin")

    def variant_effects(
        self, variants: Variants, reference: Genome, *args: Any, **options: Any
    ) -> pd.DataFrame:
        """Predict variant effects; a pretrained model has the options of `likelihood_ratios`."""
        if self.task == "pretraining":
            return self.likelihood_ratios(variants, reference, *args, **options)
        raise self._unfit("variant_effects", "promoter, chromatin or pretrained")

    def likelihood_ratios(
        self,
        variants: Variants,
        reference: Genome,
        *,
        aliases: str | os.PathLike[str] | None = None,
        offsets: int = OFFSETS,
        context: int = CONTEXT,
        max_n: float = 0.25,
        batch_size: int = 32,
        device: str = "auto",
    ) -> pd.DataFrame:
        """Return the log-ratio of the likelihoods of ALT and REF for each variant, as `score-variants`.

        Only for pretrained masked-token models.

        Parameters
        ----------
        variants, reference, aliases, max_n, batch_size, device
            As for `PromoterModel.variant_effects`.
        offsets
            Number of windows to average over, shifted within the length of a few tokens, on both strands.
        context
            Number of bp on both sides of a change.

        Returns
        -------
        One row per alternative allele, in input order and with the index of an input table: contig, position
        (1-based), ref, alt, note, log_ratio, spread. Values are missing, with the reason in the note, if an
        allele was not scored.

        Raises
        ------
        UsageError, DataError, ModelError
            As for `PromoterModel.variant_effects`; the model is causal.
        """
        check_at_least_one({"batch_size": batch_size})
        effects = LikelihoodEffects(
            self, offsets, context, batch_size=batch_size, device=device
        )
        with opened(reference, aliases) as genome:
            table, alleles = _allele_effects(effects, variants, genome, max_n)
        for column, field in (("log_ratio", "delta"), ("spread", "spread")):
            table[column] = _values(alleles, field)
        return table


@dataclass(frozen=True, repr=False)
class PromoterModel(promoter.LoadedPromoterModel, Model):
    """A promoter model: predicts the probability of a promoter in a window of `settings.window` bp."""

    def predict_regions(
        self,
        regions: Regions,
        reference: Genome,
        *,
        aliases: str | os.PathLike[str] | None = None,
        stride: int = 10,
        max_n: float = 0.25,
        calibrated: bool = False,
        prior: float | None = None,
        batch_size: int = 32,
        device: str = "auto",
    ) -> pd.DataFrame:
        """Return the highest promoter score of each region, and its TSS position.

        A region as long as the model's window is scored as that window, as in `score-promoters`. A longer
        region is tiled with windows. A shorter region is a range of candidate TSS positions.

        Parameters
        ----------
        regions
            A BED file; a list of (contig, start, end) or (contig, start, end, strand); or a table with these
            columns. 0-based, half-open. Without a strand, both strands are scored.
        reference
            FASTA of the regions, plain or bgzip.
        aliases
            File of alternative contig names, if the regions use other names (see docs/files.md).
        stride
            Distance in bp between the windows, or between the candidate TSS positions, of a region.
        max_n
            Windows with a larger fraction of N are ignored.
        calibrated, prior, batch_size, device
            As for `predict`.

        Returns
        -------
        One row per region, in input order and with the index of an input table: contig, start, end, name,
        strand, score, site (0-based), note. Score and site are missing, with the reason in the note, if no
        window could be scored (too_many_n) or the region is not on the reference (contig_unknown,
        beyond_contig). contig_edge: a window extends beyond the contig and was padded with N.

        Raises
        ------
        UsageError, DataError
            An input is not a region (the message names the line or index); the reference has none of the
            contigs; or an argument is out of range.
        """
        check_at_least_one({"stride": stride, "batch_size": batch_size})
        check_fraction("max_n", max_n)
        predict = window_predictor(
            self, calibrated, prior, batch_size=batch_size, device=device
        )
        with opened(reference, aliases) as genome:
            given, labels = read_regions(regions, genome)
            sizes = {
                "upstream": self.settings.upstream,
                "downstream": self.settings.downstream,
            }
            scores = list(
                score_regions(
                    given, genome, predict, **sizes, stride=int(stride), max_n=max_n
                )
            )
        table = region_table(given, labels)
        strands = [
            score.strand or one.strand or "."
            for one, score in zip(given, scores, strict=True)
        ]
        table["strand"] = pd.Series(strands, labels, dtype=object)
        table["score"] = np.array([score.score for score in scores], np.float32)
        table["site"] = pd.array([score.site for score in scores], dtype="Int64")
        table["note"] = pd.Series(
            [score.note for score in scores], labels, dtype=object
        )
        return table

    def variant_effects(
        self,
        variants: Variants,
        reference: Genome,
        *,
        aliases: str | os.PathLike[str] | None = None,
        sites: Regions | None = None,
        stride: int = STRIDE,
        max_n: float = 0.25,
        calibrated: bool = False,
        prior: float | None = None,
        batch_size: int = 32,
        device: str = "auto",
    ) -> pd.DataFrame:
        """Return the largest change of the promoter score around each variant (ALT minus REF).

        Sites are TSS positions, on either strand, whose window covers a changed base: the positions in
        `sites`, or one every `stride` bp, counted from the changed bases. The site with the largest absolute
        change is reported.

        Parameters
        ----------
        variants
            A VCF file; a list of strings "chr1:12345:A:G" or of (contig, position, ref, alt); or a table with
            these columns. Positions are 1-based, as in VCF.
        reference, aliases
            FASTA of the variants, plain or bgzip; alternative contig names, as for `predict_regions`.
        sites
            Regions (see `predict_regions`) whose first base in transcription order is a TSS; or a file of
            start sites (docs/files.md), such as EPDnew's.
        stride
            Distance in bp between the tested sites if `sites` is not given.
        max_n
            Sites with a larger fraction of N in their window are ignored.
        calibrated, prior, batch_size, device
            As for `predict`.

        Returns
        -------
        One row per alternative allele, in input order and with the index of an input table: contig, position,
        ref, alt, note, ref_score, alt_score, delta, site (1-based, like position), strand. Values are
        missing, with the reason in the note, if an allele was not scored.

        Raises
        ------
        UsageError, DataError
            An input is not a variant (the message names the line or index), or an argument is out of range.
        """
        check_at_least_one({"stride": stride, "batch_size": batch_size})
        check_fraction("max_n", max_n)
        with opened(reference, aliases) as genome:
            effects = SiteEffects(
                self,
                int(stride),
                None if sites is None else tss_sites(sites, genome),
                calibrated=calibrated,
                prior=prior,
                batch_size=batch_size,
                device=device,
            )
            table, alleles = _allele_effects(effects, variants, genome, max_n)
        return _with_sites(table, alleles)


@dataclass(frozen=True, repr=False)
class SequenceModel(promoter.LoadedSequenceModel, Model):
    """A model of labeled sequences, for windows without a position in a genome."""


@dataclass(frozen=True, repr=False)
class ChromatinModel(chromatin.LoadedChromatinModel, Model):
    """A chromatin model: predicts which tracks have a peak in the center of `settings.window` bp windows."""

    def predict_regions(
        self,
        regions: Regions,
        reference: Genome,
        *,
        aliases: str | os.PathLike[str] | None = None,
        tracks: str | None = None,
        summary: str = "max",
        center_fraction: float = 0.0,
        max_n: float = 0.25,
        calibrated: bool = False,
        batch_size: int = 16,
        device: str = "auto",
    ) -> pd.DataFrame:
        """Return the probability that each region is in a peak of each track, averaged over both strands.

        The values are those of `predict-tracks`.

        Parameters
        ----------
        regions, reference, aliases
            As for `PromoterModel.predict_regions`; strands are ignored.
        tracks
            Tracks, groups or shell patterns, comma-separated; None: all.
        summary
            "max" or "mean" over the bins of a region longer than the model's bin.
        center_fraction
            Central fraction (0 to 1) of a window whose bins are predicted together; 0: one window per bin.
        max_n
            Bins with a larger fraction of N in their window are ignored.
        calibrated, batch_size, device
            As for `predict`.

        Returns
        -------
        One row per region, in input order and with the index of an input table: contig, start, end, name,
        note, then one column per track. Values are missing if no bin could be predicted.

        Raises
        ------
        UsageError, DataError
            As for `PromoterModel.predict_regions`; or no track matches.
        """
        check_at_least_one({"batch_size": batch_size})
        check_choice("summary", summary, get_args(Summary))
        check_fraction("center_fraction", center_fraction)
        check_fraction("max_n", max_n)
        predict = window_predictor(
            self,
            calibrated,
            center_fraction=center_fraction,
            batch_size=batch_size,
            device=device,
        )
        columns, together = self.columns(tracks), self.bins_together(center_fraction)
        with opened(reference, aliases) as genome:
            given, labels = read_regions(regions, genome)
            bins: dict[str, Any] = {
                "bin_size": self.settings.bin,
                "together": together,
                "summary": summary,
            }
            window = self.settings.window
            batches = predict_regions(
                given, genome, predict, window=window, **bins, max_n=max_n
            )
            found = [one for batch in batches for one in batch]
        table = region_table(given, labels)
        table["note"] = pd.Series([one.note for one in found], labels, dtype=object)
        rows = (one.probabilities for one in found)
        return with_tracks(table, rows, np.float32, self.tracks, columns)

    def variant_effects(
        self,
        variants: Variants,
        reference: Genome,
        *,
        aliases: str | os.PathLike[str] | None = None,
        tracks: str | None = None,
        values: Literal["delta", "log_odds"] = "delta",
        offsets: int | None = None,
        sites: Regions | None = None,
        max_n: float = 0.25,
        calibrated: bool = False,
        batch_size: int = 32,
        device: str = "auto",
    ) -> pd.DataFrame:
        """Return each track's change of probability for each variant (ALT minus REF), as `score-variants`.

        A model of start sites has the start site with the largest change.

        Parameters
        ----------
        variants, reference, aliases
            As for `PromoterModel.variant_effects`.
        tracks
            Tracks, groups or shell patterns, comma-separated; None: all.
        values
            "delta": change of the probability; "log_odds": change of its natural log-odds.
        offsets
            Number of windows to average over, shifted within the length of a few tokens, on both strands;
            None: 4. Not for models of start sites, nor are `tracks` and `values`.
        sites
            Only for models of start sites: as for `PromoterModel.variant_effects`.
        max_n
            Alleles with a larger fraction of N in a window are not scored.
        calibrated, batch_size, device
            As for `predict`.

        Returns
        -------
        One row per alternative allele, in input order and with the index of an input table: contig, position
        (1-based), ref, alt, note, then one column per track; or those of `PromoterModel.variant_effects`,
        and the sums of all changes on each strand, sum_plus and sum_minus. Values are missing, with the
        reason in the note, if an allele was not scored.

        Raises
        ------
        UsageError, DataError
            As for `PromoterModel.variant_effects`; or no track matches.
        """
        check_at_least_one({"batch_size": batch_size})
        check_choice("values", values, ("delta", "log_odds"))
        check_fraction("max_n", max_n)
        computing: dict[str, Any] = {"batch_size": batch_size, "device": device}
        if self.predicts_tss:
            refuse(
                self, "a model of start sites", {"tracks": tracks, "offsets": offsets}
            )
            refuse(
                self,
                "a model of start sites",
                {"values": None if values == "delta" else values},
            )
            with opened(reference, aliases) as genome:
                chosen = None if sites is None else tss_sites(sites, genome)
                starts = StartSiteEffects(
                    self, chosen, calibrated=calibrated, **computing
                )
                table, alleles = _allele_effects(starts, variants, genome, max_n)
            table = _with_sites(table, alleles)
            sums = [
                (np.nan, np.nan) if one.effect is None else one.effect.sums
                for one in alleles
            ]
            plus_minus = np.array(sums, np.float64).reshape(-1, 2)
            table["sum_plus"], table["sum_minus"] = plus_minus.T
            return table
        refuse(self, "a chromatin model", {"sites": sites})
        effects = TrackEffects(
            self,
            None,
            OFFSETS if offsets is None else offsets,
            calibrated=calibrated,
            **computing,
        )
        columns = self.columns(tracks)
        with opened(reference, aliases) as genome:
            table, alleles = _allele_effects(effects, variants, genome, max_n)
        rows = [
            None if one.effect is None else getattr(one.effect, values)
            for one in alleles
        ]
        return with_tracks(table, rows, np.float64, self.tracks, columns)


def _allele_effects(
    effects: Effects, variants: Variants, reference: Reference, max_n: float
) -> tuple[pd.DataFrame, list[ScoredAllele]]:
    """Return the alleles of variants as the leading columns of a table, and their effects."""
    check_fraction("max_n", max_n)
    records, labels = read_variants(variants, reference)
    scored = score_records(records, reference, effects, max_n)
    table = allele_table(records, scored, labels)
    return table, [allele for alleles in scored for allele in alleles]


def _values(alleles: Sequence[ScoredAllele], field: str) -> npt.NDArray[np.float64]:
    """Return a value of each effect; NaN of an allele that was not scored."""
    values = [
        np.nan if one.effect is None else getattr(one.effect, field) for one in alleles
    ]
    return np.array(values, np.float64)


def _with_sites(table: pd.DataFrame, alleles: Sequence[ScoredAllele]) -> pd.DataFrame:
    """Append the site with the largest change of each allele to a table of alleles."""
    for column, field in (
        ("ref_score", "ref"),
        ("alt_score", "alt"),
        ("delta", "delta"),
    ):
        table[column] = _values(alleles, field)
    effects = [allele.effect for allele in alleles]
    positions = [None if one is None else one.position + 1 for one in effects]
    table["site"] = pd.array(positions, dtype="Int64")
    strands = ["." if one is None else one.strand for one in effects]
    table["strand"] = pd.Series(strands, table.index, dtype=object)
    return table


def load(
    path: Path | str,
    *,
    positions: int | None = None,
    extend: directory.Extension = "tile",
) -> Model:
    """Load a model directory as `PromoterModel`, `SequenceModel`, `ChromatinModel`, or else as `Model`.

    The model is in evaluation mode, on the CPU. No code from the directory is executed.

    Parameters
    ----------
    path
        Directory of a model, or the name of a bundled one, if no directory has that name.
    positions
        Longest input in tokens, to extend that of the model; None: as saved.
    extend
        "tile" or "interpolate" for learned positions, "interpolate" for rotary positions.

    Raises
    ------
    ModelError
        `path` is not a model directory, or one of its files is missing, damaged or changed since it was
        saved (the message names it); `path` names a published model that must be fetched first; or the
        positions cannot be extended as requested.

    Examples
    --------
    >>> model = bigbird_dna.load("results/demo/models/promoter-genomic")
    >>> model.predict("ACGT" * 100)
    """
    if not isinstance(path, str | Path):
        raise UsageError(
            f"path {shortened(repr(path))}: must be the name of a model directory (str or Path)"
        )
    return directory.load(path, positions=positions, extend=extend, classes=CLASSES)  # type: ignore[return-value]


CLASSES: dict[str, type[model.LoadedModel]] = {
    "promoter": PromoterModel,
    "sequences": SequenceModel,
    "chromatin": ChromatinModel,
    "encoder": Model,
}
