"""Documents keep their places, windows cover them, the best answer is the best of all; heads and losses."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import DataError
from bigbird_dna.model.directory import build_network
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.input_embeddings import Globals
from bigbird_dna.papers.nlp.config import TextStartConfig
from bigbird_dna.papers.nlp.initialization import make_text_start
from bigbird_dna.papers.nlp.questions import (
    PARAGRAPH,
    QUESTION,
    SENTENCE,
    TITLE,
    AnswerNetwork,
    AnswerReader,
    AnswersObjective,
    LongAnswersSettings,
    best_span,
    decode,
    find_answers,
    span_loss,
    true_labels,
    window_labels,
)
from bigbird_dna.papers.nlp.records import QuestionRecord
from bigbird_dna.tokens.text import JsonTokenizer
from tests.golden.messages import fails
from tests.nlp.conftest import ETC, shuffle_weights, their_config

import transformers  # isort: skip  (conftest skips where it is missing)

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
    "facts": [{"paragraph": 0, "sentence": 1}, {"paragraph": 1, "sentence": 0}],
}


SETTINGS = LongAnswersSettings(
    form="hotpotqa", length=48, stride=10, question_tokens=4, answer_words=3
)


@pytest.fixture
def reader(text_tokenizer: JsonTokenizer) -> AnswerReader:
    return AnswerReader(text_tokenizer, SETTINGS)


def other(reader: AnswerReader, extra: int = 0, **values: Any) -> AnswerReader:
    """A reader with other settings, which a configuration may not have."""
    return replace(reader, settings=SETTINGS.model_copy(update=values), extra=extra)


def record(**values: Any) -> QuestionRecord:
    return QuestionRecord.model_validate_json(json.dumps({**RECORD, **values}))


def test_every_token_stands_for_its_characters(reader: AnswerReader) -> None:
    document = reader.tokenize(record())
    for token in range(len(document.ids)):
        number, sentence = document.paragraph[token], document.sentence[token]
        text = (
            RECORD["paragraphs"][number]["title"]
            if sentence == TITLE
            else record().paragraph_texts[number]
        )
        piece = text[document.start[token] : document.end[token]]
        assert piece and piece == piece.strip()
        if piece.isascii():
            assert reader.tokenizer.decode([document.ids[token]]).strip() == piece
    texts = record().paragraph_texts
    whole = document.span(0, 47, 57)
    assert whole is not None
    answer = {"answer": "naïve café", "paragraph": 0, "start": 47, "score": 1.0}
    assert document.answer(whole, 1.0) == answer
    assert document.sentence[whole[0]] == 1
    assert document.word[whole[1]] - document.word[whole[0]] + 1 == 2
    first = document.span(0, 0, len(texts[0]))
    assert first is not None and document.answer(first, 0.0)["answer"] == texts[0]
    words = document.word[first[1]] - document.word[first[0]] + 1
    assert words == len(texts[0].split())
    assert document.span(2, 0, 1) is None  # a paragraph of white space


@pytest.mark.parametrize(
    ("length", "stride"), [(20, 3), (20, 100), (14, 1), (500, 250)]
)
def test_windows_cover_every_token_and_hold_what_is_shorter_than_their_overlap(
    reader: AnswerReader, length: int, stride: int
) -> None:
    document = reader.tokenize(record())
    reader = other(reader, length=length, stride=stride)
    found = reader.windows(document)
    room = length - document.header - 1
    assert found[0][0] == 0 and found[-1][1] == len(document.ids)
    for one, following in itertools.pairwise(found):
        assert one[1] - one[0] == room
        assert one[0] < following[0] <= one[1] < following[1]
    overlap = room - min(stride, room)
    for first in range(len(document.ids) - overlap):
        assert any(begin <= first and first + overlap <= end for begin, end in found)
    for window in found:
        assert len(reader.window_input(document, *window).ids) <= length


def test_a_question_with_more_candidates_than_fit_is_told(reader: AnswerReader) -> None:
    many = record(id="x", candidates=["the lazy dog"] * 5)
    reader = other(reader, form="wikihop")
    taken = reader.tokenize(many).header
    other(reader, form="wikihop", length=taken + 14).check_room(
        [record(), many], "a.jsonl"
    )
    # Rows of so many tokens would be read in windows of twelve.
    named = (
        "a.jsonl",
        "'x'",
        "5 candidates",
        f"{taken} tokens",
        f"length {taken + 13}",
        taken + 14,
    )
    with fails(DataError, *named):
        other(reader, form="wikihop", length=taken + 13).check_room(
            [record(), many], "a.jsonl"
        )


def scored(
    reader: AnswerReader, document: Any, begin: int, end: int, *sizes: int
) -> Any:
    """A window with scores 0: these numbers of scores per token, types and anchors."""
    row = reader.window_input(document, begin, end)
    spans, types, anchors = (*sizes, 0, 0)[:3]
    return row, np.zeros((len(row.ids), spans)), np.zeros(types), np.zeros(anchors)


def test_the_best_span_is_the_best_of_all(
    reader: AnswerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = other(reader, length=500)
    document = reader.tokenize(record())
    name = "bigbird_dna.papers.nlp.questions.BEGINNINGS"
    monkeypatch.setattr(name, len(document.ids))
    rng = np.random.default_rng(1)
    size = len(document.ids)
    row, spans, _, _ = scored(reader, document, 0, size, 2)
    for _ in range(20):
        begin, end = sorted(rng.integers(0, size + 1, 2).tolist())
        spans[:] = rng.normal(size=spans.shape)
        start, last = spans[row.shift :].T
        expected: Any = (None, -np.inf)
        for a in range(begin, end):
            for b in range(a, end):
                fits = document.paragraph[a] == document.paragraph[b]
                fits &= document.sentence[a] != TITLE and document.sentence[b] != TITLE
                fits &= document.word[b] - document.word[a] < 3
                score = start[a] + last[b] - spans[0].sum()
                if fits and score > expected[1]:
                    expected = (a, b), score
        found = best_span(document, row, spans, (begin, end - 1), 3)
        if expected[0] is None:
            assert found is None
        else:
            assert found is not None and found[0] == expected[0]
            assert found[1] == pytest.approx(expected[1])


def test_of_several_windows_the_one_that_is_surest_answers(
    reader: AnswerReader,
) -> None:
    document = reader.tokenize(record())
    wanted = document.span(0, 47, 57)
    assert wanted is not None
    reader = other(reader, length=32, stride=5, form="span")
    windows, expected = [], None
    for number, window in enumerate(reader.windows(document)):
        one = scored(reader, document, *window, 2)
        row, spans = one[:2]
        if row.contains(wanted):
            spans[0] = 2.0  # no answer here
            spans[row.shift + wanted[0], 0] = 4 + number
            spans[row.shift + wanted[1], 1] = 4
            expected = 4 + number + 4 - 2 - 2
        else:  # higher scores, below those of no answer
            spans[0], spans[row.header :] = 30.0, 20.0
        windows.append(one)
    answer = {"id": "7", "answer": "naïve café", "paragraph": 0, "start": 47}
    assert decode(document, windows, reader.settings) == {**answer, "score": expected}


def test_a_short_answer_stands_in_the_long_one(reader: AnswerReader) -> None:
    document = reader.tokenize(record())
    reader = other(reader, form="natural_questions", length=500)
    texts = record().paragraph_texts
    first, second = (document.span(n, 0, len(texts[n])) for n in (0, 1))
    assert first is not None and second is not None
    windows = []
    # The first window is surest of a short answer, the second of a long one, which begins further on.
    for window, long, short, kind in (
        ((0, second[0]), first, (40.0, 40.0), 0),
        ((second[0], len(document.ids)), second, (3.0, 4.0), 3),
    ):
        one = scored(reader, document, *window, 4, 5)
        row, spans, types, _ = one
        spans[0] = 1.0
        spans[long[0] + 1 + row.shift, 0], spans[long[0] + 2 + row.shift, 1] = short
        spans[long[0] + row.shift, 2] = spans[long[1] + row.shift, 3] = 5.0 + kind
        types[kind] = 9.0
        windows.append(one)
    text = document.answer((second[0] + 1, second[0] + 2), 0.0)["answer"]
    for order in (windows, windows[::-1]):
        said = decode(document, order, reader.settings)
        assert (said["long_answer"], said["long_score"]) == (1, 14.0)
        assert (said["type"], said["answer"]) == ("short", text)
        assert (said["paragraph"], said["score"]) == (1, 5.0)
    alone = decode(document, windows[:1], reader.settings)
    inside = document.answer((first[0] + 1, first[0] + 2), 0.0)["answer"]
    assert (alone["long_answer"], alone["answer"]) == (0, inside)
    # Where no paragraph stands in a window as a whole there is no long answer, and no short one.
    part = scored(reader, document, 0, first[1], 4, 5)
    assert decode(document, [part], reader.settings) == {
        **{"id": "7", "answer": "", "type": "null"},
        **{"long_answer": None, "long_score": None},
    }


def test_extra_globals_stand_for_question_paragraphs_and_sentences(
    reader: AnswerReader,
) -> None:
    document = reader.tokenize(record())
    whole = 0, len(document.ids)
    row = other(reader, 20).window_input(document, *whole)
    asked = len(document.question)
    kinds = row.global_kinds.tolist()
    assert kinds[1 : asked + 1] == [QUESTION] * asked
    assert row.global_ids[1 : asked + 1].tolist() == document.question
    rest = [kind for kind in kinds[asked + 1 :] if kind]
    assert rest == [
        PARAGRAPH,
        SENTENCE,
        SENTENCE,
        PARAGRAPH,
        SENTENCE,
        SENTENCE,
        PARAGRAPH,
    ]
    assert row.anchor_names == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for slot, (paragraph, sentence) in zip(row.anchors, row.anchor_names, strict=True):
        own = np.flatnonzero(row.owners == slot) - row.header
        same = (document.paragraph == paragraph) & (document.sentence == sentence)
        assert own.tolist() == np.flatnonzero(same).tolist()
    titles = np.flatnonzero(document.sentence == TITLE) + row.header
    assert all(kinds[row.owners[place]] == PARAGRAPH for place in titles)
    assert (row.owners[row.header :] < len(kinds)).all() and row.owners[-1] == -1
    few = other(reader, asked + 3).window_input(document, *whole)
    assert few.anchor_names == [(0, 0)] and few.anchors == [asked + 2]
    paragraphs = other(reader, 20, form="triviaqa").window_input(document, *whole)
    # Every token is owned by its paragraph, title and text.
    slots = paragraphs.owners[paragraphs.header : -1] - asked - 1
    assert slots.tolist() == document.paragraph.tolist()
    assert [kind for kind in paragraphs.global_kinds[asked + 1 :] if kind] == [
        PARAGRAPH
    ] * 3
    inner = reader.window_input(document, *whole)
    assert [int(inner.ids[place]) for place in inner.anchors] == [
        int(
            document.ids[
                np.flatnonzero((document.paragraph == p) & (document.sentence == s))[0]
            ]
        )
        for p, s in inner.anchor_names
    ]


def test_labels_are_where_the_answer_stands_or_on_cls(reader: AnswerReader) -> None:
    reader = other(reader, length=30, stride=5)
    document = reader.tokenize(record(type="span"))
    known = true_labels(document, reader.settings)
    rows = [
        (reader.window_input(document, *window), document, known)
        for window in reader.windows(document)
    ]
    batch = window_labels(rows, reader.settings)
    for number, (row, _, _) in enumerate(rows):
        span = known.spans[0]
        first, last = batch["spans"][number, 0].tolist()
        if row.contains(span):
            inside = document.ids[span[0] : span[1] + 1]
            assert row.ids[first : last + 1].tolist() == inside.tolist()
        else:
            assert (first, last) == (0, 0)
        facts = [label for label in batch["facts"][number].tolist() if label >= 0]
        assert facts == [int(name in {(0, 1), (1, 0)}) for name in row.anchor_names]
    assert 0 < int((batch["spans"][:, 0, 0] > 0).sum()) < len(rows)


def test_an_answer_without_a_place_stands_wherever_its_words_do(
    reader: AnswerReader,
) -> None:
    answers = [
        {"text": "Worst, of times"},
        {"text": "the fox"},
        {"text": "best of all times"},
    ]
    document = reader.tokenize(record(answers=answers))
    known = true_labels(document, other(reader, form="triviaqa").settings)
    found = [document.answer(span, 0.0)["answer"] for span in known.spans]
    assert found == ["fox", "worst of times"]
    text = "A Cat, a cat; the CAT. Catalog “cat”?"
    assert [text[slice(*one)] for one in find_answers(["the cat"], text, 3)] == [
        *("Cat", "cat", "CAT", "cat")
    ]
    assert find_answers(["cat a dog"], "cat dog", 1) == []
    assert find_answers(["the", ""], "the a", 3) == []


def test_the_right_candidate_and_the_paragraph_of_a_long_answer_are_labels(
    reader: AnswerReader,
) -> None:
    reader = other(reader, form="wikihop")
    document = reader.tokenize(
        record(candidates=["fox", "Dog"], answers=[{"text": "dog"}])
    )
    row = reader.window_input(document, 0, len(document.ids))
    assert [int(row.ids[place]) for place in row.anchors] == [
        one[0] for one in document.candidates
    ]
    known = true_labels(document, reader.settings)
    labels = window_labels([(row, document, known)], reader.settings)
    assert labels["candidates"].tolist() == [1]
    reader = other(reader, form="natural_questions")
    document = reader.tokenize(record(long_answer=1, answers=[], type="long"))
    known = true_labels(document, reader.settings)
    assert known.long is not None
    text = record().paragraph_texts[1].strip()
    assert document.answer(known.long, 0.0)["answer"] == text
    row = reader.window_input(document, 0, len(document.ids))
    labels = window_labels([(row, document, known)], reader.settings)
    assert (labels["long_spans"][0, 0] - row.header).tolist() == [*known.long]
    assert labels["spans"].tolist() == [[[0, 0]]] and labels["types"].tolist() == [4]
    early = reader.window_input(document, 0, known.long[1])
    labels = window_labels([(early, document, known)], reader.settings)
    assert labels["types"].tolist() == [0]


FORMS = {"span": 2, "hotpotqa": 2, "natural_questions": 4}
"""Form → number of scores per token."""


def settings(form: Any = "span") -> LongAnswersSettings:
    return LongAnswersSettings(
        form=form, length=512, stride=256, question_tokens=32, answer_words=30
    )


@pytest.mark.parametrize("form", FORMS)
def test_marks_are_those_of_huggingfaces_question_answering(
    text_tokenizer: JsonTokenizer, tmp_path: Path, form: str
) -> None:
    sizes = {"max_position_embeddings": 512, "block_size": 16, "num_random_blocks": 2}
    config = their_config(text_tokenizer, attention_type="original_full", **sizes)
    theirs = transformers.BigBirdForQuestionAnswering(config).eval()
    shuffle_weights(theirs, 32)
    theirs.save_pretrained(tmp_path)
    text_tokenizer.save(tmp_path / "tokenizer.json")
    ids = torch.randint(
        5,
        text_tokenizer.vocabulary,
        (2, 512),
        generator=torch.Generator().manual_seed(3),
    )
    asked = torch.tensor([9, 30])
    for row, length in enumerate(asked.tolist()):
        ids[row, length - 1] = text_tokenizer.sep_id
    with torch.inference_mode():
        expected = theirs(input_ids=ids)
    start = make_text_start(
        TextStartConfig(model=str(tmp_path)),
        EncoderConfig(max_length=512, attention="full"),
        list,
    )
    network = build_network(start.config, settings(form)).eval()
    assert isinstance(network, AnswerNetwork)
    start.initialize(network)
    with torch.inference_mode():
        anchors = torch.zeros(2, 1, dtype=torch.long)
        found = network(ids, torch.tensor([512, 512]), asked, anchors)
    assert found.spans.shape == (2, 512, FORMS[form])
    for place, logits in enumerate((expected.start_logits, expected.end_logits)):
        context = torch.arange(512) >= asked[:, None]
        context[:, 0] = True
        ours = found.spans[..., place]
        assert (ours[context] - logits[context]).abs().max() < 1e-4
        assert (ours[~context] < -1e5).all() and (logits[~context] < -1e5).all()
        assert logits[context].std() > 0.1  # the comparison says something


def etc_config(**values: Any) -> EncoderConfig:
    own = {
        "vocabulary": 50,
        "layers": 2,
        "hidden": 32,
        "heads": 4,
        "max_length": 256,
        "dropout": 0.0,
    }
    return EncoderConfig(
        **{**ETC, **own, "num_global_tokens": 12, "relative_max_distance": 4, **values}
    )


def etc_input(lengths: Tensor, width: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(4)
    batch = len(lengths)
    ids = torch.randint(5, 50, (batch, width), generator=draw)
    owners = torch.randint(-1, 12, (batch, width), generator=draw)
    global_ids = torch.full((batch, 12), -1)
    global_ids[:, :4] = torch.randint(5, 50, (batch, 4), generator=draw)
    kinds = torch.tensor([1, 2, 2, 2, 3, 4, 4, 3, 4, 4, 0, 0]).expand(batch, -1)
    return {
        "ids": ids,
        "lengths": lengths,
        "header": torch.full((batch,), 5),
        "anchors": torch.tensor([[5, 6, -1]] * batch),
        "global_ids": global_ids,
        "global_kinds": kinds,
        "owners": owners,
    }


def test_given_globals_are_the_same_by_every_route_and_whatever_the_padding() -> None:
    networks = []
    for route in ("dense", "blocked"):
        torch.manual_seed(0)
        network = AnswerNetwork(etc_config(attention_backend=route), "hotpotqa").eval()
        shuffle_weights(network, 32)
        assert network.encoder.layers[0].relative is not None
        for layer in network.encoder.layers:
            layer.relative.data.normal_(std=0.5)  # type: ignore[union-attr,operator]
        networks.append(network)
    networks[1].load_state_dict(networks[0].state_dict())
    given = etc_input(torch.tensor([100, 61]), 100)
    with torch.inference_mode():
        dense, blocked = (network(**given) for network in networks)
        select: Any = AnswersObjective.part
        alone = networks[1](**select(None, given, torch.tensor([1])))
        moved = (given["owners"] + 1).clamp(max=11)
        other = networks[1](**{**given, "owners": moved})
        rolled = given["global_ids"].roll(1, 1)
        asked = networks[1](**{**given, "global_ids": rolled})
    for found in (dense, blocked, other, asked):
        assert found.types is not None and found.anchors is not None
    there = torch.arange(100) < given["lengths"][:, None]
    assert (dense.spans - blocked.spans)[there].abs().max() < 1e-4
    assert (dense.anchors - blocked.anchors).abs().max() < 1e-4  # type: ignore[operator]
    assert (alone.spans[0] - blocked.spans[1, :61]).abs().max() < 1e-4
    assert (alone.types[0] - blocked.types[1]).abs().max() < 1e-4  # type: ignore[index]
    assert (other.spans - blocked.spans)[
        there
    ].abs().max() > 1e-2  # owners are looked at
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
    allowed = torch.tensor([[1, 0, 1, 1, 1, 1, 0], [1, 0, 0, 1, 1, 0, 0]]).bool()
    spans = torch.tensor([[[2, 3], [5, 5]], [[0, 0], [-1, -1]]])
    expected = 0.0
    for row, chosen in enumerate([[(2, 3), (5, 5)], [(0, 0)]]):
        chances = [
            scores[row].masked_fill(~allowed[row], -1e9).softmax(0).tolist()
            for scores in (start, end)
        ]
        total = sum(chances[0][first] * chances[1][last] for first, last in chosen)
        expected -= float(torch.tensor(total).log())
    assert span_loss(start, end, spans, allowed).item() == pytest.approx(
        expected, rel=1e-5
    )
