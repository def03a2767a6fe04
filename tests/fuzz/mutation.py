"""Damaged files made from good ones: bytes, numbers, words, lines, JSON values, and members of containers."""

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from tests.fuzz.reader import Container, Reader

LARGEST = 1 << 20
"""Bytes of an input: more would test the disk."""
_CONTAINED = 0.7  # of the inputs of a container are damaged inside

_NUMBERS = (
    *(
        b"0",
        b"1",
        b"-1",
        b"2",
        b"3",
        b"7",
        b"127",
        b"128",
        b"255",
        b"256",
        b"65535",
        b"65536",
    ),
    *(
        b"2147483647",
        b"2147483648",
        b"-2147483648",
        b"4294967295",
        b"4294967296",
        b"9007199254740993",
    ),
    *(
        b"9223372036854775807",
        b"9223372036854775808",
        b"-9223372036854775808",
        b"18446744073709551616",
    ),
    *(
        b"1000000",
        b"1000000000",
        b"100000000000",
        b"1e9",
        b"1e308",
        b"1e309",
        b"-1e309",
        b"1e-320",
        b"0.5",
    ),
    *(
        b"-0",
        b"-0.0",
        b"+1",
        b"1_000",
        b"0x10",
        b"007",
        b"1.",
        b".5",
        b"nan",
        b"NaN",
        b"inf",
        b"-Infinity",
    ),
    *("١٢".encode(), b"1" * 400, b"9" * 5000, b"-" + b"9" * 4400, b"0." + b"1" * 5000),
)
_WORDS = (
    *(
        b"",
        b" ",
        b"\t",
        b"\n",
        b"\r\n",
        b"\r",
        b"\x00",
        b"\xff",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xc3\x28",
    ),
    *(
        "é".encode(),
        "\u2028".encode(),
        "😀".encode(),
        b"\xed\xa0\x80",
        b'"',
        b"'",
        b"\\",
        b"\\u0000",
    ),
    *(b"\\ud800", b"null", b"true", b"None", b"NA", b"[]", b"{}"),
    *(b"[" * 20000, b'{"a":' * 20000, b"(" * 3000),
    *(
        b",",
        b":",
        b";",
        b"=",
        b"#",
        b"##",
        b"@",
        b">",
        b"+",
        b"-",
        b".",
        b"*",
        b"%00",
        b"../",
        b"/",
        b"~",
    ),
    *(
        b"x" * 70000,
        b"\t" * 5000,
        b"\n" * 5000,
        b"&a [*a]",
        b"!!python/object/apply:os.getcwd []",
        b"<<: *a",
    ),
)
_WIDTHS = (1, 1, 2, 4, 4, 8, 8)
_NUMBER = re.compile(rb"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORD = re.compile(rb"[A-Za-z_][\w.-]{1,40}")
_JSON_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 0.5, -0.5, 1e308, float("nan"), float("inf")),
    *(2**31, 2**31 - 1, 2**63, 2**64, 10**9, 10**12, 10**400, -(2**63)),
    *("10**4000", "", "a", "x" * 10000, "\x00", "\ud800", "../../x", "/", "1", "NaN"),
    *(
        [],
        {},
        [[]],
        [None],
        [0] * 100,
        ["a"],
        {"a": None},
        {"": {}},
        [[[[]]]],
        ["a", "a"],
    ),
    {"a": [1, 2, {"b": 3}]},
)


class Mutator:
    """An endless supply of damaged files of one reader, the same ones for the same seed."""

    def __init__(self, reader: Reader, seeds: Sequence[bytes], seed: int) -> None:
        self._random = random.Random(f"{reader.name} {seed}")
        self._container = reader.container
        self._pool = list(seeds)
        found = {word for data in seeds for word in _WORD.findall(data[:20000])}
        self._words = (*_WORDS, *reader.tokens, *sorted(found)[:200])
        self._number_of_seeds = len(self._pool)

    def keep(self, data: bytes) -> None:
        """Take an input as a start of others, as it did something new."""
        if len(data) <= LARGEST // 8:
            if len(self._pool) > self._number_of_seeds + 400:
                del self._pool[self._number_of_seeds]
            self._pool.append(data)

    def __call__(self) -> bytes:
        return self.damaged(self._random.choice(self._pool))

    def damaged(self, data: bytes) -> bytes:
        """A damaged copy of `data`."""
        if self._container and self._random.random() < _CONTAINED:
            inside = self._inside(self._container, data)
            if inside is not None:
                return inside[:LARGEST]
        return self._flat(data, self._random.choice(self._pool))

    def _inside(self, container: Container, data: bytes) -> bytes | None:
        try:
            members = container.unwrap(data)
            place = self._random.randrange(len(members))
            members[place] = self._flat(members[place], self._random.choice(members))
            return container.wrap(data, members)
        except Exception:  # a container that is damaged itself
            return None

    def _flat(self, data: bytes, other: bytes) -> bytes:
        damages: tuple[Callable[[bytearray, bytes], bytearray | bytes | None], ...] = (
            *(
                self._bits,
                self._bits,
                self._word_of_bytes,
                self._word_of_bytes,
                self._shift,
            ),
            *(
                self._block,
                self._block,
                self._repeat,
                self._cut,
                self._splice,
                self._number,
                self._number,
            ),
            *(
                self._token,
                self._token,
                self._lines,
                self._cells,
                self._json,
                self._json,
            ),
        )
        damaged = bytearray(data)
        for _ in range(self._random.choice((1, 1, 1, 2, 2, 3, 5))):
            result = self._random.choice(damages)(damaged, other)
            if result is not None:
                damaged = bytearray(result[:LARGEST])
        return bytes(damaged)

    def _place(self, data: bytes | bytearray) -> int:
        # Headers and footers say more than what lies between them.
        size, near = len(data), self._random.random()
        if near < 0.3:
            return self._random.randrange(min(size, 256) or 1)
        if near < 0.45:
            return max(0, size - 1 - self._random.randrange(min(size, 256) or 1))
        return self._random.randrange(size or 1)

    def _bits(self, data: bytearray, _: bytes) -> None:
        for _number in range(self._random.choice((1, 1, 2, 8))):
            if data:
                data[self._place(data)] ^= 1 << self._random.randrange(8)

    def _word_of_bytes(self, data: bytearray, _: bytes) -> None:
        width = self._random.choice(_WIDTHS)
        if len(data) < width:
            return
        place = min(self._place(data), len(data) - width)
        top = 1 << 8 * width
        values = [0, 1, top - 1, top - 2, top // 2, top // 2 - 1, len(data), top // 16]
        values.append(self._random.randrange(top))
        value = self._random.choice(values) % top
        data[place : place + width] = value.to_bytes(
            width, self._random.choice(("little", "big"))
        )

    def _shift(self, data: bytearray, _: bytes) -> None:
        if data:
            place = self._place(data)
            data[place] = (data[place] + self._random.randint(-16, 16)) % 256

    def _span(self, data: bytearray) -> tuple[int, int]:
        start = self._place(data)
        return start, start + self._random.choice(
            (1, 2, 4, 8, 16, 64, 512, len(data) // 4 + 1)
        )

    def _block(self, data: bytearray, _: bytes) -> None:
        (start, end), (first, last) = self._span(data), self._span(data)
        what = self._random.randrange(4)
        if what == 0:
            del data[start:end]
        elif what == 1:
            data[first:last], data[start:end] = data[start:end], data[first:last]
        elif what == 2:
            data[first:first] = data[start:end]
        else:
            data[start:end] = self._random.randbytes(end - start)

    def _repeat(self, data: bytearray, _: bytes) -> None:
        start, end = self._span(data)
        data[start:end] = data[start:end] * self._random.choice((2, 3, 10, 100, 1000))
        del data[LARGEST:]

    def _cut(self, data: bytearray, _: bytes) -> None:
        place = self._place(data)
        if self._random.random() < 0.7:
            del data[place:]
        else:
            del data[:place]

    def _splice(self, data: bytearray, other: bytes) -> bytearray:
        start, end = self._place(data), self._place(other)
        return data[:start] + other[end:]

    def _number(self, data: bytearray, _: bytes) -> bytes | None:
        return self._exchanged(data, _NUMBER, _NUMBERS)

    def _token(self, data: bytearray, _: bytes) -> bytes | None:
        token = self._random.choice(self._words)
        if self._random.random() < 0.5:
            return self._exchanged(data, _WORD, (token,))
        place = self._place(data)
        data[place:place] = token
        return None

    def _exchanged(
        self, data: bytearray, pattern: re.Pattern[bytes], texts: Sequence[bytes]
    ) -> bytes | None:
        found = list(pattern.finditer(data))
        if not found:
            return None
        chosen = self._random.choice(found)
        return bytes(
            data[: chosen.start()] + self._random.choice(texts) + data[chosen.end() :]
        )

    def _lines(self, data: bytearray, other: bytes) -> bytes | None:
        return self._parts(data, other, b"\n")

    def _cells(self, data: bytearray, other: bytes) -> bytes | None:
        separators = [mark for mark in (b"\t", b",", b" ", b";", b":") if mark in data]
        return (
            self._parts(data, other, self._random.choice(separators))
            if separators
            else None
        )

    def _parts(self, data: bytearray, other: bytes, mark: bytes) -> bytes | None:
        parts = bytes(data).split(mark)
        if len(parts) < 2:
            return None
        one, two = (
            self._random.randrange(len(parts)),
            self._random.randrange(len(parts)),
        )
        what = self._random.randrange(5)
        if what == 0:
            del parts[one]
        elif what == 1:
            parts.insert(one, parts[two])
        elif what == 2:
            parts[one], parts[two] = parts[two], parts[one]
        elif what == 3:
            parts[one] = self._random.choice((b"", *other.split(mark)[:50]))
        else:
            parts[one:one] = [parts[two]] * self._random.choice((10, 1000))
        return mark.join(parts)

    def _json(self, data: bytearray, _: bytes) -> bytes | None:
        """A file, or one of its lines, with another value in it."""
        if data[:1] not in (b"{", b"["):
            return None
        lines = bytes(data).split(b"\n")
        place = (
            self._random.randrange(len(lines))
            if lines[0].endswith((b"}", b"]"))
            else None
        )
        try:
            value = json.loads(data if place is None else lines[place])
            text = json.dumps(self._with_another(value))
        except (ValueError, RecursionError):
            return None
        # A writer has its own limit for the digits of a whole number.
        whole = text.replace('"10**4000"', "1" * 4400).encode("utf-8", "surrogatepass")
        if place is None:
            return whole
        lines[place] = whole
        return b"\n".join(lines)

    def _with_another(self, value: Any) -> Any:
        chance = self._random.random()
        if isinstance(value, dict) and value and chance < 0.85:
            key = self._random.choice(sorted(value))
            if chance < 0.08:
                return {k: v for k, v in value.items() if k != key}
            return value | {key: self._with_another(value[key])}
        if isinstance(value, list) and value and chance < 0.7:
            place = self._random.randrange(len(value))
            if chance < 0.1:
                return value[:place] + value[place + 1 :]
            return [
                *value[:place],
                self._with_another(value[place]),
                *value[place + 1 :],
            ]
        return self._random.choice(_JSON_VALUES)
