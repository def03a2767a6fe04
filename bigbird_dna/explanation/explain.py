"""Command `explain` and `bigbird_dna.explain`: contributions of bases to predictions, as files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
    Mutations,
    noise,
    saturation_mutagenesis,
    views_of,
)
from bigbird_dna.explanation.one_hot import gradient_mutations
from bigbird_dna.explanation.targets import (
    FLANK,
    ExplainedWindow,
    chosen_outputs,
    explainable,
    output_names,
    read_targets,
)
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence_tables import COLUMNS
from bigbird_dna.model.catalog import result_origin
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.directory import load
from bigbird_dna.model.inference import cpu_threads
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.reporting.logos import draw_logo
from bigbird_dna.scoring.writers import open_writer
from bigbird_dna.tokens.interface import BASES

METHODS = ("mutagenesis", "gradient")
MOST_OUTPUTS = 8
MOST_LOGOS = 24
SCORES = ["name", "output", "score", "noise", "site"]

# Axes: V views, N targets, L bases of a target, T outputs.


class ExplanationCounts(NamedTuple):
    """Number of targets, of their bases, and of contributions above their noise, over all outputs."""

    targets: int
    bases: int
    certain: int


class Explained(NamedTuple):
    """A target, the changes of its scores, and its contributions (L, T), means over views."""

    target: ExplainedWindow
    mutations: Mutations
    contributions: NDArray[np.float32]
    noise: NDArray[np.float32]  # (L, T)

    @property
    def certain(self) -> NDArray[np.bool_]:
        """Whether contributions (L, T) are larger than their noise."""
        return np.asarray(np.abs(self.contributions) > self.noise)


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
) -> ExplanationCounts:
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
        views = (
            1
            if isinstance(loaded, LoadedChromatinModel) and loaded.predicts_tss
            else VIEWS
        )

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
    computing: dict[str, Any] = {"batch_size": batch_size, "device": device}
    inputs = [loaded.path, targets, reference, aliases]
    explained = []
    with (
        cpu_threads(threads),
        into_directory(Path(output), inputs) as files,
        ProgressBar("explaining", len(windows), "sequences") as bar,
    ):
        for target in windows:
            read = views_of(loaded, len(target.window), views, views)
            if method == "gradient":
                mutations = gradient_mutations(loaded, target, columns, read)
            else:
                mutations = saturation_mutagenesis(
                    loaded, target, columns, read, **computing
                )
            values = mutations.importance
            explained.append(
                Explained(target, mutations, values.mean(0), noise(values))
            )
            bar.advance()

        write_tsv(files / "bases.tsv", base_table(explained, names))
        write_tsv(files / "scores.tsv", score_table(explained, names))
        prefixes = output_prefixes(names)
        if len(names) > 1:
            table = pd.DataFrame({"output": names, "prefix": prefixes.values()})
            write_tsv(files / "outputs.tsv", table)
        one_hot = padded([one.mutations.one_hot for one in explained])
        np.savez_compressed(files / "ohe.npz", one_hot)
        on_reference = [one for one in explained if one.target.on_reference]
        for column, prefix in enumerate(prefixes.values()):
            shap = padded(
                [one.mutations.hypothetical[..., column].mean(0) for one in explained]
            )
            np.savez_compressed(files / f"{prefix}shap.npz", shap)
            path = files / f"{prefix}contributions.bw"
            with open_writer(
                path, "bigwig", origin, contigs=contigs, unit="base"
            ) as write_track:
                write_track(track_rows(on_reference, column, contigs))
        (files / "logos").mkdir()
        pairs = [(one, column) for one in explained for column in range(len(names))]
        for number, (one, column) in enumerate(pairs[:MOST_LOGOS], 1):
            draw_logo(
                one.target.bases,
                one.contributions[:, column],
                one.certain[:, column],
                f"{one.target.name}: {names[column]}",
                files / "logos" / f"{number:03}.svg",
            )
    return ExplanationCounts(
        len(explained),
        sum(len(one.target.bases) for one in explained),
        sum(int(one.certain.sum()) for one in explained),
    )


def output_prefixes(outputs: Sequence[str]) -> dict[str, str]:
    """Return the beginning of the names of each output's files: nothing if there is only one output."""
    if len(outputs) == 1:
        return {outputs[0]: ""}
    return {name: f"{file}." for name, file in file_names(outputs).items()}


def base_table(explained: Iterable[Explained], names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of bases.tsv."""
    tables = []
    for one in explained:
        target, mutations = one.target, one.mutations
        effects = mutations.substitutions.mean(0)
        for column, name in enumerate(names):
            cells: dict[str, Any] = {
                "name": target.name,
                "output": name,
                "contig": target.contig,
                "position": target.positions,
                "strand": target.strand,
                "base": list(target.bases),
                "contribution": one.contributions[:, column],
                "noise": one.noise[:, column],
                "certain": np.where(one.certain[:, column], "yes", "no"),
            }
            for number, base in enumerate(BASES):
                cells[f"effect_{base}"] = effects[:, number, column]
            tables.append(pd.DataFrame(cells))
    return pd.concat(tables)


def score_table(explained: Iterable[Explained], names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of `SCORES`; the site is the start site whose score is explained, or "."."""
    rows = []
    for one in explained:
        target, scores = one.target, one.mutations.scores
        site = "."
        if target.site is not None:
            site = f"{target.contig}:{target.site}({target.strand})"
        spreads = noise(scores)
        for column, name in enumerate(names):
            score = float(scores[:, column].mean())
            rows.append((target.name, name, score, float(spreads[column]), site))
    return pd.DataFrame(rows, columns=SCORES)


def padded(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays (L, 4) of targets as one, (N, 4, L), with zeros at the ends of shorter ones."""
    longest = max(map(len, arrays))
    filled = np.zeros((len(arrays), len(BASES), longest), arrays[0].dtype)
    for number, array in enumerate(arrays):
        filled[number, :, : len(array)] = array.T
    return filled


def track_rows(
    explained: Iterable[Explained], column: int, contigs: Mapping[str, int]
) -> Iterator[tuple[str, int, int, float]]:
    """Yield the contributions of bases in the order of contigs and positions; means where targets overlap."""
    by_contig: dict[str, list[pd.Series[float]]] = {}
    for one in explained:
        values = pd.Series(one.contributions[:, column], one.target.positions, float)
        by_contig.setdefault(one.target.contig, []).append(values)
    for contig, length in contigs.items():
        if contig not in by_contig:
            continue
        means = pd.concat(by_contig[contig]).groupby(level=0).mean()
        for position, value in zip(means.index.tolist(), means.tolist(), strict=True):
            if 0 <= position < length:
                yield contig, position, position + 1, value
