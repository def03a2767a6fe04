"""The demo genome: its files, its statistics, and the truth it claims, checked by other means."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pysam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from bigbird_dna.errors import UsageError
from bigbird_dna.genome.promoters import read_promoters
from bigbird_dna.simulate import (
    COMPLEMENT,
    CORE,
    CORE_FIDELITY,
    DECOYS,
    FACTORS,
    JITTER,
    OFFSETS,
    PRESENCE,
    PROMOTER_EVERY,
    TSS_SPREAD,
    Codes,
    Locus,
    Motif,
    contig_lengths,
    diverge,
    draw_promoter,
    find_sites,
    sample_chains,
    simulate,
)
from tests.golden.messages import fails
from tests.toys import MEGABASES, Demo, encode, lines, regex_sites, turned

SEEDS = st.integers(0, 2**32 - 1)
SPREADS = range(-TSS_SPREAD, TSS_SPREAD + 1)


def snapshot(directory: Path) -> dict[str, bytes]:
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


# Files


def test_the_seed_decides_every_byte_and_outputs_replace_older_ones(
    tmp_path: Path,
) -> None:
    simulate(tmp_path / "fresh", 5, 0.1)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes.txt").write_text("mine")
    simulate(tmp_path / "used", 6, 0.1)
    fresh, other = snapshot(tmp_path / "fresh"), snapshot(tmp_path / "used")
    assert fresh.keys() == other.keys() - {"notes.txt"}
    assert {name for name in fresh if fresh[name] == other[name]} <= {
        ".bigbird-dna.json",
        "tracks.tsv",
        "genome.fa.gz.fai",
    }
    simulate(tmp_path / "used", 5, 0.1)
    assert snapshot(tmp_path / "used") == fresh | {"notes.txt": b"mine"}


def test_a_failure_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pysam, "tabix_index", None)
    with pytest.raises(TypeError):
        simulate(tmp_path, 1, 0.1)
    assert snapshot(tmp_path) == {}


@pytest.mark.parametrize(
    ("name", "seed", "megabases"),
    [
        *(("demo", 1, size) for size in (0.0, 0.09, 100.1, float("nan"))),
        ("demo", -1, 0.1),
        ("file", 1, 0.1),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, name: str, seed: int, megabases: float
) -> None:
    (tmp_path / "file").write_text("")
    with fails(UsageError):
        simulate(tmp_path / name, seed, megabases)
    assert not (tmp_path / "demo").exists()


@given(st.floats(0.1, 100))
def test_contig_lengths_sum_to_the_size(megabases: float) -> None:
    lengths = contig_lengths(megabases)
    total = sum(lengths.values())
    assert abs(total - megabases * 1e6) <= 10
    assert len(set(lengths.values())) == len(lengths)
    assert all(0.1 <= lengths[name] / total <= 0.15 for name in ("demo5", "demo6"))


# Composition


@settings(max_examples=20, deadline=None)
@given(st.floats(0.34, 0.62), st.floats(0.2, 1.0), SEEDS)
def test_chains_have_about_the_gc_and_the_cpg_depletion_asked_for(
    gc_weight: float, cpg_odds: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    codes = sample_chains(np.full(200, gc_weight), cpg_odds, 400, rng)
    assert np.isin(codes, (1, 2)).mean() == pytest.approx(gc_weight, abs=0.05)
    observed = ((codes[:, :-1] == 1) & (codes[:, 1:] == 2)).mean()
    ratio = observed / ((codes == 1).mean() * (codes == 2).mean())
    # Odds are no ratio of observed to expected, but go with it; only the chain's normalization parts them.
    assert 0.7 * cpg_odds < ratio < 1.7 * cpg_odds


def test_the_genome_looks_like_one(demo: Demo) -> None:
    expected = contig_lengths(MEGABASES)
    assert {
        name: len(sequence) for name, sequence in demo.sequences.items()
    } == expected
    for name, sequence in demo.sequences.items():
        upper = sequence.upper()
        counts = Counter(upper)
        known = sum(counts[base] for base in "ACGT")
        assert set(counts) == set("ACGTN")
        assert 0.40 < (counts["C"] + counts["G"]) / known < 0.54
        assert (
            0.10 < sum(letter in "acgt" for letter in sequence) / len(sequence) < 0.30
        )
        islands = [
            (start, end) for start, end, kind, _ in demo.loci[name] if kind == "island"
        ]
        inside = "".join(upper[start:end] for start, end in islands)
        assert cpg_ratio(inside) > 0.7 > 0.6 > cpg_ratio(upper)
    segments = [
        np.isin(encode(sequence[start : start + 10_000]), (1, 2)).mean()
        for sequence in demo.sequences.values()
        for start in range(0, len(sequence) - 10_000, 10_000)
    ]
    # Independent bases would give a deviation of 0.005.
    assert np.std(segments) > 0.025
    assert np.corrcoef(segments[:-1], segments[1:])[0, 1] > 0.3


def cpg_ratio(sequence: str) -> float:
    return (
        len(sequence)
        * sequence.count("CG")
        / (sequence.count("C") * sequence.count("G"))
    )


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 0.25), SEEDS)
def test_repeats_diverge_at_the_rate_asked_for(divergence: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    consensus = rng.integers(4, size=20_000).astype(np.uint8)
    substituted = diverge(consensus, divergence, 0.0, rng)
    assert (substituted != consensus).mean() == pytest.approx(divergence, abs=0.02)
    shifted = diverge(consensus, divergence, 0.5, rng)
    assert abs(len(shifted) - len(consensus)) < 0.05 * len(consensus)


# Motifs and loci


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(CORE + FACTORS), st.data())
def test_sites_are_those_a_regular_expression_finds(
    motif: Motif, data: st.DataObject
) -> None:
    parts = data.draw(st.lists(st.text("ACGTN", max_size=12), min_size=1, max_size=6))
    joints = []
    for _ in parts:
        joint = site(motif, data)
        if data.draw(st.booleans()):
            spoilt = data.draw(st.integers(0, motif.width - 1))
            joint = (
                joint[:spoilt]
                + data.draw(st.sampled_from("ACGTN"))
                + joint[spoilt + 1 :]
            )
        joints.append(turned(joint) if data.draw(st.booleans()) else joint)
    sequence = "".join(part + joint for part, joint in zip(parts, joints, strict=True))
    forward, reverse = regex_sites(motif, sequence)
    assert find_sites(motif, encode(sequence)).tolist() == forward
    assert find_sites(motif, encode(sequence), reverse=True).tolist() == reverse


def site(motif: Motif, data: st.DataObject) -> str:
    options = [["ACGT"[code] for code in np.flatnonzero(row)] for row in motif.allowed]
    return "".join(data.draw(st.sampled_from(letters)) for letters in options)


def test_loci_never_overlap_and_stay_on_the_contig(demo: Demo) -> None:
    for name, sequence in demo.sequences.items():
        loci = [row for row in demo.loci[name] if ";anchor=" in row[2]]
        assert loci[0][0] >= 0 and loci[-1][1] <= len(sequence)
        assert all(a[1] <= b[0] for a, b in pairwise(loci))


@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_promoters_follow_the_grammar_and_decoys_break_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = {kind: np.zeros(len(CORE)) for kind in PRESENCE}
    kinds: Counter[str] = Counter()
    for _ in range(400):
        locus = draw_promoter(None, rng)
        present, in_grammar, _ = core_elements(locus)
        assert in_grammar
        kinds[locus.kind] += 1
        counts[locus.kind][present] += 1
    for kind, presence in PRESENCE.items():
        np.testing.assert_allclose(counts[kind] / kinds[kind], presence, atol=0.2)

    intact = 0
    for number in range(400):
        _, in_grammar, reverse = core_elements(draw_promoter(DECOYS[number % 3], rng))
        intact += in_grammar
        assert not all(reverse)
    # Elements in another order may happen to be at distances that promoters have.
    assert intact <= 2


def core_elements(locus: Locus) -> tuple[list[int], bool, list[bool]]:
    """The core elements of a locus, whether all of them are where the grammar has them, and their strands."""
    rows = [
        (CORE.index(motif), offset - locus.anchor, reverse)
        for motif, offset, reverse, _ in locus.sites
        if motif in CORE
    ]
    in_grammar = any(
        all(
            abs(offset - OFFSETS[index] - spread) <= JITTER[index] and not reverse
            for index, offset, reverse in rows
        )
        for spread in SPREADS
    )
    return (
        [index for index, _, _ in rows],
        in_grammar,
        [reverse for _, _, reverse in rows],
    )


# Promoters in the genome


def test_promoters_are_as_many_as_planned_on_either_strand(demo: Demo) -> None:
    loci = read_promoters(demo.directory / "promoters.sga")
    assert len(loci) == pytest.approx(MEGABASES * 1e6 / PROMOTER_EVERY, rel=0.02)
    assert 0.4 < np.mean([locus.strand == "+" for locus in loci]) < 0.6
    assert len({locus.name for locus in loci}) == len(loci)
    kinds = Counter(
        name.split("-")[0] for rows in demo.loci.values() for _, _, name, _ in rows
    )
    assert kinds["promoter"] == len(loci)
    assert 3 <= kinds["decoy"] / kinds["promoter"] <= 5
    matches, spreads = [], Counter[int]()
    for locus in loci:
        step = 1 if locus.strand == "+" else -1
        fractions = {}
        for spread in SPREADS:
            at = locus.position + step * (OFFSETS[3] + spread)  # of the INR
            first = at if step == 1 else at - 8
            around = demo.sequences[locus.contig][max(first, 0) : first + 9].upper()
            if len(around) == 9:
                codes = encode(around if step == 1 else turned(around))
                fractions[spread] = CORE[3].allowed[np.arange(9), codes].mean()
        best = max(fractions, key=lambda spread: fractions[spread])
        spreads[best] += 1
        matches.append(fractions[best])
    assert np.mean(matches) == pytest.approx(CORE_FIDELITY, abs=0.02)
    # About as many of each.
    assert len(spreads) == len(SPREADS)
    assert max(spreads.values()) < 2 * min(spreads.values())


def test_the_grammar_tells_promoters_where_5mers_fall_short(demo: Demo) -> None:
    scores = {
        name: [grammar_scores(encode(sequence), reverse) for reverse in (False, True)]
        for name, sequence in demo.sequences.items()
    }
    best: dict[str, list[float]] = {"promoter": [], "decoy": []}
    for name, rows in demo.loci.items():
        for start, end, kind, _ in rows:
            if kind.startswith(("promoter-", "decoy-")):
                both = [strand[start:end].max() for strand in scores[name]]
                best[kind.split("-")[0]].append(max(both))
    labels = [1] * len(best["promoter"]) + [0] * len(best["decoy"])
    assert roc_auc_score(labels, best["promoter"] + best["decoy"]) >= 0.95

    windows, labels, truth, train = promoter_windows(demo, scores)
    assert roc_auc_score(labels[~train], truth[~train]) >= 0.99
    numbers = np.lib.stride_tricks.sliding_window_view(
        np.stack(windows), 5, axis=1
    ) @ 4 ** np.arange(5)
    counts = np.stack([np.bincount(row, minlength=1024) for row in numbers]).astype(
        np.float64
    )
    counts = (counts - counts[train].mean(0)) / (counts[train].std(0) + 1e-6)
    model = LogisticRegression(C=1e-4, max_iter=200).fit(counts[train], labels[train])
    auroc = roc_auc_score(labels[~train], model.decision_function(counts[~train]))
    assert 0.60 < auroc < 0.82


def promoter_windows(
    demo: Demo, scores: dict[str, list[np.ndarray]]
) -> tuple[list[np.ndarray], ...]:
    """−300…+100 around every TSS, each with a window of about its GC that touches no promoter's."""
    rng = np.random.default_rng(0)
    windows, labels, truth, train = [], [], [], []
    loci = read_promoters(demo.directory / "promoters.sga")
    for name, sequence in demo.sequences.items():
        codes = encode(sequence)
        own = [locus for locus in loci if locus.contig == name]
        free = np.ones(len(codes), dtype=bool)
        for locus in own:
            free[max(0, locus.position - 300) : locus.position + 301] = False
        free &= codes < 4
        run = np.convolve(free, np.ones(400), mode="valid")
        places = rng.permutation(np.flatnonzero(run == 400)).tolist()
        gc = np.convolve(np.isin(codes, (1, 2)), np.ones(400), mode="valid")
        for locus in own:
            minus = locus.strand == "-"
            start = locus.position - (99 if minus else 300)
            if (
                start < 0
                or start + 400 > len(codes)
                or (codes[start : start + 400] == 4).any()
            ):
                continue
            other = next((p for p in places[:500] if abs(gc[p] - gc[start]) <= 6), None)
            if other is None:
                continue
            places.remove(other)
            for label, begin in ((1, start), (0, other)):
                window = codes[begin : begin + 400]
                windows.append(COMPLEMENT[window[::-1]] if minus else window)
                labels.append(label)
                truth.append(scores[name][int(minus)][begin + (99 if minus else 300)])
                train.append(name not in ("demo5", "demo6"))
    return windows, np.array(labels), np.array(truth), np.array(train)


# Tracks


def read_peaks(demo: Demo, track: str) -> dict[str, list[tuple[int, int]]]:
    peaks: dict[str, list[tuple[int, int]]] = {name: [] for name in demo.sequences}
    for row in lines(demo.directory / "peaks" / f"{track}.narrowPeak.gz"):
        assert len(row) == 10
        start, end, summit = int(row[1]), int(row[2]), int(row[9])
        assert 0 <= start < end <= len(demo.sequences[row[0]])
        assert 0 <= summit < end - start
        assert 0 <= int(row[4]) <= 1000
        peaks[row[0]].append((start, end))
    return peaks


def covered(length: int, intervals: list[tuple[int, int]]) -> np.ndarray:
    flags = np.zeros(length, dtype=bool)
    for start, end in intervals:
        flags[max(0, start) : max(0, end)] = True
    return flags


def test_peaks_are_sorted_disjoint_and_on_their_contigs(demo: Demo) -> None:
    header, *rows = (
        line.split("\t")
        for line in (demo.directory / "tracks.tsv").read_text().splitlines()
    )
    assert header == ["track", "group", "file", "description"]
    assert Counter(row[1] for row in rows) == {"TF": 7, "DHS": 2, "HM": 4}
    for track, _, file, _ in rows:
        assert (demo.directory / file).is_file()
        for intervals in read_peaks(demo, track).values():
            assert intervals
            assert all(a[1] < b[0] for a, b in pairwise(intervals))


@pytest.mark.parametrize("motif", FACTORS, ids=lambda motif: motif.name)
def test_factors_bind_their_sites_and_nothing_else(demo: Demo, motif: Motif) -> None:
    peaks = read_peaks(demo, motif.name)
    opened = [read_peaks(demo, track) for track in ("OPEN1", "OPEN2")]
    for name, sequence in demo.sequences.items():
        forward, reverse = regex_sites(motif, sequence.upper())
        middles = [start + motif.width // 2 for start in sorted(forward + reverse)]
        if motif.name == "DELTA":
            chromatin = covered(len(sequence), opened[0][name] + opened[1][name])
            middles = [middle for middle in middles if chromatin[middle]]
        bound = covered(len(sequence), peaks[name])
        assert all(bound[middle] for middle in middles)
        allowed = covered(
            len(sequence), [(middle - 140, middle + 141) for middle in middles]
        )
        assert not (bound & ~allowed).any()


def test_tracks_follow_their_elements(demo: Demo) -> None:
    """ACTIVE and SILENT need more than a window of 1,000 bp; open chromatin is at islands and enhancers."""
    kinds = {
        "ACTIVE": "activator",
        "SILENT": "silencer",
        "OPEN1": "enhancer-1",
        "OPEN2": "enhancer-2",
    }
    for track, kind in kinds.items():
        marked = read_peaks(demo, track)
        for name, sequence in demo.sequences.items():
            found = covered(len(sequence), marked[name])
            anchors = [
                anchor for place, anchor in anchored(demo, name) if place == kind
            ]
            if kind.startswith("enhancer"):
                islands = [
                    (start, end)
                    for start, end, what, _ in demo.loci[name]
                    if "island" in what
                ]
                assert islands and anchors
                least = covered(
                    len(sequence), islands + [(e - 180, e + 181) for e in anchors]
                )
                most = covered(
                    len(sequence), islands + [(e - 220, e + 222) for e in anchors]
                )
                assert found[least].all() and not found[~most].any()
            else:
                least, most = (
                    covered(
                        len(sequence),
                        [
                            (s + side - width, s + side + width)
                            for s in anchors
                            for side in (-2500, 2500)
                        ],
                    )
                    for width in (999, 1001)
                )
                assert found[least].all() and not found[~most].any()
                assert 0.1 < found.mean() < 0.6


def anchored(demo: Demo, name: str) -> list[tuple[str, int]]:
    """Kind and anchor of the loci of a contig that have one."""
    return [
        (what.split(";")[0], int(what.split("=")[1]))
        for _, _, what, _ in demo.loci[name]
        if ";anchor=" in what
    ]


# Variants


def test_variants_do_what_they_claim(demo: Demo) -> None:
    with pysam.VariantFile(str(demo.directory / "variants.vcf.gz")) as file:
        records = list(file)
    assert len(records) > 30 * MEGABASES
    opened = {
        name: covered(
            len(sequence),
            read_peaks(demo, "OPEN1")[name] + read_peaks(demo, "OPEN2")[name],
        )
        for name, sequence in demo.sequences.items()
    }
    seen: Counter[tuple[str, bool]] = Counter()
    for record in records:
        sequence = demo.sequences[record.chrom].upper()
        reference, (alternative,) = record.ref, record.alts
        start = record.pos - 1
        assert sequence[start : start + len(reference)] == reference
        if len(reference) != len(alternative):
            assert reference[0] == alternative[0]
            assert reference[-1] != alternative[-1], "indels are left-aligned"
        left = sequence[start - 200 : start]
        right = sequence[start + len(reference) : start + len(reference) + 200]
        for motif in FACTORS:
            before, after = (
                sum(map(len, regex_sites(motif, left + allele + right)))
                for allele in (reference, alternative)
            )
            mine = motif.name == record.info["TRACK"]
            change = (
                {"loss": -1, "gain": 1, "none": 0}[record.info["EFFECT"]] if mine else 0
            )
            if mine and record.info["CATEGORY"] == "closed_chromatin":
                assert not opened[record.chrom][
                    record.info["SITE"] - 1 + motif.width // 2
                ]
                change = -1
            assert after - before == change
            if mine and change:
                assert {before, after} == {0, 1}
        seen[record.info["EFFECT"], len(reference) != len(alternative)] += 1
    assert all(seen[effect, False] > 5 for effect in ("loss", "gain", "none"))
    assert seen["loss", True] > 1
    assert seen["none", True] > 1
    share = (seen["none", False] + seen["none", True]) / len(records)
    assert 0.4 < share < 0.65


# The true grammar as a scorer: what a perfect model of the demo's promoters would know.

BACKGROUND = np.array([0.28, 0.22, 0.22, 0.28])
MARGIN = 150  # bp beyond the sequence, where no element is


def grammar_scores(codes: Codes, reverse: bool = False) -> NDArray[np.float64]:
    """(length,) scores in bits of every position as the TSS of a promoter on the strand asked for.

    Elements that would leave the sequence count as absent.
    """
    if reverse:
        return grammar_scores(COMPLEMENT[codes[::-1]])[::-1]
    size = len(codes) + 2 * TSS_SPREAD
    padded = np.pad(codes, MARGIN + TSS_SPREAD, constant_values=4)
    ratios = []
    for motif, offset, spread in zip(
        CORE, OFFSETS.tolist(), JITTER.tolist(), strict=True
    ):
        table = np.zeros((motif.width, 5))  # likelihood ratios; 0 of N
        match, other = motif.allowed, ~motif.allowed
        table[:, :4] = CORE_FIDELITY * match / match.sum(axis=1, keepdims=True)
        rest = (1 - CORE_FIDELITY) * other / other.sum(axis=1, keepdims=True)
        table[:, :4] = (table[:, :4] + rest) / BACKGROUND
        ends = len(padded) - motif.width + 1
        ratio = np.prod(
            [table[c][padded[c : c + ends]] for c in range(motif.width)], axis=0
        )
        allowed = range(MARGIN + offset - spread, MARGIN + offset + spread + 1)
        ratios.append(
            np.mean([ratio[start : start + size] for start in allowed], axis=0)
        )
    total = sum(
        share
        * np.prod(
            [1 - p + p * ratio for p, ratio in zip(presence, ratios, strict=True)],
            axis=0,
        )
        for share, presence in zip(
            (0.5, 0.5),
            PRESENCE.values(),
            strict=True,
        )
    )
    spread = np.ones(len(SPREADS)) / len(SPREADS)
    mean = np.convolve(total, spread, mode="valid")
    return np.asarray(np.log2(np.maximum(mean, 1e-30)))
