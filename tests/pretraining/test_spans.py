"""Models of any tokenizers on the same hidden bases: probabilities, places, and the command."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from bigbird_dna.baselines.language import BASES_BOTH, BASES_LEFT
from bigbird_dna.baselines.markov import Markov
from bigbird_dna.config import EncoderConfig
from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.metrics.resampling import BLOCK_BASES
from bigbird_dna.model.directory import make_model, save
from bigbird_dna.model.heads import PretrainingOutput
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import PretrainingSettings, PromoterSettings
from bigbird_dna.pretraining.spans import (
    draw_spans,
    fit_span_baselines,
    hide_spans,
    parts,
    span_bits,
)
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.text import TextTokenizer
from tests.baselines.sources import Source
from tests.cli.command import Run, refused
from tests.tokens.text_model import text_model
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer

CPU = torch.device("cpu")
SETTINGS = PretrainingSettings(next_sentence=False)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> DnaTokenizer:
    """A tokenizer of single bases."""
    return DnaTokenizer.train(
        ["ACGT" * 50], tmp_path_factory.mktemp("bases") / "tokenizer.model", 10, 1
    )


def config_for(tokenizer: Tokenizer) -> EncoderConfig:
    return small_encoder(tokenizer.vocabulary)


def toy(tokenizer: Tokenizer, scale: float = 3.0) -> LoadedModel:
    return random_model(tokenizer, config_for(tokenizer), SETTINGS, scale=scale)


def bits_of(model: LoadedModel, windows: list[str], context: int) -> np.ndarray:
    return span_bits(model, [*hide_spans(model.tokenizer, windows, context)], CPU)


def windows_of(source: str, span: int, context: int, count: int) -> list[str]:
    width = 2 * context + span
    return [source[start : start + width] for start in range(0, count * width, width)]


# Probabilities of spans.


def test_bits_are_those_of_a_slow_reading() -> None:
    """Each window's tokens told one by one, in an input of their own, by the text of the module."""
    tokenizer, context = small_tokenizer(), 15
    model = toy(tokenizer)
    windows = windows_of(random_dna(2000, 3), 2, context, 12)
    pieces = torch.tensor(np.array(tokenizer.base_ids, np.int64))

    def score(row: list[int], low: int, high: int) -> float:
        total = 0.0
        for place in range(low, high):
            ids = [
                tokenizer.cls_id,
                *row[:place],
                *[tokenizer.mask_id] * (high - place),
                *row[high:],
            ]
            given = torch.tensor([[*ids, tokenizer.sep_id]])
            with torch.inference_mode():
                logits = model.network(
                    given, torch.tensor([len(row) + 2]), None, torch.tensor([place + 1])
                )[0]
            total += float(logits[0, row[place]] - logits[0, pieces].logsumexp(0))
        return total

    widths = set()
    for window, found in zip(windows, bits_of(model, windows, context), strict=True):
        before, behind = window[:context], window[-context:]
        texts = [
            before + "".join(letters) + behind for letters in product("ACGT", repeat=2)
        ]
        rows = {text: tokenizer.encode(text).tolist() for text in texts}
        left, right = 0, 0
        while len({tuple(row[: left + 1]) for row in rows.values()}) == 1:
            left += 1
        while len({tuple(row[len(row) - right - 1 :]) for row in rows.values()}) == 1:
            right += 1
        scores = {
            text: score(row, left, len(row) - right) for text, row in rows.items()
        }
        widths |= {len(row) - right - left for row in rows.values()}
        own = scores[window] - np.logaddexp.reduce([*scores.values()])
        assert found == pytest.approx(-own / np.log(2), abs=1e-4)
    assert len(widths) > 2


def test_bits_of_a_span_depend_on_no_other() -> None:
    model = toy(small_tokenizer())
    windows = windows_of(random_dna(3000, 5), 2, 16, 30)
    whole = bits_of(model, windows, 16)
    chosen = np.random.default_rng(0).permutation(30)[:17]
    asked = hide_spans(model.tokenizer, [windows[index] for index in chosen], 16)
    some = span_bits(model, [*asked], CPU, together=20)
    np.testing.assert_allclose(some, whole[chosen], atol=1e-5)
    assert whole.std() > 0.1


class KnowsPieces(nn.Module):
    """What is to be known of the tokens of bases that are drawn evenly: which pieces can stand side by side.

    Sequences of tokens are likely by 4 ** −bases if BPE makes them, which it does if it makes each pair.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.mask, self.pieces = tokenizer.mask_id, tokenizer.base_ids.tolist()
        texts = [tokenizer.decode([index]) for index in self.pieces]
        pairs = tokenizer.encode_batch(
            [one + other for one in texts for other in texts]
        )
        made = [
            row.tolist() == [*pair]
            for row, pair in zip(pairs, product(self.pieces, repeat=2), strict=True)
        ]
        chances = 0.25 ** np.array([len(text) for text in texts])
        self.steps = (
            np.reshape(made, (len(texts), -1)) * chances
        )  # from a piece to the next
        self.vocabulary = tokenizer.vocabulary

    def forward(
        self, ids: Tensor, lengths: Tensor, segments: Tensor | None, masked: Tensor
    ) -> PretrainingOutput:
        logits = np.full((len(masked), self.vocabulary), -np.inf)
        for number, flat in enumerate(masked.tolist()):
            row, place = ids[flat // ids.shape[1]].tolist(), flat % ids.shape[1]
            end = next(i for i in range(place, len(row)) if row[i] != self.mask)
            ahead = self.steps[:, self.pieces.index(row[end])]
            for _ in range(place + 1, end):
                ahead = self.steps @ ahead
            with np.errstate(divide="ignore"):
                logits[number, self.pieces] = np.log(
                    self.steps[self.pieces.index(row[place - 1])] * ahead
                )
        return PretrainingOutput(torch.tensor(logits, dtype=torch.float32), None)


@pytest.mark.parametrize("vocabulary", [16, 40, 96])
def test_token_boundaries_cost_nothing(vocabulary: int, tmp_path: Path) -> None:
    """A model that knows its tokenizer and no more has two bits a base, whatever the tokenizer."""
    rng = np.random.default_rng(0)
    text = "".join(rng.choice([*"ACGT"], 30_000))
    sentences = [text[start : start + 500] for start in range(0, 20_000, 500)]
    tokenizer = DnaTokenizer.train(
        sentences, tmp_path / "tokenizer.model", vocabulary, 6
    )
    windows = windows_of(text[20_000:], 2, 30, 60)
    model = make_model(
        KnowsPieces(tokenizer), tokenizer, config_for(tokenizer), SETTINGS
    )
    found = bits_of(model, windows, 30)
    assert found.mean() / 2 == pytest.approx(2, abs=0.02)


# Places.


def test_spans_are_drawn_apart_and_among_known_bases() -> None:
    rng = np.random.default_rng(0)
    contigs = [rng.integers(0, 4, size).astype(np.uint8) for size in (700, 30, 25_000)]
    contigs[0][[90, 300]] = 4
    codes = np.concatenate(contigs)
    for seed in range(20):
        drawn = draw_spans(contigs, span=4, context=15, count=60, seed=(seed,))
        assert (
            drawn.windows.shape == (60, 34)
            and (drawn.windows < 4).all()
            and drawn.span == 4
        )
        texts = [window.tobytes() for window in drawn.windows]
        places = np.array([codes.tobytes().find(text) for text in texts]) + 15
        assert (np.diff(places) >= 4).all()  # in order, and apart
        own = np.where(places < 700, 0, 1 + (places - 730) // BLOCK_BASES)
        assert (
            np.unique(drawn.blocks, return_inverse=True)[1]
            == np.unique(own, return_inverse=True)[1]
        ).all()
        again = draw_spans(contigs, span=4, context=15, count=60, seed=(seed,))
        assert np.array_equal(again.windows, drawn.windows)


def test_all_places_can_be_drawn_and_are_equally_often() -> None:
    codes = np.random.default_rng(1).integers(0, 4, 40).astype(np.uint8)
    full = draw_spans([codes], span=3, context=5, count=99, seed=(0,))
    assert len(full.windows) == full.possible == 10
    # Two of 28 starts, at least three apart: every such choice is as likely.
    seen = np.zeros(28)
    for seed in range(3000):
        for text in draw_spans(
            [codes], span=3, context=5, count=2, seed=(seed,)
        ).texts():
            seen["".join("ACGT"[code] for code in codes).find(text)] += 1
    free = np.array([sum(abs(a - b) >= 3 for b in range(28)) for a in range(28)])
    np.testing.assert_allclose(seen, 6000 * free / free.sum(), rtol=0.25)


# Markov models.


def test_markov_models_judge_the_middle_of_windows_by_all_that_they_learn_from() -> (
    None
):
    source = Source(2, 0)
    contigs = [
        source.sample(30_000, 1),
        source.sample(25_000, 2),
        source.sample(400, 3),
    ]
    drawn = draw_spans(contigs[:1], span=3, context=20, count=50, seed=(0,))
    fitted = fit_span_baselines(Path("genome"), contigs, drawn, 1)
    assert (
        min(fitted.orders.values()) >= 2
    )  # the source's; of a higher one the strengths make the same
    other = Markov(fitted.markov.order).fit(contigs).smooth(fitted.markov.strengths)
    for name, judge in zip(
        fitted.orders, (other.one_sided, other.two_sided), strict=True
    ):
        slow = [
            judge(window, np.array([20]), np.array([23]), fitted.orders[name])[0]
            for window in drawn.windows
        ]
        np.testing.assert_allclose(
            fitted.bits(drawn.windows, 20)[name], slow, rtol=1e-9
        )
    chosen, kept = (parts(contigs, choosing=choosing) for choosing in (True, False))
    assert sum(map(len, chosen)) + sum(map(len, kept)) == 55_400 and len(chosen) == 1


# The command.

LENGTHS = {"a": 30_000, "b": 21_000, "c": 45_000}


def contig(name: str, seed: int) -> str:
    return random_dna(LENGTHS[name], seed)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, bases: DnaTokenizer) -> Path:
    """Models `pieces` and `bases`, and what isn't one; `genome.fa.gz`, and `other.fa.gz` with another b."""
    home = tmp_path_factory.mktemp("spans")
    pieces = small_tokenizer()
    for name, tokenizer in (("pieces", pieces), ("bases", bases)):
        save(home / name, toy(tokenizer), {}, {}, {})
    settings = PromoterSettings(
        upstream=40, downstream=20, pooling="mean", jitter=4, views=2
    )
    save(
        home / "promoter",
        random_model(pieces, config_for(pieces), settings),
        {},
        {},
        {},
    )
    text = TextTokenizer(
        text_model("a text of words, and of more words than these", 40), None, 48
    )
    save(home / "text", toy(text), {}, {}, {})
    broken = toy(pieces)
    with torch.no_grad():
        for parameter in broken.network.parameters():  # finite, and its sums are not
            parameter.fill_(torch.finfo(torch.float32).max)
    save(home / "broken", broken, {}, {}, {})
    for name, seed in (("genome", 2), ("other", 5)):
        contigs = {"a": contig("a", 1), "b": contig("b", seed), "c": contig("c", 3)}
        write_fasta(home / f"{name}.fa.gz", contigs.items())
    return home


Compare = Callable[..., pd.DataFrame]


@pytest.fixture
def compare(home: Path, run: Run, tmp_path: Path) -> Compare:
    """Run the command on contig a, 40 spans of 2 bp with 20 on both sides."""

    def call(*models: str, genome: str = "genome", spans: int = 40) -> pd.DataFrame:
        words = [
            "evaluate across-tokenizers",
            *(home / name for name in models),
            "--contig",
            "a",
        ]
        words += [
            "--exclude",
            "b",
            "--reference",
            home / f"{genome}.fa.gz",
            "--spans",
            spans,
        ]
        result = run(*words, "--span", 2, "--context", 20, "-o", tmp_path / "out.tsv")
        assert (result.code, result.out) == (0, "")
        return pd.read_csv(tmp_path / "out.tsv", sep="\t")

    return call


def test_models_and_baselines_stand_in_one_table(compare: Compare, home: Path) -> None:
    table = compare("pieces", "bases")
    assert table["model"].tolist() == [
        str(home / "pieces"),
        str(home / "bases"),
        BASES_LEFT,
        BASES_BOTH,
    ]
    assert (
        table["vocabulary"].tolist()[:2] == [40, 10]
        and table["vocabulary"][2:].isna().all()
    )
    assert (
        table["tokens_per_span"][1] == 2 and table["tokens_per_span"][2:].isna().all()
    )
    assert (table["spans"] == 40).all()
    assert (
        (table["low"] < table["bits_per_base"])
        & (table["bits_per_base"] < table["high"])
    ).all()
    difference = table["bits_per_base"] - table["bits_per_base"][0]
    np.testing.assert_allclose(table["difference"][1:], difference[1:], atol=1e-4)
    assert np.isnan(table["difference"][0])
    assert (table["difference_low"] < table["difference"])[1:].all()
    assert (table["difference"] < table["difference_high"])[1:].all()
    turned = compare("bases", "pieces").set_index("model")["bits_per_base"]
    pd.testing.assert_series_equal(
        turned, table.set_index("model")["bits_per_base"], check_like=True
    )


def test_nothing_is_learnt_from_what_is_excluded(compare: Compare) -> None:
    pd.testing.assert_frame_equal(compare("bases"), compare("bases", genome="other"))


MISTAKES: dict[str, tuple[list[str], list[object], int, list[str]]] = {
    "another task": (["promoter"], [], 1, ["promoter"]),
    "a text's tokenizer": (["text"], [], 1, ["text"]),
    "no model": (["genome.fa.gz"], [], 1, ["genome.fa.gz"]),
    "twice": (["bases", "bases"], [], 2, ["bases: "]),
    "long inputs": (
        ["pieces", "bases"],
        ["--context", 80],
        2,
        ["takes 128", "80 bp", "164"],
    ),
    "long spans": (["bases"], ["--span", 6], 2, ["span 6", "5"]),
    "no contig": (
        ["bases"],
        ["--contig", "chr9"],
        1,
        ["genome.fa.gz: ", "'chr9'", "a, b, c"],
    ),
    "no excluded contig": (["bases"], ["--exclude", "z"], 1, ["'z'"]),
    "few places": (
        ["bases"],
        ["--spans", 20_000],
        1,
        ["14,980 spans", "20 known bases on", "20,000"],
    ),
    "nothing to learn": (
        ["bases"],
        ["--exclude", "b", "--exclude", "c"],
        1,
        ["have 0 bases"],
    ),
    "output": (["bases"], ["-o", "/nowhere/out.tsv"], 2, ["/nowhere"]),
    "no numbers": (
        ["broken"],
        ["--spans", 4, "--span", 1, "--context", 9],
        1,
        ["broken: "],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_in_a_sentence(
    name: str, home: Path, run: Run, tmp_path: Path
) -> None:
    models, options, code, named = MISTAKES[name]
    words = [
        "evaluate across-tokenizers",
        *(home / model for model in models),
        "--contig",
        "a",
    ]
    words += [
        "--reference",
        home / "genome.fa.gz",
        "--spans",
        20,
        "--span",
        2,
        "--context",
        20,
    ]
    result = run(*words, "-o", tmp_path / "out.tsv", *options)
    refused(result, code, *named, after_log=name == "no numbers")
    assert not [*tmp_path.iterdir()]
