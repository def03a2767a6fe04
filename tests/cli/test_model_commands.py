"""Commands of models: what they write, and what they refuse in one sentence."""

from pathlib import Path

from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.model.published import read_published
from tests.cli.command import Run, refused
from tests.registry.shelf import installed as installed
from tests.registry.shelf import shelf as shelf
from tests.registry.shelf import write_list
from tests.toys import random_dna

# `fetch-model` and `model show` on the command line, and models by their names


def test_a_model_is_shown(run: Run, installed: Path) -> None:
    result = run("model show", "toy")
    assert (result.code, result.err) == (0, "")
    rows = dict(line.split("  ", 1) for line in result.out.splitlines() if "  " in line)
    shown = {label.strip(): text.strip() for label, text in rows.items()}
    assert shown["window"] == "40 bp, the TSS after 30 bp"
    assert shown["pretrained on"] == "chrI, chr_II"
    assert shown["held out for testing"] == "chrVII"
    assert shown["test auroc"] == "0.625 (0.6 to 0.65)"
    refused(run("model show", "tay"), 1)


def test_the_list_is_told(run: Run, installed: Path) -> None:
    for result in (
        run("fetch-model", "--list"),
        run("fetch-model", "--list", "--catalog", installed),
    ):
        assert (result.code, result.err) == (0, "")
        header, row = (line.split("\t") for line in result.out.splitlines())
        assert header == ["name", "task", "from", "license", "description"]
        assert row == ["toy", "promoter", "bundled", "free for all", "A toy"]
    assert not list(Path().iterdir())


def test_commands_take_the_name_of_a_bundled_model(run: Run, installed: Path) -> None:
    write_fasta(Path("x.fa.gz"), [("one", random_dna(300, 1))])
    for words in (
        ["score-promoters", "toy", "x.fa.gz"],
        ["export-hf", "toy", "b"],
    ):
        assert run(*words).code == 0


def test_a_named_model_is_an_input_that_is_not_replaced(
    run: Run, installed: Path
) -> None:
    bundled = installed.parent / "models/toy"
    for words in (
        ["export-hf", "toy", bundled],
        ["fetch-model", "toy", "-o", bundled],
    ):
        refused(run(*words), 2, bundled)


def test_faults(run: Run, installed: Path) -> None:
    refused(run("fetch-model"), 2)
    refused(run("fetch-model", "tay"), 2)
    refused(run("fetch-model", "toy", "--list"), 2)
    refused(run("fetch-model", "toy", "--catalog", "none.yaml"), 2)
    refused(run("score-promoters", "tay", "x.fa"), 1)
    entry = read_published(installed)["toy"].model_dump() | {
        "urls": ["http://127.0.0.1:9/toy.tar"],
        "sha256": "0" * 64,
    }
    write_list(installed, {"toy": entry})
    refused(
        run("fetch-model", "toy", "--catalog", installed),
        1,
        "toy",
        entry["urls"][0],
        after_log=True,
    )
    refused(
        run("score-promoters", "toy", "x.fa"), 1
    )  # of the package's list now, and has to be fetched
    assert not [one for one in Path().rglob("*") if one.name != "models"]
