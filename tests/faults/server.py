"""A web server that does everything wrong that one can, in an order that a seed decides."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.faults.exchange import Exchange, Site
from tests.faults.wrong_answers import FAULTS


class _Handler(socketserver.BaseRequestHandler):
    server: "FaultyServer"

    def handle(self) -> None:
        self.request.settimeout(5)
        try:
            with self.request.makefile("rb") as lines:
                words = lines.readline().split()
                headers = {}
                while (line := lines.readline().strip()) and b":" in line:
                    name, _, value = line.decode("latin-1").partition(":")
                    headers[name.strip().lower()] = value.strip()
            if len(words) != 3:
                return
            # /SITE/ADDRESS/, then the file's name or a fault's; of a proxy also a whole address, or a host
            path = "/tunnel/0/" if words[0] == b"CONNECT" else urlsplit(words[1].decode()).path
            _, name, address, what = path.split("/")
            site = self.server.sites[name]
            here = f"http://127.0.0.1:{self.server.server_address[1]}/{name}/{address}/"
            exchange = Exchange(self.request, site, headers, here, self.server.over)
            site.asked.append(headers)
            chosen = what if what in FAULTS else None if what == "honest" else site.next_fault(int(address))
            (FAULTS[chosen] if chosen else Exchange.respond)(exchange)
        except OSError:
            pass  # the client has had enough


class FaultyServer(socketserver.ThreadingTCPServer):
    """Serves sites by name."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sites: dict[str, Site] = {}
        self.over = threading.Event()

    def url(self, name: str, address: int, file: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}/{address}/{file}"


@contextmanager
def running() -> Iterator[FaultyServer]:
    """A server that answers until the block ends."""
    with FaultyServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()
