"""The demo genome: its files, its statistics, and the truth it claims, checked by other means."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pysam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import UsageError
from bigbird_dna.simulate.motifs import (
    COMPLEMENT,
    CORE,
    MOTIFS,
    Motif,
    Parameters,
    contig_lengths,
    find_sites,
    weights,
)
from bigbird_dna.simulate.plan import gaps, place
from bigbird_dna.simulate.promoters import OFFSETS, PRESENCE, decoys, draw_cores, jitter
from bigbird_dna.simulate.sequence import chain, diverge, sample_chains
from bigbird_dna.simulate.writing import simulate
from tests.golden.messages import fails
from tests.simulate.oracle import grammar_scores
from tests.toys import MEGABASES, Demo, encode, regex_sites, turned

SEEDS = st.integers(0, 2**32 - 1)


def snapshot(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


# Files


def test_the_seed_decides_every_byte(tmp_path: Path) -> None:
    for name, seed in (("one", 5), ("two", 5), ("other", 6)):
        simulate(tmp_path / name, seed, megabases=0.1)
    one, two, other = (snapshot(tmp_path / name) for name in ("one", "two", "other"))
    assert one == two
    assert one.keys() == other.keys()
    assert {name for name in one if one[name] == other[name]} <= {
        "tracks.tsv", "genome.fa.gz.fai"
    }  # fmt: skip


def test_outputs_replace_older_ones_and_leave_other_files(tmp_path: Path) -> None:
    simulate(tmp_path / "fresh", 1, 0.1)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes.txt").write_text("mine")
    simulate(tmp_path / "used", 2, 0.1)
    simulate(tmp_path / "used", 1, 0.1)
    used = snapshot(tmp_path / "used")
    assert used.pop("notes.txt") == b"mine"
    assert used == snapshot(tmp_path / "fresh")


def test_a_failure_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **options: object) -> None:
        raise RuntimeError("disk full")

    monkeypatch.setattr(pysam, "tabix_index", fail)
    with pytest.raises(RuntimeError):
        simulate(tmp_path, 1, 0.1)
    assert snapshot(tmp_path) == {}


@pytest.mark.parametrize("megabases", [0.0, 0.09, 1000.1, float("nan")])
def test_sizes_out_of_range_are_refused(tmp_path: Path, megabases: float) -> None:
    with fails(UsageError):
        simulate(tmp_path / "demo", 1, megabases)
    assert not (tmp_path / "demo").exists()


def test_bad_seed_and_bad_directory_are_refused(tmp_path: Path) -> None:
    with fails(UsageError):
        simulate(tmp_path, -1, 0.1)
    (tmp_path / "file").write_text("")
    with fails(UsageError):
        simulate(tmp_path / "file", 1, 0.1)


def test_the_command_reports_bad_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bigbird_dna.cli.main import main

    monkeypatch.setattr(sys, "argv", ["bigbird-dna", "simulate", str(tmp_path), "--megabases", "0"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert capsys.readouterr().err == "bigbird-dna: error: megabases 0 is outside 0.1 to 1000\n"


@given(st.floats(0.1, 1000))
def test_contig_lengths_sum_to_the_size(megabases: float) -> None:
    lengths = contig_lengths(megabases, Parameters())
    total = sum(lengths.values())
    assert abs(total - megabases * 1e6) <= 10
    assert len(set(lengths.values())) == len(lengths)
    assert all(0.1 <= lengths[name] / total <= 0.15 for name in ("demo5", "demo6"))


def test_sequences_have_the_lengths_that_the_truth_names(demo: Demo) -> None:
    expected = contig_lengths(MEGABASES, Parameters())
    assert {name: len(sequence) for name, sequence in demo.sequences.items()} == expected
    assert {name: entry["length"] for name, entry in demo.truth["contigs"].items()} == expected


# Composition


@settings(max_examples=20, deadline=None)
@given(st.floats(0.34, 0.62), st.floats(0.2, 1.0), SEEDS)
def test_chains_have_the_gc_and_the_cpg_depletion_asked_for(gc: float, cpg_odds: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = chain(gc, cpg_odds)
    codes = sample_chains(table[None], np.zeros(200, dtype=np.int64), 400, rng)
    assert np.isin(codes, (1, 2)).mean() == pytest.approx(gc, abs=0.015)
    observed = ((codes[:, :-1] == 1) & (codes[:, 1:] == 2)).mean()
    ratio = observed / ((codes == 1).mean() * (codes == 2).mean())
    # Odds are no ratio of observed to expected, but go with it; only the chain's normalisation parts them.
    assert 0.7 * cpg_odds < ratio < 1.7 * cpg_odds


def test_the_genome_looks_like_one(demo: Demo) -> None:
    for name, sequence in demo.sequences.items():
        upper = sequence.upper()
        counts = Counter(upper)
        known = sum(counts[base] for base in "ACGT")
        assert set(counts) == set("ACGTN")
        assert 0.40 < (counts["C"] + counts["G"]) / known < 0.54
        assert 0.10 < sum(letter in "acgt" for letter in sequence) / len(sequence) < 0.30
        islands = [(start, end) for start, end, kind, _ in demo.loci[name] if kind == "island"]
        inside = "".join(upper[start:end] for start, end in islands)
        assert cpg_ratio(inside) > 0.7 > 0.6 > cpg_ratio(upper)


def cpg_ratio(sequence: str) -> float:
    return len(sequence) * sequence.count("CG") / (sequence.count("C") * sequence.count("G"))


def test_gc_varies_in_long_stretches(demo: Demo) -> None:
    stretches = [
        np.isin(encode(sequence[start : start + 10_000]), (1, 2)).mean()
        for sequence in demo.sequences.values()
        for start in range(0, len(sequence) - 10_000, 10_000)
    ]
    # Independent bases would give a deviation of 0.005.
    assert np.std(stretches) > 0.025
    assert np.corrcoef(stretches[:-1], stretches[1:])[0, 1] > 0.3


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
@given(st.sampled_from(MOTIFS), st.data())
def test_sites_are_those_a_regular_expression_finds(motif: Motif, data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.text("ACGTN", max_size=12), min_size=1, max_size=6))
    joints = []
    for _ in pieces:
        joint = site(motif, data)
        if data.draw(st.booleans()):
            spoilt = data.draw(st.integers(0, motif.width - 1))
            joint = joint[:spoilt] + data.draw(st.sampled_from("ACGTN")) + joint[spoilt + 1 :]
        joints.append(turned(joint) if data.draw(st.booleans()) else joint)
    sequence = "".join(piece + joint for piece, joint in zip(pieces, joints, strict=True))
    forward, reverse = regex_sites(motif, sequence)
    assert find_sites(motif, encode(sequence)).tolist() == forward
    assert find_sites(motif, encode(sequence), reverse=True).tolist() == reverse


def site(motif: Motif, data: st.DataObject) -> str:
    options = [["ACGT"[code] for code in np.flatnonzero(row)] for row in motif.allowed]
    return "".join(data.draw(st.sampled_from(letters)) for letters in options)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(0, 500), SEEDS)
def test_loci_never_overlap_and_stay_on_the_contig(widths: list[int], spare: int, seed: int) -> None:
    length = sum(widths) + spare
    plan = gaps(np.array(widths))
    placed = place(plan, length, np.random.default_rng(seed))
    assert sorted((placed.end - placed.start).tolist()) == sorted(widths)
    assert placed.start[0] >= 0
    assert placed.end[-1] <= length
    assert (placed.start[1:] >= placed.end[:-1]).all()
    with fails(ValueError):
        place(plan, sum(widths) - 1, np.random.default_rng(seed))


@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_promoters_follow_the_grammar_and_decoys_break_it(seed: int) -> None:
    parameters = Parameters()
    cores = draw_cores(400, parameters, np.random.default_rng(seed))
    assert (abs(cores.offset - OFFSETS) <= jitter(parameters)).all()
    assert not cores.reverse.any()
    for dpe, presence in enumerate(PRESENCE.values()):
        shares = cores.present[cores.dpe == bool(dpe)].mean(axis=0)
        np.testing.assert_allclose(shares, presence, atol=0.2)

    plan = decoys(400, parameters, np.random.default_rng(seed))
    for locus in range(400):
        mine = np.flatnonzero(plan.locus == locus)
        offset = plan.offset[mine] - plan.anchor[locus]
        motif = plan.motif[mine]
        fits = (abs(offset - OFFSETS[motif]) <= jitter(parameters)[motif]) & ~plan.reverse[mine]
        assert len(mine) < 2 or not fits.all()
        assert not plan.reverse[mine].all()


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.integers(0, 299))
def test_grammar_scores_are_the_likelihood_ratio(seed: int, position: int) -> None:
    """Against a sum written out for one position."""
    parameters = Parameters()
    rng = np.random.default_rng(seed)
    codes = rng.integers(4, size=300).astype(np.uint8)
    background = np.array([0.28, 0.22, 0.22, 0.28])
    total = 0.0
    for presence in PRESENCE.values():
        product = 0.5
        for chance, motif, place_, spread in zip(presence, CORE, OFFSETS, jitter(parameters), strict=True):
            table = weights(motif, parameters) / background
            ratios = []
            for start in range(position + place_ - spread, position + place_ + spread + 1):
                fits = 0 <= start <= len(codes) - motif.width
                bases = codes[start : start + motif.width] if fits else []
                ratio = np.prod([table[i, base] for i, base in enumerate(bases)])
                ratios.append(ratio if fits else 0.0)
            product *= 1 - chance + chance * np.mean(ratios)
        total += product
    expected = np.log2(max(total, 1e-30))
    assert grammar_scores(codes, parameters)[position] == pytest.approx(expected, abs=1e-3)
    mirrored = grammar_scores(COMPLEMENT[codes[::-1]], parameters, reverse=True)  # same strand again
    assert mirrored[299 - position] == pytest.approx(expected, abs=1e-3)
