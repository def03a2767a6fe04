"""What every run has: processes, what is made again, one page, and one line for a wrong configuration."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigbird_dna.config import parse_config
from bigbird_dna.reporting.run_page import PARTS
from tests.conftest import REPOSITORY
from tests.workflow.dry_runs import STUDY, dry_run, jobs, overlay, refused, rules, snakemake, stage_configs


def test_several_processes_go_through_the_launcher(tmp_path: Path) -> None:
    """Each kind of training has its own number of them, and what they need with it."""
    study = {
        **STUDY,
        "train_fractions": [1],
        "seeds": [1],
        "initializations": ["random"],
        "random_long_steps": None,
    }
    changes = {"promoters": {"num_gpus": 3}, "chromatin": {"num_gpus": 4}, "pretraining_study": study}
    resources = ("--workflow-profile", "none", "--resources", "gpu=9")
    text = dry_run(tmp_path, *resources, *overlay(tmp_path, {"processes": 2, **changes}))
    found: dict[str, set[tuple[str, ...]]] = {}
    for job in re.split(r"^(?:local)?rule ", text, flags=re.MULTILINE):
        if launched := re.search(
            r"python -m bigbird_dna\.cli\.launch --processes=(\d) --nodes=1 --cpus=\d -- ([\w-]+) .*"
            r" --threads (\d) +--device cuda ",
            job,
        ):
            threads = re.search(r"^    threads: (\d+)$", job, re.MULTILINE)
            given = re.search(r"processes=(\d), gpu=(\d), .*mem_mb=(\d+)000,", job)
            assert threads and given, job
            counts = (launched[2], launched[1], launched[3], threads[1], *given.groups())
            found.setdefault(job.split(":")[0], set()).add(counts)
    assert found == {
        "pretrain": {("pretrain", "2", "4", "8", "2", "2", "32")},
        "finetune_promoter": {("finetune-promoter", "3", "1", "3", "3", "3", "48")},
        "finetune_chromatin": {("finetune-chromatin", "4", "1", "4", "4", "4", "64")},
        "arm": {("experiment", "3", "1", "3", "3", "3", "48"), ("experiment", "4", "1", "4", "4", "4", "64")},
    }
    nodes = ("--set-resources", "pretrain:nodes=2", "--set-threads", "pretrain=6", "--cores", "6")
    spread = dry_run(tmp_path, *resources, *nodes, *overlay(tmp_path, {"processes": 4}))
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
    assert {"pretrain", "finetune_promoter", "finetune_chromatin", "arm"} < slow
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
            "shuffled_label_control": None,
            "windows": {"negative_sets": ["genomic"]},
            "model": {"initial": "random"},
        },
        "chromatin": {"model": {"initial": "random"}},
    }
    text = dry_run(tmp_path, *overlay(tmp_path, changed))
    assert jobs(text)["finetune_promoter"] == 1 and jobs(text)["promoter_baseline"] == 2
    assert "train baseline-promoter" in text and "--baseline position" in text
    assert "--position=genomic=results/demo/promoters/position-genomic.parquet" in text
    assert "--shuffle-labels" not in text and "--pretrained" not in text
    for values in stage_configs(text).values():
        parse_config(values)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"encoder": {"laers": 4}},
            r"/changed\.yaml: line 2: unknown key 'encoder\.laers'; did you mean 'encoder\.layers'\?$",
        ),
        ({"encoder": {"layers": "four"}}, "encoder.layers: .* valid integer .*'four'"),
        ({"genome": {"test": []}}, "genome.test: name at least one contig or region"),
        ({"genome": {"test": ["demo6:1-9"]}}, "genome.test: 'demo6:1-9' is a region, but effects of sim"),
        (
            {"promoters": {"windows": {"negative_sets": ["permuted"]}, "shuffled_label_control": None}},
            "example_scan.negative_set: 'genomic' is not one of promoters.windows.negative_sets",
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
            r"/changed\.yaml: line 2: unknown key 'promoters\.steps';"
            r" did you mean 'promoters\.training\.steps'\?$",
        ),
        (
            {
                "data_dir": "nowhere",
                "genome": {"assembly": "sacCer3", "reference": "sacCer3.reference"},
                "promoters": {"source": "sacCer3.promoters"},
            },
            "data_dir: nowhere is not a directory",
        ),
        (
            {
                "pretraining_study": {"seeds": [1]},
                "promoters": {"windows": {"negative_sets": ["permuted"]}, "shuffled_label_control": None},
            }
            | {"scoring": {"negative_set": "permuted"}},
            "pretraining_study.negative_set: 'genomic' is not one of promoters.windows.negative_sets",
        ),
        (
            {"pretraining_study": {"initializations": ["random", "random_long"], "random_long_steps": 300}},
            "pretraining_study.random_long_steps: 300 is not above the 600 steps of promoters",
        ),
        (
            {"pretraining_study": {"initializations": ["random", "random_long"]}},
            "study: the start 'random_long' and random_long_steps go together",
        ),
        (
            {"pretraining_study": {"tasks": ["chromatin"]}, "chromatin": {"data": {"tracks": None}}},
            "pretraining_study.tasks: there are no models of chromatin in this run",
        ),
        ({"pretraining_study": {"seeds": [1, 1]}}, "study: seeds names one twice"),
        ({"pretraining_study": {"train_fractions": [0.2, 0.20000001]}}, "study: shares are too much alike"),
        (
            {"chromatin": {"data": {"tracks": "my.tsv"}}},
            "chromatin.data.tracks: 'my.tsv' is not a file or folder here",
        ),
        (
            {"chromatin": {"data": {"blacklist": "x.bed"}}},
            "chromatin.data.blacklist: 'x.bed' is not a file here",
        ),
        (
            {"data_dir": "data", "chromatin": {"variants": "x.vcf"}},
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


def test_captions_exist() -> None:
    """Snakemake's report and the run's own page have the same captions."""
    rules = "".join(path.read_text() for path in (REPOSITORY / "workflow/rules").glob("*.smk"))
    captions = set(re.findall(r'caption=f"\{CAPTIONS\}/(\w+)\.rst"', rules))
    captions |= set(re.findall(r'\.(?:txt|svg|tsv)": \("(\w+)", ', rules))
    stored = {path.stem for path in (REPOSITORY / "bigbird_dna/reporting/captions").glob("*.rst")}
    assert captions == stored == {item.caption for part in PARTS.values() for item in part} - {""}


def test_the_page_of_the_run_shows_every_figure_of_the_reports(demo_run: str, study_run: str) -> None:
    for text, parts in ((study_run, PARTS), (demo_run, {**PARTS, "What pretraining buys": ()})):
        (command,) = re.findall("bigbird-dna report run (.*) --benchmarks", text)
        config, *shown = command.split()
        assert config == "results/demo/config/report.yaml"
        names = [Path(path).name for path in shown]
        known = {item.name for part in parts.values() for item in part}
        # Those by similarity are shown where splits.similarity_strata asks for them.
        assert sorted(names) == sorted(name for name in known if "similarity" not in name)


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
