"""Faults of a cluster, caused on purpose: each run ends in the table of an undisturbed one."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from helpers import beirgrid
from sites import CLUSTER, FOLDER, Site, end, undisturbed, wait_for

full = pytest.mark.full
# Options of a run that ends with the index, the only reader of the embeddings, which are temporary files.
UNTIL = ("--until", "index_dense")
INDEX = "results/indexes/tiny-dense/small/0.faiss"


def _finishes(
    site: Site, expected: str, process: subprocess.Popen[str] | None = None, until: tuple[str, ...] = ()
) -> str:
    """Assert that a run, this one or a new one, ends in the expected table; return its output.

    After a run with the options ``until``, the rest runs without SLURM, which needs seconds to start a job.
    """
    done = end(process or site.start(*until))
    assert done.returncode == 0, done.stdout
    if until:
        made = (site.folder / INDEX).stat().st_mtime_ns
        undisturbed(site.configfile, site.folder)
        assert (site.folder / INDEX).stat().st_mtime_ns == made
    assert site.table == expected
    assert not site.leftovers
    return done.stdout


# A job


@full
def test_a_job_that_hangs_is_ended_by_its_time_limit_and_has_more_time_at_the_next_attempt(site, expected):
    run = site.start("--config", "device=cpu", "--set-resources", "encode_dense:runtime=attempt")
    site.hang("encode")
    output = _finishes(site, expected, run)
    assert site.states("encode_dense") == ["TIMEOUT", "COMPLETED"]
    assert [job["TimeLimit"] for job in site.jobs("encode_dense")] == ["00:01:00", "00:02:00"]
    assert "SLURM status is: 'TIMEOUT'" in output


@full
def test_a_job_cancelled_by_hand_is_submitted_again(site, expected):
    run = site.start()
    site.hang("encode")
    subprocess.run(["scancel", site.jobs("encode_dense")[0]["JobId"]], check=True)
    output = _finishes(site, expected, run)
    assert site.states("encode_dense") == ["CANCELLED", "COMPLETED"]
    assert "SLURM status is: 'CANCELLED'" in output


@full
def test_a_job_over_its_memory_has_more_at_the_next_attempt(site, expected):
    memory = "encode_dense:mem_mb=600 * 4**(attempt - 1)"
    output = _finishes(site, expected, site.start("--config", "device=cpu", "--set-resources", memory))
    assert site.states("encode_dense") == ["FAILED", "COMPLETED"]
    log = site.jobs("encode_dense")[0]["StdOut"]
    assert log in output  # Snakemake names the file, in which SLURM states the reason
    assert "exceeded memory limit" in Path(log).read_text()


@pytest.mark.parametrize("small_corpus", [pytest.param(0, id="job", marks=full), pytest.param(100, id="group")])
def test_nodes_with_fewer_cores_than_a_job_asks_for_are_named_and_used_once_the_configuration_says_so(
    site, write_config, tmp_path, small_corpus
):
    site.configfile = write_config(["bm25-flat"], small_corpus, datasets=2, partition="few", kinds=("cpu",))
    site.folder = tmp_path / "few"
    undisturbed(site.configfile, site.folder, "--until", "fetch_dataset", *["index_lexical"] * bool(small_corpus))
    failed = site.run("--retries", "0")
    assert failed.returncode != 0
    reason = "SLURM refused the group of this job" if small_corpus else "Batch job submission failed"
    shown = beirgrid("status", "--directory", site.folder).stdout
    assert reason in shown[shown.index("Failed, ") :]
    assert small_corpus or reason in failed.stdout
    settings = yaml.safe_load(site.configfile.read_text())
    settings["nodes"]["cpu"]["cores"] = 4
    site.configfile.write_text(yaml.safe_dump(settings))
    done = site.run()
    assert done.returncode == 0, done.stdout
    assert {job["NodeList"] for job in site.jobs()} == {"few1"}
    assert max(int(job["NumCPUs"]) for job in site.jobs()) == 4


# A job of two stages


@full
def test_a_cancelled_job_of_two_stages_is_run_again_whole_and_nothing_else_is(site, small_corpus, expected):
    site.configfile = small_corpus
    on_cpu = ("--config", "device=cpu")  # jobs of GPU nodes share none
    run = site.start(*on_cpu, "--retries", "0")
    site.hang("evaluate")
    subprocess.run(["scancel", site.live()[0]["JobId"]], check=True)
    assert end(run).returncode != 0
    # Snakemake deletes the outputs of all stages of a failed job, including finished stages.
    assert not (site.folder / "results/runs/tiny/small.run.gz").exists()
    assert (site.folder / INDEX).exists()
    _finishes(site, expected, site.start(*on_cpu))
    assert site.states("encode-index") == ["COMPLETED"]
    assert site.states("retrieve-model") == ["CANCELLED", "COMPLETED"]


@full
def test_a_job_of_two_stages_has_more_memory_at_the_next_attempt(site, small_corpus, expected):
    site.configfile = small_corpus
    memory = [f"{rule}:mem_mb=600 * 4**(attempt - 1)" for rule in ("encode_dense", "index_dense")]
    _finishes(site, expected, site.start("--config", "device=cpu", "--set-resources", *memory))
    assert site.states("encode-index") == ["FAILED", "COMPLETED"]
    assert [job["MinMemoryNode"] for job in site.jobs("encode-index")] == ["600M", "2400M"]


@full
def test_a_job_of_two_stages_has_the_time_of_both_and_more_at_the_next_attempt(site, small_corpus, expected):
    site.configfile = small_corpus
    limits = [f"{rule}:runtime=attempt" for rule in ("encode_dense", "index_dense")]
    run = site.start("--config", "device=cpu", "--set-resources", *limits)
    site.hang("encode")
    _finishes(site, expected, run)
    assert site.states("encode-index") == ["TIMEOUT", "COMPLETED"]
    assert [job["TimeLimit"] for job in site.jobs("encode-index")] == ["00:02:00", "00:04:00"]


@full
def test_a_job_that_needs_a_gpu_on_a_node_without_one_says_so_and_fails_for_good(site, expected):
    failed = site.run("--config", "device=cuda", "--retries", "1")
    assert failed.returncode != 0
    assert site.states("encode_dense") == ["FAILED", "FAILED"]
    assert "device is cuda, but no GPU can be used here" in failed.stdout
    assert "Traceback" not in failed.stdout
    _finishes(site, expected, site.start("--config", "device=cpu"))
    assert [job["Partition"] for job in site.jobs("encode_dense")] == ["spare", "spare", "cpu"]
    assert "TresPerJob" not in site.jobs("encode_dense")[-1]


# A node


def test_a_job_on_a_node_that_goes_down_starts_again(site, expected):
    run = site.start(*UNTIL)
    site.hang("encode")
    subprocess.run(["scontrol", "update", "NodeName=gpu2", "State=DOWN", "Reason=test"], check=True)
    wait_for(lambda: site.states("encode_dense") == ["PENDING"])
    # Refused while the node still ends the job.
    resume = ["scontrol", "update", "NodeName=gpu2", "State=RESUME"]
    wait_for(lambda: subprocess.run(resume, check=False).returncode == 0 or _state("gpu2") == "idle")
    _finishes(site, expected, run, until=UNTIL)
    assert [job["Restarts"] for job in site.jobs("encode_dense")] == ["1"]


@full
def test_a_job_on_a_node_that_dies_starts_again_when_the_node_is_back(site, expected):
    """The node's daemon and all its processes vanish without notice."""
    run = site.start()
    stage = site.hang("encode")
    job = site.jobs("encode_dense")[0]["JobId"]
    os.kill(int((FOLDER / "pid/gpu2.pid").read_text()), signal.SIGKILL)
    for step in _slurm_steps(job):
        os.kill(step, signal.SIGKILL)
    os.killpg(os.getpgid(stage), signal.SIGKILL)
    wait_for(lambda: site.states("encode_dense") == ["PENDING"])
    subprocess.run([CLUSTER, "slurmd", "gpu2"], check=True)
    _finishes(site, expected, run)


def _state(node: str) -> str:
    """Return a node's state from sinfo."""
    command = ["sinfo", "--noheader", f"--nodes={node}", "--format=%T"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _slurm_steps(job: str) -> list[int]:
    """Return the process ids of the daemons that supervise a job's steps."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cmdline").read_text().startswith(f"slurmstepd: [{job}."):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


# Snakemake itself


@full
def test_interrupted_it_cancels_its_jobs(site, expected):
    run = site.start()
    site.hang("encode")
    run.send_signal(signal.SIGINT)
    assert end(run).returncode != 0
    wait_for(lambda: not site.live())
    assert site.states("encode_dense") == ["CANCELLED"]
    _finishes(site, expected)


@full
def test_terminated_it_waits_for_its_jobs_and_starts_none(site, expected):
    run = site.start()
    stage = site.hang("encode")
    run.send_signal(signal.SIGTERM)
    os.kill(stage, signal.SIGCONT)
    assert end(run).returncode != 0
    assert not site.live()
    assert [job["JobState"] for job in site.jobs()] == ["COMPLETED"]
    _finishes(site, expected)
    assert site.states("encode_dense") == ["COMPLETED"]  # not again


def test_killed_it_leaves_jobs_that_the_next_run_does_not_write_beside(site, expected):
    run = site.start()
    stage = site.hang("encode")
    run.kill()
    run.wait()
    refused = site.run()
    assert refused.returncode != 0
    assert "SLURM still has jobs of an earlier run in this folder" in refused.stdout
    assert len(site.jobs()) == 1  # nothing was submitted
    os.kill(stage, 0)  # the orphan is unharmed
    cancel = re.search(r"\((scancel --name \S+)\)", refused.stdout)[1]
    subprocess.run(shlex.split(cancel), check=True)
    wait_for(lambda: not site.live())
    _finishes(site, expected, until=UNTIL)


@full
def test_a_second_one_beside_it_is_turned_away(site, expected):
    run = site.start()
    stage = site.hang("encode")
    second = site.run()
    assert second.returncode != 0
    assert "wait until it ends, or use another --directory" in second.stdout
    os.kill(stage, signal.SIGCONT)
    _finishes(site, expected, run)
    assert site.states("encode_dense") == ["COMPLETED"]


# The file system


@full
def test_a_full_disk_is_named_and_costs_nothing_that_was_there(site, expected):
    results = site.folder / "results"
    shutil.move(results, site.folder / "fetched")
    results.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", results], check=True)
    try:
        shutil.copytree(site.folder / "fetched", results, dirs_exist_ok=True)
        free = shutil.disk_usage(results).free
        (results / "other").write_bytes(bytes(free - 4096))
        failed = site.run("--retries", "0")
        assert failed.returncode != 0
        assert "the disk is full" in failed.stdout
        assert "Traceback" not in failed.stdout
        assert not site.leftovers
        (results / "other").unlink()
        _finishes(site, expected)
    finally:
        site.clear()
        subprocess.run(["umount", results], check=True)


@full
def test_files_that_show_late_are_waited_for(site, expected, tmp_path):
    """Snakemake reads a copy of results/ that is seconds older than the jobs' files."""
    late = tmp_path / "late"
    shutil.copytree(site.folder / "results", late)
    bind = ("unshare", "--mount", "sh", "-c", f"mount --bind {late} {site.folder}/results && exec " + '"$0" "$@"')
    with _repeated(lambda: _copy_older(site.folder / "results", late, seconds=8)):
        hasty = end(site.start("--latency-wait", "1", "--retries", "0", before=bind))
        assert hasty.returncode != 0
        assert "increase the wait time with --latency-wait" in hasty.stdout
        _finishes(site, expected, site.start(before=bind))


def _copy_older(source: Path, target: Path, seconds: float) -> None:
    """Copy the files that are ``seconds`` old, with their times."""
    for path in source.rglob("*"):
        copy = target / path.relative_to(source)
        try:
            facts = path.stat()
            if not path.is_file() or facts.st_ctime > time.time() - seconds:
                continue
            if not copy.exists() or copy.stat().st_mtime_ns != facts.st_mtime_ns:
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, copy)
        except FileNotFoundError:
            continue


@contextmanager
def _repeated(action: Callable[[], None], every: float = 0.5) -> Iterator[None]:
    """Repeat an action in the background."""
    over = threading.Event()

    def loop() -> None:
        while not over.wait(every):
            action()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
