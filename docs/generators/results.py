"""Numbers of the result pages, from the JSON files of runs that `collect` stores.

`python -m docs.generators.results` writes the numbers of README and pages: tables between
`<!-- results: NAME -->` and `<!-- end -->`, as `docs/results/tables.yaml` defines them, and single numbers
before a comment such as `<!-- = RUN.TABLE column=value column -->`.
"""

import fnmatch
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bigbird_dna.config.safe_yaml import read_yaml

from . import gpu_cost
from .markdown import table as markdown_table

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "docs/results/data"
TABLES = ROOT / "docs/results/tables.yaml"
PAGES = ("README.md", "config/README.md", "docs/**/*.md")
STRICT = ("README.md", "docs/results.md", "docs/results/*.md")

Row = dict[str, Any]

_BLOCK = re.compile(r"<!-- results: (?P<name>[\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
_NUMBER = r"[+−]?\d[\d,]*(?:\.\d+|:\d\d)?"
_VALUE = re.compile(
    rf"(?P<bold>\**)(?P<number>{_NUMBER})(?P<unit> %)?\**(?P<interval> \[[^]]*\]| \([^()]* to [^()]*\))?"
    r"(?P<comment><!-- = (?P<reference>[^>]*?) -->)"
)
# Free of measured numbers: code, addresses, versions, the level of intervals and the masked fraction.
_FREE = re.compile(
    r"```.*?```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->|(?:Python|torch|transformers) \d+\.\d+|\b(?:95|15) %",
    re.DOTALL,
)
_UNBOUND = re.compile(
    r"(?<![\w.-])\d+\.\d+|\b\d+:\d\d\b|\d+(?:,\d{3})* (?:seconds|minutes|hours|%)|\d+ ×(?! \d)"
)
_FIELD = re.compile(
    r"\{(?P<path>[^{}:*]+)(?:\*(?P<factor>[\d.]+))?(?::(?P<format>[^{}]*))?\}"
)
_FORMAT = re.compile(
    r"(?P<sign>\+?)(?P<comma>,?)(?:\.(?P<digits>\d+))?(?P<kind>[%:e]?)(?P<interval>~?)"
)


# Runs


def pages(patterns: Sequence[str] = PAGES) -> list[Path]:
    """Files with numbers of stored results; in those of `STRICT`, all numbers are."""
    return [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def _files() -> dict[str, Path]:
    found = {
        path.parent.name: path
        for path in sorted(ROOT.glob("resources/models/*/metrics.json"))
    }
    for folder in ("docs/benchmarks", "docs/results/data"):
        found |= {path.stem: path for path in sorted((ROOT / folder).glob("*.json"))}
    return found


@cache
def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def load(source: str) -> list[Row]:
    """The rows of a table, `RUN.TABLE`, with their run; RUN alone has one row, its other keys.

    RUN may be a pattern such as `demo-*`. A run is a file of `docs/results/data` or `docs/benchmarks`, or the
    metrics of a bundled model; `gpu-cost` is calculated.
    """
    pattern, _, name = source.partition(".")
    if pattern == "gpu-cost":
        return [{"run": f"{n}", **row} for n, row in enumerate(gpu_cost.tables()[name])]
    rows: list[Row] = []
    for run, path in _files().items():
        if fnmatch.fnmatchcase(run, pattern):
            document = _read(path)
            found = document.get("tables", document).get(name, []) if name else document
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
        return fnmatch.fnmatchcase(
            "" if value is None else f"{value}", "" if wanted is None else f"{wanted}"
        )

    return all(has(key, wanted) for key, wanted in selector.items())


# Formats


def shown(value: Any, form: str = "") -> str:
    """A number in a format such as `+.3`, `,`, `.1e`, `%` or `:` (minutes and seconds)."""
    if isinstance(value, list):
        return ", ".join(shown(one, form) for one in value)
    if isinstance(value, str):
        return value[:10] if form == "date" else value
    found = _FORMAT.fullmatch(form)
    if found is None:
        raise ValueError(f"unknown format {form!r}")
    if found["kind"] == ":" and isinstance(value, float):
        minutes, seconds = divmod(round(60 * value), 60)
        return f"{minutes}:{seconds:02d}"
    digits = found["digits"] or (None if isinstance(value, float) and not form else "0")
    if found["kind"] == "%":
        return f"{100 * value:{found['sign']}.{digits}f} %".replace("-", "−")
    kind = "e" if found["kind"] == "e" else "f"
    text = (
        f"{value:{found['sign']}{found['comma']}.{digits}{kind}}"
        if digits is not None
        else f"{value}"
    )
    return text.replace("-", "−")


def _get(row: Row, path: str) -> Any:
    value: Any = row
    for key in path.split("."):
        if isinstance(value, list):
            value = value[int(key)]
        else:
            value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _bounds(row: Row, path: str) -> tuple[Any, Any]:
    low, high = _get(row, f"{path}_low"), _get(row, f"{path}_high")
    if low is None and path in ("bits_per_base", "value"):
        low, high = row.get("low"), row.get("high")
    return low, high


def filled(template: str, rows: Sequence[Row], labels: Mapping[Any, str]) -> str:
    """A template with the values of a row, or with means and ranges of several; empty without a value."""
    if len({row["run"] for row in rows}) < len(rows):
        raise ValueError(
            f"{template}: several rows of one run, {[dict(row) for row in rows[:2]]}"
        )
    missing = False

    def field(found: re.Match[str]) -> str:
        nonlocal missing
        form, factor = found["format"] or "", float(found["factor"] or 1)
        values = [
            value
            for row in rows
            if (value := _get(row, found["path"])) not in (None, "")
        ]
        if not values:
            missing = True
            return ""
        if isinstance(values[0], str):
            return labels.get(values[0], shown(values[0], form))
        if factor != 1:
            values = [value * factor for value in values]
        plain = form.rstrip("~")
        if isinstance(values[0], list):
            return shown(values[0], plain)
        least, most = shown(min(values), plain), shown(max(values), plain)
        if least != most:
            return f"{shown(sum(values) / len(values), plain)} ({least} to {most})"
        low, high = (
            _bounds(rows[0], found["path"]) if form.endswith("~") else (None, None)
        )
        text = shown(values[0], plain)
        return (
            text
            if low is None
            else f"{text} [{shown(low, plain)}, {shown(high, plain)}]"
        )

    text = _FIELD.sub(field, template)
    return "" if missing else text


# Tables


def table(spec: Mapping[str, Any]) -> str:
    """A table of `tables.yaml` as Markdown; a column without any value is left out."""
    if "command" in spec:
        return (
            "```console\n"
            + "\n".join(dict.fromkeys(row["command"] for row in load(spec["command"])))
            + "\n```"
        )
    if "text" in spec:
        return bound(spec["text"].strip(), comments=False)
    sources = spec["data"] if isinstance(spec["data"], list) else [spec["data"]]
    data = [
        row
        for source in sources
        for row in load(source)
        if matches(row, spec.get("where", {}))
    ]
    if not data:
        raise ValueError(f"no rows of {spec['data']}")
    labels = spec.get("labels", {})
    columns: dict[str, Any] = spec["columns"]
    lines = list(_lines(spec, data, labels))
    keys = len(lines[0][0])
    cells = [
        [
            *names,
            *(_cell(spec, column, show, rows, labels) for column in columns.values()),
        ]
        for names, show, rows in lines
    ]
    kept = [
        n
        for n in range(keys + len(columns))
        if n < keys or any(row[n] for row in cells)
    ]
    header = [*_heads(spec, keys), *columns]
    if "best" in spec:
        _embolden(
            cells,
            [n for n in kept if n >= keys and header[n] in spec.get("of", header)],
            *spec["best"].split(),
        )
    return markdown_table(
        [header[n] for n in kept], [[row[n] for n in kept] for row in cells]
    )


def _heads(spec: Mapping[str, Any], keys: int) -> list[str]:
    rows = spec.get("rows")
    return list(rows["by"]) if rows and "by" in rows else [spec.get("head", "")] * keys


def _lines(
    spec: Mapping[str, Any], data: Sequence[Row], labels: Mapping[Any, str]
) -> Iterator[tuple[list[str], str | None, list[Row]]]:
    """For each line of a table its first cells, its own template and its rows."""
    rows = spec.get("rows")
    if rows is None:
        yield from (([], None, [row]) for row in data)
    elif "by" in rows:
        groups: dict[tuple[str, ...], list[Row]] = {}
        for row in data:
            groups.setdefault(
                tuple(filled(t, [row], labels) for t in rows["by"].values()), []
            ).append(row)
        yield from ((list(names), None, found) for names, found in groups.items())
    else:
        for name, given in rows.items():
            selectors = given if isinstance(given, list) else [given]
            found = [
                row
                for row in data
                if any(matches(row, _wanted(one)) for one in selectors)
            ]
            if not found:
                raise ValueError(f"no row of {spec['data']} has {given}")
            yield [name], selectors[0].get("show"), found


def _wanted(selector: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in selector.items() if key != "show"}


def _cell(
    spec: Mapping[str, Any],
    column: Any,
    show: str | None,
    rows: Sequence[Row],
    labels: Mapping[Any, str],
) -> str:
    if isinstance(column, str):
        return filled(column, rows[:1], labels)
    found = [row for row in rows if matches(row, _wanted(column))]
    return (
        filled(show or column.get("show") or spec["show"], found, labels)
        if found
        else ""
    )


def _embolden(
    cells: list[list[str]], columns: Sequence[int], kind: str, axis: str
) -> None:
    """Make the best cells of each row or column bold; equal as shown, all of them."""
    places = [[(row, n) for n in columns] for row in range(len(cells))]
    for line in places if axis == "row" else zip(*places, strict=True):
        numbers = {}
        for row, n in line:
            if found := re.match(_NUMBER, cells[row][n]):
                numbers[row, n] = float(found[0].replace("−", "-").replace(",", ""))
        if len(numbers) > 1:
            best = (max if kind == "max" else min)(numbers.values())
            for (row, n), number in numbers.items():
                if number == best:
                    cells[row][n] = re.sub(
                        _NUMBER, lambda found: f"**{found[0]}**", cells[row][n], count=1
                    )


# Pages


def referenced(reference: str) -> tuple[list[Row], str]:
    """The rows that a comment names, one for each run, and their column.

    `RUN.TABLE column=value … column` is one value. `A - B` and `A / B` are computed from two, of which one
    may be a number. `spread` before a reference is the largest difference between runs of rows with the same
    texts.
    """
    for sign in (" - ", " / "):
        if sign in reference:
            one, other = (
                float(part) if part.isdecimal() else _mean(part)
                for part in reference.split(sign)
            )
            return [
                {"run": "", "value": one - other if sign == " - " else one / other}
            ], "value"
    words = shlex.split(reference)
    spread = words[0] == "spread"
    source, *selectors, column = words[spread:]
    selector: dict[str, Any] = dict(word.split("=", 1) for word in selectors)
    rows = [
        row
        for row in load(source)
        if matches(row, selector) and _get(row, column) is not None
    ]
    if not rows:
        raise ValueError(f"{reference}: no such value")
    if spread:
        groups: dict[tuple[str, ...], list[float]] = {}
        for row in rows:
            texts = tuple(
                v
                for k, v in row.items()
                if isinstance(v, str) and k not in ("run", "note")
            )
            groups.setdefault(texts, []).append(_get(row, column))
        return [
            {
                "run": "",
                "value": max(max(values) - min(values) for values in groups.values()),
            }
        ], "value"
    return rows, column


def _mean(reference: str) -> float:
    rows, column = referenced(reference)
    return sum(_get(row, column) for row in rows) / len(rows)


def _bound(found: re.Match[str]) -> str:
    """A number as the value that its comment names, in the same format, without the comment."""
    number = found["number"]
    digits = re.search(r"\.(\d+)", number)
    form = (
        "+" * (number[0] == "+")
        + "," * ("," in number)
        + f".{len(digits[1]) if digits else 0}"
    )
    form += (
        ":" * (":" in number)
        + "%" * bool(found["unit"])
        + "~" * bool(found["interval"])
    )
    rows, column = referenced(found["reference"])
    first, *others = filled(f"{{{column}:{form}}}", rows, {}).split(" ", 1)
    return " ".join([f"{found['bold']}{first}{found['bold']}", *others])


def bound(text: str, *, comments: bool) -> str:
    """A text with the single numbers of the stored results, with or without the comments that name them."""
    new, count = _VALUE.subn(
        lambda found: _bound(found) + found["comment"] * comments, text
    )
    if count != text.count("<!-- ="):
        raise ValueError("a comment that names a value needs a number before it")
    return new


def rendered(text: str, specs: Mapping[str, Any] | None = None) -> str:
    """A page with the numbers of the stored results."""
    specs = specs or _read_specs()
    text = _BLOCK.sub(
        lambda found: (
            f"<!-- results: {found['name']} -->\n{table(specs[found['name']])}\n<!-- end -->"
        ),
        text,
    )
    return bound(text, comments=True)


@cache
def _read_specs() -> dict[str, Any]:
    return dict(read_yaml(TABLES.read_text(encoding="utf-8"), str(TABLES)))


def unbound(text: str) -> list[str]:
    """Numbers of a page that no stored result gives: decimals, durations, percentages and factors."""
    text = _VALUE.sub("", _BLOCK.sub("", text))
    return _UNBOUND.findall(_FREE.sub(" ", text))


def render() -> list[Path]:
    """Write the pages; return those that changed."""
    changed = []
    for path in pages():
        old = path.read_text(encoding="utf-8")
        new = rendered(old)
        if new != old:
            path.write_text(new, encoding="utf-8")
            changed.append(path)
    return changed


if __name__ == "__main__":
    for changed in render():
        print(changed.relative_to(ROOT))
