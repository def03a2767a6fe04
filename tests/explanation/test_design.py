"""Searches against slow ones and models with known answers; what the command writes and refuses."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import bigbird_dna
from bigbird_dna.disk.tables import read_table
from bigbird_dna.explanation.design import (
    ACCEPTED_EDITS,
    DESIGNED_SCORES,
    greedy_substitution,
    motif_bases,
    possible_edits,
)
from bigbird_dna.explanation.mutagenesis import views_of
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.sequence_tables import stream_sequences
from bigbird_dna.model.directory import load, save
from tests.cli.command import Run, refused
from tests.explanation.models import SETTINGS, example, of_positions, small_model
from tests.toys import random_dna

MOTIFS = ("GAT",)
OPTIONS = ["--offsets", "2", "--tokenizations", "0", "--threads", "1"]


def slow(
    model: Any, window: Any, views: Any, edits: int
) -> list[tuple[int, str, float, float]]:
    """Places, windows, scores and noise: each window alone, and edits written base by base."""

    @cache
    def score(text: str) -> np.ndarray:
        return model.view_scores([text], views)[:, 0, 0]

    text, found = window.window, []
    for _ in range(edits):
        made = []
        for motif in "ACGT", *MOTIFS, *map(reverse_complement, MOTIFS):
            for part in motif if motif == "ACGT" else [motif]:
                for first in range(window.first, window.last - len(part) + 1):
                    letters = list(text)
                    if "N" in letters[first : first + len(part)]:
                        continue
                    letters[first : first + len(part)] = part
                    made.append((first - window.first, "".join(letters)))
        place, text = max(made, key=lambda one: score(one[1]).mean())
        found.append((place, text, score(text).mean(), score(text).std(ddof=1)))
    return found


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_search_is_the_slow_one_and_keeps_the_flanks(kind: str) -> None:
    model = small_model(kind)
    window = example(model, count=7)
    views = views_of(model, len(window.window), 1, 1)
    found = greedy_substitution(model, window, 0, views, edits=2, motifs=MOTIFS)
    expected = slow(model, window, views, 2)
    text = window.bases
    for edit, (position, edited, score, spread) in zip(
        found.edits, expected, strict=True
    ):
        assert text[edit.position : edit.position + len(edit.ref)] == edit.ref
        text = (
            f"{text[: edit.position]}{edit.alt}{text[edit.position + len(edit.ref) :]}"
        )
        assert (edit.position, text) == (position, edited[window.first : window.last])
        assert (edit.score, edit.noise) == pytest.approx((score, spread), abs=1e-5)
    assert (
        found.final == window._replace(window=expected[-1][1])
        and found.final.bases == text
    )
    assert found.scores == sorted(found.scores) and len(found.scores) == 3


def test_minimizing_is_maximizing_the_opposite() -> None:
    model = small_model("numbers")
    other = deepcopy(model)
    with torch.no_grad():
        for parameter in other.network.output.parameters():
            parameter.neg_()
    window = example(model)
    views = views_of(model, len(window.window), 1, 1)
    up = greedy_substitution(model, window, 0, views, edits=3)
    down = greedy_substitution(other, window, 0, views, edits=3, minimize=True)
    assert [edit[:4] for edit in up.edits] == [
        edit[:4] for edit in down.edits
    ] and up.edits
    means = 2 * model.settings.means[0]
    np.testing.assert_allclose(np.add(up.scores, down.scores), means, atol=1e-5)


def test_a_search_ends_when_nothing_helps_and_gradients_find_the_same_where_they_are_exact() -> (
    None
):
    """Where the score is a sum over bases, the best of each base is its answer, in order of the gains."""
    model, weights = of_positions()
    window = example(model, count=12)
    own, codes = (
        weights[window.first : window.last],
        ["ACGTN".index(base) for base in window.bases],
    )
    gains = [
        0 if code == 4 else row.max() - row[code]
        for row, code in zip(own, codes, strict=True)
    ]
    views = views_of(model, 100, 1, 0)
    for method in ("mutagenesis", "gradient"):
        found = greedy_substitution(model, window, 0, views, edits=50, method=method)
        order = [
            place
            for place in np.argsort(np.negative(gains), kind="stable")
            if gains[place] > 0
        ]
        assert [edit.position for edit in found.edits] == order and order
        assert found.scores[-1] - found.score == pytest.approx(sum(gains), abs=1e-4)


def test_a_planted_motif_is_preferred_on_its_strand() -> None:
    model, _ = of_positions()
    window = example(model, seed=3, count=30)._replace(window=random_dna(100, 3))
    with torch.no_grad():  # GATTACA 4 bp into the explained bases
        rows = model.network.ensemble.position.weight[1:].view(-1, 4)
        rows[
            window.first + 4 + np.arange(7), ["ACGT".index(base) for base in "GATTACA"]
        ] += 30
    found = greedy_substitution(
        model, window, 0, views_of(model, 100, 1, 0), edits=1, motifs=["TGTAATC"]
    )
    assert [(edit.position, edit.alt) for edit in found.edits] == [(4, "GATTACA")]


def test_of_edits_that_reach_a_target_the_closest_is_accepted() -> None:
    model = small_model("promoter")
    window = example(model, count=10)
    views = views_of(model, 100, 1, 1)
    up, down = (
        greedy_substitution(model, window, 0, views, edits=2, minimize=minimize)
        for minimize in (False, True)
    )
    for found in (up, down):
        first = found.edits[0].score
        target = found.score + 0.7 * (first - found.score)
        one = greedy_substitution(model, window, 0, views, target=target)
        texts = [text for *_, text in possible_edits(window)]
        scores = model.view_scores(texts, views)[..., 0].mean(0)
        reached = (
            scores[scores >= target]
            if first > found.score
            else scores[scores <= target]
        )
        assert len(one.edits) == 1 and len(reached) > 1
        assert one.edits[0].score == pytest.approx(
            reached[np.abs(reached - target).argmin()], abs=1e-5
        )
        beyond = (first + found.edits[1].score) / 2
        assert (
            len(greedy_substitution(model, window, 0, views, target=beyond).edits) == 2
        )
    assert not greedy_substitution(model, window, 0, views, target=up.score).edits


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models `promoter`, `chromatin` and `classes`; `whole.fa` of windows, `part.fa` of parts of windows."""
    home = tmp_path_factory.mktemp("designed")
    for kind in ("promoter", "chromatin", "classes", "pretrained"):
        save(home / kind, small_model(kind), {}, {}, {})
    (home / "whole.fa").write_text(
        f">a b\n{random_dna(100, 1)}\n>c\n{random_dna(100, 2)}\n"
    )
    (home / "part.fa").write_text(f">a\n{random_dna(6, 1)}\n")
    (home / "motifs.fa").write_text(">one\nGATTACA\n>two\nccgc\n")
    return home


def test_the_final_sequences_have_the_scores_of_the_scoring_command(
    home: Path, tmp_path: Path, run: Run
) -> None:
    out = tmp_path / "out"
    words = [
        "design",
        home / "promoter",
        home / "whole.fa",
        "--edits",
        "2",
        "--motif",
        home / "motifs.fa",
    ]
    result = run(*words, *OPTIONS, "--method", "gradient", "-o", out)
    assert result.code == 0, result.err
    table = read_table(out / "scores.tsv", DESIGNED_SCORES)
    edits = read_table(out / "designs.tsv", ACCEPTED_EDITS)
    assert table["edits"].tolist() == edits.groupby("name", sort=False).size().tolist()
    last = edits.groupby("name", sort=False).last()
    np.testing.assert_allclose(table["score"], last["score"])
    np.testing.assert_allclose(table["noise"], last["noise"])
    for given, name in (
        ("whole.fa", "prediction_before"),
        ("windows.fa", "prediction"),
    ):
        place = (home if given == "whole.fa" else out) / given
        assert (
            run(
                "score-promoters",
                home / "promoter",
                place,
                "--strand",
                "+",
                "-o",
                tmp_path / "x.tsv",
            ).code
            == 0
        )
        found = pd.read_csv(tmp_path / "x.tsv", sep="\t", comment="#")["score"]
        np.testing.assert_allclose(found, table[name], atol=1e-5)
    assert [*stream_sequences(out / "designs.fa")] == [
        *stream_sequences(out / "windows.fa")
    ]
    assert (out / "designs.svg").read_text().startswith("<?xml")


def test_a_class_and_a_track_are_designed_by_name(home: Path, tmp_path: Path) -> None:
    for kind, output, column in (("classes", "y", 1), ("chromatin", "two", 1)):
        out = tmp_path / kind
        options: dict[str, Any] = {
            "tracks": output,
            "edits": 1,
            "offsets": 1,
            "tokenizations": 1,
        }
        table = bigbird_dna.design(
            home / kind, home / "part.fa", out, target=-50.0, **options
        )
        (row,) = table.to_dict("records")
        model = load(home / kind)
        windows = dict(stream_sequences(out / "windows.fa"))
        views = views_of(model, len(windows["a"]), 1, 1)
        scores = model.view_scores([*windows.values()], views)[:, 0, column]
        assert (row["score"], row["noise"]) == pytest.approx(
            (scores.mean(), scores.std(ddof=1)), abs=1e-5
        )
        assert (
            row["output"] == output
            and row["reached"] == "no"
            and row["score"] < row["score_before"]
        )
        assert row["prediction"] < row["prediction_before"]
        (designed,) = dict(stream_sequences(out / "designs.fa")).values()
        assert windows["a"].strip("N") == designed and len(designed) == 6


def test_motifs_are_bases_names_or_files(home: Path) -> None:
    found = motif_bases(["TATAAA", "x=acg", str(home / "motifs.fa")])
    assert found == {"TATAAA": "TATAAA", "x": "ACG", "one": "GATTACA", "two": "CCGC"}


def test_what_cannot_be_designed_is_refused_and_nothing_written(
    home: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "twice.fa").write_text(">a\nACGT\n")
    (tmp_path / "twice.csv").write_text("name,sequence\na,ACGT\na,ACGA\n")
    (tmp_path / "motif.fa").write_text(">m\nACGN\n")
    (tmp_path / "x.bed").write_text("a\t1\t9\n")
    promoter, part = home / "promoter", home / "part.fa"
    for code, *words in (
        (2, promoter, part, "--target", "nan"),
        (2, promoter, part, "--target", "inf"),
        (2, promoter, part, "--target", "1", "--minimize"),
        (2, promoter, part, "--edits", "0"),
        (2, promoter, part, "--offsets", "0", "--tokenizations", "0"),
        (2, promoter, part, "--method", "beam"),
        (2, promoter, part, "--motif", "TATAWA"),
        (2, promoter, part, "--motif", "x="),
        (2, promoter, part, "--motif", "x=AC", "--motif", "x=GG"),
        (2, promoter, part, "--motif", tmp_path / "motif.fa"),
        (1, promoter, part, "--motif", "ACGTACG"),
        (2, promoter, part, "--tracks", "promoter"),
        (2, promoter, tmp_path / "x.bed"),
        (1, promoter, tmp_path / "twice.csv"),
        (2, home / "classes", part),
        (2, home / "classes", part, "--tracks", "w"),
        (2, home / "chromatin", part),
        (1, home / "pretrained", part),
    ):
        refused(run("design", *words, "-o", tmp_path / "out"), code, after_log=True)
        assert not (tmp_path / "out").exists()
