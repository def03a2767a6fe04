"""What every run has: processes, what is made again, one page, and one line for a wrong configuration."""

import re
from pathlib import Path

import pytest
import yaml

from bigbird_dna.config import parse_config
from bigbird_dna.reporting.run_page import PARTS
from tests.conftest import REPOSITORY
from tests.workflow.dry_runs import STUDY, asking, dry_run, jobs, overlay, rules, stage_configs


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
    text = dry_run(tmp_path, *resources, *overlay(tmp_path, {"num_gpus": 2, **changes}))
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
    spread = dry_run(tmp_path, *resources, *nodes, *overlay(tmp_path, {"num_gpus": 4}))
    words = "--processes=4 --nodes=2 --cpus=6 -- pretrain "
    assert re.search(rf"python -m bigbird_dna\.cli\.launch {words}.* --threads 3 +--device cuda ", spread)
    single = dry_run(tmp_path, *overlay(tmp_path, {"num_gpus": 1}))
    assert "launch" not in single and "Shell command: bigbird-dna pretrain " in single


def test_another_version_does_not_make_again_what_took_a_gpu_days(demo_run: str, study_run: str) -> None:
    """Nor what that was made from, which would be newer then."""
    slow = asking()
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
    assert {
        "simulate",
        "prepare_tokenizer",
        "prepare_tokens",
        "prepare_chromatin",
        "prepare_promoter_windows",
    } < slow
    versioned = {name for name, rule in rules().items() if "VERSION" in rule.get("params", "")}
    assert not versioned & slow and "evaluate_promoters" in versioned


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
    assert jobs(text)["finetune_promoter"] == 1 and jobs(text)["train_baseline_promoter"] == 2
    assert "train baseline-promoter" in text and "--baseline position" in text
    assert "--position=genomic=results/demo/promoters/position-genomic.parquet" in text
    assert "--shuffle-labels" not in text and "--pretrained" not in text
    for values in stage_configs(text).values():
        parse_config(values)


def test_captions_exist() -> None:
    stored = {path.stem for path in (REPOSITORY / "bigbird_dna/reporting/captions").glob("*.rst")}
    assert stored == {item.caption for part in PARTS.values() for item in part} - {""}


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
    assert all({"log", "benchmark", "shell"} <= rule.keys() for rule in rules().values())


def test_rules_that_ask_for_gpus_run_on_them_where_there_are_any(demo_run: str, tmp_path: Path) -> None:
    assert {name for name, rule in rules().items() if "device=" in rule.get("params", "")} <= asking()
    count = sum(jobs(demo_run).get(name, 0) for name in asking())
    # The default profile has none, which caps what a rule asks for.
    assert demo_run.count(" --device cpu > ") == count
    assert dry_run(tmp_path, "--resources", "gpu=2").count(" --device cuda > ") == count


def test_the_jobs_that_the_section_splits_asks_for(demo_run: str, tmp_path: Path) -> None:
    splits = {"max_train_test_similarity": 0.5, "similarity_strata": [0.3, 0.5]}
    shards = {"chromatin": {"shards": {"data": 2}}}
    text = dry_run(tmp_path, *overlay(tmp_path, {**shards, "splits": splits}))
    before = jobs(demo_run) | {"prepare_chromatin": 2, "merge_chromatin": 1}
    more = {
        "evaluate_nearest_promoters": 3,
        "evaluate_promoters_by_similarity": 1,
        "evaluate_nearest_bins": 1,
    }
    assert jobs(text) == before | more | {"evaluate_bins_by_similarity": 1, "prepare_filter_bins": 1}
    home = "results/demo/chromatin"
    assert f"prepare filter-bins {home}/labelled --reference" in text
    assert f"--similarity 0.5 -o {home}/data >" in text
    assert re.search(f"merge-shards {home}/labelled.piece-1-of-2 .* -o {home}/labelled >", text)
    assert text.count("--similarity-bins=0.3,0.5 ") == 2
    assert "--predictions=genomic/nearest=results/demo/promoters/nearest-genomic.parquet" in text
    for name in ("similarity.svg", "similarity.tsv", "bin_similarity.tsv"):
        assert f" results/demo/report/{name} " in text.split("bigbird-dna report run")[1]
