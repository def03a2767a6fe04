"""Heads and losses of question answering against HuggingFace's, slow sums and dense attention."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.directory import build_network
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.input_embeddings import Globals
from bigbird_dna.papers.nlp.answers.documents import (
    AnswerInput,
    AnswerNetwork,
    LongAnswersSettings,
    TokenSpan,
)
from bigbird_dna.papers.nlp.answers.task import allowed_tokens, candidate_loss, facts_loss, packed, span_loss
from bigbird_dna.papers.nlp.config import TextStartConfig
from bigbird_dna.papers.nlp.initialization import make_text_start
from bigbird_dna.tokens.text import JsonTokenizer
from tests.nlp.conftest import shuffle_weights, their_config
from tests.nlp.tiny import ETC

import transformers  # isort: skip  (conftest skips where it is missing)

FORMS = {"span": (2, 0, False), "hotpotqa": (2, 3, True), "natural_questions": (4, 5, False)}


def settings(form: Any = "span") -> LongAnswersSettings:
    return LongAnswersSettings(form=form, length=512, stride=256, question_tokens=32, answer_words=30)


@pytest.mark.parametrize("form", FORMS)
def test_marks_are_those_of_huggingfaces_question_answering(
    text_tokenizer: JsonTokenizer, tmp_path: Path, form: str
) -> None:
    sizes = {"max_position_embeddings": 512, "block_size": 16, "num_random_blocks": 2}
    config = their_config(text_tokenizer, **sizes)
    theirs = transformers.BigBirdForQuestionAnswering(config).eval()
    shuffle_weights(theirs, 32)
    theirs.save_pretrained(tmp_path)
    text_tokenizer.save(tmp_path / "tokenizer.json")
    ids = torch.randint(5, text_tokenizer.vocabulary, (2, 512), generator=torch.Generator().manual_seed(3))
    asked = torch.tensor([9, 30])
    for row, length in enumerate(asked.tolist()):
        ids[row, length - 1] = text_tokenizer.sep_id
    with torch.inference_mode():
        expected = theirs(input_ids=ids)
    start = make_text_start(
        TextStartConfig(model=str(tmp_path), compatibility="huggingface"), EncoderConfig(max_length=512), list
    )
    network = build_network(start.config, settings(form)).eval()
    assert isinstance(network, AnswerNetwork)
    start.initialize(network)
    given = AnswerInput(ids, torch.tensor([512, 512]), asked, torch.zeros(2, 1, dtype=torch.long))
    with torch.inference_mode():
        found = network(*given)
    assert found.marks.shape == (2, 512, FORMS[form][0])
    for place, logits in enumerate((expected.start_logits, expected.end_logits)):
        context = torch.arange(512) >= asked[:, None]
        context[:, 0] = True
        ours = found.marks[..., place]
        assert (ours[context] - logits[context]).abs().max() < 1e-4
        assert (ours[~context] < -1e5).all() and (logits[~context] < -1e5).all()
        assert logits[context].std() > 0.1  # the comparison says something


def etc_config(**values: Any) -> EncoderConfig:
    own = {"vocabulary": 50, "layers": 2, "hidden": 32, "heads": 4, "max_length": 256, "dropout": 0.0}
    return EncoderConfig(**{**ETC, **own, "num_global_tokens": 12, "relative_max_distance": 4, **values})


def etc_input(lengths: Tensor, width: int) -> AnswerInput:
    draw = torch.Generator().manual_seed(4)
    batch = len(lengths)
    ids = torch.randint(5, 50, (batch, width), generator=draw)
    owners = torch.randint(-1, 12, (batch, width), generator=draw)
    global_ids = torch.full((batch, 12), -1)
    global_ids[:, :4] = torch.randint(5, 50, (batch, 4), generator=draw)
    kinds = torch.tensor([1, 2, 2, 2, 3, 4, 4, 3, 4, 4, 0, 0]).expand(batch, -1)
    return AnswerInput(
        ids, lengths, torch.full((batch,), 5), torch.tensor([[5, 6, -1]] * batch), global_ids, kinds, owners
    )


def test_given_globals_are_the_same_by_every_route_and_whatever_the_padding() -> None:
    networks = []
    for route in ("dense", "blocked"):
        torch.manual_seed(0)
        network = AnswerNetwork(etc_config(attention_backend=route), *FORMS["hotpotqa"]).eval()
        shuffle_weights(network, 32)
        assert network.encoder.layers[0].relative is not None
        for layer in network.encoder.layers:
            layer.relative.data.normal_(std=0.5)  # type: ignore[union-attr,operator]
        networks.append(network)
    networks[1].load_state_dict(networks[0].state_dict())
    given = etc_input(torch.tensor([100, 61]), 100)
    with torch.inference_mode():
        dense, blocked = (network(*given) for network in networks)
        cut = [part[1:, :61] if part.shape[1] == 100 else part[1:] for part in given if part.dim() > 1]  # type: ignore[union-attr]
        alone = networks[1](*AnswerInput(cut[0], torch.tensor([61]), given.asked[1:], *cut[1:]))
        moved = given._replace(owners=(given.owners + 1).clamp(max=11))  # type: ignore[operator]
        other = networks[1](*moved)
        asked = networks[1](*given._replace(global_ids=given.global_ids.roll(1, 1)))  # type: ignore[union-attr]
    for found in (dense, blocked, other, asked):
        assert found.types is not None and found.anchors is not None
    there = torch.arange(100) < given.lengths[:, None]
    assert (dense.marks - blocked.marks)[there].abs().max() < 1e-4
    assert (dense.anchors - blocked.anchors).abs().max() < 1e-4  # type: ignore[operator]
    assert (alone.marks[0] - blocked.marks[1, :61]).abs().max() < 1e-4
    assert (alone.types[0] - blocked.types[1]).abs().max() < 1e-4  # type: ignore[index]
    assert (other.marks - blocked.marks)[there].abs().max() > 1e-2  # owners are looked at
    assert (asked.types - blocked.types).abs().max() > 1e-2  # type: ignore[operator]


def test_globals_without_content_and_owners_in_even_parts_are_what_they_were() -> None:
    torch.manual_seed(0)
    encoder = Encoder(etc_config(num_global_tokens=4)).eval()
    ids = torch.randint(5, 50, (2, 64))
    owners = (torch.arange(64) * 4 // 64).expand(2, -1)
    with torch.inference_mode():
        plain = encoder(ids)
        found = encoder.encode(ids, given=Globals(torch.zeros(2, 4, 32), owners))
    assert torch.equal(found.tokens, plain) and found.globals.shape == (2, 4, 32)


def test_the_noisy_span_loss_is_the_sum_over_all_spans() -> None:
    torch.manual_seed(1)
    start, end = torch.randn(2, 2, 7)
    lengths, asked = torch.tensor([7, 6]), torch.tensor([2, 3])
    allowed = allowed_tokens(lengths, asked, 7)
    assert allowed.int().tolist() == [[1, 0, 1, 1, 1, 1, 0], [1, 0, 0, 1, 1, 0, 0]]
    spans = torch.tensor([[packed(TokenSpan(2, 3)), packed(TokenSpan(5, 5))], [packed(TokenSpan(0, 0)), -1]])
    expected = 0.0
    for row, chosen in enumerate([[(2, 3), (5, 5)], [(0, 0)]]):
        chances = [
            scores[row].masked_fill(~allowed[row], -1e9).softmax(0).tolist() for scores in (start, end)
        ]
        total = sum(chances[0][first] * chances[1][last] for first, last in chosen)
        expected -= float(torch.tensor(total).log())
    assert span_loss(start, end, spans, allowed).item() == pytest.approx(expected, rel=1e-5)


def test_facts_and_candidates_that_are_not_there_count_nothing() -> None:
    scores = torch.tensor([[2.0, -1.0, 9.0], [0.5, 0.0, 3.0]], requires_grad=True)
    labels = torch.tensor([[1, 0, -1], [0, 0, 1]])
    expected = sum(float(torch.nn.functional.softplus(torch.tensor(x))) for x in (-2.0, -1.0, 0.5, 0.0, -3.0))
    assert facts_loss(scores, labels).item() == pytest.approx(expected)
    chosen = candidate_loss(scores, torch.tensor([[1, 0, -1], [0, 0, -1]]))
    assert chosen.item() == pytest.approx(-float(torch.tensor([2.0, -1.0]).log_softmax(0)[0]))
    chosen.backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None and scores.grad[1].abs().max() == 0 and scores.grad.isfinite().all()
