"""Sections of training: the optimiser, steps and batches, and pretraining; what all tasks' have in common."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from bigbird_dna.config.section import COMPUTING, UNSAID, WATCHING, Section

MOST_PROCESSES = 1024
CalibrationMethod = Literal["auto", "platt", "isotonic"]
CALIBRATION_METHODS: tuple[CalibrationMethod, ...] = get_args(CalibrationMethod)


class OptimizerConfig(Section):
    """Adam or Adafactor with warm-up and linear decay; shared by pretraining and fine-tuning."""

    method: Annotated[Literal["adamw", "adafactor"], UNSAID] = Field(
        default="adamw",
        description="adafactor: second moments by row and column, steps by a matrix's size; much less memory",
    )
    learning_rate: float = Field(
        default=1e-4, gt=0, description="reached after the warm-up; then it falls to 0 in a line"
    )
    warmup_steps: int = Field(default=100, ge=0, description="steps in which the learning rate rises")
    weight_decay: float = Field(default=0.01, ge=0, description="decoupled from the gradient")
    clip_norm: float = Field(default=1.0, gt=0, description="bound of the gradient's norm")


class TrainingConfig(Section):
    """What pretraining and fine-tuning have in common."""

    steps: int = Field(default=1000, ge=1, description="optimiser steps")
    batch_size: int = Field(default=32, ge=1, description="sequences a step over all processes")
    grad_accumulation: Annotated[int, COMPUTING] = Field(
        default=1, ge=1, description="micro-batches a process and step"
    )
    optimizer: OptimizerConfig = OptimizerConfig()
    precision: Annotated[Literal["auto", "float32", "bfloat16"], COMPUTING] = Field(
        default="auto", description="auto: bfloat16 autocast where the device has it"
    )
    allow_slow_attention: Annotated[bool, COMPUTING] = Field(
        default=False,
        description="on a GPU: train with slower attention where the fast kernel can't be had, not stop",
    )
    torch_compile: Annotated[bool, COMPUTING] = Field(
        default=False,
        description="let torch compile what a layer does beside attention; for GPUs, takes a minute first",
    )
    evaluate_every: Annotated[int, WATCHING] = Field(
        default=250, ge=1, description="steps between two measurements on held-out data"
    )
    checkpoint_every: Annotated[int, WATCHING] = Field(
        default=100, ge=1, description="steps between two checkpoints, from which a killed run goes on"
    )
    seed: int = Field(default=1, ge=0, lt=2**32, description="of weights, examples and order")

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

    sequence_tokens: int = Field(
        default=512, ge=16, description="of an input: [CLS] A [SEP], with next sentences and B [SEP]"
    )
    length_curriculum: tuple[ShorterConfig, ...] = Field(
        default=(), description="first steps on shorter inputs, one stage after the other"
    )
    mask_fraction: float = Field(
        default=0.15,
        gt=0,
        lt=1,
        description="of the tokens; 80 % become [MASK], 10 % another token, 10 % stay",
    )
    mask_span: float = Field(
        default=1.0, ge=1, le=100, description="tokens hidden side by side, on average; 1: each for itself"
    )
    embedding_init: Literal["cooccurrence", "random"] = Field(
        default="cooccurrence",
        description="cooccurrence: by counts of tokens and of those beside them; random: as other weights",
    )
    next_sentence: bool = Field(default=False, description="also learn whether B follows A, as in the paper")
    evaluation_sequences: Annotated[int, WATCHING] = Field(default=256, ge=1, description="held-out, fixed")
    ngram_order: Annotated[int, WATCHING] = Field(
        default=6, ge=1, le=12, description="highest of the token n-gram baseline"
    )

    @model_validator(mode="after")
    def _the_longest_inputs_come_last(self) -> Self:
        for stage in self.length_curriculum:
            if stage.tokens >= self.sequence_tokens:
                raise ValueError(
                    f"length_curriculum.tokens {stage.tokens} is not below sequence_tokens "
                    f"{self.sequence_tokens}"
                )
        if self.steps_hold:
            self.check_steps()
        return self

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

    initial: Literal["pretrained", "random"] = Field(
        default="pretrained", description="start from the pretrained encoder, or from random weights"
    )
    extend_positions: Literal["tile", "interpolate", "ntk"] | None = Field(
        default=None,
        description="how a pretrained encoder of fewer positions gets encoder.max_length; none: refuse it",
    )
    dropout: float | None = Field(
        default=None, ge=0, lt=1, description="while fine-tuning; none: the encoder's"
    )


class FinetuningConfig(TrainingConfig):
    """What the trainings of all tasks have in common."""

    train_fraction: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="share of the training examples that is learnt from, drawn by seed; below 1 for learning "
        "curves",
    )


class CalibrationConfig(Section):
    """How a model's probabilities are corrected on validation data, for who asks for calibrated ones."""

    method: CalibrationMethod = Field(
        default="auto",
        description="platt: a line on log-odds; isotonic: any rising curve; auto: isotonic from 1,000 "
        "positives and as many negatives on",
    )


class EvaluationConfig(Section):
    """What a fine-tuned model is compared with."""

    baseline_kmer: int = Field(
        default=5, ge=1, le=8, description="k of the k-mer regression that figures are compared with"
    )
    seed: int = Field(default=1, ge=0, lt=2**32, description="of the baseline, and of samples of test data")
