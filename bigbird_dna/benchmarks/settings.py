"""What a benchmark is asked to measure, checked when made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, get_args

from bigbird_dna.attention.routes import Route
from bigbird_dna.errors import UsageError

T = TypeVar("T")

FORWARD, TRAINING, INFERENCE = "forward", "training", "inference"
ATTENTION_PASSES = (FORWARD, TRAINING)
# After the dash: what is in bfloat16, the weights and everything else, or what autocast chooses.
ENCODER_PASSES = (
    INFERENCE,
    "inference-bfloat16",
    "inference-autocast",
    TRAINING,
    "training-autocast",
    "training-bfloat16",
)
ENCODER_CONTENDERS = ("bigbird", "full", "huggingface")
DTYPES = ("float32", "bfloat16")


class Case(NamedTuple):
    """One thing to measure."""

    contender: str
    length: int  # tokens of each sequence
    work: str  # a pass

    @property
    def trains(self) -> bool:
        """Whether gradients are computed."""
        return self.work.startswith(TRAINING)


@dataclass(frozen=True)
class CommonSettings:
    """What both benchmarks are told; `contenders[0]` is what ratios refer to unless `reference` says else.

    `max_seconds` is the longest that one call may take, by prediction from what was measured before.
    `threads` 0 leaves torch its choice. Without `memory` no processes are started to measure its peak.
    """

    lengths: tuple[int, ...] = (4096,)
    batch: int = 1
    heads: int = 12
    device: str = "cpu"
    threads: int = 0
    repeats: int = 7
    passes: tuple[str, ...] = (FORWARD,)
    contenders: tuple[str, ...] = ()
    reference: str = ""
    max_seconds: float = 30.0
    memory: bool = True
    block_size: int = 64
    global_blocks: int = 2
    window_blocks: int = 3
    random_blocks: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        for length in self.lengths:
            if length < 1:
                raise UsageError(f"--lengths: {length} tokens are too few")
        for name in ("batch", "heads", "repeats"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name} must be at least 1, got {getattr(self, name)}")
        if not self.max_seconds > 0:
            raise UsageError(f"--max-seconds must be above 0, got {self.max_seconds}")
        for name in ("lengths", "passes", "contenders"):
            values = getattr(self, name)
            if not values:
                raise UsageError(f"--{name}: at least one is needed")
            if len(set(values)) < len(values):
                twice = next(value for value in values if values.count(value) > 1)
                raise UsageError(f"--{name}: {twice} is given twice")
        if self.reference and self.reference not in self.contenders:
            raise UsageError(f"--reference {self.reference}: is none of --contenders")


@dataclass(frozen=True)
class AttentionSettings(CommonSettings):
    """Attention alone, on random queries, keys and values (batch, heads, length, width)."""

    width: int = 64
    dtype: str = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width < 1:
            raise UsageError(f"--width must be at least 1, got {self.width}")
        _known("--dtype", (self.dtype,), DTYPES)
        _known("--passes", self.passes, ATTENTION_PASSES)


@dataclass(frozen=True)
class EncoderSettings(CommonSettings):
    """The encoder with its masked-token head; the share of positions that are masked in training."""

    passes: tuple[str, ...] = (INFERENCE,)
    layers: int = 12
    hidden: int = 768
    vocabulary: int = 32_000
    masked: float = 0.15
    route: Route = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("layers", 1), ("hidden", 1), ("vocabulary", 16)):
            if getattr(self, name) < least:
                raise UsageError(f"--{name} must be at least {least}, got {getattr(self, name)}")
        if self.hidden % self.heads:
            raise UsageError(f"--hidden {self.hidden} is no multiple of --heads {self.heads}")
        _known("--passes", self.passes, ENCODER_PASSES)
        _known("--contenders", self.contenders, ENCODER_CONTENDERS)
        _known("--route", (self.route,), get_args(Route))


def listed(option: str, text: str) -> tuple[str, ...]:
    """The parts of a comma-separated option."""
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise UsageError(f"{option} {text!r}: expected values with commas between them")
    return parts


def listed_numbers(option: str, text: str) -> tuple[int, ...]:
    """The whole numbers of a comma-separated option, ascending."""
    try:
        return tuple(sorted(int(part) for part in listed(option, text)))
    except ValueError:
        raise UsageError(
            f"{option} {text!r}: expected whole numbers with commas between them"
        ) from None


def from_json(kind: Callable[..., T], values: Mapping[str, Any]) -> T:
    """Settings from what `dataclasses.asdict` and JSON made of them."""
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def _known(option: str, values: Sequence[str], known: Sequence[str]) -> None:
    for value in values:
        if value not in known:
            raise UsageError(f"{option}: {value!r} is none of {', '.join(known)}")
