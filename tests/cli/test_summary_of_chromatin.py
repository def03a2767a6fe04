"""`summary` of chromatin tracks and variants, from what `auc-report` and `evaluate variants` write."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError
from bigbird_dna.reporting.known_effects import KnownEffect
from bigbird_dna.reporting.variants import variant_table
from tests.cli.command import invoke
from tests.golden.messages import fails

Summary = Callable[..., tuple[str, pd.DataFrame]]
# Track: group, and how much the wide and the narrow window see of it.
TRACKS = {
    "NEAR": ("TF", 2.0, 2.0),
    "RARE": ("TF", 3.0, 0.0),
    "FAR": ("HM", 2.0, 0.2),
    "BOTH": ("HM", 1.5, 1.0),
    "ABSENT": ("DHS", 1.0, 1.0),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports of five tracks, one with few positives and one with none, and of twelve variants."""
    home = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    labels = (rng.random((400, 5)) < [0.3, 0.01, 0.3, 0.3, 0.0]).astype(np.uint8)
    signal = {"wide": [t[1] for t in TRACKS.values()], "narrow": [t[2] for t in TRACKS.values()]}
    for name, strength in {**signal, "kmers": np.full(5, 0.5)}.items():
        np.save(home / f"{name}.npy", rng.normal(size=labels.shape) + labels * strength)
    np.save(home / "labels.npy", labels)
    rows = "".join(f"{name}\t{group}\n" for name, (group, *_) in TRACKS.items())
    (home / "tracks.tsv").write_text(f"track\tgroup\n{rows}")
    words = ["auc-report", home / "wide.npy", home / "labels.npy", "--tracks", home / "tracks.tsv"]
    words += ["--compare", f"window_1000={home / 'narrow.npy'}", "--min-positives", 20]
    words += ["--compare", f"kmers={home / 'kmers.npy'}", "-o", home / "chromatin"]
    invoke(*words)
    variants = [
        KnownEffect(f"c{n % 2}", "NEAR", "", ("loss", "none")[n < 6], (-1) ** n * n / 20, n)
        for n in range(12)
    ]
    write_tsv(home / "variants.tsv", variant_table(variants, ["c1"]))
    return home


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    """Runs the command; gives the text and the table."""

    def run(*words: object) -> tuple[str, pd.DataFrame]:
        out = tmp_path / "summary.tsv"
        text = invoke("report summary", *words, "-o", out)
        table = pd.read_csv(out, sep="\t", dtype={"note": str}).set_index(["section", "figure"])
        return text, table

    return run


def test_summary_of_tracks_and_variants(report: Path, summary: Summary) -> None:
    words = ("--groups", report / "chromatin/groups.tsv", "--tracks", report / "chromatin/tracks.tsv")
    text, table = summary(*words, "--variants", report / "variants.tsv")
    sections = list(dict.fromkeys(table.index.get_level_values(0)))
    above = "chromatin, AUROC above window 1000"
    groups = ["chromatin, TF", "chromatin, HM", "chromatin, DHS", "chromatin, all"]
    assert sections == [*groups, above, "variants"]
    source = pd.read_csv(report / "chromatin/groups.tsv", sep="\t").set_index("group")
    for group in ("TF", "HM", "all"):
        rows = table.loc[f"chromatin, {group}"]
        for figure, column in {
            "model": "median_auroc",
            "window 1000": "median_auroc_window_1000",
            "k-mer regression": "median_auroc_kmers",
        }.items():
            found = rows.loc[f"median AUROC, {figure}", "value"]
            assert found == pytest.approx(source.loc[group, column], rel=1e-5)
    notes = table.xs("median AUROC, model", level="figure")["note"]
    assert notes.tolist() == ["1 track", "2 tracks", "0 tracks", "3 tracks"]
    assert np.isnan(table.loc[("chromatin, DHS", "median AUROC, model"), "value"])
    # RARE leads by more, but has too few positives to count.
    leads = table.loc[above]
    assert leads.index.tolist()[:2] == ["FAR", "BOTH"] and "RARE" not in leads.index
    assert leads["value"].is_monotonic_decreasing
    assert leads.loc["FAR", "low"] > 0.2
    source = pd.read_csv(report / "chromatin/tracks.tsv", sep="\t").set_index("track").loc["FAR"]
    expected = f"{source['auroc']:.4f} against {source['auroc_window_1000']:.4f}"
    assert leads.loc["FAR", "note"] == expected
    # Six fully separated pairs: the lower end is that of 6 right answers of 6.
    area = table.loc[("variants", "AUROC, all")]
    assert area[["value", "high", "note"]].tolist() == [1, 1, "12 variants, 6 with an effect"]
    assert area["low"] == pytest.approx(binomtest(6, 6).proportion_ci(0.95, "exact").low, abs=1e-6)
    assert table.loc[("variants", "right sign, held-out"), "value"] == 1
    for line in ("Chromatin, TF", "Chromatin, AUROC above window 1000", "Variants"):
        assert f"\n{line}\n" in text
    assert len(text.splitlines()) < 40 and max(map(len, text.splitlines())) < 100


def test_summary_of_tracks_without_comparison(report: Path, summary: Summary, tmp_path: Path) -> None:
    groups, tracks = tmp_path / "groups.tsv", tmp_path / "tracks.tsv"
    groups.write_text("group\ttracks\tmedian_auroc\tmedian_auroc_published\n1\t1\t0.9\t0.8\n")
    tracks.write_text("track\tauroc\tnote\tpublished_auroc\tdelta_published\n1\t0.9\t\t0.8\t0.1\n")
    _, table = summary("--groups", groups, "--tracks", tracks)
    assert table.index.tolist() == [
        ("chromatin, 1", "median AUROC, model"),
        ("chromatin, 1", "median AUROC, published"),
    ]


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--groups", "group\ttracks\n"),
        ("--groups", "group\ttracks\tmedian_auroc\nTF\t2\thigh\n"),
        ("--tracks", "track\tauroc\tnote\tdelta_a\nX\t1\t\t0\n"),
        ("--variants", "subset\tvariants\n"),
        ("--variants", ""),
    ],
)
def test_summary_refuses_other_tables(summary: Summary, tmp_path: Path, option: str, text: str) -> None:
    path = tmp_path / "input.tsv"
    path.write_text(text)
    with fails(DataError):
        summary(option, path)
    assert list(tmp_path.iterdir()) == [path]
