"""Page of motifs: logos of the contributions of each, and of the best matching known matrix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.reporting.explanations import Logo, draw_letters
from bigbird_dna.reporting.pages import PageTable, image, page_table, render_page
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
            matrix, q = known[best[0]], one.matches[best[0]].q_value
            caption += f" Best match: {matrix.factor} ({matrix.matrix}), q = {q:.2g}."
        logo = Logo(f"{one.output}: {one.consensus}", caption, image(path))
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
    sentences = [
        f"Motifs: {len(motifs):,}, of which {matched:,} match a known matrix (q ≤ {max_q:g})."
    ]
    if len(recovered):
        own = (recovered["recovered"] == "yes").sum()
        sentence = (
            f"Of {len(recovered):,} outputs with the name of a factor, {own:,} have a motif that matches the "
            "factor's own matrix."
        )
        chance = recovered["others_recovered"].mean()
        if np.isfinite(chance):
            sentence += f" Of the matrices of the other factors, they match {chance:.0%} on average: chance."
        sentences.append(sentence)
    return sentences


def _recovered_table(recovered: pd.DataFrame) -> PageTable:
    """Return the factors for the page."""

    def text(name: str, form: str) -> pd.Series[str]:
        return recovered[name].map(form.format, na_action="ignore").fillna("–")

    columns = {
        "output": recovered["output"],
        "matrices of its factor": recovered["matrices"],
        "motifs": text("motifs", "{}"),
        "recovered": recovered["recovered"],
        "p": text("p_value", "{:.2g}"),
        "q": text("q_value", "{:.2g}"),
        "others recovered": text("others_recovered", "{:.0%}"),
    }
    return page_table(pd.DataFrame(columns))


def _draw(motif: FoundMotif, known: KnownMotif | None, path: Path) -> None:
    """Draw the contributions of a motif and, aligned below, the information of its best match in bits."""
    logos = [("contribution", motif.contributions, 0)]
    if known is not None:
        match = min(motif.matches)
        frequencies = known.frequencies
        if match.reverse:
            frequencies = frequencies[::-1, ::-1]
        logs = np.log2(np.maximum(frequencies, 1e-9))
        bits = frequencies * (2 + (frequencies * logs).sum(1, keepdims=True))
        logos.append((f"{known.factor}, bits", bits, -match.offset))
    first = min(start for _, _, start in logos)
    last = max(start + len(heights) for _, heights, start in logos)
    with panels(len(logos), 1, 5, 1.3) as (figure, axes):
        for axis, (label, heights, start) in zip(axes, logos, strict=True):
            draw_letters(axis, heights, start, np.ones(len(heights)))
            low = np.minimum(heights, 0).sum(1).min()
            high = max(np.maximum(heights, 0).sum(1).max(), 1e-6)
            axis.set(xlim=(first - 0.5, last - 0.5), ylim=(1.1 * low, 1.1 * high))
            axis.set(xticks=[])
            axis.set_ylabel(label, fontsize=8)
            axis.grid(visible=False)
        save_figure(figure, path)
