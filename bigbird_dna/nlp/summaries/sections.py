"""The configuration of summarisation."""

from typing import Literal

from bigbird_dna.nlp.sections import TextTask


class SummariesTask(TextTask):
    """Summaries by a decoder with full attention."""

    kind: Literal["summaries"]
