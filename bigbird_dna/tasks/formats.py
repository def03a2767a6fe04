"""What `score-promoters` and `score-variants` write; light to import, for help texts."""

from collections.abc import Mapping

from bigbird_dna.genome.intervals import Strand

Formats = Mapping[str, tuple[str, ...]]
"""Format → the endings of files that stand for it."""

SCORE_FORMATS: Formats = {
    "tsv": (".tsv", ".txt"),
    "bed": (".bed",),
    "bedgraph": (".bedgraph", ".bdg", ".bg"),
    "bigwig": (".bigwig", ".bw"),
    "parquet": (".parquet",),
}
BINARY_FORMATS = ("bigwig", "parquet")
VARIANT_FORMATS: Formats = {"vcf": (".vcf",), "tsv": (".tsv", ".txt")}

STRANDS: Mapping[str, tuple[Strand, ...]] = {"both": ("+", "-"), "+": ("+",), "-": ("-",)}
