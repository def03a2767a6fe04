"""`bigbird-dna benchmark models`: what whole models do per second on a CPU.

A training step is the whole of it: forward, backward, clipping and AdamW, with dropout, of masked tokens.
Scoring begins with the text of windows of 400 bp and ends with probabilities, as `score-promoters` does.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.contenders import Call
from benchmarks.counts import encoder_bytes, encoder_operations
from benchmarks.machine import describe_machine, describe_software
from benchmarks.page import three
from benchmarks.timing import beside_product, bfloat16_speed, describe
from bigbird_dna.config import EncoderConfig, OptimizerConfig
from bigbird_dna.console import log
from bigbird_dna.errors import UsageError
from bigbird_dna.gpus import freed_memory_kept
from bigbird_dna.model.batching import window_rows
from bigbird_dna.model.heads import Classifier, PretrainingNetwork
from bigbird_dna.model.inference import cpu_threads
from bigbird_dna.model.kernels import row_sigmoid
from bigbird_dna.model.promoter import PromoterRows, row_logits
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.training.distributed import autocast
from bigbird_dna.training.log import matrix_rate, training_seconds
from bigbird_dna.training.loop import make_optimizer

TOKENS, SEQUENCES = 128, 64  # of a training step
WINDOW, WINDOWS, ANCHOR = (
    400,
    512,
    0.75,
)  # bp; windows of a call, as of `score-promoters`
VOCABULARY, CORPUS = 256, 100_000  # pieces, bp
HEAD = 64  # its width, or two heads where the model is narrower
MASKED = 0.15
CLIP = 1.0
PRODUCT = 512  # rows and columns of the products that give the rate
_WHOLE = "whole step"
# What torch calls its matrix products and attention, and this package its own.
_PRODUCTS = (
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "flash_attention",
    "native_",
)


def models(values: Mapping[str, Any]) -> dict[str, Any]:
    """Measure each shape of `values`, "layers x width"; what `benchmark.json` holds."""
    shapes = [_shape(text) for text in str(values["shapes"]).split(",")]
    here = torch.device("cpu")
    with (
        cpu_threads(values["threads"]),
        freed_memory_kept(),
        TemporaryDirectory() as home,
    ):
        header = {
            "benchmark": "models",
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": describe_machine(here),
            "software": describe_software(),
            "settings": {
                name: values[name]
                for name in ("shapes", "repeats", "threads", "max_seconds")
            },
        }
        tokenizer = DnaTokenizer.train(
            [random_dna(CORPUS)], Path(home) / "tokenizer.model", VOCABULARY
        )
        precisions = ["float32"] + ["bfloat16"] * (bfloat16_speed(here) >= 1)
        rows = []
        for layers, hidden in shapes:
            rows += [
                _training(layers, hidden, precision, values) for precision in precisions
            ]
            rows.append(_scoring(layers, hidden, tokenizer, values))
    return {**header, "results": rows}


def _shape(text: str) -> tuple[int, int]:
    try:
        layers, hidden = map(int, text.lower().split("x"))
    except ValueError:
        raise UsageError(
            f"--shapes: {text!r} is not layers x width, such as 2x128"
        ) from None
    if layers < 1 or hidden < 16 or hidden % 16:
        raise UsageError(
            f"--shapes: {text!r}: the width must be a multiple of 16, and layers at least 1"
        )
    return layers, hidden


def _config(layers: int, hidden: int) -> EncoderConfig:
    heads = hidden // HEAD if hidden % HEAD == 0 and hidden > HEAD else 2
    return EncoderConfig(
        vocabulary=VOCABULARY,
        layers=layers,
        hidden=hidden,
        heads=heads,
        max_length=1024,
        position_encoding="rotary",
        block_size=32,
        dropout=0.1,
    )


def random_dna(count: int, seed: int = 0) -> str:
    return "".join(np.random.default_rng(seed).choice(list("ACGT"), count))


def _training(
    layers: int, hidden: int, precision: Any, values: Mapping[str, Any]
) -> dict[str, Any]:
    torch.manual_seed(0)
    network = PretrainingNetwork(_config(layers, hidden), next_sentence=False)
    sequences = SEQUENCES
    rate, limit = matrix_rate(), values["max_seconds"]
    while (
        sequences > 1 and training_seconds(network, sequences * TOKENS, 1, rate) > limit
    ):
        sequences //= 2
    ids = torch.randint(5, VOCABULARY, (sequences, TOKENS))
    masked = torch.randperm(ids.numel())[: round(MASKED * ids.numel())].sort().values
    lengths, labels = torch.full((sequences,), TOKENS), ids.flatten()[masked]
    optimizer = make_optimizer(network, OptimizerConfig())
    cast: AbstractContextManager[Any] = autocast(torch.device("cpu"), precision)

    def step() -> tuple[torch.Tensor, ...]:
        with cast:
            scores = network(ids, lengths, None, masked).tokens
        error = cross_entropy(scores.float(), labels)
        error.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return (error.detach(),)

    operations = 3 * (
        _operations(network, ids.shape[1], ids.numel())
        + 2 * len(masked) * hidden * VOCABULARY
    )
    amounts = Amounts(
        ids.numel(), operations, _bytes(network, ids.numel(), trains=True)
    )
    work = f"training, {sequences} × {TOKENS} tokens"
    return _measure(f"{layers} × {hidden}", work, precision, step, amounts, values)


def _scoring(
    layers: int, hidden: int, tokenizer: DnaTokenizer, values: Mapping[str, Any]
) -> dict[str, Any]:
    torch.manual_seed(0)
    network = Classifier(_config(layers, hidden), 1, "mean").eval()
    windows = [random_dna(WINDOW, seed) for seed in range(WINDOWS)]

    def score() -> tuple[torch.Tensor, ...]:
        rows = PromoterRows(window_rows(tokenizer, windows, 1024, ANCHOR))
        return (
            row_sigmoid(
                torch.from_numpy(row_logits(network, rows, 0, 32, torch.device("cpu")))
            ),
        )

    rows = window_rows(tokenizer, windows, 1024, ANCHOR)
    operations = sum(_operations(network, len(row), len(row)) for row in rows)
    amounts = Amounts(WINDOWS, operations, _bytes(network, sum(map(len, rows))))
    return _measure(
        f"{layers} × {hidden}",
        f"scoring, windows of {WINDOW} bp",
        "float32",
        score,
        amounts,
        values,
    )


def _operations(network: nn.Module, length: int, tokens: int) -> int:
    """Of the products in the layers for `tokens` tokens in sequences of `length`: full attention, as here."""
    config = _encoder_config(network)
    return encoder_operations(config.layers, config.hidden, tokens, length)


def _bytes(network: nn.Module, tokens: int, trains: bool = False) -> int:
    """That a pass over so many tokens moves at the least, with each weight read once."""
    config, weights = (
        _encoder_config(network),
        sum(weight.numel() for weight in network.parameters()),
    )
    return encoder_bytes(weights, config.layers, config.hidden, tokens, trains)


def _encoder_config(network: nn.Module) -> EncoderConfig:
    (encoder,) = (
        module for name, module in network.named_children() if name == "encoder"
    )
    assert isinstance(encoder.config, EncoderConfig)
    return encoder.config


class Amounts(NamedTuple):
    """What a call does: tokens or windows, operations, and bytes moved (see `counts`)."""

    items: int
    operations: int
    bytes: int


def _measure(
    model: str,
    work: str,
    precision: str,
    call: Call,
    amounts: Amounts,
    values: Mapping[str, Any],
) -> dict[str, Any]:
    """Time a call beside products in float32."""
    (times,), product = beside_product(
        [call], values["repeats"], (PRODUCT,) * 3, torch.float32, torch.device("cpu")
    )
    rates = 2 * PRODUCT**3 / np.array(product["seconds"])
    row: dict[str, Any] = {
        "model": model,
        "work": work,
        "precision": precision,
        **describe(times),
    }
    row |= {"operations": amounts.operations, "bytes": amounts.bytes}
    row["per_second"] = amounts.items / row["median"]
    row["product_rate"] = float(np.median(rates))
    row["share"] = float(np.median(amounts.operations / np.array(times) / rates))
    row["in_products"] = _in_products(call) if work.startswith("training") else None
    log(
        f"{model}, {work}, {precision}: {row['per_second']:,.0f} per second, {row['share']:.0%} of the rate"
    )
    return row


def _in_products(call: Call) -> float:
    """Share of a call's time in matrix products and attention."""
    with (
        profile(activities=[ProfilerActivity.CPU]) as profiled,
        record_function(_WHOLE),
    ):
        call()
    events = {event.key: event for event in profiled.key_averages()}
    inside = sum(
        event.self_cpu_time_total
        for name, event in events.items()
        if any(part in name for part in _PRODUCTS)
    )
    return float(inside / events[_WHOLE].cpu_time_total)


def models_page(result: Mapping[str, Any]) -> str:
    """The results as a Markdown page."""
    machine, software = result["machine"], result["software"]
    lines = [
        f"Models on {machine['cpu']}, {machine['instructions']}; threads: {machine['threads']}; "
        f"torch {software['torch']}; {result['date'][:10]}.",
        "",
        "| model | work | precision | per second | share of the rate | time in products |",
        "| --- | --- | --- | --: | --: | --: |",
    ]
    for row in result["results"]:
        inside = "" if row["in_products"] is None else f"{row['in_products']:.0%}"
        speed, share = three(row["per_second"]), f"{row['share']:.0%}"
        cells = (row["model"], row["work"], row["precision"], speed, share, inside)
        lines.append(f"| {' | '.join(cells)} |")
    rate = np.median([row["product_rate"] for row in result["results"]]) / 1e9
    lines += [
        "",
        "per second: tokens in training, windows in scoring. share of the rate: of matrix products in "
        f"float32, measured in the same turns, here {three(rate)} GFLOP/s; bfloat16 may exceed it. time in "
        "products: share of a training step in matrix products and attention, by torch's profiler.",
    ]
    return "\n".join(lines) + "\n"
