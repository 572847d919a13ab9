"""Client of model servers: embeddings, reranking, chat.

Requests follow OpenAI's interface (``/embeddings``, ``/chat/completions``), which vLLM, text-embeddings-inference,
infinity, Ollama and llama.cpp speak too, and that of Cohere, Jina and text-embeddings-inference (``/rerank``).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import os
import random
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import requests
from urllib3.util import Retry

from ..config.endpoint_entries import Endpoint, Price
from ..core import files
from ..core.errors import BeirgridError, ConfigError, DataError, printable, quoted, say

# Attempts per request, the seconds before the second one (doubled each time), and the longest wait that a server may
# ask for.
ATTEMPTS, FIRST_PAUSE, LONGEST_PAUSE = 8, 1.0, 600.0
# Seconds between two messages about repeated requests, whatever the number of threads.
_QUIET = 5.0
# HTTP statuses after which a request is repeated.
_LATER = {408, 409, 425, 429, 500, 502, 503, 504, 529}
# Other names of the counts of tokens that a model wrote, read, and both; and more than any answer has.
_OTHER_NAMES, _MOST_TOKENS = ("output_tokens", "input_tokens", ""), 10**12
# Keys of a request that limit the generated tokens.
_LIMITS = ("max_tokens", "max_completion_tokens")
_MINUTE = 60.0
# What reading an answer raises that is no answer: other JSON than asked for, numbers too large, nested too deep.
_NO_ANSWER = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class BudgetError(BeirgridError):
    """The next request could exceed the endpoint's budget."""


class Usage(NamedTuple):
    """Usage by requests.

    Attributes:
        requests: answered requests.
        tokens: tokens read and written, as counted by the server.
        price: price of the tokens.
        bound: whether tokens and price are upper bounds, because the server does not count tokens.
    """

    requests: int = 0
    tokens: int = 0
    price: float = 0.0
    bound: bool = False

    def __add__(self, other: Any) -> Usage:
        """Add two usages."""
        total = self.requests + other.requests, self.tokens + other.tokens, self.price + other.price
        return Usage(*total, self.bound or other.bound)


class Ledger:
    """A file with an account's spending, through which concurrent jobs share its limits and budget.

    A line has the time, tokens and price of a request. A request is entered with its upper bounds before it is sent,
    and corrected after the response. A killed job's entry keeps its upper bounds.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read = 0
        self.spent = 0.0
        self.recent: list[tuple[float, int, int]] = []  # time, requests, tokens
        self.mutex = threading.Lock()

    def enter(self, endpoint: Endpoint, most: Usage) -> float:
        """Enter a request's upper bounds, waiting while a limit per minute is reached; return the entry's time.

        Raises:
            BudgetError: the request could exceed the budget.
        """
        while True:
            with self.mutex, files.locked(self.path):
                self._catch_up()
                if endpoint.budget is not None and self.spent + most.price > endpoint.budget:
                    raise BudgetError(
                        f"{self.path}: {self.spent:.4f} of the budget of {endpoint.budget:g} are spent, and the next "
                        f"request may cost up to {most.price:.4f}. Raise endpoint.budget to continue: all responses "
                        "so far are kept"
                    )
                now = time.time()
                pause = self._pause(endpoint, most, now)
                if not pause:
                    self._write(now, 1, most.tokens, most.price)
                    return now
            time.sleep(pause)

    def correct(self, entered: float, most: Usage, used: Usage) -> None:
        """Replace a request's upper bounds by its actual usage."""
        with self.mutex, files.locked(self.path):
            self._write(entered, 0, used.tokens - most.tokens, used.price - most.price)

    def _catch_up(self) -> None:
        """Read new lines of the file. An incomplete line of a killed job is ignored."""
        with self.path.open("rb") as stream:
            stream.seek(self.read)
            for line in stream:
                self.read += len(line)
                fields = line.split()
                if len(fields) == 4 and line.endswith(b"\n"):
                    with files.reading(self.path):
                        self.spent += float(fields[3])
                        self.recent.append((float(fields[0]), int(fields[1]), int(fields[2])))
        if not -1e-6 < self.spent < math.inf:  # corrections are negative, sums are not
            raise DataError(f"{self.path} is damaged: its sum is {self.spent:g}. Delete it to begin anew")
        now = time.time()  # an entry of a clock that was wrong is of no minute
        self.recent = [entry for entry in self.recent if now - _MINUTE < entry[0] < now + _MINUTE]

    def _pause(self, endpoint: Endpoint, most: Usage, now: float) -> float:
        """Return the seconds until a request may be sent, 0 for now."""
        limits = ((endpoint.requests_per_minute, 1, 1), (endpoint.tokens_per_minute, 2, most.tokens))
        for limit, column, wanted in limits:
            taken = sum(entry[column] for entry in self.recent)
            if limit is not None and taken > 0 and taken + wanted > limit:
                return min(max(min(entry[0] for entry in self.recent) + _MINUTE - now, 0.05), 1.0)
        return 0.0

    def _write(self, when: float, count: int, tokens: int, price: float) -> None:
        with self.path.open("ab+") as stream:  # writes at the end, wherever it reads
            if stream.tell():
                stream.seek(-1, os.SEEK_END)
                stream.write(b"" if stream.read() == b"\n" else b"\n")
            stream.write(f"{when:.3f}\t{count}\t{tokens}\t{price:.9f}\n".encode())


class Client:
    """Sends requests to a model server, and repeats failed ones.

    Requests respect the account's limits. Responses are cached in the folder ``answers``, if given, so an answered
    request is never sent again.

    Attributes:
        usage: usage of all answered requests, including those of earlier processes.
    """

    def __init__(self, endpoint: Endpoint, ledger: Path, answers: Path | None = None, identity: str = "") -> None:
        """Set up a client.

        Args:
            endpoint: the model, with its connection settings.
            ledger: file with the account's spending.
            answers: cache folder for responses.
            identity: the model's identity beyond its name. Cached responses of another identity are not used.

        Raises:
            ConfigError: an environment variable that the endpoint names is not set, or a budget cannot be kept.
        """
        self.endpoint, self.answers, self.identity = endpoint, answers, identity
        self.url = _from_environment(endpoint.url).rstrip("/")
        self.key = _variable(endpoint.key, "key") if endpoint.key else ""
        self.ledger = Ledger(ledger)
        self.usage = Usage()
        self.mutex = threading.Lock()
        self.stopped = threading.Event()
        self.quiet_until = 0.0
        self.session = requests.Session()
        self.session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=endpoint.concurrency))
        self.session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=endpoint.concurrency))
        self.session.auth = self._authorize

    def embed(self, texts: Sequence[str], *, query: bool = False, dimension: int | None = None) -> np.ndarray:
        """Embed the texts of one request: float32 [texts, dimension].

        Args:
            query: whether the texts are queries.
            dimension: expected dimension; None accepts any.
        """
        body: dict[str, Any] = {"model": self.endpoint.model, "input": [self._sent(text) for text in texts]}
        if self.endpoint.dimensions:
            body["dimensions"] = self.endpoint.dimensions
        parse = partial(_vectors, texts=len(texts), dimension=dimension)
        vectors: np.ndarray = self._ask("/embeddings", body, parse, query=query)
        return vectors

    def rerank(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """Score documents for a query: float32 [documents]."""
        name = "texts" if self.endpoint.protocol == "tei" else "documents"
        body: dict[str, Any] = {"query": self._sent(query), name: [self._sent(text) for text in documents]}
        if self.endpoint.protocol != "tei":
            body["model"] = self.endpoint.model
        scores: np.ndarray = self._ask("/rerank", body, partial(_scores, documents=len(documents)), query=True)
        return scores

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the model's reply to messages, at temperature 0 unless the endpoint's body sets another.

        Args:
            messages: each with ``role`` (system, user, assistant) and ``content``.

        Raises:
            ConfigError: the endpoint has a budget but no limit of generated tokens.
        """
        return str(self._chat(messages, _content))

    def stated_model(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the model name in the response to messages; empty if it has none."""
        return str(self._chat(messages, lambda answer: answer.get("model") or ""))

    def _chat(self, messages: Sequence[Mapping[str, str]], parse: Callable[[Any], str]) -> Any:
        body = {"model": self.endpoint.model, "messages": [dict(message) for message in messages], "temperature": 0}
        return self._ask("/chat/completions", body, parse)

    def each(self, function: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> Iterator[ResultT]:
        """Apply a function of this client to each item concurrently; yield the results in order."""
        pool = ThreadPoolExecutor(self.endpoint.concurrency)
        self.stopped.clear()
        try:
            yield from pool.map(function, items)
        finally:  # after an error, waiting threads stop
            self.stopped.set()
            pool.shutdown(cancel_futures=True)
            self.stopped.clear()

    def facts(self) -> dict[str, Any]:
        """Return the usage for the record of an artifact."""
        facts: dict[str, Any] = {"requests": self.usage.requests, "tokens": self.usage.tokens}
        if self.endpoint.price != Price():
            facts["price"] = round(self.usage.price, 6)
        return facts | ({"tokens_are": "an upper bound: the server does not count them"} if self.usage.bound else {})

    def _sent(self, text: str) -> str:
        """Return the text to send. Servers refuse empty texts, so a space replaces them."""
        return text[: self.endpoint.max_characters] or " "

    def _ask(self, path: str, body: dict[str, Any], parse: Callable[[Any], Any], *, query: bool = False) -> Any:
        """Return a parsed response, from the cache or from the server."""
        body |= self.endpoint.body | (self.endpoint.query_body if query else {})
        sent = json.dumps({key: value for key, value in body.items() if value is not None}, ensure_ascii=False).encode()
        kept = self._place(path, sent)
        most = self._most(body, sent)
        try:
            if kept is None or not kept.is_file():
                raise FileNotFoundError(kept)
            answer = json.loads(gzip.decompress(kept.read_bytes()))["answer"]
            found, used = parse(answer), self._used(answer, most)
        except (OSError, EOFError, zlib.error, *_NO_ANSWER):  # there is none, or it is damaged
            answer, found = self._answer(path, sent, most, parse)
            used = self._used(answer, most)
            if kept is not None:
                if not kept.is_file():  # a pipe, say, which would wait for a reader
                    kept.unlink(missing_ok=True)
                with files.atomic(kept) as temporary:
                    content = {"request": json.loads(sent), "answer": answer}
                    temporary.write_bytes(gzip.compress(json.dumps(content).encode(), 1, mtime=0))
        with self.mutex:
            self.usage += used
        return found

    def _place(self, path: str, sent: bytes) -> Path | None:
        """Return the cache file of a request."""
        if self.answers is None:
            return None
        digest = hashlib.sha256(b"\0".join([self.identity.encode(), path.encode(), sent])).hexdigest()[:32]
        return self.answers / f"{digest}.json.gz"

    def _most(self, body: Mapping[str, Any], sent: bytes) -> Usage:
        """Return a request's upper bounds: a token has at least one byte."""
        price, written = self.endpoint.price, 0
        if "messages" in body:
            written = next((body[name] for name in _LIMITS if body.get(name)), 0)
            if type(written) is not int or written < 0:
                raise ConfigError(f"endpoint {self.endpoint.model}: body: {quoted(written)} is no number of tokens")
            if not written and self.endpoint.budget and price.output:
                raise ConfigError(
                    f"endpoint {self.endpoint.model}: set body: {{max_tokens: …}} (or max_completion_tokens), so that "
                    "the budget is not exceeded"
                )
        cost = (price.input * len(sent) + price.output * written) / 1e6 + price.request / 1e3
        return Usage(1, len(sent) + written, cost, True)

    def _used(self, answer: Any, most: Usage) -> Usage:
        """Return a request's usage as counted by the server."""
        told = answer.get("usage") if isinstance(answer, dict) else None
        if not isinstance(told, dict):
            units = (answer.get("meta") or {}) if isinstance(answer, dict) else {}
            told = units.get("tokens") or units.get("billed_units") or {}
        counts = [told.get(name) or 0 for name in ("completion_tokens", "prompt_tokens", "total_tokens")]
        counts = [int(count or told.get(other) or 0) for count, other in zip(counts, _OTHER_NAMES, strict=True)]
        if min(counts) < 0 or max(counts) > _MOST_TOKENS:
            raise ValueError(f"it counts {quoted(told)}")
        written, read, total = counts
        total = total or read + written
        if not total:
            return most
        price = self.endpoint.price
        cost = (price.input * (total - written) + price.output * written) / 1e6 + price.request / 1e3
        return Usage(1, total, cost)

    def _answer(self, path: str, sent: bytes, most: Usage, parse: Callable[[Any], Any]) -> tuple[Any, Any]:
        """Send a request, repeating it while it fails; return the response and its parsed content."""
        reason, pause = "", 0.0
        for attempt in range(ATTEMPTS):
            if attempt:
                self._announce(f"{self.url}{path}: {reason}", attempt + 1, pause)
            if self.stopped.wait(pause):
                break
            pause = min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE) * random.uniform(0.5, 1.0)  # noqa: S311
            entered = self.ledger.enter(self.endpoint, most)
            used = Usage()
            try:
                response = self.session.post(
                    self.url + path, data=sent, timeout=(30, self.endpoint.timeout), allow_redirects=False
                )
                if response.status_code == 200:
                    used = most  # an unreadable response is paid for too
                    answer = response.json()
                    used = self._used(answer, most)
                    return answer, parse(answer)
                reason = f"HTTP {response.status_code}: {self._shown(response.text)}"
                if response.status_code not in _LATER:
                    break
                if (after := _retry_after(response.headers.get("Retry-After"))) is not None:
                    pause = min(after, LONGEST_PAUSE)
            except requests.exceptions.InvalidURL as error:
                raise ConfigError(f"endpoint {self.endpoint.model}: {self._shown(str(error))}") from None
            except (requests.RequestException, *_NO_ANSWER) as error:
                reason = f"{type(error).__name__}: {self._shown(str(error))}"
            finally:
                self.ledger.correct(entered, most, used)
        raise DataError(
            f"endpoint {self.endpoint.model} at {self.url}{path}: no usable answer ({attempt + 1} attempts). {reason}"
        )

    def _announce(self, failed: str, attempt: int, pause: float) -> None:
        """Log that a request failed and when it is repeated, at most once in ``_QUIET`` seconds."""
        with self.mutex:
            if (now := time.monotonic()) < self.quiet_until:
                return
            self.quiet_until = now + _QUIET
            say(f"endpoint {self.endpoint.model} at {failed}. Attempt {attempt} of {ATTEMPTS} in {pause:.0f} s")

    def _authorize(self, request: Any) -> Any:
        """Add the key to a request."""
        request.headers["Content-Type"] = "application/json"
        if self.key:
            request.headers["Authorization"] = f"Bearer {self.key}"
        return request

    def _shown(self, text: str) -> str:
        """Format a server's text for messages, without the API key."""
        text = text.replace(self.key, "***") if self.key else text
        return printable(" ".join(text.split()))[:300] or "without a message"


@contextmanager
def kept_answers(output: Path) -> Iterator[Path]:
    """Yield the cache folder of an artifact's responses. It is deleted when the artifact is complete, and a failed job
    leaves it to the next attempt.
    """
    folder = output.with_name(f"{output.name}.answers")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _from_environment(url: str | None) -> str:
    if url is None:
        raise ConfigError("endpoint.url: the address of the server is missing")
    return _variable(url[1:], "url") if url.startswith("$") else url


def _variable(name: str, key: str) -> str:
    """Return the value of an environment variable named by an endpoint."""
    if not (value := os.environ.get(name, "").strip()):
        raise ConfigError(f"endpoint.{key}: the environment variable {name} is not set")
    return value


def _retry_after(header: str | None) -> float | None:
    """Parse a Retry-After header (seconds or a date) to seconds."""
    try:
        return Retry().parse_retry_after(header) if header else None
    except Exception:  # urllib3's InvalidHeader
        return None


def _vectors(answer: Any, texts: int, dimension: int | None) -> np.ndarray:
    """Parse the vectors of a response, in the order of the texts."""
    rows = [row["embedding"] for row in _in_order(answer["data"], texts)]
    decoded = [np.frombuffer(base64.b64decode(row), "<f4") if isinstance(row, str) else row for row in rows]
    if (found := {len(row) for row in decoded}) != {dimension or len(decoded[0])}:
        raise ValueError(f"its vectors have {sorted(found)} dimensions, not {dimension or 'one number of them'}")
    return _finite(decoded, 2)


def _scores(answer: Any, documents: int) -> np.ndarray:
    """Parse the scores of a response, in the order of the documents."""
    rows = answer if isinstance(answer, list) else answer.get("results", answer.get("data"))
    found = _in_order(rows, documents)
    return _finite([row["relevance_score" if "relevance_score" in row else "score"] for row in found], 1)


def _content(answer: Any) -> str:
    """Parse the first choice of a chat response."""
    content = answer["choices"][0]["message"]["content"]
    if not isinstance(content, str):
        raise ValueError("its message has no text")
    return content.encode(errors="replace").decode()  # no file can hold a lone surrogate


def _in_order(rows: Any, expected: int) -> list[Any]:
    """Sort the rows of a response by ``index``, which must be unique."""
    numbers = [row.get("index", place) for place, row in enumerate(rows)]
    if sorted(numbers) != list(range(expected)):
        raise ValueError(f"it has {len(numbers)} rows for {expected} texts, or an index twice: {quoted(numbers)}")
    return [row for _, row in sorted(zip(numbers, rows, strict=True), key=lambda pair: pair[0])]


def _finite(numbers: Any, dimensions: int) -> np.ndarray:
    """Return numbers in lists so deep as an array, float32."""
    with np.errstate(over="ignore"):
        values = np.asarray(numbers, np.float32)
    if values.ndim != dimensions:
        raise ValueError("it has lists in place of numbers")
    if not np.isfinite(values).all():
        raise ValueError("it has values that are NaN or infinite")
    return values
