"""Open the tokenizer of a file or of a model directory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ModelError
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.interface import Tokenizer, read_content, read_description

TOKENIZER_FILES = ("tokenizer.model", "tokenizer.json")


def tokenizer_file(directory: Path) -> Path:
    """The tokenizer of a model directory; `ModelError` if it has none."""
    for name in TOKENIZER_FILES:
        if (directory / name).is_file():
            return directory / name
    raise ModelError(
        f"{directory}: not a model directory: {' and '.join(TOKENIZER_FILES)} are missing"
    )


def load_tokenizer(
    path: Path, description: Mapping[str, Any] | None = None
) -> Tokenizer:
    """Open a tokenizer file: a `.json` with the `tokenizers` library, any other with SentencePiece.

    A directory is that of a model, whose tokenizer is opened with its description in `config.json`.
    `description` is the result of the tokenizer's method when it was saved. Without it (or with {}), special
    tokens are found by their usual names, and a SentencePiece model must be one of `DnaTokenizer.train`.
    """
    if Path(path).is_dir():
        return load_tokenizer(
            tokenizer_file(path), read_object(path / "config.json").get("tokenizer")
        )

    content = read_content(path)
    if not description and Path(path).suffix != ".json":
        return DnaTokenizer(content, str(path))

    from bigbird_dna.tokens.text import JsonTokenizer, TextTokenizer

    known = read_description(description, str(path)) if description else (None, None)
    if Path(path).suffix == ".json":
        return JsonTokenizer(content, *known, source=str(path))

    return TextTokenizer(content, *known, source=str(path))
