"""What figures draw, and how they are saved."""

import math
import re
import xml.etree.ElementTree as ElementTree
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.data.predictions import (
    BITS_COLUMNS,
    CNN,
    AlignedPredictions,
    language_model_table,
    of_split,
    read_bits,
)
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.annotation import Gene
from bigbird_dna.genome.sequence import Locus
from bigbird_dna.reporting import predictors, promoters, score_track, training
from bigbird_dna.reporting.result import (
    add_legend,
    interval,
    legend_label,
    panels,
    save_figure,
)
from bigbird_dna.reporting.score_track import (
    Call,
    ScoreTrack,
    read_calls,
    read_score_track,
)
from bigbird_dna.reporting.training import LogCurve, TrainingCurves, read_training_log
from tests.golden.messages import fails, message
from tests.toys import written


def test_condensing_keeps_peaks_and_gaps():
    scores = np.zeros(40_000)
    scores[12_345] = 0.9
    scores[20_000:30_000] = np.nan
    x, y = score_track.condensed(np.arange(40_000.0), scores)
    assert len(x) == score_track.LARGEST_TRACK
    assert 12_345 in x and np.nanmax(y) == 0.9
    assert np.isnan(y[(x > 20_100) & (x < 29_900)]).all() and np.isnan(y).mean() < 0.26


def comparison(name: str = "genomic", *, one_class: bool = False) -> AlignedPredictions:
    rng = np.random.default_rng(0)
    labels = np.ones(40, dtype=np.int64) if one_class else np.tile([0, 1], 20)
    names = predictors.STYLES.keys() - {CNN}
    scores = {name: rng.random(40) for name in sorted(names)}
    return AlignedPredictions(
        name, labels, np.arange(40) // 2, np.arange(40) // 2, scores
    )


def curves(name: str) -> TrainingCurves:
    steps = np.arange(10, 300, 10)
    evaluation = LogCurve(np.array([100, 200]), np.array([0.5, 0.6]))
    return TrainingCurves(
        LogCurve(steps, 1 / steps), {name: evaluation, "loss": evaluation}
    )


def draw_curves(area, path):
    comparisons = [comparison(), comparison("permuted", one_class=True)]
    promoters.curves_figure(
        comparisons, promoters.promoter_table(comparisons), area, path
    )


def draw_scores(path, genes=(), calls=None):
    x = np.arange(0, 20_000, 100.0)
    track = ScoreTrack("chrIV", 0, 20_000, {"+": (x, x / 20_000)})
    places = [
        ("chrIV", 500, "+"),
        ("chrIV", 900, "-"),
        ("chrIV", 30_000, "+"),
        ("chrV", 700, "+"),
    ]
    score_track.score_figure(
        track, [Locus(*place, "TSS") for place in places], path, genes, calls
    )


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


def run(*, timed=True, points=8):
    steps = np.arange(1, points + 1) * 100
    seconds = steps * 1.5 if timed else None
    held_out = LogCurve(steps, 1.88 + 0.15 * np.exp(-steps / 200), seconds)
    return TrainingCurves(
        LogCurve(steps, 1 / steps), {"bits_per_base": held_out} if points else {}
    )


ALONE = bits_table(9, {"model": 1.9})
DRAWINGS = {
    "roc": partial(draw_curves, "auroc"),
    "precision-recall": partial(draw_curves, "auprc"),
    "histogram": lambda path: promoters.histogram_figure([comparison()], path),
    "loss": lambda path: training.loss_figure(
        {"a": curves("bits_per_base"), "b": curves("auroc")}, path
    ),
    "scores": draw_scores,
    "scores and genes": partial(
        draw_scores, genes=[Gene("chrIV", 500, 9_000, "+", "FWD1")]
    ),
    "scores and calls": partial(draw_scores, calls=[Call("chrIV", 520, "+", 0.8, 0.9)]),
    "bits": lambda path: training.bits_per_base_figure(bits_table(), path),
    "bits, alone": lambda path: training.bits_per_base_figure(ALONE, path),
    "held out": lambda path: training.held_out_figure(run(), bits_table(), path),
    "held out, hours": lambda path: training.held_out_figure(
        run(points=80), bits_table(), path
    ),
    "held out, no time": lambda path: training.held_out_figure(
        run(timed=False), bits_table(), path
    ),
    "held out, no curve": lambda path: training.held_out_figure(
        run(points=0), bits_table(), path
    ),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_svg_is_well_formed_and_the_same_each_time(tmp_path, name):
    DRAWINGS[name](tmp_path / "a.svg")
    if name in ("roc", "loss", "scores and calls"):
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


def test_figures_say_what_they_show(tmp_path):
    DRAWINGS["bits"](tmp_path / "bits.svg")
    text = (tmp_path / "bits.svg").read_text()
    row = bits_table().set_index("predictor").loc["n-gram"]
    assert f"{row['difference']:.3f}".replace("-", "−") in text
    for name, unit in (
        ("held out", "minutes"),
        ("held out, hours", "hours"),
        ("held out, no time", None),
    ):
        DRAWINGS[name](tmp_path / "held_out.svg")
        text = (tmp_path / "held_out.svg").read_text()
        assert ("training time" in text) is (unit is not None) and (unit or "") in text
        assert "Markov, both sides" in text


def test_sites_elsewhere_are_left_out(tmp_path):
    draw_scores(tmp_path / "scores.svg")
    assert "2 known TSS" in (tmp_path / "scores.svg").read_text()


def test_genes_are_named_where_there_is_room(tmp_path):
    """Genes elsewhere are left out, and so are names that are longer than their gene."""
    genes = [
        ("chrIV", -500, 4_000, "CUT1"),
        ("chrIV", 9_000, 9_050, "SHORT"),
        ("chrV", 0, 9_000, "V1"),
    ]
    draw_scores(
        tmp_path / "scores.svg", [Gene(*place, "-", name) for *place, name in genes]
    )
    text = (tmp_path / "scores.svg").read_text()
    assert [
        word for word in ("CUT1", "SHORT", "V1", "genes") if f"<!-- {word} -->" in text
    ] == [
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

HEADER = "## bigbird-dna 1\n## command x\ncontig\tstart\tend\tname\tscore\tstrand\tnote\ttss\n"


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
    assert curves.loss.steps.tolist() == [5, 10, 20]
    assert curves.loss.values.tolist() == [3, 2, 1.25]
    assert curves.evaluation["auroc"].values.tolist() == [0.7]
    message(capsys.readouterr().err, "line 7")


def test_time_is_read_where_the_log_has_it(read_log):
    lines = [
        '{"step": 10, "seconds": 4.5, "loss": 2.0}',
        '{"step": 10, "seconds": 4.5, "evaluation": {"bits_per_base": 1.9}}',
        '{"step": 20, "seconds": 9.0, "loss": 1.5}',
    ]
    assert read_log(*lines).loss.seconds.tolist() == [4.5, 9.0]
    curves = read_log(*lines, '{"step": 30, "loss": 1.4}')
    assert curves.loss.seconds is None
    assert curves.evaluation["bits_per_base"].seconds.tolist() == [4.5]


def row(contig, start, score, strand, note="."):
    tss = start + 300 if strand == "+" else start + 99
    return f"{contig}\t{start}\t{start + 400}\tn\t{score}\t{strand}\t{note}\t{tss}\n"


@pytest.fixture
def track(tmp_path):
    """Reads rows as a track."""

    def read(*rows, **options):
        return read_score_track(
            written(tmp_path / "s.tsv", HEADER + "".join(rows)), **options
        )

    return read


def test_track_of_a_contig(track):
    rows = [
        row("a", 0, 0.5, "+"),
        row("a", 0, 0.25, "-"),
        row("a", 100, "NA", "+", "n_fraction=1"),
    ]
    rows.append(row("b", 0, 1, "+"))
    found = track(*rows)
    assert (found.contig, found.start, found.end) == ("a", 0, 500)
    np.testing.assert_array_equal(found.strands["+"], [[300, 400], [0.5, np.nan]])
    np.testing.assert_array_equal(found.strands["-"], [[99], [0.25]])
    assert list(track(*rows, contig="b").strands) == ["+"]
    # What has no score before a region is not drawn.
    rows = [
        row("a", start, "NA" if start < 900 else 0.5, "+")
        for start in range(0, 1200, 100)
    ]
    found = track(*rows)
    assert (found.start, found.end, track(*rows[:9]).start) == (900, 1500, 0)
    cut = track(*rows, longest=350)
    assert (cut.start, cut.end, *cut.strands["+"][0]) == (
        900,
        1250,
        *range(300, 1250, 100),
    )
    assert track(*rows, longest=600).end == 1500
    # A region has the scores whose TSS is in it, whatever of their windows is outside.
    found = track(
        *(row("a", start, 0.1, "+") for start in range(0, 2000, 100)),
        start=500,
        end=1100,
    )
    assert (found.start, found.end, *found.strands["+"][0]) == (
        500,
        1100,
        500,
        600,
        700,
        800,
        900,
        1000,
    )


def test_scores_of_a_bed_file_are_its_probabilities(tmp_path):
    head = "## x\n#contig\tstart\tend\tname\tscore\tstrand\tprobability\tnote\ttss\n"
    path = written(tmp_path / "s.bed", head + "a\t0\t400\tn\t250\t+\t0.25\t.\t300\n")
    np.testing.assert_array_equal(read_score_track(path).strands["+"], [[300], [0.25]])


INTERVAL = ["precision_low", "precision_high", "model_score"]
CALLS = ["contig", "start", "end", "name", "score", "strand", "note", *INTERVAL]
CALL_TRACK = ScoreTrack("a", 0, 1000, {}, frozenset("ab"))


@pytest.mark.parametrize("format", ["bed", "tsv", "parquet"])
def test_calls_of_a_contig(tmp_path, format):
    rows = [
        ("a", 9, 10, "n", 0.25, "-", ".", 0.1, 0.4, 0.5),
        ("b", 4, 5, "n", 1.0, "+", ".", 0.1, 1.0, 0.9),
    ]
    table, path = pd.DataFrame(rows, columns=CALLS), tmp_path / f"calls.{format}"
    if format == "bed":
        table.insert(6, "probability", table["score"])
        table["score"] = (1000 * table["score"]).astype(int)
    if format == "parquet":
        table.to_parquet(path)
    else:
        path.write_text("## x\n#" + table.to_csv(sep="\t", index=False))
    assert read_calls(path, CALL_TRACK) == [Call("a", 9, "-", 0.25, 0.5)]


def test_wrong_calls_and_missed_sites_are_hollow(tmp_path):
    """Of two calls near a TSS the higher score takes it; another TSS has no call."""
    track = ScoreTrack("a", 0, 10_000, {"+": (np.array([0.0, 9999]), np.zeros(2))})
    sites = [Locus("a", position, "+", "") for position in (1000, 5000)]
    calls = [
        Call("a", 1050, "+", 0.3, 0.5),
        Call("a", 990, "+", 0.9, 0.95),
        Call("a", 8000, "-", 0.2, 0.4),
    ]

    def hollow(**options):
        score_track.score_figure(track, sites, tmp_path / "x.svg", **options)
        lane = (
            (tmp_path / "x.svg")
            .read_text()
            .split('id="axes_2"')[1]
            .split('id="axes_3"')[0]
        )
        marks = re.findall(r'style="fill: (#\w+)[^"]*; stroke: ', lane)
        return len(marks), marks.count("#ffffff")

    assert hollow() == (2, 0)
    assert hollow(calls=calls) == (5, 3)
    assert hollow(calls=[]) == (2, 2)


FAULTS = {
    read_training_log: [
        ('{"step": 1, "loss"\n{"step": 2, "loss": 1}\n', "line 1"),
        ('{"loss": 1}\n', "line 1: 'step'"),
        ('{"step": 1, "loss": "x"}\n', "line 1: 'loss'"),
        ('{"step": 1, "evaluation": 3}\n', "line 1: 'evaluation'"),
        ('{"step": 1, "evaluation": {"auroc": "high"}}\n', "line 1: 'auroc'"),
        ("[1]\n", "line 1: 'step'"),
        ("", "file"),
        ('{"step": 1}\n', "file"),
        (None, "file"),
    ],
    read_score_track: [
        (HEADER, "file"),
        ("", "file"),
        (row("a", 0, 1, "+"), "line 1"),
        (HEADER + row("a", 0, 1, "."), "line 4: strand '.'"),
        (HEADER + row("a", 0, "x", "+"), "score 'x'"),
        (HEADER.replace("\ttss", ""), "line 3: no column 'tss'"),
        (HEADER + row("a", 0, 1, "+").replace("300", "3x"), "tss '3x'"),
        (HEADER + row("a", 0, 1, "+").replace("300", "400"), "line 4: tss 400"),
        (HEADER + "a\t1\n", "found 2"),
        (None, "file"),
    ],
    partial(read_score_track, contig="b"): [(HEADER + row("a", 0, 1, "+"), "'b'")],
    partial(read_score_track, start=9000): [
        (HEADER + row("a", 0, 1, "+"), "a:9000-end")
    ],
    partial(read_calls, track=CALL_TRACK): [
        (HEADER + row("a", 0, 1, "+"), "no column 'model_score'"),
        ("", "file"),
        ("\t".join(CALLS) + "\na\tx\t1\tn\t1\t+\t.\t0\t1\t1\n", "not calls"),
        ("\t".join(CALLS) + "\nc\t0\t1\tn\t1\t+\t.\t0\t1\t1\n", "the first is on 'c'"),
        (None, "file"),
    ],
    read_bits: [
        (lambda rows: rows.assign(low="x"), "low 'x'"),
        (lambda rows: rows.assign(bits_per_base=""), "bits_per_base ''"),
        (lambda rows: pd.concat([rows, rows[:1]]), "row 6"),
        (lambda rows: rows[rows["predictor"] != "model"], "'model'"),
        (lambda rows: rows[:0], "file"),
        (lambda rows: rows.drop(columns="note"), "'note'"),
    ],
}


@pytest.mark.parametrize(
    "read", FAULTS, ids=["log", "scores", "other contig", "beyond", "calls", "bits"]
)
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
            left.plot([1, 2], [1, 3], label=legend_label(texts[0]))
            left.plot([1, 2], [1, 3], label=legend_label(texts[2]))
            left.set(title=texts[1], xlabel=texts[2], ylabel=texts[3])
            left.set_yticks([1, 3], [texts[4], texts[1]])
            left.annotate(texts[4], (1, 2))
            add_legend(left)
            labels = [text.get_text() for text in left.get_legend().get_texts()]
            shown = [label.strip("\u200b") for label in labels]
            assert shown == [texts[0], texts[2]]
            right.set(xscale="log", yscale="log", xlim=(1, 1000), ylim=(0.1, 0.3))
            figure.suptitle(texts[0])
            save_figure(figure, tmp_path / "x.svg")
            ticks = [*right.get_xticklabels(), *right.get_yticklabels(minor=True)]
            assert [tick.get_text() for tick in ticks if "10^" in tick.get_text()]
        drawn = (tmp_path / "x.svg").read_text(encoding="utf-8")
        assert (dollar in drawn) == has_dollar
