"""Promoters as sequences of one's own: from FASTA to a model, its baseline and report, without a genome."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from bigbird_dna.config.reading import load_config
from bigbird_dna.data.promoter_windows import (
    MAX_N,
    POSITIVE,
    read_origin,
    read_windows,
    window_sequences,
)
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.genome.fasta import scan_fasta
from bigbird_dna.genome.records import read_splits
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.model.directory import load_promoter_model
from tests.cli.command import Run, invoke, refused
from tests.genome.test_records import fasta
from tests.golden.messages import fails, message
from tests.tiny_run import MOTIF, SETTINGS

LENGTH, UPSTREAM = 100, 60


def bases(rng: np.random.Generator, length: int = LENGTH) -> str:
    return "".join(rng.choice(list("ACGT"), length))


def promoters(count: int, seed: int, motif: str = MOTIF) -> dict[str, str]:
    """Random sequences with a motif that ends at a fixed place."""
    rng = np.random.default_rng(seed)
    start = UPSTREAM - len(motif)
    plain = {f"p{number}": bases(rng) for number in range(count)}
    return {
        name: text[:start] + motif + text[start + len(motif) :]
        for name, text in plain.items()
    }


def others(count: int, seed: int) -> dict[str, str]:
    rng = np.random.default_rng(seed)
    return {f"n{number}": bases(rng) for number in range(count)}


def prepare(home: Path, records: dict[str, str], *words: object) -> Path:
    """The data set of records."""
    invoke(
        "prepare sequences",
        fasta(home / "p.fa", **records),
        "-o",
        home / "data",
        *words,
    )
    return home / "data"


def configuration(home: Path, **sequences: Any) -> Path:
    values = {key: value for key, value in SETTINGS.items() if key != "genome"}
    values["promoters"] = {
        **{
            key: value
            for key, value in SETTINGS["promoters"].items()
            if key != "windows"
        },
        "model": {"pooling": "mean", "initial": "random"},
        "sequences": {"positives": "p.fa", **sequences},
    }
    path = home / "run.yaml"
    path.write_text(yaml.safe_dump({"results": str(home / "results"), **values}))
    return path


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with negatives of the user's own, three for two promoters, up to its tokenizer."""
    home = tmp_path_factory.mktemp("own")
    positive, negative = (
        fasta(home / "p.fa", **promoters(240, 1)),
        fasta(home / "n.fa", **others(360, 2)),
    )
    config = configuration(home, negatives="n.fa")
    results = home / "results"
    invoke(
        "prepare sequences",
        positive,
        "--negatives",
        negative,
        "-o",
        results / "promoters",
    )
    invoke("prepare tokenizer", config)
    return config


@pytest.fixture(scope="module")
def model(own: Path) -> Path:
    settings = [
        "training.steps=150",
        "training.optimizer.learning_rate=0.003",
        "model.dropout=0.0",
    ]
    invoke(
        *("finetune-promoter", own, "--negative-set", "user"),
        *(word for setting in settings for word in ("--set", f"promoters.{setting}")),
    )
    return own.parent / "results/models/promoter-user"


def test_the_planted_motif_is_learned_and_reported(
    own: Path, model: Path, tmp_path: Path
) -> None:
    metrics = json.loads((model / "metrics.json").read_text())["test"]
    assert metrics["auroc"] > 0.8
    assert (metrics["n"], metrics["positives"]) == (60, 24)
    invoke(
        "train baseline promoter",
        own,
        "--negative-set",
        "user",
        "-o",
        tmp_path / "fits",
    )
    invoke(
        *("evaluate promoters", f"--predictions=user={model / 'predictions.parquet'}"),
        *(
            f"--promoter-baseline=user={tmp_path / 'fits/kmer.parquet'}",
            "-o",
            tmp_path / "report",
        ),
    )
    table = pd.read_csv(tmp_path / "report/promoters.tsv", sep="\t")
    assert list(table["model"]) == ["model", "network", "k-mer"]
    assert set(table["n"]) == {60} and set(table["positives"]) == {24}
    # The model knows its window and where it comes from.
    assert load_promoter_model(model).settings.window == LENGTH
    assert load_promoter_model(model).settings.upstream == LENGTH // 2
    found = json.loads((model / "provenance.json").read_text())
    files = {role: source["file"] for role, source in found["sequences"].items()}
    assert files == {"positives": "p.fa", "negatives": "n.fa"}
    assert found["held_out_contigs_seen_in_pretraining"] == []


def test_test_sequences_are_scored_one_window_each(
    own: Path, model: Path, tmp_path: Path
) -> None:
    test = own.parent / "results/promoters/test.fa.gz"
    invoke(
        "score-promoters", model, test, "-o", tmp_path / "scores.tsv", "--strand", "+"
    )
    lines = [
        line
        for line in (tmp_path / "scores.tsv").read_text().splitlines()
        if not line.startswith("##")
    ]
    scores = pd.DataFrame(
        [line.split("\t") for line in lines[1:]], columns=lines[0].split("\t")
    )
    predicted = (
        pd.read_parquet(model / "predictions.parquet")
        .query("split == 'test'")
        .set_index("contig")
    )
    assert set(scores["contig"]) == set(predicted.index) == set(scan_fasta(test))
    mine = scores.set_index("contig")["score"].astype(float)
    np.testing.assert_allclose(
        mine, predicted.loc[mine.index, "probability"], atol=1e-4
    )


def test_the_data_set_holds_each_sequence_once_and_its_split(
    own: Path, tmp_path: Path
) -> None:
    home = own.parent
    directory = home / "results/promoters"
    records = promoters(240, 1) | others(360, 2)
    data = read_windows(directory, "user")
    sequences = window_sequences(Reference(directory / "sequences.fa.gz"), data.rows, 1)
    assert dict(zip(data.rows["contig"], sequences, strict=True)) == records
    assert data.rows["pair"].is_unique
    table = read_splits(directory / "splits.tsv")
    assert dict(zip(data.rows["contig"], data.rows["split"], strict=True)) == table
    for name, split in (("training", "train"), ("test", "test")):
        found = scan_fasta(directory / f"{name}.fa.gz")
        assert list(found) == [record for record in records if table[record] == split]
    sizes = data.rows.groupby(["negative_set", "split"]).size().to_dict()
    assert sizes == {
        **{(POSITIVE, "train"): 192, (POSITIVE, "valid"): 24, (POSITIVE, "test"): 24},
        **{("user", "train"): 288, ("user", "valid"): 36, ("user", "test"): 36},
    }
    origin = read_origin(directory)
    assert origin is not None and (origin.upstream, origin.downstream) == (50, 50)
    # The tokenizer learns from no held-out sequence.
    words = (
        "--reference",
        directory / "training.fa.gz",
        "-o",
        tmp_path / "tokenizer.model",
    )
    invoke("prepare tokenizer", own, *words)
    assert (tmp_path / "tokenizer.model").read_bytes() == (
        home / "results/tokens/tokenizer.model"
    ).read_bytes()


def test_derived_negatives_are_made_of_the_positives_in_their_split(
    tmp_path: Path,
) -> None:
    words = ("--negatives-per-positive", 3, "--upstream", UPSTREAM, "--seed", 5)
    data = prepare(tmp_path, promoters(60, 3), *words)
    rows = read_windows(data, "permuted").rows
    assert (rows.groupby("pair")["split"].nunique() == 1).all()
    counts = rows[rows["negative_set"] == "permuted"].groupby(["split", "pair"]).size()
    for split, many in (("train", 3), ("valid", 1), ("test", 1)):
        assert (counts[split] == many).all()
    origin = read_origin(data)
    assert origin is not None and (origin.upstream, origin.downstream) == (60, 40)
    before = (data / "windows.parquet").read_bytes()
    assert (
        prepare(tmp_path, promoters(60, 3), *words) / "windows.parquet"
    ).read_bytes() == before


def test_similar_sequences_and_copies_share_a_split(run: Run, tmp_path: Path) -> None:
    records = promoters(50, 4, motif="")
    records |= {
        f"{name}_copy": reverse_complement(text) for name, text in records.items()
    }
    records |= {
        f"{name}_like": text[20:] + text[:20]
        for name, text in promoters(50, 4, motif="").items()
    }
    result = run(
        "prepare sequences",
        fasta(tmp_path / "p.fa", **records),
        "-o",
        tmp_path / "data",
    )
    assert (
        result.code == 0
        and "50 sequences" in result.err
        and "'p0_copy' of 'p0'" in result.err
    )
    table = read_splits(tmp_path / "data/splits.tsv")
    assert set(table.values()) == {"train", "valid", "test"}
    for name in promoters(50, 4):
        assert len({table[name], table[f"{name}_copy"], table[f"{name}_like"]}) == 1
    # A table that parts them is followed, and the figures' flattery is said.
    moved = {name: "train" if "_" in name else split for name, split in table.items()}
    lines = "".join(f"{name}\t{split}\n" for name, split in moved.items())
    (tmp_path / "mine.tsv").write_text(lines)
    words = ("-o", tmp_path / "data", "--splits", tmp_path / "mine.tsv")
    result = run("prepare sequences", tmp_path / "p.fa", *words)
    held_out = sum(split != "train" for split in moved.values())
    assert f"warning: {held_out} of {held_out} held-out sequences" in result.err
    assert read_splits(tmp_path / "data/splits.tsv") == moved


def test_sequences_of_many_n_are_left_out_and_counted(run: Run, tmp_path: Path) -> None:
    records = promoters(40, 5)
    many, few = int(LENGTH * MAX_N) + 1, int(LENGTH * MAX_N)
    records["p3"] = "N" * many + records["p3"][many:]
    records["p4"] = "r" * few + records["p4"][few:]
    result = run(
        "prepare sequences",
        fasta(tmp_path / "p.fa", **records),
        "-o",
        tmp_path / "data",
    )
    message(result.err, 1, 10)
    found = scan_fasta(tmp_path / "data/sequences.fa.gz")
    assert "p3" not in found and "p4" in found


def test_trimming_is_around_the_middle_and_a_damaged_description_is_named(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(6)
    cores = {f"r{number}": bases(rng, 50) for number in range(40)}
    padded = {
        name: bases(rng, n) + text + bases(rng, n)
        for n, (name, text) in enumerate(cores.items())
    }
    data = prepare(tmp_path, padded, "--length", 50)
    rows = read_windows(data, "permuted").rows.query("negative_set == 'positive'")
    assert window_sequences(Reference(data / "sequences.fa.gz"), rows, 1) == [
        *cores.values()
    ]
    wrong: list[Any] = [
        3,
        {},
        {"upstream": -1, "downstream": 5},
        {"upstream": 1.5, "downstream": 5},
    ]
    for content in ([], *({"window": one} for one in wrong)):
        (tmp_path / "windows.json").write_text(json.dumps(content))
        with fails(DataError, "windows.json"):
            read_origin(tmp_path)


@pytest.mark.parametrize(
    ("code", "options"),
    [
        (2, "--negative-set genomic"),
        (2, "--negative-set user"),
        (2, "--negatives n.fa --negative-set permuted"),
        (2, "--negative-set permuted --negative-set permuted"),
        (2, "--similarity 0"),
        (1, "alike.fa"),
        (1, "--upstream 100"),
        (1, "--length 101"),
        *(
            (1, f"--negatives {name}.fa")
            for name in ("short", "same", "protein", "one", "unknown")
        ),
        (1, "--negatives names.fa --splits train.tsv"),
        *(
            (2, words)
            for words in (
                "p.csv --negatives n.fa",
                "p.csv --splits train.tsv",
                "p.fa n.fa",
            )
        ),
        (1, "p.csv --label-column y"),
        *((1, f"--splits {name}.tsv") for name in ("gone", "some", "more", "train")),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    records = promoters(30, 7)
    names = list(records)
    negatives = {
        "n": others(30, 8),
        "short": {name: text[1:] for name, text in others(30, 8).items()},
        "same": {
            f"c{name}": reverse_complement(text) for name, text in records.items()
        },
        "names": dict(zip(names, others(30, 8).values(), strict=True)),
        "protein": {"m": "MKVLL"},
        "alike": {
            f"p{i}": records["p0"][:i] + "N" + records["p0"][i + 1 :] for i in range(30)
        },
        "one": {"n": others(1, 8)["n0"]},
        "unknown": {"n": "N" * LENGTH},
    }
    for name, content in {"p": records, **negatives}.items():
        fasta(Path(f"{name}.fa"), **content)
    for name, listed in {
        "some": names[:10],
        "more": [*names, "x"],
        "train": names,
    }.items():
        Path(f"{name}.tsv").write_text(
            "".join(f"{record}\ttrain\n" for record in listed)
        )
    Path("p.csv").write_text("sequence,label\nACGT,0\n")
    words = options if not options.startswith("-") else f"p.fa {options}"
    message(
        refused(
            run("prepare sequences", *words.split(), "-o", "data"), code, after_log=True
        )
    )
    assert not Path("data").exists()


def test_tables_give_the_data_set_of_fasta_files(tmp_path: Path, run: Run) -> None:
    positive, negative = promoters(60, 9), others(90, 10)
    words = ("--negatives", fasta(tmp_path / "n.fa", **negative))
    whole = prepare(tmp_path, positive, *words).rename(tmp_path / "whole")
    names = {
        "name": [*positive, *negative],
        "seq": [*positive.values(), *negative.values()],
    }
    table = pd.DataFrame(names).assign(y=[1] * 60 + [0] * 90)
    splits = read_splits(whole / "splits.tsv")
    for split, rows in table.groupby(table["name"].map(splits)):
        rows.to_csv(tmp_path / f"{split}.csv", index=False)
    columns = ("--sequence-column", "seq", "--label-column", "y")
    files = [tmp_path / f"{split}.csv" for split in ("train", "valid", "test")]
    table.to_parquet(tmp_path / "all.parquet")
    for given in ([tmp_path / "all.parquet"], files):
        invoke("prepare sequences", *given, *columns, "-o", tmp_path / "data")
        found, expected = (
            pd.read_parquet(one / "windows.parquet")
            for one in (tmp_path / "data", whole)
        )
        keys = ["contig", "start", "end", "strand", "split", "negative_set", "name"]
        assert sorted(found[keys].itertuples(index=False)) == sorted(
            expected[keys].itertuples(index=False)
        )
    # Without a file for validation, a part of the training sequences is used.
    result = run(
        "prepare sequences", files[0], files[2], *columns, "-o", tmp_path / "data"
    )
    message(result.err)
    counts = pd.read_parquet(tmp_path / "data/windows.parquet")["split"].value_counts()
    assert counts["test"] == 15 and 6 < counts["valid"] < 20


def test_records_without_a_name_of_their_own_get_a_number(
    tmp_path: Path, run: Run
) -> None:
    for name, records in (("p", promoters(40, 11)), ("n", others(40, 12))):
        lines = [
            f">{'' if number % 3 else 'gene'}\n{text}\n"
            for number, text in enumerate(records.values())
        ]
        (tmp_path / f"{name}.fa").write_text("".join(lines))
    words = (
        "prepare sequences",
        tmp_path / "p.fa",
        "--negatives",
        tmp_path / "n.fa",
        "-o",
        tmp_path / "data",
    )
    result = run(*words)
    assert result.code == 0
    message(result.err, "79 of 80")
    data = read_windows(tmp_path / "data", "user")
    assert data.rows["contig"].is_unique and len(data.rows) == 80
    texts = window_sequences(Reference(tmp_path / "data/sequences.fa.gz"), data.rows, 1)
    assert texts == [*promoters(40, 11).values(), *others(40, 12).values()]


# The configuration and the data set have to agree.


@pytest.mark.parametrize(
    "setting", ["promoters.windows.upstream=60", "promoters.training.crop_jitter_bp=50"]
)
def test_a_configured_window_must_be_the_data_set_s(
    own: Path, tmp_path: Path, setting: str
) -> None:
    words = ("--negative-set", "user", "--set", setting, "-o", tmp_path / "m")
    with fails(ConfigError, *setting.split("=")):
        invoke("finetune-promoter", own, *words)
    with fails(ConfigError, "promoters.windows"):
        load_config(own).promoters.windows.sides  # noqa: B018


def test_promoters_of_different_lengths_have_no_base_positions(
    tmp_path: Path, run: Run
) -> None:
    """Trimmed around their middle they have one length, but their TSS is not at one offset."""
    longer = {
        name: text + "ACGT" * (number % 3)
        for number, (name, text) in enumerate(promoters(40, 5).items())
    }
    for name, records, aligned in (
        ("one", promoters(40, 5), True),
        ("several", longer, False),
    ):
        home = tmp_path / name
        home.mkdir()
        positive, negative = (
            fasta(home / "p.fa", **records),
            fasta(home / "n.fa", **others(40, 6)),
        )
        config = configuration(home, negatives="n.fa", length=90)
        words = (
            "--negatives",
            negative,
            "--length",
            "90",
            "-o",
            home / "results/promoters",
        )
        invoke("prepare sequences", positive, *words)
        invoke("prepare tokenizer", config)
        steps = ("--set", "promoters.training.steps=2")
        done = run("finetune-promoter", config, "--negative-set", "user", *steps)
        assert ("no base positions" in done.err) != aligned
        settings = json.loads(
            (home / "results/models/promoter-user/config.json").read_text()
        )["settings"]
        assert settings["base_positions"] == settings["ensemble"] == aligned
