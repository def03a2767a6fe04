"""The section of the network that all models share."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import ValidationInfo, field_validator

from bigbird_dna.config.mechanisms import OF_PATTERNS, Option, find_mechanism
from bigbird_dna.config.section import DEFAULT_OMITTED, NOT_IN_FINGERPRINT, Section, field
from bigbird_dna.errors import ConfigError


class EncoderConfig(Section):
    """The encoder: post-LayerNorm BERT with block-sparse attention (paper Table 8 and App. D)."""

    vocabulary: int = field(0, "0: taken from the tokenizer", ge=0)
    layers: int = field(12, "transformer layers", ge=1)
    hidden: int = field(768, "width of a token's vector", ge=1)
    heads: int = field(12, "attention heads; hidden is a multiple of them", ge=1)
    intermediate: int = field(0, "width between the two feed-forward layers; 0: four times hidden", ge=0)
    max_length: int = field(4096, "longest input, tokens", ge=16)
    position_encoding: Literal["learned", "rotary"] = field(
        "learned", "learned: a vector for each position; rotary: queries and keys are turned"
    )
    rotary_base: float = field(10_000.0, "tokens; rotary wavelengths run from 2π to 2π times this", gt=1)
    rotary_scale: float = field(1.0, "positions are divided by it", ge=1)
    head_init: Literal["local", "random"] = field(
        "local", "of fresh weights; local: the first layer's heads begin by looking at tokens nearby"
    )
    convolution: int = field(
        0,
        "tokens that a depthwise convolution before the layers sees, odd; 0: none, as published",
        ge=0,
        le=255,
    )
    segments: int = field(2, "sentence A, sentence B …", ge=1)
    dropout: float = field(0.1, "of hidden states", ge=0, lt=1)
    attention_dropout: float = field(0.0, "of attention probabilities", ge=0, lt=1)
    activation: Literal["gelu_tanh", "gelu", "relu"] = field(
        "gelu_tanh", "of the feed-forward layers; gelu is the exact one"
    )
    layer_norm_epsilon: float = field(1e-12, "added to the variance in layer normalisation", gt=0)
    rescale_embeddings: bool = field(False, "token embeddings times √hidden, as some imported models have it")
    attention: str = field(
        "bigbird",
        "bigbird: block-sparse; bigbird_etc: with num_global_tokens; random, window, random_window: these "
        "blocks alone; full: every token sees every other; or a mechanism's name",
    )
    attention_options: dict[str, Option] = field(
        {}, "of a mechanism, by name; left out: its defaults", validate_default=True
    )
    causal: Annotated[bool, DEFAULT_OMITTED] = field(
        False,
        "a token sees itself and those before it alone; pretraining then learns the next token, and the "
        "model can continue sequences",
    )
    compatibility: Literal["none", "huggingface"] = field(
        "none", "huggingface: the evaluation arithmetic of its BigBird"
    )
    block_size: int = field(64, "tokens", ge=1)
    global_blocks: int = field(2, "blocks that are seen by all and see all; half at each end", ge=0)
    window_blocks: int = field(3, "odd: the own block and its neighbours", ge=0)
    random_blocks: int = field(3, "drawn for each query block, head and layer", ge=0)
    random_seed: int = field(0, "of the random blocks, by layer and head", ge=0, lt=2**32)
    num_global_tokens: int = field(0, "learnt global tokens in front of the sequence (ETC)", ge=0)
    relative_max_distance: int = field(0, "tokens; relative position labels (ETC) up to it, 0: none", ge=0)
    attention_backend: Annotated[
        Literal["auto", "dense", "blocked", "native", "flex"], NOT_IN_FINGERPRINT
    ] = field("auto", "how attention is computed; auto: the fastest there is")
    reversible: bool = field(
        False,
        "layers whose inputs are computed from their outputs in the backward pass: memory that doesn't "
        "grow with their number; another model than without",
    )
    gradient_checkpointing: Annotated[bool, NOT_IN_FINGERPRINT] = field(
        False, "recompute layers in the backward pass: less memory, a third more time"
    )

    def check_pooling(self, pooling: str, section: str) -> None:
        """`ConfigError` where a model of a task would look at the first token, which sees no other."""
        if self.causal and pooling == "cls":
            other = "bin" if section.startswith("chromatin") else "mean"
            raise ConfigError(
                f"{section}.pooling: 'cls' is the first token, which sees no other with encoder.causal; "
                f"say {other}"
            )

    @field_validator("attention")
    @classmethod
    def _attention_is_known(cls, name: str) -> str:
        if name not in OF_PATTERNS:
            find_mechanism(name)
        return name

    @field_validator("attention_options")
    @classmethod
    def _options_fit_the_attention(
        cls, options: dict[str, Option], info: ValidationInfo
    ) -> dict[str, Option]:
        name = info.data.get("attention", "bigbird")
        if name in OF_PATTERNS:
            if options:
                raise ValueError(f"attention {name} has no options of this kind: its keys are the encoder's")
            return options
        # With the defaults, so that a model is what it was when a later version has others.
        return find_mechanism(name).checked(options).model_dump()  # type: ignore[no-any-return]

    def _faults(self) -> Iterator[str]:
        kinds = OF_PATTERNS.get(self.attention)
        absent: tuple[str, ...] = ()
        if kinds is None:
            absent = ("num_global_tokens", "relative_max_distance", "compatibility", "attention_backend")
            if not find_mechanism(self.attention).drops:
                absent += ("attention_dropout",)
        elif self.attention in ("random", "window", "random_window"):
            absent = ("num_global_tokens", "compatibility")
            for kind in kinds:
                if not getattr(self, kind):
                    yield f"attention {self.attention} needs {kind} above 0"
        elif self.attention == "bigbird_etc" and not self.num_global_tokens:
            yield "attention bigbird_etc needs num_global_tokens above 0"
        for key in absent:
            if getattr(self, key) != type(self).model_fields[key].default:
                yield f"{key} {getattr(self, key)} doesn't go with attention {self.attention}"
        if self.causal:
            yield from self._faults_of_causal()
        if self.hidden % self.heads:
            yield f"hidden {self.hidden} is not a multiple of heads {self.heads}"
        if self.convolution and self.convolution % 2 == 0:
            yield "convolution must be odd (or 0)"
        if self.window_blocks and self.window_blocks % 2 == 0:
            yield "window_blocks must be odd (or 0)"
        if not self.global_blocks + self.window_blocks + self.random_blocks:
            yield "the attention pattern is empty"
        if self.compatibility == "huggingface":
            if (self.global_blocks, self.window_blocks, self.num_global_tokens) != (2, 3, 0):
                yield "compatibility huggingface needs global_blocks 2, window_blocks 3, num_global_tokens 0"
            if self.position_encoding != "learned" or self.convolution:
                yield "compatibility huggingface needs learned positions and no convolution"
        if self.attention == "full" and self.relative_max_distance:
            yield "relative_max_distance needs attention bigbird"
        if self.reversible and (self.compatibility != "none" or self.gradient_checkpointing):
            yield "reversible goes with neither compatibility huggingface nor gradient_checkpointing"
        if self.position_encoding == "rotary" and self.hidden // self.heads % 2:
            yield "rotary positions need an even hidden / heads"

    def _faults_of_causal(self) -> Iterator[str]:
        if self.attention == "bigbird_etc":
            yield "causal: bigbird_etc has no causal form: its extra globals see all tokens"
        if self.attention not in OF_PATTERNS and not find_mechanism(self.attention).causal:
            yield f"causal: {self.attention} has no causal form: what a token sees depends on later ones"
        if self.num_global_tokens:
            yield f"causal: num_global_tokens {self.num_global_tokens} would see all tokens: say 0"
        if self.convolution:
            yield f"causal: convolution {self.convolution} sees tokens on both sides: say 0"
        if self.compatibility != "none":
            yield "causal: HuggingFace's arithmetic has no causal form: say compatibility none"


# Keys and values of the encoder in a model's `config.json` where the configuration has others: the format of
# published models doesn't change with the configuration's names.
_STORED_KEYS = {
    "max_length": "positions",
    "position_encoding": "position",
    "head_init": "initial_heads",
    "num_global_tokens": "extra_globals",
    "relative_max_distance": "relative_radius",
    "attention_backend": "route",
}
_STORED_HEADS = {"local": "neighbours"}


def stored_encoder(config: EncoderConfig) -> dict[str, Any]:
    """The encoder as a model's `config.json` has it."""
    values = {_STORED_KEYS.get(key, key): value for key, value in config.model_dump().items()}
    return values | {"initial_heads": _STORED_HEADS.get(config.head_init, config.head_init)}


def read_stored_encoder(stored: object) -> EncoderConfig:
    """The encoder of a model's `config.json`; `ValueError` names what is wrong with it."""
    if not isinstance(stored, dict):
        return EncoderConfig.model_validate(stored)
    for key, name in _STORED_KEYS.items():
        if key in stored:
            raise ValueError(f"encoder.{key}: unknown key; in a model's directory it is {name}")
    keys = {name: key for key, name in _STORED_KEYS.items()}
    values = {keys.get(name, name): value for name, value in stored.items()}
    heads = {name: value for value, name in _STORED_HEADS.items()}
    if "head_init" in values:
        values["head_init"] = heads.get(values["head_init"], values["head_init"])
    return EncoderConfig.model_validate(values)
