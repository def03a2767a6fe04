"""Sparse-attention DNA language models: from a reference genome to promoter scores, tracks and variants.

`load` gives a model with `predict`, `embed`, `predict_regions` and `variant_effects`. The functions
`score_promoters`, `predict_tracks`, `score_variants` and `auc_report` write files, as the commands do;
`merge_shards` puts together what the first three wrote in shards.

The names below are imported on first use, so that light commands stay light.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bigbird_dna.attention import ATTENTIONS, bigbird_attention
    from bigbird_dna.config import EncoderConfig
    from bigbird_dna.data.torch_sets import PromoterWindows, TrackWindows
    from bigbird_dna.model.encoder import Encoder
    from bigbird_dna.reporting.tracks import auc_report
    from bigbird_dna.scoring.models import ChromatinModel, Model, PromoterModel, load
    from bigbird_dna.scoring.promoters import score_promoters
    from bigbird_dna.scoring.scorer import merge_shards
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
    "PromoterModel",
    "PromoterWindows",
    "TrackWindows",
    "__version__",
    "auc_report",
    "bigbird_attention",
    "load",
    "merge_shards",
    "predict_tracks",
    "score_promoters",
    "score_variants",
]

_HOMES = {
    "ATTENTIONS": "bigbird_dna.attention",
    "ChromatinModel": "bigbird_dna.scoring.models",
    "DnaTokenizer": "bigbird_dna.tokens.dna",
    "Encoder": "bigbird_dna.model.encoder",
    "EncoderConfig": "bigbird_dna.config",
    "Model": "bigbird_dna.scoring.models",
    "PromoterModel": "bigbird_dna.scoring.models",
    "PromoterWindows": "bigbird_dna.data.torch_sets",
    "TrackWindows": "bigbird_dna.data.torch_sets",
    "auc_report": "bigbird_dna.reporting.tracks",
    "bigbird_attention": "bigbird_dna.attention",
    "load": "bigbird_dna.scoring.models",
    "merge_shards": "bigbird_dna.scoring.scorer",
    "predict_tracks": "bigbird_dna.scoring.tracks",
    "score_promoters": "bigbird_dna.scoring.promoters",
    "score_variants": "bigbird_dna.scoring.variants",
}

if not TYPE_CHECKING:  # a type checker then knows which names there are not

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("bigbird-dna")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
