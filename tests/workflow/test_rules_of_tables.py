"""The paper's tables and an ablation, run to their ends in miniature."""

import copy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from bigbird_dna.disk.tables import read_text_table
from tests import tiny_run
from tests.workflow.dry_runs import snakemake

TABLES: dict[str, Any] = {
    **{"promoters": ["gc", "cnnprom"], "chromatin": ["gc", "k-mers"], "seeds": [1, 2]},
    **{"negative_sets": ["permuted"], "context_negative_set": "permuted", "windows": [200]},
    "models": [
        {"name": "bert-64", "attention": "full", "tokens": 64, "window": 300},
        {"name": "bigbird-200", "tokens": 200},
    ],
    "cnn_steps": {"promoters": 4, "chromatin": 4},
}
ABLATION: dict[str, Any] = {
    **{"mechanisms": ["full", "bigbird", "combiner_fixed"], "seeds": [1], "tokens": 64, "batch_tokens": 256},
    **{
        "steps": 4,
        "lengths": [256],
        "long_input_steps": 2,
        "long_range_tracks": ["ACTIVE"],
        "long_range_steps": 4,
    },
}


def run(home: Path, settings: dict[str, Any], *targets: str) -> Path:
    """The directory of the run's report."""
    whole = copy.deepcopy(tiny_run.WHOLE)
    whole["chromatin"]["num_gpus"] = whole["num_gpus"] = 1
    (home / "run.yaml").write_text(yaml.safe_dump({**whole, **settings, "results": "out"}))
    outcome = snakemake(home, "--cores", "2", "--configfile", home / "run.yaml", "--", *targets)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return home / "out/report"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_tables_of_a_small_run(tmp_path: Path) -> None:
    report = run(tmp_path, {"tables": TABLES}, "table5", "table6", "table7") / "tables"
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
        100: sorted(["bigbird"] * 4 + others),
        200: sorted(["bigbird"] * 4 + others),
        300: sorted(["full"] * 4 + others),
    }
    assert promoters["auroc"].between(0, 1).all()
    tracks = pd.read_csv(report / "table7.tsv", sep="\t", keep_default_na=False)
    assert set(tracks["predictor"]) == {"bigbird", "full", "gc", "k-mers"}
    models = tracks[(tracks["predictor"] == "full") & (tracks["training"] == "fine-tuned")]
    assert set(models["window"]) == {300} and set(models["weights"]) == {"pretrained", "random"}
    for name in ("table5", "table6", "table7"):
        assert (report / f"{name}.svg").read_text().startswith("<?xml")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_small_ablation(tmp_path: Path) -> None:
    report = run(tmp_path, {"ablation": ABLATION}, "ablation") / "ablation"
    table = pd.read_csv(report / "ablation.tsv", sep="\t")
    assert table["mechanism"].tolist() == ABLATION["mechanisms"]
    for column in ("bits_per_base", "time_bits_per_base", "tokens_per_second", "auroc_ACTIVE"):
        assert table[column].notna().all()
    lengths = pd.read_csv(report / "ablation_lengths.tsv", sep="\t")
    assert sorted(set(lengths["tokens"])) == [64, 256]
