"""Inputs of pretraining, its objective, and what it is measured on."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.baselines.language import BASES_BOTH, TOKENS_BOTH, UNIGRAM
from bigbird_dna.config.reading import load_config, parse_config
from bigbird_dna.config.run import Config
from bigbird_dna.config.training import PretrainingConfig
from bigbird_dna.data.predictions import read_bits
from bigbird_dna.errors import ConfigError, DataError, UsageError
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import Interval, reverse_complement
from bigbird_dna.metrics.resampling import BLOCK_BASES
from bigbird_dna.model.directory import load, save
from bigbird_dna.model.heads import PretrainingNetwork
from bigbird_dna.model.input_embeddings import initial_deviation
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import PretrainingSettings
from bigbird_dna.pretraining import task
from bigbird_dna.pretraining.evaluation import evaluate_pretraining, training_documents
from bigbird_dna.pretraining.held_out import HeldOut
from bigbird_dna.pretraining.sampling import SegmentSampler, document_bounds
from bigbird_dna.pretraining.task import (
    SIZE,
    PretrainingTask,
    init_from_counts,
    neighbor_vectors,
)
from bigbird_dna.tokens.corpus import DocumentPlan, Strands
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.store import TokenStore, build_store
from bigbird_dna.training.task import train
from tests.cli.command import Run, invoke, refused
from tests.golden.messages import fails, message
from tests.pretraining.test_sampling import Numbered
from tests.toys import random_model, small_encoder
from tests.training.curve import ALONE

BASELINES = [UNIGRAM, TOKENS_BOTH, BASES_BOTH]


@pytest.fixture(scope="module")
def stores(tiny_config: Path) -> dict[str, TokenStore]:
    tokens = Path(load_config(tiny_config).results) / "tokens"
    return {split: TokenStore(tokens / split) for split in ("train", "valid")}


@pytest.fixture(scope="module")
def tokenizer(tiny_config: Path) -> DnaTokenizer:
    return DnaTokenizer.load(
        Path(load_config(tiny_config).results) / "tokens/tokenizer.model"
    )


def make(
    tokenizer: DnaTokenizer,
    stores: dict[str, TokenStore],
    config: PretrainingConfig,
    **changes: object,
) -> PretrainingTask:
    values = config.model_dump() | changes
    run = Config(encoder=small_encoder(tokenizer.vocabulary))
    task = PretrainingTask(run, Path(), Path())
    task.config, task.tokenizer = PretrainingConfig(**values), tokenizer
    task.encoder, task.stores = run.encoder, stores
    return task


@pytest.fixture(scope="module")
def objective(
    tiny_config: Path, tokenizer: DnaTokenizer, stores: dict[str, TokenStore]
) -> PretrainingTask:
    config = load_config(tiny_config).pretraining
    return make(tokenizer, stores, config, sequence_tokens=96, next_sentence=True)


def places(store: TokenStore, ids: np.ndarray) -> list[int]:
    """Where tokens stand in a store."""
    stored = np.asarray(store.tokens)
    data, wanted = stored.tobytes(), ids.astype(stored.dtype).tobytes()
    found, start = [], data.find(wanted)
    while start >= 0:
        found += [start // stored.itemsize] if start % stored.itemsize == 0 else []
        start = data.find(wanted, start + 1)
    return found


def test_segments_fill_the_input_and_come_from_everywhere(
    stores: dict[str, TokenStore], tokenizer: DnaTokenizer
) -> None:
    store = stores["train"]
    sampler, rng = SegmentSampler(store, tokenizer, 96), np.random.default_rng(0)
    bounds = document_bounds(store)
    seen = np.zeros(len(store.tokens))
    for _ in range(3000):
        ids, first, follows = sampler.draw(rng)
        assert (
            ids[0] == tokenizer.cls_id
            and ids[-1] == tokenizer.sep_id
            and first == len(ids)
            and follows
        )
        found = places(store, ids[1:-1])
        document = np.searchsorted(bounds, found[0], side="right") - 1
        assert len(ids) == 96 or bounds[document + 1] - bounds[document] == len(ids) - 2
        if len(found) == 1:
            assert found[0] + len(ids) - 2 <= bounds[document + 1]
            seen[found[0] : found[0] + len(ids) - 2] += 1
    assert (seen > 0).mean() > 0.95
    assert (
        np.std([part.sum() for part in np.array_split(seen, 10)])
        < 0.2 * seen.sum() / 10
    )


def test_a_batch_is_laid_out_as_cls_a_sep_b_sep(
    objective: PretrainingTask,
) -> None:
    batch, tokenizer = objective.batch(0, 0, 4), objective.tokenizer
    for row, length, segments in zip(
        batch["ids"], batch["lengths"], batch["segments"], strict=True
    ):
        ids = row[:length].tolist()
        assert ids[0] == tokenizer.cls_id and ids[-1] == tokenizer.sep_id
        middle = ids.index(tokenizer.sep_id)
        assert ids.count(tokenizer.sep_id) == 2
        assert segments[: middle + 1].sum() == 0 and segments[middle + 1 : length].all()
    flat = batch["ids"].flatten()[batch["masked"]]
    assert (flat == tokenizer.mask_id).float().mean() > 0.5
    assert len(batch["masked"]) == len(batch["labels"]) > 0


@pytest.mark.parametrize("pairs", [True, False])
def test_what_is_held_out_is_hidden_once_and_lies_where_it_says(
    stores: dict[str, TokenStore], tokenizer: DnaTokenizer, pairs: bool
) -> None:
    store = stores["valid"]
    held_out = HeldOut.draw(store, tokenizer, 96, 40, pairs=pairs)
    assert (np.diff(held_out.tokens) > 0).all()
    assert (np.asarray(store.tokens)[held_out.tokens] == held_out.labels).all()
    assert (tokenizer.piece_lengths[held_out.labels] == held_out.bases).all()
    ends = np.cumsum(tokenizer.piece_lengths[np.asarray(store.tokens)])
    starts = ends[held_out.tokens] - held_out.bases
    assert (held_out.blocks == starts // BLOCK_BASES).all()
    number = 0
    for example, own in zip(held_out.inputs, held_out.positions, strict=True):
        assert (example.ids == tokenizer.mask_id).sum() == len(own) > 0
        whole = example.ids.copy()
        whole[own] = held_out.labels[number : number + len(own)]
        number += len(own)
        text = whole[~np.isin(whole, [tokenizer.cls_id, tokenizer.sep_id])]
        assert len(whole) - len(text) == (3 if pairs else 2) and places(store, text)
    assert number == len(held_out.labels)
    shorter = HeldOut.draw(store, tokenizer, 96, 5, pairs=pairs)
    whole = HeldOut.draw(store, tokenizer, 96, 10_000, pairs=pairs)
    assert len(shorter.inputs) == 5 and {*shorter.tokens} <= {*whole.tokens}
    assert {*held_out.tokens} <= {*whole.tokens}


def untrained(
    config: Path, tokenizer: DnaTokenizer, settings: PretrainingSettings
) -> LoadedModel:
    encoder = load_config(config).encoder.model_copy(
        update={"vocabulary": tokenizer.vocabulary}
    )
    return random_model(tokenizer, encoder, settings)


def test_bits_are_those_of_each_token(
    objective: PretrainingTask, tokenizer: DnaTokenizer, tiny_config: Path
) -> None:
    network: Any = untrained(tiny_config, tokenizer, PretrainingSettings()).network
    held_out = objective.held_out
    with torch.inference_mode():
        bits, _ = held_out.predict(network, objective.tokenizer, ALONE)
        assert np.isfinite(bits).all()
        first = 0
        for example, own in itertools.islice(
            zip(held_out.inputs, held_out.positions, strict=True), 5
        ):
            ids = torch.from_numpy(example.ids.astype(np.int64))[None]
            segments = (torch.arange(ids.shape[1]) >= example.first).long()[None]
            output = network(
                ids, torch.tensor([ids.shape[1]]), segments, torch.from_numpy(own)
            )
            chances = output.tokens.double().log_softmax(-1) / np.log(2)
            labels = torch.from_numpy(held_out.labels[first : first + len(own)])
            expected = -chances.gather(1, labels[:, None])[:, 0].numpy()
            assert bits[first : first + len(own)] == pytest.approx(expected, abs=1e-4)
            first += len(own)
    # Of one that knows nothing, uniform predictions cost log2(vocabulary) bits a token.
    with torch.no_grad():
        network.encoder.embeddings.token.weight.zero_()  # all scores are products with these
    with torch.inference_mode():
        figures = objective.evaluate(network, ALONE)
        again = objective.evaluate(network, ALONE)
    expected = np.log2(objective.tokenizer.vocabulary) / objective.held_out.bases.mean()
    assert figures["bits_per_base"] == pytest.approx(expected, rel=1e-5)
    assert again == figures and 0 <= figures["next_sentence_accuracy"] <= 1


@pytest.mark.parametrize("strands", ["both", "forward"])
@pytest.mark.parametrize("passes", [1, 2, 3, 4])
def test_baselines_learn_from_the_first_pass_of_each_strand(
    tmp_path: Path, tokenizer: DnaTokenizer, strands: Strands, passes: int
) -> None:
    """Later passes cut the same sequence at other places: it must not be counted again."""
    rng = np.random.default_rng(0)
    sequence, other = ("".join(rng.choice([*"ACGT"], size)) for size in (4000, 1500))
    (tmp_path / "x.fa").write_text(f">a\n{sequence}{'N' * 300}{other}\n>b\n{other}\n")
    prepare_reference(tmp_path / "x.fa", tmp_path / "x.fa.gz")
    reference = Reference(tmp_path / "x.fa.gz")
    plan = DocumentPlan(passes, 0, (50, 90), (4, 6), strands=strands)
    info = build_store(
        tmp_path / "train",
        reference,
        [Interval(name, 0, size) for name, size in reference.contigs.items()],
        tokenizer,
        plan,
        max_n=1 - 1e-9,
    )
    store = TokenStore(tmp_path / "train", tokenizer)
    documents = training_documents(store)
    assert info["skipped_sentences"] and len(documents) == info["first_documents"]
    text = "".join(tokenizer.decode(document) for document in documents).replace(
        "N", ""
    )
    whole = [sequence + other, other]
    if strands == "both" and passes > 1:
        whole += [reverse_complement(contig) for contig in whole]
    assert text == "".join(whole)


@pytest.fixture(scope="module")
def evaluated(
    tiny_config: Path, tokenizer: DnaTokenizer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, Path]:
    """A model that was not trained, the tokens, and the table of what they gave."""
    tokens, home = (
        load_config(tiny_config).paths.tokens,
        tmp_path_factory.mktemp("evaluated"),
    )
    model = untrained(tiny_config, tokenizer, PretrainingSettings(next_sentence=False))
    save(home / "model", model, {}, {}, {})
    evaluate_pretraining(
        home / "model",
        tokens,
        home / "bits.tsv",
        sequence_tokens=64,
        sequences=30,
    )
    return home / "model", tokens, home / "bits.tsv"


def test_model_and_baselines_are_evaluated_on_the_same_hidden_tokens(
    evaluated: tuple[Path, Path, Path],
    stores: dict[str, TokenStore],
    tokenizer: DnaTokenizer,
) -> None:
    model, _, path = evaluated
    table = read_bits(path)
    assert dict.fromkeys(table["split"]) == dict.fromkeys(["valid", "test"])
    rows = table[table["split"] == "valid"].set_index("predictor")
    assert [*rows.index] == ["model", "uniform", *BASELINES]
    held_out = HeldOut.draw(stores["valid"], tokenizer, 64, 30, pairs=False)
    with torch.inference_mode():
        bits, _ = held_out.predict(load(model).network.eval(), tokenizer, ALONE)
    own = bits.sum() / held_out.bases.sum()
    assert rows.loc["model", "bits_per_base"] == pytest.approx(own, rel=1e-5)
    assert rows.loc["uniform", "bits_per_base"] == 2
    assert rows.loc["uniform", "difference"] == pytest.approx(own - 2, rel=1e-4)
    counts = np.bincount(
        np.concatenate(training_documents(stores["train"])),
        minlength=tokenizer.vocabulary,
    )
    expected = (
        -np.log2((counts / counts.sum())[held_out.labels]).sum() / held_out.bases.sum()
    )
    assert rows.loc["unigram tokens", "bits_per_base"] == pytest.approx(
        expected, rel=0.01
    )
    assert (rows.loc[BASELINES, "bits_per_base"] < own).all()  # it has learnt nothing


def test_a_model_evaluated_alone_has_the_same_figures_and_mistakes_are_refused(
    evaluated: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    model, tokens, table = evaluated
    words = [
        model,
        "--tokens",
        tokens,
        "--sequences",
        30,
        "--sequence-tokens",
        64,
        "--device",
        "cpu",
    ]
    invoke("evaluate pretraining", *words, "--model-only", "-o", tmp_path / "alone.tsv")
    beside = read_bits(table)
    own = beside[beside["predictor"] == "model"].reset_index(drop=True)
    alone = read_bits(tmp_path / "alone.tsv")
    assert len(alone) == 2
    pd.testing.assert_frame_equal(alone, own)
    # What can't be evaluated is refused.
    with fails(UsageError):
        evaluate_pretraining(model, tokens, tmp_path / "bits.tsv", sequence_tokens=999)
    with fails(DataError):
        evaluate_pretraining(model, tmp_path, tmp_path / "bits.tsv")
    assert not (tmp_path / "bits.tsv").exists()


def flip(path: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def swap(path: Path) -> None:
    """Exchange two offsets, which changes neither the number of them nor the ends."""
    offsets = np.load(path)
    offsets[[3, 4]] = offsets[[4, 3]]
    np.save(path, offsets)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("train/tokens.bin", flip),
        ("train/documents.npy", swap),
        ("valid/sentences.npy", swap),
    ],
)
def test_a_damaged_store_is_refused_before_it_begins(
    tiny_config: Path,
    tmp_path: Path,
    run: Run,
    name: str,
    damage: Callable[[Path], None],
) -> None:
    tokens = tmp_path / "tokens"
    shutil.copytree(load_config(tiny_config).paths.tokens, tokens)
    damage(tokens / name)
    written = ("-o", tmp_path / "model", "--checkpoint-dir", tmp_path / "checkpoints")
    result = run("pretrain", tiny_config, "--tokens", tokens, *written)
    message(refused(result, 1), tokens / name)
    assert [path.name for path in tmp_path.iterdir()] == ["tokens"]


def test_inputs_of_the_default_length_need_positions_as_well(tmp_path: Path) -> None:
    config = parse_config({"encoder": {"max_length": 256}})
    task = PretrainingTask(config, tmp_path / "tokens", tmp_path / "tokenizer.model")
    with fails(ConfigError, "sequence_tokens"):
        assert task.config
        train(task, tmp_path / "model", tmp_path / "checkpoints", ALONE)


# Embeddings and biases that begin with counts


def store(documents: list[list[int]]) -> Numbered:
    """A store of documents of one sentence each."""
    ids = np.array([token for document in documents for token in document], np.uint16)
    return Numbered.of([[len(document)] for document in documents])._replace(tokens=ids)


def network(
    vocabulary: int, position: str = "rotary", hidden: int = 128
) -> PretrainingNetwork:
    torch.manual_seed(0)
    sizes = {
        "layers": 2,
        "hidden": hidden,
        "heads": 4,
        "max_length": 64,
        "block_size": 64,
    }
    config = small_encoder(vocabulary, **sizes, position_encoding=position)
    return PretrainingNetwork(config, next_sentence=False)


def information(documents: list[list[int]], size: int) -> np.ndarray:
    """Oracle: log of how much more often a token stands before another than by chance."""
    counts = np.full((size, size), 0.5)
    for document in documents:
        for left, right in itertools.pairwise(document):
            counts[left, right] += 1
    sides = (counts.sum(axis) - 0.5 * size + 0.5 for axis in (1, 0))
    first, second = (np.log(side / side.sum()) for side in sides)
    return np.log(counts / counts.sum()) - first[:, None] - second[None]


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.lists(st.integers(0, 5), min_size=1, max_size=30), min_size=1, max_size=6
    )
)
def test_vectors_of_full_width_hold_all_that_was_counted(
    documents: list[list[int]],
) -> None:
    """Their products are those of the matrix of pairs, to the power of a half: none of it is lost."""
    documents = [[*range(6)], *documents]
    ids = np.concatenate([np.array(document) for document in documents])
    bounds = np.cumsum([0, *map(len, documents)])
    vectors = neighbor_vectors(ids, bounds, np.arange(6), 100)
    assert vectors.shape == (6, 6)
    matrix = np.hstack([one := information(documents, 6), one.T])
    products = matrix @ matrix.T
    gram = vectors @ vectors.T
    np.testing.assert_allclose(
        gram @ gram, products, atol=1e-6 * max(1, np.abs(products).max())
    )
    again = neighbor_vectors(ids, bounds, np.arange(6), 2)
    np.testing.assert_allclose(again, vectors[:, :2], atol=1e-9)


def test_tokens_with_the_same_neighbors_begin_alike() -> None:
    rng = np.random.default_rng(0)
    jumps = rng.choice([1, 2, 3], 4000, p=[0.7, 0.2, 0.1])
    pattern = 10 + np.cumsum(jumps) % 10  # what follows depends on what there is
    ids = np.where(
        (pattern == 12) & (rng.random(4000) < 0.5), 25, pattern
    ).tolist()  # 25 stands in for 12
    made = network(30)
    before = made.encoder.embeddings.token.weight.detach().clone()
    init_from_counts(made, store([ids]))
    weight = made.encoder.embeddings.token.weight.detach()
    alike = torch.nn.functional.cosine_similarity(weight[12, :11], weight[10:26, :11])
    assert alike.topk(2).indices.tolist() == [2, 15]
    unseen = [token for token in range(30) if token not in ids]
    assert torch.equal(weight[unseen], before[unseen])
    rows = weight[sorted(set(ids))][:, :11]
    assert rows.std().item() == pytest.approx(SIZE * initial_deviation(128), rel=0.01)
    assert torch.equal(
        weight[:, 11:], before[:, 11:]
    )  # eleven tokens fill eleven components


def test_biases_are_log_frequencies_and_positions_stay_clear() -> None:
    made = network(8)
    init_from_counts(made, store([[5] * 600, [6] * 300 + [7] * 100]))
    shares = made.masked_tokens.bias.detach().exp()
    assert shares.sum().item() == pytest.approx(1, abs=1e-5)
    assert shares[5:].tolist() == pytest.approx([0.6, 0.3, 0.1], abs=0.002)
    # Components of positions stay clear.
    made = network(40, "learned")
    token = made.encoder.embeddings.token.weight
    clear = (token == 0).all(0)
    init_from_counts(
        made, store([np.random.default_rng(0).integers(5, 40, 3000).tolist()])
    )
    assert clear.sum() == 32 and torch.equal((token == 0).all(0), clear)


def test_pairs_of_too_many_tokens_are_not_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(task, "LARGEST_VOCABULARY", 20)
    made = network(21)
    before = made.encoder.embeddings.token.weight.detach().clone()
    init_from_counts(made, store([[5, 6, 7]]))
    assert torch.equal(made.encoder.embeddings.token.weight, before)
    assert made.masked_tokens.bias[5] > made.masked_tokens.bias[8]
    assert "a vocabulary of 21 is" in capsys.readouterr().err
