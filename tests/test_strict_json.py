"""JSON is read as it was meant, or not at all."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.disk.json_files import parse_json
from tests.golden.messages import fails

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_what_was_written_is_read(value: object) -> None:
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 2}', "key 'a' stands twice"),
        ('[{"b": {"a": 1, "c": 0, "a": 1}}]', "key 'a' stands twice"),
        ('{"a": NaN}', "NaN is not a number"),
        ("[-Infinity]", "-Infinity is not a number"),
        ("[1e999]", "the number 1e999 is too large"),
        ("[" * 100_000, "it is nested too deeply"),
        ('{"a":' * 100_000, "it is nested too deeply"),
        ("1" * 5000, "Exceeds the limit"),
        ("", "Expecting value"),
        ('{"a": 1}}', "Extra data"),
    ],
)
def test_a_text_that_leaves_a_doubt_is_refused(text: str, reason: str) -> None:
    with fails(ValueError) as caught:
        parse_json(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300
