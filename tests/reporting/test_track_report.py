"""Tables and page of a track report: figures against scikit-learn, and what the page must hold."""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from bigbird_dna.disk.directories import MARKER
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.genome.chromatin.tracks import write_tracks
from bigbird_dna.metrics.auroc import auroc, auroc_difference, discoveries
from bigbird_dna.reporting import track_evaluation
from bigbird_dna.reporting.predictors import RATES
from bigbird_dna.reporting.tracks import AucReport, auc_report
from tests.cli.command import refused
from tests.golden.messages import fails, message
from tests.html_pages import HtmlPage, check_layout, found_in_browser, needs_browser

TABLES = ("tracks.tsv", "groups.tsv")
EVIL = "<script>alert(1)</script>&\"'|</table><!--{{ 1 }}"


class Made(NamedTuple):
    report: AucReport
    tracks: pd.DataFrame
    groups: pd.DataFrame
    page: str
    predictions: np.ndarray
    labels: np.ndarray
    other: np.ndarray


def arrays(rows=400, tracks=9, seed=0):
    rng = np.random.default_rng(seed)
    labels = (rng.random((rows, tracks)) < 0.2).astype(np.int8)
    scores = np.round(
        rng.normal(size=(rows, tracks)) + labels * np.linspace(0.2, 2.5, tracks), 1
    )
    other = np.round(scores + rng.normal(size=scores.shape), 1)
    labels[:, 3] = 0  # no positives
    labels[:, 4] = np.where(np.arange(rows) % 3 == 0, -1, labels[:, 4])
    labels[:, 5] = np.where(np.arange(rows) == 7, 1, 0)  # a single one
    return scores.astype(np.float32), labels, other.astype(np.float32)


def table_of(tracks=9):
    groups = ["TF", "DHS", "TF", "TF", "HM", "HM", "DHS", "TF", "TF"]
    names = [f"t{i}" for i in range(tracks)]
    names[1], names[3] = EVIL, f"left out {EVIL}"
    return [
        Track(name, group, cell="K562")
        for name, group in zip(names, groups, strict=True)
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Made:
    folder = tmp_path_factory.mktemp("report")
    scores, labels, other = arrays()
    np.save(folder / "p.npy", scores)
    np.save(folder / "l<img src=x>.npy", labels)
    out = folder / "out"
    write_tracks(folder / "t.tsv", table_of())
    options = {"command": "bigbird-dna auc-report <x>", "threads": 2}
    options |= {"tracks": folder / "t.tsv", "compare": {"k-mer": other}}
    report = auc_report(folder / "p.npy", folder / "l<img src=x>.npy", out, **options)
    assert {path.name for path in out.iterdir()} == {
        "tracks.tsv",
        "groups.tsv",
        "report.html",
        MARKER,
    }
    tables = (
        pd.read_csv(out / name, sep="\t", keep_default_na=False, na_values=[""])
        for name in TABLES
    )
    return Made(
        report, *tables, (out / "report.html").read_text(), scores, labels, other
    )


def embedded(page):
    return json.loads(page.split('id="all-curves">')[1].split("</script>")[0])


def test_metrics_of_tracks(made):
    names = "track group positives negatives auroc auroc_low auroc_high auprc note"
    assert " ".join(made.tracks.columns).startswith(names)
    assert made.tracks["track"].tolist() == [track.name for track in table_of()]
    for i, row in made.tracks.iterrows():
        measured = made.labels[:, i] >= 0
        y, x = made.labels[measured, i], made.predictions[measured, i]
        z = made.other[measured, i]
        assert (row["positives"], row["negatives"]) == (y.sum(), (1 - y).sum())
        assert row["prevalence"] == pytest.approx(y.mean(), abs=1e-11)
        if i == 3:
            assert row["note"] == "no positives" and np.isnan(row["auroc"])
            continue
        assert row["auroc"] == pytest.approx(roc_auc_score(y, x), abs=1e-9)
        assert row["auprc"] == pytest.approx(average_precision_score(y, x), abs=1e-9)
        assert row["auroc_k-mer"] == pytest.approx(roc_auc_score(y, z), abs=1e-9)
        assert row["auprc_k-mer"] == pytest.approx(
            average_precision_score(y, z), abs=1e-9
        )
        lead = row[
            ["delta_k-mer", "delta_k-mer_low", "delta_k-mer_high", "p_k-mer"]
        ].astype(float)
        np.testing.assert_allclose(lead, auroc_difference(y, x, z), atol=1e-9)
        if i == 5:
            assert "only one positive" in row["note"] and np.isnan(row["auroc_low"])
        else:
            assert row["auroc_low"] < row["auroc"] < row["auroc_high"]


def test_metrics_of_groups(made):
    assert " ".join(made.groups.columns).startswith(
        "group tracks median_auroc mean_auroc median_auprc "
    )
    assert made.groups["group"].tolist() == ["TF", "DHS", "HM", "all"]
    for row in made.groups.itertuples():
        part = (
            made.tracks
            if row.group == "all"
            else made.tracks[made.tracks["group"] == row.group]
        )
        kept = part.dropna(subset="auroc")
        assert (row.tracks, row.n_excluded) == (len(kept), len(part) - len(kept))
        assert row.median_auroc == pytest.approx(np.median(kept["auroc"]), abs=1e-9)
        assert row.mean_auroc == pytest.approx(kept["auroc"].mean(), abs=1e-9)
        assert row.median_auprc == pytest.approx(np.median(kept["auprc"]), abs=1e-9)
    certain = made.tracks[discoveries(made.tracks["p_k-mer"])]["delta_k-mer"]
    counts = (certain > 0).sum(), (certain < 0).sum()
    assert tuple(
        made.groups.iloc[-1][["better_k-mer", "worse_k-mer"]]
    ) == counts and sum(counts)


def test_page_needs_no_network_and_names_are_escaped(made):
    reader = HtmlPage(made.page)
    for tag, attributes in reader.tags:
        assert not [name for name in attributes if name.startswith("on")]
        if tag in ("script", "link", "img", "a"):
            assert not {"src", "href"} & {*attributes}
    policy = next(a["content"] for t, a in reader.tags if "http-equiv" in a)
    assert policy.startswith("default-src 'none'") and "http" not in policy
    assert "<script>alert" not in made.page and "</table>&" not in made.page
    assert ("p", f"left out {EVIL}") in reader.texts
    assert "bigbird-dna auc-report &lt;x&gt;" in made.page


def test_page_has_a_table_without_script(made):
    body = made.page.split('<div id="tracks">')[1].split("</table>")[0]
    rows = body.split("<tr>")[1:]
    assert len(rows) == 9
    for row, line in zip(made.tracks.itertuples(), rows, strict=True):
        text = html.unescape(re.sub(r"<[^>]+>", " ", line))
        assert row.track in text and row.group in text
        if row.auroc == row.auroc:
            assert f"{row.auroc:.4f}" in text and f"{row.auprc:.4f}" in text


def test_the_first_lines_have_one_rule_and_no_median_difference(made):
    """What is better is decided by the false discovery rate alone, as in groups.tsv."""
    head = made.page.split("<main>")[0].split("</head>")[1]
    row = made.groups.iloc[-1]
    better, worse = row["better_k-mer"], row["worse_k-mer"]
    message(head, f"than the k-mer regression on {better:.0f} (worse on {worse:.0f})")
    assert f"the model is better on {better:.0f}, worse on {worse:.0f}" in head
    assert f"{row['median_auroc']:.3f}" in head
    assert (
        "difference of" not in head and f"{row['median_delta_k-mer']:.3f}" not in head
    )
    assert "above zero" not in made.page


def test_embedded_curves_are_those_of_the_tracks(made):
    curves = embedded(made.page)
    assert {*curves} == {*made.tracks["track"]} - {f"left out {EVIL}"}
    for i, name in enumerate(made.tracks["track"]):
        if i == 3:
            continue
        measured = made.labels[:, i] >= 0
        y, x = made.labels[measured, i], made.predictions[measured, i]
        false, true, _ = roc_curve(y, x)
        rates, precisions = curves[name]
        assert rates == pytest.approx(np.interp(RATES + 1e-12, false, true), abs=2e-3)
        assert precisions[-1] == pytest.approx(
            y.sum() / (x >= x[y == 1].min()).sum(), abs=1e-3
        )


def test_slices_and_threads_change_nothing(made, tmp_path, monkeypatch):
    monkeypatch.setattr(track_evaluation, "MEMORY", 6000)
    for threads in (1, 3):
        options = {
            "tracks": table_of(),
            "compare": {"k-mer": made.other},
            "threads": threads,
        }
        report = auc_report(
            made.predictions, made.labels, tmp_path / f"{threads}", **options
        )
        pd.testing.assert_frame_equal(report.tracks, made.report.tracks)
    pages = {(tmp_path / name / "report.html").read_bytes() for name in "13"}
    assert len(pages) == 1


def test_tracks_with_few_positives_take_no_part(made, tmp_path):
    report = auc_report(
        made.predictions,
        made.labels,
        tmp_path / "out",
        tracks=table_of(),
        min_positives=20,
    )
    assert not report.tracks["counted"][5] and report.tracks["auroc"][5] > 0
    assert "fewer than 20 positives" in report.tracks["note"][5]
    assert report.groups.set_index("group").loc["HM", "tracks"] == 1


def test_a_difference_without_an_interval_is_not_counted_as_one(tmp_path):
    """Separated classes beside equal scores: the variance is 0, which is no certainty."""
    labels = np.tile(np.arange(20) % 2, (3, 1)).T
    noise = np.random.default_rng(0).normal(size=labels.shape)
    scores, other = labels + 0.0, np.zeros(labels.shape)
    scores[:, 2], other[:, 2] = (
        2.0 * labels[:, 2] + noise[:, 2],
        -labels[:, 2] - noise[:, 2],
    )
    report = auc_report(scores, labels, tmp_path / "out", compare={"other": other})
    assert report.tracks["delta_other"].tolist()[:2] == [0.5, 0.5]
    assert report.tracks["delta_other_low"].isna().tolist() == [True, True, False]


def test_no_track_and_many_groups(tmp_path):
    report = auc_report(np.zeros((5, 2)), np.zeros((5, 2), bool), tmp_path / "none")
    assert report.groups["tracks"].tolist() == [0]
    assert report.tracks["track"].tolist() == ["track 1", "track 2"]
    assert "no positives: 2" in (tmp_path / "none/report.html").read_text()
    rng = np.random.default_rng(0)
    labels, tracks = (
        rng.random((60, 40)) < 0.3,
        [Track(f"t{i}", f"group {i}") for i in range(40)],
    )
    report = auc_report(rng.random((60, 40)), labels, tmp_path / "many", tracks=tracks)
    assert len(report.groups) == 41
    assert "group 39" in (tmp_path / "many/report.html").read_text()


@pytest.mark.parametrize(
    ("changed", "change", "named"),
    [
        ("labels", lambda v: v[:, :8], "400 × 8"),
        ("labels", lambda v: v.T, "9 × 400"),
        ("compare", lambda v: v[1:], "399 rows × 9"),
        ("tracks", lambda v: v[1:], "8"),
        (
            "predictions",
            lambda v: np.where(v == v[11, 6], np.nan, v),
            "predictions: row",
        ),
        ("labels", lambda v: v + 1, "label 2"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, changed, change, named):
    scores, labels, other = arrays()
    values = {
        "predictions": scores,
        "labels": labels,
        "tracks": table_of(),
        "compare": other,
    }
    values[changed] = change(values[changed])
    values["compare"] = {"k": values["compare"]}
    with fails(DataError, named):
        auc_report(output=tmp_path / "out", **values)
    assert list(tmp_path.iterdir()) == []


def test_intervals_are_over_blocks_if_positions_are_known(tmp_path, rows=400):
    """Given as a table of bins, or as columns of the labels; measured rows count alone."""
    scores, labels, other = arrays(rows)
    bins = pd.DataFrame(
        {
            "contig": np.repeat(["I", "II"], rows // 2),
            "start": np.arange(rows) % 200 * 1250,
        }
    )
    bins["end"], blocks = bins["start"] + 200, np.arange(rows) // 8
    bins.assign(split="test").to_parquet(tmp_path / "bins.parquet")
    columns = {f"t{i}": labels[:, i].astype(float) for i in range(9)}
    bins.assign(**columns).to_csv(tmp_path / "labels.tsv", sep="\t", index=False)
    given = (
        auc_report(
            scores,
            labels,
            tmp_path / "a",
            compare={"k": other},
            bins=tmp_path / "bins.parquet",
        ),
        auc_report(
            scores, str(tmp_path / "labels.tsv"), tmp_path / "b", compare={"k": other}
        ),
    )
    for made in given:
        for place in (0, 2, 4, 8):
            kept = labels[:, place] >= 0
            y, x, z = labels[kept, place], scores[kept, place], other[kept, place]
            row = made.tracks.iloc[place]
            assert [row["auroc_low"], row["auroc_high"]] == pytest.approx(
                auroc(y, x, blocks[kept])[1:]
            )
            lead = auroc_difference(y, x, z, blocks[kept])
            assert row[
                ["delta_k", "delta_k_low", "delta_k_high", "p_k"]
            ].tolist() == pytest.approx(lead)
    assert "50 blocks of 10 kb" in (tmp_path / "a/report.html").read_text()
    bins[:-1].assign(split="test").to_parquet(tmp_path / "fewer.parquet")
    with fails(DataError, "399"):
        auc_report(scores, labels, tmp_path / "c", bins=tmp_path / "fewer.parquet")


def test_names_and_intervals_must_agree(tmp_path):
    scores, labels, _ = arrays(20)
    places = {"contig": ["I"] * 20, "start": np.arange(20) * 200}
    one = pd.DataFrame(places | {name: scores[:, i] for i, name in enumerate("abc")})
    two = pd.DataFrame(places | {name: labels[:, i] for i, name in enumerate("acb")})
    one.to_parquet(tmp_path / "p.parquet")
    two.to_parquet(tmp_path / "l.parquet")
    files = tmp_path / "p.parquet", tmp_path / "l.parquet"
    with fails(DataError):
        auc_report(*files, tmp_path / "out")
    two = two.rename(columns={"b": "c", "c": "b"})
    two.to_parquet(tmp_path / "l.parquet")
    assert auc_report(*files, tmp_path / "out").tracks["track"].tolist() == list("abc")
    with fails(DataError):
        auc_report(
            *files, tmp_path / "out", tracks=[Track(name, "all") for name in "xbc"]
        )
    two.loc[4, "start"] = 801
    two.to_parquet(tmp_path / "l.parquet")
    with fails(DataError):
        auc_report(*files, tmp_path / "out")


@pytest.mark.parametrize("name", ["a b", "", "a/b"])
def test_names_of_predictors(tmp_path, name):
    with fails(UsageError):
        auc_report(
            np.zeros((5, 2)),
            np.zeros((5, 2)),
            tmp_path / "o",
            compare={name: np.zeros(1)},
        )


# `auc-report` as a command


@pytest.fixture
def paths(tmp_path):
    """Predictions `p`, labels `l` and other predictions `k` of nine tracks."""
    for name, values in zip("plk", arrays(), strict=True):
        np.save(tmp_path / f"{name}.npy", values)
    return [tmp_path / f"{name}.npy" for name in "plk"]


def test_the_command(run, paths, tmp_path):
    out, tracks = tmp_path / "a/report", tmp_path / "t.tsv"
    write_tracks(tracks, table_of())
    words = ("auc-report", *paths[:2], "-o", out)
    more = (
        "--tracks",
        tracks,
        "--compare",
        f"k-mer={paths[2]}",
    )
    text = run(*words, *more).err
    assert "TF: median AUROC" in text and "all: median AUROC" in text
    table = pd.read_csv(out / "tracks.tsv", sep="\t")
    assert (
        table["track"].tolist() == [track.name for track in table_of()]
        and "delta_k-mer" in table
    )
    page = (out / "report.html").read_text()
    assert f"--tracks {tracks}" in page
    # A report takes the place of an earlier one.
    assert run(*words).code == 0
    assert len(pd.read_csv(out / "groups.tsv", sep="\t")) == 1
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("compared", [["k"], ["k={}", "k={}"]])
def test_comparisons_that_make_no_sense(run, paths, tmp_path, compared):
    options = [
        word for text in compared for word in ("--compare", text.format(paths[2]))
    ]
    refused(run("auc-report", *paths[:2], *options, "-o", tmp_path / "out"), 2)
    assert not (tmp_path / "out").exists()


def test_infinities_are_ranked(run, paths, tmp_path):
    infinite, labels, large = paths
    scores = np.load(infinite)
    scores[:3, 1], scores[7, 6] = np.inf, -np.inf
    np.save(infinite, scores)
    np.save(large, np.clip(scores, -1e6, 1e6))
    for path in (infinite, large):
        assert run("auc-report", path, labels, "-o", tmp_path / path.stem).code == 0
    for table in TABLES:
        assert (tmp_path / "p" / table).read_bytes() == (
            tmp_path / "k" / table
        ).read_bytes()


def test_more_tracks_than_rows_are_asked_about(run, paths, tmp_path):
    for path in paths[:2]:
        np.save(path, np.load(path).T)
    said = run("auc-report", *paths[:2], "-o", tmp_path / "turned").err
    message(said, "warning: ", "9 rows × 400 tracks")


# The page's script in a browser: what it draws, sorts, finds and chooses. Skipped where there is none


HOSTILE = "</script><img src=x onerror='document.title=1'>"
NAMES = ["bravo", "alfa", HOSTILE, "delta"]

# What a reader does, and what the page shows then.
SCRIPT = """
const plot = document.getElementById("figure-curves");
const shown = () => plot.data.filter((one) => one.showlegend !== false).map((one) => one.name);
const found = { title: document.title, first: shown() };
found.figures = document.querySelectorAll(".plotly-graph-div .main-svg").length > 4;
document.querySelectorAll("#tracks tbody tr")[1].cells[0].click();
found.row = shown();
found.curves = plot.data.length;
"""


@pytest.fixture
def page(tmp_path):
    """Four tracks of two groups, compared with another predictor; the last has no positives."""
    rng = np.random.default_rng(0)
    labels = (rng.random((200, 4)) < [0.5, 0.3, 0.2, 0]).astype(np.uint8)
    scores = rng.normal(size=labels.shape) + labels * [1, 2, 4, 1]
    tracks = [
        Track(name, group)
        for name, group in zip(NAMES, ("TF", "TF", "HM", "HM"), strict=True)
    ]
    report = auc_report(
        *(scores, labels, tmp_path / "out"), tracks=tracks, compare={"other": -scores}
    )
    return report, (tmp_path / "out/report.html").read_text()


@needs_browser
def test_page_in_a_browser(page, tmp_path):
    report, text = page
    check_layout(text, tmp_path)
    found = found_in_browser(text, SCRIPT, tmp_path)
    assert found["title"] == "AUROC by track" and found["figures"]
    area = report.tracks["auroc"]
    first = []
    for _, rows in report.tracks.dropna(subset="auroc").groupby("group", sort=False):
        nearest = (rows["auroc"] - rows["auroc"].median()).abs().idxmin()
        first.append(NAMES[nearest])
    assert found["first"] == first and area.notna().sum() == 3
    assert found["row"] == [*first, "alfa"]
    assert found["curves"] == 2 * len(found["row"])


IN_MEMORY: dict[str, Callable[[np.ndarray], Any]] = {
    "lists": lambda values: values.tolist(),
    "arrays": np.asarray,
    "frames": lambda values: pd.DataFrame(values, columns=["one", "two"]),
    "numbered columns": lambda values: pd.DataFrame(
        values, index=range(5, 5 + len(values))
    ),
    "nullable": lambda values: pd.DataFrame(
        values, columns=["one", "two"]
    ).convert_dtypes(),
    "regions": lambda values: pd.DataFrame(
        {
            "contig": "a",
            "start": range(len(values)),
            "one": values[:, 0],
            "note": "x",
            "two": values[:, 1],
        }
    ),
    "tensors": lambda values: __import__("torch").tensor(values),
}


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_values_in_memory_are_evaluated(tmp_path: Path, kind: str) -> None:

    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, (300, 2))
    scores = labels + rng.normal(0, 1, (300, 2))
    make = IN_MEMORY[kind]
    found = auc_report(
        make(scores),
        make(labels),
        tmp_path / "report",
        compare={"other": make(-scores)},
    )
    expected = [
        roc_auc_score(labels[:, column], scores[:, column]) for column in range(2)
    ]
    np.testing.assert_allclose(found.tracks["auroc"], expected, atol=1e-9)
    np.testing.assert_allclose(
        found.tracks["auroc_other"], 1 - np.array(expected), atol=1e-9
    )
    named = kind in ("frames", "nullable", "regions")
    assert found.tracks["track"].tolist() == (
        ["one", "two"] if named else ["track 1", "track 2"]
    )
    one = auc_report(
        [*map(float, scores[:, 0])], pd.Series(labels[:, 0]), tmp_path / "one"
    )
    np.testing.assert_allclose(one.tracks["auroc"], expected[:1], atol=1e-9)


def test_values_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    labels = np.array([0, 1, 1])
    ragged: Any = [[1.0], [1.0, 2.0], [3.0]]
    for wrong in (
        ragged,
        ["a", "b", "c"],
        object(),
        pd.DataFrame({"x": ["a", "b", "c"]}),
    ):
        with fails(DataError, "predictions"):
            auc_report(wrong, labels, tmp_path / "report")
    with fails(DataError, "labels"):
        auc_report([0.1, 0.2, 0.3], {"a": 1}, tmp_path / "report")
    assert not [*tmp_path.iterdir()]


def test_published_aurocs_stand_beside_those_of_the_report(tmp_path):
    scores, labels, _ = (values[:, :2] for values in arrays())
    tracks = tmp_path / "list.tsv"
    tracks.write_text("track\tgroup\tpublished_auroc\na\tTF\t0.91\nb\tTF\t\n")
    for name, values in (("scores", scores), ("labels", labels)):
        np.save(tmp_path / f"{name}.npy", values)
    files = (tmp_path / "scores.npy", tmp_path / "labels.npy")
    for words, expected in (({"tracks": tracks}, True), ({}, False)):
        auc_report(*files, tmp_path / "report", **words)
        table = pd.read_csv(tmp_path / "report/tracks.tsv", sep="\t")
        assert ("published_auroc" in table) == expected
        if expected:
            assert table["published_auroc"].tolist()[0] == 0.91
            assert table["published_auroc"].isna().tolist() == [False, True]
