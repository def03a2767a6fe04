"""The configuration: defaults, overrides, one clear line for each fault, and what each stage reads of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bigbird_dna.config.chromatin import ChromatinTrainingConfig
from bigbird_dna.config.experiments import AblationConfig
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.promoters import ClassifierConfig
from bigbird_dna.config.reading import (
    check_config,
    complete,
    json_schema,
    load_config,
    parse_config,
    valid_keys,
)
from bigbird_dna.config.run import STAGES, Config, stage_text, stage_values
from bigbird_dna.config.safe_yaml import read_values
from bigbird_dna.config.section import Section
from bigbird_dna.config.training import PretrainingConfig, TrainingConfig
from bigbird_dna.errors import ConfigError
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.toys import written


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load_config(written(tmp_path / "empty.yaml", "")) == Config()


def test_overrides_win_and_are_typed(tmp_path: Path) -> None:
    path = written(
        tmp_path / "run.yaml", "encoder: {layers: 3}\ngenome: {test: [XV]}\n"
    )
    config = load_config(
        path, ["encoder.layers=5", "genome.test=[I, II]", "results=elsewhere"]
    )
    assert (config.encoder.layers, config.genome.test, config.results) == (
        5,
        ("I", "II"),
        "elsewhere",
    )


def test_an_assembly_by_another_name_is_that_assembly(tmp_path: Path) -> None:
    path = written(
        tmp_path / "run.yaml", "genome: {assembly: hg19, reference: GRCh37.reference}\n"
    )
    assert (
        load_config(path).genome.assembly == load_config(path).genome.title == "GRCh37"
    )
    assert load_config(path, ["genome.assembly=hg38"]).genome.assembly == "GRCh38"


@pytest.mark.parametrize(
    "text",
    [
        "genome: {assembly: hg99}",
        "genome: {assembly: [hg19]}",
        "encoder: {layer: 3}",
        "color: red",
        "encoder: {layers: many}",
        "encoder: {layers: 2.5}",
        "encoder: {dropout: 1.5}",
        "encoder: {hidden: 10, heads: 3}",
        "encoder: {window_blocks: 2}",
        "encoder: 7",
        "genome: {valid: [I], test: [I]}",
        "genome: {assembly: custom}",
        "genome: {name: mine}",
        "genome: {test: ['chr*', 'chr*']}",
        "promoters: {windows: {negative_sets: [random]}}",
        "promoters: {shuffled_label_control: permuted, windows: {negative_sets: [genomic]}}",
        "promoters: {classifier: {views: 2}}",
        "promoters: {model: sparse}",
        "promoters: {dense: {window: 1000, margin: 500}}",
        "promoters: {windows: {upstream: 5, downstream: 15}, training: {crop_jitter_bp: 10}}",
        "promoters: {windows: {upstream: 5, downstream: 5}}",
        "pretraining: {sequence_tokens: 9000}",
        "chromatin: {data: {window: 201}}",
        "chromatin: {data: {window: 1000}, training: {bins_per_window: 7}}",
        "chromatin: {training: {bins_per_window: 4}}",
        "chromatin: {model: {pooling: cls}, training: {bins_per_window: 3}}",
        "chromatin: {model: {pooling: cls, bin_layers: 1}}",
        "chromatin: {model: {pooling: bin, bin_layers: 1, head: linear}}",
        "chromatin: {model: {pooling: cls}, evaluation: {center_fraction: 0.5}}",
        "chromatin: {data: {tracks: deepsea, bin: 100}}",
        "chromatin: {data: {tracks: deepsea, valid_regions: ['7:1-2']}}",
        "- a list",
        "a: [",
    ],
)
def test_a_fault_is_named_in_one_line(tmp_path: Path, text: str) -> None:
    path = written(tmp_path / "run.yaml", text)
    with fails(ConfigError, path):
        load_config(path)


@pytest.mark.parametrize(
    ("file", "override"),
    [
        *(
            ("run.yaml", text)
            for text in ("encoder.layers", "=3", "results.deeper=3", "seed=[1")
        ),
        *((file, "seed=1") for file in ("none.yaml", ".")),
    ],
)
def test_a_malformed_override_and_what_is_no_file_are_refused(
    tmp_path: Path, file: str, override: str
) -> None:
    (tmp_path / "run.yaml").write_text("results: here\n")
    with fails(ConfigError):
        load_config(tmp_path / file, [override])


def test_sections_are_frozen() -> None:
    with fails(ValueError):
        parse_config({}).encoder.layers = 3  # type: ignore[misc]


def _leaves(section: Section, prefix: str = "") -> Iterator[str]:
    """The dotted names of all keys."""
    for key in type(section).model_fields:
        value = getattr(section, key)
        if isinstance(value, Section):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def _changed(section: Section, key: str) -> Section:
    """A copy with an impossible value for a dotted key: another section for one that isn't there."""
    first, _, rest = key.partition(".")
    impossible = (
        Section()
        if first in ("sequences", "long_range_arena", "byte_lm")
        else "changed"
    )
    value = _changed(getattr(section, first), rest) if rest else impossible
    return section.model_copy(update={first: value})


# Mistyped keys


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("encoder.layer", "encoder.layers"),
        ("encoder.laers", "encoder.layers"),
        ("promoters.upstream", "promoters.windows.upstream"),
        ("promoters.training.stpes", "promoters.training.steps"),
        ("promoter", "promoters"),
        ("color", None),
        ("x" * 100_000, None),
    ],
)
def test_an_unknown_key_is_named_with_its_file_and_the_nearest_key(
    tmp_path: Path, key: str, meant: str | None
) -> None:
    path = written(tmp_path / "mine.yaml", "seed: 2\n")
    with fails(ConfigError, path) as caught:
        load_config(path, [f"{key}=1"])
    assert "unknown key" in str(caught.value)
    hint = f"did you mean {meant!r}?" if meant else ""
    assert str(caught.value).partition("; ")[2] == hint


def test_valid_keys() -> None:
    keys = list(valid_keys())
    assert len(keys) > 200 and len(set(keys)) == len(keys)
    assert {
        "results",
        "encoder.layers",
        "promoters.windows.upstream",
        "long_range_arena.listops",
    } <= {*keys}


def test_files_are_checked_over_one_another(tmp_path: Path) -> None:
    below, above = tmp_path / "below.yaml", tmp_path / "above.yaml"
    below.write_text(
        "results: results/mine\nencoder: {layers: 3}\ngenome: {valid: [demo5], test: [demo6]}\n"
    )
    with fails(ConfigError, above):
        check_config([below, written(above, "encoder:\n  heads: 5\n")])
    found = check_config([below, written(above, "encoder: {layers: 5}\n")], ["seed=7"])
    assert (found.results, found.encoder.layers, found.seed) == ("results/mine", 5, 7)


# The schema for editors

SCHEMA = REPOSITORY / "resources/config.schema.json"
SHIPPED = sorted(
    p for p in (REPOSITORY / "workflow/config").glob("*.yaml") if p.stem != "nlp"
)


def test_the_shipped_schema_is_that_of_the_configuration() -> None:
    """`bigbird-dna check-config --schema > resources/config.schema.json` writes it."""
    assert json.loads(SCHEMA.read_text()) == json_schema()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_configurations_fit_the_schema_that_they_name(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    assert (path.parent / first.partition("=")[2]).resolve() == SCHEMA
    values = json.loads(json.dumps(read_values(path)))
    jsonschema.validate(values, json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values | {"seeed": 1}, json_schema())


# Stages

TRAINED = {"pretraining", "promoters", "chromatin", "start-sites"}
MODELS = {*TRAINED, "sequences"}
READERS: dict[str, set[str]] = {
    "chromatin.data.valid_regions": {"tokens", "chromatin-data", "chromatin"},
    "chromatin.data.test_regions": {"tokens", "chromatin-data", "chromatin"},
    "seed": {
        *MODELS,
        "tokens",
        "windows",
        "promoter-baseline",
        "chromatin-data",
    },
    "genome": {
        *TRAINED,
        "pieces",
        "tokens",
        "windows",
        "chromatin-data",
    },
    "pieces": {"pieces"},
    "tokens": {"tokens", "pretraining", "sequences"},
    "encoder": {*MODELS, "encoder"},
    "pretraining": {"pretraining"},
    "promoters.source": {"promoters", "start-sites"},
    "promoters.model": {"start-sites"},
    "promoters.dense": {"start-sites"},
    "promoters.windows": {"windows", "promoters"},
    "promoters.classifier": {"promoters"},
    "promoters.training": {"promoters"},
    "promoters.calibration": {"promoters"},
    "promoters.evaluation.baseline_kmer": {
        "promoter-baseline",
        "promoters",
    },  # k of the ensemble's member
    "promoters.evaluation": {"promoter-baseline"},
    "chromatin.data": {"chromatin-data", "chromatin"},
    "chromatin.model": {"chromatin"},
    "chromatin.training": {"chromatin"},
    "chromatin.calibration": {"chromatin-calibration"},
    "chromatin.evaluation.center_fraction": {
        "chromatin",
        "chromatin-evaluation",
        "chromatin-calibration",
    },
    "chromatin.evaluation.seed": {"chromatin-evaluation", "chromatin-calibration"},
    "chromatin.evaluation.baseline_kmer": {"chromatin-evaluation", "chromatin"},
    "chromatin.evaluation.baseline_dyads": {"chromatin-evaluation", "chromatin"},
    "chromatin.evaluation": {"chromatin-evaluation"},
    **{
        f"sequences.{key}": {"sequences"}
        for key in (
            "min_shared_kmers",
            "both_strands",
            "model",
            "training",
            "baselines",
            "evaluation",
        )
    },
    "long_range_arena": {"long-range"},
    "byte_lm": {"density"},
}


@pytest.mark.filterwarnings(
    "ignore:Pydantic serializer"
)  # the changed value is of no type
@pytest.mark.parametrize("key", list(_leaves(Config())))
def test_a_change_of_a_key_changes_the_files_of_the_stages_that_read_it(
    key: str,
) -> None:
    """Keys of no other stage than the report are the rules' own: where files go, which models there are."""
    before, after = Config(), _changed(Config(), key)
    assert isinstance(after, Config)
    changed = {
        stage
        for stage in STAGES
        if stage_values(before, stage) != stage_values(after, stage)
    }
    readers = [
        stages for name, stages in READERS.items() if f"{key}.".startswith(f"{name}.")
    ]
    # The page of a run shows nothing of targets of their own, or of models with a page of their own.
    apart = ("results", "data_dir", "long_range_arena", "byte_lm")
    shown = set() if key in apart or key.startswith("sequences.") else {"report"}
    assert changed == (readers[0] if readers else set()) | shown


def test_the_tokens_file_says_nothing_of_chromatin_where_no_region_is_held_out() -> (
    None
):
    """So it is that of earlier versions, and no run tokenizes again because of it."""
    assert stage_values(Config(), "tokens").keys() == {"seed", "genome", "tokens"}
    data = {"chromatin": {"data": {"test_regions": ["c:1-9"]}}}
    assert stage_values(parse_config(data), "tokens")["chromatin"] == {
        "data": {"test_regions": ["c:1-9"]}
    }


def test_keys_of_no_stage() -> None:
    read = {
        name
        for stage, sections in STAGES.items()
        if stage != "report"
        for name in sections.split()
    }
    unread = {
        key
        for key in _leaves(Config())
        if not any(f"{key}.".startswith(f"{s}.") for s in read)
    }
    expected = {
        "": "results data_dir num_gpus simulation.megabases",
        "promoters.": "chain shuffled_label_control annotation num_gpus",
        "sequences.": "data negatives sequence_column label_columns split_column task num_gpus",
        "chromatin.": "variants models min_positives_report num_gpus",
        "example_scan.": "stride suppress negative_set max_megabases",
        "tables.": "promoters chromatin initializations seeds negative_sets "
        "models learning_rates",
        "ablation.": " ".join(AblationConfig.model_fields),
    }
    assert unread == {
        f"{section}{key}" for section, keys in expected.items() for key in keys.split()
    }


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    "name",
    ["demo", "chr22", "grch37", "yeast", "yeast_factors", "minimal"],
)
def test_a_stage_s_file_is_a_configuration_of_its_sections_alone(
    tmp_path: Path, name: str, stage: str
) -> None:
    config = load_config(REPOSITORY / f"workflow/config/{name}.yaml")
    read = load_config(written(tmp_path / f"{stage}.yaml", stage_text(config, stage)))
    assert stage_values(read, stage) == stage_values(config, stage)
    for section in STAGES[stage].split():
        mine, theirs = read, config
        for part in section.split("."):
            mine, theirs = getattr(mine, part), getattr(theirs, part)
        assert mine == theirs
    assert read.results == Config().results


def test_what_decides_weights() -> None:
    """A training goes on from its checkpoint only if these are the same."""

    def aside(
        section: PretrainingConfig
        | ChromatinTrainingConfig
        | ClassifierConfig
        | EncoderConfig,
    ):
        return set(section.model_dump()) - set(section.deciding())

    computing = {
        "checkpoint_minutes",
        "grad_accumulation",
        "precision",
        "torch_compile",
        "evaluate_every",
    }
    pretraining = {"further_tokens", "evaluation_sequences"}
    assert aside(PretrainingConfig()) == computing | pretraining
    assert aside(ChromatinTrainingConfig()) == computing | {"evaluation_bins"}
    assert aside(ClassifierConfig()) == {"views"}
    assert aside(EncoderConfig()) == {"attention_backend", "gradient_checkpointing"}


def test_evaluations_are_twenty_unless_set() -> None:
    assert TrainingConfig(steps=600).evaluation_steps == 30
    assert TrainingConfig(steps=7).evaluation_steps == 1
    assert TrainingConfig(steps=600, evaluate_every=250).evaluation_steps == 250


@pytest.mark.parametrize(
    "changed",
    [
        # A stage's file with these keys is no contradiction: it lacks the section that they contradict.
        {"encoder": {"max_length": 256}},
        {"promoters": {"windows": {"negative_sets": ["permuted"]}}},
        {"chromatin": {"evaluation": {"center_fraction": 0.5}}},
        {"chromatin": {"training": {"bins_per_window": 3}}},
        {"promoters": {"windows": {"upstream": None}}},
        # Labeled sequences without a genome have nothing to pretrain on.
        {"sequences": {"data": "labels.tsv"}, "chromatin": {"data": {"tracks": None}}},
    ],
)
def test_what_does_not_fit_together_in_a_whole_run(changed: dict[str, Any]) -> None:
    with fails(ConfigError):
        complete(parse_config(changed)).check_targets()
