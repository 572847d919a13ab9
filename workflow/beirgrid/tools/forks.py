"""Fork jobs from servers that have already imported the libraries, to save Python's start-up.

A job takes seconds to import PyTorch, transformers and sentence-transformers, as long as a small corpus takes to
encode. With a server, ``python -m beirgrid`` asks the server for a fork, and stands in for the fork: arguments,
environment, folder, mask and streams go there, signals too, and the exit status comes back. The first job of a kind
starts the server. The server ends with the run, and a fork ends with its job's process.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

# Environment variable with the folder of the servers. If it is empty, each job starts Python itself.
FOLDER = "BEIRGRID_FORKS"
# Environment variable with the kind of server that forks a job: ``models`` or ``light``.
KIND = "BEIRGRID_LIBRARIES"
# Libraries read these variables on import, so each number of threads needs its own server.
THREADS = [f"{name}_NUM_THREADS" for name in ("OMP", "GOTO", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA")]
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_OWNER = "owner"


class Request(NamedTuple):
    """A request for a fork.

    Attributes:
        arguments: words after ``python``.
        environment: all variables.
        folder: the working directory.
        mask: the mask of the modes of new files.
    """

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    mask: int


def possible() -> bool:
    """Tell whether jobs can be forked: on Linux, without the driver of a GPU, which does not survive a fork."""
    from ..core.compute import has_gpu_driver  # here, as each forked job imports this module first

    return hasattr(os, "pidfd_open") and not has_gpu_driver()


def offer() -> None:
    """Offer fork servers to the jobs of this process until it ends, unless the variable is already set."""
    if FOLDER in os.environ or not possible():
        return
    from ..core.environment import temporary_folder

    with contextlib.suppress(OSError):  # without a folder, jobs start Python themselves
        folder = temporary_folder()
        Path(folder, _OWNER).write_text(str(os.getpid()))
        os.environ[FOLDER] = folder


def run() -> None:
    """Run this process's command in a fork and exit with its status; return if no server is available."""
    folder = Path(os.environ[FOLDER])
    kind = os.environ.get(KIND, "light")
    path = folder / "-".join([kind, *(os.environ.get(name, "") for name in THREADS)])
    with contextlib.suppress(OSError, ValueError):
        owner = (folder / _OWNER).read_text()
        if _limits(int(owner)) != _limits(0):  # a fork would have the server's
            return
        if connection := connect(path, [sys.executable, "-m", __name__, kind, str(path), owner]):
            act_as_proxy(connection, ["-m", "beirgrid", *sys.argv[1:]])


def _limits(process: int) -> list[tuple[int, int]]:
    """Return the limits of a process that ``ulimit`` sets; 0 stands for this process."""
    names = sorted(name for name in vars(resource) if name.startswith("RLIMIT_"))
    return [resource.prlimit(process, getattr(resource, name)) for name in names]


def connect(path: Path, server: list[str]) -> socket.socket | None:
    """Connect to a server, which a command starts if there is none.

    Args:
        path: the socket.
        server: the command that starts the server.

    Returns:
        the connection, or None if the server ended at once: its messages are in ``path``.log.
    """
    connection = socket.socket(socket.AF_UNIX)
    with Path(f"{path}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError), _address(path) as address:
            connection.connect(address)
            return connection
        path.unlink(missing_ok=True)  # of a server that was killed
        with Path(f"{path}.log").open("w") as log:
            started = subprocess.run(
                server, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True, check=False
            )
        if started.returncode == 0:
            with _address(path) as address:
                connection.connect(address)
            return connection
    return None


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yield a short name of a path, however long: a socket's address has 107 bytes at most."""
    folder = os.open(path.parent, os.O_PATH)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def act_as_proxy(connection: socket.socket, arguments: list[str]) -> None:
    """Act as proxy for a fork with these arguments: forward signals, and exit with the fork's status."""

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(OSError):  # of a server that has just been killed
            connection.send(bytes([number]))

    os.umask(mask := os.umask(0))
    text = json.dumps(Request(arguments, dict(os.environ), os.getcwd(), mask)).encode()  # noqa: PTH109
    socket.send_fds(connection, [len(text).to_bytes(8, "big")], [0, 1, 2])
    connection.sendall(text)
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


def serve(path: Path, owner: int, prepare: Callable[[], None]) -> tuple[Request, list[int], bytes]:
    """Serve in the background: fork a process per connection, until the owner and all forks have ended.

    Args:
        path: the socket, in a folder that is removed at the end.
        owner: the process whose end stops the server.
        prepare: imports what forks need (``prepare``). Processes may connect before, and wait.

    Returns:
        in a fork, the request, its standard streams, and the signals that came before the fork.
    """
    import gc

    listener = socket.socket(socket.AF_UNIX)
    new = Path(f"{path}.new")
    with _address(new) as address:
        listener.bind(address)
    listener.listen(64)
    new.rename(path)
    if os.fork():  # an orphan serves: Snakemake would count its memory as that of the job that started it
        os._exit(0)
    ended = os.pidfd_open(owner)
    prepare()
    gc.freeze()
    server, over = os.getpid(), False
    forks: dict[int, tuple[int, socket.socket]] = {}  # the process and its client, by the process's descriptor
    asking: dict[int, _Asking] = {}  # clients that have not said all, by their descriptor
    while forks or not over:
        clients = {client.fileno(): pid for pid, client in forks.values()}
        heard: list[int] = [*forks, *clients, *(() if over else (listener.fileno(), ended, *asking))]
        for ready in select.select(heard, [], [])[0]:
            if ready == ended:
                over = True
            elif ready == listener.fileno():
                client = listener.accept()[0]
                asking[client.fileno()] = _Asking(client)
            elif ready in asking:
                if (request := asking[ready].hear()) is None:
                    continue
                client, streams, early = asking[ready].client, asking[ready].streams, asking.pop(ready).early
                if request and (pid := os.fork()) == 0:
                    _end_with(server)
                    return request, streams, early
                for stream in streams:
                    os.close(stream)
                if request:
                    forks[os.pidfd_open(pid)] = (pid, client)
                else:
                    client.close()
            elif ready in forks:
                pid, client = forks.pop(ready)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                os.close(ready)
                clients.pop(client.fileno(), None)
                with contextlib.suppress(OSError), client:
                    client.sendall(status.to_bytes(8, "big", signed=True))
            elif ready in clients:  # a signal, or the end of a client that was killed
                os.kill(clients[ready], _next_byte(ready) or signal.SIGKILL)
    shutil.rmtree(path.parent, ignore_errors=True)  # where the owner was killed
    os._exit(0)


class _Asking:
    """A client that is read without blocking, so that slow or stopped clients do not delay others."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.said = self.early = b""  # early: signals that came before the server had forked
        self.streams: list[int] = []

    def hear(self) -> Request | Literal[False] | None:
        """Read available data; return the request, None while it is incomplete, or False if it cannot be completed."""
        try:
            more, streams, *_ = socket.recv_fds(self.client, 65536, 3, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return False
        self.said += more
        self.streams += streams
        length = 8 + int.from_bytes(self.said[:8], "big")
        if len(self.said) < max(length, 9):
            return None if more else False
        self.early = self.said[length:]
        with contextlib.suppress(ValueError, TypeError):
            if len(self.streams) == 3:
                return Request(*json.loads(self.said[8:length]))
        return False


def _next_byte(connection: int) -> int:
    with contextlib.suppress(ConnectionResetError):
        return (os.read(connection, 1) or b"\0")[0]
    return 0


def _end_with(server: int) -> None:
    """Ask the kernel to kill this process when the server dies, because only the server reports exit statuses to
    clients.
    """
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG
    if os.getppid() != server:
        os._exit(1)


def run_fork(request: Request, streams: list[int], early: bytes, main: Callable[[list[str]], None]) -> None:
    """Become, in a fork, the requested process: receive the early signals, run ``main`` with its arguments, and end."""
    import atexit
    import threading

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request.folder)
    os.umask(request.mask)
    os.environ.clear()
    os.environ.update(request.environment)
    tempfile.tempdir = None
    status = 0
    try:
        for number in early:
            signal.raise_signal(number)
        main(request.arguments)
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
    from ..pipeline.stage import stages

    names = ["ir_measures", "pandas", "pyarrow.compute", "pyarrow.parquet"]
    if kind == "models":
        names = ["faiss", "sentence_transformers", "transformers.models.bert.modeling_bert"]
    many = [stage for stage in stages().values() if stage.rule not in ("aggregate", "report", "analyses")]
    modules = [stage.run.partition(":")[0] for stage in many if stage.runs_models == (kind == "models")]
    return [*names, *(f"beirgrid.{module}" for module in dict.fromkeys(modules))]


def prepare(libraries: list[str]) -> None:
    """Import libraries and run the slow initialisation of transformers once for all forks."""
    import importlib

    for library in libraries:
        importlib.import_module(library)
    if mapping := sys.modules.get("transformers.conversion_mapping"):
        mapping.get_checkpoint_conversion_mapping("bert")  # compiles a thousand patterns


def _main(arguments: list[str]) -> None:
    """Run a forked command, as ``python`` would."""
    import runpy

    os.environ.pop(FOLDER, None)
    sys.argv = arguments[:1] + arguments[2:]
    runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run_fork(*serve(Path(sys.argv[2]), int(sys.argv[3]), partial(prepare, libraries(sys.argv[1]))), _main)
