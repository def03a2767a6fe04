"""What jobs ask Slurm for: the rules' resources under the shipped profile, as the documentation has them."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from bigbird_dna.papers.experiments import EXPERIMENTS
from tests.cluster.site import EXECUTOR, filled_in, gpu_rules, site_keys, write
from tests.conftest import REPOSITORY
from tests.toys import written
from tests.workflow.dry_runs import TABLE, asking, dry_run, overlay, rules

Asked = dict[str, dict[str, str]]

# Tables are targets of their own.
TARGETS = (
    "--",
    "all",
    "table5",
    "table6",
    "table7",
    "ablation",
    "long_range_arena",
    "byte_lm",
)
DENSITY = {
    "byte_lm": {
        "format": "c4",
        "train": [str(REPOSITORY / "README.md")],
        "test": [str(REPOSITORY / "LICENSE")],
    }
}
LANGUAGE_MODELS = {
    "tables": {"models": [{"name": "bert-512", "attention": "full", "tokens": 512}]}
}


def planned(directory: Path, profile: dict[str, Any], *words: str | Path) -> Asked:
    """What each rule's jobs ask for in a dry run: resources by name, and threads; without the plugin."""
    here = {key: value for key, value in profile.items() if key not in EXECUTOR}
    text = dry_run(
        directory, "--workflow-profile", write(directory / "profile", here), *words
    )
    found: Asked = {}
    for rule, body in re.findall(r"^rule (\w+):\n((?:    .*\n)+)", text, re.MULTILINE):
        (resources,) = re.findall(r"^    resources: (.*)$", body, re.MULTILINE)
        values = dict(pair.split("=", 1) for pair in resources.split(", "))
        threads = re.search(r"^    threads: (\d+)$", body, re.MULTILINE)
        found[rule] = {**values, "threads": threads[1] if threads else "1"}
    return found


def configured(name: str) -> tuple[str, Path]:
    return "--configfile", REPOSITORY / f"workflow/config/{name}.yaml"


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """The plan of grch37.yaml with the profile as shipped."""
    return planned(tmp_path_factory.mktemp("paper"), filled_in(), *configured("grch37"))


def test_the_profile_names_the_rules_that_ask_for_gpus() -> None:
    site = site_keys()
    assert sorted(site["trainings"] + site["scorings"]) == sorted(asking())
    training = {
        name for name, rule in rules().items() if "{params.launch}" in rule["shell"]
    }
    assert training | {*EXPERIMENTS, "nlp_train"} == {*site["trainings"]}
    profile = filled_in()
    assert gpu_rules(profile) == set(profile["set-threads"]) == asking()


def test_jobs_with_gpus_and_no_others_go_to_a_partition_that_has_them(
    tmp_path: Path,
) -> None:
    profile = filled_in(gpu_partition="accelerated", gpu_type="h100", account="12")
    found = set()
    for changes in (None, {}, LANGUAGE_MODELS | DENSITY):
        labeled = {"sequences": {"data": str(TABLE)}}
        words = (
            configured("grch37-short")
            if changes is None
            else overlay(tmp_path, changes | labeled)
        )
        plan = planned(
            tmp_path,
            profile,
            *words,
            *(TARGETS if "byte_lm" in (changes or ()) else ()),
        )
        _check(plan, partition="accelerated", gpu_type="h100", account="12")
        found |= {rule for rule, asked in plan.items() if int(asked.get("gpu", 0))}
    text = planned(tmp_path, profile, *configured("nlp"), "--", "nlp_demo")
    assert (
        text["nlp_train"]["slurm_partition"]
        == text["nlp_predict"]["slurm_partition"]
        == "accelerated"
    )
    assert text["nlp_evaluate"]["slurm_partition"] == "cpu"
    found |= {rule for rule, asked in text.items() if int(asked.get("gpu", 0))}
    assert found == asking()


def test_a_cluster_without_gpus(tmp_path: Path) -> None:
    plan = planned(
        tmp_path,
        filled_in(gpu_partition="", cpu_partition="short"),
        *configured("grch37"),
    )
    assert {
        (asked["slurm_partition"], asked.get("gpu", "0")) for asked in plan.values()
    } == {("short", "0")}


def test_the_paper_s_plan(paper: Asked) -> None:
    _check(paper, partition="gpu", gpu_type=None, account=None)
    assert paper["pretrain"]["gpu"] == "8" and paper["pretrain"]["threads"] == "32"


def _check(
    plan: Asked, partition: str, gpu_type: str | None, account: str | None
) -> None:
    assert len(plan) > 20
    for rule, asked in plan.items():
        on_gpu = int(asked.get("gpu", 0)) > 0
        assert asked["slurm_partition"] == (partition if on_gpu else "cpu"), rule
        assert asked.get("gpu_model") == (gpu_type if on_gpu else None), rule
        assert asked.get("slurm_account") == account, rule
        assert (
            asked["nodes"] == "1"
            and int(asked["mem_mb"]) > 0
            and int(asked["runtime"]) > 0
        ), rule
        assert on_gpu == (rule in asking())


def test_the_table_of_the_documentation_is_the_plan(paper: Asked) -> None:
    page = (REPOSITORY / "docs/reference/resources.md").read_text(encoding="utf-8")
    head = (
        "| rule | partition | GPUs | threads | memory, MB | minutes |\n"
        + "| --- " * 6
        + "|\n"
    )
    local = {name for name, rule in rules().items() if "localrule" in rule} | {"all"}
    order = sorted({*paper} - local, key=lambda rule: (rule not in asking(), rule))
    expected = "".join(
        f"| `{rule}` | {asked['slurm_partition']} | {asked.get('gpu', '')} | {asked['threads']} "
        f"| {int(asked['mem_mb']):,} | {int(asked['runtime']):,} |\n"
        for rule, asked in ((rule, paper[rule]) for rule in order)
    )
    found = page.partition(head)[2].partition("\n\n")[0] + "\n"
    assert found == expected, (
        f"docs/reference/resources.md must have:\n{head}{expected}"
    )


def test_a_job_that_failed_gets_more_and_a_training_no_more_time(
    tmp_path: Path, paper: Asked
) -> None:
    again = planned(tmp_path, filled_in(), *configured("grch37"), "--attempt", "2")
    for rule in (
        "prepare_tokenizer",
        "prepare_tokens",
        "prepare_promoter_windows",
        "train_baseline_chromatin",
        "report_run",
    ):
        for resource in ("mem_mb", "runtime"):
            assert int(again[rule][resource]) == round(
                1.5 * int(paper[rule][resource])
            ), rule
    for rule in site_keys()["trainings"]:
        if rule in paper:
            assert again[rule]["runtime"] == paper[rule]["runtime"] == "1440", rule
    for path in (REPOSITORY / "workflow").rglob("*.smk"):
        assert "retries" not in path.read_text(), (
            "an inner Snakemake of a job would retry as well"
        )
    assert filled_in()["retries"] > 0
    default = yaml.safe_load((REPOSITORY / "profiles/default/config.yaml").read_text())
    assert "retries" not in default


def test_several_nodes(tmp_path: Path) -> None:
    """Asked for by `mpi`: the job step isn't srun's then, and the rule calls it."""
    profile = filled_in(
        pretraining_nodes=2, gpus_per_node=8, gpu_type="h100", memory_per_cpu=5000
    )
    changed = written(tmp_path / "changed.yaml", "num_gpus: 16\n")
    asked = planned(tmp_path, profile, *configured("grch37"), changed)["pretrain"]
    said = {
        key: asked[key]
        for key in ("gpu", "nodes", "tasks", "tasks_per_gpu", "mpi", "mem_mb_per_cpu")
    }
    assert said == {
        **{"gpu": "16", "nodes": "2", "tasks": "2", "tasks_per_gpu": "0"},
        **{"mpi": "srun", "mem_mb_per_cpu": "5000"},
    }
    assert asked["slurm_extra"] == "--gpus-per-node=h100:8"


def test_no_job_is_submitted_with_a_task_for_each_gpu(tmp_path: Path) -> None:
    """By the plugin itself, also where the site gives all jobs a number of tasks."""
    plugin = pytest.importorskip("snakemake_executor_plugin_slurm.submit_string")
    profile = filled_in(pretraining_nodes=2, gpus_per_node=8, gpu_type="h100")
    profile["default-resources"]["tasks"] = 1
    changed = written(tmp_path / "changed.yaml", "num_gpus: 16\n")
    found = {}
    for rule, asked in planned(
        tmp_path, profile, *configured("grch37"), changed
    ).items():
        values = {
            key: int(value) if value.isdecimal() else value
            for key, value in asked.items()
        }
        job = SimpleNamespace(resources=_Resources(values), threads=values["threads"])
        about = dict.fromkeys(("run_uuid", "slurm_logfile", "comment_str"), "x")
        line = plugin.get_submit_command(
            job, {**about, "account": "", "partition": "", "workdir": "/"}
        )
        assert "--ntasks-per-gpu" not in line, (rule, line)
        found[rule] = line
    assert (
        "--ntasks=2" in found["pretrain"]
        and "--gpus-per-node=h100:8" in found["pretrain"]
    )
    assert not any(
        "--ntasks" in found[rule] for rule in ("finetune_chromatin", "score_promoters")
    )


class _Resources(dict[str, Any]):
    """Resources of a job, which the plugin reads in two ways."""

    __getattr__ = dict.__getitem__


def test_the_plugin_knows_jobs_with_several_gpus() -> None:
    """Before 2.8 it asked for a task for each GPU."""
    pins = (REPOSITORY / "constraints.txt").read_text()
    found = re.search(
        r"^snakemake-executor-plugin-slurm==(\d+)\.(\d+)", pins, re.MULTILINE
    )
    assert found is not None and (int(found[1]), int(found[2])) >= (2, 8)
    assert (
        '"snakemake-executor-plugin-slurm>=2.8"'
        in (REPOSITORY / "pyproject.toml").read_text()
    )
