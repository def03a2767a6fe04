"""Import checkpoints of BigBird-Pegasus.

No code of a checkpoint is run, and `config.json` is not trusted: shapes are first compared with those of the
tensors.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from bigbird_dna.config import EncoderConfig
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import ModelError, shortened
from bigbird_dna.huggingface.configuration import Compatibility, encoder_config
from bigbird_dna.huggingface.exchange import join_tied
from bigbird_dna.huggingface.names import check_tensor, read_weights
from bigbird_dna.huggingface.tensors import read_tensors
from bigbird_dna.huggingface.tokenizer_files import special_names
from bigbird_dna.model.directory import make_model
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.weights import shapes_only
from bigbird_dna.papers.nlp.config import DecoderShape, SearchConfig, SpecialIds
from bigbird_dna.papers.nlp.initialization import open_tokenizer
from bigbird_dna.papers.nlp.summaries.network import (
    PegasusSummarizer,
    SummariesSettings,
)
from bigbird_dna.tokens.interface import Tokenizer

MODEL_TYPE = "bigbird_pegasus"
ARCHITECTURE = "BigBirdPegasusForConditionalGeneration"
LAYER_NORM_EPSILON = 1e-5  # not in config.json: default of the library

# Key of BigBirdPegasus, key of BigBird, and default.
_KEYS: tuple[tuple[str, str, Any], ...] = (
    ("vocab_size", "vocab_size", 96103),
    ("encoder_layers", "num_hidden_layers", 16),
    ("d_model", "hidden_size", 1024),
    ("encoder_attention_heads", "num_attention_heads", 16),
    ("encoder_ffn_dim", "intermediate_size", 4096),
    ("max_position_embeddings", "max_position_embeddings", 4096),
    ("dropout", "hidden_dropout_prob", 0.1),
    ("attention_dropout", "attention_probs_dropout_prob", 0.0),
    ("activation_function", "hidden_act", "gelu_new"),
    ("scale_embedding", "rescale_embeddings", True),
    ("attention_type", "attention_type", "block_sparse"),
    ("block_size", "block_size", 64),
    ("num_random_blocks", "num_random_blocks", 3),
)
_DECODER = (
    ("layers", "decoder_layers", 16),
    ("heads", "decoder_attention_heads", 16),
    ("intermediate", "decoder_ffn_dim", 4096),
)
_MOST = 1 << 20
# Names of the same tensor in checkpoints; HuggingFace uses the first.
_TIED = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
_PROJECTIONS = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "out_proj",
}
_FORWARD = {
    **{"attention_norm": "self_attn_layer_norm", "intermediate": "fc1"},
    **{"output": "fc2", "output_norm": "final_layer_norm"},
}
_PARTS = {
    "encoder": {
        **{part: f"self_attn.self.{part}" for part in ("query", "key", "value")},
        **{"attention_output": "self_attn.output", **_FORWARD},
    },
    "decoder": {
        **{
            f"attention.{ours}": f"self_attn.{theirs}"
            for ours, theirs in _PROJECTIONS.items()
        },
        **{
            f"cross.{ours}": f"encoder_attn.{theirs}"
            for ours, theirs in _PROJECTIONS.items()
        },
        **{"cross_norm": "encoder_attn_layer_norm", **_FORWARD},
    },
}


class ImportedPegasus(NamedTuple):
    """Content of a checkpoint directory, except its tokenizer."""

    network: PegasusSummarizer  # in evaluation mode
    config: EncoderConfig
    shape: DecoderShape
    special: SpecialIds
    search: SearchConfig  # of the checkpoint, with defaults for missing keys


def read_settings(path: Path) -> Mapping[str, Any]:
    """Read a JSON file; return an empty mapping if there is none."""
    return read_mapping(path) if path.is_file() else {}


def is_pegasus(directory: Path) -> bool:
    """Return whether the configuration of a directory is that of a BigBirdPegasus checkpoint."""
    return read_settings(directory / "config.json").get("model_type") == MODEL_TYPE


def import_pegasus(
    directory: Path, compatibility: Compatibility = "huggingface"
) -> ImportedPegasus:
    """Read a checkpoint: `config.json`, and weights as safetensors or PyTorch files, possibly in shards.

    With the compatibility `huggingface`, block-sparse attention is computed as in HuggingFace's evaluation
    mode, with equal logits; with `none`, it has the paper's pattern with random blocks.
    """
    path = directory / "config.json"
    if not path.is_file():
        raise ModelError(
            f"{directory}: not a checkpoint directory: config.json is missing"
        )
    values = read_mapping(path)
    config, shape = pegasus_config(values, compatibility, str(path))
    generation = {**values, **read_settings(directory / "generation_config.json")}
    special = _special_ids(generation, config.vocabulary, str(path))
    search = _search(generation, config.max_length, str(path))
    tensors = read_tensors(directory)
    join_tied(tensors, [_TIED], directory)
    check_tensor(tensors, _TIED[0], (config.vocabulary, config.hidden), directory)
    for part, count in (("encoder", config.layers), ("decoder", shape.layers)):
        own = f"model.{part}"
        check_tensor(
            tensors,
            f"{own}.embed_positions.weight",
            (config.max_length, config.hidden),
            directory,
        )
        for index in range(count):
            check_tensor(
                tensors, f"{own}.layers.{index}.fc2.bias", (config.hidden,), directory
            )
    with shapes_only():
        network = PegasusSummarizer(config, shape)
    wanted = network.state_dict()
    wanted["logits_bias"] = wanted["logits_bias"][None]

    def optional(theirs: str) -> bool:
        """Biases of the logits, and biases of attention unless `use_bias` is set."""
        of_attention = (
            "attn" in theirs and "layer_norm" not in theirs and theirs.endswith(".bias")
        )
        return theirs == "final_logits_bias" or (
            of_attention and not values.get("use_bias")
        )

    weights = read_weights(
        tensors, wanted, pegasus_name, optional, ARCHITECTURE, directory
    )
    network.load_state_dict(
        {**weights, "logits_bias": weights["logits_bias"][0]}, assign=True
    )
    return ImportedPegasus(
        network.requires_grad_().eval(), config, shape, special, search
    )


def pegasus_config(
    values: Mapping[str, Any], compatibility: Compatibility, source: str
) -> tuple[EncoderConfig, DecoderShape]:
    """Return encoder and decoder described by a `config.json`; `ModelError` names an unsupported key."""
    if values.get("model_type") != MODEL_TYPE:
        found = shortened(repr(values.get("model_type")))
        raise ModelError(f"{source}: model_type must be {MODEL_TYPE!r}, found {found}")
    if values.get("is_decoder") or values.get("tie_word_embeddings") is False:
        key = "is_decoder" if values.get("is_decoder") else "tie_word_embeddings"
        raise ModelError(f"{source}: {key} {values[key]} is not supported")
    translated = {bigbird: values.get(key, default) for key, bigbird, default in _KEYS}
    translated |= {
        "model_type": "big_bird",
        "type_vocab_size": 1,
        "layer_norm_eps": LAYER_NORM_EPSILON,
    }
    try:
        config = encoder_config(translated, compatibility, source)
    except ModelError as error:
        text = str(error)
        for key, bigbird, _ in _KEYS:
            text = text.replace(f": {bigbird}", f": {key}")
        raise ModelError(text) from None
    sizes = {field: values.get(key, default) for field, key, default in _DECODER}
    for field, key, _ in _DECODER:
        _check_whole(sizes[field], key, 1, _MOST, source)
    if config.hidden % sizes["heads"]:
        found = f"decoder_attention_heads {sizes['heads']}"
        raise ModelError(f"{source}: {found} must divide d_model {config.hidden}")
    return config, DecoderShape(**sizes)


def _check_whole(value: Any, key: str, least: int, most: int, source: str) -> None:
    if type(value) is not int or not least <= value <= most:
        found = shortened(repr(value))
        raise ModelError(
            f"{source}: {key} {found}: must be a whole number from {least} to {most:,}"
        )


def _special_ids(values: Mapping[str, Any], vocabulary: int, source: str) -> SpecialIds:
    """Return special ids from the configuration, with the defaults of its class."""
    end = values.get("eos_token_id", 1)
    end = end[0] if isinstance(end, list) and len(end) == 1 else end
    keys: dict[str, tuple[str, Any]] = {
        "start": ("decoder_start_token_id", values.get("decoder_start_token_id", 2)),
        "end": ("eos_token_id", end),
        "pad": ("pad_token_id", values.get("pad_token_id", 0)),
    }
    for field, key in (
        ("forced_first", "forced_bos_token_id"),
        ("forced_last", "forced_eos_token_id"),
    ):
        if values.get(key) is not None:
            keys[field] = key, values[key]
    for key, value in keys.values():
        _check_whole(value, key, 0, vocabulary - 1, source)
    return SpecialIds(**{field: value for field, (_, value) in keys.items()})


def _search(values: Mapping[str, Any], positions: int, source: str) -> SearchConfig:
    """Return the search settings of a checkpoint, with its library's defaults for missing keys."""
    keys = {
        "beams": ("num_beams", 1),
        "length_penalty": ("length_penalty", 1.0),
        "early_stopping": ("early_stopping", False),
        "min_length": ("min_length", 0),
        "max_length": ("max_length", 20),
        "no_repeat": ("no_repeat_ngram_size", 0),
    }
    found: dict[str, Any] = {
        field: values.get(key) or default for field, (key, default) in keys.items()
    }
    found["length_penalty"] = values.get("length_penalty", 1.0)  # 0 is a valid value
    if type(found["length_penalty"]) is int:
        found["length_penalty"] = float(found["length_penalty"])
    if type(found["max_length"]) is int:
        found["max_length"] = min(found["max_length"], positions)
    try:
        return SearchConfig(**found)
    except ValidationError as error:
        first = error.errors()[0]
    key, value = keys[str(first["loc"][0])][0], shortened(repr(first["input"]))
    raise ModelError(f"{source}: {key} {value}: {first['msg']}")


def pegasus_name(name: str) -> str:
    """Return the checkpoint's name of the tensor `name`."""
    part, _, kind = name.rpartition(".")
    if name == "logits_bias":
        return "final_logits_bias"
    if part == "token":
        return _TIED[0]
    half, _, rest = part.partition(".")
    if rest in ("position", "norm"):
        return f"model.{half}.{'embed_positions' if rest == 'position' else 'layernorm_embedding'}.{kind}"
    _, index, rest = rest.split(".", 2)
    return f"model.{half}.layers.{index}.{_PARTS[half][rest]}.{kind}"


_PEGASUS_OFFSET = (
    103  # default offset between the model's ids and those of its SentencePiece file
)


def open_pegasus(
    directory: Path, compatibility: Compatibility, tokenizer: str | None
) -> LoadedModel:
    """Open a checkpoint as a model, see `import_pegasus`; `tokenizer` is a file to use instead of its own."""
    found = import_pegasus(directory, compatibility)
    pieces = pegasus_tokenizer(directory, found.config.vocabulary, tokenizer)
    settings = SummariesSettings(decoder=found.shape, special=found.special)
    return make_model(found.network, pieces, found.config, settings)


def pegasus_tokenizer(directory: Path, vocabulary: int, file: str | None) -> Tokenizer:
    """Open the tokenizer of a checkpoint: `file`, `tokenizer.json`, or a SentencePiece model without offset.

    Pegasus has no [CLS], [SEP] and [MASK]: if the files name none, its end and unknown tokens are used.
    """
    names = special_names(directory)
    settings = read_settings(directory / "tokenizer_config.json")
    end = settings.get("eos_token", "</s>")
    end = end.get("content") if isinstance(end, dict) else end
    end = end if isinstance(end, str) else "</s>"
    unknown = names.setdefault("unk", "<unk>")
    names = {"pad": "<pad>", "cls": end, "sep": end, "mask": unknown, **names}
    path = Path(file) if file else directory / "tokenizer.json"
    if file is None and not path.is_file():
        path = directory / "spiece.model"
        if not path.is_file():
            raise ModelError(
                f"{directory}: no tokenizer: tokenizer.json and spiece.model are missing"
            )
        if (offset := settings.get("offset", _PEGASUS_OFFSET)) != 0:
            raise ModelError(
                f"{path}: ids of Pegasus have the offset {offset}; a tokenizer.json is needed"
            )
    return open_tokenizer(path, vocabulary, names)
