"""Initialization of fine-tuning, from a pretrained encoder or random weights, and a model's provenance."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.training import StartConfig
from bigbird_dna.console import log
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ConfigError, ModelError
from bigbird_dna.genome.splits import format_named_region, read_named_region
from bigbird_dna.model.directory import encoder_for, extend_positions, load
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.weights import RECORD
from bigbird_dna.tokens.interface import Tokenizer

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

        # Contigs that were read in part, with the regions read.
        regions = [read_named_region(text) for text in provenance.get("stretches", ())]
        divided = {region.contig for region in regions}
        contigs = held_out["contig"].astype(str)
        trained = {*provenance["contigs"]} & {*contigs}
        leaked = sorted(trained - divided)
        for region in sorted(regions, key=lambda region: region.contig):
            overlaps = (
                (contigs == region.contig)
                & (held_out["start"] < region.end)
                & (held_out["end"] > region.start)
            )
            if overlaps.any():
                leaked.append(format_named_region(region))

        if leaked:
            log(
                f"warning: {self.path} was pretrained on held-out contigs: {', '.join(leaked)}"
            )

        return leaked


def initialization(
    section: str,
    settings: StartConfig,
    encoder: EncoderConfig,
    new_tokenizer: Callable[[], Tokenizer],
    pretrained: Path | None,
) -> Initialization:
    """The initialization of the configured encoder: the model `pretrained` with its tokenizer, or, if
    `settings.initial` is "random", random weights and a new tokenizer.

    Positions are extended if allowed. `ConfigError`, which names
    the `section`: the pretrained model is missing, or its encoder differs.
    """
    start = None
    if settings.initial == "pretrained":
        if pretrained is None:
            raise ConfigError(
                f"{section}.initial 'pretrained' needs a pretrained model"
            )

        start = load_start(pretrained)

    tokenizer = start.tokenizer if start else new_tokenizer()
    encoder = encoder_for(encoder, tokenizer)
    if settings.dropout is not None:
        encoder = encoder.model_copy(update={"dropout": settings.dropout})

    if start is None:
        return Initialization(encoder, tokenizer, settings)

    free = FREE if start.config.kmers else {*FREE, "kmers"}
    if start.config.model_dump(exclude=free) != encoder.model_dump(exclude=free):
        raise ConfigError(f"{start.path}: the encoder differs from the configuration's")

    trained, positions = start.config.max_length, encoder.max_length
    if trained != positions:
        if not settings.extend_positions or trained > positions:
            raise ConfigError(
                f"{start.path}: the encoder has {trained} positions, encoder.max_length is {positions}; "
                f"positions can only be increased, with {section}.extend_positions"
            )

        log(f"{start.path}: {trained} positions extended to {positions}")

    return Initialization(encoder, tokenizer, settings, start.path, start.sha256)


def load_start(path: Path) -> LoadedModel:
    """A model of any task, for its encoder; `ModelError` for several encoders, or a tokenizer of text."""
    model = load(path)
    model.one_encoder("initial encoder")
    if not model.tokenizer.is_dna:
        raise ModelError(f"{path}: the tokenizer is not for DNA")
    return model


def read_provenance(model: Path) -> dict[str, Any]:
    """The content of `provenance.json`, {} if missing; `DataError` or `ModelError` if it is damaged."""
    path = model / RECORD
    provenance = read_object(path) if path.is_file() else {}
    contigs = provenance.get("contigs", [])
    if not isinstance(contigs, list) or not all(isinstance(x, str) for x in contigs):
        raise ModelError(f"{path}: contigs must be a list of names")
    return provenance
