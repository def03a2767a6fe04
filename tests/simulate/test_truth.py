"""What the simulated genome holds: promoters, tracks and variants, each checked against the sequence."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pysam
import pytest

from bigbird_dna.genome.promoters import read_promoters
from bigbird_dna.simulate.motifs import COMPLEMENT, CORE, FACTORS, Motif, Parameters
from tests.simulate.oracle import grammar_scores
from tests.toys import MEGABASES, Demo, encode, lines, regex_sites, turned

# Promoters in the genome


def test_promoters_are_as_many_as_planned_on_either_strand(demo: Demo) -> None:
    loci = read_promoters(demo.directory / "promoters.sga")
    assert len(loci) == pytest.approx(MEGABASES * 1e6 / Parameters().promoter_every, rel=0.02)
    assert 0.4 < np.mean([locus.strand == "+" for locus in loci]) < 0.6
    assert len({locus.name for locus in loci}) == len(loci)
    kinds = Counter(name.split("-")[0] for rows in demo.loci.values() for _, _, name, _ in rows)
    assert kinds["promoter"] == len(loci)
    assert 3 <= kinds["decoy"] / kinds["promoter"] <= 5
    matches = []
    for locus in loci:
        around = demo.sequences[locus.contig][locus.position - 3 : locus.position + 6].upper()
        if locus.strand == "-":
            around = turned(demo.sequences[locus.contig][locus.position - 5 : locus.position + 4].upper())
        if len(around) == 9:
            matches.append(CORE[3].allowed[np.arange(9), encode(around)].mean())
    assert np.mean(matches) == pytest.approx(Parameters().core_fidelity, abs=0.02)


def test_the_grammar_tells_promoters_where_5mers_fall_short(demo: Demo) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    scores = {
        name: [grammar_scores(encode(sequence), Parameters(), reverse) for reverse in (False, True)]
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
    counts = np.stack([five_mers(window) for window in windows])
    counts = (counts - counts[train].mean(0)) / (counts[train].std(0) + 1e-6)
    model = LogisticRegression(C=1e-4, max_iter=200).fit(counts[train], labels[train])
    auroc = roc_auc_score(labels[~train], model.decision_function(counts[~train]))
    assert 0.60 < auroc < 0.82


def promoter_windows(demo: Demo, scores: dict[str, list[np.ndarray]]) -> tuple[list[np.ndarray], ...]:
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
            if start < 0 or start + 400 > len(codes) or (codes[start : start + 400] == 4).any():
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


def five_mers(window: np.ndarray) -> np.ndarray:
    index = sum(window[i : len(window) - 4 + i].astype(np.int64) * 4 ** (4 - i) for i in range(5))
    return np.bincount(index, minlength=1024).astype(np.float64)


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
    header, *rows = (line.split("\t") for line in (demo.directory / "tracks.tsv").read_text().splitlines())
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
        allowed = covered(len(sequence), [(middle - 140, middle + 141) for middle in middles])
        assert not (bound & ~allowed).any()


def test_two_tracks_follow_elements_beyond_a_kilobase(demo: Demo) -> None:
    """The rules of ACTIVE and SILENT, written out; both need more than a 1,000-bp window shows."""
    for track, kind in (("ACTIVE", "activator"), ("SILENT", "silencer")):
        marked = read_peaks(demo, track)
        for name, sequence in demo.sequences.items():
            anchors = [anchor for place, anchor in anchored(demo, name) if place == kind]
            shores = [(s - 3500, s - 1500) for s in anchors]
            shores += [(s + 1500, s + 3500) for s in anchors]
            expected = covered(len(sequence), shores)
            assert (covered(len(sequence), marked[name]) == expected).all()
            assert 0.1 < expected.mean() < 0.6


def test_open_chromatin_is_at_islands_and_enhancers(demo: Demo) -> None:
    for track, kind in (("OPEN1", "enhancer-1"), ("OPEN2", "enhancer-2")):
        marked = read_peaks(demo, track)
        for name, sequence in demo.sequences.items():
            islands = [(start, end) for start, end, what, _ in demo.loci[name] if what.startswith("island")]
            enhancers = [anchor for place, anchor in anchored(demo, name) if place == kind]
            assert islands and enhancers
            found = covered(len(sequence), marked[name])
            least = covered(len(sequence), islands + [(e - 180, e + 181) for e in enhancers])
            most = covered(len(sequence), islands + [(e - 220, e + 222) for e in enhancers])
            assert found[least].all() and not found[~most].any()


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
    assert len(records) > 60 * MEGABASES
    opened = {
        name: covered(len(sequence), read_peaks(demo, "OPEN1")[name] + read_peaks(demo, "OPEN2")[name])
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
            change = {"loss": -1, "gain": 1, "none": 0}[record.info["EFFECT"]] if mine else 0
            if mine and record.info["PLACE"] == "closed":
                assert not opened[record.chrom][record.info["SITE"] - 1 + motif.width // 2]
                change = -1
            assert after - before == change
            if mine and change:
                assert {before, after} == {0, 1}
        seen[record.info["EFFECT"], len(reference) != len(alternative)] += 1
    assert all(seen[effect, False] > 5 for effect in ("loss", "gain", "none"))
    assert seen["loss", True] > 2
    assert seen["none", True] > 2
    share = (seen["none", False] + seen["none", True]) / len(records)
    assert 0.4 < share < 0.65
