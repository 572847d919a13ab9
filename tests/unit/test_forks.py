"""Forked jobs behave like separate processes, and no fork outlives its job, its server or its run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from helpers import python
from snakemake import shell

from beirgrid.core import compute
from beirgrid.core.checkout import MODULES
from beirgrid.execution import forks

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="jobs are forked on Linux alone")

# A server whose forks run a program's text.
SERVER = """
import sys
from pathlib import Path
from beirgrid.execution.forks import run_fork, serve
run_fork(serve(Path(sys.argv[1]), int(sys.argv[2]), lambda: None), lambda words: exec(words[0]))
"""
CLIENT = """
import sys
from pathlib import Path
from beirgrid.execution import forks
path, owner, server, program = sys.argv[1:]
forks.act_as_proxy(forks.connect(Path(path), [sys.executable, "-c", server, path, owner]), [program])
"""


@pytest.fixture
def owner():
    """A process with which servers end."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def start(tmp_path, owner):
    """Return a function that starts a process whose program a fork runs."""
    started = []
    (tmp_path / "forks").mkdir()

    def call(program, ignored=(), server=SERVER, **options):
        command = [sys.executable, "-c", CLIENT, str(tmp_path / "forks" / "socket"), str(owner.pid), server, program]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

        def set_signals():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # which a shell's background ignores
                signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

        started.append(subprocess.Popen(command, **pipes, preexec_fn=set_signals, **options))
        return started[-1]

    yield call
    for process in started:
        process.kill()
        process.communicate()


def ended(pid: int) -> bool:
    """Wait until a process has ended."""
    for _ in range(200):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def waiting(start, **options) -> tuple[subprocess.Popen[str], int]:
    """Start a job that waits, and return it with the process id of its fork."""
    job = start("import os, time; print(os.getpid(), flush=True); time.sleep(60)", **options)
    return job, int(job.stdout.readline())


def attendant_of(fork: int) -> psutil.Process:
    return psutil.Process(fork).parent()


def test_a_fork_has_the_job_s_folder_environment_and_streams(start, tmp_path):
    program = "import os, sys; print(os.getcwd(), len(os.environ['X']), sys.stdin.read()); sys.exit('a message')"
    job = start(program, cwd=tmp_path, env={**os.environ, "X": "x" * 100_000}, stdin=subprocess.PIPE)
    assert job.communicate("input", timeout=30) == (f"{tmp_path} 100000 input\n", "a message\n")
    assert job.returncode == 1


@pytest.mark.parametrize(
    ("program", "status"),
    [("", 0), ("raise SystemExit(3)", 3), ("1 / 0", 1), ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL)],
)
def test_a_job_ends_with_the_status_of_its_fork(start, program, status):
    job = start(program)
    _, error = job.communicate()
    assert job.returncode == status
    assert ("ZeroDivisionError" in error) == (program == "1 / 0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_reaches_the_fork(start, number):
    job, fork = waiting(start)
    job.send_signal(number)
    _, error = job.communicate(timeout=30)
    assert ended(fork)
    if number == signal.SIGINT:  # Python's own way to end
        assert (job.returncode, "KeyboardInterrupt" in error) == (1, True)
    else:
        assert job.returncode == -number


@pytest.mark.parametrize("ends", ["job", "run"])
def test_a_job_ends_that_is_told_to_or_whose_run_ends_before_the_server_can_fork(start, owner, tmp_path, ends):
    """The server imports libraries for seconds after it has taken the connection."""
    ready = tmp_path / "ready"
    prepares = f"lambda: [time.sleep(0.01) for _ in iter(Path({str(ready)!r}).exists, True)]"
    job = start("print('ran')", server=f"import time\n{SERVER.replace('lambda: None', prepares)}")
    caught = 0
    while not caught >> signal.SIGTERM - 1 & 1:  # it sends its request before
        caught = int(Path(f"/proc/{job.pid}/status").read_text().partition("SigCgt:")[2].split()[0], 16)
    (job if ends == "job" else owner).terminate()
    time.sleep(0.1)
    ready.touch()
    said = "beirgrid: error: the process from which this job was forked has been killed; run again\n"
    assert job.communicate(timeout=30) == ("", said if ends == "run" else "")
    assert job.returncode == (1 if ends == "run" else -signal.SIGTERM)


def test_an_ignored_hangup_stays_ignored(start):
    """The server inherits the ignored signal from its first job, for example under nohup."""
    job = start("import os, signal; os.kill(os.getpid(), signal.SIGHUP); print('goes on')", ignored=[signal.SIGHUP])
    assert job.communicate() == ("goes on\n", "")
    job, fork = waiting(start, ignored=[signal.SIGHUP])
    job.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert psutil.pid_exists(fork)


@pytest.mark.parametrize("killed", ["job", "attendant"])
def test_a_fork_ends_with_its_job_and_with_the_process_that_waits_for_it(start, killed):
    job, fork = waiting(start)
    (job if killed == "job" else attendant_of(fork)).kill()
    if killed == "attendant":
        assert job.communicate(timeout=30)[1].endswith("has been killed; run again\n")
        assert job.returncode == 1
    assert ended(fork)


@pytest.mark.parametrize("killed", ["server", "run"])
def test_a_fork_outlives_its_server(start, owner, tmp_path, killed):
    job = start("print(__import__('os').getpid(), flush=True); input(); print('done')", stdin=subprocess.PIPE)
    server = attendant_of(int(job.stdout.readline())).parent()  # a job that is not forked yet ends with its run
    (server if killed == "server" else owner).kill()
    assert ended(server.pid)
    if killed == "server":  # the next job starts another
        assert attendant_of(waiting(start)[1]).parent() != server
    assert (tmp_path / "forks").exists() == (killed == "server")
    assert job.communicate("\n", timeout=30)[0] == "done\n"


def test_a_client_that_says_nothing_keeps_nobody_waiting(start, tmp_path):
    start("").communicate()
    with forks.connect(tmp_path / "forks" / "socket", ["false"]):
        assert start("print('forked')").communicate(timeout=30)[0] == "forked\n"
    assert start("print('again')").communicate(timeout=30)[0] == "again\n"  # after a client that was killed


@pytest.mark.parametrize("owner", ["", "no number"])
def test_a_job_whose_server_cannot_start_runs_by_itself(owner, tmp_path):
    assert forks.connect(tmp_path / "socket", ["false"]) is None
    long = tmp_path / ("long" * 50)  # longer than the address of a socket
    long.mkdir()
    (long / "owner").write_text(str(os.getpid()))
    assert run_stage("--help", folder=long).returncode == 0
    if owner:
        (tmp_path / "owner").write_text(owner)
    done = run_stage("--help", folder=tmp_path)
    assert "function of the job" in done.stdout
    assert done.returncode == 0


def test_no_benchmark_counts_a_server_as_the_job_that_starts_it(tmp_path):
    """Snakemake's benchmarks count a job's children."""
    path = tmp_path / "socket"
    with forks.connect(path, [sys.executable, "-c", SERVER, str(path), str(os.getpid())]):
        serving = [
            process for process in psutil.process_iter(["cmdline"]) if str(path) in (process.info["cmdline"] or [])
        ]
        assert serving  # with the attendant of this connection, once it is accepted
        assert not {*serving} & {*psutil.Process().children(recursive=True)}
        for process in serving:
            process.kill()


def run_stage(*words: str, folder: Path, **options) -> subprocess.CompletedProcess[str]:
    """Run a stage as rules do, with the servers of a folder."""
    environment = {**os.environ, "PYTHONSAFEPATH": "1", forks.FOLDER: str(folder)}
    command = [sys.executable, "-m", "beirgrid", "stage", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, **options)


SCORES = {"inputs": {"run": "a.trec", "qrels": "qrels.tsv"}, "settings": {"metrics": ["ndcg@10"]}}
WRITTEN = SCORES | {"outputs": {"output": "scores.json", "per_query": "queries.parquet"}}


@pytest.mark.slow
def test_commands_are_forked_as_they_start_by_themselves(tmp_path):
    """Help, an error's message and status, and a record are the same, except times and memory. A job needs a record."""
    folder = tmp_path / "forks"
    folder.mkdir()
    (folder / "owner").write_text(str(os.getpid()))
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    (tmp_path / "a.trec").write_text("q Q0 d 1 1.0 x\n")
    found = {}
    for place in (folder, ""):
        jobs = SCORES, SCORES | {"options": {"rune": 1}}, WRITTEN
        ran = [run_stage("evaluate", folder=place, cwd=tmp_path, input=json.dumps(given)) for given in jobs]
        ran.append(run_stage("--help", folder=place, cwd=tmp_path))
        found[place] = [(done.returncode, done.stdout, done.stderr) for done in ran]
        kept = json.loads((tmp_path / "scores.json").read_text())
        found[place].append({key: kept[key] for key in kept.keys() - {"finished", "seconds", "peak_memory_mb"}})
    assert found[folder] == found[""]
    assert [status for status, *_ in found[""][:-1]] == [1, 1, 0, 0]
    assert [path.suffix for path in folder.glob("light-*")].count("") == 1  # one server's socket


@pytest.mark.slow
def test_a_job_is_forked_from_the_server_that_its_run_started_ahead(tmp_path, monkeypatch):
    """Snakemake sets the number of threads in the environment of a job."""
    folder = tmp_path / "forks"
    folder.mkdir()
    (folder / "owner").write_text(str(os.getpid()))
    monkeypatch.setenv(forks.FOLDER, str(folder))
    forks.start_ahead("light", 3, MODULES)
    started = [path.name for path in folder.iterdir()]
    job = shell("env", iterable=True, threads=3)
    for name, value in (line.split("=", 1) for line in job if "_NUM_THREADS=" in line):
        monkeypatch.setenv(name, value)
    assert run_stage("--help", folder=folder, cwd=tmp_path).returncode == 0
    assert [path.name for path in folder.iterdir()] == started


OFFERS = """
import os
from pathlib import Path
from beirgrid.core import compute
from beirgrid.execution import forks
compute._DRIVERS = ()
forks.offer()
folder = Path(os.environ[forks.FOLDER])
print(folder, oct(folder.stat().st_mode))
"""


def test_jobs_are_offered_forks_until_the_process_ends_that_offered_them(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    del environment[forks.FOLDER]
    done = subprocess.run([sys.executable, "-c", OFFERS], env=environment, capture_output=True, text=True, check=True)
    folder, mode = done.stdout.rstrip().rsplit(" ", 1)
    assert Path(folder).parent == tmp_path
    assert mode == "0o40700"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("reason", ["variable", "driver", "full"])
def test_no_forks_are_offered(reason, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone" if reason == "full" else tmp_path))
    monkeypatch.setattr(compute, "_DRIVERS", (str(tmp_path),) if reason == "driver" else ())
    monkeypatch.delenv(forks.FOLDER, raising=False)
    if reason == "variable":
        monkeypatch.setenv(forks.FOLDER, "of another process")
    forks.offer()
    assert os.environ.get(forks.FOLDER) == ("of another process" if reason == "variable" else None)
    assert list(tmp_path.iterdir()) == []


# The Python of these tests, which is forked where that changes nothing.


@pytest.mark.slow
@pytest.mark.skipif(python() == sys.executable, reason="processes are not forked on this machine")
@pytest.mark.parametrize(
    ("variables", "forked"),
    [
        ({}, True),
        ({"JAVA_HOME": "/java", "CUDA_VISIBLE_DEVICES": "1", "TESTED_KEY": "k"}, True),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, False),
        ({"PYTHONPATH": "site"}, False),
    ],
    ids=str,
)
def test_a_process_is_forked_unless_a_library_would_read_another_environment(tmp_path, monkeypatch, variables, forked):
    monkeypatch.chdir(tmp_path)
    Path("site").mkdir()
    Path("site/sitecustomize.py").touch()
    command = [python(), "-c", f"import os; print(os.getppid(), *map(os.environ.get, {list(variables)}))"]
    parent, *values = subprocess.check_output(command, env={**os.environ, **variables}, text=True).split()
    assert (int(parent) != os.getpid()) == forked
    assert values == list(variables.values())
