"""Windows keep the positions of their tokens, the best answer is the best of all; heads and losses."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.input_embeddings import Globals
from bigbird_dna.papers.nlp.config import AnswersTaskConfig
from bigbird_dna.papers.nlp.qa import (
    TYPES,
    AnswerNetwork,
    Window,
    best_answer,
    decode,
    make_windows,
    span_loss,
    window_labels,
)
from bigbird_dna.papers.nlp.records import QuestionRecord
from bigbird_dna.papers.nlp.trainer import fast_tokenizer
from bigbird_dna.tokens.text import JsonTokenizer
from tests.nlp.conftest import ETC, shuffle_weights

RECORD: dict[str, Any] = {
    "id": "7",
    "question": "What then?",
    "paragraphs": [
        {
            "title": "Dogs",
            "sentences": [
                "The quick brown fox  jumps.",
                " Over\tthe lazy dog, naïve café!",
            ],
        },
        {
            "sentences": [
                " It was the best of times, ",
                "it was the worst of times — “paid” $3.50.",
            ]
        },
        {"title": "Empty", "sentences": [" "]},
    ],
    "answers": [{"text": "naïve café", "paragraph": 0, "start": 47}],
    "facts": [[0, 1], [1, 0]],
    "type": "short",
}


def section(form: str = "hotpotqa", **values: Any) -> AnswersTaskConfig:
    keys = {"length": 500, "stride": 10, "answer_words": 3}
    return AnswersTaskConfig.model_validate(
        {"kind": "qa", "form": form, "data": {"generated": {}}, **keys, **values}
    )


def record(**values: Any) -> QuestionRecord:
    return QuestionRecord.model_validate_json(json.dumps({**RECORD, **values}))


@pytest.fixture
def tokenizer(text_tokenizer: JsonTokenizer) -> Any:
    return fast_tokenizer(text_tokenizer)


def text_of(window: Window, first: int, last: int) -> str:
    """The text of tokens of a window's input."""
    return record().context[window.start[first] : window.end[last]]


def test_every_token_has_its_characters(tokenizer: Any) -> None:
    known = record()
    (window,) = make_windows(known, tokenizer, section(), 0)
    ids = window.inputs["input_ids"]
    for token in np.flatnonzero(window.paragraph >= 0).tolist():
        start = known.starts[window.paragraph[token]]
        piece = known.context[window.start[token] : window.end[token]]
        assert window.start[token] >= start and piece == piece.lstrip()
        if piece.isascii():
            assert tokenizer.decode([ids[token]]).strip() == piece.strip()
    span = window.find(known.starts[0] + 47, known.starts[0] + 57)
    assert span is not None and text_of(window, *span) == "naïve café"
    assert window.word[span[1]] - window.word[span[0]] + 1 == 2
    whole = window.find(*known.bounds(0))
    assert whole is not None
    assert text_of(window, *whole) == known.paragraphs[0].text
    assert window.find(0, 1) is None  # a title


@pytest.mark.parametrize(("length", "stride"), [(36, 3), (36, 25), (500, 250)])
def test_windows_cover_every_token(tokenizer: Any, length: int, stride: int) -> None:
    def tokens(window: Window) -> set[tuple[int, ...]]:
        columns = (window.paragraph, window.start, window.end, window.word)
        rows = zip(*columns, window.inputs["input_ids"], strict=True)
        return {tuple(map(int, row)) for row in rows}

    (one,) = make_windows(record(), tokenizer, section(), 0)
    config = section(length=length, stride=stride)
    windows = make_windows(record(), tokenizer, config, 0)
    assert all(len(window.inputs["input_ids"]) <= length for window in windows)
    assert set().union(*map(tokens, windows)) == tokens(one)


def test_the_best_answer_is_the_best_of_all(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = section()
    (window,) = make_windows(record(), tokenizer, config, 0)
    size = len(window.paragraph)
    monkeypatch.setattr("bigbird_dna.papers.nlp.qa.BEGINNINGS", size)
    rng = np.random.default_rng(1)
    for _ in range(20):
        begin, end = sorted(rng.integers(0, size, 2).tolist())
        spans = rng.normal(size=(size, 2))
        best, expected = -np.inf, None
        for a in range(begin, end + 1):
            for b in range(a, end + 1):
                fits = window.paragraph[a] == window.paragraph[b] >= 0
                fits &= window.word[b] - window.word[a] < 3
                score = spans[a, 0] + spans[b, 1] - spans[0].sum()
                if fits and score > best:
                    best, expected = score, (a, b)
        found = best_answer(record(), window, spans, (begin, end), config)
        if expected is None:
            assert not found
            continue
        assert found["answer"] == text_of(window, *expected)
        assert found["score"] == pytest.approx(best)
        start = record().starts[found["paragraph"]] + found["start"]
        assert start == window.start[expected[0]]


def test_of_several_windows_the_one_with_the_best_score_answers(
    tokenizer: Any,
) -> None:
    config = section("span", length=36, stride=25)
    known = record()
    windows = make_windows(known, tokenizer, config, 0)
    scores, expected = [], None
    for number, window in enumerate(windows):
        spans = np.zeros((len(window.paragraph), 2))
        answer = window.find(known.starts[0] + 47, known.starts[0] + 57)
        if answer is not None:
            spans[0] = 2.0  # no answer here
            spans[answer[0], 0], spans[answer[1], 1] = 4 + number, 4
            expected = 4 + number + 4 - 2 - 2
        else:  # higher scores, below those of no answer
            spans[:] = 20.0
            spans[0] = 30.0
        scores.append({"spans": spans, "anchors": []})
    answer = {"id": "7", "answer": "naïve café", "paragraph": 0, "start": 47}
    assert decode(known, windows, scores, config) == {**answer, "score": expected}


def test_a_short_answer_is_in_the_long_one(tokenizer: Any) -> None:
    config = section("natural_questions", answer_words=30)
    known = record()
    (window,) = make_windows(known, tokenizer, config, 0)
    first, second = (window.find(*known.bounds(number)) for number in (0, 1))
    assert first is not None and second is not None
    spans = np.zeros((len(window.paragraph), 4))
    spans[0] = 1.0
    spans[first[0], 2] = spans[first[1], 3] = 5.0
    spans[first[0] + 1, 0] = spans[first[0] + 2, 1] = 40.0  # a better short answer
    spans[second[0], 2] = spans[second[1], 3] = 8.0
    spans[second[0] + 1, 0], spans[second[0] + 2, 1] = 3.0, 4.0
    types = np.array([0, 0, 0, 9.0, 0])
    scores = {"spans": spans, "types": types, "anchors": []}
    found = decode(known, [window], [scores], config)
    assert found == {
        "id": "7",
        "type": "short",
        "long_answer": 1,
        "long_score": 14.0,
        "answer": text_of(window, second[0] + 1, second[0] + 2),
        "paragraph": 1,
        "start": found["start"],
        "score": 5.0,
    }


def test_extra_globals_represent_question_paragraphs_and_sentences(
    tokenizer: Any,
) -> None:
    (window,) = make_windows(record(), tokenizer, section(), 24)
    ids, found = window.inputs["input_ids"], window.inputs["global_ids"]
    asked = window.inputs["token_type_ids"].index(1)
    assert found[:asked] == ids[:asked]
    sep, mask = tokenizer.sep_token_id, tokenizer.mask_token_id
    rest = [token for token in found[asked:] if token != tokenizer.pad_token_id]
    # A paragraph of white space has only its sentence of white space.
    assert rest == [sep, mask, mask] * 2 + [sep, mask]
    names = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    assert window.anchors == names
    owners = np.array(window.inputs["owners"])
    for slot, (paragraph, _) in zip(window.inputs["anchors"], names, strict=True):
        owned = np.flatnonzero(owners == slot)
        assert set(window.paragraph[owned].tolist()) == {paragraph}
    assert owners[-1] == -1
    (few,) = make_windows(record(), tokenizer, section(), asked + 2)
    assert few.anchors == [(0, 0)] and few.inputs["anchors"] == [asked + 1]
    (inner,) = make_windows(record(), tokenizer, section(), 0)
    assert inner.anchors == names
    for token, (paragraph, sentence) in zip(
        inner.inputs["anchors"], names, strict=True
    ):
        sentences = record().paragraphs[paragraph].sentences
        start = record().starts[paragraph] + len("".join(sentences[:sentence]))
        assert record().context[start : inner.start[token]].strip() == ""


def test_labels_are_where_the_answer_is_or_on_cls(tokenizer: Any) -> None:
    config = section(length=36, stride=25)
    found, known = 0, record()
    for window in make_windows(record(), tokenizer, config, 0):
        labels = window_labels(window, record(), config)
        span = window.find(known.starts[0] + 47, known.starts[0] + 57)
        assert labels["spans"] == [*(span or (0, 0))]
        found += span is not None
        facts = [int(name in {(0, 1), (1, 0)}) for name in window.anchors]
        assert labels["facts"] == (facts or [-1])
        assert labels["types"] == [TYPES.index("short")]
    assert found


def test_an_answer_without_a_position_is_wherever_its_words_are(
    tokenizer: Any,
) -> None:
    texts = ("Worst, of times", "the fox", "best of all times", "the", "")
    known = record(answers=[{"text": text} for text in texts])
    config = section("triviaqa")
    (window,) = make_windows(known, tokenizer, config, 0)
    spans = window_labels(window, known, config)["spans"]
    found = []
    for first, last in zip(spans[::2], spans[1::2], strict=True):
        found.append(known.context[window.start[first] : window.end[last]])
    assert found == ["fox", "worst of times"]
    paragraphs = [{"sentences": ["A Cat, a cat; the CAT. Catalog “cat”?"]}]
    known = record(paragraphs=paragraphs, answers=[{"text": "the cat"}], facts=[])
    (window,) = make_windows(known, tokenizer, config, 0)
    assert len(window_labels(window, known, config)["spans"]) == 8


def test_the_right_candidate_and_a_long_answer_are_labels(tokenizer: Any) -> None:
    config = section("wikihop")
    known = record(candidates=["fox", "Dog"], answers=[{"text": "Dog"}])
    (window,) = make_windows(known, tokenizer, config, 0)
    candidates = tokenizer([" fox", " Dog"], add_special_tokens=False)["input_ids"]
    ids = window.inputs["input_ids"]
    anchors = [ids[token] for token in window.inputs["anchors"]]
    assert anchors == [tokens[0] for tokens in candidates]
    assert window_labels(window, known, config)["facts"] == [0, 1]
    config = section("natural_questions")
    known = record(long_answer=1, answers=[], type="long")
    (window,) = make_windows(known, tokenizer, config, 0)
    labels = window_labels(window, known, config)
    assert text_of(window, *labels["long_spans"]) == known.paragraphs[1].text.strip()
    assert labels["spans"] == [0, 0] and labels["types"] == [TYPES.index("long")]
    config = section("natural_questions", length=40)
    early = make_windows(known, tokenizer, config, 0)[0]
    assert window_labels(early, known, config)["types"] == [TYPES.index("null")]


def etc_config(**values: Any) -> EncoderConfig:
    sizes = {"vocabulary": 50, "layers": 2, "hidden": 32, "heads": 4}
    own = {**sizes, "max_length": 256, "dropout": 0.0}
    return EncoderConfig(
        **{**ETC, **own, "num_global_tokens": 12, "relative_max_distance": 4, **values}
    )


def etc_input(lengths: Tensor, width: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(4)
    batch = len(lengths)
    global_ids = torch.randint(5, 50, (batch, 12), generator=draw)
    return {
        "input_ids": torch.randint(5, 50, (batch, width), generator=draw),
        "token_type_ids": (
            (torch.arange(width) >= 5) & (torch.arange(width) < lengths[:, None] - 1)
        ).long(),
        "anchors": torch.tensor([[5, 6, -1]] * batch),
        "global_ids": global_ids,
        "owners": torch.randint(-1, 12, (batch, width), generator=draw),
    }


def test_globals_are_the_same_by_every_route_and_whatever_the_padding() -> None:
    networks = []
    for route in ("dense", "blocked"):
        torch.manual_seed(0)
        network = AnswerNetwork(etc_config(attention_backend=route), "hotpotqa").eval()
        shuffle_weights(network, 32)
        for layer in network.encoder.layers:
            layer.relative.data.normal_(std=0.5)  # type: ignore[union-attr,operator]
        networks.append(network)
    networks[1].load_state_dict(networks[0].state_dict())
    batch = etc_input(torch.tensor([100, 61]), 100)
    row = {key: value[1:] for key, value in batch.items()}
    short = ("input_ids", "token_type_ids", "owners")
    row |= {key: row[key][:, :61] for key in short}
    with torch.inference_mode():
        dense, blocked = (network(**batch) for network in networks)
        alone = networks[1](**row)
        moved = (batch["owners"] + 1).clamp(max=11)
        other = networks[1](**{**batch, "owners": moved})
        rolled = batch["global_ids"].roll(1, 1)
        asked = networks[1](**{**batch, "global_ids": rolled})
    allowed = dense["spans"].isfinite()

    def difference(a: dict[str, Tensor], key: str) -> float:
        finite = blocked[key].isfinite()
        return float((a[key] - blocked[key])[finite].abs().max())

    assert (
        allowed[:, 0].all() and not allowed[:, 1:5].any() and not allowed[1, 60:].any()
    )
    assert difference(dense, "spans") < 1e-4 and difference(dense, "anchors") < 1e-4
    finite = alone["spans"][0].isfinite()
    rest = alone["spans"][0] - blocked["spans"][1, :61]
    assert rest[finite].abs().max() < 1e-4
    assert (alone["types"][0] - blocked["types"][1]).abs().max() < 1e-4
    assert difference(other, "spans") > 1e-2 and difference(asked, "types") > 1e-2


def test_globals_without_content_and_with_owners_in_even_parts_are_the_default() -> (
    None
):
    torch.manual_seed(0)
    encoder = Encoder(etc_config(num_global_tokens=4)).eval()
    ids = torch.randint(5, 50, (2, 64))
    owners = (torch.arange(64) * 4 // 64).expand(2, -1)
    with torch.inference_mode():
        plain = encoder(ids)
        found = encoder.encode(ids, extra=Globals(torch.zeros(2, 4, 32), owners))
    assert torch.equal(found.tokens, plain) and found.globals.shape == (2, 4, 32)


def test_the_noisy_span_loss_is_the_sum_over_all_spans() -> None:
    torch.manual_seed(1)
    allowed = torch.tensor([[1, 0, 1, 1, 1, 1, 0], [1, 0, 0, 1, 1, 0, 0]]).bool()
    start, end = torch.randn(2, 2, 7).masked_fill(~allowed, -torch.inf)
    spans = torch.tensor([[2, 3, 5, 5], [0, 0, -1, -1]])
    expected = 0.0
    for row, chosen in enumerate([[(2, 3), (5, 5)], [(0, 0)]]):
        probs = [scores[row].softmax(0).tolist() for scores in (start, end)]
        total = sum(probs[0][first] * probs[1][last] for first, last in chosen)
        expected -= float(torch.tensor(total).log()) / 2
    assert span_loss(start, end, spans).item() == pytest.approx(expected, rel=1e-5)
