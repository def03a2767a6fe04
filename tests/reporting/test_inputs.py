"""Training logs and score tables as curves and tracks."""

import math

import numpy as np
import pytest

from bigbird_dna.errors import DataError
from bigbird_dna.reporting.promoters import read_score_track
from bigbird_dna.reporting.training import read_training_log
from tests.golden.messages import fails

HEADER = "## bigbird-dna 1\n## command x\n#contig\tstart\tend\tname\tscore\tstrand\tnote\n"


def test_log_is_read_by_step(tmp_path):
    path = tmp_path / "training.jsonl"
    path.write_text(
        '{"step": 10, "loss": 2.0, "learning_rate": 0.1}\n'
        '{"step": 20, "loss": 1.5}\n'
        '{"step": 20, "evaluation": {"auroc": 0.7, "loss": 1.4}}\n'
        "\n"
        '{"step": 20, "loss": 1.25}\n'
        '{"step": 5, "loss": 3}\n'
    )
    curves = read_training_log(path)
    assert curves.loss.steps.tolist() == [5, 10, 20]
    assert curves.loss.values.tolist() == [3, 2, 1.25]
    assert curves.evaluation["auroc"].values.tolist() == [0.7]


def test_cut_last_line_is_left_out_with_a_message(tmp_path, capsys):
    path = tmp_path / "training.jsonl"
    path.write_text('{"step": 10, "loss": 2.0}\n{"step": 20, "lo')
    assert read_training_log(path).loss.steps.tolist() == [10]
    assert "line 2 is cut short" in capsys.readouterr().err


def test_time_is_read_where_the_log_has_it(tmp_path):
    path = tmp_path / "training.jsonl"
    path.write_text(
        '{"step": 10, "seconds": 4.5, "loss": 2.0}\n'
        '{"step": 10, "seconds": 4.5, "evaluation": {"bits_per_base": 1.9}}\n'
        '{"step": 20, "seconds": 9.0, "loss": 1.5}\n'
    )
    curves = read_training_log(path)
    assert curves.loss.seconds.tolist() == [4.5, 9.0]
    assert curves.evaluation["bits_per_base"].seconds.tolist() == [4.5]
    path.write_text(path.read_text() + '{"step": 30, "loss": 1.4}\n')
    curves = read_training_log(path)
    assert curves.loss.seconds is None
    assert curves.evaluation["bits_per_base"].seconds.tolist() == [4.5]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"step": 1, "loss"\n{"step": 2, "loss": 1}\n', "line 1"),
        ('{"loss": 1}\n', "line 1: 'step'"),
        ('{"step": 1, "loss": "x"}\n', "line 1: 'loss'"),
        ('{"step": 1, "evaluation": 3}\n', "line 1: 'evaluation'"),
        ('{"step": 1, "evaluation": {"auroc": null}}\n', "line 1: 'auroc'"),
        ("[1]\n", "line 1: 'step'"),
        ("", "training.jsonl"),
        ('{"step": 1}\n', "training.jsonl"),
    ],
)
def test_bad_logs(tmp_path, text, named):
    path = tmp_path / "training.jsonl"
    path.write_text(text)
    with fails(DataError, named):
        read_training_log(path)
    with fails(DataError):
        read_training_log(tmp_path / "none.jsonl")


def row(contig, start, score, strand, note="."):
    return f"{contig}\t{start}\t{start + 400}\tn\t{score}\t{strand}\t{note}\n"


@pytest.fixture
def track(tmp_path):
    """Reads rows as a track."""

    def read(*rows, **options):
        (tmp_path / "s.tsv").write_text(HEADER + "".join(rows))
        return read_score_track(tmp_path / "s.tsv", **options)

    return read


def test_track_of_the_first_contig(track):
    rows = [row("a", 0, 0.5, "+"), row("a", 0, 0.25, "-"), row("a", 100, "NA", "+", "n_fraction=1")]
    found = track(*rows, row("b", 0, 1, "+"))
    assert (found.contig, found.start, found.end) == ("a", 0, 500)
    positions, scores = found.strands["+"]
    assert positions.tolist() == [200, 300]
    assert scores[0] == 0.5 and math.isnan(scores[1])
    assert found.strands["-"][1].tolist() == [0.25]
    assert list(track(*rows, row("b", 0, 1, "+"), contig="b").strands) == ["+"]


def test_what_has_no_score_before_a_region_is_not_drawn(track):
    rows = [row("a", start, "NA" if start < 900 else 0.5, "+") for start in range(0, 1200, 100)]
    found = track(*rows)
    assert (found.start, found.end) == (900, 1500)
    assert track(*rows[:9]).start == 0


def test_scores_are_drawn_where_the_tss_is_expected(track):
    """300 bp before the TSS: base 300 of a forward window, the 301st from the end of a reverse one."""
    found = track(row("a", 1000, 0.5, "+"), row("a", 1000, 0.5, "-"), upstream=300)
    assert [found.strands[strand][0].tolist() for strand in "+-"] == [[1300], [1099]]


def test_range(track):
    found = track(*(row("a", start, 0.1, "+") for start in range(0, 2000, 100)), start=500, end=1100)
    np.testing.assert_array_equal(found.strands["+"][0], [700, 800, 900])
    assert (found.start, found.end) == (500, 1100)


@pytest.mark.parametrize(
    ("text", "arguments", "named"),
    [
        (HEADER, {}, "s.tsv"),
        ("", {}, "s.tsv"),
        (HEADER + row("a", 0, 1, "+"), {"contig": "b"}, "'b'"),
        (HEADER + row("a", 0, 1, "+"), {"start": 9000}, "a:9000-end"),
        (row("a", 0, 1, "+"), {}, "line 1"),
        (HEADER + row("a", 0, 1, "."), {}, "line 4: strand '.'"),
        (HEADER + row("a", 0, "x", "+"), {}, "score 'x'"),
        (HEADER + "a\t1\n", {}, "line 4: 2"),
    ],
)
def test_bad_tables(tmp_path, text, arguments, named):
    path = tmp_path / "s.tsv"
    path.write_text(text)
    with fails(DataError, named):
        read_score_track(path, **arguments)
    with fails(DataError):
        read_score_track(tmp_path / "none.tsv")
