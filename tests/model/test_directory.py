"""Model directories: what is saved is loaded, and damage is named."""

import json
import math
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import bigbird_dna
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import MARKER
from bigbird_dna.errors import ModelError
from bigbird_dna.model.directory import (
    load,
    load_chromatin_model,
    read_encoder_config,
    save,
)
from bigbird_dna.model.settings import (
    ChromatinSettings,
    NamedTrack,
    PromoterSettings,
    SequenceSettings,
)
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.golden.messages import fails
from tests.toys import cases, random_model, small_encoder

SETTINGS = PromoterSettings(
    upstream=30, downstream=10, pooling="mean", jitter=4, views=2
)
CHECKED = ("config.json", "model.safetensors", "tokenizer.model")


def edit(path: Path, **keys: Any) -> None:
    """Change keys of a JSON file, those of its "encoder" by the name encoder_…."""
    values = json.loads(path.read_text())
    for key, value in keys.items():
        if key.startswith("encoder_"):
            values["encoder"][key.removeprefix("encoder_")] = value
        else:
            values[key] = value
    path.write_text(json.dumps(values))


def sign(model: Path) -> None:
    """Record the checksums anew, as whoever makes such a model would."""
    edit(
        model / "provenance.json",
        files={name: checksum(model / name) for name in CHECKED},
    )


def drop(model: Path, *keys: str) -> None:
    """Take a key, or one in its object, out of the record."""
    values = json.loads((model / "provenance.json").read_text())
    inner = values
    for key in keys[:-1]:
        inner = inner[key]
    del inner[keys[-1]]
    (model / "provenance.json").write_text(json.dumps(values))


def store(model: Path, weights: dict[str, torch.Tensor]) -> None:
    """Replace the weights, and their checksum."""
    save_file(weights, model / "model.safetensors")
    sign(model)


def describe(model: Path, **keys: Any) -> None:
    """Change the description, and its checksum."""
    edit(model / "config.json", **keys)
    sign(model)


@pytest.fixture
def saved(tmp_path: Path, tokenizer: DnaTokenizer) -> Path:
    config = small_encoder(tokenizer.vocabulary, hidden=8, max_length=64)
    model, log = random_model(tokenizer, config, SETTINGS, seed=4), tmp_path / "log"
    log.write_text("{}\n")
    save(
        tmp_path / "model", model, {"seed": 4}, {"auroc": 0.5}, {"training.jsonl": log}
    )
    return tmp_path / "model"


def test_round_trip_is_bit_identical(saved: Path, tokenizer: DnaTokenizer) -> None:
    model = bigbird_dna.load(saved)
    original = random_model(
        tokenizer, model.config, SETTINGS, seed=4
    ).network.state_dict()
    for name, value in model.network.state_dict().items():
        assert torch.equal(value, original[name]), name
    assert model.settings == SETTINGS and model.tokenizer.sha256 == tokenizer.sha256
    assert not model.network.training and len(model.sha256) == 64
    names = {path.name for path in saved.iterdir()}
    assert names == {
        *("config.json", "model.safetensors", "tokenizer.model", "provenance.json"),
        *("metrics.json", "training.jsonl", MARKER),
    }
    assert (
        json.loads((saved / "provenance.json").read_text())["software"][
            "random_blocks_seed"
        ]
        == 0
    )


def test_loading_leaves_the_random_generator_alone(saved: Path) -> None:
    torch.manual_seed(9)
    expected = torch.rand(3)
    torch.manual_seed(9)
    load(saved)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "noise"])
def test_a_damaged_file_is_named(
    saved: Path, name: str, damage: str, signed: bool
) -> None:
    """Whether it is its checksum that says so, or what reads it."""
    path = saved / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(
            {"empty": b"", "cut": content[: len(content) // 2], "noise": b"\xff" * 99}[
                damage
            ]
        )
        if signed:
            sign(saved)
    with fails(ModelError):
        load(saved)


def test_a_changed_bit_is_always_found(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(5)
    for name, flips in (
        ("model.safetensors", 1000),
        ("config.json", 100),
        ("tokenizer.model", 100),
    ):
        path = saved / name
        content = path.read_bytes()
        for _ in range(flips):
            place, bit = draw.randrange(len(content)), draw.randrange(8)
            path.write_bytes(
                content[:place]
                + bytes([content[place] ^ 1 << bit])
                + content[place + 1 :]
            )
            with fails(ModelError, name):
                load(saved)
        path.write_bytes(content)
    load(saved)
    assert capsys.readouterr().err == ""


def test_what_was_imported_beside_the_weights_is_looked_at_too(
    saved: Path, tmp_path: Path, tokenizer: DnaTokenizer
) -> None:
    model = load(saved)
    save_file({"x": torch.zeros(3)}, tmp_path / "more.safetensors")
    extra = {
        "more.safetensors": tmp_path / "more.safetensors",
        "log": saved / "metrics.json",
    }
    save(tmp_path / "other", model, {}, {}, extra)
    assert {*json.loads((tmp_path / "other/provenance.json").read_text())["files"]} == {
        *CHECKED,
        "more.safetensors",
    }
    (tmp_path / "other/log").write_text("changed")
    load(tmp_path / "other")
    (tmp_path / "other/more.safetensors").unlink()
    with fails(ModelError):
        load(tmp_path / "other")


def test_the_checksum_of_the_weights_is_computed_once(saved: Path) -> None:
    model = load(saved)
    expected = checksum(saved / "model.safetensors")
    (saved / "model.safetensors").unlink()
    assert model.sha256 == expected


def test_a_model_without_checksums_loads(saved: Path) -> None:
    drop(saved, "files")
    assert len(load(saved).sha256) == 64
    (saved / "provenance.json").unlink()
    assert len(load(saved).sha256) == 64


RECORDS = [
    *(b"", b"[]", b"{", b"\xff", b'{"files": []}', b'{"files": {"config.json": 1}}'),
    *(b'{"files": {"../x": "0"}}', b'{"files": {"\\u0000": "0"}}'),
    b"[" * 99_999,
]


@pytest.mark.parametrize("content", RECORDS, ids=range(len(RECORDS)))
def test_a_damaged_record_is_refused(saved: Path, content: bytes) -> None:
    (saved / "provenance.json").write_bytes(content)
    with fails(ModelError):
        load(saved)


def test_a_description_changed_by_hand_is_refused_until_its_checksum_is_taken_away(
    saved: Path,
) -> None:
    edit(saved / "config.json", encoder_attention_backend="dense")
    with fails(ModelError):
        load(saved)
    drop(saved, "files", "config.json")
    assert (
        load(saved).config.attention_backend
        == "dense"
        == read_encoder_config(saved).attention_backend
    )


def test_no_directory_a_file_and_another_task_are_refused(
    saved: Path, tmp_path: Path
) -> None:
    for wrong in (tmp_path / "nowhere", saved / "config.json", tmp_path):
        with fails(ModelError, wrong):
            load(wrong)
    with fails(ModelError, saved):
        load_chromatin_model(saved)


SENSELESS: dict[str, list[object]] = {
    "format": [99, "1" * 3000],
    "task": ["translation", ["promoter"]],
    "encoder": [{"layers": "many"}, {"\x1b[2J": 1}, []],
    "encoder_heads": [3],
    **{
        "encoder_layers": [2],
        "encoder_max_length": [65],
        "encoder_position_encoding": ["rotary"],
    },
    # They size what is computed of each window, whatever the weights: no shape gives them away.
    "settings": [
        {},
        *(
            SETTINGS.model_dump(mode="json") | {key: value}
            for key in ("upstream", "downstream", "jitter", "views")
            for value in (10**7, 10**9, 10**18)
        ),
    ],
}


@pytest.mark.parametrize(
    ("key", "value"), cases(SENSELESS), ids=range(len(cases(SENSELESS)))
)
def test_a_description_that_makes_no_sense_is_refused(
    saved: Path, key: str, value: Any
) -> None:
    describe(saved, **{key: value})
    with fails(ModelError, saved) as caught:
        load(saved)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 600


DOUBTFUL = {
    '"layers": 1': ["1" * 5000, "[" * 99_999, "-1", "1.5"],
    '"dropout": 0.1': ["NaN"],
    '"rotary_base": 10000.0': ["1e999"],
}


@pytest.mark.parametrize(("old", "new"), cases(DOUBTFUL))
def test_json_that_leaves_a_doubt_is_refused(saved: Path, old: str, new: str) -> None:
    path = saved / "config.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, f"{old.partition(' ')[0]} {new}"))
    sign(saved)
    with fails(ModelError, path):
        load(saved)


def rewritten(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    """Damage to the header of a safetensors file, its length kept true."""

    def write(content: bytes) -> bytes:
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        change(header)
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + content[8 + length :]

    return write


BIAS = "dense.bias"


def restated(**fields: object) -> Callable[[bytes], bytes]:
    return rewritten(lambda header: header[BIAS].update(fields))


@pytest.mark.parametrize(
    "lie",
    [
        lambda content: struct.pack("<Q", 2**63) + content[8:],
        lambda content: content + bytes(1000),
        lambda content: content[:-1],
        *(restated(shape=size) for size in ([2**62, 4], [2**70], [-8])),
        *(restated(data_offsets=ends) for ends in ([0, 2**60], [32, 0])),
        *(restated(dtype=kind) for kind in ("F4",)),
        rewritten(lambda header: header.update({"\n\0": header.pop(BIAS)})),
        rewritten(
            lambda header: header.update(
                {"new": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}
            )
        ),
    ],
)
def test_a_header_that_lies_is_refused(
    saved: Path, lie: Callable[[bytes], bytes]
) -> None:
    path = saved / "model.safetensors"
    path.write_bytes(lie(path.read_bytes()))
    sign(saved)
    with fails(ModelError):
        load(saved)


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16, torch.float16])
def test_weights_of_other_types_become_single_precision(
    saved: Path, kind: torch.dtype
) -> None:
    weights = {
        name: value.to(kind)
        for name, value in load_file(saved / "model.safetensors").items()
    }
    store(saved, weights)
    for name, value in load(saved).network.state_dict().items():
        assert value.dtype == torch.float32 and torch.equal(
            value, weights[name].float()
        )


@pytest.mark.parametrize(
    "kind", [torch.float32, torch.float64, torch.bfloat16, torch.float16]
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["encoder.layers.0.query.weight", "dense.bias"])
def test_weights_that_are_no_numbers_are_refused(
    saved: Path, name: str, value: float, kind: torch.dtype
) -> None:
    weights = load_file(saved / "model.safetensors")
    weights[name].view(-1)[-1] = value
    store(saved, weights | {name: weights[name].to(kind)})
    with fails(ModelError, name):
        load(saved)


def test_weights_of_the_largest_and_smallest_numbers_are_loaded(saved: Path) -> None:
    """Whose sums are infinite; only one that is too large for float32 is refused."""
    weights, bounds = load_file(saved / "model.safetensors"), torch.finfo(torch.float32)
    values = (bounds.max, bounds.min, bounds.smallest_normal / 8, bounds.max)
    weights[BIAS].copy_(torch.tensor(values * 2))
    store(saved, weights)
    assert torch.equal(load(saved).network.state_dict()[BIAS], weights[BIAS])
    store(saved, weights | {BIAS: weights[BIAS].double() * 2})
    with fails(ModelError, BIAS):
        load(saved)


@pytest.mark.parametrize("name", ["a\nb\t0.9", "a\tb", "a\x1b[31m", "a\u2028b", "\x00"])
def test_names_that_would_forge_rows_are_refused(
    tmp_path: Path, tokenizer: DnaTokenizer, name: str
) -> None:
    config = small_encoder(tokenizer.vocabulary)
    sequences = SequenceSettings(
        kind="multiclass", outputs=("x", "y", "z"), pooling="mean", jitter=0, views=1
    )
    tracks = (NamedTrack(track="one", group="TF"), NamedTrack(track="two", group="TF"))
    chromatin = ChromatinSettings(
        window=60, bin=20, pooling="cls", bin_layers=0, members=1, tracks=tracks
    )
    for number, settings in enumerate((sequences, chromatin)):
        path = tmp_path / str(number)
        save(path, random_model(tokenizer, config, settings), {}, {}, {})
        load(path)
        values = json.loads((path / "config.json").read_text())
        if settings is sequences:
            values["settings"]["outputs"][1] = name
        else:
            values["settings"]["tracks"][1]["group"] = name
        (path / "config.json").write_text(json.dumps(values))
        (path / "provenance.json").unlink()
        with fails(ModelError, path / "config.json"):
            load(path)
