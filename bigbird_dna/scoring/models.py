"""`bigbird_dna.load` and the model classes it returns: those of `model`, plus methods that need a genome."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from bigbird_dna.errors import (
    UsageError,
    check_at_least_one,
    check_choice,
    check_fraction,
    shortened,
)
from bigbird_dna.model import chromatin, directory, model, promoter
from bigbird_dna.model.decoding import Sampling
from bigbird_dna.model.generation import Flanks, generate
from bigbird_dna.model.inference import choose_device
from bigbird_dna.scoring.masked_likelihood import log_ratios
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
from bigbird_dna.scoring.scorer import calibrated_predictor
from bigbird_dna.scoring.start_site_effects import StartSiteEffect, StartSiteEffects
from bigbird_dna.scoring.track_effects import OFFSETS, track_effects
from bigbird_dna.scoring.tracks import Summary, predict_regions
from bigbird_dna.scoring.variant_effects import refuse, score_records
from bigbird_dna.scoring.variant_sites import STRIDE, PromoterEffect, SiteEffects
from bigbird_dna.scoring.window_source import scan_predictor


@dataclass(frozen=True, repr=False)
class Model(model.LoadedModel):
    """A model of any task, with its network, tokenizer and settings.

    Every model has `embed`; a pretrained model also has `generate` and `variant_effects`. `PromoterModel` and
    `ChromatinModel` add `predict`, `predict_regions` and `variant_effects`; `SequenceModel` adds `predict`.
    """

    def generate(
        self,
        number: int = 1,
        length: int = 1000,
        *,
        left: str = "",
        right: str = "",
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        rounds: int = 30,
        seed: int = 1,
        device: str = "auto",
    ) -> list[str]:
        """Return DNA sequences of exactly `length` bp, sampled from a pretrained model.

        A causal model (`encoder.causal`) continues `left` token by token. A masked-token model fills the gap
        between `left` and `right` in `rounds` iterations (see `model.generation`). Flanks are used unchanged
        and are not part of the samples; each flank is optional.

        Parameters
        ----------
        number
            Number of samples. A sample depends only on the other arguments and its index (on a CPU exactly).
        temperature
            Sampling temperature: below 1, likely tokens are sampled more often; above 1, less often.
        top_k, top_p
            Sample only from the `top_k` likeliest tokens, or from the fewest with total probability `top_p`.
        rounds
            Number of iterations (masked-token models only; ignored by causal models).
        device
            auto, cpu, cuda or mps.

        Raises
        ------
        ModelError
            The model is not a pretrained model, or its tokenizer is not for DNA.
        UsageError
            A number is out of range; a causal model is given a right flank; or the gap is too long to fill.
        DataError
            A flank contains a letter that is not a DNA base or IUPAC code.

        Examples
        --------
        >>> load("results/yeast/models/pretrained").generate(2, 500, left="ACGT" * 20, seed=7)
        """
        request = Flanks.read(left, right)
        sampling = Sampling(temperature, top_k, top_p)
        chosen = choose_device(device)
        return [
            *generate(
                self,
                [request],
                number,
                length,
                sampling,
                rounds=rounds,
                seed=seed,
                device=chosen,
            )
        ]

    def predict_regions(
        self, regions: Regions, reference: Genome, *args: Any, **options: Any
    ) -> pd.DataFrame:
        """Predict regions (promoter and chromatin models only; `ModelError` for any other model)."""
        raise self._unfit("predict_regions", "promoter or chromatin")

    def variant_effects(
        self, variants: Variants, reference: Genome, *args: Any, **options: Any
    ) -> pd.DataFrame:
        """Predict variant effects; a pretrained model has the options of `masked_likelihood.log_ratios`."""
        if self.task == "pretraining":
            return log_ratios(self, variants, reference, *args, **options)
        raise self._unfit("variant_effects", "promoter, chromatin or pretrained")


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
            File of alternative contig names, if the regions use other names (see docs/files/reference.md).
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
        predict = calibrated_predictor(
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
            start sites (docs/files/promoters.md), such as EPDnew's.
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
        predict = calibrated_predictor(
            self, calibrated, prior, batch_size=batch_size, device=device
        )
        with (
            opened(reference, aliases) as genome,
            read_variants(variants, genome) as (records, labels),
        ):
            chosen = None if sites is None else tss_sites(sites, genome)
            kind = SiteEffects(
                self.settings.upstream, self.settings.downstream, int(stride), chosen
            )
            table, effects = allele_table(
                score_records(records, genome, kind, predict, max_n=max_n), labels
            )
        return _with_sites(table, effects)


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
        predict = calibrated_predictor(
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
            predict = scan_predictor(self, calibrated, **computing)
            with (
                opened(reference, aliases) as genome,
                read_variants(variants, genome) as (records, labels),
            ):
                starts = StartSiteEffects.of(
                    self, None if sites is None else tss_sites(sites, genome)
                )
                scored = score_records(records, genome, starts, predict, max_n=max_n)
                table, effects = allele_table(scored, labels)
            table = _with_sites(table, effects)
            for name, strand in (("sum_plus", "+"), ("sum_minus", "-")):
                table[name] = np.array(
                    [effect.sums.get(strand, np.nan) for effect in effects], np.float64
                )
            return table
        refuse(self, "a chromatin model", {"sites": sites})
        shifts = OFFSETS if offsets is None else offsets
        columns, kind = (
            self.columns(tracks),
            track_effects(self, None, shifts, calibrated),
        )
        predict = partial(self.window_probabilities, both_strands=False, **computing)
        with (
            opened(reference, aliases) as genome,
            read_variants(variants, genome) as (records, labels),
        ):
            table, effects = allele_table(
                score_records(records, genome, kind, predict, max_n=max_n), labels
            )
        rows = (getattr(effect, values) for effect in effects)
        return with_tracks(table, rows, np.float64, self.tracks, columns)


def _with_sites(
    table: pd.DataFrame, effects: Sequence[PromoterEffect | StartSiteEffect]
) -> pd.DataFrame:
    """Append the site with the largest change of each allele to a table of alleles."""
    largest = [effect.largest for effect in effects]
    for name, field in (("ref_score", "ref"), ("alt_score", "alt"), ("delta", "delta")):
        values = [np.nan if one is None else getattr(one, field) for one in largest]
        table[name] = np.array(values, np.float64)
    places = [None if one is None else one.position + 1 for one in largest]
    table["site"] = pd.array(places, dtype="Int64")
    strands = ["." if one is None else one.strand for one in largest]
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
        "tile" or "interpolate" for learned positions, "interpolate" or "ntk" for rotary positions.

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
    found = directory.load(path, positions=positions, extend=extend)
    kinds = {
        "promoter": PromoterModel,
        "sequences": SequenceModel,
        "chromatin": ChromatinModel,
    }
    kind: type[Model] = kinds.get(found.task, Model)
    made = kind(
        found.network, found.tokenizer, found.config, found.settings, found.path
    )
    if "sha256" in vars(found):
        vars(made)["sha256"] = found.sha256  # computed while loading
    return made
