"""A local HTTP server with ranges, whose connections can break."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FileServer(ThreadingHTTPServer):
    """Files by name, and the ranges that were requested.

    `cuts` are numbers of bytes after which the next connections break; `status` is sent instead of a file.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []
        self.ranges: list[str | None] = []
        self.accept_ranges = True
        self.status: dict[str, int] = {}

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FileServer

    def do_GET(self) -> None:
        name = self.path.removeprefix("/")
        requested = self.headers.get("Range")
        self.server.ranges.append(requested)
        if name not in self.server.files or name in self.server.status:
            self.send_error(self.server.status.get(name, 404))
            return
        content = self.server.files[name]
        start = 0
        if requested and self.server.accept_ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", requested)[1])  # type: ignore[index]
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            end = f"{len(content) - 1}/{len(content)}"
            self.send_header("Content-Range", f"bytes {start}-{end}")
        else:
            self.send_response(200)
        body = content[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.cuts:
            self.wfile.write(body[: self.server.cuts.pop(0)])
            self.close_connection = True
        else:
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def running_server() -> Iterator[FileServer]:
    with FileServer() as server:
        thread = threading.Thread(
            target=server.serve_forever, args=(0.01,), daemon=True
        )
        thread.start()
        yield server
        server.shutdown()
        thread.join()
