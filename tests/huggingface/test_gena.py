"""GENA-LM's BigBird against HuggingFace: its configuration and public tokenizers, with random weights."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from Bio import SeqIO
from torch.nn import functional as F

from bigbird_dna.huggingface.exchange import import_huggingface
from bigbird_dna.huggingface.tokenizer_files import find_tokenizer
from bigbird_dna.model.directory import load
from bigbird_dna.model.model import LoadedModel
from tests.nlp.conftest import shuffle_weights

transformers = pytest.importorskip(
    "transformers",
    reason="transformers is not installed: pip install 'bigbird-dna[hf]'",
)

TOKENIZERS = ["t2t_1000h_multi_32k", "human_BPE_32k"]


def checkpoint(
    path: Path,
    gena: Path,
    tokenizer: str,
    layers: int,
    name: str = "BigBirdForPreTraining",
) -> Path:
    """A directory as theirs: configuration and tokenizer are public, the weights are at random."""
    config = transformers.BigBirdConfig.from_pretrained(
        gena / "config.json", num_hidden_layers=layers
    )
    config.num_labels, config.architectures = 1, [name]
    torch.manual_seed(1)
    network = getattr(transformers, name)(config)
    shuffle_weights(network, config.hidden_size)
    network.save_pretrained(path)
    copy_tokenizer(gena / tokenizer, path)
    return path


def copy_tokenizer(files: Path, path: Path) -> None:
    for file in files.iterdir():
        content = file.read_bytes()
        if file.suffix == ".gz":
            content = gzip.decompress(content)
        (path / file.name.removesuffix(".gz")).write_bytes(content)


@pytest.fixture(scope="module")
def pair(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, LoadedModel]:
    """Two layers of theirs, which are twelve; all else is as published."""
    home = tmp_path_factory.mktemp("gena")
    path = checkpoint(home / "hf", shared_data / "gena", TOKENIZERS[0], layers=2)
    import_huggingface(path, home / "ours")
    return path, load(home / "ours")


def sequences(shared_data: Path) -> list[str]:
    """Parts of a chromosome, and gaps of every length around ten, which are one token from there on."""
    genome = shared_data / "yeast/Saccharomyces_cerevisiae.R64-1-1.dna.toplevel.fa.gz"
    with gzip.open(genome, "rt") as stream:
        chromosome = str(next(SeqIO.parse(stream, "fasta")).seq)
    made = [chromosome[start : start + 400] for start in range(0, 200_000, 10_000)]
    made += [
        f"{made[0][:50]}{'N' * gap}{made[1][:50]}"
        for gap in (1, 5, 8, 9, 10, 11, 12, 20, 500)
    ]
    return [
        *made,
        "N" * 30 + made[2][:99],
        made[2][:99] + "N" * 30,
        "N" * 40,
        "A",
        "ACGT" * 200,
    ]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokens_are_theirs(name: str, shared_data: Path, tmp_path: Path) -> None:
    copy_tokenizer(shared_data / "gena" / name, tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    tokenizer = find_tokenizer(tmp_path, 32_000)
    for sequence in sequences(shared_data):
        expected = theirs(sequence, add_special_tokens=False)["input_ids"]
        ids, offsets = tokenizer.encode_with_offsets(sequence)
        assert ids.tolist() == expected, sequence
        assert (
            offsets[0] == 0 and (np.diff(offsets) > 0).all()
        )  # each base has one token


def test_hidden_states_and_logits_are_theirs(
    pair: tuple[Path, LoadedModel], shared_data: Path
) -> None:
    path, model = pair
    rows = [
        model.tokenizer.encode(text)
        for text in ("".join(sequences(shared_data)[:13]), "ACGTTG" * 60)
    ]
    network = transformers.BigBirdForPreTraining.from_pretrained(
        path, dtype=torch.float32
    ).eval()
    for row in rows:  # above 704 tokens attention is sparse
        ids = torch.tensor(
            [[model.tokenizer.cls_id, *row.tolist(), model.tokenizer.sep_id]]
        )
        with torch.inference_mode():
            theirs = network(ids, output_hidden_states=True)
            found = model.network(ids, None, None, torch.arange(ids.shape[1]))
            hidden = model.one_encoder()(ids)
        assert theirs.prediction_logits.std() > 0.4  # so that a bound means something
        assert (hidden - theirs.hidden_states[-1]).abs().max() < 1e-4
        assert (found.tokens - theirs.prediction_logits[0]).abs().max() < 1e-4
        assert (found.next_sentence - theirs.seq_relationship_logits).abs().max() < 1e-4
    assert len(rows[0]) > 704 > len(rows[1])


@pytest.mark.slow
def test_a_step_of_fine_tuning_is_theirs(shared_data: Path, tmp_path: Path) -> None:
    """Logits, loss, gradients and the weights after a step of AdamW, with the head for one label."""
    name = "BigBirdForSequenceClassification"
    path = checkpoint(
        tmp_path / "hf", shared_data / "gena", TOKENIZERS[0], layers=1, name=name
    )
    model = import_huggingface(path, tmp_path / "ours")
    config = transformers.BigBirdConfig.from_pretrained(
        path,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout=0.0,
    )
    theirs = (
        getattr(transformers, name)
        .from_pretrained(path, config=config, dtype=torch.float32)
        .train()
    )
    ours = model.network.eval()  # without dropout, as theirs
    rows = [model.tokenizer.encode(text) for text in sequences(shared_data)[:4]]
    lengths = torch.tensor([len(row) + 2 for row in rows])
    ids = torch.full((4, int(lengths.max())), model.tokenizer.pad_id)
    for number, row in enumerate(rows):
        ids[number, : lengths[number]] = torch.tensor([1, *row.tolist(), 2])
    present, labels = (
        torch.arange(ids.shape[1]) < lengths[:, None],
        torch.tensor([0.0, 1.0, 1.0, 0.0]),
    )
    steps = {}
    for kind, network in (("theirs", theirs), ("ours", ours)):
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, eps=1e-3)
        logits = (
            theirs(ids, attention_mask=present.long()).logits[:, 0]
            if kind == "theirs"
            else ours(ids, lengths)[:, 0]
        )
        loss = F.binary_cross_entropy_with_logits(logits, labels)
        loss.backward()
        optimizer.step()
        steps[kind] = (logits.detach(), loss.item())
    assert (steps["ours"][0] - steps["theirs"][0]).abs().max() < 1e-4
    assert steps["ours"][1] == pytest.approx(steps["theirs"][1], abs=1e-5)
    names = {
        "encoder.layers.0.query.weight": "bert.encoder.layer.0.attention.self.query.weight",
        "encoder.layers.0.output.weight": "bert.encoder.layer.0.output.dense.weight",
        "encoder.embeddings.token.weight": "bert.embeddings.word_embeddings.weight",
        "encoder.embeddings.position.weight": "bert.embeddings.position_embeddings.weight",
        "dense.weight": "classifier.dense.weight",
        "output.weight": "classifier.out_proj.weight",
    }
    own, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
    for mine, its in names.items():
        gradient, expected = own[mine].grad, other[its].grad
        assert (
            gradient is not None and expected is not None and expected.abs().max() > 0
        )
        assert (gradient - expected).abs().max() < 1e-5 * max(
            1.0, float(expected.abs().max())
        )
        assert (own[mine] - other[its]).abs().max() < 1e-5


@pytest.mark.slow
def test_all_twelve_layers(shared_data: Path, tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "hf", shared_data / "gena", TOKENIZERS[0], layers=12)
    model = import_huggingface(path, tmp_path / "ours")
    assert json.loads((path / "config.json").read_text())["num_hidden_layers"] == 12
    test_hidden_states_and_logits_are_theirs((path, model), shared_data)
