"""Tokenize a reference: tokenizer, token stores and token statistics (App. F.1)."""

from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import numpy as np

from bigbird_dna.config.data import TokensConfig
from bigbird_dna.config.run import Config
from bigbird_dna.console import log, progress
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.sources import find_assembly
from bigbird_dna.genome.splits import Split, Splits
from bigbird_dna.tokens.corpus import DocumentPlan, sample_sentences
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.load import load_tokenizer
from bigbird_dna.tokens.store import TokenStore, build_store

_COUNTED = 1 << 24  # tokens counted at a time


def open_splits(config: Config, reference: Reference) -> Splits:
    """Return the training and held-out bases of a reference, for pretraining and tokenizer.

    Regions held out for chromatin are excluded, so that pretrained weights have not seen them.
    """
    return Splits.from_config(
        config.genome,
        reference.contigs,
        find_assembly(config),
        valid_regions=config.chromatin.data.valid_regions,
        test_regions=config.chromatin.data.test_regions,
    )


def train_tokenizer(config: Config, reference: Path, output: Path) -> None:
    """Learn a BPE vocabulary from a sample of the training bases, and write it.

    Held-out and excluded contigs and regions are not read, including those held out only for chromatin.
    Sentences with more than half N are skipped. Training needs about 80 MB per megabase. `ConfigError` if
    contigs or regions are not in the reference, or the vocabulary is too large for the sample.
    """
    genome, tokens = Reference(reference), config.tokens
    segments = open_splits(config, genome).intervals("train")
    length = sum(map(len, segments))
    sampled = min(length, round(tokens.corpus_megabases * 1e6))
    log(
        f"sampling {sampled / 1e6:,.3g} of the {length / 1e6:,.3g} Mb of the training contigs "
        f"(up to {sampled * 80 / 1e9:.1f} GB of memory)"
    )
    sentences = sample_sentences(
        genome,
        segments,
        sampled,
        sentence_bases=tokens.sentence_bases,
        seed=config.seed,
    )
    tokenizer = tokenizer_of(progress(sentences, "reading the corpus"), tokens)
    tokenizer.save(output)


def tokenizer_of(sequences: Iterable[str], tokens: TokensConfig) -> DnaTokenizer:
    """Learn a BPE vocabulary from the first sequences, up to `corpus_megabases`.

    With strands "both", every second one is read as its reverse complement.
    """
    corpus: list[str] = []
    bases = 0
    for sequence in sequences:
        if len(corpus) % 2 and tokens.strands == "both":
            sequence = reverse_complement(sequence)

        corpus.append(sequence)
        bases += len(sequence)
        if bases >= tokens.corpus_megabases * 1e6:
            break

    log(f"learning {tokens.vocabulary:,} tokens from {bases:,} bp")
    return DnaTokenizer.train(corpus, None, tokens.vocabulary, tokens.max_piece_length)


def tokenize(
    config: Config, reference: Path, tokenizer: Path, output: Path, threads: int = 1
) -> None:
    """Divide a genome into documents, and write the token stores train, valid and test into `output`.

    Training contigs are read in `tokens.genome_passes` passes with different starts, every second pass on the
    reverse strand if `tokens.strands` is both; the other contigs are read in one pass. Regions held out only
    for chromatin are held out here too. Sentences with more than half N are skipped and counted. Each store
    is written atomically, and does not depend on the number of threads. The mean number of bases per token
    of each store, and of all as `genome`, is written to `statistics.json` beside them. `ConfigError` if
    contigs or regions are not in the reference.
    """
    model, genome = load_tokenizer(tokenizer), Reference(reference)
    splits = open_splits(config, genome)
    usages = {}
    for split in get_args(Split):
        plan = DocumentPlan(
            passes=config.tokens.genome_passes if split == "train" else 1,
            max_start_offset=config.tokens.max_start_offset,
            sentence_bases=config.tokens.sentence_bases,
            sentences_per_document=config.tokens.sentences_per_document,
            strands=config.tokens.strands if split == "train" else "forward",
        )
        segments = splits.intervals(split)
        if not segments:
            log(f"warning: no contig is in split {split}: its store is empty")

        info = build_store(
            output / split,
            genome,
            segments,
            model,
            plan,
            split=split,
            seed=config.seed,
            threads=threads,
        )
        log(
            f"{split}: {len({segment.contig for segment in segments})} contigs × {plan.passes} passes: "
            f"{info['documents']:,} documents, {info['sentences']:,} sentences, "
            f"{info['tokens']:,} tokens, {info['bases']:,} bp; "
            f"{info['skipped_sentences']:,} sentences skipped because of N"
        )
        ids = TokenStore(output / split).tokens
        usages[split] = np.zeros(model.vocabulary, np.int64)
        for start in range(0, len(ids), _COUNTED):
            counted = ids[start : start + _COUNTED]
            usages[split] += np.bincount(counted, minlength=model.vocabulary)

    usages["genome"] = np.sum([*usages.values()], axis=0)
    statistics = {}
    for name, usage in usages.items():
        # Only tokens of bases: Ns and their tokens would increase the value.
        tokens = int(usage[model.base_ids].sum())
        bases = int((usage * model.piece_lengths)[model.base_ids].sum())
        statistics[name] = {
            "bases": bases,
            "tokens": int(usage.sum()),
            "bases_per_token": round(bases / tokens, 4) if tokens else None,
            "unknown_tokens": int(usage[model.unk_id]),
        }

    write_json(output / "statistics.json", statistics)
    log(f"bases per token: {statistics['genome']['bases_per_token']}")
