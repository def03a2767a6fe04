"""Checkpoints of BigBirdPegasus give the logits and the summaries that HuggingFace's library gives."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from bigbird_dna.errors import ModelError
from bigbird_dna.papers.nlp.config import SearchConfig, SpecialIds
from bigbird_dna.papers.nlp.generation import generate_summaries
from bigbird_dna.papers.nlp.summarizer import open_pegasus, pegasus_positions
from tests.golden.messages import fails
from tests.toys import update_json

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
    **{"decoder_layers": 3, "decoder_ffn_dim": 20, "decoder_attention_heads": 4},
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


def write_tokenizer(directory: Path, letters: list[str]) -> None:
    """A tokenizer with Pegasus' special tokens, and these letters as further tokens."""
    from tokenizers import Tokenizer, models

    pieces = ["<pad>", "</s>", "<s>", "<unk>", *letters]
    numbers = {piece: number for number, piece in enumerate(pieces)}
    model = models.WordLevel(numbers, unk_token="<unk>")
    Tokenizer(model).save(str(directory / "tokenizer.json"))


def ours(model: Any, directory: Path, **options: Any) -> Any:
    model.save_pretrained(directory)
    letters = [chr(number) for number in range(0x100, 0x100 + 56)]
    write_tokenizer(directory, letters)
    return open_pegasus(directory, **options)


def documents(
    *lengths: int, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids padded with 0 on the right, what isn't padding, and the lengths."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 60, (len(lengths), max(lengths)), generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return ids * mask, mask.long(), torch.tensor(lengths)


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
        ids, _, lengths = documents(length, seed=length)
        targets = torch.randint(3, 60, (1, 9))
        # After a short input it would never be sparse again.
        model.model.encoder.set_attention_type(attention)
        with torch.no_grad():
            wanted = model(input_ids=ids, decoder_input_ids=targets).logits
            logits = found.network(ids, lengths, targets)
        torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)
        assert wanted.std() > 0.5


GRID: list[dict[str, Any]] = [
    {"beams": 1, "no_repeat": 2, "min_length": 9},
    {"beams": 3, "early_stopping": True, "length_penalty": 0.7, "min_length": 6},
    {"beams": 4, "early_stopping": "never", "length_penalty": 2.0, "no_repeat": 1},
]
FORCED: list[dict[str, int]] = [
    {},
    {"forced_last": 1},
    {"forced_first": 7, "forced_last": 1},
]


def generated(
    model: Any, ids: Any, mask: Any, search: SearchConfig, special: SpecialIds
) -> list[list[int]]:
    """What HuggingFace's library finds, cut as ours is."""
    beams = {
        "length_penalty": search.length_penalty,
        "early_stopping": search.early_stopping,
    }
    rows = model.generate(
        **{
            "input_ids": ids,
            "attention_mask": mask,
            "num_beams": search.beams,
            "do_sample": False,
        },
        **{"max_length": search.max_length, "min_length": search.min_length},
        no_repeat_ngram_size=search.no_repeat,
        **{
            "forced_bos_token_id": special.forced_first,
            "forced_eos_token_id": special.forced_last,
        },
        **(beams if search.beams > 1 else {}),
    )
    cut = [row[1:].tolist() for row in rows]
    return [
        row[: row.index(special.end) + 1] if special.end in row else row for row in cut
    ]


def summarized(
    found: Any,
    model: Any,
    search: SearchConfig,
    special: SpecialIds,
    *made: Any,
) -> Any:
    """Summaries of documents, which are those that HuggingFace's library finds."""
    ids, mask, lengths = made
    hidden = found.network.encode(ids, lengths)
    summaries = generate_summaries(found.network, hidden, lengths, search, special)
    assert summaries == generated(model, ids, mask, search, special)
    return summaries


def test_summaries_of_sparse_encoders_are_those_of_huggingface(tmp_path: Path) -> None:
    model = theirs(7, attention_type="block_sparse")
    found = ours(model, tmp_path)
    summarized(
        found,
        model,
        SearchConfig(beams=3, max_length=14),
        found.settings.special,
        *documents(40, 61, 57),
    )


@pytest.mark.parametrize(
    "options", GRID, ids=lambda options: "-".join(map(str, options.values()))
)
def test_summaries_are_those_of_huggingface(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    for seed in range(2):
        model = theirs(seed, attention_type="original_full")
        with torch.no_grad():
            # Summaries that end, and some that don't.
            model.final_logits_bias[0, 1] += 3.0 * seed
        found = ours(model, tmp_path / str(seed))
        search = SearchConfig(max_length=18, **options)
        special = found.settings.special.model_copy(update=FORCED[seed + 1])
        summarized(found, model, search, special, *documents(40, 23, 31, seed=seed))


def test_special_tokens_are_the_checkpoints(tmp_path: Path) -> None:
    model = theirs(1)
    model.generation_config.forced_eos_token_id = 1
    special = SpecialIds(start=2, end=1, pad=0, forced_last=1)
    assert ours(model, tmp_path).settings.special == special


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("activation_function", "swish", "'swish'"),
        ("attention_type", "sparse", "attention_type"),
        ("tie_word_embeddings", False, "lm_head.weight"),
        ("decoder_layers", 4, "model.decoder.layers.3."),
        ("decoder_layers", 2, "model.decoder.layers.2."),
        ("decoder_ffn_dim", 21, "model.decoder.layers.0.fc1.bias"),
        ("d_model", "x", "d_model"),
        ("eos_token_id", 60, "end token 60"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    tmp_path: Path, key: str, value: object, named: str
) -> None:
    theirs(1).save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    update_json(tmp_path / "config.json", **{key: value})
    with fails(ModelError, tmp_path, named):
        open_pegasus(tmp_path)


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
        open_pegasus(tmp_path)


def test_fresh_positions_are_those_of_pegasus() -> None:
    found = pegasus_positions(50, 6)
    for position in (0, 1, 49):
        angles = [position / 10_000 ** (2 * pair / 6) for pair in range(3)]
        wanted = [math.sin(angle) for angle in angles] + [
            math.cos(angle) for angle in angles
        ]
        assert found[position].tolist() == pytest.approx(wanted, abs=1e-6)
