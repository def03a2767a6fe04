"""Fine-tunings that several experiments compare, each with its predictions of test data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bigbird_dna.finetuning.chromatin import ChromatinTask
from bigbird_dna.finetuning.evaluation import evaluate_models
from bigbird_dna.finetuning.promoters import PromoterTask
from bigbird_dna.genome.reference import Reference
from bigbird_dna.papers.experiments.arms import Arm
from bigbird_dna.training.distributed import World
from bigbird_dna.training.task import train


def finetune_promoter(
    arm: Arm, world: World, negative_set: str, windows: Path | None = None
) -> dict[str, Any]:
    """Fine-tune a promoter model; its directory has `predictions.parquet`."""
    run = arm.run
    task = PromoterTask(
        arm.config,
        run.model_tokenizer,
        arm.initialization,
        windows or run.paths.windows,
        Reference(run.paths.reference),
        negative_set,
        False,
    )
    return train(task, arm.model, arm.checkpoints, world)


def finetune_chromatin(
    arm: Arm, world: World, window: int | None = None
) -> dict[str, Any]:
    """Fine-tune a chromatin model, and predict the test bins into `predictions.npy` of its directory."""
    run = arm.run
    data, reference = run.paths.chromatin_data, run.paths.reference
    task = ChromatinTask(
        arm.config,
        run.model_tokenizer,
        arm.initialization,
        data,
        Reference(reference),
        window or arm.config.chromatin.data.window,
        0,
    )

    def predict(model: Path) -> None:
        evaluate_models(
            [model],
            run.chromatin.evaluation,
            data=data,
            reference=reference,
            output=model / "predictions.npy",
            device=world.device.type,
        )

    return train(task, arm.model, arm.checkpoints, world, predict)
