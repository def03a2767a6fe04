"""What tests of exchange share: HuggingFace's library, where it is installed, writes nothing."""

import sys

import pytest


@pytest.fixture(autouse=True)
def quiet() -> None:
    library = sys.modules.get("transformers")
    if library is not None:
        library.logging.set_verbosity_error()
        library.logging.disable_progress_bar()
