"""Experiments on bytes and symbols: Long-Range Arena, with a classifier per task, attention and seed; and a
causal model of images or text."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pandas as pd
from pydantic import Field

from bigbird_dna.config import Config, LongRangeConfig
from bigbird_dna.disk.atomic import read_object
from bigbird_dna.disk.directories import atomic_directory, into_directory
from bigbird_dna.disk.tables import Schema, number, write_table
from bigbird_dna.papers.experiments.comparing import by_arm, check_comparable
from bigbird_dna.papers.experiments.experiment import (
    Arm,
    ArmJob,
    Experiment,
    StoredValues,
    require,
    with_keys,
)
from bigbird_dna.reporting.result import ResultTable, result_page

RESULT = "result.json"
SCHEMA = Schema.of(
    "text task attention; optional seeds; estimate accuracy; metric seed_spread baseline",
    "text baseline_name; metric most_frequent; optional test_sequences parameters steps; text source",
)
BYTE_LM = Schema.of(
    "text format attention; estimate bits_per_byte; number by_frequency by_frequency_after_a_byte",
    "count test_inputs test_bytes input_symbols parameters steps; text train_sha256 test_sha256",
)
# Published accuracy.
LONG_RANGE = {"Transformer": 0.5787, "BigBird": 0.5759, "Combiner-Fixed": 0.5834}
_SAME = {
    "test_sequences",
    "parameters",
    "steps",
    "data",
}  # equal for all seeds of an arm
LONG_RANGE_SOURCE = "published (Ren et al. 2021): mean of all five tasks, not comparable with a single task"


class LongRangeArena(Experiment):
    """The tasks of the section `long_range_arena`, each with its own data set."""

    name: ClassVar[str] = "long_range_arena"
    files: ClassVar[Sequence[str]] = ("long_range.tsv", "long_range.md")

    def check(self, run: Config) -> None:
        """Accept any run; without the section, the published sizes are used."""

    def arms(self, run: Config) -> Sequence[Arm]:
        section = _section(run)
        return [
            Arm(
                f"{task}-{attention}",
                "sequences",
                section.seeds,
                options={"task": task, "attention": attention},
                data=task,
            )
            for task in section.tasks
            for attention in section.attentions
        ]

    def data_config(self, run: Config, data: str) -> Config:
        return with_keys(run, "long-range", {}, self.name)

    def make_data(self, run: Config, data: str, output: Path) -> None:
        from bigbird_dna.papers.experiments.long_range_sequences import (
            write_listops,
            write_pathfinder,
        )

        section = _section(run)
        with atomic_directory(output) as directory:
            if data == "listops":
                write_listops(directory, section.listops, section.data_seed)
            else:
                write_pathfinder(directory, section.pathfinder, section.data_seed)

    def compare(
        self,
        run: Config,
        jobs: Sequence[ArmJob],
        output: Path,
        *,
        benchmarks: Path | None,
        device: str,
    ) -> list[str]:
        return write_report([job.model for job in jobs], output)


def _section(run: Config) -> LongRangeConfig:
    return run.long_range_arena or LongRangeConfig()


_Printable = Annotated[str, Field(pattern=r"^[\p{L}\p{M}\p{N}\p{P}\p{S} ]+$")]
_Share = Annotated[float, Field(ge=0, le=1)]
_Count = Annotated[int, Field(ge=0)]


class LongRangeResult(StoredValues):
    """Result of one classifier."""

    task: _Printable
    attention: _Printable
    seed: _Count
    accuracy: _Share
    accuracy_low: _Share
    accuracy_high: _Share
    baseline: _Share
    baseline_name: _Printable
    most_frequent: _Share
    test_sequences: int = Field(ge=1)
    parameters: _Count
    steps: _Count
    data: dict[str, Any]


def table(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return rows of `SCHEMA` by task and decreasing accuracy, followed by published averages; `DataError`
    for duplicate seeds of an arm, or results of other data or trainings."""
    found = [LongRangeResult.read(path) for path in paths]
    arms = by_arm((((one.task, one.attention), one.seed) for one in found), paths)
    rows = []
    for seeds in arms.values():
        numbers = list(seeds.values())
        check_comparable(
            [
                (paths[number], found[number].model_dump(include=_SAME))
                for number in numbers
            ]
        )
        rows.append(_row([found[number] for number in numbers]))
    rows.sort(key=lambda row: (row["task"], -row["accuracy"], row["attention"]))
    empty = dict.fromkeys(SCHEMA.names)
    return rows + [
        {
            **empty,
            "task": "all five",
            "attention": name,
            "accuracy": value,
            "source": LONG_RANGE_SOURCE,
        }
        for name, value in LONG_RANGE.items()
    ]


def _row(group: Sequence[LongRangeResult]) -> dict[str, Any]:
    first, found = group[0], [one.accuracy for one in group]
    mean = math.fsum(found) / len(found)
    # The interval is over test sequences, which are the same for all seeds: more seeds do not reduce it.
    shift = mean - found[0]
    return {
        **first.model_dump(include={*SCHEMA.names}),
        "seeds": len(group),
        "accuracy": mean,
        "accuracy_low": max(0.0, first.accuracy_low + shift),
        "accuracy_high": min(1.0, first.accuracy_high + shift),
        "seed_spread": max(found) - min(found),
        "source": "here",
    }


def write_report(directories: Sequence[Path], output: Path) -> list[str]:
    """Write `long_range.tsv` and `long_range.md`; return one sentence per row of results."""
    rows = table([directory / RESULT for directory in directories])
    frame = pd.DataFrame(rows, columns=SCHEMA.names).fillna({"baseline_name": ""})
    result = ResultTable("Long-Range Arena", SCHEMA, frame)
    with into_directory(output, directories) as directory:
        write_table(directory / "long_range.tsv", frame, SCHEMA)
        page = result_page(
            result, lambda value: f"{value:.{0 if value.is_integer() else 3}f}"
        )
        (directory / "long_range.md").write_text(page, encoding="utf-8")
    return [
        f"{row['task']} with {row['attention']}: accuracy {row['accuracy']:.4f}, "
        f"{row['baseline_name']} {row['baseline']:.4f}"
        for row in rows
        if row["source"] == "here"
    ]


_BITS = ("bits_per_byte", "by_frequency", "by_frequency_after_a_byte")


class ByteLm(Experiment):
    name: ClassVar[str] = "byte_lm"
    files: ClassVar[Sequence[str]] = ("byte_lm.tsv",)

    def check(self, run: Config) -> None:
        require(run.byte_lm, "byte_lm: the configuration has no such section")

    def arms(self, run: Config) -> Sequence[Arm]:
        assert run.byte_lm is not None
        return [
            Arm(run.byte_lm.encoder.attention, "bytes", (run.byte_lm.training.seed,))
        ]

    def compare(
        self,
        run: Config,
        jobs: Sequence[ArmJob],
        output: Path,
        *,
        benchmarks: Path | None,
        device: str,
    ) -> list[str]:
        path = jobs[0].model / RESULT
        result = read_object(path)
        bits, simple, after = (number(result, key, path) for key in _BITS)
        with into_directory(output, [jobs[0].model]) as files:
            write_table(
                files / self.files[0],
                pd.DataFrame([result], columns=BYTE_LM.names),
                BYTE_LM,
            )
        return [
            f"{bits:.4f} bits per byte; by frequency {simple:.4f}, after a byte {after:.4f}"
        ]
