"""K-mers read from token ids, against plain loops over the bases; what may not affect them."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bigbird_dna.baselines.dyads import TrackWords, dyad_counts
from bigbird_dna.baselines.kmers import window_features
from bigbird_dna.errors import ModelError
from bigbird_dna.genome.sequence import DYADS, reverse_complement
from bigbird_dna.model.bases import BaseReader, TokenKmers, kmer_rows
from bigbird_dna.model.batching import bin_rows, pad
from bigbird_dna.model.directory import build_network, load, save
from bigbird_dna.model.ensemble import DyadMember, KmerMember
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.settings import (
    ChromatinSettings,
    NamedTrack,
    PretrainingSettings,
    PromoterSettings,
)
from bigbird_dna.tokens.text import TextTokenizer
from tests.golden.messages import fails
from tests.tokens.text_model import text_model
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer

TOKENIZER = small_tokenizer()
DNA = st.text("ACGTN", min_size=1, max_size=60)


def padded(*texts: str, extra: int = 0) -> Tensor:
    rows = [
        np.concatenate([[TOKENIZER.cls_id], TOKENIZER.encode(text), [TOKENIZER.sep_id]])
        for text in texts
    ]
    ids, _ = pad(rows, TOKENIZER.pad_id)
    return torch.nn.functional.pad(ids, (0, extra), value=TOKENIZER.pad_id)


def reader(k: int, both_strands: bool) -> BaseReader:
    made = BaseReader(k, both_strands)
    made.attach(TOKENIZER)
    return made


def row_of(word: str, both_strands: bool) -> int:
    """The row of a table of a k-mer, 0 for one with an N."""
    if "N" in word:
        return 0
    number = 0
    for letter in word:
        number = 4 * number + "ACGT".index(letter)
    return int(kmer_rows(len(word), both_strands)[0][number])


@settings(deadline=None, max_examples=50)
@given(
    st.lists(DNA, min_size=1, max_size=3),
    st.integers(1, 8),
    st.booleans(),
    st.integers(0, 2),
)
def test_kmers_are_those_around_each_base_and_no_row_reads_another(
    texts: list[str], k: int, both_strands: bool, extra: int
) -> None:
    rows, all_starts = reader(k, both_strands).words(padded(*texts, extra=extra))
    for text, starts in zip(texts, all_starts, strict=True):
        around = "N" * k + text + "N" * k
        expected = [
            row_of(around[place - (k - 1) // 2 :][:k], both_strands)
            for place in range(k, k + len(text))
        ]
        first = int(starts[1])  # after [CLS]
        assert rows[first : first + len(text)].tolist() == expected
        assert starts.diff().min() >= 1


def test_a_kmer_and_its_reverse_complement_have_one_row_and_all_others_different_ones() -> (
    None
):
    for k in (1, 2, 5, 6):
        table, count = kmer_rows(k, both_strands=True)
        own: dict[int, set[str]] = {}
        for number in range(4**k):
            word = "".join(
                "ACGT"[number // 4**place % 4] for place in reversed(range(k))
            )
            own.setdefault(int(table[number]), set()).add(
                min(word, reverse_complement(word))
            )
        assert sorted(own) == [*range(1, count)] and all(
            len(words) == 1 for words in own.values()
        )


def random_kmers(k: int = 4) -> TokenKmers:
    part = TokenKmers(k, 8)
    part.attach(TOKENIZER)
    torch.manual_seed(0)
    torch.nn.init.normal_(part.weight)
    with torch.no_grad():
        part.weight[0] = 0
    return part


def test_a_masked_token_hides_its_bases_from_its_neighbors() -> None:
    part, text = random_kmers(), random_dna(80, 1)
    ids = padded(text)
    place = 7
    found = []
    for other in TOKENIZER.base_ids[:5]:
        changed = ids.clone()
        changed[0, place] = int(other)
        hidden = changed.clone()
        hidden[0, place] = TOKENIZER.mask_id
        found.append(part(hidden))
        assert not torch.equal(part(changed), found[-1])
    assert all(torch.equal(one, found[0]) for one in found)
    assert not found[0][0, place].any()


def test_vectors_depend_on_neither_the_other_rows_nor_padding() -> None:
    part = random_kmers()
    texts = [random_dna(length, length) for length in (30, 75, 9)]
    together = part(padded(*texts, extra=3))
    for row, text in enumerate(texts):
        alone = part(padded(text))[0]
        torch.testing.assert_close(
            together[row, : len(alone)], alone, atol=1e-6, rtol=0
        )
        assert not together[row, len(alone) :].any()


def test_gradients_reach_the_kmers_that_occur_and_no_other() -> None:
    part = random_kmers()
    ids = padded(random_dna(40, 3))
    part(ids).sum().backward()
    assert part.weight.grad is not None
    reached = part.weight.grad.any(1).nonzero()[:, 0].tolist()
    assert reached == sorted({*part.words(ids)[0].tolist()} - {0})


def test_without_a_tokenizer_nothing_is_read() -> None:
    with pytest.raises(RuntimeError):
        TokenKmers(4, 8)(padded("ACGT"))


# In networks

ENCODER = small_encoder(TOKENIZER.vocabulary, kmers=5)
PROMOTER = PromoterSettings(
    upstream=40, downstream=20, pooling="mean", jitter=6, views=3, ensemble_kmers=4
)
CHROMATIN = ChromatinSettings(
    window=120,
    bin=40,
    pooling="bin",
    bin_layers=0,
    members=2,
    tracks=(NamedTrack(track="a", group="g"), NamedTrack(track="b", group="g")),
    ensemble_kmers=3,
    ensemble_dyads=5,
)


def test_vectors_are_zero_at_first_and_change_an_encoder_when_they_are_not() -> None:
    torch.manual_seed(1)
    network = build_network(ENCODER, PretrainingSettings(), TOKENIZER).eval()
    torch.manual_seed(1)
    plain = build_network(
        ENCODER.model_copy(update={"kmers": 0}), PretrainingSettings()
    ).eval()
    ids = padded(random_dna(70, 1), random_dna(50, 2))
    lengths = (ids != TOKENIZER.pad_id).sum(1)
    with torch.no_grad():
        before = network.encoder(ids, lengths)
        assert torch.equal(before, plain.encoder(ids, lengths))
        torch.nn.init.normal_(network.encoder.embeddings.kmers.weight)
        assert not torch.allclose(network.encoder(ids, lengths), before)


@pytest.mark.parametrize("position", ["learned", "rotary"])
@pytest.mark.parametrize("own", [PROMOTER, CHROMATIN], ids=["promoter", "chromatin"])
def test_a_saved_model_predicts_the_same_in_any_batch(
    own: Any, position: str, tmp_path: Any
) -> None:
    model = random_model(
        TOKENIZER,
        ENCODER.model_copy(update={"position_encoding": position}),
        own,
        scale=2,
    )
    rng = np.random.default_rng(1)
    for part in model.network.modules():
        if isinstance(part, KmerMember):
            part.set_weights(rng.normal(size=part.weight[:, 1:, :-1].shape))
        if isinstance(part, DyadMember):
            part.set_weights(
                rng.integers(0, DYADS, part.weight.shape),
                rng.normal(size=part.weight.shape),
            )
        if isinstance(part, TokenKmers):
            torch.nn.init.normal_(part.weight)
    windows = [random_dna(own.window, seed) for seed in range(9)]
    found = model.window_probabilities(windows, device="cpu")
    save(tmp_path / "m", model, {}, {}, {})
    loaded: Any = load(tmp_path / "m")
    assert (
        loaded.window_probabilities(windows, device="cpu").tobytes() == found.tobytes()
    )
    alone = np.concatenate(
        [loaded.window_probabilities([one], device="cpu") for one in windows]
    )
    np.testing.assert_allclose(alone, found, rtol=0, atol=1e-6)
    if own is CHROMATIN:
        turned = loaded.window_probabilities(
            [reverse_complement(one) for one in windows], device="cpu"
        )
        np.testing.assert_allclose(turned, found, atol=1e-6)


def test_a_member_adds_log_odds_of_the_frequencies_in_a_bin_and_around_it() -> None:
    member = KmerMember(3, 2, both_strands=True, margins=(0, 25))
    member.attach(TOKENIZER)
    weights = (
        np.random.default_rng(1)
        .normal(size=(2, member.table_rows - 1, 2))
        .astype(np.float32)
    )
    member.set_weights(weights)
    texts = [random_dna(120, 4), random_dna(60, 5) + "N" * 7 + random_dna(53, 6)]
    rows = bin_rows(TOKENIZER, texts, np.array([[40, 60], [30, 70]]), 20, 500)
    ids, _ = pad(rows.ids, TOKENIZER.pad_id)
    found = member(ids, torch.from_numpy(rows.spans)).numpy()
    for row, text in enumerate(texts):
        offsets = TOKENIZER.offsets(TOKENIZER.encode(text))
        for place, (first, last) in enumerate(rows.spans[row] - 1):
            expected = np.zeros(2)
            for weight, margin in zip(weights, (0, 25), strict=True):
                # A k-mer belongs to its central base, so a region has one more base at each end.
                left, right = (
                    max(0, offsets[first] - margin - 1),
                    offsets[last] + margin + 1,
                )
                part = text[left:right]
                features = window_features([part], [len(part)], 3)[0]
                expected += features @ weight
            np.testing.assert_allclose(found[row, place], expected, rtol=1e-4)


def test_a_member_adds_the_dyads_whose_two_middle_bases_are_in_a_bin() -> None:
    texts = [random_dna(120, 4), random_dna(60, 5) + "N" * 7 + random_dna(53, 6)]
    rng = np.random.default_rng(1)
    # Dyads that occur, so that most sums are not zero, and some others.
    present = np.unique(dyad_counts(texts, 120).indices)
    fitted = TrackWords(3, 100, (120,))
    fitted.dyads = np.concatenate(
        [rng.choice(present, (2, 90)), rng.integers(0, DYADS, (2, 10))], axis=1
    )
    fitted.weight = rng.normal(size=(2, 100)).astype(np.float32)
    fitted.bias = np.zeros(2, np.float32)
    member = DyadMember(2, 100)
    member.attach(TOKENIZER)
    member.set_weights(fitted.dyads, fitted.weight)
    rows = bin_rows(TOKENIZER, texts, np.array([[0, 60], [30, 80]]), 40, 500)
    ids, _ = pad(rows.ids, TOKENIZER.pad_id)
    found = member(ids, torch.from_numpy(rows.spans)).numpy()
    for row, text in enumerate(texts):
        offsets = TOKENIZER.offsets(TOKENIZER.encode(text))
        for place, (first, last) in enumerate(rows.spans[row] - 1):
            part = text[max(0, offsets[first] - 1) : offsets[last] + 1]
            expected = fitted.added(dyad_counts([part], len(part)))[0]
            assert expected.all()
            np.testing.assert_allclose(found[row, place], expected, rtol=1e-4)


def test_a_member_that_was_not_fitted_adds_nothing_and_is_not_trained() -> None:
    model = random_model(TOKENIZER, small_encoder(TOKENIZER.vocabulary), PROMOTER)
    assert isinstance(model.network, Classifier) and model.network.ensemble is not None
    assert model.network.ensemble.kmers is not None
    assert not model.network.ensemble.kmers.weight[..., :-1].any()
    assert "ensemble.kmers.weight" in model.network.state_dict()
    assert not any(
        name.startswith("ensemble") for name, _ in model.network.named_parameters()
    )


def test_text_has_no_bases() -> None:
    text = TextTokenizer(text_model("words of a text, and a few more of them", 30))
    with fails(ModelError):
        TokenKmers(4, 8).attach(text)
