"""Rows whose values do not depend on their batch; bins of rows.

Rows of token ids: made from sequences, and run through a network so that none depends on the others.

Floating-point sums are rounded in an order that libraries choose by the shape of a call and the number of
threads. What surrounds a row therefore must not shape its call:

* On a CPU every row is a call of its own, without padding, on one thread; several threads work on as many
  rows. Its result is a function of the row and the network alone, by construction. Only a row of more than
  `LONG` tokens has all threads to itself.
* Elsewhere calls have a fixed shape, by the row's own length: a call that rows don't fill is filled up.

Axes: N rows, B rows of a call, L tokens.

Windows as rows of tokens, with the tokens that each bin of interest covers.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import UsageError
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.inference import narrowed, sent
from bigbird_dna.model.packed_layers import prepared
from bigbird_dna.tokens.interface import Tokenizer, require_dna

Ids = npt.NDArray[np.int32]
Run = Callable[[Tensor, Tensor, npt.NDArray[np.intp]], Tensor]
"""From padded ids (B, L) on the device, true lengths (B,) on the CPU and the numbers of the rows (B,) to
results (B, …)."""
T = TypeVar("T")
R = TypeVar("R")
Result = tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]
"""Numbers of rows and what was found for each."""

LONG = 4096
"""Tokens. Longer rows take memory that one can have and several at a time may not."""

CALL_TOKENS = 1 << 14
"""Tokens of a call on a GPU: enough to keep it busy, and little of its memory."""

WIDTH = 64
"""On a GPU lengths are rounded up to a multiple of this, in tokens, so that calls have few shapes."""


def pad(rows: Sequence[npt.NDArray[np.integer]], value: int) -> tuple[Tensor, Tensor]:
    """Rows of different lengths → (ids (B, L) padded on the right with `value`, lengths (B,))."""
    return _padded(rows, value, max(map(len, rows)))


def _padded(rows: Sequence[npt.NDArray[np.integer]], value: int, width: int) -> tuple[Tensor, Tensor]:
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.full((len(rows), width), value, dtype=np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
    return torch.from_numpy(ids), torch.from_numpy(lengths)


def window_rows(
    tokenizer: Tokenizer, sequences: Sequence[str], positions: int, anchor: float, threads: int = 1
) -> list[Ids]:
    """Tokens of each sequence between [CLS] and [SEP], at most `positions` of them.

    A sequence with more tokens keeps those around its anchor, the fraction `anchor` of its tokens from the
    left, so that the TSS stays where the network saw it in training. `threads` encode; they change nothing.
    `ModelError` for a tokenizer of ordinary text.
    """
    return [row for row, _ in placed_rows(tokenizer, sequences, positions, anchor, threads)]


def placed_rows(
    tokenizer: Tokenizer, sequences: Sequence[str], positions: int, anchor: float, threads: int = 1
) -> list[tuple[Ids, int]]:
    """`window_rows`, each with the bp of its sequence before the first of its tokens."""
    require_dna(tokenizer)
    room = positions - 2
    rows = []
    for ids in tokenizer.encode_batch(list(sequences), threads):
        skipped = 0
        if len(ids) > room:
            start = round((len(ids) - room) * anchor)
            skipped = int(tokenizer.piece_lengths[ids[:start]].sum())
            ids = ids[start : start + room]
        row = np.empty(len(ids) + 2, dtype=np.int32)
        row[0], row[1:-1], row[-1] = tokenizer.cls_id, ids, tokenizer.sep_id
        rows.append((row, skipped))
    return rows


def run_rows(
    network: nn.Module,
    rows: Sequence[npt.NDArray[np.integer]],
    run: Run,
    *,
    pad_id: int,
    batch_size: int,
    device: torch.device,
    empty: tuple[int, ...] = (),
) -> npt.NDArray[np.float32]:
    """Results (N, …) of rows of token ids, in their order; what each is depends on no other row.

    They are computed in the precision of the present `inference`.

    Parameters
    ----------
    network
        What `run` calls; nothing of `run` may mix the rows of a call.
    batch_size
        Most rows that are run at the same time on a CPU, each by a thread. It bounds memory and changes no
        bit. A GPU's calls have a size of their own.
    empty
        Shape of a result, for no rows.

    Raises
    ------
    UsageError
        The device's memory is too small for a call.
    """
    result = np.empty((0, *empty), np.float32)
    on_cpu = device.type == "cpu"
    results = _alone(rows, run, batch_size) if on_cpu else _in_calls(network, rows, run, pad_id, device)
    with prepared(network, LONG):
        for chosen, values in results:
            if not len(result):
                result = np.empty((len(rows), *values.shape[1:]), np.float32)
            result[chosen] = values
    return result


def _alone(rows: Sequence[npt.NDArray[np.integer]], run: Run, most: int) -> Iterator[Result]:
    """Results of single rows, of short and then of long ones, as a CPU makes them."""
    narrow = narrowed(torch.device("cpu"))

    def one(number: int) -> Result:
        chosen = np.array([number])
        with torch.inference_mode(), narrow():
            values = run(*_padded([rows[number]], 0, len(rows[number])), chosen)
            return chosen, values.float().numpy()

    short = [number for number, row in enumerate(rows) if len(row) <= LONG]
    yield from each_alone(one, short, most, torch.device("cpu"))
    yield from (one(number) for number, row in enumerate(rows) if len(row) > LONG)


def each_alone(work: Callable[[T], R], items: Sequence[T], most: int, device: torch.device) -> Iterator[R]:
    """What `work` gives of each item, in order: on a CPU each on one thread, `most` at the same time."""
    threads = torch.get_num_threads()
    if threads == 1 or device.type != "cpu":
        yield from map(work, items)
    elif items:
        try:
            # Items side by side also take less time than one after the other by all threads.
            with ThreadPoolExecutor(min(threads, most, len(items)), initializer=_work_alone) as pool:
                yield from pool.map(work, items)
        finally:
            torch.set_num_threads(threads)  # a worker has changed what new threads begin with


def _work_alone() -> None:
    torch.set_num_threads(1)


def _in_calls(
    network: nn.Module, rows: Sequence[npt.NDArray[np.integer]], run: Run, pad_id: int, device: torch.device
) -> Iterator[Result]:
    """Results of rows of like lengths, a call's at a time; of each call while the next one computes."""
    width_of = partial(_width, next((m.config for m in network.modules() if isinstance(m, Encoder)), None))
    order = sorted(range(len(rows)), key=lambda number: width_of(len(rows[number])))
    narrow = narrowed(device)
    waiting: list[tuple[npt.NDArray[np.intp], Tensor]] = []
    for width, group in groupby(order, key=lambda number: width_of(len(rows[number]))):
        size = max(1, CALL_TOKENS // width)
        alike = np.array(list(group))
        for start in range(0, len(alike), size):
            chosen = alike[start : start + size]
            filled = np.resize(chosen, size)  # repeats them
            ids, lengths = _padded([rows[number] for number in filled], pad_id, width)
            try:
                with torch.inference_mode(), narrow():
                    values = run(sent(ids, device), lengths, filled).float()
            except torch.OutOfMemoryError:
                raise UsageError(
                    f"the device's memory is too small for {size} sequences of {width} tokens at a time"
                ) from None
            waiting.append((chosen, values[: len(chosen)]))
            if len(waiting) > 1:
                yield _ready(*waiting.pop(0))
    yield from (_ready(*one) for one in waiting)


def _ready(chosen: npt.NDArray[np.intp], values: Tensor) -> Result:
    return chosen, values.cpu().numpy()


def _width(config: EncoderConfig | None, length: int) -> int:
    """What a row's length is padded to in a call, tokens.

    In HuggingFace's arithmetic what a row sees depends on the number of blocks of the padded input: it
    stays the row's own.
    """
    if config is None:
        return -(-length // WIDTH) * WIDTH
    step = config.block_size if config.compatibility == "huggingface" else WIDTH
    return min(-(-length // step) * step, config.max_length)


# Axes: N windows, K bins of a window.


def centred_bins(window: int, size: int, count: int) -> npt.NDArray[np.int64]:
    """Where `count` (odd) neighbouring bins of `size` bp start in a window, the middle one in its middle."""
    return (window - size) // 2 + size * (np.arange(count) - count // 2)


def whole_bins(window: int, size: int) -> int:
    """How many bins fit a window whole, one of them in its middle: an odd number."""
    return 2 * ((window - size) // 2 // size) + 1


def middle_bins(window: int, size: int, part: float) -> int:
    """How many bins fit the middle `part` (0 to 1) of a window whole: an odd number, at least one."""
    count = int(part * window / size + 1e-9)  # 0.3 * 2000 / 200 is meant to be 3
    return max(1, count - 1 + count % 2)


def bins_shown(window: int, size: int, bin_layers: int) -> int:
    """How many bins a network is shown at once: all whole ones if it has bin layers, else one."""
    return whole_bins(window, size) if bin_layers else 1


class BinRows(NamedTuple):
    """Tokens of each window between [CLS] and [SEP], and the tokens of its bins."""

    ids: list[npt.NDArray[np.int32]]
    spans: npt.NDArray[np.int64]  # (N, K, 2): first token of a bin, and the one after its last


def bin_rows(
    tokenizer: Tokenizer,
    sequences: Sequence[str],
    bins: npt.NDArray[np.integer],
    bin_size: int,
    positions: int,
    threads: int = 1,
) -> BinRows:
    """Encode windows; a token belongs to the bin that holds its middle.

    Parameters
    ----------
    bins : (N, K), where each bin starts in its window, bp.
    positions : most tokens that the encoder takes. A window with more keeps those around its middle.
    threads : that encode; they change nothing.

    Notes
    -----
    A bin that holds the middle of no token (inside a run of Ns) gets the token next to it.
    """
    require_dna(tokenizer)
    if not len(sequences):
        return BinRows([], np.empty((*bins.shape, 2), np.int64))
    encoded = tokenizer.encode_batch(list(sequences), threads)
    tokens = np.concatenate(encoded)
    counts = np.array([len(ids) for ids in encoded])
    ends = np.cumsum(counts)  # (N,) tokens of all windows up to one
    starts = ends - counts
    # In half bases, all windows laid end to end: the middles of the tokens ascend, and are whole numbers.
    offsets = tokenizer.offsets(tokens)
    middles, begins = offsets[:-1] + offsets[1:], 2 * offsets[starts]
    room = positions - 2
    halves = np.array([len(sequence) for sequence in sequences])
    spare = np.maximum(counts - room, 0)
    central = np.searchsorted(middles, begins + halves).clip(starts, ends) - starts
    starts += np.minimum(np.maximum(central - room // 2, 0), spare)
    ends = starts + np.minimum(counts, room)
    edges = begins[:, None, None] + 2 * (bins[..., None] + np.array([0, bin_size]))  # (N, K, 2)
    spans = np.searchsorted(middles, edges).clip(starts[:, None, None], ends[:, None, None])
    spans += 1 - starts[:, None, None]  # [CLS] comes before
    spans[..., 0] = np.minimum(spans[..., 0], (ends - starts)[:, None])
    spans[..., 1] = np.maximum(spans[..., 1], spans[..., 0] + 1)
    first, last = np.array([[tokenizer.cls_id], [tokenizer.sep_id]], np.int32)
    rows = [
        np.concatenate((first, tokens[start:end], last))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    return BinRows(rows, spans)
