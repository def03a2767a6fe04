"""Checkpoints with model code: AutoModel runs the network of this package, and import-hf reads them back."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.huggingface.exchange import export_huggingface, import_huggingface
from bigbird_dna.huggingface.starting import with_start
from bigbird_dna.model.batching import window_rows
from bigbird_dna.model.directory import load, save
from bigbird_dna.model.ensemble import DyadMember, KmerMember, PositionMember
from bigbird_dna.model.heads import question_lengths
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import (
    ChromatinSettings,
    NamedTrack,
    PretrainingSettings,
    PromoterSettings,
    QuestionAnsweringSettings,
    SequenceSettings,
    Settings,
)
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.cli.command import Run, refused
from tests.golden.messages import fails
from tests.huggingface.test_starting import starting
from tests.toys import random_dna, random_model, small_encoder, update_json

transformers = pytest.importorskip(
    "transformers",
    reason="transformers is not installed: pip install 'bigbird-dna[hf]'",
)
modules = pytest.importorskip("transformers.dynamic_module_utils")


@pytest.fixture(scope="module", autouse=True)
def own_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Code of checkpoints is copied to a folder of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        patch.setattr(
            modules, "HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules"))
        )
        yield


class Family(NamedTuple):
    """A kind of model: its head's settings, its encoder, and the class that loads it."""

    settings: Settings
    encoder: dict[str, Any]
    auto: str = "AutoModelForMaskedLM"


MASKED = PretrainingSettings(next_sentence=False)
CLASSES = "AutoModelForSequenceClassification"
WINDOW = 60
PROMOTER = PromoterSettings(
    upstream=40, downstream=20, pooling="mean", jitter=0, views=1, base_positions=True, ensemble=True,
    ensemble_kmers=3,
)  # fmt: skip
TRACKS = (NamedTrack(track="one", group="a"), NamedTrack(track="two", group="b"))
CHROMATIN = ChromatinSettings(
    window=WINDOW, bin=12, pooling="bin", bin_layers=1, members=1, tracks=TRACKS, ensemble_kmers=3,
    ensemble_dyads=2,
)  # fmt: skip
SEQUENCES: dict[str, Any] = {"pooling": "mean", "jitter": 0, "views": 1}
REGRESSION = SequenceSettings(
    kind="regression",
    outputs=("a", "b"),
    means=(3.0, -5.0),
    deviations=(2.0, 0.5),
    **SEQUENCES,
)
MODERN = {"norm": "pre", "feed_forward": "gated", "position_encoding": "rotary"}
FAMILIES = {
    "rotary": Family(PretrainingSettings(), {"position_encoding": "rotary"}),
    "pre-norm block-sparse": Family(MASKED, MODERN),
    "ModernBERT": Family(
        MASKED, {**MODERN, "attention": "full", "local_window": 5, "layers": 4}
    ),
    "global tokens": Family(
        MASKED,
        {
            "attention": "bigbird_etc",
            "num_global_tokens": 3,
            "relative_max_distance": 4,
        },
    ),
    "performer": Family(MASKED, {"attention": "performer"}),
    "reformer": Family(MASKED, {"attention": "reformer"}),
    "combiner": Family(MASKED, {"attention": "combiner_fixed"}),
    "bases of tokens": Family(
        MASKED,
        {
            "position_encoding": "rotary_bp",
            "kmers": 3,
            "convolution": 5,
            "reversible": True,
        },
    ),
    "causal": Family(MASKED, {"causal": True}, "AutoModelForCausalLM"),
    "encoder": Family(Settings(), {"position_encoding": "rotary"}, "AutoModel"),
    "answers": Family(
        QuestionAnsweringSettings(),
        {"position_encoding": "rotary"},
        "AutoModelForQuestionAnswering",
    ),
    "promoter": Family(PROMOTER, {"position_encoding": "rotary"}, CLASSES),
    "chromatin": Family(CHROMATIN, {}, CLASSES),
    "chromatin ensemble": Family(
        CHROMATIN.model_copy(update={"members": 2}), {}, CLASSES
    ),
    "regression": Family(REGRESSION, {"attention": "longformer"}, CLASSES),
    "classes": Family(
        SequenceSettings(kind="multiclass", outputs=("a", "b", "c"), **SEQUENCES),
        {},
        CLASSES,
    ),
}
WINDOWS = {"promoter", "chromatin"}  # tasks whose rows are windows
LENGTHS = {True: (WINDOW,) * 4, False: (230, 31, 150, 4)}


def own(tmp_path: Path, tokenizer: DnaTokenizer, family: Family) -> LoadedModel:
    """A model directory of random weights."""
    sizes = {"layers": 2, "max_length": 256, **family.encoder}
    config = small_encoder(tokenizer.vocabulary, **sizes)
    model, rng = (
        random_model(tokenizer, config, family.settings, seed=3),
        np.random.default_rng(0),
    )
    with torch.no_grad():
        for name, parameter in model.network.named_parameters():
            parameter += 0.1 * torch.randn_like(parameter)
            if name.endswith(("kmers.weight", "base_positions.weight")):
                parameter[0] = 0  # of no base
        for part in model.network.modules():  # regressions, which begin at zero
            if isinstance(part, PositionMember):
                part.set_weights(0.2 * rng.standard_normal((WINDOW, 4)))
            elif isinstance(part, KmerMember):
                part.set_weights(2 * rng.standard_normal(part.weight[:, 1:, :-1].shape))
            elif isinstance(part, DyadMember):
                shape = part.weight.shape
                part.set_weights(
                    rng.integers(0, 999, shape), 0.2 * rng.standard_normal(shape)
                )
    save(tmp_path / "own", model, {}, {}, {})
    return load(tmp_path / "own")


def opened(path: Path, auto: str, **options: Any) -> Any:
    """The checkpoint, of which no tensor is missing or left over unless its head is new."""
    found, report = getattr(transformers, auto).from_pretrained(
        path, trust_remote_code=True, output_loading_info=True, **options
    )
    assert "num_labels" in options or not (
        report["missing_keys"] or report["unexpected_keys"]
    )
    assert not report["mismatched_keys"]
    return found


def rows(model: LoadedModel) -> list[Tensor]:
    """Tokens of sequences of different lengths, or of windows."""
    texts = [
        random_dna(length, length + n)
        for n, length in enumerate(LENGTHS[model.task in WINDOWS])
    ]
    return [
        torch.from_numpy(row).long()
        for row in window_rows(model.tokenizer, texts, 256, 0.5)
    ]


def masked_batch(tokens: list[Tensor], side: str) -> tuple[Tensor, Tensor]:
    """Ids and attention mask of rows padded at one side, or with gaps between any tokens."""
    ids = torch.full((len(tokens), max(map(len, tokens)) + 7), DnaTokenizer.pad_id)
    mask = torch.zeros_like(ids)
    generator = torch.Generator().manual_seed(0)
    for number, row in enumerate(tokens):
        places = torch.arange(len(row)) + (ids.shape[1] - len(row)) * (side == "left")
        if side == "gaps":
            places = (
                torch.randperm(ids.shape[1], generator=generator)[: len(row)]
                .sort()
                .values
            )
        ids[number, places], mask[number, places] = row, 1
    return ids, mask


def expected(model: LoadedModel, row: Tensor) -> Tensor:
    """What the model's own network returns for one row."""
    ids, lengths, network = row[None], torch.tensor([len(row)]), model.network
    if isinstance(model.settings, PretrainingSettings):
        return network(ids, lengths, None, torch.arange(len(row))).tokens
    if model.task == "question-answering":
        return torch.stack(
            network(ids, lengths, question_lengths(ids, model.tokenizer.sep_id))
        )[:, 0].T
    if model.task in WINDOWS:
        text = model.tokenizer.decode(row)
        options = {"both_strands": False} if model.task == "chromatin" else {}
        probability = model.window_probabilities([text], device="cpu", **options)  # type: ignore[attr-defined]
        return torch.from_numpy(np.atleast_1d(probability)).logit().reshape(1, -1)
    found: Tensor = network(ids, lengths)
    if model.task == "sequences" and model.settings is not None:
        kind = model.settings
        assert isinstance(kind, SequenceSettings)
        scale, shift = (
            (kind.deviations, kind.means) if kind.means else ((1.0,) * 3, (0.0,) * 3)
        )
        return found * torch.tensor(scale) + torch.tensor(shift)
    return found[0] if model.task == "encoder" else found


def given(network: Any, ids: Tensor, mask: Tensor | None) -> list[Tensor]:
    """What the checkpoint's network returns for each row, without padding."""
    found = network(input_ids=ids, attention_mask=mask)
    if "start_logits" in found:
        values = torch.stack([found.start_logits, found.end_logits], 2)
    else:
        values = found.logits if "logits" in found else found.last_hidden_state
    if values.dim() == 2:
        return [*values[:, None]]
    return (
        [*values]
        if mask is None
        else [row[one.bool()] for row, one in zip(values, mask, strict=True)]
    )


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_outputs_and_weights_are_those_of_the_model(
    tmp_path: Path, tokenizer: DnaTokenizer, name: str
) -> None:
    """At any padding, in batches and alone, after saving again, and after import."""
    family = FAMILIES[name]
    model = own(tmp_path, tokenizer, family)
    named = export_huggingface(tmp_path / "own", tmp_path / "hf")
    network = opened(tmp_path / "hf", family.auto)
    assert type(network).__name__ == named and not network.training
    weights = model.network.state_dict()
    read = {
        name.replace("classifier.", ""): value
        for name, value in network.network.state_dict().items()
    }
    assert read.keys() == weights.keys() and all(
        torch.equal(read[key], weights[key]) for key in weights
    )

    tokens = rows(model)
    wanted = [expected(model, row) for row in tokens]
    assert torch.cat(wanted).std() > 0.1  # so that a bound means something
    for side in ("right", "left", "gaps"):
        found = given(network, *masked_batch(tokens, side))
        for row, other in zip(found, wanted, strict=True):
            assert row.shape == other.shape and (row - other).abs().max() < 1e-5
    alone = given(network, tokens[0][None], None)
    assert (alone[0] - wanted[0]).abs().max() < 1e-5

    network.save_pretrained(tmp_path / "again")
    again = opened(tmp_path / "again", family.auto)
    both = [given(one, *masked_batch(tokens, "right")) for one in (network, again)]
    assert all(map(torch.equal, *both))
    for directory in ("hf", "again"):
        back = import_huggingface(tmp_path / directory, tmp_path / f"back {directory}")
        assert (back.config, back.settings) == (model.config, model.settings)
        assert load(tmp_path / f"back {directory}").sha256 == model.sha256
    words = transformers.AutoTokenizer.from_pretrained(
        tmp_path / "hf", trust_remote_code=True
    )
    text = "ACGTTGCANNGGATCCTTAA" * 3
    assert words(text)["input_ids"] == [
        tokenizer.cls_id,
        *tokenizer.encode(text),
        tokenizer.sep_id,
    ]


@pytest.mark.parametrize("name", ["rotary", "bases of tokens", "promoter", "chromatin"])
@torch.no_grad()
def test_hidden_states_are_those_of_every_layer(
    tmp_path: Path, tokenizer: DnaTokenizer, name: str
) -> None:
    """Of models of any task, without their heads; no table of positions is lost."""
    model = own(tmp_path, tokenizer, FAMILIES[name])
    export_huggingface(tmp_path / "own", tmp_path / "hf")
    network, encoder = opened(tmp_path / "hf", "AutoModel"), model.one_encoder()
    row = rows(model)[0]
    ids, mask = masked_batch([row], "left")
    deep = not encoder.config.reversible
    found = network(ids, mask, output_hidden_states=deep)
    assert (
        found.last_hidden_state[:, -len(row) :] - encoder(row[None])
    ).abs().max() < 1e-5
    if deep:
        layers: list[Tensor] = []
        encoder.encode(row[None], visit=layers.append)
        pairs = zip(found.hidden_states, layers, strict=True)
        assert all(
            (theirs[:, -len(row) :] - ours).abs().max() < 1e-5 for theirs, ours in pairs
        )
    if encoder.config.position_encoding != "learned":
        turns = [
            one.turns(len(row), torch.device("cpu"), row[None])
            for one in (network.encoder(), encoder)
        ]
        assert all(map(torch.equal, *turns))
    (plain,) = network(ids, mask, return_dict=False)
    assert torch.equal(plain, found.last_hidden_state)


def labels_of(
    name: str, model: LoadedModel, ids: Tensor, mask: Tensor
) -> tuple[Tensor, Any]:
    """Labels for a batch, and the loss that belongs to logits."""
    if isinstance(model.settings, PretrainingSettings):
        labels = torch.where(
            mask.bool() & (torch.arange(ids.shape[1]) % 3 == 1), ids, -100
        )
        shift = int(name == "causal")
        return labels, lambda x: F.cross_entropy(
            x[:, : x.shape[1] - shift].flatten(0, 1), labels[:, shift:].flatten()
        )
    if name == "regression":
        labels = torch.randn(len(ids), 2)
        return labels, lambda x: ((x - labels) ** 2).mean()
    if name == "classes":
        labels = torch.tensor([0, 2, 1, 1])
        return labels, lambda x: -x.log_softmax(1)[torch.arange(4), labels].mean()
    labels = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0]])[
        :, : len(TRACKS)
    ]
    labels = labels[:, 0] if name == "promoter" else labels
    return labels, lambda x: F.softplus((1 - 2 * labels.view_as(x)) * x).mean()


@pytest.mark.parametrize(
    "name",
    ["rotary", "reformer", "causal", "promoter", "chromatin", "regression", "classes"],
)
def test_a_step_of_training_lowers_the_loss(
    tmp_path: Path, tokenizer: DnaTokenizer, name: str
) -> None:
    model = own(tmp_path, tokenizer, FAMILIES[name])
    export_huggingface(tmp_path / "own", tmp_path / "hf")
    network = opened(tmp_path / "hf", FAMILIES[name].auto).train()
    ids, mask = masked_batch(rows(model), "right")
    labels, loss_of = labels_of(name, model, ids, mask)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    losses = []
    for _ in range(2):
        torch.manual_seed(0)
        found = network(ids, mask, labels=labels)
        assert torch.allclose(found.loss, loss_of(found.logits), rtol=1e-4)
        optimizer.zero_grad()
        found.loss.backward()
        optimizer.step()
        losses.append(found.loss.item())
    assert losses[1] < losses[0]
    gradients = [
        one.grad for one in network.encoder().parameters() if one.grad is not None
    ]
    assert gradients and all(one.isfinite().all() for one in gradients)


def test_answers_have_a_loss(tmp_path: Path, tokenizer: DnaTokenizer) -> None:
    own(tmp_path, tokenizer, FAMILIES["answers"])
    export_huggingface(tmp_path / "own", tmp_path / "hf")
    network = opened(tmp_path / "hf", "AutoModelForQuestionAnswering")
    ids = torch.randint(5, tokenizer.vocabulary, (2, 20))
    found = network(
        ids, start_positions=torch.tensor([3, 4]), end_positions=torch.tensor([5, 9])
    )
    start, end = found.start_logits.log_softmax(1), found.end_logits.log_softmax(1)
    assert torch.isclose(
        found.loss, -(start[0, 3] + start[1, 4] + end[0, 5] + end[1, 9]) / 4
    )


@pytest.mark.parametrize("name", ["rotary", "encoder", "causal"])
def test_a_pretrained_encoder_gets_a_new_head(
    tmp_path: Path, tokenizer: DnaTokenizer, name: str
) -> None:
    """Which import-hf reads after training."""
    model = own(tmp_path, tokenizer, FAMILIES[name])
    export_huggingface(tmp_path / "own", tmp_path / "hf")
    labels = {0: "exon", 1: "intron", 2: "other"}
    network = opened(tmp_path / "hf", CLASSES, num_labels=3, id2label=labels)
    ids, mask = masked_batch(rows(model), "right")
    found = network(ids, mask, labels=torch.tensor([0, 1, 2, 2]))
    head = network.network.classifier
    assert found.logits.shape == (4, 3) and head.dense.weight.std() > 0.01
    found.loss.backward()
    assert head.dense.weight.grad.abs().max() > 0
    network.save_pretrained(tmp_path / "tuned")
    back = import_huggingface(tmp_path / "tuned", tmp_path / "back")
    assert back.settings == SequenceSettings(
        kind="multiclass", outputs=(*labels.values(),), head="dense", **SEQUENCES
    )
    first = rows(model)[0]
    with torch.no_grad():
        logits = back.network(first[None], torch.tensor([len(first)]))
        assert (logits - network(first[None]).logits).abs().max() < 1e-5


@torch.no_grad()
def test_causal_models_generate(tmp_path: Path, tokenizer: DnaTokenizer) -> None:
    """The most probable token, again and again."""
    model = own(tmp_path, tokenizer, FAMILIES["causal"])
    export_huggingface(tmp_path / "own", tmp_path / "hf")
    network, begin = (
        opened(tmp_path / "hf", "AutoModelForCausalLM"),
        rows(model)[1][:-1],
    )
    found = network.generate(
        begin[None], max_new_tokens=5, min_new_tokens=5, do_sample=False, pad_token_id=0
    )
    row = begin
    for _ in range(5):
        scores = expected(model, row)[-1]
        scores[tokenizer.sep_id] = -torch.inf
        row = torch.cat([row, scores.argmax()[None]])
    assert found[0].tolist() == row.tolist()


def test_a_network_without_a_checkpoint_is_random(
    tmp_path: Path, tokenizer: DnaTokenizer
) -> None:
    model = own(tmp_path, tokenizer, FAMILIES["rotary"])
    export_huggingface(tmp_path / "own", tmp_path / "hf")
    config = transformers.AutoConfig.from_pretrained(
        tmp_path / "hf", trust_remote_code=True
    )
    torch.manual_seed(5)
    network = transformers.AutoModelForMaskedLM.from_config(
        config, trust_remote_code=True
    )
    torch.manual_seed(5)
    same = random_model(
        tokenizer, model.config, model.settings, seed=5
    ).network.state_dict()
    assert all(
        torch.equal(value, same[key])
        for key, value in network.network.state_dict().items()
    )
    with fails(ModelError):
        _ = network.loaded


def test_wrong_inputs_are_named(tmp_path: Path, tokenizer: DnaTokenizer) -> None:
    for name in ("promoter", "chromatin"):
        model = own(tmp_path / name, tokenizer, FAMILIES[name])
        export_huggingface(tmp_path / name / "own", tmp_path / name / "hf")
        network = opened(tmp_path / name / "hf", CLASSES)
        ids, mask = masked_batch(rows(model), "right")
        probabilities = network.loaded.predict([random_dna(WINDOW, 5)], device="cpu")
        assert np.array_equal(
            probabilities, model.predict([random_dna(WINDOW, 5)], device="cpu")
        )
        with fails(UsageError):
            network(ids[:, :9])  # not the whole window
    mask[2] = 0
    for wrong in (mask, mask[:2]):
        with fails(UsageError):
            network(ids, wrong)
    with fails(ModelError):
        opened(tmp_path / "chromatin/hf", CLASSES, num_labels=5)
    code = modules.get_class_from_dynamic_module(
        "modeling_bigbird_dna.BigBirdDnaForMaskedLM", tmp_path / "chromatin/hf"
    )
    with fails(ModelError):
        code(network.config)


def test_the_package_is_needed_only_to_load(
    run: Run, tmp_path: Path, tokenizer: DnaTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(tmp_path, tokenizer, Family(PretrainingSettings(), {}))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "transformers", None)
        assert run("export-hf", tmp_path / "own", tmp_path / "plain").code == 0
        assert not (tmp_path / "plain/modeling_bigbird_dna.py").exists()
        assert (
            run("export-hf", tmp_path / "own", tmp_path / "hf", "--code", "always").code
            == 0
        )
        assert run("import-hf", tmp_path / "hf", tmp_path / "back").code == 0
    assert (
        with_start(starting(tmp_path / "hf")).encoder == load(tmp_path / "own").config
    )
    refused(run("export-hf", tmp_path / "own", tmp_path / "x", "--code", "maybe"), 2)
    monkeypatch.setitem(sys.modules, "bigbird_dna", None)
    with pytest.raises(ImportError, match="bigbird_dna"):
        transformers.AutoModel.from_pretrained(tmp_path / "hf", trust_remote_code=True)


def test_damaged_checkpoints_are_named(tmp_path: Path, tokenizer: DnaTokenizer) -> None:
    own(tmp_path, tokenizer, FAMILIES["promoter"])
    path = tmp_path / "hf"
    export_huggingface(tmp_path / "own", path)
    files = {one.name: one.read_bytes() for one in path.iterdir()}
    described = json.loads(files["config.json"])["bigbird_dna"]
    encoder = {
        key: described["encoder"] | {key: value}
        for key, value in (("layers", 999), ("vocabulary", 41))
    }
    tensors = load_file(path / "model.safetensors")
    first = "network.encoder.layers.0.query.weight"

    def refused() -> None:
        with fails(ModelError):
            import_huggingface(path, tmp_path / "out")
        assert not (tmp_path / "out").exists()
        for name, content in files.items():
            (path / name).write_bytes(content)

    for change in (
        [], {}, described | {"task": "long"}, described | {"tokenizer_file": "../x"},
        *(described | {"encoder": one} for one in encoder.values()),
    ):  # fmt: skip
        update_json(path / "config.json", bigbird_dna=change)
        refused()
    for wrong in (
        tensors | {first: tensors[first][1:].clone()},
        tensors | {"further": tensors[first].clone()},
    ):
        save_file(wrong, path / "model.safetensors")
        refused()
    (path / "bigbird_dna.model").unlink()
    refused()
    (path / "bigbird_dna.model").unlink()
    back = import_huggingface(
        path, tmp_path / "out", tokenizer=tmp_path / "own/tokenizer.model"
    )
    assert back.sha256 == load(tmp_path / "own").sha256
