"""The client of served models, against a server with all faults of real servers."""

from __future__ import annotations

import base64
import gzip
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from endpoint_server import KEY, Served, letters

from beirgrid.config.servers import Endpoint
from beirgrid.core.errors import ConfigError, DataError
from beirgrid.models import endpoints
from beirgrid.models.endpoints import BudgetError, Client, is_same_model

TEXTS = ["a cat", "the dog and the cat", "", "zebra"]
HELLO = [{"role": "user", "content": "Hello?"}]


@pytest.fixture
def client(served: Served, tmp_path: Path) -> Callable[..., Client]:
    def make(answers: bool = False, identity: str = "", **keys: Any) -> Client:
        entry = Endpoint(**{"model": "served", "url": served.url, "key": "TESTED_KEY", "timeout": 2.0, **keys})
        return Client(entry, tmp_path / "spent.tsv", tmp_path / "answers" if answers else None, identity)

    return make


def test_vectors_stand_in_the_order_of_the_texts(served, client):
    found = client().embed(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, letters(TEXTS))
    assert served.asked[0][1]["input"] == [text or " " for text in TEXTS]  # no server takes an empty text


def test_keys_of_the_entry_are_sent(served, client):
    asked = client(dimensions=5, max_characters=3, body={"user": "x", "task": "d"}, query_body={"task": "q"})
    served.faults.append(lambda answer: answer | {"data": [{**row, "embedding": [1] * 26} for row in answer["data"]]})
    assert asked.embed(TEXTS).shape == (4, 5)  # asked again: the first answer has another number of dimensions
    asked.embed(["query"], query=True)
    _, document, query = (body for _, body in served.asked)
    assert document["input"] == ["a c", "the", " ", "zeb"]
    assert (document["dimensions"], document["user"], document["task"]) == (5, "x", "d")
    assert (query["input"], query["task"]) == (["que"], "q")


def replaced(old: str, new: str) -> Callable[[Any], Any]:
    """Return the fault that replaces a text of an answer."""
    return lambda answer: json.loads(json.dumps(answer).replace(old, new))


@pytest.mark.parametrize("protocol", ["cohere", "tei"])
def test_scores_stand_in_the_order_of_the_documents(served, client, protocol):
    # Without an index, nothing tells whose a score is: servers sort them.
    served.faults += [lambda answer: [], replaced('score": 1.0', 'score": NaN'), replaced('"index"', '"place"')]
    assert list(client(protocol=protocol).rerank("the cat", TEXTS)) == [1, 2, 0, 0]
    assert len(served.asked) == 4
    path, body = served.asked[0]
    assert path == "/v1/rerank"
    assert ("model" in body) == (protocol == "cohere")


def test_a_chat_is_answered(served, client):
    served.chat = lambda messages: f"{len(messages)} messages"
    asked = client(price={"input": 1.0, "output": 1000.0})
    assert asked.chat([{"role": "system", "content": "Be brief."}, *HELLO]) == "2 messages"
    assert served.asked[0][1]["temperature"] == 0
    facts = asked.facts()
    assert facts["price"] == pytest.approx((facts["tokens"] - 2 + 2 * 1000) / 1e6)


def test_a_text_that_no_file_can_hold_is_replaced(served, client):
    served.model, served.chat = "a\ud800", lambda messages: "\udfffb"
    stated = client().chat(HELLO, lambda answer: answer["model"])
    assert (stated, client().chat(HELLO)) == ("a?", "?b")


def rows(change: Callable[[list], Any]) -> Callable[[dict], dict]:
    """Return the fault that changes the rows of an answer."""
    return lambda answer: answer | {"data": change(answer["data"])}


def vectors(embedding: Any) -> Callable[[dict], dict]:
    """Return the fault that gives each row this vector."""
    return rows(lambda data: [row | {"embedding": embedding} for row in data])


SHORTER, NOT_A_NUMBER = rows(lambda data: data[1:]), vectors([float("nan")] * 26)
IN_BYTES = base64.b64encode(np.ones(26, ">f4").tobytes()).decode()  # in an order that nothing tells
FAULTS = [500, 503, (429, {"Retry-After": "0"}), "cut", b"[" * 100_000, lambda answer: [], lambda answer: "text"]
FAULTS += [SHORTER, rows(lambda data: [*data[1:], data[-1]]), rows(lambda data: None)]
FAULTS += [rows(lambda data: [{"embedding": row["embedding"]} for row in data[::-1]])]  # they do not say whose they are
FAULTS += [rows(lambda data: [data[0] | {"embedding": [1.0]}, *data[1:]])]
FAULTS += map(
    vectors, ([0.0] * 26, [1.0] * 26, [float("nan")] * 26, [None] * 26, [], [[1.0]] * 26, [10**400] * 26, IN_BYTES)
)
# A negative price would raise the budget, one of 10**30 tokens would end it, and what was read would cost nothing.
USAGES = [{"total_tokens": of} for of in (float("inf"), -1_000_000, 10**30)]
USAGES += [{"completion_tokens": 10**30}, {"total_tokens": 10, "completion_tokens": 1000}]
FAULTS += [lambda answer, usage=usage: answer | {"usage": usage} for usage in USAGES]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_request_is_repeated(served, client, fault):
    served.faults += [fault, fault]
    np.testing.assert_array_equal(client().embed(TEXTS), letters(TEXTS))
    assert len(served.asked) == 3


@pytest.mark.parametrize(("fault", "timeout", "least", "most"), [("hang", 0.3, 0.3, 3), ("drip", 0.2, 2, 4)])
def test_an_answer_has_a_longest_time(served, client, fault, timeout, least, most):
    served.faults.append(fault)
    started = time.monotonic()
    np.testing.assert_array_equal(client(timeout=timeout).embed(TEXTS), letters(TEXTS))
    assert least <= time.monotonic() - started < most


@pytest.mark.parametrize("fault", [500, "cut", SHORTER, NOT_A_NUMBER])
def test_a_fault_that_stays_ends_the_job(served, client, fault):
    served.faults += [fault] * endpoints.ATTEMPTS
    with pytest.raises(DataError, match=r"endpoint served at http://127.*: no usable answer\. ") as error:
        client().embed(TEXTS)
    assert len(served.asked) == endpoints.ATTEMPTS
    assert KEY not in str(error.value)


@pytest.mark.parametrize("status", [301, 400, 401, 404, 422])
def test_what_no_repetition_mends_is_not_repeated(served, client, status):
    served.faults.append((status, {"Location": "http://127.0.0.1:9/"}))
    with pytest.raises(DataError, match=rf"HTTP {status}: .*no, Bearer \*\*\*"):
        client().embed(TEXTS)
    assert len(served.asked) == 1


def test_retry_after_is_heeded(served, client):
    served.faults += [(429, {"Retry-After": "1"}), (503, {"Retry-After": formatdate(time.time() + 3, usegmt=True)})]
    started = time.monotonic()
    client().embed(TEXTS)
    assert 1.5 < time.monotonic() - started < 5


def test_nobody_listens(served, client, capsys):
    asked = client(url="http://127.0.0.1:9")
    with pytest.raises(DataError, match="ConnectError"):
        list(asked.each(asked.embed, [TEXTS] * 4))
    # The first failure is said at once, and once for all threads.
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("endpoint served at http://127.0.0.1:9: ConnectError")
    assert "Connection refused" in told
    assert told.endswith("The request is repeated")


def test_answers_are_kept(served, client):
    first = client(answers=True)
    wanted = first.embed(TEXTS)
    again = client(answers=True)
    np.testing.assert_array_equal(again.embed(TEXTS), wanted)
    assert again.facts() == first.facts()
    assert len(served.asked) == 1
    client(answers=True, identity="another model").embed(TEXTS)
    assert len(served.asked) == 2


@pytest.mark.parametrize("content", [None, b'{"answer": {}}', b'{"answer": 5}', b"[1]", b"[" * 100_000])
def test_a_file_that_is_no_answer_is_asked_for_again(served, client, tmp_path, content):
    client(answers=True).embed(TEXTS)
    (kept,) = (tmp_path / "answers").iterdir()
    kept.write_bytes(gzip.compress(content) if content else kept.read_bytes()[:-9])
    np.testing.assert_array_equal(client(answers=True).embed(TEXTS), letters(TEXTS))
    assert len(served.asked) == 2


def test_a_damaged_ledger_is_named_and_nothing_is_sent(served, client, tmp_path):
    (tmp_path / "spent.tsv").write_text("a\tb\tc\td\n")
    with pytest.raises(DataError, match=r"spent\.tsv is damaged"):
        client(price={"input": 1e9}, budget=0.001).embed(TEXTS)
    assert not served.asked


def test_no_request_exceeds_the_budget(served, client):
    asked = client(price={"input": 100.0}, budget=0.05)
    texts = [[f"text {number}"] for number in range(1000)]
    with pytest.raises(BudgetError, match=r"of the budget of 0\.05 are spent.*Raise endpoint\.budget"):
        list(map(asked.embed, texts))
    assert 0.04 < asked.facts()["price"] <= 0.05
    with pytest.raises(BudgetError):  # of another job
        client(price={"input": 100.0}, budget=0.05).embed(["x" * 50])
    client(price={"input": 100.0}, budget=0.1).embed(["x" * 50])


def test_jobs_at_the_same_time_share_the_budget(served, client):
    jobs = [client(price={"request": 1.0}, budget=0.0505, concurrency=4) for _ in range(4)]

    def work(job: Client) -> None:
        with pytest.raises(BudgetError):
            list(job.each(lambda number: job.embed([str(number)]), range(60)))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, jobs))
    assert len(served.asked) == 50


def test_a_request_that_was_not_answered_stays_entered(served, client, tmp_path):
    """Such a request is left by a job that is killed while it waits, before another is killed while it writes."""
    (tmp_path / "spent.tsv").write_text("1700000000.000\t1\t10\t0.001000000\n17000")
    asked = client(price={"request": 1.0}, budget=0.002)
    asked.embed(TEXTS)
    with pytest.raises(BudgetError):
        asked.embed(TEXTS)


def test_a_failed_request_costs_nothing(served, client):
    served.faults += [500, 500]
    asked = client(price={"request": 1.0}, budget=0.001)
    asked.embed(TEXTS)
    assert asked.facts()["price"] == pytest.approx(0.001)


def test_several_requests_run_at_the_same_time(served, client):
    together = threading.Barrier(3, timeout=5)

    def embed(texts: list[str]) -> np.ndarray:
        together.wait()
        return letters(texts)

    served.embed = embed
    asked = client(concurrency=3)
    found = list(asked.each(lambda text: asked.embed([text]), ["a", "b", "c"]))
    np.testing.assert_array_equal(np.concatenate(found), letters(["a", "b", "c"]))


def test_tokens_that_nobody_counts_are_a_bound(served, client):
    served.faults.append(lambda answer: answer | {"usage": None})
    asked = client(price={"input": 1.0})
    asked.embed(["four"])
    assert asked.facts()["tokens"] == len(json.dumps({"model": "served", "input": ["four"]}))
    assert "tokens_are" in asked.facts()


def test_the_environment_has_address_and_key(served, client, monkeypatch):
    monkeypatch.setenv("TESTED_URL", f"{served.url}/")
    np.testing.assert_array_equal(client(url="$TESTED_URL").embed(TEXTS), letters(TEXTS))
    with pytest.raises(ConfigError, match=r"endpoint\.url: the environment variable NOWHERE is not set"):
        client(url="$NOWHERE")
    monkeypatch.delenv("TESTED_KEY")
    with pytest.raises(ConfigError, match=r"endpoint\.key: the environment variable TESTED_KEY is not set"):
        client()


ECHOES = {
    "as it is": KEY,
    "in JSON": "".join(f"\\u{ord(letter):04x}" for letter in KEY),
    "in JSON within JSON": "".join(f"\\\\u{ord(letter):04X}" for letter in KEY),
    "with a letter of JSON": KEY.replace("-", "\\u002d"),
    "in an address": KEY.replace("-", "%2d"),
    "in an address within an address": KEY.replace("-", "%252D"),
    "in a page": "".join(f"&#{ord(letter)};" for letter in KEY),
    "after backslashes": rf"\\\\{KEY}",
}


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
def test_nothing_has_a_key_that_the_server_echoes(served, client, tmp_path, echo, status):
    sent = f'{{"model": "m", "choices": [{{"message": {{"content": "You sent {echo}."}}}}]}}'.encode()
    served.faults.append(sent if status == 200 else status)
    served.refusal = sent
    asked = client(answers=True)
    if status == 200:
        assert [asked.chat(HELLO) for _ in range(2)] == ["You sent ***."] * 2, "the second is the kept answer"
    else:
        with pytest.raises(DataError, match=r"HTTP 400: .*You sent \*\*\*") as error:
            asked.chat(HELLO)
        assert KEY not in str(error.value)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    contents = [gzip.decompress(content) if path.suffix == ".gz" else content for path, content in files.items()]
    assert len(contents) == (2 if status == 200 else 1)
    assert not [content for content in contents if KEY.encode() in content]


def test_a_long_run_of_backslashes_is_searched_for_the_key_in_seconds(served, client):
    served.faults.append(json.dumps({"choices": [{"message": {"content": "\\" * 50_000}}]}).encode())
    started = time.process_time()
    assert client().chat(HELLO) == "\\" * 50_000
    assert time.process_time() - started < 5


NO_KEY, NO_URL = (
    rf"endpoint\.{key}: the value of the environment variable OTHER is no {key}" for key in ("key", "url")
)


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        *(({"key": "OTHER"}, f"{KEY}{end}", NO_KEY) for end in ("\nsecond", "'", '"', "\\", "\x1b", f" {KEY}", "é")),
        ({"url": "$OTHER"}, f"http://a:{KEY}@host/v1", NO_URL),
        ({"url": "$OTHER"}, f"http://host/\n{KEY}", NO_URL),
        ({"url": "$OTHER"}, f"ftp://{KEY}", NO_URL),
        ({"url": "$OTHER"}, f"http://h?k={KEY}", NO_URL),
        ({"url": "$OTHER"}, f"http://user:{KEY}%40host/v1", NO_URL),
    ],
)
def test_a_value_that_is_no_key_or_address_is_refused_by_its_name(client, monkeypatch, entry, value, message):
    monkeypatch.setenv("OTHER", value)
    with pytest.raises(ConfigError, match=message) as error:
        client(**entry)
    assert KEY not in str(error.value)


def test_a_placeholder_for_a_key_stays_a_word_of_answers(served, client, monkeypatch):
    monkeypatch.setenv("TESTED_KEY", "none")
    served.key, served.chat = "none", lambda messages: "There is none"
    assert client().chat(HELLO) == "There is none"


def test_an_answer_has_a_largest_size(served, client, monkeypatch):
    monkeypatch.setattr(endpoints, "LARGEST", 10_000)
    served.faults += [b" " * 10_001, (200, {"Content-Encoding": "gzip"})]
    served.refusal = gzip.compress(b" " * 1_000_000)
    np.testing.assert_array_equal(client().embed(TEXTS), letters(TEXTS))
    assert len(served.asked) == 3


def test_a_server_that_counts_wrongly_lowers_no_price(served, client):
    usage = {"total_tokens": 10, "completion_tokens": 1000}
    served.faults += [lambda answer: {**answer, "usage": usage}] * endpoints.ATTEMPTS
    with pytest.raises(
        DataError, match=r"served at http.*: its usage counts {'completion_tokens': 1000, 'total_tokens': 10}"
    ):
        client(price={"input": 1000.0, "output": 1.0}, body={"max_tokens": 5}).chat(HELLO)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ALL_PROXY", "socks5://user:secret@127.0.0.1:9", "Using SOCKS proxy, but the 'socksio' package is not"),
        ("HTTPS_PROXY", "ftp://user:secret@127.0.0.1:9", "Unknown scheme for proxy URL"),
        ("SSL_CERT_FILE", "/nowhere.pem", "No such file or directory"),
    ],
)
def test_an_environment_in_which_nothing_can_be_sent_is_one_message(client, monkeypatch, name, value, message):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=rf"^endpoint served: .*{message}.*\. Check .*{name}") as error:
        client()
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ([[3.0, 4.0], [1.0, 0.0]], [[3.01, 3.99], [1.0, 0.01]], True),  # rounding
        ([[3.0, 4.0], [1.0, 0.0]], [[3.0, 4.0], [0.9, 0.44]], False),  # one vector has another direction
        ([[3.0, 4.0]], [[3.6, 4.8]], False),  # another length, which counts for dot products
        ([[3.0, 4.0]], [[3.0, 4.0, 0.0]], False),
        ([5.0, 0.1, -4.0], [5.01, 0.12, -4.02], True),
        ([5.0, 0.1, -4.0], [5.0, 0.4, -4.0], False),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], True),
        (["gpt-1"], ["gpt-1"], True),
        (["gpt-1"], ["gpt-2"], False),
    ],
)
def test_another_model_is_told_by_its_answers(before, now, same):
    assert is_same_model(before, now) == same


def test_headers_for_another_server_are_not_sent(served, client, monkeypatch):
    """The OpenAI client adds what these variables say to each request, whatever its server."""
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "elsewhere")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Gateway: elsewhere")
    client().embed(TEXTS)
    served.key = None
    with pytest.raises(DataError, match="HTTP 401"):  # what the server answers to a request without a key
        client(key=None).embed(TEXTS)
    assert "elsewhere" not in "".join(map(str, served.headers))
    assert [headers.get("Authorization") for headers in served.headers] == [f"Bearer {KEY}", None]


def test_a_connection_is_checked_before_anything_is_asked():
    with pytest.raises(ConfigError, match=r"^endpoint m: a budget needs a price"):
        Endpoint(model="m").connected('{"url": "http://h", "budget": 1}')
