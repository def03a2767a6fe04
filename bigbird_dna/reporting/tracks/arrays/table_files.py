"""Tables of rows × tracks: Parquet, read by columns and batches, and tab-separated text, read whole.

Columns called as in `PLACES` say which interval a row is; every other column is a track.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from bigbird_dna.errors import DataError
from bigbird_dna.files import reading
from bigbird_dna.genome.compression import open_bytes, read_lines
from bigbird_dna.parquet import open_parquet, read_frame
from bigbird_dna.reporting.tracks.arrays.array import MemoryArray, TrackArray, Values, row_step

if TYPE_CHECKING:
    import pandas as pd

PLACES = ("contig", "start", "end", "name", "strand", "split")
_MISSING = ("", "NA", "NaN", "nan", "N/A", "null")


class ParquetArray(TrackArray):
    """A Parquet file with one column a track; missing values are NaN."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        with open_parquet(path) as stored:
            schema, rows = stored.schema_arrow, stored.metadata.num_rows
        doubled = [name for name, count in Counter(schema.names).items() if count > 1]
        if doubled:
            raise DataError(f"{path}: two columns called {min(doubled)!r}")
        places = [name for name in schema.names if name in PLACES]
        if places:
            self.places = read_frame(path, places)
        names = tuple(name for name in schema.names if name not in PLACES)
        kinds = [kind for name, kind in zip(schema.names, schema.types, strict=True) if name not in PLACES]
        for name, kind in zip(names, kinds, strict=True):
            if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or kind == pa.bool_()):
                raise DataError(f"{path}: column {name!r} holds {kind}, not numbers")
        single = {pa.float32(), pa.float16()}.issuperset(kinds)
        small = {pa.bool_(), pa.int8(), pa.uint8()}.issuperset(kinds)
        # Missing whole numbers need NaN, so that these are read as floats.
        dtype: np.dtype[Any] = np.dtype(np.float32 if single or small else np.float64)
        super().__init__(str(path), dtype, (rows, len(names)))
        self.names = names

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        import pyarrow as pa

        assert self.names is not None
        names = list(self.names[first:last])
        step = max(row_step(len(names), self.dtype), 1024)
        with open_parquet(Path(self.path)) as stored:
            for batch in stored.iter_batches(step, columns=names, use_threads=False):
                values = np.empty((batch.num_rows, len(names)), self.dtype)
                for column, name in enumerate(names):
                    found = batch.column(name)
                    if pa.types.is_boolean(found.type):
                        found = found.cast(pa.int8())
                    values[:, column] = found.to_numpy(zero_copy_only=False)
                yield values


def read_table(path: Path) -> TrackArray:
    """Read tab-separated text, plain or gzip, with or without a header.

    Lines that begin with `##` are comments; a first line with anything but numbers is the header
    and may begin with `#`. Empty cells and NA are NaN.
    """
    import pandas as pd
    from pyarrow import csv

    with reading(path, "not readable as a table", Exception):
        header, skipped = _first_line(path)
        named = not all(_is_number(text) for text in header)
        with open_bytes(path) as stream:
            stored = csv.read_csv(
                stream,
                # One thread, whose errors have the number of the row.
                csv.ReadOptions(
                    use_threads=False,
                    skip_rows=skipped + named,
                    column_names=[str(number) for number in range(len(header))],
                ),
                csv.ParseOptions(delimiter="\t", quote_char=False),
                csv.ConvertOptions(null_values=_MISSING, strings_can_be_null=True),
            )
            table = stored.to_pandas()
    first_line = skipped + named + 1
    names = [text.strip() if named else str(number) for number, text in enumerate(header, start=1)]
    names[0] = names[0].lstrip("#").strip()
    doubled = sorted(name for name, count in Counter(names).items() if count > 1)
    if doubled or "" in names:
        raise DataError(f"{path}: line {first_line - 1}: two columns called {(doubled or [''])[0]!r}")
    table.columns = pd.Index(names)
    tracks = [name for name in names if name not in PLACES]
    places = table[[name for name in names if name in PLACES]]
    for name, column in zip(names, stored.columns, strict=True):
        if name not in PLACES and not _is_numeric(column):
            _refuse_text(path, name, table[name], first_line)
    values = table[tracks].to_numpy(np.float64)
    return MemoryArray(
        str(path), values, tuple(tracks) if named else None, places if places.shape[1] else None
    )


def _is_numeric(column: Any) -> bool:
    """Whether a column of Arrow holds numbers, or nothing."""
    import pyarrow as pa

    kind = column.type
    numeric = pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return bool(numeric or column.null_count == len(column))


def _refuse_text(path: Path, name: str, cells: pd.Series[Any], first_line: int) -> NoReturn:
    """Raise for the first cell that is no number."""
    import pandas as pd

    bad = cells.notna() & pd.to_numeric(cells, errors="coerce").isna()
    row = int(bad.to_numpy().argmax())
    raise DataError(f"{path}: line {first_line + row}: column {name!r}: {cells.iloc[row]!r:.60} is no number")


def _first_line(path: Path) -> tuple[list[str], int]:
    """The cells of the first line that is no comment, and the number of lines before it."""
    for number, line in read_lines(path):
        if not line.startswith("##"):
            return line.split("\t"), number - 1
    raise ValueError("it has no line but comments")


def _is_number(text: str) -> bool:
    if text.strip() in _MISSING:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
