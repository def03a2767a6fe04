"""Both forms of a summarizer, and the search: what a decoder sees, what a cache changes."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.encoder import Layer
from bigbird_dna.papers.nlp.config import DecoderShape, SearchConfig, SpecialIds
from bigbird_dna.papers.nlp.generation import generate_summaries, summarize
from bigbird_dna.papers.nlp.summarizer import (
    Memory,
    PegasusSummarizer,
    SharedSummarizer,
    Summarizer,
    match_tokens,
    split_heads,
)
from tests.golden.messages import fails

SPECIAL = SpecialIds(start=2, end=3, pad=0)
BASE = {
    "vocabulary": 40,
    "layers": 2,
    "hidden": 16,
    "heads": 2,
    "max_length": 96,
    "block_size": 8,
}
FORMS = ("base", "base, rotary", "pegasus")


def summarizer(form: str, seed: int = 0, **changes: Any) -> Summarizer:
    """A small network of float64 whose weights are large enough for logits to differ."""
    torch.manual_seed(seed)
    position = "rotary" if "rotary" in form else "learned"
    config = EncoderConfig.model_validate(
        {**BASE, "position_encoding": position, **changes}
    )
    network: Summarizer
    if form == "pegasus":
        network = PegasusSummarizer(
            config, DecoderShape(layers=3, heads=4, intermediate=20)
        )
    else:
        network = SharedSummarizer(config)
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
        memory = network.memory(network.encode(ids, lengths), lengths)
        together = network.decode(targets, memory)
        cache = DynamicCache()
        parts = [network.decode(part, memory, cache) for part in targets.split(1, 1)]
    torch.testing.assert_close(together, each, atol=1e-9, rtol=0)
    torch.testing.assert_close(torch.cat(parts, 1), each, atol=1e-9, rtol=0)
    assert each.std() > 0.3


def test_the_base_form_is_the_encoder_and_attention_to_the_document() -> None:
    network = summarizer("base")
    assert isinstance(network, SharedSummarizer)
    own = {
        name
        for name, _ in network.named_parameters()
        if not name.startswith("encoder.")
    }
    assert all(name.startswith("cross.") or name == "logits_bias" for name in own)
    ids, targets = drawn(1, 20), drawn(1, 6, seed=1)
    with torch.no_grad():
        memory = network.encode(ids)[0]
        x = spelt_out(network, memory, targets[0])
        torch.testing.assert_close(network(ids, None, targets)[0], x, atol=1e-9, rtol=0)


def spelt_out(network: SharedSummarizer, memory: Tensor, targets: Tensor) -> Tensor:
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
        part = cross.attention
        seen = _attended(x, memory, (part.query, part.key, part.value))
        x = cross.norm(x + part.output(seen))
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
    ("form", "beams"), [("base", 1), ("base, rotary", 2), ("pegasus", 2)]
)
def test_a_summary_does_not_depend_on_the_documents_beside_it(
    form: str, beams: int
) -> None:
    network = summarizer(form)
    lengths = torch.tensor([70, 25, 9, 50])
    ids = drawn(4, 70)
    search = SearchConfig(beams=beams, min_length=9, max_length=12, no_repeat=1)
    documents = [
        row[:length].numpy() for row, length in zip(ids, lengths.tolist(), strict=True)
    ]
    alone = [
        next(summarize(network, [row], search, SPECIAL, torch.device("cpu"), 1))
        for row in documents
    ]
    assert [
        *summarize(network, documents, search, SPECIAL, torch.device("cpu"), 3)
    ] == alone
    with torch.no_grad():
        hidden = network.encode(ids, lengths)
    assert generate_summaries(network, hidden, lengths, search, SPECIAL) == alone
    assert len({*map(tuple, alone)}) > 1


@pytest.mark.parametrize(
    "attention", ["full", "window", "longformer", "performer", "reformer"]
)
def test_documents_may_be_read_by_any_attention(attention: str) -> None:
    network = summarizer("base", attention=attention, head_init="random")
    with torch.no_grad():
        logits = network(drawn(1, 40), None, drawn(1, 4))
    assert logits.shape == (1, 4, 40) and logits.isfinite().all()


@pytest.mark.parametrize(
    ("form", "changes", "said"),
    [
        ("base", {"reversible": True}, "encoder.reversible"),
        (
            "pegasus",
            {"position_encoding": "rotary"},
            "encoder.position_encoding rotary",
        ),
        (
            "pegasus",
            {"num_global_tokens": 4, "random_blocks": 0},
            "encoder.num_global_tokens",
        ),
        ("pegasus", {"hidden": 18}, "decoder heads 4 must divide encoder.hidden 18"),
    ],
)
def test_what_a_form_cannot_have_is_refused(
    form: str, changes: dict[str, Any], said: str
) -> None:
    with fails(ConfigError):
        summarizer(form, **changes)


@pytest.mark.parametrize("form", ["base", "pegasus"])
def test_matching_attention_begins_by_looking_at_the_same_token(form: str) -> None:
    torch.manual_seed(0)
    config = EncoderConfig(
        vocabulary=40, layers=1, hidden=64, heads=4, max_length=64, dropout=0.0
    )
    network: Summarizer = SharedSummarizer(config)
    if form == "pegasus":
        shape = DecoderShape(layers=1, heads=4, intermediate=8)
        network = PegasusSummarizer(config, shape)
    match_tokens(network)
    cross = network.cross_attention()[0]
    states = F.layer_norm(torch.randn(1, 30, 64), (64,))
    q, (k, v) = cross.query(states), cross.keys_values(states)
    scores = split_heads(q, 4) @ k.transpose(-1, -2)
    assert (scores.mean(1).argmax(-1) == torch.arange(30)).all()
    there = v.transpose(1, 2).flatten(2)
    torch.testing.assert_close(cross.output(there), states, atol=1e-5, rtol=0)


TABLE = SpecialIds(start=0, end=1, pad=2)


class Table(Summarizer):
    """A decoder that is a table: log-probabilities of the next token by the last one, and nothing else."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.config = EncoderConfig(vocabulary=6, layers=1, hidden=4, heads=1)
        generator = torch.Generator().manual_seed(seed)
        scores = (torch.randn(6, 6, generator=generator) * 2).log_softmax(-1)
        self.scores = torch.nn.Parameter(scores, requires_grad=False)

    def memory(self, hidden: Tensor, lengths: Tensor | None = None) -> Memory:
        return Memory([(hidden[:, None], hidden[:, None])], None)

    def decode(self, ids: Tensor, memory: Memory, cache: Any = None) -> Tensor:
        return self.scores[ids]

    def log_probability(self, summary: tuple[int, ...]) -> float:
        """Of a summary after the start."""
        pairs = itertools.pairwise((TABLE.start, *summary))
        return sum(float(self.scores[pair]) for pair in pairs)

    def found(self, beams: int, longest: int, penalty: float = 0.0) -> list[int]:
        """The summary that is found."""
        keys: dict[str, Any] = {"length_penalty": penalty, "early_stopping": "never"}
        search = SearchConfig(beams=beams, max_length=longest + 1, **keys)
        [summary] = generate_summaries(self, torch.zeros(1, 3, 4), None, search, TABLE)
        return summary


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
        table, wanted = Table(seed), [TABLE.start]
        while len(wanted) < 9 and wanted[-1] != TABLE.end:
            wanted.append(int(table.scores[wanted[-1]].argmax()))
        assert table.found(1, 8) == wanted[1:]
