"""The time that the training log tells, and how long a training will take, which is said before it begins."""

import ctypes
import json
import resource
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from bigbird_dna.attention import flex, native
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.training import TrainingConfig
from bigbird_dna.errors import ConfigError
from bigbird_dna.finetuning.chromatin import ChromatinTask
from bigbird_dna.finetuning.task import ClassifierTask
from bigbird_dna.gpus import freed_memory_kept
from bigbird_dna.model import inference as compiled
from bigbird_dna.model.bases import attach_tokenizer
from bigbird_dna.model.directory import build_network
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import (
    Classifier,
    PretrainingNetwork,
)
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack
from bigbird_dna.pretraining.task import PretrainingTask
from bigbird_dna.training import log, loop
from bigbird_dna.training.distributed import World
from bigbird_dna.training.log import (
    Progress,
    TrainingLog,
)
from bigbird_dna.training.loop import Batch, train_network
from bigbird_dna.training.losses import LabelLoss
from tests.golden.messages import fails
from tests.model.test_encoder import SMALL as ENCODER
from tests.toys import small_encoder, small_tokenizer
from tests.training.curve import ALONE, Curve


@pytest.fixture
def clock(monkeypatch):
    found = SimpleNamespace(now=100.0, monotonic=lambda: found.now)
    monkeypatch.setattr(log, "time", found)
    return found


def seconds(path):
    return [json.loads(line).get("seconds") for line in path.read_text().splitlines()]


def train(writer, clock, step, took):
    clock.now += took
    writer.training(Progress(step=step), loss=1.0, learning_rate=0.1)


def test_seconds_are_those_of_training_and_go_on_after_a_break(tmp_path, clock):
    path = tmp_path / "training.jsonl"
    writer = TrainingLog(path, Progress(), 100)
    train(writer, clock, 10, 5.0)
    clock.now += 70.0  # held-out figures of step 10
    writer.evaluation(Progress(step=10), {"bits_per_base": 1.9}, 70.0)
    train(writer, clock, 20, 5.0)
    clock.now += 72.5  # five more steps, and held-out figures
    writer.evaluation(Progress(step=25), {"bits_per_base": 1.9}, 70.0)
    assert seconds(path) == [5.0, 5.0, 10.0, 12.5]
    clock.now += 1000.0
    writer = TrainingLog(path, Progress(step=20), 100)
    train(writer, clock, 30, 6.0)
    assert seconds(path) == [5.0, 5.0, 10.0, 16.0]


def test_an_incomplete_line_of_the_log_is_omitted(tmp_path: Path) -> None:
    path = tmp_path / "training.jsonl"
    good = [f'{{"step": {step}, "seconds": 1.0}}\n' for step in (1, 2, 3)]
    path.write_text("".join([*good, '{"step": 2, "los']))
    TrainingLog(path, Progress(step=2), 10)
    assert path.read_text() == "".join(good[:2])


# Kernels of a training: said once, refused where slow, compiled if asked for; and memory that is kept


# torch's own, while it traces.
REMARKS = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:torch", "ignore::UserWarning:torch"
)


class Rows(Curve):
    """Hidden states are to become as the same tokens' places; rows are of all lengths."""

    def batch(self, step: int, first: int, count: int) -> Batch:
        generator = torch.Generator().manual_seed(1000 * step + first)
        lengths = torch.randint(20, 97, (count,), generator=generator)
        ids = torch.randint(5, 40, (count, int(lengths.max())), generator=generator)
        return {"ids": ids, "lengths": lengths}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        hidden = network(batch["ids"], batch["lengths"])
        there = torch.arange(hidden.shape[1]) < batch["lengths"][:, None]
        wanted = torch.linspace(-1, 1, hidden.shape[1])[None, :, None]
        return ((hidden - wanted).square().mean(2) * there).sum() / totals["rows"]


def trained(home: Path, encoder: EncoderConfig = ENCODER, **more: Any) -> Encoder:
    config = TrainingConfig(
        **({"steps": 4, "batch_size": 6, "precision": "float32"} | more)
    )
    torch.manual_seed(0)
    network = Encoder(encoder)
    task = Rows()
    task.config = config
    train_network(network, task, home, ALONE)
    return network


@pytest.fixture
def without_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "unavailable", lambda *_, **__: "no compiler")


@pytest.mark.usefixtures("without_kernel")
def test_a_training_logs_its_routes_once_and_takes_slower_ones_on_a_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged = []
    for route in ("blocked", "auto"):
        trained(
            tmp_path / route, ENCODER.model_copy(update={"attention_backend": route})
        )
        lines = capsys.readouterr().err.splitlines()
        logged += [
            line.split("attention: ")[1] for line in lines if "attention" in line
        ]
    assert logged == ["blocked (requested)", "blocked (native: no compiler)"]


@pytest.mark.usefixtures("without_kernel")
def test_the_backends_of_a_training_are_recorded_also_those_before_an_interruption(
    tmp_path: Path,
) -> None:
    def backends(steps: int, route: str) -> str:
        network = Encoder(ENCODER.model_copy(update={"attention_backend": route}))
        task = Rows()
        task.config = TrainingConfig(steps=steps, batch_size=6)
        return train_network(network, task, tmp_path, ALONE).backends

    assert backends(2, "dense") == "dense"
    assert backends(4, "auto") == "blocked dense"


@REMARKS
@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"position": "rotary", "gradient_checkpointing": True, "dropout": 0.2},
    ],
    ids=str,
)
def test_compiled_layers_train_as_others_do_and_are_compiled_a_few_times(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    torch_compile = compiled.compiled_layers
    monkeypatch.setattr(
        log, "compiled_layers", lambda network: torch_compile(network, counter)
    )
    encoder = ENCODER.model_copy(update={"layers": 3, **changes})
    networks = [
        trained(tmp_path / str(on), encoder, torch_compile=on, steps=6)
        for on in (False, True)
    ]
    # Before and after attention; once for whatever lengths, and perhaps once more for the first ones.
    assert 2 <= counter.frame_count <= 4
    plain, own = (network.state_dict() for network in networks)
    assert [*plain] == [*own] and all(
        layer.compiled is None for layer in networks[1].layers
    )
    if not encoder.dropout:
        for name, value in plain.items():
            # Attention is the same whatever is added to all keys: that gradient is rounding.
            bound = 1e-2 if name.endswith("key.bias") else 1e-4
            assert (own[name] - value).abs().max() < bound, name
    torch.compiler.reset()


@REMARKS
def test_compiled_layers_stay_whole_with_several_processes(tmp_path: Path) -> None:
    """DDP would have graphs divided whose weights are larger than its first bucket, of a mebibyte."""
    torch.compiler.reset()
    counter = CompileCounterWithBackend("eager")
    encoder = ENCODER.model_copy(
        update={"hidden": 256, "intermediate": 1024, "dropout": 0.0}
    )
    network, alone = Encoder(encoder).train(), Encoder(encoder).train()
    alone.load_state_dict(network.state_dict())
    ids, lengths = (
        torch.arange(48).view(2, 24) % encoder.vocabulary,
        torch.tensor([24, 24]),
    )
    dist.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    try:
        with compiled.compiled_layers(network, counter):
            DistributedDataParallel(network)(ids, lengths).square().sum().backward()
    finally:
        dist.destroy_process_group()
    alone(ids, lengths).square().sum().backward()
    assert counter.frame_count == 2
    for (name, one), other in zip(
        network.named_parameters(), alone.parameters(), strict=True
    ):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-3, msg=name)
    torch.compiler.reset()


@REMARKS
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's compiler needs g++")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_torch_compiles_by_itself_trains_as_others_do(
    precision: str, tmp_path: Path
) -> None:
    torch.compiler.reset()
    plain, own = (
        trained(tmp_path / str(on), torch_compile=on, precision=precision).state_dict()
        for on in (False, True)
    )
    bound = 1e-4 if precision == "float32" else 3e-2
    for name, value in plain.items():
        if not name.endswith("key.bias"):
            assert (own[name] - value).abs().max() < bound, name
    torch.compiler.reset()


@REMARKS
def test_where_torch_can_t_compile_one_sentence_says_so() -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no\ncompiler here")

    torch.compiler.reset()
    network = Encoder(ENCODER).train()
    with (
        fails(ConfigError),
        compiled.compiled_layers(network, broken),  # type: ignore[arg-type]
    ):
        network(torch.full((2, 30), 7))
    torch.compiler.reset()


NUMBERS = 16 << 20  # of float32: 64 MiB


def faults_of_a_buffer() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(NUMBERS)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library"
)
def test_freed_memory_is_kept_in_the_block() -> None:
    with freed_memory_kept():
        # Where in the heap a buffer comes to lie settles after a few.
        assert min(faults_of_a_buffer() for _ in range(10)) < 8


# No step of a training waits for the GPU, which would have nothing to do meanwhile


AWAY = World(0, 1, torch.device("meta"))
LENGTHS = (96, 61, 90, 33, 70)
CONFIG = small_encoder(max_length=96, block_size=4, random_blocks=1)


@pytest.fixture
def autocast_knows_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
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

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        waits = between = False
        if func is torch.ops.aten._to_copy.default:
            target = kwargs.get("device")
            between = (
                target is not None and torch.device(target).type != args[0].device.type
            )
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
    more = {
        "segments": torch.zeros(5, 96, dtype=torch.long),
        "masked": masked,
        "labels": masked % 40,
    }
    return (
        PretrainingNetwork(CONFIG),
        PretrainingTask,
        {**more, "next_sentence": torch.tensor([0] * 5)},
    )


def promoters() -> tuple[nn.Module, Any, Batch]:
    return (
        Classifier(CONFIG, 1, "mean"),
        ClassifierTask,
        {"labels": torch.ones(5, 1), "firsts": torch.zeros(5, dtype=torch.long)},
    )


def aligned_promoters() -> tuple[nn.Module, Any, Batch]:
    network = Classifier(CONFIG, 1, "mean", position_window=2000)
    attach_tokenizer(network, small_tokenizer())
    firsts = torch.arange(5)
    return network, ClassifierTask, {"labels": torch.ones(5, 1), "firsts": firsts}


def chromatin() -> tuple[nn.Module, Any, Batch]:
    spans = torch.tensor([[1, 4], [4, 9], [9, 11]]).repeat(5, 1, 1)
    more = {
        "spans": spans,
        "labels": torch.ones(5, 3, 2),
        "present": torch.ones(5, 3, dtype=torch.bool),
    }
    settings = ChromatinSettings(
        window=200,
        bin=20,
        pooling="bin",
        bin_layers=1,
        members=1,
        tracks=tuple(NamedTrack(track=name, group="TF") for name in "ab"),
    )
    return (
        build_network(CONFIG, settings),
        ChromatinTask,
        more,
    )


@pytest.mark.usefixtures("autocast_knows_the_device")
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (pretraining, {}),
        (promoters, {}),
        (aligned_promoters, {}),
        (chromatin, {}),
        *(
            pytest.param(kind, changes, marks=pytest.mark.slow)
            for kind, changes in [
                (chromatin, {"position": "rotary", "gradient_checkpointing": True}),
                (
                    promoters,
                    {"num_global_tokens": 4, "relative_max_distance": 3, "heads": 1},
                ),
            ]
        ),
        (pretraining, {"attention": "full"}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_no_step_waits_for_the_device(
    kind: Any, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "CONFIG", CONFIG.model_copy(update=changes))
    assert_no_wait(*kind())


@pytest.mark.usefixtures("autocast_knows_the_device")
def test_no_step_waits_for_the_device_by_the_route_of_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All but the kernel itself: lists of blocks are made, put together and moved."""
    made_lists: list[flex.Lists] = []

    def kernel(
        q: Tensor, k: Tensor, v: Tensor, lists: flex.Lists, *_: object
    ) -> Tensor:
        made_lists.append(lists)
        return q + k + v

    monkeypatch.setattr(flex, "unavailable", lambda *_, **__: None)
    monkeypatch.setattr(flex, "find_kernel", lambda *_: False)
    monkeypatch.setattr(flex, "compiled_attention", lambda *_: kernel)
    assert_no_wait(*promoters())
    rows = [len(lists[0]) for lists in made_lists]
    # Two steps of two micro-batches of five rows.
    assert rows == [5] * 4
    assert all(lists[1].device.type == "meta" for lists in made_lists)


def assert_no_wait(network: nn.Module, objective: Any, more: Batch) -> None:
    batch = {"ids": torch.full((5, 96), 7), "lengths": torch.tensor(LENGTHS), **more}
    kind = "multilabel" if objective is ChromatinTask else "binary"
    own = SimpleNamespace(losses=LabelLoss(kind, positive_weight=3.0))
    losing = SimpleNamespace(loss=lambda *given: objective.loss(own, *given))
    totals = {name: 5.0 for name in ("masked", "pairs", "windows", "labels")}
    network.to(AWAY.device).train()
    optimizer = torch.optim.AdamW(network.parameters())
    with Refusing() as refusing:
        for _ in range(2):  # what is kept from the first step, and what isn't
            loss = loop.backward(
                network, losing, [batch, batch], totals, AWAY, nullcontext()
            )  # type: ignore[arg-type]
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
