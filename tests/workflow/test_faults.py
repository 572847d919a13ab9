"""Faults during a grid: killed jobs, a killed Snakemake, broken models; the table stays the same."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import ROOT, beirgrid, stage_processes
from small import SYSTEMS, finish, run, table

from beirgrid.execution import forks

QUICK = {"fetch", "index", "rerank", "fuse", "evaluate", "aggregate", "report"}  # done within half a second
STAGES = ["fetch", "train", "encode", "index", "retrieve", "score", "rerank", "fuse", "evaluate", "aggregate", "report"]
# Systems of the small grid that need all of these stages. Their scores depend on no other system.
FEW = {name: SYSTEMS[name] for name in ("bm25-flat", "tiny", "bm25+ce", "bm25+trained", "fused")}


def _command(configfile: Path, folder: Path) -> list[str | Path]:
    command = [sys.executable, "-m", "snakemake", "--cores", "2"]
    return [*command, "--configfile", configfile, "--directory", folder]


def _start(configfile: Path, folder: Path, *options: str, **variables: str) -> subprocess.Popen[bytes]:
    """Start Snakemake, which forks its own jobs, with more variables in its environment."""
    command = [*_command(configfile, folder), "--rerun-incomplete", *options]
    environment = {name: value for name, value in os.environ.items() if name != forks.FOLDER} | variables
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)


def _lead() -> None:
    """Become the leader of the terminal, and accept its hangup, which ``nohup`` would ignore."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _start_in_a_terminal(configfile: Path, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start Snakemake as the leader of a terminal's session; return the process and the terminal's other end."""
    ours, theirs = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    process = subprocess.Popen(
        _command(configfile, folder), cwd=ROOT, start_new_session=True, preexec_fn=_lead, **streams
    )
    os.close(theirs)
    return process, ours


def _table(folder: Path) -> list[dict[str, str]]:
    """Return the rows of the systems in FEW."""
    return [row for row in table(folder) if row["system"] in FEW]


def _screen(folder: Path) -> str:
    return beirgrid("status", "--directory", folder).stdout


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name, as the address of a socket has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="f") as folder:
        yield Path(folder)


@pytest.mark.slow
def test_a_kill_in_every_stage_costs_nothing_that_was_finished(finished, small_grid, tmp_path, short):
    """Jobs that a run forks from its own servers make the same files as those of the tests' Python."""
    killed: set[str] = set()
    servers: set[str] = set()
    process = _start(small_grid(tmp_path, systems=FEW), tmp_path, "--retries", "1", TMPDIR=str(short))
    while process.poll() is None:
        with contextlib.suppress(FileNotFoundError):  # the folder goes at the end
            servers |= {path.stem.partition("-")[0] for path in short.glob("beirgrid-*/*.log")}
        for pid, stage in stage_processes(tmp_path).items():
            if stage not in killed:
                # Into the work: past the interpreter's start, before the end.
                time.sleep(0.0 if stage in QUICK else 0.15)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.add(stage)
        time.sleep(0.01)
    assert process.returncode == 0
    assert killed == set(STAGES)
    assert _table(tmp_path) == _table(finished)
    for path in ("runs/tiny/small.run.gz", "runs/bm25+ce/small.run.gz", "metrics/bm25-flat/small.per-query.parquet"):
        assert (tmp_path / "results" / path).read_bytes() == (finished / "results" / path).read_bytes()
    assert not list((tmp_path / "results").rglob("*beirgrid-tmp*"))
    assert servers == ({"light", "models"} if forks.possible() else set())  # jobs are not forked where there is a GPU
    assert not list(short.glob("beirgrid-*"))


@pytest.mark.slow
def test_a_killed_snakemake_finishes_when_its_command_is_repeated(finished, small_grid, tmp_path):
    configfile = small_grid(tmp_path, systems=FEW)
    process = _start(configfile, tmp_path)
    while not re.search(r"^  (fetch|encode)\S* .* 0:00:\d\d  ", screen := _screen(tmp_path), re.MULTILINE):
        assert process.poll() is None  # between two jobs
    assert screen.startswith("running for 0:00:")
    process.kill()
    process.wait()
    screen = _screen(tmp_path)
    assert screen.startswith("died after 0:00:")
    assert "Run it again" in screen
    while stage_processes(tmp_path):  # orphans write their whole files and end
        time.sleep(0.1)
    finish(configfile, tmp_path, "--rerun-incomplete")
    assert _screen(tmp_path).startswith("finished")
    assert _table(tmp_path) == _table(finished)


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return sizes and times of results."""
    places = (folder / "results").rglob("*")
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in places if path.is_file()}


@pytest.mark.slow
def test_a_second_run_in_the_folder_is_refused_and_changes_nothing(small_grid, tmp_path):
    """The second run may have the same grid, one that needs its files, or one that shares none of them."""
    (tmp_path / "small.trec").write_text("".join(f"q0 Q0 d{i} 0 {20 - i} t\n" for i in range(10)))
    systems = {name: {"run": "{dataset}.trec", "allow": ["missing-queries"]} for name in ("one", "two")}
    grids = {
        name: small_grid(tmp_path / name, systems=systems, grid={"name": name, "systems": used, "datasets": ["small"]})
        for name, used in (("first", ["one"]), ("more", ["one", "two"]), ("other", ["two"]))
    }
    finish(grids["other"], tmp_path, "results/datasets/small/qrels.tsv")
    process = _start(grids["first"], tmp_path)
    try:
        while "evaluate" not in stage_processes(tmp_path).values():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGSTOP)
        while stage_processes(tmp_path):  # the job ends, and Snakemake does not know yet
            time.sleep(0.05)
        before = _files(tmp_path)
        for grid in grids.values():
            second = run(grid, tmp_path, "--nocolor", "--quiet", "host")
            assert second.returncode != 0
            assert f"Grid first (process {process.pid} of " in second.stdout
            assert f"works in {tmp_path}: wait until it ends" in second.stdout
            assert "--unlock" not in second.stdout
            assert _files(tmp_path) == before
        assert _screen(tmp_path).startswith("running for")
        finish(grids["more"], tmp_path, "--dry-run")
        finish(grids["first"], tmp_path, "--unlock")  # which removes Snakemake's own lock
        assert f"works in {tmp_path}: wait until it ends" in run(grids["first"], tmp_path).stdout
    finally:
        process.send_signal(signal.SIGCONT)
    assert process.wait(timeout=300) == 0
    finish(grids["more"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("hangup", ["signal", "terminal"])
def test_a_hangup_ends_the_run_without_orphans_or_a_lock(small_grid, tmp_path, hangup):
    configfile = small_grid(tmp_path, grid={"systems": ["bm25-flat"], "datasets": ["small"]})
    process, terminal = _start_in_a_terminal(configfile, tmp_path)
    while "index" not in stage_processes(tmp_path).values():
        assert process.poll() is None
        if select.select([terminal], [], [], 0.05)[0]:
            os.read(terminal, 65536)  # a terminal that nobody reads fills up
    if hangup == "signal":
        process.send_signal(signal.SIGHUP)
        os.set_blocking(terminal, False)
        while process.poll() is None:
            if select.select([terminal], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):
                    os.read(terminal, 65536)
    os.close(terminal)
    assert process.wait(timeout=300) > 0  # it ended by itself: a signal that kills gives a negative number
    assert not stage_processes(tmp_path)
    assert _screen(tmp_path).startswith("ended unfinished")
    finish(configfile, tmp_path)  # neither --unlock nor --rerun-incomplete


@pytest.mark.slow
def test_nan_weights_are_named_and_nothing_is_written(small_grid, tiny_models, tmp_path):
    from safetensors.torch import load_file, save_file

    shutil.copytree(tiny_models["dense"], tmp_path / "broken")
    weights = load_file(tmp_path / "broken/model.safetensors")
    weights["embeddings.word_embeddings.weight"][10:] = float("nan")
    save_file(weights, tmp_path / "broken/model.safetensors", metadata={"format": "pt"})
    model = {"family": "dense", "path": str(tmp_path / "broken"), "similarity": "cosine"}
    configfile = small_grid(tmp_path, models={"tiny-dense": model}, systems={"tiny": {"retriever": "tiny-dense"}})
    done = run(configfile, tmp_path, "--show-failed-logs")
    assert done.returncode != 0
    assert "has values that are not finite" in done.stdout
    assert "Traceback" not in done.stdout
    assert not list((tmp_path / "results/embeddings").rglob("*.npy"))


def test_a_wrong_config_is_one_message_before_any_job(small_grid, tmp_path):
    done = run(small_grid(tmp_path, retreive={"depth": 10}), tmp_path)
    assert done.returncode != 0
    assert "retreive: Extra inputs are not permitted" in done.stdout
    assert "Traceback" not in done.stdout
    assert not (tmp_path / "results").exists()
