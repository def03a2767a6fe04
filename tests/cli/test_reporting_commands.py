"""The reporting commands on small files: what they write, print and refuse."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.cli.app import app
from bigbird_dna.config import EncoderConfig
from bigbird_dna.disk.directories import MARKER
from bigbird_dna.errors import ConfigError, DataError, UsageError
from tests.cli.command import words_of_command
from tests.golden.messages import fails
from tests.toys import predictions

STATISTICS = {
    "vocabulary": 256,
    "genome": {"bases": 4_000_000, "bases_per_token": 3.9, "unknown_rate": 0.0},
    "regions": {"promoters": {"bases_per_token": 3.5}, "empty": {"bases_per_token": None}},
}
METRICS = {
    "bits_per_base": 1.91,
    "masked_accuracy": 0.05,
    "steps": 1000,
    "tokens_seen": 5_123_456_789,
    "split": "valid",
}


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, words_of_command(*arguments))
    if result.exception is not None:
        raise result.exception
    return result.stdout


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
        predictions(negative_set, 120, lift, seed).to_parquet(tmp_path / f"{name}.parquet", index=False)
    return {name: tmp_path / f"{name}.parquet" for name in made}


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "pretrained"
    directory.mkdir()
    (directory / "metrics.json").write_text(json.dumps(METRICS))
    lines = [{"step": s, "loss": 5 - s / 100} for s in range(10, 110, 10)]
    lines.append({"step": 100, "evaluation": {"bits_per_base": 1.91}})
    (directory / "training.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


def promoter_report(files: dict[str, Path], output: Path) -> pd.DataFrame:
    run(
        "evaluate promoters",
        *("--predictions", f"genomic={files['genomic']}"),
        *("--predictions", f"permuted={files['permuted']}"),
        *("--baseline", f"genomic={files['kmer']}"),
        *("--control", files["control"]),
        *("-o", output),
    )
    return pd.read_csv(output / "promoters.tsv", sep="\t")


def test_promoter_report(files, tmp_path):
    table = promoter_report(files, tmp_path / "report")
    assert {p.name for p in (tmp_path / "report").iterdir()} == {
        "calibration.svg",
        "calibration.tsv",
        "promoters.tsv",
        "roc.svg",
        "precision_recall.svg",
        "score_histograms.svg",
        MARKER,
    }
    assert table[["negative_set", "model"]].to_numpy().tolist() == [
        ["genomic", "model"],
        ["genomic", "k-mer"],
        ["genomic", "control"],
        ["permuted", "model"],
    ]
    assert (table["n"] == 240).all() and (table["positives"] == 120).all()
    rows = table.set_index(["negative_set", "model"])
    model, control = rows.loc[("genomic", "model")], rows.loc[("genomic", "control")]
    assert model["auroc"] > 0.9 and control["auroc_low"] < 0.5 < control["auroc_high"]
    for name in ("auroc", "auprc", "f1", "mcc"):
        assert (table[f"{name}_low"] < table[name]).all()
        assert (table[name] < table[f"{name}_high"]).all()
    lead = model["auroc"] - rows.loc[("genomic", "k-mer"), "auroc"]
    assert model["auroc_minus_kmer"] == pytest.approx(lead, abs=1e-5)
    assert model["auroc_minus_kmer_low"] > 0
    assert rows["auroc_minus_kmer"].isna().tolist() == [False, True, False, True]


def test_promoter_report_is_repeatable(files, tmp_path):
    for name in ("a", "b"):
        promoter_report(files, tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_single_class_has_empty_figures_and_a_note(files, tmp_path):
    frame = pd.read_parquet(files["permuted"])
    frame[frame["label"] == 0].to_parquet(tmp_path / "negatives.parquet")
    run(
        "evaluate promoters",
        "--predictions",
        f"permuted={tmp_path / 'negatives.parquet'}",
        "-o",
        tmp_path / "r",
    )
    header, line = (tmp_path / "r" / "promoters.tsv").read_text().splitlines()
    row = dict(zip(header.split("\t"), line.split("\t"), strict=True))
    assert row["note"] == "no positives" and row["auroc"] == row["f1_high"] == ""


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--predictions", "genomic"], UsageError, "--predictions 'genomic': expected NAME=FILE"),
        (["--predictions", "g={genomic}", "--predictions", "g={genomic}"], UsageError, "'g' is given twice"),
        (
            ["--predictions", "genomic={genomic}", "--baseline", "x={kmer}"],
            UsageError,
            "baseline 'x': there is no set 'x'",
        ),
        (
            ["--predictions", "permuted={permuted}", "--control", "{control}"],
            UsageError,
            "there is no set 'genomic'",
        ),
        (["--predictions", "permuted={genomic}"], DataError, "holds negative set 'genomic', not 'permuted'"),
        (["--predictions", "genomic=none.parquet"], DataError, "none.parquet: no such file"),
    ],
)
def test_promoter_report_refuses(files, tmp_path, arguments, error, message):
    arguments = [argument.format(**files) for argument in arguments]
    with fails(error):
        run("evaluate promoters", *arguments, "-o", tmp_path / "report")
    assert not (tmp_path / "report").exists()


@pytest.fixture
def bits(tmp_path: Path) -> Path:
    """A table of two splits: on the test contigs the model is ahead of one rival of two."""
    (tmp_path / "bits.tsv").write_text(
        "split\tpredictor\tbits_per_base\tlow\thigh\tdifference\tdifference_low\tdifference_high\tnote\n"
        "valid\tmodel\t1.91\t1.9\t1.92\t\t\t\t\n"
        "test\tmodel\t1.92\t1.91\t1.93\t\t\t\t\n"
        "test\tuniform\t2\t2\t2\t-0.08\t-0.09\t-0.07\t2 bits a base\n"
        "test\tbigrams\t1.94\t1.93\t1.95\t-0.02\t-0.03\t-0.01\torder 2\n"
        "test\tbigrams, told the rest\t1.9\t1.89\t1.91\t0.02\t0.01\t0.03\torder 2\n"
    )
    return tmp_path / "bits.tsv"


def test_pretraining_report(model_dir, bits, tmp_path):
    run("report pretraining", model_dir, "--bits-per-base", bits, "-o", tmp_path / "report")
    names = {p.name for p in (tmp_path / "report").iterdir()}
    assert names == {"loss.svg", "bits_per_base.svg", "bits_per_base.tsv", "held_out.svg", MARKER}
    assert (tmp_path / "report/bits_per_base.tsv").read_text() == bits.read_text()


def test_pretraining_report_refuses_a_table_without_the_model(model_dir, bits, tmp_path):
    bits.write_text(bits.read_text().replace("\tmodel\t", "\tanother\t"))
    with fails(DataError):
        run("report pretraining", model_dir, "--bits-per-base", bits, "-o", tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_the_summary_names_the_best_rivals(bits):
    text = run("report summary", "--bits-per-base", bits)
    lines = [re.split("  +", line.strip()) for line in text.splitlines()]
    assert ["bits per base, model", "1.9200", "[1.9100, 1.9300]", "held out (test)"] in lines
    assert ["bits per base, bigrams", "1.9400", "[1.9300, 1.9500]", "order 2"] in lines
    assert ["model minus it", "-0.0200", "[-0.0300, -0.0100]", "over blocks of 10 kb"] in lines
    assert ["model minus it", "0.0200", "[0.0100, 0.0300]", "over blocks of 10 kb"] in lines
    assert "uniform" not in text and "1.9400" in text


def test_loss_figure(model_dir, tmp_path):
    log = model_dir / "training.jsonl"
    run("report plot-loss", f"first={log}", f"second={log}", "-o", tmp_path / "loss.svg")
    assert (tmp_path / "loss.svg").stat().st_size > 1000
    with fails(UsageError):
        run("report plot-loss", log, "-o", tmp_path / "loss.svg")


def test_score_figure(tmp_path):
    scores = tmp_path / "scores.tsv"
    rows = [
        f"II\t{start}\t{start + 400}\tw\t{start / 4000}\t{strand}\t."
        for start in range(0, 4000, 100)
        for strand in "+-"
    ]
    header = "## x\n#contig\tstart\tend\tname\tscore\tstrand\tnote\n"
    scores.write_text(header + "\n".join(rows) + "\n")
    promoters = tmp_path / "promoters.tsv"
    promoters.write_text("contig\tposition\tstrand\tname\nII\t500\t+\tA\nII\t900\t-\tB\nIV\t1\t+\tC\n")
    run("report plot-scores", scores, "--promoters", promoters, "--upstream", 300, "-o", tmp_path / "a.svg")
    run(
        "report plot-scores",
        scores,
        "--contig",
        "II",
        "--start",
        100,
        "--end",
        2000,
        "-o",
        tmp_path / "b.svg",
    )
    assert (tmp_path / "a.svg").read_bytes() != (tmp_path / "b.svg").read_bytes()
    with fails(UsageError):
        run("report plot-scores", scores, "--start", 10, "--end", 5, "-o", tmp_path / "c.svg")
    with fails(DataError):
        run("report plot-scores", scores, "--contig", "X", "-o", tmp_path / "c.svg")
    assert not (tmp_path / "c.svg").exists()


@pytest.mark.parametrize("attention", ["bigbird", "full"])
def test_attention_figure(tmp_path, attention):
    config = tmp_path / "config.yaml"
    config.write_text(
        "encoder: {layers: 2, hidden: 8, heads: 2, max_length: 160, block_size: 16, random_blocks: 1,"
        f" attention: {attention}}}\npretraining: {{sequence_tokens: 160}}\n"
    )
    for name, layer in (("a", 1), ("b", 1), ("c", 0)):
        run("report plot-attention", config, "--layer", layer, "-o", tmp_path / f"{name}.svg")
    a, b, c = ((tmp_path / f"{name}.svg").read_bytes() for name in "abc")
    assert a == b != c
    with fails(UsageError):
        run("report plot-attention", config, "--layer", 2, "-o", tmp_path / "d.svg")
    with fails(UsageError):
        run("report plot-attention", config, "-o", tmp_path / "d.txt")
    with fails(ConfigError):
        run("report plot-attention", tmp_path / "none.yaml", "-o", tmp_path / "d.svg")
    assert not list(tmp_path.glob("*d.*"))


def test_the_attention_graph_of_a_model_as_a_matrix(tmp_path):
    """Drawn from a configuration or a model directory's description, extra globals in front."""
    encoder = {"layers": 1, "hidden": 8, "heads": 2, "max_length": 160, "block_size": 16}
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"encoder": encoder, "pretraining": {"sequence_tokens": 160}}))
    run("report plot-attention", config, "-o", tmp_path / "a.svg", "--matrix", tmp_path / "a.npy")
    expected = Pattern(16).kinds(10, 2, 0)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), expected)
    model = tmp_path / "model"
    model.mkdir()
    described = EncoderConfig(**encoder, num_global_tokens=20).model_dump()
    description = {"format": 1, "task": "pretraining", "encoder": described, "settings": {}}
    (model / "config.json").write_text(json.dumps(description))
    figure = ("-o", tmp_path / "b.svg", "--matrix", tmp_path / "b.npy", "--tokens", 150)
    run("report plot-attention", model, *figure)
    graph = np.load(tmp_path / "b.npy")
    np.testing.assert_array_equal(graph[:, 2:, 2:], expected)
    assert (graph[:, :2] == 1).all() and (graph[:, :, :2] == 1).all()
    with fails(UsageError):
        run("report plot-attention", config, "-o", tmp_path / "c.svg", "--matrix", tmp_path / "c.txt")


def test_summary(files, model_dir, tmp_path):
    promoter_report(files, tmp_path / "report")
    (tmp_path / "statistics.json").write_text(json.dumps(STATISTICS))
    text = run(
        "report summary",
        *("--pretraining", model_dir / "metrics.json"),
        *("--promoters", tmp_path / "report/promoters.tsv"),
        *("--statistics", tmp_path / "statistics.json"),
        *("--report", "results/demo/report.html"),
        *("-o", tmp_path / "summary.tsv"),
    )
    assert text.rstrip().splitlines()[-1] == "Report: results/demo/report.html"
    assert "masked tokens right" in text and "0.0500" in text and "5,123,456,789" in text
    table = pd.read_csv(tmp_path / "summary.tsv", sep="\t")
    assert list(table.columns) == ["section", "figure", "value", "low", "high", "note"]
    assert "tokens seen\t5123456789\t" in (tmp_path / "summary.tsv").read_text()
    figures = table.set_index(["section", "figure"])
    source = pd.read_csv(tmp_path / "report/promoters.tsv", sep="\t").iloc[0]
    row = figures.loc[("promoters, genomic", "AUROC, model")]
    expected = source[["auroc", "auroc_low", "auroc_high"]].astype(float)
    np.testing.assert_allclose(row[["value", "low", "high"]].astype(float), expected)
    assert figures.loc[("tokens", "bases a token, promoters"), "value"] == 3.5
    assert ("promoters, permuted", "AUROC, model minus k-mer") not in figures.index


def test_summary_says_what_became_of_the_promoters(tmp_path):
    counts = {"read": 4802, "lifted": None, "unmapped": None, "off_reference": 2635, "duplicates": 3}
    (tmp_path / "promoters.json").write_text(json.dumps(counts | {"promoters": 2164}))
    text = run("report summary", "--promoter-counts", tmp_path / "promoters.json")
    lines = [re.split("  +", line.strip()) for line in text.splitlines()]
    assert ["promoters", "2,164", "of 4,802 in the file"] in lines
    assert ["promoters dropped", "2,638", "2,635 not on the reference, 3 duplicates"] in lines


def test_summary_of_what_there_is(model_dir):
    text = run("report summary", "--pretraining", model_dir / "metrics.json")
    assert "Report" not in text and "Pretraining" in text


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("--statistics", "{}", "'genome' is not an object"),
        ("--statistics", "[]", "holds no JSON object"),
        ("--pretraining", "{", "not readable as JSON"),
        ("--pretraining", "{}", "'masked_accuracy' is not a number"),
        ("--bits-per-base", "split\tpredictor\n", "no column 'bits_per_base'"),
        ("--promoters", "negative_set\tstratum\tmodel\n", "no column 'n'"),
        ("--promoters", "", "the file is empty"),
    ],
)
def test_summary_refuses(tmp_path, option, content, message):
    path = tmp_path / "input"
    path.write_text(content)
    with fails(DataError):
        run("report summary", option, path, "-o", tmp_path / "out.tsv")
    assert not (tmp_path / "out.tsv").exists()
    with fails(DataError):
        run("report summary", option, tmp_path / "none")
    with fails(UsageError):
        run("report summary")
