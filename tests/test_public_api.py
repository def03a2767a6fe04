"""What a Python user imports: the functions behind the commands, and a loaded model's own methods."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import bigbird_dna
from bigbird_dna.errors import DataError, ModelError, UsageError
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.model.directory import save
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack, PromoterSettings
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.golden.messages import fails
from tests.toys import random_dna, random_model, small_encoder

PROMOTER = PromoterSettings(
    upstream=40, downstream=20, pooling="mean", jitter=4, views=2
)
CHROMATIN = ChromatinSettings(
    window=120,
    bin=20,
    pooling="bin",
    bin_layers=1,
    members=1,
    tracks=(NamedTrack(track="one", group="TF"), NamedTrack(track="two", group="HM")),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model directories `promoter`, `chromatin` and `ensemble`, `genome.fa.gz`, `regions.bed`, `x.vcf`."""
    home = tmp_path_factory.mktemp("front-doors")
    tokenizer = DnaTokenizer.train([random_dna(5000, 1)], home / "tokenizer.model", 32)
    config = small_encoder(tokenizer.vocabulary, max_length=96)
    ensemble = CHROMATIN.model_copy(update={"members": 2})
    for name, settings in (
        ("promoter", PROMOTER),
        ("chromatin", CHROMATIN),
        ("ensemble", ensemble),
    ):
        save(
            home / name, random_model(tokenizer, config, settings, scale=3), {}, {}, {}
        )
    sequence = random_dna(900, 7)
    (home / "genome.fa").write_text(f">a\n{sequence}\n")
    prepare_reference(home / "genome.fa", home / "genome.fa.gz")
    (home / "regions.bed").write_text("a\t100\t120\tx\na\t300\t371\ty\n")
    other = "A" if sequence[449] != "A" else "C"
    (home / "x.vcf").write_text(
        "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
        f"a\t450\t.\t{sequence[449]}\t{other}\t.\t.\t.\n"
    )
    return home


def test_functions_count_what_they_did(home: Path, tmp_path: Path) -> None:
    genome, out = home / "genome.fa.gz", tmp_path / "x"
    scans = bigbird_dna.score_promoters(home / "promoter", genome, out, stride=30)
    assert (scans.records, scans.scored, scans.not_scored) == (1, 2 * 29, 0)
    chromatin, tracks = home / "chromatin", {"tracks": "two"}
    assert bigbird_dna.predict_tracks(
        chromatin, home / "regions.bed", genome, out, **tracks
    ) == (2, 1, 0)
    effects = bigbird_dna.score_variants(
        chromatin, home / "x.vcf", genome, out, **tracks
    )
    assert (effects.records, effects.scored, effects.notes) == (1, 1, {})


@pytest.mark.parametrize("format", ["tsv", "parquet"])
def test_what_predict_tracks_writes_can_be_judged(
    home: Path, tmp_path: Path, format: str
) -> None:
    """A region without a prediction counts for nothing if it was not measured, and is an error if it was."""
    bed, table = tmp_path / "x.bed", tmp_path / f"x.{format}"
    places = [*range(100, 800, 50), 2000]
    bed.write_text("".join(f"a\t{start}\t{start + 20}\n" for start in places))
    counts = bigbird_dna.predict_tracks(
        home / "chromatin", bed, home / "genome.fa.gz", table
    )
    assert counts.not_scored == 1
    labels = np.arange(2 * len(places)).reshape(-1, 2) % 3 % 2
    with fails(DataError):
        bigbird_dna.auc_report(table, labels, tmp_path / "report", threads=1)
    labels[-1] = -1
    # Beside another table of the same regions, whose notes are others.
    other = tmp_path / "other.tsv"
    bigbird_dna.predict_tracks(home / "ensemble", bed, home / "genome.fa.gz", other)
    other.write_text(other.read_text().replace("beyond_contig", "."))
    found = bigbird_dna.auc_report(
        table, labels, tmp_path / "report", compare={"other": other}
    )
    np.save(
        tmp_path / "x.npy",
        pd.read_csv(other, sep="\t", skiprows=3, na_values=".")[["one", "two"]],
    )
    assert (
        found.tracks["track"].tolist() == ["one", "two"]
        and found.tracks["auroc"].notna().all()
    )
    assert (found.tracks["positives"] + found.tracks["negatives"]).tolist() == [
        len(places) - 1
    ] * 2
    plain = bigbird_dna.auc_report(tmp_path / "x.npy", labels[:, :], tmp_path / "plain")
    assert plain.tracks["auroc"].tolist() == found.tracks["auroc_other"].tolist()


def test_tracks_that_are_called_as_columns_of_a_table(
    home: Path, tmp_path: Path
) -> None:
    loaded: Any = bigbird_dna.load(home / "chromatin")
    words = home / "regions.bed", home / "genome.fa.gz"
    for name in ("contig", "start", "end", "name", "strand", "note", "score"):
        tracks = (
            NamedTrack(track="one", group="TF"),
            NamedTrack(track=name, group="HM"),
        )
        model = replace(
            loaded, settings=CHROMATIN.model_copy(update={"tracks": tracks})
        )
        for format in ("tsv", "bed", "parquet"):
            out = tmp_path / f"{name}.{format}"
            if name == "score" and format != "bed":
                assert bigbird_dna.predict_tracks(model, *words, out).tracks == 2
                continue
            with fails(UsageError, name):
                bigbird_dna.predict_tracks(model, *words, out)
            assert not out.exists()
            assert (
                bigbird_dna.predict_tracks(model, *words, out, tracks="one").tracks == 1
            )
        assert (
            bigbird_dna.predict_tracks(
                model, *words, tmp_path / "x.bw", tracks=name
            ).tracks
            == 1
        )


def test_tracks_of_several_bins(home: Path) -> None:
    chromatin: Any = bigbird_dna.load(home / "chromatin")
    assert chromatin.predict(["A" * 120], center_fraction=0.5).shape == (1, 3, 2)
    assert [track.name for track in chromatin.tracks] == ["one", "two"]


def test_what_has_no_embedding_says_so(home: Path) -> None:
    with fails(ModelError):
        bigbird_dna.load(home / "ensemble").embed(["ACGT"])
    with fails(UsageError):
        bigbird_dna.load(home / "promoter").embed(["ACGT"], pool="median")


def test_threads_are_given_back(home: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    bigbird_dna.score_promoters(
        home / "promoter", home / "genome.fa.gz", tmp_path / "x", threads=before + 1
    )
    assert torch.get_num_threads() == before
