"""Tables of a benchmark, from the contents of its benchmark.json: plain text and Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bigbird_dna.errors import DataError
from bigbird_dna.files import atomic_path, read_json

FORMAT = 1
LABELS = {
    "native": "native",
    "blocked": "blocked",
    "flex": "flex",
    "dense": "dense (oracle)",
    "auto": "auto",
    "sdpa": "SDPA, full attention",
    "sdpa-mask": "SDPA, mask",
    "huggingface": "HuggingFace BigBird",
    "bigbird": "bigbird-dna",
    "full": "bigbird-dna, full attention",
}
PASSES = {
    "forward": "Forward",
    "training": "Forward and backward",
    "inference": "Inference, float32",
    "inference-bfloat16": "Inference, weights in bfloat16",
    "inference-autocast": "Inference, bfloat16 autocast",
    "training-autocast": "Training step, bfloat16 autocast",
    "training-bfloat16": "Training step, weights in bfloat16",
}
COLUMNS = ("tokens", "contender", "median", "minimum", "quartiles", "ratio", "of medians")
COLUMNS_AFTER = ("GFLOP/s", "share", "MiB")
LEFT = {"contender"}  # the other columns are numbers


def read_benchmark(path: Path) -> dict[str, Any]:
    """Read a benchmark.json; `DataError` if it is something else."""
    value = read_json(path)
    if not isinstance(value, dict) or value.get("format") != FORMAT or "results" not in value:
        raise DataError(f"{path}: is no benchmark of format {FORMAT}")
    return value


def plain_text(benchmark: Mapping[str, Any]) -> str:
    """Aligned tables, one a pass, under a line that says on what they were measured."""
    parts = [_heading(benchmark)]
    for work in _passes(benchmark):
        header, rows = _table(benchmark, work)
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = []
        for row in (header, *rows):
            cells = [
                cell.ljust(width) if name in LEFT else cell.rjust(width)
                for name, cell, width in zip(header, row, widths, strict=True)
            ]
            lines.append("  ".join(cells).rstrip())
        left_out = [f"  {line}" for line in _left_out(benchmark, work)]
        parts.append("\n".join([pass_title(benchmark, work), *lines * bool(rows), *left_out]))
    return "\n\n".join([*parts, _legend(benchmark)])


def markdown(benchmark: Mapping[str, Any]) -> str:
    """The same as a Markdown page."""
    parts = [_heading(benchmark)]
    for work in _passes(benchmark):
        header, rows = _table(benchmark, work)
        parts.append(f"### {pass_title(benchmark, work)}")
        if rows:
            rule = [":--" if name in LEFT else "--:" for name in header]
            parts.append("\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows)))
        left_out = _left_out(benchmark, work)
        if left_out:
            parts.append("\n".join(f"* {line}" for line in left_out))
    return "\n\n".join([*parts, _legend(benchmark)]) + "\n"


def write_markdown(path: Path, benchmark: Mapping[str, Any]) -> None:
    """Write `markdown` to a file, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(markdown(benchmark))


def pass_title(benchmark: Mapping[str, Any], work: str) -> str:
    """What a pass is called."""
    if benchmark["benchmark"] == "encoder" and work == "training":
        return "Training step, float32"
    return PASSES.get(work, work)


def label(contender: str) -> str:
    """What a contender is called."""
    return LABELS.get(contender, contender)


def seconds(value: float) -> str:
    """A time with its unit, three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{_three(value / size)} {unit}"
    return f"{_three(value * 1e6)} µs"


def _heading(benchmark: Mapping[str, Any]) -> str:
    of, machine, software = (benchmark[key] for key in ("settings", "machine", "software"))
    if benchmark["benchmark"] == "attention":
        shape = f"Attention, {of['batch']} × {of['heads']} heads × {of['width']}, {of['dtype']}"
    else:
        shape = (
            f"Encoder, {of['layers']} layers × {of['hidden']}, {of['heads']} heads, "
            f"vocabulary {of['vocabulary']:,}, batch {of['batch']}"
        )
    blocks = (
        f"blocks of {of['block_size']} tokens: {of['global_blocks']} global, "
        f"{of['window_blocks']} window, {of['random_blocks']} random"
    )
    where = machine["gpu"] or f"{machine['cpu']}, {machine['instructions']}"
    threads = f"{machine['threads']} thread{'s' * (machine['threads'] != 1)}"
    peers = f", transformers {software['transformers']}" if software.get("transformers") else ""
    return (
        f"{shape}; {blocks}.\n{where}; {threads} on {machine['cores']} cores; "
        f"torch {software['torch']}{peers}; {benchmark['date'][:10]}."
    )


def _legend(benchmark: Mapping[str, Any]) -> str:
    of = benchmark["settings"]
    rates = [product["rate"] / 1e9 for product in benchmark["matrix_products"]]
    measured = f", here {_range(rates)} GFLOP/s" if rates else ""
    difference = {
        "attention": "largest relative difference to the first contender of the same graph",
        "encoder": "largest difference of a logit to float32, relative to the largest logit",
    }[benchmark["benchmark"]]
    return (
        f"ratio: times as long as {label(of['reference'])}, median over {of['repeats']} turns (of "
        "medians: ratio of the medians). share: of the rate of matrix products measured in the same "
        f"turns{measured}. MiB: peak memory above the inputs. difference: {difference}."
    )


def _range(values: Sequence[float]) -> str:
    low, high = _three(min(values)), _three(max(values))
    return low if low == high else f"{low}–{high}"


def _table(benchmark: Mapping[str, Any], work: str) -> tuple[list[str], list[list[str]]]:
    speed = ["tokens/s"] if benchmark["benchmark"] == "encoder" else []
    rows = [
        row for row in benchmark["results"] if row["pass"] == work and row["status"] == "measured"
    ]
    differs = ["difference"] if any(row["difference"] is not None for row in rows) else []
    header = [*COLUMNS, *speed, *COLUMNS_AFTER, *differs]
    return header, [_cells(row, header) for row in rows]


def _cells(row: Mapping[str, Any], header: Sequence[str]) -> list[str]:
    low, high = row["quartiles"]
    ratio = row["ratio"] or {}
    cells = {
        "tokens": f"{row['length']:,}",
        "contender": label(row["contender"]) + (f" ({row['route']})" * _surprising(row)),
        "median": seconds(row["median"]),
        "minimum": seconds(row["minimum"]),
        "quartiles": f"{seconds(low)} – {seconds(high)}",
        "ratio": f"{ratio['paired']:.2f}" if ratio else "–",
        "of medians": f"{ratio['medians']:.2f}" if ratio else "–",
        "tokens/s": f"{row['tokens_per_second']:,.0f}",
        "GFLOP/s": _three(row["rate"] / 1e9),
        "share": f"{row['share']:.0%}",
        "MiB": "–" if row["peak_mib"] is None else _three(row["peak_mib"]),
        "difference": "" if row["difference"] is None else f"{row['difference']:.1e}",
    }
    return [cells[name] for name in header]


def _surprising(row: Mapping[str, Any]) -> bool:
    """Whether the contender's name doesn't say which of our routes it took."""
    return row["route"] not in (None, row["contender"])


def _left_out(benchmark: Mapping[str, Any], work: str) -> list[str]:
    """One line for each contender and reason, with the lengths it holds for."""
    lengths: dict[tuple[str, str, str], list[int]] = {}
    for row in benchmark["results"]:
        if row["pass"] == work and row["status"] != "measured":
            key = (row["contender"], row["status"], row["reason"])
            lengths.setdefault(key, []).append(row["length"])
    return [
        f"{label(contender)} at {', '.join(f'{length:,}' for length in values)} tokens: {status}: {reason}"
        for (contender, status, reason), values in lengths.items()
    ]


def _passes(benchmark: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(row["pass"] for row in benchmark["results"]))


def _three(value: float) -> str:
    """Three significant digits, no exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
