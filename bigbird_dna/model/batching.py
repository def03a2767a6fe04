"""Input sequences and rows of token ids, run through a network so that no row depends on the others.

Libraries choose the order of floating-point sums, and thus rounding, by the shape of a call, the number of
threads and the type of CPU, so a score is promised to 1e-6 only. The rest of a batch must not affect the
shape of a row's call:

* On a CPU every row is a separate call, without padding, on one thread; threads process different rows. A
  result thus depends only on the row and the network. Only rows of more than `LONG` tokens use all threads.
  Compiled layers, whose bits do not depend on the number of rows, run rows of the same length in one call.
* On other devices calls have a fixed shape that depends on the row's own length; incomplete calls are filled.

Axes: N rows, or windows; B rows of a call; L tokens; K bins of a window.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bigbird_dna.errors import UsageError
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.inference import narrowed, prepared, sent
from bigbird_dna.tokens.interface import Tokenizer, require_dna

Ids = npt.NDArray[np.int32]
Run = Callable[[Tensor, Tensor, npt.NDArray[np.intp]], Tensor]
"""Map padded ids (B, L) on the device, true lengths (B,) on the CPU and row numbers (B,) to results (B,
…)."""
Result = tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]
"""Row numbers and the result of each row."""

LONG = 4096
"""Tokens. The memory may suffice for one longer row but not for several at a time."""

CALL_TOKENS = 1 << 14
"""Tokens per call on a GPU: enough to keep it busy with little of its memory."""

SHARED_TOKENS = 1 << 10
"""Maximum number of tokens per call of several rows on a CPU. For a small network, the overhead per call is a
quarter of the time of a row of a hundred tokens."""

WIDTH = 64
"""On a GPU, lengths are rounded up to a multiple of this number of tokens, so that calls have few shapes."""


def pad(
    rows: Sequence[npt.NDArray[np.integer]], value: int, width: int | None = None
) -> tuple[Tensor, Tensor]:
    """Rows of different lengths → (ids (B, L) padded on the right with `value`, lengths (B,))."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.full((len(rows), width or max(lengths)), value, dtype=np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
    return torch.from_numpy(ids), torch.from_numpy(lengths)


def placed_rows(
    tokenizer: Tokenizer,
    sequences: Sequence[str],
    positions: int | None,
    anchor: float,
    threads: int = 1,
    phase: int = 0,
) -> list[tuple[Ids, int]]:
    """Tokens of each sequence between [CLS] and [SEP], at most `positions`, around the sequence's anchor, each
    with the number of bp of its sequence before its first token.

    `anchor` is a fraction of the sequence's tokens from the left, which keeps the TSS at its position in
    training. `positions` None: all tokens. `phase` as in `Tokenizer.split_batch`.
    """
    require_dna(tokenizer)
    rows = []
    for ids in tokenizer.split_batch(list(sequences), phase, threads):
        skipped, room = 0, len(ids) if positions is None else positions - 2
        if len(ids) > room:
            start = round((len(ids) - room) * anchor)
            skipped = int(tokenizer.piece_lengths[ids[:start]].sum())
            ids = ids[start : start + room]

        row = np.empty(len(ids) + 2, dtype=np.int32)
        row[0], row[1:-1], row[-1] = tokenizer.cls_id, ids, tokenizer.sep_id
        rows.append((row, skipped))

    return rows


def truncated(
    tokenizer: Tokenizer, sequences: Sequence[str], positions: int, threads: int = 1
) -> npt.NDArray[np.bool_]:
    """Whether each sequence has more tokens than fit into `positions`, with [CLS] and [SEP]."""
    encoded = tokenizer.encode_batch(list(sequences), threads)
    return np.array([len(ids) > positions - 2 for ids in encoded], bool)


def run_rows(
    network: nn.Module,
    rows: Sequence[npt.NDArray[np.integer]],
    run: Run,
    *,
    pad_id: int,
    batch_size: int,
    device: torch.device,
    empty: tuple[int, ...] = (),
    shared: bool = False,
) -> npt.NDArray[np.float32]:
    """Results (N, …) of rows of token ids, in order; each result is independent of the other rows.

    On a CPU `batch_size` rows run concurrently, which limits memory and changes no bit. `run` must not mix
    the rows of a call. `shared`: its bits for a row, apart from those of the encoders, do not depend on the
    number of rows of the same length. `empty` is the shape of a result, used if there are no rows.
    `UsageError`: insufficient memory.
    """
    result = np.empty((0, *empty), np.float32)
    with prepared(network, LONG) as compiled:
        if device.type == "cpu":
            most = batch_size // torch.get_num_threads() if shared and compiled else 1
            results = on_cpu(rows, run, batch_size, most)
        else:
            results = in_calls(network, rows, run, pad_id, device)

        for numbers, values in results:
            if not len(result):
                result = np.empty((len(rows), *values.shape[1:]), np.float32)

            result[numbers] = values

    return result


def on_cpu(
    rows: Sequence[npt.NDArray[np.integer]], run: Run, batch_size: int, most: int
) -> Iterator[Result]:
    """Results of rows per call: calls of up to `most` short rows of one length, which run concurrently on one
    thread each, and then calls of a long row, which use all threads."""
    lengths = [len(row) for row in rows]
    short = [number for number, length in enumerate(lengths) if length <= LONG]
    short.sort(key=lengths.__getitem__)
    calls: list[list[int]] = []
    for length, group in groupby(short, key=lengths.__getitem__):
        alike = list(group)
        size = max(1, min(most, SHARED_TOKENS // length))
        calls += [alike[start : start + size] for start in range(0, len(alike), size)]

    # The longest first, so that threads end at the same time.
    calls.sort(key=lambda numbers: -len(numbers) * lengths[numbers[0]])
    narrow = narrowed(torch.device("cpu"))

    def call(numbers: list[int]) -> Result:
        ids, row_lengths = pad([rows[number] for number in numbers], 0)
        with torch.inference_mode(), narrow():
            values = run(ids, row_lengths, np.array(numbers))
        return np.array(numbers), values.float().numpy()

    threads = torch.get_num_threads()
    if threads == 1 or not calls:
        yield from map(call, calls)
    else:
        try:
            # Concurrent rows also take less time than sequential rows that each use all threads.
            with ThreadPoolExecutor(
                min(threads, batch_size, len(calls)),
                initializer=torch.set_num_threads,
                initargs=(1,),
            ) as pool:
                yield from pool.map(call, calls)
        finally:
            # A worker has changed the default of new threads.
            torch.set_num_threads(threads)

    for number, length in enumerate(lengths):
        if length > LONG:
            yield call([number])


def in_calls(
    network: nn.Module,
    rows: Sequence[npt.NDArray[np.integer]],
    run: Run,
    pad_id: int,
    device: torch.device,
) -> Iterator[Result]:
    """Results of rows grouped by length, per call; results are copied while the next call runs."""
    encoders = [part for part in network.modules() if isinstance(part, Encoder)]
    config = encoders[0].config if encoders else None

    def width_of(number: int) -> int:
        step, longest = WIDTH, len(rows[number])
        if config is not None and config.compatibility == "huggingface":
            # Attention depends on the number of blocks of the padded input: a row keeps its own.
            step = config.block_size
        width = -(-longest // step) * step
        return width if config is None else min(width, config.max_length)

    narrow = narrowed(device)
    waiting: tuple[npt.NDArray[np.intp], Tensor] | None = None
    for width, group in groupby(sorted(range(len(rows)), key=width_of), key=width_of):
        size = max(1, CALL_TOKENS // width)
        alike = np.array(list(group))
        for start in range(0, len(alike), size):
            numbers = alike[start : start + size]
            filled = np.resize(numbers, size)  # repeats rows
            ids, lengths = pad([rows[number] for number in filled], pad_id, width)
            try:
                with torch.inference_mode(), narrow():
                    values = run(sent(ids, device), lengths, filled).float()
            except torch.OutOfMemoryError:
                raise UsageError(
                    f"the device's memory is too small for {size} sequences of {width} tokens per batch"
                ) from None

            if waiting is not None:
                yield waiting[0], waiting[1].cpu().numpy()

            waiting = numbers, values[: len(numbers)]

    if waiting is not None:
        yield waiting[0], waiting[1].cpu().numpy()


def centered_bins(window: int, size: int, count: int) -> npt.NDArray[np.int64]:
    """Starts of `count` (odd) adjacent bins of `size` bp, whose central bin is at a window's center."""
    return (window - size) // 2 + size * (np.arange(count) - count // 2)


def whole_bins(window: int, size: int) -> int:
    """Number of bins that fit completely in a window, with one bin in its center: an odd number."""
    return 2 * ((window - size) // 2 // size) + 1


def middle_bins(window: int, size: int, part: float) -> int:
    """Number of bins that fit completely in the central `part` (0 to 1) of a window: odd, at least one."""
    count = int(part * window / size + 1e-9)  # 0.3 * 2000 / 200 must give 3
    return max(1, count - 1 + count % 2)


def bins_shown(window: int, size: int, bin_layers: int) -> int:
    """Number of bins passed to a network at once: all that fit if it has bin layers, else one."""
    return whole_bins(window, size) if bin_layers else 1


class View(NamedTuple):
    """One way to read a window: on the opposite strand if `turned`, without the first and last bases (`cut`,
    bp), and with token boundaries at a `phase` (see `Tokenizer.split_batch`)."""

    turned: bool = False
    cut: tuple[int, int] = (0, 0)
    phase: int = 0


class BinRows(NamedTuple):
    """Tokens of each window between [CLS] and [SEP], and the tokens of its bins."""

    ids: list[npt.NDArray[np.int32]]
    spans: npt.NDArray[np.int64]  # (N, K, 2): first token of a bin, and last token + 1


def bin_rows(
    tokenizer: Tokenizer,
    sequences: Sequence[str],
    bins: npt.NDArray[np.integer],
    bin_size: int,
    positions: int,
    threads: int = 1,
    phase: int = 0,
) -> BinRows:
    """Encode windows (see `Tokenizer.split_batch`) and assign their tokens to the bins with their centers.

    `bins` (N, K) are starts in bp. A window of more than `positions` tokens keeps those around its center. A
    bin without any token center (inside a run of Ns) is assigned the next token. `threads` has no effect on
    the result.
    """
    require_dna(tokenizer)
    encoded = tokenizer.split_batch(list(sequences), phase, threads)
    if not len(encoded):
        return BinRows([], np.empty((*bins.shape, 2), np.int64))

    tokens = np.concatenate(encoded)
    counts = np.array([len(ids) for ids in encoded])
    ends = np.cumsum(counts)  # (N,) cumulative number of tokens up to each window's end
    starts = ends - counts
    # In units of half bases, with all windows concatenated, token centers are ascending integers.
    offsets = tokenizer.offsets(tokens)
    middles, begins = offsets[:-1] + offsets[1:], 2 * offsets[starts]
    room = positions - 2
    halves = np.array([len(sequence) for sequence in sequences])
    spare = np.maximum(counts - room, 0)
    central = np.searchsorted(middles, begins + halves).clip(starts, ends) - starts
    starts += np.minimum(np.maximum(central - room // 2, 0), spare)
    ends = starts + np.minimum(counts, room)
    edges = begins[:, None, None] + 2 * (
        bins[..., None] + np.array([0, bin_size])
    )  # (N, K, 2)
    spans = np.searchsorted(middles, edges).clip(
        starts[:, None, None], ends[:, None, None]
    )
    spans += 1 - starts[:, None, None]  # [CLS] comes first
    spans[..., 0] = np.minimum(spans[..., 0], (ends - starts)[:, None])
    spans[..., 1] = np.maximum(spans[..., 1], spans[..., 0] + 1)
    first, last = np.array([[tokenizer.cls_id], [tokenizer.sep_id]], np.int32)
    rows = [
        np.concatenate((first, tokens[start:end], last))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    return BinRows(rows, spans)
