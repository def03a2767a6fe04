"""Numbers and names as the page writes them."""

from __future__ import annotations

import re

from bigbird_dna.reporting.tracks.tables import PUBLISHED


def decimal(value: float) -> str:
    """Three digits; nothing for NaN."""
    return "" if value != value else f"{value:.3f}"


def signed(value: float) -> str:
    """Three digits with a sign, none before zero; nothing for NaN."""
    if value != value:
        return ""
    text = f"{value:+.3f}".replace("-", "−")
    return text if text.strip("+−0.") else "0.000"


def predictor_label(name: str) -> str:
    """What stands behind "AUROC, "."""
    return "published" if name == PUBLISHED else name


def breakable(name: str) -> str:
    """An escaped name that lines may break in after its separators."""
    return re.sub(r"(?<=[|._/:])(?=[^|._/:])", "<wbr>", name)
