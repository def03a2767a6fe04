"""Each wrong answer by itself: what the one line says of it, and that versions are never mixed."""

import gzip
import hashlib
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bigbird_dna.errors import DataError
from bigbird_dna.genome.sources.fetching import fetch
from bigbird_dna.genome.sources.http_request import DownloadError, Limits, redirected
from bigbird_dna.genome.sources.inputs import Source
from tests.faults.downloads import LIMITS, described, one_line, plain, tar
from tests.faults.server import Fault, FaultyServer, Site
from tests.golden.messages import fails

CONTENT = plain(Random(7)) * 3


@pytest.fixture
def one(server: FaultyServer, catalogue: dict[str, Source]) -> Site:
    """A plain file at one address, as the source "one", whose checksum nobody published."""
    server.sites["one"] = Site(CONTENT)
    catalogue["one"] = described(server, "one", "file.txt", None)
    return server.sites["one"]


def refusal(output: Path, limits: Limits = LIMITS) -> str:
    with pytest.raises(DataError) as caught:
        fetch("one", output, limits=limits)
    assert one_line(caught.value)
    assert not output.exists()
    return str(caught.value)


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
def test_every_fault_is_named(one: Site, tmp_path: Path, fault: str) -> None:
    one.always = [fault]
    text = refusal(tmp_path / "out")
    assert any(part in text for part in LOOSE[fault].split("|")), text


def answer(status: int, *headers: bytes) -> Fault:
    return lambda x: x.head(status, *headers)


# And how often it is asked for.
EXACT: dict[str, tuple[str | Fault, int]] = {
    **{
        name: (name, 1)
        for name in (
            *("other_transfer_encoding", "without_length", "without_length_and_cut", "two_lengths"),
            *("length_enormous", "several_ranges", "content_encoding", "web_page", "redirected_nowhere"),
        )
    },
    "redirected_for_ever": ("redirected_for_ever", 5),
    **{
        f"status {status}": (answer(status, b"Content-Length: 0"), 3 if status in (429, 500, 503) else 1)
        for status in (204, 401, 403, 404, 407, 418, 429, 500, 501, 503, 511, 999)
    },
    **{
        f"to {target}": (answer(302, b"Location: " + target.encode()), 1)
        for target in ("file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x", "http://[", "gopher://x/")
    },
}


@pytest.mark.parametrize("name", EXACT)
def test_every_wrong_answer_is_named(one: Site, tmp_path: Path, name: str) -> None:
    wrong, asked = EXACT[name]
    one.always = [wrong]
    with fails(DataError, "--local-data"):
        fetch("one", tmp_path / "out", limits=LIMITS)
    assert len(one.asked) == asked and not (tmp_path / "out").exists()


def test_redirects_never_leave_tls() -> None:
    with fails(DownloadError):
        redirected("https://a/file", 302, "http://a/file")
    assert redirected("http://a/file", 302, "https://b/file#x") == "https://b/file"
    assert redirected("https://a/b/file", 302, "other é") == "https://a/b/other%20%E9"


@pytest.mark.parametrize(("later", "waited"), [(b"0.1", False), (b"1", True), (b"60", False)])
def test_a_server_says_when_to_come_back(one: Site, tmp_path: Path, later: bytes, waited: bool) -> None:
    one.scripts = [[answer(429, b"Retry-After: " + later)]]
    limits = replace(LIMITS, longest_pause=5, seconds=10)
    start = time.monotonic()
    if later == b"60":
        assert "to be asked again in 60 s, where 5 s are waited" in refusal(tmp_path / "out", limits)
    else:
        fetch("one", tmp_path / "out", limits=limits)
    assert (time.monotonic() - start >= 1) == waited


@pytest.mark.parametrize("fault", ["changed", "version_ignored", "range_ignored"])
@pytest.mark.parametrize("tag", [b'"v1"', None])
def test_versions_are_never_mixed(one: Site, tmp_path: Path, fault: str, tag: bytes | None) -> None:
    half = len(CONTENT) // 2
    one.tag = tag
    limits = replace(LIMITS, futile=1)
    one.scripts = [["length_too_large"]]
    refusal(tmp_path / "out", limits)
    assert (tmp_path / "out.fetch.part").read_bytes() == CONTENT
    # The same length, another content.
    one.content, one.later = (content := CONTENT[half:] + CONTENT[:half]), CONTENT[::-1]
    one.tag = tag and b'"v2"'
    one.scripts = [[fault]]
    fetch("one", tmp_path / "out", limits=LIMITS)
    assert (tmp_path / "out").read_bytes() in (content, one.later)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_rest_of_another_length_is_another_version(one: Site, tmp_path: Path) -> None:
    one.scripts = [[lambda x: x.respond(cut=50)]]
    refusal(tmp_path / "out", replace(LIMITS, futile=1))
    one.content = CONTENT[:2000]  # and the same mark
    fetch("one", tmp_path / "out", limits=LIMITS)
    assert (tmp_path / "out").read_bytes() == CONTENT[:2000]
    assert [headers.get("range") for headers in one.asked] == [None, "bytes=50-", None]


def test_a_part_is_no_whole_file_because_a_server_says_so(one: Site, tmp_path: Path) -> None:
    one.scripts = [["cut", "lie_of_being_complete"]]
    fetch("one", tmp_path / "out", limits=LIMITS)
    assert [headers.get("range", "")[:6] for headers in one.asked] == ["", "bytes=", ""]
    assert (tmp_path / "out").read_bytes() == CONTENT


def test_a_part_of_another_source_is_not_gone_on_with(
    one: Site, catalogue: dict[str, Source], tmp_path: Path
) -> None:
    one.scripts = [["cut"]]
    refusal(tmp_path / "out", replace(LIMITS, futile=1))
    digest = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    catalogue["two"] = replace(catalogue["one"], key="two", checksum=digest)
    fetch("two", tmp_path / "out", limits=LIMITS)
    assert [headers.get("range") for headers in one.asked] == [None, None]


def test_a_member_of_a_gzip_file_is_not_the_end_of_an_archive(
    server: FaultyServer, catalogue: dict[str, Source], tmp_path: Path
) -> None:
    # Two gzip members, as parallel compressors write them, and the first one alone.
    archive = gzip.decompress(tar(CONTENT))
    first = gzip.compress(archive[:2000])
    server.sites["one"] = Site(first + gzip.compress(archive[2000:]))
    catalogue["one"] = described(server, "one", "file.tar.gz", None)
    fetch("one", tmp_path / "out", limits=LIMITS)
    server.sites["one"].content = first
    assert "truncated: the tar archive's end is missing" in refusal(tmp_path / "other")


@pytest.mark.parametrize("checksum", [True, False])
def test_a_mirror_is_named_and_asked(
    server: FaultyServer,
    catalogue: dict[str, Source],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    checksum: bool,
) -> None:
    server.sites["one"] = Site(CONTENT, scripts=[[], []], always=["redirected_nowhere", None])
    digest = f"md5:{hashlib.md5(CONTENT).hexdigest()}" if checksum else None
    catalogue["one"] = described(server, "one", "file.txt", digest)
    fetch("one", tmp_path / "out", limits=LIMITS)
    assert "doesn't say where to; addresses left to try: 1" in capsys.readouterr().err


def test_all_attempts_are_counted(one: Site, tmp_path: Path) -> None:
    # Each brings a little, and would go on for ever.
    one.always = [lambda x: x.respond(cut=2)]
    assert "(6 attempts)" in refusal(tmp_path / "out", replace(LIMITS, rate=1))
    assert (tmp_path / "out.fetch.part").stat().st_size == 12
    assert "3 attempts in a row brought next to nothing" in refusal(tmp_path / "out")


def test_an_address_gets_only_so_long(one: Site, tmp_path: Path) -> None:
    one.always = ["dripping"]
    start = time.monotonic()
    text = refusal(tmp_path / "out", replace(LIMITS, rate=1, seconds=0.6))
    assert "not done within the 0.6 s that an address gets" in text
    assert "out.fetch.part keeps the" in text
    assert 0.5 < time.monotonic() - start < 1.5
