"""What every run has: processes, what is made again, one page, and one line for a wrong configuration."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigbird_dna.config.reading import parse_config
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.model.directory import read_encoder_config
from tests import tiny_run
from tests.conftest import REPOSITORY
from tests.genome.chromatin import small_bundle
from tests.golden.messages import message
from tests.toys import random_dna, written
from tests.workflow.dry_runs import (
    CHROMATIN_ALONE,
    DENSE,
    JOBS,
    WINDOW,
    asking,
    dry_run,
    jobs,
    once,
    overlay,
    own_genome,
    refused,
    rules,
    snakemake,
    stage_configs,
)


def test_several_processes_are_started_by_torchrun_and_srun(tmp_path: Path) -> None:
    """Each kind of training has its own number of them, and what they need with it."""
    changes = {
        "promoters": {"dense": {"num_gpus": 3}},
        "chromatin": {"num_gpus": 4},
    }
    resources = ("--workflow-profile", "none", "--resources", "gpu=9")
    text = dry_run(tmp_path, *resources, *overlay(tmp_path, {"num_gpus": 2, **changes}))
    found: dict[str, set[tuple[str, ...]]] = {}
    for job in re.split(r"^(?:local)?rule ", text, flags=re.MULTILINE):
        if launched := re.search(
            r"python -P -m torch\.distributed\.run --standalone --nproc-per-node=(\d) --no-python"
            r" python -u -P -m bigbird_dna\.cli\.main ([\w-]+) .*"
            r" --threads (\d) +--device cuda ",
            job,
        ):
            threads = re.search(r"^    threads: (\d+)$", job, re.MULTILINE)
            given = re.search(r"processes=(\d), gpu=(\d), .*mem_mb=(\d+)000,", job)
            assert threads and given, job
            counts = (
                launched[2],
                launched[1],
                launched[3],
                threads[1],
                *given.groups(),
            )
            found.setdefault(job.split(":")[0], set()).add(counts)
    assert found == {
        "pretrain": {("pretrain", "2", "4", "8", "2", "2", "32")},
        "finetune_start_sites": {("finetune-promoter", "3", "1", "3", "3", "3", "48")},
        "finetune_chromatin": {("finetune-chromatin", "4", "1", "4", "4", "4", "64")},
    }
    nodes = (
        "--set-resources",
        "pretrain:nodes=2",
        "--set-threads",
        "pretrain=6",
        "--cores",
        "6",
    )
    spread = dry_run(tmp_path, *resources, *nodes, *overlay(tmp_path, {"num_gpus": 4}))
    assert re.search(
        r"srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=6 --kill-on-bad-exit=1"
        r" python -P -m torch\.distributed\.run --nnodes=2 .* --nproc-per-node=2 --no-python"
        r" python -u -P -m bigbird_dna\.cli\.main pretrain .* --threads 3 +--device cuda ",
        spread,
    )
    single = dry_run(tmp_path, *overlay(tmp_path, {"num_gpus": 1}))
    assert (
        "torch.distributed" not in single
        and "Shell command: bigbird-dna pretrain " in single
    )


def test_another_version_does_not_make_again_what_took_a_gpu_days(
    demo_run: str, tables_run: str
) -> None:
    """Nor what that was made from, which would be newer then."""
    slow = asking()
    assert {"pretrain", "finetune_start_sites", "finetune_chromatin", "table7"} < slow
    makers, readers = {}, {}
    for job in re.split(r"^(?:local)?rule ", demo_run + tables_run, flags=re.MULTILINE)[
        1:
    ]:
        name = job.split(":")[0]
        for files, kind in ((makers, "output"), (readers, "input")):
            for file in re.findall(rf"^    {kind}: (.*)$", job, re.MULTILINE):
                for one in file.split(", "):
                    files.setdefault(one, set()).add(name)
    before = {
        (maker, reader)
        for file, own in makers.items()
        for maker in own
        for reader in readers.get(file, ())
    }
    while more := {maker for maker, reader in before if reader in slow} - slow:
        slow |= more
    assert {
        "simulate",
        "prepare_tokenizer",
        "prepare_tokens",
        "prepare_chromatin",
        "prepare_promoter_windows",
    } < slow
    versioned = {
        name for name, rule in rules().items() if "VERSION" in rule.get("params", "")
    }
    assert not versioned & slow and "evaluate_scan" in versioned


@pytest.mark.parametrize("profile", ["default", "slurm"])
def test_neither_the_words_of_a_command_nor_a_container_make_a_model_again(
    profile: str,
) -> None:
    values = yaml.safe_load(
        (REPOSITORY / f"profiles/{profile}/config.yaml").read_text()
    )
    assert set(values["rerun-triggers"]) == {"mtime", "params", "input"}


def test_with_a_control_and_without_pretraining(demo_run: str, tmp_path: Path) -> None:
    changed = {
        "promoters": {
            "shuffled_label_control": "genomic",
            "windows": {"negative_sets": ["genomic"]},
            "model": "window",
            "classifier": {"initial": "random"},
        },
        "chromatin": {"model": {"initial": "random"}},
    }
    text = dry_run(tmp_path, *overlay(tmp_path, changed))
    assert (
        jobs(text)["finetune_promoter"] == 2
        and jobs(text)["train_baseline_promoter"] == 1
    )
    assert "train baseline promoter" in text
    assert (
        "--promoter-baseline=genomic/position=results/demo/promoters/baselines-genomic/position.parquet"
        in text
    )
    assert (
        "--negative-set genomic --shuffle-labels" in text
        and "--shuffle-labels" not in demo_run
    )
    assert "--control=results/demo/models/promoter-control/predictions.parquet" in text
    assert "--pretrained" not in text
    for values in stage_configs(text).values():
        parse_config(values)


def test_every_rule_has_a_log_and_a_benchmark() -> None:
    assert all(
        {"log", "benchmark", "shell"} <= rule.keys() for rule in rules().values()
    )


def test_rules_that_ask_for_gpus_run_on_them_where_there_are_any(
    demo_run: str, tmp_path: Path
) -> None:
    assert {
        name for name, rule in rules().items() if "device=" in rule.get("params", "")
    } <= asking()
    count = sum(jobs(demo_run).get(name, 0) for name in asking())
    # The default profile has none, which caps what a rule asks for.
    assert demo_run.count(" --device cpu > ") == count
    assert dry_run(tmp_path, "--resources", "gpu=2").count(" --device cuda > ") == count


# What the workflow would run for tracks: of the simulation, of peaks, of DeepSEA's bundle


def test_chromatin_of_the_simulation(demo_run: str) -> None:
    # Variants on sequence that no training saw.
    assert (
        "results/demo/simulated/variants.vcf.gz --contig=demo6 --reference" in demo_run
    )
    assert (
        "results/demo/simulated/variants.vcf.gz --contig=demo6 --reference" in demo_run
    )
    variants = "results/demo/chromatin/variants.vcf.gz"
    compared = "--compare=kmers=results/demo/chromatin/variants-regressions.vcf.gz"
    command = f"evaluate variants {variants} {compared} -o results/demo/report"
    assert command in demo_run


def test_chromatin_of_a_folder_of_peaks_by_an_ensemble(tmp_path: Path) -> None:
    (tmp_path / "peaks").mkdir()
    (tmp_path / "black.bed").write_text("demo1\t0\t1000\n")
    data = {"tracks": "peaks", "blacklist": "black.bed"}
    changes = {"data_dir": str(tmp_path), "chromatin": {"models": 2, "data": data}}
    text = dry_run(tmp_path, *overlay(tmp_path, changes))
    assert (
        f"--track-table {tmp_path}/peaks " in text
        and f"--blacklist {tmp_path}/black.bed " in text
    )
    assert jobs(text) == JOBS["demo"] | {"finetune_chromatin": 2, "model_ensemble": 1}
    assert "--compare=window" not in text


def test_chromatin_of_a_genome_of_the_user_s_own(tmp_path: Path) -> None:
    text = dry_run(tmp_path, *own_genome(tmp_path))
    assert jobs(text) == CHROMATIN_ALONE | {"score_variants": 1}
    local = f"'{tmp_path}/local data"
    assert f"prepare reference {local}/chr22_1-22000000.fa.gz' -o " in text
    assert f"--track-table {local}/peaks'" in text
    assert f"{local}/chr22_17442913-17680545.1000G_sites.vcf.gz'  --reference" in text


def test_chromatin_alone_can_start_from_a_pretrained_encoder(tmp_path: Path) -> None:
    """Pretraining is measured on the regions that are held out for chromatin, where that is all there is."""
    regions = {
        "valid_regions": ["22:19,000,001-20,000,000"],
        "test_regions": ["22:20500001-"],
    }
    changes = {
        "genome": {"valid": [], "test": []},
        "chromatin": {"model": {"initial": "pretrained"}, "data": regions},
    }
    text = dry_run(tmp_path, *own_genome(tmp_path, **changes))
    assert stage_configs(text)["tokens"]["chromatin"] == {"data": regions}
    pretraining = {
        "prepare_tokens": 1,
        "pretrain": 1,
        "evaluate_pretraining": 1,
    }
    pretraining |= {"stage_config": 7}
    assert jobs(text) == CHROMATIN_ALONE | {"score_variants": 1} | pretraining


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
        *("--config", f"data_dir={local}", f"results={results}"),
        *(
            "--allowed-rules",
            "prepare_fetch",
            "stage_config",
            "prepare_chromatin",
        ),
        *("--", results / "chromatin/data/bins.parquet"),
    )
    assert outcome.code == 0, outcome.out + outcome.err
    data = read_dataset(results / "chromatin/data")
    assert data.info["bins"] == small_bundle.SIZES
    assert data.tracks[0].published_auroc == 0.9
    assert (results / "downloads/deepsea_train_bundle.v0.9.tar.gz").exists()


# What the workflow would run for data of the user's own, and what it says to wrong ones


def test_a_model_of_labeled_sequences(tmp_path: Path) -> None:
    """Alone, or with a genome to pretrain on; a fault in the table is on the terminal."""
    rows = "".join(f"{random_dna(40, number)},{number % 2}\n" for number in range(40))
    (tmp_path / "x.csv").write_text(f"sequence,label\n{rows}")
    training = {
        "steps": 2,
        "batch_size": 4,
        "evaluate_every": 1,
        "checkpoint_minutes": 0,
    }
    labeled = {"data": "x.csv", "model": {"initial": "random"}, "training": training}
    labeled["baselines"] = {"cnn": False, "shuffled_labels": False}
    small = {
        "tokens": {"vocabulary": 24, "max_piece_length": 4},
        "encoder": tiny_run.SETTINGS["encoder"],
    }
    config = written(
        tmp_path / "mine.yaml",
        yaml.safe_dump({"results": "r", **small, "sequences": labeled}),
    )
    words = ("--configfile", config)
    assert jobs(dry_run(tmp_path, *words)) == once(
        "all finetune_sequences stage_config"
    )
    outcome = snakemake(tmp_path, *words)
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "r/models/sequences/report.md").is_file()
    (tmp_path / "x.csv").write_text(f"sequence,label\n{rows}ACGT,high\n")
    outcome = snakemake(
        tmp_path, *words, "--config", "sequences={task: regression}", "results=other"
    )
    assert outcome.code == 1
    text = outcome.out + outcome.err
    (line,) = {
        line.strip() for line in text.splitlines() if "bigbird-dna: error" in line
    }
    message(line)
    (tmp_path / "x.csv").write_text(f"sequence,label\n{rows}")
    pretrained = {"sequences": {"data": str(tmp_path / "x.csv")}}
    found = jobs(dry_run(tmp_path, *overlay(tmp_path, pretrained)))
    assert found["finetune_sequences"] == found["pretrain"] == 1


def test_a_model_from_elsewhere_takes_the_place_of_pretraining(tmp_path: Path) -> None:
    """With a genome or without one; the encoder is the model's, and so is the tokenizer."""
    start = {"pretraining": {"start_from": "yeast"}}
    values = yaml.safe_load((REPOSITORY / "workflow/config/minimal.yaml").read_text())
    del values["encoder"]
    for name in ("genome.fa.gz", "genes.gff3", "promoters.fa"):
        (tmp_path / name).touch()
    own = written(tmp_path / "mine.yaml", yaml.safe_dump(values | start))
    text = dry_run(tmp_path, "--configfile", own)
    absent = once("prepare_tokenizer prepare_tokens pretrain evaluate_pretraining")
    found = jobs(text)
    assert found["start_model"] == 1 and not absent.keys() & found.keys()
    assert re.search(r"cp -R \S+/models/yeast results/minimal/models/pretrained", text)
    models = "--tokenizer results/minimal/models/pretrained --pretrained results/minimal/models/pretrained"
    assert text.count(models) == found["finetune_start_sites"] == 1
    stored = read_encoder_config(REPOSITORY / "resources/models/yeast").model_dump(
        mode="json"
    )
    assert stage_configs(text)["start-sites"]["encoder"] == stored
    refused(
        snakemake(tmp_path, "--configfile", own, "--config", "encoder={layers: 3}"),
        "encoder.layers 3",
    )


def test_promoters_of_the_user_s_own(tmp_path: Path) -> None:
    changes = {
        "promoters": {"source": "my.sga"},
        "chromatin": {"data": {"tracks": None}},
    }
    whole = {"example_scan": {"max_megabases": None}}
    text = dry_run(tmp_path, *own_genome(tmp_path, **changes, **whole))
    assert jobs(text) == DENSE
    assert f"prepare promoters '{tmp_path}/local data/my.sga' " in text
    assert "--promoters results/chr22/genome/promoters.tsv" in text
    # The example of scoring is the test region; its calls are compared with the promoters.
    assert "reference.fa.gz --only=22:20,500,001- " in text
    assert re.search(r"evaluate scan --scores model=\S+/scores/promoters.tsv ", text)
    # Models of windows score the first test region, here all of it.
    changes["promoters"]["model"] = "window"
    (tmp_path / "window").mkdir()
    text = dry_run(tmp_path, *own_genome(tmp_path / "window", **changes, **whole))
    assert (
        "reference.fa.gz --only=22:20,500,001- --exclude=22:19,000,001-20,000,000"
        in text
    )
    assert float(re.findall(r" --megabases=(\S+) ", text)[0]) > 1000


def test_start_sites_scan_the_held_out_contigs(demo_run: str, tmp_path: Path) -> None:
    """Their model calls promoters; two baselines score the same sequence."""
    home = "results/demo"
    model, test = f"{home}/models/start-sites", f"{home}/genome/test.fa.gz"
    baselines = f"{home}/promoters/baselines-genomic"
    for words in (
        f"prepare reference {home}/genome/reference.fa.gz --only=demo6 ",
        f"finetune-promoter {home}/config/start-sites.yaml ",
        f" --promoters {home}/genome/promoters.tsv --reference {home}/genome/reference.fa.gz",
        f"model calibrate {model}-trained --reference {home}/genome/reference.fa.gz"
        f" --promoters {home}/genome/promoters.tsv --suppress 100 -o {model} ",
        f"score-promoters {model} {test} ",
        f"call-promoters {model} {test} -o {home}/scores/calls.bed ",
        f"--scan {test} --stride=50 --set=promoters.windows.upstream=300 --output {baselines} ",
        f"--scores=position={baselines}/position.scan.tsv --scores=k-mer={baselines}/kmer.scan.tsv "
        f"--scores=cpg={baselines}/cpg.scan.tsv ",
        "report plot-scores results/demo/scores/promoters.tsv ",
    ):
        assert words in demo_run, words
    assert demo_run.count(" --scan ") == demo_run.count(" --negative-set ") == 1
    assert stage_configs(demo_run)["start-sites"]["promoters"]["dense"]["window"] > 1000
    # Models of windows instead: one of them scores the start of the first contig.
    text = dry_run(tmp_path, *overlay(tmp_path, {"promoters": {"model": "window"}}))
    variable = {"finetune_promoter", "train_baseline_promoter", "stage_config"}
    changed = {*WINDOW} - {*DENSE} - variable, {*DENSE} - {*WINDOW} - variable
    assert jobs(text).keys() - jobs(demo_run).keys() - variable == changed[0]
    assert jobs(demo_run).keys() - jobs(text).keys() - variable == changed[1]
    assert (
        "score-promoters results/demo/models/promoter-genomic results/demo/genome/test.fa.gz "
        in text
    )
    assert text.count("finetune-promoter ") == 3 and "--scan" not in text


def test_a_genome_that_no_table_knows(tmp_path: Path) -> None:
    """The minimal configuration with an alias file: every command that resolves names of contigs has it."""
    local = tmp_path / "my data"
    (local / "peaks").mkdir(parents=True)
    for name in ("genome.fa.gz", "genes.gff3", "names.tsv", "x.vcf"):
        (local / name).touch()
    path = tmp_path / "changed.yaml"
    genome = {"aliases": "names.tsv", "test": ["chr*"], "exclude": ["chrM"]}
    changes: dict[str, Any] = {"data_dir": str(local), "genome": genome}
    changes["chromatin"] = {
        "variants": "x.vcf",
        "data": {"tracks": "peaks"},
    }
    path.write_text(yaml.safe_dump(changes))
    minimal = REPOSITORY / "workflow/config/minimal.yaml"
    text = dry_run(tmp_path, "--configfile", minimal, path)
    commands = dict(
        re.findall(
            r"^Shell command: .*?bigbird-dna ((?:(?:prepare|train|evaluate|report|model) )?[a-z-]+) (.*)$",
            text,
            re.MULTILINE,
        )
    )
    assert (
        text.count("my-genome") == 7
    )  # in the files of the stages that read the genome's section
    aliases = f"--aliases '{local}/names.tsv'"
    named = {name for name, words in commands.items() if aliases in words}
    assert named == {"prepare reference", "prepare promoters", "score-variants"}
    for name in named - {"score-variants"}:
        assert f"--assembly custom {aliases}" in commands[name]
    override = f"""--set 'genome.aliases="{local}/names.tsv"'"""
    assert {name for name, words in commands.items() if override in words} == {
        *(
            "prepare tokenizer",
            "prepare tokens",
            "prepare promoter-windows",
            "prepare chromatin",
            "finetune-promoter",
        )
    }
    inputs = re.findall(r"^    input: (.*)$", text, re.MULTILINE)
    assert sum(f"{local}/names.tsv" in line for line in inputs) == len(named) + 6
    # Without the file nobody speaks of it.
    path.write_text(yaml.safe_dump({"data_dir": str(local)}))
    text = dry_run(tmp_path, "--configfile", minimal, path)
    assert "aliases" not in re.sub('"aliases": null', "", text)
    assert jobs(text) == DENSE
