"""`bigbird-dna benchmark batches`: how fast the batches of chromatin training are made.

Two ways take turns: the trainer's own, by all threads; and the plain one (`plain_batches`), which reads each
window from the compressed reference and has SentencePiece encode it, on one thread. All batches must be the
same. The data are made up: bins anywhere on a genome, and labels at random.
"""

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch

from benchmarks.machine import describe_machine, describe_software
from benchmarks.page import seconds as duration
from benchmarks.page import three
from benchmarks.plain_batches import PlainBatches
from benchmarks.timing import describe, ratios
from bigbird_dna.config import ChromatinConfig
from bigbird_dna.console import log
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.finetuning.chromatin import ChromatinObjective
from bigbird_dna.genome.chromatin.dataset import ChromatinData, make_bins
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.genome.packed import PackedReference
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import whole_contigs
from bigbird_dna.model.inference import cpu_threads
from bigbird_dna.simulate.writing import simulate
from bigbird_dna.tokens.corpus import sample_sentences
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.text import load_tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch

HUMAN = "hg19/chr22_1-22000000.fa.gz"  # below $BIGBIRD_DNA_DATA
SIMULATED = 2.0  # megabases
CORPUS = 6_000_000  # bp that a tokenizer is trained on, at most
BIN, TRACKS, POSITIONS = (
    200,
    919,
    4096,
)  # as in DeepSEA's data, and in the configuration of GRCh37
MAX_N = 0.25
POSITIVE = 0.02  # share of the labels
EPOCH, AT_ONCE = 20_000, 200  # bins

MakeBatch = Callable[[int, int, int], Batch]


def batches(values: Mapping[str, Any]) -> dict[str, Any]:
    """Measure windows of each length of `values`; what `benchmark.json` holds."""
    lengths = [_length(text) for text in str(values["windows"]).split(",")]
    with cpu_threads(values["threads"]), TemporaryDirectory() as home:
        reference, name = _reference(values["reference"], Path(home))
        tokenizer = _tokenizer(
            reference, values["tokenizer"], values["vocabulary"], Path(home)
        )
        names = (
            "windows",
            "shift",
            "steps",
            "training_batch_size",
            "repeats",
            "threads",
        )
        return {
            "benchmark": "batches",
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": describe_machine(torch.device("cpu")),
            "software": describe_software(),
            "settings": {name: values[name] for name in names},
            "reference": name,
            "vocabulary": tokenizer.vocabulary,
            "results": [
                _measure(length, reference, tokenizer, values) for length in lengths
            ],
        }


def _length(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < BIN or int(text) % 2:
        raise UsageError(
            f"--window-bp: {text!r} is not an even number of bp, {BIN} or more"
        )
    return int(text)


def _reference(path: Path | None, home: Path) -> tuple[Reference, str]:
    """A genome as training has it, bgzip and indexed, and what it is called."""
    human = Path(os.environ.get("BIGBIRD_DNA_DATA", "")) / HUMAN
    if path is None and not human.is_file():
        simulate(home / "genome", 1, SIMULATED)
        return Reference(
            home / "genome" / "genome.fa.gz"
        ), f"{SIMULATED:g} simulated megabases"
    source = path or human
    prepare_reference(source, home / "reference.fa.gz")
    return Reference(home / "reference.fa.gz"), source.name


def _tokenizer(
    reference: Reference, path: Path | None, vocabulary: int, home: Path
) -> Tokenizer:
    if path is not None:
        return load_tokenizer(path)
    log(f"learning {vocabulary:,} pieces")
    sentences = sample_sentences(reference, whole_contigs(reference.contigs), CORPUS)
    return DnaTokenizer.train(sentences, home / "tokenizer.model", vocabulary)


def _data(reference: Reference, window: int) -> ChromatinData:
    """Bins in the middle of windows that are not N for the most part, with labels at random."""
    rng = np.random.default_rng(0)
    names, lengths = [*reference.contigs], np.array([*reference.contigs.values()])
    owners = rng.choice(len(names), 4 * EPOCH, p=lengths / lengths.sum())
    starts = rng.integers(0, np.maximum(lengths[owners] // BIN, 1)) * BIN
    bases, fit = PackedReference(reference), np.zeros(len(owners), bool)
    for first in range(0, len(owners), AT_ONCE):
        some = slice(first, first + AT_ONCE)
        contigs, opens = (
            [names[owner] for owner in owners[some]],
            starts[some] - (window - BIN) // 2,
        )
        fit[some] = (bases.windows(contigs, opens.tolist(), window) == ord("N")).mean(
            axis=1
        ) <= MAX_N
    kept = np.flatnonzero(fit)[:EPOCH]
    if not len(kept):
        raise DataError(
            f"{reference.path}: has no windows of {window:,} bp that are not N for the most part"
        )
    bins = make_bins(
        names, owners[kept], starts[kept], np.zeros(len(kept), np.intp), BIN
    )
    tracks = tuple(Track(f"track{number}", "made up") for number in range(TRACKS))
    labels = PackedLabels.from_dense(
        rng.random((len(kept), TRACKS), np.float32) < POSITIVE
    )
    return ChromatinData(bins, labels, tracks, {"bin_size": BIN})


def _objective(
    reference: Reference, tokenizer: Tokenizer, window: int, values: Mapping[str, Any]
) -> ChromatinObjective:
    config = ChromatinConfig.model_validate(
        {
            "data": {"bin": BIN, "window": window, "shift_bp": values["shift"]},
            "training": {"batch_size": values["training_batch_size"]},
        }
    )
    here = World(0, 1, torch.device("cpu"))
    data = _data(reference, window)
    return ChromatinObjective(
        data, reference, tokenizer, config, window, POSITIONS, here
    )


def _measure(
    window: int, reference: Reference, tokenizer: Tokenizer, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Let both ways take turns, each with the same steps; seconds are those of a window."""
    objective = _objective(reference, tokenizer, window, values)
    plain = PlainBatches(objective, reference)
    size, steps = (
        values["training_batch_size"],
        -(-values["steps"] // values["repeats"]),
    )
    began = perf_counter()
    objective.batch(values["steps"], 0, size)  # opens, or compiles, what encodes
    opening = perf_counter() - began
    times: tuple[list[float], list[float]] = ([], [])
    work: tuple[list[float], list[float]] = ([], [])
    for turn in range(values["repeats"]):
        those = range(turn * steps, (turn + 1) * steps)
        made = []
        for way, make in enumerate((plain.batch, objective.batch)):
            taken, worked, found = _timed(make, those, size)
            times[way].append(taken / (steps * size))
            work[way].append(worked / (steps * size))
            made.append(found)
        for step, one, other in zip(those, *made, strict=True):
            _compare(step, one, other)
    row = {
        "window": window,
        "windows": values["repeats"] * steps * size,
        "tokens": float(
            torch.cat([batch["lengths"] for batch in made[0]]).float().mean()
        ),
        "opening": opening,
        "plain": describe(times[0]) | {"cpu": describe(work[0])},
        "fast": describe(times[1]) | {"cpu": describe(work[1])},
        "times_as_fast": ratios(*times),
        "times_less_work": ratios(*work),
    }
    rates = " and ".join(f"{1 / np.median(seconds):,.0f}" for seconds in times)
    log(f"windows of {window:,} bp: {rates} per second")
    return row


def _timed(
    make: MakeBatch, steps: range, size: int
) -> tuple[float, float, list[Batch]]:
    """Seconds for the batches of some steps, those of all cores together, and the batches."""
    began, began_work = perf_counter(), process_time()
    made = [make(step, 0, size) for step in steps]
    return perf_counter() - began, process_time() - began_work, made


def _compare(step: int, one: Batch, other: Batch) -> None:
    """`RuntimeError` unless two batches are the same."""
    if one.keys() != other.keys() or not all(
        torch.equal(one[key], other[key]) for key in one
    ):
        raise RuntimeError(f"the batches of step {step} differ")


def batches_page(result: Mapping[str, Any]) -> str:
    """The results as a Markdown page."""
    machine, of = result["machine"], result["settings"]
    lines = [
        f"Batches of chromatin training on {machine['cpu']}; {result['reference']}, vocabulary "
        f"{result['vocabulary']:,}, {of['training_batch_size']} windows per step, moved by up to "
        f"{of['shift']} bp, {TRACKS} tracks; {result['date'][:10]}.",
        "",
        f"| window | tokens | plain | {machine['threads']} threads | times as fast | CPU time | times less |",
        "| --: | --: | --: | --: | --: | --: | --: |",
    ]
    for row in result["results"]:
        plain, fast = (three(1 / row[way]["median"]) for way in ("plain", "fast"))
        ratio, less = (
            three(row[key]["medians"]) for key in ("times_as_fast", "times_less_work")
        )
        work = " and ".join(
            duration(row[way]["cpu"]["median"]) for way in ("plain", "fast")
        )
        cells = (
            f"{row['window']:,} bp",
            f"{row['tokens']:,.0f}",
            plain,
            fast,
            ratio,
            work,
            less,
        )
        lines.append(f"| {' | '.join(cells)} |")
    steps = -(-of["steps"] // of["repeats"])
    lines += [
        "",
        f"Windows per second, medians over {of['repeats']} turns of {steps:,} steps. plain: each window is "
        "read from the compressed reference and encoded by SentencePiece, on one thread. All batches of both "
        "ways were the same, bit for bit. CPU time: of all cores for a window, in the plain way and in the "
        "other; what else the machine does changes it less than the rates.",
    ]
    return "\n".join(lines) + "\n"
