"""New DNA by models of random weights, and scores of next tokens with and without kept keys."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from bigbird_dna.config import (
    EncoderConfig,
    known_mechanisms,
    load_config,
    parse_config,
)
from bigbird_dna.config.mechanisms import OF_PATTERNS
from bigbird_dna.errors import ConfigError, DataError, ModelError, UsageError
from bigbird_dna.model.decoding import (
    CachedDecoder,
    RecomputingDecoder,
    Sampling,
    keeps_keys,
)
from bigbird_dna.model.generation import (
    LEAST_MASKED,
    fitting,
    masked_fraction,
    most_read,
)
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.kmers import attach_tokenizer
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import PretrainingSettings, Settings
from bigbird_dna.scoring.models import Model
from tests.attention.reference_implementations import SMALL
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer

VOCABULARY = 30
TOKENS = 75
SIZES = {"block_size": 8, "global_blocks": 1, "window_blocks": 3, "random_blocks": 1}
OPTIONS: dict[str, dict[str, Any]] = {
    **SMALL,
    "combiner_fixed": {"span": 7},
    "combiner_axial_vertical": {"columns": 7},
    "combiner_axial_horizontal": {"columns": 7},
    "combiner_axial_rowmajor": {"columns": 7},
    "combiner_routing": {"clusters": 3, "span": 4},
    "combiner_mixture": {"columns": 7, "span": 7},
}
FORMS = [
    *OF_PATTERNS.keys() - {"bigbird_etc"},
    *(n for n, one in known_mechanisms().items() if one.causal),
]


def encoder(attention: str, **values: Any) -> EncoderConfig:
    """A small causal encoder; a mechanism's options are for short sequences."""
    if attention not in OF_PATTERNS:
        values = {"attention_options": OPTIONS.get(attention, {}), **values}
    causal = {"layers": 3, "attention": attention, "causal": True, "dropout": 0.0}
    return small_encoder(**{"vocabulary": VOCABULARY, **causal, **SIZES, **values})


def network(
    config: EncoderConfig, dtype: torch.dtype = torch.float32
) -> PretrainingNetwork:
    """A network of weights large enough that attention isn't flat."""
    torch.manual_seed(0)
    made = PretrainingNetwork(config, next_sentence=False).eval().to(dtype)
    with torch.no_grad():
        for parameter in made.encoder.layers.parameters():
            parameter *= 3
    return made


def scores(model: PretrainingNetwork, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (B, L, V) of every token, and the embeddings (B, L, D) that they are made of."""
    kept: list[Tensor] = []

    def keep(module: torch.nn.Module, given: object, out: Tensor) -> Tensor:
        kept.append(out.detach().requires_grad_())
        return kept[0]

    handle = model.encoder.embeddings.register_forward_hook(keep)
    batch, tokens = ids.shape
    out = model(
        ids, torch.full((batch,), tokens), None, torch.arange(batch * tokens)
    ).tokens
    handle.remove()
    return out.view(batch, tokens, -1), kept[0]


def check(config: EncoderConfig, dtype: torch.dtype = torch.float32) -> None:
    model = network(config, dtype)
    ids = torch.randint(
        VOCABULARY, (2, TOKENS), generator=torch.Generator().manual_seed(1)
    )
    out, _ = scores(model, ids)
    seen = False
    for now in (1, 8, 33, TOKENS - 1):
        changed = ids.clone()
        changed[:, now:] = (
            changed[:, now:] + 1 + torch.arange(TOKENS - now)
        ) % VOCABULARY
        other, embedded = scores(model, changed)
        assert torch.equal(other[:, :now], out[:, :now]), now
        assert not torch.equal(other[:, now:], out[:, now:])
        (grad,) = torch.autograd.grad(other[:, :now].square().sum(), embedded)
        assert (grad[:, now:] == 0).all() and (grad[:, now - 1] != 0).any()
        seen |= bool((grad[:, : now - 1] != 0).any())
    assert seen  # what stands before does count


POOLINGS = ("max", "mean", "deepsets_max", "deepsets_mean")
POOLED = [
    pytest.param(name, one, marks=pytest.mark.slow if one == "deepsets_mean" else ())
    for name in sorted(FORMS)
    if name.startswith("combiner")
    for one in POOLINGS
]


@pytest.mark.parametrize("attention", sorted(FORMS))
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)]
)
def test_no_bit_of_what_is_said_depends_on_later_tokens(
    attention: str, dtype: torch.dtype
) -> None:
    check(encoder(attention), dtype)


@pytest.mark.parametrize(("attention", "pooling"), POOLED)
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)]
)
def test_nor_does_it_however_spans_are_pooled(
    attention: str, pooling: str, dtype: torch.dtype
) -> None:
    options = {**OPTIONS.get(attention, {}), "pooling": pooling}
    check(encoder(attention, attention_options=options), dtype)


@pytest.mark.parametrize(
    "values",
    [
        {"relative_max_distance": 4},
        {"position_encoding": "rotary"},
        {"reversible": True},
        {"random_blocks": 2, "window_blocks": 0, "global_blocks": 0},
    ],
    ids=str,
)
def test_nor_does_it_by_any_part(values: dict[str, Any]) -> None:
    """By any route is the promise of attention itself."""
    for dtype in (torch.float32, torch.float64):
        check(encoder("bigbird", **values), dtype)


def test_the_same_encoder_without_the_key_does_see_what_follows() -> None:
    """What the test above would find."""
    with pytest.raises(AssertionError):
        check(encoder("full", causal=False))


@pytest.mark.parametrize(
    "values", [{"next_sentence": True}, {"mask_fraction": 0.3}, {"mask_span": 2.0}]
)
def test_pretraining_refuses_what_it_has_no_use_for(values: dict[str, Any]) -> None:
    with fails(ConfigError):
        parse_config({"encoder": {"causal": True}, "pretraining": values})
    parse_config({"encoder": {"causal": False}, "pretraining": values})


def test_the_first_token_alone_says_nothing_of_a_sequence() -> None:
    tokenizer = small_tokenizer()
    config = encoder("full", vocabulary=tokenizer.vocabulary)
    model = random_model(tokenizer, config, Settings())
    assert model.embed(["ACGTACGTTT", "GGGTTTA"]).shape == (2, 16)
    with fails(UsageError):
        model.embed(["ACGT"], pool="cls")


@pytest.mark.parametrize(
    ("task", "other"), [("promoters", "mean"), ("chromatin", "bin")]
)
def test_models_of_a_task_don_t_look_at_it_either(task: str, other: str) -> None:
    config = load_config(
        REPOSITORY / "workflow/config/demo.yaml",
        [
            *(
                "encoder.causal=true",
                "pretraining.mask_fraction=0.15",
                f"{task}.model.pooling=cls",
            ),
            *(
                (
                    "chromatin.model.bin_layers=0",
                    "chromatin.evaluation.center_fraction=0",
                )
                if other == "bin"
                else ()
            ),
            *(
                ("chromatin.training.bins_per_window=1",)
                if other == "bin"
                else ("promoters.model.head=dense",)
            ),
        ],
    )
    with fails(ConfigError, task, other):
        config.check_targets()


def test_settings_of_masked_models_are_what_they_were() -> None:
    assert PretrainingSettings(next_sentence=False).as_json() == {
        "next_sentence": False
    }


LEFT, RIGHT = random_dna(90, 5), random_dna(70, 6)


def made(causal: bool, **values: Any) -> Model:
    """A small pretrained model whose scores are far from even."""
    tokenizer = small_tokenizer()
    own = {
        "layers": 2,
        "max_length": 64,
        "position_encoding": "rotary",
        "attention": "full",
    }
    config = small_encoder(
        tokenizer.vocabulary, **own | {"causal": causal, "dropout": 0.0} | values
    )
    learned: dict[str, Any] = {"context": 40} if causal else {}
    return public(
        random_model(
            tokenizer,
            config,
            PretrainingSettings(next_sentence=False, **learned),
            scale=4.0,
        )
    )


def public(model: LoadedModel) -> Model:
    """As `bigbird_dna.load` gives it."""
    return Model(model.network, model.tokenizer, model.config, model.settings)


CAUSAL, MASKED = made(True), made(False)


@pytest.mark.parametrize(
    ("model", "sides"),
    [(CAUSAL, {"left": LEFT}), (MASKED, {"left": LEFT, "right": RIGHT})],
)
def test_samples_have_the_asked_length_and_are_the_same_each_time(
    model: Model, sides: dict[str, str]
) -> None:
    for length in (1, 2, 7, 61):
        found = model.generate(3, length, seed=4, rounds=5, device="cpu", **sides)
        assert [len(sample) for sample in found] == [length] * 3
        assert {*"".join(found)} <= {*"ACGT"}
        assert found == model.generate(
            3, length, seed=4, rounds=5, device="cpu", **sides
        )
    assert len({*found}) == 3
    assert found != model.generate(3, 61, seed=5, rounds=5, device="cpu", **sides)


@pytest.mark.parametrize("model", [CAUSAL, MASKED], ids=["causal", "masked"])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_sample_is_the_same_however_many_there_are(
    model: Model, threads: int
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        many = model.generate(18, 60, left=LEFT, rounds=3, device="cpu")
        for number in (1, 5, 17):
            assert (
                model.generate(number, 60, left=LEFT, rounds=3, device="cpu")
                == many[:number]
            )
    finally:
        torch.set_num_threads(before)


def test_a_shorter_sample_is_the_beginning_of_a_longer_one() -> None:
    long = CAUSAL.generate(2, 400, left=LEFT, device="cpu")
    assert [one[:150] for one in long] == CAUSAL.generate(
        2, 150, left=LEFT, device="cpu"
    )


def test_the_flank_counts_and_its_far_end_does_not() -> None:
    one, other = (
        CAUSAL.generate(4, 40, left=left, device="cpu") for left in (LEFT, RIGHT)
    )
    assert one != other
    # The model reads 38 tokens: of a long flank the last 19.
    assert CAUSAL.generate(
        4, 40, left=random_dna(400, 8) + LEFT * 2, device="cpu"
    ) == CAUSAL.generate(4, 40, left=random_dna(300, 9) + LEFT * 2, device="cpu")


@pytest.mark.parametrize("seed", range(3))
def test_the_flank_s_last_token_is_written_again(seed: int) -> None:
    """A token that begins inside the flank and ends beyond it can be drawn: else its end would be missing."""
    model, tokenizer = made(True), small_tokenizer()
    token = max(tokenizer.base_ids.tolist(), key=lambda one: len(tokenizer.pieces[one]))
    letters = tokenizer.decode([token])
    flanks = (random_dna(60, number) + letters[:2] for number in range(seed, 999, 3))
    left = next(
        one
        for one in flanks
        if tokenizer.decode(tokenizer.encode(one)[-1:]) == letters[:2]
    )
    with torch.no_grad():
        model.network.masked_tokens.bias[token] = 100
    assert model.generate(2, 20, left=left, device="cpu") == [(letters * 20)[2:22]] * 2


@given(
    scores=st.lists(st.floats(-5, 5), min_size=2, max_size=8),
    temperature=st.floats(0.2, 3),
    top_k=st.none() | st.integers(1, 9),
    top_p=st.none() | st.floats(0.05, 1),
    number=st.floats(0, 1, exclude_max=True),
)
@example(
    scores=[0.0, 2.0, -(2.0**-52), 0.0],
    temperature=1.0,
    top_k=3,
    top_p=None,
    number=0.0,
)  # nearly a tie
@settings(deadline=None)
def test_draws_are_by_the_probabilities_of_what_is_left(
    scores: list[float],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    number: float,
) -> None:
    row = np.array([scores])
    found = Sampling(temperature, top_k, top_p).probabilities(row)[0]
    plain = np.exp(row[0] / temperature) / np.exp(row[0] / temperature).sum()
    left = found > 0
    assert found.sum() == pytest.approx(1) and left[(row[0] / temperature).argmax()]
    np.testing.assert_allclose(found[left], plain[left] / plain[left].sum())
    assert plain[left].min() >= plain[~left].max(initial=0)  # the likeliest are left
    if top_k is not None:
        assert left.sum() <= top_k
    if top_p is None:
        assert left.sum() == min(top_k or 9, len(scores))
    elif top_k is None:  # the fewest with that share
        assert plain[left].sum() >= top_p - 1e-9
        assert plain[left].sum() - plain[left].min() < top_p + 1e-9
    drawn = int(Sampling(temperature, top_k, top_p).draw(row, np.array([number]))[0])
    assert left[drawn]
    sums = np.cumsum(found)
    assert sums[drawn] >= number - 1e-9 and (
        drawn == 0 or sums[drawn - 1] <= number + 1e-9
    )


def test_low_temperatures_and_the_best_alone_are_greedy() -> None:
    cold = CAUSAL.generate(2, 80, temperature=1e-3, device="cpu")
    assert (
        cold == CAUSAL.generate(2, 80, top_k=1, device="cpu", seed=9)
        and cold[0] == cold[1]
    )


def test_a_gap_s_flanks_bound_what_is_drawn() -> None:
    """Tokens across a flank's end become such with its bases, and all become such of their length."""
    tokens = ["A", "C", "AC", "GC", "ACG", "TCG"]
    expectations = {
        ".": [0, 1],
        "..": [2, 3],
        ".C": [2, 3],
        "A..": [4],
        "GC": [3],
        "....": [],
    }
    for fixed, expected in expectations.items():
        assert np.flatnonzero(fitting(tokens, fixed)).tolist() == expected
    model, tokenizer = made(False), small_tokenizer()
    favored = [
        one
        for one in tokenizer.base_ids.tolist()
        if set(tokenizer.pieces[one]) == {"G"}
    ]
    with torch.no_grad():
        model.network.masked_tokens.bias[favored] = 100
    assert all(
        "G" * 15 in one
        for one in model.generate(2, 40, left=LEFT, right=RIGHT, device="cpu")
    )


def test_hidden_tokens_are_answered_from_both_sides() -> None:
    """Other flanks, other samples, on whichever side they differ."""
    base = MASKED.generate(6, 12, left=LEFT, right=RIGHT, rounds=6, device="cpu")
    assert base != MASKED.generate(
        6, 12, left=RIGHT, right=RIGHT, rounds=6, device="cpu"
    )
    assert base != MASKED.generate(6, 12, left=LEFT, right=LEFT, rounds=6, device="cpu")


def test_fewer_tokens_are_hidden_from_round_to_round() -> None:
    fractions = [masked_fraction(done, 10) for done in range(10)]
    assert fractions[0] == 1 and fractions == sorted(fractions, reverse=True)
    assert fractions[5:] == pytest.approx([LEAST_MASKED] * 5)
    assert masked_fraction(0, 1) == 1


def test_a_model_reads_as_far_as_it_has_learnt() -> None:
    assert most_read(CAUSAL) == 38
    assert most_read(made(True, max_length=20)) == 18


@pytest.mark.parametrize(
    ("model", "arguments", "error"),
    [
        (CAUSAL, {"right": "ACGT"}, UsageError),
        (CAUSAL, {"temperature": 0}, UsageError),
        (CAUSAL, {"temperature": float("nan")}, UsageError),
        (CAUSAL, {"top_k": 0}, UsageError),
        (CAUSAL, {"top_p": 1.5}, UsageError),
        (CAUSAL, {"number": 0}, UsageError),
        (CAUSAL, {"length": 0}, UsageError),
        (CAUSAL, {"length": 10**8}, UsageError),
        (MASKED, {"rounds": 0}, UsageError),
        (CAUSAL, {"seed": -1}, UsageError),
        (CAUSAL, {"left": "ACGU"}, DataError),
        (CAUSAL, {"left": 7}, UsageError),
        (MASKED, {"length": 400}, UsageError),
        (CAUSAL, {"device": "tpu"}, UsageError),
    ],
)
def test_what_can_t_be_asked_for(
    model: Model, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with fails(error):
        model.generate(**{"length": 20, "device": "cpu", **arguments})


def test_other_models_don_t_generate() -> None:
    bare = public(random_model(small_tokenizer(), CAUSAL.config, Settings()))
    with fails(ModelError):
        bare.generate()


@pytest.mark.parametrize("model", [made(True), made(False)], ids=["causal", "masked"])
def test_scores_that_are_no_numbers_are_told(model: Model) -> None:
    with torch.no_grad():
        next(model.network.parameters()).fill_(torch.nan)
    with fails(ModelError):
        model.generate(1, 20, device="cpu")


PATTERNS = sorted(OF_PATTERNS.keys() - {"bigbird_etc"})


@pytest.mark.parametrize(
    "position", ["rotary", pytest.param("learned", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("attention", PATTERNS)
@given(
    first=st.integers(1, 50),
    seed=st.integers(0, 9),
    sizes=st.sampled_from([{}, {"window_blocks": 5}]),
)
@example(first=1, seed=2, sizes={"window_blocks": 1})  # of "window" the own block alone
@settings(max_examples=2, deadline=None)
def test_scores_are_those_of_the_whole_sequence(
    position: str, attention: str, first: int, seed: int, sizes: dict[str, Any]
) -> None:
    if attention in ("full", "random"):
        sizes = {}
    model = network(
        encoder(attention, position_encoding=position, random_seed=seed, **sizes),
        torch.float64,
    )
    ids = torch.randint(
        VOCABULARY, (3, 70), generator=torch.Generator().manual_seed(seed)
    )
    ids[:, :first] = ids[:1, :first]  # the rows are one until then
    with torch.inference_mode():
        whole = model(ids, torch.full((3,), 70), None, torch.arange(210)).tokens.view(
            3, 70, VOCABULARY
        )
        kept = CachedDecoder(model, 70)
        found = kept.read(ids[:1, :first])
        torch.testing.assert_close(found, whole[:1, first - 1], rtol=1e-9, atol=1e-9)
        kept.repeat(3)
        for place in range(first, 70):
            found = kept.read(ids[:, place : place + 1])
            torch.testing.assert_close(found, whole[:, place], rtol=1e-9, atol=1e-9)


def test_which_mechanisms_keep_keys() -> None:
    assert [name for name in sorted(FORMS) if keeps_keys(encoder(name))] == PATTERNS
    assert not keeps_keys(encoder("bigbird", relative_max_distance=3))
    assert not keeps_keys(encoder("bigbird", reversible=True))


@pytest.mark.parametrize(
    "config",
    [
        encoder("full"),
        encoder("performer"),
        encoder("bigbird", relative_max_distance=3),
        encoder("full", reversible=True),
        encoder("bigbird", position_encoding="rotary_bp"),
    ],
    ids=["full", "performer", "relative", "reversible", "bp"],
)
def test_without_a_cache_all_is_computed_again(config: Any) -> None:
    model = network(config, torch.float64)
    attach_tokenizer(model, small_tokenizer())
    ids = torch.randint(VOCABULARY, (2, 30), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        decoder = RecomputingDecoder(model)
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
