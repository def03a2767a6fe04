"""Tables of a report: promoter metrics, bits per base, and the run's summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.errors import DataError, error_text
from bigbird_dna.files import atomic_path, read_json
from bigbird_dna.reporting.metrics.auroc import UNDEFINED, Estimate
from bigbird_dna.reporting.metrics.binary import auroc_difference, binary_metrics
from bigbird_dna.reporting.promoters.predictions import KMER, Comparison

if TYPE_CHECKING:
    import pandas as pd

DIFFERENCE = "auroc_minus_kmer"


def promoter_table(comparisons: Sequence[Comparison], seed: int = 0) -> pd.DataFrame:
    """One row a negative set and predictor, with `binary_metrics` and the AUROC lead over the k-mers.

    Pairs are resampled together. Figures that are not defined are empty; `note` says why.
    """
    import pandas as pd

    rows = []
    for comparison in comparisons:
        kmer = comparison.scores.get(KMER)
        for name, scores in comparison.scores.items():
            metrics = binary_metrics(comparison.labels, scores, seed, groups=comparison.pairs)
            lead = (
                UNDEFINED
                if kmer is None or name == KMER
                else auroc_difference(comparison.labels, scores, kmer)
            )
            figures = metrics._asdict()
            note = figures.pop("note")
            rows.append(
                {
                    "negative_set": comparison.negative_set,
                    "model": name,
                    **figures,
                    **_named(DIFFERENCE, lead),
                    "note": note,
                }
            )
    return pd.DataFrame(rows)


def bits_per_base_table(metrics: Mapping[str, Any], source: Path) -> pd.DataFrame:
    """Predictor and bits per base, from the `metrics.json` of pretraining; lower is better."""
    import pandas as pd

    order = metrics.get("ngram_order")
    named = {
        "uniform": "uniform_bits_per_base",
        "n-gram" if order is None else f"{order}-gram": "ngram_bits_per_base",
        "model": "bits_per_base",
    }
    rows = [(name, number(metrics, key, source)) for name, key in named.items()]
    return pd.DataFrame(rows, columns=["predictor", "bits_per_base"])


def write_tsv(path: Path, table: pd.DataFrame, digits: int = 6) -> None:
    """Write a table with tabs; whole numbers in full, `digits` of others, nothing for undefined ones."""
    text = table.copy()
    for name in text.select_dtypes("float").columns:
        text[name] = [_cell(value, digits) for value in text[name]]
    with atomic_path(path) as temporary:
        text.to_csv(temporary, sep="\t", index=False, lineterminator="\n")


def _cell(value: float, digits: int) -> str:
    if value != value:
        return ""
    return f"{value:.0f}" if value.is_integer() else f"{value:.{digits}g}"


def read_tsv(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a table that must have `columns`."""
    import pandas as pd

    try:
        table = pd.read_csv(path, sep="\t")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not readable as a table: {error_text(error)}") from None
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise DataError(f"{path}: no column {missing[0]!r}")
    return table


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that must hold an object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise DataError(f"{path}: holds no JSON object")
    return value


def number(values: Mapping[str, Any], key: str, source: Path) -> float:
    """`values[key]`, which must be a number; `source` is the file it came from."""
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"{source}: {key!r} is no number but {value!r:.60}")
    return float(value)


def _named(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
