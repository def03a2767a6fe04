"""The model that fine-tuning starts from, in place of pretraining: `pretraining.start_from`."""

from pathlib import Path

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.run import Config
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ConfigError, ModelError
from bigbird_dna.genome.sources import locate, searched
from bigbird_dna.huggingface.configuration import Compatibility, encoder_config
from bigbird_dna.model.catalog import find_model
from bigbird_dna.model.directory import CONFIG, read_encoder_config
from bigbird_dna.training.initialization import FREE

KEY = "pretraining.start_from"


def find_start(config: Config) -> Path:
    """The directory of the model that the configuration starts from; `ConfigError` if there is none."""
    name = config.pretraining.start_from
    if name is None:
        raise ConfigError(f"{KEY} is null: no model to start from")

    path = find_model(locate(name, config.data_dir))
    if not path.is_dir():
        where = searched(config)
        raise ConfigError(
            f"{KEY}: {name!r} is not a directory {where}, nor the name of a bundled model"
        )

    if not (path / CONFIG).is_file():
        raise ConfigError(
            f"{KEY}: {path} is not the directory of a model: {CONFIG} is missing"
        )

    return path


def start_files(config: Config) -> list[Path]:
    """The files of the model that the configuration starts from, as inputs of a rule."""
    return sorted(path for path in find_start(config).iterdir() if path.is_file())


def start_command(config: Config, output: str) -> list[str]:
    """The words of the command that writes the model directory `output` that the configuration starts from."""
    path = find_start(config)
    if "model_type" not in read_object(path / CONFIG):
        return ["cp", "-R", str(path), output]
    attention = ["--compatibility", _compatibility(config.encoder)]
    return ["bigbird-dna", "import-hf", str(path), output, *attention]


def _compatibility(encoder: EncoderConfig) -> Compatibility:
    """The attention of a checkpoint: as in HuggingFace, unless the configuration sets it."""
    is_set = "compatibility" in encoder.model_fields_set
    return encoder.compatibility if is_set else "huggingface"


def with_start(config: Config) -> Config:
    """`config` with the encoder of the model that it starts from, if any; only its description is read.

    Keys of `encoder` that do not change weights, such as max_length, keep their values in the configuration.
    `ConfigError` for another key that is set and differs from the model's.
    """
    if config.pretraining.start_from is None:
        return config

    path, encoder = find_start(config), config.encoder
    try:
        values = read_object(path / CONFIG)
        if "model_type" in values:
            source = str(path / CONFIG)
            stored = encoder_config(values, _compatibility(encoder), source)
        else:
            stored = read_encoder_config(path)
    except ModelError as error:
        raise ConfigError(f"{KEY}: {error}") from None

    changes = {}
    for key in sorted(encoder.model_fields_set):
        configured, value = getattr(encoder, key), getattr(stored, key)
        if key in FREE:
            changes[key] = configured
        elif configured != value and (key, configured) not in (
            ("vocabulary", 0),
            ("intermediate", 0),
        ):
            raise ConfigError(
                f"encoder.{key} {configured}: the model in {KEY} has {value}; remove the key, or set that value"
            )

    return config.model_copy(update={"encoder": stored.model_copy(update=changes)})
