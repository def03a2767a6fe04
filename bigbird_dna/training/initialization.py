"""Initialization of fine-tuning, from a pretrained encoder or random weights, and a model's provenance."""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from torch import nn

from bigbird_dna.config.chromatin import ChromatinConfig
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.promoters import PromoterConfig
from bigbird_dna.config.run import Config
from bigbird_dna.config.sequences import SequencesConfig
from bigbird_dna.config.training import StartConfig, TrainingConfig
from bigbird_dna.console import log
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ConfigError, ModelError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.splits import format_named_region, read_named_region
from bigbird_dna.model.directory import (
    encoder_for,
    extend_positions,
    load,
)
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.weights import RECORD
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.load import load_tokenizer
from bigbird_dna.training.adapters import Adaptation, adapt
from bigbird_dna.training.task import M, ModelTask

if TYPE_CHECKING:
    import pandas as pd

# Settings that may differ between a checkpoint's encoder and the target encoder: they do not change the
# weights.
FREE = {
    *("dropout", "attention_dropout", "attention_backend", "gradient_checkpointing"),
    *("max_length", "head_init"),
}


class Initialization(NamedTuple):
    """The encoder's configuration and tokenizer, and the path and checksum of the pretrained model, if any.

    Its weights are not stored here, because a training would hold them until its end.
    """

    config: EncoderConfig
    tokenizer: Tokenizer
    settings: StartConfig
    path: Path | None = None
    sha256: str | None = None

    def apply(self, encoder: Encoder) -> None:
        """Load the pretrained weights into an encoder of `config`; without them the encoder is unchanged."""
        if self.path is None:
            return
        model = load_start(self.path)
        if model.sha256 != self.sha256:
            raise ModelError(
                f"{self.path}: the weights have changed since the training started"
            )
        pretrained = model.one_encoder()
        if self.settings.extend_positions:
            extend_positions(pretrained, self.config.max_length)
        weights = pretrained.state_dict()
        if encoder.config.kmers and not pretrained.config.kmers:
            # These start at zero: without training, the encoder computes what the pretrained one does.
            weights |= {
                name: value
                for name, value in encoder.state_dict().items()
                if name not in weights
            }
        encoder.load_state_dict(weights)

    def provenance(self, leaked: Sequence[str] | None) -> dict[str, Any]:
        """Provenance of a model's initialization; `leaked` is the result of `seen` for the held-out data."""
        origin = {} if self.path is None else read_provenance(self.path)
        return {
            "pretrained_sha256": self.sha256,
            "held_out_contigs_seen_in_pretraining": None
            if leaked is None
            else list(leaked),
            **{key: came for key, came in origin.items() if key == "imported_from"},
        }

    def seen(self, held_out: "pd.DataFrame") -> list[str] | None:
        """Contigs, or named regions of split contigs, in the pretrained model's recorded training data that
        overlap the held-out windows or bins `held_out` (contig, start, end); None without a record."""
        if self.path is None:
            return []
        provenance = read_provenance(self.path)
        if "contigs" not in provenance:
            log(
                f"{self.path} has no record of its training data, which may include held-out contigs"
            )
            return None
        divided: defaultdict[str, list[Interval]] = defaultdict(list)
        for text in provenance.get("stretches", ()):
            region = read_named_region(text)
            divided[region.contig].append(region)
        rows = {
            str(contig): windows
            for contig, windows in held_out.groupby("contig", observed=True)
        }
        trained = {*provenance.get("contigs", ())} & rows.keys()
        leaked = [contig for contig in sorted(trained) if contig not in divided]
        for contig in sorted(trained & divided.keys()):
            starts, ends = (
                rows[contig]["start"].to_numpy(),
                rows[contig]["end"].to_numpy(),
            )
            leaked += [
                format_named_region(region)
                for region in divided[contig]
                if ((starts < region.end) & (ends > region.start)).any()
            ]
        if leaked:
            log(
                f"warning: {self.path} was pretrained on held-out contigs: {', '.join(leaked)}"
            )
        return leaked


@dataclass(eq=False)
class FinetuningTask(ModelTask[M]):
    """A task whose encoder is pretrained or randomly initialized."""

    name: ClassVar[str]  # name of its section of the configuration
    run: Config
    tokenizer_path: Path | None
    pretrained: Path | None

    @property
    @abstractmethod
    def section(self) -> PromoterConfig | ChromatinConfig | SequencesConfig:
        """The section of the run's configuration for this task."""

    @property
    def config(self) -> TrainingConfig:
        return self.section.training

    @property
    def inputs(self) -> Sequence[Path]:
        return [
            path for path in (self.tokenizer_path, self.pretrained) if path is not None
        ]

    def new_tokenizer(self) -> Tokenizer:
        """The tokenizer of a model that is randomly initialized."""
        assert self.tokenizer_path is not None
        return load_tokenizer(self.tokenizer_path)

    def configured_encoder(self, start: LoadedModel | None) -> EncoderConfig:
        """The configuration of the encoder, given the pretrained model."""
        return self.run.encoder

    @cached_property
    def start(self) -> Initialization:
        """The encoder's initialization: `pretrained` with its tokenizer, or, if `initial` is "random", random
        weights and the tokenizer of `tokenizer_path`.

        Positions are extended if allowed, which may change the rotary scale or base. `ConfigError`: the
        pretrained model is missing, or its encoder differs.
        """
        section, settings = f"{self.name}.model", self.section.model
        random = settings.initial == "random"
        if not random and self.pretrained is None:
            raise ConfigError(
                f"{section}.initial 'pretrained' needs a pretrained model"
            )
        start = (
            None if random or self.pretrained is None else load_start(self.pretrained)
        )
        reader = start.tokenizer if start else self.new_tokenizer()
        encoder = encoder_for(self.configured_encoder(start), reader)
        if settings.dropout is not None:
            encoder = encoder.model_copy(update={"dropout": settings.dropout})
        if start is None:
            return Initialization(encoder, reader, settings)
        free = FREE if start.config.kmers else {*FREE, "kmers"}
        if start.config.model_dump(exclude=free) != encoder.model_dump(exclude=free):
            raise ConfigError(
                f"{start.path}: the encoder differs from the configuration's"
            )
        trained, positions = start.config.max_length, encoder.max_length
        if trained != positions:
            if not settings.extend_positions or trained > positions:
                raise ConfigError(
                    f"{start.path}: the encoder has {trained} positions, encoder.max_length is {positions}; "
                    f"positions can only be increased, with {section}.extend_positions"
                )
            log(f"{start.path}: {trained} positions extended to {positions}")
        return Initialization(encoder, reader, settings, start.path, start.sha256)

    def adapt(self, network: nn.Module) -> Adaptation | None:
        adaptation = adapt(network, self.section.training)
        if adaptation is not None:
            log(
                f"adapt {self.section.training.adapt}: {adaptation.trained:,} parameters are trained"
            )
        return adaptation

    @property
    def encoder(self) -> EncoderConfig:
        return self.start.config

    @property
    def tokenizer(self) -> Tokenizer:
        return self.start.tokenizer

    def identity(self) -> dict[str, Any]:
        """Includes the encoder's initialization."""
        return super().identity() | {
            "start": [self.start.settings.deciding(), self.start.sha256]
        }


@dataclass(eq=False)
class GenomeTask(FinetuningTask[M]):
    """A task on the data set in the directory `data`, of windows or bins of a reference."""

    data: Path
    reference: Reference
    # Held-out sequences seen by the pretrained model, set by `check`.
    leaked: Sequence[str] | None = field(default=(), init=False)

    @property
    def inputs(self) -> Sequence[Path]:
        return [self.data, self.reference.path, *super().inputs]

    @property
    @abstractmethod
    def held_out(self) -> "pd.DataFrame":
        """Held-out windows or bins, with the columns contig, start and end."""

    def check(self) -> None:
        """Record held-out sequences that the pretrained model has seen."""
        self.leaked = self.start.seen(self.held_out)


def load_start(path: Path) -> LoadedModel:
    """A model of any task, for its encoder; `ModelError` for several encoders, or a tokenizer of text."""
    model = load(path)
    model.one_encoder("initial encoder")
    if not model.tokenizer.is_dna:
        raise ModelError(f"{path}: the tokenizer is not for DNA")
    return model


def read_provenance(model: Path) -> dict[str, Any]:
    """The content of `provenance.json`, {} if missing; `DataError` or `ModelError` if it is damaged.

    If present, "contigs" is a list of names, and `stretches` a list of named regions: all regions read from
    split contigs.
    """
    path = model / RECORD
    if not path.is_file():
        return {}
    values = read_object(path)
    contigs = values.get("contigs", [])
    if not isinstance(contigs, list) or not all(
        isinstance(name, str) for name in contigs
    ):
        raise ModelError(f"{path}: contigs is not a list of names")
    stretches = values.get("stretches", [])
    try:
        regions = isinstance(stretches, list) and all(
            isinstance(text, str) and read_named_region(text) for text in stretches
        )
    except ValueError:
        regions = False
    if not regions:
        raise ModelError(
            f"{path}: `stretches` is not a list of regions (such as 22:1001-2000)"
        )
    return values
