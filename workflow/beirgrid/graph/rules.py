"""The directives of Snakemake's rules, each from what its stage says."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ..core import files, lineage, paths, provenance
from ..core.checkout import INSTALLED, MODULES, portable
from ..core.compute import has_gpu_driver
from ..core.errors import DataError
from ..results import summary
from . import artifacts
from .dag import Job, job_name, jobs_behind, stages
from .grid import Grid, fill
from .job import run as run_job
from .resources import Resources, of_jobs
from .stage import Output, Settings, Stage
from .summaries import PUBLISHED, Summary

# A folder in the working directory that contains only a link to the package.
_LINKED = Path(".snakemake/beirgrid/modules")
KIND = "BEIRGRID_LIBRARIES"  # as execution.forks, which stands above this layer, names it


class Rule:
    """The directives of one rule. Their functions take the wildcards of a job."""

    def __init__(self, rules: Rules, stage: Stage) -> None:
        self.stage = stage
        resources = rules.resources
        self.inputs = of_jobs(stage, rules.force_and_give_inputs)
        # The command takes ``output``, so Snakemake does not compare its values.
        command = of_jobs(stage, rules.command, "input", "output", "threads", "resources")
        self.params = {"version": stage.stamp.version, "settings": of_jobs(stage, rules.settings), "command": command}
        if stage.reads_files:
            self.params["files"] = of_jobs(stage, rules.state)
        self.runs_models = stage.runs_models
        self.constraints = stage.constraints(rules.grid)
        self.resources = resources.directives(stage)
        # All cores that a job may take on its node.
        self.threads = resources.by_kind(stage, lambda kind: rules.grid.config.nodes.limits(kind).cores)
        self.group = of_jobs(stage, resources.group)


class Rules:
    """The rules of a grid, as attributes: ``rules.rerank.inputs``."""

    def __init__(self, grid: Grid, own_python: bool) -> None:
        """Set up for a grid. ``own_python`` is true if jobs run in this Python, false in conda environments."""
        self.grid = grid
        self.resources = Resources(grid)
        self.summary = Summary(grid)
        self.own_python = own_python
        self.workflow: Any = None  # Snakemake's, in its main process
        self.settings = cache(self._settings)  # Snakemake and the records ask for them often
        self.tell_outdated = cache(self._tell_outdated)  # once
        # The folder of an installed package also contains this Python's libraries, which another Python cannot load.
        self.modules = _LINKED if INSTALLED and not own_python else MODULES
        python = shlex.quote(sys.executable if own_python else "python")
        self.python = f"PYTHONPATH={shlex.quote(str(self.modules))} {python}"
        self._rules = {name: Rule(self, stage) for name, stage in stages().items()}

    def __getattr__(self, name: str) -> Rule:
        try:
            return self._rules[name]
        except KeyError:
            raise AttributeError(name) from None

    def rule_of(self, rule: Any) -> Rule | None:
        """Map a Snakemake rule to its rule here; None for a rule of another workflow.

        A workflow that uses this one as a module renames its rules, and may have rules of its own.
        """
        command = rule.params.get("command")
        return next((each for each in self._rules.values() if each.params["command"] is command), None)

    def link_package(self) -> None:
        """Create the link through which Pythons of conda environments import an installed package."""
        link = self.modules / "beirgrid"
        if self.modules == _LINKED and not link.exists():
            link.unlink(missing_ok=True)  # the link of a removed package
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(MODULES / "beirgrid", target_is_directory=True)

    # Jobs

    def force_and_give_inputs(self, job: Job) -> dict[str, Any]:
        """Force a job to run if it is outdated, and return its inputs.

        Input functions call this: Snakemake has no interface for further reasons to rerun a job. It asks for the inputs
        of all jobs before it decides which of them run.
        """
        self.force_if_outdated(job)
        return self.inputs(job)

    def inputs(self, job: Job) -> dict[str, Any]:
        """Return the inputs of a job by option, and its local files."""
        paths: dict[str, Any] = {
            name: given.path if isinstance(given, Output) else [each.path for each in given]
            for name, given in job.inputs(self.grid).items()
        }
        # Snakemake would expand {x} and <x> in the names of local files.
        files = [name for name in job.stage.files(self.grid, **job.values) if not re.search(r"\{|<[a-z]", name)]
        return paths | ({"files": files} if files else {})

    def _settings(self, job: Job) -> str:
        """Return the settings of a job as JSON."""
        return json.dumps(_with_values(job.stage.settings(self.grid, **job.values)))

    def state(self, job: Job) -> str:
        """Return the digest of the local files of a job, or of what the tables and the page are made of."""
        return self._summary_digest if job.stage.of_grid else state(job.stage.files(self.grid, **job.values))

    def output_params(self, job: Job) -> Settings:
        """Return the params of a job that change its output: version, settings, and the content of local files."""
        files = {"files": self.state(job)} if job.stage.reads_files else {}
        return {"version": job.stage.stamp.version, "settings": self.settings(job), **files}

    def command(self, job: Job, input: Any, output: Any, threads: int, resources: Any) -> str:
        """Return a job's command, which imports this checkout's package, and nothing from the working directory."""
        kind = f"{KIND}=models " if job.stage.runs_models else ""  # the server of libraries that forks the job
        text = shlex.quote(self.as_json(job, input, output, threads, resources.mem_mb))
        return f"PYTHONSAFEPATH=1 {kind}{self.python} -m beirgrid stage {job.stage.function} <<< {text}"

    def as_json(self, job: Job, input: Any, output: Any, threads: int, mem_mb: int) -> str:
        """Return a job as JSON: its inputs, outputs, settings, and what changes no output."""
        stage = job.stage
        options = {**stage.options(self.grid, **job.values), **(self._compute(job) if stage.runs_models else {})}
        limits = {"threads": threads, "memory": self.resources.heap_mb(mem_mb)}
        options |= {name: limits[name] for name in stage.options_from_job}
        outputs = {"output" if name == stage.main else name: str(output[name]) for name in stage.outputs}
        return json.dumps(
            {
                "model": stage.model(self.grid, **job.values),
                "inputs": _with_values({name: input.get(name) for name in job.inputs(self.grid)}),
                "outputs": {name: path for name, path in outputs.items() if name not in options},
                "settings": json.loads(self.settings(job)),
                "options": _with_values(options),
                "lineage": stage.lineage(self.grid, **job.values),
                "digest": provenance.digest(self.output_params(job)),
            }
        )

    def run(self, job: Job) -> None:
        """Run a job in this process and in the working directory, without Snakemake."""
        outputs = {name: fill(pattern, **job.values) for name, pattern in job.stage.outputs.items()}
        text = self.as_json(job, self.inputs(job), outputs, threads=1, mem_mb=0)
        run_job(job.stage.function, text.encode())

    def _compute(self, job: Job) -> Settings:
        """Return the options of a job that runs a model: its device, and how it computes."""
        config = self.grid.config
        options: Settings = {"batch_tokens": config.encode.batch_tokens.model_dump(), "kernels": config.kernels}
        options["gpu_search"] = config.gpu_search
        model = job.stage.model(self.grid, **job.values)
        if model and (endpoint := self.grid.model(model).endpoint):
            return {"device": "cpu", **options, "connection": json.dumps(endpoint.connection())}
        return {"device": config.device, **options}

    # The grid's own stages

    @cached_property
    def jobs(self) -> list[Job]:
        """The jobs behind all runs and scores of the grid."""
        return jobs_behind(self.grid, *artifacts.ends(self.grid))

    @cached_property
    def outdated(self) -> dict[Job, str]:
        """Why the jobs of the grid must run again; empty for a job whose artifacts are as they should be."""
        ancestry = lineage.Ancestry()
        return {job: self.reason_of(job, ancestry) for job in self.jobs}

    @cached_property
    def replaced(self) -> dict[str, set[str]]:
        """The records of each other grid that this one replaces."""
        others = summary.others(self.grid.config.grid.name)
        return {other.name: {*other.replaced_by(self.digests)} for other in others}

    def keep_replaced(self) -> None:
        """Keep the records of other grids that the run replaces: their reports say what has changed."""
        for name, records in self.replaced.items():
            for path in records:
                kept = Path(paths.REPLACED.format(grid=name), Path(path).relative_to("results"))
                files.replace(kept, Path(path).read_bytes())

    def reason_of(self, job: Job, ancestry: lineage.Ancestry | None = None) -> str:
        """Return why a job must run again, or an empty string."""
        record = Path(self.grid.own(job.record))
        sources = self._sources(job) if record.is_file() else []
        return reason(record, lambda: self.output_params(job), sources, ancestry or lineage.Ancestry())

    def _sources(self, job: Job) -> list[list[Path]]:
        """Return the inputs of a job, by option; those of the job behind one that was deleted with its record."""
        lists: list[list[Path]] = []
        for given in job.inputs(self.grid).values():
            of_option = [given] if isinstance(given, Output) else given
            there = [source for source in of_option if Path(source.job.record).is_file()]
            lists.append([Path(source.path) for source in there])
            for source in of_option:
                lists += [] if source in there else self._sources(source.job)
        return lists

    def force_if_outdated(self, job: Job) -> None:
        """Force a job whose record does not match to run, as ``--forcerun`` does."""
        from snakemake.settings.types import RerunTrigger

        if self.workflow is None or RerunTrigger.PARAMS not in self.workflow.rerun_triggers:
            return
        self.tell_outdated()
        if self.outdated[job] if job in self.outdated else self.reason_of(job):
            self.workflow.dag.forcefiles.add(self.grid.own(job.record))

    def expected_seconds(self, jobs: Iterable[Any]) -> dict[str, float]:
        """Return the seconds that plan expects of jobs of Snakemake, by their rules and wildcards."""
        here = self.workflow.executor_plugin.name == "local" and not has_gpu_driver()
        resources = Resources(self.grid, "cpu" if here else "cuda")
        seconds = {}
        for job in jobs:
            if rule := self.rule_of(job.rule):
                need = resources.need(Job.of(rule.stage.rule, job.wildcards_dict))
                seconds[job_name(job.rule.name, job.wildcards_dict)] = need.seconds
        return seconds

    def threads_of_models(self, jobs: Iterable[Any]) -> int:
        """Return the threads of the first of the jobs of Snakemake that runs a model; 0 if none does."""
        return next((job.threads for job in jobs if (rule := self.rule_of(job.rule)) and rule.runs_models), 0)

    def _tell_outdated(self) -> None:
        """Name outdated jobs in Snakemake's log, without tables and page, which any change of the grid changes."""
        outdated = {job.record: reason for job, reason in self.outdated.items() if reason}
        for line in notices(outdated, self.replaced if outdated else {}):
            self.workflow.logger_manager.logger.warning(line)

    @cached_property
    def digests(self) -> dict[str, str]:
        """The digests of the params of the grid's jobs, by record."""
        return {job.record: provenance.digest(self.output_params(job)) for job in self.jobs}

    def summary_json(self) -> str:
        """Return the summary of the grid, with the digests of its jobs' params."""
        return self.summary.as_json(self.digests)

    @cached_property
    def _summary_digest(self) -> str:
        return provenance.digest({"summary": self.summary_json(), "published": [*map(files.sha256, PUBLISHED)]})


def _with_values(options: Settings) -> Settings:
    """Leave out None, False and empty lists, so that the digests of records stay those of earlier versions."""
    return {
        name: value for name, value in options.items() if not (value is None or value is False or value in ([], ()))
    }


# Reasons to rerun a job that Snakemake does not see: replaced local files, and records that do not match.


@cache
def _sha256(path: str, changed: int) -> str:
    """Return the hash of a local file, which a run reads once. ``changed`` is the time of its last change."""
    return files.sha256(path)


def state(local: Iterable[str]) -> str:
    """Digest the contents of local files and their names within their folder.

    As a param, the digest changes when a file's content changes, and not when the file is touched, moved or copied.
    """
    digests = {}
    for path in local:
        with suppress(OSError):  # Snakemake reports missing inputs. A pipe or a device is not read.
            changed = Path(path).stat().st_ctime_ns
            digests[path] = _sha256(os.path.realpath(path), changed) if Path(path).is_file() else str(changed)
    folder = os.path.commonpath([Path(path).parent for path in digests]) if digests else ""
    named = sorted((os.path.relpath(path, folder), digest) for path, digest in digests.items())
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:16] if named else ""


def reason(
    record: Path,
    params: Callable[[], Mapping[str, Any]],
    sources: Sequence[Sequence[Path]],
    ancestry: lineage.Ancestry,
) -> str:
    """Return why the artifacts of a record must be made again, or an empty string.

    Snakemake does not see damage, nor other settings in a folder without its metadata, nor that an input was made again
    and then deleted, as vectors are. A missing record is an output, which it looks for itself.
    """
    if not record.is_file():
        return ""
    try:
        known = ancestry.record_of(record).record or provenance.read_record(record)
        if known["settings_key"] != provenance.digest(asked := params()):
            read = provenance.without_paths if asked.get("files") else json.loads
            made = known.get("job", {}).get("settings", known.get("asked", {}))  # records of 0.2.0 have no job
            before = {"stage version": known["stage_version"], **read(json.dumps(made))}
            now = {"stage version": asked["version"], **portable(read(asked["settings"]))}
            return ", ".join(provenance.changes(before, now)) or "a local file has another content"
        mismatch = next(provenance.mismatches(record, known), "")
        if not mismatch and (source := ancestry.other_source(record, sources)):
            return f"made from another {source}"
    except DataError as error:
        mismatch = str(error)
    return mismatch.removesuffix(f". {files.REMEDY}")


def notices(reasons: Mapping[str, str], replaced: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield a line about each reason to make artifacts again, and about each other grid that shows these artifacts."""
    for reason in dict.fromkeys(reasons.values()):
        [first, *others] = [path for path, of_path in reasons.items() if of_path == reason]
        more = f" and {len(others):,} more" if others else ""
        yield f"To be made again, replacing what is there: {first}{more} ({reason})"
        if grids := [grid for grid, records in replaced.items() if records & {first, *others}]:
            keep = "to keep both scores, give the changed model and its systems other names"
            yield f"Scores of the grid {' and '.join(grids)} were made from this, and will read as replaced: {keep}"
