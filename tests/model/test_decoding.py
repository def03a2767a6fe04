"""Scores of the next token are the same whether keys and values are kept or everything is computed again."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.config.mechanisms import OF_PATTERNS
from bigbird_dna.model.decoding import CachedDecoder, RecomputingDecoder, keeps_keys, make_decoder
from tests.golden.messages import fails
from tests.model.test_causal import CAUSAL, VOCABULARY, encoder, network

PATTERNS = sorted(OF_PATTERNS.keys() - {"bigbird_etc"})


@pytest.mark.parametrize("position", ["rotary", "learned"])
@pytest.mark.parametrize("attention", PATTERNS)
@given(first=st.integers(1, 50), seed=st.integers(0, 9), sizes=st.sampled_from([{}, {"window_blocks": 5}]))
@settings(max_examples=2, deadline=None)
def test_scores_are_those_of_the_whole_sequence(
    position: str, attention: str, first: int, seed: int, sizes: dict[str, Any]
) -> None:
    if attention in ("full", "random"):
        sizes = {}
    model = network(encoder(attention, position=position, random_seed=seed, **sizes), torch.float64)
    ids = torch.randint(VOCABULARY, (3, 70), generator=torch.Generator().manual_seed(seed))
    ids[:, :first] = ids[:1, :first]  # the rows are one until then
    with torch.inference_mode():
        whole = model(ids, torch.full((3,), 70), None, torch.arange(210)).tokens.view(3, 70, VOCABULARY)
        kept = make_decoder(model, 70)
        assert isinstance(kept, CachedDecoder)
        found = kept.read(ids[:1, :first])
        torch.testing.assert_close(found, whole[:1, first - 1], rtol=1e-9, atol=1e-9)
        kept.repeat(3)
        for place in range(first, 70):
            found = kept.read(ids[:, place : place + 1])
            torch.testing.assert_close(found, whole[:, place], rtol=1e-9, atol=1e-9)


def test_a_window_of_the_own_block_alone() -> None:
    model = network(encoder("window", window_blocks=1), torch.float64)
    ids = torch.randint(VOCABULARY, (1, 60), generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        whole = model(ids, torch.full((1,), 60), None, torch.arange(60)).tokens
        decoder = make_decoder(model, 60)
        for place in range(60):
            torch.testing.assert_close(
                decoder.read(ids[:, place : place + 1])[0], whole[place], rtol=1e-9, atol=1e-9
            )


def test_which_mechanisms_keep_keys() -> None:
    assert [name for name in sorted(CAUSAL) if keeps_keys(encoder(name))] == PATTERNS
    assert not keeps_keys(encoder("bigbird", relative_max_distance=3))
    assert not keeps_keys(encoder("bigbird", reversible=True))


@pytest.mark.parametrize(
    "config",
    [
        encoder("full"),
        encoder("performer"),
        encoder("bigbird", relative_max_distance=3),
        encoder("full", reversible=True),
    ],
    ids=["full", "performer", "relative", "reversible"],
)
def test_without_a_cache_all_is_computed_again(config: Any) -> None:
    model = network(config, torch.float64)
    ids = torch.randint(VOCABULARY, (2, 30), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        decoder = make_decoder(model, 30, cache=False)
        assert isinstance(decoder, RecomputingDecoder)
        decoder.read(ids[:, :20])
        for place in range(20, 30):
            last = decoder.read(ids[:, place : place + 1])
        whole = model(ids, torch.full((2,), 30), None, torch.arange(2) * 30 + 29).tokens
    torch.testing.assert_close(last, whole, rtol=1e-12, atol=1e-12)


def test_more_than_there_is_room_for_is_refused() -> None:
    decoder = CachedDecoder(network(encoder("full")), 8)
    with torch.inference_mode():
        decoder.read(torch.zeros(1, 5, dtype=torch.long))
        with fails(ValueError):
            decoder.read(torch.zeros(1, 4, dtype=torch.long))
        with fails(ValueError):
            decoder.read(torch.zeros(1, 2, dtype=torch.long))
