"""Indices that were found by reading a whole file, remembered for as long as nothing touches the file.

What is remembered holds for a file of the same number, size and times. Among these is the time of the
last change of anything about it, which no program can set: copying, unpacking, renaming and rewriting
give the file another one, whatever modification time they put on.
"""

import base64
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from bigbird_dna.cache import PrivateShelf
from bigbird_dna.genome.bgzip import BlockIndex
from bigbird_dna.genome.fasta_index import FastaIndex, Row

_FORMAT = 1
_SHELF = PrivateShelf("references", most=256)
_SMALLEST = 1 << 20  # bytes of a file that is worth it: smaller ones are read in milliseconds
# Two changes within one tick of the file system's clock look like one. Kernels tick every 10 ms or faster; a
# time of whole seconds is likely of a file system whose clock ticks every other second.
_TICK, _SLOW_TICK = 20_000_000, 2_100_000_000  # ns


class Identity(NamedTuple):
    """What a file had when it was read."""

    inode: int
    size: int
    modified: int  # ns
    changed: int  # ns; of the content or anything else about it

    @classmethod
    def of(cls, found: os.stat_result) -> "Identity":
        """From what the system says of the file."""
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def recall(path: Path, identity: Identity) -> FastaIndex | None:
    """The index of a file that was remembered for just this identity."""
    content = None if identity.size < _SMALLEST else _SHELF.get(_key(path))
    if content is None:
        return None
    try:
        stored = json.loads(content)
        proof = stored["proof"]
        if stored["sha256"] != _digest(proof) or proof["format"] != _FORMAT:
            return None
        if proof["identity"] != list(identity):
            return None
        blocks = None if proof["gzi"] is None else BlockIndex.from_bytes(base64.b64decode(proof["gzi"]))
        rows = {name: Row(*numbers) for name, *numbers in proof["rows"]}
        return FastaIndex(rows, blocks, proof["file_sha256"])
    except (ValueError, LookupError, TypeError, RecursionError):  # not written by this version, or damaged
        return None


def settle(identity: Identity) -> bool:
    """Wait until every further change of a file gives it another identity; False if that takes long."""
    tick = _TICK if identity.changed % 1_000_000_000 else _SLOW_TICK
    left = identity.changed + tick - time.time_ns()
    if 0 < left <= _TICK:
        time.sleep(left / 1e9)
    return left <= _TICK


def remember(path: Path, identity: Identity, index: FastaIndex) -> None:
    """Keep the index of a file that had this identity, settled, before and after it was read."""
    if identity.size < _SMALLEST:
        return
    proof = {
        "format": _FORMAT,
        "file": os.path.realpath(path),
        "identity": list(identity),
        "file_sha256": index.sha256,
        "rows": [[name, *row] for name, row in index.rows.items()],
        "gzi": None if index.blocks is None else base64.b64encode(index.blocks.to_bytes()).decode(),
    }
    _SHELF.put(_key(path), json.dumps({"sha256": _digest(proof), "proof": proof}).encode())


def _key(path: Path) -> str:
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]


def _digest(proof: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(proof).encode()).hexdigest()
