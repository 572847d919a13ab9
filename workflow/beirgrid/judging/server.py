"""Serve the judging page on the loopback interface, or write it as one HTML file for offline use.

The page shows documents as text and interprets no markup in them. A token in the address and a check of the host name
keep out other users and web sites.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ..collections import lines
from ..collections.collection import Document
from ..core.errors import BeirgridError, DataError
from ..core.local_server import LocalHandler
from .sets import EvaluationSet
from .store import Grading

_PAGE = Path(__file__).with_name("judge.html")
_DATA = "/*DATA*/null"
# Beginnings of cells that spreadsheets run, and of those that have a quote before it already.
_FORMULA = re.compile(r"['\s]*[=+\-@]")
# Largest request, in bytes.
_LONGEST = 100_000


def page(data: dict[str, Any]) -> str:
    """Render the page with its data: guideline, grades and, for offline use, all pairs."""
    text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    return _PAGE.read_text(encoding="utf-8").replace(_DATA, text)


class Judging:
    """The operations of the page on an evaluation set."""

    def __init__(self, evaluation_set: EvaluationSet) -> None:
        """Read the queries and the pooled documents of a set.

        Raises:
            BeirgridError: the set has no pool.
        """
        self.set = evaluation_set
        self.store = evaluation_set.store
        self.queries = evaluation_set.queries()
        pool = self.store.pool()
        if not pool:
            raise BeirgridError(f"{evaluation_set.folder} has no pool: beirgrid set pool makes it")
        self.texts: dict[str, Document] = {}
        self._read_documents(pool)

    def _read_documents(self, pool: Iterable[tuple[str, str]]) -> None:
        wanted = {document for _, document in pool} - self.texts.keys()
        self.texts |= self.set.documents(wanted)
        if unknown := wanted - self.texts.keys():
            raise DataError(f"{self.set.folder}: the corpus lacks the pooled document {min(unknown)!r}")

    def settings(self) -> dict[str, Any]:
        """Return the set's settings for the page."""
        description = self.set.description
        return {"name": description.name, "guideline": description.guideline, "grades": description.grades}

    def pair(self, query: str, document: str) -> dict[str, str]:
        """Return a pair's texts for the page."""
        if document not in self.texts:  # the pool has grown since
            self._read_documents(self.store.pool())
        found = self.texts[document]
        shown = {"query": query, "document": document, "title": found.title, "text": found.text}
        return {**shown, "query_text": self.queries.get(query, query)}

    def next(self, judge: str) -> dict[str, Any]:
        """Return a judge's next pair, if any, and progress."""
        pair = self.store.next(judge)
        progress = self.store.progress(judge)._asdict()
        return {"pair": self.pair(*pair) if pair else None, "progress": progress}

    def judge(self, judge: str, row: dict[str, Any]) -> dict[str, Any]:
        """Store a judgement; return the next pair and the progress.

        Raises:
            BeirgridError: the grade is not one of the set's, or a skipped pair has no reason.
        """
        self.store.judge(_judgement(judge, row, self.set.description.grades))
        return self.next(judge)

    def undo(self, judge: str) -> dict[str, Any]:
        """Undo a judge's last judgement; return its pair."""
        pair = self.store.undo(judge)
        found = self.next(judge)
        return {**found, "pair": self.pair(*pair)} if pair else found


def check_judge(name: str) -> str:
    """Return the name of a judge; raise BeirgridError if it is not valid."""
    if not re.fullmatch(r"[^\W_][\w .@-]{0,49}", name):
        raise BeirgridError(f"{name[:60]!r} cannot be a judge's name: use up to 50 letters, digits, spaces and . @ - _")
    return name


def _judgement(judge: str, row: dict[str, Any], grades: Iterable[int]) -> Grading:
    """Parse a judgement from a request of the page or a row of a file."""
    grade, reason = row.get("grade"), " ".join(str(row.get("reason") or "").split())[:500]
    if grade in (None, ""):
        if not reason:
            raise BeirgridError("a skipped document needs a reason")
        return Grading(judge, str(row.get("query")), str(row.get("document")), None, reason)
    if str(grade) not in {str(known) for known in grades}:
        raise BeirgridError(f"the grade {str(grade)[:20]!r} is not one of {', '.join(map(str, grades))}")
    return Grading(judge, str(row.get("query")), str(row.get("document")), int(grade), reason)


def serve(judging: Judging, port: int = 0) -> tuple[ThreadingHTTPServer, str]:
    """Create a server on the loopback interface; return it and the address to open.

    Args:
        port: the port; 0 for a free one.
    """
    token = secrets.token_urlsafe(16)

    class Handler(LocalHandler):
        def do_GET(self) -> None:
            """Serve the page or the next pair."""
            self._answer({"/": self._page, "/next": lambda: judging.next(self._judge())})

        def do_POST(self) -> None:
            """Store or undo a judgement."""
            body = self._body
            self._answer(
                {"/judge": lambda: judging.judge(self._judge(), body()), "/undo": lambda: judging.undo(self._judge())}
            )

        def _answer(self, answers: dict[str, Any]) -> None:
            if not self.is_for_this_machine or not self.has_token(token):
                return self._send(HTTPStatus.FORBIDDEN, {"error": "open the address that beirgrid printed"})
            if self.place not in answers:
                return self._send(HTTPStatus.NOT_FOUND, {"error": "there is no such page"})
            try:
                found = answers[self.place]()
            except BeirgridError as error:
                return self._send(HTTPStatus.BAD_REQUEST, {"error": str(error)})
            return self._send(HTTPStatus.OK, found)

        def _page(self) -> str:
            return page({**judging.settings(), "token": token})

        def _judge(self) -> str:
            return check_judge(self.parameter("judge"))

        def _body(self) -> dict[str, Any]:
            length = self.headers.get("Content-Length", "")
            if not re.fullmatch(r"[0-9]{1,9}", length) or int(length) > _LONGEST:
                raise BeirgridError("the request has no length, or is too long")
            try:
                row = json.loads(self.rfile.read(int(length)))
            except (ValueError, RecursionError):
                raise BeirgridError("the request is not JSON") from None
            if not isinstance(row, dict):
                raise BeirgridError("the request is not a JSON object")
            return row

        def _send(self, status: HTTPStatus, content: dict[str, Any] | str) -> None:
            if isinstance(content, str):
                return self.send(status, content.encode(), "text/html; charset=utf-8")
            return self.send(status, json.dumps(content).encode(), "application/json; charset=utf-8")

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    return server, f"http://127.0.0.1:{server.server_address[1]}/?token={token}"


def dealt(judging: Judging, judges: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Return the pairs that wait for each of some judges: all pairs of shared queries, and a share of the others."""
    shared = judging.store.shared()
    waiting = {check_judge(judge): judging.store.waiting(judge) for judge in judges}
    takers: dict[str, list[str]] = {}
    for judge, pairs in waiting.items():
        for query in dict.fromkeys(query for query, document in pairs if (query, document) not in shared):
            takers.setdefault(query, []).append(judge)
    taken = Counter[str]()
    owners = {}
    for query, able in takers.items():
        owners[query] = min(able, key=lambda judge: taken[judge])
        taken[owners[query]] += 1
    return {
        judge: [pair for pair in pairs if pair in shared or owners[pair[0]] == judge]
        for judge, pairs in waiting.items()
    }


def offline(judging: Judging, judge: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Return one HTML file with pairs for a judge; it saves the judgements as CSV."""
    shown = [judging.pair(query, document) for query, document in pairs]
    return page({**judging.settings(), "judge": judge, "pairs": shown})


def take_back(judging: Judging, judge: str, path: Path) -> int:
    """Import the judgements of a CSV file with columns query, document, grade and reason; return their number.

    Raises:
        BeirgridError: a grade is not valid; names the row. Nothing is stored then.
    """
    given: dict[tuple[str, str], tuple[Grading, str]] = {}
    for row, place in lines.table(path):
        if lacking := [name for name in ("query", "document", "grade") if name not in row]:
            raise DataError(f"{place} has no column {lacking[0]!r}: is the file saved with commas between its columns?")
        if not row.get("grade") and not row.get("reason"):
            continue  # the judge left this row empty
        try:
            row = {name: unquoted(value) for name, value in row.items()}
            judgement = _judgement(check_judge(judge), row, judging.set.description.grades)
        except BeirgridError as error:
            raise BeirgridError(f"{place}: {error}") from None
        pair = judgement.query, judgement.document
        first, earlier = given.setdefault(pair, (judgement, place))
        if first != judgement:
            raise BeirgridError(
                f"{place}: document {pair[1]!r} of query {pair[0]!r} has another grade than in {earlier}"
            )
    if strangers := given.keys() - set(judging.store.pool()):
        query, document = min(strangers)
        raise BeirgridError(f"{path}: the pool does not have document {document!r} of query {query!r}")
    for judgement, _ in given.values():
        judging.store.judge(judgement)
    return len(given)


def quoted(text: str) -> str:
    """Return a text that a spreadsheet does not run as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def unquoted(text: str) -> str:
    """Return the text that ``quoted`` was given."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
