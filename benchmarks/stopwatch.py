"""Time a few calls of the bigbird_dna that is imported first; a process of `bigbird-dna benchmark against`.

    python -P benchmarks/stopwatch.py MODEL_DIR SECONDS THREADS TIMING [TIMING ...]

The same file times both commits, so that it uses only names that the package exports, imported where they are
used: what an older commit lacks is reported, and the others are timed. It prints JSON: the file of the
package, seconds by timing, and by timing the reason why there are none.
"""

import json
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

TOKENS, HEADS, WIDTH = 4096, 12, 64  # of attention
SEQUENCES, LENGTH, VOCABULARY, HIDDEN = 16, 128, 256, 128  # of a training step
WINDOWS = 64  # that are scored together
LEAST = 3  # calls

Call = Callable[[], object]


def attention(gradients: bool) -> Call:
    """Block-sparse attention over random queries, keys and values."""
    import torch

    from bigbird_dna import bigbird_attention
    from bigbird_dna.attention import Pattern

    pattern = Pattern(64, 2, 3, 3)
    q, k, v, grad = torch.randn(4, 1, HEADS, TOKENS, WIDTH).unbind()
    if not gradients:
        return lambda: bigbird_attention(q, k, v, pattern)
    q, k, v = leaves = [x.requires_grad_() for x in (q, k, v)]
    return lambda: torch.autograd.grad(
        bigbird_attention(q, k, v, pattern), leaves, grad
    )


def training_step() -> Call:
    """Forward, backward and AdamW of an encoder of two layers that predicts its tokens."""
    import torch

    from bigbird_dna import Encoder, EncoderConfig

    config = EncoderConfig(
        vocabulary=VOCABULARY,
        layers=2,
        hidden=HIDDEN,
        heads=2,
        max_length=LENGTH,
        block_size=32,
    )
    encoder, head = Encoder(config).train(), torch.nn.Linear(HIDDEN, VOCABULARY)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=1e-4)
    ids = torch.randint(5, VOCABULARY, (SEQUENCES, LENGTH))

    def step() -> None:
        optimizer.zero_grad()
        scores = head(encoder(ids))
        torch.nn.functional.cross_entropy(
            scores.flatten(0, 1), ids.flatten()
        ).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def window_scoring(model_directory: str) -> Call:
    """Probabilities of windows, from their text, by a promoter model."""
    import random

    from bigbird_dna import load

    model: Any = load(model_directory)
    length = model.settings.upstream + model.settings.downstream
    draw = random.Random(0)
    windows = ["".join(draw.choices("ACGT", k=length)) for _ in range(WINDOWS)]
    return lambda: model.predict(windows, device="cpu")


TIMINGS: dict[str, Callable[[str], Call]] = {
    "attention-forward": lambda _: attention(gradients=False),
    "attention-training": lambda _: attention(gradients=True),
    "training-step": lambda _: training_step(),
    "window-scoring": window_scoring,
}


def seconds_of_calls(call: Call, least: float) -> float:
    """Seconds of the fastest of calls that together take `least` seconds, after one that doesn't count."""
    call()
    times: list[float] = []
    while len(times) < LEAST or sum(times) < least:
        began = perf_counter()
        call()
        times.append(perf_counter() - began)
    return min(times)  # other load on the machine only adds to a time


def main(model_directory: str, least: str, threads: str, *names: str) -> None:
    import torch

    import bigbird_dna

    torch.set_num_threads(int(threads))
    found: dict[str, float] = {}
    missing: dict[str, str] = {}
    for name in names:
        torch.manual_seed(0)
        try:
            found[name] = seconds_of_calls(TIMINGS[name](model_directory), float(least))
        except Exception as error:  # of another version, for any reason
            missing[name] = (
                f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
            )
    print(
        json.dumps(
            {"package": bigbird_dna.__file__, "seconds": found, "missing": missing}
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
