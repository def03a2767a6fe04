"""One way from a scorer to a result: a whole one, what is read as it is made, or the shards of a job.

A scorer says what is scored and how its rows are written; `write_scores` checks, loads, computes and writes
for all of them, and `merge_shards` makes of shards the bytes that the whole job would have written.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.compression import STDIN, open_stdin
from bigbird_dna.disk.outputs import (
    Destination,
    LiveText,
    check_output,
    command_line,
    destination,
    format_for,
    is_live,
    named_output,
    provenance,
    text_destination,
)
from bigbird_dna.disk.shards import Shard, ShardFile, all_rows, contents, find_shard, read_shards, write_shard
from bigbird_dna.errors import DataError, UsageError, check_at_least_one, check_choice
from bigbird_dna.genome.fasta import readable
from bigbird_dna.model.chromatin import LoadedChromatinModel, Predictor
from bigbird_dna.model.inference import PRECISIONS, choose_device, cpu_threads, inference, precision_option
from bigbird_dna.model.model import LoadedModel, finish_of
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.scoring.formats import BINARY_FORMATS, Formats, OutputHeader, Writer, check_format
from bigbird_dna.training.initialization import model_files

Row = TypeVar("Row")
M = TypeVar("M", bound=LoadedModel)

_MERGED = {
    "scored windows": ("scoring.promoters", "PromoterScorer"),
    "predicted regions": ("scoring.tracks", "TrackScorer"),
    "effects of variants": ("scoring.variants", "VariantScorer"),
    "predicted bins": ("finetuning.evaluation", None),
    "labelled bins": ("genome.chromatin.dataset", None),
}
"""What shards are of → the module, and the scorer if they are rows, whose `merge` makes the whole result."""


@dataclass(frozen=True)
class Job(Generic[Row]):
    """A scorer's work once its files are open and checked.

    `content` gives the checksums of the files that decide the result, and `units` the number of what the
    shards of a job share evenly. `rows` scores all of these or a range of them, once.
    """

    header: OutputHeader
    content: Callable[[], dict[str, str]]
    units: Callable[[], int]
    rows: Callable[[Predictor, range | None], Iterable[Row]]
    counts: Counter[str] = field(default_factory=Counter)


class Target(NamedTuple):
    """What a scorer must know of the result before its files are open."""

    output: Path | None
    format: str
    shard: Shard | None
    precision: str

    @property
    def is_live(self) -> bool:
        """Whether rows are read as they are made."""
        return is_live(self.output) and self.format not in BINARY_FORMATS


@dataclass(frozen=True)
class Scorer(ABC, Generic[M, Row]):
    """What is scored of a file with a model (`M`), and how rows are written and kept in shards."""

    kind: ClassVar[str]
    """What its rows are of; one of those that `merge_shards` knows."""
    command: ClassVar[str]
    formats: ClassVar[Formats]
    default_format: ClassVar[str] = "tsv"
    writers: ClassVar[Mapping[str, Writer[Any]]]
    files: ClassVar[Sequence[str]]
    """Its fields that are further files, which the output must not be, nor lie in."""

    model: LoadedModel | Path | str
    source: Path | str
    max_n: float
    calibrated: bool

    @abstractmethod
    def check(self, target: Target) -> None:
        """`UsageError` if an option is out of its range; nothing was read before."""

    @abstractmethod
    def load(self, **computing: Any) -> tuple[M, Predictor]:
        """The model, and its probabilities of windows, of which rows are made.

        `UsageError` if an option is not of its kind; `computing` are the batch size and the device.
        """

    @abstractmethod
    def open(self, model: M, target: Target) -> AbstractContextManager[Job[Row]]:
        """Open and check the files; what is to be said after the last row is said on leaving."""

    @abstractmethod
    def count(self, row: Row, counts: Counter[str]) -> None:
        """Take a row into the counts of the result."""

    @staticmethod
    @abstractmethod
    def lines(row: Row) -> Iterable[str]:
        """A row in a shard, with all digits."""

    @staticmethod
    @abstractmethod
    def parse(line: str, header: OutputHeader) -> Row:
        """A row from a line of `lines`."""

    @staticmethod
    def destination(
        output: Path | None, format: str, header: OutputHeader
    ) -> AbstractContextManager[Destination]:
        """Where a result is written to: text to standard output, pipes and devices as it is made."""
        return destination(output, format) if format in BINARY_FORMATS else text_destination(output)

    @property
    def source_name(self) -> str:
        """What messages call the file."""
        return "standard input" if str(self.source) == "-" else str(self.source)

    def origin(self, model: M, target: Target, options: Mapping[str, object | None]) -> dict[str, str]:
        """What a result says of its origin; `options` are those of the command that decide it."""
        options = {**options, **precision_option(target.precision)}
        flags = {"--calibrated": self.calibrated}
        line = command_line(self.command, [model.path, self.source], options, flags)
        return provenance(model.sha256, line)

    def content(self, model: M, path: Path, *files: Path | str | None) -> dict[str, str]:
        """Checksums of all files that decide the result: the source at `path`, others and the model's."""
        models = model_files(model, self.calibrated)
        return contents(path, *files, *models, names={path: self.source_name})

    @classmethod
    def merge(cls, shards: Sequence[ShardFile], output: Path | None) -> int:
        """Write the rows of all shards as the whole job would; gives how many there are."""
        check_output(output, [shard.path for shard in shards])
        format, header = shards[0].described(lambda job: (str(job["format"]), OutputHeader.read(job)))
        check_choice("format", format, cls.formats)
        if (found := format_for(output, cls.formats, format)) != format:
            raise UsageError(
                f"{output}: its ending says {found}, but the pieces were made with --format {format}"
            )
        check_format(format, cls.formats, output)
        with cls.destination(output, format, header) as target:
            cls.writers[format](target, all_rows(shards, partial(cls.parse, header=header)), header)
        return sum(shard.rows for shard in shards)


def write_scores(
    scorer: Scorer[M, Row],
    output: Path | str | None,
    format: str | None,
    shard: str | None,
    precision: str,
    batch_size: int,
    device: str,
    threads: int | None,
) -> Counter[str]:
    """Score, and write the result whole or not at all, or as it is made; gives the scorer's counts.

    The arguments are those of `score_promoters`; of how a model computes `precision` alone changes a result.
    """
    path = named_output(output)
    check_output(path, [scorer.model, scorer.source, *(getattr(scorer, name) for name in scorer.files)])
    check_at_least_one({"batch_size": batch_size, "threads": threads})
    part = find_shard(shard, path)
    format = format or format_for(None if part else path, scorer.formats, scorer.default_format)
    check_choice("format", format, scorer.formats)
    target = Target(path, format, part, precision)
    scorer.check(target)
    check_choice("precision", precision, PRECISIONS)
    if part is None:
        check_format(format, scorer.formats, path)
    computing = inference(precision, choose_device(device))
    model, predict = scorer.load(batch_size=batch_size, device=device)
    with cpu_threads(threads), computing, scorer.open(model, target) as job:
        if part is None or path is None:
            with scorer.destination(path, format, job.header) as opened:
                rows = _counted(scorer, job, flushing(predict, opened), None)
                scorer.writers[format](opened, rows, job.header)
        else:
            rows = _counted(scorer, job, predict, part.rows(job.units()))
            what = {**job.header.stored(), "content": job.content(), "format": format}
            with write_shard(path, scorer.kind, part, what) as writer:
                writer.write_rows(line for row in rows for line in scorer.lines(row))
    return job.counts


def _counted(scorer: Scorer[M, Row], job: Job[Row], predict: Predictor, units: range | None) -> Iterator[Row]:
    for row in job.rows(predict, units):
        scorer.count(row, job.counts)
        yield row


@contextmanager
def open_source(given: Path | str, target: Target) -> Iterator[tuple[Path, IO[bytes] | None]]:
    """A file to read more than once, or standard input itself where rows go out as they are made."""
    if str(given) == "-" and target.is_live:
        with open_stdin() as stream:
            yield STDIN, stream
        return
    with readable(given) as path:
        yield path, None


def flushing(predict: Predictor, target: Destination) -> Predictor:
    """The same predictor; what was written goes out before each call, which may take long."""
    if not isinstance(target, LiveText):
        return predict

    def call(sequences: Sequence[str]) -> NDArray[np.float32]:
        target.flush()
        return predict(sequences)

    return call


def calibrated_predictor(
    model: LoadedPromoterModel | LoadedChromatinModel,
    calibrated: bool,
    prior: float | None = None,
    **options: Any,
) -> Predictor:
    """A model's probabilities of windows, as they are or after its calibration; errors of `finish_of`."""
    finish = finish_of(model, calibrated, prior)
    predict: Predictor = partial(model.window_probabilities, **options)
    return predict if finish is None else lambda sequences: finish(predict(sequences))


class MergeCounts(NamedTuple):
    """How many shards and rows there were, and what the rows are of."""

    shards: int
    rows: int
    kind: str


def merge_shards(shards: Sequence[Path | str], output: Path | str | None = None) -> MergeCounts:
    """Put the shards of a job together, to the bytes that the whole job would have written.

    Parameters
    ----------
    shards
        What `score_promoters`, `predict_tracks` or `score_variants` wrote with `shard`, or the commands
        `evaluate test-bins` and `prepare chromatin` with `--shard`: all pieces of one job, in any order.
    output
        File to write, whole or not at all, in the format that the pieces were made for; of `score_variants`
        with its index. None or "-": standard output, for text. Of `prepare chromatin` a directory.

    Raises
    ------
    UsageError
        The output can't be written, or its ending says another format.
    DataError
        A file is not a piece, or damaged; the pieces are not of one job (another model, reference, option or
        number of pieces); one is missing or there twice; or the whole job would have ended with an error, as
        of a bigWig without any score.
    """
    target = named_output(output)
    found = read_shards(shards)
    kind = found[0].kind
    if kind not in _MERGED:
        raise DataError(f"{found[0].path}: is a piece of {kind}, which this version doesn't know")
    module, scorer = _MERGED[kind]
    if target is None and scorer is None:
        raise UsageError(f"{kind} can't go to standard output: name what is to be written with -o")
    merger = import_module(f"bigbird_dna.{module}")
    rows = (merger if scorer is None else getattr(merger, scorer)).merge(found, target)
    return MergeCounts(len(found), rows, kind)
