"""A stand-in for a server of models, on the loopback interface: ``/embeddings``, ``/rerank`` and ``/chat/completions``.

It serves functions of the tests, such as a tiny checkpoint, and produces faults on demand.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from typing import Any

import loopback
import numpy as np

KEY = "sk-secret-of-the-tests"


def letters(texts: list[str]) -> np.ndarray:
    """Count each letter in each text: float32 [texts, 26]."""
    return np.array([[text.count(chr(97 + number)) for number in range(26)] for text in texts], np.float32)


def shared_words(query: str, documents: list[str]) -> list[float]:
    """Count the words that each document shares with the query."""
    return [float(len(set(query.split()) & set(text.split()))) for text in documents]


@dataclass
class Served:
    """The functions of a server, the requests that it got, and the faults of its next answers.

    A fault is a status, a tuple of status and headers, ``cut``, ``hang``, ``drip``, the bytes of an answer, or
    a function that changes the answer. ``refusal`` is the content of an answer with a status, unless it is empty.
    """

    embed: Callable[[list[str]], np.ndarray] = letters
    rerank: Callable[[str, list[str]], list[float]] = shared_words
    chat: Callable[[list[dict[str, str]]], str] = lambda messages: messages[-1]["content"]
    model: str = "served"
    hang: float = 3.0
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    headers: list[Message] = field(default_factory=list)
    faults: deque[Any] = field(default_factory=deque)
    url: str = ""
    key: str = KEY
    refusal: bytes = b""

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        """Return the answer to a request."""
        tokens = sum(len(word) for word in json.dumps(body).split())
        usage = {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
        if path.endswith("/embeddings"):
            rows = self.embed(body["input"])[:, : body.get("dimensions")].tolist()
            data = [{"object": "embedding", "index": number, "embedding": row} for number, row in enumerate(rows)]
            return {"object": "list", "model": self.model, "data": data[::-1], **usage}
        if path.endswith("/rerank"):
            documents, key = (body["texts"], "score") if "texts" in body else (body["documents"], "relevance_score")
            scores = self.rerank(body["query"], documents)
            rows = [{"index": number, key: scores[number]} for number in np.argsort(scores)[::-1].tolist()]
            return rows if key == "score" else {"results": rows, **usage}  # text-embeddings-inference: rows alone
        content = self.chat(body["messages"])
        choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        written = {"prompt_tokens": tokens, "completion_tokens": len(content.split())}
        return {"model": self.model, "choices": [choice], "usage": written}


def _handler(served: Served) -> type[loopback.Handler]:
    lock = threading.Lock()

    class Handler(loopback.Handler):
        def do_POST(self) -> None:
            body = json.loads(self.body())
            with lock:
                served.asked.append((self.path, body))
                served.headers.append(self.headers)
                fault = served.faults.popleft() if served.faults else None
            if self.headers.get("Authorization") != f"Bearer {served.key}":
                fault = 401
            status, headers = fault if isinstance(fault, tuple) else (fault, {})
            if isinstance(status, int):
                refusal = {"error": {"message": f"no, {self.headers.get('Authorization')}"}}
                self.answer(served.refusal or json.dumps(refusal).encode(), status, **headers)
                return
            if fault == "drip":
                self._drip()
                return
            if fault == "hang":
                time.sleep(served.hang)
            answer = fault if isinstance(fault, bytes) else served.answer(self.path, body)
            answer = fault(answer) if callable(fault) else answer
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            sent = content[: len(content) // 2] if fault == "cut" else content
            self.answer(sent, Content_Length=str(len(content)))

        def _drip(self) -> None:
            """Send a byte of the content each tenth of a second, for up to ten seconds."""
            with contextlib.suppress(OSError):
                self.answer(b"", Content_Length="100")
                for _ in range(100):
                    self.wfile.write(b" ")
                    time.sleep(0.1)

    return Handler


@contextmanager
def serving(served: Served) -> Iterator[Served]:
    """Serve until the block ends; ``served.url`` has the address."""
    with loopback.serving(_handler(served)) as url:
        served.url = f"{url}/v1"
        yield served
