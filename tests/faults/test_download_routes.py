"""The ways that a download takes: proxies, TLS, FTP."""

import shutil
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bigbird_dna.errors import DataError
from bigbird_dna.genome.sources.fetching import fetch
from bigbird_dna.genome.sources.http_request import Limits, proxy_of
from bigbird_dna.genome.sources.inputs import Source
from tests.faults.downloads import CONTENT, use
from tests.faults.server import FaultyServer, Site, running
from tests.golden.messages import fails

# Where a TLS handshake fails, Python 3.11.2 leaves its socket to the garbage collector, whenever that comes.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
)

LIMITS = Limits(silence=1, answer=2, window=1, futile=1, seconds=5, pause=0.001)


def test_proxies_are_used_and_their_passwords_kept(
    source: Source, server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "")
    # A proxy is asked for the whole address.
    monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{server.server_address[1]}")
    use(monkeypatch, replace(source, urls=("http://nowhere.invalid/one/0/file",)))
    fetch("one", tmp_path / "out", limits=LIMITS)
    assert server.sites["one"].asked[0]["proxy-authorization"].startswith("Basic ")
    for proxy in ("me:secret@127.0.0.1:9", "me:secret@nowhere.invalid:1", "me:secret@127.0.0.1:port"):
        monkeypatch.setenv("http_proxy", f"http://{proxy}")
        with fails(DataError) as caught:
            fetch("one", tmp_path / "other", limits=LIMITS)
        assert "secret" not in str(caught.value)
    monkeypatch.setenv("no_proxy", "nowhere.invalid")
    assert proxy_of("http://nowhere.invalid/x") == ""
    with fails(DataError):
        fetch("one", tmp_path / "other", limits=LIMITS)


def test_a_proxy_that_wants_a_login(
    source: Source, server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.server_address[1]}")
    server.sites["tunnel"] = Site(b"", scripts=[[lambda x: x.head(407, b"Content-Length: 0")]])
    use(monkeypatch, replace(source, urls=("https://nowhere.invalid/file",)))
    with fails(DataError):
        fetch("one", tmp_path / "out", limits=LIMITS)


def test_no_tls_where_it_is_expected(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, replace(source, urls=(source.urls[0].replace("http:", "https:"),)))
    with fails(DataError):
        fetch("one", tmp_path / "out", limits=LIMITS)


@pytest.fixture
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 with its key, which nobody has signed."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    words = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=here -addext subjectAltName=IP:127.0.0.1"
    )
    made = subprocess.run([*words.split(), "-keyout", "-", "-out", "-"], capture_output=True, check=True)
    path.write_bytes(made.stdout)
    return path


def test_tls(source: Source, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    target = source.urls[0].encode()
    with running() as safe:
        safe.socket = context.wrap_socket(safe.socket, server_side=True)
        leave = lambda x: x.head(302, b"Location: " + target)  # noqa: E731
        safe.sites["one"] = Site(CONTENT, scripts=[[], []], always=[None, leave])
        urls = [safe.url("one", address, "file").replace("http:", "https:") for address in range(2)]
        use(monkeypatch, replace(source, urls=(urls[0],)))
        with fails(DataError):
            fetch("one", tmp_path / "out", limits=LIMITS)
        assert safe.sites["one"].asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        fetch("one", tmp_path / "out", limits=LIMITS)
        assert (tmp_path / "out").read_bytes() == CONTENT
        use(monkeypatch, replace(source, urls=(urls[1],)))
        with fails(DataError):
            fetch("one", tmp_path / "other", limits=LIMITS)


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
                    data = socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
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


def test_ftp(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ftp_server(len(CONTENT)) as address:
        use(monkeypatch, replace(source, urls=(f"{address}/file",), checksum=None))
        fetch("one", tmp_path / "out", limits=LIMITS)
        assert (tmp_path / "out").read_bytes() == CONTENT
        use(monkeypatch, replace(source, urls=(f"{address}/gone/gone",)))
        with fails(DataError):
            fetch("one", tmp_path / "other", limits=LIMITS)
    with ftp_server(1000) as address:
        use(monkeypatch, replace(source, urls=(f"{address}/file",), checksum=None))
        with fails(DataError):
            fetch("one", tmp_path / "other", limits=LIMITS)
