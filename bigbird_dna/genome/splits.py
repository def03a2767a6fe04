"""Which contigs train, validate and test a model."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, Self

from bigbird_dna.config import GenomeConfig
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.assembly import ALIAS_HINT, Assembly, shown

Split = Literal["train", "valid", "test"]

_PATTERN = re.compile(r"[*?[]")


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
            As `find_named`; or no contig is left for training.
        """
        named = find_named(config, contigs, assembly)
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


class _Entry(NamedTuple):
    """An entry of a key of the configuration."""

    key: str
    split: Split | None
    text: str


def find_named(config: GenomeConfig, contigs: Collection[str], assembly: Assembly) -> dict[str, Split | None]:
    """The split of each contig that the configuration names, `None` for excluded ones; others are left out.

    An entry is any name of a contig, or a shell pattern (`*`, `?`, `[abc]`) that fits one of its names. A
    name that is written out wins over patterns.

    Raises
    ------
    ConfigError
        A contig that the reference hasn't got, one contig under two names, a pattern of `valid` or `test`
        that fits none, or patterns that put a contig into two groups.
    """
    entries = [_Entry(key, split, text) for key, split, texts in _groups(config) for text in texts]
    named: dict[str, Split | None] = {}
    patterns = []
    for entry in entries:
        contig = assembly.match(entry.text, contigs)
        if contig is None and _PATTERN.search(entry.text):
            patterns.append(entry)
            continue
        if contig is None:
            raise ConfigError(
                f"genome.{entry.key}: no contig of the reference is {entry.text!r} "
                f"({assembly.name}; the reference has {shown(contigs)}); {ALIAS_HINT}"
            )
        if contig in named:
            raise ConfigError(
                f"genome.{entry.key}: {entry.text!r} is contig {contig!r}, which is named already"
            )
        named[contig] = entry.split
    return _fitting(patterns, contigs, assembly, named) | named


def _groups(config: GenomeConfig) -> tuple[tuple[str, Split | None, tuple[str, ...]], ...]:
    return (
        ("exclude", None, config.exclude),
        ("valid", "valid", config.valid),
        ("test", "test", config.test),
    )


def _fitting(
    patterns: Sequence[_Entry], contigs: Collection[str], assembly: Assembly, named: Collection[str]
) -> dict[str, Split | None]:
    """The splits of the contigs that patterns fit, but for those whose names are written out."""
    found: dict[str, _Entry] = {}
    for entry in patterns:
        fitting = fitting_contigs(entry.text, contigs, assembly)
        if not fitting:
            what = f"genome.{entry.key}: {entry.text!r} fits no contig of the reference"
            if entry.key != "exclude":
                raise ConfigError(f"{what} ({assembly.name}; the reference has {shown(contigs)})")
            log(what)
        for contig in fitting:
            other = found.setdefault(contig, entry)
            if other.key != entry.key and contig not in named:
                raise ConfigError(
                    f"genome: contig {contig!r} fits {other.text!r} of {other.key} and {entry.text!r} of "
                    f"{entry.key}: write its name into one of them"
                )
    return {contig: entry.split for contig, entry in found.items()}


def fitting_contigs(text: str, contigs: Collection[str], assembly: Assembly) -> list[str]:
    """The contigs of which a text is a name, or a shell pattern that fits one of their names."""
    named = assembly.match(text, contigs)
    if named is not None:
        return [named]
    return [
        contig for contig in contigs if any(fnmatchcase(name, text) for name in assembly.names_of(contig))
    ]
