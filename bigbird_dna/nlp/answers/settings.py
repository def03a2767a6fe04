"""What the model directory of a question answerer says of it."""

from typing import Any, ClassVar

from pydantic import Field

from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.settings import OtherSettings, Task, register_settings
from bigbird_dna.nlp.answers.sections import Form

TYPES: dict[Form, tuple[str, ...]] = {
    "hotpotqa": ("span", "yes", "no"),
    "natural_questions": ("null", "yes", "no", "short", "long"),
}
"""Types of answers that a head on [CLS] tells apart."""


class LongAnswersSettings(OtherSettings):
    """Of a model that answers questions in long documents."""

    task: ClassVar[Task] = "long-answers"
    form: Form
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
        """The network with fresh weights."""
        from bigbird_dna.nlp.answers.network import AnswerNetwork

        return AnswerNetwork(config, self.marks, len(self.types), self.anchored)


register_settings(LongAnswersSettings)
