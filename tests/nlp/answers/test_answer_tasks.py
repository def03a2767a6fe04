"""Question answering by its commands, and what a small model learns that windows alone can't."""

import json
from pathlib import Path
from typing import Any

import pytest

from bigbird_dna.papers.nlp.config import read_config
from bigbird_dna.papers.nlp.generated import CHAINS, generate_questions
from bigbird_dna.papers.nlp.records import QuestionRecord
from bigbird_dna.papers.nlp.sections import AnswersTaskConfig, GeneratedConfig
from tests.cli.command import Run, refused
from tests.conftest import REPOSITORY
from tests.nlp.conftest import Write
from tests.nlp.tiny import ETC, ITC, QUESTIONS, done

FORMS = ("span", "hotpotqa", "natural_questions", "triviaqa", "wikihop")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("form", "encoder"),
    [("span", ITC), ("hotpotqa", ETC), ("natural_questions", ITC), ("triviaqa", ETC), ("wikihop", ETC)],
)
def test_every_form_from_its_records_to_its_figures(
    run: Run, write: Write, tmp_path: Path, form: str, encoder: dict[str, Any]
) -> None:
    config = write(qa={**QUESTIONS, "form": form, "encoder": encoder})
    done(run, config, "qa", "prepare", "finetune", "predict", "evaluate")
    home = tmp_path / "results/qa"
    records, said = lines(home / "data/test.jsonl"), lines(home / "predictions.jsonl")
    assert [one["id"] for one in said] == [one["id"] for one in records]
    for record, one in zip(records, said, strict=True):
        if "start" in one:  # the answer is what the source has there
            text = "".join(record["paragraphs"][one["paragraph"]]["sentences"])
            assert one["answer"] and text.startswith(one["answer"], one["start"])
        if form == "wikihop":
            assert one["answer"] in record["candidates"]
    figures = json.loads((home / "evaluation.json").read_text())["figures"]
    assert figures["records"] == 4 and all(0 <= value <= 4 for value in figures.values())
    assert {
        "span": "exact_match",
        "hotpotqa": "joint_f1",
        "natural_questions": "long_best_f1",
        "triviaqa": "f1",
        "wikihop": "accuracy",
    }[form] in figures


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
    wrong = ["nlp", "finetune", config, "--task", "qa", "--set"]
    refused(run(*wrong, "tasks.qa.length=500"), 2, "length 500 is above encoder.max_length 128")
    refused(run(*wrong, "tasks.qa.question_tokens=60"), 2, "question_tokens 60 leave no room in length 64")
    refused(run(*wrong, "tasks.qa.public=true"), 2, "public needs data.files")
    data = tmp_path / "results/qa/data"
    data.mkdir(parents=True)
    known = {"question": "q", "paragraphs": [{"sentences": ["a b"]}]}
    for split in ("train", "valid", "test"):
        (data / f"{split}.jsonl").write_text(json.dumps(known) + "\n")
    refused(run("nlp", "finetune", config, "--task", "qa"), 1, "train.jsonl: record '1' has no answer")
    answered = {**known, "answers": [{"text": "b"}]}
    (data / "train.jsonl").write_text(f"{json.dumps({**answered, 'id': 'x'})}\n" * 2)
    refused(run("nlp", "finetune", config, "--task", "qa"), 1, "train.jsonl: record 'x' stands twice")
    refused(
        run("nlp", "finetune", config, "--task", "qa", "--set", "tasks.qa.form=wikihop"),
        *(1, "train.jsonl: record 'x' has no two candidates"),
    )
    many = {**answered, "id": "x", "candidates": [f"candidate {n}" for n in range(20)]}
    for split in ("train", "valid"):
        (data / f"{split}.jsonl").write_text(json.dumps(many) + "\n")
    refused(
        run("nlp", "finetune", config, "--task", "qa", "--set", "tasks.qa.form=wikihop"),
        *(1, "train.jsonl: record 'x': its question and 20 candidates take", "of length 64 too few"),
    )


def test_candidates_that_do_not_fit_are_told_before_anything_is_predicted(
    run: Run, write: Write, tmp_path: Path
) -> None:
    config = write(qa={**QUESTIONS, "form": "wikihop"})
    done(run, config, "qa", "prepare", "finetune")
    home = tmp_path / "results/qa"
    records = lines(home / "data/test.jsonl")
    records[-1]["candidates"] *= 10
    records[-1]["id"] = "last"
    (home / "data/test.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    refused(
        run("nlp", "predict", config, "--task", "qa", "--threads", 1),
        *(1, "test.jsonl: record 'last': its question and 40 candidates take", "of length 64 too few"),
    )
    assert not (home / "predictions.jsonl").exists()


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_what_is_further_away_than_windows_is_found_by_bigbird_alone(run: Run, tmp_path: Path) -> None:
    """As the demo trains them: an answer, and the sentence that supports it, among four of each."""
    config = REPOSITORY / "workflow/config/nlp.yaml"
    figures = {}
    for task in ("answers", "answers-window"):
        settings = read_config(config).task(task)
        assert isinstance(settings, AnswersTaskConfig)
        # Both layers' windows together reach less far than the first sentence that tells anything stands.
        reach = settings.encoder.layers * (settings.encoder.block_size * 2 - 1)
        assert settings.data.generated is not None and reach < settings.data.generated.words / 3 + 4
        for command in ("prepare", "finetune", "predict", "evaluate"):
            more = [] if command == "prepare" else ["--threads", 1]
            words = [config, "--task", task, "--set", f"results={tmp_path}", *more]
            assert run("nlp", command, *words).code == 0
        figures[task] = json.loads((tmp_path / task / "evaluation.json").read_text())["figures"]
    assert figures["answers"]["exact_match"] > 0.9 and figures["answers"]["facts_f1"] > 0.9
    assert figures["answers-window"]["exact_match"] < 0.3 and figures["answers-window"]["facts_f1"] < 0.5
