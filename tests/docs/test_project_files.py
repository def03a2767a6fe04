"""Files that other people's tools read: the README's size, the citation, what is installed and pinned."""

import ast
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date
from importlib import import_module, metadata
from importlib.resources import files
from typing import Any, get_type_hints

import pytest
import yaml
from jinja2 import StrictUndefined, Template
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from bigbird_dna.config import load_config
from bigbird_dna.disk.tables import Schema
from bigbird_dna.training.gpu_time import GPUS, planned_work
from tests.conftest import REPOSITORY
from tests.docs.blocks import pages

README = REPOSITORY / "README.md"


@pytest.mark.parametrize("page", pages())
def test_files_that_a_page_links_to_are_there(page: str) -> None:
    """Also in the repository, where people read them as well; references exist on the site alone."""
    path = REPOSITORY / page
    for link in re.findall(
        r"\]\((?!\w+:|#)([^)#\s]+)", path.read_text(encoding="utf-8")
    ):
        made = link.endswith("notebook.md") or "reference/" in link
        assert made or (path.parent / link).exists(), link


def test_the_citation_is_one(project: dict[str, Any]) -> None:
    citation: dict[str, Any] = yaml.safe_load(
        (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    )
    project = project["project"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert (
        str(citation["version"]) == project["version"]
        and citation["license"] == project["license"]
    )
    for work in (citation["preferred-citation"], *citation["references"]):
        assert {"type", "title", "authors", "year"} <= set(work) and work[
            "year"
        ] <= date.today().year
        assert all(
            set(author) == {"family-names", "given-names"} for author in work["authors"]
        )
    paper = citation["preferred-citation"]
    assert (
        paper["authors"][0]["family-names"] == "Zaheer" and len(paper["authors"]) == 11
    )
    assert "2007.14062" in paper["url"] and "Zaheer et al. 2020" in README.read_text()


def test_the_workflow_catalog_finds_what_it_asks_for() -> None:
    text = README.read_text().lower()
    assert "snakemake" in text and "workflow" in text
    assert (REPOSITORY / "workflow/Snakefile").is_file() and (
        REPOSITORY / "config/README.md"
    ).is_file()
    assert list((REPOSITORY / "workflow/rules").glob("*.smk"))
    usage = yaml.safe_load(
        (REPOSITORY / ".snakemake-workflow-catalog.yml").read_text()
    )["usage"]
    assert set(usage) == {"mandatory-flags", "software-stack-deployment", "report"}
    assert set(usage["mandatory-flags"]) == {"desc", "flags"}
    methods = usage["software-stack-deployment"]
    assert set(methods) == {"conda", "apptainer", "apptainer+conda"}
    assert methods["apptainer"] == (
        "container:" in (REPOSITORY / "workflow/Snakefile").read_text()
    )


def test_every_configuration_is_described() -> None:
    described = (REPOSITORY / "config/README.md").read_text()
    for path in (REPOSITORY / "workflow/config").glob("*.yaml"):
        assert f"`{path.name}`" in described


def test_continuous_integration_checks_the_site() -> None:
    """`make test` runs the quick tests, among them those of this folder, which build it strictly."""
    makefile = (REPOSITORY / "Makefile").read_text()
    assert re.search(
        r"^docs: .*\n\t\$\(BIN\)/mkdocs build --strict", makefile, re.MULTILINE
    )
    assert "exec make test" in (REPOSITORY / ".ci/run").read_text()
    assert "site/" in (REPOSITORY / ".gitignore").read_text().splitlines()


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def _name(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def test_every_package_is_installed(project: dict[str, Any]) -> None:
    found = {
        ".".join(path.parent.relative_to(REPOSITORY).parts)
        for path in (REPOSITORY / "bigbird_dna").rglob("__init__.py")
    }
    assert set(project["tool"]["setuptools"]["packages"]) == found | {
        "bigbird_dna.resources"
    }


def test_data_files_are_installed(project: dict[str, Any]) -> None:
    resources = REPOSITORY / "resources"
    patterns = project["tool"]["setuptools"]["package-data"]["bigbird_dna.resources"]
    packed = {path for pattern in patterns for path in resources.glob(pattern)}
    data = {
        path
        for path in resources.rglob("*")
        if path.suffix in (".yaml", ".json", ".tsv")
    }
    data |= {
        path
        for folder in ("examples", "models")
        for path in (resources / folder).rglob("*")
        if path.is_file()
    }
    assert packed == data
    assert files("bigbird_dna.resources").joinpath("sources.yaml").is_file()


def test_files_beside_modules_are_installed(project: dict[str, Any]) -> None:
    package = REPOSITORY / "bigbird_dna"
    packed = {
        path
        for name, patterns in project["tool"]["setuptools"]["package-data"].items()
        if name != "bigbird_dna.resources"
        for pattern in patterns
        for path in REPOSITORY.joinpath(*name.split(".")).glob(pattern)
    }
    others = {
        path for path in package.rglob("*") if path.is_file() and path.suffix != ".py"
    }
    assert packed == {path for path in others if "__pycache__" not in path.parts}


# Names of packages in conda-forge and bioconda that differ from those on PyPI.
CONDA = {
    "torch": "pytorch",
    "sentencepiece": "sentencepiece-python",
    "matplotlib": "matplotlib-base",
}


def test_the_conda_recipe_needs_what_the_package_needs(project: dict[str, Any]) -> None:
    source = (REPOSITORY / "conda/meta.yaml").read_text(encoding="utf-8")
    words = {
        name: lambda text, name=name: f"{name}_{text}"
        for name in ("compiler", "stdlib")
    }
    recipe = yaml.safe_load(
        Template(source, undefined=StrictUndefined).render(PYTHON="python", **words)
    )
    declared, needs = project["project"], recipe["requirements"]
    assert recipe["package"] == {
        "name": declared["name"],
        "version": declared["version"],
    }
    assert recipe["about"]["license"] == declared["license"]
    wanted = {}
    for line in [f"python{declared['requires-python']}", *declared["dependencies"]]:
        one = Requirement(line)
        wanted[CONDA.get(one.name, one.name)] = str(one.specifier)
    assert dict(line.split() for line in needs["run"]) == wanted
    host = dict([*line.split(), ""][:2] for line in needs["host"])
    built = [Requirement(line) for line in project["build-system"]["requires"]]
    assert host == {
        "python": wanted["python"],
        "pip": "",
        **{one.name: str(one.specifier) for one in built},
    }
    (script,) = recipe["build"]["entry_points"]
    name, _, function = script.partition(" = ")
    assert declared["scripts"] == {name: function}


def test_constraints_pin_what_is_needed(project: dict[str, Any]) -> None:
    lines = [
        line
        for line in (REPOSITORY / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert all(
        re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line) for line in lines
    )
    pinned = {_name(line): line for line in lines}
    assert len(pinned) == len(lines)
    extras = project["project"]["optional-dependencies"]
    wanted = (
        project["project"]["dependencies"]
        + extras["dev"]
        + extras["docs"]
        + extras["slurm"]
    )
    assert {_name(requirement) for requirement in wanted} <= set(pinned)
    assert pinned["torch"] == "torch==2.13.0"


def test_pinned_versions_install_on_the_oldest_python(project: dict[str, Any]) -> None:
    oldest = project["project"]["requires-python"].removeprefix(">=") + ".0"
    refused = []
    for line in (REPOSITORY / "constraints.txt").read_text().splitlines():
        try:
            found = metadata.metadata(line.partition("==")[0])
        except (
            metadata.PackageNotFoundError
        ):  # comments, and the packages of an extra that isn't installed
            continue
        if not SpecifierSet(found.get("Requires-Python", "")).contains(oldest):
            refused.append(line)
    assert refused == []


def test_license_is_the_one_declared(project: dict[str, Any]) -> None:
    assert project["project"]["license"] == "Apache-2.0"
    text = (REPOSITORY / "LICENSE").read_text()
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text


def test_the_short_plan_takes_two_days_even_at_half_the_assumed_rate() -> None:
    config = load_config(REPOSITORY / "workflow/config/grch37-short.yaml")
    assert 2 * sum(stage.hours(GPUS["a100"], 8) for stage in planned_work(config)) < 46


# Columns and keys of files: the pages name those of the code

MARKED = re.compile(r"<!-- columns: ([\w.]+):(.+) -->\n\n((?:\|.*\n)+)")
MADE = r"Schema(\.of)?\(.*\)|\{.*: Schema\.of\(.*\)\}"
WORDS = {
    "whole": "integer",
    str: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
}


def declared(source: Any) -> Iterator[tuple[str, str]]:
    """Names with their types, which are empty where the code has none."""
    if isinstance(source, Schema):
        for cell in (cell for column in source.columns for cell in column.cells):
            limits = (
                f", {cell.low:g} to {cell.high:g}"
                if math.isfinite(cell.low + cell.high)
                else ""
            )
            yield (
                cell.name,
                WORDS.get(cell.kind, cell.kind) + limits + " or empty" * cell.missing,
            )
    elif isinstance(source, str):
        yield source, ""
    elif isinstance(source, Mapping):
        yield from ((name, WORDS.get(kind, "")) for name, kind in source.items())
    elif isinstance(source, type):
        hints = get_type_hints(source)
        yield from declared(
            {name: hints[name] for name in getattr(source, "model_fields", hints)}
        )
    else:
        yield from (pair for one in source for pair in declared(one))


def documented(table: str) -> Iterator[tuple[str, str]]:
    """The same of a table in a page; its first two columns are names and their type."""
    header, _, *rows = (
        [cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()
    )
    for cells in rows:
        names, ends, _ = cells[0].partition("with `_low` and `_high`")
        for name in re.findall("`([^`]+)`", names):
            for end in ("", "_low", "_high") if ends else ("",):
                yield f"{name}{end}", cells[1] if header[1] == "type" else ""


@pytest.mark.parametrize(
    "page", [page for page in pages() if page.startswith("docs/files/")]
)
def test_a_page_has_the_columns_of_the_code(page: str) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    marked = MARKED.findall(text)
    assert len(marked) == text.count("<!-- columns:")
    assert not re.search(
        r"(?<!-->\n\n)^\| (next )?column\b.*\| type \|", text, re.MULTILINE
    )
    for module, expression, table in marked:
        source = eval(expression, vars(import_module(module)).copy())
        found, shown = [*declared(source)], [*documented(table)]
        assert [name for name, _ in shown] == [name for name, _ in found], expression
        for (name, kind), (_, stated) in zip(found, shown, strict=True):
            assert not kind or not stated or stated == kind, (expression, name, kind)


def test_every_schema_has_its_page() -> None:
    text = "".join(
        path.read_text(encoding="utf-8")
        for path in (REPOSITORY / "docs/files").glob("*.md")
    )
    named = {
        f"{m}:{name}"
        for m, made, _ in MARKED.findall(text)
        for name in re.findall(r"\w+", made)
    }
    schemas = set()
    for path in (REPOSITORY / "bigbird_dna").rglob("*.py"):
        module = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and "Schema" in ast.unparse(
                node.returns or node.args
            ):
                schemas.add(f"{module}:{node.name}")
            elif isinstance(node, ast.Assign) and re.fullmatch(
                MADE, ast.unparse(node.value)
            ):
                schemas.add(f"{module}:{ast.unparse(node.targets[0])}")
    assert len(schemas) > 20 and schemas - named == set()
