"""Resources of each job: memory, time, disk, GPU, partition. Rules take them with ``**needs("rule")``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from typing import Any

from ..config.entries import NodeLimits
from ..core.stages import DOWNLOADS, STAGES
from . import costs
from .costs import CORES, Need, Work
from .grid import Grid
from .nodes import STAGES_IN_TURN, JobGroups, signed
from .sizes import Sizes

# Memory of the Snakemake that starts a stage in a cluster job (measured: 180 + 333 MB).
SNAKEMAKE_MB = 600
# Memory of Python and of Java outside its heap, in a Lucene job.
OUTSIDE_HEAP_MB = 400
# Safety factors on the estimates, and minutes that every job gets in addition.
MEMORY_MARGIN, TIME_MARGIN, LEAST_MINUTES, DISK_MARGIN = 1.4, 3.0, 20, 1.5


class Needs:
    """The resources of a grid's jobs, by rule and wildcards."""

    def __init__(self, grid: Grid, device: str = "cuda", cores: int = CORES) -> None:
        """Set up for a grid. ``device`` is where models run if the configuration has ``auto``. A job has ``cores``.

        A job may run on another machine than the one that plans it, so this machine is not asked for a GPU.
        """
        self.grid = grid
        self.cores = cores
        self.config = grid.config
        self.device = device if self.config.device == "auto" else str(self.config.device)
        self.nodes = JobGroups(grid)
        self.sizes = Sizes(grid.config, grid.datasets)
        self.work = Work(grid, self.sizes, self.device)
        self.of: Callable[..., Need] = cache(self._of)

    def __call__(self, rule: str) -> dict[str, Any]:
        """Return the resources of a rule's jobs, as Snakemake's directive takes them."""
        resources: dict[str, Any] = {
            "mem_mb": lambda wildcards, attempt: self.mem_mb(rule, wildcards, attempt),
            "runtime": lambda wildcards, attempt: self.runtime(rule, wildcards, attempt),
            "disk_mb": lambda wildcards: self.disk_mb(rule, wildcards),
        }
        if rule in DOWNLOADS:
            resources["network"] = 1
        if self.nodes.may_use_gpu(rule):
            resources["gpu"] = lambda wildcards: int(self.nodes.kind(rule, wildcards) == "gpu")
        limits = self.config.nodes
        if limits.cpu.partition or limits.gpu.partition:
            resources["slurm_partition"] = lambda wildcards: self.limits(rule, wildcards).partition
        if limits.gpu.gpu_model and self.nodes.may_use_gpu(rule):
            resources["gpu_model"] = lambda wildcards: self.limits(rule, wildcards).gpu_model
        return {name: signed(value) if callable(value) else value for name, value in resources.items()}

    @cached_property
    def rates(self) -> dict[str, float]:
        """Units of work per second."""
        by_cores = costs.BY_CORES if self.device == "cpu" else ()
        shares = dict.fromkeys(by_cores, self.cores / CORES)
        return {name: rate[self.device] * shares.get(name, 1.0) for name, rate in costs.RATES.items()}

    def _of(self, rule: str, **wildcards: str) -> Need:
        units = {} if STAGES[rule].cost else self.work.of(rule, **wildcards)
        runs_model = self.nodes.runs_model(rule, wildcards)
        return costs.need(rule, units, self.rates, runs_model, self.config.encode.keep)

    def mem_mb(self, rule: str, wildcards: Mapping[str, str], attempt: int) -> int:
        """Return the memory to request, in MB. It doubles with each attempt, up to the node's memory."""
        wanted = (self._need(rule, wildcards).memory * MEMORY_MARGIN + SNAKEMAKE_MB) * (1 << attempt - 1)
        return min(math.ceil(wanted / 100) * 100, self.limits(rule, wildcards).mem_mb)

    def runtime(self, rule: str, wildcards: Mapping[str, str], attempt: int) -> int:
        """Return the time to request, in minutes. It grows with each attempt, up to the node's limit."""
        wanted = (LEAST_MINUTES + self._need(rule, wildcards).seconds / 60 * TIME_MARGIN) * attempt
        return min(math.ceil(wanted), self.most_minutes(rule, wildcards))

    def disk_mb(self, rule: str, wildcards: Mapping[str, str]) -> int:
        """Return permanent plus temporary output, in MB."""
        need = self._need(rule, wildcards)
        return math.ceil((need.kept + need.temporary) * DISK_MARGIN / 100 + 1) * 100

    def heap_mb(self, mem_mb: int) -> int:
        """Return the Java heap, in MB, for a job with ``mem_mb`` of memory."""
        return max(500, mem_mb - SNAKEMAKE_MB - OUTSIDE_HEAP_MB)

    def limits(self, rule: str, wildcards: Mapping[str, str]) -> NodeLimits:
        """Return the limits of the node that a job runs on."""
        node: NodeLimits = getattr(self.config.nodes, self.nodes.kind(rule, wildcards))
        return node

    def most_minutes(self, rule: str, wildcards: Mapping[str, str]) -> int:
        """Return the longest time that a job may request. Grouped jobs share the node's limit."""
        stages = STAGES_IN_TURN if self.nodes.group_of(rule, wildcards) else 1
        return max(1, self.limits(rule, wildcards).runtime // stages)

    def _need(self, rule: str, wildcards: Mapping[str, str]) -> Need:
        return self.of(rule, **dict(wildcards.items()))
