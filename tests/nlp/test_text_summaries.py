"""Summarization: both networks and the search, the commands, and ROUGE."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import EncoderDecoderCache, GenerationConfig

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.model.directory import load
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.papers.nlp.config import (
    GeneratedConfig,
    SummariesTaskConfig,
    parse_config,
    read_config,
)
from bigbird_dna.papers.nlp.data import FACTS, MARK, generate_facts
from bigbird_dna.papers.nlp.records import SummaryRecord, read_records
from bigbird_dna.papers.nlp.summaries import (
    IGNORED,
    Summarizer,
    evaluate,
    open_pegasus,
    split_sentences,
)
from tests.cli.command import Run
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.nlp.conftest import (
    SUMMARIES,
    Write,
    done,
    figures,
    read_lines,
    write_lines,
)
from tests.toys import update_json


def test_summaries_from_records_to_metrics(
    run: Run, write: Write, tmp_path: Path
) -> None:
    config = write(facts=SUMMARIES)
    done(run, config, "facts", "prepare", "train", "predict", "evaluate")
    home = tmp_path / "results/facts"
    lines = read_lines(home / "predictions.jsonl")
    assert [line["id"] for line in lines] == ["1", "2", "3"]
    assert figures(home)["records"] == 3 and 0 <= figures(home)["rouge1"] <= 1
    assert load(home / "model").task == "summaries"
    # On a CPU, a summary does not depend on the documents beside it.
    last = write_lines(tmp_path / "one.jsonl", read_lines(home / "data/test.jsonl")[2])
    output = tmp_path / "out.jsonl"
    options = ("--records", last, "-o", output)
    done(run, config, "facts", "predict", more=options)
    assert read_lines(output) == lines[2:]
    # A summarizer is a start as well.
    (home / "model").rename(tmp_path / "first")
    again = {**SUMMARIES, "start": {"model": str(tmp_path / "first")}}
    log = done(run, write(facts=again), "facts", "train")
    assert str(tmp_path / "first") in log


def test_facts_are_at_the_end_and_nowhere_else() -> None:
    generated = GeneratedConfig(train=100, test=40, words=1200)
    made = [*generate_facts(generated, "test")]
    assert made == [*generate_facts(generated, "test")]
    assert made != [*generate_facts(generated, "valid")]
    orders = set()
    for record in made:
        words = record["document"].split()
        assert len(words) == 1200
        front, end = words[:-18], words[-18:]
        assert not {MARK, *FACTS} & {*front}
        assert {value for values in FACTS.values() for value in values} & {*front}
        found = {end[at + 1]: end[at + 2] for at in range(0, 18, 3)}
        assert {*end[::3]} == {MARK} and found.keys() == FACTS.keys()
        assert record["summary"] == " ".join(
            f"{name} {found[name]}" for name in sorted(FACTS)
        )
        orders.add(tuple(found))
    assert len(orders) > 30
    assert all(len({*values}) == 16 for values in FACTS.values())
    lengths = [
        len(record["document"].split()) for record in generate_facts(generated, "train")
    ]
    assert lengths == [24] * 94 + [200] * 4 + [1200] * 2


def summaries_task(**values: Any) -> SummariesTaskConfig:
    task = parse_config({"tasks": {"a": {**SUMMARIES, **values}}}).task("a")
    assert isinstance(task, SummariesTaskConfig)
    return task


@pytest.mark.parametrize(
    ("true", "predicted", "wanted"),
    [
        ("the cat sat on the mat", "the cat sat on the mat", (1, 1, 1, 1)),
        # 2 of 2 words and 2 of 3; one pair of one, and of two
        ("the cat sat", "the cat", (0.8, 2 / 3, 0.8, 0.8)),
        # the same words, the other way round: of the subsequence one is left
        ("cat mat", "mat cat", (1, 0, 0.5, 0.5)),
        # words count as often as they stand in both
        ("a a b", "a b b", (2 / 3, 0.5, 2 / 3, 2 / 3)),
        # stems, case and signs
        ("Runs, jumping!", "run jumped", (1, 1, 1, 1)),
        ("word", "", (0, 0, 0, 0)),
        ("one two", "three four", (0, 0, 0, 0)),
        # sentence by sentence
        (
            "The dog barks. A cat sleeps.",
            "A cat sleeps. The dog barks.",
            (1, 0.8, 0.5, 1),
        ),
    ],
)
def test_rouge_by_hand(
    tmp_path: Path, true: str, predicted: str, wanted: tuple[float, ...]
) -> None:
    task = summaries_task()
    record = {"id": "1", "document": "x", "summary": true}
    records = write_lines(tmp_path / "a", record)
    lines = write_lines(tmp_path / "b", {"id": "1", "summary": predicted})
    found = evaluate(task, records, lines)
    assert [*found] == ["rouge1", "rouge2", "rougeL", "rougeLsum", "records"]
    assert [*found.values()][:4] == pytest.approx(wanted)


def test_sentences() -> None:
    text = "One. Two! Three? 3.5 is four"
    assert split_sentences(text) == "One.\nTwo!\nThree?\n3.5 is four"
    assert split_sentences("One. Also\nTwo\n\n") == "One.\nAlso\nTwo"
    assert split_sentences("  ") == ""


BASE = {
    **{"vocabulary": 40, "layers": 2, "hidden": 16, "heads": 2},
    **{"max_length": 96, "block_size": 8},
}


def summarizer(position: str = "learned", **changes: Any) -> Summarizer:
    """A small network of float64 whose weights are large enough for logits to differ."""
    torch.manual_seed(0)
    values = {**BASE, "position_encoding": position, **changes}
    network = Summarizer(EncoderConfig.model_validate(values))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
        for name, parameter in network.named_parameters():
            if "cross" in name and name.endswith(("dense.weight", "query.weight")):
                parameter.mul_(6)  # summaries depend on their documents
    return network.double().eval()


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(4, 40, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_neither_cache_nor_padding_changes_anything(position: str) -> None:
    network = summarizer(position)
    ids, targets = drawn(2, 60), drawn(2, 7, seed=1)
    mask = (torch.arange(60) < torch.tensor([[60], [23]])).long()
    with torch.no_grad():
        each = network(ids, mask, targets).logits
        alone = network(ids[1:, :23], mask[1:, :23], targets[1:]).logits
        hidden = network.get_encoder()(ids, mask)
        cache = EncoderDecoderCache(
            transformers.DynamicCache(), transformers.DynamicCache()
        )
        parts = [
            network(None, mask, part, None, hidden, cache).logits
            for part in targets.split(1, 1)
        ]
    torch.testing.assert_close(torch.cat(parts, 1), each, atol=1e-9, rtol=0)
    torch.testing.assert_close(alone, each[1:], atol=1e-9, rtol=0)
    assert each.std() > 0.3


def test_a_summarizer_shares_the_weights_of_encoder_and_decoder() -> None:
    network = summarizer()
    names = [name for name in network.state_dict() if not name.startswith("encoder.")]
    assert all("crossattention" in name or name == "logits_bias" for name in names)
    # Without attention to the document, layers of full attention are those of a causal encoder.
    for layer in network.decoder.encoder.layer:
        layer.crossattention.output.dense.weight.data.zero_()
        layer.crossattention.output.dense.bias.data.zero_()
        layer.crossattention.output.LayerNorm = torch.nn.Identity()
    config = EncoderConfig(**BASE, attention="full", causal=True)
    encoder = Encoder(config).double().eval()
    encoder.load_state_dict(network.encoder.state_dict())
    ids, targets = drawn(1, 20), drawn(1, 6, seed=1)
    mask, labels = torch.ones_like(ids), drawn(1, 6, seed=2)
    labels[0, 4:] = IGNORED
    with torch.no_grad():
        hidden = encoder(targets)
        found = network(ids, mask, targets, labels)
    expected = hidden @ encoder.embeddings.token.weight.T + network.logits_bias
    torch.testing.assert_close(found.logits, expected, atol=1e-9, rtol=0)
    logs = expected[0].log_softmax(-1)[range(4), labels[0, :4]]
    assert found.loss.item() == pytest.approx(-logs.mean().item(), rel=1e-6)


@pytest.mark.parametrize("penalty", [0.0, 2.0])
def test_enough_beams_find_the_best_summary_of_all(penalty: float) -> None:
    network = summarizer(vocabulary=6)
    ids = torch.tensor([[0, 3, 4, 3, 1]])
    mask = torch.ones_like(ids)
    settings = GenerationConfig(
        num_beams=40,
        do_sample=False,
        max_length=4,
        length_penalty=penalty,
        early_stopping=True,
        decoder_start_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )
    found = network.generate(ids, attention_mask=mask, generation_config=settings)
    best: Any = (-math.inf, None)
    for length in range(1, 4):
        for middle in itertools.product([0, 2, 3, 4, 5], repeat=length - 1):
            for last in [1] if length < 3 else range(6):
                summary = torch.tensor([[0, *middle, last]])
                with torch.no_grad():
                    logs = network(ids, mask, summary[:, :-1]).logits.log_softmax(-1)
                total = sum(
                    float(logs[0, at, token])
                    for at, token in enumerate([*middle, last])
                )
                best = max(best, (total / length**penalty, summary[0].tolist()))
    summary = found[0].tolist()
    if 1 in summary:
        summary = summary[: summary.index(1) + 1]
    assert summary == best[1]


@pytest.mark.parametrize("attention", ["full", "window", "longformer", "performer"])
def test_documents_may_be_read_by_any_attention(attention: str) -> None:
    network = summarizer(attention=attention, head_init="random")
    ids = drawn(1, 40)
    with torch.no_grad():
        logits = network(ids, torch.ones_like(ids), drawn(1, 4)).logits
    assert logits.shape == (1, 4, 40) and logits.isfinite().all()


def test_a_summarizer_of_kmers_is_refused() -> None:
    with fails(ConfigError, "kmers"):
        summarizer(kmers=4)


SIZES: dict[str, Any] = {
    **{"vocab_size": 60, "max_position_embeddings": 160, "d_model": 16},
    **{"block_size": 4, "num_random_blocks": 2},
    **{"encoder_layers": 2, "encoder_ffn_dim": 24, "encoder_attention_heads": 2},
    **{"decoder_layers": 2, "decoder_ffn_dim": 24, "decoder_attention_heads": 2},
}


def write_pegasus(directory: Path, **changes: Any) -> Any:
    """Write and return a model of HuggingFace's with random weights, and a tokenizer of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    torch.manual_seed(1)
    config = transformers.BigBirdPegasusConfig(**SIZES | changes)
    model = transformers.BigBirdPegasusForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
        model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
    model.save_pretrained(directory)
    special = ["<pad>", "</s>", "<s>", "<unk>"]
    pieces = [*special, *map(chr, range(0x100, 0x100 + 56))]
    numbers = {piece: number for number, piece in enumerate(pieces)}
    backend = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
    )
    tokenizer.save_pretrained(directory)
    return model


def test_pegasus_is_trained_and_summarizes(
    run: Run, write: Write, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "theirs"
    model = write_pegasus(checkpoint)
    section = {key: value for key, value in SUMMARIES.items() if key != "encoder"}
    section |= {"start": {"model": str(checkpoint)}}
    section["training"] = {**SUMMARIES["training"], "learning_rate": 1e-9}
    config = write(facts=section)
    done(run, config, "facts", "prepare", "train", "predict", "evaluate")
    home = tmp_path / "results/facts"
    assert len(read_lines(home / "predictions.jsonl")) == 3
    trained, _ = open_pegasus(home / "model")
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(
            trained.state_dict()[name], tensor, atol=1e-6, rtol=0
        )
    provenance = json.loads((home / "model/provenance.json").read_text())
    assert provenance["start"]
    # A checkpoint also summarizes as it is.
    done(run, config, "facts", "predict", more=("--model", checkpoint))


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    write_pegasus(tmp_path)
    update_json(tmp_path / "config.json", d_model="x")
    with fails(DataError, tmp_path, "d_model"):
        open_pegasus(tmp_path)


@pytest.mark.slow
def test_facts_at_the_end_of_3000_tokens_are_found(run: Run, tmp_path: Path) -> None:
    config = REPOSITORY / "workflow/config/nlp.yaml"
    home = ("--set", f"results={tmp_path}")
    done(run, config, "facts", "prepare", "train", "predict", "evaluate", more=home)
    records = read_records(tmp_path / "facts/data/test.jsonl", SummaryRecord)
    assert min(len(record.document.split()) for record in records) == 3000
    assert figures(tmp_path / "facts")["rougeL"] > 0.8
    # Who reads the first thousand tokens alone knows the form of a summary, and no fact.
    blind = ("--set", "tasks.facts.document_tokens=1000")
    done(run, config, "facts", "predict", "evaluate", more=(*home, *blind))
    assert figures(tmp_path / "facts")["rougeL"] < 0.75


def test_the_published_settings_are_those_of_the_paper() -> None:
    tasks = read_config(REPOSITORY / "workflow/config/nlp.yaml").tasks
    found = {}
    for name, task in tasks.items():
        if isinstance(task, SummariesTaskConfig) and task.data.hub:
            training = task.training
            batch = training["per_device_train_batch_size"]
            batch *= training["gradient_accumulation_steps"]
            beams = task.generation["num_beams"]
            found[name] = task.document_tokens, task.summary_tokens, beams, batch
    long = (3072, 256, 5, 128)
    assert found == {
        **dict.fromkeys(("arxiv", "pubmed", "bigpatent"), long),
        "xsum": (1024, 64, 5, 128),
        "cnn-dailymail": (2048, 128, 5, 128),
    }
