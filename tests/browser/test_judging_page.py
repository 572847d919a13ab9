"""Judge in Chromium: with the keyboard, by two judges at once, with a killed server, and without a server."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest

from beirgrid.sets import documents, queries, server
from beirgrid.sets.evaluation_set import EvaluationSet

HOSTILE = "<script>document.title = 'hacked'</script><img src=x onerror=\"document.title='hacked'\">"


@pytest.fixture
def made(tmp_path):
    return create(tmp_path / "notes")


def create(folder):
    texts = [documents.Document(f"d{i}", f"Title {i}", f"Rye bread number {i}. {HOSTILE}") for i in range(3)]
    found = EvaluationSet.create(folder, texts, "here")
    found.write_queries([queries.SetQuery(f"q{i}", f"rye bread {i}") for i in range(4)])
    found.store.add_pool((f"q{query}", f"d{document}") for query in range(4) for document in range(3))
    return found


@contextmanager
def serving(folder, *options: str):
    """Judge in a process of its own: yield the process and its address."""
    command = [sys.executable, "-m", "beirgrid", "set", "judge", str(folder), "--no-browser", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, re.search(r"http://\S+", process.stdout.readline())[0]
        finally:
            process.kill()


@pytest.fixture
def address(made):
    with serving(made.folder) as (_, found):
        yield found


def judgements(made) -> list[tuple[str, int | None]]:
    return [(found.judge, found.grade) for found in made.store.judgements()]


@pytest.fixture
def judge(chromium):
    """Open the page as a judge, in a separate browser profile."""
    contexts = []

    def opened(address: str, name: str):
        context = chromium.new_context(viewport={"width": 1280, "height": 900})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.goto(address)
        if name:
            page.keyboard.type(name)  # the field has the focus
            page.keyboard.press("Enter")
        page.wait_for_selector("#pair:not([hidden])")
        return page

    yield opened
    for context in contexts:
        context.close()


def press(page, key: str) -> None:
    """Press a key and wait until the page shows the answer."""
    before = page.locator("#left").inner_text()
    page.keyboard.press(key)
    page.wait_for_function("before => document.getElementById('left').innerText !== before", arg=before)


def test_two_judges_grade_skip_and_undo_with_the_keyboard(made, address, judge):
    ann, ben = judge(address, "ann"), judge(address, "ben")
    assert ann.locator("#query").inner_text() != ben.locator("#query").inner_text()
    assert ann.locator("mark").first.inner_text().lower() in ("rye", "bread")
    assert HOSTILE in ann.locator("#text").inner_text()
    assert ann.title() == "Judging notes"
    press(ann, "3")
    press(ben, "0")
    press(ann, "1")
    assert ann.locator("#left").inner_text() == "2 judged, 7 left, less than a minute"
    press(ann, "u")
    ann.keyboard.press("s")
    ann.keyboard.type("in another language")
    press(ann, "Enter")
    assert judgements(made) == [("ann", 3), ("ben", 0), ("ann", None)]
    assert [found.reason for found in made.store.judgements()] == ["", "", "in another language"]
    while ben.locator("#pair").is_visible() and made.store.progress("ben")["left"]:
        press(ben, "2")
    for _ in range(made.store.progress("ann")["left"]):
        press(ann, "2")
    assert ann.locator("#done").is_visible()
    assert f"Next: beirgrid set accept {made.folder}" in ann.locator("#done").inner_text()
    assert ann.locator("footer kbd").all_inner_texts() == ["0", "1", "2", "3", "s", "u"]
    assert len(made.store.judgements()) == 12


def test_a_killed_server_loses_nothing(made, judge):
    with serving(made.folder) as (process, address):
        page = judge(address, "ann")
        press(page, "3")
        press(page, "2")
        process.kill()
        process.wait()
        page.keyboard.press("1")
        page.locator("#message", has_text="Nothing was lost").wait_for()
    assert "beirgrid does not answer" in page.locator("#message").inner_text()
    assert judgements(made) == [("ann", 3), ("ann", 2)]
    with serving(made.folder, "--port", re.search(r":(\d+)/", address)[1]) as (_, address):
        page.keyboard.press("1")  # the old page, with the token of the old server
        page.locator("#message", has_text="open the address").wait_for()
        page = judge(address, "ann")
        assert page.locator("#left").inner_text().startswith("2 judged, 10 left")
        press(page, "1")
    assert judgements(made) == [("ann", 3), ("ann", 2), ("ann", 1)]


def test_a_full_disk_is_told_and_the_same_key_goes_on_when_there_is_space(full_disk, judge):
    made, filler = create(full_disk / "notes"), full_disk / "filler"
    with serving(made.folder) as (_, address):
        page = judge(address, "ann")
        press(page, "3")
        filler.write_bytes(b"x" * shutil.disk_usage(full_disk).free)
        page.keyboard.press("2")
        page.locator("#message", has_text="All judgements before this one are kept").wait_for()
        assert page.locator("#left").inner_text().startswith("1 judged, 11 left")
        filler.unlink()
        press(page, "2")
        assert page.locator("#message").inner_text() == ""
    assert judgements(made) == [("ann", 3), ("ann", 2)]


def test_one_file_is_judged_without_a_server_and_taken_back(made, judge, tmp_path):
    judging, path = server.Judging(made), tmp_path / "ann.html"
    path.write_text(judging.offline("ann", judging.store.waiting("ann")), encoding="utf-8")
    page = judge(path.as_uri(), "")
    for key in "3201":
        press(page, key)
    page.wait_for_timeout(500)  # Chromium passes a page's storage to its other processes in the background
    page.reload()  # the browser keeps the judgements
    page.wait_for_selector("#pair:not([hidden])")
    assert page.locator("#left").inner_text().startswith("4 judged, 8 left")
    with page.expect_download() as download:
        page.locator("#save").click()
    download.value.save_as(tmp_path / "back.csv")
    assert judging.take_back("ann", tmp_path / "back.csv") == 4
    assert judgements(made) == [("ann", 3), ("ann", 2), ("ann", 0), ("ann", 1)]


def test_the_page_is_accessible_and_fits_a_telephone(address, judge):
    from axe_playwright_python.sync_playwright import Axe

    page = judge(address, "ann")
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa"]})
    assert not found.response["violations"], found.generate_report()
