"""Tables 5, 6 and 7 as experiments: language models (the run's own and those of the section `tables`), fine-
tuned and probed from pretrained and random weights, and comparators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from bigbird_dna.config import PRETRAINED, Config
from bigbird_dna.config.experiments import OWN_MODEL, TableModel
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.sources import annotation_file, locate
from bigbird_dna.papers.comparators.interface import (
    MOTIFS,
    NETWORK_NAMES,
    POSITION,
    PROBE,
)
from bigbird_dna.papers.experiments.comparing import (
    FINE_TUNED,
    FITTED,
    PROBED,
    ArmModel,
)
from bigbird_dna.papers.experiments.experiment import (
    INDEX_ENDINGS,
    Arm,
    ArmJob,
    ArmTask,
    Experiment,
    require,
    with_keys,
)
from bigbird_dna.papers.experiments.table_trainings import read_trainings
from bigbird_dna.papers.experiments.tables import PredictorRow, table_report

_ENDINGS = (".tsv", ".json", ".md", ".svg")
_OF_TRAININGS = ("_training.tsv", "_training.svg")
Keys = dict[str, Any]


class _Table(Experiment):
    """A table of the paper."""

    def given(self, run: Config, jobs: Sequence[ArmJob]) -> Keys:
        """Return the inputs of the report."""
        trainings = read_trainings(jobs)
        return {
            "models": [ArmModel.of(job) for job in trainings.jobs],
            "trainings": trainings,
        }

    def compare(
        self,
        run: Config,
        jobs: Sequence[ArmJob],
        output: Path,
        *,
        benchmarks: Path | None,
        device: str,
    ) -> list[str]:
        table = table_report(self.name, output=output, **self.given(run, jobs))
        return [f"{self.name}: {len(table):,} rows"]


class Table5(_Table):
    """Bits per base: the run's own evaluation, and one pretraining per model in `tables.models`."""

    name: ClassVar[str] = "table5"
    files: ClassVar[Sequence[str]] = [f"tables/table5{ending}" for ending in _ENDINGS]

    def check(self, run: Config) -> None:
        require(run.has_genome, "table5: needs a genome.reference to pretrain on")

    def arms(self, run: Config) -> Sequence[Arm]:
        own, steps = run.pretraining, run.tables.pretraining_steps
        return [
            Arm(
                model.name,
                "pretraining",
                (own.seed,),
                {
                    **_encoder(run, model),
                    "pretraining.sequence_tokens": model.tokens,
                    "pretraining.batch_size": max(
                        1, round(own.batch_size * own.sequence_tokens / model.tokens)
                    ),
                    "pretraining.length_curriculum": [],
                    "pretraining.steps": steps or own.steps,
                },
                predictions="tsv",
            )
            for model in run.tables.models
        ]

    def inputs(self, run: Config) -> Sequence[Path]:
        return [run.paths.pretraining_bits]

    def given(self, run: Config, jobs: Sequence[ArmJob]) -> Keys:
        own = run.paths.pretraining_bits
        return {
            "models": (),
            "bits": {"": own, **{job.arm.name: job.predictions for job in jobs}},
        }


class Table6(_Table):
    """Promoters: one part per negative set in the run's windows, and one per additional window."""

    name: ClassVar[str] = "table6"
    files: ClassVar[Sequence[str]] = [
        f"tables/table6{ending}" for ending in (*_ENDINGS, *_OF_TRAININGS)
    ]

    def check(self, run: Config) -> None:
        require(run.has_promoters, "table6: needs promoters in this run")
        tables, own = run.tables, run.promoters.windows.negative_sets
        if not run.has_sequences:
            user = "user" in (tables.negative_sets or ())
            require(not user, "tables.negative_sets: 'user' needs promoters.sequences")
            return
        single = "custom sequences have no windows of other lengths"
        require(not tables.windows, f"tables.windows: {single}")
        for model in tables.models:
            require(
                model.window is None,
                f"tables.models: {model.name}: window {model.window}: {single}",
            )
        for name in tables.negative_sets or ():
            require(
                name in own,
                f"tables.negative_sets: {name!r} must be in promoters.windows.negative_sets",
            )
        start = PRETRAINED not in tables.initializations and not tables.linear_probes
        require(
            run.has_genome or start,
            "table6: without genome.reference there is no pretraining: set tables.initializations: [random] "
            "and tables.linear_probes: false",
        )

    def arms(self, run: Config) -> Sequence[Arm]:
        if run.has_sequences:
            sets = run.tables.negative_sets or run.promoters.windows.negative_sets
            return [
                arm
                for name in sets
                for arm in _arms(
                    run,
                    "promoters",
                    [OWN_MODEL],
                    f"{name}-",
                    {},
                    {"negative_set": name},
                )
            ]
        return [
            arm
            for (bases, negative_set), models in _parts(run).items()
            for arm in _arms(
                run,
                "promoters",
                models,
                f"{bases}-{negative_set}-",
                _sides(run, bases),
                {"negative_set": negative_set},
                data=str(bases),
            )
        ]

    def data_config(self, run: Config, data: str) -> Config:
        bases = int(data)
        sets = [negative_set for size, negative_set in _parts(run) if size == bases]
        keys = {**_sides(run, bases), "promoters.windows.negative_sets": sets}
        for path in _aliases(run):
            keys["genome.aliases"] = str(path)
        return with_keys(run, "windows", keys, self.name)

    def data_inputs(self, run: Config) -> Sequence[Path]:
        paths, annotation = run.paths, annotation_file(run)
        named = [*([annotation] if annotation else []), *_aliases(run)]
        return [
            *(Path(f"{paths.reference}{end}") for end in ("", *INDEX_ENDINGS)),
            paths.promoters,
            *named,
        ]

    def make_data(self, run: Config, data: str, output: Path) -> None:
        from bigbird_dna.data.promoter_windows import prepare_windows

        paths, config = run.paths, self.data_config(run, data)
        prepare_windows(
            config, paths.reference, paths.promoters, output, annotation_file(run)
        )


class Table7(_Table):
    name: ClassVar[str] = "table7"
    files: ClassVar[Sequence[str]] = [
        *(f"tables/table7{ending}" for ending in (*_ENDINGS, *_OF_TRAININGS)),
        "tables/table7_tracks.tsv",
    ]

    def check(self, run: Config) -> None:
        require(
            run.has_chromatin, "table7: needs tracks, but chromatin.data.tracks is null"
        )
        size = run.chromatin.data.bin
        for model in run.tables.models:
            if model.window and (model.window < size or (model.window - size) % 2):
                raise ConfigError(
                    f"tables.models: {model.name}: window {model.window}: must be at least the bin size "
                    f"({size} bp) and differ from it by an even number"
                )

    def arms(self, run: Config) -> Sequence[Arm]:
        models = [
            OWN_MODEL,
            *(model.name for model in run.tables.models if model.window),
        ]
        return list(_arms(run, "chromatin", models, "", {}, {}))

    def inputs(self, run: Config) -> Sequence[Path]:
        return [
            run.paths.held_out_bins / "labels.npz",
            run.paths.chromatin_data / "tracks.tsv",
        ]

    def given(self, run: Config, jobs: Sequence[ArmJob]) -> Keys:
        labels, tracks = self.inputs(run)
        least = run.chromatin.min_positives_report
        return super().given(run, jobs) | {
            "labels": labels,
            "tracks": tracks,
            "min_positives": least,
        }


def _parts(run: Config) -> dict[tuple[int, str], list[str]]:
    """Return the language models of each part of Table 6, by window size in bp and negative set."""
    tables, windows = run.tables, run.promoters.windows
    sets = tables.negative_sets or windows.negative_sets
    parts: dict[tuple[int, str], list[str]] = {
        (windows.length, name): [OWN_MODEL] for name in sets
    }
    seen = [
        (bases, OWN_MODEL) for bases in tables.windows or () if bases != windows.length
    ]
    seen += [(model.window, model.name) for model in tables.models if model.window]
    for bases, model in seen:
        parts.setdefault((bases, tables.context_negative_set), []).append(model)
    return parts


def _aliases(run: Config) -> list[Path]:
    return (
        [] if run.genome.aliases is None else [locate(run.genome.aliases, run.data_dir)]
    )


def _sides(run: Config, bases: int) -> Keys:
    windows = run.promoters.windows
    upstream = round(bases * windows.sides[0] / windows.length)
    return {
        "promoters.windows.upstream": upstream,
        "promoters.windows.downstream": bases - upstream,
    }


def _encoder(run: Config, model: TableModel) -> Keys:
    """Return the encoder keys in which a language model differs from the run's model."""
    return {
        "encoder.attention": model.attention,
        "encoder.attention_options": {},
        "encoder.max_length": max(model.tokens, run.encoder.max_length),
    }


def _pretrained(run: Config, model: str) -> Path:
    if model == OWN_MODEL:
        return run.paths.pretrained
    return run.paths.experiment("table5") / model / str(run.pretraining.seed) / "model"


def _arms(
    run: Config,
    task: ArmTask,
    models: Sequence[str],
    prefix: str,
    keys: Keys,
    options: Keys,
    **common: Any,
) -> Iterator[Arm]:
    """Yield the arms of a table, or of a part of Table 6: fine-tuned models, probes, and comparators."""
    tables, of_bins = run.tables, task == "chromatin"
    named = {one.name: one for one in tables.models}
    started = [(model, start) for model in models for start in tables.initializations]
    attentions = {
        OWN_MODEL: run.encoder.attention,
        **{one.name: one.attention for one in tables.models},
    }
    windows = {one.name: one.window for one in tables.models if of_bins}
    own = run.chromatin.data.window if of_bins else None
    for (model, start), (rate, training) in product(started, _trainings(run, task)):
        yield Arm(
            f"{prefix}{model}-{start}{_suffix(rate)}",
            task,
            tables.seeds,
            {
                **(_encoder(run, named[model]) if model in named else {}),
                **keys,
                **training,
                f"{task}.model.initial": start,
            },
            options=options | _known(window=windows.get(model)),
            initialization=_pretrained(run, model) if start == PRETRAINED else None,
            predictions="npy" if of_bins else "",
            row=PredictorRow(
                attentions[model], start, FINE_TUNED, windows.get(model) or own
            ),
            rate=rate,
            **common,
        )
    for model, start in started if tables.linear_probes else ():
        # The run's own model gets the comparators' window: pretraining had no longer inputs.
        window = windows.get(model) or (tables.comparator_window if of_bins else None)
        yield Arm(
            f"{prefix}{model}-{start}-{PROBE}",
            task,
            tables.seeds[
                : 1 if start == PRETRAINED else None
            ],  # one pretraining, hence one probe
            predictor=PROBE,
            options=options | {"weights": start} | _known(window=window),
            initialization=_pretrained(run, model),
            row=PredictorRow(attentions[model], start, PROBED),
            **common,
        )
    yield from _comparators(run, task, prefix, keys, options, **common)


def _comparators(
    run: Config, task: ArmTask, prefix: str, keys: Keys, options: Keys, **common: Any
) -> Iterator[Arm]:
    tables = run.tables
    names = [
        one
        for one in getattr(tables, task)
        if not (run.has_unaligned_sequences and one == POSITION)
    ]
    for comparator, network in ((one, one in NETWORK_NAMES) for one in names):
        for rate, training in _trainings(run, task) if network else [(None, {})]:
            yield Arm(
                f"{prefix}{comparator}{_suffix(rate)}",
                task,
                # Networks have one model per seed, the others a single one with the first seed.
                tables.seeds[: None if network else 1],
                {**keys, **training},
                predictor=comparator,
                options=options | _comparator_options(run, task, comparator),
                row=PredictorRow(comparator, "", FITTED),
                rate=rate,
                **common,
            )


def _trainings(run: Config, task: ArmTask) -> list[tuple[float | None, Keys]]:
    """Return each learning rate (None: that of the task) with the keys of a training, the same for language
    models and networks: the weights with the lowest validation loss are kept."""
    steps = getattr(run.tables.steps, task)
    common = {
        f"{task}.training.keep": "best",
        **_known(**{f"{task}.training.steps": steps}),
    }
    return [
        (
            rate,
            {**common, **_known(**{f"{task}.training.optimizer.learning_rate": rate})},
        )
        for rate in run.tables.learning_rates or (None,)
    ]


def _suffix(rate: float | None) -> str:
    return "" if rate is None else f"-rate-{rate:g}"


def _known(**options: object) -> Keys:
    return {name: value for name, value in options.items() if value is not None}


def _comparator_options(run: Config, task: ArmTask, comparator: str) -> Keys:
    """Return the options of a comparator from the section; without them, it uses its defaults."""
    tables = run.tables
    found: Keys = {}
    if comparator == MOTIFS and tables.motifs:
        found = {"motifs": locate(tables.motifs, run.data_dir)}
    elif comparator == MOTIFS:
        found = {"taxon": tables.taxon}
    if task == "chromatin":
        found["window"] = tables.comparator_window
    return _known(**found)
