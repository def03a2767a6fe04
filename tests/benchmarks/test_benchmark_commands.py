"""`bigbird-dna benchmark` from the command line: files, tables, and users' mistakes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import bigbird_dna
from benchmarks import figure
from benchmarks.formulas import stated_exponent
from bigbird_dna.cli.app import app
from bigbird_dna.config import Mechanism, Section, find_mechanism, known_mechanisms
from bigbird_dna.disk.directories import MARKER
from bigbird_dna.errors import UsageError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.golden.messages import fails
from tests.toys import cases

TINY = [
    "--heads",
    "2",
    "--pattern",
    "16",
    "2",
    "3",
    "3",
    "--repeats",
    "2",
    "--device",
    "cpu",
]
ATTENTION = ["attention", "--lengths", "256", "--width", "8", *TINY]
ENCODER = [
    "encoder",
    "--lengths",
    "256",
    "--layers",
    "1",
    "--hidden",
    "16",
    "--vocabulary",
    "40",
    *TINY,
]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["benchmark", *arguments])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_attention_writes_numbers_table_and_figure(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    options = ["--contenders", "blocked", "--passes", "forward", "--threads", "1"]
    text = run(*ATTENTION, *options, "-o", str(out))
    assert "### Forward\n" in text
    result = json.loads((out / "benchmark.json").read_text())
    assert result["machine"]["threads"] == 1
    assert result["settings"]["lengths"] == [256]
    (row,) = result["results"]
    assert row["status"] == "measured"
    assert row["peak_mib"] is None or 0 <= row["peak_mib"] < 100
    assert "|    256 | blocked   |" in text
    assert (out / "benchmark.md").read_text() == text
    assert (out / "benchmark.svg").read_text().startswith("<?xml")
    files = {"benchmark.json", "benchmark.md", "benchmark.svg", MARKER}
    assert {path.name for path in out.iterdir()} == files


@pytest.mark.slow
def test_mechanisms_take_part_and_their_growth_is_told(tmp_path: Path) -> None:
    names = ["sdpa", "combiner_fixed", "combiner_routing"]
    words = [
        "attention",
        "--lengths",
        "32,64,128",
        "--width",
        "8",
        *TINY,
        "--contenders",
        ",".join(names),
    ]
    options = [
        "--passes",
        "forward",
        "--no-memory",
        "--growth-from",
        "32",
        "--threads",
        "1",
    ]
    text = run(*words, *options, "-o", str(tmp_path / "out"))
    result = json.loads((tmp_path / "out/benchmark.json").read_text())
    assert [row["status"] for row in result["results"]] == ["measured"] * 9
    assert [fit["contender"] for fit in result["growth"]] == names
    assert {fit["base"] for fit in result["growth"]} == {32}
    assert "from 32 tokens on" in text and "| Forward | combiner_routing" in text
    stated = {fit["contender"]: fit["stated"] for fit in result["growth"]}
    assert stated["sdpa"] == 2.0 and 1 < stated["combiner_fixed"] < 1.5
    assert f" {stated['combiner_fixed']:.2f} |" in text and "of the formula" in text


@pytest.mark.slow
def test_all_mechanisms_go_by_one_word(tmp_path: Path) -> None:
    words = [
        "attention",
        "--lengths",
        "64",
        "--width",
        "8",
        *TINY,
        "--contenders",
        "sdpa,axial,mechanisms",
    ]
    options = ["--passes", "forward", "--no-memory", "--threads", "1", "--repeats", "1"]
    run(*words, *options, "-o", str(tmp_path / "out"))
    result = json.loads((tmp_path / "out/benchmark.json").read_text())
    names = [row["contender"] for row in result["results"]]
    assert names == [
        "sdpa",
        "axial",
        *(name for name in sorted(known_mechanisms()) if name != "axial"),
    ]
    assert {row["status"] for row in result["results"]} == {"measured"}
    assert len({looks for looks in figure.looks_of(names)}) == len(names)


def test_stated_powers_are_those_of_the_documentation() -> None:
    """Of the table of docs/results/attention.md, for heads of 64 and lengths from 2^10 to 2^14."""
    expected = {
        "sparse_fixed": 1.33,
        "logsparse": 1.12,
        "routing": 1.30,
        "performer": 1.0,
        "reformer": 1.0,
    }
    expected |= {
        "combiner_fixed": 1.33,
        "combiner_routing": 1.37,
        "combiner_mixture": 1.33,
    }
    lengths = [2**power for power in range(10, 15)]
    for name, power in expected.items():
        assert stated_exponent(find_mechanism(name), 64, lengths) == pytest.approx(
            power, abs=0.006
        ), name
    own = Mechanism("own", Section, lambda shape, options: None, cost="L²")
    assert stated_exponent(own, 64, lengths) == pytest.approx(2)
    assert stated_exponent(own, 64, lengths[:1]) is None
    for cost in ("as it likes", "L · ", "L · unknown", "L / 0"):
        vague = Mechanism("vague", Section, lambda shape, options: None, cost=cost)
        assert stated_exponent(vague, 64, lengths) is None


def test_encoder_prints_tokens_a_second() -> None:
    text = run(
        *ENCODER, "--contenders", "bigbird,full", "--passes", "inference", "--no-memory"
    )
    assert "tokens/s" in text
    assert "bigbird-dna, full attention" in text


def test_models_train_and_score(tmp_path: Path) -> None:
    options = [
        "--shapes",
        "1x16,1x32",
        "--repeats",
        "1",
        "--threads",
        "1",
        "--max-seconds",
        "0.01",
    ]
    text = run("models", *options, "-o", str(tmp_path / "out"))
    result = json.loads((tmp_path / "out/benchmark.json").read_text())
    assert (tmp_path / "out/benchmark.md").read_text() == text
    assert result["machine"]["cpu"] in text and result["machine"]["threads"] == 1
    rows = result["results"]
    assert {row["model"] for row in rows} == {"1 × 16", "1 × 32"}
    for row in rows:
        assert row["per_second"] > 0 and 0 < row["share"] < 3
        assert (row["in_products"] is None) == row["work"].startswith("scoring")
        assert row["in_products"] is None or 0 < row["in_products"] < 1
    assert {row["work"].partition(",")[0] for row in rows} == {"training", "scoring"}


@pytest.fixture
def genome(reference: Reference, tokenizer: DnaTokenizer, tmp_path: Path) -> list[str]:
    """Options that name a genome and a tokenizer."""
    tokenizer.save(tmp_path / "tokenizer.model")
    return [
        "--reference",
        str(reference.path),
        "--tokenizer",
        str(tmp_path / "tokenizer.model"),
    ]


def test_batches_of_both_ways(
    tmp_path: Path, reference: Reference, genome: list[str]
) -> None:
    options = [
        *genome,
        "--window-bp",
        "1000,400",
        "--steps",
        "4",
        "--training-batch-size",
        "3",
    ]
    text = run("batches", *options, "--repeats", "2", "-o", str(tmp_path / "out"))
    result = json.loads((tmp_path / "out/benchmark.json").read_text())
    assert (tmp_path / "out/benchmark.md").read_text() == text
    assert result["vocabulary"] == 96 and result["reference"] == reference.path.name
    assert [(row["window"], row["windows"]) for row in result["results"]] == [
        (1000, 12),
        (400, 12),
    ]
    for row in result["results"]:
        assert len(row["plain"]["seconds"]) == len(row["fast"]["seconds"]) == 2
        assert row["times_as_fast"]["medians"] > 0
        assert f"| {row['window']:,} bp |" in text
    assert not (tmp_path / "out/benchmark.svg").exists()


def test_batches_that_differ_are_no_result(
    genome: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "bigbird_dna.finetuning.chromatin.turn", lambda letters: letters
    )
    options = [
        *genome,
        "--window-bp",
        "400",
        "--steps",
        "1",
        "--training-batch-size",
        "16",
        "--repeats",
        "1",
    ]
    with fails(RuntimeError):
        run("batches", *options)


MISTAKES = {
    "models --shapes": ["2-128", "2x100"],
    "batches --window-bp": ["8k", "1000,100"],
    "attention --lengths": ["4k", "0", "64,64"],
    "attention --contenders": ["xformers"],
    "attention --passes": ["forward,inference"],
    "attention --dtype": ["float16"],
    "attention --device": ["tpu"],
    "attention --contenders blocked --relative-to": ["sdpa"],
    "attention --max-seconds": ["0"],
    "attention --pattern": ["16 2 4 3"],
    "encoder --hidden": ["15"],
    "encoder --route": ["fast"],
    "encoder --contenders": ["native"],
}


@pytest.mark.parametrize(("options", "value"), cases(MISTAKES))
def test_mistakes_name_the_value(options: str, value: str) -> None:
    command, *words = f"{options} {value}".split()
    arguments = {"attention": ATTENTION, "encoder": ENCODER}.get(command, [command])
    with fails(UsageError):
        run(*arguments, *words)


def test_an_output_that_is_a_file_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with fails(UsageError):
        run(*ATTENTION, "--contenders", "blocked", "-o", str(tmp_path / "out"))


def test_outside_a_checkout_the_command_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "benchmarks").mkdir()  # another package's, beside this one
    monkeypatch.setattr(
        bigbird_dna, "__file__", str(tmp_path / "bigbird_dna" / "__init__.py")
    )
    with fails(UsageError) as caught:
        run(*ATTENTION)
    assert caught.value.exit_code == 2
