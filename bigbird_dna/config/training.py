"""Sections of training: the optimiser, steps and batches, and pretraining; what all tasks' have in common."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from bigbird_dna.config.section import DEFAULT_OMITTED, MONITORING, NOT_IN_FINGERPRINT, Section, field

MOST_PROCESSES = 1024
CalibrationMethod = Literal["auto", "platt", "isotonic"]


class OptimizerConfig(Section):
    """Adam or Adafactor with warm-up and linear decay; shared by pretraining and fine-tuning."""

    method: Annotated[Literal["adamw", "adafactor"], DEFAULT_OMITTED] = field(
        "adamw", "adafactor: second moments by row and column, steps by a matrix's size; much less memory"
    )
    learning_rate: float = field(1e-4, "reached after the warm-up; then it falls to 0 in a line", gt=0)
    warmup_steps: int = field(100, "steps in which the learning rate rises", ge=0)
    weight_decay: float = field(0.01, "decoupled from the gradient", ge=0)
    clip_norm: float = field(1.0, "bound of the gradient's norm", gt=0)


class TrainingConfig(Section):
    """What pretraining and fine-tuning have in common."""

    steps: int = field(1000, "optimiser steps", ge=1)
    batch_size: int = field(32, "sequences a step over all processes", ge=1)
    grad_accumulation: Annotated[int, NOT_IN_FINGERPRINT] = field(1, "micro-batches a process and step", ge=1)
    optimizer: OptimizerConfig = OptimizerConfig()
    precision: Annotated[Literal["auto", "float32", "bfloat16"], NOT_IN_FINGERPRINT] = field(
        "auto", "auto: bfloat16 autocast where the device has it"
    )
    allow_slow_attention: Annotated[bool, NOT_IN_FINGERPRINT] = field(
        False, "on a GPU: train with slower attention where the fast kernel can't be had, not stop"
    )
    torch_compile: Annotated[bool, NOT_IN_FINGERPRINT] = field(
        False, "let torch compile what a layer does beside attention; for GPUs, takes a minute first"
    )
    evaluate_every: Annotated[int, MONITORING] = field(
        250, "steps between two measurements on held-out data", ge=1
    )
    checkpoint_every: Annotated[int, MONITORING] = field(
        100, "steps between two checkpoints, from which a killed run goes on", ge=1
    )
    seed: int = field(1, "of weights, examples and order", ge=0, lt=2**32)

    @property
    def steps_hold(self) -> bool:
        """Whether `steps` is how many there will be; else another key says it, once the data are known."""
        return True

    def check_steps(self) -> None:
        """`ValueError` for keys that don't go with so many steps."""


class ShorterConfig(Section):
    """Steps of pretraining on shorter inputs; as many more of them, so that steps have the same tokens."""

    steps: int = Field(ge=1, description="how many")
    tokens: int = Field(ge=16, description="of an input")


def check_stages(stages: Sequence[ShorterConfig], steps: int) -> None:
    """`ValueError` if shorter inputs take all of a training's steps."""
    if (taken := sum(stage.steps for stage in stages)) >= steps:
        raise ValueError(f"length_curriculum takes {taken} steps and leaves none of the {steps}")


class PretrainingConfig(TrainingConfig):
    """Masked-language modelling, with next-sentence prediction or without (App. F.1).

    With `encoder.causal` it is the next token that is learnt, of inputs of the same form.
    """

    sequence_tokens: int = field(512, "of an input: [CLS] A [SEP], with next sentences and B [SEP]", ge=16)
    length_curriculum: tuple[ShorterConfig, ...] = field(
        (), "first steps on shorter inputs, one stage after the other"
    )
    mask_fraction: float = field(
        0.15, "of the tokens; 80 % become [MASK], 10 % another token, 10 % stay", gt=0, lt=1
    )
    mask_span: float = field(1.0, "tokens hidden side by side, on average; 1: each for itself", ge=1, le=100)
    embedding_init: Literal["cooccurrence", "random"] = field(
        "cooccurrence", "cooccurrence: by counts of tokens and of those beside them; random: as other weights"
    )
    next_sentence: bool = field(False, "also learn whether B follows A, as in the paper")
    evaluation_sequences: Annotated[int, MONITORING] = field(256, "held-out, fixed", ge=1)
    ngram_order: Annotated[int, MONITORING] = field(6, "highest of the token n-gram baseline", ge=1, le=12)

    def _faults(self) -> Iterator[str]:
        for stage in self.length_curriculum:
            if stage.tokens >= self.sequence_tokens:
                yield (
                    f"length_curriculum.tokens {stage.tokens} is not below sequence_tokens "
                    f"{self.sequence_tokens}"
                )
        if self.steps_hold:
            self.check_steps()

    def check_steps(self) -> None:
        """`ValueError` if shorter inputs take all steps."""
        check_stages(self.length_curriculum, self.steps)

    def check_causal(self) -> None:
        """`ValueError` for what learning the next token has no use for."""
        if self.next_sentence:
            raise ValueError(
                "pretraining.next_sentence doesn't go with encoder.causal: [CLS] sees neither sentence; "
                "say false"
            )
        for key in ("mask_fraction", "mask_span"):
            usual = type(self).model_fields[key].default
            if getattr(self, key) != usual:
                raise ValueError(
                    f"pretraining.{key} {getattr(self, key):g} doesn't go with encoder.causal, which hides "
                    f"no tokens: leave it at {usual:g}"
                )

    def tokens_at(self, step: int) -> int:
        """Tokens of an input at a step, counted from 0."""
        for stage in self.length_curriculum:
            if step < stage.steps:
                return stage.tokens
            step -= stage.steps
        return self.sequence_tokens


class StartConfig(Section):
    """What fine-tuning starts from, and how its encoder differs from that."""

    initial: Literal["pretrained", "random"] = field(
        "pretrained", "start from the pretrained encoder, or from random weights"
    )
    extend_positions: Literal["tile", "interpolate", "ntk"] | None = field(
        None, "how a pretrained encoder of fewer positions gets encoder.max_length; none: refuse it"
    )
    dropout: float | None = field(None, "while fine-tuning; none: the encoder's", ge=0, lt=1)


class FinetuningConfig(TrainingConfig):
    """What the trainings of all tasks have in common."""

    train_fraction: float = field(
        1.0,
        "share of the training examples that is learnt from, drawn by seed; below 1 for learning curves",
        gt=0,
        le=1,
    )


class CalibrationConfig(Section):
    """How a model's probabilities are corrected on validation data, for who asks for calibrated ones."""

    method: CalibrationMethod = field(
        "auto",
        "platt: a line on log-odds; isotonic: any rising curve; auto: isotonic from 1,000 positives and "
        "as many negatives on",
    )


class EvaluationConfig(Section):
    """What a fine-tuned model is compared with."""

    baseline_kmer: int = field(5, "k of the k-mer regression that figures are compared with", ge=1, le=8)
    seed: int = field(1, "of the baseline, and of samples of test data", ge=0, lt=2**32)
