"""Standard output gets results as they are made; nothing waits for the end of the input."""

import io
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bigbird_dna
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.data.predictions import BITS_COLUMNS
from bigbird_dna.errors import DataError
from bigbird_dna.model import batching as calls
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.directory import save
from bigbird_dna.model.inference import cpu_threads
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.model.settings import PromoterSettings
from tests.cli.command import Run
from tests.cli.test_score_variants import HEADER, hashed_model, line
from tests.golden.messages import fails
from tests.scoring.conftest import CHROMATIN, PROMOTER, RECORDS
from tests.toys import VCF, hashed, predictions, random_dna, random_model

SEQUENCE = random_dna(13_000, 1)
PLACES = 60


class Output(io.BytesIO):
    """Standard output, whose content can be looked at meanwhile."""

    @property
    def lines(self) -> list[str]:
        return self.getvalue().decode().splitlines()


@pytest.fixture
def output() -> Output:
    """What a scorer writes to standard output."""
    return Output()


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are put."""
    path = tmp_path / "tmp"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


class Watched:
    """Predictions that any base can change; before each call `before` is called with its number."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self.calls = shape, 0
        self.before: Callable[[int], object] = lambda _: None

    def __call__(self, sequences: Sequence[str], **_: Any) -> np.ndarray:
        self.calls += 1
        self.before(self.calls)
        return hashed(sequences, *self.shape)


class Scorer:
    """A scorer of a small genome, to standard output."""

    def __init__(
        self, name: str, home: Path, output: Output, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.name = name
        self.stdout: io.TextIOBase = io.TextIOWrapper(output)
        self.monkeypatch = monkeypatch
        self.genome, self.bed, self.vcf = (
            home / "genome.fa",
            home / "x.bed",
            home / "x.vcf",
        )
        self.predict = Watched(() if name == "score_promoters" else (1, 3))
        if name == "score_promoters":
            settings = PromoterSettings(
                upstream=45, downstream=15, pooling="mean", jitter=0, views=1
            )
            model: Any = LoadedPromoterModel(
                nn.Module(), None, EncoderConfig(), settings, Path("model")
            )
            model.__dict__["sha256"] = "abcd"
        else:
            model = hashed_model(60)
        monkeypatch.setattr(
            type(model),
            "window_probabilities",
            lambda _, texts, **__: self.predict(texts),
        )
        monkeypatch.setattr("bigbird_dna.scoring.variants.RECORDS_AT_ONCE", 8)
        monkeypatch.setattr("bigbird_dna.scoring.tracks.REGIONS_AT_ONCE", 8)
        monkeypatch.setattr("bigbird_dna.scoring.scan.WINDOWS_AT_ONCE", 8)
        for function in (
            "promoters.load_scan_model",
            "tracks.load_chromatin_model",
            "variants.load",
        ):
            monkeypatch.setattr(f"bigbird_dna.scoring.{function}", lambda _: model)

    def __call__(self, source: Path | str | None = None, **options: Any) -> Any:
        self.monkeypatch.setattr(
            sys, "stdout", self.stdout
        )  # pytest puts its own in the place of a fixture's
        score = getattr(bigbird_dna, self.name)
        if self.name == "score_promoters":
            return score("model", source or self.genome, stride=60, **options)
        return score("model", source or self.input, self.genome, **options)

    @property
    def input(self) -> Path:
        return {"score_promoters": self.genome, "predict_tracks": self.bed}.get(
            self.name, self.vcf
        )


@pytest.fixture(params=["score_promoters", "predict_tracks", "score_variants"])
def scorer(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    output: Output,
    monkeypatch: pytest.MonkeyPatch,
) -> Scorer:
    (tmp_path / "genome.fa").write_text(f">chr1\n{SEQUENCE}\n")
    places = range(200, 200 * (PLACES + 1), 200)
    (tmp_path / "x.bed").write_text(
        "".join(f"chr1\t{start}\t{start + 2}\n" for start in places)
    )
    bases = [SEQUENCE[place - 1] for place in places]
    records = [
        line("chr1", place, base, "A" if base != "A" else "C")
        for place, base in zip(places, bases, strict=True)
    ]
    (tmp_path / "x.vcf").write_text(HEADER + "".join(records))
    return Scorer(request.param, tmp_path, output, monkeypatch)


HEADS = ("#", "contig\t")
FORMATS = {
    "score_promoters": ("tsv", "bed", "bedgraph"),
    "predict_tracks": ("tsv", "bed"),
    "score_variants": ("vcf", "tsv"),
}


def test_rows_go_out_before_the_next_prediction(
    scorer: Scorer, output: Output, scratch: Path, tmp_path: Path
) -> None:
    for format in FORMATS[scorer.name]:
        seen: list[int] = []

        def look(_: int, seen: list[int] = seen) -> None:
            rows = [text for text in output.lines if not text.startswith(HEADS)]
            written = output.getvalue()
            assert not written or written.endswith(b"\n"), "whole lines only"
            assert list(scratch.iterdir()) == [], "nothing is put aside"
            seen.append(len(rows))

        output.truncate(0), output.seek(0)
        scorer.predict.before = look
        scorer(format=format)
        assert seen[0] == 0 and len(seen) > 2
        if format != "bedgraph":  # which is written by record
            assert all(before < after for before, after in pairwise(seen)), seen
        printed = output.getvalue()
        scorer.predict.before = lambda _: None
        scorer(output=tmp_path / "x", format=format)
        assert (tmp_path / "x").read_bytes() == printed


def test_what_was_written_stays_after_an_error(
    scorer: Scorer, output: Output, tmp_path: Path
) -> None:
    scorer()
    whole = output.getvalue()

    def fail(call: int) -> None:
        if call == 3:
            raise DataError("no more of that")

    output.truncate(0), output.seek(0)
    scorer.predict.calls, scorer.predict.before = 0, fail
    with fails(DataError):
        scorer()
    part = output.getvalue()
    assert whole.startswith(part) and part.endswith(b"\n")
    assert sum(not text.startswith(HEADS) for text in output.lines) > 2
    output.truncate(0), output.seek(0)
    scorer.predict.calls = 0
    (tmp_path / "old").write_text("former")
    with fails(DataError):
        scorer(output=tmp_path / "old")
    assert (tmp_path / "old").read_text() == "former" and not output.getvalue()


def test_an_error_before_the_first_result_leaves_nothing(
    scorer: Scorer, output: Output
) -> None:
    def fail(_: int) -> None:
        raise DataError("nothing of that")

    scorer.predict.before = fail
    with fails(DataError):
        scorer()
    assert all(text.startswith(HEADS) for text in output.lines)
    scorer.input.write_text(scorer.input.read_text()[:2] + "\n")
    output.truncate(0), output.seek(0)
    with pytest.raises(DataError):
        scorer()
    assert not output.getvalue()


def test_a_notebook_has_no_bytes(scorer: Scorer, output: Output) -> None:
    scorer()
    scorer.stdout = text = io.StringIO()
    scorer()
    assert text.getvalue().encode() == output.getvalue()


def test_a_pipe_with_a_name_gets_rows_as_they_are_made(
    scorer: Scorer, output: Output, tmp_path: Path
) -> None:
    scorer()
    os.mkfifo(tmp_path / "pipe.unknown")
    read: list[bytes] = []
    reader = threading.Thread(
        target=lambda: read.append((tmp_path / "pipe.unknown").read_bytes())
    )
    reader.start()
    scorer(output=tmp_path / "pipe.unknown")
    reader.join()
    assert read == [output.getvalue()]


# The same bytes whatever else is scored, how many windows run together, and wherever a file is written


METRICS = {
    "bits_per_base": 1.91,
    "masked_accuracy": 0.05,
    "steps": 100,
    "tokens_seen": 5,
    "split": "valid",
}
OTHERWISE = {"auc-report": ("--threads", 1)}
"""Options that decide nothing about a command's result."""


@pytest.fixture(scope="module")
def wide(home: Path) -> Path:
    """The models of `home`, of sizes that kernels take in several ways."""
    given = bigbird_dna.load(home / "promoter")
    config = given.config.model_copy(update={"layers": 2, "hidden": 48, "heads": 3})
    ensemble = CHROMATIN.model_copy(update={"members": 2})
    for name, settings in (("promoter", PROMOTER), ("chromatin", ensemble)):
        save(
            home / "wide" / name,
            random_model(given.tokenizer, config, settings, scale=2),
            {},
            {},
            {},
        )
    return home / "wide"


def windows(size: int, count: int) -> list[str]:
    """Windows whose numbers of tokens differ."""
    unknown = np.random.default_rng(0).integers(0, size // 2, count).tolist()
    return ["N" * n + random_dna(size - n, number) for number, n in enumerate(unknown)]


@pytest.mark.parametrize("name", ["promoter", "chromatin"])
def test_a_window_has_the_same_scores_in_any_company(wide: Path, name: str) -> None:
    model = bigbird_dna.load(wide / name)
    assert isinstance(model, LoadedPromoterModel | LoadedChromatinModel)
    some = windows(model.settings.window, 24)
    methods: list[Callable[..., np.ndarray]] = [model.window_probabilities]
    if isinstance(model, LoadedChromatinModel):
        methods += [partial(model.window_probabilities, center_fraction=1.0)]
    else:
        methods += [
            model.embed,
            partial(model.embed, pool="cls"),
            partial(model.embed, layer=1),
        ]
    rng = np.random.default_rng(1)
    for method in methods:
        with cpu_threads(1):
            alone = np.concatenate([method([one], device="cpu") for one in some])
        assert np.ptp(alone, axis=0).max() > 1e-3
        for threads in (1, 2, 3):
            chosen = rng.permutation(24)[: rng.integers(2, 25)]
            size = int(rng.integers(1, 30))
            with cpu_threads(threads):
                found = method([some[i] for i in chosen], batch_size=size, device="cpu")
                assert torch.get_num_threads() == threads
            np.testing.assert_allclose(
                found, alone[chosen], rtol=0, atol=1e-6 * max(1, np.abs(alone).max())
            )


def test_long_rows_too(wide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = bigbird_dna.load(wide / "promoter")
    assert isinstance(model, LoadedPromoterModel)
    some = windows(PROMOTER.window, 9)
    with cpu_threads(2):
        expected = model.window_probabilities(some, device="cpu")
        monkeypatch.setattr(calls, "LONG", 28)  # some of them are
        np.testing.assert_allclose(
            model.window_probabilities(some, device="cpu"), expected, atol=1e-6
        )
        single = [model.window_probabilities([one], device="cpu")[0] for one in some]
        found = model.window_probabilities(some, device="cpu", batch_size=2)
        np.testing.assert_allclose(found, single, rtol=0, atol=1e-6)


@pytest.mark.parametrize("compatibility", ["none", "huggingface"])
def test_shapes_of_a_gpus_calls_are_by_the_rows_own_length(
    compatibility: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "CALL_TOKENS", 200)
    sizes = {
        "vocabulary": 32,
        "layers": 1,
        "hidden": 16,
        "heads": 2,
        "block_size": 8,
        "max_length": 150,
    }
    encoder = calls.Encoder(EncoderConfig(**sizes, compatibility=compatibility)).eval()
    rng = np.random.default_rng(0)
    rows = [
        rng.integers(5, 32, n).astype(np.int32)
        for n in (30, 80, 64, 65, 131, 66, 149, 31, 30, 12)
    ]
    shapes: dict[int, set[tuple[int, ...]]] = {}

    def run(
        ids: torch.Tensor, lengths: torch.Tensor, chosen: np.ndarray
    ) -> torch.Tensor:
        for number in chosen:
            shapes.setdefault(int(number), set()).add(tuple(ids.shape))
        return encoder(ids, lengths)[:, 0]

    here = torch.device("cpu")
    options = {"pad_id": 0, "batch_size": 1, "device": here}
    expected = calls.run_rows(encoder, rows, run, **options)
    shapes.clear()
    for subset in (range(10), [0], [4, 0, 9], [1, 3, 5, 6]):
        found = np.empty_like(expected)
        given = [rows[number] for number in subset]
        for chosen, values in calls.in_calls(
            encoder,
            given,
            lambda i, n, c, subset=subset: run(i, n, np.array(subset)[c]),
            0,
            here,
        ):
            found[np.array(subset)[chosen]] = values
        np.testing.assert_allclose(found[subset], expected[subset], atol=1e-5)
    assert all(len(seen) == 1 for seen in shapes.values()) and len(shapes) == 10


FORMS = [("--tracks", "*", "--format", form) for form in ("vcf", "tsv")]
KINDS: dict[str, tuple[str, str, list[tuple[object, ...]]]] = {
    "fa": ("score-promoters", "promoter", [("--stride", 7)]),
    "bed": (
        "predict-tracks",
        "chromatin",
        [("--summary", "mean"), ("--center-fraction", 1)],
    ),
    "vcf": ("score-variants", "chromatin", [*FORMS]),
}
"""Of a file's ending: the command that reads it, its model, and options."""


def items(ending: str, rng: np.random.Generator) -> dict[str, str]:
    """Records, regions or variants: the lines of each, by its name."""
    if ending == "fa":
        return {name: f">{name}\n{sequence}\n" for name, sequence in RECORDS.items()}
    if ending == "bed":
        starts = rng.integers(0, 600, 30)
        return {
            f"r{i}": f"long\t{at}\t{at + rng.integers(5, 90)}\tr{i}\n"
            for i, at in enumerate(starts)
        }
    found = {}
    for at in rng.choice(np.arange(10, 690), 12, replace=False).tolist():
        ref = RECORDS["long"][at - 1]
        found[str(at)] = (
            f"long\t{at}\tv{at}\t{ref}\t{'ACGT'.replace(ref, '')[0]}\t.\t.\t.\n"
        )
    return found


@pytest.mark.parametrize("ending", KINDS)
def test_an_item_has_the_same_lines_whatever_the_file_holds_besides(
    run: Run, home: Path, wide: Path, tmp_path: Path, ending: str
) -> None:
    rng, path = np.random.default_rng(0), tmp_path / f"some.{ending}"
    command, model, variants = KINDS[ending]
    known = items(ending, rng)

    def scored(names: Iterable[str], *words: object) -> list[list[str]]:
        path.write_text(
            VCF * (ending == "vcf") + "".join(known[name] for name in names)
        )
        reference = () if ending == "fa" else ("--reference", home / "genome.fa.gz")
        outcome = run(command, wide / model, path, *reference, *words)
        assert outcome.code == 0, outcome.err
        cells = [line.split("\t") for line in outcome.out.splitlines()]
        return [line for line in cells if not known.keys().isdisjoint(line[:4])]

    for options in variants:
        whole = scored(known, *options)
        for _ in range(2):
            names = rng.permutation([*known])[: rng.integers(1, len(known))].tolist()
            words = (
                "--batch-size",
                rng.integers(1, 40),
                "--threads",
                rng.integers(1, 3),
            )
            expected = [line for name in names for line in whole if name in line[:4]]
            assert (
                scored(names, *options, *words) == expected
                and len(whole) >= len(known) - 2
            )


def contents(path: Path) -> dict[str, bytes]:
    """Bytes of a file, or of all files of a directory."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file()
    }


@pytest.fixture
def inputs(run: Run, home: Path, tmp_path: Path) -> Path:
    """Directory of a file of every kind that commands read."""
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    (inputs / "r.bed").write_text("long\t100\t130\tx\n")
    ref, *alts = sorted("ACGT", key=lambda letter: letter != RECORDS["long"][299])
    (inputs / "v.vcf").write_text(
        f"{VCF}long\t300\t.\t{ref}\t{alts[0]}\t.\t.\tEFFECT=gain;TRACK=one\n"
        f"long\t300\t.\t{ref}\t{alts[1]}\t.\t.\tEFFECT=none;TRACK=one\n"
    )
    labels = np.random.default_rng(0).random((200, 3)) < 0.3
    np.save(inputs / "p.npy", np.random.default_rng(1).random((200, 3)) + labels)
    np.save(inputs / "l.npy", labels.astype(np.uint8))
    predictions("genomic", 40, 1.0, 1).to_parquet(
        inputs / "genomic.parquet", index=False
    )
    lines = [{"step": step, "loss": 5 - step / 100} for step in range(10, 110, 10)]
    (inputs / "training.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    (inputs / "metrics.json").write_text(json.dumps(METRICS))
    rows = (
        ("model", 1.9, 1.8, 2.0, "", "", "", ""),
        ("bigrams", 1.95, 1.9, 2.0, -0.05, -0.06, -0.04, "order 2"),
    )
    lines = [("split", *BITS_COLUMNS), *(("valid", *row) for row in rows)]
    (inputs / "bits.tsv").write_text(
        "".join("\t".join(map(str, line)) + "\n" for line in lines)
    )
    variants = (
        "score-variants",
        home / "chromatin",
        inputs / "v.vcf",
        "--reference",
        home / "genome.fa.gz",
    )
    for name, words in {
        "scores.tsv": ("score-promoters", home / "promoter", home / "genome.fa.gz"),
        "scored.vcf": (*variants, "--tracks", "*"),
    }.items():
        outcome = run(*words, "-o", inputs / name)
        assert outcome.code == 0, outcome.err
    return inputs


def test_a_result_does_not_say_where_it_was_written(
    run: Run, home: Path, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = ("score-promoters", home / "promoter", home / "genome.fa.gz")
    chromatin, reference = home / "chromatin", ("--reference", home / "genome.fa.gz")
    variants = (
        "score-variants",
        chromatin,
        inputs / "v.vcf",
        *reference,
        "--tracks",
        "*",
    )
    commands = {
        **{f"s.{ending}": scores for ending in ("tsv", "bed.gz", "bw", "parquet")},
        "r.tsv": ("predict-tracks", chromatin, inputs / "r.bed", *reference),
        **{f"v.{ending}": variants for ending in ("vcf.gz", "tsv")},
        "tracks": (
            "auc-report",
            inputs / "p.npy",
            inputs / "l.npy",
            "--compare",
            f"k={inputs / 'p.npy'}",
        ),
        "promoters": (
            "evaluate promoters",
            "--predictions",
            f"genomic={inputs / 'genomic.parquet'}",
        ),
        "variants": ("evaluate variants", inputs / "scored.vcf"),
        **{
            f"scores.{ending}": ("report plot-scores", inputs / "scores.tsv")
            for ending in ("svg", "png", "pdf")
        },
    }
    (tmp_path / "other/deeper").mkdir(parents=True)
    for name, words in commands.items():
        found = []
        for here, target in (
            (tmp_path / "other", Path(name)),
            (tmp_path, tmp_path / "other/deeper" / name),
        ):
            monkeypatch.chdir(here)
            outcome = run(
                *words,
                "-o",
                target,
                *(() if here == tmp_path else OTHERWISE.get(words[0], ())),
            )
            assert outcome.code == 0, (words, outcome.err)
            found.append(contents(target))
        assert found[0] == found[1] and found[0], name
