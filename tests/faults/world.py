"""A small run with every kind of input, and every command that writes, to be spoilt in many ways."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bigbird_dna.disk.atomic import remove_left
from bigbird_dna.registry.publishing import unpack
from bigbird_dna.simulate.writing import simulate
from tests.calibration.sources import write_predictions
from tests.cli.command import invoke
from tests.papers.experiments.public_files import c4
from tests.papers.experiments.studies import write_study
from tests.registry.shelf import publish, write_list
from tests.toys import random_dna

TRAINING = {"steps": 4, "checkpoint_every": 2, "evaluate_every": 2, "precision": "float32"}
SETTINGS: dict[str, Any] = {
    "genome": {"assembly": "demo", "valid": ["demo5"], "test": ["demo6"]},
    "tokens": {
        **{
            "vocabulary": 64,
            "corpus_megabases": 0.05,
            "max_piece_length": 8,
            "passes": 1,
            "max_start_offset": 100,
        },
        **{"sentence_bases": [100, 200], "sentences_per_document": [5, 10]},
    },
    "encoder": {
        "layers": 1,
        "hidden": 16,
        "heads": 2,
        "max_length": 512,
        "block_size": 16,
        "random_blocks": 1,
    },
    "pretraining": {**TRAINING, "batch_size": 4, "sequence_tokens": 96, "evaluation_sequences": 4},
    "promoters": {"training": {**TRAINING, "batch_size": 8}},
    "chromatin": {
        "data": {
            **{"bin": 200, "window": 1000, "compare_window": None, "min_positives_train": 1},
            **{"min_positives_heldout": 1, "label": "any"},
        },
        "model": {"pooling": "bin", "bin_layers": 0},
        "training": {**TRAINING, "batch_size": 2, "bins_per_window": 3, "evaluation_bins": 8},
        "evaluation": {"test_bins": 16, "baseline_kmer": 2},
    },
}
SETTINGS["long_range"] = {
    "encoder": SETTINGS["encoder"],
    "listops": {
        "examples": {"train": 12, "valid": 4, "test": 4},
        **{"shortest": 4, "longest": 12, "training": {**TRAINING, "batch_size": 2}},
    },
    "pathfinder": {"examples": {"train": 2, "valid": 2, "test": 2}, "size": 20, "dashes": 3},
}
# The world has too few bases for validation windows of another set.
SETTINGS["scoring"] = {"negative_set": "permuted"}
SETTINGS["tables"] = {
    **{"negative_sets": ["permuted"], "promoters": ["gc"], "chromatin": ["gc"], "seeds": [1]},
    **{"starts": ["random"], "probes": False},
}
SETTINGS["ablation"] = {
    **{"mechanisms": ["bigbird"], "tokens": 64, "batch_tokens": 128, "steps": 4, "lengths": []}
}
TEXT_TASK: dict[str, Any] = {
    "kind": "classification",
    "data": {"generated": {"train": 8, "valid": 4, "test": 4, "words": 40}},
    "start": {"vocabulary": 300},
    "length": 96,
    "encoder": {
        "layers": 1,
        "hidden": 16,
        "heads": 2,
        "max_length": 96,
        "block_size": 16,
        "random_blocks": 1,
    },
    "training": {**TRAINING, "batch_size": 4},
}
DEEPSEA_FILES = ("train.mat", "valid.mat", "test.mat")


class World(NamedTuple):
    """The files of the small run, by what they are."""

    home: Path

    @property
    def config(self) -> Path:
        return self.home / "run.yaml"

    @property
    def text_config(self) -> Path:
        return self.home / "text.yaml"

    @property
    def results(self) -> Path:
        return self.home / "results"

    def __truediv__(self, name: str) -> Path:
        return self.results / name


def make_world(home: Path) -> World:
    """Every input that a command can have, made by the commands that make it."""
    world = World(home)
    for name in ("learnt", "held-out"):
        (home / f"{name}.json.gz").write_bytes(c4([f"{name} words, " * 20]))
    texts = {"train": [str(home / "learnt.json.gz")], "test": [str(home / "held-out.json.gz")]}
    density = {"format": "c4", "sequence_bytes": 64, "training": {**TRAINING, "batch_size": 2}, **texts}
    density["encoder"] = SETTINGS["encoder"]
    settings = {"results": str(world.results), **SETTINGS, "byte_lm": density}
    world.config.write_text(yaml.safe_dump(settings))
    world.text_config.write_text(
        yaml.safe_dump({"results": str(world / "text"), "tasks": {"far": TEXT_TASK}})
    )
    simulate(world / "simulated", 1, 0.1)
    for command in (
        "prepare reference",
        "prepare promoters",
        "prepare tokenizer",
        "prepare tokens",
        "prepare promoter-windows",
    ):
        run(world, command)
    for command in ("pretrain", "finetune-promoter", "prepare chromatin", "finetune-chromatin"):
        run(world, command)
    write_predictions(world / "predicted.parquet", n=40)  # its own are of two windows
    run(world, "model calibrate-promoter")
    for command in (
        "evaluate test-bins --labels",
        "score-promoters",
        "score-variants",
        "score-promoters --shard",
    ):
        run(world, command)
    for command in ("train baseline-promoter", "export-hf", "evaluate pretraining", "report pretraining"):
        run(world, command)
    run(world, "generate")
    with gzip.open(world / "simulated/promoters.sga.gz", "wt") as stream:
        stream.write((world / "simulated/promoters.sga").read_text())
    records = (f">r{number}\n{random_dna(80, number)}\n" for number in range(40))
    (world / "simulated/promoters.fa").write_text("".join(records))
    for command in (
        "experiment run windows",
        "experiment run data",
        "experiment run",
        "experiment run pretraining",
    ):
        run(world, command)
    for command in ("prepare sequences", "evaluate nearest-promoters", "evaluate nearest-bins"):
        run(world, command)
    (world / "simulated/regions.bed").write_text("demo6\t1000\t1200\tone\ndemo6\t5000\t5900\ttwo\n")
    write_study(world / "study", {0.2: 0.5, 1.0: 0.2}, seeds=1)
    (world / "shelf/models/toy").mkdir(parents=True)
    entry = publish(world / "models/pretrained", world / "shelf/toy.tar")
    unpack(world / "shelf/toy.tar", "toy", world / "shelf/models/toy")
    write_list(world / "shelf/models.yaml", {"toy": entry})
    for command in ("nlp prepare", "nlp finetune", "nlp predict", "nlp evaluate"):
        run(world, command)
    remove_left()  # as at the end of each command: the next one to end in this process would do it
    return world


def run(world: World, command: str) -> None:
    """Make the output of a command where the others look for it."""
    invoke(*COMMANDS[command].words(world, world / OUTPUTS[command]))


class Command(NamedTuple):
    """A command that writes: its words for an output, and what that is."""

    name: str
    words: Callable[[World, Path], list[object]]
    kind: str  # "file"; "directory", which is replaced as a whole; or "beside", which files are put into


OUTPUTS = {
    "prepare reference": "genome/reference.fa.gz",
    "prepare promoters": "genome/promoters.tsv",
    "prepare tokenizer": "tokens/tokenizer.model",
    "prepare tokens": "tokens",
    "prepare promoter-windows": "promoters",
    "pretrain": "models/pretrained",
    "finetune-promoter": "models/promoter-genomic",
    "model calibrate-promoter": "models/calibrated",
    "prepare chromatin": "chromatin/data",
    "finetune-chromatin": "models/chromatin",
    "evaluate test-bins --labels": "chromatin/held-out",
    "score-promoters": "scores.tsv",
    "score-promoters --shard": "scores.piece",
    "score-variants": "variants.vcf.gz",
    "prepare sequences": "own",
    "evaluate nearest-promoters": "nearest.tsv",
    "evaluate nearest-bins": "chromatin/nearest.tsv",
    "export-hf": "models/exported",
    "experiment run windows": "experiments/table6/data/8000",
    "experiment run data": "experiments/long_range_arena/data/listops",
    "experiment run": "experiments/long_range_arena/listops-bigbird/1/model",
    "experiment run pretraining": "experiments/ablation/bigbird-steps/1/model",
    "train baseline-promoter": "kmers.parquet",
    "evaluate pretraining": "bits.tsv",
    "generate": "samples.fa",
    "report pretraining": "report",
    "nlp prepare": "text/far/data",
    "nlp finetune": "text/far/model",
    "nlp predict": "text/far/predictions.jsonl",
    "nlp evaluate": "text/far/evaluation.json",
}


def _arm(experiment: str, arm: str, part: str = "model") -> Callable[[World, Path], list[object]]:
    return lambda w, out: [
        *("experiment run", w.config, experiment, arm, "--part", part, "-o", out),
        *("--set", "chromatin.data.tracks=simulated"),  # the data set was given them as an option
        *(("--checkpoint-dir", out.parent / "checkpoints") if part == "model" else ()),
        *("--threads", 1, "--device", "cpu"),
    ]


def _trained(command: str, *more: object) -> Callable[[World, Path], list[object]]:
    return lambda w, out: [
        command,
        w.config,
        *more,
        "-o",
        out,
        "--checkpoint-dir",
        out.parent / "checkpoints",
        "--threads",
        1,
        "--device",
        "cpu",
    ]


def _text(command: str, *more: str) -> Callable[[World, Path], list[object]]:
    return lambda w, out: ["nlp", command, w.text_config, "--task", "far", "-o", out, *more]


def _chromatin_models(world: World) -> list[object]:
    return [world / "models/chromatin"]


_ALL = [
    Command("simulate", lambda w, out: ["simulate", out, "--megabases", 0.1], "beside"),
    Command(
        "prepare reference",
        lambda w, out: ["prepare reference", w / "simulated/genome.fa.gz", "-o", out],
        "file",
    ),
    Command(
        "prepare promoters",
        lambda w, out: [
            *("prepare promoters", w / "simulated/promoters.sga"),
            *("--reference", w / "genome/reference.fa.gz", "-o", out),
        ],
        "file",
    ),
    Command(
        "prepare contig",
        lambda w, out: [
            "prepare contig",
            w / "genome/reference.fa.gz",
            "demo6",
            "-o",
            out,
            "--megabases",
            0.01,
        ],
        "file",
    ),
    Command("prepare tokenizer", lambda w, out: ["prepare tokenizer", w.config, "-o", out], "file"),
    Command(
        "prepare tokens", lambda w, out: ["prepare tokens", w.config, "-o", out, "--threads", 1], "beside"
    ),
    Command(
        "prepare token-stats",
        lambda w, out: ["prepare token-stats", w.config, "-o", out, "--threads", 1],
        "file",
    ),
    Command(
        "prepare promoter-windows", lambda w, out: ["prepare promoter-windows", w.config, "-o", out], "beside"
    ),
    Command(
        "prepare sequences",
        lambda w, out: ["prepare sequences", w / "simulated/promoters.fa", "-o", out],
        "beside",
    ),
    Command(
        "evaluate nearest-fasta",
        lambda w, out: ["evaluate nearest-fasta", w / "own/test.fa.gz", w / "own/training.fa.gz", "-o", out],
        "file",
    ),
    Command(
        "evaluate nearest-promoters",
        lambda w, out: [
            *("evaluate nearest-promoters", w.config, "--negative-set", "permuted", "--windows", w / "own"),
            *("--reference", w / "own/sequences.fa.gz", "-o", out),
            *("--predictions", out.parent / "nearest.parquet"),
        ],
        "file",
    ),
    Command(
        "evaluate promoters-by-similarity",
        lambda w, out: [
            *("evaluate promoters-by-similarity", f"--nearest=permuted={w / 'nearest.tsv'}"),
            *(f"--predictions=permuted/nearest={w / 'nearest.parquet'}", "-o", out),
        ],
        "beside",
    ),
    Command(
        "evaluate nearest-bins",
        lambda w, out: [
            *("evaluate nearest-bins", w.config, "--window", 200, "-o", out),
            *("--predictions", out.parent / "nearest.npy"),
        ],
        "file",
    ),
    Command(
        "evaluate bins-by-similarity",
        lambda w, out: [
            *("evaluate bins-by-similarity", w / "chromatin/nearest.tsv", "-o", out, "--threads", 1),
            *("--labels", w / "chromatin/held-out/labels.npz", "--tracks", w / "chromatin/data/tracks.tsv"),
            f"--predictions=nearest={w / 'chromatin/nearest.npy'}",
        ],
        "file",
    ),
    Command(
        "prepare filter-bins",
        lambda w, out: [
            *("prepare filter-bins", w / "chromatin/data", "--reference", w / "genome/reference.fa.gz"),
            *("--similarity", 0.9, "--window", 200, "-o", out),
        ],
        "directory",
    ),
    Command("pretrain", _trained("pretrain"), "directory"),
    Command(
        "train baseline-language",
        lambda w, out: ["train baseline-language", w.config, "--sequences", 4, "-o", out],
        "file",
    ),
    Command(
        "evaluate pretraining",
        lambda w, out: [
            *("evaluate pretraining", w / "models/pretrained", "--tokens", w / "tokens", "--sequences", 4),
            *("--sequence-tokens", 64, "-o", out),
        ],
        "file",
    ),
    Command(
        "generate",
        lambda w, out: [
            *(
                "generate",
                w / "models/pretrained",
                "--num-samples",
                2,
                "--length",
                60,
                "--iterations",
                2,
                "-o",
                out,
            ),
            *("--threads", 1, "--device", "cpu"),
        ],
        "file",
    ),
    Command(
        "evaluate samples",
        lambda w, out: [
            *("evaluate samples", w / "samples.fa", "--reference", w / "genome/reference.fa.gz"),
            *("--contig", "demo5", "--max-k", 3, "-o", out),
        ],
        "beside",
    ),
    Command(
        "evaluate across-tokenizers",
        lambda w, out: [
            *(
                "evaluate across-tokenizers",
                w / "models/pretrained",
                "--reference",
                w / "genome/reference.fa.gz",
            ),
            *("--contig", "demo5", "--spans", 4, "--span", 1, "--context", 40, "-o", out),
        ],
        "file",
    ),
    Command("finetune-promoter", _trained("finetune-promoter", "--negative-set", "genomic"), "directory"),
    Command(
        "model calibrate-promoter",
        lambda w, out: [
            *("model calibrate-promoter", w / "models/promoter-genomic", "-o", out),
            *("--predictions", w / "predicted.parquet"),
        ],
        "directory",
    ),
    Command(
        "evaluate promoter-threshold",
        lambda w, out: [
            *("evaluate promoter-threshold", w / "models/calibrated", "-o", out, "--prior", 0.1),
            *("--predictions", w / "predicted.parquet"),
        ],
        "file",
    ),
    Command(
        "train baseline-promoter",
        lambda w, out: ["train baseline-promoter", w.config, "--negative-set", "genomic", "-o", out],
        "file",
    ),
    Command(
        "prepare chromatin",
        lambda w, out: [*("prepare chromatin", w.config, "--tracks", w / "simulated/tracks.tsv", "-o", out)],
        "directory",
    ),
    Command("finetune-chromatin", _trained("finetune-chromatin"), "directory"),
    Command(
        "model calibrate-chromatin",
        lambda w, out: [
            "model calibrate-chromatin",
            w.config,
            *_chromatin_models(w),
            "-o",
            out,
            "--threads",
            1,
        ],
        "directory",
    ),
    Command(
        "evaluate test-bins --labels",
        lambda w, out: [
            *("evaluate test-bins", w.config, *_chromatin_models(w), "-o", out.parent / "predicted.npy"),
            *("--labels", out, "--threads", 1),
        ],
        "directory",
    ),
    Command(
        "train baseline-chromatin --labels",
        lambda w, out: [
            *("train baseline-chromatin", w.config, "-o", out.parent / "kmers.npy", "--labels", out),
            *("--threads", 1),
        ],
        "directory",
    ),
    *(
        Command(
            f"score-promoters {format}",
            lambda w, out, format=format: [  # type: ignore[misc]
                *("score-promoters", w / "models/promoter-genomic", w / "genome/reference.fa.gz", "-o", out),
                *("--format", format, "--stride", 400, "--threads", 1),
            ],
            "file",
        )
        for format in ("tsv", "bed", "bedgraph", "bigwig", "parquet")
    ),
    Command(
        "score-promoters --shard",
        lambda w, out: [
            *("score-promoters", w / "models/promoter-genomic", w / "genome/reference.fa.gz", "-o", out),
            *("--shard", "1/1", "--stride", 400, "--threads", 1),
        ],
        "file",
    ),
    Command("merge-shards", lambda w, out: ["merge-shards", w / "scores.piece", "-o", out], "file"),
    Command(
        "predict-tracks",
        lambda w, out: [
            *("predict-tracks", w / "models/chromatin", w / "simulated/regions.bed", "-o", out),
            *("--reference", w / "genome/reference.fa.gz", "--threads", 1),
        ],
        "file",
    ),
    *(
        Command(
            f"score-variants {format}",
            lambda w, out, format=format: [  # type: ignore[misc]
                *("score-variants", w / "models/chromatin", w / "simulated/variants.vcf.gz", "-o", out),
                *("--reference", w / "genome/reference.fa.gz", "--tracks", "*", "--format", format),
                *("--offsets", 1, "--threads", 1),
            ],
            "file",
        )
        for format in ("vcf", "tsv")
    ),
    Command(
        "auc-report",
        lambda w, out: [
            *("auc-report", w / "chromatin/predicted.npy", w / "chromatin/held-out/labels.npz", "-o", out)
        ],
        "directory",
    ),
    Command(
        "evaluate promoters",
        lambda w, out: [
            *(
                "evaluate promoters",
                f"--predictions=genomic={w / 'models/promoter-genomic/predictions.parquet'}",
            ),
            *(f"--baseline=genomic={w / 'kmers.parquet'}", "-o", out),
        ],
        "beside",
    ),
    Command(
        "evaluate variants", lambda w, out: ["evaluate variants", w / "variants.vcf.gz", "-o", out], "beside"
    ),
    Command(
        "report pretraining",
        lambda w, out: [
            *("report pretraining", w / "models/pretrained", "--bits-per-base", w / "bits.tsv", "-o", out)
        ],
        "beside",
    ),
    Command("experiment plan", lambda w, out: ["experiment plan", w.config, "ablation", "-o", out], "file"),
    Command("experiment run cost", _arm("ablation", "bigbird-steps", "cost"), "file"),
    Command("experiment run pretraining", _arm("ablation", "bigbird-steps"), "directory"),
    Command("experiment run predictions", _arm("ablation", "bigbird-steps", "predictions"), "file"),
    Command("experiment run promoter-comparator", _arm("table6", "8000-permuted-gc"), "directory"),
    Command("experiment run track-comparator", _arm("table7", "gc"), "directory"),
    Command("experiment run windows", _arm("table6", "8000-permuted-gc", "data"), "beside"),
    Command("experiment run data", _arm("long_range_arena", "listops-bigbird", "data"), "directory"),
    Command("experiment run pathfinder", _arm("long_range_arena", "pathfinder-bigbird", "data"), "directory"),
    Command("experiment run", _arm("long_range_arena", "listops-bigbird"), "directory"),
    Command("experiment run byte-lm", _arm("byte_lm", "bigbird"), "directory"),
    Command(
        "experiment compare",
        lambda w, out: [
            *("experiment compare", w.config, "long_range_arena", "-o", out),
            *(
                "--set",
                "long_range_arena.tasks=[listops]",
                "--set",
                "long_range_arena.attentions={bigbird: {}}",
            ),
        ],
        "beside",
    ),
    Command(
        "experiment compare layers",
        lambda w, out: ["experiment compare", w.config, "layer_probes", "-o", out, "--threads", 1],
        "beside",
    ),
    Command("nlp prepare", _text("prepare"), "beside"),
    Command(
        "nlp finetune",
        lambda w, out: [
            *("nlp", "finetune", w.text_config, "--task", "far", "-o", out, "--threads", 1),
            *("--checkpoint-dir", out.parent / "checkpoints", "--device", "cpu"),
        ],
        "directory",
    ),
    Command("nlp predict", _text("predict", "--threads", "1", "--device", "cpu"), "file"),
    Command("nlp evaluate", _text("evaluate", "--threads", "1"), "file"),
    Command(
        "nlp report", lambda w, out: ["nlp", "report", w / "text/far/evaluation.json", "-o", out], "file"
    ),
    Command(
        "report plot-loss",
        lambda w, out: ["report plot-loss", f"a={w / 'models/pretrained/training.jsonl'}", "-o", out],
        "file",
    ),
    Command("report plot-scores", lambda w, out: ["report plot-scores", w / "scores.tsv", "-o", out], "file"),
    Command("report plot-attention", lambda w, out: ["report plot-attention", w.config, "-o", out], "file"),
    Command(
        "experiment receptive-field",
        lambda w, out: ["experiment receptive-field", w.config, "-o", out, "--tokens", 64],
        "file",
    ),
    Command(
        "report summary",
        lambda w, out: ["report summary", "--pretraining", w / "models/pretrained/metrics.json", "-o", out],
        "file",
    ),
    Command(
        "report run",
        lambda w, out: [
            *("report run", w.config, w / "report/bits_per_base.svg", w / "report/bits_per_base.tsv"),
            *("-o", out),
        ],
        "file",
    ),
    Command("import-hf", lambda w, out: ["import-hf", w / "models/exported", out], "directory"),
    Command("export-hf", lambda w, out: ["export-hf", w / "models/pretrained", out], "directory"),
    Command(
        "model extend-context",
        lambda w, out: ["model extend-context", w / "models/pretrained", out, "--positions", 1024],
        "directory",
    ),
    Command(
        "model to-float16",
        lambda w, out: ["model to-float16", w / "models/pretrained", "-o", out],
        "directory",
    ),
    Command(
        "model package",
        lambda w, out: [
            *("model package", w / "models/pretrained", "-o", out, "--name", "toy"),
            *("--licence", "free", "--description", "A toy"),
        ],
        "file",
    ),
    Command(
        "fetch-model",
        lambda w, out: ["fetch-model", "toy", "-o", out, "--catalogue", w / "shelf/models.yaml"],
        "directory",
    ),
    Command(
        "model ensemble",
        lambda w, out: ["model ensemble", w / "models/chromatin", w / "models/chromatin", "-o", out],
        "directory",
    ),
]
COMMANDS = {command.name: command for command in _ALL}
COMMANDS |= {
    "score-promoters": COMMANDS["score-promoters tsv"],
    "score-variants": COMMANDS["score-variants vcf"],
}
