"""Experiments of the papers: one module per table or study, run by `bigbird-dna experiment run NAME`."""

EXPERIMENTS = (
    "table5",
    "table6",
    "table7",
    "pretraining_study",
    "ablation",
    "long_range_arena",
    "byte_lm",
    "theory",
)
