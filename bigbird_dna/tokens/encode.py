"""Train a tokenizer, tokenize a genome, and count what came of it.

From a reference to its tokens: tokenizer, token stores, and what the tokens are like (App. F.1).

How a tokenizer fares on a genome: bases a token by split, contig and region, and use of its pieces.

Contigs are read in pieces of 10,000 bp, regions in windows; each is encoded by itself. Bases a token
counts pieces of bases only: Ns and the pieces that cover them are given apart, because a long gap would
otherwise raise the figure.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.config import Config
from bigbird_dna.console import log, progress
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.regions import format_named_region
from bigbird_dna.genome.sequence import Interval, Locus, inside, reverse_complement, window_around
from bigbird_dna.genome.sources.inputs import find_assembly
from bigbird_dna.genome.splits import Split, Splits, Stretch
from bigbird_dna.tokens.corpus import DocumentPlan, sample_sentences
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.store import build_store, ordered_map
from bigbird_dna.tokens.text import load_tokenizer

PIECE = 10_000  # bp encoded at a time
FLANK = 500  # bp on either side of a TSS in the region "promoters"
_FREQUENT = 20  # pieces listed by name
_BATCH = 50  # intervals an item of work

Usage = NDArray[np.int64]  # (V,) how often each piece was used


def tokenizer_statistics(
    reference: Reference,
    stretches: Sequence[Stretch],
    tokenizer: Tokenizer,
    *,
    promoters: Sequence[Locus] | None = None,
    workers: int = 1,
) -> dict[str, Any]:
    """Encode a genome and describe the tokens, as a dictionary for JSON.

    Parameters
    ----------
    stretches : what to encode: contigs, or stretches of them. One whose split is None takes no part in
        training: it counts for `genome` and `contigs` only.
    promoters : start sites; adds the region "promoters", 500 bp before each TSS to 500 bp from it
        on, read on its own strand. Windows that leave the contig are left out and counted.
    workers : processes; the result doesn't depend on them.

    Returns
    -------
    dict with `genome`, `splits`, `contigs` (of those that are divided each stretch, as a named region),
    `regions` (each a summary: bases and n_bases in bp, tokens,
    n_tokens, bases_per_token and unknown_rate, None where there is no token to divide by), `pieces` (how much
    of the vocabulary is used), `piece_lengths` (for each length in bp, pieces of the vocabulary and
    tokens of the genome, Ns left out), `frequent_pieces`, and what identifies tokenizer and
    reference.
    """
    usages = _usages(reference, [stretch.interval for stretch in stretches], tokenizer, workers)
    genome = _sum(usages, tokenizer)
    by_split = {
        split: _sum(
            (used for (_, own), used in zip(stretches, usages, strict=True) if own == split), tokenizer
        )
        for split in dict.fromkeys(stretch.split for stretch in stretches)
        if split is not None
    }
    regions: dict[str, Any] = {}
    if promoters is not None:
        regions["promoters"] = _promoter_summary(reference, stretches, promoters, tokenizer, workers)
    return {
        "reference": reference.path.name,
        "tokenizer_sha256": tokenizer.sha256,
        "vocabulary": tokenizer.vocabulary,
        "genome": _summary(genome, tokenizer),
        "splits": {split: _summary(usage, tokenizer) for split, usage in by_split.items()},
        "regions": regions,
        "contigs": {
            _name(interval, reference): {"split": split} | _summary(usage, tokenizer)
            for (interval, split), usage in zip(stretches, usages, strict=True)
        },
        "pieces": _pieces_used(genome, tokenizer),
        "piece_lengths": _length_histogram(genome, tokenizer),
        "frequent_pieces": _frequent(genome, tokenizer),
    }


@dataclass(frozen=True)
class _Counter:
    """Counts the pieces of a batch of intervals; picklable, for worker processes."""

    reference: Reference
    tokenizer: Tokenizer

    def __call__(self, intervals: Sequence[Interval]) -> Usage:
        rows = self.tokenizer.encode_batch([self.reference.fetch(each) for each in intervals])
        ids = np.concatenate(rows) if rows else np.empty(0, np.int32)
        return np.bincount(ids, minlength=self.tokenizer.vocabulary).astype(np.int64)


def _name(stretch: Interval, reference: Reference) -> str:
    whole = len(stretch) == reference.contigs[stretch.contig]
    return stretch.contig if whole else format_named_region(stretch)


def _usages(
    reference: Reference, stretches: Sequence[Interval], tokenizer: Tokenizer, workers: int
) -> list[Usage]:
    usages = [_sum((), tokenizer) for _ in stretches]
    work = [(place, batch) for place, stretch in enumerate(stretches) for batch in _batches(stretch)]
    counted = ordered_map(_Counter(reference, tokenizer), [batch for _, batch in work], workers)
    pairs = zip(work, counted, strict=True)
    for (place, _), part in progress(pairs, "counting tokens", total=len(work)):
        usages[place] += part
    return usages


def _batches(stretch: Interval) -> Iterator[list[Interval]]:
    """Batches of the consecutive pieces of a stretch."""
    starts = range(stretch.start, stretch.end, PIECE)
    for first in range(0, len(starts), _BATCH):
        yield [
            Interval(stretch.contig, start, min(start + PIECE, stretch.end))
            for start in starts[first : first + _BATCH]
        ]


def _promoter_summary(
    reference: Reference,
    stretches: Sequence[Stretch],
    promoters: Sequence[Locus],
    tokenizer: Tokenizer,
    workers: int,
) -> dict[str, Any]:
    lengths = {stretch.interval.contig: reference.contigs[stretch.interval.contig] for stretch in stretches}
    windows = [window_around(locus, FLANK, FLANK) for locus in promoters]
    usable = [window for window in windows if inside(window, lengths)]
    batches = [usable[first : first + _BATCH] for first in range(0, len(usable), _BATCH)]
    parts = ordered_map(_Counter(reference, tokenizer), batches, workers)
    usage = _sum(progress(parts, "counting tokens of promoters", total=len(batches)), tokenizer)
    return {
        "loci": len(usable),
        "left_out": len(windows) - len(usable),
        "upstream": FLANK,
        "downstream": FLANK,
    } | _summary(usage, tokenizer)


def _sum(parts: Iterable[Usage], tokenizer: Tokenizer) -> Usage:
    total = np.zeros(tokenizer.vocabulary, np.int64)
    for part in parts:
        total += part
    return total


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


def _pieces_used(usage: Usage, tokenizer: Tokenizer) -> dict[str, int | float]:
    used = int((usage[tokenizer.base_ids] > 0).sum())
    total = len(tokenizer.base_ids)
    return {"of_bases": total, "used": used, "used_fraction": round(used / total, 6)}


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


def _frequent(usage: Usage, tokenizer: Tokenizer) -> dict[str, int]:
    """The most frequent pieces, most frequent first."""
    order = np.argsort(-usage, kind="stable")[:_FREQUENT]
    return {tokenizer.pieces[i]: int(usage[i]) for i in order if usage[i]}


class _Genome(NamedTuple):
    """A reference, and which of its bases are held out of pretraining and tokenizer."""

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
            # A model of chromatin that starts from pretrained weights hasn't seen its test region either.
            valid_regions=data.valid_regions,
            test_regions=data.test_regions,
        )
        return cls(reference, splits)

    def extent(self, split: Split) -> str:
        """How many contigs and stretches a split has, in words."""
        contigs, stretches = self.splits.contigs(split), self.splits.intervals(split)
        cut = sum(map(len, stretches)) < sum(self.reference.contigs[contig] for contig in contigs)
        return f"{len(stretches)} stretches of {len(contigs)}" if cut else f"{len(contigs)}"


def train_tokenizer(config: Config, reference: Path, output: Path) -> None:
    """Learn a BPE vocabulary from a sample of what is for training, and write it.

    Contigs and regions that are held out or excluded are not read, nor are those held out for chromatin
    alone. The sample has `tokens.corpus_megabases` in sentences of `tokens.sentence_bases`; those of which
    more than half is N are left out. Training holds it in memory: about 80 MB a megabase.

    Raises
    ------
    ConfigError
        The configuration's contigs and regions are not the reference's.
    UsageError
        The vocabulary is too large for the sample.
    """
    genome, tokens = _Genome.open(config, reference), config.tokens
    stretches = genome.splits.intervals("train")
    length = sum(map(len, stretches))
    wanted = min(length, round(tokens.corpus_megabases * 1e6))
    log(
        f"sampling {wanted / 1e6:,.3g} of the {length / 1e6:,.3g} Mb of {genome.extent('train')} "
        f"training contigs (up to {wanted * 80 / 1e9:.1f} GB of memory)"
    )
    sentences = sample_sentences(
        genome.reference, stretches, wanted, sentence_bases=tokens.sentence_bases, seed=config.seed
    )
    if tokens.strands == "both":
        sentences = _alternating(sentences)
    expected = 2 * wanted // sum(tokens.sentence_bases)
    corpus = _counted(progress(sentences, "reading the corpus", total=expected), tokens.vocabulary)
    started = time.monotonic()
    DnaTokenizer.train(corpus, output, tokens.vocabulary, tokens.max_piece_length)
    log(f"done in {time.monotonic() - started:.0f} s: {output}")


def _alternating(sentences: Iterable[str]) -> Iterator[str]:
    """Every second sentence as the other strand has it, so that the pieces are those of both."""
    for number, sentence in enumerate(sentences):
        yield reverse_complement(sentence) if number % 2 else sentence


def _counted(sentences: Iterable[str], vocabulary: int) -> Iterator[str]:
    """The sentences, and at their end a line of what is learnt from them."""
    read = 0
    for sentence in sentences:
        read += len(sentence)
        yield sentence
    log(f"learning {vocabulary:,} pieces from {read:,} bp")


def tokenize(config: Config, reference: Path, tokenizer: Path, output: Path, workers: int = 1) -> None:
    """Cut a genome into documents, and write the token stores train, valid and test into `output`.

    Training contigs are read in `tokens.genome_passes` passes with different starts, every second one on the other
    strand where `tokens.strands` is both; the others are read in one pass. Of a contig that is divided each
    stretch is read by itself, so that no sentence lies in two splits. What is held out for chromatin alone is
    held out here too. Sentences of which more than half is N are left out and counted in `store.json`. Each
    store appears whole or not at all, and does not depend on the number of processes, `workers`.

    Raises
    ------
    ConfigError
        The configuration's contigs and regions are not the reference's.
    DataError
        The tokenizer or the reference can't be read.
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
        stretches = genome.splits.intervals(split)
        if not stretches:
            log(f"warning: no contig is for {split}: its store is empty")
        info = build_store(
            output / split,
            genome.reference,
            stretches,
            pieces,
            plan,
            seed=config.seed,
            workers=workers,
            description=f"tokenizing {split}",
        )
        log(
            f"{split}: {genome.extent(split)} contigs × {plan.passes} passes: "
            f"{info['documents']:,} documents, {info['sentences']:,} sentences, "
            f"{info['tokens']:,} tokens, {info['bases']:,} bp; "
            f"{info['skipped_sentences']:,} sentences of N left out"
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
    """Write bases a token of the genome, each split, contig (or stretch of one) and the promoters, as JSON.

    `promoters` are start sites as `prepare promoters` writes them: the region is 500 bp before to 500 bp
    after each. None: the file has no such region.

    Raises
    ------
    ConfigError
        The configuration's contigs and regions are not the reference's.
    DataError
        A file can't be read.
    """
    pieces, genome = load_tokenizer(tokenizer), _Genome.open(config, reference)
    found = tokenizer_statistics(
        genome.reference,
        genome.splits.stretches,
        pieces,
        promoters=None if promoters is None else read_loci(promoters),
        workers=workers,
    )
    write_json(output, found)
    regions = {"genome": found["genome"], **found["regions"]}
    figures = ", ".join(f"{name} {values['bases_per_token']}" for name, values in regions.items())
    log(f"bases a token: {figures}: {output}")
