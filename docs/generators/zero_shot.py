"""Compare zero-shot scores of coding variants with those of a Markov model over bases.

`python -m docs.generators.zero_shot results/yeast ANNOTATION.gtf.gz yeast-zero-shot --contig VII --contig XV
--validation XI` draws single-base variants of the coding transcripts on the contigs. Those that change the
start codon, create a stop codon, or change one of the two bases at either end of an intron are compared with
as many synonymous ones of the same transcripts. The Markov model counts both strands of all contigs
that are neither `--contig` nor `--validation`, and strengths chosen on `--validation`. The AUROC of minus the
log-ratio, with an interval over genes, goes to `docs/results/data/NAME.json`.
"""

import argparse
import datetime
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigbird_dna import load
from bigbird_dna.baselines.markov import Markov
from bigbird_dna.genome.annotation import CodingTranscript, read_transcripts
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, base_codes, reverse_complement
from bigbird_dna.metrics.auroc import auroc, auroc_difference
from bigbird_dna.scoring.masked_likelihood import CONTEXT

from .collect import header, write_run

ORDER = 7
CATEGORIES = {"start codon": "start", "stop gained": "stop", "splice site": "splice"}
_CODONS = map("".join, itertools.product("TCAG", repeat=3))
_AMINO = "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"
CODE = dict(zip(_CODONS, _AMINO, strict=True))


class CodingVariant(NamedTuple):
    """A single-base variant, 0-based on the forward strand, with its transcript and kind."""

    transcript: str
    contig: str
    position: int
    ref: str
    alt: str
    kind: str


def coding_variants(one: CodingTranscript, contig: str) -> Iterator[CodingVariant]:
    """All single-base variants of a transcript that are of a kind in `CATEGORIES` or synonymous.

    Nothing for a transcript without ATG, with a stop codon inside, or of a length not divisible by 3.
    Only introns from GT to AG count.
    """
    places = [place for start, end in one.parts for place in range(start, end)]
    turn = str if one.strand == "+" else reverse_complement
    coding = turn("".join(contig[place] for place in places))
    places = places if one.strand == "+" else places[::-1]
    protein = "".join(
        CODE.get(coding[i : i + 3], "?") for i in range(0, len(coding), 3)
    )
    if len(coding) % 3 or coding[:3] != "ATG" or "*" in protein or "?" in protein:
        return

    def variant(place: int, base: str, kind: str) -> CodingVariant:
        return CodingVariant(
            one.name, one.contig, place, contig[place], turn(base), kind
        )

    for number, (place, known) in enumerate(zip(places, coding, strict=True)):
        codon, within = divmod(number, 3)
        for base in sorted({*"ACGT"} - {known}):
            letters = [*coding[3 * codon : 3 * codon + 3]]
            letters[within] = base
            amino = CODE["".join(letters)]
            if codon == 0:
                yield variant(place, base, "start")
            elif amino == "*":
                yield variant(place, base, "stop")
            elif amino == protein[codon]:
                yield variant(place, base, "synonymous")
    for (_, start), (end, _) in itertools.pairwise(one.parts):
        intron = turn(contig[start:end])
        if intron.startswith("GT") and intron.endswith("AG"):
            for place in (start, start + 1, end - 2, end - 1):
                known = turn(contig[place])
                yield from (
                    variant(place, base, "splice")
                    for base in sorted({*"ACGT"} - {known})
                )


def drawn(
    variants: list[CodingVariant], kind: str, count: int, rng: np.random.Generator
) -> list[CodingVariant]:
    """At most `count` variants of a kind, and for each a synonymous one of the same transcript."""
    synonymous: dict[str, list[CodingVariant]] = {}
    for number in rng.permutation(len(variants)):
        if variants[number].kind == "synonymous":
            synonymous.setdefault(variants[number].transcript, []).append(
                variants[number]
            )
    own = [one for one in variants if one.kind == kind]
    found = []
    for number in rng.permutation(len(own)):
        if len(found) < 2 * count and synonymous.get(own[number].transcript):
            found += [own[number], synonymous[own[number].transcript].pop()]
    return found


def markov_ratios(
    markov: Markov, variants: list[CodingVariant], contigs: dict[str, str]
) -> np.ndarray:
    """ln p(ALT) − ln p(REF) of the haplotypes, each the mean over both strands."""
    found = []
    for one in variants:
        first = max(0, one.position - CONTEXT)
        left = contigs[one.contig][first : one.position]
        right = contigs[one.contig][one.position + 1 : one.position + 1 + CONTEXT]
        bits = []
        for text in (left + one.ref + right, left + one.alt + right):
            for codes in map(base_codes, (text, reverse_complement(text))):
                bits.append(
                    markov.one_sided(codes, np.array([0]), np.array([len(codes)]))[0]
                )
        found.append((bits[0] + bits[1] - bits[2] - bits[3]) / 2 * np.log(2))
    return np.array(found)


def row(
    category: str, rows: list[CodingVariant], model: np.ndarray, markov: np.ndarray
) -> dict[str, Any]:
    """AUROC of both predictors for one category, with intervals over transcripts."""
    labels = np.array([one.kind != "synonymous" for one in rows], int)
    genes = np.unique([one.transcript for one in rows], return_inverse=True)[1]
    values: dict[str, Any] = {
        "category": category,
        "variants": int(labels.sum()),
        "genes": int(genes.max()) + 1,
    }
    difference = auroc_difference(labels, -model, -markov, genes)
    found = {
        "auroc": auroc(labels, -model, genes),
        "markov": auroc(labels, -markov, genes),
    }
    for name, estimate in {**found, "auroc_minus_markov": difference}.items():
        ends = ("", "_low", "_high")
        values |= {
            name + end: round(number, 6)
            for end, number in zip(ends, estimate, strict=False)
        }
    return values


def main() -> None:
    """Write the JSON file of the comparison."""
    parser = argparse.ArgumentParser(prog="python -m docs.generators.zero_shot")
    parser.add_argument(
        "results", type=Path, help="directory of the run, such as results/yeast"
    )
    parser.add_argument("annotation", type=Path, help="GTF with the coding transcripts")
    parser.add_argument("name", help="RUN of docs/results/data/RUN.json")
    parser.add_argument(
        "--contig", action="append", required=True, help="evaluated contig"
    )
    parser.add_argument(
        "--validation",
        required=True,
        help="contig for the strengths of the Markov model",
    )
    parser.add_argument(
        "--per-class", type=int, default=1000, help="variants of each category"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--command", help="the command to show (default: as called)")
    given = parser.parse_args()
    with Reference(given.results / "genome/reference.fa.gz") as file:
        contigs = {
            name: file.fetch(Interval(name, 0, size))
            for name, size in file.contigs.items()
        }
    held_out = {*given.contig, given.validation}
    markov = Markov(ORDER).fit(
        base_codes(text) for name, text in contigs.items() if name not in held_out
    )
    markov.mix([base_codes(contigs[given.validation])])
    transcripts = [
        one for one in read_transcripts(given.annotation) if one.contig in given.contig
    ]
    variants = [
        one
        for each in transcripts
        for one in coding_variants(each, contigs[each.contig])
    ]
    rng = np.random.default_rng(given.seed)
    chosen = {
        name: drawn(variants, kind, given.per_class, rng)
        for name, kind in CATEGORIES.items()
    }
    every = list(itertools.chain(*chosen.values()))
    rows = [(one.contig, one.position + 1, one.ref, one.alt) for one in every]
    model = load(given.results / "models/pretrained")
    scored = model.variant_effects(rows, given.results / "genome/reference.fa.gz")[
        "log_ratio"
    ].to_numpy()
    known = markov_ratios(markov, every, contigs)
    kept = ~np.isnan(scored)
    tables, start = [], 0
    for name, some in {**chosen, "all": every}.items():
        part = slice(
            0 if name == "all" else start,
            len(every) if name == "all" else start + len(some),
        )
        start += len(some)
        own = kept[part]
        used = [one for one, is_kept in zip(some, own, strict=True) if is_kept]
        tables.append(row(name, used, scored[part][own], known[part][own]))
        print(tables[-1], flush=True)
    today = datetime.datetime.now(datetime.UTC).date()
    command = given.command or " ".join(
        ["python -m docs.generators.zero_shot", *sys.argv[1:]]
    )
    write_run(
        given.name, header(today, command, None) | {"tables": {"zero_shot": tables}}
    )


if __name__ == "__main__":
    main()
