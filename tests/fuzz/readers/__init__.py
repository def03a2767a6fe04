"""All readers of files that others made, by name."""

from tests.fuzz.reader import Reader
from tests.fuzz.readers import genome, models, papers, published, reports

ROOMS = (published, genome, reports, models, papers)
READERS: dict[str, Reader] = {
    reader.name: reader for room in ROOMS for reader in room.READERS
}
assert len(READERS) == sum(len(room.READERS) for room in ROOMS)  # no two of one name
