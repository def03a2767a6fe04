"""Readers of what the package wrote itself: model directories, token stores, checkpoints, the kernel's cache.

Checksums that a damaged file would fail at once are put right first, so that what lies behind them is
reached; where the checksum is what is read, it stays.
"""

import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from bigbird_dna.calibration.fitting import Fitted
from bigbird_dna.calibration.maps import Isotonic, Platt
from bigbird_dna.calibration.stored import Calibration, own_digest, read_calibration, write_calibration
from bigbird_dna.config import EncoderConfig, OptimizerConfig
from bigbird_dna.disk.user_cache import DIGEST, LIBRARY, open_kept
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.sequence import whole_contigs
from bigbird_dna.model.directory import CONFIG, WEIGHTS, load, read_encoder_config, save
from bigbird_dna.model.settings import (
    ChromatinSettings,
    NamedTrack,
    PretrainingSettings,
    PromoterSettings,
    Settings,
)
from bigbird_dna.model.weights import KEY, RECORD
from bigbird_dna.tokens.corpus import DocumentPlan
from bigbird_dna.tokens.store import TokenStore, build_store
from bigbird_dna.tokens.store_writer import own_checksum
from bigbird_dna.training.checkpoints import CheckpointStore, Lock
from bigbird_dna.training.log import Progress, TrainingLog
from bigbird_dna.training.optimizers import make_optimizer
from tests.fuzz.containers import NPY, SAFETENSORS, ZIP
from tests.fuzz.reader import Files, Reader, made, put
from tests.fuzz.readers.arrays import file_bytes
from tests.toys import random_dna, random_model, small_tokenizer

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
WORDS = (b"-1", b"1e999", b"NaN", b"null", b"1" * 5000, b"[" * 2000, b"1000000000000", b"true", b'""', b"{}")


def _model(settings: Settings, position: str) -> Files:
    sizes = {"layers": 1, "hidden": 8, "heads": 2, "max_length": 64, "block_size": 8, "num_global_tokens": 2}
    vocabulary = small_tokenizer().vocabulary
    config = EncoderConfig(
        vocabulary=vocabulary, position_encoding=position, relative_max_distance=2, **sizes
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
        passes=1, max_start_offset=100, sentence_bases=(40, 80), sentences_per_document=(2, 5)
    )

    def write(home: Path) -> None:
        write_fasta(home / "reference.fa.gz", [("a", random_dna(1500, 1))])
        reference, contigs = Reference(home / "reference.fa.gz"), whole_contigs({"a": 1500})
        build_store(home / "store", reference, contigs, small_tokenizer(), plan)

    return {name: content for name, content in made(write).items() if not name.startswith("reference")}


def _in_a_store(name: str, signed: bool = True) -> Callable[[Path], None]:
    """Read a store whose file of that name is damaged; `signed`: with the checksums that it should have."""

    def read(path: Path) -> None:
        directory = put({**_store(), name: path.read_bytes()}, path.with_name("store"))
        description = directory / "store.json"
        try:
            info = json.loads(description.read_bytes())
        except (ValueError, RecursionError):
            info = None
        if signed and isinstance(info, dict) and "sha256" in info:
            for each in ("tokens.bin", "sentences.npy", "documents.npy"):
                info[f"{Path(each).stem}_sha256"] = hashlib.sha256(
                    (directory / each).read_bytes()
                ).hexdigest()
            description.write_text(json.dumps(info | {"sha256": own_checksum(info)}))
        store = TokenStore.open(directory, small_tokenizer(), verify=True)
        # What is accepted can be gone through.
        assert int(store.tokens.max(initial=0)) < small_tokenizer().vocabulary
        assert store.sentences[store.documents[-1]] == len(store.tokens)

    return read


@functools.cache
def _calibrations() -> list[bytes]:
    line = Fitted(Platt(slope=0.7, intercept=-0.2), 30, 70)
    curve = Fitted(Isotonic(scores=(0.2, 0.5), probabilities=(0.1, 0.7)), 0, 100, shared=True)
    maps: list[dict[str | None, Fitted]] = [{None: line}, {"one": line, "two": curve}]
    whole = [Calibration.of(fitted, {"split": "valid"}) for fitted in maps]
    return file_bytes(
        ".json", *(lambda path, one=one: write_calibration(path, one, "0" * 64) for one in whole)
    )


def _calibration(path: Path) -> None:
    """A calibration with the checksum that it should have."""
    try:
        content = json.loads(path.read_bytes())
        content.pop("sha256", None)
        path.write_text(json.dumps({**content, "sha256": own_digest(content)}))
    except (ValueError, AttributeError, TypeError, RecursionError):
        pass
    found = read_calibration(path)
    values = np.linspace(0, 1, 11, dtype=np.float32)[:, None].repeat(len(found.tracks), 1)
    calibrated = found(values[:, 0] if found.tracks[0].track is None else values)
    # What was accepted keeps the order, and gives probabilities.
    assert ((calibrated >= 0) & (calibrated <= 1)).all() and (np.diff(calibrated, axis=0) >= 0).all()


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
        return store.path.read_bytes()


def _content() -> bytes:
    whole = _checkpoint()
    return whole[whole.index(b"\n") + 1 :]


def _signed_checkpoint(path: Path) -> None:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest().encode()
    _resume(path, _checkpoint()[: _checkpoint().index(b"\n") - 64] + digest + b"\n" + content)


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
    """What another process has written into a lock that it holds."""
    holder = Lock(path.with_name("held"))
    holder.take("it")
    path.with_name("held").write_bytes(path.read_bytes())
    try:
        Lock(path.with_name("held")).take("it")
    finally:
        holder.release()


def _of_models(name: str) -> Callable[[], list[bytes]]:
    return lambda: [files[name] for files in _models()]


def _packed() -> list[bytes]:
    return [_content()]


STEPS = b'{"step": 2, "loss": NaN}\n{"step": 4}\n'
READERS = [
    Reader("model-config", ".json", _in_a_model(CONFIG), _of_models(CONFIG), tokens=WORDS),
    Reader("model-weights", ".safetensors", _in_a_model(WEIGHTS), _of_models(WEIGHTS), SAFETENSORS, WORDS),
    Reader("calibration", ".json", _calibration, _calibrations, tokens=WORDS),
    Reader("model-record", ".json", _in_a_model(RECORD), lambda: [_models()[0][RECORD]], tokens=WORDS),
    *(
        Reader(
            f"store-{name}",
            Path(file).suffix,
            _in_a_store(file, name != "unsigned"),
            functools.partial(lambda file: [_store()[file]], file),
            NPY if file.endswith(".npy") else None,
            WORDS if file == "store.json" else (),
        )
        for name, file in {
            **{"description": "store.json", "unsigned": "store.json", "tokens": "tokens.bin"},
            **{"sentences": "sentences.npy", "documents": "documents.npy"},
        }.items()
    ),
    Reader("checkpoint", ".pt", _any_checkpoint, lambda: [_checkpoint()]),
    Reader("checkpoint-signed", ".pt", _signed_checkpoint, _packed, ZIP),
    Reader("training-log-resumed", ".jsonl", _log, lambda: [STEPS], tokens=WORDS),
    Reader("kernel-library", ".so", _kernel(LIBRARY), lambda: [_kept()[LIBRARY]]),
    Reader("kernel-digest", ".sha256", _kernel(DIGEST), lambda: [_kept()[DIGEST]]),
    Reader("training-lock", "", _lock, lambda: [b"process 7 on here since 2026-01-01 00:00:00+0000\n"]),
]
