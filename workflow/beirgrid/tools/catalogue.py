"""``beirgrid list``: list registered systems, models, datasets, metrics and grids, with their needs and local state."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal

from ..config.checks import absent_folder, models_behind
from ..config.entries import LocalCorpus, Reranked, Retriever
from ..config.metric_names import NAMES, STANDARD, lower_is_better, written
from ..config.names import local_name
from ..config.places import resolve_path
from ..config.registry import mteb_models
from ..core import paths
from ..core.checkout import CHECKOUT
from ..core.errors import DataError, show
from ..pipeline.grid import Grid
from ..pipeline.resources import Resources
from ..results import results_folder, scores
from .configfiles import merged
from .options import ConfigFiles, ResultsPlace
from .text import table_lines

Row = dict[str, Any]
# Names of a list that a table shows.
_NAMED = 3


def catalogue(
    kind: Annotated[Literal["systems", "models", "datasets", "metrics", "grids", "runs"], "what to list"],
    words: Annotated[tuple[str, ...], "show only rows that contain it"] = (),
    *,
    here: Annotated[bool, "show only what this folder already has"] = False,
    configfile: ConfigFiles = (),
    directory: ResultsPlace = Path(),
    json: Annotated[bool, "print JSON"] = False,
) -> None:
    """List registered systems, datasets and models, and what is on this disk.

    examples:
      beirgrid list models                    registered models, and those that mteb lists
      beirgrid list models qwen reranker      rows that contain all of these words
      beirgrid list datasets --here           what was fetched in this folder
      beirgrid list runs --json               for programs
      beirgrid list systems --configfile grid.yaml

    Raises:
        BeirgridError: a configfile is wrong, or no grid ran in the folder.
    """
    grid = Grid(merged([path.absolute() for path in configfile]))
    rows = (row for row in _KINDS[kind](grid, directory) if row.get("here", True) or not here)
    shown = [row for row in rows if all(word.lower() in " ".join(map(_text, row.values())).lower() for word in words)]
    if json:
        print(dumps(shown, indent=1, ensure_ascii=False))
    elif shown:
        columns = list(dict.fromkeys(name for row in shown for name in row))
        show(*table_lines(list(map(written, columns)), [[_text(row.get(name)) for name in columns] for row in shown]))
    else:
        print(f"no {kind}" + (f" with {' '.join(words)}" if words else ""))


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, list):
        return ", ".join(value if len(value) <= _NAMED else [*value[:_NAMED], f"… ({len(value)})"])
    return f"{value:,.0f}" if isinstance(value, int | float) and abs(value) >= 10 else str(value)


def _has(directory: Path, pattern: str, **names: str) -> bool:
    """Tell whether a file of the working folder of a place is there."""
    return (results_folder.working_folder(directory)[0] / pattern.format(**names)).is_file()


def _systems(grid: Grid, directory: Path) -> Iterator[Row]:
    """Yield the systems: their kind, what they are made of, what they download, and the datasets that they ran on."""
    config, resources, done = grid.config, Resources(grid), list[tuple[str, str]]()
    with contextlib.suppress(DataError):  # no grid ran here
        done += results_folder.find(results_folder.working_folder(directory)[0]).cells
    for name, entry in config.systems.items():
        models = [model for model in models_behind(config, [name]) if model in config.models]
        own = entry.retriever if isinstance(entry, Retriever) else entry.reranker if isinstance(entry, Reranked) else ""
        family = config.models[own].family if own in config.models else ""
        yield {
            "system": name,
            "kind": family or entry.kind,
            "models": models,
            "download MB": round(sum(_download(resources, model) for model in models)),
            "here": sorted(dataset for system, dataset in done if system == name),
        }


def _models(grid: Grid, directory: Path) -> Iterator[Row]:
    """Yield the registered models, then mteb's: who runs them, their family, where they come from, and their size."""
    resources = Resources(grid)
    for name, entry in grid.config.models.items():
        origin = "trained here" if entry.origin == "train" else str(getattr(entry, entry.origin))
        yield {
            "model": name,
            "engine": "endpoint" if entry.endpoint else getattr(entry, "engine", None) or "beirgrid",
            "family": entry.family,
            "from": entry.endpoint.model if entry.endpoint else origin,
            "million parameters": entry.size.parameters,
            "licence": entry.licence,
            "download MB": round(_download(resources, name)),
            "pickled": entry.pickled,
            "runs code": entry.trust_remote_code,
            "here": _has(directory, paths.MODEL_RECORD, model=grid.weights_of(name)),
            "reason": "",
        }
    for model in mteb_models().values():
        about = {key: model[key] for key in ("engine", "family", "licence", "output", "reason")}
        parameters = float(model["parameters"]) if model["parameters"] else None
        row: Row = {"model": model["name"], "from": "mteb", "million parameters": parameters, **about}
        yield row | {"here": _has(directory, paths.MODEL_RECORD, model=local_name(model["name"]))}


def _download(resources: Resources, model: str) -> float:
    """Return the download size of a checkpoint from the hub, in MB."""
    of_hub = resources.config.models[model].origin == "checkpoint"
    return resources.sizes.weights_mb(model) if of_hub else 0.0


def _datasets(grid: Grid, directory: Path) -> Iterator[Row]:
    """Yield the datasets: their sizes, their licence, what they download, and whether they are supplied."""
    config, sizes = grid.config, Resources(grid).sizes
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
                "here": _has(directory, paths.CORPUS_RECORD, corpus=corpus)
                and _has(directory, paths.DATASET_RECORD, dataset=name),
            }
        yield row


def _metrics(grid: Grid, directory: Path) -> Iterator[Row]:
    """Yield the metrics."""
    for name in NAMES:
        used = [written(metric) for metric in STANDARD if metric.split("@")[0] == name]
        row = {"metric": f"{name}@k", "written": written(f"{name}@k"), "by default": used}
        yield row | {"less is better": lower_is_better(f"{name}@1")}


def _grids(grid: Grid, directory: Path) -> Iterator[Row]:
    """Yield the ready-made grids, and those that ran in the folder, with the number of finished cells."""
    folder = results_folder.working_folder(directory)[0]
    for path in sorted((CHECKOUT / "config" / "grids").glob("*.yaml")):
        comments = itertools.takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
        sentence = " ".join(line.lstrip("# ") for line in comments).partition(". ")[0].rstrip(".")
        yield {"grid": path.stem, "cells": None, "finished": None, "description": sentence, "here": False}
    for name, of_grid in results_folder.of_grids(folder / "results", results_folder.find).items():
        finished = sum(cell.scores.is_file() for cell in of_grid.cells.values())
        place = str(folder / paths.GRID_FOLDER.format(grid=name))
        yield {"grid": name, "cells": len(of_grid.cells), "finished": finished, "description": place, "here": True}


def _runs(grid: Grid, directory: Path) -> Iterator[Row]:
    """Yield the finished cells of the folder, with their scores."""
    for cell in results_folder.find(directory).cells.values():
        if cell.scores.is_file():
            of_cell = scores.read(cell.scores)
            shown = {metric: round(value, 4) for metric, value in of_cell.means.items()}
            yield {"system": cell.system, "dataset": cell.dataset, "queries": of_cell.queries, **shown}


_KINDS = {
    "systems": _systems,
    "models": _models,
    "datasets": _datasets,
    "metrics": _metrics,
    "grids": _grids,
    "runs": _runs,
}
