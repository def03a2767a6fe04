"""What fine-tuning starts from, a pretrained encoder or fresh weights, and what a model was made from."""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pandas as pd

from bigbird_dna.calibration.maps import FILE as CALIBRATION
from bigbird_dna.config import (
    ChromatinConfig,
    Config,
    EncoderConfig,
    PromoterConfig,
    StartConfig,
    TrainingConfig,
)
from bigbird_dna.console import log
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import ConfigError, ModelError, UsageError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.splits import format_named_region, read_named_region
from bigbird_dna.model.directory import CONFIG, WEIGHTS, encoder_for, extend_positions, load_pretrained
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.weights import RECORD
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.text import TOKENIZER_FILES, load_tokenizer
from bigbird_dna.training.task import M, ModelTask

# What may differ between a checkpoint's encoder and the one that takes its weights: it isn't the network.
FREE = {
    *("dropout", "attention_dropout", "attention_backend", "gradient_checkpointing"),
    *("max_length", "head_init"),
}


class Initialization(NamedTuple):
    """The encoder's configuration and tokenizer, and the pretrained model, if there is one."""

    config: EncoderConfig
    tokenizer: Tokenizer
    model: LoadedModel | None
    settings: StartConfig

    @property
    def sha256(self) -> str | None:
        """Checksum of the pretrained weights."""
        return self.model.sha256 if self.model else None

    def apply(self, encoder: Encoder) -> None:
        """Give an encoder of `config` the pretrained weights; fresh ones stay where there are none."""
        if self.model is not None:
            assert isinstance(self.model.network, PretrainingNetwork)
            encoder.load_state_dict(self.model.network.encoder.state_dict())

    def provenance(self, leaked: Sequence[str]) -> dict[str, Any]:
        """What a model says of its start; `leaked` is what was `seen` of what is held out."""
        return {"pretrained_sha256": self.sha256, "held_out_contigs_seen_in_pretraining": list(leaked)}

    def seen(self, held_out: pd.DataFrame) -> list[str]:
        """Contigs, or named regions of divided ones, that the pretrained model says it was trained on and
        that windows or bins `held_out` (contig, start, end) overlap; nothing if it doesn't say."""
        model = self.model
        if model is None or model.path is None:
            return []
        provenance = read_provenance(model.path)
        divided: defaultdict[str, list[Interval]] = defaultdict(list)
        for text in provenance.get("stretches", ()):
            region = read_named_region(text)
            divided[region.contig].append(region)
        rows = {str(contig): own for contig, own in held_out.groupby("contig", observed=True)}
        trained = {*provenance.get("contigs", ())} & rows.keys()
        leaked = [contig for contig in sorted(trained) if contig not in divided]
        for contig in sorted(trained & divided.keys()):
            starts, ends = rows[contig]["start"].to_numpy(), rows[contig]["end"].to_numpy()
            leaked += [
                format_named_region(region)
                for region in divided[contig]
                if ((starts < region.end) & (ends > region.start)).any()
            ]
        if leaked:
            log(f"warning: {model.path} was pretrained on held-out contigs: {', '.join(leaked)}")
        return leaked


@dataclass(eq=False)
class FinetuningTask(ModelTask[M]):
    """A task on the data set in the directory `data`, whose encoder starts as a pretrained one, or with fresh
    weights."""

    name: ClassVar[str]  # of its section of the configuration
    run: Config
    data: Path
    reference: Reference
    tokenizer_path: Path
    pretrained: Path | None
    # What the pretrained model has seen of what is held out, once `check` was called.
    leaked: Sequence[str] = field(default=(), init=False)

    @property
    @abstractmethod
    def section(self) -> PromoterConfig | ChromatinConfig:
        """The run's, as the data are."""

    @property
    def config(self) -> TrainingConfig:
        return self.section.training

    @property
    def inputs(self) -> Sequence[Path]:
        read = [self.data, self.reference.path, self.tokenizer_path]
        return [*read, self.pretrained] if self.pretrained else read

    @cached_property
    def start(self) -> Initialization:
        """What the encoder starts from: `pretrained` with its tokenizer, or where `initial` is "random" fresh
        weights and the tokenizer of `tokenizer_path`.

        Its positions are extended where that is allowed, which may change the rotary scale or base.
        `ConfigError`: there is no pretrained model, or its encoder is another one.
        """
        section, settings = f"{self.name}.model", self.section.model
        random = settings.initial == "random"
        if not random and self.pretrained is None:
            raise ConfigError(f"{section}.initial is 'pretrained', but no pretrained model was given")
        start = None if random or self.pretrained is None else load_pretrained(self.pretrained)
        reader = start.tokenizer if start else load_tokenizer(self.tokenizer_path)
        encoder = encoder_for(self.run.encoder, reader)
        if settings.dropout is not None:
            encoder = encoder.model_copy(update={"dropout": settings.dropout})
        if start is None:
            return Initialization(encoder, reader, start, settings)
        if start.config.model_dump(exclude=FREE) != encoder.model_dump(exclude=FREE):
            raise ConfigError(f"{start.path}: its encoder is another than the configuration's")
        trained, wanted, extend = start.config.max_length, encoder.max_length, settings.extend_positions
        if trained != wanted:
            if extend is None or trained > wanted:
                raise ConfigError(
                    f"{start.path}: has {trained} positions, encoder.max_length is {wanted}; "
                    f"too few can be extended, see {section}.extend_positions"
                )
            assert isinstance(start.network, PretrainingNetwork)
            extended = start.network.encoder
            extend_positions(extended, wanted, extend)
            log(f"{start.path}: {trained} positions extended to {wanted} ({extend})")
            changed = extended.config.model_dump(include={"rotary_base", "rotary_scale"})
            encoder = encoder.model_copy(update=changed)
        return Initialization(encoder, reader, start, settings)

    @property
    @abstractmethod
    def held_out(self) -> pd.DataFrame:
        """Windows or bins that aren't learnt from, with the columns contig, start and end."""

    @property
    def encoder(self) -> EncoderConfig:
        return self.start.config

    @property
    def tokenizer(self) -> Tokenizer:
        return self.start.tokenizer

    def identity(self) -> dict[str, Any]:
        """What the encoder starts from as well."""
        return super().identity() | {"start": [self.start.settings.deciding(), self.start.sha256]}

    def check(self) -> None:
        """Look for held-out sequence that the pretrained model has seen."""
        self.leaked = self.start.seen(self.held_out)


def read_provenance(model: Path) -> dict[str, Any]:
    """The content of `provenance.json`, {} where there is none; `DataError` or `ModelError` if it is damaged.

    If they are there, "contigs" is a list of names, and "stretches" one of named regions: all that was read
    of those contigs that were divided.
    """
    path = model / RECORD
    if not path.is_file():
        return {}
    values = read_mapping(path)
    contigs = values.get("contigs", [])
    if not isinstance(contigs, list) or not all(isinstance(name, str) for name in contigs):
        raise ModelError(f"{path}: contigs is not a list of names")
    stretches = values.get("stretches", [])
    try:
        regions = isinstance(stretches, list) and all(
            isinstance(text, str) and read_named_region(text) for text in stretches
        )
    except ValueError:
        regions = False
    if not regions:
        raise ModelError(f"{path}: stretches is not a list of regions (as 22:1001-2000)")
    return values


def model_files(model: LoadedModel, calibrated: bool = False) -> list[Path]:
    """The files that decide what a model predicts, or its calibrated probabilities; `UsageError` if
    unsaved."""
    if model.path is None:
        raise UsageError("a piece of a job needs a model that was saved, so that others can use the same")
    names = (CONFIG, WEIGHTS, *TOKENIZER_FILES, *([CALIBRATION] if calibrated else []))
    return [path for name in names if (path := model.path / name).is_file()]
