"""Command `explain` and `bigbird_dna.explain`: contributions of bases to predictions, as files and a page."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.console import progress
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.outputs import (
    command_line,
    file_names,
    provenance,
    provenance_lines,
)
from bigbird_dna.disk.tables import Schema, write_table
from bigbird_dna.errors import UsageError, check_at_least_one, check_choice
from bigbird_dna.explanation.mutagenesis import (
    Mutations,
    Seqlet,
    check_views,
    find_seqlets,
    likelihood_mutations,
    noise,
    saturation_mutagenesis,
    view_counts,
    views_of,
)
from bigbird_dna.explanation.one_hot import gradient_mutations
from bigbird_dna.explanation.targets import (
    FLANK,
    ExplainedWindow,
    Scored,
    chosen_outputs,
    explainable,
    output_names,
    read_targets,
)
from bigbird_dna.genome.sequence_tables import COLUMNS
from bigbird_dna.model.batching import View
from bigbird_dna.model.catalog import stored_name
from bigbird_dna.model.directory import load
from bigbird_dna.model.inference import cpu_threads
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.reporting.explanations import Explanation, explanation_page
from bigbird_dna.scoring.regions import opened
from bigbird_dna.scoring.writers import check_bigwig_contigs, open_writer
from bigbird_dna.tokens.interface import BASES

METHODS = ("mutagenesis", "gradient")
MOST_OUTPUTS = 8
EXPLAINED_BASES = Schema.of(
    "text name output contig; count position; text strand base; number contribution noise; text certain; "
    "number effect_A effect_C effect_G effect_T; metric deletion deletion_noise",
    key=["name", "output", "contig", "position"],
)
OUTPUT_PREFIXES = Schema.of("text output prefix", key=["output"])
SCORES = Schema.of(
    "text name output; number score noise; text site", key=["name", "output"]
)

# Axes: V views, N targets, L bases of a target, T outputs.


class ExplanationCounts(NamedTuple):
    """Number of targets, of their bases, of bases with a contribution above its noise, and of seqlets; the
    last two are sums over outputs."""

    targets: int
    bases: int
    certain: int
    seqlets: int

    @classmethod
    def of(cls, explained: "Sequence[_Explained]") -> Self:
        """Count them."""
        return cls(
            len(explained),
            sum(len(one.target.bases) for one in explained),
            sum(int(one.certain.sum()) for one in explained),
            sum(len(own) for one in explained for own in one.seqlets),
        )


class _Explained(NamedTuple):
    target: ExplainedWindow
    mutations: Mutations
    seqlets: list[list[Seqlet]]  # by output

    @classmethod
    def of(cls, target: ExplainedWindow, mutations: Mutations) -> Self:
        """With the seqlets of each output."""
        return cls(
            target,
            mutations,
            [find_seqlets(own) for own in np.moveaxis(mutations.importance, 2, 0)],
        )

    @property
    def certain(self) -> NDArray[np.bool_]:
        """Whether contributions (L, T) are larger than their noise."""
        values = self.mutations.importance
        return np.asarray(np.abs(values.mean(0)) > noise(values))


def explain(
    model: LoadedModel | Path | str,
    targets: Path | str,
    output: Path | str,
    *,
    reference: Path | str | None = None,
    aliases: Path | str | None = None,
    method: str = METHODS[0],
    tracks: str | None = None,
    deletions: bool = False,
    flank: int = FLANK,
    offsets: int | None = None,
    tokenizations: int | None = None,
    sequence_column: str = COLUMNS.sequence,
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> ExplanationCounts:
    """Write the contribution of each base of regions, variants or sequences to a model's scores.

    Parameters
    ----------
    model
        A promoter, chromatin, sequence or pretrained masked-token model, or its directory.
    targets
        BED regions or a VCF, with `reference`; or FASTA or a table of sequences (docs/files/explanations.md).
        A region of one base is a start site (promoter models and models of start sites).
    output
        Directory to write: tables, arrays for TF-MoDISco, bigWig, BED of seqlets, and a page.
    reference, aliases
        The indexed FASTA of regions and variants, and a file of alternative contig names.
    method
        "mutagenesis": every substitution is scored. "gradient": a first-order approximation, faster.
    tracks
        Tracks of a chromatin model, as for `predict_tracks`; None: all, if it has at most 8.
    deletions
        Also score the deletion of each base, by mutagenesis.
    flank
        Bases on both sides of a variant that are explained.
    offsets, tokenizations
        Number of crops of a window, and of divisions into other tokens, over which values are averaged; None:
        4, for models of start sites 1.
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
    counts = {"batch_size": batch_size, "threads": threads, "flank": flank}
    _check(method, deletions, offsets, tokenizations, counts)
    with ExitStack() as stack:
        stack.enter_context(cpu_threads(threads))
        loaded = explainable(model if isinstance(model, LoadedModel) else load(model))
        columns = chosen_outputs(loaded, tracks, MOST_OUTPUTS)
        offsets, tokenizations = view_counts(loaded, offsets, tokenizations)
        genome = (
            None
            if reference is None
            else stack.enter_context(opened(reference, aliases))
        )
        given = read_targets(
            Path(targets), loaded, genome, flank=flank, sequence_column=sequence_column
        )
        check_bigwig_contigs(
            len({one.contig for one in given}), targets, "explain fewer sequences"
        )
        inputs = [loaded.path, targets, reference, aliases]
        files = stack.enter_context(into_directory(Path(output), inputs))
        work = _method(
            loaded,
            method,
            columns,
            deletions,
            {"batch_size": batch_size, "device": device},
        )
        explained = []
        for target in progress(given, "explaining", len(given), "sequences"):
            views = views_of(loaded, len(target.window), offsets, tokenizations)
            explained.append(_Explained.of(target, work(target, views)))
        line = command_line(
            "explain",
            [stored_name(loaded.path), targets],
            {
                **{
                    "--reference": reference,
                    "--aliases": aliases,
                    "--method": method,
                    "--tracks": tracks,
                },
                **{
                    "--flank": flank,
                    "--offsets": offsets,
                    "--tokenizations": tokenizations,
                },
            },
            {"--deletions": deletions},
        )
        contigs = (
            {one.contig: one.last - one.first for one in given}
            if genome is None
            else genome.contigs
        )
        names = [output_names(loaded)[column] for column in columns]
        if len(names) > 1:
            prefixes = pd.DataFrame(
                {"output": names, "prefix": output_prefixes(names).values()}
            )
            write_table(files / "outputs.tsv", prefixes, OUTPUT_PREFIXES)
        _write(files, explained, names, dict(contigs), provenance(loaded.sha256, line))
        explanation_page(_figures(explained, names), line, method, files)
    return ExplanationCounts.of(explained)


def _method(
    model: LoadedModel,
    method: str,
    columns: Sequence[int],
    deletions: bool,
    computing: dict[str, Any],
) -> Callable[[ExplainedWindow, Sequence[View]], Mutations]:
    """Return the function that computes the changes; `UsageError` if the model has none."""
    if not isinstance(model, Scored):
        if deletions or method != METHODS[0]:
            raise UsageError(
                f"{model.name}: a pretrained model has substitutions by mutagenesis only; for deletions, use "
                "score-variants"
            )
        return lambda target, views: likelihood_mutations(
            model, target, views, **computing
        )
    if method != METHODS[0]:
        return lambda target, views: gradient_mutations(model, target, columns, views)
    own = {"deletions": deletions, **computing}
    return lambda target, views: saturation_mutagenesis(
        model, target, columns, views, **own
    )


def _check(
    method: str,
    deletions: bool,
    offsets: int | None,
    tokenizations: int | None,
    counts: dict[str, int | None],
) -> None:
    """`UsageError` if an argument is out of range."""
    check_choice("method", method, METHODS)
    check_at_least_one(counts)
    check_views(offsets, tokenizations)
    if deletions and method != METHODS[0]:
        raise UsageError("deletions: only with the method mutagenesis")


def _write(
    files: Path,
    explained: Sequence[_Explained],
    names: Sequence[str],
    contigs: dict[str, int],
    origin: dict[str, str],
) -> None:
    """Write all tables, arrays and tracks."""
    write_table(
        files / "bases.tsv",
        pd.concat([_bases(one, names) for one in explained]),
        EXPLAINED_BASES,
    )
    scores = [
        (one.target.name, name, float(values.mean()), float(spread), _site(one.target))
        for one in explained
        for name, values, spread in zip(
            names, one.mutations.scores.T, noise(one.mutations.scores), strict=True
        )
    ]
    write_table(
        files / "scores.tsv", pd.DataFrame(scores, columns=SCORES.names), SCORES
    )
    longest = max(len(one.target.bases) for one in explained)
    one_hot = np.zeros((len(explained), len(BASES), longest), np.int8)
    for number, one in enumerate(explained):
        one_hot[number, :, : len(one.target.bases)] = one.mutations.one_hot.T
    np.savez_compressed(files / "ohe.npz", one_hot)
    for column, prefix in enumerate(output_prefixes(names).values()):
        shap = np.zeros(one_hot.shape, np.float32)
        for number, one in enumerate(explained):
            shap[number, :, : len(one.target.bases)] = (
                one.mutations.hypothetical[..., column].mean(0).T
            )
        np.savez_compressed(files / f"{prefix}shap.npz", shap)
        on_reference = [one for one in explained if one.target.on_reference]
        lines = _seqlet_lines(on_reference, column, origin)
        text = "".join(f"{line}\n" for line in lines)
        (files / f"{prefix}seqlets.bed").write_text(text, encoding="utf-8")
        with open_writer(
            *(files / f"{prefix}contributions.bw", "bigwig", origin),
            contigs=contigs,
            unit="base",
        ) as writer:
            writer.write(_values(on_reference, column, contigs))


def _site(target: ExplainedWindow) -> str:
    """The start site whose score is explained, or "."."""
    return (
        "."
        if target.site is None
        else f"{target.contig}:{target.site}({target.strand})"
    )


def output_prefixes(outputs: Sequence[str]) -> dict[str, str]:
    """Return the beginning of the names of each output's files: nothing if there is only one output."""
    names = file_names(outputs)
    return (
        dict.fromkeys(names, "")
        if len(names) == 1
        else {name: f"{file}." for name, file in names.items()}
    )


def _bases(one: _Explained, names: Sequence[str]) -> pd.DataFrame:
    """Rows of `EXPLAINED_BASES` of a target."""
    target, mutations = one.target, one.mutations
    values, places = mutations.importance, range(len(target.bases))
    own = values.mean(0), noise(values), one.certain, mutations.substitutions.mean(0)
    shown = []
    for column, name in enumerate(names):
        contribution, spread, certain, effects = (part[..., column] for part in own)
        table = pd.DataFrame(
            {
                "name": target.name,
                "output": name,
                "contig": target.contig,
                "position": [target.position(place) for place in places],
                "strand": target.strand,
                "base": list(target.bases),
                "contribution": contribution,
                "noise": spread,
                "certain": np.where(certain, "yes", "no"),
                **{
                    f"effect_{base}": effects[:, number]
                    for number, base in enumerate(BASES)
                },
                "deletion": np.nan,
                "deletion_noise": np.nan,
            }
        )
        if mutations.deletions is not None:
            table["deletion"] = mutations.deletions.mean(0)[:, column]
            table["deletion_noise"] = noise(mutations.deletions)[:, column]
        shown.append(table)
    return pd.concat(shown)


def _seqlet_lines(
    explained: Sequence[_Explained], column: int, origin: dict[str, str]
) -> Iterator[str]:
    """Lines of a BED file: place, name of the target, score 0 to 1000, strand, contribution, ratio, bases."""
    yield from provenance_lines(origin)
    yield "#contig\tstart\tend\tname\tscore\tstrand\tcontribution\tratio\tbases"
    rows, most = (
        [],
        max(
            (abs(s.contribution) for one in explained for s in one.seqlets[column]),
            default=1,
        ),
    )
    for one in explained:
        for start, end, contribution, ratio in one.seqlets[column]:
            ends = one.target.position(start), one.target.position(end - 1)
            score = round(1000 * abs(contribution) / most)
            place = (
                one.target.contig,
                min(ends),
                max(ends) + 1,
                one.target.name,
                score,
                one.target.strand,
            )
            rows.append(
                (
                    *place,
                    f"{contribution:.6g}",
                    f"{ratio:.4g}",
                    one.target.bases[start:end],
                )
            )
    yield from (
        "\t".join(map(str, row)) for row in sorted(rows, key=lambda row: row[:3])
    )


def _values(
    explained: Sequence[_Explained], column: int, contigs: dict[str, int]
) -> Iterator[tuple[str, int, int, float]]:
    """Contributions of bases in the order of contigs and positions; the mean where targets overlap."""
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in explained:
        values = one.mutations.importance[..., column].mean(0).tolist()
        for place, value in enumerate(values):
            found[one.target.contig][one.target.position(place)].append(value)
    for contig, length in contigs.items():
        for position, values in sorted(found[contig].items()):
            if 0 <= position < length:
                yield contig, position, position + 1, float(np.mean(values))


def _figures(
    explained: Sequence[_Explained], names: Sequence[str]
) -> Iterator[Explanation]:
    """What the page shows of each target and output."""
    for one in explained:
        target, values = one.target, one.mutations.importance
        spread, scores, end = (
            noise(values),
            one.mutations.scores,
            target.start + len(target.bases),
        )
        start_site = "" if target.site is None else f", start site {target.site + 1:,}"
        for column, name in enumerate(names):
            yield Explanation(
                target.name,
                name,
                f"{target.contig}:{target.start + 1:,}-{end:,} ({target.strand}){start_site}",
                target.bases,
                values[..., column].mean(0),
                spread[:, column],
                float(scores[:, column].mean()),
                float(noise(scores)[column]),
                [(seqlet.start, seqlet.end) for seqlet in one.seqlets[column]],
            )
