"""The network that answers questions in long documents, and its settings (App. E.2).

Axes: B rows, L tokens, G extra globals, D hidden width, A anchors (sentences or candidates that are scored).
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
"""Answer types predicted by a head on [CLS]."""

UNUSED, CLS, QUESTION, PARAGRAPH, SENTENCE, CANDIDATE = range(6)
"""Kinds of extra globals; those of question tokens and [CLS] also have a token embedding."""


class LongAnswersSettings(OtherSettings):
    """Settings of a model that answers questions in long documents."""

    task: ClassVar[Task] = "long-answers"
    form: AnswerForm
    length: int = Field(ge=32, description="tokens per input")
    stride: int = Field(
        ge=1, description="distance in tokens between consecutive inputs"
    )
    question_tokens: int = Field(ge=1)
    answer_words: int = Field(ge=1)
    unanswerable: bool = False

    @property
    def types(self) -> tuple[str, ...]:
        """Answer types, in the order of the head's outputs."""
        return TYPES.get(self.form, ())

    def build(self, config: EncoderConfig) -> Any:
        return AnswerNetwork(config, self.form)


register_settings(LongAnswersSettings)


class AnswerInput(NamedTuple):
    """Inputs of the network; `global_ids`, `global_kinds` and `owners` are set if there are extra globals."""

    ids: Tensor  # (B, L)
    lengths: Tensor  # (B,)
    header: Tensor  # (B,) tokens of [CLS], question, [SEP] and candidates, which contain no answer
    anchors: Tensor  # (B, A) positions among extra globals and tokens, -1: none
    global_ids: Tensor | None = None  # (B, G) tokens of [CLS] and question, -1: none
    global_kinds: Tensor | None = None  # (B, G)
    owners: Tensor | None = None  # (B, L) as `Globals.owners`


class AnswerOutput(NamedTuple):
    """Unnormalized scores; None if the network has no such head."""

    spans: Tensor  # (B, L, 2 or 4): start and end, and those of the long answer
    types: Tensor | None  # (B, types)
    anchors: Tensor | None  # (B, A)


class AnswerNetwork(QuestionAnswerer):
    """`QuestionAnswerer` with additional heads, and extra globals that represent parts of the input.

    The two scores of a token are those of HuggingFace's BigBirdForQuestionAnswering, with compatible weights.
    Natural Questions have two more for long answers. The type is predicted from [CLS]. With extra globals,
    [CLS] and the anchors (HotpotQA: sentences, WikiHop: candidates) are among them; without, an anchor is the
    first token of its sentence or candidate.
    """

    def __init__(self, config: EncoderConfig, form: AnswerForm) -> None:
        super().__init__(config)
        hidden, types = config.hidden, len(TYPES.get(form, ()))
        has_long, has_anchors = (
            form == "natural_questions",
            form in ("hotpotqa", "wikihop"),
        )
        self.long_spans = nn.Linear(hidden, 2) if has_long else None
        self.types = nn.Linear(hidden, types) if types else None
        self.anchors = nn.Linear(hidden, 1) if has_anchors else None
        self.kinds = None
        if config.num_global_tokens:
            self.kinds = nn.Embedding(CANDIDATE + 1, hidden)
        for head in (self.long_spans, self.types, self.anchors, self.kinds):
            if head is not None:
                initialize(head, hidden)

    def forward(self, *inputs: Any) -> AnswerOutput:  # type: ignore[override]
        """Return the scores; the arguments are the fields of `AnswerInput`."""
        batch = AnswerInput(*inputs)
        tokens = torch.arange(batch.ids.shape[1], device=batch.ids.device)
        in_header = tokens < batch.header[:, None]  # (B, L)
        extra = None
        if self.kinds is not None:
            assert batch.global_ids is not None and batch.owners is not None
            content = self.encoder.embeddings.token(batch.global_ids.clamp(min=0))
            content = content * (batch.global_ids >= 0)[..., None]
            extra = Globals(content + self.kinds(batch.global_kinds), batch.owners)
        encoded = self.encoder.encode(
            batch.ids, batch.lengths, (~in_header).long(), extra
        )
        hidden = torch.cat(encoded, dim=1)  # (B, G + L, D)
        first = self.dropout(hidden[:, 0])
        anchors = None
        if self.anchors is not None:
            positions = batch.anchors.clamp(min=0)[..., None]
            chosen = hidden.gather(1, positions.expand(-1, -1, hidden.shape[2]))
            anchors = self.anchors(self.dropout(chosen))[..., 0]
        spans = self.scores(encoded.tokens, in_header)
        if self.long_spans is not None:
            long = self.long_spans(self.dropout(encoded.tokens))
            spans = torch.cat([spans, long], dim=-1)
        types = None if self.types is None else self.types(first)
        return AnswerOutput(spans, types, anchors)
