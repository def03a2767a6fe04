"""A network that says of each symbol how likely it is, given those before it."""

import torch
from torch import Tensor, nn

from bigbird_dna.config import EncoderConfig, find_mechanism
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.input_embeddings import initialise
from bigbird_dna.model.mechanism import goes_by_pattern

# Axes: B batch, L symbols, D hidden width, V kinds of symbols.


def causal_encoder(config: EncoderConfig) -> Encoder:
    """An encoder whose hidden states depend on no later token, bit for bit.

    Raises
    ------
    ConfigError
        The attention has no causal form, or a key lets tokens look ahead: `convolution`, `extra_globals` and
        HuggingFace's arithmetic.
    """
    for key, without in (("convolution", 0), ("extra_globals", 0), ("compatibility", "none")):
        if getattr(config, key) != without:
            raise ConfigError(f"encoder.{key} {getattr(config, key)} lets tokens see later ones")
    causal = config.model_copy(update={"causal": True})  # which validates nothing
    if not goes_by_pattern(causal) and not find_mechanism(causal.attention).causal:
        raise ConfigError(
            f"encoder.attention: {causal.attention} has no causal form: what a token sees depends on later "
            "ones"
        )
    return Encoder(causal)


class CausalNetwork(nn.Module):
    """A causal encoder, and logits over all symbols at each place.

    The last id of the encoder's vocabulary stands in front of the first symbol.
    """

    def __init__(self, config: EncoderConfig, symbols: int) -> None:
        super().__init__()
        self.first = symbols
        self.encoder = causal_encoder(config.model_copy(update={"vocabulary": symbols + 1}))
        self.output = nn.Linear(config.hidden, symbols)
        initialise(self.output, config.hidden)

    def forward(self, symbols: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Symbols (B, L), padded on the right, of true lengths (B,) → logits (B, L, V).

        Those at a place are of the symbol that stands there, given the ones before it.
        """
        first = symbols.new_full((len(symbols), 1), self.first)
        hidden = self.encoder(torch.cat([first, symbols[:, :-1]], 1), lengths)
        return self.output(hidden)  # type: ignore[no-any-return]
