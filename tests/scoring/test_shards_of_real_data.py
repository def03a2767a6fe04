"""The scan of yeast and the variants of chromosome 22, in eight pieces and in one."""

import os
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigbird_dna
from bigbird_dna.config import EncoderConfig
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.model.directory import save
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack
from tests.toys import random_model, small_tokenizer

OF = 8
# bp, so that a scan of 12 Mb takes a minute of a core; at 100, the default of the command, it is 25 of them.
STRIDE = int(os.environ.get("BIGBIRD_DNA_STRIDE", "4000"))


def compare(job: Callable[..., Any], directory: Path, name: str) -> int:
    """Do a job in one and in eight pieces, and assert that the files are the same; gives their bytes."""
    began = time.perf_counter()
    (directory / "whole").mkdir()
    (directory / "merged").mkdir()
    job(output=directory / "whole" / name)
    print(f"{name}: whole {time.perf_counter() - began:.0f} s")
    pieces = [directory / f"{number}.piece" for number in range(1, OF + 1)]
    for number, path in enumerate(pieces, start=1):
        began = time.perf_counter()
        job(output=path, piece=f"{number}/{OF}", batch_size=5 * number)
        print(f"{name}: piece {number} {time.perf_counter() - began:.0f} s, {path.stat().st_size:,} bytes")
    began = time.perf_counter()
    bigbird_dna.merge_shards(pieces, directory / "merged" / name)
    print(f"{name}: merged in {time.perf_counter() - began:.1f} s")
    whole, merged = (
        {path.name: path.read_bytes() for path in (directory / which).iterdir()}
        for which in ("whole", "merged")
    )
    assert whole == merged
    return len(whole[name])


def hashed(_: LoadedPromoterModel, windows: Sequence[str], **__: Any) -> np.ndarray:
    """Scores that any base can change, and that cost nothing."""
    return (np.array([zlib.crc32(window.encode()) for window in windows]) / 2**32).astype(np.float32)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("format", "name"), [("tsv", "x.tsv.gz"), ("bigwig", "x.bw")])
def test_every_window_of_yeast(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, name: str
) -> None:
    """All 243,000 scores of the stride that is the default, of a stand-in for the network."""
    monkeypatch.setattr(LoadedPromoterModel, "window_probabilities", hashed)
    fasta = next((shared_data / "yeast").glob("Saccharomyces*.fa.gz"))

    def scan(**options: Any) -> None:
        bigbird_dna.score_promoters("yeast-promoters", fasta, format=format, threads=1, **options)

    assert compare(scan, tmp_path, name) > 500_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_scan_of_yeast(shared_data: Path, tmp_path: Path) -> None:
    fasta = next((shared_data / "yeast").glob("Saccharomyces*.fa.gz"))

    def scan(**options: Any) -> None:
        bigbird_dna.score_promoters("yeast-promoters", fasta, stride=STRIDE, threads=1, **options)

    assert compare(scan, tmp_path, "x.tsv") > 100_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_variants_of_chromosome_22(shared_data: Path, tmp_path: Path) -> None:
    hg19 = shared_data / "hg19"
    prepare_reference(hg19 / "chr22_1-22000000.fa.gz", tmp_path / "chr22.fa.gz")
    tokenizer = small_tokenizer()
    config = EncoderConfig(
        vocabulary=tokenizer.vocabulary, layers=1, hidden=16, heads=2, max_length=512, block_size=16
    )
    tracks = tuple(NamedTrack(track=name, group="TF") for name in ("CTCF", "MAX"))
    settings = ChromatinSettings(window=1000, bin=200, pooling="bin", bin_layers=1, members=1, tracks=tracks)
    save(tmp_path / "model", random_model(tokenizer, config, settings, scale=3), {}, {}, {})
    vcf = hg19 / "chr22_17442913-17680545.1000G_sites.vcf.gz"

    def score(**options: Any) -> None:
        words = tmp_path / "model", vcf, tmp_path / "chr22.fa.gz"
        bigbird_dna.score_variants(*words, format="vcf", tracks="*", offsets=2, threads=1, **options)

    assert compare(score, tmp_path, "x.vcf.gz") > 50_000
    assert (tmp_path / "merged/x.vcf.gz.tbi").exists()
