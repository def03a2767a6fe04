"""Messages of one printable line, and progress where nobody sees a bar: fewer lines the longer it takes."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bigbird_dna import console, load
from bigbird_dna.config.data import GenomeConfig
from bigbird_dna.config.mechanisms import find_mechanism
from bigbird_dna.config.reading import parse_config
from bigbird_dna.errors import (
    BigBirdDnaError,
    ConfigError,
    DataError,
    ModelError,
    UsageError,
    error_text,
)
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.chromatin.track import Track, select_tracks
from bigbird_dna.genome.sources import find_source
from bigbird_dna.genome.splits import find_named
from bigbird_dna.model.published import fetch_model


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(console.time, "monotonic", lambda: self.now)

    def items(self, count: int, seconds: float) -> Iterator[int]:
        for number in range(count):
            self.now += seconds
            yield number


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_line_tells_how_far_and_how_long(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = console.progress(clock.items(2000, 1), "scoring", 2000, "windows")
    assert list(shown) == list(range(2000))
    first, *lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d  scoring: 30 windows of 2,000, 0:32:50 left", first
    )
    assert re.search(r" 0:0\d:\d\d left$", lines[-1])


@pytest.mark.parametrize("hours", [0.1, 1, 24, 24 * 7])
def test_long_runs_have_some_sixty_lines(
    clock: Clock, capsys: pytest.CaptureFixture[str], hours: float
) -> None:
    count = int(hours * 3600 / 5)
    list(console.progress(clock.items(count, 5), "x", count))
    lines = capsys.readouterr().err.splitlines()
    assert min(12, hours * 100) <= len(lines) <= 65


def test_short_work_is_not_logged(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(list(console.progress(clock.items(29, 1), "x", 29))) == 29
    assert capsys.readouterr().err == ""


def test_a_stream_may_have_no_total_or_more_than_was_thought(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    for known in (None, 7):
        list(console.progress(clock.items(40, 1), "x", known, "rows"))
        assert "x: 30 rows in 0:00:30" in capsys.readouterr().err


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.sys.stderr, "isatty", lambda: True, raising=False)
    assert list(console.progress(iter("abc"), "x", 3)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "kind", [BigBirdDnaError, DataError, ModelError, UsageError, ConfigError]
)
def test_messages_are_one_printable_line(kind: type[BigBirdDnaError]) -> None:
    assert str(kind("a.tsv: line 3: 'ü – 5 × 3'")) == "a.tsv: line 3: 'ü – 5 × 3'"
    text = str(kind("a.tsv: \x1b[2Jgone\nnext\r\nlast\u2028end \x00 \udc80 \u202e"))
    assert text == r"a.tsv: \x1b[2Jgone\nnext\r\nlast\u2028end \x00 \udc80 \u202e"


def test_long_messages_keep_their_start_and_their_end() -> None:
    text = str(DataError(f"a.tsv: {'x' * 10_000} is not a number"))
    assert len(text) < 1300
    assert (
        text.startswith("a.tsv: xxx")
        and text.endswith("xxx is not a number")
        and " … " in text
    )


def test_other_libraries_texts_are_shortened() -> None:
    assert error_text(ValueError("two\n  lines")) == "two lines"
    assert error_text(ValueError()) == "ValueError"
    assert len(error_text(ValueError("y" * 5000))) < 400


@pytest.mark.parametrize(
    ("find", "unknown", "known"),
    [
        (load, "yeast-promoter", "yeast-promoters"),
        (fetch_model, "yeast-promotrs", "yeast-promoters"),
        (load_assembly, "sacCer4", "sacCer3"),
        (load_assembly, "HG39", "hg38"),
        (find_mechanism, "longfromer", "longformer"),
        (lambda name: find_mechanism("axial").checked({name: 2}), "clumns", "columns"),
        (find_source, "deepsea.bundl", "DeepSEA.bundle"),
        (lambda name: parse_config({"tokens": {"strands": name}}), "bth", "both"),
        (
            lambda name: parse_config({"encoder": {"attention": name}}),
            "bigbrid",
            "bigbird",
        ),
        (lambda name: parse_config({name: {}}), "encodr", "encoder"),
        (lambda name: select_tracks([Track("DNase", "open")], name), "dnaze", "DNase"),
        (
            lambda name: find_named(
                GenomeConfig(test=(name,)), {"chrVII": 9}, load_assembly("custom")
            ),
            "chrVI",
            "chrVII",
        ),
    ],
)
def test_an_unknown_name_suggests_the_nearest(
    find: Callable[[str], Any], unknown: str, known: str
) -> None:
    with pytest.raises((BigBirdDnaError, ValueError), match=f"(mean|are) '{known}'"):
        find(unknown)
