"""Task settings of a model directory: typed, frozen, and validated when read."""

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.section import LONGEST_WINDOW, MOST_VIEWS, LabelKind
from bigbird_dna.genome.chromatin.track import Track, exchanged

Task = Literal[
    "pretraining",
    "promoter",
    "chromatin",
    "start-sites",
    "sequences",
    "classification",
    "question-answering",
    "encoder",
    "long-answers",
    "summaries",
]
Pooling = Literal["cls", "mean"]
Head = Literal[
    "dense", "linear"
]  # linear: no layer between the pooled vector and the output
BinPooling = Literal["cls", "bin"]


Name = Annotated[str, Field(pattern="^[^\\p{Cc}\u2028\u2029]*$")]
"""A name of an output: it is a cell or header of tables, so it has neither line ends nor tabs."""


class Settings(BaseModel):
    """Settings of any task; used directly, the settings of a bare encoder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: ClassVar[Task] = "encoder"


class OtherSettings(Settings):
    """Settings of a task whose network is built by a higher-level package; see `register_settings`."""

    def build(self, config: EncoderConfig) -> Any:
        """Build the network (`torch.nn.Module`), randomly initialized with torch's generator."""
        raise NotImplementedError


class QuestionAnsweringSettings(Settings):
    """Settings of a model that marks answers."""

    task: ClassVar[Task] = "question-answering"


class PretrainingSettings(Settings):
    """Settings of a pretrained encoder with its heads."""

    task: ClassVar[Task] = "pretraining"
    next_sentence: bool = True  # whether the network has such a head


class ClassificationSettings(Settings):
    """Settings of a text classifier, or an imported one."""

    task: ClassVar[Task] = "classification"
    outputs: int = Field(ge=1)
    labels: tuple[str, ...] = ()
    pooling: Pooling
    head: Head = "dense"


class ClassifierSettings(Settings):
    """Settings shared by models whose input is a whole sequence: promoter windows, labeled sequences."""

    pooling: Pooling
    head: Head = "dense"
    jitter: int = Field(
        ge=0, le=LONGEST_WINDOW
    )  # bp cropped in views and training windows
    views: int = Field(
        ge=1, le=MOST_VIEWS
    )  # number of tokenizations of a window that are averaged
    shuffled_labels: bool = False  # the shuffled-label control
    base_positions: bool = (
        False  # whether tokens encode the offsets of their bases in the window
    )
    ensemble: bool = (
        False  # whether the position baseline's log-odds are added to the network's
    )
    ensemble_kmers: int = Field(
        default=0, ge=0, le=8
    )  # k of a k-mer regression that is also added; 0: none
    both_strands: bool = False  # whether inputs have no direction: predictions are means over both strands

    @property
    def window(self) -> int:
        """Length of every input in bp; 0: lengths differ."""
        return 0

    @property
    def anchor(self) -> float:
        """Position in an input, as a fraction of its length, that is kept if there are too many tokens."""
        return 0.5


class PromoterSettings(ClassifierSettings):
    """Settings of a promoter model: its window and inputs."""

    task: ClassVar[Task] = "promoter"
    upstream: int = Field(ge=0, le=LONGEST_WINDOW)  # bp before the TSS
    downstream: int = Field(
        ge=1, le=LONGEST_WINDOW
    )  # bp from the TSS on, including the TSS
    negative_set: str | None = None  # negative set of the training

    @property
    def window(self) -> int:
        return self.upstream + self.downstream

    @property
    def anchor(self) -> float:
        """Position of the TSS in a window, as a fraction of its length."""
        return self.upstream / self.window


class SequenceSettings(ClassifierSettings):
    """Settings of a model of labeled sequences, which have one label or several."""

    task: ClassVar[Task] = "sequences"
    kind: LabelKind
    # Names of the network's outputs: the classes of `multiclass`; otherwise the labels.
    outputs: tuple[Name, ...] = Field(min_length=1)
    length: int | None = Field(
        default=None, ge=1, le=LONGEST_WINDOW
    )  # bp of all inputs; None: they differ
    # Regression: mean and standard deviation of each label in training; the network's outputs are
    # standardized.
    means: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()

    @property
    def window(self) -> int:
        return self.length or 0


class NamedTrack(BaseModel):
    """A track of a model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    track: Name
    group: Name
    opposite: Name = (
        ""  # name of the track that it becomes on the reverse complement; "": itself
    )


KMER_WINDOW = 1000  # bp, the wider of the two windows whose k-mers regressions read; the other is the bin


class ChromatinSettings(Settings):
    """Settings of a chromatin model: its window, the window's central bin, and its tracks."""

    task: ClassVar[Task] = "chromatin"
    window: int = Field(ge=1, le=LONGEST_WINDOW)  # bp
    bin: int = Field(ge=1, le=LONGEST_WINDOW)  # bp
    pooling: BinPooling
    bin_layers: int = Field(ge=0)
    head: Head = "dense"
    members: int = Field(ge=1)  # number of models in the ensemble
    ensemble_kmers: int = Field(
        default=0, ge=0, le=8
    )  # k of k-mer regressions added to each; 0: none
    ensemble_dyads: int = Field(
        default=0, ge=0, le=256
    )  # spaced dyads of a track that are also added
    tracks: tuple[NamedTrack, ...]

    @cached_property
    def opposites(self) -> list[int] | None:
        """The output (T) that each track has on the reverse complement; None: all keep their place."""
        return exchanged(self.track_list)

    @property
    def kmer_margin(self) -> int:
        """The bp on both sides of a bin that are in the wider window of k-mer regressions."""
        return max(KMER_WINDOW - self.bin, 0) // 2

    @property
    def track_list(self) -> list[Track]:
        """The tracks in the order of the model's outputs."""
        return [
            Track(named.track, named.group, opposite=named.opposite)
            for named in self.tracks
        ]


class StartSiteSettings(Settings):
    """Settings of a model of start sites: what it reads at once, and its convolutions."""

    task: ClassVar[Task] = "start-sites"
    window: int = Field(ge=1, le=LONGEST_WINDOW)  # bp read at once
    margin: int = Field(ge=0)  # bp at each end of a window whose bases are only context
    bin: int = Field(ge=1)  # bp whose tokens are read together
    bin_layers: int = Field(ge=0)  # attention layers across bins
    smoothing: int = Field(ge=0)  # bp around a site at which labels fall to zero
    channels: int = Field(ge=1)  # of the convolutions
    layers_before: int = Field(ge=0)  # residual convolutions before the encoder
    layers_after: int = Field(ge=0)  # and after it


SETTINGS: dict[str, type[Settings]] = {
    kind.task: kind
    for kind in (
        Settings,
        QuestionAnsweringSettings,
        PretrainingSettings,
        ClassificationSettings,
        PromoterSettings,
        SequenceSettings,
        ChromatinSettings,
        StartSiteSettings,
    )
}
"""Settings class by task; see `register_settings` for those of other packages."""


def register_settings(kind: type[OtherSettings]) -> None:
    """Register the settings of a higher-level package's task, so its model directories can be loaded."""
    SETTINGS[kind.task] = kind
