"""Generate the page of all commands from the application that `bigbird-dna` runs."""

import inspect
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from bigbird_dna.cli.app import BELOW, TOP, app

from .markdown import code, escaped, paragraphs, table

_INTRODUCTION = """\
# Commands

This page is generated from the commands; `bigbird-dna COMMAND --help` shows the same texts. All commands:

* Results go to standard output or to `-o`, messages and the progress bar to standard error.
* The [exit code](../reliability.md#exit-codes) is 0 for success, 1 for invalid data, 2 for wrong usage.
* Files are written atomically ([reliability](../reliability.md#results)).
* `RESULTS` is the value of the key `results` in the [configuration](configuration.md) that the command reads.
"""


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command that `--help` shows, with its name; names in groups begin with the group."""
    yield from _below(get_command(app), "")


def _below(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _below(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def page() -> str:
    """Return the page as Markdown."""
    known = dict(commands())
    parts = []
    for title, names in TOP.items():
        parts.append(
            f"## {title}\n\n"
            + "\n\n".join(_section(name, known[name]) for name in names)
        )
    for group, (text, names) in BELOW.items():
        sections = [
            _section(name, known[name])
            for name in (f"{group} {below}" for below in names)
        ]
        parts.append(f"## {group}\n\n{text}\n\n" + "\n\n".join(sections))
    return "\n\n".join([_INTRODUCTION.rstrip(), *parts]) + "\n"


def _section(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [
        p for p in command.params if p.param_type_name == "option" and not p.hidden
    ]
    words = " ".join(_word(argument) for argument in arguments)
    needed = "".join(
        f" {_name(option)} {_value(option)}" for option in options if option.required
    )
    usage = f"bigbird-dna {name} {words}{needed} [OPTIONS]".replace("  ", " ")
    parts = [
        f"### {name}",
        f"```console\n$ {usage}\n```",
        paragraphs(inspect.cleandoc(command.help or "")),
    ]
    rows = [
        [code(_word(argument)), escaped(argument.help or ""), ""]
        for argument in arguments
    ]
    rows += [
        [_names(option), escaped(option.help or ""), _default(option)]
        for option in options
    ]
    if rows:
        parts.append(table(["argument or option", "what it means", "default"], rows))
    parts.append(
        f"```console\n$ {' '.join(command.epilog.removeprefix('Example: ').split())}\n```"
    )
    return "\n\n".join(parts)


def _word(argument: Any) -> str:
    word: str = argument.metavar or argument.name.upper()
    return word if argument.required else f"[{word}]"


def _name(option: Any) -> str:
    return str(max(option.opts, key=len))


def _value(option: Any) -> str:
    """Return the placeholder of the option's value; a switch has none."""
    if option.is_flag:
        return ""
    kinds = {"int": "N", "integer": "N", "float": "X", "path": "PATH", "file": "PATH"}
    kind = str(getattr(getattr(option, "type", None), "name", "")).lower()
    annotation = str(
        getattr(getattr(option, "type_descriptor", None), "annotation", "")
    )
    found = kinds.get(kind) or next(
        (kinds[key] for key in ("int", "float") if key in annotation), "TEXT"
    )
    return str(option.metavar or found)


def _names(option: Any) -> str:
    names = ", ".join(code(name) for name in (*option.opts, *option.secondary_opts))
    value = _value(option)
    return f"{names} {code(value)}" if value else names


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if isinstance(option.show_default, str):
        return escaped(option.show_default)
    if option.is_flag:
        return "off" if not option.default else "on"
    if option.default is None or option.default in ("", [], ()):
        return ""
    values = (
        option.default if isinstance(option.default, list | tuple) else [option.default]
    )
    return code(",".join(str(getattr(value, "value", value)) for value in values))
