"""The command line in this process, for all tests of commands."""

import io
import sys

import pytest

from bigbird_dna.cli.main import main
from tests.cli.command import Result, Run


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run `bigbird-dna` with these words; what C libraries print is caught as well."""

    def call(*words: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["bigbird-dna", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            main()
        result = Result(int(caught.value.code or 0), *capfd.readouterr())
        assert "Traceback" not in result.err, result.err
        return result

    return call
