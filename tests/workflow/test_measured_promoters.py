"""Measured start sites of E. coli: their places on the genome, labels and splits."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from measured_promoters import prepare_measured

from bigbird_dna.config.reading import parse_config
from bigbird_dna.config.run import Config
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.reference import Reference, prepare_reference, write_fasta
from bigbird_dna.genome.sequence import Interval, reverse_complement
from tests.conftest import REPOSITORY
from tests.golden.messages import fails

OLDER = 700  # bp that the coordinates of the file lack


def config(valid: str, test: str) -> Config:
    genome = {"assembly": "ASM584v2", "reference": "ASM584v2.reference"}
    regions = {"valid": [valid], "test": [test]}
    return parse_config(
        {"genome": genome | regions, "promoters": {"source": "ASM584v2.promoters"}}
    )


@pytest.fixture
def bases(tmp_path: Path) -> str:
    """20 kb of a genome; 150 bp of its training part are also in its test part."""
    text = "".join(np.random.default_rng(1).choice(list("ACGT"), 20_000))
    text = text[:12_000] + reverse_complement(text[2_000:2_150]) + text[12_150:]
    write_fasta(tmp_path / "x.fa.gz", [("NC_000913.3", text)])
    return text


def row(text: str, start: int, strand: str, activity: float, name: str) -> str:
    """A line of the public form, whose coordinates are those of another version."""
    window = text[start : start + 150]
    window = window if strand == "+" else reverse_complement(window)
    site = start - OLDER + (120 if strand == "+" else 30)
    coordinates = f"{start - OLDER}\t{start - OLDER + 150}"
    return f"{window}\t{activity}\t{coordinates}\t{name},{site},{strand}\n"


def test_places_labels_and_splits(tmp_path: Path, bases: str) -> None:
    windows = [
        ("TSS_1_storz", 1_000, "+", 0.999, "train"),
        ("TSS_2_storz", 1_000, "-", 1.0, "train"),  # the same bases
        ("TSS_3_wanner", 2_000, "+", 52.5, ""),  # a copy of the next one
        ("TSS_4_regulondb", 12_000, "+", -0.02, "test"),
        ("TSS_5_storz", 10_000, "-", 3.0, "test"),  # begins with the region
        ("TSS_6_storz", 9_999, "+", 3.0, ""),  # reaches out of it
        ("TSS_7_storz", 16_850, "+", 0.1, "valid"),  # ends with the region
        ("neg_control_3000:3150", 3_000, "+", 0.2, ""),
    ]
    lines = [
        row(bases, start, strand, activity, name)
        for name, start, strand, activity, _ in windows
    ]
    absent = row(bases[::-1], 4_000, "+", 5.0, "TSS_8_storz")
    table = tmp_path / "x.txt"
    # The same bases on the other strand, whose start site has another name.
    exchanged = lines[0].replace("TSS_1_storz,420,+", "TSS_2_storz,330,-")
    table.write_text("".join([*lines, exchanged, absent]))
    output = tmp_path / "x.csv"
    run = config("Chromosome:16,001-17,000", "U00096.3:10,001-14,000")
    prepare_measured(run, table, tmp_path / "x.fa.gz", output)
    frame = pd.read_csv(output)
    expected = [window for window in windows if window[4]]
    assert [*frame["name"]] == [name for name, *_ in expected]
    assert [*frame["split"]] == [split for *_, split in expected]
    assert [*frame["activity"]] == [activity for *_, activity, _ in expected]
    assert [*frame["label"]] == [0, 1, 0, 1, 0]
    with Reference(tmp_path / "x.fa.gz") as genome:
        for one, (_, start, strand, *_) in zip(
            frame.itertuples(), expected, strict=True
        ):
            assert (one.start, one.strand) == (start, strand)
            place = Interval(one.contig, one.start, one.end, strand)
            assert one.sequence == genome.fetch(place)

    assert exchanged != lines[0]
    before = output.read_bytes()
    good = lines[0]
    for text, *named in (
        (good + "ACGT\t1\n", "line 2", "2 columns"),
        (good + good[3:], "line 2", "147 bases"),
        (good.replace("0.999", "high"), "line 1", "'high'"),
        (good.replace(",+", ""), "line 1", "no position and strand"),
        (lines[-1], "no start sites"),
        (absent, "no sequence"),
    ):
        table.write_text(text)
        with fails(DataError, table, *named):
            prepare_measured(run, table, tmp_path / "x.fa.gz", output)

    assert output.read_bytes() == before


def test_the_published_table_has_the_authors_split(
    shared_data: Path, tmp_path: Path
) -> None:
    folder = shared_data / "ecoli"
    reference = tmp_path / "genome.fa.gz"
    assembly = load_assembly("ASM584v2")
    prepare_reference(next(folder.glob("*.fna.gz")), reference, assembly)
    shipped = yaml.safe_load((REPOSITORY / "workflow/config/ecoli.yaml").read_text())
    table = folder / "urtecho_tss_expression_model_format.txt.gz"
    prepare_measured(parse_config(shipped), table, reference, tmp_path / "x.csv")
    frame = pd.read_csv(tmp_path / "x.csv")
    theirs = {
        split: {
            line.split("\t")[0]
            for _, line in read_lines(folder / f"urtecho_{split}_genome_split.txt.gz")
        }
        for split in ("train", "test")
    }
    held_out = frame["split"] == "test"
    assert frame["sequence"][held_out].isin(theirs["test"]).all()
    assert not frame["sequence"][~held_out].isin(theirs["test"]).any()
    assert frame["name"].is_unique
    # Of theirs, six are not in NC_000913.3 or twice within 3 kb, and 18 have the name of the other strand.
    assert held_out.sum() == 4_421 - 6 - 18 and (~held_out).sum() > 12_600
    assert frame["label"].equals((frame["activity"] >= 1).astype(int))
