"""Fuse runs with ranx, which is imported here alone: the import takes three seconds.

What ranx does not take is settled before and after it:

- A run without documents for a query does not count for it, as if the query had only the other runs. ranx wants the
  same queries in all runs, and its norms and votes would read something into an empty result. Queries are therefore
  fused in groups, by the runs that have documents for them.
- Equal scores within a run keep their canonical order: ranx is given documents that are ranked already. Equal fused
  scores are put into canonical order by the caller.
- Condorcet's votes depend on the order of the candidates where they tie or form a cycle. ranx takes the order from a
  set, another one in each process. Here it is the order in which the runs, one after the other, list the documents.
- BayesFuse estimates odds for 1,000 ranks. Documents below them are left out.

ranx runs without its compiler. To compile takes half a minute at first use; plain Python takes 1 to 2 seconds for 300
queries and two runs of 1,000 documents, no more than compiled code with its conversions.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from numba import config, typed

from ..config.fusions import METHODS
from . import runs

# What the estimates of a trained method are called among its arguments.
_ESTIMATES = {"bayesfuse": "log_odds", "mapfuse": "map_scores"}
_BAYESFUSE_RANKS = 1000


@contextmanager
def _plain_python() -> Iterator[None]:
    """Switch numba's compiler off. numba asks when a function is declared, and when a dictionary or list is made."""
    before = config.DISABLE_JIT
    config.DISABLE_JIT = 1
    try:
        yield
    finally:
        config.DISABLE_JIT = before


def _modules() -> dict[str, ModuleType]:
    """Import a copy of ranx, which others do not see: what is declared with a compiler cannot run without one."""
    _ = typed.Dict, typed.List  # numba imports its own at first use: with the compiler, which others need
    others = {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] == "ranx"}
    with _plain_python():
        importlib.import_module("ranx")
    own = {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] == "ranx"}
    sys.modules.update(others)
    return own


_RANX = _modules()


def _candidates(parts: Sequence[Mapping[str, Mapping[str, float]]]) -> list[list[str]]:
    """Return the documents of each query in the order of their numbers, where ranx has the order of a set."""
    return [sorted({one for part in parts for one in part[query]}, key=int) for query in parts[0]]


for _module in ("condorcet", "weighted_condorcet"):
    vars(_RANX[f"ranx.fusion.{_module}"])["get_candidates"] = _candidates


class RanxFuser:
    """Runs as ranx takes them. Within a query, the names of documents are numbers."""

    def __init__(self, parts: Sequence[runs.Run], method: str, norm: str) -> None:
        self.method = method
        self.norm = norm
        self.trained: tuple[dict[str, float], dict[str, Any]] | None = None  # the last estimates, and for what
        depth = _BAYESFUSE_RANKS if method == "bayesfuse" else None
        self.parts: list[runs.Run] = [
            {query: runs.Ranking(found.ids[:depth], found.scores[:depth]) for query, found in part.items() if found.ids}
            for part in parts
        ]
        self.documents: dict[str, dict[str, str]] = {}
        groups: dict[tuple[int, ...], list[str]] = {}
        for query in dict.fromkeys(query for part in self.parts for query in part):
            having = tuple(number for number, part in enumerate(self.parts) if query in part)
            groups.setdefault(having, []).append(query)
            listed = dict.fromkeys(one for number in having for one in self.parts[number][query].ids)
            self.documents[query] = dict(zip(listed, map(str, range(len(listed))), strict=True))
        with _plain_python():
            self.groups = [(having, self._normalised(having, queries)) for having, queries in groups.items()]

    def _run(self, number: int, queries: Sequence[str]) -> Any:
        """Return one of the runs for ranx, which keeps the order of its documents."""
        run = _RANX["ranx"].Run()
        run.sorted = True
        for query in queries:
            ranking = self.parts[number].get(query, runs.EMPTY)
            names = [self.documents[query][document] for document in ranking.ids]
            run.run[query] = dict(zip(names, ranking.scores.astype(np.float64).tolist(), strict=True))
        return run

    def _normalised(self, having: Sequence[int], queries: Sequence[str]) -> list[Any]:
        of_group = [self._run(number, queries) for number in having]
        if METHODS[self.method].reads == "ranks":
            return of_group
        normalise = _RANX["ranx.normalization"].norm_switch(self.norm)
        return list(normalise(of_group)) if self.norm == "borda" else [normalise(run) for run in of_group]

    def estimates(self, grades: Mapping[str, Mapping[str, int]], **given: float) -> dict[str, Any]:
        """Return what a trained method estimates of each run on judged queries, by the name of its argument.

        Args:
            grades: the same in each call.
            given: the parameter of the method, which probfuse's training takes.
        """
        train = getattr(_RANX["ranx.fusion"], f"{self.method}_train")
        given = _taken(train, given)
        if self.trained and self.trained[0] == given:  # the parameter is not the training's
            return self.trained[1]
        queries = sorted(grades)
        judged: dict[str, dict[str, int]] = {}
        for query in queries:
            names = self.documents.setdefault(query, {})
            unranked = grades[query].keys() - names.keys()
            names |= {document: str(len(names) + n) for n, document in enumerate(unranked)}
            judged[query] = {names[document]: grade for document, grade in grades[query].items()}
        with _plain_python():
            of_ranx = _RANX["ranx"].Qrels()
            of_ranx.qrels.update(judged)
            of_parts = [self._run(number, queries) for number in range(len(self.parts))]
            found = train(of_ranx, of_parts, **given)
        self.trained = (given, {_ESTIMATES.get(self.method, "probs"): found})
        return self.trained[1]

    def scores(self, **parameters: Any) -> Iterator[tuple[str, list[str], list[float]]]:
        """Yield each query with documents, these, and their fused scores.

        Args:
            parameters: arguments of ranx's function. A sequence has a value for each run.
        """
        fuse = _RANX["ranx.fusion"].fusion_switch(self.method)
        taken = _taken(fuse, parameters).items()
        for having, parts in self.groups:
            given = {name: _at(value, having) for name, value in taken}
            with _plain_python():
                fused = fuse(parts, **given).run
            for query, of_query in fused.items():
                ids = [*self.documents[query]]
                yield query, [ids[int(name)] for name in of_query], [float(score) for score in of_query.values()]


def _at(value: Any, having: Sequence[int]) -> Any:
    """Return the values of some runs; a number is of all runs."""
    return value if isinstance(value, int | float) else [value[number] for number in having]


def _taken(function: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a function of ranx takes."""
    return {name: value for name, value in given.items() if name in inspect.signature(function).parameters}
