"""On a real GPU, of NVIDIA or Apple: attention against the reference implementation, models, training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import bigbird_dna
from bigbird_dna.attention import Route, bigbird_attention
from bigbird_dna.attention.backends import choose_route
from bigbird_dna.attention.call import Call
from bigbird_dna.attention.flex import TOLERANCE, TOLERANCE_TF32
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.genome.sequence import DYADS
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.ensemble import DyadMember, KmerMember
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.model.settings import Settings
from bigbird_dna.training import loop
from bigbird_dna.training.distributed import world
from bigbird_dna.training.log import repeatable
from tests.attention.reference_implementations import (
    inputs,
    small,
    value_and_gradients,
    vectors,
)
from tests.cli.command import Run
from tests.conftest import REPOSITORY
from tests.model.test_token_kmers import CHROMATIN, ENCODER, PROMOTER, TOKENIZER
from tests.toys import random_dna, random_model
from tests.training.kinds import KINDS, logged, make_chromatin, train

CUDA = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here"),
)
GENOMICS = Pattern()
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MECHANISMS = (
    "axial",
    "combiner_fixed",
    "combiner_routing",
    "longformer",
    "performer",
    "reformer",
    "routing",
)
EXAMPLE = REPOSITORY / "resources/examples/yeast_VII_20kb.fa.gz"


@pytest.fixture(params=[pytest.param("cuda", marks=CUDA)])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def chromatin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_chromatin(tmp_path_factory.mktemp("chromatin") / "made")


def computed(
    route: Route, pattern: Pattern, lengths: tuple[int, ...], made: list[Tensor]
) -> list[Tensor]:
    """The output, and the gradients of q, k and v."""
    q, k, v, upper = (x.detach() for x in made)
    leaves = (q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), upper)
    return value_and_gradients(
        lambda q, k, v: bigbird_attention(
            q, k, v, pattern, lengths=lengths, route=route
        ),
        leaves,
    )


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=CUDA)], indirect=True)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("pattern", "heads", "width", "lengths"),
    [
        (GENOMICS, 12, 64, (2048, 2048)),
        (GENOMICS, 12, 64, (4000,)),
        (GENOMICS, 4, 32, (2000, 1300, 777)),
        (Pattern(32), 4, 32, (1024, 1000, 611)),
        (Pattern(16, 2, 3, 2), 2, 16, (700, 650)),
        (replace(GENOMICS, causal=True), 4, 64, (1500, 1400)),
        (Pattern(64, 2, 3, 0, num_global_tokens=256), 4, 64, (1800, 1700)),
    ],
    ids=[
        "genomics",
        "one row",
        "lengths",
        "blocks of 32",
        "blocks of 16",
        "causal",
        "etc",
    ],
)
def test_flex_has_the_values_and_gradients_of_dense_attention(
    pattern: Pattern,
    heads: int,
    width: int,
    lengths: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
) -> None:
    made = [
        x.detach().to(device)
        for x in inputs(len(lengths), heads, max(lengths), width, dtype=dtype)
    ]
    choice = choose_route(Call(*made[:3], pattern, lengths))
    assert choice.route == "flex", choice
    got = computed("flex", pattern, lengths, made)
    want = computed("dense", pattern, lengths, [x.float() for x in made])
    bound = max(TOLERANCE[dtype], TOLERANCE_TF32)
    for mine, expected in zip(got, want, strict=True):
        assert mine.dtype == dtype
        assert (mine.float() - expected).abs().max() <= bound * expected.abs().max()
        for row, length in enumerate(lengths):
            assert not mine[row, :, length:].any()


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=CUDA)], indirect=True)
@pytest.mark.parametrize("route", ["flex", "blocked"])
def test_attention_is_the_same_bytes_every_time(route: Route, device: str) -> None:
    made = [x.detach().to(device) for x in inputs(3, 4, 2048, 64, dtype=torch.bfloat16)]
    with repeatable(torch.nn.Module(), made[0].device):
        first, second = (
            computed(route, GENOMICS, (2048, 1900, 1000), made) for _ in range(2)
        )
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def test_a_row_does_not_depend_on_the_others_of_its_batch(device: str) -> None:
    q, k, v = (x.to(device) for x in vectors(3, 4, 2048, 64, dtype=torch.float32))
    lengths = (2048, 1900, 1000)
    with torch.inference_mode():
        together = bigbird_attention(q, k, v, GENOMICS, lengths=lengths)
        for row, length in enumerate(lengths):
            of = slice(row, row + 1)
            alone = bigbird_attention(q[of], k[of], v[of], GENOMICS, lengths=(length,))
            torch.testing.assert_close(together[of], alone, rtol=0, atol=TOLERANCE_TF32)


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms_have_the_values_of_the_cpu(name: str, device: str) -> None:
    module = small(name).float()
    q, k, v = vectors(2, 2, 60, 4, dtype=torch.float32)
    hidden = torch.randn(2, 60, 8, generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([60, 41])
    want = module(q, k, v, lengths=lengths, dropout=0.0, hidden=hidden)
    sent = [x.to(device) for x in (q, k, v, hidden)]
    got = module.to(device)(*sent[:3], lengths=lengths, dropout=0.0, hidden=sent[3])
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(
            got[row, :, :length].cpu(), want[row, :, :length], rtol=1e-3, atol=1e-4
        )


def test_bundled_models_have_the_values_of_the_cpu(device: str) -> None:
    windows = [random_dna(400, seed) for seed in range(64)]
    promoters = bigbird_dna.load("yeast-promoters-window")
    on_cpu, on_gpu = (promoters.predict(windows, device=on) for on in ("cpu", device))
    assert np.abs(on_cpu - on_gpu).max() < 1e-4
    assert np.array_equal(on_gpu, promoters.predict(windows, device=device))
    model = bigbird_dna.load("yeast")
    texts = [random_dna(length, length) for length in (400, 1500, 3000)]
    for options in ({}, {"pool": "max", "layer": "all"}):
        on_cpu, on_gpu = (
            model.embed(texts, device=on, **options) for on in ("cpu", device)
        )
        assert np.abs(on_cpu - on_gpu).max() < TOLERANCE_TF32 * np.abs(on_cpu).max()


@pytest.mark.parametrize("settings", [CHROMATIN, PROMOTER], ids=lambda one: one.task)
def test_kmers_and_ensembles_have_the_values_of_the_cpu(
    settings: Settings, device: str
) -> None:
    model = random_model(TOKENIZER, ENCODER, settings, scale=2.0)
    assert isinstance(model, LoadedPromoterModel | LoadedChromatinModel)
    for part in model.network.modules():
        if isinstance(part, KmerMember):
            part.set_weights(30 * torch.randn(part.weight[:, 1:, :-1].shape).numpy())
        if isinstance(part, DyadMember):
            numbers = torch.randint(DYADS, part.weight.shape).numpy()
            part.set_weights(numbers, torch.randn(part.weight.shape).numpy())
    windows = [random_dna(settings.window, seed) for seed in range(64)]
    on_cpu, on_gpu = (model.predict(windows, device=on) for on in ("cpu", device))
    assert np.abs(on_cpu - on_gpu).max() < 1e-4 and np.ptp(on_cpu) > 0.1
    assert np.array_equal(on_gpu, model.predict(windows, device=device))


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_scores_of_a_command(
    precision: str, run: Run, tmp_path: Path, device: str
) -> None:
    tables = {}
    for on in ("cpu", device):
        path = tmp_path / f"{on}.tsv"
        words = [
            "score-promoters",
            "yeast-promoters-window",
            EXAMPLE,
            "--device",
            on,
            "-o",
            path,
        ]
        assert (
            run(*words, *(["--precision", precision] if on != "cpu" else [])).code == 0
        )
        rows = [
            line.split("\t")
            for line in path.read_text().splitlines()
            if not line.startswith("##")
        ]
        tables[on] = np.array([float(row[4]) for row in rows[1:]])
    difference = np.abs(tables["cpu"] - tables[device])
    assert len(difference) > 100 and difference.max() < (
        1e-4 if precision == "float32" else 0.05
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_training_has_the_losses_of_the_cpu_and_goes_on_where_it_stopped(
    kind: str,
    compiled: bool,
    tiny_config: Path,
    chromatin: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
) -> None:
    monkeypatch.setattr(loop, "LOG_STEPS", 1)
    more = {
        "torch_compile": compiled,
    }  # heads are too narrow for the kernel

    def trained(name: str, on: str, stop: int = 0) -> Path:
        home, backward, left = tmp_path / name, loop.backward, stop

        def interrupted(*given: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            return backward(*given)  # type: ignore[arg-type]

        with monkeypatch.context() as patch, world(on) as here:  # type: ignore[arg-type]
            patch.setattr(loop, "backward", interrupted)
            try:
                train(
                    kind,
                    tiny_config,
                    chromatin,
                    home,
                    home / "checkpoints",
                    here,
                    **more,
                )
            except KeyboardInterrupt:
                assert stop
        return home / kind

    losses, _ = logged(trained("cpu", "cpu"))
    whole = trained("whole", device)
    assert logged(whole)[0] == pytest.approx(losses, abs=2e-3)
    trained("parts", device, stop=15)
    parts = trained("parts", device)
    weights = load_file(whole / "model.safetensors")
    for name, value in load_file(parts / "model.safetensors").items():
        bound = 0 if device == "cuda" else 1e-4  # Apple's sums have no fixed order
        torch.testing.assert_close(value, weights[name], rtol=0, atol=bound, msg=name)
