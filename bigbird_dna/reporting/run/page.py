"""The page of a run: one HTML file with its figures and tables, which needs no network and no script."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml

from bigbird_dna.config import Config
from bigbird_dna.disk.atomic import atomic_path, reading
from bigbird_dna.reporting.run.contents import FIGURE, PAGE, PARTS, TEXT, Item, named
from bigbird_dna.reporting.run.steps import steps_table
from bigbird_dna.reporting.run.tables import Table, shown_table

if TYPE_CHECKING:
    from markupsafe import Markup

# Where a run's files are says nothing of the run.
_PLACES = {"results", "local_data"}


class _Shown(NamedTuple):
    item: Item
    caption: Markup
    image: str = ""
    table: Table | None = None
    link: str = ""
    link_text: str = ""
    paragraphs: tuple[str, ...] = ()


class _Part(NamedTuple):
    title: str
    id: str
    items: list[_Shown]


def run_report(
    config: Config, paths: Sequence[Path], output: Path, *, benchmarks: Sequence[Path] = ()
) -> None:
    """Write the page of a run, whole or not at all.

    Parameters
    ----------
    config
        Of the run; stated on the page.
    paths
        Tables and figures of the run's reports, known by their names (`PARTS`). The page of the tracks gets a
        link.
    output
        The HTML file.
    benchmarks
        Snakemake's tables of what each step took.

    Raises
    ------
    UsageError
        The page has no place for a file.
    DataError
        A file is missing or damaged.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    found = named(paths)
    parts = [
        _Part(
            title, title.lower().replace(" ", "-"), [_shown(item, found[item.name], output) for item in items]
        )
        for title, whole in PARTS.items()
        if (items := [item for item in whole if item.name in found])
    ]
    steps, total = steps_table(benchmarks)
    template = _resource("run/page.html")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    values = config.model_dump(mode="json", exclude=_PLACES)
    subject = config.genome.title if config.has_genome else "Sequences"
    text = environment.from_string(template).render(
        title=f"{subject}: a DNA language model and what it learnt",
        about=_about(config),
        style=Markup(_resource("page.css") + _resource("run/page.css")),
        parts=parts,
        steps=steps,
        total=total,
        version=version("bigbird-dna"),
        configuration=yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100),
    )
    with atomic_path(output) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _resource(name: str) -> str:
    return files("bigbird_dna.reporting").joinpath(name).read_text(encoding="utf-8")


def _shown(item: Item, path: Path, output: Path) -> _Shown:
    caption = _markup(item.text)
    if path.suffix == PAGE:
        # Beside the output, so that both can be moved together.
        link = os.path.relpath(path, output.parent)
        return _Shown(item, caption, link=Path(link).as_posix(), link_text=item.title)
    if path.suffix == FIGURE:
        with reading(path, "can't be read"):
            data = base64.b64encode(path.read_bytes()).decode()
        # An image, not a part of the page: what an SVG of a stranger holds can't run.
        return _Shown(item, caption, image=f"data:image/svg+xml;base64,{data}")
    if path.suffix == TEXT:
        with reading(path, "not readable", UnicodeDecodeError):
            lines = path.read_text(encoding="utf-8").splitlines()
        return _Shown(item, caption, paragraphs=tuple(filter(None, map(str.strip, lines))))
    return _Shown(item, caption, table=shown_table(path))


def _markup(text: str) -> Markup:
    """A caption as HTML: its literals are all that reStructuredText has for them."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"``(.+?)``", r"<code>\1</code>", str(escape(text))))


def _about(config: Config) -> list[str]:
    """What was trained on what, and what was held out, in sentences."""
    genome, data = config.genome, config.chromatin.data
    purposes = ["to tell promoters from other sequence"] * config.has_promoters
    purposes += ["to predict chromatin tracks"] * config.has_chromatin
    trained = "pretrained and fine-tuned" if config.has_pretraining else "trained"
    data_name = genome.title if config.has_genome else "sequences"
    sentences = [
        f"A DNA language model with block-sparse (BigBird) attention was {trained} on {data_name} "
        f"{' and '.join(purposes)}."
    ]
    for split, purpose in (("valid", "validation"), ("test", "the test")):
        regions = getattr(data, f"{split}_regions") if config.has_chromatin else ()
        held_out = [*getattr(genome, split), *regions]
        if held_out:
            sentences.append(f"Held out for {purpose}: {', '.join(held_out)}.")
    return sentences
