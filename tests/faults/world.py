"""A small run with every kind of input, and every command that writes, to be spoilt in many ways."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bigbird_dna.disk.atomic import remove_left
from bigbird_dna.registry.publishing import unpack
from bigbird_dna.simulate.writing import simulate
from tests.calibration.sources import write_predictions
from tests.cli.command import invoke
from tests.papers.experiments.public_files import c4
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
            "genome_passes": 1,
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
SETTINGS["long_range_arena"] = {
    "encoder": SETTINGS["encoder"],
    "listops": {
        "examples": {"train": 12, "valid": 4, "test": 4},
        **{"shortest": 4, "longest": 12, "training": {**TRAINING, "batch_size": 2}},
    },
    "pathfinder": {"examples": {"train": 2, "valid": 2, "test": 2}, "size": 20, "dashes": 3},
}
# The world has too few bases for validation windows of another set.
SETTINGS["example_scan"] = {"negative_set": "permuted"}
SETTINGS["tables"] = {
    **{"negative_sets": ["permuted"], "promoters": ["gc"], "chromatin": ["gc"], "seeds": [1]},
    **{"initializations": ["random"], "linear_probes": False},
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
    run(world, "prepare reference", "prepare promoters", "prepare tokenizer", "prepare tokens")
    run(world, "prepare promoter-windows", "pretrain", "finetune-promoter", "prepare chromatin")
    run(world, "finetune-chromatin")
    write_predictions(world / "predicted.parquet", n=40)  # its own are of two windows
    run(world, "model calibrate-promoter")
    run(world, "evaluate test-bins --labels", "score-promoters", "score-variants", "score-promoters --shard")
    run(world, "train baseline-promoter", "export-hf", "evaluate pretraining", "report pretraining")
    run(world, "generate")
    with gzip.open(world / "simulated/promoters.sga.gz", "wt") as stream:
        stream.write((world / "simulated/promoters.sga").read_text())
    records = (f">r{number}\n{random_dna(80, number)}\n" for number in range(40))
    (world / "simulated/promoters.fa").write_text("".join(records))
    run(world, "experiment run windows", "experiment run data", "experiment run")
    run(world, "experiment run pretraining", "prepare sequences")
    run(world, "evaluate nearest-promoters", "evaluate nearest-bins")
    (world / "simulated/regions.bed").write_text("demo6\t1000\t1200\tone\ndemo6\t5000\t5900\ttwo\n")
    (world / "shelf/models/toy").mkdir(parents=True)
    entry = publish(world / "models/pretrained", world / "shelf/toy.tar")
    unpack(world / "shelf/toy.tar", "toy", world / "shelf/models/toy")
    write_list(world / "shelf/models.yaml", {"toy": entry})
    run(world, "nlp prepare", "nlp finetune", "nlp predict", "nlp evaluate")
    remove_left()  # as at the end of each command: the next one to end in this process would do it
    return world


def run(world: World, *commands: str) -> None:
    """Make the outputs of commands where the others look for them."""
    for command in commands:
        invoke(*COMMANDS[command].words(world, world / COMMANDS[command].place))


class Command(NamedTuple):
    """A command that writes, and what its output is."""

    name: str
    command: str
    text: str  # of its words, as the table has them
    place: str  # of the output that others need, in the results
    kind: str  # "file"; "directory", which is replaced as a whole; or "beside", which files are put into

    def words(self, world: World, out: Path) -> list[object]:
        """The command with its words for an output."""
        known: dict[str, object] = {"CONFIG": world.config, "TEXT": world.text_config, "OUT": out}
        found: list[object] = [self.command]
        for word in self.text.split():
            before, mark, name = word.partition("@")
            if not mark:
                beside = word.removeprefix("BESIDE/")
                found.append(known.get(word, word) if beside == word else out.parent / beside)
            elif "*" in name:
                found += sorted(world.results.glob(name))
            else:
                found.append(f"{before}{world / name}" if before else world / name)
        return found


# Kind, and where others look for the output; name; command, where it isn't the name; words. @X is a file of
# the small run, with * several, OUT the output, and BESIDE/X a file beside it.
_TABLE = """
beside; simulate; ; OUT --megabases 0.1
file genome/reference.fa.gz; prepare reference; ; @simulated/genome.fa.gz -o OUT
file genome/promoters.tsv; prepare promoters; ; @simulated/promoters.sga --reference \
 @genome/reference.fa.gz -o OUT
file; prepare contig; ; @genome/reference.fa.gz demo6 -o OUT --megabases 0.01
file tokens/tokenizer.model; prepare tokenizer; ; CONFIG -o OUT
beside tokens; prepare tokens; ; CONFIG -o OUT --threads 1
file; prepare token-stats; ; CONFIG -o OUT --threads 1
beside promoters; prepare promoter-windows; ; CONFIG -o OUT
beside own; prepare sequences; ; @simulated/promoters.fa -o OUT
file; evaluate nearest-fasta; ; @own/test.fa.gz @own/training.fa.gz -o OUT
file nearest.tsv; evaluate nearest-promoters; ; CONFIG --negative-set permuted --windows @own --reference \
 @own/sequences.fa.gz -o OUT --predictions BESIDE/nearest.parquet
beside; evaluate promoters-by-similarity; ; --nearest=permuted=@nearest.tsv \
 --predictions=permuted/nearest=@nearest.parquet -o OUT
file chromatin/nearest.tsv; evaluate nearest-bins; ; CONFIG --window 200 -o OUT --predictions \
 BESIDE/nearest.npy
file; evaluate bins-by-similarity; ; @chromatin/nearest.tsv -o OUT --threads 1 --labels \
 @chromatin/held-out/labels.npz --tracks @chromatin/data/tracks.tsv \
 --predictions=nearest=@chromatin/nearest.npy
directory; prepare filter-bins; ; @chromatin/data --reference @genome/reference.fa.gz --similarity 0.9 \
 --window 200 -o OUT
directory models/pretrained; pretrain; ; CONFIG TRAINED
file; train baseline-language; ; CONFIG --sequences 4 -o OUT
file bits.tsv; evaluate pretraining; ; @models/pretrained --tokens @tokens --sequences 4 --sequence-tokens \
 64 -o OUT
file samples.fa; generate; ; @models/pretrained --num-samples 2 --length 60 --iterations 2 -o OUT \
 --threads 1 --device cpu
beside; evaluate samples; ; @samples.fa --reference @genome/reference.fa.gz --contig demo5 --max-k 3 -o \
 OUT
file; evaluate across-tokenizers; ; @models/pretrained --reference @genome/reference.fa.gz --contig demo5 \
 --spans 4 --span 1 --context 40 -o OUT
directory models/promoter-genomic; finetune-promoter; ; CONFIG --negative-set genomic TRAINED
directory models/calibrated; model calibrate-promoter; ; @models/promoter-genomic -o OUT --predictions \
 @predicted.parquet
file; evaluate promoter-threshold; ; @models/calibrated -o OUT --prior 0.1 --predictions \
 @predicted.parquet
file kmers.parquet; train baseline-promoter; ; CONFIG --negative-set genomic -o OUT
directory chromatin/data; prepare chromatin; ; CONFIG --tracks @simulated/tracks.tsv -o OUT
directory models/chromatin; finetune-chromatin; ; CONFIG TRAINED
directory; model calibrate-chromatin; ; CONFIG @models/chromatin -o OUT --threads 1
directory chromatin/held-out; evaluate test-bins --labels; evaluate test-bins; CONFIG @models/chromatin -o \
 BESIDE/predicted.npy --labels OUT --threads 1
directory; train baseline-chromatin --labels; train baseline-chromatin; CONFIG -o BESIDE/kmers.npy \
 --labels OUT --threads 1
file; experiment plan; ; CONFIG ablation -o OUT
file; experiment run cost; experiment run; CONFIG ablation bigbird-steps --part cost ARM
directory experiments/ablation/bigbird-steps/1/model; experiment run pretraining; experiment run; CONFIG \
 ablation bigbird-steps --part model ARM CHECKPOINTS
file; experiment run predictions; experiment run; CONFIG ablation bigbird-steps --part predictions ARM
directory; experiment run promoter-comparator; experiment run; CONFIG table6 8000-permuted-gc --part model \
 ARM CHECKPOINTS
directory; experiment run track-comparator; experiment run; CONFIG table7 gc --part model ARM CHECKPOINTS
beside experiments/table6/data/8000; experiment run windows; experiment run; CONFIG table6 \
 8000-permuted-gc --part data ARM
directory experiments/long_range_arena/data/listops; experiment run data; experiment run; CONFIG \
 long_range_arena listops-bigbird --part data ARM
directory; experiment run pathfinder; experiment run; CONFIG long_range_arena pathfinder-bigbird --part \
 data ARM
directory experiments/long_range_arena/listops-bigbird/1/model; experiment run; ; CONFIG long_range_arena \
 listops-bigbird --part model ARM CHECKPOINTS
directory; experiment run byte-lm; experiment run; CONFIG byte_lm bigbird --part model ARM CHECKPOINTS
beside; experiment compare; ; CONFIG long_range_arena -o OUT --set long_range_arena.tasks=[listops] --set \
 long_range_arena.attentions={"bigbird":{}}
beside; experiment compare layers; experiment compare; CONFIG layer_probes -o OUT --threads 1
file scores.tsv; score-promoters FORMAT; score-promoters; @models/promoter-genomic @genome/reference.fa.gz \
 -o OUT --format FORMAT --stride 400 --threads 1
file scores.piece; score-promoters --shard; score-promoters; @models/promoter-genomic \
 @genome/reference.fa.gz -o OUT --shard 1/1 --stride 400 --threads 1
file; merge-shards; ; @scores.piece -o OUT
file; predict-tracks; ; @models/chromatin @simulated/regions.bed -o OUT --reference \
 @genome/reference.fa.gz --threads 1
file variants.vcf.gz; score-variants FORMAT; score-variants; @models/chromatin @simulated/variants.vcf.gz \
 -o OUT --reference @genome/reference.fa.gz --tracks * --format FORMAT --offsets 1 --threads 1
directory; auc-report; ; @chromatin/predicted.npy @chromatin/held-out/labels.npz -o OUT
beside; evaluate promoters; ; --predictions=genomic=@models/promoter-genomic/predictions.parquet \
 --baseline=genomic=@kmers.parquet -o OUT
beside; evaluate variants; ; @variants.vcf.gz -o OUT
beside report; report pretraining; ; @models/pretrained --bits-per-base @bits.tsv -o OUT
beside text/far/data; nlp prepare; ; TEXT --task far -o OUT
directory text/far/model; nlp finetune; ; TEXT --task far -o OUT --threads 1 --checkpoint-dir \
 BESIDE/checkpoints --device cpu
file text/far/predictions.jsonl; nlp predict; ; TEXT --task far -o OUT --threads 1 --device cpu
file text/far/evaluation.json; nlp evaluate; ; TEXT --task far -o OUT --threads 1
file; nlp report; ; @text/far/evaluation.json -o OUT
file; report plot-loss; ; a=@models/pretrained/training.jsonl -o OUT
file; report plot-scores; ; @scores.tsv -o OUT
file; report plot-attention; ; CONFIG -o OUT
file; experiment receptive-field; ; CONFIG -o OUT --tokens 64
file; report summary; ; --pretraining @models/pretrained/metrics.json -o OUT
file; report run; ; CONFIG @report/bits_per_base.svg @report/bits_per_base.tsv -o OUT
directory; import-hf; ; @models/exported OUT
directory models/exported; export-hf; ; @models/pretrained OUT
directory; model extend-context; ; @models/pretrained OUT --positions 1024
directory; model to-float16; ; @models/pretrained -o OUT
file; model package; ; @models/pretrained -o OUT --name toy --licence free --description Toy
directory; fetch-model; ; toy -o OUT --catalogue @shelf/models.yaml
directory; model ensemble; ; @models/chromatin @models/chromatin -o OUT
"""
FORMATS = {
    "score-promoters": ("tsv", "bed", "bedgraph", "bigwig", "parquet"),
    "score-variants": ("vcf", "tsv"),
}
CHECKPOINTS = "--checkpoint-dir BESIDE/checkpoints"
COMPUTED = "-o OUT --threads 1 --device cpu"
SHORT = {
    "TRAINED": f"{COMPUTED} {CHECKPOINTS}",
    # The data set was given to the run's own commands as an option.
    "ARM": f"{COMPUTED} --set chromatin.data.tracks=simulated",
    "CHECKPOINTS": CHECKPOINTS,
}


def _commands() -> Iterator[Command]:
    for line in _TABLE.strip().splitlines():
        output, name, command, words = (cell.strip() for cell in line.split(";"))
        kind, _, place = output.partition(" ")
        for format in FORMATS.get(command, ("",)) if "FORMAT" in name else ("",):
            text = " ".join(SHORT.get(word, word) for word in words.split()).replace("FORMAT", format)
            yield Command(name.replace("FORMAT", format), command or name, text, place, kind)


COMMANDS = {command.name: command for command in _commands()}
COMMANDS |= {name: COMMANDS[f"{name} {formats[0]}"] for name, formats in FORMATS.items()}
