"""Shared by the package's HTTP servers: access checks and response headers."""

from __future__ import annotations

import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

# Host names of this machine. Other names are refused, against DNS rebinding.
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
# Content security policy: a page loads nothing from other hosts.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"


class LocalHandler(BaseHTTPRequestHandler):
    """Serves requests from this machine, without logging them: requests contain names and queries."""

    timeout = 30  # seconds, so that a silent client cannot hold its thread for ever

    @property
    def place(self) -> str:
        """The path of the URL, without its parameters."""
        return urlsplit(self.path).path

    @property
    def is_for_this_machine(self) -> bool:
        """Whether the Host header names this machine."""
        return self.headers.get("Host", "").rpartition(":")[0] in LOOPBACK

    def parameter(self, name: str) -> str:
        """Return a parameter of the URL, or an empty string."""
        return parse_qs(urlsplit(self.path).query).get(name, [""])[0]

    def has_token(self, token: str) -> bool:
        """Tell whether the URL contains the token."""
        return secrets.compare_digest(self.parameter("token").encode(), token.encode())

    def send(self, status: HTTPStatus, body: bytes, kind: str, policy: str = POLICY, **headers: str) -> None:
        """Send a response.

        Args:
            headers: more headers, with _ for -.
        """
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", policy)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Log nothing."""
