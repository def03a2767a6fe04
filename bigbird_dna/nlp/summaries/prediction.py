"""Summaries of documents by a trained model; of each its own, whatever documents stand beside it."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from bigbird_dna.model.batching import LONG
from bigbird_dna.model.packed_layers import prepared
from bigbird_dna.nlp.summaries.model import Summariser
from bigbird_dna.nlp.summaries.rows import Ids
from bigbird_dna.nlp.summaries.search import search_summaries
from bigbird_dna.nlp.summaries.settings import SearchConfig, SpecialIds


def summarise(
    network: Summariser,
    documents: Sequence[Ids],
    search: SearchConfig,
    special: SpecialIds,
    device: torch.device,
    batch_size: int,
) -> Iterator[list[int]]:
    """Token ids of each document's summary, in their order.

    Every document is encoded by itself. On a CPU its summary is searched for by itself too, so that no bit
    depends on other documents; elsewhere those of `batch_size` documents are, side by side.
    """
    together = 1 if device.type == "cpu" else batch_size
    with prepared(network, LONG):
        for start in range(0, len(documents), together):
            hidden, lengths = _encoded(network, documents[start : start + together], device)
            yield from search_summaries(network, hidden, lengths, search, special)


@torch.inference_mode()
def _encoded(
    network: Summariser, documents: Sequence[Ids], device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Hidden states of documents (B, L, D), padded with zeros, and lengths where there is padding."""
    rows = [network.encode(torch.from_numpy(ids).long()[None].to(device))[0] for ids in documents]
    lengths = torch.tensor([len(row) for row in rows])
    hidden = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return hidden, lengths if len(rows) > 1 else None
