"""What is installed and pinned, and what other tools read."""

import re
import tomllib
from importlib import metadata
from importlib.resources import files
from typing import Any

import pytest
import yaml
from jinja2 import StrictUndefined, Template
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def test_the_citation_is_of_this_version(project: dict[str, Any]) -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == project["project"]["version"]
    assert citation["license"] == project["project"]["license"]


def test_every_package_is_installed(project: dict[str, Any]) -> None:
    found = {
        ".".join(path.parent.relative_to(REPOSITORY).parts)
        for path in (REPOSITORY / "bigbird_dna").rglob("__init__.py")
    }
    packages = set(project["tool"]["setuptools"]["packages"])
    assert packages == found | {"bigbird_dna.resources"}


def test_data_files_are_installed(project: dict[str, Any]) -> None:
    resources = REPOSITORY / "resources"
    package_data = project["tool"]["setuptools"]["package-data"]
    packed = {
        path
        for pattern in package_data["bigbird_dna.resources"]
        for path in resources.glob(pattern)
    }
    data = {
        path
        for path in resources.rglob("*")
        if path.suffix in (".yaml", ".json", ".tsv")
    }
    for folder in ("examples", "models"):
        data |= {path for path in (resources / folder).rglob("*") if path.is_file()}
    assert packed == data
    assert files("bigbird_dna.resources").joinpath("sources.yaml").is_file()


def test_files_beside_modules_are_installed(project: dict[str, Any]) -> None:
    packed = {
        path
        for name, patterns in project["tool"]["setuptools"]["package-data"].items()
        if name != "bigbird_dna.resources"
        for pattern in patterns
        for path in REPOSITORY.joinpath(*name.split(".")).glob(pattern)
    }
    others = {
        path
        for path in (REPOSITORY / "bigbird_dna").rglob("*")
        if path.is_file() and path.suffix != ".py"
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
    template = Template(source, undefined=StrictUndefined)
    recipe = yaml.safe_load(template.render(PYTHON="python", **words))
    declared = project["project"]
    assert recipe["package"]["version"] == declared["version"]
    requirements = {}
    for line in [f"python{declared['requires-python']}", *declared["dependencies"]]:
        one = Requirement(line)
        requirements[CONDA.get(one.name, one.name)] = str(one.specifier)
    assert dict(line.split() for line in recipe["requirements"]["run"]) == requirements


def normalized_name(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def test_constraints_pin_what_is_needed(project: dict[str, Any]) -> None:
    lines = [
        line
        for line in (REPOSITORY / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", one) for one in lines)
    extras = project["project"]["optional-dependencies"]
    needed = [
        *project["project"]["dependencies"],
        *extras["dev"],
        *extras["docs"],
        *extras["slurm"],
    ]
    pinned = {normalized_name(line) for line in lines}
    assert {normalized_name(requirement) for requirement in needed} <= pinned


def test_pinned_versions_install_on_the_oldest_python(project: dict[str, Any]) -> None:
    oldest = project["project"]["requires-python"].removeprefix(">=") + ".0"
    refused = []
    for line in (REPOSITORY / "constraints.txt").read_text().splitlines():
        try:
            found = metadata.metadata(line.partition("==")[0])
        except metadata.PackageNotFoundError:  # comments, and packages of other extras
            continue
        if not SpecifierSet(found.get("Requires-Python", "")).contains(oldest):
            refused.append(line)
    assert refused == []
