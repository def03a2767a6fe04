"""Sparse-attention DNA language models: from a reference genome to promoter scores, tracks and variants.

`load` gives a model with `predict`, `embed`, `predict_regions` and `variant_effects`. The functions
`score_promoters`, `predict_tracks`, `score_variants` and `auc_report` write files, as the commands do;
`merge_pieces` puts together what the first three wrote in pieces.

The names below are imported on first use, so that light commands stay light.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bigbird_dna.api.datasets import PromoterWindows, TrackWindows
    from bigbird_dna.api.loading import load
    from bigbird_dna.api.models import ChromatinModel, Model, PromoterModel
    from bigbird_dna.attention import ATTENTIONS, bigbird_attention
    from bigbird_dna.config import EncoderConfig
    from bigbird_dna.model.encoder import Encoder
    from bigbird_dna.reporting.tracks.report import auc_report
    from bigbird_dna.tasks.chromatin.prediction import predict_tracks
    from bigbird_dna.tasks.merging import merge_pieces
    from bigbird_dna.tasks.promoters.scoring import score_promoters
    from bigbird_dna.tasks.variants.scoring import score_variants
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
    "merge_pieces",
    "predict_tracks",
    "score_promoters",
    "score_variants",
]

_HOMES = {
    "ATTENTIONS": "bigbird_dna.attention",
    "ChromatinModel": "bigbird_dna.api.models",
    "DnaTokenizer": "bigbird_dna.tokens.dna",
    "Encoder": "bigbird_dna.model.encoder",
    "EncoderConfig": "bigbird_dna.config",
    "Model": "bigbird_dna.api.models",
    "PromoterModel": "bigbird_dna.api.models",
    "PromoterWindows": "bigbird_dna.api.datasets",
    "TrackWindows": "bigbird_dna.api.datasets",
    "auc_report": "bigbird_dna.reporting.tracks.report",
    "bigbird_attention": "bigbird_dna.attention",
    "load": "bigbird_dna.api.loading",
    "merge_pieces": "bigbird_dna.tasks.merging",
    "predict_tracks": "bigbird_dna.tasks.chromatin.prediction",
    "score_promoters": "bigbird_dna.tasks.promoters.scoring",
    "score_variants": "bigbird_dna.tasks.variants.scoring",
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
