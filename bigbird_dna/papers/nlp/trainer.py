"""Training of a network by transformers' `Trainer`, with checkpoints from which the same command resumes."""

import shutil
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import get_last_checkpoint

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum, read_json, write_json
from bigbird_dna.disk.directories import atomic_directory
from bigbird_dna.errors import ConfigError, Stopped, error_text
from bigbird_dna.model.directory import make_model, write_model
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.settings import Settings
from bigbird_dna.papers.nlp.config import AnyTask, TextPaths
from bigbird_dna.papers.nlp.start import Start

IDENTITY = "task.json"  # in the directory of checkpoints: what they are of
SECONDS_TO_STOP = 60.0  # before a time limit


class Seeded(Dataset[Any]):
    """Examples, each with a seed for what is drawn for it in an epoch: a resumed training draws the same."""

    def __init__(self, examples: Any, seed: int) -> None:
        self.examples, self.seed, self.epoch = examples, seed, 0

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> tuple[Any, tuple[int, int, int]]:
        return self.examples[index], (self.seed, self.epoch, index)


class Progress(TrainerCallback):  # type: ignore[misc]
    """Logs losses to standard error, and stops with a checkpoint on SIGTERM or shortly before `end`."""

    def __init__(self, end: float, train: Any) -> None:
        self.end = end - SECONDS_TO_STOP
        self.train = train

    def request_stop(self, *_: object) -> None:
        self.end = 0.0

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.train.epoch = int(state.epoch or 0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if time.time() > self.end:
            control.should_save = control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, **options: Any) -> None:
        if state.is_world_process_zero:
            log(f"step {state.global_step}/{state.max_steps}: {options['logs']}")


def fit(
    network: nn.Module,
    section: AnyTask,
    paths: TextPaths,
    start: Start,
    settings: Settings | None,
    train: Any,
    valid: Any,
    collate: Callable[[Sequence[Any]], dict[str, Any]],
    device: str = "auto",
    end: float = float("inf"),
) -> None:
    """Train a network whose `forward` returns `loss` and `logits`, write its directory, and remove checkpoints.

    Parameters
    ----------
    settings
        The task of the model directory; None: the network is written as a checkpoint of transformers.
    train, valid
        Examples; `collate` gets a list of pairs of an example and its seed.
    end
        Time, in seconds since 1970, before which training must stop.

    Raises
    ------
    ConfigError : for wrong arguments in the section's training, or if the checkpoints are of another
    training. Stopped : if training ended early with a checkpoint, because of SIGTERM or the time `end`.
    """
    is_cpu = choose_device(device).type == "cpu"
    defaults: dict[str, Any] = {
        "bf16": not is_cpu and torch.cuda.is_bf16_supported(),
        "weight_decay": 0.01,
        "save_total_limit": 2,
        "logging_steps": 50,
        "dataloader_pin_memory": not is_cpu,
    }
    try:
        args = TrainingArguments(
            **defaults | section.training | {"seed": section.seed},
            output_dir=str(paths.checkpoints),
            use_cpu=is_cpu,
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
            prediction_loss_only=True,
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"training: {error_text(error)}") from None
    examples = Seeded(train, section.seed)
    progress = Progress(end, examples)
    trainer = Trainer(
        network,
        args,
        data_collator=collate,
        train_dataset=examples,
        eval_dataset=Seeded(valid, section.seed),
        callbacks=[progress],
    )
    trainer.remove_callback(PrinterCallback)
    files = [paths.split("train"), paths.split("valid")]
    identity = {
        "configuration": section.model_dump(mode="json", exclude_unset=True),
        "data": {path.stem: checksum(path) for path in files},
        "start": start.sha256,
    }
    path = paths.checkpoints / IDENTITY
    last = get_last_checkpoint(str(paths.checkpoints)) if path.exists() else None
    if last is not None:
        if read_json(path) != identity:
            raise ConfigError(
                f"{paths.checkpoints}: checkpoints of other records or another configuration; delete them to "
                "train anew"
            )
        log(f"{last}: resumed")
    elif trainer.is_world_process_zero():
        write_json(path, identity)
    before = signal.signal(signal.SIGTERM, progress.request_stop)
    try:
        trainer.train(resume_from_checkpoint=last)
    finally:
        signal.signal(signal.SIGTERM, before)
    state = trainer.state
    if state.global_step < state.max_steps:
        raise Stopped(
            f"stopped at step {state.global_step} of {state.max_steps} with a checkpoint; the same command resumes"
        )
    metrics = trainer.evaluate()
    if not trainer.is_world_process_zero():
        return
    with atomic_directory(paths.model) as directory:
        if settings is None:
            trainer.model.save_pretrained(directory)
            start.tokenizer.save_pretrained(directory)
            write_json(directory / "provenance.json", identity)
            write_json(directory / "metrics.json", metrics)
        else:
            model = make_model(network.cpu(), start.tokenizer, start.config, settings)
            write_model(directory, model, identity, metrics, {})
    shutil.rmtree(paths.checkpoints)
