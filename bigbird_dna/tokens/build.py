"""Write token stores: encode the documents of a split in parallel, in shards of a fixed size."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from bigbird_dna.console import progress
from bigbird_dna.disk.atomic import checksum, write_json
from bigbird_dna.disk.directories import atomic_directory
from bigbird_dna.errors import DataError, shortened
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, fraction_n, reverse_complement
from bigbird_dna.genome.splits import name_parts
from bigbird_dna.tokens.corpus import (
    MAX_N,
    Document,
    DocumentPlan,
    iter_documents,
    ordered_map,
)
from bigbird_dna.tokens.interface import Tokenizer, require_dna
from bigbird_dna.tokens.shard import (
    EncodedDocument,
    TokenShardInfo,
    TokenShardWriter,
    own_checksum,
    shard_name,
)
from bigbird_dna.tokens.store import COUNTS, DESCRIPTION, FORMAT, StoreInfo

SHARD_BASES = (
    1 << 30
)  # bp that are read for a shard: about 170 million tokens of a large vocabulary


def build_store(
    directory: Path,
    reference: Reference,
    segments: Sequence[Interval],
    tokenizer: Tokenizer,
    plan: DocumentPlan,
    *,
    split: str = "train",
    seed: int = 0,
    max_n: float = MAX_N,
    workers: int = 1,
    shard_bases: int = SHARD_BASES,
    description: str = "tokenizing",
) -> StoreInfo:
    """Draw the documents of a split's contigs or segments, encode them, and write a store atomically.

    A shard ends with the document that reaches `shard_bases` bp. The bytes depend on the sequence, the tokenizer, the plan,
    `max_n`, the seed and `shard_bases`, but not on the number of processes. Sentences are encoded
    one by one; those with a larger fraction of N than `max_n` are skipped. `DataError` if none is left.
    Memory does not grow with the genome.
    """
    require_dna(tokenizer)
    first = sum(
        1 for _ in iter_documents(segments, plan.first, seed)
    )  # before documents are divided
    parts = list(_divide(iter_documents(segments, plan, seed), first, shard_bases))
    total = sum(part.documents for part in parts)
    documents = iter_documents(segments, plan, seed)
    with atomic_directory(Path(directory)) as temporary:
        encoded = ordered_map(_Encoder(reference, tokenizer, max_n), documents, workers)
        encoded = progress(encoded, description, total=total)
        written = [_write_shard(temporary, part, split, encoded) for part in parts]
        info = _describe(reference, segments, tokenizer, plan, split, seed, max_n)
        info |= {"shard_bases": shard_bases, "shard_count": len(parts)}
        return finish_store(temporary, info, written, reference.path)


def finish_store(
    directory: Path,
    info: Mapping[str, Any],
    shards: list[TokenShardInfo],
    source: Path,
) -> StoreInfo:
    """Write the description of complete shards.

    `DataError`, which names the `source`, if the store has contigs but no sentences.
    """
    found = {**info, **{key: sum(one[key] for one in shards) for key in COUNTS}}  # type: ignore[literal-required]
    if info["contigs"] and not found["sentences"]:
        raise DataError(
            f"{source}: no sentence of {shortened(', '.join(info['contigs'][:4]), 200)} has at most "
            f"{info['max_n']:.0%} N, so there is nothing to tokenize"
        )
    found["shards"] = shards
    found = {key: found[key] for key in StoreInfo.__annotations__ if key in found}
    found["sha256"] = own_checksum(found)
    write_json(directory / DESCRIPTION, found)
    return cast(StoreInfo, found)


class _Part(NamedTuple):
    """Documents of a shard: how many, and how many of them are of the first pass."""

    number: int
    documents: int
    first: int


def _divide(documents: Iterator[Document], first: int, bases: int) -> Iterator[_Part]:
    """Yield the documents of each shard, of which the first `first` of all are of the first pass."""
    number, count, read, before = 1, 0, 0, 0
    for document in documents:
        count += 1
        read += document.end - document.start
        if read >= bases:
            yield _Part(number, count, min(max(first - before, 0), count))
            number, count, read, before = number + 1, 0, 0, before + count
    if count:
        yield _Part(number, count, min(max(first - before, 0), count))


def _write_shard(
    directory: Path, part: _Part, split: str, encoded: Iterator[EncodedDocument]
) -> TokenShardInfo:
    with closing(
        TokenShardWriter(directory / shard_name(part.number), part.number, split)
    ) as writer:
        for number, document in enumerate(islice(encoded, part.documents)):
            writer.add(document, first_pass=number < part.first)
    return writer.describe()


def _describe(
    reference: Reference,
    segments: Sequence[Interval],
    tokenizer: Tokenizer,
    plan: DocumentPlan,
    split: str,
    seed: int,
    max_n: float,
) -> dict[str, Any]:
    named = name_parts(segments, reference.contigs)
    return {
        "format": FORMAT,
        "split": split,
        "vocabulary": tokenizer.vocabulary,
        "tokenizer_sha256": tokenizer.sha256,
        "reference_sha256": checksum(reference.path),
        "dtype": _dtype(tokenizer).name,
        "max_n": max_n,
        "contigs": list(dict.fromkeys(segment.contig for segment in segments)),
        **({"stretches": named} if named else {}),
        "passes": plan.passes,
        "strands": plan.strands,
        "max_start_offset": plan.max_start_offset,
        "sentence_bases": list(plan.sentence_bases),
        "sentences_per_document": list(plan.sentences_per_document),
        "seed": seed,
    }


def _dtype(tokenizer: Tokenizer) -> np.dtype[Any]:
    return np.dtype("<u2" if tokenizer.vocabulary <= 1 << 16 else "<u4")


@dataclass(frozen=True)
class _Encoder:
    """Converts a document to tokens; picklable, for worker processes."""

    reference: Reference
    tokenizer: Tokenizer
    max_n: float

    def __call__(self, document: Document) -> EncodedDocument:
        sequence = self.reference.fetch(document.interval)
        if document.reverse_of is not None:
            sequence = reverse_complement(sequence)
        kept: list[str] = []
        runs = [0]
        counts: Counter[str] = Counter()
        first = document.start
        for start, end in pairwise((first, *document.sentence_ends)):
            sentence = sequence[start - first : end - first]
            if fraction_n(sentence) <= self.max_n:
                kept.append(sentence)
                runs[-1] += 1
                counts["bases"] += len(sentence)
            else:
                counts["skipped_sentences"] += 1
                counts["skipped_bases"] += len(sentence)
                runs.append(0)
        rows = self.tokenizer.encode_batch(kept)
        tokens = (np.concatenate(rows) if rows else np.empty(0)).astype(
            _dtype(self.tokenizer)
        )
        lengths = [len(row) for row in rows]
        return EncodedDocument(
            tokens.tobytes(), lengths, [run for run in runs if run], counts
        )
