"""Models of this package as classes of HuggingFace's library; `modeling_bigbird_dna.py` names them.

Each class runs the network of a model directory and adds what the library expects: inputs by its names,
attention masks, losses, hidden states and attention weights of layers, and a head that is named `classifier`.
Tokens with an attention mask of 0 are taken out of their row, wherever they are:
outputs are those of the row without them, so padding on either side changes nothing.

The library builds networks on the meta device and then fills in the checkpoint's tensors. All values of the
networks are stored tensors, which `model.mechanism.check_mechanism` ensures, or are computed from
configuration and tokenizer, such as rotary angles: none is lost.

Shapes: B batch, L tokens, D hidden width, V vocabulary, T outputs.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import (
    BaseModelOutput,
    CausalLMOutput,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
)
from transformers.utils import cached_file, can_return_tuple

from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.huggingface.configuration import PACKAGE_TYPE, package_description
from bigbird_dna.huggingface.model_code import label_names, tokenizer_name
from bigbird_dna.model.attention_maps import layer_weights
from bigbird_dna.model.base_positions import BaseBatch
from bigbird_dna.model.batching import bins_shown, centered_bins, place_bins
from bigbird_dna.model.directory import build_network, described_tokenizer, make_model
from bigbird_dna.model.encoder import Encoder, Layer
from bigbird_dna.model.heads import PretrainingNetwork, WithHead, question_lengths
from bigbird_dna.model.input_embeddings import Rotation, initialize
from bigbird_dna.model.kmers import ReadsBases
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.promoter import LoadedSequenceModel
from bigbird_dna.model.settings import (
    ChromatinSettings,
    ClassificationSettings,
    ClassifierSettings,
    PretrainingSettings,
    QuestionAnsweringSettings,
    Settings,
)
from bigbird_dna.model.weights import shapes_only

# Options of `from_pretrained` about the place of files.
_OF_FILES = (
    "cache_dir",
    "force_download",
    "local_files_only",
    "token",
    "revision",
    "subfolder",
)


class HubModelConfig(PreTrainedConfig):  # type: ignore[misc]
    """Configuration of a checkpoint; the key `bigbird_dna` describes the model, see `model_code`."""

    model_type = PACKAGE_TYPE
    bigbird_dna: dict[str, Any] | None = None


class TokenRows(NamedTuple):
    """Rows of tokens whose padding is at their ends."""

    ids: Tensor  # (B, L)
    lengths: Tensor  # (B,), on the CPU
    segments: Tensor | None  # (B, L)
    order: (
        Tensor | None
    )  # (B, L), where each token was in the given row; None: unchanged
    embeds: Tensor | None = None  # (B, L, D), in place of the embeddings of `ids`

    def restore(self, values: Tensor) -> Tensor:
        """Values of tokens (B, L, …) in the order of the given rows."""
        if self.order is None:
            return values
        positions = self.order.argsort(1).view(
            *self.order.shape, *[1] * (values.dim() - 2)
        )
        return values.gather(1, positions.expand_as(values))

    def inner(self) -> list[npt.NDArray[np.integer]]:
        """The tokens of each row between its first and its last, without padding."""
        rows = zip(self.ids.cpu().numpy(), self.lengths.tolist(), strict=True)
        return [row[1 : length - 1] for row, length in rows]


def token_rows(
    ids: Tensor,
    mask: Tensor | None = None,
    segments: Tensor | None = None,
    embeds: Tensor | None = None,
) -> TokenRows:
    """Rows of token ids (B, L) with their attention mask (B, L); `UsageError` for a row without tokens."""
    tokens = ids.shape[1]
    if mask is None:
        return TokenRows(
            ids, torch.full((len(ids),), tokens, device="cpu"), segments, None, embeds
        )
    if mask.shape != ids.shape:
        raise UsageError(
            f"attention_mask has shape {tuple(mask.shape)}, input_ids {tuple(ids.shape)}"
        )
    present = mask != 0
    lengths = present.sum(1).cpu()
    if not lengths.all():
        raise UsageError(f"attention_mask: row {int(lengths.argmin())} has no token")
    if torch.equal(
        present.cpu(), torch.arange(tokens, device="cpu") < lengths[:, None]
    ):
        return TokenRows(ids, lengths, segments, None, embeds)
    order = present.int().argsort(dim=1, descending=True, stable=True)
    segments = None if segments is None else segments.gather(1, order)
    embeds = (
        None if embeds is None else embeds.gather(1, order[..., None].expand_as(embeds))
    )
    return TokenRows(ids.gather(1, order), lengths, segments, order, embeds)


class Observed:
    """What a pass through an encoder left behind, as the library names it."""

    def __init__(self) -> None:
        self.hidden_states: list[Tensor] = []
        self.attentions: list[Tensor] = []

    def outputs(self) -> dict[str, tuple[Tensor, ...] | None]:
        """Both, or None in place of what was not wanted."""
        return {
            "hidden_states": tuple(self.hidden_states) or None,
            "attentions": tuple(self.attentions) or None,
        }


class HubModel(PreTrainedModel):  # type: ignore[misc]
    """A network of this package in the library's interface; its `loaded` is the model with all methods.

    `from_pretrained` and `save_pretrained` also read and write the tokenizer's original file, which networks
    that read the bases of tokens need.
    """

    config_class = HubModelConfig
    base_model_prefix = "network"
    supports_gradient_checkpointing = True
    _no_split_modules = ("Layer",)
    kinds: ClassVar[tuple[type[Settings], ...]] = (
        Settings,
    )  # settings of the models it can run

    def __init__(self, config: HubModelConfig) -> None:
        super().__init__(config)
        self._loaded: LoadedModel | None = None
        self.encoder_config, settings, _ = package_description(
            config.to_dict(), "config.json"
        )
        self.settings = self.fitted(settings)
        if not isinstance(self.settings, self.kinds):
            raise ModelError(
                f"{type(self).__name__} does not support {settings.task} models"
            )
        empty = torch.get_default_device().type == "meta"
        with shapes_only() if empty else nullcontext():
            self.network = build_network(self.encoder_config, self.settings)
        for part in [
            one for one in self.network.modules() if isinstance(one, WithHead)
        ]:
            part.group_head()
        for value in self.network.state_dict(keep_vars=True).values():
            value._is_hf_initialized = not empty
        self.post_init()

    def fitted(self, settings: Settings) -> Settings:
        """Settings of the network, for the checkpoint's."""
        return settings

    @property
    def loaded(self) -> LoadedModel:
        """The model as `bigbird_dna.load` returns it, such as for `predict`, with the same tensors."""
        if self._loaded is None:
            raise ModelError("the model has no tokenizer: load it with from_pretrained")
        return self._loaded

    @classmethod
    def from_pretrained(cls, name: Any, *inputs: Any, **options: Any) -> Any:
        """As in the library; also reads the tokenizer."""
        loaded = super().from_pretrained(name, *inputs, **options)
        model = (
            loaded[0] if isinstance(loaded, tuple) else loaded
        )  # with `output_loading_info`
        where = {key: options[key] for key in _OF_FILES if key in options}
        model.read_tokenizer(Path(cached_file(name, model.tokenizer_name, **where)))
        return loaded

    @property
    def tokenizer_name(self) -> str:
        """Name of the tokenizer's file in the checkpoint; `ModelError` for any but our own names."""
        return tokenizer_name(self.config.bigbird_dna, "config.json")

    def read_tokenizer(self, file: Path) -> None:
        """Set the tokenizer from its original file; `ModelError` if it does not fit."""
        config = self.encoder_config
        tokenizer = described_tokenizer(
            file, config, self.config.bigbird_dna["tokenizer"]
        )
        self._loaded = make_model(self.network, tokenizer, config, self.settings)

    def save_pretrained(self, directory: Any, *inputs: Any, **options: Any) -> None:
        """As in the library; also writes the tokenizer."""
        if self._loaded is not None:
            file = Path(directory, self.tokenizer_name)
            file.parent.mkdir(parents=True, exist_ok=True)
            self._loaded.tokenizer.save(file)
        super().save_pretrained(directory, *inputs, **options)

    def encoder(self) -> Encoder:
        """The encoder; `ModelError` for an ensemble of several."""
        encoders = [
            part for part in self.network.modules() if isinstance(part, Encoder)
        ]
        if len(encoders) > 1:
            raise ModelError(
                f"an ensemble of {len(encoders)} models has no single encoder"
            )
        return encoders[0]

    def get_input_embeddings(self) -> nn.Module:
        """The token embeddings."""
        return self.encoder().embeddings.token

    def rows(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        inputs_embeds: Tensor | None,
    ) -> TokenRows:
        """The rows of `forward`'s inputs; `UsageError` unless ids or embeddings are given."""
        if (input_ids is None) == (inputs_embeds is None):
            raise UsageError("give either input_ids or inputs_embeds")
        if inputs_embeds is None:
            assert input_ids is not None
            return token_rows(input_ids, attention_mask, token_type_ids)
        windows = isinstance(
            self.settings, ChromatinSettings | QuestionAnsweringSettings
        ) or (
            isinstance(self.settings, ClassifierSettings)
            and self.settings.offsets is not None
        )
        if windows or any(
            isinstance(part, ReadsBases) for part in self.network.modules()
        ):
            raise UsageError(
                "inputs_embeds: this model also reads the tokens themselves; give input_ids"
            )
        ids = torch.zeros(
            inputs_embeds.shape[:2], dtype=torch.long, device=inputs_embeds.device
        )
        return token_rows(ids, attention_mask, token_type_ids, inputs_embeds)

    @contextmanager
    def observed(
        self, rows: TokenRows, hidden_states: bool | None, attentions: bool | None
    ) -> Iterator[Observed]:
        """A context for one pass of `rows` through the network, with the embeddings given, if any.

        `hidden_states` (B, L, D) are those of the embeddings and of each layer, as far as wanted, and
        `attentions` (B, H, L, L) of each layer, computed apart and without gradients; memory for these is
        quadratic. The extra global tokens, if any, come first in `attentions`.
        """
        observed = Observed()
        states = (
            getattr(self.config, "output_hidden_states", False)
            if hidden_states is None
            else hidden_states
        )
        weights = (
            getattr(self.config, "output_attentions", False)
            if attentions is None
            else attentions
        )
        if not (states or weights or rows.embeds is not None):
            yield observed
            return
        encoder = self.encoder()
        if (states or weights) and encoder.config.reversible:
            raise UsageError(
                "a reversible encoder has no hidden states or attention weights per layer"
            )
        extra = encoder.config.num_global_tokens

        def keep_state(_module: nn.Module, _inputs: Any, out: Tensor) -> None:
            observed.hidden_states.append(
                rows.restore(encoder.finished(out)[:, extra:])
            )

        def keep_weights(layer: Layer, inputs: tuple[Any, ...]) -> None:
            observed.attentions.append(
                _attention_weights(layer, rows, extra, *inputs[:4])
            )

        with ExitStack() as hooks:
            if rows.embeds is not None:
                hook = encoder.embeddings.token.register_forward_hook(
                    lambda *_: rows.embeds
                )
                hooks.callback(hook.remove)
            for part in (encoder.embeddings, *encoder.layers) if states else ():
                hooks.callback(part.register_forward_hook(keep_state).remove)
            for layer in encoder.layers if weights else ():
                hooks.callback(layer.register_forward_pre_hook(keep_weights).remove)
            yield observed

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)  # LayerNorm
        if isinstance(module, nn.Linear | nn.Embedding):
            initialize(module, self.encoder_config.hidden)


def _attention_weights(
    layer: Layer,
    rows: TokenRows,
    extra: int,
    x: Tensor,
    lengths: Tensor | None,
    turns: Rotation | None,
    owners: Tensor | None,
) -> Tensor:
    """Weights (B, H, L, L) of a layer for its arguments, zero at padding, in the order of the given rows.

    `layer_weights` needs rows without padding.
    """
    tokens = x.shape[1]
    out = x.new_zeros(len(x), layer.heads, tokens, tokens, dtype=torch.float32)
    for row in range(len(x)):
        end = tokens if lengths is None else int(lengths[row])
        this = slice(row, row + 1)
        if turns is not None:
            of_row = (
                part[..., :end, :] if part.dim() == 2 else part[this, :, :end]
                for part in turns
            )
        angles = None if turns is None else Rotation(*of_row)
        owned = None if owners is None else owners[this, :end]
        out[row, :, :end, :end] = layer_weights(
            layer, x[this, :end], None, angles, owned
        )[0].float()
    if rows.order is None:
        return out
    positions = torch.cat(
        [torch.arange(extra, device=x.device).expand(len(x), -1), rows.order + extra], 1
    )
    positions = positions.argsort(1)[:, None]  # (B, 1, L)
    out = out.gather(2, positions[..., None].expand_as(out))
    return out.gather(3, positions[:, :, None].expand_as(out))


class HubEncoder(HubModel):
    """Hidden states of a model of any task, without what its head adds to the encoder's input."""

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> Any:
        """Token ids (B, L), or embeddings (B, L, D) of tokens → `last_hidden_state` (B, L, D)."""
        rows = self.rows(input_ids, attention_mask, token_type_ids, inputs_embeds)
        with self.observed(rows, output_hidden_states, output_attentions) as observed:
            last = self.encoder()(rows.ids, rows.lengths, rows.segments)
        return BaseModelOutput(
            last_hidden_state=rows.restore(last),
            **observed.outputs(),
        )


class HubMaskedLM(HubModel):
    """Logits of the masked-token head at every token."""

    kinds = (PretrainingSettings,)
    output: ClassVar[Any] = MaskedLMOutput

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> Any:
        """Token ids (B, L) → `logits` (B, L, V); `labels` (B, L), −100 where none, give the mean `loss`."""
        rows = self.rows(input_ids, attention_mask, token_type_ids, inputs_embeds)
        encoder = self.encoder()
        with self.observed(rows, output_hidden_states, output_attentions) as observed:
            hidden = encoder(rows.ids, rows.lengths, rows.segments)
        assert isinstance(self.network, PretrainingNetwork)
        logits = self.network.masked_tokens(
            hidden.flatten(0, 1), encoder.embeddings.token.weight
        )
        logits = rows.restore(logits.view(*rows.ids.shape, -1))
        loss = None if labels is None else self.loss(logits, labels)
        return self.output(loss=loss, logits=logits, **observed.outputs())

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy (nats) of the labels that are not −100."""
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class HubCausalLM(HubMaskedLM, GenerationMixin):  # type: ignore[misc]
    """Logits of the token after every token; the model must be causal.

    `generate` of the library computes all tokens again for each new one; `bigbird_dna` has a faster one.
    """

    output = CausalLMOutput

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy (nats); labels are those of the tokens themselves, as in the library."""
        return super().loss(logits[:, :-1], labels[:, 1:])

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, **inputs: Any
    ) -> dict[str, Any]:
        """The inputs of `forward`."""
        return {"input_ids": input_ids, "attention_mask": inputs.get("attention_mask")}


class HubClassifier(HubModel):
    """Logits of promoters, tracks, labels or classes; predictions, if they are those of a regression.

    Promoter models with base positions or regressions, and chromatin models, need whole windows: rows are the
    tokens of a window between [CLS] and [SEP]. Chromatin models have the logits of the central bin. A
    pretrained encoder gets a new head of `num_labels` outputs on the mean over tokens.
    """

    kinds = (ClassificationSettings, ClassifierSettings, ChromatinSettings)

    def fitted(self, settings: Settings) -> Settings:
        """The settings; for a pretrained encoder, those of a new head, also in the configuration."""
        config = self.config
        if isinstance(settings, PretrainingSettings) or type(settings) is Settings:
            names = [str(config.id2label[index]) for index in range(config.num_labels)]
            settings = ClassificationSettings(
                outputs=len(names), labels=tuple(names), pooling="mean"
            )
            head = {"task": settings.task, "settings": settings.as_json()}
            config.bigbird_dna = {**config.bigbird_dna, **head}
            self._keys_to_ignore_on_load_unexpected = [
                r"^network\.(masked_tokens|next_sentence)\."
            ]
        outputs = len(label_names(settings) or ())
        if outputs and outputs != config.num_labels:
            raise ModelError(
                f"num_labels {config.num_labels}: the model has {outputs} outputs; only a pretrained model "
                "gets a new head"
            )
        return settings

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> Any:
        """Token ids (B, L) → `logits` (B, T); `labels` (B,) or (B, T) give the mean `loss`."""
        rows = self.rows(input_ids, attention_mask, token_type_ids, inputs_embeds)
        settings = self.settings
        with self.observed(rows, output_hidden_states, output_attentions) as observed:
            if isinstance(settings, ChromatinSettings):
                spans, central = self._bins(rows, settings)
                logits = self.network(rows.ids, rows.lengths, spans, central)[:, 0]
            else:
                bases = (
                    self._bases(rows, settings)
                    if isinstance(settings, ClassifierSettings)
                    else None
                )
                logits = self.network(rows.ids, rows.lengths, rows.segments, bases)
        if (
            isinstance(self._loaded, LoadedSequenceModel)
            and self._loaded.settings.kind == "regression"
        ):
            logits = self._loaded.finish(logits)
        loss = None if labels is None else self.loss(logits.float(), labels)
        return SequenceClassifierOutput(
            loss=loss,
            logits=logits,
            **observed.outputs(),
        )

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean loss by `problem_type`; if it is null, by the labels' type and number, as in the library,
        whose name for it is then stored in the configuration."""
        kind = self.config.problem_type
        if kind is None:
            several = "multi_label" if labels.is_floating_point() else "single_label"
            kind = "regression" if logits.shape[1] == 1 else f"{several}_classification"
            self.config.problem_type = kind
        if kind == "regression":
            return F.mse_loss(logits, labels.view_as(logits).to(logits.dtype))
        if kind == "multi_label_classification":
            return F.binary_cross_entropy_with_logits(
                logits, labels.view_as(logits).to(logits.dtype)
            )
        return F.cross_entropy(logits, labels.flatten())

    def _bases(self, rows: TokenRows, settings: ClassifierSettings) -> BaseBatch | None:
        """The bases of windows, for base positions and the regressions of an ensemble."""
        if settings.offsets is None:
            return None
        texts = self._texts(rows, settings.window)
        ids = [
            row[:length]
            for row, length in zip(rows.ids.cpu().numpy(), rows.lengths, strict=True)
        ]
        none = [0] * len(ids)
        bases = settings.offsets.token_bases(
            self.loaded.tokenizer, ids, texts, none, none
        )
        batch = bases.padded(np.arange(len(ids)), rows.ids.shape[1]).batch()
        return BaseBatch(*(part.to(rows.ids.device) for part in batch))

    def _bins(
        self, rows: TokenRows, settings: ChromatinSettings
    ) -> tuple[Tensor, slice]:
        """The tokens of the bins that the network needs (B, K, 2), and the slice of the central one."""
        window, size = settings.window, settings.bin
        sizes = [len(text) for text in self._texts(rows, window)]
        count = bins_shown(window, size, settings.bin_layers)
        bins = np.broadcast_to(centered_bins(window, size, count), (len(sizes), count))
        placed = place_bins(
            self.loaded.tokenizer,
            rows.inner(),
            sizes,
            bins,
            size,
            self.encoder_config.max_length,
        )
        return torch.from_numpy(placed.spans), slice(count // 2, count // 2 + 1)

    def _texts(self, rows: TokenRows, window: int) -> list[str]:
        """The bases of each row; `UsageError` unless they are a window."""
        tokenizer = self.loaded.tokenizer
        lengths, texts = tokenizer.piece_lengths, []
        for number, row in enumerate(rows.inner()):
            texts.append(
                "".join(
                    tokenizer.letters[token].ljust(lengths[token], "N") for token in row
                )
            )
            if len(texts[-1]) != window:
                raise UsageError(
                    f"input_ids: row {number} covers {len(texts[-1]):,} bp between its first and last token; "
                    f"the model needs windows of {window:,} bp"
                )
        return texts


class HubQuestionAnswerer(HubModel):
    """Scores of an answer's first and last token, in rows [CLS] question [SEP] context [SEP]."""

    kinds = (QuestionAnsweringSettings,)

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> Any:
        """Token ids (B, L) → `start_logits`, `end_logits` (B, L); positions (B,) give the mean `loss`."""
        rows = self.rows(input_ids, attention_mask, token_type_ids, inputs_embeds)
        asked = question_lengths(rows.ids, self.config.sep_token_id)
        with self.observed(rows, output_hidden_states, output_attentions) as observed:
            scores = self.network(rows.ids, rows.lengths, asked, rows.segments)
        start, end = map(rows.restore, scores)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = (
                F.cross_entropy(start, start_positions)
                + F.cross_entropy(end, end_positions)
            ) / 2
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start,
            end_logits=end,
            **observed.outputs(),
        )
