"""The one declaration of the configuration; the workflow and the commands read the same files with it.

A configuration is a YAML file of the sections below. Every key has a default, unknown keys and wrong types
are refused, and a section is frozen once made. Bases are "bp", lengths of model input are "tokens".
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bigbird_dna.errors import ConfigError

NegativeSet = Literal["substituted", "permuted", "genomic"]
NEGATIVE_SETS: tuple[NegativeSet, ...] = get_args(NegativeSet)
# Values of chromatin.tracks that are no file.
SIMULATED = "simulated"
DEEPSEA = "deepsea"
# What the bundle has decided about bins, labels and splits: another value would have no effect.
_BUNDLE: Mapping[str, Any] = {
    "bin": 200,
    "label": "half",
    "widen": 0,
    "negative_fraction": 0.0,
    "blacklist": None,
    "valid_regions": (),
    "test_regions": (),
}


class Section(BaseModel):
    """A frozen group of keys that refuses keys it doesn't know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SimulationConfig(Section):
    """The demo genome (`bigbird-dna simulate`)."""

    megabases: float = Field(default=4.0, gt=0.1, le=1000)


class GenomeConfig(Section):
    """Where the reference and the promoters come from, and which contigs are held out."""

    assembly: Literal["demo", "sacCer3", "GRCh37", "GRCh38"] = "demo"
    reference: str | None = Field(
        default=None,
        description="key of a FASTA in resources/sources.yaml, or a file, in local_data or from here; "
        "none: simulate",
    )
    promoters: str | None = Field(
        default=None,
        description="key of an EPDnew file in sources.yaml, or a file; none: the simulation's, or "
        "no promoter models",
    )
    chain: str | None = Field(
        default=None, description="key of a liftOver chain onto `assembly`; none: already on it"
    )
    exclude: tuple[str, ...] = Field(
        default=(), description="contigs that take no part in anything"
    )
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _contigs_stand_in_one_group(self) -> Self:
        named = [*self.exclude, *self.valid, *self.test]
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice:
            raise ValueError(f"contig {twice[0]!r} stands in more than one of exclude, valid, test")
        return self


class TokensConfig(Section):
    """The BPE tokenizer and the documents of App. F.1."""

    vocabulary: int = Field(default=256, ge=16, le=1_000_000)
    corpus_megabases: float = Field(default=20.0, gt=0, description="sampled bp for training BPE")
    max_piece_length: int = Field(default=16, ge=1, le=1024, description="bp")
    passes: int = Field(default=10, ge=1, description="passes over every contig")
    max_start: int = Field(default=5000, ge=0, description="bp; start ~ U{0…max_start}")
    sentence_bases: tuple[int, int] = (500, 1000)
    document_sentences: tuple[int, int] = (50, 100)

    @model_validator(mode="after")
    def _ranges_are_ordered(self) -> Self:
        for name in ("sentence_bases", "document_sentences"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                raise ValueError(f"{name} must be [low, high] with 1 <= low <= high")
        return self


class EncoderConfig(Section):
    """The encoder: post-LayerNorm BERT with block-sparse attention (paper Table 8 and App. D)."""

    vocabulary: int = Field(default=0, ge=0, description="0: taken from the tokenizer")
    layers: int = Field(default=12, ge=1)
    hidden: int = Field(default=768, ge=1)
    heads: int = Field(default=12, ge=1)
    intermediate: int = Field(default=0, ge=0, description="0: four times hidden")
    positions: int = Field(default=4096, ge=16, description="longest input, tokens")
    position: Literal["learned", "rotary"] = "learned"
    rotary_base: float = Field(default=10_000.0, gt=1)
    rotary_scale: float = Field(default=1.0, ge=1, description="positions are divided by it")
    segments: int = Field(default=2, ge=1, description="sentence A, sentence B …")
    dropout: float = Field(default=0.1, ge=0, lt=1)
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    activation: Literal["gelu_tanh", "gelu", "relu"] = "gelu_tanh"
    layer_norm_epsilon: float = Field(default=1e-12, gt=0)
    rescale_embeddings: bool = Field(
        default=False, description="token embeddings times √hidden, as some imported models have it"
    )
    attention: Literal["bigbird", "full"] = "bigbird"
    compatibility: Literal["none", "huggingface"] = Field(
        default="none", description="huggingface: the evaluation arithmetic of its BigBird"
    )
    block_size: int = Field(default=64, ge=1, description="tokens")
    global_blocks: int = Field(default=2, ge=0, description="half at each end")
    window_blocks: int = Field(default=3, ge=0, description="odd: the own block and its neighbours")
    random_blocks: int = Field(default=3, ge=0)
    random_seed: int = Field(
        default=0, ge=0, lt=2**32, description="of the random blocks, by layer and head"
    )
    extra_globals: int = Field(
        default=0, ge=0, description="learnt global tokens in front of the sequence (ETC)"
    )
    relative_radius: int = Field(
        default=0, ge=0, description="tokens; relative position labels (ETC) up to it, 0: none"
    )
    route: Literal["auto", "dense", "blocked", "native", "flex"] = "auto"
    gradient_checkpointing: bool = False

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is no multiple of heads {self.heads}")
        if self.window_blocks and self.window_blocks % 2 == 0:
            raise ValueError("window_blocks must be odd (or 0)")
        if not self.global_blocks + self.window_blocks + self.random_blocks:
            raise ValueError("the attention pattern is empty")
        if self.compatibility == "huggingface":
            if (self.global_blocks, self.window_blocks, self.extra_globals) != (2, 3, 0):
                raise ValueError(
                    "compatibility huggingface needs global_blocks 2, window_blocks 3, extra_globals 0"
                )
            if self.position != "learned":
                raise ValueError("compatibility huggingface needs learned positions")
        if self.attention == "full" and self.relative_radius:
            raise ValueError("relative_radius needs attention bigbird")
        if self.position == "rotary" and self.hidden // self.heads % 2:
            raise ValueError("rotary positions need an even hidden / heads")
        return self


class OptimizerConfig(Section):
    """Adam with warm-up and linear decay; shared by pretraining and fine-tuning."""

    learning_rate: float = Field(default=1e-4, gt=0)
    warmup_steps: int = Field(default=100, ge=0)
    weight_decay: float = Field(default=0.01, ge=0)
    clip_norm: float = Field(default=1.0, gt=0)


class TrainingConfig(Section):
    """What pretraining and fine-tuning have in common."""

    steps: int = Field(default=1000, ge=1)
    batch_size: int = Field(default=32, ge=1, description="sequences a step over all processes")
    accumulate: int = Field(default=1, ge=1, description="micro-batches a process and step")
    optimizer: OptimizerConfig = OptimizerConfig()
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="auto: bfloat16 autocast where the device has it"
    )
    evaluate_every: int = Field(default=250, ge=1, description="steps")
    checkpoint_every: int = Field(default=100, ge=1, description="steps")
    seed: int = Field(default=1, ge=0, lt=2**32)


class PretrainingConfig(TrainingConfig):
    """Masked-language modelling with next-sentence prediction (App. F.1)."""

    sequence_tokens: int = Field(default=512, ge=16, description="[CLS] A [SEP] B [SEP]")
    mask_fraction: float = Field(default=0.15, gt=0, lt=1)
    next_sentence: bool = True
    evaluation_sequences: int = Field(default=256, ge=1, description="held-out, fixed")
    ngram_order: int = Field(
        default=6, ge=1, le=12, description="highest of the token n-gram baseline"
    )


class PromoterConfig(TrainingConfig):
    """Promoter windows, their negatives, and fine-tuning (App. F.2)."""

    upstream: int = Field(default=5000, ge=0, description="bp before the TSS")
    downstream: int = Field(default=3000, ge=1, description="bp from the TSS on, TSS included")
    negative_sets: tuple[NegativeSet, ...] = NEGATIVE_SETS
    negatives: int = Field(
        default=1, ge=1, description="negatives a training promoter has; each epoch takes another"
    )
    distance: int = Field(
        default=1000, ge=0, description="bp between a genomic negative's TSS position and any TSS"
    )
    control: NegativeSet | None = Field(
        default="genomic", description="negative set trained once more on shuffled labels"
    )
    initial: Literal["pretrained", "random"] = "pretrained"
    extend_positions: Literal["tile", "interpolate", "ntk"] | None = Field(
        default=None,
        description="how a pretrained encoder of fewer positions gets encoder.positions; none: refuse it",
    )
    pooling: Literal["cls", "mean"] = "cls"
    dropout: float | None = Field(
        default=None, ge=0, lt=1, description="while fine-tuning; none: the encoder's"
    )
    jitter: int = Field(default=0, ge=0, description="bp cut at random from each end in training")
    views: int = Field(
        default=1, ge=1, description="tokenisations of a window whose probabilities are averaged"
    )
    baseline_kmer: int = Field(default=5, ge=1, le=8)

    @model_validator(mode="after")
    def _window_is_longer_than_jitter(self) -> Self:
        if self.upstream + self.downstream <= 2 * self.jitter:
            raise ValueError("jitter leaves nothing of the window")
        if self.upstream + self.downstream < 20 and set(self.negative_sets) - {"genomic"}:
            raise ValueError(
                "a window below 20 bp can't be cut into the 20 parts of derived negatives"
            )
        if self.views > 1 and not self.jitter:
            raise ValueError("several views differ by their jitter, which is 0")
        if self.control is not None and self.control not in self.negative_sets:
            raise ValueError(f"control {self.control!r} is none of negative_sets")
        return self


class ChromatinConfig(TrainingConfig):
    """Chromatin profiles: the data set of bins and tracks, and fine-tuning (App. F.3)."""

    tracks: str | None = Field(
        default=None,
        description="track table or folder of peak files, in local_data or from here; "
        '"simulated"; "deepsea": the published bundle; none: no chromatin',
    )
    track_names: str | None = Field(
        default=None, description="regular expression for file names in a folder of peaks"
    )
    group: str = Field(default="TF", description="of the tracks of a folder")
    bin: int = Field(default=200, ge=1, description="bp that one prediction stands for")
    window: int = Field(default=8000, ge=1, description="bp of sequence around a bin, bin included")
    compare_window: int | None = Field(
        default=None, ge=1, description="bp; a second model that sees no more than this"
    )
    label: Literal["half", "any", "centre"] | int = Field(
        default="half", description="how much of a bin peaks must cover; a number: so many bp"
    )
    widen: int = Field(default=0, ge=0, description="bp added to both ends of each peak")
    negative_fraction: float = Field(
        default=0.0, ge=0, le=1, description="of the bins without any positive track, kept"
    )
    minimum_positives: int = Field(
        default=50, ge=1, description="of a track in training; tracks below it are left out"
    )
    minimum_held_out: int = Field(
        default=0, ge=0, description="of a track in validation and in test bins, likewise"
    )
    blacklist: str | None = Field(
        default=None, description="BED of regions left out, looked for likewise"
    )
    max_n: float = Field(default=0.25, ge=0, le=1, description="largest share of N in a window")
    valid_regions: tuple[str, ...] = Field(
        default=(), description="contig:first-last, 1-based; besides genome.valid"
    )
    test_regions: tuple[str, ...] = ()
    positive_weight: float = Field(default=8.0, gt=0, description="of a positive label in the loss")
    pooling: Literal["cls", "bin"] = "cls"
    bin_layers: int = Field(
        default=0, ge=0, description="pooling bin: layers of attention across the window's bins"
    )
    neighbours: int = Field(
        default=1, ge=1, description="odd; bins learnt from in each training window"
    )
    initial: Literal["pretrained", "random"] = "pretrained"
    extend_positions: Literal["tile", "interpolate", "ntk"] | None = None
    models: int = Field(default=1, ge=1, description="independently trained; their mean predicts")
    dropout: float | None = Field(default=None, ge=0, lt=1)
    shift: int = Field(default=0, ge=0, description="bp a training window is moved by, at random")
    evaluation_bins: int = Field(default=1000, ge=1, description="validation bins, while training")
    test_bins: int = Field(default=0, ge=0, description="a sample of the test bins; 0: all")
    middle: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="pooling bin: the part of a window whose bins are predicted together; 0: one bin",
    )
    report_positives: int = Field(
        default=1, ge=1, description="test positives a track needs to count in the report's medians"
    )
    variants: str | None = Field(
        default=None,
        description="VCF whose effects are scored, in local_data or from here; of a simulation its own",
    )
    baseline_kmer: int = Field(default=5, ge=1, le=8)

    @model_validator(mode="after")
    def _bins_fit(self) -> Self:
        if self.neighbours % 2 == 0:
            raise ValueError("neighbours must be odd")
        if self.pooling == "cls" and self.neighbours > 1:
            raise ValueError("pooling cls predicts one bin a window: neighbours must be 1")
        if self.pooling == "cls" and self.bin_layers:
            raise ValueError("pooling cls predicts one bin a window: bin_layers must be 0")
        if self.pooling == "cls" and self.middle:
            raise ValueError("pooling cls predicts one bin a window: middle must be 0")
        for window in (self.window, self.compare_window):
            if window is not None and (window < self.bin or (window - self.bin) % 2):
                raise ValueError(
                    f"window {window} doesn't hold the bin of {self.bin} in its middle"
                )
        if self.window < self.bin * self.neighbours:
            raise ValueError("the window is smaller than its neighbours' bins")
        return self

    @model_validator(mode="after")
    def _bundle_is_as_published(self) -> Self:
        if self.tracks == DEEPSEA:
            for key, value in _BUNDLE.items():
                if getattr(self, key) != value:
                    raise ValueError(
                        f"tracks {DEEPSEA} have the published bins, labels and splits: "
                        f"{key} can only be {json.dumps(value)}"
                    )
        return self


class ScoringConfig(Section):
    """The workflow's example of `score-promoters` on held-out contigs."""

    stride: int = Field(default=100, ge=1, description="bp")
    negative_set: NegativeSet = Field(default="genomic", description="model that scores")
    max_megabases: float = Field(default=0.2, gt=0, description="scored of the first test contig")


class Config(Section):
    """A whole run: where its files go, and one section a stage."""

    results: str = Field(default="results/demo", description="directory of every output")
    local_data: str | None = Field(default=None, description="looked in before downloading")
    processes: int = Field(default=1, ge=1, description="torchrun processes for pretraining")
    simulation: SimulationConfig = SimulationConfig()
    genome: GenomeConfig = GenomeConfig()
    tokens: TokensConfig = TokensConfig()
    encoder: EncoderConfig = EncoderConfig()
    pretraining: PretrainingConfig = PretrainingConfig()
    promoters: PromoterConfig = PromoterConfig()
    chromatin: ChromatinConfig = ChromatinConfig()
    scoring: ScoringConfig = ScoringConfig()
    seed: int = Field(
        default=1, ge=0, lt=2**32, description="of simulation, documents and negatives"
    )

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        if self.pretraining.sequence_tokens > self.encoder.positions:
            raise ValueError(
                f"pretraining.sequence_tokens {self.pretraining.sequence_tokens} is above "
                f"encoder.positions {self.encoder.positions}"
            )
        return self


class _Loader(yaml.SafeLoader):
    """YAML 1.1 takes 5e-4 for a text; here it is the number that its writer meant."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def parse_config(values: Mapping[str, Any], source: str = "configuration") -> Config:
    """Check a mapping of sections; the first fault raises `ConfigError` naming key, value and `source`."""
    try:
        return Config.model_validate(_tuples(dict(values)))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "(top level)"
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"{source}: unknown key {key!r}") from None
        message = first["msg"].removeprefix("Value error, ")
        value = "" if isinstance(first["input"], dict) else f" (got {first['input']!r})"
        raise ConfigError(f"{source}: {key}: {message}{value}") from None


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file, apply `section.key=value` overrides (values are YAML), and check the result."""
    try:
        values = yaml.load(Path(path).read_text(), _Loader)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not readable: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a configuration is a mapping of sections, not {values!r:.60}")
    for override in overrides:
        _apply(values, override)
    return parse_config(values, str(path))


def _apply(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {override!r}: expected key=value, such as encoder.layers=4")
    *sections, last = key.split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--set {override!r}: {section!r} is no section")
    try:
        values[last] = yaml.load(text, _Loader)
    except yaml.YAMLError:
        raise ConfigError(f"--set {override!r}: {text!r} is not YAML") from None


def _tuples(value: Any) -> Any:
    """YAML's lists as tuples, which strict models ask for."""
    if isinstance(value, Mapping):
        return {key: _tuples(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    return value
