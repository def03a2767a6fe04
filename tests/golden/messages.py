"""Messages to users: a test names the class of the error and the values that its sentence must contain."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def fails(
    error: type[BaseException] | tuple[type[BaseException], ...], *named: object
) -> Iterator[pytest.ExceptionInfo]:
    """Expect an error whose message names these values."""
    with pytest.raises(error) as caught:
        yield caught
    message(str(caught.value), *named)


def message(text: str, *named: object) -> str:
    """Check that a message to the user contains these values; returns the message."""
    assert not (missing := [str(name) for name in named if str(name) not in text]), (
        f"{missing} not in {text!r}"
    )
    return text
