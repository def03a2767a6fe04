"""The blocks of a bgzip file: gzip members of at most 64 KB, each of which says how long it is.

The format is section 4.1 of the SAM specification.
"""

import io
import struct
import zlib
from array import array
from bisect import bisect_right
from typing import IO, Any, NamedTuple

from bigbird_dna.errors import DataError

LARGEST = 1 << 16  # bytes of a block, packed or not
_FIXED = struct.Struct("<4sIBBH")  # magic and flags, time, two more flags, length of the extra field
_TRAILER = struct.Struct("<II")  # CRC-32 and length of the content
_START = b"\x1f\x8b\x08\x04"


class Block(NamedTuple):
    """A block's content, and how many bytes of the file it takes."""

    content: bytes
    packed: int


def unpack(data: bytes, where: str) -> Block:
    """The block that `data` begins with; `DataError` if that isn't one, or is damaged."""
    size, begin = _sizes(data, where)
    if len(data) < size:
        raise DataError(f"{where}: truncated: the file ends within a bgzip block")
    inflate = zlib.decompressobj(-15)
    try:
        content = inflate.decompress(data[begin : size - _TRAILER.size], LARGEST + 1)
    except zlib.error as error:
        raise DataError(f"{where}: damaged bgzip file: {error}") from None
    checksum, length = _TRAILER.unpack_from(data, size - _TRAILER.size)
    if not inflate.eof or inflate.unused_data or len(content) != length or length > LARGEST:
        raise DataError(f"{where}: damaged bgzip file: a block has not the length that it states")
    if zlib.crc32(content) != checksum:
        raise DataError(f"{where}: damaged bgzip file: a block has not the checksum that it states")
    return Block(content, size)


def _sizes(data: bytes, where: str) -> tuple[int, int]:
    """Bytes that the block takes, and where its packed content begins."""
    if len(data) >= _FIXED.size and data.startswith(_START):
        *_, extra = _FIXED.unpack_from(data)
        begin = place = _FIXED.size
        begin += extra
        while place + 4 <= min(begin, len(data)):
            name, length = data[place : place + 2], int.from_bytes(data[place + 2 : place + 4], "little")
            if name == b"BC" and length == 2 and place + 6 <= len(data):
                size = int.from_bytes(data[place + 4 : place + 6], "little") + 1
                if size >= begin + _TRAILER.size:
                    return size, begin
            place += 4 + length
    raise DataError(f"{where}: damaged bgzip file: what should be a block is none")


class BlockIndex:
    """Where the blocks of a file begin, as a `.gzi` file has it: in the file, and in the content."""

    def __init__(self) -> None:
        self.packed = array("Q")
        self.content = array("Q")
        self._empty: set[tuple[int, int]] = set()

    def add(self, packed: int, content: int, block: Block) -> None:
        """Take up the next block. Empty ones hold no place of the content, and are left out."""
        if block.content:
            self.packed.append(packed)
            self.content.append(content)
        else:
            self._empty.add((packed, content))

    def at(self, position: int) -> int:
        """The number of the block that holds a byte of the content."""
        return bisect_right(self.content, position) - 1

    def to_bytes(self) -> bytes:
        """A `.gzi` file, which leaves out a block that begins the file."""
        pairs = zip(self.packed, self.content, strict=True)
        flat = [value for pair in pairs if pair != (0, 0) for value in pair]
        return struct.pack(f"<Q{len(flat)}Q", len(flat) // 2, *flat)

    @classmethod
    def from_bytes(cls, data: bytes) -> "BlockIndex":
        """Read a `.gzi` file; `ValueError` if it is none."""
        index = cls()
        count = int.from_bytes(data[:8], "little")
        if len(data) < 8 or len(data) != 8 + 16 * count:
            raise ValueError("not an index of bgzip blocks")
        values = struct.unpack_from(f"<{2 * count}Q", data, 8)
        index.packed = array("Q", (0, *values[::2]))
        index.content = array("Q", (0, *values[1::2]))
        return index

    def agrees(self, data: bytes) -> bool:
        """Whether a `.gzi` file is that of these blocks; it may list empty ones."""
        try:
            other = BlockIndex.from_bytes(data)
        except ValueError:
            return False
        pairs = list(zip(other.packed, other.content, strict=True))
        own = list(zip(self.packed, self.content, strict=True))
        return pairs == own or [pair for pair in pairs if pair not in self._empty] == own


class BlockStream(io.RawIOBase):
    """The content of a bgzip file from its start; `index` grows with what was read.

    `digest.update` gets the file's bytes.
    """

    def __init__(self, stream: IO[bytes], where: str, digest: Any) -> None:
        self.index = BlockIndex()
        self._stream = stream
        self._where = where
        self._digest = digest
        self._data = b""  # read from the file and not unpacked yet, from `_place` on
        self._place = 0
        self._rest = memoryview(b"")  # unpacked and not asked for yet
        self._packed = self._content = 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a part of `buffer`; 0 at the end of the file."""
        while not self._rest:
            if not self._next():
                return 0
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _next(self) -> bool:
        if len(self._data) - self._place < LARGEST:
            more = self._stream.read(1 << 20)
            self._digest.update(more)
            self._data = self._data[self._place :] + more
            self._place = 0
        if self._place == len(self._data):
            return False
        block = unpack(self._data[self._place : self._place + LARGEST], self._where)
        self.index.add(self._packed, self._content, block)
        self._place += block.packed
        self._packed += block.packed
        self._content += len(block.content)
        self._rest = memoryview(block.content)
        return True
