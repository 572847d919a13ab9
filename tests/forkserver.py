"""Python processes without the interpreter's start: ``-m`` of some packages and ``-c`` are forked.

``install`` writes a program named ``python``. Started with one of these, the program asks a server, which has
imported the libraries and this checkout's package, to fork, and stands in for the fork: same arguments,
environment, folder and streams (``beirgrid.execution.forks``). Snakemake, forked, takes the program as its
``sys.executable``, so its jobs are forked too. The program becomes the real Python for all else, and where the
environment is not the one that the libraries were imported in. A server starts with the first process that needs it and
ends with the process that called ``install``, whose children may share it.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

OWN = str(Path(__file__).parent.parent / "workflow")
ALL = ["beirgrid.config", "numpy", "pandas", "pyarrow.parquet", "pyarrow.compute", "scipy.sparse", "faiss", "numba"]
LIGHT = [*ALL, "jinja2", "psutil", "matplotlib.backends.backend_pdf"]
LIGHT += [
    "matplotlib.backends.backend_svg",
    "matplotlib.style",
    "beirgrid.stages.aggregate.work",
    "beirgrid.stages.report.work",
]
LIGHT += ["beirgrid.tools.reporting"]
MODELS = [*ALL, "datasets", "sentence_transformers", "transformers.models.bert.modeling_bert"]
SNAKEMAKE = ["snakemake.cli", "snakemake.workflow", "snakemake.profiles", "snakemake.report.html_reporter"]
SNAKEMAKE += ["snakemake.storage", "smart_open", "jsonschema", "beirgrid.execution.events"]
SNAKEMAKE += ["beirgrid.graph.rules"]
LIBRARIES = {"snakemake": SNAKEMAKE, "light": LIGHT, "models": MODELS}
NO_MODEL = {"rerank", "fuse", "evaluate", "aggregate", "report", "analyse", "status", "retrieve_lexical"}
NO_MODEL |= {f"fetch_{kind}" for kind in ("corpus", "dataset", "expansion", "model", "run")}
NO_MODEL |= {f"index_{kind}" for kind in ("lexical", "vectors", "approximate")}
# Libraries read these variables on import, so each number of threads has its own servers.
THREADS = [f"{name}_NUM_THREADS" for name in ("OMP", "GOTO", "OPENBLAS", "MKL", "NUMEXPR")]
# No library reads these variables on import.
FREE = {"PYTHONPATH", "PYTHONSAFEPATH", "PATH", "PWD", "OLDPWD", "SHLVL", "_", "TERM", "LINES", "COLUMNS", *THREADS}
FREE |= {"VECLIB_MAXIMUM_THREADS", "TMPDIR", "TEMPDIR", "TEMP", "TMP"}
# Libraries set these variables in the process that imports them, such as the test process.
FREE |= {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "TORCHINDUCTOR_CACHE_DIR", "_RJEM_MALLOC_CONF"}
# beirgrid sets the first where it starts Java, which no server does. PyTorch and beirgrid read the others when they
# look for a GPU.
FREE |= {"JAVA_HOME", "CUDA_VISIBLE_DEVICES", "XDG_RUNTIME_DIR"}
# Only pyserini reads these variables, and no server imports it.
FREE |= {"JVM_PATH", "ANSERINI_CLASSPATH", "CLASSPATH", "OPENAI_API_KEY"}
# Java, which no server starts, reads the first. Configurations and programs of tests name the others.
FREE |= {"JAVA_TOOL_OPTIONS", "TESTED_KEY", "TESTED_URL", "ENGINE_KEY", "ENGINE_URL"}
FORKED = {"beirgrid", "snakemake", "pyserini"}
# Only the hub's client reads these variables, which only servers for models import.
HUB = ("HF_", "NO_PROXY")


def environment(kind: str = "models") -> dict[str, str]:
    """Return the environment variables in which a forked process must not differ from its server."""
    free = "BEIRGRID_", "PYTEST_", *HUB * (kind != "models")
    return {name: value for name, value in os.environ.items() if not (name in FREE or name.startswith(free))}


def install(folder: Path) -> Path:
    """Write the program into a folder and return its path. Its servers end with this process."""
    program = folder / "python"
    here, owner = str(Path(__file__).parent), os.getpid()
    call = f"import sys; sys.path[:0] = {[here, OWN]}; import forkserver; forkserver.main({str(folder)!r}, {owner})"
    program.write_text(f"#!{sys.executable} -IS\n{call}\n")
    program.chmod(0o755)
    (folder / "environment.json").write_text(json.dumps({kind: environment(kind) for kind in LIBRARIES}))
    return program


def main(folder: str, owner: int) -> None:
    """Run the program ``python``."""
    from beirgrid.execution import forks

    kind, words = "models", set(sys.argv[3:7])
    if sys.argv[1:3] == ["-m", "snakemake"] or "plan" in words:  # which runs Snakemake
        kind = "snakemake"
    elif NO_MODEL & words:
        kind = "light"
    known = json.loads(Path(folder, "environment.json").read_text())
    runs = sys.argv[1:4] in (["-m", "beirgrid", "run"], ["-m", "beirgrid", "demo"])  # Snakemake, with the real Python
    if runs or (kind == "snakemake" and environment() != known["models"]):
        os.environ.pop(forks.FOLDER, None)  # what cannot be forked from here is forked from the run's own servers
    starts = any(Path(entry, "sitecustomize.py").exists() for entry in _added())  # which the interpreter's start runs
    forked = sys.argv[1:2] == ["-c"] or (sys.argv[1:2] == ["-m"] and sys.argv[2].partition(".")[0] in FORKED)
    if not starts and forked and environment(kind) == known[kind]:
        path = Path(folder, "-".join([kind, *(os.environ.get(name, "") for name in THREADS)]))
        server = ["env", "-u", "PYTHONPATH", sys.executable, "-P", __file__, kind, str(path), str(owner)]
        if connection := forks.connect(path, server):
            forks.act_as_proxy(connection, sys.argv[1:])
        sys.exit(f"{path.name}: the server has ended; its messages are in {path}.log")
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


def _added() -> list[str]:
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]


def _prepare(kind: str, python: Path) -> None:
    if kind == "snakemake":
        sys.executable = str(python)
    prepare([*LIBRARIES[kind], *(libraries(kind) if kind != "snakemake" else [])])
    if kind == "snakemake":
        from snakemake.cli import get_argument_parser

        get_argument_parser()  # looks for plugins, once for all forks
    sys.path.remove(OWN)


def _run(arguments: list[str]) -> None:
    """Execute the arguments of ``python`` in a fork."""
    import runpy

    option, program, *others = arguments
    sys.argv = [option, *others]
    added = _added()
    sys.path[:0] = added if os.environ.get("PYTHONSAFEPATH") else [str(Path.cwd()), *added]
    of_checkout = program == "snakemake" and Path.cwd() == Path(OWN).parent and "--snakefile" not in others
    if added[:1] != [OWN] and not of_checkout:  # another checkout's package may be imported
        for name in [name for name in sys.modules if name.partition(".")[0] == "beirgrid"]:
            del sys.modules[name]
    if option == "-c":
        exec(program, {"__name__": "__main__"})
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.path.insert(0, OWN)
    from beirgrid.execution.forks import libraries, prepare, run_fork, serve

    kind, path = sys.argv[1], Path(sys.argv[2])
    run_fork(serve(path, int(sys.argv[3]), partial(_prepare, kind, path.parent / "python")), _run)
