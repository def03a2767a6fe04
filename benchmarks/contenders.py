"""What takes part in a benchmark, and what a benchmark asks of it."""

import importlib.util
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from benchmarks.counts import huggingface_pairs, sparse_pairs
from benchmarks.options import AttentionOptions, EncoderOptions, Options
from bigbird_dna.attention import Choice, Route, RouteWarning, choose_route
from bigbird_dna.errors import UsageError

Outputs = tuple[Tensor, ...]
Call = Callable[[], Outputs]

INSTALL_PEERS = "not installed; pip install 'bigbird-dna[hf]'"
PROBE_BLOCKS = 16  # more than HuggingFace needs for its sparse attention


class Case(NamedTuple):
    """One thing to measure."""

    contender: str
    length: int  # tokens of each sequence
    work: str  # a pass

    @property
    def trains(self) -> bool:
        """Whether gradients are computed."""
        return self.work.startswith("training")

    def __str__(self) -> str:
        return f"{self.contender}, {self.work}, {self.length:,} tokens"


class Contender(NamedTuple):
    """How a contender computes."""

    graph: Literal[
        "pattern", "full", "huggingface", "own"
    ]  # the pairs of tokens that it scores
    order: int  # the power of the length with which time grows
    memory_order: int = 1  # and with which memory does
    longest: int | None = None  # tokens; it isn't meant for more
    routed: bool = False  # by one of our attention routes


class LeftOut(Exception):
    """Why there are no figures for a case: a status (unavailable, skipped or failed), and the reason."""


class Benchmark(ABC):
    """Contenders that do the same work side by side. What a method raises is a contender's result as well.

    `UsageError` if a contender or pass that is asked for isn't known.
    """

    known: ClassVar[dict[str, Contender]]
    passes: ClassVar[tuple[str, ...]]

    def __init__(self, options: AttentionOptions | EncoderOptions) -> None:
        for option, known in (
            ("contenders", tuple(self.known)),
            ("passes", self.passes),
        ):
            for value in getattr(options, option):
                if value not in known:
                    raise UsageError(
                        f"--{option}: {value!r} is not one of {', '.join(known)}"
                    )
        self.options = options
        self.device = torch.device(options.device)

    @abstractmethod
    def dtype(self, case: Case) -> torch.dtype:
        """The type of the numbers that matrix products are made of."""

    @abstractmethod
    def asked(self, case: Case) -> Route:
        """Which of our routes a contender that is `routed` is to take."""

    @abstractmethod
    def inputs(self, case: Case) -> Any:
        """What is there before memory is measured; the same numbers for every contender."""

    @abstractmethod
    def prepare(self, case: Case, inputs: Any) -> Call:
        """The call to be timed; what is made here beforehand counts as memory, not as time."""

    @abstractmethod
    def operations(self, case: Case) -> int:
        """Floating-point operations that the result needs; see `counts`."""

    @abstractmethod
    def bytes(self, case: Case) -> int:
        """Bytes that have to be moved between memory and processor at the least; see `counts`."""

    @abstractmethod
    def difference(
        self, case: Case, outputs: Outputs, kept: dict[str, Outputs]
    ) -> float | None:
        """Relative difference to what it should equal; `kept` is shared by the contenders of a case."""

    def stated(self, contender: str, lengths: Sequence[int]) -> float | None:
        """The power of the length that time is said to grow with; none where nothing is said."""
        return None

    def probe(self, case: Case) -> Case:
        """A short case that loads the same code and tells what longer ones will take."""
        return case._replace(
            length=min(case.length, PROBE_BLOCKS * self.options.block_size)
        )

    def unavailable(self, case: Case) -> str | None:
        """Why a contender doesn't take part; none if it does."""
        contender = self.known[case.contender]
        if contender.longest is not None and case.length > contender.longest:
            return f"quadratic in memory: not above {contender.longest:,} tokens"
        if contender.graph == "huggingface":
            return _huggingface_unavailable(self.options, case.length)
        asked, choice = self.asked(case), self._choice(case)
        if choice is None or asked in ("auto", choice.route):
            return None
        return choice.reason.removeprefix(f"{asked}: ")

    def route(self, case: Case) -> str | None:
        """Which of our routes computes a case; none if none of them does."""
        choice = self._choice(case)
        return None if choice is None else choice.route

    def pairs(self, case: Case) -> int:
        """Pairs of query and key, over batch and heads, that a layer's result needs."""
        of, graph = self.options, self.known[case.contender].graph
        if graph == "pattern":
            return of.batch * sparse_pairs(of.pattern, case.length, of.heads)
        if graph == "full":
            return of.batch * of.heads * case.length**2
        if graph == "own":
            return 0  # not counted
        return of.batch * huggingface_pairs(
            case.length, of.heads, of.block_size, of.random_blocks
        )

    def _choice(self, case: Case) -> Choice | None:
        if not self.known[case.contender].routed:
            return None
        of, dtype, asked = self.options, self.dtype(case), self.asked(case)
        q = torch.empty(
            of.batch, of.heads, case.length, of.width, dtype=dtype, device=of.device
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RouteWarning)
            return choose_route(
                q, of.pattern, case.length, gradients=case.trains, route=asked
            )


def relative_difference(outputs: Outputs, expected: Outputs) -> float:
    """Largest difference over the largest magnitude, the worst of all tensors."""
    worst = 0.0
    for ours, theirs in zip(outputs, expected, strict=True):
        largest = theirs.abs().max().item()
        worst = max(
            worst, (ours.float() - theirs.float()).abs().max().item() / (largest or 1.0)
        )
    return worst


def _huggingface_unavailable(options: Options, length: int) -> str | None:
    """Why HuggingFace's BigBird can't do so many tokens with block-sparse attention; none if it can."""
    if importlib.util.find_spec("transformers") is None:
        return INSTALL_PEERS
    if (options.global_blocks, options.window_blocks) != (
        2,
        3,
    ) or not options.random_blocks:
        return "has 2 global, 3 window and at least 1 random block only"
    if length % options.block_size:
        return f"needs a multiple of {options.block_size} tokens"
    least = (5 + 2 * options.random_blocks) * options.block_size
    return f"takes full attention up to {least:,} tokens" if length <= least else None
