"""Exported models are used as others of HuggingFace's library: tuned, with PEFT too, and imported again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.huggingface.exchange import export_huggingface, import_huggingface
from bigbird_dna.model.attention_maps import layer_weights
from bigbird_dna.model.directory import load
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.cli.command import Run, frame
from tests.huggingface.test_model_code import (
    CLASSES,
    FAMILIES,
    masked_batch,
    opened,
    own,
    own_modules,
    rows,
    transformers,
)
from tests.toys import random_dna, update_json, written

__all__ = ["own_modules"]  # a fixture

pytestmark = [  # about calls of PEFT
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),
]


def exported(
    tmp_path: Path,
    tokenizer: DnaTokenizer,
    name: str,
    auto: str | None = None,
    **options: Any,
) -> Any:
    """The checkpoint of a random model, opened."""
    own(tmp_path, tokenizer, FAMILIES[name])
    export_huggingface(tmp_path / "own", tmp_path / "hf", "always")
    return opened(tmp_path / "hf", auto or FAMILIES[name].auto, **options)


def values(found: Any) -> torch.Tensor:
    return next(
        found[key]
        for key in ("logits", "last_hidden_state", "start_logits")
        if key in found
    )


@pytest.mark.parametrize(
    ("name", "auto"),
    [("rotary", None), ("rotary", "AutoModel"), ("rotary", CLASSES), ("global tokens", None),
     ("causal", None), ("performer", None), ("classes", None)],
)  # fmt: skip
def test_embeddings_take_the_place_of_ids(
    tmp_path: Path, tokenizer: DnaTokenizer, name: str, auto: str | None
) -> None:
    """The same outputs, at any padding, and gradients of the embeddings."""
    model = exported(
        tmp_path,
        tokenizer,
        name,
        auto,
        **({"num_labels": 3} if auto == CLASSES else {}),
    )
    ids, mask = masked_batch(rows(load(tmp_path / "own")), "gaps")
    embeds = model.get_input_embeddings()(ids).detach().requires_grad_()
    found = values(model(inputs_embeds=embeds, attention_mask=mask))
    shown = mask.bool() if found.dim() == 3 else slice(None)
    assert (found - values(model(input_ids=ids, attention_mask=mask)))[
        shown
    ].abs().max() < 1e-6
    (slope,) = torch.autograd.grad(found[shown].square().sum(), embeds)
    assert (
        slope[mask.bool()].any(1).float().mean() > 0.9 and not slope[~mask.bool()].any()
    )
    with pytest.raises(UsageError, match="either input_ids or inputs_embeds"):
        model(input_ids=ids, inputs_embeds=embeds)


@pytest.mark.parametrize("name", ["bases of tokens", "promoter", "chromatin"])
def test_models_that_read_bases_need_ids(
    tmp_path: Path, tokenizer: DnaTokenizer, name: str
) -> None:
    model = exported(tmp_path, tokenizer, name)
    with pytest.raises(UsageError, match="give input_ids"):
        model(inputs_embeds=torch.zeros(1, 9, 16))


@pytest.mark.parametrize(
    "name",
    ["rotary", "global tokens", "performer", "classes", "ModernBERT", "chromatin"],
)
@torch.no_grad()
def test_attention_weights_and_hidden_states_are_those_of_each_row(
    tmp_path: Path, tokenizer: DnaTokenizer, name: str
) -> None:
    """Alone, and in a batch with padding anywhere; weights are those of `layer_weights`."""
    model = exported(tmp_path, tokenizer, name)
    own_model = load(tmp_path / "own")
    text = random_dna(60, 5)
    row = torch.tensor(
        [tokenizer.cls_id, *map(int, tokenizer.encode(text)), tokenizer.sep_id]
    )
    other = rows(own_model)[2]
    ids, mask = masked_batch([row, other], "gaps")
    found = model(ids, mask, output_attentions=True, output_hidden_states=True)
    plain = values(model(ids, mask))
    assert torch.equal(plain[0], values(found)[0])
    wanted: list[torch.Tensor] = []
    encoder = next(m for m in own_model.network.modules() if isinstance(m, Encoder))
    for layer in encoder.layers:
        layer.register_forward_pre_hook(
            lambda layer, inputs: wanted.append(
                layer_weights(layer, *inputs)[0].float()
            )
        )
    own_model.embed([text], device="cpu")
    layers, extra = own_model.config.layers, own_model.config.num_global_tokens
    assert len(found.attentions) == layers and len(found.hidden_states) == layers + 1
    places = torch.cat([torch.arange(extra), mask[0].nonzero()[:, 0] + extra])
    for weights, expected in zip(found.attentions, wanted, strict=True):
        assert weights.shape == (
            2,
            own_model.config.heads,
            ids.shape[1] + extra,
            ids.shape[1] + extra,
        )
        shown = weights[0][:, places][:, :, places]
        assert (shown - expected).abs().max() < 1e-5
        assert (
            weights[0].sum(-1)[:, places] - 1
        ).abs().max() < 1e-5  # nothing on padding
    alone = model(row[None], output_hidden_states=True).hidden_states
    for state, expected in zip(found.hidden_states, alone, strict=True):
        assert (state[0][mask[0].bool()] - expected[0]).abs().max() < 1e-5
    assert len(model(ids, mask, output_hidden_states=True, return_dict=False)) == 2


def test_layers_are_computed_again_if_activations_are_not_kept(
    tmp_path: Path, tokenizer: DnaTokenizer
) -> None:
    """With the same gradients, by the library's switch."""
    model = exported(tmp_path, tokenizer, "rotary").train()
    ids, mask = masked_batch(rows(load(tmp_path / "own")), "right")
    calls: list[int] = []
    model.encoder().layers[0].register_forward_pre_hook(lambda *_: calls.append(1))
    slopes = []
    for switch in (
        None,
        "activation_checkpointing_enable",
        "activation_checkpointing_disable",
    ):
        if switch is not None:
            getattr(model, switch)()
        calls.clear()
        model.zero_grad()
        torch.manual_seed(0)
        model(ids, mask, labels=ids.where(mask.bool(), -100)).loss.backward()
        assert len(calls) == 1 + (switch == "activation_checkpointing_enable")
        slopes.append(model.get_input_embeddings().weight.grad.clone())
    assert (
        all((one - slopes[0]).abs().max() < 1e-6 for one in slopes)
        and slopes[0].abs().max() > 1e-3
    )


KINDS: dict[str, dict[str, Any]] = {
    "multiclass": {"num_labels": 2, "id2label": {0: "other", 1: "rich"}},
    "multilabel": {"num_labels": 2, "problem_type": "multi_label_classification"},
    "binary": {"num_labels": 1, "problem_type": "multi_label_classification"},
    "regression": {"num_labels": 1},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lora", [False, True])
def test_a_tuned_classifier_is_imported_and_scores(
    run: Run, tmp_path: Path, tokenizer: DnaTokenizer, kind: str, lora: bool
) -> None:
    """export-hf, tuning in the library or with PEFT, import-hf, score-sequences and predict."""
    torch.manual_seed(1)
    model = exported(tmp_path, tokenizer, "rotary", CLASSES, **KINDS[kind]).train()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    texts = [random_dna(100, seed) for seed in range(8)]
    inputs = words(texts, return_tensors="pt", padding=True)
    labels = torch.tensor([text.count("G") > 20 for text in texts]).long()
    if kind != "multiclass":
        labels = torch.stack([labels] * KINDS[kind]["num_labels"], 1).float()
    tuned = model
    if lora:
        peft = pytest.importorskip("peft")
        targets = ["query", "key", "value"]
        config = peft.LoraConfig(
            task_type="SEQ_CLS", target_modules=targets, init_lora_weights=False, r=2
        )
        tuned = peft.get_peft_model(model, config)
        trained = {name for name, one in tuned.named_parameters() if one.requires_grad}
        assert sum("lora_" in name for name in trained) == 2 * 3 * 2
        assert any(
            "classifier" in name and name.endswith("output.weight") for name in trained
        )
    optimizer = torch.optim.Adam(
        [one for one in tuned.parameters() if one.requires_grad], lr=2e-3
    )
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        torch.manual_seed(0)  # of dropout
        loss = tuned(**inputs, labels=labels).loss
        loss.backward()
        assert all(
            one.grad is not None
            for name, one in tuned.named_parameters()
            if "lora_" in name
        )
        optimizer.step()
        losses.append(loss.item())
    assert min(losses) < losses[0]
    tuned.eval()
    with torch.no_grad():
        before = tuned(**inputs).logits
        if lora:
            model = tuned.merge_and_unload()
            assert (model(**inputs).logits - before).abs().max() < 1e-4
    model.save_pretrained(tmp_path / "tuned")
    assert run("import-hf", tmp_path / "tuned", tmp_path / "back").code == 0
    back = load(tmp_path / "back")
    assert back.settings.kind == kind  # type: ignore[attr-defined]
    expected = (
        before
        if kind == "regression"
        else before.softmax(1)
        if kind == "multiclass"
        else before.sigmoid()
    )
    found = back.predict(texts, device="cpu")
    assert np.abs(found - expected.numpy()).max() < 1e-4
    fasta = written(
        tmp_path / "x.fa", "".join(f">{n}\n{text}\n" for n, text in enumerate(texts))
    )
    result = run(
        "score-sequences",
        tmp_path / "back",
        fasta,
        "-o",
        tmp_path / "scores.tsv",
        "--device",
        "cpu",
    )
    assert result.code == 0, result
    table = frame((tmp_path / "scores.tsv").read_text())
    columns = {
        "multiclass": ["other", "rich"],
        "multilabel": ["LABEL_0", "LABEL_1"],
        "binary": ["score"],
    }
    scores = table[columns.get(kind, ["LABEL_0"])].to_numpy(float)
    assert np.abs(scores - expected.numpy()).max() < 1e-4


def test_a_tokenizer_name_cannot_leave_the_directory(
    tmp_path: Path, tokenizer: DnaTokenizer
) -> None:
    """Neither when a checkpoint is read nor when it is written."""
    model = exported(tmp_path, tokenizer, "rotary")
    victim = written(tmp_path / "victim", "mine")
    model.config.bigbird_dna["tokenizer_file"] = "../victim"
    with pytest.raises(ModelError, match=r"tokenizer_file '[.]{2}/victim' must be"):
        model.save_pretrained(tmp_path / "out")
    assert victim.read_text() == "mine" and not (tmp_path / "out").exists()
    description = {**model.config.bigbird_dna}
    update_json(tmp_path / "hf/config.json", bigbird_dna=description)
    with pytest.raises(ModelError, match="must be one of"):
        opened(tmp_path / "hf", "AutoModelForMaskedLM")
    with pytest.raises(ModelError, match="must be one of"):
        import_huggingface(tmp_path / "hf", tmp_path / "back")


@pytest.mark.parametrize("command", ["score-promoters", "score-sequences"])
def test_a_checkpoint_in_place_of_a_model_is_pointed_to_its_import(
    run: Run, tmp_path: Path, tokenizer: DnaTokenizer, command: str
) -> None:
    own(tmp_path, tokenizer, FAMILIES["promoter"])
    export_huggingface(tmp_path / "own", tmp_path / "hf")
    fasta = written(tmp_path / "x.fa", ">a\nACGT\n")
    for kept in (True, False):
        if not kept:  # as checkpoints with other files of weights
            (tmp_path / "hf/model.safetensors").unlink()
            (tmp_path / "hf/tokenizer.json").unlink()
        found = run(command, tmp_path / "hf", fasta)
        assert found.code == 1
        assert (
            f"{tmp_path / 'hf'}: a HuggingFace checkpoint (model_type 'bigbird_dna')"
            in found.err
        )
        assert "bigbird-dna import-hf" in found.err
    (tmp_path / "lora").mkdir()
    written(tmp_path / "lora/adapter_config.json", "{}")
    found = run(command, tmp_path / "lora", fasta)
    assert found.code == 1 and "an adapter of PEFT, not a model directory" in found.err


@pytest.mark.parametrize(
    ("name", "options", "license", "pipeline"),
    [
        ("promoter", (), None, "text-classification"),
        ("rotary", ("--license", "CC-BY-4.0"), "cc-by-4.0", "fill-mask"),
        ("causal", ("--license", "My own"), "other", "text-generation"),
        ("encoder", (), None, "feature-extraction"),
    ],
)
def test_the_readme_is_a_model_card(
    run: Run,
    tmp_path: Path,
    tokenizer: DnaTokenizer,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    options: tuple[str, ...],
    license: str | None,
    pipeline: str,
) -> None:
    """Its metadata are HuggingFace's, its example runs, and it has the metrics of the model."""
    hub = pytest.importorskip("huggingface_hub")
    own(tmp_path, tokenizer, FAMILIES[name])
    update_json(tmp_path / "own/metrics.json", test={"auroc": 0.87654})
    assert run("export-hf", tmp_path / "own", tmp_path / "hf", *options).code == 0
    card = hub.ModelCard.load(tmp_path / "hf/README.md")
    data = card.data.to_dict()
    assert data["library_name"] == "transformers" and "dna" in data["tags"]
    assert data.get("license") == license and data.get("pipeline_tag") == pipeline
    assert ("license_name" in data) == (license == "other")
    assert "0.8765" in card.text and "import-hf hf" in card.text
    example = card.text.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(example, names)
    assert values(names["outputs"]).isfinite().all()
