"""Tokenize a reference: tokenizer, token stores and token statistics (App. F.1)."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.config.data import TokensConfig
from bigbird_dna.config.run import Config
from bigbird_dna.console import log, progress
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    reverse_complement,
)
from bigbird_dna.genome.sources import find_assembly
from bigbird_dna.genome.splits import Split, Splits
from bigbird_dna.tokens.corpus import DocumentPlan, sample_sentences
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.load import load_tokenizer
from bigbird_dna.tokens.store import TokenStore, build_store

_COUNTED = 1 << 24  # tokens counted at a time


class _Genome(NamedTuple):
    """A reference and its split into training and held-out bases for pretraining and tokenizer."""

    reference: Reference
    splits: Splits

    @classmethod
    def open(cls, config: Config, path: Path) -> Self:
        reference, assembly = Reference(path), find_assembly(config)
        data = config.chromatin.data
        splits = Splits.from_config(
            config.genome,
            reference.contigs,
            assembly,
            # Regions held out for chromatin are excluded, so that pretrained weights have not seen them.
            valid_regions=data.valid_regions,
            test_regions=data.test_regions,
        )
        return cls(reference, splits)

    def extent(self, split: Split) -> str:
        """Describe the number of contigs and segments of a split."""
        contigs, stretches = self.splits.contigs(split), self.splits.intervals(split)
        cut = sum(map(len, stretches)) < sum(
            self.reference.contigs[contig] for contig in contigs
        )
        return (
            f"{len(stretches)} segments of {len(contigs)}" if cut else f"{len(contigs)}"
        )


def train_tokenizer(config: Config, reference: Path, output: Path) -> None:
    """Learn a BPE vocabulary from a sample of the training bases, and write it.

    Held-out and excluded contigs and regions are not read, including those held out only for chromatin.
    Sentences with more than half N are skipped. Training needs about 80 MB per megabase. `ConfigError` if
    contigs or regions are not in the reference, or the vocabulary is too large for the sample.
    """
    genome, tokens = _Genome.open(config, reference), config.tokens
    segments = genome.splits.intervals("train")
    length = sum(map(len, segments))
    wanted = min(length, round(tokens.corpus_megabases * 1e6))
    log(
        f"sampling {wanted / 1e6:,.3g} of the {length / 1e6:,.3g} Mb of {genome.extent('train')} "
        f"training contigs (up to {wanted * 80 / 1e9:.1f} GB of memory)"
    )
    sentences = sample_sentences(
        genome.reference,
        segments,
        wanted,
        sentence_bases=tokens.sentence_bases,
        seed=config.seed,
    )
    expected = 2 * wanted // sum(tokens.sentence_bases)

    def corpus() -> Iterator[str]:
        """Yield the sentences; with strands "both", every second one as its reverse complement."""
        read = 0
        for number, sentence in enumerate(
            progress(sentences, "reading the corpus", total=expected)
        ):
            read += len(sentence)
            yield (
                reverse_complement(sentence)
                if number % 2 and tokens.strands == "both"
                else sentence
            )
        log(f"learning {tokens.vocabulary:,} tokens from {read:,} bp")

    started = time.monotonic()
    DnaTokenizer.train(corpus(), output, tokens.vocabulary, tokens.max_piece_length)
    log(f"done in {time.monotonic() - started:.0f} s: {output}")


def tokenizer_of(sequences: Sequence[str], tokens: TokensConfig) -> DnaTokenizer:
    """Learn a BPE vocabulary from sequences, of which every second one is reversed with strands "both"; the
    first ones are used, up to `corpus_megabases`."""
    corpus, left = list[str](), tokens.corpus_megabases * 1e6
    for number, text in enumerate(sequences):
        corpus.append(
            reverse_complement(text)
            if number % 2 and tokens.strands == "both"
            else text
        )
        left -= len(text)
        if left <= 0:
            break
    log(f"learning {tokens.vocabulary:,} tokens from {sum(map(len, corpus)):,} bp")
    with TemporaryDirectory() as directory:
        path = Path(directory) / "tokenizer.model"
        return DnaTokenizer.train(
            corpus, path, tokens.vocabulary, tokens.max_piece_length
        )


def tokenize(
    config: Config,
    reference: Path,
    tokenizer: Path,
    output: Path,
    workers: int = 1,
) -> None:
    """Divide a genome into documents, and write the token stores train, valid and test into `output`.

    Training contigs are read in `tokens.genome_passes` passes with different starts, every second pass on the
    reverse strand if `tokens.strands` is both; the other contigs are read in one pass. Regions held out only
    for chromatin are held out here too. Sentences with more than half N are skipped and counted. Each store
    is written atomically, and does not depend on the number of processes, `workers`. Their
    `token_statistics` are written to `statistics.json` beside them. `ConfigError` if contigs or regions are
    not in the reference.
    """
    pieces, genome = load_tokenizer(tokenizer), _Genome.open(config, reference)
    for split in get_args(Split):
        plan = DocumentPlan(
            passes=config.tokens.genome_passes if split == "train" else 1,
            max_start_offset=config.tokens.max_start_offset,
            sentence_bases=config.tokens.sentence_bases,
            sentences_per_document=config.tokens.sentences_per_document,
            strands=config.tokens.strands if split == "train" else "forward",
        )
        segments = genome.splits.intervals(split)
        if not segments:
            log(f"warning: no contig is in split {split}: its store is empty")
        info = build_store(
            output / split,
            genome.reference,
            segments,
            pieces,
            plan,
            split=split,
            seed=config.seed,
            workers=workers,
            description=f"tokenizing {split}",
        )
        log(
            f"{split}: {genome.extent(split)} contigs × {plan.passes} passes: "
            f"{info['documents']:,} documents, {info['sentences']:,} sentences, "
            f"{info['tokens']:,} tokens, {info['bases']:,} bp; "
            f"{info['skipped_sentences']:,} sentences skipped because of N"
        )
    statistics = token_statistics(
        {split: TokenStore(output / split, pieces) for split in get_args(Split)},
        pieces,
    )
    write_json(output / "statistics.json", statistics)
    log(f"bases per token: {statistics['genome']['bases_per_token']}")


def token_statistics(
    stores: Mapping[str, TokenStore], tokenizer: Tokenizer
) -> dict[str, Any]:
    """Return bases per token and the rate of unknown tokens of the stores by split, and of all as `genome`.

    Bases per token counts only tokens of bases: Ns and their tokens would increase the value.
    """
    usages = {}
    for split, store in stores.items():
        usage = np.zeros(tokenizer.vocabulary, np.int64)
        for start in range(0, len(store.tokens), _COUNTED):
            ids = store.tokens[start : start + _COUNTED]
            usage += np.bincount(ids, minlength=len(usage))
        usages[split] = usage
    total = np.sum([*usages.values()], axis=0)
    return {
        "vocabulary": tokenizer.vocabulary,
        "tokenizer_sha256": tokenizer.sha256,
        "genome": _summarize_usage(total, tokenizer),
        "regions": {
            split: _summarize_usage(usage, tokenizer) for split, usage in usages.items()
        },
    }


def _summarize_usage(
    usage: NDArray[np.int64], tokenizer: Tokenizer
) -> dict[str, int | float | None]:
    """Return the statistics of the number of occurrences (V,) of each token."""
    tokens = int(usage.sum())
    of_bases = int(usage[tokenizer.base_ids].sum())
    bases = int((usage * tokenizer.piece_lengths)[tokenizer.base_ids].sum())
    unknown = int(usage[tokenizer.unk_id])
    return {
        "bases": bases,
        "tokens": tokens,
        "bases_per_token": round(bases / of_bases, 4) if of_bases else None,
        "unknown_rate": unknown / tokens if tokens else None,
    }
