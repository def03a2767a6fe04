"""Commands that train: pretraining, the promoter data set, fine-tuning, and the k-mer baseline."""

from pathlib import Path

import typer

CONFIG = typer.Argument(..., help="Configuration (YAML), such as workflow/config/demo.yaml.")
SET = typer.Option([], "--set", metavar="KEY=VALUE", help="Override a key, as encoder.layers=4.")
DEVICE = typer.Option("auto", help="auto, cpu or cuda.")
THREADS = typer.Option(0, min=0, help="CPU threads of this process; 0: torch's choice.")
NEGATIVE_SET = typer.Option(..., help="substituted, permuted or genomic.")
REFERENCE = typer.Option(None, help="Prepared reference. [default: RESULTS/genome/reference.fa.gz]")
WINDOWS = typer.Option(None, help="Directory of promoter-windows. [default: RESULTS/promoters]")
CHECKPOINTS = typer.Option(
    None, help="Checkpoints of the running training. [default: RESULTS/checkpoints]"
)


def register(app: typer.Typer) -> None:
    """Add this group's commands to the application."""
    for command in (pretrain, promoter_windows, finetune_promoter, promoter_baseline):
        app.command(command.__name__.replace("_", "-"))(command)


def pretrain(
    config: Path = CONFIG,
    overrides: list[str] = SET,
    tokens: Path | None = typer.Option(None, help="Token stores. [default: RESULTS/tokens]"),
    tokenizer: Path | None = typer.Option(None, help="[default: RESULTS/tokens/tokenizer.model]"),
    output: Path | None = typer.Option(
        None, "-o", "--output", help="Model directory. [default: RESULTS/models/pretrained]"
    ),
    checkpoints: Path | None = CHECKPOINTS,
    device: str = DEVICE,
    threads: int = THREADS,
) -> None:
    """Pretrain the encoder on masked tokens and next sentences.

    A killed run goes on from its last checkpoint when started again with the same configuration. Under
    `torchrun --nproc-per-node N -m bigbird_dna.cli.main pretrain …` N processes train together.
    """
    from bigbird_dna.config import load_config
    from bigbird_dna.tasks.pretrain import pretrain as run
    from bigbird_dna.training.distributed import world

    settings = load_config(config, overrides)
    results = Path(settings.results)
    use_threads(threads)
    tokens = tokens or results / "tokens"
    with world(device) as here:
        run(
            settings,
            tokens,
            tokenizer or tokens / "tokenizer.model",
            output or results / "models/pretrained",
            checkpoints or results / "checkpoints",
            here,
        )


def promoter_windows(
    config: Path = CONFIG,
    overrides: list[str] = SET,
    reference: Path | None = REFERENCE,
    promoters: Path | None = typer.Option(None, help="[default: RESULTS/genome/promoters.tsv]"),
    output: Path | None = typer.Option(None, "-o", "--output", help="[default: RESULTS/promoters]"),
) -> None:
    """Build the promoter data set: windows around every TSS and their named negative sets."""
    from bigbird_dna.config import load_config
    from bigbird_dna.genome.assembly import load_assembly
    from bigbird_dna.genome.promoters import read_loci
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.genome.splits import Splits
    from bigbird_dna.tasks.promoters.windows import build_windows, write_windows

    settings = load_config(config, overrides)
    results = Path(settings.results)
    genome = Reference(reference or results / "genome/reference.fa.gz")
    splits = Splits.from_config(
        settings.genome, genome.contigs, load_assembly(settings.genome.assembly)
    )
    windows, counts = build_windows(
        genome,
        read_loci(promoters or results / "genome/promoters.tsv"),
        splits,
        upstream=settings.promoters.upstream,
        downstream=settings.promoters.downstream,
        negative_sets=settings.promoters.negative_sets,
        negatives=settings.promoters.negatives,
        distance=settings.promoters.distance,
        seed=settings.seed,
    )
    write_windows(output or results / "promoters", windows, counts)


def finetune_promoter(
    config: Path = CONFIG,
    negative_set: str = NEGATIVE_SET,
    overrides: list[str] = SET,
    shuffle_labels: bool = typer.Option(
        False, "--shuffle-labels", help="The control: labels at random."
    ),
    windows: Path | None = WINDOWS,
    reference: Path | None = REFERENCE,
    tokenizer: Path | None = typer.Option(None, help="[default: RESULTS/tokens/tokenizer.model]"),
    pretrained: Path | None = typer.Option(None, help="[default: RESULTS/models/pretrained]"),
    output: Path | None = typer.Option(
        None, "-o", "--output", help="Model directory. [default: RESULTS/models/promoter-SET]"
    ),
    checkpoints: Path | None = CHECKPOINTS,
    device: str = DEVICE,
    threads: int = THREADS,
) -> None:
    """Fine-tune a promoter classifier and predict its held-out windows; resumes by itself."""
    from bigbird_dna.config import load_config
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.tasks.promoters.finetuning import finetune_promoter as run
    from bigbird_dna.training.distributed import world

    settings = load_config(config, overrides)
    results = Path(settings.results)
    use_threads(threads)
    name = "promoter-control" if shuffle_labels else f"promoter-{negative_set}"
    starts_pretrained = settings.promoters.initial == "pretrained"
    with world(device) as here:
        run(
            settings,
            negative_set,
            shuffle_labels=shuffle_labels,
            windows=windows or results / "promoters",
            reference=Reference(reference or results / "genome/reference.fa.gz"),
            tokenizer_path=tokenizer or results / "tokens/tokenizer.model",
            pretrained=(pretrained or results / "models/pretrained") if starts_pretrained else None,
            output=output or results / "models" / name,
            checkpoints=checkpoints or results / "checkpoints",
            world=here,
        )


def promoter_baseline(
    config: Path = CONFIG,
    negative_set: str = NEGATIVE_SET,
    overrides: list[str] = SET,
    windows: Path | None = WINDOWS,
    reference: Path | None = REFERENCE,
    output: Path | None = typer.Option(
        None, "-o", "--output", help="Predictions. [default: RESULTS/promoters/kmer-SET.parquet]"
    ),
) -> None:
    """Fit a logistic regression on k-mer counts and predict the same held-out windows."""
    from bigbird_dna.config import load_config
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.tasks.promoters.finetuning import kmer_baseline

    settings = load_config(config, overrides)
    results = Path(settings.results)
    kmer_baseline(
        settings,
        negative_set,
        windows=windows or results / "promoters",
        reference=Reference(reference or results / "genome/reference.fa.gz"),
        output=output or results / f"promoters/kmer-{negative_set}.parquet",
    )


def use_threads(threads: int) -> None:
    if threads:
        import torch

        torch.set_num_threads(threads)
