"""The plan: write or read the texts with which a system searches in place of its queries."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...core import paths
from ...core.checkout import expanded
from ...graph import artifacts, model_entries
from ...graph.grid import Grid
from ...graph.sizes import Amounts, Sizes
from ...graph.stage import Cost, Inputs, Settings, Stage


class Rewrite(Stage):
    """Texts for the queries of a dataset, which systems and retrievers share."""

    version = 1
    packages = ("torch", "transformers")
    kind = "search"
    outputs = {"rewrites": paths.REWRITES, "record": paths.REWRITES_RECORD}
    main = "rewrites"
    costs = {"queries": Cost(memory=1e-3, disk=1e-3)}  # assumed

    def constraints(self, grid: Grid) -> dict[str, str]:
        return {"rewriting": grid.one_of(grid.rewritings)}

    def model(self, grid: Grid, rewriting: str, dataset: str) -> str | None:
        return grid.rewritings[rewriting].generator

    def inputs(self, grid: Grid, rewriting: str, dataset: str) -> Inputs:
        inputs = {"queries": artifacts.queries(dataset)}
        if generator := grid.rewritings[rewriting].generator:
            inputs["generator"] = artifacts.checkpoint(grid, generator, grid.corpus(dataset))
        return inputs

    def files(self, grid: Grid, rewriting: str, dataset: str) -> Iterable[str]:
        file = grid.rewritings[rewriting].file
        return [str(Path(expanded(file.replace("{dataset}", dataset))).absolute())] if file else []

    def settings(self, grid: Grid, rewriting: str, dataset: str) -> Settings:
        entry = grid.rewritings[rewriting]
        if not entry.generator:
            [path] = self.files(grid, rewriting, dataset)
            return {"path": path}
        return {"model": model_entries.model_settings(grid.model(entry.generator)), **entry.request()}

    def lineage(self, grid: Grid, rewriting: str, dataset: str) -> Settings:
        return artifacts.rewriting_lineage(grid.rewritings[rewriting])

    def work(self, sizes: Sizes, rewriting: str, dataset: str) -> Amounts:
        entry = sizes.grid.rewritings[rewriting]
        if not entry.generator:
            return {}
        words = len(entry.request()["prompt"].split()) + sizes.query_words[dataset]
        return sizes.rewriting(entry.generator, sizes.queries(dataset), words, entry.request()["texts"])
