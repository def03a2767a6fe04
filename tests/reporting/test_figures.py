"""What figures draw, and how they are saved."""

import json
import math
import re
import tempfile
import xml.etree.ElementTree as ElementTree
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from plotly.io import from_json

from bigbird_dna.data.predictions import (
    BITS_COLUMNS,
    AlignedPredictions,
    language_model_table,
    of_split,
    read_bits,
)
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.annotation import Gene
from bigbird_dna.genome.sequence import Locus
from bigbird_dna.reporting import promoters, training
from bigbird_dna.reporting.pages import read_figure
from bigbird_dna.reporting.result import (
    interval,
    panels,
    save_figure,
)
from bigbird_dna.reporting.score_track import plot_scores, read_windows
from bigbird_dna.reporting.training import read_training_log
from tests.golden.messages import fails, message
from tests.toys import written


def comparison(name: str = "genomic", *, one_class: bool = False) -> AlignedPredictions:
    rng = np.random.default_rng(0)
    labels = np.ones(40, dtype=np.int64) if one_class else np.tile([0, 1], 20)
    scores = {name: rng.random(40) for name in ("model", "k-mer", "control")}
    return AlignedPredictions(name, labels, np.arange(40) // 2, scores)


def curves(name: str) -> pd.DataFrame:
    steps = np.arange(10, 300, 10)
    log = pd.DataFrame({"loss": 1 / steps}, index=steps)
    for metric in (name, "loss"):
        log[f"evaluation.{metric}"] = pd.Series([0.5, 0.6], index=[100, 200])
    return log


SCORES = "## bigbird-dna 1\n## command x\ncontig\tstart\tend\tname\tscore\tstrand\tnote\ttss\n"


def row(contig, start, score, strand, note="."):
    tss = start + 300 if strand == "+" else start + 99
    return f"{contig}\t{start}\t{start + 400}\tn\t{score}\t{strand}\t{note}\t{tss}\n"


def draw_scores(path, genes=(), calls=None, **options):
    home = Path(tempfile.mkdtemp())
    rows = [row("chrIV", x, x / 20_000, "+") for x in range(0, 20_000, 100)]
    rows.append(row("chrIV", 20_000, "NA", "+", "n_fraction=1"))
    scores = written(home / "scores.tsv", SCORES + "".join(rows))
    places = [
        ("chrIV", 700, "+"),
        ("chrIV", 1900, "-"),
        ("chrIV", 30_000, "+"),
        ("chrV", 700, "+"),
    ]
    sites = [Locus(*place, "TSS") for place in places]
    if calls is not None:
        calls = written(home / "calls.bed", CALLS + "".join(calls))
    plot_scores(scores, path, sites=sites, genes=genes, calls=calls, **options)


CALLS = "## x\n#contig\tstart\tend\tname\tscore\tstrand\tprobability\tmodel_score\n"


def call(position, strand, probability, contig="chrIV"):
    columns = (contig, position, position + 1, "n", 1000 * probability, strand)
    return "\t".join(map(str, [*columns, probability, 0.9])) + "\n"


RATES = {
    "model": 1.88,
    "uniform": 2.0,
    "n-gram": 1.95,
    "Markov": 1.93,
    "Markov, both sides": 1.929,
}


def bits_table(blocks=40, rates=RATES):
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(blocks), 20)
    bases = rng.integers(1, 7, len(ids))
    ease = rng.normal(0, 0.05, blocks)[ids]
    bits = {
        name: bases
        * (rate if name == "uniform" else rate + ease + rng.normal(0, 0.2, len(ids)))
        for name, rate in rates.items()
    }
    return language_model_table(bits, bases, ids, {"uniform": "2 bits a base"})


DRAWINGS = {
    "scores": draw_scores,
    "scores and genes": partial(
        draw_scores, genes=[Gene("chrIV", 500, 9_000, "+", "FWD1")]
    ),
    "scores and calls": partial(draw_scores, calls=[call(720, "+", 0.8)]),
}


def read_scores_of(path: Path) -> pd.DataFrame:
    return read_windows(path, ["score", "tss"])


@pytest.mark.parametrize("name", DRAWINGS)
def test_svg_is_well_formed_and_the_same_each_time(tmp_path, name):
    DRAWINGS[name](tmp_path / "a.svg")
    if name == "scores and calls":
        before = (tmp_path / "a.svg").read_bytes()
        DRAWINGS[name](tmp_path / "a.svg")
        assert (tmp_path / "a.svg").read_bytes() == before
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert root.tag.endswith("svg") and len(list(root.iter())) > 50
    # No text begins outside.
    starts = re.findall(
        r"<g [^>]*translate\(([-.\d]+) ([-.\d]+)\)", (tmp_path / "a.svg").read_text()
    )
    inside = np.array(starts, float) / np.array(
        root.get("viewBox", "").split()[2:], float
    )
    assert len(inside) and (inside >= 0).all() and (inside <= 1).all()
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]


def drawn(path: Path) -> list[dict[str, Any]]:
    """The traces of a figure, which is the same each time."""
    traces: list[dict[str, Any]] = json.loads(path.read_text())["data"]
    assert from_json(path.read_text()).layout.colorway is None
    return traces


def test_figures_have_all_predictors_and_runs(tmp_path: Path) -> None:
    comparisons = [comparison(), comparison("permuted", one_class=True)]
    promoters.curve_figures(comparisons, tmp_path)
    for name in ("roc", "precision_recall"):
        traces = drawn(tmp_path / f"{name}.plotly.json")
        names = [trace["name"] for trace in traces]
        assert names == ["model", "k-mer regression", "shuffled labels"]
    promoters.curve_figures(comparisons[1:], tmp_path / "none")
    assert not (tmp_path / "none").exists()

    path = tmp_path / "loss.plotly.json"
    logs = {"<a>": curves("bits_per_base"), "$b$": curves("auroc")}
    training.loss_figure(logs, path)
    assert {trace["name"] for trace in drawn(path)} == {*logs}
    before = path.read_bytes()
    training.loss_figure(logs, path)
    assert path.read_bytes() == before
    assert "&lt;a" not in read_figure(path) and "<a>" not in read_figure(path)

    training.bits_per_base_figure(bits_table(), path)
    models, baselines = drawn(path)[::-1]
    assert {models["name"], baselines["name"]} == {"model", "baseline"}
    assert len(models["y"]) + len(baselines["y"]) == len(RATES)
    path.write_text("{")
    with fails(DataError, path):
        read_figure(path)


def test_a_region_of_scores(tmp_path):
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    draw_scores(first)
    draw_scores(second, start=1000, end=2000)
    assert len(second.read_text()) < len(first.read_text())
    with fails(DataError, "chrIV:90000-"):
        draw_scores(second, start=90_000)
    with fails(DataError, "'b'"):
        draw_scores(second, contig="b")


def test_genes_elsewhere_are_left_out(tmp_path):
    genes = [
        ("chrIV", -500, 4_000, "CUT1"),
        ("chrV", 0, 9_000, "V1"),
    ]
    draw_scores(
        tmp_path / "scores.svg", [Gene(*place, "-", name) for *place, name in genes]
    )
    text = (tmp_path / "scores.svg").read_text()
    assert [word for word in ("CUT1", "V1", "genes") if f"<!-- {word} -->" in text] == [
        "CUT1",
        "genes",
    ]


def test_png_by_suffix_and_others_refused(tmp_path):
    draw_scores(tmp_path / "new" / "bits.png")
    assert (tmp_path / "new" / "bits.png").read_bytes().startswith(b"\x89PNG")
    with fails(UsageError):
        draw_scores(tmp_path / "bits.txt")
    assert not (tmp_path / "bits.txt").exists()


def test_style_leaves_no_trace(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    draw_scores(tmp_path / "bits.svg")
    assert dict(matplotlib.rcParams) == before


def test_interval_text():
    assert interval(0.89444, 0.871, 0.917) == "0.894 [0.871, 0.917]"
    assert interval(0.5, float("nan"), float("nan")) == "0.500"
    assert interval(*[float("nan")] * 3) == "not defined"


# Training logs and score tables as curves and tracks


@pytest.fixture
def read_log(tmp_path):
    """Reads lines as a log."""

    def read(*lines):
        return read_training_log(written(tmp_path / "training.jsonl", "\n".join(lines)))

    return read


def test_log_is_read_by_step(read_log, capsys):
    curves = read_log(
        '{"step": 10, "loss": 2.0, "learning_rate": 0.1}',
        '{"step": 20, "loss": 1.5}',
        '{"step": 20, "evaluation": {"auroc": 0.7, "loss": 1.4}}',
        "",
        '{"step": 20, "loss": 1.25}',
        '{"step": 5, "loss": 3}',
        '{"step": 20, "lo',  # cut short
    )
    assert curves["loss"].to_dict() == {5: 3, 10: 2, 20: 1.25}
    assert curves["evaluation.auroc"].dropna().to_dict() == {20: 0.7}
    message(capsys.readouterr().err, "line 7")


def test_time_is_read_where_the_log_has_it(read_log):
    lines = [
        '{"step": 10, "seconds": 4.5, "loss": 2.0}',
        '{"step": 10, "seconds": 4.5, "evaluation": {"bits_per_base": 1.9}}',
        '{"step": 20, "seconds": 9.0, "loss": 1.5}',
    ]
    assert read_log(*lines)["seconds"].to_dict() == {10: 4.5, 20: 9.0}


def test_scores_of_a_bed_file_are_its_probabilities(tmp_path):
    head = "## x\n#contig\tstart\tend\tname\tscore\tstrand\tprobability\tnote\ttss\n"
    path = written(tmp_path / "s.bed", head + "a\t0\t400\tn\t250\t+\t0.25\t.\t300\n")
    assert read_windows(path, ["score", "tss"]).to_numpy().tolist() == [
        ["a", "+", 0.25, 300]
    ]


FAULTS = {
    read_training_log: [
        ('{"step": 1, "loss"\n{"step": 2, "loss": 1}\n', "line 1"),
        ('{"loss": 1}\n', "file"),
        ('{"step": 1, "loss": "x"}\n', "file"),
        ('{"step": 1, "evaluation": {"auroc": "high"}}\n', "file"),
        ("[1]\n", "file"),
        ("", "file"),
        ('{"step": 1}\n', "file"),
        (None, "file"),
    ],
    read_scores_of: [
        ("", "file"),
        (row("a", 0, 1, "+"), "no column 'contig'"),
        (SCORES + row("a", 0, 1, "."), "line 4: wrong strand ."),
        (SCORES + row("a", 0, "x", "+"), "line 4: wrong score x"),
        (SCORES.replace("\ttss", ""), "no column 'tss'"),
        (SCORES + row("a", 0, 1, "+").replace("300", "3x"), "wrong tss 3x"),
        (None, "file"),
    ],
    partial(plot_scores, output=Path("x.svg")): [(SCORES, "no scored window")],
    read_bits: [
        (lambda rows: rows.assign(low="x"), "column 'low'"),
        (lambda rows: rows[rows["predictor"] != "model"], "'model'"),
        (lambda rows: rows[:0], "file"),
        (lambda rows: rows.drop(columns="note"), "'note'"),
    ],
}


@pytest.mark.parametrize("read", FAULTS, ids=["log", "scores", "plot", "bits"])
def test_bad_files(tmp_path, read):
    for number, (content, named) in enumerate(FAULTS[read]):
        path = tmp_path / f"file.{number}"
        if callable(content):
            rows = bits_table().assign(split="test").astype(object)
            write_tsv(path, content(rows[["split", *BITS_COLUMNS]]))
        elif content is not None:
            path.write_text(content)
        with fails(DataError, path.name, named):
            read(path)


# Bits per base of a language model and of others


def test_table_has_a_row_for_each_and_compares_with_the_model():
    found = bits_table()
    assert tuple(found.columns) == BITS_COLUMNS
    assert found["predictor"].tolist() == [*RATES]
    rows = found.set_index("predictor")
    assert math.isnan(rows.loc["model", "difference"])
    for name in [*RATES][1:]:
        row = rows.loc[name]
        assert row["difference"] == pytest.approx(
            rows.loc["model", "bits_per_base"] - row["bits_per_base"]
        )
        assert row["difference_low"] < row["difference"] < row["difference_high"] < 0
    assert rows.loc["uniform", ["bits_per_base", "low", "high"]].tolist() == [2, 2, 2]
    assert rows["note"].tolist() == ["", "2 bits a base", "", "", ""]


def test_a_table_is_read_as_it_was_written(tmp_path):
    both = pd.concat(
        [bits_table().assign(split=split) for split in ("valid", "test")],
        ignore_index=True,
    )
    write_tsv(tmp_path / "bits.tsv", both[["split", *BITS_COLUMNS]])
    found = read_bits(tmp_path / "bits.tsv")
    pd.testing.assert_frame_equal(found, both[["split", *BITS_COLUMNS]], rtol=1e-5)
    assert of_split(found, "test")["split"].tolist() == ["test"] * len(bits_table())
    assert of_split(found, "other")["split"].tolist() == ["valid"] * len(bits_table())


def test_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    """No formulas, which may have faults that end a command; but the labels of logarithmic axes are some."""
    dollar = 'id="DejaVuSans-7"'  # the outline of this letter in the font
    names = [
        "$A$ (chr$1)",
        "a $\\frac$ b",
        "_hidden",
        "x_{1} \\alpha %",
        "$\\undefined{$",
    ]
    for texts, has_dollar in ((names, True), (["plain"] * 5, False)):
        with panels(1, 2, 4, 4) as (figure, (left, right)):
            left.plot([1, 2], [1, 3], label=texts[0])
            left.plot([1, 2], [1, 3], label=texts[3])
            left.set(title=texts[1], xlabel=texts[2], ylabel=texts[3])
            left.set_yticks([1, 3], [texts[4], texts[1]])
            left.annotate(texts[4], (1, 2))
            left.legend()
            labels = [text.get_text() for text in left.get_legend().get_texts()]
            assert labels == [texts[0], texts[3]]
            right.set(xscale="log", yscale="log", xlim=(1, 1000), ylim=(0.1, 0.3))
            figure.suptitle(texts[0])
            save_figure(figure, tmp_path / "x.svg")
            ticks = [*right.get_xticklabels(), *right.get_yticklabels(minor=True)]
            assert [tick.get_text() for tick in ticks if "10^" in tick.get_text()]
        drawn = (tmp_path / "x.svg").read_text(encoding="utf-8")
        assert (dollar in drawn) == has_dollar
