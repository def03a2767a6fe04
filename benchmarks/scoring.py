"""`bigbird-dna benchmark scoring`: embeddings, scans and variants, beside HuggingFace and plain loops.

All implementations of the same work give the same numbers, which is checked before they are timed.
"""

from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pysam
import sentencepiece
import torch
from numpy.typing import NDArray

from benchmarks.timing import ROOT, Call, Row, compare
from bigbird_dna import load, score_promoters, score_variants
from bigbird_dna.huggingface.exchange import import_huggingface
from bigbird_dna.model.catalog import find_model

WINDOW_MODEL = "yeast-promoters-window"
BASE_MODEL = "yeast-promoters"
EXAMPLE = ROOT / "resources/examples/yeast_VII_20kb.fa.gz"
CONTIG_LENGTH = 10_000
STRIDE = 50
COMPLEMENT = str.maketrans("ACGTN", "TGCAN")
TOLERANCE = 1e-4  # of scores, which tables round

Floats = NDArray[np.floating[Any]]


def run(*, device: str = "cpu", repeats: int = 5, batch_size: int = 32) -> list[Row]:
    """Time embeddings of windows, scans of a contig and effects of variants."""
    rows: list[Row] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        genome = folder / "genome.fa"
        with pysam.FastxFile(str(EXAMPLE)) as records:
            sequence = str(next(records).sequence)
        genome.write_text(f">contig\n{sequence[:CONTIG_LENGTH]}\n")
        pysam.faidx(str(genome))
        for length, count in ((400, 64), (4000, 8)):
            rows += embeddings(folder, length, count, device, repeats, batch_size)
        rows += scans(folder, genome, device, repeats, batch_size)
        rows += variants(folder, genome, device, repeats, batch_size)
    return rows


def random_dna(length: int, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    return "".join(rng.choice(list("ACGT"), length))


def reverse_complement(sequence: str) -> str:
    return sequence.translate(COMPLEMENT)[::-1]


def check_equal(work: str, results: dict[str, Floats]) -> None:
    """Raise RuntimeError unless all implementations give the same numbers."""
    (first, reference), *others = results.items()
    for name, values in others:
        if not np.allclose(values, reference, rtol=0, atol=TOLERANCE):
            error = np.abs(values - reference).max()
            raise RuntimeError(f"{work}: {name} differs from {first} by {error:.2g}")


# Embeddings, beside HuggingFace's BigBird with the same weights.


def embeddings(
    folder: Path, length: int, count: int, device: str, repeats: int, batch_size: int
) -> list[Row]:
    """Mean hidden states of windows, from their text."""
    import transformers
    from transformers import BigBirdConfig, BigBirdModel

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

    config = BigBirdConfig(
        vocab_size=256,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=2048,
        block_size=32,
        hidden_act="gelu_new",
    )
    torch.manual_seed(0)
    peer = BigBirdModel(config, add_pooling_layer=False).eval()
    checkpoint, directory = folder / f"peer-{length}", folder / f"model-{length}"
    peer.save_pretrained(checkpoint)
    tokenizer = find_model("yeast") / "tokenizer.model"
    import_huggingface(checkpoint, directory, tokenizer=tokenizer)
    model = load(directory)
    peer.to(device)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    windows = [random_dna(length, seed) for seed in range(count)]

    def ours() -> Floats:
        found: Floats = model.embed(windows, batch_size=batch_size, device=device)
        return found

    def huggingface() -> Floats:
        """Batches padded to their longest window."""
        means = []
        for start in range(0, count, batch_size):
            texts = windows[start : start + batch_size]
            rows = [
                [model.tokenizer.cls_id, *ids, model.tokenizer.sep_id]
                for ids in pieces.encode(texts)
            ]
            tokens = torch.nn.utils.rnn.pad_sequence(
                [torch.tensor(row) for row in rows],
                batch_first=True,
                padding_value=model.tokenizer.pad_id,
            ).to(device)
            lengths = torch.tensor([len(row) for row in rows], device=device)
            mask = torch.arange(tokens.shape[1], device=device) < lengths[:, None]
            with torch.no_grad():
                hidden = peer(tokens, attention_mask=mask.long()).last_hidden_state
            total = (hidden * mask[:, :, None]).sum(1)
            means.append((total / lengths[:, None]).cpu())
        return torch.cat(means).numpy()

    work = f"embeddings of {count} windows of {length:,} bp"
    calls = {"bigbird-dna": ours, "huggingface": huggingface}
    # HuggingFace's sparse graph depends on the padding of a batch; short windows have full attention.
    if length < 1000:
        check_equal(work, {name: call() for name, call in calls.items()})
    return compare(work, calls, repeats, amount=count, unit="windows", device=device)


# Scans, beside a plain loop over windows.


def scans(
    folder: Path,
    genome: Path,
    device: str,
    repeats: int,
    batch_size: int,
) -> list[Row]:
    """Scores along both strands of a contig."""
    output = folder / "scores.parquet"
    model: Any = load(WINDOW_MODEL)
    size = model.settings.upstream + model.settings.downstream
    options: dict[str, Any] = {"batch_size": batch_size, "device": device}

    def score_windows() -> Floats:
        score_promoters(model, genome, output, stride=STRIDE, **options)
        return pd.read_parquet(output)["score"].to_numpy()

    def plain_loop() -> Floats:
        scores = []
        with pysam.FastaFile(str(genome)) as fasta:
            sequence = fasta.fetch("contig")
        for start in range(0, len(sequence) - size + 1, STRIDE * batch_size):
            windows = []
            last = min(start + STRIDE * batch_size, len(sequence) - size + 1)
            for place in range(start, last, STRIDE):
                window = sequence[place : place + size]
                windows += [window, reverse_complement(window)]
            scores.append(model.predict(windows, **options))
        return np.concatenate(scores)

    def score_bases() -> Floats:
        score_promoters(BASE_MODEL, genome, output, **options)
        return pd.read_parquet(output)["score"].to_numpy()

    calls: dict[str, Call] = {"score-promoters": score_windows}
    work = f"scan of {CONTIG_LENGTH // 1000} kb, {WINDOW_MODEL}, stride {STRIDE}"
    calls["model.predict in a loop"] = plain_loop
    # Both in ascending order: a table's rows may be sorted by strand.
    results = {"table": np.sort(score_windows()), "loop": np.sort(plain_loop())}
    check_equal(work, results)
    kb = CONTIG_LENGTH / 1000
    rows = compare(work, calls, repeats, amount=kb, unit="kb")
    work = f"scan of {CONTIG_LENGTH // 1000} kb, {BASE_MODEL}"
    calls = {"score-promoters": score_bases}
    return rows + compare(work, calls, repeats, amount=kb, unit="kb")


# Variants, beside a plain loop over alleles.


def variants(
    folder: Path,
    genome: Path,
    device: str,
    repeats: int,
    batch_size: int,
) -> list[Row]:
    """Effects of substitutions on start sites: the largest change of a base."""
    model: Any = load(BASE_MODEL)
    window, margin = model.settings.window, model.settings.margin
    options: dict[str, Any] = {"batch_size": batch_size, "device": device}
    with pysam.FastaFile(str(genome)) as fasta:
        sequence = fasta.fetch("contig")
    positions = np.arange(window, CONTIG_LENGTH - window, 600)  # 0-based
    alts = ["C" if sequence[position] != "C" else "G" for position in positions]

    vcf, output = folder / "in.vcf", folder / "out.tsv"
    lines = ["##fileformat=VCFv4.2", "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"]
    for position, alt in zip(positions, alts, strict=True):
        ref = sequence[position]
        lines.append(f"contig\t{position + 1}\t.\t{ref}\t{alt}\t.\t.\t.")
    vcf.write_text("\n".join(lines) + "\n")

    def ours() -> Floats:
        score_variants(model, vcf, genome, output, **options)
        lines = [line for line in output.open() if not line.startswith("##")]
        return pd.read_csv(StringIO("".join(lines)), sep="\t")["delta"].to_numpy()

    def plain_loop() -> Floats:
        deltas = []
        for position, alt in zip(positions, alts, strict=True):
            before = sequence[position - window : position]
            behind = sequence[position + 1 : position + 1 + window]
            room = window - 1
            left = (room + room % 2 * (reverse_complement(before) < behind)) // 2
            start = position - left
            ref_window = sequence[start : start + window]
            alt_window = ref_window[:left] + alt + ref_window[left + 1 :]
            ref, alternative = model.window_probabilities(
                [ref_window, alt_window], **options
            )
            change = (alternative - ref)[:, margin : window - margin].ravel()
            deltas.append(change[np.abs(change).argmax()])
        return np.array(deltas)

    calls: dict[str, Call] = {"score-variants": ours}
    work = f"{len(positions)} variants, {BASE_MODEL}"
    calls["model.predict in a loop"] = plain_loop
    check_equal(work, {"table": ours(), "loop": plain_loop()})
    amount = len(positions)
    return compare(work, calls, repeats, amount=amount, unit="variants")
