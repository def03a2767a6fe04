"""The configuration: defaults, overrides, one clear line for each fault, and what each stage reads of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bigbird_dna.config import (
    STAGES,
    AblationConfig,
    ChromatinTrainingConfig,
    Config,
    EncoderConfig,
    PretrainingConfig,
    PromoterModelConfig,
    RunPaths,
    Section,
    complete,
    load_config,
    parse_config,
    stage_text,
    stage_values,
)
from bigbird_dna.config.keys import json_schema, key_lines, nearest_key, valid_keys
from bigbird_dna.config.reading import check_config, check_keys, read_values
from bigbird_dna.errors import ConfigError
from tests.conftest import REPOSITORY
from tests.golden.messages import fails

# The keys of version 0.1 before its sections were the stages.
TRAINING = "steps batch_size accumulate optimizer precision evaluate_every checkpoint_every seed"


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("")
    assert load_config(path) == Config()


def test_overrides_win_and_are_typed(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("encoder: {layers: 3}\ngenome: {test: [XV]}\n")
    config = load_config(path, ["encoder.layers=5", "genome.test=[I, II]", "results=elsewhere"])
    assert (config.encoder.layers, config.genome.test, config.results) == (5, ("I", "II"), "elsewhere")


def test_an_assembly_by_another_name_is_that_assembly(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("genome: {assembly: hg19, reference: GRCh37.reference}\n")
    assert load_config(path).genome.assembly == load_config(path).genome.title == "GRCh37"
    assert load_config(path, ["genome.assembly=hg38"]).genome.assembly == "GRCh38"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("genome: {assembly: hg99}", r"genome\.assembly: .*'GRCh38' or 'custom' \(got 'hg99'\)"),
        ("genome: {assembly: [hg19]}", r"genome\.assembly: .*'custom' \(got "),
        ("encoder: {layer: 3}", "unknown key 'encoder.layer'"),
        ("colour: red", "unknown key 'colour'"),
        ("encoder: {layers: many}", r"encoder\.layers: .*integer \(got 'many'\)"),
        ("encoder: {layers: 2.5}", r"encoder\.layers: .*integer"),
        ("encoder: {layers: true}", r"encoder\.layers: .*integer"),
        ("encoder: {dropout: 1.5}", r"encoder\.dropout: .*less than 1 \(got 1\.5\)"),
        ("encoder: {hidden: 10, heads: 3}", "hidden 10 is not a multiple of heads 3"),
        ("encoder: {window_blocks: 2}", "window_blocks must be odd"),
        ("encoder: 7", "encoder: "),
        ("genome: {valid: [I], test: [I]}", "'I' stands in more than one"),
        ("genome: {assembly: custom}", "assembly custom needs a name: set genome.name"),
        ("genome: {name: mine}", "name 'mine' goes with assembly custom, not with demo"),
        ("genome: {assembly: custom, name: a b}", r"genome\.name: an assembly's name has letters, digits"),
        ("genome: {assembly: custom, name: '**'}", r"genome\.name: an assembly's name has letters, digits"),
        ("genome: {test: ['`*']}", r"genome\.test.* no spaces or backquotes"),
        ("genome: {test: ['chr*', 'chr*']}", r"'chr\*' stands in more than one"),
        ("genome: {aliases: '-x'}", r"genome\.aliases: a name can't start with '-'"),
        ("promoters: {windows: {negative_sets: [random]}}", r"promoters\.windows\.negative_sets"),
        (
            "promoters: {control: permuted, windows: {negative_sets: [genomic]}}",
            "promoters: control 'permuted' is not one of windows.negative_sets",
        ),
        ("promoters: {model: {views: 2}}", "several model.views differ by training.jitter"),
        (
            "promoters: {windows: {upstream: 5, downstream: 15}, training: {jitter: 10}}",
            "promoters: training.jitter leaves nothing of the window",
        ),
        ("promoters: {windows: {upstream: 5, downstream: 5}}", "a window below 20 bp"),
        ("pretraining: {sequence_tokens: 9000}", "above encoder.positions 4096"),
        ("chromatin: {data: {window: 201}}", "window 201 doesn't hold the bin of 200"),
        ("chromatin: {data: {window: 1000}, training: {neighbours: 7}}", "smaller than the bins"),
        ("chromatin: {training: {neighbours: 4}}", "neighbours must be odd"),
        (
            "chromatin: {model: {pooling: cls}, training: {neighbours: 3}}",
            "model.pooling cls predicts one bin a window: training.neighbours must be 1",
        ),
        ("chromatin: {model: {pooling: cls, bin_layers: 1}}", "bin_layers must be 0"),
        ("chromatin: {model: {pooling: bin, bin_layers: 1, head: linear}}", "head must be dense"),
        ("chromatin: {model: {pooling: cls}, evaluation: {middle: 0.5}}", "evaluation.middle must be 0"),
        ("chromatin: {data: {tracks: deepsea, bin: 100}}", r"chromatin\.data: .* bin can only be 200"),
        (
            "chromatin: {data: {tracks: deepsea, valid_regions: ['7:1-2']}}",
            r"tracks deepsea have the published .* valid_regions can only be \[\]",
        ),
        ("- a list", "a configuration is a mapping of sections"),
        ("a: [", "not YAML"),
    ],
)
def test_a_fault_is_named_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with fails(ConfigError) as caught:
        load_config(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("override", ["encoder.layers", "=3", "results.deeper=3", "seed=[1"])
def test_a_malformed_override_is_refused(tmp_path: Path, override: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("results: here\n")
    with fails(ConfigError):
        load_config(path, [override])


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    with fails(ConfigError):
        load_config(tmp_path / "none.yaml")
    with fails(ConfigError):
        load_config(tmp_path)


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
    impossible = Section() if first in ("sequences", "study", "long_range", "density") else "changed"
    value = _changed(getattr(section, first), rest) if rest else impossible
    return section.model_copy(update={first: value})


def _at(values: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    *sections, last = key.split(".")
    here = values
    for section in sections:
        here = here.setdefault(section, {})
    here[last] = value
    return values


# Mistyped keys


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("encoder.layer", "encoder.layers"),
        ("encoder.laers", "encoder.layers"),
        ("promoters.upstream", "promoters.windows.upstream"),
        ("promoters.steps", "promoters.training.steps"),
        ("promoters.training.stpes", "promoters.training.steps"),
        ("chromatin.bin", "chromatin.data.bin"),
        ("pretraining.optimiser", "pretraining.optimizer"),
        ("promoter", "promoters"),
        ("colour", None),
        ("x" * 100_000, None),
    ],
)
def test_the_nearest_valid_key(key: str, meant: str | None) -> None:
    assert nearest_key(key) == meant


def test_every_valid_key_is_its_own_nearest() -> None:
    keys = valid_keys()
    assert len(keys) > 200 and len(set(keys)) == len(keys)
    assert {"results", "encoder.layers", "promoters.windows.upstream", "long_range.listops"} <= {*keys}
    assert all(nearest_key(key) == key for key in keys)


def test_a_wrong_key_or_value_is_named_with_its_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("# mine\nseed: 2\nencoder:\n  heads: 4\n  layer: 3\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value) == f"{path}: line 5: unknown key 'encoder.layer'; did you mean 'encoder.layers'?"
    path.write_text("encoder: {heads: 4, hidden: 8,\n  layers: many}\n")
    with fails(ConfigError, path):
        load_config(path)
    with fails(ConfigError, path):
        path.write_text("seed: 1\n")
        load_config(path, ["encoder.depth=3"])


def test_keys_of_a_file_that_others_complete(tmp_path: Path) -> None:
    path = tmp_path / "overlay.yaml"
    path.write_text("genome: {assembly: custom}\npromoters:\n  windows:\n    upstraem: 3\n")
    with pytest.raises(ConfigError) as caught:
        check_keys(path)
    fault = "unknown key 'promoters.windows.upstraem'; did you mean 'promoters.windows.upstream'?"
    assert str(caught.value) == f"{path}: line 4: {fault}"
    path.write_text("genome: {assembly: custom}\n")  # whose name another file may give
    check_keys(path)
    path.write_text("tasks: {imdb: {kind: classification}}\n")
    check_keys(path)


def test_lines_of_keys_are_those_of_the_file() -> None:
    text = 'a: 1\n"b":\n  c: [1, 2]\n  d: {e: 1,\n    f: 2}\n'
    assert dict(key_lines(text)) == {"a": 1, "b": 2, "b.c": 3, "b.d": 4, "b.d.e": 4, "b.d.f": 5}
    assert dict(key_lines("")) == {}


def test_files_are_checked_over_one_another(tmp_path: Path) -> None:
    below, above = tmp_path / "below.yaml", tmp_path / "above.yaml"
    below.write_text("results: results/mine\nencoder: {layers: 3}\ngenome: {valid: [demo5], test: [demo6]}\n")
    above.write_text("encoder:\n  heads: 5\n")
    with fails(ConfigError, above):
        check_config([below, above])
    above.write_text("encoder: {layers: 5}\n")
    found = check_config([below, above], ["seed=7"])
    assert (found.results, found.encoder.layers, found.seed) == ("results/mine", 5, 7)


# The schema for editors

SCHEMA = REPOSITORY / "resources/config.schema.json"
SHIPPED = sorted(p for p in (REPOSITORY / "workflow/config").glob("*.yaml") if p.stem != "nlp")


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
    with fails(jsonschema.ValidationError):
        jsonschema.validate(values | {"seeed": 1}, json_schema())


# Stages

TRAINED = {"pretraining", "promoters", "chromatin"}
READERS: dict[str, set[str]] = {
    "chromatin.data.valid_regions": {"tokens", "chromatin-data", "chromatin"},
    "chromatin.data.test_regions": {"tokens", "chromatin-data", "chromatin"},
    "seed": {*TRAINED, "tokens", "windows", "promoter-baseline", "chromatin-data"},
    "genome": {*TRAINED, "tokens", "windows", "chromatin-data"},
    "tokens": {"tokens", "pretraining"},
    "encoder": {*TRAINED, "attention"},
    "pretraining": {"pretraining"},
    "splits.similarity": {"windows"},
    "promoters.windows": {"windows", "promoters"},
    "promoters.model": {"promoters"},
    "promoters.training": {"promoters"},
    "promoters.calibration.negatives": {"windows", "promoters"},
    "promoters.calibration": {"promoters"},
    "promoters.evaluation": {"promoter-baseline"},
    "chromatin.data": {"chromatin-data", "chromatin"},
    "chromatin.model": {"chromatin"},
    "chromatin.training": {"chromatin"},
    "chromatin.calibration": {"chromatin-calibration"},
    "chromatin.evaluation.middle": {"chromatin-evaluation", "chromatin-calibration"},
    "chromatin.evaluation.seed": {"chromatin-evaluation", "chromatin-calibration"},
    "chromatin.evaluation": {"chromatin-evaluation"},
    "long_range": {"long-range"},
    "density": {"density"},
}


@pytest.mark.filterwarnings("ignore:Pydantic serializer")  # the changed value is of no type
@pytest.mark.parametrize("key", list(_leaves(Config())))
def test_a_change_of_a_key_changes_the_files_of_the_stages_that_read_it(key: str) -> None:
    """Keys of no other stage than the report are the rules' own: where files go, which models there are."""
    before, after = Config(), _changed(Config(), key)
    assert isinstance(after, Config)
    changed = {stage for stage in STAGES if stage_values(before, stage) != stage_values(after, stage)}
    readers = [stages for name, stages in READERS.items() if f"{key}.".startswith(f"{name}.")]
    # The page of a run shows nothing of targets of their own.
    shown = set() if key in ("results", "local_data", "long_range", "density") else {"report"}
    assert changed == (readers[0] if readers else set()) | shown


def test_the_tokens_file_says_nothing_of_chromatin_where_no_region_is_held_out() -> None:
    """So it is that of earlier versions, and no run tokenises again because of it."""
    assert stage_values(Config(), "tokens").keys() == {"seed", "genome", "tokens"}
    data = {"chromatin": {"data": {"test_regions": ["c:1-9"]}}}
    assert stage_values(parse_config(data), "tokens")["chromatin"] == {"data": {"test_regions": ["c:1-9"]}}


def test_the_promoters_file_says_nothing_of_calibration_at_its_default() -> None:
    """So it is that of earlier versions, and no promoter model is trained again because of it."""
    for values in ({}, {"promoters": {"calibration": {"method": "auto"}}}):
        for stage in ("windows", "promoters"):
            assert "calibration" not in stage_values(parse_config(values), stage)["promoters"]
    other = {"promoters": {"calibration": {"method": "platt"}}}
    assert stage_values(parse_config(other), "promoters")["promoters"]["calibration"] == {"method": "platt"}


def test_intergenic_negatives_need_an_annotation() -> None:
    """Of a run; a stage's file has the windows alone."""
    windows = {"negative_sets": ["genomic", "intergenic"]}
    stage = stage_values(parse_config({"promoters": {"windows": windows}}), "windows")
    assert parse_config(stage).promoters.windows.negative_sets == ("genomic", "intergenic")
    for values, key in (
        ({"promoters": {"windows": windows}}, "promoters.windows.negative_sets"),
        ({"tables": {"negative_sets": ["intergenic"]}}, "tables.negative_sets"),
        ({"tables": {"context_set": "intergenic"}}, "tables.context_set"),
    ):
        held_out = {"assembly": "demo", "valid": ["demo5"], "test": ["demo6"]}
        config = parse_config({"genome": held_out, **values})
        with fails(ConfigError, key):
            config.check_targets()
        named = config.promoters.model_copy(update={"annotation": "x.gtf"})
        config.model_copy(update={"promoters": named}).check_targets()


def test_sequences_have_no_further_negatives() -> None:
    values = {"promoters": {"sequences": {"positives": "a.fa"}, "calibration": {"negatives": 1}}}
    with fails(ConfigError):
        parse_config(values)


def test_keys_of_no_stage() -> None:
    read = {name for stage, sections in STAGES.items() if stage != "report" for name in sections}
    unread = {key for key in _leaves(Config()) if not any(f"{key}.".startswith(f"{s}.") for s in read)}
    assert unread == {
        *("results", "local_data", "processes", "simulation.megabases", "splits.strata"),
        *("promoters.source", "promoters.sequences", "promoters.chain", "promoters.control"),
        "promoters.annotation",
        *("promoters.processes", "chromatin.processes"),
        *(f"ablation.{key}" for key in AblationConfig.model_fields),
        *("chromatin.variants", "chromatin.models", "chromatin.report_positives"),
        *("chromatin.pieces.data", "chromatin.pieces.predictions", "chromatin.pieces.variants"),
        *("scoring.stride", "scoring.negative_set", "scoring.max_megabases", "scoring.pieces", "study"),
        *("tables.promoters", "tables.chromatin", "tables.starts", "tables.seeds", "tables.negative_sets"),
        *(
            "tables.windows",
            "tables.network_steps.promoters",
            "tables.taxon",
            *("tables.motifs", "tables.network_batch_size", "tables.network_learning_rate"),
            "tables.comparator_window",
            "tables.models",
            "tables.probes",
        ),
        *("tables.context_set", "tables.network_steps.chromatin"),
        *("tables.model_steps.promoters", "tables.model_steps.chromatin"),
        "tables.pretraining_steps",
    }


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    "name", ["demo", "chr22", "grch37", "sequences", "yeast", "yeast_factors", "minimal"]
)
def test_a_stage_s_file_is_a_configuration_of_its_sections_alone(
    tmp_path: Path, name: str, stage: str
) -> None:
    config = load_config(REPOSITORY / f"workflow/config/{name}.yaml")
    path = tmp_path / f"{stage}.yaml"
    path.write_text(stage_text(config, stage))
    read = load_config(path)
    assert stage_values(read, stage) == stage_values(config, stage)
    for section in STAGES[stage]:
        mine, theirs = read, config
        for part in section.split("."):
            mine, theirs = getattr(mine, part), getattr(theirs, part)
        assert mine == theirs
    assert read.results == Config().results


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"encoder": {"positions": 256}}, "sequence_tokens 512 is above encoder.positions 256"),
        ({"promoters": {"windows": {"negative_sets": ["permuted"]}}}, "control 'genomic' is not one"),
        ({"chromatin": {"evaluation": {"middle": 0.5}}}, "evaluation.middle must be 0"),
        ({"chromatin": {"training": {"neighbours": 3}}}, "training.neighbours must be 1"),
    ],
)
def test_what_a_whole_run_leaves_out_has_to_fit_as_well(values: dict[str, Any], message: str) -> None:
    """A stage's file with these keys is no contradiction: it lacks the section that they contradict."""
    with fails(ConfigError):
        complete(parse_config(values))


def test_what_decides_weights() -> None:
    """A training goes on from its checkpoint only if these are the same."""
    aside = {
        kind: set(kind().model_dump()) - set(kind().deciding())
        for kind in (PretrainingConfig, ChromatinTrainingConfig, PromoterModelConfig, EncoderConfig)
    }
    all_trainings = {
        *("evaluate_every", "checkpoint_every", "accumulate", "precision"),
        *("attention_fallback", "compile_layers"),
    }
    assert aside == {
        PretrainingConfig: {*all_trainings, "evaluation_sequences", "ngram_order"},
        ChromatinTrainingConfig: {*all_trainings, "evaluation_bins"},
        PromoterModelConfig: {"views"},
        EncoderConfig: {"route", "gradient_checkpointing"},
    }


def test_names_of_a_run_s_files() -> None:
    """Scripts of users rely on them."""
    run = RunPaths(Path("r"))
    named = {name: getattr(run, name) for name in vars(RunPaths) if isinstance(getattr(run, name), Path)}
    assert {name: str(path) for name, path in named.items()} == {
        "simulated_reference": "r/simulated/genome.fa.gz",
        "simulated_promoters": "r/simulated/promoters.sga",
        "simulated_tracks": "r/simulated/tracks.tsv",
        "simulated_peaks": "r/simulated/peaks",
        "simulated_variants": "r/simulated/variants.vcf.gz",
        "reference": "r/genome/reference.fa.gz",
        "promoters": "r/genome/promoters.tsv",
        "promoter_counts": "r/genome/promoters.json",
        "tokens": "r/tokens",
        "tokenizer": "r/tokens/tokenizer.model",
        "token_statistics": "r/tokens/statistics.json",
        "pretrained": "r/models/pretrained",
        "pretraining_baselines": "r/pretraining/baselines.npz",
        "pretraining_bits": "r/pretraining/bits_per_base.tsv",
        "windows": "r/promoters",
        "sequences": "r/promoters/sequences.fa.gz",
        "training_sequences": "r/promoters/training.fa.gz",
        "test_sequences": "r/promoters/test.fa.gz",
        "scored_contig": "r/scores/contig.fa.gz",
        "deepsea_bundle": "r/chromatin/bundle",
        "labelled_bins": "r/chromatin/labelled",
        "chromatin_data": "r/chromatin/data",
        "combined_chromatin": "r/models/chromatin",
        "calibrated_chromatin": "r/models/chromatin-calibrated",
        "chromatin_kmers": "r/chromatin/kmers.npy",
        "held_out_bins": "r/chromatin/held-out",
        "nearest_bins": "r/chromatin/nearest.tsv",
        "nearest_bin_predictions": "r/chromatin/nearest.npy",
        "scored_variants": "r/chromatin/variants.vcf.gz",
        "report": "r/report",
        "report_page": "r/report.html",
        "checkpoints": "r/checkpoints",
    }
    assert str(run.download("x.gz")) == "r/downloads/x.gz"
    assert str(run.token_store("valid")) == "r/tokens/valid"
    assert str(run.promoter_model("{model}")) == "r/models/promoter-{model}"
    assert str(run.promoter_baseline("k-mer", "genomic")) == "r/promoters/kmer-genomic.parquet"
    assert str(run.promoter_baseline("position", "genomic")) == "r/promoters/position-genomic.parquet"
    assert str(run.nearest_promoters("genomic")) == "r/promoters/nearest-genomic.tsv"
    assert str(run.nearest_predictions("genomic")) == "r/promoters/nearest-genomic.parquet"
    assert str(run.promoter_scores("tsv")) == "r/scores/promoters.tsv"
    assert str(run.chromatin_model(8000, 0)) == "r/models/chromatin-8000-0"
    assert str(run.chromatin_predictions("{window}")) == "r/chromatin/predictions-{window}.npy"
    assert str(run.stage("tokens")) == "r/config/tokens.yaml"
    assert str(run.log("pretrain")) == "r/logs/pretrain.log"
    assert str(run.benchmark("pretrain")) == "r/benchmarks/pretrain.tsv"


# Promoters as sequences of the user's own.

OWN = {"sequences": {"positives": "p.fa"}, "model": {"initial": "random"}}


def test_what_a_configuration_of_sequences_leaves_out_follows_from_them() -> None:
    for negatives, sets in ((None, ("substituted", "permuted")), ("n.fa", ("given",))):
        own = {**OWN, "sequences": {"positives": "p.fa", "negatives": negatives}}
        config = complete(parse_config({"promoters": own, "encoder": {"positions": 64}}))
        config.check_targets()
        windows = config.promoters.windows
        assert (windows.upstream, windows.downstream, windows.negative_sets) == (None, None, sets)
        assert (config.promoters.control, config.scoring.negative_set) == (sets[0], sets[0])
        assert not (config.has_genome or config.is_simulated or config.has_pretraining)
        assert config.has_promoters and complete(config) == config
    said = parse_config(
        {
            "promoters": {**OWN, "windows": {"upstream": 7, "negative_sets": ["permuted"]}, "control": None},
            "genome": {"reference": "g.fa", "valid": ["a"]},
            "scoring": {"stride": 3},
        }
    )
    assert (said.promoters.windows.upstream, said.promoters.control) == (7, None)
    assert (said.scoring.negative_set, said.scoring.stride) == ("permuted", 3)
    assert said.has_genome and said.has_pretraining and not said.is_simulated
    said.check_targets()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"promoters": {**OWN, "source": "x.sga"}}, "sequences stand in place of source and chain"),
        ({"promoters": {**OWN, "chain": "x"}}, "sequences stand in place of source and chain"),
        ({"promoters": {**OWN, "annotation": "x.gtf"}}, "annotation needs promoters as loci on a genome"),
        (
            {"promoters": {**OWN, "windows": {"negative_sets": ["genomic"]}}},
            "negative set 'genomic' needs promoters as loci on a genome",
        ),
        (
            {"promoters": {**OWN, "windows": {"negative_sets": ["given"]}}},
            "negative set 'given' needs sequences.negatives",
        ),
        (
            {
                "promoters": {
                    "sequences": {"positives": "p.fa", "negatives": "n.fa"},
                    "windows": {"negative_sets": ["permuted"]},
                }
            },
            "sequences.negatives are the negative set 'given': add it to windows.negative_sets",
        ),
        ({"promoters": {**OWN, "windows": {"downstream": 5}}}, "with sequences say windows.upstream"),
        ({"promoters": {"sequences": {"positives": "a", "negatives": "a"}}}, "are the same file 'a'"),
        ({"promoters": {"sequences": {"negatives": "a"}}}, "promoters.sequences.positives: Field required"),
        ({"promoters": {"sequences": "p.fa"}}, "promoters.sequences: "),
        ({"promoters": {**OWN, "windows": 3}}, "promoters.windows: "),
        ({"promoters": OWN, "scoring": 3}, "scoring: "),
        ({"promoters": {"windows": {"upstream": None}}}, "can only be null with sequences"),
        (
            {"promoters": {"windows": {"negative_sets": ["given"]}, "control": "given"}},
            "negative set 'given' needs sequences.negatives",
        ),
    ],
)
def test_wrong_configurations_of_sequences(changed: dict[str, Any], message: str) -> None:
    with fails(ConfigError):
        complete(parse_config(changed))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"genome": {"test": ["a"]}}, "genome.test: names contigs, but promoters.sequences without"),
        (
            {"chromatin": {"data": {"tracks": "simulated"}}},
            "chromatin.data.tracks: needs a genome.reference beside promoters.sequences",
        ),
        (
            {"promoters": {**OWN, "model": {}}},
            "promoters.model.initial: 'pretrained' needs a genome.reference",
        ),
        ({"genome": {"reference": "g.fa"}}, "genome.valid: name at least one contig"),
        ({"scoring": {"negative_set": "given"}}, "scoring.negative_set: 'given' is not one of"),
    ],
)
def test_sequences_without_what_they_need(changed: dict[str, Any], message: str) -> None:
    with fails(ConfigError):
        parse_config({"promoters": OWN, **changed}).check_targets()
