"""The jobs of a grid: which stage makes each output, and which jobs lie behind it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from ..core.provenance import Stamp
from .grid import Grid, fill
from .stage import Inputs, Output, Stage


class Job(NamedTuple):
    """A job of the grid: its rule, and its wildcards in alphabetical order."""

    rule: str
    wildcards: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, rule: str, wildcards: Mapping[str, object]) -> Job:
        """Name the job of a rule with these wildcards."""
        return cls(rule, tuple(sorted((name, str(value)) for name, value in wildcards.items())))

    @property
    def stage(self) -> Stage:
        """The stage of the job."""
        return stages()[self.rule]

    @property
    def values(self) -> dict[str, str]:
        """The wildcards by name."""
        return dict(self.wildcards)

    @property
    def record(self) -> str:
        """The path of the job's record. The record of an evaluation is its scores."""
        outputs = self.stage.outputs
        return fill(outputs.get("record", outputs.get(self.stage.main, "")), **self.values)

    def inputs(self, grid: Grid) -> Inputs:
        """Return the inputs of the job. They are asked for several times, and kept with the grid."""
        if self not in grid.inputs:
            grid.inputs[self] = self.stage.inputs(grid, **self.values)
        inputs: Inputs = grid.inputs[self]
        return inputs

    def sources(self, grid: Grid) -> list[Job]:
        """Return the jobs that make the inputs of the job."""
        sources: list[Job] = []
        for read in self.inputs(grid).values():
            outputs = [read] if isinstance(read, Output) else read
            sources.extend(output.job for output in outputs)
        return sources


def job_name(rule: str, wildcards: Mapping[str, str]) -> str:
    """Return what a job of Snakemake is called: its rule and wildcards."""
    return " ".join([rule, *wildcards.values()])


def output(pattern: str, grid: Grid | None = None, **wildcards: Any) -> Output:
    """Return the output at a path pattern, of the job that writes it.

    Args:
        grid: decides where several rules write such files.
    """
    rules = _writers()[pattern]
    rule = next(name for name in rules if len(rules) == 1 or (grid and stages()[name].is_for(grid, **wildcards)))
    return Output(Job.of(rule, wildcards), fill(pattern, **wildcards))


@cache
def stages() -> dict[str, Stage]:
    """Return all stages, by rule: those of the folders of ``stages``, and that of the paper's analyses."""
    root = __name__.rpartition(".graph")[0]
    folder = importlib.import_module(f"{root}.stages").__path__
    plans = [*(f"stages.{package.name}" for package in pkgutil.iter_modules(folder)), "paper"]
    members = chain(*(vars(importlib.import_module(f"{root}.{plan}.plan")).values() for plan in plans))
    classes = (member for member in members if isinstance(member, type) and issubclass(member, Stage))
    kinds = [kind for kind in classes if hasattr(kind, "version")]
    return {stage.rule: stage for kind in kinds for stage in kind.variants()}


@cache
def _writers() -> dict[str, list[str]]:
    """Return the rules that write each pattern."""
    rules: dict[str, list[str]] = {}
    for stage in stages().values():
        for pattern in stage.outputs.values():
            rules.setdefault(pattern, []).append(stage.rule)
    return rules


@cache
def stamps() -> dict[str, Stamp]:
    """Return the stamps of all stages, by their names in records."""
    return {stage.stamp.name: stage.stamp for stage in stages().values()}


@cache
def by_function() -> dict[str, Stage]:
    """Return a stage of each function, by its name. Stages of one function have one stamp."""
    return {stage.function: stage for stage in stages().values()}


def jobs_behind(grid: Grid, *ends: Output) -> list[Job]:
    """Return the jobs that make these outputs and all that they read, each once and after the jobs it reads from."""
    jobs: dict[Job, None] = {}

    def walk(job: Job) -> None:
        if job in jobs:
            return
        for source in job.sources(grid):
            walk(source)
        jobs[job] = None

    for end in ends:
        walk(end.job)
    return list(jobs)
