"""The libraries of the extra `nlp`, imported where they are needed and nowhere else."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from bigbird_dna.errors import UsageError

LIBRARIES = ("transformers", "tokenizers", "datasets", "rouge_score")


def extra(module: str) -> Any:
    """A module of one of the extra's libraries, such as `rouge_score.rouge_scorer`.

    Raises
    ------
    UsageError
        The library is not installed; the text says what to install.
    """
    library = module.partition(".")[0]
    assert library in LIBRARIES, library
    try:
        return import_module(module)
    except ImportError:
        raise _missing(library) from None


def check_extra() -> None:
    """`UsageError` if a library of the extra is not installed; commands call it before any work."""
    for library in LIBRARIES:
        if not _is_there(library):
            raise _missing(library)


def _is_there(library: str) -> bool:
    """Whether it is installed, as far as can be told without importing it, which takes seconds."""
    try:
        return find_spec(library) is not None
    except ImportError:
        return False


def _missing(library: str) -> UsageError:
    return UsageError(
        f"the library {library} is not installed: tasks on text need the extra nlp: "
        "pip install 'bigbird-dna[nlp]'"
    )
