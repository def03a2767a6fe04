"""Work of whole commands beside the simple way or another program: variants, AUROC by track, gapped k-mers.

All contenders of a task compute the same numbers, which is checked before they are timed; those of LS-GKM are
another solver's.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.contenders import Call, LeftOut
from benchmarks.counts import encoder_bytes, encoder_operations, sparse_pairs
from benchmarks.models import PRODUCT, random_dna
from benchmarks.timing import beside_product, describe, ratios
from bigbird_dna.config import EncoderConfig
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.variants import VcfRecord, open_vcf
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.directory import build_network, make_model
from bigbird_dna.model.mechanism import attention_pattern
from bigbird_dna.model.model import Predictor
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack
from bigbird_dna.papers.comparators.gkm_svm import GappedKmers, fit_svms
from bigbird_dna.reporting.tracks import auc_report
from bigbird_dna.scoring.track_effects import OFFSETS, AlleleEffect, track_effects
from bigbird_dna.scoring.variant_effects import score_records
from bigbird_dna.tokens.dna import DnaTokenizer

CPU = torch.device("cpu")
LS_GKM = ("gkmtrain", "gkmpredict")
WORD, KNOWN = 11, 7  # bases of a gapped k-mer, and informative ones
TOLERANCE = 1e-9  # of areas that are the same up to rounding

Row = dict[str, Any]


class Sizes(NamedTuple):
    """How much work the tasks are; the defaults are those of the benchmark."""

    window: int = 8000  # bp, as the demo's chromatin models have, with layers of this number and width
    layers: int = 2
    hidden: int = 128
    vocabulary: int = 1024
    single: int = 4  # variants of one alternative allele, and of three
    triple: int = 2
    rows: int = 20_000  # bins of the report, and tracks
    tracks: int = 100
    sequences: int = 200  # of each class, for gapped k-mers
    length: int = 300  # bp of each


class Task(NamedTuple):
    """Calls to be timed beside one another, the first of which is the reference of ratios."""

    work: str  # what they do
    amount: float  # and how much of it a call does
    unit: str
    calls: Mapping[str, Call | LeftOut]  # by contender
    counted: Mapping[
        str, tuple[int, int]
    ] = {}  # operations and bytes of contenders, where counted


def measure(task: Task, repeats: int) -> list[Row]:
    """Time the calls of a task in turns, beside matrix products; a row for each contender."""
    rows: list[Row] = [
        {"work": task.work, "contender": name, "unit": task.unit} for name in task.calls
    ]
    timed = [
        row for row in rows if not isinstance(task.calls[row["contender"]], LeftOut)
    ]
    for row in rows:
        call = task.calls[row["contender"]]
        if isinstance(call, LeftOut):
            row |= {"status": call.args[0], "reason": call.args[1]}
    calls: list[Any] = [task.calls[row["contender"]] for row in timed]
    if not calls:
        return rows
    times, product = beside_product(calls, repeats, (PRODUCT,) * 3, torch.float32, CPU)
    for row, seconds in zip(timed, times, strict=True):
        operations, moved = task.counted.get(row["contender"], (0, 0))
        row |= {"status": "measured", "reason": None, **describe(seconds)}
        row |= {
            "ratio": ratios(seconds, times[0]),
            "per_second": task.amount / row["median"],
        }
        row |= {
            "operations": operations,
            "bytes": moved,
            "rate": operations / row["median"],
        }
        row |= {"share": row["rate"] / product["rate"], "product_rate": product["rate"]}
    return rows


def none(call: Callable[[], object]) -> Call:
    """A call to be timed, whose result is not kept."""

    def run() -> tuple[torch.Tensor, ...]:
        call()
        return ()

    return run


# Effects of variants.


@contextmanager
def variant_task(sizes: Sizes) -> Iterator[Task]:
    """Effects of variants on tracks, all together as `score-variants` has them, and each allele by itself."""
    with TemporaryDirectory() as home:
        model = _chromatin_model(sizes, Path(home))
        length = 4 * sizes.window
        (Path(home) / "genome.fa").write_text(
            f">a\n{random_dna(length, 1)}\n", encoding="utf-8"
        )
        prepare_reference(Path(home) / "genome.fa", Path(home) / "reference.fa.gz")
        with Reference(Path(home) / "reference.fa.gz") as reference:
            records = _records(
                sizes, random_dna(length, 1), Path(home) / "variants.vcf"
            )
            kind = track_effects(model, "track*", OFFSETS, False)
            predict = partial(
                model.window_probabilities, both_strands=False, device="cpu"
            )

            def together(predict: Predictor = predict) -> list[AlleleEffect]:
                scored = score_records(records, reference, kind, predict)
                return [effect for record in scored for effect in record.effects]

            def alone(predict: Predictor = predict) -> list[AlleleEffect]:
                single = (
                    [record._replace(alts=(alt,))]
                    for record in records
                    for alt in record.alts
                )
                scored = (
                    one
                    for some in single
                    for one in score_records(some, reference, kind, predict)
                )
                return [record.effects[0] for record in scored]

            ways = {"records together": together, "each allele alone": alone}
            seen: dict[str, list[str]] = {name: [] for name in ways}
            found = [way(_recorded(predict, seen[name])) for name, way in ways.items()]
            for one, other in zip(*found, strict=True):
                if (
                    one.delta is None
                    or other.delta is None
                    or not np.array_equal(one.delta, other.delta)
                ):
                    raise RuntimeError(
                        "the effects of an allele alone and among others differ"
                    )
            counted = {name: _counted(model, windows) for name, windows in seen.items()}
            work = f"variants, windows of {sizes.window:,} bp, {sizes.layers} × {sizes.hidden}"
            calls: dict[str, Any] = {name: none(way) for name, way in ways.items()}
            yield Task(work, len(found[0]), "alleles", calls, counted)


def _recorded(predict: Predictor, seen: list[str]) -> Predictor:
    """A predictor that also keeps its windows."""

    def run(windows: Sequence[str]) -> NDArray[np.float32]:
        seen.extend(windows)
        return predict(windows)

    return run


def _counted(model: LoadedChromatinModel, windows: Sequence[str]) -> tuple[int, int]:
    """Operations and bytes of the encoder for windows, one of which is a call."""
    of, operations, moved = model.config, 0, 0
    weights = sum(weight.numel() for weight in model.network.parameters())
    for ids in model.tokenizer.encode_batch(windows):
        tokens = min(len(ids) + 2, of.max_length)
        keys = sparse_pairs(attention_pattern(of), tokens, of.heads) / (
            of.heads * tokens
        )
        operations += encoder_operations(of.layers, of.hidden, tokens, keys)
        moved += encoder_bytes(weights, of.layers, of.hidden, tokens, False)
    return operations, moved


def _chromatin_model(sizes: Sizes, home: Path) -> LoadedChromatinModel:
    """A model of random weights of the demo's shape, without the k-mer baseline of an ensemble."""
    tokenizer = DnaTokenizer.train(
        [random_dna(300_000, 2)], home / "tokenizer.model", sizes.vocabulary
    )
    config = EncoderConfig(
        vocabulary=tokenizer.vocabulary,
        layers=sizes.layers,
        hidden=sizes.hidden,
        heads=4,
        max_length=2560,
        position_encoding="rotary",
        rotary_base=1000.0,
        block_size=32,
    )
    names = tuple(
        NamedTrack(track=f"track{number}", group="made up") for number in range(6)
    )
    settings = ChromatinSettings(
        window=sizes.window,
        bin=200,
        pooling="bin",
        bin_layers=1,
        members=1,
        tracks=names,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = build_network(config, settings, tokenizer).eval()
    model = make_model(network, tokenizer, config, settings)
    assert isinstance(model, LoadedChromatinModel)
    return model


def _records(sizes: Sizes, sequence: str, path: Path) -> list[VcfRecord]:
    """Substitutions at places evenly apart, of one base by one other or by all three."""
    count = sizes.single + sizes.triple
    lines = ["##fileformat=VCFv4.2", "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"]
    for number, place in enumerate(np.linspace(0.4, 0.6, count)):
        start = int(place * len(sequence))
        others = [base for base in "ACGT" if base != sequence[start]]
        alts = ",".join(others if number < sizes.triple else others[:1])
        lines.append(f"a\t{start + 1}\t.\t{sequence[start]}\t{alts}\t.\t.\t.")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with open_vcf(path) as opened:
        return list(opened.records)


# AUROC and average precision by track.


@contextmanager
def report_task(sizes: Sizes) -> Iterator[Task]:
    """The report of random predictions, and scikit-learn's two functions for each track."""
    with TemporaryDirectory() as home:
        rng = np.random.default_rng(0)
        labels = (rng.random((sizes.rows, sizes.tracks)) < 0.02).astype(np.uint8)
        scores = (rng.normal(size=labels.shape) + labels).astype(np.float32)
        paths = Path(home) / "predictions.npy", Path(home) / "labels.npy"
        np.save(paths[0], scores)
        np.save(paths[1], labels)
        threads = torch.get_num_threads()

        def report() -> NDArray[np.float64]:
            table = auc_report(*paths, Path(home) / "report", threads=threads).tracks
            return table[["auroc", "auprc"]].to_numpy(np.float64)

        def plain() -> NDArray[np.float64]:
            from sklearn.metrics import average_precision_score, roc_auc_score

            x, y = (np.load(path, mmap_mode="r") for path in paths)
            columns = [
                (np.array(y[:, t]), np.array(x[:, t])) for t in range(sizes.tracks)
            ]
            return np.array(
                [
                    (roc_auc_score(*one), average_precision_score(*one))
                    for one in columns
                ]
            )

        if not np.allclose(report(), plain(), rtol=0, atol=TOLERANCE):
            raise RuntimeError("AUROC or AUPRC differ from scikit-learn's")
        calls: dict[str, Any] = {
            "bigbird-dna auc-report": none(report),
            "scikit-learn, per track": none(plain),
        }
        work = f"AUROC and AUPRC, {sizes.rows:,} bins × {sizes.tracks:,} tracks"
        yield Task(work, sizes.tracks, "tracks", calls)


# Gapped k-mers.


@contextmanager
def gapped_kmers_task(sizes: Sizes) -> Iterator[Task]:
    """Training of a gkm-SVM and scores of its sequences; of nothing if LS-GKM is not installed."""
    work = f"gkm-SVM, 2 × {sizes.sequences:,} sequences of {sizes.length:,} bp"
    if missing := [name for name in LS_GKM if shutil.which(name) is None]:
        reason = LeftOut(
            "unavailable", f"not installed: no {' and '.join(missing)} on the PATH"
        )
        yield Task(work, 0, "sequences", {"LS-GKM": reason})
        return
    with TemporaryDirectory() as home:
        texts = [random_dna(sizes.length, seed) for seed in range(2 * sizes.sequences)]
        classes = texts[: sizes.sequences], texts[sizes.sequences :]
        for name, some in zip(("positive", "negative"), classes, strict=True):
            records = "".join(
                f">{number}\n{text}\n" for number, text in enumerate(some)
            )
            (Path(home) / f"{name}.fa").write_text(records, encoding="utf-8")
        labels = np.repeat(np.array([1, 0], np.uint8), sizes.sequences)

        def ours() -> None:
            kmers = GappedKmers(WORD, KNOWN)
            counts = kmers.count(texts, both_strands=True)
            norms = kmers.norms(counts)
            for svm in fit_svms(kmers, counts, norms, labels, (1.0,)):
                svm.scores(counts, norms)

        def theirs() -> None:
            threads = "4" if torch.get_num_threads() >= 4 else "1"  # it has 1, 4 or 16
            kernel = (
                "-t",
                "0",
                "-l",
                str(WORD),
                "-k",
                str(KNOWN),
                "-d",
                str(WORD - KNOWN),
            )
            _run(
                home,
                LS_GKM[0],
                *kernel,
                "-T",
                threads,
                "positive.fa",
                "negative.fa",
                "model",
            )
            for name in ("positive", "negative"):
                _run(
                    home,
                    LS_GKM[1],
                    "-T",
                    threads,
                    f"{name}.fa",
                    "model.model.txt",
                    f"{name}.txt",
                )

        theirs()  # fails before anything is timed
        yield Task(
            work,
            len(texts),
            "sequences",
            {"bigbird-dna gkm-SVM": none(ours), "LS-GKM": none(theirs)},
        )


def _run(home: str, *command: str) -> None:
    ended = subprocess.run(
        command, cwd=home, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(
            f"{command[0]} ended with code {ended.returncode}: {lines[-1]}"
        )
