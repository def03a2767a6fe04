"""Cards of models say what the directory's files say, as Markdown that shows it."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bigbird_dna.calibration.maps import FILE, CalibratedTrack, Calibration, Platt, write_calibration
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import UsageError
from bigbird_dna.model.directory import load
from bigbird_dna.registry.card import Publication, model_card
from bigbird_dna.registry.change import compact_model
from bigbird_dna.registry.publishing import publish_model
from tests.golden.messages import fails, message
from tests.registry.shelf import make_toy, publish
from tests.toys import update_json


def card(model: Path, *commands: str) -> str:
    return model_card(load(model), Publication("toy", "A toy | of tests", "CC0 <free>", commands))


def tables(text: str) -> list[list[str]]:
    """Cells of all rows of tables; a row whose cells aren't separated as the header's would be another."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.replace("\\|", "¦").strip("|").split("|")] for row in rows]


@pytest.mark.parametrize("task", ["pretraining", "promoter", "chromatin"])
def test_it_has_what_the_files_have(tmp_path: Path, task: str) -> None:
    model = make_toy(tmp_path / "toy", task)
    text = card(model)
    for line in filter(None, text.splitlines()):
        if not line.startswith("| Made with"):  # versions differ
            message(line)
    rows = {row[0]: row[1:] for row in tables(text)}
    assert rows["Parameters"] == [f"{load(model).parameters:,}"]
    assert rows["Weights"][0].endswith(f"SHA-256 `{checksum(model / 'model.safetensors')}`")
    assert {len(row) for row in tables(text)} <= {2, 3}


def test_it_says_what_a_calibration_was_fitted_on(tmp_path: Path) -> None:
    model = make_toy(tmp_path / "toy", "promoter")
    assert "Calibrated" not in card(model)
    fitted, weights = (
        CalibratedTrack(map=Platt(slope=0.6, intercept=-0.8), positives=40, negatives=60),
        checksum(model / "model.safetensors"),
    )
    known = {"split": "valid", "windows": 1100, "contigs": ["c_1", "d"], "further_negatives": 20}
    for on in (known, {}, {"windows": None, "contigs": 70}):
        write_calibration(model / FILE, Calibration.of({None: fitted}, on), weights)
        (line,) = (line for line in card(model).splitlines() if line.startswith("* Calibrated"))
        message(line, *(("1,100", "c\\_1, d", 20) if on == known else ()))


def test_commands_stand_as_they_are(tmp_path: Path) -> None:
    model = make_toy(tmp_path / "toy")
    commands = ("bigbird-dna pretrain *.yaml", "cat a_b_c | head")
    block = card(model, *commands).split("### How to get them again\n")[1].split("## Limits")[0]
    assert block.strip() == "```console\n$ bigbird-dna pretrain *.yaml\n$ cat a_b_c | head\n```"
    assert "bigbird-dna finetune-promoter CONFIG" in card(model)


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for task in ("pretraining", "promoter", "chromatin"):
        make_toy(tmp_path / "models/toy", task)
        code = card(Path("models/toy")).split("```python\n")[1].split("```")[0]
        exec(code, {})


def test_a_compacted_model_says_so(tmp_path: Path) -> None:
    compact_model(make_toy(tmp_path / "toy"), tmp_path / "small")
    text = card(tmp_path / "small")
    change = json.loads((tmp_path / "small/provenance.json").read_text())["compacted_from"]["change"]
    assert "in float16 and float32" in text
    (line,) = (line for line in text.splitlines() if "float16: " in line)
    assert f" {change['largest']:.4g} " in line and " 16 " in line


def test_regions_that_were_pretrained_on_are_named(tmp_path: Path) -> None:
    model = make_toy(tmp_path / "toy")
    regions = {"contigs": ["chrI", "chrII"], "stretches": ["chrI:1-500", "chrI:901-950"]}
    update_json(model / "provenance.json", **regions)
    assert "chrII, chrI:1-500, chrI:901-950 (12" in card(model)


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    """Those of a model's files: no markup, no line and no terminal's command comes of them."""
    model = make_toy(tmp_path / "toy")
    evil = "a|b\n# c <script>\x1b[31m [x](y) `z`"
    genome = {"assembly": evil, "valid": evil, "exclude": [1, None, {}], "reference": "sacCer3.reference"}
    told = dict.fromkeys(("stretches", "pretrained_sha256", "imported_from"), evil)
    told |= {"contigs": [evil] * 30, "configuration": {"genome": genome}, "software": {"torch": evil}}
    update_json(model / "provenance.json", **told)
    update_json(model / "metrics.json", **{evil: 1.5, "note": evil, "split": evil, "b": [1], "c": None})
    text = card(model)
    assert all(line.isprintable() for line in text.splitlines())
    assert "<script" not in text.replace("\\<script", "") and "\n# c" not in text
    assert "and 10 more" in text
    assert {len(row) for row in tables(text)} == {2, 3}


@pytest.mark.parametrize("wrong", [[], 7, "x", {"genome": []}, {"genome": {"reference": {}}}, None])
def test_other_provenance_is_passed_over(tmp_path: Path, wrong: Any) -> None:
    model = make_toy(tmp_path / "toy")
    for key in ("configuration", "data", "compacted_from", "software"):
        update_json(model / "provenance.json", **{key: wrong})
    assert card(model).startswith("# toy\n")


def test_the_card_is_in_the_archive_and_not_in_the_model(tmp_path: Path) -> None:
    model = make_toy(tmp_path / "toy")
    before = {one.name: one.read_bytes() for one in model.iterdir()}
    entry = publish(model, tmp_path / "toy.tar", commands=("make demo",))
    assert {one.name: one.read_bytes() for one in model.iterdir()} == before
    assert (tmp_path / "toy.tar").stat().st_size == entry["size"]
    assert checksum(tmp_path / "toy.tar") == entry["sha256"]
    with tarfile.open(tmp_path / "toy.tar") as archive:
        file = archive.extractfile(f"toy/{entry['card']}")
        assert file is not None and "$ make demo\n" in file.read().decode()
    assert publish(model, tmp_path / "again.tar", commands=("make demo",)) == entry


@pytest.mark.parametrize(
    "fields",
    [
        *({"name": "../x"}, {"name": "x" * 49}, {"description": ""}, {"licence": "a\nb"}),
        {"commands": ("x", "```")},
    ],
)
def test_texts_that_a_list_or_card_cannot_hold(tmp_path: Path, fields: dict[str, Any]) -> None:
    model = make_toy(tmp_path / "toy")
    with fails(UsageError):
        publish_model(model, tmp_path / "x.tar", Publication("toy", "A toy", "free")._replace(**fields))
    with fails(UsageError):
        publish_model(model, model / "x.tar", Publication("toy", "A toy", "free"))
    assert not (tmp_path / "x.tar").exists()
