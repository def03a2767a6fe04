"""Training on text by transformers' `Trainer`, from a model directory, a HuggingFace checkpoint, or random weights.

RoBERTa is the initial checkpoint of the paper (App. E.1). Its position table is repeated up to the required
number of positions (like Longformer, Beltagy et al. 2020, section 5).
"""

import hashlib
import json
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from tokenizers import ByteLevelBPETokenizer
from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import (
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import get_last_checkpoint

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.reading import checked
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum, scratch_directory, write_json
from bigbird_dna.disk.directories import atomic_directory
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ConfigError, ModelError, Stopped, error_text
from bigbird_dna.huggingface.exchange import import_huggingface
from bigbird_dna.model.directory import (
    encoder_for,
    extend_positions,
    load,
    make_model,
    write_model,
)
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import Settings
from bigbird_dna.papers.nlp.config import CHECKPOINTS, MODEL, TRAIN, VALID, AnyTask
from bigbird_dna.papers.nlp.records import Record, read_labeled
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.text import JsonTokenizer

SECONDS_TO_STOP = 60.0  # before a time limit
R = TypeVar("R", bound=Record)
SHAPES = (
    *("layers", "hidden", "heads", "intermediate", "position_encoding"),
    "activation",
)
"""Keys of the encoder in which a configuration must agree with the initial model."""
SPECIAL_PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


class Start(NamedTuple):
    """Encoder configuration, tokenizer, and initial weights by name; empty: random weights."""

    config: EncoderConfig
    tokenizer: Any
    weights: dict[str, Tensor]
    sha256: str | None = None  # of the weights' file

    def initialize(self, network: nn.Module) -> None:
        """Copy the weights of equal names and shapes into a network; other weights stay random."""
        fitting = network.state_dict()
        for name, tensor in self.weights.items():
            if name in fitting and fitting[name].shape == tensor.shape:
                fitting[name] = tensor
        network.load_state_dict(fitting)


def begin_training(
    section: AnyTask, home: Path, kind: type[R]
) -> tuple[list[R], list[R], Start, Any]:
    """Return a task's labeled records for training and validation, the initial state, and its tokenizer."""
    train = read_labeled(home / TRAIN, kind, section)
    valid = read_labeled(home / VALID, kind, section)
    texts = (text for record in train for text in record.texts())
    start = make_start(section, texts)
    return train, valid, start, fast_tokenizer(start.tokenizer)


def open_trained(
    directory: Path, kind: type[Settings], device: torch.device
) -> tuple[LoadedModel, Any, Any]:
    """Return a trained model, its network on a device, and its tokenizer; `ModelError` for another task."""
    model = load(directory)
    if not isinstance(model.settings, kind):
        raise ModelError(f"{directory}: a model of task {model.task}, not {kind.task}")
    return model, model.network.to(device), fast_tokenizer(model.tokenizer)


def make_start(section: AnyTask, texts: Iterable[str]) -> Start:
    """Return the initial state of a training, and seed torch.

    With a model, the encoder has the model's shapes, and keys that are set only change properties such as
    attention and positions. If the model has fewer positions, learned positions are tiled. Without a model, a
    tokenizer is trained on `texts`. `ConfigError` if a key contradicts the model, or if inputs are longer
    than the encoder's positions.
    """
    torch.manual_seed(section.seed)
    if section.start.model is None:
        tokenizer = train_tokenizer(texts, section.start.vocabulary)
        start = Start(encoder_for(section.encoder, tokenizer), tokenizer, {})
    else:
        directory = Path(section.start.model)
        with scratch_directory() as scratch:
            if "format" in read_object(directory / "config.json"):
                model = load(directory)
            else:
                model = import_huggingface(directory, scratch / "model", "none")

            sha256 = model.sha256  # of a file that may be in `scratch`

        changes = section.encoder.model_dump(include=section.encoder.model_fields_set)
        for key in SHAPES:
            known = getattr(model.config, key)
            if changes.get(key, known) != known:
                raise ConfigError(
                    f"encoder.{key} {changes[key]}: the model {directory} has {known}"
                )

        positions = changes.pop("max_length", model.config.max_length)
        encoder: Any = model.network.get_submodule("encoder")
        extend_positions(encoder, positions)
        values = encoder.config.model_dump() | changes
        config = checked(EncoderConfig, values, "encoder")
        start = Start(config, model.tokenizer, model.network.state_dict(), sha256)
        log(f"{directory}: used as initial weights")

    for key in ("length", "document_tokens", "summary_tokens"):
        tokens = getattr(section, key, 0)
        if tokens > start.config.max_length:
            raise ConfigError(
                f"{key} {tokens}: must be at most encoder.max_length {start.config.max_length}"
            )

    return start


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> JsonTokenizer:
    """Train a byte-level byte-pair encoding like RoBERTa's, which has no unknown tokens.

    A token is part of a word, with the white space before it. The same texts give the same tokens.
    """

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        texts,
        vocabulary,
        min_frequency=0,
        show_progress=False,
        special_tokens=SPECIAL_PIECES,
    )
    return JsonTokenizer(tokenizer.to_str().encode(), source="the trained tokenizer")


def fast_tokenizer(tokenizer: Tokenizer) -> Any:
    """Return transformers' `PreTrainedTokenizerFast` of a `tokenizer.json`.

    A text becomes [CLS] text [SEP], a pair [CLS] first [SEP] second [SEP]. `ModelError` for other tokenizers.
    """

    if not isinstance(tokenizer, JsonTokenizer) or tokenizer.is_dna:
        raise ModelError(
            f"{tokenizer.source}: tasks on text need the tokenizer.json of a tokenizer of ordinary text; "
            "transformers' AutoTokenizer converts an spiece.model (save_pretrained)"
        )

    backend = Backend.from_str(tokenizer.content.decode())
    cls, sep = (tokenizer.pieces[i] for i in (tokenizer.cls_id, tokenizer.sep_id))
    backend.post_processor = TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(cls, tokenizer.cls_id), (sep, tokenizer.sep_id)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        cls_token=cls,
        sep_token=sep,
        eos_token=sep,
        pad_token=tokenizer.pieces[tokenizer.pad_id],
        mask_token=tokenizer.pieces[tokenizer.mask_id],
        unk_token=tokenizer.pieces[tokenizer.unk_id],
    )


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
    home: Path,
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
    ConfigError : for wrong arguments in the section's training. Stopped : if training ended early with a
    checkpoint, because of SIGTERM or the time `end`.
    """
    start.initialize(network)
    identity = {
        "configuration": section.model_dump(mode="json", exclude_unset=True),
        "data": [checksum(home / TRAIN), checksum(home / VALID)],
        "start": start.sha256,
    }
    # Checkpoints of other records or another configuration are not resumed.
    name = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    checkpoints = str(home / CHECKPOINTS / name)
    is_cpu = choose_device(device).type == "cpu"
    defaults = {
        "bf16": not is_cpu,
        "weight_decay": 0.01,
        "save_total_limit": 2,
        "logging_steps": 50,
    }
    try:
        args = TrainingArguments(
            **defaults | section.training | {"seed": section.seed},
            output_dir=checkpoints,
            use_cpu=is_cpu,
            dataloader_pin_memory=not is_cpu,
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
    last = get_last_checkpoint(checkpoints) if Path(checkpoints).is_dir() else None
    if last is not None:
        log(f"{last}: resumed")

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

    with atomic_directory(home / MODEL) as directory:
        if settings is None:
            trainer.model.save_pretrained(directory)
            start.tokenizer.save_pretrained(directory)
            write_json(directory / "provenance.json", identity)
            write_json(directory / "metrics.json", metrics)
        else:
            model = make_model(network.cpu(), start.tokenizer, start.config, settings)
            write_model(directory, model, identity, metrics, {})

    shutil.rmtree(home / CHECKPOINTS)
