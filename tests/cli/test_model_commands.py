"""Commands of models: what they write, and what they refuse in one sentence."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigbird_dna.config import load_config
from bigbird_dna.genome.reference import prepare_reference, write_fasta
from bigbird_dna.model.catalog import Published
from bigbird_dna.model.directory import save
from bigbird_dna.model.settings import PretrainingSettings, PromoterSettings, Settings
from tests.cli.command import Run, refused, silent
from tests.golden.messages import message
from tests.registry.shelf import installed as installed
from tests.registry.shelf import make_toy, write_list
from tests.registry.shelf import shelf as shelf
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer


def test_bins_that_are_no_data_set(run: Run, tiny_config: Path, tmp_path: Path) -> None:
    reference = Path(load_config(tiny_config).results) / "genome/reference.fa.gz"
    words = [
        "prepare filter-bins",
        tmp_path,
        "--reference",
        reference,
        "-o",
        tmp_path.parent / "kept",
    ]
    refused(run(*words, "--similarity", 0.5), 1, tmp_path)


# `fetch-model`, `model to-float16` and `model package` on the command line, and models by their names


def test_from_a_training_to_a_list_and_back(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/files/model-catalog.md says it."""
    monkeypatch.chdir(tmp_path)
    make_toy(Path("trained"))
    assert silent(run)("model to-float16", "trained", "-o", "small").code == 0
    result = run(
        *(
            "model package",
            "small",
            "-o",
            "toy.tar",
            "--name",
            "toy",
            "--license",
            "CC0-1.0",
        ),
        *("--description", "A toy: of the tests", "--command", "make demo"),
    )
    assert result.code == 0, result
    Path("models.yaml").write_text(result.out)
    with tarfile.open("toy.tar") as archive:
        archive.extraction_filter = getattr(
            tarfile, "data_filter", None
        )  # not before Python 3.11.4
        archive.extractall("models")
    entry = yaml.safe_load(result.out)["toy"]
    assert (entry["task"], entry["license"], entry["where"]) == (
        "promoter",
        "CC0-1.0",
        "toy",
    )
    result = silent(run)(
        "fetch-model", "toy", "-o", "fetched", "--catalog", "models.yaml"
    )
    assert result.code == 0, result
    assert "license: CC0-1.0" in result.err and "fetched/MODEL_CARD.md" in result.err
    for name in ("model.safetensors", "config.json", "metrics.json", "training.jsonl"):
        assert Path("fetched", name).read_bytes() == Path("small", name).read_bytes()
    card = Path("fetched/MODEL_CARD.md").read_text()
    assert "# toy\n\nA toy: of the tests\n" in card and "$ make demo\n" in card


def test_the_list_is_told(run: Run, installed: Path) -> None:
    for result in (
        run("fetch-model", "--list"),
        run("fetch-model", "--list", "--catalog", installed),
    ):
        assert (result.code, result.err) == (0, "")
        header, row = (line.split("\t") for line in result.out.splitlines())
        assert header == ["#name", "task", "MB", "from", "license", "description"]
        assert row == ["toy", "promoter", "0.1", "bundled", "free for all", "A toy"]
    assert not list(Path().iterdir())


def test_commands_take_the_name_of_a_bundled_model(run: Run, installed: Path) -> None:
    write_fasta(Path("x.fa.gz"), [("one", random_dna(300, 1))])
    for words in (
        ["score-promoters", "toy", "x.fa.gz"],
        ["model to-float16", "toy", "-o", "a"],
        ["export-hf", "toy", "b"],
    ):
        assert run(*words).code == 0
    assert run("model extend-context", "toy", "-o", "c", "--positions", 128).code == 0
    assert json.loads(Path("c/provenance.json").read_text())["contigs"] == [
        "chrI",
        "chr_II",
    ]


def test_a_named_model_is_an_input_that_is_not_replaced(
    run: Run, installed: Path
) -> None:
    bundled = installed.parent / "models/toy"
    for words in (
        ["model to-float16", "toy", "-o", bundled],
        ["export-hf", "toy", bundled],
        ["model extend-context", "toy", "-o", bundled, "--positions", 128],
        ["fetch-model", "toy", "-o", bundled],
    ):
        refused(run(*words), 2, bundled)


def test_faults(run: Run, installed: Path) -> None:
    refused(run("fetch-model"), 2)
    refused(run("fetch-model", "tay"), 2)
    refused(run("fetch-model", "toy", "--list"), 2)
    refused(run("fetch-model", "toy", "--catalog", "none.yaml"), 2)
    refused(run("score-promoters", "tay", "x.fa"), 1)
    words = (
        "model package",
        installed.parent / "made",
        "-o",
        "x.tar",
        "--license",
        "free",
    )
    refused(run(*words, "--description", "a\nb"), 2)
    refused(run(*words, "--description", "a", "--name", "a/b"), 2)
    entry = Published(installed).models["toy"].model_dump() | {
        "where": ["http://127.0.0.1:9/toy.tar"]
    }
    write_list(installed, {"toy": entry})
    refused(
        run("fetch-model", "toy", "--catalog", installed),
        1,
        "toy",
        entry["where"][0],
        after_log=True,
    )
    refused(
        run("score-promoters", "toy", "x.fa"), 1
    )  # of the package's list now, and has to be fetched
    assert not [one for one in Path().rglob("*") if one.name != "models"]


# `generate`: files, headers, and what they refuse


def saved(path: Path, settings: Settings, causal: bool) -> Path:
    tokenizer = small_tokenizer()
    config = small_encoder(tokenizer.vocabulary, max_length=64, causal=causal)
    save(path, random_model(tokenizer, config, settings, scale=3.0), {}, {}, {})
    return path


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = PretrainingSettings(next_sentence=False, context=48)
    return saved(tmp_path_factory.mktemp("causal") / "model", settings, True)


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(
        tmp_path_factory.mktemp("masked") / "model",
        PretrainingSettings(next_sentence=False),
        False,
    )


@pytest.fixture
def flanks(tmp_path: Path) -> Path:
    path = tmp_path / "flanks.fa"
    path.write_text(
        f">one first\n{random_dna(80, 1)}\n>two\n{random_dna(90, 2).lower()}\n"
    )
    return path


def records(text: str) -> list[tuple[str, str]]:
    """Headers and sequences."""
    parts = [part.partition("\n") for part in text.split(">")[1:]]
    return [(header, lines.replace("\n", "")) for header, _, lines in parts]


def test_each_flank_is_continued(
    run: Run, causal: Path, flanks: Path, tmp_path: Path
) -> None:
    out = tmp_path / "samples.fa"
    options = "--num-samples 3 --length 130 --seed 4000000007 --top-k 9 --left-flank"
    words = ("generate", causal, *options.split(), flanks)
    result = run(*words, "--temperature", 0.8, "-o", out)
    assert (result.code, result.out) == (0, "")
    message(result.err, "bigbird", "6", "130 bp")
    found = records(out.read_text())
    assert [header.split()[0] for header, _ in found] == [
        f"sample_{number}" for number in range(1, 7)
    ]
    model = found[0][0].split()[2]
    assert (
        found[0][0]
        == f"sample_1 by=causal {model} seed=4000000007 temperature=0.8 top_k=9 left=one"
    )
    assert found[5][0].endswith("left=two")
    assert [len(sample) for _, sample in found] == [130] * 6
    assert max(map(len, out.read_text().splitlines()[1::4])) == 60
    again = run(*words, "--temperature", 0.8, "--threads", 2)
    assert again.out == out.read_text()  # to standard output, with other threads


def test_gaps_are_filled(run: Run, masked: Path, flanks: Path, tmp_path: Path) -> None:
    out = tmp_path / "samples.fa.gz"
    options = "--num-samples 2 --length 40 --iterations 3 --left-flank"
    words = (*options.split(), flanks, "--right-flank", flanks)
    result = run("generate", masked, *words, "-o", out)
    message(result.err, "3 ")
    prepare_reference(out, tmp_path / "read.fa.gz")  # a FASTA file that others can read
    text = run("generate", masked, *words).out
    header, sample = records(text)[3]
    assert (
        header.endswith("seed=1 rounds=3 temperature=1 left=two right=two")
        and len(sample) == 40
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--top-p", 2], 2),
        (["--right-flank", "flanks.fa"], 2),
        (["--left-flank", "none.fa"], 1),
        (["--left-flank", "protein.fa"], 1),
        (["-o", "nowhere/samples.fa"], 2),
        (["-o", "flanks.fa", "--left-flank", "flanks.fa"], 2),
    ],
)
def test_what_a_causal_model_is_not_asked(
    run: Run,
    causal: Path,
    flanks: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[Any],
    code: int,
) -> None:
    (tmp_path / "protein.fa").write_text(">p\nACGL\n")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    refused(run("generate", causal, "--length", 20, *words), code)
    assert sorted(tmp_path.iterdir()) == before


def test_what_else_generate_is_not_asked(
    run: Run, masked: Path, flanks: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.fa").write_text(">a\nACGT\n")
    words = ("--left-flank", flanks, "--right-flank", tmp_path / "other.fa")
    refused(run("generate", masked, *words), 1)  # flanks come in pairs
    settings = PromoterSettings(
        upstream=30, downstream=10, pooling="mean", jitter=0, views=1
    )
    refused(run("generate", saved(tmp_path / "promoters", settings, False)), 1)
    refused(run("generate", tmp_path / "none"), 1)


def test_models_of_next_tokens_go_where_they_can(
    run: Run, causal: Path, tmp_path: Path
) -> None:
    refused(run("export-hf", causal, tmp_path / "hf", "--code", "never"), 1)
