"""Chromium without a window. Pages open from disk; every console message or request to another host fails the test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import pages
import pytest

from beirgrid.page.analyses import Figure
from beirgrid.page.render import render
from beirgrid.results.answers import Answers
from beirgrid.results.summary import GridSummary


@pytest.fixture(scope="session")
def chromium():
    """Start Chromium; skip tests where Chromium or Playwright is absent."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is absent: make setup-dev")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not path:
        pytest.skip("Chromium is absent: install it (Debian: apt install chromium) or set CHROMIUM to its path")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def show(chromium, paper, paper_page, tmp_path, monkeypatch) -> Iterator[Callable]:
    """Return a function that opens the report of a grid, which may not write to the console or ask another host."""
    messages: list[str] = []
    contexts = []
    monkeypatch.chdir(tmp_path)

    def opened(
        grid: GridSummary,
        tables: Answers | None = None,
        documents: dict | None = None,
        pictures: tuple[Figure, ...] = (),
        **options,
    ):
        path = tmp_path / "index.html"
        if grid is paper and tables is None and not pictures:
            text = paper_page
        else:
            text = render(grid, tables or pages.tables(grid), pictures, documents=documents or {})
        path.write_text(text, encoding="utf-8")
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", lambda dialog: (messages.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: request.url.startswith("http") and messages.append(request.url))
        page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not messages


@pytest.fixture(scope="session")
def paper() -> GridSummary:
    """A grid of 17 systems and 14 datasets."""
    return pages.grid(17, 14)


@pytest.fixture(scope="session")
def paper_page(paper) -> str:
    """The report of that grid, which most tests open."""
    return render(paper, pages.with_open_pairs(pages.tables(paper)))
