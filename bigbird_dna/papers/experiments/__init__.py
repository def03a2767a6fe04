"""Experiments of the papers: models trained with one change each, compared on the same test data."""

from collections.abc import Mapping

EXPERIMENTS: Mapping[str, str] = {
    "pretraining_study": "pretraining_study:PretrainingStudy",
    "layer_probes": "layer_probes:LayerProbes",
    "table5": "table_arms:Table5",
    "table6": "table_arms:Table6",
    "table7": "table_arms:Table7",
    "ablation": "ablation_arms:Ablation",
    "long_range_arena": "long_range_arena:LongRangeArena",
    "byte_lm": "long_range_arena:ByteLm",
}
"""Experiment name → module and class, which are imported on demand."""
