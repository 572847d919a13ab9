"""Assign jobs to kinds of nodes, and group short jobs into cluster jobs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..config.entries import Gpl, Program
from ..core.stages import MODEL_RULES, PROGRAM_RULES, STAGES
from .grid import Grid

Wildcards = Mapping[str, str]

# Upper bound on the stages that one grouped job runs sequentially (four encoded, then indexed).
STAGES_IN_TURN = 8


def signed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Cache a rule function's signature, which Snakemake inspects several times per job."""
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return function


def computed_once(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Keep the result of a function for the wildcards of each job, which Snakemake and the records ask for often."""
    found: dict[tuple[tuple[str, str], ...], Any] = {}

    def kept(wildcards: Any) -> Any:
        key = tuple(wildcards.items())
        if key not in found:
            found[key] = function(wildcards)
        return found[key]

    return signed(kept)


class JobGroups:
    """The node kind (``cpu`` or ``gpu``) and the group of each job."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def may_use_gpu(self, rule: str) -> bool:
        """Tell whether any job of a rule requests a GPU."""
        if rule in PROGRAM_RULES:
            programs = (entry for entry in self.grid.config.systems.values() if isinstance(entry, Program))
            return self.grid.config.device != "cpu" and any(entry.gpu for entry in programs)
        return rule in MODEL_RULES and self.grid.config.device != "cpu"

    def runs_model(self, rule: str, wildcards: Wildcards) -> bool:
        """Tell whether a job starts PyTorch."""
        if rule == "generate":
            train = self.grid.training(wildcards["model"])
            return "generator" in train.models
        return rule in MODEL_RULES and not self.grid.endpoint(wildcards)

    def kind(self, rule: str, wildcards: Wildcards) -> str:
        """Return the kind of node that a job runs on."""
        if rule in PROGRAM_RULES and self.may_use_gpu(rule):
            return "gpu" if self.grid.program(wildcards["system"]).gpu else "cpu"
        if not self.may_use_gpu(rule) or not self.runs_model(rule, wildcards):
            return "cpu"
        if rule == "mine":  # mining with BM25 only runs no model
            train = self.grid.training(wildcards["model"])
            return "gpu" if isinstance(train, Gpl) and train.dense_miners else "cpu"
        return "gpu"

    def group(self, rule: str) -> Callable[[Wildcards], str | None]:
        """Return the function that names the group of a rule's job. The jobs of a group share a cluster job.

        Jobs on GPU nodes are not grouped: they would hold the GPU while another stage of the group runs.
        """
        return signed(lambda wildcards: self.group_of(rule, dict(wildcards.items())))

    def group_of(self, rule: str, wildcards: Wildcards) -> str | None:
        """Return the name of a job's group, or None for a job that is not grouped.

        No group member may depend on another through a job outside the group, so group names include how many training
        rounds, or reranking and fusion rounds, come first.
        """
        if not self.grid.config.small_corpus or self.kind(rule, wildcards) == "gpu":
            return None
        group = STAGES[rule].group
        if group == "shard":
            if self.grid.config.device != "cpu" or not self.grid.is_small(wildcards["corpus"]):
                return None
            return f"encode-{self._rounds(wildcards['model'])}"
        if group == "cell":
            return self._cell_group(rule, wildcards["system"], wildcards["dataset"])
        return None

    def _cell_group(self, rule: str, system: str, dataset: str) -> str | None:
        entry, small = self.grid.system(system), self.grid.is_small(self.grid.corpus(dataset))
        if entry.parts:  # reranking and fusing are short, however large the corpus
            return f"combine-{self.grid.layers[system]}" if small else f"combine-{dataset}-{system}"
        if not small:
            return None
        if entry.kind == "lexical":
            return "retrieve-bm25"
        on_cpu = entry.kind not in ("external", "program") and self.grid.config.device == "cpu"
        return "retrieve-model" if on_cpu else "evaluate"

    def _rounds(self, model: str) -> int:
        """Return how many training rounds precede a model's encoding."""
        train = self.grid.model(model).training
        if not train:
            return 0
        others = train.dense_miners if isinstance(train, Gpl) else ()
        return 1 + max(self._rounds(name) for name in (train.base, *others))
