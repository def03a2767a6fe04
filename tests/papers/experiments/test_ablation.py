"""The report of an ablation from files of known bits and scores: figures, differences, intervals."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.config import parse_config
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.tracks import Track, write_tracks
from bigbird_dna.metrics.auroc import auroc, auroc_difference
from bigbird_dna.metrics.resampling import bits_per_base
from bigbird_dna.papers.experiments.ablation import (
    AblationTracks,
    ablation_report,
    compare_tracks,
)
from bigbird_dna.papers.experiments.ablation_files import Cost, read_model_bits
from tests.golden.messages import fails, message
from tests.toys import cases

TOKENS = 600
BASES = np.random.default_rng(0).integers(2, 8, TOKENS)
BLOCKS = np.arange(TOKENS) // 20
COMMON = np.random.default_rng(1).gamma(4.0, 2.0, TOKENS)


def write_cost(
    path: Path, seconds: float, *, tokens: int = 96, sequences: int = 4, **changes: Any
) -> Path:
    """As `experiment profile-training` writes it."""
    row = {"tokens": tokens, "sequences": sequences, "seconds": seconds}
    row |= {"tokens_per_second": tokens * sequences / seconds, "peak_mib": None}
    values = {
        "format": 1,
        "attention": "bigbird",
        "attention_options": {},
        "lengths": [row],
    }
    values |= {"device": "cpu", "threads": 1, "clock": "processor", **changes}
    path.write_text(json.dumps(values))
    return path


def bits_of(lift: float, seed: int) -> np.ndarray:
    """Bits that are higher by `lift` a base, and a little otherwise for each seed."""
    return (
        COMMON + lift * BASES + np.random.default_rng([seed, 7]).normal(0, 0.05, TOKENS)
    )


def write_bits(
    home: Path,
    lifts: dict[str, float],
    *,
    seeds: int = 1,
    tokens: int = 512,
    **changes: Any,
) -> dict[tuple[str, int], Path]:
    """A file of each model, by mechanism and seed."""
    home.mkdir(exist_ok=True)
    found = {}
    for name, seed in product(lifts, range(1, seeds + 1)):
        arrays = {
            **{
                "names": np.array([f"{name}-{seed}"]),
                "sequence_tokens": np.array([tokens]),
            },
            **{
                "steps": np.array([80]),
                "seconds": np.array([9.0]),
                "bases": BASES,
                "blocks": BLOCKS,
            },
            "bits": bits_of(lifts[name], seed)[None],
        }
        path = found[name, seed] = home / f"{name}-{seed}.npz"
        np.savez(path, **(arrays | changes))
    return found


def write_tracks_of(
    home: Path,
    labels: Any,
    scores: dict[str, Any],
    starts: Any,
    contigs: Any = "chr1",
    **changes: Any,
) -> AblationTracks:
    """Files of N bins: labels (N,) of FAR, NEAR being another track; scores (N,) of a seed by mechanism."""
    home.mkdir(exist_ok=True)
    other = np.arange(len(labels)) % 2
    PackedLabels.from_dense(np.stack([labels, other], axis=1).astype(np.int8)).save(
        home / "labels.npz"
    )
    write_tracks(home / "tracks.tsv", [Track(name, "TF") for name in ("FAR", "NEAR")])
    starts = np.asarray(starts, np.int64)
    bins = pd.DataFrame(
        {"contig": contigs, "start": starts, "end": starts + 200, "split": "test"}
    )
    bins.to_parquet(home / "bins.parquet", index=False)
    for name, own in scores.items():
        np.save(home / f"{name}.npy", np.stack([own, own], axis=1).astype(np.float32))
    predictions = {(name, 1): home / f"{name}.npy" for name in scores}
    files = (home / "labels.npz", home / "bins.parquet", home / "tracks.tsv")
    return AblationTracks(predictions, *files, ["FAR"])._replace(**changes)


def report(
    steps: dict[tuple[str, int], Path],
    output: Path,
    *,
    mechanisms: dict[str, dict[str, Any]] | None = None,
    longer: dict[int, dict[tuple[str, int], Path]] | None = None,
    time: dict[tuple[str, int], Path] | None = None,
    costs: dict[str, Path] | None = None,
    tracks: AblationTracks | None = None,
) -> pd.DataFrame:
    """The table of trainings that are those of the same time too, unless others are given."""
    names, longer = [*dict.fromkeys(name for name, _ in steps)], longer or {}
    values = [{"name": name, **(mechanisms or {}).get(name, {})} for name in names]
    section = parse_config(
        {"ablation": {"mechanisms": values, "lengths": [*longer]}}
    ).ablation
    usual = {
        name: write_cost(
            output.parent / f"cost-{name}.json",
            1,
            attention=section.changes(name)["attention"],
        )
        for name in names
    }
    lengths = {section.tokens: steps, **longer}
    given = {"time": time or steps, "costs": usual | (costs or {}), "tracks": tracks}
    ablation_report(section, output, lengths=lengths, **given)
    return pd.read_csv(output / "ablation.tsv", sep="\t").set_index("mechanism")


def cost_of(path: Path, attention: str, seconds: float) -> Path:
    rows = [
        {
            "tokens": tokens,
            "sequences": 8192 // tokens,
            "seconds": seconds,
            "peak_mib": tokens / 100,
        }
        | {"tokens_per_second": 8192 / seconds}
        for tokens in (512, 2048)
    ]
    return write_cost(path, 1.0, attention=attention, lengths=rows)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("ablation")
    lifts = {"full": -0.05, "bigbird": 0.0, "window": 0.04, "deep": 0.0}
    few = write_bits(
        home / "time", {"full": 0.06, "bigbird": 0.0}, seeds=2, steps=np.array([40])
    )
    return {
        "steps": write_bits(home / "steps", lifts, seeds=2),
        "time": few | write_bits(home / "time", {"window": 0.04, "deep": 0.0}, seeds=2),
        "longer": {2048: write_bits(home / "2048", lifts, tokens=2048)},
        "costs": {
            name: cost_of(
                home / f"{name}.json", attention, 1.0 if name == "full" else 0.5
            )
            for name, attention in (
                ("full", "full"),
                ("bigbird", "bigbird"),
                ("deep", "combiner_fixed"),
            )
        },
        "mechanisms": {"deep": {"attention": "combiner_fixed"}},
    }


def test_figures_are_means_over_seeds_with_their_differences(
    files: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    table = report(output=out, **files)
    assert {path.name for path in out.iterdir() if not path.name.startswith(".")} == {
        *("ablation.tsv", "ablation.json", "ablation.md", "ablation.svg"),
        *("ablation_seeds.tsv", "ablation_lengths.tsv", "ablation_lengths.svg"),
    }
    assert table.index.tolist() == ["full", "bigbird", "window", "deep"]
    for name, lift in (("full", -0.05), ("window", 0.04)):
        row = table.loc[name]
        expected = np.mean([bits_of(lift, seed).sum() / BASES.sum() for seed in (1, 2)])
        assert row["bits_per_base"] == pytest.approx(expected, rel=1e-5)
        assert row["bits_per_base_low"] < expected < row["bits_per_base_high"]
        # Pairs differ by nothing but the lift, so that their interval is narrow; absolute ones aren't.
        assert row["difference"] == pytest.approx(lift, abs=1e-6)
        assert (
            row["difference_high"] - row["difference_low"]
            < 0.01
            < row["bits_per_base_high"] - expected
        )
    assert np.isnan(table.loc["bigbird", "difference"]) and (table["seeds"] == 2).all()
    assert table.loc["full", "matched_time_difference"] == pytest.approx(0.06, abs=1e-6)
    assert table["matched_time_steps"].tolist() == [40, 40, 80, 80]
    assert (
        table.loc["bigbird", "tokens_per_second"] == 16384
        and table.loc["full", "peak_mib"] == 5.12
    )
    assert np.isnan(table.loc["window", "tokens_per_second"])
    seeds = pd.read_csv(
        out / "ablation_seeds.tsv", sep="\t", index_col=["mechanism", "seed"]
    )
    assert seeds.index.tolist() == [
        (name, seed) for name in table.index for seed in (1, 2)
    ]
    assert seeds.loc[("full", 2), "bits_per_base"] == pytest.approx(
        bits_of(-0.05, 2).sum() / BASES.sum(), rel=1e-5
    )
    for column in ("bits_per_base", "matched_time_bits_per_base"):
        assert seeds.groupby("mechanism")[column].mean().to_dict() == pytest.approx(
            table[column].to_dict(), rel=1e-5
        )
    assert "# Each seed" in (out / "ablation.md").read_text()


def test_one_seed_has_the_interval_over_blocks_of_sequence(tmp_path: Path) -> None:
    row = report(
        write_bits(tmp_path / "bits", {"bigbird": 0.0, "full": 0.1}), tmp_path / "out"
    ).loc["full"]
    rows = {"full": bits_of(0.1, 1), "bigbird": bits_of(0.0, 1)}
    there = bits_per_base(rows, BASES, BLOCKS, "full")
    assert row["bits_per_base"] == pytest.approx(
        there["full"].bits_per_base.value, rel=1e-5
    )
    # One is normal, the other of percentiles: of the same resamples.
    assert row["bits_per_base_low"] == pytest.approx(
        there["full"].bits_per_base.low, abs=0.01
    )
    assert row["bits_per_base_high"] == pytest.approx(
        there["full"].bits_per_base.high, abs=0.01
    )
    assert (
        not [*(tmp_path / "out").glob("ablation_*")]
        and row["matched_time_difference"] == row["difference"]
    )


def test_published_figures_stand_beside_what_they_are_of(
    files: dict[str, Path], tmp_path: Path
) -> None:
    table = report(output=tmp_path / "out", **files)
    assert table["paper_table1_row"].fillna("").tolist() == ["BERT", "", "W", ""]
    assert table["published_masked_accuracy"].tolist()[:3:2] == [64.2, 58.3]
    longer = pd.read_csv(tmp_path / "out/ablation_lengths.tsv", sep="\t").set_index(
        ["tokens", "mechanism"]
    )
    assert longer["published_perplexity"].dropna().to_dict() == {
        (2048, "full"): 4.552,
        (2048, "bigbird"): 4.696,
    }
    page = (tmp_path / "out/ablation.md").read_text()
    assert "| 64.2 † |" in message(page[:1000], "†")
    told = json.loads((tmp_path / "out/ablation.json").read_text())
    assert [row["mechanism"] for row in told["rows"]] == table.index.tolist()
    assert len(told["lengths"]) == 8 and "CPU time" in page


def test_a_mechanism_with_keys_of_its_own_has_no_published_figures(
    tmp_path: Path,
) -> None:
    """Options as the mechanism has them when none are said are no keys of its own."""
    steps = write_bits(tmp_path / "steps", {"bigbird": 0.0, "combiner_fixed": 0.1})
    longer = write_bits(
        tmp_path / "long", {"bigbird": 0.0, "combiner_fixed": 0.1}, tokens=8192
    )
    defaults = dict(
        parse_config(
            {"encoder": {"attention": "combiner_fixed"}}
        ).encoder.attention_options
    )
    assert defaults["span"] != 32

    def published(options: dict[str, Any], **keys: Any) -> dict[str, float]:
        cost = write_cost(
            tmp_path / "a.json",
            1.0,
            attention="combiner_fixed",
            attention_options=options,
        )
        own = {"mechanisms": dict.fromkeys(("bigbird", "combiner_fixed"), keys)}
        report(
            steps,
            tmp_path / "out",
            longer={8192: longer},
            costs={"combiner_fixed": cost},
            **own,
        )
        table = pd.read_csv(tmp_path / "out/ablation_lengths.tsv", sep="\t")
        return table.set_index("mechanism")["published_perplexity"].dropna().to_dict()

    assert (
        published(defaults)
        == published({})
        == {"bigbird": 4.542, "combiner_fixed": 4.139}
    )
    assert (
        published(defaults | {"span": 32})
        == published({"gone": 1})
        == {"bigbird": 4.542}
    )
    assert published({}, encoder={"layers": 3}) == {}


def test_tracks_have_an_auroc_for_each_mechanism(
    files: dict[str, Path], tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    labels = (rng.random(200) < 0.4).astype(np.int8)
    scores = {
        name: lift * labels + rng.normal(size=200)
        for name, lift in (("bigbird", 0.0), ("full", 3.0))
    }
    tracks = write_tracks_of(
        tmp_path / "tracks", labels, scores, np.arange(200) * 10_000
    )
    table = report(output=tmp_path / "out", tracks=tracks, **files)
    for name, own in scores.items():
        assert table.loc[name, "auroc_FAR"] == pytest.approx(
            auroc(labels, own).value, rel=1e-5
        )
    assert table.loc["full", "delta_auroc_FAR_low"] > 0.2 and np.isnan(
        table.loc["window", "auroc_FAR"]
    )
    assert "auroc_NEAR" not in table
    # Models of tracks have one seed here, those of masked tokens two.
    seeds = pd.read_csv(
        tmp_path / "out/ablation_seeds.tsv", sep="\t", index_col=["mechanism", "seed"]
    )
    assert seeds.loc[("full", 1), "auroc_FAR"] == table.loc["full", "auroc_FAR"]
    assert np.isnan(seeds.loc[("full", 2), "auroc_FAR"])


def test_what_is_made_twice_is_the_same(files: dict[str, Path], tmp_path: Path) -> None:
    for name in ("a", "b"):
        report(output=tmp_path / name, **files)
    for path in (tmp_path / "a").glob("ablation*"):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_files_that_do_not_go_together(files: dict[str, Any], tmp_path: Path) -> None:
    steps, longer = files["steps"], files["longer"][2048]
    gone, full = tmp_path / "gone.npz", ("full", 1)
    wall = write_cost(tmp_path / "wall.json", 0.7, attention="full", clock="wall")
    for options, named in (
        ({"longer": {2048: steps}}, [steps[full], "512", "2,048"]),
        ({"time": longer}, [longer[full], "2,048"]),
        ({"time": steps | {full: gone}}, [gone]),
        ({"time": steps | {full: steps["full", 2]}}, ["full-2", "'full-1'"]),
        (
            {"costs": {"bigbird": files["costs"]["bigbird"], "full": wall}},
            [wall, "'wall'"],
        ),
        ({"costs": {"full": files["costs"]["bigbird"]}}, ["'bigbird'", "'full'"]),
    ):
        with fails(DataError, *named):
            report(output=tmp_path / "out", **(files | options))
    assert not (tmp_path / "out").exists()


# Tracks


def drawn_rows(
    seed: int = 3, rows: int = 60
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    labels = (rng.random(rows) < 0.4).astype(np.int8)
    lifts = {"bigbird": 0.5, "full": 1.0}
    return labels, {
        name: (lift * labels + rng.normal(size=rows)).astype(np.float32)
        for name, lift in lifts.items()
    }


def reached(*files: Any, **changes: Any) -> Any:
    """By mechanism what is reached on the track FAR, and the notes."""
    found, notes = compare_tracks(write_tracks_of(*files, **changes), "bigbird")
    return found["FAR"], notes


def test_bins_of_one_stretch_are_drawn_together(tmp_path: Path) -> None:
    """Ten bins that say the same are worth no more than one."""
    labels, scores = drawn_rows()
    starts = np.arange(len(labels)) * 10_000
    alone, _ = reached(tmp_path / "a", labels, scores, starts)
    tenfold = {name: np.repeat(row, 10) for name, row in scores.items()}
    within = (starts[:, None] + 200 * np.arange(10)).ravel()
    together, notes = reached(tmp_path / "b", np.repeat(labels, 10), tenfold, within)
    assert notes == {}
    for name in ("bigbird", "full"):
        np.testing.assert_allclose(together[name].value, alone[name].value)
        np.testing.assert_allclose(together[name].difference, alone[name].difference)
    blocks = np.arange(len(labels))
    assert alone["full"].value == pytest.approx(auroc(labels, scores["full"], blocks))
    lead = auroc_difference(labels, scores["full"], scores["bigbird"], blocks)
    assert alone["full"].difference == pytest.approx(lead.estimate)


def test_stretches_are_those_of_a_contig(tmp_path: Path) -> None:
    labels, scores = drawn_rows()
    starts = np.arange(len(labels)) // 2 * 10_000
    contigs = np.where(np.arange(len(labels)) % 2, "chr1", "chr10")
    one = reached(tmp_path / "a", labels, scores, starts)[0]["full"]
    two = reached(tmp_path / "b", labels, scores, starts, contigs)[0]["full"]
    assert one.value.value == two.value.value and one.value.low != two.value.low


def test_separated_classes_are_not_certain(tmp_path: Path) -> None:
    """The interval is that of pairs that share no stretch."""
    labels = np.repeat([1, 0], 10)
    scores = {
        "bigbird": labels * 2.0,
        "full": labels * 3.0,
        "random": -labels,
        "window": labels * 0,
    }
    found, _ = reached(tmp_path / "a", labels, scores, np.arange(20) * 10_000)
    expected = auroc(labels, scores["full"])
    assert expected.low == pytest.approx(0.69, abs=0.005)
    assert found["full"].value == expected
    assert found["random"].value == auroc(labels, scores["random"])
    assert np.isnan(found["window"].value.low) and found["window"].value.value == 0.5
    assert found["full"].difference.value == 0 and np.isnan(
        found["full"].difference.low
    )
    # Of five stretches with two positives each.
    pairs, _ = reached(tmp_path / "b", labels, scores, np.arange(20) // 2 * 10_000)
    assert pairs["full"].value.low == pytest.approx(0.025 ** (1 / 5))


def test_positives_of_one_stretch_have_no_interval(tmp_path: Path) -> None:
    _, scores = drawn_rows()
    for count, note in (
        (1, "only one positive: no interval of AUROC"),
        (4, "all positives are within one segment of 10,000 bp: no interval of AUROC"),
    ):
        labels = (np.arange(60) < count).astype(np.int8)
        found, notes = reached(
            tmp_path / str(count), labels, scores, np.arange(60) * 2000
        )
        one = found["full"]
        assert one.value.value == pytest.approx(auroc(labels, scores["full"]).value)
        assert np.isnan([*one.value[1:], *one.difference[1:]]).all() and notes == {
            "FAR": note
        }


def test_a_track_that_can_not_be_judged_loses_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, scores = drawn_rows()
    tracks = write_tracks_of(
        tmp_path / "t", np.zeros(60, np.int8), scores, np.arange(60) * 10_000
    )
    steps = write_bits(tmp_path / "steps", {"full": 0.0, "bigbird": 0.0})

    def made(**changes: Any) -> pd.DataFrame:
        return report(steps, tmp_path / "out", tracks=tracks._replace(**changes))

    table = made(names=["FAR", "NEAR"])
    message(capsys.readouterr().err, tracks.labels, "FAR")
    assert (
        table[["auroc_FAR", "delta_auroc_FAR"]].isna().all(axis=None)
        and table["auroc_NEAR"].notna().all()
    )
    told = json.loads((tmp_path / "out/ablation.json").read_text())
    assert told["track_notes"] == {"FAR": "no positives"}
    assert "FAR: no positives." in (tmp_path / "out/ablation.md").read_text()
    # All that there are, and too few of a kind.
    made(names=["NEAR"], min_positives=31)
    message(capsys.readouterr().err, "NEAR", "31")
    with fails(DataError, "'ELSE'", "FAR", "NEAR"):
        made(names=["ELSE"])


def test_bins_are_those_of_the_labels(tmp_path: Path) -> None:
    labels, scores = drawn_rows()
    tracks = write_tracks_of(tmp_path / "t", labels, scores, np.arange(60) * 10_000)
    bins = pd.read_parquet(tracks.bins)
    for table in (bins[:-1], bins.drop(columns="contig"), bins.assign(start=-1)):
        table.to_parquet(tracks.bins, index=False)
        with fails(DataError):
            compare_tracks(tracks, "bigbird")
    with fails(DataError):
        compare_tracks(tracks._replace(bins=tmp_path / "gone.parquet"), "bigbird")


# Files that are damaged, or of something else


@pytest.mark.parametrize(
    "changes",
    [
        {"peak_mib": ...},
        *(
            {"peak_mib": -1},
            {"tokens_per_second": 0},
            {"seconds": 1e-320},
            {"seconds": 1e300},
        ),
        *({"tokens": -5}, {"sequences": 0}),
    ],
)
def test_costs_have_numbers_that_can_be(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    path = write_cost(tmp_path / "cost.json", 0.5)
    row = json.loads(path.read_text())["lengths"][0] | changes
    write_cost(
        path,
        0.5,
        lengths=[{key: value for key, value in row.items() if value is not ...}],
    )
    with fails(DataError, path, *changes):
        Cost.read(path)


def test_costs_say_how_they_were_measured(tmp_path: Path) -> None:
    path = write_cost(
        tmp_path / "cost.json",
        0.5,
        device="cuda",
        threads=3,
        attention_options={"a": 1},
    )
    cost = Cost.read(path)
    assert (cost.device, cost.threads, cost.attention_options) == ("cuda", 3, {"a": 1})
    row = json.loads(path.read_text())["lengths"][0]
    wrong: list[dict[str, Any]] = [
        {"lengths": [row, row]},
        {"lengths": [3]},
        {"lengths": []},
        {"device": 3},
    ]
    for changes in (*wrong, {"clock": None}, {"attention_options": []}, {"threads": 0}):
        with fails(DataError, path):
            Cost.read(write_cost(path, 0.5, **changes))


@pytest.mark.parametrize(
    ("key", "value"),
    cases(
        {
            "seconds": [
                np.array(["9"]),
                np.array([-1.0]),
                np.array([np.nan]),
                np.array([9.0, 9.0]),
            ],
            "bases": [
                np.full(TOKENS, "5"),
                np.array(5),
                np.full(TOKENS, np.inf),
                np.zeros(TOKENS, int),
            ],
            "steps": [np.array(["80"]), np.array([np.nan]), np.array([1, 2])],
            "blocks": [np.arange(TOKENS) / 5, np.arange(TOKENS - 1)],
            "sequence_tokens": [np.array([0]), np.array([], int)],
            "names": [np.array([1]), np.array(["bigbird"]), np.array([])],
            "bits": [np.full((1, TOKENS), value) for value in (-2.0, 1j, np.nan)],
        }
    ),
)
def test_bits_have_numbers_that_can_be(key: str, value: Any, tmp_path: Path) -> None:
    files = write_bits(tmp_path, {"bigbird": 0.0}, **{key: value})
    with fails(DataError, files["bigbird", 1]):
        read_model_bits(files, 512)


def test_models_saw_the_same_tokens(tmp_path: Path) -> None:
    own = write_bits(tmp_path, {"full": 0.0}, seeds=2)
    assert read_model_bits(own, 512).bits.shape == (2, TOKENS)
    other = write_bits(tmp_path, {"window": 0.0}, bases=np.full(TOKENS, 6))
    with fails(DataError, other["window", 1], own["full", 1]):
        read_model_bits(own | other, 512)
