"""Experiments of the papers: one module per table or study, run by `bigbird-dna experiment run NAME`.

A module has a function `run(config, trainings, output)`, which trains models (`shared.Trainings`), compares
them, writes tables into the directory `output`, and returns lines for the log.
"""

_TABLE = ("tsv", "json", "md")
EXPERIMENTS = {
    "table5": [f"tables/table5.{end}" for end in _TABLE],
    "table6": [f"tables/table6.{end}" for end in _TABLE],
    "table7": [f"tables/table7.{end}" for end in _TABLE],
    "ablation": [f"ablation/ablation.{end}" for end in _TABLE],
    "long_range_arena": [f"long_range.{end}" for end in _TABLE],
    "byte_lm": ["byte_lm.tsv"],
}
"""Files of each experiment below the run's `report`, all in one directory."""
