"""Python processes without the interpreter's start: ``-m`` of some packages and ``-c`` are forked.

``install`` writes a program named ``python``. Started with one of these, the program asks a server, which has
imported the libraries and this checkout's configuration, to fork, and stands in for the fork: same arguments,
environment, folder, mask and streams; the exit status comes back and signals go there. Snakemake, forked, takes the
program as its ``sys.executable``, so its jobs are forked too. The program becomes the real Python for all else, and
where the environment is not the one that the libraries were imported in. A server starts with the first process that
needs it and ends with the process that called ``install``, whose children may share it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path

OWN = str(Path(__file__).parent.parent / "workflow")
ALL = ["beirgrid.config", "numpy", "pandas", "pyarrow.parquet", "pyarrow.compute", "scipy.sparse", "faiss", "numba"]
LIGHT = [*ALL, "jinja2", "psutil", "statsmodels.stats.multitest"]
MODELS = [*ALL, "datasets", "sentence_transformers", "transformers.models.bert.modeling_bert"]
SNAKEMAKE = ["snakemake.cli", "snakemake.workflow", "snakemake.profiles", "snakemake.report.html_reporter"]
SNAKEMAKE += ["snakemake.storage", "smart_open", "jsonschema"]
LIBRARIES = {"snakemake": SNAKEMAKE, "light": LIGHT, "models": MODELS}
NO_MODEL = {"fetch", "index", "lexical", "rerank", "fuse", "evaluate", "aggregate", "page", "report", "analyse"}
NO_MODEL |= {"status"}
# Libraries read these when they are imported; each number of threads has its own servers.
THREADS = [f"{name}_NUM_THREADS" for name in ("OMP", "GOTO", "OPENBLAS", "MKL", "NUMEXPR")]
# No library reads these when it is imported.
FREE = {"PYTHONPATH", "PYTHONSAFEPATH", "PATH", "PWD", "OLDPWD", "SHLVL", "_", "LINES", "COLUMNS", *THREADS}
FREE |= {"VECLIB_MAXIMUM_THREADS", "TMPDIR", "TEMPDIR", "TEMP", "TMP"}
# Libraries set these in the process that imports them, such as that of the tests.
FREE |= {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "TORCHINDUCTOR_CACHE_DIR"}
# beirgrid sets the first where it starts Java, which no server does. PyTorch and beirgrid read the others when they
# look for a GPU.
FREE |= {"JAVA_HOME", "CUDA_VISIBLE_DEVICES", "XDG_RUNTIME_DIR"}
# pyserini reads these, which no server imports.
FREE |= {"JVM_PATH", "ANSERINI_CLASSPATH", "CLASSPATH", "OPENAI_API_KEY"}
FORKED = {"beirgrid", "snakemake", "pyserini"}
# The hub's client reads these, which is among the libraries of models alone.
HUB = ("HF_", "NO_PROXY")


def environment(kind: str = "models") -> dict[str, str]:
    """Return the part of the environment in which a forked process must not differ from its server."""
    free = "BEIRGRID_", "PYTEST_", *HUB * (kind != "models")
    return {name: value for name, value in os.environ.items() if not (name in FREE or name.startswith(free))}


def install(folder: Path) -> Path:
    """Write the program into a folder and return its path; its servers end with this process."""
    program = folder / "python"
    here, owner = str(Path(__file__).parent), os.getpid()
    call = f"import sys; sys.path.insert(0, {here!r}); import forkserver; forkserver.main({str(folder)!r}, {owner})"
    program.write_text(f"#!{sys.executable} -IS\n{call}\n")
    program.chmod(0o755)
    (folder / "environment.json").write_text(json.dumps({kind: environment(kind) for kind in LIBRARIES}))
    return program


def main(folder: str, owner: int) -> None:
    """Be the program ``python``."""
    kind, words = "models", set(sys.argv[3:7])
    if sys.argv[1:3] == ["-m", "snakemake"] or "plan" in words:  # which runs Snakemake
        kind = "snakemake"
    elif NO_MODEL & words:
        kind = "light"
    known = json.loads(Path(folder, "environment.json").read_text())[kind]
    starts = any(Path(entry, "sitecustomize.py").exists() for entry in _added())  # which the interpreter's start runs
    forked = sys.argv[1:2] == ["-c"] or (sys.argv[1:2] == ["-m"] and sys.argv[2].partition(".")[0] in FORKED)
    if starts or not forked or environment(kind) != known:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    path = Path(folder, "-".join([kind, *(os.environ.get(name, "") for name in THREADS)]))
    connection = socket.socket(socket.AF_UNIX)
    with Path(f"{path}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _start(kind, path, owner)
        connection.connect(str(path))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda number, _: connection.send(bytes([number])))
    os.umask(mask := os.umask(0))
    text = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), mask]).encode()  # noqa: PTH109
    socket.send_fds(connection, [len(text).to_bytes(8, "big")], [0, 1, 2])
    connection.sendall(text)
    answer = connection.recv(8)
    if not answer:
        sys.exit(f"{path.name}: the server has ended; its messages are in {path}.log")
    status = int.from_bytes(answer, "big", signed=True)
    if status < 0:  # killed by a signal: so is this process
        with contextlib.suppress(OSError):  # of SIGKILL, nothing can be set
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _added() -> list[str]:
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]


def _start(kind: str, path: Path, owner: int) -> None:
    import subprocess  # here, as below, and not in each process that a server stands in for

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-P", __file__, kind, str(path), str(owner)]
    with Path(f"{path}.log").open("w") as log:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
    while not path.exists() and process.poll() is None:
        select.select([], [], [], 0.01)


def _serve(kind: str, path: Path, owner: int) -> tuple[list, list[int]]:
    """Fork a process per connection; return, in the fork, what is asked of it and its standard streams."""
    import gc
    import importlib

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{path}.new")
    listener.listen(64)
    Path(f"{path}.new").rename(path)  # clients now wait until the libraries are imported
    if kind == "snakemake":
        sys.executable = str(path.parent / "python")
    sys.path.insert(0, OWN)
    for library in LIBRARIES[kind]:
        importlib.import_module(library)
    sys.path.remove(OWN)
    if numba := sys.modules.get("numba"):
        numba.njit(lambda: None)()  # the first call makes the compiler ready, for all forks
    if mapping := sys.modules.get("transformers.conversion_mapping"):
        mapping.get_checkpoint_conversion_mapping("bert")  # compiles a thousand patterns, as the first model does
    gc.freeze()
    ended = os.pidfd_open(owner)
    forks: dict[int, tuple[int, socket.socket]] = {}  # the process and its client, by the process's descriptor
    while True:
        clients = {client.fileno(): pid for pid, client in forks.values()}
        for ready in select.select([listener, ended, *forks, *clients], [], [])[0]:
            if ready == ended:
                os._exit(0)
            elif ready is listener:
                client = listener.accept()[0]
                length, streams, *_ = socket.recv_fds(client, 8, 3)
                request = client.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
                if (pid := os.fork()) == 0:
                    return json.loads(request), streams
                for stream in streams:
                    os.close(stream)
                forks[os.pidfd_open(pid)] = (pid, client)
            elif ready in forks:
                pid, client = forks.pop(ready)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                os.close(ready)
                clients.pop(client.fileno(), None)
                with contextlib.suppress(BrokenPipeError), client:
                    client.sendall(status.to_bytes(8, "big", signed=True))
            elif ready in clients:  # a signal, or the end of a client that was killed
                os.kill(clients[ready], (os.read(ready, 1) or bytes([signal.SIGKILL]))[0])


def _become(request: list, streams: list[int]) -> None:
    """Be, in a fork, the process that was asked for."""
    import atexit
    import runpy
    import tempfile
    import threading

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    (option, program, *arguments), environment, folder, mask = request
    sys.argv = [option, *arguments]
    os.chdir(folder)
    os.umask(mask)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    added = _added()
    sys.path[:0] = added if os.environ.get("PYTHONSAFEPATH") else [folder, *added]
    if added[:1] != [OWN]:  # another checkout's package may be imported
        for name in [name for name in sys.modules if name.partition(".")[0] == "beirgrid"]:
            del sys.modules[name]
    status = 0
    try:
        if option == "-c":
            exec(program, {"__name__": "__main__"})
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    # The interpreter's end, without taking the libraries down: that takes as long as a small job.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    _become(*_serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
