"""All baselines of hidden tokens: what they may see, and independent bases."""

import numpy as np

from bigbird_dna.baselines.language import (
    BASES_BOTH,
    TOKENS_BOTH,
    UNIGRAM,
    LanguageBaselines,
)
from bigbird_dna.baselines.ngram import MaskedTokens
from bigbird_dna.data.predictions import UNIFORM
from tests.golden.messages import fails
from tests.toys import encode, random_dna

MASKED = (UNIFORM, UNIGRAM, TOKENS_BOTH, BASES_BOTH)


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


def test_tokens_as_bases(tokenizer):
    texts = ["ACGTNNACGGTA", random_dna(900, 1), "T"]
    baselines = LanguageBaselines(tokenizer)
    for text, document in zip(texts, tokenizer.encode_batch(texts), strict=True):
        np.testing.assert_array_equal(baselines.bases(document), encode(text))


def test_each_predictor_sees_what_it_may(tokenizer):
    """What is hidden tells predictors nothing: another token in its place changes no other's bits."""
    training = documents_of(tokenizer, [60_000, 50_000], 1)
    documents = documents_of(tokenizer, [1500], 9)
    held_out = hide(documents, tokenizer, 0.4, 0)
    fitted = LanguageBaselines(tokenizer).fit(training, held_out)
    before = fitted.bits(held_out)
    assert tuple(before) == tuple(fitted.notes) == MASKED
    changed = documents[0].copy()
    places = held_out.hidden[0]
    beside = (np.diff(places[1:]) == 1) & (np.diff(places[:-1]) == 1)
    one = np.flatnonzero(beside)[0] + 1  # among hidden ones
    lengths = tokenizer.piece_lengths
    same_length = lengths == lengths[changed[places[one]]]
    tokens = np.arange(tokenizer.vocabulary)
    others = np.flatnonzero(same_length & np.isin(tokens, tokenizer.base_ids))
    changed[places[one]] = others[others != changed[places[one]]][0]
    after = fitted.bits(MaskedTokens([changed], held_out.hidden))
    rest = np.arange(len(places)) != one
    for name in MASKED:
        np.testing.assert_array_equal(after[name][rest], before[name][rest])
        if name != UNIFORM:
            assert after[name][one] != before[name][one]


def test_tokens_tell_of_their_neighbors_what_bases_do_not(tokenizer):
    """On independent bases no model of bases gets below their entropy, but tokens aren't independent:
    one that would have merged with its neighbor isn't there."""
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("ACGT"), 6000)) for _ in range(30)]
    documents = tokenizer.encode_batch(texts)
    held_out = hide(documents[20:], tokenizer, 0.05, 0)
    bits = LanguageBaselines(tokenizer).fit(documents[:20], held_out).bits(held_out)
    bases = bits[UNIFORM].sum() / 2
    assert 1.995 < bits[BASES_BOTH].sum() / bases < 2.01
    assert bits[TOKENS_BOTH].sum() / bases < 1.98


def test_nothing_hidden(tokenizer):
    training = documents_of(tokenizer, [400], 1)
    none = MaskedTokens(training, [np.zeros(0, np.int64)])
    with fails(ValueError):
        LanguageBaselines(tokenizer).fit(training, none)
    fitted = LanguageBaselines(tokenizer)
    fitted.fit(training, hide(training, tokenizer, 0.3, 0))
    assert all(bits.shape == (0,) for bits in fitted.bits(none).values())
