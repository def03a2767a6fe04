"""All kinds of training in miniature, for tests of what they have in common."""

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bigbird_dna.config.reading import load_config, parse_config
from bigbird_dna.errors import DataError, Stopped
from bigbird_dna.finetuning.chromatin import ChromatinTask
from bigbird_dna.finetuning.promoters import PromoterTask
from bigbird_dna.finetuning.start_sites import StartSiteTask
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.pretraining.task import PretrainingTask
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.training import loop
from bigbird_dna.training.distributed import World, world
from bigbird_dna.training.task import Task
from bigbird_dna.training.task import train as train_task
from tests.tiny_run import DENSE
from tests.toys import MOTIFS, label_bins, write_motif_genome

KINDS = ("pretraining", "promoters", "start-sites", "chromatin")
STEPS = 20
WINDOW = 200
# Without dropout, which each process draws for itself. Batches that two processes can't halve.
TRAINING: dict[str, Any] = {
    "steps": STEPS,
    "batch_size": 7,
    "evaluate_every": 10,
    "checkpoint_minutes": 0,
    "precision": "float32",
    "optimizer": {"learning_rate": 1e-3, "warmup_steps": 5},
}


def make_chromatin(home: Path) -> Path:
    """Write the reference, tokenizer and bins of two motifs; many windows have bins without labels."""
    home.mkdir()
    write_motif_genome(home, {"a": 12_000, "b": 4_000, "c": 3_000}, spacing=170)
    reference = Reference(home / "reference.fa.gz")
    pieces = (
        reference.fetch(Interval("a", start, start + 500))
        for start in range(0, 11_000, 500)
    )
    DnaTokenizer.train(pieces, home / "tokenizer.model", 24, 4)
    label_bins(
        home,
        {name: home / f"peaks/{name}.bed" for name in MOTIFS},
        "b",
        "c",
        negatives=0.4,
    )
    return home


def train(
    kind: str,
    tiny: Path,
    chromatin: Path,
    home: Path,
    checkpoints: Path,
    world: World,
    **more: Any,
) -> None:
    """Train a model of a kind into `home/kind`."""
    train_task(task_of(kind, tiny, chromatin, **more), home / kind, checkpoints, world)


def task_of(kind: str, tiny: Path, chromatin: Path, **more: Any) -> Task[Any, Any]:
    """A training of a kind, by the configuration of `tests.tiny_run` and what `make_chromatin` wrote; `more`
    are keys of its training."""
    config = load_config(tiny)
    results = config.paths
    values = config.model_dump(
        mode="json", include={"genome", "tokens", "encoder", "pretraining"}
    )
    values["encoder"]["dropout"] = 0.0
    training = {**TRAINING, **more}
    if kind == "pretraining":
        values[kind] |= {**training, "next_sentence": True}
        return PretrainingTask(parse_config(values), results.tokens, results.tokenizer)
    if kind == "promoters":
        windows = config.promoters.windows.model_dump(mode="json")
        own = {
            "windows": windows,
            "classifier": {"initial": "random"},
            "training": {**training, "crop_jitter_bp": 4},
        }
        return PromoterTask(
            parse_config({**values, kind: own}),
            negative_set="genomic",
            shuffle_labels=False,
            data=results.windows,
            reference=Reference(results.reference),
            tokenizer_path=results.tokenizer,
            pretrained=None,
        )
    if kind == "start-sites":
        own = {"dense": {**DENSE, "training": training}}
        return StartSiteTask(
            parse_config({**values, "promoters": own}),
            results.promoters,
            Reference(results.reference),
            results.tokenizer,
            None,
        )
    own = {
        "data": {"bin": 40, "window": WINDOW, "shift_bp": 3},
        "model": {"pooling": "bin", "bin_layers": 1, "initial": "random"},
        "training": {**training, "bins_per_window": 3},
    }
    return ChromatinTask(
        parse_config({"encoder": {**values["encoder"], "max_length": 160}, kind: own}),
        window=WINDOW,
        member=0,
        data=chromatin / "data",
        reference=Reference(chromatin / "reference.fa.gz"),
        tokenizer_path=chromatin / "tokenizer.model",
        pretrained=None,
    )


def logged(model: Path) -> tuple[dict[int, float], dict[int, Mapping[str, float]]]:
    """The losses and the held-out figures of a trained model, by step."""
    lines = [
        json.loads(line) for line in (model / "training.jsonl").read_text().splitlines()
    ]
    losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
    return losses, {
        line["step"]: line["evaluation"] for line in lines if "evaluation" in line
    }


# Trainings of all kinds by the processes of `torchrun`: `-m tests.training.kinds TINY CHROMATIN HOME KIND`


LAST = 8  # the step after which one stops


class Staying(World):
    """Goes on with the others after a training."""

    def leave(self) -> None:
        self.wait()


class Watch:
    """Has every loss logged, and sends the signal."""

    def __init__(self, here: World) -> None:
        self.here, self.left = here, 0
        self.backward = loop.backward
        loop.LOG_STEPS, loop.backward = 1, self.stepped

    def stepped(self, *given: Any) -> Any:
        self.left -= 1
        if self.left == 0 and self.here.rank == self.here.size - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return self.backward(*given)


def fail(here: World, home: Path) -> None:
    """Write down what each process is told where the first one fails."""

    def call() -> None:
        raise DataError("a.txt: damaged")

    try:
        here.first(call)
    except DataError as error:
        (home / f"told-{here.rank}").write_text(str(error))


def main(tiny: Path, chromatin: Path, home: Path, kind: str) -> None:
    with world("cpu") as here:
        fail(here, home)
        watch = Watch(here)

        def one(name: str, stop: int = 0, checkpoints: Path | None = None) -> None:
            watch.left = stop
            own = Staying(here.rank, here.size, here.device)
            where = checkpoints or home / name / "checkpoints"
            try:
                train(kind, tiny, chromatin, home / name, where, own)
            except Stopped as error:
                assert stop and f"stopped after step {stop} of" in str(error), error
                assert error.silent == (not here.is_first)
                return
            assert not stop, "it didn't stop"

        one("undisturbed")
        one("stopped", LAST)
        one("resumed", LAST)
        one("resumed", checkpoints=None if here.is_first else home / "elsewhere")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:-1]), kind=sys.argv[-1])
