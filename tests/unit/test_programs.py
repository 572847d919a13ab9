"""Systems that are programs: their commands, inputs, outputs and failures."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import fetch_collection, main, tracked_configuration
from stage_words import stage_command

from beirgrid import config
from beirgrid.core.errors import ConfigError
from beirgrid.graph.dag import Job
from beirgrid.graph.grid import Grid
from beirgrid.graph.resources import Resources
from beirgrid.runs import runs
from beirgrid.runs.opened import NotSearchable
from beirgrid.stages.program import work
from beirgrid.tools import latency

DOCUMENTS = [{"_id": f"d{i}", "title": f"title {i}", "text": f"text “{i}”"} for i in (1, 2, 3)]
QUERIES = {"q1": "of q1", "d3": "title 3 text “3”"}
# A program that ranks all documents for each query, and says what it was given.
SEARCH = """
import json, os, sys
queries, corpus, run, index, depth, threads = sys.argv[1:]
read = lambda path: [json.loads(line) for line in open(path, encoding="utf-8")]
documents, asked = read(corpus), read(queries)
with open(run, "w") as out:
    for query in asked:
        for rank, row in enumerate(documents, 1):
            out.write(f"{query['_id']} Q0 {row['_id']} {rank} {10 - rank} x\\n")
print(json.dumps({"documents": documents, "queries": asked, "depth": depth, "threads": threads,
    "folder": sorted(os.listdir(os.path.dirname(queries))), "index": sorted(os.listdir(index)),
    "ours": sorted({"PYTHONPATH", "PYTHONSAFEPATH"} & {*os.environ}), "secret": len(os.environ["TESTED_KEY"])}))
"""
INDEX = "import sys, pathlib; pathlib.Path(sys.argv[2], 'a').write_text(str(len(open(sys.argv[1]).readlines())))"
SECRET = "sk-of-the-program"


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with queries.parquet and corpus.parquet of three documents; the query d3 is a document."""
    folder = tmp_path_factory.mktemp("a 'folder'")
    queries = [{"_id": query, "text": text} for query, text in {**QUERIES, "unjudged": "x"}.items()]
    return fetch_collection(folder, DOCUMENTS, queries, [(query, "d1", 1) for query in QUERIES])


def python(code: str, *arguments: str) -> str:
    """Return a command that runs Python code."""
    return shlex.join([sys.executable, "-c", code, *arguments])


def words(kind: str, command: str, collection: Path, output: Path, *options: str) -> list[str]:
    """Return the words of a stage that runs a command."""
    files = ["--corpus", str(collection / "corpus.parquet"), "--record", f"{output}.json", "--output", str(output)]
    if kind == "retrieve":
        files += ["--queries", str(collection / "queries.parquet"), "--system", "s"]
    return [kind, "program", "--command", command, *files, *options]


@pytest.fixture
def stage(collection: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs a stage with a command, expects a status, and returns all that it prints."""

    def call(kind: str, command: str, *options: str, status: int = 0) -> str:
        output = tmp_path / ("x.run.gz" if kind == "retrieve" else "index")
        assert main(words(kind, command, collection, output, *options)) == status
        printed = capfd.readouterr()
        return printed.out + printed.err

    return call


def test_a_program_gets_the_collection_without_qrels_and_its_run_is_checked(stage, tmp_path, monkeypatch):
    monkeypatch.setenv("TESTED_KEY", SECRET)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    stage("index", python(INDEX, "{corpus}", "{index}"), "--version", "1.5")
    made = json.loads((tmp_path / "index.json").read_text())
    assert (tmp_path / "index/a").read_text() == "3"
    assert made["job"]["settings"]["version"] == "1.5"
    assert (made["facts"]["documents"], made["facts"]["bytes"]) == (3, 1)

    command = python(SEARCH, "{queries}", "{corpus}", "{run}", "{index}", "{depth}", "{threads}")
    options = ("--index", str(tmp_path / "index"), "--depth", "2", "--threads", "3")
    said = json.loads(stage("retrieve", command, *options).splitlines()[-1])
    assert said == {
        "documents": DOCUMENTS,
        "queries": [{"_id": query, "text": text} for query, text in QUERIES.items()],
        "depth": "3",  # d3 is not ranked for the query d3
        "threads": "3",
        "folder": ["corpus.jsonl", "queries.jsonl", "run.trec"],
        "index": ["a"],
        "ours": [],
        "secret": len(SECRET),
    }
    found = runs.read(tmp_path / "x.run.gz")
    assert {query: ranking.ids for query, ranking in found.items()} == {"q1": ["d1", "d2"], "d3": ["d1", "d2"]}
    record = json.loads((tmp_path / "x.run.gz.json").read_text())
    assert record["stage"] == "retrieve_program"
    assert record["facts"]["search_seconds"] > 0
    assert record["inputs"]["index"][0]["bytes"] == 1
    assert record["peak_memory_mb"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "index.json", "x.run.gz", "x.run.gz.json"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


FILE_FOR_FOLDER = "import os, sys; os.rmdir(sys.argv[1]); open(sys.argv[1], 'w').write('x')"


def test_a_log_shows_what_a_terminal_would_act_on(stage):
    code = r"print('\x1b[2J\x00a\tb\rc', flush=True); import sys; sys.stderr.buffer.write(b'\xffd'); exit(1)"
    said = stage("retrieve", python(code), status=1).splitlines()
    assert said[-4:-1] == [r"\x1b[2J\x00a  b", "c", "�d"]


def writes(run: str, *arguments: str, before: str = "") -> str:
    """Return a command that writes a run, after other code, which has the arguments from ``argv[2]``."""
    return python(f"from sys import argv; {before}open(argv[1], 'w').write({run!r})", "{run}", *arguments)


@pytest.mark.parametrize(
    ("kind", "command", "message"),
    [
        ("retrieve", "no-such-program", "the command 'no-such-program' cannot start: [Errno 2] No such file or dire"),
        ("retrieve", " ", "the command ' ' cannot start: it has no words"),
        ("retrieve", "search 'a", 'the command "search \'a" cannot start: No closing quotation'),
        ("retrieve", "search \0", r"the command 'search \x00' cannot start: embedded null byte"),
        ("retrieve", python("exit(3)"), "the command ended with exit status 3. Its output is above"),
        ("retrieve", python("import os; os.kill(os.getpid(), 9)"), "was killed by signal 9. Its output is above"),
        ("retrieve", python("pass"), "the command wrote no file {run}"),
        ("retrieve", writes("q1 Q0 d9 1 1 t\nd3 Q0 d1 1 1 t\n"), "'s':1: the corpus has no docu"),
        ("retrieve", writes("q1 Q0 d1 1 nan t\n"), "of 's':1: the score 'nan' is not a number"),
        ("retrieve", writes("q1 Q0 d1 1 1 t\n"), "the run of 's' lacks 1 of the 2 queries"),
        ("index", python("pass"), "the index_command wrote nothing to the folder {index}, or replaced it by a file"),
        ("index", python(FILE_FOR_FOLDER, "{index}"), "the index_command wrote nothing to the folder {index}, or repl"),
        ("index", python("exit('disk full')"), "ended with exit status 1. Its output is above"),
    ],
)
def test_a_command_that_fails_is_one_message_and_leaves_nothing(stage, tmp_path, kind, command, message):
    said = stage(kind, command, status=1)
    assert message in said.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_an_open_program_starts_whenever_it_ranks(collection, tmp_path):
    """A query has any id or none. A document is not ranked for itself, nor below the depth."""
    code = "import json, sys; queries, run, starts = sys.argv[1:]; open(starts, 'a').write('x'); lines = open(queries)"
    code += "; rows = [(json.loads(line)['_id'], number) for line in lines for number in (1, 2, 3)]"
    code += "; open(run, 'w').writelines(f'{query} Q0 d{number} 1 {number} x\\n' for query, number in rows)"
    about = {name: collection / f"{name}.parquet" for name in ("corpus", "queries")}
    about |= {"version": "", "index": None, "depth": 2, "allow": (), "threads": 1}
    command = python(code, "{queries}", "{run}", str(tmp_path / "starts"))
    opened = work.open_retrieve_program(None, command=command, **about)
    assert {query: ranking.ids for query, ranking in opened.rank({"": "x", "d3": "y"}).items()} == {
        "": ["d3", "d2"],
        "d3": ["d2", "d1"],
    }
    (timed,) = latency.measure(opened, ["a", "b"])
    assert (timed["step"], timed["documents"], timed["queries"]) == ("start, retrieve", 2, 2)
    assert (tmp_path / "starts").read_text() == "xxx"
    with pytest.raises(NotSearchable, match="its command reads the whole"):
        work.open_retrieve_program(None, command="search {corpus} {queries} {run}", **about)


def test_a_search_that_changes_its_index_is_told_at_once(stage, tmp_path):
    stage("index", python(INDEX, "{corpus}", "{index}"))
    change = "open(argv[2] + '/a', 'a').write('x'); "
    command = writes("q1 Q0 d1 1 1 t\nd3 Q0 d1 1 1 t\n", "{index}", before=change)
    said = stage("retrieve", command, "--index", str(tmp_path / "index"), status=1)
    assert "the command changed its {index}, which it may only read: " in said.splitlines()[-1]
    assert f"{tmp_path}/index/a is damaged: it has 2 bytes" in said.splitlines()[-1]
    assert not (tmp_path / "x.run.gz").exists()


@pytest.mark.slow
def test_a_program_may_start_a_server_that_goes_on(stage, tmp_path):
    code = "import subprocess, sys; subprocess.Popen(['sleep', '60']); print('started'); " + INDEX
    started = time.monotonic()
    assert "started" in stage("index", python(code, "{corpus}", "{index}"))
    assert time.monotonic() - started < 45
    assert (tmp_path / "index/a").read_text() == "3"


def test_a_program_ends_with_its_stage(collection, tmp_path):
    code = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(__import__('os').getpid())); __import__('time').sleep(60)"
    command = words("retrieve", python(code, "{queries}", "{run}"), collection, tmp_path / "x.run.gz")
    with subprocess.Popen(stage_command(*command), stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    pid = int((tmp_path / "pid").read_text())
    while Path(f"/proc/{pid}").exists() and "(python" in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < deadline
        if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
            break
        time.sleep(0.05)
    assert not (tmp_path / "x.run.gz").exists()


# The configuration

GOOD = {"command": "search {queries} {run}"}


def loaded(**systems: dict) -> config.Config:
    """Return a configuration with systems of SciFact."""
    raw = tracked_configuration()
    raw["systems"] |= systems
    raw["grid"] |= {"systems": list(systems), "datasets": ["scifact"]}
    return config.load(raw)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"command": "search {queries}"}, "systems.mine: command: needs {run}"),
        ({"command": "search {run}"}, "systems.mine: command: needs {queries}"),
        ({"command": "search '{queries} {run}"}, "systems.mine: command: No closing quotation"),
        ({"command": ""}, "systems.mine: command: needs {queries}; command: needs {run}"),
        ({"index_command": "index {corpus}"}, "systems.mine: index_command: needs {index}"),
        ({"depth": 10}, "depth: Extra inputs are not permitted"),
        ({"seeds": 2}, "'mine' does not depend on a seed"),
        ({"trained_on": {"names": ["x"], "source": "x"}}, "systems.mine.trained_on"),
    ],
)
def test_entries_that_cannot_run_are_refused(changes, message):
    with pytest.raises(ConfigError) as error:
        loaded(mine=GOOD | changes)
    assert message in str(error.value)


def test_a_job_asks_for_what_the_entry_says(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    large = GOOD | {"index_command": "index {corpus} {index}", "mem_mb": 20_000, "minutes": 100.0, "gpu": True}
    needs = Resources(Grid(loaded(mine=large, other=GOOD, alike=large | {"gpu": False})))
    mine, other = (Job.of("retrieve_program", {"system": name, "dataset": "scifact"}) for name in ("mine", "other"))
    assert needs.mem_mb(mine, 1) >= 20_000 * 1.4 > needs.mem_mb(other, 1)
    assert needs.runtime(mine, 1) >= 300 > needs.runtime(other, 1)
    assert (needs.kind(mine), needs.kind(other)) == ("gpu", "cpu")
    assert needs.kind(Job.of("index_program", {"system": "mine", "corpus": "scifact"})) == "gpu"
    # Systems with the same command of indexing share the first one's index.
    assert [needs.grid.program_index(name) for name in ("mine", "alike")] == ["mine", "mine"]
