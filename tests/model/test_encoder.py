"""The encoder and its heads: shapes, padding, checkpointing, and agreement of the attention routes."""

from collections.abc import Callable
from itertools import accumulate

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from bigbird_dna.attention.backends import choose_route
from bigbird_dna.attention.call import Call, token_owners
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.config.reading import parse_config
from bigbird_dna.errors import ConfigError
from bigbird_dna.model import encoder as own
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import PretrainingNetwork
from tests.golden.messages import fails
from tests.toys import small_encoder

SMALL = small_encoder(
    layers=2, max_length=96, block_size=4, random_blocks=1, dropout=0.0
)


def rows(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded ids and their lengths."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 40, (len(lengths), max(lengths)), generator=generator)
    for row, length in enumerate(lengths):
        ids[row, length:] = 0
    return ids, torch.tensor(lengths)


PARTS: list[dict[str, object]] = [
    {},
    {"position_encoding": "rotary"},
    {"block_size": 8, "num_global_tokens": 5},
    {
        "block_size": 8,
        "num_global_tokens": 5,
        "relative_max_distance": 3,
        "position_encoding": "rotary",
    },
    {"block_size": 8, "relative_max_distance": 3},
    {"block_size": 8, "num_global_tokens": 8, "relative_max_distance": 1},
]


@pytest.mark.parametrize("changes", PARTS, ids=str)
def test_hidden_states_of_a_row_depend_neither_on_padding_nor_on_the_batch(
    changes: dict[str, object],
) -> None:
    torch.manual_seed(0)
    encoder = Encoder(SMALL.model_copy(update=changes)).double().eval()
    ids, lengths = rows(61, 90, 33)
    with torch.inference_mode():
        together = encoder(ids, lengths)
        for row, length in enumerate(lengths.tolist()):
            alone = encoder(ids[row : row + 1, :length], lengths[row : row + 1])
            torch.testing.assert_close(
                together[row, :length], alone[0], atol=1e-12, rtol=0
            )


OTHERS: list[dict[str, object]] = [
    *(
        {"attention": "combiner_fixed"},
        {"attention": "performer"},
        {"gradient_checkpointing": True},
    ),
    {"position_encoding": "rotary"},
]


@pytest.mark.parametrize("changes", [*PARTS, *OTHERS], ids=str)
def test_wanted_tokens_have_the_hidden_states_and_gradients_of_all(
    changes: dict[str, object],
) -> None:
    torch.manual_seed(0)
    encoder = Encoder(SMALL.model_copy(update=changes)).double().train()
    ids, lengths = rows(61, 90, 33)
    wanted = torch.tensor(
        [0, 3, 60, 90, 179, 180, 212]
    )  # in the rows 0, 1 and 2 of 90 tokens each
    found = []
    for choose in (
        lambda: encoder(ids, lengths, selected=wanted),
        lambda: encoder(ids, lengths).flatten(0, 1)[wanted],
    ):
        hidden = choose()
        encoder.zero_grad()
        (
            hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)
        ).sum().backward()
        gradients = [parameter.grad for parameter in encoder.parameters()]
        encoder.eval()
        with torch.inference_mode():
            found.append([hidden, choose(), *gradients])
        encoder.train()
    torch.testing.assert_close(*found, atol=1e-10, rtol=0)


THEIRS = {"compatibility": "huggingface"}
REFUSED: list[dict[str, object]] = [
    *(
        {"position_encoding": "rotary", "hidden": 6, "heads": 2},
        {"position_encoding": "rotary", **THEIRS},
    ),
    {"head_init": "neighbors"},
    *(
        {"causal": True, "attention": "reformer"},
        {"causal": True, "num_global_tokens": 2},
    ),
    {"causal": True, "attention": "bigbird_etc", "num_global_tokens": 2},
    {"causal": True, **THEIRS},
    *({"causal": True, "kmers": 4}, {"kmers": 9}, {"kmers": 5, **THEIRS}),
]


@pytest.mark.parametrize("values", REFUSED, ids=str)
def test_parts_that_do_not_go_together_are_refused(values: dict[str, object]) -> None:
    with fails(ConfigError):
        parse_config({"encoder": values})


def test_gradient_checkpointing_saves_memory() -> None:
    ids, _ = rows(256)
    peaks = []
    for checkpointing in (False, True):
        changes = {
            "layers": 6,
            "hidden": 64,
            "max_length": 256,
            "dropout": 0.1,
            "attention_backend": "blocked",
        }
        config = SMALL.model_copy(
            update={"gradient_checkpointing": checkpointing, **changes}
        )
        encoder = Encoder(config).train()
        encoder(ids).sum().backward()  # gradients exist, plans are made
        peaks.append(peak_bytes(lambda encoder=encoder: encoder(ids).sum().backward()))  # type: ignore[misc]
    assert peaks[1] < 0.45 * peaks[0]


def peak_bytes(call: Callable[[], object]) -> int:
    """Most memory that torch held at a time for what `call` allocated."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    assert profiler.profiler is not None
    events = profiler.profiler.kineto_results.events()
    changes = sorted(
        (e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"
    )
    return max(accumulate(nbytes for _, nbytes in changes))


def test_inference_in_parts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    encoder = Encoder(SMALL).eval()
    inner = 4 * SMALL.hidden
    for lengths in ((90,), (20, 17, 11, 20, 3)):
        ids, true = rows(*lengths)
        whole = encoder(ids, true).detach()
        for tokens in (1, 7, 20, 45):
            monkeypatch.setattr(own, "INNER_ELEMENTS", tokens * inner)
            with torch.inference_mode():
                torch.testing.assert_close(encoder(ids, true), whole, atol=1e-5, rtol=0)


def test_inference_never_holds_the_feed_forward_of_all_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = Encoder(
        SMALL.model_copy(update={"max_length": 1024, "intermediate": 1024})
    ).eval()
    ids, _ = rows(1024)
    bounds = (1 << 30, 64 * 1024)
    peaks = []
    with torch.inference_mode():
        encoder(ids)
        for bound in bounds:
            monkeypatch.setattr(own, "INNER_ELEMENTS", bound)
            peaks.append(peak_bytes(lambda: encoder(ids)))
    inner = 1024 * 1024 * 4  # bytes
    assert peaks[0] > inner > 2 * peaks[1]


PARTS_OF_TORCH = {
    **{
        "attention_output": "self_attn.out_proj",
        "attention_norm": "norm1",
        "output_norm": "norm2",
    },
    **{"intermediate": "linear1", "output": "linear2"},
}


@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu", "relu"])
def test_full_attention_agrees_with_torch_s_own_layers(activation: str) -> None:
    """An encoder of torch's layers with the same weights; epsilon is large enough to be seen."""
    changes = {
        "attention": "full",
        "activation": activation,
        "layer_norm_epsilon": 0.05,
        "segments": 3,
    }
    config = SMALL.model_copy(update={**changes, "intermediate": 24})
    torch.manual_seed(0)
    encoder = Encoder(config).double()
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, std=0.3)
    functions = {
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "gelu": functional.gelu,
        "relu": functional.relu,
    }
    ids, lengths = rows(31, 17)
    segments = torch.randint(0, 3, ids.shape)
    part = encoder.embeddings
    x = part.token.weight[ids]
    x = x + part.position.weight[:31] + part.segment.weight[segments]
    x = functional.layer_norm(x, (16,), part.norm.weight, part.norm.bias, 0.05)
    for layer in encoder.layers:
        options = {
            "dropout": 0.0,
            "layer_norm_eps": 0.05,
            "batch_first": True,
            "dtype": torch.float64,
        }
        theirs = nn.TransformerEncoderLayer(
            16, 2, 24, activation=functions[activation], **options
        )
        ours = layer.state_dict()
        state = {}
        for kind in ("weight", "bias"):
            joint = torch.cat(
                [ours[f"{name}.{kind}"] for name in ("query", "key", "value")]
            )
            state[f"self_attn.in_proj_{kind}"] = joint
            for mine, name in PARTS_OF_TORCH.items():
                state[f"{name}.{kind}"] = ours[f"{mine}.{kind}"]
        theirs.load_state_dict(state)
        x = theirs(x, src_key_padding_mask=torch.arange(31) >= lengths[:, None])
    hidden = encoder(ids, lengths, segments)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(
            hidden[row, :length], x[row, :length], atol=1e-9, rtol=0
        )


@pytest.mark.parametrize("weights", ["autocast", "converted"])
@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_bfloat16_stays_near_float32(weights: str, position: str) -> None:
    torch.manual_seed(0)
    config = SMALL.model_copy(
        update={
            "layers": 4,
            "hidden": 64,
            "attention_backend": "blocked",
            "position_encoding": position,
        }
    )
    network = PretrainingNetwork(config).eval()
    ids, lengths = rows(96, 70)
    inputs = (ids, lengths, torch.zeros_like(ids), torch.arange(96 + 70))
    with torch.inference_mode():
        exact = network(*inputs).tokens
        if weights == "converted":
            network = network.bfloat16()
        with torch.autocast("cpu", torch.bfloat16, enabled=weights == "autocast"):
            narrow = network(*inputs).tokens.float()
    assert narrow.isfinite().all() and not torch.equal(narrow, exact)
    assert (narrow - exact).norm() < 2e-2 * exact.norm()


@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_too_many_tokens_are_refused(position: str) -> None:
    with fails(ValueError):
        Encoder(SMALL.model_copy(update={"position_encoding": position}))(
            torch.zeros(1, 97, dtype=torch.long)
        )


def test_pretraining_head_runs_on_masked_positions_only() -> None:
    network = PretrainingNetwork(SMALL).eval()
    ids, lengths = rows(20, 12)
    segments = torch.zeros_like(ids)
    every = torch.arange(40)
    some = torch.tensor([3, 25])
    with torch.inference_mode():
        whole = network(ids, lengths, segments, every)
        part = network(ids, lengths, segments, some)
    assert part.tokens.shape == (2, 40) and part.next_sentence.shape == (2, 2)
    torch.testing.assert_close(part.tokens, whole.tokens[some])


def etc(**changes: object) -> Encoder:
    """With ETC's extra global tokens or relative positions, and one layer of a window otherwise."""
    torch.manual_seed(0)
    sizes = {"max_length": 200, "global_blocks": 0, "random_blocks": 0}
    return Encoder(small_encoder(20, **sizes | changes)).double().eval()


@pytest.mark.parametrize(
    ("changes", "everywhere"),
    [
        *(({"layers": 2}, False), ({"layers": 2, "relative_max_distance": 2}, False)),
        *(
            (
                {"layers": 2, "num_global_tokens": 4, "relative_max_distance": radius},
                True,
            )
            for radius in (0, 2)
        ),
        ({"attention": "full"}, True),
    ],
)
def test_how_far_a_change_gets(changes: dict[str, object], everywhere: bool) -> None:
    """By a window a block a layer; by a global token everywhere in two, by full attention in one."""
    ids = torch.randint(0, 20, (1, 150))
    other = ids.clone()
    other[0, 3] = (other[0, 3] + 1) % 20
    encoder = etc(**changes)
    with torch.no_grad():
        reached = (encoder(ids) != encoder(other)).any(dim=2)[0]
    assert reached.all() if everywhere else not reached[40:].any()


def test_everything_that_is_learnt_gets_a_gradient() -> None:
    encoder = etc(layers=2, num_global_tokens=4, relative_max_distance=2)
    out = encoder(torch.randint(0, 20, (2, 100)), torch.tensor([100, 77]))
    (out * torch.randn_like(out)).sum().backward()
    assert all(x.grad is not None for x in encoder.parameters())
    relative = encoder.layers[0].relative.grad
    assert (relative.abs().sum(dim=2) > 0).all(), "each label occurs"


def test_a_sequence_is_divided_evenly_among_its_globals() -> None:
    owners = token_owners(torch.tensor([8, 5]), 2, 8, 2)
    assert owners.tolist() == [
        [-1, -1, 0, 0, 0, 0, 1, 1, 1, 1],
        [-1, -1, 0, 0, 0, 1, 1, -1, -1, -1],
    ]


@pytest.mark.parametrize(
    "pattern", [Pattern(8), Pattern(8, causal=True)], ids=["plain", "causal"]
)
def test_long_sequences_on_other_devices_use_blocked(pattern: Pattern) -> None:
    q = torch.empty(1, 2, 4096, 16, device="meta")
    assert choose_route(Call(q, q, q, pattern, (4096,))).route == "blocked"
