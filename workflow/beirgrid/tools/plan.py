"""``beirgrid plan``: estimate jobs, time, memory and disk of a grid."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterable, Iterator
from logging import LogRecord
from pathlib import Path
from typing import Annotated, Any, Literal

from snakemake_interface_logger_plugins.common import LogEvent

from ..config.load import merged
from ..core import paths
from ..core.checkout import CHECKOUT
from ..core.compute import has_gpu_driver
from ..core.errors import BeirgridError, quantity, show, table_lines
from ..graph import artifacts, gate
from ..graph.dag import Job, job_name, jobs_behind, output
from ..graph.grid import Grid
from ..graph.resources import Resources
from ..options import ConfigFiles, Directory
from .run import find_grid
from .status import clock

# What the jobs of a stage take together, and the titles of sizes in the table.
_SIZES = {"download_mb": "download", "kept_mb": "kept", "temporary_mb": "temporary"}
_SUMS = ("jobs", "gpu_hours", "cpu_hours", *_SIZES)
Row = dict[str, Any]
# Concurrent jobs, for the estimate of temporary disk space.
_AT_ONCE = 100


def plan(
    grid: Annotated[str, "configfile, or a ready-made grid by name"] = "",
    *,
    configfile: ConfigFiles = (),
    config: Annotated[tuple[str, ...], "KEY=VALUE, same as Snakemake's --config"] = (),
    directory: Directory = Path(),
    device: Annotated[
        Literal["cpu", "cuda"] | None,
        "device of the models, if the configuration has auto: cuda for a cluster with GPUs (default: a GPU if this "
        "machine has one)",
    ] = None,
    format: Annotated[Literal["text", "json"], "output format"] = "text",
) -> None:
    """Print the jobs, hours, downloads and disk of a grid, estimated.

    CPU hours are hours of one core. Kept files stay; temporary ones are deleted after their last use. The disk
    is what a run with 100 jobs at once takes at most.

    Raises:
        BeirgridError: a configfile is missing or wrong.
    """
    configfiles = [path.absolute() for path in [*([find_grid(grid)] if grid else []), *configfile]]
    directory.mkdir(parents=True, exist_ok=True)
    os.chdir(directory)
    Path(".snakemake").absolute().mkdir(exist_ok=True)  # here, because Snakemake would fail with a traceback
    loaded = merged(configfiles, list(config))
    options = [*(["--configfile", *configfiles] if configfiles else []), *(["--config", *config] if config else [])]
    plans: list[Row] = []
    known: set[Job] = set()
    for of_grid in gate.grids(loaded):
        resources = _resources(of_grid, device)
        gate.announce(loaded, of_grid)
        jobs = dict(_jobs(resources, list(map(str, options))))
        gate.forget()
        new = {job: row for job, row in jobs.items() if job not in known or job.stage.of_grid}
        plans.append(_plan(resources, new))
        known |= jobs.keys()
    *gates, own = plans
    if format == "json":
        of_gate = {"gate": gates[0]} if gates else {}
        print(json.dumps(own | of_gate, indent=1, ensure_ascii=False))
    else:
        for plan in gates:
            show("The gate:", *_totals(plan), "", "Then:")
        show(*_text(own))


def _plan(resources: Resources, planned: dict[Job, Row]) -> Row:
    """Return the plan of a grid for JSON, with sizes in MB, from the estimates of its jobs."""
    grid = resources.grid
    everything = jobs_behind(grid, *artifacts.ends(grid))
    everything += [output(pattern).job for pattern in (paths.TABLES_RECORD, paths.REPORT_RECORD)]
    rules: dict[str, list[Row]] = {}
    for job, row in planned.items():
        rules.setdefault(job.rule, []).append(row)
    total = _sums(planned.values())
    held = sorted((row["temporary_mb"] for row in planned.values()), reverse=True)[:_AT_ONCE]
    worst = (max(rows, key=lambda row: row["of_node"]) for rows in rules.values())
    return {
        "systems": list(grid.config.grid.systems),
        "datasets": list(grid.config.grid.datasets),
        "not_supplied": {name: str(folder) for name, folder in grid.not_supplied.items()},
        "device": resources.device,
        "cores": resources.cores,
        "hours": total["gpu_hours"] + total["cpu_hours"] / resources.cores,
        "jobs_in_all": len(everything),
        "price": sum(row["price"] for row in planned.values()),
        "total": total,
        "peak_mb": total["kept_mb"] + sum(held),
        "rules": {
            rule: _sums(rows) | {key: max(row[key] for row in rows) for key in ("mem_mb", "runtime")}
            for rule, rows in rules.items()
        },
        "too_large": [f"{row['name']}: {row['of_node'][1]}" for row in worst if row["of_node"][0] > 1],
    }


def _sums(rows: Iterable[Row]) -> dict[str, float]:
    rows = list(rows)
    return {key: sum(row[key] for row in rows) for key in _SUMS}


def _resources(grid: Grid, device: str | None) -> Resources:
    """Return the resources of a grid's jobs on this machine, or on a cluster if they want a GPU that it lacks."""
    here = "cuda" if has_gpu_driver() else "cpu"
    resources = Resources(grid, device or here)
    most = grid.config.nodes.cpu.cores
    resources.cores = most if resources.device != here else min(most, len(os.sched_getaffinity(0)))
    return resources


def _jobs(resources: Resources, options: list[str]) -> Iterator[tuple[Job, Row]]:
    """Yield the jobs that Snakemake would run, from the log of a dry run, with their estimates."""
    from snakemake import cli
    from snakemake.logging import logger

    records: list[LogRecord] = []
    # On a cluster, each job has its own cores.
    cores = 1000 if resources.cores == resources.config.nodes.cpu.cores else resources.cores
    command = ["--dry-run", "--nolock", "--cores", cores, "--snakefile", CHECKOUT / "Snakefile"]
    # Snakemake would prefer a profile of the working directory, which can run code.
    command += ["--workflow-profile", CHECKOUT / "profiles" / "default"]
    said = io.StringIO()

    def collect(record: LogRecord) -> bool:
        records.append(record)
        return True

    logger.addFilter(collect)  # a filter, because Snakemake clears its logger's handlers when it starts
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            cli.main([*map(str, command), *options])
    except SystemExit as ended:
        if ended.code:
            raise BeirgridError(f"snakemake cannot plan this grid:\n{said.getvalue().strip()}") from None
    finally:
        logger.removeFilter(collect)
    for fields in map(vars, records):
        if fields.get("event") == LogEvent.JOB_INFO and fields["rule_name"] != "all":
            job = Job.of(fields["rule_name"], fields["wildcards"])
            on_gpu = resources.device == "cuda" and bool(fields["resources"].get("gpu", 0))
            yield job, _row_of(resources, job, fields, on_gpu)


def _row_of(resources: Resources, job: Job, fields: Row, on_gpu: bool) -> Row:
    """Return the estimates of a job, and the largest share that it takes of what its node allows, in words."""
    need = resources.need(job)
    node = resources.kind(job)
    expected = {
        "mem_mb": (need.memory, resources.limits(job).mem_mb),
        "runtime": (need.seconds / 60, resources.most_minutes(job)),
    }
    advice = "raise it, or set a smaller encode.shard (or small_corpus: 0)"
    return {
        "name": job_name(job.rule, fields["wildcards"]),
        "jobs": 1,
        "gpu_hours": need.seconds / 3600 * on_gpu,
        "cpu_hours": need.seconds / 3600 * fields["threads"] * (not on_gpu),
        "download_mb": need.download,
        "kept_mb": need.kept,
        "temporary_mb": need.temporary,
        # Not those of the dry run: with ``device: auto``, rules ask for what a job needs on any machine.
        "price": resources.work(job).get("price", 0.0),
        "mem_mb": resources.mem_mb(job, 1),
        "runtime": resources.runtime(job, 1),
        "of_node": max(
            (wanted / most, f"{wanted:,.0f} expected, but nodes.{node}.{key} allows {most:,}: {advice}")
            for key, (wanted, most) in expected.items()
        ),
    }


def _totals(plan: Row) -> Iterator[str]:
    total = plan["total"]
    grid = f"{quantity(len(plan['systems']), 'system')}, {quantity(len(plan['datasets']), 'dataset')}"
    yield f"{grid}: {total['jobs']:,} of {quantity(plan['jobs_in_all'], 'job')} to run"
    if total["jobs"]:
        where = quantity(plan["cores"], "core")
        where = f"1 GPU and {where}" if plan["device"] == "cuda" else f"{where} without a GPU"
        disk = _size(max(plan["peak_mb"], 1.0))
        yield f"About {clock(3600 * plan['hours'])} on {where}, at most {disk} of disk"


def _text(plan: Row) -> Iterator[str]:
    yield from _totals(plan)
    total = plan["total"]
    if plan["not_supplied"]:
        yield f"Not supplied and not planned: {', '.join(plan['not_supplied'])}"
    if total["jobs"]:
        yield from ("", *_table(plan), "", "RAM, limit: what a stage's largest job may take")
    if plan["price"]:
        yield f"Price of rewritten queries: {plan['price']:,.2f}, if each text is as long as it may be."
    yield from (f"Too large: {line}" for line in plan["too_large"])


def _table(plan: Row) -> Iterator[str]:
    """Yield a row for each stage and one for all. A column of sizes is in GB if its sum is that large, else in MB."""
    total = plan["total"]
    titles = ["stage", "jobs", "GPU h", "CPU h"]
    stages = [*plan["rules"].values(), total]
    columns = [[f"{sums['jobs']:,}" for sums in stages]]
    for key in ("gpu_hours", "cpu_hours"):
        columns.append([_cell(sums[key], 2) for sums in stages])
    for key, title in _SIZES.items():
        is_large = total[key] >= 1000
        titles.append(f"{title} {'GB' if is_large else 'MB'}")
        columns.append([_cell(sums[key] / 1000, 1) if is_large else _cell(sums[key], 0) for sums in stages])
    titles += ["RAM GB", "limit"]
    columns.append([*(f"{sums['mem_mb'] / 1000:,.1f}" for sums in plan["rules"].values()), ""])
    columns.append([*(clock(60 * sums["runtime"]) for sums in plan["rules"].values()), ""])
    rows = zip([*plan["rules"], "total"], *columns, strict=True)
    yield from table_lines(titles, list(map(list, rows)), ruled=False)


def _cell(value: float, digits: int) -> str:
    """Format a number; nothing for one that is 0 in so many digits."""
    text = f"{value:,.{digits}f}"
    return text if float(text.replace(",", "")) else ""


def _size(mb: float) -> str:
    """Format a size."""
    for unit, divisor in (("TB", 1e6), ("GB", 1e3)):
        if mb >= divisor:
            return f"{mb / divisor:,.1f} {unit}"
    return f"{mb:,.0f} MB"
