"""All baselines of hidden tokens: against slow readings, and on a source of known entropy."""

import numpy as np
import pytest

from bigbird_dna.baselines import language
from bigbird_dna.baselines import tokens as language_tokens
from bigbird_dna.baselines.language import (
    BASES_BOTH,
    BASES_LEFT,
    PREDICTORS,
    TOKENS_BOTH,
    TOKENS_LEFT,
    UNIGRAM,
    fit_language_baselines,
    language_baselines,
)
from bigbird_dna.baselines.markov import Markov
from bigbird_dna.baselines.ngram import KneserNey, affordable_tokens
from bigbird_dna.baselines.tokens import MaskedTokens, PieceBases
from bigbird_dna.data.bits_per_base import ONE_AT_A_TIME, UNIFORM
from tests.baselines.sources import Source
from tests.golden.messages import fails
from tests.toys import encode, random_dna


class Letters:
    """A tokenizer of five specials and a piece for each of A, C, G, T and N."""

    vocabulary = 10
    piece_lengths = np.array([0] * 5 + [1] * 5, dtype=np.int32)
    base_ids = hidden_ids = np.arange(5, 9, dtype=np.int32)

    def decode(self, ids):
        return "".join("ACGTN"[index - 5] for index in ids)


def documents_of(tokenizer, sizes, seed):
    texts = [random_dna(size, seed + number) for number, size in enumerate(sizes)]
    return texts, tokenizer.encode_batch(texts)


def hide(documents, tokenizer, share, seed):
    rng = np.random.default_rng(seed)
    hidden = []
    for document in documents:
        places = np.flatnonzero(np.isin(document, tokenizer.base_ids))
        hidden.append(np.sort(rng.choice(places, round(share * len(places)), replace=False)))
    return MaskedTokens(documents, hidden)


def test_pieces_as_bases(tokenizer):
    texts = ["ACGTNNACGGTA", random_dna(900, 1), "T"]
    documents = tokenizer.encode_batch(texts)
    pieces = PieceBases(tokenizer)
    for text, document in zip(texts, documents, strict=True):
        np.testing.assert_array_equal(pieces.codes(document), encode(text))
    hidden = [np.array([0]), np.arange(2, 30, 5), np.zeros(0, np.int64)]
    (stretches,) = pieces.batches(documents, hidden)
    found = ["".join("ACGTN"[c] for c in stretches.codes[s:e]) for s, e in zip(*stretches[1:], strict=True)]
    asked = zip(documents, hidden, strict=True)
    assert found == [tokenizer.decode([document[i]]) for document, places in asked for i in places]
    before, behind = stretches.apart()
    assert before[1] == stretches.starts[1] - stretches.ends[0] == behind[0]
    assert before[0] >= stretches.starts[0] and behind[-1] >= len(stretches.codes) - stretches.ends[-1]


def test_batches_are_what_one_would_be(tokenizer, monkeypatch):
    _, documents = documents_of(tokenizer, [700, 300, 500], 1)
    held_out = hide(documents, tokenizer, 0.2, 0)
    fitted = fit_language_baselines(documents, held_out, tokenizer, token_order=2, base_order=4)
    chosen = np.arange(0, sum(map(len, held_out.hidden)), 3)
    whole = fitted.judge(held_out)
    monkeypatch.setattr("bigbird_dna.baselines.tokens._BATCH", 1)
    for name, bits in fitted.judge(held_out).bits.items():
        np.testing.assert_array_equal(bits, whole.bits[name])
    some = fitted.bases.bits(held_out, 3, both=True, told=False, chosen=chosen)
    every = fitted.bases.bits(held_out, 3, both=True, told=False)
    np.testing.assert_array_equal(some, every[chosen])


def test_each_predictor_sees_what_it_may(tokenizer):
    """What is hidden tells plain predictors nothing: another token in its place changes no other's bits."""
    _, training = documents_of(tokenizer, [60_000, 50_000], 1)
    _, documents = documents_of(tokenizer, [1500], 9)
    held_out = hide(documents, tokenizer, 0.4, 0)
    fitted = fit_language_baselines(training, held_out, tokenizer, token_order=3, base_order=4)
    orders = {(told, both): 4 for told in (False, True) for both in (False, True)}
    fitted = type(fitted)(fitted.tokens, fitted.bases, orders, True)
    before = fitted.judge(held_out).bits
    changed = documents[0].copy()
    places = held_out.hidden[0]
    one = np.flatnonzero((np.diff(places[1:]) == 1) & (np.diff(places[:-1]) == 1))[0] + 1  # among hidden ones
    same_length = tokenizer.piece_lengths == tokenizer.piece_lengths[changed[places[one]]]
    others = np.flatnonzero(same_length & np.isin(np.arange(tokenizer.vocabulary), tokenizer.base_ids))
    changed[places[one]] = others[others != changed[places[one]]][0]
    after = fitted.judge(MaskedTokens([changed], held_out.hidden)).bits
    rest = np.arange(len(places)) != one
    for name in PREDICTORS:
        same = np.array_equal(after[name][rest], before[name][rest])
        assert same is not name.endswith(ONE_AT_A_TIME), name
        if name != UNIFORM:
            assert after[name][one] != before[name][one]


def test_tokens_from_the_left_are_those_of_the_model_itself(tokenizer):
    _, training = documents_of(tokenizer, [4000, 3000], 1)
    _, documents = documents_of(tokenizer, [900, 800], 9)
    held_out = hide(documents, tokenizer, 0.1, 0)
    judged = language_baselines(training, held_out, held_out, tokenizer, token_order=3, base_order=2)
    order = int(judged.notes[TOKENS_LEFT + ONE_AT_A_TIME].rsplit(" ", 1)[1])
    for name, length in ((UNIGRAM, 1), (TOKENS_LEFT + ONE_AT_A_TIME, order)):
        model = KneserNey(length, tokenizer.vocabulary).fit(training)
        pairs = zip(*held_out, strict=True)
        bits = np.concatenate([-model.log2_probabilities(text)[places] for text, places in pairs])
        np.testing.assert_allclose(judged.bits[name], bits)
    np.testing.assert_array_equal(judged.bits[UNIFORM], 2 * judged.bases)
    assert set(judged.bits) == set(judged.notes) == set(PREDICTORS)
    assert {len(bits) for bits in judged.bits.values()} == {sum(map(len, held_out.hidden))}


def test_a_source_of_known_entropy_with_a_token_for_each_base():
    """Nobody beats the source; the models of its order come within one percent of what can be known."""
    source = Source(2, seed=1)
    training = [source.sample(50_000, seed=number) + np.uint8(5) for number in range(6)]
    validation, judged = (
        hide([source.sample(20_000, seed=seed) + np.uint8(5) for seed in seeds], Letters(), 0.12, seeds[0])
        for seeds in ((10, 11), (20, 21, 22))
    )
    found = language_baselines(
        training, validation, judged, Letters(), token_order=5, base_order=5, both_strands=False
    )
    sides = {"left": [], "both": []}
    for document, places in zip(*judged, strict=True):
        codes = np.concatenate([source.sample(9, 0), document - 5, source.sample(9, 1)])
        sides["left"].append(source.one_sided(codes, places + 9, places + 10))
        sides["both"].append(source.two_sided(codes, places + 9, places + 10))
    least = {side: np.concatenate(bits) for side, bits in sides.items()}
    assert least["left"].mean() == pytest.approx(source.entropy, abs=0.03)
    for name, bits in found.bits.items():
        side = "both" if "both" in name else "left"
        excess = bits - least[side]
        assert excess.mean() > -4 * excess.std() / len(excess) ** 0.5 - 1e-3, name
    for name, side in ((TOKENS_LEFT, "left"), (BASES_LEFT, "left"), (BASES_BOTH, "both")):
        assert found.bits[name + ONE_AT_A_TIME].mean() < 1.01 * least[side].mean(), name
        # Where a neighbour is hidden, less is known.
        assert (
            found.bits[name + ONE_AT_A_TIME].mean() < found.bits[name].mean() < 1.25 * least[side].mean()
        ), name
    # The product assumes more than the source keeps to, but tells more than one side.
    assert found.bits[TOKENS_BOTH + ONE_AT_A_TIME].mean() < 0.95 * least["left"].mean()
    order, strands = found.notes[BASES_LEFT + ONE_AT_A_TIME].removeprefix("order ").split(", ")
    assert int(order) >= 2 and strands == "one strand"


def test_pieces_tell_of_their_neighbours_what_bases_do_not(tokenizer):
    """On independent bases no model of bases gets below their entropy, but pieces of a tokenizer aren't
    independent: a piece that would have merged with its neighbour isn't there."""
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("ACGT"), 6000)) for _ in range(30)]
    documents = tokenizer.encode_batch(texts)
    held_out = hide(documents[20:], tokenizer, 0.15, 0)
    found = language_baselines(documents[:20], held_out, held_out, tokenizer, token_order=2, base_order=3)
    rates = {name: bits.sum() / found.bases.sum() for name, bits in found.bits.items()}
    for name in (BASES_LEFT, BASES_BOTH):
        assert 1.995 < rates[name] < 2.01
    assert rates[TOKENS_BOTH + ONE_AT_A_TIME] < 1.97 < 1.99 < rates[TOKENS_LEFT + ONE_AT_A_TIME]


def test_tokens_beyond_the_memory_are_spread_over_all_documents(tokenizer, capsys, monkeypatch):
    _, training = documents_of(tokenizer, [2000] * 20, 1)
    held_out = hide(training[:2], tokenizer, 0.3, 0)
    total = sum(map(len, training))
    memory = int(total / 3.9 / affordable_tokens(1 << 40, 4, models=2) * (1 << 40))
    taken = []
    choose = language_tokens._choose
    monkeypatch.setattr(
        language_tokens,
        "_choose",
        lambda documents, *rest: taken.append(documents) or choose(documents, *rest),
    )
    fit_language_baselines(training, held_out, tokenizer, token_order=4, base_order=1, memory=memory)
    places = [
        [next(i for i, one in enumerate(training) if one is document) for document in documents]
        for documents in taken
    ]
    assert len(places[0]) == 5 and places[0] == [2, 6, 10, 14, 18]
    assert 5 < len(places[-1]) <= 20
    used = sum(map(len, taken[0]))
    assert f"up to order 4: learning from {used:,} of {total:,} tokens" in capsys.readouterr().err


def test_a_longer_order_isnt_tried_in_vain(tokenizer):
    _, training = documents_of(tokenizer, [4000], 1)
    held_out = hide(training, tokenizer, 0.3, 0)
    tried = []

    class Watched(KneserNey):
        def fitted_orders(self, sequences):
            for model in super().fitted_orders(sequences):
                tried.append(model.order)
                yield model

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(language_tokens, "KneserNey", Watched)
        _, strange = documents_of(tokenizer, [3000], 77)
        held_out = hide(strange, tokenizer, 0.3, 0)
        fit_language_baselines(training, held_out, tokenizer, token_order=12, base_order=1)
    assert max(tried) < 12


def test_what_is_refused(tokenizer):
    _, training = documents_of(tokenizer, [400], 1)
    none = MaskedTokens(training, [np.zeros(0, np.int64)])
    with fails(ValueError):
        fit_language_baselines(training, none, tokenizer)
    held_out = hide(training, tokenizer, 0.3, 0)
    fitted = fit_language_baselines(training, held_out, tokenizer, token_order=2, base_order=2)
    judged = fitted.judge(none)
    assert all(bits.shape == (0,) for bits in judged.bits.values()) and judged.bases.shape == (0,)
    with_n = tokenizer.encode("ACGTNACGT")
    place = np.array([tokenizer.decode([i]) for i in with_n]).tolist().index("N")
    with fails(ValueError):
        fitted.judge(MaskedTokens([with_n], [np.array([place])]))


@pytest.fixture(scope="module")
def yeast(shared_data):
    """Base codes by chromosome."""
    pysam = pytest.importorskip("pysam")
    path = shared_data / "yeast/Saccharomyces_cerevisiae.R64-1-1.dna.toplevel.fa.gz"
    with pysam.FastxFile(str(path)) as fasta:
        return {record.name: encode_fast(record.sequence) for record in fasta}


def encode_fast(sequence):
    table = np.full(256, 4, np.uint8)
    table[np.frombuffer(b"ACGT", np.uint8)] = np.arange(4)
    return table[np.frombuffer(sequence.encode(), np.uint8)]


@pytest.mark.slow
def test_markov_models_of_yeast(yeast):
    """Orders help up to the longest; both sides tell a little more."""
    held_out = yeast["XI"]
    training = [codes for name, codes in yeast.items() if name not in ("VII", "XI", "XV", "Mito")]
    model = Markov(12).fit(training).mix([held_out])
    assert model.validation[7] == pytest.approx(1.935, abs=0.002)
    assert model.validation[12] == pytest.approx(1.930, abs=0.002)
    starts = np.arange(100, len(held_out) - 100, 30)
    one, two = (call(held_out, starts, starts + 3).mean() / 3 for call in (model.one_sided, model.two_sided))
    assert one == pytest.approx(1.930, abs=0.004) and two == pytest.approx(1.918, abs=0.004)


def test_choosing_is_on_a_sample(tokenizer, monkeypatch):
    _, training = documents_of(tokenizer, [3000] * 3, 1)
    held_out = hide(training, tokenizer, 0.4, 0)
    monkeypatch.setattr(language, "CHOOSING_TOKENS", 50)
    sizes = []
    fit = language.fit_token_models
    monkeypatch.setattr(language, "fit_token_models", lambda *rest: sizes.append(len(rest[2])) or fit(*rest))
    fit_language_baselines(training, held_out, tokenizer, token_order=2, base_order=2)
    assert sizes == [50]
