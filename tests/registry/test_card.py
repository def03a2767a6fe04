"""Cards of models say what the directory's files say, as Markdown that shows it."""

import json
import tarfile
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import bigbird_dna
from bigbird_dna.calibration.call_precision import FILE as CALLS
from bigbird_dna.calibration.call_precision import fit_calls
from bigbird_dna.calibration.calls import MatchedCalls
from bigbird_dna.calibration.maps import (
    FILE,
    CalibratedTrack,
    Calibration,
    Platt,
    write_calibration,
)
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import MARKER
from bigbird_dna.errors import UsageError
from bigbird_dna.genome.chromatin.tracks import TSS_TRACKS
from bigbird_dna.huggingface.exchange import export_huggingface, import_huggingface
from bigbird_dna.model.card import Publication, model_card
from bigbird_dna.model.directory import load, save
from bigbird_dna.model.settings import NamedTrack
from bigbird_dna.model.weights import HALF_LOSS, fits_half
from bigbird_dna.registry.change import compact_model
from bigbird_dna.registry.publishing import publish_model
from tests.golden.messages import fails, message
from tests.registry.shelf import PROVENANCE, SETTINGS, make_toy, publish
from tests.toys import (
    random_dna,
    random_model,
    small_encoder,
    small_tokenizer,
    update_json,
)


def card(model: Path, *commands: str) -> str:
    return model_card(
        load(model), Publication("toy", "A toy | of tests", "CC0 <free>", commands)
    )


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return make_toy(tmp_path / "toy")


def tables(text: str) -> list[list[str]]:
    """Cells of all rows of tables; a row whose cells aren't separated as the header's would be another."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [
        [cell.strip() for cell in row.replace("\\|", "¦").strip("|").split("|")]
        for row in rows
    ]


@pytest.mark.parametrize("task", SETTINGS)
def test_it_has_what_the_files_have(tmp_path: Path, task: str) -> None:
    model = make_toy(tmp_path / "toy", task)
    text = card(model)
    for line in filter(None, text.splitlines()):
        if not line.startswith("| Made with"):  # versions differ
            message(line)
    rows = {row[0]: row[1:] for row in tables(text)}
    assert rows["Parameters"] == [f"{load(model).parameters:,}"]
    assert rows["Weights"][0].endswith(
        f"SHA-256 `{checksum(model / 'model.safetensors')}`"
    )
    assert {len(row) for row in tables(text)} <= {2, 3}


def test_a_model_of_start_sites_is_described_by_its_calls(tmp_path: Path) -> None:
    tracks = tuple(
        NamedTrack(track=one, group="TSS", opposite=other)
        for one, other in permutations(TSS_TRACKS.values())
    )
    settings = SETTINGS["chromatin"].model_copy(update={"tracks": tracks, "members": 1})
    encoder = small_encoder(layers=2, max_length=64, random_blocks=1)
    model = random_model(small_tokenizer(), encoder, settings)
    metrics = {
        "calls": {
            "test": {"precision": 0.75, "precision_low": 0.5, "precision_high": 0.875}
        }
    }
    save(
        tmp_path / "toy",
        model,
        PROVENANCE | {"promoters": "sacCer3.promoters"},
        metrics,
        {},
    )
    text = card(tmp_path / "toy")
    assert ["calls precision", "test", "0.75 (0.5–0.875)"] in tables(text)
    message(
        text,
        "40 bp, predicts start sites in bins of 10 bp, on both strands",
        "sacCer3.promoters: ",
    )
    message(
        text, "calibrate-calls", "$ bigbird-dna score-promoters models/toy genome.fa.gz"
    )
    assert (
        "-o calls.bed" not in text
        and "assays" not in text
        and "Expected precision of" not in text
    )
    calls = MatchedCalls(
        np.arange(40.0)[::-1] / 40, *[np.tile([1, -1], 20)] * 2, *[np.arange(40)] * 2
    )
    sizes = {"stride": 10, "suppress": 20, "within": 10, "megabases": 1.0}
    fitted = fit_calls(calls, **sizes, fitted_on={"contigs": ["c_1"]})
    assert fitted is not None
    write_calibration(
        tmp_path / "toy" / CALLS, fitted, checksum(tmp_path / "toy/model.safetensors")
    )
    message(
        card(tmp_path / "toy"),
        "-o calls.bed",
        "Expected precision of calls",
        "fitted on c\\_1",
    )


def test_it_says_what_a_calibration_was_fitted_on(toy: Path) -> None:
    assert "Calibrated" not in card(toy)
    fitted = CalibratedTrack(
        map=Platt(slope=0.6, intercept=-0.8), positives=40, negatives=60
    )
    weights = checksum(toy / "model.safetensors")
    known = {
        "split": "valid",
        "windows": 1100,
        "contigs": ["c_1", "d"],
        "further_negatives": 20,
    }
    for on in (known, {}, {"windows": None, "contigs": 70}):
        write_calibration(toy / FILE, Calibration.of({None: fitted}, on), weights)
        (line,) = (
            line for line in card(toy).splitlines() if line.startswith("* Calibrated")
        )
        message(line, *(("1,100", "c\\_1, d", 20) if on == known else ()))


def test_commands_stand_as_they_are(toy: Path) -> None:
    commands = ("bigbird-dna pretrain *.yaml", "cat a_b_c | head")
    block = (
        card(toy, *commands)
        .split("### How to reproduce them\n")[1]
        .split("## Limits")[0]
    )
    assert (
        block.strip()
        == "```console\n$ bigbird-dna pretrain *.yaml\n$ cat a_b_c | head\n```"
    )
    assert "bigbird-dna finetune-promoter CONFIG" in card(toy)


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for task in SETTINGS:
        make_toy(tmp_path / "models/toy", task)
        code = card(Path("models/toy")).split("```python\n")[1].split("```")[0]
        exec(code, {})


def test_a_compacted_model_says_so(small: Path) -> None:
    text = card(small)
    change = json.loads((small / "provenance.json").read_text())["compacted_from"][
        "change"
    ]
    assert "in float16 and float32" in text
    (line,) = (line for line in text.splitlines() if "float16: " in line)
    assert f" {change['largest']:.4g} " in line and " 16 " in line


def test_regions_that_were_pretrained_on_are_named(toy: Path) -> None:
    regions = {
        "contigs": ["chrI", "chrII"],
        "stretches": ["chrI:1-500", "chrI:901-950"],
    }
    update_json(toy / "provenance.json", **regions)
    assert "chrII, chrI:1-500, chrI:901-950 (12" in card(toy)


def test_hostile_texts_stay_texts(toy: Path) -> None:
    """Those of a model's files: no markup, no line and no terminal's command comes of them."""
    evil = "a|b\n# c <script>\x1b[31m [x](y) `z`"
    genome = {
        "assembly": evil,
        "valid": evil,
        "exclude": [1, None, {}],
        "reference": "sacCer3.reference",
    }
    told = dict.fromkeys(("stretches", "pretrained_sha256", "imported_from"), evil)
    told |= {
        "contigs": [evil] * 30,
        "configuration": {"genome": genome},
        "software": {"torch": evil},
    }
    update_json(toy / "provenance.json", **told)
    update_json(
        toy / "metrics.json",
        **{evil: 1.5, "note": evil, "split": evil, "b": [1], "c": None},
    )
    text = card(toy)
    assert all(line.isprintable() for line in text.splitlines())
    assert "<script" not in text.replace("\\<script", "") and "\n# c" not in text
    assert "and 10 more" in text
    assert {len(row) for row in tables(text)} == {2, 3}


@pytest.mark.parametrize(
    "wrong", [[], 7, "x", {"genome": []}, {"genome": {"reference": {}}}, None]
)
def test_other_provenance_is_passed_over(toy: Path, wrong: Any) -> None:
    for key in ("configuration", "data", "compacted_from", "software"):
        update_json(toy / "provenance.json", **{key: wrong})
    assert card(toy).startswith("# toy\n")


def test_the_card_is_in_the_archive_and_not_in_the_model(
    toy: Path, tmp_path: Path
) -> None:
    before = {one.name: one.read_bytes() for one in toy.iterdir()}
    entry = publish(toy, tmp_path / "toy.tar", commands=("make demo",))
    assert {one.name: one.read_bytes() for one in toy.iterdir()} == before
    assert (tmp_path / "toy.tar").stat().st_size == entry["size"]
    assert checksum(tmp_path / "toy.tar") == entry["sha256"]
    with tarfile.open(tmp_path / "toy.tar") as archive:
        file = archive.extractfile(f"toy/{entry['card']}")
        assert file is not None and "$ make demo\n" in file.read().decode()
    assert publish(toy, tmp_path / "again.tar", commands=("make demo",)) == entry


@pytest.mark.parametrize(
    "fields",
    [
        *(
            {"name": "../x"},
            {"name": "x" * 49},
            {"description": ""},
            {"license": "a\nb"},
        ),
        {"commands": ("x", "```")},
    ],
)
def test_texts_that_a_list_or_card_cannot_hold(
    toy: Path, tmp_path: Path, fields: dict[str, Any]
) -> None:
    with fails(UsageError):
        publish_model(
            toy,
            tmp_path / "x.tar",
            Publication("toy", "A toy", "free")._replace(**fields),
        )
    with fails(UsageError):
        publish_model(toy, toy / "x.tar", Publication("toy", "A toy", "free"))
    assert not (tmp_path / "x.tar").exists()


# Models in float16: half the size, nearly the same answers, and as safe as before


@pytest.fixture
def small(toy: Path, tmp_path: Path) -> Path:
    compact_model(toy, tmp_path / "small")
    return tmp_path / "small"


def outputs(model: Path) -> Any:
    opened = bigbird_dna.load(model)
    sequences = [random_dna(40, seed) for seed in range(20)]
    return (
        opened.embed(sequences)
        if opened.task == "pretraining"
        else opened.predict(sequences)
    )


@pytest.mark.parametrize("task", SETTINGS)
def test_it_answers_nearly_as_before(tmp_path: Path, task: str) -> None:
    before = make_toy(tmp_path / "toy", task, scale=1)
    found = compact_model(before, tmp_path / "small")
    assert (
        found.change is not None
        and 0 < found.change.largest < 0.003 * found.change.typical
    )
    assert 0 < np.abs(outputs(before) - outputs(tmp_path / "small")).max() < 0.003
    sizes = [
        (one / "model.safetensors").stat().st_size
        for one in (before, tmp_path / "small")
    ]
    assert sizes[1] < 0.75 * sizes[0]


def test_what_is_loaded_is_what_is_stored_in_float32(toy: Path, small: Path) -> None:
    before, after = (load(one).network.state_dict() for one in (toy, small))
    stored = load_file(small / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {
        torch.float16,
        torch.float32,
    }
    for name, tensor in after.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, stored[name].float())
        if tensor.dim() < 2:
            assert stored[name].dtype == torch.float32 and torch.equal(
                tensor, before[name]
            )
        else:
            assert torch.equal(tensor, before[name].half().float())


def test_figures_log_and_origin_stay(toy: Path, tmp_path: Path) -> None:
    (toy / "MODEL_CARD.md").write_text("of other weights")
    small = tmp_path / "small"
    compact_model(toy, small)
    names = {one.name for one in toy.iterdir()} - {"MODEL_CARD.md"}
    assert {one.name for one in small.iterdir()} == names
    for name in ("metrics.json", "training.jsonl", "config.json", "tokenizer.model"):
        assert (small / name).read_bytes() == (toy / name).read_bytes(), name
    old, new = (
        json.loads((one / "provenance.json").read_text()) for one in (toy, small)
    )
    made = new.pop("compacted_from")
    assert (made["model"], made["sha256"]) == ("toy", load(toy).sha256)
    assert 0 < made["float16_tensors"] < made["tensors"]
    assert new.pop("files") != old.pop("files") and new == old
    assert (small / MARKER).is_file()


def test_the_same_model_gives_the_same_bytes(
    toy: Path, small: Path, tmp_path: Path
) -> None:
    compact_model(toy, tmp_path / "other")
    one, other = (
        [file.read_bytes() for file in sorted(each.iterdir())]
        for each in (small, tmp_path / "other")
    )
    assert one == other


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e3, 60_000.0])
def test_a_tensor_fits_if_it_loses_little(scale: float) -> None:
    """Against what rounding does to the numbers themselves."""
    tensor = torch.from_numpy(
        np.random.default_rng(1).uniform(-scale, scale, (30, 40)).astype(np.float32)
    )
    given = tensor.double().numpy()
    lost = np.sqrt(np.mean((given.astype(np.float16).astype(float) - given) ** 2))
    assert fits_half(tensor) == (lost <= HALF_LOSS * np.sqrt(np.mean(given**2)))
    assert fits_half(tensor) == (scale > 1e-5)


@pytest.mark.parametrize("value", [65_520.0, 1e30, float("inf"), float("nan")])
def test_one_number_beyond_float16_keeps_its_tensor(value: float) -> None:
    assert fits_half(torch.ones(5, 5)) and not fits_half(
        torch.ones(5, 5).fill_diagonal_(value)
    )


def test_tensors_that_lose_too_much_stay(toy: Path, tmp_path: Path) -> None:
    model = load(toy)
    weights = model.network.state_dict()
    large, small, *_ = (name for name, tensor in weights.items() if tensor.dim() == 2)
    weights[large][0, 0], weights[small][:] = 1e6, 1e-9
    save(tmp_path / "odd", model, {}, {}, {})
    compact_model(tmp_path / "odd", tmp_path / "small")
    stored = load_file(tmp_path / "small/model.safetensors")
    for name in (large, small):
        assert stored[name].dtype == torch.float32 and torch.equal(
            stored[name], weights[name]
        )
    assert torch.float16 in {tensor.dtype for tensor in stored.values()}


def test_a_model_that_is_compact_already(small: Path, tmp_path: Path) -> None:
    for output in (tmp_path / "smaller", small):
        with fails(UsageError):
            compact_model(small, output)
    assert not (tmp_path / "smaller").exists()


def test_it_goes_to_huggingface_and_back(small: Path, tmp_path: Path) -> None:
    export_huggingface(small, tmp_path / "hf")
    import_huggingface(tmp_path / "hf", tmp_path / "back", "none")
    before, after = (
        load(one).network.state_dict() for one in (small, tmp_path / "back")
    )
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    # What an imported model keeps beside its weights stays.
    compact_model(tmp_path / "back", tmp_path / "again")
    names = (
        {one.name for one in (tmp_path / name).iterdir()} for name in ("back", "again")
    )
    assert next(names) == next(names)
    load(tmp_path / "again")
