"""Numbers of README and result pages are those of the stored results, which say how they were made."""

import json
import re
from pathlib import Path

import pytest

from docs.generators import results
from docs.generators.collect import collect, dumped


def test_pages_have_the_numbers_of_the_stored_results() -> None:
    for path in results.pages():
        text = path.read_text(encoding="utf-8")
        assert results.render(text) == text, (
            f"{path}: run python -m docs.generators.results"
        )


def test_stored_results_say_how_they_were_made() -> None:
    for path in sorted(results.DATA.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", document["date"]), path
        assert document["command"] or document["source"], path
        assert dumped(document) == path.read_text(encoding="utf-8"), path


def test_a_run_is_collected(tmp_path: Path) -> None:
    report = tmp_path / "run/report/chromatin"
    report.mkdir(parents=True)
    (report.parent / "promoters.tsv").write_text(
        "negative_set\tmodel\tauroc\tn\tnote\ngenomic\tmodel\t0.875\t8\t\n"
    )
    (report.parent / "summary.tsv").write_text("section\tvalue\n")
    (report / "groups.tsv").write_text("group\tmedian_auroc\nall\t0.5\n")
    document = collect(tmp_path / "run", "make demo", 3.5)
    assert document["tables"] == {
        "groups": [{"group": "all", "median_auroc": 0.5}],
        "promoters": [
            {"negative_set": "genomic", "model": "model", "auroc": 0.875, "n": 8}
        ],
    }
    assert document["machine"]["cores"] >= 1 and document["command"] == "$ make demo"
    assert json.loads(dumped(document)) == document


def test_several_runs_are_shown_as_mean_and_range() -> None:
    rows = [
        {"run": run, "auroc": auroc, "auroc_low": 0.1, "auroc_high": 0.9}
        for run, auroc in (("a", 0.5), ("b", 0.7))
    ]
    assert results.fill("{auroc:.2~}", rows[:1], {}) == "0.50 [0.10, 0.90]"
    assert results.fill("{auroc:.2~}", rows, {}) == "0.60 (0.50 to 0.70)"
    with pytest.raises(ValueError, match="several rows of one run"):
        results.fill("{auroc:.2}", [rows[0], rows[0]], {})
