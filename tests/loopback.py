"""Servers of tests on the loopback interface."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Answers requests, and logs nothing."""

    def body(self) -> bytes:
        """Read the content of a request."""
        return self.rfile.read(int(self.headers["Content-Length"]))

    def answer(self, content: bytes, status: int = 200, **headers: str) -> None:
        """Send an answer; names of headers have _ for -."""
        self.send_response(status)
        for name, value in {"Content_Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(ConnectionError):  # a client may close its connection early
                self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextlib.contextmanager
def serving(handler: type[Handler]) -> Iterator[str]:
    """Serve until the block ends; yield the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
