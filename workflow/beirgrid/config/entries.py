"""The configuration as typed classes: each key once, with its meaning, its default and its limits.

The JSON schema (``make schema``) and the key tables of the documentation (``make docs``) are made from these classes,
those of ``datasets``, ``recipes``, ``models`` and ``systems`` among them. ``checks`` compares entries with each other.
"""

# ruff: noqa: F403
from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PrivateAttr, WithJsonSchema

from ..core.compute import Device, GpuSearch, Kernels, Precision
from ..core.errors import nearest
from ..measures import metric_key
from .datasets import *
from .datasets import Corpus, Dataset
from .models import *
from .models import Model
from .query_changes import *
from .recipes import *
from .systems import *
from .systems import System
from .values import LIST, MOST_COUNTED, Count, Entry, GridName, Name, Names, NotNegative, Refers, Seed, Size, once

# Class of published values → the largest difference that counts as reproduced, unless the configuration says otherwise.
TOLERANCES = {"lucene": 0.0005, "checkpoint": 0.005, "commit": 0.0015, "disputed": 0.005, "mean": 0.0005}
TOLERANCES |= {"plaid": 0.005, "flash": 0.0125, "card": 0.01, "own": 0.001, "paper": 0.02}


class ShowSettings(Entry):
    """What tables and report show beside the systems of the grid."""

    published: Annotated[tuple[str, ...], LIST] = Field(
        (), description="Files of config/published (without .csv) whose systems are shown."
    )
    order: Literal["score", "grid"] = Field("score", description="Order of the systems: best first, or the grid's.")


class GridSettings(Entry):
    """What to run: every system on every dataset."""

    name: GridName = Field("grid", description="Name of the grid. Its tables and report are in results/grids/{name}/.")
    title: str = Field("", description="Title of the page. By default, the name and the size of the grid.")
    systems: Annotated[Names, Refers(("systems",))] = Field(description="Columns of the grid.")
    datasets: Annotated[Names, Refers(("datasets",))] = Field(description="Rows of the grid.")
    gate: Names | None = Field(
        None,
        description="Datasets that run first, as the grid {name}-gate. A system that deviates there from a published "
        "value does not run on the other datasets.",
    )
    baseline: Name | None = Field(None, description="System to compare the others with. By default, the first of BM25.")
    compare: Annotated[tuple[Name, ...], LIST, AfterValidator(once)] = Field(
        (),
        min_length=2,
        description="A system, and those with which its comparison was planned before the run. The answer begins with "
        "these differences. They are tested without a correction for the other pairs.",
    )
    margin: NotNegative = Field(0.0, description="Planned systems that differ by less are equivalent. 0: none are.")
    show: ShowSettings = Field(ShowSettings(), description="What tables and report show beside these systems.")

    def _problems(self) -> Iterator[str]:
        for name in (*self.compare, self.baseline or self.systems[0]):
            if name not in self.systems:
                yield f"baseline, compare: the grid has no system {name!r}{nearest(name, self.systems)}"


class NodeLimits(Entry):
    """Limits of one kind of cluster node. A change reruns nothing."""

    mem_mb: Annotated[int, Field(ge=1000, le=MOST_COUNTED)] = Field(64_000, description="Memory of a node in MB.")
    runtime: Count = Field(1440, description="Time limit of a job in minutes.")
    cores: Count = Field(8, description="Cores of a node that one job takes at most.")
    partition: str = Field("", description="SLURM partition with these nodes. Empty: the default partition.")
    gpu_model: str = Field("", description="GPU type to request, if nodes have several types (gres name).")


class Nodes(Entry):
    """Limits of jobs, by the kind of node."""

    cpu: NodeLimits = Field(NodeLimits(), description="Nodes without a GPU.")
    gpu: NodeLimits = Field(NodeLimits(), description="Nodes with GPUs.")

    def _problems(self) -> Iterator[str]:
        if self.cpu.gpu_model:
            yield "cpu.gpu_model: nothing reads it; set gpu.gpu_model"

    def limits(self, kind: str) -> NodeLimits:
        """Return the limits of a kind of node: cpu or gpu."""
        return self.gpu if kind == "gpu" else self.cpu


class RetrieveSettings(Entry):
    """Settings of first-stage retrieval."""

    depth: Size = Field(1000, description="Documents kept per query in a run.")


class BatchTokens(Entry):
    """Tokens per batch, padding included, by device."""

    cpu: Size = Field(2048, description="On a CPU. Small batches are as fast as larger ones.")
    cuda: Size = Field(65536, description="On a GPU. More where the GPU has more memory.")


class EncodeSettings(Entry):
    """Settings of every stage that runs a model."""

    precision: Precision = Field("auto", description="Number format. auto: float32 on a CPU, 16 bits on a GPU.")
    shard: Annotated[int, Field(ge=1, le=100_000_000)] = Field(500_000, description="Documents that one job encodes.")
    batch_tokens: BatchTokens = Field(BatchTokens(), description="Tokens per batch, padding included, by device.")
    keep: bool = Field(False, description="Keep embeddings after they are indexed.")


def _keys(metrics: tuple[str, ...]) -> tuple[str, ...]:
    return once(tuple(map(metric_key, metrics)))


# In configfiles, models also stand under ids of the hub, so the schema takes any text.
_Key = Annotated[Name, WithJsonSchema({"type": "string"})]


class Config(Entry):
    """The checked configuration: settings, and the four registries by name."""

    grid: GridSettings = Field(description="What to run: every system on every dataset.")
    metrics: Annotated[Names, AfterValidator(_keys)] = Field(
        description="Metrics to compute: ndcg@10 or nDCG@10, recall@100 or R@100, … (docs/protocol.md). main is the "
        "main metric of each dataset. If all datasets of the grid have the same main metric, it replaces main."
    )
    device: Device = Field("auto", description="Where models run. auto: on a GPU if there is one.")
    kernels: Kernels = Field("auto", description="plain: only documented functions of PyTorch, transformers and faiss.")
    gpu_search: GpuSearch = Field(
        "torch",
        description="What multiplies vectors on a GPU: faiss needs faiss-gpu, and PyTorch takes over beyond 1,948 "
        "documents per query. Runs are the same.",
    )
    nodes: Nodes = Field(Nodes(), description="Limits of the jobs on CPU nodes and on GPU nodes.")
    retrieve: RetrieveSettings = Field(RetrieveSettings(), description="First-stage retrieval.")
    encode: EncodeSettings = Field(EncodeSettings(), description="Stages that run a model.")
    small_corpus: Annotated[int, Field(ge=0, le=MOST_COUNTED)] = Field(
        0, description="Corpora of at most this many documents share cluster jobs."
    )
    seed: Seed = Field(0, description="Seed of the random numbers behind intervals and tests.")
    tolerances: dict[str, NotNegative] = Field(
        TOLERANCES, description="Class of published values → the largest difference that counts as reproduced."
    )
    corpora: dict[_Key, Corpus] = Field(description="Collections of documents.")
    datasets: dict[_Key, Dataset] = Field(description="Test queries and qrels over the corpora.")
    models: dict[_Key, Model] = Field(description="Neural models.")
    systems: dict[_Key, System] = Field(description="Columns of the grid: retrievers, reranked systems, fusions.")
    _gate: Config | None = PrivateAttr(None)

    @property
    def gate(self) -> Config | None:
        """The configuration of the grid's gate, if it has one."""
        return self._gate

    def behind(self, gate: Config) -> Config:
        """Return the configuration with that of its gate."""
        behind = self.model_copy()
        behind._gate = gate
        return behind
