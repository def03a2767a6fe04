"""Command `design` and `bigbird_dna.design`: edits of bases that move a score toward a target.

The search is that of tangermeme's `greedy_substitution`. Scores are means over views of a window, motifs do
not extend into the flanks, and the accepted edits are recorded.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.console import progress
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, write_table
from bigbird_dna.errors import (
    DataError,
    ModelError,
    UsageError,
    check_at_least_one,
    check_choice,
)
from bigbird_dna.explanation.mutagenesis import (
    check_views,
    noise,
    view_counts,
    views_of,
    window_scores,
)
from bigbird_dna.explanation.one_hot import gradient_mutations
from bigbird_dna.explanation.targets import (
    ExplainedWindow,
    Scored,
    chosen_outputs,
    output_names,
    read_targets,
)
from bigbird_dna.genome.sequence import reverse_complement, substitutions
from bigbird_dna.genome.sequence_tables import COLUMNS, TableColumns, stream_sequences
from bigbird_dna.model.batching import View
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.directory import load
from bigbird_dna.model.inference import cpu_threads
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.reporting.explanations import draw_searches
from bigbird_dna.scoring.formats import write_lines
from bigbird_dna.tokens.interface import BASES

METHODS = ("mutagenesis", "gradient")
PRESELECTED = 64
"""Edits of a round that are scored with the method gradient."""
LEAST_GAIN = 1e-5
"""Smallest change of the score for which an edit is accepted: more than rounding."""
ACCEPTED_EDITS = Schema.of(
    "text name; count round position; text ref alt; number score noise",
    key=["name", "round"],
)
DESIGNED_SCORES = Schema.of(
    "text name output; count edits; text reached; number score_before score noise prediction_before "
    "prediction",
    key=["name"],
)

# Axes: V views, N windows.


class AcceptedEdit(NamedTuple):
    """The bases `ref`, from the 0-based `position` of the editable bases on, are replaced by `alt`; `score`
    is that of the edited window, the mean over views, and `noise` its standard deviation."""

    round: int
    position: int
    ref: str
    alt: str
    score: float
    noise: float


class DesignSearch(NamedTuple):
    """The windows before and after a search, the score and noise before it, and the edits in order."""

    start: ExplainedWindow
    final: ExplainedWindow
    score: float
    noise: float
    edits: list[AcceptedEdit]

    @property
    def scores(self) -> list[float]:
        """The score before the search and after each edit."""
        return [self.score, *(edit.score for edit in self.edits)]


def greedy_substitution(
    model: Scored,
    window: ExplainedWindow,
    column: int,
    views: Sequence[View],
    *,
    target: float | None = None,
    edits: int = 10,
    minimize: bool = False,
    motifs: Sequence[str] = (),
    method: str = METHODS[0],
    batch_size: int = 32,
    device: str = "auto",
) -> DesignSearch:
    """Search for edits of a window's explained bases, one per round, that change an output's score the most.

    Edits are the substitutions of a base and the replacements of bases by a motif, on both strands; an N is
    never replaced. The search ends after `edits` rounds, if no edit improves the score, or if the `target` is
    reached: from below or above, whichever side the first score is on. Of several edits that reach it, the
    one closest to it is accepted. With the method gradient, only the `PRESELECTED` edits with the largest
    approximate changes are scored in a round.
    """

    def scored(texts: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        values = window_scores(
            model, texts, [column], views, batch_size=batch_size, device=device
        )[..., 0]
        return values.mean(0), noise(values)

    (score, *_), (spread, *_) = scored([window.window])
    found = DesignSearch(window, window, float(score), float(spread), [])
    sign = -1 if (minimize if target is None else target < score) else 1
    end = np.inf if target is None else sign * target
    while len(found.edits) < edits and sign * score < end:
        made = list(possible_edits(found.final, motifs))
        if method != METHODS[0]:
            effects = (
                gradient_mutations(model, found.final, [column], views)
                .substitutions[..., 0]
                .mean(0)
            )
            made = _preselected(made, sign * effects)
        if not made:
            break
        values, spreads = scored([text for *_, text in made])
        best = _best(sign * values, end)
        if sign * (values[best] - score) <= LEAST_GAIN:
            break
        score, (position, ref, alt, text) = values[best], made[best]
        number = len(found.edits) + 1
        edit = AcceptedEdit(
            number, position, ref, alt, float(score), float(spreads[best])
        )
        found = found._replace(
            final=found.final._replace(window=text), edits=[*found.edits, edit]
        )
    return found


_PossibleEdit = tuple[int, str, str, str]  # position, ref, alt, and the edited window


def possible_edits(
    window: ExplainedWindow, motifs: Sequence[str] = ()
) -> Iterator[_PossibleEdit]:
    """Yield the position, old and new bases of each possible edit of the explained bases, and the window."""
    text, first, last = window.window, window.first, window.last
    for place, number, edited in substitutions(text, range(first, last)):
        yield place - first, text[place], BASES[number], edited
    for site in sorted({*motifs, *map(reverse_complement, motifs)}):
        for place in range(first, last - len(site) + 1):
            ref = text[place : place + len(site)]
            if ref != site and "N" not in ref:
                yield place - first, ref, site, inserted(text, site, place)


def inserted(text: str, motif: str, start: int) -> str:
    """Return a text in which the bases from `start` on are those of a motif."""
    return f"{text[:start]}{motif}{text[start + len(motif) :]}"


def _preselected(
    made: list[_PossibleEdit], effects: NDArray[np.floating[Any]]
) -> list[_PossibleEdit]:
    """Return the edits with the largest sums of the effects (L, 4) of their bases."""
    sums = [
        sum(
            effects[position + place, BASES.index(base)]
            for place, base in enumerate(alt)
        )
        for position, _, alt, _ in made
    ]
    return [
        made[number]
        for number in np.argsort(np.negative(sums), kind="stable")[:PRESELECTED]
    ]


def _best(scores: NDArray[np.float32], end: float) -> int:
    """Return the index of the smallest score that reaches `end`, or of the largest score."""
    reached = scores >= end
    return int(
        np.where(reached, scores, np.inf).argmin() if reached.any() else scores.argmax()
    )


def design(
    model: LoadedModel | Path | str,
    sequences: Path | str,
    output: Path | str,
    *,
    reference: Path | str | None = None,
    aliases: Path | str | None = None,
    tracks: str | None = None,
    target: float | None = None,
    edits: int = 10,
    minimize: bool = False,
    motifs: Sequence[str] = (),
    method: str = METHODS[0],
    offsets: int | None = None,
    tokenizations: int | None = None,
    sequence_column: str = COLUMNS.sequence,
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> pd.DataFrame:
    """Edit sequences, one base or motif at a time, until a model's score is as high or low as wanted.

    Parameters
    ----------
    model
        A promoter, chromatin or sequence model, or its directory.
    sequences
        BED regions or a VCF with `reference`, FASTA or a table of sequences, as for `explain`: the explained
        bases are edited, the rest of a window is not.
    output
        Directory to write: edited sequences, tables and a plot (docs/files/explanations.md).
    reference, aliases
        The indexed FASTA of regions, and a file of alternative contig names.
    tracks
        The output to change: a track, label or class; None for a model with one output.
    target
        Score to reach; None: the highest score, or with `minimize` the lowest, after `edits` edits.
    edits
        Maximum number of edits of a sequence.
    minimize
        Decrease the score.
    motifs
        Motifs to insert in place of bases, on both strands: bases, `NAME=BASES`, or FASTA files.
    method
        "mutagenesis": every edit is scored. "gradient": only those that gradients favor, which is faster.
    offsets, tokenizations
        Number of crops of a window, and of divisions into other tokens, over which scores are averaged; None:
        4, for models of start sites 1.
    sequence_column
        Column of a table with the sequences.
    batch_size, device, threads
        As for `score_promoters`.

    Returns
    -------
    A row per sequence, with the columns of `scores.tsv`.

    Raises
    ------
    UsageError, DataError, ModelError
        An argument is out of range; a file cannot be read; a name occurs twice; a motif is longer than a
        sequence; the model has no scores, or more than one output.
    """
    check_choice("method", method, METHODS)
    check_at_least_one({"edits": edits, "batch_size": batch_size, "threads": threads})
    check_views(offsets, tokenizations)
    if target is not None and (minimize or not np.isfinite(target)):
        wrong = (
            "excludes minimize: the score moves toward it"
            if minimize
            else "must be finite"
        )
        raise UsageError(f"target {target}: {wrong}")
    sites = motif_bases(motifs)
    with ExitStack() as stack:
        stack.enter_context(cpu_threads(threads))
        loaded = scored_model(model)
        (column,) = chosen_outputs(loaded, tracks, 1)
        offsets, tokenizations = view_counts(loaded, offsets, tokenizations)
        given = read_targets(
            Path(sequences), loaded, reference, aliases, sequence_column=sequence_column
        )
        for name, count in Counter(one.name for one in given).items():
            if count > 1:
                raise DataError(
                    f"{sequences}: the name {name!r} occurs {count} times; names must differ"
                )
        check_motifs(sites, given, sequences)
        files = stack.enter_context(
            into_directory(Path(output), [loaded.path, sequences, reference, aliases])
        )
        computing: dict[str, Any] = {"batch_size": batch_size, "device": device}
        options = {
            "target": target,
            "edits": edits,
            "minimize": minimize,
            "method": method,
        }
        found = [
            greedy_substitution(
                *(
                    loaded,
                    one,
                    column,
                    views_of(loaded, len(one.window), offsets, tokenizations),
                ),
                **{"motifs": [*sites.values()], **options, **computing},
            )
            for one in progress(given, "designing", len(given), "sequences")
        ]
        table = _design_table(loaded, found, column, target, computing)
        _write_design(files, found, table, loaded.sha256)
        draw_searches(
            [(one.start.name, one.scores) for one in found],
            target,
            files / "designs.svg",
        )
    return table


def scored_model(model: LoadedModel | Path | str) -> Scored:
    loaded = model if isinstance(model, LoadedModel) else load(model)
    if not isinstance(loaded, Scored):
        raise ModelError(
            f"{loaded.name}: has no scores of windows; use a promoter, chromatin or sequence model"
        )
    return loaded


def _design_table(
    model: Scored,
    found: Sequence[DesignSearch],
    column: int,
    target: float | None,
    computing: dict[str, Any],
) -> pd.DataFrame:
    """Return the rows of `DESIGNED_SCORES`."""
    windows = [one.window for search in found for one in (search.start, search.final)]
    if isinstance(model, LoadedChromatinModel):
        predicted = model.window_probabilities(windows, **computing)[:, 0, column]
    else:
        predicted = model.window_predictions(windows, **computing)[:, column]
    rows = []
    for search, predictions in zip(
        found, predicted.reshape(-1, 2).tolist(), strict=True
    ):
        before, score = search.score, search.scores[-1]
        reached = (
            ""
            if target is None
            else "yes"
            if min(before, score) <= target <= max(before, score)
            else "no"
        )
        spread = search.edits[-1].noise if search.edits else search.noise
        name = search.start.name, output_names(model)[column]
        rows.append(
            (*name, len(search.edits), reached, before, score, spread, *predictions)
        )
    return pd.DataFrame(rows, columns=DESIGNED_SCORES.names)


def _write_design(
    files: Path, found: Sequence[DesignSearch], table: pd.DataFrame, model: str
) -> None:
    edits = [(one.start.name, *edit) for one in found for edit in one.edits]
    write_table(
        files / "designs.tsv",
        pd.DataFrame(edits, columns=ACCEPTED_EDITS.names),
        ACCEPTED_EDITS,
    )
    write_table(files / "scores.tsv", table, DESIGNED_SCORES)
    for name, of_window in (("designs", False), ("windows", True)):
        lines = (
            f">{one.start.name} score={row.score:.6g} edits={row.edits} model={model[:12]}\n"
            f"{one.final.window if of_window else one.final.bases}"
            for one, row in zip(found, table.itertuples(), strict=True)
        )
        write_lines(files / f"{name}.fa", lines)


def is_file_name(text: str) -> bool:
    """Return whether a text is the name of a file; a list of motifs may be too long for one."""
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):
        return False


def motif_bases(values: Sequence[str]) -> dict[str, str]:
    """Return motifs by name: of FASTA files, `NAME=BASES`, or bases, which are their own name.

    `UsageError`, `DataError`: a motif has other letters than A, C, G and T, or a name occurs twice.
    """
    motifs: dict[str, str] = {}
    for value in values:
        pairs = [(value.partition("=")[0], value.rpartition("=")[2])]
        if stored := is_file_name(value):
            pairs = list(stream_sequences(Path(value), TableColumns()))
        unknown = "" if stored or "=" in value else "no such file, and "
        for name, bases in pairs:
            wrong = [base for base in bases.upper() if base not in BASES]
            if wrong or not (name and bases):
                what = (
                    f"{unknown}{wrong[0]!r} is not A, C, G or T"
                    if wrong
                    else "has no name or no bases"
                )
                raise UsageError(f"motif {name or value!r}: {what}")
            if name in motifs:
                raise UsageError(f"motif {name}: is given twice")
            motifs[name] = bases.upper()
    return motifs


def check_motifs(
    motifs: dict[str, str],
    windows: Sequence[ExplainedWindow],
    path: Path | str,
    start: int = 0,
) -> None:
    """`DataError` if a motif ends behind the explained bases of a window."""
    for name, bases in motifs.items():
        for one in windows:
            if start + len(bases) > len(one.bases):
                place = f" from base {start:,} on" if start else ""
                raise DataError(
                    f"{path}: {one.name!r} has {len(one.bases):,} bp, too few for the {len(bases):,} bp of "
                    f"motif {name}{place}"
                )
