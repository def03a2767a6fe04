"""Causal models of bytes: what they may see, what they learn, and the command."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from torch import Tensor

from bigbird_dna.config import EncoderConfig, OptimizerConfig, TrainingConfig, parse_config
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.papers.experiments.byte_lm_training import (
    ByteStream,
    CausalNetwork,
    NextSymbol,
    bits_per_byte,
)
from bigbird_dna.training.checkpoints import CheckpointStore
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import train_network
from tests.cli.command import Run, refused
from tests.conftest import REPOSITORY
from tests.golden.messages import fails, message
from tests.model.test_positions import logits, watched
from tests.papers.experiments import public_files as form

CPU = World(0, 1, torch.device("cpu"))
SMALL = {"layers": 2, "hidden": 16, "heads": 2, "dropout": 0.0, "max_length": 64, "block_size": 4}
CAUSAL = ("full", "bigbird", "combiner_fixed", "axial", "performer", "longformer", "routing")


def network(attention: str, symbols: int = 5, **more: object) -> CausalNetwork:
    torch.manual_seed(1)
    return CausalNetwork(EncoderConfig.model_validate({**SMALL, "attention": attention, **more}), symbols)


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


@pytest.mark.parametrize("position", ["learned", "rotary"])
@pytest.mark.parametrize("attention", ["bigbird", "combiner_fixed"])
def test_heads_begin_by_looking_at_symbols_before(attention: str, position: str) -> None:
    shape = {"hidden": 64, "heads": 4, "max_length": 256, "position_encoding": position}
    model = network(attention, 256, **shape).eval()
    assert watched(logits(model.encoder, 0)) == [-1, -2, -3, -4]


@pytest.mark.parametrize("changes", [{"attention": "reformer"}, {"convolution": 3}, {"num_global_tokens": 2}])
def test_what_would_look_ahead_is_refused(changes: dict[str, object]) -> None:
    with fails(ConfigError):
        network(**{"attention": "bigbird", **changes})


def source(count: int, length: int, seed: int) -> tuple[ByteStream, float, float]:
    """Rows of a Markov chain over four greys, with bits per symbol: exactly, and of the marginal."""
    chain = np.array([[0.85, 0.05, 0.05, 0.05], [0.05, 0.1, 0.8, 0.05], [0.1, 0.8, 0.05, 0.05], [0.25] * 4])
    rng = np.random.default_rng(seed)
    rows = np.zeros((count, length), np.uint16)
    state = rng.integers(0, 4, count)
    bits = np.full(count, 2.0)
    rows[:, 0] = state
    for place in range(1, length):
        drawn = (rng.random(count)[:, None] > chain[state].cumsum(1)[:, :3]).sum(1)
        bits -= np.log2(chain[state, drawn])
        rows[:, place] = state = drawn
    share = np.bincount(rows.reshape(-1), minlength=4) / rows.size
    marginal = -(share * np.log2(share)).sum()
    return ByteStream(rows.reshape(-1), length, True), float(bits.sum() / rows.size), float(marginal)


def test_a_source_is_learnt_below_its_marginal_and_not_below_its_entropy(tmp_path: Path) -> None:
    (learnt, _, _), (held_out, exact, marginal) = source(400, 32, 1), source(200, 32, 2)
    assert exact < marginal - 0.4
    model = network("bigbird", symbols=4)
    config = TrainingConfig(
        **{"steps": 150, "batch_size": 16, "precision": "float32", "evaluate_every": 150},
        optimizer=OptimizerConfig(learning_rate=5e-3, warmup_steps=20),
    )
    objective = NextSymbol(learnt, held_out, config)
    train_network(model, objective, config, CheckpointStore(tmp_path, {}), CPU)
    with torch.inference_mode():
        found, low, high = bits_per_byte(model, held_out, CPU)
    assert low is not None and high is not None and low < found < high
    assert exact - 0.01 < found < marginal - 0.3
    # What it says at each place is a distribution: no symbol is told by more than the rest leave.
    with torch.inference_mode():
        chances = model(torch.from_numpy(held_out.input(0).astype(np.int64))[None]).softmax(-1)
    assert torch.allclose(chances.sum(-1), torch.ones(1, 32))


def test_bits_of_an_untrained_network_are_those_of_its_logits() -> None:
    model, (stream, _, _) = network("full", symbols=256).eval(), source(3, 32, 3)
    rows = torch.from_numpy(stream.symbols.astype(np.int64)).view(3, 32)
    with torch.inference_mode():
        told = model(rows).double().log_softmax(-1).gather(2, rows[..., None])
        found, _, _ = bits_per_byte(model, stream, CPU)
    assert found == pytest.approx(float(-told.mean()) / math.log(2), rel=1e-5)
    assert found == pytest.approx(8, abs=0.5)


def configured(directory: Path, train: bytes, test: bytes, **density: object) -> Path:
    path, files = directory / "run.yaml", {"train": directory / "train.file", "test": directory / "test.file"}
    for name, content in (("train", train), ("test", test)):
        files[name].write_bytes(content)
    section = {
        "encoder": {**SMALL, "layers": 1, "heads": 1, "hidden": 8, "block_size": 64},
        "training": {"steps": 2, "batch_size": 1, "precision": "float32"},
        **{name: [str(file)] for name, file in files.items()},
        **density,
    }
    path.write_text(yaml.safe_dump({"results": str(directory / "results"), "byte_lm": section}))
    return path


def test_the_command_on_images(run: Run, tmp_path: Path) -> None:
    images = [form.cifar10(form.images(2, 32, seed), [1, 2]) for seed in (1, 2)]
    config = configured(tmp_path, *images, format="cifar10")
    result = run("experiment run", config, "byte_lm", "bigbird", "--threads", 1, "--device", "cpu")
    assert (result.code, result.out) == (0, "")
    found = json.loads((tmp_path / "results/experiments/byte_lm/bigbird/1/model/result.json").read_text())
    assert found["bits_per_byte"] == pytest.approx(8, abs=0.5)  # noise
    assert found["bits_per_byte_low"] <= found["bits_per_byte"] <= found["bits_per_byte_high"]
    assert (found["test_inputs"], found["test_bytes"], found["input_symbols"]) == (2, 6144, 3072)
    assert found["by_frequency"] == pytest.approx(8, abs=0.2)
    assert not [*(tmp_path / "results/checkpoints").rglob("*.pt")]
    assert run("experiment compare", config, "byte_lm", "-o", tmp_path / "report").code == 0
    table = pd.read_csv(tmp_path / "report/byte_lm.tsv", sep="\t")
    assert table["bits_per_byte"].tolist() == pytest.approx([found["bits_per_byte"]], rel=1e-5)


def test_the_command_on_text(run: Run, tmp_path: Path) -> None:
    texts = (["to be or not to be, " * 30] * 3, ["to be or not to be, " * 10])
    config = configured(tmp_path, *map(form.wiki40b, texts), format="wiki40b", sequence_bytes=48)
    assert run("experiment run", config, "byte_lm", "bigbird", "--threads", 1, "--device", "cpu").code == 0
    found = json.loads((tmp_path / "results/experiments/byte_lm/bigbird/1/model/result.json").read_text())
    assert (found["test_bytes"], found["input_symbols"], found["test_inputs"]) == (200, 48, 5)
    assert found["by_frequency_after_a_byte"] < found["by_frequency"] < found["bits_per_byte"]


def test_a_broken_off_training_goes_on_to_the_same_weights(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [form.c4([f"{name}, to be or not to be, " * 20]) for name in ("a", "b")]
    training = {"steps": 4, "checkpoint_every": 2, "batch_size": 2, "precision": "float32"}
    config = configured(tmp_path, *texts, format="c4", sequence_bytes=32, training=training)
    words = ("experiment run", config, "byte_lm", "bigbird", "--threads", 1, "--device", "cpu", "-o")
    assert run(*words, tmp_path / "undisturbed").code == 0
    usual = NextSymbol.batch

    def broken_off(self: NextSymbol, step: int, first: int, count: int) -> dict[str, Tensor]:
        if step == 3:
            raise DataError("broken off")
        return usual(self, step, first, count)

    with monkeypatch.context() as patched:
        patched.setattr(NextSymbol, "batch", broken_off)
        refused(run(*words, tmp_path / "resumed"), 1, "broken off", after_log=True)
    ended = run(*words, tmp_path / "resumed")
    assert ended.code == 0 and "resuming at step 2" in ended.err
    for file in ("weights.safetensors", "result.json", "encoder.json"):
        assert (tmp_path / "resumed" / file).read_bytes() == (tmp_path / "undisturbed" / file).read_bytes()
    # The encoder of the weights, by which checkpoints are found too: those of another beginning aren't.
    assert json.loads((tmp_path / "resumed/encoder.json").read_text())["causal"] is True


def test_what_the_command_refuses(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("seed: 1\n")
    message(refused(run("experiment plan", tmp_path / "run.yaml", "byte_lm"), 2), "density")
    config = configured(tmp_path, form.c4(["text"]), form.c4(["more"]), format="c4")
    gone = ("--set", "byte_lm.train=[none.json.gz]")
    refused(run("experiment run", config, "byte_lm", "bigbird", *gone), 1, "none.json.gz: no such file")
    wrong = run(
        "experiment run", config, "byte_lm", "reformer", "--set", "byte_lm.encoder.attention=reformer"
    )
    refused(wrong, 2, "encoder.attention: reformer has no causal form")
    assert not [*tmp_path.rglob("result.json")]


def test_a_test_file_is_none_to_learn_from() -> None:
    with fails(ConfigError):
        parse_config({"density": {"format": "c4", "train": ["a"], "test": ["a"]}})


@pytest.mark.parametrize("name", ["density_images", "density_text"])
def test_shipped_settings(name: str) -> None:
    config = parse_config(yaml.safe_load((REPOSITORY / f"workflow/config/{name}.yaml").read_text()))
    assert config.byte_lm is not None
    small = config.byte_lm.encoder.model_copy(update={"layers": 1, "hidden": 16, "heads": 2})
    model = CausalNetwork(small.model_copy(update={"max_length": 64}), 257)
    assert model(torch.zeros(1, 20, dtype=torch.long)).shape == (1, 20, 257)
