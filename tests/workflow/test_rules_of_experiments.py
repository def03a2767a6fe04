"""What the workflow would run for the papers' experiments, and the paper's tables by it in miniature."""

import copy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from bigbird_dna.disk.tables import read_text_table
from tests import tiny_run
from tests.workflow.dry_runs import (
    dry_run,
    jobs,
    overlay,
    own_genome,
    snakemake,
)


def test_tables_follow_the_pretrained_models(demo_run: str, tmp_path: Path) -> None:
    models = [{"name": "bert-512", "attention": "full", "tokens": 512, "window": 2000}]
    words = overlay(tmp_path, {"tables": {"models": models}})
    text = dry_run(tmp_path, *words, "--", "table6", "table7")
    found = jobs(text)
    assert not {"table5", "table6"} & set(jobs(demo_run))
    tables = [found[f"table{number}"] for number in (5, 6, 7)]
    assert tables == [1, 1, 1] and found["pretrain"] == 1
    log = "results/demo/logs/table6.log"
    words = f"table6 {log}.yaml -o results/demo/report/tables "
    assert f"bigbird-dna experiment run {words}" in text


def test_a_run_without_promoters_has_tables_of_tracks(tmp_path: Path) -> None:
    words = own_genome(tmp_path)
    found = jobs(dry_run(tmp_path, *words, "--", "table5", "table7"))
    assert (found["table5"], found["table7"], found["pretrain"]) == (1, 1, 1)


def test_an_ablation_needs_no_pretrained_model(demo_run: str, tmp_path: Path) -> None:
    found = jobs(dry_run(tmp_path, *overlay(tmp_path, {}), "--", "ablation"))
    assert "ablation" not in jobs(demo_run) and found["ablation"] == 1
    assert "pretrain" not in found and "finetune_chromatin" not in found


SMALL_TABLES: dict[str, Any] = {
    **{"promoters": ["gc", "cnnprom"], "chromatin": ["gc", "k-mers"], "seeds": [1, 2]},
    "negative_sets": ["permuted"],
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
        300: sorted(["bert-64"] * 2 + others),
    }
    assert promoters["auroc"].between(0, 1).all()
    tracks = pd.read_csv(report / "table7.tsv", sep="\t", keep_default_na=False)
    assert set(tracks["predictor"]) == {"bigbird", "bert-64", "gc", "k-mers"}
    models = tracks[tracks["predictor"] == "bert-64"]
    assert set(models["window"]) == {300} and set(models["weights"]) == {
        "pretrained",
        "random",
    }
    trained = promoters[promoters["seeds"] == 2]
    assert len(trained) == 2 * 3 and set(trained["learning_rate"]) <= {0.001, 0.01}
