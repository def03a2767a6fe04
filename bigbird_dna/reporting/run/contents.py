"""What the page of a run shows of its files, and in which order."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.errors import UsageError


class Item(NamedTuple):
    """A file that the page shows, known by its name."""

    name: str
    title: str
    caption: str = ""  # of `captions/`
    folded: bool = False

    @property
    def text(self) -> str:
        """The caption: reStructuredText, of which it has nothing but literals."""
        source = files("bigbird_dna.reporting.run").joinpath("captions", f"{self.caption}.rst")
        return source.read_text(encoding="utf-8").strip() if self.caption else ""


PARTS: dict[str, tuple[Item, ...]] = {
    "Summary": (Item("summary.tsv", "", "summary"),),
    "Pretraining": (
        Item("bits_per_base.svg", "Bits per base", "bits_per_base"),
        Item("bits_per_base.tsv", "Bits per base, table"),
        Item("held_out.svg", "Bits per base over training", "held_out"),
        Item("loss.svg", "Loss of pretraining", "loss"),
    ),
    "Promoters": (
        Item("roc.svg", "ROC", "roc"),
        Item("precision_recall.svg", "Precision and recall", "precision_recall"),
        Item("score_histograms.svg", "Scores", "score_histograms"),
        Item("calibration.svg", "Whether probabilities hold", "calibration"),
        Item("calibration.tsv", "Calibration, table", folded=True),
        Item("promoters.tsv", "All measures", "promoters"),
        Item("similarity.svg", "By similarity to the training", "similarity"),
        Item("similarity.tsv", "By similarity, table", folded=True),
        Item("finetuning_loss.svg", "Loss of fine-tuning", "finetuning_loss"),
        Item("score_track.svg", "Scores along a contig", "score_track"),
    ),
    "Chromatin": (
        Item("groups.tsv", "Groups", "tracks"),
        Item("track_calibration.svg", "Whether probabilities hold", "track_calibration"),
        Item("track_calibration.tsv", "Calibration of every track", folded=True),
        Item("tracks.tsv", "Every track", folded=True),
        Item("report.html", "The page of the tracks"),
        Item("bin_similarity.tsv", "By similarity to the training", "bin_similarity"),
    ),
    "Variants": (Item("variants.svg", "Effects", "variants"), Item("variants.tsv", "By subset", folded=True)),
    "What pretraining buys": (
        Item("study.txt", "", "study_words"),
        Item("study.svg", "AUROC and the number of examples", "study"),
        Item("study_steps.svg", "AUROC while fine-tuning", "study_steps"),
        Item("study.tsv", "All starts", "study_table"),
        Item("probes.svg", "What the layers know", "probes"),
        Item("probes.tsv", "Probes, table", folded=True),
    ),
    "Model": (Item("attention.svg", "Attention pattern", "attention"),),
}
"""The page's parts; one without a file is left out."""

TABLE, FIGURE, PAGE, TEXT = ".tsv", ".svg", ".html", ".txt"


def named(paths: Iterable[Path]) -> dict[str, Path]:
    """The files by the names that the page knows.

    Raises
    ------
    UsageError
        The page doesn't know a name, or two files have it.
    """
    known = [item.name for items in PARTS.values() for item in items]
    found: dict[str, Path] = {}
    for path in paths:
        if path.name not in known:
            raise UsageError(f"{path}: the page of a run has no place for it; it shows {', '.join(known)}")
        if path.name in found:
            raise UsageError(f"{path}: {found[path.name]} has that name too")
        found[path.name] = path
    return found
