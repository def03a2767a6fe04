"""Checkpoints of BigBirdPegasus give the logits and the summaries that HuggingFace's library gives."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from bigbird_dna.errors import ConfigError, ModelError
from bigbird_dna.model.directory import load
from bigbird_dna.papers.nlp.config import SearchConfig
from bigbird_dna.papers.nlp.generation import summarize
from bigbird_dna.papers.nlp.pegasus import open_pegasus
from bigbird_dna.papers.nlp.summarizer import (
    PegasusSummarizer,
    SummariesSettings,
    pegasus_positions,
)
from tests.cli.command import Run
from tests.golden.messages import fails
from tests.nlp.conftest import SUMMARIES, Write, done, mistake, read_lines
from tests.tokens.text_model import text_model
from tests.toys import update_json, written

transformers = pytest.importorskip("transformers")

SIZES: dict[str, Any] = {
    **{
        "vocab_size": 60,
        "max_position_embeddings": 160,
        "d_model": 16,
        "block_size": 4,
        "num_random_blocks": 2,
    },
    **{"encoder_layers": 2, "encoder_ffn_dim": 24, "encoder_attention_heads": 2},
    **{"decoder_layers": 2, "decoder_ffn_dim": 24, "decoder_attention_heads": 2},
}


def theirs(seed: int, **changes: Any) -> Any:
    """A model of HuggingFace's with random weights, large enough for its summaries to differ."""
    torch.manual_seed(seed)
    config = transformers.BigBirdPegasusConfig(**SIZES | changes)
    model = transformers.BigBirdPegasusForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
        model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
    return model


def write_tokenizer(directory: Path) -> None:
    """A tokenizer with Pegasus' special tokens, and letters and words as further tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    pieces = ["<pad>", "</s>", "<s>", "<unk>", *map(chr, range(0x100, 0x100 + 56))]
    numbers = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(directory / "tokenizer.json"))


def ours(model: Any, directory: Path) -> Any:
    model.save_pretrained(directory)
    write_tokenizer(directory)
    return open_pegasus(directory, "huggingface")


@pytest.mark.parametrize("attention", ["original_full", "block_sparse"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"activation_function": "relu", "scale_embedding": False, "use_bias": True}],
    ids=["defaults", "relu, unscaled, biases"],
)
def test_logits_are_those_of_huggingface(
    tmp_path: Path, attention: str, changes: dict[str, Any]
) -> None:
    model = theirs(1, attention_type=attention, **changes)
    found = ours(model, tmp_path)
    for length in (3, 37, 64, 157):
        torch.manual_seed(length)
        ids, targets = torch.randint(3, 60, (1, length)), torch.randint(3, 60, (1, 9))
        # After a short input it would never be sparse again.
        model.model.encoder.set_attention_type(attention)
        with torch.no_grad():
            wanted = model(input_ids=ids, decoder_input_ids=targets).logits
            logits = found.network(ids, torch.tensor([length]), targets)
        torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)
        assert wanted.std() > 0.5


@pytest.mark.parametrize("attention", ["original_full", "block_sparse"])
@pytest.mark.parametrize("beams", [1, 3])
def test_summaries_are_those_of_huggingface(
    tmp_path: Path, attention: str, beams: int
) -> None:
    model = theirs(7, attention_type=attention)
    with torch.no_grad():
        model.final_logits_bias[0, 1] += 3.0  # some summaries end
    found = ours(model, tmp_path)
    search = SearchConfig(beams=beams, max_length=14, length_penalty=0.7)
    documents = [torch.randint(3, 60, (length,)).int() for length in (40, 61, 57)]
    cpu = torch.device("cpu")
    rows = [row.numpy() for row in documents]
    summaries = [*summarize(found.network, rows, search, found.tokenizer, cpu, 1)]
    options: dict[str, Any] = {"max_length": 14, "num_beams": beams, "do_sample": False}
    if beams > 1:
        options |= {"length_penalty": 0.7, "early_stopping": True}
    for document, summary in zip(documents, summaries, strict=True):
        model.model.encoder.set_attention_type(attention)
        row = model.generate(input_ids=document[None].long(), **options)[0, 1:].tolist()
        assert summary == (row[: row.index(1) + 1] if 1 in row else row)


def test_special_tokens_are_the_checkpoints(tmp_path: Path) -> None:
    tokenizer = ours(theirs(1), tmp_path).tokenizer
    assert tokenizer.specials == (0, 3, 2, 1, 3)


def test_a_sentencepiece_model_is_read_if_its_ids_are_the_models(
    tmp_path: Path,
) -> None:
    theirs(1).save_pretrained(tmp_path)
    written(tmp_path / "spiece.model", text_model("the cat sat on the mat", 40))
    with fails(ModelError, "offset 103"):
        open_pegasus(tmp_path, "none")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"offset": 0}))
    tokenizer = open_pegasus(tmp_path, "none").tokenizer
    assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.vocabulary) == (2, 1, 60)
    assert tokenizer.decode(tokenizer.encode("the cat")) == "the cat"


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("activation_function", "swish", "'swish'"),
        ("attention_type", "sparse", "attention_type"),
        ("tie_word_embeddings", False, "lm_head.weight"),
        ("decoder_layers", 3, "model.decoder.layers.2."),
        ("decoder_attention_heads", 4, "decoder_attention_heads 4"),
        ("decoder_ffn_dim", 21, "model.decoder.layers.0.fc1.bias"),
        ("d_model", "x", "d_model"),
        ("eos_token_id", 60, "end token 60"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    tmp_path: Path, key: str, value: object, named: str
) -> None:
    theirs(1).save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    update_json(tmp_path / "config.json", **{key: value})
    with fails(ModelError, tmp_path, named):
        open_pegasus(tmp_path, "none")


def test_a_checkpoint_whose_logits_have_weights_of_their_own_is_refused(
    tmp_path: Path,
) -> None:
    model = theirs(1)
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    tensors = {name: value.clone() for name, value in model.state_dict().items()}
    tensors["lm_head.weight"][3] += 1
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    with fails(ModelError):
        open_pegasus(tmp_path, "none")


def test_a_summarization_starts_from_a_checkpoint(
    run: Run, write: Write, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "theirs"
    model = ours(theirs(1), checkpoint)
    section = {key: value for key, value in SUMMARIES.items() if key != "encoder"}
    section |= {"form": "pegasus", "start": {"model": str(checkpoint)}}
    section["training"] = {"batch_size": 2, "steps": 1, "evaluate_every": 1}
    section["training"]["optimizer"] = {"learning_rate": 1e-9}
    config = write(facts=section)
    done(run, config, "facts", "prepare", "train", "predict", "evaluate")
    home = tmp_path / "results/facts"
    assert len(read_lines(home / "predictions.jsonl")) == 3
    trained = load(home / "model")
    assert trained.settings == SummariesSettings(form="pegasus")
    assert trained.tokenizer.specials == model.tokenizer.specials
    assert trained.config == model.config.model_copy(update={"compatibility": "none"})
    for name, tensor in model.network.state_dict().items():
        torch.testing.assert_close(
            trained.network.state_dict()[name], tensor, atol=1e-6, rtol=0
        )
    # The trained model is a start, too, of this form only.
    (home / "model").rename(tmp_path / "first")
    again = section | {"start": {"model": str(tmp_path / "first")}}
    done(run, write(facts=again), "facts", "train")
    mistake(
        run, 2, "train", write(facts=again | {"form": "base"}), "facts", "form pegasus"
    )


def test_a_summarizer_of_this_form_may_start_from_random_weights(
    run: Run, write: Write, tmp_path: Path
) -> None:
    config = write(facts=SUMMARIES | {"form": "pegasus"})
    done(run, config, "facts", "prepare", "train", "predict", "evaluate")
    network = load(tmp_path / "results/facts/model").network
    assert isinstance(network, PegasusSummarizer)
    positions = network.encoder.position.weight
    assert positions.shape == (128, 16)
    rotary = SUMMARIES["encoder"] | {"position_encoding": "rotary"}
    wrong = write(facts=SUMMARIES | {"form": "pegasus", "encoder": rotary})
    mistake(run, 2, "train", wrong, "facts", "position_encoding rotary")


def test_what_the_form_cannot_have_is_refused() -> None:
    from bigbird_dna.config.network import EncoderConfig

    sizes = {"vocabulary": 40, "layers": 1, "hidden": 16, "heads": 2}
    for changes in ({"position_encoding": "rotary"}, {"num_global_tokens": 4}):
        config = EncoderConfig.model_validate(sizes | {"random_blocks": 0} | changes)
        with fails(ConfigError, f"encoder.{next(iter(changes))}"):
            PegasusSummarizer(config)


def test_fresh_positions_are_those_of_pegasus() -> None:
    found = pegasus_positions(50, 6)
    for position in (0, 1, 49):
        angles = [position / 10_000 ** (2 * pair / 6) for pair in range(3)]
        wanted = [math.sin(angle) for angle in angles] + [
            math.cos(angle) for angle in angles
        ]
        assert found[position].tolist() == pytest.approx(wanted, abs=1e-6)
