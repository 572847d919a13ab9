"""Client of model servers: embeddings, reranking, chat.

Requests follow OpenAI's interface (``/embeddings``, ``/chat/completions``), which vLLM, text-embeddings-inference,
infinity, Ollama and llama.cpp speak too, and that of Cohere, Jina and text-embeddings-inference (``/rerank``).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import os
import random
import re
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..config.endpoint_entries import ADDRESS, Endpoint, Price
from ..core import files
from ..core.errors import BeirgridError, ConfigError, DataError, printable, quoted, say

# Attempts per request, the seconds before the second one (doubled each time), and the longest wait that a server may
# ask for.
ATTEMPTS, FIRST_PAUSE, LONGEST_PAUSE = 8, 1.0, 600.0
# Largest answer in bytes, and its longest time in multiples of ``timeout``, which is the longest time without a byte.
LARGEST, TIMEOUTS = 2**28, 10
# Seconds between two messages about repeated requests, whatever the number of threads.
_QUIET = 5.0
# HTTP statuses after which a request is repeated.
_LATER = {408, 409, 425, 429, 500, 502, 503, 504, 529}
# Names of the counts of tokens that a model read, wrote, and both; and more than any answer has.
_COUNTS = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"), ("total_tokens", ""))
_MOST_TOKENS = 10**12
# Keys of a request that limit the generated tokens.
_LIMITS = ("max_tokens", "max_completion_tokens")
_MINUTE = 60.0
# A key: printable ASCII without blanks, quotes and backslashes. One of fewer characters than the second value is the
# placeholder of a server that asks for none, and may be a word of an answer.
_KEY, _SHORTEST_KEY = r"[!#-&(-\[\]-~]+", 8
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
    """Spending on an endpoint, in a file that all its jobs append to, so that they share its limits and its budget.

    A line has the time, number, tokens and price of a request. A request is entered with its upper bounds before it is
    sent, and corrected by a second line of the same time. The entry of a job that was killed stays.
    """

    def __init__(self, path: Path, endpoint: Endpoint) -> None:
        self.path, self.endpoint = path, endpoint
        self.read, self.spent = 0, 0.0
        self.recent: list[tuple[float, float, float]] = []  # time, requests, tokens

    def enter(self, most: Usage) -> float:
        """Enter a request's upper bounds as soon as the limits per minute allow it; return the entry's time.

        Raises:
            BudgetError: the request could exceed the budget.
        """
        while True:
            with files.locked(self.path):
                self._catch_up()
                budget = self.endpoint.budget
                if budget is not None and self.spent + most.price > budget:
                    raise BudgetError(
                        f"{self.path}: {self.spent:.4f} of the budget of {budget:g} are spent, and the next request "
                        f"may cost up to {most.price:.4f}. Raise endpoint.budget to continue: all responses are kept"
                    )
                if self._is_allowed(most):
                    now = time.time()
                    self._append(now, most)
                    return now
            time.sleep(0.1)

    def correct(self, entered: float, most: Usage, used: Usage) -> None:
        """Replace a request's upper bounds by its actual usage."""
        with files.locked(self.path):
            self._append(entered, Usage(0, used.tokens - most.tokens, used.price - most.price))

    def _catch_up(self) -> None:
        """Read the new lines. One that a full disk has cut is no entry."""
        with self.path.open("rb") as stream, files.reading(self.path):
            stream.seek(self.read)
            for line in stream:
                self.read += len(line)
                if len(fields := line.split()) == 4:
                    at, requests, tokens, price = map(float, fields)
                    self.spent += price
                    self.recent.append((at, requests, tokens))
        now = time.time()  # an entry of a clock that was wrong is of no minute
        self.recent = [entry for entry in self.recent if now - _MINUTE < entry[0] < now + _MINUTE]

    def _is_allowed(self, most: Usage) -> bool:
        """Tell whether the limits per minute allow a request now. The first of a minute may exceed them."""
        limits = (self.endpoint.requests_per_minute, self.endpoint.tokens_per_minute)
        for limit, wanted, column in zip(limits, (1, most.tokens), (1, 2), strict=True):
            taken = sum(entry[column] for entry in self.recent)
            if limit is not None and taken > 0 and taken + wanted > limit:
                return False
        return True

    def _append(self, at: float, usage: Usage) -> None:
        with self.path.open("a") as stream:
            stream.write(f"{at:.3f}\t{usage.requests}\t{usage.tokens}\t{usage.price:.9f}\n")


class Client:
    """Sends requests to a model server, and repeats failed ones.

    Requests respect the account's limits. Responses are cached in the folder ``answers``, if given, so an answered
    request is never sent again. What a server answers is without the key before anything else sees it.

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
            ConfigError: an environment variable that the endpoint names is not set, or holds no address or key.
        """
        import httpx2  # here, as most jobs ask no server

        self.endpoint, self.answers, self.identity = endpoint, answers, identity
        if endpoint.url is None:
            raise ConfigError("endpoint.url: the address of the server is missing")
        url = _variable(endpoint.url[1:], "url", ADDRESS) if endpoint.url.startswith("$") else endpoint.url
        self.url, self.key = url.rstrip("/"), _variable(endpoint.key, "key", _KEY) if endpoint.key else ""
        self.ledger = Ledger(ledger, endpoint)
        self.usage = Usage()
        self.mutex = threading.Lock()
        self.stopped = threading.Event()
        self.quiet_until = 0.0
        try:
            self.http = httpx2.Client(
                base_url=self.url,
                headers={"Content-Type": "application/json"},
                timeout=httpx2.Timeout(endpoint.timeout, connect=30.0),
                limits=httpx2.Limits(max_connections=endpoint.concurrency),
            )
        except httpx2.InvalidURL as error:
            raise ConfigError(f"endpoint.url: {error}") from None
        if self.key:
            self.http.headers["Authorization"] = f"Bearer {self.key}"
        self.failures = httpx2.HTTPError

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
        return self._chat(messages, _content)

    def stated_model(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the model name in the response to messages; empty if it has none."""
        return self._chat(messages, lambda answer: answer.get("model") or "")

    def _chat(self, messages: Sequence[Mapping[str, str]], parse: Callable[[Any], str]) -> str:
        body = {"model": self.endpoint.model, "messages": [dict(message) for message in messages], "temperature": 0}
        text = str(self._ask("/chat/completions", body, parse))
        return text.encode(errors="replace").decode()  # no file can hold a lone surrogate

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
        digest = hashlib.sha256(b"\0".join([self.identity.encode(), path.encode(), sent])).hexdigest()[:32]
        kept = self.answers / f"{digest}.json.gz" if self.answers else None
        most = self._most(body, sent)
        try:
            answer = json.loads(gzip.decompress(kept.read_bytes()))["answer"] if kept else None
            result, used = parse(answer), self._used(answer, most)
        except (OSError, EOFError, zlib.error, *_NO_ANSWER):  # there is none, or it is damaged
            answer, result, used = self._answer(path, sent, most, parse)
            if kept:
                with files.atomic(kept) as temporary:
                    content = {"request": json.loads(sent), "answer": answer}
                    temporary.write_bytes(gzip.compress(json.dumps(content).encode(), 1, mtime=0))
        with self.mutex:
            self.usage += used
        return result

    def _most(self, body: Mapping[str, Any], sent: bytes) -> Usage:
        """Return a request's upper bounds: a token has at least one byte."""
        written = 0
        if "messages" in body:
            written = next((body[name] for name in _LIMITS if body.get(name)), 0)
            if type(written) is not int or written < 0:
                raise ConfigError(f"endpoint {self.endpoint.model}: body: {quoted(written)} is no number of tokens")
            if not written and self.endpoint.budget and self.endpoint.price.output:
                raise ConfigError(
                    f"endpoint {self.endpoint.model}: set body: {{max_tokens: …}} (or max_completion_tokens), so that "
                    "the budget is not exceeded"
                )
        return Usage(1, len(sent) + written, self._price(len(sent), written), True)

    def _used(self, answer: Any, most: Usage) -> Usage:
        """Return a request's usage as counted by the server."""
        facts = answer if isinstance(answer, dict) else {}
        meta = facts.get("meta") or {}
        counts = facts.get("usage") or meta.get("tokens") or meta.get("billed_units") or {}
        read, written, total = (int(counts.get(name) or counts.get(other) or 0) for name, other in _COUNTS)
        if not all(0 <= count <= _MOST_TOKENS for count in (read, written, total)):
            raise ValueError(f"it counts {quoted(counts)}")
        read = max(read, total - written)
        return Usage(1, read + written, self._price(read, written)) if read + written else most

    def _price(self, read: int, written: int) -> float:
        price = self.endpoint.price
        return (price.input * read + price.output * written) / 1e6 + price.request / 1e3

    def _answer(self, path: str, sent: bytes, most: Usage, parse: Callable[[Any], Any]) -> tuple[Any, Any, Usage]:
        """Send a request, repeating it while it fails; return the response, its parsed content and its usage."""
        reason, pause = "", 0.0
        for attempt in range(ATTEMPTS):
            if attempt:
                self._announce(f"{self.url}{path}: {reason}", attempt + 1, pause)
            if self.stopped.wait(pause):
                break
            pause = min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE) * random.uniform(0.5, 1.0)  # noqa: S311
            entered, used = self.ledger.enter(most), Usage()
            try:
                status, retry_after, text = self._post(path, sent)
                if status == 200:
                    used = most  # an unreadable response is paid for too
                    answer = json.loads(text)
                    used = self._used(answer, most)
                    return answer, parse(answer), used
                reason = f"HTTP {status}: {_shown(text)}"
                if status not in _LATER:
                    break
                if (after := _seconds(retry_after)) is not None:
                    pause = min(after, LONGEST_PAUSE)
            except (self.failures, *_NO_ANSWER) as error:
                reason = f"{type(error).__name__}: {_shown(self._without_key(str(error)))}"
            finally:
                self.ledger.correct(entered, most, used)
        raise DataError(
            f"endpoint {self.endpoint.model} at {self.url}{path}: no usable answer ({attempt + 1} attempts). {reason}"
        )

    def _post(self, path: str, sent: bytes) -> tuple[int, str, str]:
        """Return status, Retry-After and text of an answer, without the key."""
        content, end = bytearray(), time.monotonic() + TIMEOUTS * self.endpoint.timeout
        with self.http.stream("POST", path, content=sent) as response:
            for part in response.iter_bytes():
                content += part
                if len(content) > LARGEST or time.monotonic() > end:
                    raise ValueError(f"its answer has over {LARGEST:,} bytes, or takes over {TIMEOUTS} timeouts")
        text, status = content.decode("utf-8-sig", "replace"), response.status_code
        if status != 200 or len(self.key) >= _SHORTEST_KEY:
            text = self._without_key(text)
        return status, response.headers.get("Retry-After", ""), text

    def _announce(self, failed: str, attempt: int, pause: float) -> None:
        """Log that a request failed and when it is repeated, at most once in ``_QUIET`` seconds."""
        with self.mutex:
            if (now := time.monotonic()) < self.quiet_until:
                return
            self.quiet_until = now + _QUIET
            say(f"endpoint {self.endpoint.model} at {failed}. Attempt {attempt} of {ATTEMPTS} in {pause:.0f} s")

    def _without_key(self, text: str) -> str:
        """Return a text with *** for the key, also where its letters are escaped as in JSON, an address or a page."""
        if not self.key or not any(mark in text for mark in "\\%&"):  # as in numbers, which a pattern searches slowly
            return text.replace(self.key, "***") if self.key else text
        # Of a run of backslashes, only the first can begin a match, or else long runs take hours.
        return re.sub(r"(?<!\\)" + "".join(map(_escaped, self.key)), "***", text, flags=re.IGNORECASE)


def _escaped(letter: str) -> str:
    """Return a pattern of the ways to write a letter of a key."""
    code, names = ord(letter), re.escape(html.escape(letter))
    return rf"(?:\\*(?:{re.escape(letter)}|(?:u00|x){code:02x})|%(?:25)*{code:02x}|{names}|&#(?:0*{code}|x0*{code:x});)"


def _shown(text: str) -> str:
    """Format a server's text for a message."""
    return printable(" ".join(text.split()))[:300] or "without a message"


@contextmanager
def kept_answers(output: Path) -> Iterator[Path]:
    """Yield the cache folder of an artifact's responses. It is deleted when the artifact is complete, and a failed job
    leaves it to the next attempt.
    """
    folder = output.with_name(f"{output.name}.answers")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _variable(name: str, key: str, form: str) -> str:
    """Return the value of an environment variable named by an endpoint. No message repeats it."""
    if not (value := os.environ.get(name, "").strip()):
        raise ConfigError(f"endpoint.{key}: the environment variable {name} is not set")
    if not re.fullmatch(form, value):
        raise ConfigError(
            f"endpoint.{key}: the value of the environment variable {name} is no {key} (docs/endpoints.md)"
        )
    return value


def _seconds(retry_after: str) -> float | None:
    """Parse a Retry-After header (seconds or a date) to seconds from now."""
    if re.fullmatch(r"\d{1,9}", retry_after):
        return float(retry_after)
    try:
        return max(parsedate_to_datetime(retry_after).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):  # there is none
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
    if not all("index" in row for row in rows):  # servers sort them by score
        raise ValueError("its rows have no index, which says whose score it is")
    found = _in_order(rows, documents)
    return _finite([row["relevance_score" if "relevance_score" in row else "score"] for row in found], 1)


def _content(answer: Any) -> str:
    """Parse the first choice of a chat response."""
    content = answer["choices"][0]["message"]["content"]
    if not isinstance(content, str):
        raise ValueError("its message has no text")
    return content


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
