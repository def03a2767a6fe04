"""The models, genome, regions and variants that the tests of scorers share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.model.directory import save
from bigbird_dna.model.settings import NamedTrack, PretrainingSettings, SequenceSettings
from bigbird_dna.tokens.dna import DnaTokenizer
from tests import test_public_api as public
from tests.toys import VCF, random_dna, random_model, small_encoder

PROMOTER = public.PROMOTER.model_copy(update={"base_positions": True})
TRACKS = tuple(
    NamedTrack(track=name, group="TF") for name in ("one", "two", *"abcdefghijk")
)
CHROMATIN = public.CHROMATIN.model_copy(update={"tracks": TRACKS})
SEQUENCES = SequenceSettings(
    kind="binary", outputs=("label",), pooling="cls", jitter=0, views=1
)
RECORDS = {
    "long": random_dna(900, 2),
    "short": random_dna(45, 3),
    "gap": random_dna(130, 4) + "N" * 70 + random_dna(151, 5),
    "tiny": "ACGTA",
    "again": "ACGTA",
    "last": random_dna(260, 6),
    "window": random_dna(60, 7),
}
SOME = [("long", 100, 130), ("long", 400, 640), ("gap", 0, 20), ("last", 200, 201)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models `promoter`, `other`, `chromatin`, `pretraining`, `sequences`; `genome.fa.gz`, `regions.bed`,
    `some.bed`, `x.vcf`."""
    home = tmp_path_factory.mktemp("scorers")
    tokenizer = DnaTokenizer.train([random_dna(5000, 1)], home / "tokenizer.model", 48)
    config = small_encoder(tokenizer.vocabulary, max_length=160)
    models = {"promoter": PROMOTER, "chromatin": CHROMATIN, "other": PROMOTER}
    others = {"pretraining": PretrainingSettings(), "sequences": SEQUENCES}
    for seed, (name, settings) in enumerate({**models, **others}.items()):
        save(
            home / name,
            random_model(tokenizer, config, settings, seed=seed, scale=3),
            {},
            {},
            {},
        )
    (home / "genome.fa").write_text(
        "".join(f">{name}\n{text}\n" for name, text in RECORDS.items())
    )
    prepare_reference(home / "genome.fa", home / "genome.fa.gz")
    regions = [
        ("long", start, start + 10 * (start % 7 + 1)) for start in range(15, 800, 71)
    ]
    regions += [
        ("gap", 140, 180),
        ("last", 0, 260),
        ("nowhere", 5, 90),
        ("short", 20, 900),
        ("gap", 10, 30),
    ]
    (home / "regions.bed").write_text(
        "".join(f"{c}\t{s}\t{e}\tr{s}\n" for c, s, e in regions)
    )
    (home / "some.bed").write_text(
        "".join(f"{c}\t{s}\t{e}\n" for c, s, e in reversed(SOME))
    )
    (home / "x.vcf").write_text(VCF + "".join(_variants()))
    return home


def _variants() -> Iterator[str]:
    """Variants of every kind."""
    other = {"A": "C,<DEL>", "C": "G", "G": "T,GA", "T": "A", "N": "A"}
    for contig, step in (("long", 37), ("gap", 45), ("last", 90)):
        for place in range(3, len(RECORDS[contig]), step):
            ref = RECORDS[contig][place]
            yield f"{contig}\t{place + 1}\t.\t{ref}\t{other[ref]}\t.\tPASS\tKEY={place}\n"
    yield "elsewhere\t5\t.\tA\tC\t.\t.\t.\n"
