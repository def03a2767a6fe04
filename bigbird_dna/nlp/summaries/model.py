"""Model directories of summarisers."""

from typing import ClassVar

import torch
from torch import nn

from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.settings import OtherSettings, Task, register_settings
from bigbird_dna.nlp.summaries.pegasus import PegasusSummariser
from bigbird_dna.nlp.summaries.settings import DecoderShape, Form, SpecialIds
from bigbird_dna.nlp.summaries.shared import SharedSummariser

Summariser = SharedSummariser | PegasusSummariser

MATCHING = 2.0
"""What queries are multiplied by where attention to the document begins by matching tokens. Chosen on the
generated task: 1 learns it in twice the steps."""


class SummariesSettings(OtherSettings):
    """Of a summariser; one without `decoder` is of the base form."""

    task: ClassVar[Task] = "summaries"
    decoder: DecoderShape | None = None
    special: SpecialIds

    @property
    def form(self) -> Form:
        """Whether the decoder is one of its own."""
        return "base" if self.decoder is None else "pegasus"

    def build(self, config: EncoderConfig) -> Summariser:
        """The network with fresh weights."""
        if self.decoder is None:
            return SharedSummariser(config)
        return PegasusSummariser(config, self.decoder)

    def layers(self, config: EncoderConfig) -> int:
        """Of encoder and decoder, as far as they have tensors of their own."""
        return config.layers + (config.layers if self.decoder is None else self.decoder.layers)


register_settings(SummariesSettings)


def match_tokens(network: nn.Module) -> None:
    """Let fresh attention to the document begin by looking at tokens like the summary's last one.

    Queries and keys are one random turn of the states, so that a head's scores grow with the likeness of part
    of them; values and output are that turn and its inverse, so that what is attended to arrives as it was.
    Encoder and decoder share their embeddings: like tokens have like states. What the encoder knows of a
    token's neighbours is then at hand from the first step, and copying a passage is a matter of reading it.
    """
    for part in network.modules():
        if isinstance(part, SharedSummariser):
            crosses = [layer.attention for layer in part.crosses()]
        elif isinstance(part, PegasusSummariser):
            crosses = [layer.cross for layer in part.decoder.parts()]
        else:
            continue
        for cross in crosses:
            with torch.no_grad():
                turn = nn.init.orthogonal_(torch.empty_like(cross.query.weight))
                cross.query.weight.copy_(MATCHING * turn)
                cross.key.weight.copy_(turn)
                cross.value.weight.copy_(turn)
                cross.output.weight.copy_(turn.T)
