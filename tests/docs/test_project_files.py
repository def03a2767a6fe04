"""Files that other people's tools read: the README's size, the citation, the catalog's files."""

import re
import tomllib
from datetime import date
from typing import Any

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.docs.blocks import pages

README = REPOSITORY / "README.md"


def test_the_readme_has_at_most_1200_words() -> None:
    assert 600 < len(README.read_text(encoding="utf-8").split()) <= 1200


@pytest.mark.parametrize("page", pages())
def test_files_that_a_page_links_to_are_there(page: str) -> None:
    """Also in the repository, where people read them as well; references exist on the site alone."""
    path = REPOSITORY / page
    for link in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", path.read_text(encoding="utf-8")):
        made = link.endswith("notebook.md") or "reference/" in link
        assert made or (path.parent / link).exists(), link


def test_the_citation_is_one() -> None:
    citation: dict[str, Any] = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert str(citation["version"]) == project["version"] and citation["license"] == project["license"]
    for work in (citation["preferred-citation"], *citation["references"]):
        assert {"type", "title", "authors", "year"} <= set(work) and work["year"] <= date.today().year
        assert all(set(author) == {"family-names", "given-names"} for author in work["authors"])
    paper = citation["preferred-citation"]
    assert paper["authors"][0]["family-names"] == "Zaheer" and len(paper["authors"]) == 11
    assert "2007.14062" in paper["url"] and "Zaheer et al. 2020" in README.read_text()


def test_the_workflow_catalog_finds_what_it_asks_for() -> None:
    text = README.read_text().lower()
    assert "snakemake" in text and "workflow" in text
    assert (REPOSITORY / "workflow/Snakefile").is_file() and (REPOSITORY / "config/README.md").is_file()
    assert list((REPOSITORY / "workflow/rules").glob("*.smk"))
    usage = yaml.safe_load((REPOSITORY / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert set(usage) == {"mandatory-flags", "software-stack-deployment", "report"}
    assert set(usage["mandatory-flags"]) == {"desc", "flags"}
    methods = usage["software-stack-deployment"]
    assert set(methods) == {"conda", "apptainer", "apptainer+conda"}
    assert methods["apptainer"] == ("container:" in (REPOSITORY / "workflow/Snakefile").read_text())


def test_every_configuration_is_described() -> None:
    described = (REPOSITORY / "config/README.md").read_text()
    for path in (REPOSITORY / "workflow/config").glob("*.yaml"):
        assert f"`{path.name}`" in described


def test_continuous_integration_checks_the_site() -> None:
    """`make test` runs the quick tests, among them those of this folder, which build it strictly."""
    makefile = (REPOSITORY / "Makefile").read_text()
    assert re.search(r"^docs: .*\n\t\$\(BIN\)/mkdocs build --strict", makefile, re.MULTILINE)
    assert "exec make test" in (REPOSITORY / ".ci/run").read_text()
    assert "site/" in (REPOSITORY / ".gitignore").read_text().splitlines()
