"""Only the working directory is writable: not home, not ir_datasets' folder, not the installed packages."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, fetch_corpus, fetch_dataset, write_collection
from stage_words import stage_job

from beirgrid.core import files
from beirgrid.runs import runs

# Rankings in which q1 finds its document first and q2 second.
RUN = {"q1": ["d1", "d2"], "q2": ["d1", "d2"]}


def _mounted(command: list[str]) -> list[str]:
    """Return the command behind a read-only mount of the package, in a namespace of its own."""
    folder = str(ROOT / "workflow")
    steps = [["mount", "--bind", folder, folder], ["mount", "-o", "remount,ro,bind", folder]]
    return ["unshare", "--mount", "sh", "-c", " && ".join(map(shlex.join, [*steps, command]))]


@pytest.fixture(params=["home", "home and packages"])
def interpreter(request, tmp_path):
    """Run Python where the home, and perhaps the installed packages, cannot be written.

    "packages if possible" makes the packages read-only only where this process may mount folders.
    """
    nowhere = "/dev/null/home"  # below a file: not even root can make it
    kept = {key: value for key, value in os.environ.items() if key not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    environment = {**kept, "HOME": nowhere, "IR_DATASETS_HOME": f"{nowhere}/ir_datasets"}
    environment["PYTHONPATH"] = str(ROOT / "workflow")
    read_only = request.param != "home"
    if read_only:
        able = shutil.which("unshare") and subprocess.run(_mounted(["true"]), capture_output=True, check=False)
        read_only = bool(able) and able.returncode == 0
        if not read_only and request.param == "home and packages":
            pytest.skip("only root may mount folders read-only")

    def call(*arguments: str, job: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(
            _mounted(command) if read_only else command,
            cwd=tmp_path,
            env=environment,
            input=job,
            text=True,
            capture_output=True,
            check=False,
        )

    return call


@pytest.mark.slow
def test_local_data_are_fetched_and_evaluated(interpreter, tmp_path):
    documents = [{"_id": "d1", "text": "one"}, {"_id": "d2", "text": "two"}]
    queries = [{"_id": "q1", "text": "first"}, {"_id": "q2", "text": "second"}]
    qrels = {"test": [("q1", "d1", 1), ("q2", "d2", 1)]}
    source = {"source": "local", "path": str(write_collection(tmp_path / "mine", documents, queries, qrels))}
    ranked = {query: runs.canonical(query, ids, [2.0, 1.0]) for query, ids in RUN.items()}
    runs.write(tmp_path / "a.run.gz", ranked, "a")
    evaluate = ["evaluate", "--system", "a", "--dataset", "mine", "--run", "a.run.gz", "--qrels", "qrels.tsv"]
    evaluate += ["--metrics", "mrr@10", "--output", "m.json", "--per-query", "m.parquet"]
    for command in (fetch_corpus(source, Path(), "mine"), fetch_dataset(source, Path(), "mine"), evaluate):
        words, job = stage_job(*command)
        done = interpreter("-m", "beirgrid", *words, job=job)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
    assert files.read_json(tmp_path / "m.json")["facts"]["means"] == {"mrr@10": 0.75}


@pytest.mark.slow
@pytest.mark.parametrize("interpreter", ["packages if possible"], indirect=True)
def test_permutations_are_compiled_where_no_cache_can_be_kept(interpreter):
    program = (
        "import numpy as np; from beirgrid.analysis import draws; "
        "print(draws.permuted_ranges(np.ones((3, 2, 1)), np.uint64(1), 2).ravel().tolist())"
    )
    done = interpreter("-c", program)
    assert (done.returncode, done.stdout) == (0, "[0.0, 0.0]\n"), done.stderr
