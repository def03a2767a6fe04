"""The configuration of summarisation."""

from typing import Literal, Self

from pydantic import Field, model_validator

from bigbird_dna.config.training import ShorterConfig, check_stages
from bigbird_dna.nlp.sections import RecordsTrainingConfig, TextTask
from bigbird_dna.nlp.summaries.settings import DecoderShape, Form, SearchConfig


class SummariesTrainingConfig(RecordsTrainingConfig):
    """Training of a summariser."""

    label_smoothing: float = Field(
        default=0.0, ge=0, lt=1, description="share of a token's probability that is spread over all tokens"
    )
    shorter_first: tuple[ShorterConfig, ...] = Field(
        default=(), description="first steps on shorter documents, one stage after the other"
    )
    initial_cross: Literal["matching", "random"] = Field(
        default="random",
        description="of fresh attention to the document; matching: it begins by looking where the document "
        "has the token that the summary ends with so far; random: as other weights, as published",
    )

    @model_validator(mode="after")
    def _stages_leave_some_steps(self) -> Self:
        if self.steps_hold:
            self.check_steps()
        return self

    def check_steps(self) -> None:
        """`ValueError` if shorter documents take all steps."""
        check_stages(self.shorter_first, self.steps)

    def tokens_at(self, step: int, whole: int) -> int:
        """Tokens of a document at a step, counted from 0, where it has `whole` of them in the end."""
        for stage in self.shorter_first:
            if step < stage.steps:
                return min(stage.tokens, whole)
            step -= stage.steps
        return whole


class SummariesTask(TextTask):
    """Summaries by a decoder with full attention."""

    kind: Literal["summaries"]
    form: Form = Field(
        default="base",
        description="base: the decoder shares the encoder's weights but for its attention to the document; "
        "pegasus: LayerNorm before each part and a decoder of its own, as BigBird-Pegasus",
    )
    decoder: DecoderShape | None = Field(
        default=None, description="of the form pegasus; none: as the encoder, or as the checkpoint has it"
    )
    document_tokens: int = Field(default=3072, ge=16, description="of a document, the rest isn't seen")
    keep: Literal["first", "last"] = Field(
        default="first", description="which part of a longer document is seen"
    )
    search: SearchConfig = SearchConfig()
    training: SummariesTrainingConfig = SummariesTrainingConfig()

    @model_validator(mode="after")
    def _decoder_is_of_the_pegasus_form(self) -> Self:
        if self.decoder is not None and self.form != "pegasus":
            raise ValueError("decoder: only the form pegasus has a decoder of its own")
        if self.search.min_length >= self.search.max_length:
            lengths = f"min_length {self.search.min_length}, max_length {self.search.max_length}"
            raise ValueError(f"search: {lengths}: no summary has such a length")
        return self
