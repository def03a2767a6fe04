"""Effect of pretraining: models from pretrained and from random weights, compared in a table and as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from bigbird_dna.config import (
    LONGER,
    PRETRAINED,
    RANDOM,
    STUDY_TASKS,
    Config,
    share_name,
)
from bigbird_dna.data.predictions import ALL, negative_set_of
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, write_table
from bigbird_dna.errors import DataError
from bigbird_dna.papers.experiments.comparing import (
    ArmModel,
    EvaluatedModels,
    FineTunedModel,
    StudyArm,
    StudyRow,
    by_arm,
    compare_arms,
    evaluate_medians,
    evaluate_windows,
    mean_curve,
    open_test_bins,
    pretraining_seconds,
    read_models,
    track_aurocs,
)
from bigbird_dna.papers.experiments.experiment import Arm, ArmJob, Experiment, require
from bigbird_dna.papers.experiments.figures import share_figure, steps_figure
from bigbird_dna.reporting.run_page import processor_seconds

# Name of the benchmark file of pretraining.
_PRETRAINING = "pretrain"
_NUMBERS = [
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
]
_WHERE = {
    "promoters": "on the test windows",
    "chromatin": "in the median over the tracks, on the test bins",
}
_EXAMPLES = {"promoters": "promoters", "chromatin": "bins"}
_UNITS = {"promoters": "windows", "chromatin": "tracks"}  # resampled units
STUDY = Schema.of(
    "text task; number share; text start stratum; count seeds examples steps",
    "metric auroc auroc_min auroc_max; estimate delta_auroc; metric minutes pretraining_minutes",
)


class PretrainingStudy(Experiment):
    """The section `pretraining_study`: one model per task, initialization, fraction and seed."""

    name: ClassVar[str] = "pretraining_study"
    files: ClassVar[Sequence[str]] = (
        "study.tsv",
        "study.svg",
        "study_steps.svg",
        "study.txt",
    )

    def check(self, run: Config) -> None:
        require(
            run.pretraining_study,
            "pretraining_study: the configuration has no such section",
        )

    def arms(self, run: Config) -> Sequence[Arm]:
        study = run.pretraining_study
        assert study is not None
        arms = []
        for task in (task for task in STUDY_TASKS if task in study.tasks):
            for start in study.initializations:
                for share in map(share_name, study.train_fractions):
                    keys = {
                        "model.initial": PRETRAINED if start == PRETRAINED else RANDOM,
                        "training.train_fraction": float(share),
                        "training.steps": study.random_long_steps
                        if start == LONGER
                        else study.steps,
                        "training.evaluate_every": study.evaluate_every,
                        # Calibration of these models is not evaluated.
                        "calibration.negatives": 0 if task == "promoters" else None,
                    }
                    arms.append(
                        Arm(
                            f"{task}-{start}-{share}",
                            task,
                            study.seeds,
                            {
                                f"{task}.{key}": value
                                for key, value in keys.items()
                                if value is not None
                            },
                            options={"negative_set": study.negative_set},
                            initialization=run.paths.pretrained
                            if start == PRETRAINED
                            else None,
                            predictions="npy" if task == "chromatin" else "",
                            row=StudyRow(task, float(share), start),
                        )
                    )
        return arms

    def inputs(self, run: Config) -> Sequence[Path]:
        assert run.pretraining_study is not None
        labels = (
            [run.paths.held_out_bins / "labels.npz"]
            if "chromatin" in run.pretraining_study.tasks
            else []
        )
        return [*labels, *([run.paths.pretrained] if run.studies(PRETRAINED) else [])]

    def compare(
        self,
        run: Config,
        jobs: Sequence[ArmJob],
        output: Path,
        *,
        benchmarks: Path | None,
        device: str,
    ) -> list[str]:
        return study_report(
            [ArmModel.of(job) for job in jobs],
            output,
            labels=run.paths.held_out_bins / "labels.npz",
            pretrained=run.paths.pretrained if run.studies(PRETRAINED) else None,
            benchmarks=benchmarks,
            min_positives=run.pretraining_study.min_positives_report
            if run.pretraining_study
            else 1,
        )


def study_report(
    models: Sequence[ArmModel],
    output: Path,
    *,
    labels: Path | None = None,
    pretrained: Path | None = None,
    benchmarks: Path | None = None,
    min_positives: int = 1,
) -> list[str]:
    """Write `study.tsv`, `study.svg`, `study_steps.svg` and `study.txt`; return the sentences. Models have a
    `StudyRow`; those of chromatin have predictions of the test bins with `labels`. The log of `pretrained`
    and Snakemake's tables in `benchmarks` contain the times."""
    tasks = read_models(models)
    seconds = None if pretrained is None else pretraining_seconds(pretrained)
    found = [
        arm
        for task_models in tasks.values()
        for arm in study_arms(task_models, labels, min_positives)
    ]
    whole = [arm for arm in found if arm.stratum == ALL]
    sentences = write_sentences(whole, seconds, benchmarks)
    inputs = [model.path for model in models] + ([pretrained] if pretrained else [])
    with into_directory(output, inputs) as files:
        write_table(files / "study.tsv", study_table(found, seconds), STUDY)
        share_figure(whole, files / "study.svg")
        steps_figure(whole, files / "study_steps.svg")
        (files / "study.txt").write_text("\n".join(sentences) + "\n", encoding="utf-8")
    return sentences


def study_arms(
    models: Sequence[FineTunedModel], labels: Path | None, min_positives: int = 1
) -> list[StudyArm]:
    """Evaluate the models of a task on test data, and return their arms in order, for each stratum of the
    windows. Tracks with fewer than `min_positives` positive test bins are not included in the median."""
    files = [model.of.predictions for model in models]
    if models[0].of.row.task == "promoters":
        strata = {}
        for stratum, evaluated, classes, _ in evaluate_windows(
            files, negative_set_of(files[0])
        ):
            if len(np.unique(classes)) < 2:
                raise DataError(
                    f"{files[0]}: AUROC needs test windows of both classes, found only one"
                )
            strata[stratum] = evaluated
    else:
        assert labels is not None
        strata = {ALL: _evaluate_chromatin(files, labels, min_positives)}
    arms = by_arm(
        ((one.of.row, one.of.seed) for one in models), [one.of.path for one in models]
    )

    def pretrained(row: StudyRow) -> StudyRow | None:
        return None if row.start == PRETRAINED else row._replace(start=PRETRAINED)

    return [
        StudyArm(row, [models[number] for number in arms[row].values()], found, stratum)
        for stratum, evaluated in strata.items()
        for row, found in compare_arms(evaluated, arms, pretrained, minus="arm").items()
    ]


def _evaluate_chromatin(
    files: Sequence[Path], labels: Path, min_positives: int
) -> EvaluatedModels:
    truth, arrays = open_test_bins(labels, files)
    names = [f"track {number + 1}" for number in range(truth.tracks)]
    tracks = [track_aurocs(truth, array, names) for array in arrays]
    aurocs, positives = (np.stack(column) for column in zip(*tracks, strict=True))
    counting = (positives[0] >= min_positives) & ~np.isnan(aurocs).any(axis=0)
    if not counting.any():
        raise DataError(
            f"{labels}: no track has negatives and {min_positives:,} positive bins"
        )
    return evaluate_medians(aurocs[:, counting])


def study_table(
    arms: Sequence[StudyArm], pretraining_seconds: float | None
) -> pd.DataFrame:
    """Return one row per task, stratum, fraction and initialization; the gain is the pretrained AUROC minus
    the row's."""
    rows = []
    for arm in arms:
        before = pretraining_seconds if arm.row.start == PRETRAINED else None
        rows.append(
            (
                *(
                    *arm.row,
                    arm.stratum,
                    len(arm.models),
                    arm.examples,
                    arm.models[0].steps,
                ),
                *(
                    arm.auroc,
                    float(arm.aurocs.min()),
                    float(arm.aurocs.max()),
                    *arm.gain,
                ),
                *(arm.seconds / 60, float("nan") if before is None else before / 60),
            )
        )
    return pd.DataFrame(rows, columns=STUDY.names)


def _describe_times(
    pretraining: float | None, by_start: Mapping[str, float], what: str
) -> str:
    """Describe the times of pretraining and fine-tuning in seconds; "" if one of them is unknown."""
    if pretraining is None or PRETRAINED not in by_start:
        return ""
    own = by_start[PRETRAINED]
    text = (
        f"Pretraining took {minutes(pretraining)}, fine-tuning {minutes(own)}: "
        f"{minutes(pretraining + own)} in total"
    )
    if LONGER in by_start:
        text += f", compared with {minutes(by_start[LONGER])} for longer training from random weights"
    return f"{text}, {what}."


def _means(seconds: Sequence[tuple[str, float | None]]) -> dict[str, float]:
    """Return mean times by initialization, if the times of all its models are known."""
    by_start: dict[str, list[float | None]] = {}
    for start, value in seconds:
        by_start.setdefault(start, []).append(value)
    return {
        start: float(np.mean([value for value in values if value is not None]))
        for start, values in by_start.items()
        if None not in values
    }


def minutes(seconds: float) -> str:
    if seconds < 90:
        return "a minute" if seconds >= 30 else "less than a minute"
    return (
        f"{seconds / 60:.0f} minutes"
        if seconds < 5400
        else f"{seconds / 3600:.1f} hours"
    )


def write_sentences(
    arms: Sequence[StudyArm], pretraining: float | None, benchmarks: Path | None = None
) -> list[str]:
    """Summarize the effect of pretraining for all fractions, then by fraction, and the times: `pretraining`
    in seconds from its log, and CPU times from Snakemake's `benchmarks`."""
    paragraphs = []
    for task in dict.fromkeys(arm.row.task for arm in arms):
        own = [arm for arm in arms if arm.row.task == task]
        paragraphs.append(_verdict(task, own))
        for share in dict.fromkeys(arm.row.share for arm in own):
            paragraphs.append(
                _at_share(share, [arm for arm in own if arm.row.share == share])
            )
        logged = _means([(arm.row.start, arm.seconds) for arm in own])
        what = "according to the training logs, without evaluations"
        paragraphs.append(_describe_times(pretraining, logged, what))
        if benchmarks is not None:
            # Models are below experiments/NAME/ARM/SEED, which are the wildcards of the rule `arm`.
            jobs = [
                (
                    arm.row.start,
                    benchmarks / f"arm-{'-'.join(model.of.path.parts[-4:-1])}.tsv",
                )
                for arm in own
                for model in arm.models
            ]
            measured = _means(
                [(start, processor_seconds(path)) for start, path in jobs]
            )
            before = processor_seconds(benchmarks / f"{_PRETRAINING}.tsv")
            what = "in CPU time of complete jobs"
            paragraphs.append(_describe_times(before, measured, what))
    return [paragraph for paragraph in paragraphs if paragraph]


def _verdict(task: str, arms: Sequence[StudyArm]) -> str:
    against = [
        arm
        for arm in arms
        if arm.row.start == RANDOM and not math.isnan(arm.gain.value)
    ]
    if not against:
        return f"{task.capitalize()}: no models of both initializations to compare."
    if all(_kind(arm) == "unknown" for arm in against):
        return (
            f"{task.capitalize()}: the test {_UNITS[task]} are too few, or too similar, for an interval of "
            "the difference, so no conclusion on a gain is possible."
        )
    kinds = {
        kind: [arm.row.share for arm in against if _kind(arm) == kind]
        for kind in _VERDICTS
    }
    statements = [
        text.format(_shares(kinds[kind]))
        for kind, text in _VERDICTS.items()
        if kinds[kind]
    ]
    if len(against) == len(kinds["open"]):
        statements = [
            f"no significant gain at {_shares(kinds['open'])} of the examples"
        ]
    return f"{task.capitalize()}: {'; '.join(statements)}."


_VERDICTS = {
    "gain": "pretrained weights are better at {} of the examples",
    "loss": "random weights are better at {}",
    "open": "no significant difference at {}",
    "unknown": "no interval of the difference at {}",
}


def _kind(arm: StudyArm) -> str:
    if math.isnan(arm.gain.low):
        return "unknown"
    return "gain" if arm.gain.low > 0 else "loss" if arm.gain.high < 0 else "open"


def _at_share(share: float, arms: Sequence[StudyArm]) -> str:
    starts = {arm.row.start: arm for arm in arms}
    first = starts.get(PRETRAINED)
    if first is None:
        return ""
    place = f"{_percent(share)} of the examples ({first.examples:,} {_EXAMPLES[first.row.task]})"
    text = f"At {place}, pretrained weights reach an AUROC of {first.auroc:.3f} {_WHERE[first.row.task]}"
    random, longer = starts.get(RANDOM), starts.get(LONGER)
    if random is not None:
        text += f", random weights {random.auroc:.3f}: {_gain(random)}."
        text += _soon(first, random)
    else:
        text += "."
    if longer is not None:
        text += (
            f" Random weights trained for {longer.models[0].steps:,} steps instead of "
            f"{first.models[0].steps:,} reach {longer.auroc:.3f}: {_gain(longer)}."
        )
    return text


def _gain(arm: StudyArm) -> str:
    value, low, high = arm.gain
    if math.isnan(value):
        return "no common seed, so there is no interval of the difference"
    if math.isnan(low):
        return f"a difference of {_signed(value)}, without an interval"
    pairs = arm.compared.pairs
    seeds = f"over {_NUMBERS[pairs] if pairs < len(_NUMBERS) else pairs} seeds"
    over = seeds if pairs > 1 else "with one seed, over the test data alone"
    span = f"[{_signed(low)}, {_signed(high)}]"
    match _kind(arm):
        case "gain":
            return f"a gain of {value:.3f} {span} {over}"
        case "loss":
            return f"a loss of {-value:.3f} {over} (a gain of {_signed(value)} {span})"
    return f"no significant gain {over}: the interval of the difference, {_signed(value)} {span}, contains 0"


def _soon(first: StudyArm, second: StudyArm) -> str:
    """Return how soon pretrained weights reach the final validation AUROC of random weights."""
    ours, theirs = (
        mean_curve([m.valid for m in first.models]),
        mean_curve([m.valid for m in second.models]),
    )
    if not len(ours.steps) or not len(theirs.steps):
        return ""
    reached = ours.steps[ours.values >= theirs.values[-1]]
    if not len(reached) or reached[0] >= theirs.steps[-1]:
        return ""
    return (
        f" On validation data, they need {reached[0]:,} steps for the AUROC that random weights reach after "
        f"{theirs.steps[-1]:,}."
    )


def _shares(shares: Sequence[float]) -> str:
    texts = [_percent(share) for share in shares]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _signed(value: float) -> str:
    return f"{round(value, 3) + 0.0:.3f}".replace("-", "−")
