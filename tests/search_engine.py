"""A stand-in for a search engine on the loopback interface: Elasticsearch's ``_bulk`` and ``_msearch``.

The score of a document is the number of words that it shares with the query.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import loopback

KEY = "key-of-the-engine"
Hits = list[dict[str, Any]]


@dataclass
class Engine:
    """The documents of each index by id, and the number of refused requests without the key."""

    indexes: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: int = 0
    url: str = ""

    def bulk(self, name: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
        """Add documents to an index."""
        for action, row in zip(lines[::2], lines[1::2], strict=True):
            self.indexes.setdefault(name, {})[action["index"]["_id"]] = f"{row['title']} {row['text']}"
        return {"errors": False}

    def msearch(self, name: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
        """Answer several searches."""
        return {"responses": [{"hits": {"hits": self.search(name, body)}} for body in lines[1::2]]}

    def search(self, name: str, body: dict[str, Any]) -> Hits:
        """Return the documents that share words with a query, the one with most words first."""
        words = set(body["query"]["multi_match"]["query"].split())
        shared = {document: len(words & set(text.split())) for document, text in self.indexes[name].items()}
        found = sorted((document for document in shared if shared[document]), key=lambda one: (-shared[one], one))
        return [{"_id": document, "_score": float(shared[document])} for document in found[: body["size"]]]


@contextmanager
def serving(engine: Engine) -> Iterator[Engine]:
    """Serve an engine to requests with the key until the block ends."""

    class Handler(loopback.Handler):
        def do_POST(self) -> None:
            lines = [json.loads(line) for line in self.body().splitlines()]
            if self.headers["Authorization"] != f"ApiKey {KEY}":
                engine.refused += 1
                self.send_error(401)
                return
            _, name, call = self.path.partition("?")[0].split("/")
            self.answer(json.dumps({"_bulk": engine.bulk, "_msearch": engine.msearch}[call](name, lines)).encode())

    with loopback.serving(Handler) as engine.url:
        yield engine
