"""The shipped configurations, what the workflow would run for them, and what it says to wrong ones."""

import itertools
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest
import yaml

from bigbird_dna.config import STAGES, Config, complete, load_config, parse_config, read_values, stage_values
from bigbird_dna.config.section import Section
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.sources.public import check_sources
from bigbird_dna.reporting.run.contents import PARTS
from tests.conftest import REPOSITORY
from tests.genome.deepsea import small_bundle

BIN = Path(sys.executable).parent
# What they are laid over.
OVERLAYS = dict.fromkeys(("yeast_study", "yeast_longer", "yeast_tables"), "yeast")
OVERLAYS |= dict.fromkeys(("long_range", "density_images", "density_text"), "demo")
OVERLAYS["chr22_study"] = "chr22"
CONFIGURATIONS = sorted(
    path
    for path in (REPOSITORY / "workflow" / "config").glob("*.yaml")
    # Tasks on text have a configuration of another form.
    if path.stem not in {*OVERLAYS, "nlp"}
)
NAMES = [path.stem for path in CONFIGURATIONS]

# Jobs of every run: those of the simulation or the downloads come on top.
COMMON = {
    "all": 1,
    "attention_figure": 1,
    "evaluate_pretraining": 1,
    "pretraining_baseline": 1,
    "extract_contig": 1,
    "finetune_promoter": 4,
    "finetuning_figure": 1,
    "prepare_promoters": 1,
    "prepare_reference": 1,
    "pretrain": 1,
    "pretraining_report": 1,
    "promoter_baseline": 3,
    "promoter_report": 1,
    "promoter_windows": 1,
    "run_report": 1,
    "score_figure": 1,
    "score_promoters": 2,
    "stage_config": 7,
    "summary": 1,
    "tokenize": 1,
    "tokenizer_statistics": 1,
    "train_tokenizer": 1,
}
# With `chromatin.data.tracks`: two windows, the baseline, a report, variants where there are any.
CHROMATIN = {
    "auc_report": 1,
    "calibrate_chromatin": 1,
    "chromatin_baseline": 1,
    "chromatin_data": 1,
    "chromatin_predictions": 2,
    "finetune_chromatin": 2,
}
SOURCE_JOBS = {
    "demo": {"simulate": 1},
    "yeast": {"fetch": 2},
    # With DeepSEA's data, two models of one window, and no variants.
    "chr22": {},
    "grch37": {"fetch": 6, "unpack_deepsea": 1, "stage_config": 11}
    | CHROMATIN
    | {"chromatin_predictions": 1, "combine_chromatin": 1},
}
SOURCE_JOBS["grch37-short"] = SOURCE_JOBS["grch37"]


# Without promoters: no pretraining either, where the chromatin models start from random weights.
CHROMATIN_ALONE = {
    "all": 1,
    "attention_figure": 1,
    "prepare_reference": 1,
    "run_report": 1,
    "stage_config": 7,
    "summary": 1,
    "tokenizer_statistics": 1,
    "train_tokenizer": 1,
    **CHROMATIN,
    "chromatin_predictions": 1,
    "finetune_chromatin": 1,
}


def snakemake(directory: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Snakemake on the repository's Snakefile in an empty directory."""
    command: list[str | Path] = [BIN / "snakemake", "--snakefile", REPOSITORY / "Snakefile", "--cores", "32"]
    return subprocess.run([*command, "--directory", directory, *arguments], capture_output=True, text=True)


def dry_run(directory: Path, *arguments: str | Path) -> str:
    """What a run would do; fails the test where Snakemake doesn't like it."""
    outcome = snakemake(directory, "--dry-run", *arguments)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout + outcome.stderr


def jobs(text: str) -> dict[str, int]:
    """Job counts of a dry run."""
    return dict(Counter(re.findall(r"^(?:local)?rule (\w+):$", text, re.MULTILINE)))


def stage_configs(text: str) -> dict[str, dict[str, Any]]:
    """The configuration of each stage, from the commands of a dry run."""
    written = re.findall(r"printf '%s\\n' '(\{.*?\n\})' > \S*/config/([\w-]+)\.yaml", text, re.DOTALL)
    return {stage: json.loads(values) for values, stage in written}


def overlay(directory: Path, values: dict[str, Any]) -> list[str | Path]:
    """Arguments for the demo's configuration with a few changed keys."""
    path = directory / "changed.yaml"
    path.write_text(yaml.safe_dump(values))
    return ["--configfile", REPOSITORY / "workflow/config/demo.yaml", path]


def own_genome(directory: Path, **changes: Any) -> list[str | Path]:
    """Arguments for the configuration of chr22 with stand-ins for its files, and a few changed keys."""
    local = directory / "local data"
    (local / "peaks").mkdir(parents=True)
    for name in ("chr22_1-22000000.fa.gz", "chr22_17442913-17680545.1000G_sites.vcf.gz", "my.sga"):
        (local / name).write_bytes(b"")
    path = directory / "changed.yaml"
    path.write_text(yaml.safe_dump({"local_data": str(local), **changes}))
    return ["--configfile", REPOSITORY / "workflow/config/chr22.yaml", path]


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The dry run that `snakemake` without a configuration gives."""
    return dry_run(tmp_path_factory.mktemp("demo"))


STUDY: dict[str, Any] = {
    "tasks": ["promoters", "chromatin"],
    "shares": [0.05, 1],
    "seeds": [1, 7],
    "starts": ["pretrained", "random", "longer"],
    "longer_steps": 900,
    "steps": 100,
    "evaluate_every": 20,
}


@pytest.fixture(scope="module")
def study_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The dry run of the demo with a study of both tasks."""
    directory = tmp_path_factory.mktemp("study")
    return dry_run(directory, *overlay(directory, {"study": STUDY}))


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=NAMES)
def test_shipped_configurations_are_valid(path: Path, tmp_path: Path) -> None:
    config = load_config(path)
    if path.stem in ("chr22", "minimal"):  # their genome is no public source but a file
        for name in (config.genome.reference, config.promoters.source):
            (tmp_path / (name or "none")).touch()
        config = config.model_copy(update={"local_data": str(tmp_path)})
    complete(config).check_targets()
    check_sources(config)
    assert config.results == f"results/{path.stem}"
    if config.has_genome:
        assert config.genome.valid or config.chromatin.data.valid_regions
        assert config.genome.test or config.chromatin.data.test_regions


def laid_over(name: str) -> tuple[Config, Config]:
    """A configuration, and what it is once an overlay's keys have replaced its own."""

    def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
        both = {key for key, value in over.items() if isinstance(value, dict) and key in under}
        return under | over | {key: merged(under[key], over[key]) for key in both}

    under, over = (
        read_values(REPOSITORY / f"workflow/config/{each}.yaml") for each in (OVERLAYS[name], name)
    )
    return parse_config(under), parse_config(merged(under, over))


@pytest.mark.parametrize("overlay", ["yeast_study", "yeast_longer"])
def test_studies_of_yeast_are_laid_over_its_configuration(overlay: str) -> None:
    """They go on from the other's results: what these depend on stays the same."""
    one, both = laid_over(overlay)
    assert both.study is not None and one.study is not None
    for section in ("tokens", "pretraining", "promoters"):
        assert stage_values(both, section) == stage_values(one, section)
    assert both.study.steps == one.study.steps and {*both.study.seeds} <= {*one.study.seeds}
    assert {*one.study.shares} <= {*both.study.shares}
    both.check_targets()


def test_tables_of_yeast_are_laid_over_its_configuration() -> None:
    """They go on from its pretrained weights; all that is made for them lies apart."""
    one, both = laid_over("yeast_tables")
    for section in ("tokens", "pretraining", "promoters"):
        assert stage_values(both, section) == stage_values(one, section)
    _, study = laid_over("yeast_study")
    tracks, studied = both.chromatin.data, study.chromatin.data
    assert (tracks.minimum_positives, tracks.minimum_held_out) == (50, 3)
    rarer = {"minimum_positives": 100, "minimum_held_out": 10}
    assert tracks.model_copy(update=rarer) == studied
    both.check_targets()


def test_the_study_of_chr22_has_its_data_and_results_of_its_own(tmp_path: Path) -> None:
    one, both = laid_over("chr22_study")
    assert both.study is not None and one.study is None and not one.has_pretraining
    assert (one.results, both.results) == ("results/chr22", "results/chr22_study")
    assert stage_values(both, "chromatin-data") == stage_values(one, "chromatin-data")
    assert one.chromatin.training == both.chromatin.training and one.encoder == both.encoder
    command, below, changed = own_genome(tmp_path)
    text = dry_run(tmp_path, command, below, REPOSITORY / "workflow/config/chr22_study.yaml", changed)
    found = jobs(text)
    assert (found["pretrain"], found["study_chromatin"], found["study_predictions"]) == (1, 6, 6)
    held_out = {"valid": ["22:19,000,001-20,000,000"], "test": ["22:20,500,001-"], "exclude": []}
    genome = stage_configs(text)["tokens"]["genome"]
    assert {key: genome[key] for key in held_out} == held_out


# Sequences without a genome: nothing is simulated, fetched, tokenised or pretrained.
SEQUENCES = {
    "all": 1,
    "attention_figure": 1,
    "finetune_promoter": 2,
    "finetuning_figure": 1,
    "promoter_baseline": 1,
    "promoter_report": 1,
    "promoter_sequences": 1,
    "run_report": 1,
    "score_promoters": 1,
    "stage_config": 5,
    "summary": 1,
    "train_tokenizer": 1,
}


def own_sequences(directory: Path, **changes: Any) -> list[str | Path]:
    """Arguments for the configuration of sequences with stand-ins for its files, and a few changed keys."""
    local = directory / "local data"
    local.mkdir()
    for name in ("promoters.fa", "others.fa", "splits.tsv", "genome.fa"):
        (local / name).touch()
    path = directory / "changed.yaml"
    path.write_text(yaml.safe_dump({"local_data": str(local), **changes}))
    return ["--configfile", REPOSITORY / "workflow/config/sequences.yaml", path]


def test_promoters_as_sequences_without_a_genome(tmp_path: Path) -> None:
    text = dry_run(tmp_path, *own_sequences(tmp_path))
    assert jobs(text) == SEQUENCES
    data = "results/sequences/promoters"
    assert (
        f"prepare-sequences '{tmp_path}/local data/promoters.fa'  --derived=4 --similarity=0.2 --seed=1"
        f" --negative-set=substituted --output {data}"
    ) in text
    assert f"--reference {data}/training.fa.gz -o results/sequences/tokens/tokenizer.model" in text
    assert text.count(f"--windows {data} --reference {data}/sequences.fa.gz") == 3
    assert f"models/promoter-substituted {data}/test.fa.gz -o" in text and "--strand=+" in text
    (summary,) = re.findall("bigbird-dna summarize .*", text)
    assert "--statistics" not in summary and "--pretraining" not in summary
    for missing in ("simulated", "bedgraph", "draw-scores", "--pretrained"):
        assert missing not in text


def test_sequences_with_negatives_splits_and_a_genome_to_pretrain_on(tmp_path: Path) -> None:
    sequences = {"negatives": "others.fa", "splits": "splits.tsv", "length": 80, "similarity": 0.5}
    text = dry_run(
        tmp_path,
        *own_sequences(
            tmp_path,
            genome={"reference": "genome.fa", "valid": ["a"]},
            promoters={
                "sequences": sequences,
                "windows": {"upstream": 60, "negative_sets": ["given"]},
                "model": {"initial": "pretrained"},
            },
        ),
    )
    pretraining = {"prepare_reference": 1, "tokenize": 1, "tokenizer_statistics": 1, "pretrain": 1}
    pretraining |= {"pretraining_baseline": 1, "evaluate_pretraining": 1}
    pretraining |= {"pretraining_report": 1, "stage_config": 6}
    assert jobs(text) == SEQUENCES | pretraining
    local = f"'{tmp_path}/local data"
    assert (
        f"prepare-sequences {local}/promoters.fa' '--negatives={tmp_path}/local data/others.fa'"
        f" '--splits={tmp_path}/local data/splits.tsv' --length=80 --upstream=60 --derived=4"
        " --similarity=0.5 --seed=1 --negative-set=given --output"
    ) in text
    assert "--reference results/sequences/genome/reference.fa.gz -o results/sequences/tokens/tok" in text
    assert text.count("--pretrained results/sequences/models/pretrained") == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"sequences": {"positives": "gone.fa"}},
            "promoters.sequences.positives: 'gone.fa' is not a file in .* or here",
        ),
        ({"model": {"initial": "pretrained"}}, "initial: 'pretrained' needs a genome.reference"),
    ],
    ids=["no-file", "no-genome"],
)
def test_wrong_sequences(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    arguments = own_sequences(tmp_path, promoters=changed)
    refused(snakemake(tmp_path, "--dry-run", *arguments), message)


def test_demo_explains_every_key() -> None:
    path = REPOSITORY / "workflow/config/demo.yaml"

    def keys(values: dict[str, Any] | Section, prefix: str = "") -> set[str]:
        found = set()
        for key, value in values if isinstance(values, Section) else values.items():
            inner = isinstance(value, dict | Section)
            found |= keys(value, f"{prefix}{key}.") if inner else {prefix + key}
        return found

    assert keys(yaml.safe_load(path.read_text())) == keys(Config())


def test_the_paper_s_values() -> None:
    config = load_config(REPOSITORY / "workflow/config/grch37.yaml")
    encoder, pretraining, promoters = config.encoder, config.pretraining, config.promoters
    assert (encoder.layers, encoder.hidden, encoder.heads) == (12, 768, 12)
    assert (encoder.positions, encoder.block_size) == (4096, 64)
    assert (encoder.global_blocks, encoder.window_blocks, encoder.random_blocks) == (2, 3, 3)
    assert (pretraining.steps, pretraining.batch_size) == (1_000_000, 256)
    assert (pretraining.optimizer.warmup_steps, pretraining.optimizer.learning_rate) == (10_000, 1e-4)
    windows, training = promoters.windows, promoters.training
    assert (windows.upstream, windows.downstream, promoters.model.pooling) == (5000, 3000, "cls")
    assert (training.steps, training.batch_size) == (711, 256)
    assert config.tokens.vocabulary == 32_000
    chromatin = config.chromatin
    data, model, training = chromatin.data, chromatin.model, chromatin.training
    assert (data.tracks, data.window, data.compare_window) == ("deepsea", 8000, None)
    assert (model.pooling, model.initial, training.neighbours) == ("cls", "pretrained", 1)
    assert (chromatin.models, training.positive_weight, chromatin.evaluation.test_bins) == (2, 8, 0)
    assert (training.steps, training.batch_size) == (500_000, 256)


def test_the_demo_is_the_default(demo_run: str) -> None:
    variants = {"score_variants": 1, "variant_report": 1}
    assert jobs(demo_run) == (COMMON | SOURCE_JOBS["demo"] | CHROMATIN | variants | {"stage_config": 11})
    assert "results/demo/report/summary.txt" in demo_run


@pytest.mark.parametrize("name", ["yeast", "grch37", "grch37-short"])
def test_dry_runs(tmp_path: Path, name: str) -> None:
    text = dry_run(
        tmp_path,
        *("--configfile", REPOSITORY / f"workflow/config/{name}.yaml"),
        *("--config", f"local_data={tmp_path}"),
    )
    study = {"study_promoter": 10, "study_report": 1, "probe_promoters": 1}
    similarity = {"nearest_promoters": 3, "promoter_similarity_report": 1}
    more = study | similarity if name == "yeast" else {}
    assert jobs(text) == COMMON | SOURCE_JOBS[name] | more
    assert (
        len(re.findall(rf"bigbird-dna fetch .* --local-data={tmp_path} ", text)) == SOURCE_JOBS[name]["fetch"]
    )
    assert ("--from-assembly GRCh38" in text) == name.startswith("grch37")
    assert list(tmp_path.glob("results")) == []


def test_keys_on_the_command_line_leave_the_demo_s_others(tmp_path: Path) -> None:
    text = dry_run(tmp_path, "--config", "results=elsewhere")
    assert "results/demo" not in text
    assert "elsewhere/report/summary.txt" in text
    assert stage_configs(text)["tokens"]["genome"]["test"] == ["demo6"]


def test_each_stage_gets_its_sections(demo_run: str) -> None:
    config = load_config(REPOSITORY / "workflow/config/demo.yaml")
    there = [stage for stage in STAGES if stage not in ("long-range", "density")]  # targets of their own
    assert stage_configs(demo_run) == {stage: stage_values(config, stage) for stage in there}


def test_a_study_trains_a_model_for_each_start_share_and_seed(demo_run: str, study_run: str) -> None:
    more = {"study_promoter": 12, "study_chromatin": 12, "study_predictions": 12}
    assert jobs(study_run) == jobs(demo_run) | more | {"study_report": 1, "probe_promoters": 1}
    commands = re.findall(r"^Shell command: bigbird-dna (finetune-\w+ .*) > ", study_run, re.MULTILINE)
    study = {command for command in commands if "/study/" in command}
    assert len(study) == 24
    for task, name in (("promoters", "promoter"), ("chromatin", "chromatin")):
        for start, share, seed in itertools.product(STUDY["starts"], ("0.05", "1"), (1, 7)):
            place = f"results/demo/study/{task}/{start}-{share}-{seed}/model"
            (own,) = (command for command in study if f" --output {place} " in command)
            initial = "pretrained" if start == "pretrained" else "random"
            said = {
                "model.initial": initial,
                "training.examples": share,
                "training.seed": seed,
                "training.steps": 900 if start == "longer" else 100,
                "training.evaluate_every": 20,
                **({"calibration.negatives": 0} if task == "promoters" else {}),
            }
            words = own.split()
            assert words[:2] == [f"finetune-{name}", f"results/demo/config/{task}.yaml"]
            sets = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
            assert sets == [f"{task}.{key}={value}" for key, value in said.items()]
            assert ("--pretrained" in words) == (start == "pretrained")
            assert "--checkpoints results/demo/checkpoints/study " in own
    (report,) = re.findall(r"bigbird-dna report-study (.*) > ", study_run)
    assert report.count("/model ") == 24
    assert (
        "--labels results/demo/chromatin/held-out/labels.npz --pretrained results/demo/models/pretrained"
        " --benchmarks results/demo/benchmarks -o results/demo/report"
    ) in report
    assert all(section in stage_configs(study_run)["report"]["study"] for section in STUDY)


def test_tables_have_a_model_for_each_start_and_seed_and_comparators(demo_run: str, tmp_path: Path) -> None:
    tables = {
        **{"promoters": ["gc", "cnnprom"], "chromatin": ["motifs", "danq"], "seeds": [1, 7]},
        **{"negative_sets": ["upstream", "permuted"], "windows": [1000], "taxon": "fungi"},
        **{"model_steps": {"promoters": 20}, "network_steps": {"promoters": 30}, "context_set": "genomic"},
        "pretraining_steps": 40,
        "models": [
            {"name": "bert-512", "attention": "full", "tokens": 512, "window": 2000},
            {"name": "bigbird-256", "tokens": 256},
        ],
    }
    text = dry_run(tmp_path, *overlay(tmp_path, {"tables": tables}), "--", "table5", "table6", "table7")
    found = jobs(text)
    assert not {"table_windows", "table5"} & set(jobs(demo_run))
    # Two sets in the run's own windows; one in windows of 1,000 bp, and in 2,000 that only bert-512 sees.
    made = r"table|comparator|\w+_probe$"
    assert {name: count for name, count in found.items() if re.match(made, name)} == {
        **{"table5": 1, "table6": 1, "table7": 1, "table_windows": 3, "table_pretrain": 2, "table_bits": 2},
        **{"table_promoter": 16, "promoter_probe": 12, "table_chromatin": 8},
        **{"table_predictions": 8, "chromatin_probe": 6},
    }
    assert (found["promoter_comparator"], found["chromatin_comparator"]) == (12, 3)
    commands = re.findall(r"^Shell command: (?:bigbird-dna|.* --) (.*) > ", text, re.MULTILINE)

    def one(*words: str) -> str:
        (command,) = (command for command in commands if all(word in command for word in words))
        return command

    home = "results/demo/tables"
    model = one(f"--output {home}/promoters/400/upstream/own-random-7/model ")
    for words in ("--negative-set upstream", "promoters.training.seed=7", "promoters.training.steps=20"):
        assert words in model
    assert "--pretrained" not in model and "encoder." not in model
    model = one(f"--output {home}/promoters/2000/genomic/bert-512-pretrained-1/model ")
    for words in (f"--pretrained {home}/pretraining/bert-512/model ", "encoder.attention=full"):
        assert words in model
    assert "windows.upstream=1500" in model and f"--windows {home}/promoters/2000/windows " in model
    assert "--window=2000" in one(f"--output {home}/chromatin/bins/bert-512-random-7/model ")
    assert "window" not in one(f"--output {home}/chromatin/bins/own-random-7/model ").replace("--windows", "")
    pretraining = one("pretrain ", f"--output {home}/pretraining/bigbird-256/model ")
    # As many tokens a step as the run's own 32 inputs of 128.
    for words in ("batch_size=16", "sequence_tokens=256", "pretraining.steps=40", "attention=bigbird"):
        assert words in pretraining
    assert f"bits={home}" not in one("table5") and "--bits=bigbird-256=" in one("table5")
    windows = one("prepare-windows", "/1000/")
    assert "downstream=250" in windows and "negative_sets=[genomic]" in windows
    network = one(f"-o {home}/promoters/400/permuted/cnnprom-7 ")
    assert "--steps=30" in network and "--seed 7" in network
    assert "--steps" not in one(f"-o {home}/promoters/400/permuted/gc-1 ")
    probe = one(f"-o {home}/promoters/1000/genomic/own-random-probe-7 ")
    assert "--model=results/demo/models/pretrained --weights=random" in probe and "--window=" not in probe
    probe = one(f"-o {home}/chromatin/bins/bert-512-pretrained-probe-1 ")
    assert f"--model={home}/pretraining/bert-512/model" in probe and "--window=2000" in probe
    scan = one("fit-chromatin-comparator", " motifs ")
    assert "--taxon=fungi" in scan and "chromatin.evaluation.test_bins=800" in scan
    report = one("report-table table7")
    assert report.count("/model ") == 8 and "--track-table results/demo/chromatin/data/tracks.tsv" in report


def test_an_ablation_trains_every_mechanism_for_the_same_steps_and_time(
    demo_run: str, tmp_path: Path
) -> None:
    deep = {"name": "deep", "attention": "combiner_fixed", "attention_options": {"pooling": "deepsets_max"}}
    ablation = {
        **{"mechanisms": ["full", "bigbird", deep], "seeds": [1, 7], "tokens": 256, "batch_tokens": 1024},
        **{"steps": 40, "lengths": [1024, 4096], "length_steps": 3, "distance": ["ACTIVE"]},
        **{"distance_layers": 4, "initial_heads": "neighbours"},
    }
    text = dry_run(tmp_path, *overlay(tmp_path, {"ablation": ablation}), "--", "ablation")
    found = jobs(text)
    assert not [name for name in jobs(demo_run) if "ablation" in name]
    # Of the same time the reference has its models of the same steps.
    trainings = 3 * 2 * (1 + 2) + 2 * 2
    assert {name: count for name, count in found.items() if "ablation" in name} == {
        **{"ablation_cost": 3, "ablation_plan": 2, "ablation_training": trainings, "ablation_bits": 4},
        **{"ablation_distance": 6, "ablation_predictions": 6, "ablation": 1},
    }
    assert "pretrain" not in found and "finetune_chromatin" not in found
    commands = re.findall(r"^Shell command: bigbird-dna (.*) > ", text, re.MULTILINE)
    place = "results/demo/ablation"
    (long,) = (one for one in commands if f"--output {place}/deep/4096-7/model " in one)
    for words in (
        """--set 'encoder.attention="combiner_fixed"'""",
        """--set 'encoder.attention_options={"pooling": "deepsets_max"}'""",
        """--set 'encoder.initial_heads="neighbours"'""",
        "--set encoder.positions=4096 --set pretraining.steps=13 --set pretraining.sequence_tokens=4096",
        """'pretraining.shorter_first=[{"steps": 10, "tokens": 256}]' --set pretraining.seed=7 """,
    ):
        assert words in long
    (timed,) = (one for one in commands if f"--output {place}/full/time-1/model " in one)
    assert timed.startswith(f"pretrain {place}/full/time.yaml --set pretraining.seed=1 --tokens")
    (plan,) = (one for one in commands if f"-o {place}/full/time.yaml" in one)
    assert f"{place}/full/cost.json --set" in plan and f"--reference {place}/bigbird/cost.json" in plan
    (judged,) = (one for one in commands if f"-o {place}/time.npz " in one)
    assert f"full-7={place}/full/time-7/model bigbird-1={place}/bigbird/steps-1/model" in judged
    (far,) = (one for one in commands if f"--output {place}/deep/distance-7/model " in one)
    assert "--set encoder.layers=4 " in far and "chromatin.model.bin_layers=0" in far
    assert """--set 'chromatin.model.initial="random"'""" in far and "--pretrained" not in far
    (report,) = (one for one in commands if one.startswith("report-ablation"))
    assert f"--steps={place}/steps.npz --time={place}/time.npz --length={place}/1024.npz" in report
    assert "--track=ACTIVE" in report and report.count("--predictions=") == 6


def test_an_ablation_of_so_many_seconds_without_tracks(tmp_path: Path) -> None:
    ablation = {"mechanisms": ["bigbird", "window"], "seconds": 9, "lengths": [], "distance": []}
    text = dry_run(tmp_path, *overlay(tmp_path, {"ablation": ablation}), "--", "ablation")
    found = jobs(text)
    assert (found["ablation_training"], found["ablation_plan"], found["ablation_bits"]) == (4, 2, 2)
    assert "ablation_distance" not in found and "chromatin_baseline" not in found
    assert text.count("--seconds=9.0 ") == 2


def test_a_run_without_promoters_has_no_table_of_them(tmp_path: Path) -> None:
    words = own_genome(tmp_path)
    outcome = snakemake(tmp_path, "--dry-run", *words, "--", "table6")
    assert outcome.returncode == 1 and "No rule to produce table6" in outcome.stdout
    found = jobs(dry_run(tmp_path, *words, "--", "table5", "table7"))
    assert (found["table5"], found["table7"], found["pretrain"]) == (1, 1, 1)


def test_a_study_of_chromatin_alone_is_what_asks_for_pretraining(tmp_path: Path) -> None:
    study = {"tasks": ["chromatin"], "shares": [0.5], "seeds": [1]}
    text = dry_run(tmp_path, *own_genome(tmp_path, study=study))
    found = jobs(text)
    assert (found["pretrain"], found["study_chromatin"], found["study_predictions"]) == (1, 2, 2)
    assert "study_promoter" not in found and "probe_promoters" not in found
    assert len(re.findall("finetune-chromatin .*--pretrained ", text)) == 1


def test_chromatin_of_the_simulation(demo_run: str) -> None:
    # Variants on sequence that no training saw.
    assert "results/demo/simulated/variants.vcf.gz --contig=demo6 --reference" in demo_run
    assert "report-variants results/demo/chromatin/variants.vcf.gz -o results/demo/report" in demo_run
    report = "results/demo/report"
    assert (
        f"--groups={report}/chromatin/groups.tsv --tracks={report}/chromatin/tracks.tsv"
        f" --variants={report}/variants.tsv"
    ) in demo_run


def test_chromatin_of_a_folder_of_peaks_by_an_ensemble(tmp_path: Path) -> None:
    (tmp_path / "peaks").mkdir()
    (tmp_path / "black.bed").write_text("demo1\t0\t1000\n")
    data = {"tracks": "peaks", "compare_window": None, "blacklist": "black.bed"}
    changes = {"local_data": str(tmp_path), "chromatin": {"models": 2, "data": data}}
    text = dry_run(tmp_path, *overlay(tmp_path, changes))
    assert f"--tracks {tmp_path}/peaks " in text and f"--blacklist {tmp_path}/black.bed " in text
    expected = {**CHROMATIN, "chromatin_predictions": 1, "finetune_chromatin": 2, "combine_chromatin": 1}
    assert jobs(text) == COMMON | SOURCE_JOBS["demo"] | expected | {"stage_config": 11}
    assert "--compare window" not in text


def test_chromatin_of_a_genome_of_the_user_s_own(tmp_path: Path) -> None:
    text = dry_run(tmp_path, *own_genome(tmp_path))
    assert jobs(text) == CHROMATIN_ALONE | {"score_variants": 1}
    local = f"'{tmp_path}/local data"
    assert f"prepare-reference {local}/chr22_1-22000000.fa.gz' -o " in text
    assert f"--tracks {local}/peaks'" in text
    assert f"{local}/chr22_17442913-17680545.1000G_sites.vcf.gz'  --reference" in text
    # Not the promoters of a run in the default directory.
    assert """--set 'results="results/chr22"' -o results/chr22/tokens/statistics.json""" in text
    (summary,) = re.findall("bigbird-dna summarize .*", text)
    assert "--pretraining" not in summary and "--promoters" not in summary
    assert "--statistics results/chr22/tokens/statistics.json" in summary
    assert "--groups=results/chr22/report/chromatin/groups.tsv" in summary


def test_chromatin_alone_can_start_from_a_pretrained_encoder(tmp_path: Path) -> None:
    """Pretraining is measured on the regions that are held out for chromatin, where that is all there is."""
    regions = {"valid_regions": ["22:19,000,001-20,000,000"], "test_regions": ["22:20500001-"]}
    changes = {
        "genome": {"valid": [], "test": []},
        "chromatin": {"model": {"initial": "pretrained"}, "data": regions},
    }
    text = dry_run(tmp_path, *own_genome(tmp_path, **changes))
    assert stage_configs(text)["tokens"]["chromatin"] == {"data": regions}
    pretraining = {"tokenize": 1, "pretrain": 1, "evaluate_pretraining": 1, "pretraining_report": 1}
    pretraining |= {"pretraining_baseline": 1, "stage_config": 8}
    assert jobs(text) == CHROMATIN_ALONE | {"score_variants": 1} | pretraining
    assert "summarize --pretraining=results/chr22/models/pretrained/metrics.json " in text


def test_promoters_of_the_user_s_own(tmp_path: Path) -> None:
    changes = {"promoters": {"source": "my.sga"}, "chromatin": {"data": {"tracks": None}}}
    text = dry_run(tmp_path, *own_genome(tmp_path, **changes))
    assert jobs(text) == COMMON
    assert f"prepare-promoters '{tmp_path}/local data/my.sga' " in text
    assert "--promoters results/chr22/genome/promoters.tsv" in text
    # The example of scoring is the start of the test region.
    assert "reference.fa.gz 22:20,500,001- --but=22:19,000,001-20,000,000 --assembly GRCh37" in text


def test_a_genome_that_no_table_knows(tmp_path: Path) -> None:
    """The minimal configuration with an alias file: every command that resolves names of contigs has it."""
    local = tmp_path / "my data"
    (local / "peaks").mkdir(parents=True)
    for name in ("genome.fa.gz", "genes.gff3", "names.tsv", "x.vcf"):
        (local / name).touch()
    path = tmp_path / "changed.yaml"
    genome = {"aliases": "names.tsv", "test": ["chr*"], "exclude": ["chrM"]}
    changes: dict[str, Any] = {"local_data": str(local), "genome": genome}
    changes["chromatin"] = {"variants": "x.vcf", "data": {"tracks": "peaks", "compare_window": None}}
    path.write_text(yaml.safe_dump(changes))
    minimal = REPOSITORY / "workflow/config/minimal.yaml"
    text = dry_run(tmp_path, "--configfile", minimal, path)
    commands = dict(re.findall(r"^Shell command: .*?bigbird-dna ([a-z-]+) (.*)$", text, re.MULTILINE))
    assert text.count("my-genome") == 7  # in the files of the stages that read the genome's section
    aliases = f"--aliases '{local}/names.tsv'"
    named = {name for name, words in commands.items() if aliases in words}
    assert named == {"prepare-reference", "prepare-promoters", "extract", "score-variants"}
    for name in named - {"score-variants"}:
        assert f"--assembly custom {aliases}" in commands[name]
    assert "reference.fa.gz 'chr*' --but=chrM --but=chr2 " in commands["extract"]
    override = f"""--set 'genome.aliases="{local}/names.tsv"'"""
    assert {name for name, words in commands.items() if override in words} == {
        *("train-tokenizer", "tokenize", "describe-tokens", "prepare-windows", "prepare-chromatin")
    }
    inputs = re.findall(r"^    input: (.*)$", text, re.MULTILINE)
    assert sum(f"{local}/names.tsv" in line for line in inputs) == len(named) + 5
    # Without the file nobody speaks of it.
    path.write_text(yaml.safe_dump({"local_data": str(local)}))
    text = dry_run(tmp_path, "--configfile", minimal, path)
    assert "aliases" not in re.sub('"aliases": null', "", text)
    assert jobs(text) == COMMON | {"finetune_promoter": 2, "promoter_baseline": 1}


def test_the_report_has_the_name_of_a_genome_of_one_s_own() -> None:
    template = jinja2.Template((REPOSITORY / "workflow/report/workflow.rst").read_text())
    for genome, name in (
        ({"assembly": "custom", "name": "my.yeast_2"}, "my.yeast_2"),
        ({"assembly": "GRCh37", "name": None}, "GRCh37"),
        ({}, "demo"),
    ):
        text = template.render(snakemake=SimpleNamespace(config={"genome": genome}))
        assert f"pretrained on **{name}**" in text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"chromatin": {"data": {"tracks": None}}},
            "promoters.source and chromatin.data.tracks are both null",
        ),
        (
            {"genome": {"valid": []}, "chromatin": {"model": {"initial": "pretrained"}}},
            "genome.valid: name at least one contig or region, or one in chromatin.data.valid_regions$",
        ),
        ({"genome": {"test": []}}, "genome.test: .* or region, or one in chromatin.data.test_regions$"),
        (
            {
                "genome": {"valid": []},
                "promoters": {"source": "my.sga"},
                "chromatin": {"data": {"valid_regions": ["22:5-"]}},
            },
            "genome.valid: name at least one contig or region$",
        ),
        ({"genome": {"aliases": "gone.tsv"}}, "genome.aliases: 'gone.tsv' is not a file in "),
        ({"genome": {"assembly": "custom"}}, "genome: assembly custom needs a name: set genome.name$"),
        ({"genome": {"reference": "gone.fa"}}, "genome.reference: 'gone.fa' is not a file in "),
    ],
    ids=[
        "nothing-to-do",
        "pretraining-contig",
        "no-test-region",
        "promoter-contig",
        "no-aliases",
        "no-name",
        "no-file",
    ],
)
def test_wrong_genomes_of_the_user_s_own(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    refused(snakemake(tmp_path, "--dry-run", *own_genome(tmp_path, **changed)), message)


def test_chromatin_of_deepseas_bundle(tmp_path: Path) -> None:
    text = dry_run(tmp_path, "--configfile", REPOSITORY / "workflow/config/grch37.yaml")
    downloads = "results/grch37/downloads"
    for key, file in {
        "bundle": "deepsea_train_bundle.v0.9.tar.gz",
        "bins": "allTFs.pos.bed.tar.gz",
        "tracks": "deepsea_metadata.tsv",
    }.items():
        assert f"bigbird-dna fetch DeepSEA.{key} -o {downloads}/{file}" in text
    assert (
        f"--tracks {downloads}/deepsea_metadata.tsv --bundle results/grch37/chromatin/bundle"
        f" --bed {downloads}/allTFs.pos.bed.tar.gz"
    ) in text
    assert "Would remove temporary output results/grch37/chromatin/bundle" in text
    assert "--published results/grch37/chromatin/data/tracks.tsv" in text


def test_deepseas_data_are_fetched_and_built(tmp_path: Path) -> None:
    world = small_bundle.make_world()
    local, results = tmp_path / "local", tmp_path / "results"
    small_bundle.write_public_files(local, world)
    # The reference has a published checksum: that of a small genome is put where it would be made.
    (results / "genome").mkdir(parents=True)
    small_bundle.write_reference(results / "genome/reference.fa.gz", world)
    outcome = snakemake(
        tmp_path,
        *("--configfile", REPOSITORY / "workflow/config/grch37.yaml"),
        *("--config", f"local_data={local}", f"results={results}"),
        *("--allowed-rules", "fetch", "stage_config", "unpack_deepsea", "chromatin_data"),
        *("--", results / "chromatin/data/bins.parquet"),
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    data = read_dataset(results / "chromatin/data")
    assert data.info["bins"] == small_bundle.SIZES
    assert data.tracks[0].published_auroc == 0.9
    assert not (results / "chromatin/bundle").exists()
    assert (results / "downloads/deepsea_train_bundle.v0.9.tar.gz").exists()


def test_several_processes_go_through_the_launcher(tmp_path: Path) -> None:
    """Each kind of training has its own number of them, and what they need with it."""
    study = {**STUDY, "shares": [1], "seeds": [1], "starts": ["random"], "longer_steps": None}
    changes = {"promoters": {"processes": 3}, "chromatin": {"processes": 4}, "study": study}
    resources = ("--workflow-profile", "none", "--resources", "gpu=9")
    text = dry_run(tmp_path, "--printshellcmds", *resources, *overlay(tmp_path, {"processes": 2, **changes}))
    found = {}
    for job in re.split(r"^(?:local)?rule ", text, flags=re.MULTILINE):
        if launched := re.search(
            r"python -m bigbird_dna\.cli\.launch --processes=(\d) --nodes=1 --cpus=\d -- ([\w-]+) .*"
            r" --threads (\d) +--device cuda ",
            job,
        ):
            threads = re.search(r"^    threads: (\d+)$", job, re.MULTILINE)
            given = re.search(r"processes=(\d), gpu=(\d), .*mem_mb=(\d+)000,", job)
            assert threads and given, job
            found[job.split(":")[0]] = (launched[2], launched[1], launched[3], threads[1], *given.groups())
    assert found == {
        "pretrain": ("pretrain", "2", "4", "8", "2", "2", "32"),
        "finetune_promoter": ("finetune-promoter", "3", "1", "3", "3", "3", "48"),
        "study_promoter": ("finetune-promoter", "3", "1", "3", "3", "3", "48"),
        "finetune_chromatin": ("finetune-chromatin", "4", "1", "4", "4", "4", "64"),
        "study_chromatin": ("finetune-chromatin", "4", "1", "4", "4", "4", "64"),
    }
    nodes = ("--set-resources", "pretrain:nodes=2", "--set-threads", "pretrain=6", "--cores", "6")
    spread = dry_run(tmp_path, "--printshellcmds", *resources, *nodes, *overlay(tmp_path, {"processes": 4}))
    words = "--processes=4 --nodes=2 --cpus=6 -- pretrain "
    assert re.search(rf"python -m bigbird_dna\.cli\.launch {words}.* --threads 3 +--device cuda ", spread)
    single = dry_run(tmp_path, *overlay(tmp_path, {"processes": 1}))
    assert "launch" not in single and "Shell command: bigbird-dna pretrain " in single


def test_another_version_does_not_make_again_what_took_a_gpu_days(demo_run: str, study_run: str) -> None:
    """Nor what that was made from, which would be newer then."""
    texts = [path.read_text() for path in (REPOSITORY / "workflow/rules").glob("*.smk")]
    rules = {
        rule.split(":")[0]: rule
        for text in texts
        for rule in re.split(r"^rule ", text, flags=re.MULTILINE)[1:]
    }
    slow = {name for name, rule in rules.items() if " gpu=" in rule}
    assert {"pretrain", "finetune_promoter", "finetune_chromatin", "study_chromatin"} < slow
    makers, readers = {}, {}
    for job in re.split(r"^(?:local)?rule ", demo_run + study_run, flags=re.MULTILINE)[1:]:
        name = job.split(":")[0]
        for files, kind in ((makers, "output"), (readers, "input")):
            for file in re.findall(rf"^    {kind}: (.*)$", job, re.MULTILINE):
                for one in file.split(", "):
                    files.setdefault(one, set()).add(name)
    before = {
        (maker, reader) for file, own in makers.items() for maker in own for reader in readers.get(file, ())
    }
    while more := {maker for maker, reader in before if reader in slow} - slow:
        slow |= more
    assert {"simulate", "train_tokenizer", "tokenize", "chromatin_data", "promoter_windows"} < slow
    assert {name for name in slow if "VERSION" in rules[name]} == set()
    assert "VERSION" in rules["promoter_report"] and "promoter_report" not in slow


@pytest.mark.parametrize("profile", ["default", "slurm"])
def test_neither_the_words_of_a_command_nor_a_container_make_a_model_again(profile: str) -> None:
    values = yaml.safe_load((REPOSITORY / f"profiles/{profile}/config.yaml").read_text())
    assert set(values["rerun-triggers"]) == {"mtime", "params", "input"}


def test_without_control_and_pretraining(tmp_path: Path) -> None:
    changed = {
        "promoters": {
            "control": None,
            "windows": {"negative_sets": ["genomic"]},
            "model": {"initial": "random"},
        },
        "chromatin": {"model": {"initial": "random"}},
    }
    text = dry_run(tmp_path, *overlay(tmp_path, changed))
    assert jobs(text)["finetune_promoter"] == jobs(text)["promoter_baseline"] == 1
    assert "--shuffle-labels" not in text and "--pretrained" not in text
    for values in stage_configs(text).values():
        parse_config(values)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"encoder": {"laers": 4}}, "configuration: unknown key 'encoder.laers'"),
        ({"encoder": {"layers": "four"}}, "encoder.layers: .* valid integer .*'four'"),
        ({"genome": {"test": []}}, "genome.test: name at least one contig or region"),
        ({"genome": {"test": ["demo6:1-9"]}}, "genome.test: 'demo6:1-9' is a region, but effects of sim"),
        (
            {"promoters": {"windows": {"negative_sets": ["permuted"]}, "control": None}},
            "scoring.negative_set: 'genomic' is not one of promoters.windows.negative_sets",
        ),
        (
            {"promoters": {"windows": {"negative_sets": ["permuted"]}}},
            "promoters: control 'genomic' is not one of windows.negative_sets",
        ),
        (
            {"chromatin": {"data": {"tracks": "deepsea"}}},
            "chromatin.data: .* negative_fraction can only be 0.0",
        ),
        (
            {"chromatin": {"data": {"tracks": "deepsea", "negative_fraction": 0.0}}},
            "chromatin.data.tracks: deepsea is GRCh37, the genome is demo",
        ),
        (
            {"promoters": {"steps": 3}},
            "configuration: key 'promoters.steps' has moved to 'promoters.training.steps'",
        ),
        (
            {
                "local_data": "nowhere",
                "genome": {"assembly": "sacCer3", "reference": "sacCer3.reference"},
                "promoters": {"source": "sacCer3.promoters"},
            },
            "local_data: nowhere is not a directory",
        ),
        (
            {
                "study": {"seeds": [1]},
                "promoters": {"windows": {"negative_sets": ["permuted"]}, "control": None},
            }
            | {"scoring": {"negative_set": "permuted"}},
            "study.negative_set: 'genomic' is not one of promoters.windows.negative_sets",
        ),
        (
            {"study": {"starts": ["random", "longer"], "longer_steps": 300}},
            "study.longer_steps: 300 is not above the 600 steps of promoters",
        ),
        (
            {"study": {"starts": ["random", "longer"]}},
            "study: the start 'longer' and longer_steps go together",
        ),
        (
            {"study": {"tasks": ["chromatin"]}, "chromatin": {"data": {"tracks": None}}},
            "study.tasks: there are no models of chromatin in this run",
        ),
        ({"study": {"seeds": [1, 1]}}, "study: seeds names one twice"),
        ({"study": {"shares": [0.2, 0.20000001]}}, "study: shares are too much alike"),
        (
            {"chromatin": {"data": {"tracks": "my.tsv"}}},
            "chromatin.data.tracks: 'my.tsv' is not a file or folder here",
        ),
        (
            {"chromatin": {"data": {"blacklist": "x.bed"}}},
            "chromatin.data.blacklist: 'x.bed' is not a file here",
        ),
        (
            {"local_data": "data", "chromatin": {"variants": "x.vcf"}},
            "chromatin.variants: 'x.vcf' is not a file in data or here",
        ),
    ],
    ids=[
        *("unknown-key", "wrong-type", "no-test-contig", "simulated-region"),
        *("no-scoring-model", "no-control"),
        *("bundle-is-published", "bundle-of-another-genome", "moved-key", "no-local-data"),
        *("study-set", "study-longer", "study-no-longer", "study-task", "study-seeds", "study-shares"),
        *("no-tracks", "no-blacklist", "no-variants"),
    ],
)
def test_wrong_configurations(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    refused(snakemake(tmp_path, "--dry-run", *overlay(tmp_path, changed)), message)


def refused(outcome: subprocess.CompletedProcess[str], message: str) -> None:
    """Snakemake has stopped with this one line."""
    assert outcome.returncode == 1
    said = [line for line in outcome.stderr.splitlines() if "profile" not in line]
    assert len(said) == 1 and re.search(f"^bigbird-dna: error: .*{message}", said[0])


def test_captions_exist() -> None:
    """Snakemake's report and the run's own page have the same captions."""
    rules = "".join(path.read_text() for path in (REPOSITORY / "workflow/rules").glob("*.smk"))
    captions = set(re.findall(r'caption=f"\{CAPTIONS\}/(\w+)\.rst"', rules))
    stored = {path.stem for path in (REPOSITORY / "bigbird_dna/reporting/run/captions").glob("*.rst")}
    assert captions == stored == {item.caption for part in PARTS.values() for item in part} - {""}


def test_the_page_of_the_run_shows_every_figure_of_the_reports(demo_run: str, study_run: str) -> None:
    for text, parts in ((study_run, PARTS), (demo_run, {**PARTS, "What pretraining buys": ()})):
        (command,) = re.findall("bigbird-dna report-run (.*) --benchmarks", text)
        config, *shown = command.split()
        assert config == "results/demo/config/report.yaml"
        names = [Path(path).name for path in shown]
        known = {item.name for part in parts.values() for item in part}
        # Those by similarity are shown where splits.strata asks for them.
        assert sorted(names) == sorted(name for name in known if "similarity" not in name)


def rules() -> dict[str, str]:
    """The text of every rule, by name."""
    found = {}
    for path in (REPOSITORY / "workflow/rules").glob("*.smk"):
        for rule in re.split(r"^rule ", path.read_text(), flags=re.MULTILINE)[1:]:
            found[rule.partition(":")[0]] = rule
    return found


def test_every_rule_has_a_log_and_a_benchmark() -> None:
    for rule in rules().values():
        assert "\n    log:" in rule and "\n    benchmark:" in rule and "\n    run:" not in rule


def test_rules_that_ask_for_gpus_run_on_them_where_there_are_any(demo_run: str, tmp_path: Path) -> None:
    asking = {name for name, rule in rules().items() if "\n        gpu=" in rule}
    assert {name for name, rule in rules().items() if "device=DEVICE" in rule} == asking
    count = sum(jobs(demo_run).get(name, 0) for name in asking)
    # The default profile has none, which caps what a rule asks for.
    assert demo_run.count(" --device cpu > ") == count
    assert dry_run(tmp_path, "--resources", "gpu=2").count(" --device cuda > ") == count
