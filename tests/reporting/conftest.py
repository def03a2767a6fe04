"""Reports without their figures, which take most of the time of a report."""

from pathlib import Path
from typing import Any

import pytest

from bigbird_dna.reporting import calibration, promoters, scan, sequences, variants


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are laid out but not drawn: their files are empty images."""

    def save(figure: Any, path: Path, **options: Any) -> None:
        path.write_text("<svg xmlns='http://www.w3.org/2000/svg'></svg>")

    for module in (calibration, promoters, scan, sequences, variants):
        monkeypatch.setattr(module, "save_figure", save)
