"""`model add-background` and the quantiles of `score-variants`, against random variants scored one by one."""

import re
import shutil
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial, partialmethod
from pathlib import Path

import numpy as np
import pytest

import bigbird_dna
from bigbird_dna.calibration.variant_background import (
    FILE,
    LEAST,
    TYPES,
    read_background,
    variant_type,
)
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.variants import Change, find_change
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.scoring import variants
from bigbird_dna.scoring.random_variants import add_background, background_variants
from tests.cli.command import Run, refused, silent, table
from tests.golden.messages import message
from tests.scoring.conftest import RECORDS, TRACKS
from tests.scoring.same_scores import assert_same_scores
from tests.toys import VCF, hashed, update_json

EFFECT = {"promoter": "delta", "chromatin": "max_delta", "pretraining": "log_ratio"}
CONTIGS = ("long", "gap", "last")
PER_TYPE = 2 * LEAST
NAMES = [name for names in TYPES.values() for name in names]


@pytest.fixture(scope="module", autouse=True)
def predictors() -> Iterator[None]:
    """Predictions that any base can change, and that take no time."""

    def likelihoods(_: object, inputs: Sequence[object], **__: object) -> np.ndarray:
        return hashed(list(map(str, inputs))) - 1

    with pytest.MonkeyPatch.context() as patch:
        for model, shape in (
            (LoadedPromoterModel, ()),
            (LoadedChromatinModel, (1, len(TRACKS))),
        ):
            predict = partial(
                lambda shape, _, sequences, **__: hashed(sequences, *shape), shape
            )
            patch.setattr(model, "window_probabilities", partialmethod(predict))
        patch.setattr(variants, "masked_log_likelihoods", likelihoods)
        yield


@pytest.fixture(scope="module")
def models(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of each kind with a background of CONTIGS, drawn with seed 3."""
    path, options = tmp_path_factory.mktemp("models"), {"per_type": PER_TYPE, "seed": 3}
    for kind in EFFECT:
        shutil.copytree(home / kind, path / kind)
        add_background(
            path / kind, home / "genome.fa.gz", contigs=CONTIGS, device="cpu", **options
        )
    return path


def drawn(home: Path, seed: int, per_type: int = PER_TYPE) -> list[Change]:
    with Reference(home / "genome.fa.gz") as genome:
        return background_variants(
            genome, CONTIGS, per_type, np.random.default_rng(seed)
        )


def scored(model: Path, vcf: Path, home: Path, **options: object) -> str:
    output = vcf.with_suffix(".scored.tsv")
    bigbird_dna.score_variants(
        model, vcf, home / "genome.fa.gz", output, device="cpu", **options
    )  # type: ignore[arg-type]
    return output.read_text()


def as_record(change: Change) -> str:
    """A record with the base before the change, or with the one after it at the start of a contig."""
    bases, (contig, start, ref, alt) = RECORDS[change.contig], change
    before = bases[start - 1 : start] if start else ""
    after = "" if start else bases[len(ref)]
    return f"{contig}\t{start + 1 - len(before)}\t.\t{before}{ref}{after}\t{before}{alt}{after}\t.\t.\t.\n"


def expected_type(row: dict[str, str], genome: Reference) -> str:
    change = find_change(
        row["contig"], int(row["position"]) - 1, row["ref"], row["alt"], genome
    )
    assert isinstance(change, Change)
    ref, alt = change.ref, change.alt
    if len(ref) == len(alt) == 1:
        pairs = (f"{ref}>{alt}", f"{reverse_complement(ref)}>{reverse_complement(alt)}")
        return max(pairs, key=lambda pair: pair[0] in "CT")
    size = max(len(ref), len(alt))
    length = "1" if size == 1 else "2-5" if size <= 5 else "6-20"
    return f"{'MNV' if ref and alt else 'DEL' if ref else 'INS'}_{length}"


@pytest.mark.parametrize("kind", EFFECT)
def test_a_quantile_is_the_fraction_of_smaller_random_effects(
    kind: str, models: Path, home: Path, tmp_path: Path
) -> None:
    random, given = tmp_path / "random.vcf", tmp_path / "given.vcf"
    random.write_text(VCF + "".join(map(as_record, drawn(home, 3))))
    given.write_text(VCF + "".join(map(as_record, drawn(home, 4, 4))))
    sizes: dict[str, list[float]] = defaultdict(list)
    with Reference(home / "genome.fa.gz") as genome:
        for row in table(scored(home / kind, random, home)):
            if row[EFFECT[kind]] != "NA":
                sizes[expected_type(row, genome)].append(abs(float(row[EFFECT[kind]])))
        text = scored(models / kind, given, home)
        rows = [row for row in table(text) if row[EFFECT[kind]] != "NA"]
        assert len(rows) > 30 and {expected_type(row, genome) for row in rows} == {
            *NAMES
        }
        for row in rows:
            own = sorted(sizes[expected_type(row, genome)])
            fraction = bisect_left(own, abs(float(row[EFFECT[kind]]))) / len(own)
            assert row["quantile"] == (f"{fraction:.6g}" if len(own) >= LEAST else "NA")
    assert len({row["quantile"] for row in rows}) > 10
    # Everything else is as without a background.
    plain = scored(home / kind, given, home).replace(str(home), str(models))
    without = re.sub("## background .*\n|\t(quantile|NA|[0-9.e-]+)(?=\n)", "", text)
    header = len(plain.splitlines()) - len(table(plain)) - 1
    assert without.splitlines()[header:] == plain.splitlines()[header:]


def test_every_variant_of_a_type_is_drawn(home: Path) -> None:
    """In normal form, on the reference's bases, each once; which ones, by the seed alone."""
    found = drawn(home, 1, 60)
    assert found == drawn(home, 1, 60) != drawn(home, 2, 60)
    assert len(set(found)) == len(found)
    assert Counter(map(variant_type, found)) == dict.fromkeys(NAMES, 60)
    for one in found:
        bases = RECORDS[one.contig]
        assert (
            bases[one.start : one.start + len(one.ref)] == one.ref
            and "N" not in one.ref + one.alt
        )
        turned = Change(
            one.contig,
            one.start,
            reverse_complement(one.ref),
            reverse_complement(one.alt),
        )
        assert variant_type(turned) == variant_type(one)
    assert {one.contig for one in found} == {*CONTIGS}
    starts = [one.start / len(RECORDS["long"]) for one in found if one.contig == "long"]
    assert 0.45 < np.mean(starts) < 0.55


def test_other_shapes_have_no_type() -> None:
    pairs = [("A", "CG"), ("A" * 6, "C" * 6), ("", "A" * 21), ("A" * 21, "")]
    assert {variant_type(Change("c", 5, *pair)) for pair in pairs} == {None}


def test_every_form_of_a_record_has_the_same_quantile(
    models: Path, home: Path, tmp_path: Path
) -> None:
    bases = RECORDS["long"]
    run = next(
        at
        for at in range(300, 600)
        if len({*bases[at : at + 3]}) == 1 and bases[at - 1] != bases[at]
    )
    before, base, after = bases[run - 1], bases[run], bases[run + 3]
    other = {"A": "C", "C": "G", "G": "T", "T": "A"}
    forms = {  # a deletion of one base of the run, and a substitution
        "del": [
            (run - 1, before + base, before),
            (run, base * 3 + after, base * 2 + after),
        ],
        "sub": [
            (run, base, other[base]),
            (run - 1, before + base * 2, before + other[base] + base),
            (
                run,
                base,
                f"{'ACGT'.replace(base, '').replace(other[base], '')[0]},{other[base]}",
            ),
        ],
    }
    path = tmp_path / "forms.vcf"
    lines = [
        f"long\t{at + 1}\t{name}\t{ref}\t{alt}"
        for name, own in forms.items()
        for at, ref, alt in own
    ]
    path.write_text(VCF + "".join(f"{line}\t.\t.\t.\n" for line in lines))
    for kind in EFFECT:
        rows = [
            row
            for row in table(scored(models / kind, path, home))
            if len(row["alt"]) != 1 or row["id"] == "del" or row["alt"] == other[base]
        ]
        quantiles = {
            name: {row["quantile"] for row in rows if row["id"] == name}
            for name in forms
        }
        assert all(len(own) == 1 and own != {"NA"} for own in quantiles.values()), (
            quantiles
        )


def test_shards_keep_quantiles(
    run: Run, models: Path, home: Path, tmp_path: Path
) -> None:
    for format in ("vcf", "tsv"):
        words = (
            "score-variants",
            models / "chromatin",
            home / "x.vcf",
            "--reference",
            home / "genome.fa.gz",
        )
        words += ("--format", format, "--top-tracks", 2)
        whole, merged = tmp_path / f"whole.{format}", tmp_path / f"merged.{format}"
        assert run(*words, "-o", whole).code == 0
        shards = [tmp_path / f"{format}-{number}" for number in (1, 2)]
        for number, shard in enumerate(shards, 1):
            assert run(*words, "-o", shard, "--shard", f"{number}/2").code == 0
        assert run("merge-shards", *shards, "-o", merged).code == 0
        assert_same_scores(merged, whole)
    text = (tmp_path / "whole.vcf").read_text("utf-8", "surrogateescape")
    stated = re.search('##INFO=<ID=BBD_QUANTILE,.*: (.*)",Source', text)
    background = read_background(models / "chromatin" / FILE)
    assert stated is not None and stated[1] == str(background)
    assert f"##bigbird_dna_background={background}\n" in text
    assert all(
        word in stated[1]
        for word in (*CONTIGS, "genome.fa.gz", "seed 3", f"{background.variants}")
    )


def test_the_tracks_of_the_largest_effects(models: Path, home: Path) -> None:
    rows = table(
        scored(models / "chromatin", home / "x.vcf", home, tracks="*", top_tracks=3)
    )
    tops = [row for row in rows if row["top"] != "NA"]
    assert len(tops) > 10
    for row in tops:
        deltas = {
            key[:-6]: float(value)
            for key, value in row.items()
            if key.endswith(":delta")
        }
        best = sorted(deltas, key=lambda name: -abs(deltas[name]))[:3]
        found = [part.split(":") for part in row["top"].split("&")]
        assert [name for name, _, _ in found] == best and best[0] == row["max_track"]
        for name, ref, alt in found:
            assert float(alt) - float(ref) == pytest.approx(deltas[name], abs=2e-6)
    # The effect on a single track has the quantile of this track.
    background = read_background(models / "chromatin" / FILE)
    for row in table(scored(models / "chromatin", home / "x.vcf", home, tracks="two")):
        if row["quantile"] != "NA" and len(row["ref"]) == len(row["alt"]) == 1:
            type = variant_type(Change("", 0, row["ref"], row["alt"]))
            assert (
                row["quantile"]
                == f"{background.quantile(type, float(row['two:delta']), 'two'):.6g}"
            )


def test_effects_of_other_options_have_no_quantile(
    run: Run, models: Path, home: Path, tmp_path: Path
) -> None:
    others = {
        "promoter": [("--stride", 7)],
        "chromatin": [("--offsets", 1), ("--tracks", "one,two")],
    }
    others["pretraining"] = [("--context", 60)]
    for kind, options in others.items():
        for option in options:
            out = tmp_path / "out.tsv"
            words = (
                "score-variants",
                models / kind,
                home / "x.vcf",
                "--reference",
                home / "genome.fa.gz",
            )
            result = run(*words, *option, "-o", out)
            assert result.code == 0 and "quantile" not in table(out.read_text())[0]
            message(result.err.splitlines()[0].partition("  ")[2], FILE)


def test_a_background_belongs_to_its_weights(
    run: Run, models: Path, home: Path, tmp_path: Path
) -> None:
    other, out = tmp_path / "other", tmp_path / "out.vcf"
    shutil.copytree(home / "other", other)
    score = (
        "score-variants",
        other,
        home / "x.vcf",
        "--reference",
        home / "genome.fa.gz",
        "-o",
        out,
    )
    shutil.copy(models / "promoter" / FILE, other)
    refused(run(*score), 1, FILE)
    update_json(other / FILE, options={})
    refused(run(*score), 1, FILE)
    refused(
        run("score-variants", home / "promoter", *score[2:], "--top-tracks", 1),
        2,
        "top_tracks",
    )
    refused(
        run("score-variants", home / "chromatin", *score[2:], "--top-tracks", 0),
        2,
        "top_tracks",
    )
    assert not out.exists()
    # Other weights leave it behind.
    half = tmp_path / "half"
    assert run("model to-float16", models / "chromatin", "-o", half).code == 0
    assert not (half / FILE).exists()


def test_what_has_no_background_is_refused(
    run: Run, home: Path, tmp_path: Path
) -> None:
    run = silent(run)
    add = (
        "model add-background",
        home / "promoter",
        "--reference",
        home / "genome.fa.gz",
    )
    new = ("-o", tmp_path / "new", "--per-type", 2)
    refused(run(*add, *new, "--contig", "none"), 1, "none")
    refused(run(*add, *new[:2], "--per-type", 0), 2, "per_type")
    refused(run(*add, *new, "--contig", "tiny"), 1, "tiny", after_log=True)
    refused(run(add[0], home / "sequences", *add[2:], *new), 1, "sequences")
    refused(run(add[0], home / "genome.fa", *add[2:], *new), 2, "genome.fa")
    refused(
        run(add[0], "yeast-promoters-window", *add[2:]), 2, "yeast-promoters-window"
    )
    assert not (tmp_path / "new").exists() and not (home / "promoter" / FILE).exists()
    assert run(*add, *new, "--contig", "last", "--seed", 5).code == 0
    found = read_background(
        tmp_path / "new" / FILE, checksum(home / "promoter" / "model.safetensors")
    )
    assert found.fitted_on["contigs"] == ["last"] and found.fitted_on["seed"] == 5
    assert {*map(len, found.largest.values())} <= {1, 2}
