"""Which contigs train, validate and test a model."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, Self

from bigbird_dna.config import GenomeConfig
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.assembly import Assembly, shown

Split = Literal["train", "valid", "test"]


@dataclass(frozen=True)
class Splits:
    """The split of every contig of a reference, in its order; `None` for excluded contigs."""

    assignment: dict[str, Split | None]

    @classmethod
    def from_config(cls, config: GenomeConfig, contigs: Collection[str], assembly: Assembly) -> Self:
        """Divide the contigs of a reference as the configuration says.

        Contigs it doesn't name are for training. The configuration may use any naming scheme that
        `assembly` knows.

        Raises
        ------
        ConfigError
            A contig that the reference hasn't got, one contig under two names, or none left for
            training.
        """
        groups: tuple[tuple[str, Split | None, tuple[str, ...]], ...] = (
            ("exclude", None, config.exclude),
            ("valid", "valid", config.valid),
            ("test", "test", config.test),
        )
        named: dict[str, Split | None] = {}
        for key, split, names in groups:
            for name in names:
                contig = assembly.match(name, contigs)
                if contig is None:
                    raise ConfigError(
                        f"genome.{key}: no contig of the reference is {name!r} "
                        f"({assembly.name}; the reference has {shown(contigs)})"
                    )
                if contig in named:
                    raise ConfigError(f"genome.{key}: {name!r} is contig {contig!r}, which is named already")
                named[contig] = split
        assignment: dict[str, Split | None] = {contig: named.get(contig, "train") for contig in contigs}
        if "train" not in assignment.values():
            raise ConfigError("genome: exclude, valid and test name every contig, none is left to train on")
        return cls(assignment)

    def of(self, contig: str) -> Split | None:
        """The split of a contig; `None` for one that takes no part or is unknown."""
        return self.assignment.get(contig)

    def contigs(self, split: Split) -> list[str]:
        """The contigs of a split, in the reference's order."""
        return [contig for contig, own in self.assignment.items() if own == split]
