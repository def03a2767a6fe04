"""The same encoder with one attention mechanism after the other: bits per base, AUROC of tracks, and cost.

Arms are named MECHANISM-PART. Parts are trainings of equal `steps`, of equal `time`, on longer inputs (their
number of tokens), and on tracks that depend on distal elements (`distance`), besides the `cost` of a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bigbird_dna.config.chromatin import SIMULATED
from bigbird_dna.config.experiments import AblationConfig
from bigbird_dna.config.mechanisms import find_mechanism
from bigbird_dna.config.run import Config
from bigbird_dna.config.training import TrainingConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import read_object, write_json
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Column, Schema, json_rows, write_table
from bigbird_dna.errors import ConfigError, DataError, one_of
from bigbird_dna.genome.chromatin.tracks import read_tracks
from bigbird_dna.metrics.auroc import FEWEST_UNITS, Estimate, auroc_note
from bigbird_dna.metrics.resampling import BLOCK_BASES, sampled_rates
from bigbird_dna.papers.experiments.arms import (
    Arm,
    Keys,
    make_arm,
    read_arrays,
    training_inputs,
)
from bigbird_dna.papers.experiments.comparing import (
    ENDS,
    Metric,
    compare_arms,
    row_aurocs,
    training_seconds,
)
from bigbird_dna.reporting.arrays import open_array, open_predictions, read_blocks
from bigbird_dna.reporting.result import (
    GRAY,
    GREEN,
    SERIES,
    markdown,
    panels,
    readable,
    save_figure,
)
from bigbird_dna.reporting.track_evaluation import UNMEASURED, read_slice
from bigbird_dna.simulate.truth import TRACKS

if TYPE_CHECKING:
    from bigbird_dna.training.distributed import World

FILES = tuple(f"ablation/ablation.{end}" for end in ("tsv", "json", "md", "svg"))
# Names in Table 1 of Zaheer et al. (2020), which has no row of all three kinds of blocks, and its accuracy
# on masked tokens of text, %, at 512 tokens.
TABLE1 = {"full": "BERT", "random": "R", "window": "W", "random_window": "R + W"}
MASKED_ACCURACY = {"full": 64.2, "random": 60.1, "window": 58.3, "random_window": 62.7}
# Ren et al. (2021): perplexity of masked tokens on C4, by input length in tokens.
PERPLEXITY = {
    "full": {2048: 4.552},
    "bigbird": {2048: 4.696, 8192: 4.542},
    "combiner_fixed": {8192: 4.139},
}
NOTE = (
    "Published values are for English text, not for the genome of this run: accuracy on masked tokens in "
    "percent (Zaheer et al. 2020, Table 1, 512 tokens; BERT means full attention), and perplexity of masked "
    "tokens on C4 (Ren et al. 2021; with axial spans, 8,192 tokens: 4.190)."
)


# Arms


def arms(run: Config) -> list[Arm]:
    """Return the cost of each mechanism, and its trainings; `ConfigError` if one of them cannot be made."""
    _check_run(run)
    ablation, reference = run.ablation, run.ablation.reference
    planned: list[Arm] = []

    def add(
        mechanism: str,
        part: str,
        stage: str,
        keys: Keys,
        inputs: Sequence[Path],
        seed: int | None = None,
        **options: Any,
    ) -> None:
        name = f"{mechanism}-{part}"
        if seed is not None:
            name += f"-seed{seed}"
        options |= {"mechanism": mechanism, "part": part}
        arm = make_arm(
            run,
            "ablation",
            name,
            stage,
            keys,
            seed=seed or 0,
            options=options,
            inputs=inputs,
        )
        planned.append(arm)

    mechanisms = [mechanism.name for mechanism in ablation.mechanisms]
    lengths = [ablation.tokens, *ablation.lengths]
    for mechanism in mechanisms:
        keys = pretraining_keys(run, mechanism, "steps")
        read = [run.paths.tokenizer]
        add(
            mechanism,
            "cost",
            "pretraining",
            keys,
            read,
            tokens=lengths,
            batch_tokens=ablation.batch_tokens,
        )
    causal = {arm.options["mechanism"]: arm.config.encoder.causal for arm in planned}
    for name, value in causal.items():
        if value != causal[reference]:
            raise ConfigError(
                f"ablation.mechanisms: cannot compare {name} with {reference}: only one is causal"
            )
    for mechanism, seed in product(mechanisms, ablation.seeds):
        for part in ("steps", "time", *map(str, ablation.lengths)):
            read, options = training_inputs(run, "pretraining"), dict[str, Any]()
            if part == "time":
                budget = ablation.time_budget_s
                if mechanism == reference and budget is None:
                    continue  # the same as the training of equal steps
                timed = [mechanism] if budget else [mechanism, reference]
                read += [_cost_file(run, name) for name in timed]
                options = {"seconds": budget, "reference": reference}
            keys = pretraining_keys(run, mechanism, part) | {"pretraining.seed": seed}
            add(mechanism, part, "pretraining", keys, read, seed, **options)
        if ablation.long_range_tracks:
            keys = distance_keys(run, mechanism) | {"chromatin.training.seed": seed}
            evaluation = run.chromatin.evaluation.model_dump(mode="json")
            read, options = (
                training_inputs(run, "chromatin"),
                {"evaluation": evaluation},
            )
            add(mechanism, "distance", "chromatin", keys, read, seed, **options)
            config = planned[-1].config
            pooling = config.chromatin.model.pooling
            config.encoder.check_pooling(pooling, f"ablation: {mechanism}")
    return planned


def _cost_file(run: Config, mechanism: str) -> Path:
    return run.paths.experiment("ablation") / f"{mechanism}-cost/arm.json"


def _check_run(run: Config) -> None:
    if not run.has_genome:
        raise ConfigError("ablation: needs a genome.reference to pretrain on")
    data = run.chromatin.data
    for split in ("valid", "test"):
        # Regions held out for chromatin are also held out of pretraining.
        if not getattr(run.genome, split) and not getattr(data, f"{split}_regions"):
            raise ConfigError(
                f"genome.{split}: the ablation needs at least one contig or region"
            )
    tracks = run.ablation.long_range_tracks
    if tracks and data.tracks is None:
        raise ConfigError(
            "ablation.long_range_tracks: needs tracks, but chromatin.data.tracks is null"
        )
    for name in tracks if data.tracks == SIMULATED else ():
        if name not in TRACKS:
            raise ConfigError(
                f"ablation.long_range_tracks: {name!r}: {one_of(name, TRACKS)}"
            )


def encoder_keys(run: Config, mechanism: str, tokens: int) -> dict[str, Any]:
    """Return a mechanism's encoder keys, with positions for inputs of `tokens` tokens; the run's own
    mechanism keeps the run's options unless the section changes them."""
    changes = run.ablation.changes(mechanism)
    same = changes["attention"] == run.encoder.attention
    if same and not changes["attention_options"]:
        changes["attention_options"] = dict(run.encoder.attention_options)
    positions = changes.setdefault("max_length", run.encoder.max_length)
    if isinstance(positions, int):  # a wrong value is refused in validation
        changes["max_length"] = max(positions, tokens)
    return {f"encoder.{key}": value for key, value in changes.items()}


def pretraining_keys(run: Config, mechanism: str, part: str) -> dict[str, Any]:
    """Return the keys of a pretraining: `part` is steps, time, or an input length as text."""
    training = run.ablation.training(part, run.pretraining.grad_accumulation)
    return {
        **_shorter_warmup("pretraining", run.pretraining, training["steps"]),
        **encoder_keys(run, mechanism, training["sequence_tokens"]),
        **{f"pretraining.{key}": value for key, value in training.items()},
    }


def distance_keys(run: Config, mechanism: str) -> dict[str, Any]:
    """Return the keys of a training on tracks from random weights, without layers across bins, so that only
    attention can transfer long-range information."""
    ablation = run.ablation
    keys: dict[str, Any] = {}
    if ablation.long_range_layers:
        keys["encoder.layers"] = ablation.long_range_layers
    keys |= encoder_keys(run, mechanism, ablation.tokens)
    keys |= {"chromatin.model.initial": "random", "chromatin.model.bin_layers": 0}
    if steps := ablation.long_range_steps:
        keys["chromatin.training.steps"] = steps
        keys |= _shorter_warmup("chromatin.training", run.chromatin.training, steps)
    return keys


def _shorter_warmup(
    section: str, training: TrainingConfig, steps: int
) -> dict[str, Any]:
    """Return a warm-up of at most a third of the steps, if the run's is longer."""
    most = max(1, steps // 3)
    if training.optimizer.warmup_steps <= most:
        return {}
    return {f"{section}.optimizer.warmup_steps": most}


# Trainings


def train(arm: Arm, world: World) -> Keys:
    from bigbird_dna.papers.experiments import trainings
    from bigbird_dna.pretraining.task import PretrainingTask
    from bigbird_dna.training.task import train as train_task

    options, paths, config = arm.options, arm.run.paths, arm.config
    if options["part"] == "cost":
        sizes = options["tokens"], options["batch_tokens"]
        return trainings.measure_cost(config, paths.tokenizer, *sizes, world.device)
    if options["part"] == "distance":
        _check_tracks(arm.run)
        return trainings.finetune_chromatin(arm, world)
    if options["part"] == "time":
        steps = steps_in_time(arm)
        training = config.pretraining.model_copy(update={"steps": steps})
        config = config.model_copy(update={"pretraining": training})
    length = config.pretraining.sequence_tokens

    def score(model: Path) -> None:
        trainings.score_masked_tokens(model, paths.tokens, length, world.device)

    task = PretrainingTask(config, paths.tokens, paths.tokenizer)
    return train_task(task, arm.model, arm.checkpoints, world, score)


def _check_tracks(run: Config) -> list[str]:
    """Return the names of all tracks; `ConfigError` if they lack one of `ablation.long_range_tracks`."""
    path = run.paths.chromatin_data / "tracks.tsv"
    known = [track.name for track in read_tracks(path)]
    for name in run.ablation.long_range_tracks:
        if name not in known:
            raise ConfigError(f"{path}: no track {name!r}: {one_of(name, known)}")
    return known


def steps_in_time(arm: Arm) -> int:
    """Return the number of steps in `ablation.time_budget_s`, or in the time of the reference's steps, from
    the measured costs: these are files, so that a resumed training has the same end. `DataError` if both
    were not measured in the same way."""
    training, options = arm.config.pretraining, arm.options
    seconds = options["seconds"]
    names = {options["mechanism"]}
    if seconds is None:
        names.add(options["reference"])
    costs = {name: read_object(_cost_file(arm.run, name))["metrics"] for name in names}
    _check_same_clock(costs)
    each = {
        name: row["seconds"]
        for name, cost in costs.items()
        for row in cost["lengths"]
        if row["tokens"] == training.sequence_tokens
    }
    if seconds is None:
        seconds = training.steps * each[options["reference"]]
    step = each[options["mechanism"]]
    steps: int = max(1, math.floor(seconds / step * (1 + 1e-9)))  # complete steps only
    log(f"{seconds:,.1f} s are sufficient for {steps:,} steps of {step:.3g} s")
    return steps


def _check_same_clock(costs: Mapping[str, Mapping[str, Any]]) -> None:
    """`DataError` if costs were measured differently: CPU and wall-clock times are not comparable."""
    (first, expected), *others = costs.items()
    for name, cost in others:
        for key in ("clock", "device", "threads"):
            if cost[key] != expected[key]:
                raise DataError(
                    f"ablation: the cost of {name} was measured with {key} {cost[key]!r}, that of {first} "
                    f"with {expected[key]!r}: remove one of them, and run it again"
                )


# Comparison


def inputs(run: Config) -> list[Path]:
    if not run.ablation.long_range_tracks:
        return []
    held_out = run.paths.held_out_bins
    tracks = run.paths.chromatin_data / "tracks.tsv"
    return [held_out / "labels.npz", held_out / "bins.parquet", tracks]


def compare(run: Config, output: Path, device: str) -> list[str]:
    ablation, planned = run.ablation, arms(run)
    parts: dict[str, list[Arm]] = {}
    for arm in planned:
        parts.setdefault(arm.options["part"], []).append(arm)
    costs = cost_table(parts.pop("cost"))
    if ablation.time_budget_s is None:
        # The reference's trainings of equal steps are those of equal time.
        parts.setdefault("time", [])
        for arm in parts["steps"]:
            if arm.options["mechanism"] == ablation.reference:
                parts["time"].append(arm)
    distant = parts.pop("distance", [])
    metrics = {part: bits_metric(models) for part, models in parts.items()}
    tracks, notes = track_metrics(run, distant) if distant else ({}, {})
    parts |= dict.fromkeys(tracks, distant)
    metrics |= tracks
    published = {
        arm.options["mechanism"] for arm in parts["steps"] if _is_as_published(run, arm)
    }
    tables = ablation_tables(ablation, parts, metrics, list(notes), costs, published)
    with into_directory(output, [arm.model for arm in planned]) as directory:
        write_ablation(ablation, tables, costs, notes, directory)
        mechanism_figure(ablation, tables["mechanisms"], [*tracks], directory)
        if "lengths" in tables:
            length_figure(tables["lengths"], directory)
    return [f"ablation: {len(tables['mechanisms']):,} mechanisms"]


def cost_table(arms: Sequence[Arm]) -> pd.DataFrame:
    """Return the cost of a step by mechanism and input length; `DataError` for different clocks."""
    costs = {arm.options["mechanism"]: arm.metrics() for arm in arms}
    _check_same_clock(costs)
    rows = []
    for mechanism, cost in costs.items():
        common = {
            "mechanism": mechanism,
            "attention": cost["attention"],
            "clock": cost["clock"],
        }
        rows += [common | row for row in cost["lengths"]]
    table = pd.DataFrame(rows).rename(columns={"seconds": "seconds_per_step"})
    return table.astype({"peak_mib": float})


def _is_as_published(run: Config, arm: Arm) -> bool:
    """Whether a mechanism has its own name, without other options or encoder keys."""
    name, encoder = arm.options["mechanism"], arm.config.encoder
    (mechanism,) = (one for one in run.ablation.mechanisms if one.name == name)
    if mechanism.encoder or encoder.attention != name:
        return False
    options = encoder.attention_options
    return not options or options == dict(find_mechanism(name).checked({}))


def bits_metric(arms: Sequence[Arm]) -> Metric:
    """Return bits per base of models; `DataError` if they had other masked tokens."""
    bits: list[Any] = []
    for arm in arms:
        path = arm.model / "predictions.npz"
        values, *tokens = read_arrays(path, "bits", "bases", "blocks")
        if not bits:
            bases, blocks = tokens
        if not (np.array_equal(tokens[0], bases) and np.array_equal(tokens[1], blocks)):
            raise DataError(
                f"{path}: masked tokens differ from those of {arms[0].model}"
            )
        bits.append(values)
    return Metric("bits_per_base", sampled_rates(bits, bases, blocks))


def track_metrics(
    run: Config, arms: Sequence[Arm]
) -> tuple[dict[str, Metric], dict[str, str]]:
    """Return the AUROC of models on test bins, and a note, by track. Neighboring bins are correlated: intervals
    are over blocks of 10 kb. A track with one class, or with fewer positives than
    `chromatin.min_positives_report`, has a note only."""
    labels, bins, _ = inputs(run)
    known = _check_tracks(run)
    truth = open_array(str(labels), "labels")
    if truth.tracks != len(known):
        raise DataError(f"{labels}: {truth.tracks} tracks, expected {len(known)}")
    shape = (truth.rows, truth.tracks)
    arrays = [
        open_predictions(arm.model / "predictions.npy", labels, shape) for arm in arms
    ]
    blocks = read_blocks(bins, truth)
    assert blocks is not None  # the table of bins has their positions
    least = run.chromatin.min_positives_report
    metrics, notes = {}, {}
    for name in run.ablation.long_range_tracks:
        column = known.index(name)
        part = read_slice(arrays, truth, column, column + 1, tuple(known))
        measured = part.labels[0] != UNMEASURED
        target = part.labels[0][measured]
        positives = int(target.sum())
        negatives = len(target) - positives
        note = auroc_note(positives, negatives, Estimate(0.5, 0, 1))
        if positives and negatives and positives < least:
            note = f"{positives:,} positives, fewer than {least:,}"
        if positives and negatives and positives >= least:
            scores = np.stack([row[0][measured] for row in part.scores])
            metric = row_aurocs(target, scores.astype(np.float64), blocks[measured])
            metrics[name] = metric
            if min(metric.class_blocks) < FEWEST_UNITS and not note:
                few = metric.class_blocks[0] < FEWEST_UNITS
                note = (
                    f"all {'positives' if few else 'negatives'} are within one segment of "
                    f"{BLOCK_BASES:,} bp: no interval of AUROC"
                )
        else:
            log(f"{labels}: track {name} is excluded: {note}")
        notes[name] = note
    return metrics, notes


# Tables


def schemas(tracks: Sequence[str]) -> dict[str, Schema]:
    """Return the columns of the tables of mechanisms, seeds and lengths."""
    bits = "estimate bits_per_base difference"
    cost = "metric tokens_per_second seconds_per_step peak_mib"
    # Names of tracks may contain spaces.
    names = [f"{of}auroc_{track}" for track in tracks for of in ("", "delta_")]
    mechanisms = Schema.of(
        f"text mechanism attention paper_table1_row; count seeds steps; {bits}; number seconds",
        "count matched_time_steps; estimate matched_time_bits_per_base matched_time_difference",
        f"number matched_time_seconds; {cost}",
        *(Column(name, "estimate", missing=True) for name in names),
        "metric published_masked_accuracy",
    )
    seeds = Schema.of(
        "text mechanism; count seed; metric bits_per_base matched_time_bits_per_base",
        *(Column(name, missing=True) for name in names[::2]),
    )
    lengths = Schema.of(
        f"count tokens; text mechanism; count steps; {bits}; {cost}; metric published_perplexity"
    )
    return {"mechanisms": mechanisms, "seeds": seeds, "lengths": lengths}


def ablation_tables(
    ablation: AblationConfig,
    parts: Mapping[str, Sequence[Arm]],
    metrics: Mapping[str, Metric],
    tracks: Sequence[str],
    costs: pd.DataFrame,
    published: set[str],
) -> dict[str, pd.DataFrame]:
    """Return the tables of mechanisms, of seeds if there are several, and of lengths if there are several.
    Parts are steps, time, input lengths, and names of tracks; `published` are the mechanisms to which published
    values apply."""
    compared, by_seed = {}, []
    for part, metric in metrics.items():
        arms, is_track = parts[part], part in tracks
        models = pd.DataFrame(
            {
                "mechanism": [arm.options["mechanism"] for arm in arms],
                "seed": [arm.seed for arm in arms],
                "steps": [arm.metrics().get("steps", 0) for arm in arms],
                "seconds": [training_seconds(arm.model) for arm in arms],
                "value": metric.sampled.values,
            }
        )
        reference = {"mechanism": ablation.reference}
        difference = "delta_auroc" if is_track else "difference"
        table = compare_arms(
            metric, arms, ["mechanism"], reference, difference=difference
        )
        table = table.set_index("mechanism")
        column: str = metric.kind
        if is_track:
            table = table.drop(columns="seeds")
            table.columns = table.columns.str.replace("auroc", f"auroc_{part}")
            column = f"auroc_{part}"
        else:
            groups = models.groupby("mechanism")
            same = groups["steps"].nunique() == 1
            table["steps"] = groups["steps"].first().where(same, 0)
            table["seconds"] = groups["seconds"].mean()
        if part == "time":
            table = table.drop(columns="seeds").add_prefix("matched_time_")
            column = f"matched_time_{column}"
        compared[part] = table
        if is_track or part in ("steps", "time"):
            models = models.set_index(["mechanism", "seed"])
            by_seed.append(models["value"].rename(column))
    columns = {name: schema.names for name, schema in schemas(tracks).items()}
    names = [mechanism.name for mechanism in ablation.mechanisms]
    mechanisms = compared["steps"]
    for part in ("time", *tracks):
        if part in compared:
            mechanisms = mechanisms.join(compared[part])
    mechanisms = mechanisms.loc[names].reset_index()
    mechanisms = mechanisms.merge(costs[costs["tokens"] == ablation.tokens])
    name = mechanisms["mechanism"].where(mechanisms["mechanism"].isin(published))
    mechanisms["paper_table1_row"] = name.map(TABLE1).fillna("")
    mechanisms["published_masked_accuracy"] = name.map(MASKED_ACCURACY)
    tables = {"mechanisms": mechanisms.reindex(columns=columns["mechanisms"])}
    if len(ablation.seeds) > 1:
        seeds = pd.concat(by_seed, axis=1).loc[names].reset_index()
        tables["seeds"] = seeds.reindex(columns=columns["seeds"])
    if ablation.lengths:
        longer = {ablation.tokens: compared["steps"]}
        longer |= {tokens: compared[str(tokens)] for tokens in sorted(ablation.lengths)}
        rows = [table.loc[names].assign(tokens=size) for size, table in longer.items()]
        lengths = pd.concat(rows).reset_index()
        lengths = lengths.merge(costs, on=["mechanism", "tokens"])
        perplexity = [
            PERPLEXITY.get(name, {}).get(size, np.nan)
            for name, size in lengths[["mechanism", "tokens"]].to_numpy()
        ]
        alike = lengths["mechanism"].isin(published)
        lengths["published_perplexity"] = np.where(alike, perplexity, np.nan)
        tables["lengths"] = lengths[columns["lengths"]]
    return tables


def write_ablation(
    ablation: AblationConfig,
    tables: Mapping[str, pd.DataFrame],
    costs: pd.DataFrame,
    track_notes: Mapping[str, str],
    directory: Path,
) -> None:
    titles = {
        "mechanisms": "Attention mechanisms on the same DNA",
        "seeds": "Each seed",
        "lengths": "Longer inputs",
    }
    notes = {name: note for name, note in track_notes.items() if note}
    content: dict[str, Any] = {
        "title": titles["mechanisms"],
        "reference": ablation.reference,
        "note": NOTE,
    }
    if track_notes:
        content["track_notes"] = notes
    pages = []
    for name, table in tables.items():
        file = "ablation.tsv" if name == "mechanisms" else f"ablation_{name}.tsv"
        write_table(directory / file, table, schemas([*track_notes])[name])
        content["rows" if name == "mechanisms" else name] = json_rows(table)
        pages.append(f"# {titles[name]}\n\n{markdown(readable(table, _shown))}\n")
    write_json(directory / "ablation.json", content)
    clock = costs["clock"].iloc[0]
    time = "CPU time" if clock == "processor" else "wall-clock time"
    pages += [f"{name}: {note}.\n" for name, note in notes.items()]
    pages.append(
        f"Trainings of equal steps and of equal time have inputs of {ablation.tokens:,} tokens. Bits per "
        f"base are for masked tokens in test contigs. A difference is to {ablation.reference}; below 0, the "
        "mechanism is better. Intervals are 95 %, over test data and seeds. Time and memory per step were "
        f"measured separately, as {time}; `seconds` are from the logs of the trainings and depend on the "
        f"load of the machine.\n\n† {NOTE}\n"
    )
    (directory / "ablation.md").write_text("\n".join(pages), encoding="utf-8")


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


# Plots


def mechanism_figure(
    ablation: AblationConfig,
    table: pd.DataFrame,
    tracks: Sequence[str],
    directory: Path,
) -> None:
    """Plot one line per mechanism: bits per base at equal steps and time, speed, memory, AUROC of tracks."""
    y = np.arange(len(table))
    size = 1.7 + 0.26 * len(table)
    with panels(1, 3 + bool(tracks), 3.4, size, sharey=True) as (figure, axes):
        bits, speed, memory = axes[:3]
        points = [
            (bits, "bits_per_base", "equal steps", 0),
            (bits, "matched_time_bits_per_base", "equal time", 1),
        ]
        for number, track in enumerate(tracks):
            points.append((axes[3], f"auroc_{track}", track, number))
        for axis, column, label, number in points:
            value, low, high = (table[f"{column}{end}"] for end in ("", *ENDS))
            axis.errorbar(
                value,
                y + 0.2 * number - 0.1,
                xerr=[(value - low).fillna(0), (high - value).fillna(0)],
                fmt="o",
                markersize=4,
                linewidth=1.2,
                color=SERIES[number % len(SERIES)],
                label=label,
            )
        bits.set(xlabel="bits per base, test", title="Masked tokens")
        bits.locator_params(axis="x", nbins=5)
        reference = table["mechanism"] == ablation.reference
        middle = float(table.loc[reference, "bits_per_base"].iloc[0])
        bits.axvline(middle, color=GRAY, linewidth=0.8, zorder=1)
        bits.legend(loc="best", fontsize=8)
        speed.barh(y, table["tokens_per_second"], height=0.6, color=GREEN)
        speed.set(xlabel="training tokens/s", title=f"{ablation.tokens:,} tokens")
        speed.locator_params(axis="x", nbins=4)  # more labels would overlap
        memory.barh(y, table["peak_mib"].fillna(0), height=0.6, color=GREEN)
        memory.set(xlabel="peak memory per step (MiB)")
        if tracks:
            axes[3].axvline(0.5, color=GRAY, linewidth=0.8, zorder=1)
            axes[3].set(xlabel="AUROC, test", title="Long-range tracks")
            axes[3].legend(loc="best", fontsize=8)
        bits.set_yticks(y, table["mechanism"])
        bits.set_ylim(len(table) - 0.4, -0.6)
        save_figure(figure, directory / "ablation.svg")


def length_figure(table: pd.DataFrame, directory: Path) -> None:
    """Plot bits per base, training time per token, and memory against the input length."""
    table = table.assign(micro=1e6 / table["tokens_per_second"])
    lengths = sorted(set(table["tokens"]))
    columns = {
        "bits_per_base": "bits per base, test",
        "micro": "training time per token (µs)",
        "peak_mib": "peak memory per step (MiB)",
    }
    with panels(1, 3, 4.2, 4.4) as (figure, axes):
        for axis, (column, label) in zip(axes, columns.items(), strict=True):
            groups = table.groupby("mechanism", sort=False)
            for number, (name, rows) in enumerate(groups):
                style, color = divmod(number, len(SERIES))
                axis.plot(
                    rows["tokens"],
                    rows[column],
                    color=SERIES[color],
                    linestyle=("-", "--", ":", "-.")[style % 4],
                    marker="os^D"[style % 4],
                    markersize=4,
                    label=name,
                )
            axis.set(xscale="log", xlabel="input length (tokens)", ylabel=label)
            # Memory may not be measured, and a logarithmic axis needs a value.
            if column != "bits_per_base" and table[column].max() > 0:
                axis.set_yscale("log")
                axis.yaxis.set_major_formatter("{x:g}")
                axis.yaxis.set_minor_formatter("{x:g}")
            axis.set_xticks(lengths, [f"{tokens:,}" for tokens in lengths])
            axis.xaxis.minorticks_off()
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=5)
        save_figure(figure, directory / "ablation_lengths.svg")
