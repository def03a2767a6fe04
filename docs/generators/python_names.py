"""Generate the page of all public names from their docstrings, without importing them."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import griffe

from .markdown import definitions, escaped, paragraphs

ROOT = Path(__file__).resolve().parent.parent.parent

_INTRODUCTION = """\
# Python

```python
import bigbird_dna
```

These are the names that `bigbird_dna` promises to keep. Coordinates are 0-based and half-open, on the forward
strand. A mistake of the caller raises an error of `bigbird_dna.errors` with one sentence: `UsageError` for an
argument, `DataError` for a file or a sequence, `ModelError` for a model, `ConfigError` for a configuration;
`BigBirdDnaError` is their common class. The functions that write files do what the [command](commands.md) of
the same name does.

"""


class Part(NamedTuple):
    """A part of a docstring: prose without a title, or a section such as Parameters."""

    title: str
    text: str


def page() -> str:
    """Return the page as Markdown."""
    package = griffe.load("bigbird_dna", search_paths=[str(ROOT)])
    found = {
        str(name): _target(package[str(name)])
        for name in sorted(map(str, package.exports or ()))
    }
    public = {target.path: name for name, target in found.items()}
    parts = [_INTRODUCTION.rstrip()]
    for kind, title in enumerate(("Functions", "Classes", "Values")):
        entries = [
            _entry(name, target, public)
            for name, target in found.items()
            if _order(target) == kind
        ]
        parts += [f"## {title}", *entries] if entries else []
    return "\n\n".join(parts) + "\n"


def docstring_parts(text: str) -> list[Part]:
    """The prose of a docstring and its sections, in their order."""
    lines = text.expandtabs().splitlines()
    starts = [
        number
        for number in range(len(lines) - 1)
        if lines[number].strip() and re.fullmatch(r"-{3,}", lines[number + 1].strip())
    ]
    made = [Part("", "\n".join(lines[: starts[0] if starts else None]))]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        made.append(Part(lines[start].strip(), "\n".join(lines[start + 2 : end])))
    return [part for part in made if part.text.strip()]


def _target(found: Any) -> Any:
    return found.final_target if found.is_alias else found


def _order(found: Any) -> int:
    return 0 if found.is_function else 1 if found.is_class else 2


def _entry(name: str, found: Any, public: dict[str, str]) -> str:
    """Return the section of a public name; `public` maps the paths of objects to their names."""
    heading = f"### {escaped(name)}"
    if found.is_function:
        return "\n\n".join(
            [heading, *_function(name, found), *_returned(found, public)]
        )
    if found.is_class:
        return "\n\n".join([heading, *_class(name, found, public)])
    kind = (
        [f"```python\n{name}: {found.annotation}\n```"]
        if found.annotation is not None
        else []
    )
    return "\n\n".join([heading, *kind, *_docstring(found)])


def _function(name: str, found: Any) -> Iterator[str]:
    yield f"```python\n{_signature(name, found)}\n```"
    yield from _docstring(found)


def _signature(name: str, found: Any) -> str:
    """A call, on one line if it fits."""
    made, starred = [], False
    for parameter in found.parameters:
        if parameter.name in ("self", "cls") and found.parent.is_class:
            continue
        kind = parameter.kind.value if parameter.kind else ""
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        if kind == "keyword-only" and not starred:
            made.append("*")
        starred = starred or kind == "keyword-only" or stars == "*"
        text = f"{stars}{parameter.name}"
        if parameter.annotation is not None:
            text += f": {parameter.annotation}"
        if parameter.default is not None and not stars:
            text += (
                f" = {parameter.default}"
                if parameter.annotation is not None
                else f"={parameter.default}"
            )
        made.append(text)
    result = f" -> {found.returns}" if found.returns is not None else ""
    line = f"{name}({', '.join(made)}){result}"
    if len(line) <= 88:
        return line
    return f"{name}(\n" + "".join(f"    {text},\n" for text in made) + f"){result}"


def _docstring(found: Any) -> Iterator[str]:
    text = found.docstring.value if found.docstring else ""
    for part in docstring_parts(text):
        if not part.title:
            yield paragraphs(part.text)
        elif part.title in ("Returns", "Yields", "Notes"):
            yield f"**{part.title}**\n\n{paragraphs(textwrap.dedent(part.text))}"
        else:
            yield f"**{part.title}**\n\n{definitions(_items(part.text))}"


def _items(text: str) -> Iterator[tuple[str, str]]:
    """`name` or `name : text`, and indented lines below."""
    for block in re.split(r"\n(?=\S)", textwrap.dedent(text).strip("\n")):
        head, *rest = block.splitlines()
        names, colon, said = head.partition(" : ")
        words = " ".join([*([said] if colon else []), *(line.strip() for line in rest)])
        yield (
            ", ".join(f"`{name.strip()}`" for name in names.split(",")),
            escaped(" ".join(words.split())),
        )


def _class(name: str, found: Any, public: dict[str, str]) -> Iterator[str]:
    bases = [
        (public[base.path], base) for base in _ancestors(found) if base.path in public
    ]
    theirs = {
        ancestor.path for _, base in bases for ancestor in (base, *_ancestors(base))
    }
    if "dataclass" not in found.labels and "__init__" in found.members:
        yield f"```python\n{_signature(name, found.members['__init__'])}\n```"
    if bases:
        links = " and a ".join(f"[`{base}`](#{base.lower()})" for base, _ in bases)
        yield f"A {links}, with all that it has."
    yield from _docstring(found)
    if name == "EncoderConfig":
        yield "Its fields are the keys of the section [`encoder`](configuration.md#encoder)."
        return
    own = [
        found,
        *(ancestor for ancestor in _ancestors(found) if ancestor.path not in theirs),
    ]
    members = {
        member.name: member for kind in reversed(own) for member in _public(kind)
    }
    fields = [member for member in members.values() if member.is_attribute]
    if fields:
        yield "**Attributes**\n\n" + "\n".join(_attribute(member) for member in fields)
    for member in members.values():
        if member.is_function:
            yield f"#### {name}.{member.name}"
            yield from _function(member.name, member)


def _ancestors(found: Any) -> list[Any]:
    """The classes of this package that a class inherits from, nearest first."""
    return list(found.mro())


def _public(found: Any) -> list[Any]:
    return [
        member
        for name, member in found.members.items()
        if not name.startswith("_") and not member.is_alias and not member.is_module
    ]


def _attribute(member: Any) -> str:
    text = member.docstring.value if member.docstring else ""
    annotation = f": {member.annotation}" if member.annotation is not None else ""
    said = " ".join(docstring_parts(text)[0].text.split()) if text else ""
    return f"* `{member.name}{annotation}`" + (f": {escaped(said)}" if said else "")


def _returned(found: Any, public: dict[str, str]) -> Iterator[str]:
    """The fields of a result that has a class of its own."""
    name = str(found.returns)
    if name in public.values() or not re.fullmatch(r"[A-Z]\w+", name):
        return
    try:
        kind = _target(found.module[name])
    except (KeyError, griffe.AliasResolutionError):  # another library's
        return
    if kind.is_class:
        yield (
            f"A **`{name}`** has"
            + "\n\n"
            + "\n".join(_attribute(member) for member in _public(kind))
        )
