"""Sparse-attention DNA language models: from a reference genome to promoter scores, tracks and variants.

The names below are imported on first use, so that light commands stay light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bigbird_dna.attention import ATTENTIONS, bigbird_attention
    from bigbird_dna.config import EncoderConfig
    from bigbird_dna.model.chromatin_model import ChromatinModel
    from bigbird_dna.model.directory import load
    from bigbird_dna.model.encoder import Encoder
    from bigbird_dna.model.model import Model
    from bigbird_dna.model.promoter_model import PromoterModel
    from bigbird_dna.reporting.tracks.report import auc_report
    from bigbird_dna.tasks.chromatin.prediction import predict_tracks
    from bigbird_dna.tasks.promoters.scoring import score_promoters
    from bigbird_dna.tasks.variants.scoring import score_variants
    from bigbird_dna.tokens.tokenizer import DnaTokenizer

__all__ = [
    "ATTENTIONS",
    "ChromatinModel",
    "DnaTokenizer",
    "Encoder",
    "EncoderConfig",
    "Model",
    "PromoterModel",
    "auc_report",
    "bigbird_attention",
    "load",
    "predict_tracks",
    "score_promoters",
    "score_variants",
]

_HOMES = {
    "ATTENTIONS": "bigbird_dna.attention",
    "ChromatinModel": "bigbird_dna.model.chromatin_model",
    "DnaTokenizer": "bigbird_dna.tokens.tokenizer",
    "Encoder": "bigbird_dna.model.encoder",
    "EncoderConfig": "bigbird_dna.config",
    "Model": "bigbird_dna.model.model",
    "PromoterModel": "bigbird_dna.model.promoter_model",
    "auc_report": "bigbird_dna.reporting.tracks.report",
    "bigbird_attention": "bigbird_dna.attention",
    "load": "bigbird_dna.model.directory",
    "predict_tracks": "bigbird_dna.tasks.chromatin.prediction",
    "score_promoters": "bigbird_dna.tasks.promoters.scoring",
    "score_variants": "bigbird_dna.tasks.variants.scoring",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
