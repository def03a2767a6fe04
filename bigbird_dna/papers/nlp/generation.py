"""The search for summaries by transformers' `generate`, whose import takes seconds.

Shapes: B documents, L tokens of a document, D hidden width.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig
from transformers import PreTrainedModel as TransformersModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from bigbird_dna.model.batching import LONG
from bigbird_dna.model.inference import prepared
from bigbird_dna.papers.nlp.config import SearchConfig, SpecialIds
from bigbird_dna.papers.nlp.summarizer import Memory, Summarizer


class DecoderOfDocuments(TransformersModel, GenerationMixin):  # type: ignore[misc]
    """The decoder with documents to summarize, as a decoder-only language model of transformers.

    The documents' keys and values are not among the inputs, so `generate` does not copy them for each beam.
    """

    def __init__(self, network: Summarizer, memory: Memory) -> None:
        sizes = {"num_hidden_layers": len(memory.layers)}
        super().__init__(
            PretrainedConfig(vocab_size=network.config.vocabulary, **sizes)
        )
        self.network, self.documents = network, memory

    def forward(
        self, input_ids: Tensor, past_key_values: Any = None, **_: Any
    ) -> CausalLMOutputWithPast:
        logits = self.network.decode(input_ids, self.documents, past_key_values)
        return CausalLMOutputWithPast(logits=logits, past_key_values=past_key_values)


@torch.inference_mode()
def generate_summaries(
    network: Summarizer,
    hidden: Tensor,
    lengths: Tensor | None,
    search: SearchConfig,
    special: SpecialIds,
) -> list[list[int]]:
    """Return the summary of each document, as token ids without the start; finished summaries end with `end`.

    `hidden` is the output of the network's encoder (B, L, D), `lengths` are the documents' true lengths (B,);
    None: no padding.
    """
    beams: dict[str, Any] = {}
    if search.beams > 1:
        beams["length_penalty"] = search.length_penalty
        beams["early_stopping"] = search.early_stopping
    settings = GenerationConfig(
        num_beams=search.beams,
        do_sample=False,
        min_length=search.min_length,
        max_length=search.max_length,
        no_repeat_ngram_size=search.no_repeat,
        bos_token_id=special.start,
        eos_token_id=special.end,
        pad_token_id=special.pad,
        forced_bos_token_id=special.forced_first,
        forced_eos_token_id=special.forced_last,
        **beams,
    )
    start = torch.full((len(hidden), 1), special.start, device=hidden.device)
    decoder = DecoderOfDocuments(network, network.memory(hidden, lengths))
    rows = decoder.generate(
        start, generation_config=settings, attention_mask=torch.ones_like(start)
    )
    summaries = [row[1:].tolist() for row in rows]
    return [
        ids[: ids.index(special.end) + 1] if special.end in ids else ids
        for ids in summaries
    ]


def summarize(
    network: Summarizer,
    documents: Sequence[NDArray[np.int32]],
    search: SearchConfig,
    special: SpecialIds,
    device: torch.device,
    batch_size: int,
) -> Iterator[list[int]]:
    """Yield the token ids of each document's summary, in order.

    Every document is encoded separately. On a CPU, its summary is also searched separately, so that no bit
    depends on other documents; on other devices, `batch_size` documents are searched together.
    """
    together = 1 if device.type == "cpu" else batch_size
    with prepared(network, LONG), torch.inference_mode():
        for start in range(0, len(documents), together):
            encoded = []
            for ids in documents[start : start + together]:
                row = torch.from_numpy(ids).long().to(device)
                encoded.append(network.encode(row[None])[0])
            lengths = torch.tensor([len(row) for row in encoded])
            hidden = nn.utils.rnn.pad_sequence(encoded, batch_first=True)
            yield from generate_summaries(network, hidden, lengths, search, special)
