"""The shipped configurations, and what the workflow would run for them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigbird_dna.config.reading import complete, load_config, parse_config
from bigbird_dna.config.run import STAGES, Config, stage_values
from bigbird_dna.config.safe_yaml import read_values
from bigbird_dna.config.section import Section
from bigbird_dna.genome.sources import find_inputs
from tests.conftest import REPOSITORY
from tests.golden.messages import message
from tests.toys import written
from tests.workflow.dry_runs import (
    JOBS,
    dry_run,
    jobs,
    overlay,
    own_genome,
    refused,
    snakemake,
    stage_configs,
)

# What they are laid over.
OVERLAYS = {"yeast_tables": "yeast", "chr22_study": "chr22"}
OVERLAYS |= dict.fromkeys(("long_range", "density_images", "density_text"), "demo")
CONFIGURATIONS = sorted(
    path
    for path in (REPOSITORY / "workflow" / "config").glob("*.yaml")
    # Tasks on text have a configuration of another form.
    if path.stem not in {*OVERLAYS, "nlp"}
)
NAMES = [path.stem for path in CONFIGURATIONS]


def write_pieces(config: Config, home: Path) -> None:
    """Stand-ins for the files of the section pieces."""
    for name in re.findall(r"'([^']+\.gz)'", str(config.pieces)):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=NAMES)
def test_shipped_configurations_are_valid(path: Path, tmp_path: Path) -> None:
    config = load_config(path)
    if path.stem in ("chr22", "minimal"):  # their genome is no public source but a file
        for name in (config.genome.reference, config.promoters.source):
            (tmp_path / (name or "none")).touch()
        config = config.model_copy(update={"data_dir": str(tmp_path)})
    complete(config).check_targets()
    find_inputs(config, data_sets=False)
    assert config.results == f"results/{path.stem}"
    if config.has_genome:
        assert config.genome.valid or config.chromatin.data.valid_regions
        assert config.genome.test or config.chromatin.data.test_regions


def laid_over(name: str) -> tuple[Config, Config]:
    """A configuration, and what it is once an overlay's keys have replaced its own."""

    def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
        both = {
            key
            for key in over
            if isinstance(over[key], dict) and isinstance(under.get(key), dict)
        }
        return under | over | {key: merged(under[key], over[key]) for key in both}

    under, over = (
        read_values(REPOSITORY / f"workflow/config/{each}.yaml")
        for each in (OVERLAYS[name], name)
    )
    return parse_config(under), parse_config(merged(under, over))


def test_tables_of_yeast_are_laid_over_its_configuration() -> None:
    """They can go on from its pretrained weights; all that is made for them lies apart."""
    one, both = laid_over("yeast_tables")
    for section in ("tokens", "pretraining", "windows"):
        assert stage_values(both, section) == stage_values(one, section)
    assert both.promoters.training.deciding() == one.promoters.training.deciding()
    both.check_targets()


def test_configurations_of_other_settings_write_other_files() -> None:
    """Runs that fill the same directory agree on all but their reports, and undo nobody's work."""
    single = {path.stem: load_config(path) for path in CONFIGURATIONS}
    runs = single | {name: laid_over(name)[1] for name in OVERLAYS}
    stages = {stage for stage in STAGES if stage != "report"}
    owners: dict[str, str] = {}
    for name, config in runs.items():
        owner = runs[owners.setdefault(config.results, name)]
        assert all(
            stage_values(config, stage) == stage_values(owner, stage)
            for stage in stages
        ), name
    assert owners["results/yeast_tables"] == "yeast_tables"


def test_the_study_of_chr22_has_its_data_and_results_of_its_own(tmp_path: Path) -> None:
    one, both = laid_over("chr22_study")
    assert both.has_pretraining and not one.has_pretraining
    assert (one.results, both.results) == ("results/chr22", "results/chr22_study")
    assert stage_values(both, "chromatin-data") == stage_values(one, "chromatin-data")
    assert (
        one.chromatin.training == both.chromatin.training
        and one.encoder == both.encoder
    )
    command, below, changed = own_genome(tmp_path)
    text = dry_run(
        tmp_path,
        command,
        below,
        REPOSITORY / "workflow/config/chr22_study.yaml",
        changed,
        "--",
        "table7",
    )
    found = jobs(text)
    assert (found["pretrain"], found["table7"]) == (1, 1)
    assert "promoters-" not in text
    held_out = {
        "valid": ["22:19,000,001-20,000,000"],
        "test": ["22:20,500,001-"],
        "exclude": [],
    }
    genome = stage_configs(text)["tokens"]["genome"]
    assert {key: genome[key] for key in held_out} == held_out


def test_demo_explains_every_key() -> None:
    path = REPOSITORY / "workflow/config/demo.yaml"

    def keys(values: dict[str, Any] | Section, prefix: str = "") -> set[str]:
        found = set()
        for key, value in values if isinstance(values, Section) else values.items():
            inner = isinstance(value, dict | Section)
            found |= keys(value, f"{prefix}{key}.") if inner else {prefix + key}
        return found

    assert keys(yaml.safe_load(path.read_text())) == keys(Config())


def test_the_paper_s_values() -> None:
    config = load_config(REPOSITORY / "workflow/config/grch37.yaml")
    encoder, pretraining, promoters = (
        config.encoder,
        config.pretraining,
        config.promoters,
    )
    assert (encoder.layers, encoder.hidden, encoder.heads) == (12, 768, 12)
    assert (encoder.max_length, encoder.block_size) == (4096, 64)
    assert (encoder.global_blocks, encoder.window_blocks, encoder.random_blocks) == (
        2,
        3,
        3,
    )
    assert (pretraining.steps, pretraining.batch_size) == (1_000_000, 256)
    assert (
        pretraining.optimizer.warmup_steps,
        pretraining.optimizer.learning_rate,
    ) == (10_000, 1e-4)
    windows, training = promoters.windows, promoters.training
    assert (windows.upstream, windows.downstream, promoters.classifier.pooling) == (
        5000,
        3000,
        "cls",
    )
    assert (training.steps, training.batch_size) == (711, 256)
    assert config.tokens.vocabulary == 32_000
    chromatin = config.chromatin
    data, model, training = chromatin.data, chromatin.model, chromatin.training
    assert (data.tracks, data.window) == ("deepsea", 8000)
    assert (model.pooling, model.initial, training.bins_per_window) == (
        "cls",
        "pretrained",
        1,
    )
    assert (
        chromatin.models,
        training.positive_weight,
        chromatin.evaluation.test_bins,
    ) == (2, 8, 0)
    assert (training.steps, training.batch_size) == (500_000, 256)


def test_the_demo_is_the_default(demo_run: str) -> None:
    variants = {
        "score_variants": 1,
        "model_regressions": 1,
        "score_variants_regressions": 1,
        "evaluate_variants": 1,
    }
    assert jobs(demo_run) == JOBS["demo"] | variants
    assert "results/demo/report/summary.txt" in demo_run


@pytest.mark.parametrize(
    "name",
    [
        "yeast",
        "grch37",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("ecoli", "grch37-short")),
    ],
)
def test_dry_runs(tmp_path: Path, name: str) -> None:
    text = dry_run(
        tmp_path,
        *("--configfile", REPOSITORY / f"workflow/config/{name}.yaml"),
        *("--config", f"data_dir={tmp_path}"),
    )
    assert jobs(text) == JOBS[name]
    assert (
        len(re.findall(rf"bigbird-dna prepare fetch .* --local-data={tmp_path} ", text))
        == JOBS[name]["prepare_fetch"]
    )
    human = name.startswith("grch37")
    assert ("--from-assembly GRCh38" in text) == human
    assert list(tmp_path.glob("results")) == []


def test_pieces_take_the_place_of_genome_and_promoters(tmp_path: Path) -> None:
    write_pieces(
        load_config(REPOSITORY / "workflow/config/human_pieces.yaml"), tmp_path
    )
    text = dry_run(
        tmp_path,
        *("--configfile", REPOSITORY / "workflow/config/human_pieces.yaml"),
        *("--config", f"data_dir={tmp_path}"),
        *("--", "results/human_pieces/models/start-sites-trained"),
    )
    assert jobs(text) == {
        **{"stage_config": 2, "prepare_fetch": 2, "prepare_pieces": 1},
        **{"prepare_reference": 1, "prepare_promoters": 1, "start_model": 1},
        **{"finetune_start_sites": 1},
    }
    assert "prepare reference results/human_pieces/pieces/genome.fa.gz" in text
    assert "--ignore results/human_pieces/pieces/ignore.bed" in text


def test_keys_on_the_command_line_leave_the_demo_s_others(tmp_path: Path) -> None:
    text = dry_run(tmp_path, "--config", "results=elsewhere")
    assert "results/demo" not in text
    assert "elsewhere/report/summary.txt" in text
    assert stage_configs(text)["tokens"]["genome"]["test"] == ["demo6"]


def test_sections_on_the_command_line_have_numbers(tmp_path: Path) -> None:
    ablation = "ablation={mechanisms: [bigbird, window], seeds: [1, 7], steps: 30}"
    text = dry_run(tmp_path, "--config", ablation, "--", "ablation")
    assert jobs(text)["ablation"] == 1


def test_each_stage_gets_its_sections(demo_run: str) -> None:
    config = load_config(REPOSITORY / "workflow/config/demo.yaml")
    # Those of targets and models of their own, and of models of promoter windows.
    own = ("encoder", "long-range", "density", "sequences", "promoters", "pieces")
    there = [stage for stage in STAGES if stage not in own]
    assert stage_configs(demo_run) == {
        stage: stage_values(config, stage) for stage in there
    }


# A wrong configuration is one line, before any job: the demo's, a genome's


PERMUTED = {"windows": {"negative_sets": ["permuted"]}}
YEAST: dict[str, Any] = {
    "genome": {"assembly": "sacCer3", "reference": "sacCer3.reference"},
    "promoters": {"source": "sacCer3.promoters"},
}
DEMO: dict[str, tuple[dict[str, Any], str]] = {
    "unknown-key": ({"encoder": {"laers": 4}}, "changed.yaml: unknown key"),
    "no-test-contig": ({"genome": {"test": []}}, "genome.test"),
    "simulated-region": ({"genome": {"test": ["demo6:1-9"]}}, "'demo6:1-9'"),
    "no-scoring-model": (
        {"promoters": {**PERMUTED, "shuffled_label_control": None}},
        "example_scan.negative_set 'genomic'",
    ),
    "bundle-is-published": (
        {"chromatin": {"data": {"tracks": "deepsea"}}},
        "negative_fraction",
    ),
    "no-local-data": (YEAST | {"data_dir": "nowhere"}, "nowhere"),
    "no-tracks": (
        {"chromatin": {"data": {"tracks": "my.tsv"}}},
        "chromatin.data.tracks: 'my.tsv'",
    ),
    "no-blacklist": (
        {"chromatin": {"data": {"blacklist": "x.bed"}}},
        "chromatin.data.blacklist: 'x.bed'",
    ),
    "no-variants": (
        {"data_dir": "data", "chromatin": {"variants": "x.vcf"}},
        "chromatin.variants: 'x.vcf'",
    ),
    "template": ({"results": "r{wildcards.y}"}, "'r{wildcards.y}'"),
}
NO_REGION: dict[str, Any] = {"genome": {"valid": []}}
GENOME: dict[str, tuple[dict[str, Any], str]] = {
    "nothing-to-do": (
        {"chromatin": {"data": {"tracks": None}}},
        "chromatin.data.tracks",
    ),
    "pretraining-contig": (
        NO_REGION | {"chromatin": {"model": {"initial": "pretrained"}}},
        "genome.valid",
    ),
    "no-test-region": ({"genome": {"test": []}}, "genome.test"),
    "promoter-contig": (
        NO_REGION
        | {
            "promoters": {"source": "my.sga"},
            "chromatin": {"data": {"valid_regions": ["22:5-"]}},
        },
        "genome.valid",
    ),
    "no-aliases": ({"genome": {"aliases": "gone.tsv"}}, "genome.aliases: 'gone.tsv'"),
}


QUICK = {"unknown-key", "no-local-data", "no-tracks", "template"}
QUICK |= {"nothing-to-do", "promoter-contig"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in (*DEMO, *GENOME)
    ],
)
def test_a_fault_is_one_line(tmp_path: Path, name: str) -> None:
    changed, named = {**DEMO, **GENOME}[name]
    if name in DEMO:
        arguments = overlay(tmp_path, changed)
    else:
        arguments = own_genome(tmp_path, **changed)
    message(refused(snakemake(tmp_path, "--dry-run", *arguments)), named)


def test_a_number_with_an_exponent_is_one(tmp_path: Path) -> None:
    """Snakemake's reader of YAML takes it for a text."""
    rate = {"pretraining": {"optimizer": {"learning_rate": "1e-3"}}}
    (tmp_path / "mine.yaml").write_text(
        "pretraining: {optimizer: {learning_rate: 1e-3}}"
    )
    assert yaml.safe_load((tmp_path / "mine.yaml").read_text()) == rate
    demo = REPOSITORY / "workflow/config/demo.yaml"
    done = snakemake(
        tmp_path, "--dry-run", "--configfile", demo, tmp_path / "mine.yaml"
    )
    assert done.code == 0, done


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("seed: 1\nseed: 2", "line 2"),
    ],
    ids=["twice"],
)
def test_a_file_that_snakemake_reads_otherwise_is_refused(
    tmp_path: Path, text: str, named: str
) -> None:
    path = written(tmp_path / "mine.yaml", text)
    message(
        refused(snakemake(tmp_path, "--dry-run", "--configfile", path)), path, named
    )
