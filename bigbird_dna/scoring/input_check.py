"""A warning if the DNA of an input differs from the sequence that the model was trained on."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bigbird_dna.console import log
from bigbird_dna.errors import ModelError
from bigbird_dna.genome.fasta import stream_fasta
from bigbird_dna.genome.profile import MOST_BASES, K, count_kmers, spaced_parts
from bigbird_dna.genome.sequence import whole_contigs
from bigbird_dna.model.catalog import stored_name
from bigbird_dna.model.model import LoadedModel, training_profile_of

if TYPE_CHECKING:
    from bigbird_dna.genome.reference import Reference

_REFERENCE_BASES = 500_000  # of a reference that are compared


def check_input(model: LoadedModel, source: object, sequences: Iterable[str]) -> None:
    """Warn if sequences over A C G T N of `source` differ from those that the model was trained on.

    Only the start of the sequences is read. A model without a training profile is not compared. The result is
    never an error.
    """
    try:
        profile = training_profile_of(model)
    except ModelError as error:
        log(f"warning: {error}; the input is not compared with the training sequence")
        return
    if profile is None:
        return
    found = profile.compare(count_kmers(sequences))
    if found is not None and found.distance > found.limit:
        trained_on = f" ({profile.name})" if profile.name else ""
        log(
            f"warning: {source}: its {K}-mer profile differs from the DNA that {stored_name(model.path)} was "
            f"trained on{trained_on}: distance {found.distance:.3f}, in training DNA of this amount at most "
            f"{found.limit:.3f}; GC {found.gc:.0%} against {found.training_gc:.0%}: scores may not be "
            "meaningful"
        )


def start_of_fasta(path: Path) -> Iterator[str]:
    """Yield the sequences of a FASTA file, of a long one no more than is compared."""
    return (chunk.sequence for chunk in stream_fasta(path, MOST_BASES + K))


def check_reference(model: LoadedModel, reference: "Reference") -> None:
    """Warn as `check_input` if parts of a whole reference differ from the model's training sequence."""
    parts = spaced_parts(whole_contigs(reference.contigs), _REFERENCE_BASES)
    check_input(model, reference.path, map(reference.fetch, parts))
