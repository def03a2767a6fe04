"""The section `tables`: what stands in the papers' tables beside the run's own models."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bigbird_dna.config.promoter_sections import NegativeSet
from bigbird_dna.config.section import Section

NetworkComparator = Literal["cnnprom", "deepromoter", "deepsea", "danq", "residual-cnn"]
PromoterComparator = Literal[NetworkComparator, "k-mers", "gc", "gkm-svm", "nearest"]
TrackComparator = Literal[PromoterComparator, "motifs"]
Taxon = Literal["vertebrates", "plants", "insects", "nematodes", "fungi", "urochordates"]
TableStart = Literal["pretrained", "random"]

# At most: a wrong list would start thousands of trainings.
_MOST = 20


class TablesConfig(Section):
    """Tables 5 to 7, which `snakemake table5 table6 table7` makes; without these targets nothing is run."""

    promoters: tuple[PromoterComparator, ...] = Field(
        default=("gc", "k-mers", "cnnprom", "deepromoter", "residual-cnn"),
        description="comparators of Table 6",
    )
    chromatin: tuple[TrackComparator, ...] = Field(
        default=("gc", "k-mers", "deepsea", "danq", "residual-cnn"),
        description="comparators of Table 7; motifs need the extra `motifs`",
    )
    starts: tuple[TableStart, ...] = Field(
        default=("pretrained", "random"), description="weights that the language model is fine-tuned from"
    )
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = Field(
        default=(1, 2, 3),
        min_length=1,
        max_length=_MOST,
        description="of language models and networks; other comparators have the first",
    )
    negative_sets: tuple[NegativeSet, ...] | None = Field(
        default=None, min_length=1, description="of Table 6; none: those of promoters.windows"
    )
    windows: tuple[Annotated[int, Field(ge=20, le=1_000_000)], ...] | None = Field(
        default=None,
        min_length=1,
        max_length=_MOST,
        description="bp of Table 6's windows, divided at the TSS as promoters.windows are; none: its own",
    )
    steps: int | None = Field(
        default=None, ge=1, description="of the training of comparators that are networks; none: 2,000"
    )
    taxon: Taxon = Field(
        default="vertebrates", description="whose matrices of JASPAR the comparator motifs has"
    )

    @model_validator(mode="after")
    def _nothing_is_named_twice(self) -> Self:
        for key in ("promoters", "chromatin", "starts", "seeds", "negative_sets", "windows"):
            values = getattr(self, key) or ()
            if len(set(values)) < len(values):
                raise ValueError(f"{key} names one twice")
        if "given" in (self.negative_sets or ()):
            raise ValueError("negative_sets: 'given' is of sequences, which Table 6 doesn't have")
        return self
