"""Numbers of the pages, from the stored results of runs.

`python -m docs.generators.results` fills README and pages: tables between `<!-- results: NAME -->` and
`<!-- end -->`, as `docs/results/tables.yaml` defines them, and single numbers before a comment such as
`<!-- = RUN.TABLE column=value column -->`. A run is a JSON file of `docs/results/data` (see `collect`) or
`docs/benchmarks`, or the metrics of a bundled model.
"""

import fnmatch
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from .markdown import table as markdown_table

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "docs/results/data"
TABLES = ROOT / "docs/results/tables.yaml"
PAGES = ("README.md", "config/README.md", "docs/**/*.md")

Row = dict[str, Any]

TABLE = re.compile(r"<!-- results: (?P<name>[\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
NUMBER = r"[+−]?\d[\d,]*(?:\.\d+|:\d\d)?"
BOUND_NUMBER = re.compile(
    rf"(?P<bold>\**)(?P<number>{NUMBER})(?P<unit> %)?\**"
    r"(?P<interval> \[[^]]*\]| \([^()]* to [^()]*\))?"
    r"(?P<comment><!-- = (?P<reference>[^>]*?) -->)"
)
FIELD = re.compile(
    r"\{(?P<path>[^{}:*]+)(?:\*(?P<factor>[\d.]+))?(?::(?P<format>[^{}]*))?\}"
)
FORMAT = re.compile(
    r"(?P<sign>\+?)(?P<comma>,?)(?:\.(?P<digits>\d+))?(?P<kind>[%:e]?)(?P<interval>~?)"
)


# Runs.


def pages() -> list[Path]:
    """The files that may have numbers of stored results."""
    return [path for pattern in PAGES for path in sorted(ROOT.glob(pattern))]


@cache
def read_runs() -> dict[str, Any]:
    """The stored results by run."""
    models = sorted(ROOT.glob("resources/models/*/metrics.json"))
    files = {path.parent.name: path for path in models}
    for folder in ("docs/benchmarks", "docs/results/data"):
        files |= {path.stem: path for path in sorted((ROOT / folder).glob("*.json"))}
    return {
        run: json.loads(path.read_text(encoding="utf-8")) for run, path in files.items()
    }


def load(source: str) -> list[Row]:
    """The rows of RUN.TABLE, each with its run; RUN alone has one row, the header of its file.

    RUN may be a pattern such as `demo-*`.
    """
    pattern, _, name = source.partition(".")
    rows: list[Row] = []
    for run, document in read_runs().items():
        if fnmatch.fnmatchcase(run, pattern):
            tables = document.get("tables", document)
            found = tables.get(name, []) if name else document
            for row in found if isinstance(found, list) else [found]:
                rows.append({"run": run, **row})
    return rows


def matches(row: Row, selector: Mapping[str, Any]) -> bool:
    """Whether a row has these values; a text may be a pattern, or `!` and one; a list has alternatives."""

    def has(key: str, wanted: Any) -> bool:
        if isinstance(wanted, list):
            return any(has(key, one) for one in wanted)
        if isinstance(wanted, str) and wanted.startswith("!"):
            return not has(key, wanted[1:])
        value = row.get(key)
        text = "" if value is None else f"{value}"
        return fnmatch.fnmatchcase(text, "" if wanted is None else f"{wanted}")

    return all(has(key, wanted) for key, wanted in selector.items())


def get(row: Row, path: str) -> Any:
    """The value of a column, or at a dotted path of keys and indexes; or None."""
    value: Any = row
    for key in [path] if path in row else path.split("."):
        if isinstance(value, list):
            value = value[int(key)]
        else:
            value = value.get(key) if isinstance(value, Mapping) else None
    return value


# Formats.


def format_value(value: Any, form: str = "") -> str:
    """A number in a format such as `+.3`, `,`, `.1e`, `%` or `:` (minutes and seconds)."""
    if isinstance(value, list):
        return ", ".join(format_value(one, form) for one in value)
    if isinstance(value, str):
        return value[:10] if form == "date" else value
    parts = FORMAT.fullmatch(form)
    if parts is None:
        raise ValueError(f"unknown format {form!r}")
    if parts["kind"] == ":" and isinstance(value, float):
        minutes, seconds = divmod(round(60 * value), 60)
        return f"{minutes}:{seconds:02d}"
    digits = parts["digits"] or (None if isinstance(value, float) and not form else "0")
    if parts["kind"] == "%":
        text = f"{100 * value:{parts['sign']}.{digits}f} %"
    elif digits is None:
        text = f"{value}"
    else:
        kind = "e" if parts["kind"] == "e" else "f"
        text = f"{value:{parts['sign']}{parts['comma']}.{digits}{kind}}"
    return text.replace("-", "−")


def fill(template: str, rows: Sequence[Row], labels: Mapping[Any, str]) -> str:
    """A template with the values of a row, or with means and ranges of one row of each of several runs.

    The result is empty if a value is missing.
    """
    if len({row["run"] for row in rows}) < len(rows):
        raise ValueError(f"{template}: several rows of one run, {rows[:2]}")
    missing = False

    def field(match: re.Match[str]) -> str:
        nonlocal missing
        form = match["format"] or ""
        found = [get(row, match["path"]) for row in rows]
        values = [value for value in found if value not in (None, "")]
        if not values:
            missing = True
            return ""
        if isinstance(values[0], str):
            return labels.get(values[0], format_value(values[0], form))
        if match["factor"] is not None:
            values = [value * float(match["factor"]) for value in values]
        plain = form.rstrip("~")
        if isinstance(values[0], list):
            return format_value(values[0], plain)
        least, most = (format_value(f(values), plain) for f in (min, max))
        if least != most:
            mean = format_value(sum(values) / len(values), plain)
            return f"{mean} ({least} to {most})"
        text = format_value(values[0], plain)
        if form.endswith("~"):
            low, high = interval(rows[0], match["path"])
            if low is not None:
                text += f" [{format_value(low, plain)}, {format_value(high, plain)}]"
        return text

    text = FIELD.sub(field, template)
    return "" if missing else text


def interval(row: Row, path: str) -> tuple[Any, Any]:
    """The ends of a value's confidence interval, or None."""
    low, high = get(row, f"{path}_low"), get(row, f"{path}_high")
    if low is None and path in ("bits_per_base", "value"):
        low, high = row.get("low"), row.get("high")
    return low, high


# Tables.


def table(spec: Mapping[str, Any]) -> str:
    """A table of `tables.yaml` as Markdown; a column without any value is left out.

    `command` shows the commands of a run instead, `text` a text with numbers.
    """
    if "command" in spec:
        commands = dict.fromkeys(row["command"] for row in load(spec["command"]))
        text = "\n".join(commands)
        is_console = any(line.startswith("$ ") for line in text.splitlines())
        return f"```console\n{text}\n```" if is_console else text
    if "text" in spec:
        return fill_numbers(spec["text"].strip(), keep_comments=False)

    sources = spec["data"] if isinstance(spec["data"], list) else [spec["data"]]
    data = [row for source in sources for row in load(source)]
    data = [row for row in data if matches(row, spec.get("where", {}))]
    if not data:
        raise ValueError(f"no rows of {spec['data']}")
    labels = spec.get("labels", {})
    columns: dict[str, Any] = spec["columns"]
    lines = list(table_lines(spec, data, labels))
    num_keys = len(lines[0][0])
    cells = [
        [*keys, *(table_cell(spec, of, show, rows, labels) for of in columns.values())]
        for keys, show, rows in lines
    ]

    by = (spec.get("rows") or {}).get("by")
    heads = list(by) if by else [spec.get("head", "")] * num_keys
    header = [*heads, *columns]
    used = [
        n for n in range(len(header)) if n < num_keys or any(row[n] for row in cells)
    ]
    if "best" in spec:
        compared = [
            n for n in used if n >= num_keys and header[n] in spec.get("of", header)
        ]
        make_best_bold(cells, compared, *spec["best"].split())
    return markdown_table(
        [header[n] for n in used], [[row[n] for n in used] for row in cells]
    )


def table_lines(
    spec: Mapping[str, Any], data: Sequence[Row], labels: Mapping[Any, str]
) -> Iterator[tuple[list[str], str | None, list[Row]]]:
    """For each line of a table its first cells, its own template and its rows."""
    rows = spec.get("rows")
    if rows is None:
        yield from (([], None, [row]) for row in data)
    elif "by" in rows:
        groups: dict[tuple[str, ...], list[Row]] = {}
        for row in data:
            keys = tuple(fill(by, [row], labels) for by in rows["by"].values())
            groups.setdefault(keys, []).append(row)
        yield from ((list(keys), None, found) for keys, found in groups.items())
    else:
        for name, value in rows.items():
            selectors = value if isinstance(value, list) else [value]
            wanted = [without_show(selector) for selector in selectors]
            found = [row for row in data if any(matches(row, one) for one in wanted)]
            if not found:
                raise ValueError(f"no row of {spec['data']} has {value}")
            yield [name], selectors[0].get("show"), found


def table_cell(
    spec: Mapping[str, Any],
    column: Any,
    show: str | None,
    rows: Sequence[Row],
    labels: Mapping[Any, str],
) -> str:
    if isinstance(column, str):
        return fill(column, rows[:1], labels)
    found = [row for row in rows if matches(row, without_show(column))]
    if not found:
        return ""
    return fill(show or column.get("show") or spec["show"], found, labels)


def without_show(selector: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in selector.items() if key != "show"}


def make_best_bold(
    cells: list[list[str]], columns: Sequence[int], kind: str, axis: str
) -> None:
    """Make the best cells of each row or column bold; all of those that look equal."""
    grid = [[(row, n) for n in columns] for row in range(len(cells))]
    for line in grid if axis == "row" else zip(*grid, strict=True):
        numbers = {}
        for row, n in line:
            if match := re.match(NUMBER, cells[row][n]):
                numbers[row, n] = float(match[0].replace("−", "-").replace(",", ""))
        if len(numbers) < 2:
            continue
        best = max(numbers.values()) if kind == "max" else min(numbers.values())
        for (row, n), number in numbers.items():
            if number == best:
                cells[row][n] = re.sub(NUMBER, r"**\g<0>**", cells[row][n], count=1)


# Pages.


def look_up(reference: str) -> tuple[list[Row], str]:
    """The rows that a comment names, one for each run, and their column.

    `RUN.TABLE column=value … column` is one value. `A - B` and `A / B` are computed from two, of which one
    may be a number. `spread` before a reference is the largest difference between runs of rows with the same
    texts.
    """
    for sign in (" - ", " / "):
        if sign in reference:
            a, b = (
                float(part) if part.isdecimal() else mean(part)
                for part in reference.split(sign)
            )
            return [{"run": "", "value": a - b if sign == " - " else a / b}], "value"
    words = shlex.split(reference)
    spread = words[0] == "spread"
    source, *selectors, column = words[spread:]
    selector: dict[str, Any] = dict(word.split("=", 1) for word in selectors)
    rows = [row for row in load(source) if matches(row, selector)]
    rows = [row for row in rows if get(row, column) is not None]
    if not rows:
        raise ValueError(f"{reference}: no such value")
    if not spread:
        return rows, column
    groups: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        texts = (
            value
            for key, value in row.items()
            if isinstance(value, str) and key not in ("run", "note")
        )
        groups.setdefault(tuple(texts), []).append(get(row, column))
    largest = max(max(values) - min(values) for values in groups.values())
    return [{"run": "", "value": largest}], "value"


def mean(reference: str) -> float:
    rows, column = look_up(reference)
    return sum(get(row, column) for row in rows) / len(rows)


def fill_number(match: re.Match[str]) -> str:
    """A number as the value that its comment names, in the same format, without the comment."""
    number = match["number"]
    digits = re.search(r"\.(\d+)", number)
    form = "+" if number[0] == "+" else ""
    form += "," if "," in number else ""
    form += f".{len(digits[1]) if digits else 0}"
    form += ":" if ":" in number else ""
    form += "%" if match["unit"] else ""
    form += "~" if match["interval"] else ""
    rows, column = look_up(match["reference"])
    first, *others = fill(f"{{{column}:{form}}}", rows, {}).split(" ", 1)
    return " ".join([f"{match['bold']}{first}{match['bold']}", *others])


def fill_numbers(text: str, *, keep_comments: bool) -> str:
    """A text with the single numbers that its comments name."""
    filled, count = BOUND_NUMBER.subn(
        lambda match: fill_number(match) + match["comment"] * keep_comments, text
    )
    if count != text.count("<!-- ="):
        raise ValueError("a comment that names a value needs a number before it")
    return filled


@cache
def read_specs() -> dict[str, Any]:
    specs: dict[str, Any] = yaml.safe_load(TABLES.read_text(encoding="utf-8"))
    return specs


def render(text: str) -> str:
    """A page with the numbers of the stored results."""

    def block(match: re.Match[str]) -> str:
        filled = table(read_specs()[match["name"]])
        return f"<!-- results: {match['name']} -->\n{filled}\n<!-- end -->"

    return fill_numbers(TABLE.sub(block, text), keep_comments=True)


def main() -> None:
    """Write the pages, and print the names of those that changed."""
    for path in pages():
        old = path.read_text(encoding="utf-8")
        new = render(old)
        if new != old:
            path.write_text(new, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
