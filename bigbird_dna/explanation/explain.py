"""Command `explain` and `bigbird_dna.explain`: contributions of bases to predictions, as files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.console import ProgressBar
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.outputs import file_names
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import check_at_least_one, check_choice
from bigbird_dna.explanation.mutagenesis import (
    VIEWS,
    noise,
    saturation_mutagenesis,
    views_of,
)
from bigbird_dna.explanation.one_hot import gradient_mutations
from bigbird_dna.explanation.targets import (
    FLANK,
    chosen_outputs,
    explainable,
    output_names,
    read_targets,
)
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence_tables import COLUMNS
from bigbird_dna.model.catalog import result_origin
from bigbird_dna.model.directory import load
from bigbird_dna.model.inference import cpu_threads
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.start_sites import LoadedStartSiteModel
from bigbird_dna.reporting.logos import draw_logo
from bigbird_dna.scoring.writers import open_writer
from bigbird_dna.tokens.interface import BASES

METHODS = ("mutagenesis", "gradient")
MOST_OUTPUTS = 8
MOST_LOGOS = 24
SCORES = ["name", "output", "score", "noise", "site"]

# Axes: V views, N targets, L bases of a target, T outputs.


def explain(
    model: LoadedModel | Path | str,
    targets: Path | str,
    output: Path | str,
    *,
    reference: Path | str | None = None,
    aliases: Path | str | None = None,
    method: str = METHODS[0],
    tracks: str | None = None,
    flank: int = FLANK,
    views: int | None = None,
    sequence_column: str = COLUMNS.sequence,
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> pd.DataFrame:
    """Write the contribution of each base of regions, variants or sequences to a model's scores.

    Parameters
    ----------
    model
        A promoter, chromatin or sequence model, or its directory.
    targets
        BED regions or a VCF, with `reference`; or FASTA or a table of sequences (docs/files.md).
        A region of one base is a start site (promoter models and models of start sites).
    output
        Directory to write: tables, arrays for TF-MoDISco, bigWig, and logos.
    reference, aliases
        The indexed FASTA of regions and variants, and a file of alternative contig names.
    method
        "mutagenesis": every substitution is scored. "gradient": a first-order approximation, faster.
    tracks
        Tracks of a chromatin model, as for `predict_tracks`; None: all, if it has at most 8.
    flank
        Bases on both sides of a variant that are explained.
    views
        Number of crops of a window, and of divisions into other tokens, over which values are averaged, from
        1 on; None: 4, for models of start sites, whose windows are long, 1.
    sequence_column
        Column of a table with the sequences.
    batch_size, device, threads
        As for `score_promoters`.

    Returns
    -------
    The rows of bases.tsv.

    Raises
    ------
    UsageError, DataError, ModelError
        An argument is out of range; a file cannot be read; a target is not on the reference or longer than
        the model's window; the model has no scores to explain, or too many outputs.
    """
    check_choice("method", method, METHODS)
    check_at_least_one(
        {"batch_size": batch_size, "threads": threads, "flank": flank, "views": views}
    )
    loaded = explainable(model if isinstance(model, LoadedModel) else load(model))
    columns = chosen_outputs(loaded, tracks, MOST_OUTPUTS)
    names = [output_names(loaded)[column] for column in columns]
    if views is None:
        views = 1 if isinstance(loaded, LoadedStartSiteModel) else VIEWS

    # All targets are read and checked before anything is computed.
    windows = read_targets(
        Path(targets),
        loaded,
        reference,
        aliases,
        flank=flank,
        sequence_column=sequence_column,
    )
    contigs = {window.contig: len(window.bases) for window in windows}
    if reference is not None:
        with Reference(Path(reference)) as genome:
            contigs = dict(genome.contigs)

    options = {
        "--reference": reference,
        "--aliases": aliases,
        "--method": method,
        "--tracks": tracks,
        "--flank": flank,
        "--views": views,
    }
    origin = result_origin(loaded, "explain", targets, options)
    prefixes = output_prefixes(names)
    tables, scores, one_hot, hypothetical = [], [], [], []
    with (
        cpu_threads(threads),
        into_directory(
            Path(output), [loaded.path, targets, reference, aliases]
        ) as files,
        ProgressBar("explaining", len(windows), "sequences") as bar,
    ):
        (files / "logos").mkdir()
        for target in windows:
            text = target.window
            ends = len(text) - len(text.lstrip("N")), len(text) - len(text.rstrip("N"))
            read = views_of(loaded, len(text), views, views, ends)
            if method == "gradient":
                mutations = gradient_mutations(loaded, target, columns, read)
            else:
                mutations = saturation_mutagenesis(
                    loaded,
                    target,
                    columns,
                    read,
                    batch_size=batch_size,
                    device=device,
                )

            contributions = mutations.importance.mean(0)  # (L, T)
            spreads = noise(mutations.importance)
            certain = np.abs(contributions) > spreads
            effects = mutations.substitutions.mean(0)  # (L, 4, T)
            one_hot.append(mutations.one_hot)
            hypothetical.append(mutations.hypothetical.mean(0))
            site = "."
            if target.site is not None:
                site = f"{target.contig}:{target.site}({target.strand})"

            for column, name in enumerate(names):
                table = pd.DataFrame(
                    {
                        "name": target.name,
                        "output": name,
                        "contig": target.contig,
                        "position": target.positions,
                        "strand": target.strand,
                        "base": list(target.bases),
                        "contribution": contributions[:, column],
                        "noise": spreads[:, column],
                        "certain": np.where(certain[:, column], "yes", "no"),
                    }
                )
                for number, base in enumerate(BASES):
                    table[f"effect_{base}"] = effects[:, number, column]

                tables.append(table.assign(on_reference=target.on_reference))
                values = mutations.scores[:, column]
                row = (target.name, name, values.mean(), noise(values), site)
                scores.append(row)
                if len(scores) <= MOST_LOGOS:
                    draw_logo(
                        target.bases,
                        contributions[:, column],
                        certain[:, column],
                        f"{target.name}: {name}",
                        files / "logos" / f"{len(scores):03}.svg",
                    )

            bar.advance()

        bases = pd.concat(tables, ignore_index=True)
        on_reference = bases[bases.pop("on_reference")]
        write_tsv(files / "bases.tsv", bases)
        write_tsv(files / "scores.tsv", pd.DataFrame(scores, columns=SCORES))
        if len(names) > 1:
            table = pd.DataFrame({"output": names, "prefix": prefixes.values()})
            write_tsv(files / "outputs.tsv", table)

        np.savez_compressed(files / "ohe.npz", padded(one_hot))
        for column, (name, prefix) in enumerate(prefixes.items()):
            shap = padded([array[..., column] for array in hypothetical])
            np.savez_compressed(files / f"{prefix}shap.npz", shap)
            path = files / f"{prefix}contributions.bw"
            # Means where targets overlap, in the order of contigs.
            rows = on_reference[on_reference["output"] == name]
            means = rows.groupby(["contig", "position"])["contribution"].mean()
            with open_writer(
                path, "bigwig", origin, contigs=contigs, unit="base"
            ) as write_track:
                for contig in contigs:
                    if contig in means.index:
                        write_track(
                            (contig, position, position + 1, value)
                            for position, value in means[contig].items()
                            if 0 <= position < contigs[contig]
                        )

    return bases


def output_prefixes(outputs: Sequence[str]) -> dict[str, str]:
    """Return the beginning of the names of each output's files: nothing if there is only one output."""
    if len(outputs) == 1:
        return {outputs[0]: ""}
    return {name: f"{file}." for name, file in file_names(outputs).items()}


def padded(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays (L, 4) of targets as one, (N, 4, L), with zeros at the ends of shorter ones."""
    longest = max(map(len, arrays))
    filled = np.zeros((len(arrays), len(BASES), longest), arrays[0].dtype)
    for number, array in enumerate(arrays):
        filled[number, :, : len(array)] = array.T
    return filled
