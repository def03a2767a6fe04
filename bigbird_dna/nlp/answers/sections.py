"""The configuration of question answering."""

from typing import Literal

from bigbird_dna.nlp.sections import TextTask


class AnswersTask(TextTask):
    """Answers, supporting facts or candidates, in long documents."""

    kind: Literal["qa"]
