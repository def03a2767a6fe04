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
from torch.nn import functional as F
from transformers import EncoderDecoderCache, GenerationConfig

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import ConfigError, ModelError
from bigbird_dna.model.directory import load
from bigbird_dna.papers.nlp.config import (
    GeneratedConfig,
    SummariesTaskConfig,
    parse_config,
    read_config,
)
from bigbird_dna.papers.nlp.data import FACTS, MARK, generate_facts
from bigbird_dna.papers.nlp.records import SummaryRecord, read_records
from bigbird_dna.papers.nlp.start import fast_tokenizer
from bigbird_dna.papers.nlp.summarization import Collator, evaluate, split_sentences
from bigbird_dna.papers.nlp.summarizer import (
    IGNORED,
    Summarizer,
    open_pegasus,
    split_heads,
)
from bigbird_dna.tokens.text import JsonTokenizer
from tests.cli.command import Run
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.nlp.conftest import (
    SUMMARIES,
    Write,
    done,
    figures,
    mistake,
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
    options = ("--checkpoint-dir", tmp_path / "again")
    assert str(tmp_path / "first") in done(
        run, write(facts=again), "facts", "train", more=options
    )


def test_facts_are_at_the_end_and_nowhere_else() -> None:
    generated = GeneratedConfig(train=40, words=300, seed=3)
    made = [*generate_facts(generated, "train")]
    assert made == [*generate_facts(generated, "train")]
    assert made != [*generate_facts(generated, "valid")]
    orders = set()
    for record in made:
        words = record["document"].split()
        assert len(words) == 300
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


def summaries_task(**values: Any) -> SummariesTaskConfig:
    task = parse_config({"tasks": {"a": {**SUMMARIES, **values}}}).task("a")
    assert isinstance(task, SummariesTaskConfig)
    return task


def test_inputs_are_truncated_and_shorter_in_the_first_steps(
    text_tokenizer: JsonTokenizer,
) -> None:
    text = "the quick brown fox"
    fast = fast_tokenizer(text_tokenizer)
    cls, sep = text_tokenizer.cls_id, text_tokenizer.sep_id
    ids = text_tokenizer.encode(text).tolist()
    records = [SummaryRecord(document=text * n, summary=text) for n in (1, 20)]
    first = Collator(fast, summaries_task(search={"max_length": 6}), 128, None)
    rows = first.documents(records, 6)["input_ids"].tolist()
    assert rows == [[cls, *ids[:4], sep]] * 2
    last = Collator(fast, summaries_task(keep="last"), 128, None)
    assert last.documents(records[:1], 6)["input_ids"].tolist() == [
        [cls, *ids[-4:], sep]
    ]
    mask = first.documents(records, 96)["attention_mask"].sum(1).tolist()
    assert mask == [len(ids) + 2, 96]
    short = SummaryRecord(document=text, summary="fox")
    batch = first([records[0], short])
    labels, inputs = batch["labels"].tolist(), batch["decoder_input_ids"].tolist()
    assert labels[0] == [*ids[:4], sep] and labels[1][-1] == IGNORED
    for label, row in zip(labels, inputs, strict=True):
        true = [token for token in label if token != IGNORED]
        assert row[: len(true)] == [cls, *true[:-1]]
    stages = [{"steps": 2, "tokens": 16}, {"steps": 1, "tokens": 32}]
    growing = Collator(fast, summaries_task(length_curriculum=stages), 128, None)
    found = [growing.next_tokens() for _ in range(5)]
    assert found == [16, 16, 32, 96, 96]


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
    paths = parse_config({}).paths("a")
    record = {"id": "1", "document": "x", "summary": true}
    records = write_lines(tmp_path / "a", record)
    lines = write_lines(tmp_path / "b", {"id": "1", "summary": predicted})
    found = evaluate(task, paths, records, lines)
    assert [*found] == ["rouge1", "rouge2", "rougeL", "rougeLsum", "records"]
    assert [*found.values()][:4] == pytest.approx(wanted)


def test_sentences() -> None:
    text = "One. Two! Three? 3.5 is four"
    assert split_sentences(text) == "One.\nTwo!\nThree?\n3.5 is four"
    assert split_sentences("One. Still one\nTwo\n\n") == "One. Still one\nTwo"
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
            if "cross" in name and name.endswith(("output.weight", "query.weight")):
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


def test_a_summarizer_is_the_encoder_and_attention_to_the_document() -> None:
    network = summarizer()
    others = {
        name
        for name, _ in network.named_parameters()
        if not name.startswith("encoder.")
    }
    assert all(name.startswith("cross.") or name == "logits_bias" for name in others)
    ids, targets = drawn(1, 20), drawn(1, 6, seed=1)
    mask, labels = torch.ones_like(ids), drawn(1, 6, seed=2)
    labels[0, 4:] = IGNORED
    with torch.no_grad():
        expected = spelt_out(network, network.encoder(ids)[0], targets[0])
        found = network(ids, mask, targets, labels)
    torch.testing.assert_close(found.logits[0], expected, atol=1e-9, rtol=0)
    logs = expected.log_softmax(-1)[range(4), labels[0, :4]]
    assert float(found.loss) == pytest.approx(-float(logs.mean()), rel=1e-6)


def spelt_out(network: Summarizer, memory: Tensor, targets: Tensor) -> Tensor:
    """Logits (T, V) of one summary, token by token and head by head, by loops."""
    embeddings = network.encoder.embeddings
    positions = embeddings.position.weight[: len(targets)]
    x = embeddings.norm(
        embeddings.token(targets) + positions + embeddings.segment.weight[0]
    )
    for layer, cross in zip(network.encoder.layers, network.cross, strict=True):
        parts: Any = (layer.query, layer.key, layer.value)
        past = [_attended(x[t : t + 1], x[: t + 1], parts) for t in range(len(x))]
        x = layer.attention_norm(x + layer.attention_output(torch.cat(past)))
        parts = (cross.query, cross.key, cross.value)
        x = cross.norm(x + cross.output(_attended(x, memory, parts)))  # type: ignore[operator]
        inner = F.gelu(layer.intermediate(x), approximate="tanh")
        x = layer.output_norm(x + layer.output(inner))
    logits: Tensor = x @ embeddings.token.weight.T + network.logits_bias
    return logits


def _attended(x: Tensor, to: Tensor, parts: tuple[torch.nn.Linear, ...]) -> Tensor:
    q, k, v = parts[0](x), parts[1](to), parts[2](to)
    heads = []
    for head in range(2):
        columns = slice(8 * head, 8 * head + 8)
        weights = (q[:, columns] @ k[:, columns].T / math.sqrt(8)).softmax(-1)
        heads.append(weights @ v[:, columns])
    return torch.cat(heads, 1)


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


@pytest.mark.parametrize("changes", [{"kmers": 4}])
def test_what_a_summarizer_cannot_have_is_refused(changes: dict[str, Any]) -> None:
    with fails(ConfigError, f"encoder.{next(iter(changes))}"):
        summarizer(**changes)


def test_matching_attention_begins_by_looking_at_the_same_token() -> None:
    torch.manual_seed(0)
    network = Summarizer(
        EncoderConfig(
            vocabulary=40, layers=1, hidden=64, heads=4, max_length=64, dropout=0.0
        )
    )
    network.match_tokens()
    states = F.layer_norm(torch.randn(1, 30, 64), (64,))
    cross: Any = network.cross[0]
    k = split_heads(cross.key(states), 4)
    scores = split_heads(cross.query(states), 4) @ k.transpose(-1, -2)
    assert (scores.mean(1).argmax(-1) == torch.arange(30)).all()
    there = cross.output(cross.value(states))
    torch.testing.assert_close(there, states, atol=1e-5, rtol=0)


SIZES: dict[str, Any] = {
    **{"vocab_size": 60, "max_position_embeddings": 160, "d_model": 16},
    **{"block_size": 4, "num_random_blocks": 2},
    **{"encoder_layers": 2, "encoder_ffn_dim": 24, "encoder_attention_heads": 2},
    **{"decoder_layers": 2, "decoder_ffn_dim": 24, "decoder_attention_heads": 2},
}


def write_pegasus(directory: Path, **changes: Any) -> Any:
    """Write and return a model of HuggingFace's with random weights, and a tokenizer of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

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
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
    )
    tokenizer.save_pretrained(directory)
    return model


@pytest.mark.parametrize("attention", ["original_full", "block_sparse"])
def test_logits_of_pegasus_are_those_of_huggingface(
    tmp_path: Path, attention: str
) -> None:
    model = write_pegasus(tmp_path, attention_type=attention, use_bias=True)
    found = open_pegasus(tmp_path, EncoderConfig(compatibility="huggingface")).eval()
    for length in (3, 37, 64, 157):
        torch.manual_seed(length)
        ids, targets = torch.randint(3, 60, (1, length)), torch.randint(3, 60, (1, 9))
        # After a short input it would never be sparse again.
        model.model.encoder.set_attention_type(attention)
        with torch.no_grad():
            wanted = model(input_ids=ids, decoder_input_ids=targets).logits
            logits = found(input_ids=ids, decoder_input_ids=targets).logits
        torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)
        assert wanted.std() > 0.5


def test_padding_of_documents_changes_nothing_in_pegasus(tmp_path: Path) -> None:
    write_pegasus(tmp_path)
    network = open_pegasus(tmp_path, EncoderConfig()).eval()
    ids, targets = torch.randint(3, 60, (2, 90)), torch.randint(3, 60, (2, 5))
    mask = (torch.arange(90) < torch.tensor([[90], [61]])).long()
    with torch.no_grad():
        both = network(ids, mask, decoder_input_ids=targets).logits
        alone = network(ids[1:, :61], decoder_input_ids=targets[1:]).logits
    torch.testing.assert_close(both[1:], alone, atol=1e-4, rtol=1e-4)


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
    trained = open_pegasus(home / "model", EncoderConfig())
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(
            trained.state_dict()[name], tensor, atol=1e-6, rtol=0
        )
    provenance = json.loads((home / "model/provenance.json").read_text())
    assert provenance["start"]
    # A checkpoint also summarizes as it is.
    done(run, config, "facts", "predict", more=("--model", checkpoint))
    mistake(run, 2, "train", config, "facts", "search", key="search.max_length=200")


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("attention_type", "sparse", "attention_type"),
        ("decoder_layers", 3, "model.decoder.layers.2."),
        ("decoder_ffn_dim", 21, "model.decoder.layers.0.fc1.bias"),
        ("d_model", "x", "d_model"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    tmp_path: Path, key: str, value: object, named: str
) -> None:
    write_pegasus(tmp_path)
    update_json(tmp_path / "config.json", **{key: value})
    with fails(ModelError, tmp_path, named):
        open_pegasus(tmp_path, EncoderConfig())


@pytest.mark.slow
def test_facts_at_the_end_of_3000_tokens_are_found(run: Run, tmp_path: Path) -> None:
    config = REPOSITORY / "workflow/config/nlp.yaml"
    home = ("--set", f"results={tmp_path}")
    done(run, config, "facts", "prepare", "train", "predict", "evaluate", more=home)
    records = read_records(tmp_path / "facts/data/test.jsonl", SummaryRecord)
    assert min(len(record.document.split()) for record in records) == 3000
    assert figures(tmp_path / "facts")["rougeL"] > 0.8
    # Who reads the first thousand tokens alone knows the form of a summary, and no fact.
    blind = (
        "--set",
        "tasks.facts.keep=first",
        "--set",
        "tasks.facts.document_tokens=1000",
    )
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
            search = task.search
            found[name] = task.document_tokens, search.max_length, search.beams, batch
    long = (3072, 256, 5, 128)
    assert found == {
        **dict.fromkeys(("arxiv", "pubmed", "bigpatent"), long),
        "xsum": (1024, 64, 5, 128),
        "cnn-dailymail": (2048, 128, 5, 128),
    }
