"""The reporting commands on small files: what they write, print and refuse."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.config import EncoderConfig
from bigbird_dna.config.network import stored_encoder
from bigbird_dna.data.predictions import AUROC_SHIFTED, MEDIAN_SHIFTED, SHIFTS
from bigbird_dna.disk.directories import MARKER
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import ConfigError, DataError, UsageError
from bigbird_dna.reporting.headlines import headlines
from bigbird_dna.reporting.known_effects import KnownEffect
from bigbird_dna.reporting.variants import COMPARED, variant_table
from tests.cli.command import invoke as run
from tests.golden.messages import fails, message
from tests.toys import predictions

STATISTICS = {
    "vocabulary": 256,
    "genome": {"bases": 4_000_000, "bases_per_token": 3.9, "unknown_rate": 0.0},
    "regions": {
        "promoters": {"bases_per_token": 3.5},
        "empty": {"bases_per_token": None},
    },
}
METRICS = {
    "bits_per_base": 1.91,
    "masked_accuracy": 0.05,
    "steps": 1000,
    "tokens_seen": 5_123_456_789,
    "split": "valid",
}


BITS = "split\tpredictor\tbits_per_base\tlow\thigh\tdifference\tdifference_low\tdifference_high\tnote\n"


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


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "pretrained"
    directory.mkdir()
    (directory / "metrics.json").write_text(json.dumps(METRICS))
    lines = [{"step": s, "loss": 5 - s / 100} for s in range(10, 110, 10)]
    lines.append({"step": 100, "evaluation": {"bits_per_base": 1.91}})
    (directory / "training.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    return directory


def promoter_report(files: dict[str, Path], output: Path) -> pd.DataFrame:
    run(
        "evaluate promoters",
        *("--predictions", f"genomic={files['genomic']}"),
        *("--predictions", f"permuted={files['permuted']}"),
        *("--promoter-baseline", f"genomic={files['kmer']}"),
        *("--control", files["control"]),
        *("-o", output),
    )
    return pd.read_csv(output / "promoters.tsv", sep="\t")


@pytest.fixture
def bits(tmp_path: Path) -> Path:
    """A table of two splits: on the test contigs the model is ahead of one rival of two."""
    (tmp_path / "bits.tsv").write_text(
        f"{BITS}"
        "valid\tmodel\t1.91\t1.9\t1.92\t\t\t\t\n"
        "test\tmodel\t1.92\t1.91\t1.93\t\t\t\t\n"
        "test\tuniform\t2\t2\t2\t-0.08\t-0.09\t-0.07\t2 bits a base\n"
        "test\tbigrams\t1.94\t1.93\t1.95\t-0.02\t-0.03\t-0.01\torder 2\n"
        "test\tbigrams, one token masked at a time\t1.9\t1.89\t1.91\t0.02\t0.01\t0.03\torder 2\n"
    )
    return tmp_path / "bits.tsv"


def test_pretraining_report(model_dir, bits, tmp_path):
    run(
        "report pretraining",
        model_dir,
        "--bits-per-base",
        bits,
        "-o",
        tmp_path / "report",
    )
    names = {p.name for p in (tmp_path / "report").iterdir()}
    assert names == {
        "loss.svg",
        "bits_per_base.svg",
        "bits_per_base.tsv",
        "held_out.svg",
        MARKER,
    }
    assert (tmp_path / "report/bits_per_base.tsv").read_text() == bits.read_text()


def test_the_summary_names_the_best_rivals(bits):
    text = run("report summary", "--bits-per-base", bits)
    lines = [re.split("  +", line.strip()) for line in text.splitlines()]
    found = {tuple(line[1:3]) for line in lines if len(line) > 2}
    assert found >= {("1.9200", "[1.9100, 1.9300]"), ("1.9400", "[1.9300, 1.9500]")}
    assert found >= {("-0.0200", "[-0.0300, -0.0100]"), ("0.0200", "[0.0100, 0.0300]")}
    message(text)
    assert "uniform" not in text and "1.9400" in text


def test_loss_figure(model_dir, tmp_path):
    log = model_dir / "training.jsonl"
    run(
        "report plot-loss", f"first={log}", f"second={log}", "-o", tmp_path / "loss.svg"
    )
    assert (tmp_path / "loss.svg").stat().st_size > 1000
    with fails(UsageError):
        run("report plot-loss", log, "-o", tmp_path / "loss.svg")


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


@pytest.mark.parametrize("attention", ["bigbird", "full"])
def test_attention_figure(tmp_path, attention):
    config = tmp_path / "config.yaml"
    config.write_text(
        "encoder: {layers: 2, hidden: 8, heads: 2, max_length: 160, block_size: 16, random_blocks: 1,"
        f" attention: {attention}}}\npretraining: {{sequence_tokens: 160}}\n"
    )
    for name, layer in (("a", 1), ("b", 1), ("c", 0)):
        run(
            "report plot-attention",
            config,
            "--layer",
            layer,
            "-o",
            tmp_path / f"{name}.svg",
        )
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
    encoder = {
        "layers": 1,
        "hidden": 8,
        "heads": 2,
        "max_length": 160,
        "block_size": 16,
    }
    config = tmp_path / "config.yaml"
    config.write_text(
        json.dumps({"encoder": encoder, "pretraining": {"sequence_tokens": 160}})
    )
    run(
        "report plot-attention",
        config,
        "-o",
        tmp_path / "a.svg",
        "--matrix",
        tmp_path / "a.npy",
    )
    expected = Pattern(16).kinds(10, 2, 0)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), expected)
    model = tmp_path / "model"
    model.mkdir()
    described = stored_encoder(EncoderConfig(**encoder, num_global_tokens=20))
    description = {
        "format": 1,
        "task": "pretraining",
        "encoder": described,
        "settings": {},
    }
    (model / "config.json").write_text(json.dumps(description))
    figure = (
        "-o",
        tmp_path / "b.svg",
        "--matrix",
        tmp_path / "b.npy",
        "--seq-len",
        150,
    )
    run("report plot-attention", model, *figure)
    graph = np.load(tmp_path / "b.npy")
    np.testing.assert_array_equal(graph[:, 2:, 2:], expected)
    assert (graph[:, :2] == 1).all() and (graph[:, :, :2] == 1).all()
    with fails(UsageError):
        run(
            "report plot-attention",
            config,
            "-o",
            tmp_path / "c.svg",
            "--matrix",
            tmp_path / "c.txt",
        )


def test_summary(files, model_dir, tmp_path):
    promoter_report(files, tmp_path / "report")
    (tmp_path / "statistics.json").write_text(json.dumps(STATISTICS))
    text = run(
        "report summary",
        *("--pretraining", model_dir / "metrics.json"),
        *("--promoter-table", tmp_path / "report/promoters.tsv"),
        *("--statistics", tmp_path / "statistics.json"),
        *("--report", "results/demo/report.html"),
        *("-o", tmp_path / "summary.tsv"),
    )
    assert text.rstrip().splitlines()[-1] == "Report: results/demo/report.html"
    assert (
        "masked-token accuracy" in text and "0.0500" in text and "5,123,456,789" in text
    )
    table = pd.read_csv(tmp_path / "summary.tsv", sep="\t")
    assert "tokens seen\t5123456789\t" in (tmp_path / "summary.tsv").read_text()
    figures = table.set_index(["section", "metric"])
    source = pd.read_csv(tmp_path / "report/promoters.tsv", sep="\t").iloc[0]
    row = figures.loc[("promoters, genomic", "AUROC, model")]
    expected = source[["auroc", "auroc_low", "auroc_high"]].astype(float)
    np.testing.assert_allclose(row[["value", "low", "high"]].astype(float), expected)
    assert 3.5 in figures.loc["tokens", "value"].tolist()
    assert (
        "promoters, permuted",
        "AUROC, model minus k-mer regression",
    ) not in figures.index


def test_summary_says_what_became_of_the_promoters(tmp_path):
    counts = {
        "read": 4802,
        "lifted": None,
        "unmapped": None,
        "off_reference": 2635,
        "duplicates": 3,
    }
    (tmp_path / "promoters.json").write_text(json.dumps(counts | {"promoters": 2164}))
    text = run("report summary", "--promoter-counts", tmp_path / "promoters.json")
    message(text, "2,164", "4,802", "2,638", "2,635", "3 duplicates")


# Summaries of tracks and variants

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
    signal = {
        "wide": [t[1] for t in TRACKS.values()],
        "narrow": [t[2] for t in TRACKS.values()],
    }
    for name, strength in {**signal, "kmers": np.full(5, 0.5)}.items():
        np.save(home / f"{name}.npy", rng.normal(size=labels.shape) + labels * strength)
    np.save(home / "labels.npy", labels)
    rows = "".join(f"{name}\t{group}\n" for name, (group, *_) in TRACKS.items())
    (home / "tracks.tsv").write_text(f"track\tgroup\n{rows}")
    words = [
        "auc-report",
        home / "wide.npy",
        home / "labels.npy",
        "--tracks",
        home / "tracks.tsv",
    ]
    words += ["--compare", f"window_1000={home / 'narrow.npy'}", "--min-positives", 20]
    words += ["--compare", f"kmers={home / 'kmers.npy'}", "-o", home / "chromatin"]
    run(*words)
    variants = [
        KnownEffect(
            f"c{n % 2}",
            30_000 * n + 1,
            "NEAR",
            "",
            ("loss", "none")[n < 6],
            (-1) ** n * n / 20,
            n,
        )
        for n in range(12)
    ]
    write_tsv(home / "variants.tsv", variant_table(variants, ["c1"]))
    return home


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    """Runs the command; gives the text and the table."""

    def call(*words: object) -> tuple[str, pd.DataFrame]:
        out = tmp_path / "summary.tsv"
        text = run("report summary", *words, "-o", out)
        table = pd.read_csv(out, sep="\t", dtype={"note": str}).set_index(
            ["section", "metric"]
        )
        return text, table

    return call


def test_summary_of_tracks_and_variants(
    report: Path, summary: Summary, tmp_path: Path
) -> None:
    words = (
        "--groups",
        report / "chromatin/groups.tsv",
        "--auc-tracks",
        report / "chromatin/tracks.tsv",
    )
    text, table = summary(*words, "--variants", report / "variants.tsv")
    sections = list(dict.fromkeys(table.index.get_level_values(0)))
    above = "chromatin, AUROC above 1,000-bp model"
    groups = ["chromatin, TF", "chromatin, HM", "chromatin, DHS", "chromatin, all"]
    assert sections == [*groups, above, "variants, all", "variants, held-out"]
    source = pd.read_csv(report / "chromatin/groups.tsv", sep="\t").set_index("group")
    for group in ("TF", "HM", "all"):
        rows = table.loc[f"chromatin, {group}"]
        for figure, column in {
            "model": "median_auroc",
            "1,000-bp model": "median_auroc_window_1000",
            "k-mer regression": "median_auroc_kmers",
        }.items():
            found = rows.loc[f"median AUROC, {figure}", "value"]
            assert found == pytest.approx(source.loc[group, column], rel=1e-5)
    notes = table.xs("median AUROC, model", level="metric")["note"]
    assert notes.tolist() == ["1 track", "2 tracks", "0 tracks", "3 tracks"]
    assert np.isnan(table.loc[("chromatin, DHS", "median AUROC, model"), "value"])
    difference = table.loc[
        ("chromatin, HM", "median AUROC, model minus 1,000-bp model")
    ]
    assert difference["value"] == pytest.approx(
        source.loc["HM", "median_delta_window_1000"], rel=1e-5
    )
    counts = table.loc[
        ("chromatin, all", "median AUROC, model minus k-mer regression"), "note"
    ]
    assert [re.findall(r"\d+", note) for note in (difference["note"], counts)] == [
        ["2", "0", "2"],
        ["3", "0", "3"],
    ]
    # RARE leads by more, but has too few positives to count.
    leads = table.loc[above]
    assert leads.index.tolist()[:2] == ["FAR", "BOTH"] and "RARE" not in leads.index
    assert leads["value"].is_monotonic_decreasing
    assert leads.loc["FAR", "low"] > 0.2
    source = (
        pd.read_csv(report / "chromatin/tracks.tsv", sep="\t")
        .set_index("track")
        .loc["FAR"]
    )
    expected = f"{source['auroc']:.4f} against {source['auroc_window_1000']:.4f}"
    assert leads.loc["FAR", "note"] == expected
    # Six fully separated pairs: the lower end is that of 6 right answers of 6.
    area = table.loc[("variants, all", "AUROC, model")]
    assert area[["value", "high", "note"]].tolist() == [
        1,
        1,
        "12 variants, 6 with an effect",
    ]
    assert area["low"] == pytest.approx(
        binomtest(6, 6).proportion_ci(0.95, "exact").low, abs=1e-6
    )
    assert table.loc[("variants, held-out", "sign accuracy"), "value"] == 1
    # Another predictor of the same variants is their baseline, instead of chance.
    numbers = [12, 6, 0.9, 0.6, 0.95, 0.1, -0.05, 0.25, 1.0]
    rows = [[subset, "kmers", *numbers] for subset in ("all", "category=x")]
    write_tsv(tmp_path / "compared.tsv", pd.DataFrame(rows, columns=COMPARED.names))
    words = (
        "--variants",
        report / "variants.tsv",
        "--compared-variants",
        tmp_path / "compared.tsv",
    )
    _, table = summary(*words)
    assert not any("category" in section for section, _ in table.index)
    found = {one.model.section: one for one in headlines(tmp_path / "summary.tsv")}
    own = found["variants, all"]
    assert (own.baseline, own.best.value, own.difference.value) == (
        "k-mer regression",
        0.9,
        0.1,
    )
    assert own.verdict == "not measurably different"
    assert found["variants, held-out"].baseline == "chance"
    for line in (
        "Chromatin, TF",
        "Chromatin, AUROC above 1,000-bp model",
        "Variants, all",
    ):
        assert f"\n{line}\n" in text
    assert len(text.splitlines()) < 48 and max(map(len, text.splitlines())) < 110


def test_summary_of_moved_windows(summary: Summary, tmp_path: Path) -> None:
    """Below the other rows of promoters; a model without test promoters has none."""
    moved = {
        key.format(bp): 0.5 + bp / 100
        for key in (MEDIAN_SHIFTED, AUROC_SHIFTED)
        for bp in (0, *SHIFTS)
    }
    for name, metrics in (("a", {"test": moved}), ("b", {"test": {}}), ("c", {})):
        (tmp_path / f"{name}.json").write_text(json.dumps(metrics))
    words = [f"--promoter-metrics={name}={tmp_path / name}.json" for name in "abc"]
    _, table = summary(*words)
    assert table.index.tolist() == [
        ("promoters, a", f"median score, window moved by {bp} bp")
        for bp in (0, *SHIFTS)
    ]
    assert table["value"].tolist() == [0.5, 0.51, 0.52, 0.55, 0.6]
    assert table["note"].iloc[-1] == "test promoters; AUROC 0.6000"


def test_summary_of_tracks_without_comparison(
    report: Path, summary: Summary, tmp_path: Path
) -> None:
    groups, tracks = tmp_path / "groups.tsv", tmp_path / "tracks.tsv"
    groups.write_text(
        "group\ttracks\tmedian_auroc\tmedian_auroc_published\n1\t1\t0.9\t0.8\n"
    )
    tracks.write_text(
        "track\tgroup\tauroc\tnote\tpublished_auroc\tdelta_published\n1\t1\t0.9\t\t0.8\t0.1\n"
    )
    _, table = summary("--groups", groups, "--auc-tracks", tracks)
    assert table.index.tolist() == [
        ("chromatin, 1", "median AUROC, model"),
        ("chromatin, 1", "median AUROC, published"),
    ]


@pytest.mark.parametrize(
    ("words", "error", "content"),
    [
        ("evaluate promoters --predictions genomic", UsageError, ""),
        (
            "evaluate promoters --predictions g={genomic} --predictions g={genomic}",
            UsageError,
            "",
        ),
        (
            "evaluate promoters --predictions genomic={genomic} --promoter-baseline x={kmer}",
            UsageError,
            "",
        ),
        (
            "evaluate promoters --predictions permuted={permuted} --control {control}",
            UsageError,
            "",
        ),
        (
            "report pretraining {model} --bits-per-base {input}",
            DataError,
            BITS + "test\tuniform\t2\t2\t2\t\t\t\t\n",
        ),
        ("report summary", UsageError, ""),
        ("report summary --statistics {none}", DataError, ""),
        *(
            (f"report summary {option} {{input}}", DataError, content)
            for option, content in (
                ("--statistics", "{}"),
                ("--statistics", "[]"),
                ("--pretraining", "{"),
                ("--pretraining", "{}"),
                ("--bits-per-base", "split\tpredictor\n"),
                ("--promoter-table", "negative_set\tstratum\tmodel\n"),
                ("--promoter-table", ""),
                ("--groups", "group\ttracks\n"),
                ("--groups", "group\ttracks\tmedian_auroc\nTF\t2\thigh\n"),
                ("--auc-tracks", "track\tgroup\tauroc\tnote\tdelta_a\nX\t\t1\t\t0\n"),
                ("--variants", "subset\tvariants\n"),
                ("--variants", ""),
            )
        ),
    ],
)
def test_what_cannot_be_reported(files, model_dir, tmp_path, words, error, content):
    (tmp_path / "input").write_text(content)
    places = {
        **files,
        "model": model_dir,
        "input": tmp_path / "input",
        "none": tmp_path / "none",
    }
    with fails(error):
        run(words.format(**places), "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()
