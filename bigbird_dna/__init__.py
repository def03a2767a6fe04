"""Sparse-attention DNA language models: from a reference genome to promoter scores.

The names below are imported on first use, so that light commands stay light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bigbird_dna.attention import ATTENTIONS, bigbird_attention
    from bigbird_dna.config import EncoderConfig
    from bigbird_dna.model.directory import load
    from bigbird_dna.model.encoder import Encoder
    from bigbird_dna.tokens.tokenizer import DnaTokenizer

__all__ = ["ATTENTIONS", "DnaTokenizer", "Encoder", "EncoderConfig", "bigbird_attention", "load"]

_HOMES = {
    "ATTENTIONS": "bigbird_dna.attention",
    "DnaTokenizer": "bigbird_dna.tokens.tokenizer",
    "Encoder": "bigbird_dna.model.encoder",
    "EncoderConfig": "bigbird_dna.config",
    "bigbird_attention": "bigbird_dna.attention",
    "load": "bigbird_dna.model.directory",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
