"""Files whose names hold what shells, terminals and tables take for something else."""

import gzip
import os
from pathlib import Path

import pytest

from tests.cli.command import Run
from tests.faults.world import World

NAMES = {
    "blank": "my genome",
    "blank at the end": "genome ",
    "quotes": "a'b\"c",
    "shell": "$(touch PWNED)`touch PWNED`;touch PWNED|x&",
    "line break": "a\nb",
    "return and tab": "a\r\tb",
    "escape sequence": "\x1b[31mred\x1b]0;title\x07",
    "option": "-rf",
    "format": "%s{0}{wildcards.x}",
    "comment": "#a",
    "glob": "[a-z]*?",
    "not UTF-8": os.fsdecode(b"a\xff\xfeb"),
    "right to left": "a\u202egpj",
    "long": "n" * 240,
    "dots": "...",
}


@pytest.fixture(params=NAMES)
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / NAMES[request.param]
    directory.mkdir()
    monkeypatch.chdir(tmp_path)
    return Path(directory.name) if request.param != "option" else Path(".", directory.name).absolute()


def test_names_are_names(home: Path, world: World, run: Run) -> None:
    """Of inputs, outputs and their directories; what is said of them stands on one line."""
    name = home.name
    genome, reference = home / f"{name}.fa", home / f"{name}.gz"
    with gzip.open(world / "genome/reference.fa.gz", "rb") as stream:
        genome.write_bytes(stream.read())
    model = world / "models/promoter-genomic"
    if "\udcff" not in name:  # safetensors opens no such file
        model, target = home / "model", model
        model.symlink_to(target)
    for words, made in (
        (["prepare reference", genome, "-o", reference], reference),
        (
            ["prepare contig", reference, "demo6", "-o", home / "contig", "--megabases", 0.002],
            home / "contig",
        ),
        (["score-promoters", model, home / "contig", "-o", home / f"{name}.tsv"], home / f"{name}.tsv"),
        (["report plot-scores", home / f"{name}.tsv", "-o", home / "x.svg"], home / "x.svg"),
    ):
        result = run(*words)
        assert result.code == 0, result
        assert made.exists()
        assert all(line[2] == ":" for line in result.err.splitlines()), result.err
    missing = run("prepare contig", home / "none", "demo6", "-o", home / "x")
    assert missing.code == 1 and missing.err.count("\n") == 1 and missing.err.isprintable() is False
    assert all(letter.isprintable() or letter == "\n" for letter in missing.err)
    table = (home / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
    assert [line for line in table if line.startswith("## command")]
    assert all(len(line.split("\t")) == 7 for line in table if not line.startswith("##"))
    assert not list(Path.cwd().rglob("PWNED"))
