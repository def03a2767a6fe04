"""BigBird from RoBERTa: the warm start of the paper (App. E.1), as a checkpoint in BigBird's form.

RoBERTa's table of positions begins with two rows that no token has (its `padding_idx` + 1); the rows behind
them are repeated up to the positions wanted (Longformer, Beltagy et al. 2020, section 5, does the same). Its
one token type becomes the type of both sentences. Layers and the masked-token head keep their weights: they
are BERT's, name for name. Special pieces keep their ids, under RoBERTa's names (`<s>`, `</s>`, `<mask>`).
"""

import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import ModelError, shortened
from bigbird_dna.huggingface.tensors import read_tensors
from bigbird_dna.model.longer_inputs import extended_table

MODEL_TYPE = "roberta"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_HEAD = {
    "lm_head.dense": "cls.predictions.transform.dense",
    "lm_head.layer_norm": "cls.predictions.transform.LayerNorm",
}
# What BigBird has no use for: RoBERTa's pooler, and what is tied or follows from the configuration.
_LEFT_OUT = re.compile(r"roberta\.(pooler\.|embeddings\.position_ids)|lm_head\.decoder\.")
_KEPT = (
    *("vocab_size", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "hidden_act", "layer_norm_eps"),
)


def write_bigbird(directory: Path, output: Path, positions: int) -> None:
    """Write a BigBirdForMaskedLM of HuggingFace's into the directory `output`, from a RobertaForMaskedLM.

    Raises
    ------
    ModelError
        A file is missing or damaged, or tensors of a masked-token model are missing.
    """
    values = read_mapping(directory / "config.json")
    if values.get("model_type") != MODEL_TYPE:
        raise ModelError(f"{directory / 'config.json'}: model_type is not {MODEL_TYPE!r}")
    pad = values.get("pad_token_id", 1)
    if type(pad) is not int or not 0 <= pad < 1000:
        raise ModelError(f"{directory / 'config.json'}: pad_token_id {shortened(repr(pad))} is no id")
    if positions < 16:
        raise ModelError(f"positions {positions}: the least are 16")
    tensors = _renamed(directory)
    tensors |= _embeddings(tensors, directory, pad + 1, positions)
    kept: dict[str, Any] = {key: values[key] for key in _KEPT if key in values}
    # RoBERTa's own defaults, where they aren't BigBird's.
    defaults: dict[str, Any] = {"vocab_size": 50265, "hidden_act": "gelu", "layer_norm_eps": 1e-12}
    kept = defaults | kept
    for key in ("pad_token_id", "bos_token_id", "eos_token_id"):
        if key in values:
            kept[key] = values[key]
    kept |= {
        "model_type": "big_bird",
        "architectures": ["BigBirdForMaskedLM"],
        "max_position_embeddings": positions,
        "type_vocab_size": 2,
        "attention_type": "block_sparse",
        "block_size": 64,
        "num_random_blocks": 3,
        "use_bias": True,
        "rescale_embeddings": False,
        "sep_token_id": values.get("eos_token_id", 2),
    }
    write_json(output / "config.json", kept)
    save_file(tensors, output / "model.safetensors")
    for name in _TOKENIZER_FILES:
        if (directory / name).is_file():
            shutil.copyfile(directory / name, output / name)


def _renamed(directory: Path) -> dict[str, Tensor]:
    """RoBERTa's tensors under BigBird's names."""
    tensors = {}
    for name, stored in read_tensors(directory).items():
        if _LEFT_OUT.match(name):
            continue
        part, _, kind = name.rpartition(".")
        if name == "lm_head.bias":
            new = "cls.predictions.bias"
        elif part in _HEAD:
            new = f"{_HEAD[part]}.{kind}"
        elif name.startswith("roberta."):
            new = "bert." + name.removeprefix("roberta.")
        else:
            raise ModelError(f"{directory}: tensor {shortened(repr(name))} is not of a RobertaForMaskedLM")
        tensors[new] = stored.read().contiguous()
    return tensors


def _embeddings(
    tensors: dict[str, Tensor], directory: Path, offset: int, positions: int
) -> dict[str, Tensor]:
    """Positions without the rows that no token has, tiled; and the token type, for both sentences."""
    found = {}
    for name in ("position_embeddings", "token_type_embeddings"):
        key = f"bert.embeddings.{name}.weight"
        if key not in tensors or tensors[key].dim() != 2:
            raise ModelError(f"{directory}: tensor 'roberta.embeddings.{name}.weight' is missing or no table")
        found[key] = tensors[key]
    key = "bert.embeddings.position_embeddings.weight"
    if len(found[key]) <= offset:
        raise ModelError(
            f"{directory}: its table of positions has {len(found[key])} rows, {offset} of no token"
        )
    found[key] = extended_table(found[key][offset:], positions, "tile")
    key = "bert.embeddings.token_type_embeddings.weight"
    found[key] = torch.cat([found[key], found[key]])[:2].contiguous()
    return found
