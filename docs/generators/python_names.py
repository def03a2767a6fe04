"""Generate the page of all public names from their docstrings, without importing them."""

import re
import textwrap
from pathlib import Path
from typing import Any

import griffe

from .markdown import definitions, escaped, paragraphs

ROOT = Path(__file__).resolve().parent.parent.parent
LINE_LENGTH = 88

INTRODUCTION = """\
# Python

```python
import bigbird_dna
```

These are the names that `bigbird_dna` promises to keep. Coordinates are 0-based and half-open, on the forward
strand. A mistake of the caller raises an error of `bigbird_dna.errors` with one sentence: `UsageError` for an
argument, `DataError` for a file or a sequence, `ModelError` for a model, `ConfigError` for a configuration;
`BigBirdDnaError` is their common class. The functions that write files do what the [command](commands.md) of
the same name does."""


def page() -> str:
    """Return the page as Markdown."""
    package = griffe.load("bigbird_dna", search_paths=[str(ROOT)])
    objects = {}
    for name in sorted(map(str, package.exports or ())):
        found: Any = package[name]
        objects[name] = found.final_target if found.is_alias else found
    public = {found.path: name for name, found in objects.items()}

    parts: dict[str, list[str]] = {"Functions": [], "Classes": [], "Values": []}
    for name, found in objects.items():
        heading = f"### {escaped(name)}"
        if found.is_function:
            text = [heading, *describe_function(name, found)]
            parts["Functions"] += [*text, *describe_result(found, public)]
        elif found.is_class:
            parts["Classes"] += [heading, *describe_class(name, found, public)]
        else:
            declared = f"```python\n{name}: {found.annotation}\n```"
            text = [heading, *([declared] if found.annotation is not None else [])]
            parts["Values"] += [*text, *describe_docstring(found)]
    texts = [INTRODUCTION]
    for title, entries in parts.items():
        texts += [f"## {title}", *entries] if entries else []
    return "\n\n".join(texts) + "\n"


def describe_function(name: str, function: Any) -> list[str]:
    call = f"```python\n{signature(name, function)}\n```"
    return [call, *describe_docstring(function)]


def signature(name: str, function: Any) -> str:
    """A call with its annotations and defaults, on one line if it fits."""
    parameters = []
    keyword_only = False
    for parameter in function.parameters:
        if parameter.name in ("self", "cls") and function.parent.is_class:
            continue
        kind = parameter.kind.value if parameter.kind else ""
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        if kind == "keyword-only" and not keyword_only:
            parameters.append("*")
        keyword_only = keyword_only or kind == "keyword-only" or stars == "*"
        text = f"{stars}{parameter.name}"
        equals = "="
        if parameter.annotation is not None:
            text += f": {parameter.annotation}"
            equals = " = "
        if parameter.default is not None and not stars:
            text += f"{equals}{parameter.default}"
        parameters.append(text)
    result = f" -> {function.returns}" if function.returns is not None else ""
    line = f"{name}({', '.join(parameters)}){result}"
    if len(line) <= LINE_LENGTH:
        return line
    lines = "".join(f"    {text},\n" for text in parameters)
    return f"{name}(\n{lines}){result}"


def describe_docstring(found: Any) -> list[str]:
    """The prose of a docstring, and its sections with underlined titles."""
    docstring = found.docstring.value if found.docstring else ""
    title_line = r"^ *(\w[\w ]*)\n *-{3,} *$"
    prose, *rest = re.split(title_line, docstring, flags=re.MULTILINE)
    parts = [paragraphs(prose)] if prose.strip() else []
    for title, text in zip(rest[::2], rest[1::2], strict=True):
        text = textwrap.dedent(text).strip("\n")
        if title in ("Returns", "Yields", "Notes", "Examples"):
            is_code = title == "Examples"
            shown = f"```python\n{text}\n```" if is_code else paragraphs(text)
            parts.append(f"**{title}**\n\n{shown}")
            continue
        items = []
        for block in re.split(r"\n(?=\S)", text):  # `name` or `name : text`, and lines
            head, *lines = block.splitlines()
            names, _, first = head.partition(" : ")
            words = " ".join(f"{first} {' '.join(lines)}".split())
            code = ", ".join(f"`{name.strip()}`" for name in names.split(","))
            items.append((code, escaped(words)))
        parts.append(f"**{title}**\n\n{definitions(items)}")
    return parts


def describe_class(name: str, found: Any, public: dict[str, str]) -> list[str]:
    """Its constructor, public bases, docstring, attributes and methods that no public base describes."""
    parts = []
    if "dataclass" not in found.labels and "__init__" in found.members:
        parts.append(f"```python\n{signature(name, found.members['__init__'])}\n```")
    bases = [base for base in found.mro() if base.path in public]
    if bases:
        links = [f"[`{public[b.path]}`](#{public[b.path].lower()})" for b in bases]
        parts.append(f"A {' and a '.join(links)}, with all that it has.")
    parts += describe_docstring(found)
    if name == "EncoderConfig":
        keys = "[`encoder`](configuration.md#encoder)"
        return [*parts, f"Its fields are the keys of the section {keys}."]

    described = {one.path for base in bases for one in (base, *base.mro())}
    members: dict[str, Any] = {}
    for kind in reversed([found, *found.mro()]):
        if kind.path not in described:
            members |= {one.name: one for one in public_members(kind)}
    fields = [attribute(one) for one in members.values() if one.is_attribute]
    if fields:
        parts.append("**Attributes**\n\n" + "\n".join(fields))
    for member in members.values():
        if member.is_function:
            parts.append(f"#### {name}.{member.name}")
            parts += describe_function(member.name, member)
    return parts


def public_members(found: Any) -> list[Any]:
    return [
        member
        for name, member in found.members.items()
        if not name.startswith("_") and not member.is_alias and not member.is_module
    ]


def attribute(member: Any) -> str:
    annotation = f": {member.annotation}" if member.annotation is not None else ""
    text = " ".join(member.docstring.value.split()) if member.docstring else ""
    return f"* `{member.name}{annotation}`" + (f": {escaped(text)}" if text else "")


def describe_result(function: Any, public: dict[str, str]) -> list[str]:
    """The fields of a result that has a class of its own."""
    name = str(function.returns)
    if name in public.values() or not re.fullmatch(r"[A-Z]\w+", name):
        return []
    try:
        kind = function.module[name]
        kind = kind.final_target if kind.is_alias else kind
    except (KeyError, griffe.AliasResolutionError):  # another library's
        return []
    if not kind.is_class:
        return []
    fields = "\n".join(attribute(member) for member in public_members(kind))
    return [f"A **`{name}`** has\n\n{fields}"]
