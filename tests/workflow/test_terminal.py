"""A run on a terminal: the visible output, and Snakemake's log."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, beirgrid, python

from beirgrid.results import scores

pytestmark = pytest.mark.slow  # whole processes

# Lines that are erased or drawn over begin anew.
ERASED, SEQUENCE = re.compile(r"\r?\x1b\[(1A|2K)"), re.compile(r"\x1b\[[\d;?]*[A-Za-z]")


# Runs its words on a pseudo-terminal, and prints what they print there.
ON_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


def _run(folder: Path, *options: str) -> tuple[int, str]:
    """Run the grid on a pseudo-terminal; return the exit status and the output without escape sequences."""
    command = [python(), "-m", "snakemake", "--logger", "beirgrid", "--configfile", folder / "grid.yaml"]
    command += ["--directory", folder, "--cores", "1", *options]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    terminal = [sys.executable, "-c", ON_TERMINAL]
    done = subprocess.run([*terminal, *command], cwd=ROOT, env=environment, timeout=300, check=False, **pipes)
    return done.returncode, SEQUENCE.sub("", ERASED.sub("\n", done.stdout.decode())).replace("\r\n", "\n")


@pytest.fixture(scope="module")
def ran(small_grid, tmp_path_factory) -> tuple[Path, str]:
    """The folder of a grid that was run on a terminal, and what was printed."""
    folder = tmp_path_factory.mktemp("terminal")
    small_grid(folder, grid={"systems": ["bm25-flat"], "datasets": ["small"]})
    status, printed = _run(folder)
    assert status == 0, printed
    return folder, printed


def test_the_screen_shows_jobs_and_the_log_has_snakemakes_lines(ran):
    folder, printed = ran
    # The first jobs may be done before the screen is drawn.
    assert re.search(r"^\d of 7 jobs done, 1 running .* 0:00:\d\d ", printed, re.MULTILINE)
    assert re.search(r"^  \w+ .*\bsmall\b.* 0:00:\d\d ", printed, re.MULTILINE)
    assert re.search(r"^7 jobs done, 0:0\d:\d\d$", printed, re.MULTILINE)
    score = scores.read(folder / "results/metrics/bm25-flat/small.json").means["ndcg@10"]
    assert re.search(rf"^small +{score:.4f}", printed, re.MULTILINE)
    assert "Report: " in printed.splitlines()[-1]
    (log,) = (folder / ".snakemake/log").glob("*.log")
    for line in ("Building DAG of jobs...", "steps (100%) done", "Job stats:"):
        assert line in log.read_text()
        assert line not in printed
    assert "is extended by additional config" not in printed


def test_a_finished_grid_is_said_to_need_nothing(ran):
    status, printed = _run(ran[0])
    assert status == 0
    assert "Nothing to be done.\n" in printed


def test_a_failed_job_is_shown_with_the_end_of_its_log(small_grid, tmp_path):
    small_grid(tmp_path, grid={"systems": ["bm25-flat"], "datasets": ["small"]})
    assert _run(tmp_path, "--until", "index_lexical")[0] == 0
    for path in (tmp_path / "results/indexes/bm25-flat/small/lucene").iterdir():
        path.write_bytes(bytes(path.stat().st_size))  # another size would make the index again
    status, printed = _run(tmp_path)
    assert status == 1
    log = "logs/retrieve/bm25-flat/small.log"
    assert f"\n  retrieve_lexical bm25-flat small: {log}\n" in printed
    assert f"    {(tmp_path / log).read_text().splitlines()[-1]}\n" in printed
    assert "CalledProcessError" not in printed  # the command, with the values of the job
    advice = "The same command continues the run: finished files stay"
    assert re.search(rf"^\d of \d jobs done, 1 failed, 0:0\d:\d\d. {advice}$", printed, re.MULTILINE), printed[-3000:]
    assert re.search(r"^small +failed$", printed, re.MULTILINE)
    screen = beirgrid("status", "--directory", tmp_path).stdout
    assert screen.startswith("ended unfinished after")
    assert re.search(r"^retrieve_lexical +1 +1$", screen, re.MULTILINE)  # failed, of one
    assert f"Failed, 1:\n  retrieve_lexical bm25-flat small: {log}\n    " in screen


def test_without_a_terminal_a_run_has_few_lines(small_grid, tmp_path):
    configfile = small_grid(tmp_path, grid={"systems": ["bm25-flat"], "datasets": ["small"]})
    done = beirgrid("run", configfile, "--directory", tmp_path, "--cores", "1")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) <= 8  # one for each of seven jobs at most, and the sum
    assert re.fullmatch(r"1 of 7 jobs done, .*; last: fetch_corpus small", lines[0])
    assert re.fullmatch(r"7 jobs done, 0:0\d:\d\d", lines[-1])
    assert done.stdout.startswith("nDCG@10 bm25-flat\nsmall ")
    assert done.stdout.splitlines()[-1].startswith("Report: ")
    again = beirgrid("run", configfile, "--directory", tmp_path, "--cores", "1", "-v")
    assert "Building DAG of jobs..." in again.stderr
