"""`generate` and `evaluate samples`: files, headers, and what they refuse."""

from pathlib import Path
from typing import Any

import pytest

from bigbird_dna.config import EncoderConfig
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.model.directory import save
from bigbird_dna.model.settings import PretrainingSettings, PromoterSettings, Settings
from tests.cli.command import Run, refused
from tests.toys import random_dna, random_model, small_tokenizer


def saved(path: Path, settings: Settings, causal: bool) -> Path:
    tokenizer = small_tokenizer()
    config = EncoderConfig(
        vocabulary=tokenizer.vocabulary, layers=1, hidden=16, heads=2, max_length=64, causal=causal
    )
    save(path, random_model(tokenizer, config, settings, scale=3.0), {}, {}, {})
    return path


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = PretrainingSettings(next_sentence=False, context=48)
    return saved(tmp_path_factory.mktemp("causal") / "model", settings, True)


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("masked") / "model", PretrainingSettings(next_sentence=False), False)


@pytest.fixture
def flanks(tmp_path: Path) -> Path:
    path = tmp_path / "flanks.fa"
    path.write_text(f">one first\n{random_dna(80, 1)}\n>two\n{random_dna(90, 2).lower()}\n")
    return path


def records(text: str) -> list[tuple[str, str]]:
    """Headers and sequences."""
    parts = [part.partition("\n") for part in text.split(">")[1:]]
    return [(header, lines.replace("\n", "")) for header, _, lines in parts]


def test_each_flank_is_continued(run: Run, causal: Path, flanks: Path, tmp_path: Path) -> None:
    out = tmp_path / "samples.fa"
    options = "--num-samples 3 --length 130 --seed 4000000007 --top-k 9 --left-flank"
    words = ("generate", causal, *options.split(), flanks)
    result = run(*words, "--temperature", 0.8, "-o", out)
    assert (result.code, result.out) == (0, "")
    assert "from left to right; attention bigbird: keys and values are kept" in result.err
    assert result.err.splitlines()[-1].endswith("6 samples of 130 bp")
    found = records(out.read_text())
    assert [header.split()[0] for header, _ in found] == [f"sample_{number}" for number in range(1, 7)]
    model = found[0][0].split()[2]
    assert found[0][0] == f"sample_1 by=causal {model} seed=4000000007 temperature=0.8 top_k=9 left=one"
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
    assert result.code == 0 and "by filling gaps in 3 rounds" in result.err
    prepare_reference(out, tmp_path / "read.fa.gz")  # a FASTA file that others can read
    text = run("generate", masked, *words).out
    header, sample = records(text)[3]
    assert header.endswith("seed=1 rounds=3 temperature=1 left=two right=two") and len(sample) == 40


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--temperature", 0], 2),
        (["--temperature", "nan"], 2),
        (["--top-k", 0], 2),
        (["--top-p", 2], 2),
        (["--seed", 2**32], 2),
        (["--length", 10**9], 2),
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


def test_flanks_come_in_pairs(run: Run, masked: Path, flanks: Path, tmp_path: Path) -> None:
    (tmp_path / "other.fa").write_text(">a\nACGT\n")
    words = ("--left-flank", flanks, "--right-flank", tmp_path / "other.fa")
    refused(run("generate", masked, *words), 1)


def test_a_gap_that_is_too_long_is_told(run: Run, masked: Path) -> None:
    result = run("generate", masked, "--length", 500)
    refused(result, 2, after_log=True)


def test_other_models_and_places_are_refused(run: Run, tmp_path: Path) -> None:
    settings = PromoterSettings(upstream=30, downstream=10, pooling="mean", jitter=0, views=1)
    model = saved(tmp_path / "promoters", settings, False)
    refused(run("generate", model), 1)
    refused(run("generate", tmp_path / "none"), 1)


def test_models_of_next_tokens_go_where_they_can(run: Run, causal: Path, tmp_path: Path) -> None:
    refused(run("export-hf", causal, tmp_path / "hf"), 1)
    (tmp_path / "genome.fa").write_text(f">a\n{random_dna(900, 1)}\n>b\n{random_dna(900, 2)}\n")
    prepare_reference(tmp_path / "genome.fa", tmp_path / "genome.fa.gz")
    words = ("--reference", tmp_path / "genome.fa.gz", "--contig", "a", "-o", tmp_path / "c.tsv")
    refused(run("evaluate across-tokenizers", causal, *words), 1)


def test_samples_are_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "genome.fa").write_text(f">a\n{random_dna(9000, 1)}\n>b\n{random_dna(9000, 2)}\n")
    prepare_reference(tmp_path / "genome.fa", tmp_path / "genome.fa.gz")
    (tmp_path / "samples.fa").write_text(f">s\n{random_dna(900, 3)}\n")
    words = ("evaluate samples", tmp_path / "samples.fa", "--reference", tmp_path / "genome.fa.gz")
    result = run(*words, "--contig", "a", "--max-k", 2, "-o", tmp_path / "report")
    assert (result.code, result.out) == (0, "")
    names = {path.name for path in (tmp_path / "report").iterdir()}
    assert names >= {"samples.tsv", "gc.tsv", "samples.json", "samples.svg"}
    refused(run(*words, "--contig", "c", "-o", tmp_path / "x"), 1)
    refused(run(*words, "--contig", "a", "--max-k", 12, "-o", tmp_path / "x"), 2)
    (tmp_path / "samples.fa").write_text("")
    refused(run(*words, "--contig", "a", "-o", tmp_path / "x"), 1)
