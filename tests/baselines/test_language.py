"""All baselines of hidden tokens: against slow readings, and on a source of known entropy."""

from dataclasses import replace

import numpy as np
import pytest

from bigbird_dna.baselines import language, tokens
from bigbird_dna.baselines.language import (
    BASES_BOTH,
    BASES_LEFT,
    PREDICTORS,
    TOKENS_BOTH,
    TOKENS_LEFT,
    UNIGRAM,
    DocumentBases,
    base_bits,
    fit_language_baselines,
)
from bigbird_dna.baselines.ngram import KneserNey
from bigbird_dna.baselines.tokens import MaskedTokens
from bigbird_dna.data.predictions import UNIFORM
from tests.golden.messages import fails
from tests.toys import encode, random_dna


def documents_of(tokenizer, sizes, seed):
    return tokenizer.encode_batch(
        [random_dna(size, seed + number) for number, size in enumerate(sizes)]
    )


def hide(documents, tokenizer, share, seed):
    rng = np.random.default_rng(seed)
    hidden = []
    for document in documents:
        places = np.flatnonzero(np.isin(document, tokenizer.base_ids))
        hidden.append(
            np.sort(rng.choice(places, round(share * len(places)), replace=False))
        )
    return MaskedTokens(documents, hidden)


def test_pieces_as_bases(tokenizer):
    texts = ["ACGTNNACGGTA", random_dna(900, 1), "T"]
    documents = tokenizer.encode_batch(texts)
    pieces = DocumentBases(tokenizer)
    for text, document in zip(texts, documents, strict=True):
        np.testing.assert_array_equal(pieces.codes(document), encode(text))
    hidden = [np.array([0]), np.arange(2, 30, 5), np.zeros(0, np.int64)]
    (stretches,) = pieces.batches(documents, hidden)
    found = [
        "".join("ACGTN"[c] for c in stretches.codes[s:e])
        for s, e in zip(*stretches[1:], strict=True)
    ]
    asked = zip(documents, hidden, strict=True)
    assert found == [
        tokenizer.decode([document[i]]) for document, places in asked for i in places
    ]
    before, behind = stretches.apart()
    assert before[1] == stretches.starts[1] - stretches.ends[0] == behind[0]
    assert (
        before[0] >= stretches.starts[0]
        and behind[-1] >= len(stretches.codes) - stretches.ends[-1]
    )


def test_batches_are_what_one_would_be(tokenizer, monkeypatch):
    documents = documents_of(tokenizer, [700, 300, 500], 1)
    held_out = hide(documents, tokenizer, 0.2, 0)
    fitted = fit_language_baselines(
        documents, held_out, tokenizer, token_order=2, base_order=4
    )
    chosen = np.arange(0, sum(map(len, held_out.hidden)), 3)
    whole = fitted.evaluate(held_out)
    monkeypatch.setattr("bigbird_dna.baselines.language.BATCH", 1)
    for name, bits in fitted.evaluate(held_out).bits.items():
        np.testing.assert_array_equal(bits, whole.bits[name])
    models = fitted.markov, fitted.token_bases, held_out, 3
    some, every = (
        base_bits(*models, both=True, seen=False, chosen=part)
        for part in (chosen, None)
    )
    np.testing.assert_array_equal(some, every[chosen])


def test_each_predictor_sees_what_it_may(tokenizer):
    """What is hidden tells plain predictors nothing: another token in its place changes no other's bits."""
    training = documents_of(tokenizer, [60_000, 50_000], 1)
    documents = documents_of(tokenizer, [1500], 9)
    held_out = hide(documents, tokenizer, 0.4, 0)
    fitted = fit_language_baselines(
        training, held_out, tokenizer, token_order=3, base_order=4
    )
    fitted = replace(fitted, orders={False: 4, True: 4})
    before = fitted.evaluate(held_out).bits
    changed = documents[0].copy()
    places = held_out.hidden[0]
    one = (
        np.flatnonzero((np.diff(places[1:]) == 1) & (np.diff(places[:-1]) == 1))[0] + 1
    )  # among hidden ones
    same_length = (
        tokenizer.piece_lengths == tokenizer.piece_lengths[changed[places[one]]]
    )
    others = np.flatnonzero(
        same_length & np.isin(np.arange(tokenizer.vocabulary), tokenizer.base_ids)
    )
    changed[places[one]] = others[others != changed[places[one]]][0]
    after = fitted.evaluate(MaskedTokens([changed], held_out.hidden)).bits
    rest = np.arange(len(places)) != one
    for name in PREDICTORS:
        np.testing.assert_array_equal(after[name][rest], before[name][rest])
        if name != UNIFORM:
            assert after[name][one] != before[name][one]


def test_a_causal_model_s_baselines_know_all_tokens_on_the_left(tokenizer):
    training = documents_of(tokenizer, [4000, 3000], 1)
    documents = documents_of(tokenizer, [900, 800], 9)
    held_out = hide(documents, tokenizer, 0.1, 0)
    options = {"token_order": 3, "base_order": 2, "both_strands": False}
    causal = fit_language_baselines(
        training, held_out, tokenizer, **options, causal=True
    ).evaluate(held_out)
    left = (UNIFORM, UNIGRAM, TOKENS_LEFT, BASES_LEFT)
    assert tuple(causal.bits) == tuple(causal.notes) == left
    assert causal.notes[BASES_LEFT].endswith("one strand")
    order = int(causal.notes[TOKENS_LEFT].rsplit(" ", 1)[1])
    for name, length in ((UNIGRAM, 1), (TOKENS_LEFT, order)):
        model = KneserNey(length, tokenizer.vocabulary).fit(training)
        pairs = zip(*held_out, strict=True)
        bits = np.concatenate(
            [-model.log2_probabilities(text)[places] for text, places in pairs]
        )
        np.testing.assert_allclose(causal.bits[name], bits)
    np.testing.assert_array_equal(causal.bits[UNIFORM], 2 * causal.bases)
    evaluated = fit_language_baselines(
        training, held_out, tokenizer, **options
    ).evaluate(held_out)
    assert tuple(evaluated.bits) == tuple(evaluated.notes) == PREDICTORS
    np.testing.assert_array_equal(evaluated.bits[UNIGRAM], causal.bits[UNIGRAM])
    assert {len(bits) for bits in evaluated.bits.values()} == {
        sum(map(len, held_out.hidden))
    }


def test_pieces_tell_of_their_neighbors_what_bases_do_not(tokenizer):
    """On independent bases no model of bases gets below their entropy, but pieces of a tokenizer aren't
    independent: a piece that would have merged with its neighbor isn't there."""
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("ACGT"), 6000)) for _ in range(30)]
    documents = tokenizer.encode_batch(texts)
    held_out = hide(documents[20:], tokenizer, 0.05, 0)
    found = fit_language_baselines(
        documents[:20], held_out, tokenizer, token_order=2, base_order=3
    ).evaluate(held_out)
    rates = {name: bits.sum() / found.bases.sum() for name, bits in found.bits.items()}
    for name in (BASES_LEFT, BASES_BOTH):
        assert 1.995 < rates[name] < 2.01
    assert rates[TOKENS_BOTH] < 1.98 < 1.99 < rates[TOKENS_LEFT]


@pytest.fixture
def fits(monkeypatch):
    """The documents and the last order of each fit of n-grams."""
    found = []

    class Watched(KneserNey):
        def fitted_orders(self, sequences):
            documents = [*sequences]
            found.append([documents, 0])
            for model in super().fitted_orders(documents):
                found[-1][1] = model.order
                yield model

    monkeypatch.setattr(tokens, "KneserNey", Watched)
    return found


def test_tokens_beyond_the_limit_are_spread_over_all_documents(
    tokenizer, fits, monkeypatch
):
    training = documents_of(tokenizer, [2000] * 20, 1)
    held_out = hide(training[:2], tokenizer, 0.3, 0)
    monkeypatch.setattr(tokens, "MOST_TOKENS", sum(map(len, training)) / 3.9)
    tokens.fit_token_models(training, held_out, np.arange(20), tokenizer, 4)
    ((used, _), _) = fits
    places = [
        next((i for i, one in enumerate(training) if one is d), None) for d in used
    ]
    assert places == [2, 6, 10, 14, 18]


def test_a_longer_order_isnt_tried_in_vain(tokenizer, fits):
    training = documents_of(tokenizer, [4000], 1)
    strange = documents_of(tokenizer, [3000], 77)
    held_out = hide(strange, tokenizer, 0.3, 0)
    fit_language_baselines(training, held_out, tokenizer, token_order=12, base_order=1)
    assert max(order for _, order in fits) < 12


def test_what_is_refused(tokenizer):
    training = documents_of(tokenizer, [400], 1)
    none = MaskedTokens(training, [np.zeros(0, np.int64)])
    with fails(ValueError):
        fit_language_baselines(training, none, tokenizer)
    held_out = hide(training, tokenizer, 0.3, 0)
    fitted = fit_language_baselines(
        training, held_out, tokenizer, token_order=2, base_order=2
    )
    evaluated = fitted.evaluate(none)
    assert all(
        bits.shape == (0,) for bits in evaluated.bits.values()
    ) and evaluated.bases.shape == (0,)


def test_choosing_is_on_a_sample(tokenizer, monkeypatch):
    training = documents_of(tokenizer, [3000] * 3, 1)
    held_out = hide(training, tokenizer, 0.4, 0)
    monkeypatch.setattr(language, "CHOOSING_TOKENS", 50)
    sizes = []
    fit = language.fit_token_models
    monkeypatch.setattr(
        language,
        "fit_token_models",
        lambda *rest: sizes.append(len(rest[2])) or fit(*rest),
    )
    fit_language_baselines(training, held_out, tokenizer, token_order=2, base_order=2)
    assert sizes == [50]
