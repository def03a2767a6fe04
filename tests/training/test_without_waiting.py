"""No step of a training waits for the GPU, which would have nothing to do meanwhile.

On torch's device "meta" tensors have no values: whatever reads one fails, as does, here, a copy that the host
waits for.
"""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from bigbird_dna.attention import flex, tiles
from bigbird_dna.config import EncoderConfig
from bigbird_dna.finetuning.chromatin import ChromatinObjective
from bigbird_dna.finetuning.promoters import PromoterObjective
from bigbird_dna.model.base_positions import BaseOffsets
from bigbird_dna.model.heads import ChromatinEnsemble, Classifier, PretrainingNetwork
from bigbird_dna.pretraining.task import PretrainingObjective
from bigbird_dna.training import loop
from bigbird_dna.training.batches import Batch
from bigbird_dna.training.distributed import World
from tests.golden.messages import fails

AWAY = World(0, 1, torch.device("meta"))
LENGTHS = (96, 61, 90, 33, 70)
CONFIG = EncoderConfig(
    vocabulary=40, layers=1, hidden=16, heads=2, max_length=96, block_size=4, random_blocks=1, convolution=3
)


@pytest.fixture(autouse=True)
def _autocast_knows_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    enabled, autocast = torch.is_autocast_enabled, torch.autocast

    def is_enabled(*device: str) -> bool:
        return device != ("meta",) and enabled(*device)

    def on(device: str, *given: Any, **more: Any) -> Any:
        return nullcontext() if device == "meta" else autocast(device, *given, **more)

    monkeypatch.setattr(torch, "is_autocast_enabled", is_enabled)
    monkeypatch.setattr(torch, "autocast", on)


class Refusing(TorchDispatchMode):
    """Refuses copies between devices that the host waits for; counts the others, and notes products."""

    def __init__(self) -> None:
        super().__init__()
        self.copies, self.products = 0, []  # type: ignore[var-annotated]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        waits = between = False
        if func is torch.ops.aten._to_copy.default:
            target = kwargs.get("device")
            between = target is not None and torch.device(target).type != args[0].device.type
            waits = not kwargs.get("non_blocking")
        elif func is torch.ops.aten.copy_.default:
            between = args[0].device.type != args[1].device.type
            waits = not (len(args) > 2 and args[2])
        elif func is torch.ops.aten.addmm.default:
            self.products.append(tuple(args[2].shape))
        assert not (between and waits), f"the host waits for a copy of {args}"
        self.copies += between
        return func(*args, **kwargs)


def pretraining() -> tuple[nn.Module, Any, Batch]:
    masked = torch.tensor([3, 100, 200])
    more = {"segments": torch.zeros(5, 96, dtype=torch.long), "masked": masked, "labels": masked % 40}
    return PretrainingNetwork(CONFIG), PretrainingObjective, {**more, "next_sentence": torch.tensor([0] * 5)}


def promoters() -> tuple[nn.Module, Any, Batch]:
    return Classifier(CONFIG, 1, "mean"), PromoterObjective, {"labels": torch.ones(5)}


def aligned_promoters() -> tuple[nn.Module, Any, Batch]:
    rows = torch.randint(0, 101, (5, 100), dtype=torch.int32)
    starts = torch.arange(96, dtype=torch.int32).repeat(5, 1)
    network = Classifier(CONFIG, 1, "mean", offsets=BaseOffsets(25))
    return network, PromoterObjective, {"labels": torch.ones(5), "base_rows": rows, "base_starts": starts}


def chromatin() -> tuple[nn.Module, Any, Batch]:
    spans = torch.tensor([[1, 4], [4, 9], [9, 11]]).repeat(5, 1, 1)
    more = {"spans": spans, "labels": torch.ones(5, 3, 2), "present": torch.ones(5, 3, dtype=torch.bool)}
    return ChromatinEnsemble(CONFIG, 2, "bin", 1, bin_layers=1), ChromatinObjective, more


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (pretraining, {}),
        (promoters, {}),
        (aligned_promoters, {}),
        (chromatin, {}),
        (chromatin, {"position": "rotary", "gradient_checkpointing": True}),
        (promoters, {"num_global_tokens": 4, "relative_max_distance": 3, "heads": 1}),
        (pretraining, {"attention": "full"}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_no_step_waits_for_the_device(
    kind: Any, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "CONFIG", CONFIG.model_copy(update=changes))
    assert_no_wait(*kind())


@pytest.mark.parametrize("by_row", [False, True])
def test_no_step_waits_for_the_device_by_the_route_of_gpus(
    by_row: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the kernel itself: lists of tiles are made, put together and moved."""
    made_tiles: list[tiles.Tiles] = []

    def kernel(q: Tensor, k: Tensor, v: Tensor, made: tiles.Tiles, *_: object) -> Tensor:
        made_tiles.append(made)
        return q + k + v

    monkeypatch.setattr(flex, "unavailable", lambda *_, **__: None)
    monkeypatch.setattr(flex, "serves_by_row", lambda *_, **__: by_row)
    monkeypatch.setattr(flex, "find_recipe", lambda *_: flex.Recipe(4, False))
    monkeypatch.setattr(flex, "compiled_attention", lambda _: kernel)
    assert_no_wait(*promoters())
    rows = [len(made.full.counts) for made in made_tiles]
    # Two steps of two micro-batches; of five rows one is so short that it needs no lists.
    assert rows == ([4] * 4 if by_row else [1] * 16)
    assert all(made.full.ids.device.type == "meta" for made in made_tiles)


def assert_no_wait(network: nn.Module, objective: Any, more: Batch) -> None:
    batch = {"ids": torch.full((5, 96), 7), "lengths": torch.tensor(LENGTHS), **more}
    own = SimpleNamespace(config=SimpleNamespace(positive_weight=3.0))
    losing = SimpleNamespace(loss=lambda *given: objective.loss(own, *given))
    totals = {name: 5.0 for name in ("masked", "pairs", "windows", "labels")}
    network.to(AWAY.device).train()
    optimizer = torch.optim.AdamW(network.parameters())
    with Refusing() as refusing:
        for _ in range(2):  # what is kept from the first step, and what isn't
            loss = loop.backward(network, losing, [batch, batch], totals, AWAY, nullcontext())  # type: ignore[arg-type]
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
    assert loss.device.type == "meta" and refusing.copies
    width = CONFIG.hidden
    # Queries, keys and values come of one product.
    assert (width, 3 * width) in refusing.products
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_what_waits_is_found() -> None:
    x = torch.ones(2, device="meta")
    with Refusing(), fails(AssertionError):
        torch.ones(2).to("meta")
    with pytest.raises(NotImplementedError):
        x.cpu()
    with pytest.raises(RuntimeError):
        x.sum().item()
