"""`bigbird_dna.load`, and the models that it gives: those of `model`, with methods that need a genome."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from bigbird_dna.errors import UsageError, check_at_least_one, check_choice, check_fraction, shortened
from bigbird_dna.model import chromatin, directory, model, promoter
from bigbird_dna.model.decoding import Sampling
from bigbird_dna.model.directory import Extension
from bigbird_dna.model.generation import Flanks, generate
from bigbird_dna.model.inference import choose_device
from bigbird_dna.scoring.promoters import score_regions
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
from bigbird_dna.scoring.tracks import Summary, predict_regions
from bigbird_dna.scoring.variant_effects import score_records, track_effects
from bigbird_dna.scoring.variant_sites import STRIDE, SiteEffects


@dataclass(frozen=True, repr=False)
class Model(model.LoadedModel):
    """A model of any task, with its network, tokenizer and settings.

    Every model has `embed`, and a pretrained one can `generate`; `PromoterModel` and `ChromatinModel` have
    `predict`, `predict_regions` and `variant_effects` as well. `task` says what it was made for.
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
        """New DNA, drawn from what a pretrained model says; a sample has exactly `length` bp.

        A causal model (`encoder.causal`) continues `left`, piece by piece. A model of masked tokens fills a
        gap between `left` and `right` in `rounds` rounds (see `model.generation`). Flanks stand as they are
        and are not part of a sample; either may be left out.

        Parameters
        ----------
        number
            How many samples. A sample is a function of the other arguments and its number, from 0 on: on a
            CPU the same to the letter however many there are.
        temperature
            Below 1 the likeliest pieces are drawn still more often, above 1 less often.
        top_k, top_p
            Only so many of the likeliest pieces, or the fewest likeliest that have such a share together.
        rounds
            Of a model of masked tokens; a causal one has no use for them.
        device
            auto, cpu or cuda.

        Raises
        ------
        ModelError
            The model isn't a pretrained one, or its tokenizer isn't one of DNA.
        UsageError
            A number is out of its range; a causal model is given a flank on the right; or a gap is longer
            than a model of masked tokens takes.
        DataError
            A flank has a letter that isn't of DNA.

        Examples
        --------
        >>> load("results/yeast/models/pretrained").generate(2, 500, left="ACGT" * 20, seed=7)
        """
        request = Flanks.read(left, right)
        sampling = Sampling(temperature, top_k, top_p)
        chosen = choose_device(device)
        return [*generate(self, [request], number, length, sampling, rounds=rounds, seed=seed, device=chosen)]

    def predict_regions(
        self, regions: Regions, reference: Genome, *args: Any, **options: Any
    ) -> pd.DataFrame:
        """Probabilities of regions: of promoter and chromatin models; `ModelError` for any other."""
        raise self._unfit("predict_regions", "promoter or chromatin")

    def variant_effects(
        self, variants: Variants, reference: Genome, *args: Any, **options: Any
    ) -> pd.DataFrame:
        """Effects of variants: of promoter and chromatin models; `ModelError` for any other."""
        raise self._unfit("variant_effects", "promoter or chromatin")


@dataclass(frozen=True, repr=False)
class PromoterModel(promoter.LoadedPromoterModel, Model):
    """A model that tells promoters: windows of `settings.window` bp around a TSS → a probability."""

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
        """The highest promoter score of each region, and the TSS position that has it.

        A region as long as the model's window is that window, scored as `score-promoters` scores it. A longer
        one is tiled with windows. A shorter one says where a TSS is looked for: one base is a TSS.

        Parameters
        ----------
        regions
            A BED file; a list of (contig, start, end) or (contig, start, end, strand); or a table with these
            columns. 0-based, half-open. Without a strand both are scored.
        reference
            FASTA of the regions, plain or bgzip.
        aliases
            File of contigs' other names, where the regions' are not the reference's (see docs/files/reference.md).
        stride
            bp between a region's windows, or the TSS positions that are looked at in it.
        max_n
            Windows with a larger fraction of N don't count.
        calibrated, prior, batch_size, device
            As of `predict`.

        Returns
        -------
        A row a region, in their order, with the index of a table that was given: contig, start, end, name,
        strand, score, site (0-based), note. Score and site are missing, and the note says why, where no
        window could be scored (too_many_n), or the region isn't on the reference (contig_unknown,
        beyond_contig). contig_edge: a window reaches beyond the contig and was filled up with N.

        Raises
        ------
        UsageError, DataError
            What was given is not regions (the message has the line or index), the reference has none of their
            contigs, or an argument is out of its range.
        """
        check_at_least_one({"stride": stride, "batch_size": batch_size})
        check_fraction("max_n", max_n)
        predict = calibrated_predictor(self, calibrated, prior, batch_size=batch_size, device=device)
        with opened(reference, aliases) as genome:
            given, labels = read_regions(regions, genome)
            sizes = {"upstream": self.settings.upstream, "downstream": self.settings.downstream}
            scores = list(score_regions(given, genome, predict, **sizes, stride=int(stride), max_n=max_n))
        table = region_table(given, labels)
        strands = [score.strand or one.strand or "." for one, score in zip(given, scores, strict=True)]
        table["strand"] = pd.Series(strands, labels, dtype=object)
        table["score"] = np.array([score.score for score in scores], np.float32)
        table["site"] = pd.array([score.site for score in scores], dtype="Int64")
        table["note"] = pd.Series([score.note for score in scores], labels, dtype=object)
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
        """The largest change of the promoter score around each variant (ALT minus REF).

        Sites are TSS positions on either strand whose window covers a changed base: those of `sites`, or one
        every `stride` bp, counted from the changed bases. Of all the one with the largest change, either way,
        is reported.

        Parameters
        ----------
        variants
            A VCF file; a list of texts "chr1:12345:A:G" or of (contig, position, ref, alt); or a table with
            these columns. Positions are the VCF's, from 1 on.
        reference, aliases
            FASTA of the variants, plain or bgzip; contigs' other names, as of `predict_regions`.
        sites
            Regions (see `predict_regions`) whose first base in transcription order is a TSS.
        stride
            bp between the sites that are tried where none are given.
        max_n
            Sites with a larger fraction of N in their window don't count.
        calibrated, prior, batch_size, device
            As of `predict`.

        Returns
        -------
        A row for each alternative allele, in their order, with the index of a table that was given: contig,
        position, ref, alt, note, ref_score, alt_score, delta, site (from 1 on, as position), strand. Figures
        are missing, and the note says why, where an allele wasn't scored.

        Raises
        ------
        UsageError, DataError
            What was given is not variants (the message has the line or index), or an argument is out of its
            range.
        """
        check_at_least_one({"stride": stride, "batch_size": batch_size})
        check_fraction("max_n", max_n)
        predict = calibrated_predictor(self, calibrated, prior, batch_size=batch_size, device=device)
        with opened(reference, aliases) as genome, read_variants(variants) as (records, labels):
            chosen = None if sites is None else tss_sites(read_regions(sites, genome)[0], genome, sites)
            kind = SiteEffects(self.settings.upstream, self.settings.downstream, int(stride), chosen)
            table, effects = allele_table(score_records(records, genome, kind, predict, max_n=max_n), labels)
        largest = [effect.largest for effect in effects]
        for name, field in (("ref_score", "ref"), ("alt_score", "alt"), ("delta", "delta")):
            values = [np.nan if one is None else getattr(one, field) for one in largest]
            table[name] = np.array(values, np.float64)
        places = [None if one is None else one.position + 1 for one in largest]
        table["site"] = pd.array(places, dtype="Int64")
        strands = ["." if one is None else one.strand for one in largest]
        table["strand"] = pd.Series(strands, table.index, dtype=object)
        return table


@dataclass(frozen=True, repr=False)
class ChromatinModel(chromatin.LoadedChromatinModel, Model):
    """A model that tells from windows of `settings.window` bp which tracks have a peak in their middle."""

    def predict_regions(
        self,
        regions: Regions,
        reference: Genome,
        *,
        aliases: str | os.PathLike[str] | None = None,
        tracks: str | None = None,
        summary: str = "max",
        middle: float = 0.0,
        max_n: float = 0.25,
        calibrated: bool = False,
        batch_size: int = 16,
        device: str = "auto",
    ) -> pd.DataFrame:
        """The probability that each region is in a peak of each track, mean of both strands.

        The figures are those of `predict-tracks`.

        Parameters
        ----------
        regions, reference, aliases
            As of `PromoterModel.predict_regions`; strands don't count.
        tracks
            Tracks, groups or shell patterns, comma-separated; None: all.
        summary
            "max" or "mean" of the bins of a region longer than the model's bin.
        middle
            All bins in this middle part (0 to 1) of a window are predicted at once; 0: each in its own.
        max_n
            Bins with a larger fraction of N in their window don't count.
        calibrated, batch_size, device
            As of `predict`.

        Returns
        -------
        A row a region, in their order, with the index of a table that was given: contig, start, end, name,
        note, then a column a track. Figures are missing where no bin could be predicted.

        Raises
        ------
        UsageError, DataError
            As of `PromoterModel.predict_regions`; or no track fits.
        """
        check_at_least_one({"batch_size": batch_size})
        check_choice("summary", summary, get_args(Summary))
        check_fraction("middle", middle)
        check_fraction("max_n", max_n)
        predict = calibrated_predictor(self, calibrated, middle=middle, batch_size=batch_size, device=device)
        columns, together = self.columns(tracks), self.bins_together(middle)
        with opened(reference, aliases) as genome:
            given, labels = read_regions(regions, genome)
            bins: dict[str, Any] = {"bin_size": self.settings.bin, "together": together, "summary": summary}
            window = self.settings.window
            found = list(predict_regions(given, genome, predict, window=window, **bins, max_n=max_n))
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
        offsets: int = 4,
        max_n: float = 0.25,
        calibrated: bool = False,
        batch_size: int = 32,
        device: str = "auto",
    ) -> pd.DataFrame:
        """How variants change the probability of each track (ALT minus REF), as `score-variants` says.

        Parameters
        ----------
        variants, reference, aliases
            As of `PromoterModel.variant_effects`.
        tracks
            Tracks, groups or shell patterns, comma-separated; None: all.
        values
            "delta": changes of the probability; "log_odds": of its natural log-odds.
        offsets
            Windows that are averaged over, spread over the length of a few tokens, each on both strands.
        max_n
            Alleles with a larger fraction of N in a window are not scored.
        calibrated, batch_size, device
            As of `predict`.

        Returns
        -------
        A row for each alternative allele, in their order, with the index of a table that was given: contig,
        position (from 1 on), ref, alt, note, then a column a track. Figures are missing, and the note says
        why, where an allele wasn't scored.

        Raises
        ------
        UsageError, DataError
            As of `PromoterModel.variant_effects`; or no track fits.
        """
        check_at_least_one({"batch_size": batch_size})
        check_choice("values", values, ("delta", "log_odds"))
        check_fraction("max_n", max_n)
        columns, kind = self.columns(tracks), track_effects(self, None, offsets, calibrated)
        predict = partial(self.window_probabilities, both_strands=False, batch_size=batch_size, device=device)
        with opened(reference, aliases) as genome, read_variants(variants) as (records, labels):
            table, effects = allele_table(score_records(records, genome, kind, predict, max_n=max_n), labels)
        rows = (getattr(effect, values) for effect in effects)
        return with_tracks(table, rows, np.float64, self.tracks, columns)


def load(path: Path | str, *, positions: int | None = None, extend: Extension = "tile") -> Model:
    """Load a model directory: a `PromoterModel`, a `ChromatinModel`, or a `Model` of another task.

    The model is in evaluation mode, on the CPU. Nothing of the directory is run.

    Parameters
    ----------
    path
        The directory, as training, `import-hf` or `model extend-context` writes it; or the name of a model
        that is bundled with the package, where there is no directory of that name.
    positions
        Longest input in tokens, if that is to be more than the model was made for; None: as it was saved.
    extend
        How positions are added: "tile" or "interpolate" for learnt positions, "interpolate" or "ntk" for
        rotary ones.

    Raises
    ------
    ModelError
        `path` is not a model directory, or one of its files is missing, damaged or changed since it was
        saved; the message says which. Or it names a published model that must be fetched first, or its
        positions can't be extended as asked.

    Examples
    --------
    >>> model = bigbird_dna.load("results/demo/models/promoter-genomic")
    >>> model.predict("ACGT" * 100)
    """
    if not isinstance(path, str | Path):
        raise UsageError(f"path {shortened(repr(path))}: give the name of a model directory")
    found = directory.load(path, positions=positions, extend=extend)
    kinds: dict[str, type[Model]] = {"promoter": PromoterModel, "chromatin": ChromatinModel}
    kind = kinds.get(found.task, Model)
    made = kind(found.network, found.tokenizer, found.config, found.settings, found.path)
    if "sha256" in vars(found):
        vars(made)["sha256"] = found.sha256  # known from loading: not computed again
    return made
