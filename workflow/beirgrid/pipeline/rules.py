"""The directives of Snakemake's rules, each from what its stage says."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ..core import files, provenance
from ..core.checkout import INSTALLED, MODULES
from . import artifacts, reruns
from .grid import Grid
from .resources import Resources, signed
from .stage import Job, Output, Settings, Stage, jobs_behind, stages
from .summaries import PUBLISHED, Summary

# A folder in the working directory that contains only a link to the package.
_LINKED = Path(".snakemake/beirgrid/modules")
KIND = "BEIRGRID_LIBRARIES"  # as tools.forks, which stands above this layer, names it


class Rule:
    """The directives of one rule. Functions take a job's wildcards."""

    def __init__(self, rules: Rules, stage: Stage) -> None:
        self.rules, self.grid, self.stage = rules, rules.grid, stage
        self._settings: dict[tuple[tuple[str, str], ...], str] = {}

    @cached_property
    def inputs(self) -> Callable[[Any], dict[str, Any]]:
        """The input function."""
        return signed(self._inputs)

    def _inputs(self, wildcards: Any) -> dict[str, Any]:
        """Return the inputs of a job by option, and its local files."""
        job = Job.of(self.stage.rule, wildcards.items())
        self.rules.force_if_outdated(job)
        given = job.inputs(self.grid)
        found: dict[str, Any] = {
            name: one.path if isinstance(one, Output) else [each.path for each in one] for name, one in given.items()
        }
        # Snakemake would expand {x} and <x> in the names of local files.
        files = [name for name in self._files(wildcards) if not re.search(r"\{|<[a-z]", name)]
        return found | ({"files": files} if files else {})

    def _files(self, wildcards: Any) -> Iterable[str]:
        return self.stage.files(self.grid, **dict(wildcards.items()))

    @cached_property
    def params(self) -> dict[str, Any]:
        """Params. The command takes ``output``, so Snakemake does not compare its values."""
        return {**self.compared, "command": signed(self.command, "input", "output", "threads", "resources")}

    @cached_property
    def compared(self) -> dict[str, Any]:
        """The params that change the output: version, settings, and the content of local files."""
        state: Callable[[Any], str] | None = None
        if self.stage.of_grid:
            state = signed(self.rules.summary_state)
        elif type(self.stage).files is not Stage.files:
            state = signed(lambda wildcards: reruns.state(self._files(wildcards)))
        files = {"files": state} if state else {}
        return {"version": self.stage.stamp.version, "settings": signed(self.settings), **files}

    def settings(self, wildcards: Any) -> str:
        """Return the settings of a job as JSON. Snakemake and the records ask for them often."""
        key = tuple(wildcards.items())
        if key not in self._settings:
            self._settings[key] = json.dumps(_with_values(self.stage.settings(self.grid, **dict(key))))
        return self._settings[key]

    def output_params(self, wildcards: Any) -> Settings:
        """Return the params of a job that change its output."""
        return {name: value(wildcards) if callable(value) else value for name, value in self.compared.items()}

    def command(self, wildcards: Any, input: Any, output: Any, threads: int, resources: Any) -> str:
        """Return a job's command, which imports this checkout's package, and nothing from the working directory."""
        name = self.stage.run.partition(":")[2]
        kind = f"{KIND}=models " if self.stage.runs_models else ""  # the server of libraries that forks the job
        job = shlex.quote(self.job(wildcards, input, output, threads, resources))
        return f"PYTHONSAFEPATH=1 {kind}{self.rules.python} -m beirgrid stage {name} <<< {job}"

    def job(self, wildcards: Any, input: Any, output: Any, threads: int, resources: Any) -> str:
        """Return a job as JSON: its inputs, outputs, settings, and what changes no output."""
        stage, named = self.stage, dict(wildcards.items())
        options = {**stage.options(self.grid, **named), **(self.rules.compute(named) if stage.runs_models else {})}
        limits = {"threads": threads, "memory": self.rules.resources.heap_mb(resources.mem_mb)}
        options |= {name: limits[name] for name in stage.takes}
        outputs = {"output" if name == stage.main else name: str(output[name]) for name in stage.outputs}
        return json.dumps(
            {
                "inputs": _with_values(
                    {name: input.get(name) for name in Job.of(stage.rule, named.items()).inputs(self.grid)}
                ),
                "outputs": {name: path for name, path in outputs.items() if name not in options},
                "settings": json.loads(self.settings(wildcards)),
                "options": _with_values(options),
                "digest": provenance.digest(self.output_params(wildcards)),
            }
        )

    @cached_property
    def constraints(self) -> dict[str, str]:
        """Regular expressions of the wildcards."""
        return self.stage.constraints(self.grid)

    @cached_property
    def resources(self) -> dict[str, Any]:
        """Memory, time, disk, GPU, partition."""
        return self.rules.resources.directives(self.stage)

    @cached_property
    def threads(self) -> Callable[[Any], int]:
        """The function of a job's threads: all cores that it may take on its node."""
        return signed(lambda wildcards: self.rules.resources.limits(self.stage.rule, wildcards).cores)

    @cached_property
    def group(self) -> Callable[[Any], str | None]:
        """The function that names the cluster job that a job shares with others."""
        return signed(lambda wildcards: self.rules.resources.group(self.stage.rule, dict(wildcards.items())))


class Rules:
    """The rules of a grid, as attributes: ``rules.rerank.inputs``."""

    def __init__(self, grid: Grid, own_python: bool) -> None:
        """Set up for a grid. ``own_python`` is true if jobs run in this Python, false in conda environments."""
        self.grid = grid
        self.resources = Resources(grid)
        self.summary = Summary(grid)
        self.own_python = own_python
        self.workflow: Any = None  # Snakemake's, in its main process
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
        owner = getattr(command.func, "__self__", None) if isinstance(command, partial) else None
        return owner if isinstance(owner, Rule) and owner.rules is self else None

    def link_package(self) -> None:
        """Create the link through which Pythons of conda environments import an installed package."""
        link = self.modules / "beirgrid"
        if self.modules == _LINKED and not link.exists():
            link.unlink(missing_ok=True)  # the link of a removed package
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(MODULES / "beirgrid", target_is_directory=True)

    def compute(self, wildcards: dict[str, str]) -> Settings:
        """Return the options of a job that runs a model: its device, and how it computes."""
        config = self.grid.config
        options: Settings = {"batch_tokens": config.encode.batch_tokens.model_dump(), "kernels": config.kernels}
        if endpoint := self.grid.endpoint(wildcards):
            return {"device": "cpu", **options, "connection": json.dumps(endpoint.connection())}
        return {"device": config.device, **options}

    # The grid's own stages

    @cached_property
    def jobs(self) -> list[Job]:
        """The jobs behind all runs and scores of the grid."""
        return jobs_behind(self.grid, *(artifacts.scores(self.grid, *cell) for cell in self.grid.runs))

    def params_of(self, job: Job) -> Settings:
        """Return the params of a job that change its output."""
        return self._rules[job.rule].output_params(dict(job.wildcards))

    @cached_property
    def outdated(self) -> dict[str, str]:
        """Why artifacts of the grid must be made again, by record; empty if nothing is the matter with one.

        Snakemake's log names them, without tables and page, which any change of the grid changes.
        """
        reasons = {job.record: self._reason(job) for job in self.jobs}
        for line in reruns.notices({path: reason for path, reason in reasons.items() if reason}):
            self.workflow.logger_manager.logger.warning(line)
        return reasons

    def _reason(self, job: Job) -> str:
        return reruns.reason(Path(self.grid.own(job.record)), lambda: self.params_of(job))

    def force_if_outdated(self, job: Job) -> None:
        """Force a job whose record does not match to run, as ``--forcerun`` does.

        Input functions call this: Snakemake has no interface for further reasons to rerun a job. It asks for the inputs
        of all jobs before it decides which of them run.
        """
        from snakemake.settings.types import RerunTrigger

        if self.workflow is None or RerunTrigger.PARAMS not in self.workflow.rerun_triggers:
            return
        record = self.grid.own(job.record)
        if self.outdated[record] if record in self.outdated else self._reason(job):
            self.workflow.dag.forcefiles.add(record)

    def summary_json(self) -> str:
        """Return the summary of the grid, with the digests of its jobs' params."""
        return self.summary.as_json({job.record: provenance.digest(self.params_of(job)) for job in self.jobs})

    @cached_property
    def _summary_digest(self) -> str:
        return provenance.digest({"summary": self.summary_json(), "published": [*map(files.sha256, PUBLISHED)]})

    def summary_state(self, wildcards: Any) -> str:
        """Return the digest of what the tables and the page are made of."""
        return self._summary_digest


def _with_values(options: Settings) -> Settings:
    """Leave out None, False and empty lists, so that the digests of records stay those of earlier versions."""
    return {
        name: value for name, value in options.items() if not (value is None or value is False or value in ([], ()))
    }
