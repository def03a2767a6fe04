"""ModernBERT-like models of DNA against HuggingFace: local and global layers, gated feed-forward."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import ConfigError, ModelError
from bigbird_dna.huggingface.exchange import export_huggingface, import_huggingface
from bigbird_dna.huggingface.starting import with_start
from bigbird_dna.huggingface.tokenizer_files import write_tokenizer
from bigbird_dna.model.batching import pad
from bigbird_dna.model.directory import load
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.inference import prepared
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.cli.command import invoke
from tests.golden.messages import fails
from tests.huggingface.test_starting import starting
from tests.nlp.conftest import shuffle_weights
from tests.toys import random_dna, small_encoder, update_json

transformers = pytest.importorskip(
    "transformers",
    reason="transformers is not installed: pip install 'bigbird-dna[hf]'",
)

SIZES: dict[str, Any] = {
    **{
        "hidden_size": 32,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "intermediate_size": 24,
    },
    **{
        "max_position_embeddings": 512,
        "local_attention": 16,
        "pad_token_id": 0,
        "cls_token_id": 2,
    },
    **{"sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "biases": {
        "norm_bias": True,
        "attention_bias": True,
        "mlp_bias": True,
        "classifier_bias": True,
    },
    "every second": {
        "global_attn_every_n_layers": 2,
        "global_rope_theta": 500.0,
        "local_rope_theta": 50.0,
    },
}


def checkpoint(
    path: Path,
    tokenizer: DnaTokenizer,
    name: str = "ModernBertForMaskedLM",
    **changes: Any,
) -> Path:
    config = transformers.ModernBertConfig(
        **{"vocab_size": tokenizer.vocabulary, **SIZES, **changes}
    )
    torch.manual_seed(1)
    network = getattr(transformers, name)(config)
    shuffle_weights(network, config.hidden_size)
    network.save_pretrained(path)
    write_tokenizer(tokenizer, path, config.max_position_embeddings)
    return path


def their(path: Path, name: str = "ModernBertForMaskedLM") -> Any:
    return getattr(transformers, name).from_pretrained(path, dtype=torch.float32).eval()


def rows(tokenizer: DnaTokenizer, *lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    made = [
        np.array([2, *tokenizer.encode(random_dna(length, length)), 3], np.int32)
        for length in lengths
    ]
    return pad(made, tokenizer.pad_id)


@pytest.mark.parametrize("variant", VARIANTS)
def test_hidden_states_and_logits_are_theirs(
    variant: str, tokenizer: DnaTokenizer, tmp_path: Path
) -> None:
    """Of padded batches too, also below and around the window."""
    path = checkpoint(tmp_path / "hf", tokenizer, **VARIANTS[variant])
    model = import_huggingface(path, tmp_path / "ours")
    assert (
        model.task == "pretraining" and load(tmp_path / "ours").config == model.config
    )
    network = their(path)
    for lengths in ((700, 30, 300), (8,), (40, 39)):
        ids, sizes = rows(tokenizer, *lengths)
        present = torch.arange(ids.shape[1]) < sizes[:, None]
        with torch.inference_mode():
            theirs = network(
                ids, attention_mask=present.long(), output_hidden_states=True
            )
            found = model.network(ids, sizes, None, present.flatten().nonzero()[:, 0])
            hidden = model.one_encoder()(ids, sizes)
        assert theirs.logits[present].std() > 0.3  # so that a bound means something
        assert (found.tokens - theirs.logits[present]).abs().max() < 1e-4
        assert (hidden - theirs.hidden_states[-1])[present].abs().max() < 1e-4


def test_the_bare_encoder_and_old_configurations(
    tokenizer: DnaTokenizer, tmp_path: Path
) -> None:
    """Before version 5 of their library, keys were global_rope_theta and global_attn_every_n_layers."""
    path = checkpoint(
        tmp_path / "hf", tokenizer, "ModernBertModel", **VARIANTS["every second"]
    )
    model = import_huggingface(path, tmp_path / "ours")
    ids, sizes = rows(tokenizer, 200)
    with torch.inference_mode():
        expected = their(path, "ModernBertModel")(ids).last_hidden_state
        assert (model.one_encoder()(ids, sizes) - expected).abs().max() < 1e-4
    values = json.loads((path / "config.json").read_text())
    for key in ("layer_types", "rope_parameters"):
        values.pop(key, None)
    (path / "config.json").write_text(json.dumps(values | VARIANTS["every second"]))
    old = import_huggingface(path, tmp_path / "old")
    assert old.config == model.config and old.sha256 == model.sha256


def test_a_step_of_fine_tuning_is_theirs(
    tokenizer: DnaTokenizer, tmp_path: Path
) -> None:
    """Loss and gradients of masked tokens; their joined projections are three of ours."""
    path = checkpoint(tmp_path / "hf", tokenizer)
    ours, theirs = import_huggingface(path, tmp_path / "ours").network, their(path)
    ids, _ = rows(tokenizer, 400, 90)
    masked = torch.tensor([3, 40, 77])
    F.cross_entropy(
        theirs(ids).logits.flatten(0, 1)[masked], ids.flatten()[masked]
    ).backward()
    lengths = torch.full((2,), ids.shape[1])
    F.cross_entropy(
        ours(ids, lengths, None, masked).tokens, ids.flatten()[masked]
    ).backward()
    own, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
    for number in range(5):
        joined = other[f"model.layers.{number}.attn.Wqkv.weight"].grad
        parts = [
            own[f"encoder.layers.{number}.{part}.weight"].grad
            for part in ("query", "key", "value")
        ]
        assert joined is not None and joined.abs().max() > 0
        assert (torch.cat(parts) - joined).abs().max() < 1e-5 * max(
            1.0, float(joined.abs().max())
        )
        wide = other[f"model.layers.{number}.mlp.Wi.weight"].grad
        found = own[f"encoder.layers.{number}.intermediate.weight"].grad
        assert (found - wide).abs().max() < 1e-5 * max(1.0, float(wide.abs().max()))


def test_layers_are_computed_alike_on_every_way(tokenizer: DnaTokenizer) -> None:
    """With and without gradients, recomputed, prepared, one layer after the other, and with other rows."""
    config = small_encoder(
        tokenizer.vocabulary, layers=4, attention="full", position_encoding="rotary", norm="pre",
        feed_forward="gated", local_window=5, global_every=3, dropout=0.0,
    )  # fmt: skip
    assert [config.is_local(number) for number in range(4)] == [
        False,
        True,
        True,
        False,
    ]
    torch.manual_seed(3)
    encoder = Encoder(config)
    ids, sizes = rows(tokenizer, 60, 120, 33)
    present = torch.arange(ids.shape[1]) < sizes[:, None]
    expected = encoder.train()(ids, sizes)
    again = Encoder(config.model_copy(update={"gradient_checkpointing": True})).train()
    again.load_state_dict(encoder.state_dict())
    assert torch.allclose(again(ids, sizes), expected, atol=1e-6)
    visited: list[torch.Tensor] = []
    encoder.eval()
    with torch.inference_mode():
        assert torch.allclose(
            encoder(ids, sizes)[present], expected[present], atol=1e-5
        )
        encoder.encode(ids, sizes, visit=visited.append)
        for number, hidden in enumerate(visited):
            assert torch.allclose(
                encoder.up_to(number)(ids, sizes)[present], hidden[present], atol=1e-5
            )
        for row, size in enumerate(sizes.tolist()):
            alone = encoder(ids[row : row + 1, :size], None)
            assert torch.allclose(alone[0], expected[row, :size], atol=1e-5)
        with prepared(encoder, 512):
            assert torch.allclose(
                encoder(ids, sizes)[present], expected[present], atol=1e-5
            )
    assert len(visited) == 5
    # A token beyond the windows of the local layers is seen in the global ones only.
    near = encoder.layers[1].mechanism
    assert near is not None and encoder.layers[0].mechanism is None
    q, k, v = torch.randn(3, 1, 2, 40, 8)
    other = k.clone()
    other[:, :, 30:] = 0
    hidden = torch.zeros(1, 40, 16)
    both = [
        near(q, keys, v, lengths=None, dropout=0.0, hidden=hidden)
        for keys in (k, other)
    ]
    same = (both[0] - both[1]).abs().amax((0, 1, 3)) < 1e-6
    assert same.tolist() == [place < 25 for place in range(40)]


def test_it_is_fine_tuned_by_the_commands(
    tokenizer: DnaTokenizer, tmp_path: Path
) -> None:
    path = checkpoint(tmp_path / "hf", tokenizer)
    assert with_start(starting(path)).encoder.feed_forward == "gated"
    lines = [
        f"{'TATA' * (n % 2)}{random_dna(60 - 4 * (n % 2), n)},{n % 2}\n"
        for n in range(60)
    ]
    (tmp_path / "x.csv").write_text("sequence,label\n" + "".join(lines))
    invoke("import-hf", path, tmp_path / "imported")
    settings = [
        "training.steps=3",
        "training.batch_size=8",
        "training.evaluate_every=3",
        "baselines.cnn=false",
        "baselines.shuffled_labels=false",
        "model.ensemble=[]",
    ]
    words = [word for one in settings for word in ("--set", f"sequences.{one}")]
    own = ("--pretrained", tmp_path / "imported", "-o", tmp_path / "model")
    invoke("finetune-sequences", tmp_path / "x.csv", *own, *words)
    model = load(tmp_path / "model")
    assert (
        model.config.norm == "pre"
        and np.isfinite(model.predict("ACGT" * 15, device="cpu")).all()
    )


def test_what_is_not_supported_is_named(
    tokenizer: DnaTokenizer, tmp_path: Path
) -> None:
    path = checkpoint(tmp_path / "hf", tokenizer)
    import_huggingface(path, tmp_path / "ours")
    with fails(ModelError, tmp_path / "ours"):
        export_huggingface(tmp_path / "ours", tmp_path / "exported")
    original = (path / "config.json").read_bytes()
    changes: list[dict[str, Any]] = [
        {"layer_types": ["sliding_attention"] * 5},
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "yarn", "rope_theta": 1.0}
            }
        },
        {"hidden_activation": "swiglu"},
        {"classifier_activation": "relu"},
        {"intermediate_size": 25},
        {"local_attention": "all"},
        {"architectures": ["ModernBertForSequenceClassification"]},
    ]
    for change in changes:
        (path / "config.json").write_bytes(original)
        update_json(path / "config.json", **change)
        with fails(ModelError):
            import_huggingface(path, tmp_path / "out")
    (path / "config.json").write_bytes(original)
    tensors = load_file(path / "model.safetensors")
    del tensors["model.layers.1.attn.Wqkv.weight"]
    save_file(tensors, path / "model.safetensors")
    with fails(ModelError, "model.layers.1.attn.Wqkv.query.weight"):
        import_huggingface(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    for wrong in (
        {"local_window": 4, "attention": "bigbird"},
        {"norm": "pre", "causal": True},
    ):
        with pytest.raises((ConfigError, ValueError)):
            EncoderConfig.model_validate({"hidden": 16, "heads": 2, **wrong})
