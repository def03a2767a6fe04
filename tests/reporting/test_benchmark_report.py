"""Tables and figures of a benchmark, from a file made by hand."""

from pathlib import Path
from typing import Any

import pytest

from bigbird_dna.errors import DataError
from bigbird_dna.files import write_json
from bigbird_dna.reporting.benchmark_figure import benchmark_figure
from bigbird_dna.reporting.benchmark_table import markdown, plain_text, read_benchmark, seconds


def row(contender: str, length: int, median: float, **changes: Any) -> dict[str, Any]:
    return {
        "contender": contender,
        "length": length,
        "pass": "forward",
        "status": "measured",
        "reason": None,
        "route": None,
        "peak_mib": 12.5,
        "difference": None,
        "median": median,
        "minimum": 0.9 * median,
        "quartiles": [0.95 * median, 1.1 * median],
        "ratio": {"paired": 6.25, "medians": 6.5},
        "rate": 1.5e11,
        "share": 0.75,
        "tokens_per_second": length / median,
        **changes,
    }


def left_out(contender: str, length: int, reason: str) -> dict[str, Any]:
    kept = ("contender", "length", "pass", "route", "difference")
    blank = {key: value for key, value in row(contender, length, 1.0).items() if key in kept}
    return {**blank, "status": "skipped", "reason": reason, "peak_mib": None}


@pytest.fixture
def measured() -> dict[str, Any]:
    return {
        "format": 1,
        "benchmark": "attention",
        "date": "2026-01-02T03:04:05+00:00",
        "machine": {"cpu": "A CPU", "gpu": None, "instructions": "AVX2", "threads": 2, "cores": 4},
        "software": {"torch": "2.13.0", "transformers": None},
        "settings": {
            "batch": 1,
            "heads": 12,
            "width": 64,
            "dtype": "float32",
            "block_size": 64,
            "global_blocks": 2,
            "window_blocks": 3,
            "random_blocks": 3,
            "repeats": 7,
            "reference": "native",
        },
        "matrix_products": [{"rate": 1.9e11}, {"rate": 2.0e11}],
        "results": [
            row("native", 4096, 0.031),
            row("huggingface", 4096, 0.533),
            row("native", 8192, 0.057, ratio=None, peak_mib=None),
            left_out("huggingface", 8192, "too slow"),
            left_out("huggingface", 16384, "too slow"),
        ],
    }


def test_tables_say_what_was_measured_and_what_was_not(measured: dict[str, Any]) -> None:
    text = plain_text(measured)
    assert "A CPU, AVX2; 2 threads on 4 cores; torch 2.13.0; 2026-01-02" in text
    header, first, second, third = text.split("Forward\n")[1].splitlines()[:4]
    assert len({line.index("ms  ") for line in (first, second, third)}) == 1  # aligned
    assert first.split()[:4] == ["4,096", "native", "31", "ms"]
    assert header.split()[:3] == ["tokens", "contender", "median"]
    assert "HuggingFace BigBird at 8,192, 16,384 tokens: skipped: too slow" in text
    assert "190–200 GFLOP/s" in text
    page = markdown(measured)
    assert "| 4,096 | HuggingFace BigBird | 533 ms |" in page
    assert "* HuggingFace BigBird at 8,192, 16,384 tokens: skipped: too slow" in page


def test_times_have_units_and_three_digits() -> None:
    values = [seconds(value) for value in (123.4, 1.0, 0.0311, 4.2e-5)]
    assert values == ["123 s", "1 s", "31.1 ms", "42 µs"]


def test_the_figure_shows_lines_for_lengths_and_bars_for_one(
    measured: dict[str, Any], tmp_path: Path
) -> None:
    benchmark_figure(measured, tmp_path / "lines.svg")
    first = (tmp_path / "lines.svg").read_bytes()
    benchmark_figure(measured, tmp_path / "lines.svg")
    assert (tmp_path / "lines.svg").read_bytes() == first  # the same numbers, the same file
    one = measured | {"results": measured["results"][:2]}
    benchmark_figure(one, tmp_path / "bars.svg")
    assert (tmp_path / "bars.svg").stat().st_size > 0
    nothing = measured | {"results": measured["results"][3:], "matrix_products": []}
    benchmark_figure(nothing, tmp_path / "nothing.svg")
    assert "too slow" in plain_text(nothing)


def test_other_files_are_refused(tmp_path: Path, measured: dict[str, Any]) -> None:
    path = tmp_path / "benchmark.json"
    write_json(path, measured)
    assert read_benchmark(path) == measured
    write_json(path, {"format": 2})
    with pytest.raises(DataError, match=r"benchmark\.json: is no benchmark"):
        read_benchmark(path)
