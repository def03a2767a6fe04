"""The section of the network that all models share."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from bigbird_dna.config.mechanisms import OF_PATTERNS, Option, find_mechanism
from bigbird_dna.config.section import COMPUTING, UNSAID, Section
from bigbird_dna.errors import ConfigError


class EncoderConfig(Section):
    """The encoder: post-LayerNorm BERT with block-sparse attention (paper Table 8 and App. D)."""

    vocabulary: int = Field(default=0, ge=0, description="0: taken from the tokenizer")
    layers: int = Field(default=12, ge=1, description="transformer layers")
    hidden: int = Field(default=768, ge=1, description="width of a token's vector")
    heads: int = Field(default=12, ge=1, description="attention heads; hidden is a multiple of them")
    intermediate: int = Field(
        default=0, ge=0, description="width between the two feed-forward layers; 0: four times hidden"
    )
    max_length: int = Field(default=4096, ge=16, description="longest input, tokens")
    position_encoding: Literal["learned", "rotary"] = Field(
        default="learned",
        description="learned: a vector for each position; rotary: queries and keys are turned",
    )
    rotary_base: float = Field(
        default=10_000.0, gt=1, description="tokens; rotary wavelengths run from 2π to 2π times this"
    )
    rotary_scale: float = Field(default=1.0, ge=1, description="positions are divided by it")
    head_init: Literal["local", "random"] = Field(
        default="local",
        description="of fresh weights; local: the first layer's heads begin by looking at tokens nearby",
    )
    convolution: int = Field(
        default=0,
        ge=0,
        le=255,
        description="tokens that a depthwise convolution before the layers sees, odd; 0: none, as published",
    )
    segments: int = Field(default=2, ge=1, description="sentence A, sentence B …")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="of hidden states")
    attention_dropout: float = Field(default=0.0, ge=0, lt=1, description="of attention probabilities")
    activation: Literal["gelu_tanh", "gelu", "relu"] = Field(
        default="gelu_tanh", description="of the feed-forward layers; gelu is the exact one"
    )
    layer_norm_epsilon: float = Field(
        default=1e-12, gt=0, description="added to the variance in layer normalisation"
    )
    rescale_embeddings: bool = Field(
        default=False, description="token embeddings times √hidden, as some imported models have it"
    )
    attention: str = Field(
        default="bigbird",
        description="bigbird: block-sparse; bigbird_etc: with num_global_tokens; random, window, "
        "random_window: these blocks alone; full: every token sees every other; or a mechanism's name",
    )
    attention_options: dict[str, Option] = Field(
        default={}, validate_default=True, description="of a mechanism, by name; left out: its defaults"
    )
    causal: Annotated[bool, UNSAID] = Field(
        default=False,
        description="a token sees itself and those before it alone; pretraining then learns the next token, "
        "and the model can continue sequences",
    )
    compatibility: Literal["none", "huggingface"] = Field(
        default="none", description="huggingface: the evaluation arithmetic of its BigBird"
    )
    block_size: int = Field(default=64, ge=1, description="tokens")
    global_blocks: int = Field(
        default=2, ge=0, description="blocks that are seen by all and see all; half at each end"
    )
    window_blocks: int = Field(default=3, ge=0, description="odd: the own block and its neighbours")
    random_blocks: int = Field(default=3, ge=0, description="drawn for each query block, head and layer")
    random_seed: int = Field(default=0, ge=0, lt=2**32, description="of the random blocks, by layer and head")
    num_global_tokens: int = Field(
        default=0, ge=0, description="learnt global tokens in front of the sequence (ETC)"
    )
    relative_max_distance: int = Field(
        default=0, ge=0, description="tokens; relative position labels (ETC) up to it, 0: none"
    )
    attention_backend: Annotated[Literal["auto", "dense", "blocked", "native", "flex"], COMPUTING] = Field(
        default="auto", description="how attention is computed; auto: the fastest there is"
    )
    reversible: bool = Field(
        default=False,
        description="layers whose inputs are computed from their outputs in the backward pass: memory that "
        "doesn't grow with their number; another model than without",
    )
    gradient_checkpointing: Annotated[bool, COMPUTING] = Field(
        default=False, description="recompute layers in the backward pass: less memory, a third more time"
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

    @model_validator(mode="after")
    def _keys_fit_the_attention(self) -> Self:
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
                    raise ValueError(f"attention {self.attention} needs {kind} above 0")
        elif self.attention == "bigbird_etc" and not self.num_global_tokens:
            raise ValueError("attention bigbird_etc needs num_global_tokens above 0")
        for key in absent:
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key} {getattr(self, key)} doesn't go with attention {self.attention}")
        return self

    @model_validator(mode="after")
    def _causal_has_no_future(self) -> Self:
        if not self.causal:
            return self
        if self.attention == "bigbird_etc":
            raise ValueError("causal: bigbird_etc has no causal form: its extra globals see all tokens")
        if self.attention not in OF_PATTERNS and not find_mechanism(self.attention).causal:
            raise ValueError(
                f"causal: {self.attention} has no causal form: what a token sees depends on later ones"
            )
        if self.num_global_tokens:
            raise ValueError(
                f"causal: num_global_tokens {self.num_global_tokens} would see all tokens: say 0"
            )
        if self.convolution:
            raise ValueError(f"causal: convolution {self.convolution} sees tokens on both sides: say 0")
        if self.compatibility != "none":
            raise ValueError("causal: HuggingFace's arithmetic has no causal form: say compatibility none")
        return self

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        if self.convolution and self.convolution % 2 == 0:
            raise ValueError("convolution must be odd (or 0)")
        if self.window_blocks and self.window_blocks % 2 == 0:
            raise ValueError("window_blocks must be odd (or 0)")
        if not self.global_blocks + self.window_blocks + self.random_blocks:
            raise ValueError("the attention pattern is empty")
        if self.compatibility == "huggingface":
            if (self.global_blocks, self.window_blocks, self.num_global_tokens) != (2, 3, 0):
                raise ValueError(
                    "compatibility huggingface needs global_blocks 2, window_blocks 3, num_global_tokens 0"
                )
            if self.position_encoding != "learned" or self.convolution:
                raise ValueError("compatibility huggingface needs learned positions and no convolution")
        if self.attention == "full" and self.relative_max_distance:
            raise ValueError("relative_max_distance needs attention bigbird")
        if self.reversible and (self.compatibility != "none" or self.gradient_checkpointing):
            raise ValueError(
                "reversible goes with neither compatibility huggingface nor gradient_checkpointing"
            )
        if self.position_encoding == "rotary" and self.hidden // self.heads % 2:
            raise ValueError("rotary positions need an even hidden / heads")
        return self


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
