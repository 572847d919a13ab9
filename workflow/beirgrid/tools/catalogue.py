"""``beirgrid list``: list systems, models, datasets, metrics, keys of the configuration, grids and runs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal

from ..config import mteb_collections, registry
from ..config.checks import absent_folder, models_behind
from ..config.entries import LocalCorpus, Reranked, Retriever
from ..config.keys import keys
from ..config.load import merged
from ..config.names import local_name
from ..core import paths
from ..core.checkout import resolve_path
from ..core.errors import quantity, show, table_lines
from ..graph.grid import Grid
from ..graph.resources import Resources
from ..measures import MEASURES, STANDARD, written
from ..options import ConfigFiles
from ..results import results_folder, scores
from .run import ready_made

Row = dict[str, Any]
# Names of a list that a table shows.
_NAMED = 3


def catalogue(
    kind: Annotated[Literal["systems", "models", "datasets", "metrics", "keys", "grids", "runs"], "what to list"],
    words: Annotated[tuple[str, ...], "show only rows that contain it"] = (),
    *,
    here: Annotated[bool, "show only what this folder already has"] = False,
    configfile: ConfigFiles = (),
    directory: results_folder.Directory = Path(),
    json: Annotated[bool, "print JSON"] = False,
) -> None:
    """List systems, datasets, models, metrics and keys, and what is on this disk.

    examples:
      beirgrid list models                    registered models, and those that mteb lists
      beirgrid list models qwen reranker      rows that contain all of these words
      beirgrid list datasets miracl           registered datasets, and mteb's tasks and benchmarks
      beirgrid list datasets --here           what was fetched in this folder
      beirgrid list keys prompts              keys of the configuration, with their defaults and meanings
      beirgrid list runs --json               for programs
      beirgrid list systems --configfile grid.yaml

    Raises:
        BeirgridError: a configfile is wrong, or no grid ran in the folder.
    """
    grid = Grid(merged([path.absolute() for path in configfile]))
    place = directory if kind == "runs" else results_folder.working_folder(directory)[0]  # runs may be one grid's
    rows = (row for row in _KINDS[kind](grid, place) if row.get("here", True) or not here)
    shown = []
    for row in rows:
        text = " ".join(map(_text, row.values())).lower()
        if all(word.lower() in text for word in words):
            shown.append(row)
    if json:
        print(dumps(shown, indent=1, ensure_ascii=False))
    elif shown:
        columns = list(dict.fromkeys(name for row in shown for name in row))
        cells = [[_text(row.get(name)) for name in columns] for row in shown]
        show(*table_lines(list(map(written, columns)), cells))
        show(*_counts(shown))
    else:
        print(f"no {kind}" + (f" with {' '.join(words)}" if words else ""))


def _counts(rows: list[Row]) -> list[str]:
    """Return a line that counts models by the engine that runs them; no line for other rows."""
    engines = Counter(row["engine"] for row in rows if "engine" in row).most_common()
    counted = ", ".join(f"{engine} {number:,}" for engine, number in engines)
    return [f"{quantity(len(rows), 'model')}, by engine: {counted}"] if engines else []


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, list):
        return ", ".join(value if len(value) <= _NAMED else [*value[:_NAMED], f"… ({len(value)})"])
    return f"{value:,.0f}" if isinstance(value, int | float) and abs(value) >= 10 else str(value)


def _systems(grid: Grid, folder: Path) -> Iterator[Row]:
    """Yield the systems: their kind, what they are made of, and the datasets on which they have scores."""
    config = grid.config
    for name, entry in config.systems.items():
        own = entry.retriever if isinstance(entry, Retriever) else entry.reranker if isinstance(entry, Reranked) else ""
        yield {
            "system": name,
            "kind": config.models[own].family if own in config.models else entry.kind,
            "models": [model for model in models_behind(config, [name]) if model in config.models],
            "here": sorted(path.stem for path in folder.glob(paths.METRICS.format(system=name, dataset="*"))),
        }


def _models(grid: Grid, folder: Path) -> Iterator[Row]:
    """Yield the registered models, then mteb's: who runs them, their family, where they come from, and their size."""
    sizes = Resources(grid).sizes
    for name, entry in grid.config.models.items():
        origin = "trained here" if entry.origin == "train" else str(getattr(entry, entry.origin))
        yield {
            "model": name,
            "engine": "endpoint" if entry.endpoint else getattr(entry, "engine", None) or "beirgrid",
            "family": entry.family,
            "from": entry.endpoint.model if entry.endpoint else origin,
            "million parameters": entry.size.parameters,
            "licence": entry.licence,
            "download MB": round(sizes.weights_mb(name)) if entry.origin == "checkpoint" else 0,
            "pickled": entry.pickled,
            "runs code": entry.trust_remote_code,
            "here": (folder / paths.MODEL_RECORD.format(model=grid.weights_of(name))).is_file(),
            "reason": "",
        }
    for model in registry.models():
        yield {
            "model": model["name"],
            "from": "mteb",
            "million parameters": model["parameters"],
            **{key: model[key] for key in ("engine", "family", "licence", "reason")},
            "here": (folder / paths.MODEL_RECORD.format(model=local_name(model["name"]))).is_file(),
        }


def _datasets(grid: Grid, folder: Path) -> Iterator[Row]:
    """Yield the registered datasets, then mteb's tasks and benchmarks: their sizes, their licence, what they download,
    whether they are supplied, and why one is refused.
    """
    config = grid.config
    sizes = Resources(grid).sizes
    for name, entry in config.datasets.items():
        row: Row = {"dataset": name, "corpus": f"mean of {len(entry.mean_of)}", "task": entry.task, "here": False}
        if corpus := entry.corpus:
            source = config.corpora[corpus]
            row |= {
                "corpus": corpus,
                "language": source.language,
                "documents": source.documents,
                "queries": entry.queries,
                "licence": source.licence,
                "from": str(resolve_path(source.path)) if isinstance(source, LocalCorpus) else source.id,
                "download MB": round(sizes.download_mb(corpus)),
                "supply": str(absent_folder(source) or ""),
                "here": (folder / paths.CORPUS_RECORD.format(corpus=corpus)).is_file()
                and (folder / paths.DATASET_RECORD.format(dataset=name)).is_file(),
            }
        yield row

    for listed in mteb_collections.listed():
        names = (listed["dataset"], f"{listed['dataset']}-*")  # a task, or one of its subsets or splits
        here = any(any(folder.glob(paths.DATASET_RECORD.format(dataset=name))) for name in names)
        yield {**listed, "from": "mteb", "here": here}


def _keys(grid: Grid, folder: Path) -> Iterator[Row]:
    """Yield the keys of the configuration."""
    yield from keys()


def _metrics(grid: Grid, folder: Path) -> Iterator[Row]:
    """Yield the metrics."""
    for name, measure in MEASURES.items():
        used = [written(metric) for metric in STANDARD if metric.split("@")[0] == name]
        row = {"metric": f"{name}@k", "written": written(f"{name}@k"), "source": measure.source, "by default": used}
        yield row | {"less is better": measure.lower_is_better}


def _grids(grid: Grid, folder: Path) -> Iterator[Row]:
    """Yield the ready-made grids, and those that ran in the folder, with the number of finished cells."""
    for name, path in ready_made().items():
        comments = itertools.takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
        sentence = " ".join(line.lstrip("# ") for line in comments).partition(". ")[0].rstrip(".")
        yield {"grid": name, "cells": None, "finished": None, "description": sentence, "here": False}
    for name, of_grid in results_folder.of_grids(folder / "results", results_folder.find).items():
        finished = sum(cell.scores.is_file() for cell in of_grid.cells.values())
        place = str(folder / paths.GRID_FOLDER.format(grid=name))
        yield {"grid": name, "cells": len(of_grid.cells), "finished": finished, "description": place, "here": True}


def _runs(grid: Grid, place: Path) -> Iterator[Row]:
    """Yield the finished cells of a place, with their scores."""
    for cell in results_folder.find(place).cells.values():
        if cell.scores.is_file():
            of_cell = scores.read(cell.scores)
            shown = {metric: round(value, 4) for metric, value in of_cell.means.items()}
            yield {"system": cell.system, "dataset": cell.dataset, "queries": of_cell.queries, **shown}


_KINDS = {
    "systems": _systems,
    "models": _models,
    "datasets": _datasets,
    "metrics": _metrics,
    "keys": _keys,
    "grids": _grids,
    "runs": _runs,
}
