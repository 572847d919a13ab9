"""Resources of each job: memory, time, disk, GPU, partition, and the cluster job that it shares with others."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

from ..config.entries import NodeLimits
from ..core import paths
from .dag import Job, output
from .grid import Grid
from .sizes import Sizes
from .stage import Cost, Stage

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
# Memory of the Snakemake that starts a stage in a cluster job (measured: 180 + 333 MB).
SNAKEMAKE_MB = 600
# Memory of Python and of Java outside its heap, in a Lucene job.
OUTSIDE_HEAP_MB = 400
# Safety factors on the estimates.
MEMORY_MARGIN = 1.4
TIME_MARGIN = 3.0
DISK_MARGIN = 1.5
# Minutes that every job gets in addition.
LEAST_MINUTES = 20
# Upper bound on the stages that one grouped job runs sequentially (four encoded, then indexed).
STAGES_IN_TURN = 8


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
    seconds = 0.0
    memory = 0.0
    scratch = 0.0
    output = 0.0
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


def of_jobs(stage: Stage, function: Callable[..., Any], *names: str) -> partial[Any]:
    """Return a function of jobs in the form that Snakemake calls: with a job's wildcards, and ``names`` as keywords.

    Snakemake is told the names, which it would find out anew several times per job.
    """
    from snakemake.common import overwrite_function_params

    parameters = {name: inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names}
    of_wildcards = partial(lambda wildcards, **others: function(Job.of(stage.rule, wildcards), **others))
    overwrite_function_params(of_wildcards, parameters)
    return of_wildcards


class Resources:
    """The resources of a grid's jobs."""

    def __init__(self, grid: Grid, device: str = "cuda", cores: int = CORES) -> None:
        """Set up for a grid. ``device`` is where models run if the configuration has ``auto``. A job has ``cores``.

        A job may run on another machine than the one that plans it, so this machine is not asked for a GPU.
        """
        self.grid = grid
        self.config = grid.config
        self.cores = min(cores, self.config.nodes.cpu.cores)
        self.device = device if self.config.device == "auto" else str(self.config.device)
        self.sizes = Sizes(grid, self.device)
        self.need: Callable[[Job], Need] = cache(self._need)
        self.kind: Callable[[Job], str] = cache(self._kind)

    def directives(self, stage: Stage) -> dict[str, Any]:
        """Return the resources of a rule's jobs, as Snakemake's directive takes them."""
        nodes = self.config.nodes
        resources: dict[str, Any] = {
            "mem_mb": of_jobs(stage, self.mem_mb, "attempt"),
            "runtime": of_jobs(stage, self.runtime, "attempt"),
            "disk_mb": of_jobs(stage, self.disk_mb),
        }
        if stage.downloads:
            resources["network"] = 1
        if self._may_use_gpu(stage):
            resources["gpu"] = self.by_kind(stage, lambda kind: int(kind == "gpu"))
            if nodes.gpu.gpu_model:
                resources["gpu_model"] = self.by_kind(stage, lambda kind: nodes.limits(kind).gpu_model)
        if nodes.cpu.partition or nodes.gpu.partition:
            resources["slurm_partition"] = self.by_kind(stage, lambda kind: nodes.limits(kind).partition)
        return resources

    def by_kind(self, stage: Stage, value: Callable[[str], Any]) -> Any:
        """Return a value of the kind of node that a rule's jobs run on, or a function of jobs if it may be either."""
        return of_jobs(stage, lambda job: value(self.kind(job))) if self._may_use_gpu(stage) else value("cpu")

    @property
    def rates(self) -> dict[str, float]:
        """Arithmetic per second on the device of the models."""
        share = self.cores / CORES if self.device == "cpu" else 1.0
        return {unit: rate[self.device] * share for unit, rate in RATES.items()}

    def work(self, job: Job) -> dict[str, float]:
        """Return the work of a job, in the units of its stage's costs."""
        return {**self.sizes.of_any_job(job.values), **job.stage.work(self.sizes, **job.values)}

    def _need(self, job: Job) -> Need:
        runs_model = job.stage.runs_model(self.grid, **job.values)
        return need(job.stage, self.work(job), self.rates, runs_model, self.config.encode.keep)

    def mem_mb(self, job: Job, attempt: int) -> int:
        """Return the memory to request, in MB. It doubles with each attempt, up to the node's memory."""
        wanted = (self.need(job).memory * MEMORY_MARGIN + SNAKEMAKE_MB) * (1 << attempt - 1)
        return min(math.ceil(wanted / 100) * 100, self.limits(job).mem_mb)

    def runtime(self, job: Job, attempt: int) -> int:
        """Return the time to request, in minutes. It grows with each attempt, up to the node's limit."""
        wanted = (LEAST_MINUTES + self.need(job).seconds / 60 * TIME_MARGIN) * attempt
        return min(math.ceil(wanted), self.most_minutes(job))

    def disk_mb(self, job: Job) -> int:
        """Return permanent plus temporary output, in MB."""
        need = self.need(job)
        return math.ceil((need.kept + need.temporary) * DISK_MARGIN / 100 + 1) * 100

    def heap_mb(self, mem_mb: int) -> int:
        """Return the Java heap, in MB, for a job with ``mem_mb`` of memory."""
        return max(500, mem_mb - SNAKEMAKE_MB - OUTSIDE_HEAP_MB)

    def most_minutes(self, job: Job) -> int:
        """Return the longest time that a job may request. Grouped jobs share the node's limit."""
        return max(1, self.limits(job).runtime // (STAGES_IN_TURN if self.group(job) else 1))

    # Nodes

    def _may_use_gpu(self, stage: Stage) -> bool:
        return self.config.device != "cpu" and (stage.runs_models or stage.gpu)

    def _kind(self, job: Job) -> str:
        """Return the kind of node that a job runs on: cpu or gpu."""
        return "gpu" if self._may_use_gpu(job.stage) and job.stage.uses_gpu(self.grid, **job.values) else "cpu"

    def limits(self, job: Job) -> NodeLimits:
        """Return the limits of the node that a job runs on."""
        return self.config.nodes.limits(self.kind(job))

    def group(self, job: Job) -> str | None:
        """Return the name of the cluster job that a job shares with others, or None.

        Jobs on GPU nodes share none: they would hold the GPU while another stage runs. No group member may depend on
        another through a job outside the group, so group names include how many reranking and fusion rounds come
        first, and the shards of models that are trained here are encoded in jobs of their own.
        """
        if not job.stage.group or not self.config.small_corpus or self.kind(job) == "gpu":
            return None
        if job.stage.group == "cell":
            return self._cell_group(**job.values)
        if self.config.device != "cpu" or self._is_trained(job) or not self.grid.is_small(job.values["corpus"]):
            return None
        return "encode-index"

    def _is_trained(self, job: Job) -> bool:
        """Tell whether a job of a shard, or one that it reads from, has a model that is trained here."""
        sources = job.sources(self.grid)
        return any(
            source.stage.kind == "train" or (source.stage.group == "shard" and self._is_trained(source))
            for source in sources
        )

    def _cell_group(self, system: str, dataset: str) -> str | None:
        entry = self.grid.system(system)
        small = self.grid.is_small(self.grid.corpus(dataset))
        if entry.parts:  # reranking and fusing are short, however large the corpus
            return f"combine-{self.grid.layers[system]}" if small else f"combine-{dataset}-{system}"
        if not small:
            return None
        search = output(paths.RUN, self.grid, system=system, dataset=dataset).job.stage
        return Stage.evaluated_in if search.runs_models and self.config.device != "cpu" else search.evaluated_in
