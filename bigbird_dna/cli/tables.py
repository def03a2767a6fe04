"""The command of the papers' tables."""

from pathlib import Path
from typing import Annotated

from bigbird_dna.cli.options import TRACK_TABLE, Directory, argument, named_files, option
from bigbird_dna.console import log


def report_table(
    name: Annotated[
        str, argument("table5 (bits per base), table6 (promoters) or table7 (chromatin).", "NAME")
    ],
    inputs: Annotated[
        list[Path],
        argument(
            "table5: what evaluate pretraining wrote. Others: directories of fine-tuned models and of "
            "comparators; a chromatin model's predictions of the test bins, predictions.npy, lie beside its "
            "directory.",
            "FILE_OR_DIR...",
        ),
    ],
    output: Directory,
    labels: Annotated[
        Path | None, option("FILE", "Labels of the test bins that chromatin models predict.", "", "--labels")
    ] = None,
    tracks: Annotated[Path | None, option("TSV", "Tracks of these labels.", "", *TRACK_TABLE)] = None,
    min_positives: Annotated[
        int,
        option("N", "table7: test positives that a track needs to count.", "", "--min-positives", least=1),
    ] = 1,
    bits: Annotated[
        list[str] | None,
        option(
            "NAME=FILE",
            "table5: what evaluate pretraining wrote of a further model; repeatable.",
            "",
            "--bits",
        ),
    ] = None,
) -> None:
    """Put models and comparators side by side, as the tables of the BigBird paper do.

    Writes NAME.tsv, NAME.json, NAME.md and NAME.svg: a row a predictor and its weights, means over seeds with
    intervals (over blocks of sequence; promoters and seeds; tracks and seeds), and published figures in a
    column of their own; of table7 also table7_tracks.tsv, the AUROC of each track.
    """
    from bigbird_dna.reporting.comparison.report import table_report

    further = named_files("--bits", bits or ())
    table = table_report(
        name, inputs, output, labels=labels, tracks=tracks, min_positives=min_positives, bits=further
    )
    log(f"{name}: {len(table):,} rows")
