"""Causal models of bytes: what they may see, what they learn, and the command."""

import gzip
import io
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.reading import parse_config
from bigbird_dna.config.training import OptimizerConfig, TrainingConfig
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.papers.experiments.byte_lm import (
    END,
    BytesTask,
    ByteStream,
    CausalNetwork,
    bits_of_inputs,
    read_documents,
    read_images,
    read_stream,
)
from bigbird_dna.training.loop import train_network
from tests.baselines.sources import Source
from tests.cli.command import Run, refused
from tests.golden.messages import fails
from tests.papers.experiments import public_files as form
from tests.toys import cases, written
from tests.training.curve import ALONE

SMALL = {
    "layers": 2,
    "hidden": 16,
    "heads": 2,
    "dropout": 0.0,
    "max_length": 64,
    "block_size": 4,
    "causal": True,
}
CAUSAL = (
    "full",
    "bigbird",
    "combiner_fixed",
    "axial",
    "performer",
    "longformer",
    "routing",
)


def network(attention: str, symbols: int = 5, **more: object) -> CausalNetwork:
    torch.manual_seed(1)
    values = {**SMALL, "attention": attention, "vocabulary": symbols + 1, **more}
    return CausalNetwork(EncoderConfig.model_validate(values))


@pytest.mark.parametrize("attention", CAUSAL)
def test_no_bit_depends_on_the_future(attention: str) -> None:
    model = network(attention).eval()
    symbols = torch.randint(0, 5, (2, 48), generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        whole = model(symbols)
        for place in (1, 17, 46):
            other = symbols.clone()
            other[:, place:] = (other[:, place:] + 1) % 5
            found = model(other)
            assert torch.equal(found[:, : place + 1], whole[:, : place + 1])
            assert not torch.equal(found[:, place + 1], whole[:, place + 1])
        # Nor on how long the input is.
        assert torch.allclose(model(symbols[:, :30]), whole[:, :30], atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"attention": "reformer"},
        {"kmers": 3},
        {"num_global_tokens": 2},
        {"causal": False},
    ],
)
def test_what_would_look_ahead_is_refused(changes: dict[str, object]) -> None:
    section = {"format": "c4", "train": ["a"], "test": ["b"]}
    with fails(ConfigError, "causal"):
        parse_config({"byte_lm": {**section, "encoder": SMALL | changes}})


SOURCE = Source(1, seed=7, concentration=0.2)  # of four grays


def drawn_rows(count: int, seed: int) -> ByteStream:
    """Rows of 32 grays."""
    return ByteStream(SOURCE.sample(32 * count, seed).astype(np.uint16), 32, True)


@pytest.mark.slow
def test_a_source_is_learnt_below_its_marginal_and_not_below_its_entropy(
    tmp_path: Path,
) -> None:
    learned, held_out = drawn_rows(400, 1), drawn_rows(200, 2)
    exact = -np.log2(SOURCE.table[held_out.symbols[:-1], held_out.symbols[1:]]).mean()
    marginal = -(SOURCE.states * np.log2(SOURCE.states)).sum()
    assert exact < marginal - 0.4
    model = network("bigbird", symbols=4)
    config = TrainingConfig(
        **{
            "steps": 150,
            "batch_size": 16,
            "precision": "float32",
            "evaluate_every": 150,
        },
        optimizer=OptimizerConfig(learning_rate=5e-3, warmup_steps=20),
    )
    section: Any = SimpleNamespace(training=config)
    task = BytesTask(section, learned, held_out)
    train_network(model, task, tmp_path, ALONE)
    with torch.inference_mode():
        bits = bits_of_inputs(model, held_out.inputs())
    found = bits.sum() / len(held_out.symbols)
    assert exact - 0.01 < found < marginal - 0.3
    # What it says at each place is a distribution: no symbol is told by more than the rest leave.
    with torch.inference_mode():
        chances = model(
            torch.from_numpy(held_out.inputs()[0].astype(np.int64))[None]
        ).softmax(-1)
    assert torch.allclose(chances.sum(-1), torch.ones(1, 32))


def test_bits_of_an_untrained_network_are_those_of_its_logits() -> None:
    model, stream = network("full", symbols=256).eval(), drawn_rows(3, 3)
    rows = torch.from_numpy(stream.symbols.astype(np.int64)).view(3, 32)
    with torch.inference_mode():
        told = model(rows).double().log_softmax(-1).gather(2, rows[..., None])
        bits = bits_of_inputs(model, stream.inputs())
    found = bits.sum() / len(stream.symbols)
    assert found == pytest.approx(float(-told.mean()) / math.log(2), rel=1e-5)
    assert found == pytest.approx(8, abs=0.5)


def configured(directory: Path, train: bytes, test: bytes, **density: object) -> Path:
    path, files = (
        directory / "run.yaml",
        {"train": directory / "train.file", "test": directory / "test.file"},
    )
    for name, content in (("train", train), ("test", test)):
        files[name].write_bytes(content)
    section = {
        "encoder": {**SMALL, "layers": 1, "heads": 1, "hidden": 8, "block_size": 64},
        "training": {"steps": 2, "batch_size": 1, "precision": "float32"},
        **{name: [str(file)] for name, file in files.items()},
        **density,
    }
    path.write_text(
        yaml.safe_dump({"results": str(directory / "results"), "byte_lm": section})
    )
    return path


def run_command(run: Run, config: Path) -> dict[str, Any]:
    """The result of `byte_lm`, as it and its table have it."""
    words = ("--threads", 1, "--device", "cpu", "-o", config.parent / "report")
    result = run("experiment run", "byte_lm", config, *words)
    assert (result.code, result.out) == (0, "")
    model = config.parent / "results/experiments/byte_lm/bigbird-seed1/model"
    # The encoder of the weights, by which checkpoints are found too: those of another beginning aren't.
    assert json.loads((model / "encoder.json").read_text())["causal"] is True
    assert not [*(config.parent / "results/checkpoints").rglob("*.pt")]
    found = json.loads((model / "result.json").read_text())
    table = pd.read_csv(config.parent / "report/byte_lm.tsv", sep="\t")
    assert table["bits_per_byte"].tolist() == pytest.approx(
        [found["bits_per_byte"]], rel=1e-5
    )
    return dict(found)


def test_the_command_on_images(run: Run, tmp_path: Path) -> None:
    images = [form.cifar10(form.images(2, 32, seed), [1, 2]) for seed in (1, 2)]
    found = run_command(run, configured(tmp_path, *images, format="cifar10"))
    assert found["bits_per_byte"] == pytest.approx(8, abs=0.5)  # noise
    assert (
        found["bits_per_byte_low"]
        <= found["bits_per_byte"]
        <= found["bits_per_byte_high"]
    )
    assert (found["test_inputs"], found["test_bytes"], found["input_symbols"]) == (
        2,
        6144,
        3072,
    )


def test_the_command_on_text(run: Run, tmp_path: Path) -> None:
    texts = (["to be or not to be, " * 30] * 3, ["to be or not to be, " * 10])
    config = configured(
        tmp_path, *map(form.wiki40b, texts), format="wiki40b", sequence_bytes=48
    )
    found = run_command(run, config)
    assert (found["test_bytes"], found["input_symbols"], found["test_inputs"]) == (
        200,
        48,
        5,
    )
    assert found["by_lzma"] < found["bits_per_byte"]


def test_what_the_command_refuses(run: Run, tmp_path: Path) -> None:
    config = configured(tmp_path, form.c4(["text"]), form.c4(["more"]), format="c4")
    gone = ("--set", "byte_lm.train=[none.json.gz]")
    refused(
        run("experiment run", "byte_lm", config, *gone),
        1,
        "none.json.gz",
    )
    other = ("--set", "byte_lm.encoder.attention=reformer")
    refused(
        run("experiment run", "byte_lm", config, *other),
        2,
        "byte_lm.encoder",
        "reformer",
    )
    assert not [*tmp_path.rglob("result.json")]


def test_a_test_file_is_none_to_learn_from() -> None:
    with fails(ConfigError):
        parse_config({"byte_lm": {"format": "c4", "train": ["a"], "test": ["a"]}})


# Readers of CIFAR-10, ImageNet-64, Wiki-40B and C4, on files of their form


TEXTS = [
    "\n_START_ARTICLE_\nÉtude\n_START_PARAGRAPH_\nfirst_NEWLINE_second",
    "",
    "x" * 3000,
]


@pytest.mark.parametrize(("name", "side"), [("cifar10", 32), ("imagenet64", 64)])
def test_images(tmp_path: Path, name: str, side: int) -> None:
    drawn = form.images(5, side)
    content = (
        form.cifar10(drawn, [0, 9, 3, 3, 1]) if side == 32 else form.imagenet64(drawn)
    )
    path = written(tmp_path / "file", content)
    assert side == 64 or path.stat().st_size == 5 * 3073
    assert (np.stack([*read_images(name, path)]) == drawn.reshape(5, -1)).all()


def test_wiki40b(tmp_path: Path) -> None:
    path = written(tmp_path / "file", form.wiki40b(TEXTS))
    assert [one.decode() for one in read_documents("wiki40b", path)] == TEXTS


def test_c4(tmp_path: Path) -> None:
    # Control characters of Windows and line separators stand in published pages as they are.
    texts = [*TEXTS, "it\x92s one\x7f page\u2028of\u2029 four\x85lines", "last"]
    path = written(tmp_path / "file", form.c4(texts))
    assert [one.decode() for one in read_documents("c4", path)] == texts


def npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


WRONG = {
    "cifar10": [b"", bytes(3072), bytes(3073) + b"\x0a" + bytes(3072)],
    "imagenet64": [
        *(b"PK", npz(labels=np.ones(3))),
        *(npz(data=np.zeros((2, 3072), np.uint8)), npz(data=np.zeros((2, 12288)))),
    ],
    "wiki40b": [b"", form.wiki40b(["one"])[:-9], form.parquet(title=["x"])],
    "c4": [
        b'{"text": "a"}\n',
        *map(
            gzip.compress,
            (
                b'{"text": "a"}\n{"url": "b"}\n',
                b'{"text": 3}\n',
                b'{"text": "a"\n',
                b'{"text": "\\ud800"}\n',
                b'{"text": "a"}\n{"text": "\xe9"}\n',
            ),
        ),
        form.c4(["a" * 100])[:-20],
    ],
}


def read_file(name: str, path: Path) -> None:
    read = read_images if name in ("cifar10", "imagenet64") else read_documents
    list(read(name, path))


@pytest.mark.parametrize(
    ("name", "content"), cases(WRONG), ids=range(sum(map(len, WRONG.values())))
)
def test_wrong_files(tmp_path: Path, name: str, content: bytes) -> None:
    """Messages name the file."""
    path = written(tmp_path / "file", content)
    with fails(DataError, path):
        read_file(name, path)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_a_file(tmp_path: Path, name: str) -> None:
    with fails(DataError):
        read_file(name, tmp_path / "none")
    with fails(DataError):
        read_file(name, tmp_path)


def test_documents_are_one_stream_of_bytes(tmp_path: Path) -> None:
    path = written(tmp_path / "file", form.c4(["abc", "", "dé"]))
    stream = read_stream("c4", [path, path], 4, 1000)
    once = [97, 98, 99, END, 100, 0xC3, 0xA9, END]
    assert stream.symbols.tolist() == once * 2
    assert (stream.kinds, stream.starts) == (257, range(13))
    assert [one.tolist() for one in stream.inputs()] == [once[:4], once[4:]] * 2
    assert read_stream("c4", [path, path], 4, 5).symbols.tolist() == [
        97,
        98,
        99,
        END,
        100,
        0xC3,
        END,
    ]
    with fails(DataError):
        read_stream("c4", [written(tmp_path / "file", form.c4([""]))], 4, 5)


def test_images_are_read_whole(tmp_path: Path) -> None:
    drawn = form.images(3, 32)
    path = written(tmp_path / "file", form.cifar10(drawn, [0, 1, 2]))
    stream = read_stream("cifar10", [path, path], 99, 4 * 3072 + 5)
    assert stream.starts == range(0, 9217, 3072)
    assert (stream.length, stream.kinds) == (3072, 256)
    assert (stream.inputs()[3] == drawn[0].reshape(-1)).all()
    assert len(read_stream("cifar10", [path], 99, 1).inputs()) == 1
