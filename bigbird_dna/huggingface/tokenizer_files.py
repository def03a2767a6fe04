"""Tokenizer files that HuggingFace's `AutoTokenizer` reads, and what its files say about special pieces.

SentencePiece's BPE and that of the `tokenizers` library differ in what they are told: the former has pieces
with an order, and joins any two neighbors whose joint text is a piece; the latter has a list of pairs. The
pairs of a piece are therefore all its divisions into two pieces, in the order of the pieces.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import ModelError
from bigbird_dna.tokens.dna import SPECIAL_PIECES, DnaTokenizer
from bigbird_dna.tokens.interface import BASES, Specials, Tokenizer, read_content
from bigbird_dna.tokens.text import JsonTokenizer, TextTokenizer

OWN_FILE = "bigbird_dna.model"  # a DnaTokenizer's own file beside its tokenizer.json
_TEXT_FILE = "spiece.model"
_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json")


def find_tokenizer(directory: Path, vocabulary: int, file: Path | None = None) -> Tokenizer:
    """The tokenizer of a checkpoint directory whose model has `vocabulary` ids.

    Looked for in this order: `file`; the package's own file; `tokenizer.json`; `spiece.model`. `ModelError`
    if there is none, or its ids go beyond the model's.
    """
    names = special_names(directory)
    own = directory / OWN_FILE
    if file is not None:
        return _open(file, vocabulary, names)
    if own.is_file():
        return _fitting(DnaTokenizer.load(own), vocabulary, own)
    for found in (directory / "tokenizer.json", directory / _TEXT_FILE):
        if found.is_file():
            return _open(found, vocabulary, names)
    raise ModelError(f"{directory}: no tokenizer (tokenizer.json or {_TEXT_FILE}): name one with --tokenizer")


def special_names(directory: Path) -> dict[str, str]:
    """Texts of the special pieces by "pad", "unk", "cls", "sep", "mask", as far as the files say them."""
    names: dict[str, str] = {}
    for file in _SETTINGS:
        if not (directory / file).is_file():
            continue
        values = read_mapping(directory / file)
        for role in Specials._fields:
            value = values.get(f"{role}_token")
            if isinstance(value, dict):
                value = value.get("content")
            if isinstance(value, str):
                names.setdefault(role, value)
    return names


def write_tokenizer(tokenizer: Tokenizer, directory: Path, positions: int) -> None:
    """Write the files from which `AutoTokenizer` makes the same tokenizer; `positions` in tokens."""
    settings: dict[str, Any] = {"model_max_length": positions}
    if isinstance(tokenizer, TextTokenizer):
        tokenizer.save(directory / _TEXT_FILE)
        settings["tokenizer_class"] = "BigBirdTokenizer"
    else:
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
        settings["clean_up_tokenization_spaces"] = False
        if isinstance(tokenizer, DnaTokenizer):
            write_json(directory / "tokenizer.json", bpe_description(tokenizer))
            tokenizer.save(directory / OWN_FILE)
        else:
            tokenizer.save(directory / "tokenizer.json")
    special = {
        f"{role}_token": tokenizer.pieces[index] for role, index in tokenizer.specials._asdict().items()
    }
    write_json(directory / "tokenizer_config.json", settings | special)
    write_json(directory / "special_tokens_map.json", special)


def bpe_description(tokenizer: DnaTokenizer) -> dict[str, Any]:
    """The content of a `tokenizer.json` that gives every sequence over A C G T N the same ids.

    Runs of N are added tokens, which are found before anything is merged, the longest first.
    """
    ids = {piece: index for index, piece in enumerate(tokenizer.pieces)}
    n_pieces = [piece for piece in ids if set(piece) == {"N"}]
    added = [(piece, True) for piece in SPECIAL_PIECES] + [(piece, False) for piece in n_pieces]
    cls, sep = ({"SpecialToken": {"id": name, "type_id": 0}} for name in ("[CLS]", "[SEP]"))
    first, second = ({"Sequence": {"id": name, "type_id": t}} for t, name in enumerate("AB"))
    last = {"SpecialToken": {"id": "[SEP]", "type_id": 1}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": ids[piece],
                "content": piece,
                **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
                "special": special,
            }
            for piece, special in added
        ],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [cls, first, sep],
            "pair": [cls, first, sep, second, last],
            "special_tokens": {
                name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")
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
    """Pairs of pieces that byte-pair encoding joins, the first to be joined first.

    All divisions of one piece have the same rank in SentencePiece, where the leftmost pair goes first; here
    one has to precede the other. It matters only where two overlap, as x y z with x y = y z; the division
    that then begins further left is put first.
    """
    bases = {piece for piece in pieces if set(piece) <= set(BASES)}
    found = []
    for piece in pieces:
        if piece in bases and len(piece) > 1:
            cuts = [cut for cut in range(1, len(piece)) if {piece[:cut], piece[cut:]} <= bases]
            cuts.sort(key=lambda cut: (not piece.startswith(piece[cut:]), cut))
            found += [(piece[:cut], piece[cut:]) for cut in cuts]
    return found


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
            f"{path}: {tokenizer.vocabulary} pieces, the model has {vocabulary} ids (vocab_size)"
        )
    return tokenizer
