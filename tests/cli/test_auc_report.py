"""`auc-report` as a command: files in, files out, one line for what is wrong."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bigbird_dna.cli.app import app
from bigbird_dna.errors import DataError, UsageError


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["auc-report", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.output


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
    ("arguments", "error", "message"),
    [
        (["{p}", "{l}", "--compare", "k"], UsageError, "--compare 'k': expected NAME=FILE"),
        (["{p}", "{l}", "--compare", "k={k}", "--compare", "k={k}"], UsageError, "given twice"),
        (["{p}", "{l}", "--compare", "k=no.npy"], DataError, "no.npy: no such file"),
        (["{p}", "none.npy"], DataError, "none.npy: no such file"),
        (["{p}", "{p}"], DataError, r"p.npy: row \d+, track 'track \d': label"),
        (["{p}", "{l}", "--tracks", "{u}"], DataError, "no column 'group'"),
        (["{p}", "{l}", "--published", "{u}"], DataError, "none of its tracks"),
    ],
)
def test_refused(files, tmp_path, arguments, error, message):
    with pytest.raises(error, match=message):
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
