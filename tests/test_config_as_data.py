"""A configuration is data: any file is a configuration, or one short line says why it is none."""

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from human_pieces import Settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from snakemake.cli import parse_config as of_snakemake

from bigbird_dna.config.reading import (
    checked,
    complete,
    load_config,
    parse_config,
    valid_keys,
)
from bigbird_dna.config.run import Config, stage_text
from bigbird_dna.errors import ConfigError
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.toys import written

WRONG: dict[str, tuple[str | bytes, str]] = {
    "syntax": ("seed: 1\nencoder: [", "line 2"),
    "brackets": ("seed: " + "[" * 3000 + "]" * 3000, "recursion"),
    "date": ("results: 2024-01-01", "results"),
    "nan": ("pretraining: {mask_fraction: .nan}", "mask_fraction"),
    "infinite": ("pretraining: {optimizer: {learning_rate: 1e999}}", "learning_rate"),
    "python": ("results: !!python/object/apply:os.system ['true']", "line 1"),
    "key": ("? [a]: b", "line 1"),
    "circle": ("genome: &genome {test: [*genome]}", "genome"),
    "no-anchor": ("genome: *genome", "line 1"),
    "template": ("__use_yte__: true\nseed: 1", "unknown key '__use_yte__'"),
    "two": ("seed: 1\n---\nseed: 2", "line 2"),
    "nul": (b"seed: 1\nresults: a\0b", "#x0"),
    "latin": (b"seed: 1\nresults: \xe9", "utf-8"),
    "long-key": ("a" * 200_000 + ": 1", "line 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_another_file_gets_one_short_line(tmp_path: Path, name: str) -> None:
    text, named = WRONG[name]
    path = written(tmp_path / "run.yaml", text)
    with fails(ConfigError, str(path), named) as caught:
        load_config(path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < len(str(path)) + 500


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    assert (
        load_config(written(tmp_path / "run.yaml", b"\xef\xbb\xbfseed: 7\n")).seed == 7
    )


def test_an_override_changes_a_repeated_value_in_one_place(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("""
pretraining: {optimizer: &slow {learning_rate: 1e-5}}
promoters: {training: {optimizer: *slow}}
""")
    config = load_config(path, ["promoters.training.optimizer.learning_rate=1e-3"])
    assert config.pretraining.optimizer.learning_rate == 1e-5
    assert config.promoters.training.optimizer.learning_rate == 1e-3


def test_numbers_as_people_write_them(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    for text, seed in {"1_000": 1000, "0xff": 255, "+7": 7, "0": 0}.items():
        assert load_config(written(path, f"seed: {text}")).seed == seed
    for text, rate in {
        "5e-4": 5e-4,
        "5.0e-4": 5e-4,
        ".5": 0.5,
        "2": 2.0,
        "1_0.5": 10.5,
    }.items():
        path.write_text(f"pretraining: {{optimizer: {{learning_rate: {text}}}}}")
        assert load_config(path).pretraining.optimizer.learning_rate == rate


@pytest.mark.parametrize(
    "text", ["1e-3", "1E-3", "0.1e-2", "+1e-3", ".1e-2", "1000e-6"]
)
def test_a_rate_is_a_number_for_every_reader(tmp_path: Path, text: str) -> None:
    """YAML 1.1, which PyYAML and Snakemake read, takes most of these for texts."""
    path = written(
        tmp_path / "run.yaml",
        f"pretraining: {{optimizer: {{learning_rate: {text}}}}}",
    )
    elsewhere = yaml.safe_load(path.read_text())
    set_here = load_config(
        written(tmp_path / "a.yaml", ""),
        [f"pretraining.optimizer.learning_rate={text}"],
    )
    assert set_here.pretraining.optimizer.learning_rate == 0.001
    for config in (load_config(path), parse_config(elsewhere)):
        assert config.pretraining.optimizer.learning_rate == 0.001
    assert parse_config({"genome": {"test": ["1e5"]}}).genome.test == ("1e5",)
    for wrong in ("1e-3x", "1e400", "1.5e0"):
        with fails(ConfigError, "steps"):
            parse_config({"pretraining": {"steps": wrong}})


@pytest.mark.parametrize(
    "value", [datetime.date(2024, 1, 1), object(), {1: 2}, float("nan")]
)
def test_values_that_other_readers_make_are_refused(value: object) -> None:
    with fails(ConfigError):
        parse_config({"genome": {"test": [value]}}, "mine")


KEYS = st.sampled_from(
    sorted({part for key in valid_keys() for part in key.split(".")})
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.dates()
    | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(KEYS | st.text() | st.integers(), inner)
    ),
    max_leaves=12,
)
PIECES = r"""
results: seed: genome: [ ] { } , - & * a ! !!int !!float !!timestamp !!bool !!null ? | > % @ " ' # : 0x_ 1:2
2024-01-01 <<: --- ... 1e9 .inf ~ = \ \u \x0 %YAML 1.1
"""
WORDS = st.sampled_from([*PIECES.split(), "\n", "\t"])
# YAML has no other characters, except by their codes.
PRINTABLE = st.text().filter(str.isprintable)


def _is_a_configuration_or_one_line(path: Path) -> None:
    try:
        assert isinstance(load_config(path), Config)
    except ConfigError as error:
        assert str(error).startswith(f"{path}: ") and str(error).isprintable(), str(
            error
        )
        assert len(str(error)) < len(str(path)) + 700


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(values=st.dictionaries(KEYS, VALUES, max_size=3))
def test_any_values_are_a_configuration_or_one_line(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    try:
        complete(parse_config(values))
    except ConfigError as error:
        assert str(error).isprintable() and len(str(error)) < 700, str(error)
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(values, allow_unicode=True), errors="surrogatepass")
    _is_a_configuration_or_one_line(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    names=st.lists(PRINTABLE, unique=True, max_size=3),
    # The text null is no value, as in Snakemake's --config.
    tracks=PRINTABLE.filter(lambda text: text != "null"),
)
def test_what_a_stage_is_told_is_what_the_configuration_says(
    tmp_path: Path, names: list[str], tracks: str
) -> None:
    try:
        config = parse_config(
            {"genome": {"exclude": names}, "chromatin": {"data": {"tracks": tracks}}}
        )
    except ConfigError:
        return
    path = written(tmp_path / "stage.yaml", stage_text(config, "chromatin-data"))
    read = load_config(path, [f"data_dir={json.dumps(tracks, ensure_ascii=False)}"])
    assert (read.genome, read.chromatin.data, read.data_dir) == (
        config.genome,
        config.chromatin.data,
        tracks,
    )


# Values that would end a run after hours, or write where nobody looks


DIRECTORIES = (
    "",
    " ",
    "/",
    "//",
    "/..",
    "~/x",
    "{x}",
    "r{wildcards.y}",
    "s3://bucket/x",
)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("results", value) for value in DIRECTORIES),
        # Counts that the workflow could not list.
        ("chromatin.models", 10**9),
        ("num_gpus", 10**9),
        ("promoters.windows.negative_sets", ["genomic", "permuted", "genomic"]),
        ("encoder.layer_norm_epsilon", float("inf")),
    ],
)
def test_values_that_no_run_can_have(key: str, value: Any) -> None:
    values = value
    for part in reversed(key.split(".")):
        values = {part: values}
    with fails(ConfigError, key.removesuffix(".negative_sets")):
        parse_config(values, "mine")


# `snakemake --config`: what Snakemake hands on as texts is read as it would be in a file


SHIPPED = sorted((REPOSITORY / "workflow/config").glob("*.yaml"))


def given_there(*words: str) -> dict[str, Any]:
    """The values that Snakemake makes of the words after `--config`."""
    found: dict[str, Any] = of_snakemake(words)
    return found


# Options of attentions, and of transformers, may have any type: their texts stay texts.
@pytest.mark.parametrize(
    "path",
    [path for path in SHIPPED if path.stem not in ("long_range", "nlp")],
    ids=lambda path: path.stem,
)
def test_a_whole_configuration_on_the_command_line_is_the_file(path: Path) -> None:
    """Numbers, truth values and null, and texts that look like them: the genome's contigs are 1 to 22."""
    values = yaml.load(path.read_text(), yaml.loader.BaseLoader)
    both = parse_config(values), load_config(path)
    if both[1].pieces is not None:  # of a script, which checks them
        first, second = (checked(Settings, x.pieces, "pieces") for x in both)
        assert first == second
        both = tuple(x.model_copy(update={"pieces": None}) for x in both)
    assert both[0] == both[1]


@pytest.mark.parametrize(
    "words",
    [
        "ablation={seeds: [one]}",
        "ablation={seeds: [1.5]}",
        "ablation={steps: '{a: 1}'}",
    ],
)
def test_wrong_values_are_refused_as_in_a_file(words: str) -> None:
    values = given_there(words)
    with fails(ConfigError):
        parse_config(values)


def test_texts_that_look_like_numbers_stay_where_only_text_will_do() -> None:
    values = given_there(
        "genome={test: [21, 22], valid: [1], aliases: null}", "ablation={steps: 7}"
    )
    config = parse_config(values)
    assert (config.genome.test, config.genome.valid, config.genome.aliases) == (
        ("21", "22"),
        ("1",),
        None,
    )
    assert config.ablation.steps == 7
