"""What the workflow would run for the papers' experiments, and what each arm of a plan is trained with."""

import copy
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from bigbird_dna.config.reading import complete, load_config, parse_config
from bigbird_dna.config.safe_yaml import read_values
from bigbird_dna.disk.tables import read_text_table
from bigbird_dna.errors import ConfigError
from bigbird_dna.papers.experiments.arms import (
    Arm,
    find_experiment,
)
from bigbird_dna.papers.experiments.predictors import (
    read_trainings,
    trainings_figure,
)
from tests import tiny_run
from tests.conftest import REPOSITORY
from tests.golden.messages import fails, message
from tests.workflow.dry_runs import (
    STUDY,
    dry_run,
    jobs,
    overlay,
    own_genome,
    refused,
    snakemake,
    stage_configs,
)

DEMO = REPOSITORY / "workflow/config/demo.yaml"
TABLES: dict[str, Any] = {
    **{
        "promoters": ["gc", "cnnprom"],
        "chromatin": ["motifs", "danq"],
        "seeds": [1, 7],
    },
    **{"negative_sets": ["substituted", "permuted"], "taxon": "fungi"},
    "context_negative_set": "genomic",
    "models": [
        {"name": "bert-512", "attention": "full", "tokens": 512, "window": 2000},
        {"name": "bigbird-256", "tokens": 256},
    ],
}
ABLATION: dict[str, Any] = {
    "mechanisms": ["full", "bigbird", "combiner_fixed"],
    "seeds": [1, 7],
    "tokens": 256,
    "batch_tokens": 1024,
    "steps": 40,
    "head_init": "local",
}


def planned(experiment: str, section: str, values: Any) -> dict[str, Arm]:
    """The demo's arms with another section, by name."""
    config = complete(parse_config({**read_values(DEMO), section: values}))
    arms = find_experiment(experiment).arms(config)
    found = {arm.name: arm for arm in arms}
    assert len(found) == len(arms)
    return found


def test_a_study_trains_a_model_for_each_start_share_and_seed(
    demo_run: str, study_run: str
) -> None:
    more = {"arm": 24, "pretraining_study": 1}
    assert jobs(study_run) == jobs(demo_run) | more
    report = stage_configs(study_run)["report"]["pretraining_study"]
    assert all(section in report for section in STUDY)
    log = "results/demo/logs/arm-pretraining_study-promoters-random-0.05-seed7.log"
    arm = f"pretraining_study {log}.yaml --arm promoters-random-0.05-seed7 "
    assert f"bigbird-dna experiment run {arm}" in study_run
    assert "--compare -o results/demo/report" in study_run
    arms = planned("pretraining_study", "pretraining_study", STUDY)
    assert len(arms) == 24
    for arm in arms.values():
        task, start = arm.options["task"], arm.options["start"]
        training = getattr(arm.config, task).training
        assert training.train_fraction == arm.options["share"]
        assert (training.seed, training.evaluate_every) == (arm.seed, 20)
        assert training.steps == (900 if start == "random_long" else 100)
        initial = getattr(arm.config, task).model.initial
        assert initial == ("pretrained" if start == "pretrained" else "random")
        assert (arm.initialization is None) == (start != "pretrained")
        assert arm.config.promoters.calibration.negatives == 0


def test_tables_have_a_model_for_each_start_and_seed_and_comparators(
    demo_run: str, tmp_path: Path
) -> None:
    targets = ("table5", "table6", "table7")
    text = dry_run(tmp_path, *overlay(tmp_path, {"tables": TABLES}), "--", *targets)
    found = jobs(text)
    assert not {"arm", "table5"} & set(jobs(demo_run))
    # Two sets in the run's own windows, and one in windows of 2,000 bp, which only bert-512 sees. Two
    # pretrainings; data of two windows; 12 models and 9 comparators of promoters; 8 and 3 of chromatin.
    counts = [found[name] for name in ("arm_pretraining", "arm", *targets)]
    assert counts == [2, 2 + 12 + 9 + 8 + 3, 1, 1, 1]
    promoters, chromatin, pretrained = (
        planned(f"table{n}", "tables", TABLES) for n in (6, 7, 5)
    )
    own = promoters["400-substituted-own-random-seed7"]
    assert own.initialization is None and own.options["negative_set"] == "substituted"
    training = own.config.promoters.training
    assert (training.seed, training.keep) == (7, "best")
    assert own.config.encoder == complete(load_config(DEMO)).encoder
    bert = promoters["2000-genomic-bert-512-pretrained-seed1"]
    assert bert.initialization == pretrained["bert-512"].model
    assert pretrained["bert-512"].done in bert.inputs
    assert bert.config.encoder.attention == "full"
    assert bert.config.promoters.windows.sides == (1500, 500)
    assert promoters["2000-windows"].done in bert.inputs
    assert chromatin["bert-512-random-seed7"].options["window"] == 2000
    assert chromatin["own-random-seed7"].options["window"] == 8000
    # As many tokens a step as the run's own 32 inputs of 128.
    longer = pretrained["bigbird-256"].config.pretraining
    assert (longer.batch_size, longer.sequence_tokens) == (16, 256)
    windows = promoters["2000-windows"].config.promoters.windows
    assert windows.negative_sets == ("genomic",)
    network = promoters["400-permuted-cnnprom-seed7"]
    assert network.config.promoters.training == training
    assert "400-permuted-gc-seed1" in promoters
    assert "400-permuted-gc-seed7" not in promoters
    scan = chromatin["motifs-seed1"]
    assert scan.options["taxon"] == "fungi"
    assert scan.config.chromatin.evaluation.test_bins == 600


def test_the_learning_rate_of_a_table_has_the_lowest_loss_on_validation_data(
    tmp_path: Path,
) -> None:
    """Of the lowest losses of the seeds the mean decides, not their last losses."""
    tables = {**TABLES, "learning_rates": [1e-3, 1e-2], "models": []}
    config = complete(
        load_config(
            DEMO,
            [f"tables={tables}", f"results={tmp_path}", "promoters.training.steps=20"],
        )
    )
    arms = [arm for arm in find_experiment("table6").arms(config) if arm.options]
    trained = [arm for arm in arms if "-rate-" in arm.name]
    # Two sets, each with two models and a network, two rates and two seeds.
    assert len(trained) == 2 * 3 * 2 * 2
    for arm in trained:
        rate = arm.config.promoters.training.optimizer.learning_rate
        lowest = {1e-3: 0.3, 1e-2: 0.4}[rate] + (0.2 if arm.seed == 7 else 0.0)
        if arm.options["predictor"] == "cnnprom":
            lowest = 0.9 - lowest
        lines = [
            *({"step": 5 * n, "loss": 1.0, "seconds": 2.5 * n} for n in (1, 2, 3)),
            {"step": 5, "evaluation": {"loss": 0.7, "auroc": 0.6}},
            {"step": 10, "evaluation": {"loss": lowest, "auroc": 1 - lowest}},
            {"step": 15, "evaluation": {"loss": 9.0 - lowest, "auroc": 0.99}},
        ]
        arm.model.mkdir(parents=True)
        (arm.model / "training.jsonl").write_text(
            "".join(f"{json.dumps(line)}\n" for line in lines)
        )
        (arm.model / "metrics.json").write_text('{"training": {"parameters": 12}}')
        (arm.model / "comparator.json").write_text('{"chosen": {"parameters": 34}}')
    table, curves, kept = read_trainings(arms)
    chosen = table[table["chosen"] == "yes"]
    assert chosen["predictor"].tolist() == ["bigbird", "bigbird", "cnnprom"] * 2
    assert chosen["learning_rate"].tolist() == [1e-3, 1e-3, 1e-2] * 2
    assert chosen["validation_loss"].tolist() == pytest.approx([0.4] * 6)
    assert chosen["validation_auroc"].tolist() == pytest.approx([0.6] * 6)
    columns = ["seeds", "steps", "examples", "seconds", "best_step"]
    assert (chosen[columns] == [2, 20, 20 * 32, 7.5, 10]).all(axis=None)
    assert chosen["parameters"].tolist() == [12, 12, 34] * 2
    assert chosen["window"].tolist() == [400] * 6
    rates = {"cnnprom": "-rate-0.01-", "bigbird": "-rate-0.001-"}
    expected = [
        arm
        for arm in arms
        if "-rate-" not in arm.name or rates[arm.options["predictor"]] in arm.name
    ]
    assert [arm.name for arm in kept] == [arm.name for arm in expected]
    trainings_figure(table, curves, tmp_path / "curves.svg")
    assert "bigbird random" in (tmp_path / "curves.svg").read_text()


def test_a_run_without_promoters_has_no_table_of_them(tmp_path: Path) -> None:
    words = own_genome(tmp_path)
    message(
        refused(snakemake(tmp_path, "--dry-run", *words, "--", "table6")), "table6: "
    )
    found = jobs(dry_run(tmp_path, *words, "--", "table5", "table7"))
    assert (found["table5"], found["table7"], found["pretrain"]) == (1, 1, 1)


def test_an_ablation_trains_every_mechanism_for_the_same_steps(
    demo_run: str, tmp_path: Path
) -> None:
    text = dry_run(
        tmp_path, *overlay(tmp_path, {"ablation": ABLATION}), "--", "ablation"
    )
    found = jobs(text)
    assert not [name for name in jobs(demo_run) if "ablation" in name]
    assert (found["arm"], found["ablation"]) == (6, 1)
    assert "pretrain" not in found and "finetune_chromatin" not in found
    arms = planned("ablation", "ablation", ABLATION)
    assert len(arms) == 6
    config = arms["combiner_fixed-seed7"].config
    encoder, training = config.encoder, config.pretraining
    assert (encoder.attention, encoder.head_init) == ("combiner_fixed", "local")
    assert (training.steps, training.sequence_tokens, training.seed) == (40, 256, 7)
    assert (training.batch_size, training.optimizer.warmup_steps) == (4, 13)


def test_an_ablation_is_looked_at_before_its_work(tmp_path: Path) -> None:
    """Only where it is asked for: another target doesn't go by its section."""
    wrong = overlay(tmp_path, {"ablation": {"mechanisms": ["bigbird", "bigbrid"]}})
    outcome = snakemake(tmp_path, "--dry-run", *wrong, "--", "ablation")
    message(refused(outcome), "ablation: bigbrid-seed1: ", "'bigbrid'")
    assert "ablation" not in jobs(dry_run(tmp_path, *wrong))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"mechanisms": ["bigbird", "bigbrid"]}, "'bigbrid'"),
        ({"mechanisms": ["bigbird", "bigbird_etc"]}, "num_global_tokens"),
    ],
)
def test_ablations_that_cannot_be(changes: dict[str, Any], named: str) -> None:
    with fails(ConfigError, "ablation", named) as caught:
        planned("ablation", "ablation", changes)
    assert "\n" not in str(caught.value)


# The paper's tables by the workflow, run to their ends in miniature


SMALL_TABLES: dict[str, Any] = {
    **{"promoters": ["gc", "cnnprom"], "chromatin": ["gc", "k-mers"], "seeds": [1, 2]},
    **{
        "negative_sets": ["permuted"],
        "context_negative_set": "permuted",
    },
    "models": [
        {"name": "bert-64", "attention": "full", "tokens": 64, "window": 300},
        {"name": "bigbird-200", "tokens": 200},
    ],
    "learning_rates": [1e-3, 1e-2],
}


def run(home: Path, settings: dict[str, Any], *targets: str) -> Path:
    """The directory of the run's report."""
    whole = copy.deepcopy(tiny_run.WHOLE)
    whole["chromatin"]["num_gpus"] = whole["num_gpus"] = 1
    for task in ("promoters", "chromatin"):
        whole[task].setdefault("training", {})["steps"] = 4
    (home / "run.yaml").write_text(
        yaml.safe_dump({**whole, **settings, "results": "out"})
    )
    outcome = snakemake(
        home, "--cores", "2", "--configfile", home / "run.yaml", "--", *targets
    )
    assert outcome.code == 0, outcome.out + outcome.err
    return home / "out/report"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_tables_of_a_small_run(tmp_path: Path) -> None:
    report = (
        run(tmp_path, {"tables": SMALL_TABLES}, "table5", "table6", "table7") / "tables"
    )
    bits = read_text_table(report / "table5.tsv")
    assert [name for name in bits["predictor"] if name.startswith("model ")] == [
        "model bert-64",
        "model bigbird-200",
    ]
    promoters = pd.read_csv(report / "table6.tsv", sep="\t", keep_default_na=False)
    # In the run's own windows and in wider ones; in BERT's own BERT takes the model's place.
    rows = promoters.groupby("window", sort=False)["predictor"].agg(list).to_dict()
    others = ["gc", "cnnprom"]
    assert {size: sorted(names) for size, names in rows.items()} == {
        100: sorted(["bigbird"] * 2 + others),
        300: sorted(["full"] * 2 + others),
    }
    assert promoters["auroc"].between(0, 1).all()
    tracks = pd.read_csv(report / "table7.tsv", sep="\t", keep_default_na=False)
    assert set(tracks["predictor"]) == {"bigbird", "full", "gc", "k-mers"}
    models = tracks[tracks["predictor"] == "full"]
    assert set(models["window"]) == {300} and set(models["weights"]) == {
        "pretrained",
        "random",
    }
    for name in ("table5", "table6", "table6_training", "table7", "table7_training"):
        assert (report / f"{name}.svg").read_text().startswith("<?xml")
    trained = pd.read_csv(
        report / "table6_training.tsv", sep="\t", keep_default_na=False
    )
    rates = trained.groupby(["window", "predictor", "weights"])["learning_rate"].agg(
        set
    )
    assert len(rates) == 2 * 2 + 2 and all(one == {1e-3, 1e-2} for one in rates)
    chosen = trained[trained["chosen"] == "yes"]
    assert len(chosen) == len(rates) and (trained["examples"] > 0).all(), trained
