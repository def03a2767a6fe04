"""The tables of a benchmark, from the contents of its benchmark.json, as a Markdown page."""

from collections.abc import Mapping
from typing import Any

LABELS = {
    "dense": "dense (oracle)",
    "sdpa": "SDPA, full attention",
    "sdpa-mask": "SDPA, mask",
    "huggingface": "HuggingFace BigBird",
    "bigbird": "bigbird-dna",
    "full": "bigbird-dna, full attention",
    "convolution": "convolution of HyenaDNA's size",
}
WORK = {
    ("attention", "forward"): "Forward",
    ("attention", "training"): "Forward and backward",
    ("encoder", "inference"): "Inference",
    ("encoder", "training"): "Training step",
}
PRECISION = {
    "": "float32",
    "bfloat16": "weights in bfloat16",
    "autocast": "bfloat16 autocast",
}
LEGEND = (
    "ratio: times as long as {reference}, median over {repeats} turns (of medians: ratio of the medians). "
    "share: of the rate of matrix products measured in the same turns{rates}. MiB: peak memory above the "
    "inputs. difference: {difference}."
)
DIFFERENCE = {
    "attention": "largest relative difference to the first contender of the same graph",
    "encoder": "largest difference of a logit to float32, relative to the largest logit",
}


def markdown(benchmark: Mapping[str, Any]) -> str:
    """A table for each pass, between what was measured on what and what the columns mean."""
    of, rates = (
        benchmark["settings"],
        [p["rate"] / 1e9 for p in benchmark["matrix_products"]],
    )
    ends = "–".join(dict.fromkeys(three(end(rates)) for end in (min, max) if rates))
    legend = LEGEND.format(
        reference=label(of["reference"]),
        repeats=of["repeats"],
        rates=f", here {ends} GFLOP/s" if rates else "",
        difference=DIFFERENCE[benchmark["benchmark"]],
    )
    parts = [_heading(benchmark)]
    for work in dict.fromkeys(row["pass"] for row in benchmark["results"]):
        rows = [row for row in benchmark["results"] if row["pass"] == work]
        measured = [
            _cells(row, benchmark) for row in rows if row["status"] == "measured"
        ]
        parts.append(f"### {title(benchmark, work)}")
        parts += filter(None, (table(measured), _left_out(rows)))
    return "\n\n".join([*parts, legend, *_growth(benchmark)]) + "\n"


def title(benchmark: Mapping[str, Any], work: str) -> str:
    """What a pass is called."""
    kind, _, narrow = work.partition("-")
    name = WORK[benchmark["benchmark"], kind]
    return (
        f"{name}, {PRECISION[narrow]}" if benchmark["benchmark"] == "encoder" else name
    )


def label(contender: str) -> str:
    """What a contender is called."""
    return LABELS.get(contender, contender)


def seconds(value: float) -> str:
    """A time with its unit, three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{three(value / size)} {unit}"
    return f"{three(value * 1e6)} µs"


def three(value: float) -> str:
    """Three significant digits, no exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _heading(benchmark: Mapping[str, Any]) -> str:
    of, machine, software = (
        benchmark[key] for key in ("settings", "machine", "software")
    )
    shape = (
        f"Attention, {of['batch']} × {of['heads']} heads × {of['width']}, {of['dtype']}"
        if benchmark["benchmark"] == "attention"
        else f"Encoder, {of['layers']} layers × {of['hidden']}, {of['heads']} heads, "
        f"vocabulary {of['vocabulary']:,}, batch {of['batch']}"
    )
    where = machine["gpu"] or f"{machine['cpu']}, {machine['instructions']}"
    threads = f"{machine['threads']} thread{'s' * (machine['threads'] != 1)}"
    peers = (
        f", transformers {software['transformers']}"
        if software.get("transformers")
        else ""
    )
    return (
        f"{shape}; blocks of {of['block_size']} tokens: {of['global_blocks']} global, "
        f"{of['window_blocks']} window, {of['random_blocks']} random.\n"
        f"{where}; {threads} on {machine['cores']} cores; torch {software['torch']}{peers}; "
        f"{benchmark['date'][:10]}."
    )


def _cells(row: Mapping[str, Any], benchmark: Mapping[str, Any]) -> dict[str, str]:
    """What the table shows of a row, by column; empty where a column says nothing."""
    ratio, (low, high) = row["ratio"], row["quartiles"]
    # Where the contender's name doesn't say which of our routes it took.
    route = f" ({row['route']})" if row["route"] not in (None, row["contender"]) else ""
    speed = (
        f"{row['tokens_per_second']:,.0f}"
        if benchmark["benchmark"] == "encoder"
        else ""
    )
    return {
        "tokens": f"{row['length']:,}",
        "contender": label(row["contender"]) + route,
        "median": seconds(row["median"]),
        "minimum": seconds(row["minimum"]),
        "quartiles": f"{seconds(low)} – {seconds(high)}",
        "ratio": f"{ratio['paired']:.2f}" if ratio else "–",
        "of medians": f"{ratio['medians']:.2f}" if ratio else "–",
        "tokens/s": speed,
        "GFLOP/s": three(row["rate"] / 1e9) if row["rate"] else "–",
        "share": f"{row['share']:.0%}" if row["rate"] else "–",
        "MiB": "–" if row["peak_mib"] is None else three(row["peak_mib"]),
        "difference": "" if row["difference"] is None else f"{row['difference']:.1e}",
    }


def table(rows: list[dict[str, str]]) -> str:
    """Rows of cells by column, aligned for the eye as well; without the columns that are empty."""
    columns = []
    for name in rows[0] if rows else ():
        cells = [row[name] for row in rows]
        if any(cells):
            width = max(map(len, [name, *cells]))
            left = name in ("work", "contender", "result")  # the others are numbers
            rule = (":" + "-" * (width - 1)) if left else "-" * (width - 1) + ":"
            columns.append(
                [f"{cell:{'<' if left else '>'}{width}}" for cell in (name, *cells)]
            )
            columns[-1].insert(1, rule)
    return "\n".join(f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))


def _growth(benchmark: Mapping[str, Any]) -> list[str]:
    """With which power of the length time and memory grow, where that was fitted; and are said to."""
    fits = benchmark.get("growth", ())
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for fit in fits:
        row = cells.setdefault(
            (fit["pass"], fit["contender"]), {"time": "–", "memory": "–"}
        )
        row["time" if fit["quantity"] == "seconds" else "memory"] = (
            f"{fit['exponent']:.2f}"
        )
        if fit.get("stated") is not None:
            row["of the formula"] = f"{fit['stated']:.2f}"
    said = any("of the formula" in row for row in cells.values())
    cells = {
        place: (
            {"time": row["time"], "of the formula": row.get("of the formula", "–")}
            if said
            else {}
        )
        | row
        for place, row in cells.items()
    }
    rows = [
        {"pass": title(benchmark, work), "contender": label(name), **row}
        for (work, name), row in cells.items()
    ]
    if not rows:
        return []
    start = min(fit["base"] for fit in fits)
    return [
        f"Power of the length that time and memory grow with, from {start:,} tokens on:",
        table(rows),
    ]


def _left_out(rows: list[Mapping[str, Any]]) -> str:
    """One line for each contender and reason, with the lengths it holds for."""
    lengths: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row["status"] != "measured":
            key = (row["contender"], row["status"], row["reason"])
            lengths.setdefault(key, []).append(f"{row['length']:,}")
    return "\n".join(
        f"* {label(contender)} at {', '.join(values)} tokens: {status}: {reason}"
        for (contender, status, reason), values in lengths.items()
    )
