"""The site is built strictly, works without a network, and its references list all that there is."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from typer.main import get_command

import bigbird_dna
from bigbird_dna.cli.main import app
from bigbird_dna.config.run import Config
from docs.generators.configuration import sections
from docs.generators.root_pages import relinked
from tests.html_pages import HtmlPage


def test_pages_load_nothing_from_the_network(site: Path) -> None:
    for path in site.rglob("*.html"):
        if path.name == "404.html":  # its links begin at the server's root
            continue
        page = HtmlPage(path.read_text(encoding="utf-8"))
        for tag, values in page.tags:
            if tag == "a" or values.get("rel") in ("prev", "next", "canonical"):
                continue
            for name in ("src", "href"):
                if name in values:
                    parts = urlsplit(values[name])
                    assert not parts.netloc, (path, values[name])
                    assert (path.parent / unquote(parts.path)).exists(), values[name]


def test_the_search_has_an_index_that_a_page_on_disk_can_load(site: Path) -> None:
    text = (site / "search/search_index.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("var __index = "))
    assert "reference/commands.html" in {entry["location"] for entry in index["docs"]}


def command_names(group: Any, prefix: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from command_names(command, f"{prefix}{name} ")
        else:
            yield prefix + name


def headings(site: Path, page: str) -> set[str]:
    text = (site / "reference" / page).read_text(encoding="utf-8")
    return set(re.findall(r'<h[23] id="[^"]+">([^<]+)<', text))


def test_references_list_all_commands_sections_and_names(site: Path) -> None:
    assert set(command_names(get_command(app))) <= headings(site, "commands.html")
    names = {name for name, _ in sections(Config) if name}
    assert names <= headings(site, "configuration.html")
    assert {*bigbird_dna.__all__} <= headings(site, "python.html")


@pytest.mark.parametrize(
    ("text", "source", "page", "expected"),
    [
        ("[a](docs/x/y.md#z)", "README.md", "index.md", "[a](x/y.md#z)"),
        ("![a](docs/images/y.png)", "README.md", "index.md", "![a](images/y.png)"),
        ("[a](../SECURITY.md)", "docs/x.md", "x.md", "[a](security.md)"),
        ("[a](../docs/x.md)", "config/README.md", "howto/workflow.md", "[a](../x.md)"),
        ("[a](CITATION.cff)", "README.md", "index.md", "a"),
        ("[a](docs/tutorial.ipynb)", "README.md", "index.md", "[a](notebook.md)"),
        ("[a](missing.md)", "README.md", "index.md", "[a](missing.md)"),
        ("[a](https://b.org/x)", "README.md", "index.md", "[a](https://b.org/x)"),
    ],
)
def test_a_link_leads_to_the_page_of_its_file(
    text: str, source: str, page: str, expected: str
) -> None:
    assert relinked(text, source, page) == expected
