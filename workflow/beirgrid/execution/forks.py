"""Fork jobs from servers that have already imported the libraries, to save Python's start-up.

``python -m beirgrid`` asks a server for a fork, and stands in for it: arguments, environment, folder and streams go
there, signals too, and the exit status comes back. The run starts the server of jobs that run models, which imports
while other jobs run; the first job of another kind starts its server. A server has the mask and the limits of what
starts it. It ends with the run, and a fork ends with its job's process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

# Environment variable with the folder of the servers. If it is empty, each job starts Python itself.
FOLDER = "BEIRGRID_FORKS"
# Environment variable with the kind of server that forks a job: ``models`` or ``light``.
KIND = "BEIRGRID_LIBRARIES"
# Libraries read these variables on import, so each number of threads needs its own server.
THREADS = [f"{name}_NUM_THREADS" for name in ("OMP", "GOTO", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA")]
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
# File of the servers' folder with the process whose end stops them.
_OWNER = "owner"
# Largest request in bytes. Messages of these sockets arrive whole.
_LARGEST = 2**20
# A request for a fork: arguments, all environment variables, working directory, and the standard streams.
Request = tuple[list[str], dict[str, str], str, list[int]]


def possible() -> bool:
    """Tell whether jobs can be forked: on Linux, without the driver of a GPU, which does not survive a fork."""
    from ..core.compute import has_gpu_driver  # here, as each forked job imports this module first

    return hasattr(os, "pidfd_open") and not has_gpu_driver()


def offer() -> None:
    """Offer fork servers to the jobs of this process until it ends, unless the variable is already set."""
    if FOLDER in os.environ or not possible():
        return
    from ..core.files import temporary_folder

    with contextlib.suppress(OSError):  # without a folder, jobs start Python themselves
        folder = temporary_folder()
        Path(folder, _OWNER).write_text(str(os.getpid()))
        os.environ[FOLDER] = folder


def run() -> None:
    """Run this process's command in a fork and exit with its status; return if no server is available."""
    with contextlib.suppress(OSError):  # also of a folder whose name is too long for a socket: 107 bytes with its own
        if connection := _connect(os.environ):
            act_as_proxy(connection, sys.argv[1:])


def start_ahead(kind: str, threads: int, modules: Path) -> None:
    """Start the server of a kind of jobs, if forks are offered: it imports its libraries beside the first jobs.

    Args:
        threads: of such a job, as Snakemake sets them in its environment.
        modules: the folder from which jobs import beirgrid.
    """
    if os.environ.get(FOLDER):
        counts = {name: str(threads) for name in THREADS if name != "NUMBA_NUM_THREADS"}
        of_job = {KIND: kind, "PYTHONPATH": str(modules), "PYTHONSAFEPATH": "1"}
        with contextlib.suppress(OSError):
            if connection := _connect({**os.environ, **counts, **of_job}):
                connection.close()


def _connect(environment: Mapping[str, str]) -> socket.socket | None:
    """Return a connection to the server of jobs with an environment."""
    folder = Path(environment[FOLDER])
    kind = environment.get(KIND, "light")
    path = folder / "-".join([kind, *(environment.get(name, "") for name in THREADS)])
    owner = (folder / _OWNER).read_text()
    return connect(path, [sys.executable, "-m", __name__, kind, str(path), owner], environment)


def connect(path: Path, server: list[str], environment: Mapping[str, str] | None = None) -> socket.socket | None:
    """Return a connection to the socket of a server, which a command starts if there is none.

    None if the server ended at once: its messages are in ``path``.log.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with Path(f"{path}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            connection.connect(str(path))
            return connection
        path.unlink(missing_ok=True)  # of a server that was killed
        with Path(f"{path}.log").open("w") as log:
            options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "cwd": "/"}
            started = subprocess.run(server, env=environment, start_new_session=True, check=False, **options)
        if started.returncode == 0:
            connection.connect(str(path))
            return connection
    return None


def act_as_proxy(connection: socket.socket, arguments: list[str]) -> None:
    """Act as proxy for a fork with these arguments: forward signals, and exit with the fork's status.

    Raises OSError if the environment is too large for a request.
    """

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(OSError):  # of a server that has just been killed
            connection.send(bytes([number]))

    text = json.dumps([arguments, dict(os.environ), os.getcwd()]).encode()  # noqa: PTH109
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST)
    socket.send_fds(connection, [text], [0, 1, 2])
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    try:
        answer = connection.recv(8)
    except ConnectionResetError:  # by a server that ended before it read the request
        answer = b""
    if not answer:
        sys.exit("beirgrid: error: the process from which this job was forked has been killed; run again")
    status = int.from_bytes(answer, "big", signed=True)
    if status < 0:  # killed by a signal: so is this process
        with contextlib.suppress(OSError):  # of SIGKILL, nothing can be set
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def serve(path: Path, owner: int, prepare: Callable[[], None]) -> Request:
    """Serve in the background until the process ``owner`` has ended; return the request, in a fork for each.

    Args:
        path: the socket, in a folder that is removed at the end.
        prepare: imports what forks need. Processes may connect before, and wait.
    """
    import gc

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    new = Path(f"{path}.new")
    listener.bind(str(new))
    listener.listen(64)
    new.rename(path)
    if os.fork():  # an orphan serves: Snakemake would count its memory as that of the job that started it
        os._exit(0)
    ended = os.pidfd_open(owner)
    prepare()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for attendants
    while ended not in select.select([listener.fileno(), ended], [], [])[0]:
        with listener.accept()[0] as client:
            if os.fork() == 0:
                listener.close()
                return _attend(client)
    shutil.rmtree(path.parent, ignore_errors=True)  # where the owner was killed
    os._exit(0)


def _attend(client: socket.socket) -> Request:
    """Fork the job that a client requests, and return the request there; forward signals to it, and report its end."""
    from ..core.interrupts import die_with_parent

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    attendant = os.getpid()
    text, streams, *_ = socket.recv_fds(client, _LARGEST, 3)
    if not text:  # of a client that has ended
        os._exit(0)
    if (job := os.fork()) == 0:
        die_with_parent()  # only the attendant reports its status
        if os.getppid() != attendant:
            os._exit(1)
        return *json.loads(text), streams
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(job)
    while ended not in select.select([client.fileno(), ended], [], [])[0]:
        signals = client.recv(1)
        os.kill(job, signals[0] if signals else signal.SIGKILL)  # the end of a client that was killed
    status = os.waitstatus_to_exitcode(os.waitpid(job, 0)[1])
    with contextlib.suppress(OSError):
        client.send(status.to_bytes(8, "big", signed=True))
    os._exit(0)


def run_fork(request: Request, main: Callable[[list[str]], None]) -> None:
    """Become, in a fork, the requested process: run ``main`` with its arguments, and end."""
    import atexit
    import threading

    arguments, environment, folder, streams = request
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    status = 0
    try:
        main(arguments)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    # The interpreter's end, without taking the libraries down: that takes as long as a small job.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def libraries(kind: str) -> list[str]:
    """Return what a server of a kind imports: libraries, and the modules of the stages whose jobs are many."""
    from ..graph.dag import stages

    names = ["ir_measures", "pandas", "pyarrow.compute", "pyarrow.parquet"]
    if kind == "models":
        names = ["faiss", "sentence_transformers", "transformers.models.bert.modeling_bert"]
    many = [stage for stage in stages().values() if not stage.of_grid]
    modules = [stage.module for stage in many if stage.runs_models == (kind == "models")]
    return [*names, *dict.fromkeys(modules)]


def prepare(libraries: list[str]) -> None:
    """Import libraries and run the slow initialisation of transformers once for all forks."""
    import importlib

    for library in libraries:
        importlib.import_module(library)
    if mapping := sys.modules.get("transformers.conversion_mapping"):
        mapping.get_checkpoint_conversion_mapping("bert")  # compiles a thousand patterns


def _main(arguments: list[str]) -> None:
    """Run a forked command, as ``python -m beirgrid`` would."""
    import runpy

    os.environ.pop(FOLDER, None)
    sys.argv = ["-m", *arguments]
    runpy.run_module("beirgrid", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run_fork(serve(Path(sys.argv[2]), int(sys.argv[3]), partial(prepare, libraries(sys.argv[1]))), _main)
