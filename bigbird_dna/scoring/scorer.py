"""Framework of all scorers: compute a complete result, a stream, or the shards of a job.

A scorer defines what is scored and how rows are written. `write_scores` checks, loads, computes and writes
for all scorers; `merge_shards` combines shards into the file that an unsharded job would write.
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
import torch
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
from bigbird_dna.disk.shards import (
    Shard,
    ShardFile,
    all_rows,
    contents,
    find_shard,
    read_shards,
    write_shard,
)
from bigbird_dna.errors import (
    DataError,
    UsageError,
    check_at_least_one,
    check_choice,
)
from bigbird_dna.genome.fasta import readable
from bigbird_dna.model.catalog import stored_name
from bigbird_dna.model.inference import (
    choose_device,
    cpu_threads,
    inference,
    supported_precision,
)
from bigbird_dna.model.model import LoadedModel, Predictor, window_predictor
from bigbird_dna.scoring.formats import (
    OutputHeader,
    Writer,
    check_format,
)
from bigbird_dna.scoring.input_check import InputCheck as InputCheck
from bigbird_dna.scoring.writers import BINARY_FORMATS, Formats
from bigbird_dna.tokens.build import merge_stores
from bigbird_dna.training.initialization import model_files

Row = TypeVar("Row")
M = TypeVar("M", bound=LoadedModel)

_MERGED = {
    "scored sequences": ("scoring.sequences", "SequenceScorer"),
    "embedded sequences": ("scoring.embeddings", "EmbeddingScorer"),
    "effects of variants": ("scoring.variants", "VariantScorer"),
    "predicted bins": ("finetuning.evaluation", None),
    "labeled bins": ("genome.chromatin.dataset", None),
}
"""Kind of shards → module whose `merge` combines them, and the scorer class if shards contain rows."""


@dataclass(frozen=True)
class Job(Generic[Row]):
    """The work of a scorer once its files are open and checked.

    `content` returns the checksums of the files that determine the result; `units` returns the number of
    units that the shards divide evenly. `rows` scores all units, or a range of them, in a single pass.
    """

    header: OutputHeader
    content: Callable[[], dict[str, str]]
    units: Callable[[], int]
    rows: Callable[[Predictor, range | None], Iterable[Row]]
    counts: Counter[str] = field(default_factory=Counter)


class Target(NamedTuple):
    """The properties of the result that a scorer needs before its files are open."""

    output: Path | None
    format: str
    shard: Shard | None
    precision: str | None = None
    """As stated in the result's command; None: float32, which is also the default on this device."""

    @property
    def is_live(self) -> bool:
        """Whether rows are written to a stream as they are computed."""
        return is_live(self.output) and self.format not in BINARY_FORMATS


@dataclass(frozen=True)
class Scorer(ABC, Generic[M, Row]):
    """What is scored in a file with a model (`M`), and how rows are written and stored in shards."""

    kind: ClassVar[str]
    """Kind of the rows; must be a key that `merge_shards` recognizes."""
    command: ClassVar[str]
    formats: ClassVar[Formats]
    default_format: ClassVar[str] = "tsv"
    narrow: ClassVar[bool] = True
    """Whether the precision on GPUs is bfloat16 by default: not of small differences between predictions."""
    writers: ClassVar[Mapping[str, Writer[Any]]]
    files: ClassVar[Sequence[str]]
    """Fields with additional input files; the output must not be one of them, nor be inside one."""

    model: LoadedModel | Path | str
    source: Path | str
    max_n: float
    calibrated: bool

    @abstractmethod
    def check(self, target: Target) -> None:
        """Raise `UsageError` if an option is out of range, before any file is read."""

    @abstractmethod
    def load(self, **computing: Any) -> tuple[M, Predictor]:
        """Return the model, and the predictor of window probabilities from which rows are computed.

        `UsageError` if an option does not apply to the model; `computing` has the batch size and the device.
        """

    @abstractmethod
    def open(self, model: M, target: Target) -> AbstractContextManager[Job[Row]]:
        """Open and check the files; messages due after the last row are logged on exit."""

    @abstractmethod
    def count(self, row: Row, counts: Counter[str]) -> None:
        """Add a row to the counts of the result."""

    @staticmethod
    @abstractmethod
    def lines(row: Row) -> Iterable[str]:
        """Return the lines of a row in a shard, with all digits."""

    @staticmethod
    @abstractmethod
    def parse(line: str, header: OutputHeader) -> Row:
        """Parse a row from a line written by `lines`."""

    @staticmethod
    def destination(
        output: Path | None, format: str, header: OutputHeader
    ) -> AbstractContextManager[Destination]:
        """Open the output; text to standard output, pipes and devices is written as it is computed."""
        return (
            destination(output, format)
            if format in BINARY_FORMATS
            else text_destination(output)
        )

    @property
    def source_name(self) -> str:
        """Name of the source in messages."""
        return "standard input" if str(self.source) == "-" else str(self.source)

    def origin(
        self,
        model: M,
        target: Target,
        options: Mapping[str, object | None],
        **flags: bool,
    ) -> dict[str, str]:
        """Return the provenance of a result; `options` and `flags` of the command affect the result."""
        options = {**options, "--precision": target.precision}
        given = {
            "--calibrated": self.calibrated,
            **{f"--{name}": flag for name, flag in flags.items()},
        }
        line = command_line(
            self.command, [stored_name(model.path), self.source], options, given
        )
        return provenance(model.sha256, line)

    def content(
        self, model: M, path: Path, *files: Path | str | None
    ) -> dict[str, str]:
        """Return checksums of all files that determine the result: the source, `files` and the model."""
        models = model_files(model, self.calibrated)
        return contents(path, *files, *models, names={path: self.source_name})

    @classmethod
    def merge(cls, shards: Sequence[ShardFile], output: Path | None) -> int:
        """Write the rows of all shards as an unsharded job would; return the number of rows."""
        check_output(output, [shard.path for shard in shards])
        format, header = shards[0].described(
            lambda job: (str(job["format"]), OutputHeader.read(job))
        )
        check_choice("format", format, cls.formats)
        if (found := format_for(output, cls.formats, format)) != format:
            raise UsageError(
                f"{output}: the extension means format {found}, but the shards have --format {format}"
            )
        check_format(format, cls.formats, output)
        with cls.destination(output, format, header) as target:
            cls.writers[format](
                target, all_rows(shards, partial(cls.parse, header=header)), header
            )
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
    """Score and write the result, atomically or as a stream; return the scorer's counts.

    The arguments are those of `score_promoters`; of the compute options, only `precision` changes a result.
    """
    path = named_output(output)
    check_output(
        path,
        [
            scorer.model,
            scorer.source,
            *(getattr(scorer, name) for name in scorer.files),
        ],
    )
    check_at_least_one({"batch_size": batch_size, "threads": threads})
    part = find_shard(shard, path)
    format = format or format_for(
        None if part else path, scorer.formats, scorer.default_format
    )
    check_choice("format", format, scorer.formats)
    target = Target(path, format, part)
    scorer.check(target)
    supported_precision(
        precision, torch.device("meta")
    )  # an unknown one; before a GPU is waited for
    if part is None:
        check_format(format, scorer.formats, path)
    place = choose_device(device)
    precision, usual = (
        supported_precision(one, place, scorer.narrow) for one in (precision, "auto")
    )
    if (precision, usual) != ("float32", "float32"):
        target = target._replace(precision=precision)
    computing = inference(precision, place)
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


def _counted(
    scorer: Scorer[M, Row], job: Job[Row], predict: Predictor, units: range | None
) -> Iterator[Row]:
    for row in job.rows(predict, units):
        scorer.count(row, job.counts)
        yield row


@contextmanager
def open_source(
    given: Path | str, target: Target
) -> Iterator[tuple[Path, IO[bytes] | None]]:
    """Yield a file that can be read repeatedly, or standard input itself if rows are written as a stream."""
    if str(given) == "-" and target.is_live:
        with open_stdin() as stream:
            yield STDIN, stream
        return
    with readable(given) as path:
        yield path, None


def flushing(predict: Predictor, target: Destination) -> Predictor:
    """Return the predictor; before each call, which may be slow, flush the output written so far."""
    if not isinstance(target, LiveText):
        return predict

    def call(sequences: Sequence[str]) -> NDArray[np.float32]:
        target.flush()
        return predict(sequences)

    return call


calibrated_predictor = window_predictor


class MergeCounts(NamedTuple):
    """Number of shards and of rows, and the kind of the rows."""

    shards: int
    rows: int
    kind: str


def merge_shards(
    shards: Sequence[Path | str], output: Path | str | None = None
) -> MergeCounts:
    """Combine the shards of a job into the file that the unsharded job would write; scores agree to 1e-6.

    Parameters
    ----------
    shards
        Files written by `score_promoters`, `call_promoters`, `score_sequences`, `embed`, `predict_tracks` or
        `score_variants` with `shard`, or by the commands `evaluate test-bins` and `prepare chromatin` with
        `--shard`, or directories written by `prepare tokens` with `--shard`: all of a job.
    output
        File to write atomically, in the format of the shards; for `score_variants`, with its index. None or
        "-": standard output (text only). For `prepare chromatin` and `prepare tokens`, a directory.

    Raises
    ------
    UsageError
        The output cannot be written, or its extension means another format.
    DataError
        A file is not a shard, or is damaged; the shards are not of one job (another model, reference, option
        or number of shards); a shard is missing or duplicated; or the unsharded job would have failed, for
        example because a bigWig has no score.
    """
    target = named_output(output)
    if any(Path(shard).is_dir() for shard in shards):
        if target is None:
            raise UsageError(
                "token stores cannot be written to standard output; give -o"
            )
        stored = merge_stores([Path(shard) for shard in shards], target)
        return MergeCounts(len(shards), stored, "shards of token stores")
    found = read_shards(shards)
    kind = found[0].kind
    if kind not in _MERGED:
        raise DataError(
            f"{found[0].path}: a shard of {kind!r}, which this version does not support"
        )
    module, scorer = _MERGED[kind]
    if target is None and scorer is None:
        raise UsageError(f"{kind} cannot be written to standard output; give -o")
    merger = import_module(f"bigbird_dna.{module}")
    rows = (merger if scorer is None else getattr(merger, scorer)).merge(found, target)
    return MergeCounts(len(found), rows, kind)
