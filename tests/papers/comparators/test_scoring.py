"""Comparators that score windows: known matrices, against Biopython's own scores, and gapped k-mers."""

import sys
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from Bio import motifs as bio
from Bio.motifs import jaspar
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from bigbird_dna.baselines.kmers import base_codes
from bigbird_dna.baselines.windows import TextWindows
from bigbird_dna.calibration.fitting import smoothed
from bigbird_dna.config.reading import load_config
from bigbird_dna.data.chromatin import prepare_data
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.motifs import (
    KnownMotif,
    factor_key,
    jaspar_motifs,
    motifs_of_factor,
    read_motifs,
)
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.papers.comparators import motifs
from bigbird_dna.papers.comparators.fitting import fit_tracks
from bigbird_dna.papers.comparators.gkm_svm import GappedKmers, GkmSvm, fit_svms
from bigbird_dna.papers.comparators.interface import fit_sigmoid
from bigbird_dna.papers.comparators.motifs import MotifScan, best_matches
from tests.calibration.sources import mixture
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.papers.comparators.test_known_differences import planted_motif
from tests.toys import random_dna

FILE = """\
>MA0001.1 ABC1
A  [ 8 0 1 5 ]
C  [ 1 9 1 5 ]
G  [ 1 1 0 5 ]
T  [ 0 0 8 5 ]
>MA0002.1\tFOS::JUN
1 2 3 4 5
5 4 3 2 1
0 0 9 0 0
1 1 1 1 1
"""
BACKGROUND = [0.3, 0.2, 0.2, 0.3]


@pytest.fixture
def known(tmp_path: Path) -> tuple[KnownMotif, ...]:
    (tmp_path / "motifs.txt").write_text(FILE)
    return read_motifs(tmp_path / "motifs.txt")


def by_biopython(path: Path, sequence: str) -> list[float]:
    """The best score of each matrix in a sequence, on either strand, by Biopython alone."""
    found = []
    with path.open() as stream:
        for motif in bio.parse(stream, "jaspar"):
            motif.background = dict(zip("ACGT", BACKGROUND, strict=True))
            motif.pseudocounts = jaspar.calculate_pseudocounts(motif)
            strands = motif.pssm, motif.pssm.reverse_complement()
            scores = np.concatenate(
                [np.atleast_1d(strand.calculate(sequence)) for strand in strands]
            )
            # Where an N is there is no score.
            found.append(
                np.nanmax(scores) if np.isfinite(scores).any() else motif.pssm.min
            )
    return found


def test_scores_are_those_of_biopython(
    known: tuple[KnownMotif, ...], tmp_path: Path
) -> None:
    assert [(one.factor, one.matrix) for one in known] == [
        ("ABC1", "MA0001.1"),
        ("FOS::JUN", "MA0002.1"),
    ]
    assert known[0].counts.tolist()[0] == [8, 1, 1, 0] and known[1].counts.shape == (
        5,
        4,
    )
    sequences = [random_dna(60, seed) for seed in range(20)]
    sequences += ["N" * 60, "ACGT" + "N" * 56, "ACNGTACNGATC" * 5]
    found = best_matches(
        base_codes(sequences), [one.log_odds(BACKGROUND) for one in known]
    )
    expected = [
        by_biopython(tmp_path / "motifs.txt", sequence) for sequence in sequences
    ]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    turned = [reverse_complement(sequence) for sequence in sequences]
    again = best_matches(
        base_codes(turned), [one.log_odds(BACKGROUND) for one in known]
    )
    np.testing.assert_allclose(again, found, atol=1e-5)
    # A matrix that is longer than the window lies nowhere.
    lowest = [one.log_odds(BACKGROUND).min(axis=1).sum() for one in known]
    (short,) = best_matches(
        base_codes(["ACGT"]), [one.log_odds(BACKGROUND) for one in known]
    )
    assert short[1] == pytest.approx(lowest[1], abs=1e-5) and short[0] > lowest[0]


def test_the_scan_ranks_windows_by_their_best_match(
    known: tuple[KnownMotif, ...],
) -> None:
    rng = np.random.default_rng(0)
    texts = [random_dna(40, seed) for seed in range(60)]
    labels = np.array([[rng.random() < 0.3, "AC" in text] for text in texts], int)
    poor = KnownMotif("ABC1", "poor", np.ones((4, 4)) + np.eye(4) * 0.01)
    # The poor matrix comes first: the better one on the training windows counts.
    model = MotifScan([(), (poor, known[0])]).fit(
        TextWindows(texts, labels), TextWindows([], np.zeros((0, 2)))
    )
    assert model.covered(2).tolist() == [False, True]
    assert model.chosen()["matrices"] == [None, "MA0001.1"]
    background = list(model.chosen()["background"].values())
    assert sum(background) == pytest.approx(1) and background[0] == background[3]
    found = model.predict(texts)
    assert np.isnan(found[:, 0]).all()
    scores = best_matches(base_codes(texts), [known[0].log_odds(background)])[:, 0]
    rising = np.argsort(scores, kind="stable")
    higher, likelier = np.diff(scores[rising]), np.diff(found[rising, 1])
    assert (likelier >= 0).all() and (
        likelier[higher > 1e-6] > 0
    ).all()  # float32's last bit aside


def test_tracks_of_one_factor_share_a_scan_but_not_their_choice(
    known: tuple[KnownMotif, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [random_dna(40, seed) for seed in range(60)]
    labels = np.array([["AC" in text, text.count("CGA") > 0] for text in texts], int)
    windows = TextWindows(texts, labels)
    alone = [
        MotifScan([known])
        .fit(TextWindows(texts, labels[:, one]), windows)
        .predict(texts)[:, 0]
        for one in range(2)
    ]
    scanned = []
    original = motifs.best_matches
    monkeypatch.setattr(
        motifs,
        "best_matches",
        lambda codes, own: scanned.append(len(own)) or original(codes, own),
    )
    together = MotifScan([known, (), known]).fit(
        TextWindows(texts, np.insert(labels, 1, 0, axis=1)), windows
    )
    assert scanned == [2]
    found = together.predict(texts)
    assert np.array_equal(found[:, [0, 2]].T, alone) and np.isnan(found[:, 1]).all()


def test_names_of_factors() -> None:
    names = (
        "Abf1",
        "c-Jun",
        "eGFP-JunB",
        "CTCF_(C-20)",
        "RORA(var.2)",
        "NKX2-5",
        "PU.1",
        "()",
    )
    expected = ["ABF1", "JUN", "JUNB", "CTCF", "RORA", "NKX25", "SPI1", ""]
    assert [*map(factor_key, names)] == expected


def test_a_factor_has_its_own_matrices_or_those_of_its_complexes(
    known: tuple[KnownMotif, ...],
) -> None:
    own = KnownMotif("Jun", "own", known[0].counts)
    assert motifs_of_factor("JUN", known) == (known[1],)
    assert motifs_of_factor("c-Jun", (*known, own)) == (own,)
    assert motifs_of_factor("Pol2", known) == motifs_of_factor("-", known) == ()


@pytest.mark.parametrize(
    "text",
    [
        *("", "hello\n", ">MA1 X\nA [ 1 ]\nC [ 1 ]\nG [ 1 ]\n"),
        *(
            f">MA1 X\nA [ {counts} ]\nC [ {others} ]\nG [ {others} ]\nT [ {others} ]\n"
            for counts, others in (
                ("1 2", 1),
                (0, 0),
                ("nan", 0),
                (-1, 0),
                ("1 x", "1 1"),
            )
        ),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "motifs.txt").write_text(text)
    with fails(DataError):
        read_motifs(tmp_path / "motifs.txt")


def test_jaspar_s_matrices_are_those_of_their_factors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched, fails(UsageError):
        patched.setitem(sys.modules, "pyjaspar", None)
        jaspar_motifs("fungi")
    pytest.importorskip("pyjaspar", reason="pip install 'bigbird-dna[motifs]'")
    (motif,) = motifs_of_factor("Ume6", jaspar_motifs("fungi"))
    assert motif.matrix == "MA0412.3"
    assert "TAGCCGCCGA" in "".join("ACGT"[base] for base in motif.counts.argmax(axis=1))


def test_ninety_of_the_yeast_factors_have_a_matrix(shared_data: Path) -> None:
    pytest.importorskip("pyjaspar")
    names = (path.name for path in (shared_data / "yeast/peaks").iterdir())
    factors = {name.split("_")[1 if name[0].isdigit() else 0].upper() for name in names}
    known = jaspar_motifs("fungi")
    assert len(factors) == 381
    assert sum(bool(motifs_of_factor(factor, known)) for factor in factors) == 90


KNOWN = {
    "RAP1": 0.95,
    "UME6": 0.93,
    "SKO1": 0.91,
    "CBF1": 0.90,
    "ABF1": 0.90,
    "REB1": 0.77,
    "FKH1": 0.77,
}


@pytest.mark.slow
def test_the_scan_reaches_what_it_reaches_elsewhere(
    shared_data: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pyjaspar")
    known = jaspar_motifs("fungi")
    (tmp_path / "peaks").mkdir()
    for path in (shared_data / "yeast/peaks").glob("*_CX.bed.gz"):
        if motifs_of_factor(path.name.split("_")[0], known):
            (tmp_path / "peaks" / path.name).symlink_to(path)
    reference = tmp_path / "reference.fa.gz"
    prepare_reference(next((shared_data / "yeast").glob("*.fa.gz")), reference)
    changed = (
        "min_positives_train=20",
        "min_positives_heldout=1",
        f"tracks={tmp_path / 'peaks'}",
    )
    config = load_config(
        REPOSITORY / "workflow/config/yeast_factors.yaml",
        [f"chromatin.data.{one}" for one in changed],
    )
    prepare_data(config, reference, tmp_path / "data", tracks=tmp_path / "peaks")
    files = (tmp_path / "data", reference, tmp_path / "out", tmp_path / "checkpoints")
    fit_tracks(config, "motifs", *files, taxon="fungi")
    values = np.load(tmp_path / "out/predictions.npy").astype(float)
    labels = PackedLabels.load(tmp_path / "out/labels.npz").rows()
    targets = pd.read_csv(tmp_path / "out/tracks.tsv", sep="\t")["target"].str.upper()
    enough = labels.sum(axis=0) >= 20
    figures = {
        name: auroc(labels[:, one], values[:, one]).value
        for one, name in enumerate(targets)
        if enough[one]
    }
    assert {name: figures[name] for name in KNOWN} == pytest.approx(KNOWN, abs=0.03)
    assert 40 <= len(figures) <= 60
    assert float(np.median(list(figures.values()))) == pytest.approx(0.68, abs=0.03)


# Gapped k-mers without a list of them, against a list of them; and the machine that learns from them


def listed(sequence: str, length: int, known: int) -> Counter[str]:
    """Every gapped k-mer of a sequence, with how often it occurs."""
    found: Counter[str] = Counter()
    for start in range(len(sequence) - length + 1):
        word = sequence[start : start + length]
        if "N" not in word:
            for places in combinations(range(length), known):
                found[
                    "".join(word[i] if i in places else "." for i in range(length))
                ] += 1
    return found


def table(sequences: list[str], length: int, known: int) -> np.ndarray:
    """Counts (N, gapped k-mers) of both strands."""
    counts = [
        listed(one, length, known) + listed(reverse_complement(one), length, known)
        for one in sequences
    ]
    names = sorted(set().union(*counts))
    return np.array([[one[name] for name in names] for one in counts], float)


SEQUENCES = [random_dna(40, seed) for seed in range(6)] + [
    "ACGTNACGTTNNGATTACA" + "N" * 21,
    "N" * 40,
]


SIZES = [
    (GappedKmers(*sizes), SEQUENCES)
    for sizes in ((1, 1), (3, 2), (4, 4), (5, 2), (6, 4))
]
# Those that are used, on a pair of windows.
SIZES.append((GkmSvm().kmers, [SEQUENCES[0], SEQUENCES[0][:15] + SEQUENCES[1][15:]]))


@pytest.mark.parametrize(
    ("kmers", "sequences"), SIZES, ids=["1-1", "3-2", "4-4", "5-2", "6-4", "11-7"]
)
def test_the_kernel_is_that_of_all_gapped_kmers(
    kmers: GappedKmers, sequences: list[str]
) -> None:
    counts = kmers.count(sequences, both_strands=True)
    features = np.stack([kmers.of_words(row) for row in counts.toarray()])
    assert features.shape == (len(sequences), kmers.features)
    explicit = table(sequences, kmers.length, kmers.known)
    np.testing.assert_allclose(
        features @ features.T, explicit @ explicit.T, rtol=1e-9, atol=1e-8
    )
    norms = np.sqrt((explicit**2).sum(axis=1))
    np.testing.assert_allclose(
        kmers.norms(counts), np.where(norms > 0, norms, 1), rtol=1e-12
    )


def test_strands() -> None:
    kmers = GappedKmers(6, 4)
    turned = [reverse_complement(one) for one in SEQUENCES]
    both = [kmers.count(some, both_strands=True) for some in (SEQUENCES, turned)]
    assert (both[0] != both[1]).nnz == 0
    one = [kmers.count(some, both_strands=False) for some in (SEQUENCES, turned)]
    assert (one[0] != one[1]).nnz > 0
    assert (one[0] + one[1] != both[0]).nnz == 0


def test_the_machine_is_that_of_scikit_learn_on_the_list() -> None:
    sequences = [random_dna(60, seed) for seed in range(40)]
    labels = np.array([sequence.count("GA") > 3 for sequence in sequences], np.uint8)
    assert 10 < labels.sum() < 30
    kmers = GappedKmers(5, 3)
    counts = kmers.count(sequences, both_strands=True)
    norms = kmers.norms(counts)
    explicit = table(sequences, 5, 3)
    explicit /= np.linalg.norm(explicit, axis=1, keepdims=True)
    strengths = (0.1, 10.0)
    machines = fit_svms(kmers, counts, norms, labels, strengths)
    for strength, machine in zip(strengths, machines, strict=True):
        # Its offset is penalized: by next to nothing if it stands for a thousand times as much.
        peer = LinearSVC(
            C=strength, dual=False, tol=1e-9, max_iter=100_000, intercept_scaling=1000
        )
        expected = peer.fit(explicit, labels).decision_function(explicit)
        np.testing.assert_allclose(machine.scores(counts, norms), expected, atol=2e-3)


def test_labels_of_one_class_are_left_out_and_others_found() -> None:
    task = planted_motif((120, 60, 60))
    labels = np.stack([np.zeros(120, int), np.arange(120) % 2], axis=1)
    texts = task.train.sequences(np.arange(120))
    held_out = TextWindows(
        task.valid.sequences(np.arange(60)), np.stack([np.arange(60) % 2] * 2, axis=1)
    )
    model = GkmSvm(6, 5).fit(TextWindows(texts, labels), held_out)
    assert model.covered(2).tolist() == [False, True]
    found = model.predict(texts[:7])
    assert np.isnan(found[:, 0]).all() and ((found[:, 1] > 0) & (found[:, 1] < 1)).all()
    for wrong in (
        TextWindows(texts, labels[:, :1]),
        TextWindows(["ACGTA"] * 4, [0, 1, 0, 1]),
    ):
        with fails(DataError):
            GkmSvm(6, 5).fit(wrong, held_out)


# Scores as probabilities


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e-4, 30.0), (500.0, -2e4)])
def test_it_is_a_logistic_regression_on_smoothed_labels(
    scale: float, shift: float
) -> None:
    rows = mixture(500, 0.2, seed=3)
    scores = scale * rows.raw.astype(float) + shift
    x, t = (
        ((scores - scores.mean()) / scores.std())[:, None],
        smoothed(rows.labels == 1),
    )
    oracle = LogisticRegression(C=1e3, tol=1e-10, max_iter=10_000)
    oracle.fit(
        np.concatenate([x, x]), np.repeat([1, 0], len(x)), np.concatenate([t, 1 - t])
    )
    slope, offset = fit_sigmoid(scores, rows.labels.astype(np.uint8))
    found = expit(slope * scores + offset)
    np.testing.assert_allclose(found, oracle.predict_proba(x)[:, 1], atol=1e-3)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 1), min_size=1, max_size=30),
    st.integers(0, 1000),
    st.booleans(),
)
def test_a_higher_score_is_never_less_likely(
    labels: list[int], seed: int, same: bool
) -> None:
    """Whatever the labels say: of one class, against the scores, or with scores that are all the same."""
    scores = (
        np.full(len(labels), 0.3)
        if same
        else np.random.default_rng(seed).normal(size=len(labels))
    )
    slope, offset = fit_sigmoid(scores, np.array(labels, np.uint8))
    assert slope > 0
    values = expit(slope * np.sort(scores) + offset)
    assert np.isfinite(values).all() and (np.diff(values) >= 0).all()
