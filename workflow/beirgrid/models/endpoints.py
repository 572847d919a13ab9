"""Client of model servers: embeddings, reranking, chat. A probe tells whether a server still runs the same model.

Requests follow OpenAI's interface (``/embeddings``, ``/chat/completions``) and Cohere's (``/rerank``), which most
servers speak (docs/endpoints.md).
"""

from __future__ import annotations

import gzip
import hashlib
import html
import json
import math
import os
import re
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..config.servers import ADDRESS, Endpoint, Price
from ..config.values import MOST_COUNTED
from ..core import files
from ..core.errors import BeirgridError, ConfigError, DataError, printable, quoted, say

# Attempts per request. The OpenAI client waits up to 8 s before each, or up to two minutes if a server asks for that.
ATTEMPTS = 16
# Largest answer in bytes.
LARGEST = 2**28
# Longest time of an answer, in multiples of ``timeout``, which is the longest time without a byte.
TIMEOUTS = 10
# Headers of a request, beside the key.
_HEADERS = ("accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent")
# Seconds between two messages about repeated requests, whatever the number of threads.
_QUIET = 5.0
# A key: printable ASCII without blanks, quotes and backslashes.
_KEY = r"[!#-&(-\[\]-~]+"
# A shorter key is the placeholder of a server that asks for none, and may be a word of an answer.
_SHORTEST_KEY = 8
# What reading an answer raises that is no answer: other JSON than asked for, numbers too large, nested too deep.
_NO_ANSWER = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)

# Responses of a served model to the probe, in its folder.
PROBE = "endpoint.json"
# All requests to the model, beside that folder.
LEDGER = "spent.tsv"
_TEXTS = (
    "Lift is the component of the aerodynamic force that is perpendicular to the flow.",
    "The mitochondrion makes most of the chemical energy of a cell.",
    "Wer anderen eine Grube gräbt, fällt selbst hinein.",
)
# A vector, or the scores, that differ from the stored ones by more than this share of their length are another model's.
# Rounding on other hardware or in other batches is smaller.
_VECTORS = 0.1
_SCORES = 0.02

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class BudgetError(BeirgridError):
    """The next request could exceed the endpoint's budget."""


class Client:
    """Sends requests to a model server within the account's budget, and repeats failed ones.

    An answered request is never sent again: its response is cached. What a server answers is without the key before
    anything else sees it. A usage is the number of requests, their tokens and their price: float64 [3].
    """

    def __init__(self, endpoint: Endpoint, ledger: Path, answers: Path | None = None, identity: str = "") -> None:
        """Set up a client.

        The ledger is a file with the spending of all jobs, which share the budget. Responses are kept in the folder
        ``answers``, if given, and are used again only for the same ``identity``: a name alone identifies no model.

        Raises:
            ConfigError: an environment variable that the endpoint names is not set, or holds no address or key.
        """
        import httpx2  # here, as most jobs ask no server
        from openai import OpenAI

        self.endpoint = endpoint
        self.answers = answers
        self.identity = identity
        assert endpoint.url, "an endpoint is checked when it is read and when it is connected"
        url = _variable(endpoint.url[1:], "url", ADDRESS) if endpoint.url.startswith("$") else endpoint.url
        self.url = url.rstrip("/")
        self.key = _variable(endpoint.key, "key", _KEY) if endpoint.key else ""
        self.name = f"endpoint {endpoint.model} at {self.url}"
        self.ledger = ledger
        self.read = 0
        self.spent = 0.0
        # Of all answered requests, those of earlier processes too; an upper bound where the server counts no tokens.
        self.usage = np.zeros(3)
        self.is_bound = False
        self.mutex = threading.Lock()
        self.quiet_until = 0.0
        self.openai = OpenAI(
            base_url=self.url,
            api_key=self.key or "none",
            max_retries=ATTEMPTS - 1,
            timeout=httpx2.Timeout(endpoint.timeout, connect=30.0),
            http_client=_http_client(endpoint, bool(self.key), self._announce),
        )

    def embed(self, texts: Sequence[str], *, query: bool = False, dimension: int | None = None) -> np.ndarray:
        """Embed the texts of one request, documents or queries: float32 [texts, dimension].

        Without ``dimension``, that of the endpoint is expected or, if it has none, any.
        """
        sent = [self._sent(text) for text in texts]
        body: dict[str, Any] = {"model": self.endpoint.model, "input": sent}
        if self.endpoint.dimensions:
            body["dimensions"] = self.endpoint.dimensions
        parse = partial(_vectors, texts=sent, dimension=dimension or self.endpoint.dimensions)
        return np.asarray(self._ask("/embeddings", body, parse, query=query))

    def rerank(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """Score documents for a query: float32 [documents]."""
        name = "texts" if self.endpoint.protocol == "tei" else "documents"
        body: dict[str, Any] = {"query": self._sent(query), name: [self._sent(text) for text in documents]}
        if self.endpoint.protocol != "tei":
            body["model"] = self.endpoint.model
        return np.asarray(self._ask("/rerank", body, partial(_scores, documents=len(documents)), query=True))

    def chat(
        self, messages: Sequence[Mapping[str, str]], parse: Callable[[Any], str] | None = None, **sampling: float
    ) -> str:
        """Return the model's reply to messages, at temperature 0 unless ``sampling`` or the endpoint's body says so.

        Each message has ``role`` (system, user, assistant) and ``content``. ``parse`` may read another text from the
        response.
        """
        listed = [dict(message) for message in messages]
        body = {"model": self.endpoint.model, "messages": listed, "temperature": 0, **sampling}
        text = str(self._ask("/chat/completions", body, parse or _content))
        return text.encode(errors="replace").decode()  # no file can hold a lone surrogate

    def each(self, function: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> Iterator[ResultT]:
        """Apply a function of this client to each item concurrently; yield the results in order."""
        with ThreadPoolExecutor(self.endpoint.concurrency) as pool:
            # After an error, what is being answered is kept, and ``map`` sends nothing else.
            yield from pool.map(function, items)

    def facts(self) -> dict[str, Any]:
        """Return the usage for the record of an artifact."""
        requests, tokens, price = self.usage.tolist()
        facts: dict[str, Any] = {"requests": int(requests), "tokens": int(tokens)}
        if self.endpoint.price != Price():
            facts["price"] = round(price, 6)
        return facts | ({"tokens_are": "an upper bound: the server does not count them"} if self.is_bound else {})

    def _sent(self, text: str) -> str:
        """Return the text to send. Servers refuse empty texts, so a space replaces them."""
        return text[: self.endpoint.max_characters] or " "

    def _ask(self, path: str, body: dict[str, Any], parse: Callable[[Any], Any], *, query: bool = False) -> Any:
        """Return a parsed response, from the cache or from the server."""
        body |= self.endpoint.body | (self.endpoint.query_body if query else {})
        sent = json.dumps({key: value for key, value in body.items() if value is not None}, ensure_ascii=False).encode()
        digest = hashlib.sha256(b"\0".join([self.identity.encode(), path.encode(), sent])).hexdigest()[:32]
        kept = self.answers / f"{digest}.json.gz" if self.answers else None
        # A token has at least one byte.
        most = self._usage(len(sent), self.endpoint.longest_answer() if "messages" in body else 0)
        try:
            answer = json.loads(gzip.decompress(kept.read_bytes()))["answer"] if kept else None
            result = parse(answer)
            used = self._used(answer, most)
        except (OSError, EOFError, zlib.error, *_NO_ANSWER):  # there is none, or it is damaged
            answer, result, used = self._answer(path, sent, most, parse)
            if kept:
                content = {"request": json.loads(sent), "answer": answer}
                files.replace(kept, gzip.compress(json.dumps(content).encode(), 1, mtime=0))
        with self.mutex:
            self.usage += used
            self.is_bound |= used is most
        return result

    def _enter(self, usage: np.ndarray) -> None:
        """Enter the upper bounds of a request into the ledger before it is sent, or their correction afterwards.

        The correction has -1 requests if none was answered. The entry of a job that was killed stays.
        """
        requests, tokens, price = usage.tolist()
        with files.locked(self.ledger), self.ledger.open("a+b") as stream:
            with files.reading(self.ledger):
                stream.seek(self.read)
                for line in stream:  # one that a full disk has cut is no entry
                    self.read += len(line)
                    if len(fields := line.split()) == 4:
                        self.spent += float(fields[3])
            budget = self.endpoint.budget or math.inf
            if requests > 0 and self.spent + price > budget:
                raise BudgetError(
                    f"{self.ledger}: {self.spent:.4f} of the budget of {budget:g} are spent, and the next request may "
                    f"cost up to {price:.4f}. Raise endpoint.budget to continue: all responses are kept"
                )
            stream.write(f"{time.time():.3f}\t{requests:.0f}\t{tokens:.0f}\t{price:.9f}\n".encode())

    def _usage(self, read: int, written: int) -> np.ndarray:
        price = self.endpoint.price
        return np.array([1, read + written, (price.input * read + price.output * written) / 1e6 + price.request / 1e3])

    def _used(self, answer: Any, most: np.ndarray) -> np.ndarray:
        """Return a request's usage as counted by the server, ``most`` if it counts nothing."""
        counts = (answer.get("usage") if isinstance(answer, dict) else None) or {}
        written = int(counts.get("completion_tokens") or 0)
        total = int(counts.get("total_tokens") or 0)
        read = max(int(counts.get("prompt_tokens") or 0), total - written)
        if min(read, written, total) < 0 or max(read, written) > MOST_COUNTED or written > total > 0:
            raise ValueError(f"its usage counts {quoted(counts)}")
        return self._usage(read, written) if read + written else most

    def _answer(self, path: str, sent: bytes, most: np.ndarray, parse: Callable[[Any], Any]) -> tuple[Any, ...]:
        """Send a request, again while its answer has no such content; return answer, parsed content and usage.

        The OpenAI client repeats the request after a fault of the connection or of the server.
        """
        import httpx2
        import openai

        options: Any = {"headers": {"Content-Type": "application/json"}}
        for _ in range(ATTEMPTS):
            self._enter(most)
            used = np.zeros(3)
            try:
                text = self.openai.post(path, cast_to=httpx2.Response, content=sent, options=options).text
                used = most  # an unreadable response is paid for too
                answer = json.loads(self._without_key(text) if len(self.key) >= _SHORTEST_KEY else text)
                used = self._used(answer, most)
                return answer, parse(answer), used
            except openai.APIStatusError as error:
                reason = f"HTTP {error.status_code}: {error.response.text}"
                break
            except openai.APIConnectionError as error:
                reason = f"{type(error.__cause__).__name__}: {error.__cause__}"
                break
            except _NO_ANSWER as error:
                reason = f"{type(error).__name__}: {error}"
                self._announce(reason)
            finally:
                self._enter(used - most)
        raise DataError(f"{self.name}{path}: no usable answer. {self._shown(reason)}")

    def _announce(self, reason: str) -> None:
        """Log why a request is repeated, at most once in ``_QUIET`` seconds."""
        with self.mutex:
            if (now := time.monotonic()) >= self.quiet_until:
                self.quiet_until = now + _QUIET
                say(f"{self.name}: {self._shown(reason)}. The request is repeated")

    def _shown(self, text: str) -> str:
        """Format a server's text for a message."""
        return printable(" ".join(self._without_key(text).split()))[:300]

    def _without_key(self, text: str) -> str:
        """Return a text with *** for the key, also where its letters are escaped as in JSON, an address or a page."""
        if not self.key or not any(mark in text for mark in "\\%&"):  # as in numbers, which a pattern searches slowly
            return text.replace(self.key, "***") if self.key else text
        codes = ((re.escape(character), re.escape(html.escape(character)), ord(character)) for character in self.key)
        letters = (
            rf"(?:\\*(?:{character}|(?:u00|x){at:02x})|%(?:25)*{at:02x}|{name}|&#(?:0*{at}|x0*{at:x});)"
            for character, name, at in codes
        )
        # Of a run of backslashes, only the first can begin a match, or else long runs take hours.
        return re.sub(r"(?<!\\)" + "".join(letters), "***", text, flags=re.IGNORECASE)


def fetch(family: str, endpoint: Endpoint, folder: Path) -> dict[str, Any]:
    """Store a server's response to the probe as the model's checkpoint; return the model's identity for the record."""
    files.write_json(folder / PROBE, {**endpoint.identity(), "probe": probe(family, endpoint, folder)})
    return {"served": endpoint.identity(), "files": {PROBE: files.sha256(folder / PROBE)}}


def probe(family: str, endpoint: Endpoint, folder: Path) -> list[Any]:
    """Return a server's vectors or scores of fixed texts; for a chat model, the name that it states.

    The ledger is beside ``folder``, the model's checkpoint.
    """
    client = Client(endpoint, folder.parent / LEDGER)
    if family not in ("dense", "cross-encoder"):
        messages = [{"role": "user", "content": "Answer with the number 1 alone."}]
        return [client.chat(messages, lambda answer: answer.get("model") or "")]
    numbers = client.embed(_TEXTS) if family == "dense" else client.rerank(_TEXTS[0], _TEXTS)
    return list(np.round(numbers.astype(np.float64), 5).tolist())


def is_same_model(before: list[Any], now: list[Any]) -> bool:
    """Tell whether two responses to the probe come from one model."""
    first = np.asarray(before)
    second = np.asarray(now)
    if first.shape != second.shape or first.dtype.kind == "U":
        return before == now
    change, length = (np.linalg.norm(values, axis=-1) for values in (second - first, first))
    return bool((change <= (_VECTORS if first.ndim == 2 else _SCORES) * length).all())


def _http_client(endpoint: Endpoint, keyed: bool, announce: Callable[[str], None]) -> Any:
    """Return a client of httpx whose answers have a largest size and a longest time.

    It sends no header that the OpenAI client adds from the environment: these may hold secrets for another server.
    """
    import httpx2

    headers = {*_HEADERS, *(["authorization"] if keyed else [])}

    class Bounded(httpx2.Client):
        def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
            for name in {*request.headers} - headers:
                del request.headers[name]
            content = bytearray()
            latest = time.monotonic() + TIMEOUTS * endpoint.timeout
            try:
                with closing(super().send(request, **options | {"stream": True})) as answer:
                    for part in answer.iter_bytes():
                        content += part
                        if len(content) > LARGEST or time.monotonic() > latest:
                            raise httpx2.ReadError(f"its answer has over {LARGEST:,} bytes or {TIMEOUTS} timeouts")
            except httpx2.HTTPError as error:
                announce(f"{type(error).__name__}: {error}")
                raise error from None
            text = content.decode("utf-8-sig", "replace")
            if answer.status_code in (408, 409, 429) or answer.status_code >= 500:
                announce(f"HTTP {answer.status_code}: {text}")
            pause = {"retry-after": answer.headers.get("retry-after", "")}
            return httpx2.Response(answer.status_code, headers=pause, text=text, request=request)

    try:
        return Bounded(limits=httpx2.Limits(max_connections=endpoint.concurrency))
    except Exception as error:
        read = "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE, SSL_CERT_DIR"
        raise ConfigError(f"endpoint {endpoint.model}: {error}. Check what the environment has of {read}") from None


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


def _content(answer: Any) -> str:
    """Parse the first choice of a chat response."""
    content = answer["choices"][0]["message"]["content"]
    if not isinstance(content, str):
        raise ValueError("its message has no text")
    return content


# Different texts of a request from which on they cannot all have one vector. A model may not tell two of them apart.
_DIFFERENT = 4


def _vectors(answer: Any, texts: Sequence[str], dimension: int | None) -> np.ndarray:
    """Parse the vectors of a response. They are lists of numbers: nothing tells the order of bytes in base64.

    Some servers give zeros for a text that they failed to read, or one vector for all texts of a request. No document
    with words has a vector of zeros, and not all of several different texts have the same one.
    """
    vectors = _numbers(answer["data"], "embedding", len(texts), 2)
    for text, vector in zip(texts, vectors, strict=True):
        if not vector.any() and any(map(str.isalpha, text)):
            raise ValueError(f"its vector of {quoted(text)} has zeros alone")
    if len({text.casefold() for text in texts}) >= _DIFFERENT and (vectors == vectors[0]).all():
        raise ValueError(f"its vectors of {len(vectors):,} texts are all the same")
    if dimension not in (None, vectors.shape[1]):
        raise ValueError(f"its vectors have {vectors.shape[1]} dimensions, not {dimension}")
    return vectors


def _scores(answer: Any, documents: int) -> np.ndarray:
    """Parse the scores of a response."""
    rows = answer if isinstance(answer, list) else answer.get("results", answer.get("data"))
    return _numbers(rows, "relevance_score" if "relevance_score" in rows[0] else "score", documents, 1)


def _numbers(rows: Any, key: str, texts: int, dimensions: int) -> np.ndarray:
    """Return the finite numbers of rows, float32, in the order of the texts.

    The ``index`` of a row says whose it is: servers sort scores by size.
    """
    by_index = {row.get("index"): row[key] for row in rows}
    if len(rows) != texts or by_index.keys() != {*range(texts)}:
        raise ValueError(f"its {len(rows)} rows have no index, or not that of each of the {texts} texts")
    with np.errstate(over="ignore"):
        values = np.asarray([by_index[number] for number in range(texts)], np.float32)
    if values.ndim != dimensions or not values.size or not np.isfinite(values).all():
        raise ValueError("its numbers are lists, none, NaN or infinite")
    return values
