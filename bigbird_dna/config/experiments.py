"""The sections `tables` and `ablation`: experiments that train and compare models.

They run only if their workflow targets are requested.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, get_args

from pydantic import Field

from bigbird_dna.config.promoters import NegativeSet
from bigbird_dna.config.section import Section, field

Seed = Annotated[int, Field(ge=0, lt=2**32)]
NetworkComparator = Literal["cnnprom", "deepromoter", "deepsea", "danq", "residual-cnn"]
NETWORK_NAMES: tuple[str, ...] = get_args(NetworkComparator)
_CommonComparator = Literal[NetworkComparator, "k-mers", "gc", "gkm-svm"]
PromoterComparator = Literal[_CommonComparator, "position", "composition"]
TrackComparator = Literal[_CommonComparator, "dyads"]
TableStart = Literal["pretrained", "random"]
PRETRAINED, RANDOM = get_args(TableStart)

OWN_MODEL = "own"
"""Name of the run's own language model in file names of the tables."""


class TableModel(Section):
    """A further language model, configured like the run's own except for these keys."""

    name: str = Field(
        pattern="^[a-z0-9][a-z0-9.-]{0,29}$", description="name in files and tables"
    )
    attention: Literal["bigbird", "full"] = field(
        "bigbird", "value of encoder.attention"
    )
    tokens: int = Field(
        ge=16,
        le=1_000_000,
        description="tokens per input in pretraining; tokens per step are those of the run",
    )
    window: int | None = field(
        None,
        "input length in Tables 6 and 7, bp; none: not in these tables",
        ge=20,
        le=1_000_000,
    )


class TablesConfig(Section):
    """Tables 5 to 7, made only if requested by `snakemake table5 table6 table7`."""

    promoters: tuple[PromoterComparator, ...] = field(
        (
            "gc",
            "composition",
            "k-mers",
            "position",
            "cnnprom",
            "deepromoter",
            "residual-cnn",
        ),
        "baselines of Table 6",
    )
    chromatin: tuple[TrackComparator, ...] = field(
        ("gc", "k-mers", "dyads", "deepsea", "danq", "residual-cnn"),
        "baselines of Table 7",
    )
    models: tuple[TableModel, ...] = field(
        (),
        "language models in addition to the run's own, such as BERT at 512 tokens",
    )
    initializations: tuple[TableStart, ...] = field(
        ("pretrained", "random"),
        "initial weights of fine-tuned language models",
        min_length=1,
    )
    seeds: tuple[Seed, ...] = field(
        (1, 2, 3),
        "random seeds of language models and neural networks; other baselines use the first",
        min_length=1,
    )
    negative_sets: tuple[NegativeSet, ...] | None = field(
        None, "negative sets of Table 6; none: those of promoters.windows", min_length=1
    )
    learning_rates: tuple[Annotated[float, Field(gt=0, le=1)], ...] | None = field(
        None,
        "peak learning rates of both: each is trained, that with the lowest validation loss is reported; "
        "none: that of the task",
        min_length=1,
    )

    def _faults(self) -> Iterator[str]:
        yield from self._repeats(
            "promoters",
            "chromatin",
            "initializations",
            "seeds",
            "negative_sets",
            "learning_rates",
        )
        names = [OWN_MODEL, *(model.name for model in self.models)]
        if len(set(names)) < len(names):
            yield f"models: names must be different, and not {OWN_MODEL!r}"


class AblationConfig(Section):
    """Comparison of attention mechanisms, run only by the workflow target `ablation`."""

    mechanisms: tuple[str, ...] = field(
        (
            "full",
            "bigbird",
            "random",
            "window",
            "random_window",
            "longformer",
            "performer",
            "reformer",
            "sparse_fixed",
            "logsparse",
            "axial",
            "routing",
            "combiner_fixed",
            "combiner_logsparse",
            "combiner_axial_vertical",
            "combiner_axial_horizontal",
            "combiner_axial_rowmajor",
            "combiner_routing",
            "combiner_mixture",
        ),
        "compared values of encoder.attention",
        min_length=1,
    )
    head_init: Literal["local", "random"] | None = field(
        None, "encoder.head_init of all mechanisms; none: that of the encoder"
    )
    reference: str = field("bigbird", "mechanism from which differences are computed")
    seeds: tuple[Seed, ...] = field(
        (1,),
        "random seeds; each mechanism is trained with each seed",
        min_length=1,
    )
    tokens: int = field(512, "tokens per input", ge=16)
    batch_tokens: int = field(
        8192, "tokens per step; a longer input is one step", ge=16
    )
    steps: int = field(300, "steps of each training", ge=1)

    def _faults(self) -> Iterator[str]:
        yield from self._repeats("mechanisms", "seeds")
        if self.reference not in self.mechanisms:
            yield f"reference {self.reference!r} must be one of mechanisms"
