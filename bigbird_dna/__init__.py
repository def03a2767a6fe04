"""Sparse-attention DNA language models: from a reference genome to promoter scores, tracks and variants.

`load` returns a model with the methods `predict`, `embed`, `predict_regions` and `variant_effects`. The
functions `score_promoters`, `call_promoters`, `score_sequences`, `embed`, `predict_tracks`, `score_variants`,
`explain` and `auc_report` write files like the commands of these names.

The names below are imported on first use, so that commands import only what they need.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bigbird_dna.attention import ATTENTIONS, bigbird_attention
    from bigbird_dna.config.network import EncoderConfig
    from bigbird_dna.explanation.explain import explain
    from bigbird_dna.explanation.one_hot import OneHotModel
    from bigbird_dna.model.encoder import Encoder
    from bigbird_dna.reporting.tracks import auc_report
    from bigbird_dna.scoring.calls import call_promoters
    from bigbird_dna.scoring.embeddings import embed
    from bigbird_dna.scoring.models import (
        ChromatinModel,
        Model,
        PromoterModel,
        SequenceModel,
        load,
    )
    from bigbird_dna.scoring.promoters import score_promoters
    from bigbird_dna.scoring.sequences import score_sequences
    from bigbird_dna.scoring.tracks import predict_tracks
    from bigbird_dna.scoring.variants import score_variants
    from bigbird_dna.tokens.dna import DnaTokenizer

    __version__: str

__all__ = [
    "ATTENTIONS",
    "ChromatinModel",
    "DnaTokenizer",
    "Encoder",
    "EncoderConfig",
    "Model",
    "OneHotModel",
    "PromoterModel",
    "SequenceModel",
    "__version__",
    "auc_report",
    "bigbird_attention",
    "call_promoters",
    "embed",
    "explain",
    "load",
    "predict_tracks",
    "score_promoters",
    "score_sequences",
    "score_variants",
]

_NAMES = {
    "attention": "ATTENTIONS bigbird_attention",
    "config": "EncoderConfig",
    "explanation.explain": "explain",
    "explanation.one_hot": "OneHotModel",
    "model.encoder": "Encoder",
    "reporting.tracks": "auc_report",
    "scoring.calls": "call_promoters",
    "scoring.embeddings": "embed",
    "scoring.models": "ChromatinModel Model PromoterModel SequenceModel load",
    "scoring.promoters": "score_promoters",
    "scoring.sequences": "score_sequences",
    "scoring.tracks": "predict_tracks",
    "scoring.variants": "score_variants",
    "tokens.dna": "DnaTokenizer",
}
_HOMES = {
    name: f"{__name__}.{module}"
    for module, names in _NAMES.items()
    for name in names.split()
}

if not TYPE_CHECKING:  # hidden from type checkers, which then report unknown names

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("bigbird-dna")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
