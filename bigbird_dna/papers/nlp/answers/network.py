"""The network that answers: an encoder, marks of tokens, the type of the answer, scores of anchors.

Its settings are what a model directory says of it. Shapes: B batch, L tokens, G extra globals, D hidden
width, A anchors.
"""

from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.heads import QuestionAnswerer
from bigbird_dna.model.input_embeddings import Globals, initialize
from bigbird_dna.model.settings import OtherSettings, Task, register_settings
from bigbird_dna.papers.nlp.config import AnswerForm

TYPES: dict[AnswerForm, tuple[str, ...]] = {
    "hotpotqa": ("span", "yes", "no"),
    "natural_questions": ("null", "yes", "no", "short", "long"),
}
"""Types of answers that a head on [CLS] tells apart."""


class LongAnswersSettings(OtherSettings):
    """Of a model that answers questions in long documents."""

    task: ClassVar[Task] = "long-answers"
    form: AnswerForm
    length: int = Field(ge=32, description="tokens of an input")
    stride: int = Field(ge=1, description="tokens from an input to the next")
    question_tokens: int = Field(ge=1)
    answer_words: int = Field(ge=1)
    unanswerable: bool = False

    @property
    def types(self) -> tuple[str, ...]:
        """The types of answers, in the order of the head's outputs."""
        return TYPES.get(self.form, ())

    @property
    def marks(self) -> int:
        """Scores of a token: start and end, of the answer, and of the long answer if there is one."""
        return 4 if self.form == "natural_questions" else 2

    @property
    def anchored(self) -> bool:
        """Whether sentences (supporting facts) or candidates are scored."""
        return self.form in ("hotpotqa", "wikihop")

    def build(self, config: EncoderConfig) -> Any:
        return AnswerNetwork(config, self.marks, len(self.types), self.anchored)


register_settings(LongAnswersSettings)


UNUSED, CLS, QUESTION, PARAGRAPH, SENTENCE, CANDIDATE = range(6)
"""What an extra global stands for; those of a question's tokens, and of [CLS], have a token besides."""


class AnswerInput(NamedTuple):
    """Inputs of the network; `global_ids`, `global_kinds` and `owners` where there are extra globals."""

    ids: Tensor  # (B, L)
    lengths: Tensor  # (B,)
    asked: Tensor  # (B,) tokens of [CLS], question, [SEP] and candidates: no answer stands there
    anchors: Tensor | None = None  # (B, A) places among extra globals and tokens, -1: none
    global_ids: Tensor | None = None  # (B, G) tokens of [CLS] and question, -1 elsewhere
    global_kinds: Tensor | None = None  # (B, G)
    owners: Tensor | None = None  # (B, L) as `Globals.owners`


class AnswerOutput(NamedTuple):
    """Scores, not normalized; none: the network has no such head."""

    marks: Tensor  # (B, L, 2 or 4): start and end, and of the long answer
    types: Tensor | None  # (B, types)
    anchors: Tensor | None  # (B, A)


class AnswerNetwork(QuestionAnswerer):
    """`QuestionAnswerer` with further heads, and with extra globals that stand for parts of the input.

    A token's two scores are those of HuggingFace's BigBirdForQuestionAnswering, whose weights fit. The type
    is read from [CLS], which is an extra global where there are any, and so are anchors: sentences, and
    candidates. Without extra globals, an anchor is the first token of what it stands for.
    """

    def __init__(self, config: EncoderConfig, marks: int = 2, types: int = 0, anchored: bool = False) -> None:
        super().__init__(config)
        self.long_spans = nn.Linear(config.hidden, marks - 2) if marks > 2 else None
        self.types = nn.Linear(config.hidden, types) if types else None
        self.anchors = nn.Linear(config.hidden, 1) if anchored else None
        self.kinds = nn.Embedding(CANDIDATE + 1, config.hidden) if config.num_global_tokens else None
        for part in (self.long_spans, self.types, self.anchors, self.kinds):
            if part is not None:
                initialize(part, config.hidden)

    def forward(self, *given: Any) -> AnswerOutput:  # type: ignore[override]
        """Scores; the arguments are those of `AnswerInput`."""
        own = AnswerInput(*given)
        ids, globals_ = own.ids, None
        question = torch.arange(ids.shape[1], device=ids.device) < own.asked[:, None]  # (B, L)
        if self.kinds is not None and own.global_ids is not None and own.owners is not None:
            tokens = self.encoder.embeddings.token(own.global_ids.clamp(min=0))
            tokens = tokens * (own.global_ids >= 0)[..., None]
            globals_ = Globals(tokens + self.kinds(own.global_kinds), own.owners)
        encoded = self.encoder.encode(ids, own.lengths, (~question).long(), globals_)
        whole = torch.cat(encoded, dim=1)  # (B, G + L, D)
        first = self.dropout(whole[:, 0])
        found = None
        if self.anchors is not None:
            assert own.anchors is not None
            places = own.anchors.clamp(min=0)[..., None].expand(-1, -1, whole.shape[2])
            found = self.anchors(self.dropout(whole.gather(1, places)))[..., 0]
        marks = self.scores(encoded.tokens, question)
        if self.long_spans is not None:
            marks = torch.cat([marks, self.long_spans(self.dropout(encoded.tokens))], dim=-1)
        return AnswerOutput(marks, None if self.types is None else self.types(first), found)
