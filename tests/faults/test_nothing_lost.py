"""No command that writes a directory deletes or changes what it didn't make."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.command import Run, refused
from tests.faults.world import COMMANDS, Command, World

DIRECTORIES = sorted({one.name: one for one in COMMANDS.values() if one.kind != "file"})
REPLACED = [name for name in DIRECTORIES if COMMANDS[name].kind == "directory"]


@dataclass
class Scene:
    """A command about to write, a directory to spoil, and all files that were there before."""

    world: World
    command: Command
    home: Path
    made: Path  # what the command writes, made once and copied

    @property
    def out(self) -> Path:
        return self.home / "out"

    @property
    def inputs(self) -> list[Path]:
        words = self.command.words(self.world, self.out)
        return [
            word
            for word in words
            if isinstance(word, Path) and word != self.out and word.exists()
        ]


def thesis(directory: Path, name: str = "thesis.txt") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text("years of work")
    return directory


def some_file(directory: Path) -> Path:
    return next(
        one
        for one in sorted(directory.rglob("*"))
        if one.is_file() and one.name[0] != "."
    )


def changed_ours(scene: Scene) -> Path:
    with some_file(Path(shutil.copytree(scene.made, scene.out))).open("ab") as stream:
        stream.write(b"years of work")
    return scene.out


def link(scene: Scene) -> Path:
    scene.out.symlink_to(thesis(scene.home / "elsewhere"))
    return scene.out


def a_file(scene: Scene) -> Path:
    scene.out.write_text("years of work")
    return scene.out


def inside_an_input(scene: Scene) -> Path:
    directories = [one for one in scene.inputs if one.is_dir()]
    if not directories:
        pytest.skip("reads no directory that it is told of")
    return directories[-1] / "new"


SITUATIONS: dict[str, Callable[[Scene], Path]] = {
    "foreign": lambda scene: thesis(scene.out),
    "below": lambda scene: thesis(scene.out / "deep/down").parents[1],
    "added_to_ours": lambda scene: thesis(Path(shutil.copytree(scene.made, scene.out))),
    "changed_ours": changed_ours,
    "link": link,
    "a_file": a_file,
    "working_directory": lambda scene: Path(),
    "around_the_working_directory": lambda scene: Path(".."),
    "root": lambda scene: Path("/"),
    "an_input": lambda scene: scene.inputs[-1],
    "around_an_input": lambda scene: scene.inputs[-1].parent,
    "inside_an_input": inside_an_input,
}


@pytest.fixture(scope="session")
def made(world: World, own_directory: Path) -> Callable[[str], Path]:
    """What a command writes, written once."""
    from tests.cli.command import invoke

    def find(name: str) -> Path:
        path = own_directory / name.replace(" ", "_") / "made"
        if not path.exists():
            path.parent.mkdir()
            invoke(*COMMANDS[name].words(world, path))
        return path

    return find


def snapshot(*homes: Path) -> dict[str, str]:
    """All files, links and directories below some directories, with what they hold."""
    found = {}
    for path in (one for home in homes for one in home.rglob("*")):
        kind = "directory"
        if path.is_symlink():
            kind = f"link to {path.readlink()}"
        elif path.is_file():
            kind = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path)] = kind
    return found


# Of each command every third situation, and of each situation every third command.
REPLACEMENTS = [
    pytest.param(
        name, situation, marks=() if (row + column) % 3 == 0 else pytest.mark.slow
    )
    for row, name in enumerate(REPLACED)
    for column, situation in enumerate(SITUATIONS)
]


@pytest.mark.parametrize(("name", "situation"), REPLACEMENTS)
def test_a_replaced_directory(
    name: str,
    situation: str,
    world: World,
    made: Callable[[str], Path],
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(world, COMMANDS[name], tmp_path / "home", made(name))
    (scene.home / "work").mkdir(parents=True)
    thesis(scene.home)
    monkeypatch.chdir(thesis(scene.home / "work"))
    out = SITUATIONS[situation](scene)
    before = snapshot(scene.home, world.home)
    result = run(*(str(word) for word in COMMANDS[name].words(world, out)))
    assert result.code in (1, 2), result
    *_, line = result.err.splitlines()
    # Another output of the command is next to it, and may be refused first.
    where = out.parent if situation == "inside_an_input" else out
    assert line.startswith(f"bigbird-dna: error: {where}"), result.err
    after = snapshot(scene.home, world.home)
    assert {path: after.get(path) for path in before} == before
    assert not set(after) - set(before) - {str(Path(out).parent / "checkpoints")}


@pytest.mark.parametrize("name", REPLACED)
def test_an_earlier_result_is_replaced(
    name: str, world: World, made: Callable[[str], Path], tmp_path: Path, run: Run
) -> None:
    out = tmp_path / "out"
    shutil.copytree(made(name), out)
    expected = snapshot(out)
    some_file(out).unlink()
    assert run(*COMMANDS[name].words(world, out)).code == 0
    assert set(snapshot(out)) == set(expected)


# Seconds each; the others write by the same functions.
LONG = ("motifs", "simulate", "report pretraining", "experiment compare layers")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LONG else ())
        for name in DIRECTORIES
        if name not in REPLACED
    ],
)
def test_files_put_beside_others(
    name: str, world: World, made: Callable[[str], Path], tmp_path: Path, run: Run
) -> None:
    """Beside a thesis it is done; over a thesis under the name of a result it is not."""
    out, command = thesis(tmp_path / "out"), COMMANDS[name]
    names = [
        str(one.relative_to(made(name)))
        for one in made(name).rglob("*")
        if one.is_file()
    ]
    assert run(*command.words(world, out)).code == 0
    assert run(*command.words(world, out)).code == 0
    assert (out / "thesis.txt").read_text() == "years of work"
    assert all((out / one).is_file() for one in names)
    for one in sorted(names)[-1:]:
        (out / one).write_text("years of work")
        before = snapshot(out)
        result = run(*command.words(world, out))
        assert (
            result.code == 2 and f"\nbigbird-dna: error: {out}" in f"\n{result.err}"
        ), result
        assert snapshot(out) == before


@pytest.mark.parametrize(
    "name", ["score-promoters tsv", "predict-tracks", "score-variants tsv"]
)
def test_a_file_inside_the_model_that_is_read(
    name: str, world: World, run: Run
) -> None:
    """It would be the end of the model if it had the name of one of its files."""
    command = COMMANDS[name]
    model = Path(str(command.words(world, Path("out"))[1]))
    before = snapshot(world.home)
    for inside in ("model.safetensors", "scores.tsv"):
        result = run(*command.words(world, model / inside))
        refused(result, 2, model)
    assert snapshot(world.home) == before
