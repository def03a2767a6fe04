"""The section `encoder`: the network that all models share."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import ValidationInfo, field_validator

from bigbird_dna.config.mechanisms import OF_PATTERNS, Option, find_mechanism
from bigbird_dna.config.section import NOT_IN_FINGERPRINT, Section, field
from bigbird_dna.errors import ConfigError


class EncoderConfig(Section):
    """The encoder: post-LayerNorm BERT with block-sparse attention (paper Table 8 and App. D)."""

    vocabulary: int = field(0, "vocabulary size; 0: that of the tokenizer", ge=0)
    layers: int = field(12, "number of transformer layers", ge=1)
    hidden: int = field(768, "width of hidden states", ge=1)
    heads: int = field(12, "number of attention heads, a divisor of hidden", ge=1)
    intermediate: int = field(
        0, "width of the feed-forward layer; 0: four times hidden", ge=0
    )
    max_length: int = field(4096, "maximum input length, tokens", ge=16)
    position_encoding: Literal["learned", "rotary"] = field(
        "learned",
        "learned: one vector per position; rotary: queries and keys are rotated",
    )
    rotary_base: float = field(
        10_000.0,
        "rotary wavelengths, in tokens, range from 2π to 2π times this",
        gt=1,
    )
    head_init: Literal["local", "random"] = field(
        "local",
        "initialization of heads; local: first-layer heads attend to nearby tokens",
    )
    kmers: int = field(
        0,
        "k of the k-mers around each base of a token, whose vectors are added to the token's; 0: none, as "
        "published",
        ge=0,
        le=8,
    )
    segments: int = field(
        2, "number of segment embeddings: sentence A, sentence B …", ge=1
    )
    dropout: float = field(0.1, "dropout of hidden states", ge=0, lt=1)
    attention_dropout: float = field(
        0.0, "dropout of attention probabilities", ge=0, lt=1
    )
    activation: Literal["gelu_tanh", "gelu", "relu"] = field(
        "gelu_tanh",
        "activation of the feed-forward layers; gelu: exact, gelu_tanh: tanh approximation",
    )
    layer_norm_epsilon: float = field(
        1e-12, "constant added to the variance in layer normalization", gt=0
    )
    attention: str = field(
        "bigbird",
        "bigbird: block-sparse; bigbird_etc: with num_global_tokens; random, window, random_window: only "
        "these blocks; full: all pairs of tokens; or the name of another mechanism",
    )
    attention_options: dict[str, Option] = field(
        {},
        "options of a mechanism, by name; omitted options have its defaults",
        validate_default=True,
    )
    causal: bool = field(
        False,
        "tokens attend only to themselves and earlier tokens; pretraining is next-token prediction, and the "
        "model can continue sequences",
    )
    compatibility: Literal["none", "huggingface"] = field(
        "none", "huggingface: compute as HuggingFace's BigBird in evaluation mode"
    )
    block_size: int = field(64, "tokens per block", ge=1)
    global_blocks: int = field(
        2, "blocks that attend to and from all blocks; half at each end", ge=0
    )
    window_blocks: int = field(
        3, "window blocks, odd: the block itself and adjacent blocks", ge=0
    )
    random_blocks: int = field(3, "random blocks per query block, head and layer", ge=0)
    random_seed: int = field(
        0, "random seed of the random blocks, by layer and head", ge=0, lt=2**32
    )
    num_global_tokens: int = field(
        0, "learned global tokens before the sequence (ETC)", ge=0
    )
    relative_max_distance: int = field(
        0, "maximum relative position (ETC), tokens; 0: none", ge=0
    )
    attention_backend: Annotated[
        Literal["auto", "dense", "blocked", "native", "flex"], NOT_IN_FINGERPRINT
    ] = field("auto", "implementation of attention; auto: the fastest available")
    gradient_checkpointing: Annotated[bool, NOT_IN_FINGERPRINT] = field(
        False, "recompute layers in the backward pass: less memory, a third more time"
    )

    def check_no_bases(self) -> None:
        """`ConfigError` for an encoder that reads the bases of tokens, which only DNA has."""
        if self.kmers:
            raise ConfigError(f"encoder.kmers {self.kmers}: needs tokens of DNA")

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
        if "attention" not in info.data:  # an unknown name, which is the first error
            return options
        name = info.data["attention"]
        if name in OF_PATTERNS:
            if options:
                raise ValueError(
                    f"attention {name} has no attention_options: use the keys of encoder"
                )
            return options
        # Stored with the defaults: a model is unchanged if a later version has other defaults.
        return find_mechanism(name).checked(options).model_dump()  # type: ignore[no-any-return]

    def _faults(self) -> Iterator[str]:
        kinds = OF_PATTERNS.get(self.attention)
        absent: tuple[str, ...] = ()
        if kinds is None:
            absent = (
                "num_global_tokens",
                "relative_max_distance",
                "compatibility",
                "attention_backend",
            )
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
                yield f"{key} {getattr(self, key)} is not supported by attention {self.attention}"

        if self.causal:
            yield from self._faults_of_causal()

        if self.hidden % self.heads:
            yield f"hidden {self.hidden} is not a multiple of heads {self.heads}"

        if self.window_blocks and self.window_blocks % 2 == 0:
            yield "window_blocks must be odd (or 0)"

        if not self.global_blocks + self.window_blocks + self.random_blocks:
            yield "one of global_blocks, window_blocks and random_blocks must be above 0"

        if self.compatibility == "huggingface":
            if (self.global_blocks, self.window_blocks, self.num_global_tokens) != (
                2,
                3,
                0,
            ):
                yield "compatibility huggingface needs global_blocks 2, window_blocks 3, num_global_tokens 0"

            if self.position_encoding != "learned" or self.kmers:
                yield "compatibility huggingface needs learned positions, and no kmers"

        if self.attention == "full" and self.relative_max_distance:
            yield "relative_max_distance needs attention bigbird"

        if self.position_encoding != "learned" and self.hidden // self.heads % 2:
            yield "rotary positions need an even hidden / heads"

    def _faults_of_causal(self) -> Iterator[str]:
        if self.attention == "bigbird_etc":
            yield "causal: attention bigbird_etc has no causal form: its global tokens attend to all tokens"

        if (
            self.attention not in OF_PATTERNS
            and not find_mechanism(self.attention).causal
        ):
            yield f"causal: attention {self.attention} has no causal form: outputs depend on later tokens"

        if self.num_global_tokens:
            yield f"causal: num_global_tokens {self.num_global_tokens} must be 0: they attend to all tokens"

        if self.kmers:
            yield f"causal: kmers {self.kmers} must be 0: they include later bases"

        if self.compatibility != "none":
            yield "causal: compatibility must be none: HuggingFace's BigBird has no causal form"
