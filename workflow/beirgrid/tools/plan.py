"""``beirgrid plan``: estimate jobs, time, memory and disk of a grid, and compare estimates with finished jobs."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from logging import LogRecord
from operator import attrgetter
from pathlib import Path
from typing import Any

from .. import config as configuration
from ..core import provenance
from ..core.compute import has_gpu_driver
from ..core.errors import BeirgridError, show
from ..models.arguments import size
from ..pipeline import artifacts
from ..pipeline.grid import Grid
from ..pipeline.resources import Need, Resources
from ..pipeline.stage import Job, jobs_behind
from .configfiles import CONFIGFILE, DIRECTORY, merged
from .run import find_grid
from .text import columned

# Most rows that a table shows by default.
_READABLE = 60
SUMS = ("jobs", "GPU h", "CPU h", "download", "kept", "until used")


@dataclass(frozen=True)
class PlannedJob:
    """A job that Snakemake would run, with its estimate. Messages show its name: rule and wildcards."""

    job: Job
    name: str
    need: Need
    threads: int
    on_gpu: bool
    mem_mb: int
    runtime: int

    @property
    def rule(self) -> str:
        """The job's rule."""
        return self.job.rule

    @property
    def gpu_hours(self) -> float:
        """Hours of a GPU."""
        return self.need.seconds / 3600 if self.on_gpu else 0.0

    @property
    def cpu_hours(self) -> float:
        """Hours of a core, of a job that asks for no GPU."""
        return 0.0 if self.on_gpu else self.need.seconds * self.threads / 3600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid plan``."""
    parser.add_argument("grid", nargs="?", default="", metavar="GRID", help="configfile, or a ready-made grid by name")
    parser.add_argument("--configfile", **CONFIGFILE)
    parser.add_argument("--config", nargs="+", default=[], metavar="KEY=VALUE", help="same as Snakemake's --config")
    parser.add_argument("--directory", **DIRECTORY)
    parser.add_argument(
        "--jobs", default=100, type=size, help="concurrent jobs, for the estimate of temporary disk space"
    )
    parser.add_argument(
        "--device",
        choices=["cpu", "cuda"],
        help="device of the models, if the configuration has auto: cuda for a cluster with GPUs (default: a GPU if "
        "this machine has one)",
    )
    parser.add_argument("--cells", action="store_true", help="add a row for each system and dataset")
    parser.add_argument("--format", choices=["text", "json"], default="text", help="output format")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Print the plan of a grid."""
    args.configfile = [path.absolute() for path in [*([find_grid(args.grid)] if args.grid else []), *args.configfile]]
    if missing := [path for path in args.configfile if not path.is_file()]:
        raise BeirgridError(f"there is no configfile {missing[0]}")
    args.directory.mkdir(parents=True, exist_ok=True)
    os.chdir(args.directory)
    Path(".snakemake").absolute().mkdir(exist_ok=True)  # here, because Snakemake would fail with a traceback
    plan = make_plan(args.configfile, args.config, args.jobs, args.device)
    if args.format == "json":
        print(json.dumps(plan, indent=1, ensure_ascii=False))
    else:
        show(*_text(plan, args.cells))


def make_plan(configfiles: list[Path], settings: list[str], at_once: int, device: str | None) -> dict[str, Any]:
    """Plan the grid in the working directory; return the plan for JSON, with sizes in MB."""
    resources = _resources(grid := Grid(merged(configfiles, settings)), device)
    options = [*_option("--configfile", configfiles), *_option("--config", settings)]
    jobs = list(_jobs(resources, options))
    everything = jobs_behind(grid, *(artifacts.scores(grid, *cell) for cell in grid.runs))
    everything += [Job("aggregate", ()), Job("report", ())]
    return {
        "systems": list(grid.config.grid.systems),
        "datasets": list(grid.config.grid.datasets),
        "not_supplied": {name: str(folder) for name, folder in grid.not_supplied.items()},
        "rates": f"assumed for {resources.cores} cores",
        "device": resources.device,
        "jobs_in_all": len(everything),
        "total": _sums(jobs),
        "peak_mb": _peak(jobs, at_once),
        "at_once": at_once,
        "rules": {rule: _sums(mine) | _largest(mine) for rule, mine in _by(jobs, lambda job: job.rule).items()},
        "largest": {
            key: {"job": job.name, key: getattr(job, key)}
            for key in (("mem_mb", "runtime") if jobs else ())
            for job in [max(jobs, key=attrgetter(key))]
        },
        "too_large": list(_too_large(resources, jobs)),
        "cells": list(_cells(resources, jobs)),
        "actual": list(_actual(resources, everything)),
    }


def _resources(grid: Grid, device: str | None) -> Resources:
    """Return the resources of a grid's jobs on this machine, or on a cluster if they want a GPU that it lacks."""
    here = "cuda" if has_gpu_driver() else "cpu"
    resources = Resources(grid, device or here)
    most = grid.config.nodes.cpu.cores
    resources.cores = most if resources.device != here else min(most, len(os.sched_getaffinity(0)))
    return resources


def _option(name: str, values: Iterable[Any]) -> list[str]:
    return [name, *map(str, values)] if values else []


def _jobs(resources: Resources, options: list[str]) -> Iterator[PlannedJob]:
    """Yield the jobs that Snakemake would run, from the log of a dry run."""
    from snakemake import cli
    from snakemake.logging import logger

    records: list[LogRecord] = []

    def collect(record: LogRecord) -> bool:
        if str(getattr(record, "event", "")) == "job_info":
            records.append(record)
        return True

    # On a cluster, each job has its own cores.
    cores = str(1000 if resources.cores == resources.config.nodes.cpu.cores else resources.cores)
    command = ["--dry-run", "--nolock", "--cores", cores, "--snakefile", configuration.CHECKOUT / "Snakefile"]
    # Snakemake would prefer a profile of the working directory, which can run code.
    command += ["--workflow-profile", configuration.CHECKOUT / "profiles" / "default"]
    said = io.StringIO()
    # A filter, because Snakemake clears its logger's handlers when it starts.
    logger.addFilter(collect)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            cli.main([*map(str, command), *options])
    except SystemExit as ended:
        if ended.code:
            raise BeirgridError(f"snakemake cannot plan this grid:\n{said.getvalue().strip()}") from None
    finally:
        logger.removeFilter(collect)
    for told in map(vars, records):
        if (rule := told["rule_name"]) != "all":
            wildcards = dict(told["wildcards"])
            yield PlannedJob(
                job=Job(rule, tuple(sorted(wildcards.items()))),
                name=" ".join([rule, *wildcards.values()]),
                need=resources.of(rule, **wildcards),
                threads=told["threads"],
                on_gpu=resources.device == "cuda" and bool(told["resources"].get("gpu", 0)),
                # Not those of the dry run: with ``device: auto``, rules ask for what a job needs on any machine.
                mem_mb=resources.mem_mb(rule, wildcards, 1),
                runtime=resources.runtime(rule, wildcards, 1),
            )


def _by(jobs: Iterable[PlannedJob], key: Callable[[PlannedJob], str]) -> dict[str, list[PlannedJob]]:
    groups: dict[str, list[PlannedJob]] = {}
    for job in jobs:
        groups.setdefault(key(job), []).append(job)
    return groups


def _sums(jobs: Iterable[PlannedJob]) -> dict[str, float]:
    jobs = list(jobs)
    return {
        "jobs": len(jobs),
        "gpu_hours": sum(job.gpu_hours for job in jobs),
        "cpu_hours": sum(job.cpu_hours for job in jobs),
        "download_mb": sum(job.need.download for job in jobs),
        "kept_mb": sum(job.need.kept for job in jobs),
        "temporary_mb": sum(job.need.temporary for job in jobs),
    }


def _largest(jobs: list[PlannedJob]) -> dict[str, int]:
    return {key: max(getattr(job, key) for job in jobs) for key in ("mem_mb", "runtime")}


def _peak(jobs: list[PlannedJob], at_once: int) -> float:
    """Estimate the peak disk use in MB: all kept files, and the temporary files of concurrent jobs."""
    held = sorted((job.need.temporary for job in jobs), reverse=True)[:at_once]
    return sum(job.need.kept for job in jobs) + sum(held)


def _too_large(resources: Resources, jobs: list[PlannedJob]) -> Iterator[str]:
    """Yield, per rule and limit, the job that exceeds the node's limit most, without safety margins."""
    most_of = {"mem_mb": lambda *job: resources.limits(*job).mem_mb, "runtime": resources.most_minutes}
    beyond: dict[tuple[str, ...], list[tuple[float, float, str]]] = {}
    for job in jobs:
        wildcards = dict(job.job.wildcards)
        node = resources.kind(job.rule, wildcards)
        for what, wanted, unit in (("mem_mb", job.need.memory, "MB"), ("runtime", job.need.seconds / 60, "minutes")):
            if wanted > (most := most_of[what](job.rule, wildcards)):
                beyond.setdefault((job.rule, node, what, unit), []).append((wanted, most, job.name))
    for (_, node, what, unit), found in beyond.items():
        expected, allowed, name = max(found)
        others = f" (and {len(found) - 1:,} more jobs of this rule)" if len(found) > 1 else ""
        yield (
            f"{name}: {expected:,.0f} {unit} expected, but nodes.{node}.{what} allows {allowed:,}{others}: "
            "raise it if your nodes have more, or set a smaller encode.shard (or small_corpus: 0)"
        )


def _cells(resources: Resources, jobs: list[PlannedJob]) -> Iterator[dict[str, Any]]:
    """Yield the estimate of each cell. Shared jobs count in each of their cells."""
    planned = {job.job: job for job in jobs}
    grid = resources.grid
    for dataset in grid.config.grid.datasets:
        for system in grid.config.grid.systems:
            parts = [part for part in grid.parts(dataset) if part not in grid.not_supplied]
            ends = [artifacts.scores(grid, member, part) for part in parts for member in grid.members(system)]
            behind = (Job(job.rule, tuple(sorted(job.wildcards))) for job in jobs_behind(grid, *ends))
            of_cell = [planned[job] for job in behind if job in planned]
            yield {"system": system, "dataset": dataset, "supplied": bool(parts), **_sums(of_cell)}


def _actual(resources: Resources, jobs: list[Job]) -> Iterator[dict[str, Any]]:
    """Yield, per rule, the estimated and the actual use of finished jobs, which their records have."""
    finished: dict[str, list[tuple[Need, dict[str, Any], int]]] = {}
    for job in jobs:
        with contextlib.suppress(BeirgridError):  # a missing or damaged record: the job is to run
            record, wildcards = provenance.read_record(resources.grid.own(job.record)), dict(job.wildcards)
            asked = resources.mem_mb(job.rule, wildcards, 1)
            finished.setdefault(job.rule, []).append((resources.of(job.rule, **wildcards), record, asked))
    for rule, done in finished.items():
        needs, records, asked_mb = zip(*done, strict=True)
        yield {
            "rule": rule,
            "jobs": len(done),
            "planned_seconds": sum(need.seconds for need in needs),
            "seconds": sum(record["seconds"] for record in records),
            "asked_mb": max(asked_mb),
            "planned_mb": max(need.memory for need in needs),
            "peak_mb": max(record["peak_memory_mb"] for record in records),
        }


# Text


def _text(plan: dict[str, Any], cells: bool) -> Iterator[str]:
    total = plan["total"]
    yield f"Systems: {len(plan['systems'])}. Datasets: {len(plan['datasets'])}."
    yield f"To run: {total['jobs']:,} jobs of {plan['jobs_in_all']:,}. Models run on: {plan['device']}."
    if plan["not_supplied"]:
        yield f"Not supplied and not planned: {', '.join(plan['not_supplied'])}"
    if total["jobs"]:
        yield from _stages(plan)
    yield f"Rates: {plan['rates']}."
    yield from (f"Too large: {line}" for line in plan["too_large"])
    if total["jobs"]:
        yield from _tables(plan, cells)
    if plan["actual"]:
        yield from _comparison(plan["actual"])


def _stages(plan: dict[str, Any]) -> Iterator[str]:
    total, columns = plan["total"], ["stage", *SUMS, "memory", "time"]
    largest = [[_size(sums["mem_mb"]), f"{sums['runtime']} min"] for sums in plan["rules"].values()]
    rows = [[rule, *_row(sums), *most] for (rule, sums), most in zip(plan["rules"].items(), largest, strict=True)]
    yield ""
    yield from columned(columns, [*rows, ["total", *_row(total), "", ""]])
    yield ""
    yield "CPU hours are hours of one core. Memory and time are what the largest job of a stage asks for."
    yield "Kept: size of the files that stay. Until used: size of the files that are deleted after their last use."
    yield (
        f"Disk: {_size(total['kept_mb'])} at the end, at most {_size(plan['peak_mb'])} while it runs, with "
        f"{plan['at_once']} jobs at once"
    )
    memory, runtime = plan["largest"]["mem_mb"], plan["largest"]["runtime"]
    yield f"Largest job by memory: {memory['job']} ({_size(memory['mem_mb'])})"
    yield f"Largest job by time: {runtime['job']} ({runtime['runtime']:,} minutes)"


def _row(sums: dict[str, float]) -> list[str]:
    hours = [f"{sums[key]:,.2f}" if sums[key] else "" for key in ("gpu_hours", "cpu_hours")]
    return [f"{sums['jobs']:,}", *hours, *(_size(sums[key]) for key in ("download_mb", "kept_mb", "temporary_mb"))]


def _tables(plan: dict[str, Any], cells: bool) -> Iterator[str]:
    if cells or len(plan["cells"]) <= _READABLE:
        yield ""
        yield "Each cell alone (a job that several cells share counts in each):"
        rows = [
            [cell["dataset"], cell["system"], *(_row(cell) if cell["supplied"] else ["not supplied"] + [""] * 5)]
            for cell in plan["cells"]
        ]
        yield from columned(["dataset", "system", *SUMS], rows)
    else:
        yield "A row per system and dataset: --cells"


def _comparison(actual: list[dict[str, Any]]) -> Iterator[str]:
    yield ""
    yield "Finished jobs, estimated and actual:"
    columns = ["stage", "jobs", "planned s", "actual s", "actual/planned", "planned MB", "peak MB", "asked MB"]
    rows = [
        [
            *(row["rule"], str(row["jobs"]), f"{row['planned_seconds']:,.1f}", f"{row['seconds']:,.1f}"),
            *(f"{row['seconds'] / row['planned_seconds']:.2f}", f"{row['planned_mb']:,.0f}"),
            *(f"{row['peak_mb']:,.0f}", f"{row['asked_mb']:,}"),
        ]
        for row in actual
    ]
    planned, took = sum(row["planned_seconds"] for row in actual), sum(row["seconds"] for row in actual)
    rows.append(["total", "", f"{planned:,.1f}", f"{took:,.1f}", f"{took / planned:.2f}", "", "", ""])
    yield from columned(columns, rows)


def _size(mb: float) -> str:
    if not mb:
        return ""
    for unit, one in (("TB", 1e6), ("GB", 1e3)):
        if mb >= one:
            return f"{mb / one:,.1f} {unit}"
    return f"{mb:,.0f} MB" if mb >= 1 else "<1 MB"
