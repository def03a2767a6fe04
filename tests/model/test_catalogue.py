"""The list of published models: what is no possible value is refused, and what is bundled is what it says."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from bigbird_dna.errors import ConfigError, UsageError
from bigbird_dna.model.catalogue import Published
from bigbird_dna.model.directory import load
from bigbird_dna.model.model import list_files
from bigbird_dna.registry.publishing import packed
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.toys import cases

ENTRY: dict[str, Any] = {
    "description": "A toy of the tests",
    "task": "promoter",
    "licence": "free",
    "size": 10240,
    "sha256": "0" * 64,
    "where": ["https://a/toy.tar", "ftp://b/toy.tar"],
    "card": "MODEL_CARD.md",
}
PACKAGE = Published(REPOSITORY / "resources/models.yaml")


def read(path: Path, entries: object) -> Published:
    path.write_text(yaml.safe_dump(entries, width=10_000))
    return Published(path)


def test_entries_are_read(tmp_path: Path) -> None:
    published = read(tmp_path / "models.yaml", {"toy": ENTRY, "own": ENTRY | {"where": "own-1"}})
    assert published["toy"].urls == ("https://a/toy.tar", "ftp://b/toy.tar")
    assert published.bundled("toy") is None
    assert published.bundled("own") == tmp_path / "models/own-1" and published["own"].urls == ()
    assert published["toy"].model_dump() == ENTRY | {"where": tuple(ENTRY["where"])}
    assert [line.split("\t")[:4] for line in published.lines()] == [
        ["#name", "task", "MB", "from"],
        ["own", "promoter", "0.0", "bundled"],
        ["toy", "promoter", "0.0", "address"],
    ]


IMPOSSIBLE: dict[str, list[object]] = {
    "description": ["", "a\nb"],
    "licence": [7],
    "task": ["promoters"],
    "size": [0, True, 1.5, 1 << 50],
    "sha256": ["0" * 63, "0" * 64 + "\n", "A" * 64],
    "where": [
        *("../x", "/x", ".", "https://a/x.tar", [], {"a": "b"}, None),
        *(["file:///etc/passwd"], ["https://a/b c"], [7]),
    ],
    "card": ["../card"],
    "sha": ["x"],
}


@pytest.mark.parametrize(("field", "value"), cases(IMPOSSIBLE))
def test_values_that_cannot_be(tmp_path: Path, field: str, value: object) -> None:
    path = tmp_path / "models.yaml"
    with fails(ConfigError, path, "toy", field) as caught:
        read(path, {"toy": ENTRY | {field: value}})
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("field", ENTRY)
def test_every_field_is_needed(tmp_path: Path, field: str) -> None:
    with fails(ConfigError, field):
        read(tmp_path / "models.yaml", {"toy": {k: v for k, v in ENTRY.items() if k != field}})


@pytest.mark.parametrize("text", ["- a", "a: 7", "a: {}\na: {}", "../a: {}", "a: [", "#" * 300_000])
def test_files_that_are_no_list(tmp_path: Path, text: str) -> None:
    (tmp_path / "models.yaml").write_text(text)
    with fails(ConfigError, tmp_path / "models.yaml"):
        Published(tmp_path / "models.yaml")


def test_a_list_of_comments_alone_is_empty(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text("# none yet\n")
    assert Published(tmp_path / "models.yaml").models == {}


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    for known in ("ba", ""):
        with fails(UsageError, "x", *known):
            read(tmp_path / "models.yaml", dict.fromkeys(known, ENTRY))["x"]


@pytest.mark.parametrize("name", [name for name, one in PACKAGE.models.items() if not one.urls])
def test_the_package_has_its_bundled_models(name: str) -> None:
    """As the list says: whole, small, of the task, described, and no file more."""
    entry, directory = PACKAGE[name], PACKAGE.bundled(name)
    assert directory is not None
    files = {file: directory / file for file in list_files(directory)}
    assert packed(name, files) == (entry.size, entry.sha256)
    assert entry.size < 10_500_000
    assert entry.card in files and load(directory).task == entry.task


def test_nothing_is_bundled_without_an_entry() -> None:
    home = REPOSITORY / "resources/models"
    found = {one.name for one in home.iterdir()} if home.is_dir() else set()
    assert found == {one.where for one in PACKAGE.models.values() if not one.urls}
