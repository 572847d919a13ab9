"""Resources of each job: memory, time, disk, GPU, partition, and the cluster job that it shares with others."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

from ..config.entries import NodeLimits
from .grid import Grid
from .sizes import Sizes
from .stage import Cost, Stage, stages

# Cores of the machines on which costs on a CPU were measured. Models and searches scale with a job's cores.
CORES = 2
# Arithmetic per second, by device: of a model, attention included, and of an exact search. CPU: MiniLM and a model of
# two layers reached 1.2e11 to 1.8e11 per core on an AMD EPYC, in float32. GPU: a sixth of the 312e12 in NVIDIA's data
# sheet of the A100 (bfloat16); of a search, not measured.
RATES = {"model_flops": {"cpu": 3e11, "cuda": 5e13}, "search_flops": {"cpu": 1e11, "cuda": 1e11}}
# What every job takes, without or with a model: the start of Python, or of PyTorch and sentence-transformers.
PLAIN = {"job": Cost(seconds=1, memory=200), "served_seconds": Cost(seconds=1)}
NEURAL = {
    "job": Cost(seconds=8, memory=1150),
    "weights_mb": Cost(memory=2),  # weights are read and cast; fitted to records of the demo and of a 34-cell grid
    "cuda_job": Cost(memory=4000),  # libraries and context of CUDA; assumed
    "model_flops": Cost(seconds=1),
}
# Memory of the Snakemake that starts a stage in a cluster job (measured: 180 + 333 MB), and of Python and of Java
# outside its heap, in a Lucene job.
SNAKEMAKE_MB, OUTSIDE_HEAP_MB = 600, 400
# Safety factors on the estimates, and minutes that every job gets in addition.
MEMORY_MARGIN, TIME_MARGIN, LEAST_MINUTES, DISK_MARGIN = 1.4, 3.0, 20, 1.5
# Upper bound on the stages that one grouped job runs sequentially (four encoded, then indexed).
STAGES_IN_TURN = 8

Wildcards = Mapping[str, str]


class Need(NamedTuple):
    """Estimate for a job: seconds, and MB of peak memory, kept files, temporary files and downloads."""

    seconds: float = 0.0
    memory: float = 0.0
    kept: float = 0.0
    temporary: float = 0.0
    download: float = 0.0


def need(stage: Stage, work: Mapping[str, float], rates: Mapping[str, float], runs_model: bool, keep: bool) -> Need:
    """Estimate the time, memory, disk and download of a job.

    Args:
        work: amount of each unit in the job; an absent unit is 0.
        rates: units per second, for the units of ``RATES``.
        runs_model: whether the job starts PyTorch and opens a model.
        keep: whether vectors are kept after indexing.
    """
    seconds, memory, scratch, output = 0.0, 0.0, 0.0, 0.0
    for costs in (NEURAL if runs_model else PLAIN, stage.costs):
        for unit, cost in costs.items():
            amount = work.get(unit, 0.0)
            seconds += amount * cost.seconds / rates.get(unit, 1.0)
            memory += amount * cost.memory
            scratch += amount * cost.disk * (unit == "scratch_mb")
            output += amount * cost.disk * (unit != "scratch_mb")
    download = work.get("download_mb", 0.0)
    if stage.temporary and not keep:
        return Need(seconds, memory, 0.0, scratch + output, download)
    return Need(seconds, memory, output, scratch, download)


def signed(function: Callable[..., Any], *names: str) -> partial[Any]:
    """Tell Snakemake the arguments of a rule function, which it would find out anew several times per job."""
    from snakemake.common import overwrite_function_params

    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("wildcards", *names)]
    signed = partial(function)
    overwrite_function_params(signed, inspect.Signature(parameters).parameters)
    return signed


class Resources:
    """The resources of a grid's jobs, by rule and wildcards."""

    def __init__(self, grid: Grid, device: str = "cuda", cores: int = CORES) -> None:
        """Set up for a grid. ``device`` is where models run if the configuration has ``auto``. A job has ``cores``.

        A job may run on another machine than the one that plans it, so this machine is not asked for a GPU.
        """
        self.grid = grid
        self.config = grid.config
        self.cores = min(cores, self.config.nodes.cpu.cores)
        self.device = device if self.config.device == "auto" else str(self.config.device)
        self.sizes = Sizes(grid, self.device)
        self.of: Callable[..., Need] = cache(self._of)

    def directives(self, stage: Stage) -> dict[str, Any]:
        """Return the resources of a rule's jobs, as Snakemake's directive takes them."""
        rule, limits = stage.rule, self.config.nodes
        resources: dict[str, Any] = {
            "mem_mb": signed(lambda wildcards, attempt: self.mem_mb(rule, wildcards, attempt), "attempt"),
            "runtime": signed(lambda wildcards, attempt: self.runtime(rule, wildcards, attempt), "attempt"),
            "disk_mb": signed(lambda wildcards: self.disk_mb(rule, wildcards)),
        }
        if stage.downloads:
            resources["network"] = 1
        if self.config.device != "cpu" and (stage.runs_models or stage.gpu):
            resources["gpu"] = signed(lambda wildcards: int(self.kind(rule, wildcards) == "gpu"))
            if limits.gpu.gpu_model:
                resources["gpu_model"] = signed(lambda wildcards: self.limits(rule, wildcards).gpu_model)
        if limits.cpu.partition or limits.gpu.partition:
            resources["slurm_partition"] = signed(lambda wildcards: self.limits(rule, wildcards).partition)
        return resources

    @property
    def rates(self) -> dict[str, float]:
        """Arithmetic per second on the device of the models."""
        share = self.cores / CORES if self.device == "cpu" else 1.0
        return {unit: rate[self.device] * share for unit, rate in RATES.items()}

    def work(self, rule: str, **wildcards: str) -> dict[str, float]:
        """Return the work of a job, in the units of its stage's costs."""
        return {**self.sizes.of_any_job(wildcards), **stages()[rule].work(self.sizes, **wildcards)}

    def _of(self, rule: str, **wildcards: str) -> Need:
        stage = stages()[rule]
        runs_model = stage.runs_model(self.grid, **wildcards)
        return need(stage, self.work(rule, **wildcards), self.rates, runs_model, self.config.encode.keep)

    def mem_mb(self, rule: str, wildcards: Wildcards, attempt: int) -> int:
        """Return the memory to request, in MB. It doubles with each attempt, up to the node's memory."""
        wanted = (self._need(rule, wildcards).memory * MEMORY_MARGIN + SNAKEMAKE_MB) * (1 << attempt - 1)
        return min(math.ceil(wanted / 100) * 100, self.limits(rule, wildcards).mem_mb)

    def runtime(self, rule: str, wildcards: Wildcards, attempt: int) -> int:
        """Return the time to request, in minutes. It grows with each attempt, up to the node's limit."""
        wanted = (LEAST_MINUTES + self._need(rule, wildcards).seconds / 60 * TIME_MARGIN) * attempt
        return min(math.ceil(wanted), self.most_minutes(rule, wildcards))

    def disk_mb(self, rule: str, wildcards: Wildcards) -> int:
        """Return permanent plus temporary output, in MB."""
        need = self._need(rule, wildcards)
        return math.ceil((need.kept + need.temporary) * DISK_MARGIN / 100 + 1) * 100

    def heap_mb(self, mem_mb: int) -> int:
        """Return the Java heap, in MB, for a job with ``mem_mb`` of memory."""
        return max(500, mem_mb - SNAKEMAKE_MB - OUTSIDE_HEAP_MB)

    def most_minutes(self, rule: str, wildcards: Wildcards) -> int:
        """Return the longest time that a job may request. Grouped jobs share the node's limit."""
        in_turn = STAGES_IN_TURN if self.group(rule, dict(wildcards.items())) else 1
        return max(1, self.limits(rule, wildcards).runtime // in_turn)

    def _need(self, rule: str, wildcards: Wildcards) -> Need:
        return self.of(rule, **dict(wildcards.items()))

    # Nodes

    def kind(self, rule: str, wildcards: Wildcards) -> str:
        """Return the kind of node that a job runs on."""
        may = self.config.device != "cpu"
        return "gpu" if may and stages()[rule].uses_gpu(self.grid, **dict(wildcards.items())) else "cpu"

    def limits(self, rule: str, wildcards: Wildcards) -> NodeLimits:
        """Return the limits of the node that a job runs on."""
        node: NodeLimits = getattr(self.config.nodes, self.kind(rule, wildcards))
        return node

    def group(self, rule: str, wildcards: Wildcards) -> str | None:
        """Return the name of the cluster job that a job shares with others, or None.

        Jobs on GPU nodes share none: they would hold the GPU while another stage runs. No group member may depend on
        another through a job outside the group, so group names include how many reranking and fusion rounds come
        first, and the shards of models that are trained here are encoded in jobs of their own.
        """
        group = stages()[rule].group
        if not group or not self.config.small_corpus or self.kind(rule, wildcards) == "gpu":
            return None
        if group == "cell":
            return self._cell_group(wildcards["system"], wildcards["dataset"])
        trained = self.grid.model(wildcards["model"]).training is not None
        if self.config.device != "cpu" or trained or not self.grid.is_small(wildcards["corpus"]):
            return None
        return "encode-index"

    def _cell_group(self, system: str, dataset: str) -> str | None:
        entry, small = self.grid.system(system), self.grid.is_small(self.grid.corpus(dataset))
        if entry.parts:  # reranking and fusing are short, however large the corpus
            return f"combine-{self.grid.layers[system]}" if small else f"combine-{dataset}-{system}"
        if not small:
            return None
        if entry.kind == "lexical":
            return "retrieve-bm25"
        on_cpu = entry.kind not in ("external", "program") and self.config.device == "cpu"
        return "retrieve-model" if on_cpu else "evaluate"
