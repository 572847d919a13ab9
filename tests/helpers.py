"""Helpers of tests: write a collection, run Snakemake, run one stage."""

from __future__ import annotations

import atexit
import contextlib
import copy
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import filelock
import forkserver
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from snakemake.api import SnakemakeApi
from snakemake.rules import Rule
from snakemake.settings.enums import Quietness
from snakemake.settings.types import OutputSettings, ResourceSettings, WorkflowSettings
from snakemake_interface_executor_plugins.settings import ExecMode
from stage_words import stage_job

from beirgrid import __main__
from beirgrid.core.provenance import Made, read_record
from beirgrid.execution import forks
from beirgrid.graph.dag import by_function
from beirgrid.graph.job import JobRecord
from beirgrid.graph.stage import Stage
from beirgrid.tools import run

ROOT = Path(__file__).parent.parent
Rows = list[dict[str, Any]]
# Environment variable in which the first process of a test run passes its Python to the others.
FORKING = "BEIRGRID_TEST_PYTHON"
# A program that runs commands with their inputs, which it reads as JSON, in one process: a process for each would
# import anew.
COMMANDS = """
import io, json, sys
from beirgrid.__main__ import main
for words, text in json.load(sys.stdin):
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
    assert main(words) == 0, words
"""


def documented_models(page: str) -> dict[str, Any]:
    """Return the entries of models in the YAML examples of a page of docs/, by name."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    examples = (yaml.safe_load(block) for block in blocks)
    return {name: entry for example in examples for name, entry in example.get("models", {}).items()}


def copy_checkout(target: Path) -> Path:
    """Copy the checkout without generated files, and return the copy."""

    def made(folder: str, names: list[str]) -> set[str]:
        own = {"results", "logs"} if Path(folder) == ROOT else set()
        return {name for name in names if name in own or name.startswith(".") or name == "__pycache__"}

    return Path(shutil.copytree(ROOT, target, symlinks=True, ignore=made))


def run_copy(checkout: Path, *words: str | Path, status: int = 0) -> str:
    """Run a module, such as ``snakemake``, with the package of a copied checkout; return all that it prints."""
    done = subprocess.run(
        [python(), "-m", *map(str, words)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "workflow")},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


def install_beside(folder: Path, *pins: str) -> None:
    """Install packages, without what they require, into a folder that a Python path or an environment may name."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    subprocess.run([*install, "--ignore-requires-python", "--target", folder, *pins], check=True)


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive into a folder and return the folder. Python 3.11.0 to 3.11.3 have no filters of members."""
    shutil.unpack_archive(archive, folder, **{"filter": "data"} if hasattr(tarfile, "data_filter") else {})
    return folder


def write_collection(folder: Path, documents: list[dict], queries: list[dict], qrels: dict[str, list[tuple]]) -> Path:
    """Write a folder in BEIR layout and return it."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", documents), ("queries", queries)):
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    for split, judgements in qrels.items():
        lines = ["query-id\tcorpus-id\tscore\n", *("\t".join(map(str, row)) + "\n" for row in judgements)]
        (folder / "qrels" / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


def fetch_corpus(source: dict[str, Any], out: Path, name: str = "tiny") -> list[str]:
    """Return the words of the command that fetches a corpus to ``corpus.parquet`` of a folder."""
    written = ["--output", f"{out}/corpus.parquet", "--record", f"{out}/corpus.json"]
    return ["fetch", "corpus", "--name", name, "--entry", json.dumps(source), *written]


def fetch_dataset(source: dict[str, Any], out: Path, name: str = "tiny", **entry: Any) -> list[str]:
    """Return the words of the command that fetches queries and qrels beside the corpus that ``fetch_corpus`` wrote."""
    entries = ["--entry", json.dumps({"corpus": name, **entry}), "--corpus-entry", json.dumps(source)]
    written = ["--queries", f"{out}/queries.parquet", "--qrels", f"{out}/qrels.tsv", "--record", f"{out}/dataset.json"]
    return ["fetch", "dataset", "--name", name, *entries, "--corpus", f"{out}/corpus.parquet", *written]


def fetch_collection(folder: Path, documents: list[dict], queries: list[dict], qrels: list[tuple]) -> Path:
    """Write a collection into a folder, fetch it there (corpus.parquet, queries.parquet, qrels.tsv), and return it."""
    source = {"source": "local", "path": str(write_collection(folder / "raw", documents, queries, {"test": qrels}))}
    assert main(fetch_corpus(source, folder)) == main(fetch_dataset(source, folder)) == 0
    return folder


def tracked_configuration(*more: str) -> dict[str, Any]:
    """Return the tracked configuration, merged as Snakemake merges it, with more files of config/ over it."""
    return copy.deepcopy(_merged(more))


@cache
def _merged(more: tuple[str, ...]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for name in ("datasets", "systems", "config", *more):
        merged.update(yaml.safe_load((ROOT / "config" / f"{name}.yaml").read_text()))
    return merged


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that the first process of a test run fills for all its processes."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with filelock.FileLock(f"{folder}.lock"):
        if not (done := folder.with_suffix(".done")).exists():
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def quick_first(cases: Iterable[Any]) -> list[Any]:
    """Mark all cases but the first as slow."""
    quick, *others = cases
    return [
        quick,
        *(pytest.param(*(case if isinstance(case, tuple) else [case]), marks=pytest.mark.slow) for case in others),
    ]


@cache
def python() -> str:
    """Return the Python that starts commands: a forking one on Linux machines without a GPU driver."""
    if shared := os.environ.get(FORKING):
        return shared
    if not forks.possible():
        return sys.executable
    folder = tempfile.mkdtemp(prefix="beirgrid-forks-")
    atexit.register(shutil.rmtree, folder)
    return str(forkserver.install(Path(folder)))


def snakemake(*arguments: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run Snakemake as a user does; standard output and error come back together."""
    command = [python(), "-m", "snakemake", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def forked_snakemake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run Snakemake, of commands in this process, with the Python that forks Snakemake and its jobs."""
    command = run.Snakemake.command

    def forked(how: run.Snakemake, configfiles: Sequence[Path]) -> list[str]:
        words = command(how, configfiles)
        return [python(), "-m", *words[words.index("snakemake") :]]

    monkeypatch.setattr(run.Snakemake, "command", forked)


def main(words: Sequence[str]) -> int:
    """Run a command, or a stage with the job that its words describe, in this process."""
    return _with_input(*stage_job(*words))


def run_job(job: Mapping[str, Any]) -> int:
    """Run a job as its record keeps it, in this process."""
    return _with_input(["stage", job["stage"]], json.dumps(job))


def write_record(stage: Stage, path: str | Path, outputs: Iterable[str | Path] = (), **of_job: Any) -> None:
    """Write the record of artifacts that are there, as the runner does for a job of a stage.

    ``of_job`` are parts of the job, its digest, and ``facts`` and ``results``.
    """
    made = Made(of_job.pop("facts", {}), of_job.pop("results", {}))
    job = {"stage": stage.function, "outputs": dict(enumerate(map(str, outputs))), **of_job}
    JobRecord(stage.stamp, job).write(Path(path), made)


def run_work(function: Callable[..., Any], record: Path, *inputs: str, **values: Any) -> dict[str, Any]:
    """Run the work of a stage with these values and write its record, which is returned.

    ``inputs`` names the values that are artifacts of other stages.
    """
    stage = by_function()[function.__name__]
    outputs = [name for name in ("output", *stage.outputs) if name in values and name not in inputs]
    job = {"stage": stage.function, "inputs": _texts(values, inputs), "outputs": _texts(values, outputs)}
    recorder = JobRecord(stage.stamp, job)
    made = function(**values)
    recorder.write(record, made if isinstance(made, Made) else Made(made))
    return read_record(record)


def _texts(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    lists = {name: values[name] for name in names}
    return {name: [*map(str, one)] if isinstance(one, list | tuple) else str(one) for name, one in lists.items()}


def _with_input(words: list[str], text: str) -> int:
    with mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()))):
        return __main__.main(words)


def set_step(*words: object) -> None:
    """Run a command of ``beirgrid set`` in this process; its errors are raised."""
    arguments = __main__._parse(["set", *map(str, words)])
    arguments.call(arguments)


def beirgrid(
    *words: str | Path, cwd: Path = ROOT, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run a command, or a stage with the job that its words describe."""
    arguments, text = stage_job(*words)
    variables = {**environment, "PYTHONPATH": str(ROOT / "workflow")}
    command = [python(), "-m", "beirgrid", *arguments]
    return subprocess.run(command, cwd=cwd, env=variables, input=text, text=True, capture_output=True, check=False)


def stage_processes(folder: Path) -> dict[int, str]:
    """Return process id to stage of the stages that run in ``folder``."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"beirgrid" in words[2:4] and b"stage" in words and (entry / "cwd").resolve() == folder.resolve():
                found[int(entry.name)] = words[words.index(b"stage") + 1].decode().partition("_")[0]
        except (OSError, ValueError, IndexError):
            continue
    return found


@cache
def rules() -> dict[str, Rule]:
    """Load Snakemake's rules of the tracked configuration by name, as a cluster job does."""
    quiet = OutputSettings(quiet={Quietness.ALL})
    mode = WorkflowSettings(exec_mode=ExecMode.SUBPROCESS)  # starts no recorder
    with TemporaryDirectory() as folder, contextlib.chdir(folder), SnakemakeApi(quiet) as api:
        workflow = api.workflow(ResourceSettings(cores=1), workflow_settings=mode, snakefile=ROOT / "Snakefile")
        return {rule.name: rule for rule in workflow._workflow.rules if rule.name != "all"}


def hub(folder: Path, configurations: dict[str, dict[str, Rows]], suffix: str = "parquet") -> str:
    """Write a dataset repository: data files, and a card that says which configuration and split each is."""
    card = []
    for name, splits in configurations.items():
        files = []
        for split, rows in splits.items():
            path = folder / name / f"{split}-00000-of-00001.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            if suffix == "parquet":
                pq.write_table(pa.Table.from_pylist(rows), path)
            else:
                path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            files.append({"split": split, "path": f"{name}/{path.name}"})
        card.append({"config_name": name, "data_files": files})
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump({'configs': card})}---\n")
    return str(folder)
