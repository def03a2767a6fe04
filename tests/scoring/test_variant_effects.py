"""Effects of variants against whole contigs that are edited, with predictors that any base can change."""

import gzip
from collections.abc import Sequence
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pysam
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import ModelError
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.variants import (
    Note,
    VcfFile,
    VcfRecord,
    open_vcf,
    window_offsets,
)
from bigbird_dna.scoring.formats import write_index, write_lines
from bigbird_dna.scoring.track_effects import AlleleEffect, TrackEffects, escape
from bigbird_dna.scoring.variant_effects import LAYOUTS, ScoredRecord, score_records
from bigbird_dna.scoring.variant_sites import (
    NO_SITE,
    PromoterEffect,
    SiteEffects,
    TssSites,
)
from tests.golden.messages import fails
from tests.toys import hashed, random_dna, texts

WINDOW = 24
OFFSETS = (-5, 0, 3)


def tracks(sequences: Sequence[str]) -> np.ndarray:
    return hashed(sequences, 1, 3)


UP, DOWN = 9, 5
KINDS: dict[str, tuple[Any, Any]] = {
    "tracks": (TrackEffects(WINDOW, OFFSETS), tracks),
    **{
        f"sites, {stride} bp": (SiteEffects(UP, DOWN, stride), hashed)
        for stride in (1, 2, 7)
    },
}


def record(contig: str, pos: int, ref: str, alt: str, **other: Any) -> VcfRecord:
    columns = (contig, str(pos), ".", ref, alt, ".", ".", other.get("info", "."))
    rest = other.get("rest", "")
    return VcfRecord(1, contig, pos - 1, ref, tuple(alt.split(",")), columns, rest)


def score(
    records: Sequence[VcfRecord], reference: Any, **options: Any
) -> list[ScoredRecord]:
    options = {
        "window": WINDOW,
        "predict": tracks,
        "offsets": OFFSETS,
        "max_n": 1.0,
        **options,
    }
    kind = TrackEffects(options.pop("window"), options.pop("offsets"))
    return list(score_records(records, reference, kind, **options))


def effects(
    records: Sequence[VcfRecord], reference: Any, kind: Any = None, max_n: float = 1.0
) -> list[Any]:
    """Effects of one kind, or at sites: every one, or those that are given."""
    model, predict = (
        KINDS[kind]
        if isinstance(kind, str)
        else (SiteEffects(UP, DOWN, 1, kind), hashed)
    )
    found = score_records(records, reference, model, predict, max_n=max_n)
    return [effect for row in found for effect in row.effects]


def same(first: AlleleEffect, second: AlleleEffect, sign: int = 1) -> bool:
    """Whether two effects are equal to the last bit."""
    if first.delta is None or second.delta is None:
        return first == second
    return (
        first.notes == second.notes
        and np.array_equal(first.delta, sign * second.delta)
        and np.array_equal(first.log_odds, sign * second.log_odds)
    )


class Variant(NamedTuple):
    """A contig, 0-based start, REF and ALT of a variant, and the contig once it is in place."""

    sequence: str
    start: int
    ref: str
    alt: str
    edited: str

    @property
    def record(self) -> VcfRecord:
        return record("c", self.start + 1, self.ref, self.alt)


@st.composite
def variants(draw: st.DrawFn) -> Variant:
    """In or near a repeat."""
    unit = draw(st.sampled_from(["A", "AC", "GAT"]))
    sequence = (
        draw(st.text("ACGT", min_size=5, max_size=40))
        + unit * draw(st.integers(0, 12))
        + draw(st.text("ACGT", min_size=1, max_size=40))
    )
    start = draw(st.integers(0, len(sequence) - 1))
    ref = sequence[start : start + draw(st.integers(1, 5))]
    alt = draw(st.text("ACGT", min_size=1, max_size=5) | st.just(ref + unit))
    assume(ref != alt)
    return Variant(
        sequence, start, ref, alt, sequence[:start] + alt + sequence[start + len(ref) :]
    )


@settings(max_examples=100, deadline=None)
@given(variants())
def test_effect_is_that_of_the_edited_contig(case: Variant) -> None:
    """Means over both strands and all offsets of windows cut from either contig, by hand."""
    sequence, edited = case.sequence, case.edited
    ((_, (effect,)),) = score([case.record], texts(c=sequence))
    assert effect.delta is not None and effect.log_odds is not None
    # The first base that differs, once what both contigs end with is put aside.
    end = 0
    while (
        end < min(len(sequence), len(edited)) and sequence[-1 - end] == edited[-1 - end]
    ):
        end += 1
    short, long = sorted(
        (sequence[: len(sequence) - end], edited[: len(edited) - end]), key=len
    )
    first = next((i for i, base in enumerate(short) if base != long[i]), len(short))
    means = []
    for contig in (sequence, edited):
        padded = "N" * WINDOW + contig + "N" * (WINDOW * 2)
        windows = []
        for offset in OFFSETS:
            left = WINDOW + first - (WINDOW - (len(long) - first)) // 2 - offset
            windows.append(padded[left : left + WINDOW])
        turned = [reverse_complement(window) for window in windows]
        means.append(tracks([*windows, *turned]).mean(axis=(0, 1), dtype=np.float64))
    np.testing.assert_allclose(effect.delta, means[1] - means[0], rtol=0, atol=1e-12)
    odds = [np.log(mean) - np.log1p(-mean) for mean in means]
    np.testing.assert_allclose(effect.log_odds, odds[1] - odds[0], rtol=0, atol=1e-9)
    assert abs(effect.delta[effect.largest]) == np.abs(effect.delta).max()


@settings(max_examples=150, deadline=None)
@given(variants(), st.sampled_from(list(KINDS)))
def test_exchanging_ref_and_alt_negates_every_effect(case: Variant, kind: str) -> None:
    (forth,) = effects([case.record], texts(c=case.sequence), kind)
    back_again = record("c", case.start + 1, case.alt, case.ref)
    (back,) = effects([back_again], texts(c=case.edited), kind)
    if kind == "tracks":
        assert same(forth, back, -1)
    elif forth.largest is None or back.largest is None:
        assert forth == back
    else:
        assert forth.notes == back.notes
        assert (forth.largest.ref, forth.largest.alt) == (
            back.largest.alt,
            back.largest.ref,
        )


@settings(max_examples=100, deadline=None)
@given(variants(), st.integers(0, 9), st.integers(0, 9), st.data())
def test_padding_and_alignment_change_nothing(
    case: Variant, before: int, after: int, data: st.DataObject
) -> None:
    sequence, start, ref, alt, edited = case
    before = min(before, start)
    end = start + len(ref)
    head, tail = sequence[start - before : start], sequence[end : end + after]
    padded = record("c", start - before + 1, head + ref + tail, head + alt + tail)
    # Another place of a repeat that gives the same contig is the same variant.
    moved = [
        record("c", s + 1, sequence[s : s + len(ref)], edited[s : s + len(alt)])
        for s in range(len(sequence) - len(ref) + 1)
        if edited[:s] == sequence[:s]
        and edited[s + len(alt) :] == sequence[s + len(ref) :]
    ]
    chosen = data.draw(st.sampled_from(moved))
    found = score([case.record, padded, chosen], texts(c=sequence))
    assert same(found[0].effects[0], found[1].effects[0])
    assert same(found[0].effects[0], found[2].effects[0])


def random_records(sequence: str, count: int, seed: int) -> list[VcfRecord]:
    rng = np.random.default_rng(seed)
    found = []
    for start in rng.integers(0, len(sequence) - 5, count).tolist():
        ref = sequence[start : start + int(rng.integers(1, 4))]
        alts = [
            random_dna(int(rng.integers(1, 4)), start + k)
            for k in range(int(rng.integers(1, 4)))
        ]
        found.append(
            record("c", start + 1, ref, ",".join([*alts, "*"][: 1 + len(alts)]))
        )
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, 1.5, -0.1])
def test_predictions_that_are_no_probabilities_are_refused(
    kind: str, value: float
) -> None:
    model, predict = KINDS[kind]
    broken = lambda some: np.full_like(predict(some), value)  # noqa: E731
    with fails(ModelError):
        list(
            score_records([record("c", 30, "T", "C")], texts(c="T" * 60), model, broken)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_order_and_batches_change_nothing(kind: str) -> None:
    sequence = random_dna(400, 1)
    reference = texts(c=sequence)
    records = random_records(sequence, 60, 2)
    model, scored = KINDS[kind]
    expected = list(score_records(records, reference, model, scored, max_n=1.0))
    assert [row.record for row in expected] == records
    order = np.random.default_rng(3).permutation(len(records))
    for size in (1, 7, 50, 100_000):
        calls: list[int] = []

        def predict(sequences: Sequence[str], calls: list[int] = calls) -> np.ndarray:
            calls.append(len(sequences))
            return scored(sequences)

        turned = [records[index] for index in order]
        found = list(
            score_records(
                turned, reference, model, predict, max_n=1.0, batch_sequences=size
            )
        )
        assert [row.record for row in found] == turned
        assert max(calls) <= size, "no call is larger than asked for"
        for index, row in zip(order, found, strict=True):
            assert all(
                map(
                    same if kind == "tracks" else eq,
                    row.effects,
                    expected[index].effects,
                )
            )


def test_a_batch_is_filled_across_records_and_no_sequence_predicted_twice() -> None:
    sequence = random_dna(3000, 4)
    calls: list[list[str]] = []

    def predict(sequences: Sequence[str]) -> np.ndarray:
        calls.append(list(sequences))
        return tracks(sequences)

    base = sequence[1000]
    alts = [letter for letter in "ACGT" if letter != base]
    double = record("c", 1001, base, ",".join(alts))
    found = score([double, double], texts(c=sequence), predict=predict)
    assert len(calls) == 1
    assert len(calls[0]) == len(set(calls[0])) == 4 * 2 * len(OFFSETS), (
        "REF once, each ALT once"
    )
    assert len(found) == 2 and all(map(same, found[0].effects, found[1].effects))


def test_records_stream() -> None:
    """Few records are read ahead of those that come out, scored or not."""
    sequence = random_dna(500, 5)
    read = 0

    def records(ref: str) -> Any:
        nonlocal read
        for _ in range(100_000):
            read += 1
            yield record("c", 101, ref, "ACGT".replace(ref, "")[0])

    for ref in (sequence[100], "ACGT".replace(sequence[100], "")[0]):
        read = 0
        rows = score_records(
            records(ref), texts(c=sequence), TrackEffects(WINDOW, OFFSETS), tracks
        )
        next(rows)
        assert read < 1000


def test_edges_and_n_are_noted() -> None:
    sequence = random_dna(60, 6) + "N" * 30 + random_dna(60, 7)
    reference = texts(c=sequence, tiny="ACGTA")

    def effect(contig: str, pos: int, max_n: float) -> AlleleEffect:
        ref = reference.sequences[contig][pos - 1]
        alt = "C" if ref == "A" else "A"
        ((_, (found,)),) = score(
            [record(contig, pos, ref, alt)], reference, max_n=max_n, offsets=(0,)
        )
        return found

    left = (WINDOW - 1) // 2
    for pos, beyond in (
        (1, left),
        (left, 1),
        (left + 1, 0),
        (150 - WINDOW + left + 1, 0),
        (150, 12),
    ):
        notes = (Note.CONTIG_EDGE,) if beyond else ()
        scored = effect("c", pos, beyond / WINDOW)
        assert scored.notes == notes and scored.delta is not None
        if beyond:
            unscored = effect("c", pos, (beyond - 0.5) / WINDOW)
            assert unscored == AlleleEffect(
                (Note.TOO_MANY_N, Note.CONTIG_EDGE), None, None
            )
    assert effect("c", 60, 12 / WINDOW).notes == ()
    assert effect("c", 60, 11 / WINDOW) == AlleleEffect((Note.TOO_MANY_N,), None, None)
    assert effect("tiny", 3, 1.0).notes == (Note.CONTIG_EDGE,)
    ((_, (long, symbolic)),) = score(
        [record("tiny", 1, "A", f"A{'ACGT' * 10},<DEL>")], reference
    )
    assert long == AlleleEffect((Note.TOO_LONG,), None, None)
    assert symbolic == AlleleEffect((Note.SYMBOLIC,), None, None)


def test_log_odds_of_certain_predictions_are_finite() -> None:
    sequence = "T" * 60

    def certain(sequences: Sequence[str]) -> np.ndarray:
        values = [[[float("C" in text or "G" in text)]] for text in sequences]
        return np.array(values, np.float32)

    ((_, (effect,)),) = score(
        [record("c", 30, "T", "C")], texts(c=sequence), predict=certain
    )
    assert effect.delta is not None and effect.log_odds is not None
    assert effect.delta.tolist() == [1.0]
    assert effect.log_odds == pytest.approx(2 * np.log(1e6), rel=1e-5)


@pytest.mark.parametrize("options", [{"window": 0}, {"offsets": ()}, {"max_n": 1.1}])
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with fails(ValueError):
        score([], texts(c="ACGT"), **options)


NAMES = ("GM12878|CTCF|None", 'a b;c=d,e%f"g', "H3K4me3\u00a0")
META = (
    "##fileformat=VCFv4.2",
    '##INFO=<ID=AF,Number=A,Type=Float,Description="frequency">',
    '##INFO=<ID=BBD_MAX,Number=1,Type=String,Description="of another version">',
    "##bigbird_dna_version=0.0",
    "##contig=<ID=c,length=200>",
    '##FORMAT=<ID=GT,Number=1,Type=String,Description="genotype">',
)
COLUMN_LINE = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tsample"


COMMAND = "bigbird-dna score-variants m x.vcf"
HEAD = VcfFile(META, COLUMN_LINE, iter(()))
ORIGIN = {"bigbird-dna": "1.2", "model": "abcd", "command": COMMAND}


def write(
    path: Path,
    scored: list[ScoredRecord],
    format: str,
    fields: TrackEffects,
    head: VcfFile,
) -> None:
    """A file of effects."""
    header, of_record = LAYOUTS[format]
    lines = [line for row in scored for line in of_record(row, fields)]
    write_lines(path, [*header(fields, ORIGIN, head, ()), *lines], "surrogateescape")


def example() -> tuple[list[VcfRecord], list[ScoredRecord]]:
    sequence = random_dna(200, 9)

    def other(pos: int) -> str:
        return "A" if sequence[pos - 1] != "A" else "C"

    records = [
        record("c", 5, sequence[4], other(5), info="AF=0.5;DB", rest="GT\t0/1"),
        record("c", 90, sequence[89], f"<DEL>,{other(90)}", rest="GT\t1/2"),
        record(
            "c",
            90,
            other(90),
            sequence[89],
            info="BBD_MAX=7;AF=1;BBD_OLD",
            rest="GT\t1|1",
        ),
        record(
            "c", 100, sequence[99:102], sequence[99], info="BBD_MAX=7", rest="GT\t./."
        ),
    ]
    return records, score(records, texts(c=sequence))


@pytest.mark.parametrize("per_track", [False, True])
def test_vcf_is_read_by_htslib(tmp_path: Path, per_track: bool) -> None:
    records, scored = example()
    path, keys = (
        tmp_path / "x.vcf",
        ["MAX", "MAXTRACK", *["DELTA", "LOGODDS"] * per_track],
    )
    write(path, scored, "vcf", TrackEffects(WINDOW, OFFSETS, NAMES, per_track), HEAD)
    lines = path.read_text().splitlines()
    assert [line for line in lines if line in META] == [*META[:2], *META[4:]]
    own = ("version=1.2", "model=abcd", f"command={COMMAND}")
    assert lines[4:7] == [f"##bigbird_dna_{one}" for one in own]
    described = [line for line in lines if "ID=BBD_" in line]
    assert [line.split(",")[0] for line in described] == [
        f"##INFO=<ID=BBD_{key}" for key in [*keys, "NOTE"]
    ]
    assert all('Source="bigbird-dna",Version="1.2">' in line for line in described)
    head, *body = (line.split("\t") for line in lines if not line.startswith("##"))
    assert "\t".join(head) == COLUMN_LINE
    for row, fields in zip(records, body, strict=True):
        assert (*fields[:7], *fields[8:]) == (*row.columns[:7], *row.rest.split("\t"))
    assert [fields[7].split("BBD_")[0] for fields in body] == [
        "AF=0.5;DB;",
        "",
        "AF=1;",
        "",
    ]
    with pysam.VariantFile(str(path)) as vcf:
        if per_track:
            order = (
                vcf.header.info["BBD_DELTA"].description.strip('"').rsplit(" ", 1)[1]
            )
            assert tuple(map(unquote, order.split(","))) == NAMES
        for (_, effects), found in zip(scored, vcf, strict=True):
            notes = tuple("&".join(effect.notes) or "." for effect in effects)
            assert found.info.get("BBD_NOTE") == (notes if {*notes} != {"."} else None)
            shown = [key for key in keys if f"BBD_{key}" in found.info]
            assert shown == (
                keys if any(effect.delta is not None for effect in effects) else []
            )
            for key, field in zip(shown[2:], ("delta", "log_odds"), strict=False):
                for effect, text in zip(effects, found.info[f"BBD_{key}"], strict=True):
                    expected = [] if effect.delta is None else getattr(effect, field)
                    values = (
                        []
                        if text == "."
                        else [float(value) for value in text.split("&")]
                    )
                    np.testing.assert_allclose(values, expected, rtol=1e-5)
            largest = [found.info[f"BBD_{key}"] for key in shown[:2]]
            for effect, value, name in (
                zip(effects, *largest, strict=True) if shown else ()
            ):
                if effect.delta is None:
                    assert value is None and name in (None, ".")
                else:
                    assert value == pytest.approx(
                        effect.delta[effect.largest], rel=1e-5
                    )
                    assert unquote(name) == NAMES[effect.largest]


@pytest.mark.parametrize("per_track", [False, True])
def test_table(tmp_path: Path, per_track: bool) -> None:
    _, scored = example()
    write(
        tmp_path / "x",
        scored,
        "tsv",
        TrackEffects(WINDOW, OFFSETS, NAMES, per_track),
        HEAD,
    )
    head, lines = ["## bigbird-dna 1.2", "## model abcd", f"## command {COMMAND}"], []
    named = [
        f"{name}:{value}" for name in NAMES for value in ("delta", "logodds")
    ] * per_track
    head.append(
        "\t".join(
            [
                "#contig",
                "position",
                "ref",
                "alt",
                "id",
                "note",
                "max_delta",
                "max_track",
                *named,
            ]
        )
    )
    for row in scored:
        for alt, effect in zip(row.record.alts, row.effects, strict=True):
            values = ["NA"] * (2 + len(named))
            if effect.delta is not None and effect.log_odds is not None:
                pairs = zip(effect.delta, effect.log_odds, strict=True)
                largest = f"{effect.delta[effect.largest]:.6g}", NAMES[effect.largest]
                values = [
                    *largest,
                    *[f"{value:.6g}" for pair in pairs for value in pair] * per_track,
                ]
            place = (
                row.record.contig,
                str(row.record.start + 1),
                row.record.ref,
                alt,
                ".",
            )
            lines.append("\t".join([*place, "&".join(effect.notes) or ".", *values]))
    assert len(lines) == 5 and (tmp_path / "x").read_text().splitlines() == [
        *head,
        *lines,
    ]


@pytest.mark.parametrize("format", LAYOUTS)
def test_bgzip_by_its_name_and_its_index(tmp_path: Path, format: str) -> None:
    _, scored = example()
    plain, packed = tmp_path / "x", tmp_path / "x.gz"
    for path in (plain, packed):
        write(path, scored, format, TrackEffects(WINDOW, OFFSETS, NAMES, True), HEAD)
    assert packed.read_bytes()[12:14] == b"BC", "bgzip's extra field"
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    for ending in ("tbi", "csi"):
        index = tmp_path / f"x.gz.{ending}"
        write_index(packed, index, format)
        with pysam.TabixFile(str(packed), index=str(index), encoding="utf-8") as table:
            rows = list(table.fetch("c", 89, 99))
        assert len(rows) == {"vcf": 2, "tsv": 3}[format], (
            "those at 90, not those at 5 and 100"
        )
        assert all(row.split("\t")[1] == "90" for row in rows)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_escaped_names_can_be_read_back(name: str) -> None:
    text = escape(name)
    assert unquote(text) == name
    assert text != "." and not set(text) & set(' ;=,"\\\t\n\r')


def test_real_variants_are_scored_or_say_why_not(
    tmp_path: Path, shared_data: Path
) -> None:
    hg19 = shared_data / "hg19"
    prepare_reference(hg19 / "chr22_1-22000000.fa.gz", tmp_path / "chr22.fa.gz")
    path = hg19 / "chr22_17442913-17680545.1000G_sites.vcf.gz"
    output = tmp_path / "x.vcf.gz"
    with Reference(tmp_path / "chr22.fa.gz") as reference, open_vcf(path) as vcf:
        kind = TrackEffects(1000, window_offsets(4))
        scored = list(score_records(vcf.records, reference, kind, tracks))
    assert len(scored) == 2185
    for _, effects in scored:
        for effect in effects:
            assert (
                effect.notes == ()
                and effect.delta is not None
                and np.ptp(effect.delta) > 0
            )
    write(
        output, scored, "vcf", TrackEffects(WINDOW, OFFSETS, ["a", "b", "c"], True), vcf
    )
    write_index(output, tmp_path / "x.vcf.gz.tbi", "vcf")
    with pysam.VariantFile(str(output)) as found, pysam.VariantFile(str(path)) as given:
        assert all(
            row.info["BBD_MAX"] for row in found.fetch("22", 17_500_000, 17_510_000)
        )
        assert sum(1 for _ in found.fetch("22")) == sum(1 for _ in given)


# At sites


def window(contig: str, place: int, strand: str) -> tuple[str, int, int]:
    """The window of a TSS, and where it lies; beyond the contig there is N."""
    first, end = (
        (place - UP, place + DOWN)
        if strand == "+"
        else (place - DOWN + 1, place + UP + 1)
    )
    text = "".join(
        contig[i] if 0 <= i < len(contig) else "N" for i in range(first, end)
    )
    return (text if strand == "+" else reverse_complement(text)), first, end


def touches(first: int, end: int, start: int, changed: int) -> bool:
    """Whether a window has a changed base, or both neighbors of the place between two."""
    return (
        (first < start + changed and start < end) if changed else (first < start < end)
    )


def oracle(sequence: str, edited: str) -> dict[tuple[int, str], tuple[float, float]]:
    """Scores of both alleles at every site that counts, by the reference's position and strand."""
    same_end = 0
    while (
        same_end < min(len(sequence), len(edited))
        and sequence[-1 - same_end] == edited[-1 - same_end]
    ):
        same_end += 1
    n, m = len(sequence) - same_end, len(edited) - same_end
    start = 0
    while start < min(n, m) and sequence[start] == edited[start]:
        start += 1
    n, m = n - start, m - start
    found = {}
    for strand in "+-":
        pairs = [(i, i) for i in range(start)]
        pairs += [(start + n + i, start + m + i) for i in range(same_end)]
        for k in range(max(n, m)):  # in transcription order
            i, j = (
                k if length and k < length else length - 1 if length else None
                for length in (n, m)
            )
            if strand == "-":
                i, j = (
                    None if x is None else size - 1 - x for x, size in ((i, n), (j, m))
                )
            beside = 0 if strand == "+" else -1
            pairs.append(
                (
                    start + (beside if i is None else i),
                    start + (beside if j is None else j),
                )
            )
        for number, (i, j) in enumerate(pairs):
            if not (0 <= i < len(sequence) and 0 <= j < len(edited)):
                continue
            (ref, *place), (alt, *_) = (
                window(sequence, i, strand),
                window(edited, j, strand),
            )
            if number < len(sequence) - n and not touches(*place, start, n):
                continue
            # Where several bases stand for one, that with the largest change counts.
            both = tuple(hashed([ref, alt]).tolist())
            kept = found.get((i, strand), both)
            found[i, strand] = max(both, kept, key=lambda pair: abs(pair[1] - pair[0]))
    return found


@settings(max_examples=150, deadline=None)
@given(variants())
def test_the_effect_is_the_largest_change_between_the_edited_contigs(
    case: Variant,
) -> None:
    (effect,) = effects([case.record], texts(c=case.sequence))
    expected = oracle(case.sequence, case.edited)
    largest = max(expected.values(), key=lambda both: abs(both[1] - both[0]))
    assert effect.largest is not None
    assert (effect.largest.ref, effect.largest.alt) == largest
    assert expected[effect.largest.position, effect.largest.strand] == largest


@settings(max_examples=150, deadline=None)
@given(
    variants(),
    st.lists(st.tuples(st.integers(0, 80), st.sampled_from("+-")), max_size=5),
)
def test_given_sites_are_the_only_ones(case: Variant, places: Any) -> None:
    reference = texts(c=case.sequence)
    (effect,) = effects([case.record], reference, TssSites({"c": places}))
    alone = [
        effects([case.record], reference, TssSites({"c": [place]}))[0]
        for place in places
    ]
    scored = [one.largest for one in alone if one.largest is not None]
    expected = oracle(case.sequence, case.edited)
    for one in scored:
        assert (one.position, one.strand) in expected
    if not scored:
        assert effect == PromoterEffect((NO_SITE,), None)
        assert not set(places) & set(expected)
    else:
        assert effect.largest is not None
        assert abs(effect.largest.delta) == max(abs(one.delta) for one in scored)


def test_a_substitution_is_seen_from_the_other_strand_as_well() -> None:
    sequence = random_dna(200, 1)
    place = 90
    other = "A" if sequence[place] != "A" else "C"
    (here,) = effects(
        [record("c", place + 1, sequence[place], other)],
        texts(c=sequence),
        "sites, 2 bp",
    )
    turned = reverse_complement(sequence)
    there = len(sequence) - 1 - place
    mirrored = record("c", there + 1, turned[there], reverse_complement(other))
    (seen,) = effects([mirrored], texts(c=turned), "sites, 2 bp")
    assert here.largest is not None and seen.largest is not None
    assert (here.largest.ref, here.largest.alt) == (seen.largest.ref, seen.largest.alt)
    assert here.largest.position == len(sequence) - 1 - seen.largest.position
    assert here.largest.strand != seen.largest.strand


def test_what_cannot_be_scored_at_sites_says_why() -> None:
    sequence = random_dna(60, 2) + "N" * 30 + random_dna(60, 3)
    reference = texts(c=sequence)
    rows = [
        record("c", 31, sequence[30], sequence[30] + random_dna(UP + DOWN + 1, 5)),
        record("c", 1, sequence[0], "A" if sequence[0] != "A" else "C"),
    ]
    long, edge = effects(rows, reference)
    assert long == PromoterEffect((Note.TOO_LONG,), None)
    assert edge.notes == (Note.CONTIG_EDGE,) and edge.largest is not None
    beside_gap = record("c", 60, sequence[59], "A" if sequence[59] != "A" else "C")
    sites = TssSites({"c": [(60 + UP - 1, "+")]})
    assert effects([beside_gap], reference, sites, max_n=0.25) == [
        PromoterEffect((Note.TOO_MANY_N,), None)
    ]
    assert effects([beside_gap], reference, max_n=0.25)[0].largest is not None
