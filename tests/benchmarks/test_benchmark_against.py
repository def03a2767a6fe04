"""`bigbird-dna benchmark against`: slower and newer code is found, and the worktree is gone afterwards."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import against as module
from benchmarks.against import Comparison, against, against_page, faults
from benchmarks.options import chosen
from benchmarks.stopwatch import TIMINGS, seconds_of_calls
from bigbird_dna.cli.app import app
from bigbird_dna.errors import DataError, UsageError
from tests.conftest import REPOSITORY
from tests.golden.messages import fails, message

SLOW = """

_quick = bigbird_attention


def bigbird_attention(*values, **options):
    import time

    time.sleep(0.3)
    return _quick(*values, **options)
"""
needs_history = pytest.mark.skipif(
    not (REPOSITORY / ".git").exists(), reason="not a git checkout"
)


def git(root: Path, *words: str) -> str:
    identity = (
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "commit.gpgsign=false",
    )
    command = ["git", "-C", str(root), *identity, *words]
    return subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A repository of two commits, `first` and `second`."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet")
    for name in ("first", "second"):
        (root / "file").write_text(name)
        git(root, "add", "file")
        git(root, "commit", "--quiet", "-m", name)
        git(root, "tag", name)
    return root


class Clock:
    """Takes the place of the processes: the times of each side, and which file it found in its directory."""

    def __init__(self, times: dict[str, dict[str, list[float]]]) -> None:
        self.times, self.turns, self.asked = times, list[str](), list[tuple[str, ...]]()

    def __call__(self, root: Path, of: Comparison) -> dict[str, Any]:
        side = (root / "file").read_text()
        self.turns.append(side)
        self.asked.append(tuple(of.parts))
        known = {
            name: times for name, times in self.times[side].items() if name in of.parts
        }
        missing = {name: f"no {name}" for name in of.parts if name not in known}
        return {
            "seconds": {name: times.pop(0) for name, times in known.items()},
            "missing": missing,
        }


def test_ratios_are_those_of_neighbors_and_doubtful_ones_are_repeated(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, training, step, scoring = TIMINGS
    clock = Clock(
        {
            # In a machine that becomes ten times as slow both of a pair become so.
            "first": {
                forward: [1.0, 10.0, 2.0, 2.0],
                training: [1.0, 1.0],
                step: [1.0, 1.0, 1.0, 1.0],
            },
            "second": {
                forward: [1.3, 12.0, 2.6, 2.4],  # 30 and 20 % more
                step: [
                    1.3,
                    1.1,
                    1.0,
                    1.0,
                ],  # 20 % more in the first rounds, 5 % more in all
                scoring: [1.0, 1.0],
            },
        }
    )
    monkeypatch.setattr(module, "time_commit", clock)
    result = against(Comparison(history, "first", rounds=2))
    assert clock.turns == ["first", "second", "second", "first"] * 2
    assert set(clock.asked[4:]) == {(forward, step)}
    rows = {row["timing"]: row for row in result["results"]}
    states = {forward: "slower", training: "failed", step: "not slower", scoring: "new"}
    assert {name: row["status"] for name, row in rows.items()} == states
    assert rows[forward]["ratio"]["paired"] == pytest.approx(1.25)
    assert rows[forward]["ratio"]["range"] == pytest.approx([1.2, 1.3])
    assert (result["commit"], result["uncommitted"]) == (
        git(history, "rev-parse", "first"),
        False,
    )
    for text in faults(result | {"commit": "0123456789abcdef"}):
        message(text)
    assert len(faults(result)) == 2
    assert against_page(result).count("| slower") == 1
    assert len(git(history, "worktree", "list").splitlines()) == 1


def test_a_threshold_decides(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "training-step"
    for threshold, found in ((24.0, 1), (26.0, 0)):
        clock = Clock({"first": {name: [1.0] * 2}, "second": {name: [1.25] * 2}})
        monkeypatch.setattr(module, "time_commit", clock)
        result = against(Comparison(history, "first", [name], threshold, rounds=1))
        assert len(faults(result)) == found
        assert (
            result["uncommitted"]
            == ("uncommitted" in against_page(result))
            == (threshold == 26)
        )
        (history / "other").write_text("not committed")
        git(history, "add", "other")


@pytest.mark.parametrize("error", [KeyboardInterrupt, DataError("stopped")])
def test_the_worktree_is_removed_when_the_work_ends_early(
    history: Path, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    places = []

    def stop(root: Path, of: Comparison) -> dict[str, Any]:
        places.append(root)
        raise error

    monkeypatch.setattr(module, "time_commit", stop)
    (history / "file").write_text("changed")
    with pytest.raises((KeyboardInterrupt, DataError)):
        against(Comparison(history, "first"))
    (place,) = places
    assert not place.parent.exists()
    assert len(git(history, "worktree", "list").splitlines()) == 1
    assert (history / "file").read_text() == "changed"


@pytest.mark.parametrize("case", ["commit", "git", "repository", "rounds", "threshold"])
def test_what_cannot_be_compared_is_named(
    history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    of = Comparison(history, "first")
    changed = {
        "commit": of._replace(commit="none"),
        "repository": of._replace(root=tmp_path),
        "rounds": of._replace(rounds=0),
        "threshold": of._replace(threshold=float("nan")),
    }
    if case == "git":
        monkeypatch.setenv("PATH", str(tmp_path))
    with fails(UsageError):
        against(changed.get(case, of))


def test_an_unknown_timing_is_named(tmp_path: Path) -> None:
    words = [
        "benchmark",
        "against",
        "HEAD",
        "--parts",
        "training-step,speed",
        "-o",
        str(tmp_path / "out"),
    ]
    with fails(UsageError):
        raise CliRunner().invoke(app, words).exception or AssertionError
    assert chosen("--parts", "window-scoring, training-step", TIMINGS) == [
        "training-step",
        "window-scoring",
    ]


def test_the_fastest_call_counts() -> None:
    import time

    waits = iter([0.0, 0.03, 0.01, 0.03])  # the first doesn't count
    assert 0.01 <= seconds_of_calls(lambda: time.sleep(next(waits)), 0.0) < 0.03


@pytest.mark.slow
@needs_history
def test_a_commit_is_not_slower_than_itself(tmp_path: Path) -> None:
    words = [
        "--rounds",
        "1",
        "--seconds",
        "0.01",
        "--threads",
        "1",
        "--threshold",
        "900",
    ]
    command = ["benchmark", "against", "HEAD", *words, "-o", str(tmp_path / "out")]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 0, ended.output
    assert (tmp_path / "out" / "benchmark.md").read_text() == ended.stdout
    assert all(name in ended.stdout for name in TIMINGS)


@pytest.mark.slow
@needs_history
def test_a_slowed_commit_is_found(tmp_path: Path) -> None:
    root = tmp_path / "clone"
    git(REPOSITORY, "clone", "--quiet", "--shared", str(REPOSITORY), str(root))
    base = git(root, "rev-parse", "HEAD")
    with (root / "bigbird_dna" / "attention" / "__init__.py").open("a") as stream:
        stream.write(SLOW)
    exports = root / "bigbird_dna" / "__init__.py"
    exports.write_text(exports.read_text().replace('"model.encoder": "Encoder",', ""))
    git(root, "commit", "--quiet", "-am", "slow, and without encoders")
    slow = git(root, "rev-parse", "HEAD")
    timings = ["attention-forward", "training-step"]
    options: dict[str, Any] = {
        "parts": timings,
        "rounds": 1,
        "threads": 1,
        "seconds": 0.01,
    }
    result = against(Comparison(root, base, **options))
    assert [row["status"] for row in result["results"]] == ["slower", "failed"]
    assert len(faults(result)) == 2
    git(root, "checkout", "--quiet", base)
    result = against(Comparison(root, slow, **options))
    assert [row["status"] for row in result["results"]] == ["not slower", "new"]
    assert result["results"][0]["ratio"]["paired"] < 1 and not faults(result)
    assert git(root, "worktree", "list").count("\n") == 0 and not git(
        root, "status", "--porcelain"
    )
