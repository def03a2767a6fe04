"""The code of the page on genome browsers: a page of variants and track hubs."""

import subprocess
import sys
from pathlib import Path

import pybigtools
import pytest

from tests.docs.blocks import blocks

PAGE = "docs/howto/browsers.md"
trackhub = pytest.importorskip("trackhub", reason="needs the extra report")


@pytest.mark.parametrize("custom", [False, True])
def test_track_hub(
    custom: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bigwigs").mkdir()
    writer = pybigtools.open("bigwigs/a b.bw", "w")
    writer.write({"chrI": 1000}, [("chrI", 0, 100, 0.5)])
    Path("genome.2bit").write_bytes(b"x")
    hub, assembly = (block.text for block in blocks(PAGE, "python"))
    if custom:
        before, loop, after = hub.partition("for path in")
        imports = before.partition("hub, genomes_file")[0]
        hub = imports + assembly + loop + after
    exec(compile(hub, PAGE, "exec"), {})
    genome = "mine" if custom else "sacCer3"
    tracks = Path("hub", genome, "trackDb.txt").read_text()
    assert "track ab" in tracks and "viewLimits 0:1" in tracks
    assert Path("hub", genome, "ab.bigWig").resolve().is_file()
    genomes = Path("hub/bigbird.genomes.txt").read_text()
    assert f"genome {genome}" in genomes
    assert ("twoBitPath" in genomes) == custom
    assert Path("hub/bigbird.hub.txt").is_file()


def test_page_of_variants(tmp_path: Path) -> None:
    pytest.importorskip("igv_reports", reason="needs the extra report")
    info = '##INFO=<ID=BBD_MAX,Number=A,Type=Float,Description="x">\n'
    (tmp_path / "effects.vcf").write_text(
        "##fileformat=VCFv4.2\n##contig=<ID=a>\n"
        + info
        + "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\na\t50\t.\tA\tC\t.\t.\tBBD_MAX=0.25\n"
    )
    (tmp_path / "genome.fa").write_text(f">a\n{'ACGT' * 300}\n")
    (line,) = [
        line
        for block in blocks(PAGE, "console")
        for line in block.text.splitlines()
        if "create_report" in line
    ]
    words = line.removeprefix("$ ").replace("effects.vcf.gz", "effects.vcf").split()
    command = [sys.executable, "-m", "igv_reports.report", *words[1:]]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert "0.25" in (tmp_path / "effects.html").read_text()
