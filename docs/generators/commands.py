"""Generate the page of all commands from the application that `bigbird-dna` runs."""

import inspect
from typing import Any

import typer
from typer.main import get_command

from bigbird_dna.cli.main import app

from .markdown import code, escaped, paragraphs, table

_INTRODUCTION = """\
# Commands

This page is generated from the commands; `bigbird-dna COMMAND --help` shows the same texts. All commands:

* Results go to standard output or to `-o`, messages and the progress bar to standard error.
* The [exit code](../reliability.md#exit-codes) is 0 for success, 1 for invalid data, 2 for wrong usage.
* Files are written atomically ([reliability](../reliability.md#results)).
* `RESULTS` is the value of the key `results` in the [configuration](configuration.md) that the command reads.
"""


def page() -> str:
    """Return the page as Markdown: a part for each panel of `--help`, then one for each group."""
    root: Any = get_command(app)
    groups = {
        name: group
        for name, group in root.commands.items()
        if hasattr(group, "commands")
    }
    panels: dict[str, list[str]] = {}
    for name, command in root.commands.items():
        if name not in groups:
            panels.setdefault(command.rich_help_panel, []).append(
                _section(name, command)
            )
    parts = [_INTRODUCTION.rstrip()]
    for title, sections in panels.items():
        parts += [f"## {title}", *sections]
    for name, group in groups.items():
        parts += [f"## {name}", group.help]
        parts += [
            _section(f"{name} {below}", command)
            for below, command in group.commands.items()
        ]
    return "\n\n".join(parts) + "\n"


def _section(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [
        p for p in command.params if p.param_type_name == "option" and not p.hidden
    ]
    context = typer.Context(command)
    words = [name, *map(_word, arguments)]
    for option in options:
        if option.required:
            words += [max(option.opts, key=len), _value(option, context)]
    usage = " ".join(["bigbird-dna", *words, "[OPTIONS]"])
    rows = [
        [code(_word(argument)), escaped(argument.help or ""), ""]
        for argument in arguments
    ]
    for option in options:
        names = ", ".join(map(code, (*option.opts, *option.secondary_opts)))
        value = code(_value(option, context))
        rows.append(
            [f"{names} {value}".strip(), escaped(option.help or ""), _default(option)]
        )
    parts = [
        f"### {name}",
        f"```console\n$ {usage}\n```",
        paragraphs(inspect.cleandoc(command.help or "")),
        table(["argument or option", "what it means", "default"], rows),
        f"```console\n$ {' '.join(command.epilog.removeprefix('Example: ').split())}\n```",
    ]
    return "\n\n".join(parts)


def _word(argument: Any) -> str:
    word = str(argument.metavar or argument.name.upper()).removesuffix("...")
    if argument.nargs == -1:
        word += "..."
    return word if argument.required else f"[{word}]"


def _value(option: Any, context: typer.Context) -> str:
    """Return the placeholder of the option's value; a switch has none."""
    if option.is_flag:
        return ""
    kind: str = option.metavar or option.display_type(context).strip("<>")
    return {"int": "N", "int range": "N", "float": "X", "path": "PATH"}.get(kind, kind)


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if isinstance(option.show_default, str):
        return escaped(option.show_default)
    if option.is_flag:
        return "on" if option.default else "off"
    if option.default in (None, "", [], ()):
        return ""
    return code(str(option.default))
