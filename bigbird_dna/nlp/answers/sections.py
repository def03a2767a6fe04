"""The configuration of question answering."""

from typing import Literal, Self

from pydantic import Field, model_validator

from bigbird_dna.nlp.sections import RecordsTrainingConfig, TextTask

LEFT = 16
"""Tokens of an input that a question and its candidates leave, at least; three are [CLS] and [SEP]."""
Form = Literal["span", "hotpotqa", "natural_questions", "triviaqa", "wikihop"]


class AnswersTask(TextTask):
    """Answers, supporting facts or candidates, in long documents.

    With `encoder.extra_globals` it is the extended construction (ETC): the extra globals stand for the
    question's tokens, paragraphs, sentences and candidates. Without, some of the sequence's own tokens do.
    """

    kind: Literal["qa"]
    form: Form = Field(
        default="span",
        description="what is asked for and how it is judged: span (an answer that stands in the text), or as "
        "one of the data sets",
    )
    public: bool = Field(
        default=False, description="data.files are the data set's own files, not files of records"
    )
    length: int = Field(default=4096, ge=32, description="tokens of an input, the question included")
    stride: int = Field(default=2048, ge=1, description="tokens from an input to the next, of long documents")
    question_tokens: int = Field(default=64, ge=1, description="of a question; what is further on isn't read")
    answer_words: int = Field(default=30, ge=1, description="longest answer")
    unanswerable: bool = Field(
        default=False, description="form span: a document may have no answer, which is then the empty one"
    )
    hops: Literal[1, 2] = Field(
        default=1, description="generated documents: facts from the question to the answer"
    )
    facts_weight: float = Field(
        default=1.0, ge=0, description="of the supporting facts' loss, beside that of the answer"
    )
    training: RecordsTrainingConfig = RecordsTrainingConfig()

    @model_validator(mode="after")
    def _a_question_leaves_room(self) -> Self:
        if self.length > self.encoder.positions:
            raise ValueError(f"length {self.length} is above encoder.positions {self.encoder.positions}")
        if self.question_tokens + LEFT > self.length:
            raise ValueError(f"question_tokens {self.question_tokens} leave no room in length {self.length}")
        if self.encoder.extra_globals and self.question_tokens + 8 > self.encoder.extra_globals:
            raise ValueError(
                f"question_tokens {self.question_tokens} leave none of the encoder.extra_globals "
                f"{self.encoder.extra_globals} for paragraphs"
            )
        if self.public and (self.form == "span" or self.data.files is None):
            raise ValueError("public needs data.files, and the form of a data set")
        if self.unanswerable and self.form != "span":
            raise ValueError(f"unanswerable goes with form span, not {self.form}")
        return self
