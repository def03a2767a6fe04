"""Commands of the tokens layer: train the tokenizer, tokenize the genome, describe the tokens."""

from pathlib import Path
from typing import Annotated

from bigbird_dna.cli.options import (
    RESULTS,
    Config,
    RunReference,
    RunTokenizer,
    Set,
    Threads,
    cores,
    option,
    output,
    read_run,
)
from bigbird_dna.console import log


def train_tokenizer(
    config: Config,
    reference: RunReference = None,
    output: Annotated[Path | None, output("FILE", "Tokenizer to write.", RESULTS.tokenizer)] = None,
    overrides: Set = None,
) -> None:
    """Learn a BPE vocabulary from the training contigs, or without a genome from the training sequences.

    The corpus is a random sample of sentences (tokens.sentence_bases long) with
    tokens.corpus_megabases in all. Training holds it in memory: about 80 MB a megabase. Sentences
    of which more than half is N are left out. The seed is the configuration's.
    """
    from bigbird_dna.tokens.encode import train_tokenizer as train

    settings, paths = read_run(config, overrides)
    corpus = paths.reference if settings.has_genome else paths.training_sequences
    train(settings, reference or corpus, output or paths.tokenizer)


def tokenize(
    config: Config,
    reference: RunReference = None,
    tokenizer: RunTokenizer = None,
    output: Annotated[Path | None, output("DIR", "Directory of the stores.", RESULTS.tokens)] = None,
    threads: Threads = None,
    overrides: Set = None,
) -> None:
    """Cut the genome into documents and write the token stores train, valid and test.

    Training contigs are read in tokens.passes passes with different starts, the others in one.
    Sentences of which more than half is N are left out; store.json counts them. Each store
    appears whole or not at all.
    """
    from bigbird_dna.tokens.encode import tokenize as write_stores

    settings, paths = read_run(config, overrides)
    genome, pieces = reference or paths.reference, tokenizer or paths.tokenizer
    write_stores(settings, genome, pieces, output or paths.tokens, cores(threads))


def describe_tokens(
    config: Config,
    reference: RunReference = None,
    tokenizer: RunTokenizer = None,
    promoters: Annotated[
        Path | None,
        option(
            "TSV",
            "Start sites, as prepare promoters writes them; without a file no such region.",
            RESULTS.promoters,
            "--promoters",
        ),
    ] = None,
    output: Annotated[Path | None, output("FILE", "JSON to write.", RESULTS.token_statistics)] = None,
    threads: Threads = None,
    overrides: Set = None,
) -> None:
    """Write bases a token of the genome, each split, contig and the promoters, as JSON.

    Promoters are 500 bp before to 500 bp after each start site. The file also has the rate of unknown
    tokens and how much the pieces of the vocabulary are used.
    """
    from bigbird_dna.tokens.encode import tokenizer_statistics as describe

    settings, paths = read_run(config, overrides)
    if promoters is None and paths.promoters.exists():
        promoters = paths.promoters
    elif promoters is None:
        log(f"no promoters ({paths.promoters} is missing): statistics without that region")
    describe(
        settings,
        reference or paths.reference,
        tokenizer or paths.tokenizer,
        output or paths.token_statistics,
        promoters=promoters,
        workers=cores(threads),
    )
