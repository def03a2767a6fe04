"""A warning if the DNA of an input differs from the sequence that the model was trained on."""

from typing import TYPE_CHECKING

from bigbird_dna.console import log
from bigbird_dna.errors import ModelError
from bigbird_dna.genome.profile import K, KmerCounts, TrainingProfile, spaced_parts
from bigbird_dna.genome.sequence import whole_contigs
from bigbird_dna.model.catalog import stored_name
from bigbird_dna.model.model import LoadedModel, training_profile_of

if TYPE_CHECKING:
    from bigbird_dna.genome.reference import Reference

_REFERENCE_BASES = 500_000  # of a reference that are compared


class InputCheck:
    """Compare the DNA of an input with the sequence that the model was trained on; warn once if it differs.

    A model without a training profile is not compared. The result is never an error.
    """

    def __init__(self, model: LoadedModel, source: object) -> None:
        self._model, self._source = stored_name(model.path), source
        self._profile: TrainingProfile | None = None
        self._counts = KmerCounts()
        try:
            self._profile = training_profile_of(model)
        except ModelError as error:
            log(
                f"warning: {error}; the input is not compared with the training sequence"
            )

    def add(self, letters: bytes, first: bool = True) -> None:
        """Read DNA letters; `first` unless they continue the previous ones."""
        if self._profile is not None:
            self._counts.add(letters, first)
            if self._counts.is_full:
                self.finish()

    def read(self, reference: "Reference") -> None:
        """Read parts of a whole reference."""
        if self._profile is not None:
            for part in spaced_parts(
                whole_contigs(reference.contigs), _REFERENCE_BASES
            ):
                self.add(reference.fetch(part).encode())
            self.finish()

    def finish(self) -> None:
        """Warn if the sequence read so far differs from the training sequence."""
        profile, self._profile = self._profile, None
        if profile is None:
            return
        self._counts.finish()
        found = profile.compare(self._counts)
        if found is not None and found.distance > found.limit:
            trained_on = f" ({profile.name})" if profile.name else ""
            log(
                f"warning: {self._source}: its {K}-mer profile differs from the DNA that {self._model} was "
                f"trained on{trained_on}: distance {found.distance:.3f}, in training DNA of this amount at "
                f"most {found.limit:.3f}; GC {found.gc:.0%} against {found.training_gc:.0%}: scores may not "
                "be meaningful"
            )
