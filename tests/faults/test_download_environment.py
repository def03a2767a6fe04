"""What stands around a download: other processes, signals, the disk, files of others; proxies, TLS, FTP."""

import fcntl
import json
import os
import resource
import shutil
import signal
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.sources.fetching import fetch
from bigbird_dna.genome.sources.http_request import Limits, proxy_of
from bigbird_dna.genome.sources.inputs import Source
from bigbird_dna.genome.sources.transfer import SUFFIX, open_part, read_marks
from tests.faults.server import (
    CONTENT,
    Exchange,
    FaultyServer,
    Site,
    fetched,
    names,
    refusal,
    running,
)
from tests.golden.messages import fails, message

# Where a TLS handshake fails, Python 3.11.2 leaves its socket to the garbage collector, whenever that comes.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
)

LIMITS = Limits(silence=1, answer=2, window=1, futile=1, seconds=5, pause=0.001)
SCRIPT = """
import json, sys
from pathlib import Path
from bigbird_dna.cli import main
from bigbird_dna.genome.sources import inputs as public
from bigbird_dna.genome.sources.inputs import Source
url, checksum, output = sys.argv[1:]
source = Source("one", "file.txt", "demo", (url,), checksum or None, 1, "free", "us")
public.load_sources = lambda: {"one": source}
sys.argv = ["bigbird-dna", "prepare", "fetch", "one", "-o", output]
main.main()
"""


@pytest.fixture
def slow(source: Source, site: Site) -> Site:
    """The site, whose first answer stops after some bytes, until the connection is closed."""

    def stop(x: Exchange) -> None:
        x.respond(cut=5000)
        x.connection.recv(1)

    site.scripts = [[stop]]
    return site


def start(source: Source, output: Path) -> subprocess.Popen[str]:
    """A process that fetches."""
    words = [
        sys.executable,
        "-c",
        SCRIPT,
        source.urls[0],
        source.checksum or "",
        str(output),
    ]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def wait_for_bytes(path: Path, size: int) -> None:
    end = time.monotonic() + 60
    while not path.exists() or path.stat().st_size < size:
        assert time.monotonic() < end, path
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_download_that_is_killed_goes_on(
    source: Source, slow: Site, tmp_path: Path, number: signal.Signals
) -> None:
    process = start(source, tmp_path / "out")
    wait_for_bytes(tmp_path / f"out{SUFFIX}", 5000)
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert "Traceback" not in said
    assert names(tmp_path) == [f"out{SUFFIX}", f"out{SUFFIX}.json"]
    marks = json.loads((tmp_path / f"out{SUFFIX}.json").read_text())
    whole = f"one {source.checksum}"
    assert marks == {
        "whole": whole,
        "url": source.urls[0],
        "mark": '"v1"',
        "total": len(CONTENT),
    }
    assert fetched(tmp_path / "out", LIMITS) == CONTENT and names(tmp_path) == ["out"]
    assert [headers.get("range") for headers in slow.asked] == [None, "bytes=5000-"]


def test_two_at_once_do_not_mix(source: Source, slow: Site, tmp_path: Path) -> None:
    process = start(source, tmp_path / "out")
    wait_for_bytes(tmp_path / f"out{SUFFIX}", 5000)
    message(refusal(tmp_path / "out", LIMITS))
    assert len(slow.asked) == 1
    process.kill()
    process.communicate(timeout=20)
    assert fetched(tmp_path / "out", LIMITS) == CONTENT


def test_a_disk_that_is_too_small_is_noticed_first(
    site: Site, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        shutil,
        "disk_usage",
        lambda _: shutil._ntuple_diskusage(10**9, 10**9 - 9999, 9999),
    )
    message(refusal(tmp_path / "out", LIMITS))
    # Without a length, by what is expected.
    site.scripts = [["without_length"]]
    message(refusal(tmp_path / "out", LIMITS))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file.txt").write_bytes(CONTENT)
    with fails(DataError):
        fetch("one", tmp_path / "out", tmp_path / "data", limits=LIMITS)
    assert names(tmp_path) == ["data"]


def test_a_disk_that_fills_up(source: Source, tmp_path: Path) -> None:
    """The system's limit on the size of a file stands for a quota."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limit[1]))
    try:
        message(refusal(tmp_path / "out", LIMITS))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not (tmp_path / "out").exists()
    assert fetched(tmp_path / "out", LIMITS) == CONTENT


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            (f"out{SUFFIX}", kind)
            for kind in ("directory", "link", "dangling link", "pipe")
        ),
        *(
            ("out", "directory"),
            ("out", "pipe"),
            ("/dev/null", "device"),
            (f"out{SUFFIX}.json", "directory"),
        ),
    ],
)
def test_what_is_no_file_of_a_download_is_left_alone(
    source: Source, tmp_path: Path, name: str, kind: str
) -> None:
    path, other = tmp_path / name, tmp_path / "other"
    other.write_bytes(b"somebody's")
    match kind:
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to(other)
        case "dangling link":
            path.symlink_to(tmp_path / "nothing")
        case "pipe":
            os.mkfifo(path)
    before = names(tmp_path)
    with fails(UsageError):
        fetch("one", path if kind == "device" else tmp_path / "out", limits=LIMITS)
    assert names(tmp_path) == before and other.read_bytes() == b"somebody's"


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"",
            b"\xff\xfe\0",
            b"[]",
            b"7",
            b"null",
            b"[" * 50_000,
            b'{"whole": "x"}',
            b"1" * 9000,
        ),
        b'{"whole": 1, "url": "x", "mark": null, "total": null}',
        b'{"whole": "x", "url": "x", "mark": "a\\r\\nHost: b", "total": null}',
        b'{"whole": "x", "url": "x", "mark": null, "total": true}',
        None,
    ],
)
def test_damaged_marks_count_as_none(
    source: Source, site: Site, tmp_path: Path, text: bytes | None
) -> None:
    part = tmp_path / f"out{SUFFIX}"
    part.write_bytes(b"half of it")
    marks = part.with_name(f"{part.name}.json")
    if text is not None:
        marks.write_bytes(text)
    assert read_marks(marks) is None
    fetch("one", tmp_path / "out", limits=LIMITS)
    assert [headers.get("range") for headers in site.asked] == [None]
    assert names(tmp_path) == ["out"]


def test_a_part_that_is_removed_meanwhile(tmp_path: Path) -> None:
    with fails(DataError), open_part(tmp_path / "out", "one") as part:
        part.write(b"some")
        part.path.unlink()
        part.path.write_bytes(b"another's")
        part.finish(tmp_path / "out")
    assert part.path.read_bytes() == b"another's" and not (tmp_path / "out").exists()


def test_a_part_that_got_its_name_before_it_was_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened, and then renamed by the process that had it: a result now, to be left as it is."""
    output, lock = tmp_path / "out", fcntl.flock
    (tmp_path / f"out{SUFFIX}").write_bytes(CONTENT)

    def late(descriptor: int, operation: int) -> None:
        if not output.exists():
            (tmp_path / f"out{SUFFIX}").replace(output)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with open_part(output, "one") as part:
        part.clear()
        part.write(b"other")
    assert output.read_bytes() == CONTENT
    assert (tmp_path / f"out{SUFFIX}").read_bytes() == b"other"


def test_file_systems_without_locks(
    source: Source,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    refuse = Mock(side_effect=OSError(38, "Function not implemented"))
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert fetched(tmp_path / "out", LIMITS) == CONTENT
    message(capsys.readouterr().err)


def test_proxies_are_used_and_their_passwords_kept(
    source: Source,
    server: FaultyServer,
    site: Site,
    catalog: dict[str, Source],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("no_proxy", "")
    # A proxy is asked for the whole address.
    monkeypatch.setenv(
        "http_proxy", f"http://me:secret@127.0.0.1:{server.server_address[1]}"
    )
    catalog["one"] = replace(source, urls=("http://nowhere.invalid/one/0/file",))
    fetch("one", tmp_path / "out", limits=LIMITS)
    assert site.asked[0]["proxy-authorization"].startswith("Basic ")
    for proxy in (
        "me:secret@127.0.0.1:9",
        "me:secret@nowhere.invalid:1",
        "me:secret@127.0.0.1:port",
    ):
        monkeypatch.setenv("http_proxy", f"http://{proxy}")
        assert "secret" not in message(refusal(tmp_path / "other", LIMITS))
    monkeypatch.setenv("no_proxy", "nowhere.invalid")
    assert proxy_of("http://nowhere.invalid/x") == ""
    message(refusal(tmp_path / "other", LIMITS))
    monkeypatch.setenv("no_proxy", "")
    # One that wants a login.
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.server_address[1]}")
    server.sites["tunnel"] = Site(
        b"", scripts=[[lambda x: x.head(407, b"Content-Length: 0")]]
    )
    catalog["one"] = replace(source, urls=("https://nowhere.invalid/file",))
    message(refusal(tmp_path / "other", LIMITS))


def test_no_tls_where_it_is_expected(
    source: Source, catalog: dict[str, Source], tmp_path: Path
) -> None:
    catalog["one"] = replace(source, urls=(source.urls[0].replace("http:", "https:"),))
    message(refusal(tmp_path / "out", LIMITS))


@pytest.fixture
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 with its key, which nobody has signed."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=here -addext subjectAltName=IP:127.0.0.1"
    made = subprocess.run(
        [*words.split(), "-keyout", "-", "-out", "-"], capture_output=True, check=True
    )
    path.write_bytes(made.stdout)
    return path


def test_tls(
    source: Source,
    catalog: dict[str, Source],
    certificate: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    target = source.urls[0].encode()
    with running() as safe:
        safe.socket = context.wrap_socket(safe.socket, server_side=True)
        leave = lambda x: x.head(302, b"Location: " + target)  # noqa: E731
        safe.sites["one"] = Site(CONTENT, scripts=[[], []], always=[None, leave])
        urls = [
            safe.url("one", address, "file").replace("http:", "https:")
            for address in range(2)
        ]
        catalog["one"] = replace(source, urls=(urls[0],))
        message(refusal(tmp_path / "out", LIMITS))
        assert safe.sites["one"].asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert fetched(tmp_path / "out", LIMITS) == CONTENT
        catalog["one"] = replace(source, urls=(urls[1],))
        message(refusal(tmp_path / "other", LIMITS))


class _Ftp(socketserver.StreamRequestHandler):
    """As much of an FTP server as one file needs."""

    def handle(self) -> None:
        data = None
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            match line.split()[0]:
                case b"USER":
                    self.wfile.write(b"230 come in\r\n")
                case b"EPSV" | b"PASV":
                    data = socketserver.TCPServer(
                        ("127.0.0.1", 0), socketserver.BaseRequestHandler
                    )
                    port = data.server_address[1]
                    self.wfile.write(b"227 (127,0,0,1,%d,%d)\r\n" % divmod(port, 256))
                case b"RETR" if b"file" in line and data is not None:
                    self.wfile.write(b"150 now (%d bytes)\r\n" % len(CONTENT))
                    with data, data.get_request()[0] as connection:
                        connection.sendall(CONTENT[: self.server.size])  # type: ignore[attr-defined]
                    self.wfile.write(b"226 done\r\n")
                case b"RETR" | b"NLST" | b"LIST" | b"CWD" if b"gone" in line:
                    self.wfile.write(b"550 \x1b[31mgone\r\n")
                case _:
                    self.wfile.write(b"200 yes\r\n")


@contextmanager
def ftp_server(size: int) -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Ftp) as server:
        server.daemon_threads = True
        server.size = size  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"ftp://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_ftp(source: Source, catalog: dict[str, Source], tmp_path: Path) -> None:
    with ftp_server(len(CONTENT)) as address:
        catalog["one"] = replace(source, urls=(f"{address}/file",), checksum=None)
        assert fetched(tmp_path / "out", LIMITS) == CONTENT
        catalog["one"] = replace(source, urls=(f"{address}/gone/gone",))
        message(refusal(tmp_path / "other", LIMITS))
    with ftp_server(1000) as address:
        catalog["one"] = replace(source, urls=(f"{address}/file",), checksum=None)
        message(refusal(tmp_path / "other", LIMITS))
