"""Fetching from a local directory and from a server that cuts, refuses and changes its files."""

import functools
import gzip
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.config import ChromatinConfig, ChromatinDataConfig, Config, parse_config
from bigbird_dna.errors import ConfigError, DataError, UsageError
from bigbird_dna.genome.sources import inputs as sources
from bigbird_dna.genome.sources.catalogue import Source, load_sources
from bigbird_dna.genome.sources.fetching import Wanted, download
from bigbird_dna.genome.sources.fetching import fetch as fetch_within
from bigbird_dna.genome.sources.http_request import Limits
from bigbird_dna.genome.sources.http_response import Version
from bigbird_dna.genome.sources.inputs import (
    annotation_file,
    check_sources,
    find_assembly,
    find_inputs,
    own_files,
)
from bigbird_dna.genome.sources.partial_file import open_part
from tests.golden.messages import fails

CONTENT = bytes(range(256)) * 40
LIMITS = Limits(pause=0)
fetch = functools.partial(fetch_within, limits=LIMITS)


@dataclass
class Site:
    """A server's file and its moods."""

    content: bytes = CONTENT
    ranges: bool = True
    tag: str | None = '"v1"'
    cuts: list[int] = field(default_factory=list)  # bytes sent of each answer in turn; then whole
    status: int = 200
    asked: list[str | None] = field(default_factory=list)  # Range of each request
    url: str = ""


class Handler(BaseHTTPRequestHandler):
    """Answers with the site of the server."""

    server: "Server"

    def do_GET(self) -> None:
        site = self.server.site
        asked = self.headers.get("Range")
        site.asked.append(asked)
        if site.status != 200:
            self.send_error(site.status)
            return
        content, start = site.content, 0
        same = self.headers.get("If-Range") in (None, site.tag)
        if asked and site.ranges and same:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        body = content[start:]
        self.send_header("Content-Length", str(len(body)))
        if site.tag:
            self.send_header("ETag", site.tag)
        self.end_headers()
        self.wfile.write(body[: site.cuts.pop(0)] if site.cuts else body)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


class Server(ThreadingHTTPServer):
    """Serves one site."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.site = Site()


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    pair = (Server(), Server())
    threads = [threading.Thread(target=server.serve_forever, args=(0.01,)) for server in pair]
    for thread in threads:
        thread.start()
    yield pair
    for server, thread in zip(pair, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


def _set(server: Server, site: Site) -> Site:
    site.url = f"http://127.0.0.1:{server.server_port}/file.bin"
    server.site = site
    return site


@pytest.fixture
def site(servers: tuple[Server, Server]) -> Site:
    return _set(servers[0], Site())


@pytest.fixture
def mirror(servers: tuple[Server, Server]) -> Site:
    return _set(servers[1], Site(tag='"mirror"'))


@pytest.fixture
def source(site: Site, mirror: Site, monkeypatch: pytest.MonkeyPatch) -> Source:
    """The key "some" with both servers as its addresses and the right checksum."""
    digest = hashlib.sha256(CONTENT).hexdigest()
    entry = Source("some", "file.bin", "demo", (site.url, mirror.url), f"sha256:{digest}", 0.01, "free", "us")
    monkeypatch.setattr(sources, "load_sources", lambda: {"some": entry})
    return entry


def _use(monkeypatch: pytest.MonkeyPatch, entry: Source) -> None:
    monkeypatch.setattr(sources, "load_sources", lambda: {"some": entry})


def test_every_entry_is_complete() -> None:
    entries = load_sources()
    assert {"GRCh37.reference", "GRCh37.chain", "sacCer3.reference", "sacCer3.promoters"} <= set(entries)
    for entry in entries.values():
        assert entry.urls and entry.licence and entry.citation and entry.megabytes > 0
        assert all(url.rsplit("/", 1)[1] == entry.file for url in entry.urls)
        # In clear only what was asked for over TLS before.
        for number, url in enumerate(entry.urls):
            secure = url.startswith(("https://", "ftp://"))
            assert secure or url.replace("http://", "https://") in entry.urls[:number]
        assert len(set(entry.urls)) == len(entry.urls) > 1
        if entry.checksum is not None:
            algorithm, digest = entry.checksum.split(":")
            assert len(digest) == hashlib.new(algorithm).digest_size * 2


def test_download(source: Source, tmp_path: Path) -> None:
    fetch("some", tmp_path / "new/out.bin")
    assert (tmp_path / "new/out.bin").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out.bin"]


@settings(deadline=None, max_examples=25)
@given(
    content=st.binary(min_size=1, max_size=3000),
    cuts=st.lists(st.integers(0, 3000), max_size=6),
    ranges=st.booleans(),
    tag=st.sampled_from(['"a"', None]),
    any_server=st.booleans(),
)
def test_cuts_anywhere_give_the_same_bytes(
    servers: tuple[Server, Server],
    tmp_path_factory: pytest.TempPathFactory,
    content: bytes,
    cuts: list[int],
    ranges: bool,
    tag: str | None,
    any_server: bool,
) -> None:
    site = _set(servers[0], Site(content, ranges, tag, list(cuts)))
    output = tmp_path_factory.mktemp("cut") / "file"
    with open_part(output, "file") as part:
        wanted = Wanted("file", 1000, any_server)
        download(site.url, part, wanted, replace(LIMITS, futile=10))
        part.finish(output)
    assert output.read_bytes() == content
    assert list(output.parent.iterdir()) == [output]


def test_the_rest_is_asked_for_where_it_was_cut(source: Source, site: Site, tmp_path: Path) -> None:
    site.cuts = [1000, 500]
    fetch("some", tmp_path / "out.bin")
    assert site.asked == [None, "bytes=1000-", "bytes=1500-"]
    assert (tmp_path / "out.bin").read_bytes() == CONTENT


def test_a_later_call_goes_on(
    source: Source, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(monkeypatch, replace(source, urls=(site.url,), checksum=None))
    site.cuts = [1000, 0, 0, 0, 0]
    with fails(DataError):
        fetch("some", tmp_path / "out.bin")
    assert not (tmp_path / "out.bin").exists()
    assert (tmp_path / "out.bin.fetch.part").stat().st_size == 1000
    site.cuts, site.asked = [], []
    fetch("some", tmp_path / "out.bin")
    assert site.asked == ["bytes=1000-"]
    assert (tmp_path / "out.bin").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["out.bin"]


def test_a_file_that_changed_meanwhile_is_fetched_anew(
    source: Source, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(monkeypatch, replace(source, urls=(site.url,), checksum=None))
    site.cuts = [1000, 0, 0, 0, 0]
    with pytest.raises(DataError):
        fetch("some", tmp_path / "out.bin")
    site.cuts, site.content, site.tag = [], CONTENT[::-1], '"v2"'
    fetch("some", tmp_path / "out.bin")
    assert (tmp_path / "out.bin").read_bytes() == CONTENT[::-1]


def test_a_mirror_goes_on_with_what_the_first_server_gave(
    source: Source, site: Site, mirror: Site, tmp_path: Path
) -> None:
    site.cuts = [1000, 0, 0, 0, 0]
    fetch("some", tmp_path / "out.bin")
    assert mirror.asked == ["bytes=1000-"]
    assert (tmp_path / "out.bin").read_bytes() == CONTENT


def leave(output: Path, source: Source, content: bytes) -> None:
    """A part as an earlier fetch leaves it, from another address."""
    with open_part(output, f"{source.key} {source.checksum}") as part:
        part.begin(0, "http://elsewhere/file.bin", Version())
        part.write(content)


def test_pieces_that_do_not_fit_are_fetched_in_one(source: Source, site: Site, tmp_path: Path) -> None:
    leave(tmp_path / "out.bin", source, b"another file's beginning")
    fetch("some", tmp_path / "out.bin")
    assert site.asked == ["bytes=24-", None]
    assert (tmp_path / "out.bin").read_bytes() == CONTENT


def test_a_part_longer_than_the_file(source: Source, tmp_path: Path) -> None:
    leave(tmp_path / "out.bin", source, CONTENT + b"more")
    fetch("some", tmp_path / "out.bin")
    assert (tmp_path / "out.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("status", [404, 503])
def test_mirror_after_a_refusal(
    source: Source, site: Site, mirror: Site, tmp_path: Path, status: int
) -> None:
    site.status = status
    fetch("some", tmp_path / "out.bin")
    assert len(site.asked) == (1 if status == 404 else 4)
    assert (tmp_path / "out.bin").read_bytes() == CONTENT


def test_mirror_after_a_wrong_checksum(source: Source, site: Site, tmp_path: Path) -> None:
    site.content = b"<html>Sorry</html>"
    fetch("some", tmp_path / "out.bin")
    assert (tmp_path / "out.bin").read_bytes() == CONTENT


def test_wrong_checksum_everywhere(source: Source, site: Site, mirror: Site, tmp_path: Path) -> None:
    site.content = mirror.content = b"wrong"
    with pytest.raises(DataError) as caught:
        fetch("some", tmp_path / "out.bin")
    text = str(caught.value)
    assert "source some" in text and "\n" not in text
    assert hashlib.sha256(b"wrong").hexdigest() in text
    assert hashlib.sha256(CONTENT).hexdigest() in text
    assert list(tmp_path.iterdir()) == []


def test_no_network(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, replace(source, urls=("http://127.0.0.1:9/file.bin",)))
    with fails(DataError):
        fetch("some", tmp_path / "out.bin")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"<html>Sorry</html>", "sent a web page instead of the file"), (b"Sorry", "it is not a gzip file")],
)
def test_a_page_instead_of_a_gzip_file(
    source: Source,
    site: Site,
    mirror: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    message: str,
) -> None:
    _use(monkeypatch, replace(source, file="file.gz", checksum=None))
    site.content = mirror.content = content
    with fails(DataError):
        fetch("some", tmp_path / "out.gz")
    assert list(tmp_path.iterdir()) == []


def test_local_file_comes_first(source: Source, site: Site, tmp_path: Path) -> None:
    near, far = tmp_path / "data/b/file.bin", tmp_path / "data/a/deep/file.bin"
    for path, content in {near: CONTENT, far: b"other"}.items():
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    fetch("some", tmp_path / "out.bin", tmp_path / "data")
    assert (tmp_path / "out.bin").read_bytes() == CONTENT
    assert site.asked == []


def test_local_file_that_is_damaged(source: Source, site: Site, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file.bin").write_bytes(CONTENT[:-1])
    with fails(DataError):
        fetch("some", tmp_path / "out.bin", tmp_path / "data")
    assert not (tmp_path / "out.bin").exists() and site.asked == []


@pytest.mark.parametrize("content", [b"", b"<html>Sorry</html>", gzip.compress(CONTENT)[:-20], CONTENT])
def test_local_file_without_a_checksum_is_read_to_its_end(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    _use(monkeypatch, replace(source, file="file.gz", checksum=None))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file.gz").write_bytes(content)
    with fails(DataError):
        fetch("some", tmp_path / "out.gz", tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_local_file_that_is_the_output(source: Source, site: Site, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(CONTENT)
    fetch("some", tmp_path / "file.bin", tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT and site.asked == []
    (tmp_path / "file.bin").write_bytes(CONTENT[:-1])
    with fails(DataError):
        fetch("some", tmp_path / "file.bin", tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT[:-1]


def test_local_text_without_a_checksum_is_taken_with_a_note(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _use(monkeypatch, replace(source, checksum=None))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file.bin").write_bytes(CONTENT)
    fetch("some", tmp_path / "out", tmp_path / "data")
    assert "plain text doesn't show whether it is whole" in capsys.readouterr().err


def test_local_directory_without_the_file(source: Source, site: Site, tmp_path: Path) -> None:
    fetch("some", tmp_path / "out.bin", tmp_path)
    assert len(site.asked) == 1


def test_local_directory_that_is_none(source: Source, tmp_path: Path) -> None:
    with fails(UsageError):
        fetch("some", tmp_path / "out.bin", tmp_path / "missing")


def test_unknown_key(tmp_path: Path) -> None:
    with fails(UsageError):
        fetch("hg99", tmp_path / "out")


def test_real_files_are_as_published(shared_data: Path, tmp_path: Path) -> None:
    yeast = ("sacCer3.reference", "sacCer3.promoters", "sacCer3.annotation")
    for key in ("GRCh37.chain", "GRCh38.promoters", *yeast):
        fetch(key, tmp_path / key, shared_data)
        megabytes = (tmp_path / key).stat().st_size / 1e6
        assert megabytes == pytest.approx(load_sources()[key].megabytes, rel=0.15)


def _genome(**keys: str | None) -> Config:
    """Yeast with its sources, and other names for some roles."""
    genome = {"assembly": "sacCer3", "reference": "sacCer3.reference"}
    promoters: dict[str, str | None] = {"source": "sacCer3.promoters"}
    for role, name in keys.items():
        if role in ("promoters", "chain", "annotation"):
            promoters["source" if role == "promoters" else role] = name
        else:
            genome |= {role: name}
    return parse_config({"genome": genome, "promoters": promoters})


def test_sources_of_a_configuration() -> None:
    assert check_sources(Config()) == {}
    assert set(check_sources(_genome())) == {"reference", "promoters"}
    annotated = _genome(annotation="sacCer3.annotation")
    assert set(check_sources(annotated)) == {"reference", "promoters", "annotation"}
    name = "Saccharomyces_cerevisiae.R64-1-1.96.gtf.gz"
    assert annotation_file(annotated) == annotated.paths.download(name)
    assert find_inputs(annotated).keys[name] == "sacCer3.annotation"
    assert annotation_file(_genome()) is None
    human = _genome(
        assembly="GRCh37", reference="GRCh37.reference", promoters="GRCh38.promoters", chain="GRCh37.chain"
    )
    assert check_sources(human)["chain"].from_assembly == "GRCh38"


def test_sources_of_deepseas_data() -> None:
    files = {
        "assembly": "GRCh37",
        "reference": "GRCh37.reference",
        "promoters": "GRCh38.promoters",
        "chain": "GRCh37.chain",
    }
    published = ChromatinConfig(data=ChromatinDataConfig(tracks="deepsea"))
    human = _genome(**files).model_copy(update={"chromatin": published})
    found = check_sources(human)
    assert [source.key for source in found.values()][-3:] == [
        *("DeepSEA.bundle", "DeepSEA.bins", "DeepSEA.tracks")
    ]
    assert len({source.file for source in found.values()}) == len(found) == 6
    for other in (Config(), _genome()):
        other = other.model_copy(update={"chromatin": human.chromatin})
        with fails(ConfigError):
            check_sources(other)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"reference": "hg99"}, r"genome.reference: 'hg99' is not a file here, and not a source \(Deep"),
        ({"promoters": "x.sga"}, r"promoters.source: 'x.sga' is not a file here, and not a source \(Deep"),
        ({"chain": "x.chain"}, "promoters.chain: no source 'x.chain'; there are"),
        ({"chain": "GRCh37.chain", "promoters": None}, "GRCh37.chain lifts promoters, and there"),
        ({"reference": None}, "genome.reference: assembly sacCer3 needs a source or a file"),
        ({"reference": None, "assembly": "demo"}, "promoters.source: .* needs a genome.reference"),
        ({"reference": "GRCh37.reference"}, "GRCh37.reference is GRCh37, not sacCer3"),
        ({"promoters": "GRCh38.promoters"}, "is GRCh38, the genome is sacCer3, and there is no"),
        ({"chain": "GRCh37.chain"}, "GRCh37.chain leads from GRCh38 to GRCh37"),
        ({"annotation": "x.gtf"}, r"promoters.annotation: 'x.gtf' is not a file here, and not a source"),
        (
            {"annotation": "sacCer3.annotation", "promoters": None},
            "promoters.annotation: sacCer3.annotation is for promoter windows, and there are no promoters",
        ),
        (
            {
                **{"assembly": "GRCh37", "reference": "GRCh37.reference", "annotation": "sacCer3.annotation"},
                **{"promoters": "GRCh38.promoters", "chain": "GRCh37.chain"},
            },
            "sacCer3.annotation is sacCer3, the genome is GRCh37: an annotation is not lifted",
        ),
    ],
)
def test_sources_that_do_not_fit(keys: dict[str, str | None], message: str) -> None:
    with fails(ConfigError):
        check_sources(_genome(**keys))


def test_files_instead_of_sources(tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.mkdir()
    for name in ("mine.fa.gz", "mine.sga"):
        (local / name).write_bytes(b"")
    keys: dict[str, str | None] = {"reference": "mine.fa.gz", "promoters": "mine.sga"}
    config = _genome(**keys).model_copy(update={"data_dir": str(local)})
    assert own_files(config) == {"reference": local / "mine.fa.gz", "promoters": local / "mine.sga"}
    assert check_sources(config) == {}
    (local / "genes.gff3").touch()
    annotated = _genome(**keys, annotation="genes.gff3").model_copy(update={"data_dir": str(local)})
    assert own_files(annotated)["annotation"] == annotation_file(annotated) == local / "genes.gff3"
    # A file beside a key, by its path, and promoters that a chain lifts.
    path = str(local / "mine.sga")
    human = {"assembly": "GRCh37", "reference": "GRCh37.reference", "chain": "GRCh37.chain"}
    assert set(check_sources(_genome(**human, promoters=path))) == {"reference", "chain"}
    assert own_files(_genome(**human, promoters=path)) == {"promoters": local / "mine.sga"}
    # Names of contigs that no table knows.
    other = {"assembly": "demo", "reference": str(local / "mine.fa.gz"), "promoters": None}
    assert check_sources(_genome(**other)) == {}
    with fails(ConfigError):
        check_sources(_genome(**{**other, "promoters": "sacCer3.promoters"}))
    missing = _genome(reference="gone.fa").model_copy(update={"data_dir": str(local)})
    with fails(ConfigError):
        check_sources(missing)


def test_an_alias_file_is_found_like_a_reference(tmp_path: Path) -> None:
    (tmp_path / "here.fa").touch()
    genome = {"assembly": "custom", "name": "x", "reference": "here.fa", "aliases": "sacCer3.promoters"}
    values = {"data_dir": str(tmp_path), "genome": genome, "promoters": {"source": None}}
    config = parse_config(values)
    with fails(ConfigError):
        check_sources(config)
    (tmp_path / "sacCer3.promoters").write_text("a\tb\n")  # no key, whatever it is called
    assert check_sources(config) == {}
    assert own_files(config)["aliases"] == tmp_path / "sacCer3.promoters"
    assert find_assembly(config).match("a", ["b"]) == "b"
    assert find_assembly(config).name == "x"
    with fails(ConfigError):
        check_sources(parse_config({"genome": {"assembly": "custom", "name": "x"}}))


def test_a_reference_without_promoters() -> None:
    assert set(check_sources(_genome(promoters=None))) == {"reference"}
    assert own_files(_genome(promoters=None)) == {}


def test_local_data_of_a_configuration(tmp_path: Path) -> None:
    config = _genome().model_copy(update={"data_dir": str(tmp_path / "missing")})
    with fails(ConfigError):
        check_sources(config)
