"""Sequences, regions and variants as a Python user gives them, against commands and windows by hand."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from Bio.Seq import MutableSeq, Seq
from Bio.SeqRecord import SeqRecord

import bigbird_dna
from bigbird_dna.errors import BigBirdDnaError, DataError, ModelError, UsageError
from bigbird_dna.explanation.explain import explain
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.model.settings import PretrainingSettings
from tests.golden.messages import fails
from tests.test_public_api import home as home
from tests.toys import VCF, random_dna, random_model, small_tokenizer

UP, DOWN = 40, 20


@pytest.fixture(scope="module")
def promoter(home: Path) -> Any:
    return bigbird_dna.load(home / "promoter")


@pytest.fixture(scope="module")
def chromatin(home: Path) -> Any:
    return bigbird_dna.load(home / "chromatin")


@pytest.fixture(scope="module", params=["promoter", "chromatin"])
def model(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def genome(home: Path) -> Path:
    return home / "genome.fa.gz"


@pytest.fixture(scope="module")
def sequence(genome: Path) -> str:
    with Reference(genome) as opened:
        return opened.fetch(Interval("a", 0, 900))


def other(base: str) -> str:
    return "A" if base != "A" else "C"


def test_tables_are_those_of_the_functions(
    chromatin: Any, home: Path, genome: Path, tmp_path: Path
) -> None:
    bigbird_dna.predict_tracks(
        chromatin, home / "regions.bed", genome, tmp_path / "x.tsv"
    )
    written = pd.read_csv(tmp_path / "x.tsv", sep="\t", skiprows=3)
    found = chromatin.predict_regions(home / "regions.bed", genome)
    assert list(found.columns) == [column.lstrip("#") for column in written.columns]
    assert (
        found.iloc[:, :5].to_numpy().tolist() == written.iloc[:, :5].to_numpy().tolist()
    )
    tracks = ["one", "two"]
    np.testing.assert_allclose(found[tracks], written[tracks], atol=6e-7)
    chosen = chromatin.predict_regions(
        home / "regions.bed", genome, tracks="two", summary="mean"
    )
    assert list(chosen.columns) == ["contig", "start", "end", "name", "note", "two"]
    assert chosen["two"][0] == found["two"][0] and chosen["two"][1] != found["two"][1]
    bigbird_dna.score_variants(
        chromatin, home / "x.vcf", genome, tmp_path / "y.tsv", tracks="*"
    )
    written = pd.read_csv(tmp_path / "y.tsv", sep="\t", skiprows=3)
    effects = chromatin.variant_effects(home / "x.vcf", genome, tracks="*")
    assert list(effects.columns) == [column.lstrip("#") for column in written.columns]
    for name in effects.columns[6:]:
        if name != "max_track":
            np.testing.assert_allclose(effects[name], written[name], rtol=1e-5)


def test_a_file_and_a_table_are_one(
    chromatin: Any, home: Path, genome: Path, sequence: str, tmp_path: Path
) -> None:
    bed = tmp_path / "x.bed"
    bed.write_text("# two\na\t100\t160\tfirst\na\t300\t371\tsecond\n")
    table = pd.DataFrame(
        {
            "contig": "a",
            "start": [100, 300],
            "end": [160, 371],
            "name": ["first", "second"],
        }
    )
    with Reference(genome) as opened:
        pd.testing.assert_frame_equal(
            chromatin.predict_regions(bed, str(genome)),
            chromatin.predict_regions(table, opened),
        )
    ref, alt = sequence[449], other(sequence[449])
    expected = chromatin.variant_effects(home / "x.vcf", genome)
    assert expected.iloc[0, :4].tolist() == ["a", 450, ref, alt]
    assert expected["note"][0] == "."
    table = pd.DataFrame(
        {
            "contig": "a",
            "position": [450, 500],
            "ref": [ref, sequence[499]],
            "alt": [f"{alt},<DEL>", "*"],
        }
    )
    found = chromatin.variant_effects(table, genome)
    assert found["note"].tolist() == [".", "SYMBOLIC", "SPANNING_DELETION"]
    assert found["max_delta"][0] == expected["max_delta"][0]
    assert found["max_delta"].isna().tolist() == [False, True, True]


def test_what_cannot_be_scored_is_missing_and_says_why(
    chromatin: Any, tmp_path: Path
) -> None:
    path = tmp_path / "gap.fa.gz"
    write_fasta(path, [("g", random_dna(300, 1) + "N" * 400 + random_dna(300, 2))])
    regions = pd.DataFrame(
        {
            "contig": ["g", "g", "g", "zz", "g"],
            "start": [450, 5, 100, 1, 990],
            "end": [470, 6, 110, 5, 1001],
        }
    )
    tracks = chromatin.predict_regions(regions, path, max_n=0.6)
    assert tracks["note"].tolist() == [
        *("too_many_n", "contig_edge", ".", "contig_unknown", "beyond_contig")
    ]
    assert tracks["one"].isna().tolist() == [True, False, False, True, True]


@pytest.mark.parametrize(
    "regions",
    [
        "missing.bed",
        pd.DataFrame({"contig": ["zz"], "start": [1], "end": [5]}),
        pd.DataFrame({"contig": ["a"], "start": [5], "end": [5]}),
        pd.DataFrame({"contig": ["a"], "start": [-1], "end": [5]}),
    ],
)
def test_what_is_no_region_is_an_error(
    chromatin: Any, genome: Path, regions: Any
) -> None:
    with fails(BigBirdDnaError):
        chromatin.predict_regions(regions, genome)


@pytest.mark.parametrize(
    "variants",
    [
        "missing.vcf",
    ],
)
def test_what_is_no_variant_is_an_error(
    chromatin: Any, genome: Path, variants: Any
) -> None:
    with fails(BigBirdDnaError):
        chromatin.variant_effects(variants, genome)


def test_arguments_out_of_range_are_refused(
    promoter: Any, chromatin: Any, home: Path, genome: Path
) -> None:
    vcf, bed = home / "x.vcf", home / "regions.bed"
    for call in (
        partial(promoter.predict, "A" * 60, batch_size="8"),
        partial(chromatin.predict_regions, bed, genome, summary="min"),
        partial(chromatin.variant_effects, vcf, genome, tracks="three"),
    ):
        with fails(UsageError):
            call()
    for call in (
        partial(promoter.variant_effects, vcf, genome),
        partial(promoter.predict_regions, bed, genome),
    ):
        with fails(ModelError):
            call()


def test_an_alias_file_tells_the_names_of_contigs(
    chromatin: Any, genome: Path, sequence: str, tmp_path: Path
) -> None:
    aliases = tmp_path / "names.tsv"
    aliases.write_text("NC_1\ta\n")
    regions = pd.DataFrame({"contig": ["NC_1"], "start": [300], "end": [371]})
    expected = chromatin.predict_regions(regions.assign(contig="a"), genome)
    found = chromatin.predict_regions(regions, genome, aliases=aliases)
    pd.testing.assert_frame_equal(found, expected)
    bases = {"ref": [sequence[449]], "alt": [other(sequence[449])]}
    variants = pd.DataFrame({"contig": ["NC_1"], "position": [450], **bases})
    found = chromatin.variant_effects(variants, genome, aliases=aliases)
    assert found["note"].tolist() == ["."] and found["contig"].tolist() == ["NC_1"]
    unknown = chromatin.variant_effects(variants, genome)
    assert unknown["note"].tolist() == ["CONTIG_UNKNOWN"]


# Sequences that a Python user gives to `predict` and `embed`: each trap is a sentence or a right answer


WINDOWS = {"promoter": 60, "chromatin": 120}


def window(model: Any, seed: int = 0) -> str:
    return random_dna(WINDOWS[model.task], seed)


def test_every_form_gives_the_same_bits(model: Any) -> None:
    texts = [window(model, seed) for seed in range(4)]
    expected = model.predict(texts)
    forms = [
        tuple(texts),
        np.array(texts),
        np.array(texts, dtype=object),
        pd.Index(texts),
        (text for text in texts),
        [Seq(text) for text in texts],
        [MutableSeq(text) for text in texts],
        [SeqRecord(Seq(text), id="r", description="no letters") for text in texts],
        [text.lower() for text in texts],
        pd.array(texts, dtype="string"),
        pd.Series(texts, index=list("abcd")),
    ]
    for form in forms:
        np.testing.assert_array_equal(model.predict(form), expected)
    assert model.embed(texts[0]).shape == (1, 16)
    for single in (
        texts[0],
        np.array(texts[0]),
        Seq(texts[0]),
        SeqRecord(Seq(texts[0]), id="r"),
    ):
        np.testing.assert_array_equal(model.predict(single), expected[:1])
        np.testing.assert_array_equal(model.embed(single), model.embed(texts[0]))


def test_nothing_in_gives_nothing_out(promoter: Any, chromatin: Any) -> None:
    assert promoter.predict([]).shape == (0,) and chromatin.predict([]).shape == (
        0,
        1,
        2,
    )
    assert promoter.embed([]).shape == (0, 16)
    assert promoter.embed([], pool="base") == []


NO_SEQUENCES: list[Any] = [
    *(None, 7, b"ACGT", {"a": "ACGT"}, {"ACGT"}, "", Seq(None, length=4)),
    *(["ACGT", None], [b"ACGT"], [1, 2], [["ACGT"]], ["ACGT", ""]),
    *(pd.DataFrame({"dna": ["ACGT"]}), np.array([["ACGT"]]), np.array([b"ACGT"])),
    *(
        pd.Series(["ACGT", np.nan], index=["x", "y"]),
        pd.Series(["ACGT", None], dtype="string"),
    ),
]


@pytest.mark.parametrize("method", ["predict", "embed"])
def test_what_is_not_sequences_is_one_sentence(model: Any, method: str) -> None:
    for given in NO_SEQUENCES:
        with fails(UsageError) as caught:
            getattr(model, method)(given)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


def test_other_letters_are_named_with_index_and_position(model: Any) -> None:
    text = window(model)
    for letter, hint in (
        ("U", "RNA"),
        ("E", "protein"),
        ("é", "'é'"),
        ("-", "'-'"),
        ("\n", "0x0a"),
    ):
        wrong = text[:9] + letter + text[10:]
        for method in (model.predict, model.embed):
            with fails(DataError, hint):
                method([text, wrong])
            with fails(DataError):
                method(wrong)


def test_codes_for_several_bases_are_n(model: Any) -> None:
    text = window(model)
    coded, plain = (text[:20] + letters + text[24:] for letters in ("RywM", "NNNN"))
    np.testing.assert_array_equal(model.predict(coded), model.predict(plain))
    np.testing.assert_array_equal(model.embed(coded), model.embed(plain))


def test_other_lengths_are_refused_by_name(model: Any) -> None:
    text, size = window(model), WINDOWS[model.task]
    for given, *named in (
        ([text, text[1:]], "sequences[1]", size - 1, size),
        (text + "ACG", size + 3),
        (pd.Series([text + "A"], index=["a"]), size + 1),
    ):
        with fails(UsageError, *named):
            model.predict(given)


def test_a_short_sequence_is_a_contig_of_its_own_to_a_chromatin_model(
    chromatin: Any, tmp_path: Path
) -> None:
    text = random_dna(96, 5)
    (tmp_path / "x.fa").write_text(f">x\n{text}\n")
    (tmp_path / "x.bed").write_text("x\t38\t58\n")  # the bin in its middle
    table = chromatin.predict_regions(tmp_path / "x.bed", tmp_path / "x.fa")
    assert table["note"].tolist() == ["contig_edge"]
    np.testing.assert_array_equal(
        chromatin.predict(text, pad=True)[:, 0], table[["one", "two"]].to_numpy()
    )
    # Of 80 bp, a third of the window is what was filled up with.
    assert np.isnan(chromatin.predict(text[:80], pad=True)).all()
    assert not np.isnan(chromatin.predict(text[:80], pad=True, max_n=0.5)).any()


def test_a_long_sequence_keeps_its_middle(model: Any) -> None:
    text = window(model)
    for left, right in ((3, 3), (10, 11)):
        long = random_dna(left, 1) + text + random_dna(right, 2)
        np.testing.assert_array_equal(
            model.predict(long, pad=True), model.predict(text)
        )


def test_mostly_n_has_no_score(model: Any) -> None:
    text, size = window(model), WINDOWS[model.task]
    quarter = size // 4
    rows = [
        "N" * size,
        "N" * quarter + text[quarter:],
        "N" * (quarter + 1) + text[quarter + 1 :],
        text,
    ]
    found = model.predict(rows)
    assert [bool(np.isnan(row).all()) for row in found] == [True, False, True, False]
    assert [bool(np.isnan(row).any()) for row in found] == [True, False, True, False]
    np.testing.assert_array_equal(found[[1, 3]], model.predict([rows[1], rows[3]]))
    assert not np.isnan(model.predict(rows, max_n=1)).any()
    for wrong in ({"max_n": 1.5}, {"batch_size": 0}, {"device": "gpu"}):
        with fails(UsageError):
            model.predict(text, **wrong)


def test_each_base_has_the_vector_of_its_token(model: Any) -> None:
    texts = [random_dna(70, 1), random_dna(70, 2)[:30] + "N" * 20 + random_dna(20, 3)]
    found = model.embed(texts, pool="base")
    assert found.shape == (2, 70, 16) and found.dtype == np.float32
    for text, vectors in zip(texts, found, strict=True):
        ids, offsets = model.tokenizer.encode_with_offsets(text)
        changes = np.flatnonzero((np.diff(vectors, axis=0) != 0).any(axis=1)) + 1
        assert set(changes.tolist()) <= set(offsets[1:-1].tolist())
        assert len(changes) > len(ids) / 2
    several = model.embed([texts[0], texts[1][:33]], pool="base")
    assert isinstance(several, list) and [len(one) for one in several] == [70, 33]
    np.testing.assert_array_equal(several[0], found[0])


def test_embeddings_against_the_encoder(promoter: Any) -> None:
    import torch

    text = random_dna(50, 3)
    ids, offsets = promoter.tokenizer.encode_with_offsets(text)
    row = torch.tensor([[promoter.tokenizer.cls_id, *ids, promoter.tokenizer.sep_id]])
    with torch.inference_mode():
        hidden = promoter.network.encoder(row, torch.tensor([row.shape[1]]))[0]
    found = promoter.embed(text, pool="base", device="cpu")[0]
    for place in range(50):
        token = int(np.searchsorted(offsets, place, side="right")) - 1
        np.testing.assert_allclose(
            found[place], hidden[1 + token], atol=1e-5, rtol=1e-5
        )
    cls, mean = (
        promoter.embed([text, "ACGT" * 12], pool=pool)[0] for pool in ("cls", "mean")
    )
    np.testing.assert_allclose([cls, mean], [hidden[0], hidden.mean(0)], atol=1e-5)


def test_what_per_base_cannot_do_says_so(promoter: Any) -> None:
    with fails(UsageError):
        promoter.embed(["ACGT", random_dna(2000, 1)], pool="base")
    with fails(UsageError):
        promoter.embed("ACGT", pool="base", layer=9)


def test_a_model_of_another_task_says_what_it_is_for(
    home: Path, tmp_path: Path
) -> None:
    promoter, chromatin = (
        bigbird_dna.load(home / "promoter"),
        bigbird_dna.load(home / "chromatin"),
    )
    config = promoter.config.model_copy(
        update={"vocabulary": small_tokenizer().vocabulary}
    )
    pretrained = random_model(small_tokenizer(), config, PretrainingSettings())
    from bigbird_dna.model.directory import save

    save(tmp_path / "pretrained", pretrained, {}, {}, {})
    loaded = bigbird_dna.load(tmp_path / "pretrained")
    genome, bed = home / "genome.fa.gz", home / "regions.bed"
    wrong = {
        "predict": lambda: loaded.predict("ACGT"),
        "predict_regions": lambda: loaded.predict_regions(bed, genome),
    }
    for name, call in wrong.items():
        with fails(ModelError, loaded.path, name):
            call()
    assert loaded.embed("ACGT" * 9).shape == (1, 16)
    for function, *arguments in (
        (bigbird_dna.score_promoters, chromatin, genome),
        (bigbird_dna.score_promoters, loaded, genome),
        (bigbird_dna.predict_tracks, promoter, bed, genome),
    ):
        with fails(ModelError):
            function(*arguments, tmp_path / "x")
    with fails(ModelError):
        bigbird_dna.score_promoters(pretrained, genome, tmp_path / "x")


def test_a_model_shows_itself_in_a_line(home: Path) -> None:
    for name, parts in {
        "promoter": (
            "PromoterModel(promoter, window 60 bp with the TSS at 40",
            "1 layer × 16",
        ),
        "chromatin": (
            "ChromatinModel(chromatin, window 120 bp with a bin of 20, 2 tracks",
        ),
        "ensemble": ("ChromatinModel(chromatin, window 120 bp",),
    }.items():
        model = bigbird_dna.load(home / name)
        shown = repr(model)
        assert all(part in shown for part in parts), shown
        assert f"{model.parameters:,} parameters, {home / name})" in shown
        assert "\n" not in shown and len(shown) < 250


def test_a_vcf_of_another_assembly_is_an_error_wherever_variants_are_read(
    chromatin: Any, genome: Path, sequence: str, tmp_path: Path
) -> None:
    """Most of its REF differ; a record that differs among others is noted."""
    path, out = tmp_path / "x.vcf", tmp_path / "out"

    def write_vcf(wrong: int) -> None:
        refs = [
            other(sequence[at]) if at < 300 + wrong else sequence[at]
            for at in range(300, 305)
        ]
        lines = [
            f"a\t{301 + at}\t.\t{ref}\t{ref}T\t.\t.\t.\n" for at, ref in enumerate(refs)
        ]
        path.write_text(VCF + "".join(lines))

    write_vcf(3)
    told = f"{path}: REF of 3 of the 5 records differs from {genome}"
    with fails(DataError, told):
        chromatin.variant_effects(path, genome)
    with fails(DataError, told):
        explain(chromatin, path, out, reference=genome)
    assert not out.exists()
    write_vcf(2)
    assert (
        chromatin.variant_effects(path, genome)["note"].tolist()
        == ["REF_MISMATCH"] * 2 + ["."] * 3
    )
