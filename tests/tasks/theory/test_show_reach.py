"""The command that shows how far layers reach."""

from pathlib import Path

from tests.cli.command import Run, refused

ENCODER = "encoder: {vocabulary: 8, layers: 3, hidden: 8, heads: 2, positions: 160, block_size: 16"


def test_the_table_ends_where_all_is_reached(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(f"{ENCODER}}}")
    result = run("show-reach", config)
    assert (result.code, result.err) == (0, "")
    header, *rows = [line.split("\t") for line in result.out.splitlines()]
    assert header == ["#layers", "reached", "all"]
    assert [row[::2] for row in rows] == [["1", "no"], ["2", "yes"]]
    assert float(rows[0][1]) < float(rows[1][1]) == 1.0


def test_more_layers_than_the_encoder_has(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(f"{ENCODER}, attention: window}}")
    assert len(run("show-reach", config).out.splitlines()) == 4
    result = run("show-reach", config, "--layers", 30, "-o", tmp_path / "reach.tsv")
    assert result == (0, "", "")
    assert (tmp_path / "reach.tsv").read_text().splitlines()[-1] == "9\t1\tyes"


def test_what_is_neither_a_configuration_nor_a_model(run: Run, tmp_path: Path) -> None:
    refused(run("show-reach", tmp_path / "none.yaml"), 2, "none.yaml: no such file")
    refused(run("show-reach", tmp_path), 1, tmp_path)
