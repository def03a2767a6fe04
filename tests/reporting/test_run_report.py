"""The report of a run: the summary of its tables, and its page."""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.express as px
import pytest
import yaml

from bigbird_dna.config.paths import RunPaths
from bigbird_dna.config.reading import parse_config
from bigbird_dna.errors import DataError
from bigbird_dna.reporting.pages import read_page_table, write_figure
from bigbird_dna.reporting.run_page import (
    conclusion,
    readable,
    run_page,
    summarize,
)
from tests.cli.command import Run, invoke, refused
from tests.golden.messages import fails, message
from tests.html_pages import HtmlPage, check_layout, needs_browser
from tests.toys import predictions, written

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
ROWS = pd.DataFrame(
    {
        "task": ["calls within 50 bp of a TSS", "promoters against a", "variants"],
        "metric": ["average precision", "AUROC", "AUROC"],
        "model": ["0.4000 [0.3000, 0.5000]", "0.9", "0.7"],
        "compared with": ["position regression 0.3000", "<k-mer> 0.7", ""],
        "difference": ["+0.1000", "+0.2", ""],
        "the model is": ["not measurably different", "better", ""],
    }
)
CONFIG: dict[str, Any] = {
    "results": "somewhere/else",
    "promoters": {"model": "window", "windows": {"negative_sets": ["permuted"]}},
    "genome": {"valid": ["demo5"], "test": ["<demo6>"]},
    "chromatin": {"data": {"tracks": "simulated", "test_regions": ["demo4:1-900"]}},
}


def read(path: Path) -> HtmlPage:
    page = HtmlPage(path.read_text())
    assert page.closed_in_order and page.open == []
    assert not any(name.startswith("on") for _, values in page.tags for name in values)
    assert not any(value.startswith("http") for value in page.values("src"))
    policy = next(
        values["content"] for _, values in page.tags if "http-equiv" in values
    )
    assert "default-src 'none'" in policy and "http" not in policy
    return page


PLOTS = (
    "scan roc precision_recall calibration finetuning_loss bits_per_base loss variants"
)
TABLES = "scan promoters calibration variants compared_variants chromatin/groups"
BITS = (
    "split\tpredictor\tbits_per_base\tlow\thigh\tdifference\tdifference_low\tdifference_high\tnote\n"
    "valid\tmodel\t1.91\t1.9\t1.92\t\t\t\t\n"
    "test\tmodel\t1.92\t1.91\t1.93\t\t\t\t\n"
    "test\tuniform\t2\t2\t2\t-0.08\t-0.09\t-0.07\t2 bits a base\n"
    "test\tbigrams\t1.94\t1.93\t1.95\t-0.02\t-0.03\t-0.01\torder 2\n"
)
LOG = (
    "".join(
        json.dumps({"step": step, "loss": 5 - step / 100}) + "\n"
        for step in (10, 20, 30)
    )
    + json.dumps({"step": 30, "evaluation": {"bits_per_base": 1.91}})
    + "\n"
)


def put(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return written(path, content)


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """A run with every file that its page knows, with hostile contents."""
    paths = RunPaths(tmp_path / "run")
    put(paths.report / "score_track.svg", SVG)
    for name in PLOTS.split():
        figure = px.line(x=[1, 2], y=[1, 3], title="</script><script>alert(1)")
        write_figure(figure, paths.report / f"{name}.plotly.json")
    for name in TABLES.split():
        put(paths.report / f"{name}.tsv", "track\tauroc\nx<script>\t0.5\n")
    put(paths.report / "chromatin/report.html", "<p>")
    put(paths.report / "summary.tsv", "task\tvalue\n")
    put(paths.pretraining_bits, BITS)
    return paths


def page_of(paths: RunPaths, values: dict[str, Any] = CONFIG) -> HtmlPage:
    html = run_page(parse_config(values), paths, ROWS)
    return read(put(paths.results / "page.html", html))


def test_the_page_has_every_figure_and_table(paths: RunPaths) -> None:
    page = page_of(paths)
    sections = ["promoters", "chromatin", "variants", "pretraining", "configuration"]
    assert [tag["id"] for name, tag in page.tags if name == "section"] == sections
    figures = [f"figure-{name}" for name in PLOTS.split()]
    assert {name for name in page.values("id", "div") if "figure" in name} == {*figures}
    assert len(page.values("src", "img")) == 1
    assert page.values("href") == ["report/chromatin/report.html"]
    assert sum("sortable" in name for name in page.values("class", "table")) == 7
    for text in ("x<script>", "<k-mer> 0.7", "testing: <demo6>, demo4:1-900."):
        assert text in page.text
    assert "somewhere/else" not in page.text
    html = (paths.results / "page.html").read_text()
    assert "<script>alert" not in html
    assert html.index('<table class="summary">') < html.index("figure-roc")


def test_files_of_tasks_that_a_run_no_longer_has_are_left_out(paths: RunPaths) -> None:
    chromatin = {"data": {"tracks": "x"}, "model": {"initial": "random"}}
    values = {"genome": {"reference": "my.fa"}, "chromatin": chromatin}
    page = page_of(paths, values)
    sections = [tag["id"] for name, tag in page.tags if name == "section"]
    assert sections == ["chromatin", "variants", "configuration"]


def test_the_conclusion() -> None:
    first, second = conclusion(ROWS, "demo6")
    message(first, "demo6", "0.4000 [0.3000, 0.5000] for calls", "position")
    message(second, "2 tasks", "not measurably different in 1 (calls", "better in 1")
    # Of calls within 10, 50, 100 and 500 bp, the third.
    distances = [f"calls within {bp} bp of a TSS" for bp in (10, 50, 100, 500)]
    rows = pd.concat([ROWS[:1]] * 4 + [ROWS[1:]], ignore_index=True)
    rows.loc[:3, "task"] = distances
    assert "within 100 bp" in conclusion(rows, "")[0]


def test_members_of_ensembles_are_on_the_page(paths: RunPaths) -> None:
    ensemble = {
        "weights": {"network": 0.25, "kmers": 1.5},
        "valid_auroc": {"network": 0.9, "kmers": 0.8, "ensemble": 0.95},
    }
    path = paths.promoter_model("permuted") / "metrics.json"
    put(path, json.dumps({"ensemble": ensemble}))
    page = page_of(paths)
    assert "ensembles" in page.values("id")
    cells = [text.strip() for tag, text in page.texts if tag == "td"]
    for member, weight in (("network alone", 0.25), ("k-mer regression", 1.5)):
        assert cells[cells.index(member) + 1] == f"{weight:.4f}"
    put(path, json.dumps({"ensemble": {"weights": {"x": 1}}}))
    with fails(DataError, path):
        page_of(paths)


def test_intervals_stand_beside_their_figures(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(
        "set\tn\tauroc\tauroc_low\tauroc_high\tempty\tdelta_low\t"
        "median_distance\tmedian_distance_low\tmedian_distance_high\n"
        "a\t1244\t0.98765432\t0.97\t0.99\t\t1e-09\t14.0\t9.0\t20.4\n"
        "b\t7\t\t\t\t\t-0.5\t\t\t\n"
    )
    page = HtmlPage(read_page_table(path))
    cells = [text.strip() for tag, text in page.texts if tag in ("th", "td")]
    assert cells == [
        *("set", "n", "auroc", "auroc, 95 %", "delta low"),
        *("median distance", "median distance, 95 %"),
        *("a", "1244", "0.9877", "0.9700\u00a0to\u00a00.9900", "1e-09"),
        *("14", "9\u00a0to\u00a020"),
        *("b", "7", "-0.5000"),
    ]


@needs_browser
def test_layout_in_a_browser(tmp_path: Path, paths: RunPaths) -> None:
    wide = 'xmlns="http://www.w3.org/2000/svg" width="900pt" height="300pt"'
    row = "\t".join(["a_name_without_a_space_" * 4, *["0.123456"] * 30])
    path = paths.report / "score_track.svg"
    path.write_text(f"<svg {wide}><rect width='900' height='300'/></svg>")
    for name in TABLES.split():
        path = paths.report / f"{name}.tsv"
        path.write_text("\t".join(f"column_{n}" for n in range(31)) + f"\n{row}\n")
    page_of(paths)
    check_layout((paths.results / "page.html").read_text(), tmp_path)


def test_the_model_that_training_started_from_is_named(paths: RunPaths) -> None:
    values = CONFIG | {"pretraining": {"start_from": "elsewhere/their-model"}}
    path = paths.pretrained / "provenance.json"
    assert "not recorded" in page_of(paths, values).text
    put(path, '{"contigs": ["I", "II"]}')
    text = page_of(paths, values).text
    assert "their-model" in text and "pretrained on I, II" in text
    path.unlink()
    assert "their-model" in page_of(paths, values).text
    assert "their-model" not in page_of(paths).text


def test_a_run_is_reported(run: Run, tmp_path: Path) -> None:
    """From what a few commands wrote, with and without the configuration that the workflow stores."""
    paths = RunPaths(tmp_path / "run")
    refused(run("report run", paths.results), 1, "report.yaml")
    values = CONFIG | {"encoder": {"layers": 1}}
    put(paths.stage("report"), yaml.safe_dump(values))
    refused(run("report run", paths.results), 1, paths.results)
    put(paths.pretraining_bits, BITS)
    for model in (paths.pretrained, paths.promoter_model("permuted")):
        put(model / "training.jsonl", LOG)
    for name, lift in (("model", 2.5), ("kmer", 1.0)):
        frame = predictions("permuted", 120, lift, len(name))
        frame.to_parquet(tmp_path / f"{name}.parquet", index=False)
    words = (
        f"--predictions=permuted={tmp_path / 'model.parquet'}",
        f"--promoter-baseline=permuted={tmp_path / 'kmer.parquet'}",
    )
    invoke("evaluate promoters", *words, "-o", paths.report)

    result = run("report run", paths.results)
    assert (result.code, result.err) == (0, "")
    names = {path.name.partition(".")[0] for path in paths.report.glob("*.plotly.json")}
    assert names >= {"loss", "bits_per_base", "finetuning_loss", "roc"}
    assert result.out == (paths.report / "summary.txt").read_text()
    assert result.out.splitlines()[-1] == f"Report: {paths.report_page}"
    table = pd.read_csv(paths.report / "summary.tsv", sep="\t")
    source = pd.read_csv(paths.report / "promoters.tsv", sep="\t")
    row = table.iloc[0]
    assert row["task"] == "promoters against permuted negatives"
    for end in ("", "_low", "_high"):
        assert row[f"model{end}"] == pytest.approx(source.loc[0, f"auroc{end}"])
    assert row["best"] == pytest.approx(source.loc[1, "auroc"])
    lead = source.loc[0, "auroc_minus_kmer"]
    assert (row["compared_with"], row["difference"]) == ("k-mer regression", lead)
    # The best baseline, on the test contigs.
    row = table.iloc[1]
    assert (row["model"], row["compared_with"], row["best"]) == (1.92, "bigrams", 1.94)
    assert (row["difference"], row["verdict"]) == (-0.02, "better")
    page = read(paths.report_page)
    assert "page of all tracks" not in page.text

    before = paths.report_page.read_bytes()
    assert run("report run", paths.results).code == 0
    assert paths.report_page.read_bytes() == before
    put(paths.report / "promoters.tsv", "negative_set\ngenomic\n")
    refused(run("report run", paths.results), 1, "promoters.tsv")
    assert paths.report_page.read_bytes() == before


def test_a_run_with_a_dense_model_shows_its_calls_and_its_loss(
    run: Run, tmp_path: Path
) -> None:
    paths = RunPaths(tmp_path)
    put(paths.stage("report"), yaml.safe_dump({**CONFIG, "promoters": {}}))
    put(paths.start_sites_model / "training.jsonl", LOG)
    put(paths.report / "promoters.tsv", "of an earlier run\n")
    put(
        paths.report / "scan.tsv",
        "predictor\twithin\ttss\taverage_precision\taverage_precision_low\t"
        "average_precision_high\tdifference\tdifference_low\tdifference_high\n"
        "model\t50\t9\t0.4\t0.3\t0.5\t\t\t\n",
    )
    result = run("report run", paths.results)
    assert (result.code, result.err) == (0, "")
    assert "calls within 50 bp of a TSS" in result.out
    assert (paths.report / "finetuning_loss.plotly.json").exists()
    page = read(paths.report_page)
    assert "figure-finetuning_loss" in page.values("id", "div")
    assert "earlier run" not in page.text


def summary_of(paths: RunPaths, name: str, content: str) -> pd.DataFrame:
    put(paths.report / name, content)
    values = CONFIG if name == "promoters.tsv" else {**CONFIG, "promoters": {}}
    return summarize(parse_config(values), paths)


def test_the_rows_of_the_summary(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    (row,) = summary_of(
        paths,
        "scan.tsv",
        "predictor\twithin\ttss\taverage_precision\taverage_precision_low\t"
        "average_precision_high\tdifference\tdifference_low\tdifference_high\n"
        "model\t50\t9\t0.4\t0.3\t0.5\t\t\t\n"
        "k-mer\t50\t9\t0.5\t0.4\t0.6\t-0.1\t-0.2\t-0.05\n"
        "position\t50\t9\t0.2\t0.1\t0.3\t0.2\t0.1\t0.3\n",
    ).to_dict("records")
    assert (row["task"], row["model"]) == ("calls within 50 bp of a TSS", 0.4)
    assert (row["compared_with"], row["best"]) == ("k-mer regression", 0.5)
    assert (row["difference"], row["verdict"]) == (-0.1, "worse")
    (paths.report / "scan.tsv").unlink()

    (row,) = summary_of(
        paths,
        "chromatin/groups.tsv",
        "group\ttracks\tmedian_auroc\tmedian_auroc_window_1000\t"
        "median_delta_window_1000\tbetter_window_1000\tworse_window_1000\n"
        "TF\t2\t0.8\t0.7\t0.1\t2\t0\nall\t3\t0.85\t0.8\t0.02\t2\t1\n",
    ).to_dict("records")
    assert (row["model"], row["compared_with"], row["best"]) == (
        0.85,
        "1,000-bp model",
        0.8,
    )
    assert row["verdict"] == "better on 2, worse on 1 of 3 tracks"
    assert math.isnan(row["difference"])
    assert readable(pd.DataFrame([row]))["compared with"][0] == "1,000-bp model 0.8000"
    (paths.report / "chromatin/groups.tsv").unlink()

    variants = (
        "subset\tvariants\tauroc\tauroc_low\tauroc_high\n"
        "all\t12\t0.9\t0.4\t0.95\ncategory=x\t1\t\t\t\n"
    )
    (row,) = summary_of(paths, "variants.tsv", variants).to_dict("records")
    assert (row["model"], row["compared_with"], row["verdict"]) == (0.9, "", "")
    (row,) = summary_of(
        paths,
        "compared_variants.tsv",
        "subset\tpredictor\tauroc\tauroc_low\tauroc_high\tdifference\tdifference_low\tdifference_high\n"
        "all\tkmers\t0.8\t0.7\t0.85\t0.1\t0.05\t0.2\n",
    ).to_dict("records")
    assert (row["compared_with"], row["verdict"]) == ("k-mer regression", "better")


@pytest.mark.parametrize(
    "name",
    ["scan.tsv", "promoters.tsv", "chromatin/groups.tsv", "variants.tsv"],
)
def test_wrong_tables(tmp_path: Path, name: str) -> None:
    for content in ("predictor\n", ""):
        with fails(DataError, name):
            summary_of(RunPaths(tmp_path), name, content)
