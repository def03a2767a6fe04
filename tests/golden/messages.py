"""Error messages, each stored once in `messages.txt`: a test names the class and what a message must name.

    pytest --record-messages [TESTS ...]    write the messages of these tests anew; review the difference

A message is found by its test and by its number within it. Paths of temporary folders, checksums and ports
are replaced, since they differ from run to run.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from hypothesis import currently_in_test_context

FILE = Path(__file__).with_name("messages.txt")
REPOSITORY = Path(__file__).resolve().parents[2]
# Of a test with more messages (each bit of a file changed, say) the first are stored; of long ones the ends.
MOST_MESSAGES, LONGEST = 20, 500
# What differs between runs, and what stands for it.
VARYING = (
    (re.compile(r"/tmp/pytest-of-[^/\s]+/pytest-\d+/(?:popen-gw\d+/)?"), "TMP/"),
    (re.compile(r"(TMP/[^/\s]*?)\d+(?=[/\s:,']|$)"), r"\1"),
    (re.compile(r"/tmp/\w+"), "TMP"),
    (re.compile(re.escape(str(REPOSITORY))), "REPOSITORY"),
    (re.compile(r"\b[0-9a-f]{12,}\b"), "CHECKSUM"),
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), r"\1:PORT"),
    (re.compile(r"\.bigbird-dna-[0-9a-f]+(?:-[0-9a-f]+)*"), ".bigbird-dna-TEMPORARY"),
    (re.compile(r"(?m)^\d\d:\d\d:\d\d  "), "TIME  "),
    (
        re.compile(r"process \d+(?: on \S+)? since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\+\d{4})?"),
        "process N since TIME",
    ),
    (re.compile(r"would take about \S+ s"), "would take about N s"),
    # Of a configuration with the path of a temporary folder.
    (
        re.compile(r"(config\.yaml: .*) byte \d+: unsupported wire type \d"),
        r"\1 byte N: unsupported wire type N",
    ),
)


class Recorder:
    """The messages of this process's tests so far."""

    def __init__(self) -> None:
        self.collected: list[str] = []
        self.recorded: dict[str, list[str]] = {}
        self.recording = False
        self._test = ""
        self._number = 0

    def check(self, message: str) -> None:
        """Compare a message with the one stored for this place of the running test, or store it."""
        test = os.environ["PYTEST_CURRENT_TEST"].rsplit(" (", 1)[0]
        self._number = self._number + 1 if test == self._test else 0
        self._test = test
        if self._number >= MOST_MESSAGES:
            return
        for pattern, stands in VARYING:
            message = pattern.sub(stands, message)
        if len(message) > LONGEST:
            message = f"{message[: LONGEST // 2]} … {message[-LONGEST // 2 :]}"
        if self.recording:
            if self._number == 0:
                self.recorded[test] = []
            self.recorded[test].append(message)
            return
        stored = read().get(test, [])
        assert self._number < len(stored), (
            f"no message {self._number + 1} of {test}: pytest --record-messages"
        )
        assert message == stored[self._number], f"{message!r} is not {stored[self._number]!r} of {FILE.name}"


RECORDER = Recorder()


@contextmanager
def fails(
    error: type[BaseException] | tuple[type[BaseException], ...], *named: object
) -> Iterator[pytest.ExceptionInfo]:
    """Expect an error whose message names these values and is the stored one.

    Messages of examples drawn at random aren't stored: there the class and the named values are checked.
    """
    with pytest.raises(error) as caught:
        yield caught
    message(str(caught.value), *named)


def message(text: str, *named: object) -> str:
    """Check a message to the user, such as standard error of a command; gives it back."""
    assert not (missing := [str(name) for name in named if str(name) not in text]), (
        f"{missing} not in {text!r}"
    )
    if not currently_in_test_context():
        RECORDER.check(text)
    return text


@cache
def read() -> dict[str, list[str]]:
    """The stored messages by test."""
    stored: dict[str, list[str]] = {}
    test: list[str] = []
    for line in FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else []:
        if line.startswith("    "):
            test.append(json.loads(f'"{line[4:]}"'))
        else:
            test = stored.setdefault(line, [])
    return stored


def write(parts: list[tuple[list[str], dict[str, list[str]]]]) -> None:
    """Store what some processes recorded; what tests that no longer exist had is dropped."""
    collected = {test for tests, _ in parts for test in tests}
    files = {test.split("::")[0] for test in collected}
    stored = {
        test: messages
        for test, messages in read().items()
        if test in collected
        or (test.split("::")[0] not in files and (REPOSITORY / test.split("::")[0]).exists())
    }
    for _, recorded in parts:
        stored |= recorded
    lines = []
    for test, messages in sorted(stored.items()):
        lines += [test, *(f"    {json.dumps(text, ensure_ascii=False)[1:-1]}" for text in messages)]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
