"""A model in a process with another default device, many threads, or several threads that use it."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bigbird_dna
from bigbird_dna.attention import native
from bigbird_dna.model.inference import cpu_threads
from tests.toys import random_dna

EXAMPLE = "resources/examples/yeast_VII_20kb.fa.gz"

# In a process of its own, because what is tested once ended the interpreter.
PUBLIC_CALLS = """
import sys
import numpy as np
import pandas as pd
import torch
import bigbird_dna
from bigbird_dna.attention.pattern import Pattern

torch.set_num_threads(1)  # then rows are computed by the thread that has the default device
genome = sys.argv[1]
windows = ["ACGTTGCATT" * 40, "GATTACA" * 57 + "A"]
torch.set_default_device("cuda")  # whether or not there is one
promoters, encoder = bigbird_dna.load("yeast-promoters-window"), bigbird_dna.load("yeast")
starts = bigbird_dna.load("yeast-promoters")
torch.set_default_device("cpu")

def attention(requires_grad):
    generator = torch.Generator().manual_seed(0)
    shape = (2, 2, 200, 16)
    q, k, v = (torch.randn(shape, generator=generator, device="cpu") for _ in range(3))
    for x in (q, k, v):
        x.requires_grad_(requires_grad)
    pattern = Pattern(block_size=16, random_blocks=1)
    out = bigbird_dna.bigbird_attention(q, k, v, pattern, lengths=torch.tensor([200, 150], device="cpu"))
    if requires_grad:
        out.sum().backward()
    return (q.grad if requires_grad else out).numpy()

def step():
    network = bigbird_dna.load("yeast").network.train()
    torch.manual_seed(0)
    ids = torch.from_numpy(np.arange(120, dtype=np.int64)[None] % 40)
    network.encoder(ids).square().mean().backward()
    return network.encoder.layers[0].value.weight.grad.numpy()

CALLS = {
    "predict": lambda: promoters.predict(windows, device="cpu"),
    "starts": lambda: starts.predict(windows, device="cpu"),
    "variants": lambda: starts.variant_effects(variants, genome, device="cpu")["delta"].to_numpy(),
    "likelihoods": lambda: encoder.variant_effects(variants, genome, device="cpu").select_dtypes("number").to_numpy(),
    "embed": lambda: encoder.embed(windows, device="cpu"),
    "layers": lambda: encoder.embed(windows, pool="cls", layer=1, device="cpu"),
    "tokens": lambda: encoder.embed(windows[:1], pool="token", device="cpu")[0],
    "attention": lambda: attention(False),
    "attention gradient": lambda: attention(True),
    "training step": step,
}
import pysam
base = pysam.FastaFile(genome).fetch("VII", 1199, 1200)
alt = "ACGT"[("ACGT".index(base) + 1) % 4]
variants = pd.DataFrame({"contig": ["VII"], "position": [1200], "ref": [base], "alt": [alt]})
expected = {name: call() for name, call in CALLS.items()}
torch.set_default_device("meta")
for name, call in CALLS.items():
    np.testing.assert_allclose(call(), expected[name], rtol=0, atol=1e-6, err_msg=name)
print("all", len(CALLS))
"""


def test_results_do_not_depend_on_the_default_device(tmp_path: Path) -> None:
    """One while models are loaded, another one while they are used; a CPU computes."""
    genome = tmp_path / "genome.fa"
    genome.write_text(f">VII\n{random_dna(3000, 1)}\n")
    command = [sys.executable, "-c", PUBLIC_CALLS, str(genome)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "all 10\n"), done.stderr


def test_the_compiled_kernel_refuses_tensors_of_another_device() -> None:
    kernel = native.pointwise(torch.zeros(1))
    if kernel is None:
        pytest.skip("no compiler")
    with pytest.raises(RuntimeError, match="on the CPU, not on meta"):
        kernel.gelu(torch.zeros(8), torch.zeros(8, device="meta"))


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_that_share_a_model_get_the_results_of_one(threads: int) -> None:
    """Predictions and embeddings at the same time, in batches of other sizes."""
    promoters: Any = bigbird_dna.load("yeast-promoters-window")
    encoder: Any = bigbird_dna.load("yeast")
    windows = [random_dna(400, seed) for seed in range(16)]

    with cpu_threads(threads):
        scores, vectors = promoters.predict(windows), encoder.embed(windows)
        with ThreadPoolExecutor(4) as pool:
            for _ in range(2):
                predicted = [
                    pool.submit(
                        promoters.predict,
                        windows[:count],
                        batch_size=size,
                        device="cpu",
                    )
                    for count, size in ((16, 32), (13, 4), (5, 1), (16, 7), (11, 32))
                ]
                embedded = [
                    pool.submit(encoder.embed, windows[:count], device="cpu")
                    for count in (3, 16)
                ]
                for one in predicted:
                    np.testing.assert_array_equal(
                        one.result(), scores[: len(one.result())]
                    )
                for one in embedded:
                    np.testing.assert_array_equal(
                        one.result(), vectors[: len(one.result())]
                    )
        assert torch.get_num_threads() == threads
