"""Pretraining on the token stores of several genomes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.config.reading import load_config
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.pretraining.task import PretrainingTask
from bigbird_dna.tokens.corpus import DocumentPlan
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.store import TokenStore, build_store
from bigbird_dna.training.task import train
from tests.cli.command import invoke
from tests.golden.messages import fails
from tests.pretraining.test_sampling import split_store
from tests.training.curve import ALONE

PLAN = DocumentPlan(2, 300, (50, 100), (5, 9))


@pytest.fixture(scope="module")
def home(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokens of one genome (`whole`), of its first and second half, of no contig, of another tokenizer."""
    paths, home = load_config(tiny_config).paths, tmp_path_factory.mktemp("genomes")
    reference, tokenizer = (
        Reference(paths.reference),
        DnaTokenizer.load(paths.tokenizer),
    )
    other = DnaTokenizer.train(["ACGT" * 20], home / "other.model", 12)
    contigs = [Interval("one", 0, reference.contigs["one"])]

    def build(name: str, segments: list[Interval], pieces: DnaTokenizer) -> None:
        shutil.copytree(paths.tokens / "valid", home / name / "valid")
        shutil.copyfile(paths.tokenizer, home / name / "tokenizer.model")
        target = home / name / "train"
        build_store(
            target,
            reference,
            segments,
            pieces,
            PLAN,
            seed=3,
        )

    build("whole", contigs, tokenizer)
    whole = home / "whole/train"
    half = len(TokenStore(whole).documents) // 2
    for path in split_store(whole, half, home / "halves"):
        shutil.copytree(paths.tokens / "valid", home / path.name / "valid")
        shutil.copyfile(paths.tokenizer, home / path.name / "tokenizer.model")
        shutil.move(path, home / path.name / "train")
    build("none", [], tokenizer)
    build("other", contigs, other)
    return home


def pretrain(config: Path, home: Path, output: Path, *names: str) -> dict[str, str]:
    """Checksums of the weights of a model trained on these tokens, and its metrics."""
    own, *further = (home / name for name in names)
    settings = (
        "--set",
        f"pretraining.further_tokens={json.dumps([*map(str, further)])}",
    )
    model = output / "-".join(names)
    places = ("-o", model, "--checkpoint-dir", output / "checkpoints")
    invoke("pretrain", config, "--tokens", own, *settings, *places)
    found = {path.name: checksum(path) for path in model.glob("*.safetensors")}
    return found | {"metrics": (model / "metrics.json").read_text()}


def test_inputs_are_drawn_from_each_genome_by_its_number_of_tokens(
    home: Path, tiny_config: Path
) -> None:
    run = load_config(tiny_config, [f"pretraining.further_tokens=[{home / 'second'}]"])
    task = PretrainingTask(run, home / "first", home / "first/tokenizer.model")
    counts = [0, 0]
    for number, inputs in enumerate(task.samplers):
        original = inputs.draw

        def counted(rng: np.random.Generator, number=number, original=original):
            counts[number] += 1
            return original(rng)

        inputs.draw = counted
    batches = [task.batch(step, 0, 50) for step in range(8)]
    sizes = np.array([len(inputs.tokens) for inputs in task.samplers])
    expected = 400 * sizes / sizes.sum()
    assert counts == pytest.approx(expected, abs=4 * np.sqrt(100))
    again = task.batch(3, 10, 5)
    np.testing.assert_array_equal(
        again["lengths"], batches[3]["lengths"][10:15]
    )  # an input depends on its step and position only


def test_a_model_of_two_genomes_names_both(
    home: Path, tiny_config: Path, tmp_path: Path
) -> None:
    """A genome without training contigs adds nothing."""
    found = pretrain(tiny_config, home, tmp_path, "first", "second")
    assert found != pretrain(tiny_config, home, tmp_path, "first")
    same = pretrain(tiny_config, home, tmp_path, "first", "none", "second")
    assert same == found
    stored = json.loads((tmp_path / "first-second/provenance.json").read_text())["data"]
    halves = [
        json.loads((home / name / "train/store.json").read_text())
        for name in ("first", "second")
    ]
    assert [stored["train"], *stored["further"]] == halves


def test_a_damaged_store_is_refused_before_the_training(
    home: Path, tiny_config: Path, tmp_path: Path
) -> None:
    shutil.copytree(home / "second", tmp_path / "second")
    damaged = tmp_path / "second/train/tokens.bin"
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-2] + bytes([content[-2] ^ 1, content[-1]]))
    run = load_config(
        tiny_config, [f"pretraining.further_tokens=[{tmp_path / 'second'}]"]
    )
    task = PretrainingTask(run, home / "first", home / "first/tokenizer.model")
    with fails(DataError, damaged):
        train(task, tmp_path / "model", tmp_path / "checkpoints", ALONE)
    assert not (tmp_path / "checkpoints").exists()
    assert not (tmp_path / "model").exists()


def test_further_stores_that_do_not_fit_are_refused(
    home: Path, tiny_config: Path
) -> None:
    tokenizer = load_config(tiny_config).paths.tokenizer
    for name in ("other", "gone"):
        run = load_config(tiny_config, [f"pretraining.further_tokens=[{home / name}]"])
        task = PretrainingTask(run, home / "whole", tokenizer)
        with fails(DataError, home / name):
            task.identity()
    with fails(ConfigError, "further_tokens"):
        load_config(tiny_config, ["pretraining.further_tokens=[a, a]"])
