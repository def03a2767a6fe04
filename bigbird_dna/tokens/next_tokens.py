"""What a causal model is to predict at each token: the next one."""

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.masking import NOT_MASKED, Masked


def next_tokens(ids: NDArray[np.integer], tokenizer: Tokenizer) -> Masked:
    """The ids (L,) as they are, and at each place the token behind it.

    Where that is no piece made of bases (a special one, or one of N), and at the end, nothing is predicted:
    the candidates are those of masked tokens.
    """
    labels = np.full(len(ids), NOT_MASKED, np.int64)
    behind = np.asarray(ids[1:], np.int64)
    labels[:-1] = np.where(np.isin(behind, tokenizer.base_ids), behind, NOT_MASKED)
    return Masked(np.asarray(ids), labels)
