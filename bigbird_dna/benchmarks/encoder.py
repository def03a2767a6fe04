"""`bigbird-dna benchmark encoder`: whole encoders with a masked-token head, inference and training steps.

Shapes: B batch, L tokens.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from bigbird_dna.attention import Choice, Pattern
from bigbird_dna.benchmarks import counts
from bigbird_dna.benchmarks.alone import use_threads
from bigbird_dna.benchmarks.attention import PROBE_BLOCKS, relative_difference
from bigbird_dna.benchmarks.contenders import huggingface_unavailable, route_for
from bigbird_dna.benchmarks.measure import Call, Outputs, bfloat16_speed, matrix_product
from bigbird_dna.benchmarks.networks import IGNORED, encoder_config, make_network
from bigbird_dna.benchmarks.settings import ENCODER_PASSES, Case, EncoderSettings, from_json
from bigbird_dna.config import OptimizerConfig
from bigbird_dna.errors import UsageError
from bigbird_dna.training.schedule import make_optimizer

FIRST_ORDINARY = 5  # ids below are special
LONGEST_PRODUCT = 4096  # rows of the matrix product to compare with


class Inputs(NamedTuple):
    """A network with its weights, token ids (B, L), and labels (B, L) that are `IGNORED` where not masked."""

    network: nn.Module
    ids: Tensor
    labels: Tensor


class EncoderBenchmark:
    """Contenders, inputs and counts of whole encoders; see `alone.Benchmark`."""

    name = "encoder"

    def __init__(self, settings: EncoderSettings) -> None:
        try:
            encoder_config("bigbird", settings, max(settings.lengths))
        except ValidationError as error:
            first = error.errors()[0]
            raise UsageError(first["msg"].removeprefix("Value error, ")) from None
        self.settings = settings
        self.device = torch.device(settings.device)

    def unavailable(self, case: Case) -> str | None:
        if case.contender == "huggingface":
            return huggingface_unavailable(self.settings, case)
        if case.contender == "bigbird" and self.settings.route != "auto":
            choice = self._choice(case)
            return choice.reason if choice.route != self.settings.route else None
        return None

    def route(self, case: Case) -> str | None:
        return self._choice(case).route if case.contender == "bigbird" else None

    def order(self, case: Case) -> int:
        return 1 if case.contender == "bigbird" else 2

    def least_bytes(self, case: Case) -> int:
        """Weights (with gradients and moments in a step), logits, HuggingFace's dense probabilities."""
        of = self.settings
        weights = of.layers * 12 * of.hidden**2 + (of.vocabulary + case.length) * of.hidden
        logits = of.batch * case.length * of.vocabulary
        if case.trains and case.contender != "huggingface":
            logits = int(logits * of.masked)
        pairs = of.batch * of.heads * case.length**2 * (case.contender == "huggingface")
        return 4 * (
            weights * (4 if case.trains else 1) + logits * (2 if case.trains else 1) + pairs
        )

    def probe(self, case: Case) -> Case:
        return case._replace(length=min(case.length, PROBE_BLOCKS * self.settings.block_size))

    def inputs(self, case: Case) -> Inputs:
        of = self.settings
        generator = torch.Generator().manual_seed(of.seed)
        shape = (of.batch, case.length)
        ids = torch.randint(FIRST_ORDINARY, of.vocabulary, shape, generator=generator)
        order = torch.randperm(ids.numel(), generator=generator)
        labels = torch.full((ids.numel(),), IGNORED)
        masked = order[: self._predicted(case.length)]
        labels[masked] = ids.flatten()[masked]
        network = make_network(case.contender, of, case.length, self.device)
        if case.work.endswith("-bfloat16"):
            network = network.to(torch.bfloat16)
        return Inputs(
            network.train(case.trains),
            ids.to(self.device),
            labels.view(shape).to(self.device),
        )

    def prepare(self, case: Case, inputs: Inputs) -> Call:
        network: Any = inputs.network

        def precision() -> AbstractContextManager[Any]:
            if case.work.endswith("-autocast"):
                return torch.autocast(self.device.type, dtype=torch.bfloat16)
            return nullcontext()

        def infer() -> Outputs:
            with torch.no_grad(), precision():
                return (network.logits(inputs.ids),)

        if not case.trains:
            return infer
        optimizer = make_optimizer(network, OptimizerConfig())

        def step() -> Outputs:
            optimizer.zero_grad(set_to_none=True)
            with precision():
                loss = network.loss(inputs.ids, inputs.labels)
            loss.backward()
            optimizer.step()
            return (loss.detach(),)

        return step

    def operations(self, case: Case) -> int:
        of = self.settings
        heads = {
            "bigbird": lambda: counts.sparse_pairs(self._pattern(), case.length, of.heads),
            "full": lambda: counts.full_pairs(case.length, of.heads),
            "huggingface": lambda: counts.huggingface_pairs(
                case.length, of.heads, of.block_size, of.random_blocks
            ),
        }
        everywhere = case.contender == "huggingface" or not case.trains
        return counts.encoder_operations(
            tokens=of.batch * case.length,
            predicted=of.batch * case.length if everywhere else self._predicted(case.length),
            layers=of.layers,
            hidden=of.hidden,
            intermediate=4 * of.hidden,
            vocabulary=of.vocabulary,
            pairs=of.batch * heads[case.contender]() * of.hidden // of.heads,
            trains=case.trains,
        )

    def product(self, case: Case) -> tuple[Call, int, dict[str, Any]]:
        """That of the first feed-forward layer, in the type that the pass's products have."""
        of = self.settings
        dtype = torch.bfloat16 if "-" in case.work else torch.float32
        shape = (min(of.batch * case.length, LONGEST_PRODUCT), of.hidden, 4 * of.hidden)
        call = matrix_product(*shape, dtype, self.device)
        name = str(dtype).removeprefix("torch.")
        return call, 2 * shape[0] * shape[1] * shape[2], {"shape": list(shape), "dtype": name}

    def difference(self, case: Case, outputs: Outputs, kept: dict[str, Outputs]) -> float | None:
        """Of the logits in bfloat16 to the same network's in float32."""
        if case.trains or "-" not in case.work:
            return None
        wide = case._replace(work=case.work.partition("-")[0])
        return relative_difference(outputs, self.prepare(wide, self.inputs(wide))())

    def _choice(self, case: Case) -> Choice:
        of = self.settings
        narrow = "-" in case.work and not (case.trains and self.device.type == "cpu")
        shape = (of.batch, case.length, of.heads, of.hidden // of.heads)
        dtype = torch.bfloat16 if narrow else torch.float32
        q = torch.empty(shape, dtype=dtype, device=self.device).transpose(1, 2)
        return route_for(q, self._pattern(), of.route, case)

    def _pattern(self) -> Pattern:
        of = self.settings
        return Pattern(of.block_size, of.global_blocks, of.window_blocks, of.random_blocks, of.seed)

    def _predicted(self, length: int) -> int:
        """Masked positions of the whole batch."""
        return max(1, round(self.settings.masked * self.settings.batch * length))


def from_settings(values: dict[str, Any]) -> EncoderBenchmark:
    """The benchmark with settings as JSON holds them."""
    return EncoderBenchmark(from_json(EncoderSettings, values))


def bfloat16_rate(settings: EncoderSettings) -> float:
    """How many times float32's speed matrix products in bfloat16 have on the settings' device and threads."""
    before = torch.get_num_threads()
    use_threads(settings)
    try:
        return bfloat16_speed(torch.device(settings.device))
    finally:
        torch.set_num_threads(before)


def default_passes(rate: float) -> tuple[str, ...]:
    """The passes worth measuring: some CPUs emulate bfloat16 at a fraction of float32's speed."""
    narrow = ("inference-bfloat16", "training-autocast") if rate >= 1 else ()
    return tuple(work for work in ENCODER_PASSES if work in ("inference", "training", *narrow))
