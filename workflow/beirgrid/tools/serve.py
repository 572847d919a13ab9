"""``beirgrid serve``: serve the reports of a folder and a search over its indexes to a browser. It writes nothing."""

from __future__ import annotations

import argparse
import mimetypes
import os
import secrets
import threading
from contextlib import ExitStack, suppress
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ..core import cli, paths
from ..core.checkout import CHECKOUT
from ..core.errors import BeirgridError
from ..core.local_server import LOOPBACK, LocalHandler
from ..results import results_folder
from . import events, status
from .search import excerpt, hits, refuse_unknown

if TYPE_CHECKING:
    from .open_systems import Ranker

# Folders of a grid whose files are served.
_SERVED = ("report", "tables", "figures")
# Seconds between a browser's refreshes during a run.
_REFRESH = 30
# Documents that a search shows.
_DEPTH = 20
# The report contains its scripts and styles.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src 'self' data: blob:"
_COOKIE = "beirgrid"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``beirgrid serve``."""
    parser.add_argument("--directory", default=Path(), type=Path, help=results_folder.PLACE)
    parser.add_argument("--port", type=cli.whole, default=8020, help="port; 0 takes a free one (default: 8020)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; others than this machine's need a token"
    )
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="device of the models that encode queries"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Serve until the command is interrupted."""
    folder, _ = results_folder.working_folder(args.directory)
    if not (folder / "results").is_dir():
        raise BeirgridError(f"no grid was run in {folder} (--directory names another folder)")
    os.chdir(folder)
    with ExitStack() as stack:
        token = "" if args.host in LOOPBACK else secrets.token_urlsafe(16)
        server = serve(Served(args.device, stack), args.host, args.port, token)
        print(f"Open {address(server, token)} (Ctrl+C ends)", flush=True)
        with server, suppress(KeyboardInterrupt):
            server.serve_forever()


class Served:
    """The served content of the working directory: pages, files, and systems that were opened for a search."""

    def __init__(self, device: str, stack: ExitStack) -> None:
        import jinja2

        loader = jinja2.FileSystemLoader(CHECKOUT / "workflow" / "report")
        environment = jinja2.Environment(
            loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        self.template = environment.get_template("served.html.j2")
        self.device, self.stack = device, stack
        self.opened: dict[tuple[str, str], tuple[list[tuple[str, int]], Ranker]] = {}
        self.searching = threading.Lock()  # models and Lucene take one query at a time

    def page(self, title: str, **facts: Any) -> str:
        """Return a page with the form of the search and what else ``facts`` has."""
        runs = Path().glob(paths.RUN.format(system="*", dataset="*"))
        found = {(path.parent.name, path.name.removesuffix(".run.gz")) for path in runs}
        known: dict[str, Any] = {
            "systems": sorted({system for system, _ in found}),
            "datasets": sorted({dataset for _, dataset in found}),
            **dict.fromkeys(("query", "system", "dataset", "error", "status", "grids"), ""),
        }
        return self.template.render({**known, "hits": None, "title": title, **facts})

    def overview(self) -> str:
        """Return the page with the reports of the folder, and how a run stands."""
        reports = sorted(path.parts[2] for path in Path().glob(paths.REPORT.format(grid="*")))
        return self.page("Reports of this folder", grids=reports, status=_screen())

    def search(self, query: str, system: str, dataset: str) -> str:
        """Render the page with a system's results for a query.

        Raises:
            BeirgridError: the system was not run on the dataset, or cannot be opened.
        """
        asked = {"query": query, "system": system, "dataset": dataset}
        refuse_unknown(system, dataset)
        from .open_systems import open_system, state_of

        with self.searching:
            state = state_of(system, dataset)  # a run may have made the system again
            known, ranker = self.opened.get((system, dataset), (None, None))
            if ranker is None or known != state:
                ranker = open_system(system, dataset, self.device, self.stack)
                self.opened[system, dataset] = state, ranker
            found = hits(query, ranker.rank(query), dataset, _DEPTH)
        rows = [{**hit._asdict(), "excerpt": excerpt(hit.text, hit.matched)} for hit in found]
        return self.page("Search", hits=rows, **asked)


def _screen() -> str:
    """Return the output of ``beirgrid status``; empty if there was no run."""
    with suppress(BeirgridError):
        return "\n".join(status.lines(events.read(events.EVENTS), 110))
    return ""


def _is_running() -> bool:
    with suppress(BeirgridError):
        return events.read(events.EVENTS).alive is not False
    return False


def serve(served: Served, host: str, port: int, token: str) -> ThreadingHTTPServer:
    """Return a server.

    Args:
        port: port; 0 for a free one.
        token: token required as a parameter of the first request and as a cookie later; empty for none.

    Raises:
        BeirgridError: the address or the port cannot be had.
    """

    class Handler(LocalHandler):
        def do_GET(self) -> None:
            """Answer with a page or a file."""
            if not self._is_allowed():
                return self._page(HTTPStatus.FORBIDDEN, "open the address that beirgrid serve printed")
            headers = {"Set_Cookie": f"{_COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/"} if token else {}
            if _is_running() and self.place != "/search":
                headers["Refresh"] = str(_REFRESH)
            try:
                if self.place == "/":
                    return self._page(HTTPStatus.OK, served.overview(), **headers)
                if self.place == "/search":
                    asked = {name: self.parameter(name) for name in ("query", "system", "dataset")}
                    return self._page(HTTPStatus.OK, served.search(**asked), **headers)
            except BeirgridError as error:
                return self._page(HTTPStatus.BAD_REQUEST, served.page("Search", error=str(error)))
            if path := _file(unquote(self.place)):
                kind = mimetypes.guess_type(path.name)[0] or "text/plain"
                return self.send(HTTPStatus.OK, path.read_bytes(), f"{kind}; charset=utf-8", _POLICY, **headers)
            return self._page(HTTPStatus.NOT_FOUND, served.page("There is no such page"))

        do_HEAD = do_GET

        def _is_allowed(self) -> bool:
            if not token:
                return self.is_for_this_machine
            with suppress(CookieError):
                known = SimpleCookie(self.headers.get("Cookie", "")).get(_COOKIE)
                if known and secrets.compare_digest(known.value.encode(), token.encode()):
                    return True
            return self.has_token(token)

        def _page(self, code: HTTPStatus, text: str, **headers: str) -> None:
            self.send(code, text.encode(), "text/html; charset=utf-8", _POLICY, **headers)

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except (OSError, OverflowError) as error:
        raise BeirgridError(f"{host}:{port}: {error}; --port and --host name others") from None
    server.daemon_threads = True
    return server


def address(server: ThreadingHTTPServer, token: str) -> str:
    """Return the address to open."""
    host, port = server.server_address[:2]
    return f"http://{host!s}:{port}/{f'?token={token}' if token else ''}"


def _file(place: str) -> Path | None:
    """Return the file of a grid that an address names, or None: no other file of the machine is served."""
    with suppress(OSError, ValueError):
        path = Path("results", place.lstrip("/")).resolve()
        folders = path.relative_to(Path("results/grids").resolve()).parts
        if len(folders) > 2 and folders[1] in _SERVED and path.is_file():
            return path
    return None
