"""Generate the page of all configuration keys from the sections that declare them."""

import inspect
import json
from collections.abc import Iterator
from typing import Any, get_args

from bigbird_dna.config.run import Config
from bigbird_dna.config.section import Section

from .markdown import code, escaped, paragraphs, table

_INTRODUCTION = """\
# Configuration

A configuration is one YAML file. Every key has a default, so a file contains only the keys that differ.
Unknown keys, wrong types and values out of range are errors. Lengths of sequences are in bp, lengths of model
inputs in tokens. The workflow and the commands read the same files:

```console
$ snakemake --cores 2 --configfile mine.yaml
$ bigbird-dna finetune-promoter mine.yaml --set promoters.training.steps=1000
```

`--set key=value` changes a single key for one command. A second file after the first changes some keys for
the workflow (`--configfile workflow/config/yeast.yaml mine.yaml`). `workflow/config/demo.yaml` has every key
with the demo's value.

"""


def section_of(field: Any) -> type[Section] | None:
    """Return the section that is the value of a key, or None."""
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, Section):
            return kind
    return None


def sections(
    kind: type[Section] = Config, name: str = ""
) -> Iterator[tuple[str, type[Section]]]:
    """Yield every section with its dotted name; the name of the whole configuration is empty."""
    yield name, kind
    for key, field in kind.model_fields.items():
        below = section_of(field)
        if below is not None:
            yield from sections(below, f"{name}.{key}" if name else key)


def page() -> str:
    """Return the page as Markdown."""
    parts = [_INTRODUCTION.rstrip()]
    for name, kind in sections():
        rows = list(_rows(kind))
        level = "##" if "." not in name else "###"
        title = name or "The run"
        parts.append(f"{level} {title}")
        if name:
            parts.append(paragraphs(inspect.getdoc(kind) or ""))
            parts += _left_out(name)
        if rows:
            parts.append(table(["key", "type", "default", "what it means"], rows))
    return "\n\n".join(parts) + "\n"


def _left_out(name: str) -> list[str]:
    """Return the description of the defaults without a section, if its key has one."""
    above: type[Section] | None = Config
    *sections_above, key = name.split(".")
    for part in sections_above:
        above = section_of(above.model_fields[part]) if above else None
    field = above.model_fields[key] if above else None
    if field is None or not field.description or field.default is not None:
        return []
    return [f"May be left out. {escaped(field.description.capitalize())}."]


def _rows(kind: type[Section]) -> Iterator[list[str]]:
    schema = kind.model_json_schema()
    # What may be a text as well is a choice of that and of the section.
    schema = next(
        one for one in [schema, *schema.get("anyOf", ())] if "properties" in one
    )
    for key, field in kind.model_fields.items():
        if section_of(field) is not None:
            continue
        of_key = schema["properties"][key]
        default = "required" if field.is_required() else code(_plain(field.default))
        yield [
            code(key),
            escaped(_type(of_key)),
            default,
            escaped(field.description or ""),
        ]


def _plain(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, float) and 0 < abs(value) < 1e-3:
        return f"{value:.1e}"
    return json.dumps(value, ensure_ascii=False)


def _type(schema: dict[str, Any]) -> str:
    """Describe a type and its bounds."""
    if "anyOf" in schema:
        return " or ".join(_type(part) for part in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return f"list of {len(schema['prefixItems'])} {_plural(schema['prefixItems'][0])}"
        return f"list of {_plural(schema.get('items', {}))}"
    names = {
        "string": "text",
        "number": "number",
        "integer": "integer",
        "boolean": "true or false",
    }
    names["object"] = "values by name"
    return names.get(
        schema.get("type", ""), str(schema.get("type", "value"))
    ) + _bounds(schema)


def _plural(items: dict[str, Any]) -> str:
    if "enum" in items:
        return _type(items)
    names = {"string": "texts", "integer": "integers", "number": "numbers"}
    return names.get(items.get("type", ""), "values")


def _bounds(schema: dict[str, Any]) -> str:
    signs = {
        "minimum": "≥",
        "exclusiveMinimum": ">",
        "maximum": "≤",
        "exclusiveMaximum": "<",
    }
    found = [f"{sign} {schema[key]:,}" for key, sign in signs.items() if key in schema]
    return f", {', '.join(found)}" if found else ""
