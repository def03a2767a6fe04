"""Linear probes on promoters: the information in the layers of a frozen encoder without fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.config import PRETRAINED, RANDOM, Config
from bigbird_dna.console import log, progress
from bigbird_dna.data.predictions import ALL, CODING, AlignedPredictions, blocks_of
from bigbird_dna.data.promoter_windows import (
    read_origin,
    read_windows,
    training_windows,
    window_sequences,
)
from bigbird_dna.disk.atomic import full_disk_reported, scratch_directory
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, write_table
from bigbird_dna.errors import DataError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.metrics.auroc import UNDEFINED, Estimate, auroc, auroc_difference
from bigbird_dna.papers.experiments.experiment import (
    INDEX_ENDINGS,
    Arm,
    ArmJob,
    Experiment,
    require,
    with_keys,
)
from bigbird_dna.papers.experiments.figures import LOOKS
from bigbird_dna.reporting.result import GRAY, PALE, interval, panels, save_figure

if TYPE_CHECKING:  # imports torch, which the workflow's plan does without
    from bigbird_dna.papers.comparators.simple import FrozenEncoder

# Axes: N windows, D hidden width.

ROWS_AT_ONCE = 4096
SPLITS = ("train", "valid", "test")
KMERS = "k-mers"


class LayerProbes(Experiment):
    """Probes of the run's pretrained encoder and of random weights, and k-mers; trains no models."""

    name: ClassVar[str] = "layer_probes"
    files: ClassVar[Sequence[str]] = ("probes.svg", "probes.tsv")

    def check(self, run: Config) -> None:
        require(run.has_promoters, "layer_probes: needs promoter models in this run")

    def arms(self, run: Config) -> Sequence[Arm]:
        return ()

    def inputs(self, run: Config) -> Sequence[Path]:
        paths = run.paths
        reference = _reference(run)
        windows = [paths.windows / "windows.parquet", paths.windows / "labels.npz"]
        return [
            *windows,
            *(Path(f"{reference}{end}") for end in ("", *INDEX_ENDINGS)),
            paths.pretrained,
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
        table = probe_promoters(run, run.paths.pretrained, output, device=device)
        whole = (
            table[table["stratum"] == ALL]
            .astype({"layer": object})
            .fillna({"layer": ""})
        )
        return [
            f"{' layer '.join(filter(None, (row['weights'], str(row['layer']))))}: AUROC "
            f"{interval(row['auroc'], row['auroc_low'], row['auroc_high'])}"
            for row in whole.to_dict("records")
        ]


def _reference(run: Config) -> Path:
    return run.paths.sequences if run.has_sequences else run.paths.reference


class ProbedWindows(NamedTuple):
    """Training, validation and test windows of probes, concatenated."""

    sequences: list[str]
    labels: NDArray[np.uint8]  # (N,)
    parts: list[slice]  # one per split, in the order of `SPLITS`
    tests: AlignedPredictions  # the test windows, without scores


def probe_promoters(
    run: Config,
    model: Path,
    output: Path,
    *,
    random_seed: int = 1,
    device: str = "auto",
) -> pd.DataFrame:
    """Probe every layer of a model's encoder and of random weights: a logistic regression on the mean over
    the tokens of a window, fitted to at most 8,000 training windows, with a penalty chosen on validation
    windows. Vectors are stored in temporary files, with one layer in memory at a time."""
    from bigbird_dna.baselines.promoters import KmerLogistic
    from bigbird_dna.papers.comparators.simple import FrozenEncoder

    config, windows = (
        with_keys(run, "promoters", {}, LayerProbes.name),
        run.paths.windows,
    )
    settings = config.promoters
    if origin := read_origin(windows):
        settings = settings.with_sides(origin.upstream, origin.downstream, str(windows))
    upstream, downstream = settings.windows.sides
    anchor = upstream / (upstream + downstream)
    encoders = {
        weights: FrozenEncoder(model, fresh=fresh, anchor=anchor, device=device)
        for weights, fresh in ((PRETRAINED, None), (RANDOM, random_seed))
    }
    named = (
        run.pretraining_study.negative_set
        if run.pretraining_study
        else run.example_scan.negative_set
    )
    chosen = _windows(config, named, windows, Reference(_reference(run)))
    found = [
        probed
        for name, frozen in encoders.items()
        for probed in _probed(name, frozen, chosen)
    ]
    kmers = KmerLogistic(settings.evaluation.baseline_kmer, settings.evaluation.seed)
    learned, _, evaluated = chosen.parts
    kmers.fit(chosen.sequences[learned], chosen.labels[learned])
    found.append(
        Probed(KMERS, None, kmers.penalty, kmers.predict(chosen.sequences[evaluated]))
    )
    return probe_report(chosen.tests, found, output)


def _windows(
    config: Config, negative_set: str, windows: Path, reference: Reference
) -> ProbedWindows:
    from bigbird_dna.data.chromatin import sample
    from bigbird_dna.papers.comparators.simple import MOST_WINDOWS

    data, training = read_windows(windows, negative_set), config.promoters.training
    split = data.rows["split"].to_numpy()
    learned = training_windows(data, training.train_fraction, training.seed)
    parts = [sample(learned, MOST_WINDOWS, (config.seed, len(learned)))]
    parts += [np.flatnonzero(split == name) for name in SPLITS[1:]]
    for name, part in zip(SPLITS, parts, strict=True):
        if len(np.unique(data.labels[part])) < 2:
            raise DataError(
                f"{windows}: the {name} windows must be of both classes, found only one"
            )
    rows, tests = np.concatenate(parts), data.rows.iloc[parts[-1]]
    sequences = window_sequences(reference, data.rows.iloc[rows], config.seed)
    ends = accumulate(map(len, parts), initial=0)
    columns = (
        data.labels[parts[-1]].astype(np.int64),
        tests["pair"].to_numpy(np.int64),
        blocks_of(tests),
    )
    coding = tests[CODING].to_numpy(np.float64) if CODING in tests else None
    return ProbedWindows(
        sequences,
        data.labels[rows],
        [slice(*pair) for pair in pairwise(ends)],
        AlignedPredictions(negative_set, *columns, {}, coding),
    )


def _probed(name: str, frozen: FrozenEncoder, windows: ProbedWindows) -> list[Probed]:
    from bigbird_dna.baselines.kmers import fit_probe

    found = []
    with scratch_directory() as scratch, full_disk_reported(scratch, scratch):
        # Written files instead of memory maps: with a map, a full disk kills the process without a message.
        files = [scratch / f"layer-{layer}" for layer in range(frozen.layers)]
        starts = range(0, len(windows.sequences), ROWS_AT_ONCE)
        for first in progress(starts, f"{name} weights", len(starts), "parts"):
            means = frozen.features(windows.sequences[first : first + ROWS_AT_ONCE])
            for layer, file in enumerate(files):
                with file.open("ab") as stream:
                    stream.write(means[:, layer].astype(np.float32).tobytes())
        learned, chosen_on, evaluated = windows.parts
        for layer, file in enumerate(files):
            x, y = (
                np.fromfile(file, np.float32).reshape(len(windows.labels), -1),
                windows.labels,
            )
            probe = fit_probe(x[learned], y[learned], x[chosen_on], y[chosen_on])
            found.append(
                Probed(name, layer, probe.penalty, probe.predict(x[evaluated]))
            )
    log(f"{name} weights: {frozen.layers} layers probed")
    return found


PROBES = Schema.of(
    "text weights; optional layer; text stratum; estimate auroc delta_auroc; number inverse_penalty"
)


class Probed(NamedTuple):
    """A probe with its predictions of the test windows."""

    weights: str  # pretrained, random, or `KMERS`
    layer: int | None  # 0: input embeddings; None: k-mers
    penalty: float  # inverse regularization strength
    scores: NDArray[Any]  # (N,)


def probe_report(
    tests: AlignedPredictions, probes: Sequence[Probed], output: Path
) -> pd.DataFrame:
    """Write `probes.tsv`, for each stratum of the test windows, and `probes.svg`, for all of them. `gain` is
    the AUROC of a layer of the pretrained encoder minus that of the same layer with random weights."""
    scores = {
        str(number): np.asarray(probe.scores, np.float64)
        for number, probe in enumerate(probes)
    }
    random = {
        probe.layer: str(number)
        for number, probe in enumerate(probes)
        if probe.weights == RANDOM
    }
    rows = []
    for stratum, part in replace(tests, scores=scores).strata():
        if stratum != ALL and len(np.unique(part.labels)) < 2:
            continue
        for own, (weights, layer, penalty, _) in zip(
            part.scores.values(), probes, strict=True
        ):
            gain = UNDEFINED
            if weights == PRETRAINED and layer in random:
                gain = auroc_difference(
                    part.labels, own, part.scores[random[layer]], part.blocks
                ).estimate
            found = auroc(part.labels, own, part.blocks)
            rows.append((weights, layer, stratum, *found, *gain, penalty))
    # Nullable integers, because k-mers have no layer.
    table = pd.DataFrame(rows, columns=PROBES.names).astype({"layer": "Int64"})
    with into_directory(output) as files:
        write_table(files / "probes.tsv", table, PROBES)
        _figure(table[table["stratum"] == ALL], files / "probes.svg")
    return table


def _figure(table: pd.DataFrame, path: Path) -> None:
    with panels(1, 1, 6.4, 4.2) as (figure, axes):
        axis = axes[0]
        for row in table[table["weights"] == KMERS].to_dict("records"):
            area = Estimate(row["auroc"], row["auroc_low"], row["auroc_high"])
            axis.axhspan(area.low, area.high, color=PALE, alpha=0.5, linewidth=0)
            axis.axhline(
                area.value,
                color=GRAY,
                linestyle=(0, (5, 2)),
                label=f"{KMERS} {interval(*area)}",
            )
        for number, (weights, (label, color, marker)) in enumerate(LOOKS.items()):
            own = table[table["weights"] == weights]
            if own.empty:
                continue
            places = own["layer"].to_numpy(dtype=float) + 0.06 * (2 * number - 1)
            middle = own["auroc"].to_numpy(dtype=float)
            low, high = (
                own[f"auroc_{end}"].to_numpy(dtype=float) for end in ("low", "high")
            )
            axis.errorbar(
                places,
                middle,
                yerr=[middle - low, high - middle],
                color=color,
                marker=marker,
                markersize=5,
                capsize=2,
                elinewidth=1,
                label=label,
            )
        layers = sorted({int(layer) for layer in table["layer"].dropna()})
        if len(layers) <= 16:
            axis.set_xticks(
                layers,
                ["0\nembeddings" if layer == 0 else str(layer) for layer in layers],
            )
        axis.set(
            xlabel="layer",
            ylabel="AUROC, test",
            title="Linear probes of frozen encoders",
        )
        axis.legend(loc="best")
        save_figure(figure, path)
