"""`fetch-model`, `model to-float16` and `model package` on the command line, and models by their names."""

import json
import tarfile
from pathlib import Path

import pytest
import yaml

from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.model import catalogue
from bigbird_dna.model.catalogue import Published
from tests.cli.command import Run, refused, silent
from tests.registry.shelf import make_shelf, make_toy, write_list
from tests.toys import random_dna


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package's list, with the bundled model "toy"; the working directory is beside it."""
    made = make_shelf(tmp_path / "shelf")
    published = Published(made)
    monkeypatch.setattr(catalogue, "load_published", lambda: published)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return made


def test_from_a_training_to_a_list_and_back(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/formats.md says it."""
    monkeypatch.chdir(tmp_path)
    make_toy(Path("trained"))
    assert silent(run)("model to-float16", "trained", "-o", "small").code == 0
    result = run(
        *("model package", "small", "-o", "toy.tar", "--name", "toy", "--licence", "CC0-1.0"),
        *("--description", "A toy: of the tests", "--command", "make demo"),
    )
    assert result.code == 0, result
    Path("models.yaml").write_text(result.out)
    with tarfile.open("toy.tar") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not before Python 3.11.4
        archive.extractall("models")
    entry = yaml.safe_load(result.out)["toy"]
    assert (entry["task"], entry["licence"], entry["where"]) == ("promoter", "CC0-1.0", "toy")
    result = silent(run)("fetch-model", "toy", "-o", "fetched", "--catalogue", "models.yaml")
    assert result.code == 0, result
    assert "licence: CC0-1.0" in result.err and "fetched/MODEL_CARD.md" in result.err
    for name in ("model.safetensors", "config.json", "metrics.json", "training.jsonl"):
        assert Path("fetched", name).read_bytes() == Path("small", name).read_bytes()
    card = Path("fetched/MODEL_CARD.md").read_text()
    assert "# toy\n\nA toy: of the tests\n" in card and "$ make demo\n" in card


def test_the_list_is_told(run: Run, shelf: Path) -> None:
    for result in (run("fetch-model", "--list"), run("fetch-model", "--list", "--catalogue", shelf)):
        assert (result.code, result.err) == (0, "")
        header, row = (line.split("\t") for line in result.out.splitlines())
        assert header == ["#name", "task", "MB", "from", "licence", "description"]
        assert row == ["toy", "promoter", "0.1", "bundled", "free for all", "A toy"]
    assert not list(Path().iterdir())


def test_the_default_place_is_in_models(run: Run, shelf: Path) -> None:
    assert silent(run)("fetch-model", "toy").code == 0
    assert Path("models/toy/config.json").is_file()


def test_commands_take_the_name_of_a_bundled_model(run: Run, shelf: Path) -> None:
    write_fasta(Path("x.fa.gz"), [("one", random_dna(300, 1))])
    tables = []
    for model in ("toy", shelf.parent / "models/toy"):
        result = run("score-promoters", model, "x.fa.gz", "--stride", 50)
        assert result.code == 0, result
        tables.append([line for line in result.out.splitlines() if not line.startswith("## command")])
    assert tables[0] == tables[1] and len(tables[0]) > 5
    for words in (["model to-float16", "toy", "-o", "a"], ["export-hf", "toy", "b"]):
        assert run(*words).code == 0
    assert run("model extend-context", "toy", "c", "--positions", 128).code == 0
    assert json.loads(Path("c/provenance.json").read_text())["contigs"] == ["chrI", "chr_II"]


def test_a_named_model_is_an_input_that_is_not_replaced(run: Run, shelf: Path) -> None:
    bundled = shelf.parent / "models/toy"
    for words in (
        ["model to-float16", "toy", "-o", bundled],
        ["export-hf", "toy", bundled],
        ["model extend-context", "toy", bundled, "--positions", 128],
        ["fetch-model", "toy", "-o", bundled],
    ):
        refused(run(*words), 2, bundled)


def test_faults(run: Run, shelf: Path) -> None:
    refused(run("fetch-model"), 2)
    refused(run("fetch-model", "tay"), 2)
    refused(run("fetch-model", "toy", "--list"), 2)
    refused(run("fetch-model", "toy", "--catalogue", "none.yaml"), 2)
    refused(run("score-promoters", "tay", "x.fa"), 1)
    words = ("model package", shelf.parent / "made", "-o", "x.tar", "--licence", "free")
    refused(run(*words, "--description", "a\nb"), 2)
    refused(run(*words, "--description", "a", "--name", "a/b"), 2)
    entry = Published(shelf).models["toy"].model_dump() | {"where": ["http://127.0.0.1:9/toy.tar"]}
    write_list(shelf, {"toy": entry})
    sentence = refused(run("fetch-model", "toy", "--catalogue", shelf), 1, after_log=True)
    assert "model toy can't be downloaded (http://127.0.0.1:9/toy.tar: " in sentence
    assert not [one for one in Path().rglob("*") if one.name != "models"]


def test_a_model_that_has_to_be_fetched_says_so(
    run: Run, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Published(shelf).models["toy"].model_dump() | {"where": ["http://127.0.0.1:9/toy.tar"]}
    published = Published(write_list(shelf, {"toy": entry}))
    monkeypatch.setattr(catalogue, "load_published", lambda: published)
    Path("x.fa").write_text(">a\nACGT\n")
    refused(run("score-promoters", "toy", "x.fa"), 1)
