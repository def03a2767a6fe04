"""The warning of commands that score DNA unlike the sequence their model was trained on."""

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import bigbird_dna
from bigbird_dna.config.reading import load_config
from bigbird_dna.data.labeled_sequences import read_labeled_sequences
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.errors import ModelError
from bigbird_dna.genome.profile import FILE, training_profile
from bigbird_dna.genome.reference import prepare_reference, write_fasta
from bigbird_dna.genome.sequence_tables import TableColumns
from bigbird_dna.model.directory import load, save
from bigbird_dna.model.model import training_profile_of
from bigbird_dna.model.settings import PretrainingSettings, SequenceSettings
from bigbird_dna.registry import combine_models
from bigbird_dna.simulate import simulate
from tests import test_public_api as public
from tests import tiny_run
from tests.cli.command import Result, Run, invoke
from tests.golden.messages import fails, message
from tests.toys import (
    VCF,
    random_dna,
    random_model,
    small_encoder,
    small_tokenizer,
    update_json,
)

LENGTH = 24_000
SETTINGS = {
    "promoter": public.PROMOTER,
    "chromatin": public.CHROMATIN,
    "sequences": SequenceSettings(
        kind="binary", outputs=("label",), length=600, pooling="mean", jitter=0, views=1
    ),
    "pretraining": PretrainingSettings(),
}


def unlike(length: int, seed: int) -> str:
    return "".join(np.random.default_rng(seed).choice(list("ACGT"), length))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models with a profile of `random_dna`; inputs `like` and `unlike`, each with regions and variants."""
    home = tmp_path_factory.mktemp("unlike")
    tokenizer = small_tokenizer()
    config = small_encoder(tokenizer.vocabulary)
    profile = training_profile(
        [random_dna(400_000, 1)], assembly="toy1", species="Toyus toyus"
    )
    assert profile is not None
    for name, settings in SETTINGS.items():
        save(home / name, random_model(tokenizer, config, settings), {}, {}, {})
        write_json(home / name / FILE, profile.model_dump(mode="json"))
    for name, make in {"like": random_dna, "unlike": unlike}.items():
        text = make(LENGTH, 77)
        (home / f"{name}.fa").write_text(
            "".join(
                f">r{start}\n{text[start : start + 600].lower()}\n"
                for start in range(0, LENGTH, 600)
            )
        )
        write_fasta(home / f"{name}.fa.gz", [("a", text)])
        (home / f"{name}.bed").write_text("a\t1000\t1020\n")
        alt = "A" if text[499] != "A" else "C"
        (home / f"{name}.vcf").write_text(
            f"{VCF}a\t500\t.\t{text[499]}\t{alt}\t.\t.\t.\n"
        )
    return home


Score = Callable[[str], Result]


def scores(run: Run, home: Path, out: Path) -> dict[str, Score]:
    """Each way to score the input of a name."""
    last, read = ("--device", "cpu"), ("--reference",)
    return {
        "score-promoters": lambda x: run(
            "score-promoters",
            home / "promoter",
            home / f"{x}.fa",
            "--stride",
            600,
            "-o",
            out / "p.tsv",
            *last,
        ),
        "score-promoters contig": lambda x: run(
            "score-promoters",
            home / "promoter",
            home / f"{x}.fa.gz",
            "--stride",
            2000,
            *last,
        ),
        "score-promoters stdin": lambda x: run(
            "score-promoters",
            home / "promoter",
            "-",
            "--stride",
            600,
            *last,
            stdin=(home / f"{x}.fa").read_bytes(),
        ),
        "score-sequences": lambda x: run(
            "score-sequences",
            home / "sequences",
            home / f"{x}.fa",
            "-o",
            out / "s.tsv",
            *last,
        ),
        "score-sequences stdin": lambda x: run(
            "score-sequences",
            home / "sequences",
            "-",
            *last,
            stdin=(home / f"{x}.fa").read_bytes(),
        ),
        "predict-tracks": lambda x: run(
            "predict-tracks",
            home / "chromatin",
            home / f"{x}.bed",
            *read,
            home / f"{x}.fa.gz",
            *last,
        ),
        "score-variants": lambda x: run(
            "score-variants",
            home / "chromatin",
            home / f"{x}.vcf",
            *read,
            home / f"{x}.fa.gz",
            *last,
        ),
        "score-variants promoter": lambda x: run(
            "score-variants",
            home / "promoter",
            home / f"{x}.vcf",
            *read,
            home / f"{x}.fa.gz",
            *last,
        ),
    }


WAYS = [*scores(lambda *_: Result(0, "", ""), Path(), Path())]


@pytest.mark.parametrize("way", WAYS)
def test_a_command_warns_once_and_scores(
    run: Run, home: Path, tmp_path: Path, way: str
) -> None:
    score = scores(run, home, tmp_path)[way]
    good, found = score("like"), score("unlike")
    assert (good.code, found.code) == (0, 0), found.err
    assert "toy1" not in good.err and found.err.count("toy1") == 1
    message(found.err, "5-mer", "Toyus toyus", "50%", "35%")


def test_results_do_not_depend_on_the_profile(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A model without one gives no warning; a damaged one is named, and the input is scored."""
    model = random_model(
        small_tokenizer(),
        small_encoder(small_tokenizer().vocabulary),
        SETTINGS["sequences"],
    )
    save(tmp_path / "bare", model, {}, {}, {})
    save(tmp_path / "damaged", model, {}, {}, {})
    (tmp_path / "damaged" / FILE).write_text('{"format": 1}')
    results = []
    for path, warns in (
        (home / "sequences", "toy1"),
        (tmp_path / "bare", None),
        (tmp_path / "damaged", FILE),
    ):
        bigbird_dna.score_sequences(
            path, home / "unlike.fa", tmp_path / "x.parquet", device="cpu"
        )
        err = capfd.readouterr().err
        assert ("warning" in err) == (warns is not None) and (warns or "") in err
        results.append(pd.read_parquet(tmp_path / "x.parquet"))
    assert all(one.equals(results[0]) for one in results)
    assert (
        training_profile_of(load(tmp_path / "bare")) is None
        and training_profile_of(model) is None
    )
    with fails(ModelError, FILE):
        training_profile_of(load(tmp_path / "damaged"))


def test_a_few_short_sequences_are_not_compared(
    run: Run, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "x.fa").write_text(
        "".join(f">{seed}\n{unlike(600, seed)}\n" for seed in range(10))
    )
    assert (
        "warning"
        not in run(
            "score-sequences", home / "sequences", tmp_path / "x.fa", "--device", "cpu"
        ).err
    )


def test_models_made_of_others_keep_the_profile(home: Path, tmp_path: Path) -> None:
    profile = training_profile_of(load(home / "chromatin"))
    assert profile is not None and profile.name == "toy1, Toyus toyus"
    shutil.copytree(home / "chromatin", tmp_path / "small")
    combine_models([home / "chromatin", tmp_path / "small"], tmp_path / "both")
    assert training_profile_of(load(tmp_path / "both")) == profile
    update_json(tmp_path / "small" / FILE, assembly="toy2")
    combine_models([home / "chromatin", tmp_path / "small"], tmp_path / "mixed")
    assert not (tmp_path / "mixed" / FILE).exists()


@pytest.mark.parametrize("kind", ["binary", "multiclass", "multilabel", "regression"])
def test_labeled_sequences_have_a_profile(tmp_path: Path, kind: str) -> None:
    """A model of two kinds of DNA does not warn of either."""
    texts = [(random_dna, unlike)[seed % 3 == 0](500, seed) for seed in range(420)]
    label = {"multiclass": ("a", "b", "c"), "regression": ("0.5", "1.5", "0.7")}.get(
        kind, ("1", "0", "0")
    )
    columns = ("label_1", "label_2") if kind == "multilabel" else ("label",)
    rows = [
        ",".join(
            [
                text,
                *[label[seed % 3]] * len(columns),
                ("train", "valid", "test", *["train"] * 4)[seed % 7],
            ]
        )
        for seed, text in enumerate(texts)
    ]
    (tmp_path / "x.csv").write_text(
        "\n".join([",".join(["sequence", *columns, "split"]), *rows]) + "\n"
    )
    sequences = read_labeled_sequences(
        [tmp_path / "x.csv"], columns=TableColumns(labels=columns)
    )
    assert sequences.labels.kind == kind
    profile = sequences.profile(sequences.rows("train"))
    assert (
        profile is not None and profile.kind == "sequences" and profile.bases == 148_500
    )
    distances = [limit.distance for limit in profile.limits]
    assert all(0 < after <= before for before, after in pairwise(distances))


def test_trainings_on_a_genome_store_its_profile(run: Run, tmp_path: Path) -> None:
    """That of the contigs for training: a scan of whole contigs, held-out ones too, gives no warning."""
    simulate(tmp_path, seed=1, megabases=0.2)
    genome = {"assembly": "demo", "valid": ["demo5"], "test": ["demo6"]}
    encoder = {**tiny_run.SETTINGS["encoder"], "max_length": 512}
    promoters = {"model": {"initial": "random"}, "training": tiny_run.STEPS}
    chromatin = {
        "data": tiny_run.WHOLE["chromatin"]["data"],
        "model": {**tiny_run.WHOLE["chromatin"]["model"], "initial": "random"},
        "training": tiny_run.WHOLE["chromatin"]["training"],
    }
    config = {
        "results": str(tmp_path / "run"),
        "genome": genome,
        "tokens": tiny_run.WHOLE["tokens"],
        "encoder": encoder,
    }
    config |= {"promoters": promoters, "chromatin": chromatin}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    paths = load_config(tmp_path / "run.yaml").paths
    prepare_reference(tmp_path / "genome.fa.gz", paths.reference)
    invoke(
        "prepare promoters",
        tmp_path / "promoters.sga",
        "--reference",
        paths.reference,
        "-o",
        paths.promoters,
    )
    words = ("--checkpoint-dir", tmp_path / "checkpoints", "--device", "cpu")
    for command in ("prepare tokenizer", "prepare promoter-windows"):
        invoke(command, tmp_path / "run.yaml")
    invoke(
        "finetune-promoter",
        tmp_path / "run.yaml",
        "--negative-set",
        "genomic",
        "-o",
        tmp_path / "promoter",
        *words,
    )
    invoke(
        "prepare chromatin",
        tmp_path / "run.yaml",
        "--track-table",
        tmp_path / "tracks.tsv",
    )
    invoke(
        "finetune-chromatin",
        tmp_path / "run.yaml",
        "-o",
        tmp_path / "chromatin",
        *words,
    )
    found = [
        training_profile_of(load(tmp_path / name)) for name in ("promoter", "chromatin")
    ]
    for profile in found:
        assert profile is not None and (profile.kind, profile.assembly) == (
            "genome",
            "demo",
        )
    assert found[0].frequencies == found[1].frequencies
    result = run(
        "score-promoters",
        tmp_path / "promoter",
        tmp_path / "genome.fa.gz",
        "--stride",
        20000,
    )
    assert result.code == 0 and "warning" not in result.err
