"""From a reference to its tokens: tokenizer, token stores, and what the tokens are like (App. F.1)."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Self, get_args

from bigbird_dna.config import Config
from bigbird_dna.console import log, progress
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.sources.inputs import find_assembly
from bigbird_dna.genome.splits import Split, Splits
from bigbird_dna.tokens import statistics
from bigbird_dna.tokens.corpus import DocumentPlan, sample_sentences
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.store import build_store
from bigbird_dna.tokens.text import load_tokenizer


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

    Training contigs are read in `tokens.passes` passes with different starts, every second one on the other
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
            passes=config.tokens.passes if split == "train" else 1,
            max_start=config.tokens.max_start,
            sentence_bases=config.tokens.sentence_bases,
            document_sentences=config.tokens.document_sentences,
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


def tokenizer_statistics(
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
    found = statistics.tokenizer_statistics(
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
