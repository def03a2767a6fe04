"""Command `marginalize` and `bigbird_dna.marginalize`: what motifs add to scores of backgrounds."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student_t

from bigbird_dna.console import progress
from bigbird_dna.data.promoter_windows import shuffle_dinucleotides
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, write_table
from bigbird_dna.errors import UsageError, check_at_least_one, check_whole
from bigbird_dna.explanation.design import (
    check_motifs,
    inserted,
    is_file_name,
    motif_bases,
    scored_model,
)
from bigbird_dna.explanation.mutagenesis import (
    check_views,
    view_counts,
    views_of,
    window_scores,
)
from bigbird_dna.explanation.targets import (
    ExplainedWindow,
    Scored,
    chosen_outputs,
    output_names,
    read_targets,
)
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.sequence_tables import COLUMNS
from bigbird_dna.model.inference import cpu_threads
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.reporting.explanations import draw_motif_effects

MARGINALIZATION = Schema.of(
    "text motif output strand; count backgrounds; number before after; estimate change; fraction increased",
    key=["motif", "output", "strand"],
)

# Axes: N windows, T outputs.


def marginalize(
    model: LoadedModel | Path | str,
    motifs: Sequence[str] | str,
    backgrounds: Path | str,
    output: Path | str,
    *,
    reference: Path | str | None = None,
    aliases: Path | str | None = None,
    tracks: str | None = None,
    start: int | None = None,
    shuffles: int = 0,
    seed: int = 0,
    offsets: int | None = None,
    tokenizations: int | None = None,
    sequence_column: str = COLUMNS.sequence,
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> pd.DataFrame:
    """Insert motifs into background sequences, and compare a model's scores before and after.

    Parameters
    ----------
    model, reference, aliases, offsets, tokenizations, sequence_column, batch_size, device, threads
        As for `design`.
    motifs
        Bases, `NAME=BASES`, or FASTA files; a text may have several, comma-separated.
    backgrounds
        BED regions or a VCF with `reference`, FASTA or a table of sequences, as for `explain`.
    output
        Directory to write: a table and a plot (docs/files/explanations.md).
    tracks
        Tracks, labels or classes; None: all.
    start
        First base of a background that a motif replaces, 0-based; None: the motif is in its center.
    shuffles
        Number of copies of each background, shuffled with the same dinucleotides, that replace it; 0: the
        backgrounds themselves.
    seed
        Of the shuffling.

    Returns
    -------
    A row per motif, output and strand, with the columns of `marginalization.tsv`.

    Raises
    ------
    UsageError, DataError, ModelError
        As for `design`; a background is too short.
    """
    check_at_least_one({"batch_size": batch_size, "threads": threads})
    check_views(offsets, tokenizations)
    for name, value in {
        "start": start or 0,
        "shuffles": shuffles,
        "seed": seed,
    }.items():
        check_whole(name, value)
        if value < 0:
            raise UsageError(f"{name} {value}: must not be negative")
    listed = [motifs] if isinstance(motifs, str) and is_file_name(motifs) else motifs
    sites = motif_bases(listed.split(",") if isinstance(listed, str) else listed)
    if not sites:
        raise UsageError("motifs: the list is empty")
    with ExitStack() as stack:
        stack.enter_context(cpu_threads(threads))
        loaded = scored_model(model)
        columns = chosen_outputs(loaded, tracks, len(output_names(loaded)))
        views = view_counts(loaded, offsets, tokenizations)
        given = read_targets(
            Path(backgrounds),
            loaded,
            reference,
            aliases,
            sequence_column=sequence_column,
            strongest=False,
        )
        check_motifs(sites, given, backgrounds, start or 0)
        inputs = [loaded.path, backgrounds, reference, aliases]
        files = stack.enter_context(into_directory(Path(output), inputs))
        given = _shuffled(given, shuffles, seed) if shuffles else given
        computing = {"batch_size": batch_size, "device": device}
        scores = partial(_mean_scores, loaded, columns, views, computing)
        names = [output_names(loaded)[column] for column in columns]
        rows = list(_rows(sites, given, start, names, scores))
        table = pd.DataFrame(rows, columns=MARGINALIZATION.names)
        write_table(files / "marginalization.tsv", table, MARGINALIZATION)
        draw_motif_effects(table, files / "marginalization.svg")
    return table


def _rows(
    motifs: dict[str, str],
    windows: Sequence[ExplainedWindow],
    start: int | None,
    outputs: Sequence[str],
    scores: Callable[[Sequence[str]], NDArray[np.float64]],
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of `MARGINALIZATION`; `scores` are (N, T)."""
    before = scores([one.window for one in windows])
    for name, motif in progress(motifs.items(), "inserting", len(motifs), "motifs"):
        for strand, site in (("+", motif), ("-", reverse_complement(motif))):
            after = scores(
                [
                    inserted(one.window, site, _place(one, site, start))
                    for one in windows
                ]
            )
            for output, *values in zip(outputs, before.T, after.T, strict=True):
                yield name, output, strand, len(windows), *_change(*values)


def _shuffled(
    windows: Sequence[ExplainedWindow], copies: int, seed: int
) -> list[ExplainedWindow]:
    """Return copies of windows whose explained bases are shuffled."""
    made = []
    for number, one in enumerate(windows):
        rng = np.random.default_rng([seed, number])
        for _ in range(copies):
            made.append(
                one._replace(
                    window=inserted(
                        one.window, shuffle_dinucleotides(one.bases, rng), one.first
                    )
                )
            )
    return made


def _place(window: ExplainedWindow, motif: str, start: int | None) -> int:
    """Return where a motif begins in a window: tangermeme's center, or `start` bases behind the first."""
    return window.first + (
        len(window.bases) // 2 - len(motif) // 2 if start is None else start
    )


def _mean_scores(
    model: Scored,
    columns: Sequence[int],
    views: tuple[int, int],
    computing: dict[str, Any],
    windows: Sequence[str],
) -> NDArray[np.float64]:
    """Return mean scores (N, T) over views; windows of one length have the same views."""
    scores, numbers = (
        np.empty((len(windows), len(columns))),
        defaultdict[int, list[int]](list),
    )
    for number, window in enumerate(windows):
        numbers[len(window)].append(number)
    for length, chosen in numbers.items():
        own = [windows[number] for number in chosen]
        scores[chosen] = window_scores(
            model, own, columns, views_of(model, length, *views), **computing
        ).mean(0)
    return scores


def _change(
    before: NDArray[np.float64], after: NDArray[np.float64]
) -> tuple[float, ...]:
    """Return both means, the mean change, its 95 % interval (Student's t), and how often it is positive."""
    change, count = after - before, len(before)
    half = np.nan
    if count > 1:
        half = student_t.ppf(0.975, count - 1) * change.std(ddof=1) / np.sqrt(count)
    mean = change.mean()
    return tuple(
        map(
            float,
            (
                before.mean(),
                after.mean(),
                mean,
                mean - half,
                mean + half,
                (change > 0).mean(),
            ),
        )
    )
