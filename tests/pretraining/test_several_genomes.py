"""Pretraining on the token stores of several genomes: the same as on one, where that must be."""

import json
import shutil
from pathlib import Path

import pytest

from bigbird_dna.config import load_config
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, whole_contigs
from bigbird_dna.pretraining import task as pretraining
from bigbird_dna.pretraining.task import PretrainingTask
from bigbird_dna.tokens.build import build_store
from bigbird_dna.tokens.corpus import DocumentPlan
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.shard import own_checksum, shard_name
from bigbird_dna.tokens.store import COUNTS
from bigbird_dna.training.task import train
from tests.cli.command import invoke
from tests.golden.messages import fails
from tests.training.curve import ALONE

PLAN = DocumentPlan(2, 300, (50, 100), (5, 9))


def take_shards(whole: Path, store: Path, chosen: slice) -> None:
    """Make a store of some of the shards of another."""
    info = json.loads((whole / "store.json").read_text())
    info["shards"] = info["shards"][chosen]
    store.mkdir(parents=True)
    for number, shard in enumerate(info["shards"], 1):
        own = store / shard_name(number)
        shutil.copytree(whole / shard_name(shard["number"]), own)
        shard["number"] = number
        (own / "shard.json").write_text(json.dumps(shard))
    info["shard_count"] = len(info["shards"])
    info |= {key: sum(shard[key] for shard in info["shards"]) for key in COUNTS}
    info["sha256"] = own_checksum(info)
    (store / "store.json").write_text(json.dumps(info))


@pytest.fixture(scope="module")
def home(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokens of one genome (`whole`), of its first and second half, of no contig, of another tokenizer."""
    paths, home = load_config(tiny_config).paths, tmp_path_factory.mktemp("genomes")
    reference, tokenizer = (
        Reference(paths.reference),
        DnaTokenizer.load(paths.tokenizer),
    )
    other = DnaTokenizer.train(["ACGT" * 20], home / "other.model", 12)
    contigs = whole_contigs({"one": reference.contigs["one"]})

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
            shard_bases=4000,
        )

    build("whole", contigs, tokenizer)
    whole = home / "whole/train"
    half = len([*whole.glob("shard-*")]) // 2
    for name, chosen in (("first", slice(half)), ("second", slice(half, None))):
        shutil.copytree(paths.tokens / "valid", home / name / "valid")
        shutil.copyfile(paths.tokenizer, home / name / "tokenizer.model")
        take_shards(whole, home / name / "train", chosen)
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


def test_two_genomes_that_are_halves_of_one_train_the_same_model(
    home: Path, tiny_config: Path, tmp_path: Path
) -> None:
    """The same examples in the same order, and so the same weights; and a genome of nothing adds nothing."""
    expected = pretrain(tiny_config, home, tmp_path, "whole")
    assert len(expected) > 1
    for names in (("first", "second"), ("whole", "none"), ("first", "none", "second")):
        assert pretrain(tiny_config, home, tmp_path, *names) == expected
    assert pretrain(tiny_config, home, tmp_path, "second", "first") != expected
    made = json.loads((tmp_path / "first-second/provenance.json").read_text())["data"]
    halves = [
        json.loads((home / name / "train/store.json").read_text())
        for name in ("first", "second")
    ]
    assert [made["train"]["sha256"], made["further"][0]["sha256"]] == [
        half["sha256"] for half in halves
    ]
    assert len(made["further"]) == 1 and "shards" not in made["train"]


@pytest.mark.parametrize("verified", [0, 1 << 32])
def test_a_damaged_shard_is_refused_before_the_training_or_when_it_is_read(
    home: Path,
    tiny_config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verified: int,
) -> None:
    monkeypatch.setattr(pretraining, "VERIFIED", verified)
    shutil.copytree(home / "second", tmp_path / "second")
    damaged = tmp_path / "second/train" / shard_name(3) / "tokens.bin"
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-2] + bytes([content[-2] ^ 1, content[-1]]))
    run = load_config(
        tiny_config, [f"pretraining.further_tokens=[{tmp_path / 'second'}]"]
    )
    task = PretrainingTask(run, home / "first", home / "first/tokenizer.model")
    with fails(DataError, damaged):
        train(task, tmp_path / "model", tmp_path / "checkpoints", ALONE)
    assert (tmp_path / "checkpoints").exists() == (verified == 0)
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
