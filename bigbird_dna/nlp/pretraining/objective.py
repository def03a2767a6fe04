"""Masked tokens of ordinary text, in bits per character."""

from torch import nn

from bigbird_dna.nlp.pretraining.sections import TextPretrainingConfig
from bigbird_dna.nlp.pretraining.tokens import TextTokens
from bigbird_dna.tasks.pretraining.objective import PretrainingObjective
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.distributed import World


class TextObjective(PretrainingObjective):
    """The objective of pretraining, whose bits are of the characters that hidden tokens stand for."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        train: TextTokens,
        valid: TextTokens,
        config: TextPretrainingConfig,
        world: World,
    ) -> None:
        super().__init__(tokenizer, train, valid, config, world, widths=valid.widths)

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Bits per character and accuracy over held-out tokens, always the same."""
        figures = super().evaluate(network)
        return {"bits_per_character": figures.pop("bits_per_base"), **figures}
