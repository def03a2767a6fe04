"""The report of a study: table, figures, and what they say in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import DataError
from bigbird_dna.reporting.study.comparing import Cell, cells, judge, study_table
from bigbird_dna.reporting.study.figures import share_figure, steps_figure
from bigbird_dna.reporting.study.models import read_models
from bigbird_dna.reporting.study.times import pretraining_seconds
from bigbird_dna.reporting.study.words import read_out
from bigbird_dna.reporting.tables import write_tsv


class StudyReport(NamedTuple):
    """What a study shows."""

    cells: list[Cell]
    sentences: list[str]


def study_report(
    models: Sequence[Path],
    output: Path,
    *,
    labels: Path | None = None,
    pretrained: Path | None = None,
    benchmarks: Path | None = None,
    min_positives: int = 1,
) -> StudyReport:
    """Write `study.tsv`, `study.svg`, `study_steps.svg` and `study.txt` to the directory `output`.

    Parameters
    ----------
    models
        Directories of fine-tuned models that differ in start, share of the examples and seed. Beside that of
        a chromatin model lie its predictions of the test bins, `predictions.npy`.
    labels
        Of these bins, for chromatin models.
    pretrained
        Directory of the pretrained model, whose log says how long that took; none: not said.
    benchmarks
        Directory of Snakemake's tables of what the jobs took, by their names in the workflow.
    min_positives
        Test bins that must be positive for a track to have a part in the medians of chromatin models.

    Raises
    ------
    DataError, UsageError
        As `read_models` and `judge`; or `output` lies in a model's directory.
    """
    tasks = read_models(models)
    if not tasks:
        raise DataError("a study needs at least one model directory")
    seconds = None if pretrained is None else pretraining_seconds(pretrained)
    found = [cell for own in tasks.values() for cell in cells(judge(own, labels, min_positives))]
    sentences = read_out(found, seconds, benchmarks)
    table = study_table(found, seconds)
    with into_directory(output, models if pretrained is None else [*models, pretrained]) as files:
        write_tsv(files / "study.tsv", table)
        share_figure(found, files / "study.svg")
        steps_figure(found, files / "study_steps.svg")
        (files / "study.txt").write_text("\n".join(sentences) + "\n", encoding="utf-8")
    return StudyReport(found, sentences)
