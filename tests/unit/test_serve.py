"""The commands search, show and serve on a small folder. tests/workflow searches the indexes of a real grid."""

from __future__ import annotations

import re
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import finished
import pytest

from beirgrid.__main__ import main
from beirgrid.analysis import tables
from beirgrid.core import paths
from beirgrid.core.errors import BeirgridError
from beirgrid.results import scores
from beirgrid.tools import serve


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with two systems on one dataset, of which the second finds the relevant documents of three queries."""
    place = tmp_path_factory.mktemp("served") / "work"
    with finished.at(place):
        finished.collection(Path.cwd(), "notes")
        finished.searched("first", "notes", finished.rankings(1), "float32")
        finished.searched("second", "notes", finished.rankings(2, better=3), "float32")
        report = Path("results/grids/own/report/index.html")
        report.parent.mkdir(parents=True)
        report.write_text("<p>report of own</p>")
        Path("results/secret.txt").write_text("secret")
    return place


@pytest.fixture(autouse=True)
def _here(folder, monkeypatch) -> None:
    """Commands change the working directory; this one comes back."""
    monkeypatch.chdir(folder)


@pytest.fixture
def served():
    """Return a function that starts a server and returns its address."""
    with ExitStack() as stack:

        def start(token: str = "") -> str:
            server = serve.serve(serve.Served("cpu", stack), "127.0.0.1", 0, token)
            stack.callback(server.server_close)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            return serve.address(server, "").rstrip("/")

        yield start


def ask(address: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    request = urllib.request.Request(address, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


def test_the_reports_of_a_folder_are_served_and_nothing_else(served):
    address = served()
    status, page, headers = ask(address)
    assert status == 200
    assert 'href="grids/own/report/index.html">own<' in page
    assert "<option>second</option>" in page
    assert "Refresh" not in headers  # no run goes on
    assert ask(f"{address}/grids/own/report/index.html")[1] == "<p>report of own</p>"
    for place in (
        "secret.txt",
        "grids/../secret.txt",
        "grids/own/report/..%2f..%2f..%2fsecret.txt",
        "grids/own/report",
    ):
        assert ask(f"{address}/{place}")[0] == 404, place
    assert ask(f"{address}/grids/own/report/index.html", "HEAD")[:2] == (200, "")
    assert ask(address, "POST")[0] == ask(address, "DELETE")[0] == 501


def test_other_web_sites_and_other_people_get_nothing(served):
    address = served()
    assert ask(address, Host="evil.example:80")[0] == 403
    assert ask(address, Host="localhost:80")[0] == 200
    open_to_all = served("s3cret")
    assert ask(open_to_all)[0] == ask(f"{open_to_all}/?token=guess")[0] == 403
    status, _, headers = ask(f"{open_to_all}/?token=s3cret", Host="node7:8020")
    assert status == 200
    cookie = headers["Set-Cookie"].partition(";")[0]
    assert ask(f"{open_to_all}/grids/own/report/index.html", Cookie=cookie)[0] == 200
    assert ask(f"{open_to_all}/grids/own/report/index.html", Cookie="beirgrid=guess")[0] == 403


def test_a_name_is_no_path_to_elsewhere(folder, capsys):
    for words in (["../runs/first", "notes"], ["first", "../first/notes"], ["*", "notes"]):
        assert main(["show", *words]) == 1
        assert "there is no run of the" in capsys.readouterr().err


def test_a_search_that_cannot_be_made_says_why_and_stays_text(served):
    address = served()
    status, page, _ = ask(f"{address}/search?query=x&system=%3Cb%3E&dataset=notes")
    assert status == 400
    assert "there is no run of the system &#39;&lt;b&gt;&#39; here" in page


def test_a_port_that_is_taken_is_said(served):
    port = int(served().rpartition(":")[2])
    with ExitStack() as stack, pytest.raises(BeirgridError, match=f"127.0.0.1:{port}: .*--port and --host name others"):
        serve.serve(serve.Served("cpu", stack), "127.0.0.1", port, "")


def test_a_cell_shows_its_scores_and_its_extreme_queries(folder, capsys):
    assert main(["show", "second", "notes", "--directory", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "second on notes, 12 queries" in shown
    values = scores.read_per_query(folder / paths.PER_QUERY.format(system="second", dataset="notes"), ["ndcg@10"])
    of = tables.intervals(tables.stack("notes", {"second": values})).iloc[0]
    assert re.search(rf"nDCG@10 +{of['mean']:.4f} +\[{of['low']:.4f}, {of['high']:.4f}\]", shown)  # as in the tables
    assert "q0      1.0000  words of q0" in shown


def test_a_query_shows_grades_and_ranks_in_all_systems(folder, capsys):
    assert main(["show", "second", "notes", "q1", "--depth", "2", "--directory", str(folder)]) == 0
    shown = capsys.readouterr().out.splitlines()
    first = finished.rankings(1)["q1"]
    rows = {line.split()[3]: line.split()[:3] for line in shown if "text of" in line}
    assert shown[0] == "query q1: words of q1"
    # The two best documents, and the relevant one that is not among them.
    assert rows == {f"d{i}": [f"{i + 1}", f"{first.index(f'd{i}') + 1}", f"{3 - i}"] for i in range(3)}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "frist", "notes"], "there is no run of the system 'frist' here; did you mean 'first'?"),
        (["show", "first", "note"], "there is no run of the dataset 'note' here; did you mean 'notes'?"),
        (["show", "first", "notes", "q99"], "'notes' has no judged query 'q99'; did you mean 'q9'?"),
        (["show", "first", "notes", "--metric", "mrr@10"], "has no metric 'mrr@10' (it has nDCG@10, R@5)"),
        (["search", "first", "notes", "x"], "records a command of another version of beirgrid"),
    ],
)
def test_what_cannot_be_shown_is_said(folder, capsys, words, message):
    assert main([*words, "--directory", str(folder)]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("link", ["notes.run.gz", "nowhere"])
def test_a_query_of_a_run_that_is_gone_is_said(folder, capsys, link):
    run = folder / paths.RUN.format(system="second", dataset="notes")
    kept = run.rename(run.with_suffix(".kept"))
    run.symlink_to(link)
    assert main(["show", "second", "notes", "q1", "--directory", str(folder)]) == 1
    assert "notes.run.gz is missing: run the grid again" in capsys.readouterr().err
    assert main(["show", "first", "notes", "q1", "--directory", str(folder)]) == 0
    kept.replace(run)
