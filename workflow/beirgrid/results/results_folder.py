"""Find results on disk: the cells of a results folder, or of one of its grids, with their files.

A results folder may have any name, and may come from another version of beirgrid: require only the keys that you use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, TypeVar

from ..core import files, paths
from ..core.errors import DataError, suggestion, warn

# The option that ``locate`` and the functions below resolve, with its help.
PLACE = "working folder of grids, its results folder, or the folder or name of one grid"
Directory = Annotated[Path, PLACE]
# The summary of a grid, in its folder under the results.
SUMMARY = Path(paths.GRID_SUMMARY).name
GridT = TypeVar("GridT")
_GRIDS = paths.GRID_SUMMARY.format(grid="*").removeprefix("results/")


class Result(NamedTuple):
    """The files of one system on one dataset."""

    system: str
    dataset: str
    scores: Path  # means of the metrics, the record of the evaluation
    per_query: Path
    run: Path
    qrels: Path
    records: tuple[Path, ...]  # of the steps before the evaluation; without a grid's summary, of dataset and run alone
    language: str = ""  # of the corpus, an ISO 639-1 code; empty without a grid's summary
    # Digests of the settings that the grid asked for, by record; empty unless the results of one grid are read.
    asked: Mapping[Path, str] = MappingProxyType({})
    slice: Path | None = None  # record with the ids of the queries that count, if they are a slice

    def refuse_replaced(self) -> None:
        """Refuse a cell of which another grid has made a file again with other settings.

        Raises:
            DataError: a record has another digest of settings than the grid asked for.
        """
        folder = self.scores.parents[2]
        for record, key in self.asked.items():
            now = files.read_json(record).get("settings_key") if record.is_file() else None
            if now not in (None, key):
                asked = of_grids(folder, lambda summary: _asked(files.read_json(summary), folder))
                names = " and ".join(name for name, of_grid in asked.items() if of_grid.get(record) == now)
                raise DataError(
                    f"{self.system} on {self.dataset} was replaced by {f'grid {names}' if names else 'another run'}: "
                    f"{record} has other settings than this grid asks for. Run this grid again for its own scores"
                )


class Results(NamedTuple):
    """A results folder, or one of its grids."""

    folder: Path
    cells: dict[tuple[str, str], Result]  # by system and dataset: all cells of the grid, or all with scores
    seeds: dict[str, tuple[str, ...]]  # the systems of the seeds of each system with seeds
    slices: dict[str, tuple[str, Path]]  # by the name of its row: dataset, and record with the ids of the queries

    @property
    def systems(self) -> list[str]:
        """The systems, each once. A system with seeds replaces the systems of its seeds."""
        owners = {member: system for system, members in self.seeds.items() for member in members}
        return list(dict.fromkeys(owners.get(system, system) for system, _ in self.cells))

    def runs(self, system: str) -> dict[str, tuple[Result, ...]]:
        """Return the runs of a system by dataset: one, or one per seed, some of which may be unfinished."""
        members = self.seeds.get(system, (system,))
        datasets = dict.fromkeys(dataset for name, dataset in self.cells if name in members)
        return {
            dataset: tuple(self.cells.get((name, dataset)) or _result(self.folder, name, dataset) for name in members)
            for dataset in datasets
        }

    def rows(self, system: str) -> dict[str, tuple[Result, ...]]:
        """Return the runs of a system by dataset, and by slice those of its dataset."""
        runs = self.runs(system)
        for name, (dataset, record) in self.slices.items():
            if dataset in runs:
                runs[name] = tuple(run._replace(slice=record) for run in runs[dataset])
        return runs


class Place(NamedTuple):
    """The location of results: a results folder, with the summary of a grid if it is one grid's."""

    folder: Path
    summary: Path | None


def locate(place: str | Path, grid: str = "") -> Place:
    """Resolve a location of results. All commands and functions that read results use this function.

    Args:
        place: the working folder of grids, its results folder, the folder of one grid (``results/grids/{name}``), that
            grid's ``grid.json``, or ``name``, if that grid ran in the working directory.
        grid: name of the grid to find in the folder; empty for all that the folder has.

    Raises:
        DataError: the folder has no such grid.
    """
    path = Path(place)
    if not path.exists():
        path = _grids(path.parent).get(path.name, path)
    if grid:
        summaries = _grids(path)
        if grid not in summaries:
            raise DataError(f"{path} has no grid {grid!r}{suggestion(grid, summaries)}")
        path = summaries[grid]
    summary = path if path.name == SUMMARY else path / SUMMARY
    if summary.is_file():
        return Place(summary.parent.parent.parent, summary)
    return Place(path / "results" if (path / "results").is_dir() else path, None)


def working_folder(directory: Path, grid: str = "") -> tuple[Path, str]:
    """Return the working folder of a place's grids, and the grid's name if the place is one grid's.

    Raises:
        DataError: there is no such place, or its results were moved out of their working folder.
    """
    folder, summary = locate(directory, grid)
    if not folder.is_dir():
        raise DataError(f"there is no folder {directory}, and no grid of that name ran here")
    if summary and folder.name != "results":
        raise DataError(f"{folder} must be called results, as in the folder in which the grid ran")
    return folder.parent if folder.name == "results" else folder, summary.parent.name if summary else ""


def only_grid(directory: Path, grid: str = "") -> Path:
    """Return the summary of the grid of a place: the named one, or the only one.

    Raises:
        DataError: the place has no such grid, or several.
    """
    place = locate(directory, grid)
    grids = [place.summary] if place.summary else [*_grids(place.folder).values()]
    if len(grids) != 1:
        raise DataError(f"which grid? {place.folder} has {', '.join(_grids(place.folder)) or 'none'} (--grid)")
    return grids[0]


def find(place: str | Path, grid: str = "") -> Results:
    """Find the results at a place, as ``locate`` resolves it. Of several grids, a damaged one is named and left out.

    Raises:
        DataError: there are no results, or the summary of the one grid is missing or damaged.
    """
    folder, summary = locate(place, grid)
    if summary:
        return Results(folder, *_summary(summary, folder))
    if not (folder / "metrics").is_dir():
        raise DataError(f"{place} has no results: it has no folder metrics, and no grid has that name")
    cells: dict[tuple[str, str], Result] = {}
    seeds: dict[str, tuple[str, ...]] = {}
    slices: dict[str, tuple[str, Path]] = {}
    for of_grid, systems, of_datasets in of_grids(folder, lambda path: _summary(path, folder)).values():
        # Of several grids, none is asked for: the files are those of the last one that made them.
        cells |= {key: cell._replace(asked=MappingProxyType({})) for key, cell in of_grid.items()}
        slices |= of_datasets
        seeds |= {name: members for name, members in systems.items() if len(members) > len(seeds.get(name, ()))}
    keys = list[tuple[str, str]]()
    for system in sorted(filter(Path.is_dir, (folder / "metrics").iterdir())):
        with files.reading(system):  # an unreadable folder is an error, which a glob would ignore
            keys += sorted((system.name, path.stem) for path in system.iterdir() if path.suffix == ".json")
    if not keys:
        raise DataError(f"{folder} has no scores: no cell of a grid is finished there")
    return Results(folder, {key: cells.get(key) or _result(folder, *key) for key in keys}, seeds, slices)


def of_grids(folder: Path, read: Callable[[Path], GridT]) -> dict[str, GridT]:
    """Return what a function reads of each summary in a folder, by grid. A damaged one is named and left out."""
    read_of = {}
    for path in sorted(folder.glob(_GRIDS)):
        try:
            read_of[path.parent.name] = read(path)
        except DataError as error:
            warn(f"the grid {path.parent.name} is left out: {error}")
    return read_of


def _grids(place: Path) -> dict[str, Path]:
    """Return the summaries of the grids of a working folder or results folder, by name."""
    summaries = [*place.glob(f"results/{_GRIDS}"), *place.glob(_GRIDS)]
    return {path.parent.name: path for path in sorted(summaries)}


def _summary(
    summary: Path, folder: Path
) -> tuple[dict[tuple[str, str], Result], dict[str, tuple[str, ...]], dict[str, tuple[str, Path]]]:
    """Read the cells of a summary by system and dataset, its systems with seeds, and its slices, as ``Results``."""
    cells = {}
    with files.reading(summary):
        content = files.read_json(summary)
        asked = _asked(content, folder)
        for cell in content.get("cells", ()):
            key = (cell["system"], cell["dataset"])
            language = content.get("datasets", {}).get(cell["dataset"], {}).get("language", "en")
            found = _result(folder, *key, cell.get("records", ()), language)
            of_cell = {path: asked[path] for path in (*found.records, found.scores) if path in asked}
            cells[key] = found._replace(asked=of_cell)
        slices = {
            name: (entry["slice_of"], placed(folder, entry["slice_record"]))
            for name, entry in content.get("datasets", {}).items()
            if entry.get("slice_of")
        }
        return cells, {system: tuple(members) for system, members in content.get("seeds", {}).items()}, slices


def _asked(content: Mapping[str, Any], folder: Path) -> dict[Path, str]:
    """Return the digests of the settings in the content of a summary, by record."""
    return {placed(folder, path): key for path, key in content.get("settings", {}).items()}


def placed(folder: Path, pattern: str, **wildcards: str) -> Path:
    """Return where a results folder has an artifact, from its path below the working folder of grids."""
    return folder / Path(pattern.format(**wildcards) if wildcards else pattern).relative_to("results")


def _result(
    folder: Path, system: str, dataset: str, records: Sequence[str] | None = None, language: str = ""
) -> Result:
    """Return the files of a cell. Paths of records are relative to their grid's working folder."""

    place = partial(placed, folder, system=system, dataset=dataset)
    behind = tuple(map(place, (paths.DATASET_RECORD, paths.RUN_RECORD) if records is None else records))
    means, per_query, run, qrels = map(place, (paths.METRICS, paths.PER_QUERY, paths.RUN, paths.QRELS))
    return Result(system, dataset, means, per_query, run, qrels, behind, language)
