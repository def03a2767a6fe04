"""`bigbird-dna benchmark all`: every part in one result, one page and one plot, in at most 15 minutes.

Contenders of a part take turns with one another and with matrix products. A part that fails or lacks a
library is a row with its reason, and the others go on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, NamedTuple

import torch

from benchmarks.alone import left_out
from benchmarks.attention import AttentionBenchmark
from benchmarks.encoder import EncoderBenchmark
from benchmarks.machine import describe_machine, describe_software
from benchmarks.models import models
from benchmarks.options import AttentionOptions, EncoderOptions
from benchmarks.page import label, seconds, table, three, title
from benchmarks.roofline import measure_roofs
from benchmarks.runner import FORMAT, run
from benchmarks.tasks import (
    Row,
    Sizes,
    Task,
    gapped_kmers_task,
    measure,
    report_task,
    variant_task,
)
from bigbird_dna.console import log
from bigbird_dna.gpus import freed_memory_kept
from bigbird_dna.model.inference import cpu_threads

ATTENTION: dict[str, Any] = {
    "lengths": "512,4096",
    "passes": "forward,training",
    "contenders": "native,sdpa,flex,huggingface,longformer,convolution",
}
ENCODER: dict[str, Any] = {
    "lengths": "4096",
    "layers": 4,
    "hidden": 256,
    "heads": 4,
    "vocabulary": 4096,
    "passes": "inference,training",
    "contenders": "bigbird,huggingface",
}
SHAPES = "2x128,4x256"
WHOLE = "Models and variants"  # a panel of the plot
PRODUCTS = "matrix products, as many operations"


class Plan(NamedTuple):
    """How a part is measured; options of attention, encoder and models, and the sizes of the other tasks."""

    repeats: int
    threads: int | None
    attention: Mapping[str, Any] = ATTENTION
    encoder: Mapping[str, Any] = ENCODER
    shapes: str = SHAPES
    sizes: Sizes = Sizes()

    @property
    def common(self) -> dict[str, Any]:
        """Options of every benchmark."""
        return {
            "repeats": self.repeats,
            "threads": self.threads,
            "memory": False,
            "max_seconds": 60.0,
        }


class Part(NamedTuple):
    """A part of the page."""

    heading: str
    measure: Callable[[Plan], list[Row]]
    note: str


def _attention(plan: Plan) -> list[Row]:
    result = run(
        AttentionBenchmark(AttentionOptions.of({**plan.attention, **plan.common}))
    )
    longest = max(row["length"] for row in result["results"])
    rows = _compared(result)
    for row in rows:
        row["panel"] = f"Attention, {row['work'].partition(',')[0].lower()}"
        row["hollow"] = row["length"] < longest
    return rows


def _encoder(plan: Plan) -> list[Row]:
    result = run(EncoderBenchmark(EncoderOptions.of({**plan.encoder, **plan.common})))
    return [
        {**row, "panel": "Encoder", "hollow": row["pass"] == "inference"}
        for row in _compared(result)
    ]


def _compared(result: Mapping[str, Any]) -> list[Row]:
    """The rows of a benchmark of contenders, as those of `measure`."""
    rates = {
        (product["pass"], product["length"]): product["rate"]
        for product in result["matrix_products"]
    }
    rows = []
    for row in result["results"]:
        work = f"{title(result, row['pass'])}, {row['length']:,} tokens"
        rate = rates.get((row["pass"], row["length"]))
        rows.append(
            {
                **row,
                "work": work,
                "unit": "tokens",
                "product_rate": rate,
                "point": row["contender"],
            }
        )
        if row["status"] == "measured":
            rows[-1]["per_second"] = row["tokens_per_second"]
    return rows


def _models(plan: Plan) -> list[Row]:
    """Beside each model matrix products of as many operations, at the rate measured in the same turns."""
    rows = []
    for row in models({"shapes": plan.shapes, **plan.common, "max_seconds": 3.0})[
        "results"
    ]:
        unit = "tokens" if row["work"].startswith("training") else "windows"
        work = f"{row['work']}, {row['model']}, {row['precision']}"
        own = {"work": work, "unit": unit, "status": "measured", "reason": None}
        rate = row["operations"] / row["median"]
        ratio = {"paired": 1.0, "medians": 1.0}
        name = f"{row['work'].partition(',')[0]}, {row['model']}"
        point = {"panel": WHOLE, "point": name, "hollow": row["precision"] != "float32"}
        rows.append(
            {
                **row,
                **own,
                **point,
                "contender": "bigbird-dna",
                "ratio": ratio,
                "rate": rate,
            }
        )
        peer = {"paired": row["share"], "medians": rate / row["product_rate"]}
        times = {"median": row["operations"] / row["product_rate"], "quartiles": None}
        rows.append(
            {
                **own,
                **times,
                "contender": PRODUCTS,
                "ratio": peer,
                "operations": 0,
                "rate": 0,
            }
        )
    return rows


def _of_task(
    made: Callable[[Sizes], AbstractContextManager[Task]],
) -> Callable[[Plan], list[Row]]:
    def rows(plan: Plan) -> list[Row]:
        with made(plan.sizes) as task:
            rows = measure(task, plan.repeats)
        drawn = {"panel": WHOLE, "hollow": False}
        return [
            {
                **row,
                **drawn,
                "point": f"{task.work.partition(',')[0]}: {row['contender']}",
            }
            for row in rows
        ]

    return rows


PARTS: dict[str, Part] = {
    "attention": Part(
        "Attention",
        _attention,
        "1 × 12 heads × 64, random q, k and v, float32. Gradients are those of q, k and v. The "
        "convolution is a gated long convolution with random weights at the same width (768), as in the "
        "layers of HyenaDNA; it is not the released model. Operations of longformer are not counted.",
    ),
    "encoder": Part(
        "Encoder",
        _encoder,
        "Four layers × 256 with a masked-token head and the same weights. A training step has the "
        "forward and the backward pass and AdamW; bigbird-dna computes the head on masked positions "
        "only.",
    ),
    "models": Part(
        "Training steps and scoring of windows",
        _models,
        "Models of layers × width with random weights: a training step on masked tokens, and scoring of "
        "windows from their text. The ratio of matrix products is the fraction of their rate that a "
        "model reaches.",
    ),
    "variants": Part(
        "Effects of variants",
        _of_task(variant_task),
        "A chromatin model of the demo's shape with random weights. Each allele has windows at four "
        "offsets on both strands, as has the reference; alleles of a record share those of the "
        "reference. Both ways give the same effects, bit for bit.",
    ),
    "auc": Part(
        "AUROC and AUPRC by track",
        _of_task(report_task),
        "auc-report also has confidence intervals, curves and the page. The values of both agree to nine "
        "digits. The size is reduced: DeepSEA has 455,024 bins × 919 tracks.",
    ),
    "lsgkm": Part(
        "Gapped k-mers",
        _of_task(gapped_kmers_task),
        "Training and scores of the same sequences, words of 11 bases with 7 informative ones. LS-GKM "
        "(https://github.com/Dongwon-Lee/lsgkm) is another solver of a similar problem.",
    ),
}


def run_all(
    plan: Plan, parts: Sequence[str] = tuple(PARTS)
) -> Iterator[dict[str, Any]]:
    """Yield what `benchmark.json` holds after each part, with all parts so far."""
    with cpu_threads(plan.threads), freed_memory_kept():
        result: dict[str, Any] = {
            "format": FORMAT,
            "benchmark": "all",
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": describe_machine(torch.device("cpu")),
            "software": describe_software(),
            "settings": {
                "parts": [*parts],
                **plan._asdict(),
                "sizes": plan.sizes._asdict(),
            },
            "roofs": measure_roofs(plan.repeats),
            "seconds": {},
            "results": [],
        }
        for name in parts:
            began = perf_counter()
            try:
                rows = PARTS[name].measure(plan)
            except (
                Exception
            ) as error:  # other people's software, and a check that fails
                status, reason = left_out(error).args
                log(f"{name}: {status}: {reason}")
                rows = [
                    {
                        "work": PARTS[name].heading,
                        "contender": "",
                        "status": status,
                        "reason": reason,
                    }
                ]
            products = (row.get("product_rate") or 0.0 for row in rows)
            result["roofs"]["rates"]["float32"] = max(
                result["roofs"]["rates"]["float32"], *products
            )
            result["results"] += [{"part": name, **row} for row in rows]
            result["seconds"][name] = round(perf_counter() - began, 1)
            log(f"{name}: took {result['seconds'][name]:.0f} s")
            yield result


def suite_page(result: Mapping[str, Any]) -> str:
    """The results as a Markdown page."""
    machine, software, roofs = result["machine"], result["software"], result["roofs"]
    peers = (
        f", transformers {software['transformers']}"
        if software.get("transformers")
        else ""
    )
    rates = ", ".join(
        f"{three(rate / 1e9)} GFLOP/s in {name}"
        for name, rate in roofs["rates"].items()
    )
    parts = [
        "# Benchmarks",
        f"{machine['cpu']}, {machine['instructions']}; threads: {machine['threads']} on {machine['cores']} "
        f"cores; torch {software['torch']}{peers}; {result['date'][:10]}. Load at the start: "
        f"{machine['load_at_start']:.1f}. Repetitions: {result['settings']['repeats']}; all contenders of a "
        "table take turns with one another and with matrix products, whose rate is that of the same turns.",
        f"Highest rate of matrix products, of several shapes: {rates}; in float32 by the faster of "
        "PyTorch's two libraries, MKL and oneDNN. Memory bandwidth (copies of "
        f"{roofs['copied'] / 1e6:.0f} MB, read and written): {three(roofs['bandwidth'] / 1e9)} GB/s.",
        "![Operations per second against operations per byte](roofline.svg)",
    ]
    for name in dict.fromkeys(row["part"] for row in result["results"]):
        rows = [row for row in result["results"] if row["part"] == name]
        threads = machine["threads"]
        cells = [_cells(row, threads) for row in rows if row["status"] == "measured"]
        left = [row for row in rows if row["status"] != "measured"]
        parts += [f"## {PARTS[name].heading}", PARTS[name].note]
        parts += filter(None, [table(cells), "\n".join(map(_left_out, left))])
    parts += [
        "median, quartiles: of the time of a call. ratio: times as long as the first contender of the "
        "same work, median of the ratios within a turn. share: of the rate of matrix products in the "
        "same turns. GFLOP/s: operations of matrix products and Fourier transforms, by formula.",
        "Plot: bytes are the least that must be moved (inputs, results and weights), so that points lie "
        "too far to the right rather than too far to the left. Hollow markers: 512 tokens, inference, or "
        "bfloat16. Lines: the measured bandwidth, and the highest rate of matrix products.",
    ]
    return "\n\n".join(parts) + "\n"


def _cells(row: Mapping[str, Any], threads: int) -> dict[str, str]:
    """What the table shows of a row, by column; empty where a column says nothing."""
    quartiles = row["quartiles"]
    speed = f"{three(row['per_second'])} {row['unit']}" if "per_second" in row else ""
    alleles = row["unit"] == "alleles"
    counted = bool(row["rate"])
    return {
        "work": row["work"],
        "contender": label(row["contender"]),
        "median": seconds(row["median"]),
        "quartiles": "–" if quartiles is None else " – ".join(map(seconds, quartiles)),
        "ratio": f"{row['ratio']['paired']:.2f}" if row["ratio"] else "–",
        "per second": speed,
        "s per allele and core": three(threads / row["per_second"]) if alleles else "",
        "GFLOP/s": three(row["rate"] / 1e9) if counted else "–",
        "share": f"{row['share']:.0%}" if counted else "–",
        "products, GFLOP/s": three(row["product_rate"] / 1e9)
        if row.get("product_rate")
        else "–",
    }


def _left_out(row: Mapping[str, Any]) -> str:
    who = ", ".join(filter(None, (label(row["contender"]), row["work"])))
    return f"* {who}: {row['status']}: {row['reason']}"
