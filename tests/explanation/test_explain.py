"""The command: targets of every kind of file, what it writes, and what it refuses."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pybigtools
import pytest

from bigbird_dna.explanation.explain import (
    explain,
)
from bigbird_dna.explanation.targets import explainable, read_targets
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import Interval, reverse_complement
from bigbird_dna.model.directory import load, save
from bigbird_dna.model.settings import PretrainingSettings
from tests.cli.command import Run, refused
from tests.explanation.models import small_model
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer

QUICK = {"views": 1}
OPTIONS = ["--views", "1", "--threads", "1"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model directories `promoter`, `chromatin`, `numbers` and `pretrained`, and `genome.fa.gz`."""
    home = tmp_path_factory.mktemp("explained")
    for kind in ("promoter", "chromatin", "numbers"):
        save(home / kind, small_model(kind), {}, {}, {})
    encoder = small_encoder(small_tokenizer().vocabulary)
    settings = PretrainingSettings(next_sentence=False)
    model = random_model(small_tokenizer(), encoder, settings, scale=3)
    save(home / "pretrained", model, {}, {}, {})
    (home / "genome.fa").write_text(
        f">a\n{random_dna(500, 7)}\n>b\n{random_dna(300, 8)}\n"
    )
    prepare_reference(home / "genome.fa", home / "genome.fa.gz")
    (home / "regions.bed").write_text(
        "b\t200\t212\ty\t0\t-\na\t100\t120\tx\t0\t+\na\t110\t125\n"
    )
    return home


@pytest.fixture(scope="module")
def genome(home: Path) -> Any:
    with Reference(home / "genome.fa.gz") as opened:
        yield opened


def change_of(genome: Any, position: int) -> tuple[str, str]:
    ref = genome.fetch(Interval("a", position - 1, position))
    return ref, "A" if ref != "A" else "C"


def test_regions_are_in_the_center_of_the_window_on_their_strand(
    home: Path, genome: Any
) -> None:
    for kind, window in (("promoter", 100), ("chromatin", 120), ("numbers", 0)):
        for target in read_targets(
            home / "regions.bed", explainable(load(home / kind)), genome
        ):
            size = len(target.bases)
            assert len(target.window) == (window or size)
            place = Interval(
                target.contig, target.start, target.start + size, target.strand
            )
            assert target.bases == genome.fetch(place)
            right = len(target.window) - target.last
            assert 0 <= right - target.first <= 1
            around = genome.fetch(
                Interval(target.contig, target.start - 60, target.start + size + 60)
            )
            read = around if target.strand == "+" else reverse_complement(around)
            assert target.window in read
            for offset in (0, size - 1):
                at = target.positions[offset]
                assert (
                    genome.fetch(Interval(target.contig, at, at + 1, target.strand))
                    == target.bases[offset]
                )


def test_the_window_of_a_start_site_is_explained_whole(
    home: Path, genome: Any, tmp_path: Path
) -> None:
    bed = tmp_path / "sites.bed"
    bed.write_text("a\t200\t201\tx\t0\t+\na\t200\t201\ty\t0\t-\n")
    for target in read_targets(bed, explainable(load(home / "promoter")), genome):
        assert (target.first, target.last) == (0, 100) and target.positions[60] == 200


def test_both_alleles_of_a_variant_are_explained_around_it(
    home: Path, genome: Any, tmp_path: Path
) -> None:
    ref, alt = change_of(genome, 250)
    (tmp_path / "x.vcf").write_text(
        "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
        f"a\t250\trs1\t{ref}\t{alt},<DEL>,{ref}GT\t.\t.\t.\n"
    )
    for kind in ("promoter", "numbers"):
        found = read_targets(
            tmp_path / "x.vcf", explainable(load(home / kind)), genome, flank=10
        )
        assert [one.name.split()[-1] for one in found] == ["REF", "ALT"] * 2
        first, other, *_, inserted = (one.bases for one in found)
        assert len(first) == 21 and first[10] == ref and other[10] == alt
        assert (
            first[:10] + first[11:] == other[:10] + other[11:] and len(inserted) == 22
        )
        assert [one.start for one in found][:2] == [239, 239]


def test_files_have_the_same_contributions(home: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    given = home / "chromatin", home / "regions.bed", output
    bases = explain(*given, reference=home / "genome.fa.gz", **QUICK)
    assert len(bases) == 2 * 47
    table = pd.read_csv(output / "bases.tsv", sep="\t", keep_default_na=False)
    assert len(pd.read_csv(output / "scores.tsv", sep="\t", keep_default_na=False)) == 6
    assert len(table) == 2 * 47
    one_hot = np.load(output / "ohe.npz")["arr_0"]
    shap = np.load(output / "one.shap.npz")["arr_0"]
    assert one_hot.shape == shap.shape == (3, 4, 20)
    own = table[table["output"] == "one"]
    for number, (_, rows) in enumerate(own.groupby("name", sort=False)):
        size = len(rows)
        values = (one_hot[number] * shap[number]).sum(0)
        np.testing.assert_allclose(values[:size], rows["contribution"], atol=1e-5)
        assert "".join(
            "ACGT"[code] for code in one_hot[number, :, :size].argmax(0)
        ) == "".join(rows["base"])
        assert not one_hot[number, :, size:].any()
    expected = own.groupby(["contig", "position"])["contribution"].mean()
    with pybigtools.open(str(output / "one.contributions.bw")) as track:
        found = {("a", start): value for start, _, value in track.records("a")}
        found |= {("b", start): value for start, _, value in track.records("b")}
    assert found == pytest.approx(expected.to_dict(), abs=1e-5)
    logos = sorted(path.name for path in (output / "logos").iterdir())
    assert logos == [f"{number:03}.svg" for number in range(1, 7)]


def test_gradients_and_sequences_give_the_same_files(
    home: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "x.csv").write_text(
        f"name,dna\nx<1>,{random_dna(60, 1)}\ny ALT,{random_dna(40, 2)}NN\n"
    )
    given = [
        "explain",
        home / "numbers",
        tmp_path / "x.csv",
        "--sequence-column",
        "dna",
        *OPTIONS,
    ]
    names, tables = [], []
    for method in ("gradient", "mutagenesis"):
        out = tmp_path / method
        result = run(*given, "--method", method, "-o", out)
        assert result.code == 0, result.err
        with pybigtools.open(str(out / "contributions.bw")) as track:
            sizes = {name: len(list(track.records(name))) for name in track.chroms()}
        assert sizes == {"x<1>": 60, "y ALT": 42}
        names.append({path.relative_to(out) for path in out.rglob("*")})
        tables.append(pd.read_csv(out / "bases.tsv", sep="\t"))
    assert names[0] == names[1]
    assert (
        tables[0]["base"].tolist() == tables[1]["base"].tolist()
        and len(tables[0]) == 102
    )
    assert np.corrcoef(*(table["contribution"] for table in tables))[0, 1] > 0.1
    assert (tables[1].loc[tables[1]["base"] == "N", "contribution"] == 0).all()


def test_what_cannot_be_explained_is_refused_and_nothing_written(
    home: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "long.fa").write_text(f">x\n{random_dna(101, 1)}\n")
    (tmp_path / "off.bed").write_text("a\t490\t510\tx\n")
    (tmp_path / "none.fa").write_text(">x\nACGU!\n")
    (tmp_path / "none.vcf").write_text(
        "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
    )
    genome, regions = ["--reference", home / "genome.fa.gz"], home / "regions.bed"
    for code, *words in (
        (1, home / "pretrained", regions, *genome),
        (2, home / "promoter", regions),
        (1, home / "promoter", tmp_path / "long.fa"),
        (1, home / "promoter", tmp_path / "off.bed", *genome),
        (1, home / "promoter", tmp_path / "none.fa"),
        (1, home / "promoter", tmp_path / "none.vcf", *genome),
        (2, home / "promoter", regions, *genome, "--tracks", "one"),
        (2, home / "chromatin", regions, *genome, "--tracks", "three"),
        (
            2,
            home / "chromatin",
            regions,
            *genome,
            "--views",
            "0",
        ),
    ):
        refused(run("explain", *words, "-o", tmp_path / "out"), code)
        assert not (tmp_path / "out").exists()


def test_outputs_with_similar_names_have_files_of_their_own(
    home: Path, tmp_path: Path
) -> None:
    names = ("CD4+ T", "CD4_T", "cd4_t")
    model = small_model("classes")
    settings = model.settings.model_copy(update={"outputs": names})
    save(tmp_path / "model", replace(model, settings=settings), {}, {}, {})
    (tmp_path / "x.fa").write_text(f">x\n{random_dna(100, 1)}\n")
    explain(tmp_path / "model", tmp_path / "x.fa", tmp_path / "out", **QUICK)
    table = pd.read_csv(tmp_path / "out/outputs.tsv", sep="\t", keep_default_na=False)
    assert tuple(table["output"]) == names
    values = []
    for prefix in table["prefix"]:
        assert (tmp_path / f"out/{prefix}contributions.bw").exists()
        values.append(np.load(tmp_path / f"out/{prefix}shap.npz")["arr_0"])
    assert len({array.tobytes() for array in values}) == 3


def test_a_model_is_no_output(home: Path, tmp_path: Path, run: Run) -> None:
    model = tmp_path / "model"
    shutil.copytree(home / "promoter", model)
    (tmp_path / "link").symlink_to("model")
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    given = [home / "regions.bed", "--reference", home / "genome.fa.gz"]
    for output in (model, model / "explained", tmp_path / "link"):
        result = run("explain", model, *given, "-o", output)
        refused(result, 2, output, after_log=True)
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before
