"""The page of a run."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bigbird_dna.config import parse_config
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.reporting.headlines import CHANCE, headlines
from bigbird_dna.reporting.run_page import (
    PARTS,
    clock,
    conclusion,
    run_report,
    shown_table,
)
from tests.cli.command import Run, refused
from tests.golden.messages import fails, message
from tests.html_pages import HtmlPage, check_layout, needs_browser
from tests.toys import written

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
    "genome": {"valid": ["demo5"], "test": ["<demo6>"]},
    "chromatin": {"data": {"tracks": "simulated", "test_regions": ["demo4:1-900"]}},
}


def read(path: Path) -> HtmlPage:
    page = HtmlPage(path.read_text())
    assert page.closed_in_order and page.open == []
    assert not any(name.startswith("on") for _, values in page.tags for name in values)
    assert "script" not in [tag for tag, _ in page.tags]
    return page


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """One of each file that the page knows, with hostile contents."""
    made = []
    for item in [item for items in PARTS.values() for item in items]:
        path = (
            tmp_path
            / "report"
            / ("chromatin" if item.name == "report.html" else "")
            / item.name
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        text = {".svg": SVG, ".html": "<p>"}.get(
            path.suffix, "track\tauroc\nx<script>\t0.5\n"
        )
        path.write_text(SUMMARY if item.name == "summary.tsv" else text)
        made.append(path)
    return made


def test_the_page_has_every_file_in_order_and_nothing_runs(
    tmp_path: Path, files: list[Path]
) -> None:
    run_report(parse_config(CONFIG), files, tmp_path / "report.html")
    page = read(tmp_path / "report.html")
    ids = [*(title.lower().replace(" ", "-") for title in PARTS), "configuration"]
    assert page.values("id") == ids
    links = [link for link in page.values("href") if not link.startswith("data:")]
    assert links == [*(f"#{name}" for name in ids), "report/chromatin/report.html"]
    saved = {
        values["download"]: base64.b64decode(values["href"].partition(",")[2])
        for _, values in page.tags
        if "download" in values
    }
    assert b"demo5" in saved.pop("configuration.yaml")
    assert saved == {
        path.name: path.read_bytes() for path in files if path.suffix != ".html"
    }
    images = page.values("src", "img")
    assert len(images) == sum(path.suffix == ".svg" for path in files)
    assert all(image.startswith("data:image/svg+xml;base64,") for image in images)
    assert (
        "x<script>" in page.text and "<b>" in page.text and "9 <windows>" in page.text
    )
    assert ": <demo6>, demo4:1-900." in page.text
    assert "somewhere/else" not in page.text
    assert (
        "{{" not in page.text and "{%" not in page.text
    )  # captions are the page's own text, no templates


def test_the_conclusion(tmp_path: Path) -> None:
    main = headlines(written(tmp_path / "summary.tsv", SUMMARY))
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


def test_every_figure_says_what_a_good_result_is() -> None:
    shown = [item for items in PARTS.values() for item in items]
    assert all(item.title for item in shown)
    figures = [item for item in shown if item.name.endswith(".svg")]
    assert [
        item.name for item in figures if not re.search(r"\b[Gg]ood\b", item.text)
    ] == []


@needs_browser
def test_layout_in_a_browser(tmp_path: Path, files: list[Path]) -> None:
    wide = 'xmlns="http://www.w3.org/2000/svg" width="900pt" height="300pt"'
    row = "\t".join(["a_name_without_a_space_" * 4, *["0.123456"] * 30])
    for path in files:
        if path.suffix == ".svg":
            path.write_text(f"<svg {wide}><rect width='900' height='300'/></svg>")
        elif path.suffix == ".tsv" and path.name != "summary.tsv":
            path.write_text("\t".join(f"column_{n}" for n in range(31)) + f"\n{row}\n")
    run_report(parse_config(CONFIG), files, tmp_path / "report.html")
    check_layout((tmp_path / "report.html").read_text(), tmp_path)


def test_what_a_run_has_not_is_left_out(tmp_path: Path, files: list[Path]) -> None:
    values = {
        "genome": {"reference": "my.fa"},
        "chromatin": {"data": {"tracks": "peaks"}},
    }
    shown = [path for path in files if path.name in ("tracks.tsv", "groups.tsv")]
    run_report(parse_config(values), shown, tmp_path / "report.html")
    page = read(tmp_path / "report.html")
    assert page.values("id") == ["results", "chromatin", "configuration"]
    assert "promoters" not in page.text.partition("Configuration")[0]


def test_intervals_stand_beside_their_figures(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(
        "set\tn\tauroc\tauroc_low\tauroc_high\tempty\tdelta_low\n"
        "a\t1244\t0.98765432\t0.97\t0.99\t\t1e-09\nb\t7\t\t\t\t\t-0.5\n"
    )
    table = shown_table(path)
    assert table.headings == ["set", "n", "auroc", "delta low"]
    assert table.numeric == [False, True, True, True]
    assert table.rows == [
        ["a", "1,244", "0.9877 [0.9700, 0.9900]", "1e−09"],
        ["b", "7", "", "−0.5000"],
    ]


def test_the_longest_steps_come_first(tmp_path: Path, files: list[Path]) -> None:
    header = "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time\n"
    rows = {"short": "0.01\t0:00:00\tNA\tNA\tNA\tNA\tNA\tNA\tNA\tNA\n"}
    rows["long"] = "3725.6\t1:02:05\t1234.5\t0\t0\t0\t0\t0\t0\t60\n"
    steps = tmp_path / "benchmarks"
    steps.mkdir()
    for name, row in rows.items():
        (steps / f"{name}.tsv").write_text(header + row)
    run_report(
        parse_config(CONFIG), files[:1], tmp_path / "report.html", benchmarks=steps
    )
    text = (tmp_path / "report.html").read_text()
    assert re.findall(r'<th scope="row">(long|short)</th>', text) == ["long", "short"]
    assert "1:02:06 in total" in text and ">1,234</td>" in text
    assert clock(None) == ""


def test_the_model_that_training_started_from_is_named(
    tmp_path: Path, files: list[Path]
) -> None:
    values = CONFIG | {"pretraining": {"start_from": "elsewhere/their-model"}}

    def page(provenance: dict[str, Any]) -> str:
        written(tmp_path / "provenance.json", json.dumps(provenance))
        run_report(
            parse_config(values), files[:1], tmp_path / "report.html", start=tmp_path
        )
        return (tmp_path / "report.html").read_text()

    text = page({"files": {"model.safetensors": "abc123"}, "imported_from": "gena"})
    assert (
        "HuggingFace checkpoint gena" in text
        and "abc123" in text
        and "not recorded" in text
    )
    text = page({"contigs": ["I", "II"]})
    assert "weights of their-model" in text and "pretrained on I, II" in text
    (tmp_path / "provenance.json").unlink()
    run_report(
        parse_config(values), files[:1], tmp_path / "report.html", start=tmp_path
    )
    assert "weights of their-model" in (tmp_path / "report.html").read_text()
    run_report(parse_config(CONFIG), files[:1], tmp_path / "report.html")
    assert "their-model" not in (tmp_path / "report.html").read_text()


def test_bad_files(tmp_path: Path, files: list[Path]) -> None:
    (tmp_path / "steps").mkdir()
    other, step = (
        written(tmp_path / name, "a\n1\n") for name in ("else.tsv", "steps/one.tsv")
    )
    for error, paths, benchmarks, named in (
        (UsageError, [other], None, other),
        (UsageError, [files[0], files[0]], None, files[0]),
        (DataError, [tmp_path / "roc.svg"], None, "roc.svg"),
        (DataError, files[:1], step.parent, step),
        (UsageError, files[:1], other, other),
    ):
        with fails(error, named):
            run_report(
                parse_config(CONFIG),
                paths,
                tmp_path / "out.html",
                benchmarks=benchmarks,
            )
    assert not (tmp_path / "out.html").exists()


def test_the_command(tmp_path: Path, files: list[Path], run: Run) -> None:
    (tmp_path / "run.yaml").write_text("genome: {valid: [demo5], test: [demo6]}\n")
    words = ("report run", tmp_path / "run.yaml", *files)
    assert run(*words, "-o", tmp_path / "page.html").code == 0
    assert "<h2>Results</h2>" in (tmp_path / "page.html").read_text()
    refused(run(*words, "-o", files[0]), 2, files[0])
    refused(
        run(*words, "-o", tmp_path / "p.html", "--benchmarks", files[0]), 2, files[0]
    )
