"""Fetching from servers that cut, refuse, lie and change their files, and from a local directory.

What comes is whole and verified, or nothing and one line, and in time; versions are never mixed.
"""

import functools
import gzip
import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import BigBirdDnaError, DataError, UsageError
from bigbird_dna.genome.sources import fetching
from bigbird_dna.genome.sources.fetching import fetch
from bigbird_dna.genome.sources.http_request import DownloadError, Limits, redirected
from bigbird_dna.genome.sources.inputs import Source, load_sources
from bigbird_dna.genome.sources.transfer import Version, open_part
from tests.faults.server import (
    CONTENT,
    FAULTS,
    LIES,
    LIMITS,
    Exchange,
    Fault,
    FaultyServer,
    Site,
    described,
    fetched,
    names,
    one_line,
    plain,
    refusal,
)
from tests.genome.formats import bgzip, tar
from tests.golden.messages import fails, message

PATIENT = Limits(pause=0)
PAGE = b"<html>Sorry</html>"


def cuts(*sizes: int, ranges: bool = True) -> list[Fault]:
    """Answers of which so many bytes come."""

    def answer(x: Exchange, size: int) -> None:
        if not ranges:
            x.headers.pop("range", None)
        x.respond(cut=size)

    return [functools.partial(answer, size=size) for size in sizes]


def answer(status: int, *headers: bytes) -> Fault:
    return lambda x: x.head(status, *headers)


def asked(site: Site) -> list[str | None]:
    """What part of the file each request was for."""
    return [headers.get("range") for headers in site.asked]


@pytest.fixture
def mirror(server: FaultyServer, source: Source, catalog: dict[str, Source]) -> Site:
    """Another address of the file."""
    server.sites["two"] = Site(CONTENT, tag=b'"mirror"')
    catalog["one"] = replace(source, urls=(*source.urls, server.url("two", 0, "file")))
    return server.sites["two"]


@settings(deadline=None, max_examples=25)
@given(
    content=st.binary(min_size=1, max_size=3000),
    sizes=st.lists(st.integers(0, 3000), max_size=6),
    ranges=st.booleans(),
    tag=st.sampled_from([b'"a"', None]),
    checksum=st.sampled_from(["any", None]),
)
def test_cuts_anywhere_give_the_same_bytes(
    server: FaultyServer,
    tmp_path_factory: pytest.TempPathFactory,
    content: bytes,
    sizes: list[int],
    ranges: bool,
    tag: bytes | None,
    checksum: str | None,
) -> None:
    honest = None if ranges else "range_ignored"
    server.sites["one"] = Site(
        content, tag=tag, scripts=[cuts(*sizes, ranges=ranges)], always=[honest]
    )
    source = described(server, "one", "file", checksum)
    output = tmp_path_factory.mktemp("cut") / "file"
    with open_part(output, "file") as part:
        fetching.download(source.urls[0], part, source, replace(PATIENT, futile=10))
        part.finish(output)
    assert output.read_bytes() == content and names(output.parent) == ["file"]


def test_the_rest_is_asked_for_where_it_was_cut(
    source: Source, site: Site, tmp_path: Path
) -> None:
    site.scripts = [cuts(1000, 500)]
    assert fetched(tmp_path / "new/out", PATIENT) == CONTENT and names(
        tmp_path / "new"
    ) == ["out"]
    assert asked(site) == [None, "bytes=1000-", "bytes=1500-"]


@pytest.mark.parametrize("changed", [False, True])
def test_a_later_call_goes_on_unless_the_file_has_changed(
    unsigned: Source, site: Site, tmp_path: Path, changed: bool
) -> None:
    site.scripts = [cuts(1000, 0, 0, 0, 0)]
    message(refusal(tmp_path / "out", PATIENT))
    assert (tmp_path / "out.fetch.part").stat().st_size == 1000
    site.scripts, site.asked = [[]], []
    if changed:
        site.content, site.tag = CONTENT[::-1], b'"v2"'
    assert fetched(tmp_path / "out", PATIENT) == site.content and names(tmp_path) == [
        "out"
    ]
    assert asked(site) == ["bytes=1000-"]


def test_a_mirror_goes_on_with_what_the_first_server_gave(
    mirror: Site, site: Site, tmp_path: Path
) -> None:
    site.scripts = [cuts(1000, 0, 0, 0, 0)]
    assert fetched(tmp_path / "out", PATIENT) == CONTENT
    assert asked(mirror) == ["bytes=1000-"]


@pytest.mark.parametrize("left", [b"another file's beginning", CONTENT + b"more"])
def test_bytes_that_do_not_fit_are_fetched_anew(
    source: Source, site: Site, tmp_path: Path, left: bytes
) -> None:
    with open_part(tmp_path / "out", f"one {source.checksum}") as part:
        part.begin(0, "http://elsewhere/file.bin", Version())
        part.write(left)
    assert fetched(tmp_path / "out", PATIENT) == CONTENT
    assert asked(site) == [f"bytes={len(left)}-", None]


@pytest.mark.parametrize(("status", "times"), [(404, 1), (503, 3)])
@pytest.mark.parametrize("signed", [True, False])
def test_a_mirror_is_named_and_asked(
    mirror: Site,
    site: Site,
    catalog: dict[str, Source],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    status: int,
    times: int,
    signed: bool,
) -> None:
    site.always = [answer(status, b"Content-Length: 0")]
    catalog["one"] = replace(
        catalog["one"],
        checksum=f"md5:{hashlib.md5(CONTENT).hexdigest()}" if signed else None,
    )
    assert fetched(tmp_path / "out") == CONTENT
    assert len(site.asked) == times
    message(capsys.readouterr().err, site.asked[0]["host"])


def test_a_wrong_checksum(mirror: Site, site: Site, tmp_path: Path) -> None:
    site.content = PAGE
    assert fetched(tmp_path / "out", PATIENT) == CONTENT
    site.content = mirror.content = b"wrong"
    digests = [hashlib.sha256(content).hexdigest() for content in (b"wrong", CONTENT)]
    message(refusal(tmp_path / "other", PATIENT), "source one", *digests)
    assert names(tmp_path) == ["out"]


def test_no_network(source: Source, catalog: dict[str, Source], tmp_path: Path) -> None:
    catalog["one"] = replace(source, urls=("http://127.0.0.1:9/file.bin",))
    message(refusal(tmp_path / "out", PATIENT))


def local(tmp_path: Path, content: bytes, name: str = "file.txt") -> Path:
    path = tmp_path / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return tmp_path / "data"


@pytest.mark.parametrize(
    "content", [b"", PAGE, gzip.compress(CONTENT, mtime=0)[:-20], CONTENT]
)
@pytest.mark.parametrize("name", ["file.gz", "other"])
def test_what_is_no_whole_gzip_file(
    unsigned: Source,
    site: Site,
    catalog: dict[str, Source],
    tmp_path: Path,
    content: bytes,
    name: str,
) -> None:
    """Here or there."""
    catalog["one"] = replace(unsigned, file="file.gz")
    site.content = content
    with fails(DataError):
        fetch("one", tmp_path / "out.gz", local(tmp_path, content, name), limits=LIMITS)
    assert names(tmp_path) == ["data"]


def test_a_local_file_comes_first_and_the_nearest_of_several(
    source: Source, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch("one", tmp_path / "out", tmp_path, limits=PATIENT)
    assert len(site.asked) == 1
    local(tmp_path, b"other", "a/deep/file.txt")
    fetch("one", tmp_path / "near", local(tmp_path, CONTENT, "b/file.txt"))
    assert (tmp_path / "near").read_bytes() == CONTENT and len(site.asked) == 1
    # Of a plain text, it may be the gzip.
    packed = local(tmp_path, gzip.compress(CONTENT), "c/file.txt.gz") / "c"
    fetch("one", tmp_path / "unpacked", packed)
    assert (tmp_path / "unpacked").read_bytes() == CONTENT
    # It may be the output itself.
    output = tmp_path / "data/b/file.txt"
    fetch("one", output, output.parent)
    assert output.read_bytes() == CONTENT
    output.write_bytes(CONTENT[:-1])
    for damaged in (output, tmp_path / "new"):
        with fails(DataError):
            fetch("one", damaged, output.parent)
    assert (
        output.read_bytes() == CONTENT[:-1]
        and not (tmp_path / "new").exists()
        and len(site.asked) == 1
    )


def test_a_local_text_without_a_checksum_is_taken_with_a_note(
    unsigned: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch("one", tmp_path / "out", local(tmp_path, CONTENT))
    message(capsys.readouterr().err)


def test_an_unknown_key_or_directory(source: Source, tmp_path: Path) -> None:
    with fails(UsageError):
        fetch("one", tmp_path / "out", tmp_path / "missing")
    with fails(UsageError, "hg99"):
        fetch("hg99", tmp_path / "out")


def test_real_files_are_as_published(shared_data: Path, tmp_path: Path) -> None:
    yeast = ("sacCer3.reference", "sacCer3.promoters", "sacCer3.annotation")
    for key in ("GRCh37.chain", "GRCh38.promoters", *yeast):
        fetch(key, tmp_path / key, shared_data)
        megabytes = (tmp_path / key).stat().st_size / 1e6
        assert megabytes == pytest.approx(load_sources()[key].megabytes, rel=0.15)


LOOSE = {  # by parts of messages that depend on time or chance
    "chunked_and_cut": "connection lost: IncompleteRead",
    "impossible_length": "Content-Length",
    "length_too_large": "connection lost after",
    "another_range": "another part of the file",
    "silent": "no connection|connection lost: timed out|no answer within",
    "silent_after_the_start": "slower than 20000 bytes",
    "dripping": "slower than 20000 bytes",
    "dripping_headers": "0.35 s",
    "endless_continue": "0.35 s",
    "endless_headers": "100 headers",
    "enormous_header": "65536 bytes",
    "endless_body": "1,128,576 bytes",
    "no_http": "not HTTP",
    "closed": "connection lost",
    "reset": "connection lost",
}


@pytest.mark.parametrize("fault", LOOSE)
def test_every_fault_is_named(
    unsigned: Source, site: Site, tmp_path: Path, fault: str
) -> None:
    site.always = [fault]
    # On a busy machine, servers that wait would reach the limit of all attempts first.
    text = refusal(tmp_path / "out", replace(LIMITS, seconds=60))
    assert any(part in text for part in LOOSE[fault].split("|")), text


# And how often it is asked for.
EXACT: dict[str, tuple[str | Fault, int]] = {
    **{
        name: (name, 1)
        for name in (
            *(
                "other_transfer_encoding",
                "without_length",
                "without_length_and_cut",
                "two_lengths",
            ),
            *(
                "length_enormous",
                "several_ranges",
                "content_encoding",
                "web_page",
                "redirected_nowhere",
            ),
        )
    },
    "redirected_for_ever": ("redirected_for_ever", 5),
    **{
        f"status {status}": (
            answer(status, b"Content-Length: 0"),
            3 if status in (429, 500, 503) else 1,
        )
        for status in (204, 401, 403, 404, 407, 418, 429, 500, 501, 503, 511, 999)
    },
    **{
        f"to {target}": (answer(302, b"Location: " + target.encode()), 1)
        for target in (
            "file:///etc/passwd",
            "ftp://127.0.0.1/x",
            "data:,x",
            "http://[",
            "gopher://x/",
        )
    },
}


@pytest.mark.parametrize("name", EXACT)
def test_every_wrong_answer_is_named(
    unsigned: Source, site: Site, tmp_path: Path, name: str
) -> None:
    wrong, times = EXACT[name]
    site.always = [wrong]
    message(refusal(tmp_path / "out"), "--local-data")
    assert len(site.asked) == times


def test_redirects_never_leave_tls() -> None:
    with fails(DownloadError):
        redirected("https://a/file", 302, "http://a/file")
    assert redirected("http://a/file", 302, "https://b/file#x") == "https://b/file"
    assert redirected("https://a/b/file", 302, "other é") == "https://a/b/other%20%E9"


@pytest.mark.parametrize(
    ("later", "waited"), [(b"0.1", False), (b"1", True), (b"60", False)]
)
def test_a_server_says_when_to_come_back(
    unsigned: Source, site: Site, tmp_path: Path, later: bytes, waited: bool
) -> None:
    site.scripts = [[answer(429, b"Retry-After: " + later)]]
    limits = replace(LIMITS, longest_pause=5, seconds=10)
    start = time.monotonic()
    if later == b"60":
        message(refusal(tmp_path / "out", limits), "60 s", "5 s")
    else:
        fetch("one", tmp_path / "out", limits=limits)
    assert (time.monotonic() - start >= 1) == waited


@pytest.mark.parametrize(
    ("script", "content", "parts"),
    [
        # The rest of another length, with the same mark, is another version.
        (cuts(50), CONTENT[:2000], [None, "bytes=50-", None]),
        # No part is the whole file because a server says so.
        ([*cuts(50), "lie_of_being_complete"], CONTENT, [None, "bytes=50-", None]),
    ],
)
def test_what_a_server_says_is_compared(
    unsigned: Source,
    site: Site,
    tmp_path: Path,
    script: list[Fault],
    content: bytes,
    parts: list[str],
) -> None:
    site.scripts = [script[:1]]
    refusal(tmp_path / "out", replace(LIMITS, futile=1))
    site.content, site.scripts = content, [script[1:]]
    assert fetched(tmp_path / "out") == content and asked(site) == parts


def test_a_part_of_another_source_is_not_gone_on_with(
    source: Source, site: Site, catalog: dict[str, Source], tmp_path: Path
) -> None:
    site.scripts = [["cut"]]
    catalog["one"], catalog["two"] = (
        replace(source, checksum=None),
        replace(source, key="two"),
    )
    refusal(tmp_path / "out", replace(LIMITS, futile=1))
    fetch("two", tmp_path / "out", limits=LIMITS)
    assert asked(site) == [None, None]


def test_a_member_of_a_gzip_file_is_not_the_end_of_an_archive(
    unsigned: Source, site: Site, catalog: dict[str, Source], tmp_path: Path
) -> None:
    # Two gzip members, as parallel compressors write them, and the first one alone.
    archive = gzip.decompress(tar(CONTENT))
    first = gzip.compress(archive[:2000])
    catalog["one"] = replace(unsigned, file="file.tar.gz")
    site.content = first + gzip.compress(archive[2000:])
    fetch("one", tmp_path / "out", limits=LIMITS)
    site.content = first
    message(refusal(tmp_path / "other"))


def test_an_address_gets_only_so_much(
    unsigned: Source, site: Site, tmp_path: Path
) -> None:
    # Each attempt brings a little, and would go on for ever.
    site.always = [*cuts(2)]
    message(refusal(tmp_path / "out", replace(LIMITS, rate=1)), "6 attempts")
    assert (tmp_path / "out.fetch.part").stat().st_size == 12
    message(refusal(tmp_path / "out"), "3 attempts")
    site.always = ["dripping"]
    start = time.monotonic()
    text = refusal(tmp_path / "out", replace(LIMITS, rate=1, seconds=0.6))
    assert "0.6 s" in text and "out.fetch.part" in text
    assert 0.5 < time.monotonic() - start < 1.5


SPARE = 2.0  # seconds for checking what came, on a machine that does much else
FOREIGN = b"half a file that another program downloads"


def contents(kind: str, rng: Random) -> tuple[bytes, bytes]:
    """Two versions of a file of this kind."""
    pack = {"file.gz": gzip.compress, "file.bed.gz": bgzip, "file.tar.gz": tar}.get(
        kind, bytes
    )
    return pack(plain(rng)), pack(plain(rng))


def leave_anything(output: Path, rng: Random) -> None:
    """What an earlier fetch, a power cut or another program may have left beside the output."""
    part = output.with_name(f"{output.name}.fetch.part")
    marks = {"whole": "some None", "url": "http://x/", "mark": '"v1"', "total": None}
    if rng.random() < 0.5:
        part.write_bytes(rng.randbytes(rng.randrange(3000)))
    if rng.random() < 0.5:
        part.with_name(f"{part.name}.json").write_text(
            rng.choice(["[", json.dumps(marks)])
        )
    output.with_name(f"{output.name}.part").write_bytes(FOREIGN)


def random_site(server: FaultyServer, name: str, rng: Random, kind: str) -> Site:
    """A file, and a random script for each of its addresses."""
    content, later = contents(kind.removeprefix("sha256 of "), rng)
    known = [name for name in FAULTS if kind != "file.txt" or name not in LIES]
    # Parts of two versions are put together only where one is cut and the next comes from another.
    known += ["cut", "chunked_and_cut", "changed", "version_ignored"] * 4
    addresses = rng.randint(1, 3)
    found = Site(
        content,
        rng.randrange(10**9),
        rng.choice([b'"v1"', b'"v1"', None, b'W/"v1"']),
        later=later,
    )
    found.scripts = [rng.choices(known, k=rng.randrange(4)) for _ in range(addresses)]
    found.always = [
        rng.choice([None, None, rng.choice(known)]) for _ in range(addresses)
    ]
    server.sites[name] = found
    return found


def check(
    server: FaultyServer, catalog: dict[str, Source], home: Path, seed: int
) -> bool:
    """One random download; whether it gave a file."""
    rng, name, directory = Random(seed), f"random{seed}", home / str(seed)
    directory.mkdir()
    output = directory / "out"
    kind = rng.choice(
        [
            "sha256 of file.txt",
            "sha256 of file.gz",
            "file.gz",
            "file.bed.gz",
            "file.tar.gz",
            "file.txt",
        ]
    )
    found = random_site(server, name, rng, kind)
    scripts, always = [list(script) for script in found.scripts], list(found.always)
    about = f"seed {seed}: {kind}, tag {found.tag!r}, {scripts}, then {always}"
    versions = [found.content]
    checksum = (
        f"sha256:{hashlib.sha256(found.content).hexdigest()}"
        if kind.startswith("sha256")
        else None
    )
    if checksum is None:
        versions.append(found.later)
    catalog[name] = described(server, name, kind, checksum)
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
    assert sorted(path.name for path in directory.iterdir()) == ["out", "out.part"], (
        about
    )
    return whole


@pytest.mark.parametrize(
    "seeds", [range(200), pytest.param(range(1000, 3000), marks=pytest.mark.slow)]
)
def test_downloads_from_a_faulty_server(
    server: FaultyServer, catalog: dict[str, Source], tmp_path: Path, seeds: range
) -> None:
    with ThreadPoolExecutor(12) as pool:
        whole = list(
            pool.map(functools.partial(check, server, catalog, tmp_path), seeds)
        )
    # Both endings are common, or nothing was tried.
    assert 0.25 < sum(whole) / len(seeds) < 0.95
