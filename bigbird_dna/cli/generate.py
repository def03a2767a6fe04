"""Commands that write DNA by a model, and look at what it wrote."""

from pathlib import Path
from typing import Annotated

from bigbird_dna.cli.options import (
    Device,
    Directory,
    ModelDirectory,
    Reference,
    ResultFile,
    Threads,
    argument,
    option,
)
from bigbird_dna.console import log

LeftFlanks = Annotated[
    Path | None,
    option("FASTA", "What stands before samples, each record by itself.", "nothing", "--left-flank"),
]
RightFlanks = Annotated[
    Path | None,
    option(
        "FASTA",
        "What stands behind, with --left-flank record by record; not of a causal model.",
        "nothing",
        "--right-flank",
    ),
]


def generate(
    model_dir: ModelDirectory,
    output: ResultFile = None,
    num_samples: Annotated[int, option("N", "Samples, of each flank if there are several.", least=1)] = 10,
    length: Annotated[int, option("BP", "Of a sample.", least=1)] = 1000,
    left: LeftFlanks = None,
    right: RightFlanks = None,
    temperature: Annotated[
        float, option("T", "Below 1 likely pieces are drawn still more often, above 1 less often.")
    ] = 1.0,
    top_k: Annotated[int | None, option("K", "Draw from the K likeliest pieces only.", "all")] = None,
    top_p: Annotated[
        float | None,
        option("SHARE", "Draw from the fewest likeliest pieces that have this share together.", "all"),
    ] = None,
    iterations: Annotated[
        int, option("N", "Rounds in which a gap is filled; not of a causal model.", least=1)
    ] = 30,
    seed: Annotated[int, option("N", "Of the samples: the same one, the same bytes.", least=0)] = 1,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Write new DNA, drawn from what a pretrained model says, as FASTA.

    A causal model (pretrained with encoder.causal) continues each record of --left-flank, or begins anew. A
    model of masked tokens fills a gap of that length between --left-flank and --right-flank. Flanks are not
    part of samples. Every sample has exactly that many bases: the last piece is cut. On a CPU a sample is the
    same however many are asked for, and with any --threads.
    """
    from bigbird_dna.model.decoding import Sampling
    from bigbird_dna.tasks.generation import generate_samples

    count = generate_samples(
        model_dir,
        output,
        number=num_samples,
        length=length,
        left=left,
        right=right,
        sampling=Sampling(temperature, top_k, top_p),
        rounds=iterations,
        seed=seed,
        device=device,
        threads=threads,
    )
    log(f"{count:,} samples of {length:,} bp")


def report_samples(
    samples: Annotated[Path, argument("Samples (FASTA), as generate writes them.")],
    reference: Reference,
    contig: Annotated[
        list[str], option("NAME", "Contig to compare with, which the model has not learnt from; repeatable.")
    ],
    output: Directory,
    exclude: Annotated[
        list[str], option("NAME", "Contig that Markov chains don't learn from either; repeatable.", "none")
    ] = [],  # noqa: B006
    max_k: Annotated[int, option("K", "Of k-mers, from 1 on.", least=1)] = 6,
    seed: Annotated[int, option("N", "Of drawn sequence and of Markov chains.", least=0)] = 1,
) -> None:
    """Compare samples with held-out contigs: how often each k-mer stands there, and GC.

    Writes samples.tsv (the Jensen-Shannon divergence of k-mers from the contigs', in bits), samples.json and
    samples.svg. Two rulers stand beside the samples: as much sequence of the contigs themselves, and Markov
    chains of order 0 to 5 that have learnt from the reference's other contigs.
    """
    from bigbird_dna.reporting.samples import report_samples as report

    report(samples, reference, contig, output, exclude=exclude, longest=max_k, seed=seed)
