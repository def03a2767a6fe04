"""What a model directory says of its task: typed, frozen, and checked when it is read.

`config.json` holds the keys that were given, no more: `as_json` is what was read, so that models travel to
HuggingFace's form and back without a change.
"""

from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bigbird_dna.config import EncoderConfig
from bigbird_dna.config.section import LONGEST_WINDOW, MOST_VIEWS
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.model.base_positions import BaseOffsets

Task = Literal[
    "pretraining",
    "promoter",
    "chromatin",
    "classification",
    "question-answering",
    "encoder",
    "long-answers",
    "summaries",
]
Pooling = Literal["cls", "mean"]
Head = Literal["dense", "linear"]  # linear: no layer between the pooled vector and the output
BinPooling = Literal["cls", "bin"]


class Settings(BaseModel):
    """Of any task; by itself the settings of a bare encoder.

    `huggingface` is what an imported model remembers of its checkpoint, see `huggingface.exchange`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: ClassVar[Task] = "encoder"
    huggingface: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The keys that were given, as `config.json` has them."""
        return self.model_dump(mode="json", exclude_unset=True)


class OtherSettings(Settings):
    """Of a task whose network a package further up builds; `register_settings` makes it known."""

    def build(self, config: EncoderConfig) -> Any:
        """The network (`torch.nn.Module`) with fresh weights, drawn from torch's generator."""
        raise NotImplementedError

    def layers(self, config: EncoderConfig) -> int:
        """How many layers it has, in all its parts."""
        return config.layers


class QuestionAnsweringSettings(Settings):
    """Of a model that marks answers."""

    task: ClassVar[Task] = "question-answering"


class PretrainingSettings(Settings):
    """Of a pretrained encoder with its heads."""

    task: ClassVar[Task] = "pretraining"
    next_sentence: bool = True  # whether there is such a head
    context: int | None = Field(default=None, ge=2)  # of a causal model: tokens of the inputs it learned from


class ClassificationSettings(Settings):
    """Of a classifier of text, or an imported one."""

    task: ClassVar[Task] = "classification"
    outputs: int = Field(ge=1)
    labels: tuple[str, ...] = ()
    pooling: Pooling
    head: Head = "dense"


class PromoterSettings(Settings):
    """Of a promoter model: its window and how it is read."""

    task: ClassVar[Task] = "promoter"
    upstream: int = Field(ge=0, le=LONGEST_WINDOW)  # bp before the TSS
    downstream: int = Field(ge=1, le=LONGEST_WINDOW)  # bp from the TSS on, TSS included
    pooling: Pooling
    head: Head = "dense"
    jitter: int = Field(ge=0, le=LONGEST_WINDOW)  # bp that views, and training windows, are cut by
    views: int = Field(ge=1, le=MOST_VIEWS)  # tokenizations of a window that are averaged
    negative_set: str | None = None  # what it was trained against
    shuffled_labels: bool = False  # the control
    base_positions: bool = False  # whether tokens know their bases' offsets from the TSS
    ensemble: bool = False  # whether the position baseline's log-odds are added to the network's

    @property
    def offsets(self) -> BaseOffsets | None:
        """Which offset from the TSS each base of a window has; none: the model does not read it."""
        return BaseOffsets(self.window) if self.base_positions or self.ensemble else None

    @property
    def window(self) -> int:
        """bp of a window."""
        return self.upstream + self.downstream

    @property
    def anchor(self) -> float:
        """Where the TSS lies in a window, as a fraction of its length."""
        return self.upstream / self.window


class NamedTrack(BaseModel):
    """A track as a model knows it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    track: str
    group: str


class ChromatinSettings(Settings):
    """Of a chromatin model: its window, the bin in the window's middle, and its tracks."""

    task: ClassVar[Task] = "chromatin"
    window: int = Field(ge=1, le=LONGEST_WINDOW)  # bp
    bin: int = Field(ge=1, le=LONGEST_WINDOW)  # bp
    pooling: BinPooling
    bin_layers: int = Field(ge=0)
    head: Head = "dense"
    members: int = Field(ge=1)  # models of the ensemble
    tracks: tuple[NamedTrack, ...]

    @model_validator(mode="after")
    def _bin_layers_have_a_dense_layer_before(self) -> Self:
        if self.head == "linear" and self.bin_layers:
            raise ValueError("head linear has no bin layers")
        return self

    @property
    def track_list(self) -> list[Track]:
        """The tracks in the order of the model's outputs."""
        return [Track(track.track, track.group) for track in self.tracks]


SETTINGS: dict[str, type[Settings]] = {
    kind.task: kind
    for kind in (
        Settings,
        QuestionAnsweringSettings,
        PretrainingSettings,
        ClassificationSettings,
        PromoterSettings,
        ChromatinSettings,
    )
}
"""Task → the type of its settings; see `register_settings` for those of further packages."""


def register_settings(kind: type[OtherSettings]) -> None:
    """Let model directories of a task of a package further up be built and loaded, from its import on."""
    SETTINGS[kind.task] = kind
