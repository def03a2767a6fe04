"""What fine-tuning starts from: a pretrained encoder, or fresh weights."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bigbird_dna.config import EncoderConfig, StartConfig, TrainingConfig
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.regions import format_named_region, read_named_region
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.model.directory import encoder_for, load_pretrained
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.longer_inputs import Extension, extend_positions
from bigbird_dna.model.model import Model
from bigbird_dna.model.settings import Settings
from bigbird_dna.tasks.provenance import read_provenance
from bigbird_dna.tasks.run import Run
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.text import load_tokenizer
from bigbird_dna.training.distributed import World


class Start(NamedTuple):
    """The encoder's configuration and tokenizer, and the pretrained model, if there is one."""

    config: EncoderConfig
    tokenizer: Tokenizer
    model: Model | None
    settings: StartConfig

    @property
    def sha256(self) -> str | None:
        """Checksum of the pretrained weights."""
        return self.model.sha256 if self.model else None

    def begin(
        self,
        settings: Settings,
        training: TrainingConfig,
        identity: Mapping[str, Any],
        checkpoints: Path,
        world: World,
    ) -> Run:
        """The fine-tuning of a fresh model; `identity` as in `Run.begin`, but for what it starts from."""
        whole = {"start": [self.settings.deciding(), self.sha256], **identity}
        return Run.begin(self.config, self.tokenizer, settings, training, whole, checkpoints, world)

    def initialise(self, encoder: Encoder) -> None:
        """Give an encoder of `config` the pretrained weights; fresh ones stay where there are none."""
        if self.model is not None:
            assert isinstance(self.model.network, PretrainingNetwork)
            encoder.load_state_dict(self.model.network.encoder.state_dict())

    def provenance(self, leaked: Sequence[str]) -> dict[str, Any]:
        """What a model says of its start; `leaked` is what was `seen` of what is held out."""
        return {"pretrained_sha256": self.sha256, "held_out_contigs_seen_in_pretraining": list(leaked)}

    def seen(self, held_out: pd.DataFrame) -> list[str]:
        """What the pretrained model says it was trained on and has windows that are held out now.

        Contigs, or where it was trained on regions of one, those regions. Nothing if it doesn't say.

        Parameters
        ----------
        held_out
            Windows or bins, with the columns contig, start and end.
        """
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


def make_start(
    config: EncoderConfig, settings: StartConfig, pretrained: Path | None, tokenizer: Path, section: str
) -> Start:
    """Read what fine-tuning starts from.

    Parameters
    ----------
    settings
        Of the task's model: `initial` (weights), `dropout` while fine-tuning (none: the encoder's) and
        `extend_positions` (how a pretrained encoder of fewer positions gets those of `config`; none: refuse).
    pretrained
        Model directory of a pretraining, whose tokenizer is taken; not read where `initial` is "random".
    tokenizer
        Read where there is no pretrained model.
    section
        Of the configuration that `settings` is, for messages.

    Raises
    ------
    ConfigError
        No pretrained model was given where one is needed, or its encoder is another than the configuration's.
    """
    if settings.initial == "random":
        pretrained = None
    elif pretrained is None:
        raise ConfigError(f"{section}.initial is 'pretrained', but no pretrained model was given")
    start = load_pretrained(pretrained) if pretrained else None
    reader = start.tokenizer if start else load_tokenizer(tokenizer)
    encoder = encoder_for(config, reader)
    if settings.dropout is not None:
        encoder = encoder.model_copy(update={"dropout": settings.dropout})
    if start:
        encoder = _fitted(start, encoder, settings.extend_positions, section)
    return Start(encoder, reader, start, settings)


def _fitted(start: Model, encoder: EncoderConfig, extend: Extension | None, section: str) -> EncoderConfig:
    """The configuration for the weights of `start`, whose positions are extended where that is allowed.

    It is `encoder`, but for the rotary scale or base that an extension changes.
    """
    if _shapes(start.config) != _shapes(encoder):
        raise ConfigError(f"{start.path}: its encoder is another than the configuration's")
    trained = start.config.positions
    if trained == encoder.positions:
        return encoder
    if extend is None or trained > encoder.positions:
        raise ConfigError(
            f"{start.path}: has {trained} positions, encoder.positions is {encoder.positions}; "
            f"too few can be extended, see {section}.extend_positions"
        )
    network = start.network
    assert isinstance(network, PretrainingNetwork)
    extend_positions(network.encoder, encoder.positions, extend)
    log(f"{start.path}: {trained} positions extended to {encoder.positions} ({extend})")
    return encoder.model_copy(
        update=network.encoder.config.model_dump(include={"rotary_base", "rotary_scale"})
    )


def _shapes(config: EncoderConfig) -> dict[str, Any]:
    """What must agree between a checkpoint's encoder and the one that takes its weights: the network."""
    free = {
        *("dropout", "attention_dropout", "route", "gradient_checkpointing", "positions"),
        "initial_heads",
    }
    return config.model_dump(exclude=free)
