"""All readers of files that others made, by the package's rooms."""

from tests.fuzz.reader import Reader
from tests.fuzz.readers import (
    arrays,
    config,
    data_sets,
    downloads,
    genome,
    integrity,
    models,
    published,
    reports,
    tasks,
    text,
)

ROOMS = (config, integrity, genome, arrays, data_sets, reports, models, published, downloads, tasks, text)


def _collected() -> dict[str, Reader]:
    collected: dict[str, Reader] = {}
    for room in ROOMS:
        for reader in room.READERS:
            assert reader.name not in collected, f"two readers are called {reader.name}"
            collected[reader.name] = reader
    return collected


READERS = _collected()
