"""Tables of rows × tracks: Parquet, read by columns and batches, and tab-separated text, read whole.

Columns called as in `PLACES` say which interval a row is; every other column is a track.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError, error_text
from bigbird_dna.reporting.tracks.arrays.array import (
    MemoryArray,
    TrackArray,
    check_numbers,
    row_step,
)

if TYPE_CHECKING:
    import pandas as pd

PLACES = ("contig", "start", "end", "name", "strand", "split")
_MISSING = ("", "NA", "NaN", "nan", "N/A", "null")


class ParquetArray:
    """A Parquet file with one column a track; missing values are NaN."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = str(path)
        try:
            with pq.ParquetFile(path) as stored:
                schema, self.rows = stored.schema_arrow, stored.metadata.num_rows
                names = [name for name in schema.names if name not in PLACES]
                places = [name for name in schema.names if name in PLACES]
                self.places: pd.DataFrame | None = (
                    stored.read(columns=places).to_pandas() if places else None
                )
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path}: not readable as Parquet: {error_text(error)}") from None
        for name in names:
            kind = schema.field(name).type
            if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or kind == pa.bool_()):
                raise DataError(f"{path}: column {name!r} holds {kind}, not numbers")
        self.names: tuple[str, ...] | None = tuple(names)
        self.tracks = len(names)
        single = all(schema.field(name).type in (pa.float32(), pa.float16()) for name in names)
        small = all(schema.field(n).type in (pa.bool_(), pa.int8(), pa.uint8()) for n in names)
        # Missing whole numbers need NaN, so that these are read as floats.
        self.dtype: np.dtype[Any] = np.dtype(np.float32 if single or small else np.float64)
        check_numbers(self.path, self.dtype, (self.rows, self.tracks))

    def chunks(self, first: int, last: int) -> Iterator[NDArray[Any]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        assert self.names is not None
        names = list(self.names[first:last])
        try:
            with pq.ParquetFile(self.path) as stored:
                step = max(row_step(len(names), self.dtype), 1024)
                for batch in stored.iter_batches(step, columns=names, use_threads=False):
                    values = np.empty((batch.num_rows, len(names)), self.dtype)
                    for column, name in enumerate(names):
                        found = batch.column(name)
                        if pa.types.is_boolean(found.type):
                            found = found.cast(pa.int8())
                        values[:, column] = found.to_numpy(zero_copy_only=False)
                    yield values
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{self.path}: damaged: {error_text(error)}") from None


def read_table(path: Path) -> TrackArray:
    """Read tab-separated text, plain or gzip, with or without a header.

    Lines that begin with `##` are comments; a first line with anything but numbers is the header
    and may begin with `#`. Empty cells and NA are NaN.
    """
    import pandas as pd
    import pyarrow as pa
    from pyarrow import csv

    try:
        header, skipped = _first_line(path)
        named = not all(_is_number(text) for text in header)
        with pa.input_stream(str(path), "gzip" if _is_gzip(path) else None) as stream:
            table = csv.read_csv(
                stream,
                # One thread, whose errors have the number of the row.
                csv.ReadOptions(
                    use_threads=False,
                    skip_rows=skipped + named,
                    column_names=[str(number) for number in range(len(header))],
                ),
                csv.ParseOptions(delimiter="\t", quote_char=False),
                csv.ConvertOptions(null_values=_MISSING, strings_can_be_null=True),
            ).to_pandas()
    except (OSError, EOFError, ValueError, zlib.error, pa.ArrowException) as error:
        raise DataError(f"{path}: not readable as a table: {error_text(error)}") from None
    first_line = skipped + named + 1
    if not named:
        values = _numbers(path, table, [str(i + 1) for i in range(len(header))], first_line)
        return MemoryArray(str(path), values)
    names = [text.strip() for text in header]
    names[0] = names[0].lstrip("#").strip()
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled or "" in names:
        raise DataError(
            f"{path}: line {first_line - 1}: two columns called {(doubled or [''])[0]!r}"
        )
    table.columns = pd.Index(names)
    tracks = tuple(name for name in names if name not in PLACES)
    places = table[[name for name in names if name in PLACES]]
    values = _numbers(path, table[list(tracks)], list(tracks), first_line)
    return MemoryArray(str(path), values, tracks, places if places.shape[1] else None)


def _numbers(
    path: Path, table: pd.DataFrame, names: list[str], first_line: int
) -> NDArray[np.float64]:
    import pandas as pd

    for column, name in enumerate(names):
        cells = table.iloc[:, column]
        if pd.api.types.is_numeric_dtype(cells) or not cells.notna().any():
            continue
        bad = cells.notna() & pd.to_numeric(cells, errors="coerce").isna()
        row = int(bad.to_numpy().argmax())
        raise DataError(
            f"{path}: line {first_line + row}: column {name!r}: {cells.iloc[row]!r:.60} is no number"
        )
    values = table.to_numpy(np.float64)
    check_numbers(str(path), values.dtype, values.shape)
    return values


def _first_line(path: Path) -> tuple[list[str], int]:
    """The cells of the first line that is no comment, and the number of lines before it."""
    with gzip.open(path, "rt") if _is_gzip(path) else path.open("rt") as stream:
        for number, line in enumerate(stream):
            if not line.startswith("##"):
                return line.rstrip("\r\n").split("\t"), number
    raise ValueError("it has no line but comments")


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def _is_number(text: str) -> bool:
    if text.strip() in _MISSING:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
