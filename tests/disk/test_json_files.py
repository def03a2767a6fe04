"""JSON is read as it was meant, or not at all."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.disk.atomic import read_json, write_json
from bigbird_dna.disk.json_files import parse_json
from bigbird_dna.errors import DataError
from tests.golden.messages import fails

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_what_was_written_is_read(value: object) -> None:
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"a": 1, "a": 2}', "'a'"),
        ('[{"b": {"a": 1, "c": 0, "a": 1}}]', "'a'"),
        ('{"a": NaN}', "NaN"),
        ("[-Infinity]", "-Infinity"),
        ("[1e999]", "1e999"),
        *((text, "") for text in ("[" * 100_000, '{"a":' * 100_000, "1" * 5000, "", '{"a": 1}}')),
    ],
)
def test_an_ambiguous_text_is_refused(text: str, named: str) -> None:
    with fails(ValueError, named) as caught:
        parse_json(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_json_of_any_form_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    for content in (b"[" * 100_000, b"9" * 5000, b"\xff", b'{"a": "\xed\xa0\x80"}', b"", b"nul"):
        path.write_bytes(content)
        with fails(DataError) as caught:
            read_json(path)
        assert "\n" not in str(caught.value)


def test_json_round_trip_and_damage(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "info.json"
    write_json(path, {"å": [1, None]})
    assert read_json(path) == {"å": [1, None]} and json.loads(path.read_text())
    path.write_text("{")
    with fails(DataError):
        read_json(path)
    with fails(DataError):
        read_json(tmp_path / "none.json")
