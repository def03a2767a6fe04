"""The command that shows how far layers reach."""

from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.config import EncoderConfig
from bigbird_dna.tasks.theory.reach import encoder_reach
from tests.cli.command import Run, refused

ENCODER = "encoder: {vocabulary: 8, layers: 3, hidden: 8, heads: 2, positions: 160, block_size: 16"


def test_the_table_ends_where_all_is_reached(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(f"{ENCODER}}}")
    result = run("experiment receptive-field", config)
    assert (result.code, result.err) == (0, "")
    header, *rows = [line.split("\t") for line in result.out.splitlines()]
    assert header == ["#layers", "reached", "all"]
    assert [row[::2] for row in rows] == [["1", "no"], ["2", "yes"]]
    assert float(rows[0][1]) < float(rows[1][1]) == 1.0


def test_more_layers_than_the_encoder_has(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(f"{ENCODER}, attention: window}}")
    assert len(run("experiment receptive-field", config).out.splitlines()) == 4
    result = run("experiment receptive-field", config, "--layers", 30, "-o", tmp_path / "reach.tsv")
    assert result == (0, "", "")
    assert (tmp_path / "reach.tsv").read_text().splitlines()[-1] == "9\t1\tyes"


def test_what_is_neither_a_configuration_nor_a_model(run: Run, tmp_path: Path) -> None:
    refused(run("experiment receptive-field", tmp_path / "none.yaml"), 2, "none.yaml: no such file")
    refused(run("experiment receptive-field", tmp_path), 1, tmp_path)


@pytest.mark.parametrize("attention", ["full", "bigbird", "performer"])
def test_no_token_of_a_causal_encoder_knows_of_later_ones(attention: str) -> None:
    encoder = EncoderConfig(
        **{"vocabulary": 8, "layers": 2, "hidden": 8, "heads": 2, "block_size": 16},
        **{"attention": attention, "causal": True},
    )
    found = [*encoder_reach(encoder, 96)]
    assert len(found) == 2 and not any(one.complete for one in found)
    assert not any(np.triu(one.graph, 1).any() for one in found)
    if attention == "full":
        assert found[0].graph.sum() == 96 * 97 // 2


def test_a_convolution_reaches_beyond_the_tokens_that_a_layer_sees() -> None:
    values = {"vocabulary": 8, "layers": 2, "hidden": 8, "heads": 2, "block_size": 8, "attention": "window"}
    seen = np.abs(np.arange(80)[:, None] // 8 - np.arange(80) // 8) <= 1
    near = np.abs(np.arange(80)[:, None] - np.arange(80)) <= 2
    first, second = encoder_reach(EncoderConfig(**values, convolution=5), 80)
    assert (first.graph == (seen.astype(int) @ near > 0)).all()
    assert (second.graph == (seen.astype(int) @ seen @ near > 0)).all()
    # Extra globals stand in front of the layers alone.
    etc = {**values, "attention": "bigbird_etc", "global_blocks": 0, "random_blocks": 0, "extra_globals": 2}
    without, found = (next(encoder_reach(EncoderConfig(**etc, convolution=n), 80)).graph for n in (0, 5))
    assert (found[2:, 2:] == (without[2:, 2:].astype(int) @ near > 0)).all()
    assert found[:2].all() and found[:, :2].all()
