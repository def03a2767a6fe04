"""What the workflow would run for tracks: of the simulation, of peaks, of DeepSEA's bundle."""

import re
from pathlib import Path

from bigbird_dna.genome.chromatin.dataset import read_dataset
from tests.conftest import REPOSITORY
from tests.genome.chromatin import small_bundle
from tests.workflow.dry_runs import (
    CHROMATIN,
    CHROMATIN_ALONE,
    COMMON,
    SOURCE_JOBS,
    dry_run,
    jobs,
    overlay,
    own_genome,
    snakemake,
    stage_configs,
)


def test_chromatin_of_the_simulation(demo_run: str) -> None:
    # Variants on sequence that no training saw.
    assert "results/demo/simulated/variants.vcf.gz --contig=demo6 --reference" in demo_run
    assert "evaluate variants results/demo/chromatin/variants.vcf.gz -o results/demo/report" in demo_run
    report = "results/demo/report"
    assert (
        f"--groups={report}/chromatin/groups.tsv --track-table={report}/chromatin/tracks.tsv"
        f" --variants={report}/variants.tsv"
    ) in demo_run


def test_chromatin_of_a_folder_of_peaks_by_an_ensemble(tmp_path: Path) -> None:
    (tmp_path / "peaks").mkdir()
    (tmp_path / "black.bed").write_text("demo1\t0\t1000\n")
    data = {"tracks": "peaks", "compare_window": None, "blacklist": "black.bed"}
    changes = {"data_dir": str(tmp_path), "chromatin": {"models": 2, "data": data}}
    text = dry_run(tmp_path, *overlay(tmp_path, changes))
    assert f"--tracks {tmp_path}/peaks " in text and f"--blacklist {tmp_path}/black.bed " in text
    expected = {**CHROMATIN, "evaluate_test_bins": 1, "finetune_chromatin": 2, "model_ensemble": 1}
    assert jobs(text) == COMMON | SOURCE_JOBS["demo"] | expected | {"stage_config": 11}
    assert "--compare window" not in text


def test_chromatin_of_a_genome_of_the_user_s_own(tmp_path: Path) -> None:
    text = dry_run(tmp_path, *own_genome(tmp_path))
    assert jobs(text) == CHROMATIN_ALONE | {"score_variants": 1}
    local = f"'{tmp_path}/local data"
    assert f"prepare reference {local}/chr22_1-22000000.fa.gz' -o " in text
    assert f"--tracks {local}/peaks'" in text
    assert f"{local}/chr22_17442913-17680545.1000G_sites.vcf.gz'  --reference" in text
    # Not the promoters of a run in the default directory.
    assert """--set 'results="results/chr22"' -o results/chr22/tokens/statistics.json""" in text
    (summary,) = re.findall("bigbird-dna report summary .*", text)
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
    pretraining = {"prepare_tokens": 1, "pretrain": 1, "evaluate_pretraining": 1, "report_pretraining": 1}
    pretraining |= {"train_baseline_language": 1, "stage_config": 8}
    assert jobs(text) == CHROMATIN_ALONE | {"score_variants": 1} | pretraining
    assert "report summary --pretraining=results/chr22/models/pretrained/metrics.json " in text


def test_chromatin_of_deepseas_bundle(tmp_path: Path) -> None:
    text = dry_run(tmp_path, "--configfile", REPOSITORY / "workflow/config/grch37.yaml")
    downloads = "results/grch37/downloads"
    for key, file in {
        "bundle": "deepsea_train_bundle.v0.9.tar.gz",
        "bins": "allTFs.pos.bed.tar.gz",
        "tracks": "deepsea_metadata.tsv",
    }.items():
        assert f"bigbird-dna prepare fetch DeepSEA.{key} -o {downloads}/{file}" in text
    assert (
        f"--tracks {downloads}/deepsea_metadata.tsv --deepsea-bundle results/grch37/chromatin/bundle"
        f" --deepsea-bins {downloads}/allTFs.pos.bed.tar.gz"
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
        *("--config", f"data_dir={local}", f"results={results}"),
        *("--allowed-rules", "prepare_fetch", "stage_config", "prepare_deepsea", "prepare_chromatin"),
        *("--", results / "chromatin/data/bins.parquet"),
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    data = read_dataset(results / "chromatin/data")
    assert data.info["bins"] == small_bundle.SIZES
    assert data.tracks[0].published_auroc == 0.9
    assert not (results / "chromatin/bundle").exists()
    assert (results / "downloads/deepsea_train_bundle.v0.9.tar.gz").exists()
