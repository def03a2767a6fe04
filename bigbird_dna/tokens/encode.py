"""Tokenize a reference: tokenizer, token stores and token statistics (App. F.1).

For statistics, contigs are read in chunks of 10,000 bp and regions in windows; each is encoded separately.
Bases per token counts only tokens of bases. Ns and their tokens are reported separately, because a long gap
would otherwise increase the value.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.config import Config
from bigbird_dna.config.data import TokensConfig
from bigbird_dna.console import log, progress
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    Interval,
    Locus,
    inside,
    reverse_complement,
    window_around,
)
from bigbird_dna.genome.sources import find_assembly
from bigbird_dna.genome.splits import Segment, Split, Splits, format_named_region
from bigbird_dna.tokens.build import build_store
from bigbird_dna.tokens.corpus import DocumentPlan, ordered_map, sample_sentences
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.text import load_tokenizer

CHUNK = 10_000  # bp per encoded chunk
FLANK = 500  # bp on either side of a TSS in the region "promoters"
_FREQUENT = 20  # tokens listed by name
BATCH_INTERVALS = 50  # intervals per work item

Usage = NDArray[np.int64]  # (V,) count of each token


def tokenizer_statistics(
    reference: Reference,
    segments: Sequence[Segment],
    tokenizer: Tokenizer,
    *,
    promoters: Sequence[Locus] | None = None,
    workers: int = 1,
) -> dict[str, Any]:
    """Encode contigs or segments, and return token statistics as a dictionary for JSON.

    A segment with split None is not used in training: it counts only for `genome` and `contigs`. `promoters`
    are start sites, read on their own strands in windows from 500 bp before to 500 bp after the site; windows
    that leave the contig are excluded and counted. The result does not depend on the number of processes.
    """
    count = _Counter(reference, tokenizer)
    usages = count.usages(
        [_chunks(segment.interval) for segment in segments], "counting tokens", workers
    )
    none = np.zeros(tokenizer.vocabulary, np.int64)
    genome = sum(usages, none)
    splits: dict[str, Usage] = {}
    contigs = {}
    for (interval, split), usage in zip(segments, usages, strict=True):
        whole = len(interval) == reference.contigs[interval.contig]
        name = interval.contig if whole else format_named_region(interval)
        contigs[name] = {"split": split} | _summary(usage, tokenizer)
        if split is not None:
            splits[split] = splits.get(split, none) + usage
    regions: dict[str, Any] = {}
    if promoters is not None:
        lengths = {
            one.interval.contig: reference.contigs[one.interval.contig]
            for one in segments
        }
        windows = [window_around(locus, FLANK, FLANK) for locus in promoters]
        usable = [window for window in windows if inside(window, lengths)]
        (usage,) = count.usages([usable], "counting tokens of promoters", workers)
        regions["promoters"] = {
            "loci": len(usable),
            "left_out": len(windows) - len(usable),
            "upstream": FLANK,
            "downstream": FLANK,
        } | _summary(usage, tokenizer)
    used = int((genome[tokenizer.base_ids] > 0).sum())
    total = len(tokenizer.base_ids)
    order = np.argsort(-genome, kind="stable")[:_FREQUENT]
    return {
        "reference": reference.path.name,
        "tokenizer_sha256": tokenizer.sha256,
        "vocabulary": tokenizer.vocabulary,
        "genome": _summary(genome, tokenizer),
        "splits": {
            split: _summary(usage, tokenizer) for split, usage in splits.items()
        },
        "regions": regions,
        "contigs": contigs,
        "pieces": {
            "of_bases": total,
            "used": used,
            "used_fraction": round(used / total, 6),
        },
        "piece_lengths": _length_histogram(genome, tokenizer),
        "frequent_pieces": {
            tokenizer.pieces[i]: int(genome[i]) for i in order if genome[i]
        },
    }


@dataclass(frozen=True)
class _Counter:
    """Counts the tokens of a batch of intervals; picklable, for worker processes."""

    reference: Reference
    tokenizer: Tokenizer

    def __call__(self, intervals: Sequence[Interval]) -> Usage:
        rows = self.tokenizer.encode_batch(
            [self.reference.fetch(each) for each in intervals]
        )
        ids = np.concatenate(rows) if rows else np.empty(0, np.int32)
        return np.bincount(ids, minlength=self.tokenizer.vocabulary).astype(np.int64)

    def usages(
        self, parts: Sequence[Sequence[Interval]], what: str, workers: int
    ) -> list[Usage]:
        """Return the token counts of the intervals of each part, counted in batches."""
        usages = [np.zeros(self.tokenizer.vocabulary, np.int64) for _ in parts]
        work = [
            (place, part[first : first + BATCH_INTERVALS])
            for place, part in enumerate(parts)
            for first in range(0, len(part), BATCH_INTERVALS)
        ]
        counted = ordered_map(self, [batch for _, batch in work], workers)
        for (place, _), usage in progress(
            zip(work, counted, strict=True), what, total=len(work)
        ):
            usages[place] += usage
        return usages


def _chunks(whole: Interval) -> list[Interval]:
    starts = range(whole.start, whole.end, CHUNK)
    return [
        Interval(whole.contig, start, min(start + CHUNK, whole.end)) for start in starts
    ]


def _summary(usage: Usage, tokenizer: Tokenizer) -> dict[str, int | float | None]:
    covered = usage * tokenizer.piece_lengths
    base_tokens = int(usage[tokenizer.base_ids].sum())
    bases = int(covered[tokenizer.base_ids].sum())
    tokens = int(usage.sum())
    unknown = int(usage[tokenizer.unk_id])
    return {
        "bases": bases,
        "n_bases": int(covered.sum()) - bases,
        "tokens": tokens,
        "n_tokens": tokens - base_tokens - unknown,
        "bases_per_token": round(bases / base_tokens, 4) if base_tokens else None,
        "unknown_rate": unknown / tokens if tokens else None,
    }


def _length_histogram(usage: Usage, tokenizer: Tokenizer) -> dict[str, dict[str, int]]:
    lengths = tokenizer.piece_lengths[tokenizer.base_ids]
    pieces = np.bincount(lengths)
    tokens = np.zeros(len(pieces), np.int64)
    np.add.at(tokens, lengths, usage[tokenizer.base_ids])
    return {
        str(length): {"pieces": int(pieces[length]), "tokens": int(tokens[length])}
        for length in range(1, len(pieces))
        if pieces[length]
    }


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
    is written atomically, and does not depend on the number of processes, `workers`.
    `ConfigError` if contigs or regions are not in the reference.
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


def write_token_statistics(
    config: Config,
    reference: Path,
    tokenizer: Path,
    output: Path,
    *,
    promoters: Path | None = None,
    workers: int = 1,
) -> None:
    """Write `tokenizer_statistics` of a genome as JSON; `promoters` is a table of `prepare promoters`."""
    pieces, genome = load_tokenizer(tokenizer), _Genome.open(config, reference)
    found = tokenizer_statistics(
        genome.reference,
        genome.splits.segments,
        pieces,
        promoters=None if promoters is None else read_loci(promoters),
        workers=workers,
    )
    write_json(output, found)
    regions = {"genome": found["genome"], **found["regions"]}
    figures = ", ".join(
        f"{name} {values['bases_per_token']}" for name, values in regions.items()
    )
    log(f"{output}: bases per token: {figures}")
