"""Where a model's input lies: windows around a locus and tiles along a contig."""

from collections.abc import Iterator, Mapping, Sequence

from bigbird_dna.genome.intervals import Interval, Locus


def window_around(locus: Locus, upstream: int, downstream: int) -> Interval:
    """The window of `upstream` bp before a locus and `downstream` bp from it on, with it.

    Directions are those of the locus's strand, so that in the window's own sequence (reverse
    complement on "-") the locus is always base number `upstream`, counted from 0. The window may
    reach beyond the contig.
    """
    position = locus.position
    if locus.strand == "+":
        return Interval(locus.contig, position - upstream, position + downstream, "+")
    return Interval(locus.contig, position - downstream + 1, position + upstream + 1, "-")


def inside(interval: Interval, contigs: Mapping[str, int]) -> bool:
    """Whether an interval lies wholly on its contig; `contigs` maps names to lengths."""
    length = contigs.get(interval.contig)
    return length is not None and interval.start >= 0 and interval.end <= length


def centred_tiles(length: int, size: int, stride: int) -> Iterator[int]:
    """Starts of windows of `size` bp that cover a contig of `length` bp, in ascending order.

    The tiling is its own mirror image: the windows of the reverse complement are the mirrored
    windows. The first and the last window are flush with the ends; the left ones stand `stride` bp
    apart counted from the left end, the right ones counted from the right end, and the gaps where
    they meet may be smaller.

    A contig no longer than `size` gets one centred window, whose start is negative (rounded down,
    so that with an odd difference the left margin is one base wider) or zero.
    """
    for some in _tiles(length, size, stride):
        yield from some


def count_tiles(length: int, size: int, stride: int) -> int:
    """How many windows `centred_tiles` gives."""
    return sum(map(len, _tiles(length, size, stride)))


def _tiles(length: int, size: int, stride: int) -> tuple[Sequence[int], ...]:
    """The starts of `centred_tiles`: those of the left, of the middle, and of the right."""
    if length < 1 or size < 1 or stride < 1:
        raise ValueError(f"length {length}, size {size} and stride {stride} must be positive")
    span = length - size
    if span <= 0:
        return ((span // 2,),)
    # The fewest steps from either end that leave no more than a stride between the two innermost
    # windows.
    steps = max(0, -((stride - span) // (2 * stride)))
    left = range(0, steps * stride + 1, stride)
    right = range(span - steps * stride, span + 1, stride)
    return left[:-1], sorted({left[-1], right[0]}), right[1:]
