"""The site: strictly built, whole without a network, and its references list all that there is."""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import bigbird_dna
from bigbird_dna.config import Config, Section
from docs.generators.markdown import escaped
from docs.generators.python_names import docstring_parts
from docs.generators.root_pages import relinked
from tests.conftest import REPOSITORY
from tests.html_pages import HtmlPage


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, HtmlPage]:
    """Every page by its place; the theme's page for what is missing links from the server's root."""
    found = [path for path in site.rglob("*.html") if path.name != "404.html"]
    return {
        str(path.relative_to(site)): HtmlPage(path.read_text(encoding="utf-8"))
        for path in found
    }


def test_the_menu_has_every_page(pages: dict[str, HtmlPage]) -> None:
    docs = REPOSITORY / "docs"
    made = "index notebook contributing security changelog howto/workflow"
    wanted = {
        *made.split(),
        *(f"reference/{name}" for name in ("commands", "configuration", "python")),
    }
    wanted |= {
        str(path.relative_to(docs).with_suffix("")) for path in docs.rglob("*.md")
    }
    assert set(pages) == {f"{name}.html" for name in wanted}
    home = pages["index.html"].values("href", "a")
    assert wanted - {"index"} <= {link.removesuffix(".html") for link in home}


def test_no_link_of_the_site_is_broken(site: Path, pages: dict[str, HtmlPage]) -> None:
    """Links to other sites can't be followed without a network; their form is checked."""
    checked = 0
    anchors = {
        place: {"", "__top", *page.values("id"), *page.values("name")}
        for place, page in pages.items()
    }
    for place, page in pages.items():
        for link in page.values("href", "a"):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                assert parts.scheme == "https" and "." in parts.netloc, (place, link)
                continue
            target = (
                (site / place).parent / unquote(parts.path)
                if parts.path
                else site / place
            )
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), (place, link)
            there = str(target.resolve().relative_to(site.resolve()))
            if there in pages:
                assert unquote(parts.fragment) in anchors[there], (place, link)
                checked += 1
    assert checked > 500


def test_nothing_comes_from_the_network(site: Path, pages: dict[str, HtmlPage]) -> None:
    for place, page in pages.items():
        local = [values for tag, values in page.tags if tag != "a"]
        local = [
            values
            for values in local
            if values.get("rel") not in ("prev", "next", "canonical")
        ]
        for load in [
            values[name]
            for values in local
            for name in ("src", "href")
            if name in values
        ]:
            parts = urlsplit(load)
            assert not parts.netloc, (place, load)
            assert ((site / place).parent / unquote(parts.path)).exists(), (place, load)
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.search(r"(?:@import|url\()\s*['\"]?(?:https?:)?//", styles)


def test_the_search_has_an_index_that_a_page_on_disk_can_load(site: Path) -> None:
    text = (site / "search/search_index.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("var __index = "))
    assert {"reference/commands.html", "howto/genome.html"} <= {
        entry["location"] for entry in index["docs"]
    }
    assert (
        '<script src="javascripts/search_from_disk.js">'
        in (site / "index.html").read_text()
    )


# What the references list


def _commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        elif not command.hidden:
            yield prefix + name, command


def test_every_command_and_option_has_its_place(site: Path) -> None:
    from typer.main import get_command

    from bigbird_dna.cli.app import app

    text = (site / "reference/commands.html").read_text(encoding="utf-8")
    sections = dict(
        re.findall(r'<h3 id="([^"]+)">(.*?)(?=<h[23] |</article>)', text, re.DOTALL)
    )
    found = dict(_commands(get_command(app)))
    assert len(found) > 30
    assert set(sections) == {name.replace(" ", "-") for name in found}
    for name, command in found.items():
        section = sections[name.replace(" ", "-")]
        for parameter in (
            parameter for parameter in command.params if not parameter.hidden
        ):
            names = (
                parameter.opts
                if parameter.param_type_name == "option"
                else [parameter.metavar or ""]
            )
            for word in names:
                optional = (
                    parameter.param_type_name == "argument" and not parameter.required
                )
                shown = f"{'[' * optional}{word or parameter.name.upper()}"
                assert f"<code>{shown}" in section, (name, word)
        assert "required" in section or not any(
            parameter.required and parameter.param_type_name == "option"
            for parameter in command.params
        )


def test_a_default_and_a_help_text_are_shown_as_the_command_has_them(
    pages: dict[str, HtmlPage],
) -> None:
    text = pages["reference/commands.html"].text
    assert "--stride BP Distance between windows. 10" in text
    assert "Number of CPU cores. all" in text
    assert "bigbird-dna predict-tracks MODEL_DIR REGIONS --reference FASTA" in text


def _keys(kind: type[Section], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, field in kind.model_fields.items():
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
        below = [
            part
            for part in kinds
            if isinstance(part, type) and issubclass(part, Section)
        ]
        if below:
            yield from _keys(below[0], f"{prefix}{key}.")
        else:
            yield prefix + key, field


def test_every_key_has_its_place_its_default_and_a_meaning(site: Path) -> None:
    text = (site / "reference/configuration.html").read_text(encoding="utf-8")
    parts = re.split(r"<h[23] id=\"[^\"]*\">([^<]+)<", text)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    keys = dict(_keys(Config))
    assert len(keys) > 100
    for key, field in keys.items():
        section, _, name = key.rpartition(".")
        assert field.description, f"{key} has no description"
        row = re.search(
            rf"<td><code>{name}</code></td>(.*?)</tr>",
            sections[section or "The run"],
            re.DOTALL,
        )
        assert row, key
        kind, default, meaning = re.findall(r"<td>(.*?)</td>", row[1], re.DOTALL)
        assert kind and default.startswith(("<code>", "required")) and meaning, key
    shown = {
        section: len(re.findall("<tr>", part)) - 1 for section, part in sections.items()
    }
    assert sum(count for count in shown.values() if count > 0) == len(keys)


def test_every_public_name_has_its_place(site: Path) -> None:
    text = (site / "reference/python.html").read_text(encoding="utf-8")
    parts = re.split(r'<h3 id="[^"]+">([^<]+)<', text)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert sorted(sections) == sorted(bigbird_dna.__all__)
    for name, section in sections.items():
        found = getattr(bigbird_dna, name)
        if inspect.isfunction(found):
            _check_signature(section, found)
        elif inspect.isclass(found) and name != "EncoderConfig":
            _check_members(name, found, sections)


def _check_signature(section: str, function: Any) -> None:
    """The parameters stand in the call, and each is explained."""
    words = re.sub("<[^>]+>", " ", section)
    for name in inspect.signature(function).parameters:
        assert name == "self" or len(re.findall(rf"\b{name}\b", words)) >= 2, (
            function,
            name,
        )


def _check_members(name: str, kind: type, sections: dict[str, str]) -> None:
    """Public methods stand below the class, or below a public one that it has them from."""
    package = [
        base for base in kind.__mro__ if base.__module__.startswith("bigbird_dna")
    ]
    public = [
        base.__name__
        for base in package
        if getattr(bigbird_dna, base.__name__, None) is base
    ]
    for member in {
        member
        for base in package
        for member, value in vars(base).items()
        if callable(value)
    }:
        if not member.startswith("_"):
            assert any(f">{base}.{member}<" in sections[base] for base in public), (
                name,
                member,
            )


def test_docstrings_are_read_in_their_parts(site: Path) -> None:
    text = (site / "reference/python.html").read_text(encoding="utf-8")
    assert (
        text.count("<strong>Parameters</strong>") > 5
        and text.count("<strong>Raises</strong>") > 5
    )
    assert re.search(
        r"<dt><code>positions</code></dt>\s*<dd>Longest input in tokens", text
    )
    assert not re.search(r">[^<]*----", text)


def test_the_pages_of_the_root_are_the_repository_s(pages: dict[str, HtmlPage]) -> None:
    for place, start in {
        "index.html": "Python 3.11 or later",
        "security.html": "Report a vulnerability",
        "changelog.html": "The format follows Keep a Changelog",
        "contributing.html": "Report a bug",
    }.items():
        assert start in pages[place].text
    assert "tutorials/score.html" in pages["index.html"].values("href", "a")


# How pages are made


@pytest.mark.parametrize(
    ("text", "source", "place", "wanted"),
    [
        (
            "[a](docs/files/index.md#x)",
            "README.md",
            "index.md",
            "[a](files/index.md#x)",
        ),
        ("![a](docs/images/y.png)", "README.md", "index.md", "![a](images/y.png)"),
        (
            "[a](../SECURITY.md)",
            "docs/reliability.md",
            "reliability.md",
            "[a](security.md)",
        ),
        (
            "[a](../docs/paper.md)",
            "config/README.md",
            "howto/workflow.md",
            "[a](../paper.md)",
        ),
        (
            "[a](../paper.md#x)",
            "docs/howto/peaks.md",
            "howto/peaks.md",
            "[a](../paper.md#x)",
        ),
        ("[a](CITATION.cff)", "README.md", "index.md", "a"),
        ("[a](docs/tutorial.ipynb)", "README.md", "index.md", "[a](notebook.md)"),
        ("[a](missing.md)", "README.md", "index.md", "[a](missing.md)"),
        ("[a](https://b.org/x)", "README.md", "index.md", "[a](https://b.org/x)"),
        ("[a](#x)", "README.md", "index.md", "[a](#x)"),
    ],
)
def test_a_link_leads_to_the_page_of_its_file(
    text: str, source: str, place: str, wanted: str
) -> None:
    assert relinked(text, source, place) == wanted


def test_signs_stay_signs_and_options_become_code() -> None:
    assert escaped("#contig < 3 *") == "\\#contig &lt; 3 \\*"
    assert (
        escaped("as of -o or `-x <y>`, not half-open")
        == "as of `-o` or `-x <y>`, not half-open"
    )


def test_a_docstring_s_parts() -> None:
    parts = docstring_parts(
        "One.\n\nTwo.\n\nParameters\n----------\na\n    A.\n\nRaises\n------\nE : why"
    )
    assert parts == [
        ("", "One.\n\nTwo.\n"),
        ("Parameters", "a\n    A.\n"),
        ("Raises", "E : why"),
    ]
    assert docstring_parts("Alone.") == [("", "Alone.")]
