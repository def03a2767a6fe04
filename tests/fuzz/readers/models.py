"""Readers of tokenizers and of HuggingFace's checkpoints; other files of a checkpoint are good ones."""

import functools
import io
import json
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load, save

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import BigBirdDnaError
from bigbird_dna.huggingface.exporting import export_huggingface
from bigbird_dna.huggingface.importing import import_huggingface
from bigbird_dna.huggingface.tokenizer_files import bpe_description
from bigbird_dna.model.directory import save as save_model
from bigbird_dna.model.settings import PromoterSettings
from bigbird_dna.model.weights import RECORD
from bigbird_dna.tokens.interface import Tokenizer, read_content
from bigbird_dna.tokens.piece_model import read_fields, write_field
from bigbird_dna.tokens.text import TextTokenizer, load_tokenizer
from bigbird_dna.training.initialization import read_provenance
from tests.fuzz.containers import SAFETENSORS, ZIP
from tests.fuzz.reader import Container, Files, Reader, among, made, member, put
from tests.tokens.test_tokenizer import content as json_tokenizer
from tests.tokens.text_model import text_model
from tests.toys import random_dna, random_model, small_tokenizer

WEIGHTS = "model.safetensors"
DNA = random_dna(300, 4) + "N" * 40 + random_dna(50, 5)


def _use(tokenizer: Tokenizer) -> None:
    """A tokenizer that was opened encodes, or says that it can't."""
    try:
        ids = tokenizer.encode(DNA)
    except BigBirdDnaError:
        return
    assert not len(ids) or 0 <= ids.min() <= ids.max() < tokenizer.vocabulary
    tokenizer.decode(ids)
    if tokenizer.is_dna:
        offsets = tokenizer.encode_with_offsets(DNA).offsets
        assert (offsets[0], offsets[-1]) == (0, len(DNA))


def _tokenizer(path: Path) -> None:
    _use(load_tokenizer(path))


def _text_tokenizer(path: Path) -> None:
    tokenizer = TextTokenizer(read_content(path), source=str(path))
    tokenizer.decode(tokenizer.encode("The ﬁrst gene ½ begins ①"))
    _use(tokenizer)


def _described(path: Path) -> None:
    """A model of text whose description is damaged."""
    try:
        description = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return
    if isinstance(description, dict):
        model = path.with_name("tokenizer.model")
        model.write_bytes(_texts()[0])
        _use(load_tokenizer(model, description))


@functools.cache
def _dna_models() -> list[bytes]:
    return [small_tokenizer().content]


@functools.cache
def _texts() -> list[bytes]:
    """Without and with rules of normalisation; these take 240 KB."""
    whole = text_model("the gene begins, then the gene ends", 24)
    plain = [write_field(f.number, b"" if f.number == 3 else f.value) for f in read_fields(whole)]
    return [b"".join(plain), whole]


def _json_tokenizers() -> list[bytes]:
    words = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "▁the", "A", "C", "G", "T", "N"]
    step = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}
    unigram = {"type": "Unigram", "unk_id": 0, "vocab": [[word, -float(i)] for i, word in enumerate(words)]}
    pieces = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {word: i for i, word in enumerate([*words, "##A", "##C"])},
    }
    lower = {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]}
    made = (
        bpe_description(small_tokenizer()),
        {"version": "1.0", "added_tokens": [], "pre_tokenizer": step, "decoder": step, "model": unigram},
        {"version": "1.0", "added_tokens": [], "normalizer": lower, "model": pieces},
    )
    return [json_tokenizer(), *(json.dumps(each).encode() for each in made)]


def _fields(data: bytes) -> list[bytes]:
    return [field.value for field in read_fields(data) if isinstance(field.value, bytes)]


def _message(data: bytes, members: list[bytes]) -> bytes:
    fields = zip(read_fields(data), members, strict=True)
    return b"".join(write_field(field.number, member) for field, member in fields)


@functools.cache
def _model_directory() -> Files:
    """A small promoter model of ours."""
    settings = PromoterSettings(upstream=30, downstream=10, pooling="cls", jitter=4, views=2)
    config = EncoderConfig(
        vocabulary=40, layers=1, hidden=8, heads=2, max_length=64, block_size=4, random_blocks=1
    )
    model = random_model(small_tokenizer(), config, settings)
    return made(lambda home: save_model(home / "own", model, {"contigs": ["chr1"]}, {}, {}))


@functools.cache
def _checkpoint() -> Files:
    """The same as a checkpoint, with its tokenizer as `tokenizer.json` alone."""
    with tempfile.TemporaryDirectory() as directory:
        own = put(_model_directory(), Path(directory, "own"))
        return made(lambda home: export_huggingface(own, home / "hf"))


@functools.cache
def _imported() -> Files:
    """The checkpoint as a model that remembers it."""
    with tempfile.TemporaryDirectory() as directory:
        checkpoint = put(_checkpoint(), Path(directory, "hf"))
        return made(lambda home: import_huggingface(checkpoint, home / "own"))


def _import(directory: Path) -> None:
    import_huggingface(directory, directory.with_name("ours"))


def _pickled(**options: bool) -> bytes:
    stream = io.BytesIO()
    torch.save(load(_checkpoint()[WEIGHTS]), stream, **options)
    return stream.getvalue()


def _sharded() -> Files:
    tensors = load(_checkpoint()[WEIGHTS])
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    shards = {file: save({name: tensors[name] for name in part}) for file, part in parts.items()}
    return {**_checkpoint(), **shards}


def _index() -> bytes:
    names = sorted(load(_checkpoint()[WEIGHTS]))
    places = {name: "ab"[number % 2] + ".safetensors" for number, name in enumerate(names)}
    return json.dumps({"metadata": {"total_size": 1}, "weight_map": places}).encode()


def _safetensors() -> list[bytes]:
    tensors = load(_checkpoint()[WEIGHTS])
    return [save(tensors), save({name: tensor.half() for name, tensor in tensors.items()})]


def _export(directory: Path) -> None:
    (directory / RECORD).unlink(missing_ok=True)  # its checksums would tell
    export_huggingface(directory, directory.with_name("hf"))


PROTOBUF = Container(_fields, _message)
READERS = [
    Reader("dna-tokenizer", ".model", _tokenizer, _dna_models, PROTOBUF),
    Reader("text-tokenizer", ".model", _text_tokenizer, _texts, PROTOBUF),
    Reader("json-tokenizer", ".json", _tokenizer, _json_tokenizers),
    Reader("tokenizer-description", ".json", _described, lambda: [_description()]),
    member("hf-config", _checkpoint, "config.json", _import),
    Reader("hf-safetensors", ".safetensors", among(_checkpoint, WEIGHTS, _import), _safetensors, SAFETENSORS),
    Reader(
        "hf-pickle",
        ".bin",
        among(_checkpoint, "pytorch_model.bin", _import, WEIGHTS),
        lambda: [_pickled()],
        ZIP,
    ),
    Reader(
        "hf-old-pickle",
        ".bin",
        among(_checkpoint, "pytorch_model.bin", _import, WEIGHTS),
        lambda: [_pickled(_use_new_zipfile_serialization=False)],
    ),
    Reader(
        "hf-index", ".json", among(_sharded, f"{WEIGHTS}.index.json", _import, WEIGHTS), lambda: [_index()]
    ),
    member("hf-special-tokens", _checkpoint, "tokenizer_config.json", _import, "bigbird_dna.model"),
    member("hf-tokenizer", _checkpoint, "tokenizer.json", _import, "bigbird_dna.model"),
    member("hf-export", _imported, "config.json", _export),
    Reader("provenance", ".json", among(dict, RECORD, read_provenance), lambda: [_imported()[RECORD]]),
]


def _description() -> bytes:
    return json.dumps(TextTokenizer(_texts()[0]).description()).encode()
