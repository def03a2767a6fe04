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
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.variants import Note, find_change, window_offsets
from bigbird_dna.genome.vcf import Variant
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.scoring.masked_likelihood import (
    CONTEXT,
    LikelihoodEffects,
    haplotype_windows,
    mask_difference,
)
from bigbird_dna.scoring.variants import ScoredAllele, scored_batches
from tests.cli.command import Run
from tests.scoring.test_variant_effects import Case, record, same, variants
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer, texts

OFFSETS = 2
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
) -> list[ScoredAllele]:
    effects = LikelihoodEffects(model, OFFSETS, device="cpu")
    found = scored_batches(records, reference, lambda name: name, effects, 1.0)
    return [allele for _, batch in found for alleles in batch for allele in alleles]


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
    values = [expected.mean(), expected.std()]
    assert effect == pytest.approx(values, rel=1e-5, abs=1e-5)


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
    assert mirrored.row == pytest.approx(plain.row, abs=1e-5)


@settings(max_examples=30, deadline=None)
@given(variants())
def test_exchanged_alleles_have_the_opposite_value(case: Case) -> None:
    (forth,) = score([case.record], texts(c=case.sequence))
    (back,) = score(
        [record("c", case.start + 1, case.alt, case.ref)], texts(c=case.edited)
    )
    assert forth.row[0] == pytest.approx(-back.row[0], abs=1e-5)


def test_windows_surround_all_positions_of_an_indel() -> None:
    left, right = random_dna(80, 1) + "G", "T" + random_dna(80, 2)
    reference = texts(c=left + "AC" * 100 + "A" + right)
    change = find_change("c", 80, "GAC", "G", reference)
    assert not isinstance(change, Note)
    windows = haplotype_windows(change, reference, (-3, 3), 25)
    assert windows.ref[0] == left[-22:] + "AC" * 100 + "A" + right[:28]
    assert windows.alt[1] == left[-28:] + "AC" * 99 + "A" + right[:22]


def test_order_and_batches_change_nothing() -> None:
    sequence = random_dna(400, 3)
    reference = texts(c=sequence)
    records = [
        record("c", at + 1, sequence[at : at + 1 + at % 3], random_dna(1 + at % 4, at))
        for at in range(5, 380, 15)
    ]
    expected = score(records, reference)
    assert sum(allele.row is not None for allele in expected) > 20
    order = np.random.default_rng(4).permutation(len(records))
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
    assert none.notes == (Note.NO_CHANGE,) and short.row is not None
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
        max_n=0.9,
    )
    written = pd.read_csv(out, sep="\t", skiprows=3, encoding_errors="replace")
    options: dict[str, Any] = {"offsets": 2, "max_n": 0.9}
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
    result = run(*words, "--offsets", 2, "--max-n", 0.9)
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
    assert "--offsets 2" in result.out
