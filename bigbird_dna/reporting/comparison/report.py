"""A table as files: TSV for programs, JSON with what it is, and Markdown to be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import UsageError
from bigbird_dna.metrics.resampling import BLOCK_BASES, FEWEST_TRACKS
from bigbird_dna.reporting.comparison.figures import bits_figure, promoters_figure, tracks_figure
from bigbird_dna.reporting.comparison.published import NOTE
from bigbird_dna.reporting.comparison.tables import bits_table, chromatin_tables, promoter_table
from bigbird_dna.reporting.readable import markdown, readable
from bigbird_dna.reporting.tables import json_rows, write_tsv

if TYPE_CHECKING:
    import pandas as pd

TITLES = {
    "table5": "Table 5: bits per base of held-out sequence",
    "table6": "Table 6: promoters",
    "table7": "Table 7: chromatin",
}
# What of a table stands side by side before its whole: a figure, and what tells its columns apart.
_SIDES = {"table6": ("auroc", ("negative_set", "window")), "table7": ("median_auroc", ("group", "tracks"))}
_PREDICTOR = ("predictor", "weights", "training", "window")
_INTERVALS = {
    "table5": f"over blocks of {BLOCK_BASES // 1000} kb of sequence",
    "table6": "over promoters with their negatives, and seeds",
    "table7": f"over tracks and seeds; of fewer than {FEWEST_TRACKS} tracks there is none",
}


def table_report(
    name: str,
    inputs: Sequence[Path],
    output: Path,
    *,
    labels: Path | None = None,
    tracks: Path | None = None,
    min_positives: int = 1,
    bits: Mapping[str, Path] | None = None,
) -> pd.DataFrame:
    """Write `NAME.tsv`, `NAME.json`, `NAME.md` and `NAME.svg` into the directory `output`; gives the table.

    Of Table 7 also `table7_tracks.tsv`, the AUROC of each track, also of those that don't count.

    Parameters
    ----------
    name
        table5, table6 or table7.
    inputs
        Table 5: the table of bits per base that `evaluate pretraining` wrote. Others: directories of
        fine-tuned models and of comparators.
    labels, tracks
        Of the test bins that chromatin models predict, for Table 7.
    min_positives
        Test bins that must be positive for a track to count in Table 7's medians and to stand in its figure.
    bits
        Of further pretrained models by name, for Table 5.

    Raises
    ------
    UsageError
        There is no such table, or it wants other files.
    DataError
        A file can't be used, or predictors can't be compared.
    """
    if name not in TITLES:
        raise UsageError(f"{name!r} is not a table: choose {', '.join(TITLES)}")
    if name != "table7" and (labels or tracks or min_positives != 1):
        raise UsageError(f"--labels, --track-table and --min-positives go with table7, not with {name}")
    if name != "table5" and bits:
        raise UsageError(f"--bits goes with table5, not with {name}")
    chromatin = None
    if name == "table7":
        if labels is None or tracks is None:
            raise UsageError("table7: name --labels and --track-table of the test bins")
        chromatin = chromatin_tables(inputs, labels, tracks, min_positives)
        table = chromatin.medians
    elif name == "table6":
        table = promoter_table(inputs)
    else:
        if len(inputs) != 1:
            raise UsageError(
                f"table5 is made of one table of bits per base, not of {len(inputs)}: name further ones "
                "with --bits"
            )
        table = bits_table(inputs[0], bits or {})
    with into_directory(output, inputs) as files:
        write_tsv(files / f"{name}.tsv", table)
        content = {"title": TITLES[name], "note": _note(name), "rows": json_rows(table)}
        write_json(files / f"{name}.json", content)
        (files / f"{name}.md").write_text(_page(name, table), encoding="utf-8")
        if chromatin is not None:
            write_tsv(files / f"{name}_tracks.tsv", chromatin.tracks)
            tracks_figure(chromatin.counting, files / f"{name}.svg")
        else:
            draw = promoters_figure if name == "table6" else bits_figure
            draw(table, files / f"{name}.svg")
    return table


def _page(name: str, table: pd.DataFrame) -> str:
    """The table in Markdown, after its figures side by side."""
    table = table.rename(columns={"low": "bits_per_base_low", "high": "bits_per_base_high"})
    shown = readable(table, "{:.3f}".format)
    if "window" in table:  # of chromatin some predictors may have none, which makes numbers floats
        shown["window"] = ["" if size != size else f"{size:.0f}" for size in table["window"]]
    parts = [f"# {TITLES[name]}"]
    if name in _SIDES:
        figure, sides = _SIDES[name]
        said = figure.replace("auroc", "AUROC").replace("_", " ")
        beside = shown
        if name == "table7":  # medians over fewer tracks than others have don't stand beside those
            whole = (table["number"] == table["counting"]).tolist()
            figures = [text if all_ else "" for text, all_ in zip(shown[figure], whole, strict=True)]
            beside = shown.assign(**{figure: figures})
        parts += [f"{said}, side by side:", markdown(_side_by_side(beside, figure, sides)), "All figures:"]
    parts += [markdown(shown), f"† {_note(name)}"]
    return "\n\n".join(parts) + "\n"


def _note(name: str) -> str:
    return f"{NOTE} Intervals are of 95 %, {_INTERVALS[name]}."


def _side_by_side(cells: pd.DataFrame, figure: str, sides: Sequence[str]) -> pd.DataFrame:
    """A figure of each predictor in a row, with a column for each value of `sides`; "" where it has none."""
    import pandas as pd

    own = [column for column in _PREDICTOR if column in cells and column not in sides]
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    columns: dict[str, None] = {}
    for row in cells.to_dict("records"):
        side = ", ".join(row[name] + (" bp" if name == "window" else "") for name in sides)
        columns[side] = None
        rows.setdefault(tuple(row[name] for name in own), {})[side] = row[figure]
    filled = [[*row, *(figures.get(side, "") for side in columns)] for row, figures in rows.items()]
    return pd.DataFrame(filled, columns=[*own, *columns])
