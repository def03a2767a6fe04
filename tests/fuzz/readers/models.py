"""Readers of tokenizers, of HuggingFace's checkpoints, and of what the package wrote itself.

Checksums that a damaged file would fail at once are put right first, so that what lies behind them is
reached; where the checksum is what is read, it stays. Other files of a directory are good ones.
"""

import functools
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from safetensors import torch as safetensors
from torch import nn

from bigbird_dna.calibration.call_precision import read_call_precision
from bigbird_dna.calibration.maps import own_digest, read_calibration
from bigbird_dna.calibration.variant_background import read_background
from bigbird_dna.config import FinetuningConfig, OptimizerConfig
from bigbird_dna.disk.native_library import DIGEST, LIBRARY, open_kept
from bigbird_dna.errors import BigBirdDnaError
from bigbird_dna.genome.profile import FILE as PROFILE
from bigbird_dna.genome.profile import KmerCounts, training_profile
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.sequence import whole_contigs
from bigbird_dna.huggingface.exchange import export_huggingface, import_huggingface
from bigbird_dna.model.directory import CONFIG, WEIGHTS, load, read_encoder_config, save
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.model import training_profile_of
from bigbird_dna.model.settings import (
    ChromatinSettings,
    NamedTrack,
    PretrainingSettings,
    PromoterSettings,
    Settings,
)
from bigbird_dna.model.weights import KEY, RECORD
from bigbird_dna.tokens.build import build_store
from bigbird_dna.tokens.corpus import DocumentPlan
from bigbird_dna.tokens.interface import Tokenizer, read_content
from bigbird_dna.tokens.piece_model import read_fields, write_field
from bigbird_dna.tokens.shard import FILES, MANIFEST, own_checksum, shard_name
from bigbird_dna.tokens.store import TokenStore
from bigbird_dna.tokens.text import TextTokenizer, load_tokenizer
from bigbird_dna.training import checkpoints
from bigbird_dna.training.adapters import ADAPTER, adapt, apply_adapter
from bigbird_dna.training.checkpoints import CheckpointStore, Lock
from bigbird_dna.training.initialization import read_provenance
from bigbird_dna.training.log import Progress, TrainingLog
from bigbird_dna.training.loop import make_optimizer
from tests.fuzz.reader import ZIP, Container, Files, Reader, made, member, put
from tests.tokens.text_model import text_model
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer

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
def _texts() -> list[bytes]:
    """Without and with rules of normalization; these take 240 KB."""
    whole = text_model("the gene begins, then the gene ends", 24)
    plain = [
        write_field(f.number, b"" if f.number == 3 else f.value)
        for f in read_fields(whole)
    ]
    return [b"".join(plain), whole]


def _description() -> list[bytes]:
    return [json.dumps(TextTokenizer(_texts()[0]).description()).encode()]


def _fields(data: bytes) -> list[bytes]:
    return [
        field.value for field in read_fields(data) if isinstance(field.value, bytes)
    ]


def _message(data: bytes, members: list[bytes]) -> bytes:
    fields = zip(read_fields(data), members, strict=True)
    return b"".join(write_field(field.number, member) for field, member in fields)


@functools.cache
def _model_directory() -> Files:
    """A small promoter model of ours."""
    settings = PromoterSettings(
        upstream=30, downstream=10, pooling="cls", jitter=4, views=2
    )
    config = small_encoder(40, hidden=8, max_length=64, block_size=4, random_blocks=1)
    model = random_model(small_tokenizer(), config, settings)
    return made(lambda home: save(home / "own", model, {"contigs": ["chr1"]}, {}, {}))


@functools.cache
def _hf() -> Files:
    """The same as a checkpoint, with its tokenizer as `tokenizer.json` alone."""
    with tempfile.TemporaryDirectory() as directory:
        own = put(_model_directory(), Path(directory, "own"))
        return made(lambda home: export_huggingface(own, home / "hf"))


@functools.cache
def _with_code() -> Files:
    """The model as a checkpoint with model code."""
    with tempfile.TemporaryDirectory() as directory:
        own = put(_model_directory(), Path(directory, "own"))
        return made(lambda home: export_huggingface(own, home / "hf", "always"))


@functools.cache
def _imported() -> Files:
    """The checkpoint as a model that remembers it."""
    with tempfile.TemporaryDirectory() as directory:
        checkpoint = put(_hf(), Path(directory, "hf"))
        return made(lambda home: import_huggingface(checkpoint, home / "own"))


def _import(directory: Path) -> None:
    import_huggingface(directory, directory.with_name("ours"))


def _pickled(**options: bool) -> bytes:
    stream = io.BytesIO()
    torch.save(safetensors.load(_hf()[WEIGHTS]), stream, **options)
    return stream.getvalue()


def _sharded() -> Files:
    tensors = safetensors.load(_hf()[WEIGHTS])
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    shards = {
        file: safetensors.save({name: tensors[name] for name in part})
        for file, part in parts.items()
    }
    return {**_hf(), **shards}


def _index() -> list[bytes]:
    names = sorted(safetensors.load(_hf()[WEIGHTS]))
    places = {
        name: "ab"[number % 2] + ".safetensors" for number, name in enumerate(names)
    }
    return [json.dumps({"metadata": {"total_size": 1}, "weight_map": places}).encode()]


def _safetensors() -> list[bytes]:
    tensors = safetensors.load(_hf()[WEIGHTS])
    half = {name: tensor.half() for name, tensor in tensors.items()}
    return [safetensors.save(tensors), safetensors.save(half)]


def _export(directory: Path) -> None:
    (directory / RECORD).unlink(missing_ok=True)  # its checksums would tell
    export_huggingface(directory, directory.with_name("hf"))


SETTINGS: tuple[Settings, ...] = (
    PromoterSettings(upstream=30, downstream=10, pooling="mean", jitter=4, views=2),
    PretrainingSettings(),
    ChromatinSettings(
        window=40,
        bin=10,
        pooling="bin",
        bin_layers=1,
        members=2,
        tracks=(NamedTrack(track="one", group="TF"),),
    ),
)


def _model(settings: Settings, position: str) -> Files:
    relative = {
        "num_global_tokens": 2,
        "position_encoding": position,
        "relative_max_distance": 2,
    }
    config = small_encoder(
        small_tokenizer().vocabulary, hidden=8, max_length=64, **relative
    )
    model = random_model(small_tokenizer(), config, settings)
    return made(lambda home: save(home / "model", model, {}, {}, {}))


@functools.cache
def _models() -> list[Files]:
    return list(map(_model, SETTINGS, ("learned", "rotary", "learned")))


def _in_a_model(name: str) -> Callable[[Path], None]:
    """Read a model whose file of that name is damaged; of several models, the one it looks most like."""

    def read(path: Path) -> None:
        content = path.read_bytes()
        whole = min(_models(), key=lambda files: abs(len(files[name]) - len(content)))
        if name == RECORD:
            whole = _models()[0]
        directory = put({**whole, name: content}, path.with_name("model"))
        if name != RECORD:
            record = {
                each: hashlib.sha256((directory / each).read_bytes()).hexdigest()
                for each in (CONFIG, WEIGHTS)
            }
            (directory / RECORD).write_text(json.dumps({KEY: record}))
        if name != WEIGHTS:
            read_encoder_config(directory)
        load(directory)

    return read


@functools.cache
def _store() -> Files:
    plan = DocumentPlan(
        passes=1,
        max_start_offset=100,
        sentence_bases=(40, 80),
        sentences_per_document=(2, 5),
    )

    def write(home: Path) -> None:
        write_fasta(home / "reference.fa.gz", [("a", random_dna(1500, 1))])
        reference, contigs = (
            Reference(home / "reference.fa.gz"),
            whole_contigs({"a": 1500}),
        )
        build_store(home / "store", reference, contigs, small_tokenizer(), plan)

    return {
        name: content
        for name, content in made(write).items()
        if not name.startswith("reference")
    }


def _in_a_store(name: str, signed: bool = True) -> Callable[[Path], None]:
    """Read a store whose file of that name is damaged; `signed`: with the checksums that it should have."""

    def read(path: Path) -> None:
        files = {**_store(), name: path.read_bytes()}
        inner = {each: files.pop(each) for each in (*FILES, MANIFEST)}
        directory = put(files, path.with_name("store"))
        shard = put(inner, directory / shard_name(1))
        description = directory / "store.json"
        try:
            info = json.loads(description.read_bytes())
        except (ValueError, RecursionError):
            info = None
        shards = info.get("shards") if isinstance(info, dict) else None
        if signed and isinstance(info, dict) and "sha256" in info:
            if isinstance(shards, list) and shards and isinstance(shards[0], dict):
                for each in FILES:
                    content = (shard / each).read_bytes()
                    shards[0][f"{Path(each).stem}_bytes"] = len(content)
                    shards[0][f"{Path(each).stem}_sha256"] = hashlib.sha256(
                        content
                    ).hexdigest()
                (shard / MANIFEST).write_text(json.dumps(shards[0]))
            description.write_text(json.dumps(info | {"sha256": own_checksum(info)}))
        store = TokenStore.open(directory, small_tokenizer(), verify=True)
        # What is accepted can be gone through.
        assert (
            int(np.asarray(store.tokens).max(initial=0)) < small_tokenizer().vocabulary
        )
        assert store.sentences[store.documents[-1]] == len(store.tokens)

    return read


def _seal(path: Path) -> None:
    """Give a calibration the checksum that it should have."""
    try:
        content = json.loads(path.read_bytes())
        content.pop("sha256", None)
        path.write_text(json.dumps({**content, "sha256": own_digest(content)}))
    except (ValueError, AttributeError, TypeError, RecursionError):
        pass


def _calibration(path: Path) -> None:
    """A calibration with the checksum that it should have."""
    _seal(path)
    found = read_calibration(path)
    values = np.linspace(0, 1, 11, dtype=np.float32)[:, None].repeat(
        len(found.tracks), 1
    )
    calibrated = found(values[:, 0] if found.tracks[0].track is None else values)
    # What was accepted keeps the order, and gives probabilities.
    assert ((calibrated >= 0) & (calibrated <= 1)).all() and (
        np.diff(calibrated, axis=0) >= 0
    ).all()


def _call_precision(path: Path) -> None:
    """What was accepted has probabilities in their intervals, which do not fall."""
    _seal(path)
    found = read_call_precision(path)
    expected, low, high = found(np.linspace(0, 1, 11))
    assert (
        (low >= 0).all()
        and (low <= expected).all()
        and (expected <= high).all()
        and (high <= 1).all()
    )
    assert (np.diff(expected) >= 0).all()
    chosen = [found.at_rate(rate) for rate in (0.0, 0.5, 1.0)]
    assert found.best().score in found.scores and (
        chosen[2] is None or chosen[2].calls > 0
    )


def _background(path: Path) -> None:
    """What was accepted has quantiles that rise with the effect."""
    _seal(path)
    found = read_background(path)
    for type in found.largest:
        ranks = [found.quantile(type, size) for size in (0.0, 0.5, 1e9)]
        known = [rank for rank in ranks if rank is not None]
        assert (
            len(known) in (0, 3)
            and known == sorted(known)
            and all(0 <= rank <= 1 for rank in known)
        )
    assert str(found)


@functools.cache
def _profile() -> Files:
    found = training_profile([random_dna(120_000, 3)])
    assert found is not None
    return {PROFILE: found.model_dump_json().encode()}


def _training_profile(directory: Path) -> None:
    """What is accepted can be compared with an input."""
    model = random_model(small_tokenizer(), small_encoder(40), PretrainingSettings())
    found, counts = training_profile_of(replace(model, path=directory)), KmerCounts()
    counts.add(random_dna(30_000, 4).encode())
    counts.finish()
    assert found is not None
    difference = found.compare(counts)
    assert difference is None or 0 <= difference.distance <= 1


def _adapted() -> Classifier:
    torch.manual_seed(0)
    return Classifier(small_encoder(40), outputs=1)


def _adapter_files() -> list[bytes]:
    """With and without low-rank updates."""
    files = []
    for kind in ("lora", "frozen"):
        found = adapt(
            _adapted(),
            FinetuningConfig.model_validate({"adapt": kind, "lora": {"rank": 2}}),
        )
        assert found is not None
        files += made(
            lambda home, found=found: found.save(home / ADAPTER, "0" * 64)
        ).values()  # type: ignore[misc]
    return files


def _apply(path: Path) -> None:
    network = _adapted()
    apply_adapter(network, _adapted().encoder.state_dict(), path)
    assert all(value.isfinite().all() for value in network.state_dict().values())


def _training() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    return network, make_optimizer(network, OptimizerConfig())


@functools.cache
def _checkpoint() -> bytes:
    network, optimizer = _training()
    network(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    with tempfile.TemporaryDirectory() as directory:
        store = CheckpointStore(Path(directory), {})
        store.save(network, optimizer, Progress(4, 100, 1.5, 2))
        store.wait()
        return store.path.read_bytes()


def _signed_checkpoint(path: Path) -> None:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest().encode()
    _resume(
        path,
        _checkpoint()[: _checkpoint().index(b"\n") - 64] + digest + b"\n" + content,
    )


def _resume(path: Path, content: bytes) -> None:
    store = CheckpointStore(path.parent, {})
    store.directory.mkdir()
    store.path.write_bytes(content)
    network, optimizer = _training()
    store.restore(network, optimizer)
    # What was accepted can be gone on with.
    network(torch.ones(4, 2)).sum().backward()
    optimizer.step()


def _any_checkpoint(path: Path) -> None:
    content = path.read_bytes()
    _resume(path, content)
    assert content == _checkpoint() or content.startswith(b"PK"), "damage was not seen"


def _log(path: Path) -> None:
    TrainingLog(path, Progress(step=3), 10)
    for line in filter(None, path.read_text().split("\n")):
        assert json.loads(line)["step"] <= 3


def _kernel(name: str) -> Callable[[Path], None]:
    """A library is loaded only as it was kept."""

    def read(path: Path) -> None:
        home = put({**_kept(), name: path.read_bytes()}, path.with_name("native"))
        home.chmod(0o700)
        found = open_kept(home)
        assert (found is not None) == (path.read_bytes() == _kept()[name])
        if found is not None:
            os.close(int(found.name))

    return read


@functools.cache
def _kept() -> Files:
    library = random_dna(2000, 9).encode()
    return {LIBRARY: library, DIGEST: hashlib.sha256(library).hexdigest().encode()}


def _lock(path: Path) -> None:
    """What another process has written into a lock that it holds; one of another machine is waited for."""
    holder = Lock(path.with_name("held"))
    holder.take("it")
    path.with_name("held").write_bytes(path.read_bytes())
    try:
        with patch.object(checkpoints, "FAILED_SECONDS", 0.0):
            Lock(path.with_name("held")).take("it")
    finally:
        holder.release()


def _of_models(name: str) -> list[bytes]:
    return [files[name] for files in (_models()[:1] if name == RECORD else _models())]


PROTOBUF = Container(_fields, _message)
PICKLE = _hf, "pytorch_model.bin", _import, WEIGHTS
READERS = [
    Reader(
        "dna-tokenizer",
        ".model",
        _tokenizer,
        lambda: [small_tokenizer().content],
        PROTOBUF,
    ),
    Reader("text-tokenizer", ".model", _text_tokenizer, _texts, PROTOBUF),
    Reader("json-tokenizer", ".json", _tokenizer),
    Reader("tokenizer-description", ".json", _described, _description),
    member("hf-config", _hf, "config.json", _import),
    member("hf-code-config", _with_code, "config.json", _import),
    member("hf-safetensors", _hf, WEIGHTS, _import, good=_safetensors),
    member("hf-pickle", *PICKLE, good=lambda: [_pickled()], container=ZIP),
    member(
        "hf-old-pickle",
        *PICKLE,
        good=lambda: [_pickled(_use_new_zipfile_serialization=False)],
    ),
    member(
        "hf-index", _sharded, f"{WEIGHTS}.index.json", _import, WEIGHTS, good=_index
    ),
    member(
        "hf-special-tokens", _hf, "tokenizer_config.json", _import, "bigbird_dna.model"
    ),
    member("hf-tokenizer", _hf, "tokenizer.json", _import, "bigbird_dna.model"),
    member("hf-export", _imported, "config.json", _export),
    member(
        "provenance", dict, RECORD, read_provenance, good=lambda: [_imported()[RECORD]]
    ),
    *(
        Reader(
            f"model-{name}",
            Path(file).suffix,
            _in_a_model(file),
            functools.partial(_of_models, file),
        )
        for name, file in {
            "config": CONFIG,
            "weights": WEIGHTS,
            "record": RECORD,
        }.items()
    ),
    Reader("calibration", ".json", _calibration),
    Reader("call-precision", ".json", _call_precision),
    Reader("variant-background", ".json", _background),
    member("training-profile", _profile, PROFILE, _training_profile),
    Reader("adapter", ".safetensors", _apply, _adapter_files),
    *(
        Reader(
            f"store-{name}",
            Path(file).suffix,
            _in_a_store(file, name != "unsigned"),
            functools.partial(lambda file: [_store()[file]], file),
        )
        for name, file in {
            **{"description": "store.json", "unsigned": "store.json"},
            **{Path(file).stem: file for file in FILES},
        }.items()
    ),
    Reader("checkpoint", ".pt", _any_checkpoint, lambda: [_checkpoint()]),
    Reader(
        "checkpoint-signed",
        ".pt",
        _signed_checkpoint,
        lambda: [_checkpoint().partition(b"\n")[2]],
        ZIP,
    ),
    Reader("training-log-resumed", ".jsonl", _log),
    Reader("kernel-library", ".so", _kernel(LIBRARY), lambda: [_kept()[LIBRARY]]),
    Reader("kernel-digest", ".sha256", _kernel(DIGEST), lambda: [_kept()[DIGEST]]),
    Reader("training-lock", "", _lock),
]
