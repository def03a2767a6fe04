"""The wire format of protocol buffers: read without trust, and written.

Every byte of a message belongs to one of its fields, or the message is refused.
"""

from collections.abc import Iterator
from typing import NamedTuple

NUMBER, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5  # wire types; groups (3 and 4) are refused
_WIDTHS = {EIGHT_BYTES: 8, FOUR_BYTES: 4}


class Field(NamedTuple):
    """A field: its number, its wire type, and what it holds; `start` is where it begins in the message."""

    number: int
    wire: int
    value: int | bytes
    start: int


def read_fields(message: bytes, start: int = 0) -> Iterator[Field]:
    """The fields of a message from byte `start` on; `ValueError` where it is no message."""
    position = start
    while position < len(message):
        first = position
        tag, position = read_number(message, position)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise ValueError(f"byte {first}: a field with number {number}")
        value: int | bytes
        if wire == NUMBER:
            value, position = read_number(message, position)
        else:
            if wire == BYTES:
                width, position = read_number(message, position)
            elif wire in _WIDTHS:
                width = _WIDTHS[wire]
            else:
                raise ValueError(f"byte {first}: a field of wire type {wire}")
            end = position + width
            if end > len(message):
                raise ValueError(f"byte {first}: a field that ends beyond what it is in")
            value, position = message[position:end], end
        yield Field(number, wire, value, first)


def read_number(message: bytes, position: int) -> tuple[int, int]:
    """An unsigned number of up to 64 bits, and where it ends."""
    number = 0
    for shift in range(0, 64, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >= 1 << 64:
                break
            return number, position
    raise ValueError(f"byte {position}: a number without an end")


def write_number(number: int) -> bytes:
    """An unsigned number as `read_number` reads it."""
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def write_field(number: int, value: int | bytes) -> bytes:
    """A field that holds a number or bytes."""
    if isinstance(value, int):
        return write_number(number << 3 | NUMBER) + write_number(value)
    return write_number(number << 3 | BYTES) + write_number(len(value)) + value
