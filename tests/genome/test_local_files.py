"""Where files of the user's own are looked for."""

from pathlib import Path

import pytest

from bigbird_dna.genome.sources.inputs import is_directory, is_file, locate


def test_local_data_comes_before_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, here = tmp_path / "local", tmp_path / "here"
    for directory in (local / "peaks", here / "peaks", here / "only"):
        directory.mkdir(parents=True)
    monkeypatch.chdir(here)
    assert locate("peaks", str(local)) == local / "peaks"
    assert locate("only", str(local)) == Path("only")
    assert locate("peaks", None) == Path("peaks")
    assert locate("nowhere", str(local)) == Path("nowhere")
    assert locate(str(here / "only"), str(local)) == here / "only"


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    for name in ("x" * 300, "a/" * 3000, "a\0b"):
        assert locate(name, str(tmp_path)) == Path(name)
        assert not is_file(Path(name)) and not is_directory(Path(name))
