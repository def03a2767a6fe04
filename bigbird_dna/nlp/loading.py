"""Splits of a task as records: from files of one's own, from a public data set, or generated.

Public data sets come by the library `datasets`, which needs a network, or its cache filled by one.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bigbird_dna.console import log
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import ConfigError, DataError, error_text
from bigbird_dna.nlp.drawing import rows_of
from bigbird_dna.nlp.extra import extra
from bigbird_dna.nlp.pretraining.installed import installed_documents
from bigbird_dna.nlp.records import RECORDS, Kind, Record, checked, read_records, write_objects
from bigbird_dna.nlp.sections import PART, SPLITS, DataConfig, GeneratedConfig, HubConfig

ToRecord = Callable[[Mapping[str, Any]], dict[str, Any] | None]
Read = Callable[[Path], Iterator[Record]]
Generate = Callable[[GeneratedConfig, str], Iterator[dict[str, Any]]]


def write_splits(
    data: DataConfig,
    kind: Kind,
    to_record: ToRecord,
    generate: Generate,
    directory: Path,
    read: Read | None = None,
) -> dict[str, int]:
    """Write `train.jsonl`, `valid.jsonl` and `test.jsonl` into a directory, all or none; how many each has.

    Every record is checked.

    Parameters
    ----------
    to_record
        Makes a record of a row of the public data set; none: the row is left out.
    generate
        Makes the records of a split.
    read
        Reads a file of one's own; none: it is one of records.

    Raises
    ------
    DataError
        A record is not one of `kind`: the text names file or data set, and line or row. The public data set
        can't be had.
    """
    given = [] if data.files is None else [Path(getattr(data.files, split)) for split in SPLITS]
    counts = {}
    with into_directory(directory, given) as temporary:
        for split in SPLITS:
            rows = _records(data, kind, to_record, generate, split, read)
            counts[split] = write_objects(temporary / f"{split}.jsonl", rows)
    log(f"{directory}: {', '.join(f'{counts[split]:,} {split}' for split in SPLITS)} records")
    return counts


def _records(
    data: DataConfig, kind: Kind, to_record: ToRecord, generate: Generate, split: str, read: Read | None
) -> Iterator[dict[str, Any]]:
    form = RECORDS[kind]
    if data.files is not None:
        path = Path(getattr(data.files, split))
        for record in read(path) if read else read_records(path, form):
            yield record.model_dump(exclude_unset=True) | {"id": record.id}
        return
    if data.generated is not None:
        source, rows = "generated", generate(data.generated, split)
    elif data.installed is not None:
        if kind != "pretraining":
            raise ConfigError(f"data.installed: is text to pretrain on, and the task is of kind {kind}")
        source, rows = f"the text {data.installed.text}", installed_documents(data.installed, split)
    else:
        assert data.hub is not None
        source = f"{data.hub.name} ({split})"
        rows = (one for row in hub_rows(data.hub, split) if (one := to_record(row)) is not None)
    number = 0
    for number, values in enumerate(rows, 1):
        record = checked(values, form, number, source)
        yield record.model_dump(exclude_unset=True) | {"id": record.id}
    if not number:
        raise DataError(f"{source}: holds no record")


def hub_rows(hub: HubConfig, split: str) -> Iterator[Mapping[str, Any]]:
    """Rows of a public data set's split, one after the other; `DataError` if it can't be had.

    A part of a split has rows that were drawn: see `drawing.rows_of`. No code of a data set is run.
    """
    datasets = extra("datasets")
    name = getattr(hub, split)
    part = PART.fullmatch(name)
    try:
        found = datasets.load_dataset(hub.name, hub.subset, split=part[1] if part else name, streaming=False)
    except Exception as error:  # whatever the library, or the network, has to say
        raise DataError(
            f"data set {hub.name} ({name}): can't be had: {error_text(error)}; name files of your own in "
            "data.files, or run where there is a network"
        ) from None
    yield from found.select(rows_of(name, len(found))) if part else found
