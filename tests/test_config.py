"""The configuration: defaults, overrides, and one clear line for each fault."""

from pathlib import Path

import pytest

from bigbird_dna.config import Config, load_config, parse_config
from bigbird_dna.errors import ConfigError


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("")
    assert load_config(path) == Config()


def test_overrides_win_and_are_typed(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("encoder: {layers: 3}\ngenome: {test: [XV]}\n")
    config = load_config(path, ["encoder.layers=5", "genome.test=[I, II]", "results=elsewhere"])
    assert (config.encoder.layers, config.genome.test, config.results) == (
        5,
        ("I", "II"),
        "elsewhere",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("encoder: {layer: 3}", "unknown key 'encoder.layer'"),
        ("colour: red", "unknown key 'colour'"),
        ("encoder: {layers: many}", r"encoder\.layers: .*integer \(got 'many'\)"),
        ("encoder: {layers: 2.5}", r"encoder\.layers: .*integer"),
        ("encoder: {layers: true}", r"encoder\.layers: .*integer"),
        ("encoder: {dropout: 1.5}", r"encoder\.dropout: .*less than 1 \(got 1\.5\)"),
        ("encoder: {hidden: 10, heads: 3}", "hidden 10 is no multiple of heads 3"),
        ("encoder: {window_blocks: 2}", "window_blocks must be odd"),
        ("encoder: 7", "encoder: "),
        ("genome: {valid: [I], test: [I]}", "'I' stands in more than one"),
        ("promoters: {negative_sets: [random]}", r"promoters\.negative_sets"),
        (
            "promoters: {control: permuted, negative_sets: [genomic]}",
            "control 'permuted' is none of",
        ),
        ("pretraining: {sequence_tokens: 9000}", "above encoder.positions 4096"),
        ("chromatin: {tracks: deepsea, bin: 100}", "chromatin: .* bin can only be 200"),
        (
            "chromatin: {tracks: deepsea, valid_regions: ['7:1-2']}",
            r"chromatin: tracks deepsea have the published .* valid_regions can only be \[\]",
        ),
        ("- a list", "a configuration is a mapping of sections"),
        ("a: [", "not YAML"),
    ],
)
def test_a_fault_is_named_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("override", ["encoder.layers", "=3", "results.deeper=3", "seed=[1"])
def test_a_malformed_override_is_refused(tmp_path: Path, override: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("results: here\n")
    with pytest.raises(ConfigError, match="--set"):
        load_config(path, [override])


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="not readable"):
        load_config(tmp_path)


def test_sections_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        parse_config({}).encoder.layers = 3  # type: ignore[misc]
