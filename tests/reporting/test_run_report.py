"""The report of a run: the summary of its tables, and its page."""

import base64
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import binomtest

from bigbird_dna.config.paths import RunPaths
from bigbird_dna.config.reading import parse_config
from bigbird_dna.data.predictions import AUROC_SHIFTED, MEDIAN_SHIFTED, SHIFTS
from bigbird_dna.disk.tables import read_table, write_tsv
from bigbird_dna.errors import DataError
from bigbird_dna.reporting import summary
from bigbird_dna.reporting.pages import read_page_table
from bigbird_dna.reporting.run_page import clock, conclusion, run_page
from bigbird_dna.reporting.summary import (
    CHANCE,
    headlines,
)
from bigbird_dna.reporting.summary import (
    SUMMARY as SCHEMA,
)
from bigbird_dna.reporting.variants import COLUMNS, COMPARED, variant_table
from tests.cli.command import Run, invoke, refused
from tests.golden.messages import fails, message
from tests.html_pages import HtmlPage, check_layout, needs_browser
from tests.toys import predictions, written

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
ROWS = """section	metric	value	low	high	note
tokens	vocabulary	1024			<b>
calls, within 50 bp	average precision, model	0.4	0.3	0.5
calls, within 50 bp	average precision, position regression	0.3	0.2	0.4
calls, within 50 bp	average precision, model minus position regression	0.1	0.05	0.15	paired
calls, within 100 bp	average precision, model	0.62	0.6	0.7	9 TSSs
calls, within 100 bp	average precision, position regression	0.5	0.4	0.6
calls, within 100 bp	average precision, k-mer regression	0.3	0.2	0.4
calls, within 100 bp	average precision, model minus position regression	0.12	0.1	0.2	paired
calls, within 100 bp	average precision, model minus k-mer regression	0.32	0.3	0.4	paired
calls, within 500 bp	average precision, model	0.7	0.6	0.8
calls, within 500 bp	average precision, position regression	0.6	0.5	0.7
calls, within 500 bp	average precision, model minus position regression	0.1	-0.05	0.15	paired
pretraining	bits per base, model	1.83	1.82	1.84
pretraining	bits per base, Markov over bases, both sides	1.82	1.81	1.83
pretraining	bits per base, model minus Markov over bases, both sides	0.01	0.005	0.015
promoters, permuted	AUROC, model	0.95	0.94	0.96	9 <windows>
promoters, permuted	AUPRC, model	0.95	0.94	0.96
promoters, permuted	AUROC, network alone	0.94	0.93	0.95
promoters, permuted	AUROC, k-mer regression	0.7	0.6	0.8
promoters, permuted	AUROC, position regression	0.9	0.8	0.93
promoters, permuted	AUROC, shuffled labels	0.52	0.48	0.55
promoters, permuted	AUROC, model minus k-mer regression	0.25	0.2	0.3
promoters, permuted	AUROC, model minus position regression	0.05	0.04	0.06
promoters, genomic	AUROC, model	0.99	0.98	1
promoters, genomic	AUROC, position regression	0.99	0.98	1
promoters, genomic	AUROC, shuffled labels	0.7	0.65	0.75
promoters, genomic	AUROC, model minus position regression	0	-0.01	0.01
chromatin, TF	median AUROC, model	0.9			2 tracks
chromatin, TF	median AUROC, network alone	0.89
chromatin, TF	median AUROC, 1,000-bp model	0.8
chromatin, TF	median AUROC, published	0.99
chromatin, TF	median AUROC, model minus 1,000-bp model	0.1			better on 2, worse on 0 of 2
chromatin, all	median AUROC, model	0.9			3 tracks
chromatin, all	median AUROC, 1,000-bp model	0.95
chromatin, all	median AUROC, model minus 1,000-bp model	-0.01			better on 2, worse on 1 of 3
variants, all	AUROC, model	0.4	0.35	0.45
variants, all	sign accuracy	1
"""
SUMMARY = "".join(
    line + "\t" * (5 - line.count("\t")) + "\n" for line in ROWS.splitlines()
)
CONFIG: dict[str, Any] = {
    "results": "somewhere/else",
    "promoters": {"windows": {"negative_sets": ["permuted"]}},
    "genome": {"valid": ["demo5"], "test": ["<demo6>"]},
    "chromatin": {"data": {"tracks": "simulated", "test_regions": ["demo4:1-900"]}},
}


def read(path: Path) -> HtmlPage:
    page = HtmlPage(path.read_text())
    assert page.closed_in_order and page.open == []
    assert not any(name.startswith("on") for _, values in page.tags for name in values)
    assert "script" not in [tag for tag, _ in page.tags]
    return page


PLOTS = "score_track scan roc precision_recall calibration score_histograms track_calibration variants"
TABLES = (
    "scan promoters calibration groups track_calibration tracks variants compared_variants "
    "random_variants variant_p_values"
)
STATISTICS = {
    "vocabulary": 256,
    "genome": {"bases": 4_000_000, "bases_per_token": 3.9, "unknown_rate": 0.0},
    "regions": {
        "promoters": {"bases_per_token": 3.5},
        "empty": {"bases_per_token": None},
    },
}
METRICS = {"masked_accuracy": 0.05, "steps": 1000, "tokens_seen": 5_123_456_789}
BITS = (
    "split\tpredictor\tbits_per_base\tlow\thigh\tdifference\tdifference_low\tdifference_high\tnote\n"
    "valid\tmodel\t1.91\t1.9\t1.92\t\t\t\t\n"
    "test\tmodel\t1.92\t1.91\t1.93\t\t\t\t\n"
    "test\tuniform\t2\t2\t2\t-0.08\t-0.09\t-0.07\t2 bits a base\n"
    "test\tbigrams\t1.94\t1.93\t1.95\t-0.02\t-0.03\t-0.01\torder 2\n"
    "test\tbigrams, one token masked at a time\t1.9\t1.89\t1.91\t0.02\t0.01\t0.03\torder 2\n"
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
    for name in PLOTS.split():
        put(paths.report / f"{name}.svg", SVG)
    for name in TABLES.split():
        put(paths.report / f"{name}.tsv", "track\tauroc\nx<script>\t0.5\n")
    put(paths.report / "chromatin/report.html", "<p>")
    put(paths.report / "summary.tsv", SUMMARY)
    put(paths.pretraining_bits, BITS)
    return paths


def page_of(paths: RunPaths, values: dict[str, Any] = CONFIG) -> HtmlPage:
    main = headlines(read_table(put(paths.results / "s.tsv", SUMMARY), SCHEMA))
    html = run_page(parse_config(values), paths, main)
    return read(put(paths.results / "page.html", html))


def test_the_page_has_every_file_and_nothing_runs(paths: RunPaths) -> None:
    page = page_of(paths)
    ids = ["results", "all-metrics", "pretraining", "promoters", "chromatin"]
    ids += ["variants", "configuration"]
    assert page.values("id") == ids
    links = [link for link in page.values("href") if not link.startswith("data:")]
    assert links == [*(f"#{name}" for name in ids), "report/chromatin/report.html"]
    saved = {
        values["download"]: base64.b64decode(values["href"].partition(",")[2])
        for _, values in page.tags
        if "download" in values
    }
    assert b"demo5" in saved.pop("configuration.yaml")
    files = [*paths.report.glob("*.*"), paths.pretraining_bits]
    assert saved == {path.name: path.read_bytes() for path in files}
    images = page.values("src", "img")
    assert len(images) == len(PLOTS.split())
    assert all(image.startswith("data:image/svg+xml;base64,") for image in images)
    for text in ("x<script>", "9 <windows>", ": <demo6>, demo4:1-900."):
        assert text in page.text
    assert "somewhere/else" not in page.text


def test_files_of_tasks_that_a_run_no_longer_has_are_left_out(paths: RunPaths) -> None:
    for name in ("study.svg", "probes.svg"):
        put(paths.report / name, SVG)
    assert "effect-of-pretraining" not in page_of(paths).values("id")
    chromatin = {"data": {"tracks": "x"}, "model": {"initial": "random"}}
    values = {"genome": {"reference": "my.fa"}, "chromatin": chromatin}
    page = page_of(paths, values)
    ids = ["results", "all-metrics", "chromatin", "variants", "configuration"]
    assert page.values("id") == ids
    study = {"pretraining_study": {"tasks": ["promoters"]}}
    assert "effect-of-pretraining" in page_of(paths, CONFIG | study).values("id")


def test_the_conclusion(tmp_path: Path) -> None:
    main = headlines(read_table(written(tmp_path / "summary.tsv", SUMMARY), SCHEMA))
    position, window = "position regression", "1,000-bp model"
    baselines = [
        *[position] * 3,
        "Markov over bases, both sides",
        position,
        CHANCE,
        position,
        CHANCE,
    ]
    baselines += [window, window, CHANCE]
    assert [one.baseline for one in main] == baselines
    assert main[-1].difference[2:5] == pytest.approx((-0.1, -0.15, -0.05))
    words = conclusion(main, ["demo6"])
    message(
        words[0],
        "demo6",
        "average precision 0.6200 [0.6000, 0.7000] for calls within 100 bp of a TSS",
    )
    message(words[0], position, "0.5000", "+0.1200", "better")
    message(words[1], "not measurably different for calls within 500 bp of a TSS")
    others = [one for one in main if not one.model.section.startswith("calls")]
    message(
        " ".join(conclusion(others, ["demo6"])), "0.9500 [0.9400, 0.9600]", "+0.0500"
    )
    for task, part in (
        ("chromatin", "−0.0100"),
        ("pretraining", "+0.0100"),
        ("variants", "−0.1000"),
    ):
        chosen = [one for one in main if one.model.section.startswith(task)]
        message(conclusion(chosen, [])[0], part)
    assert conclusion([main[5]], []) == []


def test_intervals_stand_beside_their_figures(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(
        "set\tn\tauroc\tauroc_low\tauroc_high\tempty\tdelta_low\n"
        "a\t1244\t0.98765432\t0.97\t0.99\t\t1e-09\nb\t7\t\t\t\t\t-0.5\n"
    )
    table = read_page_table(path)
    assert table.headings == ["set", "n", "auroc", "delta low"]
    assert table.numeric == [False, True, True, True]
    assert table.rows == [
        ["a", "1,244", "0.9877 [0.9700, 0.9900]", "1e−09"],
        ["b", "7", "", "−0.5000"],
    ]


def test_every_plot_says_what_a_good_result_is() -> None:
    from bigbird_dna.reporting.pages import resource

    captions = re.findall(
        r'call figure\("(.*?)".*?%}(.*?){% endcall',
        resource("run_page.html"),
        re.DOTALL,
    )
    assert len(captions) > 12
    assert [
        name for name, text in captions if not re.search(r"\b[Gg]ood\b", text)
    ] == []


@needs_browser
def test_layout_in_a_browser(tmp_path: Path, paths: RunPaths) -> None:
    wide = 'xmlns="http://www.w3.org/2000/svg" width="900pt" height="300pt"'
    row = "\t".join(["a_name_without_a_space_" * 4, *["0.123456"] * 30])
    for path in paths.report.glob("*.svg"):
        path.write_text(f"<svg {wide}><rect width='900' height='300'/></svg>")
    for name in TABLES.split():
        path = paths.report / f"{name}.tsv"
        path.write_text("\t".join(f"column_{n}" for n in range(31)) + f"\n{row}\n")
    page_of(paths)
    check_layout((paths.results / "page.html").read_text(), tmp_path)


def test_the_longest_steps_come_first(paths: RunPaths) -> None:
    header = "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time\n"
    rows = {"short": "0.01\t0:00:00\tNA\tNA\tNA\tNA\tNA\tNA\tNA\tNA\n"}
    rows["long"] = "3725.6\t1:02:05\t1234.5\t0\t0\t0\t0\t0\t0\t60\n"
    for name, row in rows.items():
        put(paths.benchmark(name), header + row)
    page_of(paths)
    text = (paths.results / "page.html").read_text()
    assert re.findall(r'<th scope="row">(long|short)</th>', text) == ["long", "short"]
    assert "1:02:06 in total" in text and ">1,234</td>" in text
    assert clock(math.nan) == ""
    put(paths.benchmark("bad"), "a\n1\n")
    with fails(DataError, "bad.tsv"):
        page_of(paths)


def test_the_model_that_training_started_from_is_named(paths: RunPaths) -> None:
    values = CONFIG | {"pretraining": {"start_from": "elsewhere/their-model"}}
    path = paths.pretrained / "provenance.json"
    put(
        path,
        '{"files": {"model.safetensors": "abc123"}, "imported_from": "gena"}',
    )
    text = page_of(paths, values).text
    assert "HuggingFace checkpoint gena" in text
    assert "abc123" in text and "not recorded" in text
    put(path, '{"contigs": ["I", "II"]}')
    text = page_of(paths, values).text
    assert "weights of their-model" in text and "pretrained on I, II" in text
    path.unlink()
    assert "weights of their-model" in page_of(paths, values).text
    assert "their-model" not in page_of(paths).text


def test_a_run_is_reported(run: Run, tmp_path: Path) -> None:
    """From what a few commands wrote, with and without the configuration that the workflow stores."""
    paths = RunPaths(tmp_path / "run")
    refused(run("report run", paths.results), 1, "report.yaml")
    values = CONFIG | {"encoder": {"layers": 1}}
    put(paths.stage("report"), yaml.safe_dump(values))
    refused(run("report run", paths.results), 1, paths.results)
    put(paths.promoter_counts, json.dumps({"read": 4802, "promoters": 2164}))
    put(paths.token_statistics, json.dumps(STATISTICS))
    put(paths.pretraining_bits, BITS)
    put(paths.pretrained / "metrics.json", json.dumps(METRICS))
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
    names = {path.name for path in paths.report.glob("*.svg")}
    assert names >= {"loss.svg", "bits_per_base.svg", "held_out.svg"}
    assert "finetuning_loss.svg" in names
    assert result.out == (paths.report / "summary.txt").read_text()
    assert result.out.splitlines()[-1] == f"Report: {paths.report_page}"
    message(result.out, "5,123,456,789", "0.0500", "of 4,802 in the file")
    table = pd.read_csv(paths.report / "summary.tsv", sep="\t")
    rows = table.set_index(["section", "metric"])
    assert rows.loc[("tokens", "bp per token, promoters"), "value"] == 3.5
    source = pd.read_csv(paths.report / "promoters.tsv", sep="\t").iloc[0]
    row = rows.loc[("promoters, permuted", "AUROC, model")]
    expected = source[["auroc", "auroc_low", "auroc_high"]].astype(float)
    np.testing.assert_allclose(row[["value", "low", "high"]].astype(float), expected)
    # The best baseline of each kind, on the test contigs.
    bits = table[table["metric"].str.startswith("bits per base")]
    assert bits["value"].tolist() == [1.92, 1.94, -0.02, 1.9, 0.02]
    assert "uniform" not in result.out
    page = read(paths.report_page)
    assert "Model and best baseline" in page.text

    before = paths.report_page.read_bytes()
    assert run("report run", paths.results).code == 0
    assert paths.report_page.read_bytes() == before
    put(paths.token_statistics, "{}")
    refused(run("report run", paths.results), 1, paths.token_statistics, "genome")
    assert paths.report_page.read_bytes() == before


def test_promoters_that_were_dropped(tmp_path: Path) -> None:
    counts = {"read": 4802, "unmapped": None, "off_reference": 2635, "duplicates": 3}
    path = written(tmp_path / "p.json", json.dumps(counts | {"promoters": 2164}))
    *_, dropped = summary.promoter_counts(path)
    assert dropped.value == 2638
    assert dropped.note == "2,635 not on the reference, 3 duplicates"


def test_moved_windows(tmp_path: Path) -> None:
    """A model without test promoters has none."""
    moved = {
        key.format(bp): 0.5 + bp / 100
        for key in (MEDIAN_SHIFTED, AUROC_SHIFTED)
        for bp in (0, *SHIFTS)
    }
    path = written(tmp_path / "a.json", json.dumps({"test": moved}))
    rows = [*summary.shift_rows("a", path)]
    assert [row.value for row in rows] == [0.5, 0.51, 0.52, 0.55, 0.6]
    assert rows[-1].note == "test promoters; AUROC 0.6000"
    for content in ({"test": {}}, {}):
        path = written(tmp_path / "b.json", json.dumps(content))
        assert [*summary.shift_rows("b", path)] == []


# Track: group, and how much the wide and the narrow window see of it.
TRACKS = {
    "NEAR": ("TF", 2.0, 2.0),
    "RARE": ("TF", 3.0, 0.0),
    "FAR": ("HM", 2.0, 0.2),
    "BOTH": ("HM", 1.5, 1.0),
    "ABSENT": ("DHS", 1.0, 1.0),
}


def test_tracks(tmp_path: Path) -> None:
    """Five tracks, one with few positives and one with none."""
    rng = np.random.default_rng(0)
    labels = (rng.random((400, 5)) < [0.3, 0.01, 0.3, 0.3, 0.0]).astype(np.uint8)
    signal = {
        "wide": [track[1] for track in TRACKS.values()],
        "narrow": [track[2] for track in TRACKS.values()],
        "kmers": np.full(5, 0.5),
    }
    for name, strength in signal.items():
        scores = rng.normal(size=labels.shape) + labels * strength
        np.save(tmp_path / f"{name}.npy", scores)
    np.save(tmp_path / "labels.npy", labels)
    rows = "".join(f"{name}\t{group}\n" for name, (group, *_) in TRACKS.items())
    names = written(tmp_path / "tracks.tsv", f"track\tgroup\n{rows}")
    out = tmp_path / "chromatin"
    words = ("auc-report", tmp_path / "wide.npy", tmp_path / "labels.npy")
    words += ("--tracks", names, "--min-positives", 20, "-o", out)
    words += ("--compare", f"window_1000={tmp_path / 'narrow.npy'}")
    words += ("--compare", f"kmers={tmp_path / 'kmers.npy'}")
    invoke(*words)

    groups = {(r.section, r.metric): r for r in summary.group_rows(out / "groups.tsv")}
    source = pd.read_csv(out / "groups.tsv", sep="\t").set_index("group")
    for group in ("TF", "HM", "all"):
        for metric, column in {
            "model": "median_auroc",
            "1,000-bp model": "median_auroc_window_1000",
            "k-mer regression": "median_auroc_kmers",
        }.items():
            row = groups[f"chromatin, {group}", f"median AUROC, {metric}"]
            assert row.value == pytest.approx(source.loc[group, column], rel=1e-5)
    notes = [
        row.note for (_, metric), row in groups.items() if metric.endswith("model")
    ]
    assert [note for note in notes if note] == [
        "1 track",
        "2 tracks",
        "0 tracks",
        "3 tracks",
    ]
    assert np.isnan(groups["chromatin, DHS", "median AUROC, model"].value)

    leads = {(r.section, r.metric): r for r in summary.lead_rows(out / "tracks.tsv")}
    row = leads["chromatin, HM", "median AUROC, model minus 1,000-bp model"]
    assert row.value == pytest.approx(source.loc["HM", "median_delta_window_1000"])
    assert row.note == "better on 2, worse on 0 of 2 tracks"
    row = leads["chromatin, all", "median AUROC, model minus k-mer regression"]
    assert row.note == "better on 3, worse on 0 of 3 tracks"
    # RARE leads by more, but has too few positives to count.
    section = "chromatin, AUROC above 1,000-bp model"
    largest = [row for (name, _), row in leads.items() if name == section]
    assert [row.metric for row in largest] == ["FAR", "BOTH", "NEAR"]
    assert largest[0].low > 0.2
    source = pd.read_csv(out / "tracks.tsv", sep="\t").set_index("track").loc["FAR"]
    expected = f"{source['auroc']:.4f} against {source['auroc_window_1000']:.4f}"
    assert largest[0].note == expected


def test_tracks_with_published_metrics_alone(tmp_path: Path) -> None:
    groups = written(
        tmp_path / "groups.tsv",
        "group\ttracks\tmedian_auroc\tmedian_auroc_published\n1\t1\t0.9\t0.8\n",
    )
    tracks = written(
        tmp_path / "tracks.tsv",
        "track\tgroup\tauroc\tnote\tpublished_auroc\tdelta_published\n1\t1\t0.9\t\t0.8\t0.1\n",
    )
    metrics = [row.metric for row in summary.group_rows(groups)]
    assert metrics == ["median AUROC, model", "median AUROC, published"]
    assert summary.lead_rows(tracks) == []


def test_variants(tmp_path: Path) -> None:
    variants = [
        (
            f"c{n % 2}",
            30_000 * n + 1,
            "NEAR",
            "",
            ("loss", "none")[n < 6],
            (-1) ** n * n / 20,
            n,
            "A",
            "C",
        )
        for n in range(12)
    ]
    variants = pd.DataFrame(variants, columns=COLUMNS)
    path = tmp_path / "variants.tsv"
    write_tsv(path, variant_table(variants, ["c1"]))
    rows = [*summary.variant_rows(path)]
    sections = [row.section for row in rows]
    assert sections == ["variants, all"] * 2 + ["variants, held-out"] * 2
    # Six fully separated pairs: the lower end is that of 6 right answers of 6.
    assert (rows[0].value, rows[0].high) == (1, 1)
    assert rows[0].note == "12 variants, 6 with an effect"
    low = binomtest(6, 6).proportion_ci(0.95, "exact").low
    assert rows[0].low == pytest.approx(low, abs=1e-6)
    # Another predictor of the same variants is their baseline, instead of chance.
    numbers = [12, 6, 0.9, 0.6, 0.95, 0.1, -0.05, 0.25, 1.0]
    compared = [[subset, "kmers", *numbers] for subset in ("all", "category=x")]
    path = tmp_path / "compared.tsv"
    write_tsv(path, pd.DataFrame(compared, columns=COMPARED.names))
    rows += summary.compared_variant_rows(path)
    table = pd.DataFrame(rows, columns=SCHEMA.names)
    found = {one.model.section: one for one in headlines(table)}
    assert not any("category" in section for section in found)
    one = found["variants, all"]
    assert (one.baseline, one.best.value) == ("k-mer regression", 0.9)
    assert one.difference.value == 0.1
    assert one.verdict == "not measurably different"
    assert found["variants, held-out"].baseline == "chance"


Read = Callable[[Path], Any]


@pytest.mark.parametrize(
    ("read_rows", "content"),
    [
        (summary.token_rows, "{}"),
        (summary.token_rows, "[]"),
        (summary.pretraining_rows, "{"),
        (summary.pretraining_rows, "{}"),
        (summary.language_rows, "split\tpredictor\n"),
        (summary.language_rows, BITS.replace("model", "bigbird")),
        (summary.promoter_rows, "negative_set\tstratum\tmodel\n"),
        (summary.promoter_rows, ""),
        (summary.group_rows, "group\ttracks\n"),
        (summary.group_rows, "group\ttracks\tmedian_auroc\nTF\t2\thigh\n"),
        (summary.lead_rows, "track\tgroup\tauroc\tnote\tdelta_a\nX\t\t1\t\t0\n"),
        (summary.variant_rows, "subset\tvariants\n"),
        (summary.scan_rows, "predictor\n"),
    ],
)
def test_wrong_tables(tmp_path: Path, read_rows: Read, content: str) -> None:
    path = written(tmp_path / "input", content)
    with fails(DataError, path):
        list(read_rows(path))
