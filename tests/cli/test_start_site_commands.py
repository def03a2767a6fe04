"""Commands with a model of start sites: what fits it works, and the others say why not."""

from pathlib import Path

import pandas as pd
import pytest

from bigbird_dna.model.directory import save
from tests.cli.command import Run, frame, refused
from tests.conftest import REPOSITORY
from tests.toys import VCF, random_dna, start_site_model


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("commands")
    record = {
        "configuration": {"genome": {"assembly": "custom", "test": ["two"]}},
        "promoters": "sites.sga",
    }
    save(home / "model", start_site_model(), record, {}, {})
    (home / "genome.fa").write_text(f">a\n{random_dna(400, 1)}\n")
    (home / "x.bed").write_text("a\t100\t130\n")
    (home / "x.vcf").write_text(VCF)
    return home


def test_commands_for_every_model(run: Run, home: Path, tmp_path: Path) -> None:
    result = run("model show", home / "model")
    assert (result.code, result.err) == (0, "")
    rows = dict(line.split("  ", 1) for line in result.out.splitlines() if "  " in line)
    shown = {label.strip(): text.strip() for label, text in rows.items()}
    assert shown["task"] == "start sites of promoters"
    assert shown["window"].startswith("120 bp, predicts start sites at every base")
    assert (shown["promoters"], shown["held out for testing"]) == ("sites.sga", "two")

    output = tmp_path / "vectors.parquet"
    assert run("embed", home / "model", home / "genome.fa", "-o", output).code == 0
    assert len(pd.read_parquet(output)) == 1


def test_commands_for_other_models_say_what_this_one_is(
    run: Run, home: Path, tmp_path: Path
) -> None:
    model, genome = home / "model", home / "genome.fa"
    output = ("-o", tmp_path / "out.tsv")
    reference = ("--reference", genome)
    for named, *words in (
        ("start-sites", "predict-tracks", model, home / "x.bed", *reference, *output),
        ("start-sites", "score-sequences", model, genome, *output),
        ("HuggingFace's BigBird", "export-hf", model, tmp_path / "out.tsv"),
    ):
        refused(run(*words), 1, named)
    variants = ("score-variants", model, home / "x.vcf", *reference, *output)
    for option in (("--tracks", "*"), ("--offsets", 2), ("--calibrated",)):
        refused(run(*variants, *option), 2, option[0].strip("-"))
    scores = ("score-promoters", model, genome, *output)
    refused(run(*scores, "--calibrated"), 2, "call-promoters")
    refused(run("call-promoters", model, genome, *output), 1, "calls.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["demo", "yeast"])
def test_the_memory_of_a_training_is_planned(run: Run, name: str) -> None:
    result = run("plan", REPOSITORY / f"workflow/config/{name}.yaml")
    assert result.code == 0, result.err
    assert "promoters.dense" in {*frame(result.out).iloc[:, 0]}
