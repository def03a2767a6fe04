"""Longer inputs than an encoder was trained on: its positions extended when a checkpoint is loaded.

None of the methods learns anything: figures measured at the old length don't hold for the new one. Axes: P
positions of the checkpoint, N positions wanted, D hidden width.
"""

from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import interpolate

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import ModelError
from bigbird_dna.model.encoder import Encoder

Extension = Literal["tile", "interpolate", "ntk"]


def extend_positions(encoder: Encoder, positions: int, method: Extension = "tile") -> None:
    """Let `encoder` take inputs of up to `positions` tokens; changes it in place, its configuration included.

    * `tile`: the table of learned positions is repeated, the last copy cut (Longformer, Beltagy et al. 2020,
      arXiv 2004.05150, section 5). Neighbors stay neighbors, except where two copies meet. An input that is
      no longer than the old limit gives what it gave before.
    * `interpolate`: all positions are squeezed into the range that was learned. Learned: position i becomes
      the point i (P - 1) / (N - 1) of the old table, between two of its rows. Rotary: positions are divided
      by N / P (Chen et al. 2023, arXiv 2306.15595).
    * `ntk`: rotary only; the base grows by (N / P)^(K / (K - 2)) for heads of width K, so that the longest
      wavelength is stretched by N / P and the shortest stays ("NTK-aware" interpolation, in Peng et al. 2023,
      arXiv 2309.00071, section 3.1).

    `ModelError`: `positions` is below the encoder's, or `method` doesn't fit its kind of positions.
    """
    config = encoder.config
    if positions < config.max_length:
        raise ModelError(
            f"positions {positions}: the model has {config.max_length}; positions can be extended, not cut"
        )
    if positions == config.max_length:
        return
    if config.position_encoding == "rotary":
        changes = _rotary(config, positions, method)
    else:
        changes = {}
        assert encoder.embeddings.position is not None
        table = extended_table(encoder.embeddings.position.weight.detach(), positions, method)
        encoder.embeddings.position = nn.Embedding(positions, config.hidden, _weight=table)
    encoder.config = config.model_copy(update={"max_length": positions, **changes})


def extended_table(table: Tensor, positions: int, method: Extension) -> Tensor:
    """Learnt positions (P, D) → (N, D), by `tile` or `interpolate`; see `extend_positions`."""
    if method == "tile":
        return table.repeat(-(-positions // len(table)), 1)[:positions].clone()
    if method == "interpolate":
        columns = table.T[None].float()  # (1, D, P)
        longer = interpolate(columns, size=positions, mode="linear", align_corners=True)
        return longer[0].T.contiguous().to(table.dtype)
    raise ModelError(f"method {method}: learnt positions can be extended by tile or interpolate")


def _rotary(config: EncoderConfig, positions: int, method: Extension) -> dict[str, float]:
    factor = positions / config.max_length
    width = config.hidden // config.heads
    if method == "interpolate":
        return {"rotary_scale": config.rotary_scale * factor}
    if method == "ntk":
        if width == 2:
            raise ModelError("method ntk: heads of width 2 turn at one rate, whatever the base")
        return {"rotary_base": config.rotary_base * factor ** (width / (width - 2))}
    raise ModelError(
        f"method {method}: rotary positions have no table to repeat; "
        "they can be extended by interpolate or ntk"
    )
