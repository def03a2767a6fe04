"""Where effects go: a file that appears with its index, or what is read meanwhile."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.outputs import Destination, is_special, text_destination
from bigbird_dna.genome.vcf import VcfSummary
from bigbird_dna.tasks.variants.writers import write_index

TBI_REACH = 2**29  # bp, the furthest position a `.tbi` index can hold


@contextmanager
def variant_output(output: Path | None, format: str, summary: VcfSummary | None) -> Iterator[Destination]:
    """Where to write; a file appears with its index, and without that of a former file.

    Through a link they are where it leads to. `summary` is that of all records, None for what goes out as it
    comes in.
    """
    real = None if output is None or is_special(output) else output.resolve()
    is_bgzip = real is not None and real.suffix == ".gz"
    index = None
    if is_bgzip and summary is not None and summary.is_sorted:
        index = Path(f"{real}.tbi" if summary.furthest < TBI_REACH else f"{real}.csi")
    with ExitStack() as outputs:
        target = outputs.enter_context(text_destination(output))
        temporary_index = outputs.enter_context(atomic_path(index)) if index else None
        yield target
        if temporary_index is not None and isinstance(target, Path):
            write_index(target, temporary_index, format)
    for path in (Path(f"{name}{end}") for name in (real, output) for end in (".tbi", ".csi") if is_bgzip):
        if path.resolve() != index:  # one beside a link may itself lead to the new one
            path.unlink(missing_ok=True)  # readers would trust it
