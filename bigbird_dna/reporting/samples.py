"""Report of generated samples: comparison with the held-out genome, real sequence and Markov chains.

Codes are A 0, C 1, G 2, T 3, N 4; k-mers with an N are not counted. Strands are used as given in the files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, write_table
from bigbird_dna.errors import DataError, UsageError, check_at_least_one
from bigbird_dna.genome.fasta import stream_fasta
from bigbird_dna.genome.reference import Reference, find_contigs
from bigbird_dna.genome.sequence import UNKNOWN, Interval, base_codes
from bigbird_dna.metrics.auroc import Counts, Estimate, Floats
from bigbird_dna.metrics.resampling import percentile_interval
from bigbird_dna.reporting.result import BLUE, GRAY, GREEN, panels, save_figure
from bigbird_dna.reporting.training import apart

DIVERGENCES = Schema.of(
    "text sequence; count k; metric divergence low high", key=["sequence", "k"]
)
CONTENTS = Schema.of(
    "text sequence; count bases; metric gc gc_deviation", key=["sequence"]
)

LONGEST = (
    10  # largest k: 4 ** k counts are kept in memory for each compared sequence set
)
SAMPLES, REAL, CHAIN = "samples", "held-out sequence", "Markov chain of order"
DRAWS = 20  # draws of segments from the held-out contigs
GC_WINDOW = 200  # bp
_SLICE = 1 << 22  # bases per counting step
ORDERS = range(6)
LENGTH = 1000  # bp of a sampled chain; longer samples consist of several chains, the last one shorter
_ENDS = ("mean", "low", "high")
_UNSEEN = 0.5  # pseudocount
_LEAST = 1e-7  # bits; smaller values are drawn at this value

Codes = NDArray[np.uint8]


def report_samples(
    samples: Path,
    reference: Path,
    contigs: Sequence[str],
    output: Path,
    *,
    exclude: Sequence[str] = (),
    longest: int = 6,
    seed: int = 1,
) -> dict[str, Any]:
    """Write `samples.tsv`, `gc.tsv`, `samples.json` and `samples.svg` to a directory; return the summary.

    Samples (FASTA written by `generate`) are compared with contigs of an indexed reference, given by any
    known name. Markov chains are fitted to all other contigs except those in `exclude`. k ranges from 1 to
    `longest`. `DataError` if there is too little known sequence to compare, or to fit chains.
    """
    check_at_least_one({"longest": longest})
    if longest > LONGEST:
        raise UsageError(f"longest {longest}: must be at most {LONGEST}")
    if not contigs:
        raise UsageError("no contig given to compare with")
    written = _samples(samples)
    held_out, counts = _genome(reference, contigs, exclude)
    source = f"{reference}: {', '.join(contigs)}"
    for name, own in ((f"{samples}", written), (source, held_out)):
        _check_known(name, own, longest)
    compared = compare_samples(written, held_out, counts, longest, seed)
    for k, found in compared.divergences[REAL].items():
        if math.isnan(found.value):
            raise DataError(
                f"{source}: no drawn segment has a run of {k} known bases: too many bases are unknown, or "
                "the samples are too short"
            )
    by_name = compared.divergences.items()
    summary = {
        "contigs": [*contigs],
        "gc_window": GC_WINDOW,
        "divergences": {
            name: {
                str(k): dict(zip(_ENDS, found, strict=True))
                for k, found in by_k.items()
            }
            for name, by_k in by_name
        },
    }
    for key, name in (("samples", SAMPLES), ("held_out", REAL)):
        summary[key] = dict(
            zip(CONTENTS.names[1:], compared.contents[name][:3], strict=True)
        )
    divergences = [
        (name, k, *found) for name, by_k in by_name for k, found in by_k.items()
    ]
    contents = [(name, *own[:3]) for name, own in compared.contents.items()]
    with into_directory(output) as files:
        for name, rows, schema in (
            ("samples", divergences, DIVERGENCES),
            ("gc", contents, CONTENTS),
        ):
            write_table(
                files / f"{name}.tsv", pd.DataFrame(rows, columns=schema.names), schema
            )
        write_json(files / "samples.json", summary)
        samples_figure(compared, files / "samples.svg")
    return summary


def _check_known(source: str, sequences: Sequence[Codes], longest: int) -> None:
    """Raise `DataError` if no window has a GC content, or no run of `longest` bases is known."""
    if not len(gc_of_windows(sequences)):
        raise DataError(
            f"{source}: every window of {GC_WINDOW} bp contains an N; GC cannot be compared"
        )
    found = next(k for k in range(longest, 0, -1) if spectrum(sequences, k).any())
    if found < longest:
        raise DataError(
            f"{source}: no run of {longest} known bases; longest must be at most {found}"
        )


def _samples(path: Path) -> list[Codes]:
    parts: dict[str, list[Codes]] = {}
    for chunk in stream_fasta(path):
        parts.setdefault(chunk.contig, []).append(base_codes(chunk.sequence))
    return [np.concatenate(own) for own in parts.values()]


def _genome(
    path: Path, contigs: Sequence[str], exclude: Sequence[str]
) -> tuple[list[Codes], Counts]:
    """Return the held-out contigs, and counts of 6-mers in the contigs to which chains are fitted."""
    with Reference(path) as reference:
        wanted, left_out = (
            find_contigs(names, reference) for names in (contigs, exclude)
        )
        others = [
            name for name in reference.contigs if name not in {*wanted, *left_out}
        ]
        learned = (_codes(reference, name) for name in others)
        counts = spectrum(learned, ORDERS[-1] + 1)
        if not counts.any():
            raise DataError(
                f"{path}: no contig of {len(ORDERS)} bp or more is left to fit Markov chains: all are "
                "compared or excluded"
            )
        return [_codes(reference, name) for name in wanted], counts


def _codes(reference: Reference, contig: str) -> Codes:
    return base_codes(reference.fetch(Interval(contig, 0, reference.contigs[contig])))


class Content(NamedTuple):
    """Amount of sequence, its overall GC content, and the GC of windows with standard deviation."""

    bases: int
    gc: float
    gc_deviation: float
    windows: Floats

    @classmethod
    def of(cls, sequences: Sequence[Codes]) -> Content:
        """Return the content of the sequences."""
        windows = gc_of_windows(sequences)
        return cls(
            sum(map(len, sequences)), gc(sequences), float(windows.std()), windows
        )


class SamplesComparison(NamedTuple):
    """Results by compared sequence set; divergences in bits, by k, with the central 95 % of the draws."""

    divergences: Mapping[str, Mapping[int, Estimate]]
    contents: Mapping[str, Content]


def compare_samples(
    samples: Sequence[Codes],
    held_out: Sequence[Codes],
    counts: Counts,
    longest: int,
    seed: int,
) -> SamplesComparison:
    """Compare samples, chains and real segments with the held-out contigs without these segments.

    Each of `DRAWS` draws removes segments of the samples' lengths from the contigs, at random positions. A
    draw without a known run of k bases is ignored for k; a divergence without any draw is NaN. `counts` are
    of 6-mers in the sequence to which chains are fitted.
    """
    rng = np.random.default_rng(seed)
    lengths = [len(one) for one in samples]
    whole = sum(map(len, held_out))
    if 2 * sum(lengths) > whole:
        raise DataError(
            f"the samples have {sum(lengths):,} bp, the contigs {whole:,} bp: samples may "
            "have at most half of this length, because equally long real segments are drawn"
        )
    sizes = range(1, longest + 1)
    given: dict[str, Sequence[Codes]] = {SAMPLES: samples}
    of_order = shortened_counts(counts, ORDERS[-1] + 1)
    for order in ORDERS:
        given[f"{CHAIN} {order}"] = chain_samples(
            of_order[order], order, sum(lengths), rng
        )
    spectra = {
        (name, k): spectrum(own, k) for name, own in given.items() for k in sizes
    }
    total = {k: spectrum(held_out, k) for k in sizes}
    found: dict[str, dict[int, list[float]]] = {
        name: {k: [] for k in sizes} for name in (SAMPLES, REAL, *given)
    }
    for _ in range(DRAWS):
        drawn = draw_segments(held_out, lengths, rng)
        for k in sizes:
            own = spectrum(drawn, k)
            rest = total[k] - own
            found[REAL][k].append(divergence(own, rest))
            for name in given:
                found[name][k].append(divergence(spectra[name, k], rest))
    divergences = {
        name: {k: _over_draws(values) for k, values in by.items()}
        for name, by in found.items()
    }
    contents = {SAMPLES: Content.of(samples), REAL: Content.of(held_out)}
    contents |= {
        name: Content.of(own) for name, own in given.items() if name != SAMPLES
    }
    return SamplesComparison(divergences, contents)


def _over_draws(draws: Sequence[float]) -> Estimate:
    values = np.array([one for one in draws if not math.isnan(one)])
    return percentile_interval(
        float(np.mean(values)) if len(values) else math.nan, values
    )


def draw_segments(
    contigs: Sequence[Codes], lengths: Sequence[int], rng: np.random.Generator
) -> list[Codes]:
    """Return non-overlapping segments of these lengths at random; a contig's end may cut a segment."""
    ends = np.cumsum([len(codes) for codes in contigs])
    order = rng.permutation(len(lengths))
    free = int(ends[-1]) - sum(lengths)
    gaps = np.sort(rng.integers(0, free + 1, len(lengths)))
    found, taken = [], 0
    for gap, number in zip(gaps.tolist(), order.tolist(), strict=True):
        start, stop = gap + taken, gap + taken + lengths[number]
        taken += lengths[number]
        for codes, end in zip(contigs, ends.tolist(), strict=True):
            first = end - len(codes)
            if start < end and stop > first:
                found.append(codes[max(start - first, 0) : stop - first])
    return found


def spectrum(sequences: Iterable[Codes], k: int) -> Counts:
    """Return counts (4 ** k,) of the k-mers of sequences, indexed by the k-mer as a number in base 4."""
    counts = np.zeros(4**k, np.int64)
    for codes in sequences:
        for start in range(0, len(codes) - k + 1, _SLICE):
            part = codes[start : start + _SLICE + k - 1]
            count = len(part) - k + 1
            runs, known = np.zeros(count, np.int64), np.ones(count, bool)
            for place in range(k):
                runs = 4 * runs + part[place : place + count]
                known &= part[place : place + count] != UNKNOWN
            counts += np.bincount(runs[known], minlength=4**k)
    return counts


def divergence(one: Counts, other: Counts) -> float:
    """Return the Jensen-Shannon divergence of two spectra in bits, from 0 to 1.

    NaN if one of them has no counts.
    """
    if not one.any() or not other.any():
        return math.nan
    p, q = one / one.sum(), other / other.sum()
    middle = (p + q) / 2
    return max(0.0, float(_relative(p, middle) + _relative(q, middle)) / 2)


def gc_of_windows(sequences: Sequence[Codes]) -> Floats:
    """Return the fraction of G and C in each window of `GC_WINDOW` bp without N.

    A shorter sequence is one window.
    """
    fractions: list[Floats] = [np.zeros(0)]
    for codes in sequences:
        width = min(GC_WINDOW, len(codes))
        whole = codes[: len(codes) // width * width].reshape(-1, width)
        known = whole[(whole != UNKNOWN).all(1)]
        fractions.append(((known == 1) | (known == 2)).mean(1))
    return np.concatenate(fractions)


def gc(sequences: Sequence[Codes]) -> float:
    """Return the fraction of G and C among all known bases."""
    counts = spectrum(sequences, 1)
    return float((counts[1] + counts[2]) / max(counts.sum(), 1))


def _relative(p: Floats, q: Floats) -> float:
    there = p > 0
    return float((p[there] * np.log2(p[there] / q[there])).sum())


def chain_samples(
    counts: Counts, order: int, bases: int, rng: np.random.Generator
) -> list[Codes]:
    """Sample `bases` bp from a Markov chain, given counts (4 ** (order + 1),) of (order + 1)-mers."""
    chances = counts.reshape(-1, 4) + _UNSEEN
    states = chances.sum(1) / chances.sum()
    limits = (chances / chances.sum(1, keepdims=True)).cumsum(1)[:, :3]
    number = -(-bases // LENGTH)
    state = rng.choice(len(states), number, p=states)
    codes = np.empty((number, LENGTH), np.uint8)
    for place in range(LENGTH):
        found = (rng.random(number)[:, None] > limits[state]).sum(1)
        codes[:, place] = found
        state = (4 * state + found) % len(states)
    return [
        row[: bases - start]
        for start, row in zip(range(0, bases, LENGTH), codes, strict=True)
    ]


def shortened_counts(counts: Counts, longest: int) -> Sequence[Counts]:
    """Return counts of k-mers for k from 1 to `longest`, computed from the counts of the longest ones."""
    found = [counts]
    for _ in range(longest - 1):
        found.append(found[-1].reshape(-1, 4).sum(1))
    return found[::-1]


def samples_figure(compared: SamplesComparison, path: Path) -> None:
    """Draw divergences against k on a logarithmic axis, and histograms of GC content."""
    with panels(1, 2, 5.4, 4.0) as (figure, (left, right)):
        left.set_yscale("log")
        ends: dict[str, float] = {}  # of chains, by order
        for name, by_k in compared.divergences.items():
            sizes = [*by_k]
            means, low, high = (
                np.maximum(values, _LEAST) for values in np.array([*by_k.values()]).T
            )
            if name.startswith(CHAIN):
                left.plot(
                    sizes, means, color=GRAY, linewidth=0.9, linestyle="--", zorder=1
                )
                ends[name.removeprefix(f"{CHAIN} ")] = float(np.log10(means[-1]))
                continue
            color = BLUE if name == SAMPLES else GREEN
            left.fill_between(sizes, low, high, color=color, alpha=0.2, linewidth=0)
            left.plot(
                sizes,
                means,
                color=color,
                marker="o",
                markersize=5,
                label=name,
                zorder=3,
            )
        bottom, top = np.log10(left.get_ylim())
        ranked = sorted(ends, key=ends.__getitem__)
        places = apart(
            np.array([ends[order] for order in ranked]), (top - bottom) * 0.035
        )
        for order, place in zip(ranked, places.tolist(), strict=True):
            left.annotate(
                order, (sizes[-1], 10**place), xytext=(6, 0), fontsize=8,
                textcoords="offset points", color=GRAY, va="center",
            )  # fmt: skip
        left.plot(
            [],
            [],
            color=GRAY,
            linewidth=0.9,
            linestyle="--",
            label="Markov chains, by order",
        )
        left.set(
            xlabel="k", ylabel="Jensen–Shannon divergence from held-out genome (bits)"
        )
        left.set_title("k-mers")
        left.legend(loc="lower right")
        for name, color in ((REAL, GREEN), (SAMPLES, BLUE)):
            content = compared.contents[name]
            right.hist(
                content.windows, bins=np.linspace(0, 1, 51).tolist(), density=True, color=color, alpha=0.45,
                label=f"{name}, {content.gc:.1%}",
            )  # fmt: skip
        right.set(
            xlabel=f"GC fraction of {GC_WINDOW} bp windows",
            ylabel="density",
            xlim=(0, 1),
        )
        right.set_title("GC")
        right.legend(loc="upper right")
        save_figure(figure, path)
