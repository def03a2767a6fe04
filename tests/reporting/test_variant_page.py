"""`report variant-page`: every variant of a result is on a page that needs nothing else."""

from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.calibration.variant_background import VariantBackground
from bigbird_dna.genome.promoters import write_loci
from bigbird_dna.genome.sequence import Locus
from bigbird_dna.genome.variants import Note, VcfFile
from bigbird_dna.reporting.variant_page import read_scored, variant_page
from bigbird_dna.scoring.background import RankedEffect, RankedEffects
from bigbird_dna.scoring.formats import write_lines
from bigbird_dna.scoring.masked_likelihood import LikelihoodEffect, LikelihoodEffects
from bigbird_dna.scoring.track_effects import AlleleEffect, TrackEffects
from bigbird_dna.scoring.variant_effects import LAYOUTS, ScoredRecord
from bigbird_dna.scoring.variant_sites import PromoterEffect, SiteEffects, SiteScores
from tests.cli.command import Run, refused, silent
from tests.html_pages import HtmlPage, check_layout, needs_browser
from tests.scoring.test_variant_effects import record

NAMES = ["<b>one</b>", "two:2|x&y", "three"]
ORIGIN = {"bigbird-dna": "0", "model": "abc", "command": "score-variants <x>"}
BACKGROUND = VariantBackground(
    fitted_on={"contigs": ["c"], "reference": "r.fa", "seed": 1},
    options={},
    largest={"C>A": (0.1,)},
)
SYMBOLIC = (Note.SYMBOLIC,)
VCF_HEAD = VcfFile(
    ("##fileformat=VCFv4.2",), "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO", iter(())
)


def effects(kind: str, count: int) -> tuple[object, list[object]]:
    """A kind of effects with quantiles, and random effects of it; each seventh was not scored."""
    rng = np.random.default_rng(1)
    ranks = [
        None if n % 5 == 4 else round(float(rng.random()), 3) for n in range(count)
    ]
    if kind == "tracks":
        own = TrackEffects(9, (0,), NAMES, top=2)
        made: list[object] = [
            AlleleEffect((), delta, delta, np.full(3, 0.5))
            for delta in rng.uniform(-0.5, 0.5, (count, 3))
        ]
        none: object = AlleleEffect(SYMBOLIC, None, None)
    elif kind == "promoters":
        own = SiteEffects(5, 5)
        sites = [
            SiteScores(n, "+-"[n % 2], *rng.random(2).tolist()) for n in range(count)
        ]
        made, none = (
            [PromoterEffect((Note.CONTIG_EDGE,), one) for one in sites],
            PromoterEffect(SYMBOLIC, None),
        )
    else:
        own = LikelihoodEffects(None, 9, (0,), 9)
        made = [LikelihoodEffect((), float(rng.normal()), 0.1) for _ in range(count)]
        none = LikelihoodEffect(SYMBOLIC, None, None)
    found = [
        RankedEffect(none, None) if n % 7 == 6 else RankedEffect(made[n], ranks[n])
        for n in range(count)
    ]
    return RankedEffects(own, BACKGROUND, None), found


def result(path: Path, kind: str, count: int = 31) -> Path:
    """A result of `score-variants`, of which each third record has two ALT."""
    scored, (ranked, found) = [], effects(kind, count)
    while found:
        alts = (
            "C,GATTACAGATTACAGATTACA"
            if len(scored) % 3 == 2 and len(found) > 1
            else "C"
        )
        one = record("chr1", 100 + 40 * len(scored), "A", alts)
        own = tuple(found.pop(0) for _ in one.alts)
        columns = (*one.columns[:2], f"v{len(scored)}<i>", *one.columns[3:])
        scored.append(ScoredRecord(one._replace(columns=columns), own))
    header, lines = LAYOUTS[path.suffix[1:]]
    body = (line for one in scored for line in lines(one, ranked))
    write_lines(path, [*header(ranked, ORIGIN, VCF_HEAD, []), *body])
    return path


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """Two promoters and two regions near the variants."""
    write_loci(
        tmp_path / "tss.tsv",
        [Locus("chr1", 109, "+", "A1&"), Locus("chr1", 619, "-", "B2")],
    )
    (tmp_path / "peaks.bed").write_text("chr1\t150\t260\nchr1\t300\t310\nchr2\t3\t5\n")
    return tmp_path / "tss.tsv", tmp_path / "peaks.bed"


@pytest.mark.parametrize("kind", ["tracks", "promoters", "likelihoods"])
def test_page_has_every_variant_and_needs_no_network(
    kind: str, places: tuple[Path, Path], tmp_path: Path
) -> None:
    vcf, table = (result(tmp_path / f"x.{name}", kind) for name in ("vcf", "tsv"))
    options = {"promoters": places[0], "peaks": places[1], "top": 5, "around": 200}
    order = variant_page(vcf, tmp_path / "a.html", **options)
    assert order == variant_page(table, tmp_path / "b.html", **options)
    texts = [(tmp_path / name).read_text() for name in ("a.html", "b.html")]
    page = HtmlPage(texts[0])
    assert page.closed_in_order and "http" not in texts[0].replace("http-equiv", "")
    assert not page.values("href", "link") and not page.values("src")
    assert texts[0].count("<tr>") == 1 + len(order) == 1 + 31
    for one in order:
        assert f"chr1:{one.position:,}" in page.text and one.id in page.text
        assert one.notes == SYMBOLIC if one.effect is None else one.effect
    known = [one for one in order if one.effect is not None]
    assert order[: len(known)] == known
    ranks = [-1.0 if one.quantile is None else one.quantile for one in known]
    assert ranks == sorted(ranks, reverse=True) and -1.0 in ranks
    last = [abs(one.effect or 0) for one in known if one.quantile is None]
    assert last == sorted(last, reverse=True)
    # Details of the first, with links to them, in the company of all that is near.
    assert page.values("href", "a") == [f"#v{n}" for n in range(1, 6)]
    assert [
        one for one in page.values("id") if one[0] == "v" and one != "variants"
    ] == [f"v{n}" for n in range(1, 6)]
    near = [
        sum(abs(o.position - one.position) <= 200 for o in known) for one in order[:5]
    ]
    assert page.values("class", "circle").count(" head") == 5
    assert len(page.values("class", "circle")) == sum(near)
    tss = [
        sum(abs(at + 1 - one.position) <= 200 for at in (109, 619)) for one in order[:5]
    ]
    assert page.values("class", "path").count("promoter") == sum(tss)
    nearest = ["A1&" if one.position < 365 else "B2" for one in order]
    assert all(
        page.text.count(f"{name} (") >= nearest.count(name) for name in {*nearest}
    )
    bars = {"tracks": 2, "promoters": 1, "likelihoods": 0}[kind] * 5
    assert (
        page.values("class", "span").count("ref")
        == page.values("class", "span").count("alt")
        == bars
    )


def test_a_result_without_quantiles_is_sorted_by_size(tmp_path: Path) -> None:
    path = result(tmp_path / "x.tsv", "promoters")
    rows = [
        line.split("\t")
        for line in path.read_text().splitlines()
        if not line.startswith("##")
    ]
    path.write_text("\n".join("\t".join(row[:-1]) for row in rows) + "\n")
    order = [
        abs(one.effect)
        for one in variant_page(path, tmp_path / "x.html")
        if one.effect is not None
    ]
    assert order == sorted(order, reverse=True)
    assert {one.quantile for one in read_scored(path).variants} == {None}


def test_what_is_no_result_is_refused(
    run: Run, places: tuple[Path, Path], tmp_path: Path
) -> None:
    run, out = silent(run), tmp_path / "x.html"
    good, lines = (
        result(tmp_path / "good.tsv", "tracks"),
        result(tmp_path / "x.vcf", "tracks").read_text().splitlines(),
    )
    damaged = {
        "plain.vcf": "\n".join(
            [lines[0], VCF_HEAD.column_line, "chr1\t5\t.\tA\tC\t.\t.\t."]
        ),
        "none.vcf": "\n".join([lines[0], VCF_HEAD.column_line]),
        "number.vcf": "\n".join(lines).replace("BBD_MAX=", "BBD_MAX=x"),
        "count.vcf": "\n".join(lines).replace("BBD_QUANTILE=", "BBD_QUANTILE=0,0,"),
        "top.vcf": "\n".join(lines).replace("BBD_TOP=", "BBD_TOP=x&"),
        "column.tsv": good.read_text().replace("\tnote\t", "\tremark\t"),
        "position.tsv": good.read_text().replace("chr1\t", "chr1\tx"),
    }
    for name, text in damaged.items():
        (tmp_path / name).write_text(f"{text}\n")
        refused(run("report variant-page", tmp_path / name, "-o", out), 1, name)
    far = tmp_path / "far.bed"
    far.write_text("chr9\t1\t2\n")
    refused(run("report variant-page", good, "-o", out, "--peaks", far), 1, "far.bed")
    refused(run("report variant-page", good, "-o", out, "--around", 0), 2, "around")
    refused(run("report variant-page", good, "-o", good), 2, "good.tsv")
    assert not out.exists()


@needs_browser
def test_layout_in_a_browser(places: tuple[Path, Path], tmp_path: Path) -> None:
    variant_page(
        result(tmp_path / "x.vcf", "tracks"),
        tmp_path / "x.html",
        promoters=places[0],
        top=3,
    )
    check_layout((tmp_path / "x.html").read_text(), tmp_path)
