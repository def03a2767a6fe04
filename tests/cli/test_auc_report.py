"""`auc-report` as a command: files in, files out, one line for what is wrong."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bigbird_dna.cli.app import app
from bigbird_dna.errors import DataError, UsageError
from tests.golden.messages import fails, message


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["auc-report", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.output  # the log as well


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    labels = (rng.random((300, 4)) < 0.2).astype(np.uint8)
    scores = (rng.normal(size=(300, 4)) + labels).astype(np.float32)
    paths = {name: tmp_path / f"{name}.npy" for name in ("p", "l", "k")}
    np.save(paths["p"], scores)
    np.save(paths["l"], labels)
    np.save(paths["k"], scores + rng.normal(size=scores.shape).astype(np.float32))
    paths["t"] = tmp_path / "tracks.tsv"
    paths["t"].write_text("track\tgroup\ncell.A\tTF\ncell.B\tTF\ncell.C\tDHS\ncell.D\tDHS\n")
    paths["u"] = tmp_path / "published.tsv"
    paths["u"].write_text("track\tauroc\ncell.D\t0.7\ncell.A\t0.8\n")
    return paths


def test_report(files, tmp_path):
    out = tmp_path / "a/report"
    text = run(
        *(files["p"], files["l"], "-o", out, "--tracks", files["t"]),
        *("--published", files["u"], "--compare", f"k-mer={files['k']}", "--title", "My tracks"),
    )
    assert "TF: median AUROC" in text and "all: median AUROC" in text
    table = pd.read_csv(out / "tracks.tsv", sep="\t")
    assert table["track"].tolist() == ["cell.A", "cell.B", "cell.C", "cell.D"]
    np.testing.assert_array_equal(table["published_auroc"], [0.8, np.nan, np.nan, 0.7])
    assert (table["delta_k-mer"] > 0).all()
    page = (out / "report.html").read_text()
    assert "<h1>My tracks</h1>" in page and str(files["u"]) in page and str(files["t"]) in page
    # A report takes the place of an earlier one.
    run(files["p"], files["l"], "-o", out)
    assert len(pd.read_csv(out / "groups.tsv", sep="\t")) == 1
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["{p}", "{l}", "--compare", "k"], UsageError),
        (["{p}", "{l}", "--compare", "k={k}", "--compare", "k={k}"], UsageError),
        (["{p}", "{l}", "--compare", "k=no.npy"], DataError),
        (["{p}", "none.npy"], DataError),
        (["{p}", "{p}"], DataError),
        (["{p}", "{l}", "--tracks", "{u}"], DataError),
        (["{p}", "{l}", "--published", "{u}"], DataError),
    ],
)
def test_refused(files, tmp_path, arguments, error):
    with fails(error):
        run(*[argument.format(**files) for argument in arguments], "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_one_line_and_exit_code(files, tmp_path):
    scores = np.load(files["p"])
    scores[3, 2] = np.nan
    np.save(files["p"], scores)
    command = [sys.executable, "-m", "bigbird_dna.cli.main", "auc-report"]
    command += [str(files["p"]), str(files["l"]), "-o", str(tmp_path / "out")]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 1 and outcome.stdout == ""
    line = outcome.stderr.strip().splitlines()[-1]
    assert line == (
        f"bigbird-dna: error: {files['p']}: row 4, track 'track 3': the prediction is NaN or missing"
    )
    assert not (tmp_path / "out").exists()


def test_infinities_are_counted_and_ranked(files, tmp_path):
    scores = np.load(files["p"])
    scores[:3, 1], scores[7, 3] = np.inf, -np.inf
    np.save(files["p"], scores)
    run(files["p"], files["l"], "-o", tmp_path / "infinite")
    np.save(files["k"], np.clip(scores, -1e6, 1e6))
    run(files["k"], files["l"], "-o", tmp_path / "large")
    for table in ("tracks.tsv", "groups.tsv"):
        assert (tmp_path / "infinite" / table).read_bytes() == (tmp_path / "large" / table).read_bytes()
    said = run(files["p"], files["l"], "-o", tmp_path / "infinite", "--compare", f"k={files['k']}")
    warnings = [line for line in said.splitlines() if "warning" in line]
    assert len(warnings) == 1 and f"{files['p']}: 4 predictions are infinite" in warnings[0]
    assert warnings[0].endswith("in the tracks track 2, track 4")


def test_more_tracks_than_rows_are_asked_about(files, tmp_path):
    for name in ("p", "l"):
        np.save(files[name], np.load(files[name]).T)
    said = run(files["p"], files["l"], "-o", tmp_path / "turned")
    message(said, "warning: ", "4 rows × 300 tracks")


def test_tables_as_pandas_writes_them(files, tmp_path):
    """Its index and the names it makes up are neither tracks nor rows."""
    run(files["p"], files["l"], "-o", tmp_path / "arrays")
    names = [f"track {number}" for number in range(1, 5)]
    for name in ("p", "l"):
        pd.DataFrame(np.load(files[name]).astype(float)).to_csv(tmp_path / f"{name}.csv")
        frame = pd.DataFrame(np.load(files[name]).astype(float), columns=names)
        frame.to_csv(tmp_path / f"{name}.tsv", sep="\t")
    for ending in ("csv", "tsv"):
        said = run(tmp_path / f"p.{ending}", tmp_path / f"l.{ending}", "-o", tmp_path / ending)
        message(said, f"p.{ending}: ", f"l.{ending}: ")
        tables = ((tmp_path / made / "tracks.tsv").read_text() for made in ("arrays", ending))
        assert len(set(tables)) == 1


def test_one_track_as_arrays_of_one_axis(files, tmp_path):
    for name in ("p", "l"):
        values = np.load(files[name])
        np.save(tmp_path / f"{name}1.npy", values[:, 2])
        np.save(tmp_path / f"{name}2.npy", values[:, 2:3])
    run(tmp_path / "p1.npy", tmp_path / "l1.npy", "-o", tmp_path / "flat")
    run(tmp_path / "p2.npy", tmp_path / "l2.npy", "-o", tmp_path / "column")
    assert (tmp_path / "flat/tracks.tsv").read_text() == (tmp_path / "column/tracks.tsv").read_text()
