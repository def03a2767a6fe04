"""Page of motifs: logos of the contributions of each, and of the best matching known matrix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.reporting.explanations import Logo, draw_letters
from bigbird_dna.reporting.pages import ShownTable, data_uri, render_page
from bigbird_dna.reporting.result import panels, save_figure

if TYPE_CHECKING:
    from bigbird_dna.genome.motifs import KnownMotif

Floats = NDArray[np.floating[Any]]
IUPAC = "?ACMGRSVTWYHKDBN"
"""Letters of sets of bases; base i of ACGT adds 2 to the power of i."""
_COMMON = 0.25  # smallest frequency of a base in the consensus
_MOST_SHOWN = 60  # motifs on the page

# Axes: W positions of a motif, K matrices.


class Match(NamedTuple):
    """Comparison with a matrix: position i of the motif is aligned with i + offset of the matrix.

    `reverse`: of the matrix on the other strand. The q-value is adjusted over all pairs of an output.
    """

    p_value: float
    q_value: float
    offset: int
    reverse: bool


class FoundMotif(NamedTuple):
    """A cluster of seqlets: frequencies and mean contributions of bases (W, 4), and a match per matrix."""

    name: str
    output: str
    effect: str  # on the score: increases or decreases
    seqlets: int
    frequencies: Floats
    contributions: Floats
    matches: Sequence[Match] = ()

    @property
    def consensus(self) -> str:
        """The bases with a frequency of at least 1/4 at each position, as IUPAC letters."""
        return "".join(
            IUPAC[int(((row >= _COMMON) * (1, 2, 4, 8)).sum())]
            for row in self.frequencies
        )

    def significant(self, max_q: float) -> list[int]:
        """Numbers of the matrices that the motif matches, best first."""
        found = [
            number for number, one in enumerate(self.matches) if one.q_value <= max_q
        ]
        return sorted(found, key=lambda number: self.matches[number].p_value)


def motif_page(
    motifs: Sequence[FoundMotif],
    known: Sequence[KnownMotif],
    recovered: pd.DataFrame,
    max_q: float,
    command: str,
    output: Path,
) -> None:
    """Write the page `motifs.html`, and its logos in `logos`, to the directory `output`."""
    (output / "logos").mkdir()
    matched, others = list[Logo](), list[Logo]()
    ranked = sorted(
        motifs, key=lambda one: (not one.significant(max_q), one.output, -one.seqlets)
    )
    for number, one in enumerate(ranked[:_MOST_SHOWN], 1):
        path = output / "logos" / f"{number:03}.svg"
        best = one.significant(max_q)[:1]
        _draw(one, known[best[0]] if best else None, path)
        caption = f"{one.seqlets:,} seqlets; the motif {one.effect} the score."
        if best:
            match = one.matches[best[0]]
            caption += (
                f" Best match: {known[best[0]].factor} ({known[best[0]].matrix}), "
            )
            caption += f"q = {match.q_value:.2g}."
        logo = Logo(
            f"{one.output}: {one.consensus}", caption, data_uri(path.read_bytes())
        )
        (matched if best else others).append(logo)
    page = render_page(
        "motif_page.html",
        style="run_page.css",
        title="Motifs in contributions",
        conclusions=conclusions(motifs, recovered, max_q),
        matched=matched,
        others=others,
        left_out=max(0, len(motifs) - _MOST_SHOWN),
        table=_recovered_table(recovered),
        max_q=max_q,
        command=command,
    )
    (output / "motifs.html").write_text(page, encoding="utf-8")


def conclusions(
    motifs: Sequence[FoundMotif], recovered: pd.DataFrame, max_q: float
) -> list[str]:
    """Return what was found, in sentences."""
    matched = sum(bool(one.significant(max_q)) for one in motifs)
    found = [
        f"Motifs: {len(motifs):,}, of which {matched:,} match a known matrix (q ≤ {max_q:g})."
    ]
    if len(recovered):
        own = (recovered["recovered"] == "yes").sum()
        line = f"Of {len(recovered):,} outputs with the name of a factor, {own:,} have a motif that matches "
        line += "the factor's own matrix."
        chance = recovered["others_recovered"].mean()
        if np.isfinite(chance):
            line += f" Of the matrices of the other factors, they match {chance:.0%} on average: chance."
        found.append(line)
    return found


def _recovered_table(recovered: pd.DataFrame) -> ShownTable:
    headings = [
        "output",
        "matrices of its factor",
        "motifs",
        "recovered",
        "p",
        "q",
        "others recovered",
    ]
    rows = [
        [
            *(row["output"], row["matrices"], f"{row['motifs']:,}", row["recovered"]),
            *(
                "–" if row[key] != row[key] else f"{row[key]:.2g}"
                for key in ("p_value", "q_value")
            ),
            "–"
            if row["others_recovered"] != row["others_recovered"]
            else f"{row['others_recovered']:.0%}",
        ]
        for row in recovered.to_dict("records")
    ]
    return ShownTable(headings, [False, False, True, False, True, True, True], rows, 0)


def _draw(motif: FoundMotif, known: KnownMotif | None, path: Path) -> None:
    """Draw the contributions of a motif and, aligned below, the information of its best match in bits."""
    parts = [("contribution", motif.contributions, 0)]
    if known is not None:
        match = min(motif.matches)
        frequencies = (
            known.frequencies[::-1, ::-1] if match.reverse else known.frequencies
        )
        logs = np.log2(np.maximum(frequencies, 1e-9))
        bits = frequencies * (2 + (frequencies * logs).sum(1, keepdims=True))
        parts.append((f"{known.factor}, bits", bits, -match.offset))
    first = min(start for *_, start in parts)
    last = max(start + len(heights) for _, heights, start in parts)
    with panels(len(parts), 1, 5, 1.3) as (figure, axes):
        for axis, (label, heights, start) in zip(axes, parts, strict=True):
            draw_letters(
                axis, heights, range(start, start + len(heights)), np.ones(len(heights))
            )
            ends = (
                np.minimum(heights, 0).sum(1).min(),
                np.maximum(heights, 0).sum(1).max(),
            )
            axis.set_ylim(1.1 * ends[0], 1.1 * max(ends[1], 1e-6))
            axis.set_xlim(first - 0.5, last - 0.5)
            axis.set_xticks([])
            axis.set_ylabel(label, fontsize=8)
            axis.grid(visible=False)
        save_figure(figure, path)
