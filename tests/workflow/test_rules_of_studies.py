"""What the workflow would run for a study, the paper's tables and an ablation."""

import itertools
import re
from collections.abc import Iterable
from pathlib import Path

from tests.conftest import REPOSITORY
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


def none_share_checkpoints(commands: Iterable[str]) -> int:
    """How many trainings there are; two may have the same settings, and would shut each other out."""
    places = [
        one.split(" --checkpoint-dir ")[1].split()[0] for one in commands if " --checkpoint-dir " in one
    ]
    assert len({*places}) == len(places)
    return len(places)


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
                "training.train_fraction": share,
                "training.seed": seed,
                "training.steps": 900 if start == "random_long" else 100,
                "training.evaluate_every": 20,
                **({"calibration.negatives": 0} if task == "promoters" else {}),
            }
            words = own.split()
            assert words[:2] == [f"finetune-{name}", f"results/demo/config/{task}.yaml"]
            sets = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
            assert sets == [f"{task}.{key}={value}" for key, value in said.items()]
            assert ("--pretrained" in words) == (start == "pretrained")
            assert f"--checkpoint-dir results/demo/checkpoints/study/{task}/{start}-{share}-{seed} " in own
    (report,) = re.findall(r"bigbird-dna experiment pretraining-study (.*) > ", study_run)
    assert report.count("/model ") == 24
    assert (
        "--labels results/demo/chromatin/held-out/labels.npz --pretrained results/demo/models/pretrained"
        " --benchmarks results/demo/benchmarks -o results/demo/report"
    ) in report
    assert all(section in stage_configs(study_run)["report"]["study"] for section in STUDY)


def test_a_study_of_chromatin_alone_is_what_asks_for_pretraining(tmp_path: Path) -> None:
    study = {"tasks": ["chromatin"], "train_fractions": [0.5], "seeds": [1]}
    text = dry_run(tmp_path, *own_genome(tmp_path, study=study))
    found = jobs(text)
    assert (found["pretrain"], found["study_chromatin"], found["study_predictions"]) == (1, 2, 2)
    assert "study_promoter" not in found and "probe_promoters" not in found
    assert len(re.findall("finetune-chromatin .*--pretrained ", text)) == 1


def test_tables_have_a_model_for_each_start_and_seed_and_comparators(demo_run: str, tmp_path: Path) -> None:
    tables = {
        **{"promoters": ["gc", "cnnprom"], "chromatin": ["motifs", "danq"], "seeds": [1, 7]},
        **{"negative_sets": ["upstream", "permuted"], "windows": [1000], "taxon": "fungi"},
        **{"lm_steps": {"promoters": 20}, "cnn_steps": {"promoters": 30}, "context_negative_set": "genomic"},
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

    # The run's own pretraining; of comparators the networks, of which each seed has one.
    assert none_share_checkpoints(commands) == 1 + 2 + 16 + 12 + 8 + 3
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
    windows = one("prepare promoter-windows", "/1000/")
    assert "downstream=250" in windows and "negative_sets=[genomic]" in windows
    network = one(f"-o {home}/promoters/400/permuted/cnnprom-7 ")
    assert "--steps=30" in network and "--seed 7" in network
    assert "--steps" not in one(f"-o {home}/promoters/400/permuted/gc-1 ")
    probe = one(f"-o {home}/promoters/1000/genomic/own-random-probe-7 ")
    assert "--model=results/demo/models/pretrained --weights=random" in probe and "--window=" not in probe
    probe = one(f"-o {home}/chromatin/bins/bert-512-pretrained-probe-1 ")
    assert f"--model={home}/pretraining/bert-512/model" in probe and "--window=2000" in probe
    scan = one("train comparator-chromatin", " motifs ")
    assert "--taxon=fungi" in scan and "chromatin.evaluation.test_bins=800" in scan
    report = one("report paper-table table7")
    assert report.count("/model ") == 8 and "--track-table results/demo/chromatin/data/tracks.tsv" in report


def test_a_run_without_promoters_has_no_table_of_them(tmp_path: Path) -> None:
    words = own_genome(tmp_path)
    outcome = snakemake(tmp_path, "--dry-run", *words, "--", "table6")
    assert outcome.returncode == 1 and "No rule to produce table6" in outcome.stdout
    found = jobs(dry_run(tmp_path, *words, "--", "table5", "table7"))
    assert (found["table5"], found["table7"], found["pretrain"]) == (1, 1, 1)


def test_an_ablation_trains_every_mechanism_for_the_same_steps_and_time(
    demo_run: str, tmp_path: Path
) -> None:
    deep = {"name": "deep", "attention": "combiner_fixed", "attention_options": {"pooling": "deepsets_max"}}
    ablation = {
        **{"mechanisms": ["full", "bigbird", deep], "seeds": [1, 7], "tokens": 256, "batch_tokens": 1024},
        **{"steps": 40, "lengths": [1024, 4096], "long_input_steps": 3, "distance": ["ACTIVE"]},
        **{"long_range_layers": 4, "head_init": "local"},
    }
    text = dry_run(tmp_path, *overlay(tmp_path, {"ablation": ablation}), "--", "ablation")
    found = jobs(text)
    assert not [name for name in jobs(demo_run) if "ablation" in name]
    # Of the same time the reference has its models of the same steps.
    trainings = 3 * 2 * (1 + 2) + 2 * 2
    assert {name: count for name, count in found.items() if "ablation" in name} == {
        **{"ablation_cost": 3, "ablation_plan": 2, "ablation_training": trainings, "ablation_bits": 4},
        **{"ablation_distance": 6, "ablation_predictions": 6, "ablation_tracks": 1, "ablation": 1},
    }
    assert "pretrain" not in found and "finetune_chromatin" not in found
    commands = re.findall(r"^Shell command: bigbird-dna (.*) > ", text, re.MULTILINE)
    place = "results/demo/ablation"
    (long,) = (one for one in commands if f"--output {place}/deep/4096-7/model " in one)
    for words in (
        """--set 'encoder.attention="combiner_fixed"'""",
        """--set 'encoder.attention_options={"pooling": "deepsets_max"}'""",
        """--set 'encoder.head_init="local"'""",
        "--set encoder.max_length=4096 --set pretraining.steps=13 --set pretraining.sequence_tokens=4096",
        """'pretraining.length_curriculum=[{"steps": 10, "tokens": 256}]' --set pretraining.seed=7 """,
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
    (report,) = (one for one in commands if one.startswith("experiment ablation-report"))
    assert f"--steps={place}/steps.npz --time={place}/time.npz --length={place}/1024.npz" in report
    assert "--track=ACTIVE" in report and report.count("--predictions=") == 6
    held_out = "results/demo/chromatin/held-out"
    assert f"--labels {held_out}/labels.npz --bins {held_out}/bins.parquet --track-table" in report
    assert "--min-positives=1" in report and "--no-published" not in report
    assert none_share_checkpoints(commands) == trainings + 6
    assert f"--checkpoint-dir {place.replace('ablation', 'checkpoints/ablation')}/deep/4096-7 " in long


def test_an_ablation_of_so_many_seconds_without_tracks(tmp_path: Path) -> None:
    own = {"name": "bigbird", "encoder": {"random_blocks": 2}}
    ablation = {"mechanisms": [own, "window"], "time_budget_s": 9, "lengths": [], "long_range_tracks": []}
    text = dry_run(tmp_path, *overlay(tmp_path, {"ablation": ablation}), "--", "ablation")
    found = jobs(text)
    assert (found["ablation_training"], found["ablation_plan"], found["ablation_bits"]) == (4, 2, 2)
    assert "ablation_distance" not in found and "train_baseline_chromatin" not in found
    assert text.count("--seconds=9.0 ") == 2
    assert " --no-published=bigbird --reference bigbird" in text


def test_an_ablation_is_looked_at_before_its_work(tmp_path: Path) -> None:
    """Only where it is asked for: another target doesn't go by its section."""
    deep = {"name": "deep", "attention": "full", "encoder": {"layerz": 3}}
    wrong = overlay(tmp_path, {"ablation": {"mechanisms": ["bigbird", deep]}})
    outcome = snakemake(tmp_path, "--dry-run", *wrong, "--", "ablation")
    refused(outcome, "ablation.mechanisms: deep: unknown key 'encoder.layerz'")
    assert "ablation" not in jobs(dry_run(tmp_path, *wrong))
    sequences = REPOSITORY / "workflow/config/sequences.yaml"
    (tmp_path / "promoters.fa").touch()
    outcome = snakemake(tmp_path, "--dry-run", "--configfile", sequences, "--", "ablation")
    refused(outcome, "ablation: needs a genome.reference to pretrain on")


def test_tracks_to_tell_from_afar_are_looked_for_once_the_data_are_there(tmp_path: Path) -> None:
    """Of any data: some tracks are left out of them for their few positives."""
    data, found = tmp_path / "results/demo/chromatin/data", "results/demo/ablation/tracks.txt"
    data.mkdir(parents=True)
    for file in ("bins.parquet", "labels.npz", "dataset.json"):
        (data / file).touch()
    (data / "tracks.tsv").write_text("track\tgroup\nOPEN1\tDHS\nSILENT\tHM\n")
    for names, code in ((["SILENT", "ACTIVE"], 1), (["SILENT", "OPEN1"], 0)):
        values = overlay(tmp_path, {"ablation": {"mechanisms": ["bigbird"], "long_range_tracks": names}})
        only = ("--allowed-rules", "ablation_tracks", "--quiet", "all", "--", found)
        assert snakemake(tmp_path, *values, *only).returncode == code
        said = (tmp_path / "results/demo/logs/ablation-tracks.log").read_text()
        assert said.startswith(
            "bigbird-dna: error: ablation.long_range_tracks: ACTIVE is not a track of" * code
        )
        assert (said == "") == (code == 0) and (tmp_path / found).exists() == (code == 0)


def test_classifiers_of_long_range_have_checkpoints_of_their_own(tmp_path: Path) -> None:
    """Two attentions may be the same under two names."""
    long_range = {"attentions": {"bigbird": {}, "again": {}}, "seeds": [1, 2]}
    text = dry_run(tmp_path, *overlay(tmp_path, {"long_range": long_range}), "--", "long_range")
    commands = re.findall(r"^Shell command: bigbird-dna (experiment lra-train .*) > ", text, re.MULTILINE)
    assert none_share_checkpoints(commands) == len(commands) == 2 * 2 * 2
