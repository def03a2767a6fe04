"""Measure how examples are drawn from a large corpus of tokens, for docs/scale.md.

    python -m docs.generators.token_corpus DIRECTORY

writes two simulated token stores of 11 GB each (random tokens, as from two genomes) into a new directory,
removes them from the page cache, and measures in new processes how long it takes to open them as one corpus
and to draw examples, and the memory of the process. The directory can be deleted afterwards.
"""

import argparse
import datetime
import json
import os
import resource
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from bigbird_dna.console import log
from bigbird_dna.pretraining.sampling import PairSampler, Sampler, SegmentSampler
from bigbird_dna.tokens.build import SHARD_BASES, finish_store
from bigbird_dna.tokens.corpus import DocumentPlan
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.shard import (
    EncodedDocument,
    TokenShardInfo,
    TokenShardWriter,
    shard_name,
)
from bigbird_dna.tokens.store import FORMAT, TokenShards, TokenStore

VOCABULARY, BASES = 32_000, 6  # bp per token
SHARDS = 31  # per genome: 11 GB of tokens
GENOMES = ("genome-1", "genome-2")
MANY, TINY = (
    6000,
    8000,
)  # shards of 10¹² tokens, written with 8,000 tokens each: only their number matters
DRAWN, LENGTH = 20_000, 4096
KINDS: dict[str, type[SegmentSampler | PairSampler]] = {
    "segments": SegmentSampler,
    "pairs": PairSampler,
}
NAME = "token-corpus"


def write_corpus(directory: Path) -> None:
    """Write the store of each genome, and one of many small shards."""
    corpus = [
        *((genome, SHARDS, SHARD_BASES // BASES) for genome in GENOMES),
        ("many", MANY, TINY),
    ]
    for seed, (genome, count, tokens) in enumerate(corpus):
        home = directory / genome
        home.mkdir(parents=True)
        shards = []
        for number in range(1, count + 1):
            shards.append(
                _write_shard(
                    home, number, tokens, np.random.default_rng((seed, number))
                )
            )
        log(f"{genome}: {count} shards")
        plan = DocumentPlan()
        job = {
            **{
                "format": FORMAT,
                "split": "train",
                "vocabulary": VOCABULARY,
                "dtype": "uint16",
            },
            **{
                "tokenizer_sha256": "",
                "reference_sha256": "",
                "max_n": 0.5,
                "contigs": [genome],
            },
            **{
                "passes": plan.passes,
                "strands": plan.strands,
                "max_start_offset": plan.max_start_offset,
            },
            "sentence_bases": [*plan.sentence_bases],
            "sentences_per_document": [*plan.sentences_per_document],
            **{"seed": seed, "shard_bases": BASES * tokens, "shard_count": count},
        }
        finish_store(home, job, shards, {}, None)


def _write_shard(
    home: Path, number: int, left: int, rng: np.random.Generator
) -> TokenShardInfo:
    plan = DocumentPlan()
    low, high = (bases // BASES for bases in plan.sentence_bases)
    with closing(
        TokenShardWriter(home / shard_name(number), number, "train")
    ) as writer:
        while left > 0:
            count = int(
                rng.integers(
                    plan.sentences_per_document[0], plan.sentences_per_document[1] + 1
                )
            )
            lengths = rng.integers(low, high + 1, count).tolist()
            size = sum(lengths)
            tokens = rng.integers(0, VOCABULARY, size, np.uint16).tobytes()
            document = EncodedDocument(
                tokens, lengths, [count], Counter(bases=BASES * size)
            )
            writer.add(document, first_pass=False)
            left -= size
    return writer.describe()


def drop_from_cache(directory: Path) -> None:
    """Remove the pages of all files in a directory from the page cache."""
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(directory: Path, kind: str) -> dict[str, Any]:
    """Open the stores as one corpus and draw examples: what a training's process does."""
    with TemporaryDirectory() as home:
        tokenizer = DnaTokenizer.train(
            ["ACGT" * 20], Path(home) / "tokenizer.model", 12
        )
    before = _status("RssAnon"), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = perf_counter()
    stores = [TokenStore.open(directory / genome) for genome in GENOMES]
    corpus = TokenShards(
        directory, [shard for store in stores for shard in store.shards]
    )
    drawn_by: Sampler = KINDS[kind](corpus, tokenizer, LENGTH)
    opened = perf_counter() - began
    read, began = _read_bytes(), perf_counter()
    tokens = sum(
        len(drawn_by.draw(np.random.default_rng((1, place))).ids)
        for place in range(DRAWN)
    )
    took = perf_counter() - began
    return {
        "kind": kind,
        "gigabytes": round(2 * len(corpus.tokens) / 1e9, 1),
        "shards": len(corpus.shards),
        "open_ms": round(1000 * opened, 1),
        "examples_per_second": round(DRAWN / took),
        "tokens_per_second": round(tokens / took),
        "read_kb_per_example": round((_read_bytes() - read) / DRAWN / 1000, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
        "peak_mb_before_opening": round(before[1] / 1000),
        "anonymous_mb": round(_status("RssAnon") / 1000),
        "anonymous_mb_before_opening": round(before[0] / 1000),
    }


def _status(key: str) -> int:
    """Return a number of this process's status, in kB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def _read_bytes() -> int:
    """Return the bytes that this process has caused to be read from a disk."""
    lines = Path("/proc/self/io").read_text(encoding="utf-8").splitlines()
    return next(
        int(line.split()[1]) for line in lines if line.startswith("read_bytes:")
    )


def main() -> None:
    """Write the corpus if the directory does not exist, and the results."""
    from .collect import header, write_run  # which imports torch

    parser = argparse.ArgumentParser(prog="python -m docs.generators.token_corpus")
    parser.add_argument("directory", type=Path, help="directory for 23 GB of files")
    parser.add_argument(
        "--kind", choices=[*KINDS], help="measure this process, and print the result"
    )
    given = parser.parse_args()
    if given.kind:
        print(json.dumps(measure(given.directory, given.kind)))
        return
    if not given.directory.exists():
        write_corpus(given.directory)
    rows = []
    for kind in KINDS:
        drop_from_cache(given.directory)
        for place in ("disk", "page cache"):  # the same examples again
            command = [
                sys.executable,
                "-m",
                "docs.generators.token_corpus",
                given.directory,
                "--kind",
                kind,
            ]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            rows.append({"read_from": place, **json.loads(done.stdout)})
            log(f"{rows[-1]}")
    shard = TokenStore.open(given.directory / GENOMES[0]).shards[0]
    drop_from_cache(given.directory)
    began = perf_counter()
    shard.verify()
    once = {
        "verification_seconds_per_gb": round(
            (perf_counter() - began) / shard.info["tokens_bytes"] * 1e9, 1
        )
    }
    began = perf_counter()
    once |= {"shards": len(TokenStore.open(given.directory / "many").shards)}
    once |= {"open_ms": round(1000 * (perf_counter() - began))}
    today = datetime.datetime.now(datetime.UTC).date()
    command = "python -m docs.generators.token_corpus corpus"
    write_run(
        NAME, header(today, command, None) | {"tables": {"draws": rows, "once": [once]}}
    )


if __name__ == "__main__":
    main()
