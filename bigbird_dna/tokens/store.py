"""Token stores: the encoded documents of a split, in shards that are read when they are needed.

A store is a directory with the directories `shard-00001`, `shard-00002`, … (see `tokens.shard`) and
`store.json`: sources, counts, the manifests of all shards, and a checksum of itself (`StoreInfo`). Opening
reads only this file and the sizes of the other files. Several stores can be read as one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NotRequired, Self, TypedDict, cast

import numpy as np

from bigbird_dna.disk.json_files import read_json_of
from bigbird_dna.errors import DataError, shortened
from bigbird_dna.tokens.arrays import ShardedArray
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.shard import (
    DocumentLengths,
    TokenShard,
    TokenShardInfo,
    check_types,
    own_checksum,
    shard_name,
)

FORMAT = 2
DESCRIPTION = "store.json"
COUNTS = (
    *("documents", "first_documents", "sentences", "tokens", "bases"),
    *("skipped_sentences", "skipped_bases"),
)
"""Keys of `store.json` that are sums over the shards."""
_OFFSETS = np.dtype("<i8")


class StoreInfo(TypedDict):
    """The content of `store.json`, with the manifests of the shards and a checksum of itself."""

    format: int
    split: str
    vocabulary: int
    tokenizer_sha256: str
    reference_sha256: str
    dtype: str
    documents: int
    first_documents: int  # documents of the first pass, or with both strands of the first pass of each
    sentences: int
    tokens: int
    bases: int  # bp in the sentences, including N
    skipped_sentences: int  # with more than max_n N
    skipped_bases: int
    max_n: float
    contigs: list[str]  # whole contigs, except those in `stretches`
    stretches: NotRequired[list[str]]  # regions that are read of divided contigs
    passes: int
    strands: str  # forward, or both: every second pass reads the reverse complement
    max_start_offset: int
    sentence_bases: list[int]
    sentences_per_document: list[int]
    seed: int
    shard_bases: int  # bp that are read for a shard, rounded up to whole documents
    shard_count: int
    shards: list[TokenShardInfo]
    sha256: str  # of all other keys, see `own_checksum`


def read_info(path: Path) -> StoreInfo:
    """Read the description at `path`; `DataError` if it is missing, damaged or has a wrong checksum."""
    if not path.is_file():
        raise DataError(f"{path.parent}: not a token store (no {path.name})")
    info = read_json_of(path, DataError, "not readable as JSON")
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        raise DataError(
            f"{path}: not the description of a token store of format {FORMAT}; tokenize again"
        )
    check_types(path, info, StoreInfo)
    for shard in info["shards"]:
        check_types(path, shard, TokenShardInfo)
    if info["dtype"] not in ("uint16", "uint32"):
        raise DataError(
            f"{path}: dtype must be uint16 or uint32, not {shortened(repr(info['dtype']))}"
        )
    for key in COUNTS:
        if info[key] != (total := sum(shard[key] for shard in info["shards"])):
            raise DataError(
                f"{path}: {key} is {info[key]}, but its shards have {total}; tokenize again"
            )
    if info["sha256"] != own_checksum(info):
        raise DataError(f"{path}: the file is damaged: wrong sha256; tokenize again")
    numbers = [shard["number"] for shard in info["shards"]]
    if numbers != [*range(1, info["shard_count"] + 1)]:
        raise DataError(
            f"{path}: describes not all of the {info['shard_count']:,} shards of the store; "
            "tokenize again"
        )
    return cast(StoreInfo, info)


class TokenShards:
    """Consecutive shards, read as one store. Arrays are read in slices and not kept in memory.

    `directory` is the path for error messages.
    """

    def __init__(self, directory: Path, shards: Sequence[TokenShard]) -> None:
        self.directory, self.shards = directory, tuple(shards)

    @cached_property
    def tokens(self) -> ShardedArray:
        """Token ids (N,)."""
        dtype = self.shards[0].dtype if self.shards else np.dtype("<u2")
        return ShardedArray(
            lambda shard: self.shards[shard].tokens, self._counts("tokens"), dtype
        )

    @cached_property
    def sentences(self) -> ShardedArray:
        """Token offsets of the sentences' starts, and the end, (S + 1,)."""
        counts, sums = self._counts("sentences"), self._counts("tokens")
        return ShardedArray(
            lambda shard: self.shards[shard].sentences, counts, _OFFSETS, sums
        )

    @cached_property
    def documents(self) -> ShardedArray:
        """Sentence offsets of the documents' starts, and the end, (D + 1,)."""
        counts, sums = self._counts("documents"), self._counts("sentences")
        return ShardedArray(
            lambda shard: self.shards[shard].documents, counts, _OFFSETS, sums
        )

    @property
    def document_lengths(self) -> DocumentLengths:
        """Number of documents of more than one token, and tokens of the longest."""
        longest = max(
            (shard.info["longest_document"] for shard in self.shards), default=0
        )
        return DocumentLengths(sum(self._counts("longer_documents")), longest)

    def verify(self, most_bytes: int | None = None) -> None:
        """Read and verify the first shards, up to `most_bytes` of tokens, at one to two seconds per gigabyte.

        `DataError` for damaged data, see `TokenShard.verify`.
        """
        for shard in self.shards:
            if (
                most_bytes is not None
                and (most_bytes := most_bytes - shard.info["tokens_bytes"]) < 0
            ):
                return
            shard.verify()

    def verify_when_read(self, rank: int = 0, size: int = 1) -> None:
        """Verify each shard before its first value is read. Of `size` processes that read the store, each
        verifies every `size`-th shard, beginning with `rank`."""
        for shard in self.shards[rank::size]:
            shard.verify_first = True

    def _counts(self, key: str) -> list[int]:
        return [shard.info[key] for shard in self.shards]  # type: ignore[literal-required]


@dataclass(frozen=True, eq=False)
class TokenStore(TokenShards):
    """An open store. Pickling stores the path, not the data."""

    directory: Path
    shards: tuple[TokenShard, ...]
    info: StoreInfo

    @classmethod
    def open(
        cls,
        directory: Path,
        tokenizer: Tokenizer | None = None,
        *,
        verify: bool = False,
    ) -> Self:
        """Open a store; `DataError` if it is damaged or was made with another tokenizer.

        With `verify` all data is read, see `TokenShards.verify`. Otherwise only `store.json` and file sizes
        are checked here, and the first and last offsets of a shard when it is first read.
        """
        directory = Path(directory)
        info = read_info(directory / DESCRIPTION)
        if tokenizer is not None and tokenizer.sha256 != info["tokenizer_sha256"]:
            raise DataError(
                f"{directory}: made with another tokenizer (sha256 "
                f"{shortened(info['tokenizer_sha256'], 12)}, not {tokenizer.sha256[:12]}…); tokenize again"
            )
        if tokenizer is not None and tokenizer.vocabulary != info["vocabulary"]:
            raise DataError(
                f"{directory / DESCRIPTION}: vocabulary is {info['vocabulary']}, but the tokenizer has "
                f"{tokenizer.vocabulary}; tokenize again"
            )
        dtype = np.dtype(info["dtype"]).newbyteorder("<")
        shards = tuple(
            TokenShard(
                directory / shard_name(one["number"]), one, dtype, info["vocabulary"]
            )
            for one in info["shards"]
        )
        for shard in shards:
            shard.check_sizes()
        store = cls(directory, shards, info)
        if verify:
            store.verify()
        return store

    @property
    def description(self) -> dict[str, Any]:
        """The description without the manifests of the shards, which its `sha256` covers."""
        return {key: value for key, value in self.info.items() if key != "shards"}

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return TokenStore.open, (self.directory,)
