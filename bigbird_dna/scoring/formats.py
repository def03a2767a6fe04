"""Writers of scores, regions and effects, one per format; light to import, for use in help texts.

All writers except that of bigWig process a stream with bounded memory. The same rows give the same bytes on
any machine and at any time. Coordinates are 0-based and half-open, except those of VCF.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import atomic_path, is_special, link_target, quiet_htslib
from bigbird_dna.disk.outputs import (
    Destination,
    open_text,
    provenance,
    text_destination,
)
from bigbird_dna.errors import UsageError, check_choice
from bigbird_dna.scoring.writers import BINARY_FORMATS, BigWigWriter, Formats

if TYPE_CHECKING:  # help texts must not import NumPy
    import numpy as np
    from numpy.typing import NDArray

R = TypeVar("R")

EMBEDDING_FORMATS: Formats = {
    "parquet": (".parquet",),
    "npz": (".npz",),
    "h5ad": (".h5ad",),
}
VARIANT_FORMATS: Formats = {"vcf": (".vcf",), "tsv": (".tsv", ".txt")}

TBI_REACH = 2**29  # bp, the largest position in a `.tbi` index

Value = tuple[str, int, int, float]
"""Contig, start and end (0-based, half-open), and the value."""


class OutputHeader(NamedTuple):
    """Everything that writers need in addition to the rows.

    `origin` is written at the top of the file; `contigs` are lengths in bp; `columns` are the tracks of the
    rows' values. `extra` contains JSON values specific to the scorer.
    """

    origin: Mapping[str, str]
    contigs: Mapping[str, int] = {}
    columns: Sequence[str] = ()
    extra: Mapping[str, Any] = {}

    def stored(self) -> dict[str, Any]:
        """Return the content stored in a shard, including `command` and `model`."""
        own = {
            "contigs": dict(self.contigs),
            "columns": list(self.columns),
            "extra": dict(self.extra),
        }
        return {"command": self.origin["command"], "model": self.origin["model"], **own}

    @classmethod
    def read(cls, job: Mapping[str, Any]) -> Self:
        """Return the header stored in a shard."""
        origin = provenance(job["model"], job["command"])
        return cls(origin, job["contigs"], job["columns"], job["extra"])


Writer = Callable[[Destination, Iterable[R], OutputHeader], None]
"""Writes rows in a format, as a stream with bounded memory."""


def check_format(format: str, formats: Formats, output: Path | None) -> None:
    """Raise `UsageError` if the format is unknown, or cannot be written to `output`."""
    check_choice("format", format, formats)
    if format in BINARY_FORMATS:
        if output is None:
            raise UsageError(
                f"format {format} cannot be written to standard output; give a file with -o"
            )
        if output.suffix == ".gz":
            raise UsageError(
                f"{output}: {format} cannot be written as .gz; remove .gz from the name"
            )


def write_lines(
    path: Destination, lines: Iterable[str], errors: str = "strict"
) -> None:
    """Write a text file from lines without line ends; bgzip if the name ends in `.gz`."""
    with open_text(path, errors) as stream:
        for line in lines:
            stream.write(f"{line}\n")


PLACE: Mapping[str, type] = {"contig": str, "start": int, "end": int, "name": str}
"""The first columns of every table."""


def write_parquet_table(
    path: Destination,
    rows: Iterable[tuple[Sequence[object], str, "NDArray[np.float32] | None"]],
    first: Mapping[str, type],
    header: OutputHeader,
    group: int,
    width: int | None = None,
    last: Mapping[str, type] = {},
) -> None:
    """Write rows of the cells of the columns `first`, a note, and values of the columns of `header`.

    The cells of the columns `last`, which come after all others, follow those of `first`. `group` is the
    number of rows per row group, which is held in memory. With `width`, a cell of a column is a list of this
    number of values.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    assert isinstance(path, Path), (
        "Parquet needs a regular file: its index is at the end"
    )
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float32()}
    of_values = kinds[float] if width is None else pa.list_(kinds[float], width)
    columns = [(name, kinds[kind]) for name, kind in (*first.items(), ("note", str))]
    columns += [(name, of_values) for name in header.columns]
    columns += [(name, kinds[kind]) for name, kind in last.items()]
    schema = pa.schema(columns, metadata=dict(header.origin))
    unscored = np.full(len(header.columns) * (width or 1), np.nan, np.float32)
    upcoming, count = iter(rows), 0
    with pq.ParquetWriter(path, schema) as writer:
        while some := list(islice(upcoming, group)):
            own = [*zip(*(cells for cells, _, _ in some), strict=True)]
            notes = [None if note in ("", ".") else note for _, note, _ in some]
            leading = zip([*own[: len(first)], notes], schema.types, strict=False)
            found = [pa.array(cells, kind) for cells, kind in leading]
            if header.columns:
                missing = np.array([values is None for _, _, values in some])
                table = np.stack(
                    [unscored if values is None else values for _, _, values in some]
                )
                if width is None:
                    found += [
                        pa.array(column, of_values, mask=missing) for column in table.T
                    ]
                else:
                    lists = (
                        pa.array(part.ravel())
                        for part in np.split(table, len(header.columns), axis=1)
                    )
                    found += [
                        pa.FixedSizeListArray.from_arrays(one, width) for one in lists
                    ]
            trailing = zip(own[len(first) :], last.values(), strict=True)
            found += [pa.array(cells, kinds[kind]) for cells, kind in trailing]
            writer.write_table(pa.Table.from_arrays(found, schema=schema))
            count += len(some)
    if (written := pq.read_metadata(path).num_rows) != count:
        raise OSError(f"Parquet file of {written:,} rows, not {count:,}")


def write_bigwig(
    path: Path, values: Iterable[Value], contigs: Mapping[str, int], what: str
) -> None:
    """Write values, see `BigWigWriter`; `what` names the unit without scores."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        writer = BigWigWriter(path, contigs, what, spool)
        writer.write(values)
        writer.close()


@contextmanager
def indexed_destination(
    output: Path | None, format: str, furthest: int | None
) -> Iterator[Destination]:
    """Yield the destination for lines of variants; with `.gz`, write an index and remove outdated ones.

    Through a link, file and index are written at the target. `furthest` is the largest 1-based position of
    sorted records, or of their contigs; None: the records are not sorted, or are written as a stream. The
    index is CSI for positions beyond the reach of TBI.
    """
    real = (
        None if output is None or is_special(output) else link_target(output).resolve()
    )
    is_bgzip = output is not None and real is not None and output.suffix == ".gz"
    index = None
    with text_destination(output) as target:
        yield target
        if is_bgzip and furthest is not None and isinstance(target, Path):
            # HTSlib also counts END, SVLEN and LEN; what TBI cannot hold, CSI may.
            endings = (".tbi", ".csi") if furthest < TBI_REACH else (".csi",)
            candidates = (Path(f"{real}{ending}") for ending in endings)
            index = next(
                (path for path in candidates if _is_indexed(target, path, format)), None
            )
            if index is None:
                log(f"warning: {output}: no index: HTSlib cannot index its positions")
    for path in (
        Path(f"{name}{end}")
        for name in (real, output)
        for end in (".tbi", ".csi")
        if is_bgzip
    ):
        if (
            path.resolve() != index
        ):  # an index next to a link may itself be a link to the new one
            path.unlink(missing_ok=True)  # readers would use the outdated index


def _is_indexed(path: Path, index: Path, format: str) -> bool:
    try:
        with atomic_path(index) as temporary:
            write_index(path, temporary, format)
    except OSError:
        return False
    return True


def write_index(path: Path, index: Path, format: str) -> None:
    """Write the tabix index of a bgzip file of sorted records; CSI if `index` ends in `.csi`.

    `path` must end in `.gz`. `OSError`: a position is beyond the reach of the index, or it is not readable.
    """
    import pysam

    columns: dict[str, Any] = (
        {"preset": "vcf"}
        if format == "vcf"
        else {"seq_col": 0, "start_col": 1, "end_col": 1}
    )
    with quiet_htslib():
        pysam.tabix_index(
            str(path),
            index=str(index),
            csi=index.suffix == ".csi",
            force=True,
            **columns,
        )
        with pysam.TabixFile(
            str(path), index=str(index), encoding="latin-1"
        ) as written:
            contigs = {row.split("\t", 1)[0] for row in written.fetch()}
            if contigs != {*written.contigs}:
                raise OSError(
                    f"{index}: {len(written.contigs):,} contigs, the file has {len(contigs):,}"
                )
