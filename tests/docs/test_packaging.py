"""What is installed, and what is pinned."""

import re
import tomllib
from importlib import metadata
from importlib.resources import files
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from tests.conftest import REPOSITORY


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
    assert set(project["tool"]["setuptools"]["packages"]) == found | {"bigbird_dna.resources"}


def test_data_files_are_installed(project: dict[str, Any]) -> None:
    resources = REPOSITORY / "resources"
    patterns = project["tool"]["setuptools"]["package-data"]["bigbird_dna.resources"]
    packed = {path for pattern in patterns for path in resources.glob(pattern)}
    data = {path for path in resources.rglob("*") if path.suffix in (".yaml", ".json", ".tsv")}
    data |= {path for path in (resources / "models").rglob("*") if path.is_file()}
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
    others = {path for path in package.rglob("*") if path.is_file() and path.suffix != ".py"}
    assert packed == {path for path in others if "__pycache__" not in path.parts}


def test_constraints_pin_what_is_needed(project: dict[str, Any]) -> None:
    lines = [
        line for line in (REPOSITORY / "constraints.txt").read_text().splitlines() if not line.startswith("#")
    ]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line) for line in lines)
    pinned = {_name(line): line for line in lines}
    assert len(pinned) == len(lines)
    extras = project["project"]["optional-dependencies"]
    wanted = project["project"]["dependencies"] + extras["dev"] + extras["docs"] + extras["slurm"]
    assert {_name(requirement) for requirement in wanted} <= set(pinned)
    assert pinned["torch"] == "torch==2.13.0"


def test_pinned_versions_install_on_the_oldest_python(project: dict[str, Any]) -> None:
    oldest = project["project"]["requires-python"].removeprefix(">=") + ".0"
    refused = []
    for line in (REPOSITORY / "constraints.txt").read_text().splitlines():
        try:
            found = metadata.metadata(line.partition("==")[0])
        except metadata.PackageNotFoundError:  # comments, and the packages of an extra that isn't installed
            continue
        if not SpecifierSet(found.get("Requires-Python", "")).contains(oldest):
            refused.append(line)
    assert refused == []


def test_licence_is_the_one_declared(project: dict[str, Any]) -> None:
    assert project["project"]["license"] == "Apache-2.0"
    text = (REPOSITORY / "LICENSE").read_text()
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text
