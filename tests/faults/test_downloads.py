"""Downloads from a server that does all wrong: whole and verified, or one line and no file, and in time."""

import functools
import gzip
import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from bigbird_dna.errors import BigBirdDnaError
from bigbird_dna.genome.sources.fetching import fetch
from bigbird_dna.genome.sources.inputs import Source
from tests.faults.downloads import LIMITS, bgzip, described, one_line, plain, tar
from tests.faults.server import FAULTS, LIES, FaultyServer, Site

SPARE = 2.0  # seconds for checking what came, on a machine that does much else
FOREIGN = b"half a file that another program downloads"


def contents(kind: str, rng: Random, directory: Path) -> tuple[bytes, bytes]:
    """Two versions of a file of this kind."""
    one, other = plain(rng), plain(rng)
    match kind:
        case "file.gz":
            return gzip.compress(one, mtime=0), gzip.compress(other, mtime=0)
        case "file.bed.gz":
            return bgzip(one, directory / "one.gz"), bgzip(other, directory / "other.gz")
        case "file.tar.gz":
            return tar(one), tar(other)
    return one, other


def leave_anything(output: Path, rng: Random) -> None:
    """What an earlier fetch, a power cut or another program may have left beside the output."""
    part = output.with_name(f"{output.name}.fetch.part")
    marks = {"whole": "some None", "url": "http://x/", "mark": '"v1"', "total": None}
    broken = [
        b"",
        b"\xff\0",
        b"[]",
        b"7",
        b"[" * 30_000,
        b'{"a": 1}',
        json.dumps({**marks, "mark": 5}).encode(),
    ]
    if rng.random() < 0.5:
        part.write_bytes(rng.randbytes(rng.randrange(3000)))
    if rng.random() < 0.5:
        part.with_name(f"{part.name}.json").write_bytes(rng.choice([*broken, json.dumps(marks).encode()]))
    output.with_name(f"{output.name}.part").write_bytes(FOREIGN)


def site(server: FaultyServer, name: str, rng: Random, directory: Path, kind: str) -> Site:
    """A file, and a random script for each of its addresses."""
    content, later = contents(kind.removeprefix("sha256 of "), rng, directory)
    known = [name for name in FAULTS if kind != "file.txt" or name not in LIES]
    # Parts of two versions are put together only where one is cut and the next comes from another.
    known += ["cut", "chunked_and_cut", "changed", "version_ignored"] * 4
    addresses = rng.randint(1, 3)
    found = Site(content, rng.randrange(10**9), rng.choice([b'"v1"', b'"v1"', None, b'W/"v1"']), later=later)
    found.scripts = [rng.choices(known, k=rng.randrange(4)) for _ in range(addresses)]
    found.always = [rng.choice([None, None, rng.choice(known)]) for _ in range(addresses)]
    server.sites[name] = found
    return found


def check(server: FaultyServer, catalogue: dict[str, Source], home: Path, seed: int) -> bool:
    """One random download; whether it gave a file."""
    rng, name, directory = Random(seed), f"random{seed}", home / str(seed)
    directory.mkdir()
    output = directory / "out"
    kind = rng.choice(
        ["sha256 of file.txt", "sha256 of file.gz", "file.gz", "file.bed.gz", "file.tar.gz", "file.txt"]
    )
    found = site(server, name, rng, directory, kind)
    scripts, always = [list(script) for script in found.scripts], list(found.always)
    about = f"seed {seed}: {kind}, tag {found.tag!r}, {scripts}, then {always}"
    versions = [found.content]
    checksum = f"sha256:{hashlib.sha256(found.content).hexdigest()}" if kind.startswith("sha256") else None
    if checksum is None:
        versions.append(found.later)
    catalogue[name] = described(server, name, kind, checksum)
    leave_anything(output, rng)

    start = time.monotonic()
    whole = True
    try:
        fetch(name, output, limits=LIMITS)
    except BigBirdDnaError as error:
        assert one_line(error), f"{about}: {error}"
        assert not output.exists(), about
        whole = False
    took = time.monotonic() - start
    assert took < len(scripts) * LIMITS.seconds + SPARE, f"{about}: {took:.1f} s"
    if not whole:
        # What it left is of use, or does no harm.
        found.scripts, found.always = [[] for _ in scripts], [None for _ in scripts]
        if checksum is not None:
            found.content, found.tag = versions[0], b'"v1"'
        fetch(name, output, limits=LIMITS)
    assert output.read_bytes() in versions, about
    assert output.with_name("out.part").read_bytes() == FOREIGN, about
    assert sorted(path.name for path in directory.iterdir()) == ["out", "out.part"], about
    return whole


def check_many(server: FaultyServer, catalogue: dict[str, Source], home: Path, seeds: range) -> None:
    with ThreadPoolExecutor(12) as pool:
        whole = list(pool.map(functools.partial(check, server, catalogue, home), seeds))
    # Both endings are common, or nothing was tried.
    assert 0.25 < sum(whole) / len(seeds) < 0.95


def test_downloads_from_a_faulty_server(
    server: FaultyServer, catalogue: dict[str, Source], tmp_path: Path
) -> None:
    check_many(server, catalogue, tmp_path, range(200))


@pytest.mark.slow
def test_many_downloads_from_a_faulty_server(
    server: FaultyServer, catalogue: dict[str, Source], tmp_path: Path
) -> None:
    check_many(server, catalogue, tmp_path, range(1000, 3000))
