"""`score-variants` with a pretrained model: log-ratios under masks, whatever the form of a variant."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bigbird_dna
from bigbird_dna.errors import ModelError
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.variants import Note, find_change, window_offsets
from bigbird_dna.genome.vcf import Variant
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.scoring import variants as scoring
from bigbird_dna.scoring.effects import ScoredAllele
from bigbird_dna.scoring.haplotypes import joint_alleles, near_records, sample_column
from bigbird_dna.scoring.masked_likelihood import (
    LikelihoodEffects,
    haplotype_windows,
    mask_difference,
)
from tests.cli.command import Run, refused
from tests.golden.messages import fails
from tests.scoring.conftest import RECORDS
from tests.scoring.test_variant_effects import Case, record, same, variants
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer, texts

CONTEXT, OFFSETS = 30, 2
SETTINGS = PretrainingSettings(next_sentence=False)


def toy(max_length: int = 160, **more: Any) -> LoadedModel:
    tokenizer = small_tokenizer()
    config = small_encoder(tokenizer.vocabulary, max_length=max_length, **more)
    return random_model(tokenizer, config, SETTINGS, scale=3)


MODEL = toy()


def score(
    records: Sequence[Variant],
    reference: Any,
    model: LoadedModel = MODEL,
    column: int | None = None,
) -> list[ScoredAllele]:
    effects = LikelihoodEffects(model, OFFSETS, CONTEXT, device="cpu")
    found = []
    for batch in scoring.record_batches(iter(records), column is not None):
        for _, alleles in scoring.batch_alleles(
            batch, column, reference, lambda name: name, effects, 1.0
        ):
            found += alleles
    return found


def slow(contig: str, edited: str, first: int, last: int) -> np.ndarray:
    """Log-ratios of the haplotypes of two contigs that differ from `first` to `last`, window by window.

    `last` is the end of the difference in `contig`, counted from the rightmost position of an allele.
    """
    tokenizer = MODEL.tokenizer
    bases = torch.tensor(np.array(tokenizer.base_ids, np.int64))

    def log_likelihood(row: list[int], low: int, high: int) -> float:
        hidden = range(low, len(row) - high)
        shown = [
            tokenizer.mask_id if place in hidden else token
            for place, token in enumerate(row)
        ]
        ids = torch.tensor([[tokenizer.cls_id, *shown, tokenizer.sep_id]])
        places = torch.tensor([place + 1 for place in hidden], dtype=torch.int64)
        with torch.inference_mode():
            logits = MODEL.network(
                ids, torch.tensor([ids.shape[1]]), None, places
            ).tokens.double()
        chances = logits - logits[:, bases].logsumexp(1, keepdim=True)
        return float(
            sum(chances[number, row[place]] for number, place in enumerate(hidden))
        )

    found = []
    for offset in window_offsets(OFFSETS):
        cut = []
        for text in (contig, edited):
            end = last + len(text) - len(contig)
            padded = "N" * 200 + text + "N" * 200
            cut.append(
                padded[200 + first - CONTEXT - offset : 200 + end + CONTEXT - offset]
            )
        for turn in (str, reverse_complement):
            ref, alt = (tokenizer.encode(turn(text)).tolist() for text in cut)
            low = next(
                (
                    i
                    for i, pair in enumerate(zip(ref, alt, strict=False))
                    if len({*pair}) > 1
                ),
                None,
            )
            low = min(len(ref), len(alt)) if low is None else low
            high = 0
            while (
                high < min(len(ref), len(alt)) - low
                and ref[-1 - high] == alt[-1 - high]
            ):
                high += 1
            found.append(
                log_likelihood(alt, low, high) - log_likelihood(ref, low, high)
            )
    return np.array(found)


def ends(case: Case) -> tuple[int, int]:
    """First and last place of the contig at which the difference to the edited one can be written."""
    one, other = case.sequence, case.edited
    short = min(len(one), len(other))
    head = next((i for i in range(short) if one[i] != other[i]), short)
    tail = next((i for i in range(short) if one[-1 - i] != other[-1 - i]), short)
    if head + tail >= short and len(one) != len(
        other
    ):  # an insertion or deletion that can move
        return short - tail, len(one) - (short - head)
    return head, len(one) - tail


@settings(max_examples=25, deadline=None)
@given(variants())
def test_values_are_those_of_a_slow_computation(case: Case) -> None:
    ((_, effect),) = score([case.record], texts(c=case.sequence))
    expected = slow(case.sequence, case.edited, *ends(case))
    assert effect.delta == pytest.approx(expected.mean(), rel=1e-5, abs=1e-5)
    assert effect.spread == pytest.approx(expected.std(), rel=1e-5, abs=1e-5)


@settings(max_examples=30, deadline=None)
@given(variants(), st.integers(0, 9), st.integers(0, 9), st.data())
def test_the_form_of_a_variant_changes_nothing(
    case: Case, before: int, after: int, data: st.DataObject
) -> None:
    """Padded, at another place of a repeat, among other alleles, and turned round with its reference."""
    sequence, start, ref, alt, edited = case
    before = min(before, start)
    end = start + len(ref)
    head, tail = sequence[start - before : start], sequence[end : end + after]
    padded = record(
        "c",
        start - before + 1,
        head + ref + tail,
        f"{head}{alt}{tail},<DEL>,{head or 'A'}C",
    )
    moved = [
        record("c", s + 1, sequence[s : s + len(ref)], edited[s : s + len(alt)])
        for s in range(len(sequence) - len(ref) + 1)
        if edited[:s] == sequence[:s]
        and edited[s + len(alt) :] == sequence[s + len(ref) :]
    ]
    turned = record(
        "r", len(sequence) - end + 1, reverse_complement(ref), reverse_complement(alt)
    )
    chosen = data.draw(st.sampled_from(moved))
    reference = texts(c=sequence, r=reverse_complement(sequence))
    plain, other, *_, shifted, mirrored = score(
        [case.record, padded, chosen, turned], reference
    )
    assert plain == other == shifted
    assert mirrored.notes == plain.notes
    assert mirrored.effect == pytest.approx(plain.effect, abs=1e-5)


@settings(max_examples=30, deadline=None)
@given(variants())
def test_exchanged_alleles_have_the_opposite_value(case: Case) -> None:
    (forth,) = score([case.record], texts(c=case.sequence))
    (back,) = score(
        [record("c", case.start + 1, case.alt, case.ref)], texts(c=case.edited)
    )
    assert forth.effect.delta == pytest.approx(-back.effect.delta, abs=1e-5)


def test_windows_surround_all_positions_of_an_indel() -> None:
    left, right = random_dna(80, 1) + "G", "T" + random_dna(80, 2)
    reference = texts(c=left + "AC" * 100 + "A" + right)
    change = find_change("c", 80, "GAC", "G", reference)
    assert not isinstance(change, Note)
    windows = haplotype_windows(change, reference, 25, (-3, 3))
    assert windows.ref[0] == left[-22:] + "AC" * 100 + "A" + right[:28]
    assert windows.alt[1] == left[-28:] + "AC" * 99 + "A" + right[:22]


def test_order_and_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sequence = random_dna(400, 3)
    reference = texts(c=sequence)
    records = [
        record("c", at + 1, sequence[at : at + 1 + at % 3], random_dna(1 + at % 4, at))
        for at in range(5, 380, 15)
    ]
    expected = score(records, reference)
    assert sum(allele.effect is not None for allele in expected) > 20
    order = np.random.default_rng(4).permutation(len(records))
    for size in (1, 4):
        monkeypatch.setattr(scoring, "RECORDS_AT_ONCE", size)
        found = score([records[index] for index in order], reference)
        assert all(map(same, found, [expected[index] for index in order]))


def test_alleles_without_room_are_noted() -> None:
    sequence = random_dna(300, 5)
    model = toy(max_length=24)
    long, longer = random_dna(100, 6), random_dna(2000, 7)
    records = [
        record("c", 150, sequence[149], sequence[149] + text)
        for text in ("", "G", long, longer)
    ]
    none, short, *others = score(records, texts(c=sequence), model)
    assert none.notes == (Note.NO_CHANGE,) and short.effect is not None
    assert {allele.notes for allele in others} == {(Note.TOO_LONG,)}
    pair = mask_difference(
        model.tokenizer, sequence, sequence[:150] + "GG" + sequence[150:], 22
    )
    assert pair is not None and {len(one.before) for one in pair} == {
        len(one.after) for one in pair
    }
    assert max(len(one.before) + len(one.hidden) + len(one.after) for one in pair) in (
        21,
        22,
    )


def test_a_causal_model_is_refused(tmp_path: Path) -> None:
    with fails(ModelError):
        LikelihoodEffects(toy(causal=True), 2, 30)


def test_the_method_the_function_and_the_command_are_one(
    run: Run, home: Path, tmp_path: Path
) -> None:
    model, out = bigbird_dna.load(home / "pretraining"), tmp_path / "x.tsv"
    bigbird_dna.score_variants(
        model,
        home / "x.vcf",
        home / "genome.fa.gz",
        out,
        offsets=2,
        context=CONTEXT,
        max_n=0.9,
    )
    written = pd.read_csv(out, sep="\t", skiprows=3, encoding_errors="replace")
    options: dict[str, Any] = {"offsets": 2, "context": CONTEXT, "max_n": 0.9}
    found = model.variant_effects(home / "x.vcf", home / "genome.fa.gz", **options)
    assert found["log_ratio"].notna().sum() > 20
    np.testing.assert_allclose(
        found[["log_ratio", "spread"]], written[["log_ratio", "spread"]], rtol=1e-5
    )
    words = (
        "score-variants",
        home / "pretraining",
        home / "x.vcf",
        "--reference",
        home / "genome.fa.gz",
    )
    result = run(*words, "--offsets", 2, "--context", CONTEXT, "--max-n", 0.9)
    assert result.code == 0, result.err
    values = [
        part
        for line in result.out.splitlines()
        for part in line.split("\t")[-1].split(";")
    ]
    ratios = [
        part.removeprefix("BBD_LOGRATIO=")
        for part in values
        if part.startswith("BBD_LOGRATIO=")
    ]
    told = [number for part in ratios for number in part.split(",") if number != "."]
    np.testing.assert_allclose(
        [*map(float, told)], written["log_ratio"].dropna(), rtol=1e-5
    )
    assert "--offsets 2 --context 30" in result.out
    refused(run(*words, "--context", 10), 2)
    refused(run(*words, "--context", 10**6), 2)


# Variants of one haplotype that are written as several records.

COLUMNS = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tother\town"
COLUMN = sample_column(["other", "own"], "own", "x.vcf")


def phased(records: list[Variant], genotypes: list[str]) -> list[Variant]:
    return [
        one._replace(line="." + "\t." * 7 + f"\tGT:PS\t0/0:.\t{genotype}")
        for one, genotype in zip(records, genotypes, strict=True)
    ]


def joint(
    records: list[Variant], genotypes: list[str], reference: Any
) -> list[dict[str, tuple[int, str, str]]]:
    """What is scored together with each record, by ALT."""
    found = []
    for group in near_records(phased(records, genotypes)):
        together = joint_alleles(group, COLUMN, reference, lambda name: name)
        for number in range(len(group)):
            own = {alt: one for (of, alt), one in together.items() if of == number}
            found.append(own)
    return found


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 7), min_size=1, max_size=4),
    st.data(),
)
def test_a_split_variant_of_one_haplotype_has_the_value_of_the_whole(
    seed: int, gaps: list[int], data: st.DataObject
) -> None:
    """SNVs, insertions and deletions; padded or not; phased or homozygous."""
    sequence = random_dna(300, seed)
    reference, edited, at, records = texts(c=sequence), sequence[:120], 120, []
    for gap in [0, *gaps]:
        edited += sequence[at : at + gap]
        at += gap
        base = sequence[at]
        other = "ACGT"["ACGT".index(base) - 1]
        ref, alt = data.draw(
            st.sampled_from(
                [(base, other), (base, base + other), (sequence[at : at + 2], base)]
            )
        )
        records.append(
            record("c", at + 1, ref, data.draw(st.sampled_from([alt, f"<DEL>,{alt}"])))
        )
        edited, at = edited + alt, at + len(ref)
    whole = record("c", 121, sequence[120:at], edited[120:])
    calls = data.draw(st.sampled_from(["0|{}:7", "{0}|{0}:.", "{}|0:7", "{0}/{0}:."]))
    genotypes = [calls.format(len(one.alts)) for one in records]
    (expected,) = score([whole], reference)
    alleles = iter(score(phased(records, genotypes), reference, column=COLUMN))
    for one in records:
        found = [next(alleles) for _ in one.alts][-1]
        assert found.notes[0] == Note.PHASED
        assert found.effect == expected.effect


@pytest.mark.parametrize(
    ("genotypes", "distance"),
    [
        (("0|1:7", "1|0:7"), 5),
        (("0|1:7", "0|1:8"), 5),
        (("0/1:7", "0/1:7"), 5),
        (("0|1:7", "0|0:7"), 5),
        (("0|1:7", "0|.:7"), 5),
        (("0|1:7", "./1:7"), 5),
        (("0|1:.", "0|1:7"), 5),
        (("0|1:7", "0|1:7"), 12),
        (("0|1:7", "0|1:7"), 0),
        (("0|1:7", "0|1:7"), -5),
    ],
)
def test_other_records_remain_independent(
    genotypes: tuple[str, str], distance: int
) -> None:
    """On other haplotypes, in other phase sets, far away, at the same bases, or not sorted."""
    sequence = random_dna(300, 8)
    places = 150, 150 + distance
    records = [
        record("c", at + 1, sequence[at], "ACGT"["ACGT".index(sequence[at]) - 1])
        for at in places
    ]
    reference = texts(c=sequence)
    assert not any(joint(records, [*genotypes], reference))


@pytest.mark.parametrize(
    "genotypes",
    [
        ("0|1:7", "1/1:."),
        ("1|1:7", "1|0:8"),
        ("1:.", "1|0:7"),
        ("0|1:.", "0|1"),
        (".|1:7", "0|1:7"),
        ("|0|1:7", "0|1:7"),
        ("0|1|1:7", "0|0|1:7"),
    ],
)
def test_alleles_with_a_haplotype_in_common_are_joined(
    genotypes: tuple[str, str],
) -> None:
    """Homozygous or haploid and phased ones; half calls; the form of VCF 4.4; more than two haplotypes."""
    sequence = random_dna(300, 8)
    first, second = (
        record("c", at + 1, sequence[at], "ACGT".replace(sequence[at], "")[0])
        for at in (150, 155)
    )
    changed = first.alts[0] + sequence[151:155] + second.alts[0]
    expected = (150, sequence[150:156], changed)
    found = joint([first, second], [*genotypes], texts(c=sequence))
    assert [[*one.values()] for one in found] == [[expected]] * 2


def test_a_homozygous_allele_between_others_has_the_first_of_the_longest_haplotypes() -> (
    None
):
    """The changes of each haplotype, by hand, and two insertions at one place, whose order is unknown."""
    sequence = "A" * 300
    reference = texts(c=sequence)
    records = [
        record("c", at + 1, "A", alt)
        for at, alt in ((150, "C"), (155, "G"), (160, "T"))
    ]

    def alts(*genotypes: str) -> list[str]:
        found = joint(records, [*genotypes], reference)
        return ["".join(alt for *_, alt in one.values()) for one in found]

    assert alts("1|0:7", "1/1:.", "0|1:7") == ["CAAAAG", "CAAAAG", "GAAAAT"]
    assert alts("0|1:7", "1/1:.", "1|0:7") == ["CAAAAG", "GAAAAT", "GAAAAT"]
    assert alts("0|1:7", "1/1:.", "1|0:8") == ["CAAAAG", "CAAAAG", "GAAAAT"]
    assert alts("1|0:7", "0|1:7", "1/1:.") == ["CAAAAAAAAAT", "GAAAAT", "CAAAAAAAAAT"]
    assert alts("0|1:7", "1/1:.", "0|1:7") == ["CAAAAGAAAAT"] * 3
    records = [record("c", 151, "A", "AC"), record("c", 151, "A", "AG")]
    assert alts("0|1:7", "0|1:7") == ["", ""]


def test_phased_records_of_a_file_are_scored_together(
    run: Run, home: Path, tmp_path: Path
) -> None:
    sequence = RECORDS["long"]
    lines = []
    for at, ps in ((200, 1), (202, 1), (205, 2), (400, 1), (411, 1)):
        alt = "ACGT"["ACGT".index(sequence[at]) - 1]
        lines.append(
            f"long\t{at + 1}\t.\t{sequence[at]}\t{alt}\t.\t.\t.\tGT:PS\t0/0:.\t0|1:{ps}\n"
        )
    path = tmp_path / "x.vcf"
    path.write_text(f"##fileformat=VCFv4.2\n{COLUMNS}\n{''.join(lines)}")
    words = [
        "score-variants",
        home / "pretraining",
        path,
        "--reference",
        home / "genome.fa.gz",
    ]
    words += ["--context", CONTEXT, "--format", "tsv"]
    plain, together = (
        [
            line.split("\t")
            for line in run(*words, *more).out.splitlines()
            if line[0] != "#"
        ]
        for more in ((), ("--phased", "own"))
    )
    assert [row[5] for row in plain] == ["."] * 5
    assert [row[5] for row in together] == [
        Note.PHASED,
        Note.PHASED,
        ".",
        Note.PHASED,
        Note.PHASED,
    ]
    assert (
        together[0][6:] == together[1][6:] != plain[0][6:] and together[2] == plain[2]
    )
    refused(run(*words, "--phased", "none"), 2)
    refused(run(*words[:2], home / "x.vcf", *words[3:], "--phased", "own"), 2)
