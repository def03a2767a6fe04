"""What a file holds may stand in a message, which stays one printable line all the same."""

import pytest

from bigbird_dna.errors import BigBirdDnaError, ConfigError, DataError, ModelError, UsageError, error_text


@pytest.mark.parametrize("kind", [BigBirdDnaError, DataError, ModelError, UsageError, ConfigError])
def test_messages_are_one_printable_line(kind: type[BigBirdDnaError]) -> None:
    assert str(kind("a.tsv: line 3: 'ü – 5 × 3'")) == "a.tsv: line 3: 'ü – 5 × 3'"
    text = str(kind("a.tsv: \x1b[2Jgone\nnext\r\nlast\u2028end \x00 \udc80 \u202e"))
    assert text == r"a.tsv: \x1b[2Jgone\nnext\r\nlast\u2028end \x00 \udc80 \u202e"


def test_long_messages_keep_their_start_and_their_end() -> None:
    text = str(DataError(f"a.tsv: {'x' * 10_000} is not a number"))
    assert len(text) < 1300
    assert text.startswith("a.tsv: xxx") and text.endswith("xxx is not a number") and " … " in text


def test_other_libraries_texts_are_shortened() -> None:
    assert error_text(ValueError("two\n  lines")) == "two lines"
    assert error_text(ValueError()) == "ValueError"
    assert len(error_text(ValueError("y" * 5000))) < 400
