"""Commands of models: what they write, and what they refuse in one sentence."""

import json
import tarfile
from pathlib import Path

import pytest
import yaml

from bigbird_dna.config import load_config
from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.model.catalog import Published
from bigbird_dna.model.directory import save
from bigbird_dna.model.settings import PretrainingSettings
from tests.cli.command import Run, refused, silent
from tests.registry.shelf import installed as installed
from tests.registry.shelf import make_toy, write_list
from tests.registry.shelf import shelf as shelf
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer


def test_bins_that_are_no_data_set(run: Run, tiny_config: Path, tmp_path: Path) -> None:
    reference = Path(load_config(tiny_config).results) / "genome/reference.fa.gz"
    words = [
        "prepare filter-bins",
        tmp_path,
        "--reference",
        reference,
        "-o",
        tmp_path.parent / "kept",
    ]
    refused(run(*words, "--similarity", 0.5), 1, tmp_path)


# `fetch-model`, `model to-float16` and `model package` on the command line, and models by their names


def test_from_a_training_to_a_list_and_back(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/files/model-catalog.md says it."""
    monkeypatch.chdir(tmp_path)
    make_toy(Path("trained"))
    assert silent(run)("model to-float16", "trained", "-o", "small").code == 0
    result = run(
        *(
            "model package",
            "small",
            "-o",
            "toy.tar",
            "--name",
            "toy",
            "--license",
            "CC0-1.0",
        ),
        *("--description", "A toy: of the tests", "--command", "make demo"),
    )
    assert result.code == 0, result
    Path("models.yaml").write_text(result.out)
    with tarfile.open("toy.tar") as archive:
        archive.extraction_filter = getattr(
            tarfile, "data_filter", None
        )  # not before Python 3.11.4
        archive.extractall("models")
    entry = yaml.safe_load(result.out)["toy"]
    assert (entry["task"], entry["license"], entry["where"]) == (
        "promoter",
        "CC0-1.0",
        "toy",
    )
    result = silent(run)(
        "fetch-model", "toy", "-o", "fetched", "--catalog", "models.yaml"
    )
    assert result.code == 0, result
    assert "license: CC0-1.0" in result.err and "fetched/MODEL_CARD.md" in result.err
    for name in ("model.safetensors", "config.json", "metrics.json", "training.jsonl"):
        assert Path("fetched", name).read_bytes() == Path("small", name).read_bytes()
    card = Path("fetched/MODEL_CARD.md").read_text()
    assert "# toy\n\nA toy: of the tests\n" in card and "$ make demo\n" in card


def test_the_list_is_told(run: Run, installed: Path) -> None:
    for result in (
        run("fetch-model", "--list"),
        run("fetch-model", "--list", "--catalog", installed),
    ):
        assert (result.code, result.err) == (0, "")
        header, row = (line.split("\t") for line in result.out.splitlines())
        assert header == ["#name", "task", "MB", "from", "license", "description"]
        assert row == ["toy", "promoter", "0.1", "bundled", "free for all", "A toy"]
    assert not list(Path().iterdir())


def test_commands_take_the_name_of_a_bundled_model(run: Run, installed: Path) -> None:
    write_fasta(Path("x.fa.gz"), [("one", random_dna(300, 1))])
    for words in (
        ["score-promoters", "toy", "x.fa.gz"],
        ["model to-float16", "toy", "-o", "a"],
        ["export-hf", "toy", "b"],
    ):
        assert run(*words).code == 0
    assert run("model extend-context", "toy", "-o", "c", "--positions", 128).code == 0
    assert json.loads(Path("c/provenance.json").read_text())["contigs"] == [
        "chrI",
        "chr_II",
    ]


def test_a_named_model_is_an_input_that_is_not_replaced(
    run: Run, installed: Path
) -> None:
    bundled = installed.parent / "models/toy"
    for words in (
        ["model to-float16", "toy", "-o", bundled],
        ["export-hf", "toy", bundled],
        ["model extend-context", "toy", "-o", bundled, "--positions", 128],
        ["fetch-model", "toy", "-o", bundled],
    ):
        refused(run(*words), 2, bundled)


def test_faults(run: Run, installed: Path) -> None:
    refused(run("fetch-model"), 2)
    refused(run("fetch-model", "tay"), 2)
    refused(run("fetch-model", "toy", "--list"), 2)
    refused(run("fetch-model", "toy", "--catalog", "none.yaml"), 2)
    refused(run("score-promoters", "tay", "x.fa"), 1)
    words = (
        "model package",
        installed.parent / "made",
        "-o",
        "x.tar",
        "--license",
        "free",
    )
    refused(run(*words, "--description", "a\nb"), 2)
    refused(run(*words, "--description", "a", "--name", "a/b"), 2)
    entry = Published(installed).models["toy"].model_dump() | {
        "where": ["http://127.0.0.1:9/toy.tar"]
    }
    write_list(installed, {"toy": entry})
    refused(
        run("fetch-model", "toy", "--catalog", installed),
        1,
        "toy",
        entry["where"][0],
        after_log=True,
    )
    refused(
        run("score-promoters", "toy", "x.fa"), 1
    )  # of the package's list now, and has to be fetched
    assert not [one for one in Path().rglob("*") if one.name != "models"]


def test_models_of_next_tokens_cannot_be_exported(run: Run, tmp_path: Path) -> None:
    tokenizer = small_tokenizer()
    config = small_encoder(tokenizer.vocabulary, max_length=64, causal=True)
    model = random_model(
        tokenizer, config, PretrainingSettings(next_sentence=False, context=48)
    )
    save(tmp_path / "causal", model, {}, {}, {})
    refused(
        run("export-hf", tmp_path / "causal", tmp_path / "hf", "--code", "never"), 1
    )
