"""Models exchanged with HuggingFace's BigBird: equal outputs, and the same bits back."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bigbird_dna.errors import ModelError
from bigbird_dna.huggingface.exchange import export_huggingface, import_huggingface
from bigbird_dna.huggingface.tokenizer_files import write_tokenizer
from bigbird_dna.model.directory import load, save
from bigbird_dna.model.settings import PretrainingSettings, PromoterSettings, Settings
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.cli.command import Run
from tests.golden.messages import fails
from tests.nlp.conftest import shuffle_weights
from tests.tokens.text_model import text_model
from tests.toys import random_model, small_encoder, update_json, written

transformers = pytest.importorskip(
    "transformers",
    reason="transformers is not installed: pip install 'bigbird-dna[hf]'",
)

CLASSES = {
    "BigBirdForPreTraining": "pretraining",
    "BigBirdForMaskedLM": "pretraining",
    "BigBirdForSequenceClassification": "sequences",
    "BigBirdForQuestionAnswering": "question-answering",
    "BigBirdModel": "encoder",
}
SMALL: dict[str, Any] = {
    **{
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 48,
    },
    **{"max_position_embeddings": 512, "block_size": 16, "num_random_blocks": 2},
}
LARGE: dict[str, Any] = {
    **{**SMALL, "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"max_position_embeddings": 1024, "block_size": 64, "num_random_blocks": 3},
}
SMALL_FULL, LARGE_FULL = (
    9 * 16,
    11 * 64,
)  # tokens up to which block-sparse attention is full
TOLERANCE = 1e-5


# Both are compared with one another where attention is tested.
@pytest.fixture(
    autouse=True, params=[pytest.param("compiled", marks=pytest.mark.slow), "torch"]
)
def routes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here holds on a machine without a compiler too, where `blocked` serves."""
    if request.param == "torch":
        monkeypatch.setenv("BIGBIRD_DNA_NATIVE", "0")


Checkpoint = Callable[..., Path]


@pytest.fixture
def checkpoint(tmp_path: Path, tokenizer: DnaTokenizer) -> Checkpoint:
    """Write a checkpoint of random weights, large enough for attention to choose."""

    def make(name: str = "BigBirdForMaskedLM", **settings: Any) -> Path:
        special = {
            "pad_token_id": 0,
            "bos_token_id": 2,
            "eos_token_id": 3,
            "sep_token_id": 3,
        }
        sizes = {**SMALL, "vocab_size": tokenizer.vocabulary}
        config = transformers.BigBirdConfig(**{**sizes, **special, **settings})
        network = getattr(transformers, name)(config)
        shuffle_weights(network, config.hidden_size)
        network.save_pretrained(tmp_path / "hf")
        write_tokenizer(tokenizer, tmp_path / "hf", config.max_position_embeddings)
        return tmp_path / "hf"

    return make


def their(path: Path, **inputs: Any) -> Any:
    """Their outputs; the network is loaded anew, as a short input leaves it with full attention."""
    name = json.loads((path / "config.json").read_text())["architectures"][0]
    network = (
        getattr(transformers, name).from_pretrained(path, dtype=torch.float32).eval()
    )
    with torch.inference_mode():
        return network(**inputs)


def batch(length: int, vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ids (3, L) with [CLS] in front, true lengths L, 0.9 L and 0.4 L, and where there is a token."""
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(5, vocabulary, (3, length), generator=generator)
    ids[:, 0] = DnaTokenizer.cls_id
    lengths = torch.tensor([length, length * 9 // 10, length * 2 // 5])
    present = torch.arange(length) < lengths[:, None]
    return torch.where(present, ids, DnaTokenizer.pad_id), lengths, present


def far(a: Tensor, b: Tensor) -> float:
    return (a - b).abs().max().item()


def difference(
    path: Path, model: Any, ids: Tensor, lengths: Tensor, segments: Tensor | None = None
) -> float:
    """The largest one between what their model and the imported one give of what isn't padding."""
    present = torch.arange(ids.shape[1]) < lengths[:, None]
    more = {} if segments is None else {"token_type_ids": segments}
    theirs = their(path, input_ids=ids, attention_mask=present.long(), **more)
    with torch.inference_mode():
        if model.task == "pretraining":
            found = model.network(
                ids, lengths, segments, present.flatten().nonzero()[:, 0]
            )
            logits = (
                theirs.logits
                if found.next_sentence is None
                else theirs.prediction_logits
            )
            assert logits[present].std() > 0.4  # so that a bound means something
            pairs = [(found.tokens, logits[present])]
            if found.next_sentence is not None:
                pairs.append((found.next_sentence, theirs.seq_relationship_logits))
        elif model.task == "encoder":
            pairs = [
                (
                    model.network(ids, lengths, segments)[present],
                    theirs.last_hidden_state[present],
                )
            ]
        else:
            pairs = [(model.network(ids, lengths, segments), theirs.logits)]
    assert all(ours.shape == other.shape for ours, other in pairs)
    return max(far(*pair) for pair in pairs)


LM = "BigBirdForMaskedLM"
VARIANTS: list[dict[str, Any]] = [
    {"hidden_act": "gelu"},
    {"hidden_act": "relu", "layer_norm_eps": 1e-3},
    {"hidden_act": "gelu_pytorch_tanh"},
    {"use_bias": False, "type_vocab_size": 3},
]
LENGTHS = [
    *(("original_full", SMALL, n) for n in (9, 171)),
    *(
        ("block_sparse", SMALL, n)
        for n in (16, SMALL_FULL, SMALL_FULL + 1, 160, 333, 512)
    ),
    *(
        ("original_full", LARGE, 1000),
        *(("block_sparse", LARGE, n) for n in (LARGE_FULL, LARGE_FULL + 1, 1000)),
    ),
]
HEADS = [
    *(("BigBirdForPreTraining", {}), ("BigBirdModel", {})),
    ("BigBirdForSequenceClassification", {"num_labels": 1}),
    ("BigBirdForSequenceClassification", {"num_labels": 5}),
]


@pytest.mark.parametrize(
    ("name", "settings", "length"),
    [
        *(
            pytest.param(
                *(LM, {"attention_type": attention, **sizes}, length),
                marks=pytest.mark.slow
                if length in (9, 16, 160, 333, LARGE_FULL)
                else (),
            )
            for attention, sizes, length in LENGTHS
        ),
        *((LM, settings, 200) for settings in VARIANTS),
        *((name, settings, 300) for name, settings in HEADS),
    ],
)
def test_outputs_are_theirs_and_the_checkpoint_comes_back(
    checkpoint: Checkpoint,
    tmp_path: Path,
    name: str,
    settings: dict[str, Any],
    length: int,
) -> None:
    path = checkpoint(name, **settings)
    model: Any = import_huggingface(path, tmp_path / "ours")
    assert model.task == CLASSES[name]
    if "num_labels" in settings:
        assert model.settings.outputs == tuple(
            f"LABEL_{index}" for index in range(settings["num_labels"])
        )
    ids, lengths, _ = batch(length, model.config.vocabulary)
    first = (torch.arange(length) > length // 3) * (model.config.segments - 1)
    segments = first.expand(3, -1) if name == LM else None
    assert difference(path, load(tmp_path / "ours"), ids, lengths, segments) < TOLERANCE
    assert difference(path, model, ids[:1], lengths[:1]) < TOLERANCE
    assert_returns(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("length", [700, 1500, 4096])
def test_logits_of_the_published_size_are_theirs(
    checkpoint: Checkpoint, tmp_path: Path, length: int
) -> None:
    published = transformers.BigBirdConfig().to_dict()
    path = checkpoint(**{name: published[name] for name in LARGE})
    model = import_huggingface(path, tmp_path / "ours")
    ids, lengths, _ = batch(length, model.config.vocabulary)
    assert difference(path, model, ids[:2], lengths[:2]) < 1e-4


def test_without_compatibility_attention_is_the_papers(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    path = checkpoint()
    model = import_huggingface(path, tmp_path / "ours", "none")
    assert (model.config.attention, model.config.compatibility) == ("bigbird", "none")
    assert_returns(tmp_path)
    for length, equal in ((SMALL_FULL // 2, True), (400, False)):
        ids, lengths, _ = batch(length, model.config.vocabulary)
        assert (difference(path, model, ids[:1], lengths[:1]) < TOLERANCE) == equal


def test_a_model_of_text_keeps_its_tokenizer(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    text = "the gene begins, then the gene ends"
    spiece = text_model(text, 24)  # fewer pieces than the model has ids
    path = checkpoint("BigBirdForQuestionAnswering", sep_token_id=5)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (path / name).unlink()
    (path / "bigbird_dna.model").unlink()
    (path / "spiece.model").write_bytes(spiece)
    import_huggingface(path, tmp_path / "ours")
    pieces = load(tmp_path / "ours").tokenizer
    assert not pieces.is_dna and (pieces.cls_id, pieces.sep_id, pieces.mask_id) == (
        4,
        5,
        6,
    )
    assert_returns(tmp_path)
    assert (tmp_path / "back" / "spiece.model").read_bytes() == spiece
    again = import_huggingface(tmp_path / "back", tmp_path / "again")
    assert again.tokenizer.description() == pieces.description()


@pytest.mark.parametrize("length", [100, 300])
def test_answers_are_theirs(
    checkpoint: Checkpoint, tmp_path: Path, length: int
) -> None:
    path = checkpoint("BigBirdForQuestionAnswering")
    model = import_huggingface(path, tmp_path / "ours")
    assert model.task == "question-answering"
    assert_returns(tmp_path)
    ids, lengths, present = batch(length, model.config.vocabulary)
    ids[0, 7] = ids[1, 20] = ids[1, 30] = (
        model.tokenizer.sep_id
    )  # the third has no separator
    expected = their(path, input_ids=ids, attention_mask=present.long())
    asked = torch.tensor([[8], [21], [1]])
    segments = (torch.arange(length) >= asked).long()
    with torch.inference_mode():
        hidden = model.network.encoder(ids, lengths, segments)
        start, end = model.network.scores(hidden).unbind(-1)
    context = present & (segments == 1)
    context[:, 0] = True
    for ours, theirs in ((start, expected.start_logits), (end, expected.end_logits)):
        assert far(ours[context], theirs[context]) < TOLERANCE


def assert_returns(tmp_path: Path) -> None:
    """The imported model, exported and imported again, has the same weights and settings."""
    export_huggingface(tmp_path / "ours", tmp_path / "back")
    model = load(tmp_path / "ours")
    again = import_huggingface(
        tmp_path / "back", tmp_path / "again", model.config.compatibility
    )
    own, its = model.network.state_dict(), again.network.state_dict()
    assert own.keys() == its.keys() and all(
        torch.equal(its[key], value) for key, value in own.items()
    )
    assert again.settings == model.settings
    assert again.config == model.config.model_copy(
        update={"attention_dropout": again.config.attention_dropout}
    )


def as_old_checkpoint(path: Path) -> dict[str, Tensor]:
    """The tensors as older releases wrote them: tied ones twice, position ids among them."""
    tensors = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    tensors["cls.predictions.decoder.weight"] = tensors[
        "bert.embeddings.word_embeddings.weight"
    ]
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"]
    tensors["bert.embeddings.position_ids"] = torch.arange(512)[None]
    return tensors


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, None])
def test_narrow_numbers_and_old_files_come_back(
    checkpoint: Checkpoint, tmp_path: Path, kind: torch.dtype | None
) -> None:
    path, file = checkpoint(), "model.safetensors" if kind else "pytorch_model.bin"
    if kind:
        transformers.BigBirdForMaskedLM.from_pretrained(
            path, dtype=kind
        ).save_pretrained(path)
    else:
        torch.save(as_old_checkpoint(path), path / file)
    model = import_huggingface(path, tmp_path / "ours")
    assert all(p.dtype == torch.float32 for p in model.network.parameters())
    assert_returns(tmp_path)


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_shards(checkpoint: Checkpoint, tmp_path: Path, suffix: str) -> None:
    path = checkpoint()
    whole = import_huggingface(path, tmp_path / "whole").network.state_dict()
    tensors = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    stem = "model" if suffix == "safetensors" else "pytorch_model"
    write = save_file if suffix == "safetensors" else torch.save
    names, places = sorted(tensors), {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"{stem}-{number:05d}-of-00002.{suffix}"
        write({name: tensors[name] for name in part}, path / file)
        places |= dict.fromkeys(part, file)
    written(
        path / f"{stem}.{suffix}.index.json",
        json.dumps({"metadata": {}, "weight_map": places}),
    )
    network = import_huggingface(path, tmp_path / "ours").network.state_dict()
    assert all(torch.equal(network[name], value) for name, value in whole.items())
    (path / file).unlink()
    with fails(ModelError, path):
        import_huggingface(path, tmp_path / "other")


def ours(
    tmp_path: Path, tokenizer: DnaTokenizer, settings: Settings, **changes: Any
) -> Path:
    """A model directory of our own with random weights; changes are of its settings or its encoder."""
    own = {key: changes.pop(key) for key in [*changes] if hasattr(settings, key)}
    sizes: dict[str, Any] = {
        "layers": 2,
        "max_length": 256,
        "block_size": 16,
        "random_seed": 7,
        **changes,
    }
    settings = settings.model_copy(update=own)
    model = random_model(
        tokenizer, small_encoder(tokenizer.vocabulary, **sizes), settings, seed=3
    )
    for parameter in model.network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    save(tmp_path / "own", model, {}, {}, {})
    return tmp_path / "own"


PROMOTER = PromoterSettings(
    upstream=30, downstream=10, pooling="cls", jitter=4, views=2
)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (PretrainingSettings(next_sentence=True), "BigBirdForPreTraining"),
        (PretrainingSettings(next_sentence=False), "BigBirdForMaskedLM"),
        (PretrainingSettings(), "BigBirdForPreTraining"),
        (PROMOTER, "BigBirdForSequenceClassification"),
    ],
)
def test_our_models_are_exported_and_come_back(
    tmp_path: Path, tokenizer: DnaTokenizer, settings: Settings, name: str
) -> None:
    own = load(ours(tmp_path, tokenizer, settings))
    assert export_huggingface(tmp_path / "own", tmp_path / "hf") == name
    network, report = getattr(transformers, name).from_pretrained(
        tmp_path / "hf", output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]

    pieces = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    sequence = "ACGTTGCANNGGATCCTTAA" * 6
    inputs = pieces(sequence, return_tensors="pt")
    row = [tokenizer.cls_id, *tokenizer.encode(sequence).tolist(), tokenizer.sep_id]
    assert inputs["input_ids"].tolist() == [row]
    ids, lengths = torch.tensor([row]), torch.tensor([len(row)])
    assert len(row) < 11 * 16  # full attention in both
    assert difference(tmp_path / "hf", own, ids, lengths) < TOLERANCE
    if settings.task == "promoter":
        assert network.config.id2label == {0: "promoter"}

    back = import_huggingface(tmp_path / "hf", tmp_path / "back", "none")
    assert back.task == settings.task and back.tokenizer.sha256 == tokenizer.sha256
    assert settings.model_dump().items() <= back.settings.model_dump().items()
    assert back.config == own.config.model_copy(
        update={"intermediate": 64, "global_blocks": 2, "window_blocks": 3}
    )
    after = back.network.state_dict()
    assert after.keys() == own.network.state_dict().keys()
    assert all(
        torch.equal(after[key], t) for key, t in own.network.state_dict().items()
    )


LACKING: list[dict[str, Any]] = [
    *(
        {"position_encoding": "rotary"},
        {"num_global_tokens": 4},
        {"window_blocks": 5},
    ),
    *(
        {"kmers": 5},
        {"random_blocks": 0},
        {"head": "linear"},
        {"base_positions": True},
        {"pooling": "mean"},
        {"ensemble": True, "ensemble_kmers": 3},
    ),
    *({"causal": True}, {"attention": "performer"}),
]


@pytest.mark.parametrize("change", LACKING, ids=str)
def test_what_they_lack_is_refused(
    tmp_path: Path, tokenizer: DnaTokenizer, change: dict[str, Any]
) -> None:
    own = ours(tmp_path, tokenizer, PROMOTER, **change)
    with fails(ModelError, own):
        export_huggingface(own, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


def test_missing_and_damaged_files_are_named(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    path = checkpoint()

    def refused(wrong: Path) -> None:
        with fails(ModelError, wrong):
            import_huggingface(
                wrong if wrong.name == "nowhere" else path, tmp_path / "ours"
            )

    refused(path / "nowhere")
    weights = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    refused(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    refused(path)
    (path / "tokenizer.json").unlink()
    (path / "bigbird_dna.model").rename(tmp_path / "tokenizer.model")
    refused(path)
    (path / "model.safetensors").write_bytes(weights)
    model = import_huggingface(
        path, tmp_path / "ours", tokenizer=tmp_path / "tokenizer.model"
    )
    assert isinstance(model.tokenizer, DnaTokenizer)
    (path / "config.json").unlink()
    refused(path)


class _Bomb:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("exploded"),)


@pytest.mark.parametrize("name", ["cls.predictions.decoder.weight", "bomb"])
def test_untied_weights_are_refused_and_code_in_a_pickle_is_not_run(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = checkpoint()
    tensors = as_old_checkpoint(path)
    wrong = _Bomb() if name == "bomb" else tensors[name] + 1
    torch.save({**tensors, name: wrong}, path / "pytorch_model.bin")
    with fails(ModelError):
        import_huggingface(path, tmp_path / "ours")
    assert not Path("exploded").exists()


def test_import_needs_neither_of_their_libraries(
    run: Run, checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = checkpoint("BigBirdForSequenceClassification", num_labels=3)
    update_json(path / "config.json", auto_map={"AutoModel": "evil.Model"})
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    read = run("import-hf", path, tmp_path / "ours")
    written = run("export-hf", tmp_path / "ours", tmp_path / "back")
    assert (read.code, written.code) == (0, 1)
    assert "pip install 'bigbird-dna[hf]'" in written.err
    assert "auto_map is ignored" in read.err and "a sequences model" in read.err
    (path / "bigbird_dna.model").unlink()  # so that the tokenizer is tokenizer.json
    refused = run("import-hf", path, tmp_path / "other")
    assert refused.code == 1
    assert f"{path / 'tokenizer.json'}: needs the tokenizers library" in refused.err


def test_a_name_of_the_hub_is_answered_with_its_download(
    run: Run, tmp_path: Path
) -> None:
    result = run("import-hf google/bigbird-roberta-base", tmp_path / "out")
    assert result.code == 1 and not (tmp_path / "out").exists()
    assert "hf download google/bigbird-roberta-base --local-dir" in result.err
