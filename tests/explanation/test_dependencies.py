"""Dependencies between bases, against slow computations and a model whose dependencies are known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bigbird_dna.explanation.dependencies import DependencyMap, dependency_maps
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.variants import window_offsets
from bigbird_dna.model.directory import make_model, save
from bigbird_dna.model.heads import PretrainingOutput
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.interface import Tokenizer
from tests.cli.command import Run, refused
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer

SETTINGS = PretrainingSettings(next_sentence=False)
CONTEXT = 25
CONTIG = random_dna(300, 3)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model `masked`, others that are not; `genome.fa.gz`, `regions.bed`, `records.fa`."""
    home = tmp_path_factory.mktemp("dependencies")
    tokenizer = small_tokenizer()
    for name, sizes in {
        "masked": {},
        "causal": {"causal": True},
        "short": {"max_length": 16},
    }.items():
        config = small_encoder(tokenizer.vocabulary, **sizes)
        save(
            home / name, random_model(tokenizer, config, SETTINGS, scale=3), {}, {}, {}
        )
    (home / "genome.fa").write_text(f">c\n{CONTIG}\n>n\n{'ACGTN' * 30}\n")
    prepare_reference(home / "genome.fa", home / "genome.fa.gz")
    (home / "regions.bed").write_text("c\t100\t112\tfirst\nc\t3\t11\n")
    (home / "records.fa").write_text(
        f">a/b\n{CONTIG[100:112]}\n>b\n{CONTIG[200:230]}\n"
    )
    return home


def maps(
    model: LoadedModel, regions: Path, reference: Path | None = None
) -> list[DependencyMap]:
    options: dict[str, Any] = {"context": CONTEXT, "offsets": 2, "device": "cpu"}
    return [*dependency_maps(model, regions, reference, **options)]


def slow(model: LoadedModel, contig: str, start: int, end: int) -> np.ndarray:
    """By the text of the module: one sequence, strand, offset, base and token of the vocabulary at a time."""
    tokenizer = model.tokenizer
    pieces = {int(one): tokenizer.letters[one] for one in tokenizer.base_ids}

    def log_odds(sequence: str, place: int) -> np.ndarray:
        ids, starts = tokenizer.encode_with_offsets(sequence)
        token = max(
            number for number, first in enumerate(starts[:-1]) if first <= place
        )
        row = [tokenizer.cls_id, *ids.tolist(), tokenizer.sep_id]
        row[token + 1] = tokenizer.mask_id
        with torch.inference_mode():
            given = (
                torch.tensor([row]),
                torch.tensor([len(row)]),
                None,
                torch.tensor([token + 1]),
            )
            logits = model.network(*given).tokens[0].double().numpy()
        size, within = starts[token + 1] - starts[token], place - starts[token]
        weights = {
            one: np.exp(logits[one])
            for one, text in pieces.items()
            if len(text) == size
        }
        chances = np.array(
            [
                sum(w for one, w in weights.items() if pieces[one][within] == base)
                for base in "ACGT"
            ]
        )
        chances = np.clip(chances / sum(weights.values()), 1e-6, 1 - 1e-6)
        return np.log(chances) - np.log1p(-chances)

    def mean(edited: str, place: int) -> np.ndarray:
        values = []
        for offset in window_offsets(2):
            first = start - CONTEXT - offset
            padded = "N" * 100 + edited + "N" * 100
            window = padded[100 + first : 100 + end + CONTEXT - offset]
            values.append(log_odds(window, place - first))
            values.append(
                log_odds(reverse_complement(window), len(window) - 1 - (place - first))[
                    ::-1
                ]
            )
        return np.mean(values, axis=0)

    matrix = np.zeros((end - start, end - start))
    for i in range(start, end):
        for base in {*"ACGT"} - {contig[i]}:
            edited = contig[:i] + base + contig[i + 1 :]
            for j in {*range(start, end)} - {i}:
                change = np.abs(mean(edited, j) - mean(contig, j)).max()
                matrix[i - start, j - start] = max(matrix[i - start, j - start], change)
    return matrix


def test_a_map_is_that_of_a_slow_computation(home: Path) -> None:
    """Also of a region near the end of a contig, where the window has Ns."""
    from bigbird_dna.model.directory import load

    model = load(home / "masked")
    first, second = maps(model, home / "regions.bed", home / "genome.fa.gz")
    assert (first.name, first.sequence, second.start) == ("first", CONTIG[100:112], 3)
    np.testing.assert_allclose(
        first.matrix, slow(model, CONTIG, 100, 112), atol=1e-4, rtol=1e-4
    )
    np.testing.assert_allclose(
        second.matrix, slow(model, CONTIG, 3, 11), atol=1e-4, rtol=1e-4
    )
    assert (first.matrix > 0.1).mean() > 0.5


class Pairs(nn.Module):
    """Predicts a base from the one `distance` bp to the left and right: likely is their complement."""

    def __init__(self, tokenizer: Tokenizer, distance: int) -> None:
        super().__init__()
        self.distance, self.vocabulary = distance, tokenizer.vocabulary
        self.complement = {
            int(tokenizer.encode(base)[0]): int(tokenizer.encode(other)[0])
            for base, other in zip("ACGT", "TGCA", strict=True)
        }

    def forward(
        self, ids: Tensor, lengths: Tensor, segments: Tensor | None, masked: Tensor
    ) -> PretrainingOutput:
        logits = torch.zeros(len(masked), self.vocabulary)
        for number, flat in enumerate(masked.tolist()):
            row, place = divmod(flat, ids.shape[1])
            for side in (place - self.distance, place + self.distance):
                token = int(ids[row, side]) if 0 <= side < ids.shape[1] else -1
                if token in self.complement:
                    logits[number, self.complement[token]] += 2
        return PretrainingOutput(logits, None)


def test_known_dependencies_are_found(home: Path, tmp_path: Path) -> None:
    tokenizer = DnaTokenizer.train(["ACGT" * 50], tmp_path / "tokenizer.model", 10, 1)
    model = make_model(
        Pairs(tokenizer, 7), tokenizer, small_encoder(tokenizer.vocabulary), SETTINGS
    )
    found = maps(model, home / "records.fa")
    distances = np.abs(np.subtract.outer(np.arange(30), np.arange(30)))
    assert [one.matrix.shape for one in found] == [(12, 12), (30, 30)]
    assert (found[1].matrix[distances == 7] > 0.5).all()
    assert (found[1].matrix[distances != 7] < 1e-5).all()


def test_the_command_writes_a_map_and_a_picture_of_each_region(
    run: Run, home: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = [
        "dependency-map",
        home / "masked",
        home / "regions.bed",
        "--reference",
        home / "genome.fa.gz",
    ]
    words += ["--context", CONTEXT, "--device", "cpu", "-o", out]
    assert run(*words).code == 0
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert names == {
        f"{name}{end}" for name in ("c_100-112", "c_3-11") for end in (".npz", ".svg")
    }
    from bigbird_dna.model.directory import load

    first, _ = maps(load(home / "masked"), home / "regions.bed", home / "genome.fa.gz")
    with np.load(out / "c_100-112.npz") as file:
        assert np.array_equal(file["matrix"], first.matrix)
        assert (str(file["sequence"]), str(file["contig"]), int(file["start"])) == (
            CONTIG[100:112],
            "c",
            100,
        )
    assert "first" in (out / "c_100-112.svg").read_text()
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert run(*words).code == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_regions_with_similar_names_have_files_of_their_own(
    run: Run, home: Path, tmp_path: Path
) -> None:
    names = ["a/b", "a_b", "a:b", "A_b", "x" * 300]
    (tmp_path / "x.fa").write_text(
        "".join(f">{name}\n{'ACGTTG' * 2}\n" for name in names)
    )
    words = [
        "dependency-map",
        home / "masked",
        tmp_path / "x.fa",
        "-o",
        tmp_path / "out",
        "--device",
        "cpu",
    ]
    assert run(*words).code == 0
    for end in (".npz", ".svg"):
        files = [*(tmp_path / "out").glob(f"*{end}")]
        assert len(files) == len({path.name.casefold() for path in files}) == len(names)
    contigs = []
    for path in (tmp_path / "out").glob("*.npz"):
        with np.load(path) as file:
            contigs.append(str(file["contig"]))
    assert sorted(contigs) == sorted(names)


@pytest.mark.parametrize(
    ("model", "regions", "options", "code"),
    [
        ("none", "c\t1\t9\n", "", 1),
        ("causal", "c\t1\t9\n", "", 1),
        ("short", "c\t100\t112\n", "--context 25", 2),
        ("masked", "c\t1\t9\nc\t1\t9\n", "", 1),
        ("masked", "c\t1\t2\n", "", 1),
        ("masked", "c\t1\t302\n", "", 1),
        ("masked", "n\t1\t9\n", "", 1),
        ("masked", "c\t290\t301\n", "", 1),
        ("masked", "d\t1\t9\n", "", 1),
        ("masked", "c\t1\n", "", 1),
        ("masked", "c\t1\t9\n", "--context 20", 2),
        ("masked", "c\t1\t9\n", "--offsets 0", 2),
        ("masked", "c\t1\t9\n", "--batch-size 0", 2),
        ("masked", f">a\n{'ACGT' * 100}\n", "fasta", 1),
        ("masked", ">a\nACGNT\n", "fasta", 1),
        ("masked", "ACGT\n", "fasta", 1),
    ],
)
def test_what_can_not_be_mapped_is_refused(
    run: Run,
    home: Path,
    tmp_path: Path,
    model: str,
    regions: str,
    options: str,
    code: int,
) -> None:
    path = tmp_path / "x"
    path.write_text(regions)
    words = options.split() if options != "fasta" else []
    reference = [] if options == "fasta" else ["--reference", home / "genome.fa.gz"]
    refused(
        run(
            "dependency-map",
            home / model,
            path,
            *reference,
            "-o",
            tmp_path / "out",
            *words,
        ),
        code,
    )
    assert not [
        one for one in (tmp_path / "out").glob("*") if one.suffix in (".npz", ".svg")
    ]
