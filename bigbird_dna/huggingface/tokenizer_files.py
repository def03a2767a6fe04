"""Tokenizer files for HuggingFace's `AutoTokenizer`, and the special tokens specified in its files.

The BPE of SentencePiece and of the `tokenizers` library differ in their inputs. SentencePiece has an ordered
vocabulary and joins any two adjacent tokens whose concatenation is a token; `tokenizers` has a list of pairs.
The pairs of a token are therefore all its divisions into two tokens, in vocabulary order.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ModelError
from bigbird_dna.genome.sequence import AMBIGUOUS
from bigbird_dna.tokens.dna import SPECIAL_PIECES, DnaTokenizer
from bigbird_dna.tokens.interface import BASES, Specials, Tokenizer, read_content
from bigbird_dna.tokens.text import JsonTokenizer, TextTokenizer

PACKAGE_FILE = (
    "bigbird_dna.model"  # the original DnaTokenizer file next to its tokenizer.json
)
_TEXT_FILE = "spiece.model"
_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json")


def find_tokenizer(
    directory: Path, vocabulary: int, file: Path | None = None
) -> Tokenizer:
    """The tokenizer of a checkpoint directory whose model has `vocabulary` ids.

    Searched in this order: `file`; the package's own file; `tokenizer.json`; `spiece.model`. `ModelError` if
    none is found, or its ids exceed the model's vocabulary.
    """
    names = special_names(directory)
    original = directory / PACKAGE_FILE
    if file is not None:
        return _open(file, vocabulary, names)
    if original.is_file():
        return _fitting(DnaTokenizer.load(original), vocabulary, original)
    for file_in_directory in (directory / "tokenizer.json", directory / _TEXT_FILE):
        if file_in_directory.is_file():
            return _open(file_in_directory, vocabulary, names)
    raise ModelError(
        f"{directory}: tokenizer missing (tokenizer.json or {_TEXT_FILE}); give one with --tokenizer"
    )


def special_names(directory: Path) -> dict[str, str]:
    """Texts of the special tokens "pad", "unk", "cls", "sep", "mask", as far as the files specify them."""
    names: dict[str, str] = {}
    for file in _SETTINGS:
        if not (directory / file).is_file():
            continue
        values = read_object(directory / file)
        for role in Specials._fields:
            value = values.get(f"{role}_token")
            if isinstance(value, dict):
                value = value.get("content")
            if isinstance(value, str):
                names.setdefault(role, value)
    return names


def write_tokenizer(tokenizer: Tokenizer, directory: Path, positions: int) -> None:
    """Write the files from which `AutoTokenizer` creates the same tokenizer; `positions` in tokens."""
    settings: dict[str, Any] = {
        "model_max_length": positions,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
    }
    if isinstance(tokenizer, TextTokenizer):
        settings = {
            "model_max_length": positions,
            "tokenizer_class": "BigBirdTokenizer",
        }
        tokenizer.save(directory / _TEXT_FILE)
    elif isinstance(tokenizer, DnaTokenizer):
        tokenizer.save(directory / PACKAGE_FILE)
        write_json(directory / "tokenizer.json", bpe_description(tokenizer))
    else:
        tokenizer.save(directory / "tokenizer.json")
    special = {
        f"{role}_token": tokenizer.pieces[index]
        for role, index in tokenizer.specials._asdict().items()
    }
    write_json(directory / "tokenizer_config.json", settings | special)
    write_json(directory / "special_tokens_map.json", special)


def bpe_description(tokenizer: DnaTokenizer) -> dict[str, Any]:
    """The content of a `tokenizer.json` that encodes every sequence to the same ids as this package.

    Lower case is read as upper case, and IUPAC codes as N. Runs of N are added tokens, which are matched
    after this normalization and before any merge, longest first.
    """
    ids = {piece: index for index, piece in enumerate(tokenizer.pieces)}
    n_pieces = [piece for piece in ids if set(piece) == {"N"}]
    added = [(piece, True) for piece in SPECIAL_PIECES] + [
        (piece, False) for piece in n_pieces
    ]
    ambiguous = f"[n{AMBIGUOUS}{AMBIGUOUS.lower()}]"
    replaced = [
        *(({"String": base.lower()}, base) for base in BASES),
        ({"Regex": ambiguous}, "N"),
    ]
    cls, sep = (
        {"SpecialToken": {"id": name, "type_id": 0}} for name in ("[CLS]", "[SEP]")
    )
    first, second = (
        {"Sequence": {"id": name, "type_id": t}} for t, name in enumerate("AB")
    )
    last = {"SpecialToken": {"id": "[SEP]", "type_id": 1}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": ids[piece],
                "content": piece,
                **dict.fromkeys(("single_word", "lstrip", "rstrip"), False),
                "normalized": not special,
                "special": special,
            }
            for piece, special in added
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Replace", "pattern": pattern, "content": content}
                for pattern, content in replaced
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [cls, first, sep],
            "pair": [cls, first, sep, second, last],
            "special_tokens": {
                name: {"id": name, "ids": [ids[name]], "tokens": [name]}
                for name in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "[UNK]",
            **dict.fromkeys(("continuing_subword_prefix", "end_of_word_suffix")),
            **dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False),
            "vocab": ids,
            "merges": [list(pair) for pair in merges(tokenizer.pieces)],
        },
    }


def merges(pieces: tuple[str, ...]) -> list[tuple[str, str]]:
    """Pairs of tokens that byte-pair encoding merges, in order of priority.

    In SentencePiece all divisions of a token have the same rank, and the leftmost pair is merged first; here
    they need an order. It matters only if two overlap, as in x y z with x y = y z; the division that then
    begins further left comes first.
    """
    bases = {piece for piece in pieces if set(piece) <= set(BASES)}
    pairs = []
    for piece in pieces:
        if piece in bases and len(piece) > 1:
            cuts = [
                cut
                for cut in range(1, len(piece))
                if {piece[:cut], piece[cut:]} <= bases
            ]
            cuts.sort(key=lambda cut: (not piece.startswith(piece[cut:]), cut))
            pairs += [(piece[:cut], piece[cut:]) for cut in cuts]
    return pairs


def _open(file: Path, vocabulary: int, names: Mapping[str, str]) -> Tokenizer:
    content = read_content(file)
    if file.suffix == ".json":
        return JsonTokenizer(content, None, vocabulary, names=names, source=str(file))
    try:
        return _fitting(DnaTokenizer(content, str(file)), vocabulary, file)
    except ModelError as error:
        if "not a tokenizer of DNA" not in str(error):
            raise
    return TextTokenizer(content, None, vocabulary, names=names, source=str(file))


def _fitting(tokenizer: DnaTokenizer, vocabulary: int, path: Path) -> DnaTokenizer:
    if tokenizer.vocabulary != vocabulary:
        raise ModelError(
            f"{path}: {tokenizer.vocabulary} tokens, the model has {vocabulary} (vocab_size)"
        )
    return tokenizer
