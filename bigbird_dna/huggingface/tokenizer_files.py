"""Tokenizer files for HuggingFace's `AutoTokenizer`, and the special tokens specified in its files.

The BPE of SentencePiece and of the `tokenizers` library differ in their inputs. SentencePiece has an ordered
vocabulary and joins any two adjacent tokens whose concatenation is a token; `tokenizers` has a list of pairs.
The pairs of a token are therefore all its divisions into two tokens, in vocabulary order.
"""

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


def find_tokenizer(
    directory: Path, vocabulary: int, file: Path | None = None
) -> Tokenizer:
    """The tokenizer of a checkpoint directory whose model has `vocabulary` ids.

    Searched in this order: `file`; the package's own file; `tokenizer.json`; `spiece.model`. `ModelError` if
    none is found, or its ids exceed the model's vocabulary.
    """
    if file is None:
        names = (PACKAGE_FILE, "tokenizer.json", _TEXT_FILE)
        present = [directory / name for name in names if (directory / name).is_file()]
        if not present:
            raise ModelError(
                f"{directory}: tokenizer missing (tokenizer.json or {_TEXT_FILE}); give one with --tokenizer"
            )

        file = present[0]

    content, source = read_content(file), str(file)
    special = special_names(directory)
    if file.suffix == ".json":
        return JsonTokenizer(content, None, vocabulary, names=special, source=source)

    try:
        tokenizer = DnaTokenizer(content, source)
    except ModelError as error:
        if "not a tokenizer of DNA" not in str(error):
            raise

        return TextTokenizer(content, None, vocabulary, names=special, source=source)

    if tokenizer.vocabulary != vocabulary:
        raise ModelError(
            f"{file}: {tokenizer.vocabulary} tokens, the model has {vocabulary} (vocab_size)"
        )

    return tokenizer


def special_names(directory: Path) -> dict[str, str]:
    """Texts of the special tokens "pad", "unk", "cls", "sep", "mask", as far as the files specify them."""
    names: dict[str, str] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        values = read_object(directory / file) if (directory / file).is_file() else {}
        for role in Specials._fields:
            value = values.get(f"{role}_token")
            if isinstance(value, dict):
                value = value.get("content")
            if isinstance(value, str):
                names[role] = value
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
        bpe_tokenizer(tokenizer).save(str(directory / "tokenizer.json"))
    else:
        tokenizer.save(directory / "tokenizer.json")

    special = {
        f"{role}_token": tokenizer.pieces[index]
        for role, index in tokenizer.specials._asdict().items()
    }
    write_json(directory / "tokenizer_config.json", settings | special)
    write_json(directory / "special_tokens_map.json", special)


def bpe_tokenizer(tokenizer: DnaTokenizer) -> Any:
    """The `tokenizers.Tokenizer` that encodes every sequence to the same ids as this package.

    Lower case is read as upper case, and IUPAC codes as N. Runs of N are added tokens, which are matched
    after this normalization and before any merge, longest first.
    """
    try:
        import tokenizers
        from tokenizers import decoders, models, normalizers, processors
    except ImportError:
        raise ModelError(
            "a tokenizer for HuggingFace needs its library; run pip install 'bigbird-dna[hf]'"
        ) from None

    pieces = tokenizer.pieces
    ids = {piece: index for index, piece in enumerate(pieces)}
    library = tokenizers.Tokenizer(
        models.BPE(vocab=ids, merges=merges(pieces), unk_token="[UNK]")
    )
    replaced = [normalizers.Replace(base.lower(), base) for base in BASES]
    ambiguous = tokenizers.Regex(f"[n{AMBIGUOUS}{AMBIGUOUS.lower()}]")
    replaced.append(normalizers.Replace(ambiguous, "N"))
    library.normalizer = normalizers.Sequence(replaced)
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, ids[name]) for name in ("[CLS]", "[SEP]")],
    )
    library.decoder = decoders.Fuse()
    library.add_special_tokens(list(SPECIAL_PIECES))
    runs = [piece for piece in pieces if set(piece) == {"N"}]
    library.add_tokens([tokenizers.AddedToken(run, normalized=True) for run in runs])
    return library


def merges(pieces: tuple[str, ...]) -> list[tuple[str, str]]:
    """Pairs of tokens that byte-pair encoding merges, in order of priority.

    In SentencePiece all divisions of a token have the same rank, and the leftmost pair is merged first; here
    they need an order. It matters only if two overlap, as in x y z with x y = y z; the division that then
    begins further left comes first.
    """
    bases = {piece for piece in pieces if set(piece) <= set(BASES)}
    pairs = []
    for piece in pieces:
        if piece not in bases:
            continue

        divisions = []
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in bases and right in bases:
                divisions.append((not piece.startswith(right), cut, left, right))

        pairs += [(left, right) for *_, left, right in sorted(divisions)]

    return pairs
