"""Sections of training: optimizer, steps and batches, pretraining, and keys shared by all tasks."""

from collections.abc import Iterator
from typing import Annotated, Literal

from bigbird_dna.config.section import (
    MONITORING,
    NOT_IN_FINGERPRINT,
    CalibrationMethod,
    FileName,
    Section,
    field,
)

MOST_PROCESSES = 1024
LayerMatrix = Literal[
    "query", "key", "value", "attention_output", "intermediate", "output"
]


class OptimizerConfig(Section):
    """AdamW with warm-up and linear decay; shared by pretraining and fine-tuning."""

    learning_rate: float = field(
        1e-4, "peak learning rate, after warm-up; decays linearly to 0", gt=0
    )
    warmup_steps: int = field(100, "steps of linear learning-rate warm-up", ge=0)
    weight_decay: float = field(0.01, "weight decay, decoupled from the gradient", ge=0)
    clip_norm: float = field(1.0, "maximum norm of the gradient", gt=0)


class TrainingConfig(Section):
    """Keys shared by pretraining and fine-tuning."""

    steps: int = field(1000, "number of optimizer steps", ge=1)
    batch_size: int = field(32, "sequences per step, over all processes", ge=1)
    grad_accumulation: Annotated[int, NOT_IN_FINGERPRINT] = field(
        1, "micro-batches per process step", ge=1
    )
    optimizer: OptimizerConfig = OptimizerConfig()
    precision: Annotated[Literal["auto", "float32", "bfloat16"], NOT_IN_FINGERPRINT] = (
        field(
            "auto", "number format; auto: bfloat16 autocast if the device supports it"
        )
    )
    torch_compile: Annotated[bool, NOT_IN_FINGERPRINT] = field(
        False,
        "compile the operations of a layer except attention; for GPUs, takes a minute at the start",
    )
    evaluate_every: Annotated[int | None, MONITORING] = field(
        None,
        "steps between evaluations on held-out data; none: a twentieth of the steps",
        ge=1,
    )
    checkpoint_minutes: Annotated[float, MONITORING] = field(
        10.0,
        "minutes between checkpoints, from which an interrupted run resumes; 0: after every step",
        ge=0,
    )
    seed: int = field(1, "random seed of weights, examples and order", ge=0, lt=2**32)

    @property
    def evaluation_steps(self) -> int:
        """Number of steps between evaluations on held-out data."""
        return self.evaluate_every or max(1, self.steps // 20)


class PretrainingConfig(TrainingConfig):
    """Masked language modeling, with or without next-sentence prediction (App. F.1)."""

    start_from: FileName | None = field(
        None,
        "model that fine-tuning starts from, in place of pretraining: model directory, name of a published "
        "model, or directory of a HuggingFace checkpoint",
    )
    further_tokens: Annotated[tuple[FileName, ...], NOT_IN_FINGERPRINT] = field(
        (),
        "directories of prepare tokens with the same tokenizer, such as of other genomes, whose training "
        "tokens are used as well",
    )
    sequence_tokens: int = field(
        512, "tokens per input: [CLS] A [SEP]; next_sentence: and B [SEP]", ge=16
    )
    mask_fraction: float = field(
        0.15,
        "fraction of masked tokens: 80 % become [MASK], 10 % a random token, 10 % stay",
        gt=0,
        lt=1,
    )
    embedding_init: Literal["cooccurrence", "random"] = field(
        "cooccurrence",
        "cooccurrence: from counts of tokens and adjacent tokens; random: as other weights",
    )
    next_sentence: bool = field(
        False, "also predict whether B follows A, as in the paper"
    )
    evaluation_sequences: Annotated[int, MONITORING] = field(
        256, "number of fixed held-out inputs", ge=1
    )

    def _faults(self) -> Iterator[str]:
        yield from self._repeats("further_tokens")


class StartConfig(Section):
    """The initial encoder of fine-tuning, and its changes."""

    initial: Literal["pretrained", "random"] = field(
        "pretrained", "initialization: the pretrained encoder, or random weights"
    )
    extend_positions: bool = field(
        False, "extend a shorter pretrained encoder to encoder.max_length"
    )
    dropout: float | None = field(
        None, "dropout in fine-tuning; none: the encoder's", ge=0, lt=1
    )


class LoraConfig(Section):
    """Low-rank updates of encoder matrices (Hu et al. 2021, arXiv 2106.09685)."""

    rank: int = field(8, "rank of the updates", ge=1, le=4096)
    alpha: float = field(16.0, "updates are multiplied by alpha / rank", gt=0)
    matrices: tuple[LayerMatrix, ...] = field(
        ("query", "value"), "matrices with updates, of every layer", min_length=1
    )

    def _faults(self) -> Iterator[str]:
        yield from self._repeats("matrices")


class FinetuningConfig(TrainingConfig):
    """Training keys shared by all fine-tuning tasks."""

    patience: int | None = field(
        None,
        "number of evaluations in a row with a held-out loss at least 10 % above the lowest, after which "
        "training ends; none: no early end",
        ge=1,
    )
    adapt: Literal["full", "frozen", "lora"] = field(
        "full",
        "trained weights of the encoder: all, none (frozen), or low-rank updates (lora)",
    )
    lora: LoraConfig = LoraConfig()


class CalibrationConfig(Section):
    """Calibration of a model's probabilities on validation data, for outputs on request."""

    method: CalibrationMethod = field(
        "auto",
        "platt: linear in log-odds; isotonic: any increasing curve; auto: isotonic from 1,000 positives and "
        "1,000 negatives on, else platt",
    )


class EvaluationConfig(Section):
    """The baseline of a fine-tuned model."""

    baseline_kmer: int = field(
        5, "k of the k-mer logistic regression used as baseline", ge=1, le=8
    )
    seed: int = field(
        1, "random seed of the baseline and of samples of test data", ge=0, lt=2**32
    )
