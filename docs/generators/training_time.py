"""Where the time of trainings and of scoring goes: `python -m docs.generators.training_time RUN -o DIR`.

Each stage of a finished run is repeated in a new process: a training with fewer steps, some of them under
torch's profiler, which are multiplied by the steps of the configuration; a scoring command as a whole. Self
times of torch's operations are summed by class; what remains of a step is Python and whatever else the main
thread waits for. The C++ kernels are compiled before, into an empty cache. A table is printed, and a JSON
file is written to DIR.
"""

import argparse
import cProfile
import datetime
import json
import os
import pstats
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, thread_time
from typing import Any

from bigbird_dna.console import log

from .markdown import table
from .watching import ENCODER, PLAIN, SKIPPED, WatchedTask, mark_encoders

CONFIGURATION = Path("workflow/config/demo.yaml")
COMMAND = "docs.generators.training_time"
# Variables that limit the instructions of torch's libraries, and the compiler of the kernels.
LIMITS = ("ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "ATEN_CPU_CAPABILITY", "CXX")
# The classes of a step's time, and how the names of torch's operations begin; the first that fits counts.
CLASSES = {
    "encoder_kernel": ENCODER,
    "optimizer": r"Optimizer\.|aten::_fused_adamw|aten::_foreach",
    "attention": r"(?!.*log_softmax).*(attention|native_forward|native_backward|softmax)",
    "matrix_products": r"_Product|(aten|mkldnn)::(mm|addmm|bmm|baddbmm|_?linear|matmul|einsum|mkldnn_)",
    "python": r"autograd::|torch::autograd::AccumulateGrad",
    "elementwise": r"",
}
# Parts of a stage, in the order of the table.
PARTS = {
    "matrix_products": "matrix products",
    "attention": "attention",
    "encoder_kernel": "encoder, one kernel",
    "elementwise": "element-wise, normalization, copies",
    "optimizer": "optimizer",
    "batches": "tokenization and batches",
    "python": "Python and other",
    "evaluation": "evaluation in training",
    "predictions": "predictions after training",
    "files": "checkpoint and model",
    "start": "start",
}
OF_BATCHES = r".*bigbird_dna/(tokens|model/(batching|base_positions))"

Row = dict[str, Any]


def by_class(operations: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Sum the times of torch's operations, by name, over the classes."""
    sums = dict.fromkeys(PARTS, 0.0)
    for name, time in operations:
        sums[
            next(one for one, pattern in CLASSES.items() if re.match(pattern, name))
        ] += time
    return sums


def self_times(profiler: Any) -> list[tuple[str, float]]:
    """The names of the operations that a profiler has seen, with their self times in seconds."""
    return [(one.key, one.self_cpu_time_total / 1e6) for one in profiler.key_averages()]


def largest(
    operations: Iterable[tuple[str, float]], whole: float, count: int = 12
) -> list[Row]:
    """The operations with the most time, with their fractions of `whole`."""
    rows = sorted(operations, key=lambda one: -one[1])[:count]
    return [{"operation": name, "share": round(time / whole, 4)} for name, time in rows]


def _sections(config: Any, stage: str) -> tuple[str, Any]:
    """The name and the keys of the section that a training stage reads."""
    if stage == "pretraining":
        return "pretraining", config.pretraining
    name = stage.split()[0]
    return f"{name}.training", getattr(config, name).training


def _task(config: Any, stage: str) -> Any:
    """The task of a training stage, with the files of the run."""
    from bigbird_dna.finetuning.chromatin import ChromatinTask
    from bigbird_dna.finetuning.promoters import PromoterTask
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.pretraining.task import PretrainingTask

    paths = config.paths
    if stage == "pretraining":
        return PretrainingTask(config, paths.tokens, paths.tokenizer)
    given = {
        "run": config,
        "tokenizer_path": paths.tokenizer,
        "pretrained": paths.pretrained,
    }
    given |= {"reference": Reference(paths.reference)}
    name, kind = stage.split(" ", 1)
    if name == "promoters":
        return PromoterTask(
            data=paths.windows, negative_set=kind, shuffle_labels=False, **given
        )
    window = int(kind.replace(",", "").removesuffix(" bp"))
    return ChromatinTask(
        data=paths.chromatin_data,
        window=window,
        member=0,
        kmers=paths.kmer_model,
        **given,
    )


def measure_training(stage: str, overrides: list[str], began: float, steps: int) -> Row:
    """Train with few steps, and return the time of the training with all steps, by part."""
    from bigbird_dna.config import load_config
    from bigbird_dna.training.distributed import chosen_precision, world
    from bigbird_dna.training.task import train

    name, section = _sections(load_config(CONFIGURATION, overrides), stage)
    whole, done = section.steps, SKIPPED + PLAIN + steps
    few = [f"{name}.steps={done}", f"{name}.evaluate_every={done}"]
    task = WatchedTask(_task(load_config(CONFIGURATION, [*overrides, *few]), stage))
    with TemporaryDirectory() as home, world("cpu") as here:
        precision = chosen_precision(here.device, section.precision)
        train(task, Path(home, "model"), Path(home, "checkpoints"), here)  # type: ignore[arg-type]
    ended, seen = monotonic(), task.watched
    plain, profiled = (
        seen.plain / PLAIN,
        (seen.evaluated[0] - seen.begun[-steps]) / steps,
    )
    evaluations = -(-whole // section.evaluation_steps)
    times = by_class(operations := self_times(seen.profiler))
    for part in times:
        times[part] *= whole / steps * plain / profiled
    times["batches"] = whole * sum(seen.waited[-steps:]) / steps * plain / profiled
    times["python"] += whole * plain - sum(times.values())
    times["evaluation"] = evaluations * (seen.evaluated[2] - seen.evaluated[1])
    times["predictions"] = task.measured - task.trained
    times["files"] = task.trained - seen.evaluated[2] + ended - task.measured
    times["start"] = seen.begun[SKIPPED] - SKIPPED * plain - began
    made = sum(seen.made[SKIPPED : SKIPPED + PLAIN]) / PLAIN
    row = {
        "stage": stage,
        "precision": precision,
        "steps": whole,
        "step_ms": _ms(plain),
    }
    row |= {
        "profiled_step_ms": _ms(profiled),
        "batch_ms": _ms(made),
        "overlapped": round(made / plain, 4),
    }
    return row | _shares(times) | {"operations": largest(operations, profiled * steps)}


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 2)


def _shares(times: dict[str, float]) -> Row:
    whole = sum(times.values())
    return {
        "seconds": round(whole, 2),
        **{one: round(times[one] / whole, 4) for one in PARTS},
    }


def _scoring(config: Any, stage: str) -> Callable[[Path], Any]:
    """The work of a scoring stage, as in the workflow, with a loaded model."""
    from bigbird_dna.model.directory import load
    from bigbird_dna.scoring.promoters import score_promoters
    from bigbird_dna.scoring.variants import score_variants

    paths = config.paths
    promoters, calibrated = paths.start_sites_model, paths.calibrated_chromatin
    model = load(promoters if stage == "score-promoters" else calibrated)
    mark_encoders(model.network)
    if stage == "score-promoters":
        fasta = paths.held_out_sequence("test")
        return lambda output: score_promoters(model, fasta, output, format="tsv")
    variants, contigs = paths.simulated_variants, config.genome.test
    given = {"reference": paths.reference, "contigs": contigs, "tracks": "*"}
    return lambda output: score_variants(model, variants, output=output, **given)


def measure_scoring(stage: str, overrides: list[str], began: float, _: int) -> Row:
    """Run a scoring command three times: without, with torch's, and with Python's profiler.

    Only the CPU time of the main thread counts, which other work on the machine hardly changes.
    """
    from torch.profiler import ProfilerActivity, profile

    from bigbird_dna.config import load_config

    work = _scoring(load_config(CONFIGURATION, overrides), stage)
    ready = monotonic()
    torch_profiler: Any = profile(activities=[ProfilerActivity.CPU])
    python_profiler: Any = cProfile.Profile(thread_time, builtins=False)
    with TemporaryDirectory() as home:
        output = Path(home, "scores.vcf.gz" if "variants" in stage else "scores.tsv")
        seconds = []
        for profiler in (nullcontext(), torch_profiler, python_profiler):
            with profiler:
                first = monotonic(), thread_time()
                work(output)
                seconds.append((monotonic() - first[0], thread_time() - first[1]))
    plain, profiled, traced = seconds[0][1], seconds[1][0], seconds[2][1]
    times = by_class(operations := self_times(torch_profiler))
    for part in times:
        times[part] *= plain / profiled
    by_file = own_times(python_profiler)
    found = (by_file[one] for one in by_file if re.match(OF_BATCHES, one))
    times["batches"] = sum(found) * plain / traced
    times["python"] += plain - sum(times.values())
    times["start"] = ready - began
    row = {
        "stage": stage,
        "precision": "float32",
        "profiled_seconds": round(profiled, 2),
    }
    return row | _shares(times) | {"operations": largest(operations, profiled)}


def own_times(profiler: cProfile.Profile) -> dict[str, float]:
    """The seconds in the functions of each file, with those in built-in functions that they call."""
    sums = defaultdict[str, float](float)
    for (file, _, _), (_, _, own, *_) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        sums[file] += own
    return sums


def compile_kernels() -> float:
    """Compile the C++ kernels, or load them; return the seconds."""
    import torch

    from bigbird_dna.attention.native import pointwise
    from bigbird_dna.tokens.dna import load_library

    began = monotonic()
    if pointwise(torch.zeros(1)) is None or load_library() is None:
        log(
            "warning: there is no C++ compiler, so attention and tokenization are slower"
        )
    return monotonic() - began


STAGES = {
    "pretraining": measure_training,
    "chromatin 8,000 bp": measure_training,
    "chromatin 1,000 bp": measure_training,
    "promoters genomic": measure_training,
    "score-promoters": measure_scoring,
    "score-variants": measure_scoring,
}


def measure(given: argparse.Namespace, stage: str, began: float) -> Row:
    """Measure a stage in this process; "" only compiles the kernels."""
    import torch

    torch.set_num_threads(given.threads)
    if not stage:
        return {"compilation_seconds": round(compile_kernels(), 1)}
    overrides = [f"results={given.results}"]
    for one in ("pretraining", "promoters.training", "chromatin.training"):
        overrides.append(f"{one}.precision={given.precision}")
    return STAGES[stage](stage, overrides, began, given.steps)


def in_new_process(arguments: list[str], cache: Path, stage: str) -> Row:
    """What `measure` returns in a new process, whose kernels are in `cache`."""
    command = [
        sys.executable,
        "-m",
        COMMAND,
        *arguments,
        f"--began={monotonic()}",
        "--stage",
        stage,
    ]
    environment = os.environ | {"BIGBIRD_DNA_CACHE": str(cache)}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def shown(rows: Iterable[Row]) -> str:
    """The stages as a Markdown table: the time of each, and the parts in percent."""
    cells = [
        [
            row["stage"],
            f"{row['seconds']:.1f}",
            *(f"{100 * row[one]:.1f}" for one in PARTS),
        ]
        for row in rows
    ]
    return table(["stage", "seconds", *PARTS.values()], cells)


def _name(today: datetime.date, machine: Row) -> str:
    found = re.search(
        r"EPYC|Xeon|Ryzen|Core|Apple|Neoverse", machine["cpu"], re.IGNORECASE
    )
    instructions = str(machine["instructions"]).lower()
    processor = found[0].lower() if found else "cpu"
    return f"{today}-{processor}-{machine['cores']}-cores-training-time-{instructions}.json"


def main() -> None:
    """Measure the stages, each in a new process; print a table and write the JSON file."""
    parser = argparse.ArgumentParser(prog=f"python -m {COMMAND}")
    parser.add_argument(
        "results", type=Path, help="directory of a finished run of the demo"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="directory of the JSON file"
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of each process"
    )
    parser.add_argument(
        "--steps", type=int, default=40, help="steps of a training under the profiler"
    )
    parser.add_argument(
        "--precision",
        default="auto",
        help="of the trainings: auto, float32 or bfloat16",
    )
    parser.add_argument(
        "--stage", choices=["", *STAGES], help="only this stage, in this process"
    )
    parser.add_argument(
        "--began", type=float, default=monotonic(), help="when this process was started"
    )
    given = parser.parse_args()
    if given.stage is not None:
        print(json.dumps(measure(given, given.stage, given.began)))
        return
    from .collect import dumped, header  # which imports torch

    arguments, set_here = (
        sys.argv[1:],
        [f"{name}={os.environ[name]}" for name in LIMITS if name in os.environ],
    )
    today = datetime.datetime.now(datetime.UTC).date()
    command = shlex.join(
        [*set_here, "python", "-m", COMMAND, "results/demo", *sys.argv[2:]]
    )
    document = header(today, command, None)
    with TemporaryDirectory() as home:
        once = {**in_new_process(arguments, Path(home), ""), "threads": given.threads}
        rows = []
        for stage in STAGES:
            log(stage)
            own = {"instructions": document["machine"]["instructions"]}
            rows.append(in_new_process(arguments, Path(home), stage) | own)
    document["machine"]["precision"] = rows[0]["precision"]
    operations = [
        {"stage": row["stage"], **one} for row in rows for one in row.pop("operations")
    ]
    document["tables"] = {"stages": rows, "operations": operations, "once": [once]}
    print(shown(rows))
    if given.output:
        given.output.mkdir(parents=True, exist_ok=True)
        (given.output / _name(today, document["machine"])).write_text(
            dumped(document), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
