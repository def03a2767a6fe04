"""`score-variants`: effects of the variants of a VCF on chromatin tracks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bigbird_dna.cli.checks import check_choice, check_fraction
from bigbird_dna.cli.device import DEVICE, THREADS
from bigbird_dna.cli.output import (
    check_output,
    command_line,
    destination,
    format_for,
    is_special,
)
from bigbird_dna.cli.predictor import open_predictor
from bigbird_dna.console import log, progress
from bigbird_dna.errors import UsageError
from bigbird_dna.files import atomic_path

if TYPE_CHECKING:  # slow to import: inside the command
    import numpy as np
    from numpy.typing import NDArray

    from bigbird_dna.genome.vcf import VcfSummary
    from bigbird_dna.tasks.variants.effects import ScoredRecord

FORMATS = {"vcf": (".vcf",), "tsv": (".tsv", ".txt")}
TBI_REACH = 2**29  # bp, the furthest position a `.tbi` index can hold


def register(app: typer.Typer) -> None:
    """Add this group's commands to the application."""
    app.command()(score_variants)


def score_variants(
    model_dir: Path = typer.Argument(help="Directory of a chromatin model."),
    vcf: Path = typer.Argument(help="VCF, plain, gzip or bgzip; - reads standard input."),
    reference: Path = typer.Option(
        ..., "--reference", metavar="FASTA", help="Reference of the VCF, plain or bgzip."
    ),
    tracks: str | None = typer.Option(
        None,
        metavar="PATTERN",
        help="Tracks, groups or shell patterns, comma-separated: only these count, and the values of each "
        "are written ('*': of all tracks). Default: all count, only the largest effect is written.",
    ),
    contig: list[str] = typer.Option(
        [],
        metavar="NAME",
        help="Only the records of this contig, named as in the VCF; may be given again. Default: all.",
    ),
    output: Path | None = typer.Option(
        None,
        "-o",
        "--output",
        help="File to write, whole or not at all; .gz makes it bgzip, with an index if the input is "
        "sorted (default: standard output).",
    ),
    format: str | None = typer.Option(
        None,
        metavar="|".join(FORMATS),
        help="What to write (default: by the ending of -o, or vcf).",
    ),
    offsets: int = typer.Option(
        4,
        metavar="N",
        help="Window offsets to average over, spread over the length of a few tokens.",
    ),
    max_n: float = typer.Option(
        0.25,
        metavar="FRACTION",
        help="Alleles with a larger share of N in a window are listed, but not scored.",
    ),
    batch_size: int = typer.Option(32, help="Windows run together; changes speed and memory only."),
    device: str = DEVICE,
    threads: int | None = THREADS,
) -> None:
    """Score how the variants of a VCF change the probabilities of chromatin tracks.

    The change is ALT minus REF, each the mean over both strands and several offsets of the window. A VCF
    keeps its lines and gets BBD_MAX, BBD_MAXTRACK and, with --tracks, BBD_DELTA and BBD_LOGODDS in INFO;
    FILTER stays as it is. Table columns: #contig position ref alt id note max_delta max_track, a row for
    each ALT. An allele that can't be scored has the reason in BBD_NOTE or the note.
    """
    output = None if str(output) == "-" else output
    chosen = format_for(output, FORMATS, "vcf") if format is None else format
    check_choice("--format", chosen, FORMATS)
    _check_offsets(offsets)
    check_fraction("--max-n", max_n)
    if output is not None and output.suffix == ".bcf":
        raise UsageError(f"{output}: BCF isn't written; name a .vcf.gz")
    check_output(output, [vcf, reference])

    from bigbird_dna.genome.fasta import spool_stdin
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.genome.variants import window_offsets
    from bigbird_dna.genome.vcf import open_vcf, scan_vcf
    from bigbird_dna.tasks.variants.effects import score_variants as score
    from bigbird_dna.tasks.variants.writers import WRITERS, VariantInfo, write_index

    model = open_predictor(
        model_dir, both_strands=False, batch_size=batch_size, device=device, threads=threads
    )
    if window_offsets(offsets)[-1] > (model.window - 1) // 2:
        raise UsageError(
            f"--offsets {offsets}: the model's window of {model.window} bp is too small for them"
        )
    columns = model.columns(tracks)
    names = [model.tracks[column].name for column in columns]

    def predict(sequences: Sequence[str]) -> "NDArray[np.float32]":
        values = model.predict(sequences)[:, 0]
        return values if len(columns) == len(model.tracks) else values[:, columns]

    command = command_line(
        "score-variants",
        [model_dir, vcf],
        {
            "--reference": reference,
            "--tracks": tracks,
            "--contig": contig,
            "--format": chosen,
            "--offsets": offsets,
            "--max-n": max_n,
        },
    )
    counts: Counter[str] = Counter()
    source: AbstractContextManager[Path] = spool_stdin() if str(vcf) == "-" else nullcontext(vcf)
    with source as path, Reference(reference) as genome, ExitStack() as outputs:
        summary = scan_vcf(path, contig)
        if contig and not summary.records:
            log(f"warning: {vcf}: no records on {', '.join(contig)}")
        temporary = outputs.enter_context(destination(output, chosen))
        index = _index_for(output, summary)
        if index is not None:
            temporary_index = outputs.enter_context(atomic_path(index))
        with open_vcf(path, contig) as opened:
            info = VariantInfo(
                opened.meta,
                opened.column_line,
                version("bigbird-dna"),
                model.sha256,
                command,
                names,
                per_track=tracks is not None,
            )
            scored = score(
                opened.records,
                genome,
                window=model.window,
                predict=predict,
                offsets=window_offsets(offsets),
                max_n=max_n,
            )
            scored = _counted(progress(scored, "scoring", summary.records), counts)
            WRITERS[chosen](temporary, scored, info)
        if index is not None:
            write_index(temporary, temporary_index, chosen)
    _remove_old_indices(output, index)
    log(_summary(counts, summary.records))


def _check_offsets(offsets: int) -> None:
    from bigbird_dna.genome.variants import OFFSET_SPAN

    if not 1 <= offsets <= OFFSET_SPAN + 1:
        raise UsageError(f"--offsets {offsets}: must be from 1 to {OFFSET_SPAN + 1}")


def _index_for(output: Path | None, summary: "VcfSummary") -> Path | None:
    """Where the index of a sorted bgzip output goes; None if there is to be none."""
    if output is None or output.suffix != ".gz" or is_special(output) or not summary.is_sorted:
        return None
    return Path(f"{output}.tbi" if summary.furthest < TBI_REACH else f"{output}.csi")


def _remove_old_indices(output: Path | None, index: Path | None) -> None:
    """Take away what indexes a former file of the same name: readers would trust it."""
    if output is None or output.suffix != ".gz" or is_special(output):
        return
    for path in (Path(f"{output}.tbi"), Path(f"{output}.csi")):
        if path != index:
            path.unlink(missing_ok=True)


def _counted(scored: "Iterable[ScoredRecord]", counts: Counter[str]) -> "Iterator[ScoredRecord]":
    for row in scored:
        for effect in row.effects:
            counts["scored"] += effect.delta is not None
            counts["unscored"] += effect.delta is None
            counts.update(effect.notes)
        yield row


def _summary(counts: Counter[str], records: int) -> str:
    text = f"{records:,} records: {counts['scored']:,} alternative alleles scored"
    if counts["unscored"]:
        text += f", {counts['unscored']:,} not"
    from bigbird_dna.genome.variants import Note

    notes = [f"{note} {counts[note]:,}" for note in Note if counts[note]]
    if notes:
        text += f" ({', '.join(notes)})"
    foreign = counts[Note.REF_MISMATCH] + counts[Note.CONTIG_UNKNOWN] + counts[Note.BEYOND_CONTIG]
    if foreign > counts["scored"]:
        text += "; warning: most of them don't fit the reference: is it of another assembly?"
    return text
