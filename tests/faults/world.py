"""A small run with every kind of input, and every command that writes, to be spoilt in many ways."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from bigbird_dna.disk.atomic import remove_left
from bigbird_dna.registry.publishing import unpack
from bigbird_dna.simulate.writing import simulate
from tests.calibration.sources import write_predictions
from tests.cli.command import invoke
from tests.explanation.models import write_explained
from tests.papers.experiments.public_files import c4
from tests.registry.shelf import publish, write_list
from tests.toys import random_dna


class World(NamedTuple):
    """The files of the small run, by what they are."""

    home: Path

    @property
    def config(self) -> Path:
        return self.home / "run.yaml"

    @property
    def text_config(self) -> Path:
        return self.home / "text.yaml"

    @property
    def results(self) -> Path:
        return self.home / "results"

    def __truediv__(self, name: str) -> Path:
        return self.results / name


def make_world(home: Path) -> World:
    """Every input that a command can have, made by the commands that make it."""
    world = World(home)
    for name in ("learnt", "held-out"):
        (home / f"{name}.json.gz").write_bytes(c4([f"{name} words, " * 20]))
    settings = yaml.safe_load(Path(__file__).with_name("world.yaml").read_text())
    texts = {
        "train": [str(home / "learnt.json.gz")],
        "test": [str(home / "held-out.json.gz")],
    }
    settings["run"] |= {
        "results": str(world.results),
        "byte_lm": settings["run"]["byte_lm"] | texts,
    }
    world.config.write_text(yaml.safe_dump(settings["run"]))
    tasks = {"results": str(world / "text"), "tasks": {"far": settings["task"]}}
    world.text_config.write_text(yaml.safe_dump(tasks))
    simulate(world / "simulated", 1, 0.1)
    run(
        world,
        "prepare reference",
        "prepare promoters",
        "prepare tokenizer",
        "prepare tokens",
    )
    run(world, "prepare tokens --shard")
    run(
        world,
        "prepare promoter-windows",
        "pretrain",
        "finetune-promoter",
        "prepare chromatin",
    )
    run(world, "finetune-chromatin")
    write_predictions(world / "predicted.parquet", n=40)  # its own are of two windows
    run(world, "model calibrate-promoter", "model calibrate-calls")
    run(
        world,
        "evaluate test-bins --write-labels",
        "score-promoters",
        "score-variants",
        "score-promoters --shard",
    )
    run(
        world,
        "train baseline-promoter",
        "export-hf",
        "evaluate pretraining",
        "report pretraining",
    )
    run(world, "generate")
    with gzip.open(world / "simulated/promoters.sga.gz", "wt") as stream:
        stream.write((world / "simulated/promoters.sga").read_text())
    records = (f">r{number}\n{random_dna(80, number)}\n" for number in range(40))
    (world / "simulated/promoters.fa").write_text("".join(records))
    (world / "simulated/short.fa").write_text(">a\nACGTTA\n")
    write_explained(world / "explained", "one", "", 1, 3)
    run(world, "experiment run windows", "experiment run data", "experiment run")
    run(world, "experiment run pretraining", "prepare sequences", "finetune-sequences")
    run(world, "finetune-sequences --pretrained")
    run(world, "evaluate nearest-promoters", "evaluate nearest-bins")
    (world / "simulated/regions.bed").write_text(
        "demo6\t1000\t1200\tone\ndemo6\t5000\t5900\ttwo\n"
    )
    (world / "shelf/models/toy").mkdir(parents=True)
    entry = publish(world / "models/pretrained", world / "shelf/toy.tar")
    unpack(world / "shelf/toy.tar", "toy", world / "shelf/models/toy")
    write_list(world / "shelf/models.yaml", {"toy": entry})
    run(world, "nlp prepare", "nlp finetune", "nlp predict", "nlp evaluate")
    remove_left()  # as at the end of each command: the next one to end in this process would do it
    return world


def run(world: World, *commands: str) -> None:
    """Make the outputs of commands where the others look for them."""
    for command in commands:
        invoke(*COMMANDS[command].words(world, world / COMMANDS[command].place))


class Command(NamedTuple):
    """A command that writes, and what its output is."""

    name: str
    command: str
    text: str  # of its words, as the table has them
    place: str  # of the output that others need, in the results
    kind: str  # "file"; "directory", which is replaced as a whole; or "beside", which files are put into

    def words(self, world: World, out: Path) -> list[object]:
        """The command with its words for an output."""
        known: dict[str, object] = {
            "CONFIG": world.config,
            "TEXT": world.text_config,
            "OUT": out,
        }
        found: list[object] = [self.command]
        for word in self.text.split():
            before, mark, name = word.partition("@")
            if not mark:
                beside = word.removeprefix("BESIDE/")
                found.append(
                    known.get(word, word) if beside == word else out.parent / beside
                )
            elif "*" in name:
                found += sorted(world.results.glob(name))
            else:
                found.append(f"{before}{world / name}" if before else world / name)
        return found


FORMATS = {
    "score-promoters": ("tsv", "bed", "bedgraph", "bigwig", "parquet"),
    "call-promoters": ("bed", "tsv", "parquet"),
    "score-sequences": ("tsv", "parquet"),
    "embed": ("parquet", "npy"),
    "score-variants": ("vcf", "tsv"),
}
CHECKPOINTS = "--checkpoint-dir BESIDE/checkpoints"
COMPUTED = "-o OUT --threads 1 --device cpu"
SHORT = {
    "TRAINED": f"{COMPUTED} {CHECKPOINTS}",
    # The data set was given to the run's own commands as an option.
    "ARM": f"{COMPUTED} --set chromatin.data.tracks=simulated",
    "CHECKPOINTS": CHECKPOINTS,
}


def _commands() -> Iterator[Command]:
    for line in Path(__file__).with_name("commands.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        output, name, command, words = (cell.strip() for cell in line.split(";"))
        kind, _, place = output.partition(" ")
        for format in FORMATS.get(command, ("",)) if "FORMAT" in name else ("",):
            text = " ".join(SHORT.get(word, word) for word in words.split()).replace(
                "FORMAT", format
            )
            yield Command(
                name.replace("FORMAT", format), command or name, text, place, kind
            )


COMMANDS = {command.name: command for command in _commands()}
COMMANDS |= {
    name: COMMANDS[f"{name} {formats[0]}"] for name, formats in FORMATS.items()
}
