"""How the stride of a promoter scan trades time against precision and recall; run by hand.

    python benchmarks/scan_stride.py MODEL FASTA LOCI --contig XI [--contig ...] [--strides 1,5,10,25,50]
        [--megabases 0.2] [--views 1] [--distances 10,50,100] [--suppress 100] [-o FILE.json]
        [--figure FILE.svg]

Each stride is scanned once, for its time and its scores; the windows of a coarse stride are some of those of
stride 1, with the same scores. On either strand the window with the highest score is a call, and silences
those whose TSS positions lie within `--suppress` bp; then comes the highest that is left. From the highest
score down, a call is correct if within a distance lies an annotated TSS of its strand that no call took
before. Only those TSS count whose window lies on the scanned part. To choose a stride is to tune: keep test
contigs out of it.
"""

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np

if __name__ == "__main__":  # run by its path: `benchmarks` isn't installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.machine import describe_machine, describe_software
from benchmarks.page import three
from bigbird_dna.calibration.calls import (
    Integers,
    Points,
    Scan,
    Track,
    find_track_calls,
    match_tracks,
)
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import check_writable, write_json
from bigbird_dna.errors import BigBirdDnaError, DataError
from bigbird_dna.genome.fasta import scan_fasta, stream_fasta
from bigbird_dna.genome.intervals import find_places
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.model.directory import load_promoter_model
from bigbird_dna.model.inference import choose_device, cpu_threads, inference
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.reporting import result as style
from bigbird_dna.scoring.scan import BOTH_STRANDS, scan_records

SETTINGS = (
    "strides",
    "distances",
    "suppress",
    "megabases",
    "views",
    "contig",
    "device",
    "threads",
)
NEAR = 100  # bp: how far calls lie from their TSS is asked of those that lie as near
CURVE = 200  # steps of recall that a curve is kept with, at most


def evaluate(
    calls: Mapping[Track, Points],
    sites: Mapping[Track, Integers],
    distance: int,
    megabases: float,
) -> dict[str, Any]:
    """What calls are worth where one is correct within `distance` bp; there are calls and TSS."""
    found, total = match_tracks(calls, sites, distance), sum(map(len, sites.values()))
    curve = found.curve
    best = curve.best(total)
    number = int(curve.calls[best])
    near = match_tracks(calls, sites, NEAR).gaps[:number]
    rises = np.flatnonzero(np.diff(curve.correct, prepend=0))
    kept = rises[
        np.unique(
            np.linspace(0, len(rises) - 1, min(CURVE, len(rises))).round().astype(int)
        )
    ]
    return {
        "distance": distance,
        "average_precision": curve.average_precision,
        "recall_at_half": float(curve.recall[curve.precision >= 0.5].max(initial=0.0)),
        "best_f1": float(2 * curve.correct[best] / (number + total)),
        "threshold": float(found.scores[number - 1]),
        "precision": float(curve.precision[best]),
        "recall": float(curve.recall[best]),
        "calls": number,
        "calls_per_megabase": number / megabases,
        "median_distance": float(np.median(near[near >= 0]))
        if (near >= 0).any()
        else None,
        "curve": [
            curve.recall[kept].round(5).tolist(),
            curve.precision[kept].round(5).tolist(),
        ],
    }


def scan(
    model: LoadedPromoterModel,
    fasta: Path,
    contigs: Mapping[str, int],
    stride: int,
    device: str,
) -> tuple[dict[str, float], dict[Track, Points]]:
    """The time that it takes to score both strands of a file `stride` bp apart, and the scores."""
    predict = partial(model.window_probabilities, device=device)
    began, worked = perf_counter(), process_time()
    batches = scan_records(fasta, contigs, model, predict, stride=stride)
    windows = [one for batch in batches for one in batch]
    times = {"seconds": perf_counter() - began, "cpu_seconds": process_time() - worked}
    pairs: defaultdict[Track, list[tuple[int, float]]] = defaultdict(list)
    for one in windows:
        if one.score is not None and one.tss is not None:
            pairs[one.contig, one.strand].append((one.tss, one.score))
    if not pairs:
        raise DataError(f"no window of {', '.join(contigs)} is scored: too many N")
    tables = {track: np.array(some, np.float64) for track, some in pairs.items()}
    return times, {
        track: Points(part[:, 0].astype(np.int64), part[:, 1])
        for track, part in tables.items()
    }


def sites_within(
    loci: Path, model: LoadedPromoterModel, contigs: Mapping[str, int]
) -> dict[Track, Integers]:
    """The TSS of a file, by track and ascending, whose windows lie on the contigs as they are scanned."""
    before, after = model.settings.upstream, model.settings.downstream - 1
    sites: dict[Track, set[int]] = {
        (name, strand): set() for name in contigs for strand in BOTH_STRANDS
    }
    for locus in read_loci(loci):
        left, right = (before, after) if locus.strand == "+" else (after, before)
        if left <= locus.position < contigs.get(locus.contig, 0) - right:
            sites[locus.contig, locus.strand].add(locus.position)
    if not any(sites.values()):
        raise DataError(
            f"{loci}: has no TSS whose window lies on what is scanned of {', '.join(contigs)}"
        )
    return {track: np.array(sorted(found), np.int64) for track, found in sites.items()}


def first_bases(
    fasta: Path, names: Sequence[str], most: int, window: int
) -> dict[str, str]:
    """The first `most` bp, at least a window, of some contigs of a FASTA file, under their names there."""
    places = find_places(names, None, scan_fasta(fasta), fasta, names=None)
    parts: dict[str, str] = {}
    for chunk in stream_fasta(fasta):
        if (places is None or places.on(chunk.contig)) and chunk.start < most:
            parts[chunk.contig] = (
                parts.get(chunk.contig, "") + chunk.sequence[: most - chunk.start]
            )
    for name, part in parts.items():
        if len(part) < window:
            raise DataError(
                f"{fasta}: {name}: {len(part):,} bp are scanned, a window has {window:,}"
            )
    return parts


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Scan with each stride, the coarsest first; what the JSON file holds."""
    device, model = choose_device(options.device), load_promoter_model(options.model)
    if options.views is not None:
        model = replace(
            model, settings=model.settings.model_copy(update={"views": options.views})
        )
    own = model.settings
    most = sys.maxsize if options.megabases is None else round(options.megabases * 1e6)
    records = first_bases(options.fasta, options.contig, most, own.window)
    contigs = {name: len(sequence) for name, sequence in records.items()}
    sites = sites_within(options.loci, model, contigs)
    megabases = sum(length - own.window + 1 for length in contigs.values()) / 1e6
    rows: list[dict[str, Any]] = []
    with (
        TemporaryDirectory() as home,
        cpu_threads(options.threads),
        inference("float32", device),
    ):
        machine, path = describe_machine(device), Path(home, "scanned.fa.gz")
        write_fasta(path, records.items())
        model.window_probabilities(
            ["A" * own.window] * 32, device=options.device
        )  # what comes but once
        for stride in sorted(options.strides, reverse=True):
            times, found = scan(model, path, contigs, stride, options.device)
            calls = find_track_calls(Scan(found, stride), options.suppress)
            row = {
                "stride": stride,
                "windows": sum(len(windows.scores) for windows in found.values()),
                **times,
                **{
                    f"{name}_per_megabase": value / megabases
                    for name, value in times.items()
                },
                "at": [
                    evaluate(calls, sites, distance, megabases)
                    for distance in options.distances
                ],
            }
            rows.append(
                row
                | {"ratio": times["seconds"] / (rows[0] if rows else times)["seconds"]}
            )
            log(
                f"stride {stride}: {row['windows']:,} scores in {times['seconds']:.1f} s"
            )
    return {
        "format": 1,
        "benchmark": "scan_stride",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "software": describe_software(),
        "settings": {name: getattr(options, name) for name in SETTINGS},
        "window": [own.upstream, own.downstream],
        "model": {"name": Path(options.model).name, "sha256": model.sha256},
        "fasta": options.fasta.name,
        "loci": options.loci.name,
        "scanned": {
            "contigs": contigs,
            "megabases": megabases,
            "sites": sum(map(len, sites.values())),
        },
        "results": rows[::-1],
    }


def page(result: Mapping[str, Any]) -> str:
    """The results as a Markdown page, a row for each stride and distance."""
    machine, of, scanned = result["machine"], result["settings"], result["scanned"]
    rows, threads = (
        result["results"],
        f"{machine['threads']} thread{'s' * (machine['threads'] != 1)}",
    )
    lines = [
        f"{result['model']['name']} on {scanned['megabases']:.3g} Mb of {', '.join(scanned['contigs'])}, "
        f"both strands, {scanned['sites']:,} TSS; {machine['gpu'] or machine['cpu']}, {threads}; "
        f"{result['date'][:10]}.\n",
        f"| stride | s/Mb | × stride {rows[-1]['stride']} | CPU s/Mb | within | average precision "
        "| recall at ½ | best F1 | calls/Mb | median distance |",
        f"|{' --: |' * 10}",
    ]
    for row in rows:
        taken, worked = (
            three(row[f"{name}seconds_per_megabase"]) for name in ("", "cpu_")
        )
        start = f"| {row['stride']} bp | {taken} | {row['ratio']:.2f} | {worked} |"
        for at in row["at"]:
            share = " | ".join(
                f"{at[key]:.3f}"
                for key in ("average_precision", "recall_at_half", "best_f1")
            )
            gap = (
                "–"
                if at["median_distance"] is None
                else f"{at['median_distance']:g} bp"
            )
            calls = three(at["calls_per_megabase"])
            lines.append(f"{start} {at['distance']} bp | {share} | {calls} | {gap} |")
    return "\n".join(lines) + (
        f"\n\nCalls of a strand are more than {of['suppress']} bp apart. recall at ½: the largest with a "
        "precision of at least one half. calls/Mb: of both strands, at the threshold of the best F1. median "
        f"distance: from call to TSS, of those of these calls that take one within {NEAR} bp.\n"
    )


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Precision against recall for each distance, a line for each stride; and seconds per Mb."""
    rows, distances = result["results"], result["settings"]["distances"]
    colors = [style.SERIES[number % len(style.SERIES)] for number in range(len(rows))]
    with style.panels(-(-(len(distances) + 1) // 2), 2, 4.2, 3.4) as (figure, axes):
        for number, distance in enumerate(distances):
            axis = axes[number]
            for place, row in enumerate(
                rows
            ):  # the finest is the broadest, to be seen below the others
                (recall, precision), width = (
                    row["at"][number]["curve"],
                    1.2 + 2.4 * (1 - place / len(rows)),
                )
                heights = [*precision[:1], *precision] or [0]
                axis.step(
                    [0, *recall],
                    heights,
                    where="pre",
                    color=colors[place],
                    linewidth=width,
                )
            axis.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
            axis.set_title(f"within {distance} bp of a TSS")
        axis, strides = axes[len(distances)], [row["stride"] for row in rows]
        seconds = [row["seconds_per_megabase"] for row in rows]
        axis.plot(strides, seconds, color=style.PALE, zorder=1)
        axis.scatter(strides, seconds, c=colors, s=36, zorder=2)
        for stride, value in zip(strides, seconds, strict=True):
            axis.annotate(
                three(value), (stride, value), (5, 4), textcoords="offset points"
            )
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="stride, bp",
            ylabel="seconds per Mb, both strands",
        )
        axis.set_xticks(strides, [str(stride) for stride in strides])
        axis.minorticks_off()
        axis.margins(0.15)
        for unused in axes[len(distances) + 1 :]:
            unused.set_visible(False)
        labels = [f"stride {stride} bp" for stride in strides]
        figure.legend(
            axes[0].get_lines(),
            labels,
            loc="outside lower center",
            ncols=min(5, len(rows)),
        )
        style.save_figure(figure, path)


def _numbers(text: str) -> list[int]:
    """Different whole numbers from 1 on, with commas, ascending."""
    if min(numbers := {int(part) for part in text.split(",")}) < 1:
        raise ValueError(f"{text}: a number is less than 1")
    return sorted(numbers)


def read_options(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "model", help="a promoter model's directory, or the name of a bundled one"
    )
    parser.add_argument("fasta", type=Path)
    parser.add_argument(
        "loci",
        type=Path,
        help="the TSS, as `bigbird-dna prepare promoters` writes them",
    )
    parser.add_argument(
        "--contig", action="append", required=True, help="scanned; may be given again"
    )
    parser.add_argument(
        "--strides", type=_numbers, default=[1, 5, 10, 25, 50], help="bp, with commas"
    )
    parser.add_argument(
        "--megabases",
        type=float,
        help="scanned of each contig, from its start; else all",
    )
    parser.add_argument(
        "--views",
        type=int,
        choices=range(1, 65),
        metavar="N",
        help="else the model's own",
    )
    parser.add_argument(
        "--distances", type=_numbers, default=[10, 50, 100], help="bp, with commas"
    )
    parser.add_argument(
        "--suppress", type=int, default=100, help="bp around a call that have no other"
    )
    parser.add_argument("--device", default="cpu", help="auto, cpu, cuda or mps")
    parser.add_argument(
        "--threads", type=int, help="of the CPU; else as many as torch takes"
    )
    parser.add_argument("-o", "--output", type=Path, help="JSON file to write")
    parser.add_argument("--figure", type=Path, help="SVG, PNG or PDF file to write")
    options = parser.parse_args(words)
    if options.suppress < 0 or (
        options.megabases is not None and not 0 < options.megabases < math.inf
    ):
        parser.error("--suppress must be at least 0, --megabases more than 0")
    return options


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write what is asked for."""
    options = read_options(words)
    try:
        for path in filter(None, (options.output, options.figure)):
            check_writable(path)
        style.check_format(options.figure or Path("none.svg"))
        result = measure(options)
        if options.output is not None:
            write_json(options.output, result)
        if options.figure is not None:
            draw(result, options.figure)
    except BigBirdDnaError as error:
        print(f"scan_stride: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print(page(result), end="")


if __name__ == "__main__":
    main()
