"""The same encoder with one attention mechanism after the other, pretrained for equal steps: bits per base.

Arms are named MECHANISM-seedN.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bigbird_dna.config.run import Config
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.metrics.resampling import sampled_rates
from bigbird_dna.papers.experiments.arms import (
    Arm,
    Keys,
    make_arm,
    read_arrays,
    training_inputs,
)
from bigbird_dna.papers.experiments.comparing import (
    Metric,
    compare_arms,
    interval_dots,
    training_seconds,
)
from bigbird_dna.reporting.result import (
    BLUE,
    GRAY,
    ResultTable,
    panels,
    save_figure,
    write_result,
)

if TYPE_CHECKING:
    from bigbird_dna.training.distributed import World

FILES = tuple(f"ablation/ablation.{end}" for end in ("tsv", "json", "md", "svg"))
COLUMNS = [
    "mechanism",
    "paper_table1_row",
    "seeds",
    "steps",
    "bits_per_base",
    "bits_per_base_low",
    "bits_per_base_high",
    "difference",
    "difference_low",
    "difference_high",
    "seconds",
    "tokens_per_second",
    "published_masked_accuracy",
]
# Names in Table 1 of Zaheer et al. (2020), which has no row of all three kinds of blocks, and its accuracy
# on masked tokens of text, %, at 512 tokens.
TABLE1 = {
    "full": ("BERT", 64.2),
    "random": ("R", 60.1),
    "window": ("W", 58.3),
    "random_window": ("R + W", 62.7),
}
MASKED_INPUTS = 1000  # most test inputs whose masked tokens are scored


def arms(run: Config) -> list[Arm]:
    """Return a pretraining per mechanism and seed; `ConfigError` if one of them cannot be made."""
    if not run.has_genome:
        raise ConfigError("ablation: needs a genome.reference to pretrain on")
    for split in ("valid", "test"):
        # Regions held out for chromatin are also held out of pretraining.
        regions = getattr(run.chromatin.data, f"{split}_regions")
        if not getattr(run.genome, split) and not regions:
            raise ConfigError(
                f"genome.{split}: the ablation needs at least one contig or region"
            )
    ablation = run.ablation
    batch_size = max(1, ablation.batch_tokens // ablation.tokens)
    training = {
        "steps": ablation.steps,
        "sequence_tokens": ablation.tokens,
        "batch_size": batch_size,
        "grad_accumulation": min(run.pretraining.grad_accumulation, batch_size),
        "length_curriculum": [],
        "optimizer.warmup_steps": min(
            run.pretraining.optimizer.warmup_steps, max(1, ablation.steps // 3)
        ),
    }
    planned: list[Arm] = []
    for mechanism in ablation.mechanisms:
        same = mechanism == run.encoder.attention
        encoder = {
            "attention": mechanism,
            "attention_options": run.encoder.attention_options if same else {},
            "head_init": ablation.head_init or run.encoder.head_init,
            "max_length": max(run.encoder.max_length, ablation.tokens),
        }
        keys = {f"encoder.{key}": value for key, value in encoder.items()}
        keys |= {f"pretraining.{key}": value for key, value in training.items()}
        for seed in ablation.seeds:
            arm = make_arm(
                run,
                "ablation",
                f"{mechanism}-seed{seed}",
                "pretraining",
                {**keys, "pretraining.seed": seed},
                seed=seed,
                options={"mechanism": mechanism},
                inputs=training_inputs(run, "pretraining"),
            )
            if (
                planned
                and arm.config.encoder.causal != planned[0].config.encoder.causal
            ):
                raise ConfigError(
                    f"ablation.mechanisms: cannot compare {mechanism} with "
                    f"{planned[0].options['mechanism']}: only one is causal"
                )
            planned.append(arm)
    return planned


def train(arm: Arm, world: World) -> Keys:
    """Pretrain a model; its directory has `predictions.npz`: `bits`, `bases` and `blocks` (T,) of T masked
    test tokens, which are the same for models with equal tokenizer and inputs."""
    import torch

    from bigbird_dna.model.directory import load_pretrained
    from bigbird_dna.pretraining.held_out import HeldOut
    from bigbird_dna.pretraining.task import PretrainingTask
    from bigbird_dna.tokens.store import TokenStore
    from bigbird_dna.training.task import train as train_task

    paths, pretraining = arm.run.paths, arm.config.pretraining

    def score(path: Path) -> None:
        model = load_pretrained(path)
        held_out = HeldOut.draw(
            TokenStore(paths.tokens / "test", model.tokenizer),
            model.tokenizer,
            pretraining.sequence_tokens,
            MASKED_INPUTS,
            pairs=pretraining.next_sentence,
            causal=model.config.causal,
        )
        model.network.to(world.device).eval()
        with torch.inference_mode():
            bits = held_out.bits(model.network, model.tokenizer, world.device).bits
        np.savez_compressed(
            path / "predictions.npz",
            bits=bits,
            bases=held_out.bases,
            blocks=held_out.blocks,
        )

    task = PretrainingTask(arm.config, paths.tokens, paths.tokenizer)
    return train_task(task, arm.model, arm.checkpoints, world, score)


def compare(run: Config, output: Path) -> list[str]:
    planned = arms(run)
    table = mechanism_table(run, planned)
    notes = [
        "Published accuracy on masked tokens, in percent, is for English text (Zaheer et al. 2020, Table 1, "
        "512 tokens; BERT means full attention), not for the genome of this run.",
        f"Inputs have {run.ablation.tokens:,} tokens. Bits per base are for masked tokens in test contigs. A "
        f"difference is to {run.ablation.reference}; below 0, the mechanism is better. Intervals are 95 %, "
        "over test data and seeds. `seconds` are from the logs, and depend on the load of the machine.",
    ]
    result = ResultTable("Attention mechanisms on the same DNA", table, notes)
    with (
        into_directory(output, [arm.model for arm in planned]) as directory,
        panels(1, 1, 6.4, 1.7 + 0.26 * len(table)) as (figure, (axis,)),
    ):
        write_result(directory, "ablation", result)
        names = table["mechanism"].tolist()
        colors = [BLUE if name != run.ablation.reference else GRAY for name in names]
        bits = table[["bits_per_base", "bits_per_base_low", "bits_per_base_high"]]
        interval_dots(axis, names, bits, colors)
        axis.set(xlabel="bits per base, test", title="Masked tokens")
        save_figure(figure, directory / "ablation.svg")
    return [f"ablation: {len(table):,} mechanisms"]


def mechanism_table(run: Config, arms: Sequence[Arm]) -> pd.DataFrame:
    """Return a row per mechanism, with means over seeds."""
    ablation = run.ablation
    reference = {"mechanism": ablation.reference}
    table = compare_arms(bits_metric(arms), arms, ["mechanism"], reference)
    table = table.set_index("mechanism")
    seconds = pd.Series([training_seconds(arm.model) for arm in arms])
    seconds = seconds.groupby([arm.options["mechanism"] for arm in arms]).mean()
    table["steps"] = ablation.steps
    table["seconds"] = seconds
    batch_size = arms[0].config.pretraining.batch_size
    tokens = ablation.steps * batch_size * ablation.tokens
    table["tokens_per_second"] = tokens / table["seconds"]
    table["paper_table1_row"] = {name: row for name, (row, _) in TABLE1.items()}
    table["published_masked_accuracy"] = {
        name: value for name, (_, value) in TABLE1.items()
    }
    table = table.fillna({"paper_table1_row": ""})
    return table.reset_index()[COLUMNS]


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
