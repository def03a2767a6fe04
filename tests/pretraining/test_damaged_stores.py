"""Pretraining refuses a damaged token store before it begins, in one line that names the file."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import Run, refused

Damage = Callable[[Path], None]


def flip(path: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def swap(path: Path) -> None:
    """Exchange two offsets, which changes neither the number of them nor the ends."""
    offsets = np.load(path)
    offsets[[3, 4]] = offsets[[4, 3]]
    np.save(path, offsets)


@pytest.mark.parametrize("split", ["train", "valid"])
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("tokens.bin", flip), ("tokens.bin", cut), ("sentences.npy", swap)),
        *(("documents.npy", swap), ("sentences.npy", cut), ("store.json", cut)),
    ],
)
def test_a_damaged_store_is_refused(
    tiny_config: Path, tmp_path: Path, run: Run, split: str, name: str, damage: Damage
) -> None:
    tokens = tmp_path / "tokens"
    shutil.copytree(tiny_config.parent / "results" / "tokens", tokens)
    damage(tokens / split / name)
    written = ("-o", tmp_path / "model", "--checkpoint-dir", tmp_path / "checkpoints")
    result = run("pretrain", tiny_config, "--tokens", tokens, *written)
    refused(result, 1, f"{tokens / split / name}: ")
    assert [path.name for path in tmp_path.iterdir()] == ["tokens"]
