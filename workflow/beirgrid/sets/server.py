"""Judgements of people: serve the judging page on the loopback interface, or write it as one HTML file for offline use.

The page shows documents as text and interprets no markup in them. A token in the address and a check of the host name
keep out other users and web sites.
"""

from __future__ import annotations

import csv
import json
import re
import secrets
import socket
from collections import Counter
from collections.abc import Iterable
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from ..collections import lines
from ..collections.collection import Document
from ..core import files
from ..core.errors import BeirgridError, DataError, quantity, warn
from . import agreement
from .agreement import Pair
from .evaluation_set import EvaluationSet
from .store import Grading

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_PAGE = Path(__file__).with_name("judge.html")
_DATA = "/*DATA*/null"
# Beginnings of cells that spreadsheets run, and of those that have a quote before it already.
_FORMULA = re.compile(r"['\s]*[=+\-@]")
# Names of this machine. Others are refused, against DNS rebinding.
_HOSTS = ("127.0.0.1", "localhost")
# Most bytes of a request: a page sends ids, a grade and a reason.
_LARGEST = 2**16
# A page loads nothing from other hosts.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
_ROW = TypeAdapter(dict[str, str | int | None])  # the content of a judgement
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Judging:
    """The operations of the page, and of the files that replace it, on an evaluation set."""

    def __init__(self, evaluation_set: EvaluationSet) -> None:
        self.set = evaluation_set
        self.store = evaluation_set.store
        self.queries = evaluation_set.queries()
        self.texts: dict[str, Document] = {}

    def page(self, **data: Any) -> str:
        """Render the page with the set's settings and more data: a token, or a judge and all pairs for offline use."""
        about = self.set.description
        data |= {"name": about.name, "guideline": about.guideline, "grades": about.grades}
        text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
        return _PAGE.read_text(encoding="utf-8").replace(_DATA, text)

    def pair(self, query: str, document: str) -> dict[str, str]:
        """Return a pair with its texts."""
        if document not in self.texts:  # at the first call, and when the pool has grown
            self.texts = self.set.documents(document for _, document in self.store.pool())
        shown = self.texts[document]
        texts = {"title": shown.title, "text": shown.text, "query_text": self.queries.get(query, query)}
        return {"query": query, "document": document, **texts}

    def next(self, judge: str) -> dict[str, Any]:
        """Return a judge's next pair, if any, and progress."""
        pair = self.store.next(judge)
        return {"pair": self.pair(*pair) if pair else None, "progress": self.store.progress(judge)}

    def judge(self, judge: str, row: dict[str, Any]) -> dict[str, Any]:
        """Store a judgement and return the next pair and the progress; raise BeirgridError if it is not valid."""
        self.store.judge(self._judgement(judge, row))
        return self.next(judge)

    def undo(self, judge: str) -> dict[str, Any]:
        """Undo a judge's last judgement; return its pair."""
        pair = self.store.undo(judge)
        return {**self.next(judge), **({"pair": self.pair(*pair)} if pair else {})}

    def pairs_by_judge(self, judges: Iterable[str]) -> dict[str, list[Pair]]:
        """Divide the pairs that wait for some judges: each gets the shared queries, and a share of the others."""
        shared = {pair for pair, is_shared in self.store.pool().items() if is_shared}
        waiting = {check_judge(judge): self.store.waiting(judge) for judge in judges}
        takers: dict[str, list[str]] = {}
        for judge, pairs in waiting.items():
            for query in dict.fromkeys(query for query, document in pairs if (query, document) not in shared):
                takers.setdefault(query, []).append(judge)
        owners: dict[str, str] = {}
        for query, able in takers.items():
            owners[query] = min(able, key=Counter(owners.values()).__getitem__)
        return {
            judge: [pair for pair in pairs if pair in shared or owners[pair[0]] == judge]
            for judge, pairs in waiting.items()
        }

    def offline(self, judge: str, pairs: Iterable[Pair]) -> str:
        """Return one HTML file with pairs for a judge; it saves the judgements as CSV."""
        return self.page(judge=judge, pairs=[self.pair(*pair) for pair in pairs])

    def take_back(self, judge: str, path: Path) -> int:
        """Import the judgements of a CSV file with columns query, document, grade and reason; return their number.

        Raises:
            BeirgridError: a grade is not valid; names the row. Nothing is stored then.
            DataError: a column is absent, a cell has a line break, or the pool lacks a pair. Nothing is stored then.
        """
        check_judge(judge)
        judgements: dict[Pair, tuple[Grading, str]] = {}
        empty = 0
        for row, place in lines.table(path):
            if lacking := [name for name in ("query", "document", "grade") if name not in row]:
                remedy = "does the file begin with the names of its columns, and are commas between them?"
                raise DataError(f"{place} has no column {lacking[0]!r}: {remedy}")
            for name in ("query", "document", "grade", "reason"):
                lines.check_line(row.get(name, ""), name, place)
            if not row["grade"] and not row.get("reason"):
                empty += 1
                continue
            try:
                judgement = self._judgement(judge, {name: _text_of_cell(cell) for name, cell in row.items()})
            except BeirgridError as error:
                raise BeirgridError(f"{place}: {error}") from None
            pair = judgement.query, judgement.document
            first, earlier = judgements.setdefault(pair, (judgement, place))
            if first != judgement:
                raise BeirgridError(
                    f"{place}: document {pair[1]!r} of query {pair[0]!r} has another grade than in {earlier}"
                )
        if not judgements and not empty:
            raise DataError(f"{path} has no judgements below a row of the names query, document, grade, reason")
        if empty:
            warn(f"{path}: {quantity(empty, 'row has', 'rows have')} neither a grade nor a reason")
        self.store.judge(*(judgement for judgement, _ in judgements.values()))
        return len(judgements)

    def write_disagreements(self, path: Path) -> int:
        """Write the pairs that people grade differently to a CSV file, for an adjudicator; return their number."""
        people = self.set.people()
        pairs = agreement.disagreements(people)
        self.texts = self.set.documents(document for (_, document), _ in pairs)
        judges = [f"by {judge}" for judge in sorted(people)]
        names = ["query", "document", "query_text", "title", "text", *judges, "grade"]
        with files.atomic(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, names)
            writer.writeheader()
            for pair, grades in pairs:
                texts = {name: _cell_of_text(text) for name, text in self.pair(*pair).items()}
                writer.writerow(texts | {f"by {judge}": grade for judge, grade in grades.items()})
        return len(pairs)

    def _judgement(self, judge: str, row: dict[str, Any]) -> Grading:
        """Parse a judgement from a request of the page or a row of a file."""
        query = str(row.get("query"))
        document = str(row.get("document"))
        grade = row.get("grade")
        reason = " ".join(str(row.get("reason") or "").split())
        grades = [*map(str, self.set.description.grades)]
        if grade in (None, ""):
            if not reason:
                raise BeirgridError("a skipped document needs a reason")
            return Grading(judge, query, document, None, reason)
        if str(grade) not in grades:
            raise BeirgridError(f"the grade {str(grade)[:20]!r} is not one of {', '.join(grades)}")
        return Grading(judge, query, document, int(str(grade)), reason)


def check_judge(name: str) -> str:
    """Return the name of a judge; raise BeirgridError if it is not valid."""
    if not re.fullmatch(r"[^\W_][\w .@-]{0,49}", name):
        raise BeirgridError(f"{name[:60]!r} cannot be a judge's name: use up to 50 letters, digits, spaces and . @ - _")
    return name


def _cell_of_text(text: str) -> str:
    """Return a text that a spreadsheet does not run as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def _text_of_cell(text: str) -> str:
    """Return the text that ``_cell_of_text`` was given."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def _row(body: bytes) -> dict[str, Any]:
    """Read the JSON object of a request; raise BeirgridError if it is none, or has half a character."""
    try:
        return _ROW.validate_json(body, strict=True)
    except ValidationError:
        raise BeirgridError("the request is not a JSON object of texts and numbers") from None


def application(judging: Judging, token: str) -> Starlette:
    """Return the page and its operations as an application that needs the token and a host name of this machine."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect
    from starlette.responses import HTMLResponse, JSONResponse
    from starlette.routing import Route

    def check(request: Request) -> None:
        has_token = compare_digest(request.query_params.get("token", "").encode(), token.encode())
        if not has_token or request.headers.get("host", "").rpartition(":")[0] not in _HOSTS:
            raise HTTPException(403, "open the address that beirgrid printed")

    async def index(request: Request) -> Response:
        check(request)
        page = judging.page(token=token, next=f"beirgrid set accept {judging.set.folder}")
        return HTMLResponse(page, headers=_HEADERS)

    async def answer(request: Request) -> Response:
        check(request)
        operation = getattr(judging, request.url.path[1:])
        judge = check_judge(request.query_params.get("judge", ""))
        rows = [_row(await request.body())] if operation == judging.judge else []
        return JSONResponse(await run_in_threadpool(operation, judge, *rows), headers=_HEADERS)

    def refuse(request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 400)
        message = getattr(error, "detail", str(error))
        return JSONResponse({"error": message}, status, headers=_HEADERS)

    routes = [Route("/", index), Route("/next", answer)]
    routes += [Route(path, answer, methods=["POST"]) for path in ("/judge", "/undo")]
    # A page that went away while it sent does not read the answer.
    handlers = dict.fromkeys((HTTPException, BeirgridError, ClientDisconnect), refuse)
    return Starlette(routes=routes, exception_handlers=handlers, max_body_size=_LARGEST)


def serve(judging: Judging, port: int = 0) -> tuple[uvicorn.Server, socket.socket, str]:
    """Create a server on the loopback interface; return it, the socket that its ``run`` takes, and the address to open.

    Args:
        port: 0 for a free one.

    Raises:
        BeirgridError: the port cannot be had.
    """
    import uvicorn

    token = secrets.token_urlsafe(16)
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        raise BeirgridError(f"port {port}: {error}") from None
    app = application(judging, token)
    # Requests are not logged: they have names.
    config = uvicorn.Config(app, log_config=None, log_level="error", access_log=False, ws="none")
    return uvicorn.Server(config), listening, f"http://127.0.0.1:{listening.getsockname()[1]}/?token={token}"
