"""The report of an ablation from files of known bits: figures, differences, intervals, published ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.config import parse_config
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.tracks import Track, write_tracks
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.metrics.resampling import bits_per_base
from bigbird_dna.papers.experiments.ablation import ablation_report
from bigbird_dna.papers.experiments.ablation_tracks import AblationTracks
from tests.golden.messages import fails
from tests.papers.experiments.costs import write_cost

TOKENS = 600
BASES = np.random.default_rng(0).integers(2, 8, TOKENS)
BLOCKS = np.arange(TOKENS) // 20
COMMON = np.random.default_rng(1).gamma(4.0, 2.0, TOKENS)


def bits_of(lift: float, seed: int) -> np.ndarray:
    """Bits that are higher by `lift` a base, and a little otherwise for each seed."""
    return COMMON + lift * BASES + np.random.default_rng([seed, 7]).normal(0, 0.05, TOKENS)


def write_bits(
    path: Path, lifts: dict[str, float], *, seeds: int = 1, tokens: int = 512, **changes: Any
) -> Path:
    names = [f"{name}-{seed}" for name in lifts for seed in range(1, seeds + 1)]
    rows = [bits_of(lift, seed) for lift in lifts.values() for seed in range(1, seeds + 1)]
    arrays: dict[str, Any] = {
        "names": np.array(names),
        "steps": np.full(len(names), 80),
        "seconds": np.full(len(names), 9.0),
        "sequence_tokens": np.array([tokens]),
        **{"bits": np.stack(rows), "bases": BASES, "blocks": BLOCKS},
    }
    np.savez(path, **(arrays | changes))
    return path


def cost_of(path: Path, attention: str, seconds: float) -> Path:
    rows = [
        {"tokens": tokens, "sequences": 8192 // tokens, "seconds": seconds, "peak_mib": tokens / 100}
        | {"tokens_per_second": 8192 / seconds}
        for tokens in (512, 2048)
    ]
    return write_cost(path, 1.0, attention=attention, lengths=rows)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("ablation")
    lifts = {"full": -0.05, "bigbird": 0.0, "window": 0.04, "deep": 0.0}
    found = {
        "steps": write_bits(home / "steps.npz", lifts, seeds=2),
        "time": write_bits(home / "time.npz", {**lifts, "full": 0.06}, seeds=2, steps=np.repeat([40, 80], 4)),
        "2048": write_bits(home / "2048.npz", lifts, tokens=2048),
    }
    for name, attention in (("full", "full"), ("bigbird", "bigbird"), ("deep", "combiner_fixed")):
        found[name] = cost_of(home / f"{name}.json", attention, 1.0 if name == "full" else 0.5)
    return found


def table_of(directory: Path) -> pd.DataFrame:
    return pd.read_csv(directory / "ablation.tsv", sep="\t").set_index("mechanism")


def test_figures_are_means_over_seeds_with_their_differences(files: dict[str, Path], tmp_path: Path) -> None:
    costs = {name: files[name] for name in ("full", "bigbird", "deep")}
    out = tmp_path / "out"
    ablation_report(
        [files["steps"]],
        out,
        reference="bigbird",
        time=[files["time"]],
        lengths=[[files["2048"]]],
        costs=costs,
    )
    assert {path.name for path in out.iterdir() if not path.name.startswith(".")} == {
        *("ablation.tsv", "ablation.json", "ablation.md", "ablation.svg"),
        *("ablation_seeds.tsv", "ablation_lengths.tsv", "ablation_lengths.svg"),
    }
    table = table_of(out)
    assert table.index.tolist() == ["full", "bigbird", "window", "deep"]
    for name, lift in (("full", -0.05), ("window", 0.04)):
        row = table.loc[name]
        expected = np.mean([bits_of(lift, seed).sum() / BASES.sum() for seed in (1, 2)])
        assert row["bits_per_base"] == pytest.approx(expected, rel=1e-5)
        assert row["bits_per_base_low"] < expected < row["bits_per_base_high"]
        # Pairs differ by nothing but the lift, so that their interval is narrow; absolute ones aren't.
        assert row["difference"] == pytest.approx(lift, abs=1e-6)
        assert row["difference_high"] - row["difference_low"] < 0.01 < row["bits_per_base_high"] - expected
    assert np.isnan(table.loc["bigbird", "difference"]) and (table["seeds"] == 2).all()
    assert table.loc["full", "time_difference"] == pytest.approx(0.06, abs=1e-6)
    assert table["time_steps"].tolist() == [40, 40, 80, 80]
    assert table.loc["bigbird", "tokens_per_second"] == 16384 and table.loc["full", "peak_mib"] == 5.12
    assert np.isnan(table.loc["window", "tokens_per_second"])
    seeds = pd.read_csv(out / "ablation_seeds.tsv", sep="\t", index_col=["mechanism", "seed"])
    assert seeds.index.tolist() == [(name, seed) for name in table.index for seed in (1, 2)]
    assert seeds.loc[("full", 2), "bits_per_base"] == pytest.approx(
        bits_of(-0.05, 2).sum() / BASES.sum(), rel=1e-5
    )
    for column in ("bits_per_base", "time_bits_per_base"):
        assert seeds.groupby("mechanism")[column].mean().to_dict() == pytest.approx(
            table[column].to_dict(), rel=1e-5
        )
    assert "# Each seed" in (out / "ablation.md").read_text()


def test_one_seed_has_the_interval_over_blocks_of_sequence(tmp_path: Path) -> None:
    path = write_bits(tmp_path / "bits.npz", {"bigbird": 0.0, "full": 0.1})
    ablation_report([path], tmp_path / "out", reference="bigbird")
    row = table_of(tmp_path / "out").loc["full"]
    rows = {"full": bits_of(0.1, 1), "bigbird": bits_of(0.0, 1)}
    there = bits_per_base(rows, BASES, BLOCKS, "full")
    assert row["bits_per_base"] == pytest.approx(there["full"].bits_per_base.value, rel=1e-5)
    # One is normal, the other of percentiles: of the same resamples.
    assert row["bits_per_base_low"] == pytest.approx(there["full"].bits_per_base.low, abs=0.01)
    assert row["bits_per_base_high"] == pytest.approx(there["full"].bits_per_base.high, abs=0.01)
    assert not [*(tmp_path / "out").glob("ablation_*")]


def test_published_figures_stand_beside_what_they_are_of(files: dict[str, Path], tmp_path: Path) -> None:
    costs = {name: files[name] for name in ("full", "deep")}
    ablation_report(
        [files["steps"]], tmp_path / "out", reference="bigbird", lengths=[[files["2048"]]], costs=costs
    )
    table = table_of(tmp_path / "out")
    assert table["building_block"].fillna("").tolist() == ["BERT", "", "W", ""]
    assert table["published_masked_accuracy"].tolist()[:3:2] == [64.2, 58.3]
    longer = pd.read_csv(tmp_path / "out/ablation_lengths.tsv", sep="\t").set_index(["tokens", "mechanism"])
    assert longer["published_perplexity"].dropna().to_dict() == {
        (2048, "full"): 4.552,
        (2048, "bigbird"): 4.696,
    }
    page = (tmp_path / "out/ablation.md").read_text()
    assert "| 64.2 † |" in page and "† Published figures are of English text" in page
    told = json.loads((tmp_path / "out/ablation.json").read_text())
    assert [row["mechanism"] for row in told["rows"]] == table.index.tolist()
    assert len(told["lengths"]) == 8 and "of processors" in page


def test_a_mechanism_with_keys_of_its_own_has_no_published_figures(tmp_path: Path) -> None:
    """Options as the mechanism has them when none are said are no keys of its own."""
    steps = write_bits(tmp_path / "steps.npz", {"bigbird": 0.0, "combiner_fixed": 0.1})
    longer = write_bits(tmp_path / "long.npz", {"bigbird": 0.0, "combiner_fixed": 0.1}, tokens=8192)
    defaults = dict(parse_config({"encoder": {"attention": "combiner_fixed"}}).encoder.attention_options)
    assert defaults["span"] != 32

    def published(name: str, altered: tuple[str, ...] = (), **changes: Any) -> dict[str, float]:
        costs = {"combiner_fixed": write_cost(tmp_path / "cost.json", 1.0, **changes)} if changes else {}
        ablation_report(
            [steps], tmp_path / name, reference="bigbird", lengths=[[longer]], costs=costs, altered=altered
        )
        table = pd.read_csv(tmp_path / name / "ablation_lengths.tsv", sep="\t")
        return table.set_index("mechanism")["published_perplexity"].dropna().to_dict()

    both, one = {"bigbird": 4.542, "combiner_fixed": 4.139}, {"bigbird": 4.542}
    assert published("unknown") == both
    of = {"attention": "combiner_fixed"}
    assert published("defaults", **of, attention_options=defaults) == both
    assert published("unsaid", **of, attention_options={}) == both
    assert published("own", **of, attention_options=defaults | {"span": 32}) == one
    assert published("older", **of, attention_options={"gone": 1}) == one
    assert published("altered", ("bigbird", "combiner_fixed")) == {}


def test_tracks_have_an_auroc_for_each_mechanism(files: dict[str, Path], tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    labels = (rng.random((200, 2)) < 0.4).astype(np.int8)
    PackedLabels.from_dense(labels).save(tmp_path / "labels.npz")
    write_tracks(tmp_path / "tracks.tsv", [Track("NEAR", "TF"), Track("FAR", "HM")])
    predictions, scores = {}, {}
    for name, lift in (("bigbird-1", 0.0), ("full-1", 3.0)):
        scores[name] = (lift * labels + rng.normal(size=labels.shape)).astype(np.float32)
        predictions[name] = tmp_path / f"{name}.npy"
        np.save(predictions[name], scores[name])
    starts = np.arange(200) * 10_000
    bins = pd.DataFrame({"contig": "chr1", "start": starts, "end": starts + 200, "split": "test"})
    bins.to_parquet(tmp_path / "bins.parquet", index=False)
    tracks = AblationTracks(
        predictions, tmp_path / "labels.npz", tmp_path / "bins.parquet", tmp_path / "tracks.tsv", ["FAR"]
    )
    ablation_report([files["steps"]], tmp_path / "out", reference="bigbird", tracks=tracks)
    table = table_of(tmp_path / "out")
    for name in ("full", "bigbird"):
        expected = auroc(labels[:, 1], scores[f"{name}-1"][:, 1]).value
        assert table.loc[name, "auroc_FAR"] == pytest.approx(expected, rel=1e-5)
    assert table.loc["full", "gain_FAR_low"] > 0.2 and np.isnan(table.loc["window", "auroc_FAR"])
    assert "auroc_NEAR" not in table
    # Models of tracks have one seed here, those of masked tokens two.
    seeds = pd.read_csv(tmp_path / "out/ablation_seeds.tsv", sep="\t", index_col=["mechanism", "seed"])
    assert seeds.loc[("full", 1), "auroc_FAR"] == table.loc["full", "auroc_FAR"]
    assert np.isnan(seeds.loc[("full", 2), "auroc_FAR"])
    with fails(DataError):
        ablation_report(
            [files["steps"]], tmp_path / "out", reference="bigbird", tracks=tracks._replace(names=["ELSE"])
        )


def test_what_is_made_twice_is_the_same(files: dict[str, Path], tmp_path: Path) -> None:
    for name in ("a", "b"):
        ablation_report([files["steps"]], tmp_path / name, reference="bigbird", lengths=[[files["2048"]]])
    for path in (tmp_path / "a").glob("ablation*"):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bits": np.full((2, TOKENS), np.nan)}, "its bits are not 2 × 600 numbers"),
        ({"names": np.array(["full", "bigbird-1"])}, "'full' is not a mechanism and a seed"),
        ({"names": np.array(["full-1", "full-1"])}, "two of its models have one name"),
        ({"steps": np.array([1])}, "its arrays are of different lengths"),
    ],
)
def test_damaged_bits(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write_bits(tmp_path / "bits.npz", {"full": 0.0, "bigbird": 0.0}, **changes)
    with fails(DataError, path):
        ablation_report([path], tmp_path / "out", reference="bigbird")
    assert not (tmp_path / "out").exists()


def test_wrong_reports(files: dict[str, Path], tmp_path: Path) -> None:
    steps, gone = files["steps"], tmp_path / "gone.npz"
    for options, error, named in (
        ({"reference": "performer"}, UsageError, ["'performer'", "full", "bigbird"]),
        ({"costs": {"reformer": files["full"]}}, UsageError, ["reformer"]),
        ({"lengths": [[steps]]}, DataError, [steps, "512"]),
        ({"time": [files["2048"]]}, DataError, ["2,048"]),
        ({"time": [gone]}, DataError, [gone]),
    ):
        with fails(error, *named):
            ablation_report([steps], tmp_path / "out", **{"reference": "bigbird", **options})
    assert not (tmp_path / "out").exists()
