"""Standard output gets results as they are made; nothing waits for the end of the input."""

import io
import os
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import bigbird_dna
from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import DataError
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.model.settings import PromoterSettings
from tests.cli.test_score_variants import HEADER, hashed_model, line
from tests.golden.messages import fails
from tests.toys import random_dna

SEQUENCE = random_dna(13_000, 1)
RECORDS = 60


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
        sums = [zlib.crc32(text.encode()) / 2**32 for text in sequences]
        values = np.array(sums, np.float32).reshape(-1, *(1 for _ in self.shape))
        return np.broadcast_to(values, (len(sums), *self.shape))


class Scorer:
    """A scorer of a small genome, to standard output."""

    def __init__(self, name: str, home: Path, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name = name
        self.stdout: io.TextIOBase = io.TextIOWrapper(output)
        self.monkeypatch = monkeypatch
        self.genome, self.bed, self.vcf = home / "genome.fa", home / "x.bed", home / "x.vcf"
        self.predict = Watched(() if name == "score_promoters" else (1, 3))
        if name == "score_promoters":
            settings = PromoterSettings(upstream=45, downstream=15, pooling="mean", jitter=0, views=1)
            model: Any = LoadedPromoterModel(nn.Module(), None, EncoderConfig(), settings, Path("model"))
            model.__dict__["sha256"] = "abcd"
        else:
            model = hashed_model(60)
        monkeypatch.setattr(type(model), "window_probabilities", lambda _, texts, **__: self.predict(texts))
        for module, kind in {"promoters": "promoter", "tracks": "chromatin", "variants": "scoring"}.items():
            monkeypatch.setattr(f"bigbird_dna.scoring.{module}.load_{kind}_model", lambda _: model)

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
        return {"score_promoters": self.genome, "predict_tracks": self.bed}.get(self.name, self.vcf)


@pytest.fixture(params=["score_promoters", "predict_tracks", "score_variants"])
def scorer(
    request: pytest.FixtureRequest, tmp_path: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> Scorer:
    (tmp_path / "genome.fa").write_text(f">chr1\n{SEQUENCE}\n")
    places = range(200, 200 * (RECORDS + 1), 200)
    (tmp_path / "x.bed").write_text("".join(f"chr1\t{start}\t{start + 2}\n" for start in places))
    bases = [SEQUENCE[place - 1] for place in places]
    records = [
        line("chr1", place, base, "A" if base != "A" else "C")
        for place, base in zip(places, bases, strict=True)
    ]
    (tmp_path / "x.vcf").write_text(HEADER + "".join(records))
    return Scorer(request.param, tmp_path, output, monkeypatch)


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
            rows = [text for text in output.lines if not text.startswith("#")]
            assert output.getvalue().endswith(b"\n"), "whole lines only"
            assert list(scratch.iterdir()) == [], "nothing is put aside"
            seen.append(len(rows))

        output.truncate(0), output.seek(0)
        scorer.predict.before = look
        scorer(format=format)
        assert seen[0] == 0 and len(seen) > 2
        assert all(before < after for before, after in pairwise(seen)), seen
        printed = output.getvalue()
        scorer.predict.before = lambda _: None
        scorer(output=tmp_path / "x", format=format)
        assert (tmp_path / "x").read_bytes() == printed


def test_what_was_written_stays_after_an_error(scorer: Scorer, output: Output, tmp_path: Path) -> None:
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
    assert sum(not text.startswith("#") for text in output.lines) > 2
    output.truncate(0), output.seek(0)
    scorer.predict.calls = 0
    (tmp_path / "old").write_text("former")
    with fails(DataError):
        scorer(output=tmp_path / "old")
    assert (tmp_path / "old").read_text() == "former" and not output.getvalue()


def test_an_error_before_the_first_result_leaves_nothing(scorer: Scorer, output: Output) -> None:
    def fail(_: int) -> None:
        raise DataError("nothing of that")

    scorer.predict.before = fail
    with fails(DataError):
        scorer()
    assert all(text.startswith("#") for text in output.lines)
    scorer.input.write_text(scorer.input.read_text()[:2] + "\n")
    output.truncate(0), output.seek(0)
    with pytest.raises(DataError):
        scorer()
    assert not output.getvalue()


@pytest.mark.parametrize("scorer", ["predict_tracks", "score_variants"], indirect=True)
def test_input_is_worked_on_as_it_comes(
    scorer: Scorer, output: Output, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    scorer()
    expected = [text for text in output.lines if "command" not in text]
    output.truncate(0), output.seek(0)
    begun, waited = threading.Event(), []
    scorer.predict.before = lambda _: begun.set()

    def feed() -> None:
        lines = scorer.input.read_bytes().splitlines(keepends=True)
        with os.fdopen(writing, "wb", 0) as stream:
            stream.write(b"".join(lines[:25]))
            waited.append(begun.wait(30))
            for one in lines[25:]:
                stream.write(one)

    writer = threading.Thread(target=feed)
    writer.start()
    with os.fdopen(reading) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        counts = scorer("-")
    writer.join()
    assert waited == [True], "the first rows must be worked on before the last ones are there"
    assert list(scratch.iterdir()) == []
    assert [text for text in output.lines if "command" not in text] == expected
    assert counts[0] == RECORDS


@pytest.mark.parametrize("scorer", ["score_promoters"], indirect=True)
def test_the_first_contig_is_scored_before_the_second_is_read(
    scorer: Scorer, output: Output, tmp_path: Path
) -> None:
    scorer()
    whole = [text for text in output.lines if "command" not in text]
    output.truncate(0), output.seek(0)
    with scorer.genome.open("a") as stream:
        # Longer than what is read at a time.
        stream.write(f">chr2\n{'ACGTTGCATT' * 1_000_000}\n>chr3\nACGT\nAXGT\n")
    with fails(DataError):
        scorer()
    part = [text for text in output.lines if "command" not in text]
    assert len(part) > 100 and whole[: len(part)] == part
    with fails(DataError):
        scorer(output=tmp_path / "x.tsv")
    assert not (tmp_path / "x.tsv").exists()


@pytest.mark.parametrize("scorer", ["score_promoters", "predict_tracks"], indirect=True)
@pytest.mark.parametrize("name", ["track", "browser", "tracks_7"])
def test_no_row_of_a_browsers_format_reads_as_a_header(
    scorer: Scorer, output: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """BED and bedGraph are refused before the record is scored; the other formats have it."""
    (tmp_path / "aliases.tsv").write_text(f"{name}\tother\n")
    options = {} if scorer.name == "score_promoters" else {"aliases": tmp_path / "aliases.tsv"}
    chr1 = scorer.bed.read_text()
    for order in (1, -1):
        contigs = ["chr1", name][::order]
        scorer.genome.write_text("".join(f">{contig} of a toy\n{SEQUENCE}\n" for contig in contigs))
        scorer.bed.write_text("".join([chr1, "other\t7\t9\n"][::order]))
        for format in FORMATS[scorer.name]:
            for options["output"], source in ((tmp_path / "x", None), (None, None), (None, "-")):
                output.truncate(0), output.seek(0)
                scorer.predict.calls = 0
                with scorer.input.open() as stream:
                    monkeypatch.setattr(sys, "stdin", stream)
                    if format == "tsv":
                        scorer(source, format=format, **options)
                        text = output.getvalue().decode() or (tmp_path / "x").read_text()
                        assert f"\n{name}\t" in text
                        (tmp_path / "x").unlink(missing_ok=True)
                        continue
                    where = "standard input" if source else str(scorer.input)
                    with fails(DataError, where, name, format):
                        scorer(source, format=format, **options)
                assert not (tmp_path / "x").exists()
                assert not any(text.startswith(name) for text in output.lines)
                if order == -1 or options["output"]:
                    assert scorer.predict.calls == 0 and not output.getvalue()
    scorer(format="bed", contigs="chr1", **options)
    assert output.lines[-1].startswith("chr1\t")


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
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe.unknown").read_bytes()))
    reader.start()
    scorer(output=tmp_path / "pipe.unknown")
    reader.join()
    assert read == [output.getvalue()]
