"""Checkpoints that lie: nothing is built, allocated or run on their word."""

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bigbird_dna.errors import BigBirdDnaError, ModelError
from bigbird_dna.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_tensors,
)
from bigbird_dna.model.directory import save
from bigbird_dna.model.settings import PromoterSettings
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.training.initialization import read_provenance
from tests.golden.messages import fails
from tests.toys import cases, random_model, small_encoder, update_json, written

Change = Callable[[dict[str, Any]], object]
SIZES = small_encoder(
    96, layers=2, hidden=8, max_length=64, block_size=4, random_blocks=1
)
PROMOTER = PromoterSettings(
    upstream=30, downstream=10, pooling="cls", jitter=4, views=2
)


@pytest.fixture
def own(tokenizer: DnaTokenizer, tmp_path: Path) -> Path:
    save(
        tmp_path / "own",
        random_model(tokenizer, SIZES, PROMOTER),
        {"contigs": ["chr1"]},
        {},
        {},
    )
    return tmp_path / "own"


@pytest.fixture
def checkpoint(own: Path, tmp_path: Path) -> Path:
    export_huggingface(own, tmp_path / "hf")
    return tmp_path / "hf"


def refused(checkpoint: Path, *named: object) -> None:
    with fails(BigBirdDnaError, *named) as caught:
        import_huggingface(checkpoint, checkpoint / "../ours")
    assert str(caught.value).isprintable() and len(str(caught.value)) < 500
    assert not (checkpoint / "../ours").exists()


def exported(
    seed: object, task: object = "promoter", settings: object = {}
) -> dict[str, object]:
    return {"random_seed": seed, "task": task, "settings": settings}


LIES: dict[str, list[object]] = {
    "max_position_embeddings": [10**9],
    "hidden_size": [True, 16],
    "intermediate_size": [40],
    "num_hidden_layers": [999, 1],
    "num_attention_heads": [5],
    "vocab_size": [30, "many"],
    "hidden_act": [["gelu"], "silu"],
    "attention_type": ["other"],
    "is_decoder": [True],
    "position_embedding_type": ["relative"],
    "model_type": ["bert"],
    "architectures": [["BigBirdForTokenClassification"], None],
    "id2label": [["a"], {"0": "a", "1": "b"}],
    "bigbird_dna": [exported(1.5), exported(0)],
}


@pytest.mark.parametrize(("key", "value"), cases(LIES), ids=range(len(cases(LIES))))
def test_a_configuration_that_does_not_match_the_tensors_is_refused(
    checkpoint: Path, key: str, value: Any
) -> None:
    update_json(checkpoint / "config.json", **{key: value})
    refused(checkpoint)


def test_settings_of_another_task_than_a_promoter_s_are_not_read(
    checkpoint: Path,
) -> None:
    update_json(checkpoint / "config.json", bigbird_dna=exported(0, ["promoter"], 5))
    assert import_huggingface(checkpoint, checkpoint / "../ours").task == "sequences"


@pytest.mark.parametrize(
    "content", ["[" * 10**5, '{"a": ' + "9" * 5000 + "}", "[]", ""]
)
def test_other_json_is_refused(checkpoint: Path, content: str) -> None:
    for name in ("config.json", "tokenizer_config.json"):
        good = (checkpoint / name).read_text()
        (checkpoint / name).write_text(content)
        refused(checkpoint, name)
        (checkpoint / name).write_text(good)


def test_weights_that_are_no_numbers_are_refused(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    tensors = load_file(path)
    name = "bert.encoder.layer.1.output.dense.bias"
    for value in (
        *(
            torch.full((8,), float("nan")),
            torch.full((8,), 1e300, dtype=torch.float64),
            torch.zeros(0),
        ),
        torch.zeros(8, dtype=torch.int64),
    ):
        save_file(tensors | {name: value}, path)
        refused(checkpoint, name)
    save_file(tensors | {"classifier.out_proj.weight": torch.zeros(1, 9)}, path)
    refused(checkpoint, "classifier.out_proj.weight", 9)


def test_a_cut_off_file_is_refused(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    content = path.read_bytes()
    for damaged in (content[:8], b"", content[:-1]):
        path.write_bytes(damaged)
        refused(checkpoint, path)


def pickled(tensors: object, **options: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(tensors, stream, **options)
    return stream.getvalue()


def read(path: Path, content: bytes) -> dict[str, Tensor]:
    written(path, content)
    tensors = read_tensors(path.parent)
    path.unlink()
    return tensors


FORMS: list[dict[str, Any]] = [
    {},
    {"_use_new_zipfile_serialization": False},
]


@pytest.mark.parametrize("options", FORMS)
def test_pickles_are_read_as_torch_reads_them(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    base = torch.arange(60, dtype=torch.float32).view(5, 12)
    tensors = {
        "whole": base,
        "view": base[1:4, 2:9:3],
        "turned": base.T,
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 7),
        "parameter": torch.nn.Parameter(torch.randn(3, 2)),
        **{
            str(t): torch.ones(3).to(t)
            for t in (torch.float16, torch.bfloat16, torch.float64)
        },
        **{str(t): torch.ones(3).to(t) for t in (torch.int64, torch.bool, torch.uint8)},
    }
    module = torch.nn.Linear(3, 2).state_dict()
    content = pickled(OrderedDict(tensors) | module, **options)
    found = read(tmp_path / "pytorch_model.bin", content)
    expected = torch.load(io.BytesIO(content), weights_only=False)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), (
            name
        )
    assert list(
        read(tmp_path / "pytorch_model.bin", pickled(module, **options))
    ) == list(module)


@pytest.mark.parametrize("options", FORMS)
@pytest.mark.parametrize(
    "values",
    [
        {"a": torch.ones(3), "x": [torch.ones(3)]},
        {"a": {"b": torch.ones(1)}},
        [torch.ones(1)],
        {"a": Path("x")},
        {"a": torch.nn.Linear(2, 2)},
    ],
)
def test_pickles_of_other_things_are_refused(
    tmp_path: Path, options: dict[str, Any], values: object
) -> None:
    with fails(ModelError):
        read(tmp_path / "pytorch_model.bin", pickled(values, **options))


def test_files_that_are_cut_off_are_refused(tmp_path: Path) -> None:
    for options in FORMS:
        content = pickled({"a": torch.ones(7), "b": torch.zeros(3)}, **options)
        for end in range(0, len(content) - 1, 97):
            with fails(ModelError):
                read(tmp_path / "pytorch_model.bin", content[:end])
    for other in (
        b"",
        b"hello",
        pickle.dumps({"a": 1}),
        b"\x80\x02" + b"(" * 10**5 + b".",
    ):
        with fails(ModelError):
            read(tmp_path / "pytorch_model.bin", other)


@pytest.mark.parametrize(
    "content", ["[]", '{"contigs": 5}', '{"contigs": [[1]]}', '"\\ud800"']
)
def test_damaged_provenance_is_refused(tmp_path: Path, content: str) -> None:
    assert read_provenance(tmp_path) == {}
    (tmp_path / "provenance.json").write_text(content)
    with fails(BigBirdDnaError):
        read_provenance(tmp_path)
