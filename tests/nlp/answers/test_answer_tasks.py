"""Question answering by its commands, and what a small model learns that windows alone can't."""

import json
from pathlib import Path
from typing import Any

import pytest

from bigbird_dna.papers.nlp.config import AnswersTaskConfig, GeneratedConfig, read_config
from bigbird_dna.papers.nlp.generated import CHAINS, generate_questions
from bigbird_dna.papers.nlp.records import QuestionRecord
from tests.cli.command import Run
from tests.conftest import REPOSITORY
from tests.nlp.conftest import Write
from tests.nlp.tiny import ETC, ITC, QUESTIONS, done, figures, mistake, read_lines, write_lines

FORMS = ("span", "hotpotqa", "natural_questions", "triviaqa", "wikihop")


@pytest.mark.parametrize(
    ("form", "encoder", "figure"),
    [
        ("span", ITC, "exact_match"),
        ("hotpotqa", ETC, "joint_f1"),
        ("natural_questions", ITC, "long_best_f1"),
        ("triviaqa", ETC, "f1"),
        ("wikihop", ETC, "accuracy"),
    ],
    ids=FORMS,
)
def test_every_form_from_its_records_to_its_figures(
    run: Run, write: Write, tmp_path: Path, form: str, encoder: dict[str, Any], figure: str
) -> None:
    config = write(qa={**QUESTIONS, "form": form, "encoder": encoder})
    done(run, config, "qa", "prepare", "finetune", "predict", "evaluate")
    home = tmp_path / "results/qa"
    records, said = read_lines(home / "data/test.jsonl"), read_lines(home / "predictions.jsonl")
    assert [one["id"] for one in said] == [one["id"] for one in records]
    for record, one in zip(records, said, strict=True):
        if "start" in one:  # the answer is what the source has there
            text = "".join(record["paragraphs"][one["paragraph"]]["sentences"])
            assert one["answer"] and text.startswith(one["answer"], one["start"])
        if form == "wikihop":
            assert one["answer"] in record["candidates"]
    found = figures(home)
    assert found["records"] == 4 and all(0 <= value <= 4 for value in found.values()) and figure in found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("hops", [1, 2])
def test_generated_answers_follow_from_the_facts_and_stand_far_away(form: Any, hops: int) -> None:
    generated = GeneratedConfig(train=1, valid=1, test=30, words=96)
    made = [*generate_questions(generated, "test", form, hops, unanswerable=form == "span")]
    assert made == [*generate_questions(generated, "test", form, hops, unanswerable=form == "span")]
    empty = 0
    for values in made:
        record = QuestionRecord.model_validate_json(json.dumps(values))
        text = " ".join("".join(one.sentences) for one in record.paragraphs)
        told = dict(
            part.rstrip(".").split(f" {verb} ") for verb in ("is", "knows") for part in _told(text, verb)
        )
        assert sum(1 for _ in _told(text, "is")) == CHAINS[hops]
        assert min(text.index(f" {verb} ") for verb in ("is", "knows") if f" {verb} " in text) > len(text) / 4
        if not record.answers:
            empty += 1
            assert record.question not in text
            continue
        found = record.question
        for _ in range(hops):
            found = told[found]
        assert record.answers[0].text == found
        if form == "hotpotqa":
            sentences = [record.paragraphs[one.paragraph].sentences[one.sentence] for one in record.facts]
            assert len(sentences) == hops and any(record.question in one for one in sentences)
            assert any(found in one for one in sentences)
        if form == "wikihop":
            assert len(record.candidates) == CHAINS[hops] and found in record.candidates
    assert bool(empty) == (form in ("span", "natural_questions"))


def _told(text: str, verb: str) -> list[str]:
    words = text.split()
    return [f"{words[n - 1]} {verb} {words[n + 1]}" for n in range(1, len(words) - 1) if words[n] == verb]


def test_mistakes_with_answers_are_one_sentence(run: Run, write: Write, tmp_path: Path) -> None:
    config = write(qa=QUESTIONS)
    for key, *named in (
        ("length=500", "length 500", "encoder.max_length 128"),
        ("question_tokens=60", "question_tokens 60", "length 64"),
        ("public=true", "data.files"),
    ):
        mistake(run, 2, "finetune", config, "qa", *named, key=key)
    train, valid = (tmp_path / f"results/qa/data/{split}.jsonl" for split in ("train", "valid"))
    train.parent.mkdir(parents=True)
    known = {"question": "q", "paragraphs": [{"sentences": ["a b"]}]}
    answered = {**known, "id": "x", "answers": [{"text": "b"}]}
    many = {**answered, "candidates": [f"candidate {n}" for n in range(20)]}
    for rows, form, *named in (
        ([known], "span", "'1'", "answer"),
        ([answered, answered], "span", "'x'"),
        ([answered], "wikihop", "'x'", "candidates"),
        ([many], "wikihop", "'x'", "20 candidates", "length 64"),
    ):
        write_lines(train, *rows)
        write_lines(valid, rows[0])
        mistake(run, 1, "finetune", config, "qa", train, *named, key=f"form={form}")


def test_candidates_that_do_not_fit_are_told_before_anything_is_predicted(
    run: Run, write: Write, tmp_path: Path
) -> None:
    config = write(qa={**QUESTIONS, "form": "wikihop"})
    done(run, config, "qa", "prepare", "finetune")
    test = tmp_path / "results/qa/data/test.jsonl"
    *records, last = read_lines(test)
    write_lines(test, *records, {**last, "candidates": last["candidates"] * 10, "id": "last"})
    mistake(run, 1, "predict", config, "qa", test, "'last'", "40 candidates", "length 64")
    assert not (tmp_path / "results/qa/predictions.jsonl").exists()


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_what_is_further_away_than_windows_is_found_by_bigbird_alone(run: Run, tmp_path: Path) -> None:
    """As the demo trains them: an answer, and the sentence that supports it, among four of each."""
    config = REPOSITORY / "workflow/config/nlp.yaml"
    found = {}
    for task in ("answers", "answers-window"):
        settings = read_config(config).task(task)
        assert isinstance(settings, AnswersTaskConfig)
        # Both layers' windows together reach less far than the first sentence that tells anything stands.
        reach = settings.encoder.layers * (settings.encoder.block_size * 2 - 1)
        assert settings.data.generated is not None and reach < settings.data.generated.words / 3 + 4
        commands = ("prepare", "finetune", "predict", "evaluate")
        done(run, config, task, *commands, more=("--set", f"results={tmp_path}"))
        found[task] = figures(tmp_path / task)
    assert found["answers"]["exact_match"] > 0.9 and found["answers"]["facts_f1"] > 0.9
    assert found["answers-window"]["exact_match"] < 0.3 and found["answers-window"]["facts_f1"] < 0.5
