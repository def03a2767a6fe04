"""RegulonDB's promoters: positions and sequences that disagree, and which of them is right."""

import json
from pathlib import Path

import pytest

from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.promoters import prepare_promoters, read_loci, read_promoters
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import Locus, window_around
from tests.cli.command import Run
from tests.genome.test_start_site_check import Site, genome
from tests.golden.messages import fails

HEADER = """# Copies and Copyright-Notice
#
# Release: 10.6.3 Date: 12-02-2019
# Genome version: U00096.3, Refseq version: c; GI:556503834
# Columns:
# (1) Promoter identifier assigned by RegulonDB
"""


def promoter_set(
    sites: list[Site], reference: Reference, position: int = 0, sequence: int = 0
) -> str:
    """The public form of start sites; on "-", positions and sequences are off by so many bp downstream."""
    lines = [HEADER]
    for number, (at, strand) in enumerate(sites):
        off = strand == "-"
        around = Locus("c", at - off * sequence, strand, "")
        text = reference.fetch(window_around(around, 60, 21)).lower()
        text = text[:60] + text[60].upper() + text[61:]
        direction = "reverse" if off else "forward"
        lines.append(
            f"ECK{number}\tp{number} (cluster)\t{direction}\t{at + 1 - off * position}\tSigma70\t{text}\t"
            "[TIM|S|Transcription initiation mapping]\tStrong\n"
        )
    lines.append("ECK1\trrnHp1\tforward\t0\tSigma70\t\t[HIPP|W|Human]\tWeak\n")
    return "".join(lines)


@pytest.mark.parametrize(
    ("position", "sequence", "displaced"),
    [(0, 0, 0), (0, -1, 120), (1, 0, 120), (-2, 0, 120), (0, 3, 120)],
)
def test_the_start_sites_are_right_whatever_is_displaced(
    tmp_path: Path, position: int, sequence: int, displaced: int
) -> None:
    reference, sites = genome(tmp_path, 1)
    path = tmp_path / "PromoterSet.txt"
    path.write_text(promoter_set(sites, reference, position, sequence))
    counts = prepare_promoters(
        path, reference.path, tmp_path / "x.tsv", load_assembly("custom")
    )
    found = [(site.position, site.strand) for site in read_loci(tmp_path / "x.tsv")]
    assert found == sites
    assert counts["displaced_sequences"] == displaced
    assert counts["moved"] == (120 if position else 0)
    assert counts["sequences_elsewhere"] == 0
    assert json.loads((tmp_path / "x.json").read_text()) == counts
    # Without a genome, the positions of the file.
    stated = [(site.position, site.strand) for site in read_promoters(path)]
    assert (stated == sites) == (position == 0)


def test_a_few_displaced_sequences_do_not_move_start_sites(tmp_path: Path) -> None:
    reference, sites = genome(tmp_path, 1)
    path = tmp_path / "PromoterSet.txt"
    lines = promoter_set(sites, reference).splitlines()
    off = promoter_set(sites, reference, position=1).splitlines()
    path.write_text("\n".join(lines[:50] + off[50:60] + lines[60:]))
    counts = prepare_promoters(
        path, reference.path, tmp_path / "x.tsv", load_assembly("custom")
    )
    assert counts["displaced_sequences"] == 5 and counts["moved"] == 0


def test_wrong_files(tmp_path: Path) -> None:
    reference, sites = genome(tmp_path, 1, 20)
    good = promoter_set(sites, reference)
    path = tmp_path / "PromoterSet.txt"
    for text, *named in (
        (good.replace("Refseq", "RefSeq"), "line 7", "Refseq version"),
        (good.replace("reverse", "both", 1), "line 8", "'both'"),
        (good.replace("Sigma70", "", 1).replace("\t\t", "\t", 1), "line 7", "upper"),
        (good.replace("\tSigma70", "\nSigma70", 1), "line 7", "4 columns"),
        (good.lower().replace("refseq", "Refseq"), "line 7", "upper case"),
    ):
        path.write_text(text)
        with fails(DataError, path, *named):
            read_promoters(path)

    home = tmp_path / "other"
    home.mkdir()
    other, _ = genome(home, 2, 20)
    path.write_text(good)
    with fails(DataError, path, "20 of 20", other.path):
        prepare_promoters(path, other.path, tmp_path / "x.tsv", load_assembly("custom"))


def test_the_published_file(shared_data: Path, tmp_path: Path, run: Run) -> None:
    """Its positions are right: those of both strands begin with A or G after C or T equally often."""
    reference = tmp_path / "genome.fa.gz"
    prepare_reference(
        next((shared_data / "ecoli").glob("*.fna.gz")),
        reference,
        load_assembly("ASM584v2"),
    )
    path = shared_data / "ecoli/RegulonDB_PromoterSet.txt.gz"
    done = run(
        *("prepare promoters", path, "--reference", reference),
        *("--assembly", "ASM584v2", "-o", tmp_path / "x.tsv"),
    )
    assert done.code == 0 and "warning" not in done.err
    assert "2,465 sequences on - are 1 bp upstream of their positions" in done.err
    counts = json.loads((tmp_path / "x.json").read_text())
    assert counts["read"] == 8_531 and counts["displaced_sequences"] == 2_465
    assert counts["sequences_elsewhere"] == 1 and counts["moved"] == 0
