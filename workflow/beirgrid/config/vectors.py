"""Checks of indexes and cut vectors against the dimensions of a model's vectors, where its entry says them."""

from __future__ import annotations

from collections.abc import Iterator

from . import checks
from .entries import Config, DenseRetriever
from .indexes import IvfPq


def problems(config: Config) -> Iterator[str]:
    """Yield dimensions that the models behind the grid's systems do not have, and codes that do not divide them."""
    for name in checks.with_parts(config.systems, config.grid.systems):
        system = config.systems[name]
        if not isinstance(system, DenseRetriever):
            continue
        there = config.models[system.retriever].size.dimensions
        kept = system.dimensions or there
        chunks = system.chunks or getattr(config.models[system.retriever], "chunks", None)
        if chunks and chunks.aggregate == "max" and system.variant:
            yield (
                f"systems.{name}.chunks: with aggregate: max, the search is exact, in all dimensions: leave out index "
                "and dimensions, or take aggregate: mean"
            )
        if there and kept and kept > there:
            yield f"systems.{name}.dimensions: {kept} is more than the {there} of {system.retriever!r}"
        elif kept and isinstance(system.index, IvfPq) and kept % system.index.codes:
            yield f"systems.{name}.index.codes: {system.index.codes} does not divide the {kept} dimensions"
