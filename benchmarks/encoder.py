"""`bigbird-dna benchmark encoder`: whole encoders with a masked-token head, inference and training steps.

Contenders are our encoder with sparse and with full attention, and HuggingFace's BigBird, all with the same
weights. Shapes: B batch, L tokens, M predicted positions, V vocabulary.
"""

import importlib
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.contenders import (
    Benchmark,
    Call,
    Case,
    Contender,
    Outputs,
    relative_difference,
)
from benchmarks.counts import BACKWARD, encoder_bytes
from benchmarks.options import BLOCKS, EncoderOptions
from bigbird_dna.attention import Route
from bigbird_dna.config import EncoderConfig, OptimizerConfig
from bigbird_dna.huggingface.configuration import huggingface_config
from bigbird_dna.huggingface.names import ARCHITECTURES, TIED, huggingface_name
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.training.loop import make_optimizer

FIRST_ORDINARY = 5  # ids below are special
IGNORED = -100  # the label of a position that isn't masked, as HuggingFace has it

Inputs = tuple[nn.Module, Tensor, Tensor]


class EncoderBenchmark(Benchmark):
    """An encoder's logits at every position, or a step that trains it."""

    options: EncoderOptions
    known: ClassVar = {
        "bigbird": Contender("pattern", 1, routed=True),
        "full": Contender("full", 2),
        "huggingface": Contender("huggingface", 2, 2),
    }
    # After the dash: what is in bfloat16, the weights and everything else, or what autocast chooses.
    passes = (
        *("inference", "inference-bfloat16", "inference-autocast"),
        *("training", "training-autocast", "training-bfloat16"),
    )

    def dtype(self, case: Case) -> torch.dtype:
        return torch.bfloat16 if "-" in case.work else torch.float32

    def asked(self, case: Case) -> Route:
        return self.options.route

    def masked(self, case: Case) -> int:
        """Positions of the batch that are to be predicted in training."""
        return max(1, round(self.options.masked * self.options.batch * case.length))

    def inputs(self, case: Case) -> Inputs:
        """The network, token ids (B, L), and labels (B, L) that are `IGNORED` where not masked."""
        of, shape = self.options, (self.options.batch, case.length)
        generator = torch.Generator().manual_seed(of.seed)
        ids = torch.randint(FIRST_ORDINARY, of.vocabulary, shape, generator=generator)
        masked = torch.randperm(ids.numel(), generator=generator)[: self.masked(case)]
        labels = torch.full((ids.numel(),), IGNORED)
        labels[masked] = ids.flatten()[masked]
        dtype = torch.bfloat16 if case.work.endswith("-bfloat16") else torch.float32
        network = make_network(case, of).to(self.device, dtype).train(case.trains)
        return network, ids.to(self.device), labels.view(shape).to(self.device)

    def prepare(self, case: Case, inputs: Inputs) -> Call:
        network, ids, labels = inputs

        def precision() -> AbstractContextManager[Any]:
            if case.work.endswith("-autocast"):
                return torch.autocast(self.device.type, dtype=torch.bfloat16)
            return nullcontext()

        def infer() -> Outputs:
            with torch.no_grad(), precision():
                return (logits(network, ids),)

        if not case.trains:
            return infer
        optimizer = make_optimizer(network, OptimizerConfig())

        def step() -> Outputs:
            optimizer.zero_grad(set_to_none=True)
            with precision():
                error = loss(network, ids, labels)
            error.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            return (error.detach(),)

        return step

    def operations(self, case: Case) -> int:
        of, tokens = self.options, self.options.batch * case.length
        everywhere = case.contender == "huggingface" or not case.trains
        predicted = tokens if everywhere else self.masked(case)
        linear = 2 * tokens * of.layers * 12 * of.hidden**2
        attention = 4 * of.layers * of.width * self.pairs(case)
        head = 2 * predicted * (of.hidden**2 + of.hidden * of.vocabulary)
        return (linear + attention + head) * (1 + BACKWARD * case.trains)

    def bytes(self, case: Case) -> int:
        of = self.options
        weights = (
            12 * of.layers * of.hidden**2 + of.hidden**2 + of.vocabulary * of.hidden
        )
        size, tokens = self.dtype(case).itemsize, of.batch * case.length
        return encoder_bytes(weights, of.layers, of.hidden, tokens, case.trains, size)

    def difference(
        self, case: Case, outputs: Outputs, kept: dict[str, Outputs]
    ) -> float | None:
        """Of the logits in bfloat16 to the same network's in float32."""
        if case.trains or self.dtype(case) == torch.float32:
            return None
        wide = case._replace(work="inference")
        return relative_difference(outputs, self.prepare(wide, self.inputs(wide))())


def make_network(case: Case, options: EncoderOptions) -> nn.Module:
    """The network of a contender. All have the same weights; HuggingFace's pooler isn't used."""
    same = ("vocabulary", "layers", "hidden", "heads", *BLOCKS)
    config = EncoderConfig(
        **{name: getattr(options, name) for name in same},
        max_length=max(case.length, 16),
        attention_backend=options.route,
        random_seed=options.seed,
        attention="full" if case.contender == "full" else "bigbird",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        ours = PretrainingNetwork(config, next_sentence=False)
        if case.contender != "huggingface":
            return ours
        # By name, because it may not be installed and has few types.
        peer: Any = importlib.import_module("transformers")
        peer.utils.logging.set_verbosity_error()
        values = huggingface_config(config, None, "benchmark")
        theirs: nn.Module = peer.BigBirdForMaskedLM(peer.BigBirdConfig(**values))
    architecture, weights = ARCHITECTURES["BigBirdForMaskedLM"], ours.state_dict()
    renamed = {
        str(huggingface_name(name, architecture)): weights[name] for name in weights
    }
    renamed |= {second: renamed[first] for first, second in TIED if first in renamed}
    missing, unknown = theirs.load_state_dict(renamed, strict=False)
    if unknown or any("pooler" not in name for name in missing):
        raise ValueError(f"weights don't fit: {[*unknown, *missing][:3]}")
    return theirs


def logits(network: Any, ids: Tensor) -> Tensor:
    """Token ids (B, L) → logits of every position (B, L, V)."""
    if isinstance(network, PretrainingNetwork):
        hidden = network.encoder(ids)
        return network.masked_tokens(hidden, network.encoder.embeddings.token.weight)  # type: ignore[no-any-return]
    return network(ids).logits  # type: ignore[no-any-return]


def loss(network: Any, ids: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy (nats) of the labels (B, L) that aren't `IGNORED`.

    Ours computes the head on masked positions only, HuggingFace's everywhere, as shipped.
    """
    if not isinstance(network, PretrainingNetwork):
        return network(ids, labels=labels).loss  # type: ignore[no-any-return]
    masked = (labels.flatten() != IGNORED).nonzero().squeeze(1)  # (M,)
    lengths = torch.full((len(ids),), ids.shape[1])
    scores = network(ids, lengths, None, masked).tokens  # (M, V)
    return cross_entropy(scores.float(), labels.flatten().index_select(0, masked))
