"""The reporting commands on small files: what they write, print and refuse."""

from pathlib import Path

import pytest

from bigbird_dna.errors import UsageError
from tests.cli.command import invoke as run
from tests.golden.messages import fails
from tests.toys import predictions


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Predictions for 120 pairs: negative set, deviations between the classes, seed."""
    made = {
        "genomic": ("genomic", 2.5, 1),
        "permuted": ("permuted", 1.0, 2),
        "kmer": ("genomic", 1.0, 3),
        "control": ("genomic", 0.0, 4),
    }
    for name, (negative_set, lift, seed) in made.items():
        predictions(negative_set, 120, lift, seed).to_parquet(
            tmp_path / f"{name}.parquet", index=False
        )
    return {name: tmp_path / f"{name}.parquet" for name in made}


def test_score_figure(tmp_path):
    scores = tmp_path / "scores.tsv"
    rows = [
        f"II\t{start}\t{start + 400}\tw\t{start / 4000}\t{strand}\t.\t{start + 300}"
        for start in range(0, 4000, 100)
        for strand in "+-"
    ]
    header = "## x\ncontig\tstart\tend\tname\tscore\tstrand\tnote\ttss\n"
    scores.write_text(header + "\n".join(rows) + "\n")
    promoters = tmp_path / "promoters.tsv"
    promoters.write_text(
        "contig\tposition\tstrand\tname\nII\t500\t+\tA\nII\t900\t-\tB\nIV\t1\t+\tC\n"
    )
    run(
        "report plot-scores", scores, "--promoters", promoters, "-o", tmp_path / "a.svg"
    )
    part = ("--contig", "II", "--start", 100, "--end", 2000, "-o", tmp_path / "b.svg")
    run("report plot-scores", scores, *part)
    assert (tmp_path / "a.svg").read_bytes() != (tmp_path / "b.svg").read_bytes()
    with fails(UsageError):
        run(
            "report plot-scores",
            scores,
            "--start",
            10,
            "--end",
            5,
            "-o",
            tmp_path / "c.svg",
        )
    assert not (tmp_path / "c.svg").exists()


# Summaries of tracks and variants


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("evaluate promoters --predictions genomic", UsageError),
        (
            "evaluate promoters --predictions g={genomic} --predictions g={genomic}",
            UsageError,
        ),
        (
            "evaluate promoters --predictions genomic={genomic} --promoter-baseline x={kmer}",
            UsageError,
        ),
        (
            "evaluate promoters --predictions permuted={permuted} --control {control}",
            UsageError,
        ),
    ],
)
def test_what_cannot_be_reported(files, tmp_path, words, error):
    with fails(error):
        run(words.format(**files), "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()
