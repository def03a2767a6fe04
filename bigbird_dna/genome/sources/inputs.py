"""The files that a run starts from, whoever they come from."""

from dataclasses import dataclass
from pathlib import Path

from bigbird_dna.config import Config
from bigbird_dna.genome.sources.catalogue import Source
from bigbird_dna.genome.sources.local import check_chromatin_files, chromatin_files, sequence_files
from bigbird_dna.genome.sources.public import check_sources, own_files


@dataclass(frozen=True)
class Inputs:
    """Files by role; a role that a run hasn't got is left out.

    Roles are reference, aliases, promoters, chain, annotation, positives, negatives, splits, tracks, peaks,
    blacklist, variants, and of DeepSEA's data bundle and bins.
    """

    files: dict[str, Path]
    sources: dict[str, Source]  # the roles whose file is fetched

    @property
    def keys(self) -> dict[str, str]:
        """The key that `fetch` takes, by the name of the file."""
        return {source.file: source.key for source in self.sources.values()}


def find_inputs(config: Config) -> Inputs:
    """The files of a configuration: simulated, to be fetched, or the user's own.

    Raises
    ------
    ConfigError
        As `check_sources`, `own_files`, `sequence_files` and `check_chromatin_files`.
    """
    sources, own, paths = check_sources(config), own_files(config), config.paths
    check_chromatin_files(config)
    files = {role: paths.download(source.file) for role, source in sources.items()} | own
    files |= sequence_files(config)
    if config.is_simulated:
        files |= {"reference": paths.simulated_reference, "promoters": paths.simulated_promoters}
    if config.has_chromatin:
        files |= chromatin_files(config)
    return Inputs(files, sources)
