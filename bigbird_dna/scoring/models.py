"""`bigbird_dna.load` and the model classes it returns: those of `model`, plus methods that need a genome."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bigbird_dna.model import chromatin, directory, model, promoter, start_sites
from bigbird_dna.scoring.regions import Genome, opened, read_regions
from bigbird_dna.scoring.tracks import predict_regions
from bigbird_dna.scoring.variants import variant_effects


@dataclass(frozen=True, repr=False)
class Model(model.LoadedModel):
    """A model of any task, with its network, tokenizer and settings.

    Every model has `embed`. Chromatin models, those of start sites among them, have `predict`,
    `predict_regions` and `variant_effects`; pretrained models have `variant_effects`; promoter and sequence
    models have `predict`.
    """

    def predict_regions(
        self, regions: Path | str | pd.DataFrame, reference: Genome, **options: Any
    ) -> pd.DataFrame:
        """Predict regions (chromatin models only; `ModelError` for any other model)."""
        raise self._unfit("predict_regions", "chromatin")

    def variant_effects(
        self, variants: Path | str | pd.DataFrame, reference: Genome, **options: Any
    ) -> pd.DataFrame:
        """Return the table of `score_variants` (`scoring.variants.variant_effects`)."""
        return variant_effects(self, variants, reference, **options)


@dataclass(frozen=True, repr=False)
class PromoterModel(promoter.LoadedPromoterModel, Model):
    """A promoter model: predicts the probability of a promoter in a window of `settings.window` bp."""


@dataclass(frozen=True, repr=False)
class SequenceModel(promoter.LoadedSequenceModel, Model):
    """A model of labeled sequences, for windows without a position in a genome."""


@dataclass(frozen=True, repr=False)
class StartSiteModel(start_sites.LoadedStartSiteModel, Model):
    """A model of start sites: predicts the probability of one at every base, on both strands."""


@dataclass(frozen=True, repr=False)
class ChromatinModel(chromatin.LoadedChromatinModel, Model):
    """A chromatin model: predicts which tracks have a peak in the center of `settings.window` bp windows."""

    def predict_regions(
        self,
        regions: Path | str | pd.DataFrame,
        reference: Genome,
        *,
        aliases: Path | str | None = None,
        tracks: str | None = None,
        **options: Any,
    ) -> pd.DataFrame:
        """Return the probability that each region is in a peak of each track, averaged over both strands.

        The values are those of `predict-tracks`. `regions` is a BED file, or a table with the columns contig,
        start and end; `reference` a FASTA file, or an open `Reference`. `options` are summary,
        center_fraction, max_n, calibrated, batch_size and device of `predict_tracks`, whose errors are
        raised. The table has one row per region, in the order of the regions: contig, start, end, name, note,
        then one column per track. Values are missing if no bin could be predicted.
        """
        columns = self.columns(tracks)
        rows = []
        with opened(reference, aliases) as genome:
            every = read_regions(regions, genome)
            for batch in predict_regions(self, every, genome, **options):
                for region, probabilities, note in batch:
                    if probabilities is None:
                        values = np.full(len(columns), np.nan, np.float32)
                    else:
                        values = probabilities[columns]

                    rows.append((*region[:4], note, *values))

        names = [self.tracks[column].name for column in columns]
        table = pd.DataFrame(
            rows, columns=["contig", "start", "end", "name", "note", *names]
        )
        return table.astype(dict.fromkeys(names, np.float32))


def load(path: Path | str) -> Model:
    """Load a model directory as `PromoterModel`, `SequenceModel`, `ChromatinModel`, or else as `Model`.

    The model is in evaluation mode, on the CPU. No code from the directory is executed.

    Parameters
    ----------
    path
        Directory of a model, or the name of a bundled one, if no directory has that name.

    Raises
    ------
    ModelError
        `path` is not a model directory, or one of its files is missing, damaged or changed since it was
        saved (the message names it); or `path` names a published model that must be fetched first.

    Examples
    --------
    >>> model = bigbird_dna.load("results/demo/models/promoter-genomic")
    >>> model.predict("ACGT" * 100)
    """
    return directory.load(path, classes=CLASSES)  # type: ignore[return-value]


CLASSES: dict[str, type[model.LoadedModel]] = {
    "promoter": PromoterModel,
    "sequences": SequenceModel,
    "chromatin": ChromatinModel,
    "start-sites": StartSiteModel,
    "encoder": Model,
}
