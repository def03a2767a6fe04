"""What the workflow would run for the papers' experiments, and what each arm of a plan is trained with."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml

from bigbird_dna.config import complete, load_config, parse_config, read_values
from bigbird_dna.disk.tables import read_text_table
from bigbird_dna.errors import ConfigError, UsageError
from bigbird_dna.papers.experiments.experiment import ArmJob, find_experiment, plan
from bigbird_dna.papers.experiments.figures import trainings_figure
from bigbird_dna.papers.experiments.running import find_job, run_job
from bigbird_dna.papers.experiments.table_trainings import read_trainings
from bigbird_dna.training.distributed import World
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
DEEP = {
    "name": "deep",
    "attention": "combiner_fixed",
    "attention_options": {"pooling": "deepsets_max"},
}
TABLES: dict[str, Any] = {
    **{
        "promoters": ["gc", "cnnprom"],
        "chromatin": ["motifs", "danq"],
        "seeds": [1, 7],
    },
    **{"negative_sets": ["upstream", "permuted"], "windows": [1000], "taxon": "fungi"},
    **{"steps": {"promoters": 20}, "context_negative_set": "genomic"},
    **{"pretraining_steps": 40, "comparator_window": 600},
    "models": [
        {"name": "bert-512", "attention": "full", "tokens": 512, "window": 2000},
        {"name": "bigbird-256", "tokens": 256},
    ],
}
ABLATION: dict[str, Any] = {
    **{
        "mechanisms": ["full", "bigbird", DEEP],
        "seeds": [1, 7],
        "tokens": 256,
        "batch_tokens": 1024,
    },
    **{
        "steps": 40,
        "lengths": [1024, 4096],
        "long_input_steps": 3,
        "long_range_tracks": ["ACTIVE"],
    },
    **{"long_range_layers": 4, "head_init": "local"},
}


def planned(
    experiment: str, section: str, values: Any
) -> dict[tuple[str, int], ArmJob]:
    """The demo's jobs with another section, by arm and seed."""
    config = complete(parse_config({**read_values(DEMO), section: values}))
    found = {
        (job.arm.name, job.seed): job
        for job in plan(find_experiment(experiment), config)
    }
    # Two may have the same settings, and would shut each other out.
    for place in ("directory", "checkpoints"):
        assert len({getattr(job, place) for job in found.values()}) == len(found)
    return found


def test_a_study_trains_a_model_for_each_start_share_and_seed(
    demo_run: str, study_run: str
) -> None:
    more = {"arm": 24, "arm_predictions": 12, "pretraining_study": 1, "layer_probes": 1}
    found = jobs(study_run)
    assert found == jobs(demo_run) | more
    (report,) = re.findall(r"bigbird-dna experiment compare (.*) > ", study_run)[:1]
    assert all(
        section in stage_configs(study_run)["report"]["pretraining_study"]
        for section in STUDY
    )
    place = "results/demo/experiments/pretraining_study/promoters-random-0.05/7/model"
    assert f"pretraining_study promoters-random-0.05 --seed 7 -o {place} " in study_run
    assert (
        "--benchmarks results/demo/benchmarks -o results/demo/report" in study_run
        and report
    )
    arms = planned("pretraining_study", "pretraining_study", STUDY)
    assert len(arms) == 24
    for (name, seed), job in arms.items():
        task, start, share = name.split("-")
        training = getattr(job.config, task).training
        assert (training.train_fraction, training.seed, training.evaluate_every) == (
            float(share),
            seed,
            20,
        )
        assert training.steps == (900 if start == "random_long" else 100)
        initial = getattr(job.config, task).model.initial
        assert initial == ("pretrained" if start == "pretrained" else "random")
        assert (job.arm.initialization is None) == (start != "pretrained")
        assert job.config.promoters.calibration.negatives == 0


def test_tables_have_a_model_for_each_start_and_seed_and_comparators(
    demo_run: str, tmp_path: Path
) -> None:
    text = dry_run(
        tmp_path,
        *overlay(tmp_path, {"tables": TABLES}),
        "--",
        "table5",
        "table6",
        "table7",
    )
    found = jobs(text)
    assert not {"arm", "table5"} & set(jobs(demo_run))
    # Two sets in the run's own windows; one in windows of 1,000 bp, and in 2,000 that only bert-512 sees.
    # Two pretrainings; 16 models, 12 probes and 12 comparators of promoters; 8, 6 and 3 of chromatin.
    made = (
        "arm_pretraining",
        "arm",
        "arm_data",
        "arm_predictions",
        "table5",
        "table6",
        "table7",
    )
    assert [found[name] for name in made] == [
        2,
        16 + 12 + 12 + 8 + 6 + 3,
        3,
        2 + 8,
        1,
        1,
        1,
    ]
    promoters, chromatin, pretrained = (
        planned(f"table{n}", "tables", TABLES) for n in (6, 7, 5)
    )
    own = promoters["400-upstream-own-random", 7]
    assert (
        own.arm.initialization is None and own.arm.options["negative_set"] == "upstream"
    )
    assert (
        own.config.promoters.training.seed,
        own.config.promoters.training.steps,
    ) == (7, 20)
    assert not [key for key in own.arm.set if key.startswith("encoder.")]
    bert = promoters["2000-genomic-bert-512-pretrained", 1]
    assert bert.arm.initialization == pretrained["bert-512", 1].model
    assert (
        bert.config.encoder.attention == "full"
        and bert.config.promoters.windows.sides == (1500, 500)
    )
    assert bert.data.name == "2000"
    assert chromatin["bert-512-random", 7].arm.options["window"] == 2000
    assert "window" not in chromatin["own-random", 7].arm.options
    # As many tokens a step as the run's own 32 inputs of 128.
    longer = pretrained["bigbird-256", 1].config.pretraining
    assert (longer.batch_size, longer.sequence_tokens, longer.steps) == (16, 256, 40)
    assert pretrained["bert-512", 1].arm.predictions == "tsv"
    windows = find_experiment("table6").data_config(own.run, "1000").promoters.windows
    assert windows.sides == (750, 250) and windows.negative_sets == ("genomic",)
    network = promoters["400-permuted-cnnprom", 7].arm
    assert network.options == {"negative_set": "permuted"}
    training = promoters["400-permuted-cnnprom", 7].config.promoters.training
    assert training == own.config.promoters.training and (
        training.keep,
        training.steps,
    ) == ("best", 20)
    assert promoters["400-permuted-gc", 1].arm.options == {"negative_set": "permuted"}
    assert ("400-permuted-gc", 7) not in promoters
    probe = promoters["1000-genomic-own-random-probe", 7].arm
    assert (
        probe.initialization == own.run.paths.pretrained
        and probe.options["weights"] == "random"
    )
    probe = chromatin["bert-512-pretrained-probe", 1].arm
    assert (
        probe.initialization == pretrained["bert-512", 1].model
        and probe.options["window"] == 2000
    )
    scan = chromatin["motifs", 1]
    assert scan.arm.options == {"taxon": "fungi", "window": 600}
    assert scan.config.chromatin.evaluation.test_bins == 600


def test_the_learning_rate_of_a_table_has_the_lowest_loss_on_validation_data(
    tmp_path: Path,
) -> None:
    """Of the lowest losses of the seeds the mean decides, not their last losses."""
    tables = {**TABLES, "learning_rates": [1e-3, 1e-2], "models": []}
    tables |= {"windows": [1000], "context_negative_set": "upstream"}
    config = complete(
        parse_config({**read_values(DEMO), "tables": tables, "results": str(tmp_path)})
    )
    jobs = plan(find_experiment("table6"), config)
    trained = [job for job in jobs if job.arm.rate]
    # Two sets and a wider window, each with two models and a network, two rates and two seeds.
    assert len(trained) == 3 * 3 * 2 * 2
    for job in trained:
        lowest = {1e-3: 0.3, 1e-2: 0.4}[job.arm.rate] + (0.2 if job.seed == 7 else 0.0)
        if job.arm.predictor == "cnnprom":
            lowest = 0.9 - lowest
        lines = [
            *({"step": 5 * n, "loss": 1.0, "seconds": 2.5 * n} for n in (1, 2, 3)),
            {"step": 5, "evaluation": {"loss": 0.7, "auroc": 0.6}},
            {"step": 10, "evaluation": {"loss": lowest, "auroc": 1 - lowest}},
            {"step": 15, "evaluation": {"loss": 9.0 - lowest, "auroc": 0.99}},
        ]
        job.model.mkdir(parents=True)
        (job.model / "training.jsonl").write_text(
            "".join(f"{json.dumps(line)}\n" for line in lines)
        )
        (job.model / "metrics.json").write_text('{"training": {"parameters": 12}}')
        (job.model / "comparator.json").write_text('{"chosen": {"parameters": 34}}')
    found = read_trainings(jobs)
    chosen = found.table[found.table["chosen"] == "yes"]
    assert chosen["predictor"].tolist() == ["bigbird", "bigbird", "cnnprom"] * 3
    assert chosen["learning_rate"].tolist() == [1e-3, 1e-3, 1e-2] * 3
    assert chosen["validation_loss"].tolist() == pytest.approx([0.4] * 9)
    assert chosen["validation_auroc"].tolist() == pytest.approx([0.6] * 9)
    columns = ["seeds", "steps", "examples", "seconds", "best_step"]
    assert (chosen[columns] == [2, 20, 20 * 32, 7.5, 10]).all(axis=None), chosen[
        columns
    ]
    assert chosen["parameters"].tolist() == [12, 12, 34] * 3
    assert chosen["window"].tolist() == [400] * 6 + [1000] * 3
    kept = [
        job
        for job in jobs
        if not job.arm.rate
        or job.arm.rate == (1e-2 if job.arm.predictor == "cnnprom" else 1e-3)
    ]
    assert found.jobs == kept
    trainings_figure(found.table, found.curves, tmp_path / "curves.svg")
    assert "bigbird random" in (tmp_path / "curves.svg").read_text()


def test_custom_sequences_have_the_networks_of_table_6_on_their_own_windows() -> None:
    values = read_values(REPOSITORY / "workflow/config/sequences.yaml")

    def arms(tables: dict[str, Any], **sequences: Any) -> dict[str, ArmJob]:
        promoters = {
            **values["promoters"],
            "sequences": {"positives": "p.fa", **sequences},
        }
        changed = {
            **values,
            "promoters": promoters,
            "tables": {**values["tables"], **tables},
        }
        config = complete(parse_config(changed))
        return {job.arm.name: job for job in plan(find_experiment("table6"), config)}

    found = arms({"promoters": ["position", "deepromoter"], "learning_rates": None})
    assert [*found] == [
        f"{negatives}-{name}"
        for negatives in ("substituted", "permuted")
        for name in ("own-random", "position", "deepromoter")
    ]
    job = found["permuted-deepromoter"]
    assert (job.data, job.reference) == (job.run.paths.windows, job.run.paths.sequences)
    assert job.arm.options == {"negative_set": "permuted"}
    # Not aligned: trimmed around the center.
    trimmed = arms(
        {"promoters": ["position", "gc"], "negative_sets": ["permuted"]}, length=100
    )
    assert {name.split("-rate")[0] for name in trimmed} == {
        "permuted-own-random",
        "permuted-gc",
    }
    for wrong in (
        {"windows": [200]},
        {"models": [{"name": "wide", "tokens": 128, "window": 200}]},
        {"negative_sets": ["user"]},
        {"initializations": ["pretrained", "random"]},
        {"linear_probes": True},
    ):
        with fails(ConfigError):
            arms(wrong)
    with fails(ConfigError):
        planned("table6", "tables", {**TABLES, "negative_sets": ["user"]})


def test_a_run_without_promoters_has_no_table_of_them(tmp_path: Path) -> None:
    words = own_genome(tmp_path)
    message(
        refused(snakemake(tmp_path, "--dry-run", *words, "--", "table6")), "table6: "
    )
    found = jobs(dry_run(tmp_path, *words, "--", "table5", "table7"))
    assert (found["table5"], found["table7"], found["pretrain"]) == (1, 1, 1)


def test_an_ablation_trains_every_mechanism_for_the_same_steps_and_time(
    demo_run: str, tmp_path: Path
) -> None:
    text = dry_run(
        tmp_path, *overlay(tmp_path, {"ablation": ABLATION}), "--", "ablation"
    )
    found = jobs(text)
    assert not [name for name in jobs(demo_run) if "ablation" in name]
    # Of the same time the reference has its models of the same steps.
    trainings = 3 * 2 * (1 + 2) + 2 * 2
    made = ("arm", "arm_cost", "arm_predictions", "ablation")
    assert [found[name] for name in made] == [trainings + 6, 3, trainings + 6, 1]
    assert "pretrain" not in found and "finetune_chromatin" not in found
    arms = planned("ablation", "ablation", ABLATION)
    assert len(arms) == trainings + 6
    long = arms["deep-4096", 7].config
    encoder, training = long.encoder, long.pretraining
    assert (
        encoder.attention == "combiner_fixed"
        and encoder.attention_options["pooling"] == "deepsets_max"
    )
    assert (encoder.head_init, encoder.max_length) == ("local", 4096)
    assert (training.steps, training.sequence_tokens, training.seed) == (13, 4096, 7)
    assert [(stage.steps, stage.tokens) for stage in training.length_curriculum] == [
        (10, 256)
    ]
    place = arms["full-time", 1].run.paths.experiment("ablation")
    assert arms["full-time", 1].arm.costs == [
        place / f"{name}-steps/cost.json" for name in ("full", "bigbird")
    ]
    assert arms["full-steps", 1].arm.measured == (256, 1024, 4096)
    far = arms["deep-distance", 7]
    assert far.config.encoder.layers == 4 and far.config.chromatin.model.bin_layers == 0
    assert (
        far.config.chromatin.model.initial == "random"
        and far.arm.initialization is None
    )
    assert far.arm.options["tracks"] == ("ACTIVE",) and far.arm.predictions == "npy"


def test_an_ablation_of_so_many_seconds_without_tracks(tmp_path: Path) -> None:
    own = {"name": "bigbird", "encoder": {"random_blocks": 2}}
    ablation = {
        "mechanisms": [own, "window"],
        "time_budget_s": 9,
        "lengths": [],
        "long_range_tracks": [],
    }
    found = jobs(
        dry_run(tmp_path, *overlay(tmp_path, {"ablation": ablation}), "--", "ablation")
    )
    assert (found["arm"], found["arm_cost"], found["arm_predictions"]) == (4, 2, 4)
    assert "chromatin_baseline" not in found
    timed = planned("ablation", "ablation", ablation)["bigbird-time", 1].arm
    assert timed.options["seconds"] == 9.0 and len(timed.costs) == 1


def test_an_ablation_is_looked_at_before_its_work(tmp_path: Path) -> None:
    """Only where it is asked for: another target doesn't go by its section."""
    deep = {"name": "deep", "attention": "full", "encoder": {"layerz": 3}}
    wrong = overlay(tmp_path, {"ablation": {"mechanisms": ["bigbird", deep]}})
    outcome = snakemake(tmp_path, "--dry-run", *wrong, "--", "ablation")
    message(refused(outcome), "ablation.mechanisms: deep: ", "'encoder.layerz'")
    assert "ablation" not in jobs(dry_run(tmp_path, *wrong))


def test_tracks_to_tell_from_afar_are_looked_for_once_the_data_are_there(
    tmp_path: Path,
) -> None:
    """Of any data: some tracks are left out of them for their few positives."""
    config = load_config(
        DEMO,
        [
            f"results={tmp_path}",
            "ablation={mechanisms: [bigbird], long_range_tracks: [ACTIVE]}",
        ],
    )
    config.paths.chromatin_data.mkdir(parents=True)
    (config.paths.chromatin_data / "tracks.tsv").write_text(
        "track\tgroup\nOPEN1\tDHS\nSILENT\tHM\n"
    )
    job = find_job(config, "ablation", "bigbird-distance", None)
    with fails(ConfigError, "ACTIVE", config.paths.chromatin_data / "tracks.tsv"):
        run_job(
            job,
            tmp_path / "model",
            tmp_path / "checkpoints",
            World(0, 1, torch.device("cpu")),
        )


def test_two_attentions_may_be_the_same_under_two_names() -> None:
    long_range = {"attentions": {"bigbird": {}, "again": {}}, "seeds": [1, 2]}
    assert len(planned("long_range_arena", "long_range_arena", long_range)) == 2 * 2 * 2


def test_jobs_that_are_in_no_plan(tmp_path: Path) -> None:
    config = load_config(DEMO)
    for arm, seed in (("no-arm", 1), ("gc", 99)):
        with fails(UsageError, arm if seed == 1 else str(seed)):
            find_job(config, "table7", arm, seed)
    with fails(UsageError, "'table8'"):
        find_experiment("table8")


# The paper's tables and an ablation, run to their ends in miniature


SMALL_TABLES: dict[str, Any] = {
    **{"promoters": ["gc", "cnnprom"], "chromatin": ["gc", "k-mers"], "seeds": [1, 2]},
    **{
        "negative_sets": ["permuted"],
        "context_negative_set": "permuted",
        "windows": [200],
    },
    "models": [
        {"name": "bert-64", "attention": "full", "tokens": 64, "window": 300},
        {"name": "bigbird-200", "tokens": 200},
    ],
    **{"steps": {"promoters": 4, "chromatin": 4}, "learning_rates": [1e-3, 1e-2]},
}
SMALL_ABLATION: dict[str, Any] = {
    **{
        "mechanisms": ["full", "bigbird", "combiner_fixed"],
        "seeds": [1],
        "tokens": 64,
        "batch_tokens": 256,
    },
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
        100: sorted(["bigbird"] * 4 + others),
        200: sorted(["bigbird"] * 4 + others),
        300: sorted(["full"] * 4 + others),
    }
    assert promoters["auroc"].between(0, 1).all()
    tracks = pd.read_csv(report / "table7.tsv", sep="\t", keep_default_na=False)
    assert set(tracks["predictor"]) == {"bigbird", "full", "gc", "k-mers"}
    models = tracks[
        (tracks["predictor"] == "full") & (tracks["training"] == "fine-tuned")
    ]
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
    assert len(rates) == 3 * 2 + 3 and all(one == {1e-3, 1e-2} for one in rates)
    chosen = trained[trained["chosen"] == "yes"]
    assert len(chosen) == len(rates) and (trained["examples"] == 4 * 16).all(), trained


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_small_ablation(tmp_path: Path) -> None:
    report = run(tmp_path, {"ablation": SMALL_ABLATION}, "ablation") / "ablation"
    table = pd.read_csv(report / "ablation.tsv", sep="\t")
    assert table["mechanism"].tolist() == SMALL_ABLATION["mechanisms"]
    for column in (
        "bits_per_base",
        "time_bits_per_base",
        "tokens_per_second",
        "auroc_ACTIVE",
    ):
        assert table[column].notna().all()
    lengths = pd.read_csv(report / "ablation_lengths.tsv", sep="\t")
    assert sorted(set(lengths["tokens"])) == [64, 256]
