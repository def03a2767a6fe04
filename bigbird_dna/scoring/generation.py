"""Generate DNA sequences with a pretrained model and write them as FASTA."""

from itertools import chain, repeat
from pathlib import Path

from bigbird_dna.console import log
from bigbird_dna.disk.outputs import (
    check_output,
    named_output,
    open_text,
    text_destination,
)
from bigbird_dna.errors import DataError
from bigbird_dna.genome.records import read_records
from bigbird_dna.model.decoding import Sampling
from bigbird_dna.model.directory import load
from bigbird_dna.model.generation import (
    Flanks,
    check_generating,
    describe_method,
    generate,
)
from bigbird_dna.model.inference import choose_device, cpu_threads

_LINE = 60  # bases per line


def generate_samples(
    model: Path | str,
    output: Path | str | None = None,
    *,
    number: int = 1,
    length: int = 1000,
    left: Path | None = None,
    right: Path | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    rounds: int = 30,
    seed: int = 1,
    device: str = "auto",
    threads: int | None = None,
) -> int:
    """Write samples of a pretrained model as FASTA (see `Model.generate`); return the number of samples.

    A header is `sample_N`, followed by `key=value` fields: the method (`by=causal` or `by=masked`), the
    checksum of the weights, seed and settings, and the names of the flanks. `number` samples are drawn per
    flank, or per pair of flanks: the first of `left` is paired with the first of `right`, and so on.
    `DataError` if a file of flanks cannot be used, or if the numbers of left and right flanks differ.
    """
    out = named_output(output)
    check_output(out, [model, *(path for path in (left, right) if path)])
    chosen = choose_device(device)
    opened = load(model)
    check_generating(opened, right=right is not None)
    sampling = Sampling(temperature, top_k, top_p).checked()
    flanks, names = _flanks(left, right)
    values = {
        "seed": seed,
        "rounds": None if opened.config.causal else rounds,
        **sampling._asdict(),
    }
    origin = " ".join(
        f"{key}={value if isinstance(value, int) else format(value, 'g')}"
        for key, value in values.items()
        if value is not None
    )
    by = "causal" if opened.config.causal else "masked"
    with cpu_threads(threads):
        samples = generate(
            opened,
            flanks,
            number,
            length,
            sampling,
            rounds=rounds,
            seed=seed,
            device=chosen,
        )
        log(f"{opened.name}: {describe_method(opened, rounds)}")
        labels = chain.from_iterable(repeat(name, number) for name in names)
        count = 0
        with text_destination(out) as target, open_text(target) as stream:
            for count, (sample, name) in enumerate(
                zip(samples, labels, strict=True), start=1
            ):
                stream.write(
                    f">sample_{count} by={by} model={opened.sha256[:12]} {origin}{name}\n"
                )
                lines = (
                    sample[first : first + _LINE]
                    for first in range(0, len(sample), _LINE)
                )
                stream.write("\n".join(lines) + "\n")
    return count


def _flanks(left: Path | None, right: Path | None) -> tuple[list[Flanks], list[str]]:
    """Return the flanks in file order, and the header fields of each."""
    read = [
        [*read_records(path).sequences.items()] if path else []
        for path in (left, right)
    ]
    if left and right and len(read[0]) != len(read[1]):
        raise DataError(
            f"{right}: {len(read[1]):,} flanks, but {left} has {len(read[0]):,}; the numbers must be equal"
        )
    count = max(1, *map(len, read))
    flanks, named = [], []
    for (first, before), (second, after) in zip(
        *(one or [("", "")] * count for one in read), strict=True
    ):
        flanks.append(Flanks(before, after))
        named.append(
            "".join(
                f" {side}={name}"
                for side, name in (("left", first), ("right", second))
                if name
            )
        )
    return flanks, named
