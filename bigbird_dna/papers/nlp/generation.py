"""The search for summaries by transformers' `generate`, whose import takes seconds."""

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
from bigbird_dna.papers.nlp.config import SearchConfig
from bigbird_dna.papers.nlp.summarizer import Memory, Summarizer
from bigbird_dna.tokens.interface import Tokenizer


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


def summarize(
    network: Summarizer,
    documents: Sequence[NDArray[np.int32]],
    search: SearchConfig,
    tokenizer: Tokenizer,
    device: torch.device,
    batch_size: int,
) -> Iterator[list[int]]:
    """Yield the token ids of each document's summary, in order, without the start; finished ones end with
    [SEP].

    Every document is encoded separately. On a CPU, its summary is also searched separately, so that no bit
    depends on other documents; on other devices, `batch_size` documents are searched together.
    """
    beams: dict[str, Any] = {}
    if search.beams > 1:
        beams = {"length_penalty": search.length_penalty, "early_stopping": True}
    settings = GenerationConfig(
        num_beams=search.beams,
        do_sample=False,
        max_length=search.max_length,
        bos_token_id=tokenizer.cls_id,
        eos_token_id=tokenizer.sep_id,
        pad_token_id=tokenizer.pad_id,
        **beams,
    )
    together = 1 if device.type == "cpu" else batch_size
    with prepared(network, LONG), torch.inference_mode():
        for first in range(0, len(documents), together):
            encoded = []
            for ids in documents[first : first + together]:
                row = torch.from_numpy(ids).long().to(device)
                encoded.append(network.encoder(row[None])[0])
            lengths = torch.tensor([len(row) for row in encoded])
            hidden = nn.utils.rnn.pad_sequence(encoded, batch_first=True)
            start = torch.full((len(hidden), 1), tokenizer.cls_id, device=device)
            decoder = DecoderOfDocuments(network, network.memory(hidden, lengths))
            rows = decoder.generate(
                start, generation_config=settings, attention_mask=torch.ones_like(start)
            )
            for summary in rows[:, 1:].tolist():
                if tokenizer.sep_id in summary:
                    summary = summary[: summary.index(tokenizer.sep_id) + 1]
                yield summary
