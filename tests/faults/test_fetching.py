"""Fetching from a local directory and from servers that cut, refuse and change their files."""

import gzip
import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.sources import fetching
from bigbird_dna.genome.sources.http_request import Limits
from bigbird_dna.genome.sources.inputs import Source, load_sources
from bigbird_dna.genome.sources.transfer import Version, open_part
from tests.faults.downloads import use
from tests.faults.server import Exchange, FaultyServer, Site
from tests.golden.messages import fails

CONTENT = bytes(range(256)) * 40
LIMITS = Limits(pause=0)
PAGE = b"<html>Sorry</html>"
fetch = partial(fetching.fetch, limits=LIMITS)


def cuts(*sizes: int, ranges: bool = True) -> list[object]:
    """Answers of which so many bytes come."""

    def answer(x: Exchange, size: int) -> None:
        if not ranges:
            x.headers.pop("range", None)
        x.respond(cut=size)

    return [partial(answer, size=size) for size in sizes]


def asked(site: Site) -> list[str | None]:
    """What part of the file each request was for."""
    return [headers.get("range") for headers in site.asked]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def site(server: FaultyServer) -> Site:
    server.sites["one"] = Site(CONTENT)
    return server.sites["one"]


@pytest.fixture
def mirror(server: FaultyServer) -> Site:
    server.sites["two"] = Site(CONTENT, tag=b'"mirror"')
    return server.sites["two"]


@pytest.fixture
def both(server: FaultyServer, site: Site, mirror: Site, monkeypatch: pytest.MonkeyPatch) -> Source:
    """The key "one" with both sites as its addresses and the right checksum."""
    digest = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    urls = tuple(server.url(name, 0, "file.bin") for name in ("one", "two"))
    entry = Source("one", "file.bin", "demo", urls, digest, 0.01, "free", "us")
    use(monkeypatch, entry)
    return entry


@pytest.fixture
def unsigned(both: Source, monkeypatch: pytest.MonkeyPatch) -> Source:
    """The same of one address, whose checksum nobody published."""
    entry = replace(both, urls=both.urls[:1], checksum=None)
    use(monkeypatch, entry)
    return entry


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
    server.sites["one"] = Site(content, tag=tag, scripts=[cuts(*sizes, ranges=ranges)], always=[honest])
    url = server.url("one", 0, "file")
    source = Source("one", "file", "demo", (url,), checksum, 0.001, "free", "us")
    output = tmp_path_factory.mktemp("cut") / "file"
    with open_part(output, "file") as part:
        fetching.download(url, part, source, replace(LIMITS, futile=10))
        part.finish(output)
    assert output.read_bytes() == content and names(output.parent) == ["file"]


def test_the_rest_is_asked_for_where_it_was_cut(both: Source, site: Site, tmp_path: Path) -> None:
    site.scripts = [cuts(1000, 500)]
    fetch("one", tmp_path / "new/out.bin")
    assert asked(site) == [None, "bytes=1000-", "bytes=1500-"]
    assert (tmp_path / "new/out.bin").read_bytes() == CONTENT and names(tmp_path / "new") == ["out.bin"]


@pytest.mark.parametrize("changed", [False, True])
def test_a_later_call_goes_on_unless_the_file_has_changed(
    unsigned: Source, site: Site, tmp_path: Path, changed: bool
) -> None:
    site.scripts = [cuts(1000, 0, 0, 0, 0)]
    with fails(DataError):
        fetch("one", tmp_path / "out.bin")
    assert not (tmp_path / "out.bin").exists()
    assert (tmp_path / "out.bin.fetch.part").stat().st_size == 1000
    site.scripts, site.asked = [[]], []
    if changed:
        site.content, site.tag = CONTENT[::-1], b'"v2"'
    fetch("one", tmp_path / "out.bin")
    assert asked(site) == ["bytes=1000-"]
    assert (tmp_path / "out.bin").read_bytes() == site.content and names(tmp_path) == ["out.bin"]


def test_a_mirror_goes_on_with_what_the_first_server_gave(
    both: Source, site: Site, mirror: Site, tmp_path: Path
) -> None:
    site.scripts = [cuts(1000, 0, 0, 0, 0)]
    fetch("one", tmp_path / "out.bin")
    assert asked(mirror) == ["bytes=1000-"] and (tmp_path / "out.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("left", [b"another file's beginning", CONTENT + b"more"])
def test_bytes_that_do_not_fit_are_fetched_anew(
    both: Source, site: Site, tmp_path: Path, left: bytes
) -> None:
    with open_part(tmp_path / "out.bin", f"one {both.checksum}") as part:
        part.begin(0, "http://elsewhere/file.bin", Version())
        part.write(left)
    fetch("one", tmp_path / "out.bin")
    assert asked(site) == [f"bytes={len(left)}-", None]
    assert (tmp_path / "out.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(("status", "times"), [(404, 1), (503, 4)])
def test_a_mirror_after_a_refusal(both: Source, site: Site, tmp_path: Path, status: int, times: int) -> None:
    site.always = [lambda x: x.head(status, b"Content-Length: 0")]
    fetch("one", tmp_path / "out.bin")
    assert len(site.asked) == times and (tmp_path / "out.bin").read_bytes() == CONTENT


def test_a_wrong_checksum(both: Source, site: Site, mirror: Site, tmp_path: Path) -> None:
    site.content = PAGE
    fetch("one", tmp_path / "out.bin")
    assert (tmp_path / "out.bin").read_bytes() == CONTENT
    site.content = mirror.content = b"wrong"
    digests = [hashlib.sha256(content).hexdigest() for content in (b"wrong", CONTENT)]
    with pytest.raises(DataError) as caught:
        fetch("one", tmp_path / "other.bin")
    assert (
        all(part in str(caught.value) for part in ("source one", *digests))
        and str(caught.value).isprintable()
    )
    assert names(tmp_path) == ["out.bin"]


def test_no_network(both: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, replace(both, urls=("http://127.0.0.1:9/file.bin",)))
    with fails(DataError):
        fetch("one", tmp_path / "out.bin")


@pytest.mark.parametrize("content", [PAGE, b"Sorry"])
def test_a_page_instead_of_a_gzip_file(
    unsigned: Source, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    use(monkeypatch, replace(unsigned, file="file.gz"))
    site.content = content
    with fails(DataError):
        fetch("one", tmp_path / "out.gz")
    assert names(tmp_path) == []


# A directory of local files


def local(tmp_path: Path, content: bytes, name: str = "file.bin") -> Path:
    path = tmp_path / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return tmp_path / "data"


def test_a_local_file_comes_first_and_the_nearest_of_several(
    both: Source, site: Site, tmp_path: Path
) -> None:
    fetch("one", tmp_path / "out.bin", tmp_path)
    assert len(site.asked) == 1
    local(tmp_path, b"other", "a/deep/file.bin")
    fetch("one", tmp_path / "near.bin", local(tmp_path, CONTENT, "b/file.bin"))
    assert (tmp_path / "near.bin").read_bytes() == CONTENT and len(site.asked) == 1


def test_a_local_file_that_is_damaged(both: Source, site: Site, tmp_path: Path) -> None:
    with fails(DataError):
        fetch("one", tmp_path / "out.bin", local(tmp_path, CONTENT[:-1]))
    assert not (tmp_path / "out.bin").exists() and site.asked == []


@pytest.mark.parametrize("content", [b"", PAGE, gzip.compress(CONTENT, mtime=0)[:-20], CONTENT])
def test_a_local_file_without_a_checksum_is_read_to_its_end(
    unsigned: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    use(monkeypatch, replace(unsigned, file="file.gz"))
    with fails(DataError):
        fetch("one", tmp_path / "out.gz", local(tmp_path, content, "file.gz"))
    assert names(tmp_path) == ["data"]


def test_a_local_file_that_is_the_output(both: Source, site: Site, tmp_path: Path) -> None:
    output = local(tmp_path, CONTENT) / "file.bin"
    fetch("one", output, output.parent)
    assert output.read_bytes() == CONTENT and site.asked == []
    output.write_bytes(CONTENT[:-1])
    with fails(DataError):
        fetch("one", output, output.parent)
    assert output.read_bytes() == CONTENT[:-1]


def test_a_local_text_without_a_checksum_is_taken_with_a_note(
    unsigned: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch("one", tmp_path / "out", local(tmp_path, CONTENT))
    assert "no checksum is published" in capsys.readouterr().err


def test_an_unknown_key_or_directory(both: Source, tmp_path: Path) -> None:
    with fails(UsageError):
        fetch("one", tmp_path / "out.bin", tmp_path / "missing")
    with fails(UsageError, "hg99"):
        fetch("hg99", tmp_path / "out")


def test_real_files_are_as_published(shared_data: Path, tmp_path: Path) -> None:
    yeast = ("sacCer3.reference", "sacCer3.promoters", "sacCer3.annotation")
    for key in ("GRCh37.chain", "GRCh38.promoters", *yeast):
        fetch(key, tmp_path / key, shared_data)
        megabytes = (tmp_path / key).stat().st_size / 1e6
        assert megabytes == pytest.approx(load_sources()[key].megabytes, rel=0.15)
