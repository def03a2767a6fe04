"""Both forms of a summarizer, and the search: what a decoder sees, what a cache changes."""

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.encoder import Layer
from bigbird_dna.papers.nlp.config import SearchConfig
from bigbird_dna.papers.nlp.generation import summarize
from bigbird_dna.papers.nlp.summarizer import (
    CrossAttention,
    Memory,
    PegasusSummarizer,
    Summarizer,
    match_tokens,
    split_heads,
)
from tests.golden.messages import fails

SPECIAL: Any = SimpleNamespace(cls_id=2, sep_id=3, pad_id=0)
BASE = {
    "vocabulary": 40,
    "layers": 2,
    "hidden": 16,
    "heads": 2,
    "max_length": 96,
    "block_size": 8,
}
FORMS = ("learned", "rotary", "pegasus")


def summarizer(form: str = "learned", seed: int = 0, **changes: Any) -> Summarizer:
    """A small network of float64 whose weights are large enough for logits to differ."""
    torch.manual_seed(seed)
    position = "rotary" if form == "rotary" else "learned"
    values = {**BASE, "position_encoding": position, **changes}
    kind = PegasusSummarizer if form == "pegasus" else Summarizer
    network = kind(EncoderConfig.model_validate(values))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
        for name, parameter in network.named_parameters():
            if "cross" in name and name.endswith(("output.weight", "query.weight")):
                parameter.mul_(6)  # summaries go by their documents
    return network.double().eval()


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(4, 40, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("form", FORMS)
def test_a_cache_changes_nothing_and_beams_of_a_document_share_it(form: str) -> None:
    network = summarizer(form)
    ids, lengths, targets = drawn(2, 60), torch.tensor([60, 23]), drawn(6, 7, seed=1)
    with torch.no_grad():
        each = network(
            ids.repeat_interleave(3, 0), lengths.repeat_interleave(3), targets
        )
        memory = network.memory(network.encoder(ids, lengths), lengths)
        together = network.decode(targets, memory)
        cache = DynamicCache()
        parts = [network.decode(part, memory, cache) for part in targets.split(1, 1)]
    torch.testing.assert_close(together, each, atol=1e-9, rtol=0)
    torch.testing.assert_close(torch.cat(parts, 1), each, atol=1e-9, rtol=0)
    assert each.std() > 0.3


def test_the_base_form_is_the_encoder_and_attention_to_the_document() -> None:
    network = summarizer()
    own = {
        name
        for name, _ in network.named_parameters()
        if not name.startswith("encoder.")
    }
    assert all(name.startswith("cross.") or name == "logits_bias" for name in own)
    ids, targets = drawn(1, 20), drawn(1, 6, seed=1)
    with torch.no_grad():
        memory = network.encoder(ids)[0]
        x = spelt_out(network, memory, targets[0])
        torch.testing.assert_close(network(ids, None, targets)[0], x, atol=1e-9, rtol=0)


def spelt_out(network: Summarizer, memory: Tensor, targets: Tensor) -> Tensor:
    """Logits (T, V) of one summary, token by token and head by head, by loops."""
    own = network.encoder.embeddings
    assert own.position is not None
    x = own.norm(
        own.token(targets) + own.position.weight[: len(targets)] + own.segment.weight[0]
    )
    for layer, cross in zip(network.encoder.layers, network.cross, strict=True):
        assert isinstance(layer, Layer) and layer.key is not None
        parts = (layer.query, layer.key, layer.value)
        past = [_attended(x[t : t + 1], x[: t + 1], parts) for t in range(len(x))]
        x = layer.attention_norm(x + layer.attention_output(torch.cat(past)))
        assert isinstance(cross, CrossAttention)
        seen = _attended(x, memory, (cross.query, cross.key, cross.value))
        x = cross.norm(x + cross.output(seen))
        inner = F.gelu(layer.intermediate(x), approximate="tanh")
        x = layer.output_norm(x + layer.output(inner))
    logits: Tensor = x @ own.token.weight.T + network.logits_bias
    return logits


def _attended(x: Tensor, to: Tensor, parts: tuple[torch.nn.Linear, ...]) -> Tensor:
    q, k, v = parts[0](x), parts[1](to), parts[2](to)
    heads = []
    for head in range(2):
        columns = slice(8 * head, 8 * head + 8)
        weights = (q[:, columns] @ k[:, columns].T / math.sqrt(8)).softmax(-1)
        heads.append(weights @ v[:, columns])
    return torch.cat(heads, 1)


@pytest.mark.parametrize(
    ("form", "beams"), [("learned", 1), ("learned", 2), ("rotary", 1), ("pegasus", 2)]
)
def test_a_summary_does_not_depend_on_the_documents_beside_it(
    form: str, beams: int
) -> None:
    network = summarizer(form)
    lengths = [70, 25, 9, 50]
    search = SearchConfig(beams=beams, max_length=12)
    documents = [
        row[:length].numpy() for row, length in zip(drawn(4, 70), lengths, strict=True)
    ]
    cpu = torch.device("cpu")
    alone = [
        next(summarize(network, [row], search, SPECIAL, cpu, 1)) for row in documents
    ]
    assert [*summarize(network, documents, search, SPECIAL, cpu, 3)] == alone
    assert len({*map(tuple, alone)}) > 1


@pytest.mark.parametrize(
    "attention", ["full", "window", "longformer", "performer", "reformer"]
)
def test_documents_may_be_read_by_any_attention(attention: str) -> None:
    network = summarizer(attention=attention, head_init="random")
    with torch.no_grad():
        logits = network(drawn(1, 40), None, drawn(1, 4))
    assert logits.shape == (1, 4, 40) and logits.isfinite().all()


@pytest.mark.parametrize("changes", [{"reversible": True}, {"kmers": 4}])
def test_what_a_summarizer_cannot_have_is_refused(changes: dict[str, Any]) -> None:
    with fails(ConfigError, f"encoder.{next(iter(changes))}"):
        summarizer(**changes)


@pytest.mark.parametrize("kind", [Summarizer, PegasusSummarizer])
def test_matching_attention_begins_by_looking_at_the_same_token(kind: Any) -> None:
    torch.manual_seed(0)
    config = EncoderConfig(
        vocabulary=40, layers=1, hidden=64, heads=4, max_length=64, dropout=0.0
    )
    network = kind(config)
    match_tokens(network)
    states = F.layer_norm(torch.randn(1, 30, 64), (64,))
    cross: Any = network.cross[0]
    ((k, v),) = network.memory(states).layers
    scores = split_heads(cross.query(states), 4) @ k.transpose(-1, -2)
    assert (scores.mean(1).argmax(-1) == torch.arange(30)).all()
    there = v.transpose(1, 2).flatten(2)
    torch.testing.assert_close(cross.output(there), states, atol=1e-5, rtol=0)


TABLE: Any = SimpleNamespace(cls_id=0, sep_id=1, pad_id=2)


class Table(Summarizer):
    """A decoder that is a table: log-probabilities of the next token by the last one, and nothing else."""

    def __init__(self, seed: int) -> None:
        super().__init__(EncoderConfig(vocabulary=6, layers=1, hidden=4, heads=1))
        generator = torch.Generator().manual_seed(seed)
        scores = (torch.randn(6, 6, generator=generator) * 2).log_softmax(-1)
        self.scores = torch.nn.Parameter(scores, requires_grad=False)

    def memory(self, hidden: Tensor, lengths: Tensor | None = None) -> Memory:
        return Memory([(hidden[:, None], hidden[:, None])], None)

    def decode(self, ids: Tensor, memory: Memory, cache: Any = None) -> Tensor:
        return self.scores[ids]

    def log_probability(self, summary: tuple[int, ...]) -> float:
        """Of a summary after the start."""
        pairs = itertools.pairwise((TABLE.cls_id, *summary))
        return sum(float(self.scores[pair]) for pair in pairs)

    def found(self, beams: int, longest: int, penalty: float = 0.0) -> list[int]:
        """The summary that is found."""
        search = SearchConfig(
            beams=beams, max_length=longest + 1, length_penalty=penalty
        )
        document = np.array([0, 3, 1], np.int32)
        cpu = torch.device("cpu")
        return next(summarize(self, [document], search, TABLE, cpu, 1))


@pytest.mark.parametrize("penalty", [0.0, 0.8, 2.0])
def test_enough_beams_find_the_best_summary_of_all(penalty: float) -> None:
    whole = [
        (*middle, last)
        for length in range(1, 5)
        for middle in itertools.product([0, 2, 3, 4, 5], repeat=length - 1)
        for last in ([1] if length < 4 else range(6))
    ]
    for seed in range(3):
        table = Table(seed)
        best = max(
            whole, key=lambda one: table.log_probability(one) / len(one) ** penalty
        )
        assert tuple(table.found(90, 4, penalty)) == best


def test_one_beam_takes_the_likeliest_token_each_time() -> None:
    for seed in range(3):
        table, wanted = Table(seed), [TABLE.cls_id]
        while len(wanted) < 9 and wanted[-1] != TABLE.sep_id:
            wanted.append(int(table.scores[wanted[-1]].argmax()))
        assert table.found(1, 8) == wanted[1:]
