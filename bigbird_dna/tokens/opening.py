"""Opens tokenizer files of every kind."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bigbird_dna.tokens.interface import Tokenizer, read_content, read_description
from bigbird_dna.tokens.json_tokenizer import JsonTokenizer
from bigbird_dna.tokens.text_tokenizer import TextTokenizer
from bigbird_dna.tokens.tokenizer import DnaTokenizer

TOKENIZER_FILES = (DnaTokenizer.file_name, JsonTokenizer.file_name)


def load_tokenizer(path: Path, description: Mapping[str, Any] | None = None) -> Tokenizer:
    """Open a tokenizer file: a `.json` with the `tokenizers` library, any other with SentencePiece.

    Parameters
    ----------
    description : what the `description` method of the tokenizer said when it was saved; none (or {}): the
        special pieces are found by their usual names, and a SentencePiece model must be one of
        `DnaTokenizer.train`.

    Raises
    ------
    ModelError : the file is missing, damaged or of another kind.
    """
    known = read_description(description, str(path)) if description else (None, None)
    content = read_content(path)
    if Path(path).suffix == ".json":
        return JsonTokenizer(content, *known, source=str(path))
    if description:
        return TextTokenizer(content, *known, source=str(path))
    return DnaTokenizer(content, str(path))
