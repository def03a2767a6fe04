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

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import DataError
from bigbird_dna.model.directory import build_network
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.input_embeddings import Globals
from bigbird_dna.papers.nlp.answers.documents import (
    PARAGRAPH,
    QUESTION,
    SENTENCE,
    TITLE,
    AnswerInput,
    AnswerNetwork,
    AnswerReader,
    LongAnswersSettings,
    TokenSpan,
    Window,
    network_input,
    some_rows,
)
from bigbird_dna.papers.nlp.answers.reading import WindowScores, answer, best_span
from bigbird_dna.papers.nlp.answers.task import (
    allowed_tokens,
    candidate_loss,
    facts_loss,
    known_of,
    labels_of,
    packed,
    places_of,
    span_loss,
    unpacked,
)
from bigbird_dna.papers.nlp.config import TextStartConfig
from bigbird_dna.papers.nlp.initialization import make_text_start
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
    document = reader.document(record())
    for token in range(len(document.ids)):
        number, sentence = document.paragraph[token], document.sentence[token]
        text = (
            RECORD["paragraphs"][number]["title"]
            if sentence == TITLE
            else document.texts[number]
        )
        piece = text[document.start[token] : document.end[token]]
        assert piece and piece == piece.strip()
        if piece.isascii():
            assert reader.tokenizer.decode([document.ids[token]]).strip() == piece
    whole = document.span(0, 47, 57)
    assert whole is not None and document.text(whole) == "naïve café"
    assert document.sentence[whole.first] == 1
    words = document.last_word[whole.last] - document.first_word[whole.first] + 1
    assert words == 2
    first = document.span(0, 0, len(document.texts[0]))
    assert first is not None and document.text(first) == document.texts[0]
    assert document.last_word[first.last] - document.first_word[first.first] + 1 == len(
        document.texts[0].split()
    )
    assert document.span(2, 0, 1) is None  # a paragraph of white space


@pytest.mark.parametrize(
    ("length", "stride"), [(20, 3), (20, 100), (14, 1), (500, 250)]
)
def test_windows_cover_every_token_and_hold_what_is_shorter_than_their_overlap(
    reader: AnswerReader, length: int, stride: int
) -> None:
    document = reader.document(record())
    reader = other(reader, length=length, stride=stride)
    found = reader.windows(document)
    room = length - reader.row(document, found[0]).asked - 1
    assert found[0].begin == 0 and found[-1].end == len(document.ids)
    for one, following in itertools.pairwise(found):
        assert one.end - one.begin == room
        assert one.begin < following.begin <= one.end < following.end
    overlap = room - min(stride, room)
    for first in range(len(document.ids) - overlap):
        assert any(w.begin <= first and first + overlap <= w.end for w in found)
    for window in found:
        assert len(reader.row(document, window).ids) <= length


def test_a_question_with_more_candidates_than_fit_is_told(reader: AnswerReader) -> None:
    many = record(id="x", candidates=["the lazy dog"] * 5)
    taken = reader.row(reader.document(many), Window(0, 1)).asked
    other(reader, length=taken + 14).check_room([record(), many], "a.jsonl")
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
        other(reader, length=taken + 13).check_room([record(), many], "a.jsonl")
    with fails(DataError, taken):
        other(reader, length=taken + 1).windows(reader.document(many))


def test_the_best_span_is_the_best_of_all(
    reader: AnswerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = reader.document(record())
    monkeypatch.setattr(
        "bigbird_dna.papers.nlp.answers.reading.BEGINNINGS", len(document.ids)
    )
    rng = np.random.default_rng(1)
    size = len(document.ids)
    for _ in range(20):
        begin, end = sorted(rng.integers(0, size + 1, 2).tolist())
        start, last = rng.normal(size=(2, end - begin)).astype(np.float32)
        expected = None
        for a in range(begin, end):
            for b in range(a, end):
                fits = document.paragraph[a] == document.paragraph[b]
                fits &= document.sentence[a] != TITLE and document.sentence[b] != TITLE
                fits &= document.last_word[b] - document.first_word[a] < 3
                score = start[a - begin] + last[b - begin]
                if fits and (expected is None or score > expected[1]):
                    expected = TokenSpan(a, b), score
        found = best_span(document, Window(begin, end), start, last, 3)
        if expected is None:
            assert found is None
        else:
            assert (
                found is not None
                and found[0] == expected[0]
                and found[1] == pytest.approx(expected[1])
            )


def test_of_several_windows_the_one_that_is_surest_answers(
    reader: AnswerReader,
) -> None:
    document = reader.document(record())
    wanted = document.span(0, 47, 57)
    assert wanted is not None
    reader = other(reader, length=32, stride=5, form="span")
    scored, expected = [], None
    for number, window in enumerate(reader.windows(document)):
        row = reader.row(document, window)
        marks = np.zeros((len(row.ids), 2), np.float32)
        marks[0] = 2.0  # no answer here
        if window.begin <= wanted.first and wanted.last < window.end:
            marks[row.asked + wanted.first - window.begin, 0] = 4 + number
            marks[row.asked + wanted.last - window.begin, 1] = 4
            expected = 4 + number + 4 - 2 - 2
        else:
            marks[0], marks[row.asked :] = (
                30.0,
                20.0,
            )  # higher scores, below those of no answer
        nothing = np.zeros(0, np.float32)
        scored.append(WindowScores(window, row, marks, nothing, nothing))
    said = answer(document, scored, reader.settings)
    assert said.span == wanted and said.score == expected
    doubtful = other(reader, form="span", unanswerable=True).settings
    assert answer(document, scored, doubtful).span == wanted
    unsure = answer(document, scored[-1:], doubtful)
    assert unsure.span is None and unsure.score == -20


def test_a_short_answer_stands_in_the_long_one(reader: AnswerReader) -> None:
    document = reader.document(record())
    reader = other(reader, form="natural_questions", length=500)
    first, second = (
        document.span(number, 0, len(document.texts[number])) for number in (0, 1)
    )
    assert first is not None and second is not None
    scored = []
    # The first window is surest of a short answer, the second of a long one, which begins further on.
    for window, long, short, kind in (
        (Window(0, second.first), first, (40.0, 40.0), 0),
        (Window(second.first, len(document.ids)), second, (3.0, 4.0), 3),
    ):
        row = reader.row(document, window)
        marks = np.zeros((len(row.ids), 4), np.float32)
        shift = row.asked - window.begin
        marks[0] = 1.0
        marks[long.first + 1 + shift, 0], marks[long.first + 2 + shift, 1] = short
        marks[long.first + shift, 2] = marks[long.last + shift, 3] = 5.0 + kind
        types = np.zeros(5, np.float32)
        types[kind] = 9.0
        scored.append(WindowScores(window, row, marks, types, np.zeros(0, np.float32)))
    for order in (scored, scored[::-1]):
        said = answer(document, order, reader.settings)
        assert (said.long, said.long_score, said.type) == (1, 14.0, "short")
        assert (
            said.span == TokenSpan(second.first + 1, second.first + 2)
            and said.score == 5.0
        )
    alone = answer(document, scored[:1], reader.settings)
    assert (alone.long, alone.span) == (0, TokenSpan(first.first + 1, first.first + 2))
    # Where no paragraph stands in a window as a whole there is no long answer, and no short one.
    part = Window(0, first.last)
    row = reader.row(document, part)
    marks = np.zeros((len(row.ids), 4), np.float32)
    none = answer(
        document,
        [WindowScores(part, row, marks, types, scored[0].anchors)],
        reader.settings,
    )
    assert (none.long, none.span, none.type) == (None, None, None)


def test_extra_globals_stand_for_question_paragraphs_and_sentences(
    reader: AnswerReader,
) -> None:
    document = reader.document(record())
    whole = Window(0, len(document.ids))
    row = other(reader, 20).row(document, whole)
    asked = len(document.question)
    kinds = row.global_kinds.tolist()
    assert kinds[1 : asked + 1] == [QUESTION] * asked
    assert row.global_ids[1 : asked + 1].tolist() == document.question.tolist()
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
    assert row.anchor_of == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for slot, (paragraph, sentence) in zip(row.anchors, row.anchor_of, strict=True):
        own = np.flatnonzero(row.owners == slot) - row.asked
        same = (document.paragraph == paragraph) & (document.sentence == sentence)
        assert own.tolist() == np.flatnonzero(same).tolist()
    titles = np.flatnonzero(document.sentence == TITLE) + row.asked
    assert all(kinds[row.owners[place]] == PARAGRAPH for place in titles)
    assert (row.owners[row.asked :] < len(kinds)).all() and row.owners[-1] == -1
    few = other(reader, asked + 3).row(document, whole)
    assert few.anchor_of == [(0, 0)] and few.anchors == [asked + 2]
    paragraphs = other(reader, 20, form="triviaqa").row(document, whole)
    assert [kind for kind in paragraphs.global_kinds[asked + 1 :] if kind] == [
        PARAGRAPH
    ] * 3
    inner = reader.row(document, whole)
    assert [int(inner.ids[place]) for place in inner.anchors] == [
        int(
            document.ids[
                np.flatnonzero((document.paragraph == p) & (document.sentence == s))[0]
            ]
        )
        for p, s in inner.anchor_of
    ]


def test_labels_are_where_the_answer_stands_or_on_cls(reader: AnswerReader) -> None:
    reader = other(reader, length=30, stride=5)
    document = reader.document(record(type="span"))
    known = known_of(document, reader.settings)
    rows = [
        (reader.row(document, window), known, window)
        for window in reader.windows(document)
    ]
    batch = labels_of(rows, reader.settings)
    firsts, lasts = unpacked(batch["spans"])
    for number, (row, _, window) in enumerate(rows):
        span = known.spans[0]
        inside = window.begin <= span.first and span.last < window.end
        first, last = int(firsts[number, 0]), int(lasts[number, 0])
        if inside:
            assert (
                row.ids[first : last + 1].tolist()
                == document.ids[span.first : span.last + 1].tolist()
            )
        else:
            assert (first, last) == (0, 0)
        facts = [
            label for label in batch["anchor_labels"][number].tolist() if label >= 0
        ]
        assert facts == [int(name in {(0, 1), (1, 0)}) for name in row.anchor_of]
    assert 0 < sum(int(one) > 0 for one in firsts[:, 0]) < len(rows)
    whole = {**reader.collate([row for row, *_ in rows]), **batch}
    part = some_rows(whole, batch["types"].new_tensor([len(rows) - 1]))
    assert (
        part["ids"].shape[1] == len(rows[-1][0].ids)
        and network_input(part).owners is None
    )


def test_an_answer_without_a_place_stands_wherever_its_words_do(
    reader: AnswerReader,
) -> None:
    answers = [
        {"text": "Worst, of times"},
        {"text": "the fox"},
        {"text": "best of all times"},
    ]
    document = reader.document(record(answers=answers))
    known = known_of(document, other(reader, form="triviaqa").settings)
    assert [document.text(span) for span in known.spans] == ["fox", "worst of times"]
    text = "A Cat, a cat; the CAT. Catalog “cat”?"
    assert [text[slice(*one)] for one in places_of(["the cat"], text, 3)] == [
        *("Cat", "cat", "CAT", "cat")
    ]
    assert (
        places_of(["cat a dog"], "cat dog", 1) == []
        and places_of(["the", ""], "the a", 3) == []
    )


def test_the_right_candidate_and_the_paragraph_of_a_long_answer_are_labels(
    reader: AnswerReader,
) -> None:
    reader = other(reader, form="wikihop")
    document = reader.document(
        record(candidates=["fox", "Dog"], answers=[{"text": "dog"}])
    )
    window = Window(0, len(document.ids))
    row = reader.row(document, window)
    assert [int(row.ids[place]) for place in row.anchors] == [
        int(one[0]) for one in document.candidates
    ]
    labels = labels_of(
        [(row, known_of(document, reader.settings), window)], reader.settings
    )
    assert labels["anchor_labels"].tolist() == [[0, 1]]
    reader = other(reader, form="natural_questions")
    document = reader.document(record(long_answer=1, answers=[], type="long"))
    known = known_of(document, reader.settings)
    assert (
        known.long is not None
        and document.text(known.long) == document.texts[1].strip()
    )
    row = reader.row(document, window)
    labels = labels_of([(row, known, window)], reader.settings)
    first, last = unpacked(labels["long_spans"])
    assert (int(first[0, 0]) - row.asked, int(last[0, 0]) - row.asked) == known.long
    assert labels["spans"].tolist() == [[0]] and labels["types"].tolist() == [4]
    early = Window(0, known.long.last)
    labels = labels_of([(reader.row(document, early), known, early)], reader.settings)
    assert labels["types"].tolist() == [0]


FORMS = {
    "span": (2, 0, False),
    "hotpotqa": (2, 3, True),
    "natural_questions": (4, 5, False),
}


def settings(form: Any = "span") -> LongAnswersSettings:
    return LongAnswersSettings(
        form=form, length=512, stride=256, question_tokens=32, answer_words=30
    )


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
        TextStartConfig(model=str(tmp_path), compatibility="huggingface"),
        EncoderConfig(max_length=512),
        list,
    )
    network = build_network(start.config, settings(form)).eval()
    assert isinstance(network, AnswerNetwork)
    start.initialize(network)
    given = AnswerInput(
        ids, torch.tensor([512, 512]), asked, torch.zeros(2, 1, dtype=torch.long)
    )
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


def etc_input(lengths: Tensor, width: int) -> AnswerInput:
    draw = torch.Generator().manual_seed(4)
    batch = len(lengths)
    ids = torch.randint(5, 50, (batch, width), generator=draw)
    owners = torch.randint(-1, 12, (batch, width), generator=draw)
    global_ids = torch.full((batch, 12), -1)
    global_ids[:, :4] = torch.randint(5, 50, (batch, 4), generator=draw)
    kinds = torch.tensor([1, 2, 2, 2, 3, 4, 4, 3, 4, 4, 0, 0]).expand(batch, -1)
    return AnswerInput(
        ids,
        lengths,
        torch.full((batch,), 5),
        torch.tensor([[5, 6, -1]] * batch),
        global_ids,
        kinds,
        owners,
    )


def test_given_globals_are_the_same_by_every_route_and_whatever_the_padding() -> None:
    networks = []
    for route in ("dense", "blocked"):
        torch.manual_seed(0)
        network = AnswerNetwork(
            etc_config(attention_backend=route), *FORMS["hotpotqa"]
        ).eval()
        shuffle_weights(network, 32)
        assert network.encoder.layers[0].relative is not None
        for layer in network.encoder.layers:
            layer.relative.data.normal_(std=0.5)  # type: ignore[union-attr,operator]
        networks.append(network)
    networks[1].load_state_dict(networks[0].state_dict())
    given = etc_input(torch.tensor([100, 61]), 100)
    with torch.inference_mode():
        dense, blocked = (network(*given) for network in networks)
        cut = [
            part[1:, :61] if part.shape[1] == 100 else part[1:]
            for part in given
            if part.dim() > 1
        ]  # type: ignore[union-attr]
        alone = networks[1](
            *AnswerInput(cut[0], torch.tensor([61]), given.asked[1:], *cut[1:])
        )
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
    assert (other.marks - blocked.marks)[
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
    lengths, asked = torch.tensor([7, 6]), torch.tensor([2, 3])
    allowed = allowed_tokens(lengths, asked, 7)
    assert allowed.int().tolist() == [[1, 0, 1, 1, 1, 1, 0], [1, 0, 0, 1, 1, 0, 0]]
    spans = torch.tensor(
        [
            [packed(TokenSpan(2, 3)), packed(TokenSpan(5, 5))],
            [packed(TokenSpan(0, 0)), -1],
        ]
    )
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


def test_facts_and_candidates_that_are_not_there_count_nothing() -> None:
    scores = torch.tensor([[2.0, -1.0, 9.0], [0.5, 0.0, 3.0]], requires_grad=True)
    labels = torch.tensor([[1, 0, -1], [0, 0, 1]])
    expected = sum(
        float(torch.nn.functional.softplus(torch.tensor(x)))
        for x in (-2.0, -1.0, 0.5, 0.0, -3.0)
    )
    assert facts_loss(scores, labels).item() == pytest.approx(expected)
    chosen = candidate_loss(scores, torch.tensor([[1, 0, -1], [0, 0, -1]]))
    assert chosen.item() == pytest.approx(
        -float(torch.tensor([2.0, -1.0]).log_softmax(0)[0])
    )
    chosen.backward()  # type: ignore[no-untyped-call]
    assert (
        scores.grad is not None
        and scores.grad[1].abs().max() == 0
        and scores.grad.isfinite().all()
    )
